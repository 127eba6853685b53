// Hermitian matrices to tridiagonal form (engine/backends/cuda/tridiagonal/reduction.h), and their eigenvectors
// (eigenbasis.h): are they right, and how long does it take beside cuSOLVER's sytrd and syevd. Eigenvectors also to single
// precision, whose residuals are in units of n u of floats.
//   device_tridiagonal_form [checks] [times]      both where nothing is named
// Checks: of A Q - Q T and A V - V diag(lambda) the norms beside A's, of Q^H Q - I and V^H V - I the norms, each in n u;
// and the same bits twice. For large orders the first of them with a few random vectors. The exit status says whether all passed. Times: medians of 5, n x n normal numbers, in turns.
#include <cusolverDn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/backends/cuda/large/reflectors.h"
#include "engine/backends/cuda/tridiagonal/eigenbasis.h"
#include "engine/backends/cuda/tridiagonal/reduction.h"
#include "tests/device/large_device.h"

namespace svdserve::cuda {
namespace {

using device_bench::check;
using device_bench::fetch;
using device_bench::median_ms;
using device_bench::upload;
using Device = device_bench::LargeDevice;
using large::LargeView;
using large::Op;

int failures = 0;
constexpr double kUnit = 0x1p-53, kSingleUnit = 0x1p-24;
using large::Precision;
constexpr Precision kPrecisions[] = {Precision::kDouble, Precision::kSingle};

template <class E>
LargeView<E> matrix(Device& device, int64_t n) {
  return device_bench::matrix<E>(device, n, n);
}
std::vector<double> fetch(double* from, int64_t n) { return fetch(LargeView<double>{from, n, 1, n}); }

template <class E>
std::vector<E> hermitian(int64_t n) {
  std::vector<E> a(static_cast<size_t>(n * n));
  void* const numbers = device_bench::normal_on_device(false, a.size() * sizeof(E));
  check(cudaMemcpy(a.data(), numbers, a.size() * sizeof(E), cudaMemcpyDeviceToHost), "download");
  cudaFree(numbers);
  for (int64_t j = 0; j < n; ++j) {
    a[j * n + j] = from_real<E>(real_part(a[j * n + j]));
    for (int64_t i = j + 1; i < n; ++i) a[i * n + j] = conjugate(a[j * n + i]);
  }
  return a;
}

template <class E>
struct Form {
  std::vector<double> d, e;
  std::vector<E> q;
};
template <class E>
Form<E> reduce(Device& device, const std::vector<E>& of, int64_t n) {
  const LargeView<E> a = matrix<E>(device, n), q = matrix<E>(device, n);
  std::vector<E> lower = of, eye(of.size(), from_real<E>(0));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) lower[j * n + i] = from_real<E>(std::nan(""));  // only the lower triangle counts
    eye[j * n + j] = from_real<E>(1);
  }
  check(cudaMemset(a.data, 0xff, static_cast<size_t>(a.ld * n) * sizeof(E)), "clearing");
  upload(a, lower);
  upload(q, eye);
  double* const d = take_piece<double>(device.arena, n);
  double* const e = take_piece<double>(device.arena, n);
  E* const tau = take_piece<E>(device.arena, n);
  E* const t = take_piece<E>(device.arena, std::max<int64_t>(1, Reflectors<E>::elements(n)));
  reduce_to_tridiagonal<E>(*device.lane, device.arena, device.watch, a, {d, e, tau});
  if (n > 1) {
    Reflectors<E> reflectors(*device.lane, device.arena, device.watch);
    const LargeView<E> below = a.block(1, 0, n - 1, n - 1);
    reflectors.take(below, tau, t);
    reflectors.apply(Op::kNone, below, t, q.block(1, 0, n - 1, n));
  }
  check(cudaStreamSynchronize(device.lane->stream), "a reduction");
  Form<E> form{fetch(d, n), n > 1 ? fetch(e, n - 1) : std::vector<double>(), fetch(q)};
  for (const void* p : {static_cast<const void*>(a.data), static_cast<const void*>(q.data), static_cast<const void*>(d),
                        static_cast<const void*>(e), static_cast<const void*>(tau), static_cast<const void*>(t)}) {
    device.arena.give_back(p);
  }
  return form;
}

