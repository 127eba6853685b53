#include "engine/backends/host/large/blocked_batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>

#include "engine/backends/host/base/vector_planes.h"
#include "engine/backends/host/base/widening.h"
#include "engine/backends/host/finish/finishing.h"
#include "engine/backends/host/large/blocked_svd.h"
#include "engine/backends/host/packs/packing.h"
#include "engine/backends/host/values/bidiagonal_values.h"

namespace svdserve::host {
namespace {

// The workspace of a matrix of up to this many bytes stays with its thread. A larger one is allocated for each task,
// whose work outweighs that.
constexpr uint64_t kKeptOperandBytes = uint64_t{1} << 20;

// The workspace of Hermitian matrices is sized by it.
LargePlan eigen_plan_of(const Plan& plan) {
  LargeOptions options;
  options.kind = LargeKind::kHermitian;
  options.triangle = plan.triangle;
  options.method = Method::kTridiagonal;
  options.vectors = plan.outputs.vectors() ? Vectors::kThin : Vectors::kNone;
  return *plan_large(widened(plan.problem), options).plan;
}

// A tolerance or a limit of sweeps given by the caller refers to the Jacobi method from the triangle on: then there is
// no warm start. Else the driver decides on a warm start, by the matrix, and on the tolerance: its own is the
// smaller.
LargePlan large_plan_of(const Plan& plan) {
  if (plan.decomposition == Decomposition::kHermitian) return eigen_plan_of(plan);
  LargeOptions options;
  options.vectors = plan.outputs.vectors() ? Vectors::kThin : Vectors::kNone;
  const auto own = make_plan(widened(plan.problem), {.method = Method::kJacobi, .vectors = options.vectors}).plan;
  if (plan.tolerance != own->tolerance) options.tolerance = plan.tolerance;
  if (plan.max_sweeps != own->max_sweeps || options.tolerance != 0) options.method = Method::kJacobi;
  options.max_sweeps = plan.max_sweeps;
  return *plan_large(widened(plan.problem), options).plan;
}

Outputs thin_outputs(int64_t k) {
  Outputs outputs;
  outputs.left_columns = outputs.right_columns = k;
  return outputs;
}

bool is_equal(const VectorLayout& a, const VectorLayout& b) {
  return a.rows == b.rows && a.columns == b.columns && a.row_stride == b.row_stride && a.col_stride == b.col_stride &&
         a.conjugate == b.conjugate;
}

// T, of which only X and Y have a plane (engine/vector_layout.h).
VectorLayout layout_of_t(const Problem& p) {
  const bool wide = p.cols > p.rows, by_rows = (p.order == Order::kRowMajor) != wide;
  const int64_t rows = std::max(p.rows, p.cols), k = values_per_matrix(p);
  return {wide ? Plane::kRight : Plane::kLeft, rows, k, by_rows ? k : 1, by_rows ? 1 : rows, false};
}

bool is_set(const std::atomic<bool>* cancel) { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }

MatrixStatus status_of(const LargeOutcome& outcome) {
  switch (outcome.status) {
    case LargeStatus::kOk:
      return outcome.out_of_range ? MatrixStatus::kOutOfRange : MatrixStatus::kOk;
    case LargeStatus::kNotConverged:
    case LargeStatus::kFault:
      return MatrixStatus::kNotConverged;
    case LargeStatus::kNonFinite:
      return MatrixStatus::kNonFinite;
    default:
      throw std::bad_alloc();  // what is left without a device, a signature and a cancel flag
  }
}

}  // namespace

template <class T>
struct BlockedBatch<T>::Made {
  MatrixStatus status;
  bool results;       // false: nothing counts
  VectorLayout x, y;  // of the thin vectors in the workspace
};

// The workspace of one thread.
template <class T>
struct BlockedBatch<T>::Workspace {
  std::optional<LargePlan> plan;  // what `factor` has memory for
  BlockedSvd factor;
  BidiagonalSvd<T> real;  // BIDIAGONAL
  BidiagonalSvd<std::complex<T>> complex;
  HermitianEigen<T> symmetric;  // TRIDIAGONAL
  HermitianEigen<std::complex<T>> hermitian;
  BlockedFinish<T> finish_real;
  BlockedFinish<std::complex<T>> finish_complex;
  AlignedBuffer<T> matrix;  // of operands that are not aligned, or narrow
  AlignedBuffer<T> left, right, values, weights;
  AlignedBuffer<T> diagonals, superdiagonals;  // of bidiagonal forms
  AlignedBuffer<double> scratch;
  AlignedBuffer<char> finishing;

