#include "server/device/cost/cost_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "server/device/cost/work_estimate.h"

namespace svdserve::server {
namespace {

Plan plan_of(int64_t m, int64_t n, DType dtype = DType::kF64, Method method = Method::kBidiagonal,
             double tolerance = 0) {
  return *make_plan({m, n, dtype, Order::kRowMajor}, {.method = method, .tolerance = tolerance}).plan;
}

double micros(absl::Duration d) { return absl::ToDoubleMicroseconds(d); }

void observe_times(CostTable* table, const Plan& plan, int64_t count, const std::vector<double>& micros) {
  for (const double us : micros) table->observe(plan, count, absl::Microseconds(us));
}

TEST(CostTable, WithoutARunTimeGrowsWithTheWork) {
  const CostTable table;
  const auto typical = [&](const Plan& plan, int64_t count) { return table.predict(plan, count).typical; };
  const Plan small = plan_of(4, 4);
  EXPECT_LT(typical(small, 1), absl::Microseconds(20));  // one idle 4 x 4 call is answered inline
  EXPECT_GT(typical(small, 1000), absl::Microseconds(20));
  EXPECT_LT(typical(small, 8), typical(small, 9));
  EXPECT_LT(typical(small, 8), typical(plan_of(4, 4, DType::kC128), 8));
  EXPECT_LT(typical(small, 8), typical(plan_of(4, 4, DType::kF64, Method::kBisection), 8));
  EXPECT_LT(typical(plan_of(4, 4, DType::kF64, Method::kBisection, 1e-2), 8),
            typical(plan_of(4, 4, DType::kF64, Method::kBisection, 1e-12), 8));
  EXPECT_LT(typical(small, 8), typical(plan_of(4000, 4, DType::kF64, Method::kJacobi), 8));
  EXPECT_GT(typical(plan_of(32, 32), 1), absl::Microseconds(20));
  EXPECT_LT(typical(plan_of(32, 16384, DType::kC128, Method::kJacobi), 16777216), absl::InfiniteDuration());
  EXPECT_EQ(table.predict(small, 1000).optimistic, absl::ZeroDuration());  // nothing is known
}

TEST(CostTable, TypicalIsTheMedianAndOptimisticTheTenthPercentile) {
  CostTable table;
  const Plan plan = plan_of(4, 4);
  std::vector<double> times;
  for (int i = 1; i <= 31; ++i) times.push_back(i * 10);
  observe_times(&table, plan, 64, times);
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 160, 0.1);
  EXPECT_NEAR(micros(table.predict(plan, 64).optimistic), 40, 0.1);
  observe_times(&table, plan, 64, {1e6});  // one outlier moves neither
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 160, 0.1);
}

TEST(CostTable, OldRunsAreForgotten) {
  CostTable table;
  const Plan plan = plan_of(4, 4);
  observe_times(&table, plan, 64, std::vector<double>(100, 50));
  observe_times(&table, plan, 64, std::vector<double>(16, 500));
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 50, 0.1);
  observe_times(&table, plan, 64, std::vector<double>(16, 500));
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 500, 0.1);
}

TEST(CostTable, WhatTookNoTimeIsIgnored) {
  CostTable table;
  table.observe(plan_of(4, 4), 64, absl::ZeroDuration());
  table.observe(plan_of(4, 4), 64, absl::Microseconds(-1));
  EXPECT_GT(table.predict(plan_of(4, 4), 64).typical, absl::ZeroDuration());
  EXPECT_EQ(table.predict(plan_of(4, 4), 64).optimistic, absl::ZeroDuration());
}

// A device that needs 40 us for a batch and 10 ns for a matrix.
TEST(CostTable, InterpolatesOverNumbersOfMatrices) {
  CostTable table;
  const Plan plan = plan_of(4, 4);
  const auto truth = [](int64_t count) { return 40 + 0.01 * static_cast<double>(count); };
  for (int64_t count : {1, 1024, 65536}) observe_times(&table, plan, count, {truth(count), truth(count)});
  for (int64_t count : {1, 10, 1000, 1024, 5000, 40000, 65536}) {
    EXPECT_NEAR(micros(table.predict(plan, count).typical), truth(count), 0.01 * truth(count)) << count;
  }
  // Beyond what was seen: in proportion, and at best by what matrices cost above the least.
  EXPECT_NEAR(micros(table.predict(plan, 4 * 65536).typical), 4 * truth(65536), 1);
  EXPECT_NEAR(micros(table.predict(plan, 4 * 65536).optimistic), truth(4 * 65536), 1);
}

// A device that computes 32 matrices in the time of one. Few that ran tell of one, and many do not.
TEST(CostTable, AMatrixTakesHardlyLongerInALargerBatch) {
  CostTable table;
  const Plan plan = plan_of(16, 16);
  observe_times(&table, plan, 256, {25000, 24000, 26000});  // a device that was busy with something else at its start
  EXPECT_NEAR(micros(table.predict(plan, 256).typical), 25000, 1);
  observe_times(&table, plan, 64, {500, 600, 700});
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 600, 0.1);
  EXPECT_NEAR(micros(table.predict(plan, 128).typical), 1800, 0.1);
  EXPECT_NEAR(micros(table.predict(plan, 256).typical), 3600, 0.1);
  EXPECT_NEAR(micros(table.predict(plan, 512).typical), 7200, 0.1);
  observe_times(&table, plan, 256, {1800, 1800, 1800, 1800});  // and is as quick as it should be
  EXPECT_NEAR(micros(table.predict(plan, 256).typical), 1800, 0.1);
}