// The norms of A Q - Q T and of A.
template <class E>
std::pair<double, double> residual_of(const std::vector<E>& a, const Form<E>& f, int64_t n) {
  double error = 0, norm = 0;
  std::vector<E> column(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      E sum = times_real(f.q[j * n + i], -f.d[j]);
      if (j > 0) sum = plus_product(sum, f.q[(j - 1) * n + i], from_real<E>(-f.e[j - 1]));
      if (j + 1 < n) sum = plus_product(sum, f.q[(j + 1) * n + i], from_real<E>(-f.e[j]));
      column[i] = sum;
    }
    for (int64_t k = 0; k < n; ++k) {
      const E x = f.q[j * n + k];
      for (int64_t i = 0; i < n; ++i) column[i] = plus_product(column[i], a[k * n + i], x);
    }
    for (int64_t i = 0; i < n; ++i) {
      error += squared_modulus(column[i]);
      norm += squared_modulus(a[j * n + i]);
    }
  }
  return {std::sqrt(error), std::sqrt(norm)};
}

template <class E>
double departure_of(const std::vector<E>& q, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      E dot = from_real<E>(i == j ? -1 : 0);
      for (int64_t k = 0; k < n; ++k) dot = plus_product(dot, conjugate(q[i * n + k]), q[j * n + k]);
      sum += (i == j ? 1 : 2) * squared_modulus(dot);
    }
  }
  return std::sqrt(sum);
}

// V, or nothing where it was refused.
template <class E>
std::vector<E> eigenbasis(Device& device, const std::vector<E>& of, int64_t n, Precision precision) {
  const LargeView<E> a = matrix<E>(device, n), v = matrix<E>(device, n);
  upload(a, of);
  const bool converged = hermitian_eigenbasis<E>(*device.lane, device.arena, device.watch, a, v, precision);
  check(cudaStreamSynchronize(device.lane->stream), "an eigenbasis");
  const std::vector<E> found = converged ? fetch(v) : std::vector<E>();
  device.arena.give_back(a.data);
  device.arena.give_back(v.data);
  return found;
}

// v^H A v of each column of v.
template <class E>
std::vector<double> rayleigh_quotients(const std::vector<E>& a, const std::vector<E>& v, int64_t n) {
  std::vector<double> quotients(static_cast<size_t>(n));
  std::vector<E> column(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) {
    std::fill(column.begin(), column.end(), from_real<E>(0));
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < n; ++i) column[i] = plus_product(column[i], a[k * n + i], v[j * n + k]);
    }
    E dot = from_real<E>(0);
    for (int64_t i = 0; i < n; ++i) dot = plus_product(dot, conjugate(v[j * n + i]), column[i]);
    quotients[j] = real_part(dot);
  }
  return quotients;
}

template <class E>
void check_basis(Device& device, const char* name, const std::vector<E>& a, int64_t n, Precision precision) {
  const std::vector<E> v = eigenbasis(device, a, n, precision), again = eigenbasis(device, a, n, precision);
  const Form<E> form{rayleigh_quotients(a, v, n), std::vector<double>(static_cast<size_t>(n)), v};
  const auto [error, norm] = residual_of(a, form, n);
  const double departure = departure_of(form.q, n), unit = static_cast<double>(n) * kUnit;
  const double u = precision == Precision::kSingle ? kSingleUnit : kUnit, bound = (2 * static_cast<double>(n) + 20) * u;
  const double residual = norm > 0 ? error / norm : error;
  const bool same = std::memcmp(v.data(), again.data(), v.size() * sizeof(E)) == 0;
  bool descends = true;
  for (int64_t j = 1; j < n; ++j) descends = descends && form.d[j] <= form.d[j - 1] + 5 * bound * norm;
  const bool ok = residual <= bound && departure <= 2 * unit + 40 * kUnit && same && descends;
  failures += ok ? 0 : 1;
  std::printf("%-24s %-7s n %5lld  A V - V L %.2f n u%s  V^H V - I %.2f n u  %s%s  %s\n", name,
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), residual / u / static_cast<double>(n),
              precision == Precision::kSingle ? " of floats" : "", departure / unit, same ? "same bits" : "OTHER BITS",
              descends ? "" : " NOT DESCENDING", ok ? "ok" : "FAILED");
}

