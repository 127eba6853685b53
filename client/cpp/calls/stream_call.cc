#include "client/cpp/calls/stream_call.h"

#include <grpc/support/time.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <cstring>

#include "client/cpp/calls/server_calls.h"
#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire.h"
#include "svdserve/v1/svd_service.pb.h"

namespace svdserve::client::internal {

StreamCall::StreamCall(Core& core, const StreamOptions& options)
    : core_(core),
      options_(options),
      deadline_(deadline_after(options.call.timeout, Clock::now())),
      context_(std::make_unique<grpc::ClientContext>()) {}

std::shared_ptr<StreamCall> StreamCall::open(Core& core, const StreamOptions& options) {
  std::shared_ptr<StreamCall> call(new StreamCall(core, options));
  call->self_ = call;
  set_deadline(*call->context_, call->deadline_);
  const bool is_eigen = options.problem != Problem::kSvd;
  call->core_.stub().PrepareBidiStreamingCall(call->context_.get(), is_eigen ? kEigendecomposeStream : kDecomposeStream,
                                              {}, call.get());
  call->AddHold();  // submit() and finish() start operations from outside gRPC's callbacks
  call->StartRead(&call->reading_);
  call->StartCall();
  call->on_stop_.emplace(options.call.stop, [raw = call.get()] { raw->cancel(); });
  return call;
}

// --- the caller's side --------------------------------------------------------------------------

Result<std::optional<uint64_t>> StreamCall::submit(const Batch& batch, const ComputeOptions& compute,
                                                   std::optional<std::chrono::nanoseconds> timeout, bool wait) {
  if (compute.problem != options_.problem) {
    return invalid("options.problem", "must be that of the stream, StreamOptions::problem");
  }
  const Result<MatrixSizes> sizes = matrix_sizes(batch, compute);
  if (!sizes.ok()) return sizes.status();
  if (Status s = fetch_limits(core_, {{}, options_.call.stop}, deadline_); !s.ok()) return s;
  PieceLimits limits = core_.limits().value_or(core_.default_limits());
  limits.piece_bytes = limits.max_message_bytes;
  const Result<Split> pieces = split(batch, limits, compute);
  if (!pieces.ok()) return pieces.status();
  if (pieces->pieces() != 1)
    return invalid("matrices.count", "a request of a stream must fit one message; send fewer matrices");

  const Deadline deadline = deadline_after(timeout, Clock::now());
  uint64_t id;
  {
    std::unique_lock lock(mutex_);
    const auto is_over = [&] { return closed_ || finishing_ || cancelled_ || done_; };
    const auto has_room = [&] { return in_flight_ < std::max(options_.max_in_flight, 1); };
    if (wait) changed_.wait(lock, [&] { return is_over() || has_room(); });
    if (is_over()) {
      if (!status_.ok()) return status_;
      return cancelled_ ? cancelled() : failure(Code::kFailedPrecondition, "", "the stream is finished");
    }
    if (!has_room()) return std::optional<uint64_t>();
    id = ++last_id_;
    ++in_flight_;
  }
  Batch shape = batch;
  shape.data = shape.starting_vectors = nullptr;
  shape.owner = shape.starting_owner = nullptr;
  Request request{shape, compute, make_payloads(core_.buffers(), batch, {0, batch.count}, *sizes),
                  RetrySchedule(core_.options().retry, deadline)};
  std::lock_guard lock(mutex_);
  if (closed_ || done_) {  // it broke while the matrices were copied
    answer(id, status_.ok() ? cancelled() : status_, {}, {});
  } else {
    pending_.emplace(id, std::move(request));
    outbox_.push_back(id);
    write_next();
  }
  return std::optional<uint64_t>(id);
}

std::optional<StreamReply> StreamCall::next() {
  std::unique_lock lock(mutex_);
  const auto chosen = [&] {
    return answered_.find(options_.ordered ? next_id_ : arrivals_.empty() ? 0 : arrivals_.front());
  };
  changed_.wait(lock, [&] {
    return chosen() != answered_.end() || (in_flight_ == 0 && (finishing_ || cancelled_ || closed_ || done_));
  });
  const auto found = chosen();
  if (found == answered_.end()) return std::nullopt;
  StreamReply reply = std::move(found->second);
  answered_.erase(found);
  ++next_id_;
  if (!options_.ordered) arrivals_.pop_front();
  --in_flight_;
  changed_.notify_all();
  return reply;
}

void StreamCall::finish() {
  bool release = false;
  {
    std::lock_guard lock(mutex_);
    finishing_ = true;
    if (all_answered()) release = close();
    changed_.notify_all();
  }
  if (release) RemoveHold();
}

void StreamCall::cancel() {
  bool release;
  {
    std::lock_guard lock(mutex_);
    if (done_) return;
    cancelled_ = true;
    release = close();
    context_->TryCancel();
    changed_.notify_all();
  }
  if (release) RemoveHold();
}

Status StreamCall::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

void StreamCall::wait_done() {
  on_stop_.reset();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_; });
}

