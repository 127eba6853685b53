// JACOBI by a team of a warp (algorithms/blocks/warp_jacobi.h), the source that a GPU runs, on fibers. Its bits are those
// of a lane, whatever the order of the threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/algorithms/blocks/warp_jacobi.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/fiber_team.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/scalar_elements.h"

namespace svdserve::numerics {
namespace {

// U, S and V, all as numbers, every zero +0.
template <class T>
struct Factors {
  std::vector<T> numbers;
  MatrixStatus status = MatrixStatus{99};

  template <class E>
  void put(size_t at, const E& x) {
    numbers[at] = x.re.v + T(0);
    if constexpr (E::kComplex) numbers[at + 1] = x.im.v + T(0);
  }
  friend bool operator==(const Factors& a, const Factors& b) {
    return a.status == b.status && a.numbers.size() == b.numbers.size() &&
           std::memcmp(a.numbers.data(), b.numbers.data(), a.numbers.size() * sizeof(T)) == 0;
  }
};

template <class E>
size_t place_of(int k, int i, int r, bool of_v) {
  return static_cast<size_t>(((of_v ? k * k : 0) + r * k + i) * E::kComponents + k);
}

template <class E>
std::vector<E> elements_of(const Matrix& a) {
  std::vector<E> x;
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) x.push_back(element<E>(a.at(i, j)));
  }
  return x;
}

template <class E>
Factors<typename E::Scalar> by_lane(const Matrix& a, const std::vector<typename E::Scalar>& given, int max_sweeps) {
  using L = typename E::Lane;
  using T = typename E::Scalar;
  const int k = static_cast<int>(a.cols);
  std::vector<E> x = elements_of<E>(a), y(x.size());
  std::vector<scalar::ColumnScale<L>> scales(static_cast<size_t>(k));
  std::vector<L> exponents, s(static_cast<size_t>(k)), rank(static_cast<size_t>(k));
  for (const T e : given) exponents.emplace_back(e);
  Factors<T> f{std::vector<T>(place_of<E>(k, 0, k, true))};
  const L tolerance(static_cast<T>(k) * FloatTraits<T>::kUnitRoundoff);
  const scalar::MatrixView<E> of_x{x.data(), k}, of_y{y.data(), k};
  const L status =
      scalar::jacobi_vectors(of_x, of_y, scalar::RuntimeSize{k}, given.empty() ? nullptr : exponents.data(), tolerance,
                             max_sweeps, scales.data(), s.data(), rank.data());
  f.status = static_cast<MatrixStatus>(status.v);
  if (f.status == MatrixStatus::kNonFinite) return f;  // all else is NaN
  for (int j = 0; j < k; ++j) {
    const int r = static_cast<int>(rank[static_cast<size_t>(j)].v);
    f.numbers[static_cast<size_t>(r)] = s[static_cast<size_t>(j)].v;
    for (int i = 0; i < k; ++i) {
      f.put(place_of<E>(k, i, r, false), of_x(i, j));
      f.put(place_of<E>(k, i, r, true), of_y(i, j));
    }
  }
  return f;
}

template <int K, int kSplit>
using TeamOf = FiberTeam<scalar::warp_team(K, kSplit)>;

// Y in memory that the threads share.
template <class E>
struct Elements {
  E* all;
  E load(int i) const { return all[i]; }
  void store(int i, const E& x) const { all[i] = x; }
};

