#include "server/rpc/decompose_call.h"

#include <utility>

namespace svdserve::server {

void DecomposeCall::Start(const grpc::CallbackServerContext& call, grpc::ByteBuffer* request) {
  arrival_ = context_->clock->Now();
  DecodedRequest decoded = decode_request(request);
  labels_ = decoded.labels;
  if (!decoded.error.ok()) {
    Answer refusal;
    refusal.error = std::move(decoded.error);
    OnAnswer(std::move(refusal));
    return;
  }
  memory_ = std::move(decoded.memory);
  shape_ = {decoded.request.count, values_per_matrix(decoded.request.problem)};
  decoded.request.arrival = arrival_;
  decoded.request.deadline = deadline_of(call, arrival_);
  handle_ =
      context_->pipeline->Submit(std::move(decoded.request), [this](Answer answer) { OnAnswer(std::move(answer)); });
}

void DecomposeCall::OnAnswer(Answer answer) {
  if (answer.error.ok()) {
    grpc::ByteBuffer message = encode_response(answer, shape_, *memory_);
    reply_->Swap(&message);
  }
  // Recorded before the reply leaves: who has an answer finds it counted.
  const absl::Duration total = context_->clock->Now() - arrival_;
  context_->recorder->RequestFinished(labels_, answer.error.code);
  if (answer.error.ok()) context_->recorder->PhaseTook(Phase::kRespond, total - answer.timing.total);
  context_->recorder->PhaseTook(Phase::kTotal, total);
  // From here on *this may be gone at any time.
  Finish(to_status(answer.error));
}

}  // namespace svdserve::server
