// The orthogonalization of a block pair from its Gram matrix, as a GPU runs it, by a host's block. It runs in order,
// and shuffled, which must not change a bit.
#include "engine/algorithms/blocks/gram_jacobi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "engine/algorithms/blocks/gram_groups_in_registers.h"
#include "engine/core/team.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/fiber_block.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/shuffled_team.h"

namespace svdserve {
namespace {

using numerics::Random;
using numerics::ShuffledTeam;
using scalar::Alone;

// A block whose teams are warps, of fibers in a random order: it sweeps groups in registers, as a GPU does.
class FiberWarps {
 public:
  explicit FiberWarps(uint64_t seed) : seed_(seed) {}
  template <class F>
  void for_each(int first, int last, F f) const {
    Alone().for_each(first, last, f);
  }
  template <class F>
  void for_each_team(int n, F f) const {
    for (int i = 0; i < n; ++i) f(*this, i);
  }
  template <class F, class G>
  void for_each_team(int n, F f, int m, G g) const {
    for_each_team(n, f);
    for_each_team(m, g);
  }
  template <class F>
  void once(F f) const {
    f();
  }
  void sync() const {}
  template <class F>
  void run_warp(F f) const {
    numerics::FiberBlock(32, ++seed_).run(f);
  }

 private:
  mutable uint64_t seed_;
};
template <class E>
void sweep_groups(const FiberWarps& warps, const GramSuperstep& step, int g, const GramWork<E>& work) {
  using Thread = numerics::FiberBlock::Thread;
  warps.run_warp([&](Thread thread) { GroupsInRegisters<Thread, E>(thread, step, g, work).sweep(); });
}

double modulus(double x) { return std::fabs(x); }
double modulus(Complex x) { return std::hypot(x.re, x.im); }

template <class E>
E random_element(Random& random) {
  if constexpr (kIsComplex<E>) {
    return {random.normal(), random.normal()};
  } else {
    return random.normal();
  }
}

// k columns of `rows` entries, each of norm one but for its exponent, and everything that a block needs for them.
template <class E>
struct Pair {
  Pair(int columns, int row_count) : k(columns), rows(row_count) {
    x.resize(static_cast<size_t>(k * rows));
    exponents.assign(static_cast<size_t>(k), 0);
    signs.assign(static_cast<size_t>(k), 1);
  }
  E& at(int i, int j) { return x[static_cast<size_t>(j * rows + i)]; }
  const E& at(int i, int j) const { return x[static_cast<size_t>(j * rows + i)]; }

  void randomize(uint64_t seed) {
    Random random(seed);
    for (E& e : x) e = random_element<E>(random);
    for (int j = 0; j < k; ++j) {
      const double norm = std::sqrt(real_part(product(j, j)));
      for (int i = 0; i < rows; ++i) at(i, j) = times_real(at(i, j), 1 / norm);
    }
  }
  // x_i^H x_j, in long double.
  E product(int i, int j) const {
    long double re = 0, im = 0;
    for (int r = 0; r < rows; ++r) {
      if constexpr (kIsComplex<E>) {
        const Complex a = at(r, i), b = at(r, j);
        re += static_cast<long double>(a.re) * b.re + static_cast<long double>(a.im) * b.im;
        im += static_cast<long double>(a.re) * b.im - static_cast<long double>(a.im) * b.re;
      } else {
        re += static_cast<long double>(at(r, i)) * at(r, j);
      }
    }
    if constexpr (kIsComplex<E>) {
      return {static_cast<double>(re), static_cast<double>(im)};
    } else {
      return static_cast<double>(re);
    }
  }
  double cosine(int i, int j) const {
    const double norms = std::sqrt(real_part(product(i, i)) * real_part(product(j, j)));
    return norms > 0 ? modulus(product(i, j)) / norms : 0;
  }
  double largest_cosine() const {
    double largest = 0;
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j < i; ++j) largest = std::max(largest, cosine(i, j));
    }
    return largest;
  }

