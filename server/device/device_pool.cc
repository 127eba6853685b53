#include "server/device/device_pool.h"

#include <exception>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

// Runs the device and turns what it throws into an outcome. A device that throws is not lost for it: between batches it
// keeps nothing that could be spoilt, and one that is really gone says so by device_lost.
DeviceOutcome ExecuteGuarded(Device* device, int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                             const std::atomic<bool>* cancel) {
  DeviceOutcome failed;
  try {
    return device->Execute(lane, plan, segments, cancel);
  } catch (const std::bad_alloc&) {
    failed.status = absl::InternalError("out of memory for the scratch of a batch");
  } catch (const std::exception& e) {
    failed.status = absl::InternalError(e.what());
  } catch (...) {
    failed.status = absl::InternalError("an exception of unknown type");
  }
  return failed;
}

}  // namespace

DevicePool::DevicePool(std::vector<std::unique_ptr<Device>> devices, Clock* clock, Recorder* recorder)
    : clock_(clock), recorder_(recorder), healthy_(static_cast<int>(devices.size())) {
  for (std::unique_ptr<Device>& device : devices) {
    auto entry = std::make_unique<DeviceEntry>();
    const int lanes = device->info().lanes;
    entry->device = std::move(device);
    for (int i = 0; i < lanes; ++i) entry->lanes.push_back(std::make_unique<LaneState>());
    devices_.push_back(std::move(entry));
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread = std::thread([this, lane = lane.get()] { RunLane(lane); });
  }
}

DevicePool::~DevicePool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& entry : devices_) {
      for (const auto& lane : entry->lanes) lane->wake.Signal();
    }
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread.join();
  }
}

std::optional<Lane> DevicePool::Acquire(absl::Duration work) {
  MutexLock lock(&mu_);
  std::optional<Lane> best;
  for (int d = 0; d < size(); ++d) {
    const DeviceEntry& entry = *devices_[d];
    if (!entry.healthy) continue;
    if (best.has_value() && entry.outstanding >= devices_[best->device]->outstanding) continue;
    for (size_t i = 0; i < entry.lanes.size(); ++i) {
      if (entry.lanes[i]->held) continue;
      best = Lane{d, static_cast<int>(i), work};
      break;
    }
  }
  if (best.has_value()) {
    devices_[best->device]->lanes[best->index]->held = true;
    devices_[best->device]->outstanding += work;
  }
  return best;
}

void DevicePool::Release(const Lane& lane) {
  MutexLock lock(&mu_);
  devices_[lane.device]->lanes[lane.index]->held = false;
  devices_[lane.device]->outstanding -= lane.work;
}

void DevicePool::Run(const Lane& lane, LaneWork* work) {
  MutexLock lock(&mu_);
  LaneState* const state = devices_[lane.device]->lanes[lane.index].get();
  state->given = lane;
  state->work = work;
  state->wake.Signal();
}

void DevicePool::RunLane(LaneState* lane) {
  mu_.Lock();
  while (true) {
    if (lane->work != nullptr) {
      LaneWork* const work = std::exchange(lane->work, nullptr);
      const Lane given = *std::exchange(lane->given, std::nullopt);
      mu_.Unlock();
      work->Run(given);
      mu_.Lock();
    } else if (stopping_) {
      break;
    } else {
      lane->wake.Wait(&mu_);
    }
  }
  mu_.Unlock();
}

DevicePool::Executed DevicePool::Execute(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                         const std::atomic<bool>* cancel) {
  Device* const device = devices_[lane.device]->device.get();
  Executed executed;
  executed.started = clock_->Now();
  CountExecuting(lane.device, 1, executed.started);
  executed.outcome = ExecuteGuarded(device, lane.index, plan, segments, cancel);
  const absl::Time ended = clock_->Now();
  CountExecuting(lane.device, -1, ended);
  executed.took = ended - executed.started;
  recorder_->PhaseTook(Phase::kCompute, executed.took);
  if (!executed.outcome.status.ok()) {
    if (executed.outcome.device_lost) Lose(lane.device);
    executed.outcome.status =
        absl::InternalError(absl::StrCat("device ", device->info().name, ": ", executed.outcome.status.message()));
  } else if (executed.outcome.completed) {
    recorder_->MatricesDone(executed.outcome.report);
  }
  return executed;
}

void DevicePool::CountExecuting(int device, int lanes, absl::Time now) {
  MutexLock lock(&mu_);
  DeviceEntry& entry = *devices_[device];
  if (entry.executing > 0) entry.busy += now - entry.busy_since;
  entry.busy_since = now;
  entry.executing += lanes;
}

void DevicePool::Lose(int device) {
  {
    MutexLock lock(&mu_);
    if (!std::exchange(devices_[device]->healthy, false)) return;
    healthy_.fetch_sub(1, std::memory_order_release);
  }
  recorder_->DeviceLost(info(device).name);
}

DeviceState DevicePool::state(int device) const {
  const DeviceEntry& entry = *devices_[device];
  DeviceState state;
  state.info = entry.device->info();
  state.counters = entry.device->counters();
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  state.healthy = entry.healthy;
  for (const auto& lane : entry.lanes) state.outstanding_batches += lane->held ? 1 : 0;
  state.busy = entry.busy + (entry.executing > 0 ? now - entry.busy_since : absl::ZeroDuration());
  return state;
}

int DevicePool::idle() const {
  MutexLock lock(&mu_);
  int idle = 0;
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    for (const auto& lane : entry->lanes) {
      if (lane->held) continue;
      ++idle;
      break;
    }
  }
  return idle;
}

}  // namespace svdserve::server