// YMemory: void, or Elements<E>.
template <class E, int K, int kSplit, class YMemory = void>
Factors<typename E::Scalar> by_warp(const Matrix& a, const std::vector<typename E::Scalar>& given, int max_sweeps,
                                    uint64_t seed) {
  using T = typename E::Scalar;
  constexpr int kRows = K / kSplit;
  const int k = static_cast<int>(a.cols);
  Factors<T> f{std::vector<T>(place_of<E>(k, 0, k, true))};
  struct Results {
    Factors<T>* f;
    int k, part;
    void value(int r, T s) const {
      if (!std::isnan(s)) f->numbers[static_cast<size_t>(r)] = s;
    }
    void columns(const E (&x)[kRows], const E (&y)[kRows], int r, bool finite) const {
      for (int i = 0; i * kSplit + part < k && finite; ++i) {
        f->put(place_of<E>(k, i * kSplit + part, r, false), x[i]);
        f->put(place_of<E>(k, i * kSplit + part, r, true), y[i]);
      }
    }
  };
  constexpr int kTeams = 32 / scalar::warp_team(K, kSplit);
  std::vector<E> memory(static_cast<size_t>(kTeams * K * K));
  FiberBlock warp(32, seed);
  warp.run([&](FiberBlock::Thread thread) {
    using Team = TeamOf<K, kSplit>;
    using Jacobi = scalar::WarpJacobi<Team, E, K, kSplit, true, YMemory>;
    typename Jacobi::Memory y{};
    if constexpr (Jacobi::kYInMemory) y.all = memory.data() + thread.index() / Jacobi::kThreads * K * K;
    Jacobi jacobi(Team(thread), k, static_cast<T>(k) * FloatTraits<T>::kUnitRoundoff, y);
    const auto load = [&](E(&x)[kRows], int place) {
      for (int i = 0; i < kRows; ++i) {
        const int row = i * kSplit + jacobi.part();
        x[i] = row < k && place < k ? element<E>(a.at(row, place)) : scalar::zero_element<E>();
      }
    };
    f.status = jacobi.run(load, given.empty() ? nullptr : given.data(), max_sweeps, Results{&f, k, jacobi.part()});
  });
  return f;
}

// A team of a GPU: the elements, the places, the threads of a pair of them.
template <class Element_, int K_, int kSplit_>
struct Shape {
  using Element = Element_;
  static constexpr int K = K_, kSplit = kSplit_;
};

template <class S>
class WarpJacobi : public testing::Test {
 protected:
  using E = typename S::Element;
  using T = typename E::Scalar;
  static constexpr DType kType =
      E::kComplex ? (sizeof(T) == 4 ? DType::kC64 : DType::kC128) : (sizeof(T) == 4 ? DType::kF32 : DType::kF64);

  static void expect_same_bits(const Matrix& a, const std::string& what, const std::vector<T>& given = {},
                               int max_sweeps = kDefaultMaxSweeps) {
    const auto f = by_lane<E>(a, given, max_sweeps);
    EXPECT_EQ(f, (by_warp<E, S::K, S::kSplit>(a, given, max_sweeps, 7))) << what << " k = " << a.cols;
    if constexpr (S::K >= 24) {
      using Memory = Elements<E>;
      EXPECT_EQ(f, (by_warp<E, S::K, S::kSplit, Memory>(a, given, max_sweeps, 5))) << what << " k = " << a.cols;
    }
    if (!is_long_run()) return;
    EXPECT_EQ(f, (by_warp<E, S::K, S::kSplit>(a, given, max_sweeps, 0))) << what << " k = " << a.cols << " in order";
  }
};
using Shapes = testing::Types<Shape<Complex<float>, 6, 1>, Shape<Real<float>, 8, 1>, Shape<Real<double>, 8, 1>,
                              Shape<Complex<double>, 8, 1>, Shape<Real<double>, 12, 1>, Shape<Complex<double>, 12, 2>,
                              Shape<Real<double>, 16, 1>, Shape<Complex<double>, 16, 2>, Shape<Real<float>, 24, 1>,
                              Shape<Complex<double>, 24, 2>, Shape<Real<float>, 32, 1>, Shape<Real<double>, 32, 2>,
                              Shape<Complex<float>, 32, 2>>;
TYPED_TEST_SUITE(WarpJacobi, Shapes);

// In an ordinary run the large teams get few kinds: 32 fibers are slow.
TYPED_TEST(WarpJacobi, HasTheBitsOfALane) {
  constexpr int K = TypeParam::K;
  constexpr int kLeast = K > 8 ? std::max(9, K / 2 + 1) : K / 2 + 1;  // sums of up to eight terms have another order
  for (int k = kLeast; k <= K; k += is_long_run() || K <= 8 ? 1 : K - kLeast) {
    this->expect_same_bits(generate(Kind::kNormal, this->kType, k, k, 1), "normal");
  }
  for (const Kind kind : kinds(this->kType)) {
    const bool usual = K <= 8 || kind == Kind::kLowRank || kind == Kind::kZero || kind == Kind::kSteepRows;
    if (is_long_run() || usual) this->expect_same_bits(generate(kind, this->kType, K - 1, K - 1, 5), name(kind));
  }
}