template <class E>
void check_case(Device& device, const char* name, int64_t n, const std::function<double(int64_t, int64_t)>& factor) {
  std::vector<E> a = hermitian<E>(n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a[j * n + i] = times_real(a[j * n + i], factor(std::max(i, j), std::min(i, j)));
  }
  const Form<E> form = reduce(device, a, n), again = reduce(device, a, n);
  const auto [error, norm] = residual_of(a, form, n);
  const double departure = departure_of(form.q, n), unit = static_cast<double>(n) * kUnit;
  const double residual = norm > 0 ? error / norm : error;
  const bool same = std::memcmp(form.q.data(), again.q.data(), form.q.size() * sizeof(E)) == 0 && form.d == again.d &&
                    form.e == again.e;
  const bool ok = residual <= 2 * unit + 20 * kUnit && departure <= 2 * unit + 20 * kUnit && same;
  failures += ok ? 0 : 1;
  std::printf("%-24s %-7s n %5lld  A Q - Q T %.2f n u  Q^H Q - I %.2f n u  %s  %s\n", name,
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), residual / unit, departure / unit,
              same ? "same bits" : "OTHER BITS", ok ? "ok" : "FAILED");
  check_basis(device, name, a, n, Precision::kDouble);
  if (norm == 0 || std::abs(std::log10(norm)) < 20) check_basis(device, name, a, n, Precision::kSingle);  // floats
}

// c := t x, x and c n x kProbes.
constexpr int64_t kProbes = 3;
template <class E>
std::vector<E> times_tridiagonal(const std::vector<double>& d, const std::vector<double>& e, const std::vector<E>& x,
                                 int64_t n) {
  std::vector<E> c(x.size());
  for (int64_t j = 0; j < kProbes; ++j) {
    const E* const from = &x[j * n];
    for (int64_t i = 0; i < n; ++i) {
      E sum = times_real(from[i], d[i]);
      if (i > 0) sum = plus_product(sum, from[i - 1], from_real<E>(e[i - 1]));
      if (i + 1 < n) sum = plus_product(sum, from[i + 1], from_real<E>(e[i]));
      c[j * n + i] = sum;
    }
  }
  return c;
}

