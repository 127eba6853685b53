// Eigenbases of Hermitian matrices: orthonormal, diagonalizing, in descending order; on one thread and on more.
#include "engine/backends/host/forms/hermitian_eigenbasis.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/large/blocked_svd.h"
#include "gtest/gtest.h"
#include "oneapi/tbb/task_arena.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using numerics::Random;

// Q diag(values) Q^H, as hermitian as rounding leaves it: both triangles from the lower one.
template <class E>
std::vector<E> hermitian(int64_t n, const std::function<double(double)>& value, uint64_t seed) {
  Random random(seed);
  const DType dtype = std::is_floating_point_v<E> ? DType::kF64 : DType::kC128;
  const auto q = numerics::orthonormal_columns(dtype, n, n, random);
  std::vector<E> g(n * n);
  const auto element = [](std::complex<double> z) {
    if constexpr (std::is_floating_point_v<E>) {
      return E(z.real());
    } else {
      return E(z);
    }
  };
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = j; i < n; ++i) {
      std::complex<double> sum = 0;
      for (int64_t l = 0; l < n; ++l) {
        sum += q.at(i, l) * value(n > 1 ? double(l) / double(n - 1) : 0) * std::conj(q.at(j, l));
      }
      if (i == j) sum = sum.real();
      g[i + j * n] = element(sum);
      g[j + i * n] = element(std::conj(sum));
    }
  }
  return g;
}

template <class E>
double magnitude_of_product(const std::vector<E>& x, int64_t a, const std::vector<E>& y, int64_t b, int64_t n,
                            double minus) {
  std::complex<double> sum = -minus;
  for (int64_t i = 0; i < n; ++i)
    sum += std::conj(std::complex<double>(x[i + a * n])) * std::complex<double>(y[i + b * n]);
  return std::abs(sum);
}

template <class E>
void expect_eigenbasis(const LargeThreads& threads, std::vector<E> g, int64_t n, large::Precision precision) {
  const bool single = precision == large::Precision::kSingle;
  const std::vector<E> matrix = g;
  std::vector<E> v(n * n, E(NAN));
  const LargeView<E> view_of_g{g.data(), n, n, n}, view_of_v{v.data(), n, n, n};
  ASSERT_TRUE(single ? hermitian_eigenbasis_in_single(threads, view_of_g, view_of_v)
                     : hermitian_eigenbasis(threads, view_of_g, view_of_v));
  double norm = 0;
  for (const E& x : matrix) norm += std::norm(x);
  norm = std::sqrt(norm);
  std::vector<E> product(n * n, E(0));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t l = 0; l < n; ++l) {
      for (int64_t i = 0; i < n; ++i) product[i + j * n] += matrix[i + l * n] * v[l + j * n];
    }
  }
  double before = HUGE_VAL;
  const double bound = 10 * double(n) * (single ? 0x1p-24 : 0x1p-53);
  for (int64_t a = 0; a < n; ++a) {
    for (int64_t b = 0; b < n; ++b) {
      ASSERT_LE(magnitude_of_product(v, a, v, b, n, a == b ? 1 : 0), bound) << a << ", " << b;
      if (a != b) {
        ASSERT_LE(magnitude_of_product(v, a, product, b, n, 0), bound * norm) << a << ", " << b;
      }
    }
    std::complex<double> value = 0;
    for (int64_t i = 0; i < n; ++i)
      value += std::conj(std::complex<double>(v[i + a * n])) * std::complex<double>(product[i + a * n]);
    ASSERT_LE(value.real(), before + bound * norm);
    before = value.real();
  }
}

