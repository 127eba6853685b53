// Gradients of MIMO numbers against those in long double, for matrices of every kind, and against differences of the
// numbers themselves. Groups, orders, matrices that are not finite, and the planner's errors follow.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_gradient.h"

namespace svdserve::numerics {
namespace {

Options with_gradients(std::vector<double> snr_db, int64_t group = 1) {
  Options options;
  options.values = false;
  options.mimo.capacity = options.mimo.effective_rank = options.mimo.gradient = true;
  options.mimo.water_filling = group == 1;
  options.mimo.snr_db = std::move(snr_db);
  options.mimo.group = group;
  return options;
}

class MimoGradientTest : public ::testing::TestWithParam<DType> {
 protected:
  Plan plan(int64_t rows, int64_t cols, const Options& options, Order order = Order::kRowMajor) const {
    return plan_of({rows, cols, GetParam(), order}, options);
  }
  int components() const { return is_complex(GetParam()) ? 2 : 1; }

  // Gradient number x of matrix m in a plane, column-major.
  std::vector<LongComplex> gradient(const Plan& plan, const PlanesResult& r, Plane plane, int64_t m, int64_t x) const {
    const Problem& p = plan.problem;
    const int64_t size = p.rows * p.cols, each = plane == Plane::kEffectiveRankGradient ? 1 : plan.outputs.snr_count;
    const auto numbers = r.numbers(GetParam(), plane, (m * each + x) * size * components(), size * components());
    std::vector<LongComplex> g(static_cast<size_t>(size));
    for (int64_t j = 0; j < p.cols; ++j) {
      for (int64_t i = 0; i < p.rows; ++i) {
        const auto at =
            static_cast<size_t>((p.order == Order::kRowMajor ? i * p.cols + j : j * p.rows + i) * components());
        g[static_cast<size_t>(j * p.rows + i)] = LongComplex(numbers[at], components() == 2 ? numbers[at + 1] : 0);
      }
    }
    return g;
  }

  // The decomposition's backward error, 10 max(m, n) u |A|, and what values lose below the smallest normal number.
  long double error_of(const Matrix& a, const LongSvd& svd) const {
    const RealType real = real_type(GetParam());
    long double square = 0;
    for (const long double s : svd.s) square += s * s;
    const auto size = static_cast<long double>(std::max(a.rows, a.cols));
    return 10 * size * (real.unit_roundoff * std::sqrt(square) + static_cast<long double>(real.smallest_denormal));
  }

  // |G - G_ref|_F as a part of its bound: the decomposition's error moves the gradient by the Lipschitz bound of w; w and
  // the product carry 20 k u |w|.
  double part_of_bound(const Matrix& a, const LongSvd& svd, const ReferenceWeights& weights,
                       const std::vector<LongComplex>& actual) const {
    const RealType real = real_type(GetParam());
    const auto expected = gradient_of(a, svd, weights.w);
    long double error = 0, norm_w = 0;
    for (size_t i = 0; i < expected.size(); ++i) error += std::norm(actual[i] - expected[i]);
    for (const long double w : weights.w) norm_w += w * w;
    const auto u = static_cast<long double>(real.unit_roundoff);
    const auto size = static_cast<long double>(std::max(a.rows, a.cols)), k = static_cast<long double>(a.values());
    const long double bound = weights.lipschitz * error_of(a, svd) + 20 * k * u * std::sqrt(norm_w) +
                              4 * k * size * static_cast<long double>(real.smallest_normal);
    return static_cast<double>(std::sqrt(error) / bound);
  }

  void check(const char* what, const Matrix& a, double part, const std::string& where) {
    if (!(part <= worst_)) worst_ = part;
    EXPECT_LE(part, 1) << what << " " << where << to_hex(a);
  }

