#include "server/device/device_pool.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "server/device/calibration.h"
#include "server/device/shares.h"
#include "server/log.h"

namespace svdserve::server {
namespace {

// After a fault, and twice as long after each further one in a row: how much later than it could a device is taken to
// be done with anything.
constexpr absl::Duration kFirstAvoidance = absl::Seconds(1);
constexpr absl::Duration kLongestAvoidance = absl::Seconds(60);

// Predictions change by steps; nobody looks again sooner than this.
constexpr absl::Duration kShortestLook = absl::Microseconds(50);

// Runs the device and turns what it throws into an outcome. A device that throws is not lost for it: between batches it
// keeps nothing that could be spoilt, and one that is really gone says so by device_lost.
DeviceOutcome ExecuteGuarded(Device* device, int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                             const std::atomic<bool>* cancel) {
  DeviceOutcome failed;
  try {
    return device->Execute(lane, plan, segments, cancel);
  } catch (const std::bad_alloc&) {
    failed.status = absl::ResourceExhaustedError("out of memory for the scratch of a batch");
  } catch (const std::exception& e) {
    failed.status = absl::InternalError(e.what());
  } catch (...) {
    failed.status = absl::InternalError("an exception of unknown type");
  }
  return failed;
}

int64_t matrices_of(absl::Span<const HostSegment> segments) {
  int64_t matrices = 0;
  for (const HostSegment& segment : segments) matrices += segment.count;
  return matrices;
}

// The device's own words, with what it was given.
void log_fault(const DeviceInfo& device, const Plan& plan, int64_t matrices, const DeviceOutcome& outcome) {
  log_error("device_fault", {{"device", device.name},
                             {"uuid", device.uuid},
                             {"code", absl::StatusCodeToString(outcome.status.code())},
                             {"error", std::string(outcome.status.message())},
                             {"lost", outcome.device_lost},
                             {"method", svdserve::name(plan.method)},
                             {"dtype", svdserve::name(plan.problem.dtype)},
                             {"rows", plan.problem.rows},
                             {"cols", plan.problem.cols},
                             {"matrices", matrices}});
}

bool contains(absl::Span<const int> devices, int device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// The device's time for up to `matrices` as a straight line, through all of them and an eighth. Where an eighth takes
// nearly as long, a device that is far from full is taken to be a quarter as fast as it seems.
Pace pace_of(const CostTable& costs, const Plan& plan, int64_t matrices, double start) {
  const double n = static_cast<double>(matrices), few = std::max(1.0, n / 8);
  const double all = absl::ToDoubleSeconds(costs.Predict(plan, matrices).typical);
  const double some = absl::ToDoubleSeconds(costs.Predict(plan, static_cast<int64_t>(few)).typical);
  const double least = std::max(all / n / 4, std::numeric_limits<double>::min());
  const double slope = n > few ? std::max((all - some) / (n - few), least) : std::max(all / n, least);
  return {start + std::max(0.0, all - n * slope), slope};
}

struct Run {
  int64_t matrices;
  absl::Duration took;
};

// See DevicePool::MatricesWithin(). `all` takes longer than `work`. Each prediction costs time under locks, so there
// are few: a straight line through one group and all is short enough where time grows faster than that, and is drawn
// once again where it does not.
int64_t matrices_within(const CostTable& costs, const Plan& plan, const Run& all, absl::Duration work) {
  constexpr double kRounding = 1e-6;  // 3 - 1e-6 is 3
  const int64_t group = plan.outputs.group;
  const Run one{group, costs.Predict(plan, group).typical};
  const absl::Duration limit = std::max(work, 2 * one.took);
  Run last = all;
  for (int i = 0; i < 2 && last.took > limit; ++i) {
    const double part = absl::FDivDuration(limit - one.took, last.took - one.took);
    const double groups = std::floor(part * static_cast<double>((last.matrices - group) / group) * (1 + kRounding));
    last.matrices = group + static_cast<int64_t>(groups) * group;
    last.took = costs.Predict(plan, last.matrices).typical;
  }
  return last.matrices;
}

// Beside a GPU the host computes what takes it no longer than this, which is what it answers sooner than a GPU can be
// reached. Its cores are needed for the transport: see decisions/0005-which-device.md.
constexpr absl::Duration kLongestHostHelp = absl::Microseconds(200);

// What waking a thread takes at best. Work that takes no longer is done at once, on its caller's thread, whatever the
// lanes do.
constexpr absl::Duration kHandOver = absl::Microseconds(5);

// Of other work the parts of a request are not to be some the host's, some a GPU's.
bool has_same_bits_everywhere(const Plan& plan) { return values_per_matrix(plan.problem) <= kLargestReproducible; }

bool is_host(const Device& device) { return device.info().kind == DeviceKind::kHost; }

}  // namespace

// A device where work could go.
struct DevicePool::Candidate {
  int device = -1;                // -1: none
  bool has_lane = false;          // a free one
  CostEstimate work;              // there
  absl::Duration done;            // until it would be complete
  absl::Duration done_elsewhere;  // without has_lane: on the best device that has a free lane; infinite: there is none
};

DevicePool::DevicePool(std::vector<std::unique_ptr<Device>> devices, Clock* clock, Recorder* recorder)
    : clock_(clock), recorder_(recorder), healthy_(static_cast<int>(devices.size())) {
  for (std::unique_ptr<Device>& device : devices) {
    auto entry = std::make_unique<DeviceEntry>(std::move(device));
    const int lanes = entry->device->info().lanes + entry->device->info().relief_lanes;
    for (int i = 0; i < lanes; ++i) entry->lanes.push_back(std::make_unique<LaneState>());
    devices_.push_back(std::move(entry));
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread = std::thread([this, lane = lane.get()] { RunLane(lane); });
  }
}

DevicePool::~DevicePool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& entry : devices_) {
      for (const auto& lane : entry->lanes) lane->wake.Signal();
    }
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread.join();
  }
}

