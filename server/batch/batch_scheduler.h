// The dynamic batcher. Requests of equal plan share a batch, which is made when a lane is free for it. With an idle
// device a request leaves at once, so batching costs no latency at low load. While the lanes are busy batches grow by
// themselves. Whose turn it is, and what a batch may have at most: batch_queue.h.
//
// A batch that a device fails is tried again on another, on at most kMaxFaults that serve on, and never twice on one. A
// request ends by a device's fault only when no other is left to try.
//
// A batch whose device hangs is not tried again, because the device may still write into its memory. Its requests end
// with UNAVAILABLE, and their memory stays with the batch.
//
// A request ends by its results, its deadline, the queue timeout, cancel(), or a drain that ran out of time. The first
// of them calls its callback at that moment. A waiting request then leaves the queue and costs no device time.
// A request on a device loses its answer at once, and its memory when the device lets go. The batch's cancel flag asks
// the device to do so as soon as nobody waits for any result of the batch.
//
// Thread-safe. Invariants:
//   1. Every job is answered exactly once: `answered` turns true under mu_, by end() alone, which moves its callback
//      out.
//   2. No callback is called, and no RequestMemory dropped, under mu_: both are collected in Effects.
//   3. Work waits only while no lane of a healthy device is free for it, or the device that is to complete it first is
//      busy. Adding work and releasing a lane call pump(); the alarm does when such a wait is to be looked at again.
//   4. A job's memory outlives every use by a device: the slices of a running batch hold the job.
//   5. The alarm is set to the earliest time at which something is due, or earlier.
//   6. busy_ counts who has taken something off the queue, or an answer, and not yet done with it, but for abandoned
//      batches: empty queue and busy_ 0 mean that every accepted request was answered and that no device touches any,
//      but for those of abandoned_ batches.
// Lock order: mu_ before the pool's mutex and the alarm's.
#ifndef SVDSERVE_SERVER_BATCH_BATCH_SCHEDULER_H_
#define SVDSERVE_SERVER_BATCH_BATCH_SCHEDULER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "server/admitted_request.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/batch/batch_queue.h"
#include "server/device/device_pool.h"
#include "server/metrics/recorder.h"

namespace svdserve::server {

struct BatchOptions {
  BatchLimits limits;
  absl::Duration queue_timeout = absl::Seconds(30);     // without a lane, after which a request is given up
  absl::Duration inline_work = absl::Microseconds(20);  // estimated work up to here may run in submit()
};

class BatchScheduler final : private BatchRunner {
 public:
  // `pool`, `clock` and `recorder` outlive the scheduler.
  BatchScheduler(const BatchOptions& options, DevicePool* pool, Clock* clock, Recorder* recorder);
  // Gives up what is left and returns when no lane touches it: never, while a device hangs. Nobody submits any more.
  ~BatchScheduler();
  BatchScheduler(const BatchScheduler&) = delete;
  BatchScheduler& operator=(const BatchScheduler&) = delete;

  // Takes the request over; see DoneCallback. Small work may be computed on the calling thread before this returns.
  RequestHandle submit(AdmittedRequest request, DoneCallback done);

  // Cancels one job of a RequestHandle. A job that was answered stays so.
  void cancel(const std::weak_ptr<void>& job);

  // Blocks until all is answered and off the devices; after `timeout` the rest is given up with UNAVAILABLE, reason
  // DRAINING. Devices have that long again, at most 5 s, to let go of it; then their batches are abandoned. Returns
  // whether nothing was given up.
  bool drain(absl::Duration timeout);

  struct Waiting {
    int64_t requests;
    absl::Duration oldest;
  };
  Waiting waiting() const;

  // After what time the peer's request could be done at best, were it submitted now; see DevicePool::earliest_done().
  absl::Duration earliest_done(const Peer& peer, const Plan& plan, int64_t matrices) const;

 private:
  // The work to be done after mu_ was released.
  struct Effects {
    absl::InlinedVector<std::pair<DoneCallback, Answer>, 1> answers;
    absl::InlinedVector<std::shared_ptr<Job>, 1> released;  // jobs whose last reference this may be
    CutEvents cuts;
  };

  struct PartResult;
  // A device's fault, and which device.
  struct Fault {
    int device;
    absl::Status status;
  };

  void run_batch(std::unique_ptr<Batch> batch, const Lane& lane) override;
  // The sizes of the parts that the request is to be divided into for devices.
  std::vector<int64_t> shares_of(const AdmittedRequest& request) const;
  // Whether the request was computed and answered. If not, *fault says whether a device failed at it.
  bool run_inline(const AdmittedRequest& request, DoneCallback* done, std::optional<Fault>* fault);
  PartResult compute(Batch* batch, const Lane& lane);
  void finish(Batch* batch, const Lane& lane, PartResult result, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A device failed a batch, which runs no more: back to the queue, or its jobs end with the fault.
  void failed(std::unique_ptr<Batch> batch, Fault fault, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool can_retry(const Batch& batch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The batch's device hangs.
  void on_hung(Batch* batch, const Lane& lane);
  // Answers the jobs of a running batch with the error, and waits for its device no more.
  void abandon(Batch* batch, const Error& error, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Lets go of the jobs of a batch that runs no more.
  void release(Batch* batch, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static std::unique_ptr<Batch> batch_of(const std::shared_ptr<Job>& job);
  // A slice's job leaves a batch that runs no more. Null: it had left.
  std::shared_ptr<Job> leave(Batch* batch, size_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void pump(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives a lane to the first batch of those in turn for which there is one. False: there is none.
  bool start_one(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void start(std::unique_ptr<Batch> batch, const Lane& lane, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends what waits and can go nowhere any more, since a device was lost.
  void end_stranded(Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void on_alarm();
  void set_alarm() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void expire_due(absl::Time now, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void give_up_all(const Error& error, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void give_up_queued(const Error& error, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers an unanswered job: with its results where `error` is ok(). Its parts leave the queue and their lanes.
  void end(Job* job, Error error, Effects* effects) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool is_idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return busy_ == 0 && queue_.empty(); }
  // Calls back, lets go and records; the caller holds no lock.
  void apply(Effects* effects);
  void leave_busy(int64_t n) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const BatchOptions options_;
  DevicePool* const pool_;
  Clock* const clock_;
  Recorder* const recorder_;

  mutable Mutex mu_;
  CondVar idle_;
  BatchQueue queue_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_set<Batch*> running_ ABSL_GUARDED_BY(mu_);
  absl::btree_set<std::pair<absl::Time, Job*>> queued_ ABSL_GUARDED_BY(mu_);     // by waits_since: wait for a lane
  absl::btree_set<std::pair<absl::Time, Job*>> deadlines_ ABSL_GUARDED_BY(mu_);  // unanswered, with a finite deadline
  int64_t busy_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t abandoned_ ABSL_GUARDED_BY(mu_) = 0;  // batches
  bool gave_up_ ABSL_GUARDED_BY(mu_) = false;   // the drain ran out of time
  absl::Time drain_deadline_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  absl::Time let_go_deadline_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // of devices, after a drain's
  absl::Time look_again_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();       // for a lane, for work that let one pass
  int healthy_ ABSL_GUARDED_BY(mu_);                                          // devices, at the last pump()
  absl::Time alarm_at_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::unique_ptr<Alarm> alarm_;  // last: its callback uses everything above
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_BATCH_SCHEDULER_H_
