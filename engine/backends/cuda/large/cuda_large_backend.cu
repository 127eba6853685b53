#include "engine/backends/cuda/large/cuda_large_backend.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "engine/algorithms/states/build_id.h"
#include "engine/backends/cuda/device/blas.h"
#include "engine/backends/cuda/large/indefinite_factor.h"
#include "engine/backends/cuda/large/large_kernels.h"
#include "engine/backends/cuda/large/library_work.h"
#include "engine/backends/cuda/large/reflectors.h"
#include "engine/backends/cuda/tridiagonal/eigenbasis.h"
#include "engine/backends/streamed/host_pages.h"
#include "engine/planner.h"
#include "engine/policies/cuda_tuning.h"

namespace svdserve::cuda {
namespace {

using large::LargeStop;

// Blocks whose rows of X^H X are computed at once. A p-step of n columns in pairs of K has a workspace of more than
// 8 n (K - 1) elements, and these rows take 4 K n of them.
constexpr int kCosineBlocks = 8;

// Members compute p-steps by two halves up to so many pairs of a member of four, and up to so many pairs of their own.
// With more, the rotations are too small a part of a p-step. One GPU alone has whole p-steps (decisions/0017).
constexpr int kMostPairsByHalves = 40;
constexpr int kMostOwnPairsByHalves = 48;
// From so many pairs of a member of four on, a half's postmultiplication takes longer than the other half's rotations.
constexpr int kPairsOfLongProducts = 32;
// Parts of a Gram matrix, GramStepParts::most, in p-steps by halves.
constexpr int kMostPartsByHalves = 16;

size_t size(int64_t n) { return static_cast<size_t>(n); }
int narrow_size(int64_t n) { return static_cast<int>(n); }  // at most kMaxLargeDimension
unsigned blocks(int64_t n) { return static_cast<unsigned>((n + 255) / 256); }
dim3 turn_grid(int64_t lines, int64_t length) {
  const auto tiles = [](int64_t n) { return static_cast<unsigned>((n + kTurnTile - 1) / kTurnTile); };
  return {tiles(length), tiles(lines), 1};
}

void launched() { require(cudaGetLastError(), "launching a kernel"); }

// f(an element of the type that an operand of elements E has outside).
template <class E, class F>
void by_type(DType dtype, F f) {
  if constexpr (kIsComplex<E>) {
    dtype == DType::kC64 ? f(Pair<float>{}) : f(Pair<double>{});
  } else {
    dtype == DType::kF32 ? f(float{}) : f(double{});
  }
}

// A matrix as the host has it.
template <class E>
Problem as_problem(large::LargeView<E> a) {
  Problem problem;
  problem.rows = a.rows;
  problem.cols = a.cols;
  problem.dtype = kIsComplex<E> ? DType::kC128 : DType::kF64;
  problem.order = Order::kColumnMajor;
  return problem;
}

}  // namespace

template <class E>
CudaLargeBackend<E>::CudaLargeBackend(LargeLane& lane, DeviceArena& arena, const LargeWatch& watch)
    : lane_(lane), arena_(arena), watch_(watch), l_(libraries()), clock_(lane.stream) {
  counts_ = take<GramStepCounts>(1);
  require(cudaMemsetAsync(counts_, 0, sizeof(GramStepCounts), lane_.stream), "clearing counters");
}

// --- memory ---------------------------------------------------------------------------------------------------------

template <class E>
template <class T>
T* CudaLargeBackend<E>::take(int64_t n) {
  return take_piece<T>(arena_, n);
}

template <class E>
template <class T>
void CudaLargeBackend<E>::fetch(T* to, const T* from, int64_t n) {
  cuda::download(lane_, to, from, n);
}

template <class E>
template <class T>
T* CudaLargeBackend<E>::upload(const std::vector<T>& from) {
  T* const to = take<T>(static_cast<int64_t>(from.size()));
  // Pageable memory has been read when the call returns.
  require(cudaMemcpyAsync(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice, lane_.stream), "uploading");
  return to;
}

template <class E>
LargeView<E> CudaLargeBackend<E>::matrix(int64_t rows, int64_t cols) {
  const int64_t ld = std::max<int64_t>(leading_dimension(rows), 1);
  return {take<E>(ld * cols), rows, cols, ld};
}

template <class E>
void CudaLargeBackend<E>::release(View view) {
  if (parked_.erase(view.data) == 0) arena_.give_back(view.data);
}

template <class E>
auto CudaLargeBackend<E>::park(View a) -> View {
  if (!arena_.is_short() || is_parked(a) || a.rows == 0 || a.cols == 0) return a;
  const uint64_t bytes = bytes_of(a);
  Parked parked{host_pages<E>(bytes), bytes};
  View there{parked.memory.get(), a.rows, a.cols, a.rows};
  store(a, false, there.data, as_problem(a));
  release(a);
  parked_[there.data] = std::move(parked);
  return there;
}

template <class E>
auto CudaLargeBackend<E>::unpark(View a) -> View {
  if (!is_parked(a)) return a;
  View here = matrix(a.rows, a.cols);
  copy(a, here);
  release(a);
  return here;
}

template <class E>
auto CudaLargeBackend<E>::find_parked(View a) const -> const Parked* {
  auto it = parked_.upper_bound(a.data);
  if (it == parked_.begin()) return nullptr;
  const Parked& parked = std::prev(it)->second;
  return a.data < parked.memory.get() + parked.bytes / sizeof(E) ? &parked : nullptr;
}

template <class E>
int32_t* CudaLargeBackend<E>::exponents(int64_t n) {
  return take<int32_t>(n);
}

template <class E>
void CudaLargeBackend<E>::release(int32_t* f) {
  arena_.give_back(f);
}

static_assert(CudaLargeBackend<double>::kReflectorGroup == Reflectors<double>::kGroupColumns);

template <class E>
E* CudaLargeBackend<E>::scalars(int64_t n) {
  return take<E>(Reflectors<E>::elements(n));
}

template <class E>
void CudaLargeBackend<E>::release(E* scalars) {
  arena_.give_back(scalars);
}

template <class E>
int64_t CudaLargeBackend<E>::block_width(int64_t n) const {
  const int columns = cuda_large_pair_columns(n, kIsComplex<E>);
  return (gram_step_supports<E>(columns, lane_.limits) ? columns : 64) / 2;
}

template <class E>
void CudaLargeBackend<E>::stage(const char* name) {
  clock_.stage(name);
  stage_ = name;
}

template <class E>
void CudaLargeBackend<E>::sync() {
  wait_for(lane_);
}

template <class E>
std::vector<LargePhaseTime> CudaLargeBackend<E>::phases() {
  sync();
  return clock_.phases();
}

// --- operands and results -------------------------------------------------------------------------------------------

// An operand or result as runs of elements.
template <class E>
struct CudaLargeBackend<E>::Lines {
  static Lines of(const Problem& problem, bool adjoint) {
    const bool by_rows = problem.order == Order::kRowMajor;
    return {by_rows ? problem.rows : problem.cols, by_rows ? problem.cols : problem.rows,
            svdserve::element_bytes(problem.dtype), by_rows != adjoint};
  }
  uint64_t bytes(int64_t n) const { return static_cast<uint64_t>(n * length) * element_bytes; }

