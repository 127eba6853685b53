// One large general matrix on a GPU: is it right, and how long does it take beside cuSOLVER's Xgeev.
//   device_large_general [checks] [large] [times]      all where nothing is named
//   device_large_general host                  the checks of the processor's engine
// Checks print a line each, and the exit status says whether all passed. Residuals are computed by the host's BLAS in
// double precision, in units of n u |A|_F: their bound is 10, as that of the trace. Eigenvalues of normal matrices are
// known. "processor": V is so nearly dependent that it gives no W, and the processor would take the matrix.
// Times: c128 and f64, V, random normal. "call" is from host memory to host memory, "compute" the device without
// transfers; Xgeev's operands are on the device already.
#include <cusolverDn.h>

#include <chrono>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda_large_engine.h"
#include "tests/device/device_bench.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

extern "C" void zgemm_(const char*, const char*, const int*, const int*, const int*, const void*, const void*,
                       const int*, const void*, const int*, const void*, void*, const int*);

namespace svdserve::numerics {
namespace {

using Entry = std::complex<double>;
using Values = std::vector<Entry>;

std::unique_ptr<LargeEngine> engine;
int failures = 0;

// --- matrices -----------------------------------------------------------------------------------------------------

Matrix filled(DType dtype, int64_t n, const std::function<Entry(int64_t, int64_t)>& entry) {
  Matrix a(dtype, n, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) a.at(i, j) = entry(i, j);
  }
  return a;
}

// A := (I - 2 u u^H / |u|^2) A for eight random u.
void reflect_rows(Matrix& a, uint64_t seed) {
  Random random(seed);
  for (int r = 0; r < 8; ++r) {
    Values u(static_cast<size_t>(a.rows));
    double square = 0;
    for (Entry& x : u) {
      x = {random.normal(), is_complex(a.dtype) ? random.normal() : 0};
      square += std::norm(x);
    }
    for (int64_t j = 0; j < a.cols; ++j) {
      Entry dot = 0;
      for (int64_t i = 0; i < a.rows; ++i) dot += std::conj(u[static_cast<size_t>(i)]) * a.at(i, j);
      dot *= 2 / square;
      for (int64_t i = 0; i < a.rows; ++i) a.at(i, j) -= dot * u[static_cast<size_t>(i)];
    }
  }
}
// Q A Q^H, Q unitary.
Matrix hidden(Matrix a) {
  reflect_rows(a, 5);
  a = conjugate_transpose(a);
  reflect_rows(a, 5);
  return conjugate_transpose(a);
}

struct Sample {
  std::string name;
  Matrix a;
  Values values = {};      // known, of a normal matrix
  bool dependent = false;  // V is nearly singular
  double size = 0;         // that errors of values are relative to; 0: |A|_F
};

Matrix random_matrix(DType dtype, int64_t n) {
  Random random(static_cast<uint64_t>(n));
  return filled(dtype, n,
                [&](int64_t, int64_t) { return Entry(random.normal(), is_complex(dtype) ? random.normal() : 0); });
}

// Normal, with values on a spiral; real matrices have conjugate pairs as 2 x 2 blocks.
Sample normal_matrix(DType dtype, int64_t n) {
  Values values;
  Matrix a(dtype, n, n);
  for (int64_t i = 0; i < n; ++i) {
    const double t = static_cast<double>(i / 2 + 1) / static_cast<double>(n);
    const Entry value = std::polar(t, 20 * t);
    if (is_complex(dtype)) {
      a.at(i, i) = i % 2 == 0 ? value : -value;
      values.push_back(a.at(i, i));
    } else if (i % 2 == 1 || i + 1 == n) {
      const Entry real = value.real();
      if (i % 2 == 0) {
        a.at(i, i) = real;
        values.push_back(real);
        continue;
      }
      a.at(i - 1, i - 1) = a.at(i, i) = real;
      a.at(i - 1, i) = value.imag();
      a.at(i, i - 1) = -value.imag();
      values.push_back(value);
      values.push_back(std::conj(value));
    }
  }
  if (n < 8) values.clear();  // the reflections' own errors are above the bound
  return {"normal", hidden(std::move(a)), std::move(values)};
}

// T^-1 D T would need an inverse: upper triangular instead, with values in three clusters, hidden.
Matrix clusters(DType dtype, int64_t n) {
  Random random(9);
  return hidden(filled(dtype, n, [&](int64_t i, int64_t j) {
    if (i > j) return Entry(0);
    if (i < j) return Entry(0.1 * random.normal() / std::sqrt(static_cast<double>(n)));
    return Entry(static_cast<double>(i % 3) + 1e-9 * static_cast<double>(i / 3 % 4));
  }));
}

std::vector<Sample> samples(DType dtype, int64_t n) {
  std::vector<Sample> all;
  const auto add = [&](const char* name, Matrix a) { all.push_back({name, std::move(a), {}, true}); };
  Random random(3);
  const auto number = [&] { return Entry(random.normal(), is_complex(dtype) ? random.normal() : 0); };
  all.push_back({"random", random_matrix(dtype, n)});
  all.push_back(normal_matrix(dtype, n));
  add("defective", hidden(filled(dtype, n, [&](int64_t i, int64_t j) {
        if (i == j) return Entry(static_cast<double>(i / 2 + 1) / static_cast<double>(n));
        return Entry(j == i + 1 && i % 2 == 0 ? 1 : 0);
      })));
  add("Grcar", filled(dtype, n, [](int64_t i, int64_t j) {
        return Entry(j == i - 1 ? -1 : i <= j && j <= i + 3 ? 1 : 0);
      }));
  add("clusters", clusters(dtype, n));
  all.push_back({"companion", filled(dtype, n, [&](int64_t i, int64_t j) {
                   return j == n - 1 ? number() : Entry(i == j + 1 ? 1 : 0);
                 })});
  add("nilpotent", filled(dtype, n, [](int64_t i, int64_t j) { return Entry(j == i + 1 ? 1 : 0); }));
  add("triangular", filled(dtype, n, [&](int64_t i, int64_t j) { return i <= j ? number() : Entry(0); }));
  const double spread = real_type(dtype).unit_roundoff > 1e-10 ? 40 : 500;
  const auto exponent = [&](int64_t i) {
    return std::round(spread * static_cast<double>(7 * i % n) / static_cast<double>(n));
  };
  add("D A D^-1",
      filled(dtype, n, [&](int64_t i, int64_t j) { return number() * std::exp2(exponent(i) - exponent(j)); }));
  // Balancing gives the values of a normal matrix N the accuracy that they have for N.
  if (n >= 8) {
    Sample scaled = normal_matrix(dtype, n);
    round_to_dtype(scaled.a);
    for (const Entry& x : scaled.a.elements) scaled.size = std::hypot(scaled.size, std::abs(x));
    scaled.name = "D N D^-1";
    scaled.dependent = true;
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < n; ++i)
        scaled.a.at(i, j) *= std::exp2(std::floor(exponent(i) / 2) - std::floor(exponent(j) / 2));
    }
    all.push_back(std::move(scaled));
  }
  // Its values have imaginary parts below the range of f32, with which the pairs are lost.
  if (dtype != DType::kF32)
    add("rank one",
        filled(dtype, n, [&](int64_t i, int64_t j) { return Entry(static_cast<double>((i + 1) % 7) * (j % 5 + 1)); }));
  all.push_back({"zero", Matrix(dtype, n, n), Values(static_cast<size_t>(n))});
  all.push_back({"identity", filled(dtype, n, [](int64_t i, int64_t j) { return Entry(i == j ? 1 : 0); }),
                 Values(static_cast<size_t>(n), 1)});
  for (Sample& sample : all) round_to_dtype(sample.a);
  return all;
}

