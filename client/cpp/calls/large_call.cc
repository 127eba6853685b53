#include "client/cpp/calls/large_call.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "client/cpp/wire/status.h"
#include "wire/crc32c.h"
#include "wire/limits.h"

namespace svdserve::client {
namespace {

// rows * cols * bytes; nothing where that is no int64.
std::optional<int64_t> bytes_of(int64_t rows, int64_t cols, size_t bytes) {
  int64_t size = 0;
  if (__builtin_mul_overflow(rows, cols, &size) || __builtin_mul_overflow(size, static_cast<int64_t>(bytes), &size)) {
    return std::nullopt;
  }
  return size;
}

}  // namespace

DataType vector_type(const LargeMatrix& matrix, const LargeOptions& options) {
  if (options.problem != LargeProblem::kGeneral) return matrix.data_type;
  return value_bytes(matrix.data_type) == sizeof(float) ? DataType::kC64 : DataType::kC128;
}

Result<LargeSizes> large_sizes(const LargeMatrix& matrix, const LargeOptions& options) {
  if (matrix.rows < 1)
    return internal::invalid("open.rows", "must be at least 1, but is " + std::to_string(matrix.rows));
  if (matrix.cols < 1)
    return internal::invalid("open.cols", "must be at least 1, but is " + std::to_string(matrix.cols));
  if (matrix.data_type != result_type(matrix.data_type)) {
    return internal::invalid("open.data_type", std::string(name(matrix.data_type)) +
                                                   " is for batches alone; convert the matrix to " +
                                                   name(result_type(matrix.data_type)));
  }
  LargeSizes s;
  const bool is_svd = options.problem == LargeProblem::kSvd, is_general = options.problem == LargeProblem::kGeneral;
  const int64_t all = is_svd ? std::min(matrix.rows, matrix.cols) : matrix.rows;
  const bool is_leading =
      is_svd && options.top_k > 0 && options.vectors != Vectors::kFull;  // else the server rejects it
  if (is_leading && options.top_k > all) {
    return internal::invalid("open.options.top_k", "must be between 0 and min(rows, cols) = " + std::to_string(all) +
                                                       ", but is " + std::to_string(options.top_k));
  }
  const int64_t k = is_leading ? options.top_k : all;
  s.values = k;
  if (options.vectors != Vectors::kNone) {
    const bool full = options.vectors == Vectors::kFull;
    s.left_columns = full ? matrix.rows : k;
    if (is_svd) s.right_rows = full ? matrix.cols : k;
    if (is_general && full) s.right_rows = k;
  }
  const size_t element = element_bytes(vector_type(matrix, options));
  const auto operand = bytes_of(matrix.rows, matrix.cols, element_bytes(matrix.data_type));
  const auto values = bytes_of(1, k, is_general ? element : value_bytes(matrix.data_type));
  const auto left = bytes_of(matrix.rows, s.left_columns, element),
             right = bytes_of(s.right_rows, matrix.cols, element);
  if (!operand || !values || !left || !right)
    return internal::invalid("open.rows", "the size of the matrix or of a result overflows 64 bits");
  const auto start = bytes_of(matrix.rows, matrix.starting_vectors != nullptr ? matrix.cols : 0, element);
  if (!start || __builtin_add_overflow(*operand, *start, &s.operand_bytes))
    return internal::invalid("open.rows", "the size of the matrix with its starting vectors overflows 64 bits");
  s.matrix_bytes = *operand;
  s.values_bytes = *values;
  s.left_bytes = *left;
  s.right_bytes = *right;
  return s;
}

namespace internal {
namespace {

// Larger chunks would only take more memory on both sides.
constexpr int64_t kLargestChunkBytes = 1 << 20;

}  // namespace

// --- what comes back ----------------------------------------------------------------------------

LargeReceiver::LargeReceiver(const LargeSizes& sizes, bool has_certificate, const LargeOutputs& out)
    : sizes_(sizes), has_certificate_(has_certificate), targets_{{out.values}, {out.left}, {out.right_adjoint}} {}

void LargeReceiver::restart() {
  accepted_ = false;
  chunk_bytes_ = 0;
  report_.reset();
  for (LargeTarget& t : targets_) t.received = 0;
}

Status LargeReceiver::take(const LargeReply& reply, bool operand_sent) {
  if (!accepted_ && reply.step != LargeStep::kAccepted) return invalid_reply("it does not begin with accepted");
  if (report_) return invalid_reply("it goes on after the summary");
  const bool is_result = reply.step == LargeStep::kFactorChunk || reply.step == LargeStep::kSummary;
  if (is_result && !operand_sent) return invalid_reply("it has results of an operand that was not sent completely");
  switch (reply.step) {
    case LargeStep::kAccepted:
      return take_accepted(reply);
    case LargeStep::kFactorChunk:
      return take_chunk(reply);
    case LargeStep::kSummary:
      return take_summary(reply);
    case LargeStep::kProgress:
    case LargeStep::kNothing:  // a step of a later version of the contract
      return {};
  }
  return {};
}

Status LargeReceiver::take_accepted(const LargeReply& reply) {
  if (accepted_) return invalid_reply("it accepts the matrix twice");
  accepted_ = true;
  chunk_bytes_ = std::min(reply.chunk_bytes, kLargestChunkBytes);
  if (chunk_bytes_ < 1) return invalid_reply("it allows chunks of " + std::to_string(chunk_bytes_) + " bytes");
  int64_t result_bytes = 0;  // no more than the machine holds: the memory is there
  for (const LargeTarget& t : targets_) result_bytes += static_cast<int64_t>(t.memory.size());
  if (reply.operand_bytes == sizes_.operand_bytes && reply.result_bytes == result_bytes) return {};
  return invalid_reply("it accepts " + std::to_string(reply.operand_bytes) + " bytes with results of " +
                       std::to_string(reply.result_bytes) + ", but the matrix has " +
                       std::to_string(sizes_.operand_bytes) + " with results of " + std::to_string(result_bytes));
}

Status LargeReceiver::take_summary(const LargeReply& reply) {
  const LargeReport& r = reply.report;
  if (reply.values != sizes_.values || reply.left_columns != sizes_.left_columns ||
      reply.right_rows != sizes_.right_rows) {
    return invalid_reply("its summary has " + std::to_string(reply.values) + " values, " +
                         std::to_string(reply.left_columns) + " columns of U and " + std::to_string(reply.right_rows) +
                         " rows of V^H; " + std::to_string(sizes_.values) + ", " + std::to_string(sizes_.left_columns) +
                         " and " + std::to_string(sizes_.right_rows) + " were asked for");
  }
  if (r.sweeps < 0 || r.proper_rotations < 0 || r.rotations < r.proper_rotations) {
    return invalid_reply("its summary counts " + std::to_string(r.sweeps) + " sweeps and " +
                         std::to_string(r.rotations) + " rotations, " + std::to_string(r.proper_rotations) +
                         " of them proper");
  }
  if (r.members < 0) return invalid_reply("its summary counts " + std::to_string(r.members) + " devices");
  if (r.rank < 0 || r.rank > sizes_.values) {
    return invalid_reply("its summary has the rank " + std::to_string(r.rank));
  }
  if (r.status == MatrixStatus::kNonFinite || r.status == MatrixStatus::kByQr ||
      r.status == MatrixStatus::kNearDefective)
    return invalid_reply("its summary has the status of a small matrix");
  if (r.certificate.has_value() != has_certificate_) {
    return invalid_reply(has_certificate_ ? "its summary has no certificate"
                                          : "its summary has a certificate, none was asked for");
  }
  report_ = r;
  return {};
}

Status LargeReceiver::take_chunk(const LargeReply& reply) {
  if (reply.factor == LargeFactor::kUnknown) return invalid_reply("it has a result of an unknown kind");
  if (reply.data.empty()) return invalid_reply("it has an empty chunk");
  LargeTarget& target = targets_[static_cast<size_t>(reply.factor) - 1];
  const bool in_order = reply.offset >= 0 && static_cast<size_t>(reply.offset) == target.received;
  if (!in_order || reply.data.size() > target.memory.size() - target.received) {
    return invalid_reply("it has a chunk of " + std::to_string(reply.data.size()) + " bytes at byte " +
                         std::to_string(reply.offset) + " of a result of " + std::to_string(target.memory.size()) +
                         " bytes, of which " + std::to_string(target.received) + " had been received");
  }
  if (crc32c(0, reply.data.data(), reply.data.size()) != reply.crc32c) {
    return failure(
        Code::kDataLoss, "CHUNK_CORRUPTED",
        "the CRC-32C of a result at byte " + std::to_string(reply.offset) + " is wrong; send the matrix again");
  }
  std::memcpy(target.memory.data() + target.received, reply.data.data(), reply.data.size());
  target.received += reply.data.size();
  return {};
}

double LargeReceiver::fraction() const {
  double received = 0, all = 0;
  for (const LargeTarget& t : targets_) {
    received += static_cast<double>(t.received);
    all += static_cast<double>(t.memory.size());
  }
  return received / all;
}

Result<LargeReport> LargeReceiver::finish() {
  for (const LargeTarget& t : targets_) {
    if (t.received != t.memory.size()) {
      return invalid_reply("it ends after " + std::to_string(t.received) + " of " + std::to_string(t.memory.size()) +
                           " bytes of a result");
    }
  }
  if (!report_) return invalid_reply("it ends without a summary");
  return *std::move(report_);
}

// --- the call -----------------------------------------------------------------------------------

LargeCall::LargeCall(Core& core, const LargeMatrix& matrix, const LargeSizes& sizes, const LargeOutputs& out,
                     const LargeOptions& options, const CallOptions& call)
    : core_(core),
      matrix_(matrix),
      sizes_(sizes),
      options_(options),
      call_options_(call),
      deadline_(deadline_after(call.timeout, Clock::now())),
      begin_(Clock::now()),
      estimate_(sizes.operand_bytes, sizes.values_bytes + sizes.left_bytes + sizes.right_bytes),
      receiver_(sizes, options.certificate, out) {}

Result<LargeReport> LargeCall::run() {
  if (!core_.enter(this)) return cancelled();
  // Also where progress throws: the core must not know a call that is gone.
  struct Leaving {
    LargeCall* call;
    ~Leaving() { call->core_.leave(call); }
  } const leaving{this};
  Result<LargeReport> result = cancelled();
  {
    const std::stop_callback on_stop(call_options_.stop, [this] { cancel(); });
    Route route(core_, deadline_);
    for (;;) {
      Status status = attempt(route.next());
      const auto delay = pause_after(status, route);
      if (status.ok()) {
        result = receiver_.finish();
        if (result.ok()) result->attempts = attempts_;
        break;
      }
      result = status;
      if (!delay) break;
      std::unique_lock lock(mutex_);
      if (woken_.wait_until(lock, Clock::now() + *delay, [this] { return cancelled_; })) {
        result = cancelled();
        break;
      }
    }
  }
  return result;
}

// A server that took the operand may be computing it: this is one job, and not two. But where another server is there,
// one that went away in the upload is not waited for.
bool LargeCall::may_repeat(const Status& status) const {
  if (!receiver_.accepted()) return true;
  return core_.replicas().width() > 1 && status.code == Code::kUnavailable && !committed_;
}

std::optional<std::chrono::nanoseconds> LargeCall::pause_after(const Status& status, Route& route) {
  const auto delay = route.after(status);
  const RetryPolicy& policy = core_.options().retry;
  if (!committed_) token_.clear();
  if (receiver_.accepted()) {
    resumption_.reset();
    ++accepted_;
  }
  if (resuming_ && status.code == Code::kNotFound) {
    core_.log(LogLevel::kInfo, [&] { return "the matrix is sent again: " + status.to_string(); });
    token_.clear();
    return std::chrono::nanoseconds(0);
  }
  // A matrix that ends one server after the other is given up, too.
  if (!survives_ || policy.max_attempts <= 1 || accepted_ >= policy.max_attempts) {
    return may_repeat(status) ? delay : std::nullopt;
  }
  const auto now = Clock::now();
  if (!resumption_) {
    RetryPolicy until_deadline = policy;
    until_deadline.max_attempts = std::numeric_limits<int>::max();
    resumption_.emplace(until_deadline, deadline_ ? deadline_ : deadline_after(policy.max_server_delay, now));
  }
  const auto pause = resumption_->next(status, now, uniform());
  if (pause) {
    core_.log(LogLevel::kInfo, [&] {
      char text[64];
      std::snprintf(text, sizeof(text),
                    "the matrix is %s in %.2f s, after: ", token_.empty() ? "sent again" : "resumed",
                    std::chrono::duration<double>(*pause).count());
      return text + status.to_string();
    });
  }
  return pause;
}

void LargeCall::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
  woken_.notify_all();
}

Status LargeCall::attempt(grpc::GenericStub& stub) {
  grpc::ClientContext context;
  set_deadline(context, deadline_);
  receiver_.restart();
  failure_ = {};
  ++attempts_;
  resuming_ = committed_ = !token_.empty();
  sent_ = resuming_ ? sizes_.operand_bytes : 0;
  writing_ = false;
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return cancelled();
    context_ = &context;
  }
  // A queue of its own: the calling thread does the network's work.
  grpc::CompletionQueue queue;
  rpc_ = stub.PrepareCall(&context, kDecomposeLarge, &queue);
  Status status = drive(context, queue);
  queue.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
  }
  rpc_.reset();
  std::lock_guard lock(mutex_);
  context_ = nullptr;
  if (!failure_.ok()) return failure_;
  return cancelled_ && !status.ok() ? cancelled() : status;
}