TEST(CostTable, FewerThanAreComputedAtOnceTakeAsLong) {
  CostTable table(&Plan::method, 32);
  const Plan plan = plan_of(32, 32);
  observe_times(&table, plan, 3200, {100000});
  EXPECT_NEAR(micros(table.predict(plan, 1).typical), 100000, 1);  // the least that anything took here
  observe_times(&table, plan_of(4, 4), 1, {10});
  for (const int64_t few : {1, 5, 32}) EXPECT_NEAR(micros(table.predict(plan, few).typical), 1010, 1) << few;
  EXPECT_NEAR(micros(table.predict(plan, 64).typical), 2010, 1);
  observe_times(&table, plan, 8, {900});
  for (const int64_t few : {1, 5, 8}) EXPECT_NEAR(micros(table.predict(plan, few).typical), 900, 1) << few;
  EXPECT_LT(micros(table.predict(plan, 1).optimistic), 130);  // it errs towards short
  observe_times(&table, plan, 1, {870});
  EXPECT_NEAR(micros(table.predict(plan, 1).typical), 870, 1);
}

TEST(CostTable, UnknownShapesBorrowFromTheNearest) {
  CostTable table;
  observe_times(&table, plan_of(4, 4), 1000, {100});
  observe_times(&table, plan_of(32, 32), 1000, {50000});
  const Plan five = plan_of(5, 5), thirty = plan_of(30, 30);
  const double near_four = 100 * estimate_flops(five) / estimate_flops(plan_of(4, 4));
  EXPECT_NEAR(micros(table.predict(five, 1000).typical), near_four, 0.2 * near_four);
  const double near_32 = micros(table.predict(thirty, 1000).typical);
  EXPECT_LT(near_32, 50000);
  EXPECT_GT(near_32, 30000);
  EXPECT_EQ(table.predict(five, 1000).optimistic, absl::ZeroDuration());  // its like never ran
  observe_times(&table, five, 1000, {77});
  EXPECT_NEAR(micros(table.predict(five, 1000).typical), 77, 0.1);
  EXPECT_NEAR(micros(table.predict(five, 1000).optimistic), 77, 0.1);
}

// One matrix takes 40 us there whatever its shape, a thousand of them hardly more. A shape that was seen once, alone,
// does not make a million of it slow.
TEST(CostTable, ShapeSeenOnlyAloneBorrowsForMany) {
  CostTable table;
  const Plan known = plan_of(4, 4), other = plan_of(4, 3);
  observe_times(&table, known, 1, {40});
  observe_times(&table, known, 1 << 20, {2000});
  observe_times(&table, other, 1, {41});
  EXPECT_NEAR(micros(table.predict(other, 1).typical), 41, 0.1);
  EXPECT_LT(micros(table.predict(other, 1 << 20).typical), 2500);
  EXPECT_LT(micros(table.predict(other, 1 << 20).optimistic), 1e7);
}

TEST(CostTable, MethodsAndTolerancesAreTimedApart) {
  CostTable table;
  const Plan fine = plan_of(8, 8, DType::kF64, Method::kBisection, 1e-12),
             coarse = plan_of(8, 8, DType::kF64, Method::kBisection, 1e-2),
             jacobi = plan_of(8, 8, DType::kF64, Method::kJacobi);
  observe_times(&table, fine, 100, {300});
  observe_times(&table, coarse, 100, {50});
  observe_times(&table, jacobi, 100, {1000});
  EXPECT_NEAR(micros(table.predict(fine, 100).typical), 300, 0.1);
  EXPECT_NEAR(micros(table.predict(coarse, 100).typical), 50, 0.1);
  EXPECT_NEAR(micros(table.predict(jacobi, 100).typical), 1000, 0.1);
}

TEST(CostTable, LimitsOfSweepsAreTimedApartWhereTheyMatter) {
  const auto plan_with_sweeps = [](int max_sweeps) {
    return *make_plan({8, 8, DType::kF64, Order::kRowMajor}, {.method = Method::kJacobi, .max_sweeps = max_sweeps})
                .plan;
  };
  EXPECT_LT(estimate_flops(plan_with_sweeps(1)), estimate_flops(plan_with_sweeps(3)));
  EXPECT_EQ(estimate_flops(plan_with_sweeps(30)),
            estimate_flops(plan_with_sweeps(1000)));  // a sweep too many is not expected
  EXPECT_LT(estimate_flops(plan_of(8, 8, DType::kF64, Method::kJacobi, 0.1)), estimate_flops(plan_with_sweeps(30)));
  CostTable table;
  observe_times(&table, plan_with_sweeps(2), 100, {10});
  observe_times(&table, plan_with_sweeps(30), 100, {50});
  observe_times(&table, plan_with_sweeps(1000), 100, {900});
  EXPECT_NEAR(micros(table.predict(plan_with_sweeps(2), 100).typical), 10, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with_sweeps(30), 100).typical), 50, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with_sweeps(31), 100).typical), 50, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with_sweeps(1000), 100).typical), 900, 0.1);
}

