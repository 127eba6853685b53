#include "server/device/device_pool.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "server/base/log.h"
#include "server/device/cost/calibration.h"
#include "server/device/cost/shares.h"
#include "server/device/cost/work_estimate.h"

namespace svdserve::server {
namespace {

// A device is taken to be done this much later after a fault, and twice as much later after each further one in a row.
constexpr absl::Duration kFirstAvoidance = absl::Seconds(1);
constexpr absl::Duration kLongestAvoidance = absl::Seconds(60);

// Predictions change by steps; nobody looks again sooner than this.
constexpr absl::Duration kShortestLook = absl::Microseconds(50);

// Runs the device and turns what it throws into an outcome. A device that throws is not lost for it. Between batches it
// keeps nothing that could be spoilt, and one that is really gone says so by device_lost.
DeviceOutcome execute_guarded(Device* device, int lane, const Plan& plan, absl::Span<const HostSegment> segments,
                              const std::atomic<bool>* cancel) {
  DeviceOutcome failed;
  try {
    return device->execute(lane, plan, segments, cancel);
  } catch (const std::bad_alloc&) {
    failed.status = absl::ResourceExhaustedError("out of memory for the working memory of a batch");
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

// Tells the caller of a request about a device that failed it.
absl::Status for_callers(const DeviceInfo& device, const absl::Status& status) {
  const bool no_memory = status.code() == absl::StatusCode::kResourceExhausted;
  return {status.code(), absl::StrCat("device ", device.name, no_memory ? " had too little memory for it" : " failed")};
}

// The longest time that the work may take on the device: what is expected of it, with every sweep that it may need.
absl::Duration bound_of(const CostTable& costs, const Plan& plan, int64_t matrices) {
  constexpr int32_t kMostSweeps = 120;  // no batch's matrix was found that needs more, see engine/planner.cc
  const double most = std::min(plan.max_sweeps, kMostSweeps);
  const double hardness = plan.method == Method::kJacobi ? std::max(1.0, most / estimate_sweeps(plan)) : 1;
  return costs.predict(plan, std::max<int64_t>(matrices, 1)).typical * hardness;
}

std::string silence(absl::Duration silent) {
  return absl::StrCat("did not respond for ", absl::FormatDuration(absl::Trunc(silent, absl::Milliseconds(1))));
}

// The device's own words, with what it was given. calls: whose work it was, or empty.
void log_fault(const DeviceInfo& device, const Plan& plan, int64_t matrices, const DeviceOutcome& outcome,
               const std::string& calls) {
  std::vector<LogField> fields = {{"device", device.name},
                                  {"uuid", device.uuid},
                                  {"code", absl::StatusCodeToString(outcome.status.code())},
                                  {"error", std::string(outcome.status.message())},
                                  {"lost", outcome.device_lost},
                                  {"method", svdserve::name(method_on(device, plan))},
                                  {"dtype", operand_name(plan.problem)},
                                  {"rows", plan.problem.rows},
                                  {"cols", plan.problem.cols},
                                  {"matrices", matrices}};
  if (!calls.empty()) fields.emplace_back("calls", calls);
  log(LogLevel::kError, "device_fault", fields);
}

bool contains(absl::Span<const int> devices, int device) {
  return std::find(devices.begin(), devices.end(), device) != devices.end();
}

// The device's time for up to `matrices` as a straight line, through all of them and an eighth. Where an eighth takes
// nearly as long, a device that is far from full is taken to be a quarter as fast as it seems.
Pace pace_of(const CostTable& costs, const Plan& plan, int64_t matrices, double start) {
  const double n = static_cast<double>(matrices), few = std::max(1.0, n / 8);
  const double all = absl::ToDoubleSeconds(costs.predict(plan, matrices).typical);
  const double some = absl::ToDoubleSeconds(costs.predict(plan, static_cast<int64_t>(few)).typical);
  const double least = std::max(all / n / 4, std::numeric_limits<double>::min());
  const double slope = n > few ? std::max((all - some) / (n - few), least) : std::max(all / n, least);
  return {start + std::max(0.0, all - n * slope), slope};
}

struct Run {
  int64_t matrices;
  absl::Duration took;
};

// The matrices of which `all`, or those that take no longer than `limit`. Each prediction costs time under locks, so
// there are few. A straight line through one group and all is short enough where time grows faster than that, and is
// drawn once again where it does not.
int64_t count_within(const CostTable& costs, const Plan& plan, const Run& one, const Run& all, absl::Duration limit) {
  constexpr double kRounding = 1e-6;  // 3 - 1e-6 is 3
  const int64_t group = one.matrices;
  Run last = all;
  for (int i = 0; i < 2 && last.took > limit; ++i) {
    const double part = absl::FDivDuration(limit - one.took, last.took - one.took);
    const double groups = std::floor(part * static_cast<double>((last.matrices - group) / group) * (1 + kRounding));
    last.matrices = group + static_cast<int64_t>(groups) * group;
    last.took = costs.predict(plan, last.matrices).typical;
  }
  return last.matrices;
}

// See DevicePool::matrices_within().
int64_t full_batch(const DeviceInfo& device, const CostTable& costs, const Plan& plan, const BatchBounds& bounds) {
  const int64_t group = plan.outputs.group;
  const int64_t at_once = std::min((device.at_once + group - 1) / group * group, bounds.most_of_long);
  const auto run = [&](int64_t matrices) { return Run{matrices, costs.predict(plan, matrices).typical}; };
  const Run usual = run(std::max(bounds.most, at_once));
  if (usual.took <= bounds.work / 2) return usual.matrices;
  const Run one = run(group);
  if (one.took <= bounds.work / 2) return count_within(costs, plan, one, usual, bounds.work);
  return std::max(at_once, count_within(costs, plan, one, run(bounds.most_of_long), 2 * one.took));
}

// Beside a GPU the host computes what takes it no longer than this, which is what it answers sooner than a GPU can be
// reached. Its cores are needed for the transport: see decisions/0005-which-device.md.
constexpr absl::Duration kLongestHostHelp = absl::Microseconds(200);

// The least time that waking a thread takes. Work that takes no longer is done at once, on its caller's thread,
// whatever the lanes do.
constexpr absl::Duration kHandOver = absl::Microseconds(5);

bool is_host(const Device& device) { return device.info().kind == DeviceKind::kHost; }

// Whether the device takes work that is predicted to take so long there. gpu_busy: a GPU takes work, too. Then both may
// share the parts of a request only if they compute the same bits.
bool takes(const Device& device, const Plan& plan, absl::Duration work, bool gpu_busy) {
  if (!gpu_busy || !is_host(device)) return true;
  return work <= kLongestHostHelp && values_per_matrix(plan.problem) <= kLargestReproducible;
}

}  // namespace

// A device where work could go.
struct DevicePool::Candidate {
  int device = -1;                // -1: none
  bool has_lane = false;          // a free one
  CostEstimate work;              // there
  absl::Duration done;            // until it would be complete
  absl::Duration done_elsewhere;  // without has_lane: on the best device that has a free lane; infinite: there is none
};

DevicePool::DevicePool(std::vector<std::unique_ptr<Device>> devices, Clock* clock, Recorder* recorder,
                       absl::Duration watchdog_timeout)
    : clock_(clock),
      recorder_(recorder),
      healthy_(static_cast<int>(devices.size())),
      watchdog_(watchdog_timeout, clock) {
  for (std::unique_ptr<Device>& device : devices) {
    auto entry = std::make_unique<DeviceEntry>(std::move(device));
    const int lanes = entry->device->info().lanes + entry->device->info().relief_lanes;
    for (int i = 0; i < lanes; ++i) entry->lanes.push_back(std::make_unique<LaneState>());
    devices_.push_back(std::move(entry));
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread = std::thread([this, lane = lane.get()] { run_lane(lane); });
  }
}

DevicePool::~DevicePool() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& entry : devices_) {
      for (const auto& lane : entry->lanes) lane->wake.signal();
    }
  }
  for (const auto& entry : devices_) {
    for (const auto& lane : entry->lanes) lane->thread.join();
  }
}

