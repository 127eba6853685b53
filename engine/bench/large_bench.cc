// One large matrix on the host, beside LAPACK's dgesdd and dgesvj on the same data in the same run. It shows the time
// of each part, and the convergence of pivot strategies and variants.
//   build/release/bin/large_bench                        order 512 and 1024, U and V, random normal, f64
//   build/release/bin/large_bench times 256 2048         other orders
//   build/release/bin/large_bench phases 1024            seconds, operations and rates of each phase
//   build/release/bin/large_bench strategies 256 512     sweeps and rotations of every strategy and variant
//   build/release/bin/large_bench spectra 512            sweeps and times for graded, clustered and dense spectra
//   build/release/bin/large_bench members 1024           a ring of 1, 2, 4 and 8 members beside the whole host, in turns
//   build/release/bin/large_bench leading 2000           top_k = 10 of ten times as many rows, and all triplets
//   build/release/bin/large_bench tall 2000              phases of ten times as many rows, with a QR and without, one thread
//   OPENBLAS_NUM_THREADS=1 build/release/bin/large_bench hermitian 512     TRIDIAGONAL in both precisions, one thread
//   OPENBLAS_NUM_THREADS=1 build/release/bin/large_bench single 1024       a start of AUTO in single precision, one thread
// CSV, with the machine in comments. Times are the best of three, of both sides; LAPACK has as many threads as we.
#include <lapacke.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/large_engine.h"

extern "C" {
void dgemm_(const char* op_a, const char* op_b, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc, size_t, size_t);
void dlatrd_(const char* uplo, const int* n, const int* nb, double* a, const int* lda, double* e, double* tau,
             double* w, const int* ldw, size_t);
}

