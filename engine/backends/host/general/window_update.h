// The effect of a unitary similarity of a diagonal window outside of it: products by ranges of rows and columns, on all
// threads.
//
//   H := diag(I, U, I)^H H diag(I, U, I) without the window itself, Z := Z diag(I, U, I)
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_

#include <complex>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

template <class E>
class WindowUpdate {
 public:
  // z: without data where not wanted; h is then kept within the active block alone.
  WindowUpdate(const LargeThreads& threads, large::LargeView<E> h, large::LargeView<E> z)
      : threads_(threads), h_(h), z_(z) {}

  // u: width x width, of the window that starts at row `first` of the active block low .. high - 1. The last `done` rows
  // above the window have been multiplied already.
  void apply(int64_t low, int64_t high, int64_t first, int64_t width, const E* u, int64_t ldu, int64_t done = 0);

 private:
  const LargeThreads& threads_;
  const large::LargeView<E> h_, z_;
  AlignedArray<E> copies_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_
