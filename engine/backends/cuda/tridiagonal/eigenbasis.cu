#include "engine/backends/cuda/tridiagonal/eigenbasis.h"

#include <algorithm>

#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/large/reflectors.h"
#include "engine/backends/cuda/tridiagonal/reduction.h"
#include "engine/backends/cuda/tridiagonal/tridiagonal_eigen.h"

namespace svdserve::cuda {
namespace {

using large::LargeView;
using large::PartDone;

// Parts of the time at whose end T and W are known, for the progress.
constexpr double kReduced = 0.87, kSolved = 0.93;

// An H100 takes 11.7 ms at n = 1024, cuSOLVER 11.6; at 2048 it is 26.0 for 28.2 (device_tridiagonal_form).
constexpr int64_t kLeastOrder = 1280;

constexpr unsigned kThreads = 256;

// T becomes -T, so that its eigenvalues come in descending order.
__global__ void negate_kernel(double* d, double* e, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) d[i] = -d[i];
  if (i + 1 < n) e[i] = -e[i];
}

template <class E>
__global__ void widen_kernel(LargeView<double> from, LargeView<E> to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, j = blockIdx.y;
  if (i < to.rows) to.data[j * to.ld + i] = from_real<E>(from.data[j * from.ld + i]);
}

unsigned blocks_of(int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

// V := W. T's entries are overwritten.
template <class E>
bool solve(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, const TridiagonalForm<E>& form,
           LargeView<E> v) {
  const int64_t n = v.cols;
  negate_kernel<<<blocks_of(n), kThreads, 0, lane.stream>>>(form.d, form.e, n);
  require(cudaGetLastError(), "launching a kernel");
  TridiagonalCall call;
  call.n = n;
  call.d = form.d;
  call.e = form.e;
  const Piece<char> work(arena, static_cast<int64_t>(tridiagonal_work_bytes(n)));
  call.work = work.get();
  if constexpr (kIsComplex<E>) {
    const Piece<double> real(arena, n * v.ld);
    call.v = real.get();
    call.ld = v.ld;
    if (!tridiagonal_eigen(lane, watch, call)) return false;
    const dim3 grid(blocks_of(n), static_cast<unsigned>(n));
    widen_kernel<E><<<grid, kThreads, 0, lane.stream>>>({real.get(), n, n, v.ld}, v);
    require(cudaGetLastError(), "launching a kernel");
    return true;
  } else {
    call.v = v.data;
    call.ld = v.ld;
    return tridiagonal_eigen(lane, watch, call);
  }
}

}  // namespace

template <class E>
bool takes_eigenbasis(int64_t n, const LargeLane& lane) {
  return n >= kLeastOrder && n <= kMostTridiagonalRows && Reflectors<E>::fits(lane) && can_reduce<E>(n, lane);
}

template <class E>
bool hermitian_eigenbasis(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, LargeView<E> g,
                          LargeView<E> v, const PartDone& done) {
  const int64_t n = g.cols, reflectors = n - 1;
  const Piece<double> d(arena, n), e(arena, n);
  const Piece<E> tau(arena, n);
  const TridiagonalForm<E> form{d.get(), e.get(), tau.get()};
  reduce_to_tridiagonal(lane, arena, watch, g, form,
                        done ? PartDone([&](double part) { done(part * kReduced); }) : PartDone());
  if (!solve(lane, arena, watch, form, v)) return false;
  if (done) done(kSolved);
  if (reflectors == 0) return true;
  wait_for(lane);  // the product is enqueued at once, and takes long
  watch.check();
  const Piece<E> t(arena, Reflectors<E>::elements(reflectors));
  Reflectors<E> q(lane, arena, watch);
  const LargeView<E> below = g.block(1, 0, reflectors, reflectors);
  q.take(below, tau.get(), t.get());
  q.apply(large::Op::kNone, below, t.get(), v.block(1, 0, reflectors, n));
  return true;
}

template bool takes_eigenbasis<double>(int64_t, const LargeLane&);
template bool takes_eigenbasis<Complex>(int64_t, const LargeLane&);
template bool hermitian_eigenbasis(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<double>,
                                   LargeView<double>, const PartDone&);
template bool hermitian_eigenbasis(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<Complex>,
                                   LargeView<Complex>, const PartDone&);

}  // namespace svdserve::cuda
