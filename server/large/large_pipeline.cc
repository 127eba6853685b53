#include "server/large/large_pipeline.h"

#include <unordered_map>
#include <utility>

#include "server/admit/large_admission.h"
#include "server/base/mutex.h"
#include "server/device/large/factor_runner.h"
#include "server/large/large_job.h"

namespace svdserve::server {
namespace {

Error draining(const char* message) {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, message, "", absl::Seconds(1)};
}

}  // namespace

struct LargePipeline::Impl {
  Impl(const LargeOptions& o, std::vector<FactorDevice> devices, Clock* clock_arg, Recorder* recorder,
       DeviceMonitor* monitor)
      : options(o),
        clock(clock_arg),
        admission({.max_bytes = o.max_bytes, .max_requests = o.max_requests, .peer_percent = o.peer_percent},
                  clock_arg),
        runner(std::make_unique<FactorRunner>(
            std::move(devices), [this](int64_t bytes, Reservation* r) { return admission.Reserve(bytes, r); })),
        alarm(clock_arg->MakeAlarm([this] { Tick(); })) {
    stages.options = &options;
    stages.admission = &admission;
    stages.runner = runner.get();
    stages.clock = clock_arg;
    stages.recorder = recorder;
    stages.monitor = monitor;
    stages.forget = [this](LargeJob* job) { Forget(job); };
  }

  void Add(const std::shared_ptr<LargeJob>& job) {
    MutexLock lock(&mu);
    if (jobs.empty()) alarm->Set(clock->Now() + kPeriod);
    jobs.emplace(job.get(), job);
  }
  void Forget(LargeJob* job) {
    MutexLock lock(&mu);
    jobs.erase(job);
    changed.SignalAll();
  }
  std::vector<std::shared_ptr<LargeJob>> Jobs() {
    std::vector<std::shared_ptr<LargeJob>> alive;
    MutexLock lock(&mu);
    for (const auto& [key, weak] : jobs) {
      if (auto job = weak.lock()) alive.push_back(std::move(job));
    }
    return alive;
  }
  // A device that batches found lost is lost for large matrices, too. The host has no health of its own.
  void MarkLostDevices() {
    if (stages.monitor == nullptr) return;
    for (int d = 0; d < runner->size(); ++d) {
      const FactorDevice& device = runner->device(d);
      if (device.memory_bytes > 0 && !stages.monitor->IsHealthy(device.name)) runner->MarkLost(d);
    }
  }
  void Tick() {
    MarkLostDevices();
    for (const auto& job : Jobs()) job->Tick();
    runner->Retry();  // the transport may have let go of results
    MutexLock lock(&mu);
    if (!jobs.empty()) alarm->Set(clock->Now() + kPeriod);
    changed.SignalAll();
  }
  void AbandonAll(const Error& error) {
    for (const auto& job : Jobs()) job->Abandon(error);
  }

  const LargeOptions options;
  Clock* const clock;
  LargeAdmission admission;
  LargeStages stages;
  Mutex mu;
  CondVar changed;  // a job has gone, or the time has
  std::unordered_map<LargeJob*, std::weak_ptr<LargeJob>> jobs ABSL_GUARDED_BY(mu);
  // Last: their threads use the others. The alarm uses the runner.
  std::unique_ptr<FactorRunner> runner;
  std::unique_ptr<Alarm> alarm;
};

LargePipeline::LargePipeline(const LargeOptions& options, std::vector<FactorDevice> devices, Clock* clock,
                             Recorder* recorder, DeviceMonitor* monitor)
    : impl_(std::make_unique<Impl>(options, std::move(devices), clock, recorder, monitor)) {}

LargePipeline::~LargePipeline() { impl_->AbandonAll(draining("the server is gone")); }

std::shared_ptr<LargeJob> LargePipeline::Begin(Peer peer, std::function<void(LargeNext)> act) {
  auto job = std::make_shared<LargeJob>(&impl_->stages, std::move(peer), std::move(act));
  impl_->Add(job);
  return job;
}

void LargePipeline::StartDrain() {
  impl_->admission.StartDrain();
  for (const auto& job : impl_->Jobs()) {
    if (!job->accepted()) job->Abandon(draining("the server is shutting down"));
  }
}

bool LargePipeline::Drain(absl::Duration timeout) {
  StartDrain();
  const absl::Time deadline = impl_->clock->Now() + timeout;
  {
    MutexLock lock(&impl_->mu);
    while (!impl_->jobs.empty() && impl_->clock->Now() < deadline) impl_->changed.Wait(&impl_->mu);
    if (impl_->jobs.empty()) return true;
  }
  impl_->AbandonAll(draining("the server shut down before the factor was done"));
  return false;
}

LargeStats LargePipeline::stats() const {
  const Ledger::Usage usage = impl_->admission.usage();
  const FactorRunner::Loads loads = impl_->runner->loads();
  LargeStats stats{usage.requests, usage.bytes, {loads.total.waiting, loads.total.running}, {}};
  for (int d = 0; d < impl_->runner->size(); ++d) {
    const FactorRunner::Load& load = loads.of_device[static_cast<size_t>(d)];
    stats.of_device[impl_->runner->device(d).name] = {load.waiting, load.running};
  }
  return stats;
}

int64_t LargePipeline::max_matrix_bytes() const { return impl_->admission.share(); }

const LargeOptions& LargePipeline::options() const { return impl_->options; }

}  // namespace svdserve::server