// --- gRPC's side --------------------------------------------------------------------------------

void StreamCall::write_next() {
  if (is_writing_ || closed_ || outbox_.empty()) return;
  const uint64_t id = outbox_.front();
  outbox_.pop_front();
  Request& request = pending_.at(id);
  request.is_sent = true;
  std::optional<std::chrono::nanoseconds> left;
  if (request.schedule.deadline()) {
    left = std::max<std::chrono::nanoseconds>(*request.schedule.deadline() - Clock::now(), std::chrono::nanoseconds(1));
  }
  const BatchToSend batch{request.shape, request.shape.count, request.payloads};
  writing_ = make_stream_request(id, left, batch, request.compute);
  is_writing_ = true;
  StartWrite(&writing_);
}

// Half-closes an intact stream; either way nothing is written from now on.
bool StreamCall::close() {
  if (closed_) return false;
  closed_ = true;
  if (cancelled_) return true;
  if (is_writing_) {
    half_close_ = true;  // an answer can overtake the end of its request's write
  } else {
    StartWritesDone();
  }
  return true;
}

void StreamCall::OnWriteDone(bool ok) {
  bool release = false;
  {
    std::lock_guard lock(mutex_);
    is_writing_ = false;
    writing_.Clear();
    if (!ok) {
      if (!closed_) {  // broken: the status comes with OnDone
        closed_ = release = true;
      }
    } else if (half_close_) {
      StartWritesDone();
    } else {
      write_next();
    }
  }
  if (release) RemoveHold();
}

void StreamCall::OnReadDone(bool ok) {
  bool release = false;
  if (ok) {
    v1::DecomposeStreamResponse response;
    grpc::ProtoBufferReader reader(&reading_);
    const bool parsed = reader.status().ok() && response.ParseFromZeroCopyStream(&reader);
    reading_.Clear();
    std::unique_lock lock(mutex_);
    const Status taken = parsed ? take_answer(response) : invalid_reply("it is not a DecomposeStreamResponse");
    if (!taken.ok()) {  // for whom later answers are meant is unknown
      if (status_.ok()) status_ = taken;
      lock.unlock();
      return cancel();
    }
    if (finishing_ && all_answered()) release = close();
    changed_.notify_all();
  } else {
    std::lock_guard lock(mutex_);
    release = !closed_;
    closed_ = true;
  }
  if (release) RemoveHold();
  if (ok) StartRead(&reading_);
}

Status StreamCall::take_answer(const v1::DecomposeStreamResponse& response) {
  const uint64_t id = response.request_id();
  const auto found = pending_.find(id);
  if (found == pending_.end() || !found->second.is_sent) {
    return invalid_reply("it is for request " + std::to_string(id) + ", which does not wait for a reply");
  }
  Request& request = found->second;
  Status status = from_rpc(response.status());
  Report report;
  Planes planes;
  if (status.ok()) {
    Result<Report> read = read_planes(response.response(), request, &planes);
    status = read.status();
    if (read.ok()) {
      report = *std::move(read);
      report.attempts = request.schedule.attempts();
    }
  } else if (retry_later(id, request, status)) {
    return {};
  }
  pending_.erase(found);
  answer(id, std::move(status), std::move(report), std::move(planes));
  return {};
}

