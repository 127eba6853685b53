// The back end of the drivers (algorithms/large/large_backend.h) over a ring of members: one large matrix on several
// devices, or on shares of a host's threads.
//
//   Home     a LargeBackend that has all matrices, and computes all but the sweeps
//   Member   ring_member.h: has two unions of super-blocks, or three slots, and computes p-steps on them
// The sweep is that of super_block_sweep.h. Its order depends on the number of columns alone, and the arithmetic of a
// pair on that pair alone. So X, V and S have the same bits for every number of members, and those of Home by itself
// where its sweep has the same order. Strategies that cannot be cut stay at home, and the report says one member.
//
// P-steps are written down; read_counters() has them computed. The first p-step on a matrix takes it to the members, any
// other call brings it back home first. In between it goes by a checkpoint: members touch no memory of Home and none
// of the caller's. reset_counters(), which begins a sweep, makes a checkpoint of what has changed.
// A member that fails is lost (member_threads.h). The largest ring of those left takes the checkpoint and repeats the
// p-steps since then. That is one sweep, or two if the loss comes while a checkpoint is made. The bits are the same.
// Without a member left the call throws LargeStop{kFault}. Where new members cannot be made, fewer are. Where none can,
// Home goes on alone, until the driver does something else with the matrix than sweeps.
// Memory beside Home's, in matrices of the size of X, and of V: 3 / 2 on members, 2 of checkpoints.
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_RING_BACKEND_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_RING_BACKEND_H_

#include <algorithm>
#include <chrono>
#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/ring/member_threads.h"
#include "engine/backends/ring/ring_layout.h"
#include "engine/backends/ring/ring_member.h"
#include "engine/backends/ring/ring_run.h"

namespace svdserve::ring {

// Home: a LargeBackend with, beside its contract,
//   std::shared_ptr<void> checkpoint_memory(bytes)             for a checkpoint, where all members reach it
//   int64_t checkpoint_ld(rows)                                elements from column to column there
//   void download(view, E* to), download(f, n, int32_t* to)    into such memory. wait
//   void upload(const E* from, view), upload(from, n, f)       from there. wait
// and, where p-steps of members have other bits,
//   void compute_as_member(blocks)                             its p-steps have those bits, too, for so many blocks
template <class Home>
concept RingHome = large::LargeBackend<Home> &&
    requires(Home& h, large::LargeView<typename Home::Element> a, typename Home::Element* to, int32_t* f) {
  { h.checkpoint_memory(uint64_t{}) } -> std::same_as<std::shared_ptr<void>>;
  { Home::checkpoint_ld(int64_t{}) } -> std::same_as<int64_t>;
  h.download(a, to);
  h.download(f, int64_t{}, f);
  h.upload(to, a);
  h.upload(f, int64_t{}, f);
};

// The history of a ring.
struct RingReport {
  int members = 1;  // of the last sweep
  int lost = 0;
  int not_made = 0;  // rings for which there were no members
  int swaps = 0;     // of all members at once
  int checkpoints = 0;
  int64_t repeated = 0;  // p-steps that lost members had, or should have had
  std::string last_failure;
};

template <RingHome Home, RingMember Member>
class RingBackend {
 public:
  using Element = typename Home::Element;
  using E = Element;
  using View = large::LargeView<E>;
  using Order = std::vector<int64_t>;
  // A group of p-steps ends when the last member has ended its part, and the next one begins then.
  static constexpr double kGroupSeconds = 0.1;
  // New members for these devices, which are numbers that the maker knows. Throws LargeStop where it cannot make them all.
  using Maker = std::function<Members<Member>(const std::vector<int>& devices)>;
  struct Settings {
    int members = 1;  // is_ring_size(); the devices are 0 .. members - 1
    std::chrono::milliseconds deadline{600'000};
    bool checkpoints = true;                       // after each sweep; else a loss costs all sweeps
    std::optional<large::WorkSpeeds> speeds = {};  // of the ring, for the progress; none: Home's
  };

  // home and watch must outlive it.
  RingBackend(Home& home, Maker make, const Settings& settings, const large::LargeWatch& watch)
      : home_(home), make_(std::move(make)), settings_(settings), watch_(watch) {
    for (int device = 0; device < settings.members; ++device) devices_.push_back(device);
  }

