// Bidiagonal and tridiagonal forms that are swept (algorithms/lanes/grouped_sweeps.h), by one thread or several on fibers.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_SWEPT_FORM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_SWEPT_FORM_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "engine/algorithms/lanes/grouped_sweeps.h"
#include "engine/algorithms/lanes/rotation_windows.h"
#include "engine/core/team.h"
#include "engine/policies/cuda_tuning.h"
#include "tests/support/numerics/fiber_team.h"

namespace svdserve::numerics {

// Form: as GroupedSweeps takes it. The rotations are those of a round; forms of one side have those on the right alone.
template <class Form>
struct Swept {
  using L = typename Form::Lane;
  using T = typename L::Scalar;

  Swept(std::vector<L> of_d, std::vector<L> of_e, L largest, int capacity)
      : d(std::move(of_d)),
        e(std::move(of_e)),
        bound(L(FloatTraits<T>::kUnitRoundoff) * largest),
        left(static_cast<size_t>(capacity)),
        right(left),
        last(left.size()),
        state{static_cast<int32_t>(d.size()) - 1, 0} {}
  std::vector<L> d, e;
  L bound;
  std::vector<scalar::PlaneRotation<L>> left, right;
  std::vector<int32_t> last;
  scalar::SweepState state;
  int groups = 0;
};

// The way of vectors behind the form: sweeps that are made at once, and whether rows take rotations by windows.
template <int kAtOnce_ = scalar::RotationGroup::kSweeps, bool kInWindows_ = false>
struct VectorsWay {
  static constexpr int kAtOnce = kAtOnce_;
  static constexpr bool kInWindows = kInWindows_;
};

// kAtOnce: sweeps that one thread makes as if it were so many.
template <int kAtOnce = scalar::RotationGroup::kSweeps, class Form, class Threads>
void sweep_round(const Threads& threads, Swept<Form>* matrix) {
  typename Form::Writer to(
      {matrix->left.data(), matrix->right.data(), matrix->last.data(), static_cast<int>(matrix->left.size())});
  constexpr int kSweeps = Threads::count() == 1 ? kAtOnce : Threads::count();
  scalar::GroupedSweeps<Form, Threads, kSweeps> sweeps(threads, {matrix->d.data(), matrix->e.data(), matrix->bound});
  const scalar::SweepState state = sweeps.run(matrix->state, &to);
  threads.sync();  // all have read matrix->state
  matrix->state = state;
  matrix->groups = to.groups();
}

// A round by so many threads, in a random order. Each team of a warp has a copy of the matrix.
template <int kThreads, class Form>
void sweep_round_of_threads(Swept<Form>* matrix, uint64_t seed) {
  std::vector<Swept<Form>> copies(32 / kThreads, *matrix);
  FiberBlock block(32, seed);
  block.run([&](FiberBlock::Thread thread) {
    sweep_round(FiberTeam<kThreads>(thread), &copies[static_cast<size_t>(thread.index() / kThreads)]);
  });
  *matrix = copies[0];
}

// A random, graded or clustered form, scaled as the grid scales matrices.
template <class Form>
Swept<Form> random_form(int k, std::mt19937_64* random) {
  using L = typename Form::Lane;
  using T = typename L::Scalar;
  std::uniform_real_distribution<double> uniform(0, 1);
  std::normal_distribution<double> normal;
  const double ratio = uniform(*random), small = std::pow(10, -12 * uniform(*random));
  const auto number_of = [&](uint64_t kind, int i) {
    const double graded = std::pow(ratio, kind == 1 ? i : k - i), spread = std::pow(10, -16 * uniform(*random));
    const double numbers[] = {normal(*random),
                              graded,
                              graded,
                              1,
                              1 + small * normal(*random),
                              small * normal(*random),
                              uniform(*random) < 0.3 ? 0 : normal(*random),
                              spread,
                              i % 2 == 0 ? 1.0 : -1.0,
                              0};
    return numbers[kind];
  };
  const uint64_t of_d = (*random)() % 10, of_e = (*random)() % 9;  // not both zero
  std::vector<double> d(static_cast<size_t>(k)), e(d);
  double largest = 0;
  for (int i = 0; i < k; ++i) {
    const auto at = static_cast<size_t>(i);
    d[at] = number_of(of_d, i);
    e[at] = i + 1 < k ? number_of(of_e, i) : 0;
    largest = std::max({largest, std::abs(d[at]), std::abs(e[at])});
  }
  std::vector<L> d_scaled, e_scaled;
  for (const double x : d) d_scaled.push_back(L(static_cast<T>(x / largest)));
  for (const double x : e) e_scaled.push_back(L(static_cast<T>(x / largest)));
  return {d_scaled, e_scaled, L(1), cuda::rotation_capacity(std::max(k, 33))};
}

// Windows of a round (algorithms/lanes/rotation_windows.h).
template <class Form>
int windows_of(const Swept<Form>& matrix) {
  int windows = 0;
  const auto last = [&](int group) { return matrix.last[static_cast<size_t>(group)]; };
  for (scalar::RotationCursor at{0, 0}; at.group < matrix.groups;) {
    const scalar::RotationRun run(at, matrix.groups, last);
    windows += run.windows();
    at = run.end(last);
  }
  return windows;
}

// Half of the rounds after which a GPU gives up, and no more windows than it has room for.
template <int kAtOnce = scalar::RotationGroup::kSweeps, class Form>
void expect_few_rounds(Swept<Form> form) {
  const int k = static_cast<int>(form.d.size());
  int rounds = 0;
  for (; form.state.high > 0 && rounds < 50; ++rounds) {
    sweep_round<kAtOnce>(scalar::OneThread(), &form);
    if (cuda::are_rows_in_shared(k)) continue;
    EXPECT_LE(windows_of(form), cuda::most_windows(k)) << k;
  }
  EXPECT_LE(rounds, cuda::rotation_rounds(k) / 2) << k;
}

template <int kThreads = scalar::RotationGroup::kSweeps, class Form>
void expect_same_bits_of_threads(Swept<Form> form, uint64_t seed) {
  const auto same = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(a[0])) == 0;
  };
  Swept<Form> other = form;
  for (int rounds = 0; form.state.high > 0 && rounds < 50; ++rounds) {
    sweep_round<kThreads>(scalar::OneThread(), &form);
    sweep_round_of_threads<kThreads>(&other, seed + static_cast<uint64_t>(rounds));
    ASSERT_EQ(other.groups, form.groups);
    ASSERT_TRUE(same(form.d, other.d) && same(form.e, other.e)) << seed;
    ASSERT_TRUE(same(form.left, other.left) && same(form.right, other.right)) << seed;
    ASSERT_TRUE(same(form.last, other.last)) << seed;
  }
  EXPECT_EQ(other.state.high, form.state.high);
}

}  // namespace svdserve::numerics
#endif
