// The reports of large_accuracy that have a file of their own.
#ifndef SVDSERVE_TESTS_ENGINE_LARGE_REPORTS_H_
#define SVDSERVE_TESTS_ENGINE_LARGE_REPORTS_H_

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "engine/backends/host/dense/blas.h"
#include "engine/large_engine.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// Novakovic and Singer 2011, section 5: uniform in +-<a 1e-5, a], a = 20 for n <= 3168, with this many positive ones.
inline std::vector<double> spectrum_of_2011(int64_t n, int64_t positive, Random& random) {
  const double a = n <= 3168 ? 20 : n <= 6368 ? 30 : n <= 9568 ? 40 : 50;
  std::vector<double> lambda;
  for (int64_t i = 0; i < n; ++i) lambda.push_back((i < positive ? 1 : -1) * random.uniform(a * 1e-5, a));
  return lambda;
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Every core for OpenBLAS while an object lives, for LAPACK beside us and for judging.
class AllCoresForBlas {
 public:
  AllCoresForBlas() : before_(host::openblas_get_num_threads()) {
    host::openblas_set_num_threads(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  }
  ~AllCoresForBlas() { host::openblas_set_num_threads(before_); }
  AllCoresForBlas(const AllCoresForBlas&) = delete;
  AllCoresForBlas& operator=(const AllCoresForBlas&) = delete;

 private:
  int before_;
};

// Hermitian matrices given as M, by TRIDIAGONAL and FACTORED, beside dsyevd and zheevd. Returns whether every error of
// ours is within its bound.
struct HermitianReport {
  std::vector<int64_t> orders;
  // Empty for all: "f64" or "c128", a part of the matrices' name, some of "tridiagonal,factored,lapack".
  std::string dtype, matrix, solvers;
  int64_t reference_order = 0;  // up to which order matrices of unknown spectrum have references in long double
};
bool report_hermitian(const LargeEngine& engine, const HermitianReport& report);

// General matrices by QR and JACOBI beside LAPACK's geev. Returns whether every residual of ours is within its bound.
struct GeneralReport {
  std::vector<int64_t> orders;
  std::string dtype;  // "f64" or "c128"; empty: both
};
bool report_general(const LargeEngine& engine, const GeneralReport& report);

// Seconds of the hyperbolic SVD with V, and without it, beside the host engine on one thread.
struct TimesReport {
  std::vector<int64_t> orders;
  int64_t sequential_order = 0;  // up to which order one thread is measured, too
  bool signs = false;            // instead: by the number of positive signs, with V alone
};
void report_times(const LargeEngine& engine, const TimesReport& report);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_ENGINE_LARGE_REPORTS_H_