// --- checks -------------------------------------------------------------------------------------------------------

double frobenius(const Matrix& a) {
  double sum = 0;
  for (const Entry& x : a.elements) sum += std::norm(x);
  return std::sqrt(sum);
}

// |A X - X L|_F, or of A^H; X by columns.
double residual(const char* op, const Matrix& a, const Matrix& x, const Values& values) {
  const int n = static_cast<int>(a.rows);
  Matrix rest = x;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < n; ++i) rest.at(i, j) *= values[static_cast<size_t>(j)];
  }
  const Entry one = 1, minus = -1;
  zgemm_(op, "N", &n, &n, &n, &one, a.elements.data(), &n, x.elements.data(), &n, &minus, rest.elements.data(), &n);
  return frobenius(rest);
}

// The largest distance of a known value from the nearest that was found, each of which is taken once.
double distance(const Values& known, Values found) {
  double worst = 0;
  for (const Entry& value : known) {
    const auto nearest = std::min_element(found.begin(), found.end(), [&](const Entry& x, const Entry& y) {
      return std::abs(x - value) < std::abs(y - value);
    });
    worst = std::max(worst, std::abs(*nearest - value));
    found.erase(nearest);
  }
  return worst;
}

double unit_error(const Matrix& x) {
  double worst = 0;
  for (int64_t j = 0; j < x.cols; ++j) {
    double square = 0;
    for (int64_t i = 0; i < x.rows; ++i) square += std::norm(x.at(i, j));
    worst = std::max(worst, std::fabs(square - 1));
  }
  return worst;
}

