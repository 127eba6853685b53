// The hyperbolic SVD: G = U S V^H, U^H U = I, V^H J V = J in the user's order of J, values as the eigenvalues of
// G J G^H say.
#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {
namespace {

using Wide = std::complex<long double>;
using Signs = std::vector<int8_t>;

const LargeEngine& engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

Signs random_signs(int64_t n, Random& random) {
  Signs signs;
  for (int64_t j = 0; j < n; ++j) signs.push_back(random.coin() ? 1 : -1);
  return signs;
}

// Eigenvalues of a Hermitian matrix (row-major, n x n) by the classical cyclic Jacobi method, in long double;
// ascending.
std::vector<long double> eigenvalues(std::vector<Wide> h, size_t n) {
  const auto at = [&](size_t i, size_t j) -> Wide& { return h[i * n + j]; };
  for (int sweep = 0; sweep < 40; ++sweep) {
    bool rotated = false;
    for (size_t p = 0; p + 1 < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        const long double size = std::abs(at(p, q));
        if (size <= 1e-20L * std::sqrt(std::abs(at(p, p).real() * at(q, q).real())) || size == 0) continue;
        rotated = true;
        const Wide phase = at(p, q) / size;
        const long double zeta = (at(q, q).real() - at(p, p).real()) / (2 * size);
        const long double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(zeta * zeta + 1));
        const long double c = 1 / std::sqrt(t * t + 1), s = c * t;
        for (size_t i = 0; i < n; ++i) {  // columns
          const Wide x = at(i, p), y = at(i, q);
          at(i, p) = c * x - s * std::conj(phase) * y;
          at(i, q) = s * phase * x + c * y;
        }
        for (size_t i = 0; i < n; ++i) {  // rows
          const Wide x = at(p, i), y = at(q, i);
          at(p, i) = c * x - s * phase * y;
          at(q, i) = s * std::conj(phase) * x + c * y;
        }
        at(p, q) = at(q, p) = 0;
      }
    }
    if (!rotated) break;
  }
  std::vector<long double> values;
  for (size_t i = 0; i < n; ++i) values.push_back(at(i, i).real());
  std::sort(values.begin(), values.end());
  return values;
}

// The eigenvalues of G J G^H.
std::vector<long double> reference_eigenvalues(const Matrix& g, const Signs& j) {
  const auto m = static_cast<size_t>(g.rows);
  std::vector<Wide> h(m * m);
  for (size_t a = 0; a < m; ++a) {
    for (size_t b = 0; b < m; ++b) {
      Wide sum = 0;
      for (int64_t l = 0; l < g.cols; ++l) {
        sum += static_cast<long double>(j[static_cast<size_t>(l)]) * Wide(g.at(static_cast<int64_t>(a), l)) *
               std::conj(Wide(g.at(static_cast<int64_t>(b), l)));
      }
      h[a * m + b] = sum;
    }
  }
  return eigenvalues(std::move(h), m);
}

class HyperbolicTest : public ::testing::TestWithParam<DType> {
 protected:
  LargeResult decompose(const Matrix& g, const Signs& j, LargeOptions options = {}) {
    options.kind = LargeKind::kHyperbolicSvd;
    const Order order = ++calls_ % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
    return run_large(engine(), large_plan_of({g.rows, g.cols, g.dtype, order}, options), g, j);
  }

  // Order among equal signs, U^H U = I, V^H J V = J, G = U S V^H; the last two relative to |V|^2, which hyperbolic
  // rotations may make large.
  void expect_decomposition(const Matrix& g, const Signs& j, const LargeResult& result) {
    ASSERT_EQ(result.outcome.status, LargeStatus::kOk) << result.outcome.detail;
    const double u = real_type(g.dtype).unit_roundoff;
    double last[2] = {HUGE_VAL, HUGE_VAL};
    for (size_t i = 0; i < j.size(); ++i) {
      double& before = last[j[i] > 0];
      ASSERT_LE(result.values[i], before);
      ASSERT_GT(result.values[i], 0);
      before = result.values[i];
    }
    EXPECT_LE(column_orthogonality(result.left), 10 * static_cast<double>(g.rows) * u);
    EXPECT_LE(signature_error(result.right, j), 10 * static_cast<double>(g.cols) * u);
    double largest = 0;  // |V|_F / sqrt(n)
    for (const auto& z : result.right.elements) largest += std::norm(z);
    largest = std::sqrt(largest / static_cast<double>(g.cols));
    EXPECT_LE(residual_of(g, result), 10 * static_cast<double>(g.rows) * u * largest);
  }

  // s_i^2 J_i against the eigenvalues, of which G J G^H has m - n zeros more; absolute errors in units of u |G|^2.
  void expect_values(const Matrix& g, const Signs& j, const LargeResult& result) {
    std::vector<long double> ours(static_cast<size_t>(g.rows - g.cols), 0);
    for (size_t i = 0; i < j.size(); ++i) {
      ours.push_back(j[i] * static_cast<long double>(result.values[i]) * result.values[i]);
    }
    std::sort(ours.begin(), ours.end());
    const auto expected = reference_eigenvalues(g, j);
    long double scale = 0;
    for (const auto& z : g.elements) scale += std::norm(z);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(std::abs(ours[i] - expected[i]),
                (16 + 2 * static_cast<long double>(g.cols)) * real_type(g.dtype).unit_roundoff * scale)
          << i << ": " << static_cast<double>(ours[i]) << " for " << static_cast<double>(expected[i]);
    }
  }

  int calls_ = 0;
};

