// Eigenproblems of tridiagonal matrices on the device (engine/backends/cuda/tridiagonal/tridiagonal_eigen.h): are they right,
// and how long do they take.
//   device_tridiagonal_bench [checks] [large] [times]      all where nothing is named
// Checks: every kind of matrix of order 1 .. 130; `large` has those of 300 .. 8192. Errors are the largest column of
// T V - V L beside |T|, and the largest entry of V^T V - I, both in n u; eigenvalues ascend. So it is with gaps between V's
// columns, too. Without them the same bits come twice; with other gaps cuBLAS may choose other kernels, which round
// otherwise. The exit status says whether all passed. Times: medians of 5, with the bytes of V and of the workspace.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/tridiagonal/tridiagonal_eigen.h"
#include "tests/device/large_device.h"
#include "tests/support/numerics/tridiagonal_samples.h"

namespace svdserve::cuda {
namespace {

using device_bench::check;
using numerics::Tridiagonal;

constexpr double kUnit = 0x1p-53;
int failures = 0;

struct Device {
  Device() : lane(take_lane(0)) {}
  std::unique_ptr<LargeLane> lane;
  LargeControl control;
  large::LargeWatch watch{control};
};

template <class T>
class Memory {
 public:
  explicit Memory(int64_t n)
      : data_(static_cast<T*>(device_bench::device_memory(static_cast<size_t>(n) * sizeof(T)))) {}
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* get() const { return data_; }

 private:
  T* data_;
};

// The largest |T v - lambda v| of columns; a column a warp.
__global__ void residual_kernel(int n, const double* d, const double* e, const double* values, const double* v,
                                int64_t ld, double* norms) {
  const int j = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  const double* const x = v + j * ld;
  double sum = 0;
  for (int i = lane; i < n; i += 32) {
    double r = (d[i] - values[j]) * x[i];
    if (i > 0) r = fma(e[i - 1], x[i - 1], r);
    if (i + 1 < n) r = fma(e[i], x[i + 1], r);
    sum = fma(r, r, sum);
  }
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(~0u, sum, distance);
  if (lane == 0) norms[j] = sqrt(sum);
}

// The largest |g_ij - [i = j]| of each column.
__global__ void departure_kernel(int n, const double* g, double* most) {
  const int j = static_cast<int>(blockIdx.x), lane = static_cast<int>(threadIdx.x);
  double worst = 0;
  for (int i = lane; i < n; i += 32) {
    const double error = fabs(g[i + static_cast<int64_t>(j) * n] - (i == j ? 1 : 0));
    worst = error > worst || isnan(error) ? error : worst;
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    const double other = __shfl_xor_sync(~0u, worst, distance);
    worst = other > worst || isnan(other) ? other : worst;
  }
  if (lane == 0) most[j] = worst;
}

__global__ void compare_kernel(int n, const double* a, int64_t a_ld, const double* b, int64_t b_ld, int* differ) {
  const int j = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) {
    if (__double_as_longlong(a[i + j * a_ld]) != __double_as_longlong(b[i + j * b_ld])) *differ = 1;
  }
}

double largest(const std::vector<double>& x) {
  double most = 0;
  for (const double y : x) most = y > most || std::isnan(y) ? y : most;
  return most;
}

// One matrix and its eigenpairs on the device.
class Case {
 public:
  Case(Device& device, const Tridiagonal& t, int64_t ld)
      : device_(device),
        n_(t.n()),
        ld_(ld),
        d_(n_),
        e_(n_),
        values_(n_),
        norms_(n_),
        v_(ld * n_),
        work_(static_cast<int64_t>(tridiagonal_work_bytes(n_))) {
    upload(d_.get(), t.d);
    upload(e_.get(), t.e);
    // Neither may be read before it is written to.
    check(cudaMemset(v_.get(), 0xff, static_cast<size_t>(ld * n_) * sizeof(double)), "memset");
    check(cudaMemset(work_.get(), 0xff, tridiagonal_work_bytes(n_)), "memset");
  }

  bool solve() {
    check(cudaMemcpyAsync(values_.get(), d_.get(), static_cast<size_t>(n_) * sizeof(double), cudaMemcpyDeviceToDevice,
                          device_.lane->stream),
          "copy");
    const TridiagonalCall call{n_, values_.get(), e_.get(), v_.get(), ld_, work_.get()};
    return tridiagonal_eigen(*device_.lane, device_.watch, call);
  }

  std::vector<double> fetch(const double* from) {
    check(cudaStreamSynchronize(device_.lane->stream), "eigenvectors");
    std::vector<double> to(static_cast<size_t>(n_));
    check(cudaMemcpy(to.data(), from, to.size() * sizeof(double), cudaMemcpyDeviceToHost), "download");
    return to;
  }
  std::vector<double> values() { return fetch(values_.get()); }

  // For V beside another matrix and eigenvalues.
  double residual_of(const Tridiagonal& t, const std::vector<double>& values) {
    const Memory<double> d(n_), e(n_), of_columns(n_);
    upload(d.get(), t.d);
    upload(e.get(), t.e);
    upload(of_columns.get(), values);
    residual_kernel<<<static_cast<unsigned>(n_), 32, 0, device_.lane->stream>>>(
        static_cast<int>(n_), d.get(), e.get(), of_columns.get(), v_.get(), ld_, norms_.get());
    return largest(fetch(norms_.get()));
  }

