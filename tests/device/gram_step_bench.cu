// The three kernels of a p-step of block Jacobi, each with its time and its rate, every pair active.
//   device_gram_step_bench [order ...]      1024 2048 4096 8192 where none is named
// X is random with columns of norm near one, V begins as the identity. The tolerance is so small that every pair is
// always active. Medians of 15 p-steps over different pairs. The checksum is of X and V after all of them: it tells
// whether a change of the kernels keeps the bits.
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/p_steps/gram_step.h"
#include "tests/device/device_bench.h"

namespace svdserve::cuda {
namespace {

using device_bench::check;
using device_bench::device_memory;

constexpr int kSteps = 15;

template <class E>
std::vector<E> random_columns(int64_t n) {
  std::vector<E> x(static_cast<size_t>(n * n));
  void* const numbers = device_bench::normal_on_device(false, x.size() * sizeof(E));
  check(cudaMemcpy(x.data(), numbers, x.size() * sizeof(E), cudaMemcpyDeviceToHost), "download");
  cudaFree(numbers);
  const double scale = 0.7 / std::sqrt(static_cast<double>(n) * (kIsComplex<E> ? 2 : 1));
  auto* const parts = reinterpret_cast<double*>(x.data());
  for (size_t i = 0; i < x.size() * sizeof(E) / sizeof(double); ++i) parts[i] *= scale;
  return x;
}

template <class E>
struct Operands {
  explicit Operands(int64_t n) : order(n), bytes(static_cast<size_t>(n * n) * sizeof(E)) {
    x = static_cast<E*>(device_memory(bytes));
    v = static_cast<E*>(device_memory(bytes));
    exponents = static_cast<int32_t*>(device_memory(static_cast<size_t>(n) * sizeof(int32_t)));
    counters = static_cast<GramStepCounts*>(device_memory(sizeof(GramStepCounts)));
    check(cudaMemcpy(x, random_columns<E>(n).data(), bytes, cudaMemcpyHostToDevice), "upload");
    std::vector<E> identity(static_cast<size_t>(n * n));
    for (int64_t i = 0; i < n; ++i) identity[static_cast<size_t>(i * (n + 1))] = from_real<E>(1);
    check(cudaMemcpy(v, identity.data(), bytes, cudaMemcpyHostToDevice), "upload");
    check(cudaMemset(exponents, 0, static_cast<size_t>(n) * sizeof(int32_t)), "clearing");
    check(cudaMemset(counters, 0, sizeof(GramStepCounts)), "clearing");
  }
  ~Operands() {
    for (void* p :
         {static_cast<void*>(x), static_cast<void*>(v), static_cast<void*>(exponents), static_cast<void*>(counters)}) {
      cudaFree(p);
    }
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  uint64_t checksum() const {
    std::vector<uint64_t> words(bytes / sizeof(uint64_t));
    uint64_t sum = 0;
    for (const E* from : {x, v}) {
      check(cudaMemcpy(words.data(), from, bytes, cudaMemcpyDeviceToHost), "download");
      for (const uint64_t w : words) sum = (sum ^ w) * 0x9e3779b97f4a7c15u;
    }
    return sum;
  }

  int64_t order;
  size_t bytes;
  E *x = nullptr, *v = nullptr;
  int32_t* exponents = nullptr;
  GramStepCounts* counters = nullptr;
};

// The pairs of p-step `step`: a block of the first half, with one of the second.
std::vector<GramStepPair> pairs_of(int blocks, int step) {
  std::vector<GramStepPair> pairs;
  const int half = blocks / 2;
  for (int i = 0; i < half; ++i) pairs.push_back({i, half + (i + step) % half});
  return pairs;
}

double median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

template <class E>
void time_p_step(int64_t n, int k) {
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  const GramStepLimits limits{device.multiProcessorCount, static_cast<int>(device.sharedMemPerBlockOptin)};
  if (!gram_step_supports<E>(k, limits)) return;
  const int blocks = static_cast<int>(2 * n / k), count = blocks / 2;
  Operands<E> operands(n);
  auto* const pairs = static_cast<GramStepPair*>(device_memory(static_cast<size_t>(count) * sizeof(GramStepPair)));
  void* const workspace = device_memory(gram_step_workspace_bytes<E>(count, k, GramStepParts().most));
  cudaEvent_t marks[4];
  for (cudaEvent_t& mark : marks) check(cudaEventCreate(&mark), "cudaEventCreate");
  std::vector<double> ms[3];
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<GramStepPair> list = pairs_of(blocks, step);
    check(cudaMemcpy(pairs, list.data(), list.size() * sizeof(GramStepPair), cudaMemcpyHostToDevice), "upload");
    const GramStepCall<E> call{{operands.x, n, n, n},
                               {operands.v, n, n, n},
                               operands.exponents,
                               n,
                               pairs,
                               count,
                               k / 2,
                               k,
                               1e-300,
                               large::kZeroColumn,
                               1,
                               operands.counters,
                               GramStepVersions{},
                               workspace};
    check(launch_gram_step(call, limits, marks, nullptr), "launch_gram_step");
    check(cudaDeviceSynchronize(), "a p-step");
    for (int i = 0; i < 3; ++i) {
      float elapsed = 0;
      check(cudaEventElapsedTime(&elapsed, marks[i], marks[i + 1]), "cudaEventElapsedTime");
      ms[i].push_back(static_cast<double>(elapsed));
    }
  }
  for (cudaEvent_t& mark : marks) check(cudaEventDestroy(mark), "cudaEventDestroy");
  const double size = static_cast<double>(n), flops = (kIsComplex<E> ? 4 : 1) * count * size * k;
  const double gram = median(ms[0]), inner = median(ms[1]), post = median(ms[2]);
  std::printf(
      "%-7s n %5lld K %3d  Gram %7.1f us %5.1f TFLOP/s   inner %7.1f us   X W, V W %7.1f us %5.1f TFLOP/s   "
      "checksum %016llx\n",
      kIsComplex<E> ? "complex" : "real", static_cast<long long>(n), k, gram * 1e3, flops * (k + 1) / gram * 1e-9,
      inner * 1e3, post * 1e3, flops * 4 * k / post * 1e-9, static_cast<unsigned long long>(operands.checksum()));
  cudaFree(pairs);
  cudaFree(workspace);
}

void run(int64_t n) {
  time_p_step<double>(n, 64);
  time_p_step<double>(n, 128);
  time_p_step<Complex>(n, 64);
}

}  // namespace
}  // namespace svdserve::cuda

int main(int argc, char** argv) {
  std::vector<int64_t> orders;
  for (int i = 1; i < argc; ++i) orders.push_back(std::strtoll(argv[i], nullptr, 10));
  if (orders.empty()) orders = {1024, 2048, 4096, 8192};
  for (const int64_t n : orders) {
    if (n < 256 || n % 256 != 0) {
      std::fprintf(stderr, "device_gram_step_bench: orders must be multiples of 256, but one is %lld\n",
                   static_cast<long long>(n));
      return 2;
    }
    svdserve::cuda::run(n);
  }
  return 0;
}