// Shared with devices that hang, which may outlast calibrate().
struct DevicePool::Calibrating {
  Mutex mu;
  CondVar changed;
  int devices ABSL_GUARDED_BY(mu) = 0;  // that are being measured
  std::atomic<bool> cancel{false};
  absl::Time end;
};

// Measures one device on the thread of its first lane, and deletes itself.
class DevicePool::Calibrator final : public LaneWork {
 public:
  Calibrator(DevicePool* pool, std::shared_ptr<Calibrating> all) : pool_(pool), all_(std::move(all)) {}

  void run(const Lane& lane) override {
    const std::unique_ptr<Calibrator> self(this);
    svdserve::server::calibrate([&](const Plan& plan, const HostSegment& segment) -> std::optional<absl::Duration> {
      if (pool_->clock_->now() >= all_->end) return std::nullopt;
      const Executed executed = pool_->execute_uncounted(
          lane, plan, {&segment, 1}, &all_->cancel, [this] { no_longer_waited_for(); }, nullptr);
      if (!executed.outcome.status.ok() || !executed.outcome.completed) return std::nullopt;
      return executed.took;
    });
    pool_->release(lane);
    no_longer_waited_for();
  }

 private:
  void no_longer_waited_for() {
    MutexLock lock(&all_->mu);
    if (std::exchange(told_, true)) return;
    --all_->devices;
    all_->changed.signal();
  }

