// Divide and conquer of bidiagonal and tridiagonal matrices that are hard for it: level, graded, split, of repeated and of
// tiny values. References are in higher precision: singular values by one-sided Jacobi, eigenvalues by Sturm's counts,
// the secular equation by its own terms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/algorithms/lanes/secular_equation.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/merges/bidiagonal_vectors.h"
#include "engine/backends/host/merges/tridiagonal_vectors.h"
#include "engine/backends/host/values/bidiagonal_values.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/fiber_block.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/tridiagonal_samples.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {
namespace {

struct Bidiagonal {
  std::string name;
  std::vector<double> d, e;
};

template <class F, class G>
Bidiagonal make(std::string name, int n, F diagonal, G superdiagonal) {
  Bidiagonal b{std::move(name), {}, {}};
  for (int i = 0; i < n; ++i) b.d.push_back(diagonal(i));
  for (int i = 0; i + 1 < n; ++i) b.e.push_back(superdiagonal(i));
  return b;
}

// The largest number of each is 1/2 at least, but for zero.
std::vector<Bidiagonal> families(int n, Random& random) {
  const auto normal = [&](int) { return random.normal(); };
  const auto number = [](double x) { return [x](int) { return x; }; };
  const auto level = [&](double by) {
    return [&random, by](int i) { return (i == 0 ? 1 : 1 + by * random.normal()); };
  };
  const auto noise = [&](double by) { return [&random, by](int) { return by * random.normal(); }; };
  const auto falling = [n](double decades) { return [n, decades](int i) { return std::pow(10.0, -decades * i / n); }; };
  const auto rising = [n](double decades) {
    return [n, decades](int i) { return std::pow(10.0, -decades * (n - 1 - i) / n); };
  };
  std::vector<Bidiagonal> all;
  all.push_back(make(
      "random", n, [&](int) { return 1 + std::fabs(random.normal()); }, normal));
  all.push_back(make("ones", n, number(1), number(1)));
  all.push_back(make("falling", n, falling(12), falling(13)));
  all.push_back(make("rising", n, rising(30), rising(31)));
  all.push_back(make(
      "split", n, [](int i) { return i % 3 == 1 ? 0.0 : 1.0; }, [](int i) { return i % 5 == 2 ? 0.0 : 1.0; }));
  all.push_back(make(
      "shift", n, [](int i) { return i == 0 ? 1 : 1e-20; }, number(1)));
  all.push_back(make("identity, hardly coupled", n, number(1), number(1e-20)));
  for (const double by : {1e-3, 1e-4, 1e-6, 1e-9, 1e-13}) {
    all.push_back(make("level to " + std::to_string(by), n, level(by), noise(by / 10)));
  }
  all.push_back(make(
      "equal blocks, hardly coupled", n, [](int i) { return 1.0 + i % 8; },
      [](int i) { return i % 8 == 7 ? 1e-9 : 1.0; }));
  all.push_back(make(
      "one entry", n, [](int i) { return i == 0 ? 1.0 : 0.0; }, number(0)));
  all.push_back(make(
      "one entry and tiny ones", n, [&](int i) { return i == 0 ? 1.0 : 1e-37 * random.normal(); }, noise(1e-37)));
  // As a matrix of rank one becomes: each row is the rounding error of the one before, down to denormal numbers.
  for (const double lowest : {-18.0, -38.0, -317.0}) {
    const auto error = [&, lowest](int i) {
      return (1 + random.uniform()) * std::pow(10.0, std::max(-16.0 * i, lowest - 6 * random.uniform()));
    };
    all.push_back(make("rounding errors", n, error, error));
  }
  all.push_back(make("zero", n, number(0), number(0)));
  all.push_back(make("large", n, noise(0x1p58), [n](int) { return 0x1p59; }));
  return all;
}

template <class T>
class DivideAndConquerTest : public ::testing::Test {
 protected:
  static constexpr DType kDType = std::is_same_v<T, float> ? DType::kF32 : DType::kF64;

