// The facade's contract apart from the numbers: segments, statuses, alignment, options, floating-point environment.
#include "engine/svd_engine.h"

#include <cfenv>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
const std::vector<Method> kMethods = values_methods();
constexpr Order kOrders[] = {Order::kRowMajor, Order::kColumnMajor};

std::vector<Matrix> some_matrices(DType dtype, int64_t rows, int64_t cols, int64_t count) {
  std::vector<Matrix> matrices;
  const std::vector<Kind> all = kinds(dtype);
  for (int64_t i = 0; i < count; ++i) {
    const Kind kind = i % 2 == 0 ? Kind::kNormal : all[static_cast<size_t>(i / 2) % all.size()];
    matrices.push_back(generate(kind, dtype, rows, cols, static_cast<uint64_t>(i)));
  }
  return matrices;
}

TEST(SvdEngine, ResolvesItsOptions) {
  EXPECT_TRUE(is_supported(Simd::kScalar));
  EXPECT_TRUE(is_supported(Simd::kBest));
  EXPECT_GE(SvdEngine().threads(), 1);
  EXPECT_NE(SvdEngine().simd(), Simd::kBest);
  for (int threads = 1; threads <= 3; ++threads) EXPECT_EQ(SvdEngine({.threads = threads}).threads(), threads);
  for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
    EXPECT_EQ(SvdEngine({.simd = simd}).simd(), is_supported(simd) ? simd : Simd::kScalar) << name(simd);
  }
}

TEST(SvdEngine, EmptyBatchesComplete) {
  const SvdEngine engine;
  for (const Method method : kMethods) {
    const Plan plan = plan_of({4, 4, DType::kF64, Order::kRowMajor}, {.method = method});
    const auto none = engine.execute(plan, {});
    EXPECT_TRUE(none.completed);
    EXPECT_EQ(none.report.total(), 0);
    const std::vector<HostSegment> empty(5);  // null pointers, count 0
    const auto nothing = engine.execute(plan, empty);
    EXPECT_TRUE(nothing.completed);
    EXPECT_EQ(nothing.report.total(), 0);
  }
}

TEST(SvdEngine, OneByOneIsTheModulus) {
  const SvdEngine engine;
  for (const Method method : kMethods) {
    const Plan plan = plan_of({1, 1, DType::kC128, Order::kRowMajor}, {.method = method});
    const double in[2] = {3, -4};
    double out = -1;
    const HostSegment segment{in, 1, &out, nullptr};
    EXPECT_EQ(engine.execute(plan, {&segment, 1}).report.ok, 1);
    EXPECT_NEAR(out, 5, 4e-15);
  }
}

TEST(SvdEngine, KnownValuesOfARectangle) {
  const SvdEngine engine;
  const float in[6] = {3, 0, 0, 0, -5, 0};  // 2 x 3, row-major
  for (const Method method : kMethods) {
    float out[2] = {-1, -1};
    MatrixStatus status = MatrixStatus::kNotConverged;
    const HostSegment segment{in, 1, out, &status};
    const auto outcome =
        engine.execute(plan_of({2, 3, DType::kF32, Order::kRowMajor}, {.method = method}), {&segment, 1});
    EXPECT_TRUE(outcome.completed);
    EXPECT_EQ(status, MatrixStatus::kOk);
    EXPECT_NEAR(out[0], 5, 5e-6);
    EXPECT_NEAR(out[1], 3, 5e-6);
  }
}

// Segments of 0, 1, .. 40 matrices at odd addresses give what one segment gives, and nothing is written beside them.
TEST(SvdEngine, SegmentsOfAnySizeAndAlignmentGiveTheSame) {
  const SvdEngine engine({.threads = 2});
  Random random(7);
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{3, 3}, {8, 5}, {2, 9}, {12, 12}, {1, 70}, {100, 4}}) {
      const auto matrices = some_matrices(dtype, rows, cols, scaled(150, 40));
      const auto count = static_cast<int64_t>(matrices.size());
      for (const Method method : kMethods) {
        const Plan plan = plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = method});
        const auto bytes = pack(matrices, Order::kRowMajor);
        const RunResult whole = run(engine, plan, bytes.data(), count);
        const RunResult split = run_in_segments(engine, plan, bytes.data(), count, random);
        EXPECT_EQ(whole.values, split.values) << name(dtype) << " " << name(method) << " " << rows << "x" << cols;
        EXPECT_EQ(whole.statuses, split.statuses);
        EXPECT_EQ(whole.outcome.report, split.outcome.report);
      }
    }
  }
}

TEST(SvdEngine, StatusesMayBeNull) {
  const SvdEngine engine;
  for (const Method method : kMethods) {
    std::vector<Matrix> matrices = some_matrices(DType::kF64, 4, 4, 30);
    matrices[11].at(2, 3) = poison_value(Poison::kInfinity);
    matrices[29].at(0, 0) = poison_value(Poison::kQuietNan);
    const Plan plan = plan_of({4, 4, DType::kF64, Order::kRowMajor}, {.method = method});
    const auto bytes = pack(matrices, Order::kRowMajor);
    const RunResult with = run(engine, plan, bytes.data(), 30);
    std::vector<std::byte> values(with.values.size(), std::byte{0xa5});
    const HostSegment segment{bytes.data(), 30, values.data(), nullptr};
    const auto outcome = engine.execute(plan, {&segment, 1});
    EXPECT_TRUE(outcome.completed);
    EXPECT_EQ(outcome.report, with.outcome.report);
    EXPECT_EQ(outcome.report.non_finite, 2);
    EXPECT_EQ(values, with.values);
  }
}

