// The arithmetic that kernels take for granted on a GPU. reciprocal() and sqrt_in_range() round correctly, for every
// float in their range. For doubles the starts of their iterations are all measured. Then every number is compared for
// which so good a start leaves the result open (engine/decisions/0004). Division and square root are IEEE's on the GPU as
// on the CPU.
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

// --- doubles ----------------------------------------------------------------------------------------------------------

// Starts depend on the upper half of a double. So all of them are compared, each with three lower halves. Counts results
// that differ from IEEE's, and starts that differ by the lower half or whose relative error is above 2^-19.
__global__ void compare_doubles(uint32_t first, uint32_t n, bool root, unsigned long long* differ,
                                unsigned long long* poor) {
  constexpr double kWorstStart = 0x1p-19;
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint32_t high = first + i, low[3] = {0, ~0u, high * 2654435761u};
  double of_zero = 0;
  for (int x = 0; x < 3; ++x) {
    const double a = __hiloint2double(static_cast<int>(high), static_cast<int>(low[x]));
    double start;
    if (root) {
      asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(start) : "d"(a));
    } else {
      asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(start) : "d"(a));
    }
    if (x == 0) of_zero = start;
    const double error = root ? std::fma(a * start, -start, 1.0) / 2 : std::fma(-a, start, 1.0);
    if (start != of_zero || !(std::fabs(error) <= kWorstStart)) atomicAdd(poor, 1ull);
    const double fast = root ? sqrt_in_range(ScalarLane<double>(a)).v : reciprocal(ScalarLane<double>(a)).v;
    const double exact = root ? __dsqrt_rn(a) : __drcp_rn(a);
    if (__double_as_longlong(fast) != __double_as_longlong(exact)) atomicAdd(differ, 1ull);
  }
}

uint64_t differing_doubles(bool root) {
  using F = FloatTraits<double>;
  const auto high_of = [](double x) {
    uint64_t bits;
    std::memcpy(&bits, &x, sizeof(bits));
    return static_cast<uint32_t>(bits >> 32);
  };
  const uint32_t first = high_of(root ? F::kNegligibleSquare : F::kReciprocalSmallest);
  const uint32_t n = high_of(F::kRangeLargest) - first;
  unsigned long long* counts = nullptr;
  unsigned long long host[2] = {~0ull, ~0ull};
  if (!check(cudaMalloc(&counts, 16)) || !check(cudaMemset(counts, 0, 16))) return host[0];
  compare_doubles<<<(n + 255) / 256, 256>>>(first, n, root, counts, counts + 1);
  check(cudaMemcpy(host, counts, 16, cudaMemcpyDeviceToHost));
  cudaFree(counts);
  std::printf("f64 %s: %llu numbers, %llu differ\n", root ? "sqrt_in_range" : "reciprocal", 3ull * n, host[0]);
  std::printf("f64 %s, starts within 2^-19: %u numbers, %llu poor\n", root ? "sqrt_in_range" : "reciprocal", n,
              host[1]);
  return host[0] + host[1];
}

__global__ void take_roots(const double* a, int n, double* root) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) root[i] = sqrt_in_range(ScalarLane<double>(a[i])).v;
}

// A root of d modulo 2^bits, for d = 1 modulo 8.
uint64_t root_modulo(int64_t d, int bits) {
  uint64_t r = 1;
  for (int bit = 3; bit < bits; ++bit) {
    if (((r * r - static_cast<uint64_t>(d)) >> bit & 1) != 0) r += uint64_t{1} << (bit - 1);
  }
  return r;
}

// The doubles a in [1, 4) with a = m^2 - d 2^-106, m half way between two doubles, |d| < 4096. Their roots are as near to
// m as 2^-96; no other root is.
std::vector<double> with_roots_half_way() {
  std::vector<double> found;
  for (int64_t d = -4095; d < 4096; d += 8) {  // = 1 modulo 8: others have no root
    for (const int bits : {54, 55}) {
      const uint64_t r = root_modulo(d, bits), half = uint64_t{1} << (bits - 1), mask = 2 * half - 1;
      for (const uint64_t m : {r & mask, (r + half) & mask, (0 - r) & mask, (half - r) & mask}) {
        if (m < uint64_t{1} << 53 || m >= uint64_t{1} << 54) continue;
        const auto square = static_cast<unsigned __int128>(m) * m;  // 2^106 m^2 where m counts 2^-53
        const auto a =
            static_cast<uint64_t>((square - static_cast<unsigned __int128>(static_cast<__int128>(d))) >> bits);
        if (a >> 52 != 1) continue;  // belongs to the other interval
        found.push_back(std::ldexp(static_cast<double>(a), bits == 54 ? -52 : -51));
      }
    }
  }
  return found;
}

uint64_t differing_hard_roots() {
  std::vector<double> a;
  for (const double x : with_roots_half_way()) {
    for (const int exponent : {-898, -300, 0, 2, 302, 996}) a.push_back(std::ldexp(x, exponent));
  }
  const int n = static_cast<int>(a.size());
  std::vector<double> root(a.size());
  double* d = nullptr;
  if (!check(cudaMalloc(&d, 2 * a.size() * sizeof(double)))) return 1;
  check(cudaMemcpy(d, a.data(), a.size() * sizeof(double), cudaMemcpyHostToDevice));
  take_roots<<<(n + 255) / 256, 256>>>(d, n, d + n);
  check(cudaMemcpy(root.data(), d + n, a.size() * sizeof(double), cudaMemcpyDeviceToHost));
  cudaFree(d);
  uint64_t differ = 0;
  for (size_t i = 0; i < a.size(); ++i) differ += root[i] == std::sqrt(a[i]) ? 0 : 1;
  std::printf("f64 roots near half way: %d numbers, %llu differ\n", n, static_cast<unsigned long long>(differ));
  return n > 1000 ? differ : 1;
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
  const uint64_t differ = differing_floats(false) + differing_floats(true) + differing_doubles(false) +
                          differing_doubles(true) + differing_hard_roots() + differing_results<float>("f32") +
                          differing_results<double>("f64");
  return differ == 0 ? 0 : 1;
}
