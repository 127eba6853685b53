#include "server/device/factor_runner.h"

#include <algorithm>
#include <utility>

namespace svdserve::server {

FactorRunner::FactorRunner(std::vector<FactorDevice> devices) {
  for (FactorDevice& device : devices) {
    Line* const line = lines_.emplace_back(std::make_unique<Line>(std::move(device))).get();
    line->thread = std::thread([line] { Serve(line); });
  }
}

FactorRunner::~FactorRunner() {
  for (const auto& line : lines_) {
    MutexLock lock(&line->mu);
    line->stopping = true;
    line->changed.Signal();
  }
  for (const auto& line : lines_) line->thread.join();
}

bool FactorRunner::Fits(const FactorPlan& plan, int index) const {
  const FactorDevice& d = device(index);
  return std::cmp_less_equal(d.engine->memory(plan).device_bytes, d.memory_bytes);
}

int FactorRunner::Choose(const FactorPlan& plan, const std::vector<int>& except) const {
  int best = -1;
  size_t shortest = 0;
  for (int i = 0; i < size(); ++i) {
    const Line& line = *lines_[static_cast<size_t>(i)];
    if (!Fits(plan, i) || std::find(except.begin(), except.end(), i) != except.end()) continue;
    // The host is no company for GPUs: it takes what no GPU can, however long their lines are.
    if (best >= 0 && line.device.memory_bytes == 0) continue;
    MutexLock lock(&line.mu);
    const size_t length = line.waiting.size() + (line.running ? 1 : 0);
    if (line.lost || (best >= 0 && length >= shortest)) continue;
    best = i;
    shortest = length;
  }
  return best;
}

void FactorRunner::Submit(int index, std::shared_ptr<FactorTask> task) {
  Line& line = *lines_[static_cast<size_t>(index)];
  MutexLock lock(&line.mu);
  line.waiting.push_back(std::move(task));
  line.changed.Signal();
}

bool FactorRunner::Withdraw(int index, const FactorTask* task) {
  Line& line = *lines_[static_cast<size_t>(index)];
  MutexLock lock(&line.mu);
  const auto found = std::find_if(line.waiting.begin(), line.waiting.end(),
                                  [task](const std::shared_ptr<FactorTask>& t) { return t.get() == task; });
  if (found == line.waiting.end()) return false;
  line.waiting.erase(found);
  return true;
}

FactorRunner::Load FactorRunner::load(int index) const {
  const Line& line = *lines_[static_cast<size_t>(index)];
  MutexLock lock(&line.mu);
  return {static_cast<int64_t>(line.waiting.size()), line.running ? 1 : 0};
}

void FactorRunner::Serve(Line* line) {
  line->mu.Lock();
  while (!line->stopping) {
    if (line->waiting.empty()) {
      line->changed.Wait(&line->mu);
      continue;
    }
    std::shared_ptr<FactorTask> task = std::move(line->waiting.front());
    line->waiting.pop_front();
    const bool lost = line->lost;
    line->running = !lost;
    line->mu.Unlock();
    bool good = false;
    if (lost) {
      task->OnDeviceLost();
    } else {
      good = task->Run(*line->device.engine);
    }
    task.reset();
    line->mu.Lock();
    line->running = false;
    line->lost = !good;
  }
  line->mu.Unlock();
}

}  // namespace svdserve::server
