// Progress from predicted times: the teller with a clock of the test's, and the predictions of every kind of plan.
#include "engine/algorithms/large/progress_teller.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_driver.h"

namespace svdserve::large {
namespace {

class ProgressTellerTest : public ::testing::Test {
 protected:
  ProgressTellerTest() {
    control.cancel = &cancel;
    control.progress = [this](const LargeProgress& progress) { told.push_back(progress); };
  }
  double fraction() const { return told.back().fraction; }
  double next_fraction() const { return told.back().next_fraction; }
  double next_seconds() const { return told.back().next_seconds; }

  std::atomic<bool> cancel{false};
  std::vector<LargeProgress> told;
  LargeControl control;
  const LargeWatch watch{control};
  double now = 1000;
  ProgressTeller teller{watch, [this] { return now; }};
};

TEST_F(ProgressTellerTest, PartsHaveTheirSharesOfTheWhole) {
  const WorkParts parts = {
      {LargeStage::kPrepare, 1}, {LargeStage::kPrecondition, 3}, {LargeStage::kSweep, 0}, {LargeStage::kFinish, 4}};
  EXPECT_EQ(seconds_from(parts, 1), 7);
  teller.begin(parts, 0);
  EXPECT_EQ(fraction(), 0);
  EXPECT_EQ(next_fraction(), 0.125);
  teller.begin(parts, 1);
  EXPECT_EQ(fraction(), 0.125);
  EXPECT_EQ(next_fraction(), 0.5);
  teller.at(0.5);
  EXPECT_EQ(fraction(), 0.3125);
  teller.begin(parts, 2);
  EXPECT_EQ(fraction(), 0.5);
  EXPECT_EQ(next_fraction(), 0.5);
  teller.begin(parts, 3);
  EXPECT_EQ(told.back().stage, LargeStage::kFinish);
  EXPECT_EQ(next_fraction(), 1);
  teller.end();
  EXPECT_EQ(fraction(), 1);
  EXPECT_EQ(next_seconds(), 0);
}

TEST_F(ProgressTellerTest, ANewPredictionSharesOutWhatIsLeft) {
  teller.begin(LargeStage::kPrepare, 1, 2);
  EXPECT_EQ(next_fraction(), 0.5);
  teller.begin(LargeStage::kSweep, 3, 4);  // 4 s are left instead of 1
  EXPECT_EQ(fraction(), 0.5);
  EXPECT_EQ(next_fraction(), 0.875);
  teller.begin(LargeStage::kFinish, 0, 0);
  EXPECT_EQ(fraction(), 0.875);
  EXPECT_EQ(next_fraction(), 1);
}

TEST_F(ProgressTellerTest, NeverFalls) {
  teller.begin(LargeStage::kSweep, 1, 1);
  for (const double done : {0.5, 0.25, -1.0, 0.5}) {
    teller.at(done);
    EXPECT_EQ(fraction(), 0.5);
  }
  teller.at(7);
  EXPECT_EQ(fraction(), 1);
}

TEST_F(ProgressTellerTest, ForetellsTheRestOfAPartByTheTimeThatWorkHasTaken) {
  teller.begin(LargeStage::kPrepare, 10, 100);
  EXPECT_EQ(next_seconds(), 10);
  now += 30;
  teller.begin(LargeStage::kSweep, 60, 90);
  // 30 s instead of 10, with another 5 s of which nothing is known.
  EXPECT_DOUBLE_EQ(next_seconds(), 60 * (35 / 15.0));
  now += 90;
  teller.at(0.5);
  EXPECT_DOUBLE_EQ(next_seconds(), 0.5 * 60 * (125 / 45.0));
}

TEST_F(ProgressTellerTest, ALongOperationIsAPieceOfItsPart) {
  teller.begin(LargeStage::kWarmStart, 1, 2);
  const PartDone done = teller.between(0.2, 0.6);
  done(0);
  EXPECT_DOUBLE_EQ(fraction(), 0.1);
  done(0.5);
  EXPECT_DOUBLE_EQ(fraction(), 0.2);
  done(1);
  EXPECT_DOUBLE_EQ(fraction(), 0.3);
}

TEST_F(ProgressTellerTest, ADecompositionWithinOneIsAPart) {
  teller.begin(LargeStage::kPrepare, 1, 2);
  teller.begin(LargeStage::kPrepare, 1, 2);
  const LargeControl own = teller.of_part(control);
  EXPECT_EQ(own.cancel, &cancel);
  LargeProgress inner;
  inner.stage = LargeStage::kSweep;
  inner.rotations = 7;
  inner.fraction = 0.5;
  inner.next_fraction = 0.75;
  inner.next_seconds = 3;
  own.progress(inner);
  EXPECT_EQ(told.back().stage, LargeStage::kSweep);
  EXPECT_EQ(told.back().rotations, 7);
  EXPECT_EQ(fraction(), 0.625);
  EXPECT_EQ(next_fraction(), 0.6875);
  EXPECT_EQ(next_seconds(), 3);
  inner.fraction = 0.25;
  own.progress(inner);
  EXPECT_EQ(fraction(), 0.625);
  teller.begin(LargeStage::kFinish, 1, 2);
  EXPECT_EQ(fraction(), 0.75);
  control.progress = {};
  EXPECT_FALSE(teller.of_part(control).progress);
}

TEST_F(ProgressTellerTest, EveryCallObeysACancel) {
  teller.begin(LargeStage::kPrepare, 1, 2);
  cancel = true;
  const size_t before = told.size();
  EXPECT_THROW(teller.begin(LargeStage::kSweep, 1, 1), LargeStop);
  EXPECT_THROW(teller.at(0.5), LargeStop);
  EXPECT_THROW(teller.end(), LargeStop);
  EXPECT_EQ(told.size(), before);
}

// --- predictions ------------------------------------------------------------------------------------------------------

// Every kind of work at 1e9 operations a second.
WorkSpeeds even_speeds() {
  const WorkSpeed one{1e9, 0};
  return {one, one, one, one, one, one, 1e9, true};
}

double predicted(const Problem& problem, const LargeOptions& options) {
  const LargePlanOrError plan = plan_large(problem, options);
  return plan.plan ? predicted_seconds(*plan.plan, even_speeds()) : std::nan("");
}

TEST(PredictedWork, IsFiniteAndGrowsWithTheMatrix) {
  for (const LargeKind kind : {LargeKind::kSvd, LargeKind::kHyperbolicSvd, LargeKind::kHermitian,
                               LargeKind::kHermitianFactor, LargeKind::kGeneral}) {
    for (const DType dtype : {DType::kF64, DType::kC128}) {
      for (const bool certificate : {false, true}) {
        LargeOptions options;
        options.kind = kind;
        options.certificate = certificate;
        double before = 0;
        for (const int64_t n : {1, 2, 100, 1000, 30000}) {
          const double seconds = predicted({n, n, dtype, Order::kRowMajor}, options);
          EXPECT_TRUE(seconds > before && std::isfinite(seconds)) << int(kind) << " " << n << ": " << seconds;
          before = seconds;
        }
      }
    }
  }
}

TEST(PredictedWork, IsLessWhereLessIsWanted) {
  const Problem square{2000, 2000, DType::kF64, Order::kRowMajor}, tall{20000, 2000, DType::kF64, Order::kRowMajor};
  for (const Problem& problem : {square, tall}) {
    LargeOptions values, vectors, jacobi, full, leading, certified;
    values.vectors = Vectors::kNone;
    jacobi.method = Method::kJacobi;
    full.vectors = Vectors::kFull;
    leading.top_k = 10;
    certified.certificate = true;
    const double thin = predicted(problem, vectors);
    EXPECT_LT(predicted(problem, values), thin);
    EXPECT_LT(predicted(problem, leading), thin);
    EXPECT_GT(predicted(problem, jacobi), thin);
    EXPECT_GT(predicted(problem, certified), thin);
    EXPECT_EQ(predicted(problem, full) > thin, problem.rows > problem.cols);
  }
  const Problem adjoint{2000, 20000, DType::kF64, Order::kRowMajor};
  EXPECT_EQ(predicted(tall, {}), predicted(adjoint, {}));
}

// The known numbers of operations: 2 n^2 (m - n / 3) of the QR with the memory of its panels, 4 n^2 (m - n / 2) of U.
TEST(PredictedWork, CountsTheOperations) {
  const LargePlan plan = *plan_large({1600, 100, DType::kF64, Order::kRowMajor}, {}).plan;
  const WorkParts parts = svd_parts(plan, SvdStart::kQrAndEigenbasis, even_speeds());
  EXPECT_NEAR(parts[kSvdQr].seconds, (2e4 * (1600 - 100 / 3.0) + 280.0 * 1600 * 100) / 1e9, 1e-9);
  EXPECT_NEAR(parts[kSvdStart].seconds, (14 / 3.0 + 3) * 1e6 / 1e9, 1e-9);
  EXPECT_NEAR(parts[kSvdLeft].seconds, (4e4 * 1550 + 2 * 1600 * 100) / 1e9, 1e-9);
  EXPECT_EQ(parts[kSvdCertificate].seconds, 0);
  const LargePlan complex = *plan_large({1600, 100, DType::kC128, Order::kRowMajor}, {}).plan;
  EXPECT_NEAR(svd_parts(complex, SvdStart::kQrAndEigenbasis, even_speeds())[kSvdQr].seconds, 4 * parts[kSvdQr].seconds,
              1e-9);
}

// n^2 m of the Gram matrix, n^3 / 3 of its Cholesky factor, n^3 of the inverse; 2 n^2 m of U.
TEST(PredictedWork, CountsTheOperationsWithoutAQr) {
  const LargePlan plan = *plan_large({100, 300, DType::kF64, Order::kRowMajor}, {}).plan;
  EXPECT_EQ(expected_start(plan, even_speeds()), SvdStart::kEigenbasis);
  const WorkParts parts = svd_parts(plan, SvdStart::kEigenbasis, even_speeds());
  EXPECT_NEAR(parts[kSvdQr].seconds, (3e6 + 4 / 3.0 * 1e6) / 1e9, 1e-9);
  EXPECT_NEAR(parts[kSvdStart].seconds, (14 / 3.0 + 2) * 1e6 / 1e9, 1e-9);
  EXPECT_NEAR(parts[kSvdPolish].seconds, (6e6 + 2e4) / 1e9, 1e-9);
  EXPECT_NEAR(parts[kSvdLeft].seconds, 8.0 * 300 * 100 / 1e9, 1e-9);
}

// Where its rows are read in place, there is no Gram matrix of them; full bases need Q.
TEST(PredictedWork, ExpectsAQrWhereItIsNeeded) {
  const auto start = [](int64_t rows, LargeOptions options, bool reads_in_place) {
    WorkSpeeds speeds = even_speeds();
    speeds.reads_in_place = reads_in_place;
    return expected_start(*plan_large({rows, 100, DType::kF64, Order::kRowMajor}, options).plan, speeds);
  };
  LargeOptions jacobi, full;
  jacobi.method = Method::kJacobi;
  full.vectors = Vectors::kFull;
  EXPECT_EQ(start(1600, {}, true), SvdStart::kQrAndEigenbasis);
  EXPECT_EQ(start(1600, {}, false), SvdStart::kEigenbasis);
  EXPECT_EQ(start(199, {}, true), SvdStart::kQrAndEigenbasis);
  EXPECT_EQ(start(300, full, true), SvdStart::kQrAndEigenbasis);
  EXPECT_EQ(start(300, jacobi, true), SvdStart::kTwoQrs);
}

}  // namespace
}  // namespace svdserve::large
