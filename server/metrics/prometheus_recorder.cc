#include "server/metrics/prometheus_recorder.h"

#include <dirent.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <iterator>
#include <map>
#include <sstream>
#include <vector>

#include "server/base/mutex.h"
#include "server/metrics/names.h"
#include "server/version.h"

namespace svdserve::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;

constexpr int kCodes = 17;                                         // OK .. UNAUTHENTICATED, as gRPC numbers them
constexpr int kDTypes = static_cast<int>(OperandType::kLast) + 2;  // and none

// Why admission refuses.
constexpr Reason kRefusals[] = {Reason::kOverloadedBytes, Reason::kOverloadedRequests, Reason::kDraining,
                                Reason::kDeadlineUnreachable, Reason::kQueueTimeout};

// 1 ms to 3 h.
std::vector<double> factor_time_buckets() {
  std::vector<double> bounds;
  for (double decade = 1e-3; decade < 5e3; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) bounds.push_back(step * decade);
  }
  bounds.push_back(10800);
  return bounds;
}

// 50 us to 90 s in four steps a decade.
std::vector<double> time_buckets() {
  std::vector<double> bounds;
  for (double decade = 1e-5; decade < 50; decade *= 10) {
    for (const double step : {5.0, 9.0, 16.0, 28.0}) bounds.push_back(step * decade);
  }
  return bounds;
}

std::vector<double> power_buckets(double first, double factor, int count) {
  std::vector<double> bounds;
  for (double bound = first; count > 0; --count, bound *= factor) bounds.push_back(bound);
  return bounds;
}

