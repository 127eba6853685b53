// Large factors on a GPU: are they right, are the bits the same twice, and how long do they take beside cuSOLVER.
//   device_large_bench [checks] [times] [tall] [eigen] [leading] [values] [profile]   all but the profile where nothing is named
//   device_large_bench largest ORDER ...                                        singular values alone of these orders
//   device_large_bench largest-vectors [GIB:]ORDER ...    U and V of these orders, in so many GiB of the GPU's memory, or in
//                                               as little as keeps whole matrices there. gpus=2 before all of it: on a
//                                               ring of two GPUs, or of 4 or 8
// Checks print one line each, and the exit status says whether all passed. Residuals and orthogonality are computed by
// the host's BLAS in complex double precision, values are held to LAPACK's dgesvj and zgesvj. Times: f64, U and V,
// random normal unless said. "call" is from host memory to host memory, "compute" the device without transfers;
// cuSOLVER's operands are on the device already. Shares are of 60 TFLOP/s.
#include <cusolverDn.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda_large_engine.h"
#include "tests/device/device_bench.h"

extern "C" {
void dgesvj_(const char*, const char*, const char*, const int*, const int*, double*, const int*, double*, const int*,
             double*, const int*, double*, const int*, int*);
void zgesvj_(const char*, const char*, const char*, const int*, const int*, void*, const int*, double*, const int*,
             void*, const int*, void*, const int*, double*, const int*, int*);
void zgemm_(const char*, const char*, const int*, const int*, const int*, const void*, const void*, const int*,
            const void*, const int*, const void*, void*, const int*);
}

namespace svdserve {
namespace {

using namespace device_bench;  // NOLINT: what benches share
using Entry = std::complex<double>;

std::unique_ptr<LargeEngine> engine;
int failures = 0;

// --- matrices -----------------------------------------------------------------------------------------------------

// Column-major, of the widest type.
struct Dense {
  int64_t rows = 0, cols = 0;
  std::vector<Entry> entries;

  Dense() = default;
  Dense(int64_t m, int64_t n) : rows(m), cols(n), entries(static_cast<size_t>(m * n)) {}
  Entry& at(int64_t i, int64_t j) { return entries[static_cast<size_t>(j * rows + i)]; }
  const Entry& at(int64_t i, int64_t j) const { return entries[static_cast<size_t>(j * rows + i)]; }
};

std::mt19937_64 bits(11);

Dense normal(int64_t m, int64_t n, bool complex) {
  std::normal_distribution<double> number;
  Dense a(m, n);
  for (Entry& x : a.entries) x = {number(bits), complex ? number(bits) : 0};
  return a;
}

Dense adjoint(const Dense& a) {
  Dense b(a.cols, a.rows);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) b.at(j, i) = std::conj(a.at(i, j));
  }
  return b;
}

// Rows, or columns, reflected by eight random vectors: of a diagonal matrix a dense one with the same values.
void reflect_rows(Dense& a, bool complex) {
  for (int r = 0; r < 8; ++r) {
    const Dense u = normal(a.rows, 1, complex);
    double square = 0;
    for (const Entry& x : u.entries) square += std::norm(x);
    for (int64_t j = 0; j < a.cols; ++j) {
      Entry dot = 0;
      for (int64_t i = 0; i < a.rows; ++i) dot += std::conj(u.at(i, 0)) * a.at(i, j);
      dot *= 2 / square;
      for (int64_t i = 0; i < a.rows; ++i) a.at(i, j) -= dot * u.at(i, 0);
    }
  }
}
Dense with_values(int64_t m, int64_t n, bool complex, const std::function<double(int64_t, int64_t)>& value) {
  Dense a(m, n);
  for (int64_t i = 0; i < std::min(m, n); ++i) a.at(i, i) = value(i, std::min(m, n));
  reflect_rows(a, complex);
  Dense b = adjoint(a);
  reflect_rows(b, complex);
  return adjoint(b);
}

// Columns over 10^-decades .. 10^decades, not in order.
Dense graded(int64_t m, int64_t n, bool complex, double decades) {
  Dense a = normal(m, n, complex);
  for (int64_t j = 0; j < n; ++j) {
    const double part = n > 1 ? static_cast<double>(j * 7 % n) / static_cast<double>(n - 1) : 0;
    const double d = std::exp2(std::round((2 * part - 1) * decades * std::log2(10.0)));
    for (int64_t i = 0; i < m; ++i) a.at(i, j) *= d;
  }
  return a;
}

// --- to and from operands -----------------------------------------------------------------------------------------

template <class T>
void put(std::vector<std::byte>& to, size_t at, T x) {
  std::memcpy(to.data() + at * sizeof(T), &x, sizeof(T));
}
template <class T>
T get(const std::vector<std::byte>& from, size_t at) {
  T x;
  std::memcpy(&x, from.data() + at * sizeof(T), sizeof(T));
  return x;
}

size_t index_of(const Problem& p, int64_t i, int64_t j) {
  return static_cast<size_t>(p.order == Order::kRowMajor ? i * p.cols + j : j * p.rows + i);
}

std::vector<std::byte> operand_of(const Dense& a, const Problem& p) {
  std::vector<std::byte> bytes(matrix_bytes(p));
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      const size_t at = index_of(p, i, j);
      const Entry x = a.at(i, j);
      if (p.dtype == DType::kF32) put(bytes, at, static_cast<float>(x.real()));
      if (p.dtype == DType::kF64) put(bytes, at, x.real());
      if (p.dtype == DType::kC64) put(bytes, at, std::complex<float>(x));
      if (p.dtype == DType::kC128) put(bytes, at, x);
    }
  }
  return bytes;
}
Dense dense_of(const std::vector<std::byte>& bytes, Problem p, int64_t rows, int64_t cols) {
  p.rows = rows;
  p.cols = cols;
  Dense a(rows, cols);
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) {
      const size_t at = index_of(p, i, j);
      if (p.dtype == DType::kF32) a.at(i, j) = get<float>(bytes, at);
      if (p.dtype == DType::kF64) a.at(i, j) = get<double>(bytes, at);
      if (p.dtype == DType::kC64) a.at(i, j) = Entry(get<std::complex<float>>(bytes, at));
      if (p.dtype == DType::kC128) a.at(i, j) = get<Entry>(bytes, at);
    }
  }
  return a;
}

struct Results {
  LargeOutcome outcome;
  std::vector<std::byte> left, values, right;
  double seconds = 0;
};

Results decompose(const LargePlan& plan, const void* operand, const int8_t* signature = nullptr) {
  Results r;
  r.left.resize(plan.left_bytes());
  r.values.resize(plan.values_bytes());
  r.right.resize(plan.right_bytes());
  const LargeOperands operands{operand, signature, r.left.data(), r.values.data(), r.right.data()};
  const auto start = std::chrono::steady_clock::now();
  r.outcome = engine->decompose(plan, operands);
  r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return r;
}

LargePlan plan_of(const Problem& problem, const LargeOptions& options) {
  const LargePlanOrError plan = plan_large(problem, options);
  if (!plan.plan) {
    std::fprintf(stderr, "%s: %s\n", plan.error.field.c_str(), plan.error.message.c_str());
    std::exit(1);
  }
  return *plan.plan;
}

// --- checks -------------------------------------------------------------------------------------------------------

