#include "server/large/large_job.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/heap.h"
#include "server/base/log.h"
#include "server/large/pages_ahead.h"
#include "server/large/watched_states.h"
#include "server/validate/validate_large.h"

namespace svdserve::server {
namespace {

// After so many failures on devices that still serve, the matrix is the likelier cause.
constexpr int kMostFailures = 3;
// Chunks that are copied at once.
constexpr int kMostCopies = 2;
// Operands from here on have taken so long to come that a few milliseconds more are nothing.
constexpr uint64_t kTrimmedBytes = uint64_t{64} << 20;

Error bad_chunk(Reason reason, std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, reason, std::move(message), std::move(field), {}};
}

Error unexpected(std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kUnexpectedMessage, std::move(message), std::move(field), {}};
}

Error incomplete(const ByteRanges& received, int64_t total) {
  if (received.complete()) {
    return {absl::StatusCode::kInvalidArgument,
            Reason::kUploadIncomplete,
            "the operand is complete, but the stream ended without commit; send commit after the last chunk",
            "commit",
            {}};
  }
  return {absl::StatusCode::kInvalidArgument,
          Reason::kUploadIncomplete,
          absl::StrCat("the operand has ", total, " bytes, but only ", received.covered(),
                       " were received; the first missing byte is ", received.first_gap()),
          "commit",
          {}};
}

Error draining() {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, "the server is shutting down", "", absl::Seconds(1)};
}

// `missing`: what the client did not do in time, such as "sent no commit".
Error stalled(const char* missing, absl::Duration timeout) {
  return {absl::StatusCode::kDeadlineExceeded,
          Reason::kClientStalled,
          absl::StrCat("the client ", missing, " within ", absl::FormatDuration(timeout)),
          "",
          {}};
}

// No token, one of another server, of another owner, or of files that are gone.
Error unknown_token() {
  return {absl::StatusCode::kNotFound,
          Reason::kResumeUnknown,
          "is no matrix that this server can go on with; send open without it, and the matrix again",
          "open.resume",
          {}};
}

Error resumed_elsewhere() {
  return {absl::StatusCode::kCancelled, Reason::kCancelled, "another call has resumed this matrix", "", {}};
}

// Whether the caller may come back for it: the call was cut off, or the server cannot go on with it.
bool may_be_resumed(const Error& error) {
  using absl::StatusCode;
  return error.code == StatusCode::kCancelled || error.code == StatusCode::kUnavailable ||
         error.code == StatusCode::kDeadlineExceeded || error.code == StatusCode::kResourceExhausted;
}

bool has_results(const LargeOutcome& outcome) {
  return outcome.status == LargeStatus::kOk || outcome.status == LargeStatus::kNotConverged;
}

// The device's own words, with what it was given.
void log_fault(const std::string& device, const LargePlan& plan, const LargeOutcome& outcome) {
  log_error("device_fault", {{"device", device},
                             {"error", outcome.detail},
                             {"out_of_memory", outcome.status == LargeStatus::kOutOfMemory},
                             {"lost", outcome.device_lost},
                             {"dtype", svdserve::name(plan.problem.dtype)},
                             {"factor_rows", plan.problem.rows},
                             {"factor_cols", plan.problem.cols}});
}

// The longest time between two signs of progress. No part of the computation needs more operations than the whole, and
// no GPU that is served does less than this many a second.
absl::Duration longest_silence(const LargePlan& plan) {
  constexpr double kFlops = 40, kFlopsPerSecond = 1e12;
  const auto rows = static_cast<double>(plan.problem.rows), cols = static_cast<double>(plan.problem.cols);
  return absl::Seconds(kFlops * rows * cols * std::min(rows, cols) / kFlopsPerSecond);
}

}  // namespace

LargeJob::LargeJob(const LargeStages* stages, Peer peer, std::string owner, Act act)
    : stages_(stages),
      peer_(std::move(peer)),
      owner_(std::move(owner)),
      act_(std::make_shared<const Act>(std::move(act))) {
  MutexLock lock(&mu_);
  labels_.rpc = Rpc::kDecomposeLarge;
  labels_.shape = ShapeBucket::kFactor;
  upload_.restart(stages_->clock->now());
}

// --- the upload ---------------------------------------------------------------------------------

LargeNext LargeJob::opened() {
  LargeNext next;
  MutexLock lock(&mu_);
  if (state_ == State::kEnded) return next;
  if (stages_->admission->usage().draining) {
    end(draining(), &next);
    return next;
  }
  next.read = true;
  return next;
}

