// Finds work that hangs. Work on a device is watched from its beginning to its end. It hangs when it shows no progress
// for 20 times as long as it may take, and for the watchdog's least time.
//
// Time is counted by the watchdog's own looks, one a period. A pause of the whole process (stopped, swapped out,
// without a core) counts as two periods at most, so that it makes no work suspect.
//
// Thread-safe. Invariants:
//   1. The alarm is set while anything is watched.
//   2. No OnHang is called under mu_, and each is called at most once.
//   3. A Watch outlives a call of its OnHang.
#ifndef SVDSERVE_SERVER_DEVICE_WATCHDOG_H_
#define SVDSERVE_SERVER_DEVICE_WATCHDOG_H_

#include <atomic>
#include <memory>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace svdserve::server {

class Watchdog {
 public:
  // Work that takes longer than this many times its bound hangs.
  static constexpr int kPatience = 20;

  // Called once for work that hangs, on the clock's thread, with the time for which the work has been silent.
  using OnHang = absl::AnyInvocable<void(absl::Duration silent)>;

  // Nothing hangs before it has been silent for `least` > 0. `clock` outlives the watchdog.
  Watchdog(absl::Duration least, Clock* clock);
  // Nothing is watched any more.
  ~Watchdog() = default;
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Work that is watched, while this lives.
  class Watch {
   public:
    // bound: the longest time that the work may take at the device's usual speed.
    Watch(Watchdog* watchdog, absl::Duration bound, OnHang on_hang);
    ~Watch() { stop(); }
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

    // The work goes on: its time begins anew. Costs an atomic store; any thread.
    void progress() { progressed_.store(true, std::memory_order_relaxed); }
    // While the work waits for something else than its device, it does not hang. Any thread.
    void pause(bool waits) { paused_.store(waits, std::memory_order_relaxed); }
    // Ends the watch and returns whether the work hung. Waits for a running OnHang, and none runs afterwards. Not to be
    // called from there.
    bool stop();

   private:
    friend class Watchdog;
    Watchdog* const watchdog_;
    const absl::Duration limit_;
    std::atomic<bool> progressed_{false}, paused_{false};
    // Guarded by the watchdog's mutex.
    OnHang on_hang_;  // moved from when called
    absl::Duration since_;
    bool hung_ = false;
    bool telling_ = false;
  };

 private:
  // The time that the looks have counted until `now`.
  absl::Duration counted(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void look();
  // Notes what hangs and returns one of it, whose OnHang is due.
  Watch* next_hung() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const absl::Duration least_, period_;
  Clock* const clock_;
  Mutex mu_;
  CondVar told_;
  absl::flat_hash_set<Watch*> watches_ ABSL_GUARDED_BY(mu_);
  bool alarm_is_set_ ABSL_GUARDED_BY(mu_) = false;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;  // some work, since the last look
  absl::Time last_look_ ABSL_GUARDED_BY(mu_);
  absl::Duration counted_ ABSL_GUARDED_BY(mu_);  // until last_look_
  std::unique_ptr<Alarm> alarm_;                 // last: its callback uses everything above
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_WATCHDOG_H_
