// The algorithms by a shuffled team: see tests/support/numerics/shuffled_team.h.
#include "engine/core/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/algorithms/lanes/matrix_values.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/shuffled_team.h"

namespace svdserve {
namespace {

using numerics::Random;
using numerics::ShuffledTeam;
using scalar::Alone;
using scalar::MatrixView;
using scalar::RuntimeSize;

template <class T>
using Lane = scalar::ScalarLane<T>;

// --- what is compared --------------------------------------------------------------------------------------------

// A matrix with room for what the algorithms keep beside it.
template <class E>
struct Work {
  using T = typename E::Scalar;

  Work(int rows, int k) : rows(rows), k(k), elements(size(rows * k)), exponents(size(k)), q(size(k)), e(size(k)) {
    for (auto* v : {&exponents, &q, &e}) std::fill(v->begin(), v->end(), Lane<T>(0));
  }
  static size_t size(int n) { return static_cast<size_t>(n); }

  MatrixView<E> view() { return {elements.data(), rows}; }

  std::vector<unsigned char> bits() const {
    std::vector<unsigned char> all;
    const auto add = [&](const auto& v) {
      const auto* p = reinterpret_cast<const unsigned char*>(v.data());
      all.insert(all.end(), p, p + v.size() * sizeof(v[0]));
    };
    add(elements);
    add(exponents);
    add(q);
    add(e);
    all.push_back(flag);
    return all;
  }

  int rows, k;
  std::vector<E> elements;
  std::vector<Lane<T>> exponents, q, e;
  bool flag = false;
};

// Columns of different sizes, some equal, some zero: pivoting, scaling and clearing have something to do.
template <class E>
Work<E> random_work(int rows, int k, uint64_t seed) {
  using T = typename E::Scalar;
  Random random(seed);
  Work<E> w(rows, k);
  for (int j = 0; j < k; ++j) {
    const int of = j > 0 && random.integer(0, 7) == 0 ? static_cast<int>(random.integer(0, j - 1)) : j;
    const double size = random.integer(0, 15) == 0 ? 0 : std::pow(2.0, static_cast<double>(random.integer(-6, 6)));
    for (int i = 0; i < rows; ++i) {
      E& x = w.elements[Work<E>::size(j * rows + i)];
      if (of != j) {
        x = w.elements[Work<E>::size(of * rows + i)];
        continue;
      }
      x.re = Lane<T>(static_cast<T>(size * random.normal()));
      if constexpr (E::kComplex) x.im = Lane<T>(static_cast<T>(size * random.normal()));
    }
  }
  return w;
}

struct Bidiagonalize {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    scalar::bidiagonalize(team, w.view(), RuntimeSize{w.k}, w.q.data(), w.e.data());
  }
  static int rows(int k, Random&) { return k; }
};
struct TallQr {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    scalar::tall_qr(team, w.view(), w.rows, RuntimeSize{w.k});
  }
  static int rows(int, Random& random) { return static_cast<int>(random.integer(1, 64)); }
};
// The upper half over the lower one.
struct JoinQr {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    scalar::join_qr(team, w.view(), MatrixView<E>{w.elements.data() + w.k, w.rows}, RuntimeSize{w.k});
  }
  static int rows(int k, Random&) { return 2 * k; }
};
struct ScaleByMatrix {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    w.flag = scalar::scale_matrix<false>(team, w.view(), RuntimeSize{w.k}, w.q.data(), w.exponents.data()).m;
  }
  static int rows(int k, Random&) { return k; }
};
struct ScaleByColumn {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    w.flag = scalar::scale_matrix<true>(team, w.view(), RuntimeSize{w.k}, w.q.data(), w.exponents.data()).m;
  }
  static int rows(int k, Random&) { return k; }
};
// As matrix_values() calls it.
struct PivotedQr {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    ScaleByColumn::run<E>(team, w);
    scalar::pivoted_qr(team, w.view(), RuntimeSize{w.k}, w.exponents.data(), w.e.data());
  }
  static int rows(int k, Random&) { return k; }
};
struct Jacobi {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    using T = typename E::Scalar;
    ScaleByColumn::run<E>(team, w);
    const Lane<T> tolerance(T(w.k) * FloatTraits<T>::kUnitRoundoff);
    w.flag =
        scalar::one_sided_jacobi(team, w.view(), RuntimeSize{w.k}, w.exponents.data(), tolerance, 30, w.e.data()).m;
  }
  static int rows(int k, Random&) { return k; }
};

// --- planted faults: phases fused by mistake, right in ascending order ---------------------------------------------