  int64_t lines, length;
  uint64_t element_bytes;
  bool turned;  // a line is a row of the view
};

template <class E>
template <class Begin, class End>
void CudaLargeBackend<E>::transfer(const Lines& lines, Begin begin, End end) {
  static_assert(kTransferBytes >= uint64_t{kMaxLargeDimension} * sizeof(Complex));
  const auto line_bytes = static_cast<int64_t>(lines.bytes(1));
  if (lines.lines == 0 || line_bytes == 0) return;
  constexpr auto kBytes = static_cast<int64_t>(2 * kTransferBytes);
  constexpr int kSlots = TransferParts::kSlots;
  const TransferParts cut(lines.lines, line_bytes, lane_.transfers.threads(), kBytes);
  char* const staging = take<char>(kBytes);
  std::optional<TwoStreams> streams(std::in_place, lane_, lane_.beside);
  const auto slot_of = [&](int thread, int64_t part) {
    const int64_t slot = kSlots * thread + part / cut.used % kSlots, offset = slot * cut.slot_bytes;
    return Slot{staging + offset, lane_.pinned[0] + offset, streams->of(static_cast<int>(slot) % 2),
                lane_.transferred[slot]};
  };
  const auto call = [&](auto& step, int thread, int64_t part) {
    const int64_t first = part * cut.per_part;
    step(first, std::min(cut.per_part, lines.lines - first), slot_of(thread, part));
  };
  lane_.transfers.run(cut.used, [&](int thread) {
    require(cudaSetDevice(lane_.device), "choosing a device");
    for (int64_t part = thread; part < cut.parts + cut.used; part += cut.used) {
      watch_.check();
      if (part < cut.parts) call(begin, thread, part);
      if (part >= cut.used) call(end, thread, part - cut.used);
    }
  });
  streams.reset();
  arena_.give_back(staging);
  // Nobody writes to the pinned buffers before they have been read.
  sync();
}

// A thread that sleeps until an interrupt wakes up later than this one.
template <class E>
void CudaLargeBackend<E>::await(const Slot& slot, const char* what) const {
  for (;;) {
    const cudaError_t error = cudaEventQuery(slot.transferred);
    if (error != cudaErrorNotReady) return require(error, what);
    (void)cudaGetLastError();  // where it would be taken for a launch's
    std::this_thread::sleep_for(std::chrono::microseconds(10));
  }
}

template <class E>
void CudaLargeBackend<E>::convert_in(DType dtype, const Slot& slot, int64_t first, int64_t count, const Lines& lines,
                                     View a, bool conjugated, unsigned long long* first_bad) {
  by_type<E>(dtype, [&](auto in) {
    convert_in_kernel<<<turn_grid(count, lines.length), dim3(kTurnTile, 8), 0, slot.stream>>>(
        reinterpret_cast<const decltype(in)*>(slot.staging), first, count, lines.length, a, lines.turned, conjugated,
        first_bad);
  });
  launched();
}

template <class E>
void CudaLargeBackend<E>::convert_out(DType dtype, View a, int64_t first, int64_t count, const Lines& lines,
                                      const Slot& slot, bool conjugated) {
  by_type<E>(dtype, [&](auto out) {
    convert_out_kernel<<<turn_grid(count, lines.length), dim3(kTurnTile, 8), 0, slot.stream>>>(
        a, first, count, lines.length, reinterpret_cast<decltype(out)*>(slot.staging), lines.turned, conjugated);
  });
  launched();
}

template <class E>
LoadReport CudaLargeBackend<E>::load(const void* matrix, const Problem& problem, bool adjoint, View a) {
  const Lines lines = Lines::of(problem, adjoint);
  auto* const first_bad = take<unsigned long long>(1);
  require(cudaMemsetAsync(first_bad, 0xff, sizeof(unsigned long long), lane_.stream), "clearing memory");
  const auto upload = [&](int64_t first, int64_t count, const Slot& slot) {
    const uint64_t bytes = lines.bytes(count);
    await(slot, "waiting for a transfer");
    std::memcpy(slot.pinned, static_cast<const char*>(matrix) + lines.bytes(first), bytes);
    require(cudaMemcpyAsync(slot.staging, slot.pinned, bytes, cudaMemcpyHostToDevice, slot.stream), "uploading");
    convert_in(problem.dtype, slot, first, count, lines, a, adjoint, first_bad);
    require(cudaEventRecord(slot.transferred, slot.stream), "uploading");
  };
  transfer(lines, upload, [](int64_t, int64_t, const Slot&) {});
  unsigned long long bad = 0;
  fetch(&bad, first_bad, 1);
  arena_.give_back(first_bad);
  LoadReport report;
  if (bad == ~0ull) return report;
  report.finite = false;
  const auto line = static_cast<int64_t>(bad) / lines.length, at = static_cast<int64_t>(bad) % lines.length;
  report.row = problem.order == Order::kRowMajor ? line : at;
  report.col = problem.order == Order::kRowMajor ? at : line;
  return report;
}

template <class E>
void CudaLargeBackend<E>::store(View a, bool adjoint, void* matrix, const Problem& problem) {
  const Lines lines = Lines::of(problem, adjoint);
  clock_.stage("store");
  const auto download = [&](int64_t first, int64_t count, const Slot& slot) {
    convert_out(problem.dtype, a, first, count, lines, slot, adjoint);
    require(cudaMemcpyAsync(slot.pinned, slot.staging, lines.bytes(count), cudaMemcpyDeviceToHost, slot.stream),
            "downloading");
    require(cudaEventRecord(slot.transferred, slot.stream), "downloading");
  };
  transfer(lines, download, [&](int64_t first, int64_t count, const Slot& slot) {
    await(slot, "downloading");
    std::memcpy(static_cast<char*>(matrix) + lines.bytes(first), slot.pinned, lines.bytes(count));
  });
  clock_.stage(stage_.c_str());
}

template <class E>
void CudaLargeBackend<E>::mirror_lower(View a) {
  each(a, MirrorLower<E>{a});
}

// --- columns and their exponents ------------------------------------------------------------------------------------

template <class E>
template <class F>
void CudaLargeBackend<E>::each(int64_t rows, int64_t cols, F f) {
  if (rows == 0 || cols == 0) return;
  const int64_t most = int64_t{16} * lane_.limits.multiprocessors;
  const auto grid = static_cast<unsigned>(std::min(most, (rows * cols + 255) / 256));
  entries_kernel<<<grid, 256, 0, lane_.stream>>>(rows, cols, f);
  launched();
}

template <class E>
template <class F>
void CudaLargeBackend<E>::each(View a, F f) {
  each(a.rows, a.cols, f);
}

template <class E>
auto CudaLargeBackend<E>::norms_of(View x) -> Norms {
  Norms norms{take<double>(x.cols), take<int32_t>(x.cols)};
  column_norms_kernel<<<static_cast<unsigned>(x.cols), kColumnThreads, 0, lane_.stream>>>(x, norms.mantissas,
                                                                                          norms.exponents);
  launched();
  return norms;
}

template <class E>
void CudaLargeBackend<E>::give_back(const Norms& norms) {
  arena_.give_back(norms.mantissas);
  arena_.give_back(norms.exponents);
}

template <class E>
void CudaLargeBackend<E>::normalize_columns(View x, int32_t* f, bool keep) {
  if (x.cols == 0) return;
  if (x.data == tracked_.x) tracked_.x = nullptr;  // it has changed in other ways than by p-steps
  Norms norms = norms_of(x);
  take_exponents_kernel<<<blocks(x.cols), 256, 0, lane_.stream>>>(x.cols, norms.exponents, f, keep);
  launched();
  each(x, ShiftColumns<E>{x, norms.exponents, -1, nullptr});
  give_back(norms);
}

template <class E>
std::vector<ScaledNorm> CudaLargeBackend<E>::column_norms(View x, const int32_t* f) {
  std::vector<ScaledNorm> result(size(x.cols));
  if (x.cols == 0) return result;
  Norms norms = norms_of(x);
  std::vector<double> mantissas(size(x.cols));
  std::vector<int32_t> own(size(x.cols)), more(size(x.cols), 0);
  fetch(mantissas.data(), norms.mantissas, x.cols);
  fetch(own.data(), norms.exponents, x.cols);
  if (f != nullptr) fetch(more.data(), f, x.cols);
  give_back(norms);
  for (size_t j = 0; j < result.size(); ++j) {
    if (mantissas[j] > 0 && more[j] != kZeroColumn) result[j] = {mantissas[j], own[j] + more[j]};
  }
  return result;
}

template <class E>
std::vector<double> CudaLargeBackend<E>::column_products(View a, View b) {
  std::vector<double> result(size(a.cols));
  if (a.cols == 0) return result;
  double* const products = take<double>(a.cols);
  column_products_kernel<<<static_cast<unsigned>(a.cols), kColumnThreads, 0, lane_.stream>>>(a, b, products);
  launched();
  fetch(result.data(), products, a.cols);
  arena_.give_back(products);
  return result;
}

template <class E>
std::vector<double> CudaLargeBackend<E>::row_maxima(View a) {
  std::vector<double> result(size(a.rows), 0);
  if (a.rows == 0 || a.cols == 0) return result;
  auto* const bits = take<unsigned long long>(a.rows);
  require(cudaMemsetAsync(bits, 0, size(a.rows) * sizeof(unsigned long long), lane_.stream), "clearing memory");
  const dim3 grid(blocks(a.rows), static_cast<unsigned>(std::min<int64_t>(a.cols, 64)));
  row_maxima_kernel<<<grid, 256, 0, lane_.stream>>>(a, bits);
  launched();
  fetch(result.data(), reinterpret_cast<const double*>(bits), a.rows);
  arena_.give_back(bits);
  return result;
}

template <class E>
int32_t CudaLargeBackend<E>::apply_exponents(View x, int32_t* f) {
  if (x.cols == 0) return 0;
  auto* const largest = take<int32_t>(1);
  largest_exponent_kernel<<<1, kColumnThreads, 0, lane_.stream>>>(x.cols, f, largest);
  launched();
  each(x, ShiftColumns<E>{x, f, 1, largest});
  each(x.cols, 1, FillExponents{f, largest});
  int32_t result = 0;
  fetch(&result, largest, 1);
  arena_.give_back(largest);
  return result;
}

template <class E>
void CudaLargeBackend<E>::scale_columns(View x, const std::vector<double>& multipliers) {
  if (x.rows == 0 || x.cols == 0) return;
  double* const by = upload(multipliers);
  each(x, ScaleColumns<E>{x, by});
  arena_.give_back(by);
}

template <class E>
void CudaLargeBackend<E>::scale_solution(const int32_t* f, const int32_t* g, View w) {
  each(w, ShiftSolution<E>{w, f, g});
}

// --- permutations and copies ----------------------------------------------------------------------------------------

template <class E>
template <class Gather>
void CudaLargeBackend<E>::permute(View a, const int64_t* order) {
  View result = matrix(a.rows, a.cols);
  each(a, Gather{a, result, order});
  copy(result, a);
  release(result);
}

template <class E>
void CudaLargeBackend<E>::permute_rows(View a, const std::vector<int64_t>& perm) {
  if (a.rows == 0 || a.cols == 0 || std::is_sorted(perm.begin(), perm.end())) return;
  int64_t* const order = upload(perm);
  const int64_t group = std::max<int64_t>(1, kMoved / a.rows);
  for (int64_t j = 0; j < a.cols; j += group) {
    permute<GatherRows<E>>(a.columns(j, std::min(group, a.cols - j)), order);
  }
  arena_.give_back(order);
}

template <class E>
void CudaLargeBackend<E>::permute_columns(View a, const std::vector<int64_t>& perm) {
  if (a.rows == 0 || a.cols == 0 || std::is_sorted(perm.begin(), perm.end())) return;
  int64_t* const order = upload(perm);
  const int64_t group = std::max<int64_t>(16, kMoved / a.cols / 16 * 16);
  for (int64_t i = 0; i < a.rows; i += group) {
    permute<GatherColumns<E>>(a.block(i, 0, std::min(group, a.rows - i), a.cols), order);
  }
  arena_.give_back(order);
}

template <class E>
void CudaLargeBackend<E>::permute_exponents(int32_t* f, const std::vector<int64_t>& perm) {
  const auto n = static_cast<int64_t>(perm.size());
  if (n == 0) return;
  int64_t* const order = upload(perm);
  int32_t* const old = take<int32_t>(n);
  copy_exponents(f, old, n);
  each(n, 1, GatherExponents{old, f, order});
  arena_.give_back(old);
  arena_.give_back(order);
}

template <class E>
void CudaLargeBackend<E>::copy(View a, View b) {
  if (a.rows == 0 || a.cols == 0) return;
  if (is_parked(a)) {
    (void)load(a.data, as_problem(a), false, b);
    return;
  }
  const auto bytes = [](int64_t n) { return static_cast<size_t>(n) * sizeof(E); };
  require(cudaMemcpy2DAsync(b.data, bytes(b.ld), a.data, bytes(a.ld), bytes(a.rows), size(a.cols),
                            cudaMemcpyDeviceToDevice, lane_.stream),
          "copying a matrix");
}

template <class E>
void CudaLargeBackend<E>::copy_exponents(const int32_t* f, int32_t* g, int64_t n) {
  require(cudaMemcpyAsync(g, f, size(n) * sizeof(int32_t), cudaMemcpyDeviceToDevice, lane_.stream),
          "copying exponents");
}

template <class E>
void CudaLargeBackend<E>::set_identity(View a) {
  each(a, SetDiagonal<E>{a, 1});
}

template <class E>
void CudaLargeBackend<E>::set_zero(View a) {
  each(a, SetDiagonal<E>{a, 0});
}

// --- factorizations and products ------------------------------------------------------------------------------------

template <class E>
void CudaLargeBackend<E>::count(double multiply_adds_twice) {
  clock_.count(multiply_adds_twice * Blas<E>::kOperations);
}

template <class E>
void CudaLargeBackend<E>::qr(View a, E* tau, const large::PartDone&) {
  if (a.cols == 0) return;
  Reflectors<E>(lane_, arena_, watch_).factor(a, tau);
  const double m = static_cast<double>(a.rows), n = static_cast<double>(a.cols);
  count(2 * n * n * (m - n / 3));
}

template <class E>
void CudaLargeBackend<E>::apply_q(Op op, View a, E* tau, View c, const large::PartDone&) {
  if (c.rows == 0 || c.cols == 0 || a.cols == 0) return;
  Reflectors<E>(lane_, arena_, watch_).apply(op, a, tau, c);
  const double all = static_cast<double>(c.cols) * static_cast<double>(a.cols);
  count(2 * all * (2 * static_cast<double>(a.rows) - static_cast<double>(a.cols)));
}

template <class E>
void CudaLargeBackend<E>::adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f) {
  if (x.cols == 0) return;
  View rows = r.block(0, 0, x.cols, x.rows);
  // e and f may be one array: the entries' exponents are read while f is written.
  int32_t* const own = take<int32_t>(x.cols);
  triangle_exponents_kernel<<<static_cast<unsigned>(x.cols), kColumnThreads, 0, lane_.stream>>>(rows, e, own);
  launched();
  each(x, AdjointOfTriangle<E>{rows, x, e, own});
  copy_exponents(own, f, x.cols);
  arena_.give_back(own);
  normalize_columns(x, f, true);
}

