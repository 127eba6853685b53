#include "server/device/large/factor_runner.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace svdserve::server {

FactorRunner::FactorRunner(std::vector<FactorDevice> devices, Reserve reserve)
    : devices_(std::move(devices)), reserve_(std::move(reserve)), states_(devices_.size()) {
  for (int i = 0; i < size(); ++i) threads_.emplace_back([this, i] { Serve(i); });
}

FactorRunner::~FactorRunner() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::optional<int64_t> FactorRunner::WorkingBytes(const FactorPlan& plan, int index) const {
  const FactorMemory memory = device(index).engine->memory(plan);
  if (std::cmp_greater(memory.device_bytes, device(index).memory_bytes)) return std::nullopt;
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(memory.host_bytes, kMost));
}

std::vector<int> FactorRunner::Candidates(const FactorDemand& demand) const {
  MutexLock lock(&mu_);
  return CandidatesFor(demand);
}

std::vector<int> FactorRunner::CandidatesFor(const FactorDemand& demand) const {
  std::vector<int> with_memory, hosts;
  for (int i = 0; i < size(); ++i) {
    if (state(i).lost || !demand[static_cast<size_t>(i)].has_value()) continue;
    (device(i).memory_bytes > 0 ? with_memory : hosts).push_back(i);
  }
  return with_memory.empty() ? hosts : with_memory;
}

bool FactorRunner::HasIdleCandidate(const FactorDemand& demand) const {
  for (const int i : CandidatesFor(demand)) {
    if (!state(i).running) return true;
  }
  return false;
}

bool FactorRunner::Submit(std::shared_ptr<FactorTask> task, FactorDemand demand, Position position) {
  MutexLock lock(&mu_);
  if (CandidatesFor(demand).empty()) return false;
  Waiting waiting{std::move(task), std::move(demand)};
  if (position == Position::kFirst) {
    queue_.push_front(std::move(waiting));
  } else {
    queue_.push_back(std::move(waiting));
  }
  changed_.SignalAll();
  return true;
}

bool FactorRunner::Withdraw(const FactorTask* task) {
  MutexLock lock(&mu_);
  const auto found =
      std::find_if(queue_.begin(), queue_.end(), [task](const Waiting& w) { return w.task.get() == task; });
  if (found == queue_.end()) return false;
  queue_.erase(found);
  changed_.SignalAll();  // those behind it may have waited for it
  return true;
}

void FactorRunner::Retry() {
  MutexLock lock(&mu_);
  if (!queue_.empty()) changed_.SignalAll();
}

FactorRunner::Loads FactorRunner::loads() const {
  Loads loads;
  loads.of_device.resize(devices_.size());
  MutexLock lock(&mu_);
  loads.total.waiting = static_cast<int64_t>(queue_.size());
  for (const Waiting& waiting : queue_) {
    for (const int i : CandidatesFor(waiting.demand)) ++loads.of_device[static_cast<size_t>(i)].waiting;
  }
  for (size_t i = 0; i < states_.size(); ++i) {
    loads.of_device[i].running = states_[i].running ? 1 : 0;
    loads.total.running += loads.of_device[i].running;
  }
  return loads;
}

FactorRunner::Taken FactorRunner::Take(int index) {
  bool held_up = false;  // a task in front has been passed by often enough
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    const std::vector<int> candidates = CandidatesFor(it->demand);
    if (std::find(candidates.begin(), candidates.end(), index) != candidates.end()) {
      const int64_t bytes = *it->demand[static_cast<size_t>(index)];
      Taken taken;
      if ((bytes == 0 || !held_up) && reserve_(bytes, &taken.memory)) {
        if (bytes > 0) {
          for (auto passed = queue_.begin(); passed != it; ++passed) passed->passes += HasIdleCandidate(passed->demand);
        }
        taken.task = std::move(it->task);
        queue_.erase(it);
        return taken;
      }
    }
    held_up = held_up || (it->passes >= kMostPasses && HasIdleCandidate(it->demand));
  }
  return {};
}

std::vector<std::shared_ptr<FactorTask>> FactorRunner::TakeOrphans() {
  std::vector<std::shared_ptr<FactorTask>> orphans;
  for (auto it = queue_.begin(); it != queue_.end();) {
    if (CandidatesFor(it->demand).empty()) {
      orphans.push_back(std::move(it->task));
      it = queue_.erase(it);
    } else {
      ++it;
    }
  }
  return orphans;
}

void FactorRunner::TellNoDevice(std::vector<std::shared_ptr<FactorTask>> orphans) {
  for (const auto& task : orphans) task->OnNoDevice();
}

void FactorRunner::MarkLost(int index) {
  std::vector<std::shared_ptr<FactorTask>> orphans;
  {
    MutexLock lock(&mu_);
    if (state(index).lost) return;
    state(index).lost = true;
    orphans = TakeOrphans();
    changed_.SignalAll();  // its work is for others
  }
  TellNoDevice(std::move(orphans));
}

void FactorRunner::Serve(int index) {
  mu_.Lock();
  while (!stopping_ && !state(index).lost) {
    Taken taken = Take(index);
    if (taken.task == nullptr) {
      changed_.Wait(&mu_);
      continue;
    }
    state(index).running = true;
    mu_.Unlock();
    const bool good = taken.task->Run(index, std::move(taken.memory));
    taken.task.reset();
    mu_.Lock();
    state(index).running = false;
    if (!good) state(index).lost = true;
    changed_.SignalAll();  // its memory is free, or its work is for others
    if (good) continue;
    std::vector<std::shared_ptr<FactorTask>> orphans = TakeOrphans();
    mu_.Unlock();
    TellNoDevice(std::move(orphans));
    mu_.Lock();
  }
  mu_.Unlock();
}

}  // namespace svdserve::server