namespace svdserve {
namespace {

constexpr int kRuns = 3;

double seconds_of(const std::function<void()>& f) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double best_of(const std::function<void()>& f) {
  double best = seconds_of(f);
  for (int i = 1; i < kRuns; ++i) best = std::min(best, seconds_of(f));
  return best;
}

std::vector<double> normal_matrix(int64_t m, int64_t n) {
  std::mt19937_64 bits(3);
  std::normal_distribution<double> normal;
  std::vector<double> a(m * n);
  for (double& x : a) x = normal(bits);
  return a;
}
std::vector<double> normal_matrix(int64_t n) { return normal_matrix(n, n); }

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

// Results of one order, written over by every run.
struct Results {
  explicit Results(int64_t n) : left(n * n), values(n), right(n * n) {}
  std::vector<double> left, values, right;
};

LargeOutcome decompose(const LargeEngine& engine, const std::vector<double>& a, int64_t n, const LargeOptions& options,
                       Results& results) {
  const auto plan = plan_large({n, n, DType::kF64, Order::kColumnMajor}, options);
  LargeOperands operands;
  operands.matrix = a.data();
  operands.left = results.left.data();
  operands.values = results.values.data();
  operands.right = results.right.data();
  LargeOutcome outcome = engine.decompose(*plan.plan, operands);
  if (outcome.status != LargeStatus::kOk) {
    std::fprintf(stderr, "not decomposed: %s\n", outcome.detail.c_str());
    std::exit(1);
  }
  return outcome;
}

double time_of(const LargeEngine& engine, const std::vector<double>& a, int64_t n, Method method, Results& results) {
  return best_of([&] { decompose(engine, a, n, {.method = method}, results); });
}

double time_of_gesdd(const std::vector<double>& a, int64_t n, Results& results) {
  const auto order = static_cast<lapack_int>(n);
  return best_of([&] {
    auto copy = a;
    LAPACKE_dgesdd(LAPACK_COL_MAJOR, 'S', order, order, copy.data(), order, results.values.data(), results.left.data(),
                   order, results.right.data(), order);
  });
}

double time_of_gesvj(const std::vector<double>& a, int64_t n, Results& results) {
  const auto order = static_cast<lapack_int>(n);
  double statistics[6];
  return best_of([&] {
    results.left = a;
    LAPACKE_dgesvj(LAPACK_COL_MAJOR, 'G', 'U', 'V', order, order, results.left.data(), order, results.values.data(), 0,
                   results.right.data(), order, statistics);
  });
}

void print_times(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf(
      "n,auto_seconds,jacobi_seconds,dgesdd_seconds,dgesvj_seconds,dgesdd_over_auto,dgesvj_over_auto,"
      "dgesvj_over_jacobi\n");
  for (const int64_t n : orders) {
    const auto a = normal_matrix(n);
    Results results(n);
    const double automatic = time_of(engine, a, n, Method::kAuto, results);
    const double jacobi = time_of(engine, a, n, Method::kJacobi, results);
    const double gesdd = time_of_gesdd(a, n, results), gesvj = time_of_gesvj(a, n, results);
    std::printf("%lld,%.4f,%.4f,%.4f,%.4f,%.2f,%.2f,%.2f\n", static_cast<long long>(n), automatic, jacobi, gesdd, gesvj,
                gesdd / automatic, gesvj / automatic, gesvj / jacobi);
    std::fflush(stdout);
  }
}

void print_phases(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("n,method,phase,seconds,operations,gflop_per_second\n");
  for (const int64_t n : orders) {
    const auto a = normal_matrix(n);
    Results results(n);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      for (const LargePhaseTime& phase : decompose(engine, a, n, {.method = method}, results).phases) {
        std::printf("%lld,%s,%s,%.5f,%.3g,%.2f\n", static_cast<long long>(n), name(method), phase.name.c_str(),
                    phase.seconds, phase.flops, phase.seconds > 0 ? phase.flops / phase.seconds * 1e-9 : 0);
      }
    }
  }
}

void print_strategies(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("n,strategy,variant,sweeps,rotations,proper_rotations,seconds\n");
  for (const int64_t n : orders) {
    const auto a = normal_matrix(n);
    Results results(n);
    for (int s = 1; s <= static_cast<int>(PivotStrategy::kLast); ++s) {
      for (const BlockVariant variant : {BlockVariant::kBlockOriented, BlockVariant::kFullBlock}) {
        const LargeOptions options{
            .method = Method::kJacobi, .strategy = static_cast<PivotStrategy>(s), .variant = variant};
        LargeOutcome outcome;
        const double seconds = best_of([&] { outcome = decompose(engine, a, n, options, results); });
        std::printf("%lld,%s,%s,%d,%lld,%lld,%.6f\n", static_cast<long long>(n), name(options.strategy), name(variant),
                    outcome.sweeps, static_cast<long long>(outcome.rotations),
                    static_cast<long long>(outcome.proper_rotations), seconds);
        std::fflush(stdout);
      }
    }
  }
}

// Q_1 diag(values) Q_2^T with Q from a QR of normal matrices.
std::vector<double> with_values(int64_t n, const std::function<double(double)>& value) {
  const auto order = static_cast<lapack_int>(n);
  std::vector<double> q[2] = {normal_matrix(n), normal_matrix(n)};
  std::rotate(q[1].begin(), q[1].begin() + 1, q[1].end());
  std::vector<double> tau(n), a(n * n, 0.0);
  for (int64_t i = 0; i < n; ++i) a[i + i * n] = value(static_cast<double>(i) / static_cast<double>(n - 1));
  for (int side = 0; side < 2; ++side) {
    LAPACKE_dgeqrf(LAPACK_COL_MAJOR, order, order, q[side].data(), order, tau.data());
    LAPACKE_dormqr(LAPACK_COL_MAJOR, side == 0 ? 'L' : 'R', side == 0 ? 'N' : 'T', order, order, order, q[side].data(),
                   order, tau.data(), a.data(), order);
  }
  return a;
}

void print_spectra(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("n,spectrum,method,warm_started,sweeps,rotations,seconds\n");
  for (const int64_t n : orders) {
    auto graded = normal_matrix(n);
    for (int64_t j = 0; j < n; ++j) {
      const double scale = std::pow(10, 12 - 24.0 * static_cast<double>((j * 37) % n) / static_cast<double>(n));
      for (int64_t i = 0; i < n; ++i) graded[i + j * n] *= scale;
    }
    const std::pair<const char*, std::vector<double>> matrices[] = {
        {"normal", normal_matrix(n)},
        {"columns 1e+-12", graded},
        {"condition 1e6", with_values(n, [](double x) { return std::pow(10, -6 * x); })},
        {"condition 1e12", with_values(n, [](double x) { return std::pow(10, -12 * x); })},
        {"two clusters", with_values(n, [](double x) { return x < 0.5 ? 1 : 1e-8; })},
        {"four narrow clusters", with_values(n, [](double x) { return std::floor(4 * x) + 1 + 1e-10 * x; })}};
    for (const auto& [what, a] : matrices) {
      Results results(n);
      for (const Method method : {Method::kAuto, Method::kJacobi}) {
        LargeOutcome outcome;
        const double seconds = best_of([&] { outcome = decompose(engine, a, n, {.method = method}, results); });
        std::printf("%lld,%s,%s,%d,%d,%lld,%.4f\n", static_cast<long long>(n), what, name(method), outcome.warm_started,
                    outcome.sweeps, static_cast<long long>(outcome.rotations), seconds);
        std::fflush(stdout);
      }
    }
  }
}

// H_2 H_1 diag(values) G_1 G_2 of Householder reflectors of random vectors: the values are known.
std::vector<double> tall_with_values(int64_t m, const std::vector<double>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::mt19937_64 bits(5);
  std::normal_distribution<double> normal;
  std::vector<double> a(m * n, 0.0), v(m), sums(n);
  for (int64_t j = 0; j < n; ++j) a[j + j * m] = values[j];
  for (int pass = 0; pass < 4; ++pass) {
    const bool left = pass % 2 == 0;
    const int64_t size = left ? m : n, lines = left ? n : m, along = left ? 1 : m, across = left ? m : 1;
    double square = 0;
    for (int64_t i = 0; i < size; ++i) v[i] = normal(bits), square += v[i] * v[i];
    for (int64_t line = 0; line < lines; ++line) {
      double* const first = a.data() + line * across;
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) sum += v[i] * first[i * along];
      for (int64_t i = 0; i < size; ++i) first[i * along] -= 2 * sum / square * v[i];
    }
  }
  return a;
}

