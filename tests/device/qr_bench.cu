// QR factorizations of the large path (engine/backends/cuda/large/reflectors.h): are they right, and how long do they
// and a product with Q take beside cuSOLVER's geqrf and ormqr.
//   device_qr_bench [checks] [times]      both where nothing is named
// Checks: of A - Q R the largest column beside A's, of Q^H Q - I the norm, each in n u; and the same bits twice. The
// exit status says whether all passed. Times: medians of 7, n x n normal numbers, in turns.
#include <cusolverDn.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "engine/backends/cuda/large/reflectors.h"
#include "tests/device/large_device.h"

extern "C" {
void dgemm_(const char*, const char*, const int*, const int*, const int*, const double*, const double*, const int*,
            const double*, const int*, const double*, double*, const int*);
void zgemm_(const char*, const char*, const int*, const int*, const int*, const void*, const void*, const int*,
            const void*, const int*, const void*, void*, const int*);
}

namespace svdserve::cuda {
namespace {

using device_bench::check;
using device_bench::fetch;
using device_bench::matrix;
using device_bench::median_ms;
using device_bench::upload;
using Device = device_bench::LargeDevice;
using large::LargeView;
using large::Op;

int failures = 0;
constexpr double kUnit = 0x1p-53;

// c := op(a) b - c, on the host, column-major without gaps.
void multiply_minus(bool adjoint, int m, int n, int k, const std::vector<double>& a, const std::vector<double>& b,
                    std::vector<double>& c) {
  const double one = 1, minus = -1;
  const int lda = adjoint ? k : m;
  dgemm_(adjoint ? "T" : "N", "N", &m, &n, &k, &one, a.data(), &lda, b.data(), &k, &minus, c.data(), &m);
}
void multiply_minus(bool adjoint, int m, int n, int k, const std::vector<Complex>& a, const std::vector<Complex>& b,
                    std::vector<Complex>& c) {
  const Complex one{1, 0}, minus{-1, 0};
  const int lda = adjoint ? k : m;
  zgemm_(adjoint ? "C" : "N", "N", &m, &n, &k, &one, a.data(), &lda, b.data(), &k, &minus, c.data(), &m);
}

template <class E>
std::vector<E> normal(int64_t m, int64_t n) {
  std::vector<E> a(static_cast<size_t>(m * n));
  void* const numbers = device_bench::normal_on_device(false, a.size() * sizeof(E));
  check(cudaMemcpy(a.data(), numbers, a.size() * sizeof(E), cudaMemcpyDeviceToHost), "download");
  cudaFree(numbers);
  return a;
}

// Q and R of A, as the device has them.
template <class E>
struct Factors {
  std::vector<E> q, r;
};
template <class E>
Factors<E> factor(Device& device, const std::vector<E>& of, int64_t m, int64_t n) {
  Reflectors<E> reflectors(*device.lane, device.arena, device.watch);
  const LargeView<E> a = matrix<E>(device, m, n), q = matrix<E>(device, m, n);
  E* const t = take_piece<E>(device.arena, Reflectors<E>::elements(n));
  upload(a, of);
  reflectors.factor(a, t);
  std::vector<E> eye(static_cast<size_t>(m * n), from_real<E>(0));
  for (int64_t j = 0; j < n; ++j) eye[static_cast<size_t>(j * m + j)] = from_real<E>(1);
  upload(q, eye);
  reflectors.apply(Op::kNone, a, t, q);
  check(cudaStreamSynchronize(device.lane->stream), "a QR factorization");
  Factors<E> found{fetch(q), std::vector<E>(static_cast<size_t>(n * n), from_real<E>(0))};
  const std::vector<E> all = fetch(a);
  for (int64_t j = 0; j < n; ++j) std::copy_n(&all[j * m], j + 1, &found.r[j * n]);
  // Q^H Q = I the other way round.
  reflectors.apply(Op::kAdjoint, a, t, q);
  check(cudaStreamSynchronize(device.lane->stream), "a product with Q");
  const std::vector<E> back = fetch(q);
  double error = 0;
  for (size_t i = 0; i < back.size(); ++i) {
    error = std::max(error, std::sqrt(squared_modulus(plus_product(back[i], eye[i], from_real<E>(-1)))));
  }
  if (!(error <= 100 * static_cast<double>(n) * kUnit)) {
    std::printf("Q^H Q I - I is %.1e  FAILED\n", error);
    ++failures;
  }
  for (const void* p :
       {static_cast<const void*>(a.data), static_cast<const void*>(q.data), static_cast<const void*>(t)}) {
    device.arena.give_back(p);
  }
  return found;
}

template <class E>
void check_case(Device& device, const char* name, int64_t m, int64_t n,
                const std::function<void(std::vector<E>&)>& shape) {
  std::vector<E> a = normal<E>(m, n);
  shape(a);
  const Factors<E> found = factor(device, a, m, n), again = factor(device, a, m, n);
  std::vector<E> rest = a, gram(static_cast<size_t>(n * n), from_real<E>(0));
  for (int64_t j = 0; j < n; ++j) gram[static_cast<size_t>(j * n + j)] = from_real<E>(1);
  const auto im = static_cast<int>(m), in = static_cast<int>(n);
  multiply_minus(false, im, in, in, found.q, found.r, rest);
  multiply_minus(true, in, in, im, found.q, found.q, gram);
  double residual = 0, departure = 0;
  for (int64_t j = 0; j < n; ++j) {
    double error = 0, norm = 0;
    for (int64_t i = 0; i < m; ++i) {
      error += squared_modulus(rest[static_cast<size_t>(j * m + i)]);
      norm += squared_modulus(a[static_cast<size_t>(j * m + i)]);
    }
    const double of = norm > 0 ? std::sqrt(error / norm) : std::sqrt(error);
    residual = of > residual || std::isnan(of) ? of : residual;
  }
  for (const E& x : gram) departure += squared_modulus(x);
  const double unit = static_cast<double>(n) * kUnit;
  const bool same = std::memcmp(found.q.data(), again.q.data(), found.q.size() * sizeof(E)) == 0 &&
                    std::memcmp(found.r.data(), again.r.data(), found.r.size() * sizeof(E)) == 0;
  const bool ok = residual <= 8 * unit + 100 * kUnit && std::sqrt(departure) <= 4 * unit + 100 * kUnit && same;
  failures += ok ? 0 : 1;
  std::printf("%-26s %-7s %6lld x %4lld  A - Q R %.2f n u  Q^H Q - I %.2f n u  %s  %s\n", name,
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(m), static_cast<long long>(n), residual / unit,
              std::sqrt(departure) / unit, same ? "same bits" : "OTHER BITS", ok ? "ok" : "FAILED");
}

template <class E>
void checks(Device& device) {
  const auto plain = [](std::vector<E>&) {};
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1},
                             {5, 3},
                             {64, 64},
                             {65, 64},
                             {100, 65},
                             {129, 127},
                             {257, 256},
                             {1000, 999},
                             {5000, 130},
                             {70000, 96},
                             {1024, 1024}}) {
    check_case<E>(device, "normal", m, n, plain);
  }
  const int64_t m = 700, n = 400;
  const auto at = [&](std::vector<E>& a, int64_t i, int64_t j) -> E& { return a[static_cast<size_t>(j * m + i)]; };
  check_case<E>(device, "columns over 200 decades", m, n, [&](std::vector<E>& a) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i)
        at(a, i, j) = times_real(at(a, i, j), std::pow(10.0, 100 - 0.5 * static_cast<double>(j)));
    }
  });
  check_case<E>(device, "columns beyond the scale", m, n, [&](std::vector<E>& a) {
    for (int64_t j = n / 2; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) at(a, i, j) = times_real(at(a, i, j), 1e-150);
    }
  });
  check_case<E>(device, "rank 150", m, n, [&](std::vector<E>& a) {
    for (int64_t j = 150; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i)
        at(a, i, j) = plus_product(at(a, i, j % 150), at(a, i, (j + 7) % 150), from_real<E>(2));
    }
  });
  check_case<E>(device, "a zero column", m, n, [&](std::vector<E>& a) {
    for (int64_t i = 0; i < m; ++i) at(a, i, 200) = from_real<E>(0);
  });
  check_case<E>(device, "zero", m, n, [&](std::vector<E>& a) { std::fill(a.begin(), a.end(), from_real<E>(0)); });
  check_case<E>(device, "nearly parallel columns", m, n, [&](std::vector<E>& a) {
    for (int64_t j = 1; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) at(a, i, j) = plus_product(at(a, i, 0), at(a, i, j), from_real<E>(1e-4));
    }
  });
}

