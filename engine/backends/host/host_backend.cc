#include "engine/backends/host/host_backend.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <type_traits>

#include "engine/algorithms/general/general_outcome.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/base/matrix_source.h"
#include "engine/backends/host/base/status_counters.h"
#include "engine/backends/host/base/vector_planes.h"
#include "engine/backends/host/base/widening.h"
#include "engine/backends/host/finish/finishing.h"
#include "engine/backends/host/large/blocked_batch.h"
#include "engine/backends/host/mimo/answer_stage.h"
#include "engine/backends/host/packs/kernel_table.h"
#include "engine/backends/host/packs/packing.h"
#include "engine/backends/host/tall/tall_reduction.h"
#include "engine/backends/host/tall/tall_vectors.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve::host {
namespace {

// Work below which a task is not worth handing to another thread, as a number of fused multiply-adds.
constexpr double kTaskWork = 100'000;

// The largest pack, in bytes of its matrices, that is asked for while the one before is computed: a quarter of the
// first-level data cache. eigh of 4 x 4 c128 gains 7 %, of 2 x 2 a third.
constexpr size_t kLargestPrefetchBytes = 8 * 1024;

// One call, as one of its tasks sees it.
template <class T>
struct Call {
  const Plan& plan;
  const KernelTable<T>& kernels;
  const MatrixSource& source;
  StatusCounts& counts;
  const MimoTask<T>& mimo;
  int k;
  size_t triangle_size;  // numbers of a k x k matrix

  Call(const Plan& p, const KernelTable<T>& t, const MatrixSource& s, StatusCounts& c, const MimoTask<T>& m)
      : plan(p),
        kernels(t),
        source(s),
        counts(c),
        mimo(m),
        k(static_cast<int>(values_per_matrix(p.problem))),
        triangle_size(static_cast<size_t>(k) * k * t.components) {}
};

// Packed arrays of one thread, kept from call to call: at most a few hundred KiB for k = 32, some MiB for k = 95.
template <class T>
struct PackBuffers {
  AlignedBuffer<T> a, scratch, exponents, values;
  AlignedBuffer<T> widened;                          // matrices of a pack, of narrow operands
  AlignedBuffer<T> x, y, ranks, staged_x, staged_y;  // of vectors
  AlignedBuffer<char> finishing;
  std::array<T, kMaxLanes> statuses;
  std::array<T, 2 * kMaxLanes> residuals;  // of general matrices
  AlignedBuffer<T> start, conditions;      // likewise
  // All values of the task's matrices, kept_first and following, for the answers; only where there are any.
  AlignedBuffer<T> kept;
  int64_t kept_first = 0;
  T* kept_values(int64_t matrix, int k) { return kept.data() + (matrix - kept_first) * k; }

  static PackBuffers& of_this_thread(const Call<T>& call) {
    static thread_local PackBuffers buffers;
    const size_t lanes = call.kernels.lanes;
    buffers.a.reserve(call.triangle_size * lanes);
    if (call.plan.decomposition == Decomposition::kGeneral) {
      buffers.scratch.reserve(general_scratch(call.k, call.kernels.components) * lanes);
      buffers.values.reserve(2 * call.k * lanes);
      const size_t matrix = 2 * static_cast<size_t>(call.k) * call.k * lanes;
      // JACOBI has its basis there.
      if (makes_vectors(call.plan) || call.plan.method == Method::kJacobi) buffers.x.reserve(matrix);
      if (makes_left_vectors(call.plan)) buffers.y.reserve(matrix);
      if (call.plan.outputs.condition) buffers.conditions.reserve(call.k * lanes);
      if (call.plan.starting_vectors) buffers.start.reserve(matrix);
      return buffers;
    }
    if (call.k > kLargestFixedValues) buffers.scratch.reserve(call.triangle_size * lanes);
    buffers.exponents.reserve(call.k * lanes);
    buffers.values.reserve(call.k * lanes);
    if (makes_vectors(call.plan)) {
      buffers.x.reserve(call.triangle_size * lanes);
      buffers.y.reserve(call.triangle_size * lanes);
      buffers.ranks.reserve(call.k * lanes);
    }
    return buffers;
  }
};

// Where kernels read the matrix of a lane: the operand, or what read_pack() has made of it.
template <class T>
const char* matrix_of(const Call<T>& call, const PackBuffers<T>& buffers, int lane, const MatrixSource::Slot& slot) {
  if (!is_narrow(call.plan.problem)) return slot.matrix;
  return reinterpret_cast<const char*>(buffers.widened.data()) +
         static_cast<size_t>(lane) * matrix_bytes(call.plan.problem);
}

// from[l] becomes where the matrix first + l is, l < n; narrow operands are converted first. So the memory of a pack is
// all that their numbers take as floats.
template <class T>
void read_pack(const Call<T>& call, PackBuffers<T>& buffers, int64_t first, int n, const char** from) {
  if constexpr (std::is_same_v<T, float>) {
    const Problem& p = call.plan.problem;
    const size_t numbers = matrix_bytes(p) / sizeof(T);
    if (is_narrow(p)) {
      buffers.widened.reserve(static_cast<size_t>(n) * numbers);
      call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
        widen_matrix(p, slot.matrix, buffers.widened.data() + static_cast<size_t>(l) * numbers);
      });
    }
  }
  call.source.for_each(first, n,
                       [&](int l, const MatrixSource::Slot& slot) { from[l] = matrix_of(call, buffers, l, slot); });
}

