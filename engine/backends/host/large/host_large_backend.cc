#include "engine/backends/host/large/host_large_backend.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <new>

#include "engine/algorithms/states/build_id.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/dense/indefinite_factor.h"
#include "engine/backends/host/forms/hermitian_eigenbasis.h"
#include "engine/backends/host/large/host_tall_operand.h"
#include "engine/backends/host/large/host_work_speeds.h"
#include "engine/backends/host/large/large_conversion.h"
#include "engine/backends/host/large/scaled_columns.h"
#include "engine/planner.h"
#include "hwy/targets.h"

namespace svdserve::host {
namespace {

using large::kZeroColumn;
using large::LargeView;
using large::Op;
using large::PStep;
using large::ScaledNorm;

// Larger blocks are given back, to the system: their pages cost less than keeping them, which memory() does not count.
constexpr size_t kLargestKeptBytes = kMappedBytes - 1;

// Columns of a task that touches every entry once.
constexpr int64_t kCopyColumns = 64;
constexpr int64_t kCopyRows = 256;
// Rows of a task of a product that has few columns.
constexpr int64_t kNarrowRows = 2048;
// Smaller eigenproblems gain nothing by single precision.
constexpr int64_t kLeastSingleOrder = 33;
// Rows of a square that is mirrored at once.
constexpr int64_t kMirrorRows = 32;

}  // namespace

void* LargeMemoryPool::take(size_t bytes) {
  bytes = std::max<size_t>(bytes, kCacheLine);
  auto& free = free_[bytes];
  if (free.empty()) {
    AlignedArray<char> block;
    try {
      block.reserve(bytes);
    } catch (const std::bad_alloc&) {
      throw large::LargeStop{LargeStatus::kOutOfMemory, "no memory for " + std::to_string(bytes) + " bytes"};
    }
    free.push_back(std::move(block));
  }
  AlignedArray<char> block = std::move(free.back());
  free.pop_back();
  void* const address = block.data();
  used_.emplace(address, std::make_pair(bytes, std::move(block)));
  return address;
}

void LargeMemoryPool::give(void* address) {
  auto node = used_.extract(address);
  assert(!node.empty());
  if (node.empty()) return;
  auto& [bytes, block] = node.mapped();
  if (bytes <= kLargestKeptBytes) free_[bytes].push_back(std::move(block));
}

void LargeMemoryPool::give_all() {
  while (!used_.empty()) give(used_.begin()->first);
}

template <class E>
HostLargeBackend<E>::HostLargeBackend(const LargeThreads& threads)
    : threads_(threads), p_steps_(threads), stage_start_(Clock::now()) {}

template <class E>
void HostLargeBackend<E>::reset() {
  pool_.give_all();
  tracking_ = {};
  p_steps_.reset();
  p_steps_.reset_times();
  phases_.clear();
  stage_.clear();
}

template <class E>
LargeView<E> HostLargeBackend<E>::matrix(int64_t rows, int64_t cols) {
  return {static_cast<E*>(pool_.take(rows * cols * sizeof(E))), rows, cols, std::max<int64_t>(rows, 1)};
}

template <class E>
int64_t HostLargeBackend<E>::block_width(int64_t n) const {
  return host_large_block_width(n);
}

template <class E>
std::string HostLargeBackend<E>::identity() const {
  static const std::string own = states::build_id_of(reinterpret_cast<const void*>(&host_work_speeds));
  static const std::string of_blas = states::build_id_of(reinterpret_cast<const void*>(&openblas_get_corename));
  if (own.empty()) return "";
  return "host " + std::to_string(threads_.threads()) + " threads, " + own + ", OpenBLAS " + of_blas + " " +
         blas_kernels() + ", SIMD " + std::to_string(hwy::SupportedTargets());
}

template <class E>
large::WorkSpeeds HostLargeBackend<E>::work_speeds() const {
  return host_work_speeds(threads_.threads());
}

template <class E>
LargePhaseTime& HostLargeBackend<E>::phase(const std::string& name) {
  for (auto& phase : phases_) {
    if (phase.name == name) return phase;
  }
  phases_.push_back({name, 0, 0});
  return phases_.back();
}

template <class E>
void HostLargeBackend<E>::stage(const char* name) {
  const auto now = Clock::now();
  // The p-steps tell more about the sweeps.
  if (!stage_.empty() && stage_ != "sweep")
    phase(stage_).seconds += std::chrono::duration<double>(now - stage_start_).count();
  stage_ = name;
  stage_start_ = now;
}

template <class E>
std::vector<LargePhaseTime> HostLargeBackend<E>::phases() {
  stage("");
  std::vector<LargePhaseTime> phases = phases_;
  p_steps_.tell(phases);
  return phases;
}

// Real operations of the mathematics; of complex numbers four multiplications and four additions instead of one each.
template <class E>
void HostLargeBackend<E>::count_flops(double operations) {
  phase(stage_.empty() ? "other" : stage_).flops += (kComplex<E> ? 4 : 1) * operations;
}

template <class E>
template <class F>
void HostLargeBackend<E>::for_columns(View a, const F& f) const {
  threads_.for_ranges(a.cols, kCopyColumns, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) f(j, a.data + j * a.ld);
  });
}

