#include "server/device/large/make_large_devices.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace svdserve::server {
namespace {

// The rest is for lanes, contexts, and the workspaces of libraries.
constexpr double kShareForLarge = 0.9;

// --large-gpus=auto. A sweep on four GPUs was 2.6 times as fast as on one at this order, and 1.6 to 2.1 times at half of
// it (engine/decisions/0017). Eight were not measured.
constexpr int kAutoGpus = 4;
constexpr int64_t kAutoLeastOrder = 8192;

// The gang of `count` GPUs from the one with index `first` on. Without an engine: *status says why not.
LargeDevice make_gang(const std::vector<LargeDevice>& gpus, const std::vector<int>& ordinals, size_t first,
                      size_t count, const CudaRingFactory& ring, CudaStatus* status) {
  LargeDevice gang;
  std::vector<std::string> names;
  std::vector<int> its_ordinals;
  gang.memory_bytes = gpus[first].memory_bytes;
  for (size_t i = first; i < first + count; ++i) {
    names.push_back(gpus[i].name);
    its_ordinals.push_back(ordinals[i]);
    gang.members.push_back(static_cast<int>(i));
    gang.memory_bytes = std::min(gang.memory_bytes, gpus[i].memory_bytes);
  }
  gang.name = absl::StrJoin(names, ",");
  gang.engine = ring(its_ordinals, status);
  return gang;
}

// Adds the gangs of the GPUs that are there, which have these ordinals.
void add_gangs(LargeGpus wanted, const std::vector<int>& ordinals, const CudaRingFactory& ring,
               MadeLargeDevices* made) {
  const bool automatic = wanted == LargeGpus::kAuto;
  const auto most = static_cast<size_t>(automatic ? kAutoGpus : static_cast<int>(wanted));
  if (!automatic && most > ordinals.size() && !ordinals.empty()) {
    made->refusals.push_back(
        absl::StrCat("--large-gpus=", most, ", but ", ordinals.size(), " GPUs compute large matrices"));
  }
  for (size_t count = most; count >= 2; count /= 2) {
    for (size_t first = 0; first + count <= ordinals.size(); first += count) {
      CudaStatus status;
      LargeDevice gang = make_gang(made->devices, ordinals, first, count, ring, &status);
      gang.least_order = automatic ? kAutoLeastOrder : 0;
      if (gang.engine != nullptr) {
        made->devices.push_back(std::move(gang));
      } else {
        made->refusals.push_back(absl::StrCat(gang.name, " compute no large matrix together: ", status.text));
      }
    }
  }
}

}  // namespace

MadeLargeDevices make_large_devices(absl::Span<const DeviceInfo> batch_devices, int threads, LargeGpus gpus,
                                    const CudaLargeFactory& cuda, const CudaRingFactory& ring) {
  MadeLargeDevices made;
  std::vector<int> ordinals;
  for (const DeviceInfo& info : batch_devices) {
    if (info.kind != DeviceKind::kCuda) continue;
    CudaStatus status;
    std::unique_ptr<LargeEngine> engine = cuda(info.ordinal, &status);
    if (engine == nullptr) {
      made.refusals.push_back(absl::StrCat(info.name, " computes no large matrices: ", status.text));
      continue;
    }
    const auto bytes = static_cast<int64_t>(kShareForLarge * static_cast<double>(info.memory_bytes));
    made.devices.push_back({info.name, bytes, std::move(engine)});
    ordinals.push_back(info.ordinal);
  }
  add_gangs(gpus, ordinals, ring, &made);
  made.devices.push_back({"host:0", 0, make_host_large_engine(threads)});
  return made;
}

}  // namespace svdserve::server
