// AUTO takes the Cholesky factor of a tall or wide matrix of level columns where it is well-conditioned, else a QR. It
// keeps the contract either way.
#include <algorithm>
#include <cmath>
#include <complex>
#include <string>
#include <utility>
#include <vector>

#include "engine/backends/host/large/host_large_backend.h"
#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/back_end_engine.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

LargeResult run(const Matrix& a, Vectors vectors = Vectors::kThin, Method method = Method::kAuto,
                const LargeEngine& own = engine()) {
  LargeOptions options;
  options.method = method;
  options.vectors = vectors;
  return run_large(own, large_plan_of({a.rows, a.cols, a.dtype, Order::kRowMajor}, options), a);
}

bool had_qr(const LargeResult& r) {
  return std::any_of(r.outcome.phases.begin(), r.outcome.phases.end(),
                     [](const LargePhaseTime& phase) { return phase.name == "qr"; });
}

// The bounds of docs/accuracy.md.
void expect_contract(const Matrix& a, const LargeResult& r, bool vectors) {
  const auto reference = reference_singular_values(a);
  const double u = real_type(a.dtype).unit_roundoff, longest = static_cast<double>(std::max(a.rows, a.cols));
  ASSERT_EQ(r.outcome.status, LargeStatus::kOk) << r.outcome.detail;
  EXPECT_TRUE(std::is_sorted(r.values.rbegin(), r.values.rend()));
  for (size_t j = 0; j < r.values.size(); ++j) {
    const double off = static_cast<double>(std::abs(r.values[j] - reference[j]));
    EXPECT_LE(off, value_bound({a.rows, a.cols, a.dtype}) * u * static_cast<double>(reference[0])) << j;
  }
  if (!vectors) return;
  EXPECT_LE(column_orthogonality(r.left), 10 * static_cast<double>(a.rows) * u);
  EXPECT_LE(row_orthogonality(r.right), 10 * static_cast<double>(a.cols) * u);
  EXPECT_LE(residual_of(a, r), 10 * longest * u);
}

std::vector<double> spectrum(int64_t n, double condition) {
  std::vector<double> values;
  for (int64_t j = 0; j < n; ++j) {
    values.push_back(std::pow(condition, -static_cast<double>(j) / static_cast<double>(n - 1)));
  }
  return values;
}

Matrix adjoint(const Matrix& a) {
  Matrix b(a.dtype, a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i) {
    for (int64_t j = 0; j < a.cols; ++j) b.at(j, i) = std::conj(a.at(i, j));
  }
  return b;
}

Matrix scaled_by(Matrix a, double factor) {
  for (auto& x : a.elements) x *= factor;
  round_to_dtype(a);
  return a;
}

// Its eigenbases do not converge.
template <class E>
struct NoEigenbasis : host::HostLargeBackend<E> {
  using View = large::LargeView<E>;
  using host::HostLargeBackend<E>::HostLargeBackend;
  bool eigenbasis(View /*g*/, View /*v*/, large::Precision /*precision*/, const large::PartDone& /*done*/) {
    return false;
  }
};

class LevelTallTest : public ::testing::TestWithParam<DType> {};

// Just within the limits and just without, and far from them.
TEST_P(LevelTallTest, ConditionDecidesAboutTheQr) {
  const int64_t n = 60;
  Random random(4);
  for (const auto& [condition, qr] : {std::pair{1.0, false},
                                      {1.5, false},
                                      {7.9, false},
                                      {14.0, false},
                                      {16.5, true},
                                      {50.0, true},
                                      {1e3, true},
                                      {1e8, true}}) {
    for (const int64_t m : {2 * n, 7 * n}) {
      const Matrix a = with_singular_values(GetParam(), m, n, spectrum(n, condition), random);
      for (const Matrix& b : {a, adjoint(a)}) {
        SCOPED_TRACE(testing::Message() << b.rows << " x " << b.cols << " of condition " << condition);
        for (const Vectors vectors : {Vectors::kThin, Vectors::kNone}) {
          const LargeResult r = run(b, vectors);
          expect_contract(b, r, vectors == Vectors::kThin);
          EXPECT_EQ(had_qr(r), qr);
        }
      }
    }
  }
}

