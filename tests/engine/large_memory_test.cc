// The host memory that a large factor is said to need, compared with the memory that it takes. Every allocation of this
// program is counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "tests/support/counted_heap.h"
#include "tests/support/numerics/effort.h"

namespace svdserve {
namespace {

// Most bytes that were taken while the factor of a random matrix was computed.
int64_t taken(const LargeEngine& engine, const LargePlan& plan) {
  std::vector<char> operand(plan.operand_bytes());
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto fill = [&](auto zero) {
    auto* const numbers = reinterpret_cast<decltype(zero)*>(operand.data());
    std::generate_n(numbers, operand.size() / sizeof(zero),
                    [&] { return static_cast<decltype(zero)>(normal(random)); });
  };
  if (value_bytes(plan.problem.dtype) == 4) {
    fill(0.0F);
  } else {
    fill(0.0);
  }
  std::vector<char> left(plan.left_bytes()), values(plan.values_bytes()), right(plan.right_bytes());
  LargeOperands operands;
  operands.matrix = operand.data();
  operands.left = left.empty() ? nullptr : left.data();
  operands.values = values.data();
  operands.right = right.empty() ? nullptr : right.data();
  const std::atomic<bool> cancel{false};
  LargeControl control;
  control.cancel = &cancel;
  const int64_t before = peak_bytes = live_bytes.load();
  EXPECT_EQ(engine.decompose(plan, operands, control).status, LargeStatus::kOk);
  return peak_bytes - before;
}

struct Case {
  int64_t rows, cols;
};

// Sizes that instrumented code takes seconds for.
bool takes_long(int64_t rows, int64_t cols) { return numerics::kSanitized && rows * cols > 40'000; }

TEST(LargeMemoryTest, IsEnough) {
  for (const int threads : {1, 8}) {
    const auto engine = make_host_large_engine(threads);
    for (const Case& c :
         {Case{1, 1}, {5, 3}, {64, 64}, {130, 130}, {140, 600}, {300, 140}, {2000, 10}, {20000, 3}, {300, 300}}) {
      if (takes_long(c.rows, c.cols)) continue;
      for (const DType dtype : {DType::kF64, DType::kC128}) {
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
          for (const Method method : {Method::kAuto, Method::kJacobi}) {
            if (vectors == Vectors::kFull && c.rows > 1000) continue;  // gigabytes
            LargeOptions options;
            options.method = method;
            options.vectors = vectors;
            options.certificate = vectors != Vectors::kNone;
            const LargePlan plan = *plan_large({c.rows, c.cols, dtype, Order::kColumnMajor}, options).plan;
            EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes))
                << c.rows << "x" << c.cols << " " << name(dtype) << " " << name(method) << ", " << threads
                << " threads";
          }
        }
      }
    }
  }
}

// A matrix is copied, or read where it lies. A subspace comes first, and the full decomposition after it.
TEST(LargeMemoryTest, IsEnoughForLeadingTriplets) {
  const int64_t tall = numerics::is_long_run() ? 5000 : 2500;
  for (const int threads : {1, 8}) {
    const auto engine = make_host_large_engine(threads);
    for (const Case& c : {Case{130, 130}, {400, 400}, {300, 500}, {tall, 300}, {300, tall}, {2000, 10}}) {
      if (takes_long(c.rows, c.cols)) continue;
      for (const DType dtype : {DType::kF64, DType::kC128}) {
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
          for (const int64_t top_k : {int64_t{5}, std::min<int64_t>(c.cols, 100)}) {
            LargeOptions options;
            options.vectors = vectors;
            options.top_k = top_k;
            options.certificate = vectors != Vectors::kNone;
            const LargePlan plan = *plan_large({c.rows, c.cols, dtype, Order::kColumnMajor}, options).plan;
            EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes))
                << c.rows << "x" << c.cols << " " << name(dtype) << ", " << top_k << " triplets, " << threads
                << " threads";
          }
        }
      }
    }
  }
}

// Cosines are checked where there are so many blocks.
TEST(LargeMemoryTest, IsEnoughForChecks) {
  const auto engine = make_host_large_engine(1);
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      LargeOptions options;
      options.method = method;
      options.vectors = vectors;
      const LargePlan plan = *plan_large({650, 650, DType::kF64, Order::kColumnMajor}, options).plan;
      EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes)) << name(method);
    }
  }
}

