// QR for general matrices by the scalar lane. Right and left eigenvectors of every family keep the contract: with
// balancing or, where that was too strong, without. Real matrices have exact conjugate pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "engine/algorithms/general/general_eigen.h"
#include "engine/algorithms/general/general_outcome.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/general_references.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/shuffled_team.h"
#include "tests/support/numerics/wide_square.h"

namespace svdserve {
namespace {

template <class T>
using Lane = scalar::ScalarLane<T>;
using scalar::ComplexElement;
using scalar::MatrixView;
using scalar::RealElement;  // of SVD_TEST_ELEMENT
using scalar::RuntimeSize;

using E = SVD_TEST_ELEMENT;
using T = E::Scalar;
using C = ComplexElement<Lane<T>>;
using Number = std::complex<long double>;
constexpr double kU = FloatTraits<T>::kUnitRoundoff;

using Square = numerics::WideSquare;

// --- families ----------------------------------------------------------------------------------------------------

class Families {
 public:
  explicit Families(int order) : n(order) {}

  Number normal() { return {random_.normal(), E::kComplex ? random_.normal() : 0}; }
  Square random() {
    Square a(n);
    for (Number& x : a.x) x = normal();
    return a;
  }
  Square unitary() {
    Square q = random();
    for (int j = 0; j < n; ++j) {
      for (int pass = 0; pass < 2; ++pass) {
        for (int l = 0; l < j; ++l) {
          Number s = 0;
          for (int i = 0; i < n; ++i) s += std::conj(q(i, l)) * q(i, j);
          for (int i = 0; i < n; ++i) q(i, j) -= s * q(i, l);
        }
      }
      long double square = 0;
      for (int i = 0; i < n; ++i) square += std::norm(q(i, j));
      for (int i = 0; i < n; ++i) q(i, j) /= std::sqrt(square);
    }
    return q;
  }
  Square of(const std::function<Number(int, int)>& f) const {
    Square a(n);
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) a(i, j) = f(i, j);
    }
    return a;
  }
  Square hidden(const Square& a) {
    const Square q = unitary();
    return product(q, product(a, adjoint(q)));
  }
  // D A D^-1 or D A D, D of powers of two over that many decades.
  Square graded(double decades, bool similar) {
    std::vector<long double> d(static_cast<size_t>(n));
    for (auto& x : d) x = std::exp2(std::round(std::log2(10.0) * decades * (random_.uniform() - 0.5)));
    return of([&](int i, int j) { return normal() * d[i] * (similar ? 1 / d[j] : d[j]); });
  }

