// Eigenvalues and eigenvectors of general matrices by QR: residuals, known spectra, LAPACK's values, exact conjugates;
// on one thread and on more.
#include "engine/backends/host/general/general_eigen.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "gtest/gtest.h"
#include "oneapi/tbb/task_arena.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/geev.h"
#include "tests/support/numerics/random.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using numerics::normal_number;
using numerics::Random;

constexpr double kUnit = 0x1p-53;

Complex conjugate(const Complex& z) { return std::conj(z); }
double conjugate(double x) { return x; }

// Column-major, n x n.
template <class E>
struct Square {
  explicit Square(int64_t order) : n(order), entries(static_cast<size_t>(order * order)) {}
  E& operator()(int64_t i, int64_t j) { return entries[static_cast<size_t>(i + j * n)]; }
  const E& operator()(int64_t i, int64_t j) const { return entries[static_cast<size_t>(i + j * n)]; }
  LargeView<E> view() { return {entries.data(), n, n, std::max<int64_t>(n, 1)}; }

  int64_t n;
  std::vector<E> entries;
};

template <class E>
double norm_of(const Square<E>& a) {
  double square = 0;
  for (const E& x : a.entries) square += std::norm(x);
  return std::sqrt(square);
}

// Multiplied by a power of two, so that the norm is in [1/2, 1).
template <class E>
Square<E> scaled(Square<E> a) {
  const double norm = norm_of(a);
  if (norm > 0) {
    const double factor = std::ldexp(1.0, -std::ilogb(norm) - 1);
    for (E& x : a.entries) x *= factor;
  }
  return a;
}

template <class E, class F>
Square<E> made(int64_t n, const F& entry) {
  Square<E> a(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a(i, j) = entry(i, j);
  }
  return a;
}

template <class E>
Square<E> product(const Square<E>& a, const Square<E>& b, bool adjoint_a, bool adjoint_b) {
  Square<E> c(a.n);
  blas::gemm(adjoint_a, adjoint_b, a.n, a.n, a.n, 1, a.entries.data(), a.n, b.entries.data(), a.n, 0, c.entries.data(),
             a.n);
  return c;
}

template <class E>
Square<E> random_square(int64_t n, uint64_t seed = 1) {
  Random random(seed + static_cast<uint64_t>(n));
  return made<E>(n, [&](int64_t, int64_t) { return normal_number<E>(random); });
}

template <class E>
Square<E> random_unitary(int64_t n, uint64_t seed) {
  Square<E> q = random_square<E>(n, seed);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t l = 0; l < 2 * j; ++l) {  // Gram and Schmidt, twice
      E sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += conjugate(q(i, l % j)) * q(i, j);
      for (int64_t i = 0; i < n; ++i) q(i, j) -= sum * q(i, l % j);
    }
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += std::norm(q(i, j));
    for (int64_t i = 0; i < n; ++i) q(i, j) /= std::sqrt(square);
  }
  return q;
}

// X diag(values) X^H for unitary X.
template <class E, class F>
Square<E> normal_matrix(int64_t n, const F& value) {
  const Square<E> x = random_unitary<E>(n, 3);
  Square<E> scaled_columns = x;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) scaled_columns(i, j) *= value(j);
  }
  return product(scaled_columns, x, false, true);
}

template <class E>
struct Case {
  std::string name;
  Square<E> a;
  bool moderate = false;            // values are compared with LAPACK's
  std::vector<Complex> known = {};  // values, where they are well-conditioned
};

template <class E>
void add_random(std::vector<Case<E>>& all) {
  for (const int64_t n : {1, 2, 3, 7, 33, 80, 150, 300}) {
    if (numerics::kSanitized && n > 150) continue;
    all.push_back({"random " + std::to_string(n), random_square<E>(n), true, {}});
  }
  const int64_t n = 90;
  Random random(5);
  all.push_back({"Hessenberg",
                 made<E>(n, [&](int64_t i, int64_t j) { return i <= j + 1 ? normal_number<E>(random) : E(0); }),
                 true,
                 {}});
  all.push_back({"rank one", made<E>(n, [](int64_t i, int64_t j) { return E(double(i + 1) * double(j % 7 + 1)); })});
  all.push_back({"unitary", random_unitary<E>(n, 2), true, {}});
  const Square<E> g = random_square<E>(n, 4);
  all.push_back(
      {"skew-Hermitian", made<E>(n, [&](int64_t i, int64_t j) { return g(i, j) - conjugate(g(j, i)); }), true, {}});
  all.push_back({"two-sided grading",
                 made<E>(n, [&](int64_t i, int64_t j) { return g(i, j) * std::ldexp(1.0, int(40 * (i - j) / n)); })});
  all.push_back({"clusters", normal_matrix<E>(n, [](int64_t j) { return E(1.0 + double(j % 3) + 1e-9 * double(j)); })});
  // Rows that gebal permutes to the end, others to the front, a full block between them.
  const std::vector<int64_t> where = {3, 0, 4, 1, 5, 2};
  all.push_back({"blocks", made<E>(n, [&](int64_t i, int64_t j) {
                   const int64_t to = where[static_cast<size_t>(i % 6)], from = where[static_cast<size_t>(j % 6)];
                   if (to > 3 || from > 3) return to < from || i == j ? g(i, j) : E(0);
                   return to == from ? g(i, j) : E(0);
                 })});
}

