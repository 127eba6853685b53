#include "engine/backends/host/large/host_work_speeds.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {
namespace {

// Real operations a second of one thread in a product of matrices, the best of some runs.
double product_speed() {
  constexpr int64_t kOrder = 192;
  constexpr int kRuns = 5;
  const BlasThreads one_thread_a_call;
  const std::vector<double> a(kOrder * kOrder, 1.0);
  std::vector<double> c(kOrder * kOrder);
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    blas::gemm(false, false, kOrder, kOrder, kOrder, 1, a.data(), kOrder, a.data(), kOrder, 0, c.data(), kOrder);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return 2.0 * kOrder * kOrder * kOrder / std::max(best, 1e-9);
}

}  // namespace

// Ratios to products were measured on two cores with AVX-512 at orders of 500 to 4000 (`large_bench phases`). An
// eigenbasis has a seventh of its operations in products with a vector, by one thread.
large::WorkSpeeds host_work_speeds(int threads) {
  static const double one = product_speed();
  const double all = one * threads;
  constexpr double kAlone = 1.0 / 7;
  large::WorkSpeeds speeds;
  speeds.products = {all, 0};
  speeds.qr = {0.9 * all, 0};
  speeds.eigenbasis = {1 / (kAlone / (0.45 * one) + (1 - kAlone) / all), 0};
  speeds.single_eigenbasis = 0.5;
  speeds.indefinite_factor = {0.3 * all, 0};
  speeds.sweeps = {0.75 * all, 0};
  speeds.general_qr = {0.7 * all, 0};
  speeds.bytes = 0.5e9 * std::min(threads, 8) + 0.3e9;
  return speeds;
}

}  // namespace svdserve::host