// c := alpha op(a) b + beta c
void multiply(char op, double alpha, const Dense& a, const Dense& b, double beta, Dense& c) {
  const int m = static_cast<int>(c.rows), n = static_cast<int>(c.cols);
  const int k = static_cast<int>(b.rows), lda = static_cast<int>(a.rows);
  const Entry x = alpha, y = beta;
  zgemm_(&op, "N", &m, &n, &k, &x, a.entries.data(), &lda, b.entries.data(), &k, &y, c.entries.data(), &m);
}
double frobenius(const Dense& a) {
  double sum = 0;
  for (const Entry& x : a.entries) sum += std::norm(x);
  return std::sqrt(sum);
}
// |J - B^H J B|_F; J the identity where there are no signs.
double from_signature(const Dense& b, const std::vector<int8_t>& signs) {
  Dense turned = b, square(b.cols, b.cols);
  if (!signs.empty()) {
    for (int64_t j = 0; j < b.cols; ++j) {
      for (int64_t i = 0; i < b.rows; ++i) turned.at(i, j) *= static_cast<double>(signs[static_cast<size_t>(i)]);
    }
  }
  multiply('C', 1, b, turned, 0, square);
  for (int64_t i = 0; i < b.cols; ++i) square.at(i, i) -= signs.empty() ? 1 : signs[static_cast<size_t>(i)];
  return frobenius(square);
}

// The singular values of the stored matrix, largest first. Graded columns keep the relative accuracy of every value.
std::vector<double> reference_values(const Dense& stored, bool complex) {
  Dense a = stored.rows < stored.cols ? adjoint(stored) : stored;
  const int m = static_cast<int>(a.rows), n = static_cast<int>(a.cols);
  std::vector<double> values(static_cast<size_t>(n));
  int info = 0;
  const int none = 1;
  if (complex) {
    const int lcwork = m + n, lrwork = std::max(6, n + m);
    std::vector<Entry> cwork(static_cast<size_t>(lcwork));
    std::vector<double> rwork(static_cast<size_t>(lrwork));
    Entry v;
    zgesvj_("G", "N", "N", &m, &n, a.entries.data(), &m, values.data(), &none, &v, &none, cwork.data(), &lcwork,
            rwork.data(), &lrwork, &info);
    for (double& s : values) s *= rwork[0];
  } else {
    std::vector<double> real(a.entries.size());
    for (size_t i = 0; i < real.size(); ++i) real[i] = a.entries[i].real();
    const int lwork = std::max(6, n + m);
    std::vector<double> work(static_cast<size_t>(lwork));
    double v = 0;
    dgesvj_("G", "N", "N", &m, &n, real.data(), &m, values.data(), &none, &v, &none, work.data(), &lwork, &info);
    for (double& s : values) s *= work[0];
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

double value_at(const std::vector<std::byte>& values, DType dtype, int64_t i) {
  const auto at = static_cast<size_t>(i);
  return value_bytes(dtype) == 4 ? get<float>(values, at) : get<double>(values, at);
}

struct Check {
  std::string what;
  Dense a;
  DType dtype = DType::kF64;
  Order order = Order::kColumnMajor;
  LargeOptions options;
  std::vector<int8_t> signs = {};
  bool relative = false;  // every value is held to a relative error
};

constexpr int64_t kLargestReference = 300;

void run(const Check& c) {
  Problem p{c.a.rows, c.a.cols, c.dtype, c.order};
  const LargePlan plan = plan_of(p, c.options);
  const std::vector<std::byte> operand = operand_of(c.a, p);
  const Dense a = dense_of(operand, p, p.rows, p.cols);  // as stored
  const Results r = decompose(plan, operand.data(), c.signs.data());
  const Results again = decompose(plan, operand.data(), c.signs.data());
  const double u = value_bytes(c.dtype) == 4 ? 0x1p-24 : 0x1p-53;
  const double m = static_cast<double>(p.rows), n = static_cast<double>(p.cols), larger = std::max(m, n);
  const int64_t k = plan.values;

  double residual = 0, left = 0, right = 0, value = 0;
  if (plan.left_columns > 0) {
    const Dense basis = dense_of(r.left, p, p.rows, plan.left_columns);
    const Dense right_adjoint = dense_of(r.right, p, plan.right_rows, p.cols);
    Dense us(p.rows, k), vh(k, p.cols), rest = a;
    for (int64_t j = 0; j < k; ++j) {
      for (int64_t i = 0; i < p.rows; ++i) us.at(i, j) = basis.at(i, j) * value_at(r.values, c.dtype, j);
      for (int64_t i = 0; i < p.cols; ++i) vh.at(j, i) = right_adjoint.at(j, i);
    }
    multiply('N', -1, us, vh, 1, rest);
    residual = frobenius(a) == 0 ? frobenius(rest) : frobenius(rest) / (frobenius(a) * larger * u);
    const double bound = std::max(10.0, std::sqrt(larger)) / 10;  // in units of the bound that is printed
    left = from_signature(basis, {}) / (m * u * bound);
    const Dense v = adjoint(right_adjoint);
    const double stretch = c.signs.empty() ? 1 : std::max(1.0, std::pow(frobenius(v), 2) / n);
    right = from_signature(v, c.signs) / (n * u * bound * stretch);
  }
  if (c.signs.empty() && k <= kLargestReference) {
    const std::vector<double> reference = reference_values(a, is_complex(c.dtype));
    const double units =
        (larger > 64 * std::max<double>(static_cast<double>(k), 8) ? 32 : 16) + 2 * static_cast<double>(k);
    for (int64_t i = 0; i < k; ++i) {
      const double s = reference[static_cast<size_t>(i)], error = std::fabs(value_at(r.values, c.dtype, i) - s);
      const double bound = c.relative ? 100 * static_cast<double>(std::max<int64_t>(k, 8)) * u * s
                                      : (is_complex(c.dtype) ? 2 : 1) * units * u * reference[0];
      const double part = error == 0 ? 0 : error / bound;
      if (!(part <= value)) value = part;
    }
  }
  const bool same = r.left == again.left && r.values == again.values && r.right == again.right;
  const bool ok =
      r.outcome.status == LargeStatus::kOk && same && residual <= 10 && left <= 10 && right <= 10 && value <= 1;
  failures += ok ? 0 : 1;
  std::printf(
      "%-34s %-4s %5lld x %-5lld %-6s residual %6.2f  left %6.2f  right %6.2f  values %5.2f  sweeps %2d%s%s  %s%s\n",
      c.what.c_str(), name(c.dtype), static_cast<long long>(p.rows), static_cast<long long>(p.cols),
      c.options.method == Method::kJacobi ? "JACOBI" : "AUTO", residual, left, right, value, r.outcome.sweeps,
      r.outcome.warm_started ? ", warm" : "", same ? "" : ", OTHER BITS", ok ? "ok" : "FAILED ",
      r.outcome.detail.c_str());
  std::fflush(stdout);
}

LargeOptions options_of(Method method, Vectors vectors = Vectors::kThin) {
  LargeOptions o;
  o.method = method;
  o.vectors = vectors;
  return o;
}

std::vector<int8_t> random_signs(int64_t n) {
  std::vector<int8_t> signs(static_cast<size_t>(n));
  for (int8_t& s : signs) s = bits() % 3 == 0 ? -1 : 1;
  return signs;
}

void checks() {
  std::printf("bounds: residual, left, right 10; values 1; every case twice for its bits\n");
  const auto condition = [](double decades) {
    return [=](int64_t i, int64_t n) {
      return std::pow(10.0, n > 1 ? -decades * static_cast<double>(i) / static_cast<double>(n - 1) : 0);
    };
  };
  const auto clusters = [](int64_t i, int64_t n) { return i < n / 3 ? 2.0 : i < n / 2 ? 1.0 : 1e-3; };
  const auto deficient = [](int64_t i, int64_t n) { return i < n / 2 ? 1.0 + static_cast<double>(i) : 0.0; };
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    const LargeOptions thin = options_of(method);
    for (const int64_t n : {1, 2, 3, 10, 33, 64, 65, 100, 129, 257, 500}) {
      run({"random", normal(n, n, false), DType::kF64, Order::kRowMajor, thin});
    }
    for (const DType dtype : {DType::kF32, DType::kC64, DType::kC128}) {
      for (const int64_t n : {1, 40, 200}) {
        run({"random", normal(n, n, is_complex(dtype)), dtype, Order::kRowMajor, thin});
        run({"random, by columns", normal(n + 31, n, is_complex(dtype)), dtype, Order::kColumnMajor, thin});
        run({"random", normal(n, 2 * n, is_complex(dtype)), dtype, Order::kRowMajor, thin});
      }
    }
    run({"tall", normal(3000, 60, false), DType::kF64, Order::kRowMajor, thin});
    run({"tall, full bases", normal(300, 120, false), DType::kF64, Order::kRowMajor,
         options_of(method, Vectors::kFull)});
    run({"wide, full bases", normal(90, 250, true), DType::kC128, Order::kRowMajor,
         options_of(method, Vectors::kFull)});
    run({"values alone", normal(250, 200, false), DType::kF64, Order::kRowMajor, options_of(method, Vectors::kNone)});
    run({"one row", normal(1, 500, false), DType::kF64, Order::kRowMajor, thin});
    run({"one column", normal(500, 1, false), DType::kF64, Order::kRowMajor, thin});
    for (const bool complex : {false, true}) {
      const DType dtype = complex ? DType::kC128 : DType::kF64;
      run({"condition 1e6", with_values(200, 200, complex, condition(6)), dtype, Order::kRowMajor, thin});
      run({"condition 1e12", with_values(200, 200, complex, condition(12)), dtype, Order::kRowMajor, thin});
      run({"clusters", with_values(260, 200, complex, clusters), dtype, Order::kRowMajor, thin});
      run({"half the rank", with_values(200, 200, complex, deficient), dtype, Order::kRowMajor, thin});
      run({"zero", Dense(70, 65), dtype, Order::kRowMajor, thin});
    }
  }
  const LargeOptions jacobi = options_of(Method::kJacobi);
  run({"graded over 1e+-12", graded(240, 120, false, 12), DType::kF64, Order::kRowMajor, jacobi, {}, true});
  run({"graded over 1e+-12, AUTO", graded(200, 200, false, 12), DType::kF64, Order::kRowMajor,
       options_of(Method::kAuto)});
  run({"graded over 1e+-12", graded(240, 120, true, 12), DType::kC128, Order::kRowMajor, jacobi, {}, true});
  run({"graded over 1e+-150, values",
       graded(240, 120, false, 150),
       DType::kF64,
       Order::kRowMajor,
       options_of(Method::kJacobi, Vectors::kNone),
       {},
       true});
  for (const bool complex : {false, true}) {
    for (const int64_t n : {2, 50, 150}) {
      LargeOptions hyperbolic = jacobi;
      hyperbolic.kind = LargeKind::kHyperbolicSvd;
      run({"hyperbolic", normal(2 * n, n, complex), complex ? DType::kC128 : DType::kF64, Order::kRowMajor, hyperbolic,
           random_signs(n)});
    }
  }
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    run({"random", normal(1024, 1024, false), DType::kF64, Order::kRowMajor, options_of(method)});
    run({"condition 1e12", with_values(1000, 1000, false, condition(12)), DType::kF64, Order::kRowMajor,
         options_of(method)});
    run({"clusters", with_values(1000, 1000, false, clusters), DType::kF64, Order::kRowMajor, options_of(method)});
    run({"random", normal(2048, 2048, false), DType::kF64, Order::kColumnMajor, options_of(method)});
  }
}

