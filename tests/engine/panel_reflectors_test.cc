// Reflectors of a panel from its Gram matrices, as a GPU makes them, by a block of fibers. They go on in order, and in a
// random one, which must not change a bit. Checks are in long double: P = H [R; 0] column by column, and H is unitary.
#include "engine/algorithms/blocks/panel_reflectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "tests/support/numerics/fiber_block.h"
#include "tests/support/numerics/random.h"

namespace svdserve {
namespace {

using numerics::FiberBlock;
using numerics::Random;

using Exact = std::complex<long double>;
constexpr double kUnit = 0x1p-53;

template <class E>
constexpr int kWidth = kIsComplex<E> ? 32 : 64;

Exact exact(double x) { return x; }
Exact exact(Complex x) { return {x.re, x.im}; }

template <class E>
E random_element(Random& random) {
  if constexpr (kIsComplex<E>) {
    return {random.normal(), random.normal()};
  } else {
    return random.normal();
  }
}

// A matrix unit of a warp of fibers.
struct FiberUnit {
  template <class E>
  static void multiply(const FiberBlock::Thread& threads, E (&d)[2], E a, E b) {
    const int g = threads.index() % 32 / 4, t = threads.index() % 4;
    for (int k = 0; k < 4; ++k) {
      const E of_a = of_lane(threads, a, 4 * g + k);
      for (int e = 0; e < 2; ++e) d[e] = plus_product(d[e], of_a, of_lane(threads, b, 4 * (2 * t + e) + k));
    }
  }
};

// A panel of `cols` columns, bordered by zeros to N, and what is made of it.
template <class E>
struct Panel {
  static constexpr int N = kWidth<E>;

  Panel(int m, int n) : rows(m), cols(n), p(static_cast<size_t>(m * N), from_real<E>(0)) {}
  E& at(int i, int j) { return p[static_cast<size_t>(j * rows + i)]; }
  E entry(int i, int j) const { return p[static_cast<size_t>(j * rows + i)]; }

  void randomize(uint64_t seed) {
    Random random(seed);
    for (int j = 0; j < cols; ++j) {
      for (int i = 0; i < rows; ++i) at(i, j) = random_element<E>(random);
    }
  }
  // As a back end has it: sums in double.
  std::vector<E> gram(const std::vector<E>& of) const {
    std::vector<E> g(N * N);
    for (int j = 0; j < N; ++j) {
      for (int i = 0; i < N; ++i) {
        E sum = from_real<E>(i == j && j >= cols ? 1 : 0);
        for (int r = 0; r < rows; ++r) {
          sum = plus_product(sum, conjugate(of[static_cast<size_t>(i * rows + r)]),
                             of[static_cast<size_t>(j * rows + r)]);
        }
        g[static_cast<size_t>(j * N + i)] = sum;
      }
    }
    return g;
  }

  // seed 0: the threads in order.
  bool factor(uint64_t seed = 0) {
    FiberBlock block(kPanelThreads<N>, seed);
    std::vector<double> memory(static_cast<size_t>(PanelMemory<E, N>::bytes()) / sizeof(double), std::nan(""));
    const PanelMemory<E, N> shared(memory.data());
    const std::vector<E> g = gram(p);
    std::vector<E> solver(N * N);
    r1 = std::vector<E>(N * N);
    bool sound = true;
    block.run([&](FiberBlock::Thread thread) {
      const bool own =
          factor_gram<FiberUnit, N>(thread, g.data(), kMostPanelCondition, shared, shared.square[1], shared.square[2]);
      if (!own) sound = false;
      if (!own) return;
      solver_of<N>(thread, shared.square[1], shared.square[2], solver.data());
      each_entry<N>(thread, [&](int i, int k, int, int) { r1[i * N + k] = shared.square[1][i * (N + 4) + k]; });
    });
    if (!sound) return false;
    v = p;
    by_rows([&](E(&x)[N], int) { solve_row(x, solver.data()); });
    if (!reflect(v, seed)) return false;
    block.run([&](FiberBlock::Thread thread) { triangle_of_panel<FiberUnit, N>(thread, r1.data(), r.data(), N); });
    return true;
  }
  // V, T and S R_2 from Q_1.
  bool reflect(const std::vector<E>& q, uint64_t seed) {
    FiberBlock block(kPanelThreads<N>, seed);
    std::vector<double> memory(static_cast<size_t>(PanelMemory<E, N>::bytes()) / sizeof(double), std::nan(""));
    const PanelMemory<E, N> shared(memory.data());
    const std::vector<E> g = gram(q);
    std::vector<E> m(N * N), top(N * N);
    t = r = std::vector<E>(N * N);
    v = q;
    bool sound = true;
    block.run([&](FiberBlock::Thread thread) {
      const auto read = [&](int i, int k) { return i < rows ? q[static_cast<size_t>(k * rows + i)] : from_real<E>(0); };
      const auto store = [&](int i, int k, E x) { top[i * N + k] = x; };
      if (!panel_reflectors<FiberUnit, N>(thread, g.data(), shared, read, store, t.data(), r.data(), N, m.data())) {
        sound = false;
      }
    });
    by_rows([&](E(&x)[N], int i) {
      if (i >= N) return multiply_row(x, m.data());
      for (int j = 0; j < N; ++j) x[j] = i > j ? top[i * N + j] : from_real<E>(i == j ? 1 : 0);
    });
    return sound;
  }
  template <class F>
  void by_rows(F f) {
    for (int i = 0; i < rows; ++i) {
      E x[N];
      for (int j = 0; j < N; ++j) x[j] = v[static_cast<size_t>(j * rows + i)];
      f(x, i);
      for (int j = 0; j < N; ++j) v[static_cast<size_t>(j * rows + i)] = x[j];
    }
  }

