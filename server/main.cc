// Wiring and shutdown, nothing else.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/clock.h"
#include "server/config.h"
#include "server/device/cuda_device.h"
#include "server/device/make_devices.h"
#include "server/device/make_factor_devices.h"
#include "server/device/pinned_memory.h"
#include "server/heap.h"
#include "server/large_pipeline.h"
#include "server/log.h"
#include "server/metrics/http_exposer.h"
#include "server/metrics/prometheus_recorder.h"
#include "server/mutex.h"
#include "server/pipeline.h"
#include "server/rpc/rpc_server.h"
#include "server/version.h"

namespace svdserve::server {
namespace {

constexpr int kExitFailed = 1, kExitUsage = 2, kExitDeviceLost = 3;

// As many descriptors as the system lets the process have: each connection needs one, and the usual limit is 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// SIGTERM and SIGINT, taken by a thread that reads them from a pipe. Not by sigwait(): it needs every thread to block
// them, and libraries have threads before main() begins. The first asks for a drain, the second ends the process at
// once.
class StopSignals {
 public:
  StopSignals() {
    std::signal(SIGPIPE, SIG_IGN);
    if (pipe2(pipe_, O_CLOEXEC) != 0) std::abort();
    struct sigaction action {};
    action.sa_handler = [](int signal) {
      const int saved = errno;
      const auto byte = static_cast<char>(signal);
      if (write(pipe_[1], &byte, 1) != 1) _exit(128 + signal);
      errno = saved;
    };
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }

  void Listen() {
    std::thread([this] {
      log_info("stop_requested", {{"signal", Next()}});
      {
        MutexLock lock(&mu_);
        requested_ = true;
        changed_.SignalAll();
      }
      const int signal = Next();
      log_warning("stopped_at_once", {{"signal", signal}});
      _exit(128 + signal);
    }).detach();
  }

  // Returns when a signal has come, or when `no_more` says so, which is asked ten times a second.
  void WaitUnless(const std::function<bool()>& no_more) {
    MutexLock lock(&mu_);
    while (!requested_ && !no_more()) {
      changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
    }
  }

 private:
  static int Next() {
    char byte = 0;
    while (read(pipe_[0], &byte, 1) != 1) {
    }
    return byte;
  }