// Values of a real matrix with an imaginary part have their conjugate beside them, the others real vectors.
bool pairs_are_exact(const LargeResult& r, const Matrix& x) {
  const Values& values = r.complex_values;
  for (size_t j = 0; j < values.size(); ++j) {
    const auto column = static_cast<int64_t>(j);
    const bool real = values[j].imag() == 0;
    if (!real && (!(values[j].imag() > 0) || j + 1 == values.size() || values[j + 1] != std::conj(values[j])))
      return false;
    for (int64_t i = 0; i < x.rows; ++i) {
      if (real ? x.at(i, column).imag() != 0 : x.at(i, column + 1) != std::conj(x.at(i, column))) return false;
    }
    j += real ? 0 : 1;
  }
  return true;
}

LargePlan general_plan(DType dtype, int64_t n, Vectors vectors, Order order, bool certificate,
                       LargeOptions options = {}) {
  options.kind = LargeKind::kGeneral;
  options.vectors = vectors;
  options.certificate = certificate;
  return large_plan_of({n, n, dtype, order}, options);
}

// Errors in units of their bounds' n u |A|_F; of the zero matrix as they are.
struct Errors {
  double right = 0, left = 0, trace = 0, value = 0, length = 0, certificate = 0;
  bool good(double bound) const {
    return right <= bound && left <= bound && trace <= bound && value <= 2 * bound && length <= bound &&
           certificate <= bound / 10;
  }
};

Errors errors_of(const Sample& sample, const LargeResult& r) {
  const Matrix& a = sample.a;
  const double u = real_type(a.dtype).unit_roundoff, norm = frobenius(a), n = static_cast<double>(a.rows);
  const double unit = n * u * (norm > 0 ? norm : 1);
  Errors e;
  Entry sum = 0;
  for (const Entry& x : r.complex_values) sum += x;
  for (int64_t i = 0; i < a.rows; ++i) sum -= a.at(i, i);
  e.trace = std::abs(sum) / unit;
  const double of_values = sample.size > 0 ? n * u * sample.size : unit;
  if (!sample.values.empty()) e.value = distance(sample.values, r.complex_values) / of_values;
  if (r.left.cols == 0) return e;
  e.right = residual("N", a, r.left, r.complex_values) / unit;
  e.length = unit_error(r.left) / (n * u);
  if (r.right.rows > 0) {
    const Matrix w = conjugate_transpose(r.right);
    Values conjugates = r.complex_values;
    for (Entry& x : conjugates) x = std::conj(x);
    e.left = residual("C", a, w, conjugates) / unit;
    e.length = std::max(e.length, unit_error(w) / (n * u));
  }
  e.certificate = std::fabs(r.outcome.residual * norm / unit - std::max(e.right, e.left));
  return e;
}

// How a matrix is to be decomposed.
struct Way {
  Method method = Method::kQr;
  const Matrix* start = nullptr;
  bool may_be_qr = false;  // JACOBI leaves it to QR, or does not
};

