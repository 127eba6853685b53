// The devices of a server, as its configuration chooses them.
#ifndef SVDSERVE_SERVER_DEVICE_MAKE_DEVICES_H_
#define SVDSERVE_SERVER_DEVICE_MAKE_DEVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "server/device/cuda_device.h"
#include "server/device/device.h"
#include "server/device_selection.h"

namespace svdserve::server {

struct DeviceOptions {
  DeviceSelection selection;
  int host_devices = 1;  // how many the host shows itself as
  int threads = 0;       // of all of them together; 0: every core
  Simd simd = Simd::kBest;
  int cuda_lanes = 4;
  int64_t cuda_slot_bytes = int64_t{8} << 20;
};

// How GPUs become devices: make_cuda_devices(), or what a test gives.
using CudaFactory = std::function<CudaDevices(const CudaDeviceOptions& options)>;

struct MadeDevices {
  std::vector<std::unique_ptr<Device>> devices;  // GPUs by ordinal, then the host; not empty unless there is an error
  std::vector<std::string> refusals;             // one line each: what is not used, and why
  std::string error;                             // the selection names what is not there
};

// `cuda` is asked only where the selection allows for GPUs.
MadeDevices make_devices(const DeviceOptions& options, const CudaFactory& cuda);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_MAKE_DEVICES_H_
