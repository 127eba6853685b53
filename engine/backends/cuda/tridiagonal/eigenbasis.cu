#include "engine/backends/cuda/tridiagonal/eigenbasis.h"

#include <algorithm>
#include <type_traits>

#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/large/reflectors.h"
#include "engine/backends/cuda/tridiagonal/reduction.h"
#include "engine/backends/cuda/tridiagonal/reduction_kernels.h"
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

template <class E>
using SingleOf = std::conditional_t<kIsComplex<E>, ComplexFloat, float>;

template <class E>
__global__ void narrow_kernel(LargeView<E> from, LargeView<SingleOf<E>> to) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x, j = blockIdx.y;
  if (i < to.rows) to.data[j * to.ld + i] = stored<SingleOf<E>>(from.data[j * from.ld + i]);
}

// Reflector c, a block's, from a to g. Its tau becomes that of a unitary matrix, 2 Re(tau) = |tau|^2 |v|^2, as if v had
// not been rounded.
template <class E>
__global__ void __launch_bounds__(kThreads) widen_reflectors_kernel(LargeView<SingleOf<E>> a, LargeView<E> g, E* taus) {
  __shared__ double of_warp[kThreads / 32];
  const int64_t c = blockIdx.x;
  double square = 0;
  for (int64_t i = c + 1 + threadIdx.x; i < g.rows; i += kThreads) {
    const E v = wide(a.data[c * a.ld + i]);
    g.data[c * g.ld + i] = v;
    square += squared_modulus(v);
  }
  square = warp_sum(square);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = square;
  __syncthreads();
  if (threadIdx.x > 0) return;
  const E tau = taus[c];
  const double size = squared_modulus(tau) * sum_of_warps(of_warp);
  if (size > 0) taus[c] = times_real(tau, 2 * real_part(tau) / size);
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

// g, whose lower triangle counts, := the reflectors below its diagonal.
template <class E>
void reduce(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, LargeView<E> g,
            const TridiagonalForm<E>& form, large::Precision precision, const PartDone& done) {
  if (precision == large::Precision::kDouble) return reduce_to_tridiagonal(lane, arena, watch, g, form, done);
  const int64_t n = g.cols;
  const Piece<SingleOf<E>> memory(arena, n * g.ld);
  const LargeView<SingleOf<E>> a{memory.get(), n, n, g.ld};
  narrow_kernel<E><<<dim3(blocks_of(n), static_cast<unsigned>(n)), kThreads, 0, lane.stream>>>(g, a);
  require(cudaGetLastError(), "launching a kernel");
  reduce_to_tridiagonal(lane, arena, watch, a, form, done);
  if (n == 1) return;
  widen_reflectors_kernel<E><<<static_cast<unsigned>(n - 1), kThreads, 0, lane.stream>>>(a, g, form.tau);
  require(cudaGetLastError(), "launching a kernel");
}

}  // namespace

template <class E>
bool takes_eigenbasis(int64_t n, const LargeLane& lane) {
  return n >= kLeastOrder && n <= kMostTridiagonalRows && Reflectors<E>::fits(lane) && can_reduce<E>(n, lane) &&
         can_reduce<SingleOf<E>>(n, lane);
}

template <class E>
bool hermitian_eigenbasis(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch, LargeView<E> g,
                          LargeView<E> v, large::Precision precision, const PartDone& done) {
  const int64_t n = g.cols, reflectors = n - 1;
  const Piece<double> d(arena, n), e(arena, n);
  const Piece<E> tau(arena, n);
  const TridiagonalForm<E> form{d.get(), e.get(), tau.get()};
  reduce(lane, arena, watch, g, form, precision,
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
                                   LargeView<double>, large::Precision, const PartDone&);
template bool hermitian_eigenbasis(LargeLane&, DeviceArena&, const large::LargeWatch&, LargeView<Complex>,
                                   LargeView<Complex>, large::Precision, const PartDone&);

}  // namespace svdserve::cuda