  static Matrix matrix_of(const Bidiagonal& b) {
    const auto n = static_cast<int64_t>(b.d.size());
    Matrix a(kDType, n, n);
    for (int64_t i = 0; i < n; ++i) a.at(i, i) = b.d[static_cast<size_t>(i)];
    for (int64_t i = 0; i + 1 < n; ++i) a.at(i, i + 1) = b.e[static_cast<size_t>(i)];
    round_to_dtype(a);
    return a;
  }

  // Columns in the order of values, or with `rows` those as rows.
  template <class F>
  static Dense dense(const T* from, int n, bool rows, F column) {
    Dense d{n, n, std::vector<Wide>(static_cast<size_t>(n) * static_cast<size_t>(n))};
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        d.at_[static_cast<size_t>(rows ? j * n + i : i * n + j)] = static_cast<long double>(from[i + column(j) * n]);
      }
    }
    return d;
  }

  // By dqds, of `count` matrices.
  static std::vector<T> values_alone(int n, int count, const std::vector<T>& d, const std::vector<T>& e) {
    std::vector<T> s(d.size());
    host::AlignedArray<double> scratch;
    scratch.reserve(host::bidiagonal_values_scratch(n));
    host::find_values(host::Bidiagonals<T>{n, count, d.data(), e.data(), s.data()}, scratch.data());
    return s;
  }

  void test(const Bidiagonal& b) {
    const int n = static_cast<int>(b.d.size());
    SCOPED_TRACE(b.name + " of order " + std::to_string(n));
    const Matrix a = matrix_of(b);
    std::vector<T> d, e;
    for (int i = 0; i < n; ++i) d.push_back(static_cast<T>(a.at(i, i).real()));
    for (int i = 0; i + 1 < n; ++i) e.push_back(static_cast<T>(a.at(i, i + 1).real()));
    of_b_.decompose(n, d.data(), e.data());
    const std::vector<long double> reference = reference_singular_values(a);
    const long double u = real_type(kDType).unit_roundoff;
    std::vector<double> s;
    for (int i = 0; i < n; ++i) {
      s.push_back(of_b_.s(i));
      EXPECT_GE(s.back(), 0);
      if (i > 0) {
        EXPECT_LE(s[static_cast<size_t>(i)], s[static_cast<size_t>(i - 1)]);
      }
      EXPECT_LE(std::abs(s.back() - reference[static_cast<size_t>(i)]), 16 * u * reference[0]) << i;
    }
    const auto column = [&](int j) { return of_b_.column(j); };
    const Dense left = dense(of_b_.u(), n, false, column), right = dense(of_b_.v(), n, true, column);
    EXPECT_LE(orthogonality(left, false), (4 + 2 * n) * u);
    EXPECT_LE(orthogonality(right, true), (4 + 2 * n) * u);
    EXPECT_LE(residual(a, left, s, right), (4 + 2 * n) * u);
  }

  void test(const std::string& kind, const Tridiagonal& given) {
    const int n = given.n();
    SCOPED_TRACE(kind + " of order " + std::to_string(n));
    double most = 0;
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      most = std::max(most, std::max(std::fabs(given.d[at]), i + 1 < n ? std::fabs(given.e[at]) : 0));
    }
    Tridiagonal t = given;
    std::vector<T> d, e;
    Matrix a(kDType, n, n);
    for (int i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const int exponent = most > 0 ? -std::ilogb(most) : 0;
      d.push_back(static_cast<T>(std::ldexp(given.d[at], exponent)));
      e.push_back(static_cast<T>(std::ldexp(given.e[at], exponent)));
      a.at(i, i) = t.d[at] = d.back();
      t.e[at] = e.back();
      if (i + 1 < n) a.at(i, i + 1) = a.at(i + 1, i) = e.back();
    }
    of_t_.decompose(n, d.data(), e.data());
    const long double u = real_type(kDType).unit_roundoff, allowed = 16 * u;
    std::vector<double> values;
    int wrong = 0;
    for (int j = 0; j < n; ++j) {
      values.push_back(of_t_.value(j));
      const long double value = values.back();
      wrong += sturm_count(t, value - allowed) > j || sturm_count(t, value + allowed) < j + 1 ? 1 : 0;
    }
    EXPECT_EQ(wrong, 0);
    EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
    const auto column = [&](int j) { return of_t_.column(j); };
    const Dense v = dense(of_t_.v(), n, false, column), vt = dense(of_t_.v(), n, true, column);
    EXPECT_LE(orthogonality(v, false), (4 + 2 * n) * u);
    EXPECT_LE(residual(a, v, values, vt), (8 + 2 * n) * u);
  }

  host::BlasThreads one_thread_a_call_;
  host::BidiagonalVectors<T> of_b_;  // one workspace for all matrices
  host::TridiagonalVectors<T> of_t_;
};