  DevicePool* const pool_;
  const std::shared_ptr<Calibrating> all_;
  bool told_ = false;
};

void DevicePool::calibrate(absl::Duration budget) {
  constexpr int kPatience = 20;  // times the budget, before what runs is cancelled: no device may stop the start
  const auto all = std::make_shared<Calibrating>();
  const absl::Time start = clock_->now();
  all->end = start + budget;
  {
    MutexLock lock(&all->mu);
    all->devices = size();
  }
  const auto alarm = clock_->make_alarm([all] { all->cancel.store(true); });
  alarm->set(start + kPatience * budget);
  for (int d = 0; d < size(); ++d) {
    const Lane lane{d, 0};
    {
      MutexLock lock(&mu_);
      devices_[d]->load.hold(lane.index, {}, start);
    }
    run(lane, new Calibrator(this, all));
  }
  MutexLock lock(&all->mu);
  while (all->devices > 0) all->changed.wait(&all->mu);
}

// --- where work goes -----------------------------------------------------------------------------

DevicePool::Candidate DevicePool::choose(const Plan& plan, int64_t matrices, absl::Span<const int> tried,
                                         absl::Span<const absl::Duration> ahead, absl::Time now) const {
  Candidate free, taken;
  free.done = taken.done = absl::InfiniteDuration();
  const bool gpu_busy = gpu_at_work(tried, now);
  for (int d = 0; d < size(); ++d) {
    const DeviceEntry& entry = *devices_[d];
    if (!entry.healthy || contains(tried, d)) continue;
    Candidate here{d, false, entry.costs.predict(plan, matrices), {}, {}};
    here.has_lane = entry.load.free_lane(here.work.typical, now).has_value();
    if (!takes(*entry.device, plan, here.work.typical, gpu_busy)) continue;
    here.done = entry.load.backlog(now, here.work.typical) + here.work.typical +
                std::max(absl::ZeroDuration(), entry.avoided_until - now);
    if (!ahead.empty()) here.done += ahead[static_cast<size_t>(d)];
    Candidate& best = here.has_lane ? free : taken;
    if (here.done < best.done) best = here;
  }
  if (free.device >= 0 && free.done <= taken.done) return free;
  taken.done_elsewhere = free.done;
  return taken;
}

bool DevicePool::gpu_at_work(absl::Span<const int> tried, absl::Time now) const {
  for (int d = 0; d < size(); ++d) {
    const DeviceEntry& entry = *devices_[d];
    if (!is_host(*entry.device) && entry.healthy && entry.avoided_until <= now && !contains(tried, d)) return true;
  }
  return false;
}

Lane DevicePool::hold(const Candidate& candidate, absl::Time now) {
  DeviceLoad& load = devices_[candidate.device]->load;
  const absl::Duration work = candidate.work.typical;
  const Lane lane{candidate.device, *load.free_lane(work, now), work};
  load.hold(lane.index, candidate.work, now);
  return lane;
}