// For orders that are too large for the host: A Q X - Q T X and |Q X| of a few random X.
template <class E>
void check_large(Device& device, int64_t n) {
  const std::vector<E> all = hermitian<E>(n);
  const LargeView<E> a = matrix<E>(device, n);
  upload(a, all);
  const Piece<double> d(device.arena, n), e(device.arena, n);
  const Piece<E> tau(device.arena, n), t(device.arena, Reflectors<E>::elements(n)), c(device.arena, a.ld * kProbes);
  reduce_to_tridiagonal<E>(*device.lane, device.arena, device.watch, a, {d.get(), e.get(), tau.get()});
  Reflectors<E> reflectors(*device.lane, device.arena, device.watch);
  const LargeView<E> below = a.block(1, 0, n - 1, n - 1), probes{c.get(), n, kProbes, a.ld};
  reflectors.take(below, tau.get(), t.get());
  const auto times_q = [&](const std::vector<E>& x) {
    upload(probes, x);
    reflectors.apply(Op::kNone, below, t.get(), probes.block(1, 0, n - 1, kProbes));
    check(cudaStreamSynchronize(device.lane->stream), "a product with Q");
    return fetch(probes);
  };
  const std::vector<E> some(all.begin(), all.begin() + n * kProbes), q = times_q(some);
  std::vector<E> rest = times_q(times_tridiagonal(fetch(d.get(), n), fetch(e.get(), n), some, n));
  double error = 0, size = 0, before = 0, after = 0;
  for (int64_t j = 0; j < kProbes; ++j) {
    for (int64_t k = 0; k < n; ++k) {
      const E x = times_real(q[j * n + k], -1);
      before += squared_modulus(some[j * n + k]);
      after += squared_modulus(q[j * n + k]);
      for (int64_t i = 0; i < n; ++i) rest[j * n + i] = plus_product(rest[j * n + i], all[k * n + i], x);
    }
    for (int64_t i = 0; i < n; ++i) error += squared_modulus(rest[j * n + i]);
  }
  for (const E& x : all) size += squared_modulus(x);
  const double unit = static_cast<double>(n) * kUnit, residual = std::sqrt(error / before / size);
  const double departure = std::abs(after / before - 1);
  const bool ok = residual <= unit && departure <= unit;
  failures += ok ? 0 : 1;
  std::printf("%-24s %-7s n %5lld  A Q X - Q T X %.3f n u  |Q X| - |X| %.3f n u  %s\n", "normal",
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), residual / unit, departure / unit,
              ok ? "ok" : "FAILED");
  device.arena.give_back(a.data);
}

// Eigenvectors of orders that production takes: a few of them, and |V x| of a random x.
template <class E>
void check_large_basis(Device& device, int64_t n, Precision precision) {
  const std::vector<E> a = hermitian<E>(n), v = eigenbasis(device, a, n, precision);
  double error = 0, size = 0, before = 0, after = 0;
  for (const E& x : a) size += squared_modulus(x);
  for (const int64_t j : {int64_t{0}, n / 2, n - 1}) {
    const std::vector<E> one(v.begin() + j * n, v.begin() + (j + 1) * n);
    std::vector<E> rest(static_cast<size_t>(n), from_real<E>(0));
    for (int64_t k = 0; k < n; ++k) {
      for (int64_t i = 0; i < n; ++i) rest[i] = plus_product(rest[i], a[k * n + i], one[k]);
    }
    E dot = from_real<E>(0);
    for (int64_t i = 0; i < n; ++i) dot = plus_product(dot, conjugate(one[i]), rest[i]);
    for (int64_t i = 0; i < n; ++i) {
      error += squared_modulus(plus_product(rest[i], one[i], from_real<E>(-real_part(dot))));
    }
  }
  std::vector<E> image(static_cast<size_t>(n), from_real<E>(0));
  for (int64_t k = 0; k < n; ++k) {
    before += squared_modulus(a[k]);
    for (int64_t i = 0; i < n; ++i) image[i] = plus_product(image[i], v[k * n + i], a[k]);
  }
  for (const E& x : image) after += squared_modulus(x);
  const double unit = static_cast<double>(n) * kUnit, residual = std::sqrt(error / size);
  const double bound = static_cast<double>(n) * (precision == Precision::kSingle ? kSingleUnit : kUnit);
  const double departure = std::abs(after / before - 1);
  const bool ok = residual <= bound && departure <= unit;
  failures += ok ? 0 : 1;
  std::printf("%-24s %-7s n %5lld  A V - V L %.3f n u%s  |V X| - |X| %.3f n u  %s\n", "normal",
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), residual / bound,
              precision == Precision::kSingle ? " of floats" : "", departure / unit, ok ? "ok" : "FAILED");
}

