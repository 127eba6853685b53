#include "engine/backends/host/dense/blas.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>

#include "engine/large_engine.h"

namespace svdserve::host {
namespace {

// OpenBLAS has one number of threads for the process.
std::mutex mutex;
int users = 0;           // guarded by mutex
int threads_before = 1;  // guarded by mutex

}  // namespace

BlasThreads::BlasThreads() {
  const std::lock_guard lock(mutex);
  if (users++ > 0) return;
  threads_before = openblas_get_num_threads();
  if (threads_before != 1) openblas_set_num_threads(1);
}

BlasThreads::~BlasThreads() {
  const std::lock_guard lock(mutex);
  if (--users == 0 && threads_before != 1) openblas_set_num_threads(threads_before);
}

}  // namespace svdserve::host

namespace svdserve {

std::string blas_kernels() { return host::openblas_get_corename(); }

std::string faster_blas_kernels() {
#if defined(__x86_64__)
  // OpenBLAS's names for processors without AVX2.
  constexpr const char* kOld[] = {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "Generic"};
  const std::string now = blas_kernels();
  const bool old = std::any_of(std::begin(kOld), std::end(kOld), [&](const char* name) { return now == name; });
  if (!old || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return "";
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return avx512 ? "SkylakeX" : "Haswell";
#else
  return "";
#endif
}

}  // namespace svdserve