template <class E>
std::unique_ptr<large::TallOperand<E>> HostLargeBackend<E>::tall_operand(const LargePlan& plan,
                                                                         const LargeOperands& operands) {
  if (!takes_tall_operand(plan)) return nullptr;
  return std::make_unique<HostTallOperand<E>>(threads_, plan, operands,
                                              [this](double operations) { count_flops(operations); });
}

template <class E>
large::LoadReport HostLargeBackend<E>::load(const void* matrix, const Problem& problem, bool adjoint, View a) {
  return load_operand(threads_, matrix, problem, adjoint, a);
}
template <class E>
void HostLargeBackend<E>::store(View a, bool adjoint, void* matrix, const Problem& problem) {
  store_result(threads_, a, adjoint, matrix, problem);
}

// Square by square, because the mirror image of a column is a row.
template <class E>
void HostLargeBackend<E>::mirror_lower(View a) {
  threads_.for_ranges(a.cols, kCopyColumns, [&](int64_t first, int64_t last) {
    for (int64_t top = 0; top < last; top += kMirrorRows) {
      for (int64_t j = std::max(first, top); j < last; ++j) {
        E* const column = a.data + j * a.ld;
        for (int64_t i = top; i < std::min(top + kMirrorRows, j); ++i) column[i] = conjugate(a.data[j + i * a.ld]);
      }
    }
    for (int64_t j = first; j < last; ++j) a.data[j + j * a.ld] = std::real(a.data[j + j * a.ld]);
  });
}

template <class E>
void HostLargeBackend<E>::normalize_columns(View x, int32_t* f, bool keep) {
  if (x.data == tracking_.x) tracking_ = {};  // it has changed in other ways than by p-steps
  for_columns(x, [&](int64_t j, E* column) {
    const int64_t count = number_count<E>(x.rows);
    const ScaledNorm norm = norm_of(numbers(column), count);
    if (norm.mantissa == 0) {
      f[j] = kZeroColumn;
      return;
    }
    scale_by_power(numbers(column), count, -norm.exponent);
    f[j] = norm.exponent + (keep ? f[j] : 0);
  });
}

template <class E>
std::vector<ScaledNorm> HostLargeBackend<E>::column_norms(View x, const int32_t* f) {
  std::vector<ScaledNorm> norms(x.cols);
  for_columns(x, [&](int64_t j, E* column) {
    norms[j] = norm_of(numbers(column), number_count<E>(x.rows));
    if (norms[j].mantissa > 0 && f != nullptr) norms[j].exponent += f[j];
  });
  return norms;
}

template <class E>
std::vector<double> HostLargeBackend<E>::column_products(View a, View b) {
  std::vector<double> products(a.cols);
  for_columns(a, [&](int64_t j, E* column) {
    products[j] = dot(numbers(column), numbers(b.data + j * b.ld), number_count<E>(a.rows));
  });
  return products;
}

template <class E>
std::vector<double> HostLargeBackend<E>::row_maxima(View a) {
  std::vector<double> maxima(a.rows, 0.0);
  threads_.for_ranges(a.rows, kCopyRows, [&](int64_t first, int64_t last) {
    for (int64_t j = 0; j < a.cols; ++j) {
      for (int64_t i = first; i < last; ++i) maxima[i] = std::max(maxima[i], magnitude(a.data[i + j * a.ld]));
    }
  });
  return maxima;
}