// --- times --------------------------------------------------------------------------------------------------------

constexpr double kPeak = 60e12;

double compute_seconds(const LargeOutcome& o) {
  double sum = 0;
  for (const LargePhaseTime& p : o.phases) sum += p.name == "load" || p.name == "store" ? 0 : p.seconds;
  return sum;
}

void print_phases(const LargeOutcome& o) {
  for (const LargePhaseTime& p : o.phases) {
    if (p.seconds <= 0) continue;
    std::printf("    %-14s %9.3f ms  %8.3f TFLOP  %7.2f TFLOP/s  %5.1f %%\n", p.name.c_str(), p.seconds * 1e3,
                p.flops * 1e-12, p.flops / p.seconds * 1e-12, p.flops / p.seconds / kPeak * 100);
  }
}

// Best of so many calls after one that warms up.
Results best_of(int calls, const LargePlan& plan, const void* operand, const int8_t* signature = nullptr) {
  Results best = decompose(plan, operand, signature);
  double seconds = std::numeric_limits<double>::infinity();
  for (int i = 0; i < calls; ++i) {
    Results r = decompose(plan, operand, signature);
    if (r.seconds < seconds) {
      seconds = r.seconds;
      best = std::move(r);
    }
  }
  return best;
}

struct CudaTypes {
  cudaDataType element, value;
};
CudaTypes types_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {CUDA_R_32F, CUDA_R_32F};
    case DType::kF64:
      return {CUDA_R_64F, CUDA_R_64F};
    case DType::kC64:
      return {CUDA_C_32F, CUDA_R_32F};
    case DType::kC128:
      return {CUDA_C_64F, CUDA_R_64F};
  }
  return {};
}

