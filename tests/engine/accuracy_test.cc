// The contract's bounds, for every dtype, method, shape class and kind of matrix, against a reference of higher
// precision. It prints the worst case of each beside the bound, and LAPACK's worst case on the same matrices.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
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

const std::vector<Method> kMethods = values_methods();

enum class ShapeClass : uint8_t { kSquare, kTall, kWide, kVeryTall, kVeryWide };
constexpr const char* kClassNames[] = {"square", "tall", "wide", "very tall", "very wide"};

ShapeClass shape_class(int64_t rows, int64_t cols) {
  if (rows == cols) return ShapeClass::kSquare;
  const bool very_long = is_very_long({rows, cols, DType::kF64, Order::kRowMajor});
  if (rows > cols) return very_long ? ShapeClass::kVeryTall : ShapeClass::kTall;
  return very_long ? ShapeClass::kVeryWide : ShapeClass::kWide;
}

struct Shape {
  int64_t rows;
  int64_t cols;
  bool all_kinds = true;  // false: the few kinds that the reduction of very long matrices can get wrong
  int64_t each = 1;       // matrices of each kind
};

void add_both_ways(std::vector<Shape>& shapes, Shape shape) {
  shapes.push_back(shape);
  std::swap(shape.rows, shape.cols);
  shapes.push_back(shape);
}

// Every k; sizes just past a square, twice, and a few times as long; around the reduction's tile of 64 rows; very long
// ones.
std::vector<Shape> shapes_to_test() {
  std::vector<Shape> shapes;
  Random random(20);
  for (int64_t k = 1; k <= 32; ++k) {
    if (is_left_out(k)) continue;
    const int64_t each = scaled(k <= 8 ? 6 : 2);
    shapes.push_back({k, k, true, each});
    add_both_ways(shapes, {k + 1, k, true, each});
    add_both_ways(shapes, {2 * k + 1, k, true, each});
    if (!is_long_run() && k % 5 != 2) continue;
    add_both_ways(shapes, {random.integer(k + 2, 60 + k), k, true, 1});
    add_both_ways(shapes, {random.integer(100, 400), k, true, 1});
  }
  for (const int64_t k : {1, 5, 8, 13, 32}) {
    for (const int64_t rows : {63, 64, 65, 127, 128, 129, 192}) {
      if (is_long_run() || (rows < 130 && rows % 2 == 1 && k % 2 == 1)) add_both_ways(shapes, {rows, k, false});
    }
  }
  for (const int64_t k : {1, 2, 4, 8, 15, 32}) {
    if (is_long_run() || k == 2 || k == 15) add_both_ways(shapes, {64 * std::max<int64_t>(k, 8) + 1, k, false});
    if (is_long_run()) add_both_ways(shapes, {random.integer(3000, 6000), k, false});
  }
  for (const int64_t k : {1, 4, 32}) {
    if (is_long_run() || (k == 4 && !kSanitized)) add_both_ways(shapes, {16384, k, false});
  }
  // From 96 on each is computed by itself.
  if (!kSanitized) shapes.push_back({97, 96, false});
  for (const int64_t k : {33, 50, 64}) {
    if (!is_long_run() && k > 33) break;
    shapes.push_back({k, k, true, 1});
    add_both_ways(shapes, {k + 2, k, false});
    add_both_ways(shapes, {257, k, false});
  }
  if (is_long_run()) {
    shapes.push_back({128, 128, false});
    add_both_ways(shapes, {1000, 100, false});
    shapes.push_back({16384, 33, false});
  }
  return shapes;
}

bool matters_for_long_matrices(Kind kind) {
  switch (kind) {
    case Kind::kNormal:
    case Kind::kGradedRows:
    case Kind::kColumnGraded:
    case Kind::kDuplicates:
    case Kind::kEqualValues:
    case Kind::kZero:
    case Kind::kOverflowEntry:
    case Kind::kOverflowing:
    case Kind::kDenormals:
      return true;
    default:
      return false;
  }
}

// The worst matrix of one (method, kind, shape class), by its distance to the bound.
struct Worst {
  double error = 0;
  double bound = 0;
  double lapack = 0;
  int64_t matrices = 0;
  Shape shape{0, 0};

  void add(const Verdict& verdict, double peer, const Shape& where) {
    ++matrices;
    lapack = std::max(lapack, peer);
    if (bound == 0 || verdict.ratio() > error / bound) {
      error = verdict.error;
      bound = verdict.bound;
      shape = where;
    }
  }
};

class Tables {
 public:
  Worst& at(Method method, Kind kind, ShapeClass shape) { return worst_[{method, kind, shape}]; }

  void print(DType dtype) const {
    for (const Method method : kMethods) {
      std::printf("\n%s %s: worst error / bound, and ?gesvd's worst on the same matrices; in units of u %s\n%-20s",
                  name(dtype), name(method), method == Method::kBisection ? "lambda_max (lambda = s^2)" : "s_max", "");
      for (const char* class_name : kClassNames) std::printf(" | %-19s", class_name);
      for (const Kind kind : kinds(dtype)) print_row(method, kind);
      std::printf("\n");
    }
    print_summary(dtype);
  }

