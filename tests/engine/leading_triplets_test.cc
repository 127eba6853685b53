// The leading triplets of a large matrix keep the promises of all triplets, for every dtype, shape and kind of spectrum.
// A subspace has them, or the full decomposition.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/random.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

using Wide = std::complex<long double>;

const LargeEngine& leading_engine() {
  static const auto instance = make_host_large_engine(2);
  return *instance;
}

// U diag(values) V^H in long double, rounded once: U and V are products of two Householder reflectors of random vectors.
// Its values are off by at most u |A|_F.
Matrix with_values(DType dtype, int64_t rows, int64_t cols, const std::function<double(int64_t)>& value) {
  Random random(7);
  std::vector<Wide> a(static_cast<size_t>(rows * cols));
  for (int64_t j = 0; j < std::min(rows, cols); ++j) a[static_cast<size_t>(j + j * rows)] = value(j);
  const auto reflect = [&](int64_t size, int64_t lines, int64_t along, int64_t across) {
    std::vector<Wide> v(static_cast<size_t>(size));
    long double square = 0;
    for (Wide& x : v) {
      x = {random.normal(), is_complex(dtype) ? random.normal() : 0};
      square += std::norm(x);
    }
    for (int64_t line = 0; line < lines; ++line) {
      Wide sum = 0;
      Wide* const first = a.data() + line * across;
      for (int64_t i = 0; i < size; ++i) sum += std::conj(v[static_cast<size_t>(i)]) * first[i * along];
      sum *= 2 / square;
      for (int64_t i = 0; i < size; ++i) first[i * along] -= sum * v[static_cast<size_t>(i)];
    }
  };
  for (int pass = 0; pass < 2; ++pass) {
    reflect(rows, cols, 1, rows);
    reflect(cols, rows, rows, 1);
  }
  Matrix result(dtype, rows, cols);
  for (size_t i = 0; i < a.size(); ++i) {
    result.elements[i] = {static_cast<double>(a[i].real()), static_cast<double>(a[i].imag())};
  }
  round_to_dtype(result);
  return result;
}

// |I - U^H U|_F, |I - V^H V|_F, and the larger one of |A V - U S|_F and |A^H U - V S|_F over |A|_F.
void expect_triplets(const Problem& p, const Matrix& a, const LargeResult& r) {
  const double u = real_type(p.dtype).unit_roundoff;
  EXPECT_LE(column_orthogonality(r.left), 10 * static_cast<double>(p.rows) * u);
  EXPECT_LE(row_orthogonality(r.right), 10 * static_cast<double>(p.cols) * u);
  long double scale = 0, square = 0, of_v = 0, of_u = 0;
  for (const auto& z : a.elements) scale = std::max<long double>(scale, std::abs(Wide(z)));
  if (scale == 0) return;
  for (const auto& z : a.elements) square += std::norm(Wide(z) / scale);
  for (int64_t l = 0; l < r.left.cols; ++l) {
    const long double s = r.values[static_cast<size_t>(l)] / scale;
    for (int64_t i = 0; i < p.rows; ++i) {
      Wide x = -s * Wide(r.left.at(i, l));
      for (int64_t j = 0; j < p.cols; ++j) x += Wide(a.at(i, j)) / scale * std::conj(Wide(r.right.at(l, j)));
      of_v += std::norm(x);
    }
    for (int64_t j = 0; j < p.cols; ++j) {
      Wide x = -s * std::conj(Wide(r.right.at(l, j)));
      for (int64_t i = 0; i < p.rows; ++i) x += std::conj(Wide(a.at(i, j)) / scale) * Wide(r.left.at(i, l));
      of_u += std::norm(x);
    }
  }
  const double residual = static_cast<double>(std::sqrt(std::max(of_v, of_u) / square));
  const double promised = 10 * static_cast<double>(std::max(p.rows, p.cols)) * u;
  EXPECT_LE(residual, promised);
  // The certificate is as good as its own rounding errors.
  EXPECT_NEAR(r.outcome.residual, residual,
              std::sqrt(static_cast<double>(p.rows + p.cols)) * 16 * 0x1p-53 + residual / 8);
}

struct Case {
  Problem problem;
  int64_t top_k = 5;
  std::string what;
};

LargeOptions leading(int64_t top_k) { return {.top_k = top_k, .certificate = true}; }

