// Operands of 16-bit numbers. Every bit pattern becomes the float that it stands for, and every result has the bits of
// the same call on floats.
#include <bit>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "engine/core/widen.h"
#include "engine/large_engine.h"
#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/narrow.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_mimo.h"

namespace svdserve::numerics {
namespace {

constexpr OperandType kNarrow[] = {OperandType::kF16, OperandType::kBF16, OperandType::kC32, OperandType::kI16,
                                   OperandType::kCI16};

Problem problem_of(OperandType type, int64_t rows, int64_t cols, Order order, int32_t exponent = 0) {
  return {rows, cols, traits_of(type).dtype, order, traits_of(type).storage, exponent};
}

// All 65536 patterns.
template <class Widen>
void expect_exact(const Problem& problem, Widen widen) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const long double wanted = narrow_number(static_cast<uint16_t>(bits), problem);
    const float found = widen(static_cast<uint16_t>(bits));
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(found)) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<long double>(found), wanted) << bits;
    ASSERT_EQ(std::signbit(found), std::signbit(wanted)) << bits;
  }
}

TEST(NarrowOperands, EveryPatternIsExact) {
  expect_exact(problem_of(OperandType::kF16, 1, 1, Order::kRowMajor), WidenF16());
  expect_exact(problem_of(OperandType::kBF16, 1, 1, Order::kRowMajor), WidenBF16());
  for (int32_t exponent = kLeastExponent; exponent <= kLargestExponent; ++exponent) {
    expect_exact(problem_of(OperandType::kI16, 1, 1, Order::kRowMajor, exponent), WidenI16(exponent));
  }
  // No integer but zero is denormal or infinite at the ends of the range.
  EXPECT_EQ(std::fpclassify(WidenI16(kLeastExponent)(1)), FP_NORMAL);
  EXPECT_EQ(std::fpclassify(WidenI16(kLargestExponent)(0x8000)), FP_NORMAL);
}

struct Case {
  int64_t rows, cols, count;
};
const Case kCases[] = {{1, 1, 300},  {2, 2, 300}, {3, 3, 200}, {4, 4, 700}, {7, 7, 100},  {8, 8, 100},
                       {13, 13, 40}, {32, 32, 9}, {9, 4, 100}, {4, 64, 60}, {65, 3, 40},  {300, 8, 20},
                       {40, 17, 20}, {2, 700, 9}, {33, 33, 7}, {40, 70, 5}, {100, 96, 3}, {130, 36, 3}};

std::vector<Options> options_of(int64_t rows, int64_t cols) {
  const int64_t k = std::min(rows, cols);
  std::vector<Options> all{{},
                           {.method = Method::kJacobi},
                           {.vectors = Vectors::kThin},
                           {.vectors = Vectors::kThin, .top_k = 1, .fix_phases = true, .certificate = true}};
  if (k <= kLargestReproducible) {
    all.push_back({.method = Method::kBidiagonal});
    all.push_back({.method = Method::kBisection, .tolerance = 1e-4});
  }
  if (rows + cols <= 100) all.push_back({.vectors = Vectors::kFull});
  all.push_back({.values = false, .mimo = all_mimo_numbers({-7, 10}, 1, 0.01)});
  all.push_back({.values = true, .mimo = all_mimo_numbers({3}, 7, 0.1)});
  Options gradients{.values = false};
  gradients.mimo.capacity = gradients.mimo.water_filling = gradients.mimo.effective_rank = true;
  gradients.mimo.gradient = true;
  gradients.mimo.precoder_columns = 1;
  gradients.mimo.snr_db = {5};
  all.push_back(gradients);
  if (rows != cols) return all;
  for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
    all.push_back({.decomposition = Decomposition::kHermitian, .triangle = triangle});
    all.push_back({.decomposition = Decomposition::kHermitian,
                   .triangle = triangle,
                   .vectors = Vectors::kThin,
                   .certificate = true});
  }
  if (rows > kLargestGeneral) return all;
  for (const Method method : {Method::kQr, Method::kJacobi}) {
    all.push_back({.decomposition = Decomposition::kGeneral, .method = method});
    all.push_back({.decomposition = Decomposition::kGeneral,
                   .method = method,
                   .vectors = Vectors::kFull,
                   .certificate = true,
                   .condition = true});
  }
  all.push_back({.decomposition = Decomposition::kGeneral, .vectors = Vectors::kThin, .starting_vectors = true});
  return all;
}

// Random segments of `groups` groups.
std::vector<int64_t> random_sizes(int64_t groups, Random& random) {
  std::vector<int64_t> sizes;
  while (groups > 0) {
    sizes.push_back(random.integer(0, std::min<int64_t>(groups, 50)));
    groups -= sizes.back();
  }
  return sizes;
}

