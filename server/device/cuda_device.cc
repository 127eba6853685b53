#include "server/device/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda_engine.h"

namespace svdserve::server {
namespace {

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<CudaEngine> engine) : engine_(std::move(engine)) {
    const CudaDeviceDescription& gpu = engine_->description();
    info_.name = absl::StrCat("cuda:", gpu.ordinal);
    info_.kind = DeviceKind::kCuda;
    info_.ordinal = gpu.ordinal;
    info_.model = gpu.name;
    info_.uuid = gpu.uuid;
    info_.memory_bytes = static_cast<int64_t>(gpu.memory_bytes);
    info_.instruction_set = absl::StrCat("sm_", gpu.compute_major, gpu.compute_minor);
    info_.threads = 0;
    info_.lanes = engine_->lanes();
    info_.at_once = std::max(1, gpu.multiprocessors / info_.lanes);
  }

  const DeviceInfo& info() const override { return info_; }

  DeviceOutcome execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                        const std::atomic<bool>* cancel) override {
    DeviceOutcome outcome;
    if (lost_.load(std::memory_order_relaxed)) {  // its context is dead: no call on it comes back with anything else
      outcome.status = absl::InternalError("the GPU failed earlier and is out of service");
      outcome.device_lost = true;
      return outcome;
    }
    const CudaEngine::Outcome done = engine_->execute(lane, plan, segments, cancel);
    outcome.completed = done.execution.completed;
    outcome.report = done.execution.report;
    if (done.status.ok()) return outcome;
    outcome.device_lost = done.status.sticky;
    if (done.status.sticky) lost_.store(true, std::memory_order_relaxed);
    outcome.status = done.status.out_of_memory() ? absl::ResourceExhaustedError(done.status.text)
                                                 : absl::InternalError(done.status.text);
    return outcome;
  }

  DeviceCounters counters() const override {
    return {static_cast<int64_t>(engine_->bytes_uploaded()), static_cast<int64_t>(engine_->bytes_downloaded()),
            static_cast<int64_t>(engine_->bytes_allocated())};
  }

 private:
  const std::unique_ptr<CudaEngine> engine_;
  DeviceInfo info_;
  std::atomic<bool> lost_{false};
};

}  // namespace

CudaDevices make_cuda_devices(const CudaDeviceOptions& options) {
  CudaDevices made;
  std::string why_not;
  const int count = cuda_device_count(&why_not);
  if (count == 0) {
    made.refusals.push_back(absl::StrCat("no GPU: ", why_not));
    return made;
  }
  std::vector<int> ordinals = options.ordinals;
  if (ordinals.empty()) {
    ordinals.resize(static_cast<size_t>(count));
    std::iota(ordinals.begin(), ordinals.end(), 0);
  }
  for (const int ordinal : ordinals) {
    CudaStatus status;
    std::unique_ptr<CudaEngine> engine =
        CudaEngine::open({ordinal, options.lanes, static_cast<uint64_t>(options.slot_bytes)}, &status);
    if (engine == nullptr) {
      made.refusals.push_back(absl::StrCat("cuda:", ordinal, ": ", status.text));
    } else {
      made.devices.push_back(std::make_unique<CudaDevice>(std::move(engine)));
    }
  }
  return made;
}

}  // namespace svdserve::server
