// All devices, their lanes, what is known of their health, and what work costs on them. Work waits in the batch stage
// and is bound to a device only when one of its lanes takes it. So a lost device leaves nothing to be moved.
//
// A batch goes where it is predicted to be complete first: after what the device still has to do, and its own time
// there (cost_table.h). That may be a device whose lanes are all taken, when it will be free soon and every free one is
// slow. Then the batch waits (server/decisions/0005-which-device.md).
//
// Beside a GPU the host takes only short work that it completes sooner than the GPU is reached. Once no GPU takes work,
// it takes everything. Matrices whose bits are not the same on both (k > 32) are no work of the host's beside a GPU.
//
// A device that failed a batch without being lost is avoided for a while, the longer the more often it happens.
// Otherwise one that fails at once would look like the one that is done first.
//
// A GPU whose work hangs (watchdog.h) is taken out as a lost one is. Its lane stays with its holder until the device
// answers, which may be never. The host is not watched: its kernels are loops with a bound, and a busy machine may slow
// them down without one.
//
// Thread-safe. Invariants:
//   1. A lane has at most one holder, from place() to release(). Only the holder executes on it.
//   2. Nobody is given a lane of a lost device, and a lost device never comes back.
//   3. Every lane's thread runs what it was given by run() before it ends.
//   4. No LaneWork is called under mu_.
// Lock order: mu_ before a cost table's.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/device/cost/capacity.h"
#include "server/device/cost/cost_table.h"
#include "server/device/device.h"
#include "server/device/device_load.h"
#include "server/device/device_monitor.h"
#include "server/device/watchdog.h"
#include "server/metrics/recorder.h"
#include "server/on_device_lost.h"

namespace svdserve::server {

// A lane in somebody's hands.
struct Lane {
  int device = 0;                                   // position in the pool
  int index = 0;                                    // on its device
  absl::Duration predicted = absl::ZeroDuration();  // of the device's time, for what the lane is held for
};

// The bounds of a batch: predicted time, and matrices, which are multiples of the plan's group. `most` may be passed where
// matrices take long, or a lane computes more at once.
struct BatchBounds {
  absl::Duration work;
  int64_t most = 1;
  int64_t most_of_long = 1;
};

// The work of a lane's thread: to execute() on the lane and to release() it.
class LaneWork {
 public:
  virtual void run(const Lane& lane) = 0;

 protected:
  ~LaneWork() = default;
};

class DevicePool final : public DeviceMonitor {
 public:
  static constexpr absl::Duration kWatchdogTimeout = absl::Seconds(10);

  // At least one device. `clock` and `recorder` outlive the pool. watchdog_timeout: the least time without an answer
  // after which a GPU may be taken to hang.
  DevicePool(std::vector<std::unique_ptr<Device>> devices, Clock* clock, Recorder* recorder,
             absl::Duration watchdog_timeout = kWatchdogTimeout);
  // Every lane has been released.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Measures every device, all of them at once, for about `budget`; see calibrate(). A device that fails at it is lost
  // or goes on unmeasured, as its outcome says; one that hangs is taken out and not waited for. Before anything else is
  // done with the pool.
  void calibrate(absl::Duration budget);

  // One look at the devices for a queue of waiting work, from its front to its back. Work without a place counts as
  // ahead of the work behind it. Used by one thread, which soon drops it.
  class Placement {
   public:
    explicit Placement(DevicePool* pool);

    // False: no healthy device has a free lane for any work, so nothing can be placed.
    bool lane_free() const { return lane_free_; }
    // A lane of the healthy device, of those not in `tried`, where the work is predicted to be complete first; the
    // caller holds it. None: every such device is lost, or all lanes of that one that the work may have are taken (see
    // device_load.h).
    std::optional<Lane> place(const Plan& plan, int64_t matrices, absl::Span<const int> tried);
    // The time of another look, if nothing changes before. Work waits for a busy device that may be slower than
    // predicted, or for work that may turn out to be long. InfiniteFuture: nothing does.
    absl::Time look_again() const { return look_again_; }

   private:
    DevicePool* const pool_;
    bool lane_free_ = false;
    absl::InlinedVector<absl::Duration, 8> ahead_;  // of each device
    absl::Time look_again_ = absl::InfiniteFuture();
  };

  // A lane as by place(), if it is the host's and the work is predicted to take no longer than `most` there. A GPU may
  // hang, and its holder with it.
  std::optional<Lane> place_short(const Plan& plan, int64_t matrices, absl::Duration most);
  // A side lane of a healthy device, if the work is predicted to take no longer there than a thread takes to wake up.
  // Its holder executes on its own thread.
  std::optional<Lane> place_beside(const Plan& plan, int64_t matrices);
  void release(const Lane& lane);

  // The division of `matrices` among the healthy devices with a free lane, in proportion to their speed and so that all
  // are done at once. It has sizes of parts, at least `least` each (see shares.h), whose sum is `matrices`; all are
  // multiples of the plan's group. One part where dividing is no use.
  std::vector<int64_t> shares(const Plan& plan, int64_t matrices, int64_t least) const;

