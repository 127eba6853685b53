// Threads of one large factor: a loop over tasks that do not depend on each other.
//
// Which task computes what depends on the number of threads alone, never on which of them is free; so do the bits.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_BASE_LARGE_THREADS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_BASE_LARGE_THREADS_H_

#include <algorithm>
#include <cstdint>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/fp_environment.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/task_arena.h"

namespace svdserve::host {

class LargeThreads {
 public:
  // arena null: everything on the calling thread. watch may be null: nothing cancels.
  LargeThreads(oneapi::tbb::task_arena* arena, int threads, const large::LargeWatch* watch)
      : arena_(threads > 1 ? arena : nullptr), threads_(arena_ != nullptr ? threads : 1), watch_(watch) {}
  int threads() const { return threads_; }
  // Everything on the calling thread, cancelled by the same watch.
  LargeThreads alone() const { return {nullptr, 1, watch_}; }
  void check() const {
    if (watch_ != nullptr) watch_->check();
  }

  // f(0) .. f(count - 1), in any order; what one throws is thrown here. A cancel is obeyed between tasks.
  template <class F>
  void for_each(int64_t count, const F& f) const {
    const auto task = [&](int64_t i) {
      check();
      const FpEnvironment environment;
      f(i);
    };
    if (arena_ == nullptr || count <= 1) {
      for (int64_t i = 0; i < count; ++i) task(i);
    } else {
      arena_->execute([&] { oneapi::tbb::parallel_for(int64_t{0}, count, task, oneapi::tbb::simple_partitioner()); });
    }
  }

  // f(first, last) for ranges of at most `grain` that make up 0 .. size.
  template <class F>
  void for_ranges(int64_t size, int64_t grain, const F& f) const {
    // Small sizes: one range a thread.
    const int64_t even = (size + threads_ - 1) / threads_;
    const int64_t step = std::max<int64_t>(1, std::min(grain, even));
    for_each((size + step - 1) / step, [&](int64_t i) { f(i * step, std::min(size, (i + 1) * step)); });
  }

 private:
  oneapi::tbb::task_arena* arena_;
  int threads_;
  const large::LargeWatch* watch_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_BASE_LARGE_THREADS_H_