DevicePool::Placement::Placement(DevicePool* pool) : pool_(pool), ahead_(pool->devices_.size()) {
  const absl::Time now = pool_->clock_->now();
  MutexLock lock(&pool_->mu_);
  for (const auto& entry : pool_->devices_) {
    if (!entry->healthy) continue;
    // A lane that is free for long work is free for short work.
    lane_free_ |= entry->load.free_lane(absl::ZeroDuration(), now).has_value();
    look_again_ = std::min(look_again_, entry->load.relief(now));
  }
}

std::optional<Lane> DevicePool::Placement::place(const Plan& plan, int64_t matrices, absl::Span<const int> tried) {
  const absl::Time now = pool_->clock_->now();
  MutexLock lock(&pool_->mu_);
  const Candidate best = pool_->choose(plan, matrices, tried, ahead_, now);
  if (best.device < 0) return std::nullopt;
  if (best.has_lane) return pool_->hold(best, now);
  ahead_[static_cast<size_t>(best.device)] += best.work.typical;
  // The device's remaining work grows by no more than the time that passes.
  if (best.done_elsewhere < absl::InfiniteDuration()) {
    look_again_ = std::min(look_again_, now + std::max(kShortestLook, best.done_elsewhere - best.done));
  }
  return std::nullopt;
}

std::optional<Lane> DevicePool::place_short(const Plan& plan, int64_t matrices, absl::Duration most) {
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  const Candidate best = choose(plan, matrices, {}, {}, now);
  if (best.device < 0 || !best.has_lane || best.work.typical > most) return std::nullopt;
  if (!is_host(*devices_[best.device]->device)) return std::nullopt;
  return hold(best, now);
}

std::optional<Lane> DevicePool::place_beside(const Plan& plan, int64_t matrices) {
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  for (int d = 0; d < size(); ++d) {
    DeviceEntry& entry = *devices_[d];
    if (entry.device->info().side_lanes == 0 || !entry.healthy || entry.avoided_until > now) continue;
    const CostEstimate work = entry.costs.predict(plan, matrices);
    if (work.typical > kHandOver) continue;
    const std::optional<int> lane = entry.load.free_side_lane();
    if (!lane.has_value()) continue;
    entry.load.hold(*lane, work, now);
    return Lane{d, *lane, work.typical};
  }
  return std::nullopt;
}

void DevicePool::release(const Lane& lane) {
  MutexLock lock(&mu_);
  devices_[lane.device]->load.release(lane.index);
}

std::vector<int64_t> DevicePool::shares(const Plan& plan, int64_t matrices, int64_t least) const {
  std::vector<Pace> paces;
  {
    const absl::Time now = clock_->now();
    MutexLock lock(&mu_);
    const bool gpu_busy = gpu_at_work({}, now);
    for (const auto& entry : devices_) {
      if (!entry->healthy || entry->avoided_until > now) continue;
      if (!entry->load.free_lane(absl::ZeroDuration(), now).has_value()) continue;
      if (gpu_busy && is_host(*entry->device)) continue;
      paces.push_back(pace_of(entry->costs, plan, matrices, absl::ToDoubleSeconds(entry->load.backlog(now))));
    }
  }
  if (paces.size() < 2) return {matrices};
  std::vector<int64_t> shares = shares_of(paces, matrices, least, plan.outputs.group);
  shares.erase(std::remove(shares.begin(), shares.end(), 0), shares.end());
  return shares;
}

int64_t DevicePool::matrices_within(const Plan& plan, const BatchBounds& bounds) const {
  const DeviceEntry* quickest = nullptr;
  absl::Duration least = absl::InfiniteDuration();
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  const bool gpu_busy = gpu_at_work({}, now);
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    const absl::Duration here = entry->costs.predict(plan, bounds.most).typical;
    if (here >= least || !takes(*entry->device, plan, here, gpu_busy)) continue;
    least = here;
    quickest = entry.get();
  }
  return quickest == nullptr ? bounds.most : full_batch(quickest->device->info(), quickest->costs, plan, bounds);
}