TEST_P(HyperbolicTest, RandomFactorsWithAnyOrderOfSigns) {
  Random random(1);
  const int64_t large = scaled(40, 20);
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {2, 2}, {5, 5}, {9, 4}, {70, 4}, {large, large}, {large + 13, large}}) {
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << ", matrix " << i);
      const Matrix g = generate(Kind::kNormal, GetParam(), rows, cols, static_cast<uint64_t>(i));
      const Signs j = random_signs(cols, random);
      const LargeResult result = decompose(g, j);
      expect_decomposition(g, j, result);
      expect_values(g, j, result);
    }
  }
}

TEST_P(HyperbolicTest, ManyBlocksAndBothVariants) {
  Random random(2);
  const int64_t n = scaled(150, 70);
  const Matrix g = generate(Kind::kNormal, GetParam(), n + 10, n, 4);
  const Signs j = random_signs(n, random);
  for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
    for (const PivotStrategy strategy : {PivotStrategy::kModifiedModulus, PivotStrategy::kRowCyclic}) {
      LargeOptions options;
      options.variant = variant;
      options.strategy = strategy;
      const LargeResult result = decompose(g, j, options);
      expect_decomposition(g, j, result);
      EXPECT_FALSE(result.outcome.warm_started);
      EXPECT_LE(result.outcome.sweeps, 20);
    }
  }
}

// With one sign alone it is the ordinary SVD.
TEST_P(HyperbolicTest, OneSignIsTheOrdinaryDecomposition) {
  const Matrix g = generate(Kind::kNormal, GetParam(), 40, 30, 3);
  const LargeResult ordinary = run_large(engine(), large_plan_of({40, 30, GetParam(), Order::kRowMajor}, {}), g);
  for (const int8_t sign : {int8_t{1}, int8_t{-1}}) {
    const Signs j(30, sign);
    const LargeResult result = decompose(g, j);
    expect_decomposition(g, j, result);
    EXPECT_LE(row_orthogonality(result.right), 10 * 30 * real_type(GetParam()).unit_roundoff);
    for (size_t i = 0; i < 30; ++i) {
      EXPECT_NEAR(result.values[i], ordinary.values[i], 76 * real_type(GetParam()).unit_roundoff * ordinary.values[0]);
    }
  }
}

TEST_P(HyperbolicTest, GradedColumns) {
  Random random(3);
  const Matrix g = generate(Kind::kColumnGraded, GetParam(), 40, 30, 3);
  const Signs j = random_signs(30, random);
  LargeResult result = decompose(g, j);
  ASSERT_EQ(result.outcome.status, LargeStatus::kOk);
  EXPECT_LE(column_orthogonality(result.left), 10 * 40 * real_type(GetParam()).unit_roundoff);
  EXPECT_LE(signature_error(result.right, j), 10 * 30 * real_type(GetParam()).unit_roundoff);
  EXPECT_LE(residual_of(g, result), 10 * 40 * real_type(GetParam()).unit_roundoff);
}

TEST_P(HyperbolicTest, CertificateAndValuesAlone) {
  Random random(4);
  const Matrix g = generate(Kind::kNormal, GetParam(), 50, 40, 3);
  const Signs j = random_signs(40, random);
  const LargeResult thin = decompose(g, j, {.certificate = true});
  expect_decomposition(g, j, thin);
  const double u = real_type(GetParam()).unit_roundoff;
  EXPECT_NEAR(thin.outcome.residual, residual_of(g, thin), 100 * 0x1p-53);
  EXPECT_NEAR(thin.outcome.left_orthogonality, column_orthogonality(thin.left), 100 * 0x1p-53);
  double square = 0;
  for (const auto& z : thin.right.elements) square += std::norm(z);
  EXPECT_NEAR(thin.outcome.right_orthogonality, signature_error(thin.right, j) * square, 100 * 0x1p-53 * square);
  const LargeResult none = decompose(g, j, {.vectors = Vectors::kNone});
  for (size_t i = 0; i < 40; ++i) EXPECT_NEAR(none.values[i], thin.values[i], 100 * u * thin.values[i]);
}

TEST_P(HyperbolicTest, RankDeficientOnesAreRefused) {
  Random random(5);
  const Signs j = random_signs(30, random);
  for (const Kind kind : {Kind::kZero, Kind::kDuplicates, Kind::kLowRank, Kind::kOuterProduct}) {
    const Matrix g = generate(kind, GetParam(), 40, 30, 3);
    EXPECT_EQ(decompose(g, j).outcome.status, LargeStatus::kRankDeficient) << name(kind);
  }
}

INSTANTIATE_TEST_SUITE_P(, HyperbolicTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return name(info.param); });

}  // namespace
}  // namespace svdserve::numerics