template <class E>
void test_spectra() {
  const BlasThreads one_thread_a_call;
  oneapi::tbb::task_arena arena(2);
  const LargeThreads alone(nullptr, 1, nullptr), two(&arena, 2, nullptr);
  for (const int64_t n : {1, 2, 3, 31, 33, 65, 66, 130}) {
    for (const auto& value : std::vector<std::function<double(double)>>{
             [](double x) { return 1 + x; }, [](double) { return 2.0; }, [](double) { return 0.0; },
             [](double x) { return x < 0.5 ? 1.0 : -1.0; }, [](double x) { return std::pow(10, -14 * x); }}) {
      const auto g = hermitian<E>(n, value, static_cast<uint64_t>(n));
      SCOPED_TRACE(testing::Message() << "n " << n << ", first entry " << g[0]);
      for (const auto precision : {large::Precision::kSingle, large::Precision::kDouble}) {
        expect_eigenbasis(alone, g, n, precision);
        expect_eigenbasis(two, g, n, precision);
      }
    }
  }
}

TEST(HermitianEigenbasis, Real) { test_spectra<double>(); }
TEST(HermitianEigenbasis, Complex) { test_spectra<std::complex<double>>(); }

TEST(HermitianEigenbasis, ACancelIsSeen) {
  std::atomic<bool> cancel{true};
  LargeControl control;
  control.cancel = &cancel;
  const large::LargeWatch watch(control);
  const LargeThreads threads(nullptr, 1, &watch);
  auto g = hermitian<double>(
      100, [](double x) { return x; }, 1);
  std::vector<double> v(100 * 100);
  EXPECT_THROW(hermitian_eigenbasis(threads, LargeView<double>{g.data(), 100, 100, 100},
                                    LargeView<double>{v.data(), 100, 100, 100}),
               large::LargeStop);
}

// The earlier content of the workspace does not matter, and the engine of one thread gives the same bits.
TEST(BlockedSvd, SameBitsWhateverWasBefore) {
  BlockedSvd used;
  const auto engine = make_host_large_engine(1);
  for (const DType dtype : {DType::kF64, DType::kC64}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{40, 40}, {90, 33}, {33, 90}, {64, 64}}) {
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
        const LargePlan plan = numerics::large_plan_of({rows, cols, dtype, Order::kRowMajor}, {.vectors = vectors});
        const numerics::Matrix a = numerics::generate(numerics::Kind::kNormal, dtype, rows, cols, 5);
        const auto expected = numerics::run_large(*engine, plan, a);
        std::vector<std::byte> operand(plan.operand_bytes()), left(plan.left_bytes()), values(plan.values_bytes()),
            right(plan.right_bytes());
        numerics::store(a, Order::kRowMajor, operand.data());
        for (int i = 0; i < 2; ++i) {
          const LargeOutcome outcome =
              used.decompose(plan, {operand.data(), nullptr, left.data(), values.data(), right.data()});
          ASSERT_EQ(outcome.status, LargeStatus::kOk);
          EXPECT_EQ(left, expected.left_bytes);
          EXPECT_EQ(values, expected.values_bytes);
          EXPECT_EQ(right, expected.right_bytes);
        }
      }
    }
  }
}

// The result of tridiagonalize() ends kReadBeyond elements before memory that nobody may read: a kernel of the BLAS
// that reads further beyond it is killed.
template <class E>
void tridiagonalize_at_a_pages_end() {
  constexpr size_t kPage = 1 << 16;
  void* const pages = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  E* const end = reinterpret_cast<E*>(static_cast<char*>(pages) + kPage);
  ASSERT_EQ(mprotect(end, kPage, PROT_NONE), 0);
  for (int64_t n = 1; n <= 64; ++n) {
    std::vector<E> a = hermitian<E>(
        n, [](double x) { return x; }, static_cast<uint64_t>(n));
    std::vector<RealNumber<E>> d(n), e(n);
    blas::tridiagonalize(n, a.data(), n, d.data(), e.data(), end - blas::kReadBeyond - n);
    for (const double x : d) EXPECT_TRUE(std::isfinite(x));
  }
  munmap(pages, 2 * kPage);
}

TEST(HermitianEigenbasis, TheBlasReadsNoFurtherBeyondItsResultThanThereIsRoom) {
  const BlasThreads one_thread;
  tridiagonalize_at_a_pages_end<float>();
  tridiagonalize_at_a_pages_end<ComplexFloat>();
  tridiagonalize_at_a_pages_end<double>();
  tridiagonalize_at_a_pages_end<Complex>();
}

}  // namespace
}  // namespace svdserve::host