std::vector<DeviceCost> DevicePool::costs(const Plan& plan, int64_t matrices, const BatchBounds& bounds) const {
  std::vector<DeviceCost> costs;
  MutexLock lock(&mu_);
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    const DeviceInfo& info = entry->device->info();
    const int64_t batch = full_batch(info, entry->costs, plan, bounds);
    const CostEstimate request = entry->costs.predict(plan, matrices);
    costs.push_back({.device = info.name,
                     .is_gpu = info.kind != DeviceKind::kHost,
                     .threads = info.threads,
                     .request = request.typical,
                     .batch_matrices = batch,
                     .batch = entry->costs.predict(plan, batch).typical,
                     .measured = request.optimistic > absl::ZeroDuration()});
  }
  return costs;
}

absl::Duration DevicePool::earliest_done(const Plan& plan, int64_t matrices, int64_t ahead, bool divisible) const {
  const double n = static_cast<double>(ahead + matrices);
  std::vector<Pace> paces;
  absl::Duration alone = absl::InfiniteDuration();  // on one device, with nothing before it in line
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  const bool gpu_busy = gpu_at_work({}, now);
  for (const auto& entry : devices_) {
    if (!entry->healthy) continue;
    const CostEstimate own = entry->costs.predict(plan, matrices);
    if (!takes(*entry->device, plan, own.typical, gpu_busy)) continue;
    if (entry->load.idle()) return absl::ZeroDuration();
    const absl::Duration all = entry->costs.predict(plan, ahead + matrices).optimistic;
    if (all == absl::ZeroDuration()) return absl::ZeroDuration();  // it never ran here: nothing is known
    const absl::Duration backlog = entry->load.optimistic_backlog(now, own.typical);
    alone = std::min(alone, own.optimistic);
    paces.push_back({absl::ToDoubleSeconds(backlog), absl::ToDoubleSeconds(all) / n});
  }
  if (paces.empty()) return absl::ZeroDuration();
  const absl::Duration shared = absl::Seconds(earliest_finish(paces, n));
  return divisible ? shared : std::max(shared, alone);
}

// --- lanes ---------------------------------------------------------------------------------------

void DevicePool::run(const Lane& lane, LaneWork* work) {
  MutexLock lock(&mu_);
  LaneState* const state = devices_[lane.device]->lanes[lane.index].get();
  state->given = lane;
  state->work = work;
  state->wake.signal();
}

void DevicePool::run_lane(LaneState* lane) {
  mu_.lock();
  while (true) {
    if (lane->work != nullptr) {
      LaneWork* const work = std::exchange(lane->work, nullptr);
      const Lane given = *std::exchange(lane->given, std::nullopt);
      mu_.unlock();
      work->run(given);
      mu_.lock();
    } else if (stopping_) {
      break;
    } else {
      lane->wake.wait(&mu_);
    }
  }
  mu_.unlock();
}

DevicePool::Executed DevicePool::execute(const Lane& lane, const Plan& plan, absl::Span<const HostSegment> segments,
                                         const std::atomic<bool>* cancel, absl::AnyInvocable<void()> on_hung,
                                         absl::AnyInvocable<std::string()> calls) {
  Executed executed = execute_uncounted(lane, plan, segments, cancel, std::move(on_hung), std::move(calls));
  recorder_->phase_took(Phase::kCompute, executed.took);
  if (executed.outcome.status.ok() && executed.outcome.completed) recorder_->matrices_done(executed.outcome.report);
  return executed;
}

