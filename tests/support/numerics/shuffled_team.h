// A race detector without a GPU. The calls of a phase (engine/core/team.h) may run in any order. So in a shuffled one
// they must give the same bits as in ascending order. Data that the calls must not share shows here, long before
// threads meet it.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// A team whose for_each runs its calls in a random order.
class ShuffledTeam {
 public:
  explicit ShuffledTeam(uint64_t seed) : random_(seed) {}

  template <class F>
  void for_each(int first, int last, F f) const {
    if (first >= last) return;
    std::vector<int> order(static_cast<size_t>(last - first));
    std::iota(order.begin(), order.end(), first);
    for (size_t i = order.size() - 1; i > 0; --i) {
      std::swap(order[i], order[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i)))]);
    }
    for (const int i : order) f(i);
  }
  template <class F>
  void once(F f) const {
    f();
  }
  void sync() const {}
  template <class Mask>
  Mask any(Mask m) const {
    return m;
  }

 private:
  mutable Random random_;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_
