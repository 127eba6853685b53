// The host as one or several devices.
#ifndef SVDSERVE_SERVER_DEVICE_HOST_DEVICE_H_
#define SVDSERVE_SERVER_DEVICE_HOST_DEVICE_H_

#include <memory>
#include <vector>

#include "engine/svd_engine.h"
#include "server/device/device.h"

namespace svdserve::server {

// `devices` >= 1 host devices named host:0, host:1, ..., of one lane each, and one relief lane. They share `threads`
// (0: every core that the process may use) as evenly as goes, at least one each: device i owns an arena of its own.
std::vector<std::unique_ptr<Device>> make_host_devices(int devices, int threads, Simd simd);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_HOST_DEVICE_H_