template <class E>
void CudaLargeBackend<E>::copy_triangle(View r, View x) {
  each(x, CopyTriangle<E>{r, x});
}

template <class E>
void CudaLargeBackend<E>::gemm(Op op_a, Op op_b, double alpha, View a, View b, double beta, View c) {
  if (c.rows == 0 || c.cols == 0) return;
  const auto transpose = [](Op op) { return op == Op::kAdjoint ? Blas<E>::kAdjoint : CUBLAS_OP_N; };
  const int64_t inner = op_a == Op::kAdjoint ? a.rows : a.cols;
  const E one = from_real<E>(alpha), other = from_real<E>(beta);
  require((l_.*Blas<E>::gemm)(lane_.cublas, transpose(op_a), transpose(op_b), narrow_size(c.rows), narrow_size(c.cols),
                              narrow_size(inner), native(&one), native(a.data), narrow_size(a.ld), native(b.data),
                              narrow_size(b.ld), native(&other), native(c.data), narrow_size(c.ld)),
          "multiplying matrices");
  count(2 * static_cast<double>(c.rows) * static_cast<double>(c.cols) * static_cast<double>(inner));
}

template <class E>
void CudaLargeBackend<E>::herk(View a, View c) {
  if (c.cols == 0) return;
  const double one = 1, zero = 0;
  require((l_.*Blas<E>::herk)(lane_.cublas, CUBLAS_FILL_MODE_LOWER, Blas<E>::kAdjoint, narrow_size(a.cols),
                              narrow_size(a.rows), &one, native(a.data), narrow_size(a.ld), &zero, native(c.data),
                              narrow_size(c.ld)),
          "multiplying a matrix by its adjoint");
  each(c, MirrorLower<E>{c});
  count(static_cast<double>(a.cols) * static_cast<double>(a.cols) * static_cast<double>(a.rows));
}

