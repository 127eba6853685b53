// One large matrix on the host, beside LAPACK's dgesdd and dgesvj on the same data in the same run. It shows the time
// of each part, and the convergence of pivot strategies and variants.
//   build/release/bin/large_bench                        order 512 and 1024, U and V, random normal, f64
//   build/release/bin/large_bench times 256 2048         other orders
//   build/release/bin/large_bench phases 1024            seconds, operations and rates of each phase
//   build/release/bin/large_bench strategies 256 512     sweeps and rotations of every strategy and variant
//   build/release/bin/large_bench spectra 512            sweeps and times for graded, clustered and dense spectra
//   build/release/bin/large_bench members 1024           a ring of 1, 2, 4 and 8 members beside the whole host, in turns
//   build/release/bin/large_bench leading 2000           top_k = 10 of ten times as many rows, and all triplets
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

std::vector<double> normal_matrix(int64_t n) {
  std::mt19937_64 bits(3);
  std::normal_distribution<double> normal;
  std::vector<double> a(n * n);
  for (double& x : a) x = normal(bits);
  return a;
}

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
  } else if (what == "members") {
    print_members(*engine, orders);
  } else if (what == "leading") {
    print_leading(*engine, orders);
  } else {
    std::fprintf(stderr, "large_bench [times | phases | strategies | spectra | members | leading] [ORDER ...]\n");
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