  double departure() {
    const Memory<double> g(n_ * n_);
    const double one = 1, zero = 0;
    const int n = static_cast<int>(n_), ld = static_cast<int>(ld_);
    require(libraries().cublasDgemm_v2(device_.lane->cublas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, v_.get(), ld,
                                       v_.get(), ld, &zero, g.get(), n),
            "multiplying");
    departure_kernel<<<static_cast<unsigned>(n_), 32, 0, device_.lane->stream>>>(n, g.get(), norms_.get());
    return largest(fetch(norms_.get()));
  }

  bool has_bits_of(const Case& other) {
    const Memory<int> differ(1);
    int found = 0;
    check(cudaMemset(differ.get(), 0, sizeof(int)), "memset");
    compare_kernel<<<static_cast<unsigned>(n_), 256, 0, device_.lane->stream>>>(
        static_cast<int>(n_), v_.get(), ld_, other.v_.get(), other.ld_, differ.get());
    check(cudaStreamSynchronize(device_.lane->stream), "comparing");
    check(cudaMemcpy(&found, differ.get(), sizeof found, cudaMemcpyDeviceToHost), "download");
    return found == 0;
  }

  double median_ms() {
    cudaStream_t const stream = device_.lane->stream;
    return device_bench::median_ms(
        stream, 5, [&] { check(cudaStreamSynchronize(stream), "eigenvectors"); }, [&] { solve(); });
  }

 private:
  static void upload(double* to, const std::vector<double>& from) {
    check(cudaMemcpy(to, from.data(), from.size() * sizeof(double), cudaMemcpyHostToDevice), "upload");
  }

  Device& device_;
  const int64_t n_, ld_;
  const Memory<double> d_, e_, values_, norms_, v_;
  const Memory<char> work_;
};

double size_of(const Tridiagonal& t) {
  double most = 0;
  for (size_t i = 0; i < t.d.size(); ++i) {
    most = std::max(most, std::fabs(t.d[i]));
    if (i + 1 < t.d.size()) most = std::max(most, std::fabs(t.e[i]));
  }
  return most;
}

// The larger errors of some Cases of T, in n u.
struct Errors {
  explicit Errors(const Tridiagonal& t) : scaled(t), unit((static_cast<double>(t.n()) + 10) * kUnit) {
    // Squares of tiny and huge numbers leave the range: the same vectors belong to the scaled matrix.
    std::frexp(size_of(t), &exponent);
    for (double& x : scaled.d) x = std::ldexp(x, -exponent);
    for (double& x : scaled.e) x = std::ldexp(x, -exponent);
  }
  void add(Case& found) {
    std::vector<double> values = found.values();
    ascend = ascend && std::is_sorted(values.begin(), values.end());
    for (double& x : values) x = std::ldexp(x, -exponent);
    residual = largest({residual, found.residual_of(scaled, values) / unit});
    departure = largest({departure, found.departure() / unit});
  }
  bool are_small() const {
    const double rounding = std::ldexp(std::numeric_limits<double>::denorm_min(), -exponent) / unit;  // of a result
    return residual <= 2 + rounding && departure <= 2;
  }

  Tridiagonal scaled;
  double unit;
  int exponent = 0;
  bool ascend = true;
  double residual = 0, departure = 0;
};

// Prints a line where it failed or where `tells`.
void check_case(Device& device, const char* name, const Tridiagonal& t, bool tells) {
  const int64_t n = t.n();
  Case found(device, t, n), again(device, t, n), apart(device, t, n + 3);
  bool ok = found.solve() && again.solve() && apart.solve();
  const bool same = found.has_bits_of(again) && found.values() == again.values();
  Errors errors(t);
  errors.add(found);
  errors.add(apart);
  ok = ok && same && errors.ascend && errors.are_small();
  failures += ok ? 0 : 1;
  if (ok && !tells) return;
  std::printf("%-24s n %5lld  T V - V L %.3f n u |T|  V^T V - I %.3f n u  %s  %s\n", name, static_cast<long long>(n),
              errors.residual, errors.departure, same ? "same bits" : "OTHER BITS", ok ? "ok" : "FAILED");
}

void checks(Device& device) {
  for (const numerics::TridiagonalKind& kind : numerics::tridiagonal_kinds()) {
    for (int32_t n = 1; n <= 130; ++n) check_case(device, kind.name, kind.make(n), n == 130);
  }
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    Tridiagonal t = numerics::random_tridiagonal(100, 1);
    t.d[70] = bad;
    if (Case(device, t, 100).solve()) {
      ++failures;
      std::printf("a matrix that is not finite was solved  FAILED\n");
    }
  }
}

void large_checks(Device& device) {
  for (const numerics::TridiagonalKind& kind : numerics::tridiagonal_kinds()) {
    for (const int32_t n : {300, 513, 1000, 1024, 2048, 3001, 4096, 8192}) {
      check_case(device, kind.name, kind.make(n), true);
    }
  }
}

void times(Device& device) {
  for (const numerics::TridiagonalKind& kind : numerics::tridiagonal_kinds()) {
    for (const int32_t n : {32, 64, 128, 256, 512, 1024, 2048, 4096, 8192}) {
      const Tridiagonal t = kind.make(n);
      const double ms = Case(device, t, n).median_ms();
      const double v_bytes = 8.0 * n * n;
      std::printf("%-24s n %5d  %8.3f ms  V %.1f MB, workspace %.1f MB\n", kind.name, n, ms, v_bytes * 1e-6,
                  static_cast<double>(tridiagonal_work_bytes(n)) * 1e-6);
    }
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
    if (wants("checks")) checks(device);
    if (wants("large")) large_checks(device);
    std::printf("%d failures\n", failures);
    if (wants("times")) times(device);
  } catch (const svdserve::large::LargeStop& stop) {
    std::fprintf(stderr, "device_tridiagonal_bench: %s\n", stop.detail.c_str());
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