using Numbers = ::testing::Types<float, double>;
TYPED_TEST_SUITE(DivideAndConquerTest, Numbers);

TYPED_TEST(DivideAndConquerTest, EveryFamilyAndOrder) {
  std::vector<int> orders = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33};
  if (!kSanitized) orders.push_back(64);
  if (is_long_run()) orders.insert(orders.end(), {100, 128, 200});
  for (const int n : orders) {
    Random random(static_cast<uint64_t>(n));
    for (Bidiagonal& b : families(n, random)) {
      this->test(b);
      b.e.push_back(0);
      this->test(b.name, Tridiagonal{b.d, b.e});
    }
  }
}

TYPED_TEST(DivideAndConquerTest, TridiagonalOnesOfEveryKindAndOrder) {
  std::vector<int> orders = {1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33};
  if (!kSanitized) orders.push_back(65);
  if (is_long_run()) orders.insert(orders.end(), {100, 127, 128, 200});
  for (const TridiagonalKind& kind : tridiagonal_kinds()) {
    for (const int n : orders) this->test(kind.name, kind.make(n));
  }
}

TYPED_TEST(DivideAndConquerTest, RandomGradesAndSplits) {
  Random random(7);
  const int count = is_long_run() ? 20000 : kSanitized ? 30 : 300;
  for (int i = 0; i < count; ++i) {
    const int n = 2 + i % 9;
    const double decades = i % 40;
    const auto number = [&](int) {
      return random.uniform() < 0.1 ? 0.0 : random.normal() * std::pow(10.0, -decades * random.uniform());
    };
    Bidiagonal b = make("grades " + std::to_string(i), n, number, number);
    b.d[0] = 1;
    this->test(b);
    b.e.push_back(0);
    this->test(b.name, Tridiagonal{b.d, b.e});
  }
}

// Values are the quotients of their vectors. Beside them are those of dqds, which has values without vectors. The
// reference is bisection in long double, of the tridiagonal matrix with the values and their negatives. B as a matrix of
// normal numbers becomes: d and e are the lengths of normal vectors.
TYPED_TEST(DivideAndConquerTest, ValuesAreThoseOfTheirVectors) {
  using T = TypeParam;
  const long double u = real_type(this->kDType).unit_roundoff;
  std::vector<int> orders = {64};
  if (is_long_run()) orders.insert(orders.end(), {128, 292, 512});
  for (const int n : orders) {
    Random random(static_cast<uint64_t>(n));
    const auto length = [&](int of) {
      double square = 0;
      for (int i = 0; i < of; ++i) square += std::pow(random.normal(), 2);
      return std::sqrt(square / n);
    };
    std::vector<T> d, e;
    Tridiagonal both;
    for (int i = 0; i < n; ++i) {
      d.push_back(static_cast<T>(length(n - i)));
      e.push_back(static_cast<T>(length(n - 1 - i)));
      both.d.insert(both.d.end(), {0, 0});
      both.e.insert(both.e.end(), {d.back(), e.back()});
    }
    this->of_b_.decompose(n, d.data(), e.data());
    const std::vector<T> s = this->values_alone(n, 1, d, e);
    long double largest = 0, ours = 0, dqds = 0;
    for (int i = 0; i < n; ++i) {
      long double low = 0, high = 4;
      for (int step = 0; step < 70; ++step) {
        const long double middle = (low + high) / 2;
        (sturm_count(both, middle) > 2 * n - 1 - i ? high : low) = middle;
      }
      largest = std::max(largest, low);
      ours = std::max(ours, std::abs(this->of_b_.s(i) - low));
      dqds = std::max(dqds, std::abs(s[static_cast<size_t>(i)] - low));
    }
    std::printf("%s n %3d: errors of values %.1f u s_max, by dqds %.1f\n", name(this->kDType), n,
                static_cast<double>(ours / largest / u), static_cast<double>(dqds / largest / u));
    EXPECT_LE(ours, 4 * u * largest);
  }
}