void check(const Sample& sample, Vectors vectors, Order order, const Way& way = {}) {
  const Matrix& a = sample.a;
  LargeOptions options;
  options.method = way.method;
  options.starting_vectors = way.start != nullptr;
  const LargePlan plan = general_plan(a.dtype, a.rows, vectors, order, vectors != Vectors::kNone, options);
  const LargeResult r = run_large(*engine, plan, a, {}, {}, way.start);
  const char* const wanted = vectors == Vectors::kFull ? "V, W" : vectors == Vectors::kThin ? "V" : "values";
  if (r.outcome.status == LargeStatus::kFault && r.outcome.detail.find("nearly dependent") != std::string::npos) {
    std::printf("%-10s %-4s n %4lld %-6s  processor\n", sample.name.c_str(), name(a.dtype),
                static_cast<long long>(a.rows), wanted);
    if (!sample.dependent || vectors != Vectors::kFull) ++failures;
    return;
  }
  Errors e;
  const bool by_qr = r.outcome.method == Method::kQr;
  bool good = r.outcome.status == LargeStatus::kOk && (r.outcome.method == way.method || (by_qr && way.may_be_qr));
  if (good) {
    e = errors_of(sample, r);
    good = e.good(10);
    if (!is_complex(a.dtype)) {
      if (r.left.cols > 0) good = good && pairs_are_exact(r, r.left);
      if (r.right.rows > 0) good = good && pairs_are_exact(r, conjugate_transpose(r.right));
    }
  }
  failures += good ? 0 : 1;
  std::printf(
      "%-10s %-4s n %4lld %-6s  %-6s %2d sweeps  right %6.3f  left %6.3f  trace %6.3f  values %6.3f  length %5.2f  "
      "rank "
      "%4lld  %s %s\n",
      sample.name.c_str(), name(a.dtype), static_cast<long long>(a.rows), wanted, name(r.outcome.method),
      r.outcome.sweeps, e.right, e.left, e.trace, e.value, e.length, static_cast<long long>(r.outcome.rank),
      good ? "ok" : "FAILED", r.outcome.detail.c_str());
  std::fflush(stdout);
}

// A power of two changes the exponents of the values, and nothing else. Same matrix, same bits.
void check_scaling(DType dtype, int64_t n) {
  const Matrix a = random_matrix(dtype, n);
  const LargePlan plan = general_plan(dtype, n, Vectors::kFull, Order::kRowMajor, true);
  const LargeResult plain = run_large(*engine, plan, a), again = run_large(*engine, plan, a);
  bool good = plain.outcome.status == LargeStatus::kOk && plain.left_bytes == again.left_bytes &&
              plain.right_bytes == again.right_bytes && plain.values_bytes == again.values_bytes;
  for (const int exponent : {900, -900}) {
    Matrix b = a;
    for (Entry& x : b.elements) x = {std::ldexp(x.real(), exponent), std::ldexp(x.imag(), exponent)};
    const LargeResult scaled = run_large(*engine, plan, b);
    good = good && scaled.left_bytes == plain.left_bytes && scaled.right_bytes == plain.right_bytes &&
           scaled.outcome.residual == plain.outcome.residual;
    for (size_t j = 0; good && j < scaled.complex_values.size(); ++j) {
      const Entry value = plain.complex_values[j];
      good = scaled.complex_values[j] == Entry(std::ldexp(value.real(), exponent), std::ldexp(value.imag(), exponent));
    }
  }
  failures += good ? 0 : 1;
  std::printf("2^900 A, 2^-900 A, A again  %-4s n %4lld  %s\n", name(dtype), static_cast<long long>(n),
              good ? "ok" : "FAILED");
}

void check_refusals() {
  Matrix a = random_matrix(DType::kF64, 40);
  a.at(7, 31) = std::numeric_limits<double>::quiet_NaN();
  const LargePlan plan = general_plan(DType::kF64, 40, Vectors::kThin, Order::kRowMajor, false);
  const LargeOutcome bad = run_large(*engine, plan, a).outcome;
  std::atomic<bool> cancel{false};
  std::vector<double> fractions;
  LargeControl control;
  control.cancel = &cancel;
  control.progress = [&](const LargeProgress& p) {
    fractions.push_back(p.fraction);
    cancel = cancel || p.fraction > 0.5;
  };
  const LargeOutcome cancelled = run_large(*engine, plan, random_matrix(DType::kF64, 40), {}, control).outcome;
  const bool good = bad.status == LargeStatus::kNonFinite && bad.row == 7 && bad.col == 31 &&
                    cancelled.status == LargeStatus::kCancelled && std::is_sorted(fractions.begin(), fractions.end());
  failures += good ? 0 : 1;
  std::printf("an entry that is not finite, a cancel  %s\n", good ? "ok" : "FAILED");
}

