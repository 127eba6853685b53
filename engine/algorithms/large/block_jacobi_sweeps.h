// The outer level of the blocked one-sided Jacobi method: sweeps of p-steps until all columns are orthogonal.
//
//   X := X W,   V := V W,   W the product of all transformations, X^H X diagonal at the end
// x, f: X, scaled as large_backend.h says; V plain, or none. W is unitary, or with `positive` < n: W^H J W = J.
// Convergence (Novakovic 2015, section 4.5): the sweep that ends it has met no two columns with |cos| > 2 tolerance. It
// has rotated those between that and the tolerance, which are the rounding errors of the sweep before. Such a sweep
// costs the Gram matrices only, a tenth of a full one. It costs less where the back end knows pairs that nothing has
// changed. Stopping earlier, on a small |cos| of the sweep before, is wrong where values are clustered: there small
// cosines give large rotations. A sweep's p-steps are enqueued in groups; counters are read, progress is told and a
// cancel is obeyed between groups. The size of a group follows the clock, and nothing else does: the bits do not depend
// on it. Where little is left to rotate, the cosines of all columns come first, by one product X^H X in parts. It costs
// half of a sweep's Gram matrices, ends the method as such a sweep would, and leaves a sweep over few pairs
// (packed_sweep.h). Drift: V loses orthogonality by some u a sweep. Once all |cos| <= kRepairCosine, which the rotations to come
// change little, one Newton-Schulz step V := V (3 I - V^H V) / 2 makes it orthogonal to the square of that. X := X_0 V
// makes X agree with it again (X_0: X before the sweeps). Not for hyperbolic W, which has no such step. Source:
// Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, sections 2 and 4.5; G -> x, V -> v, b -> blocks, S_b -> sweep_, the
// block-oriented and full block variants -> inner_sweeps. Newton-Schulz: Higham, Functions of Matrices (2008), section
// 8.3.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_SWEEPS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_SWEEPS_H_

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/packed_sweep.h"
#include "engine/algorithms/large/predicted_work.h"
#include "engine/algorithms/large/progress_teller.h"

namespace svdserve::large {

inline constexpr double kRepairCosine = 1e-4;
inline constexpr int kFullBlockSweeps = 30;  // Novakovic 2015, section 4.3: M_s
// Groups are as long as is needed to be asked, but not longer. They stay well below the second within which a cancel is
// obeyed and progress told, and below a small batch's wait for the device.
inline constexpr double kGroupSeconds = 0.02;
// A back end may have groups of its own.
template <class Backend>
inline constexpr double kGroupSecondsOf = kGroupSeconds;
template <class Backend>
requires requires { Backend::kGroupSeconds; }
inline constexpr double kGroupSecondsOf<Backend> = Backend::kGroupSeconds;
// With fewer blocks a sweep costs no more than finding out what it has to do. A sweep is packed if at most this part of
// all pairs is active; expected of the sweep after one that had no more.
inline constexpr int kLeastCheckedBlocks = 20;
inline constexpr double kLargestPackedPart = 0.5;

// The operands of the sweeps, all in the back end's memory.
template <class E>
struct SweepOperands {
  LargeView<E> x;
  int32_t* f = nullptr;
  LargeView<E> v;   // without data: W is not wanted
  LargeView<E> x0;  // with f0: X as it was before V, perhaps parked; without data: no repair
  int32_t* f0 = nullptr;
  int64_t positive = 0;  // as PStep's
  int32_t smallest_exponent = kZeroColumn;
};

// V := V (3 I - V^H V) / 2: the distance of V's columns from orthonormal ones is squared. square: room for V^H V, or
// without data.
template <class Backend>
void newton_schulz_step(Backend& backend, LargeView<typename Backend::Element> v,
                        LargeView<typename Backend::Element> square = {}) {
  const bool is_own = !square;
  if (is_own) square = backend.matrix(v.cols, v.cols);
  backend.herk(v, square);
  const auto room = backend.matrix(std::min(v.rows, kGroupOf<Backend>), v.cols);
  for (int64_t first = 0; first < v.rows; first += kGroupOf<Backend>) {
    const int64_t count = std::min(kGroupOf<Backend>, v.rows - first);
    const auto rows = v.block(first, 0, count, v.cols), before = room.block(0, 0, count, v.cols);
    backend.copy(rows, before);
    backend.gemm(Op::kNone, Op::kNone, -0.5, before, square, 1.5, rows);
  }
  backend.release(room);
  if (is_own) backend.release(square);
}

template <class Backend>
class BlockJacobiSweeps {
 public:
  using E = typename Backend::Element;
  struct Limits {
    PivotStrategy strategy = PivotStrategy::kAuto;
    BlockVariant variant = BlockVariant::kAuto;
    double tolerance = 0;
    int max_sweeps = kDefaultLargeSweeps;
    double expected_work = 10;       // in whole sweeps, for the progress alone
    bool nearly_orthogonal = false;  // X is, as far as is known
  };
  struct Result {
    bool converged = false;
    bool zero_column = false;  // some column of x is zero now
    int32_t sweeps = 0;
  };
  // The sweeps' state beside their operands and the numbers in the progress. With all of it they go on as if they had
  // not been interrupted.
  struct State {
    Result result;
    bool repaired = false;
    bool few = false;              // pairs are active, it seems
    double left = 0;               // sweeps, for the progress alone
    std::vector<int32_t> tracked;  // tracked_pairs() of the back end, where it has such a thing
  };
  // Told after each sweep. It may fill in `tracked`, and leaves the rest as it is.
  using AfterSweep = std::function<void(State&)>;

