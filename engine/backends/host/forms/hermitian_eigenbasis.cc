#include "engine/backends/host/forms/hermitian_eigenbasis.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/merges/tridiagonal_eigen.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using large::Op;
using large::PartDone;

constexpr int64_t kReducedPanel = 32;
// Parts of the time at whose end the matrix is tridiagonal, and the vectors of that are known. On two processors the
// matrix is tridiagonal after 0.4 and 0.57 of the time.
constexpr double kReduced = 0.48, kSolved = 0.7;

// The lower triangle of a -= V W^H + W V^H, V and W of `width` columns, by ranges of its columns.
template <class E>
void subtract_products(const LargeThreads& threads, LargeView<E> a, const E* v, int64_t ldv, const E* w, int64_t ldw,
                       int64_t width) {
  // Ranges of equal width have unequal work: narrow ones, several a thread.
  const int64_t grain = std::max<int64_t>(32, a.cols / (4 * threads.threads()));
  threads.for_ranges(a.cols, std::min(grain, kLevel3Columns), [&](int64_t first, int64_t last) {
    E* target = a.data + first + first * a.ld;
    const int64_t rows = a.rows - first;
    blas::gemm(false, true, rows, last - first, width, -1, v + first, ldv, w + first, ldw, 1, target, a.ld);
    blas::gemm(false, true, rows, last - first, width, -1, w + first, ldw, v + first, ldv, 1, target, a.ld);
  });
}

// a, Hermitian by its lower triangle, := reflectors below the first subdiagonal; T = Q^H a Q in d and e. As LAPACK's
// sytrd and hetrd, with the updates on all threads.
template <class E>
void tridiagonalize(const LargeThreads& threads, LargeView<E> a, std::vector<RealNumber<E>>& d,
                    std::vector<RealNumber<E>>& e, E* tau, const PartDone& done) {
  const int64_t n = a.rows;
  AlignedArray<E> w;
  w.reserve(n * kReducedPanel + blas::kReadBeyond);
  int64_t j = 0;
  for (; n - j > 2 * kReducedPanel; j += kReducedPanel) {
    threads.check();
    if (done) done(1 - std::pow(static_cast<double>(n - j) / static_cast<double>(n), 3));
    const int64_t rest = n - j - kReducedPanel;
    E* panel = a.data + j + j * a.ld;
    blas::latrd(n - j, kReducedPanel, panel, a.ld, e.data() + j, tau + j, w.data(), n);
    subtract_products(threads, a.block(j + kReducedPanel, j + kReducedPanel, rest, rest), panel + kReducedPanel, a.ld,
                      w.data() + kReducedPanel, n, kReducedPanel);
    // latrd() has left ones where the reflectors start.
    for (int64_t i = j; i < j + kReducedPanel; ++i) {
      a.data[i + 1 + i * a.ld] = e[i];
      d[i] = std::real(a.data[i + i * a.ld]);
    }
  }
  blas::tridiagonalize(n - j, a.data + j + j * a.ld, a.ld, d.data() + j, e.data() + j, tau + j);
}

// Column j of v := column order[n - 1 - j] of q.
template <class E>
void copy_descending(const LargeThreads& threads, LargeView<RealNumber<E>> q, const std::vector<int64_t>& order,
                     LargeView<E> v) {
  threads.for_ranges(v.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      const RealNumber<E>* from = q.data + order[v.cols - 1 - j] * q.ld;
      std::copy(from, from + v.rows, v.data + j * v.ld);
    }
  });
}

template <class E>
bool eigenbasis(const LargeThreads& threads, LargeView<E> g, LargeView<E> v, const PartDone& done) {
  using T = RealNumber<E>;
  const int64_t n = g.rows;
  std::vector<T> d(n), e(n);
  std::vector<E> tau(n + blas::kReadBeyond);
  const auto part = [&done](double from, double to) {
    return done ? PartDone([&done, from, to](double x) { done(from + (to - from) * x); }) : PartDone();
  };
  tridiagonalize(threads, g, d, e, tau.data(), part(0, kReduced));
  AlignedArray<T> memory;
  memory.reserve(n * n);
  const LargeView<T> q{memory.data(), n, n, n};
  std::vector<int64_t> order;
  if (!tridiagonal_eigen(threads, d, e, q, order)) return false;
  copy_descending(threads, q, order, v);
  if (n > 1) {
    apply_reflectors(threads, Op::kNone, g.block(1, 0, n - 1, n - 1), tau.data(), v.block(1, 0, n - 1, n),
                     part(kSolved, 1));
  }
  return true;
}

// Each element of a and of b, which may be of another type, column by column.
template <class A, class B>
void convert(const LargeThreads& threads, LargeView<A> a, LargeView<B> b) {
  threads.for_ranges(a.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      for (int64_t i = 0; i < a.rows; ++i) b.data[i + j * b.ld] = static_cast<B>(a.data[i + j * a.ld]);
    }
  });
}

template <class S, class E>
bool eigenbasis_in_single(const LargeThreads& threads, LargeView<E> g, LargeView<E> v, const PartDone& done) {
  const int64_t n = g.rows;
  AlignedArray<S> memory;
  memory.reserve(2 * n * n);
  const LargeView<S> narrow_g{memory.data(), n, n, n}, narrow_v{memory.data() + n * n, n, n, n};
  convert(threads, g, narrow_g);
  if (!eigenbasis(threads, narrow_g, narrow_v, done)) return false;
  convert(threads, narrow_v, v);
  return true;
}

}  // namespace

bool hermitian_eigenbasis(const LargeThreads& threads, LargeView<double> g, LargeView<double> v, const PartDone& done) {
  return eigenbasis(threads, g, v, done);
}
bool hermitian_eigenbasis(const LargeThreads& threads, LargeView<Complex> g, LargeView<Complex> v,
                          const PartDone& done) {
  return eigenbasis(threads, g, v, done);
}
bool hermitian_eigenbasis_in_single(const LargeThreads& threads, LargeView<double> g, LargeView<double> v,
                                    const PartDone& done) {
  return eigenbasis_in_single<float>(threads, g, v, done);
}
bool hermitian_eigenbasis_in_single(const LargeThreads& threads, LargeView<Complex> g, LargeView<Complex> v,
                                    const PartDone& done) {
  return eigenbasis_in_single<ComplexFloat>(threads, g, v, done);
}

}  // namespace svdserve::host