// One read and one write are under way at a time, until the server has ended the call.
Status LargeCall::drive(grpc::ClientContext& context, grpc::CompletionQueue& queue) {
  const auto tag_of = [](Event e) { return reinterpret_cast<void*>(e); };
  rpc_->StartCall(tag_of(Event::kStarted));
  grpc::Status status;
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
    switch (static_cast<Event>(reinterpret_cast<uintptr_t>(tag))) {
      case Event::kStarted:
        if (ok) {
          writing_ = true;
          const grpc::ByteBuffer open = make_large_open(matrix_, options_, token_);
          if (resuming_) {
            rpc_->WriteLast(open, grpc::WriteOptions(), tag_of(Event::kWritten));
          } else {
            rpc_->Write(open, tag_of(Event::kWritten));
          }
        }
        rpc_->Read(&received_, tag_of(Event::kRead));
        break;
      case Event::kWritten:
        writing_ = false;
        if (!ok) break;  // the call is over; why, the status says
        if (sent_ > 0 && !committed_) {
          tell({.fraction = static_cast<double>(sent_) / static_cast<double>(sizes_.operand_bytes)});
        }
        write_next();
        break;
      case Event::kRead:
        if (!ok) {
          rpc_->Finish(&status, tag_of(Event::kFinished));
          break;
        }
        on_read();
        if (!failure_.ok()) context.TryCancel();
        rpc_->Read(&received_, tag_of(Event::kRead));
        break;
      case Event::kFinished:
        return from_grpc(status, core_.options());
    }
  }
  return failure(Code::kInternal, "", "the call's completion queue was shut down before the call ended");
}

