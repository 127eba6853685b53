// All devices, their lanes and what is known of their health. Work waits in the batch stage and is bound to a device
// only when a lane takes it: so a lost device leaves nothing to be moved, and no lane idles beside a full queue.
//
// Thread-safe. Invariants:
//   1. A lane has at most one holder, from Acquire() to Release(). Only the holder executes on it.
//   2. Acquire() gives no lane of a lost device, and a lost device never comes back.
//   3. Every lane's thread runs what it was given by Run() before it ends.
//   4. No LaneWork is called under mu_.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/clock.h"
#include "server/device/device.h"
#include "server/metrics/recorder.h"
#include "server/mutex.h"

namespace svdserve::server {

// A lane in somebody's hands.
struct Lane {
  int device = 0;       // position in the pool
  int index = 0;        // on its device
  absl::Duration work;  // what its holder said it would take
};

// What a lane's thread is to do: to Execute() on the lane and to Release() it.
class LaneWork {
 public:
  virtual void Run(const Lane& lane) = 0;

 protected:
  ~LaneWork() = default;
};

class DevicePool {
 public:
  // At least one device. `clock` and `recorder` outlive the pool.
  DevicePool(std::vector<std::unique_ptr<Device>> devices, Clock* clock, Recorder* recorder);
  // Every lane has been released.
  ~DevicePool();
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // A free lane of the healthy device with the least outstanding work, or none. `work`: the estimate of what is to run.
  std::optional<Lane> Acquire(absl::Duration work);
  void Release(const Lane& lane);

  // Has the lane's own thread call work->Run(lane). The caller holds the lane and passes it on; `work` lives until
  // then.
  void Run(const Lane& lane, LaneWork* work);

  struct Executed {
    DeviceOutcome outcome;
    absl::Time started;
    absl::Duration took;
  };
  // Executes on the calling thread, which holds the lane; see Device::Execute(). Whatever the device throws is an
  // outcome that is not OK; records time, matrices, and the loss of a device.
  Executed Execute(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                   const std::atomic<bool>* cancel);

  int size() const { return static_cast<int>(devices_.size()); }
  int healthy() const { return healthy_.load(std::memory_order_acquire); }
  DeviceState state(int device) const;
  int idle() const;  // healthy devices with a free lane
  const DeviceInfo& info(int device) const { return devices_[device]->device->info(); }

 private:
  struct LaneState {
    CondVar wake;
    bool held = false;
    std::optional<Lane> given;  // together with `work`
    LaneWork* work = nullptr;
    std::thread thread;
  };
  struct DeviceEntry {
    std::unique_ptr<Device> device;
    bool healthy = true;
    absl::Duration outstanding;  // of the lanes held
    int executing = 0;           // lanes that compute
    absl::Duration busy;         // with executing > 0, until busy_since
    absl::Time busy_since;       // while executing > 0
    std::vector<std::unique_ptr<LaneState>> lanes;
  };

  void RunLane(LaneState* lane);
  // The clock of a device's busy time: `lanes` more, or fewer, compute from now on.
  void CountExecuting(int device, int lanes, absl::Time now);
  void Lose(int device);

  Clock* const clock_;
  Recorder* const recorder_;
  std::vector<std::unique_ptr<DeviceEntry>> devices_;  // the vector and `device` are fixed; the rest is guarded by mu_
  std::atomic<int> healthy_;
  mutable Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_POOL_H_
