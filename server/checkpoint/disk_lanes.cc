#include "server/checkpoint/disk_lanes.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/mutex.h"

namespace svdserve::server {

// Guarded by the lanes' lock.
class DiskLanes::Lane {
 public:
  std::deque<Task> tasks;
  bool busy = false;  // it waits for a thread, or has one
};

namespace {

// A thread that was left behind has these. Nobody may have either any more.
void keep_for_ever(DiskLanes::Task task, DiskLanes::After after) {
  static Mutex mu;
  static auto* const kept = new std::vector<std::pair<DiskLanes::Task, DiskLanes::After>>();
  MutexLock lock(&mu);
  kept->emplace_back(std::move(task), std::move(after));
}

}  // namespace

// The threads share it, since they may outlive the lanes.
struct DiskLanes::State : std::enable_shared_from_this<DiskLanes::State> {
  Mutex mu;
  CondVar changed;
  std::deque<std::shared_ptr<Lane>> ready ABSL_GUARDED_BY(mu);    // wait for a thread
  std::vector<std::shared_ptr<Lane>> served ABSL_GUARDED_BY(mu);  // have one
  size_t idle ABSL_GUARDED_BY(mu) = 0, threads ABSL_GUARDED_BY(mu) = 0;
  size_t after ABSL_GUARDED_BY(mu) = 0;  // threads for which the disk has done its part
  bool ending ABSL_GUARDED_BY(mu) = false, left_behind ABSL_GUARDED_BY(mu) = false;

  // False: the system has none.
  bool begin_thread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    try {
      std::thread([self = shared_from_this()] { self->serve(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++threads;
    return true;
  }
  void serve();
  // Until the lane is empty. False: the thread was left behind.
  bool serve_lane(Lane* lane) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    while (!lane->tasks.empty() && !left_behind) {
      Task task = std::move(lane->tasks.front());
      lane->tasks.pop_front();
      mu.unlock();
      After then = task();
      mu.lock();
      if (left_behind) {
        keep_for_ever(std::move(task), std::move(then));
        return false;
      }
      ++after;
      mu.unlock();
      if (then) then();
      then = nullptr;
      task = nullptr;
      mu.lock();
      --after;
      changed.signal_all();
    }
    return true;
  }
};

DiskLanes::DiskLanes(std::chrono::milliseconds patience) : patience_(patience), state_(std::make_shared<State>()) {
  MutexLock lock(&state_->mu);
  if (!state_->begin_thread()) throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
}

DiskLanes::~DiskLanes() {
  std::deque<Task> never_begun;
  State& s = *state_;
  MutexLock lock(&s.mu);
  s.ending = true;
  s.changed.signal_all();
  const auto end = std::chrono::steady_clock::now() + patience_;
  while (s.threads > 0 && std::chrono::steady_clock::now() < end) s.changed.wait_until(&s.mu, end);
  s.left_behind = true;
  while (s.after > 0) s.changed.wait(&s.mu);
  s.served.insert(s.served.end(), s.ready.begin(), s.ready.end());
  s.ready.clear();
  for (const auto& lane : s.served) {
    std::move(lane->tasks.begin(), lane->tasks.end(), std::back_inserter(never_begun));
    lane->tasks.clear();
  }
}

std::shared_ptr<DiskLanes::Lane> DiskLanes::make_lane() { return std::make_shared<Lane>(); }

void DiskLanes::push(const std::shared_ptr<Lane>& lane, Task task) {
  MutexLock lock(&state_->mu);
  lane->tasks.push_back(std::move(task));
  if (std::exchange(lane->busy, true)) return;
  state_->ready.push_back(lane);
  // Without another thread, one of those that are there takes it later.
  if (state_->ready.size() > state_->idle) (void)state_->begin_thread();
  state_->changed.signal_all();
}

void DiskLanes::State::serve() {
  MutexLock lock(&mu);
  for (;;) {
    // One thread stays for the next task.
    if (ready.empty() && (ending || idle > 0)) break;
    if (ready.empty()) {
      ++idle;
      changed.wait(&mu);
      --idle;
      continue;
    }
    const std::shared_ptr<Lane> lane = std::move(ready.front());
    ready.pop_front();
    served.push_back(lane);
    if (!serve_lane(lane.get())) return;
    lane->busy = false;
    std::erase(served, lane);
  }
  --threads;
  changed.signal_all();
}

}  // namespace svdserve::server