  static inline int pipe_[2] = {-1, -1};
  Mutex mu_;
  CondVar changed_;
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
};

// False, after saying why, where the file cannot be read. No name: an empty text.
bool read_file(const char* flag, const std::string& path, std::string* text) {
  if (path.empty()) return true;
  std::ifstream file(path, std::ios::binary);
  text->assign(std::istreambuf_iterator<char>(file), {});
  if (file && !text->empty()) return true;
  std::fprintf(stderr, "svdserve: --%s: cannot read %s\n", flag, path.c_str());
  return false;
}

// Whoever waits for the file sees all of it or none.
bool write_ready_file(const std::string& path, const std::string& grpc_address, const std::string& http_address) {
  if (path.empty()) return true;
  const std::string unfinished = path + ".tmp";
  std::ofstream file(unfinished, std::ios::trunc);
  file << "grpc=" << grpc_address << "\n";
  if (!http_address.empty()) file << "metrics=" << http_address << "\n";
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) return true;
  log_error("start_failed", {{"reason", "cannot write --ready-file " + path + ": " + std::strerror(errno)}});
  std::remove(unfinished.c_str());
  return false;
}

PipelineOptions pipeline_options(const Config& config) {
  PipelineOptions options;
  options.max_matrices = config.max_matrices;
  options.max_message_bytes = config.max_message_bytes;
  options.max_inflight_bytes = config.max_inflight_bytes;
  options.max_inflight_requests = config.max_inflight_requests;
  options.max_queue_delay = config.max_queue_delay;
  options.queue_timeout = config.queue_timeout;
  options.max_batch_bytes = config.max_batch_bytes;
  options.max_batch_matrices = config.max_batch_matrices;
  options.calibration = config.calibration_time;
  options.watchdog_timeout = config.watchdog_timeout;
  options.on_device_lost = config.on_device_lost;
  return options;
}

DeviceOptions device_options(const Config& config) {
  DeviceOptions options;
  options.selection = config.devices;
  options.host_devices = static_cast<int>(config.host_devices);
  options.threads = static_cast<int>(config.threads);
  options.simd = config.simd;
  options.cuda_lanes = static_cast<int>(config.cuda_lanes);
  options.cuda_slot_bytes = config.cuda_slot_bytes;
  return options;
}

LargeOptions large_options(const Config& config) {
  // What a message has beside a chunk's bytes.
  constexpr int64_t kFields = 4096;
  LargeOptions options;
  options.max_bytes = config.max_large_bytes;
  options.max_requests = config.max_large_requests;
  options.chunk_bytes = std::min(options.chunk_bytes, config.max_message_bytes - kFields);
  options.idle_timeout = config.large_idle_timeout;
  return options;
}

DeviceReading reading_of(const DeviceState& state) {
  DeviceReading out;
  out.name = state.info.name;
  out.backend = name(state.info.kind);
  out.model = state.info.model;
  out.uuid = state.info.uuid;
  out.instruction_set = state.info.instruction_set;
  out.healthy = state.healthy;
  out.memory_bytes = state.info.memory_bytes;
  out.outstanding_batches = state.outstanding_batches;
  out.busy_seconds = absl::ToDoubleSeconds(state.busy);
  out.uploaded_bytes = state.counters.uploaded_bytes;
  out.downloaded_bytes = state.counters.downloaded_bytes;
  out.pool_bytes = state.counters.pool_bytes;
  return out;
}

// `pinned`: null where nothing is pinned.
GaugeReadings readings(const Pipeline& pipeline, const LargePipeline& factors, const PinnedMemory* pinned,
                       int64_t open_streams, bool stopping) {
  const PipelineStats stats = pipeline.stats();
  GaugeReadings out;
  out.ready = stats.ready() && !stopping;
  out.degraded = stats.standing.degraded;
  if (pinned != nullptr) {
    const PinnedMemory::Usage usage = pinned->usage();
    out.pinned_in_use_bytes = usage.in_use;
    out.pinned_kept_bytes = usage.kept;
    out.pinned_limit_bytes = usage.limit;
  }
  for (const DeviceState& device : pipeline.devices()) out.devices.push_back(reading_of(device));
  out.inflight_requests = stats.inflight_requests;
  out.inflight_requests_limit = pipeline.options().max_inflight_requests;
  out.inflight_bytes = stats.inflight_bytes;
  out.inflight_bytes_limit = pipeline.options().max_inflight_bytes;
  out.queued_requests = stats.queued_requests;
  out.oldest_queued_seconds = absl::ToDoubleSeconds(stats.oldest_queued);
  out.open_streams = open_streams;
  const LargeStats large = factors.stats();
  out.factors = large.inflight_requests;
  out.factor_bytes = large.inflight_bytes;
  out.factor_bytes_limit = factors.options().max_bytes;
  out.waiting_factors = large.load.waiting;
  out.running_factors = large.load.running;
  return out;
}

// Everything that serves, in the order of dependence: destroyed from the last to the first.
struct Server {
  std::unique_ptr<Clock> clock = MakeSteadyClock();
  PrometheusRecorder recorder;
  std::unique_ptr<HostMemory> memory;  // requests hold pieces of it
  PinnedMemory* pinned = nullptr;      // the same, where it is pinned
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<LargePipeline> factors;
  std::unique_ptr<RpcServer> rpc;
  std::atomic<bool> stopping{false};
  std::unique_ptr<HttpExposer> http;
};

// The configured server, answering; or false after saying why not.
bool start(const Config& config, RpcOptions rpc_options, Server* server) {
  MadeDevices made = MakeDevices(device_options(config), MakeCudaDevices);
  for (const std::string& refusal : made.refusals) log_info("device_refused", {{"reason", refusal}});
  if (!made.error.empty()) {
    log_error("start_failed", {{"reason", made.error}});
    return false;
  }
  const auto is_gpu = [](const std::unique_ptr<Device>& d) { return d->info().kind == DeviceKind::kCuda; };
  if (std::any_of(made.devices.begin(), made.devices.end(), is_gpu)) {
    server->memory = std::make_unique<PinnedMemory>(config.cuda_pinned_bytes);
    server->pinned = static_cast<PinnedMemory*>(server->memory.get());
  } else {
    server->memory = std::make_unique<HeapMemory>();
  }
  server->pipeline = std::make_unique<Pipeline>(pipeline_options(config), std::move(made.devices), server->clock.get(),
                                                &server->recorder);
  for (const DeviceState& device : server->pipeline->devices()) {
    log_info("device", {{"name", device.info.name},
                        {"backend", name(device.info.kind)},
                        {"model", device.info.model},
                        {"uuid", device.info.uuid},
                        {"memory_bytes", device.info.memory_bytes},
                        {"instruction_set", device.info.instruction_set},
                        {"threads", device.info.threads},
                        {"lanes", device.info.lanes}});
  }
  std::vector<DeviceInfo> infos;
  for (const DeviceState& device : server->pipeline->devices()) infos.push_back(device.info);
  MadeFactorDevices factors =
      MakeFactorDevices(infos, static_cast<int>(config.large_threads > 0 ? config.large_threads : config.threads));
  for (const std::string& refusal : factors.refusals) log_info("device_refused", {{"reason", refusal}});
  server->factors = std::make_unique<LargePipeline>(large_options(config), std::move(factors.devices),
                                                    server->clock.get(), &server->recorder);
  std::string error;
  server->rpc = RpcServer::Start(rpc_options, server->pipeline.get(), server->factors.get(), server->clock.get(),
                                 &server->recorder, server->memory.get(), &error);
  if (server->rpc == nullptr) {
    log_error("start_failed", {{"reason", error}});
    return false;
  }
  if (!config.metrics_listen.empty()) {
    HttpHandlers handlers;
    handlers.metrics = [server] {
      return server->recorder.Render(
          readings(*server->pipeline, *server->factors, server->pinned, server->rpc->open_streams(), server->stopping));
    };
    handlers.ready = [server] { return server->pipeline->stats().ready() && !server->stopping; };
    server->http = HttpExposer::Listen(config.metrics_listen, std::move(handlers), &error);
    if (server->http == nullptr) {
      log_error("start_failed", {{"reason", error}});
      return false;
    }
  }
  server->rpc->SetServing(true);
  const std::string http_address = server->http ? server->http->address() : "";
  log_info("serving", {{"grpc", server->rpc->address()},
                       {"metrics", http_address},
                       {"tls", !config.tls_cert.empty()},
                       {"client_certificates", !config.tls_client_ca.empty()}});
  return write_ready_file(config.ready_file, server->rpc->address(), http_address);
}

// Not ready, but serving, for drain_delay: whoever routes requests learns of it. Then nothing new is admitted, and what
// was is finished.
void stop(const Config& config, Server* server) {
  server->stopping = true;
  server->rpc->SetServing(false);
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(config.drain_delay));
  const absl::Time deadline = server->clock->Now() + config.drain_timeout;
  server->pipeline->StartDrain();
  server->factors->StartDrain();
  server->rpc->CloseStreams();
  log_info("draining", {{"inflight_requests", server->pipeline->stats().inflight_requests},
                        {"inflight_factors", server->factors->stats().inflight_requests}});
  bool finished = server->pipeline->Drain(config.drain_timeout);
  finished = server->factors->Drain(std::max(deadline - server->clock->Now(), absl::ZeroDuration())) && finished;
  // The answers exist; a slow reader has this long to take them.
  constexpr absl::Duration kReplyGrace = absl::Seconds(5);
  server->rpc->Shutdown(std::min(kReplyGrace, config.drain_timeout));
  if (!config.ready_file.empty()) std::remove(config.ready_file.c_str());
  if (finished) {
    log_info("stopped");
  } else {
    log_warning("stopped", {{"reason", "drain_timeout passed with requests in flight"}});
  }
}

