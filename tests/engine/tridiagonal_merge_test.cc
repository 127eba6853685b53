// Divide and conquer of a tridiagonal matrix, put together from the parts that a GPU shares, with plain products. Checks
// are in long double: T v - lambda v, V^T V - I, and eigenvalues by Sturm's counts.
#include "engine/algorithms/large/tridiagonal_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/lanes/secular_equation.h"
#include "engine/algorithms/large/implicit_ql.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/tridiagonal_samples.h"

namespace svdserve::large {
namespace {

using numerics::Random;
using numerics::sturm_count;
using numerics::Tridiagonal;
using Real = scalar::ScalarLane<double>;
using Equation = scalar::SecularEquation<scalar::PlainPoles>;

constexpr double kUnit = 0x1p-53;
constexpr int32_t kLeaf = 32;

struct Eigenpairs {
  bool converged = true;
  std::vector<double> values, v;  // v by columns
};

size_t at(int64_t i) { return static_cast<size_t>(i); }

// A leaf in memory: rows of v are its V.
struct MemoryLeaf {
  double *diagonal, *subdiagonal, *v;
  int32_t n, ld;

  double d(int i) const { return diagonal[i]; }
  double e(int i) const { return subdiagonal[i]; }
  void set_d(int i, double x) { diagonal[i] = x; }
  void set_e(int i, double x) { subdiagonal[i] = x; }
  int end_of_block(int l) const {
    int m = l;
    while (m + 1 < n && !is_negligible(e(m), d(m), d(m + 1))) ++m;
    return m;
  }
  void rotate(int i, double c, double s) {
    for (int32_t row = 0; row < n; ++row) {
      double &x = v[row + i * ld], &y = v[row + (i + 1) * ld];
      const double old = x;
      x = c * old - s * y;
      y = s * old + c * y;
    }
  }
};

// Divide and conquer, one object a matrix.
class Solver {
 public:
  explicit Solver(Tridiagonal t) : t_(std::move(t)), n_(t_.n()), v_(at(n_) * at(n_), 0.0) {}

  Eigenpairs run() {
    std::vector<int32_t> starts = tridiagonal_leaves(n_, kLeaf);
    const TornTridiagonal torn = tear_tridiagonal(starts, t_.d.data(), t_.e.data());
    if (!torn.finite) return {false, {}, {}};
    std::vector<TridiagonalHalf> nodes;
    for (size_t i = 0; i + 1 < starts.size(); ++i) nodes.push_back(leaf(starts[i], starts[i + 1]));
    while (nodes.size() > 1) {
      std::vector<TridiagonalHalf> joined;
      int32_t first = 0;
      for (size_t i = 0; i < nodes.size(); i += 2) {
        joined.push_back(merge(first, nodes[i], nodes[i + 1]));
        first += joined.back().size;
      }
      nodes = std::move(joined);
    }
    return ordered(nodes.front(), torn.exponent);
  }

  int64_t most_roots = 0, rotations = 0;

 private:
  TridiagonalHalf leaf(int32_t first, int32_t end) {
    const int32_t size = end - first;
    MemoryLeaf memory{&t_.d[at(first)], &t_.e[at(first)], &v_[at(first) + at(first) * at(n_)], size, n_};
    for (int32_t i = 0; i < size; ++i) memory.v[i + i * n_] = 1;
    const double cut = memory.e(size - 1);
    converged_ = implicit_ql(memory, size) && converged_;
    memory.set_e(size - 1, cut);
    for (int32_t i = 0; i < size; ++i) {  // by selection
      int32_t least = i;
      for (int32_t j = i + 1; j < size; ++j) least = memory.d(j) < memory.d(least) ? j : least;
      std::swap(memory.diagonal[i], memory.diagonal[least]);
      if (least != i) std::swap_ranges(memory.v + i * n_, memory.v + i * n_ + size, memory.v + least * n_);
    }
    return {size, size};
  }

  TridiagonalHalf merge(int32_t first, TridiagonalHalf upper, TridiagonalHalf lower) {
    const int32_t size = upper.size + lower.size, cut = first + upper.size;
    std::vector<double> z(at(size)), poles(at(size)), weights(at(size));
    std::vector<int32_t> column(at(size)), pole(at(size)), chain(at(size));
    std::vector<PairRotation> rotations_of(at(size));
    for (int32_t i = 0; i < size; ++i) z[at(i)] = v_[at(i < upper.size ? cut - 1 : cut) + at(first + i) * at(n_)];
    TridiagonalMerge m{};
    m.first = first;
    deflation_.run(t_.e[at(cut - 1)], upper, lower, &t_.d[at(first)], z.data(),
                   {poles.data(), weights.data(), column.data(), pole.data(), rotations_of.data(), chain.data()}, m);
    check_merge(m, poles, column, pole);
    most_roots = std::max<int64_t>(most_roots, m.roots);
    rotations += m.rotations;
    for (int32_t r = 0; r < m.rotations; ++r) rotate(first, size, rotations_of[at(r)]);
    multiply(m, {poles.data(), weights.data(), m.roots}, column, pole);
    for (int32_t i = m.roots; i < size; ++i) t_.d[at(first + i)] = poles[at(i)];
    return {size, m.roots};
  }

