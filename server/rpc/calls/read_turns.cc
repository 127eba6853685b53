#include "server/rpc/calls/read_turns.h"

#include <utility>
#include <vector>

namespace svdserve::server {

bool ReadTurns::fits(const Line& line, int64_t excess) const {
  return line.excess == 0 || excess <= limits_.excess - line.excess;
}

ReadTurns::Begun ReadTurns::begin(const Peer& peer, int64_t excess, ReadWaiter* call) {
  if (excess == 0) return Begun::kReads;
  MutexLock lock(&mu_);
  Line& line = lines_[peer];
  if (!line.waiting.empty() || !fits(line, excess)) {
    if (std::cmp_greater_equal(places_.size(), limits_.waiting) ||
        std::cmp_greater_equal(line.waiting.size(), limits_.of_a_peer)) {
      return Begun::kRefused;
    }
    places_[call] = {peer, line.waiting.insert(line.waiting.end(), {call, excess})};
    return Begun::kWaits;
  }
  line.excess += excess;
  return Begun::kReads;
}

void ReadTurns::end(const Peer& peer, int64_t excess) {
  if (excess == 0) return;
  std::vector<ReadWaiter*> told;
  {
    MutexLock lock(&mu_);
    const auto at = lines_.find(peer);
    Line& line = at->second;
    line.excess -= excess;
    while (!line.waiting.empty() && fits(line, line.waiting.front().excess)) {
      const Waiting next = line.waiting.front();
      line.waiting.pop_front();
      places_.erase(next.call);
      line.excess += next.excess;
      told.push_back(next.call);
    }
    if (line.excess == 0) lines_.erase(at);
  }
  for (ReadWaiter* const call : told) call->on_turn();
}

bool ReadTurns::leave(ReadWaiter* call) {
  MutexLock lock(&mu_);
  const auto place = places_.find(call);
  if (place == places_.end()) return false;
  lines_.find(place->second.first)->second.waiting.erase(place->second.second);
  places_.erase(place);
  return true;
}

bool ReadTurns::is_awaited(const Peer& peer) const {
  MutexLock lock(&mu_);
  const auto at = lines_.find(peer);
  return at != lines_.end() && !at->second.waiting.empty();
}

}  // namespace svdserve::server