// The median time of three runs, and the worst relative error of the ten leading values.
void print_leading(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  constexpr int64_t kLeading = 10;
  std::printf("m,n,spectrum,top_k,subspace_steps,seconds,worst_relative_error\n");
  const std::pair<const char*, double (*)(double)> spectra[] = {{"1/j", [](double j) { return 1 / (j + 1); }},
                                                                {"0.9^j", [](double j) { return std::pow(0.9, j); }},
                                                                {"flat", [](double j) { return 1 - 1e-4 * j; }}};
  for (const int64_t n : orders) {
    for (const auto& [what, value] : spectra) {
      std::vector<double> values(n);
      for (int64_t j = 0; j < n; ++j) values[j] = value(static_cast<double>(j));
      const int64_t m = 10 * n;
      const std::vector<double> a = tall_with_values(m, values);
      for (const int64_t top_k : {std::min(kLeading, n), int64_t{0}}) {
        const auto plan = plan_large({m, n, DType::kF64, Order::kColumnMajor}, {.top_k = top_k});
        std::vector<double> left(m * plan.plan->values), found(n), right(n * plan.plan->values), seconds;
        const LargeOperands operands{
            .matrix = a.data(), .left = left.data(), .values = found.data(), .right = right.data()};
        LargeOutcome outcome;
        for (int i = 0; i < kRuns; ++i) {
          seconds.push_back(seconds_of([&] { outcome = engine.decompose(*plan.plan, operands); }));
        }
        std::sort(seconds.begin(), seconds.end());
        double worst = 0;
        for (int64_t j = 0; j < std::min(kLeading, n); ++j) {
          worst = std::max(worst, std::abs(found[j] - values[j]) / values[j]);
        }
        std::printf("%lld,%lld,%s,%lld,%d,%.4f,%.2e\n", static_cast<long long>(m), static_cast<long long>(n), what,
                    static_cast<long long>(top_k), outcome.subspace_steps, seconds[kRuns / 2], worst);
        std::fflush(stdout);
      }
    }
  }
}