  void check_matrix(const Plan& plan, const PlanesResult& r, int64_t m, const Matrix& a, const std::string& where) {
    const LongSvd svd = long_svd(a);
    for (int64_t x = 0; x < plan.outputs.snr_count; ++x) {
      const double snr = plan.outputs.snr[static_cast<size_t>(x)];
      const std::string at = where + " snr " + std::to_string(snr) + " ";
      check("capacity", a,
            part_of_bound(a, svd, capacity_weights(svd.s, snr, a.cols, error_of(a, svd)),
                          gradient(plan, r, Plane::kCapacityGradient, m, x)),
            at);
      if (!plan.outputs.water_filling) continue;
      check("water-filling", a,
            part_of_bound(a, svd, water_filling_weights(svd.s, snr, error_of(a, svd)),
                          gradient(plan, r, Plane::kWaterFillingGradient, m, x)),
            at);
    }
    // It has a derivative where all values are above rounding error, and numbers where it is below the largest.
    if (!(svd.s.back() > 100 * error_of(a, svd))) return;
    if (!(1e3L * static_cast<long double>(a.values()) / svd.s.front() < real_type(GetParam()).largest)) return;
    check("effective rank", a,
          part_of_bound(a, svd, effective_rank_weights(svd.s), gradient(plan, r, Plane::kEffectiveRankGradient, m, 0)),
          where);
  }

  const SvdEngine engine_{EngineOptions{.threads = 2}};
  double worst_ = 0;
};

TEST_P(MimoGradientTest, AreThoseOfHigherPrecisionForEveryKindOfMatrix) {
  const std::vector<std::pair<int64_t, int64_t>> shapes = {{1, 1},  {2, 2},   {4, 4},   {3, 5},   {9, 4},  {8, 8},
                                                           {2, 70}, {17, 17}, {70, 20}, {33, 33}, {40, 36}};
  uint64_t seed = 1;
  for (const auto& [rows, cols] : shapes) {
    const Plan p =
        plan(rows, cols, with_gradients({-40, 0, 17, 60}), rows % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor);
    std::vector<Matrix> all;
    std::vector<const char*> names;
    for (const Kind kind : kinds(GetParam())) {
      for (int64_t i = 0; i < (rows * cols > 500 ? 1 : scaled(40)); ++i) {
        all.push_back(generate(kind, GetParam(), rows, cols, seed++));
        names.push_back(name(kind));
      }
    }
    const auto bytes = pack(all, p.problem.order);
    const PlanesResult r = run_planes(engine_, p, bytes.data(), static_cast<int64_t>(all.size()));
    for (size_t m = 0; m < all.size(); ++m) {
      if (r.statuses[m] != MatrixStatus::kOk) continue;
      check_matrix(p, r, static_cast<int64_t>(m), all[m],
                   std::to_string(rows) + "x" + std::to_string(cols) + " " + names[m]);
    }
  }
  std::printf("%s: worst part of the bound %.2g\n", name(GetParam()), worst_);
}

// The change of a number in a direction.
TEST_P(MimoGradientTest, PredictDifferencesOfTheNumbers) {
  if (value_bytes(GetParam()) == 4) GTEST_SKIP() << "differences of single precision say little";
  Random random(3);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{4, 4}, {3, 6}, {7, 2}, {40, 35}}) {
    const Plan p = plan(rows, cols, with_gradients({3}));
    constexpr double kStep = 1e-5;
    const Matrix a = generate(Kind::kNormal, GetParam(), rows, cols, 7),
                 d = generate(Kind::kNormal, GetParam(), rows, cols, 8);
    Matrix forth = a, back = a;
    for (size_t i = 0; i < a.elements.size(); ++i) {
      forth.elements[i] += kStep * d.elements[i];
      back.elements[i] -= kStep * d.elements[i];
    }
    const auto bytes = pack({a, forth, back}, Order::kRowMajor);
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 3);
    for (const auto& [number, plane] : {std::pair(Plane::kCapacity, Plane::kCapacityGradient),
                                        std::pair(Plane::kWaterFilling, Plane::kWaterFillingGradient),
                                        std::pair(Plane::kEffectiveRank, Plane::kEffectiveRankGradient)}) {
      const auto f = r.numbers(GetParam(), number, 0, 3);
      const auto g = gradient(p, r, plane, 0, 0);
      long double slope = 0;
      for (size_t i = 0; i < g.size(); ++i) slope += (std::conj(g[i]) * LongComplex(d.elements[i])).real();
      EXPECT_NEAR((f[1] - f[2]) / (2 * kStep), static_cast<double>(slope), 1e-7 * static_cast<double>(rows * cols))
          << rows << "x" << cols << " plane " << static_cast<int>(plane);
    }
  }
}