template <class E>
std::vector<double> HostLargeBackend<E>::diagonal(View a) {
  std::vector<double> result(std::min(a.rows, a.cols));
  for (size_t j = 0; j < result.size(); ++j) result[j] = std::abs(a.data[j + j * a.ld]);
  return result;
}

template <class E>
void HostLargeBackend<E>::permute_rows(View a, const Order& order) {
  threads_.for_ranges(a.cols, kCopyColumns, [&](int64_t first, int64_t last) {
    std::vector<E> copy(a.rows);
    for (int64_t j = first; j < last; ++j) {
      E* column = a.data + j * a.ld;
      std::copy(column, column + a.rows, copy.data());
      for (int64_t i = 0; i < a.rows; ++i) column[i] = copy[order[i]];
    }
  });
}

template <class E>
void HostLargeBackend<E>::permute_columns(View a, const Order& order) {
  threads_.for_ranges(a.rows, kCopyRows, [&](int64_t first, int64_t last) {
    const int64_t rows = last - first;
    std::vector<E> copy(rows);
    std::vector<char> done(a.cols, 0);
    const auto at = [&](int64_t j) { return a.data + j * a.ld + first; };
    for (int64_t start = 0; start < a.cols; ++start) {
      if (done[start] || order[start] == start) continue;
      std::copy(at(start), at(start) + rows, copy.data());
      int64_t j = start;
      for (; order[j] != start; j = order[j]) {
        std::copy(at(order[j]), at(order[j]) + rows, at(j));
        done[j] = 1;
      }
      std::copy(copy.begin(), copy.end(), at(j));
      done[j] = 1;
    }
  });
}

template <class E>
void HostLargeBackend<E>::permute_exponents(int32_t* f, const Order& order) {
  const std::vector<int32_t> copy(f, f + order.size());
  for (size_t j = 0; j < order.size(); ++j) f[j] = copy[order[j]];
}

template <class E>
int32_t HostLargeBackend<E>::apply_exponents(View x, int32_t* f) {
  const int32_t largest = *std::max_element(f, f + x.cols);
  for_columns(x, [&](int64_t j, E* column) {
    if (f[j] != kZeroColumn) scale_by_power(numbers(column), number_count<E>(x.rows), f[j] - largest);
    f[j] = largest;
  });
  return largest;
}

template <class E>
void HostLargeBackend<E>::scale_columns(View x, const std::vector<double>& multipliers) {
  for_columns(x, [&](int64_t j, E* column) {
    for (int64_t i = 0; i < x.rows; ++i) column[i] *= multipliers[j];
  });
}

template <class E>
void HostLargeBackend<E>::set_identity(View a) {
  for_columns(a, [&](int64_t j, E* column) {
    std::fill(column, column + a.rows, E(0));
    if (j < a.rows) column[j] = 1;
  });
}

template <class E>
void HostLargeBackend<E>::set_zero(View a) {
  for_columns(a, [&](int64_t, E* column) { std::fill(column, column + a.rows, E(0)); });
}

template <class E>
void HostLargeBackend<E>::copy(View a, View b) {
  for_columns(a, [&](int64_t j, const E* column) { std::copy(column, column + a.rows, b.data + j * b.ld); });
}

template <class E>
void HostLargeBackend<E>::qr(View a, E* tau, const large::PartDone& done) {
  factor_qr(threads_, a, tau, done);
  const double m = double(a.rows), n = double(a.cols);
  count_flops(2 * n * n * (m - n / 3));
}

template <class E>
void HostLargeBackend<E>::apply_q(Op op, View a, const E* tau, View c, const large::PartDone& done) {
  apply_reflectors(threads_, op, a, tau, c, done);
  count_flops(4 * double(c.cols) * double(a.cols) * (double(a.rows) - double(a.cols) / 2));
}

template <class E>
void HostLargeBackend<E>::adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f) {
  for_columns(x, [&](int64_t j, E* column) {
    std::fill(column, column + j, E(0));
    // Row j of R 2^e relative to its own largest entry, so that what underflows is negligible in it.
    int32_t largest = kZeroColumn;
    for (int64_t i = j; i < x.rows; ++i) {
      column[i] = conjugate(r.data[j + i * r.ld]);
      if (e == nullptr || column[i] == E(0)) continue;
      int own;
      std::frexp(magnitude(column[i]), &own);
      largest = std::max(largest, e[i] + own);
    }
    f[j] = 0;
    if (e == nullptr || largest == kZeroColumn) return;
    for (int64_t i = j; i < x.rows; ++i) {
      if (e[i] != largest) scale_by_power(numbers(column + i), number_count<E>(1), std::max(e[i] - largest, -2200));
    }
    f[j] = largest;
  });
  normalize_columns(x, f, true);
}