  // progress: in the part that the sweeps are.
  BlockJacobiSweeps(Backend& backend, const Limits& limits, ProgressTeller& progress)
      : backend_(backend), limits_(limits), progress_(progress) {}

  // The state of operands that no sweep has seen.
  State first(const SweepOperands<E>& operands) const {
    State state;
    state.repaired = !operands.v || !operands.x0;
    state.few = limits_.nearly_orthogonal;
    state.left = limits_.expected_work;
    return state;
  }

  Result run(const SweepOperands<E>& operands, State state, const AfterSweep& after_sweep = {}) {
    const int64_t n = operands.x.cols;
    // At least two blocks, so that a small matrix is one pair.
    width_ = std::max<int64_t>(1, std::min(backend_.block_width(n), (n + 1) / 2));
    blocks_ = static_cast<int>((n + width_ - 1) / width_);
    cut_sweep();
    track(operands, state);
    left_ = state.left;
    auto& [result, repaired, few, left, tracked] = state;
    result.converged = result.converged || sweep_.empty();
    while (!result.converged && result.sweeps < limits_.max_sweeps) {
      PivotSweep packed;
      if (few && blocks_ >= kLeastCheckedBlocks) {
        const BlockCosines cosines = block_cosines(operands);
        result.converged = cosines.largest() <= 2 * limits_.tolerance;
        if (result.converged) break;
        for (const PivotSweep& part : parts_) append(packed_sweep(part, cosines, limits_.tolerance), packed);
        if (pairs_of(packed) > kLargestPackedPart * pairs_of(sweep_)) packed.clear();
        if (!packed.empty()) left_ = pairs_of(packed) / pairs_of(sweep_) + check_work(bool(operands.v));
      }
      ++result.sweeps;
      progress_.state.sweep = result.sweeps;
      const PStepCounters counters = run_sweep(operands, packed.empty() ? sweep_ : packed);
      result.zero_column |= counters.zero_column;
      result.converged = packed.empty() && counters.largest_cosine <= 2 * limits_.tolerance;
      // A packed sweep that rotated nothing would be followed by itself.
      few = counters.active_pairs > 0 && counters.active_pairs <= kLargestPackedPart * pairs_of(sweep_);
      if (!repaired && !result.converged && counters.largest_cosine <= kRepairCosine) {
        // Operands that were as good from the start have not drifted.
        if (result.sweeps > 1) repair(operands);
        repaired = true;
      }
      left = left_;
      if (after_sweep) after_sweep(state);
    }
    return result;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // How many of what should come between two looks at the clock.
  static size_t next_group(size_t group, Clock::time_point start, size_t most) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds < kGroupSecondsOf<Backend> / 2) return std::min(2 * group, most);
    return seconds > kGroupSecondsOf<Backend> ? std::max<size_t>(1, group / 2) : group;
  }
  static double pairs_of(const PivotSweep& sweep) {
    size_t pairs = 0;
    for (const PivotStep& step : sweep) pairs += step.size();
    return static_cast<double>(pairs);
  }

  static void append(PivotSweep part, PivotSweep& sweep) {
    for (PivotStep& step : part) sweep.push_back(std::move(step));
  }

  void track(const SweepOperands<E>& operands, const State& state) {
    if constexpr (requires { backend_.track_pairs(operands.x, width_, limits_.tolerance, state.tracked); }) {
      if (!state.tracked.empty()) backend_.track_pairs(operands.x, width_, limits_.tolerance, state.tracked);
    }
  }

  // A back end may have a sweep of its own, in parts.
  void cut_sweep() {
    if constexpr (requires { backend_.pivot_sweep_in_parts(limits_.strategy, blocks_); }) {
      parts_ = backend_.pivot_sweep_in_parts(limits_.strategy, blocks_);
    } else {
      parts_ = {pivot_sweep(limits_.strategy, blocks_)};
    }
    sweep_.clear();
    for (const PivotSweep& part : parts_) append(part, sweep_);
  }