  // Finds W, and applies it.
  template <class Block>
  GramOutcome orthogonalize(const Block& block, double tolerance, int sweeps) {
    h.resize(static_cast<size_t>(PackedGram<E>::size(k)));
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j <= i; ++j) h[static_cast<size_t>(PackedGram<E>::at(i, j))] = product(i, j);
    }
    const GramOutcome outcome = rotate(block, tolerance, sweeps);
    if (outcome.active) apply();
    return outcome;
  }
  // W of the Gram matrix h, whatever x is.
  template <class Block>
  GramOutcome rotate(const Block& block, double tolerance, int sweeps) {
    std::vector<E> padded(static_cast<size_t>(k * (k + padding)), from_real<E>(std::nan("")));
    const GramRotations<E> rotations{padded.data(), k, k + padding};
    diagonal.assign(static_cast<size_t>(k), from_real<E>(std::nan("")));
    std::vector<GramGroup<E>> groups(static_cast<size_t>(k / kJacobiGroup));
    std::vector<double> cosines(static_cast<size_t>(kCosineParts * k));
    std::vector<uint8_t> columns(static_cast<size_t>(jacobi_supersteps(k) * k));
    const std::vector<int> before = exponents;
    const bool hyperbolic = std::count(signs.begin(), signs.end(), int8_t{-1}) > 0;
    const GramWork<E> work{k,
                           {h.data()},
                           rotations,
                           exponents.data(),
                           hyperbolic ? signs.data() : nullptr,
                           groups.data(),
                           cosines.data(),
                           columns.data(),
                           tolerance * tolerance,
                           sweeps,
                           sorts,
                           before.data(),
                           diagonal.data()};
    const GramOutcome outcome = gram_jacobi(block, work);
    w.clear();
    for (int j = 0; j < k; ++j) w.insert(w.end(), rotations.column(j), rotations.column(j) + k);
    return outcome;
  }
  void apply() {
    const std::vector<E> old = x;
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < rows; ++i) {
        E sum = from_real<E>(0);
        for (int r = 0; r < k; ++r) {
          sum = plus_product(sum, old[static_cast<size_t>(r * rows + i)], w[static_cast<size_t>(j * k + r)]);
        }
        at(i, j) = plus_product(at(i, j), sum, from_real<E>(1));
      }
    }
  }

  // W - I of the true columns, which had these exponents before.
  std::vector<E> true_rotations(const std::vector<int>& before) const {
    std::vector<E> result = w;
    for (int j = 0; j < k; ++j) {
      for (int i = 0; i < k; ++i) {
        const double by = std::ldexp(1.0, exponents[static_cast<size_t>(j)] - before[static_cast<size_t>(i)]);
        E& entry = result[static_cast<size_t>(j * k + i)];
        entry = i == j ? diagonal[static_cast<size_t>(j)] : times_real(entry, by);
      }
    }
    return result;
  }

  int k, rows;
  std::vector<E> x, h, w, diagonal;
  std::vector<int> exponents;
  std::vector<int8_t> signs;
  bool sorts = true;
  int padding = 0;  // of a column of W in memory: 0 or 4
};

// Three rounds of `pair`, or fewer until all columns are orthogonal. Returns what they have done to the true columns.
template <class E>
Pair<E> true_rotations(Pair<E>* pair) {
  Pair<E> product(pair->k, pair->k);
  for (int j = 0; j < pair->k; ++j) product.at(j, j) = from_real<E>(1);
  for (int round = 0; round < 3; ++round) {
    const std::vector<int> before = pair->exponents;
    if (!pair->orthogonalize(Alone(), 1e-15, 30).active) break;
    product.w = pair->true_rotations(before);
    product.apply();
  }
  return product;
}

template <class E>
class GramJacobi : public testing::Test {};
using Elements = testing::Types<double, Complex>;
TYPED_TEST_SUITE(GramJacobi, Elements);

