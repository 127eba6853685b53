// The GPUs of this machine as devices.
#ifndef SVDSERVE_SERVER_DEVICE_CUDA_DEVICE_H_
#define SVDSERVE_SERVER_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/device/device.h"

namespace svdserve::server {

struct CudaDeviceOptions {
  std::vector<int> ordinals;              // as the driver counts them; empty: all
  int lanes = 2;                          // of each device
  int64_t slot_bytes = int64_t{8} << 20;  // of operands, of one of a lane's slots
};

struct CudaDevices {
  std::vector<std::unique_ptr<Device>> devices;  // cuda:0, cuda:1, ... by ordinal
  std::vector<std::string> refusals;             // one line each: why a device or the whole back end is not used
};

// Never fails: without a driver, a GPU or the back end it returns no devices, and why.
CudaDevices make_cuda_devices(const CudaDeviceOptions& options);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_CUDA_DEVICE_H_