// FNV-1a of the bits of U, S and V.
uint64_t checksum(const Results& results) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const auto* numbers : {&results.left, &results.values, &results.right}) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(numbers->data());
    for (size_t i = 0; i < numbers->size() * sizeof(double); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  }
  return hash;
}

// Medians of five runs in turns. "members" 0 is the whole host without a ring.
void print_members(const LargeEngine& plain, const std::vector<int64_t>& orders) {
  constexpr int kTurns = 5;
  std::vector<std::pair<int, std::unique_ptr<LargeEngine>>> rings;
  for (const int members : {1, 2, 4, 8}) rings.emplace_back(members, make_host_ring_engine(0, members));
  std::printf("n,method,members,sweeps,seconds,processor_seconds,checksum\n");
  for (const int64_t n : orders) {
    const auto a = normal_matrix(n);
    Results results(n);
    for (const Method method : {Method::kAuto, Method::kJacobi}) {
      std::vector<double> seconds[5], processor_seconds[5];
      uint64_t sums[5] = {};
      int sweeps[5] = {};
      for (int turn = 0; turn < kTurns; ++turn) {
        for (size_t i = 0; i <= rings.size(); ++i) {
          const LargeEngine& engine = i == 0 ? plain : *rings[i - 1].second;
          const std::clock_t begin = std::clock();
          LargeOutcome outcome;
          seconds[i].push_back(seconds_of([&] { outcome = decompose(engine, a, n, {.method = method}, results); }));
          processor_seconds[i].push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
          sums[i] = checksum(results);
          sweeps[i] = outcome.sweeps;
        }
      }
      const auto median = [](std::vector<double> numbers) {
        std::sort(numbers.begin(), numbers.end());
        return numbers[numbers.size() / 2];
      };
      for (size_t i = 0; i <= rings.size(); ++i) {
        std::printf("%lld,%s,%d,%d,%.4f,%.4f,%016llx\n", static_cast<long long>(n), name(method),
                    i == 0 ? 0 : rings[i - 1].first, sweeps[i], median(seconds[i]), median(processor_seconds[i]),
                    static_cast<unsigned long long>(sums[i]));
      }
      std::fflush(stdout);
    }
  }
}

// --- precisions ---------------------------------------------------------------------------------------------------

