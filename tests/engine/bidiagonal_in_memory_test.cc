// U, S and V by bidiagonalization, as a GPU computes them beyond 128 columns. The block of
// algorithms/blocks/bidiagonalize_in_memory.h runs on fibers, eight sweeps or sixteen are made at once, and rows take their
// rotations by the windows of lanes/rotation_windows.h. All keep the contract, whatever the order of threads.
#include "engine/algorithms/blocks/bidiagonalize_in_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/support/numerics/bidiagonal_on_fibers.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {
namespace {

template <class Element_, int kLaneRows_, int kWarps_, int kWriteEvery_, int kAtOnce>
struct MemoryShape {
  using Element = Element_;
  static constexpr int kLaneRows = kLaneRows_, kWarps = kWarps_, kWriteEvery = kWriteEvery_;
  using Way = VectorsWay<kAtOnce, true>;
};

template <class S, int kWriteEvery = S::kWriteEvery>
Reduced<typename S::Element> reduce(const Matrix& a, bool by_rows, uint64_t seed) {
  using E = typename S::Element;
  using Algorithm = scalar::BidiagonalizeInMemory<FiberBlock::Thread, E, S::kLaneRows, S::kWarps, kWriteEvery>;
  const int k = static_cast<int>(a.cols);
  Reduced<E> b(k);
  // Numbers that nobody writes must not matter.
  for (E& x : b.left) x.re = typename E::Lane(1e30f);
  b.right = b.left;
  std::vector<typename Algorithm::Whole> given(size(k * k)), work(given);
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) given[size(by_rows ? i * k + j : j * k + i)].value = element<E>(a.at(i, j));
  }
  const auto shared = std::make_unique<typename Algorithm::Shared>();
  FiberBlock block(Algorithm::kThreads, seed);
  block.run([&](FiberBlock::Thread thread) {
    Algorithm algorithm(thread, shared.get(), k);
    typename E::Lane exponent;
    const bool finite = algorithm.load(given.data(), by_rows, work.data(), &exponent);
    if (thread.index() == 0) {
      b.finite = finite;
      b.exponent = exponent;
    }
    algorithm.run(work.data(), ToReduced<E>{&b});
  });
  return b;
}

template <class S>
class BidiagonalInMemory : public testing::Test {
 protected:
  using E = typename S::Element;
  static constexpr DType kType = dtype_of<E>();

  static void test_matrix(const Matrix& a, const std::string& what) {
    const int k = static_cast<int>(a.cols);
    const std::string where = std::string(name(kType)) + " " + what + " k = " + std::to_string(k);
    int rounds = 0;
    const int capacity = std::max(cuda::rotation_capacity(k), 2048);
    const Factors f = vectors_of<typename S::Way>(reduce<S>(a, false, 0), kType, k, capacity, &rounds);
    expect_contract(a, f, where);
    if (what != name(Kind::kNormal)) return;
    EXPECT_EQ(f, vectors_of<typename S::Way>(reduce<S>(a, true, 7), kType, k, capacity, &rounds)) << where;
    constexpr int kOther = S::kWriteEvery == 1 ? 2 : 1;
    EXPECT_EQ(f, vectors_of<typename S::Way>(reduce<S, kOther>(a, false, 3), kType, k, capacity, &rounds)) << where;
    // As the rotations one by one.
    int others = 0;
    const Factors g = vectors_of<VectorsWay<S::Way::kAtOnce>>(reduce<S>(a, false, 0), kType, k, capacity, &others);
    EXPECT_EQ(rounds, others);
    EXPECT_EQ(f.s, g.s) << where;
    const double bound = 8 * std::sqrt(k) * real_type(kType).unit_roundoff;
    for (int i = 0; i < k; ++i) {
      for (int j = 0; j < k; ++j) {
        ASSERT_LE(std::abs(f.u.at(i, j) - g.u.at(i, j)), bound) << where;
        ASSERT_LE(std::abs(f.v.at(i, j) - g.v.at(i, j)), bound) << where;
      }
    }
  }
};
using Shapes = testing::Types<MemoryShape<Real<double>, 3, 2, 2, 8>, MemoryShape<Real<float>, 5, 3, 3, 8>,
                              MemoryShape<Complex<float>, 3, 2, 1, 16>, MemoryShape<Complex<double>, 5, 2, 4, 16>>;
TYPED_TEST_SUITE(BidiagonalInMemory, Shapes);

TYPED_TEST(BidiagonalInMemory, EveryKindKeepsTheContract) {
  const int k = 32 * TypeParam::kLaneRows - 27;
  for (const Kind kind : kinds(this->kType)) {
    const bool usual = kind == Kind::kNormal || kind == Kind::kLowRank ||
                       (k < 128 && (kind == Kind::kColumnGraded || kind == Kind::kDuplicates ||
                                    kind == Kind::kSteepRows || kind == Kind::kOverflowing));
    if (is_long_run() || usual) this->test_matrix(generate(kind, this->kType, k, k, 5), name(kind));
  }
}

TYPED_TEST(BidiagonalInMemory, WholeLanesAndOneRowMoreKeepTheContract) {
  for (const int k : {64, 65}) {
    this->test_matrix(generate(Kind::kNormal, this->kType, k, k, 2), name(Kind::kNormal));
  }
}

TYPED_TEST(BidiagonalInMemory, DeadAndRepeatedLinesKeepTheContract) {
  const int k = 75;
  const Matrix a = generate(Kind::kNormal, this->kType, k, k, 3);
  this->test_matrix(with_dead_lines(a, {.rows = k / 2}), "dead rows");
  this->test_matrix(with_dead_lines(a, {.rows = k / 2, .cols = k - 3, .copies = true}), "repeated lines");
}

TYPED_TEST(BidiagonalInMemory, WhatIsNotFiniteIsSaid) {
  const int k = 40;
  for (const Poison poison : {Poison::kInfinity, Poison::kQuietNan}) {
    Matrix a = generate(Kind::kNormal, this->kType, k, k, 1);
    a.at(k - 1, 1) = poison_value(poison);
    int rounds = 0;
    const Factors f =
        vectors_of<typename TypeParam::Way>(reduce<TypeParam>(a, true, 0), this->kType, k, 4 * k * k, &rounds);
    EXPECT_EQ(f.status, MatrixStatus::kNonFinite);
  }
}

TEST(SweepsAtOnce, RandomFormsTakeHalfOfTheRoundsAtMost) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < (is_long_run() ? 20000 : 60); ++trial) {
    const int k = 129 + static_cast<int>(random() % (is_long_run() && trial % 16 == 0 ? 384 : 40));
    expect_few_rounds<8>(random_form<Form<double>>(k, &random));
    expect_few_rounds<8>(random_form<Form<float>>(k, &random));
    expect_few_rounds<16>(random_form<Form<double>>(k, &random));
    expect_few_rounds<16>(random_form<Form<float>>(k, &random));
  }
}

TEST(SweepsAtOnce, SeveralThreadsMakeTheBitsOfOne) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < (is_long_run() ? 200 : 12); ++trial) {
    const int k = trial % 4 == 0 ? 70 + trial : 129 + static_cast<int>(random() % 20);
    expect_same_bits_of_threads<8>(random_form<Form<double>>(k, &random), random());
    expect_same_bits_of_threads<16>(random_form<Form<float>>(k, &random), random());
  }
}

}  // namespace
}  // namespace svdserve::numerics
