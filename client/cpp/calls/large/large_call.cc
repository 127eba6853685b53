#include "client/cpp/calls/large/large_call.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <new>

#include "client/cpp/wire/status.h"
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

constexpr size_t kCopies = 2;  // at once

}  // namespace

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
      receiver_(sizes, options.certificate, out, &beside_),
      beside_(kCopies) {}

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
  next_chunk_.Clear();
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
  const Status settled = receiver_.settle();
  if (failure_.ok()) failure_ = settled;
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
  failure_ = receiver_.take(&reply_, committed_);
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
  beside_.wait();
  grpc::ByteBuffer chunk;
  chunk.Swap(&next_chunk_);
  if (!chunk.Valid()) chunk = make_chunk(sent_);
  rpc_->Write(chunk, written);
  sent_ += chunk_size(sent_);
  if (sent_ < sizes_.operand_bytes) beside_.run([this, offset = sent_] { prepare_chunk(offset); });
}

int64_t LargeCall::chunk_size(int64_t offset) const {
  const int64_t room = std::max<int64_t>(core_.options().max_message_bytes - kMessageBytesFixed, 1);
  // No chunk has bytes of both the matrix and its starting vectors.
  const int64_t end = offset < sizes_.matrix_bytes ? sizes_.matrix_bytes : sizes_.operand_bytes;
  return std::min({receiver_.chunk_bytes(), end - offset, room});
}

grpc::ByteBuffer LargeCall::make_chunk(int64_t offset) {
  return make_large_chunk(core_.buffers(), matrix_, sizes_.matrix_bytes, offset, chunk_size(offset));
}

void LargeCall::prepare_chunk(int64_t offset) noexcept {
  try {
    next_chunk_ = make_chunk(offset);
  } catch (const std::bad_alloc&) {  // the calling thread tries it again, and reports it
  }
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
