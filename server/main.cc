// Wiring and shutdown, nothing else.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "engine/large_engine.h"
#include "server/base/clock.h"
#include "server/base/heap.h"
#include "server/base/listening_socket.h"
#include "server/base/log.h"
#include "server/base/machine.h"
#include "server/base/small_file.h"
#include "server/base/stop_signals.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/config.h"
#include "server/device/cuda_device.h"
#include "server/device/large/make_large_devices.h"
#include "server/device/make_devices.h"
#include "server/device/pinned_memory.h"
#include "server/large/large_pipeline.h"
#include "server/limits.h"
#include "server/metrics/http_exposer.h"
#include "server/metrics/prometheus_recorder.h"
#include "server/pipeline.h"
#include "server/rpc/rpc_server.h"
#include "server/rpc/tls_files.h"
#include "server/version.h"

namespace svdserve::server {
namespace {

constexpr int kExitFailed = 1, kExitUsage = 2, kExitDeviceLost = 3;

// A parent may have closed descriptors 0 to 2. The next file or socket would take their numbers, and log lines would go
// there.
void keep_standard_descriptors() {
  for (int fd = open("/dev/null", O_RDWR); fd >= 0; fd = dup(fd)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

// As many descriptors as the system lets the process have: each connection needs one, and the usual limit is 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::vector<std::string> names_of_environment() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) names.emplace_back(*entry, std::strcspn(*entry, "="));
  return names;
}

[[noreturn]] void end_start(const char* why) {
  dprintf(STDERR_FILENO, "svdserve: cannot start: %s\n", why);
  _exit(kExitFailed);
}

// While it lives, memory or a thread that the system does not give is one line on standard error and exit code 1. The
// server has nothing to lose before it serves, and libraries that start may neither say it nor end in order.
class PlainStartFailures {
 public:
  PlainStartFailures() {
    std::set_new_handler([] { end_start("out of memory"); });
    std::set_terminate([] {
      try {
        if (std::current_exception() != nullptr) std::rethrow_exception(std::current_exception());
      } catch (const std::system_error&) {
        end_start("cannot create a thread: raise the process's limits of threads and memory");
      } catch (const std::exception& failed) {
        end_start(failed.what());
      } catch (...) {
      }
      end_start("unknown error");
    });
    std::signal(SIGABRT, [](int) { end_start("a library gave up, often for lack of memory or threads"); });
  }
  ~PlainStartFailures() {
    std::signal(SIGABRT, SIG_DFL);
    std::set_terminate(before_);
    std::set_new_handler(nullptr);
  }

 private:
  const std::terminate_handler before_ = std::get_terminate();
};

bool start_failed(const std::string& reason) {
  log_error("start_failed", {{"reason", reason}});
  return false;
}

// The exit status where the TLS files cannot be used, after saying why. *files stays empty without TLS.
std::optional<int> open_tls_files(const Config& config, std::unique_ptr<TlsFiles>* files) {
  if (config.tls_cert.empty()) return std::nullopt;
  const TlsPaths paths{config.tls_cert, config.tls_key, config.tls_client_ca};
  TlsTexts texts;
  if (const std::string wrong = read_tls_files(paths, &texts); !wrong.empty()) {
    std::fprintf(stderr, "svdserve: %s\n", wrong.c_str());
    return kExitUsage;
  }
  if (const std::string wrong = check_tls_texts(&texts); !wrong.empty()) return start_failed(wrong), kExitFailed;
  *files = std::make_unique<TlsFiles>(paths, std::move(texts));
  return std::nullopt;
}

bool write_ready_file(const std::string& path, const std::string& grpc_address, const std::string& http_address) {
  if (path.empty()) return true;
  std::string text = "grpc=" + grpc_address + "\n";
  if (!http_address.empty()) text += "metrics=" + http_address + "\n";
  const std::string wrong = write_small_file(path, text);
  return wrong.empty() || start_failed("cannot write --ready-file " + path + ": " + wrong);
}

void log_limit(const Limit& limit) {
  log_info("limit", {{"flag", limit.flag}, {"value", limit.value}, {"reason", limit.reason}});
}

void log_machine(const Machine& machine) {
  const int64_t pids = machine.pids.amount;
  log_info("machine", {{"memory_bytes", machine.memory_bytes.amount},
                       {"memory_by", machine.memory_bytes.source},
                       {"cores", machine.cores.amount},
                       {"cores_by", machine.cores.source},
                       {"pids", pids == Resource::kUnlimited ? "max" : std::to_string(pids)},
                       {"pids_by", machine.pids.source}});
}

PipelineOptions pipeline_options(const Config& config, const MemoryLimits& limits) {
  PipelineOptions options;
  options.max_matrices = config.max_matrices;
  options.max_message_bytes = config.max_message_bytes;
  options.max_inflight_bytes = limits.max_inflight_bytes.value;
  options.max_inflight_requests = config.max_inflight_requests;
  options.max_waiting_requests = limits.max_waiting();
  options.peer_percent = static_cast<int>(config.max_peer_percent);
  options.max_queue_delay = config.max_queue_delay;
  options.queue_timeout = config.queue_timeout;
  options.max_batch_bytes = config.max_batch_bytes;
  options.max_batch_matrices = config.max_batch_matrices;
  options.calibration = config.calibration_time;
  options.watchdog_timeout = config.watchdog_timeout;
  options.on_device_lost = config.on_device_lost;
  return options;
}

DeviceOptions device_options(const Config& config, const WorkerLimits& workers) {
  DeviceOptions options;
  options.selection = config.devices;
  options.host_devices = static_cast<int>(config.host_devices);
  options.threads = static_cast<int>(workers.threads.value);
  options.simd = config.simd;
  options.cuda_lanes = static_cast<int>(workers.cuda_lanes.value);
  options.cuda_slot_bytes = config.cuda_slot_bytes;
  return options;
}

LargeLimits large_options(const Config& config, const MemoryLimits& limits) {
  // Room in a message for its fields beside a chunk's bytes.
  constexpr int64_t kFields = 4096;
  LargeLimits options;
  options.max_bytes = limits.max_large_bytes.value;
  options.max_requests = config.max_large_requests;
  options.peer_percent = static_cast<int>(config.max_peer_percent);
  options.chunk_bytes = std::min(options.chunk_bytes, config.max_message_bytes - kFields);
  options.idle_timeout = config.large_idle_timeout;
  return options;
}

// Null, with nothing in *error: no directory was given.
std::unique_ptr<CheckpointStore> open_checkpoints(const Config& config, const MemoryLimits& limits, Clock* clock,
                                                  Recorder* recorder, std::string* error) {
  if (config.checkpoint_dir.empty()) return nullptr;
  CheckpointOptions options;
  options.directory = config.checkpoint_dir;
  options.max_bytes = config.checkpoint_bytes.value_or(2 * limits.max_large_bytes.value);
  options.keep = config.checkpoint_keep;
  options.state_interval = config.checkpoint_interval;
  std::string why;
  auto store = CheckpointStore::open(options, clock, recorder, &why);
  if (store == nullptr) *error = "--checkpoint-dir=" + config.checkpoint_dir + ": " + why;
  return store;
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
  out.waiting_requests = stats.waiting_requests;
  out.open_streams = open_streams;
  const LargeStats large = factors.stats();
  out.factors = large.inflight_requests;
  out.factor_bytes = large.inflight_bytes;
  out.factor_bytes_limit = factors.options().max_bytes;
  out.checkpoints = large.checkpoints;
  out.checkpoint_bytes = large.checkpoint_bytes;
  out.waiting_factors = large.load.waiting;
  out.running_factors = large.load.running;
  out.waiting_gangs = large.gangs.waiting;
  out.running_gangs = large.gangs.running;
  out.gang_held_devices = large.held;
  return out;
}

// Everything that serves, in the order of dependence: destroyed from the last to the first.
struct Server {
  std::unique_ptr<Clock> clock = make_steady_clock();
  HeapKeeper heap{clock.get()};
  PrometheusRecorder recorder;
  std::shared_ptr<PinnedMemory> pinned;  // the memory of requests; null: the heap
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<LargePipeline> factors;
  std::unique_ptr<TlsFiles> tls;  // null: plain text
  std::unique_ptr<TlsWatch> tls_watch;
  std::unique_ptr<RpcServer> rpc;
  std::atomic<bool> stopping{false};
  std::unique_ptr<HttpExposer> http;

  void watch(std::unique_ptr<TlsFiles> files, absl::Duration period) {
    tls = std::move(files);
    if (tls == nullptr) return;
    tls_watch = std::make_unique<TlsWatch>(tls.get(), period, [this](TlsFiles::Reload result) {
      recorder.tls_files_read(result == TlsFiles::Reload::kLoaded);
    });
  }
};

// The limits of memory, now that the GPUs are known.
MemoryLimits memory_limits(const Config& config, const Machine& machine, const WorkerLimits& workers, int gpus) {
  MemoryLimits limits = resolve_memory(config, machine, gpus);
  for (const Limit* limit : {&limits.max_inflight_bytes, &limits.memory_quota_bytes, &limits.call_window_bytes,
                             &limits.cuda_pinned_bytes, &limits.max_large_bytes}) {
    log_limit(*limit);
  }
  for (const std::string& text : warnings(machine, workers, limits, gpus)) log_warning("limits", {{"reason", text}});
  return limits;
}

void warn_of_small_large_bytes(const LargeEngine& host, int64_t max_large_bytes) {
  const int64_t least = least_large_bytes(host);
  if (least <= max_large_bytes) return;
  log_warning("limits", {{"reason", "--max-large-bytes=" + std::to_string(max_large_bytes) +
                                        " admits no matrix that is too large for Decompose: the smallest needs " +
                                        std::to_string(least) + ". Raise it, or lower --large-threads"}});
}

void log_device(const DeviceInfo& device, Simd wanted) {
  log_info("device", {{"name", device.name},
                      {"backend", name(device.kind)},
                      {"model", device.model},
                      {"uuid", device.uuid},
                      {"memory_bytes", device.memory_bytes},
                      {"instruction_set", device.instruction_set},
                      {"threads", device.threads},
                      {"lanes", device.lanes}});
  if (device.kind != DeviceKind::kHost || wanted == Simd::kBest || device.instruction_set == name(wanted)) return;
  log_warning("simd", {{"reason", std::string("no ") + name(wanted) + " here, or not in this build (--simd); " +
                                      device.instruction_set + " is used"}});
}

bool serve_http(const ListenAddress& address, absl::Duration max_age, Server* server) {
  HttpHandlers handlers;
  const auto render = [server] {
    GaugeReadings now = readings(*server->pipeline, *server->factors, server->pinned.get(), server->rpc->open_streams(),
                                 server->stopping);
    if (server->tls != nullptr) {
      const auto tls = server->tls->current();
      now.tls_certificate_expiry = tls->certificate_expiry;
      now.tls_client_ca_expiry = tls->client_ca_expiry;
    }
    return server->recorder.render(now);
  };
  handlers.metrics = reuse_text(render, max_age, server->clock.get());
  handlers.live = [server] { return server->rpc->alive(); };
  handlers.ready = [server] { return server->pipeline->stats().ready() && !server->stopping; };
  std::string error;
  server->http = HttpExposer::listen(address, std::move(handlers), &error);
  return server->http != nullptr || start_failed(error);
}

// The configured server, answering; or false after saying why not. No `metrics`: no HTTP.
bool start(const Config& config, RpcOptions rpc_options, const std::optional<ListenAddress>& metrics, Server* server) {
  const Machine machine = this_machine();
  log_machine(machine);
  const WorkerLimits workers = resolve_workers(config, machine);
  for (const Limit* limit : {&workers.threads, &workers.large_threads, &workers.cuda_lanes}) log_limit(*limit);
  MadeDevices made = make_devices(device_options(config, workers), make_cuda_devices);
  for (const std::string& refusal : made.refusals) log_info("device_refused", {{"reason", refusal}});
  if (!made.error.empty()) return start_failed(made.error);
  const auto is_gpu = [](const std::unique_ptr<Device>& d) { return d->info().kind == DeviceKind::kCuda; };
  const auto gpus = static_cast<int>(std::count_if(made.devices.begin(), made.devices.end(), is_gpu));
  const MemoryLimits limits = memory_limits(config, machine, workers, gpus);
  rpc_options.memory_quota_bytes = limits.memory_quota_bytes.value;
  rpc_options.call_window_bytes = limits.call_window_bytes.value;
  std::shared_ptr<HostMemory> memory;
  if (gpus > 0) {
    memory = server->pinned = std::make_shared<PinnedMemory>(limits.cuda_pinned_bytes.value);
  } else {
    memory = std::make_shared<HeapMemory>();
  }
  server->pipeline = std::make_unique<Pipeline>(pipeline_options(config, limits), std::move(made.devices),
                                                server->clock.get(), &server->recorder);
  std::vector<DeviceInfo> infos;
  for (const DeviceState& device : server->pipeline->devices()) {
    log_device(device.info, config.simd);
    infos.push_back(device.info);
  }
  MadeLargeDevices factors =
      make_large_devices(infos, static_cast<int>(workers.large_threads.value), config.large_gpus);
  for (const std::string& refusal : factors.refusals) log_info("device_refused", {{"reason", refusal}});
  for (const std::string& warning : factors.warnings) log_warning("gang", {{"reason", warning}});
  warn_of_small_large_bytes(*factors.devices.back().engine, limits.max_large_bytes.value);
  std::string error;
  auto checkpoints = open_checkpoints(config, limits, server->clock.get(), &server->recorder, &error);
  if (!error.empty()) return start_failed(error);
  server->factors =
      std::make_unique<LargePipeline>(large_options(config, limits), std::move(factors.devices), server->clock.get(),
                                      &server->recorder, server->pipeline->device_monitor(), std::move(checkpoints));
  server->rpc = RpcServer::start(rpc_options, server->pipeline.get(), server->factors.get(), server->clock.get(),
                                 &server->recorder, std::move(memory), &error);
  if (server->rpc == nullptr) return start_failed(error);
  if (metrics && !serve_http(*metrics, config.metrics_max_age, server)) return false;
  server->rpc->set_serving(true);
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
  server->rpc->set_serving(false);
  std::this_thread::sleep_for(absl::ToChronoMilliseconds(config.drain_delay));
  const absl::Time deadline = server->clock->now() + config.drain_timeout;
  server->pipeline->start_drain();
  server->factors->start_drain();
  server->rpc->close_streams();
  log_info("draining", {{"inflight_requests", server->pipeline->stats().inflight_requests},
                        {"inflight_factors", server->factors->stats().inflight_requests}});
  bool finished = server->pipeline->drain(config.drain_timeout);
  finished = server->factors->drain(std::max(deadline - server->clock->now(), absl::ZeroDuration())) && finished;
  // The answers exist; a slow reader has this long to take them.
  constexpr absl::Duration kReplyGrace = absl::Seconds(5);
  server->rpc->shutdown(std::min(kReplyGrace, config.drain_timeout));
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
  const auto computes = [&server] {
    const LargeStats stats = server.factors->stats();
    return stats.load.running > 0 || stats.preparing > 0;
  };
  const absl::Time end = server.clock->now() + kLetGo;
  while (computes() && server.clock->now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::vector<DeviceState> devices = server.pipeline->devices();
  const auto is_free = [](const DeviceState& device) { return device.outstanding_batches == 0; };
  return !computes() && std::all_of(devices.begin(), devices.end(), is_free);
}

absl::Duration or_no_limit(absl::Duration limit) {
  return limit == absl::ZeroDuration() ? absl::InfiniteDuration() : limit;
}

RpcOptions rpc_options(const Config& config, const ListenAddress& listen) {
  RpcOptions rpc;
  rpc.listen = listen;
  rpc.max_message_bytes = config.max_message_bytes;
  rpc.max_stream_requests = config.max_stream_requests;
  rpc.max_streams = config.max_streams;
  rpc.max_open_calls = config.max_open_calls;
  rpc.peer_percent = static_cast<int>(config.max_peer_percent);
  rpc.trusted_proxies = config.trusted_proxies;
  rpc.stream_idle_timeout = config.stream_idle_timeout;
  rpc.max_connections = config.max_connections;
  rpc.max_connection_streams = config.max_connection_streams;
  rpc.max_connection_idle = or_no_limit(config.max_connection_idle);
  rpc.max_connection_age = or_no_limit(config.max_connection_age);
  rpc.connection_guard = or_no_limit(config.connection_guard);
  rpc.reflection =
      config.reflection == Reflection::kOn || (config.reflection == Reflection::kAuto && listen.is_loopback());
  rpc.access_log = {config.access_log, or_no_limit(config.access_log_slow)};
  return rpc;
}

// Signals reload the TLS files as long as it lives.
class HangupReload {
 public:
  HangupReload(StopSignals* signals, TlsWatch* watch) : signals_(signals) {
    if (watch != nullptr) signals->on_hangup([watch] { watch->look_now(); });
  }
  ~HangupReload() { signals_->on_hangup(nullptr); }

 private:
  StopSignals* const signals_;
};

int serve(const Config& config, StopSignals* signals, std::unique_ptr<PlainStartFailures> start_failures) {
  set_log_level(config.log_level);
  set_log_format(config.log_format);
  std::string error;
  if (!signals->listen(&error)) end_start(error.c_str());
  const std::optional<ListenAddress> listen = ListenAddress::resolve(config.listen, &error);
  std::optional<ListenAddress> metrics;
  if (!config.metrics_listen.empty()) metrics = ListenAddress::resolve(config.metrics_listen, &error);
  if (!error.empty()) return start_failed(error), kExitFailed;
  std::string wrong = check_exposure(config, listen->is_loopback());
  if (wrong.empty() && metrics) wrong = check_metrics_exposure(config, metrics->is_loopback());
  if (!wrong.empty()) {
    std::fprintf(stderr, "svdserve: %s\nTry svdserve --help.\n", wrong.c_str());
    return kExitUsage;
  }
  std::unique_ptr<TlsFiles> tls;
  if (const std::optional<int> failed = open_tls_files(config, &tls)) return *failed;
  log_info("starting", {{"version", kVersion},
                        {"instruction_sets", kInstructionSets},
                        {"blas", svdserve::blas_kernels()},
                        {"pid", getpid()},
                        {"config", describe(config)}});
  for (const std::string& name : unknown_variables(names_of_environment())) {
    log_warning("unknown_variable", {{"name", name}, {"reason", "no flag has this name, see svdserve --help"}});
  }
  Server server;
  server.watch(std::move(tls), config.tls_refresh);
  const HangupReload hangup_reload(signals, server.tls_watch.get());
  RpcOptions rpc = rpc_options(config, *listen);
  rpc.tls = server.tls.get();
  if (!start(config, std::move(rpc), metrics, &server)) return kExitFailed;
  start_failures.reset();
  const auto must_exit = [&server] { return server.pipeline->stats().standing.exit; };
  signals->wait_unless(must_exit);
  const int status = must_exit() ? kExitDeviceLost : EXIT_SUCCESS;
  if (status == kExitDeviceLost) log_error("stop_requested", {{"reason", "a GPU was lost"}, {"status", status}});
  stop(config, &server);
  if (devices_let_go(server)) return status;
  // Threads are inside the device's driver, with the memory of their requests: nothing can be taken apart any more.
  log_warning("ended_at_once", {{"reason", "a device did not stop its work"}, {"status", status}});
  _exit(status);
}

}  // namespace
}  // namespace svdserve::server

namespace {

// OpenBLAS reads its environment when it is loaded, so this program starts once more. Where that is not possible it goes
// on with the kernels that it has: without /proc, or where the dynamic linker was called by name.
void restart_with_faster_blas(char** argv) {
  constexpr char kVariable[] = "OPENBLAS_CORETYPE", kProgram[] = "/proc/self/exe";
  const std::string kernels = svdserve::faster_blas_kernels();
  if (kernels.empty() || std::getenv(kVariable) != nullptr) return;
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink(kProgram, error);
  if (error || program.filename().string().starts_with("ld-")) return;
  setenv(kVariable, kernels.c_str(), 1);
  execv(kProgram, argv);
  unsetenv(kVariable);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace svdserve::server;
  if (const auto status = svdserve::run_as_rank(argc, argv)) return *status;
  keep_standard_descriptors();
  restart_with_faster_blas(argv);
  auto start_failures = std::make_unique<PlainStartFailures>();
  keep_heap_warm();
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
      return serve(outcome.config, &signals, std::move(start_failures));
  }
}