TEST(JacobiSchedule, EverySweepVisitsEveryPairOnceInDisjointPSteps) {
  for (const int k : {64, 128}) {
    std::set<std::pair<int, int>> seen;
    for (int s = 0; s < jacobi_supersteps(k); ++s) {
      const JacobiSuperstep step = jacobi_superstep(k, s);
      std::set<int> columns;
      for (int g = 0; g < k / kJacobiGroup; ++g) {
        for (int i = 0; i < kJacobiGroup; ++i) {
          EXPECT_TRUE(columns.insert(step.column(g, i)).second);
          if (i > 0) {
            EXPECT_GT(step.column(g, i), step.column(g, i - 1));
          }
        }
      }
      EXPECT_EQ(columns.size(), static_cast<size_t>(k));
      EXPECT_LT(*columns.rbegin(), k);
      for (int v = 1; v < kJacobiGroup; ++v) {
        if ((step.steps >> v & 1) == 0) continue;
        std::set<int> of_p_step;
        for (int g = 0; g < k / kJacobiGroup; ++g) {
          for (int m = 0; m < kJacobiGroup / 2; ++m) {
            const int p = step.column(g, group_pivot(v, m)), q = step.column(g, group_pivot(v, m) ^ v);
            EXPECT_LT(p, q);
            EXPECT_TRUE(seen.insert({p, q}).second);
            of_p_step.insert({p, q});
          }
        }
        EXPECT_EQ(of_p_step.size(), static_cast<size_t>(k));
      }
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(k * (k - 1) / 2));
  }
}

TYPED_TEST(GramJacobi, MakesColumnsOrthogonal) {
  for (const int k : {64, 128}) {
    Pair<TypeParam> pair(k, 2 * k);
    pair.randomize(1);
    const GramOutcome outcome = pair.orthogonalize(Alone(), 1e-15, 30);
    EXPECT_TRUE(outcome.active);
    EXPECT_GT(outcome.rotations, k * (k - 1) / 2);
    EXPECT_LE(outcome.proper_rotations, outcome.rotations);
    EXPECT_FALSE(outcome.lost);
    EXPECT_LT(pair.largest_cosine(), 1e-13);
    // Sorted, and the same as a whole: the sum of squares stays to some roundings.
    double sum = 0;
    for (int j = 0; j < k; ++j) {
      const double norm2 = std::ldexp(real_part(pair.product(j, j)), 2 * pair.exponents[static_cast<size_t>(j)]);
      sum += norm2;
      EXPECT_GE(real_part(pair.product(j, j)), 0.24);
      EXPECT_LE(real_part(pair.product(j, j)), 4.1);
    }
    EXPECT_NEAR(sum / k, 1, 1e-14);
    // Once more: nothing is left to do, but for cosines that rounding leaves.
    EXPECT_FALSE(pair.orthogonalize(Alone(), 1e-13, 1).active);
  }
}

TYPED_TEST(GramJacobi, OneSweepIsNotTheEnd) {
  Pair<TypeParam> pair(64, 100);
  pair.randomize(2);
  const double before = pair.largest_cosine();
  const GramOutcome outcome = pair.orthogonalize(Alone(), 1e-15, 1);
  EXPECT_NEAR(std::sqrt(outcome.cosine2), before, 1e-14);
  EXPECT_EQ(outcome.rotations, 64 * 63 / 2);
  EXPECT_GT(pair.largest_cosine(), 1e-8);
}

// Threads that keep groups in registers, and one that has them in memory. With signs, and with exponents in no order. W
// lies as it does in a GPU's shared memory, and in order.
TYPED_TEST(GramJacobi, GroupsInRegistersHaveTheSameBits) {
  for (const int k : {64, 128}) {
    if (numerics::kSanitized && k > 64) continue;
    for (const bool hyperbolic : {false, true}) {
      Pair<TypeParam> alone(k, k + 9);
      alone.randomize(9);
      for (int j = 0; j < k; ++j) alone.exponents[static_cast<size_t>(j)] = j * 37 % 11;
      for (int i = 0; i < alone.rows; ++i) alone.at(i, 5) = alone.at(i, 50);
      if (hyperbolic) std::fill(alone.signs.begin() + k / 3, alone.signs.end(), int8_t{-1});
      Pair<TypeParam> fibers = alone;
      fibers.padding = 4;
      // At the second tolerance some groups have nothing to rotate.
      for (const double tolerance : {1e-15, 1e-3}) {
        const GramOutcome expected = alone.orthogonalize(Alone(), tolerance, 1);
        const GramOutcome outcome = fibers.orthogonalize(FiberWarps(10), tolerance, 1);
        EXPECT_EQ(std::memcmp(alone.w.data(), fibers.w.data(), alone.w.size() * sizeof(TypeParam)), 0);
        EXPECT_EQ(std::memcmp(alone.h.data(), fibers.h.data(), alone.h.size() * sizeof(TypeParam)), 0);
        EXPECT_EQ(alone.exponents, fibers.exponents);
        EXPECT_EQ(expected.rotations, outcome.rotations);
        EXPECT_EQ(expected.proper_rotations, outcome.proper_rotations);
        EXPECT_EQ(expected.lost, outcome.lost);
      }
    }
  }
}