// Slots of members and checkpoints come on top.
TEST(LargeMemoryTest, IsEnoughForRings) {
  for (const int members : {1, 8}) {
    const auto engine = make_host_ring_engine(2, members);
    for (const Case& c : {Case{1, 1}, {5, 3}, {130, 130}, {140, 300}}) {
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        for (const Method method : {Method::kAuto, Method::kJacobi}) {
          LargeOptions options;
          options.method = method;
          options.vectors = vectors;
          const LargePlan plan = *plan_large({c.rows, c.cols, DType::kC128, Order::kColumnMajor}, options).plan;
          EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes))
              << c.rows << "x" << c.cols << " " << name(method) << ", " << members << " members";
        }
      }
    }
  }
}

TEST(LargeMemoryTest, IsEnoughForGeneralEigenproblems) {
  for (const int threads : {1, 8}) {
    const auto engine = make_host_large_engine(threads);
    for (const int64_t n : {1, 5, 33, 64, 130, 300}) {
      if (takes_long(n, n)) continue;
      for (const DType dtype : {DType::kF64, DType::kC128}) {
        for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
          for (const Method method : {Method::kQr, Method::kJacobi}) {
            LargeOptions options;
            options.kind = LargeKind::kGeneral;
            options.method = method;
            // To the end would take seconds. So QR follows, in memory beside that of JACOBI.
            if (method == Method::kJacobi && n > 130) options.max_sweeps = 1;
            options.vectors = vectors;
            options.certificate = vectors != Vectors::kNone;
            const LargePlan plan = *plan_large({n, n, dtype, Order::kColumnMajor}, options).plan;
            EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes))
                << n << " " << name(dtype) << " " << name(method) << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

TEST(LargeMemoryTest, IsEnoughForEigenproblems) {
  for (const int threads : {1, 8}) {
    const auto engine = make_host_large_engine(threads);
    for (const int64_t n : {1, 5, 33, 64, 130, 400}) {
      if (takes_long(n, n)) continue;
      for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
        for (const Method method : {Method::kTridiagonal, Method::kFactored}) {
          for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
            if (method == Method::kFactored && n > 130) continue;  // seconds
            LargeOptions options;
            options.kind = LargeKind::kHermitian;
            options.method = method;
            options.vectors = vectors;
            options.certificate = vectors != Vectors::kNone;
            const LargePlan plan = *plan_large({n, n, dtype, Order::kColumnMajor}, options).plan;
            EXPECT_LE(taken(*engine, plan), static_cast<int64_t>(engine->memory(plan).host_bytes))
                << n << " " << name(dtype) << " " << name(method) << ", " << threads << " threads";
          }
        }
      }
    }
  }
}

TEST(LargeMemoryTest, OfASmallOneIsSmall) {
  const auto engine = make_host_large_engine(2);
  const auto bytes = [&](int64_t m, int64_t n) {
    return engine->memory(*plan_large({m, n, DType::kF64, Order::kColumnMajor}, {}).plan).host_bytes;
  };
  EXPECT_LT(bytes(1, 1), 100'000u);
  EXPECT_LT(bytes(64, 64), 1'000'000u);
  EXPECT_LT(bytes(300, 300), 20'000'000u);
  // Values alone by JACOBI, or of so many columns: X, and its copy or the operand's.
  const LargeOptions values{.method = Method::kJacobi, .vectors = Vectors::kNone};
  EXPECT_LT(engine->memory(*plan_large({4000, 4000, DType::kF64, Order::kColumnMajor}, values).plan).host_bytes,
            2u * 4000 * 4000 * 8 + (40u << 20));
  const LargeOptions automatic{.vectors = Vectors::kNone};
  EXPECT_LT(engine->memory(*plan_large({60000, 60000, DType::kF64, Order::kColumnMajor}, automatic).plan).host_bytes,
            2 * 60000ull * 60000 * 8 + (40u << 20));
  // A large one needs at least the memory of its parts: a copy and six triangles.
  EXPECT_GT(bytes(4000, 4000), 7u * 4000 * 4000 * 8);
  EXPECT_LT(bytes(4000, 4000), 7u * 4000 * 4000 * 8 + (40u << 20));
}

}  // namespace
}  // namespace svdserve
