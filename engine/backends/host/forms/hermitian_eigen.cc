#include "engine/backends/host/forms/hermitian_eigen.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "engine/backends/host/forms/tridiagonal_reduction.h"

namespace svdserve::host {

template <class E>
MatrixStatus HermitianEigen<E>::decompose(const StridedMatrix<E>& a, bool upper, T* lambda, E* u) {
  const int n = static_cast<int>(a.cols);
  reserve(n);
  int exponent = 0;
  if (!load(a, upper, &exponent)) return MatrixStatus::kNonFinite;
  TridiagonalReduction<T> task{n, kPlanes, reduction_ld<T>(n), planes_.data(), d_.data(), e_.data()};
  task.tau = reinterpret_cast<T*>(tau_.data());
  task.work = reduction_work_.data();
  tridiagonalize(task);
  of_t_.decompose(n, d_.data(), e_.data());
  bool in_range = true;
  for (int i = 0; i < n; ++i) {
    lambda[i] = without_sign_of_zero(static_cast<T>(std::ldexp(of_t_.value(i), exponent)));
    in_range &= std::abs(lambda[i]) <= std::numeric_limits<T>::max();
  }
  if (u != nullptr) find_vectors(n, u);
  return in_range ? MatrixStatus::kOk : MatrixStatus::kOutOfRange;
}

template <class E>
void HermitianEigen<E>::reserve(int n) {
  const size_t k = static_cast<size_t>(n);
  const int ld = reduction_ld<T>(n);
  planes_.reserve(static_cast<size_t>(ld) * kPlanes * k);
  reduction_work_.reserve(reduction_work(ld, kPlanes));
  d_.reserve(k);
  e_.reserve(k);
  tau_.reserve(k);
}

// planes_ := 2^-*exponent A, the lower triangle and whole diagonal blocks, the largest component in [1, 2). false: the
// triangle is not finite.
template <class E>
bool HermitianEigen<E>::load(const StridedMatrix<E>& a, bool upper, int* exponent) {
  const int n = static_cast<int>(a.cols), ld = reduction_ld<T>(n);
  T* const planes = planes_.data();
  std::fill_n(planes, static_cast<size_t>(ld) * kPlanes * static_cast<size_t>(n), T(0));
  const auto at = [&](int i, int j) { return planes + static_cast<ptrdiff_t>(j) * kPlanes * ld + i; };
  // Row i below the diagonal of column j is the conjugate of column i of row j.
  const int64_t down = upper ? a.col_stride : a.row_stride, along = upper ? a.row_stride : a.col_stride;
  T largest = 0;
  bool finite = true;
  for (int j = 0; j < n; ++j) {
    const int block_end = reduction_ld<T>(j + 1);
    for (int i = j; i < n; ++i) {
      const E x = a.data[i * down + j * along];
      const T re = std::real(x), im = i == j ? T(0) : upper ? -std::imag(x) : std::imag(x);
      *at(i, j) = re;
      if constexpr (kPlanes == 2) at(i, j)[ld] = im;
      if (i < block_end) {
        *at(j, i) = re;
        if constexpr (kPlanes == 2) at(j, i)[ld] = -im;
      }
      finite &= std::abs(re) <= std::numeric_limits<T>::max() && std::abs(im) <= std::numeric_limits<T>::max();
      largest = std::max(largest, std::max(std::abs(re), std::abs(im)));
    }
  }
  if (!finite) return false;
  *exponent = largest > 0 ? std::ilogb(largest) : 0;
  const auto [first, second] = inverse_power<T>(*exponent);
  for (int64_t i = 0; i < static_cast<int64_t>(ld) * kPlanes * n; ++i) planes[i] = planes[i] * first * second;
  return true;
}

template <class E>
void HermitianEigen<E>::find_vectors(int n, E* u) {
  for (int j = 0; j < n; ++j) {
    std::copy_n(of_t_.v() + static_cast<ptrdiff_t>(of_t_.column(j)) * n, n, u + static_cast<ptrdiff_t>(j) * n);
  }
  if (n > 1) {
    const PlaneElements<E> at{planes_.data(), reduction_ld<T>(n)};
    product_.multiply(n - 1, n - 1, tau_.data(), u + 1, n, n, [&](int i, int j) { return at(i + 1, j); });
  }
  std::transform(u, u + static_cast<ptrdiff_t>(n) * n, u, [](const E& z) { return without_sign_of_zero(z); });
}

template class HermitianEigen<float>;
template class HermitianEigen<double>;
template class HermitianEigen<std::complex<float>>;
template class HermitianEigen<std::complex<double>>;

}  // namespace svdserve::host
