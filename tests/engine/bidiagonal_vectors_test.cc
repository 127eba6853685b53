// U, S and V by bidiagonalization, as a GPU computes them for 33 to 128 columns. The grid of
// algorithms/blocks/bidiagonalize_in_registers.h runs on fibers, as the threads of a row do (blocks/vector_rows.h). The
// sweeps are those of lanes/golub_kahan.h. All keep the contract, whatever the order of threads and the room for
// rotations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/blocks/bidiagonalize_in_registers.h"
#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/lanes/golub_kahan.h"
#include "engine/algorithms/lanes/matrix_values.h"
#include "engine/policies/cuda_tuning.h"
#include "tests/support/numerics/bidiagonal_on_fibers.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/fiber_team.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/register_grid_on_fibers.h"
#include "tests/support/numerics/square_factors.h"
#include "tests/support/numerics/swept_form.h"
#include "tests/support/numerics/vector_rows_on_fibers.h"

namespace svdserve::numerics {
namespace {

template <class E, int K, int R, int C>
Reduced<E> reduce(const Matrix& a, uint64_t seed) {
  using L = typename E::Lane;
  Reduced<E> b(static_cast<int>(a.cols));
  // Numbers that nobody writes must not matter.
  for (E& x : b.left) x.re = L(1e30f);
  b.right = b.left;
  with_register_grid<scalar::BidiagonalizeInRegisters, E, K, R, C>(a, seed, [&](auto& algorithm, auto& x) {
    b.finite = algorithm.scale(x, &b.exponent);
    algorithm.run(
        x, [](int, L) {}, [](int, L) {}, ToReduced<E>{&b});
  });
  return b;
}

template <class S>
class BidiagonalVectors : public testing::Test {
 protected:
  using E = typename S::Element;
  static constexpr DType kType = dtype_of<E>();

