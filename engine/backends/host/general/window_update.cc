#include "engine/backends/host/general/window_update.h"

#include <algorithm>

#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// Rows or columns of a task.
constexpr int64_t kLinesOfTask = 128;

template <class E>
void copy(LargeView<E> from, E* to) {
  for (int64_t j = 0; j < from.cols; ++j) {
    std::copy(from.data + j * from.ld, from.data + j * from.ld + from.rows, to + j * from.rows);
  }
}

}  // namespace

template <class E>
void WindowUpdate<E>::apply(int64_t low, int64_t high, int64_t first, int64_t width, const E* u, int64_t ldu,
                            int64_t done) {
  const bool whole = static_cast<bool>(z_);
  const int64_t top = whole ? 0 : low, end = whole ? h_.cols : high, after = first + width;
  const LargeView<E> above = h_.block(top, first, first - done - top, width),
                     right = h_.block(first, after, width, end - after);
  const LargeView<E> basis = whole ? z_.columns(first, width) : z_;
  const auto tasks_of = [](int64_t lines) { return (lines + kLinesOfTask - 1) / kLinesOfTask; };
  const int64_t tasks_above = tasks_of(above.rows), tasks_right = tasks_of(right.cols);
  const int64_t tasks = tasks_above + tasks_right + tasks_of(basis.rows);
  copies_.reserve(tasks * kLinesOfTask * width + blas::kReadBeyond);
  threads_.for_each(tasks, [&](int64_t task) {
    E* const taken = copies_.data() + task * kLinesOfTask * width;
    if (task >= tasks_above && task < tasks_above + tasks_right) {
      const int64_t start = (task - tasks_above) * kLinesOfTask;
      const LargeView<E> part = right.columns(start, std::min(kLinesOfTask, right.cols - start));
      copy(part, taken);
      blas::gemm(true, false, width, part.cols, width, 1, u, ldu, taken, width, 0, part.data, part.ld);
      return;
    }
    const bool is_above = task < tasks_above;
    const LargeView<E>& all = is_above ? above : basis;
    const int64_t start = (is_above ? task : task - tasks_above - tasks_right) * kLinesOfTask;
    const LargeView<E> part = all.block(start, 0, std::min(kLinesOfTask, all.rows - start), width);
    copy(part, taken);
    blas::gemm(false, false, part.rows, width, width, 1, taken, part.rows, u, ldu, 0, part.data, part.ld);
  });
}

template class WindowUpdate<double>;
template class WindowUpdate<Complex>;

}  // namespace svdserve::host
