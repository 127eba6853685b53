// Bidiagonalization by a few threads of a warp (algorithms/blocks/bidiagonalize_in_registers.h), the source that a GPU
// runs, on fibers. Its bits are those of a lane, whatever the order of the threads.
#include "engine/algorithms/blocks/bidiagonalize_in_registers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "engine/algorithms/lanes/matrix_values.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/register_grid_on_fibers.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {
namespace {

template <class T>
struct Bidiagonal {
  explicit Bidiagonal(int k) : q(static_cast<size_t>(k)), e(static_cast<size_t>(k)) {}
  std::vector<T> q, e;  // e: k - 1, and a zero
  T exponent = 0;
  bool finite = false;

  friend bool operator==(const Bidiagonal& a, const Bidiagonal& b) {
    const size_t bytes = a.q.size() * sizeof(T);
    return a.exponent == b.exponent && a.finite == b.finite && std::memcmp(a.q.data(), b.q.data(), bytes) == 0 &&
           std::memcmp(a.e.data(), b.e.data(), bytes) == 0;
  }
};

// Size: of scalar::bidiagonalize. kPartials: of its sums.
template <class E, int kPartials = 8, class Size>
Bidiagonal<typename E::Scalar> by_lane(const Matrix& a, Size size) {
  using L = typename E::Lane;
  const auto k = static_cast<size_t>(a.cols);
  std::vector<E> x;
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) x.push_back(element<E>(a.at(i, j)));
  }
  std::vector<L> exponents(k), q(k), e(k);
  Bidiagonal<typename E::Scalar> b(size);
  b.finite = scalar::scaled_bidiagonal<kPartials>(scalar::Alone(), scalar::MatrixView<E>{x.data(), size}, size,
                                                  static_cast<const L*>(nullptr), exponents.data(), q.data(), e.data())
                 .m;
  b.exponent = exponents[0].v;
  for (size_t i = 0; i < k; ++i) b.q[i] = q[i].v;
  for (size_t i = 0; i + 1 < k; ++i) b.e[i] = e[i].v;
  return b;
}

template <class E, int K, int R, int C>
Bidiagonal<typename E::Scalar> by_threads(const Matrix& a, uint64_t seed) {
  using T = typename E::Scalar;
  const int k = static_cast<int>(a.cols);
  Bidiagonal<T> b(k);
  with_register_grid<scalar::BidiagonalizeInRegisters, E, K, R, C>(a, seed, [&](auto& algorithm, auto& x) {
    typename E::Lane exponent;
    b.finite = algorithm.scale(x, &exponent);
    b.exponent = exponent.v;
    algorithm.run(
        x, [&](int j, typename E::Lane value) { b.q[static_cast<size_t>(j)] = value.v; },
        [&](int j, typename E::Lane value) { b.e[static_cast<size_t>(j)] = value.v; });
  });
  return b;
}

template <class S>
class BidiagonalizeInRegisters : public testing::Test {
 protected:
  using E = typename S::Element;
  using T = typename E::Scalar;
  static constexpr DType kType =
      E::kComplex ? (sizeof(T) == 4 ? DType::kC64 : DType::kC128) : (sizeof(T) == 4 ? DType::kF32 : DType::kF64);