template <class E>
void HostLargeBackend<E>::copy_triangle(View r, View x) {
  for_columns(x, [&](int64_t j, E* column) {
    std::copy(r.data + j * r.ld, r.data + j * r.ld + j + 1, column);
    std::fill(column + j + 1, column + x.rows, E(0));
  });
}

template <class E>
void HostLargeBackend<E>::gemm(Op op_a, Op op_b, double alpha, View a, View b, double beta, View c) {
  const int64_t inner = op_a == Op::kNone ? a.cols : a.rows;
  count_flops(2 * double(c.rows) * double(c.cols) * double(inner));
  if (c.cols < kLevel3Columns && c.rows / 8 >= c.cols) {  // a few columns: the threads share its rows
    threads_.for_ranges(c.rows, kNarrowRows, [&](int64_t first, int64_t last) {
      const E* const left = a.data + (op_a == Op::kNone ? first : first * a.ld);
      blas::gemm(op_a == Op::kAdjoint, op_b == Op::kAdjoint, last - first, c.cols, inner, alpha, left, a.ld, b.data,
                 b.ld, beta, c.data + first, c.ld);
    });
    return;
  }
  threads_.for_ranges(c.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
    const E* right = op_b == Op::kNone ? b.data + first * b.ld : b.data + first;
    blas::gemm(op_a == Op::kAdjoint, op_b == Op::kAdjoint, c.rows, last - first, inner, alpha, a.data, a.ld, right,
               b.ld, beta, c.data + first * c.ld, c.ld);
  });
}

// The upper triangle by column ranges, then its mirror image.
template <class E>
void HostLargeBackend<E>::herk(View a, View c) {
  const int64_t n = a.cols;
  const int64_t width =
      std::min<int64_t>(kLevel3Columns, std::max<int64_t>(1, (n + threads_.threads() - 1) / threads_.threads()));
  threads_.for_each((n + width - 1) / width, [&](int64_t task) {
    const int64_t first = task * width, last = std::min(first + width, n);
    blas::gram(last - first, a.rows, a.data + first * a.ld, a.ld, c.data + first + first * c.ld, c.ld);
    if (first == 0) return;
    blas::gemm(true, false, first, last - first, a.rows, 1, a.data, a.ld, a.data + first * a.ld, a.ld, 0,
               c.data + first * c.ld, c.ld);
  });
  for_columns(c.columns(0, n), [&](int64_t j, E* column) {
    for (int64_t i = j + 1; i < n; ++i) column[i] = conjugate(c.data[j + i * c.ld]);
  });
  count_flops(double(n) * double(n) * double(a.rows));
}

template <class E>
void HostLargeBackend<E>::solve_lower(View l, View b) {
  threads_.for_ranges(b.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
    blas::solve_lower(b.rows, last - first, l.data, l.ld, b.data + first * b.ld, b.ld);
  });
  count_flops(double(b.rows) * double(b.rows) * double(b.cols));
}

template <class E>
void HostLargeBackend<E>::scale_solution(const int32_t* f, const int32_t* g, View w) {
  for_columns(w, [&](int64_t j, E* column) {
    for (int64_t i = 0; i < w.rows; ++i) {
      const int32_t shift = g[j] - f[i];
      if (shift != 0) scale_by_power(numbers(column + i), number_count<E>(1), std::clamp(shift, -2200, 2200));
    }
  });
}

template <class E>
bool HostLargeBackend<E>::eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done) {
  const double n = double(g.rows);
  count_flops((4.0 / 3 + 4.0 / 3 + 2) * n * n * n);  // reduction, divide and conquer, back-transformation
  const bool single = precision == large::Precision::kSingle && g.rows >= kLeastSingleOrder;
  return single ? hermitian_eigenbasis_in_single(threads_, g, v, done) : hermitian_eigenbasis(threads_, g, v, done);
}