// Square, order n, U and V. Buffers of cuSOLVER, on the device.
class Peers {
 public:
  Peers(DType dtype, int64_t n, const void* operand) : dtype_(dtype), n_(n), types_(types_of(dtype)) {
    cusolverDnCreate(&handle_);
    cusolverDnCreateParams(&params_);
    const size_t bytes = static_cast<size_t>(n * n) * element_bytes(dtype);
    bytes_ = bytes;
    original_ = device_memory(bytes);
    check(cudaMemcpy(original_, operand, bytes, cudaMemcpyHostToDevice), "upload");
    a_ = device_memory(bytes);
    u_ = device_memory(bytes);
    v_ = device_memory(bytes);
    s_ = device_memory(static_cast<size_t>(n) * 8);
    info_ = static_cast<int*>(device_memory(sizeof(int)));
  }
  ~Peers() {
    for (void* const memory : {original_, a_, u_, v_, s_, static_cast<void*>(info_)}) cudaFree(memory);
    cusolverDnDestroyParams(params_);
    cusolverDnDestroy(handle_);
  }
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  double gesvdp(int calls) {
    size_t on_device = 0, on_host = 0;
    cusolverDnXgesvdp_bufferSize(handle_, params_, CUSOLVER_EIG_MODE_VECTOR, 1, n_, n_, types_.element, a_, n_,
                                 types_.value, s_, types_.element, u_, n_, types_.element, v_, n_, types_.element,
                                 &on_device, &on_host);
    void* const work = device_memory(on_device + 256);
    std::vector<char> host(on_host + 1);
    double ignored = 0;
    const double s = best(calls, [&] {
      return cusolverDnXgesvdp(handle_, params_, CUSOLVER_EIG_MODE_VECTOR, 1, n_, n_, types_.element, a_, n_,
                               types_.value, s_, types_.element, u_, n_, types_.element, v_, n_, types_.element, work,
                               on_device, host.data(), on_host, info_, &ignored);
    });
    cudaFree(work);
    return s;
  }
  double gesvd(int calls) {
    size_t on_device = 0, on_host = 0;
    cusolverDnXgesvd_bufferSize(handle_, params_, 'S', 'S', n_, n_, types_.element, a_, n_, types_.value, s_,
                                types_.element, u_, n_, types_.element, v_, n_, types_.element, &on_device, &on_host);
    void* const work = device_memory(on_device + 256);
    std::vector<char> host(on_host + 1);
    const double s = best(calls, [&] {
      return cusolverDnXgesvd(handle_, params_, 'S', 'S', n_, n_, types_.element, a_, n_, types_.value, s_,
                              types_.element, u_, n_, types_.element, v_, n_, types_.element, work, on_device,
                              host.data(), on_host, info_);
    });
    cudaFree(work);
    return s;
  }
  double syevd(int calls) {
    size_t on_device = 0, on_host = 0;
    cusolverDnXsyevd_bufferSize(handle_, params_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n_, types_.element,
                                a_, n_, types_.value, s_, types_.element, &on_device, &on_host);
    void* const work = device_memory(on_device + 256);
    std::vector<char> host(on_host + 1);
    const double s = best(calls, [&] {
      return cusolverDnXsyevd(handle_, params_, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n_, types_.element,
                              a_, n_, types_.value, s_, types_.element, work, on_device, host.data(), on_host, info_);
    });
    cudaFree(work);
    return s;
  }
  double gesvdj(int calls) {  // f64
    gesvdjInfo_t options = nullptr;
    cusolverDnCreateGesvdjInfo(&options);
    const int n = static_cast<int>(n_);
    auto* const a = static_cast<double*>(a_);
    auto* const s = static_cast<double*>(s_);
    auto* const u = static_cast<double*>(u_);
    auto* const v = static_cast<double*>(v_);
    int elements = 0;
    cusolverDnDgesvdj_bufferSize(handle_, CUSOLVER_EIG_MODE_VECTOR, 1, n, n, a, n, s, u, n, v, n, &elements, options);
    auto* const work = static_cast<double*>(device_memory(static_cast<size_t>(elements) * sizeof(double) + 256));
    const double seconds = best(calls, [&] {
      return cusolverDnDgesvdj(handle_, CUSOLVER_EIG_MODE_VECTOR, 1, n, n, a, n, s, u, n, v, n, work, elements, info_,
                               options);
    });
    cudaFree(work);
    cusolverDnDestroyGesvdjInfo(options);
    return seconds;
  }
  std::vector<double> values() const {  // f64
    std::vector<double> s(static_cast<size_t>(n_));
    check(cudaMemcpy(s.data(), s_, s.size() * sizeof(double), cudaMemcpyDeviceToHost), "download");
    return s;
  }

 private:
  template <class F>
  double best(int calls, F f) {
    double seconds = std::numeric_limits<double>::infinity();
    for (int i = 0; i < calls; ++i) {
      check(cudaMemcpy(a_, original_, bytes_, cudaMemcpyDeviceToDevice), "copy");
      check(cudaDeviceSynchronize(), "copy");
      const auto start = std::chrono::steady_clock::now();
      const cusolverStatus_t status = f();
      check(cudaDeviceSynchronize(), "cuSOLVER");
      if (status != CUSOLVER_STATUS_SUCCESS) return -1;
      seconds = std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return seconds;
  }

  DType dtype_;
  int64_t n_;
  CudaTypes types_;
  size_t bytes_ = 0;
  void *original_, *a_, *u_, *v_, *s_;
  int* info_;
  cusolverDnHandle_t handle_ = nullptr;
  cusolverDnParams_t params_ = nullptr;
};

void print_times(const char* what, DType dtype, int64_t n, const Results& automatic, const Results& jacobi,
                 double gesvdp, double gesvdj, double gesvd) {
  std::printf("%-8s %-4s n %5lld  AUTO %9.2f ms call, %9.2f compute  JACOBI %9.2f call, %9.2f compute  gesvdp %9.2f",
              what, name(dtype), static_cast<long long>(n), automatic.seconds * 1e3,
              compute_seconds(automatic.outcome) * 1e3, jacobi.seconds * 1e3, compute_seconds(jacobi.outcome) * 1e3,
              gesvdp * 1e3);
  if (gesvdj > 0) std::printf("  gesvdj %9.2f", gesvdj * 1e3);
  if (gesvd > 0) std::printf("  gesvd %9.2f", gesvd * 1e3);
  std::printf("  gesvdp/AUTO %.2f, gesvdp/JACOBI %.2f (compute)\n", gesvdp / compute_seconds(automatic.outcome),
              gesvdp / compute_seconds(jacobi.outcome));
  for (const Results* const r : {&automatic, &jacobi}) {
    std::printf("  %s: status %d, %d sweeps, %lld rotations%s %s\n", r == &automatic ? "AUTO" : "JACOBI",
                static_cast<int>(r->outcome.status), r->outcome.sweeps, static_cast<long long>(r->outcome.rotations),
                r->outcome.warm_started ? ", warm start" : "", r->outcome.detail.c_str());
    failures += r->outcome.status == LargeStatus::kOk ? 0 : 1;
    print_phases(r->outcome);
  }
  std::fflush(stdout);
}

// A time that is to be met, by a decomposition that succeeded.
void print_bar(const char* what, const LargeOutcome& outcome, double bar_seconds) {
  const double seconds = compute_seconds(outcome);
  if (outcome.status != LargeStatus::kOk || !(bar_seconds > 0)) {
    std::printf("  bar: %-28s FAILED: nothing to compare\n", what);
    ++failures;
    return;
  }
  std::printf("  bar: %-28s %9.2f ms, at most %9.2f  %s (%.2f of it)\n", what, seconds * 1e3, bar_seconds * 1e3,
              seconds <= bar_seconds ? "met" : "MISSED", seconds / bar_seconds);
}

// The same numbers on every machine and in host memory.
template <class T>
std::vector<T> independent_normal_numbers(size_t n) {
  std::mt19937_64 generator(5);
  std::normal_distribution<double> normal_number;
  std::vector<T> all(n);
  for (T& x : all) x = static_cast<T>(normal_number(generator));
  return all;
}

void time_square(DType dtype, int64_t n) {
  const Problem p{n, n, dtype, Order::kColumnMajor};
  const size_t numbers = static_cast<size_t>(n * n) * (is_complex(dtype) ? 2 : 1);
  std::vector<std::byte> operand(matrix_bytes(p));
  if (value_bytes(dtype) == 4) {
    const auto from = independent_normal_numbers<float>(numbers);
    std::memcpy(operand.data(), from.data(), operand.size());
  } else {
    const auto from = independent_normal_numbers<double>(numbers);
    std::memcpy(operand.data(), from.data(), operand.size());
  }
  const int calls = n <= 2048 ? 3 : 1;
  const Results automatic = best_of(calls, plan_of(p, options_of(Method::kAuto)), operand.data());
  const Results jacobi = best_of(calls, plan_of(p, options_of(Method::kJacobi)), operand.data());
  Peers peers(dtype, n, operand.data());
  const bool all = dtype == DType::kF64 && n <= 4096;
  const double gesvdp = peers.gesvdp(n <= 2048 ? 4 : 2);
  print_times("random", dtype, n, automatic, jacobi, gesvdp, all ? peers.gesvdj(2) : 0, all ? peers.gesvd(2) : 0);
  if (dtype != DType::kF64) return;
  print_bar("AUTO, gesvdp of this run", automatic.outcome, gesvdp);
  const std::map<int64_t, double> jacobi_bars = {{1024, 0.035}, {2048, 0.1}, {4096, 0.42}, {8192, 2.2}};
  if (const auto bar = jacobi_bars.find(n); bar != jacobi_bars.end()) {
    print_bar("JACOBI", jacobi.outcome, bar->second);
  }
}

// Columns over 1e+-12, and how many digits of the least value are right. The reference is JACOBI on the host's LAPACK
// for a small one, and agreement of the two methods for a large one.
void time_graded(int64_t n) {
  const Problem p{n, n, DType::kF64, Order::kColumnMajor};
  auto numbers = independent_normal_numbers<double>(static_cast<size_t>(n * n));
  for (int64_t j = 0; j < n; ++j) {
    const double part = static_cast<double>(j * 7 % n) / static_cast<double>(n - 1);
    const double d = std::exp2(std::round((2 * part - 1) * 12 * std::log2(10.0)));
    for (int64_t i = 0; i < n; ++i) numbers[static_cast<size_t>(j * n + i)] *= d;
  }
  const Results automatic = best_of(2, plan_of(p, options_of(Method::kAuto)), numbers.data());
  const Results jacobi = best_of(2, plan_of(p, options_of(Method::kJacobi)), numbers.data());
  Peers peers(DType::kF64, n, numbers.data());
  const double gesvdp = peers.gesvdp(3);
  print_times("graded", DType::kF64, n, automatic, jacobi, gesvdp, 0, 0);
  print_bar("graded AUTO, gesvdp", automatic.outcome, gesvdp);
  const std::vector<double> theirs = peers.values();
  double ours = 0, others = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double s = value_at(jacobi.values, DType::kF64, i);
    ours = std::max(ours, std::fabs(value_at(automatic.values, DType::kF64, i) - s) / s);
    others = std::max(others, std::fabs(theirs[static_cast<size_t>(i)] - s) / s);
  }
  std::printf("  largest relative difference of a value from JACOBI's: AUTO %.2e, gesvdp %.2e\n", ours, others);
}