  static void check_merge(const TridiagonalMerge& m, const std::vector<double>& poles, std::vector<int32_t> column,
                          const std::vector<int32_t>& pole) {
    EXPECT_EQ(m.upper_only + m.dense + m.lower_only, m.roots);
    EXPECT_EQ(m.upper_only % 2, 0);
    EXPECT_TRUE(std::is_sorted(poles.begin(), poles.begin() + m.roots));
    EXPECT_TRUE(std::is_sorted(poles.begin() + m.roots, poles.end()));
    std::sort(column.begin(), column.end());
    for (int32_t i = 0; i < m.size; ++i) ASSERT_EQ(column[at(i)], m.first + i);
    std::vector<int32_t> all(pole.begin(), pole.begin() + m.roots);
    std::sort(all.begin(), all.end());
    for (int32_t i = 0; i < m.roots; ++i) ASSERT_EQ(all[at(i)], i);
  }

  void rotate(int32_t first, int32_t size, const PairRotation& r) {
    for (int32_t row = first; row < first + size; ++row) {
      double &a = v_[at(row) + at(r.a) * at(n_)], &b = v_[at(row) + at(r.b) * at(n_)];
      const double old = a;
      a = r.c * old + r.s * b;
      b = r.c * b - r.s * old;
    }
  }

  // Columns first .. of V: packed ones times S, then those deflated. Rows that packing leaves out must be zero.
  void multiply(const TridiagonalMerge& m, const Equation& p, const std::vector<int32_t>& column,
                const std::vector<int32_t>& pole) {
    const scalar::OneThread alone;
    const int32_t k = m.roots, end = m.first + m.size;
    const std::vector<double> old = v_;
    std::vector<double> origin(at(k)), x(at(k)), weight(at(k)), s(at(k));
    const scalar::SecularRoots roots{origin.data(), x.data()};
    for (int32_t j = 0; j < k; ++j) {
      scalar::secular_roots<Real>(p, j, roots);
      t_.d[at(m.first + j)] = origin[at(j)] + x[at(j)];
    }
    for (int32_t i = 0; i < k; ++i) scalar::secular_weights<Real>(p, roots, i, weight.data());
    for (int32_t j = 0; j < m.size; ++j) {
      double* const target = &v_[at(m.first + j) * at(n_)];
      std::fill(target + m.first, target + end, 0.0);
      if (j >= k) {
        const double* const source = &old[at(column[at(j)]) * at(n_)];
        std::copy(source + m.first, source + end, target + m.first);
        continue;
      }
      scalar::secular_column<Real>(p, origin[at(j)], x[at(j)], weight.data(), pole.data(), s.data(), alone);
      for (int32_t i = 0; i < k; ++i) {
        const double* const source = &old[at(column[at(i)]) * at(n_)];
        const int32_t from = i < m.upper_columns() ? m.first : m.first + m.upper;
        const int32_t to = i < m.upper_only ? m.first + m.upper : end;
        for (int32_t row = from; row < to; ++row) target[row] += source[row] * s[at(i)];
      }
    }
  }

  Eigenpairs ordered(TridiagonalHalf all, int exponent) const {
    Eigenpairs found{converged_, std::vector<double>(at(n_)), std::vector<double>(v_.size())};
    for (int32_t j = 0; j < n_; ++j) {
      const int32_t to = place_in_order(t_.d.data(), all.roots, n_, j);
      found.values[at(to)] = std::ldexp(t_.d[at(j)], exponent);
      std::copy_n(&v_[at(j) * at(n_)], n_, &found.v[at(to) * at(n_)]);
    }
    return found;
  }

