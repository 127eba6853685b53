#include "server/device/large/large_runner.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace svdserve::server {

LargeRunner::LargeRunner(std::vector<LargeDevice> devices, Reserve reserve)
    : devices_(std::move(devices)), reserve_(std::move(reserve)), states_(devices_.size()) {
  for (int i = 0; i < size(); ++i) members_.push_back(device(i).is_gang() ? device(i).members : std::vector<int>{i});
  for (int i = 0; i < size(); ++i) {
    threads_.emplace_back([this, i] { serve(i); });
    if (device(i).is_gang()) continue;
    MutexLock lock(&mu_);
    ++preparing_;
    threads_.emplace_back([this, i] { prepare(i); });  // beside the first matrices, so that none waits for it
  }
}

LargeRunner::~LargeRunner() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.signal_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::optional<int64_t> LargeRunner::working_bytes(const LargePlan& plan, int index) const {
  const LargeDevice& by = device(index);
  const int64_t order = std::min(plan.problem.rows, plan.problem.cols);
  if (by.is_gang() && (order < by.least_order || !sweeps_on_ring(plan))) return std::nullopt;
  const LargeWorkspace memory = by.engine->memory(plan, static_cast<uint64_t>(by.memory_bytes));
  if (std::cmp_greater(memory.device_bytes, by.memory_bytes)) return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(memory.host_bytes, kMost));
}

std::vector<int> LargeRunner::candidates(const LargeDemand& demand) const {
  MutexLock lock(&mu_);
  return candidates_for(demand);
}

bool LargeRunner::is_healthy(int index) const {
  const std::vector<int>& all = members(index);
  const auto is_lost = [this](int m) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return state(m).lost; };
  return !is_lost(index) && std::none_of(all.begin(), all.end(), is_lost);
}

std::vector<int> LargeRunner::candidates_for(const LargeDemand& demand) const {
  std::vector<int> best;
  size_t most = 0;  // GPUs of each of them; the host has none
  for (int i = 0; i < size(); ++i) {
    if (!demand[static_cast<size_t>(i)].has_value() || !is_healthy(i)) continue;
    const size_t gpus = device(i).memory_bytes > 0 ? members(i).size() : 0;
    if (gpus > most) best.clear();
    most = std::max(most, gpus);
    if (gpus == most) best.push_back(i);
  }
  return best;
}

bool LargeRunner::submit(std::shared_ptr<LargeTask> task, LargeDemand demand, Position position) {
  MutexLock lock(&mu_);
  if (candidates_for(demand).empty()) return false;
  Waiting waiting{std::move(task), std::move(demand)};
  if (position == Position::kFirst) {
    queue_.push_front(std::move(waiting));
  } else {
    queue_.push_back(std::move(waiting));
  }
  dispatch();
  return true;
}

bool LargeRunner::withdraw(const LargeTask* task) {
  MutexLock lock(&mu_);
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [task](const Waiting& w) { return w.task.get() == task; });
  if (found == queue_.end()) return false;
  queue_.erase(found);
  dispatch();  // those behind it may have waited for it
  return true;
}

void LargeRunner::retry() {
  MutexLock lock(&mu_);
  dispatch();
}

LargeRunner::Loads LargeRunner::loads() const {
  Loads loads;
  loads.of_device.resize(devices_.size());
  MutexLock lock(&mu_);
  loads.held = held_;
  loads.preparing = preparing_;
  for (const Waiting& waiting : queue_) {
    const std::vector<int> candidates = candidates_for(waiting.demand);
    std::set<int> on;
    for (const int i : candidates) on.insert(members(i).begin(), members(i).end());
    for (const int m : on) ++loads.of_device[static_cast<size_t>(m)].waiting;
    ++loads.total.waiting;
    loads.gangs.waiting += device(candidates.front()).is_gang();
  }
  for (int i = 0; i < size(); ++i) {
    if (state(i).busy) loads.of_device[static_cast<size_t>(i)].running = 1;
    if (!state(i).running) continue;
    ++loads.total.running;
    loads.gangs.running += device(i).is_gang();
  }
  return loads;
}

int LargeRunner::count_missing(int index, const std::vector<bool>& free) const {
  const std::vector<int>& all = members(index);
  return static_cast<int>(
      std::count_if(all.begin(), all.end(), [&free](int m) { return !free[static_cast<size_t>(m)]; }));
}

int LargeRunner::gang_to_hold(const Waiting& waiting, const std::vector<int>& gangs,
                              const std::vector<bool>& free) const {
  if (std::find(gangs.begin(), gangs.end(), waiting.held) != gangs.end()) return waiting.held;
  return *std::min_element(gangs.begin(), gangs.end(),
                           [&](int a, int b) { return count_missing(a, free) < count_missing(b, free); });
}

