#include "server/rpc/small/small_call.h"

#include <grpcpp/impl/codegen/server_callback_handlers.h>

#include "absl/strings/str_cat.h"
#include "server/rpc/calls/cut_off.h"

namespace svdserve::server {
namespace {

const grpc::Status kNoMessage(grpc::StatusCode::INVALID_ARGUMENT, "the call ended without its message");

}  // namespace

SmallCall::SmallCall(const HandlerContext* context, const char* method, grpc::CallbackServerContext* call,
                     const SmallAnswer* answer, grpc::ByteBuffer* reply)
    : context_(context),
      method_(method),
      call_(call),
      answer_(answer),
      reply_(reply),
      read_(context->small_reads, context->clock) {}

grpc::internal::MethodHandler* SmallCall::make_handler(const HandlerContext* context, const char* method,
                                                       const SmallAnswer* answer) {
  return new grpc::internal::CallbackClientStreamingHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
      [context, method, answer](grpc::CallbackServerContext* call, grpc::ByteBuffer* reply) {
        auto* const mine = new SmallCall(context, method, call, answer, reply);
        mine->start();
        return mine;
      });
}

void SmallCall::start() {
  peer_ = context_->peer(*call_);
  traffic_.begin(*context_->traffic, call_->peer(), Messages::kOne, context_->pipeline->options().max_message_bytes);
  ids_ = begin_call(call_);
  arrival_ = context_->clock->now();
  Error error = context_->calls->add(CallKind::kSmall, peer_, this);
  registered_ = error.ok();
  if (error.ok()) error = read_.begin(peer_, [this] { StartRead(&message_); });
  if (!error.ok()) finish(to_status(error));
}

void SmallCall::OnCancel() {
  traffic_.cancelled();
  if (read_.leave()) finish(grpc::Status::CANCELLED);
}

void SmallCall::OnReadDone(bool ok) {
  read_.end();
  if (ok) {
    traffic_.read(message_.Length());
    finish((*answer_)(message_, reply_));
  } else {
    finish(call_->IsCancelled() ? grpc::Status::CANCELLED : kNoMessage);
  }
}

void SmallCall::finish(const grpc::Status& status) {
  const absl::Time now = context_->clock->now();
  {
    MutexLock lock(&mu_);
    finished_at_ = now;
  }
  if (method_ != nullptr) log_end(status, now);
  Finish(with_request_info(status, ids_.request));
}

void SmallCall::log_end(const grpc::Status& status, absl::Time now) {
  CallLine line;
  line.method = method_;
  line.code = static_cast<absl::StatusCode>(status.error_code());
  line.took = now - arrival_;
  if (context_->access_log->wants(line.code, line.took)) context_->access_log->write(ids_, peer_, line, now);
}

void SmallCall::cut_off_if_stalled(absl::Time now, absl::Duration timeout) {
  switch (read_.lateness(now)) {
    case SmallRead::Lateness::kWaits:
      if (read_.leave()) finish(to_status(no_turn_error()));
      return;
    case SmallRead::Lateness::kSends:
    case SmallRead::Lateness::kInTheWay:
      cut_off(call_, late_message_error(), ids_.request);
      return;
    case SmallRead::Lateness::kNone:
      break;
  }
  {
    MutexLock lock(&mu_);
    if (now - finished_at_ <= timeout) return;
    finished_at_ = absl::InfiniteFuture();
  }
  cut_off(call_,
          {absl::StatusCode::kDeadlineExceeded,
           Reason::kClientStalled,
           absl::StrCat("the client did not take the reply within ", absl::FormatDuration(timeout)),
           "",
           {}},
          ids_.request);
}

void SmallCall::OnDone() {
  if (registered_) context_->calls->remove(this);
  delete this;
}

}  // namespace svdserve::server