  struct Named {
    std::string name;
    Square a;
  };
  std::vector<Named> all() {
    const Square jordan = of([](int i, int j) { return Number(i + 1 == j); });
    const auto pairs = [](int i, int j) { return Number(i == j ? i / 2 : i + 1 == j && i % 2 == 0); };
    Square clusters = hidden(of([&](int i, int j) { return i == j ? (i % 2 ? 1.0L : -1.0L) + 1e-8L * normal() : 0; }));
    std::vector<Number> x(static_cast<size_t>(n)), y(x);
    for (auto* v : {&x, &y}) std::generate(v->begin(), v->end(), [&] { return normal(); });
    std::vector<Named> family{
        {"random", random()},
        {"zero", Square(n)},
        {"2 I", of([](int i, int j) { return i == j ? 2.0L : 0; })},
        {"nilpotent", jordan},
        {"one Jordan block", of([](int i, int j) { return i == j ? 3.0L : Number(i + 1 == j); })},
        {"hidden nilpotent", hidden(jordan)},
        {"hidden Jordan blocks of order 2", hidden(of(pairs))},
        {"reversal", of([&](int i, int j) { return Number(i + j == n - 1); })},
        {"cycle", of([&](int i, int j) { return Number(j == (i + 1) % n); })},
        {"companion", of([&](int i, int j) { return j == n - 1 ? normal() : Number(i == j + 1); })},
        {"Frank", of([&](int i, int j) { return j >= i - 1 ? static_cast<long double>(n - std::max(i, j)) : 0; })},
        {"Grcar", of([](int i, int j) { return j == i - 1 ? -1.0L : Number(j >= i && j <= i + 3); })},
        {"rank one", of([&](int i, int j) { return x[i] * y[j]; })},
        {"two clusters", clusters},
        {"D A D^-1 over 4 decades", graded(4, true)},
        {"D A D^-1 over 30 decades", graded(30, true)},
        {"D A D over 12 decades", graded(12, false)},
        {"D A D over 20 decades", graded(20, false)},
        {"triangular", of([&](int i, int j) { return i <= j ? normal() : 0; })},
        {"unitary", unitary()},
        {"equal rows", of([](int i, int j) { return Number(i % 2 == j % 2); })},
        {"-1, 0, 1",
         of([&](int, int) { return std::round(1.4L * (static_cast<long double>(random_.uniform()) - 0.5L) * 2); })},
        {"sparse", of([&](int, int) { return random_.uniform() < 0.25 ? normal() : 0; })},
    };
    Square skew = random(), hermitian = random(), huge = random(), tiny = random();
    const Square skew_adjoint = adjoint(skew), hermitian_adjoint = adjoint(hermitian);
    for (size_t i = 0; i < skew.x.size(); ++i) {
      skew.x[i] -= skew_adjoint.x[i];
      hermitian.x[i] += hermitian_adjoint.x[i];
      huge.x[i] *= std::ldexp(1.0L, FloatTraits<T>::kBias - 7);
      tiny.x[i] *= std::ldexp(1.0L, 3 - FloatTraits<T>::kBias);
    }
    for (auto& [name, a] :
         {Named{"skew", skew}, Named{"Hermitian", hermitian}, Named{"huge", huge}, Named{"tiny", tiny}}) {
      family.push_back({name, a});
    }
    return family;
  }

  const int n;

 private:
  numerics::Random random_{11};
};

// --- one decomposition -------------------------------------------------------------------------------------------

E element(const Number& x) {
  const T parts[]{static_cast<T>(x.real()), static_cast<T>(x.imag())};
  return scalar::load_element<E>(parts);
}
Number number(const C& x) { return {x.re.v, x.im.v}; }

struct Result {
  MatrixStatus status;
  std::vector<C> lambda;
  Square v, w;
  double told;          // the larger residual of V and W, as the kernel says it; in units of n u
  double residual = 0;  // of V and W, computed here
  GeneralOutcome<T> outcome{};
  std::vector<T> conditions{};
};

// |A x - x lambda|_F / |A|_F in units of n u.
double residual_of(const Square& a, const Square& x, const std::vector<C>& lambda, bool conjugated) {
  long double sum = 0, norm = 0;
  for (int j = 0; j < a.n; ++j) {
    const Number l = conjugated ? std::conj(number(lambda[j])) : number(lambda[j]);
    for (int i = 0; i < a.n; ++i) {
      Number difference = -l * x(i, j);
      for (int k = 0; k < a.n; ++k) difference += a(i, k) * x(k, j);
      sum += std::norm(difference);
      norm += std::norm(a(i, j));
    }
  }
  return norm > 0 ? static_cast<double>(std::sqrt(sum / norm)) / (a.n * kU) : 0;
}