TEST_P(MimoGradientTest, OfGroupsAreThoseOfTheirMatrices) {
  for (const int64_t n : {4, 34}) {
    std::vector<Matrix> all;
    for (uint64_t i = 0; i < 6; ++i) all.push_back(generate(Kind::kNormal, GetParam(), n, n, 20 + i));
    const auto bytes = pack(all, Order::kRowMajor);
    const PlanesResult alone = run_planes(engine_, plan(n, n, with_gradients({0, 10})), bytes.data(), 6);
    const PlanesResult groups = run_planes(engine_, plan(n, n, with_gradients({0, 10}, 3)), bytes.data(), 6);
    for (const Plane plane : {Plane::kCapacityGradient, Plane::kEffectiveRankGradient}) {
      EXPECT_EQ(alone.planes[static_cast<size_t>(plane)], groups.planes[static_cast<size_t>(plane)]) << n;
    }
  }
}

// Bytes of what is not finite are those of that matrix alone, with columns of V beside them.
TEST_P(MimoGradientTest, OfMatricesThatAreNotFiniteAreNaN) {
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{4, 3}, {34, 40}}) {
    Options options = with_gradients({0, 10}, 2);
    options.mimo.precoder_columns = 1;
    const Plan p = plan(rows, cols, options);
    std::vector<Matrix> all;
    for (uint64_t i = 0; i < 4; ++i) all.push_back(generate(Kind::kNormal, GetParam(), rows, cols, 30 + i));
    all[3].at(1, 2) = poison_value(Poison::kQuietNan);
    const auto bytes = pack(all, Order::kRowMajor);
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 4);
    EXPECT_EQ(r.statuses[3], MatrixStatus::kNonFinite);
    for (const Plane plane : {Plane::kCapacityGradient, Plane::kEffectiveRankGradient}) {
      for (int64_t m = 0; m < 4; ++m) {
        for (const LongComplex& g : gradient(p, r, plane, m, 0)) EXPECT_EQ(std::isnan(g.real()), m == 3);
      }
    }
    const auto v = r.numbers(GetParam(), Plane::kRight, 0, 4 * cols * components());
    for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(std::isnan(v[i]), i >= v.size() / 4 * 3) << i;
  }
}

TEST_P(MimoGradientTest, DoNotDependOnTheBatch) {
  Random random(5);
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{4, 4}, {6, 40}, {33, 33}}) {
    const Plan p = plan(rows, cols, with_gradients({5}));
    std::vector<Matrix> all;
    for (uint64_t i = 0; i < 30; ++i) all.push_back(generate(Kind::kNormal, GetParam(), rows, cols, 50 + i));
    const auto bytes = pack(all, Order::kRowMajor);
    EXPECT_EQ(run_planes(engine_, p, bytes.data(), 30), run_planes_in_segments(engine_, p, bytes.data(), 30, random));
  }
}

TEST_P(MimoGradientTest, AreRejectedWithoutANumberThatHasOne) {
  const Problem problem{4, 4, GetParam(), Order::kRowMajor};
  Options options;
  options.mimo.gradient = options.mimo.condition_number = true;
  EXPECT_EQ(make_plan(problem, options).error.field, "mimo.gradient");
  options.mimo.water_filling = true;
  options.mimo.snr_db = {0};
  EXPECT_TRUE(make_plan(problem, options).plan.has_value());
  options.mimo.group = 2;
  EXPECT_EQ(make_plan(problem, options).error.field, "mimo.gradient");
}

INSTANTIATE_TEST_SUITE_P(Types, MimoGradientTest, ::testing::ValuesIn(dtypes_of_run()),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