template <class E>
void CudaLargeBackend<E>::solve_lower(View lower, View b) {
  if (b.rows == 0 || b.cols == 0) return;
  const E one = from_real<E>(1);
  require((l_.*Blas<E>::trsm)(lane_.cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT,
                              narrow_size(b.rows), narrow_size(b.cols), native(&one), native(lower.data),
                              narrow_size(lower.ld), native(b.data), narrow_size(b.ld)),
          "solving a triangular system");
  count(static_cast<double>(b.rows) * static_cast<double>(b.rows) * static_cast<double>(b.cols));
}

template <class E>
bool CudaLargeBackend<E>::eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done) {
  if (g.cols == 0) return true;
  watch_.check();
  // Below, latency is the limit, and floats save nothing (decisions/0020).
  constexpr int64_t kLeastSingleOrder = 3072;
  if (g.cols < kLeastSingleOrder) precision = large::Precision::kDouble;
  const bool converged = takes_eigenbasis<E>(g.cols, lane_)
                             ? hermitian_eigenbasis(lane_, arena_, watch_, g, v, precision, done)
                             : eigenbasis_by_library(g, v);
  const double n = static_cast<double>(g.cols);
  count((4.0 / 3 + 4.0 / 3 + 2) * n * n * n);  // to tridiagonal, its eigenvectors, and back
  watch_.check();
  return converged;
}

template <class E>
bool CudaLargeBackend<E>::eigenbasis_by_library(View g, View v) {
  LibraryWork work(lane_, arena_);
  const Piece<double> values(arena_, g.cols);
  require(l_.cusolverDnXsyevd_bufferSize(lane_.cusolver, lane_.params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER,
                                         g.cols, Blas<E>::kType, g.data, g.ld, CUDA_R_64F, values.get(), Blas<E>::kType,
                                         &work.device_bytes, &work.host_bytes),
          "sizing an eigenvalue problem");
  work.allocate();
  require(l_.cusolverDnXsyevd(lane_.cusolver, lane_.params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, g.cols,
                              Blas<E>::kType, g.data, g.ld, CUDA_R_64F, values.get(), Blas<E>::kType, work.device,
                              work.device_bytes, work.host.get(), work.host_bytes, work.info),
          "solving an eigenvalue problem");
  if (work.result() != 0) return false;
  each(v, ReverseColumns<E>{g, v});
  return true;
}