  const RingReport& report() const { return report_; }
  // Adds the ring's part to the outcome of a matrix.
  void tell(LargeOutcome& outcome) const {
    outcome.members = report_.members;
    const bool has_results = outcome.status == LargeStatus::kOk || outcome.status == LargeStatus::kNotConverged;
    if (!has_results || report_.lost + report_.not_made == 0) return;
    outcome.device_lost = report_.lost > 0;
    outcome.detail = report_.last_failure;
  }

  // --- Home's, as they are --------------------------------------------------------------------------------------------

  View matrix(int64_t rows, int64_t cols) { return home_.matrix(rows, cols); }
  int32_t* exponents(int64_t n) { return home_.exponents(n); }
  E* scalars(int64_t n) { return home_.scalars(n); }
  int64_t block_width(int64_t n) const { return home_.block_width(n); }
  void release(E* scalars) { home_.release(scalars); }
  void release(int32_t* f) { at_home().release(f); }
  void release(View view) { at_home().release(view); }
  void stage(const char* name) { home_.stage(name); }
  void sync() { at_home().sync(); }
  large::WorkSpeeds work_speeds() const { return settings_.speeds ? *settings_.speeds : home_.work_speeds(); }
  auto tall_operand(const LargePlan& plan, const LargeOperands& operands) requires requires(Home& home) {
    home.tall_operand(plan, operands);
  }
  { return home_.tall_operand(plan, operands); }

  // --- Home's, once the matrix is back --------------------------------------------------------------------------------

  large::LoadReport load(const void* matrix, const Problem& problem, bool adjoint, View a) {
    return at_home().load(matrix, problem, adjoint, a);
  }
  void store(View a, bool adjoint, void* matrix, const Problem& p) { at_home().store(a, adjoint, matrix, p); }
  void mirror_lower(View a) { at_home().mirror_lower(a); }
  void normalize_columns(View x, int32_t* f, bool keep) { at_home().normalize_columns(x, f, keep); }
  auto column_norms(View x, const int32_t* f) { return at_home().column_norms(x, f); }
  auto column_products(View a, View b) { return at_home().column_products(a, b); }
  auto row_maxima(View a) { return at_home().row_maxima(a); }
  auto diagonal(View a) { return at_home().diagonal(a); }
  void permute_rows(View a, const Order& order) { at_home().permute_rows(a, order); }
  void permute_columns(View a, const Order& order) { at_home().permute_columns(a, order); }
  void permute_exponents(int32_t* f, const Order& order) { at_home().permute_exponents(f, order); }
  int32_t apply_exponents(View x, int32_t* f) { return at_home().apply_exponents(x, f); }
  void scale_columns(View x, const std::vector<double>& multipliers) { at_home().scale_columns(x, multipliers); }
  void set_identity(View a) { at_home().set_identity(a); }
  void set_zero(View a) { at_home().set_zero(a); }
  void copy(View a, View b) { at_home().copy(a, b); }
  void copy_exponents(const int32_t* f, int32_t* g, int64_t n) { at_home().copy_exponents(f, g, n); }
  void qr(View a, E* tau, const large::PartDone& done = {}) { at_home().qr(a, tau, done); }
  void apply_q(large::Op op, View a, E* tau, View c, const large::PartDone& done = {}) {
    at_home().apply_q(op, a, tau, c, done);
  }
  void adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f) { at_home().adjoint_of_triangle(r, e, x, f); }
  void copy_triangle(View r, View x) { at_home().copy_triangle(r, x); }
  void gemm(large::Op op_a, large::Op op_b, double alpha, View a, View b, double beta, View c) {
    at_home().gemm(op_a, op_b, alpha, a, b, beta, c);
  }
  void herk(View a, View c) { at_home().herk(a, c); }
  void solve_lower(View l, View b) { at_home().solve_lower(l, b); }
  void scale_solution(const int32_t* f, const int32_t* g, View w) { at_home().scale_solution(f, g, w); }
  double square_bound(View a) { return at_home().square_bound(a); }
  std::vector<int8_t> indefinite_factor(View m, View g, const large::PartDone& done) {
    return at_home().indefinite_factor(m, g, done);
  }
  bool eigenbasis(View g, View v, large::Precision precision, const large::PartDone& done = {}) {
    return at_home().eigenbasis(g, v, precision, done);
  }
  bool cholesky(View a) { return at_home().cholesky(a); }
  double distance_from_signature(View a, int64_t positive) { return at_home().distance_from_signature(a, positive); }
  View park(View a) requires large::kParks<Home> { return at_home().park(a); }
  View unpark(View a) requires large::kParks<Home> { return at_home().unpark(a); }
  static constexpr int64_t kGroupOfLines = large::kGroupOf<Home>;
  bool is_parked(View a) const requires large::kParks<Home> { return home_.is_parked(a); }
  // States, as Home has them. Those of Home alone have another sweep.
  std::string identity() const requires requires(const Home& home) { home.identity(); }
  {
    const std::string of_home = home_.identity();
    return of_home.empty() ? "" : "ring, " + of_home;
  }
  uint64_t scalar_bytes(int64_t n) const { return home_.scalar_bytes(n); }
  // Writing only reads, so that the members keep what they have.
  template <class... What>
  void write_out(const What&... what) {
    bring_home();
    home_.write_out(what...);
  }
  template <class... What>
  void read_in(const What&... what) {
    at_home().read_in(what...);
  }
  // Only reads, too.
  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
    bring_home();
    return home_.block_cosines(x, width, first, count, cosines);
  }

