#include "engine/backends/host/forms/bidiagonal_svd.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/backends/host/dense/lapack.h"
#include "engine/backends/host/forms/bidiagonal_reduction.h"
#include "engine/backends/host/forms/element_planes.h"

namespace svdserve::host {

template <class T>
MatrixStatus scale_values(int n, int exponent, T* s) {
  for (int i = 0; i < n; ++i) s[i] = without_sign_of_zero(std::ldexp(s[i], exponent));
  return s[0] <= std::numeric_limits<T>::max() ? MatrixStatus::kOk : MatrixStatus::kOutOfRange;
}

template <class E>
MatrixStatus BidiagonalSvd<E>::decompose(const StridedMatrix<E>& t, T* s, E* x, E* y) {
  const int n = static_cast<int>(t.cols);
  d_.reserve(static_cast<size_t>(n));
  e_.reserve(static_cast<size_t>(n));
  int exponent = 0;
  if (!reduce(t, d_.data(), e_.data(), &exponent)) return MatrixStatus::kNonFinite;
  find_vectors(t.rows, n, s, x, y);
  return scale_values(n, exponent, s);
}

template <class E>
bool BidiagonalSvd<E>::reduce(const StridedMatrix<E>& t, T* d, T* e, int* exponent) {
  const int64_t m = t.rows;
  const int n = static_cast<int>(t.cols);
  reserve(m, n);
  if (!load(t, exponent)) {
    std::fill_n(d, n, T(0));
    std::fill_n(e, n - 1, T(0));
    return false;
  }
  if (m > n) lapack::geqrf(m, n, tall_.data(), tau_.data(), work_.data());
  split(tall_.data(), m, m > n, n);
  BidiagonalReduction<T> task{n, kPlanes, reduction_ld<T>(n), planes_.data(), d, e};
  task.tau_q = reinterpret_cast<T*>(tau_q_.data());
  task.tau_p = reinterpret_cast<T*>(tau_p_.data());
  task.work = reduction_work_.data();
  bidiagonalize(task);
  return true;
}

template <class E>
void BidiagonalSvd<E>::reserve(int64_t m, int n) {
  const size_t k = static_cast<size_t>(n);
  const int ld = reduction_ld<T>(n);
  tall_.reserve(static_cast<size_t>(m) * k);
  tau_.reserve(k);
  work_.reserve(lapack::work_size(n));
  planes_.reserve(static_cast<size_t>(ld) * kPlanes * k);
  reduction_work_.reserve(reduction_work(ld, kPlanes));
  tau_q_.reserve(k);
  tau_p_.reserve(k);
}

// tall_ := 2^-*exponent T, the largest component in [1, 2). false: T is not finite.
template <class E>
bool BidiagonalSvd<E>::load(const StridedMatrix<E>& t, int* exponent) {
  T largest = 0;
  bool finite = true;
  const int64_t stride = t.row_stride;
  // Eight rows at a time: where these lie one after the other, columns get whole cache lines.
  for (int64_t first = 0; first < t.rows; first += 8) {
    const int64_t end = std::min(first + 8, t.rows);
    for (int64_t j = 0; j < t.cols; ++j) {
      E* const column = tall_.data() + j * t.rows;
      const E* from = t.data + first * stride + j * t.col_stride;
      for (int64_t i = first; i < end; ++i, from += stride) {
        const T size = magnitude(column[i] = *from);
        finite &= size <= std::numeric_limits<T>::max();
        largest = std::max(largest, size);
      }
    }
  }
  if (!finite) return false;
  *exponent = largest > 0 ? std::ilogb(largest) : 0;
  const auto [first, second] = inverse_power<T>(*exponent);
  for (int64_t i = 0; i < t.rows * t.cols; ++i) tall_[i] = tall_[i] * first * second;
  return true;
}

// planes_ := the n x n matrix at `from`, or its upper triangle.
template <class E>
void BidiagonalSvd<E>::split(const E* from, int64_t ld, bool upper, int n) {
  const int plane = reduction_ld<T>(n);
  std::fill_n(planes_.data(), static_cast<size_t>(plane) * kPlanes * n, T(0));
  for (int j = 0; j < n; ++j) {
    const T* const column = reinterpret_cast<const T*>(from + j * ld);
    T* const to = planes_.data() + static_cast<size_t>(j) * kPlanes * plane;
    for (int i = 0; i < (upper ? j + 1 : n); ++i) {
      for (int p = 0; p < kPlanes; ++p) to[p * plane + i] = column[i * kPlanes + p];
    }
  }
}

template <class E>
void BidiagonalSvd<E>::find_vectors(int64_t m, int n, T* s, E* x, E* y) {
  of_b_.decompose(n, d_.data(), e_.data());
  for (int j = 0; j < n; ++j) {
    s[j] = static_cast<T>(of_b_.s(j));
    const auto from = static_cast<ptrdiff_t>(of_b_.column(j)) * n;
    std::copy_n(of_b_.u() + from, n, x + j * m);
    std::fill(x + j * m + n, x + (j + 1) * m, E(0));
    std::copy_n(of_b_.v() + from, n, y + static_cast<ptrdiff_t>(j) * n);
  }
  multiply_back(m, n, x, y);
  std::transform(x, x + m * n, x, [](const E& z) { return without_sign_of_zero(z); });
  std::transform(y, y + static_cast<ptrdiff_t>(n) * n, y, [](const E& z) { return without_sign_of_zero(z); });
}

// x := Q_0 Q x, y := P y.
template <class E>
void BidiagonalSvd<E>::multiply_back(int64_t m, int n, E* x, E* y) {
  const PlaneElements<E> at{planes_.data(), reduction_ld<T>(n)};
  product_.multiply(n, n, tau_q_.data(), x, m, n, at);
  // Row j of A has the adjoint of P's vector j from element j + 1 on.
  product_.multiply(n - 1, n - 1, tau_p_.data(), y + 1, n, n, [&](int i, int j) { return at.adjoint(i + 1, j); });
  if (m > n) lapack::multiply_by_tall_q(m, n, n, tall_.data(), m, tau_.data(), x, m, work_.data());
}

template MatrixStatus scale_values(int, int, float*);
template MatrixStatus scale_values(int, int, double*);
template class BidiagonalSvd<float>;
template class BidiagonalSvd<double>;
template class BidiagonalSvd<std::complex<float>>;
template class BidiagonalSvd<std::complex<double>>;

}  // namespace svdserve::host