// Runs the kernel on the pack in buffers.a and writes the results of the matrices first .. first + n - 1.
template <class T>
void compute_pack(const Call<T>& call, PackBuffers<T>& buffers, bool row_major, bool with_exponents, int64_t first,
                  int n) {
  const int lanes = call.kernels.lanes, k = call.k;
  const auto kernel = call.kernels.values[index_of(call.plan.host_method)][k <= kLargestFixedValues ? k : 0];
  kernel({buffers.a.data(), row_major ? k : 1, row_major ? 1 : k, k,
          with_exponents ? buffers.exponents.data() : nullptr, static_cast<T>(call.plan.tolerance),
          call.plan.max_sweeps, buffers.values.data(), buffers.statuses.data(), buffers.scratch.data()});
  const auto leading = static_cast<size_t>(call.plan.outputs.values);
  const bool keep = call.plan.outputs.answers();
  call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    char* const values = slot.plane(Plane::kValues, leading * sizeof(T));
    if (values != nullptr) deinterleave_one(buffers.values.data(), lanes, l, leading, values);
    if (keep) {
      deinterleave_one(buffers.values.data(), lanes, l, static_cast<size_t>(k),
                       reinterpret_cast<char*>(buffers.kept_values(first + l, k)));
    }
    const auto status = static_cast<MatrixStatus>(static_cast<int>(buffers.statuses[l]));
    call.counts.add(status);
    if (slot.status != nullptr) *slot.status = status;
  });
}

// The values of one lane in their order; columns[r] gets the column of number r.
template <class T>
void sort_columns(const PackBuffers<T>& buffers, int lanes, int lane, int k, int* columns, T* values) {
  for (int j = 0; j < k; ++j) {
    const int r = static_cast<int>(buffers.ranks.data()[j * lanes + lane]);
    columns[r] = j;
    values[r] = buffers.values.data()[j * lanes + lane];
  }
}

// The sorted results of the matrices of a pack, once its kernel has run.
template <class T>
struct SortedPack {
  int columns[kMaxLanes][kPackLimit];  // [lane][number]
  T values[kMaxLanes][kPackLimit];     // singular values descending, eigenvalues ascending
  MatrixStatus statuses[kMaxLanes];
  bool finite(int lane) const { return statuses[lane] != MatrixStatus::kNonFinite; }
};

// Where one side's vectors of a pack are written: their planes, or memory aside (engine/vector_layout.h, is_staged).
struct VectorSide {
  VectorLayout layout;
  size_t bytes;  // of a matrix
  char* staged;  // null: the planes
  char* of(int lane, const MatrixSource::Slot& slot) const {
    return staged != nullptr ? staged + static_cast<size_t>(lane) * bytes : slot.plane(layout.plane, bytes);
  }
};