int LargeRunner::begin(Waiting* waiting, std::vector<int> idle, bool may_reserve) {
  // A device that has less room for the matrix has more of it in the host's memory, and is slower by that.
  std::stable_sort(idle.begin(), idle.end(), [&demand = waiting->demand](int a, int b) {
    return demand[static_cast<size_t>(a)] < demand[static_cast<size_t>(b)];
  });
  for (const int i : idle) {
    const int64_t bytes = *waiting->demand[static_cast<size_t>(i)];
    Reservation memory;
    if ((bytes > 0 && !may_reserve) || !reserve_(bytes, &memory)) continue;
    state(i).running = true;
    state(i).next = {std::move(waiting->task), std::move(memory)};
    for (const int m : members(i)) state(m).busy = true;
    changed_.signal_all();
    return i;
  }
  return -1;
}

void LargeRunner::dispatch() {
  if (stopping_) return;
  std::vector<bool> free(devices_.size());  // idle, and not held for a task further in front
  const auto take_from_free = [&](int index) {
    for (const int m : members(index)) free[static_cast<size_t>(m)] = false;
  };
  for (int i = 0; i < size(); ++i) free[static_cast<size_t>(i)] = !state(i).busy && !state(i).lost;
  held_ = 0;
  bool held_up = false;  // a task in front has been passed by often enough
  for (auto it = queue_.begin(); it != queue_.end();) {
    const std::vector<int> candidates = candidates_for(it->demand);
    std::vector<int> idle;
    std::copy_if(candidates.begin(), candidates.end(), std::back_inserter(idle),
                 [&](int i) { return count_missing(i, free) == 0; });
    if (const int by = begin(&*it, idle, !held_up); by >= 0) {
      take_from_free(by);
      if (*it->demand[static_cast<size_t>(by)] > 0) {
        for (auto passed = queue_.begin(); passed != it; ++passed) {
          passed->passes += passed->lacks_memory;
          held_up = held_up || (passed->passes >= kMostPasses && passed->lacks_memory);
        }
      }
      it = queue_.erase(it);
      continue;
    }
    it->lacks_memory = !idle.empty();
    held_up = held_up || (it->passes >= kMostPasses && it->lacks_memory);
    if (device(candidates.front()).is_gang() && (idle.empty() || it->held >= 0)) {
      it->held = gang_to_hold(*it, candidates, free);
      held_ += static_cast<int64_t>(members(it->held).size()) - count_missing(it->held, free);
      take_from_free(it->held);
    }
    ++it;
  }
}

std::vector<std::shared_ptr<LargeTask>> LargeRunner::take_orphans() {
  std::vector<std::shared_ptr<LargeTask>> orphans;
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (candidates_for(it->demand).empty()) {
      orphans.push_back(std::move(it->task));
      it = queue_.erase(it);
    } else {
      ++it;
    }
  }
  return orphans;
}

void LargeRunner::tell_no_device(const std::vector<std::shared_ptr<LargeTask>>& orphans) {
  for (const auto& task : orphans) task->on_no_device();
}

std::vector<std::shared_ptr<LargeTask>> LargeRunner::lose(int index) {
  state(index).lost = true;
  return take_orphans();
}

void LargeRunner::mark_lost(int index) {
  std::vector<std::shared_ptr<LargeTask>> orphans;
  {
    MutexLock lock(&mu_);
    if (state(index).lost) return;
    orphans = lose(index);
    dispatch();  // its work is for others
  }
  tell_no_device(orphans);
}

void LargeRunner::prepare(int index) {
  device(index).engine->prepare();
  MutexLock lock(&mu_);
  --preparing_;
}

void LargeRunner::serve(int index) {
  mu_.lock();
  while (true) {
    while (!stopping_ && state(index).next.task == nullptr) changed_.wait(&mu_);
    Taken taken = std::exchange(state(index).next, {});
    if (taken.task == nullptr) break;
    mu_.unlock();
    const bool good = taken.task->run(index, std::move(taken.memory));
    taken.task.reset();
    mu_.lock();
    state(index).running = false;
    for (const int m : members(index)) state(m).busy = false;
    std::vector<std::shared_ptr<LargeTask>> orphans;
    if (!good) orphans = lose(index);
    dispatch();  // its memory is free, or its work is for others
    mu_.unlock();
    tell_no_device(orphans);
    orphans.clear();
    mu_.lock();
  }
  mu_.unlock();
}

}  // namespace svdserve::server