template <class E>
bool CudaLargeBackend<E>::cholesky(View a) {
  if (a.cols == 0) return true;
  watch_.check();
  LibraryWork work(lane_, arena_);
  require(l_.cusolverDnXpotrf_bufferSize(lane_.cusolver, lane_.params, CUBLAS_FILL_MODE_UPPER, a.cols, Blas<E>::kType,
                                         a.data, a.ld, Blas<E>::kType, &work.device_bytes, &work.host_bytes),
          "sizing a Cholesky factorization");
  work.allocate();
  require(
      l_.cusolverDnXpotrf(lane_.cusolver, lane_.params, CUBLAS_FILL_MODE_UPPER, a.cols, Blas<E>::kType, a.data, a.ld,
                          Blas<E>::kType, work.device, work.device_bytes, work.host.get(), work.host_bytes, work.info),
      "computing a Cholesky factorization");
  const double n = static_cast<double>(a.cols);
  count(1.0 / 3 * n * n * n);
  return work.result() == 0;
}

template <class E>
bool CudaLargeBackend<E>::lu(View a, int64_t* pivots) {
  if (a.cols == 0) return true;
  watch_.check();
  LibraryWork work(lane_, arena_);
  require(l_.cusolverDnXgetrf_bufferSize(lane_.cusolver, lane_.params, a.rows, a.cols, Blas<E>::kType, a.data, a.ld,
                                         Blas<E>::kType, &work.device_bytes, &work.host_bytes),
          "sizing an LU factorization");
  work.allocate();
  require(
      l_.cusolverDnXgetrf(lane_.cusolver, lane_.params, a.rows, a.cols, Blas<E>::kType, a.data, a.ld, pivots,
                          Blas<E>::kType, work.device, work.device_bytes, work.host.get(), work.host_bytes, work.info),
      "computing an LU factorization");
  const double n = static_cast<double>(a.cols);
  count(2.0 / 3 * n * n * n);
  return work.result() == 0;
}

template <class E>
void CudaLargeBackend<E>::solve_lu(Op op, View factors, const int64_t* pivots, View b) {
  if (b.rows == 0 || b.cols == 0) return;
  int32_t* const info = take<int32_t>(1);
  require(
      l_.cusolverDnXgetrs(lane_.cusolver, lane_.params, op == Op::kAdjoint ? Blas<E>::kAdjoint : CUBLAS_OP_N, b.rows,
                          b.cols, Blas<E>::kType, factors.data, factors.ld, pivots, Blas<E>::kType, b.data, b.ld, info),
      "solving a linear system");
  arena_.give_back(info);
  count(2 * static_cast<double>(b.rows) * static_cast<double>(b.rows) * static_cast<double>(b.cols));
}

template <class E>
double CudaLargeBackend<E>::square_bound(View a) {
  if (a.rows == 0 || a.cols == 0) return 0;
  double* const sums = take<double>(a.rows + a.cols);
  column_sums_kernel<<<static_cast<unsigned>(a.cols), kColumnThreads, 0, lane_.stream>>>(a, sums);
  launched();
  each(a.rows, 1, RowSums<E>{a, sums + a.cols});
  std::vector<double> host(size(a.rows + a.cols));
  fetch(host.data(), sums, a.rows + a.cols);
  arena_.give_back(sums);
  return *std::max_element(host.begin(), host.begin() + a.cols) * *std::max_element(host.begin() + a.cols, host.end());
}

template <class E>
std::vector<int8_t> CudaLargeBackend<E>::indefinite_factor(View m, View g, const large::PartDone& done) {
  const int64_t n = m.rows;
  const int64_t blocks_used = std::min<int64_t>((n + kFactorRows - 1) / kFactorRows, lane_.limits.multiprocessors);
  FactorState<E> state{m,
                       g,
                       take<double>(n),
                       take<double>(n),
                       take<double>(n),
                       take<E>(large::kErrorProbes * n),
                       take<double>(n),
                       take<int32_t>(n),
                       take<E>(2 * n),
                       take<FactorBest>(2 * blocks_used),
                       take<unsigned>(1),
                       take<int64_t>(2),
                       large::zero_bound(n),
                       0,
                       0};
  begin_factor_kernel<<<blocks(n), 256, 0, lane_.stream>>>(state);
  launched();
  View signed_panel = matrix(n, kFactorPanel + 1);
  while (state.rows_done < n) {
    watch_.check();
    const int64_t width = factor_panel(&state, static_cast<unsigned>(blocks_used));
    const View panel = g.columns(state.first_column - width, width), scaled = signed_panel.columns(0, width);
    if (width > 0 && state.rows_done < n) {
      each(panel, ScaledColumnsTo<E>{panel, scaled, state.sign + state.first_column - width});
      gemm(Op::kNone, Op::kAdjoint, -1, scaled, panel, 1, m);
    }
    const double left = static_cast<double>(n - state.rows_done) / static_cast<double>(n);
    if (done) done(1 - left);
  }
  std::vector<double> signs(size(state.first_column));
  if (!signs.empty()) fetch(signs.data(), state.sign, state.first_column);
  release(signed_panel);
  arena_.give_back(state.diagonal);
  arena_.give_back(state.row_norm);
  arena_.give_back(state.row_error);
  arena_.give_back(state.probes);
  arena_.give_back(state.sign);
  arena_.give_back(state.done);
  arena_.give_back(state.columns);
  arena_.give_back(state.best);
  arena_.give_back(state.barrier);
  arena_.give_back(state.progress);
  return {signs.begin(), signs.end()};
}

// The pivots of the next panel. Returns how many columns of G they are; waits.
template <class E>
int64_t CudaLargeBackend<E>::factor_panel(FactorState<E>* state, unsigned blocks_used) {
  require(cudaMemsetAsync(state->barrier, 0, sizeof(unsigned), lane_.stream), "clearing memory");
  void* arguments[] = {state};
  require(cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&factor_panel_kernel<E>), dim3(blocks_used),
                                      dim3(kFactorRows * kFactorParts), arguments, 0, lane_.stream),
          "launching a kernel");
  int64_t progress[2];
  fetch(progress, state->progress, 2);
  const int64_t width = progress[0] - state->first_column;
  state->first_column = progress[0];
  state->rows_done = progress[1];
  return width;
}