// Values alone: the bound of the header, and the same bits in any company.
TYPED_TEST(DivideAndConquerTest, ValuesAloneDependOnTheirMatrix) {
  using T = TypeParam;
  const long double u = real_type(this->kDType).unit_roundoff;
  for (const int n : {1, 2, 3, 13, 40}) {
    Random random(static_cast<uint64_t>(n));
    std::vector<Bidiagonal> all = families(n, random);
    all.pop_back();  // of numbers that this method has no room to square
    for (size_t first = 0; first < all.size(); first += host::kMostBidiagonals) {
      const auto count = std::min<size_t>(host::kMostBidiagonals, all.size() - first), size = static_cast<size_t>(n);
      std::vector<T> d, e;
      for (size_t m = 0; m < count; ++m) {
        const Bidiagonal& b = all[first + m];
        d.insert(d.end(), b.d.begin(), b.d.end());
        e.insert(e.end(), b.e.begin(), b.e.end());
        e.push_back(0);
      }
      const std::vector<T> together = this->values_alone(n, static_cast<int>(count), d, e);
      const std::vector<T> fewer = this->values_alone(n, static_cast<int>((count + 1) / 2), d, e);
      for (size_t m = 0; m < count; ++m) {
        SCOPED_TRACE(all[first + m].name + " of order " + std::to_string(n));
        const auto part = [&](const std::vector<T>& x) {
          const auto from = x.begin() + static_cast<ptrdiff_t>(m * size);
          return std::vector<T>(from, from + n);
        };
        EXPECT_EQ(part(together), this->values_alone(n, 1, part(d), part(e)));
        if (m < (count + 1) / 2) {
          EXPECT_EQ(part(together), part(fewer));
        }
        const std::vector<long double> reference = reference_singular_values(this->matrix_of(all[first + m]));
        for (size_t i = 0; i < size; ++i) {
          EXPECT_LE(std::abs(part(together)[i] - reference[i]), (16 + 2 * n) * u * reference[0]) << i;
        }
      }
    }
  }
}

// Nothing is left of the matrices before.
TYPED_TEST(DivideAndConquerTest, SameBitsAfterOtherMatrices) {
  Random random(3);
  const auto normal = [&](int) { return random.normal(); };
  Bidiagonal b = make("normal", 40, normal, normal);
  const std::vector<TypeParam> d(b.d.begin(), b.d.end()), e(b.e.begin(), b.e.end());
  host::BidiagonalVectors<TypeParam> fresh;
  fresh.decompose(40, d.data(), e.data());
  for (const Bidiagonal& other : families(50, random)) this->test(other);
  this->of_b_.decompose(40, d.data(), e.data());
  for (int i = 0; i < 40; ++i) EXPECT_EQ(fresh.s(i), this->of_b_.s(i));
  EXPECT_TRUE(std::equal(fresh.u(), fresh.u() + 1600, this->of_b_.u()));
  EXPECT_TRUE(std::equal(fresh.v(), fresh.v() + 1600, this->of_b_.v()));
}

// --- the secular equation -------------------------------------------------------------------------

struct Arrow {
  std::vector<double> d, z;
  int count;
};

Arrow make_arrow(int count, double level, double weight, Random& random) {
  Arrow a{{0}, {1 + level * random.normal()}, count};
  for (int i = 1; i < count; ++i) {
    a.d.push_back(std::fabs(1 + level * random.normal()));
    a.z.push_back(weight * random.normal());
  }
  std::sort(a.d.begin(), a.d.end());
  for (int i = 1; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    a.d[at] = std::max(a.d[at], a.d[at - 1] + 0x1p-49);
    if (std::fabs(a.z[at]) < 0x1p-50) a.z[at] = 0x1p-50;
  }
  return a;
}