// Clients choose shapes and tolerances; the table keeps those that ran last.
TEST(CostTable, IsBounded) {
  CostTable table;
  for (int64_t n = 1; n <= 2000; ++n) {
    table.observe(plan_of(8, n), 16, absl::Microseconds(1000));
    table.observe(plan_of(4, 4), 16, absl::Microseconds(7));
  }
  EXPECT_NEAR(micros(table.predict(plan_of(4, 4), 16).typical), 7, 0.1);
  EXPECT_GT(table.predict(plan_of(8, 2000), 16).optimistic, absl::ZeroDuration());
  EXPECT_EQ(table.predict(plan_of(8, 9), 16).optimistic, absl::ZeroDuration());  // forgotten
}

TEST(CostTable, EveryPredictionIsPositiveAndFinite) {
  CostTable table;
  for (const double us : {0.001, 1.0, 5e7}) table.observe(plan_of(4, 4), 3, absl::Microseconds(us));
  for (int64_t count : {int64_t{1}, int64_t{3}, int64_t{1} << 40}) {
    for (const Plan& plan : {plan_of(1, 1), plan_of(4, 4), plan_of(32, 16384, DType::kC128, Method::kJacobi)}) {
      const CostEstimate estimate = table.predict(plan, count);
      EXPECT_GT(estimate.typical, absl::ZeroDuration());
      EXPECT_LT(estimate.typical, absl::InfiniteDuration());
      EXPECT_GE(estimate.optimistic, absl::ZeroDuration());
      EXPECT_LE(estimate.optimistic, estimate.typical);
    }
  }
}

TEST(CostTable, ManyThreadsMayUseIt) {
  CostTable table;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&table, t] {
      for (int64_t i = 1; i < 500; ++i) {
        table.observe(plan_of(1 + (i + t) % 8, 1 + i), i, absl::Microseconds(i));
        EXPECT_GT(table.predict(plan_of(8, i), i).typical, absl::ZeroDuration());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

Plan plan_with(const Options& options) { return *make_plan({8, 8, DType::kF64, Order::kRowMajor}, options).plan; }

TEST(CostTable, VectorsAndAnswersAreWorkOfTheirOwn) {
  Options values, vectors, certified, capacities;
  values.method = vectors.method = certified.method = capacities.method = Method::kJacobi;
  vectors.vectors = certified.vectors = Vectors::kThin;
  certified.certificate = true;
  capacities.values = false;
  capacities.mimo.capacity = true;
  capacities.mimo.snr_db = {0, 10, 20};
  EXPECT_LT(estimate_flops(plan_with(values)), estimate_flops(plan_with(vectors)));
  EXPECT_LT(estimate_flops(plan_with(vectors)), estimate_flops(plan_with(certified)));
  EXPECT_LT(estimate_flops(plan_with(values)), estimate_flops(plan_with(capacities)));
  EXPECT_EQ(estimate_bytes(plan_with(values)), 8 * 8 * 8 + 8 * 8);
  EXPECT_EQ(estimate_bytes(plan_with(vectors)), 3 * 8 * 8 * 8 + 8 * 8);
  EXPECT_EQ(estimate_bytes(plan_with(capacities)), 8 * 8 * 8 + 3 * 8);

  CostTable table;
  observe_times(&table, plan_with(values), 64, {10});
  observe_times(&table, plan_with(vectors), 64, {70});
  observe_times(&table, plan_with(capacities), 64, {30});
  EXPECT_NEAR(micros(table.predict(plan_with(values), 64).typical), 10, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with(vectors), 64).typical), 70, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with(capacities), 64).typical), 30, 0.1);
}

TEST(CostTable, WarmStartsAndConditionsAreTimedApart) {
  const Options cold{.decomposition = Decomposition::kGeneral, .method = Method::kJacobi};
  Options warm = cold, conditions = cold;
  warm.starting_vectors = conditions.condition = true;
  EXPECT_LT(estimate_flops(plan_with(warm)), estimate_flops(plan_with(cold)));
  EXPECT_EQ(estimate_bytes(plan_with(warm)), 8 * 8 * (8 + 16) + 8 * 16);
  EXPECT_EQ(estimate_bytes(plan_with(conditions)), 8 * 8 * 8 + 8 * 16 + 8 * 8);
  CostTable table;
  observe_times(&table, plan_with(cold), 64, {50});
  observe_times(&table, plan_with(warm), 64, {20});
  observe_times(&table, plan_with(conditions), 64, {70});
  EXPECT_NEAR(micros(table.predict(plan_with(cold), 64).typical), 50, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with(warm), 64).typical), 20, 0.1);
  EXPECT_NEAR(micros(table.predict(plan_with(conditions), 64).typical), 70, 0.1);
}

}  // namespace
}  // namespace svdserve::server