// The hyperbolic decomposition beside the SVD of the same factor: within 1.3 of it.
void time_hyperbolic(int64_t n) {
  const Problem p{n, n, DType::kF64, Order::kColumnMajor};
  const auto numbers = independent_normal_numbers<double>(static_cast<size_t>(n * n));
  std::vector<int8_t> signature(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j) signature[static_cast<size_t>(j)] = j % 3 == 0 ? -1 : 1;
  LargeOptions options = options_of(Method::kJacobi);
  const LargePlan plain = plan_of(p, options);
  options.kind = LargeKind::kHyperbolicSvd;
  const LargePlan hyperbolic = plan_of(p, options);
  const Results svd = decompose(plain, numbers.data());
  (void)decompose(hyperbolic, numbers.data(), signature.data());
  const Results hsvd = decompose(hyperbolic, numbers.data(), signature.data());
  std::printf("HSVD     f64  n %5lld  %9.2f ms call, %9.2f compute  status %d, %d sweeps, %lld rotations %s\n",
              static_cast<long long>(n), hsvd.seconds * 1e3, compute_seconds(hsvd.outcome) * 1e3,
              static_cast<int>(hsvd.outcome.status), hsvd.outcome.sweeps,
              static_cast<long long>(hsvd.outcome.rotations), hsvd.outcome.detail.c_str());
  print_phases(hsvd.outcome);
  print_bar("HSVD, 1.3 x JACOBI's SVD", hsvd.outcome, 1.3 * compute_seconds(svd.outcome));
}

void times() {
  for (const int64_t n : {1024, 2048, 4096, 8192}) time_square(DType::kF64, n);
  time_graded(2048);
  time_hyperbolic(2048);
  for (const DType dtype : {DType::kF32, DType::kC64, DType::kC128}) time_square(dtype, 2048);
}

// Level columns, where AUTO needs no QR. The certificate is in both times, and is held to the contract.
void time_tall(int64_t m, int64_t n, Vectors vectors) {
  const Problem p{m, n, DType::kF64, Order::kColumnMajor};
  const auto numbers = independent_normal_numbers<double>(static_cast<size_t>(m * n));
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    LargeOptions options = options_of(method, vectors);
    options.certificate = vectors != Vectors::kNone;
    const LargeOutcome o = best_of(2, plan_of(p, options), numbers.data()).outcome;
    const double u = 0x1p-53 * static_cast<double>(m);
    const bool good = o.status == LargeStatus::kOk && o.residual <= 10 * u && o.left_orthogonality <= 10 * u &&
                      o.right_orthogonality <= 10 * u;
    failures += good ? 0 : 1;
    std::printf(
        "TALL     f64  %6lld x %4lld %-7s %-6s %9.2f ms compute  residual %.3f m u, U %.3f m u, V %.3f m u: %s\n",
        static_cast<long long>(m), static_cast<long long>(n), vectors == Vectors::kNone ? "values" : "vectors",
        method == Method::kJacobi ? "JACOBI" : "AUTO", compute_seconds(o) * 1e3, o.residual / u,
        o.left_orthogonality / u, o.right_orthogonality / u, good ? "ok" : "FAILED");
    print_phases(o);
  }
}

void tall() {
  time_tall(20000, 2000, Vectors::kThin);
  time_tall(20000, 2000, Vectors::kNone);
  time_tall(100000, 1000, Vectors::kThin);
}

// --- Hermitian eigenproblems: TRIDIAGONAL and FACTORED -------------------------------------------------------------

// Meets the contract: residual and orthogonality at most 10 n u, eigenvalues as the host's engine has them.
void check_eigen(const char* what, const LargePlan& plan, const void* operand, const int8_t* signature) {
  static const auto host = make_host_large_engine();
  const int64_t n = plan.values;
  const Results r = decompose(plan, operand, signature);
  std::vector<std::byte> values(plan.values_bytes()), vectors(plan.left_bytes());
  const LargeOutcome theirs = host->decompose(plan, {operand, signature, vectors.data(), values.data(), nullptr});
  const double u = value_bytes(plan.problem.dtype) == 4 ? 0x1p-24 : 0x1p-53, bound = 10 * static_cast<double>(n) * u;
  double largest = 0, worst = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::fabs(value_at(values, plan.problem.dtype, i)));
  for (int64_t i = 0; i < n; ++i) {
    const double difference = value_at(r.values, plan.problem.dtype, i) - value_at(values, plan.problem.dtype, i);
    worst = std::max(worst, std::fabs(difference) / largest);
  }
  const LargeOutcome& o = r.outcome;
  const bool good = o.status == LargeStatus::kOk && theirs.status == LargeStatus::kOk && o.residual <= bound &&
                    o.left_orthogonality <= bound && worst <= bound && o.rank == theirs.rank;
  failures += good ? 0 : 1;
  std::printf(
      "eigen %-12s %-4s n %5lld  rank %lld, residual %.1f u, orthogonality %.1f u, from the host's %.1f u: %s %s\n",
      what, name(plan.problem.dtype), static_cast<long long>(n), static_cast<long long>(o.rank), o.residual / u,
      o.left_orthogonality / u, worst / u, good ? "ok" : "FAILED", o.detail.c_str());
}

