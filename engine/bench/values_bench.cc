// Singular values of many small matrices on one core. The engine's methods run beside LAPACK's ?gesdd and ?gesvd
// without vectors, called per matrix, on the same random normal data.
//   build/release/bin/values_bench --benchmark_format=csv --benchmark_filter='4x4'
// `matrices_per_second` is what to compare; LAPACK overwrites its input, so its time holds a copy of each matrix.
#include <benchmark/benchmark.h>
#include <lapacke.h>

#include <complex>
#include <random>
#include <string>
#include <vector>

#include "engine/svd_engine.h"

namespace svdserve {
namespace {

template <class E>
struct Type;
template <>
struct Type<float> {
  static constexpr DType kDType = DType::kF32;
  static constexpr auto gesdd = LAPACKE_sgesdd_work;
  static constexpr auto gesvd = LAPACKE_sgesvd_work;
  using Real = float;
};
template <>
struct Type<double> {
  static constexpr DType kDType = DType::kF64;
  static constexpr auto gesdd = LAPACKE_dgesdd_work;
  static constexpr auto gesvd = LAPACKE_dgesvd_work;
  using Real = double;
};
template <>
struct Type<std::complex<float>> {
  static constexpr DType kDType = DType::kC64;
  static constexpr auto gesdd = LAPACKE_cgesdd_work;
  static constexpr auto gesvd = LAPACKE_cgesvd_work;
  using Real = float;
};
template <>
struct Type<std::complex<double>> {
  static constexpr DType kDType = DType::kC128;
  static constexpr auto gesdd = LAPACKE_zgesdd_work;
  static constexpr auto gesvd = LAPACKE_zgesvd_work;
  using Real = double;
};

template <class E>
std::vector<E> random_matrices(int64_t elements) {
  std::mt19937_64 bits(3);
  std::normal_distribution<double> normal;
  std::vector<E> a(elements);
  for (E& x : a) {
    if constexpr (is_complex(Type<E>::kDType)) {
      const double re = normal(bits), im = normal(bits);
      x = E(static_cast<typename Type<E>::Real>(re), static_cast<typename Type<E>::Real>(im));
    } else {
      x = static_cast<E>(normal(bits));
    }
  }
  return a;
}

int64_t batch_of(int m, int n) { return std::max<int64_t>(1'600'000 / (int64_t{m} * n * std::min(m, n)), 200); }

void report(benchmark::State& state, int64_t count) {
  state.counters["matrices_per_second"] =
      benchmark::Counter(static_cast<double>(state.iterations() * count), benchmark::Counter::kIsRate);
}

template <class E>
void engine(benchmark::State& state, int m, int n, Method method) {
  const int64_t count = batch_of(m, n);
  const auto a = random_matrices<E>(count * m * n);
  std::vector<typename Type<E>::Real> values(count * std::min(m, n));
  const SvdEngine one_core({1});
  const auto plan = make_plan({m, n, Type<E>::kDType, Order::kColumnMajor}, {.method = method}).plan;
  const HostSegment batch{a.data(), count, values.data(), nullptr};
  for (auto _ : state) benchmark::DoNotOptimize(one_core.execute(*plan, {&batch, 1}));
  report(state, count);
}

// Capacity at some SNRs instead of the values.
template <class E>
void capacity(benchmark::State& state, int m, int n, int snrs) {
  const int64_t count = batch_of(m, n);
  const auto a = random_matrices<E>(count * m * n);
  Options options{.values = false, .mimo = {.capacity = true}};
  for (int i = 0; i < snrs; ++i) options.mimo.snr_db.push_back(-5 + 4 * i);
  const auto plan = make_plan({m, n, Type<E>::kDType, Order::kColumnMajor}, options).plan;
  std::vector<char> capacities(result_bytes(*plan, count));
  const SvdEngine one_core({1});
  const HostSegment batch{a.data(), count, planes_in(*plan, capacities.data(), count), nullptr};
  for (auto _ : state) benchmark::DoNotOptimize(one_core.execute(*plan, {&batch, 1}));
  report(state, count);
}

// kSdd: ?gesdd, otherwise ?gesvd; workspace is allocated once.
template <class E, bool kSdd>
void lapack(benchmark::State& state, int m, int n) {
  using Real = typename Type<E>::Real;
  const int64_t count = batch_of(m, n);
  const int k = std::min(m, n), size = m * n;
  const auto a = random_matrices<E>(count * size);
  std::vector<E> copy(size), work(64 * (m + n) + 16 * k * k);
  std::vector<Real> values(count * k), real_work(16 * k * k + 16 * k);
  std::vector<lapack_int> integers(8 * k);
  auto* x = reinterpret_cast<
      std::conditional_t<is_complex(Type<E>::kDType),
                         std::conditional_t<sizeof(Real) == 4, lapack_complex_float, lapack_complex_double>, E>*>(
      copy.data());
  auto* w = reinterpret_cast<decltype(x)>(work.data());
  const auto lwork = static_cast<lapack_int>(work.size());
  for (auto _ : state) {
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(a.data() + i * size, size, copy.data());
      Real* s = values.data() + i * k;
      if constexpr (kSdd && is_complex(Type<E>::kDType)) {
        Type<E>::gesdd(LAPACK_COL_MAJOR, 'N', m, n, x, m, s, nullptr, 1, nullptr, 1, w, lwork, real_work.data(),
                       integers.data());
      } else if constexpr (kSdd) {
        Type<E>::gesdd(LAPACK_COL_MAJOR, 'N', m, n, x, m, s, nullptr, 1, nullptr, 1, w, lwork, integers.data());
      } else if constexpr (is_complex(Type<E>::kDType)) {
        Type<E>::gesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, x, m, s, nullptr, 1, nullptr, 1, w, lwork, real_work.data());
      } else {
        Type<E>::gesvd(LAPACK_COL_MAJOR, 'N', 'N', m, n, x, m, s, nullptr, 1, nullptr, 1, w, lwork);
      }
    }
    benchmark::DoNotOptimize(values.data());
  }
  report(state, count);
}

template <class E>
void register_type() {
  for (const auto& [m, n] : {std::pair{2, 2}, {4, 4}, {8, 8}, {16, 16}, {32, 32}, {64, 4}, {4, 64}, {16384, 8}}) {
    const std::string where = std::to_string(m) + "x" + std::to_string(n) + "/" + name(Type<E>::kDType) + "/";
    for (const Method method : {Method::kBidiagonal, Method::kBisection, Method::kJacobi}) {
      benchmark::RegisterBenchmark((where + name(method)).c_str(), engine<E>, m, n, method);
    }
    for (const int snrs : {1, 10}) {
      benchmark::RegisterBenchmark((where + "capacity_at_" + std::to_string(snrs)).c_str(), capacity<E>, m, n, snrs);
    }
    benchmark::RegisterBenchmark((where + "lapack_gesdd").c_str(), lapack<E, true>, m, n);
    benchmark::RegisterBenchmark((where + "lapack_gesvd").c_str(), lapack<E, false>, m, n);
  }
}

}  // namespace
}  // namespace svdserve

// OpenBLAS threads would help nobody at these sizes.
extern "C" void openblas_set_num_threads(int);

int main(int argc, char** argv) {
  openblas_set_num_threads(1);
  svdserve::register_type<float>();
  svdserve::register_type<double>();
  svdserve::register_type<std::complex<float>>();
  svdserve::register_type<std::complex<double>>();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
}
