// MIMO numbers belong to their matrix, or group. Every instruction set, thread count, position and split into segments
// gives the bits that the scalar lane gives.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_mimo.h"

namespace svdserve::numerics {
namespace {

class AnswersSameBitsTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    for (const Simd simd : {Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
      if (!is_supported(simd)) continue;
      for (const int threads : {1, 3}) {
        engines_.push_back(std::make_unique<SvdEngine>(EngineOptions{.threads = threads, .simd = simd}));
      }
    }
  }

  // Every kind of matrix and more random ones, some of them not finite.
  static std::vector<Matrix> make_matrices(int64_t rows, int64_t cols, int64_t count, Random& random) {
    const std::vector<Kind> all = kinds(GetParam());
    std::vector<Matrix> matrices;
    for (int64_t i = 0; i < count; ++i) {
      const Kind kind = random.coin() ? Kind::kNormal : all[static_cast<size_t>(random.bits() % all.size())];
      matrices.push_back(generate(kind, GetParam(), rows, cols, random.bits() % 1000));
      if (random.integer(0, 40) == 0) matrices.back().at(0, 0) = poison_value(Poison::kQuietNan);
    }
    return matrices;
  }

  static Options options(int64_t group) {
    return {.mimo = all_mimo_numbers({-300, -60, -7, 0, 3, 10, 25, 100, 300}, group, 0.01)};
  }

  // The groups in random order: each takes its answers along.
  void expect_position_does_not_matter(const Plan& plan, const std::vector<std::byte>& bytes,
                                       const PlanesResult& expected, int64_t count, Random& random) const {
    const auto size = matrix_bytes(plan.problem) * static_cast<size_t>(plan.outputs.group);
    std::vector<size_t> order(static_cast<size_t>(count / plan.outputs.group));
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.bits() % i]);
    const auto moved = [&](const std::vector<std::byte>& from, size_t each) {
      std::vector<std::byte> to;
      for (const size_t i : order) to.insert(to.end(), from.begin() + i * each, from.begin() + (i + 1) * each);
      return to;
    };
    const auto& engine = *engines_[random.bits() % engines_.size()];
    const PlanesResult actual = run_planes(engine, plan, moved(bytes, size).data(), count);
    for (size_t p = 0; p < kPlanes; ++p) {
      const size_t each = plane_bytes(plan, static_cast<Plane>(p), plan.outputs.group);
      EXPECT_TRUE(actual.planes[p] == moved(expected.planes[p], each)) << "plane " << p << " moved";
    }
  }

  std::vector<std::unique_ptr<SvdEngine>> engines_;
};

TEST_P(AnswersSameBitsTest, WhateverComputesThem) {
  Random random(static_cast<uint64_t>(GetParam()) + 5);
  int64_t groups = 0;
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {2, 2}, {3, 3}, {4, 4}, {8, 8}, {4, 64}, {11, 9}, {32, 32}, {5, 200}}) {
    for (const int64_t group : {1, 2, 5, 64}) {
      if (kSanitized && group == 64 && rows * cols > 16) continue;  // 128 matrices by instrumented scalar code
      const int64_t count =
          std::max<int64_t>(scaled(rows * cols > 400 ? 100 : 600, kSanitized ? 8 : 20) / group, 2) * group;
      const Plan plan = plan_of({rows, cols, GetParam(), Order::kRowMajor}, options(group));
      const std::vector<std::byte> bytes = pack(make_matrices(rows, cols, count, random), Order::kRowMajor);
      const PlanesResult expected = run_planes(*engines_.front(), plan, bytes.data(), count);
      for (const auto& engine : engines_) {
        const std::string where = std::string(name(engine->simd())) + " " + std::to_string(engine->threads()) +
                                  " threads " + std::to_string(rows) + "x" + std::to_string(cols) + " groups of " +
                                  std::to_string(group);
        EXPECT_TRUE(run_planes(*engine, plan, bytes.data(), count) == expected) << where;
        EXPECT_TRUE(run_planes_in_segments(*engine, plan, bytes.data(), count, random) == expected)
            << where << " in segments";
      }
      expect_position_does_not_matter(plan, bytes, expected, count, random);
      groups += count / group;
    }
  }
  std::printf("%s: %lld groups on %zu engines\n", name(GetParam()), static_cast<long long>(groups), engines_.size());
}

TEST_P(AnswersSameBitsTest, VectorsWhateverComputesThem) {
  Random random(static_cast<uint64_t>(GetParam()) + 6);
  const Options wanted[] = {{.vectors = Vectors::kThin},
                            {.vectors = Vectors::kFull},
                            {.vectors = Vectors::kThin, .fix_phases = true, .certificate = true},
                            {.vectors = Vectors::kThin, .top_k = 1, .fix_phases = true, .certificate = true}};
  int64_t matrices = 0;
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {2, 2}, {3, 3}, {4, 4}, {5, 5}, {8, 8}, {9, 9}, {4, 30}, {70, 3}, {11, 9}, {13, 31}, {32, 32}}) {
    for (const Options& options : wanted) {
      const int64_t count = scaled(rows * cols > 100 ? 60 : 300, kSanitized ? rows * cols > 400 ? 2 : 6 : 12);
      const Plan plan = plan_of({rows, cols, GetParam(), Order::kRowMajor}, options);
      const std::vector<std::byte> bytes = pack(make_matrices(rows, cols, count, random), Order::kRowMajor);
      const PlanesResult expected = run_planes(*engines_.front(), plan, bytes.data(), count);
      for (const auto& engine : engines_) {
        const std::string where = std::string(name(engine->simd())) + " " + std::to_string(engine->threads()) +
                                  " threads " + std::to_string(rows) + "x" + std::to_string(cols);
        EXPECT_TRUE(run_planes(*engine, plan, bytes.data(), count) == expected) << where;
        EXPECT_TRUE(run_planes_in_segments(*engine, plan, bytes.data(), count, random) == expected)
            << where << " in segments";
      }
      expect_position_does_not_matter(plan, bytes, expected, count, random);
      matrices += count;
    }
  }
  std::printf("%s: vectors of %lld matrices on %zu engines\n", name(GetParam()), static_cast<long long>(matrices),
              engines_.size());
}

INSTANTIATE_TEST_SUITE_P(DTypes, AnswersSameBitsTest,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