  BlockCosines block_cosines(const SweepOperands<E>& operands) {
    backend_.stage("check");
    const double work = std::min(check_work(bool(operands.v)), left_);
    BlockCosines cosines(blocks_);
    size_t group = 1;
    for (int p = 0; p < blocks_;) {
      const auto start = Clock::now();
      p += backend_.block_cosines(operands.x, width_, p, std::min(static_cast<int>(group), blocks_ - p), cosines);
      group = next_group(group, start, static_cast<size_t>(blocks_));
      if (p == blocks_) progress_.state.off_diagonal = std::min(cosines.largest(), 1.0);
      const double rest = 1 - static_cast<double>(p) / blocks_;
      tell(work * (1 - rest * rest));
    }
    has_done(work);
    if (!std::isfinite(cosines.largest())) throw LargeStop{LargeStatus::kFault, "a column is no longer finite"};
    return cosines;
  }

  PStepCounters run_sweep(const SweepOperands<E>& operands, const PivotSweep& sweep) {
    const LargeProgress before = progress_.state;
    const double work = std::min(pairs_of(sweep) / pairs_of(sweep_), left_);
    backend_.stage("sweep");
    backend_.reset_counters();
    PStepCounters counters;
    size_t group = group_;
    for (size_t step = 0; step < sweep.size();) {
      const auto start = Clock::now();
      const size_t end = std::min(step + group, sweep.size());
      std::vector<PStep<E>> steps;
      for (; step < end; ++step) steps.push_back(p_step(operands, sweep[step]));
      p_steps(backend_, steps, [] {});
      counters = backend_.read_counters();
      group = next_group(group, start, sweep_.size());
      progress_.state.rotations = before.rotations + counters.rotations;
      progress_.state.proper_rotations = before.proper_rotations + counters.proper_rotations;
      if (step == sweep.size()) progress_.state.off_diagonal = counters.largest_cosine;
      tell(work * (static_cast<double>(step) / static_cast<double>(sweep.size())));
    }
    group_ = group;
    has_done(work);
    left_ = work_left(before.off_diagonal, counters.largest_cosine, bool(operands.v));
    return counters;
  }

  PStep<E> p_step(const SweepOperands<E>& operands, const PivotStep& pairs) const {
    PStep<E> step;
    step.x = operands.x;
    step.f = operands.f;
    step.v = operands.v;
    step.positive = operands.positive;
    step.pairs = pairs.data();
    step.count = static_cast<int>(pairs.size());
    step.width = width_;
    step.tolerance = limits_.tolerance;
    step.smallest_exponent = operands.smallest_exponent;
    step.inner_sweeps = limits_.variant == BlockVariant::kFullBlock ? kFullBlockSweeps : 1;
    return step;
  }

  void repair(const SweepOperands<E>& operands) {
    const auto [x, f, v, x0, f0, positive, smallest_exponent] = operands;
    backend_.stage("repair");
    newton_schulz_step(backend_, v, x);  // x is computed anew
    for_column_groups(backend_, x0, [&, v = v, x = x](int64_t first, LargeView<E> columns) {
      const double beta = first == 0 ? 0 : 1;
      backend_.gemm(Op::kNone, Op::kNone, 1.0, columns, v.block(first, 0, columns.cols, v.cols), beta, x);
    });
    backend_.copy_exponents(f0, f, x.cols);
    backend_.normalize_columns(x, f, true);
  }

  // --- progress, in whole sweeps ------------------------------------------------------------------------------------

  // begun: of the sweep or check under way.
  void tell(double begun) { progress_.at((work_done_ + begun) / (work_done_ + left_)); }
  void has_done(double work) {
    work_done_ += work;
    left_ -= work;
  }

  // The work left after a sweep, by its largest cosine and that of the sweep before. Late sweeps rotate few pairs, and
  // small cosines fall quadratically. Measured: `large_bench strategies`.
  double work_left(double before, double cosine, bool with_v) const {
    if (cosine <= 2 * limits_.tolerance) return 0;
    if (cosine < 1e-8) return check_work(with_v);
    if (cosine < 1e-4) return 0.6;
    if (cosine < 1e-3) return 1.1;
    if (before < 1 && cosine < before / 5) return 2;
    return cosine < 1e-2 ? 2.5 : std::max(4.0, limits_.expected_work - work_done_);
  }

  Backend& backend_;
  const Limits limits_;
  ProgressTeller& progress_;
  int64_t width_ = 1;
  int blocks_ = 1;
  std::vector<PivotSweep> parts_;    // of a whole sweep; packed each by itself
  PivotSweep sweep_;                 // all of them
  size_t group_ = 1;                 // p-steps of the next group
  double work_done_ = 0, left_ = 0;  // sweeps, for the progress alone
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_BLOCK_JACOBI_SWEEPS_H_
