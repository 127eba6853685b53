// The bits of a result belong to the matrix. Every instruction set, thread count, batch size, position, neighbourhood,
// split into segments and layout gives the bits of the scalar lane alone. One differing bit is a failure.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"

namespace svdserve::numerics {
namespace {

struct Case {
  int64_t rows;
  int64_t cols;
  int64_t count;  // matrices of each (method, options)
};

// Mostly the sizes that run one matrix a lane; every path of the planner at least.
std::vector<Case> cases() {
  std::vector<Case> all{{1, 1, 8000},  {2, 2, 16000}, {3, 3, 16000}, {4, 4, 16000}, {5, 5, 6000},  {6, 6, 6000},
                        {7, 7, 6000},  {8, 8, 6000},  {2, 4, 3000},  {4, 2, 3000},  {3, 5, 2000},  {7, 5, 2000},
                        {9, 8, 1000},  {4, 12, 1000}, {1, 6, 1000},  {9, 1, 1000},  {3, 40, 300},  {63, 2, 200},
                        {64, 4, 200},  {65, 3, 200},  {4, 129, 100}, {300, 8, 60},  {5, 513, 40},  {1000, 1, 40},
                        {9, 9, 300},   {13, 13, 200}, {16, 16, 150}, {24, 24, 80},  {31, 31, 50},  {32, 32, 50},
                        {12, 20, 100}, {40, 17, 60},  {32, 33, 40},  {700, 16, 15}, {10, 2100, 8}, {4096, 32, 2},
                        {2, 16384, 2}};
  for (int64_t k = 10; k <= 30; ++k) {
    if (!is_left_out(k)) all.push_back({k, k + k % 3, 20});
  }
  if (kSanitized) {
    std::erase_if(
        all, [](const Case& c) { return c.rows * c.cols > 10'000 || (std::min(c.rows, c.cols) > 17 && c.rows != 32); });
  }
  for (Case& c : all) {
    const bool small = std::min(c.rows, c.cols) <= 9;
    const int64_t least = is_long_run() ? 24 : kSanitized ? (small ? 9 : 5) : small ? 24 : 9;
    c.count = scaled(c.count, std::max(c.rows, c.cols) > 600 ? 2 : least);
  }
  return all;
}

const std::vector<Options>& options_to_test() {
  static const std::vector<Options> all = [] {
    std::vector<Options> of_methods;
    for (const Method method : values_methods()) of_methods.push_back({.method = method});
    return of_methods;
  }();
  return all;
}
const std::vector<Options>& rarer_options() {
  static const std::vector<Options> all{{.method = Method::kBisection, .tolerance = 1e-4},
                                        {.method = Method::kJacobi, .tolerance = 1e-3},
                                        {.method = Method::kJacobi, .max_sweeps = 1},
                                        {.method = Method::kJacobi, .max_sweeps = 3}};
  return all;
}

// `count` matrices as bytes: three quarters random at random scales, the rest of every kind, a few not finite.
// Hundreds of thousands are wanted, so ordinary ones are written as bytes at once.
std::vector<std::byte> make_batch(const Problem& problem, int64_t count, Random& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count) * matrix_bytes(problem));
  const std::vector<Kind> all = kinds(problem.dtype);
  const bool large = problem.rows * problem.cols > 5000;
  const int64_t largest_exponent = value_bytes(problem.dtype) == 4 ? 100 : 900;
  Matrix a(problem.dtype, problem.rows, problem.cols);
  for (int64_t i = 0; i < count; ++i) {
    const bool special = !large && random.integer(0, 3) == 0;
    if (special) {
      a = generate(all[static_cast<size_t>(random.bits() % all.size())], problem.dtype, problem.rows, problem.cols,
                   random.bits() % 1000);
      if (random.integer(0, 20) == 0) {
        const auto element = static_cast<size_t>(random.bits() % a.elements.size());
        a.elements[element] = poison_value(random.coin() ? Poison::kInfinity : Poison::kQuietNan);
      }
    } else {
      const double scale =
          std::ldexp(1.0, static_cast<int>(random.coin() ? 0 : random.integer(-largest_exponent, largest_exponent)));
      const bool complex = is_complex(problem.dtype);
      for (auto& z : a.elements) {
        const double re = random.uniform(-1, 1) * scale;
        z = {re, complex ? random.uniform(-1, 1) * scale : 0.0};
      }
    }
    store(a, problem.order, bytes.data() + static_cast<size_t>(i) * matrix_bytes(problem));
  }
  return bytes;
}

// The same matrices in the other layout.
std::vector<std::byte> turned(const std::vector<std::byte>& bytes, const Problem& problem, int64_t count) {
  std::vector<std::byte> out(bytes.size());
  const size_t element = element_bytes(problem.dtype);
  const auto rows = static_cast<size_t>(problem.rows), cols = static_cast<size_t>(problem.cols);
  for (size_t b = 0; b < static_cast<size_t>(count); ++b) {
    const std::byte* from = bytes.data() + b * matrix_bytes(problem);
    std::byte* to = out.data() + b * matrix_bytes(problem);
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j)
        std::memcpy(to + (j * rows + i) * element, from + (i * cols + j) * element, element);
    }
  }
  return out;
}

