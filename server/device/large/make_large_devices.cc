#include "server/device/large/make_large_devices.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

// The rest is for lanes, contexts, and the workspaces of libraries.
constexpr double kShareForLarge = 0.9;

}  // namespace

MadeLargeDevices make_large_devices(absl::Span<const DeviceInfo> batch_devices, int threads,
                                    const CudaLargeFactory& cuda) {
  MadeLargeDevices made;
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
  }
  made.devices.push_back({"host:0", 0, make_host_large_engine(threads)});
  return made;
}

}  // namespace svdserve::server
