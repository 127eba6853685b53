// The server's configuration: read once from flags and SVDSERVE_* environment, checked, and never changed again.
#ifndef SVDSERVE_SERVER_CONFIG_H_
#define SVDSERVE_SERVER_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/svd_engine.h"
#include "server/device_selection.h"
#include "server/log.h"
#include "server/on_device_lost.h"

namespace svdserve::server {

// Every member is one flag; config.cc holds names, defaults, units, ranges and help in one table.
struct Config {
  // where to listen
  std::string listen;          // host:port or unix:path
  std::string metrics_listen;  // host:port; empty: no HTTP
  std::string ready_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  bool insecure = false;
  // limits
  int64_t max_message_bytes = 0;
  int64_t max_matrices = 0;
  int64_t max_inflight_bytes = 0;
  int64_t max_inflight_requests = 0;
  int64_t max_stream_requests = 0;
  int64_t max_streams = 0;
  absl::Duration stream_idle_timeout;
  int64_t max_connections = 0;
  int64_t max_connection_streams = 0;
  int64_t memory_quota_bytes = 0;
  absl::Duration queue_timeout;
  int64_t max_large_bytes = 0;
  int64_t max_large_requests = 0;
  absl::Duration large_idle_timeout;
  // batching
  absl::Duration max_queue_delay;
  int64_t max_batch_bytes = 0;
  int64_t max_batch_matrices = 0;
  // devices
  DeviceSelection devices;
  int64_t cuda_lanes = 0;
  int64_t cuda_slot_bytes = 0;
  int64_t cuda_pinned_bytes = 0;
  int64_t host_devices = 0;
  int64_t threads = 0;
  int64_t large_threads = 0;
  Simd simd = Simd::kBest;
  absl::Duration calibration_time;
  OnDeviceLost on_device_lost = OnDeviceLost::kUnready;
  absl::Duration watchdog_timeout;
  // life
  absl::Duration drain_delay;
  absl::Duration drain_timeout;
  LogLevel log_level = LogLevel::kInfo;
};

struct ConfigOutcome {
  enum class Action {
    kServe,  // config is valid
    kPrint,  // print `text` to standard output and exit 0: --help, --version
    kRefuse  // print `text` to standard error and exit 2
  };
  Action action = Action::kServe;
  Config config;
  std::string text;
};

// Looks up one variable of the environment; nullptr where it is not set.
using Environment = std::function<const char*(const char* name)>;

// `arguments` without the program's name. A flag beats its variable, a variable beats the default. Variables that start
// with SVDSERVE_ and belong to no flag are ignored: orchestrators set such names for a service called svdserve.
ConfigOutcome read_config(const std::vector<std::string>& arguments, const Environment& environment);

// "listen=127.0.0.1:50051 max_message_bytes=67108864 ...": every flag with its value, for the log line at start.
std::string describe(const Config& config);

// True for addresses that no other machine reaches: 127.0.0.0/8, [::1], localhost, and unix sockets.
bool is_loopback(const std::string& address);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CONFIG_H_
