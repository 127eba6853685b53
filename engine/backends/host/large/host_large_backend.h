// The host back end of large matrices: the operations of algorithms/large/large_backend.h by OpenBLAS and own loops.
// They run on the threads of an arena, or on the calling thread alone.
// Not thread safe: one object a decomposition. Its memory is its own, and can be used by decomposition after
// decomposition.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_LARGE_BACKEND_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_LARGE_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/p_steps/host_p_steps.h"

namespace svdserve::host {

// Blocks of memory by size; small ones are kept for the next who asks for the same size. Thread safety: none.
class LargeMemoryPool {
 public:
  void* take(size_t bytes);  // throws LargeStop{kOutOfMemory}
  void give(void* block);
  void give_all();

 private:
  std::map<size_t, std::vector<AlignedArray<char>>> free_;
  std::map<void*, std::pair<size_t, AlignedArray<char>>> used_;
};

// E: double or std::complex<double>.
template <class E>
class HostLargeBackend {
 public:
  using Element = E;
  using View = large::LargeView<E>;
  using Order = std::vector<int64_t>;

  explicit HostLargeBackend(const LargeThreads& threads);
  // As if newly made, but for the memory that it keeps. No view of before is valid any more.
  void reset();

  View matrix(int64_t rows, int64_t cols);
  void release(View view) { pool_.give(view.data); }
  int32_t* exponents(int64_t n) { return static_cast<int32_t*>(pool_.take(n * sizeof(int32_t))); }
  void release(int32_t* f) { pool_.give(f); }
  E* scalars(int64_t n) { return static_cast<E*>(pool_.take(n * sizeof(E))); }
  void release(E* tau) { pool_.give(tau); }

  int64_t block_width(int64_t n) const;
  void stage(const char* name);
  void sync() {}
  large::WorkSpeeds work_speeds() const;

  std::unique_ptr<large::TallOperand<E>> tall_operand(const LargePlan& plan, const LargeOperands& operands);
  large::LoadReport load(const void* matrix, const Problem& problem, bool adjoint, View a);
  void store(View a, bool adjoint, void* matrix, const Problem& problem);
  void mirror_lower(View a);

  void normalize_columns(View x, int32_t* f, bool keep);
  std::vector<large::ScaledNorm> column_norms(View x, const int32_t* f);
  std::vector<double> column_products(View a, View b);
  std::vector<double> row_maxima(View a);
  std::vector<double> diagonal(View a);
  void permute_rows(View a, const Order& order);
  void permute_columns(View a, const Order& order);
  void permute_exponents(int32_t* f, const Order& order);
  int32_t apply_exponents(View x, int32_t* f);
  void scale_columns(View x, const std::vector<double>& multipliers);
  void set_identity(View a);
  void set_zero(View a);
  void copy(View a, View b);
  void copy_exponents(const int32_t* f, int32_t* g, int64_t n) { std::copy(f, f + n, g); }

  void qr(View a, E* tau, const large::PartDone& done = {});
  void apply_q(large::Op op, View a, const E* tau, View c, const large::PartDone& done = {});
  void adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f);
  void copy_triangle(View r, View x);
  void gemm(large::Op op_a, large::Op op_b, double alpha, View a, View b, double beta, View c);
  void herk(View a, View c);
  void solve_lower(View l, View b);
  void scale_solution(const int32_t* f, const int32_t* g, View w);
  bool eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done = {});
  bool cholesky(View a);
  double square_bound(View a);
  std::vector<int8_t> indefinite_factor(View m, View g, const large::PartDone& done);

  // To and from an array without gaps, for a ring (backends/ring/ring_backend.h).
  static std::shared_ptr<void> checkpoint_memory(uint64_t bytes) {
    auto memory = std::make_shared<AlignedArray<char>>();
    memory->reserve(bytes);
    return {memory, memory->data()};
  }
  static int64_t checkpoint_ld(int64_t rows) { return rows; }
  void download(View a, E* to) { copy(a, {to, a.rows, a.cols, a.rows}); }
  void upload(const E* from, View a) {
    if (a.data == tracking_.x) tracking_ = {};  // it has changed in other ways than by p-steps
    copy({const_cast<E*>(from), a.rows, a.cols, a.rows}, a);
  }
  void download(const int32_t* f, int64_t n, int32_t* to) { std::copy(f, f + n, to); }
  void upload(const int32_t* from, int64_t n, int32_t* f) { std::copy(from, from + n, f); }

  // States.
  std::string identity() const;
  template <class Take>
  void write_out(const void* memory, uint64_t bytes, const Take& take) const {
    take(memory, bytes);
  }
  template <class Take>
  void write_out(View a, const Take& take) const {
    for_pieces(a, take);
  }
  template <class Fill>
  void read_in(void* memory, uint64_t bytes, const Fill& fill) const {
    fill(memory, bytes);
  }
  template <class Fill>
  void read_in(View a, const Fill& fill) {
    if (a.data == tracking_.x) tracking_ = {};  // it has changed in other ways than by p-steps
    for_pieces(a, fill);
  }
  static uint64_t scalar_bytes(int64_t n) { return static_cast<uint64_t>(n) * sizeof(E); }
  std::vector<int32_t> tracked_pairs(View x) const {
    return x.data == tracking_.x ? tracking_.pairs.numbers() : std::vector<int32_t>();
  }
  void track_pairs(View x, int64_t width, double tolerance, const std::vector<int32_t>& pairs) {
    tracking_ = {x.data, width, tolerance, PairTracking::of(pairs)};
  }

  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines);
  void p_step(const large::PStep<E>& step);
  void reset_counters() { p_steps_.reset(); }
  large::PStepCounters read_counters() { return p_steps_.counters(); }
  double distance_from_signature(View a, int64_t positive);
  std::vector<LargePhaseTime> phases();

 private:
  using Clock = std::chrono::steady_clock;

  template <class F>
  void for_columns(View a, const F& f) const;
  // The memory of a matrix, without what lies between its columns.
  template <class F>
  static void for_pieces(View a, const F& f) {
    const bool whole = a.ld == a.rows;
    const auto bytes = static_cast<uint64_t>(whole ? a.rows * a.cols : a.rows) * sizeof(E);
    for (int64_t j = 0; j < (whole ? 1 : a.cols); ++j) f(a.data + j * a.ld, bytes);
  }
  LargePhaseTime& phase(const std::string& name);
  void count_flops(double real_operations);

  const LargeThreads threads_;
  LargeMemoryPool pool_;
  HostPSteps<E> p_steps_;
  // The pairs of these columns, blocks and tolerance, which are those of the last p-step.
  struct {
    const E* x = nullptr;
    int64_t width = 0;
    double tolerance = 0;
    PairTracking pairs;
  } tracking_;
  std::vector<double> squares_;  // of columns' norms, for block_cosines()
  std::vector<LargePhaseTime> phases_;
  std::string stage_;
  Clock::time_point stage_start_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_LARGE_BACKEND_H_
