// The back end of block_jacobi.h (contracts: large_backend.h) for a matrix that does not fit a device's memory. Matrices
// lie in the host's memory, and a device computes on panels of them.
//
//   Inner    a LargeBackend with write_out(), read_in() and scalar_bytes(), whose memory is the device's. It computes all
//            entries, and has the exponents of columns and the scalars of QRs
// The device needs room for kLeastPanels panels, each a sixteenth of a matrix; more room saves transfers. The bits depend
// neither on it nor on what the device had before. They differ from Inner's own, since its products are of other shapes.
// There is no eigenbasis and no Cholesky factorization here: the driver goes on by QR, as where these fail.
// Transfers are not hidden behind products. A sweep moves 4 matrices each way where there is room for two quarters of X,
// and of V. Its products take n / 27 000 times as long, by count of 6 n^3 operations at 45 Tflop/s and 18 GB/s.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_BACKEND_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_BACKEND_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/streamed/operand_panels.h"
#include "engine/backends/streamed/panel_store.h"
#include "engine/backends/streamed/streamed_products.h"
#include "engine/backends/streamed/streamed_sweeps.h"

namespace svdserve::streamed {

// A pair of super-blocks of X and of V, beside the panels of an operation, and as many to let go.
inline constexpr int kLeastPanels = 8;

template <class Inner>
class StreamedBackend {
 public:
  using Element = typename Inner::Element;
  using E = Element;
  using View = large::LargeView<E>;
  using Order = std::vector<int64_t>;

  // room: bytes of matrices on the device, of kLeastPanels panels or more. inner and watch must outlive it.
  StreamedBackend(Inner& inner, uint64_t room, const large::LargeWatch& watch)
      : inner_(inner), store_(inner, room, watch), products_(inner, store_), sweeps_(inner, store_) {}

  // --- memory ---------------------------------------------------------------------------------------------------------

  View matrix(int64_t rows, int64_t cols) { return store_.matrix(rows, cols); }
  void release(View view) { settled().release(view); }
  int32_t* exponents(int64_t n) { return inner_.exponents(n); }
  void release(int32_t* f) {
    (void)settled();
    inner_.release(f);
  }
  E* scalars(int64_t n) { return inner_.matrix(std::max<int64_t>(products_.scalars_of(n), 1), 1).data; }
  void release(E* scalars) { inner_.release(View{scalars, 0, 1, 1}); }
  int64_t block_width(int64_t n) const { return inner_.block_width(n); }
  void stage(const char* name) { inner_.stage(name); }
  void sync() { inner_.sync(); }
  large::WorkSpeeds work_speeds() const {
    large::WorkSpeeds speeds = inner_.work_speeds();
    speeds.reads_in_place = false;
    return speeds;
  }
  std::vector<LargePhaseTime> phases() { return inner_.phases(); }
  // Products go by panels as it is. Larger groups would take more of the host's memory, and fewer transfers.
  static constexpr int64_t kGroupOfLines = 16384;

  // --- operands and results -------------------------------------------------------------------------------------------

  large::LoadReport load(const void* matrix, const Problem& problem, bool adjoint, View a) {
    OperandPanels operand(problem, adjoint);
    const auto* const from = static_cast<const char*>(matrix);
    FirstBad first_bad{problem.order == svdserve::Order::kRowMajor};
    const Range whole = {0, a.rows};
    for (const Range& j : settled().pieces(a)) {
      if (!operand.turned()) {
        first_bad.add(inner_.load(operand.line(from, j.first), operand.part(j, whole), adjoint, use(a, j, Use::kSet)),
                      j, whole);
        continue;
      }
      for_rows(a, operand.rows_at_once(j.count), [&](Range i) {
        const View rows = store_.use(a.block(i.first, j.first, i.count, j.count), Use::kChange);
        first_bad.add(inner_.load(operand.gather(from, i, j), operand.part(i, j), adjoint, rows), i, j);
      });
    }
    return first_bad.report;
  }

