// A process that is a member of a ring: started from this program, killed when it is not to be trusted any more.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/ranks/rank_socket.h"

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

// Null where this program may start itself as a rank: it begins with run_as_rank() (engine/large_engine.h), and the
// system knows where it is. Else why not.
std::atomic<const char*>& start_refusal();

class RankProcess {
 public:
  using Clock = std::chrono::steady_clock;
  // A killed process is gone in a second, or its driver hangs. Nobody waits longer then.
  static constexpr std::chrono::seconds kPatience{20};

  // This program with kRankArgument and `arguments`. Throws large::LargeStop.
  explicit RankProcess(const std::vector<std::string>& arguments);
  // end() in kPatience.
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  // From any thread, before end(). A thread that talks with it gets SocketClosed.
  void kill() const;
  // Kills it, and waits until it is gone with all that it held, but not beyond `until`. Later calls do nothing.
  void end(Clock::time_point until);
  RankSocket& socket() { return socket_; }

 private:
  std::pair<Descriptor, Descriptor> ends_;
  RankSocket socket_;
  pid_t process_ = -1;
};

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_PROCESS_H_