class NarrowOperandsTest : public ::testing::TestWithParam<OperandType> {};

TEST_P(NarrowOperandsTest, HaveTheBitsOfFloats) {
  Random random(91 + static_cast<uint64_t>(GetParam()));
  const SvdEngine scalar({.threads = 1, .simd = Simd::kScalar}), best({.threads = 2});
  int64_t compared = 0;
  for (const Case& c : kCases) {
    if (kSanitized && std::min(c.rows, c.cols) > 40) continue;
    for (const Options& options : options_of(c.rows, c.cols)) {
      const Order order = random.coin() ? Order::kRowMajor : Order::kColumnMajor;
      const bool is_integer = traits_of(GetParam()).storage == Storage::kI16;
      const auto exponent = static_cast<int32_t>(!is_integer ? 0 : random.coin() ? -12 : random.integer(-126, 112));
      const Problem problem = problem_of(GetParam(), c.rows, c.cols, order, exponent);
      const Plan narrow = plan_of(problem, options), wide = plan_of(widened(problem), options);
      const int64_t group = narrow.outputs.group;
      const int64_t least = std::min<int64_t>(c.count, kSanitized ? 3 : 40);
      const int64_t groups = (scaled(c.count * 10, least) + group - 1) / group;
      std::vector<std::byte> operands = narrow_batch(problem, groups * group, random);
      const std::vector<std::byte> floats = widened_bytes(operands, problem);
      std::vector<std::byte> starts(static_cast<size_t>(groups * group) * starting_bytes(narrow));
      for (size_t i = 0; i + 4 <= starts.size(); i += 4) {
        const auto x = static_cast<float>(random.normal());
        std::memcpy(starts.data() + i, &x, sizeof(x));
      }
      const auto sizes = random_sizes(groups, random);
      const PlanesResult wanted = run_planes(best, wide, floats.data(), groups * group, starts.data());
      operands.insert(operands.begin(), std::byte{1});  // not aligned
      const std::string what = std::string(operand_name(problem)) + " " + std::to_string(c.rows) + "x" +
                               std::to_string(c.cols) + " " + name(narrow.method);
      EXPECT_TRUE(wanted == run_planes(best, narrow, operands.data() + 1, sizes, starts.data())) << what;
      if (values_per_matrix(problem) <= 17) {
        EXPECT_TRUE(wanted == run_planes(scalar, narrow, operands.data() + 1, groups * group, starts.data())) << what;
      }
      compared += groups * group;
    }
  }
  std::printf("%s: %lld matrices\n", name(GetParam()), static_cast<long long>(compared));
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowOperandsTest, ::testing::ValuesIn(kNarrow),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(NarrowOperands, SizesAndNames) {
  for (int i = 0; i <= static_cast<int>(OperandType::kLast); ++i) {
    const auto type = static_cast<OperandType>(i);
    const Problem p = problem_of(type, 3, 5, Order::kRowMajor);
    EXPECT_STREQ(operand_name(p), name(type));
    EXPECT_EQ(stored_bytes(p), matrix_bytes(p) / (is_narrow(p) ? 2 : 1));
    const Plan plan = plan_of(p, {.vectors = Vectors::kThin});
    EXPECT_EQ(operand_bytes(plan), stored_bytes(p));
    EXPECT_EQ(result_bytes(plan, 1), result_bytes(plan_of(widened(p), {.vectors = Vectors::kThin}), 1));
  }
}

// The field of the error; empty: there is none.
std::string field_of(const Problem& problem) { return make_plan(problem, {}).error.field; }

TEST(NarrowOperands, TheirMistakesAreNamed) {
  const auto of = [](OperandType type, int32_t exponent) { return problem_of(type, 4, 4, Order::kRowMajor, exponent); };
  for (const OperandType type : {OperandType::kI16, OperandType::kCI16}) {
    for (const int32_t exponent : {-126, 0, 112}) EXPECT_EQ(field_of(of(type, exponent)), "");
    for (const int32_t exponent : {INT32_MIN, -127, 113, INT32_MAX})
      EXPECT_EQ(field_of(of(type, exponent)), "exponent");
  }
  for (const OperandType type : {OperandType::kF16, OperandType::kBF16, OperandType::kC32, OperandType::kF64}) {
    EXPECT_EQ(field_of(of(type, 0)), "");
    EXPECT_EQ(field_of(of(type, 1)), "exponent");
  }
  EXPECT_EQ(field_of({4, 4, DType::kF64, Order::kRowMajor, Storage::kF16}), "storage");
  EXPECT_EQ(plan_large(of(OperandType::kF16, 0), {}).error.field, "storage");
}

}  // namespace
}  // namespace svdserve::numerics