template <bool kVectors, class Team = scalar::Alone>
Result decompose(const Square& exact, bool plain, Square* rounded, const Team& team = Team()) {
  const int n = exact.n;
  const auto order = static_cast<size_t>(n), size = order * order;
  std::vector<E> a(size), h(size), z(size);
  std::vector<C> t(size), v(size), w(size);
  std::vector<Lane<T>> d(order), parts(2 * order);
  for (size_t i = 0; i < size; ++i) {
    a[i] = element(exact.x[i]);
    rounded->x[i] = number(scalar::widened(a[i]));
  }
  Result result{MatrixStatus::kOk, std::vector<C>(order), Square(n), Square(n), 0};
  const scalar::GeneralWork<MatrixView<E>, MatrixView<C>, Lane<T>> work{
      {h.data(), n}, {z.data(), n}, {t.data(), n},        {v.data(), n},
      {w.data(), n}, d.data(),      result.lambda.data(), parts.data()};
  Lane<T> squares[2] = {Lane<T>(0), Lane<T>(0)};
  const auto load = [&](MatrixView<E> to) { std::copy(a.begin(), a.end(), to.data); };
  const scalar::GeneralWanted wanted{kVectors, kVectors, kVectors};
  const Lane<T> status = scalar::general_eigen<kVectors>(team, work, RuntimeSize{n}, plain, wanted, load, squares);
  result.status = static_cast<MatrixStatus>(static_cast<int>(status.v));
  if (!kVectors || result.status == MatrixStatus::kNonFinite) return result;
  for (size_t i = 0; i < size; ++i) {
    result.v.x[i] = number(v[i]);
    result.w.x[i] = number(w[i]);
  }
  for (size_t j = 0; j < order; ++j) result.conditions.push_back(parts[j].v);
  result.outcome = {result.status, worst_of(squares[0].v, squares[1].v)};
  result.told = std::sqrt(static_cast<double>(result.outcome.residual)) / (n * kU);
  result.residual = std::max(residual_of(*rounded, result.v, result.lambda, false),
                             residual_of(adjoint(*rounded), result.w, result.lambda, true));
  return result;
}

// As the back ends do it.
Result better_of_two(const Square& exact, Square* rounded) {
  const Result balanced = decompose<true>(exact, false, rounded);
  if (!is_spoilt(balanced.outcome, exact.n)) return balanced;
  const Result plain = decompose<true>(exact, true, rounded);
  return is_better(plain.outcome, balanced.outcome) ? plain : balanced;
}

// --- tests -------------------------------------------------------------------------------------------------------

void expect_pairs_and_units(const Result& r) {
  const int n = r.v.n;
  for (const Square* x : {&r.v, &r.w}) {
    for (int j = 0; j < n; ++j) {
      long double square = 0;
      for (int i = 0; i < n; ++i) square += std::norm((*x)(i, j));
      EXPECT_NEAR(static_cast<double>(square), 1, (n + 4) * 2 * kU);
    }
  }
  if (E::kComplex) return;
  for (int j = 0; j < n; ++j) {
    if (r.lambda[j].im.v == 0) {
      for (int i = 0; i < n; ++i) ASSERT_EQ(r.v(i, j).imag() != 0 || r.w(i, j).imag() != 0, false) << j;
      continue;
    }
    ASSERT_LT(j + 1, n);
    EXPECT_GT(r.lambda[j].im.v, 0);
    EXPECT_EQ(number(r.lambda[j + 1]), std::conj(number(r.lambda[j])));
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(r.v(i, j + 1), std::conj(r.v(i, j)));
      EXPECT_EQ(r.w(i, j + 1), std::conj(r.w(i, j)));
    }
    ++j;
  }
}

TEST(GeneralLanesTest, KeepsTheContract) {
  double worst = 0;
  for (int n = 1; n <= 32; ++n) {
    if (numerics::is_left_out(n)) continue;
    for (const auto& [name, exact] : Families(n).all()) {
      SCOPED_TRACE(name + ", n = " + std::to_string(n));
      Square a(n);
      const Result result = better_of_two(exact, &a);
      ASSERT_TRUE(result.status == MatrixStatus::kOk || result.status == MatrixStatus::kNearDefective ||
                  result.status == MatrixStatus::kOutOfRange);
      if (result.status == MatrixStatus::kOutOfRange) continue;
      worst = std::max(worst, result.residual);
      EXPECT_LE(result.residual, 10);
      EXPECT_NEAR(result.told, result.residual, 1 + 0.1 * result.residual);
      expect_pairs_and_units(result);
    }
  }
  std::printf("largest residual in units of n u: %.2f\n", worst);
}

// The calls of a phase do not depend on each other: any order gives the same bits.
TEST(GeneralLanesTest, AnyOrderOfAPhaseGivesTheSameBits) {
  uint64_t seed = 1;
  for (const int n : {1, 2, 3, 4, 5, 8, 11, 16}) {
    for (const auto& [name, exact] : Families(n).all()) {
      for (const bool plain : {false, true}) {
        SCOPED_TRACE(name + ", n = " + std::to_string(n));
        Square a(n);
        const Result in_order = decompose<true>(exact, plain, &a);
        const Result shuffled = decompose<true>(exact, plain, &a, numerics::ShuffledTeam(seed++));
        EXPECT_EQ(shuffled.status, in_order.status);
        EXPECT_EQ(shuffled.told, in_order.told);
        for (int j = 0; j < n; ++j) EXPECT_EQ(number(shuffled.lambda[j]), number(in_order.lambda[j]));
        EXPECT_EQ(shuffled.v.x, in_order.v.x);
        EXPECT_EQ(shuffled.w.x, in_order.w.x);
        EXPECT_EQ(shuffled.conditions, in_order.conditions);
      }
    }
  }
}

