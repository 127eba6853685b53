#include "server/rpc/calls/read_turns.h"

#include <vector>

namespace svdserve::server {

bool ReadTurns::fits(const Line& line, int64_t excess) const {
  return line.excess == 0 || excess <= max_excess_ - line.excess;
}

bool ReadTurns::begin(const Peer& peer, int64_t excess, ReadWaiter* call) {
  if (excess == 0) return true;
  MutexLock lock(&mu_);
  Line& line = lines_[peer];
  if (!line.waiting.empty() || !fits(line, excess)) {
    places_[call] = {peer, line.waiting.insert(line.waiting.end(), {call, excess})};
    return false;
  }
  line.excess += excess;
  return true;
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

}  // namespace svdserve::server