// The median of processor seconds that f takes.
double processor_seconds_of(const std::function<void()>& f) {
  std::vector<double> seconds;
  for (int i = 0; i < kRuns; ++i) {
    const std::clock_t begin = std::clock();
    f();
    seconds.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[kRuns / 2];
}

// A decomposition of numbers of a type, T float or double, complex ones in pairs.
template <class T>
class Decomposition {
 public:
  Decomposition(DType dtype, const std::vector<double>& a, int64_t n, const LargeOptions& options)
      : Decomposition(dtype, a, n, n, options) {}
  Decomposition(DType dtype, const std::vector<double>& a, int64_t m, int64_t n, const LargeOptions& options)
      : plan_(*plan_large({m, n, dtype, Order::kColumnMajor}, options).plan),
        operand_(a.begin(), a.end()),
        left_(plan_.left_bytes() / sizeof(T)),
        values_(plan_.values_bytes() / sizeof(T)),
        right_(plan_.right_bytes() / sizeof(T)) {}

  LargeOutcome run(const LargeEngine& engine) {
    const LargeOutcome outcome = engine.decompose(plan_, {.matrix = operand_.data(),
                                                          .left = left_.data(),
                                                          .values = values_.data(),
                                                          .right = right_.empty() ? nullptr : right_.data()});
    if (outcome.status == LargeStatus::kOk) return outcome;
    std::fprintf(stderr, "not decomposed: %s\n", outcome.detail.c_str());
    std::exit(1);
  }
  double processor_seconds(const LargeEngine& engine) {
    return processor_seconds_of([&] { run(engine); });
  }

 private:
  const LargePlan plan_;
  const std::vector<T> operand_;
  std::vector<T> left_, values_, right_;
};

// Matrices that need no QR, and that turn out to need one at the first look and behind the Gram matrix.
void print_tall(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("m,n,matrix,phase,seconds,operations\n");
  for (const int64_t n : orders) {
    const int64_t m = 10 * n;
    const std::vector<double> normal = normal_matrix(m, n);
    std::vector<double> shifted = normal, twins = normal;
    for (double& x : shifted) x += 0.5;
    std::copy_n(twins.end() - m, m, twins.begin());
    for (const auto& [what, a] : {std::pair{"normal", &normal}, {"one large value", &shifted}, {"one zero", &twins}}) {
      for (const LargePhaseTime& phase : Decomposition<double>(DType::kF64, *a, m, n, {}).run(engine).phases) {
        std::printf("%lld,%lld,%s,%s,%.5f,%.3g\n", static_cast<long long>(m), static_cast<long long>(n), what,
                    phase.name.c_str(), phase.seconds, phase.flops);
      }
    }
  }
}

// Eigenvectors of a random Hermitian matrix by its lower triangle, in both precisions and by LAPACK's.
void print_hermitian(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("n,dtype,seconds,f64_or_c128_seconds,lapack_seconds,over_double,residual_u,orthogonality_u\n");
  for (const int64_t n : orders) {
    const auto order = static_cast<lapack_int>(n);
    for (const bool complex : {false, true}) {
      std::vector<double> a = normal_matrix(n);
      if (complex) a.insert(a.end(), a.rbegin(), a.rend());
      for (int64_t j = 0; complex && j < n; ++j) a[2 * (j + j * n) + 1] = 0;
      const DType dtype = complex ? DType::kC64 : DType::kF32, wide = complex ? DType::kC128 : DType::kF64;
      LargeOptions options{.kind = LargeKind::kHermitian};
      const double seconds = Decomposition<float>(dtype, a, n, options).processor_seconds(engine);
      const double twice = Decomposition<double>(wide, a, n, options).processor_seconds(engine);
      std::vector<float> values(n);
      const double lapack = processor_seconds_of([&] {
        std::vector<float> v(a.begin(), a.end());
        if (complex) {
          LAPACKE_cheevd(LAPACK_COL_MAJOR, 'V', 'L', order, reinterpret_cast<lapack_complex_float*>(v.data()), order,
                         values.data());
        } else {
          LAPACKE_ssyevd(LAPACK_COL_MAJOR, 'V', 'L', order, v.data(), order, values.data());
        }
      });
      options.certificate = true;
      const LargeOutcome outcome = Decomposition<float>(dtype, a, n, options).run(engine);
      std::printf("%lld,%s,%.4f,%.4f,%.4f,%.2f,%.1f,%.1f\n", static_cast<long long>(n), name(dtype), seconds, twice,
                  lapack, seconds / twice, outcome.residual * 0x1p24, outcome.left_orthogonality * 0x1p24);
      std::fflush(stdout);
    }
  }
}

// c := op(a) b, n x n
std::vector<double> product(bool transpose, const std::vector<double>& a, const std::vector<double>& b, int64_t n) {
  std::vector<double> c(n * n);
  const auto order = static_cast<int>(n);
  const double one = 1, zero = 0;
  dgemm_(transpose ? "T" : "N", "N", &order, &order, &order, &one, a.data(), &order, b.data(), &order, &zero, c.data(),
         &order, 1, 1);
  return c;
}

double to_single(double x) { return static_cast<double>(static_cast<float>(x)); }

// Eigenvectors of g as if its reduction to tridiagonal form kept matrix and reflectors in single precision. All is
// computed in double precision. So would be a kernel that reads half of the bytes.
std::vector<double> basis_of_stored_singles(std::vector<double> g, int64_t n) {
  constexpr int kPanel = 64;
  const auto order = static_cast<lapack_int>(n);
  std::vector<double> d(n), e(n), tau(n), w(n * kPanel + 8), v(n * n);
  const auto round_from = [&](int64_t first) {
    for (int64_t j = first; j < n; ++j) {
      for (int64_t i = j; i < n; ++i) g[i + j * n] = to_single(g[i + j * n]);
    }
  };
  round_from(0);
  for (int64_t j = 0; j < n - 1; j += kPanel) {
    const int rest = order - static_cast<int>(j), columns = std::min(kPanel, rest - 1);
    double* const panel = g.data() + j + j * n;
    dlatrd_("L", &rest, &columns, panel, &order, &e[j], &tau[j], w.data(), &order, 1);
    for (double& x : w) x = to_single(x);
    for (int64_t c = j; c < j + columns; ++c) {
      double square = 1;
      for (int64_t i = c + 2; i < n; ++i) {
        double& x = g[i + c * n];
        x = to_single(x);
        square += x * x;
      }
      if (tau[c] != 0) tau[c] = 2 / square;  // so that Q is orthogonal
      d[c] = g[c + c * n];
    }
    const int below = rest - columns;
    const double one = 1, minus = -1;
    double* const v_below = panel + columns;
    double* const target = panel + columns + columns * n;
    for (int half = 0; half < 2; ++half) {
      dgemm_("N", "T", &below, &below, &columns, &minus, half == 0 ? v_below : w.data() + columns, &order,
             half == 0 ? w.data() + columns : v_below, &order, &one, target, &order, 1, 1);
    }
    round_from(j + columns);
  }
  d[n - 1] = g[n * n - 1];
  LAPACKE_dstedc(LAPACK_COL_MAJOR, 'I', order, d.data(), e.data(), v.data(), order);
  LAPACKE_dormtr(LAPACK_COL_MAJOR, 'L', 'L', 'N', order, order, g.data(), order, tau.data(), v.data(), order);
  return v;
}

// The part of the pairs of 32 blocks of columns of A V that have a cosine above f32's tolerance (block_jacobi.h), behind
// a step that makes V orthogonal.
double active_part(const std::vector<double>& a, std::vector<double> v, int64_t n) {
  constexpr int64_t kBlocks = 32;
  const std::vector<double> change = product(false, v, product(true, v, v, n), n);
  for (size_t i = 0; i < v.size(); ++i) v[i] = 1.5 * v[i] - 0.5 * change[i];
  const std::vector<double> x = product(false, a, v, n), squares = product(true, x, x, n);
  const double tolerance = std::max(4.0, 0.5 * std::sqrt(static_cast<double>(n))) * 0x1p-28;
  const int64_t width = (n + kBlocks - 1) / kBlocks;
  std::vector<char> active(kBlocks * kBlocks, 0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < j; ++i) {
      const double size = std::sqrt(squares[i + i * n] * squares[j + j * n]);
      if (std::abs(squares[i + j * n]) > tolerance * size) active[i / width * kBlocks + j / width] = 1;
    }
  }
  return static_cast<double>(std::count(active.begin(), active.end(), 1)) / (kBlocks * (kBlocks + 1) / 2.0);
}