template <class E>
std::vector<double> CudaLargeBackend<E>::diagonal(View a) {
  const int64_t n = std::min(a.rows, a.cols);
  std::vector<double> result(size(n));
  if (n == 0) return result;
  double* const out = take<double>(n);
  each(n, 1, TakeDiagonal<E>{a, out});
  fetch(result.data(), out, n);
  arena_.give_back(out);
  return result;
}

template <class E>
double CudaLargeBackend<E>::distance_from_signature(View a, int64_t positive) {
  if (a.cols == 0) return 0;
  const int64_t group = std::min(a.cols, std::max<int64_t>(1, kMoved / a.rows));
  View difference = matrix(a.rows, group);
  double sum = 0;
  for (int64_t j = 0; j < a.cols; j += group) {
    const View columns = difference.columns(0, std::min(group, a.cols - j));
    each(columns, MinusSignature<E>{a, columns, j, positive});
    for (const ScaledNorm& norm : column_norms(columns, nullptr)) {
      const double x = std::ldexp(norm.mantissa, norm.exponent);
      sum += x * x;
    }
  }
  release(difference);
  return std::sqrt(sum);
}

// --- p-steps --------------------------------------------------------------------------------------------------------

template <class E>
GramStepVersions CudaLargeBackend<E>::versions_of(const large::PStep<E>& step) {
  if (!kSkipUnchangedPairs) return {};
  const int64_t blocks = blocks_of(step);
  const bool known = tracked_.x == step.x.data && tracked_.width == step.width && tracked_.tolerance == step.tolerance;
  if (!known || blocks != tracked_.blocks) {
    if (blocks > tracked_.room) {
      if (tracked_.versions != nullptr) arena_.give_back(tracked_.versions);
      tracked_.versions = take<int>(GramStepVersions::ints(blocks));
      tracked_.room = blocks;
    }
    tracked_ = {step.x.data, step.width, step.tolerance, blocks, tracked_.room, tracked_.versions};
    require(cudaMemsetAsync(tracked_.versions, 0, size(blocks) * sizeof(int), lane_.stream), "clearing memory");
    require(cudaMemsetAsync(tracked_.versions + blocks, 0xff,
                            size(GramStepVersions::ints(blocks) - blocks) * sizeof(int), lane_.stream),
            "clearing memory");
  }
  return {tracked_.versions, tracked_.versions + blocks};
}

template <class E>
const GramStepPair* CudaLargeBackend<E>::pairs_on_device(std::vector<large::BlockPair> pairs) {
  const auto [at, is_new] = pair_lists_.try_emplace(std::move(pairs), nullptr);
  if (is_new) {
    std::vector<GramStepPair> list;
    for (const large::BlockPair pair : at->first) list.push_back({pair.p, pair.q});
    at->second = upload(list);
  }
  return at->second;
}

template <class E>
uint64_t CudaLargeBackend<E>::p_step_bytes(int64_t n) {
  const auto bytes = [n](int columns) {
    return gram_step_workspace_bytes<E>(static_cast<int>(n / columns + 2), columns, kMostPartsByHalves);
  };
  if constexpr (kIsComplex<E>) return bytes(64);
  return std::max(bytes(64), bytes(128));
}

template <class E>
void CudaLargeBackend<E>::compute_as_member(int64_t blocks) {
  constexpr int64_t kMembers = 4;
  pairs_of_member_ = static_cast<int>(std::max<int64_t>(1, blocks / 2 / kMembers));
}

template <class E>
bool CudaLargeBackend<E>::has_halves() const {
  return pairs_of_member_ > 0 && pairs_of_member_ <= kMostPairsByHalves;
}

// Those that suit a half of the pairs leave a multiprocessor for each pair of the other, for its rotations. A member of
// two has twice the pairs. Where products are long, the rotations have ended when Gram matrices begin.
template <class E>
GramStepParts CudaLargeBackend<E>::parts_of(const large::PStep<E>& step) const {
  GramStepParts parts;
  parts.pairs = pairs_of_member_ > 0 ? pairs_of_member_ : step.count;
  if (!has_halves()) return parts;
  parts.most = kMostPartsByHalves;
  parts.pairs = std::max(1, pairs_of_member_ / kHalves);
  if (pairs_of_member_ < kPairsOfLongProducts) {
    parts.multiprocessors = std::max(1, lane_.limits.multiprocessors - kHalves * parts.pairs);
  }
  return parts;
}

template <class E>
std::array<uint64_t, kHalves> CudaLargeBackend<E>::reserve_p_step(int64_t width,
                                                                  const std::array<int64_t, kHalves>& pairs,
                                                                  int most_parts) {
  std::array<uint64_t, kHalves> begin{};
  uint64_t bytes = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    begin[i] = bytes;
    if (pairs[i] == 0) continue;
    bytes += gram_step_workspace_bytes<E>(static_cast<int>(pairs[i]), columns_of_pair(width), most_parts);
  }
  if (bytes > p_step_bytes_) {
    if (p_step_workspace_ != nullptr) arena_.give_back(p_step_workspace_);
    p_step_workspace_ = take<char>(static_cast<int64_t>(bytes));
    p_step_bytes_ = bytes;
  }
  return begin;
}

// The workspace of p-steps has room for squares, cosines, and these rows of X^H X: see kCosineBlocks.
template <class E>
int CudaLargeBackend<E>::block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
  const int64_t blocks = cosines.blocks();
  reserve_p_step(width, {blocks / 2}, GramStepParts().most);
  const int done = std::min(count, kCosineBlocks);
  const int64_t left = first * width, ahead = blocks - first;
  auto* const squares = reinterpret_cast<double*>(p_step_workspace_);
  double* const out = squares + leading_dimension(x.cols);
  View rows;
  rows.data = reinterpret_cast<E*>(out + leading_dimension(kCosineBlocks * blocks));
  rows.rows = std::min(done * width, x.cols - left);
  rows.cols = x.cols - left;
  rows.ld = leading_dimension(rows.rows);
  assert(reinterpret_cast<char*>(rows.data + rows.ld * rows.cols) <= p_step_workspace_ + p_step_bytes_);
  if (first == 0) {
    column_products_kernel<<<static_cast<unsigned>(x.cols), kColumnThreads, 0, lane_.stream>>>(x, x, squares);
    launched();
  }
  gemm(Op::kAdjoint, Op::kNone, 1, x.columns(left, rows.rows), x.columns(left, rows.cols), 0, rows);
  const dim3 grid(static_cast<unsigned>(ahead), static_cast<unsigned>(done));
  block_cosines_kernel<<<grid, 256, 0, lane_.stream>>>(rows, squares + left, static_cast<int>(width), out);
  launched();
  std::vector<double> found(size(done * ahead));
  fetch(found.data(), out, done * ahead);
  for (int p = 0; p < done; ++p) {
    for (int64_t q = p; q < ahead; ++q) cosines.at(first + p, first + static_cast<int>(q)) = found[size(p * ahead + q)];
  }
  return done;
}

