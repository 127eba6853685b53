// Singular vectors keep the contract: residual, orthogonality and values, for every dtype, kind of matrix and class of
// shape, thin and full. The leading ones alone, one side alone and other layouts are the same bits.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/numerics/contract.h"
#include "tests/support/numerics/dead_lines.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_svd.h"
#include "tests/support/numerics/vector_checks.h"

namespace svdserve::numerics {
namespace {

struct Worst {
  long double residual = 0, left = 0, right = 0;
};

// More than a matrix takes that is not graded steeply.
constexpr int32_t kUsualSweeps = 20;

class VectorsTest : public ::testing::TestWithParam<DType> {
 protected:
  void test_shape(int64_t rows, int64_t cols, Vectors vectors, int64_t each) {
    const DType dtype = GetParam();
    std::vector<Matrix> matrices;
    std::vector<Kind> of;
    for (const Kind kind : kinds(dtype)) {
      for (int64_t i = 0; i < each; ++i) {
        matrices.push_back(generate(kind, dtype, rows, cols, static_cast<uint64_t>(i)));
        of.push_back(kind);
      }
    }
    const Order order = ++shapes_ % 2 == 0 ? Order::kRowMajor : Order::kColumnMajor;
    const auto bytes = pack(matrices, order);
    const Plan plan = plan_of({rows, cols, dtype, order}, {.vectors = vectors});
    const PlanesResult result = run_planes(engine_, plan, bytes.data(), static_cast<int64_t>(matrices.size()));
    for (size_t i = 0; i < matrices.size(); ++i) judge(plan, matrices[i], of[i], result, static_cast<int64_t>(i));
  }

  void judge(const Plan& plan, const Matrix& a, Kind kind, const PlanesResult& result, int64_t i) {
    const Problem& p = plan.problem;
    const int64_t k = values_per_matrix(p);
    const RealType real = real_type(p.dtype);
    const auto s = result.numbers(p.dtype, Plane::kValues, i * k, k);
    const MatrixStatus status = result.statuses[static_cast<size_t>(i)];
    const std::string where = std::string(name(p.dtype)) + " " + std::to_string(p.rows) + "x" + std::to_string(p.cols) +
                              " " + name(kind) + " matrix " + std::to_string(i);
    const Verdict verdict = check(plan, s, status, reference_singular_values(a));
    EXPECT_EQ(verdict.failure, "") << where;
    const Dense u = load(p, result, Plane::kLeft, i, p.rows, plan.outputs.left_columns);
    const Dense vh = load(p, result, Plane::kRight, i, plan.outputs.right_columns, p.cols);
    const long double left = orthogonality(u, false) / (static_cast<long double>(p.rows) * real.unit_roundoff);
    const long double right = orthogonality(vh, true) / (static_cast<long double>(p.cols) * real.unit_roundoff);
    EXPECT_LE(left, 10) << where;
    EXPECT_LE(right, 10) << where;
    Worst& worst = worst_[kind];
    worst.left = std::max(worst.left, left);
    worst.right = std::max(worst.right, right);
    // A value that over- or underflows is not the number whose vectors these are.
    long double largest = 0;
    for (const auto& z : a.elements) largest = std::max<long double>({largest, std::abs(z.real()), std::abs(z.imag())});
    if (status == MatrixStatus::kOutOfRange || largest < real.smallest_normal / real.unit_roundoff) return;
    const auto longer = static_cast<long double>(std::max(p.rows, p.cols));
    const long double r = residual(a, u, s, vh) / (longer * real.unit_roundoff);
    EXPECT_LE(r, 10) << where;
    worst.residual = std::max(worst.residual, r);
  }

  void print(const char* what) const {
    std::printf("%s, %s: worst of each kind, in units of max(m, n) u, m u, n u; bound 10\n", name(GetParam()), what);
    for (const auto& [kind, w] : worst_) {
      std::printf("  %-24s residual %5.2Lf  U %5.2Lf  V %5.2Lf\n", name(kind), w.residual, w.left, w.right);
    }
  }

