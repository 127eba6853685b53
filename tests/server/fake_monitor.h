// The health of devices, as a test wants it.
#ifndef SVDSERVE_TESTS_SERVER_FAKE_MONITOR_H_
#define SVDSERVE_TESTS_SERVER_FAKE_MONITOR_H_

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/device/device_monitor.h"

namespace svdserve::server {

// The health that the pool of batches would report, and a watchdog.
class FakeMonitor final : public DeviceMonitor {
 public:
  explicit FakeMonitor(Clock* clock) : watchdog(absl::Seconds(10), clock) {}
  bool is_healthy(std::string_view) const override { return healthy; }
  void lost(std::string_view) override { healthy = false; }
  std::unique_ptr<Watchdog::Watch> watch(std::string_view, absl::Duration bound, Watchdog::OnHang on_hang) override {
    return std::make_unique<Watchdog::Watch>(&watchdog, bound, std::move(on_hang));
  }
  Watchdog watchdog;
  std::atomic<bool> healthy{true};
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_FAKE_MONITOR_H_
