// A device that fails as it is told, around one that computes: what a GPU can do to its server, without a GPU.
#ifndef SVDSERVE_TESTS_SERVER_FAULTY_DEVICE_H_
#define SVDSERVE_TESTS_SERVER_FAULTY_DEVICE_H_

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "server/base/mutex.h"
#include "server/device/device.h"

namespace svdserve::server {

enum class Fault {
  kNone,
  kLaunch,       // nothing was computed
  kCopy,         // computed, but half of the results are garbage by the time the copy back fails
  kOutOfMemory,  // no room for this batch
  kSticky,       // the context is dead: this batch and every later one fails, at once
  kHang,         // never ends unless it is cancelled
  kUnasked,      // gives up though nobody asked
  kThrow,
};

constexpr const char* name(Fault fault) {
  constexpr const char* kNames[] = {"None", "Launch", "Copy", "OutOfMemory", "Sticky", "Hang", "Unasked", "Throw"};
  return kNames[static_cast<int>(fault)];
}

// How the test and the device talk. Shared, because the pool owns the device.
class FaultPlan {
 public:
  // The next batches meet the planted faults, one each; when the plan is over, `always`.
  void plant(Fault fault) {
    MutexLock lock(&mu_);
    next_.push_back(fault);
  }
  void always(std::function<Fault()> fault) {
    MutexLock lock(&mu_);
    always_ = std::move(fault);
  }
  int executed() {
    MutexLock lock(&mu_);
    return executed_;
  }
  // Waits until so many batches have begun in all.
  void await_executed(int n) {
    MutexLock lock(&mu_);
    while (executed_ < n) changed_.wait(&mu_);
  }

 private:
  friend class FaultyDevice;
  Fault next() {
    MutexLock lock(&mu_);
    ++executed_;
    changed_.signal_all();
    if (dead_) return Fault::kSticky;
    Fault fault = always_ ? always_() : Fault::kNone;
    if (!next_.empty()) {
      fault = next_.front();
      next_.pop_front();
    }
    dead_ = fault == Fault::kSticky;
    return fault;
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<Fault> next_;
  std::function<Fault()> always_;
  int executed_ = 0;
  bool dead_ = false;
};

class FaultyDevice final : public Device {
 public:
  // Without relief lanes: a lane that hangs leaves no other.
  FaultyDevice(std::unique_ptr<Device> device, std::shared_ptr<FaultPlan> plan)
      : device_(std::move(device)), plan_(std::move(plan)), info_(device_->info()) {
    info_.relief_lanes = 0;
  }

  const DeviceInfo& info() const override { return info_; }
  DeviceCounters counters() const override { return device_->counters(); }

  DeviceOutcome execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                        const std::atomic<bool>* cancel) override {
    switch (plan_->next()) {
      case Fault::kNone:
        return device_->execute(lane, plan, segments, cancel);
      case Fault::kLaunch:
        return {absl::InternalError("cudaErrorLaunchFailure: planted"), false, false, {}};
      case Fault::kCopy:
        device_->execute(lane, plan, segments, cancel);
        for (const HostSegment& s : segments) {
          const size_t bytes = static_cast<size_t>(s.count) * values_bytes(plan.problem);
          std::memset(static_cast<char*>(s.planes[Plane::kValues]) + bytes / 2, 0x5a, bytes - bytes / 2);
        }
        return {absl::InternalError("cudaErrorInvalidValue: planted"), false, false, {}};
      case Fault::kOutOfMemory:
        return {absl::ResourceExhaustedError("cudaErrorMemoryAllocation: planted"), false, false, {}};
      case Fault::kSticky:
        return {absl::InternalError("cudaErrorIllegalAddress: planted"), true, false, {}};
      case Fault::kHang:
        while (!cancel->load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
        return {absl::OkStatus(), false, false, {}};
      case Fault::kUnasked:
        return {absl::OkStatus(), false, false, {}};
      case Fault::kThrow:
        throw std::runtime_error("planted");
    }
    return {};
  }

 private:
  const std::unique_ptr<Device> device_;
  const std::shared_ptr<FaultPlan> plan_;
  DeviceInfo info_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAULTY_DEVICE_H_