  SvdEngine engine_;
  std::map<Kind, Worst> worst_;
  int shapes_ = 0;
};

TEST_P(VectorsTest, ThinVectorsKeepTheContract) {
  for (int64_t k = 1; k <= 32; ++k) {
    if (is_long_run() ? k > 16 && k % 5 != 2 : is_left_out(k)) continue;
    const int64_t each = scaled(k <= 8 ? 6 : 2);
    test_shape(k, k, Vectors::kThin, each);
    test_shape(k + 3, k, Vectors::kThin, each);
    test_shape(k, 2 * k + 1, Vectors::kThin, each);
    if (!is_long_run() && k > 5) continue;
    test_shape(70 + k, k, Vectors::kThin, 1);
    test_shape(k, 200, Vectors::kThin, 1);
  }
  if (!kSanitized) test_shape(1500, 4, Vectors::kThin, 1);
  print("thin");
}

// Beyond the k whose bits are the same everywhere: a path of its own.
TEST_P(VectorsTest, LargerMatricesKeepTheContract) {
  test_shape(33, 33, Vectors::kThin, 1);
  test_shape(36, 34, Vectors::kFull, 1);
  if (kSanitized) return;
  test_shape(40, 200, Vectors::kThin, 1);
  if (!is_long_run()) return;
  test_shape(48, 48, Vectors::kThin, 1);
  test_shape(65, 64, Vectors::kThin, 1);
  test_shape(300, 37, Vectors::kThin, 1);
  test_shape(33, 50, Vectors::kFull, 1);
  test_shape(66, 75, Vectors::kFull, 1);
  print("k > 32");
}

// Dead antennas: rows and columns that are zero, or copies of others. Nothing but rounding tells the columns of the
// null space apart, and yet they take the sweeps that other matrices take.
TEST_P(VectorsTest, DeadRowsKeepTheContract) {
  const auto test = [&](int64_t rows, int64_t cols, const DeadLines& lines, int64_t each, int32_t max_sweeps) {
    std::vector<Matrix> matrices;
    for (int64_t seed = 0; seed < each; ++seed) {
      matrices.push_back(
          with_dead_lines(generate(Kind::kNormal, GetParam(), rows, cols, static_cast<uint64_t>(seed)), lines));
    }
    const auto bytes = pack(matrices, Order::kRowMajor);
    const Options options{.method = Method::kJacobi, .max_sweeps = max_sweeps, .vectors = Vectors::kThin};
    const Plan plan = plan_of({rows, cols, GetParam(), Order::kRowMajor}, options);
    const PlanesResult result = run_planes(engine_, plan, bytes.data(), each);
    for (int64_t i = 0; i < each; ++i) judge(plan, matrices[static_cast<size_t>(i)], Kind::kZeroLines, result, i);
  };
  // The default of sweeps, or none but the usual ones.
  for (const int32_t sweeps : {0, kUsualSweeps}) {
    for (int64_t k = 17; k <= 32; ++k) {
      if (kSanitized ? k != 31 : !is_long_run() && k % 7 != 3) continue;
      const int64_t each = scaled(k == 31 ? 16 : 2, 2);
      test(k, k, {.rows = k / 2}, each, sweeps);
      test(k, k, {.rows = (k + 1) / 2, .copies = true}, each, sweeps);
      test(k, k, {.rows = k / 2, .cols = k - 5, .copies = true}, 2, sweeps);
      test(k, k, {.rows = k - 5, .row_step = 1}, 2, sweeps);
      test(k, k, {.rows = k - 5, .copies = true, .row_step = 1}, 2, sweeps);
    }
    test(32, 31, {.rows = 20}, 4, sweeps);
    test(90, 30, {.rows = 20, .copies = true}, 2, sweeps);
  }
  test(33, 33, {.rows = 17, .copies = true}, 4, 0);
  if (kSanitized) return;
  test(47, 47, {.rows = 23}, scaled(8), 0);
  test(63, 63, {.rows = 31}, scaled(8), 0);
  test(55, 55, {.rows = 28, .copies = true}, scaled(8), 0);
  test(64, 64, {.rows = 56, .row_step = 1}, scaled(4), 0);
  test(64, 47, {.rows = 34}, scaled(8), 0);
  test(126, 63, {.rows = 40}, scaled(8), 0);
  print("dead rows");
}

// Values far below u of the largest are not taken for noise where rows, columns or both are graded. They are as exact
// as those of the graded side.
TEST_P(VectorsTest, GradedRowsKeepTheirSmallValues) {
  const DType dtype = GetParam();
  for (const int64_t k : {17, 24, 31, 32}) {
    if (kSanitized && k > 17) continue;
    for (const bool dead : {false, true}) {
      for (const int cols : {-1, 0, 1}) {
        std::vector<Matrix> matrices;
        std::vector<double> conditions;
        for (uint64_t seed = 0; seed < 3; ++seed) {
          const Matrix b = generate(Kind::kNormal, dtype, k, k, seed);
          conditions.push_back(unit_column_condition(b));
          const int64_t alive = dead ? k - 4 : k;
          const int step = value_bytes(dtype) == 4 ? 1 : 4;
          matrices.push_back(with_dead_lines(b, {.rows = alive, .row_step = step, .col_step = cols}));
        }
        const auto bytes = pack(matrices, Order::kRowMajor);
        const Plan plan = plan_of({k, k, dtype, Order::kRowMajor}, {.vectors = Vectors::kThin});
        const PlanesResult r = run_planes(engine_, plan, bytes.data(), 3);
        for (size_t i = 0; i < 3; ++i) {
          const auto s = r.numbers(dtype, Plane::kValues, static_cast<int64_t>(i) * k, k);
          auto reference = reference_singular_values(matrices[i]);
          if (dead) std::fill(reference.end() - 4, reference.end(), 0);
          EXPECT_EQ(r.statuses[i], MatrixStatus::kOk);
          EXPECT_LE(relative_error(dtype, s, reference),
                    relative_bound(plan.problem) * conditions[i] * real_type(dtype).unit_roundoff)
              << name(dtype) << " k = " << k << " dead " << dead << " columns by 2^" << cols << " matrix " << i;
        }
      }
    }
  }
}

TEST_P(VectorsTest, TheLargestMatricesKeepTheContract) {
  if (!is_long_run()) GTEST_SKIP() << "of `./test.sh long`";
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{100, 100}, {128, 128}, {600, 128}}) {
    const Plan plan = plan_of({rows, cols, dtype, Order::kColumnMajor}, {.vectors = Vectors::kThin});
    std::vector<Matrix> matrices;
    const std::vector<Kind> of{Kind::kNormal, Kind::kLowRank, Kind::kColumnGraded};
    for (const Kind kind : of) matrices.push_back(generate(kind, dtype, rows, cols, 2));
    const auto bytes = pack(matrices, Order::kColumnMajor);
    const PlanesResult result = run_planes(engine_, plan, bytes.data(), static_cast<int64_t>(of.size()));
    for (size_t i = 0; i < of.size(); ++i) judge(plan, matrices[i], of[i], result, static_cast<int64_t>(i));
  }
  print("k = 100, 128");
}