template <class E>
GramStepCall<E> CudaLargeBackend<E>::call_of(const large::PStep<E>& step, std::vector<large::BlockPair> pairs) {
  GramStepCall<E> call;
  call.x = {step.x.data, step.x.rows, step.x.cols, step.x.ld};
  call.v = {step.v.data, step.v.rows, step.v.cols, step.v.ld};
  call.exponents = step.f;
  call.positive = step.positive;
  call.count = static_cast<int>(pairs.size());
  call.pairs = pairs_on_device(std::move(pairs));
  call.width = static_cast<int>(step.width);
  call.columns = columns_of_pair(step.width);
  call.tolerance = step.tolerance;
  call.smallest_exponent = step.smallest_exponent;
  call.inner_sweeps = step.inner_sweeps;
  call.counters = counts_;
  call.versions = versions_of(step);
  call.workspace = p_step_workspace_;
  call.parts = parts_of(step);
  return call;
}

template <class E>
void CudaLargeBackend<E>::count_p_step(const large::PStep<E>& step) {
  const double k = 2 * static_cast<double>(step.width), n = static_cast<double>(step.count);
  const double rows = static_cast<double>(step.x.rows);
  clock_.count_p_step(n * k * (k + 1) * rows * Blas<E>::kOperations);
  pairs_ += step.count;
  inner_flops_ = 6 * k * k * k;  // H from both sides by halves, W
  postmultiply_flops_ = 2 * k * k * (rows + static_cast<double>(step.v.data != nullptr ? step.v.rows : 0));
}

template <class E>
void CudaLargeBackend<E>::p_step(const large::PStep<E>& step) {
  if (step.count == 0) return;
  reserve_p_step(step.width, {step.count}, parts_of(step).most);
  const GramStepCall<E> call = call_of(step, {step.pairs, step.pairs + step.count});
  require(launch_gram_step(call, lane_.limits, clock_.marks_of_p_step(), lane_.stream), "launching a p-step");
  count_p_step(step);
}

template <class E>
void CudaLargeBackend<E>::p_steps(const std::vector<large::PStep<E>>& steps) {
  int most = 0;
  for (const large::PStep<E>& step : steps) most = std::max(most, step.count);
  if (!has_halves() || most > std::min(2 * pairs_of_member_, kMostOwnPairsByHalves)) {
    for (const large::PStep<E>& step : steps) p_step(step);
  } else if (most > 0) {
    compute_by_halves(steps);
  }
}

// All products are in the lane's stream, and each half's rotations in one of their own, beside what others multiply.
// Rotations have a multiprocessor a pair, which postmultiplications leave alone: beside them a block would be late.
template <class E>
void CudaLargeBackend<E>::compute_by_halves(const std::vector<large::PStep<E>>& steps) {
  const int blocks = static_cast<int>(blocks_of(steps.front()));
  const std::vector<StepHalves> halves = halves_of(steps, blocks);
  const std::vector<std::vector<GramStepCall<E>>> calls = calls_of(steps, halves);
  std::vector<cudaEvent_t*> marks(steps.size(), nullptr);  // of a p-step's first half
  const auto mark = [&](const HalfProduct& product, int i) {
    if (product.half > 0 || marks[product.step] == nullptr) return;
    require(cudaEventRecord(marks[product.step][i], lane_.stream), "recording an event");
  };
  for (const HalfProduct& product : products_in_order(halves, blocks)) {
    const GramStepCall<E>& call = calls[product.step][product.half];
    const LargeLane::Rotations& rotations = lane_.rotations[product.half];
    if (product.is_gram) {
      const auto count = static_cast<int>(halves[product.step].size());
      if (product.half == 0) marks[product.step] = clock_.marks_of_p_step(count);
      mark(product, 0);
      require(launch_gram_matrices(call, lane_.limits, lane_.stream), "launching a p-step");
      mark(product, 1);
      require(cudaEventRecord(rotations.begin, lane_.stream), "recording an event");
      require(cudaStreamWaitEvent(rotations.stream, rotations.begin, 0), "waiting for an event");
      require(launch_rotations(call, lane_.limits, rotations.stream), "launching a p-step");
      require(cudaEventRecord(rotations.end, rotations.stream), "recording an event");
      continue;
    }
    GramStepLimits limits = lane_.limits;
    for (const Half& half : halves[product.step]) limits.multiprocessors -= static_cast<int>(half.size());
    limits.multiprocessors = std::max(1, limits.multiprocessors + call.count);
    require(cudaStreamWaitEvent(lane_.stream, rotations.end, 0), "waiting for an event");
    mark(product, 2);
    require(launch_postmultiplication(call, limits, lane_.stream), "launching a p-step");
    mark(product, 3);
  }
  for (const large::PStep<E>& step : steps) count_p_step(step);
}

// Halves of the same number use the same memory, one after the other.
template <class E>
std::vector<std::vector<GramStepCall<E>>> CudaLargeBackend<E>::calls_of(const std::vector<large::PStep<E>>& steps,
                                                                        const std::vector<StepHalves>& halves) {
  std::array<int64_t, kHalves> most{};
  for (const StepHalves& of_step : halves) {
    for (size_t i = 0; i < of_step.size(); ++i) most[i] = std::max(most[i], static_cast<int64_t>(of_step[i].size()));
  }
  const int most_parts = parts_of(steps.front()).most;
  const std::array<uint64_t, kHalves> begin = reserve_p_step(steps.front().width, most, most_parts);
  std::vector<std::vector<GramStepCall<E>>> calls;
  for (size_t t = 0; t < steps.size(); ++t) {
    calls.emplace_back();
    for (size_t i = 0; i < halves[t].size(); ++i) {
      calls[t].push_back(call_of(steps[t], halves[t][i]));
      calls[t][i].workspace = p_step_workspace_ + begin[i];
    }
  }
  return calls;
}

template <class E>
void CudaLargeBackend<E>::reset_counters() {
  require(cudaMemsetAsync(counts_, 0, sizeof(GramStepCounts), lane_.stream), "clearing counters");
  pairs_ = 0;
  active_counted_ = 0;
}