LargeNext LargeJob::on_open(const LargeOpen& open) {
  LargeNext next;
  Checkpoint claimed;
  Error unclaimed = open.resume.empty() ? Error{} : claim(open, &claimed);
  MutexLock lock(&mu_);
  if (state_ == State::kEnded) return next;
  labels_.dtype = static_cast<OperandType>(open.problem.dtype);  // which begin with every DType
  labels_.kind = open.options.vectors != Vectors::kNone ? Kind::kVectors : Kind::kValues;
  if (state_ != State::kOpening) {
    end(unexpected("open", "open was sent before"), &next);
    return next;
  }
  checkpoint_ = std::move(claimed);
  if (!unclaimed.ok()) {
    end(std::move(unclaimed), &next);
    return next;
  }
  AdmittedLarge admitted;
  if (Error error = admit_large(*stages_, peer_, open, &admitted); !error.ok()) {
    end(std::move(error), &next);
    return next;
  }
  matrix_ = std::move(admitted);
  accepted_ = stages_->clock->now();
  acceptance_due_ = true;
  if (checkpoint_) {
    resume();
  } else {
    begin_checkpoint(open);
    state_ = State::kUploading;
    upload_.restart(accepted_);
  }
  next.read = true;
  pump(&next);
  return next;
}

LargeNext LargeJob::on_chunk(int64_t offset, size_t bytes, std::shared_ptr<char>* place) {
  LargeNext next;
  MutexLock lock(&mu_);
  if (state_ == State::kEnded) return next;
  if (Error error = take_chunk(offset, bytes); !error.ok()) {
    end(std::move(error), &next);
    return next;
  }
  // Whatever ends the call meanwhile, the memory is there until on_copied().
  *place = {matrix_.memory, matrix_.memory->operand().data() + offset};
  read_due_ = ++copying_ == kMostCopies;
  next.read = !read_due_;
  return next;
}

LargeNext LargeJob::on_copied(int64_t offset, size_t bytes, std::shared_ptr<char> place, bool good) {
  LargeNext next;
  next.done_with.push_back(std::move(place));
  MutexLock lock(&mu_);
  --copying_;
  if (state_ == State::kEnded) return next;
  if (!good) {
    end({absl::StatusCode::kDataLoss,
         Reason::kChunkCorrupted,
         absl::StrCat("the CRC-32C of the chunk at byte ", offset, " does not match its ", bytes,
                      " bytes; send the matrix again"),
         "chunk.crc32c",
         {}},
        &next);
    return next;
  }
  stages_->recorder->large_received(static_cast<int64_t>(bytes));
  const absl::Time now = stages_->clock->now();
  upload_.moved(static_cast<int64_t>(bytes), now);
  if (matrix_.received->complete()) upload_.restart(now);  // for commit
  next.read = std::exchange(read_due_, false);
  if (state_ == State::kCommitting && copying_ == 0) commit(&next);
  return next;
}

Error LargeJob::take_chunk(int64_t offset, size_t bytes) {
  const int64_t most = stages_->options->chunk_bytes;
  if (state_ != State::kUploading) {
    return unexpected("chunk", state_ == State::kOpening ? "send open first" : "no chunk may follow commit");
  }
  if (bytes == 0 || std::cmp_greater(bytes, most)) {
    return bad_chunk(Reason::kInvalidField, "chunk.data",
                     absl::StrCat("must have between 1 and ", most, " bytes, but has ", bytes));
  }
  const auto operand = static_cast<int64_t>(matrix_.plan.operand_bytes());
  switch (matrix_.received->add(offset, static_cast<int64_t>(bytes))) {
    case ByteRanges::Added::kOutOfRange:
      return bad_chunk(
          Reason::kChunkOutOfRange, "chunk.offset",
          absl::StrCat(bytes, " bytes at byte ", offset, " do not fit the operand of ", operand, " bytes"));
    case ByteRanges::Added::kOverlaps:
      return bad_chunk(
          Reason::kChunkOverlap, "chunk.offset",
          absl::StrCat("some of the ", bytes, " bytes at byte ", offset, " were sent before; send each byte once"));
    case ByteRanges::Added::kTooMany:
      return bad_chunk(Reason::kChunkScattered, "chunk.offset",
                       absl::StrCat("the chunks leave more than ", matrix_.received->ranges(),
                                    " gaps; send larger chunks, or send them in order"));
    case ByteRanges::Added::kYes:
      break;
  }
  return {};
}

