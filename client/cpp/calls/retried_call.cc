#include "client/cpp/calls/retried_call.h"

#include <grpc/support/time.h>

#include "client/cpp/wire/status.h"

namespace svdserve::client::internal {

RetriedCall::RetriedCall(Core& core, const char* method, grpc::ByteBuffer request, Deadline deadline, Done done)
    : core_(core), method_(method), request_(std::move(request)), route_(core_, deadline), done_(std::move(done)) {}

// gRPC cancels a call that was cancelled before its context was started at its start. So `done` runs on gRPC's thread
// in this case, too.
void RetriedCall::attempt() {
  grpc::GenericStub& stub = route_.next();  // not under the lock: the core's lock may be taken, which cancel() is under
  std::unique_ptr<grpc::Alarm> rung;        // it holds this object: to be dropped, but not under the lock
  std::lock_guard lock(mutex_);
  rung = std::move(alarm_);
  context_ = std::make_unique<grpc::ClientContext>();
  prepare_unary(*context_, method_, request_, route_.deadline());
  if (cancelled_) context_->TryCancel();
  stub.UnaryCall(context_.get(), method_, {}, &request_, &reply_,
                 [self = shared_from_this()](const grpc::Status& answer) { self->on_answer(answer); });
}

void RetriedCall::on_answer(const grpc::Status& answer) {
  Status status = from_grpc(answer, core_.options());
  const auto delay = route_.after(status);
  bool at_once = false;
  {
    std::lock_guard lock(mutex_);
    context_.reset();
    if (!status.ok()) {
      at_once = delay && delay->count() == 0 && !cancelled_;
      if (cancelled_) {
        status = cancelled();
      } else if (delay && !at_once) {
        alarm_ = std::make_unique<grpc::Alarm>();
        const gpr_timespec wait = gpr_time_from_nanos(delay->count(), GPR_TIMESPAN);
        alarm_->Set(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait),
                    [self = shared_from_this()](bool) { self->attempt(); });
        return;
      }
    }
  }
  if (at_once) return attempt();
  finish(std::move(status));
}

void RetriedCall::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  if (context_) context_->TryCancel();
  if (alarm_) alarm_->Cancel();
}

void RetriedCall::finish(Status status) {
  Done done = std::move(done_);  // whatever it holds goes when it has run
  done(std::move(status), reply_, route_.attempts());
}

}  // namespace svdserve::client::internal
