// Eigenvalues and eigenvectors of Hermitian matrices as a GPU computes them for 33 to 128 rows. The grid of
// algorithms/blocks/tridiagonalize_in_registers.h runs on fibers, as the threads of a row do (blocks/vector_rows.h). The
// sweeps are those of lanes/tridiagonal_qr.h. All keep the contract, whatever the order of threads and the room for
// rotations.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/algorithms/blocks/tridiagonalize_in_registers.h"
#include "engine/core/team.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/register_grid_on_fibers.h"
#include "tests/support/numerics/square_factors.h"
#include "tests/support/numerics/swept_form.h"
#include "tests/support/numerics/tridiagonal_on_fibers.h"

namespace svdserve::numerics {
namespace {

template <class E, int K, int R, int C>
Reduced<E> reduce(const Matrix& a, uint64_t seed) {
  Reduced<E> t(static_cast<int>(a.cols));
  // Numbers that nobody writes must not matter.
  for (E& x : t.reflectors) x.re = typename E::Lane(1e30f);
  with_register_grid<scalar::TridiagonalizeInRegisters, E, K, R, C>(a, seed, [&](auto& algorithm, auto& x) {
    t.finite = algorithm.scale(x, &t.exponent);
    algorithm.run(x, ToReduced<E>{&t});
  });
  return t;
}

template <class S>
class TridiagonalVectors : public testing::Test {
 protected:
  using E = typename S::Element;
  static constexpr DType kType = dtype_of<E>();

  static Reduced<E> reduced(const Matrix& m, uint64_t seed) { return reduce<E, S::K, S::R, S::C>(m, seed); }
  static void expect_contract(const Matrix& m, bool with_reference, const std::string& what) {
    const int n = static_cast<int>(m.rows);
    const Eigen e = eigen_of(reduced(m, 0), n, 4 * n * n + 200);
    EXPECT_LE(e.rounds, 1) << what;
    expect_hermitian_contract(m, e, with_reference, what);
  }
};
using Shapes = testing::Types<GridShape<Real<double>, 48, 8, 4>, GridShape<Real<float>, 40, 4, 4>,
                              GridShape<Complex<float>, 48, 8, 8>, GridShape<Complex<double>, 40, 8, 8>,
                              GridShape<Real<float>, 80, 16, 16>>;
TYPED_TEST_SUITE(TridiagonalVectors, Shapes);

TYPED_TEST(TridiagonalVectors, AllFamiliesKeepTheContract) {
  Random random(5);
  constexpr int K = TypeParam::K;
  const bool is_slow = K >= 80 && !is_long_run();
  int number = 0;
  for (const HermitianFamily& family : hermitian_families()) {
    const Matrix m = family.make(this->kType, K < 80 ? 33 : 65, random);
    if (is_slow && number++ % 4 != 0) continue;
    const bool with_reference = is_long_run() || (K < 80 && std::string(family.name) == "random");
    this->expect_contract(m, with_reference, family.name);
    if (!is_slow) this->expect_contract(family.make(this->kType, K, random), with_reference, family.name);
  }
}

TYPED_TEST(TridiagonalVectors, NeitherTheOrderOfThreadsNorTheRoomMatters) {
  Random random(6);
  const int n = TypeParam::K - 3;
  const Matrix m = random_hermitian(this->kType, n, random);
  const auto t = this->reduced(m, 0);
  EXPECT_EQ(t, this->reduced(m, 7));
  const Eigen at_once = eigen_of(t, n, 4 * n * n + 200);
  const Eigen in_rounds = eigen_of(t, n, 2 * scalar::RotationGroup::rotations(n));
  EXPECT_GE(in_rounds.rounds, 2);
  EXPECT_EQ(at_once.values, in_rounds.values);
  EXPECT_EQ(at_once.vectors.at_, in_rounds.vectors.at_);
}

TYPED_TEST(TridiagonalVectors, WhatIsNotFiniteIsSaid) {
  const int n = 34;
  Random random(7);
  for (const double poison : {double{INFINITY}, std::nan("")}) {
    Matrix m = random_hermitian(this->kType, n, random);
    m.at(n - 1, 1) = m.at(1, n - 1) = poison;
    EXPECT_FALSE(this->reduced(m, 0).finite);
  }
}

// Eigenvalues within 1e-6 of one. Sweeps rotate them all again and again.
template <class T>
void expect_cluster_to_stay(int k) {
  using L = scalar::ScalarLane<T>;
  std::vector<L> d(size(k), L(1)), e(size(k), L(T(5e-7)));
  e.back() = L(0);
  Swept<Form<T>> form(d, e, L(1), 8 * k * k);
  sweep_round(scalar::OneThread(), &form);
  ASSERT_EQ(form.state.high, 0);
  const double bound = 1e-6 + (k + 16) * static_cast<double>(FloatTraits<T>::kUnitRoundoff);
  for (const L& x : form.d) EXPECT_NEAR(static_cast<double>(x.v), 1, bound) << k;
}

TEST(TridiagonalQr, EigenvaluesOfAClusterDoNotDrift) {
  for (const int k : {33, 64, 128}) {
    expect_cluster_to_stay<float>(k);
    expect_cluster_to_stay<double>(k);
  }
}

TEST(TridiagonalQr, RandomFormsTakeHalfOfTheRoundsAtMost) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < (is_long_run() ? 400000 : 500); ++trial) {
    const int k = 33 + static_cast<int>(random() % (trial % 4 == 0 ? 96 : 20));
    expect_few_rounds(random_form<Form<double>>(k, &random));
    expect_few_rounds(random_form<Form<float>>(k, &random));
  }
}

TEST(TridiagonalQr, FourThreadsMakeTheBitsOfOne) {
  std::mt19937_64 random(12);
  for (int trial = 0; trial < (is_long_run() ? 400 : 20); ++trial) {
    const int k = trial % 4 == 0 ? 2 + trial : 33 + static_cast<int>(random() % 20);
    expect_same_bits_of_threads(random_form<Form<double>>(k, &random), random());
    expect_same_bits_of_threads(random_form<Form<float>>(k, &random), random());
  }
}

}  // namespace
}  // namespace svdserve::numerics