class SameBitsTest : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    scalar_ = std::make_unique<SvdEngine>(EngineOptions{.threads = 1, .simd = Simd::kScalar});
    for (const Simd simd : {Simd::kAvx2, Simd::kAvx512, Simd::kNeon}) {
      if (is_supported(simd)) targets_.push_back(simd);
    }
    targets_.push_back(Simd::kScalar);
    for (const int threads : {1, 3}) {
      for (const Simd simd : targets_) {
        engines_.push_back(std::make_unique<SvdEngine>(EngineOptions{.threads = threads, .simd = simd}));
      }
    }
  }

  // Compares matrix `i` of `expected` with matrix `at(i)` of `actual`; prints the first few that differ.
  template <class Where>
  void compare(const Plan& plan, const std::vector<std::byte>& bytes, const RunResult& expected,
               const RunResult& actual, int64_t count, const SvdEngine& engine, const char* how, Where at) {
    const size_t row = values_bytes(plan.problem);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t j = at(i);
      if (std::memcmp(expected.bytes_of(plan, i), actual.bytes_of(plan, j), row) == 0 &&
          expected.statuses[static_cast<size_t>(i)] == actual.statuses[static_cast<size_t>(j)]) {
        continue;
      }
      if (++differing_ > 5) continue;
      const int64_t k = values_per_matrix(plan.problem);
      ADD_FAILURE() << how << ", " << name(engine.simd()) << ", " << engine.threads()
                    << " threads: " << name(plan.problem.dtype) << " " << name(plan.method) << " tolerance "
                    << plan.tolerance << " sweeps " << plan.max_sweeps << " " << plan.problem.rows << "x"
                    << plan.problem.cols << " matrix " << i << " of " << count << "\nscalar, status "
                    << static_cast<int>(expected.statuses[static_cast<size_t>(i)]) << ":"
                    << hex_values(plan.problem.dtype, expected.bytes_of(plan, i), k) << "\nhere,   status "
                    << static_cast<int>(actual.statuses[static_cast<size_t>(j)]) << ":"
                    << hex_values(plan.problem.dtype, actual.bytes_of(plan, j), k)
                    << "\nelements as stored (row-major): "
                    << hex_values(plan.problem.dtype,
                                  bytes.data() + static_cast<size_t>(i) * matrix_bytes(plan.problem),
                                  std::min<int64_t>(plan.problem.rows * plan.problem.cols, 1024) *
                                      (is_complex(plan.problem.dtype) ? 2 : 1));
    }
  }

  // The same matrices in one call of every target, one thread: position, batch size and neighbours as they come.
  void compare_targets(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count,
                       const RunResult& expected) {
    for (size_t target = 0; target + 1 < targets_.size(); ++target) {
      const SvdEngine& engine = *engines_[target];
      compare(plan, bytes, expected, run(engine, plan, bytes.data(), count), count, engine, "whole batch",
              [](int64_t i) { return i; });
    }
  }

  // A part of them in random order among other neighbours, some of which are not finite, in random segments, on every
  // engine. The same in the other layout.
  void compare_rearranged(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count,
                          const RunResult& expected, Random& random) {
    const int64_t part = std::min(count, std::max<int64_t>(30, count / 40));
    const size_t size = matrix_bytes(plan.problem);
    for (const auto& engine : engines_) {
      std::vector<std::byte> mixed;
      std::vector<int64_t> place(static_cast<size_t>(part)), order(static_cast<size_t>(part));
      for (int64_t i = 0; i < part; ++i) order[static_cast<size_t>(i)] = i;
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.bits() % i]);
      int64_t placed = 0;
      for (const int64_t i : order) {
        if (random.integer(0, 4) == 0) {
          mixed.resize(mixed.size() + size, std::byte{0xff});  // a matrix of NaNs
          ++placed;
        }
        const std::byte* from = bytes.data() + static_cast<size_t>(i) * size;
        mixed.insert(mixed.end(), from, from + size);
        place[static_cast<size_t>(i)] = placed++;
      }
      compare(plan, bytes, expected, run_in_segments(*engine, plan, mixed.data(), placed, random), part, *engine,
              "rearranged in segments", [&](int64_t i) { return place[static_cast<size_t>(i)]; });
    }
    Plan other = plan;
    other.problem.order = Order::kColumnMajor;
    const std::vector<std::byte> columns = turned(bytes, plan.problem, part);
    const SvdEngine& engine = *engines_[random.bits() % engines_.size()];
    compare(plan, bytes, expected, run(engine, other, columns.data(), part), part, engine, "column-major",
            [](int64_t i) { return i; });
  }

  // Batches of one, two, three, .. matrices, from the first on.
  void compare_batch_sizes(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count,
                           const RunResult& expected) {
    const SvdEngine& engine = *engines_.front();
    const size_t row = values_bytes(plan.problem);
    int64_t first = 0;
    for (int64_t size = 1; size <= 20 && first + size <= count; first += size, ++size) {
      const RunResult alone =
          run(engine, plan, bytes.data() + static_cast<size_t>(first) * matrix_bytes(plan.problem), size);
      RunResult among = expected;  // as if the others had been there
      std::memcpy(among.values.data() + static_cast<size_t>(first) * row, alone.values.data(), alone.values.size());
      std::copy(alone.statuses.begin(), alone.statuses.end(), among.statuses.begin() + first);
      compare(plan, bytes, expected, among, first + size, engine, "small batch", [](int64_t i) { return i; });
    }
  }

  std::unique_ptr<SvdEngine> scalar_;
  std::vector<Simd> targets_;
  std::vector<std::unique_ptr<SvdEngine>> engines_;
  int64_t matrices_ = 0;
  int64_t differing_ = 0;
};

