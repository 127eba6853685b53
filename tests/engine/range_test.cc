// The range of the type: non-finite input at every place, values above the largest number, values below the smallest.
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/reference_svd.h"

namespace svdserve::numerics {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
const std::vector<Method> kMethods = values_methods();
constexpr Poison kPoisons[] = {Poison::kInfinity, Poison::kMinusInfinity, Poison::kQuietNan, Poison::kSignallingNan};

// Writes a poison into one part of one element. Signalling NaNs are written as bits: a conversion would quieten them.
void poison_part(std::byte* matrix, const Problem& problem, int64_t part, Poison poison) {
  std::byte* at = matrix + static_cast<size_t>(part) * value_bytes(problem.dtype);
  if (value_bytes(problem.dtype) == 8) {
    const double value = poison_value(poison);
    std::memcpy(at, &value, sizeof value);
    return;
  }
  uint32_t bits = 0;
  switch (poison) {
    case Poison::kInfinity:
      bits = 0x7f800000;
      break;
    case Poison::kMinusInfinity:
      bits = 0xff800000;
      break;
    case Poison::kQuietNan:
      bits = 0xffc12345;
      break;
    case Poison::kSignallingNan:
      bits = 0x7f800001;
      break;
  }
  std::memcpy(at, &bits, sizeof bits);
}

// Every second matrix is poisoned, each in another part; the others must not notice.
void expect_isolated_poison(const SvdEngine& engine, const Plan& plan) {
  const Problem& problem = plan.problem;
  const int64_t parts = problem.rows * problem.cols * (is_complex(problem.dtype) ? 2 : 1);
  const int64_t step = std::max<int64_t>(1, parts / 150);  // every part of small matrices, a spread of large ones
  const Matrix clean = generate(Kind::kNormal, problem.dtype, problem.rows, problem.cols, 4);
  const auto one = pack({clean}, problem.order);
  const RunResult alone = run(engine, plan, one.data(), 1);
  for (const Poison poison : kPoisons) {
    std::vector<std::byte> bytes;
    int64_t count = 0;
    for (int64_t part = 0; part < parts; part += step, count += 2) {
      bytes.insert(bytes.end(), one.begin(), one.end());
      bytes.insert(bytes.end(), one.begin(), one.end());
      poison_part(bytes.data() + bytes.size() - one.size(), problem, part == 0 ? parts - 1 : part - 1, poison);
    }
    const RunResult result = run(engine, plan, bytes.data(), count);
    EXPECT_EQ(result.outcome.report.non_finite, count / 2);
    const size_t row = values_bytes(problem);
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* values = result.bytes_of(plan, i);
      if (i % 2 == 0) {
        ASSERT_EQ(result.statuses[static_cast<size_t>(i)], MatrixStatus::kOk);
        ASSERT_EQ(std::memcmp(values, alone.values.data(), row), 0)
            << "the neighbour of a poisoned matrix changed:"
            << hex_values(problem.dtype, values, values_per_matrix(problem));
        continue;
      }
      ASSERT_EQ(result.statuses[static_cast<size_t>(i)], MatrixStatus::kNonFinite) << "matrix " << i;
      for (int64_t v = 0; v < values_per_matrix(problem); ++v) {
        ASSERT_TRUE(is_canonical_nan(problem.dtype, values + static_cast<size_t>(v) * value_bytes(problem.dtype)))
            << hex_values(problem.dtype, values, values_per_matrix(problem));
      }
    }
  }
}

TEST(Range, NonFiniteElementsAnywhereGiveCanonicalNansForTheirMatrixAlone) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{1, 1},
                                     {2, 2},
                                     {4, 4},
                                     {8, 8},
                                     {5, 3},
                                     {3, 7},
                                     {12, 12},
                                     {32, 32},
                                     {1, 90},
                                     {90, 1},
                                     {200, 4},
                                     {6, 150},
                                     {2000, 3}}) {
      for (const Method method : kMethods) {
        SCOPED_TRACE(std::string(name(dtype)) + " " + name(method) + " " + std::to_string(rows) + "x" +
                     std::to_string(cols));
        expect_isolated_poison(engine, plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = method}));
      }
    }
  }
}

TEST(Range, AWhollyNonFiniteBatch) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    for (const Method method : kMethods) {
      const Plan plan = plan_of({6, 6, dtype, Order::kRowMajor}, {.method = method});
      std::vector<std::byte> bytes(30 * matrix_bytes(plan.problem), std::byte{0xff});  // NaNs throughout
      EXPECT_EQ(run(engine, plan, bytes.data(), 30).outcome.report.non_finite, 30);
    }
  }
}