  void prepare(const LargePlan& wanted) {
    if (plan == wanted) return;
    plan.reset();
    factor = BlockedSvd();  // the other shape's memory goes
    real = BidiagonalSvd<T>();
    complex = BidiagonalSvd<std::complex<T>>();
    symmetric = HermitianEigen<T>();
    hermitian = HermitianEigen<std::complex<T>>();
    finish_real = BlockedFinish<T>();
    finish_complex = BlockedFinish<std::complex<T>>();
    left.reserve(wanted.left_bytes() / sizeof(T));
    right.reserve(wanted.right_bytes() / sizeof(T));
    values.reserve(static_cast<size_t>(wanted.values));
    plan = wanted;  // now that there was memory for all of it
  }
};

template <class T>
BlockedBatch<T>::BlockedBatch(const Plan& plan, const MatrixSource& source, StatusCounters& counters,
                              const MimoTask<T>& mimo)
    : plan_(plan),
      source_(source),
      counters_(counters),
      mimo_(mimo),
      k_(values_per_matrix(plan.problem)),
      components_(is_complex(plan.problem.dtype) ? 2 : 1),
      factor_plan_(large_plan_of(plan)) {}

template <class T>
bool BlockedBatch<T>::run(int64_t first, int64_t last, const std::atomic<bool>* cancel, T* kept) const {
  static thread_local Workspace of_this_thread;
  std::optional<Workspace> of_this_task;
  const bool keep = factor_plan_.operand_bytes() <= kKeptOperandBytes;
  Workspace& workspace = keep ? of_this_thread : of_this_task.emplace();
  workspace.prepare(factor_plan_);
  const int64_t step = gathers_values() ? kMostBidiagonals : 1;
  for (int64_t i = first; i < last; i += step) {
    if (is_set(cancel)) return false;
    workspace.values.reserve(static_cast<size_t>(step * k_));
    T* const values = kept != nullptr ? kept + (i - first) * k_ : workspace.values.data();
    if (!gathers_values()) {
      source_.for_each(i, 1, [&](int, const MatrixSource::Slot& slot) { compute(workspace, slot, values); });
    } else if (!compute_values(workspace, i, static_cast<int>(std::min(step, last - i)), cancel, values)) {
      return false;
    }
  }
  return true;
}

template <class T>
int64_t BlockedBatch<T>::matrices_of_task(int64_t count, int threads) const {
  if (!gathers_values()) return 1;
  const int64_t of_thread = std::max<int64_t>(1, (count + threads - 1) / threads);
  const int64_t tasks = (of_thread + kMostBidiagonals - 1) / kMostBidiagonals;
  return (of_thread + tasks - 1) / tasks;
}

template <class T>
void BlockedBatch<T>::compute(Workspace& workspace, MatrixSource::Slot slot, T* values) const {
  slot.matrix = operand_of(workspace, slot.matrix);
  const Made made = decompose(workspace, slot.matrix, values);
  if (!made.results) {
    write_nan(slot, values);
  } else if (plan_.outputs.vectors()) {
    write_vectors(workspace, made, slot, values);
  }
  write_values(slot, made.status, values);
}

// false: cancelled.
template <class T>
bool BlockedBatch<T>::compute_values(Workspace& workspace, int64_t first, int count, const std::atomic<bool>* cancel,
                                     T* values) const {
  const int k = static_cast<int>(k_);
  workspace.diagonals.reserve(static_cast<size_t>(count * k));
  workspace.superdiagonals.reserve(static_cast<size_t>(count * k));
  workspace.scratch.reserve(bidiagonal_values_scratch(k));
  T *const d = workspace.diagonals.data(), *const e = workspace.superdiagonals.data();
  int exponents[kMostBidiagonals];
  bool finite[kMostBidiagonals];
  for (int l = 0; l < count; ++l) {
    if (is_set(cancel)) return false;
    source_.for_each(first + l, 1, [&](int, const MatrixSource::Slot& slot) {
      const void* const operand = operand_of(workspace, slot.matrix);
      const auto reduce = [&](auto& svd, const auto& t) {
        finite[l] = svd.reduce(t, d + l * k, e + l * k, &exponents[l]);
      };
      components_ == 1 ? reduce(workspace.real, tall_operand<T>(operand))
                       : reduce(workspace.complex, tall_operand<std::complex<T>>(operand));
    });
  }
  find_values(Bidiagonals<T>{k, count, d, e, values}, workspace.scratch.data());
  source_.for_each(first, count, [&](int l, const MatrixSource::Slot& slot) {
    T* const own = values + l * k;
    if (!finite[l]) write_nan(slot, own);
    write_values(slot, finite[l] ? scale_values(k, exponents[l], own) : MatrixStatus::kNonFinite, own);
  });
  return true;
}

// The matrix as numbers of type T, aligned: where it is, or in the workspace.
template <class T>
const char* BlockedBatch<T>::operand_of(Workspace& workspace, const char* matrix) const {
  const size_t bytes = matrix_bytes(widened(plan_.problem));
  if constexpr (std::is_same_v<T, float>) {
    if (is_narrow(plan_.problem)) {
      workspace.matrix.reserve(bytes / sizeof(T));
      widen_matrix(plan_.problem, matrix, workspace.matrix.data());
      return reinterpret_cast<const char*>(workspace.matrix.data());
    }
  }
  if (reinterpret_cast<uintptr_t>(matrix) % alignof(T) == 0) return matrix;
  workspace.matrix.reserve(bytes / sizeof(T));
  return static_cast<const char*>(std::memcpy(workspace.matrix.data(), matrix, bytes));
}

// A wide matrix is transposed (engine/vector_layout.h).
template <class T>
template <class E>
StridedMatrix<E> BlockedBatch<T>::tall_operand(const void* operand) const {
  const Problem& p = plan_.problem;
  const bool by_columns = p.order == Order::kColumnMajor;
  const StridedMatrix<E> t{static_cast<const E*>(operand), p.rows, p.cols, by_columns ? 1 : p.cols,
                           by_columns ? p.rows : 1};
  return p.rows >= p.cols ? t : StridedMatrix<E>{t.data, t.cols, t.rows, t.col_stride, t.row_stride};
}

// Thin vectors to workspace.left and .right, k values to `values`.
template <class T>
typename BlockedBatch<T>::Made BlockedBatch<T>::decompose(Workspace& workspace, const void* operand, T* values) const {
  const Problem& p = plan_.problem;
  if (plan_.host_method == Method::kBidiagonal) {
    const MatrixStatus status = components_ == 1 ? bidiagonal(workspace, workspace.real, operand, values)
                                                 : bidiagonal(workspace, workspace.complex, operand, values);
    const int64_t m = std::max(p.rows, p.cols);
    const bool tall = p.rows >= p.cols;
    return {status,
            status != MatrixStatus::kNonFinite,
            {tall ? Plane::kLeft : Plane::kRight, m, k_, 1, m, false},
            {tall ? Plane::kRight : Plane::kLeft, k_, k_, 1, k_, false}};
  }
  if (plan_.host_method == Method::kTridiagonal) {
    const MatrixStatus status =
        components_ == 1
            ? tridiagonal(workspace, workspace.symmetric, static_cast<const T*>(operand), values)
            : tridiagonal(workspace, workspace.hermitian, static_cast<const std::complex<T>*>(operand), values);
    return {status,
            status != MatrixStatus::kNonFinite,
            {Plane::kLeft, k_, k_, 1, k_, false},
            {Plane::kRight, k_, k_, 1, k_, false}};
  }
  const LargeOutcome outcome = workspace.factor.decompose(
      factor_plan_, {operand, nullptr, workspace.left.data(), values, workspace.right.data()});
  const Outputs thin = thin_outputs(k_);
  return {status_of(outcome), outcome.status == LargeStatus::kOk || outcome.status == LargeStatus::kNotConverged,
          long_layout(p, thin), short_layout(p, thin)};
}

template <class T>
template <class E>
MatrixStatus BlockedBatch<T>::bidiagonal(Workspace& workspace, BidiagonalSvd<E>& svd, const void* operand,
                                         T* values) const {
  const bool tall = plan_.problem.rows >= plan_.problem.cols;
  T* const x = tall ? workspace.left.data() : workspace.right.data();
  T* const y = tall ? workspace.right.data() : workspace.left.data();
  return svd.decompose(tall_operand<E>(operand), values, reinterpret_cast<E*>(x), reinterpret_cast<E*>(y));
}

template <class T>
template <class E>
MatrixStatus BlockedBatch<T>::tridiagonal(Workspace& workspace, HermitianEigen<E>& eigen, const E* operand,
                                          T* values) const {
  const int64_t n = plan_.problem.rows;
  const bool by_columns = plan_.problem.order == Order::kColumnMajor;
  E* const u = plan_.outputs.vectors() ? reinterpret_cast<E*>(workspace.left.data()) : nullptr;
  return eigen.decompose({operand, n, n, by_columns ? 1 : n, by_columns ? n : 1}, plan_.triangle == Triangle::kUpper,
                         values, u);
}

// From the thin vectors to the planes, eigenvectors as those of the left side; on the way full bases, phases, the
// certificate. As in finishing.h, these are made in the planes, or aside where a plane has too few columns for them.
template <class T>
void BlockedBatch<T>::write_vectors(Workspace& workspace, const Made& made, const MatrixSource::Slot& slot,
                                    const T* values) const {
  const Problem& p = plan_.problem;
  const Outputs& outputs = plan_.outputs;
  const VectorLayout x = long_layout(p, outputs), y = short_layout(p, outputs);
  T* const from_x = made.x.plane == Plane::kLeft ? workspace.left.data() : workspace.right.data();
  T* const from_y = made.x.plane == Plane::kLeft ? workspace.right.data() : workspace.left.data();
  const auto finish = [&](const PlacedMatrix& of_x, const PlacedMatrix& of_y) {
    components_ == 1 ? finish_vectors_of(workspace, workspace.finish_real, of_x, of_y, slot, values)
                     : finish_vectors_of(workspace, workspace.finish_complex, of_x, of_y, slot, values);
  };
  const bool aside = is_staged(plan_);
  if (aside) finish({from_x, made.x}, {from_y, made.y});
  copy_columns(from_x, made.x, x, slot);
  copy_columns(from_y, made.y, y, slot);
  if (!aside) finish({plane_of(slot, x), x}, {plane_of(slot, y), y});
}

template <class T>
template <class E>
void BlockedBatch<T>::finish_vectors_of(Workspace& workspace, BlockedFinish<E>& blocked, const PlacedMatrix& x,
                                        const PlacedMatrix& y, const MatrixSource::Slot& slot, const T* values) const {
  const bool svd = plan_.decomposition == Decomposition::kSvd;
  void* const certificate = slot.plane(Plane::kCertificate, kCertificateNumbers * sizeof(T));
  if (svd && x.data != nullptr && x.layout.columns > k_) blocked.complete(x, k_);
  if (plan_.outputs.fix_phases || (!svd && certificate != nullptr)) {
    FinishCall<T> call{values, x.data, x.layout, y.data, y.layout, MatrixStatus::kOk};
    call.x_layout.columns = std::min(x.layout.columns, k_);
    call.canonical = true;
    call.a = slot.matrix;
    call.certificate = svd ? nullptr : certificate;
    workspace.finishing.reserve(finish_workspace_bytes(plan_));
    call.workspace = workspace.finishing.data();
    finish_vectors(plan_, call);
  }
  if (!svd) return;
  const Problem& p = plan_.problem;
  if (certificate != nullptr) {
    blocked.certify(slot.matrix, layout_of_t(p), x, y, values, p.cols > p.rows, certificate);
  }
  if (plan_.outputs.gradients()) write_gradients(workspace, blocked, x, y, slot, values);
}

template <class T>
template <class E>
void BlockedBatch<T>::write_gradients(Workspace& workspace, BlockedFinish<E>& blocked, const PlacedMatrix& x,
                                      const PlacedMatrix& y, const MatrixSource::Slot& slot, const T* values) const {
  const auto places = slot.gradients(plan_);
  const auto k = static_cast<size_t>(k_);
  workspace.weights.reserve(k + gradient_scratch(k));
  T* const weights = workspace.weights.data();
  for (size_t kind = 0; kind < places.size(); ++kind) {
    if (places[kind] == nullptr) continue;
    const int count = kMimoGradients[kind].for_each_snr ? mimo_.snr_count : 1;
    for (int snr = 0; snr < count; ++snr) {
      gradient_weights(mimo_, static_cast<int>(kind), snr, values, weights, weights + k);
      char* const to = places[kind] + static_cast<size_t>(snr) * matrix_bytes(plan_.problem);
      blocked.multiply(x, weights, y, {to, layout_of_t(plan_.problem)});
    }
  }
}

// Columns of `made` to `to`, imaginary parts times `sign`, eight columns at a time: rows get whole cache lines.
template <int kParts, class T>
void copy_elements(const T* from, const VectorLayout& made, const VectorLayout& wanted, T sign, char* to) {
  const int64_t rows = made.rows, columns = std::min(wanted.columns, made.columns);
  const int64_t from_row = made.row_stride * kParts, from_column = made.col_stride * kParts;
  constexpr auto kBytes = static_cast<int64_t>(kParts * sizeof(T));
  const int64_t to_row = wanted.row_stride * kBytes, to_column = wanted.col_stride * kBytes;
  for (int64_t first = 0; first < columns; first += 8) {
    const int64_t end = std::min(first + 8, columns);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = first; j < end; ++j) {
        T parts[kParts];
        std::copy_n(from + i * from_row + j * from_column, kParts, parts);
        if constexpr (kParts == 2) parts[1] = parts[1] * sign + T(0);
        std::memcpy(to + i * to_row + j * to_column, parts, kBytes);
      }
    }
  }
}