TYPED_TEST(GramJacobi, TheOrderOfAPhaseChangesNoBit) {
  for (const int k : {64, 128}) {
    for (const bool hyperbolic : {false, true}) {
      Pair<TypeParam> ordered(k, 2 * k);
      ordered.randomize(3);
      for (int j = 0; j < k; ++j) ordered.exponents[static_cast<size_t>(j)] = -j / 5;
      if (hyperbolic) std::fill(ordered.signs.begin() + k / 3, ordered.signs.end(), int8_t{-1});
      Pair<TypeParam> shuffled = ordered;
      ordered.orthogonalize(Alone(), 1e-15, 2);
      shuffled.orthogonalize(ShuffledTeam(4), 1e-15, 2);
      EXPECT_EQ(std::memcmp(ordered.w.data(), shuffled.w.data(), ordered.w.size() * sizeof(TypeParam)), 0);
      EXPECT_EQ(std::memcmp(ordered.h.data(), shuffled.h.data(), ordered.h.size() * sizeof(TypeParam)), 0);
      EXPECT_EQ(ordered.exponents, shuffled.exponents);
    }
  }
}

// Columns whose squares differ by more than a double holds: the product of scaled columns and exponents is what counts.
TYPED_TEST(GramJacobi, ColumnsThatAreFarApart) {
  Pair<TypeParam> pair(64, 80);
  pair.randomize(5);
  for (int j = 0; j < 64; ++j) pair.exponents[static_cast<size_t>(j)] = 990 - 31 * j;
  for (int round = 0; round < 3; ++round) pair.orthogonalize(Alone(), 1e-15, 30);
  EXPECT_LT(pair.largest_cosine(), 1e-13);
  // The longest columns have been orthogonalized against first, so the exponents fall as they did.
  for (int j = 0; j < 64; ++j) EXPECT_NEAR(pair.exponents[static_cast<size_t>(j)], 990 - 31 * j, 8);
}

// W^H J W = J, with W of the true columns.
TYPED_TEST(GramJacobi, HyperbolicRotationsKeepTheSignature) {
  constexpr int k = 64;
  Pair<TypeParam> pair(k, 3 * k);
  pair.randomize(6);
  std::fill(pair.signs.begin() + 40, pair.signs.end(), int8_t{-1});
  const Pair<TypeParam> w = true_rotations(&pair);
  EXPECT_LT(pair.largest_cosine(), 1e-13);
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j <= i; ++j) {
      TypeParam sum = from_real<TypeParam>(0);
      for (int r = 0; r < k; ++r) {
        sum = plus_product(sum, times_real(conjugate(w.at(r, i)), pair.signs[static_cast<size_t>(r)]), w.at(r, j));
      }
      const double wanted = i != j ? 0 : pair.signs[static_cast<size_t>(i)];
      EXPECT_LT(modulus(plus_product(sum, from_real<TypeParam>(-wanted), from_real<TypeParam>(1))), 1e-12);
    }
  }
  // Longest first among the positive, last among the negative.
  for (int j = 1; j < k; ++j) {
    if (j == 40) continue;
    const auto norm2 = [&](int c) {
      return std::ldexp(real_part(pair.product(c, c)), 2 * pair.exponents[static_cast<size_t>(c)]);
    };
    EXPECT_TRUE(j < 40 ? norm2(j) <= norm2(j - 1) * 1.0001 : norm2(j) >= norm2(j - 1) * 0.9999) << j;
  }
}

