// Predicted seconds of the parts of a large decomposition, which its progress is weighed by. No result depends on them.
//
//   seconds = real operations / operations a second + columns * seconds a column
// for each kind of work, with the speeds of the back end. Their ratios are what matters, and 20 % are near enough.
// Counts of operations are those of the drivers' own headers; the shares of sweeps were measured (BENCHMARKS.md,
// "Progress of large matrices").
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_PREDICTED_WORK_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_PREDICTED_WORK_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/large_engine.h"
#include "engine/planner.h"

namespace svdserve::large {

// In which an operation is computed, at the least.
enum class Precision : uint8_t { kSingle, kDouble };
// The precision of an operation whose errors are those of the results.
inline Precision precision_of_results(DType dtype) {
  return value_bytes(dtype) == 4 ? Precision::kSingle : Precision::kDouble;
}

struct WorkSpeed {
  double operations = 1;      // real ones, a second
  double column_seconds = 0;  // beside these, for each column: steps that wait for the one before
};

// A back end's.
struct WorkSpeeds {
  WorkSpeed products;  // of matrices, of reflectors with a matrix, triangular solves
  WorkSpeed qr;
  WorkSpeed eigenbasis;  // of a Hermitian matrix
  WorkSpeed indefinite_factor;
  WorkSpeed sweeps;              // p-steps; columns of a whole sweep
  WorkSpeed general_qr;          // all eigenvalues and vectors of a general matrix
  double bytes = 1;              // of a matrix in the back end's memory that is loaded or stored, a second
  bool reads_in_place = true;    // tall operands are read where they lie
  double single_eigenbasis = 1;  // an eigenbasis in single precision takes this part of the time
};

// The parts of a decomposition, in their order.
struct WorkPart {
  LargeStage stage = LargeStage::kPrepare;
  double seconds = 0;
};
using WorkParts = std::vector<WorkPart>;

// Seconds of part `first` and those after it.
inline double seconds_from(const WorkParts& parts, size_t first) {
  double sum = 0;
  for (size_t i = first; i < parts.size(); ++i) sum += parts[i].seconds;
  return sum;
}

// Seconds of operations on matrices of doubles, or of complex numbers.
class PredictedWork {
 public:
  PredictedWork(const WorkSpeeds& speeds, DType dtype)
      : speeds_(speeds), operations_(is_complex(dtype) ? 4 : 1), bytes_(is_complex(dtype) ? 16 : 8) {}

  // A product that takes so many multiplications and additions.
  double product(double operations) const { return of(speeds_.products, operations, 0); }
  // m x n, m >= n. Narrow panels are bound by memory, as if they had more columns.
  double qr(double m, double n) const {
    constexpr double kPanelColumns = 140;
    return of(speeds_.qr, 2 * n * (n * (m - n / 3) + kPanelColumns * m), n);
  }
  // The n reflectors of length m, applied to `columns` columns.
  double reflect(double m, double n, double columns) const { return product(4 * columns * n * (m - n / 2)); }
  double eigenbasis(double n, Precision precision) const {
    const double part = precision == Precision::kSingle ? speeds_.single_eigenbasis : 1;
    return part * of(speeds_.eigenbasis, 14.0 / 3 * n * n * n, n);
  }
  double indefinite_factor(double n) const { return of(speeds_.indefinite_factor, n * n * n / 3, n); }
  double sweep(double n, bool with_v) const { return of(speeds_.sweeps, (with_v ? 10 : 6) * n * n * n, n); }
  double general_qr(double n) const { return of(speeds_.general_qr, 25 * n * n * n, n); }
  // To the back end's memory or from it.
  double copy(double rows, double columns) const { return rows * columns * bytes_ / speeds_.bytes; }

 private:
  double of(const WorkSpeed& speed, double operations, double columns) const {
    return operations_ * operations / speed.operations + columns * speed.column_seconds;
  }

