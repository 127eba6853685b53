#include "server/rpc/calls/decompose_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/rpc/calls/cut_off.h"
#include "wire/metadata.h"

namespace svdserve::server {
namespace {

// A claim for a message is so many times its size: operand, U, V, values and statuses of square matrices. Other results
// may need more, which is reserved after decoding; less is given back then.
constexpr int64_t kClaimFactor = 4;
// It is at least what a client may send, whatever it announces, where windows are small.
constexpr int64_t kSmallestClaim = int64_t{64} << 10;

Error bad_size(const char* key, int64_t limit) {
  return {absl::StatusCode::kInvalidArgument,
          Reason::kInvalidField,
          absl::StrCat("the metadata ", key, " must be a number of at most ", limit),
          key,
          {}};
}

// A size that the client announces; -1: it announces none, or not a size.
int64_t announced(const grpc::CallbackServerContext& call, const char* key) {
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find(key);
  int64_t bytes = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &bytes) || bytes < 0) {
    return -1;
  }
  return bytes;
}

Error cancelled_error() {
  return {absl::StatusCode::kCancelled, Reason::kCancelled, "the call was cancelled before its message came", "", {}};
}

Error no_message_error() {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, "the call carries no DecomposeRequest", "", {}};
}

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* DecomposeCall::Handle(const HandlerContext* context,
                                                                 grpc::CallbackServerContext* call,
                                                                 grpc::ByteBuffer* reply) {
  auto* const mine = new DecomposeCall(context, call, reply);
  mine->Start();
  return mine;
}

// --- the claim ----------------------------------------------------------------------------------

void DecomposeCall::Start() {
  arrival_ = context_->clock->Now();
  deadline_ = deadline_of(*call_, arrival_);
  peer_ = context_->peer(*call_);
  labels_.shape = ShapeBucket::kUnread;
  if (Error error = context_->calls->Add(CallKind::kUnary, peer_, this); !error.ok()) {
    Refuse(std::move(error));
    return;
  }
  registered_ = true;
  const PipelineOptions& options = context_->pipeline->options();
  const int64_t most = std::min(options.max_message_bytes, options.max_inflight_bytes);
  const int64_t message = announced(*call_, kRequestBytesKey);
  if (message > options.max_message_bytes) {
    Refuse(bad_size(kRequestBytesKey, options.max_message_bytes));
    return;
  }
  const int64_t claim =
      message < 0 ? most : std::min(std::max(kClaimFactor * message, kSmallestClaim), options.max_inflight_bytes);
  Reservation room;
  Error error;
  switch (context_->pipeline->Enter({peer_, claim, deadline_}, this, &room, &error)) {
    case Admission::kAdmitted:
      OnAdmitted(std::move(room));
      return;
    case Admission::kRefused:
      OnRefused(std::move(error));
      return;
    case Admission::kWaits:
      return;
  }
}

void DecomposeCall::OnAdmitted(Reservation reservation) {
  room_ = std::move(reservation);
  AwaitClient(true);
  StartRead(&message_);
}

void DecomposeCall::OnRefused(Error error) {
  context_->recorder->Refused(error.reason);
  Refuse(std::move(error));
}

void DecomposeCall::OnCancel() {
  RequestHandle handle;
  {
    MutexLock lock(&mu_);
    cancelled_ = true;
    handle = handle_;
  }
  if (context_->pipeline->Leave(this)) {
    Refuse(cancelled_error());
  } else {
    context_->pipeline->Cancel(handle);
  }
}

// --- the message --------------------------------------------------------------------------------

void DecomposeCall::OnReadDone(bool ok) {
  AwaitClient(false);
  if (!ok) {
    Refuse(call_->IsCancelled() ? cancelled_error() : no_message_error());
    return;
  }
  DecodedRequest decoded = decode_request(&message_, context_->memory);
  labels_ = decoded.labels;
  if (!decoded.error.ok()) {
    Refuse(std::move(decoded.error));
    return;
  }
  Submit(std::move(decoded));
}

void DecomposeCall::Submit(DecodedRequest decoded) {
  memory_ = std::move(decoded.memory);
  memory_->Hold(std::move(room_));
  RequestHandle handle = SubmitDecoded(context_->pipeline, &decoded, peer_, arrival_, deadline_,
                                       [this](auto answer) { OnAnswer(answer); });
  bool cancelled = false;
  {
    MutexLock lock(&mu_);
    handle_ = handle;
    cancelled = cancelled_;
  }
  if (cancelled) context_->pipeline->Cancel(handle);
}

// --- the reply ----------------------------------------------------------------------------------

void DecomposeCall::OnAnswer(const Outcome& outcome) {
  if (outcome.error.ok()) {
    grpc::ByteBuffer message = encode_response(outcome, *memory_);
    reply_->Swap(&message);
  }
  // Recorded before the reply leaves: who has an answer finds it counted.
  const absl::Duration total = context_->clock->Now() - arrival_;
  context_->recorder->RequestFinished(labels_, outcome.error.code);
  if (outcome.error.ok()) context_->recorder->PhaseTook(Phase::kRespond, total - outcome.total);
  context_->recorder->PhaseTook(Phase::kTotal, total);
  Reply(to_status(outcome.error));
}

void DecomposeCall::Refuse(Error error) {
  Answer refusal;
  refusal.error = std::move(error);
  room_ = Reservation();
  OnAnswer(refusal);
}

void DecomposeCall::Reply(const grpc::Status& status) {
  AwaitClient(true);
  Finish(status);
}

void DecomposeCall::AwaitClient(bool waits) {
  const absl::Time since = waits ? context_->clock->Now() : absl::InfiniteFuture();
  MutexLock lock(&mu_);
  client_due_since_ = since;
}

void DecomposeCall::CutOffIfStalled(absl::Time now, absl::Duration timeout) {
  {
    MutexLock lock(&mu_);
    if (now - client_due_since_ <= timeout) return;
    client_due_since_ = absl::InfiniteFuture();
  }
  cut_off(call_, {absl::StatusCode::kDeadlineExceeded,
                  Reason::kClientStalled,
                  absl::StrCat("the client neither sent its message nor took the reply within ",
                               absl::FormatDuration(timeout)),
                  "",
                  {}});
}

void DecomposeCall::OnDone() {
  if (registered_) context_->calls->Remove(this);
  delete this;
}

}  // namespace svdserve::server