TEST_P(SameBitsTest, WhateverSurroundsTheMatrix) {
  Random random(static_cast<uint64_t>(GetParam()) + 77);
  const auto test = [&](const Case& c, const Options& options, int64_t count) {
    const Plan plan = plan_of({c.rows, c.cols, GetParam(), Order::kRowMajor}, options);
    const std::vector<std::byte> bytes = make_batch(plan.problem, count, random);
    const RunResult expected = run(*scalar_, plan, bytes.data(), count);
    compare_targets(plan, bytes, count, expected);
    compare_rearranged(plan, bytes, count, expected, random);
    compare_batch_sizes(plan, bytes, count, expected);
    matrices_ += count;
  };
  for (const Case& c : cases()) {
    for (const Options& options : options_to_test()) test(c, options, c.count);
    if (kSanitized && std::min(c.rows, c.cols) > 9) continue;
    for (const Options& options : rarer_options())
      test(c, options, std::min<int64_t>(c.count, c.rows * c.cols > 600 ? 2 : scaled(40, 9)));
  }
  std::string names;
  for (const Simd simd : targets_) names.append(" ").append(name(simd));
  std::printf("%s: %lld matrices, %lld differ; targets:%s\n", name(GetParam()), static_cast<long long>(matrices_),
              static_cast<long long>(differing_), names.c_str());
  EXPECT_EQ(differing_, 0);
  // Four dtypes make the million.
  EXPECT_TRUE(!is_long_run() || matrices_ >= 260'000);
}

INSTANTIATE_TEST_SUITE_P(DTypes, SameBitsTest, ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