TYPED_TEST(WarpJacobi, DeadLinesHaveTheBitsOfALane) {
  const int k = TypeParam::K - 1;
  const Matrix a = generate(Kind::kNormal, this->kType, k, k, 3);
  this->expect_same_bits(with_dead_lines(a, {.rows = k / 2}), "dead rows");
  this->expect_same_bits(with_dead_lines(a, {.rows = k / 2, .cols = k - 3, .copies = true}), "repeated lines");
  this->expect_same_bits(with_dead_lines(a, {.rows = k - 2, .row_step = 2, .col_step = 1}), "graded lines");
}

TYPED_TEST(WarpJacobi, ExponentsAreTakenAndSweepsCounted) {
  const int k = TypeParam::K;
  const Matrix a = generate(Kind::kNormal, this->kType, k, k, 2);
  std::vector<typename TypeParam::Element::Scalar> given;
  for (int j = 0; j < k; ++j) given.push_back(static_cast<typename TypeParam::Element::Scalar>(5 * j % 40 - 20));
  this->expect_same_bits(a, "with exponents", given);
  for (const int sweeps : {1, 2, 3}) this->expect_same_bits(a, "few sweeps", {}, sweeps);
}

TYPED_TEST(WarpJacobi, WhatIsNotFiniteIsSaid) {
  const int k = TypeParam::K - 1;
  for (const Poison poison : {Poison::kInfinity, Poison::kQuietNan}) {
    Matrix a = generate(Kind::kNormal, this->kType, k, k, 1);
    a.at(k - 1, 1) = poison_value(poison);
    this->expect_same_bits(a, "not finite");
  }
}

// Without V: the sweeps of a definite matrix.
TYPED_TEST(WarpJacobi, DefiniteMatricesHaveTheBitsOfALane) {
  using E = typename TypeParam::Element;
  using T = typename E::Scalar;
  using L = typename E::Lane;
  constexpr int K = TypeParam::K, kSplit = TypeParam::kSplit, kRows = K / kSplit;
  for (const int k : {K, K - 1}) {
    Matrix a = generate(Kind::kNormal, this->kType, k, k, 4);
    for (int j = 0; j < k; ++j) a.at(j, j) = 4 * k;
    std::vector<E> x = elements_of<E>(a);
    std::vector<scalar::ColumnScale<L>> scales(static_cast<size_t>(k));
    const T tolerance = static_cast<T>(k) * FloatTraits<T>::kUnitRoundoff;
    scalar::ScalarMask reversed;
    const auto unfinished =
        scalar::orthogonalize_definite(scalar::MatrixView<E>{x.data(), k}, scalar::RuntimeSize{k},
                                       L(tolerance) * L(tolerance), kDefaultMaxSweeps, scales.data(), &reversed);
    EXPECT_FALSE(unfinished.m);
    FiberBlock warp(32, 3);
    warp.run([&](FiberBlock::Thread thread) {
      using Team = TeamOf<K, kSplit>;
      using Jacobi = scalar::WarpJacobi<Team, E, K, kSplit, false>;
      Jacobi jacobi(Team(thread), k, tolerance);
      const int place = 2 * jacobi.pair();
      const auto load = [&](typename Jacobi::Column& column, int j) {
        for (int i = 0; i < kRows; ++i) {
          const int row = i * kSplit + jacobi.part();
          column.x[i] = row < k && j < k ? element<E>(a.at(row, j)) : scalar::zero_element<E>();
        }
        column.scale = {L(T(0)), L(FloatTraits<T>::kScaleSquare)};
      };
      load(jacobi.p, place);
      load(jacobi.q, place + 1);
      EXPECT_FALSE(jacobi.sweeps(kDefaultMaxSweeps));
      const auto compare = [&](const typename Jacobi::Column& column, int j) {
        if (j >= k) return;
        EXPECT_EQ(column.scale.square.v, scales[static_cast<size_t>(j)].square.v);
        for (int i = 0; i < kRows && i * kSplit + jacobi.part() < k; ++i) {
          const E& wanted = x[static_cast<size_t>(j * k + i * kSplit + jacobi.part())];
          EXPECT_EQ(column.x[i].re.v, wanted.re.v);
          if constexpr (E::kComplex) {
            EXPECT_EQ(column.x[i].im.v, wanted.im.v);
          }
        }
      };
      compare(jacobi.p, place);
      compare(jacobi.q, place + 1);
    });
  }
}

}  // namespace
}  // namespace svdserve::numerics