  Exact reflector(int i, int j) const { return exact(v[static_cast<size_t>(j * rows + i)]); }
  Exact triangle(int i, int j) const { return exact(t[static_cast<size_t>(j * N + i)]); }
  // The largest |(P - H [R; 0])(:, j)| / |P(:, j)|, and |T^-1 + T^-H - V^H V| as T + T^H - T V^H V T^H.
  double residual() const {
    long double worst = 0;
    for (int j = 0; j < cols; ++j) {
      // y = T V_1^H R(:, j)
      std::vector<Exact> y(N), w(N);
      for (int k = 0; k < cols; ++k) {
        for (int i = k; i <= j; ++i) w[k] += std::conj(reflector(i, k)) * exact(r[static_cast<size_t>(j * N + i)]);
      }
      for (int k = 0; k < cols; ++k) {
        for (int l = k; l < cols; ++l) y[k] += triangle(k, l) * w[l];
      }
      long double error = 0, norm = 0;
      for (int i = 0; i < rows; ++i) {
        Exact x = exact(entry(i, j));
        norm += std::norm(x);
        if (i <= j) x -= exact(r[static_cast<size_t>(j * N + i)]);
        for (int k = 0; k < cols; ++k) x += reflector(i, k) * y[k];
        error += std::norm(x);
      }
      worst = std::max(worst, std::sqrt(error / norm));
    }
    return static_cast<double>(worst);
  }
  double departure() const {
    std::vector<Exact> g(N * N), tg(N * N);
    for (int i = 0; i < cols; ++i) {
      for (int j = 0; j < cols; ++j) {
        for (int k = std::max(i, j); k < rows; ++k) g[i * N + j] += std::conj(reflector(k, i)) * reflector(k, j);
      }
    }
    for (int i = 0; i < cols; ++i) {
      for (int j = 0; j < cols; ++j) {
        for (int k = i; k < cols; ++k) tg[i * N + j] += triangle(i, k) * g[k * N + j];
      }
    }
    long double sum = 0;
    for (int i = 0; i < cols; ++i) {
      for (int j = 0; j < cols; ++j) {
        Exact x = triangle(i, j) + std::conj(triangle(j, i));
        for (int k = j; k < cols; ++k) x -= tg[i * N + k] * std::conj(triangle(j, k));
        sum += std::norm(x);
      }
    }
    return static_cast<double>(std::sqrt(sum));
  }