  void store(View a, bool adjoint, void* matrix, const Problem& problem) {
    OperandPanels result(problem, adjoint);
    auto* const to = static_cast<char*>(matrix);
    const Range whole = {0, a.rows};
    for (const Range& j : settled().pieces(a)) {
      if (!result.turned()) {
        inner_.store(use(a, j, Use::kRead), adjoint, result.line(to, j.first), result.part(j, whole));
        continue;
      }
      for_rows(a, result.rows_at_once(j.count), [&](Range i) {
        inner_.store(store_.use(a.block(i.first, j.first, i.count, j.count), Use::kRead), adjoint, result.buffer(i, j),
                     result.part(i, j));
        result.scatter(to, i, j);
      });
    }
  }

  // --- columns and their exponents ------------------------------------------------------------------------------------

  void normalize_columns(View x, int32_t* f, bool keep) {
    for (const Range& j : settled().pieces(x)) inner_.normalize_columns(use(x, j, Use::kChange), f + j.first, keep);
  }
  std::vector<large::ScaledNorm> column_norms(View x, const int32_t* f) {
    return of_columns<large::ScaledNorm>(
        x, [&](Range j, View columns) { return inner_.column_norms(columns, f != nullptr ? f + j.first : nullptr); });
  }
  std::vector<double> column_products(View a, View b) {
    std::vector<double> result;
    for (const Range& j : settled().pieces(a, b)) {
      const std::vector<double> own = inner_.column_products(use(a, j, Use::kRead), use(b, j, Use::kRead));
      result.insert(result.end(), own.begin(), own.end());
    }
    return result;
  }
  std::vector<double> row_maxima(View a) {
    std::vector<double> result(static_cast<size_t>(a.rows), 0);
    for (const Range& j : settled().pieces(a)) {
      const std::vector<double> own = inner_.row_maxima(use(a, j, Use::kRead));
      for (size_t i = 0; i < own.size(); ++i) result[i] = std::max(result[i], own[i]);
    }
    return result;
  }
  std::vector<double> diagonal(View a) {
    std::vector<double> result;
    for (const Range& j : settled().pieces(a)) {
      const int64_t count = std::min(j.count, a.rows - j.first);
      if (count <= 0) break;
      const auto own = inner_.diagonal(store_.use(a.block(j.first, j.first, count, count), Use::kRead));
      result.insert(result.end(), own.begin(), own.end());
    }
    return result;
  }
  int32_t apply_exponents(View x, int32_t* f) {
    if (x.cols == 0) return 0;
    std::vector<int32_t> exponents = read(f, x.cols);
    int32_t largest = *std::max_element(exponents.begin(), exponents.end());
    if (largest == large::kZeroColumn) largest = 0;
    for (const Range& j : settled().pieces(x)) {
      std::vector<double> powers;
      for (int64_t c = j.first; c < j.end(); ++c) powers.push_back(power(exponents[static_cast<size_t>(c)], largest));
      inner_.scale_columns(use(x, j, Use::kChange), powers);
    }
    std::fill(exponents.begin(), exponents.end(), largest);
    write(exponents, f);
    return largest;
  }
  void scale_columns(View x, const std::vector<double>& multipliers) {
    for (const Range& j : settled().pieces(x)) {
      const auto first = multipliers.begin() + j.first;
      inner_.scale_columns(use(x, j, Use::kChange), {first, first + j.count});
    }
  }
  void scale_solution(const int32_t* f, const int32_t* g, View w) {
    for (const Range& j : settled().pieces(w)) inner_.scale_solution(f, g + j.first, use(w, j, Use::kChange));
  }

  // --- permutations and copies ----------------------------------------------------------------------------------------