template <class E>
void add_defective(std::vector<Case<E>>& all) {
  const auto jordan = [](int64_t n, double value, double corner) {
    return made<E>(n, [=](int64_t i, int64_t j) {
      if (i == n - 1 && j == 0) return E(corner);
      return i == j ? E(value) : i + 1 == j ? E(1) : E(0);
    });
  };
  for (const int64_t n : {5, 100}) {
    const std::string order = " " + std::to_string(n);
    all.push_back({"Jordan" + order, jordan(n, 0.5, 0)});
    all.push_back({"Jordan and eps" + order, jordan(n, 0.5, 1e-12)});
    all.push_back({"nilpotent" + order, jordan(n, 0, 0)});
    Random random(9);
    const Square<E> upper = made<E>(n, [&](int64_t i, int64_t j) { return i < j ? normal_number<E>(random) : E(0); });
    all.push_back({"strictly upper" + order, upper});
    const Square<E> q = random_unitary<E>(n, 8);
    all.push_back({"hidden nilpotent" + order, product(product(q, upper, false, false), q, false, true)});
    all.push_back(
        {"lower" + order, made<E>(n, [&](int64_t i, int64_t j) { return i >= j ? normal_number<E>(random) : E(0); })});
  }
  for (const int64_t n : {12, 40}) {
    all.push_back({"Frank " + std::to_string(n),
                   made<E>(n, [&](int64_t i, int64_t j) { return E(i > j + 1 ? 0.0 : double(n - std::max(i, j))); })});
  }
  all.push_back({"Grcar", made<E>(100, [](int64_t i, int64_t j) {
                   return E(i == j + 1 ? -1.0 : i <= j && j <= i + 3 ? 1.0 : 0.0);
                 })});
  Random random(10);
  all.push_back({"companion", made<E>(81, [&](int64_t i, int64_t j) {
                   return i == 0 ? normal_number<E>(random) : E(i == j + 1 ? 1.0 : 0.0);
                 })});
}

template <class E>
void add_known(std::vector<Case<E>>& all) {
  const int64_t n = 97;
  const auto spectrum = [](const auto& value) {
    std::vector<Complex> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(value(double(i)));
    return values;
  };
  all.push_back({"zero", Square<E>(n), true, spectrum([](double) { return Complex(0); })});
  const auto unit = made<E>(n, [](int64_t i, int64_t j) { return E(i == j ? 0.0625 : 0.0); });
  all.push_back({"identity", unit, true, spectrum([](double) { return Complex(0.0625); })});
  const auto cycle = made<E>(n, [](int64_t i, int64_t j) { return E(i == (j + 1) % n ? 0.0625 : 0.0); });
  all.push_back({"cycle", cycle, true, spectrum([](double i) { return std::polar(0.0625, 2 * M_PI * i / n); })});
  const auto second = made<E>(n, [](int64_t i, int64_t j) {
    return E(i == j ? 2.0 / 64 : std::abs(i - j) == 1 ? -1.0 / 64 : 0.0);
  });
  const auto cosine = [](double i) { return Complex((2 - 2 * std::cos(M_PI * (i + 1) / (n + 1))) / 64); };
  all.push_back({"second difference", second, true, spectrum(cosine)});
  const auto spread = [](double i) { return Complex(0.09 * (i + 1) / n); };
  const auto normal = normal_matrix<E>(n, [&](int64_t j) { return E(0.09 * double(j + 1) / n); });
  all.push_back({"normal", normal, true, spectrum(spread)});
}

template <class E>
std::vector<Case<E>> all_cases() {
  std::vector<Case<E>> all;
  add_random(all);
  add_defective(all);
  for (Case<E>& c : all) c.a = scaled(c.a);
  add_known(all);  // as they are: their norms are about 1
  return all;
}

struct Solved {
  std::vector<Complex> values;
  Square<Complex> right, left;
  bool ok = false;
};