template <class T>
VectorSide vector_side(const Call<T>& call, const VectorLayout& wanted, AlignedBuffer<T>* staging) {
  const bool staged = is_staged(call.plan);
  const VectorLayout layout = staged ? staged_layout(wanted, call.k) : wanted;
  const size_t numbers = static_cast<size_t>(layout.matrix_stride()) * call.kernels.components;
  if (staged) staging->reserve(numbers * call.kernels.lanes);
  return {layout, numbers * sizeof(T), staged ? reinterpret_cast<char*>(staging->data()) : nullptr};
}

// Writes rows first_row .. of X or Y of the matrices first .. first + n - 1.
template <class T>
void write_pack(const Call<T>& call, const SortedPack<T>& sorted, const PackedColumns<T>& from, const VectorSide& side,
                int64_t first_row, int64_t rows, int64_t first, int n) {
  call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    char* const to = side.of(l, slot);
    if (to == nullptr) return;
    if (sorted.finite(l)) {
      write_columns(from, l, sorted.columns[l], side.layout, std::min<int64_t>(side.layout.columns, call.k), first_row,
                    rows, to);
    } else if (first_row == 0) {
      fill_with_nan<T>(to, side.bytes);
    }
  });
}

// From memory aside to the plane.
template <class T>
void unstage(const Call<T>& call, const VectorSide& side, const VectorLayout& wanted, int lane,
             const MatrixSource::Slot& slot) {
  const int components = call.kernels.components;
  char* const to = slot.plane(wanted.plane, static_cast<size_t>(wanted.matrix_stride()) * components * sizeof(T));
  if (to == nullptr || side.staged == nullptr) return;
  int columns[kPackLimit];
  std::iota(columns, columns + call.k, 0);
  const PackedColumns<T> from{reinterpret_cast<const T*>(side.of(lane, slot)), wanted.rows, components, 1};
  write_columns(from, 0, columns, wanted, wanted.columns, 0, wanted.rows, to);
}

// Dependent columns, full bases, phases, certificates, gradients.
template <class T>
void finish_pack(const Call<T>& call, PackBuffers<T>& buffers, const SortedPack<T>& sorted, const VectorSide& x,
                 const VectorSide& y, int64_t first, int n) {
  const Plan& plan = call.plan;
  const Outputs& o = plan.outputs;
  const bool always = x.layout.columns > call.k || o.fix_phases || o.certificate || o.gradients();
  const bool staged = x.staged != nullptr || y.staged != nullptr;
  if (!always && !staged && plan.decomposition != Decomposition::kSvd) return;
  call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    const bool dependent =
        plan.decomposition == Decomposition::kSvd && x.layout.columns > 0 && sorted.values[l][call.k - 1] == 0;
    if (always || dependent) {
      FinishCall<T> finish{sorted.values[l], x.of(l, slot), x.layout, y.of(l, slot), y.layout, sorted.statuses[l]};
      finish.canonical = true;
      finish.a = matrix_of(call, buffers, l, slot);
      finish.certificate = slot.plane(Plane::kCertificate, kCertificateNumbers * sizeof(T));
      finish.mimo = &call.mimo;
      finish.gradients = slot.gradients(plan);
      buffers.finishing.reserve(finish_workspace_bytes(plan));
      finish.workspace = buffers.finishing.data();
      finish_vectors(plan, finish);
    }
    unstage(call, x, long_layout(plan.problem, plan.outputs), l, slot);
    unstage(call, y, short_layout(plan.problem, plan.outputs), l, slot);
  });
}

// Values and statuses of the matrices first .. first + n - 1, once their kernel has run.
template <class T>
void record_pack(const Call<T>& call, PackBuffers<T>& buffers, int64_t first, int n, SortedPack<T>& sorted) {
  const int lanes = call.kernels.lanes, k = call.k;
  const size_t value_bytes = static_cast<size_t>(call.plan.outputs.values) * sizeof(T);
  call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) {
    T* const values = sorted.values[l];
    sort_columns(buffers, lanes, l, k, sorted.columns[l], values);
    sorted.statuses[l] = static_cast<MatrixStatus>(static_cast<int>(buffers.statuses[l]));
    if (!sorted.finite(l)) std::fill_n(values, k, FloatTraits<T>::nan());
    if (call.plan.outputs.answers()) std::copy_n(values, k, buffers.kept_values(first + l, k));
    if (char* const to = slot.plane(Plane::kValues, value_bytes)) std::memcpy(to, values, value_bytes);
    call.counts.add(sorted.statuses[l]);
    if (slot.status != nullptr) *slot.status = sorted.statuses[l];
  });
}