double process_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double process_resident_bytes() {
  long long pages_total = 0, pages_resident = 0;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  if (std::fscanf(file, "%lld %lld", &pages_total, &pages_resident) != 2) pages_resident = 0;
  std::fclose(file);
  return static_cast<double>(pages_resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

double process_open_files() {
  DIR* directory = opendir("/proc/self/fd");
  if (directory == nullptr) return 0;
  int entries = -3;  // ".", ".." and the directory itself
  while (readdir(directory) != nullptr) ++entries;
  closedir(directory);
  return entries;
}

Family<Counter>& counters(prometheus::Registry& registry, const MetricName& m) {
  return prometheus::BuildCounter().Name(m.name).Help(m.help).Register(registry);
}
Family<Histogram>& histograms(prometheus::Registry& registry, const MetricName& m) {
  return prometheus::BuildHistogram().Name(m.name).Help(m.help).Register(registry);
}
Family<Gauge>& gauges(prometheus::Registry& registry, const MetricName& m) {
  return prometheus::BuildGauge().Name(m.name).Help(m.help).Register(registry);
}
Gauge& gauge(prometheus::Registry& registry, const MetricName& m) { return gauges(registry, m).Add({}); }

// A counter whose total is kept elsewhere.
void bring_to(Counter& counter, double total) { counter.Increment(total - counter.Value()); }

// Names as gRPC spells its codes, which absl::StatusCode shares.
std::string status_name(absl::StatusCode code) { return absl::StatusCodeToString(code); }

// Counters with one label, made as its values appear: one look-up a batch, among a handful.
class LabelledCounters {
 public:
  LabelledCounters(prometheus::Registry& registry, const MetricName& m, const char* label = "device")
      : family_(counters(registry, m)), label_(label) {}

  Counter& of(std::string_view value) {
    MutexLock lock(&mu_);
    const auto found = known_.find(value);
    if (found != known_.end()) return *found->second;
    Counter& counter = family_.Add({{label_, std::string(value)}});
    known_.emplace(value, &counter);
    return counter;
  }

 private:
  Family<Counter>& family_;
  const char* const label_;
  Mutex mu_;
  std::map<std::string, Counter*, std::less<>> known_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

struct PrometheusRecorder::Impl {
  prometheus::Registry registry;

  Family<Counter>& requests = counters(registry, metric::kRequests);
  // One slot for each combination of labels, filled when it first appears.
  std::array<std::atomic<Counter*>, kRpcs * kKinds * kDTypes * kShapeBuckets * kCodes> request_slots{};

  Family<Histogram>& phases = histograms(registry, metric::kPhase);
  std::array<Histogram*, kPhases> phase{};

  Counter& admitted_requests = counters(registry, metric::kAdmittedRequests).Add({});
  Counter& admitted_bytes = counters(registry, metric::kAdmittedBytes).Add({});
  Counter& refused_connections = counters(registry, metric::kRefusedConnections).Add({});
  Counter& cut_off_connections = counters(registry, metric::kCutOffConnections).Add({});

  Family<Counter>& tls_reloads = counters(registry, metric::kTlsReloads);
  Counter& tls_loaded = tls_reloads.Add({{"result", "loaded"}});
  Counter& tls_rejected = tls_reloads.Add({{"result", "rejected"}});
  Family<Gauge>& tls_expiry = gauges(registry, metric::kTlsExpiry);

  Family<Counter>& refused = counters(registry, metric::kRefused);
  std::array<Counter*, std::size(kRefusals)> refusals{};

  Family<Counter>& batches = counters(registry, metric::kBatches);
  std::array<Counter*, kCutReasons> batch{};
  Counter& batch_retries = counters(registry, metric::kBatchRetries).Add({});
  Histogram& batch_requests = histograms(registry, metric::kBatchRequests).Add({}, power_buckets(1, 2, 13));
  Histogram& batch_matrices = histograms(registry, metric::kBatchMatrices).Add({}, power_buckets(1, 4, 13));
  Histogram& batch_bytes = histograms(registry, metric::kBatchBytes).Add({}, power_buckets(256, 4, 10));

  Family<Counter>& matrices = counters(registry, metric::kMatrices);
  Counter& matrices_ok = matrices.Add({{"status", "ok"}});
  Counter& matrices_non_finite = matrices.Add({{"status", "non_finite"}});
  Counter& matrices_not_converged = matrices.Add({{"status", "not_converged"}});
  Counter& matrices_out_of_range = matrices.Add({{"status", "out_of_range"}});
  Counter& matrices_by_qr = matrices.Add({{"status", "by_qr"}});
  Counter& matrices_near_defective = matrices.Add({{"status", "near_defective"}});
  Family<Gauge>& device_info = gauges(registry, metric::kDeviceInfo);
  Family<Gauge>& device_healthy = gauges(registry, metric::kDeviceHealthy);
  Family<Gauge>& device_memory = gauges(registry, metric::kDeviceMemory);
  Family<Gauge>& device_outstanding = gauges(registry, metric::kDeviceOutstanding);
  Family<Counter>& device_busy = counters(registry, metric::kDeviceBusy);
  Family<Counter>& device_uploaded = counters(registry, metric::kDeviceUploaded);
  Family<Counter>& device_downloaded = counters(registry, metric::kDeviceDownloaded);
  LabelledCounters device_faults{registry, metric::kDeviceFaults};
  LabelledCounters device_lost{registry, metric::kDeviceLost};
  LabelledCounters device_hangs{registry, metric::kDeviceHangs};
  Family<Gauge>& device_pool = gauges(registry, metric::kDevicePool);

  Counter& factors = counters(registry, metric::kFactors).Add({});
  Counter& factor_bytes_reserved = counters(registry, metric::kFactorBytesReserved).Add({});
  Counter& large_received = counters(registry, metric::kFactorReceived).Add({});
  Counter& large_sent = counters(registry, metric::kFactorSent).Add({});
  Family<Histogram>& factor_phases = histograms(registry, metric::kFactorPhase);
  std::array<Histogram*, kLargePhases> factor_phase{};
  LabelledCounters factor_parts{registry, metric::kFactorPart, "part"};
  LabelledCounters factor_flops{registry, metric::kFactorFlops, "part"};
  Counter& factor_sweeps = counters(registry, metric::kFactorSweeps).Add({});
  Counter& factor_rotations = counters(registry, metric::kFactorRotations).Add({});
  LabelledCounters factor_failures{registry, metric::kFactorFailures, "reason"};
  Counter& factors_resumed = counters(registry, metric::kFactorsResumed).Add({});
  Counter& resumed_sweeps = counters(registry, metric::kCheckpointResumedSweeps).Add({});
  Counter& checkpoint_states = counters(registry, metric::kCheckpointStates).Add({});
  Counter& checkpoint_failures = counters(registry, metric::kCheckpointFailures).Add({});
  Gauge& checkpoints = gauge(registry, metric::kCheckpoints);
  Gauge& checkpoint_bytes = gauge(registry, metric::kCheckpointBytes);
  Gauge& factors_inflight = gauge(registry, metric::kFactorsInflight);
  Gauge& factor_bytes = gauge(registry, metric::kFactorBytes);
  Gauge& factor_bytes_limit = gauge(registry, metric::kFactorBytesLimit);
  Gauge& factors_waiting = gauge(registry, metric::kFactorsWaiting);
  Gauge& factors_running = gauge(registry, metric::kFactorsRunning);
  Family<Histogram>& gang_waits = histograms(registry, metric::kGangWait);
  std::map<int, Histogram*> gang_wait;  // by the number of members
  Gauge& gangs_waiting = gauge(registry, metric::kGangsWaiting);
  Gauge& gangs_running = gauge(registry, metric::kGangsRunning);
  Gauge& gang_held = gauge(registry, metric::kGangHeld);

  Gauge& ready = gauge(registry, metric::kReady);
  Gauge& devices = gauge(registry, metric::kDevices);
  Gauge& healthy_devices = gauge(registry, metric::kHealthyDevices);
  Gauge& degraded = gauge(registry, metric::kDegraded);
  Family<Gauge>& pinned = gauges(registry, metric::kPinned);
  Gauge& pinned_in_use = pinned.Add({{"state", "in_use"}});
  Gauge& pinned_kept = pinned.Add({{"state", "kept"}});
  Gauge& pinned_limit = gauge(registry, metric::kPinnedLimit);
  Gauge& inflight_requests = gauge(registry, metric::kInflightRequests);
  Gauge& inflight_requests_limit = gauge(registry, metric::kInflightRequestsLimit);
  Gauge& inflight_bytes = gauge(registry, metric::kInflightBytes);
  Gauge& inflight_bytes_limit = gauge(registry, metric::kInflightBytesLimit);
  Gauge& queued_requests = gauge(registry, metric::kQueuedRequests);
  Gauge& oldest_queued = gauge(registry, metric::kOldestQueued);
  Gauge& waiting_requests = gauge(registry, metric::kWaitingRequests);
  Gauge& open_streams = gauge(registry, metric::kOpenStreams);

  Counter& process_cpu = counters(registry, metric::kProcessCpu).Add({});
  Gauge& process_resident = gauge(registry, metric::kProcessResident);
  Gauge& process_files = gauge(registry, metric::kProcessFiles);

  Mutex render_mu;  // one scrape at a time: the gauges and the CPU counter's increment belong together

  Impl() {
    for (int i = 0; i < kPhases; ++i) {
      phase[i] = &phases.Add({{"phase", name(static_cast<Phase>(i))}}, time_buckets());
    }
    for (int i = 0; i < kLargePhases; ++i) {
      factor_phase[i] = &factor_phases.Add({{"phase", name(static_cast<LargePhase>(i))}}, factor_time_buckets());
    }
    for (const int members : {2, 4, 8}) {
      gang_wait[members] = &gang_waits.Add({{"members", std::to_string(members)}}, factor_time_buckets());
    }
    for (size_t i = 0; i < std::size(kRefusals); ++i) refusals[i] = &refused.Add({{"reason", name(kRefusals[i])}});
    for (int i = 0; i < kCutReasons; ++i) {
      batch[i] = &batches.Add({{"reason", name(static_cast<CutReason>(i))}});
    }
    // Series are there from the start: Prometheus sees no increase in one that begins with 1.
    for (int i = 1; i < kReasons; ++i) factor_failures.of(name(static_cast<Reason>(i)));
    gauges(registry, metric::kBuildInfo)
        .Add({{"version", kVersion}, {"compiler", kCompiler}, {"build_type", kBuildType}})
        .Set(1);
    gauge(registry, metric::kProcessStart).Set(static_cast<double>(std::time(nullptr)));
  }

  void set(const std::vector<DeviceReading>& readings);
  void set_tls_expiry(const char* file, absl::Time expiry) {
    if (expiry == absl::InfiniteFuture()) return;
    tls_expiry.Add({{"file", file}}).Set(static_cast<double>(absl::ToUnixSeconds(expiry)));
  }
};

PrometheusRecorder::PrometheusRecorder() : impl_(std::make_unique<Impl>()) {}
PrometheusRecorder::~PrometheusRecorder() = default;

void PrometheusRecorder::request_finished(const RequestLabels& labels, absl::StatusCode code) {
  const int dtype = labels.dtype ? static_cast<int>(*labels.dtype) : kDTypes - 1;
  const int raw_code = static_cast<int>(code);
  const int status = raw_code >= 0 && raw_code < kCodes ? raw_code : static_cast<int>(absl::StatusCode::kUnknown);
  int slot = static_cast<int>(labels.rpc);
  slot = slot * kKinds + static_cast<int>(labels.kind);
  slot = slot * kDTypes + dtype;
  slot = slot * kShapeBuckets + static_cast<int>(labels.shape);
  slot = slot * kCodes + status;
  std::atomic<Counter*>& cached = impl_->request_slots[static_cast<size_t>(slot)];
  Counter* counter = cached.load(std::memory_order_acquire);
  if (counter == nullptr) {
    // Two threads may both come here: add() gives both the same counter.
    counter = &impl_->requests.Add({{"rpc", name(labels.rpc)},
                                    {"kind", name(labels.kind)},
                                    {"dtype", labels.dtype                           ? name(*labels.dtype)
                                              : labels.shape == ShapeBucket::kUnread ? "unread"
                                                                                     : "invalid"},
                                    {"shape", name(labels.shape)},
                                    {"status", status_name(static_cast<absl::StatusCode>(status))}});
    cached.store(counter, std::memory_order_release);
  }
  counter->Increment();
}

void PrometheusRecorder::phase_took(Phase phase, absl::Duration took) {
  impl_->phase[static_cast<size_t>(phase)]->Observe(absl::ToDoubleSeconds(took));
}

void PrometheusRecorder::admitted(int64_t bytes) {
  impl_->admitted_requests.Increment();
  impl_->admitted_bytes.Increment(static_cast<double>(bytes));
}

void PrometheusRecorder::refused(Reason reason) {
  const auto* const known = std::find(std::begin(kRefusals), std::end(kRefusals), reason);
  if (known != std::end(kRefusals)) impl_->refusals[static_cast<size_t>(known - kRefusals)]->Increment();
}

void PrometheusRecorder::batch_cut(CutReason reason, int64_t requests, int64_t matrices, int64_t bytes) {
  impl_->batch[static_cast<size_t>(reason)]->Increment();
  impl_->batch_requests.Observe(static_cast<double>(requests));
  impl_->batch_matrices.Observe(static_cast<double>(matrices));
  impl_->batch_bytes.Observe(static_cast<double>(bytes));
}

void PrometheusRecorder::matrices_done(const ConvergenceReport& report) {
  const auto add = [](Counter& counter, int64_t n) {
    if (n > 0) counter.Increment(static_cast<double>(n));
  };
  add(impl_->matrices_ok, report.ok);
  add(impl_->matrices_non_finite, report.non_finite);
  add(impl_->matrices_not_converged, report.not_converged);
  add(impl_->matrices_out_of_range, report.out_of_range);
  add(impl_->matrices_by_qr, report.by_qr);
  add(impl_->matrices_near_defective, report.near_defective);
}

void PrometheusRecorder::batch_retried() { impl_->batch_retries.Increment(); }

void PrometheusRecorder::device_fault(std::string_view device) { impl_->device_faults.of(device).Increment(); }

void PrometheusRecorder::connection_cut_off() { impl_->cut_off_connections.Increment(); }
void PrometheusRecorder::connection_refused() { impl_->refused_connections.Increment(); }

void PrometheusRecorder::tls_files_read(bool loaded) { (loaded ? impl_->tls_loaded : impl_->tls_rejected).Increment(); }

void PrometheusRecorder::device_lost(std::string_view device) { impl_->device_lost.of(device).Increment(); }

void PrometheusRecorder::device_hung(std::string_view device) { impl_->device_hangs.of(device).Increment(); }

void PrometheusRecorder::large_accepted(int64_t bytes) {
  impl_->factors.Increment();
  impl_->factor_bytes_reserved.Increment(static_cast<double>(bytes));
}

void PrometheusRecorder::large_received(int64_t bytes) { impl_->large_received.Increment(static_cast<double>(bytes)); }

void PrometheusRecorder::large_sent(int64_t bytes) { impl_->large_sent.Increment(static_cast<double>(bytes)); }

void PrometheusRecorder::large_phase_took(LargePhase phase, absl::Duration took) {
  impl_->factor_phase[static_cast<size_t>(phase)]->Observe(absl::ToDoubleSeconds(took));
}

void PrometheusRecorder::gang_began(int members, absl::Duration waited) {
  if (const auto found = impl_->gang_wait.find(members); found != impl_->gang_wait.end()) {
    found->second->Observe(absl::ToDoubleSeconds(waited));
  }
}

void PrometheusRecorder::large_computed(const LargeOutcome& outcome) {
  impl_->factor_sweeps.Increment(outcome.sweeps);
  impl_->resumed_sweeps.Increment(outcome.resumed_sweeps);
  impl_->factor_rotations.Increment(static_cast<double>(outcome.rotations));
  for (const LargePhaseTime& part : outcome.phases) {
    impl_->factor_parts.of(part.name).Increment(part.seconds);
    impl_->factor_flops.of(part.name).Increment(part.flops);
  }
}

void PrometheusRecorder::large_resumed() { impl_->factors_resumed.Increment(); }

void PrometheusRecorder::state_saved() { impl_->checkpoint_states.Increment(); }
void PrometheusRecorder::checkpoint_failed() { impl_->checkpoint_failures.Increment(); }

void PrometheusRecorder::large_failed(Reason reason) { impl_->factor_failures.of(name(reason)).Increment(); }

void PrometheusRecorder::Impl::set(const std::vector<DeviceReading>& readings) {
  int healthy = 0;
  for (const DeviceReading& d : readings) {
    healthy += d.healthy ? 1 : 0;
    const Labels label = {{"device", d.name}};
    for (LabelledCounters* const counters : {&device_faults, &device_lost, &device_hangs}) counters->of(d.name);
    device_info
        .Add({{"device", d.name},
              {"backend", d.backend},
              {"model", d.model},
              {"uuid", d.uuid},
              {"instruction_set", d.instruction_set}})
        .Set(1);
    device_healthy.Add(label).Set(d.healthy ? 1 : 0);
    device_memory.Add(label).Set(static_cast<double>(d.memory_bytes));
    device_outstanding.Add(label).Set(static_cast<double>(d.outstanding_batches));
    bring_to(device_busy.Add(label), d.busy_seconds);
    bring_to(device_uploaded.Add(label), static_cast<double>(d.uploaded_bytes));
    bring_to(device_downloaded.Add(label), static_cast<double>(d.downloaded_bytes));
    device_pool.Add(label).Set(static_cast<double>(d.pool_bytes));
    device_faults.of(d.name);  // they exist before the first fault: a rate needs a zero to rise from
    device_lost.of(d.name);
    device_hangs.of(d.name);
  }
  devices.Set(static_cast<double>(readings.size()));
  healthy_devices.Set(healthy);
}

std::string PrometheusRecorder::render(const GaugeReadings& readings) {
  MutexLock lock(&impl_->render_mu);
  impl_->ready.Set(readings.ready ? 1 : 0);
  impl_->degraded.Set(readings.degraded ? 1 : 0);
  impl_->pinned_in_use.Set(static_cast<double>(readings.pinned_in_use_bytes));
  impl_->pinned_kept.Set(static_cast<double>(readings.pinned_kept_bytes));
  impl_->pinned_limit.Set(static_cast<double>(readings.pinned_limit_bytes));
  impl_->set(readings.devices);
  impl_->inflight_requests.Set(static_cast<double>(readings.inflight_requests));
  impl_->inflight_requests_limit.Set(static_cast<double>(readings.inflight_requests_limit));
  impl_->inflight_bytes.Set(static_cast<double>(readings.inflight_bytes));
  impl_->inflight_bytes_limit.Set(static_cast<double>(readings.inflight_bytes_limit));
  impl_->factors_inflight.Set(static_cast<double>(readings.factors));
  impl_->factor_bytes.Set(static_cast<double>(readings.factor_bytes));
  impl_->factor_bytes_limit.Set(static_cast<double>(readings.factor_bytes_limit));
  impl_->checkpoints.Set(static_cast<double>(readings.checkpoints));
  impl_->checkpoint_bytes.Set(static_cast<double>(readings.checkpoint_bytes));
  impl_->factors_waiting.Set(static_cast<double>(readings.waiting_factors));
  impl_->factors_running.Set(static_cast<double>(readings.running_factors));
  impl_->gangs_waiting.Set(static_cast<double>(readings.waiting_gangs));
  impl_->gangs_running.Set(static_cast<double>(readings.running_gangs));
  impl_->gang_held.Set(static_cast<double>(readings.gang_held_devices));
  impl_->queued_requests.Set(static_cast<double>(readings.queued_requests));
  impl_->oldest_queued.Set(readings.oldest_queued_seconds);
  impl_->waiting_requests.Set(static_cast<double>(readings.waiting_requests));
  impl_->open_streams.Set(static_cast<double>(readings.open_streams));
  impl_->set_tls_expiry("certificate", readings.tls_certificate_expiry);
  impl_->set_tls_expiry("client_ca", readings.tls_client_ca_expiry);
  bring_to(impl_->process_cpu, process_cpu_seconds());
  impl_->process_resident.Set(process_resident_bytes());
  impl_->process_files.Set(process_open_files());
  std::ostringstream text;
  prometheus::TextSerializer().Serialize(text, impl_->registry.Collect());
  return std::move(text).str();
}

}  // namespace svdserve::server