  int rows, cols;
  std::vector<E> p;
  std::vector<E> v, t, r, r1;  // V as the panel has it, T and R by columns, R_1 by rows
};

template <class E>
class PanelReflectors : public testing::Test {};
using Elements = testing::Types<double, Complex>;
TYPED_TEST_SUITE(PanelReflectors, Elements);

// The bounds grow with the columns alone.
template <class E>
void expect_reflectors(Panel<E>& panel, double residual, double departure) {
  ASSERT_TRUE(panel.factor());
  EXPECT_LE(panel.residual(), residual * panel.cols * kUnit);
  EXPECT_LE(panel.departure(), departure * panel.cols * kUnit);
  for (int j = 0; j < panel.cols; ++j) {
    EXPECT_EQ(real_part(panel.r[static_cast<size_t>(j * Panel<E>::N + j)]) != 0, true);
  }
}

TYPED_TEST(PanelReflectors, AreThoseOfRandomColumns) {
  constexpr int N = kWidth<TypeParam>;
  for (const auto& [rows, cols] : {std::pair{N, N},
                                   {N + 1, N},
                                   {3 * N + 5, N},
                                   {1000, N},
                                   {N, 1},
                                   {1, 1},
                                   {7, 7},
                                   {40, N / 2 - 1},
                                   {300, N - 1}}) {
    if (rows < cols) continue;
    Panel<TypeParam> panel(rows, cols);
    panel.randomize(static_cast<uint64_t>(rows + cols));
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    expect_reflectors(panel, 4, 4);
  }
}

// A reflector of one row is as unitary as its phase is.
TEST(NegativePhase, HasModulusOne) {
  Random random(14);
  for (int i = 0; i < 100000; ++i) {
    const Complex x = times_real(random_element<Complex>(random), std::pow(10, i % 200 - 100));
    const Exact s = exact(negative_phase(x)), wanted = -exact(x) / std::abs(exact(x));
    ASSERT_LE(std::abs(std::norm(s) - 1), 2.5L * kUnit) << x.re << " " << x.im;
    ASSERT_LE(std::abs(s - wanted), 3 * kUnit) << x.re << " " << x.im;
  }
  for (const Complex x : {Complex{0, 0}, Complex{1, 0}}) EXPECT_EQ(exact(negative_phase(x)), Exact(-1));
  EXPECT_EQ(exact(negative_phase(Complex{0, 2})), Exact(0, -1));
}

// Norms from 1e-100 to 1e100: G is scaled before anything else.
TYPED_TEST(PanelReflectors, ColumnsMayHaveAnyNorms) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> panel(300, N);
  panel.randomize(3);
  for (int j = 0; j < N; ++j) {
    for (int i = 0; i < panel.rows; ++i) panel.at(i, j) = times_real(panel.at(i, j), std::pow(10, 100 - 200.0 * j / N));
  }
  expect_reflectors(panel, 4, 4);
}

// The second factorization by itself: columns of norm one that are far from orthonormal, where no series converges.
TYPED_TEST(PanelReflectors, ColumnsMayBeFarFromOrthonormal) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> panel(20 * N, N);
  panel.randomize(11);
  for (TypeParam& x : panel.p) x = times_real(x, 1 / std::sqrt(panel.rows * (kIsComplex<TypeParam> ? 2.0 : 1.0)));
  ASSERT_TRUE(panel.reflect(panel.p, 0));
  EXPECT_LE(panel.residual(), 4 * N * kUnit);
  EXPECT_LE(panel.departure(), 4 * N * kUnit);
}

// R^H R - G and R R^-1 - I entry by entry, for all that the series takes on.
TYPED_TEST(PanelReflectors, FactorsOfMatricesNearTheIdentity) {
  constexpr int N = kWidth<TypeParam>, kLd = N + 4;
  for (const double size : {0.0, 1e-30, 1e-15, 1e-10, 1e-8, 1e-7, 1.5e-6, 3e-6, 1e-3, std::nan("")}) {
    SCOPED_TRACE(size);
    Random random(12);
    std::vector<TypeParam> g(N * N);
    for (int j = 0; j < N; ++j) {
      for (int i = j; i < N; ++i) {
        const TypeParam x = times_real(random_element<TypeParam>(random), size / N);
        g[static_cast<size_t>(j * N + i)] = i > j ? x : from_real<TypeParam>(1 + real_part(x));
        g[static_cast<size_t>(i * N + j)] = conjugate(g[static_cast<size_t>(j * N + i)]);
      }
    }
    std::vector<TypeParam> r[2], inverse[2];
    for (uint64_t seed : {0, 13}) {
      FiberBlock block(kPanelThreads<N>, seed);
      std::vector<double> memory(static_cast<size_t>(PanelMemory<TypeParam, N>::bytes()) / sizeof(double),
                                 std::nan(""));
      const PanelMemory<TypeParam, N> shared(memory.data());
      block.run([&](FiberBlock::Thread thread) {
        const bool sound =
            factor_near_identity<FiberUnit, N>(thread, g.data(), shared, shared.square[1], shared.square[2]);
        EXPECT_EQ(sound, size < 2e-6);
      });
      r[seed != 0].assign(shared.square[1], shared.square[2]);
      inverse[seed != 0].assign(shared.square[2], shared.square[3]);
    }
    if (!(size < 2e-6)) continue;
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j < N; ++j) {
        Exact of_r = 0, of_inverse = 0;
        for (int k = 0; k < N; ++k) {
          of_r += std::conj(exact(r[0][k * kLd + i])) * exact(r[0][k * kLd + j]);
          of_inverse += exact(r[0][i * kLd + k]) * exact(inverse[0][k * kLd + j]);
        }
        EXPECT_LE(std::abs(of_r - exact(g[static_cast<size_t>(j * N + i)])), 3 * kUnit);
        EXPECT_LE(std::abs(of_inverse - Exact(i == j ? 1 : 0)), 3 * kUnit);
        EXPECT_EQ(std::abs(i > j ? exact(r[0][i * kLd + j]) + exact(inverse[0][i * kLd + j]) : Exact(0)), 0);
        EXPECT_EQ(std::memcmp(&r[0][i * kLd + j], &r[1][i * kLd + j], sizeof(TypeParam)), 0);
        EXPECT_EQ(std::memcmp(&inverse[0][i * kLd + j], &inverse[1][i * kLd + j], sizeof(TypeParam)), 0);
      }
    }
  }
}