LargeNext LargeJob::on_commit() {
  LargeNext next;
  MutexLock lock(&mu_);
  if (state_ == State::kEnded) return next;
  if (Error error = check_commit(); !error.ok()) {
    end(std::move(error), &next);
    return next;
  }
  next.read = true;  // nothing may follow: whether something does shows the next read
  state_ = State::kCommitting;
  if (copying_ == 0) commit(&next);
  return next;
}

Error LargeJob::check_commit() const {
  if (state_ == State::kOpening) return unexpected("commit", "send open first");
  if (state_ != State::kUploading) return unexpected("commit", "commit was sent before");
  if (matrix_.received->complete()) return {};
  return incomplete(*matrix_.received, static_cast<int64_t>(matrix_.plan.operand_bytes()));
}

void LargeJob::commit(LargeNext* next) {
  committed_ = stages_->clock->now();
  stages_->recorder->large_phase_took(LargePhase::kUpload, committed_ - accepted_);
  saving_ = static_cast<bool>(checkpoint_);
  progress_due_ = !saving_;
  if (saving_) {
    save_operand(checkpoint_, matrix_.memory, [job = weak_from_this()](bool ok) {
      if (const auto self = job.lock()) self->on_saved(ok);
    });
  }
  keep_results();
  if (enqueue(LargeRunner::Position::kLast)) {
    pump(next);
  } else {
    end(no_device(), next);
  }
}

void LargeJob::keep_results() {
  Reservation results;
  results_kept_ = stages_->admission->keep(result_bytes(), &matrix_.place, &results);
  if (results_kept_) matrix_.memory->hold(std::move(results));
}

int64_t LargeJob::result_bytes() const {
  return operand_and_result_bytes(matrix_.plan) - static_cast<int64_t>(matrix_.plan.operand_bytes());
}

bool LargeJob::enqueue(LargeRunner::Position position) {
  LargeDemand demand = matrix_.working;
  for (std::optional<int64_t>& bytes : demand) {
    if (bytes.has_value() && !results_kept_) *bytes += result_bytes();
  }
  state_ = State::kQueued;
  queued_ = stages_->clock->now();
  return stages_->runner->submit(shared_from_this(), std::move(demand), position);
}

LargeNext LargeJob::on_bad_message(Error error) {
  LargeNext next;
  MutexLock lock(&mu_);
  end(std::move(error), &next);
  return next;
}

LargeNext LargeJob::on_reads_closed() {
  LargeNext next;
  MutexLock lock(&mu_);
  if (state_ == State::kOpening) {
    end(unexpected("open", "the stream ended before open; send open first"), &next);
  } else if (state_ == State::kUploading) {
    end(incomplete(*matrix_.received, static_cast<int64_t>(matrix_.plan.operand_bytes())), &next);
  }
  return next;
}

// --- its files ----------------------------------------------------------------------------------

Error LargeJob::claim(const LargeOpen& open, Checkpoint* claimed) {
  using Claim = CheckpointStore::Claim;
  const auto taken = [job = weak_from_this()] {
    if (const auto self = job.lock()) self->abandon(resumed_elsewhere());
  };
  const Claim claim = stages_->checkpoints == nullptr
                          ? Claim::kUnknown
                          : stages_->checkpoints->claim(open.resume, owner_, describe(open), taken, claimed);
  if (claim == Claim::kUnknown) return unknown_token();
  if (claim == Claim::kDiffers) {
    return {absl::StatusCode::kInvalidArgument,
            Reason::kInvalidField,
            "names a matrix of another size, problem or options; send open as it was then",
            "open.resume",
            {}};
  }
  return {};
}

int64_t LargeJob::state_bytes() const {
  uint64_t most = 0;
  for (int d = 0; d < stages_->runner->size(); ++d) {
    if (!matrix_.working[static_cast<size_t>(d)].has_value()) continue;
    most = std::max(most, stages_->runner->device(d).engine->state_bytes(matrix_.plan));
  }
  return static_cast<int64_t>(most);
}

void LargeJob::begin_checkpoint(const LargeOpen& open) {
  if (stages_->checkpoints == nullptr) return;
  checkpoint_ = stages_->checkpoints->begin(owner_, describe(open), operand_and_result_bytes(matrix_.plan),
                                            state_bytes(), [job = weak_from_this()] {
                                              if (const auto self = job.lock()) self->abandon(resumed_elsewhere());
                                            });
}