// The layout is read, not assumed: a matrix that is not symmetric, in both orders, tall and wide.
TEST(SvdEngine, BothOrdersGiveTheSameBits) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{5, 5}, {9, 4}, {3, 11}, {80, 3}, {20, 17}, {2, 700}}) {
      const auto matrices = some_matrices(dtype, rows, cols, 40);
      for (const Method method : kMethods) {
        std::vector<RunResult> results;
        for (const Order order : kOrders) {
          const Plan plan = plan_of({rows, cols, dtype, order}, {.method = method});
          results.push_back(run(engine, plan, pack(matrices, order).data(), 40));
        }
        EXPECT_EQ(results[0].values, results[1].values) << name(dtype) << " " << rows << "x" << cols;
        EXPECT_EQ(results[0].statuses, results[1].statuses);
      }
    }
  }
}

// JACOBI given up early says so, and says it for the matrices concerned alone.
TEST(SvdEngine, TooFewSweepsAreReported) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    std::vector<Matrix> matrices;
    for (uint64_t i = 0; i < 40; ++i) {
      matrices.push_back(generate(i % 2 == 0 ? Kind::kNormal : Kind::kIdentity, dtype, 8, 8, i));
    }
    const Plan plan = plan_of({8, 8, dtype, Order::kRowMajor}, {.method = Method::kJacobi, .max_sweeps = 1});
    const RunResult result = run(engine, plan, pack(matrices, Order::kRowMajor).data(), 40);
    EXPECT_EQ(result.outcome.report.not_converged, 20);
    for (int64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(result.statuses[static_cast<size_t>(i)], i % 2 == 0 ? MatrixStatus::kNotConverged : MatrixStatus::kOk);
      for (const double s : result.values_of(plan, i)) EXPECT_TRUE(std::isfinite(s) && s >= 0);
    }
  }
}

#if defined(__x86_64__)
// The caller's environment neither leaks into the arithmetic nor is changed by it.
class ChangedEnvironment {
 public:
  explicit ChangedEnvironment(unsigned mxcsr) : before_(_mm_getcsr()) { _mm_setcsr(mxcsr); }
  ~ChangedEnvironment() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

constexpr unsigned kMasked = 0x1f80, kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040, kInexactFlag = 0x0020;
constexpr unsigned kDown = 0x2000, kUp = 0x4000, kTowardsZero = 0x6000;

// Every kind, dtype and method under the given MXCSR: the bits of the default one, and MXCSR as it was.
void expect_independence_of(unsigned environment) {
  for (const int threads : {1, 3}) {
    const SvdEngine engine({.threads = threads});
    for (const DType dtype : kDTypes) {
      for (const auto& [rows, cols] :
           {std::pair<int64_t, int64_t>{1, 1}, {4, 4}, {7, 7}, {12, 12}, {3, 90}, {600, 4}}) {
        std::vector<Matrix> matrices;
        for (const Kind kind : kinds(dtype)) matrices.push_back(generate(kind, dtype, rows, cols, 3));
        const auto bytes = pack(matrices, Order::kRowMajor);
        const auto count = static_cast<int64_t>(matrices.size());
        for (const Method method : kMethods) {
          const Plan plan = plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = method});
          const RunResult expected = run(engine, plan, bytes.data(), count);
          std::vector<std::byte> values(expected.values.size());
          std::vector<MatrixStatus> statuses(expected.statuses.size());
          const HostSegment segment{bytes.data(), count, values.data(), statuses.data()};
          unsigned after = 0;
          {
            const ChangedEnvironment changed(environment);
            engine.execute(plan, {&segment, 1});
            after = _mm_getcsr();
          }
          ASSERT_EQ(after, environment) << std::hex << environment << " became " << after;
          ASSERT_EQ(values, expected.values) << name(dtype) << " " << name(method) << " " << rows << "x" << cols;
          ASSERT_EQ(statuses, expected.statuses);
        }
      }
    }
  }
}

TEST(SvdEngine, FlushToZeroOfTheCallerIsIgnoredAndRestored) {
  expect_independence_of(kMasked | kFlushToZero | kDenormalsAreZero);
}
TEST(SvdEngine, RoundingOfTheCallerIsIgnoredAndRestored) {
  for (const unsigned mode : {kDown, kUp, kTowardsZero}) expect_independence_of(kMasked | mode);
}
TEST(SvdEngine, ExceptionFlagsOfTheCallerAreRestored) {
  expect_independence_of(kMasked);
  expect_independence_of(kMasked | kInexactFlag);
}
// A caller that traps on overflow, invalid operations, or even on inexact ones must not be trapped by the engine's.
TEST(SvdEngine, TrapsOfTheCallerAreIgnoredAndRestored) { expect_independence_of(0); }
#endif

TEST(SvdEngine, RoundingModeOfTheCallerIsKept) {
  const SvdEngine engine;
  const Plan plan = plan_of({4, 4, DType::kF64, Order::kRowMajor}, {});
  const auto bytes = pack(some_matrices(DType::kF64, 4, 4, 20), Order::kRowMajor);
  std::vector<double> values(80);
  const HostSegment segment{bytes.data(), 20, values.data(), nullptr};
  for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO, FE_TONEAREST}) {
    ASSERT_EQ(std::fesetround(mode), 0);
    engine.execute(plan, {&segment, 1});
    EXPECT_EQ(std::fegetround(), mode);
  }
}

}  // namespace
}  // namespace svdserve::numerics
