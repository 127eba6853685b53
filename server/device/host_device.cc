#include "server/device/host_device.h"

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

// As many callers at once as the transport has threads for requests, and no reason for fewer.
constexpr int kSideLanes = 16;

class HostDevice final : public Device {
 public:
  HostDevice(int index, int threads, Simd simd)
      : engine_(EngineOptions{threads, simd}), relief_(EngineOptions{threads, simd}), side_(EngineOptions{1, simd}) {
    info_.name = absl::StrCat("host:", index);
    info_.ordinal = index;
    info_.instruction_set = svdserve::name(engine_.simd());
    info_.threads = info_.at_once = engine_.threads();
    info_.lanes = 1;  // one batch already uses every thread of the arena
    info_.relief_lanes = 1;
    info_.side_lanes = kSideLanes;
  }

  const DeviceInfo& info() const override { return info_; }

  DeviceOutcome execute(int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                        const std::atomic<bool>* cancel) override {
    const SvdEngine& engine = lane == 0 ? engine_ : lane == 1 ? relief_ : side_;
    const SvdEngine::Outcome outcome = engine.execute(plan, segments, cancel);
    return {absl::OkStatus(), false, outcome.completed, outcome.report};
  }

 private:
  // An arena each, so that no call waits for threads that another keeps busy: its caller's thread computes, and others
  // join as they come free. A side lane is its caller's thread alone.
  const SvdEngine engine_, relief_, side_;
  DeviceInfo info_;
};

}  // namespace

std::vector<std::unique_ptr<Device>> make_host_devices(int devices, int threads, Simd simd) {
  // One device: the engine itself knows best what "every core that the process may use" is.
  const int all = threads > 0 || devices == 1 ? threads : SvdEngine(EngineOptions{}).threads();
  std::vector<std::unique_ptr<Device>> made;
  for (int i = 0; i < devices; ++i) {
    // The first (all % devices) devices get the cores that are left over.
    const int share = devices == 1 ? all : std::max(1, all / devices + (i < all % devices ? 1 : 0));
    made.push_back(std::make_unique<HostDevice>(i, share, simd));
  }
  return made;
}

}  // namespace svdserve::server