  static void test_matrix(const Matrix& a, const std::string& what) {
    const int k = static_cast<int>(a.cols);
    const std::string where = std::string(name(kType)) + " " + what + " k = " + std::to_string(k);
    const Reduced<E> b = reduce<E, S::K, S::R, S::C>(a, 0);
    int rounds = 0, fewer = 0;
    const Factors f = vectors_of(b, kType, k, 4 * k * k + 200, &rounds);
    EXPECT_LE(rounds, 1) << where;
    // Room for two groups or three at once.
    EXPECT_EQ(f, vectors_of(b, kType, k, 2 * scalar::RotationGroup::rotations(k), &fewer)) << where;
    EXPECT_GE(fewer, rounds);
    if (what == name(Kind::kNormal)) {
      EXPECT_GE(fewer, 2);
      EXPECT_EQ(f, vectors_of(reduce<E, S::K, S::R, S::C>(a, 7), kType, k, 4 * k * k + 200, &rounds));
    }
    expect_contract(a, f, where);
  }
};
using Shapes = testing::Types<GridShape<Real<double>, 48, 8, 4>, GridShape<Real<float>, 40, 4, 4>,
                              GridShape<Complex<float>, 48, 8, 8>, GridShape<Complex<double>, 40, 8, 8>,
                              GridShape<Real<float>, 80, 16, 16>>;
TYPED_TEST_SUITE(BidiagonalVectors, Shapes);

TYPED_TEST(BidiagonalVectors, DeadAndRepeatedLinesKeepTheContract) {
  const int k = TypeParam::K < 80 ? TypeParam::K - 1 : 66;
  const Matrix a = generate(Kind::kNormal, this->kType, k, k, 3);
  this->test_matrix(with_dead_lines(a, {.rows = k / 2}), "dead rows");
  this->test_matrix(with_dead_lines(a, {.rows = k / 2, .cols = k - 3, .copies = true}), "repeated lines");
}

TYPED_TEST(BidiagonalVectors, WhatIsNotFiniteIsSaid) {
  const int k = 34;
  for (const Poison poison : {Poison::kInfinity, Poison::kQuietNan}) {
    Matrix a = generate(Kind::kNormal, this->kType, k, k, 1);
    a.at(k - 1, 1) = poison_value(poison);
    int rounds = 0;
    const Factors f = vectors_of(reduce<typename TypeParam::Element, TypeParam::K, TypeParam::R, TypeParam::C>(a, 0),
                                 this->kType, k, 4 * k * k, &rounds);
    EXPECT_EQ(f.status, MatrixStatus::kNonFinite);
  }
}

// Bidiagonal matrices that sweeps find hard: values of any size at either end, zeros, clusters, neighbours alike.
template <class T>
void test_hard_forms(int k) {
  using E = Real<T>;
  struct Form {
    const char* name;
    std::function<double(int)> diagonal, superdiagonal;
  };
  const auto one = [](int) { return 1.0; };
  const auto down = [](int i) { return std::pow(0.7, i); };
  const auto up = [k](int i) { return std::pow(0.7, k - i); };
  const auto mixed = [k](int i) { return std::pow(10, -20.0 * (i * 7 % k) / k); };
  const auto wilkinson = [k](int i) { return 0.1 * std::abs(i - k / 2); };
  const Form forms[] = {{"ones", one, one},
                        {"down", down, down},
                        {"up", up, up},
                        {"zeros", [](int i) { return i % 3 ? 1.0 : 0.0; }, one},
                        {"only zeros", [](int) { return 0.0; }, mixed},
                        {"zero at the end", [k](int i) { return i < k - 1 ? 1.0 : 0.0; }, one},
                        {"mixed", mixed, up},
                        {"cluster", one, [](int) { return 1e-6; }},
                        {"pairs", one, [](int i) { return i % 2 ? 1e-3 : 1.0; }},
                        {"Wilkinson", wilkinson, one},
                        {"small cluster", [](int i) { return i == 0 ? 1.0 : 1e-9; }, [](int) { return 1e-10; }},
                        {"tiny", [](int i) { return i == 0 ? 1.0 : 1e-40; }, [](int) { return 1e-40; }}};
  for (const Form& form : forms) {
    Reduced<E> b(k);  // no reflectors
    Matrix a(dtype_of<E>(), k, k);
    for (int i = 0; i < k; ++i) {
      b.diagonal[size(i)].re = scalar::ScalarLane<T>(static_cast<T>(form.diagonal(i)));
      if (i + 1 < k) b.superdiagonal[size(i)].re = scalar::ScalarLane<T>(static_cast<T>(form.superdiagonal(i)));
      a.at(i, i) = number(b.diagonal[size(i)]);
      if (i + 1 < k) a.at(i, i + 1) = number(b.superdiagonal[size(i)]);
    }
    b.finite = true;
    int rounds = 0;
    const Factors f = vectors_of(b, a.dtype, k, cuda::rotation_capacity(std::max(k, 33)), &rounds);
    EXPECT_LE(rounds, cuda::rotation_rounds(k) / 2) << form.name << " k = " << k;
    expect_contract(a, f, form.name);
  }
}

TEST(GolubKahan, HardFormsKeepTheContract) {
  for (const int k : {1, 2, 3, 33, is_long_run() ? 128 : 64}) {
    test_hard_forms<double>(k);
    test_hard_forms<float>(k);
  }
}

// The values of I + 1e-6 N lie within 1e-6 of one, N the superdiagonal. Sweeps rotate them all again and again.
template <class T>
void expect_cluster_to_stay(int k) {
  using L = scalar::ScalarLane<T>;
  std::vector<L> d(size(k), L(1)), e(size(k), L(T(1e-6)));
  e.back() = L(0);
  Swept<Form<T>> form(d, e, L(1), 8 * k * k);
  sweep_round(scalar::OneThread(), &form);
  ASSERT_EQ(form.state.high, 0);
  const double bound = 1e-6 + (2 * k + 16) * static_cast<double>(FloatTraits<T>::kUnitRoundoff);
  for (const L& x : form.d) EXPECT_NEAR(std::abs(static_cast<double>(x.v)), 1, bound) << k;
}

TEST(GolubKahan, ValuesOfAClusterDoNotGrow) {
  for (const int k : {33, 64, 128}) {
    expect_cluster_to_stay<float>(k);
    expect_cluster_to_stay<double>(k);
  }
}

TEST(GolubKahan, RandomFormsTakeHalfOfTheRoundsAtMost) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < (is_long_run() ? 400000 : 500); ++trial) {
    const int k = 33 + static_cast<int>(random() % (trial % 4 == 0 ? 96 : 20));
    expect_few_rounds(random_form<Form<double>>(k, &random));
    expect_few_rounds(random_form<Form<float>>(k, &random));
  }
}

TEST(GolubKahan, FourThreadsMakeTheBitsOfOne) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < (is_long_run() ? 400 : 20); ++trial) {
    const int k = trial % 4 == 0 ? 2 + trial : 33 + static_cast<int>(random() % 20);
    expect_same_bits_of_threads(random_form<Form<double>>(k, &random), random());
    expect_same_bits_of_threads(random_form<Form<float>>(k, &random), random());
  }
}

// In an ordinary run the largest grid has no kinds that differ in the range of their numbers alone.
TYPED_TEST(BidiagonalVectors, EveryKindKeepsTheContract) {
  const int k = is_long_run() || TypeParam::K < 80 ? TypeParam::K - 3 : 67;
  for (const Kind kind : kinds(this->kType)) {
    const bool usual = k < 48 || kind == Kind::kNormal || kind == Kind::kLowRank || kind == Kind::kDuplicates;
    if (is_long_run() || usual) this->test_matrix(generate(kind, this->kType, k, k, 5), name(kind));
  }
}

}  // namespace
}  // namespace svdserve::numerics