void LargeJob::on_saved(bool ok) {
  act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    saving_ = false;
    progress_due_ = true;
    if (!ok) checkpoint_ = {};
    pump(next);
  });
}

void LargeJob::resume() {
  state_ = State::kLoading;
  committed_ = queued_ = taken_ = accepted_;
  progress_due_ = true;
  stages_->recorder->large_resumed();
  keep_results();
  if (results_kept_ && checkpoint_.has(CheckpointPart::kResults) && matrix_.memory->map_results(matrix_.plan)) {
    load_results(checkpoint_, matrix_.memory, [job = weak_from_this()](std::optional<ComputedLarge> computed) {
      if (const auto self = job.lock()) self->on_results_loaded(std::move(computed));
    });
  } else {
    load();
  }
}

void LargeJob::load() {
  load_operand(checkpoint_, matrix_.memory, [job = weak_from_this()](bool ok) {
    if (const auto self = job.lock()) self->on_operand_loaded(ok);
  });
}

void LargeJob::on_operand_loaded(bool ok) {
  act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (state_ != State::kLoading) return;
    if (!ok) {
      end(unknown_token(), next);
    } else if (!enqueue(LargeRunner::Position::kLast)) {
      end(no_device(), next);
    }
  });
}

void LargeJob::on_results_loaded(std::optional<ComputedLarge> computed) {
  act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (state_ != State::kLoading) return;
    if (computed) {
      start_sending(*std::move(computed), next);
    } else {
      load();
    }
  });
}

// --- the computation, on the device's thread ----------------------------------------------------

bool LargeJob::run(int device, Reservation memory) {
  std::shared_ptr<LargeMemory> blocks;
  std::unique_ptr<LargeStateStore> states;
  LargePlan plan;
  {
    MutexLock lock(&mu_);
    if (state_ != State::kQueued) return true;
    state_ = State::kComputing;
    device_ = device;
    taken_ = stages_->clock->now();
    stages_->recorder->large_phase_took(LargePhase::kQueue, taken_ - queued_);
    if (const LargeDevice& gang = stages_->runner->device(device); gang.is_gang()) {
      stages_->recorder->gang_began(static_cast<int>(gang.members.size()), taken_ - queued_);
    }
    lent_ = memory.bytes();
    matrix_.memory->hold(std::move(memory));
    blocks = matrix_.memory;
    plan = matrix_.plan;
    states = checkpoint_.states(operand_and_result_bytes(plan), &cancel_);
    states_dropper_ = checkpoint_.states_dropper();
  }
  if (plan.operand_bytes() >= kTrimmedBytes) trim_heap();
  LargeControl control;
  const std::unique_ptr<Watchdog::Watch> watched = watch(device, plan);
  control.progress = [this, &watched](const LargeProgress& progress) {
    if (watched != nullptr) watched->progress();
    on_progress(progress);
  };
  control.cancel = &cancel_;
  control.device_room = static_cast<uint64_t>(stages_->runner->device(device).memory_bytes);
  WatchedStates watched_states(states.get(), watched.get());
  control.states = states != nullptr ? &watched_states : nullptr;
  LargeOutcome outcome;
  if (blocks->map_results(plan)) {
    std::optional<PagesAhead> ahead;  // beside a GPU the host's processors are idle
    if (control.device_room > 0) ahead.emplace(blocks->results());
    outcome = stages_->runner->device(device).engine->decompose(plan, blocks->operands(plan), control);
  } else {
    outcome.status = LargeStatus::kOutOfMemory;
    outcome.detail = "the host has too little memory for the results";
  }
  blocks.reset();
  const bool lost = outcome.device_lost;
  on_outcome(std::move(outcome));
  return !lost;
}

std::unique_ptr<Watchdog::Watch> LargeJob::watch(int device, const LargePlan& plan) {
  const LargeRunner& runner = *stages_->runner;
  if (stages_->monitor == nullptr) return nullptr;
  const std::string& first = runner.device(runner.members(device).front()).name;
  return stages_->monitor->watch(first, longest_silence(plan), [this, device](absl::Duration silent) {
    const Error error = {
        absl::StatusCode::kUnavailable, Reason::kDeviceFault,
        absl::StrCat("device ", stages_->runner->device(device).name, " did not respond for ",
                     absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(100))), "; send the matrix again"),
        "", absl::Seconds(1)};
    // The device may still write to the memory, which run() keeps.
    act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
      drop_states();
      end(error, next);
    });
    for (const int member : stages_->runner->members(device)) {  // any of them may be the one that hangs
      stages_->monitor->lost(stages_->runner->device(member).name);
      stages_->runner->mark_lost(member);
    }
  });
}

