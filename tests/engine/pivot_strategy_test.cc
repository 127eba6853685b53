// The round robin's table, for every size that Jacobi has and beyond.
#include "engine/algorithms/jacobi/pivot_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace svdserve {
namespace {

constexpr int kLargest = 64;

// A table that the compiler evaluates: how often a sweep visits each pair.
template <int N>
constexpr std::array<int, N * N> visits() {
  std::array<int, N * N> count{};
  for (int step = 0; step < round_robin_steps(N); ++step) {
    for (int i = 0; i < round_robin_pairs(N); ++i) {
      const PivotPair pair = round_robin_pair(N, step, i);
      if (pair.q < N) ++count[static_cast<size_t>(pair.p * N + pair.q)];
    }
  }
  return count;
}
constexpr bool visits_each_once_at_compile_time() {
  constexpr int n = 7;
  const auto count = visits<n>();
  for (int p = 0; p < n; ++p) {
    for (int q = 0; q < n; ++q) {
      if (count[static_cast<size_t>(p * n + q)] != (p < q ? 1 : 0)) return false;
    }
  }
  return true;
}
static_assert(visits_each_once_at_compile_time());

class RoundRobin : public testing::TestWithParam<int> {};

TEST_P(RoundRobin, ASweepVisitsEveryPairOnce) {
  const int n = GetParam();
  std::vector<std::vector<int>> count(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n)));
  for (int step = 0; step < round_robin_steps(n); ++step) {
    for (int i = 0; i < round_robin_pairs(n); ++i) {
      const PivotPair pair = round_robin_pair(n, step, i);
      ASSERT_GE(pair.p, 0);
      ASSERT_LT(pair.p, pair.q);
      if (pair.q < n) ++count[static_cast<size_t>(pair.p)][static_cast<size_t>(pair.q)];
    }
  }
  for (int p = 0; p < n; ++p) {
    for (int q = 0; q < n; ++q) {
      EXPECT_EQ(count[static_cast<size_t>(p)][static_cast<size_t>(q)], p < q ? 1 : 0) << "(" << p << ", " << q << ")";
    }
  }
}

TEST_P(RoundRobin, ThePairsOfAPStepAreDisjoint) {
  const int n = GetParam();
  for (int step = 0; step < round_robin_steps(n); ++step) {
    std::vector<int> seen;
    for (int i = 0; i < round_robin_pairs(n); ++i) {
      const PivotPair pair = round_robin_pair(n, step, i);
      seen.push_back(pair.p);
      seen.push_back(pair.q);
    }
    // Every column, and of an odd number the one that does not exist.
    std::vector<int> all(static_cast<size_t>(n + n % 2));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
    EXPECT_THAT(seen, testing::UnorderedElementsAreArray(all)) << "p-step " << step;
  }
}

TEST_P(RoundRobin, OneColumnWaitsInAPStepOfAnOddNumberAndNoneOfAnEven) {
  const int n = GetParam();
  std::vector<int> waiting;
  for (int step = 0; step < round_robin_steps(n); ++step) {
    int byes = 0;
    for (int i = 0; i < round_robin_pairs(n); ++i) {
      const PivotPair pair = round_robin_pair(n, step, i);
      if (pair.q < n) continue;
      EXPECT_EQ(pair.q, n);
      waiting.push_back(pair.p);
      ++byes;
    }
    EXPECT_EQ(byes, n % 2) << "p-step " << step;
  }
  // Each of them once.
  std::vector<int> all;
  for (int i = 0; n % 2 == 1 && i < n; ++i) all.push_back(i);
  EXPECT_THAT(waiting, testing::UnorderedElementsAreArray(all));
}

INSTANTIATE_TEST_SUITE_P(Sizes, RoundRobin, testing::Range(1, kLargest + 1));

}  // namespace
}  // namespace svdserve
