// The devices that compute factors, as the server's configuration chooses them.
#ifndef SVDSERVE_SERVER_DEVICE_LARGE_MAKE_FACTOR_DEVICES_H_
#define SVDSERVE_SERVER_DEVICE_LARGE_MAKE_FACTOR_DEVICES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/cuda_factor_engine.h"
#include "server/device/device.h"
#include "server/device/large/factor_runner.h"

namespace svdserve::server {

struct MadeFactorDevices {
  std::vector<FactorDevice> devices;  // GPUs in their order, then the host; never empty
  std::vector<std::string> refusals;  // one line each: which GPU takes no factors, and why
};

// How a GPU becomes a device for factors: open_cuda_factor_engine(), or what a test gives.
using CudaFactorFactory = std::function<std::unique_ptr<FactorEngine>(int ordinal, CudaStatus* status)>;

// `batch_devices` are those of the server that take batches: each GPU of them takes factors, too, in what memory its
// lanes leave. threads: of the host's engine; 0: every core the process may use. The host is always among them: it
// takes what nobody else can.
MadeFactorDevices MakeFactorDevices(absl::Span<const DeviceInfo> batch_devices, int threads,
                                    const CudaFactorFactory& cuda = open_cuda_factor_engine);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_LARGE_MAKE_FACTOR_DEVICES_H_