// Matrices with a value beyond the range stand between ordinary ones; those keep their bits.
TEST(Range, OverflowingValuesAreInfiniteForTheirMatrixAlone) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{2, 2}, {4, 4}, {8, 8}, {16, 16}, {30, 4}, {3, 1000}}) {
      for (const Method method : kMethods) {
        const Plan plan = plan_of({rows, cols, dtype, Order::kColumnMajor}, {.method = method});
        std::vector<Matrix> matrices, ordinary;
        for (uint64_t i = 0; i < 20; ++i) {
          ordinary.push_back(generate(Kind::kNormal, dtype, rows, cols, i));
          matrices.push_back(ordinary.back());
          matrices.push_back(generate(Kind::kOverflowing, dtype, rows, cols, i));
        }
        const RunResult mixed = run(engine, plan, pack(matrices, Order::kColumnMajor).data(), 40);
        const RunResult alone = run(engine, plan, pack(ordinary, Order::kColumnMajor).data(), 20);
        EXPECT_EQ(mixed.outcome.report.out_of_range, 20)
            << name(dtype) << " " << name(method) << " " << rows << "x" << cols;
        for (int64_t i = 0; i < 20; ++i) {
          EXPECT_EQ(std::memcmp(mixed.bytes_of(plan, 2 * i), alone.bytes_of(plan, i), values_bytes(plan.problem)), 0);
          const std::vector<double> s = mixed.values_of(plan, 2 * i + 1);
          EXPECT_TRUE(std::isinf(s.front()) && s.front() > 0);
          const Verdict verdict = check(plan, s, mixed.statuses[static_cast<size_t>(2 * i + 1)],
                                        reference_singular_values(matrices[static_cast<size_t>(2 * i + 1)]));
          EXPECT_EQ(verdict.failure, "") << name(dtype) << " " << name(method) << " " << rows << "x" << cols;
        }
      }
    }
  }
}

// Values below the smallest normal number are rounded once: exact here, where they are exact multiples of a denormal.
TEST(Range, DenormalValuesAreExactWhereTheyCanBe) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    const double unit = real_type(dtype).smallest_denormal;
    for (const Method method : kMethods) {
      Matrix a(dtype, 5, 4);
      a.at(2, 0) = 7 * unit;
      a.at(4, 1) = -1 * unit;
      a.at(1, 3) = 11 * unit;
      const Plan plan = plan_of({5, 4, dtype, Order::kRowMajor}, {.method = method});
      const RunResult result = run(engine, plan, pack({a}, Order::kRowMajor).data(), 1);
      EXPECT_EQ(result.values_of(plan, 0), (std::vector<double>{11 * unit, 7 * unit, unit, 0}))
          << name(dtype) << " " << name(method) << hex_values(dtype, result.bytes_of(plan, 0), 4);
      EXPECT_EQ(result.statuses[0], MatrixStatus::kOk);
    }
  }
}

// Scaling by a power of two scales the values exactly: the whole range is computed as its middle is.
TEST(Range, PowersOfTwoScaleTheValuesExactly) {
  const SvdEngine engine;
  for (const DType dtype : kDTypes) {
    const int top = std::ilogb(real_type(dtype).largest);
    for (const Method method : kMethods) {
      for (const int64_t k : {2, 4, 8, 11}) {
        const Plan plan = plan_of({k, k, dtype, Order::kRowMajor}, {.method = method});
        const Matrix a = generate(Kind::kNormal, dtype, k, k, 9);
        const std::vector<double> middle = run(engine, plan, pack({a}, Order::kRowMajor).data(), 1).values_of(plan, 0);
        for (const int exponent : {-top + 40, -top / 2, top / 2, top - 8}) {
          Matrix scaled = a;
          for (auto& z : scaled.elements) z = {std::ldexp(z.real(), exponent), std::ldexp(z.imag(), exponent)};
          std::vector<double> expected = middle;
          for (double& s : expected) s = std::ldexp(s, exponent);
          EXPECT_EQ(run(engine, plan, pack({scaled}, Order::kRowMajor).data(), 1).values_of(plan, 0), expected)
              << name(dtype) << " " << name(method) << " " << k << " times 2^" << exponent;
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve::numerics
