#include "server/rpc/decompose_call.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

// From here on a message is worth a look at the ledger before it is copied.
constexpr size_t kLargeMessage = size_t{1} << 20;
constexpr absl::Duration kRetryAfter = absl::Milliseconds(500);

// Whether a large message has no chance of admission now. Admission itself decides later, by the exact sizes; this
// spares an overloaded server the second copy of what it will refuse, in time and in memory.
bool cannot_be_admitted(const Pipeline& pipeline, size_t message_bytes) {
  if (message_bytes < kLargeMessage) return false;
  const PipelineStats stats = pipeline.stats();
  return !stats.draining &&
         stats.inflight_bytes + static_cast<int64_t>(message_bytes) > pipeline.options().max_inflight_bytes &&
         static_cast<int64_t>(message_bytes) <= pipeline.options().max_inflight_bytes;
}

}  // namespace

grpc::ServerUnaryReactor* DecomposeCall::Handle(const HandlerContext* context, grpc::CallbackServerContext* call,
                                                grpc::ByteBuffer* request, grpc::ByteBuffer* reply) {
  auto* const mine = new DecomposeCall(context, reply);
  mine->Start(*call, request);
  if (mine->stage_.exchange(Stage::kReturned) != Stage::kAnswered) return mine;
  const grpc::Status status = std::move(mine->status_);
  delete mine;
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

void DecomposeCall::Start(const grpc::CallbackServerContext& call, grpc::ByteBuffer* request) {
  arrival_ = context_->clock->Now();
  if (cannot_be_admitted(*context_->pipeline, request->Length())) {
    Answer refusal;
    refusal.error = {
        absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes,
        absl::StrCat("the request needs more than ", request->Length(), " bytes of memory; so much is not free"), "",
        kRetryAfter};
    request->Clear();
    context_->recorder->Refused(refusal.error.reason);
    OnAnswer(refusal);
    return;
  }
  DecodedRequest decoded = decode_request(request, context_->memory);
  labels_ = decoded.labels;
  if (!decoded.error.ok()) {
    Answer refusal;
    refusal.error = std::move(decoded.error);
    OnAnswer(refusal);
    return;
  }
  memory_ = std::move(decoded.memory);
  handle_ = SubmitDecoded(context_->pipeline, &decoded, arrival_, deadline_of(call, arrival_),
                          [this](auto answer) { OnAnswer(answer); });
}

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
  status_ = to_status(outcome.error);
  // From here on *this may be gone at any time.
  if (stage_.exchange(Stage::kAnswered) == Stage::kReturned) Finish(status_);
}

}  // namespace svdserve::server