  // --- the sweeps -----------------------------------------------------------------------------------------------------

  std::vector<large::PivotSweep> pivot_sweep_in_parts(PivotStrategy strategy, int blocks) {
    cut_ = large::can_be_cut(strategy);
    if (cut_ && blocks >= 2) return large::super_block_sweep(blocks);
    return {large::pivot_sweep(strategy, blocks)};
  }

  void p_step(const large::PStep<E>& step) {
    if (!cut_) return home_.p_step(step);
    if (!matrix_ || !matrix_->is_of(step)) distribute(step);
    if (is_alone_) return home_.p_step(step);
    log_.push_back({step, {step.pairs, step.pairs + step.count}});
    is_home_ = false;
  }

  void reset_counters() {
    if (matrix_) {
      keep_up([&] {
        catch_up();
        if (settings_.checkpoints) make_checkpoint();
      });
    }
    home_.reset_counters();
    counted_from_ = log_.size();
    counters_ = counted_before_ = {};
  }

  large::PStepCounters read_counters() {
    if (!cut_) return home_.read_counters();
    if (matrix_) keep_up([&] { catch_up(); });
    if (is_alone_) {
      counters_ = counted_before_;
      add(home_.read_counters(), counters_);
    }
    return counters_;
  }

  std::vector<LargePhaseTime> phases() {
    std::vector<LargePhaseTime> phases = at_home().phases();
    phases.insert(phases.end(), phases_.begin(), phases_.end());
    return phases;
  }

 private:
  struct LoggedStep {
    large::PStep<E> step;  // without pairs
    std::vector<large::BlockPair> pairs;
  };
  // The matrix that the members have.
  struct Distributed {
    View x, v;
    int32_t* f = nullptr;
    int64_t width = 0;
    double tolerance = 0;
    bool is_of(const large::PStep<E>& step) const {
      return x.data == step.x.data && f == step.f && v.data == step.v.data && width == step.width &&
             tolerance == step.tolerance && x.cols == step.x.cols;
    }
  };
  using Shared = RingRun<Member>;
  // A member failed, and others are left.
  struct Lost {};

  Home& at_home() {
    bring_home();
    forget();
    return home_;
  }

  // Home has the matrix, too.
  void bring_home() {
    if (!matrix_ || is_home_) return;
    keep_up([&] {
      catch_up();
      make_checkpoint();
    });
    if (!is_alone_) take_home();
  }

  // Home has what the checkpoint has.
  void take_home() {
    home_.upload(checkpoint_->x, matrix_->x);
    home_.upload(checkpoint_->f, matrix_->x.cols, matrix_->f);
    if (matrix_->v) home_.upload(checkpoint_->v, matrix_->v);
    is_home_ = true;
  }