// bidiagonalize's first half step without its once(): who computes the first column writes what the others read.
struct MissingOnce {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    const MatrixView<E> a = w.view();
    const int k = w.k;
    const auto x = [&](int i) { return a(i, 0); };
    const auto h = scalar::make_reflector<E>(k, x);
    team.for_each(1, k, [&](int c) {
      if (c == 1) a(0, 0) = h.u0;
      const E r = scalar::scaled(scalar::inner_product<E>(k, x, [&](int i) { return a(i, c); }), h.g);
      for (int i = 0; i < k; ++i) a(i, c) = scalar::subtract_product(a(i, c), a(i, 0), r);
    });
  }
  static int rows(int k, Random&) { return k; }
};
// All p-steps of a sweep in one phase.
struct FusedPSteps {
  template <class E, class Team>
  static void run(const Team& team, Work<E>& w) {
    using T = typename E::Scalar;
    const int pairs = round_robin_pairs(w.k);
    ScaleByColumn::run<E>(team, w);
    team.for_each(0, round_robin_steps(w.k) * pairs, [&](int x) {
      const PivotPair pair = round_robin_pair(w.k, x / pairs, x % pairs);
      if (pair.q >= w.k) return;
      scalar::rotate_pair(w.view(), RuntimeSize{w.k}, pair, w.exponents.data(), Lane<T>(FloatTraits<T>::kUnitRoundoff),
                          Lane<T>::mask(true));
    });
  }
  static int rows(int k, Random&) { return k; }
};

// --- the comparison ------------------------------------------------------------------------------------------------

constexpr int kLargestSize = 32;

// How many of the shuffled runs have other bits than the one in order.
template <class Algorithm, class E>
int differences(int k, int seeds) {
  int differ = 0;
  for (int seed = 0; seed < seeds; ++seed) {
    const auto number = static_cast<uint64_t>(k * 1000 + seed);
    Random random(number);
    const Work<E> given = random_work<E>(Algorithm::rows(k, random), k, number);
    Work<E> in_order = given;
    Algorithm::template run<E>(Alone(), in_order);
    const auto wanted = in_order.bits();
    // A matrix met in several orders costs less than several matrices.
    for (uint64_t shuffle = 0; shuffle < 2; ++shuffle) {
      Work<E> shuffled = given;
      Algorithm::template run<E>(ShuffledTeam(number * 2 + shuffle), shuffled);
      differ += shuffled.bits() != wanted;
    }
  }
  return differ;
}

template <class E>
class Team : public testing::Test {
 public:
  static int seeds(int k) { return k <= 8 ? 100 : 8; }

  template <class Algorithm>
  static void expect_same_bits() {
    for (int k = 1; k <= kLargestSize; ++k) EXPECT_EQ((differences<Algorithm, E>(k, seeds(k))), 0) << "k = " << k;
  }
  template <class Fault>
  static void expect_found() {
    // Some orders are right by chance: of three calls, every third begins with the right one.
    for (int k = 4; k <= 12; ++k) EXPECT_GT((differences<Fault, E>(k, 50)), 30) << "k = " << k;
  }
};

using Elements = testing::Types<scalar::SVD_TEST_ELEMENT>;  // a unit for each: CMakeLists.txt
struct ElementNames {
  template <class E>
  static std::string GetName(int) {
    return std::string(E::kComplex ? "c" : "f") + std::to_string(8 * sizeof(E));
  }
};
TYPED_TEST_SUITE(Team, Elements, ElementNames);

TYPED_TEST(Team, Bidiagonalize) { this->template expect_same_bits<Bidiagonalize>(); }
TYPED_TEST(Team, TallQr) { this->template expect_same_bits<TallQr>(); }
TYPED_TEST(Team, JoinQr) { this->template expect_same_bits<JoinQr>(); }
TYPED_TEST(Team, PivotedQr) { this->template expect_same_bits<PivotedQr>(); }
TYPED_TEST(Team, ScaleByMatrix) { this->template expect_same_bits<ScaleByMatrix>(); }
TYPED_TEST(Team, ScaleByColumn) { this->template expect_same_bits<ScaleByColumn>(); }
TYPED_TEST(Team, Jacobi) { this->template expect_same_bits<Jacobi>(); }

// The detector itself.
TYPED_TEST(Team, AMissingOnceIsFound) { this->template expect_found<MissingOnce>(); }
TYPED_TEST(Team, FusedPStepsAreFound) { this->template expect_found<FusedPSteps>(); }

}  // namespace
}  // namespace svdserve