template <class E>
Solved solve(const LargeThreads& threads, Square<E> a, bool right = true, bool left = true,
             const std::function<void(double)>& progress = {}) {
  Solved solved{{}, Square<Complex>(a.n), Square<Complex>(a.n)};
  for (Square<Complex>* vectors : {&solved.right, &solved.left}) {
    std::fill(vectors->entries.begin(), vectors->entries.end(), Complex(NAN, NAN));
  }
  const GeneralResults results{solved.values, right ? solved.right.view() : LargeView<Complex>{},
                               left ? solved.left.view() : LargeView<Complex>{}};
  Balancing balancing;
  solved.ok = general_eigen(threads, a.view(), results, progress, &balancing);
  return solved;
}

template <class E>
Square<Complex> complex_of(const Square<E>& a) {
  return made<Complex>(a.n, [&](int64_t i, int64_t j) { return Complex(a(i, j)); });
}

// |op(A) X - X op(L)|_F.
double residual(const Square<Complex>& a, const Square<Complex>& x, const std::vector<Complex>& values, bool adjoint) {
  Square<Complex> r = product(a, x, adjoint, false);
  for (int64_t j = 0; j < a.n; ++j) {
    const Complex value = adjoint ? std::conj(values[static_cast<size_t>(j)]) : values[static_cast<size_t>(j)];
    for (int64_t i = 0; i < a.n; ++i) r(i, j) -= value * x(i, j);
  }
  return norm_of(r);
}

void expect_unit_columns(const Square<Complex>& x) {
  for (int64_t j = 0; j < x.n; ++j) {
    double square = 0;
    for (int64_t i = 0; i < x.n; ++i) square += std::norm(x(i, j));
    EXPECT_NEAR(std::sqrt(square), 1, 1e-14) << j;
  }
}

void expect_conjugate_pairs(const Solved& solved) {
  for (size_t j = 0; j < solved.values.size(); ++j) {
    if (solved.values[j].imag() == 0) {
      for (int64_t i = 0; i < solved.right.n; ++i) ASSERT_EQ(solved.right(i, int64_t(j)).imag(), 0);
      continue;
    }
    ASSERT_GT(solved.values[j].imag(), 0) << j;
    ASSERT_LT(j + 1, solved.values.size());
    ASSERT_EQ(solved.values[j + 1], std::conj(solved.values[j])) << j;
    for (int64_t i = 0; i < solved.right.n; ++i) {
      ASSERT_EQ(solved.right(i, int64_t(j) + 1), std::conj(solved.right(i, int64_t(j))));
      ASSERT_EQ(solved.left(i, int64_t(j) + 1), std::conj(solved.left(i, int64_t(j))));
    }
    ++j;
  }
}

std::vector<Complex> geev(Square<double> a) {
  const int n = int(a.n), one = 1, size = 64 * std::max(n, 1);
  std::vector<double> wr(a.n), wi(a.n), work(size);
  int info = 0;
  dgeev_("N", "N", &n, a.entries.data(), &n, wr.data(), wi.data(), nullptr, &one, nullptr, &one, work.data(), &size,
         &info, 1, 1);
  std::vector<Complex> values;
  for (int64_t i = 0; i < a.n; ++i) values.emplace_back(wr[i], wi[i]);
  return values;
}
std::vector<Complex> geev(Square<Complex> a) {
  const int n = int(a.n), one = 1, size = 64 * std::max(n, 1);
  std::vector<Complex> values(a.n), work(size);
  std::vector<double> more(2 * a.n);
  int info = 0;
  zgeev_("N", "N", &n, a.entries.data(), &n, values.data(), nullptr, &one, nullptr, &one, work.data(), &size,
         more.data(), &info, 1, 1);
  return values;
}

// Each of `values` has one of `expected` within its bound, and no two the same.
void expect_near(const std::vector<Complex>& values, std::vector<Complex> expected, const std::vector<double>& bounds) {
  ASSERT_EQ(values.size(), expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const auto nearest = std::min_element(expected.begin(), expected.end(), [&](const Complex& x, const Complex& y) {
      return std::abs(x - values[i]) < std::abs(y - values[i]);
    });
    EXPECT_LE(std::abs(*nearest - values[i]), bounds[i]) << i << ": " << values[i];
    expected.erase(nearest);
  }
}

// 20 n u |A| times the conditions of the values.
std::vector<double> bounds_of_values(const Solved& solved, double norm) {
  std::vector<double> bounds;
  for (int64_t j = 0; j < solved.right.n; ++j) {
    Complex sum = 0;
    for (int64_t i = 0; i < solved.right.n; ++i) sum += std::conj(solved.left(i, j)) * solved.right(i, j);
    bounds.push_back(20 * double(solved.right.n) * kUnit * norm / std::min(1.0, std::abs(sum)));
  }
  return bounds;
}