  const WorkSpeeds speeds_;
  const double operations_, bytes_;
};

// --- block_jacobi.h ---------------------------------------------------------------------------------------------------

// From where its sweeps start.
enum class SvdStart : uint8_t {
  kEigenbasis,       // of the operand's Gram matrix
  kQrAndEigenbasis,  // of the Gram matrix of R^H
  kTwoQrs,
  kOneQr,  // hyperbolic
};

// Whether AUTO begins by an eigenbasis. That takes memory for four matrices or more beside the operand, and JACOBI at most
// two at a time. So a matrix of more columns goes without, and fits where two matrices do.
inline constexpr int64_t kLargestStartByEigenbasis = 32768;  // columns
inline bool may_start_by_eigenbasis(const LargePlan& plan) {
  const bool hyperbolic = plan.options.kind == LargeKind::kHyperbolicSvd;
  return !hyperbolic && plan.options.method != Method::kJacobi &&
         std::min(plan.problem.rows, plan.problem.cols) <= kLargestStartByEigenbasis;
}

// Whether the back end reads the tall operand, m x n, where it lies.
inline bool is_read_in_place(const LargePlan& plan, const WorkSpeeds& speeds) {
  const int64_t m = std::max(plan.problem.rows, plan.problem.cols), n = std::min(plan.problem.rows, plan.problem.cols);
  return speeds.reads_in_place && is_host_large_tall(m, n) && std::max(plan.left_columns, plan.right_rows) <= n;
}

// Whether a matrix of this shape may need no QR. One that is less than twice as tall as wide seldom is well-conditioned
// enough.
inline bool may_need_no_qr(const LargePlan& plan, const WorkSpeeds& speeds) {
  const int64_t m = std::max(plan.problem.rows, plan.problem.cols), n = std::min(plan.problem.rows, plan.problem.cols);
  const bool thin = std::max(plan.left_columns, plan.right_rows) <= n;
  return may_start_by_eigenbasis(plan) && (m == n || (m >= 2 * n && thin && !is_read_in_place(plan, speeds)));
}

// Unless the operand turns out to need another.
inline SvdStart expected_start(const LargePlan& plan, const WorkSpeeds& speeds) {
  if (plan.options.kind == LargeKind::kHyperbolicSvd) return SvdStart::kOneQr;
  if (!may_start_by_eigenbasis(plan)) return SvdStart::kTwoQrs;
  return may_need_no_qr(plan, speeds) ? SvdStart::kEigenbasis : SvdStart::kQrAndEigenbasis;
}

// The work of a check of all cosines, in whole sweeps.
inline double check_work(bool with_v) { return with_v ? 0.1 : 1.0 / 6; }

// The work of all sweeps and checks, in whole sweeps. An eigenbasis is as good as single precision asks for.
inline double expected_work(const LargePlan& plan, SvdStart start, bool with_v) {
  const bool full_block = plan.options.variant == BlockVariant::kFullBlock;
  if (start == SvdStart::kTwoQrs) return full_block ? 6 : 9;
  if (start == SvdStart::kOneQr) return full_block ? 8 : 11;
  if (value_bytes(plan.problem.dtype) == 4) return check_work(with_v);
  const bool is_square = plan.problem.rows == plan.problem.cols;
  return (start == SvdStart::kEigenbasis && is_square ? 0.25 : 0.05) + 2 * check_work(with_v);
}

// Indices of svd_parts(). kSvdQr: with kEigenbasis the Gram matrix, its Cholesky factor, and of a tall matrix the inverse.
// kSvdStart: the eigenbasis and the product with it, or the second QR.
enum SvdPart : size_t { kSvdLoad, kSvdQr, kSvdStart, kSvdSweeps, kSvdPolish, kSvdLeft, kSvdRight, kSvdCertificate };

inline WorkParts svd_parts(const LargePlan& plan, SvdStart start, const WorkSpeeds& speeds) {
  const PredictedWork work(speeds, plan.problem.dtype);
  const bool wide = plan.problem.rows < plan.problem.cols, warm = start <= SvdStart::kQrAndEigenbasis;
  const bool two = start == SvdStart::kTwoQrs, hyperbolic = start == SvdStart::kOneQr;
  const auto m = static_cast<double>(std::max(plan.problem.rows, plan.problem.cols));
  const auto n = static_cast<double>(std::min(plan.problem.rows, plan.problem.cols));
  const auto left = static_cast<double>(wide ? plan.right_rows : plan.left_columns);
  const auto right = static_cast<double>(wide ? plan.left_columns : plan.right_rows);
  const bool vectors = left > 0 || right > 0, with_v = hyperbolic ? right > 0 : vectors && warm;
  const double cube = n * n * n;
  WorkParts parts(kSvdCertificate + 1, {LargeStage::kFinish, 0});
  // A tall operand is scanned, which takes a quarter of a copy that is sorted.
  const bool in_place = is_read_in_place(plan, speeds);
  parts[kSvdLoad] = {LargeStage::kPrepare, work.copy(m, n) * (in_place ? 0.25 : 1)};
  if (start == SvdStart::kEigenbasis) {
    parts[kSvdQr] = {LargeStage::kWarmStart, work.product(m * n * n + (m > n ? 4 : 1) * cube / 3)};
    parts[kSvdStart] = {LargeStage::kWarmStart, work.eigenbasis(n, Precision::kDouble) + work.product(2 * cube)};
  } else {
    parts[kSvdQr] = {LargeStage::kPrecondition, work.qr(m, n)};
    parts[kSvdStart] = {LargeStage::kPrecondition, two ? work.qr(n, n) : 0};
    if (warm)
      parts[kSvdStart] = {LargeStage::kWarmStart, work.eigenbasis(n, Precision::kDouble) + work.product(3 * cube)};
  }
  parts[kSvdSweeps] = {LargeStage::kSweep, expected_work(plan, start, with_v) * work.sweep(n, with_v)};
  if (vectors) {
    const bool by_operand = start == SvdStart::kEigenbasis && m > n && left > 0;
    const double polish = two && right > 0 ? 4 * cube : hyperbolic ? 3 * cube : by_operand ? 2 * m * n * n : 0;
    parts[kSvdPolish].seconds = work.product(polish) + work.copy(n, n) / 4;
    if (left > 0) {
      parts[kSvdLeft].seconds = work.copy(m, left) * (in_place ? 0.25 : 1);
      if (start != SvdStart::kEigenbasis) parts[kSvdLeft].seconds += work.reflect(m, n, left);
    }
    if (right > 0) parts[kSvdRight].seconds = work.copy(n, right) / 4 + (two ? work.reflect(n, n, right) : 0);
  }
  if (plan.options.certificate) {
    parts[kSvdCertificate].seconds =
        work.product(m * left * left + n * right * right + 2 * m * n * n) + work.copy(m, n) + work.copy(m, left);
  }
  return parts;
}

// --- the other drivers ------------------------------------------------------------------------------------------------

// hermitian_tridiagonal.h
enum TridiagonalPart : size_t { kTridiagonalLoad, kTridiagonalBasis, kTridiagonalFinish, kTridiagonalCertificate };
inline WorkParts tridiagonal_parts(const LargePlan& plan, const WorkSpeeds& speeds) {
  const PredictedWork work(speeds, plan.problem.dtype);
  const auto n = static_cast<double>(plan.problem.rows);
  return {{LargeStage::kPrepare, work.copy(n, n)},
          {LargeStage::kPrepare, work.eigenbasis(n, precision_of_results(plan.problem.dtype))},
          {LargeStage::kFinish, work.product(2 * n * n * n) + work.copy(n, n) / 4},
          {LargeStage::kFinish, plan.options.certificate ? work.product(3 * n * n * n) + work.copy(n, n) : 0}};
}

// hermitian_factored.h; svd: factor_svd_plan()
enum FactoredPart : size_t { kFactoredFactor, kFactoredCondition, kFactoredSvd, kFactoredFinish, kFactoredCertificate };
inline WorkParts factored_parts(const LargePlan& plan, const LargePlan& svd, const WorkSpeeds& speeds) {
  const PredictedWork work(speeds, plan.problem.dtype);
  const auto m = static_cast<double>(plan.problem.rows), n = static_cast<double>(svd.problem.cols);
  const bool given = plan.options.kind == LargeKind::kHermitianFactor, certificate = plan.options.certificate;
  const WorkParts of_svd = svd_parts(svd, expected_start(svd, speeds), speeds);
  return {{LargeStage::kPrepare, work.copy(m, given ? n : m) + (given ? 0 : work.indefinite_factor(m))},
          {LargeStage::kPrepare, certificate ? work.qr(m, n) + work.product(3 * n * n * n) : 0},
          {LargeStage::kPrecondition, seconds_from(of_svd, kSvdQr)},
          {LargeStage::kFinish,
           (plan.left_columns > 0 ? work.copy(m, m) / 4 : 0) + (m > n ? work.reflect(m, n, m - n) : 0)},
          {LargeStage::kFinish, certificate ? work.product(4 * m * m * m) + work.copy(m, m) : 0}};
}

// leading_triplets.h: a step of the subspace with `columns` columns before it, and its parts where that is enough.
inline double subspace_step(const PredictedWork& work, double m, double n, double block, double columns) {
  return work.product(4 * m * n * block + 8 * (m + n) * block * columns) + work.qr(m, block) + work.qr(n, block);
}
enum LeadingPart : size_t { kLeadingLoad, kLeadingSteps, kLeadingFinish };
inline WorkParts leading_parts(const LargePlan& plan, const WorkSpeeds& speeds) {
  const PredictedWork work(speeds, plan.problem.dtype);
  const auto m = static_cast<double>(std::max(plan.problem.rows, plan.problem.cols));
  const auto n = static_cast<double>(std::min(plan.problem.rows, plan.problem.cols));
  const int64_t block = subspace_block(plan.values);
  const auto k = static_cast<double>(plan.values), b = static_cast<double>(block);
  double steps = 0;
  for (int64_t columns = 0; columns + block <= plan.subspace_columns; columns += block) {
    steps += subspace_step(work, m, n, b, static_cast<double>(columns));
  }
  const double residual = work.product(4 * m * n * k);
  return {{LargeStage::kPrepare, work.copy(m, n) * (speeds.reads_in_place && m >= 16 * n ? 0.25 : 1)},
          {LargeStage::kSubspace, steps},
          {LargeStage::kFinish, residual + work.copy(m + n, k) / 4 + (plan.options.certificate ? residual : 0)}};
}

// Methods QR and JACOBI of a general matrix, by whichever the plan has. JACOBI's time depends on the matrix too much.
enum GeneralPart : size_t { kGeneralLoad, kGeneralSolve, kGeneralFinish, kGeneralCertificate };
inline WorkParts general_parts(const LargePlan& plan, const WorkSpeeds& speeds) {
  const PredictedWork work(speeds, plan.problem.dtype), results(speeds, DType::kC128);  // eigenvectors are complex
  const auto n = static_cast<double>(plan.values);
  const int bases = (plan.left_columns > 0 ? 1 : 0) + (plan.right_rows > 0 ? 1 : 0);
  const LargeStage solve = plan.options.method == Method::kJacobi ? LargeStage::kSweep : LargeStage::kPrepare;
  const bool judged = bases > 0 && (plan.options.certificate || plan.options.method == Method::kJacobi);
  return {{LargeStage::kPrepare, work.copy(n, n)},
          {solve, work.general_qr(n) * (bases > 0 ? 1 : 0.8)},
          {LargeStage::kFinish, bases * results.copy(n, n) / 4},
          {LargeStage::kFinish, judged ? bases * (work.product(4 * n * n * n) + results.copy(n, n)) : 0}};
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_PREDICTED_WORK_H_