template <class E>
void checks(Device& device) {
  const auto plain = [](int64_t, int64_t) { return 1.0; };
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 17, 63, 64, 65, 66, 67, 100, 127, 128, 129, 130, 131, 200, 257, 500}) {
    check_case<E>(device, "normal", n, plain);
  }
  // Blocks with 16, 32, 64 and 128 rows.
  for (const int64_t n : {1057, 2200, 4096, 4300, 8192, 8500}) check_large<E>(device, n);
  for (const int64_t n : {1280, 1301, 4300}) {
    for (const Precision precision : kPrecisions) check_large_basis<E>(device, n, precision);
  }
  const int64_t n = 300;
  check_case<E>(device, "zero", n, [](int64_t, int64_t) { return 0.0; });
  check_case<E>(device, "diagonal", n, [](int64_t i, int64_t j) { return i == j ? 1.0 : 0.0; });
  check_case<E>(device, "tridiagonal", n, [](int64_t i, int64_t j) { return i - j <= 1 ? 1.0 : 0.0; });
  check_case<E>(device, "two blocks", n, [](int64_t i, int64_t j) { return (i < 150) == (j < 150) ? 1.0 : 0.0; });
  check_case<E>(device, "an arrow", n, [](int64_t i, int64_t j) { return i == j || i == 299 ? 1.0 : 0.0; });
  check_case<E>(device, "graded down", n, [](int64_t i, int64_t j) { return std::pow(10.0, -0.1 * double(i + j)); });
  check_case<E>(device, "graded up", n, [](int64_t i, int64_t j) { return std::pow(10.0, 0.1 * double(i + j) - 60); });
  check_case<E>(device, "tiny", n, [](int64_t, int64_t) { return 1e-80; });
  check_case<E>(device, "large", n, [](int64_t, int64_t) { return 1e80; });
  std::vector<E> a = hermitian<E>(n);
  a[17 * n + 40] = from_real<E>(std::nan(""));
  (void)reduce(device, a, n);
  for (const Precision precision : kPrecisions) {
    const bool refused = eigenbasis(device, a, n, precision).empty();
    failures += refused ? 0 : 1;
    std::printf("a matrix with a NaN %s\n", refused ? "is refused" : "has eigenvectors: FAILED");
  }
}

void require_library(cusolverStatus_t status) {
  check(status == CUSOLVER_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown, "cuSOLVER");
}
int sytrd_bytes(cusolverDnHandle_t handle, int n, double* a, int ld, double* d, double* e, double* tau) {
  int elements = 0;
  require_library(cusolverDnDsytrd_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, a, ld, d, e, tau, &elements));
  return elements;
}
int sytrd_bytes(cusolverDnHandle_t handle, int n, Complex* a, int ld, double* d, double* e, Complex* tau) {
  int elements = 0;
  require_library(cusolverDnZhetrd_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, reinterpret_cast<cuDoubleComplex*>(a),
                                              ld, d, e, reinterpret_cast<cuDoubleComplex*>(tau), &elements));
  return elements;
}
void sytrd(cusolverDnHandle_t handle, int n, double* a, int ld, double* d, double* e, double* tau, double* work,
           int elements, int* info) {
  require_library(cusolverDnDsytrd(handle, CUBLAS_FILL_MODE_LOWER, n, a, ld, d, e, tau, work, elements, info));
}
void sytrd(cusolverDnHandle_t handle, int n, Complex* a, int ld, double* d, double* e, Complex* tau, Complex* work,
           int elements, int* info) {
  const auto of = [](Complex* p) { return reinterpret_cast<cuDoubleComplex*>(p); };
  require_library(
      cusolverDnZhetrd(handle, CUBLAS_FILL_MODE_LOWER, n, of(a), ld, d, e, of(tau), of(work), elements, info));
}