  void forget() {
    if (!matrix_) return;
    for (const auto& member : members_) tell_phases(*member);
    give_members_up();
    checkpoint_.reset();
    spare_.reset();
    clear_log();
    matrix_.reset();
    is_alone_ = false;
  }

  void give_members_up() {
    members_.clear();
    layout_.reset();
    unions_.reset();
    done_ = handed_out_ = 0;
  }

  void clear_log() {
    log_.clear();
    done_ = handed_out_ = counted_from_ = 0;
  }

  void tell_phases(Member& member) {
    std::vector<LargePhaseTime> own;
    member.tell(own);
    for (const LargePhaseTime& phase : own) {
      auto at = std::find_if(phases_.begin(), phases_.end(), [&](const auto& p) { return p.name == phase.name; });
      if (at == phases_.end()) at = phases_.insert(at, {phase.name, 0, 0});
      at->seconds += phase.seconds / static_cast<double>(members_.size());
      at->flops += phase.flops;
    }
  }

  void distribute(const large::PStep<E>& step) {
    (void)at_home();
    matrix_ = std::make_unique<Distributed>(Distributed{step.x, step.v, step.f, step.width, step.tolerance});
    checkpoint_ = new_checkpoint();
    home_.download(step.x, checkpoint_->x);
    home_.download(step.f, step.x.cols, checkpoint_->f);
    if (step.v) home_.download(step.v, checkpoint_->v);
  }

  std::shared_ptr<Checkpoint<E>> new_checkpoint() const {
    return std::make_shared<Checkpoint<E>>(Home::checkpoint_ld(matrix_->x.rows),
                                           matrix_->v ? Home::checkpoint_ld(matrix_->v.rows) : 0, matrix_->x.cols,
                                           [&](uint64_t bytes) { return home_.checkpoint_memory(bytes); });
  }

  // f(), by the members that are left, until none of them fails.
  template <class F>
  void keep_up(const F& f) {
    for (;;) {
      try {
        return f();
      } catch (const Lost&) {
        report_.repeated += static_cast<int64_t>(handed_out_);
        give_members_up();
      }
    }
  }

  // The largest ring of the first devices whose new members can be made; none: there are no members.
  void make_members() {
    for (std::vector<int> devices = devices_; !devices.empty(); devices.pop_back()) {
      if (!is_ring_size(static_cast<int>(devices.size()))) continue;
      try {
        members_ = make_(devices);
        return;
      } catch (const large::LargeStop& stop) {
        if (stop.device_lost || stop.status == LargeStatus::kCancelled) throw;
        ++report_.not_made;
        report_.last_failure = stop.detail;
      }
    }
  }

  // Members, or Home alone, have what the checkpoint has.
  void take_checkpoint() {
    make_members();
    report_.members = std::max(1, static_cast<int>(members_.size()));
    if (members_.empty()) return go_on_alone();
    unions_ = std::make_unique<Unions>(report_.members, matrix_->x.cols, matrix_->width);
    layout_ = std::make_unique<RingLayout>(*unions_);
    const auto shared = share();
    shared->checkpoint = checkpoint_;
    const RingShape shape{matrix_->x.rows, matrix_->v ? matrix_->v.rows : 0,
                          matrix_->x.cols, unions_->most_columns(),
                          matrix_->width,  matrix_->tolerance};
    run(*shared, [shared, shape](int m, MeetingPlace& place) {
      Member& member = *shared->members[static_cast<size_t>(m)];
      member.reserve(shape);
      shared->for_slots(m, place,
                        [&](const UnionPlace& at, const RingColumns<E>& columns) { member.take(at, columns); });
    });
  }

  // Home computes what was written down, and all p-steps from now on.
  void go_on_alone() {
    is_alone_ = true;
    take_home();
    if constexpr (requires { home_.compute_as_member(int64_t{}); }) {
      home_.compute_as_member((matrix_->x.cols + matrix_->width - 1) / matrix_->width);
    }
    for (size_t i = 0; i < log_.size(); ++i) {
      if (i == counted_from_) home_.reset_counters();
      log_[i].step.pairs = log_[i].pairs.data();
      home_.p_step(log_[i].step);
      home_.sync();
      watch_.check();
    }
    if (counted_from_ == log_.size()) home_.reset_counters();
    clear_log();
    checkpoint_.reset();
    spare_.reset();
  }

