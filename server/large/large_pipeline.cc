#include "server/large/large_pipeline.h"

#include <unordered_map>
#include <utility>

#include "server/admit/large_admission.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/device/large/large_runner.h"
#include "server/large/large_job.h"

namespace svdserve::server {
namespace {

Error draining(const char* message) {
  return {absl::StatusCode::kUnavailable, Reason::kDraining, message, "", absl::Seconds(1)};
}

}  // namespace

struct LargePipeline::Impl {
  Impl(const LargeLimits& o, std::vector<LargeDevice> devices, Clock* clock_arg, Recorder* recorder,
       DeviceMonitor* monitor, std::unique_ptr<CheckpointStore> checkpoints_arg)
      : options(o),
        clock(clock_arg),
        admission({.max_bytes = o.max_bytes, .max_requests = o.max_requests, .peer_percent = o.peer_percent},
                  clock_arg),
        checkpoints(std::move(checkpoints_arg)),
        runner(std::make_unique<LargeRunner>(
            std::move(devices), [this](int64_t bytes, Reservation* r) { return admission.reserve(bytes, r); })),
        alarm(clock_arg->make_alarm([this] { tick(); })) {
    stages.options = &options;
    stages.admission = &admission;
    stages.runner = runner.get();
    stages.clock = clock_arg;
    stages.recorder = recorder;
    stages.monitor = monitor;
    stages.checkpoints = checkpoints.get();
    if (checkpoints != nullptr) alarm->set(clock->now() + kPeriod);
    stages.forget = [this](LargeJob* job) { forget(job); };
  }

  void add(const std::shared_ptr<LargeJob>& job) {
    MutexLock lock(&mu);
    if (jobs.empty()) alarm->set(clock->now() + kPeriod);
    jobs.emplace(job.get(), job);
  }
  void forget(LargeJob* job) {
    MutexLock lock(&mu);
    jobs.erase(job);
    changed.signal_all();
  }
  std::vector<std::shared_ptr<LargeJob>> alive_jobs() {
    std::vector<std::shared_ptr<LargeJob>> alive;
    MutexLock lock(&mu);
    for (const auto& [key, weak] : jobs) {
      if (auto job = weak.lock()) alive.push_back(std::move(job));
    }
    return alive;
  }
  // A device that batches found lost is lost for large matrices, too. The host has no health of its own, nor have gangs.
  void mark_lost_devices() {
    if (stages.monitor == nullptr) return;
    for (int d = 0; d < runner->size(); ++d) {
      const LargeDevice& device = runner->device(d);
      const bool has_health = device.memory_bytes > 0 && !device.is_gang();
      if (has_health && !stages.monitor->is_healthy(device.name)) runner->mark_lost(d);
    }
  }
  void tick() {
    mark_lost_devices();
    for (const auto& job : alive_jobs()) job->tick();
    runner->retry();  // the transport may have let go of results
    if (checkpoints != nullptr) checkpoints->remove_expired();
    MutexLock lock(&mu);
    if (!jobs.empty() || checkpoints != nullptr) alarm->set(clock->now() + kPeriod);
    changed.signal_all();
  }
  void abandon_all(const Error& error) {
    for (const auto& job : alive_jobs()) job->abandon(error);
  }

  const LargeLimits options;
  Clock* const clock;
  LargeAdmission admission;
  LargeStages stages;
  Mutex mu;
  CondVar changed;  // a job has gone, or the time has
  std::unordered_map<LargeJob*, std::weak_ptr<LargeJob>> jobs ABSL_GUARDED_BY(mu);
  // Its threads hold reservations of the admission for a while.
  const std::unique_ptr<CheckpointStore> checkpoints;
  // Last: their threads use the others. The alarm uses the runner.
  std::unique_ptr<LargeRunner> runner;
  std::unique_ptr<Alarm> alarm;
};

LargePipeline::LargePipeline(const LargeLimits& options, std::vector<LargeDevice> devices, Clock* clock,
                             Recorder* recorder, DeviceMonitor* monitor, std::unique_ptr<CheckpointStore> checkpoints)
    : impl_(std::make_unique<Impl>(options, std::move(devices), clock, recorder, monitor, std::move(checkpoints))) {}

LargePipeline::~LargePipeline() { impl_->abandon_all(draining("the server has shut down")); }

std::shared_ptr<LargeJob> LargePipeline::begin(Peer peer, std::function<void(LargeNext)> act, std::string owner) {
  if (owner.empty()) owner = peer;
  auto job = std::make_shared<LargeJob>(&impl_->stages, std::move(peer), std::move(owner), std::move(act));
  impl_->add(job);
  return job;
}

void LargePipeline::start_drain() {
  impl_->admission.start_drain();
  for (const auto& job : impl_->alive_jobs()) {
    if (!job->accepted()) job->abandon(draining("the server is shutting down"));
  }
}

bool LargePipeline::drain(absl::Duration timeout) {
  start_drain();
  const absl::Time deadline = impl_->clock->now() + timeout;
  {
    MutexLock lock(&impl_->mu);
    while (!impl_->jobs.empty() && impl_->clock->now() < deadline) impl_->changed.wait(&impl_->mu);
    if (impl_->jobs.empty()) return true;
  }
  impl_->abandon_all(draining("the server shut down before the large matrix was done"));
  return false;
}

LargeStats LargePipeline::stats() const {
  const Ledger::Usage usage = impl_->admission.usage();
  const LargeRunner::Loads loads = impl_->runner->loads();
  const CheckpointUsage files = impl_->checkpoints != nullptr ? impl_->checkpoints->usage() : CheckpointUsage{};
  LargeStats stats{usage.requests,
                   usage.bytes,
                   {loads.total.waiting, loads.total.running},
                   {loads.gangs.waiting, loads.gangs.running},
                   loads.held,
                   loads.preparing,
                   {},
                   files.matrices,
                   files.bytes};
  for (int d = 0; d < impl_->runner->size(); ++d) {
    if (impl_->runner->device(d).is_gang()) continue;
    const LargeRunner::Load& load = loads.of_device[static_cast<size_t>(d)];
    stats.of_device[impl_->runner->device(d).name] = {load.waiting, load.running};
  }
  return stats;
}

int64_t LargePipeline::max_matrix_bytes() const { return impl_->admission.share(); }

const LargeLimits& LargePipeline::options() const { return impl_->options; }

}  // namespace svdserve::server