template <class E>
void times(Device& device, int64_t n) {
  const LargeView<E> original = matrix<E>(device, n), a = matrix<E>(device, n);
  double* const d = take_piece<double>(device.arena, n);
  double* const e = take_piece<double>(device.arena, n);
  E* const tau = take_piece<E>(device.arena, n);
  int* const info = take_piece<int>(device.arena, 1);
  const int in = static_cast<int>(n), ld = static_cast<int>(a.ld);
  const int elements = sytrd_bytes(device.lane->cusolver, in, a.data, ld, d, e, tau);
  E* const work = take_piece<E>(device.arena, elements);
  upload(original, hermitian<E>(n));
  const auto copy = [&] {
    check(cudaMemcpyAsync(a.data, original.data, static_cast<size_t>(n * original.ld) * sizeof(E),
                          cudaMemcpyDeviceToDevice, device.lane->stream),
          "copying");
  };
  const double peer = median_ms(device.lane->stream, 5, copy,
                                [&] { sytrd(device.lane->cusolver, in, a.data, ld, d, e, tau, work, elements, info); });
  const double own = median_ms(device.lane->stream, 5, copy, [&] {
    reduce_to_tridiagonal<E>(*device.lane, device.arena, device.watch, a, {d, e, tau});
  });
  const double bytes = static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / 6 * sizeof(E);
  std::printf("%-7s n %5lld  reduction %8.2f ms, %.2f us a column, %.2f TB/s; sytrd %8.2f: %.2f times as fast\n",
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), own, own * 1e3 / static_cast<double>(n),
              bytes / own * 1e-9, peer, peer / own);
  device.arena.give_back(work);
  const LargeView<E> v = matrix<E>(device, n);
  double basis[2];
  for (const Precision precision : kPrecisions) {
    basis[static_cast<int>(precision)] = median_ms(device.lane->stream, 5, copy, [&] {
      (void)hermitian_eigenbasis<E>(*device.lane, device.arena, device.watch, a, v, precision);
    });
  }
  const double in_double = basis[static_cast<int>(Precision::kDouble)];
  LibraryWork library(*device.lane, device.arena);
  const auto type = kIsComplex<E> ? CUDA_C_64F : CUDA_R_64F;
  const Libraries& l = libraries();
  require(l.cusolverDnXsyevd_bufferSize(device.lane->cusolver, device.lane->params, CUSOLVER_EIG_MODE_VECTOR,
                                        CUBLAS_FILL_MODE_LOWER, n, type, a.data, a.ld, CUDA_R_64F, d, type,
                                        &library.device_bytes, &library.host_bytes),
          "sizing");
  library.allocate();
  const double syevd = median_ms(device.lane->stream, 5, copy, [&] {
    require(l.cusolverDnXsyevd(device.lane->cusolver, device.lane->params, CUSOLVER_EIG_MODE_VECTOR,
                               CUBLAS_FILL_MODE_LOWER, n, type, a.data, a.ld, CUDA_R_64F, d, type, library.device,
                               library.device_bytes, library.host.get(), library.host_bytes, library.info),
            "syevd");
  });
  std::printf("%-7s n %5lld  eigenvectors %8.2f ms; syevd %8.2f: %.2f times as fast; to single precision %8.2f ms\n",
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), in_double, syevd, syevd / in_double,
              basis[static_cast<int>(Precision::kSingle)]);
  for (const void* p : {static_cast<const void*>(original.data), static_cast<const void*>(a.data),
                        static_cast<const void*>(d), static_cast<const void*>(e), static_cast<const void*>(tau),
                        static_cast<const void*>(info), static_cast<const void*>(v.data)}) {
    device.arena.give_back(p);
  }
}

}  // namespace
}  // namespace svdserve::cuda

int main(int argc, char** argv) {
  using namespace svdserve::cuda;  // NOLINT
  const auto wants = [&](const char* part) {
    return argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* a) { return std::strcmp(a, part) == 0; });
  };
  try {
    Device device;
    if (wants("checks")) {
      checks<double>(device);
      checks<svdserve::Complex>(device);
      std::printf("%d failures\n", failures);
    }
    if (wants("times")) {
      for (const int64_t n : {512, 1024, 2048, 4096, 8192}) times<double>(device, n);
      for (const int64_t n : {1024, 2048, 4096}) times<svdserve::Complex>(device, n);
    }
  } catch (const svdserve::large::LargeStop& stop) {
    std::fprintf(stderr, "device_tridiagonal_form: %s\n", stop.detail.c_str());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