// A plus normally distributed numbers of the size `part` |A|_F / n.
Matrix near(const Matrix& a, double part) {
  Random random(11);
  Matrix b = a;
  const double size = part * frobenius(a) / static_cast<double>(a.rows);
  for (Entry& x : b.elements) x += size * Entry(random.normal(), is_complex(a.dtype) ? random.normal() : 0);
  round_to_dtype(b);
  return b;
}

// V of a, with normally distributed numbers of the size `part` of a column's norm in each column.
Matrix start_near(const Matrix& a, double part) {
  const LargePlan plan = general_plan(a.dtype, a.rows, Vectors::kThin, Order::kColumnMajor, false);
  Matrix v = run_large(*engine, plan, a).left;
  Random random(13);
  const double size = part / std::sqrt(2.0 * static_cast<double>(a.rows));
  for (Entry& x : v.elements) x += size * Entry(random.normal(), random.normal());
  round_to_dtype(v);
  return v;
}

void check_jacobi() {
  for (const DType dtype : {DType::kF32, DType::kC64, DType::kF64, DType::kC128}) {
    for (const int64_t n : {1, 2, 33, 128, 257}) {
      for (const Sample& sample : samples(dtype, n)) {
        const Way way{Method::kJacobi, nullptr, sample.name != "normal"};
        for (const Vectors vectors : {Vectors::kFull, Vectors::kThin, Vectors::kNone}) {
          check(sample, vectors, Order::kRowMajor, way);
        }
      }
      if (n < 33) continue;
      check({"near normal", near(normal_matrix(dtype, n).a, 0.01)}, Vectors::kFull, Order::kColumnMajor,
            {Method::kJacobi});
      const Matrix a = random_matrix(dtype, n), start = start_near(a, 1e-3);
      for (const Vectors vectors : {Vectors::kFull, Vectors::kThin, Vectors::kNone}) {
        check({"start", a}, vectors, Order::kRowMajor, {Method::kJacobi, &start});
      }
    }
  }
  const Matrix a = random_matrix(DType::kC128, 60);
  for (const char* const kind : {"zeros", "no number", "no neighbour"}) {
    Matrix start = random_matrix(DType::kC128, 60);
    if (*kind == 'z') std::fill(start.elements.begin(), start.elements.end(), Entry(0));
    if (kind[3] == 'n' && kind[4] == 'u') start.at(3, 4) = std::numeric_limits<double>::quiet_NaN();
    check({kind, a}, Vectors::kThin, Order::kRowMajor, {Method::kJacobi, &start, true});
  }
}

// An order that begins with an eigenbasis of our own, whose memory must be there.
void check_large_jacobi() {
  const Sample sample{"near normal", near(normal_matrix(DType::kC128, 2304).a, 1e-3)};
  for (const Vectors vectors : {Vectors::kFull, Vectors::kThin}) {
    check(sample, vectors, Order::kColumnMajor, {Method::kJacobi});
  }
}

void checks() {
  std::printf("bounds: right, left, trace, length 10; values 20\n");
  for (const DType dtype : {DType::kF32, DType::kC64, DType::kF64, DType::kC128}) {
    for (const int64_t n : {1, 2, 33, 128, 257, 512}) {
      for (const Sample& sample : samples(dtype, n)) {
        check(sample, Vectors::kFull, Order::kRowMajor);
        check(sample, Vectors::kThin, Order::kColumnMajor);
        if (n <= 128) check(sample, Vectors::kNone, Order::kColumnMajor);
      }
    }
  }
  check_jacobi();
  for (const DType dtype : {DType::kF64, DType::kC128}) check_scaling(dtype, 100);
  check_refusals();
}