using Real = scalar::ScalarLane<double>;

template <class Poles>
scalar::SecularEquation<Poles> equation_of(const Arrow& a) {
  return {a.d.data(), a.z.data(), a.count};
}

// Root j, as it is kept, makes f zero to what the header promises; f in long double.
template <class Poles>
void expect_root(const Arrow& a, int j, double origin, double x) {
  long double f = 1, size = 1, slope = 0;
  for (int i = 0; i < a.count; ++i) {
    const long double d = a.d[static_cast<size_t>(i)], z = a.z[static_cast<size_t>(i)], o = origin;
    const long double quotient = z / (Poles::difference(d, o) - x);
    f += z * quotient;
    size += std::abs(z * quotient);
    slope += quotient * quotient;
  }
  const auto above_origin = [origin](double d) {
    return Poles::difference(static_cast<long double>(d), static_cast<long double>(origin));
  };
  EXPECT_GT(x, above_origin(a.d[static_cast<size_t>(j)])) << j;
  if (j + 1 < a.count) {
    EXPECT_LT(x, above_origin(a.d[static_cast<size_t>(j + 1)])) << j;
  }
  EXPECT_LE(std::abs(f), 0x1p-53L * ((16 + a.count) * size + 4 * std::abs(x) * slope)) << j;
}

template <class Poles>
void expect_roots(const Arrow& a) {
  std::vector<double> origin(a.d.size()), x(a.d.size());
  const auto equation = equation_of<Poles>(a);
  for (int j = 0; j < a.count; ++j) scalar::secular_roots<Real>(equation, j, {origin.data(), x.data()});
  for (int j = 0; j < a.count; ++j) {
    expect_root<Poles>(a, j, origin[static_cast<size_t>(j)], x[static_cast<size_t>(j)]);
  }
}

TEST(SecularEquation, RootsOfLevelAndOfSpreadPoles) {
  Random random(1);
  const int count = is_long_run() ? 20000 : kSanitized ? 100 : 1000;
  for (int i = 0; i < count; ++i) {
    const double level = std::pow(10.0, -(i % 11)), weight = std::pow(10.0, -(i % 13));
    SCOPED_TRACE(i);
    const Arrow a = make_arrow(2 + i % 17, level, weight, random);
    expect_roots<scalar::SquaredPoles>(a);
    expect_roots<scalar::PlainPoles>(a);
  }
}

// The last root is that of a far pole, and the nearest ones have next to no weight: a model of these alone is slow.
TEST(SecularEquation, LastRootBelongsToAFarPole) {
  const Arrow a{{0, 0.9998597127, 0.9999450254}, {1.000158275, -1.04514681e-05, 2.575935413e-06}, 3};
  expect_roots<scalar::SquaredPoles>(a);
  expect_roots<scalar::PlainPoles>(a);
}

// Nearly all of the weight is a pole's, far from the others, whose weights are small.
TEST(SecularEquation, RootsBesideAPoleThatHasNearlyAllWeight) {
  Random random(7);
  for (int round = 0; round < 500; ++round) {
    const double level = std::pow(10.0, -1 - round % 9), weight = std::pow(10.0, -1 - round % 7);
    Arrow a = make_arrow(3 + round % 20, level, weight, random);
    for (double& d : a.d) d *= 2;
    a.d[0] = 0;
    a.z[0] = 1.4;
    SCOPED_TRACE(round);
    expect_roots<scalar::PlainPoles>(a);
    for (double& z : a.z) z *= 1.4;
    expect_roots<scalar::SquaredPoles>(a);
  }
}