Result<Report> StreamCall::read_planes(const v1::DecomposeResponse& response, const Request& request, Planes* planes) {
  const Expected expected = expected_of(request.shape, request.shape.count, request.compute);
  const std::array<std::string_view, kPlanes> received = planes_of(response, expected);
  std::array<size_t, kPlanes> received_bytes{};
  Outputs out;
  for (size_t p = 0; p < received.size(); ++p) {
    received_bytes[p] = received[p].size();
    const Plane plane = static_cast<Plane>(p);
    (*planes)[p].resize(static_cast<size_t>(plane_bytes(request.shape, request.compute, plane, request.shape.count)));
    out[plane] = (*planes)[p];
  }
  Result<Report> report = to_report(response, expected, received_bytes, out);
  if (!report.ok()) return report;
  for (size_t p = 0; p < received.size(); ++p) {
    if (!received[p].empty()) std::memcpy((*planes)[p].data(), received[p].data(), received[p].size());
  }
  return report;
}

bool StreamCall::retry_later(uint64_t id, Request& request, const Status& status) {
  if (closed_) return false;
  const auto delay = request.schedule.next(status, Clock::now(), uniform());
  if (!delay) return false;
  request.is_sent = false;
  request.alarm = std::make_shared<grpc::Alarm>();
  const gpr_timespec wait = gpr_time_from_nanos(delay->count(), GPR_TIMESPAN);
  request.alarm->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait), [weak = weak_from_this(), id](bool) {
    if (const auto self = weak.lock()) self->send_again(id);
  });
  return true;
}

void StreamCall::send_again(uint64_t id) {
  std::lock_guard lock(mutex_);
  if (closed_ || pending_.find(id) == pending_.end()) return;
  outbox_.push_back(id);
  write_next();
}

void StreamCall::answer(uint64_t id, Status status, Report report, Planes planes) {
  answered_.emplace(id, StreamReply{id, std::move(status), std::move(report), std::move(planes)});
  arrivals_.push_back(id);
  changed_.notify_all();
}

void StreamCall::OnDone(const grpc::Status& grpc_status) {
  std::shared_ptr<StreamCall> self;  // released after the lock
  std::map<uint64_t, Request> dropped;
  {
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = cancelled_ ? cancelled() : from_grpc(grpc_status, core_.options());
    for (const auto& [id, request] : pending_) {
      Status status = status_.ok() ? failure(Code::kUnavailable, "", "the server ended the stream early") : status_;
      answer(id, std::move(status), {}, {});
    }
    dropped.swap(pending_);  // their alarms and payloads go after the lock
    outbox_.clear();
    context_.reset();
    closed_ = true;
    done_ = true;
    self = std::move(self_);
    changed_.notify_all();
  }
}

}  // namespace svdserve::client::internal

namespace svdserve::client {

Stream::Stream(std::shared_ptr<internal::Core> core, std::shared_ptr<internal::StreamCall> call)
    : core_(std::move(core)), call_(std::move(call)) {}
Stream::Stream(Stream&&) noexcept = default;

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this != &other) {
    Stream old(std::move(*this));
    core_ = std::move(other.core_);
    call_ = std::move(other.call_);
  }
  return *this;
}

Stream::~Stream() {
  if (!call_) return;
  call_->cancel();
  call_->wait_done();
}

Result<uint64_t> Stream::submit(const Batch& batch, const ComputeOptions& compute,
                                std::optional<std::chrono::nanoseconds> timeout) {
  const auto id = call_->submit(batch, compute, timeout, true);
  if (!id.ok()) return id.status();
  return **id;
}

Result<std::optional<uint64_t>> Stream::try_submit(const Batch& batch, const ComputeOptions& compute,
                                                   std::optional<std::chrono::nanoseconds> timeout) {
  return call_->submit(batch, compute, timeout, false);
}

std::optional<StreamReply> Stream::next() { return call_->next(); }
void Stream::finish() { call_->finish(); }
void Stream::cancel() { call_->cancel(); }
Status Stream::status() const { return call_->status(); }

}  // namespace svdserve::client