// All within a factor of 8: columns keep their scales, and rows may differ by more.
TEST_P(LevelTallTest, ColumnsOfSeveralScales) {
  const int64_t m = 200, n = 50;
  Matrix a = generate(Kind::kNormal, GetParam(), m, n, 3);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) a.at(i, j) *= std::ldexp(1.0, static_cast<int>(j % 3 - i % 2));
  }
  const LargeResult r = run(a);
  expect_contract(a, r, true);
  EXPECT_FALSE(had_qr(r));
}

// The first probe may pass these. The Cholesky factorization, or its inverse, does not.
TEST_P(LevelTallTest, OneDirectionThatIsMissingNeedsAQr) {
  const int64_t m = 160, n = 40;
  Random random(6);
  for (const double least : {0.0, 1e-12, 1e-6, 0.02}) {
    std::vector<double> values(static_cast<size_t>(n), 1.0);
    values.back() = least;
    const Matrix a = with_singular_values(GetParam(), m, n, values, random);
    SCOPED_TRACE(least);
    const LargeResult r = run(a);
    expect_contract(a, r, true);
    EXPECT_TRUE(had_qr(r));
    expect_contract(a, run(a, Vectors::kNone), false);
  }
  Matrix twins = generate(Kind::kNormal, GetParam(), m, n, 3);
  for (int64_t i = 0; i < m; ++i) twins.at(i, 7) = twins.at(i, 31);
  const LargeResult r = run(twins);
  expect_contract(twins, r, true);
  EXPECT_TRUE(had_qr(r));
}

TEST_P(LevelTallTest, TinyAndHugeEntries) {
  const double extreme = value_bytes(GetParam()) == 4 ? 1e30 : 1e300;
  const Matrix a = generate(Kind::kNormal, GetParam(), 150, 30, 8);
  for (const double factor : {extreme, 1 / extreme}) {
    const Matrix b = scaled_by(a, factor);
    for (const Matrix& c : {b, adjoint(b)}) {
      const LargeResult r = run(c);
      expect_contract(c, r, true);
      EXPECT_FALSE(had_qr(r));
    }
  }
}

// Equal magnitudes round alike, so that errors of sums add up.
TEST_P(LevelTallTest, EqualMagnitudes) {
  const int64_t m = 1400, n = 100;
  Random random(2);
  Matrix a(GetParam(), m, n);
  for (auto& x : a.elements) x = random.uniform(-1, 1) < 0 ? -0.1 : 0.1;
  round_to_dtype(a);
  const LargeResult r = run(a);
  expect_contract(a, r, true);
  EXPECT_FALSE(had_qr(r));
}

TEST_P(LevelTallTest, SweepsDoWithoutAnEigenbasis) {
  const Matrix a = generate(Kind::kNormal, GetParam(), 150, 40, 8);
  for (const Vectors vectors : {Vectors::kThin, Vectors::kNone}) {
    const LargeResult r = run(a, vectors, Method::kAuto, EngineOf<NoEigenbasis>());
    expect_contract(a, r, vectors == Vectors::kThin);
    EXPECT_FALSE(had_qr(r));
    EXPECT_GT(r.outcome.sweeps, 3);
  }
}

TEST_P(LevelTallTest, OthersKeepTheQr) {
  const auto expect_qr = [&](int64_t m, int64_t n, Vectors vectors, Method method) {
    SCOPED_TRACE(testing::Message() << m << " x " << n << " " << name(method));
    const Matrix a = generate(Kind::kNormal, GetParam(), m, n, 5);
    const LargeResult r = run(a, vectors, method);
    expect_contract(a, r, vectors != Vectors::kNone);
    EXPECT_TRUE(had_qr(r));
  };
  expect_qr(120, 40, Vectors::kThin, Method::kJacobi);
  expect_qr(120, 40, Vectors::kFull, Method::kAuto);
  expect_qr(79, 40, Vectors::kThin, Method::kAuto);   // less than twice as tall as wide
  expect_qr(640, 40, Vectors::kThin, Method::kAuto);  // read where it lies
  const Matrix graded = generate(Kind::kGradedColumns, GetParam(), 120, 40, 1);
  EXPECT_TRUE(had_qr(run(graded)));
}

INSTANTIATE_TEST_SUITE_P(Types, LevelTallTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
