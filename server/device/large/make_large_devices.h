// The devices that compute factors, as the server's configuration chooses them.
#ifndef SVDSERVE_SERVER_DEVICE_LARGE_MAKE_LARGE_DEVICES_H_
#define SVDSERVE_SERVER_DEVICE_LARGE_MAKE_LARGE_DEVICES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/cuda_large_engine.h"
#include "server/device/device.h"
#include "server/device/large/large_runner.h"
#include "server/device_selection.h"

namespace svdserve::server {

struct MadeLargeDevices {
  std::vector<LargeDevice> devices;   // GPUs in their order, their gangs, then the host; never empty
  std::vector<std::string> refusals;  // one line each: which GPU or gang takes no factors, and why
  std::vector<std::string> warnings;  // one line each: which gang is worse than it was meant to be, and why
};

// How a GPU becomes a device for factors: open_cuda_large_engine(), or what a test gives.
using CudaLargeFactory = std::function<std::unique_ptr<LargeEngine>(int ordinal, CudaStatus* status)>;

// How GPUs become a gang: open_gang(), or what a test gives. An engine with a status that is not ok: *status says why it
// is worse than it was meant to be.
using CudaRingFactory = std::function<std::unique_ptr<LargeEngine>(const std::vector<int>& ordinals, CudaStatus*)>;

// Whether two GPUs reach each other's memory: gpus_reach_each_other(), or what a test gives.
using CudaReach = std::function<bool(int ordinal, int other)>;

// The members of gangs (engine/decisions/0017-a-ring-of-members.md).
inline constexpr RingMembers kGangMembers = RingMembers::kInProcess;
// Where `members` cannot be ranks, they are in this process.
std::unique_ptr<LargeEngine> open_gang(const std::vector<int>& ordinals, CudaStatus* status,
                                       RingMembers members = kGangMembers);

// `batch_devices` are those of the server that take batches: each GPU of them takes factors, too, in what memory its
// lanes leave. threads: of the host's engine; 0: every core. The host is always among them: it takes what nobody else
// can.
// Gangs have `gpus` members, or half as many, and so on: the small ones are for when a GPU is lost. No GPU is in two gangs
// of one size. Members reach each other's memory, as far as there are such GPUs, and are neighbours otherwise.
MadeLargeDevices make_large_devices(
    absl::Span<const DeviceInfo> batch_devices, int threads, LargeGpus gpus,
    const CudaLargeFactory& cuda = open_cuda_large_engine,
    const CudaRingFactory& ring = [](const std::vector<int>& ordinals,
                                     CudaStatus* status) { return open_gang(ordinals, status); },
    const CudaReach& reach = gpus_reach_each_other);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_LARGE_MAKE_LARGE_DEVICES_H_