// Processor seconds of a sweep of JACOBI of f32: their part of the whole by the clock.
double sweep_seconds(const LargeEngine& engine, const std::vector<double>& a, int64_t n) {
  Decomposition<float> jacobi(DType::kF32, a, n, {.method = Method::kJacobi});
  const std::clock_t begin = std::clock();
  const LargeOutcome outcome = jacobi.run(engine);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  double all = 0, sweeps = 0;
  for (const LargePhaseTime& phase : outcome.phases) {
    const bool is_of_sweeps = phase.name == "gram" || phase.name == "inner" || phase.name == "postmultiply";
    all += phase.seconds;
    sweeps += is_of_sweeps ? phase.seconds : 0;
  }
  return seconds * sweeps / all / outcome.sweeps;
}

// AUTO of f32, its eigenvectors of A^T A in both precisions, and the pairs that they leave to a sweep.
void print_single(const LargeEngine& engine, const std::vector<int64_t>& orders) {
  std::printf("n,spectrum,auto,jacobi_sweep,sgesdd,dsyevd,ssyevd,active_double,active_stored,active_single\n");
  for (const int64_t n : orders) {
    const auto order = static_cast<lapack_int>(n);
    const std::pair<const char*, std::vector<double>> matrices[] = {
        {"normal", normal_matrix(n)},
        {"linear", with_values(n, [](double x) { return 1.001 - x; })},
        {"condition 1e2", with_values(n, [](double x) { return std::pow(10, -2 * x); })},
        {"condition 1e4", with_values(n, [](double x) { return std::pow(10, -4 * x); })},
        {"condition 1e6", with_values(n, [](double x) { return std::pow(10, -6 * x); })},
        {"two clusters", with_values(n, [](double x) { return x < 0.5 ? 1 : 1e-4; })},
        {"four narrow clusters", with_values(n, [](double x) { return std::floor(4 * x) + 1 + 1e-10 * x; })}};
    for (const auto& [what, exact] : matrices) {
      std::vector<double> a(exact);
      for (double& x : a) x = to_single(x);
      const double automatic = Decomposition<float>(DType::kF32, a, n, {}).processor_seconds(engine);
      std::vector<float> values(n), left(n * n), right(n * n), v;
      const double gesdd = processor_seconds_of([&] {
        v.assign(a.begin(), a.end());
        LAPACKE_sgesdd(LAPACK_COL_MAJOR, 'S', order, order, v.data(), order, values.data(), left.data(), order,
                       right.data(), order);
      });
      const std::vector<double> gram = product(true, a, a, n);
      std::vector<double> wide, wide_values(n);
      const double dsyevd = processor_seconds_of([&] {
        wide = gram;
        LAPACKE_dsyevd(LAPACK_COL_MAJOR, 'V', 'L', order, wide.data(), order, wide_values.data());
      });
      const double ssyevd = processor_seconds_of([&] {
        v.assign(gram.begin(), gram.end());
        LAPACKE_ssyevd(LAPACK_COL_MAJOR, 'V', 'L', order, v.data(), order, values.data());
      });
      std::printf("%lld,%s,%.3f,%.3f,%.3f,%.3f,%.3f,%.2f,%.2f,%.2f\n", static_cast<long long>(n), what, automatic,
                  sweep_seconds(engine, a, n), gesdd, dsyevd, ssyevd, active_part(a, wide, n),
                  active_part(a, basis_of_stored_singles(gram, n), n),
                  active_part(a, std::vector<double>(v.begin(), v.end()), n));
      std::fflush(stdout);
    }
  }
}