// Values against those known, and everything else by definition. Returns the steps of the subspace.
int expect_leading(const Case& c, const Matrix& a, const std::function<double(int64_t)>& value) {
  const Problem& p = c.problem;
  SCOPED_TRACE(std::string(name(p.dtype)) + " " + std::to_string(p.rows) + "x" + std::to_string(p.cols) + " " + c.what);
  const LargePlan plan = large_plan_of(p, leading(c.top_k));
  EXPECT_EQ(plan.values, c.top_k);
  EXPECT_EQ(plan.left_columns, c.top_k);
  EXPECT_EQ(plan.right_rows, c.top_k);
  const LargeResult r = run_large(leading_engine(), plan, a);
  EXPECT_EQ(r.outcome.status, LargeStatus::kOk) << r.outcome.detail;
  const double u = real_type(p.dtype).unit_roundoff;
  for (int64_t j = 0; j < c.top_k; ++j) {
    EXPECT_NEAR(r.values[static_cast<size_t>(j)], value(j),
                value_bound(p) * u * value(0) + real_type(p.dtype).smallest_denormal)
        << j;
    if (j > 0) {
      EXPECT_LE(r.values[static_cast<size_t>(j)], r.values[static_cast<size_t>(j - 1)]);
    }
  }
  expect_triplets(p, a, r);
  // The values alone are the same, and so is a second run.
  LargeOptions alone = leading(c.top_k);
  alone.vectors = Vectors::kNone;
  alone.certificate = false;
  const LargeResult values = run_large(leading_engine(), large_plan_of(p, alone), a);
  if (r.outcome.subspace_steps > 0) {
    EXPECT_EQ(values.values_bytes, r.values_bytes);
  }
  const LargeResult again = run_large(leading_engine(), plan, a);
  EXPECT_EQ(again.values_bytes, r.values_bytes);
  EXPECT_EQ(again.left_bytes, r.left_bytes);
  EXPECT_EQ(again.right_bytes, r.right_bytes);
  return r.outcome.subspace_steps;
}

class LeadingTripletsTest : public ::testing::TestWithParam<DType> {};

// Such as those of principal components. Tall and wide ones, and those that are read where they lie.
TEST_P(LeadingTripletsTest, ASpectrumThatDecaysIsLeftToASubspace) {
  const auto value = [](int64_t j) { return std::pow(0.5, static_cast<double>(j)); };
  int count = 0;
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{260, 200}, {200, 260}, {3300, 200}, {200, 3300}}) {
    const Order order = ++count % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
    const Matrix a = with_values(GetParam(), rows, cols, value);
    EXPECT_GT(expect_leading({{rows, cols, GetParam(), order}, 5, "0.5^j"}, a, value), 0);
  }
}

TEST_P(LeadingTripletsTest, ALowRankIsFound) {
  for (const int64_t rank : {0, 1, 3, 5, 12}) {
    const auto value = [rank](int64_t j) { return j < rank ? 3.0 - static_cast<double>(j) / 8 : 0; };
    for (const int64_t rows : {230, 3300}) {
      const Matrix a = with_values(GetParam(), rows, 200, value);
      const int steps =
          expect_leading({{rows, 200, GetParam(), Order::kRowMajor}, 5, "rank " + std::to_string(rank)}, a, value);
      if (rank > 0 && rank < 5) {
        EXPECT_GT(steps, 0);
      }
    }
  }
}

// Rows and columns of exact zeros leave nothing to orthogonalize.
TEST_P(LeadingTripletsTest, ZerosAndOnes) {
  for (const int64_t rows : {230, 3300}) {
    Matrix a(GetParam(), rows, 200);
    for (int64_t i = 10; i < 14; ++i) a.at(i, i + 3) = 14.0 - static_cast<double>(i);
    const auto few = [](int64_t j) { return j < 4 ? 4.0 - static_cast<double>(j) : 0; };
    expect_leading({{rows, 200, GetParam(), Order::kRowMajor}, 5, "four entries"}, a, few);
    for (auto& z : a.elements) z = 1;
    const double all = std::sqrt(static_cast<double>(rows * 200));
    expect_leading({{rows, 200, GetParam(), Order::kRowMajor}, 5, "ones"}, a,
                   [&](int64_t j) { return j == 0 ? all : 0; });
  }
}

