// A device under the test's control: it computes when it is let, fails when it is told, and remembers what it was
// given. A "singular value" of it is the first element of the matrix plus the value's index; a NaN there is NON_FINITE.
// f64 only. Every byte of another plane is the plane's index.
#ifndef SVDSERVE_TESTS_SERVER_FAKE_DEVICE_H_
#define SVDSERVE_TESTS_SERVER_FAKE_DEVICE_H_

#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/base/mutex.h"
#include "server/device/device.h"

namespace svdserve::server {

// How the test and the device talk. Shared, because the pool owns the device.
class FakeDeviceControl {
 public:
  struct Seen {
    Plan plan;
    std::vector<int64_t> counts;  // of the segments
  };

  // The next batches wait at their beginning until open() lets them on, or until they are cancelled.
  void close() {
    MutexLock lock(&mu_);
    open_ = false;
  }
  void open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.signal_all();
  }
  // Lets `n` batches through a closed gate.
  void let(int n) {
    MutexLock lock(&mu_);
    let_ += n;
    changed_.signal_all();
  }
  // The next batches wait until answer(), whatever their cancel flag says.
  void hang() {
    MutexLock lock(&mu_);
    hangs_ = true;
  }
  void answer() {
    MutexLock lock(&mu_);
    hangs_ = false;
    changed_.signal_all();
  }
  // The outcome of batches from now on, instead of computing them; null: they are computed. May throw.
  void fail(std::function<DeviceOutcome()> failure) {
    MutexLock lock(&mu_);
    failure_ = std::move(failure);
  }

  // Waits until `n` batches in all have begun.
  void await_begun(size_t n) {
    MutexLock lock(&mu_);
    while (seen_.size() < n) changed_.wait(&mu_);
  }
  std::vector<Seen> seen() {
    MutexLock lock(&mu_);
    return seen_;
  }
  int cancelled() {
    MutexLock lock(&mu_);
    return cancelled_;
  }

 private:
  friend class FakeDevice;
  Mutex mu_;
  CondVar changed_;
  bool open_ = true;
  bool hangs_ = false;
  int let_ = 0;
  int cancelled_ = 0;
  std::function<DeviceOutcome()> failure_;
  std::vector<Seen> seen_;
};

class FakeDevice final : public Device {
 public:
  FakeDevice(std::string name, int lanes, std::shared_ptr<FakeDeviceControl> control,
             DeviceKind kind = DeviceKind::kHost, int side_lanes = 0, int relief_lanes = 0, int at_once = 1)
      : control_(std::move(control)) {
    info_.name = std::move(name);
    info_.kind = kind;
    info_.instruction_set = "none";
    info_.lanes = lanes;
    info_.side_lanes = side_lanes;
    info_.relief_lanes = relief_lanes;
    info_.at_once = at_once;
  }

  const DeviceInfo& info() const override { return info_; }

  DeviceOutcome execute(int, const Plan& plan, absl::Span<const HostSegment> segments,
                        const std::atomic<bool>* cancel) override {
    std::function<DeviceOutcome()> failure;
    {
      MutexLock lock(&control_->mu_);
      FakeDeviceControl::Seen seen{plan, {}};
      for (const HostSegment& segment : segments) seen.counts.push_back(segment.count);
      control_->seen_.push_back(std::move(seen));
      control_->changed_.signal_all();
      while (control_->hangs_) control_->changed_.wait(&control_->mu_);
      while (!control_->open_ && control_->let_ == 0) {
        if (cancel->load()) {
          ++control_->cancelled_;
          return {};
        }
        // The flag has no condition to wait for: it is polled, as the engine does.
        control_->changed_.wait_until(&control_->mu_, std::chrono::steady_clock::now() + std::chrono::milliseconds(1));
      }
      if (!control_->open_) --control_->let_;
      failure = control_->failure_;
    }
    if (failure) return failure();
    DeviceOutcome outcome;
    outcome.completed = true;
    for (const HostSegment& segment : segments) compute(plan, segment, &outcome.report);
    return outcome;
  }

 private:
  static void compute(const Plan& plan, const HostSegment& segment, ConvergenceReport* report) {
    const int64_t k = plan.outputs.values, group = plan.outputs.group;
    const int64_t value_bytes = static_cast<int64_t>(plane_bytes(plan, Plane::kValues, group)) / group;
    for (int p = 1; p < kPlanes; ++p) {
      const Plane plane = static_cast<Plane>(p);
      if (segment.planes[plane] == nullptr) continue;
      std::memset(segment.planes[plane], p, plane_bytes(plan, plane, segment.count));
    }
    for (int64_t i = 0; i < segment.count; ++i) {
      double first;
      std::memcpy(&first, static_cast<const char*>(segment.matrices) + i * matrix_bytes(plan.problem), sizeof first);
      const bool finite = std::isfinite(first);
      ++(finite ? report->ok : report->non_finite);
      if (plan.starting_vectors) {  // the value tells which the device was given
        double start;
        std::memcpy(&start, static_cast<const char*>(segment.starting_vectors) + i * starting_bytes(plan),
                    sizeof start);
        first += start;
      }
      segment.statuses[i] = finite ? MatrixStatus::kOk : MatrixStatus::kNonFinite;
      for (int64_t j = 0; j < k; ++j) {
        const double value = first + static_cast<double>(j);
        char* const to = static_cast<char*>(segment.planes[Plane::kValues]) + i * value_bytes;
        std::memcpy(to + j * static_cast<int64_t>(sizeof value), &value, sizeof value);
      }
    }
  }

  const std::shared_ptr<FakeDeviceControl> control_;
  DeviceInfo info_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAKE_DEVICE_H_
