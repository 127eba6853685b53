// For whoever computes on a device beside the lanes of its pool: a device that is lost there is lost here, and the
// reverse. Devices go by their names, such as "cuda:0"; a name of no device is ignored.
#ifndef SVDSERVE_SERVER_DEVICE_DEVICE_MONITOR_H_
#define SVDSERVE_SERVER_DEVICE_DEVICE_MONITOR_H_

#include <memory>
#include <string_view>

#include "absl/time/time.h"
#include "server/device/watchdog.h"

namespace svdserve::server {

// Thread-safe.
class DeviceMonitor {
 public:
  // Whether the device takes work. False, too, where there is no such device.
  virtual bool is_healthy(std::string_view device) const = 0;

  // The device failed for good: it is taken out, and its loss is recorded, once however often this is called. The
  // caller logs the device's own words.
  virtual void lost(std::string_view device) = 0;

  // Has work on a GPU watched until the watch is destroyed; see Watchdog::Watch for `bound` and progress(). A GPU whose
  // work hangs is logged, recorded and taken out, and then `on_hang` is called. Null on the host, which is not watched.
  virtual std::unique_ptr<Watchdog::Watch> watch(std::string_view device, absl::Duration bound,
                                                 Watchdog::OnHang on_hang) = 0;

 protected:
  ~DeviceMonitor() = default;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_DEVICE_MONITOR_H_