// Poles that differ by every power of two, and weights of every size, that deflation leaves.
TEST(SecularEquation, RootsAreFoundInFewSteps) {
  struct CountedThread : scalar::OneThread {
    int64_t* calls;  // three for each evaluation of f
    int index() const {
      ++*calls;
      return 0;
    }
  };
  Random random(3);
  int64_t steps = 0, roots = 0, most = 0;
  for (int round = 0; round < 400; ++round) {
    Arrow a{{}, {}, 2 + round % 60};
    double square = 0, place = -1;
    for (int i = 0; i < a.count; ++i) {
      place += std::max(std::ldexp(1.0, -static_cast<int>(std::fabs(random.normal()) * 12) - 4), 0x1p-49);
      a.d.push_back(place);
      const int size = static_cast<int>(std::fabs(random.normal()) * (round % 20));
      a.z.push_back(std::max(std::ldexp(std::fabs(random.normal()), -size), 0x1p-49));
      square += a.z.back() * a.z.back();
    }
    for (double& z : a.z) z *= std::sqrt(0.75 / square);
    std::vector<double> origin(a.d.size()), x(a.d.size());
    for (int j = 0; j < a.count; ++j) {
      int64_t calls = 0;
      const auto at = static_cast<size_t>(j);
      scalar::secular_roots<Real>(equation_of<scalar::PlainPoles>(a), j, {origin.data(), x.data()},
                                  CountedThread{{}, &calls});
      expect_root<scalar::PlainPoles>(a, j, origin[at], x[at]);
      ++roots;
      steps += calls / 3;
      most = std::max(most, calls / 3);
    }
  }
  std::printf("%.2f evaluations for a root, %lld at most\n", static_cast<double>(steps) / static_cast<double>(roots),
              static_cast<long long>(most));
  EXPECT_LT(steps, 7 * roots);
  EXPECT_LT(most, 40);
}

TEST(SecularEquation, ThreadsOfAWarpFindTheSameRootsWeightsAndVectors) {
  Random random(11);
  for (const int count : {1, 2, 3, 5, 12, 31, 33, 70}) {
    SCOPED_TRACE(count);
    const Arrow a = make_arrow(count, 1, 0.5, random);
    const auto equation = equation_of<scalar::PlainPoles>(a);
    const auto size = static_cast<size_t>(count);
    std::vector<int> pole(size);
    std::iota(pole.rbegin(), pole.rend(), 0);
    struct Found {
      std::vector<double> origin, x, weights, v;
    };
    const auto find = [&](Found& f, const auto& threads) {
      const scalar::SecularRoots roots{f.origin.data(), f.x.data()};
      for (int j = 0; j < count; ++j) scalar::secular_roots<Real>(equation, j, roots, threads);
      threads.sync();
      for (int i = 0; i < count; ++i) scalar::secular_weights<Real>(equation, roots, i, f.weights.data(), threads);
      threads.sync();
      for (size_t j = 0; j < size; ++j) {
        scalar::secular_column<Real>(equation, f.origin[j], f.x[j], f.weights.data(), pole.data(),
                                     f.v.data() + j * size, threads);
      }
    };
    const std::vector<double> none(size), square(size * size);
    Found alone{none, none, none, square}, together = alone;
    find(alone, scalar::OneThread());
    FiberBlock block(32, 5);
    block.run([&](FiberBlock::Thread thread) { find(together, thread); });
    EXPECT_EQ(together.origin, alone.origin);
    for (int j = 0; j < count; ++j) {
      expect_root<scalar::PlainPoles>(a, j, together.origin[static_cast<size_t>(j)],
                                      together.x[static_cast<size_t>(j)]);
    }
    for (size_t i = 0; i < size; ++i) EXPECT_NEAR(together.weights[i], alone.weights[i], 1e-12);
    for (size_t i = 0; i < size * size; ++i) EXPECT_NEAR(together.v[i], alone.v[i], 1e-12);
  }
}

TEST(SecularEquation, SearchEndsForWhateverNumbers) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {kNan, kInfinity, 0.0, 1e300, 1e-300}) {
    for (int place = 0; place < 6; ++place) {
      std::vector<double> d = {0, 1, 2}, z = {1, 1, 1}, origin(3), x(3);
      (place < 3 ? d : z)[static_cast<size_t>(place % 3)] = bad;
      for (int j = 0; j < 3; ++j) {
        const scalar::SecularEquation<scalar::SquaredPoles> m{d.data(), z.data(), 3};
        scalar::secular_roots<Real>(m, j, {origin.data(), x.data()});
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
