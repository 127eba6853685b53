// Eigenvalues and eigenvectors of Hermitian matrices as a GPU computes them beyond 128 rows. The block of
// algorithms/blocks/tridiagonalize_in_memory.h runs on fibers, eight sweeps or sixteen are made at once, and rows take their
// rotations by the windows of lanes/rotation_windows.h. Eigenvalues alone are bisected (lanes/bisected_eigenvalue.h). All keep
// the contract, whatever the order of threads.
#include "engine/algorithms/blocks/tridiagonalize_in_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/lanes/bisected_eigenvalue.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/hermitian_samples.h"
#include "tests/support/numerics/scalar_elements.h"
#include "tests/support/numerics/tridiagonal_on_fibers.h"

namespace svdserve::numerics {
namespace {

template <class Element_, int kLaneRows_, int kWarps_, int kWriteEvery_, int kAtOnce>
struct MemoryShape {
  using Element = Element_;
  static constexpr int kLaneRows = kLaneRows_, kWarps = kWarps_, kWriteEvery = kWriteEvery_;
  using Way = VectorsWay<kAtOnce, true>;
};

// How an operand is stored.
struct Storage {
  bool by_rows = false, upper = false;
};

// The other triangle, and imaginary parts of the diagonal, are NaN.
template <class S, int kWriteEvery = S::kWriteEvery>
Reduced<typename S::Element> reduce(const Matrix& a, Storage storage, uint64_t seed) {
  using E = typename S::Element;
  using T = typename E::Scalar;
  using Algorithm = scalar::TridiagonalizeInMemory<FiberBlock::Thread, E, S::kLaneRows, S::kWarps, kWriteEvery>;
  const int k = static_cast<int>(a.cols);
  Reduced<E> t(k);
  // Numbers that nobody writes must not matter.
  for (E& x : t.reflectors) x.re = typename E::Lane(1e30f);
  const typename E::Lane nan(std::numeric_limits<T>::quiet_NaN());
  std::vector<typename Algorithm::Whole> given(size(k * k)), work(given);
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < k; ++j) {
      E& x = given[size(storage.by_rows ? i * k + j : j * k + i)].value;
      x = element<E>(a.at(i, j));
      if (storage.upper ? i > j : i < j) x.re = nan;
      if constexpr (E::kComplex) {
        if (storage.upper ? i >= j : i <= j) x.im = nan;
      }
      work[size(j * k + i)].value.re = nan;
    }
  }
  const auto shared = std::make_unique<typename Algorithm::Shared>();
  FiberBlock block(Algorithm::kThreads, seed);
  block.run([&](FiberBlock::Thread thread) {
    Algorithm algorithm(thread, shared.get(), k);
    typename E::Lane exponent;
    const bool finite = algorithm.load(given.data(), storage.by_rows, storage.upper, work.data(), &exponent);
    if (thread.index() == 0) {
      t.finite = finite;
      t.exponent = exponent;
    }
    algorithm.run(work.data(), ToReduced<E>{&t});
  });
  return t;
}

// Eigenvalues alone, as the GPU's threads bisect them.
template <class E>
std::vector<double> bisected(const Reduced<E>& t) {
  using L = typename E::Lane;
  const int k = static_cast<int>(t.diagonal.size());
  std::vector<L> squares;
  for (int i = 0; i + 1 < k; ++i) squares.push_back(scalar::add_square(L(0), t.off_diagonal[size(i)]));
  std::vector<double> values;
  const scalar::BisectedEigenvalue<L> bisection(k, t.diagonal.data(), squares.data());
  for (int j = 0; j < k; ++j) values.push_back(scalar::finished_eigenvalue(bisection.value(j), t.exponent).v);
  return values;
}

template <class S>
class TridiagonalInMemory : public testing::Test {
 protected:
  using E = typename S::Element;
  using Way = typename S::Way;
  static constexpr DType kType = dtype_of<E>();

  static Eigen eigen(const Reduced<E>& t, int capacity = 0) {
    const int k = static_cast<int>(t.diagonal.size());
    return eigen_of<Way>(t, k, std::max({capacity, cuda::rotation_capacity(k), 2048}));
  }
  static void expect_contract(const Matrix& m, bool with_reference, const std::string& what) {
    const Reduced<E> t = reduce<S>(m, {}, 0);
    const Eigen e = eigen(t);
    expect_hermitian_contract(m, e, with_reference, what);
    // Both are of the same form, to 4 k u of the largest one each. Denormal ones are rounded in the end.
    const std::vector<double> alone = bisected(t);
    EXPECT_TRUE(std::ranges::is_sorted(alone)) << what;
    const double largest = std::max(std::abs(alone.front()), std::abs(alone.back()));
    const double bound =
        8 * static_cast<double>(m.rows) * real_type(kType).unit_roundoff * largest + real_type(kType).smallest_denormal;
    for (size_t i = 0; i < alone.size(); ++i) ASSERT_LE(std::abs(alone[i] - e.values[i]), bound) << what << " " << i;
  }
};
using Shapes = testing::Types<MemoryShape<Real<double>, 3, 2, 2, 8>, MemoryShape<Real<float>, 5, 3, 3, 8>,
                              MemoryShape<Complex<float>, 3, 2, 1, 16>, MemoryShape<Complex<double>, 4, 2, 4, 16>>;
