// Turns to read. gRPC receives a message whole before it shows anything of it, its length included. So a read may bring
// the largest message that there is, whatever its call has announced and claimed. The difference is the read's excess.
#ifndef SVDSERVE_SERVER_RPC_CALLS_READ_TURNS_H_
#define SVDSERVE_SERVER_RPC_CALLS_READ_TURNS_H_

#include <cstdint>
#include <limits>
#include <list>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"
#include "server/peer.h"

namespace svdserve::server {

// A call that waits for its turn. on_turn() is called once, on any thread and under no lock, unless the call has left.
class ReadWaiter {
 public:
  virtual void on_turn() = 0;

 protected:
  ~ReadWaiter() = default;
};

// Bounds the sum of the excesses of one peer's reads; beyond it the peer's calls wait, first come, first served. A read
// without an excess never waits, and one whose excess is over the bound is read when it is the only one. Thread-safe.
class ReadTurns {
 public:
  struct Limits {
    int64_t excess = 0;                                       // of one peer
    int64_t waiting = std::numeric_limits<int64_t>::max();    // calls of all peers
    int64_t of_a_peer = std::numeric_limits<int64_t>::max();  // that wait
  };
  enum class Begun { kReads, kWaits, kRefused };

  explicit ReadTurns(const Limits& limits) : limits_(limits) {}

  // kReads: the read may begin. kWaits: `call` waits, and lives until it is told or has left. kRefused: too many wait.
  Begun begin(const Peer& peer, int64_t excess, ReadWaiter* call);
  // A read that began has ended.
  void end(const Peer& peer, int64_t excess);
  // Takes a call out of the line. False: it is not there, since it was told or will be in a moment.
  bool leave(ReadWaiter* call);
  // Whether a call of the peer waits.
  bool is_awaited(const Peer& peer) const;

 private:
  struct Waiting {
    ReadWaiter* call;
    int64_t excess;
  };
  struct Line {
    int64_t excess = 0;  // of the reads that are going on; a line whose reads have ended is empty
    std::list<Waiting> waiting;
  };
  using Place = std::pair<Peer, std::list<Waiting>::iterator>;

  bool fits(const Line& line, int64_t excess) const;

  const Limits limits_;
  mutable Mutex mu_;
  absl::flat_hash_map<Peer, Line> lines_ ABSL_GUARDED_BY(mu_);           // of peers that read
  absl::flat_hash_map<ReadWaiter*, Place> places_ ABSL_GUARDED_BY(mu_);  // of those that wait
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_READ_TURNS_H_