TEST_P(VectorsTest, FullBasesKeepTheContract) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 3}, {4, 1}, {5, 3}, {3, 8}, {8, 8}, {20, 7}, {12, 40}, {70, 5}}) {
    if (!kSanitized || rows * cols < 60) test_shape(rows, cols, Vectors::kFull, 1);
  }
  print("full");
}

// A column depends neither on what else is asked for, nor on the order in which its matrix lies.
TEST_P(VectorsTest, PartsOfTheAnswerAreTheSameBits) {
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {4, 4}, {7, 5}, {5, 9}, {12, 12}, {100, 3}, {9, 80}, {34, 34}, {33, 300}, {64, 64}, {65, 90}}) {
    if (kSanitized ? std::min(rows, cols) > 34 : !is_long_run() && std::min(rows, cols) > 36) continue;
    std::vector<Matrix> matrices;
    for (const Kind kind : kinds(dtype)) matrices.push_back(generate(kind, dtype, rows, cols, 3));
    const auto count = static_cast<int64_t>(matrices.size());
    const int64_t k = std::min(rows, cols);
    for (const Order order : {Order::kRowMajor, Order::kColumnMajor}) {
      const Problem problem{rows, cols, dtype, order};
      const auto bytes = pack(matrices, order), turned = pack(matrices, Order::kRowMajor);
      const Plan all = plan_of(problem, {.vectors = Vectors::kThin});
      const PlanesResult whole = run_planes(engine_, all, bytes.data(), count);
      const Problem by_rows{rows, cols, dtype, Order::kRowMajor};
      const PlanesResult other =
          run_planes(engine_, plan_of(by_rows, {.vectors = Vectors::kThin}), turned.data(), count);
      for (const int64_t top : {int64_t{1}, k}) {
        const PlanesResult some =
            run_planes(engine_, plan_of(problem, {.vectors = Vectors::kThin, .top_k = top}), bytes.data(), count);
        MimoOptions mimo;
        mimo.precoder_columns = top;
        mimo.combiner_columns = top;
        const PlanesResult precoders =
            run_planes(engine_, plan_of(problem, {.values = false, .mimo = mimo}), bytes.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          const Dense u = load(problem, whole, Plane::kLeft, i, rows, k),
                      vh = load(problem, whole, Plane::kRight, i, k, cols);
          const Dense u_rows = load(by_rows, other, Plane::kLeft, i, rows, k);
          const Dense vh_rows = load(by_rows, other, Plane::kRight, i, k, cols);
          const Dense u_top = load(problem, some, Plane::kLeft, i, rows, top);
          const Dense vh_top = load(problem, some, Plane::kRight, i, top, cols);
          const Dense combiner = load(problem, precoders, Plane::kLeft, i, rows, top);
          const Dense precoder = load(problem, precoders, Plane::kRight, i, cols, top);
          for (int64_t j = 0; j < top; ++j) {
            for (int64_t r = 0; r < rows; ++r) {
              ASSERT_EQ(u_top.at(r, j), u.at(r, j));
              ASSERT_EQ(u_rows.at(r, j), u.at(r, j));
              ASSERT_EQ(combiner.at(r, j), u.at(r, j));
            }
            for (int64_t c = 0; c < cols; ++c) {
              ASSERT_EQ(vh_top.at(j, c), vh.at(j, c));
              ASSERT_EQ(vh_rows.at(j, c), vh.at(j, c));
              ASSERT_EQ(precoder.at(c, j), std::conj(vh.at(j, c)));
            }
          }
        }
      }
    }
  }
}