  void permute_rows(View a, const Order& perm) {
    if (a.rows == 0 || std::is_sorted(perm.begin(), perm.end())) return;
    for (const Range& j : settled().pieces(a)) inner_.permute_rows(use(a, j, Use::kChange), perm);
  }
  // In the host's memory, cycle by cycle.
  void permute_columns(View a, const Order& perm) {
    if (a.rows == 0 || std::is_sorted(perm.begin(), perm.end())) return;
    settled().to_host(a, true);
    const auto column = [&](int64_t j) { return a.data + j * a.ld; };
    std::vector<E> kept(static_cast<size_t>(a.rows));
    std::vector<bool> done(perm.size(), false);
    for (size_t first = 0; first < perm.size(); ++first) {
      if (done[first] || perm[first] == static_cast<int64_t>(first)) continue;
      copy_column(column(static_cast<int64_t>(first)), kept.data(), a.rows);
      auto at = static_cast<int64_t>(first);
      for (int64_t from = perm[first]; from != static_cast<int64_t>(first); from = perm[static_cast<size_t>(at)]) {
        copy_column(column(from), column(at), a.rows);
        done[static_cast<size_t>(at)] = true;
        at = from;
      }
      copy_column(kept.data(), column(at), a.rows);
      done[static_cast<size_t>(at)] = true;
    }
  }
  void permute_exponents(int32_t* f, const Order& perm) { inner_.permute_exponents(f, perm); }
  void copy_exponents(const int32_t* f, int32_t* g, int64_t n) {
    (void)settled();
    inner_.copy_exponents(f, g, n);
  }
  void copy(View a, View b) {
    if (a.rows == 0) return;
    for (const Range& j : settled().pieces(a, b)) inner_.copy(use(a, j, Use::kRead), use(b, j, Use::kSet));
  }
  void set_zero(View a) {
    if (a.rows == 0) return;
    for (const Range& j : settled().pieces(a)) inner_.set_zero(use(a, j, Use::kSet));
  }
  void set_identity(View a) {
    set_zero(a);
    for (const Range& j : store_.pieces(a)) {
      const int64_t count = std::min(j.count, a.rows - j.first);
      if (count > 0) inner_.set_identity(store_.use(a.block(j.first, j.first, count, count), Use::kChange));
    }
  }

  // --- factorizations and products ------------------------------------------------------------------------------------

  void qr(View a, E* tau, const large::PartDone& done = {}) {
    (void)settled();
    products_.qr(a, tau, done);
  }
  void apply_q(large::Op op, View a, E* tau, View c, const large::PartDone& done = {}) {
    (void)settled();
    products_.apply_q(op, a, tau, c, done);
  }
  // Panel J of x from the rows J of r, which are gathered: an upper trapezoid.
  void adjoint_of_triangle(View r, const int32_t* e, View x, int32_t* f) {
    for (const Range& j : settled().pieces(x)) {
      const int64_t left = x.cols - j.first;
      const View rows = store_.take_workspace(j.count, left);
      for (const Range& k : store_.pieces(r.columns(j.first, left))) {
        inner_.copy(store_.use(r.block(j.first, j.first + k.first, j.count, k.count), Use::kRead),
                    rows.columns(k.first, k.count));
      }
      const View panel = use(x, j, Use::kSet);
      if (j.first > 0) inner_.set_zero(panel.block(0, 0, j.first, j.count));
      inner_.adjoint_of_triangle(rows, e != nullptr ? e + j.first : nullptr, panel.block(j.first, 0, left, j.count),
                                 f + j.first);
      store_.give_workspace(rows);
    }
  }
  void copy_triangle(View r, View x) {
    for (const Range& j : settled().pieces(r.columns(0, x.cols), x)) {
      const View from = store_.use(r.block(0, j.first, x.rows, j.count), Use::kRead), to = use(x, j, Use::kSet);
      if (j.first > 0) inner_.copy(from.block(0, 0, j.first, j.count), to.block(0, 0, j.first, j.count));
      inner_.copy_triangle(from.block(j.first, 0, j.count, j.count), to.block(j.first, 0, j.count, j.count));
      const int64_t below = x.rows - j.end();
      if (below > 0) inner_.set_zero(to.block(j.end(), 0, below, j.count));
    }
  }
  void gemm(large::Op op_a, large::Op op_b, double alpha, View a, View b, double beta, View c) {
    (void)settled();
    products_.gemm(op_a, op_b, alpha, a, b, beta, c);
  }
  void herk(View a, View c) {
    (void)settled();
    products_.herk(a, c);
  }
  void solve_lower(View l, View b) {
    (void)settled();
    products_.solve_lower(l, b);
  }
  bool eigenbasis(View /*g*/, View /*v*/, large::Precision /*precision*/, const large::PartDone& = {}) { return false; }
  bool cholesky(View /*a*/) { return false; }
  double distance_from_signature(View a, int64_t positive) {
    double sum = 0;
    for (const Range& j : settled().pieces(a)) {
      const View panel = use(a, j, Use::kRead);
      const View own = panel.block(j.first, 0, j.count, j.count);
      const double distance = inner_.distance_from_signature(own, std::clamp(positive - j.first, int64_t{0}, j.count));
      sum += distance * distance;
      for (const Range& i : {Range{0, j.first}, Range{j.end(), a.rows - j.end()}}) {
        for (const large::ScaledNorm& norm : inner_.column_norms(panel.block(i.first, 0, i.count, j.count), nullptr)) {
          const double x = std::ldexp(norm.mantissa, norm.exponent);
          sum += x * x;
        }
      }
    }
    return std::sqrt(sum);
  }

