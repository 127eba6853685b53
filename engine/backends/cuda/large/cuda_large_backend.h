// The back end of large matrices on a GPU: algorithms/large/large_backend.h is the contract of every operation.
// Products of whole matrices are cuBLAS's; QR (reflectors.h), eigenbasis (tridiagonal/eigenbasis.h) and p-steps
// (gram_step.h) are our own.
//
// One thing of p_step() is different here: the Gram matrix itself is swept, not its Cholesky factor, and nothing falls
// to QR. Where a Gram matrix has lost the digits of a pair, W is orthogonal all the same. The next sweep begins with the
// Gram matrix of the columns that W made, which are no longer nearly parallel. That costs sweeps where
// columns depend on each other, which a QR before has made rare.
//
// One stream, and others for rotations of p-steps by halves; one allocation for all of it. The device is current on the
// calling thread.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_CUDA_LARGE_BACKEND_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_CUDA_LARGE_BACKEND_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/cuda_work_speeds.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/backends/cuda/large/phase_clock.h"
#include "engine/backends/cuda/p_steps/gram_step.h"
#include "engine/backends/cuda/p_steps/step_halves.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

using large::LargeWatch;
using large::LoadReport;
using large::Op;
using large::ScaledNorm;

template <class E>
struct FactorState;

// E: double or Complex.
template <class E>
class CudaLargeBackend {
 public:
  using Element = E;
  using View = large::LargeView<E>;

  // All arguments must outlive the object.
  CudaLargeBackend(LargeLane& lane, DeviceArena& arena, const LargeWatch& watch);

  // Elements at once that are moved within a matrix.
  static constexpr int64_t kMoved = int64_t{1} << 25;
  static constexpr int64_t kReflectorGroup = 128;

  // --- memory -----------------------------------------------------------------------------------------------------

  View matrix(int64_t rows, int64_t cols);
  static int64_t leading_dimension(int64_t rows) { return (rows + 15) / 16 * 16; }
  void release(View view);
  View park(View a);
  View unpark(View a);
  bool is_parked(View a) const { return find_parked(a) != nullptr; }
  int32_t* exponents(int64_t n);
  void release(int32_t* f);
  E* scalars(int64_t n);
  void release(E* scalars);

  int64_t block_width(int64_t n) const;
  void stage(const char* name);
  void sync();
  static large::WorkSpeeds work_speeds() { return cuda_work_speeds(); }
  std::vector<LargePhaseTime> phases();

  // --- operands and results -----------------------------------------------------------------------------------------

  LoadReport load(const void* matrix, const Problem& problem, bool adjoint, View a);
  void store(View a, bool adjoint, void* matrix, const Problem& problem);
  void mirror_lower(View a);

  // --- columns and their exponents ----------------------------------------------------------------------------------

  void normalize_columns(View x, int32_t* f, bool keep);
  std::vector<ScaledNorm> column_norms(View x, const int32_t* f);
  std::vector<double> column_products(View a, View b);
  std::vector<double> row_maxima(View a);
  int32_t apply_exponents(View x, int32_t* f);
  void scale_columns(View x, const std::vector<double>& multipliers);
  void scale_solution(const int32_t* f, const int32_t* g, View w);

  // --- permutations and copies --------------------------------------------------------------------------------------

  void permute_rows(View a, const std::vector<int64_t>& perm);
  void permute_columns(View a, const std::vector<int64_t>& perm);
  void permute_exponents(int32_t* f, const std::vector<int64_t>& perm);
  void copy(View a, View b);
  void copy_exponents(const int32_t* f, int32_t* g, int64_t n);
  void set_identity(View a);
  void set_zero(View a);

  // --- factorizations and products ----------------------------------------------------------------------------------

