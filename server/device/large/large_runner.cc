#include "server/device/large/large_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace svdserve::server {

LargeRunner::LargeRunner(std::vector<LargeDevice> devices, Reserve reserve)
    : devices_(std::move(devices)), reserve_(std::move(reserve)), states_(devices_.size()) {
  for (int i = 0; i < size(); ++i) threads_.emplace_back([this, i] { serve(i); });
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
  const LargeWorkspace memory = device(index).engine->memory(plan);
  if (std::cmp_greater(memory.device_bytes, device(index).memory_bytes)) return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(memory.host_bytes, kMost));
}

std::vector<int> LargeRunner::candidates(const LargeDemand& demand) const {
  MutexLock lock(&mu_);
  return candidates_for(demand);
}

std::vector<int> LargeRunner::candidates_for(const LargeDemand& demand) const {
  std::vector<int> with_memory, hosts;
  for (int i = 0; i < size(); ++i) {
    if (state(i).lost || !demand[static_cast<size_t>(i)].has_value()) continue;
    (device(i).memory_bytes > 0 ? with_memory : hosts).push_back(i);
  }
  return with_memory.empty() ? hosts : with_memory;
}

bool LargeRunner::has_idle_candidate(const LargeDemand& demand) const {
  for (const int i : candidates_for(demand)) {
    if (!state(i).running) return true;
  }
  return false;
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
  changed_.signal_all();
  return true;
}

bool LargeRunner::withdraw(const LargeTask* task) {
  MutexLock lock(&mu_);
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [task](const Waiting& w) { return w.task.get() == task; });
  if (found == queue_.end()) return false;
  queue_.erase(found);
  changed_.signal_all();  // those behind it may have waited for it
  return true;
}

void LargeRunner::retry() {
  MutexLock lock(&mu_);
  if (!queue_.empty()) changed_.signal_all();
}

LargeRunner::Loads LargeRunner::loads() const {
  Loads loads;
  loads.of_device.resize(devices_.size());
  MutexLock lock(&mu_);
  loads.total.waiting = static_cast<int64_t>(queue_.size());
  for (const Waiting& waiting : queue_) {
    for (const int i : candidates_for(waiting.demand)) ++loads.of_device[static_cast<size_t>(i)].waiting;
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    loads.of_device[i].running = states_[i].running ? 1 : 0;
    loads.total.running += loads.of_device[i].running;
  }
  return loads;
}

LargeRunner::Taken LargeRunner::take(int index) {
  bool held_up = false;  // a task in front has been passed by often enough
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    const std::vector<int> candidates = candidates_for(it->demand);
    if (std::find(candidates.begin(), candidates.end(), index) != candidates.end()) {
      const int64_t bytes = *it->demand[static_cast<size_t>(index)];
      Taken taken;
      if ((bytes == 0 || !held_up) && reserve_(bytes, &taken.memory)) {
        if (bytes > 0) {
          for (auto passed = queue_.begin(); passed != it; ++passed)
            passed->passes += has_idle_candidate(passed->demand);
        }
        taken.task = std::move(it->task);
        queue_.erase(it);
        return taken;
      }
    }
    held_up = held_up || (it->passes >= kMostPasses && has_idle_candidate(it->demand));
  }
  return {};
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

void LargeRunner::tell_no_device(std::vector<std::shared_ptr<LargeTask>> orphans) {
  for (const auto& task : orphans) task->on_no_device();
}

void LargeRunner::mark_lost(int index) {
  std::vector<std::shared_ptr<LargeTask>> orphans;
  {
    MutexLock lock(&mu_);
    if (state(index).lost) return;
    state(index).lost = true;
    orphans = take_orphans();
    changed_.signal_all();  // its work is for others
  }
  tell_no_device(std::move(orphans));
}

void LargeRunner::serve(int index) {
  mu_.lock();
  while (!stopping_ && !state(index).lost) {
    Taken taken = take(index);
    if (taken.task == nullptr) {
      changed_.wait(&mu_);
      continue;
    }
    state(index).running = true;
    mu_.unlock();
    const bool good = taken.task->run(index, std::move(taken.memory));
    taken.task.reset();
    mu_.lock();
    state(index).running = false;
    if (!good) state(index).lost = true;
    changed_.signal_all();  // its memory is free, or its work is for others
    if (good) continue;
    std::vector<std::shared_ptr<LargeTask>> orphans = take_orphans();
    mu_.unlock();
    tell_no_device(std::move(orphans));
    mu_.lock();
  }
  mu_.unlock();
}

}  // namespace svdserve::server
