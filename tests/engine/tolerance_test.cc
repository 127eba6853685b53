// The promises of the tolerances: BISECTION's bound at every delta, JACOBI's relative accuracy and its cosine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/lapack_peer.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

struct Sample {
  Kind kind;
  uint64_t seed;
  std::vector<long double> reference;
};

struct Batch {
  std::vector<Matrix> matrices;
  std::vector<Sample> samples;
  std::vector<std::byte> bytes;

  int64_t count() const { return static_cast<int64_t>(matrices.size()); }
};

Batch batch_of(const std::vector<Kind>& some, DType dtype, int64_t rows, int64_t cols, int64_t each) {
  Batch batch;
  for (const Kind kind : some) {
    for (int64_t i = 0; i < each; ++i) {
      const auto seed = static_cast<uint64_t>(100 + i);
      batch.matrices.push_back(generate(kind, dtype, rows, cols, seed));
      batch.samples.push_back({kind, seed, reference_singular_values(batch.matrices.back())});
    }
  }
  batch.bytes = pack(batch.matrices, Order::kRowMajor);
  return batch;
}

std::string label(const Plan& plan, const Sample& sample) {
  return std::string(name(plan.problem.dtype)) + " " + name(plan.method) + " " + std::to_string(plan.problem.rows) +
         "x" + std::to_string(plan.problem.cols) + ", " + name(sample.kind) + ", seed " + std::to_string(sample.seed) +
         ", tolerance " + std::to_string(plan.tolerance);
}

// abs(lambda - lambda_ref) <= 2 delta lambda_ref + 16 k u lambda_max at every delta, the clamped ones included. The
// calls end, also for singular matrices, where a relative test alone never would.
TEST(Tolerance, BisectionKeepsItsBoundAtEveryDelta) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    const std::vector<double> deltas{0, 1e-300, 1e-16, 1e-13, 1e-9, 1e-7, 1e-4, 1e-2, 0.3, 0.5};
    std::vector<double> worst(deltas.size(), 0);
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                     {2, 2},
                                     {3, 3},
                                     {4, 4},
                                     {5, 5},
                                     {6, 6},
                                     {7, 7},
                                     {8, 8},
                                     {4, 2},
                                     {5, 3},
                                     {6, 10},
                                     {9, 9},
                                     {16, 16},
                                     {32, 32},
                                     {300, 6},
                                     {7, 90}}) {
      const Batch batch = batch_of(kinds(dtype), dtype, rows, cols, scaled(rows <= 10 && cols <= 10 ? 20 : 3));
      for (size_t d = 0; d < deltas.size(); ++d) {
        const Plan plan =
            plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = Method::kBisection, .tolerance = deltas[d]});
        const RunResult result = run(engine, plan, batch.bytes.data(), batch.count());
        for (size_t i = 0; i < batch.samples.size(); ++i) {
          const Verdict verdict = check(plan, result.values_of(plan, static_cast<int64_t>(i)), result.statuses[i],
                                        batch.samples[i].reference);
          worst[d] = std::max(worst[d], verdict.ratio());
          ASSERT_EQ(verdict.failure, "") << label(plan, batch.samples[i]);
        }
      }
    }
    std::printf("%-4s BISECTION, worst error / bound:", name(dtype));
    for (size_t d = 0; d < deltas.size(); ++d) std::printf("  delta %.0e: %.3f", deltas[d], worst[d]);
    std::printf("\n");
  }
}

// Tighter is better: delta is used. The mean error of random matrices must fall with it.
TEST(Tolerance, BisectionIsAsAccurateAsAsked) {
  const SvdEngine engine;
  const Batch batch = batch_of({Kind::kNormal}, DType::kF64, 4, 4, 200);
  double previous = 1e300;
  for (const double delta : {1e-2, 1e-4, 1e-6, 1e-8}) {
    const Plan plan =
        plan_of({4, 4, DType::kF64, Order::kRowMajor}, {.method = Method::kBisection, .tolerance = delta});
    const RunResult result = run(engine, plan, batch.bytes.data(), batch.count());
    double worst = 0;
    for (int64_t i = 0; i < batch.count(); ++i) {
      worst = std::max(worst, relative_error(DType::kF64, result.values_of(plan, i),
                                             batch.samples[static_cast<size_t>(i)].reference));
    }
    EXPECT_LT(worst, previous / 20) << "delta " << delta;
    previous = worst;
  }
}

