#include "engine/backends/cuda/large/reflectors.h"

#include <algorithm>

#include "engine/backends/cuda/device/blas.h"
#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/large/reflector_kernels.h"

namespace svdserve::cuda {
namespace {

using large::LargeStop;
using large::Op;

int narrow_size(int64_t n) { return static_cast<int>(n); }  // at most kMaxLargeDimension
void launched() { require(cudaGetLastError(), "launching a kernel"); }

int64_t panel_count(int64_t n, int width) { return (n + width - 1) / width; }

template <class Kernel>
void allow_shared(Kernel kernel, int bytes) {
  require(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "sizing shared memory");
}

}  // namespace

template <class E>
Reflectors<E>::Reflectors(LargeLane& lane, DeviceArena& arena, const large::LargeWatch& watch)
    : lane_(lane), arena_(arena), watch_(watch), l_(libraries()) {}

template <class E>
bool Reflectors<E>::fits(const LargeLane& lane) {
  return PanelMemory<E, kPanel<E>>::bytes() <= lane.limits.shared_bytes;
}

template <class E>
int64_t Reflectors<E>::elements(int64_t n) {
  return panel_count(n, kGroup) * kGroup * kGroup;
}

template <class E>
struct Reflectors<E>::Memory {
  static constexpr int64_t kSquare = int64_t{kPanel<E>} * kPanel<E>;
  Memory(DeviceArena& arena, int64_t n)
      : parts(arena, kMostParts * kSquare),
        small(arena, 2 * kSquare),
        r1(arena, panel_count(n, kPanel<E>) * kSquare),
        triangles(arena, elements(n)),
        w(arena, 2 * int64_t{kGroup} * std::max<int64_t>(n, kPanel<E>)),
        w_ahead(arena, 2 * int64_t{kGroup} * kGroup),
        first_failed(arena, 1) {}
  const Piece<E> parts, small, r1, triangles, w, w_ahead;
  const Piece<int32_t> first_failed;
};

template <class E>
uint64_t Reflectors<E>::workspace_bytes(int64_t n) {
  const int64_t squares = (kMostParts + 2 + panel_count(n, kPanel<E>)) * Memory::kSquare,
                products = 2 * int64_t{kGroup} * (n + kPanel<E> + kGroup);
  const int64_t tau = n + kPanel<E>;  // of panels that the library takes
  return static_cast<uint64_t>(squares + elements(n) + products + tau) * sizeof(E) + 10 * DeviceArena::kAlignment;
}

template <class E>
auto Reflectors<E>::panel_of(View a, int64_t index) const -> View {
  const int64_t at = index * kPanel<E>;
  return a.block(at, at, a.rows - at, std::min<int64_t>(kPanel<E>, a.cols - at));
}

template <class E>
void Reflectors<E>::allow() const {
  allow_shared(rows_kernel<E, RowStep::kGram>, RowTile<E>::kBytes);
  allow_shared(rows_kernel<E, RowStep::kSolve>, RowTile<E>::kBytes);
  allow_shared(rows_kernel<E, RowStep::kMultiply>, RowTile<E>::kBytes);
  allow_shared(begin_panel_kernel<E>, PanelMemory<E, kPanel<E>>::bytes());
  allow_shared(given_panel_kernel<E>, PanelMemory<E, kPanel<E>>::bytes());
  allow_shared(end_panel_kernel<E>, PanelMemory<E, kPanel<E>>::bytes());
}

// The Gram matrix of the panel's columns, or of P R_1^-1, which takes their place.
template <class E>
void Reflectors<E>::enqueue_gram(const Queue& queue, const PanelCall<E>& call, bool solved) {
  const int64_t tiles = (call.p.rows + kRowsOfTile - 1) / kRowsOfTile;
  const auto parts = static_cast<unsigned>(std::min<int64_t>(tiles, kMostParts));
  if (solved) {
    rows_kernel<E, RowStep::kSolve><<<parts, kRowThreads, RowTile<E>::kBytes, queue.stream>>>(call);
  } else {
    rows_kernel<E, RowStep::kGram><<<parts, kRowThreads, RowTile<E>::kBytes, queue.stream>>>(call);
  }
  launched();
  constexpr unsigned kBlocks = 4 * kPanel<E> * kPanel<E> / kRowThreads;
  add_parts_kernel<E><<<kBlocks, kRowThreads, 0, queue.stream>>>(call, static_cast<int>(parts));
  launched();
}

template <class E>
void Reflectors<E>::enqueue_panel(const Queue& queue, const PanelCall<E>& call) {
  enqueue_gram(queue, call, false);
  begin_panel_kernel<E><<<1, kSquareThreads<kPanel<E>>, PanelMemory<E, kPanel<E>>::bytes(), queue.stream>>>(call);
  launched();
  enqueue_gram(queue, call, true);
  end_panel_kernel<E><<<1, kPanelThreads<kPanel<E>>, PanelMemory<E, kPanel<E>>::bytes(), queue.stream>>>(call);
  launched();
  const int64_t below = (call.p.rows - kPanel<E> + kRowsOfTile - 1) / kRowsOfTile;
  if (below <= 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(below, 8 * lane_.limits.multiprocessors));
  rows_kernel<E, RowStep::kMultiply><<<blocks, kRowThreads, RowTile<E>::kBytes, queue.stream>>>(call);
  launched();
}

template <class E>
PanelCall<E> Reflectors<E>::call_of(View a, int64_t index, const PanelCall<E>& all, E* t) const {
  PanelCall<E> call = all;
  const int64_t at = index * kPanel<E>, before = at % kGroup;
  const int64_t place = at / kGroup * (kGroup * kGroup) + before * (kGroup + 1);
  call.index = static_cast<int32_t>(index);
  call.p = panel_of(a, index);
  call.t = t + place;
  call.r1 = all.r1 + index * Memory::kSquare;
  call.r = all.r + place;
  call.before = static_cast<int32_t>(before);
  return call;
}

// No panel has failed yet, and t is zero.
template <class E>
PanelCall<E> Reflectors<E>::begin(View a, E* t, const Memory& memory) {
  const int32_t none = kAllPanels;
  require(cudaMemcpyAsync(memory.first_failed.get(), &none, sizeof none, cudaMemcpyHostToDevice, lane_.stream),
          "uploading");
  require(cudaMemsetAsync(t, 0, static_cast<size_t>(elements(a.cols)) * sizeof(E), lane_.stream), "clearing memory");
  PanelCall<E> all{};
  all.failed = memory.first_failed.get();
  all.parts = memory.parts.get();
  all.gram = memory.small.get();
  all.rows = all.gram + Memory::kSquare;
  all.r1 = memory.r1.get();
  all.r = memory.triangles.get();
  allow();
  return all;
}

template <class E>
void Reflectors<E>::enqueue_group(const Queue& queue, View a, int64_t at, const PanelCall<E>& all, E* t) {
  constexpr int N = kPanel<E>;
  const int64_t behind = std::min<int64_t>(at + kGroup, a.cols);
  for (int64_t first = at; first < behind; first += N) {
    const PanelCall<E> call = call_of(a, first / N, all, t);
    if (call.before > 0) {
      const View before = a.block(at, at, a.rows - at, call.before),
                 panel = a.block(at, first, before.rows, call.p.cols);
      apply_group(queue, Op::kAdjoint, before, t + at / kGroup * (kGroup * kGroup), panel);
    }
    enqueue_panel(queue, call);
    join(queue, a, call);
  }
}

template <class E>
void Reflectors<E>::factor(View a, E* t) {
  const int64_t panels = panel_count(a.cols, kPanel<E>);
  const Memory memory(arena_, a.cols);
  const PanelCall<E> all = begin(a, t, memory);
  const Queue own{lane_.stream, lane_.cublas, memory.w.get()};
  {
    TwoStreams streams(lane_, lane_.ahead);
    const Queue ahead{streams.of(1), lane_.cublas_ahead, memory.w_ahead.get()};
    for (int64_t at = 0; at < a.cols; at += kGroup) {
      watch_.check();
      enqueue_group(ahead, a, at, all, t);
      const int64_t next = at + kGroup, after_next = next + kGroup;
      if (next >= a.cols) break;
      const View v = a.block(at, at, a.rows - at, kGroup);
      const auto apply_to = [&](const Queue& queue, int64_t first, int64_t end) {
        const View columns = a.block(at, first, v.rows, end - first);
        apply_group(queue, Op::kAdjoint, v, t + at / kGroup * (kGroup * kGroup), columns);
      };
      streams.pass_on(1);
      streams.await_other(1);  // the group before was applied to the next one, too
      apply_to(ahead, next, std::min(after_next, a.cols));
      if (after_next >= a.cols) continue;
      streams.await_other(0);
      apply_to(own, after_next, a.cols);
      streams.pass_on(0);
    }
  }
  int32_t failed = kAllPanels;
  download(lane_, &failed, all.failed, 1);
  if (failed == kBrokenPanel) throw LargeStop{LargeStatus::kFault, "a QR factorization lost its reflectors"};
  const int64_t taken = std::min<int64_t>(failed, panels);
  if (taken > 0) {
    const auto blocks = static_cast<unsigned>(taken);
    panel_triangles_kernel<E><<<blocks, kSquareThreads<kPanel<E>>, 0, lane_.stream>>>(all.r1, all.r);
    launched();
  }
  if (taken < panels) factor_by_library(own, a, taken, all, t);
  exchange(a, memory.triangles.get(), 0, panels, true);
}

// Panels from `first` on, to which those before have been applied.
template <class E>
void Reflectors<E>::factor_by_library(const Queue& queue, View a, int64_t first, const PanelCall<E>& all, E* t) {
  const int64_t at = first * kPanel<E>;
  const View rest = a.block(at, at, a.rows - at, a.cols - at);
  const Piece<E> tau(arena_, panel_count(rest.cols, kPanel<E>) * kPanel<E>);
  LibraryWork work(lane_, arena_);
  const auto type = Blas<E>::kType;
  require(l_.cusolverDnXgeqrf_bufferSize(lane_.cusolver, lane_.params, rest.rows, rest.cols, type, rest.data, rest.ld,
                                         type, tau.get(), type, &work.device_bytes, &work.host_bytes),
          "sizing a QR factorization");
  work.allocate();
  require(
      l_.cusolverDnXgeqrf(lane_.cusolver, lane_.params, rest.rows, rest.cols, type, rest.data, rest.ld, type, tau.get(),
                          type, work.device, work.device_bytes, work.host.get(), work.host_bytes, work.info),
      "computing a QR factorization");
  work.check("computing a QR factorization");
  take_panels(queue, a, first, tau.get(), all, t);
}

template <class E>
void Reflectors<E>::take_panels(const Queue& queue, View a, int64_t first, const E* tau, const PanelCall<E>& all,
                                E* t) {
  constexpr int N = kPanel<E>;
  const int64_t panels = panel_count(a.cols, N);
  const int32_t no_panel = kAllPanels;
  require(cudaMemcpyAsync(all.failed, &no_panel, sizeof no_panel, cudaMemcpyHostToDevice, lane_.stream), "uploading");
  exchange(a, all.r, first, panels - first, false);
  for (int64_t i = first; i < panels; ++i) {
    const PanelCall<E> call = call_of(a, i, all, t);
    enqueue_gram(queue, call, false);
    given_panel_kernel<E>
        <<<1, kSquareThreads<kPanel<E>>, PanelMemory<E, N>::bytes(), queue.stream>>>(call, tau + (i - first) * N);
    launched();
    join(queue, a, call);
  }
}

template <class E>
void Reflectors<E>::take(View a, const E* tau, E* t) {
  const Memory memory(arena_, a.cols);
  const PanelCall<E> all = begin(a, t, memory);
  take_panels({lane_.stream, lane_.cublas, memory.w.get()}, a, 0, tau, all, t);
  exchange(a, memory.triangles.get(), 0, panel_count(a.cols, kPanel<E>), true);
}

template <class E>
void Reflectors<E>::join(const Queue& queue, View a, const PanelCall<E>& call) {
  if (call.before == 0) return;
  constexpr int N = kPanel<E>;
  const int64_t at = call.index * int64_t{N}, group = at - call.before;
  const View v = a.block(at, group, a.rows - at, call.before);
  const View triangle{call.t - call.before * (kGroup + 1), call.before, call.before, kGroup};
  const View own{call.t, call.p.cols, call.p.cols, kGroup};
  const View first{queue.w, call.before, call.p.cols, kGroup},
      second{queue.w + kGroup * N, call.before, call.p.cols, kGroup};
  gemm(queue, true, 1, v, call.p, 0, first);
  gemm(queue, false, 1, first, own, 0, second);
  gemm(queue, false, -1, triangle, second, 0, {call.t - call.before, call.before, call.p.cols, kGroup});
}

template <class E>
void Reflectors<E>::apply(Op op, View a, const E* t, View c) {
  const int64_t groups = panel_count(a.cols, kGroup), panels = panel_count(a.cols, kPanel<E>);
  const Piece<E> triangles(arena_, elements(a.cols)), w(arena_, 2 * int64_t{kGroup} * c.cols);
  const Queue queue{lane_.stream, lane_.cublas, w.get()};
  exchange(a, triangles.get(), 0, panels, false);
  for (int64_t step = 0; step < groups; ++step) {
    watch_.check();
    const int64_t group = op == Op::kAdjoint ? step : groups - 1 - step, at = group * kGroup;
    const View v = a.block(at, at, a.rows - at, std::min<int64_t>(kGroup, a.cols - at));
    apply_group(queue, op, v, t + group * (kGroup * kGroup), c.block(at, 0, v.rows, c.cols));
  }
  exchange(a, triangles.get(), 0, panels, true);
}

template <class E>
void Reflectors<E>::apply_group(const Queue& queue, Op op, View v, const E* t, View c) {
  const View first{queue.w, v.cols, c.cols, kGroup}, second{queue.w + kGroup * c.cols, v.cols, c.cols, kGroup};
  const View triangle{const_cast<E*>(t), v.cols, v.cols, kGroup};
  gemm(queue, true, 1, v, c, 0, first);
  gemm(queue, op == Op::kAdjoint, 1, triangle, first, 0, second);
  gemm(queue, false, -1, v, second, 1, c);
}

template <class E>
void Reflectors<E>::gemm(const Queue& queue, bool adjoint_a, double alpha, View a, View b, double beta, View c) {
  const E one = from_real<E>(alpha), other = from_real<E>(beta);
  require(
      (l_.*Blas<E>::gemm)(queue.cublas, adjoint_a ? Blas<E>::kAdjoint : CUBLAS_OP_N, CUBLAS_OP_N, narrow_size(c.rows),
                          narrow_size(c.cols), narrow_size(b.rows), native(&one), native(a.data), narrow_size(a.ld),
                          native(b.data), narrow_size(b.ld), native(&other), native(c.data), narrow_size(c.ld)),
      "multiplying matrices");
}

template <class E>
void Reflectors<E>::exchange(View a, E* r, int64_t first, int64_t count, bool into) {
  if (count == 0) return;
  triangles_kernel<E>
      <<<static_cast<unsigned>(count), kRowThreads, 0, lane_.stream>>>(a, r, static_cast<int32_t>(first), into);
  launched();
}

static_assert(Reflectors<double>::kGroupColumns == kGroup);
template class Reflectors<double>;
template class Reflectors<Complex>;

}  // namespace svdserve::cuda
