// The loss of a GPU decides about the whole server: --on-device-lost says how.
#ifndef SVDSERVE_SERVER_ON_DEVICE_LOST_H_
#define SVDSERVE_SERVER_ON_DEVICE_LOST_H_

#include <cstdint>

namespace svdserve::server {

enum class OnDeviceLost : uint8_t {
  kDegrade,  // the server serves on with the devices that are left
  kUnready,  // it serves on, and is not ready: whoever routes requests sends them elsewhere
  kExit,     // it is not ready, drains and exits, so that the orchestrator starts a new process
};
constexpr const char* name(OnDeviceLost policy) {
  constexpr const char* kNames[] = {"degrade", "unready", "exit"};
  return kNames[static_cast<int>(policy)];
}

// The devices of a server. A device that gave no answer counts as lost.
struct DeviceCensus {
  int devices = 0;
  int healthy = 0;    // of all
  int lost_gpus = 0;  // of the others
};

struct Standing {
  bool ready = false;     // the server should get its share of traffic
  bool degraded = false;  // a device was lost
  bool exit = false;      // the process should drain and end
};

// The policy concerns GPUs alone. A server without a healthy device is never ready.
constexpr Standing standing_of(const DeviceCensus& census, OnDeviceLost policy) {
  const bool gpu_lost = census.lost_gpus > 0;
  return {.ready = census.healthy > 0 && (!gpu_lost || policy == OnDeviceLost::kDegrade),
          .degraded = census.healthy < census.devices,
          .exit = gpu_lost && policy == OnDeviceLost::kExit};
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ON_DEVICE_LOST_H_
