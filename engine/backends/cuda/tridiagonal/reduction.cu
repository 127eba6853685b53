#include "engine/backends/cuda/tridiagonal/reduction.h"

#include <algorithm>

#include "engine/backends/cuda/device/blas.h"
#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/tridiagonal/reduction_kernels.h"

namespace svdserve::cuda {
namespace {

using large::LargeView;

// a := a - v w^H - w v^H, its lower triangle.
template <class E>
void subtract_products(LargeLane& lane, LargeView<E> v, LargeView<E> w, LargeView<E> a) {
  const E minus = from_real<E>(-1);
  const double one = 1;
  const auto narrow = [](int64_t n) { return static_cast<int>(n); };  // at most kMaxLargeDimension
  require((libraries().*Blas<E>::her2k)(lane.cublas, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, narrow(a.cols),
                                        narrow(v.cols), native(&minus), native(v.data), narrow(v.ld), native(w.data),
                                        narrow(w.ld), &one, native(a.data), narrow(a.ld)),
          "reducing a matrix to tridiagonal form");
}

// Memory of all panels but for the matrix, its form and W.
template <class E>
class Workspace {
 public:
  Workspace(DeviceArena& arena, int64_t n, int blocks) : arena_(arena) {
    const int64_t ld = (n + 15) / 16 * 16, strips = (n + kStripRows<E> - 1) / kStripRows<E>;
    call_.w = {take<E>(ld * kReductionPanel), n, kReductionPanel, ld};
    for (E*& x : call_.x) x = take<E>(strips * kStripRows<E>);
    call_.columns = {take<E>(ld * strips), n, strips, ld};
    call_.rows = take<E>((blocks + strips) * kStripRows<E>);
    call_.dots = take<E>(2 * kReductionPanel);
    call_.norms = take<double>(blocks);
    call_.forms = take<double>(blocks);
    call_.arrived = take<unsigned>(1);
  }
  ~Workspace() {
    for (int i = 0; i < taken_; ++i) arena_.give_back(pieces_[i]);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ReductionCall<E>& call() { return call_; }

 private:
  template <class T>
  T* take(int64_t n) {
    T* const piece = take_piece<T>(arena_, n);
    pieces_[taken_++] = piece;
    return piece;
  }

  DeviceArena& arena_;
  ReductionCall<E> call_{};
  void* pieces_[9] = {};
  int taken_ = 0;
};

}  // namespace

bool can_reduce(int64_t n, const LargeLane& lane) { return n <= int64_t{kReductionThreads} * lane.limits.multiprocessors; }

template <class E>
void reduce_to_tridiagonal(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, LargeView<E> a,
                           const TridiagonalForm<E>& form) {
  const int64_t n = a.cols;
  const int blocks = lane.limits.multiprocessors;
  Workspace<E> workspace(arena, n, blocks);
  ReductionCall<E>& call = workspace.call();
  call.a = a;
  call.d = form.d;
  call.e = form.e;
  call.tau = form.tau;
  for (E* const x : call.x) {
    const auto rows = static_cast<size_t>(call.columns.cols * kStripRows<E>);
    require(cudaMemsetAsync(x, 0, rows * sizeof(E), lane.stream), "clearing memory");
  }
  int64_t first = 0;
  do {
    watch.check();
    const int64_t count = std::min<int64_t>(kReductionPanel, n - 1 - first), next = first + count;
    call.first = static_cast<int32_t>(first);
    call.count = static_cast<int32_t>(count);
    require(cudaMemsetAsync(call.arrived, 0, sizeof(unsigned), lane.stream), "clearing memory");
    void* arguments[] = {&call};
    require(cudaLaunchCooperativeKernel(reduce_panel_kernel<E>, dim3(static_cast<unsigned>(blocks)),
                                        dim3(kReductionThreads), arguments, 0, lane.stream),
            "launching a kernel");
    if (next < n - 1) {
      const int64_t rest = n - next;
      subtract_products(lane, a.block(next, first, rest, count), call.w.block(next, 0, rest, count),
                        a.block(next, next, rest, rest));
    }
    first = next;
  } while (first < n - 1);
}

template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<double>,
                                    const TridiagonalForm<double>&);
template void reduce_to_tridiagonal(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<Complex>,
                                    const TridiagonalForm<Complex>&);

}  // namespace svdserve::cuda
