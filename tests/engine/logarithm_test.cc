// The logarithms against the library's in higher precision: the worst error in units in the last place over dense
// sweeps is printed, and bounded. The targets' bits are compared where answers are (conformance_same_bits_test).
#include "engine/core/logarithm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/random.h"

namespace svdserve {
namespace {

using numerics::Random;

template <class T>
using Lane = scalar::ScalarLane<T>;

// Higher precision than T's.
template <class T>
using Reference = std::conditional_t<sizeof(T) == 4, double, long double>;

template <class T>
T of_bits(typename FloatTraits<T>::Bits bits) {
  T x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// |actual - expected| in units in the last place of a T of expected's size.
template <class T>
double ulps(T actual, Reference<T> expected) {
  using Limits = std::numeric_limits<T>;
  int exponent = 0;
  std::frexp(expected, &exponent);
  const auto unit = std::ldexp(Reference<T>(1), std::max(exponent, Limits::min_exponent) - Limits::digits);
  return static_cast<double>(std::abs(Reference<T>(actual) - expected) / unit);
}

struct Worst {
  double ulps = 0, at = 0;
  template <class T>
  void add(double error, T x) {
    if (!(error <= ulps)) ulps = error, at = static_cast<double>(x);
  }
};

// Calls f(x) for non-negative finite x of every size, denormal to huge: steps of equal numbers of representable ones.
template <class T, class F>
void sweep(T from, T to, int64_t points, F f) {
  using Bits = typename FloatTraits<T>::Bits;
  Bits first, last;
  std::memcpy(&first, &from, sizeof first);
  std::memcpy(&last, &to, sizeof last);
  Random random(points);
  const Bits step = std::max<Bits>((last - first) / static_cast<Bits>(points), 1);
  for (Bits bits = first; bits < last && last - bits >= step; bits += step) {
    f(of_bits<T>(bits + static_cast<Bits>(random.bits() % step)));
  }
}

template <class T>
class LogarithmTest : public ::testing::Test {
 protected:
  using L = Lane<T>;
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  static constexpr T kLargest = FloatTraits<T>::kLargest;

  template <class Function, class Expected>
  static double worst_of(const char* what, T from, T to, Function function, Expected expected) {
    Worst worst;
    sweep<T>(from, to, numerics::scaled(3'000'000),
             [&](T x) { worst.add(ulps<T>(function(L(x)).v, expected(static_cast<Reference<T>>(x))), x); });
    std::printf("%s %-28s %9.3g .. %9.3g: worst %.3f ulp, at %.17g\n", sizeof(T) == 4 ? "f32" : "f64", what,
                static_cast<double>(from), static_cast<double>(to), worst.ulps, worst.at);
    return worst.ulps;
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LogarithmTest, Types);

TYPED_TEST(LogarithmTest, Log1pIsWithinTwoUlps) {
  using T = TypeParam;
  using R = Reference<T>;
  const auto function = [](Lane<T> x) { return scalar::log1p(x); };
  const auto expected = [](R x) { return std::log1p(x); };
  EXPECT_LE(this->worst_of("log1p", T(0), this->kLargest, function, expected), 2);
  EXPECT_LE(this->worst_of("log1p", T(1e-3), T(1e3), function, expected), 2);
  EXPECT_LE(this->worst_of("log1p", T(0.25), T(3), function, expected), 2);
  EXPECT_LE(this->worst_of("log1p", FloatTraits<T>::kUnitRoundoff / 4, FloatTraits<T>::kUnitRoundoff * 64, function,
                           expected),
            2);
}

TYPED_TEST(LogarithmTest, Log2Of1pIsWithinTwoUlps) {
  using T = TypeParam;
  using R = Reference<T>;
  const R log2_e = 1 / std::log(R(2));
  const auto function = [](Lane<T> x) { return scalar::log2_1p(x); };
  const auto expected = [&](R x) { return std::log1p(x) * log2_e; };
  EXPECT_LE(this->worst_of("log2_1p", T(0), this->kLargest, function, expected), 2);
  EXPECT_LE(this->worst_of("log2_1p", T(1e-3), T(1e3), function, expected), 2);
  EXPECT_LE(this->worst_of("log2_1p", T(0.25), T(3), function, expected), 2);
  EXPECT_LE(this->worst_of("log2_1p", FloatTraits<T>::kUnitRoundoff / 4, FloatTraits<T>::kUnitRoundoff * 64, function,
                           expected),
            2);
}

TYPED_TEST(LogarithmTest, Log2IsWithinTwoUlps) {
  using T = TypeParam;
  using R = Reference<T>;
  const auto function = [](Lane<T> x) { return scalar::log2(x); };
  const auto expected = [](R x) { return std::log2(x); };
  EXPECT_LE(
      this->worst_of("log2", 2 * FloatTraits<T>::kSmallestNormal, FloatTraits<T>::kRangeLargest, function, expected),
      2);
  EXPECT_LE(this->worst_of("log2", T(0.5), T(2), function, expected), 2);
}

TYPED_TEST(LogarithmTest, Exp2IsWithinTwoUlps) {
  using T = TypeParam;
  using R = Reference<T>;
  const auto expected = [](R y) { return std::exp2(y); };
  EXPECT_LE(this->worst_of(
                "exp2", T(0), T(100), [](Lane<T> y) { return scalar::exp2(y); }, expected),
            2);
  EXPECT_LE(this->worst_of(
                "exp2", T(0.01), T(8), [](Lane<T> y) { return scalar::exp2(y); }, expected),
            2);
  EXPECT_LE(
      this->worst_of(
          "exp2 of -y", T(0), T(100), [](Lane<T> y) { return scalar::exp2(-y); }, [](R y) { return std::exp2(-y); }),
      2);
  for (int n = -100; n <= 100; ++n) EXPECT_EQ(scalar::exp2(Lane<T>(T(n))).v, std::ldexp(T(1), n));
}

TYPED_TEST(LogarithmTest, SpecialArguments) {
  using T = TypeParam;
  using L = Lane<T>;
  constexpr T kInfinity = std::numeric_limits<T>::infinity(), kDenormal = std::numeric_limits<T>::denorm_min();
  EXPECT_EQ(scalar::log1p(L(T(0))).v, T(0));
  EXPECT_FALSE(std::signbit(scalar::log1p(L(T(0))).v));
  EXPECT_EQ(scalar::log1p(L(kDenormal)).v, kDenormal);
  EXPECT_EQ(scalar::log2_1p(L(T(0))).v, T(0));
  EXPECT_EQ(scalar::log2_1p(L(kDenormal)).v, kDenormal);  // 1.44 of it, rounded
  for (const T not_finite : {std::numeric_limits<T>::quiet_NaN(), -std::numeric_limits<T>::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(scalar::log1p(L(not_finite)).v));
    EXPECT_TRUE(std::isnan(scalar::log2_1p(L(not_finite)).v));
  }
  EXPECT_EQ(scalar::log1p(L(kInfinity)).v, kInfinity);
  EXPECT_EQ(scalar::log2_1p(L(kInfinity)).v, kInfinity);
  // Powers of two and one less: exact.
  for (int n = 0; n < FloatTraits<T>::kMantissaBits; ++n) {
    EXPECT_EQ(scalar::log2_1p(L(std::ldexp(T(1), n) - 1)).v, T(n));
    EXPECT_EQ(scalar::log2(L(std::ldexp(T(1), n))).v, T(n));
    EXPECT_EQ(scalar::log2(L(std::ldexp(T(1), -n))).v, T(-n));
  }
}

TYPED_TEST(LogarithmTest, ScaledArgumentsFarOutOfRange) {
  using T = TypeParam;
  using R = Reference<T>;
  const int widest = sizeof(T) == 4 ? 500 : 5000;
  Worst worst;
  Random random(5);
  for (int64_t i = 0; i < numerics::scaled(1'000'000); ++i) {
    const T a = static_cast<T>(random.uniform(0.1, 8));
    const int e = static_cast<int>(random.integer(-100, widest));
    // log2(1 + a 2^e) = e + log2(a + 2^-e)
    const R expected = e > 60 ? e + std::log2(static_cast<R>(a)) : std::log2(1 + std::ldexp(static_cast<R>(a), e));
    if (e < -8) continue;  // the reference loses what log1p keeps
    worst.add(ulps<T>(scalar::log2_1p_scaled(Lane<T>(a), Lane<T>(T(e))).v, expected), T(e));
  }
  std::printf("%s log2_1p_scaled: worst %.3f ulp, at exponent %g\n", sizeof(T) == 4 ? "f32" : "f64", worst.ulps,
              worst.at);
  EXPECT_LE(worst.ulps, 2);
  for (const int e : {-widest, 0, 50, widest}) {
    EXPECT_EQ(scalar::log2_1p_scaled(Lane<T>(T(0)), Lane<T>(T(e))).v, T(0)) << e;
    EXPECT_EQ(scalar::log2_1p_scaled(Lane<T>(this->kInfinity), Lane<T>(T(std::abs(e)))).v, this->kInfinity) << e;
  }
  EXPECT_EQ(scalar::log2_1p_scaled(Lane<T>(T(3)), Lane<T>(T(-widest))).v, T(0));
}

}  // namespace
}  // namespace svdserve
