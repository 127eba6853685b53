// One DecomposeLarge call, from its first message to its last: which messages may come, what is sent, and who is asked
// for what on the way. It knows no transport: that asks it after every event what to do, and does it.
#ifndef SVDSERVE_SERVER_LARGE_JOB_H_
#define SVDSERVE_SERVER_LARGE_JOB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/admit/ledger.h"
#include "server/clock.h"
#include "server/device/factor_runner.h"
#include "server/large_memory.h"
#include "server/large_pipeline.h"
#include "server/large_request.h"
#include "server/metrics/recorder.h"
#include "server/mutex.h"
#include "server/reservation.h"
#include "server/validate/byte_ranges.h"
#include "server/validate/validate_large.h"

namespace svdserve::server {

// What every job is given. All of it outlives the jobs.
struct LargeStages {
  const LargeOptions* options = nullptr;
  Ledger* ledger = nullptr;  // of factors alone
  FactorRunner* runner = nullptr;
  Clock* clock = nullptr;
  Recorder* recorder = nullptr;
  std::function<void(LargeJob*)> forget;  // the call has ended; may be called under the job's lock
};

// Thread-safe. The wire's events come one after the other from the transport, the device's and the clock's from their
// threads at any time. Invariants:
//   1. At most one read and one write are asked for at a time; finish is asked for once, when no write is on its way,
//      and nothing after it.
//   2. A read is asked for only when the chunk before was taken: the transport's window is the only buffer.
//   3. Progress is sent when nothing else is on its way, and then what is known at that moment: a slow reader gets less
//      of it, never old.
//   4. When a call ends, its memory is let go at once; the device keeps its share until it has obeyed the cancel flag,
//   the
//      transport the pieces of which it has bytes.
//   5. Nobody is called under the job's lock but the ledger, the runner, the recorder and LargeStages::forget().
class LargeJob final : public FactorTask, public std::enable_shared_from_this<LargeJob> {
 public:
  // Does what a LargeNext says that no event of the wire has led to. Kept until the call ends.
  using Act = std::function<void(LargeNext)>;

  LargeJob(const LargeStages* stages, Act act);

  // --- of the wire ---
  LargeNext Opened();
  LargeNext OnOpen(const LargeOpen& open);
  // `take`: copies the chunk's bytes to where it is told and returns their checksum. Called at most once.
  LargeNext OnChunk(int64_t offset, size_t bytes, uint32_t checksum, absl::FunctionRef<uint32_t(char* to)> take);
  LargeNext OnCommit();
  // What was read is no message, or names what does not exist.
  LargeNext OnBadMessage(Error error);
  LargeNext OnReadsClosed();
  LargeNext OnWritten(bool ok);
  // The call is cancelled, or its deadline has passed.
  LargeNext OnBroken();

  // --- of the clock and of the server's end ---
  // Sends progress, and gives up a client that neither sends nor takes.
  void Tick();
  void Abandon(const Error& error);
  // Whether it is admitted, so that draining waits for it.
  bool accepted() const;

  // --- of the device ---
  bool Run(const FactorEngine& engine) override;
  void OnDeviceLost() override;

 private:
  enum class State { kOpening, kUploading, kQueued, kComputing, kSending, kEnded };

  Error Admit(const LargeOpen& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error TakeChunk(int64_t offset, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error Commit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnProgress(const FactorProgress& progress);
  void OnOutcome(FactorOutcome outcome);
  // Hands the factor, which its device has failed, to another one. False: there is none that it fits, no memory for it
  // there, or enough have failed it.
  bool TryElsewhere(bool device_lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the next message, if there is one and the line is free.
  void Pump(LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<LargeReply> NextReply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<LargeReply> NextChunk() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LargeSummary Summarize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the call with `error`, which may be none; does nothing when it has ended.
  void End(Error error, LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Finish(LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LargeNext Fail(Error error);
  // Runs `event` under the lock and does what comes of it.
  void ActOn(absl::FunctionRef<void(LargeNext*)> event);

  const LargeStages* const stages_;
  std::atomic<bool> cancel_{false};
  mutable Mutex mu_;
  std::shared_ptr<const Act> act_ ABSL_GUARDED_BY(mu_);
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpening;
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  Error ending_ ABSL_GUARDED_BY(mu_);  // of kEnded
  RequestLabels labels_ ABSL_GUARDED_BY(mu_);
  FactorPlan plan_ ABSL_GUARDED_BY(mu_);  // from kUploading on, as the next three
  int device_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<int> failed_ ABSL_GUARDED_BY(mu_);              // devices that have failed it
  int failures_ ABSL_GUARDED_BY(mu_) = 0;                     // of those that serve on
  Reservation request_ ABSL_GUARDED_BY(mu_);                  // of no bytes; the others' are in what they are of
  std::shared_ptr<LargeMemory> memory_ ABSL_GUARDED_BY(mu_);  // null again from kSending on
  std::optional<ByteRanges> received_ ABSL_GUARDED_BY(mu_);
  bool acceptance_due_ ABSL_GUARDED_BY(mu_) = false;
  bool progress_due_ ABSL_GUARDED_BY(mu_) = false;
  FactorProgress progress_ ABSL_GUARDED_BY(mu_);
  FactorOutcome outcome_ ABSL_GUARDED_BY(mu_);  // from kSending on
  std::deque<std::shared_ptr<const ResultPiece>> pieces_
      ABSL_GUARDED_BY(mu_);               // that are not sent yet; then the summary
  size_t sent_ ABSL_GUARDED_BY(mu_) = 0;  // bytes of the first of them
  bool summary_sent_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time heard_ ABSL_GUARDED_BY(mu_);  // when the client last sent or took something
  // When each was reached.
  absl::Time accepted_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time committed_ ABSL_GUARDED_BY(mu_), queued_ ABSL_GUARDED_BY(mu_), taken_ ABSL_GUARDED_BY(mu_),
      computed_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_JOB_H_