  Tridiagonal t_;
  const int32_t n_;
  std::vector<double> v_;
  bool converged_ = true;
  Deflation deflation_;
};

long double size_of(const Tridiagonal& t) {
  long double most = 0;
  for (int32_t i = 0; i < t.n(); ++i) {
    most = std::max(most, std::fabs(static_cast<long double>(t.d[at(i)])));
    if (i + 1 < t.n()) most = std::max(most, std::fabs(static_cast<long double>(t.e[at(i)])));
  }
  return most;
}

long double residual(const Tridiagonal& t, const Eigenpairs& found) {
  const int32_t n = t.n();
  long double worst = 0;
  for (int32_t j = 0; j < n; ++j) {
    const double* const v = &found.v[at(j) * at(n)];
    long double sum = 0;
    for (int32_t i = 0; i < n; ++i) {
      long double x = (static_cast<long double>(t.d[at(i)]) - found.values[at(j)]) * v[i];
      if (i > 0) x += static_cast<long double>(t.e[at(i - 1)]) * v[i - 1];
      if (i + 1 < n) x += static_cast<long double>(t.e[at(i)]) * v[i + 1];
      sum += x * x;
    }
    worst = std::max(worst, std::sqrt(sum));
  }
  return worst;
}

long double departure(const Eigenpairs& found, int32_t n) {
  long double worst = 0;
  for (int32_t i = 0; i < n; ++i) {
    for (int32_t j = 0; j <= i; ++j) {
      long double sum = i == j ? -1 : 0;
      for (int32_t row = 0; row < n; ++row) {
        sum += static_cast<long double>(found.v[at(row) + at(i) * at(n)]) * found.v[at(row) + at(j) * at(n)];
      }
      worst = std::max(worst, std::fabs(sum));
    }
  }
  return worst;
}

void expect_eigenpairs(const std::string& name, const Tridiagonal& t) {
  SCOPED_TRACE(name + ", n = " + std::to_string(t.n()));
  Solver solver(t);
  const Eigenpairs found = solver.run();
  ASSERT_TRUE(found.converged);
  const int32_t n = t.n();
  // A denormal result is rounded to a multiple of the least of all numbers.
  const long double unit = (n + 10.0L) * kUnit, size = std::max(size_of(t), 1e-320L);
  const long double allowed = unit * size + std::numeric_limits<double>::denorm_min();
  const long double r = residual(t, found), o = departure(found, n);
  EXPECT_LE(r, allowed);
  EXPECT_LE(o, 2 * unit);
  EXPECT_TRUE(std::is_sorted(found.values.begin(), found.values.end()));
  int32_t wrong = 0;
  for (int32_t j = 0; j < n; ++j) {
    const long double value = found.values[at(j)];
    wrong += sturm_count(t, value - allowed) > j || sturm_count(t, value + allowed) < j + 1 ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0);
  if (n >= 300) {
    std::printf("%-24s n %4d: T V - V L %.2f n u |T|, V^T V - I %.2f n u, %lld rotations, %lld roots at most\n",
                name.c_str(), n, static_cast<double>(r / size / unit), static_cast<double>(o / unit),
                static_cast<long long>(solver.rotations), static_cast<long long>(solver.most_roots));
  }
}

TEST(TridiagonalMerge, EigenpairsOfEveryKindAndOrder) {
  for (const numerics::TridiagonalKind& kind : numerics::tridiagonal_kinds()) {
    for (int32_t n : {1, 2, 3, 5, 31, 32, 33, 34, 35, 64, 65, 66, 67, 97, 127, 128, 129, 130, 300}) {
      expect_eigenpairs(kind.name, kind.make(n));
    }
  }
}

TEST(TridiagonalMerge, EveryOrderOfTwoLeaves) {
  for (int32_t n = 64; n <= 130; ++n) expect_eigenpairs("random", numerics::random_tridiagonal(n, 1));
}

TEST(TridiagonalMerge, EndsWhateverTheNumbersAre) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {nan, infinity, -infinity}) {
    for (const int32_t place : {0, 17, 40, 99}) {
      Tridiagonal t = numerics::random_tridiagonal(100, 1);
      t.d[at(place)] = bad;
      EXPECT_FALSE(Solver(t).run().converged);
      t = numerics::random_tridiagonal(100, 1);
      t.e[at(std::min(place, 98))] = bad;
      EXPECT_FALSE(Solver(t).run().converged);
      // The parts themselves.
      std::vector<double> d(20, 1.0), z(20, 0.25), rest(20);
      for (size_t i = 0; i < 20; ++i) d[i] = static_cast<double>(i % 10);
      d[at(place % 20)] = bad;
      z[at((place + 5) % 20)] = bad;
      std::vector<int32_t> column(20), pole(20), chain(20);
      std::vector<PairRotation> rotations(20);
      TridiagonalMerge m{};
      Deflation deflation;
      deflation.run(0.5, {10, 10}, {10, 10}, d.data(), z.data(),
                    {rest.data(), rest.data(), column.data(), pole.data(), rotations.data(), chain.data()}, m);
      EXPECT_LE(m.roots, 20);
      std::sort(d.begin(), d.begin() + (place % 20));
      for (int32_t j = 0; j < 20; ++j) {
        EXPECT_LT(place_in_order(d.data(), 10, 20, j), 20);
      }
      MemoryLeaf leaf{d.data(), z.data(), rest.data(), 4, 4};
      implicit_ql(leaf, 4);
    }
  }
}

}  // namespace
}  // namespace svdserve::large
