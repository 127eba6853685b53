// The messages of a ring's leader and its ranks, with the values of each.
//
// The leader asks, in the order of ring_member.h's calls of one member. A rank that fails does nothing more until it is
// asked something that it answers, and answers with what went wrong.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MESSAGES_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MESSAGES_H_

#include <cstdint>

namespace svdserve::ranks {

enum class Ask : int32_t {
  // answered
  kReserve,       // text: own_build(), int32 own, int32 members, bool complex, RingShape, uint64 common bytes,
                  // descriptor of common memory -> text: the name of the ring, of its first member
  kTake,          // CrossingColumns, UnionPlace, perhaps a descriptor
  kGive,          // the same -> count, (text name, seconds, flops) ..
  kOffer,         // UnionPlace
  kExchange,      // int32 own, int32 partner, UnionPlace sent, UnionPlace got, text: the name of the ring
  kReadCounters,  // -> PStepCounters
  kEnd,           // of the matrix: nothing of it is left
  // not answered
  kPSteps,  // count, (CrossingStep, BlockPair .., int64 places ..) ..
  kResetCounters,
};

enum class Answer : int32_t {
  kDone,
  kWaits,  // for its partner, in kExchange; another answer follows
  kFails,  // LargeStatus, bool device lost, text
};

// RingColumns: where they lie in a block that both reach. The descriptor comes, or the handle is used, for a number that
// is new.
struct CrossingColumns {
  uint64_t number = 0, block_bytes = 0, x = 0;  // offsets in bytes
  uint64_t f = 0, v = 0;
  bool has_v = false, has_descriptor = false;
  char handle[64] = {};
  int64_t count = 0;
};

// PStep without what is the member's to fill in.
struct CrossingStep {
  int64_t rows = 0, columns = 0, v_rows = 0, positive = 0, width = 0;
  bool has_v = false;
  double tolerance = 0;
  int32_t smallest_exponent = 0;
  int32_t inner_sweeps = 1;
};

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_MESSAGES_H_
