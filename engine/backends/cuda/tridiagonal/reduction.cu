#include "engine/backends/cuda/tridiagonal/reduction.h"

#include <algorithm>
#include <cmath>

#include "engine/backends/cuda/device/blas.h"
#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/tridiagonal/reduction_kernels.h"

namespace svdserve::cuda {
namespace {

using large::LargeView;

// a := a - v w^H - w v^H, its lower triangle.
template <class Stored>
void subtract_products(LargeLane& lane, LargeView<Stored> v, LargeView<Stored> w, LargeView<Stored> a) {
  const Stored minus = stored<Stored>(from_real<ArithmeticOf<Stored>>(-1));
  const typename Blas<Stored>::Real one = 1;
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };  // at most kMaxLargeDimension
  require((libraries().*Blas<Stored>::her2k)(lane.cublas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, narrow(a.cols),
                                             narrow(v.cols), native(&minus), native(v.data), narrow(v.ld),
                                             native(w.data), narrow(w.ld), &one, native(a.data), narrow(a.ld)),
          "reducing a matrix to tridiagonal form");
}

// Memory of all panels but for the matrix and its form.
template <class Stored>
struct Workspace {
  using E = ArithmeticOf<Stored>;
  Workspace(DeviceArena& arena, int64_t n, int blocks)
      : ld((n + 15) / 16 * 16),
        strips((n + kStripRows<Stored> - 1) / kStripRows<Stored>),
        w(arena, ld * kReductionPanel),
        x(arena, 2 * strips * kStripRows<Stored>),
        columns(arena, ld * strips),
        rows(arena, (blocks + strips) * kStripRows<Stored>),
        dots(arena, 2 * kReductionPanel),
        norms(arena, 2 * blocks),
        forms(arena, blocks),
        arrived(arena, 1) {}

  ReductionCall<Stored> call(LargeView<Stored> a, const TridiagonalForm<E>& form) const {
    ReductionCall<Stored> call{};
    call.a = a;
    call.w = {w.get(), a.cols, kReductionPanel, ld};
    call.d = form.d;
    call.e = form.e;
    call.tau = form.tau;
    call.x[0] = x.get();
    call.x[1] = x.get() + strips * kStripRows<Stored>;
    call.columns = {columns.get(), a.cols, strips, ld};
    call.rows = rows.get();
    call.dots = dots.get();
    call.norms = norms.get();
    call.forms = forms.get();
    call.arrived = arrived.get();
    return call;
  }

  const int64_t ld, strips;
  const Piece<Stored> w;
  const Piece<E> x, columns, rows, dots;
  const Piece<double> norms, forms;
  const Piece<unsigned> arrived;
};

// After so many panels of a large matrix the host waits: it looks at the watch and tells the progress.
constexpr int64_t kPanelsOfPart = 8, kLargeOrder = 4096;

// A launch has all multiprocessors, and a small call waits for its end. 64 columns take 6 ms at n = 8192, so there are 16
// in a launch, and fewer where a column is longer. To order 4096 they are the whole panel.
int32_t columns_of_launch(int64_t n) {
  constexpr int64_t kEntries = kReductionPanel * kLargeOrder * kLargeOrder;
  return static_cast<int32_t>(std::clamp<int64_t>(kEntries / (n * n), 2, kReductionPanel));
}

// The panel in launches of so many columns.
template <class Stored>
void enqueue_panel(LargeLane& lane, int32_t columns, ReductionCall<Stored>& call) {
  call.end = 0;
  do {
    call.begin = call.end;
    call.end = std::min(call.begin + columns, call.count);
    require(cudaMemsetAsync(call.arrived, 0, sizeof(unsigned), lane.stream), "clearing memory");
    void* arguments[] = {&call};
    const auto blocks = static_cast<unsigned>(lane.limits.multiprocessors);
    require(cudaLaunchCooperativeKernel(reduce_panel_kernel<Stored>, dim3(blocks), dim3(kReductionThreads), arguments,
                                        0, lane.stream),
            "launching a kernel");
  } while (call.end < call.count);
}

}  // namespace

template <class Stored>
bool can_reduce(int64_t n, const LargeLane& lane) {
  int cooperates = 0, resident = 0;
  require(cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, lane.device),
          "asking for a device's limits");
  require(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, reduce_panel_kernel<Stored>, kReductionThreads, 0),
          "asking for a kernel's limits");
  return cooperates != 0 && resident > 0 && n <= int64_t{kReductionThreads} * lane.limits.multiprocessors;
}

template <class Stored>
void reduce_to_tridiagonal(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, LargeView<Stored> a,
                           const TridiagonalForm<ArithmeticOf<Stored>>& form, const large::PartDone& done) {
  using E = ArithmeticOf<Stored>;
  const int64_t n = a.cols;
  const int blocks = lane.limits.multiprocessors;
  const Workspace<Stored> workspace(arena, n, blocks);
  ReductionCall<Stored> call = workspace.call(a, form);
  const auto entries = static_cast<size_t>(2 * workspace.strips * kStripRows<Stored>);
  require(cudaMemsetAsync(call.x[0], 0, entries * sizeof(E), lane.stream), "clearing memory");
  int64_t first = 0;
  do {
    watch.check();
    const int64_t count = std::min<int64_t>(kReductionPanel, n - 1 - first), next = first + count;
    call.first = static_cast<int32_t>(first);
    call.count = static_cast<int32_t>(count);
    enqueue_panel(lane, columns_of_launch(n - first), call);
    if (next < n - 1) {
      const int64_t rest = n - next;
      subtract_products(lane, a.block(next, first, rest, count), call.w.block(next, 0, rest, count),
                        a.block(next, next, rest, rest));
    }
    first = next;
    if (n < kLargeOrder || first / kReductionPanel % kPanelsOfPart != 0) continue;
    wait_for(lane);
    if (done) done(1 - std::pow(static_cast<double>(n - first) / static_cast<double>(n), 3));
  } while (first < n - 1);
}

template bool can_reduce<float>(int64_t, const LargeLane&);
template bool can_reduce<double>(int64_t, const LargeLane&);
template bool can_reduce<ComplexFloat>(int64_t, const LargeLane&);
template bool can_reduce<Complex>(int64_t, const LargeLane&);
template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<float>,
                                    const TridiagonalForm<double>&, const large::PartDone&);
template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<double>,
                                    const TridiagonalForm<double>&, const large::PartDone&);
template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<ComplexFloat>,
                                    const TridiagonalForm<Complex>&, const large::PartDone&);
template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<Complex>,
                                    const TridiagonalForm<Complex>&, const large::PartDone&);

}  // namespace svdserve::cuda