template <class E>
void expect_contract(const Case<E>& c, const LargeThreads& threads) {
  SCOPED_TRACE(c.name + ", threads " + std::to_string(threads.threads()));
  const Solved solved = solve(threads, c.a);
  ASSERT_TRUE(solved.ok);
  const Square<Complex> a = complex_of(c.a);
  const double norm = norm_of(a), bound = 10 * double(a.n) * kUnit * norm;
  const double right = residual(a, solved.right, solved.values, false);
  const double left = residual(a, solved.left, solved.values, true);
  EXPECT_LE(right, bound);
  EXPECT_LE(left, bound);
  if (std::getenv("SVDSERVE_TEST_VERBOSE") != nullptr) {
    std::printf("%-24s %2d %8.2f %8.2f n u\n", c.name.c_str(), int(sizeof(E)), 10 * right / bound, 10 * left / bound);
  }
  expect_unit_columns(solved.right);
  expect_unit_columns(solved.left);
  if (std::is_same_v<E, double>) expect_conjugate_pairs(solved);
  Complex trace = 0;
  for (int64_t j = 0; j < a.n; ++j) trace += solved.values[static_cast<size_t>(j)] - a(j, j);
  EXPECT_LE(std::abs(trace), bound);
  const std::vector<double> bounds = bounds_of_values(solved, norm);
  if (!c.known.empty()) expect_near(solved.values, c.known, bounds);
  // OpenBLAS 0.3.21 reads beyond complex operands: see gesvd() in lapack_peer.h.
  if (c.moderate && !numerics::kSanitized) {
    expect_near(solved.values, geev(c.a), bounds);
    const Solved alone = solve(threads, c.a, false, false);
    ASSERT_TRUE(alone.ok);
    expect_near(alone.values, solved.values, bounds);
  }
}

template <class E>
void test_cases() {
  const BlasThreads one_thread_a_call;
  oneapi::tbb::task_arena arena(2);
  const LargeThreads alone(nullptr, 1, nullptr), two(&arena, 2, nullptr);
  for (const Case<E>& c : all_cases<E>()) {
    expect_contract(c, alone);
    expect_contract(c, two);
  }
}

TEST(GeneralEigen, Real) { test_cases<double>(); }
TEST(GeneralEigen, Complex) { test_cases<Complex>(); }

TEST(GeneralEigen, NoRows) {
  const Solved solved = solve(LargeThreads(nullptr, 1, nullptr), Square<double>(0));
  EXPECT_TRUE(solved.ok);
  EXPECT_TRUE(solved.values.empty());
}

template <class E>
void expect_same_bits(int64_t n) {
  const BlasThreads one_thread_a_call;
  oneapi::tbb::task_arena arena(2);
  const LargeThreads threads(&arena, 2, nullptr);
  const Square<E> a = scaled(random_square<E>(n));
  const Solved one = solve(threads, a), other = solve(threads, a);
  ASSERT_TRUE(one.ok);
  EXPECT_EQ(one.values, other.values);
  EXPECT_EQ(one.right.entries, other.right.entries);
  EXPECT_EQ(one.left.entries, other.left.entries);
  const Solved right = solve(threads, a, true, false), left = solve(threads, a, false, true);
  EXPECT_EQ(right.right.entries, one.right.entries);
  EXPECT_EQ(left.left.entries, one.left.entries);
}

TEST(GeneralEigen, SameBitsTwice) {
  expect_same_bits<double>(numerics::kSanitized ? 100 : 200);
  expect_same_bits<Complex>(numerics::kSanitized ? 90 : 150);
}

TEST(GeneralEigen, ProgressRisesAndACancelIsObeyed) {
  const BlasThreads one_thread_a_call;
  std::atomic<bool> cancel{false};
  LargeControl control;
  control.cancel = &cancel;
  const large::LargeWatch watch(control);
  const LargeThreads threads(nullptr, 1, &watch);
  const Square<double> a = scaled(random_square<double>(160));
  std::vector<double> fractions;
  ASSERT_TRUE(solve(threads, a, true, true, [&](double fraction) { fractions.push_back(fraction); }).ok);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  EXPECT_GT(fractions.size(), 8u);
  EXPECT_GE(fractions.front(), 0);
  EXPECT_EQ(fractions.back(), 1);
  for (const double when : {0.0, 0.1, 0.5, 0.9}) {
    cancel = false;
    EXPECT_THROW(solve(threads, a, true, true, [&](double fraction) { cancel = cancel || fraction >= when; }),
                 large::LargeStop);
  }
}

}  // namespace
}  // namespace svdserve::host
