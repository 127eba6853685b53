// Processes that are members of a ring: started from this program, killed when they are not to be trusted any more.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_socket.h"
#include "engine/backends/ranks/shared_memory.h"

namespace svdserve::ranks {

// The arguments of a program that is to be a rank begin with this. The kind of rank and its device follow.
inline constexpr char kRankArgument[] = "--svdserve-rank";

// In a rank: its end of the socket. From now on the process ends with its leader. Signals that a terminal or a service
// manager sends to all of a group do not end it. It has no other descriptor of its leader's but the standard ones.
Descriptor begin_rank();

// The build ID of the program or plugin that has this code in it; empty: it has none.
std::string own_build();

// A program that is to start ranks calls it first. Ranks that have ended are to be waited for, also where this process
// was started with SIGCHLD ignored. Else their numbers would be those of others, and kill() would kill these.
void begin_leader();

// Whether this program begins with run_as_rank() (engine/large_engine.h). Else it must not be started again as a rank.
std::atomic<bool>& may_start();

class RankProcess {
 public:
  // This program with kRankArgument and `arguments`. Throws large::LargeStop.
  explicit RankProcess(const std::vector<std::string>& arguments);
  // Kills it, and waits until it is gone with all that it held.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // From any thread. A thread that talks with it gets SocketClosed.
  void kill() const;
  RankSocket& socket() { return socket_; }

 private:
  std::pair<Descriptor, Descriptor> ends_;
  RankSocket socket_;
  pid_t process_ = -1;
};

// The ranks of one ring, in the order of its members.
struct RankRing {
  std::vector<int> devices;
  std::vector<std::unique_ptr<RankProcess>> processes;
};

class RankPool;

// The members of a ring share it while they sweep one matrix. Thread safe.
class RankLease {
 public:
  RankLease(RankPool& pool, RankRing ring) : pool_(pool), ring_(std::move(ring)) {}
  // Ranks that nothing is wrong with are kept for the next matrix.
  ~RankLease();
  RankLease(const RankLease&) = delete;
  RankLease& operator=(const RankLease&) = delete;

  int members() const { return static_cast<int>(ring_.processes.size()); }
  RankProcess& process(int member) const { return *ring_.processes[static_cast<size_t>(member)]; }
  // Something is wrong with one of them. They all are to end, once nobody waits for them any more.
  void give_up() { sound_ = false; }
  bool is_sound() const { return sound_; }
  // Kills them all, and waits until that of `member` is gone.
  void end(int member);
  // One block for all of them. The first call decides how many bytes it has; 0: there is none.
  const SharedBlock& common(uint64_t bytes);
  // The name of the ring by which its ranks find each other: the first member tells it, before others ask.
  void name_ring(std::string name);
  std::string ring_name() const;

 private:
  RankPool& pool_;
  RankRing ring_;
  std::atomic<bool> sound_{true};
  mutable std::mutex mutex_;
  bool has_common_ = false;
  SharedBlock common_;
  std::string name_;
};

// Starts ranks, and keeps those that are idle, of the last kMostIdle rings. It outlives its leases. Thread safe.
class RankPool {
 public:
  // arguments: of the ranks, before their device.
  explicit RankPool(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}
  // The ranks of a ring of these devices: those that served the last such ring, where they are idle. Throws
  // large::LargeStop.
  std::shared_ptr<RankLease> take(const std::vector<int>& devices);
  static constexpr size_t kMostIdle = 8;

 private:
  friend class RankLease;
  void keep(RankRing ring);

  const std::vector<std::string> arguments_;
  std::mutex mutex_;
  std::vector<RankRing> idle_;  // the oldest first
};

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_
