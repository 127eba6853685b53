#include "server/rpc/calls/stream_call.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/calls/cut_off.h"

namespace svdserve::server {
namespace {

// A claim goes back when its message has not come for so long. Many streams that are quiet would hold the memory
// otherwise. A message that takes longer is admitted when it is there.
constexpr absl::Duration kUnusedClaim = absl::Seconds(1);

}  // namespace

struct StreamCall::InFlight {
  uint64_t id = 0;
  RequestLabels labels;
  std::shared_ptr<WireMemory> memory;
  absl::Time arrival;
  CallLine line;  // of the access log, as far as it is known
};

void StreamCall::start() {
  self_ = shared_from_this();
  peer_ = context_->peer(*call_);
  traffic_.begin(*context_->traffic, call_->peer(), Messages::kMany, context_->pipeline->options().max_message_bytes);
  ids_ = begin_call(call_);
  opened_ = context_->clock->now();
  announcement_ = Announcement(*call_);
  Error error = announcement_.check(context_->pipeline->options().max_message_bytes);
  if (error.ok()) error = context_->calls->add(CallKind::kStream, peer_, this);
  registered_ = error.ok();
  {
    MutexLock lock(&act_mu_);
    heard_ = opened_;
    finished_ = !registered_;
    if (finished_) final_status_ = to_status(error, ids_.request);
  }
  if (registered_) {
    act(stream_.opened());
  } else {
    Finish(to_status(error, ids_.request));
  }
}

void StreamCall::close(const grpc::Status& status) {
  {
    MutexLock lock(&act_mu_);
    if (final_status_.ok()) final_status_ = status;
  }
  leave_queue();
  act(stream_.on_reads_closed());
}

void StreamCall::cut_off_if_stalled(absl::Time now, absl::Duration timeout) {
  Reservation unused;  // goes back when act_mu_ is free
  MutexLock lock(&act_mu_);
  if (finished_ || broken_) return;
  if (now - reading_since_ > kUnusedClaim) unused = std::move(room_);
  const bool takes_nothing = now - writing_since_ > timeout;
  // It may be silent while it waits for the server, or while a reply is on its way.
  const bool may_be_silent = waiting_ != nullptr || stream_.in_flight() > 0 || writing_since_ != absl::InfiniteFuture();
  if (!takes_nothing && (now - heard_ <= timeout || may_be_silent)) return;
  stalled_ = true;
  cut_off(call_,
          {absl::StatusCode::kDeadlineExceeded,
           Reason::kClientStalled,
           absl::StrCat("the client ", takes_nothing ? "took" : "sent", " nothing for ", absl::FormatDuration(timeout)),
           "",
           {}},
          ids_.request);
}

void StreamCall::act(Stream::Next next) {
  const bool reads = next.read;
  {
    MutexLock lock(&act_mu_);
    if (finished_) return;
    write_or_finish(std::move(next));
  }
  if (reads) claim_and_read();
}

void StreamCall::write_or_finish(Stream::Next next) {
  if (next.write) {
    outgoing_ = *std::move(next.write);
    const absl::Time now = context_->clock->now();
    if (outgoing_.ok) context_->recorder->phase_took(Phase::kRespond, now - outgoing_.ready);
    context_->recorder->phase_took(Phase::kTotal, now - outgoing_.arrival);
    writing_since_ = now;
    StartWrite(&outgoing_.message);
  }
  if (next.finish) {
    finished_ = true;
    Finish(broken_ ? grpc::Status::CANCELLED : with_request_info(final_status_, ids_.request));
  }
}

// --- the next message ---------------------------------------------------------------------------

void StreamCall::claim_and_read() {
  Pipeline* const pipeline = context_->pipeline;
  if (!announcement_.given() && !pipeline->is_half_full()) {
    read(Reservation());
    return;
  }
  {
    MutexLock lock(&act_mu_);
    waiting_ = shared_from_this();
  }
  const PipelineOptions& options = pipeline->options();
  const int64_t claim = std::min(announcement_.claim(options.max_message_bytes), options.max_inflight_bytes);
  Reservation room;
  Error error;
  switch (pipeline->enter({peer_, claim}, this, &room, &error)) {
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

void StreamCall::on_admitted(Reservation reservation) { read(std::move(reservation)); }

// The message is read all the same: only a message has an id, under which the client can be told. Where there is still
// no room for it, the ledger rejects it then.
void StreamCall::on_refused(Error) { read(Reservation()); }

void StreamCall::read(Reservation room) {
  std::shared_ptr<StreamCall> self;  // what the queue held may be the last
  MutexLock lock(&act_mu_);
  if (waiting_ != nullptr) heard_ = context_->clock->now();  // the client could not do anything meanwhile
  self.swap(waiting_);
  if (finished_) return;
  room_ = std::move(room);
  reading_since_ = context_->clock->now();
  StartRead(&incoming_);
}

void StreamCall::leave_queue() {
  if (!context_->pipeline->leave(this)) return;
  std::shared_ptr<StreamCall> self;
  MutexLock lock(&act_mu_);
  self.swap(waiting_);
}

void StreamCall::OnReadDone(bool ok) {
  const auto self = self_;
  const absl::Time arrival = context_->clock->now();
  Reservation room;
  {
    MutexLock lock(&act_mu_);
    room = std::move(room_);
    reading_since_ = absl::InfiniteFuture();
    if (ok) heard_ = arrival;
  }
  if (!ok) {
    act(stream_.on_reads_closed());
    return;
  }
  traffic_.read(incoming_.Length());
  const auto bytes = static_cast<int64_t>(incoming_.Length());
  Error broken_word = announcement_.check_message(incoming_.Length());
  DecodedRequest decoded = decode_stream_request(rpc_, &incoming_, context_->memory);
  if (!decoded.is_message) {
    // There is no id to answer: the stream cannot go on, but what is in flight is still answered.
    context_->recorder->request_finished(decoded.labels, decoded.error.code);
    close(to_status(decoded.error));
    return;
  }
  if (!broken_word.ok()) decoded.error = std::move(broken_word);
  submit_request(std::move(decoded), bytes, arrival, std::move(room));
}

void StreamCall::submit_request(DecodedRequest decoded, int64_t bytes, absl::Time arrival, Reservation room) {
  Stream::Next next;
  const Stream::Begun begun = stream_.on_read(decoded.request_id, &next);
  InFlight request{decoded.request_id, decoded.labels, nullptr, arrival, {}};
  request.line.request_bytes = bytes;
  tell(decoded, &request.line);
  if (begun == Stream::Begun::kDuplicate) {
    Answer refusal;
    refusal.error = {absl::StatusCode::kInvalidArgument,
                     Reason::kInvalidField,
                     absl::StrCat(request.id, " is still in flight on this stream; use another id"),
                     "request_id",
                     {}};
    act(stream_.on_refused(encode(request, refusal)));
  } else if (!decoded.error.ok()) {
    Answer refusal;
    refusal.error = std::move(decoded.error);
    act(stream_.on_answer(request.id, encode(request, refusal)));
  } else {
    const uint64_t id = request.id;
    request.memory = std::move(decoded.memory);
    request.memory->hold(std::move(room));
    absl::Time deadline = deadline_of(*call_, arrival);
    if (decoded.timeout) deadline = std::min(deadline, arrival + *decoded.timeout);
    RequestHandle handle =
        submit_decoded(context_->pipeline, &decoded, peer_, ids_.request, arrival, deadline,
                       [self = shared_from_this(), request = std::move(request)](auto answer) {
                         if (!answer.error.field.empty()) answer.error.field.insert(0, "request.");
                         self->act(self->stream_.on_answer(request.id, self->encode(request, answer)));
                       });
    if (!stream_.attach(id, handle)) context_->pipeline->cancel(handle);
  }
  act(std::move(next));
}

StreamCall::Outgoing StreamCall::encode(const InFlight& request, const Outcome& outcome) const {
  context_->recorder->request_finished(request.labels, outcome.error.code);
  Outgoing out;
  out.message = encode_stream_response(request.id, outcome, request.memory.get(), ids_.request);
  const absl::Time now = context_->clock->now();
  if (context_->access_log->wants(outcome.error.code, now - request.arrival)) {
    CallLine line = request.line;
    tell(outcome, &line);
    line.method = name(rpc_);
    line.stream_request = request.id;
    line.took = now - request.arrival;
    if (outcome.error.ok()) line.reply_bytes = static_cast<int64_t>(out.message.Length());
    context_->access_log->write(ids_, peer_, line, now);
  }
  if (outcome.error.ok()) out.memory = request.memory;
  out.arrival = request.arrival;
  out.ready = request.arrival + outcome.total;
  out.ok = outcome.error.ok();
  return out;
}

void StreamCall::OnWriteDone(bool ok) {
  const auto self = self_;
  {
    MutexLock lock(&act_mu_);
    outgoing_ = Outgoing();
    writing_since_ = absl::InfiniteFuture();
    heard_ = context_->clock->now();
  }
  if (ok) {
    act(stream_.on_written());
  } else {
    break_off();
  }
}

void StreamCall::OnCancel() {
  traffic_.cancelled();
  const auto self = self_;
  break_off();
}

void StreamCall::break_off() {
  {
    MutexLock lock(&act_mu_);
    broken_ = true;
  }
  leave_queue();
  std::vector<RequestHandle> handles;
  Stream::Next next = stream_.on_broken(&handles);
  for (const RequestHandle& handle : handles) context_->pipeline->cancel(handle);
  act(std::move(next));
}

void StreamCall::OnDone() {
  if (registered_) context_->calls->remove(this);
  log_end();
  self_.reset();  // may delete *this
}

void StreamCall::log_end() {
  CallLine line;
  line.method = name(rpc_);
  const absl::Time now = context_->clock->now();
  line.took = now - opened_;
  {
    MutexLock lock(&act_mu_);
    line.code = stalled_  ? absl::StatusCode::kDeadlineExceeded
                : broken_ ? absl::StatusCode::kCancelled
                          : static_cast<absl::StatusCode>(final_status_.error_code());
    if (stalled_) line.reason = Reason::kClientStalled;
  }
  if (context_->access_log->wants(line.code, line.took)) context_->access_log->write(ids_, peer_, line, now);
}

}  // namespace svdserve::server
