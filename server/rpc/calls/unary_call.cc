#include "server/rpc/calls/unary_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/calls/cut_off.h"
#include "server/rpc/calls/load_report.h"

namespace svdserve::server {
namespace {

Error cancelled_error() {
  return {
      absl::StatusCode::kCancelled, Reason::kCancelled, "the call was cancelled before its message arrived", "", {}};
}

Error no_message_error(Rpc rpc) {
  return {absl::StatusCode::kInvalidArgument,
          Reason::kInvalidField,
          absl::StrCat("the call ended without its ", name(rpc), "Request"),
          "",
          {}};
}

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* UnaryCall::handle(Rpc rpc, const HandlerContext* context,
                                                             grpc::CallbackServerContext* call,
                                                             grpc::ByteBuffer* reply) {
  auto* const mine = new UnaryCall(rpc, context, call, reply);
  mine->start();
  return mine;
}

// --- the claim ----------------------------------------------------------------------------------

void UnaryCall::start() {
  arrival_ = context_->clock->now();
  deadline_ = deadline_of(*call_, arrival_);
  peer_ = context_->peer(*call_);
  traffic_.begin(*context_->traffic, call_->peer(), Messages::kOne, context_->pipeline->options().max_message_bytes);
  ids_ = begin_call(call_);
  line_.method = name(rpc_);
  labels_.rpc = rpc_;
  labels_.shape = ShapeBucket::kUnread;
  if (Error error = context_->calls->add(CallKind::kUnary, peer_, this); !error.ok()) {
    refuse(std::move(error));
    return;
  }
  registered_ = true;
  const PipelineOptions& options = context_->pipeline->options();
  announcement_ = Announcement(*call_);
  if (Error error = announcement_.check(options.max_message_bytes); !error.ok()) {
    refuse(std::move(error));
    return;
  }
  const int64_t claim = std::min(announcement_.claim(options.max_message_bytes), options.max_inflight_bytes);
  excess_ = std::max<int64_t>(options.max_message_bytes - claim, 0);
  Reservation room;
  Error error;
  switch (context_->pipeline->enter({peer_, claim, deadline_}, this, &room, &error)) {
    case Admission::kAdmitted:
      on_admitted(std::move(room));
      return;
    case Admission::kRefused:
      on_refused(std::move(error));
      return;
    case Admission::kWaits:
      return;
  }
}

void UnaryCall::on_admitted(Reservation reservation) {
  room_ = std::move(reservation);
  if (context_->read_turns->begin(peer_, excess_, this) == ReadTurns::Begun::kReads) on_turn();
}

void UnaryCall::on_turn() {
  await_client(true);
  StartRead(&message_);
}

void UnaryCall::on_refused(Error error) {
  context_->recorder->refused(error.reason);
  refuse(std::move(error));
}

void UnaryCall::OnCancel() {
  traffic_.cancelled();
  RequestHandle handle;
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    handle = handle_;
  }
  if (context_->pipeline->leave(this) || context_->read_turns->leave(this)) {
    refuse(cancelled_error());
  } else {
    context_->pipeline->cancel(handle);
  }
}

// --- the message --------------------------------------------------------------------------------

void UnaryCall::OnReadDone(bool ok) {
  await_client(false);
  Error error;
  if (!ok) {
    error = call_->IsCancelled() ? cancelled_error() : no_message_error(rpc_);
  } else {
    traffic_.read(message_.Length());
    line_.request_bytes = static_cast<int64_t>(message_.Length());
    error = announcement_.check_message(message_.Length());
    if (!error.ok()) message_.Clear();
  }
  context_->read_turns->end(peer_, excess_);  // from here on the message is within the claim
  if (!error.ok()) {
    refuse(std::move(error));
    return;
  }
  DecodedRequest decoded = decode_request(rpc_, &message_, context_->memory);
  labels_ = decoded.labels;
  tell(decoded, &line_);
  if (!decoded.error.ok()) {
    refuse(std::move(decoded.error));
    return;
  }
  submit(std::move(decoded));
}

void UnaryCall::submit(DecodedRequest decoded) {
  memory_ = std::move(decoded.memory);
  memory_->hold(std::move(room_));
  RequestHandle handle = submit_decoded(context_->pipeline, &decoded, peer_, ids_.request, arrival_, deadline_,
                                        [this](auto answer) { on_answer(answer); });
  bool cancelled = false;
  {
    MutexLock lock(&mu_);
    handle_ = handle;
    cancelled = cancelled_;
  }
  if (cancelled) context_->pipeline->cancel(handle);
}

// --- the reply ----------------------------------------------------------------------------------

void UnaryCall::on_answer(const Outcome& outcome) {
  if (outcome.error.ok()) {
    grpc::ByteBuffer message = encode_response(outcome, *memory_);
    reply_->Swap(&message);
  }
  // Recorded before the reply leaves: who has an answer finds it counted.
  const absl::Time now = context_->clock->now();
  const absl::Duration total = now - arrival_;
  context_->recorder->request_finished(labels_, outcome.error.code);
  if (outcome.error.ok()) context_->recorder->phase_took(Phase::kRespond, total - outcome.total);
  context_->recorder->phase_took(Phase::kTotal, total);
  bool stalled = false;
  {
    MutexLock lock(&mu_);
    answered_ = true;
    stalled = stalled_;
  }
  if (stalled) {
    log_stalled(context_->access_log, ids_, peer_, name(rpc_), total, now);
  } else if (context_->access_log->wants(outcome.error.code, total)) {
    log(outcome, now);
  }
  reply(to_status(outcome.error, ids_.request));
}

void UnaryCall::log(const Outcome& outcome, absl::Time now) {
  tell(outcome, &line_);
  line_.took = now - arrival_;
  if (outcome.error.ok()) line_.reply_bytes = static_cast<int64_t>(reply_->Length());
  context_->access_log->write(ids_, peer_, line_, now);
}

void UnaryCall::refuse(Error error) {
  Answer refusal;
  refusal.error = std::move(error);
  room_ = Reservation();
  on_answer(refusal);
}

void UnaryCall::reply(const grpc::Status& status) {
  const std::string load = context_->load->of_reply(context_->clock->now() - arrival_);
  if (!load.empty()) call_->AddTrailingMetadata(kLoadReportKey, load);
  await_client(true);
  Finish(status);
}

void UnaryCall::await_client(bool waits) {
  const absl::Time since = waits ? context_->clock->now() : absl::InfiniteFuture();
  MutexLock lock(&mu_);
  client_due_since_ = since;
}

void UnaryCall::cut_off_if_stalled(absl::Time now, absl::Duration timeout) {
  bool answered = false;
  {
    MutexLock lock(&mu_);
    if (now - client_due_since_ <= timeout) return;
    client_due_since_ = absl::InfiniteFuture();
    stalled_ = true;
    answered = answered_;
  }
  // Without an answer on_answer() tells of it: the call has one line then.
  if (answered) log_stalled(context_->access_log, ids_, peer_, name(rpc_), now - arrival_, now);
  cut_off(
      call_,
      {absl::StatusCode::kDeadlineExceeded,
       Reason::kClientStalled,
       absl::StrCat("the client neither sent its message nor took the reply within ", absl::FormatDuration(timeout)),
       "",
       {}},
      ids_.request);
}

void UnaryCall::OnDone() {
  if (registered_) context_->calls->remove(this);
  delete this;
}

}  // namespace svdserve::server