TYPED_TEST_SUITE(TridiagonalInMemory, Shapes);

TYPED_TEST(TridiagonalInMemory, AllFamiliesKeepTheContract) {
  Random random(5);
  const int k = 32 * TypeParam::kLaneRows - 27;
  // A short run leaves each type another third of the families.
  int number = static_cast<int>(this->kType);
  for (const HermitianFamily& family : hermitian_families()) {
    const Matrix m = family.make(this->kType, k, random);
    const bool is_random = std::string(family.name) == "random";
    if (!is_long_run() && !is_random && ++number % 3 != 0) continue;
    const bool with_reference = is_long_run() || (k < 96 && is_random);
    this->expect_contract(m, with_reference, family.name);
  }
}

TYPED_TEST(TridiagonalInMemory, WholeLanesAndOthersKeepTheContract) {
  Random random(2);
  for (const int k : {1, 2, 3, 32, 33, 34, 64, 65}) {
    this->expect_contract(random_hermitian(this->kType, k, random), k < 32 || is_long_run(), "random");
  }
}

TYPED_TEST(TridiagonalInMemory, NeitherTheOrderOfThreadsNorTheStorageMatters) {
  Random random(6);
  const int k = 32 * TypeParam::kLaneRows - 3;
  const Matrix m = random_hermitian(this->kType, k, random);
  const auto t = reduce<TypeParam>(m, {}, 0);
  constexpr int kOther = TypeParam::kWriteEvery == 1 ? 2 : 1;
  for (const Storage storage : {Storage{true, false}, Storage{false, true}, Storage{true, true}}) {
    EXPECT_EQ(t, (reduce<TypeParam, kOther>(m, storage, 7)));
  }
  const Eigen in_rounds = this->eigen(t), at_once = this->eigen(t, 4 * k * k + 200);
  EXPECT_GE(in_rounds.rounds, 2);
  EXPECT_EQ(at_once.values, in_rounds.values);
}

TYPED_TEST(TridiagonalInMemory, WhatIsNotFiniteIsSaid) {
  const int k = 34;
  Random random(7);
  for (const double poison : {double{INFINITY}, std::nan("")}) {
    Matrix m = random_hermitian(this->kType, k, random);
    m.at(k - 1, 1) = m.at(1, k - 1) = poison;
    EXPECT_FALSE(reduce<TypeParam>(m, {}, 0).finite);
  }
}

// --- bisection ---------------------------------------------------------------------------------------------------------

// d with off-diagonal elements e.
template <class T>
std::vector<double> bisected(const std::vector<T>& d, const std::vector<T>& e) {
  using L = scalar::ScalarLane<T>;
  const int k = static_cast<int>(d.size());
  std::vector<L> diagonal(d.begin(), d.end()), squares;
  for (const T x : e) squares.push_back(L(x) * L(x));
  const scalar::BisectedEigenvalue<L> bisection(k, diagonal.data(), squares.data());
  std::vector<double> values;
  for (int j = 0; j < k; ++j) values.push_back(bisection.value(j).v);
  return values;
}

template <class T>
void expect_known_eigenvalues() {
  const double u = FloatTraits<T>::kUnitRoundoff;
  // Zero; a diagonal matrix with equal elements; 2 - 2 cos(pi j / (k + 1)) and its negative.
  EXPECT_EQ(bisected<T>({0, 0, 0}, {0, 0}), std::vector<double>(3, 0.0));
  const std::vector<double> diagonal = bisected<T>({T(0.5), -1, T(0.5), 0}, {0, 0, 0}), sorted{-1, 0, 0.5, 0.5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(diagonal[i], sorted[i], 4 * u);
  for (const int k : {1, 2, 65, 500}) {
    for (const T sign : {T(1), T(-1)}) {
      const std::vector<double> found = bisected(std::vector<T>(size(k), 2 * sign), std::vector<T>(size(k - 1), T(-1)));
      for (int j = 0; j < k; ++j) {
        const int place = sign > 0 ? j + 1 : k - j;
        const double exact = sign * (2 - 2 * std::cos(std::acos(-1.0) * place / (k + 1)));
        EXPECT_NEAR(found[size(j)], exact, 16 * u * 4) << k << " " << j;
      }
    }
  }
}

TEST(BisectedEigenvalue, KnownEigenvaluesAreFound) {
  expect_known_eigenvalues<float>();
  expect_known_eigenvalues<double>();
}

// A form with a tiny part and one of elements whose squares vanish.
TEST(BisectedEigenvalue, TinyElementsKeepTheAbsoluteBound) {
  const std::vector<double> values = bisected<double>({1, 1e-200, 1e-300, -1}, {1e-170, 1e-250, 1e-10});
  const std::vector<double> exact{-1, 0, 0, 1};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(values[i], exact[i], 1e-15);
}

}  // namespace
}  // namespace svdserve::numerics