// False: a device hangs, or did not let go of its work when it was told to. To wait for it may take for ever.
bool devices_let_go(const Server& server) {
  constexpr absl::Duration kLetGo = absl::Seconds(5);  // of a large matrix, which was cancelled just before
  const auto computes = [&server] { return server.factors->stats().load.running > 0; };
  const absl::Time end = server.clock->Now() + kLetGo;
  while (computes() && server.clock->Now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::vector<DeviceState> devices = server.pipeline->devices();
  const auto is_free = [](const DeviceState& device) { return device.outstanding_batches == 0; };
  return !computes() && std::all_of(devices.begin(), devices.end(), is_free);
}

int serve(const Config& config, StopSignals* signals) {
  set_log_level(config.log_level);
  RpcOptions rpc;
  rpc.listen = config.listen;
  if (!read_file("tls-cert", config.tls_cert, &rpc.certificate) || !read_file("tls-key", config.tls_key, &rpc.key) ||
      !read_file("tls-client-ca", config.tls_client_ca, &rpc.client_ca)) {
    return kExitUsage;
  }
  rpc.max_message_bytes = config.max_message_bytes;
  rpc.max_stream_requests = config.max_stream_requests;
  rpc.max_streams = config.max_streams;
  rpc.stream_idle_timeout = config.stream_idle_timeout;
  rpc.max_connections = config.max_connections;
  rpc.max_connection_streams = config.max_connection_streams;
  rpc.memory_quota_bytes = config.memory_quota_bytes;
  log_info("starting", {{"version", kVersion}, {"pid", getpid()}, {"config", describe(config)}});
  signals->Listen();
  Server server;
  if (!start(config, std::move(rpc), &server)) return kExitFailed;
  const auto must_exit = [&server] { return server.pipeline->stats().standing.exit; };
  signals->WaitUnless(must_exit);
  const int status = must_exit() ? kExitDeviceLost : EXIT_SUCCESS;
  if (status == kExitDeviceLost) log_error("stop_requested", {{"reason", "a GPU was lost"}, {"status", status}});
  stop(config, &server);
  if (devices_let_go(server)) return status;
  // Threads are inside the device's driver, with the memory of their requests: nothing can be taken apart any more.
  log_warning("ended_at_once", {{"reason", "a device does not let go of its work"}, {"status", status}});
  _exit(status);
}

}  // namespace
}  // namespace svdserve::server

int main(int argc, char** argv) {
  using namespace svdserve::server;
  KeepHeapWarm();
  // Debian's Abseil looks for deadlocks at every lock of gRPC's, some percent of a small call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  raise_descriptor_limit();
  StopSignals signals;
  const ConfigOutcome outcome = read_config(std::vector<std::string>(argv + 1, argv + argc),
                                            [](const char* variable) -> const char* { return std::getenv(variable); });
  switch (outcome.action) {
    case ConfigOutcome::Action::kPrint:
      std::fputs(outcome.text.c_str(), stdout);
      return EXIT_SUCCESS;
    case ConfigOutcome::Action::kRefuse:
      std::fputs(outcome.text.c_str(), stderr);
      return kExitUsage;
    case ConfigOutcome::Action::kServe:
      return serve(outcome.config, &signals);
  }
}