int run(const std::string& what, std::vector<int64_t> orders) {
  const auto engine = make_host_large_engine();
  std::printf("# %s, %u threads; f64, U and V unless said\n", processor().c_str(), std::thread::hardware_concurrency());
  if (orders.empty()) orders = {512, 1024};
  if (what == "times") {
    print_times(*engine, orders);
  } else if (what == "phases") {
    print_phases(*engine, orders);
  } else if (what == "strategies") {
    print_strategies(*engine, orders);
  } else if (what == "spectra") {
    print_spectra(*engine, orders);
  } else if (what == "hermitian") {
    print_hermitian(*make_host_large_engine(1), orders);
  } else if (what == "single") {
    print_single(*make_host_large_engine(1), orders);
  } else if (what == "tall") {
    print_tall(*make_host_large_engine(1), orders);
  } else if (what == "members") {
    print_members(*engine, orders);
  } else if (what == "leading") {
    print_leading(*engine, orders);
  } else {
    std::fprintf(stderr,
                 "large_bench [times | phases | strategies | spectra | members | leading | tall | hermitian | single] "
                 "[ORDER ...]\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace svdserve

int main(int argc, char** argv) {
  std::vector<int64_t> orders;
  for (int i = 2; i < argc; ++i) orders.push_back(std::max(2L, std::atol(argv[i])));
  return svdserve::run(argc > 1 ? argv[1] : "times", orders);
}