void LargeCall::on_read() {
  if (!failure_.ok()) return;
  if (!read_large_reply(received_, &reply_)) {
    failure_ = invalid_reply("it is not a DecomposeLargeResponse");
    return;
  }
  failure_ = receiver_.take(reply_, committed_);
  if (!failure_.ok()) return;
  if (reply_.step == LargeStep::kAccepted) {
    token_ = reply_.resume;
    survives_ = survives_ || !token_.empty();
    estimate_.predict(reply_.predicted_seconds);
    write_next();
  }
  // Ignore the server's upload progress; the client's own count is more recent.
  if (reply_.step == LargeStep::kProgress && reply_.progress.stage != LargeStage::kUpload) tell(reply_.progress);
  if (reply_.step == LargeStep::kFactorChunk) {
    LargeProgress news = progress_;
    news.stage = LargeStage::kDownload;
    news.fraction = receiver_.fraction();
    tell(news);
  }
}

void LargeCall::write_next() {
  if (writing_ || committed_ || !receiver_.accepted() || !failure_.ok()) return;
  writing_ = true;
  const auto written = reinterpret_cast<void*>(Event::kWritten);
  if (sent_ == sizes_.operand_bytes) {
    committed_ = true;
    rpc_->WriteLast(make_large_commit(), grpc::WriteOptions(), written);
    return;
  }
  const int64_t room = std::max<int64_t>(core_.options().max_message_bytes - kMessageBytesFixed, 1);
  // No chunk has bytes of both the matrix and its starting vectors.
  const int64_t end = sent_ < sizes_.matrix_bytes ? sizes_.matrix_bytes : sizes_.operand_bytes;
  const int64_t size = std::min({receiver_.chunk_bytes(), end - sent_, room});
  rpc_->Write(make_large_chunk(core_.buffers(), matrix_, sizes_.matrix_bytes, sent_, size), written);
  sent_ += size;
}

void LargeCall::tell(LargeProgress news) {
  if (!options_.progress) return;
  progress_ = news;
  progress_.elapsed_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  estimate_.complete(&progress_);
  options_.progress(progress_);
}

}  // namespace internal
}  // namespace svdserve::client