// Short columns before long ones, left where they are: W of the true columns is unitary to some u. Sorted, they change
// places, and W loses the digits that lie between them.
TYPED_TEST(GramJacobi, UnsortedColumnsKeepTheirPlaces) {
  constexpr int k = 64;
  for (const bool sorts : {false, true}) {
    Pair<TypeParam> pair(k, k + 6);
    pair.randomize(8);
    pair.sorts = sorts;
    for (int j = 0; j < k; ++j) pair.exponents[static_cast<size_t>(j)] = j < k / 2 ? -26 : 7;
    const Pair<TypeParam> w = true_rotations(&pair);
    EXPECT_LT(pair.largest_cosine(), 1e-13);
    double error = 0;
    for (int j = 0; j < k; ++j) error = std::max(error, std::fabs(real_part(w.product(j, j)) - 1));
    error = std::max(error, w.largest_cosine());
    if (sorts) {
      EXPECT_GT(pair.exponents[0], pair.exponents[k - 1] + 20);
      EXPECT_GT(error, 1e-12);
    } else {
      EXPECT_LT(pair.exponents[0], pair.exponents[k - 1] - 20);
      EXPECT_LT(error, 1e-14);
    }
  }
}

TYPED_TEST(GramJacobi, ZeroAndParallelColumns) {
  Pair<TypeParam> pair(64, 70);
  pair.randomize(7);
  for (int i = 0; i < 70; ++i) {
    pair.at(i, 9) = from_real<TypeParam>(0);
    pair.at(i, 33) = pair.at(i, 12);
  }
  EXPECT_TRUE(pair.orthogonalize(Alone(), 1e-15, 30).lost);
  for (int round = 0; round < 3; ++round) pair.orthogonalize(Alone(), 1e-15, 30);
  EXPECT_LT(pair.largest_cosine(), 1e-13);
  for (const TypeParam& e : pair.x) EXPECT_TRUE(std::isfinite(modulus(e)));
}

// A column was lost, and rounding errors are left in its products with much shorter ones. These grow by that, and must not
// lose their part of W.
TYPED_TEST(GramJacobi, ColumnsThatGrowKeepTheirDigits) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    Random random(seed);
    Pair<TypeParam> pair(64, 1), rotations(64, 64);
    pair.sorts = false;
    pair.h.resize(static_cast<size_t>(PackedGram<TypeParam>::size(pair.k)));
    for (int i = 0; i < pair.k; ++i) {
      pair.exponents[static_cast<size_t>(i)] = i == 0 ? 0 : -50 - i % 20;
      for (int j = 0; j <= i; ++j) {
        const TypeParam error = times_real(random_element<TypeParam>(random), j == 0 ? 0x1p-20 : 0x1p-30);
        pair.h[static_cast<size_t>(PackedGram<TypeParam>::at(i, j))] =
            i == j ? from_real<TypeParam>(i == 0 ? 0 : 1) : error;
      }
    }
    const std::vector<int> before = pair.exponents;
    ASSERT_TRUE(pair.rotate(Alone(), 1e-15, 1).active);
    rotations.x = pair.true_rotations(before);
    int largest_growth = 0;
    for (int j = 0; j < pair.k; ++j) {
      rotations.at(j, j) = plus_product(rotations.at(j, j), from_real<TypeParam>(1), from_real<TypeParam>(1));
      const auto column = static_cast<size_t>(j);
      largest_growth = std::max(largest_growth, pair.exponents[column] - before[column]);
    }
    double worst = 0;
    for (int j = 0; j < pair.k; ++j) {
      for (int i = 0; i <= j; ++i) {
        const TypeParam identity = from_real<TypeParam>(i == j ? -1 : 0);
        worst = std::max(worst, modulus(plus_product(rotations.product(i, j), identity, from_real<TypeParam>(1))));
      }
    }
    EXPECT_GT(largest_growth, 10);
    EXPECT_LT(worst, 1e-13);
  }
}

TYPED_TEST(GramJacobi, OrthogonalColumnsAreLeftAlone) {
  Pair<TypeParam> pair(128, 128);
  for (int j = 0; j < 128; ++j) pair.at(j, j) = from_real<TypeParam>(1);
  const GramOutcome outcome = pair.orthogonalize(Alone(), 1e-15, 1);
  EXPECT_FALSE(outcome.active);
  EXPECT_EQ(outcome.rotations, 0);
  EXPECT_EQ(outcome.cosine2, 0);
}

}  // namespace
}  // namespace svdserve
