#include "engine/backends/host/large/large_conversion.h"

#include <atomic>
#include <cmath>

#include "engine/backends/host/base/conjugate.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// A square of so many elements is turned at once, so that both sides stay in the cache.
constexpr int64_t kTile = 32;
// Columns of a task.
constexpr int64_t kColumnsOfTask = 64;

template <class E>
bool is_finite(E x) {
  if constexpr (kComplex<E>) {
    return std::isfinite(x.real()) && std::isfinite(x.imag());
  } else {
    return std::isfinite(x);
  }
}

// Where element (i, j) of the column-major side lies in the operand-like array.
struct Strides {
  int64_t row, col;
  Strides(const Problem& p, bool adjoint) {
    row = p.order == Order::kRowMajor ? p.cols : 1;
    col = p.order == Order::kRowMajor ? 1 : p.rows;
    if (adjoint) std::swap(row, col);
  }
};

// f(i, j) for all of `rows` x columns first .. last - 1, tile by tile.
template <class F>
void for_tiles(int64_t rows, int64_t first, int64_t last, const F& f) {
  for (int64_t j0 = first; j0 < last; j0 += kTile) {
    for (int64_t i0 = 0; i0 < rows; i0 += kTile) {
      for (int64_t j = j0; j < std::min(j0 + kTile, last); ++j) {
        for (int64_t i = i0; i < std::min(i0 + kTile, rows); ++i) f(i, j);
      }
    }
  }
}

template <class S, class E>
bool load(const LargeThreads& threads, const S* source, const Problem& problem, bool adjoint, LargeView<E> a) {
  const Strides strides(problem, adjoint);
  std::atomic<bool> finite{true};
  threads.for_ranges(a.cols, kColumnsOfTask, [&](int64_t first, int64_t last) {
    bool all = true;
    for_tiles(a.rows, first, last, [&](int64_t i, int64_t j) {
      const E x(source[i * strides.row + j * strides.col]);
      all &= is_finite(x);
      a.data[i + j * a.ld] = adjoint ? conjugate(x) : x;
    });
    if (!all) finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

template <class S>
large::LoadReport find_fault_of(const S* source, const Problem& p) {
  int64_t i = 0;
  while (is_finite(source[i])) ++i;
  const int64_t ld = p.order == Order::kRowMajor ? p.cols : p.rows;
  large::LoadReport report{false, i / ld, i % ld};
  if (p.order == Order::kColumnMajor) std::swap(report.row, report.col);
  return report;
}

template <class S, class E>
large::LoadReport load_and_report(const LargeThreads& threads, const void* matrix, const Problem& problem, bool adjoint,
                                  LargeView<E> a) {
  const auto* source = static_cast<const S*>(matrix);
  if (!load(threads, source, problem, adjoint, a)) return find_fault_of(source, problem);
  return {};
}

// Rounded once; a zero is +0.
template <class T>
T rounded(double x) {
  return static_cast<T>(x) + T(0);
}
template <class S, class E>
S rounded_element(E x) {
  if constexpr (kComplex<E>) {
    using T = typename S::value_type;
    return {rounded<T>(x.real()), rounded<T>(x.imag())};
  } else {
    return rounded<S>(x);
  }
}

template <class S, class E>
void store(const LargeThreads& threads, LargeView<E> a, bool adjoint, void* matrix, const Problem& problem) {
  auto* target = static_cast<S*>(matrix);
  const Strides strides(problem, adjoint);
  threads.for_ranges(a.cols, kColumnsOfTask, [&](int64_t first, int64_t last) {
    for_tiles(a.rows, first, last, [&](int64_t i, int64_t j) {
      const E x = a.data[i + j * a.ld];
      target[i * strides.row + j * strides.col] = rounded_element<S>(adjoint ? conjugate(x) : x);
    });
  });
}

}  // namespace

large::LoadReport find_fault(const void* matrix, const Problem& problem) {
  switch (problem.dtype) {
    case DType::kF32:
      return find_fault_of(static_cast<const float*>(matrix), problem);
    case DType::kF64:
      return find_fault_of(static_cast<const double*>(matrix), problem);
    case DType::kC64:
      return find_fault_of(static_cast<const std::complex<float>*>(matrix), problem);
    default:
      return find_fault_of(static_cast<const std::complex<double>*>(matrix), problem);
  }
}

template <>
large::LoadReport load_operand(const LargeThreads& threads, const void* matrix, const Problem& problem, bool adjoint,
                               LargeView<double> a) {
  return problem.dtype == DType::kF32 ? load_and_report<float>(threads, matrix, problem, adjoint, a)
                                      : load_and_report<double>(threads, matrix, problem, adjoint, a);
}
template <>
large::LoadReport load_operand(const LargeThreads& threads, const void* matrix, const Problem& problem, bool adjoint,
                               LargeView<std::complex<double>> a) {
  return problem.dtype == DType::kC64 ? load_and_report<std::complex<float>>(threads, matrix, problem, adjoint, a)
                                      : load_and_report<std::complex<double>>(threads, matrix, problem, adjoint, a);
}

template <>
void store_result(const LargeThreads& threads, LargeView<double> a, bool adjoint, void* matrix,
                  const Problem& problem) {
  problem.dtype == DType::kF32 ? store<float>(threads, a, adjoint, matrix, problem)
                               : store<double>(threads, a, adjoint, matrix, problem);
}
template <>
void store_result(const LargeThreads& threads, LargeView<std::complex<double>> a, bool adjoint, void* matrix,
                  const Problem& problem) {
  problem.dtype == DType::kC64 ? store<std::complex<float>>(threads, a, adjoint, matrix, problem)
                               : store<std::complex<double>>(threads, a, adjoint, matrix, problem);
}

}  // namespace svdserve::host