// The certificate agrees with a computation in long double, and phases are fixed as promised. Neither changes anything
// else, whichever part of the vectors is requested.
TEST_P(VectorsTest, CertificateAndPhases) {
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {4, 4}, {9, 5}, {3, 20}, {100, 6}, {36, 36}, {33, 45}, {64, 64}, {66, 80}}) {
    if (kSanitized ? std::min(rows, cols) > 34 : !is_long_run() && std::min(rows, cols) > 36) continue;
    std::vector<Matrix> matrices;
    for (int i = 0; i < 5; ++i)
      matrices.push_back(generate(Kind::kNormal, dtype, rows, cols, static_cast<uint64_t>(i)));
    matrices.push_back(generate(Kind::kLowRank, dtype, rows, cols, 1));
    matrices.push_back(generate(Kind::kZero, dtype, rows, cols, 1));
    const auto count = static_cast<int64_t>(matrices.size());
    const Problem p{rows, cols, dtype, Order::kRowMajor};
    const auto bytes = pack(matrices, Order::kRowMajor);
    const int64_t k = std::min(rows, cols);
    const PlanesResult plain = run_planes(engine_, plan_of(p, {.vectors = Vectors::kThin}), bytes.data(), count);
    const PlanesResult certified =
        run_planes(engine_, plan_of(p, {.vectors = Vectors::kThin, .certificate = true}), bytes.data(), count);
    const PlanesResult leading = run_planes(
        engine_, plan_of(p, {.vectors = Vectors::kThin, .top_k = 1, .certificate = true}), bytes.data(), count);
    for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
      EXPECT_EQ(plain.planes[static_cast<size_t>(plane)], certified.planes[static_cast<size_t>(plane)]);
    }
    EXPECT_EQ(leading.planes[index_of(Plane::kCertificate)], certified.planes[index_of(Plane::kCertificate)]);
    const PlanesResult fixed =
        run_planes(engine_, plan_of(p, {.vectors = Vectors::kThin, .fix_phases = true}), bytes.data(), count);
    MimoOptions mimo;
    mimo.precoder_columns = 1;
    const PlanesResult precoder =
        run_planes(engine_, plan_of(p, {.values = false, .fix_phases = true, .mimo = mimo}), bytes.data(), count);
    const double u_of_type = real_type(dtype).unit_roundoff;
    for (int64_t i = 0; i < count; ++i) {
      const auto s = plain.numbers(dtype, Plane::kValues, i * k, k);
      const Dense u = load(p, plain, Plane::kLeft, i, rows, k), vh = load(p, plain, Plane::kRight, i, k, cols);
      const auto c = certified.numbers(dtype, Plane::kCertificate, i * 3, 3);
      const double slack = 2 * u_of_type;
      EXPECT_NEAR(c[0], static_cast<double>(residual(matrices[static_cast<size_t>(i)], u, s, vh)), slack);
      EXPECT_NEAR(c[1], static_cast<double>(orthogonality(u, false)), slack);
      EXPECT_NEAR(c[2], static_cast<double>(orthogonality(vh, true)), slack);
      const Dense fu = load(p, fixed, Plane::kLeft, i, rows, k), fvh = load(p, fixed, Plane::kRight, i, k, cols);
      EXPECT_LE(residual(matrices[static_cast<size_t>(i)], fu, s, fvh),
                10 * static_cast<long double>(std::max(rows, cols)) * u_of_type);
      for (int64_t j = 0; j < k; ++j) {
        int64_t largest = 0;
        for (int64_t r = 1; r < rows; ++r) {
          if (std::norm(fu.at(r, j)) > std::norm(fu.at(largest, j)) * (1 + 16 * u_of_type)) largest = r;
        }
        EXPECT_GT(fu.at(largest, j).real(), 0);
        EXPECT_LE(std::abs(fu.at(largest, j).imag()), 16 * u_of_type);
      }
      const Dense v = load(p, precoder, Plane::kRight, i, cols, 1);
      for (int64_t r = 0; r < cols; ++r) EXPECT_EQ(v.at(r, 0), std::conj(fvh.at(0, r)));
    }
  }
}