 private:
  void print_row(Method method, Kind kind) const {
    std::printf("\n%-20s", name(kind));
    for (int shape = 0; shape < 5; ++shape) {
      const auto found = worst_.find({method, kind, static_cast<ShapeClass>(shape)});
      if (found == worst_.end()) {
        std::printf(" | %-19s", "-");
      } else {
        std::printf(" | %6.2f /%4.0f %6.2f", found->second.error, found->second.bound, found->second.lapack);
      }
    }
  }

  void print_summary(DType dtype) const {
    std::printf("\n%s: nearest to its bound\n", name(dtype));
    for (const Method method : kMethods) {
      const Worst* nearest = nullptr;
      Kind kind{};
      int64_t matrices = 0;
      for (const auto& [key, worst] : worst_) {
        if (std::get<0>(key) != method) continue;
        matrices += worst.matrices;
        if (nearest == nullptr || worst.error / worst.bound > nearest->error / nearest->bound) {
          nearest = &worst;
          kind = std::get<1>(key);
        }
      }
      std::printf("  %-10s %6lld matrices; %.2f of %.0f units, %s %lldx%lld\n", name(method),
                  static_cast<long long>(matrices), nearest->error, nearest->bound, name(kind),
                  static_cast<long long>(nearest->shape.rows), static_cast<long long>(nearest->shape.cols));
    }
  }

  std::map<std::tuple<Method, Kind, ShapeClass>, Worst> worst_;
};

struct Sample {
  Kind kind;
  uint64_t seed;
  std::vector<long double> reference;
  std::vector<double> lapack;
};

class AccuracyTest : public ::testing::TestWithParam<DType> {
 protected:
  // All kinds of one shape share one batch, so that each is computed beside the strangest neighbours.
  void test_shape(const Shape& shape) {
    const DType dtype = GetParam();
    std::vector<Sample> samples;
    std::vector<Matrix> matrices;
    for (const Kind kind : kinds(dtype)) {
      if (!shape.all_kinds && !matters_for_long_matrices(kind)) continue;
      for (int64_t i = 0; i < shape.each; ++i) {
        const auto seed = static_cast<uint64_t>(i);
        matrices.push_back(generate(kind, dtype, shape.rows, shape.cols, seed));
        samples.push_back({kind, seed, reference_singular_values(matrices.back()), gesvd(matrices.back())});
      }
    }
    const auto by_rows = pack(matrices, Order::kRowMajor);
    const auto by_columns = pack(matrices, Order::kColumnMajor);
    for (const Method method : kMethods) {
      const bool beyond = std::min(shape.rows, shape.cols) > kLargestReproducible;
      if (beyond && method == Method::kBisection) continue;
      // Beyond, AUTO alone asks for BIDIAGONAL.
      const Method asked = beyond && method == Method::kBidiagonal ? Method::kAuto : method;
      const Plan plan = plan_of({shape.rows, shape.cols, dtype, Order::kRowMajor}, {.method = asked});
      const Plan turned = plan_of({shape.rows, shape.cols, dtype, Order::kColumnMajor}, {.method = asked});
      EXPECT_EQ(plan.host_method, method);
      const auto count = static_cast<int64_t>(matrices.size());
      const RunResult result = run(engine_, plan, by_rows.data(), count);
      EXPECT_EQ(result.values, run(engine_, turned, by_columns.data(), count).values)
          << "orders differ: " << name(method) << " " << shape.rows << "x" << shape.cols;
      judge(shape, plan, samples, matrices, result);
    }
  }

  void judge(const Shape& shape, const Plan& plan, const std::vector<Sample>& samples,
             const std::vector<Matrix>& matrices, const RunResult& result) {
    for (size_t i = 0; i < samples.size(); ++i) {
      const Sample& sample = samples[i];
      const Verdict verdict =
          check(plan, result.values_of(plan, static_cast<int64_t>(i)), result.statuses[i], sample.reference);
      tables_.at(plan.host_method, sample.kind, shape_class(shape.rows, shape.cols))
          .add(verdict, error_of(plan, sample.lapack, sample.reference), shape);
      if (verdict.failure.empty()) continue;
      ++failures_;
      if (failures_ > 20) continue;  // enough to see a pattern
      ADD_FAILURE() << name(plan.problem.dtype) << " " << name(plan.host_method) << " " << shape.rows << "x"
                    << shape.cols << ", " << name(sample.kind) << ", seed " << sample.seed << ": " << verdict.failure
                    << (matrices[i].elements.size() <= 64 ? to_hex(matrices[i]) : std::string());
    }
  }

  SvdEngine engine_;
  Tables tables_;
  int failures_ = 0;
};

TEST_P(AccuracyTest, EveryKindAndShapeKeepsTheContract) {
  for (const Shape& shape : shapes_to_test()) test_shape(shape);
  tables_.print(GetParam());
  EXPECT_EQ(failures_, 0);
}

INSTANTIATE_TEST_SUITE_P(DTypes, AccuracyTest, ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