template <class E>
large::PStepCounters CudaLargeBackend<E>::read_counters() {
  GramStepCounts counts;
  fetch(&counts, counts_, 1);
  large::PStepCounters result;
  result.rotations = static_cast<int64_t>(counts.rotations);
  result.proper_rotations = static_cast<int64_t>(counts.proper_rotations);
  result.active_pairs = static_cast<int64_t>(counts.active_pairs);
  result.pairs = pairs_;
  double cosine2 = 0;
  static_assert(sizeof(cosine2) == sizeof(counts.cosine2_bits));
  std::memcpy(&cosine2, &counts.cosine2_bits, sizeof(cosine2));
  result.largest_cosine = std::sqrt(cosine2);
  result.zero_column = counts.lost != 0;
  if (!std::isfinite(cosine2)) throw LargeStop{LargeStatus::kFault, "a column is no longer finite"};
  const double active = static_cast<double>(result.active_pairs - active_counted_) * Blas<E>::kOperations;
  clock_.count_active_pairs(active * inner_flops_, active * postmultiply_flops_);
  active_counted_ = result.active_pairs;
  clock_.collect();
  return result;
}

// --- states ---------------------------------------------------------------------------------------------------------

// The same kernels, libraries and kind of GPU have the same bits.
template <class E>
std::string CudaLargeBackend<E>::identity() const {
  cudaDeviceProp device{};
  require(cudaGetDeviceProperties(&device, lane_.device), "asking for a device's properties");
  const std::string own = states::build_id_of(reinterpret_cast<const void*>(&libraries));
  const std::string of_blas = states::build_id_of(reinterpret_cast<const void*>(l_.cublasDgemm_v2));
  const std::string of_solver = states::build_id_of(reinterpret_cast<const void*>(l_.cusolverDnXsyevd));
  if (own.empty() || of_blas.empty() || of_solver.empty()) return "";
  return std::string(device.name) + ", " + std::to_string(device.multiProcessorCount) + " multiprocessors, " + own +
         ", " + of_blas + ", " + of_solver;
}

template <class E>
uint64_t CudaLargeBackend<E>::scalar_bytes(int64_t n) {
  return static_cast<uint64_t>(Reflectors<E>::elements(n)) * sizeof(E);
}

template <class E>
void CudaLargeBackend<E>::fetch_columns(View from, void* to) {
  const size_t column = size(from.rows) * sizeof(E);
  require(cudaMemcpy2DAsync(to, column, from.data, size(from.ld) * sizeof(E), column, size(from.cols),
                            cudaMemcpyDeviceToHost, lane_.stream),
          "saving a state");
  sync();
}

template <class E>
void CudaLargeBackend<E>::put_columns(const void* from, View to) {
  const size_t column = size(to.rows) * sizeof(E);
  require(cudaMemcpy2DAsync(to.data, size(to.ld) * sizeof(E), from, column, column, size(to.cols),
                            cudaMemcpyHostToDevice, lane_.stream),
          "reading a state");
  sync();
}

template <class E>
void CudaLargeBackend<E>::get(void* to, const void* from, uint64_t bytes) {
  fetch(static_cast<char*>(to), static_cast<const char*>(from), static_cast<int64_t>(bytes));
}

template <class E>
void CudaLargeBackend<E>::put(void* to, const void* from, uint64_t bytes) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, lane_.stream), "reading a state");
  sync();
}

template <class E>
std::vector<int32_t> CudaLargeBackend<E>::tracked_pairs(View x) {
  if (!kSkipUnchangedPairs || tracked_.x != x.data) return {};
  std::vector<int32_t> pairs(size(GramStepVersions::ints(tracked_.blocks)));
  fetch(pairs.data(), tracked_.versions, static_cast<int64_t>(pairs.size()));
  return pairs;
}

template <class E>
void CudaLargeBackend<E>::track_pairs(View x, int64_t width, double tolerance, const std::vector<int32_t>& pairs) {
  large::PStep<E> step;
  step.x = x;
  step.width = width;
  step.tolerance = tolerance;
  tracked_.x = nullptr;
  const GramStepVersions versions = versions_of(step);
  if (versions.blocks == nullptr || pairs.size() != size(GramStepVersions::ints(tracked_.blocks))) return;
  put(versions.blocks, pairs.data(), pairs.size() * sizeof(int32_t));
}

// --- rings ----------------------------------------------------------------------------------------------------------

template <class E>
std::shared_ptr<void> CudaLargeBackend<E>::checkpoint_memory(uint64_t bytes) {
  void* memory = nullptr;
  require(cudaMalloc(&memory, bytes), "allocating a checkpoint");
  return {memory, [](void* m) { (void)cudaFree(m); }};
}

template <class E>
std::shared_ptr<char> CudaLargeBackend<E>::pinned(const std::shared_ptr<char>& pages, uint64_t bytes) {
  if (cudaHostRegister(pages.get(), bytes, cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    return pages;
  }
  return {pages.get(), [pages](char* memory) { (void)cudaHostUnregister(memory); }};
}

template <class E>
void CudaLargeBackend<E>::enqueue_download(View a, E* to) {
  assert(a.ld == checkpoint_ld(a.rows));
  require(cudaMemcpyAsync(to, a.data, size(a.ld * a.cols) * sizeof(E), cudaMemcpyDefault, lane_.stream),
          "copying columns to a checkpoint");
}

template <class E>
void CudaLargeBackend<E>::enqueue_upload(const E* from, View a) {
  assert(a.ld == checkpoint_ld(a.rows));
  require(cudaMemcpyAsync(a.data, from, size(a.ld * a.cols) * sizeof(E), cudaMemcpyDefault, lane_.stream),
          "copying columns of a checkpoint");
}

template <class E>
void CudaLargeBackend<E>::download(View a, E* to) {
  enqueue_download(a, to);
  sync();
}

template <class E>
void CudaLargeBackend<E>::upload(const E* from, View a) {
  if (a.data == tracked_.x) tracked_.x = nullptr;  // it has changed in other ways than by p-steps
  enqueue_upload(from, a);
  sync();
}

template <class E>
void CudaLargeBackend<E>::download(const int32_t* f, int64_t n, int32_t* to) {
  require(cudaMemcpyAsync(to, f, size(n) * sizeof(int32_t), cudaMemcpyDefault, lane_.stream),
          "copying exponents to a checkpoint");
  sync();
}

template <class E>
void CudaLargeBackend<E>::upload(const int32_t* from, int64_t n, int32_t* f) {
  require(cudaMemcpyAsync(f, from, size(n) * sizeof(int32_t), cudaMemcpyDefault, lane_.stream),
          "copying exponents of a checkpoint");
  sync();
}

static_assert(large::LargeBackend<CudaLargeBackend<double>>);
static_assert(large::LargeBackend<CudaLargeBackend<Complex>>);
template class CudaLargeBackend<double>;
template class CudaLargeBackend<Complex>;

}  // namespace svdserve::cuda
