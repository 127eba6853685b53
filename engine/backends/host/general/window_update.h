// The effect of a unitary similarity of a diagonal window outside of it: products by ranges of rows and columns, on
// all threads.
//
//   H := diag(I, U, I)^H H diag(I, U, I) without the window itself, Z := Z diag(I, U, I)
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_

#include <algorithm>
#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {

// Rows or columns of a task.
inline constexpr int64_t kLinesOfTask = 128;

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

template <class E>
void copy_to(large::LargeView<E> from, E* to) {
  for (int64_t j = 0; j < from.cols; ++j) {
    std::copy(from.data + j * from.ld, from.data + j * from.ld + from.rows, to + j * from.rows);
  }
}

template <class E>
void WindowUpdate<E>::apply(int64_t low, int64_t high, int64_t first, int64_t width, const E* u, int64_t ldu,
                            int64_t done) {
  const bool whole = static_cast<bool>(z_);
  const int64_t top = whole ? 0 : low, end = whole ? h_.cols : high, after = first + width;
  const large::LargeView<E> above = h_.block(top, first, first - done - top, width),
                            right = h_.block(first, after, width, end - after);
  const large::LargeView<E> basis = whole ? z_.columns(first, width) : z_;
  const auto tasks_of = [](int64_t lines) { return (lines + kLinesOfTask - 1) / kLinesOfTask; };
  const int64_t tasks_above = tasks_of(above.rows), tasks_right = tasks_of(right.cols);
  const int64_t tasks = tasks_above + tasks_right + tasks_of(basis.rows);
  copies_.reserve(tasks * kLinesOfTask * width + blas::kReadBeyond);
  threads_.for_each(tasks, [&](int64_t task) {
    E* const taken = copies_.data() + task * kLinesOfTask * width;
    if (task >= tasks_above && task < tasks_above + tasks_right) {
      const int64_t start = (task - tasks_above) * kLinesOfTask;
      const large::LargeView<E> part = right.columns(start, std::min(kLinesOfTask, right.cols - start));
      copy_to(part, taken);
      blas::gemm(true, false, width, part.cols, width, 1, u, ldu, taken, width, 0, part.data, part.ld);
      return;
    }
    const bool is_above = task < tasks_above;
    const large::LargeView<E>& all = is_above ? above : basis;
    const int64_t start = (is_above ? task : task - tasks_above - tasks_right) * kLinesOfTask;
    const large::LargeView<E> part = all.block(start, 0, std::min(kLinesOfTask, all.rows - start), width);
    copy_to(part, taken);
    blas::gemm(false, false, part.rows, width, width, 1, taken, part.rows, u, ldu, 0, part.data, part.ld);
  });
}

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_GENERAL_WINDOW_UPDATE_H_
