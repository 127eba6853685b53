// Code shared by benches of kernels on device memory: timing by events, memory, random matrices, the rate of a copy.
#ifndef SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_
#define SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

namespace svdserve::device_bench {

inline void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

// Best of 5 of the seconds that one call of f takes; each measurement repeats it.
template <class F>
double best_seconds(int repeat, F f) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  f();
  check(cudaDeviceSynchronize(), "warm-up");
  double best = 1e30;
  for (int round = 0; round < 5; ++round) {
    check(cudaEventRecord(begin), "record");
    for (int i = 0; i < repeat; ++i) f();
    check(cudaEventRecord(end), "record");
    check(cudaEventSynchronize(end), "synchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "elapsed");
    best = std::min(best, ms * 1e-3 / repeat);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best;
}

inline void* device_memory(size_t bytes) {
  void* p = nullptr;
  check(cudaMalloc(&p, bytes), "cudaMalloc");
  return p;
}

// Bytes a second, read plus written.
inline double copy_rate() {
  const size_t bytes = size_t{2} << 30;
  void* const from = device_memory(bytes);
  void* const to = device_memory(bytes);
  check(cudaMemset(from, 1, bytes), "memset");
  const double s = best_seconds(5, [&] { check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice), "copy"); });
  cudaFree(from);
  cudaFree(to);
  return 2 * static_cast<double>(bytes) / s;
}

template <class T>
std::vector<T> normal_numbers(size_t n) {
  // A pool, repeated with other signs and at other offsets: a generator of a hundred million normals takes minutes.
  std::mt19937_64 bits(5);
  std::normal_distribution<double> normal;
  std::vector<T> pool(1 << 20), all(n);
  for (T& x : pool) x = static_cast<T>(normal(bits));
  for (size_t i = 0; i < n; i += 4096) {
    const size_t at = bits() % (pool.size() - 4096);
    const T sign = bits() % 2 == 0 ? T(1) : T(-1);
    for (size_t x = 0; x < std::min<size_t>(4096, n - i); ++x) all[i + x] = sign * pool[at + x];
  }
  return all;
}

// n normal numbers of an element type, in device memory.
inline void* normal_on_device(bool single, size_t bytes) {
  void* const a = device_memory(bytes);
  if (single) {
    const auto numbers = normal_numbers<float>(bytes / sizeof(float));
    check(cudaMemcpy(a, numbers.data(), bytes, cudaMemcpyHostToDevice), "upload");
  } else {
    const auto numbers = normal_numbers<double>(bytes / sizeof(double));
    check(cudaMemcpy(a, numbers.data(), bytes, cudaMemcpyHostToDevice), "upload");
  }
  return a;
}

}  // namespace svdserve::device_bench
#endif  // SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_