  // The processor does not know how far the first two are.
  void qr(View a, E* tau, const large::PartDone& = {});
  void apply_q(Op op, View a, E* tau, View c, const large::PartDone& = {});
  void adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f);
  void copy_triangle(View r, View x);
  void gemm(Op op_a, Op op_b, double alpha, View a, View b, double beta, View c);
  void herk(View a, View c);
  void solve_lower(View lower, View b);
  bool eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done = {});
  bool cholesky(View a);
  // P a = L U in the place of a, n x n; n pivots in device memory. False: U has a zero on its diagonal. Waits.
  bool lu(View a, int64_t* pivots);
  // b := a^-1 b or a^-H b, of what lu() made.
  void solve_lu(Op op, View factors, const int64_t* pivots, View b);
  double square_bound(View a);
  std::vector<int8_t> indefinite_factor(View m, View g, const large::PartDone& done);
  std::vector<double> diagonal(View a);
  double distance_from_signature(View a, int64_t positive);

  // --- p-steps ------------------------------------------------------------------------------------------------------

  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines);
  void p_step(const large::PStep<E>& step);
  // p_step() of each, with the bits that they have in their order. A member computes halves of few pairs beside each other.
  void p_steps(const std::vector<large::PStep<E>>& steps);
  void reset_counters();
  large::PStepCounters read_counters();

  // --- states -------------------------------------------------------------------------------------------------------

  std::string identity() const;
  static uint64_t scalar_bytes(int64_t n);
  // Pieces lie in pinned memory.
  template <class Take>
  void write_out(View a, const Take& take) {
    if (is_parked(a)) return take(a.data, bytes_of(a));
    for_pieces(a, [&](View piece) {
      fetch_columns(piece, lane_.pinned[0]);
      take(lane_.pinned[0], bytes_of(piece));
    });
  }
  template <class Fill>
  void read_in(View a, const Fill& fill) {
    if (a.data == tracked_.x) tracked_.x = nullptr;  // it has changed in other ways than by p-steps
    for_pieces(a, [&](View piece) {
      fill(lane_.pinned[0], bytes_of(piece));
      put_columns(lane_.pinned[0], piece);
    });
  }
  template <class Take>
  void write_out(const void* memory, uint64_t bytes, const Take& take) {
    for (uint64_t done = 0; done < bytes; done += kTransferBytes) {
      const uint64_t piece = std::min(kTransferBytes, bytes - done);
      get(lane_.pinned[0], static_cast<const char*>(memory) + done, piece);
      take(lane_.pinned[0], piece);
    }
  }
  template <class Fill>
  void read_in(void* memory, uint64_t bytes, const Fill& fill) {
    for (uint64_t done = 0; done < bytes; done += kTransferBytes) {
      const uint64_t piece = std::min(kTransferBytes, bytes - done);
      fill(lane_.pinned[0], piece);
      put(static_cast<char*>(memory) + done, lane_.pinned[0], piece);
    }
  }
  std::vector<int32_t> tracked_pairs(View x);
  void track_pairs(View x, int64_t width, double tolerance, const std::vector<int32_t>& pairs);

  // --- rings (backends/ring/ring_backend.h) -------------------------------------------------------------------------

  // Device memory that is freed with the last copy of the pointer.
  static std::shared_ptr<void> checkpoint_memory(uint64_t bytes);
  static int64_t checkpoint_ld(int64_t rows) { return leading_dimension(rows); }
  // The same memory of the host, pinned where that is possible: copies are five times as fast then.
  static std::shared_ptr<char> pinned(const std::shared_ptr<char>& pages, uint64_t bytes);
  // Between whole columns here and a checkpoint, which may be another device's. Those without `enqueue` wait.
  void enqueue_download(View a, E* to);
  void enqueue_upload(const E* from, View a);
  void download(View a, E* to);
  void upload(const E* from, View a);
  void download(const int32_t* f, int64_t n, int32_t* to);
  void upload(const int32_t* from, int64_t n, int32_t* f);
  // From now on Gram matrices have the parts that suit a member of four, for a matrix of so many blocks. So the bits are
  // the same for every number of members, and do not depend on a p-step's number of pairs.
  void compute_as_member(int64_t blocks);
  // The workspace of p-steps of n columns, with either width a block more than there can be.
  static uint64_t p_step_bytes(int64_t n);
  // The versions of the blocks of x, with the width and tolerance of `step`, in device memory; or null.
  int* block_versions(const large::PStep<E>& step) { return versions_of(step).blocks; }

 private:
  // Norms of columns, in device memory.
  struct Norms {
    double* mantissas;
    int32_t* exponents;
  };
  struct Lines;  // an operand or result as runs of elements
  // A matrix in the host's memory, whose columns have no gaps.
  struct Parked {
    std::shared_ptr<E> memory;
    uint64_t bytes = 0;
  };

  // A piece of the arena. Throws LargeStop where none is so large.
  template <class T>
  T* take(int64_t n);
  // Waits.
  template <class T>
  void fetch(T* to, const T* from, int64_t n);
  // Between device memory and the host's, where columns have no gaps. They wait.
  void fetch_columns(View from, void* to);
  void put_columns(const void* from, View to);
  void get(void* to, const void* from, uint64_t bytes);
  void put(void* to, const void* from, uint64_t bytes);
  static uint64_t bytes_of(View a) { return static_cast<uint64_t>(a.rows * a.cols) * sizeof(E); }
  // f(columns) for all columns of a, in groups of at most kTransferBytes.
  template <class F>
  static void for_pieces(View a, const F& f) {
    if (a.rows == 0) return;
    const int64_t group = std::max<int64_t>(1, static_cast<int64_t>(kTransferBytes / (a.rows * sizeof(E))));
    for (int64_t first = 0; first < a.cols; first += group) f(a.columns(first, std::min(group, a.cols - first)));
  }
  template <class T>
  T* upload(const std::vector<T>& from);
  // Launches f(i, j) for all entries of rows x cols, or of `a`.
  template <class F>
  void each(int64_t rows, int64_t cols, F f);
  template <class F>
  void each(View a, F f);
  // Gathers whole rows or columns of `a` by this order, which is on the device.
  template <class Gather>
  void permute(View a, const int64_t* order);
  const Parked* find_parked(View a) const;
  Norms norms_of(View x);
  void give_back(const Norms& norms);
  void count(double multiply_adds_twice);
  bool eigenbasis_by_library(View g, View v);
  int64_t factor_panel(FactorState<E>* state, unsigned blocks_used);

  // A slot of a thread: as much device memory as pinned memory, a stream and an event. A thread's slots have one of two
  // streams each, since the bus is idle while a stream converts.
  struct Slot {
    char *staging, *pinned;
    cudaStream_t stream;
    cudaEvent_t transferred;
  };
  // begin(first line, lines, slot) for parts that fit the slot, on several threads at once. Then, once the thread has
  // begun its next part in its other slot, end() of the same.
  template <class Begin, class End>
  void transfer(const Lines& lines, Begin begin, End end);
  void await(const Slot& slot, const char* what) const;
  void convert_in(DType dtype, const Slot& slot, int64_t first, int64_t count, const Lines& lines, View a,
                  bool conjugated, unsigned long long* first_bad);
  void convert_out(DType dtype, View a, int64_t first, int64_t count, const Lines& lines, const Slot& slot,
                   bool conjugated);

  static int columns_of_pair(int64_t width) { return width <= 32 ? 64 : 128; }
  static int64_t blocks_of(const large::PStep<E>& step) {
    return std::max<int64_t>(2, (step.x.cols + step.width - 1) / step.width);
  }
  // Room for halves of so many pairs, one behind the other. Returns where they begin.
  std::array<uint64_t, kHalves> reserve_p_step(int64_t width, const std::array<int64_t, kHalves>& pairs,
                                               int most_parts);
  // The parts of Gram matrices: those that suit all pairs, or a half of them beside the rotations of the others.
  GramStepParts parts_of(const large::PStep<E>& step) const;
  // Whether p-steps of few pairs go by halves.
  bool has_halves() const;
  // Begun anew for other columns, blocks or a tolerance than the last time.
  GramStepVersions versions_of(const large::PStep<E>& step);
  // Uploaded where the device does not have it.
  const GramStepPair* pairs_on_device(std::vector<large::BlockPair> pairs);
  GramStepCall<E> call_of(const large::PStep<E>& step, std::vector<large::BlockPair> pairs);
  std::vector<std::vector<GramStepCall<E>>> calls_of(const std::vector<large::PStep<E>>& steps,
                                                     const std::vector<StepHalves>& halves);
  void compute_by_halves(const std::vector<large::PStep<E>>& steps);
  void count_p_step(const large::PStep<E>& step);

  LargeLane& lane_;
  DeviceArena& arena_;
  const LargeWatch& watch_;
  const Libraries& l_;
  PhaseClock clock_;
  std::string stage_ = "begin";
  GramStepCounts* counts_ = nullptr;
  struct {
    const E* x = nullptr;
    int64_t width = 0;
    double tolerance = 0;
    int64_t blocks = 0, room = 0;
    int* versions = nullptr;  // of `room` blocks
  } tracked_;                 // GramStepVersions
  std::map<const E*, Parked> parked_;
  char* p_step_workspace_ = nullptr;
  uint64_t p_step_bytes_ = 0;
  std::map<std::vector<large::BlockPair>, const GramStepPair*> pair_lists_;
  int64_t pairs_ = 0, active_counted_ = 0;
  int pairs_of_member_ = 0;                          // of four; 0: this is no member
  double inner_flops_ = 0, postmultiply_flops_ = 0;  // of an active pair
};

extern template class CudaLargeBackend<double>;
extern template class CudaLargeBackend<Complex>;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_CUDA_LARGE_BACKEND_H_