// Hermitian matrices: eigenvalues, and eigenvectors where they are wanted.
template <class T>
void compute_hermitian_pack(const Call<T>& call, PackBuffers<T>& buffers, bool row_major, int64_t first, int n) {
  const Plan& plan = call.plan;
  const int lanes = call.kernels.lanes, k = call.k;
  const auto& kernels = plan.method == Method::kTridiagonal ? call.kernels.tridiagonal : call.kernels.hermitian;
  const auto kernel = kernels[k <= kLargestFixedVectors ? k : 0];
  kernel({buffers.a.data(), row_major ? k : 1, row_major ? 1 : k, k, plan.triangle == Triangle::kUpper,
          static_cast<T>(plan.tolerance), plan.max_sweeps, buffers.x.data(), buffers.y.data(), buffers.values.data(),
          buffers.ranks.data(), buffers.statuses.data()});
  SortedPack<T> sorted;
  record_pack(call, buffers, first, n, sorted);
  if (plan.outputs.left_columns == 0) return;
  const VectorSide u = vector_side(call, long_layout(plan.problem, plan.outputs), &buffers.staged_x);
  const VectorSide none = vector_side(call, short_layout(plan.problem, plan.outputs), &buffers.staged_y);
  write_pack(call, sorted, {buffers.x.data(), k, call.kernels.components, lanes}, u, 0, k, first, n);
  finish_pack(call, buffers, sorted, u, none, first, n);
}

// One of the kernels of general matrices on the pack in buffers.a.
template <class T>
void run_general(const Call<T>& call, PackBuffers<T>& buffers, void (*kernel)(const GeneralCall<T>&), bool plain) {
  const int k = call.k;
  const Plan& plan = call.plan;
  const bool row_major = plan.problem.order == Order::kRowMajor, vectors = makes_vectors(plan);
  const bool keeps_basis = vectors || kernel == call.kernels.general_jacobi;
  kernel({.a = buffers.a.data(),
          .row_stride = row_major ? k : 1,
          .col_stride = row_major ? 1 : k,
          .k = k,
          .plain = plain,
          .max_sweeps = plan.max_sweeps,
          .vectors = vectors,
          .start = plan.starting_vectors ? buffers.start.data() : nullptr,
          .v = keeps_basis ? buffers.x.data() : nullptr,
          .w = makes_left_vectors(plan) ? buffers.y.data() : nullptr,
          .conditions = plan.outputs.condition ? buffers.conditions.data() : nullptr,
          .scratch = buffers.scratch.data(),
          .values = buffers.values.data(),
          .residuals = buffers.residuals.data(),
          .statuses = buffers.statuses.data()});
}

// The kernel's outcome for the matrix of a lane.
template <class T>
GeneralOutcome<T> general_outcome(const Call<T>& call, const PackBuffers<T>& buffers, int lane) {
  return {static_cast<MatrixStatus>(static_cast<int>(buffers.statuses[lane])),
          worst_of(buffers.residuals[lane], buffers.residuals[call.kernels.lanes + lane])};
}