void LargeJob::on_no_device() {
  act_on([this](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { end(no_device(), next); });
}

void LargeJob::on_progress(const LargeProgress& progress) {
  MutexLock lock(&mu_);
  progress_.hear(progress, stages_->clock->now());
}

void LargeJob::on_outcome(LargeOutcome outcome) {
  act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (outcome.status == LargeStatus::kFault) drop_states();  // the next call may go on from them
    if (state_ != State::kComputing) return;
    if (has_results(outcome)) {
      const absl::Duration compute = stages_->clock->now() - taken_;
      stages_->recorder->large_phase_took(LargePhase::kCompute, compute);
      stages_->recorder->large_computed(outcome);
      if (outcome.device_lost) record_fault(outcome);
      start_sending({std::move(outcome), stages_->runner->device(device_).name, compute}, next);
      return;
    }
    if (outcome.status == LargeStatus::kFault || outcome.status == LargeStatus::kOutOfMemory) {
      record_fault(outcome);
      if (try_elsewhere(outcome.device_lost, next)) return;
    }
    end(error_of(outcome, stages_->runner->device(device_).name), next);
  });
}

void LargeJob::drop_states() {
  if (const auto drop = std::exchange(states_dropper_, nullptr)) drop();
}

void LargeJob::record_fault(const LargeOutcome& outcome) {
  const LargeDevice& device = stages_->runner->device(device_);
  log_fault(device.name, matrix_.plan, outcome);
  for (const int member : stages_->runner->members(device_)) {
    stages_->recorder->device_fault(stages_->runner->device(member).name);
  }
  if (!outcome.device_lost || device.is_gang()) return;  // which member is lost shows when it computes by itself
  if (stages_->monitor != nullptr) {
    stages_->monitor->lost(device.name);  // which records it
  } else {
    stages_->recorder->device_lost(device.name);
  }
}

void LargeJob::start_sending(ComputedLarge computed, LargeNext* next) {
  done_ = stages_->clock->now();
  computed_ = std::move(computed);
  matrix_.place = {};
  std::deque<std::shared_ptr<const ResultPiece>> pieces = matrix_.memory->take_results();
  if (checkpoint_ && !checkpoint_.has(CheckpointPart::kResults)) save_results(checkpoint_, computed_, pieces);
  results_ = ResultChunks(std::move(pieces));
  next->done_with.push_back(std::move(matrix_.memory));
  state_ = State::kSending;
  download_.restart(done_);
  pump(next);
}

bool LargeJob::try_elsewhere(bool device_lost, LargeNext* next) {
  matrix_.working[static_cast<size_t>(device_)].reset();
  const bool gang_failed = !device_lost && stages_->runner->device(device_).is_gang();
  for (int d = 0; d < stages_->runner->size(); ++d) {  // no other gang would do better
    if (gang_failed && stages_->runner->device(d).is_gang()) matrix_.working[static_cast<size_t>(d)].reset();
  }
  failures_ += device_lost ? 0 : 1;
  if (failures_ == kMostFailures) return false;
  next->done_with.push_back(matrix_.memory->drop_results(lent_));
  return enqueue(LargeRunner::Position::kFirst);  // it has waited before
}

// --- what is sent -------------------------------------------------------------------------------

void LargeJob::pump(LargeNext* next) {
  if (writing_ || state_ == State::kEnded) return;
  next->write = next_reply();
  writing_ = next->write.has_value();
  if (!writing_) return;
  const auto* chunk = std::get_if<LargeResultChunk>(&*next->write);
  writing_bytes_ = chunk != nullptr ? static_cast<int64_t>(chunk->bytes) : 0;
  next->upcoming = results_.peek(static_cast<size_t>(stages_->options->chunk_bytes));
  if (chunk == nullptr) download_.restart(stages_->clock->now());
}