void DevicePool::Calibrate(absl::Duration budget) {
  constexpr int kPatience = 20;  // times the budget, before what runs is cancelled: no device may stop the start
  const absl::Time start = clock_->Now();
  std::atomic<bool> cancel{false};
  const auto alarm = clock_->MakeAlarm([&cancel] { cancel.store(true); });
  alarm->Set(start + kPatience * budget);
  std::vector<std::thread> threads;
  for (int d = 0; d < size(); ++d) {
    threads.emplace_back([this, d, end = start + budget, &cancel] {
      const Lane lane{d, 0};
      {
        MutexLock lock(&mu_);
        devices_[d]->load.Hold(lane.index, {}, clock_->Now());
      }
      svdserve::server::Calibrate([&](const Plan& plan, const HostSegment& segment) -> std::optional<absl::Duration> {
        if (clock_->Now() >= end) return std::nullopt;
        const Executed executed = ExecuteUncounted(lane, plan, {&segment, 1}, &cancel);
        if (!executed.outcome.status.ok() || !executed.outcome.completed) return std::nullopt;
        return executed.took;
      });
      Release(lane);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// --- where work goes -----------------------------------------------------------------------------

DevicePool::Candidate DevicePool::Choose(const Plan& plan, int64_t matrices, absl::Span<const int> tried,
                                         absl::Span<const absl::Duration> ahead, absl::Time now) const {
  Candidate free, taken;
  free.done = taken.done = absl::InfiniteDuration();
  const bool gpu_at_work = GpuAtWork(tried, now);
  for (int d = 0; d < size(); ++d) {
    const DeviceEntry& entry = *devices_[d];
    if (!entry.healthy || contains(tried, d)) continue;
    Candidate here{d, false, entry.costs.Predict(plan, matrices), {}, {}};
    here.has_lane = entry.load.free_lane(here.work.typical, now).has_value();
    const bool helps = here.work.typical <= kLongestHostHelp && has_same_bits_everywhere(plan);
    if (gpu_at_work && is_host(*entry.device) && !helps) continue;
    here.done = entry.load.Backlog(now, here.work.typical) + here.work.typical +
                std::max(absl::ZeroDuration(), entry.avoided_until - now);
    if (!ahead.empty()) here.done += ahead[static_cast<size_t>(d)];
    Candidate& best = here.has_lane ? free : taken;
    if (here.done < best.done) best = here;
  }
  if (free.device >= 0 && free.done <= taken.done) return free;
  taken.done_elsewhere = free.done;
  return taken;
}

bool DevicePool::GpuAtWork(absl::Span<const int> tried, absl::Time now) const {
  for (int d = 0; d < size(); ++d) {
    const DeviceEntry& entry = *devices_[d];
    if (!is_host(*entry.device) && entry.healthy && entry.avoided_until <= now && !contains(tried, d)) return true;
  }
  return false;
}

Lane DevicePool::Hold(const Candidate& candidate, absl::Time now) {
  DeviceLoad& load = devices_[candidate.device]->load;
  const absl::Duration work = candidate.work.typical;
  const Lane lane{candidate.device, *load.free_lane(work, now), work};
  load.Hold(lane.index, candidate.work, now);
  return lane;
}

DevicePool::Placement::Placement(DevicePool* pool) : pool_(pool), ahead_(pool->devices_.size()) {
  const absl::Time now = pool_->clock_->Now();
  MutexLock lock(&pool_->mu_);
  for (const auto& entry : pool_->devices_) {
    if (!entry->healthy) continue;
    // What long work may have, short work may have.
    lane_free_ |= entry->load.free_lane(absl::ZeroDuration(), now).has_value();
    look_again_ = std::min(look_again_, entry->load.relief(now));
  }
}

std::optional<Lane> DevicePool::Placement::Place(const Plan& plan, int64_t matrices, absl::Span<const int> tried) {
  const absl::Time now = pool_->clock_->Now();
  MutexLock lock(&pool_->mu_);
  const Candidate best = pool_->Choose(plan, matrices, tried, ahead_, now);
  if (best.device < 0) return std::nullopt;
  if (best.has_lane) return pool_->Hold(best, now);
  ahead_[static_cast<size_t>(best.device)] += best.work.typical;
  // What the device still has to do grows by no more than the time that passes.
  if (best.done_elsewhere < absl::InfiniteDuration()) {
    look_again_ = std::min(look_again_, now + std::max(kShortestLook, best.done_elsewhere - best.done));
  }
  return std::nullopt;
}

std::optional<Lane> DevicePool::PlaceShort(const Plan& plan, int64_t matrices, absl::Duration most) {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  const Candidate best = Choose(plan, matrices, {}, {}, now);
  if (best.device < 0 || !best.has_lane || best.work.typical > most) return std::nullopt;
  return Hold(best, now);
}

std::optional<Lane> DevicePool::PlaceBeside(const Plan& plan, int64_t matrices) {
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  for (int d = 0; d < size(); ++d) {
    DeviceEntry& entry = *devices_[d];
    if (entry.device->info().side_lanes == 0 || !entry.healthy || entry.avoided_until > now) continue;
    const CostEstimate work = entry.costs.Predict(plan, matrices);
    if (work.typical > kHandOver) continue;
    const std::optional<int> lane = entry.load.free_side_lane();
    if (!lane.has_value()) continue;
    entry.load.Hold(*lane, work, now);
    return Lane{d, *lane, work.typical};
  }
  return std::nullopt;
}

void DevicePool::Release(const Lane& lane) {
  MutexLock lock(&mu_);
  devices_[lane.device]->load.Release(lane.index);
}

std::vector<int64_t> DevicePool::Shares(const Plan& plan, int64_t matrices, int64_t least) const {
  std::vector<Pace> paces;
  {
    const absl::Time now = clock_->Now();
    MutexLock lock(&mu_);
    const bool gpu_at_work = GpuAtWork({}, now);
    for (const auto& entry : devices_) {
      if (!entry->healthy || entry->avoided_until > now) continue;
      if (!entry->load.free_lane(absl::ZeroDuration(), now).has_value()) continue;
      if (gpu_at_work && is_host(*entry->device)) continue;
      paces.push_back(pace_of(entry->costs, plan, matrices, absl::ToDoubleSeconds(entry->load.Backlog(now))));
    }
  }
  if (paces.size() < 2) return {matrices};
  std::vector<int64_t> shares = shares_of(paces, matrices, least, plan.outputs.group);
  shares.erase(std::remove(shares.begin(), shares.end(), 0), shares.end());
  return shares;
}

int64_t DevicePool::MatricesWithin(const Plan& plan, int64_t most, absl::Duration work) const {
  const CostTable* quickest = nullptr;
  absl::Duration least = absl::InfiniteDuration();
  MutexLock lock(&mu_);
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    const absl::Duration here = entry->costs.Predict(plan, most).typical;
    if (here >= least) continue;
    least = here;
    quickest = &entry->costs;
  }
  return quickest == nullptr || least <= work ? most : matrices_within(*quickest, plan, {most, least}, work);
}

absl::Duration DevicePool::EarliestDone(const Plan& plan, int64_t matrices, int64_t ahead, bool divisible) const {
  const double n = static_cast<double>(ahead + matrices);
  std::vector<Pace> paces;
  absl::Duration alone = absl::InfiniteDuration();  // on one device, with nothing before it in line
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    if (entry->load.idle()) return absl::ZeroDuration();
    const absl::Duration all = entry->costs.Predict(plan, ahead + matrices).optimistic;
    if (all == absl::ZeroDuration()) return absl::ZeroDuration();  // it never ran here: nothing is known
    const CostEstimate own = entry->costs.Predict(plan, matrices);
    const absl::Duration backlog = entry->load.OptimisticBacklog(now, own.typical);
    alone = std::min(alone, own.optimistic);
    paces.push_back({absl::ToDoubleSeconds(backlog), absl::ToDoubleSeconds(all) / n});
  }
  if (paces.empty()) return absl::ZeroDuration();
  const absl::Duration shared = absl::Seconds(earliest_finish(paces, n));
  return divisible ? shared : std::max(shared, alone);
}

// --- lanes ---------------------------------------------------------------------------------------

void DevicePool::Run(const Lane& lane, LaneWork* work) {
  MutexLock lock(&mu_);
  LaneState* const state = devices_[lane.device]->lanes[lane.index].get();
  state->given = lane;
  state->work = work;
  state->wake.Signal();
}

void DevicePool::RunLane(LaneState* lane) {
  mu_.Lock();
  while (true) {
    if (lane->work != nullptr) {
      LaneWork* const work = std::exchange(lane->work, nullptr);
      const Lane given = *std::exchange(lane->given, std::nullopt);
      mu_.Unlock();
      work->Run(given);
      mu_.Lock();
    } else if (stopping_) {
      break;
    } else {
      lane->wake.Wait(&mu_);
    }
  }
  mu_.Unlock();
}

DevicePool::Executed DevicePool::Execute(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                         const std::atomic<bool>* cancel) {
  Executed executed = ExecuteUncounted(lane, plan, segments, cancel);
  recorder_->PhaseTook(Phase::kCompute, executed.took);
  if (executed.outcome.status.ok() && executed.outcome.completed) recorder_->MatricesDone(executed.outcome.report);
  return executed;
}

DevicePool::Executed DevicePool::ExecuteUncounted(const Lane& lane, const Plan& plan,
                                                  absl::Span<const HostSegment> segments,
                                                  const std::atomic<bool>* cancel) {
  DeviceEntry& entry = *devices_[lane.device];
  Executed executed;
  executed.started = clock_->Now();
  {
    MutexLock lock(&mu_);
    entry.load.Begin(lane.index, executed.started);
  }
  DeviceOutcome& outcome = executed.outcome;
  outcome = ExecuteGuarded(entry.device.get(), lane.index, plan, segments, cancel);
  if (outcome.status.ok() && !outcome.completed && !cancel->load(std::memory_order_relaxed)) {
    outcome.status = absl::InternalError("it gave the batch up unasked");
  }
  const bool clean = outcome.status.ok() && outcome.completed;
  const absl::Time ended = clock_->Now();
  executed.took = ended - executed.started;
  {
    MutexLock lock(&mu_);
    executed.device_time = entry.load.End(lane.index, ended);
    if (clean) {
      entry.faults = 0;
      entry.avoided_until = absl::InfinitePast();
    }
  }
  if (clean) entry.costs.Observe(plan, matrices_of(segments), executed.device_time);
  if (!outcome.status.ok()) {
    log_fault(entry.device->info(), plan, matrices_of(segments), outcome);
    OnFault(lane.device, outcome, ended);
    outcome.status = absl::Status(outcome.status.code(),
                                  absl::StrCat("device ", entry.device->info().name, ": ", outcome.status.message()));
  }
  return executed;
}

void DevicePool::OnFault(int device, const DeviceOutcome& outcome, absl::Time now) {
  DeviceEntry& entry = *devices_[device];
  recorder_->DeviceFault(entry.device->info().name);
  bool lost = false;
  {
    MutexLock lock(&mu_);
    if (!entry.healthy) return;
    const int doublings = std::min(entry.faults++, 30);
    entry.avoided_until = now + std::min(kFirstAvoidance * (int64_t{1} << doublings), kLongestAvoidance);
    lost = outcome.device_lost;
    if (lost) {
      entry.healthy = false;
      healthy_.fetch_sub(1, std::memory_order_release);
    }
  }
  if (lost) recorder_->DeviceLost(entry.device->info().name);
}

// --- state ---------------------------------------------------------------------------------------

bool DevicePool::healthy_besides(absl::Span<const int> tried) const {
  MutexLock lock(&mu_);
  for (int d = 0; d < size(); ++d) {
    if (devices_[d]->healthy && !contains(tried, d)) return true;
  }
  return false;
}

DeviceState DevicePool::state(int device) const {
  const DeviceEntry& entry = *devices_[device];
  DeviceState state;
  state.info = entry.device->info();
  state.counters = entry.device->counters();
  const absl::Time now = clock_->Now();
  MutexLock lock(&mu_);
  state.healthy = entry.healthy;
  state.outstanding_batches = entry.load.held();
  state.busy = entry.load.busy(now);
  return state;
}

}  // namespace svdserve::server