// Results of one lane, once its kernel has run. by_qr: JACOBI has missed its bound before.
template <class T>
void write_general(const Call<T>& call, const PackBuffers<T>& buffers, int l, bool by_qr,
                   const MatrixSource::Slot& slot) {
  const Plan& plan = call.plan;
  const int lanes = call.kernels.lanes, k = call.k;
  const auto [found, residual] = general_outcome(call, buffers, l);
  const MatrixStatus status = by_qr ? status_by_qr(found) : found;
  const bool finite = status != MatrixStatus::kNonFinite;
  const size_t value_bytes = 2 * static_cast<size_t>(k) * sizeof(T), vector_bytes = value_bytes * k;
  int columns[kLargestGeneral];
  std::iota(columns, columns + k, 0);
  if (char* const to = slot.plane(Plane::kValues, value_bytes)) {
    finite ? deinterleave_one(buffers.values.data(), lanes, l, static_cast<size_t>(2 * k), to)
           : fill_with_nan<T>(to, value_bytes);
  }
  for (const Plane plane : {Plane::kLeft, Plane::kRight}) {
    const VectorLayout layout = layout_of_plane(plan.problem, plan.outputs, plane);
    char* const to = layout.columns > 0 ? slot.plane(plane, vector_bytes) : nullptr;
    if (to == nullptr) continue;
    const PackedColumns<T> from{(plane == Plane::kLeft ? buffers.x : buffers.y).data(), k, 2, lanes};
    finite ? write_columns(from, l, columns, layout, k, 0, k, to) : fill_with_nan<T>(to, vector_bytes);
  }
  if (char* const to = slot.plane(Plane::kCertificate, kCertificateNumbers * sizeof(T))) {
    const T none = finite ? T(0) : FloatTraits<T>::nan();
    const T numbers[kCertificateNumbers]{finite ? std::sqrt(residual) : none, none, none};
    std::memcpy(to, numbers, sizeof(numbers));
  }
  if (char* const to = slot.plane(Plane::kEigenvalueCondition, static_cast<size_t>(k) * sizeof(T))) {
    finite ? deinterleave_one(buffers.conditions.data(), lanes, l, static_cast<size_t>(k), to)
           : fill_with_nan<T>(to, static_cast<size_t>(k) * sizeof(T));
  }
  call.counts.add(status);
  if (slot.status != nullptr) *slot.status = status;
}

// A pack of general matrices and its attempts (general_outcome.h). Each writes some matrices; the others stay open.
template <class T>
class GeneralPack {
 public:
  GeneralPack(const Call<T>& call, PackBuffers<T>& buffers, int64_t first, int n)
      : call_(call), buffers_(buffers), first_(first), n_(n) {
    std::fill_n(open_, n, true);
  }

  void compute() {
    if (call_.plan.method == Method::kJacobi) {
      run_general(call_, buffers_, call_.kernels.general_jacobi, false);
      write_where([&](const GeneralOutcome<T>& jacobi, int) { return !is_missed(jacobi, call_.k); });
      if (!any_open()) return;
      by_qr_ = true;
    }
    by_qr();
  }

 private:
  // Balanced, and those that balancing has spoilt once more without. The better attempt is written. It is made again
  // where it was the first, which is rarer than a matrix in a million.
  void by_qr() {
    const auto kernel = call_.kernels.general;
    GeneralOutcome<T> balanced[kMaxLanes];
    run_general(call_, buffers_, kernel, false);
    write_where([&](const GeneralOutcome<T>& outcome, int l) {
      balanced[l] = outcome;
      return !is_spoilt(outcome, call_.k);
    });
    if (!any_open()) return;
    run_general(call_, buffers_, kernel, true);
    write_where([&](const GeneralOutcome<T>& plain, int l) { return is_better(plain, balanced[l]); });
    if (!any_open()) return;
    run_general(call_, buffers_, kernel, false);
    write_where([](const GeneralOutcome<T>&, int) { return true; });
  }
  bool any_open() const { return std::find(open_, open_ + n_, true) != open_ + n_; }
  // Writes the open matrices for which is_good(outcome, lane) holds.
  template <class F>
  void write_where(F is_good) {
    call_.source.for_each(first_, n_, [&](int l, const MatrixSource::Slot& slot) {
      if (!open_[l] || !is_good(general_outcome(call_, buffers_, l), l)) return;
      write_general(call_, buffers_, l, by_qr_, slot);
      open_[l] = false;
    });
  }

  const Call<T>& call_;
  PackBuffers<T>& buffers_;
  const int64_t first_;
  const int n_;
  bool open_[kMaxLanes];
  bool by_qr_ = false;
};

