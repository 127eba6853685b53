// Large matrices of many blocks, whose cosines are checked before sweeps, keep the contract: those that need a QR and those
// that need none. The blocks are so narrow that small matrices have many.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <string>
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

template <class E>
struct NarrowBlocks : host::HostLargeBackend<E> {
  using host::HostLargeBackend<E>::HostLargeBackend;
  int64_t block_width(int64_t /*n*/) const { return 2; }
};

constexpr int64_t kOrder = 48;  // 24 blocks

bool was_checked(const LargeOutcome& outcome) {
  return std::any_of(outcome.phases.begin(), outcome.phases.end(),
                     [](const LargePhaseTime& phase) { return phase.name == "check"; });
}

LargeResult run(const Matrix& a, Method method, Vectors vectors, const LargeControl& control = {}) {
  LargeOptions options;
  options.method = method;
  options.vectors = vectors;
  return run_large(EngineOf<NarrowBlocks>(), large_plan_of({a.rows, a.cols, a.dtype, Order::kRowMajor}, options), a, {},
                   control);
}

void expect_contract(const Matrix& a, const LargeResult& r, const std::vector<long double>& reference, bool vectors) {
  const double u = real_type(a.dtype).unit_roundoff, n = static_cast<double>(kOrder);
  ASSERT_EQ(r.outcome.status, LargeStatus::kOk) << r.outcome.detail;
  for (size_t j = 0; j < r.values.size(); ++j) {
    const double off = static_cast<double>(std::abs(r.values[j] - reference[j]));
    EXPECT_LE(off, value_bound({a.rows, a.cols, a.dtype}) * u * static_cast<double>(reference[0])) << j;
  }
  if (!vectors) return;
  EXPECT_LE(column_orthogonality(r.left), 10 * n * u);
  EXPECT_LE(row_orthogonality(r.right), 10 * n * u);
  EXPECT_LE(residual_of(a, r), 10 * n * u);
}

class CheckedSweepsTest : public ::testing::TestWithParam<DType> {};

TEST_P(CheckedSweepsTest, EveryKindKeepsTheContract) {
  for (const Kind kind : kinds(GetParam())) {
    if (kind == Kind::kOverflowing || kind == Kind::kTiny || kind == Kind::kDenormals ||
        kind == Kind::kUnderflowEntry) {
      continue;  // their results are not what is stored
    }
    const Matrix a = generate(kind, GetParam(), kOrder, kOrder, 5);
    const auto reference = reference_singular_values(a);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        SCOPED_TRACE(std::string(name(kind)) + " " + name(method));
        expect_contract(a, run(a, method, vectors), reference, vectors != Vectors::kNone);
      }
    }
  }
}

// Singular values from 1 to 1 / condition: from a matrix that needs no QR to one whose Cholesky factorization fails.
TEST_P(CheckedSweepsTest, EveryConditionKeepsTheContract) {
  Random random(9);
  for (const double condition : {1.0, 1e2, 1e4, 1e6, 1e9, 1e15}) {
    std::vector<double> values(kOrder);
    for (int64_t j = 0; j < kOrder; ++j) {
      values[static_cast<size_t>(j)] = std::pow(condition, -static_cast<double>(j) / (kOrder - 1));
    }
    const Matrix a = with_singular_values(GetParam(), kOrder, kOrder, values, random);
    const auto reference = reference_singular_values(a);
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      SCOPED_TRACE(condition);
      expect_contract(a, run(a, Method::kAuto, vectors), reference, vectors != Vectors::kNone);
    }
  }
}

TEST_P(CheckedSweepsTest, ChecksWhereLittleIsLeftToRotate) {
  const Matrix a = generate(Kind::kNormal, GetParam(), kOrder, kOrder, 1);
  const LargeResult automatic = run(a, Method::kAuto, Vectors::kThin), jacobi = run(a, Method::kJacobi, Vectors::kThin);
  EXPECT_TRUE(was_checked(automatic.outcome));
  // Results in single precision may leave nothing to look at.
  if (value_bytes(GetParam()) == sizeof(double)) {
    EXPECT_TRUE(was_checked(jacobi.outcome));
  }
  EXPECT_TRUE(automatic.outcome.warm_started);
  EXPECT_LT(automatic.outcome.sweeps, 3);
  EXPECT_GT(jacobi.outcome.sweeps, automatic.outcome.sweeps);
  const auto had_qr = [](const LargeResult& r) {
    return std::any_of(r.outcome.phases.begin(), r.outcome.phases.end(),
                       [](const LargePhaseTime& phase) { return phase.name == "qr"; });
  };
  EXPECT_FALSE(had_qr(automatic));
  EXPECT_TRUE(had_qr(jacobi));
  const Matrix graded = generate(Kind::kGradedColumns, GetParam(), kOrder, kOrder, 1);
  EXPECT_TRUE(had_qr(run(graded, Method::kAuto, Vectors::kThin)));
}

// Columns of very different norms keep the relative accuracy of small values, since they get a QR.
TEST_P(CheckedSweepsTest, ColumnsThatAreNotLevelKeepTheirDigits) {
  const Matrix a = generate(Kind::kColumnGraded, GetParam(), kOrder, kOrder, 2);
  const auto reference = reference_singular_values(a);
  const LargeResult r = run(a, Method::kAuto, Vectors::kThin);
  const double allowed = 10 * static_cast<double>(kOrder) * 10 * real_type(a.dtype).unit_roundoff;
  for (size_t j = 0; j < r.values.size(); ++j) {
    EXPECT_LE(std::abs(r.values[j] / static_cast<double>(reference[j]) - 1), allowed) << j;
  }
}

TEST_P(CheckedSweepsTest, ACancelIsObeyedDuringACheck) {
  const Matrix a = generate(Kind::kNormal, GetParam(), kOrder, kOrder, 1);
  std::atomic<bool> cancel{false};
  LargeControl control;
  control.cancel = &cancel;
  // Sweeps begin with a check, so no sweep has begun.
  control.progress = [&](const LargeProgress& p) {
    cancel = cancel || (p.stage == LargeStage::kSweep && p.sweep == 0);
  };
  EXPECT_EQ(run(a, Method::kAuto, Vectors::kThin, control).outcome.status, LargeStatus::kCancelled);
}

INSTANTIATE_TEST_SUITE_P(, CheckedSweepsTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& param) { return std::string(name(param.param)); });

}  // namespace
}  // namespace svdserve::numerics
