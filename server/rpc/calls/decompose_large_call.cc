#include "server/rpc/calls/decompose_large_call.h"

#include <grpcpp/server_context.h>

#include <utility>

#include "server/rpc/calls/cut_off.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {
namespace {

// Room for all that a message has beside a chunk's bytes.
constexpr size_t kBesideAChunk = 64 * 1024;

// The names in the certificate that the client has shown; empty: it has shown none.
std::string certificate_of(const grpc::CallbackServerContext& call) {
  const auto context = call.auth_context();
  if (context == nullptr || !context->IsPeerAuthenticated()) return "";
  std::string names = "certificate";
  for (const grpc::string_ref& name : context->GetPeerIdentity()) names.append(" ").append(name.data(), name.size());
  return names;
}

}  // namespace

void DecomposeLargeCall::start() {
  self_ = shared_from_this();
  peer_ = context_->peer(*call_);
  traffic_.begin(*context_->traffic, call_->peer(), Messages::kMany, context_->pipeline->options().max_message_bytes);
  ids_ = begin_call(call_);
  opened_ = context_->clock->now();
  if (Error error = context_->calls->add(CallKind::kLarge, peer_, this); !error.ok()) {
    MutexLock lock(&act_mu_);
    log_end(error);
    finished_ = true;
    Finish(to_status(error, ids_.request));
    return;
  }
  registered_ = true;
  max_message_bytes_ = static_cast<size_t>(context_->factors->options().chunk_bytes) + kBesideAChunk;
  job_ = context_->factors->begin(
      peer_, [self = self_](LargeNext next) { self->act(std::move(next)); }, certificate_of(*call_));
  LargeNext next = job_->opened();
  const bool reads = std::exchange(next.read, false);
  act(std::move(next));
  if (reads) wait_and_read();
}

void DecomposeLargeCall::wait_and_read() {
  {
    MutexLock lock(&act_mu_);
    if (finished_) return;
    waits_ = true;
  }
  Error error = first_read_.begin(job_->peer(), [this] { on_turn(); });
  if (error.ok()) return;
  {
    MutexLock lock(&act_mu_);
    waits_ = false;
    if (end_wanted_) finish(*end_wanted_);
  }
  job_->abandon(error);
}

void DecomposeLargeCall::on_turn() {
  const auto self = self_;
  {
    MutexLock lock(&act_mu_);
    waits_ = false;
    if (!end_wanted_) {
      StartRead(&incoming_);
      return;
    }
  }
  first_read_.end();
  MutexLock lock(&act_mu_);
  finish(*end_wanted_);
}

// A call whose turn comes in a moment ends then.
void DecomposeLargeCall::finish(const grpc::Status& status) {
  if (waits_ && !first_read_.leave()) {
    end_wanted_ = status;
    return;
  }
  waits_ = false;
  Finish(status);
}

void DecomposeLargeCall::cut_off_if_stalled(absl::Time now, absl::Duration) {
  switch (first_read_.lateness(now)) {
    case SmallRead::Lateness::kWaits:
      job_->abandon(no_turn_error());
      return;
    case SmallRead::Lateness::kInTheWay:
      cut_off(call_, late_message_error(), ids_.request);
      return;
    case SmallRead::Lateness::kSends:
    case SmallRead::Lateness::kNone:
      return;
  }
}

void DecomposeLargeCall::act(LargeNext next) {
  if (next.finish) next.done_with.clear();
  grpc::ByteBuffer message;
  if (next.write) message = encode(*next.write);
  {
    MutexLock lock(&act_mu_);
    if (finished_) return;
    if (next.write) {
      tell_reply(*next.write, message.Length());
      next.write.reset();  // the message alone has its piece now
      outgoing_.Swap(&message);
      StartWrite(&outgoing_);
    }
    if (next.read) StartRead(&incoming_);
    if (next.abort) {
      log_end(*next.abort);
      cut_off(call_, *next.abort, ids_.request);
    }
    if (next.finish) {
      log_end(*next.finish);
      finished_ = true;
      delivered_ = std::move(next.delivered);
      finish(to_status(*next.finish, ids_.request));
    }
  }
  if (next.upcoming) prepare(*next.upcoming);
}

