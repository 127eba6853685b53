// One DecomposeLarge call, from its first message to its last. It decides which messages may come, what is sent, and
// whom to ask. It knows no transport: that asks it after every event what to do, and does it.
#ifndef SVDSERVE_SERVER_LARGE_LARGE_JOB_H_
#define SVDSERVE_SERVER_LARGE_LARGE_JOB_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/device/device_monitor.h"
#include "server/device/large/large_runner.h"
#include "server/large/admission.h"
#include "server/large/large_checkpoint.h"
#include "server/large/large_memory.h"
#include "server/large/large_request.h"
#include "server/large/large_stages.h"
#include "server/large/progress_clock.h"
#include "server/large/reply.h"
#include "server/large/transfer_pace.h"
#include "server/metrics/recorder.h"
#include "server/peer.h"
#include "server/reservation.h"

namespace svdserve::server {

// Thread-safe. The wire's events come one after the other from the transport; on_copied() may come beside them. The
// device's and the clock's come from their threads at any time. Invariants:
//   1. At most one read and one write are asked for at a time; finish is asked for once, when no write is on its way,
//      and nothing after it. The job decides in this order, but its threads may hand it over in another: a read or an
//      abort may reach the transport after finish, and is void there. A write never does, since finish waits for
//      on_written().
//   2. A read is asked for while a chunk is copied, and not while two are: beside the transport's window a call holds
//      the bytes of two messages at most. A matrix is committed when all of its chunks are copied and checked.
//   3. Progress is sent when nothing else is on its way, and then what is known at that moment: a slow reader gets less
//      of it, never old.
//   4. When a call ends, its memory is let go at once. Its files go once its client has the status. The device keeps
//      its share of the memory until it has obeyed the cancel flag, the transport the pieces of which it has bytes.
//   5. Nobody is called under the job's lock but the admission, the runner, the recorder, the job's own checkpoint and
//      LargeStages::forget().
//   6. A matrix that waits in the queue has reserved its operand, and its results where there was room at commit. All
//      else is reserved by the runner when a device takes it, and goes back when that device fails it.
//   7. The first progress after commit says that the matrix can be resumed, where a token was given: its operand is on
//      disk then, or the disk did not take it. Computing does not wait for the disk.
class LargeJob final : public LargeTask, public std::enable_shared_from_this<LargeJob> {
 public:
  // Does what a LargeNext says that no event of the wire has led to, on any thread, beside what those events return.
  // Kept until the call ends.
  using Act = std::function<void(LargeNext)>;

  // `peer`: who has called. `owner`: who may resume it.
  LargeJob(const LargeStages* stages, Peer peer, std::string owner, Act act);

  const Peer& peer() const { return peer_; }

  // --- of the wire ---
  LargeNext opened();
  LargeNext on_open(const LargeOpen& open);
  // *place: where the chunk's bytes belong. The caller copies them, after the steps returned, and then calls on_copied().
  // Null, and nothing to copy, where the chunk is not wanted.
  LargeNext on_chunk(int64_t offset, size_t bytes, std::shared_ptr<char>* place);
  // `good`: the checksum of the bytes copied is that of the chunk. Chunks may be copied at once, and in any order.
  LargeNext on_copied(int64_t offset, size_t bytes, std::shared_ptr<char> place, bool good);
  LargeNext on_commit();
  // The bytes read are no message, or name something that does not exist.
  LargeNext on_bad_message(Error error);
  LargeNext on_reads_closed();
  LargeNext on_written(bool ok);
  // The call is cancelled, or its deadline has passed.
  LargeNext on_broken();

  // --- of the clock and of the server's end ---
  // Sends progress, and gives up a client that sends or takes too slowly; see TransferPace.
  void tick();
  void abandon(const Error& error);
  // Whether it is admitted, so that draining waits for it.
  bool accepted() const;

  // --- of the device ---
  bool run(int device, Reservation memory) override;
  void on_no_device() override;

 private:
  // kCommitting: commit has come, and chunks are still copied. kLoading: of a matrix that is resumed. Its operand or its
  // results come from the disk.
  enum class State { kOpening, kUploading, kCommitting, kLoading, kQueued, kComputing, kSending, kEnded };