// Block of columns by block of columns, each from the rows above it: R_jj^H R_jj = a_jj, then the rows to its right.
template <class E>
bool HostLargeBackend<E>::cholesky(View a) {
  const int64_t n = a.cols;
  for (int64_t j = 0; j < n; j += kLevel3Columns) {
    const int64_t width = std::min(kLevel3Columns, n - j), next = j + width;
    threads_.check();
    E* const diagonal = a.data + j + j * a.ld;
    if (!blas::cholesky(width, diagonal, a.ld)) return false;
    const E* const rows = a.data + j + next * a.ld;
    threads_.for_ranges(n - next, kLevel3Columns, [&](int64_t first, int64_t last) {
      blas::solve_upper(true, width, last - first, diagonal, a.ld, a.data + j + (next + first) * a.ld, a.ld);
    });
    threads_.for_ranges(n - next, kLevel3Columns, [&](int64_t first, int64_t last) {
      blas::gemm(true, false, last, last - first, width, -1, rows, a.ld, rows + first * a.ld, a.ld, 1,
                 a.data + next + (next + first) * a.ld, a.ld);
    });
  }
  count_flops(double(n) * double(n) * double(n) / 3);
  return true;
}

template <class E>
double HostLargeBackend<E>::square_bound(View a) {
  double columns = 0;
  std::vector<double> rows(static_cast<size_t>(a.rows), 0.0);
  for (int64_t j = 0; j < a.cols; ++j) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) {
      const double size = std::abs(a.data[i + j * a.ld]);
      sum += size;
      rows[static_cast<size_t>(i)] += size;
    }
    columns = std::max(columns, sum);
  }
  return a.rows == 0 ? 0 : columns * *std::max_element(rows.begin(), rows.end());
}

template <class E>
std::vector<int8_t> HostLargeBackend<E>::indefinite_factor(View m, View g, const large::PartDone& done) {
  const double n = double(m.rows);
  count_flops(n * n * n / 3);
  return host::indefinite_factor(threads_, m, g, done);
}

// One block of rows of X^H X at a time, which is as much memory as a p-step takes.
template <class E>
int HostLargeBackend<E>::block_cosines(View x, int64_t width, int first, int /*count*/, large::BlockCosines& cosines) {
  if (first == 0) squares_ = column_products(x, x);
  const int64_t left = first * width;
  const View rows = matrix(std::min(width, x.cols - left), x.cols - left);
  gemm(Op::kAdjoint, Op::kNone, 1, x.columns(left, rows.rows), x.columns(left, rows.cols), 0, rows);
  threads_.for_each(cosines.blocks() - first, [&](int64_t task) {
    double largest = 0;
    for (int64_t j = task * width; j < std::min((task + 1) * width, rows.cols); ++j) {
      for (int64_t i = 0; i < rows.rows; ++i) {
        const double squares = squares_[left + i] * squares_[left + j];
        if (i == j || squares == 0) continue;
        const double cosine2 = std::norm(rows.data[i + j * rows.ld]) / squares;
        if (cosine2 > largest || std::isnan(cosine2)) largest = cosine2;
      }
    }
    cosines.at(first, first + static_cast<int>(task)) = std::sqrt(largest);
  });
  release(rows);
  return 1;
}

template <class E>
void HostLargeBackend<E>::p_step(const PStep<E>& step) {
  if (tracking_.x != step.x.data || tracking_.width != step.width || tracking_.tolerance != step.tolerance) {
    const int64_t blocks = std::max<int64_t>(2, (step.x.cols + step.width - 1) / step.width);
    tracking_ = {step.x.data, step.width, step.tolerance, PairTracking(blocks)};
  }
  p_steps_.run(step, tracking_.pairs);
}

template <class E>
double HostLargeBackend<E>::distance_from_signature(View a, int64_t positive) {
  std::vector<double> squares(a.cols);
  for_columns(a, [&](int64_t j, const E* column) {
    double sum = 0;
    for (int64_t i = 0; i < a.rows; ++i) sum += std::norm(column[i] - E(i != j ? 0 : j < positive ? 1 : -1));
    squares[j] = sum;
  });
  double sum = 0;
  for (const double square : squares) sum += square;
  return std::sqrt(sum);
}

template class HostLargeBackend<double>;
template class HostLargeBackend<Complex>;
static_assert(large::LargeBackend<HostLargeBackend<double>> && large::LargeBackend<HostLargeBackend<Complex>>);

}  // namespace svdserve::host