Dense hermitian(int64_t n, bool complex) {
  Dense a = normal(n, n, complex);
  for (int64_t j = 0; j < n; ++j) {
    a.at(j, j) = a.at(j, j).real();
    for (int64_t i = 0; i < j; ++i) a.at(i, j) = std::conj(a.at(j, i));
  }
  return a;
}

// NaN for what an eigenproblem of this triangle does not read.
Dense triangle_alone(Dense a, Triangle triangle) {
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      if (triangle == Triangle::kLower ? i < j : i > j) a.at(i, j) = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return a;
}

void time_eigen(DType dtype, int64_t n) {
  const Problem p{n, n, dtype, Order::kColumnMajor};
  const std::vector<std::byte> operand = operand_of(hermitian(n, is_complex(dtype)), p);
  Peers peers(dtype, n, operand.data());
  const double syevd = peers.syevd(2);
  for (const Method method : {Method::kTridiagonal, Method::kFactored}) {
    LargeOptions options = options_of(method);
    options.kind = LargeKind::kHermitian;
    const Results r = best_of(method == Method::kFactored ? 1 : 2, plan_of(p, options), operand.data());
    options.certificate = true;
    const LargeOutcome certified = decompose(plan_of(p, options), operand.data()).outcome;
    const double u = value_bytes(dtype) == 4 ? 0x1p-24 : 0x1p-53, bound = 10 * static_cast<double>(n) * u;
    if (!(certified.residual <= bound && certified.left_orthogonality <= bound)) ++failures;
    std::printf(
        "EIGH     %-11s %-4s n %5lld  %9.2f ms call  status %d, %d sweeps %s  syevd %9.2f ms  call/syevd %.2f, "
        "residual "
        "%.0f u, orthogonality %.0f u\n",
        name(method), name(dtype), static_cast<long long>(n), r.seconds * 1e3, static_cast<int>(r.outcome.status),
        r.outcome.sweeps, r.outcome.detail.c_str(), syevd * 1e3, r.seconds / syevd, certified.residual / u,
        certified.left_orthogonality / u);
    print_phases(r.outcome);
    std::fflush(stdout);
  }
}

// Eigenvalues and eigenvectors of G J G^H beside the hyperbolic SVD of G, with V and without.
void time_factor(DType dtype, int64_t n) {
  const Problem p{n, n, dtype, Order::kColumnMajor};
  const std::vector<std::byte> operand = operand_of(normal(n, n, is_complex(dtype)), p);
  const std::vector<int8_t> signs = random_signs(n);
  LargeOptions options = options_of(Method::kFactored);
  options.kind = LargeKind::kHermitianFactor;
  const Results eigen = best_of(2, plan_of(p, options), operand.data(), signs.data());
  options.method = Method::kAuto;
  options.kind = LargeKind::kHyperbolicSvd;
  LargePlan plan = plan_of(p, options);
  const Results svd = best_of(2, plan, operand.data(), signs.data());
  plan.right_rows = 0;
  const Results without_v = best_of(2, plan, operand.data(), signs.data());
  std::printf(
      "EIGH of G and J %-4s n %5lld  %9.2f ms call, %d sweeps; hyperbolic SVD %9.2f ms, %d sweeps; ratio %.2f; without "
      "V "
      "%9.2f ms; ratio %.2f\n",
      name(dtype), static_cast<long long>(n), eigen.seconds * 1e3, eigen.outcome.sweeps, svd.seconds * 1e3,
      svd.outcome.sweeps, eigen.seconds / svd.seconds, without_v.seconds * 1e3, eigen.seconds / without_v.seconds);
  std::fflush(stdout);
}

void eigen() {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const int64_t n : {1, 33, 300}) {
      const Problem p{n, n, dtype, Order::kRowMajor};
      for (const Method method : {Method::kTridiagonal, Method::kFactored}) {
        for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
          LargeOptions options = options_of(method);
          options.kind = LargeKind::kHermitian;
          options.triangle = triangle;
          options.certificate = true;
          const Dense a = triangle_alone(hermitian(n, is_complex(dtype)), triangle);
          check_eigen(name(method), plan_of(p, options), operand_of(a, p).data(), nullptr);
        }
      }
      LargeOptions options = options_of(Method::kFactored);
      options.certificate = true;
      const Problem tall{2 * n, n, dtype, Order::kRowMajor};
      options.kind = LargeKind::kHermitianFactor;
      const std::vector<int8_t> signs = random_signs(n);
      check_eigen("factor", plan_of(tall, options), operand_of(normal(2 * n, n, is_complex(dtype)), tall).data(),
                  signs.data());
    }
  }
  // Orders of which TRIDIAGONAL stores floats on its way.
  for (const DType dtype : {DType::kF32, DType::kC64}) {
    const Problem p{3100, 3100, dtype, Order::kColumnMajor};
    LargeOptions options = options_of(Method::kTridiagonal);
    options.kind = LargeKind::kHermitian;
    options.certificate = true;
    check_eigen(name(Method::kTridiagonal), plan_of(p, options),
                operand_of(hermitian(3100, is_complex(dtype)), p).data(), nullptr);
  }
  for (const int64_t n : {1024, 2048, 4096}) time_eigen(DType::kF64, n);
  time_eigen(DType::kF32, 4096);
  time_eigen(DType::kC128, 2048);
  time_eigen(DType::kC64, 2048);
  for (const int64_t n : {1024, 2048}) time_factor(DType::kF64, n);
}

// One call for a profiler to look into.
void profile() {
  constexpr int64_t n = 2048;
  const Problem p{n, n, DType::kF64, Order::kColumnMajor};
  const auto numbers = independent_normal_numbers<double>(static_cast<size_t>(n * n));
  (void)decompose(plan_of(p, options_of(Method::kJacobi)), numbers.data());
}

// --- leading triplets ---------------------------------------------------------------------------------------------

// H_2 H_1 diag(values) G_1 G_2 of Householder reflectors of random vectors, real and column-major.
std::vector<double> tall_with_values(int64_t m, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::normal_distribution<double> number;
  std::vector<double> a(static_cast<size_t>(m * n), 0.0), v(static_cast<size_t>(m));
  for (int64_t j = 0; j < n; ++j) a[static_cast<size_t>(j + j * m)] = values[static_cast<size_t>(j)];
  for (int pass = 0; pass < 4; ++pass) {
    const bool left = pass % 2 == 0;
    const int64_t size = left ? m : n, lines = left ? n : m, along = left ? 1 : m, across = left ? m : 1;
    double square = 0;
    for (int64_t i = 0; i < size; ++i) {
      v[static_cast<size_t>(i)] = number(bits);
      square += v[static_cast<size_t>(i)] * v[static_cast<size_t>(i)];
    }
    for (int64_t line = 0; line < lines; ++line) {
      double* const first = a.data() + line * across;
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += v[static_cast<size_t>(i)] * first[i * along];
      for (int64_t i = 0; i < size; ++i) first[i * along] -= 2 * sum / square * v[static_cast<size_t>(i)];
    }
  }
  return a;
}