  // All that was written down is computed.
  void catch_up() {
    if (is_alone_) return;
    if (!layout_) take_checkpoint();
    if (is_alone_) return;
    if (done_ < counted_from_) compute(counted_from_);
    if (done_ < log_.size()) compute(log_.size());
  }

  // The p-steps that are written down before `end`.
  void compute(size_t end) {
    const auto shared = share();
    shared->counts_anew = done_ == 0 || done_ == counted_from_;
    const int swaps = layout_->swaps();
    for (size_t i = done_; i < end; ++i) {
      layout_->append(i - done_, log_[i].pairs, shared->programs);
      shared->steps.push_back(log_[i].step);
    }
    handed_out_ = end;
    run(*shared, [shared](int m, MeetingPlace& place) { shared->compute(m, place); });
    report_.swaps += layout_->swaps() - swaps;
    done_ = end;
    counters_ = counted_before_;
    for (const large::PStepCounters& counters : shared->counters) add(counters, counters_);
  }

  // After catch_up().
  void make_checkpoint() {
    if (is_alone_ || log_.empty()) return;
    if (spare_ == nullptr || spare_.use_count() > 1) spare_ = new_checkpoint();  // a thread left behind may write to it
    const auto shared = share();
    shared->checkpoint = spare_;
    run(*shared, [shared](int m, MeetingPlace& place) {
      Member& member = *shared->members[static_cast<size_t>(m)];
      shared->for_slots(m, place,
                        [&](const UnionPlace& at, const RingColumns<E>& columns) { member.give(at, columns); });
    });
    std::swap(checkpoint_, spare_);
    ++report_.checkpoints;
    counted_before_ = counters_;
    clear_log();
  }

  std::shared_ptr<Shared> share() const {
    const auto shared = std::make_shared<Shared>(members_, *unions_);
    for (size_t m = 0; m < members_.size(); ++m) shared->slots[m] = layout_->slots(static_cast<int>(m));
    return shared;
  }

  template <class F>
  void run(const Shared& shared, const F& f) {
    const auto stop = [&] {
      if (!watch_.cancelled()) return false;
      for (const auto& member : shared.members) member->stop();
      return true;
    };
    const auto failures = run_members(static_cast<int>(shared.members.size()), settings_.deadline, stop, f);
    if (failures.empty()) return;
    for (auto failure = failures.rbegin(); failure != failures.rend(); ++failure) {
      shared.members[static_cast<size_t>(failure->member)]->stop();
      devices_.erase(devices_.begin() + failure->member);
      ++report_.lost;
      report_.last_failure = failure->detail;
    }
    if (devices_.empty()) {
      throw large::LargeStop{LargeStatus::kFault, "no member is left: " + report_.last_failure, true};
    }
    throw Lost();
  }

  static void add(const large::PStepCounters& from, large::PStepCounters& to) {
    to.rotations += from.rotations;
    to.proper_rotations += from.proper_rotations;
    to.active_pairs += from.active_pairs;
    to.pairs += from.pairs;
    to.largest_cosine = std::max(to.largest_cosine, from.largest_cosine);
    to.zero_column |= from.zero_column;
  }

  Home& home_;
  const Maker make_;
  const Settings settings_;
  const large::LargeWatch& watch_;
  std::vector<int> devices_;  // that have not failed; the first of them are the members
  bool cut_ = true;           // the strategy can be
  RingReport report_;
  std::vector<LargePhaseTime> phases_;

  std::unique_ptr<Distributed> matrix_;
  bool is_home_ = false;   // Home has it, too
  bool is_alone_ = false;  // Home has it, and there are no members
  std::shared_ptr<Checkpoint<E>> checkpoint_, spare_;
  std::vector<LoggedStep> log_;  // since the checkpoint
  size_t done_ = 0;              // of log_, by these members
  size_t handed_out_ = 0;        // of log_, to these members
  size_t counted_from_ = 0;      // the first of log_ since reset_counters()
  large::PStepCounters counters_, counted_before_;
  Members<Member> members_;
  std::unique_ptr<Unions> unions_;
  std::unique_ptr<RingLayout> layout_;
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_RING_BACKEND_H_
