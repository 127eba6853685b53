#include "tests/support/numerics/lapack_peer.h"

#include <algorithm>
#include <complex>
#include <functional>
#include <utility>

#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <cblas.h>
#include <lapacke.h>

namespace svdserve::numerics {
namespace {

enum class Driver { kGesvd, kGesdd };

lapack_int call(Driver d, lapack_int m, lapack_int n, float* a, float* s, float* rest) {
  return d == Driver::kGesvd ? LAPACKE_sgesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, a, m, s, nullptr, 1, nullptr, 1, rest)
                             : LAPACKE_sgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, m, s, nullptr, 1, nullptr, 1);
}
lapack_int call(Driver d, lapack_int m, lapack_int n, double* a, double* s, double* rest) {
  return d == Driver::kGesvd ? LAPACKE_dgesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, a, m, s, nullptr, 1, nullptr, 1, rest)
                             : LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, m, s, nullptr, 1, nullptr, 1);
}
lapack_int call(Driver d, lapack_int m, lapack_int n, std::complex<float>* a, float* s, float* rest) {
  return d == Driver::kGesvd ? LAPACKE_cgesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, a, m, s, nullptr, 1, nullptr, 1, rest)
                             : LAPACKE_cgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, m, s, nullptr, 1, nullptr, 1);
}
lapack_int call(Driver d, lapack_int m, lapack_int n, std::complex<double>* a, double* s, double* rest) {
  return d == Driver::kGesvd ? LAPACKE_zgesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, a, m, s, nullptr, 1, nullptr, 1, rest)
                             : LAPACKE_zgesdd(LAPACK_COL_MAJOR, 'N', m, n, a, m, s, nullptr, 1, nullptr, 1);
}

template <class Element, class Real>
std::vector<double> run(Driver driver, const Matrix& a) {
  std::vector<Element> copy(a.elements.size());
  store(a, Order::kColumnMajor, copy.data());
  const auto k = static_cast<size_t>(a.values());
  std::vector<Real> s(k), rest(k + 1);
  const lapack_int info = call(driver, static_cast<lapack_int>(a.rows), static_cast<lapack_int>(a.cols), copy.data(),
                               s.data(), rest.data());
  if (info != 0) return {};
  return {s.begin(), s.end()};
}

void use_one_thread() {
  static const bool done = (openblas_set_num_threads(1), true);
  static_cast<void>(done);
}

std::vector<double> real_elements(const Matrix& a) {
  use_one_thread();
  std::vector<double> copy(a.elements.size());
  store(a, Order::kColumnMajor, copy.data());
  return copy;
}

std::vector<double> descending(std::vector<double> values, double factor) {
  for (double& x : values) x *= factor;
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

// Whether OpenBLAS reads outside of complex operands, where a sanitizer would end the program.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kComplexIsUnsafe = true;
#else
constexpr bool kComplexIsUnsafe = false;
#endif
bool is_unsafe(const Matrix& a) { return kComplexIsUnsafe && is_complex(a.dtype); }

std::vector<double> run(Driver driver, const Matrix& a) {
  if (is_unsafe(a)) return {};
  use_one_thread();
  switch (a.dtype) {
    case DType::kF32:
      return run<float, float>(driver, a);
    case DType::kF64:
      return run<double, double>(driver, a);
    case DType::kC64:
      return run<std::complex<float>, float>(driver, a);
    case DType::kC128:
      return run<std::complex<double>, double>(driver, a);
  }
  return {};
}

}  // namespace

std::vector<double> gesvd(const Matrix& a) { return run(Driver::kGesvd, a); }
std::vector<double> gesdd(const Matrix& a) { return run(Driver::kGesdd, a); }

std::vector<double> gejsv(const Matrix& a) {
  auto copy = real_elements(a);
  std::vector<double> values(static_cast<size_t>(a.cols));
  const auto m = static_cast<lapack_int>(a.rows), n = static_cast<lapack_int>(a.cols);
  double statistics[7];
  lapack_int counts[3];
  // C: graded columns; N: small ones are not to be killed.
  const lapack_int info = LAPACKE_dgejsv(LAPACK_COL_MAJOR, 'C', 'N', 'N', 'N', 'N', 'N', m, n, copy.data(), m,
                                         values.data(), nullptr, m, nullptr, n, statistics, counts);
  if (info != 0) return {};
  return descending(std::move(values), statistics[0] / statistics[1]);
}

std::vector<double> gesvj(const Matrix& a) {
  auto copy = real_elements(a);
  std::vector<double> values(static_cast<size_t>(a.cols));
  const auto m = static_cast<lapack_int>(a.rows), n = static_cast<lapack_int>(a.cols);
  double statistics[6];
  const lapack_int info =
      LAPACKE_dgesvj(LAPACK_COL_MAJOR, 'G', 'N', 'N', m, n, copy.data(), m, values.data(), 0, nullptr, n, statistics);
  if (info != 0) return {};
  return descending(std::move(values), statistics[0]);
}

std::vector<double> syev(const Matrix& a) {
  auto copy = real_elements(a);
  std::vector<double> values(static_cast<size_t>(a.cols));
  const auto n = static_cast<lapack_int>(a.cols);
  if (LAPACKE_dsyev(LAPACK_COL_MAJOR, 'N', 'L', n, copy.data(), n, values.data()) != 0) return {};
  return values;
}

std::vector<double> syevd(const Matrix& a) {
  if (is_unsafe(a)) return {};
  use_one_thread();
  const auto n = static_cast<lapack_int>(a.cols);
  std::vector<double> values(static_cast<size_t>(a.cols));
  auto copy = a.elements;
  std::vector<double> real(is_complex(a.dtype) ? 0 : copy.size());
  for (size_t i = 0; i < real.size(); ++i) real[i] = copy[i].real();
  const lapack_int info = is_complex(a.dtype)
                              ? LAPACKE_zheevd(LAPACK_COL_MAJOR, 'N', 'L', n, copy.data(), n, values.data())
                              : LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'N', 'L', n, real.data(), n, values.data());
  return info == 0 ? values : std::vector<double>{};
}

std::vector<double> syevd_vectors(int64_t n, double* a) {
  std::vector<double> values(static_cast<size_t>(n));
  const auto order = static_cast<lapack_int>(n);
  if (LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', order, a, order, values.data()) != 0) return {};
  return values;
}

std::vector<double> syevd_vectors(int64_t n, std::complex<double>* a) {
  if (kComplexIsUnsafe) return {};
  std::vector<double> values(static_cast<size_t>(n));
  const auto order = static_cast<lapack_int>(n);
  if (LAPACKE_zheevd(LAPACK_COL_MAJOR, 'V', 'L', order, a, order, values.data()) != 0) return {};
  return values;
}

}  // namespace svdserve::numerics