  // Takes over the files of a matrix that is resumed. Not under the lock: the call that had them is told.
  Error claim(const LargeOpen& open, Checkpoint* claimed);
  // The states' room, on the device that needs most of it.
  int64_t state_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void begin_checkpoint(const LargeOpen& open) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void on_saved(bool ok);
  void resume() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void on_operand_loaded(bool ok);
  void on_results_loaded(std::optional<ComputedLarge> computed);
  void load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);  // the operand
  // Reserves room for the results where there is some.
  void keep_results() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void start_sending(ComputedLarge computed, LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error take_chunk(int64_t offset, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Error check_commit() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void commit(LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t result_bytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts it into the queue; false: no device is left that may take it.
  bool enqueue(LargeRunner::Position position) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void on_progress(const LargeProgress& progress);
  // Has the device watched while it computes the plan. Null: it is not watched.
  std::unique_ptr<Watchdog::Watch> watch(int device, const LargePlan& plan);
  void on_outcome(LargeOutcome outcome);
  // The device that computes has failed, or hangs.
  void drop_states() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The device failed the matrix, or a gang lost a member over it.
  void record_fault(const LargeOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Puts the matrix, which its device has failed, back into the queue. False: no other device may take it, or enough
  // have failed it.
  bool try_elsewhere(bool device_lost, LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Adds the next message, if there is one and the line is free.
  void pump(LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::optional<LargeReply> next_reply() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LargeSummary summarize() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the call with `error`, which may be none; does nothing when it has ended.
  void end(Error error, LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void finish(LargeNext* next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LargeNext fail(Error error);
  // Runs `event` under the lock and does what comes of it.
  void act_on(absl::FunctionRef<void(LargeNext*)> event);

  const LargeStages* const stages_;
  const Peer peer_;
  const std::string owner_;
  std::atomic<bool> cancel_{false};
  mutable Mutex mu_;
  std::shared_ptr<const Act> act_ ABSL_GUARDED_BY(mu_);
  State state_ ABSL_GUARDED_BY(mu_) = State::kOpening;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  Error ending_ ABSL_GUARDED_BY(mu_);  // of kEnded
  RequestLabels labels_ ABSL_GUARDED_BY(mu_);
  AdmittedLarge matrix_ ABSL_GUARDED_BY(mu_);   // from kUploading on; its memory is null again from kSending on
  int copying_ ABSL_GUARDED_BY(mu_) = 0;        // chunks
  bool read_due_ ABSL_GUARDED_BY(mu_) = false;  // when a chunk is copied
  Checkpoint checkpoint_ ABSL_GUARDED_BY(mu_);  // empty: it does not survive the server
  std::function<void()> states_dropper_ ABSL_GUARDED_BY(mu_);  // from kComputing on, and after the call's end
  bool saving_ ABSL_GUARDED_BY(mu_) = false;        // the operand, after commit: no progress until it is on disk
  bool results_kept_ ABSL_GUARDED_BY(mu_) = false;  // from commit on: their memory is reserved while it waits
  int device_ ABSL_GUARDED_BY(mu_) = 0;             // from kComputing on: the one that took it last
  int64_t lent_ ABSL_GUARDED_BY(mu_) = 0;           // bytes that were reserved for that device
  int failures_ ABSL_GUARDED_BY(mu_) = 0;           // of devices that serve on
  bool acceptance_due_ ABSL_GUARDED_BY(mu_) = false;
  bool progress_due_ ABSL_GUARDED_BY(mu_) = false;
  ProgressClock progress_ ABSL_GUARDED_BY(mu_);
  ComputedLarge computed_ ABSL_GUARDED_BY(mu_);  // from kSending on
  ResultChunks results_ ABSL_GUARDED_BY(mu_);    // that are not sent yet; then the summary
  bool summary_sent_ ABSL_GUARDED_BY(mu_) = false;
  int64_t writing_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of a result, in the write that is on its way
  TransferPace upload_ ABSL_GUARDED_BY(mu_), download_ ABSL_GUARDED_BY(mu_);
  // When each was reached.
  absl::Time accepted_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time committed_ ABSL_GUARDED_BY(mu_), queued_ ABSL_GUARDED_BY(mu_), taken_ ABSL_GUARDED_BY(mu_),
      done_ ABSL_GUARDED_BY(mu_);
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_JOB_H_
