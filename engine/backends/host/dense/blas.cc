#include "engine/backends/host/dense/blas.h"

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

}  // namespace svdserve
