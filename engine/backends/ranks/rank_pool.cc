#include "engine/backends/ranks/rank_pool.h"

#include <algorithm>
#include <iterator>
#include <system_error>

namespace svdserve::ranks {
namespace {

using Clock = RankProcess::Clock;

// Kills them all, and waits for them together.
void end_all(std::vector<RankRing> rings, std::chrono::milliseconds time) {
  std::vector<std::unique_ptr<RankProcess>> all;
  for (RankRing& ring : rings) {
    std::move(ring.processes.begin(), ring.processes.end(), std::back_inserter(all));
  }
  std::erase(all, nullptr);
  for (const auto& process : all) process->kill();
  const auto until = Clock::now() + time;
  for (const auto& process : all) process->end(until);
}

std::vector<RankRing> only(RankRing ring) {
  std::vector<RankRing> rings;
  rings.push_back(std::move(ring));
  return rings;
}

}  // namespace

RankLease::~RankLease() {
  if (sound_) {
    pool_.keep(std::move(ring_));
  } else {
    end_all(only(std::move(ring_)), times_.end);
  }
}

std::chrono::milliseconds RankLease::time_to_leave() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (!leaves_by_) leaves_by_ = now + times_.work;
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(*leaves_by_ - now), std::chrono::milliseconds(0));
}

void RankLease::end(int member) {
  const std::lock_guard lock(mutex_);
  for (const auto& process : ring_.processes) {
    if (process != nullptr) process->kill();
  }
  if (!ends_by_) ends_by_ = Clock::now() + times_.end;
  std::unique_ptr<RankProcess>& own = ring_.processes[static_cast<size_t>(member)];
  own->end(*ends_by_);
  own.reset();
}

const SharedBlock& RankLease::common(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!has_common_ && bytes > 0) common_ = share_host_memory(bytes);
  has_common_ = true;
  return common_;
}

void RankLease::name_ring(std::string name) {
  const std::lock_guard lock(mutex_);
  name_ = std::move(name);
}

std::string RankLease::ring_name() const {
  const std::lock_guard lock(mutex_);
  return name_;
}

RankPool::RankPool(std::vector<std::string> arguments, const RankTimes& times)
    : arguments_(std::move(arguments)), times_(times) {}

RankPool::~RankPool() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (idle_thread_.joinable()) idle_thread_.join();
  end_all(std::move(idle_), times_.end);
}

std::shared_ptr<RankLease> RankPool::take(const std::vector<int>& devices) {
  RankRing ring;
  {
    const std::lock_guard lock(mutex_);
    const auto at =
        std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& idle) { return idle.devices == devices; });
    if (at != idle_.rend()) {
      ring = std::move(*at);
      idle_.erase(std::next(at).base());
    }
  }
  const auto& idle = ring.processes;
  if (!std::all_of(idle.begin(), idle.end(), [](const auto& process) { return process->socket().is_quiet(); })) {
    end_all(only(std::exchange(ring, {})), times_.end);  // one of them has ended
  }
  ring.devices = devices;
  try {
    for (size_t i = ring.processes.size(); i < devices.size(); ++i) {
      std::vector<std::string> arguments = arguments_;
      arguments.push_back(std::to_string(devices[i]));
      ring.processes.push_back(std::make_unique<RankProcess>(arguments));
    }
  } catch (...) {
    end_all(only(std::move(ring)), times_.end);
    throw;
  }
  return std::make_shared<RankLease>(*this, std::move(ring), times_);
}

void RankPool::keep(RankRing ring) {
  std::vector<RankRing> ending;
  {
    const std::lock_guard lock(mutex_);
    ring.idle_since = Clock::now();
    idle_.push_back(std::move(ring));
    if (idle_.size() > kMostIdle) {
      ending.push_back(std::move(idle_.front()));
      idle_.erase(idle_.begin());
    }
    try {
      if (!idle_thread_.joinable()) idle_thread_ = std::thread([this] { end_idle(); });
    } catch (const std::system_error&) {  // without a thread nobody would end them
      std::move(idle_.begin(), idle_.end(), std::back_inserter(ending));
      idle_.clear();
    }
  }
  changed_.notify_all();
  end_all(std::move(ending), times_.end);
}

void RankPool::end_idle() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (idle_.empty()) {
      changed_.wait(lock);
      continue;
    }
    if (changed_.wait_until(lock, idle_.front().idle_since + times_.idle) == std::cv_status::no_timeout) continue;
    std::vector<RankRing> ending;
    const auto before = Clock::now() - times_.idle;
    while (!idle_.empty() && idle_.front().idle_since <= before) {
      ending.push_back(std::move(idle_.front()));
      idle_.erase(idle_.begin());
    }
    lock.unlock();
    end_all(std::move(ending), times_.end);
    lock.lock();
  }
}

}  // namespace svdserve::ranks