// Equal values at the cut, and a cluster that a block has no room for.
TEST_P(LeadingTripletsTest, ClustersAtTheCut) {
  for (const int64_t size : {2, 9, 40}) {
    const auto value = [size](int64_t j) {
      return j < 4 ? 2.0 : j < 4 + size ? 1.0 : std::pow(0.4, static_cast<double>(j));
    };
    const Matrix a = with_values(GetParam(), 260, 200, value);
    expect_leading({{260, 200, GetParam(), Order::kRowMajor}, 5, "cluster of " + std::to_string(size)}, a, value);
  }
}

// No subspace is small enough. The values are the full decomposition's own, and so are a square matrix's vectors.
TEST_P(LeadingTripletsTest, AFlatSpectrumIsLeftToTheFullDecomposition) {
  for (const int64_t rows : {200, 230, 3300}) {
    const auto flat = [](int64_t j) { return 2 - static_cast<double>(j) / 256; };
    const Matrix a = with_values(GetParam(), rows, 200, flat);
    const Problem p{rows, 200, GetParam(), Order::kColumnMajor};
    EXPECT_EQ(expect_leading({p, 5, "flat"}, a, flat), 0);
    const LargeResult all = run_large(leading_engine(), large_plan_of(p, {}), a);
    const LargeResult some = run_large(leading_engine(), large_plan_of(p, leading(5)), a);
    for (size_t j = 0; j < 5; ++j) EXPECT_EQ(some.values[j], all.values[j]);
    const auto of_left = static_cast<ptrdiff_t>(5 * rows * element_bytes(GetParam()));
    if (rows > 200) continue;  // Q is applied to fewer columns, which rounds otherwise
    EXPECT_TRUE(std::equal(some.left_bytes.begin(), some.left_bytes.end(), all.left_bytes.begin(),
                           all.left_bytes.begin() + of_left));
  }
}

TEST_P(LeadingTripletsTest, ManyTripletsOfFewAreCutOff) {
  const auto value = [](int64_t j) { return std::pow(0.7, static_cast<double>(j)); };
  for (const int64_t rows : {40, 700}) {
    const Matrix a = with_values(GetParam(), rows, 40, value);
    for (const int64_t k : {1, 39, 40}) {
      EXPECT_EQ(expect_leading({{rows, 40, GetParam(), Order::kRowMajor}, k, std::to_string(k)}, a, value), 0);
      const Matrix wide = conjugate_transpose(a);
      EXPECT_EQ(expect_leading({{40, rows, GetParam(), Order::kRowMajor}, k, "wide"}, wide, value), 0);
    }
  }
}

TEST_P(LeadingTripletsTest, NearTheEndsOfTheRange) {
  const RealType real = real_type(GetParam());
  for (const double size : {real.largest / 4, real.smallest_normal * 1024, real.smallest_denormal * 4096}) {
    const auto value = [size](int64_t j) { return size * std::pow(0.25, static_cast<double>(j)); };
    for (const int64_t rows : {230, 3300}) {
      const Matrix a = with_values(GetParam(), rows, 200, value);
      const Problem p{rows, 200, GetParam(), Order::kRowMajor};
      const LargeResult r = run_large(leading_engine(), large_plan_of(p, leading(5)), a);
      ASSERT_EQ(r.outcome.status, LargeStatus::kOk);
      const auto reference = run_large(leading_engine(), large_plan_of(p, {.method = Method::kJacobi}), a).values;
      for (size_t j = 0; j < 5; ++j) {
        EXPECT_NEAR(r.values[j], reference[j],
                    value_bound(p) * real.unit_roundoff * reference[0] + real.smallest_denormal);
      }
      EXPECT_LE(column_orthogonality(r.left), 10 * static_cast<double>(rows) * real.unit_roundoff);
      EXPECT_LE(row_orthogonality(r.right), 10 * 200 * real.unit_roundoff);
    }
  }
}

TEST_P(LeadingTripletsTest, GradedColumns) {
  Matrix a = generate(Kind::kNormal, GetParam(), 230, 200, 3);
  for (int64_t j = 0; j < 200; ++j) {
    for (int64_t i = 0; i < 230; ++i) a.at(i, j) *= std::ldexp(1.0, static_cast<int>(-(j * 37 % 200) / 2));
  }
  round_to_dtype(a);
  const auto reference = reference_singular_values(a);
  expect_leading({{230, 200, GetParam(), Order::kColumnMajor}, 5, "graded"}, a,
                 [&](int64_t j) { return static_cast<double>(reference[static_cast<size_t>(j)]); });
}