TEST_P(VectorsTest, NotFiniteIsNaNThroughout) {
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {3, 3}, {9, 9}, {70, 3}, {2, 5}, {33, 33}, {34, 50}, {64, 64}, {64, 70}}) {
    const Problem p{rows, cols, dtype, Order::kRowMajor};
    std::vector<Matrix> matrices(3, generate(Kind::kNormal, dtype, rows, cols, 1));
    matrices[1].elements.back() = poison_value(Poison::kQuietNan);
    const auto bytes = pack(matrices, Order::kRowMajor);
    for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
      const Plan plan = plan_of(p, {.vectors = vectors});
      const PlanesResult r = run_planes(engine_, plan, bytes.data(), 3);
      EXPECT_EQ(r.statuses[1], MatrixStatus::kNonFinite);
      for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
        const size_t one = plane_bytes(plan, plane, 1), number = value_bytes(dtype);
        const auto& all = r.planes[static_cast<size_t>(plane)];
        for (size_t at = 0; at < one; at += number) EXPECT_TRUE(is_canonical_nan(dtype, all.data() + one + at));
        EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(one),
                               all.end() - static_cast<std::ptrdiff_t>(one)));
      }
    }
  }
}

// JACOBI with vectors keeps high relative accuracy for graded columns.
TEST_P(VectorsTest, GradedColumnsToHighRelativeAccuracy) {
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {2, 2}, {4, 4}, {8, 8}, {20, 20}, {30, 6}, {5, 70}, {48, 48}, {33, 70}, {64, 64}, {65, 80}}) {
    if (kSanitized ? std::min(rows, cols) > 34 : !is_long_run() && std::min(rows, cols) > 36) continue;
    std::vector<Matrix> matrices;
    for (int i = 0; i < 4; ++i)
      matrices.push_back(generate(Kind::kColumnGraded, dtype, rows, cols, static_cast<uint64_t>(i)));
    const Plan plan =
        plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = Method::kJacobi, .vectors = Vectors::kThin});
    const auto bytes = pack(matrices, Order::kRowMajor);
    const PlanesResult r = run_planes(engine_, plan, bytes.data(), 4);
    const int64_t k = std::min(rows, cols);
    for (int64_t i = 0; i < 4; ++i) {
      const Matrix& a = matrices[static_cast<size_t>(i)];
      const double error =
          relative_error(dtype, r.numbers(dtype, Plane::kValues, i * k, k), reference_singular_values(a));
      EXPECT_LE(error, relative_bound(plan.problem) * unit_column_condition(a) * real_type(dtype).unit_roundoff)
          << rows << "x" << cols;
    }
  }
}

