// Values of bidiagonal matrices that are hard for dqds, by it and by bisection with qd counts. The reference is bisection
// in higher precision on the same squares.
#include "engine/algorithms/lanes/dqds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/algorithms/lanes/bisected_value.h"
#include "engine/algorithms/lanes/matrix_values.h"
#include "tests/support/numerics/random.h"

namespace svdserve {

// The traits that bisection in extended precision needs.
template <>
struct FloatTraits<long double> {
  static constexpr int kMantissaBits = std::numeric_limits<long double>::digits - 1;
  static constexpr long double kLargest = std::numeric_limits<long double>::max();
};

namespace {

using numerics::Random;
using scalar::RuntimeSize;

template <class T>
using Lane = scalar::ScalarLane<T>;

// q_i = b_ii^2, e_i = b_{i,i+1}^2, as dqds gets them.
template <class T>
struct Bidiagonal {
  explicit Bidiagonal(int k) : q(static_cast<size_t>(k)), e(static_cast<size_t>(k)) {}
  int k() const { return static_cast<int>(q.size()); }
  std::vector<Lane<T>> q, e;
};

// --- matrices ------------------------------------------------------------------------------------------------------

template <class T>
Bidiagonal<T> from_entries(int k, const std::function<double(int)>& diagonal, const std::function<double(int)>& above) {
  Bidiagonal<T> b(k);
  for (int i = 0; i < k; ++i) {
    const T x = static_cast<T>(diagonal(i)), y = static_cast<T>(i < k - 1 ? above(i) : 0);
    b.q[static_cast<size_t>(i)] = Lane<T>(x * x);
    b.e[static_cast<size_t>(i)] = Lane<T>(y * y);
  }
  return b;
}

// The bidiagonal form of a dense k x k matrix, scaled as matrix_values() does it.
template <class T>
Bidiagonal<T> from_dense(int k, const std::function<double(int, int)>& element) {
  using E = scalar::RealElement<Lane<T>>;
  std::vector<E> a(static_cast<size_t>(k * k));
  for (int j = 0; j < k; ++j) {
    for (int i = 0; i < k; ++i) a[static_cast<size_t>(j * k + i)].re = Lane<T>(static_cast<T>(element(i, j)));
  }
  Bidiagonal<T> b(k);
  std::vector<Lane<T>> exponents(static_cast<size_t>(k));
  const scalar::MatrixView<E> view{a.data(), k};
  scalar::scale_matrix<false>(scalar::Alone(), view, RuntimeSize{k}, static_cast<const Lane<T>*>(nullptr),
                              exponents.data());
  scalar::bidiagonalize(scalar::Alone(), view, RuntimeSize{k}, b.q.data(), b.e.data());
  b.e[static_cast<size_t>(k - 1)] = Lane<T>(0);
  return b;
}

struct Kind {
  const char* name;
  bool never_falls_back;
};
constexpr Kind kKinds[] = {
    {"random dense", true},           {"random entries", false},
    {"near-identity dense", true},    {"near-identity entries", true},
    {"graded down", false},           {"graded up", false},
    {"steeply graded", false},        {"clusters", false},
    {"zeros on the diagonal", false}, {"zeros above the diagonal", false},
    {"rank deficient dense", false},  {"all equal", false},
    {"hardly a diagonal", false},     {"zero but for one", false},
};
constexpr int kKindCount = static_cast<int>(std::size(kKinds));

template <class T>
Bidiagonal<T> generate(int kind, int k, uint64_t seed) {
  Random random(seed);
  const auto normal = [&](int) { return random.normal(); };
  // The smallest of a graded matrix: its square is what a value may be off by.
  const double steep = sizeof(T) == 4 ? -10 : -100;
  const auto part = [&](int i) { return k == 1 ? 0.0 : static_cast<double>(i) / (k - 1); };
  switch (kind) {
    case 0:
      return from_dense<T>(k, [&](int, int) { return random.normal(); });
    case 1:
      return from_entries<T>(
          k, [&](int i) { return i == 0 ? 1 + random.uniform() : random.normal(); }, normal);
    case 2:
      return from_dense<T>(k, [&](int i, int j) { return (i == j ? 1 : 0) + 1e-3 * random.normal(); });
    case 3:
      return from_entries<T>(
          k, [&](int) { return 1 + 1e-3 * random.normal(); }, [&](int) { return 1e-3 * random.normal(); });
    case 4:
    case 5: {
      const auto size = [&](int i) { return std::pow(10.0, -12 * (kind == 4 ? part(i) : 1 - part(i))); };
      return from_entries<T>(
          k, [&](int i) { return size(i) * (1 + random.uniform()); },
          [&](int i) { return size(i) * (1 + random.uniform()); });
    }
    case 6: {
      const auto size = [&](int i) { return std::pow(10.0, steep * part(i)); };
      return from_entries<T>(
          k, [&](int i) { return size(i) * (1 + random.uniform()); },
          [&](int i) { return size(i) * random.uniform(); });
    }
    case 7: {  // two groups of nearly equal values, coupled by almost nothing
      const double gap = std::pow(10.0, -random.uniform(2, 14));
      return from_entries<T>(
          k, [&](int i) { return (2 * i < k ? 1 : 1e-3) * (1 + gap * random.normal()); },
          [&](int) { return gap * random.normal(); });
    }
    case 8:
      return from_entries<T>(
          k, [&](int i) { return i == 0                      ? 1
                                 : random.integer(0, 2) == 0 ? 0
                                                             : random.normal(); }, normal);
    case 9:
      return from_entries<T>(
          k, [&](int i) { return i == 0 ? 1 : random.normal(); },
          [&](int) { return random.integer(0, 2) == 0 ? 0 : random.normal(); });
    case 10: {
      const int rank = static_cast<int>(random.integer(1, std::max(1, k / 2)));
      std::vector<double> u(static_cast<size_t>(k * rank)), v(u.size());
      for (double& x : u) x = random.normal();
      for (double& x : v) x = random.normal();
      return from_dense<T>(k, [&](int i, int j) {
        double sum = 0;
        for (int r = 0; r < rank; ++r)
          sum += u[static_cast<size_t>(i * rank + r)] * v[static_cast<size_t>(j * rank + r)];
        return sum;
      });
    }
    case 11:
      return from_entries<T>(
          k, [](int) { return 1; }, [](int) { return 1; });
    case 12:
      return from_entries<T>(
          k, [&](int) { return random.integer(0, 1) == 0 ? 0
                               : sizeof(T) == 4          ? 1e-4
                                                         : 1e-9; }, [](int) { return 1; });
    default: {
      const auto at = random.integer(0, k - 1);
      return from_entries<T>(
          k, [&](int i) { return i == at ? 1.5 : 0; }, [](int) { return 0; });
    }
  }
}

// --- reference -----------------------------------------------------------------------------------------------------

template <class T>
struct Wider;
template <>
struct Wider<float> {
  using Type = double;
};
template <>
struct Wider<double> {
  using Type = long double;
};

// Descending.
template <class T>
std::vector<long double> reference(const Bidiagonal<T>& b) {
  using W = typename Wider<T>::Type;
  const auto widen = [](const std::vector<Lane<T>>& from) {
    std::vector<Lane<W>> to;
    for (const Lane<T> x : from) to.push_back(Lane<W>(static_cast<W>(x.v)));
    return to;
  };
  const auto q = widen(b.q), e = widen(b.e);
  std::vector<Lane<W>> s(q.size());
  scalar::gk_bisection(RuntimeSize{b.k()}, q.data(), e.data(), s.data());
  std::vector<long double> values;
  for (const Lane<W> x : s) values.push_back(x.v);
  std::sort(values.rbegin(), values.rend());
  return values;
}

// As BIDIAGONAL calls it; descending.
template <class T>
std::vector<long double> ours(Bidiagonal<T> b, bool* fell_back) {
  const int k = b.k();
  const auto n = static_cast<size_t>(k);
  std::vector<Lane<T>> backup(2 * n), kept(3 * n), s(n);
  Bidiagonal<T> copy = b;
  *fell_back = scalar::dqds(RuntimeSize{k}, copy.q.data(), copy.e.data(), backup.data()).m;
  scalar::bidiagonal_values(RuntimeSize{k}, b.q.data(), b.e.data(), backup.data(), kept.data(), s.data());
  std::vector<long double> values;
  for (const Lane<T> x : s) values.push_back(x.v);
  std::sort(values.rbegin(), values.rend());
  return values;
}

template <class T>
void check(int kind) {
  const long double u = FloatTraits<T>::kUnitRoundoff;
  long double worst = 0;
  int matrices = 0, fallbacks = 0;
  for (int k = 1; k <= 32; ++k) {
    const int seeds = k <= 8 ? 100 : k <= 16 ? 20 : 6;
    for (int seed = 0; seed < seeds; ++seed) {
      const auto b = generate<T>(kind, k, static_cast<uint64_t>(kind * 1000000 + k * 1000 + seed));
      bool fell_back = false;
      const auto got = ours(b, &fell_back), wanted = reference(b);
      ++matrices;
      fallbacks += fell_back;
      const long double unit = u * wanted[0];
      for (size_t i = 0; i < got.size(); ++i) {
        // A NaN fails, too.
        const long double error = std::fabs(got[i] - wanted[i]);
        ASSERT_TRUE(error <= (16 + 2 * k) * unit)
            << kKinds[kind].name << ", k = " << k << ", seed " << seed << ": value " << i << " is "
            << static_cast<double>(got[i]) << ", not " << static_cast<double>(wanted[i]);
        if (unit > 0) worst = std::max(worst, error / unit);
      }
    }
  }
  std::printf("%-26s f%d  %5d matrices  worst %5.2Lf u s_max  %d by bisection\n", kKinds[kind].name,
              static_cast<int>(8 * sizeof(T)), matrices, worst, fallbacks);
  if (kKinds[kind].never_falls_back) {
    EXPECT_EQ(fallbacks, 0) << kKinds[kind].name;
  }
}

template <class T>
std::vector<long double> bisected(const Bidiagonal<T>& b) {
  const int k = b.k();
  std::vector<Lane<T>> squares;
  for (size_t i = 0; i < b.q.size(); ++i) {
    squares.push_back(b.q[i]);
    squares.push_back(b.e[i]);
  }
  const scalar::BisectedValue<Lane<T>> one(k, squares.data());
  std::vector<long double> values;
  for (int j = k - 1; j >= 0; --j) values.push_back(one.value(j).v);
  return values;
}

// Descending without being sorted, and within 8 u s_max.
template <class T>
void check_bisected(int kind) {
  const long double u = FloatTraits<T>::kUnitRoundoff;
  long double worst = 0;
  for (const int k : {1, 2, 3, 5, 8, 13, 21, 32, 130}) {
    for (int seed = 0; seed < (k <= 21 ? 10 : 1); ++seed) {
      const auto b = generate<T>(kind, k, static_cast<uint64_t>(kind * 1000000 + k * 1000 + seed));
      const auto got = bisected(b), wanted = reference(b);
      const long double unit = u * wanted[0];
      for (size_t i = 0; i < got.size(); ++i) {
        const std::string where = std::string(kKinds[kind].name) + ", k = " + std::to_string(k) + ", seed " +
                                  std::to_string(seed) + ", value " + std::to_string(i);
        const long double error = std::fabs(got[i] - wanted[i]);
        ASSERT_TRUE(error <= 8 * unit) << where << " is " << static_cast<double>(got[i]) << ", not "
                                       << static_cast<double>(wanted[i]);
        ASSERT_TRUE(i == 0 || got[i] <= got[i - 1]) << where;
        if (unit > 0) worst = std::max(worst, error / unit);
      }
    }
  }
  std::printf("%-26s f%d  worst %5.2Lf u s_max by qd counts\n", kKinds[kind].name, static_cast<int>(8 * sizeof(T)),
              worst);
}

class Dqds : public testing::TestWithParam<int> {};

TEST_P(Dqds, IsAsAccurateAsPromisedF32) { check<float>(GetParam()); }
TEST_P(Dqds, IsAsAccurateAsPromisedF64) { check<double>(GetParam()); }
TEST_P(Dqds, BisectedValuesAreAccurateAndInOrderF32) { check_bisected<float>(GetParam()); }
TEST_P(Dqds, BisectedValuesAreAccurateAndInOrderF64) { check_bisected<double>(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Kinds, Dqds, testing::Range(0, kKindCount), [](const auto& kind) {
  std::string name = kKinds[kind.param].name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
});

}  // namespace
}  // namespace svdserve
