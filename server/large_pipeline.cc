#include "server/large_pipeline.h"

#include <unordered_map>
#include <utility>

#include "server/admit/ledger.h"
#include "server/device/factor_runner.h"
#include "server/large_job.h"
#include "server/mutex.h"

namespace svdserve::server {
namespace {

Error draining(const char* message) {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, message, "", absl::Seconds(1)};
}

}  // namespace

struct LargePipeline::Impl {
  Impl(const LargeOptions& o, std::vector<FactorDevice> devices, Clock* clock_arg, Recorder* recorder)
      : options(o),
        clock(clock_arg),
        ledger({.max_bytes = o.max_bytes, .max_requests = o.max_requests}, clock_arg),
        runner(std::make_unique<FactorRunner>(std::move(devices))),
        alarm(clock_arg->MakeAlarm([this] { Tick(); })) {
    stages.options = &options;
    stages.ledger = &ledger;
    stages.runner = runner.get();
    stages.clock = clock_arg;
    stages.recorder = recorder;
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
  void Tick() {
    for (const auto& job : Jobs()) job->Tick();
    MutexLock lock(&mu);
    if (!jobs.empty()) alarm->Set(clock->Now() + kPeriod);
    changed.SignalAll();
  }
  void AbandonAll(const Error& error) {
    for (const auto& job : Jobs()) job->Abandon(error);
  }

  const LargeOptions options;
  Clock* const clock;
  Ledger ledger;
  LargeStages stages;
  Mutex mu;
  CondVar changed;  // a job has gone, or the time has
  std::unordered_map<LargeJob*, std::weak_ptr<LargeJob>> jobs ABSL_GUARDED_BY(mu);
  std::unique_ptr<FactorRunner> runner;
  std::unique_ptr<Alarm> alarm;
};

LargePipeline::LargePipeline(const LargeOptions& options, std::vector<FactorDevice> devices, Clock* clock,
                             Recorder* recorder)
    : impl_(std::make_unique<Impl>(options, std::move(devices), clock, recorder)) {}

LargePipeline::~LargePipeline() {
  impl_->AbandonAll(draining("the server is gone"));
  impl_->alarm.reset();
  impl_->runner.reset();
}

std::shared_ptr<LargeJob> LargePipeline::Begin(std::function<void(LargeNext)> act) {
  auto job = std::make_shared<LargeJob>(&impl_->stages, std::move(act));
  impl_->Add(job);
  return job;
}

void LargePipeline::StartDrain() {
  impl_->ledger.StartDrain();
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
  const Ledger::Usage usage = impl_->ledger.usage();
  LargeStats stats{usage.requests, usage.bytes, {}, {}};
  for (int d = 0; d < impl_->runner->size(); ++d) {
    const FactorRunner::Load load = impl_->runner->load(d);
    stats.of_device[impl_->runner->device(d).name] = {load.waiting, load.running};
    stats.load.waiting += load.waiting;
    stats.load.running += load.running;
  }
  return stats;
}

const LargeOptions& LargePipeline::options() const { return impl_->options; }

}  // namespace svdserve::server
