// A race detector without a GPU. The calls of a phase (engine/core/team.h) may run in any order. So in a shuffled one
// they must give the same bits as in ascending order. Data that the calls must not share shows here, long before
// threads meet it.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// A team that runs the calls of a phase in a random order, all of them at its end.
class ShuffledTeam {
 public:
  explicit ShuffledTeam(uint64_t seed) : random_(seed) {}

  template <class F>
  void each_line(int first, int last, F f) const {
    for (int i = first; i < last; ++i) calls_.push_back([f, i] { f(i); });
  }
  template <class F>
  void one(F f) const {
    calls_.push_back(f);
  }
  void sync() const {
    for (size_t i = calls_.size(); i > 1; --i) {
      std::swap(calls_[i - 1], calls_[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i - 1)))]);
    }
    const auto calls = std::exchange(calls_, {});
    for (const auto& call : calls) call();
  }
  template <class F>
  void for_each(int first, int last, F f) const {
    each_line(first, last, f);
    sync();
  }
  template <class F>
  void for_each_line(int first, int last, F f) const {
    for_each(first, last, f);
  }
  template <class F>
  void for_each_team(int n, F f) const {
    for_each(0, n, [&](int i) { f(*this, i); });
  }
  template <class F, class G>
  void for_each_team(int n, F f, int m, G g) const {
    for_each(0, n + m, [&](int i) { i < n ? f(*this, i) : g(*this, i - n); });
  }
  template <class F>
  void once(F f) const {
    f();
  }
  template <class Mask>
  Mask any(Mask m) const {
    return m;
  }

 private:
  mutable Random random_;
  mutable std::vector<std::function<void()>> calls_;
};

// As algorithms/general/line_phases.h has them.
template <class F>
void each_line(const ShuffledTeam& team, int first, int last, F f) {
  team.each_line(first, last, f);
}
template <class F>
void one(const ShuffledTeam& team, F f) {
  team.one(f);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_SHUFFLED_TEAM_H_
