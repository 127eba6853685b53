// The arithmetic that kernels take for granted on a GPU. reciprocal() and sqrt_in_range() round correctly, for every
// float in their range. Division and square root are IEEE's on the GPU as on the CPU.
//   device_arithmetic     exit code 1: something differs
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "engine/core/lane.h"

namespace svdserve {
namespace {

using scalar::ScalarLane;

// Counts the floats first .. first + n - 1, by their bits, whose results differ from IEEE's.
__global__ void compare_floats(uint32_t first, uint32_t n, bool root, unsigned long long* differ) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = __uint_as_float(first + i);
  const float fast = root ? sqrt_in_range(ScalarLane<float>(x)).v : reciprocal(ScalarLane<float>(x)).v;
  const float exact = root ? __fsqrt_rn(x) : __frcp_rn(x);
  if (__float_as_uint(fast) != __float_as_uint(exact)) atomicAdd(differ, 1ull);
}

template <class T>
__global__ void operate(const T* a, const T* b, int n, T* quotient, T* root) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  quotient[i] = (ScalarLane<T>(a[i]) / ScalarLane<T>(b[i])).v;
  root[i] = sqrt(ScalarLane<T>(b[i])).v;
}

bool check(cudaError_t e) {
  if (e != cudaSuccess) std::printf("%s\n", cudaGetErrorString(e));
  return e == cudaSuccess;
}

uint32_t bits_of(float x) {
  uint32_t b;
  std::memcpy(&b, &x, sizeof(b));
  return b;
}

uint64_t differing_floats(bool root) {
  using F = FloatTraits<float>;
  const uint32_t first = bits_of(root ? F::kNegligibleSquare : F::kReciprocalSmallest);
  const uint32_t n = bits_of(F::kRangeLargest) - first + 1;
  unsigned long long* differ = nullptr;
  unsigned long long host = ~0ull;
  if (!check(cudaMalloc(&differ, 8)) || !check(cudaMemset(differ, 0, 8))) return host;
  compare_floats<<<(n + 255) / 256, 256>>>(first, n, root, differ);
  check(cudaMemcpy(&host, differ, 8, cudaMemcpyDeviceToHost));
  cudaFree(differ);
  std::printf("%s: %u floats, %llu differ\n", root ? "sqrt_in_range" : "reciprocal", n, host);
  return host;
}

// Quotients and roots of numbers of all exponents on the GPU against the CPU's.
template <class T>
uint64_t differing_results(const char* name) {
  using Bits = typename FloatTraits<T>::Bits;
  constexpr int kNumbers = 1 << 24;
  std::mt19937_64 random(11);
  std::vector<T> a(kNumbers), b(kNumbers), quotient(kNumbers), root(kNumbers);
  for (int i = 0; i < kNumbers; ++i) {
    const Bits x = static_cast<Bits>(random()), y = static_cast<Bits>(random()) & (~Bits{0} >> 1);
    std::memcpy(&a[i], &x, sizeof(T));
    std::memcpy(&b[i], &y, sizeof(T));
  }
  T* d = nullptr;
  const size_t bytes = kNumbers * sizeof(T);
  if (!check(cudaMalloc(&d, 4 * bytes))) return 1;
  check(cudaMemcpy(d, a.data(), bytes, cudaMemcpyHostToDevice));
  check(cudaMemcpy(d + kNumbers, b.data(), bytes, cudaMemcpyHostToDevice));
  operate<T><<<kNumbers / 256, 256>>>(d, d + kNumbers, kNumbers, d + 2 * kNumbers, d + 3 * kNumbers);
  check(cudaMemcpy(quotient.data(), d + 2 * kNumbers, bytes, cudaMemcpyDeviceToHost));
  check(cudaMemcpy(root.data(), d + 3 * kNumbers, bytes, cudaMemcpyDeviceToHost));
  cudaFree(d);
  uint64_t differ = 0;
  const auto same = [](T x, T y) { return std::memcmp(&x, &y, sizeof(T)) == 0 || (std::isnan(x) && std::isnan(y)); };
  for (int i = 0; i < kNumbers; ++i) {
    if (!same(quotient[i], a[i] / b[i]) || !same(root[i], std::sqrt(b[i]))) ++differ;
  }
  std::printf("%s quotients and roots: %d, %llu differ\n", name, kNumbers, static_cast<unsigned long long>(differ));
  return differ;
}

}  // namespace
}  // namespace svdserve

int main() {
  using namespace svdserve;
  const uint64_t differ = differing_floats(false) + differing_floats(true) + differing_results<float>("f32") +
                          differing_results<double>("f64");
  return differ == 0 ? 0 : 1;
}