  // --- the sweeps -----------------------------------------------------------------------------------------------------

  static std::vector<large::PivotSweep> pivot_sweep_in_parts(PivotStrategy strategy, int blocks) {
    if (large::can_be_cut(strategy) && blocks >= 2) return sweep_by_super_blocks(blocks);
    return {large::pivot_sweep(strategy, blocks)};
  }
  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
    if (first == 0) (void)settled();
    return sweeps_.block_cosines(x, width, first, count, cosines);
  }
  void p_step(const large::PStep<E>& step) { sweeps_.p_step(step); }
  // Begins a sweep. Its counts must not depend on whether a state was written before it, and pairs were forgotten.
  void reset_counters() {
    sweeps_.forget_pairs();
    inner_.reset_counters();
  }
  large::PStepCounters read_counters() { return inner_.read_counters(); }

  // --- rings (backends/ring/ring_backend.h) -----------------------------------------------------------------------------

  // The host's, which Inner may pin for its device's sake.
  static std::shared_ptr<void> checkpoint_memory(uint64_t bytes) {
    std::shared_ptr<char> pages = host_pages<char>(bytes);
    if constexpr (requires { Inner::pinned(pages, bytes); }) pages = Inner::pinned(pages, bytes);
    return pages;
  }
  static int64_t checkpoint_ld(int64_t rows) { return Inner::checkpoint_ld(rows); }
  void download(View a, E* to) {
    settled().to_host(a, false);
    const int64_t ld = checkpoint_ld(a.rows);
    for_columns_by_threads(a.cols, [&](int64_t j) { copy_column(a.data + j * a.ld, to + j * ld, a.rows); });
  }
  void upload(const E* from, View a) {
    settled().to_host(a, true);
    const int64_t ld = checkpoint_ld(a.rows);
    for_columns_by_threads(a.cols, [&](int64_t j) { copy_column(from + j * ld, a.data + j * a.ld, a.rows); });
  }
  void download(const int32_t* f, int64_t n, int32_t* to) {
    (void)settled();
    inner_.download(f, n, to);
  }
  void upload(const int32_t* from, int64_t n, int32_t* f) { inner_.upload(from, n, f); }
  void compute_as_member(int64_t blocks) requires requires(Inner& inner) { inner.compute_as_member(int64_t{}); }
  { inner_.compute_as_member(blocks); }

  // --- states ---------------------------------------------------------------------------------------------------------

  std::string identity() const {
    const std::string of_inner = inner_.identity();
    return of_inner.empty() ? "" : "streamed, " + of_inner;
  }
  uint64_t scalar_bytes(int64_t n) const { return static_cast<uint64_t>(products_.scalars_of(n)) * sizeof(E); }
  template <class Take>
  void write_out(const void* memory, uint64_t bytes, const Take& take) {
    (void)settled();
    inner_.write_out(memory, bytes, take);
  }
  template <class Fill>
  void read_in(void* memory, uint64_t bytes, const Fill& fill) {
    (void)settled();
    inner_.read_in(memory, bytes, fill);
  }
  template <class Take>
  void write_out(View a, const Take& take) {
    settled().to_host(a, false);
    for (int64_t j = 0; j < a.cols; ++j) take(a.data + j * a.ld, static_cast<uint64_t>(a.rows) * sizeof(E));
  }
  template <class Fill>
  void read_in(View a, const Fill& fill) {
    settled().to_host(a, true);
    for (int64_t j = 0; j < a.cols; ++j) fill(a.data + j * a.ld, static_cast<uint64_t>(a.rows) * sizeof(E));
  }