INSTANTIATE_TEST_SUITE_P(DTypes, LeadingTripletsTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LeadingTriplets, OptionsOfSweepsCutOff) {
  const auto value = [](int64_t j) { return std::pow(0.5, static_cast<double>(j)); };
  const Matrix a = with_values(DType::kF64, 260, 200, value);
  const Problem p{260, 200, DType::kF64, Order::kRowMajor};
  for (const LargeOptions& options : {LargeOptions{.method = Method::kJacobi},
                                      {.tolerance = 1e-14},
                                      {.max_sweeps = 50},
                                      {.strategy = PivotStrategy::kRoundRobin},
                                      {.variant = BlockVariant::kFullBlock}}) {
    LargeOptions with = options;
    with.top_k = 5;
    const LargeResult r = run_large(leading_engine(), large_plan_of(p, with), a);
    EXPECT_EQ(r.outcome.status, LargeStatus::kOk);
    EXPECT_EQ(r.outcome.subspace_steps, 0);
    EXPECT_GT(r.outcome.sweeps, 0);
    EXPECT_NEAR(r.values[4], value(4), 1e-14);
  }
}

TEST(LeadingTriplets, ThePlanSaysWhatIsWrong) {
  const Problem p{30, 20, DType::kF64, Order::kRowMajor};
  const auto field = [&](const LargeOptions& options) { return plan_large(p, options).error.field; };
  EXPECT_EQ(field({.top_k = -1}), "top_k");
  EXPECT_EQ(field({.top_k = 21}), "top_k");
  EXPECT_EQ(field({.vectors = Vectors::kFull, .top_k = 2}), "top_k");
  EXPECT_EQ(field({.kind = LargeKind::kHyperbolicSvd, .top_k = 2}), "top_k");
  EXPECT_EQ(
      plan_large({20, 20, DType::kF64, Order::kRowMajor}, {.kind = LargeKind::kHermitian, .top_k = 2}).error.field,
      "top_k");
  EXPECT_EQ(field({.vectors = Vectors::kNone, .top_k = 20}), "");
}

TEST(LeadingTriplets, WhatIsNotFiniteIsTold) {
  for (const int64_t rows : {230, 3300}) {
    Matrix a = with_values(DType::kF64, rows, 200, [](int64_t j) { return std::pow(0.5, static_cast<double>(j)); });
    a.at(17, 3) = std::numeric_limits<double>::infinity();
    const LargeOutcome o =
        run_large(leading_engine(), large_plan_of({rows, 200, DType::kF64, Order::kRowMajor}, leading(5)), a).outcome;
    EXPECT_EQ(o.status, LargeStatus::kNonFinite);
    EXPECT_EQ(o.row, 17);
    EXPECT_EQ(o.col, 3);
  }
}

TEST(LeadingTriplets, ProgressNeverFallsAndACancelIsObeyed) {
  for (const double part : {0.5, 0.999}) {  // a subspace that is enough, and one that is not
    const Matrix a =
        with_values(DType::kF64, 260, 200, [&](int64_t j) { return std::pow(part, static_cast<double>(j)); });
    const LargePlan plan = large_plan_of({260, 200, DType::kF64, Order::kRowMajor}, leading(5));
    std::vector<double> fractions;
    bool has_subspace = false;
    LargeControl control;
    control.progress = [&](const LargeProgress& progress) {
      fractions.push_back(progress.fraction);
      has_subspace |= progress.stage == LargeStage::kSubspace;
    };
    EXPECT_EQ(run_large(leading_engine(), plan, a, {}, control).outcome.status, LargeStatus::kOk);
    EXPECT_TRUE(has_subspace);
    EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
    EXPECT_EQ(fractions.back(), 1);
    for (const double at : {0.0, 0.12, 0.3}) {
      std::atomic<bool> cancel{false};
      control.cancel = &cancel;
      control.progress = [&](const LargeProgress& progress) { cancel = cancel || progress.fraction >= at; };
      EXPECT_EQ(run_large(leading_engine(), plan, a, {}, control).outcome.status, LargeStatus::kCancelled) << at;
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