// --- times --------------------------------------------------------------------------------------------------------

using device_bench::check;
using device_bench::device_memory;

// cusolverDnXgeev for V of a matrix on the device: the best of three, and the residual of a complex one.
struct Peer {
  double seconds = std::numeric_limits<double>::infinity(), residual = 0;
};
Peer xgeev(const Matrix& a, cudaDataType type) {
  const int64_t n = a.rows;
  const size_t element = type == CUDA_C_64F ? 16 : 8, bytes = a.elements.size() * element;
  std::vector<char> operand(bytes);
  store(a, Order::kColumnMajor, operand.data());
  void *const original = device_memory(bytes), *const work_a = device_memory(bytes), *const v = device_memory(bytes);
  void* const w = device_memory(static_cast<size_t>(n) * 16);
  auto* const info = static_cast<int*>(device_memory(sizeof(int)));
  check(cudaMemcpy(original, operand.data(), bytes, cudaMemcpyHostToDevice), "upload");
  cusolverDnHandle_t handle;
  cusolverDnParams_t params;
  cusolverDnCreate(&handle);
  cusolverDnCreateParams(&params);
  const auto none = CUSOLVER_EIG_MODE_NOVECTOR, vector = CUSOLVER_EIG_MODE_VECTOR;
  size_t on_device = 0, on_host = 0;
  cusolverDnXgeev_bufferSize(handle, params, none, vector, n, type, work_a, n, CUDA_C_64F, w, type, nullptr, n, type, v,
                             n, type, &on_device, &on_host);
  void* const work = device_memory(on_device);
  std::vector<char> host(on_host);
  Peer peer;
  for (int i = 0; i < 4; ++i) {
    check(cudaMemcpy(work_a, original, bytes, cudaMemcpyDeviceToDevice), "copy");
    check(cudaDeviceSynchronize(), "copy");
    const auto start = std::chrono::steady_clock::now();
    const auto status = cusolverDnXgeev(handle, params, none, vector, n, type, work_a, n, CUDA_C_64F, w, type, nullptr,
                                        n, type, v, n, type, work, on_device, host.data(), on_host, info);
    check(cudaDeviceSynchronize(), "Xgeev");
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (status == CUSOLVER_STATUS_SUCCESS && i > 0) peer.seconds = std::min(peer.seconds, s);
  }
  if (type == CUDA_C_64F) {
    Matrix x(DType::kC128, n, n);
    Values values(static_cast<size_t>(n));
    check(cudaMemcpy(x.elements.data(), v, bytes, cudaMemcpyDeviceToHost), "download");
    check(cudaMemcpy(values.data(), w, values.size() * 16, cudaMemcpyDeviceToHost), "download");
    peer.residual = residual("N", a, x, values) / frobenius(a);
  }
  for (void* const memory : {original, work_a, v, w, work, static_cast<void*>(info)}) cudaFree(memory);
  cusolverDnDestroyParams(params);
  cusolverDnDestroy(handle);
  return peer;
}

// c128, or f64.
struct Timed {
  const char* name;
  Matrix a;
  LargeOptions options = {};
  const Matrix* start = nullptr;
  double bar = 0;  // compute / Xgeev
};