 private:
  // The first entry that is not finite, in the operand's order of storage.
  struct FirstBad {
    bool by_rows;
    large::LoadReport report = {};

    // of: the report of these lines of the operand and these entries of each.
    void add(large::LoadReport of, Range lines, Range of_line) {
      if (of.finite) return;
      of.row += by_rows ? lines.first : of_line.first;
      of.col += by_rows ? of_line.first : lines.first;
      const auto place = [&](const large::LoadReport& r) {
        return by_rows ? std::pair(r.row, r.col) : std::pair(r.col, r.row);
      };
      if (report.finite || place(of) < place(report)) report = of;
    }
  };

  // The store, once the sweeps have given back what they have.
  PanelStore<Inner>& settled() {
    sweeps_.leave();
    return store_;
  }

  // f(j) for all columns, on several threads: one copies 5 GB/s.
  template <class F>
  static void for_columns_by_threads(int64_t columns, const F& f) {
    constexpr int64_t kLeastColumns = 64;  // of a thread
    const int64_t most = std::min<int64_t>(8, std::max(1u, std::thread::hardware_concurrency()));
    const int64_t threads = std::clamp(columns / kLeastColumns, int64_t{1}, most);
    const auto part = [&](int64_t thread) {
      for (int64_t j = columns * thread / threads; j < columns * (thread + 1) / threads; ++j) f(j);
    };
    std::vector<std::jthread> others;
    int64_t begun = 1;
    try {
      for (; begun < threads; ++begun) others.emplace_back(part, begun);
    } catch (const std::system_error&) {
      // Where the system has no thread left, this one has the rest.
    }
    part(0);
    for (; begun < threads; ++begun) part(begun);
  }

  static void copy_column(const E* from, E* to, int64_t rows) {
    std::memcpy(static_cast<void*>(to), from, static_cast<size_t>(rows) * sizeof(E));
  }

  View use(View a, Range columns, Use how) { return store_.use(a.columns(columns.first, columns.count), how); }

  template <class F>
  static void for_rows(View a, int64_t at_once, const F& f) {
    for (int64_t first = 0; first < a.rows; first += at_once) f(Range{first, std::min(at_once, a.rows - first)});
  }

  // f(range, columns) of all panels, one after another.
  template <class T, class F>
  std::vector<T> of_columns(View a, const F& f) {
    std::vector<T> result;
    for (const Range& j : settled().pieces(a)) {
      const std::vector<T> own = f(j, use(a, j, Use::kRead));
      result.insert(result.end(), own.begin(), own.end());
    }
    return result;
  }

  // 2^(f - largest); 0 where that underflows, or the column is zero.
  static double power(int32_t f, int32_t largest) { return f == large::kZeroColumn ? 0 : std::ldexp(1.0, f - largest); }

  std::vector<int32_t> read(const int32_t* f, int64_t n) {
    std::vector<int32_t> result(static_cast<size_t>(n));
    auto* to = reinterpret_cast<char*>(result.data());
    write_out(f, static_cast<uint64_t>(n) * sizeof(int32_t), [&](const void* piece, uint64_t bytes) {
      std::memcpy(to, piece, bytes);
      to += bytes;
    });
    return result;
  }
  void write(const std::vector<int32_t>& from, int32_t* f) {
    const auto* next = reinterpret_cast<const char*>(from.data());
    inner_.read_in(f, from.size() * sizeof(int32_t), [&](void* piece, uint64_t bytes) {
      std::memcpy(piece, next, bytes);
      next += bytes;
    });
  }

  Inner& inner_;
  PanelStore<Inner> store_;
  StreamedProducts<Inner> products_;
  StreamedSweeps<Inner> sweeps_;
};

}  // namespace svdserve::streamed
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_BACKEND_H_