// As compute_pack(), with vectors. tall: the factors of the pack; null: the matrices are square.
template <class T>
void compute_vectors_pack(const Call<T>& call, PackBuffers<T>& buffers, bool row_major, bool with_exponents,
                          int64_t first, int n, TallVectors<T>* tall) {
  const int lanes = call.kernels.lanes, k = call.k, components = call.kernels.components;
  const auto kernel = call.kernels.vectors[k <= kLargestFixedVectors ? k : 0];
  kernel({buffers.a.data(), row_major ? k : 1, row_major ? 1 : k, k,
          with_exponents ? buffers.exponents.data() : nullptr, static_cast<T>(call.plan.tolerance),
          call.plan.max_sweeps, buffers.x.data(), buffers.y.data(), buffers.values.data(), buffers.ranks.data(),
          buffers.statuses.data()});
  SortedPack<T> sorted;
  record_pack(call, buffers, first, n, sorted);
  const VectorSide x = vector_side(call, long_layout(call.plan.problem, call.plan.outputs), &buffers.staged_x);
  const VectorSide y = vector_side(call, short_layout(call.plan.problem, call.plan.outputs), &buffers.staged_y);
  write_pack(call, sorted, {buffers.y.data(), k, components, lanes}, y, 0, k, first, n);
  if (tall == nullptr) {
    write_pack(call, sorted, {buffers.x.data(), k, components, lanes}, x, 0, k, first, n);
  } else if (x.layout.columns > 0) {
    tall->apply(buffers.x.data(), [&](int64_t first_row, int64_t rows, const T* tile) {
      write_pack(call, sorted, {tile, tall->tile_rows(), components, lanes}, x, first_row, rows, first, n);
    });
  }
  finish_pack(call, buffers, sorted, x, y, first, n);
}

// Asks for the matrices from `first` on, those of the next pack, while one is computed. Small matrices wait for memory
// longer than they are copied. Large ones come in long runs, which the processor foresees.
template <class T>
void prefetch_pack(const Call<T>& call, int64_t first) {
  constexpr size_t kLine = 64;
  const size_t bytes = stored_bytes(call.plan.problem);
  const int64_t n = std::min<int64_t>(call.kernels.lanes, call.source.count() - first);
  if (n <= 0 || bytes * static_cast<size_t>(n) > kLargestPrefetchBytes) return;
  call.source.for_each(first, static_cast<int>(n), [&](int, const MatrixSource::Slot& slot) {
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(slot.matrix + at);
  });
}

// Square matrices first .. last - 1: from natural storage straight into packs.
template <class T>
void compute_square(const Call<T>& call, int64_t first, int64_t last) {
  const int lanes = call.kernels.lanes;
  PackBuffers<T>& buffers = PackBuffers<T>::of_this_thread(call);
  const char* from[kMaxLanes];
  for (; first < last; first += lanes) {
    const int n = static_cast<int>(std::min<int64_t>(lanes, last - first));
    read_pack(call, buffers, first, n, from);
    std::fill(from + n, from + lanes, from[0]);  // idle lanes repeat a matrix: they cost no extra iteration
    interleave(from, lanes, call.triangle_size, buffers.a.data());
    prefetch_pack(call, first + lanes);
    const bool row_major = call.plan.problem.order == Order::kRowMajor;
    if (call.plan.starting_vectors) {
      call.source.for_each(first, n, [&](int l, const MatrixSource::Slot& slot) { from[l] = slot.start; });
      std::fill(from + n, from + lanes, from[0]);
      interleave(from, lanes, 2 * static_cast<size_t>(call.k) * call.k, buffers.start.data());
    }
    if (call.plan.decomposition == Decomposition::kGeneral) {
      GeneralPack<T>(call, buffers, first, n).compute();
    } else if (call.plan.decomposition == Decomposition::kHermitian) {
      compute_hermitian_pack(call, buffers, row_major, first, n);
    } else if (call.plan.outputs.vectors()) {
      compute_vectors_pack(call, buffers, row_major, false, first, n, static_cast<TallVectors<T>*>(nullptr));
    } else {
      compute_pack(call, buffers, row_major, false, first, n);
    }
  }
}

