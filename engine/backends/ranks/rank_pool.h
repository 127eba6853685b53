// The ranks of rings: lent to one matrix, kept for the next one, and ended together.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_POOL_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_POOL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/shared_memory.h"

namespace svdserve::ranks {

// All ranks of a ring together have each of these times.
struct RankTimes {
  // Without work; then they end.
  std::chrono::milliseconds idle{60'000};
  // To leave a matrix, where nothing is wrong. A rank that takes longer is killed.
  std::chrono::milliseconds work{10'000};
  // To be gone once they are killed.
  std::chrono::milliseconds end{RankProcess::kPatience};
};

// The ranks of one ring, in the order of its members.
struct RankRing {
  std::vector<int> devices;
  std::vector<std::unique_ptr<RankProcess>> processes;
  RankProcess::Clock::time_point idle_since;
};

class RankPool;

// The members of a ring share it while they sweep one matrix. A member that was late may keep it when the pool is gone; it
// is not sound then. Thread safe.
class RankLease {
 public:
  RankLease(RankPool& pool, RankRing ring, const RankTimes& times)
      : pool_(pool), times_(times), ring_(std::move(ring)) {}
  // Ranks that nothing is wrong with are kept for the next matrix.
  ~RankLease();
  RankLease(const RankLease&) = delete;
  RankLease& operator=(const RankLease&) = delete;

  int members() const { return static_cast<int>(ring_.processes.size()); }
  RankProcess& process(int member) const { return *ring_.processes[static_cast<size_t>(member)]; }
  // Something is wrong with one of them. They all are to end, once nobody waits for them any more.
  void give_up() { sound_ = false; }
  bool is_sound() const { return sound_; }
  // How long a member may still be waited for that was told to leave the matrix.
  std::chrono::milliseconds time_to_leave();
  // Kills them all, and waits until that of `member` is gone. The first call decides how long all are waited for.
  void end(int member);
  // One block for all of them. The first call decides how many bytes it has; 0: there is none.
  const SharedBlock& common(uint64_t bytes);
  // The name of the ring by which its ranks find each other: the first member tells it, before others ask.
  void name_ring(std::string name);
  std::string ring_name() const;

 private:
  using Clock = RankProcess::Clock;

  RankPool& pool_;  // used only where sound_
  const RankTimes times_;
  RankRing ring_;
  std::atomic<bool> sound_{true};
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> leaves_by_, ends_by_;
  bool has_common_ = false;
  SharedBlock common_;
  std::string name_;
};

// Starts ranks, and keeps those that are idle for a while, of the last kMostIdle rings. It outlives its leases that are
// sound. Thread safe.
class RankPool {
 public:
  // arguments: of the ranks, before their device.
  explicit RankPool(std::vector<std::string> arguments, const RankTimes& times = {});
  ~RankPool();
  RankPool(const RankPool&) = delete;
  RankPool& operator=(const RankPool&) = delete;

  // The ranks of a ring of these devices: those that served the last such ring, where they are idle. Throws
  // large::LargeStop.
  std::shared_ptr<RankLease> take(const std::vector<int>& devices);
  static constexpr size_t kMostIdle = 8;

 private:
  friend class RankLease;
  void keep(RankRing ring);
  // On a thread of its own, while there are idle ranks.
  void end_idle();

  const std::vector<std::string> arguments_;
  const RankTimes times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<RankRing> idle_;  // the oldest first
  bool ends_ = false;
  std::thread idle_thread_;
};

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_POOL_H_