// The median of three calls from host memory to host memory, and the worst relative error of the leading values. Those
// of a subspace must be right to 1e-10.
void print_leading(const char* device, const LargeEngine& on, const char* spectrum, const std::vector<double>& a,
                   const std::vector<double>& values, int64_t top_k) {
  constexpr size_t kChecked = 10;
  const auto n = static_cast<int64_t>(values.size()), m = static_cast<int64_t>(a.size()) / n;
  const LargePlan plan = *plan_large({m, n, DType::kF64, Order::kColumnMajor}, {.top_k = top_k}).plan;
  std::vector<double> left(plan.left_bytes() / 8), found(plan.values_bytes() / 8), right(plan.right_bytes() / 8);
  LargeOperands operands;
  operands.matrix = a.data();
  operands.left = left.data();
  operands.values = found.data();
  operands.right = right.data();
  std::vector<double> seconds;
  LargeOutcome outcome;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    outcome = on.decompose(plan, operands);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  double worst = 0;
  for (size_t j = 0; j < kChecked; ++j) worst = std::max(worst, std::abs(found[j] - values[j]) / values[j]);
  const bool good = outcome.status == LargeStatus::kOk && worst < 1e-10;
  failures += good ? 0 : 1;
  std::printf("%s leading %s %lldx%lld %s top_k %lld: %.4f s, %d steps, worst relative error %.1e\n",
              good ? "ok" : "BAD", device, static_cast<long long>(m), static_cast<long long>(n), spectrum,
              static_cast<long long>(top_k), seconds[1], outcome.subspace_steps, worst);
  print_phases(outcome);
  std::fflush(stdout);
}

void leading() {
  constexpr int64_t kRows = 20000, kCols = 2000;
  const auto host = make_host_large_engine();
  const std::pair<const char*, double (*)(double)> spectra[] = {{"1/j", [](double j) { return 1 / (j + 1); }},
                                                                {"0.9^j", [](double j) { return std::pow(0.9, j); }},
                                                                {"flat", [](double j) { return 1 - 1e-4 * j; }}};
  for (const auto& [spectrum, value] : spectra) {
    std::vector<double> values(kCols);
    for (int64_t j = 0; j < kCols; ++j) values[static_cast<size_t>(j)] = value(static_cast<double>(j));
    const std::vector<double> a = tall_with_values(kRows, values);
    for (const int64_t top_k : {int64_t{10}, int64_t{0}}) {
      print_leading("GPU", *engine, spectrum, a, values, top_k);
      print_leading("CPU", *host, spectrum, a, values, top_k);
    }
  }
}

// --- as large as fits -------------------------------------------------------------------------------------------------

// B (x) C of square matrices with columns of 22-bit numbers: its entries are exact, and its singular values are the
// products of theirs.
struct KroneckerProduct {
  static constexpr int64_t kInner = 240;
  Dense outer, inner;
  int64_t order() const { return outer.rows * inner.rows; }
};

Dense short_numbers(int64_t n) {
  Dense a = normal(n, n, false);
  for (Entry& x : a.entries) x = std::ldexp(std::round(std::ldexp(x.real(), 19)), -19);
  return a;
}

// The first is at least of the order that is asked for.
KroneckerProduct kronecker_product(int64_t order) {
  return {short_numbers((order + KroneckerProduct::kInner - 1) / KroneckerProduct::kInner),
          short_numbers(KroneckerProduct::kInner)};
}

// f(j) for j = 0 .. n - 1, on all cores.
template <class F>
void for_all(int64_t n, const F& f) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> threads(std::max(1U, std::thread::hardware_concurrency()));
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      for (int64_t j = next++; j < n; j = next++) f(j);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

using Numbers = std::unique_ptr<double[]>;  // n x n, column-major
Numbers unset_numbers(int64_t count) { return Numbers(new double[static_cast<size_t>(count)]); }

Numbers entries_of(const KroneckerProduct& product) {
  const int64_t n = product.order(), q = product.inner.rows;
  Numbers entries = unset_numbers(n * n);
  for_all(n, [&](int64_t j) {
    for (int64_t i = 0; i < n; ++i) {
      entries[static_cast<size_t>(j * n + i)] =
          product.outer.at(i / q, j / q).real() * product.inner.at(i % q, j % q).real();
    }
  });
  return entries;
}