// Larger matrices, too, do not depend on their batch, wherever their bytes begin.
TEST_P(VectorsTest, LargerMatricesDoNotKnowTheirBatch) {
  const DType dtype = GetParam();
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {97, 96}, {40, 40}}) {
    if (!is_long_run() && cols > 40) continue;
    std::vector<Matrix> matrices;
    for (const Kind kind : kinds(dtype)) matrices.push_back(generate(kind, dtype, rows, cols, 5));
    const auto count = static_cast<int64_t>(matrices.size());
    const auto bytes = pack(matrices, Order::kRowMajor);
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      const Plan plan = plan_of({rows, cols, dtype, Order::kRowMajor}, {.vectors = vectors});
      const PlanesResult together = run_planes(engine_, plan, bytes.data(), count);
      for (int64_t i = 0; i < count; ++i) {
        const auto one_bytes = pack({matrices[static_cast<size_t>(i)]}, Order::kRowMajor);
        std::vector<std::byte> odd(one_bytes.size() + 1);
        std::copy(one_bytes.begin(), one_bytes.end(), odd.begin() + 1);
        const PlanesResult alone = run_planes(engine_, plan, odd.data() + 1, 1);
        EXPECT_EQ(alone.statuses[0], together.statuses[static_cast<size_t>(i)]);
        for (const Plane plane : {Plane::kValues, Plane::kLeft, Plane::kRight}) {
          const auto &one = alone.planes[static_cast<size_t>(plane)],
                     &all = together.planes[static_cast<size_t>(plane)];
          const auto at = static_cast<std::ptrdiff_t>(i * static_cast<int64_t>(plane_bytes(plan, plane, 1)));
          EXPECT_TRUE(std::equal(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(plane_bytes(plan, plane, 1)),
                                 all.begin() + at))
              << rows << "x" << cols << " matrix " << i << " plane " << index_of(plane);
        }
      }
    }
  }
}

// The limit of sweeps is the caller's: one is not enough from the triangle on; the best known is given.
TEST_P(VectorsTest, LargerMatricesEndWithTheirSweeps) {
  const Problem p{64, 64, GetParam(), Order::kRowMajor};
  const auto bytes =
      pack({generate(Kind::kNormal, p.dtype, 64, 64, 1), generate(Kind::kZero, p.dtype, 64, 64, 1)}, Order::kRowMajor);
  const Options options{.method = Method::kJacobi, .max_sweeps = 1, .vectors = Vectors::kThin};
  const PlanesResult r = run_planes(engine_, plan_of(p, options), bytes.data(), 2);
  EXPECT_EQ(r.statuses[0], MatrixStatus::kNotConverged);
  EXPECT_EQ(r.statuses[1], MatrixStatus::kOk);
}

INSTANTIATE_TEST_SUITE_P(DTypes, VectorsTest, ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