void time_general(const Timed& timed, const std::vector<Vectors>& wanted) {
  const Matrix& a = timed.a;
  const int64_t n = a.rows;
  const DType dtype = a.dtype;
  std::vector<char> operand(a.elements.size() * element_bytes(dtype)), start_bytes;
  store(a, Order::kColumnMajor, operand.data());
  LargeOptions options = timed.options;
  if (timed.start != nullptr) {
    options.starting_vectors = true;
    start_bytes.resize(a.elements.size() * element_bytes(DType::kC128));
    store(*timed.start, Order::kColumnMajor, start_bytes.data());
  }
  for (const Vectors vectors : wanted) {
    const LargePlan plan = general_plan(dtype, n, vectors, Order::kColumnMajor, false, options);
    std::vector<char> left(plan.left_bytes()), right(plan.right_bytes());
    Values values(static_cast<size_t>(n));
    LargeOperands operands{operand.data(), nullptr, left.data(), values.data(), right.data()};
    operands.start = timed.start != nullptr ? start_bytes.data() : nullptr;
    double call = std::numeric_limits<double>::infinity(), compute = call;
    LargeOutcome best;
    for (int i = 0; i < 4; ++i) {
      const auto start = std::chrono::steady_clock::now();
      const LargeOutcome o = engine->decompose(plan, operands);
      const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      if (o.status != LargeStatus::kOk) {
        std::printf("FAILED: %s\n", o.detail.c_str());
        ++failures;
        return;
      }
      if (i == 0 || s >= call) continue;
      call = s;
      compute = 0;
      for (const LargePhaseTime& p : o.phases) compute += p.name == "load" || p.name == "store" ? 0 : p.seconds;
      best = o;
    }
    std::printf("EIG %-6s %-4s n %5lld  %-22s %-6s %2d sweeps  %9.2f ms call, %9.2f compute",
                vectors == Vectors::kThin   ? "V"
                : vectors == Vectors::kFull ? "V, W"
                                            : "values",
                name(dtype), static_cast<long long>(n), timed.name, name(best.method), best.sweeps, call * 1e3,
                compute * 1e3);
    if (vectors == Vectors::kThin) {
      Matrix v(DType::kC128, n, n);
      std::memcpy(v.elements.data(), left.data(), left.size());
      const double ours = residual("N", a, v, values) / frobenius(a);
      const Peer peer = xgeev(a, dtype == DType::kC128 ? CUDA_C_64F : CUDA_R_64F);
      std::printf("  residual %.0f u;  Xgeev %9.2f ms", ours * 0x1p53, peer.seconds * 1e3);
      if (peer.residual > 0) std::printf(", residual %.0f u", peer.residual * 0x1p53);
      std::printf(";  compute/Xgeev %.2f, call/Xgeev %.2f", compute / peer.seconds, call / peer.seconds);
      const double bar = timed.bar;
      if (bar > 0) std::printf("  bar %.2f %s", bar, compute <= bar * peer.seconds ? "met" : "MISSED");
    }
    std::printf("\n");
    for (const LargePhaseTime& p : best.phases) std::printf("    %-14s %9.3f ms\n", p.name.c_str(), p.seconds * 1e3);
    std::fflush(stdout);
  }
}

void times() {
  const std::vector<Vectors> all{Vectors::kThin, Vectors::kFull, Vectors::kNone};
  for (const auto& [n, bar] : {std::pair{512, 1.0}, {1024, 1.0}, {2048, 0.75}}) {
    time_general({"random", random_matrix(DType::kC128, n), {}, nullptr, bar}, all);
  }
  time_general({"random", random_matrix(DType::kF64, 2048)}, all);
  LargeOptions jacobi;
  jacobi.method = Method::kJacobi;
  for (const int n : {512, 1024, 2048}) {
    const Matrix a = random_matrix(DType::kC128, n), start = start_near(a, 1e-3);
    time_general({"V within 1e-3", a, jacobi, &start, 0.25}, {Vectors::kThin});
    for (const double part : {1e-3, 1e-2}) {
      const std::string name = "normal + " + std::to_string(part).substr(0, 5) + " |A|";
      time_general({name.c_str(), near(normal_matrix(DType::kC128, n).a, part), jacobi, nullptr, 0.4},
                   {Vectors::kThin});
    }
    time_general({"random", a, jacobi}, {Vectors::kThin});
  }
}

int main_of(int count, char** arguments) {
  const std::vector<std::string> parts(arguments + 1, arguments + count);
  const bool on_host = !parts.empty() && parts.front() == "host";
  CudaStatus status;
  engine = on_host ? make_host_large_engine() : open_cuda_large_engine(0, &status);
  if (engine == nullptr) {
    std::printf("no GPU for large matrices: %s\n", status.text.c_str());
    return 1;
  }
  const auto wanted = [&](const char* part) {
    return parts.empty() || std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  if (on_host || wanted("checks")) checks();
  if (!on_host && wanted("large")) check_large_jacobi();
  if (wanted("times")) times();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace svdserve::numerics

int main(int count, char** arguments) { return svdserve::numerics::main_of(count, arguments); }
