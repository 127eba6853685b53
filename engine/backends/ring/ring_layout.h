// Where the super-blocks of a matrix are while D members of a ring compute a sweep, and what each member does next.
//
//   D = 1, 2, 4 or 8 members; 2 D unions u of neighbouring super-blocks (super_block_sweep.h). A member has three slots,
//   each with room for a union. Two hold unions {a, a xor S}; one is free.
// A p-step whose pairs are between unions u and u xor S needs that arrangement. From S to S', members change unions in
// twos: g has {a, a xor S}, h has {a xor S', a xor S xor S'}; g sends a xor S and gets a xor S'. Both send into the free
// slot of the other, and the slot that was sent from is free afterwards. So a sweep takes 2 D - 1 swaps.
// Sources: the block-recursive order of Mantharam and Eberlein, Parallel Comput. 19 (1993) 481-496, from outside in.
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_RING_LAYOUT_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_RING_LAYOUT_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/ring/ring_member.h"

namespace svdserve::ring {

inline constexpr int kMostMembers = large::kSuperBlocks / 2;

constexpr bool is_ring_size(int members) { return members == 1 || members == 2 || members == 4 || members == 8; }

// The unions of `members` members of a matrix of n columns in blocks of `width`.
class Unions {
 public:
  Unions(int members, int64_t n, int64_t width)
      : members_(members), n_(n), width_(width), cut_{static_cast<int>((n + width - 1) / width)} {
    for (int u = 0; u < count(); ++u) {
      for (int b = first_block(u); b < first_block(u + 1); ++b) of_block_.push_back(u);
    }
  }
  int members() const { return members_; }
  int count() const { return 2 * members_; }
  int blocks() const { return cut_.blocks; }
  int64_t width() const { return width_; }
  int of(int block) const { return of_block_[static_cast<size_t>(block)]; }
  int first_block(int u) const { return cut_.first(u * (large::kSuperBlocks / count())); }
  int64_t first_column(int u) const { return std::min(first_block(u) * width_, n_); }
  int64_t columns(int u) const { return first_column(u + 1) - first_column(u); }
  int64_t most_columns() const {
    int64_t most = 0;
    for (int u = 0; u < count(); ++u) most = std::max(most, columns(u));
    return most;
  }

 private:
  int members_;
  int64_t n_, width_;
  large::SuperBlocks cut_;
  std::vector<int> of_block_;
};

// One thing that a member does.
struct RingAction {
  enum class Kind : uint8_t { kSwap, kPairs };
  Kind kind = Kind::kPairs;
  // kSwap: sends `sent` to the free slot of `partner`, and gets another union into its own.
  int partner = -1;
  int sent_slot = -1, free_slot = -1, partner_slot = -1;
  int sent_union = -1, got_union = -1;
  int meeting = 0;  // the same number for both, growing
  // kPairs: the member's part of p-step `step`.
  size_t step = 0;
  std::vector<large::BlockPair> pairs;
  std::array<int, kSlots> unions = {-1, -1, -1};  // in the slots, -1 in a free one
};

class RingLayout {
 public:
  explicit RingLayout(const Unions& unions) : unions_(unions), members_(static_cast<size_t>(unions.members())) {
    arrange(unions.count() - 1);
  }

  // As before a sweep: each member holds a and a xor s.
  void arrange(int s) {
    s_ = s;
    size_t next = 0;
    for (int a = 0; a < unions_.count(); ++a) {
      if ((a ^ s) > a) members_[next++] = {a, a ^ s, -1};
    }
  }
  const std::array<int, kSlots>& slots(int member) const { return members_[static_cast<size_t>(member)]; }
  int holder(int u) const {
    for (size_t g = 0; g < members_.size(); ++g) {
      if (find(g, u) >= 0) return static_cast<int>(g);
    }
    assert(false);
    return -1;
  }
  int swaps() const { return swaps_; }

  // Appends to the members' programs that they compute these pairs, and the swaps that these need. Pairs that need
  // different arrangements come one arrangement after the other.
  void append(size_t step, const std::vector<large::BlockPair>& pairs, std::vector<std::vector<RingAction>>& programs) {
    std::vector<std::vector<large::BlockPair>> by_distance(static_cast<size_t>(unions_.count()));
    for (const large::BlockPair pair : pairs) {
      by_distance[static_cast<size_t>(unions_.of(pair.p) ^ unions_.of(pair.q))].push_back(pair);
    }
    for (size_t s = by_distance.size(); s-- > 1;) {
      if (by_distance[s].empty()) continue;
      go_to(static_cast<int>(s), programs);
      append_pairs(step, by_distance[s], programs);
    }
    append_pairs(step, by_distance[0], programs);  // within unions: any arrangement has them
  }

 private:
  int find(size_t g, int u) const {
    const auto& slots = members_[g];
    const auto at = std::find(slots.begin(), slots.end(), u);
    return at == slots.end() ? -1 : static_cast<int>(at - slots.begin());
  }

  void go_to(int s, std::vector<std::vector<RingAction>>& programs) {
    if (s == s_) return;
    ++swaps_;
    std::vector<char> done(members_.size(), 0);
    for (int a = 0; a < unions_.count(); ++a) {
      const int g = holder(a);
      if (done[static_cast<size_t>(g)]) continue;
      const int h = holder(a ^ s);
      assert(g != h && !done[static_cast<size_t>(h)]);
      done[static_cast<size_t>(g)] = done[static_cast<size_t>(h)] = 1;
      swap(g, h, a ^ s_, a ^ s, programs);
    }
    s_ = s;
  }

  // g sends union b, h sends union c.
  void swap(int g, int h, int b, int c, std::vector<std::vector<RingAction>>& programs) {
    auto &of_g = members_[static_cast<size_t>(g)], &of_h = members_[static_cast<size_t>(h)];
    const int slot_b = find(static_cast<size_t>(g), b), slot_c = find(static_cast<size_t>(h), c);
    const int free_g = find(static_cast<size_t>(g), -1), free_h = find(static_cast<size_t>(h), -1);
    ++meetings_;
    RingAction action;
    action.kind = RingAction::Kind::kSwap;
    action.meeting = meetings_;
    action.partner = h, action.sent_slot = slot_b, action.free_slot = free_g, action.partner_slot = free_h;
    action.sent_union = b, action.got_union = c;
    programs[static_cast<size_t>(g)].push_back(action);
    action.partner = g, action.sent_slot = slot_c, action.free_slot = free_h, action.partner_slot = free_g;
    action.sent_union = c, action.got_union = b;
    programs[static_cast<size_t>(h)].push_back(action);
    of_g[static_cast<size_t>(free_g)] = c;
    of_g[static_cast<size_t>(slot_b)] = -1;
    of_h[static_cast<size_t>(free_h)] = b;
    of_h[static_cast<size_t>(slot_c)] = -1;
  }

  void append_pairs(size_t step, const std::vector<large::BlockPair>& pairs,
                    std::vector<std::vector<RingAction>>& programs) {
    std::vector<RingAction> actions(members_.size());
    for (const large::BlockPair pair : pairs) {
      actions[static_cast<size_t>(holder(unions_.of(pair.p)))].pairs.push_back(pair);
    }
    for (size_t g = 0; g < actions.size(); ++g) {
      if (actions[g].pairs.empty()) continue;
      actions[g].step = step;
      actions[g].unions = members_[g];
      programs[g].push_back(std::move(actions[g]));
    }
  }

  const Unions& unions_;
  std::vector<std::array<int, kSlots>> members_;  // the unions in each member's slots, -1: free
  int s_ = 0, swaps_ = 0, meetings_ = 0;
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_RING_LAYOUT_H_