// The leading columns of X or Y to their plane, every zero as +0.
template <class T>
void BlockedBatch<T>::copy_columns(const T* from, const VectorLayout& made, const VectorLayout& wanted,
                                   const MatrixSource::Slot& slot) const {
  char* const to = plane_of(slot, wanted);
  if (to == nullptr) return;
  const size_t element = components_ * sizeof(T);
  if (is_equal(made, wanted)) {
    std::memcpy(to, from, static_cast<size_t>(made.matrix_stride()) * element);
    return;
  }
  const T sign = made.conjugate != wanted.conjugate ? T(-1) : T(1);
  components_ == 1 ? copy_elements<1>(from, made, wanted, sign, to) : copy_elements<2>(from, made, wanted, sign, to);
}

template <class T>
void BlockedBatch<T>::write_values(const MatrixSource::Slot& slot, MatrixStatus status, const T* values) const {
  const size_t bytes = static_cast<size_t>(plan_.outputs.values) * sizeof(T);
  if (char* const to = slot.plane(Plane::kValues, bytes)) std::memcpy(to, values, bytes);
  counters_.add(status, 1);
  if (slot.status != nullptr) *slot.status = status;
}

template <class T>
void BlockedBatch<T>::write_nan(const MatrixSource::Slot& slot, T* values) const {
  std::fill_n(values, k_, FloatTraits<T>::nan());
  for (const Plane plane : {Plane::kLeft, Plane::kRight, Plane::kCertificate, Plane::kCapacityGradient,
                            Plane::kWaterFillingGradient, Plane::kEffectiveRankGradient}) {
    const size_t bytes = matrix_plane_bytes(plan_, plane);
    if (char* const to = slot.plane(plane, bytes)) fill_with_nan<T>(to, bytes);
  }
}

// Null: not wanted.
template <class T>
char* BlockedBatch<T>::plane_of(const MatrixSource::Slot& slot, const VectorLayout& layout) const {
  return slot.plane(layout.plane, static_cast<size_t>(layout.matrix_stride()) * components_ * sizeof(T));
}

template class BlockedBatch<float>;
template class BlockedBatch<double>;

}  // namespace svdserve::host