// A zero of Z may lie in a row that balancing has scaled most: it is no NaN in V or W.
TEST(GeneralLanesTest, RowsOfAnyScaleHaveFiniteVectors) {
  for (const int n : {2, 3, 5, 8}) {
    for (const int step : {40, 120, 240}) {
      const Square exact = Families(n).of([&](int i, int j) {
        const int power = step * (i - j) / n;
        return i <= j || i == j + 1 ? std::ldexp(1.0L, std::clamp(power, -120, 120)) : 0;
      });
      Square a(n);
      const Result result = decompose<true>(exact, false, &a);
      for (const Square* x : {&result.v, &result.w}) {
        for (const Number& v : x->x)
          EXPECT_TRUE(std::isfinite(v.real()) && std::isfinite(v.imag())) << n << " " << step;
      }
    }
  }
}

// Rotations of numbers of any size are unitary. They take y to zero, or leave what is far below u^2.
TEST(GeneralLanesTest, RotationsOfAnySize) {
  const auto power = [](int e) { return Lane<T>(static_cast<T>(std::ldexp(1.0, e))); };
  const int step = sizeof(T) == 4 ? 7 : 60, last = sizeof(T) == 4 ? -149 : -1074;
  for (int ex = 0; ex >= last; ex -= step) {
    for (int ey = 0; ey >= last; ey -= step) {
      SCOPED_TRACE(std::to_string(ex) + ", " + std::to_string(ey));
      const C x{power(ex), power(ex - 1)}, y{-power(ey), power(ey - 2)};
      const auto g = scalar::make_rotation(x, y, Lane<T>::mask(true));
      const Number c = g.c.v, s = number(g.s);
      const double size = std::ldexp(1.0, std::max(ex, ey)), smallest = FloatTraits<T>::kSmallestNormal;
      EXPECT_NEAR(static_cast<double>(std::norm(c) + std::norm(s)), 1, 12 * kU);
      EXPECT_LE(static_cast<double>(std::abs(c * number(x) + s * number(y) - number(g.r))), 8 * kU * size + smallest);
      const double left = static_cast<double>(std::abs(c * number(y) - std::conj(s) * number(x)));
      EXPECT_LE(left, std::max(8 * kU, 0x1p-44) * size + kU * kU / 256);
    }
  }
}

// The outcome that is kept: a converged one before another, then the smaller residual; a NaN is the worst.
TEST(GeneralLanesTest, TheBetterOutcomeIsKept) {
  constexpr T kNan = FloatTraits<T>::nan(), kBound = T(5 * 4 * kU);
  const auto outcome = [](MatrixStatus status, T residual) { return GeneralOutcome<T>{status, residual * residual}; };
  EXPECT_FALSE(is_spoilt(outcome(MatrixStatus::kOk, kBound / 2), 4));
  EXPECT_TRUE(is_spoilt(outcome(MatrixStatus::kOk, 2 * kBound), 4));
  EXPECT_TRUE(is_spoilt(outcome(MatrixStatus::kOk, kNan), 4));
  EXPECT_TRUE(is_spoilt(outcome(MatrixStatus::kNotConverged, 0), 4));
  EXPECT_FALSE(is_spoilt(outcome(MatrixStatus::kNonFinite, kNan), 4));
  EXPECT_TRUE(is_better(outcome(MatrixStatus::kOk, kBound), outcome(MatrixStatus::kOk, 2 * kBound)));
  EXPECT_FALSE(is_better(outcome(MatrixStatus::kOk, 2 * kBound), outcome(MatrixStatus::kOk, kBound)));
  EXPECT_TRUE(is_better(outcome(MatrixStatus::kOk, kBound), outcome(MatrixStatus::kOk, kNan)));
  EXPECT_FALSE(is_better(outcome(MatrixStatus::kOk, kNan), outcome(MatrixStatus::kOk, kBound)));
  EXPECT_FALSE(is_better(outcome(MatrixStatus::kNotConverged, 0), outcome(MatrixStatus::kOk, 2 * kBound)));
  EXPECT_TRUE(is_better(outcome(MatrixStatus::kOk, 2 * kBound), outcome(MatrixStatus::kNotConverged, 0)));
  EXPECT_TRUE(std::isnan(worst_of(kNan, T(1))) && std::isnan(worst_of(T(1), kNan)));
}