DevicePool::Executed DevicePool::execute_uncounted(const Lane& lane, const Plan& plan,
                                                   absl::Span<const HostSegment> segments,
                                                   const std::atomic<bool>* cancel, absl::AnyInvocable<void()> on_hung,
                                                   absl::AnyInvocable<std::string()> calls) {
  DeviceEntry& entry = *devices_[lane.device];
  const DeviceInfo& info = entry.device->info();
  const int64_t matrices = matrices_of(segments);
  Executed executed;
  executed.started = clock_->now();
  {
    MutexLock lock(&mu_);
    entry.load.begin(lane.index, executed.started);
  }
  DeviceOutcome& outcome = executed.outcome;
  std::optional<Watchdog::Watch> watch;
  if (!is_host(*entry.device)) {
    watch.emplace(&watchdog_, bound_of(entry.costs, plan, matrices), [&](absl::Duration silent) {
      log_fault(info, plan, matrices, {absl::DeadlineExceededError(silence(silent)), true, false, {}},
                calls ? calls() : "");
      take_out_hung(lane.device);
      if (on_hung) on_hung();
    });
  }
  outcome = execute_guarded(entry.device.get(), lane.index, plan, segments, cancel);
  const bool hung = watch.has_value() && watch->stop();
  if (outcome.status.ok() && !outcome.completed && !cancel->load(std::memory_order_relaxed)) {
    outcome.status = absl::InternalError("it cancelled the batch without being asked");
  }
  const bool clean = outcome.status.ok() && outcome.completed && !hung;
  const absl::Time ended = clock_->now();
  executed.took = ended - executed.started;
  {
    MutexLock lock(&mu_);
    executed.device_time = entry.load.end(lane.index, ended);
    if (clean) {
      entry.faults = 0;
      entry.avoided_until = absl::InfinitePast();
    }
  }
  if (clean) entry.costs.observe(plan, matrices, executed.device_time);
  if (hung) {
    log_warning("device_answered_late", {{"device", info.name}, {"after", absl::FormatDuration(executed.took)}});
    outcome.status = absl::UnavailableError("");
  } else if (!outcome.status.ok()) {
    log_fault(info, plan, matrices, outcome, calls ? calls() : "");
    on_fault(lane.device, outcome, ended);
  }
  if (!outcome.status.ok()) outcome.status = for_callers(info, outcome.status);
  return executed;
}

// --- faults --------------------------------------------------------------------------------------

void DevicePool::on_fault(int device, const DeviceOutcome& outcome, absl::Time now) {
  DeviceEntry& entry = *devices_[device];
  recorder_->device_fault(entry.device->info().name);
  {
    MutexLock lock(&mu_);
    if (!entry.healthy) return;
    const int doublings = std::min(entry.faults++, 30);
    entry.avoided_until = now + std::min(kFirstAvoidance * (int64_t{1} << doublings), kLongestAvoidance);
  }
  if (outcome.device_lost) take_out(device);
}

void DevicePool::take_out_hung(int device) {
  const std::string& name = info(device).name;
  recorder_->device_fault(name);
  recorder_->device_hung(name);
  take_out(device);
}

void DevicePool::take_out(int device) {
  DeviceEntry& entry = *devices_[device];
  {
    MutexLock lock(&mu_);
    if (!std::exchange(entry.healthy, false)) return;
    if (!is_host(*entry.device)) lost_gpus_.fetch_add(1, std::memory_order_release);
    healthy_.fetch_sub(1, std::memory_order_release);
  }
  recorder_->device_lost(entry.device->info().name);
}

std::optional<int> DevicePool::find(std::string_view device) const {
  for (int d = 0; d < size(); ++d) {
    if (info(d).name == device) return d;
  }
  return std::nullopt;
}

bool DevicePool::is_healthy(std::string_view device) const {
  const std::optional<int> found = find(device);
  if (!found.has_value()) return false;
  MutexLock lock(&mu_);
  return devices_[*found]->healthy;
}

void DevicePool::lost(std::string_view device) {
  if (const std::optional<int> found = find(device)) take_out(*found);
}

std::unique_ptr<Watchdog::Watch> DevicePool::watch(std::string_view device, absl::Duration bound,
                                                   Watchdog::OnHang on_hang) {
  const std::optional<int> found = find(device);
  if (!found.has_value() || is_host(*devices_[*found]->device)) return nullptr;
  return std::make_unique<Watchdog::Watch>(
      &watchdog_, bound, [this, d = *found, on_hang = std::move(on_hang)](absl::Duration silent) mutable {
        log_error("device_fault",
                  {{"device", info(d).name}, {"uuid", info(d).uuid}, {"error", silence(silent)}, {"lost", true}});
        take_out_hung(d);
        on_hang(silent);
      });
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
  const absl::Time now = clock_->now();
  MutexLock lock(&mu_);
  state.healthy = entry.healthy;
  state.outstanding_batches = entry.load.held();
  state.busy = entry.load.busy(now);
  return state;
}

}  // namespace svdserve::server