template <class E>
void times(Device& device, int64_t n) {
  Reflectors<E> reflectors(*device.lane, device.arena, device.watch);
  const Libraries& l = libraries();
  const auto type = kIsComplex<E> ? CUDA_C_64F : CUDA_R_64F;
  const LargeView<E> original = matrix<E>(device, n, n), a = matrix<E>(device, n, n), c = matrix<E>(device, n, n);
  E* const t = take_piece<E>(device.arena, Reflectors<E>::elements(n));
  E* const tau = take_piece<E>(device.arena, n);
  upload(original, normal<E>(n, n));
  const auto copy = [&](LargeView<E> to) {
    check(cudaMemcpyAsync(to.data, original.data, static_cast<size_t>(n * original.ld) * sizeof(E),
                          cudaMemcpyDeviceToDevice, device.lane->stream),
          "copying");
  };
  LibraryWork work(*device.lane, device.arena);
  require(l.cusolverDnXgeqrf_bufferSize(device.lane->cusolver, device.lane->params, n, n, type, a.data, a.ld, type, tau,
                                        type, &work.device_bytes, &work.host_bytes),
          "sizing");
  work.allocate();
  const double geqrf = median_ms(
      device.lane->stream, 7, [&] { copy(a); },
      [&] {
        require(l.cusolverDnXgeqrf(device.lane->cusolver, device.lane->params, n, n, type, a.data, a.ld, type, tau,
                                   type, work.device, work.device_bytes, work.host.get(), work.host_bytes, work.info),
                "geqrf");
      });
  double ormqr = 0;
  if constexpr (!kIsComplex<E>) {
    const int k = static_cast<int>(n), lda = static_cast<int>(a.ld);
    int elements = 0;
    check(cusolverDnDormqr_bufferSize(device.lane->cusolver, CUBLAS_SIDE_LEFT, CUBLAS_OP_N, k, k, k, a.data, lda, tau,
                                      c.data, lda, &elements) == CUSOLVER_STATUS_SUCCESS
              ? cudaSuccess
              : cudaErrorUnknown,
          "ormqr");
    double* const space = take_piece<double>(device.arena, elements);
    ormqr = median_ms(
        device.lane->stream, 7, [&] { copy(c); },
        [&] {
          (void)cusolverDnDormqr(device.lane->cusolver, CUBLAS_SIDE_LEFT, CUBLAS_OP_N, k, k, k, a.data, lda, tau,
                                 c.data, lda, space, elements, work.info);
        });
    device.arena.give_back(space);
  }
  const double own = median_ms(
      device.lane->stream, 7, [&] { copy(a); }, [&] { reflectors.factor(a, t); });
  const double apply = median_ms(
      device.lane->stream, 7, [&] { copy(c); }, [&] { reflectors.apply(Op::kNone, a, t, c); });
  std::printf("%-7s n %5lld  QR %8.2f ms, geqrf %8.2f: %.2f times as fast   Q C %8.2f ms, ormqr %8.2f\n",
              kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), own, geqrf, geqrf / own, apply, ormqr);
  for (const void* p : {static_cast<const void*>(original.data), static_cast<const void*>(a.data),
                        static_cast<const void*>(c.data), static_cast<const void*>(t), static_cast<const void*>(tau)}) {
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
      for (const int64_t n : {1024, 2048, 4096, 8192}) times<double>(device, n);
      for (const int64_t n : {1024, 2048, 4096}) times<svdserve::Complex>(device, n);
    }
  } catch (const svdserve::large::LargeStop& stop) {
    std::fprintf(stderr, "device_qr_bench: %s\n", stop.detail.c_str());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
