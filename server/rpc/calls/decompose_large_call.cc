#include "server/rpc/calls/decompose_large_call.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/rpc/calls/cut_off.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {
namespace {

// Room for all that a message has beside a chunk's bytes.
constexpr size_t kBesideAChunk = 64 * 1024;

}  // namespace

void DecomposeLargeCall::Start() {
  self_ = shared_from_this();
  const Peer peer = context_->peer(*call_);
  if (Error error = context_->calls->Add(CallKind::kLarge, peer, this); !error.ok()) {
    MutexLock lock(&act_mu_);
    finished_ = true;
    Finish(to_status(error));
    return;
  }
  registered_ = true;
  max_message_bytes_ = static_cast<size_t>(context_->factors->options().chunk_bytes) + kBesideAChunk;
  job_ = context_->factors->Begin(peer, [self = self_](LargeNext next) { self->Act(std::move(next)); });
  Act(job_->Opened());
}

void DecomposeLargeCall::Act(LargeNext next) {
  if (next.finish) next.done_with.clear();
  grpc::ByteBuffer message;
  if (next.write) message = encode_large_response(*next.write);
  MutexLock lock(&act_mu_);
  if (finished_) return;
  if (next.write) {
    outgoing_.Swap(&message);
    StartWrite(&outgoing_);
  }
  if (next.read) StartRead(&incoming_);
  if (next.abort) cut_off(call_, *next.abort);
  if (next.finish) {
    finished_ = true;
    Finish(to_status(*next.finish));
  }
}

void DecomposeLargeCall::OnReadDone(bool ok) {
  const auto self = self_;
  if (!ok) {
    Act(call_->IsCancelled() ? job_->OnBroken() : job_->OnReadsClosed());
    return;
  }
  Act(Take(decode_large_request(&incoming_, max_message_bytes_)));
}

LargeNext DecomposeLargeCall::Take(DecodedLarge decoded) {
  switch (decoded.step) {
    case DecodedLarge::Step::kOpen:
      return job_->OnOpen(decoded.open);
    case DecodedLarge::Step::kChunk:
      return job_->OnChunk(decoded.offset, decoded.data.size(), decoded.checksum,
                           [&decoded](char* to) { return decoded.data.CopyTo(to); });
    case DecodedLarge::Step::kCommit:
      return job_->OnCommit();
    case DecodedLarge::Step::kNone:
      break;
  }
  return job_->OnBadMessage(std::move(decoded.error));
}

void DecomposeLargeCall::OnWriteDone(bool ok) {
  const auto self = self_;
  {
    grpc::ByteBuffer written;
    MutexLock lock(&act_mu_);
    outgoing_.Swap(&written);
  }
  Act(job_->OnWritten(ok));
}

void DecomposeLargeCall::OnCancel() {
  const auto self = self_;
  if (job_ != nullptr) Act(job_->OnBroken());
}

void DecomposeLargeCall::OnDone() {
  if (registered_) context_->calls->Remove(this);
  self_.reset();  // may delete *this
}

}  // namespace svdserve::server