  static void expect_same_bits(const Matrix& a, const std::string& what) {
    const auto b = by_lane<E, std::max(8, S::R)>(a, scalar::RuntimeSize{static_cast<int>(a.cols)});
    EXPECT_EQ(b, (by_threads<E, S::K, S::R, S::C>(a, 7))) << what << " k = " << a.cols;
    if (!is_long_run()) return;
    EXPECT_EQ(b, (by_threads<E, S::K, S::R, S::C>(a, 0))) << what << " k = " << a.cols << " in order";
  }
};
using Shapes = testing::Types<
    GridShape<Complex<double>, 8, 2, 2>, GridShape<Real<float>, 16, 2, 2>, GridShape<Real<double>, 16, 2, 2>,
    GridShape<Complex<double>, 16, 4, 2>, GridShape<Complex<float>, 24, 4, 4>, GridShape<Complex<double>, 24, 8, 4>,
    GridShape<Real<float>, 32, 4, 2>, GridShape<Real<double>, 32, 4, 4>, GridShape<Complex<double>, 32, 8, 4>,
    GridShape<Real<double>, 16, 8, 1>, GridShape<Complex<float>, 12, 2, 2>, GridShape<Real<double>, 20, 4, 2>,
    GridShape<Real<double>, 48, 8, 4>, GridShape<Real<double>, 56, 8, 8>, GridShape<Complex<float>, 64, 8, 8>,
    GridShape<Complex<double>, 48, 8, 8>, GridShape<Complex<double>, 64, 16, 16>, GridShape<Real<float>, 80, 16, 16>>;
TYPED_TEST_SUITE(BidiagonalizeInRegisters, Shapes);

TYPED_TEST(BidiagonalizeInRegisters, HasTheBitsOfALane) {
  constexpr int K = TypeParam::K;
  for (int k = K % 8 == 0 ? K - 7 : K - 3; k <= K; k += is_long_run() ? 1 : 3) {
    if (scalar::fits_one_thread<typename TypeParam::Element>(k)) continue;
    this->expect_same_bits(generate(Kind::kNormal, this->kType, k, k, 1), "normal");
  }
  for (const Kind kind : kinds(this->kType)) {
    const bool usual = K <= 16 || kind == Kind::kLowRank || kind == Kind::kZero || kind == Kind::kSteepRows;
    if (is_long_run() || usual) this->expect_same_bits(generate(kind, this->kType, K - 1, K - 1, 5), name(kind));
  }
}

TYPED_TEST(BidiagonalizeInRegisters, DeadAndTinyLinesHaveTheBitsOfALane) {
  const int k = TypeParam::K - 1;
  Matrix a = generate(Kind::kNormal, this->kType, k, k, 3);
  this->expect_same_bits(with_dead_lines(a, {.rows = k / 2}), "dead rows");
  this->expect_same_bits(with_dead_lines(a, {.rows = k / 2, .cols = k - 3, .copies = true}), "repeated lines");
  // Products that underflow, and zeros with a sign.
  a = with_dead_lines(a, {.rows = k - 2, .row_step = 9, .col_step = 9});
  for (int i = 0; i < k; ++i) a.at(i, k / 2) = -a.at(i, k / 2);
  for (int i = 1; i < k; i += 3) a.at(i, i - 1) = -0.0;
  this->expect_same_bits(a, "tiny lines");
}

TYPED_TEST(BidiagonalizeInRegisters, WhatIsNotFiniteIsSaid) {
  const int k = TypeParam::K - 1;
  for (const Poison poison : {Poison::kInfinity, Poison::kQuietNan}) {
    Matrix a = generate(Kind::kNormal, this->kType, k, k, 1);
    a.at(k - 1, 1) = poison_value(poison);
    this->expect_same_bits(a, "not finite");
  }
}

// c128 of 7 and 8 columns is threads' on a GPU, and a size that the compiler knows on a CPU.
TEST(BidiagonalizeInRegisters, SizesThatTheCompilerKnowsHaveTheSameBits) {
  using E = Complex<double>;
  for (const Kind kind : {Kind::kNormal, Kind::kSteepRows}) {
    const Matrix seven = generate(kind, DType::kC128, 7, 7, 2), eight = generate(kind, DType::kC128, 8, 8, 2);
    EXPECT_EQ((by_lane<E>(seven, scalar::FixedSize<7>())), (by_threads<E, 8, 2, 2>(seven, 5)));
    EXPECT_EQ((by_lane<E>(eight, scalar::FixedSize<8>())), (by_threads<E, 8, 2, 2>(eight, 5)));
  }
}

}  // namespace
}  // namespace svdserve::numerics
