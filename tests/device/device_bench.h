// Code shared by benches of kernels on device memory: timing by events, memory, random matrices, the rate of a copy.
#ifndef SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_
#define SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_

#include <cuda_runtime.h>
#include <curand_kernel.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
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

// Independent normal numbers: Philox, one stream a thread. No two columns of a matrix are equal.
template <class T>
__global__ void fill_with_normal_numbers(T* a, size_t n) {
  const size_t thread = blockIdx.x * size_t{blockDim.x} + threadIdx.x, threads = size_t{gridDim.x} * blockDim.x;
  curandStatePhilox4_32_10_t state;
  curand_init(5, thread, 0, &state);
  for (size_t i = thread; i < n; i += threads) {
    if constexpr (sizeof(T) == 4) {
      a[i] = curand_normal(&state);
    } else {
      a[i] = curand_normal_double(&state);
    }
  }
}

// n normal numbers of an element type, in device memory.
inline void* normal_on_device(bool single, size_t bytes) {
  void* const a = device_memory(bytes);
  constexpr int kBlocks = 1024, kThreads = 256;
  if (single) {
    fill_with_normal_numbers<<<kBlocks, kThreads>>>(static_cast<float*>(a), bytes / sizeof(float));
  } else {
    fill_with_normal_numbers<<<kBlocks, kThreads>>>(static_cast<double*>(a), bytes / sizeof(double));
  }
  check(cudaDeviceSynchronize(), "normal numbers");
  return a;
}

// The shapes that are named, "MxN,MxN", or the usual ones of "all" and of no name. None: a name is no shape.
using Shapes = std::vector<std::pair<int, int>>;
inline Shapes shapes_of(const std::string& names, const Shapes& usual) {
  if (names.empty() || names == "all") return usual;
  Shapes shapes;
  std::istringstream words(names);
  for (std::string name; std::getline(words, name, ',');) {
    int m = 0, n = 0;
    if (std::sscanf(name.c_str(), "%dx%d", &m, &n) != 2) return {};
    shapes.emplace_back(m, n);
  }
  return shapes;
}

}  // namespace svdserve::device_bench
#endif  // SVDSERVE_TESTS_DEVICE_DEVICE_BENCH_H_
