// BIDIAGONAL of one matrix on a CPU, called as batches call it: every kind of matrix, every small order, both strides.
#include "engine/backends/host/forms/bidiagonal_svd.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <type_traits>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/forms/bidiagonal_reduction.h"
#include "engine/backends/host/values/bidiagonal_values.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {
namespace {

template <class E>
constexpr DType kDTypeOf = std::is_same_v<E, float>                 ? DType::kF32
                           : std::is_same_v<E, double>              ? DType::kF64
                           : std::is_same_v<E, std::complex<float>> ? DType::kC64
                                                                    : DType::kC128;

template <class E>
struct Result {
  MatrixStatus status;
  std::vector<typename host::BidiagonalSvd<E>::T> s;
  std::vector<E> x, y;
};

template <class E>
class BidiagonalSvdTest : public ::testing::Test {
 protected:
  using T = typename host::BidiagonalSvd<E>::T;

  // a: its rows one after the other, or its columns.
  Result<E> run(const Matrix& a, bool by_rows, bool vectors) {
    std::vector<E> elements(a.elements.size());
    store(a, by_rows ? Order::kRowMajor : Order::kColumnMajor, elements.data());
    const auto m = static_cast<size_t>(a.rows), n = static_cast<size_t>(a.cols);
    Result<E> result{{}, std::vector<T>(n), std::vector<E>(vectors ? m * n : 0), std::vector<E>(vectors ? n * n : 0)};
    const host::StridedMatrix<E> t{elements.data(), a.rows, a.cols, by_rows ? a.cols : 1, by_rows ? 1 : a.rows};
    if (vectors) {
      result.status = svd_.decompose(t, result.s.data(), result.x.data(), result.y.data());
      return result;
    }
    std::vector<T> d(n), e(n);
    host::AlignedArray<double> scratch;
    scratch.reserve(host::bidiagonal_values_scratch(static_cast<int>(n)));
    int exponent = 0;
    result.status = MatrixStatus::kNonFinite;
    if (!svd_.reduce(t, d.data(), e.data(), &exponent)) return result;
    const host::Bidiagonals<T> b{static_cast<int>(n), 1, d.data(), e.data(), result.s.data()};
    host::find_values(b, scratch.data());
    result.status = host::scale_values(b.n, exponent, b.s);
    return result;
  }

  static Dense widen(const std::vector<E>& by_columns, int64_t rows, int64_t cols) {
    Dense d{rows, cols, std::vector<Wide>(by_columns.size())};
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        const std::complex<double> z(by_columns[static_cast<size_t>(j * rows + i)]);
        d.at_[static_cast<size_t>(i * cols + j)] = {z.real(), z.imag()};
      }
    }
    return d;
  }

  static Dense adjoint(const Dense& a) {
    Dense d{a.cols, a.rows, std::vector<Wide>(a.at_.size())};
    for (int64_t i = 0; i < a.rows; ++i) {
      for (int64_t j = 0; j < a.cols; ++j) d.at_[static_cast<size_t>(j * a.rows + i)] = std::conj(a.at(i, j));
    }
    return d;
  }

  void expect_values(const Matrix& a, const std::vector<T>& s) {
    const RealType real = real_type(a.dtype);
    const std::vector<long double> reference = reference_singular_values(a);
    const long double k = static_cast<long double>(a.cols);
    const long double bound = (16 + 2 * k) * (is_complex(a.dtype) ? 2 : 1) * real.unit_roundoff;
    for (size_t i = 0; i < s.size(); ++i) {
      EXPECT_FALSE(std::signbit(s[i]));
      if (std::isinf(s[i])) {
        EXPECT_GE(reference[i], real.largest * (1 - bound));
        continue;
      }
      EXPECT_LE(std::abs(s[i] - reference[i]),
                bound * reference[0] + static_cast<long double>(real.smallest_denormal) / 2)
          << i;
    }
  }

  void expect_vectors(const Matrix& a, const Result<E>& result) {
    const long double u = real_type(a.dtype).unit_roundoff;
    const Dense x = widen(result.x, a.rows, a.cols), yh = adjoint(widen(result.y, a.cols, a.cols));
    EXPECT_LE(orthogonality(x, false), 10 * static_cast<long double>(a.rows) * u);
    EXPECT_LE(orthogonality(yh, true), 10 * static_cast<long double>(a.cols) * u);
    // Values that over- or underflow are not those of these vectors.
    if (result.s[0] < real_type(a.dtype).smallest_normal / u || result.status == MatrixStatus::kOutOfRange) return;
    const std::vector<double> s(result.s.begin(), result.s.end());
    EXPECT_LE(residual(a, x, s, yh), 10 * static_cast<long double>(a.rows) * u);
  }

  void test(Kind kind, int64_t m, int64_t n, uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << name(kind) << " " << m << "x" << n << " seed " << seed);
    const Matrix a = generate(kind, kDTypeOf<E>, m, n, seed);
    const Result<E> values = run(a, true, false), vectors = run(a, true, true), turned = run(a, false, true);
    EXPECT_EQ(values.status, std::isinf(values.s[0]) ? MatrixStatus::kOutOfRange : MatrixStatus::kOk);
    EXPECT_EQ(vectors.status, std::isinf(vectors.s[0]) ? MatrixStatus::kOutOfRange : MatrixStatus::kOk);
    expect_values(a, values.s);
    expect_values(a, vectors.s);
    expect_vectors(a, vectors);
    EXPECT_EQ(vectors.s, turned.s);
    EXPECT_EQ(vectors.x, turned.x);
    EXPECT_EQ(vectors.y, turned.y);
  }

  host::BlasThreads one_thread_a_call_;
  host::BidiagonalSvd<E> svd_;  // one workspace for all matrices
};