// Tall and wide matrices first .. last - 1: to triangles, then as square ones.
template <class T>
void compute_tall(const Call<T>& call, int64_t first, int64_t last) {
  const int lanes = call.kernels.lanes;
  PackBuffers<T>& buffers = PackBuffers<T>::of_this_thread(call);
  TallReduction<T> reduction(call.plan, call.kernels);
  const char* from[kMaxLanes];
  for (; first < last; first += reduction.group()) {
    const int n = static_cast<int>(std::min<int64_t>(reduction.group(), last - first));
    read_pack(call, buffers, first, n, from);
    reduction.reduce(from, n);
    const char* triangles[kMaxLanes];
    const char* exponents[kMaxLanes];
    for (int l = 0; l < lanes; ++l) {
      triangles[l] = reinterpret_cast<const char*>(reduction.triangle(l < n ? l : 0));
      exponents[l] = reinterpret_cast<const char*>(reduction.exponents(l < n ? l : 0));
    }
    interleave(triangles, lanes, call.triangle_size, buffers.a.data());
    interleave(exponents, lanes, call.k, buffers.exponents.data());
    compute_pack(call, buffers, true, true, first, n);
  }
}

// The same with vectors.
template <class T>
void compute_tall_vectors(const Call<T>& call, int64_t first, int64_t last) {
  const int lanes = call.kernels.lanes;
  PackBuffers<T>& buffers = PackBuffers<T>::of_this_thread(call);
  TallVectors<T> tall(call.plan, call.kernels);
  const char* from[kMaxLanes];
  for (; first < last; first += lanes) {
    const int n = static_cast<int>(std::min<int64_t>(lanes, last - first));
    read_pack(call, buffers, first, n, from);
    tall.factorize(from, n);
    std::copy_n(tall.triangle(), call.triangle_size * lanes, buffers.a.data());
    std::copy_n(tall.exponents(), static_cast<size_t>(call.k) * lanes, buffers.exponents.data());
    compute_vectors_pack(call, buffers, false, true, first, n, &tall);
  }
}

// Matrices of one task: whole packs (whole groups of tall ones), of about kTaskWork.
int64_t matrices_per_task(const Problem& p, int lanes) {
  const double k = static_cast<double>(values_per_matrix(p));
  const double long_side = static_cast<double>(std::max(p.rows, p.cols));
  const double work = (is_complex(p.dtype) ? 4 : 1) * k * k * (long_side + 4 * k) + 64;
  return std::max<int64_t>(static_cast<int64_t>(kTaskWork / work) / lanes, 1) * lanes;
}

// f computes the matrices first .. last - 1, whole groups; then what is asked of their values.
template <class T, class F>
void compute_with_answers(const Call<T>& call, const AnswerStage<T>& answers, int64_t first, int64_t last, F f) {
  PackBuffers<T>& buffers = PackBuffers<T>::of_this_thread(call);
  buffers.kept.reserve(static_cast<size_t>(last - first) * call.k);
  buffers.kept_first = first;
  f();
  answers.run(buffers.kept.data(), first, last);
}

// The threads of a call and its end.
struct Crew {
  int threads;
  oneapi::tbb::task_arena& arena;
  const std::atomic<bool>* cancel;  // or null

  // f(first, last) for ranges of `step` that make up 0 .. count, each in the kernels' floating-point environment, on
  // any of the threads. false: cancelled, or a call of f was, which returned false.
  template <class F>
  bool for_ranges(int64_t count, int64_t step, const F& f) const {
    const int64_t tasks = (count + step - 1) / step;
    std::atomic<bool> stopped{false};
    const auto task = [&](int64_t i) {
      const FpEnvironment environment;
      const bool goes_on = cancel == nullptr || !cancel->load(std::memory_order_relaxed);
      if (!goes_on || !f(i * step, std::min((i + 1) * step, count))) stopped.store(true, std::memory_order_relaxed);
    };
    if (threads == 1 || tasks <= 1) {
      for (int64_t i = 0; i < tasks; ++i) task(i);
    } else {
      arena.execute([&] { oneapi::tbb::parallel_for(int64_t{0}, tasks, task); });
    }
    return !stopped;
  }
};