  // The number of matrices of a batch for the device that is quickest at bounds.most, of those that take the work. It is
  // a multiple of the plan's group, as the bounds are. They take no longer than bounds.work, as predicted. Where one
  // group takes longer than half of that, they are those within twice its time, up to most_of_long. There may always be
  // as many as a lane computes at once. A device that computes one matrix on a part of it computes several at once.
  int64_t matrices_within(const Plan& plan, const BatchBounds& bounds) const;

  // The times of `matrices`, a multiple of the plan's group, and of a full batch on each healthy device.
  std::vector<DeviceCost> costs(const Plan& plan, int64_t matrices, const BatchBounds& bounds) const;

  // The time after which `matrices` could be done that wait behind `ahead` others of the same plan, at best. Every run
  // is as short as it ever is, and all other waiting work is left aside. `divisible`: they may be spread over devices.
  // Zero while a healthy device that takes the work has nothing to do.
  absl::Duration earliest_done(const Plan& plan, int64_t matrices, int64_t ahead, bool divisible) const;

  // Has the lane's own thread call work->Run(lane); not a side lane. The caller holds the lane and passes it on; `work`
  // lives until then.
  void run(const Lane& lane, LaneWork* work);

  struct Executed {
    DeviceOutcome outcome;
    absl::Time started;
    absl::Duration took;
    absl::Duration device_time;  // less, where other lanes computed meanwhile
  };
  // Executes on the calling thread, which holds the lane; see Device::execute(). Whatever the device throws is an
  // outcome that is not OK. Records time, matrices, faults, and the loss of a device. The message of an outcome that is
  // not OK is for callers: it names the device. The device's own words are in the log.
  //
  // Should a GPU hang over it, the clock's thread calls `on_hung` once, while this call goes on. The device is out, and
  // may still read and write the segments until this returns. Its outcome is not OK then. `calls` gives the ids of the
  // calls whose work it is, for the log of a fault; null: none.
  Executed execute(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                   const std::atomic<bool>* cancel, absl::AnyInvocable<void()> on_hung = nullptr,
                   absl::AnyInvocable<std::string()> calls = nullptr);

  int size() const { return static_cast<int>(devices_.size()); }
  int healthy() const { return healthy_.load(std::memory_order_acquire); }
  DeviceCensus census() const { return {size(), healthy(), lost_gpus_.load(std::memory_order_acquire)}; }
  // Whether a healthy device exists besides those in `tried`.
  bool healthy_besides(absl::Span<const int> tried) const;
  DeviceState state(int device) const;
  const DeviceInfo& info(int device) const { return devices_[device]->device->info(); }

  // --- for who computes beside the lanes ---
  bool is_healthy(std::string_view device) const override;
  void lost(std::string_view device) override;
  std::unique_ptr<Watchdog::Watch> watch(std::string_view device, absl::Duration bound,
                                         Watchdog::OnHang on_hang) override;

 private:
  struct LaneState {
    CondVar wake;
    std::optional<Lane> given;  // together with `work`
    LaneWork* work = nullptr;
    std::thread thread;
  };
  struct DeviceEntry {
    explicit DeviceEntry(std::unique_ptr<Device> d)
        : device(std::move(d)),
          costs(device->info().kind == DeviceKind::kHost ? &Plan::host_method : &Plan::method, device->info().at_once),
          load(device->info().lanes, device->info().relief_lanes, device->info().side_lanes) {}

    const std::unique_ptr<Device> device;
    CostTable costs;
    DeviceLoad load;
    bool healthy = true;
    int faults = 0;                                   // in a row
    absl::Time avoided_until = absl::InfinitePast();  // for these
    std::vector<std::unique_ptr<LaneState>> lanes;
  };
  struct Candidate;
  struct Calibrating;
  class Calibrator;

  void run_lane(LaneState* lane);
  // Where the work is predicted to be complete first; `ahead`: what else goes to each device before it, or empty.
  Candidate choose(const Plan& plan, int64_t matrices, absl::Span<const int> tried,
                   absl::Span<const absl::Duration> ahead, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether a GPU takes work, besides those in `tried`.
  bool gpu_at_work(absl::Span<const int> tried, absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Lane hold(const Candidate& candidate, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // execute() without a word to the recorder but of faults.
  Executed execute_uncounted(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                             const std::atomic<bool>* cancel, absl::AnyInvocable<void()> on_hung,
                             absl::AnyInvocable<std::string()> calls);
  void on_fault(int device, const DeviceOutcome& outcome, absl::Time now);
  void take_out_hung(int device);
  // From now on the device gives no lanes.
  void take_out(int device);
  std::optional<int> find(std::string_view device) const;

  Clock* const clock_;
  Recorder* const recorder_;
  std::vector<std::unique_ptr<DeviceEntry>> devices_;  // under mu_, but for `device` and `costs`
  std::atomic<int> healthy_;
  std::atomic<int> lost_gpus_{0};
  Watchdog watchdog_;
  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_
