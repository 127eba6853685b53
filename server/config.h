// The server's configuration: read once from flags and SVDSERVE_* environment, checked, and never changed again.
#ifndef SVDSERVE_SERVER_CONFIG_H_
#define SVDSERVE_SERVER_CONFIG_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/svd_engine.h"
#include "server/base/log.h"
#include "server/device_selection.h"
#include "server/on_device_lost.h"

namespace svdserve::server {

// Whether the server tells what services and messages it has.
enum class Reflection : uint8_t { kAuto, kOn, kOff };
constexpr const char* name(Reflection r) {
  constexpr const char* kNames[] = {"auto", "on", "off"};
  return kNames[static_cast<int>(r)];
}

// The bound of --threads and --large-threads.
inline constexpr int64_t kMostThreads = 4096;

// Every member is one flag; config.cc holds names, defaults, units, ranges and help in one table. A member without a
// value was left at "auto": limits.h derives it from the machine.
struct Config {
  // where to listen
  std::string listen;          // host:port or unix:path
  std::string metrics_listen;  // host:port; empty: no HTTP
  std::string ready_file;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_client_ca;
  absl::Duration tls_refresh;  // zero: after SIGHUP alone
  bool insecure = false;
  bool metrics_insecure = false;
  absl::Duration metrics_max_age;
  Reflection reflection = Reflection::kAuto;
  // limits
  int64_t max_message_bytes = 0;
  int64_t max_matrices = 0;
  std::optional<int64_t> max_inflight_bytes;
  int64_t max_inflight_requests = 0;
  int64_t max_stream_requests = 0;
  int64_t max_streams = 0;
  int64_t max_open_calls = 0;
  int64_t max_peer_percent = 0;
  std::string trusted_proxies;
  absl::Duration stream_idle_timeout;
  int64_t max_connections = 0;
  int64_t max_connection_streams = 0;
  absl::Duration max_connection_idle;  // zero: no limit
  absl::Duration max_connection_age;   // zero: no limit
  absl::Duration connection_guard;     // zero: none
  std::optional<int64_t> call_window_bytes;
  std::optional<int64_t> memory_quota_bytes;
  absl::Duration queue_timeout;
  std::optional<int64_t> max_large_bytes;
  int64_t max_large_requests = 0;
  absl::Duration large_idle_timeout;
  // batching
  absl::Duration max_queue_delay;
  int64_t max_batch_bytes = 0;
  int64_t max_batch_matrices = 0;
  // devices
  DeviceSelection devices;
  std::optional<int64_t> cuda_lanes;
  int64_t cuda_slot_bytes = 0;
  std::optional<int64_t> cuda_pinned_bytes;
  int64_t host_devices = 0;
  std::optional<int64_t> threads;
  std::optional<int64_t> large_threads;
  LargeGpus large_gpus = kDefaultLargeGpus;
  Simd simd = Simd::kBest;
  absl::Duration calibration_time;
  OnDeviceLost on_device_lost = OnDeviceLost::kUnready;
  absl::Duration watchdog_timeout;
  // life
  absl::Duration drain_delay;
  absl::Duration drain_timeout;
  std::string checkpoint_dir;  // empty: no large matrix survives the server
  std::optional<int64_t> checkpoint_bytes;
  absl::Duration checkpoint_keep;
  absl::Duration checkpoint_interval;
  // log
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kLogfmt;
  double access_log = 0;           // share of the calls
  absl::Duration access_log_slow;  // zero: no call is slow
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

// `arguments` without the program's name. A flag beats its variable, a variable beats the default. Flags that
// contradict each other are refused with a text that names both.
ConfigOutcome read_config(const std::vector<std::string>& arguments, const Environment& environment);

// Those of `names` that begin with SVDSERVE_ and mean nothing to the server. Names that Kubernetes sets for a service
// called svdserve, such as SVDSERVE_PORT_50051_TCP, are not among them.
std::vector<std::string> unknown_variables(const std::vector<std::string>& names);

// "listen=127.0.0.1:50051 max_message_bytes=67108864 ...": every flag with its value, for the log line at start.
std::string describe(const Config& config);

// Why --listen must not be served as it is; empty: it may. Without TLS and --insecure only this machine may reach it.
// `is_loopback`: of the address that --listen was resolved to.
std::string check_exposure(const Config& config, bool is_loopback);
// The same of --metrics-listen.
std::string check_metrics_exposure(const Config& config, bool is_loopback);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CONFIG_H_