TEST(GeneralLanesTest, EigenvaluesAloneAreThoseOfTheVectors) {
  for (const int n : {1, 2, 3, 6, 17}) {
    for (const auto& [name, exact] : Families(n).all()) {
      Square a(n);
      const Result with = decompose<true>(exact, false, &a), alone = decompose<false>(exact, false, &a);
      for (int j = 0; j < n; ++j) EXPECT_EQ(number(with.lambda[j]), number(alone.lambda[j])) << name << " " << n;
    }
  }
}

// Against 80 digits: 20 n u |A| times the condition of each eigenvalue.
TEST(GeneralLanesTest, EigenvaluesOfReferences) {
  const DType dtype =
      E::kComplex ? (sizeof(T) == 4 ? DType::kC64 : DType::kC128) : (sizeof(T) == 4 ? DType::kF32 : DType::kF64);
  double worst[2] = {};
  for (const auto& reference : numerics::general_references(TEST_DATA "/general/batch.txt", dtype)) {
    const int n = static_cast<int>(reference.matrix.rows);
    Square exact(n), a(n);
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) exact(i, j) = reference.matrix.at(i, j);
    }
    for (const bool plain : {false, true}) {
      const Result result = decompose<true>(exact, plain, &a);
      EXPECT_EQ(a.x, exact.x);
      std::vector<Number> found;
      for (const C& lambda : result.lambda) found.push_back(number(lambda));
      const double error = numerics::worst_eigenvalue_error(reference, found, kU);
      EXPECT_LE(error, 20) << "family " << reference.family << ", n = " << n << ", plain " << plain;
      worst[plain] = std::max(worst[plain], error);
    }
  }
  std::printf("eigenvalues, in units of n u |A| times their condition: %.3f, without balancing %.3f\n", worst[0],
              worst[1]);
}

TEST(GeneralLanesTest, DiagonalsOfTriangularMatricesAreExact) {
  for (const int n : {1, 2, 5, 12}) {
    Families families(n);
    const Square exact = families.of([&](int i, int j) { return i <= j ? families.normal() : 0; });
    Square a(n);
    const Result result = decompose<true>(exact, false, &a);
    for (int j = 0; j < n; ++j) EXPECT_EQ(number(result.lambda[j]), a(j, j));
  }
}

TEST(GeneralLanesTest, RootsOfUnity) {
  for (const int n : {2, 3, 4, 8, 15}) {
    Square a(n);
    const Result result =
        decompose<true>(Families(n).of([&](int i, int j) { return Number(j == (i + 1) % n); }), false, &a);
    for (int m = 0; m < n; ++m) {
      const Number root = std::polar(1.0L, 2 * std::numbers::pi_v<long double> * m / n);
      long double nearest = 9;
      for (int j = 0; j < n; ++j) nearest = std::min(nearest, std::abs(number(result.lambda[j]) - root));
      EXPECT_LE(static_cast<double>(nearest), 10 * n * kU) << n << " " << m;
    }
  }
}

TEST(GeneralLanesTest, WhatIsNotFiniteIsSaidToBe) {
  for (const double x : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Square exact = Families(4).random(), a(4);
    exact(2, 1) = x;
    EXPECT_EQ(decompose<true>(exact, false, &a).status, MatrixStatus::kNonFinite);
    EXPECT_EQ(decompose<false>(exact, false, &a).status, MatrixStatus::kNonFinite);
  }
}

}  // namespace
}  // namespace svdserve