// The matrices of a pack at once.
template <class T>
ExecutionOutcome run_packs(const KernelTable<T>& kernels, const AnswerStage<T>& answers, const Plan& plan,
                           const MatrixSource& source, const Crew& crew) {
  StatusCounters counters;
  const bool square = plan.problem.rows == plan.problem.cols;
  const bool lone = !square && std::max(plan.problem.rows, plan.problem.cols) >=
                                   int64_t{kernels.lanes} * tile_rows_for(values_per_matrix(plan.problem));
  const int64_t group = plan.outputs.group;  // not cut
  const int64_t step = (matrices_per_task(plan.problem, lone ? 1 : kernels.lanes) + group - 1) / group * group;
  const bool completed = crew.for_ranges(source.count(), step, [&](int64_t first, int64_t last) {
    StatusCounts counts;
    const Call<T> call(plan, kernels, source, counts, answers.task());
    const auto compute = [&] {
      if (square) {
        compute_square(call, first, last);
      } else {
        plan.outputs.vectors() ? compute_tall_vectors(call, first, last) : compute_tall(call, first, last);
      }
    };
    plan.outputs.answers() ? compute_with_answers(call, answers, first, last, compute) : compute();
    counters.add(counts);
    return true;
  });
  return {completed, counters.report()};
}

// is_blocked_batch(plan): a matrix a task, or several; then answers of whole groups.
template <class T>
ExecutionOutcome run_large(const AnswerStage<T>& answers, const Plan& plan, const MatrixSource& source,
                           const Crew& crew) {
  StatusCounters counters;
  const BlockedBatch<T> batch(plan, source, counters, answers.task());
  const int64_t k = values_per_matrix(plan.problem);
  AlignedBuffer<T> values(plan.outputs.answers() ? static_cast<size_t>(source.count() * k) : 0);
  const int64_t step = batch.matrices_of_task(source.count(), crew.threads);
  bool completed = crew.for_ranges(source.count(), step, [&](int64_t first, int64_t last) {
    return batch.run(first, last, crew.cancel, plan.outputs.answers() ? values.data() + first * k : nullptr);
  });
  if (completed && plan.outputs.answers()) {
    completed = crew.for_ranges(source.count(), plan.outputs.group, [&](int64_t first, int64_t last) {
      answers.run(values.data() + first * k, first, last);
      return true;
    });
  }
  return {completed, counters.report()};
}

template <class T>
ExecutionOutcome run(const KernelTables<T>& tables, const AnswerKernels<T>& answer_kernels, const Plan& plan,
                     const MatrixSource& source, const Crew& crew) {
  const AnswerStage<T> answers(plan, answer_kernels, source);
  return is_blocked_batch(plan)
             ? run_large(answers, plan, source, crew)
             : run_packs(tables.for_size(values_per_matrix(plan.problem)), answers, plan, source, crew);
}

Simd best_simd() {
  for (const Simd simd : {Simd::kAvx512, Simd::kAvx2, Simd::kNeon}) {
    if (f64_kernels(simd) != nullptr) return simd;
  }
  return Simd::kScalar;
}

}  // namespace

HostBackend::HostBackend(const EngineOptions& options)
    : threads_(options.threads > 0 ? options.threads : oneapi::tbb::info::default_concurrency()),
      simd_(options.simd == Simd::kBest            ? best_simd()
            : f64_kernels(options.simd) != nullptr ? options.simd
                                                   : Simd::kScalar),
      f32_(f32_kernels(simd_)),
      f64_(f64_kernels(simd_)),
      c64_(c64_kernels(simd_)),
      c128_(c128_kernels(simd_)),
      f32_answers_(f32_answers(simd_)),
      f64_answers_(f64_answers(simd_)),
      arena_(threads_) {}

ExecutionOutcome HostBackend::execute(const Plan& plan, absl::Span<const HostSegment> segments,
                                      const std::atomic<bool>* cancel) const {
  const FpEnvironment environment;  // of the caller, whatever is computed on its thread; each task has its own
  const MatrixSource source(plan, segments);
  const Crew crew{threads_, arena_, cancel};
  switch (plan.problem.dtype) {
    case DType::kF32:
      return run(*f32_, *f32_answers_, plan, source, crew);
    case DType::kF64:
      return run(*f64_, *f64_answers_, plan, source, crew);
    case DType::kC64:
      return run(*c64_, *f32_answers_, plan, source, crew);
    case DType::kC128:
      return run(*c128_, *f64_answers_, plan, source, crew);
  }
  return {};
}

}  // namespace svdserve::host