using Elements = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(BidiagonalSvdTest, Elements);

TYPED_TEST(BidiagonalSvdTest, EveryKindKeepsTheContract) {
  const int64_t step = is_long_run() ? 1 : kSanitized ? 11 : 5;
  for (const Kind kind : kinds(kDTypeOf<TypeParam>)) {
    for (int64_t n = 1; n <= 40; n += step) {
      this->test(kind, n, n, static_cast<uint64_t>(n));
      this->test(kind, 2 * n + 1, n, static_cast<uint64_t>(n));
    }
  }
}

TYPED_TEST(BidiagonalSvdTest, OrdersOfBatchesKeepTheContract) {
  if (kSanitized) GTEST_SKIP() << "the code is that of smaller orders";
  for (const Kind kind : {Kind::kNormal, Kind::kSteepRows, Kind::kLowRank, Kind::kClusters}) {
    const std::vector<Kind> all = kinds(kDTypeOf<TypeParam>);
    if (std::find(all.begin(), all.end(), kind) == all.end()) continue;
    this->test(kind, 64, 64, 1);
    if (is_long_run()) this->test(kind, 300, 128, 1);
  }
}

// The superdiagonal of B has the length of what a row loses; here rows and columns lose all, or next to nothing.
TYPED_TEST(BidiagonalSvdTest, ReductionKeepsWhatIsBidiagonal) {
  using T = typename host::BidiagonalSvd<TypeParam>::T;
  constexpr int kN = 19, kPlanes = std::is_same_v<T, TypeParam> ? 1 : 2;
  const int ld = host::reduction_ld<T>(kN);
  host::AlignedArray<T> a, work;
  a.reserve(static_cast<size_t>(ld) * kPlanes * kN);
  work.reserve(host::reduction_work(ld, kPlanes));
  std::fill_n(a.data(), ld * kPlanes * kN, T(0));
  std::vector<T> d(kN), e(kN), tau_q(kN * kPlanes), tau_p(kN * kPlanes);
  host::BidiagonalReduction<T> task{kN, kPlanes, ld, a.data(), d.data(), e.data()};
  task.tau_q = tau_q.data();
  task.tau_p = tau_p.data();
  task.work = work.data();
  for (int j = 0; j < kN; ++j) {
    task.column(j)[j] = T(1) / T(j + 1);
    if (j > 0) task.column(j)[j - 1] = T(-1) / T(2 * j);
    if (j + 2 < kN) task.column(j)[kN - 1] = std::numeric_limits<T>::min();  // negligible
  }
  host::bidiagonalize(task);
  for (int j = 0; j < kN; ++j) {
    EXPECT_EQ(d[j], T(1) / T(j + 1)) << j;
    if (j + 1 < kN) {
      EXPECT_EQ(e[j], T(-1) / T(2 * (j + 1))) << j;
    }
  }
  EXPECT_EQ(tau_q, std::vector<T>(tau_q.size()));
  EXPECT_EQ(tau_p, std::vector<T>(tau_p.size()));
}

TYPED_TEST(BidiagonalSvdTest, NonFiniteElementsAreFoundWhereverTheyAre) {
  for (const Poison poison : {Poison::kInfinity, Poison::kMinusInfinity, Poison::kQuietNan}) {
    for (const auto& [i, j] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {8, 3}, {11, 6}}) {
      Matrix a = generate(Kind::kNormal, kDTypeOf<TypeParam>, 12, 7, 1);
      const double value = poison_value(poison);
      a.at(i, j) = is_complex(a.dtype) ? std::complex<double>(1, value) : std::complex<double>(value, 0);
      EXPECT_EQ(this->run(a, true, true).status, MatrixStatus::kNonFinite);
      EXPECT_EQ(this->run(a, false, false).status, MatrixStatus::kNonFinite);
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