// JACOBI on A = B D: every normal value to 10 max(k, 8) kappa u, whatever its size. For the table: BIDIAGONAL's and
// LAPACK's relative errors on the same matrices, which have no such bound.
TEST(Tolerance, JacobiIsAccurateToEveryValueOfColumnGradedMatrices) {
  const SvdEngine engine;
  std::printf("relative error / (kappa u) of column-graded matrices\n%-6s %-10s %-10s %-8s %-14s %s\n", "dtype",
              "shape", "JACOBI", "bound", "BIDIAGONAL", "LAPACK ?gesvd");
  for (const DType dtype : kDTypes) {
    const double u = real_type(dtype).unit_roundoff;
    for (const int64_t k : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32}) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{k, k},
                                       {k + 1, k},
                                       {k, k + 3},
                                       {100, k},
                                       {k, 150},
                                       {64 * std::max<int64_t>(k, 8) + 70, k},
                                       {k, 4000}}) {
        if (is_left_out(k) || (!is_long_run() && std::max(rows, cols) > 500 && k % 4 != 1)) continue;
        const bool large = std::max(rows, cols) > 60;
        const Batch batch =
            batch_of({Kind::kColumnGraded}, dtype, rows, cols, large ? scaled(3) : scaled(k <= 8 ? 60 : 15));
        const Plan plan = plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = Method::kJacobi});
        const Plan other = plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = Method::kBidiagonal});
        const RunResult result = run(engine, plan, batch.bytes.data(), batch.count());
        const RunResult beside = run(engine, other, batch.bytes.data(), batch.count());
        double worst = 0, bidiagonal = 0, lapack = 0;
        for (size_t i = 0; i < batch.samples.size(); ++i) {
          const auto& reference = batch.samples[i].reference;
          const double kappa = unit_column_condition(batch.matrices[i]);
          ASSERT_LE(kappa, 10);
          const auto measure = [&](const std::vector<double>& s) {
            return relative_error(dtype, s, reference) / (kappa * u);
          };
          const double mine = measure(result.values_of(plan, static_cast<int64_t>(i)));
          EXPECT_EQ(result.statuses[i], MatrixStatus::kOk);
          ASSERT_LE(mine, relative_bound(plan.problem))
              << label(plan, batch.samples[i]) << hex_values(dtype, result.bytes_of(plan, static_cast<int64_t>(i)), k)
              << (batch.matrices[i].elements.size() <= 64 ? to_hex(batch.matrices[i]) : std::string());
          worst = std::max(worst, mine);
          bidiagonal = std::max(bidiagonal, measure(beside.values_of(other, static_cast<int64_t>(i))));
          lapack = std::max(lapack, measure(gesvd(batch.matrices[i])));
        }
        std::printf("%-6s %-10s %-10.2f %-8.0f %-14.3g %.3g\n", name(dtype),
                    (std::to_string(rows) + "x" + std::to_string(cols)).c_str(), worst, relative_bound(plan.problem),
                    bidiagonal, lapack);
      }
    }
  }
}

// Columns within a cosine c of orthogonal: G^H G = D (I + E) D, |E| <= (k - 1) c, so no value is off by more than that
// relative to itself (first order; the constant 2 covers the rest).
TEST(Tolerance, JacobiStopsAtTheCosineAskedFor) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {2, 4, 8, 12, 32}) {
      const Batch batch = batch_of({Kind::kNormal, Kind::kKahan, Kind::kClusters}, dtype, k, k, scaled(20));
      for (const double tolerance : {1e-3, 1e-2, 1.0}) {
        const Plan plan = plan_of({k, k, dtype, Order::kRowMajor}, {.method = Method::kJacobi, .tolerance = tolerance});
        const RunResult result = run(engine, plan, batch.bytes.data(), batch.count());
        for (size_t i = 0; i < batch.samples.size(); ++i) {
          EXPECT_EQ(result.statuses[i], MatrixStatus::kOk);
          if (tolerance == 1.0) continue;  // promises nothing but an end
          const auto& reference = batch.samples[i].reference;
          const auto values = result.values_of(plan, static_cast<int64_t>(i));
          for (size_t j = 0; j < values.size(); ++j) {
            const long double allowed =
                2 * static_cast<long double>(tolerance * static_cast<double>(k)) * reference[j] +
                static_cast<long double>(value_bound(plan.problem) * real_type(dtype).unit_roundoff) * reference[0];
            ASSERT_LE(std::abs(static_cast<long double>(values[j]) - reference[j]), allowed)
                << label(plan, batch.samples[i]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