std::vector<double> values_of(const KroneckerProduct& product) {
  const std::vector<double> outer = reference_values(product.outer, false);
  const std::vector<double> inner = reference_values(product.inner, false);
  std::vector<double> values;
  for (const double s : outer) {
    for (const double t : inner) values.push_back(s * t);
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

// Values are held to the bound of `checks`, relative to the largest. The job has the memory that the plan asks for, and
// no more.
void time_values(int64_t order, Method method) {
  const KroneckerProduct product = kronecker_product(order);
  const int64_t n = product.order();
  const Numbers entries = entries_of(product);
  const std::vector<double> reference = values_of(product);
  const LargePlan plan = plan_of({n, n, DType::kF64, Order::kColumnMajor}, options_of(method, Vectors::kNone));
  const double matrices = static_cast<double>(engine->memory(plan).device_bytes) / static_cast<double>(n * n * 8);
  const Results r = decompose(plan, entries.get());
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    worst = std::max(worst, std::fabs(value_at(r.values, DType::kF64, i) - reference[static_cast<size_t>(i)]));
  }
  const double bound = (16 + 2 * static_cast<double>(n)) * 0x1p-53 * reference[0];
  const bool good = r.outcome.status == LargeStatus::kOk && worst <= bound;
  failures += good ? 0 : 1;
  std::printf(
      "VALUES   f64  n %5lld %-6s %9.2f s call, %9.2f compute  %d sweeps, memory of %.2f matrices, error %.3f of the "
      "bound: %s %s\n",
      static_cast<long long>(n), method == Method::kJacobi ? "JACOBI" : "AUTO", r.seconds, compute_seconds(r.outcome),
      r.outcome.sweeps, matrices, worst / bound, good ? "ok" : "FAILED", r.outcome.detail.c_str());
  print_phases(r.outcome);
  std::fflush(stdout);
}

using Vector = std::vector<double>;

// A^T x, n x n.
Vector multiply_transposed(const double* a, const Vector& x) {
  const auto n = static_cast<int64_t>(x.size());
  Vector y(x.size());
  for_all(n, [&](int64_t j) {
    double sums[8] = {};
    for (int64_t i = 0; i < n; ++i) sums[i % 8] += a[j * n + i] * x[static_cast<size_t>(i)];
    for (const double sum : sums) y[static_cast<size_t>(j)] += sum;
  });
  return y;
}

double norm(const Vector& x) {
  double sum = 0;
  for (const double entry : x) sum += entry * entry;
  return std::sqrt(sum);
}

double distance(const Vector& x, const Vector& y) {
  Vector rest(x.size());
  for (size_t i = 0; i < x.size(); ++i) rest[i] = x[i] - y[i];
  return norm(rest);
}

// U and V in little memory. Matrices that are not used go to the host's memory, or all lie there, of which the GPU has
// panels at a time. gib 0: the former, and where the GPU has room for all at once, that is timed, too, and has the same
// bits. Values are held to the bound of `checks`. The certificate is the service's own. Beside it stand the errors of
// products with one random vector x of norm one, computed on the host: |A^T x - V S U^T x| / |A|_F and |U^T x| - 1.
void time_vectors(int64_t order, double gib) {
  const KroneckerProduct product = kronecker_product(order);
  const int64_t n = product.order();
  const Numbers entries = entries_of(product), left = unset_numbers(n * n), right = unset_numbers(n * n);
  const std::vector<double> reference = values_of(product);
  LargeOptions options = options_of(Method::kJacobi);
  options.certificate = true;
  const LargePlan plan = plan_of({n, n, DType::kF64, Order::kColumnMajor}, options);
  size_t unused = 0, total = 0;
  check(cudaMemGetInfo(&unused, &total), "asking for the memory");
  LargeControl control;
  const LargeWorkspace plain = engine->memory(plan);
  control.device_room = gib > 0 ? static_cast<uint64_t>(gib * 0x1p30) : plain.device_bytes - 1;
  const LargeWorkspace memory = engine->memory(plan, control.device_room);
  const double matrix = static_cast<double>(n * n * 8);
  std::printf("VECTORS  f64  n %5lld  GPU of %.1f GB, all at once %.1f GB, now %.1f GB and %.1f GB of the host\n",
              static_cast<long long>(n), 1e-9 * static_cast<double>(total),
              1e-9 * static_cast<double>(plain.device_bytes), 1e-9 * static_cast<double>(memory.device_bytes),
              1e-9 * static_cast<double>(memory.host_bytes));
  std::fflush(stdout);
  Vector values(static_cast<size_t>(n)), x(static_cast<size_t>(n));
  const auto start = std::chrono::steady_clock::now();
  const LargeOutcome outcome =
      engine->decompose(plan, {entries.get(), nullptr, left.get(), values.data(), right.get()}, control);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  double worst = 0, frobenius_norm = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    worst = std::max(worst, std::fabs(values[i] - reference[i]));
    frobenius_norm += reference[i] * reference[i];
  }
  std::normal_distribution<double> number;
  for (double& entry : x) entry = number(bits);
  const double length = norm(x);
  for (double& entry : x) entry /= length;
  Vector from_left = multiply_transposed(left.get(), x);  // U^T x
  const double off_norm = std::fabs(norm(from_left) - 1);
  // V (S U^T x): the columns of V^T are the rows of V.
  for (size_t i = 0; i < values.size(); ++i) from_left[i] *= values[i];
  const Vector ours = multiply_transposed(right.get(), from_left);
  const double off = distance(ours, multiply_transposed(entries.get(), x)) / std::sqrt(frobenius_norm);
  const double bound = (16 + 2 * static_cast<double>(n)) * 0x1p-53, u = 0x1p-53 * static_cast<double>(n);
  const double most = std::max(10.0, std::sqrt(static_cast<double>(n))) * u;  // as in run()
  const bool good = outcome.status == LargeStatus::kOk && worst <= bound * reference[0] && outcome.residual <= 10 * u &&
                    outcome.left_orthogonality <= most && outcome.right_orthogonality <= most && off <= 10 * u &&
                    off_norm <= most;
  failures += good ? 0 : 1;
  std::printf(
      "  %9.2f s call  %d GPUs, %d sweeps, values %.3f of the bound, residual %.2f n u, |I - U^H U| %.2f n u, |I - V^H "
      "V| %.2f n u, products %.3f and %.3f n u, %.2f matrices: %s %s\n",
      seconds, outcome.members, outcome.sweeps, worst / bound / reference[0], outcome.residual / u,
      outcome.left_orthogonality / u, outcome.right_orthogonality / u, off / u, off_norm / u,
      static_cast<double>(memory.device_bytes) / matrix, good ? "ok" : "FAILED", outcome.detail.c_str());
  print_phases(outcome);
  std::fflush(stdout);
  if (gib > 0 || plain.device_bytes > total / 10 * 9) return;
  const Results all_at_once = decompose(plan, entries.get());
  const auto same = [](const std::vector<std::byte>& a, const void* b) {
    return std::memcmp(a.data(), b, a.size()) == 0;
  };
  const bool bits_agree = same(all_at_once.left, left.get()) && same(all_at_once.right, right.get()) &&
                          same(all_at_once.values, values.data());
  failures += bits_agree ? 0 : 1;
  std::printf("  %9.2f s with all at once: %s\n", all_at_once.seconds, bits_agree ? "the same bits" : "OTHER BITS");
}

// Eigenvalues alone of a definite G G^H are the squares of G's values, whose SVD may begin by an eigenbasis.
void check_definite_values(int64_t order) {
  const KroneckerProduct product = kronecker_product(order);
  const int64_t n = product.order();
  const Numbers entries = entries_of(product);
  const std::vector<double> reference = values_of(product);
  const std::vector<int8_t> signs(static_cast<size_t>(n), 1);
  LargeOptions options = options_of(Method::kFactored, Vectors::kNone);
  options.kind = LargeKind::kHermitianFactor;
  const Results r = decompose(plan_of({n, n, DType::kF64, Order::kColumnMajor}, options), entries.get(), signs.data());
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double s = reference[static_cast<size_t>(n - 1 - i)];
    worst = std::max(worst, std::fabs(value_at(r.values, DType::kF64, i) - s * s));
  }
  const double bound = 2 * (16 + 2 * static_cast<double>(n)) * 0x1p-53 * reference[0] * reference[0];
  const bool good = r.outcome.status == LargeStatus::kOk && worst <= bound;
  failures += good ? 0 : 1;
  std::printf("VALUES   f64  n %5lld G G^H  %9.2f s call, error %.3f of the bound: %s %s\n", static_cast<long long>(n),
              r.seconds, worst / bound, good ? "ok" : "FAILED", r.outcome.detail.c_str());
  std::fflush(stdout);
}

void values() {
  for (const Method method : {Method::kAuto, Method::kJacobi}) {
    for (const int64_t order : {240, 1200, 2400, 9600}) time_values(order, method);
  }
  for (const int64_t order : {240, 9600}) check_definite_values(order);
}

int main_of(int count, char** arguments) {
  CudaStatus status;
  engine = open_cuda_large_engine(0, &status);
  if (engine == nullptr) {
    std::printf("no GPU for factors: %s\n", status.text.c_str());
    return 1;
  }
  std::vector<std::string> parts(arguments + 1, arguments + count);
  constexpr const char* kGpus = "gpus=";
  if (!parts.empty() && parts[0].rfind(kGpus, 0) == 0) {
    std::vector<int> ordinals(static_cast<size_t>(std::atoi(parts[0].c_str() + std::strlen(kGpus))));
    std::iota(ordinals.begin(), ordinals.end(), 0);
    parts.erase(parts.begin());
    engine = open_cuda_ring_engine(ordinals, &status);
    if (engine == nullptr) {
      std::printf("no ring: %s\n", status.text.c_str());
      return 1;
    }
  }
  const auto wanted = [&](const char* part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (wanted("checks")) checks();
  if (wanted("times")) times();
  if (wanted("tall")) tall();
  if (wanted("eigen")) eigen();
  if (wanted("leading")) leading();
  if (wanted("values")) values();
  if (!parts.empty() && wanted("profile")) profile();
  if (!parts.empty() && parts[0] == "largest") {
    for (size_t i = 1; i < parts.size(); ++i) time_values(std::atoll(parts[i].c_str()), Method::kAuto);
  }
  if (!parts.empty() && parts[0] == "largest-vectors") {
    for (size_t i = 1; i < parts.size(); ++i) {
      const size_t colon = parts[i].find(':');
      const bool has_room = colon != std::string::npos;
      time_vectors(std::atoll(parts[i].c_str() + (has_room ? colon + 1 : 0)),
                   has_room ? std::atof(parts[i].c_str()) : 0);
    }
  }
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve

int main(int count, char** arguments) { return svdserve::main_of(count, arguments); }