std::optional<LargeReply> LargeJob::next_reply() {
  if (std::exchange(acceptance_due_, false)) {
    const auto operand = static_cast<int64_t>(matrix_.plan.operand_bytes());
    return LargeAccepted{stages_->options->chunk_bytes,          operand,          result_bytes(), matrix_.candidates,
                         checkpoint_ ? checkpoint_.token() : "", matrix_.predicted};
  }
  if (state_ == State::kLoading || state_ == State::kQueued || state_ == State::kComputing) {
    if (!std::exchange(progress_due_, false)) return std::nullopt;
    const absl::Time now = stages_->clock->now();
    const bool queued = state_ != State::kComputing;
    return LargeProgressReport{queued, progress_.at(now), now - accepted_,
                               queued ? "" : stages_->runner->device(device_).name};
  }
  if (state_ != State::kSending) return std::nullopt;
  if (std::optional<LargeResultChunk> chunk = results_.next(static_cast<size_t>(stages_->options->chunk_bytes))) {
    stages_->recorder->large_sent(static_cast<int64_t>(chunk->bytes));
    return *std::move(chunk);
  }
  if (std::exchange(summary_sent_, true)) return std::nullopt;
  return summarize();
}

LargeSummary LargeJob::summarize() {
  const absl::Duration download = stages_->clock->now() - done_;
  stages_->recorder->large_phase_took(LargePhase::kDownload, download);
  LargeSummary summary;
  summary.plan = matrix_.plan;
  summary.outcome = computed_.outcome;
  summary.device = computed_.device;
  summary.timing = {committed_ - accepted_, taken_ - committed_, computed_.compute, download};
  return summary;
}

LargeNext LargeJob::on_written(bool ok) {
  LargeNext next;
  MutexLock lock(&mu_);
  writing_ = false;
  download_.moved(std::exchange(writing_bytes_, 0), stages_->clock->now());
  if (state_ == State::kEnded) {
    finish(&next);
  } else if (!ok) {
    end(cancelled(), &next);
  } else if (summary_sent_) {
    end({}, &next);
  } else {
    pump(&next);
  }
  return next;
}

void LargeJob::tick() {
  act_on([this](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const absl::Duration timeout = stages_->options->idle_timeout;
    const absl::Time now = stages_->clock->now();
    if (writing_ && download_.too_slow(now, timeout)) {
      end(stalled("took less than 1 MiB of the replies", timeout), next);
      next->abort = ending_;
    } else if (state_ == State::kOpening && upload_.too_slow(now, timeout)) {
      end(stalled("sent no open", timeout), next);
    } else if (state_ == State::kUploading && upload_.too_slow(now, timeout)) {
      const bool complete = matrix_.received->complete();
      end(stalled(complete ? "sent no commit" : "sent less than 1 MiB of the operand", timeout), next);
    } else if (state_ == State::kLoading || state_ == State::kQueued || state_ == State::kComputing) {
      progress_due_ = !saving_;
      pump(next);
    }
  });
}

// --- the end ------------------------------------------------------------------------------------

LargeNext LargeJob::on_broken() { return fail(cancelled()); }

LargeNext LargeJob::fail(Error error) {
  LargeNext next;
  MutexLock lock(&mu_);
  end(std::move(error), &next);
  return next;
}

void LargeJob::abandon(const Error& error) {
  act_on([&](LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { end(error, next); });
}

bool LargeJob::accepted() const {
  MutexLock lock(&mu_);
  return accepted_ != absl::InfinitePast();
}

void LargeJob::end(Error error, LargeNext* next) {
  if (state_ == State::kEnded) return;
  cancel_ = true;
  if (state_ == State::kQueued) stages_->runner->withdraw(this);
  state_ = State::kEnded;
  ending_ = std::move(error);
  if (matrix_.memory != nullptr) next->done_with.push_back(std::move(matrix_.memory));
  results_.drop(&next->done_with);
  matrix_.place = {};
  matrix_.request = {};
  if (ending_.ok()) {
    next->delivered = checkpoint_.release();
  } else if (!may_be_resumed(ending_)) {
    checkpoint_.drop();
  }
  checkpoint_ = {};
  stages_->recorder->request_finished(labels_, ending_.code);
  if (!ending_.ok()) stages_->recorder->large_failed(ending_.reason);
  if (!writing_) finish(next);
}

void LargeJob::finish(LargeNext* next) {
  if (std::exchange(finished_, true)) return;
  next->finish = ending_;
  act_.reset();  // it holds the call, which holds this
  stages_->forget(this);
}

void LargeJob::act_on(absl::FunctionRef<void(LargeNext*)> event) {
  LargeNext next;
  std::shared_ptr<const Act> act;
  {
    MutexLock lock(&mu_);
    act = act_;
    event(&next);
  }
  if (act != nullptr) (*act)(std::move(next));
}

}  // namespace svdserve::server