// Nearly parallel columns, just within the bound of the condition.
TYPED_TEST(PanelReflectors, IllConditionedColumnsKeepTheBounds) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> panel(400, N);
  panel.randomize(4);
  for (int i = 0; i < panel.rows; ++i) {
    panel.at(i, 1) = plus_product(panel.at(i, 0), panel.at(i, 1), from_real<TypeParam>(3e-3));
  }
  expect_reflectors(panel, 4, 4);
}

// Rows over eight decades, the largest first: a row of P is off by itself times the condition.
TYPED_TEST(PanelReflectors, SmallRowsKeepTheirDigits) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> panel(2 * N, N);
  panel.randomize(5);
  for (int i = N; i < panel.rows; ++i) {
    for (int j = 0; j < N; ++j) panel.at(i, j) = times_real(panel.at(i, j), 1e-8);
  }
  ASSERT_TRUE(panel.factor());
  Panel<TypeParam> whole(2 * N, N);
  whole.randomize(5);
  ASSERT_TRUE(whole.factor());
  // V's small rows are those of P times M: they are as small, and no larger.
  for (int i = N; i < panel.rows; ++i) {
    long double sum = 0;
    for (int j = 0; j < N; ++j) sum += std::norm(panel.reflector(i, j));
    EXPECT_LT(std::sqrt(sum), 1e-4L);
  }
  EXPECT_LE(panel.residual(), 4 * N * kUnit);
}

TYPED_TEST(PanelReflectors, DependentColumnsAreNotTakenOn) {
  constexpr int N = kWidth<TypeParam>;
  const TypeParam two = from_real<TypeParam>(2);
  for (int kind = 0; kind < 5; ++kind) {
    Panel<TypeParam> panel(200, N);
    panel.randomize(6);
    for (int i = 0; i < panel.rows; ++i) {
      TypeParam& entry = panel.at(i, 5);
      if (kind == 0) entry = from_real<TypeParam>(0);
      if (kind == 1) entry = times(two, panel.at(i, 2));
      if (kind == 2) entry = plus_product(panel.at(i, 2), entry, from_real<TypeParam>(1e-6));
      if (kind == 3 && i == 0) entry = from_real<TypeParam>(std::numeric_limits<double>::quiet_NaN());
      if (kind == 4 && i == 0) entry = from_real<TypeParam>(std::numeric_limits<double>::infinity());
    }
    EXPECT_FALSE(panel.factor()) << kind;
  }
}

TYPED_TEST(PanelReflectors, TheOrderOfCallsChangesNothing) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> plain(150, N - 3);
  plain.randomize(7);
  Panel<TypeParam> shuffled = plain;
  ASSERT_TRUE(plain.factor());
  ASSERT_TRUE(shuffled.factor(8));
  const auto same = [](const std::vector<TypeParam>& a, const std::vector<TypeParam>& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof(TypeParam)) == 0;
  };
  EXPECT_TRUE(same(plain.v, shuffled.v));
  EXPECT_TRUE(same(plain.t, shuffled.t));
  EXPECT_TRUE(same(plain.r, shuffled.r));
}

// T from V and tau, as of reflectors that a library made: tau_j = T(j, j).
TYPED_TEST(PanelReflectors, TheTriangleOfGivenReflectors) {
  constexpr int N = kWidth<TypeParam>;
  Panel<TypeParam> panel(120, N);
  panel.randomize(9);
  ASSERT_TRUE(panel.factor());
  std::vector<TypeParam> tau(N), column(N), shuffled(N * N);
  for (int j = 0; j < N; ++j) tau[j] = panel.t[static_cast<size_t>(j * N + j)];
  const std::vector<TypeParam> g = panel.gram(panel.v), made = panel.t;
  for (const auto& [seed, to] : {std::pair{0, &panel.t}, {10, &shuffled}}) {
    FiberBlock block(kPanelThreads<N>, static_cast<uint64_t>(seed));
    block.run([&](FiberBlock::Thread thread) {
      triangle_of_reflectors<N>(thread, g.data(), tau.data(), to->data(), column.data());
    });
  }
  EXPECT_EQ(std::memcmp(panel.t.data(), shuffled.data(), shuffled.size() * sizeof(TypeParam)), 0);
  EXPECT_LE(panel.departure(), 4 * N * kUnit);
  for (int e = 0; e < N * N; ++e) EXPECT_LE(std::abs(exact(made[e]) - exact(panel.t[e])), 100 * N * kUnit);
}

}  // namespace
}  // namespace svdserve