grpc::ByteBuffer DecomposeLargeCall::encode(const LargeReply& reply) {
  KnownChecksum known;
  {
    MutexLock lock(&act_mu_);
    known = upcoming_;
  }
  return encode_large_response(reply, known);
}

// While the write before is on its way. Where that is faster, another thread computes the checksum again for itself.
void DecomposeLargeCall::prepare(const LargeResultChunk& upcoming) {
  const KnownChecksum known = checksum_of(upcoming);
  MutexLock lock(&act_mu_);
  upcoming_ = known;
}

void DecomposeLargeCall::OnReadDone(bool ok) {
  const auto self = self_;
  first_read_.end();
  if (!ok) {
    act(call_->IsCancelled() ? job_->on_broken() : job_->on_reads_closed());
    return;
  }
  traffic_.read(incoming_.Length());
  const auto bytes = static_cast<int64_t>(incoming_.Length());
  DecodedLarge decoded = decode_large_request(&incoming_, max_message_bytes_);
  {
    MutexLock lock(&act_mu_);
    line_.request_bytes += bytes;
    if (decoded.step == DecodedLarge::Step::kOpen) {
      line_.rows = decoded.open.problem.rows;
      line_.cols = decoded.open.problem.cols;
      line_.dtype = name(decoded.open.problem.dtype);
    }
  }
  take(std::move(decoded));
}

void DecomposeLargeCall::tell_reply(const LargeReply& reply, size_t bytes) {
  line_.reply_bytes += static_cast<int64_t>(bytes);
  const auto* const summary = std::get_if<LargeSummary>(&reply);
  if (summary == nullptr) return;
  line_.devices = summary->device;
  line_.queue = summary->timing.queue;
  line_.compute = summary->timing.compute;
}

void DecomposeLargeCall::log_end(const Error& error) {
  const absl::Time now = context_->clock->now();
  if (!context_->access_log->wants(error.code, now - opened_)) return;
  if (std::exchange(logged_, true)) return;  // what is cut off is finished, too
  CallLine line = line_;
  line.method = name(Rpc::kDecomposeLarge);
  line.matrices = line.rows > 0 ? 1 : 0;
  line.code = error.code;
  line.reason = error.reason;
  line.took = now - opened_;
  context_->access_log->write(ids_, peer_, line, now);
}

void DecomposeLargeCall::take(DecodedLarge decoded) {
  switch (decoded.step) {
    case DecodedLarge::Step::kOpen:
      act(job_->on_open(decoded.open));
      return;
    case DecodedLarge::Step::kChunk:
      take_chunk(decoded);
      return;
    case DecodedLarge::Step::kCommit:
      act(job_->on_commit());
      return;
    case DecodedLarge::Step::kNone:
      break;
  }
  act(job_->on_bad_message(std::move(decoded.error)));
}

// The next message comes while this one is copied. Another thread may take it meanwhile.
void DecomposeLargeCall::take_chunk(const DecodedLarge& chunk) {
  std::shared_ptr<char> place;
  act(job_->on_chunk(chunk.offset, chunk.data.size(), &place));
  if (place == nullptr) return;
  const bool good = chunk.data.copy_to(place.get()) == chunk.checksum;
  act(job_->on_copied(chunk.offset, chunk.data.size(), std::move(place), good));
}

void DecomposeLargeCall::OnWriteDone(bool ok) {
  const auto self = self_;
  grpc::ByteBuffer written;  // goes when the next chunk is on its way: to unmap a piece of a result takes a while
  {
    MutexLock lock(&act_mu_);
    outgoing_.Swap(&written);
  }
  LargeNext next = job_->on_written(ok);
  // Another thread may finish the call while this one unmaps. So the last piece goes first.
  if (!next.write || !std::holds_alternative<LargeResultChunk>(*next.write)) written.Clear();
  act(std::move(next));
}

void DecomposeLargeCall::OnCancel() {
  traffic_.cancelled();
  const auto self = self_;
  if (job_ != nullptr) act(job_->on_broken());
}

void DecomposeLargeCall::OnDone() {
  std::function<void()> delivered;
  {
    MutexLock lock(&act_mu_);
    delivered.swap(delivered_);
  }
  if (delivered && !call_->IsCancelled()) delivered();
  if (registered_) context_->calls->remove(this);
  self_.reset();  // may delete *this
}

}  // namespace svdserve::server
