// Requirements of block_jacobi.h, leading_triplets.h and hermitian_tridiagonal.h, the drivers, on a back end: operations on matrices in its
// own memory. The driver decides, the back end computes; no other code of a driver touches an entry of a matrix there.
//
// Matrices are column-major with elements E: double or a complex number of two doubles, whatever the operand's type.
// A view is a pointer into the back end's memory with a shape; the driver cuts views but never follows the pointer.
//
// Columns that carry exponents. Columns of very different size would overflow or underflow in a Gram matrix. So a
// scaled matrix is a pair (x, f): column j of the matrix is 2^f[j] x(:, j), and |x(:, j)|_2 is in [1/2, 2) or zero,
// whatever its true size. f is an array of int32_t in the back end's memory; of a zero column f is kZeroColumn. That is
// exact: scaling by powers of two rounds nothing (but what is negligible within its column and underflows).
// Sources: Novakovic (2015), SIAM J. Sci. Comput. 37, C1-C30, appendix A (DRDSSQ: norms as pairs of
// mantissa and exponent) and section 4; Novakovic and Singer (2011), BIT 51, 1009-1030.
//
// Order of calls. Each call sees the results of those before it. Calls that return nothing may return before they are
// done (a GPU's stream); calls that return a value, and sync(), wait. Every call may throw LargeStop, and does so for
// errors of the device, for want of memory, and for a cancel. A call that takes longer than about 0.2 s polls
// LargeWatch::check() on the way. After that the back end is only destroyed. Host arrays that are arguments may be
// freed when the call returns.
// Same arguments, same bits: on one back end with one number of threads.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_BACKEND_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_BACKEND_H_

#include <algorithm>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/block_pivot_strategy.h"
#include "engine/algorithms/large/packed_sweep.h"
#include "engine/algorithms/large/predicted_work.h"
#include "engine/large_engine.h"

namespace svdserve::large {

// Thrown by back ends and by drivers, caught by whoever called run().
struct LargeStop {
  LargeStatus status = LargeStatus::kFault;
  std::string detail;
  bool device_lost = false;
  int64_t row = 0, col = 0;  // of kNonFinite
};

// run(), which returns an outcome, and the outcome of what it throws.
template <class Run>
LargeOutcome outcome_of(const Run& run) {
  LargeOutcome outcome;
  try {
    return run();
  } catch (const LargeStop& stop) {
    outcome.status = stop.status;
    outcome.detail = stop.detail;
    outcome.device_lost = stop.device_lost;
    outcome.row = stop.row;
    outcome.col = stop.col;
  } catch (const std::bad_alloc&) {
    outcome.status = LargeStatus::kOutOfMemory;
    outcome.detail = "no memory for the workspace";
  }
  return outcome;
}

// The caller's wish to stop, as back ends see it.
class LargeWatch {
 public:
  explicit LargeWatch(const LargeControl& control) : control_(control) {}
  void check() const {
    if (control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed)) {
      throw LargeStop{LargeStatus::kCancelled, "cancelled"};
    }
  }
  bool cancelled() const { return control_.cancel != nullptr && control_.cancel->load(std::memory_order_relaxed); }
  void tell(const LargeProgress& progress) const {
    if (control_.progress) control_.progress(progress);
  }

 private:
  const LargeControl& control_;
};

// Hears how much of a long operation is done, 0 .. 1 and never falling, on the computing thread. May be empty.
using PartDone = std::function<void(double)>;

// Hears of memory of the host that belongs to a state, to write it or to fill it.
using VisitBytes = std::function<void(void* memory, uint64_t bytes)>;

template <class E>
struct LargeView {
  E* data = nullptr;
  int64_t rows = 0, cols = 0;
  int64_t ld = 0;  // elements between columns, at least max(rows, 1)

  explicit operator bool() const { return data != nullptr; }
  LargeView block(int64_t row, int64_t col, int64_t rows_of_it, int64_t cols_of_it) const {
    return {data + row + col * ld, rows_of_it, cols_of_it, ld};
  }
  LargeView columns(int64_t first, int64_t count) const { return block(0, first, rows, count); }
};

inline constexpr int32_t kZeroColumn = -(1 << 20);  // the exponent of a column of zeros

// mantissa 2^exponent, mantissa in [1/2, 1) or 0.
struct ScaledNorm {
  double mantissa = 0;
  int32_t exponent = kZeroColumn;
};

// The result of load(), with the first entry that is not finite in the operand's order of storage.
struct LoadReport {
  bool finite = true;
  int64_t row = 0, col = 0;  // of the operand as it was given
};

enum class Op : uint8_t { kNone, kAdjoint };

// Counted by p-steps since the last reset_counters().
struct PStepCounters {
  int64_t rotations = 0;         // pivot pairs above the tolerance, each with a rotation (Novakovic 2015, 4.3, rho)
  int64_t proper_rotations = 0;  // of these, those whose cosine is not 1 when rounded (Novakovic 2015, 4.3, rho')
  int64_t active_pairs = 0;      // block pairs with at least one rotation
  int64_t pairs = 0;             // block pairs visited
  double largest_cosine = 0;     // of two columns of a block pair, as they were met
  bool zero_column = false;      // a column turned out to be zero, or rounding errors of itself
};

// One p-step of the device level: block pairs that have no column in common, so that they may be computed at once.
// Block b is the columns b * width .. min((b + 1) * width, x.cols) - 1. A pair whose second block is empty is legal
// and does nothing unless its first block is all of the matrix.
template <class E>
struct PStep {
  LargeView<E> x;                    // [in,out] scaled, with f
  int32_t* f = nullptr;              // [in,out] back end's memory
  LargeView<E> v;                    // [in,out] plain, v.cols == x.cols, any number of rows; without data: none
  int64_t positive = 0;              // columns 0 .. positive - 1 have J = 1, those after it -1; x.cols: trigonometric
  const BlockPair* pairs = nullptr;  // [in] the driver's memory, p < q
  int count = 0;
  int64_t width = 0;
  // Where blocks lie in x, f and v: the first column of each there. Null: block b is at column b * width. With it, x.cols
  // is still the number of columns of all blocks, and only the pairs' blocks need to have a place.
  const int64_t* places = nullptr;
  double tolerance = 0;                     // |cos| at or below which columns count as orthogonal
  int32_t smallest_exponent = kZeroColumn;  // a column whose f falls below it is rounding error
  int inner_sweeps = 1;                     // at most so many, fewer when one had no rotation

  int64_t place(int block) const { return places != nullptr ? places[block] : block * width; }
  int64_t columns_of(int block) const {
    return std::max<int64_t>(std::min((block + 1) * width, x.cols) - block * width, 0);
  }
};

// A tall operand, m x n, that stays where it lies: A' = Q R in blocks of rows, A' = A P_c scaled as (x, f) is. Q is
// kept in the memory of the basis that will be stored there, so that beside operand and results there are n x n
// matrices alone. Made by a back end for a plan that it suits; the driver then asks it instead of the operations on A'.
template <class E>
class TallOperand {
 public:
  virtual ~TallOperand() = default;
  // Checks all entries and finds the columns' norms. f: [out] exponents of A's columns, as normalize_columns() has
  // them. waits
  virtual LoadReport scan(int32_t* f) = 0;
  virtual std::vector<ScaledNorm> column_norms() const = 0;
  // r, n x n: [out] the upper triangle of R; what is below it means nothing. Column j of A' is column columns[j] of A.
  // Returns n numbers: the largest entry of the rows j .. m - 1 of A' in the order in which Q R has them, or somewhat
  // more, less than twice it. waits
  virtual std::vector<double> reduce(const std::vector<int64_t>& columns, LargeView<E> r) = 0;
  // The basis, m x n as LargeOperands has it, := Q [core; 0], rounded once. core, n x n, is overwritten. waits
  virtual void expand(LargeView<E> core) = 0;
  // The certificate, once the basis B is stored: square := B^H B, n x n; |2^-exponent A - B y^H|_F, y n x n. wait
  virtual void gram_of_basis(LargeView<E> square) = 0;
  virtual double residual(int32_t exponent, LargeView<E> y) = 0;
  // y, m x b := 2^-exponent A x; x, n x b := 2^-exponent A^H y. Rows of y in the order of A's. After scan()
  virtual void multiply(int32_t exponent, LargeView<E> x, LargeView<E> y) = 0;
  virtual void multiply_adjoint(int32_t exponent, LargeView<E> y, LargeView<E> x) = 0;
  // All that reduce() has left here, always in the same order and of the same size. After reduce(), or instead of scan()
  // and reduce() with what another object of the same arguments had left.
  virtual void visit_factors(const VisitBytes& visit) = 0;
};

// Backend: class with
//   using Element = E;                       double, or layout-compatible with std::complex<double>
// and these operations (all contracts in terms of the true numbers, unless x and f are named):
//
//   View matrix(rows, cols)                  memory for a matrix; contents unspecified. rows, cols >= 0
//   void release(View)                       gives the memory of a view that matrix() returned back
//   int32_t* exponents(n), release(int32_t*) memory for n exponents
//   E* scalars(n), release(E*)               memory for what a QR of n columns keeps beside them (tau, or triangles T)
//   int64_t block_width(n)                   policy: columns of a block for n columns, >= 1
//   void stage(name)                         names what follows, for phases(): "load", "qr", ...
//   void sync()                              waits for everything
//   WorkSpeeds work_speeds() const           for the progress alone
//
//   LoadReport load(matrix, problem, adjoint, a)   a := the operand (host memory, any dtype and order), or its adjoint;
//                                            checks all entries, and loads those that are not finite as they are.
//                                            waits
//   void mirror_lower(a)                     a, n x n: a(i, j) := conj(a(j, i)), i < j; a(j, j) := Re a(j, j)
//   void store(a, adjoint, matrix, problem)  the operand-like host array `matrix` of problem.dtype and problem.order,
//                                            problem.rows x problem.cols := a or a^H, rounded once. waits
//   void normalize_columns(x, f, keep)       [in,out] (x, f): each column scaled so that its norm is in [1/2, 1),
//                                            f[j] raised by what was taken out (keep) or set to it (not keep).
//                                            A zero column: f[j] = kZeroColumn. Norms as DRDSSQ's: any finite input
//   std::vector<ScaledNorm> column_norms(x, f)     |2^f[j] x(:, j)|; f null: zeros. Any finite input. waits
//   std::vector<double> column_products(a, b)      Re a(:, j)^H b(:, j), of columns without over- or underflow. waits
//   std::vector<double> row_maxima(a)        max_j |a(i, j)|, for complex entries up to a factor of sqrt(2). waits
//   void permute_rows(a, perm)               a(i, :) := a(perm[i], :), in place; perm: host, a permutation of a.rows
//   void permute_columns(a, perm)            a(:, j) := a(:, perm[j]), in place
//   void permute_exponents(f, perm)          f[j] := f[perm[j]]
//   int32_t apply_exponents(x, f)            x(:, j) := 2^(f[j] - F) x(:, j), f[j] := F, F the largest of f, which is
//                                            returned; zero columns stay zero, with F too. The driver calls it where
//                                            the spread is small, or what underflows is negligible. waits
//   void scale_columns(x, multipliers)       x(:, j) := multipliers[j] x(:, j); host doubles
//   void set_identity(a), set_zero(a), copy(a, b)  ones on the diagonal, zeros elsewhere; zeros; b := a
//   void copy_exponents(f, g, n)             g := f
//
//   void qr(a, tau, done)                    Householder QR of a.rows >= a.cols: R in the upper triangle, reflectors
//                                            below it and in tau. (Signs of R's diagonal are free). done is a PartDone,
//                                            here and below, which a back end that does not know need not call
//   void apply_q(op, a, tau, c, done)        c := Q c or Q^H c, Q the a.rows x a.rows matrix that qr() left in (a, tau).
//                                            Both may be written to meanwhile
//   void adjoint_of_triangle(r, e, x, f)     (x, f) := (R 2^e)^H scaled, R the upper triangle of r (n x n), 2^e the
//                                            diagonal matrix of column exponents: x lower triangular, zeros above.
//                                            e null: zeros. x may have fewer columns: those of R's first rows alone
//   void copy_triangle(r, x)                 x := the upper triangle of r, zeros below
//   void gemm(op_a, op_b, alpha, a, b, beta, c)    c := alpha op(a) op(b) + beta c; real alpha, beta
//   void herk(a, c)                          c := a^H a, both triangles
//   void solve_lower(l, b)                   b := L^-1 b, L the lower triangle of l
//   void scale_solution(f, g, w)             w(i, j) := 2^(g[j] - f[i]) w(i, j): of a solve with scaled columns
//   double square_bound(a)                   |a|_1 |a|_inf, which is at least the square of the 2-norm. waits
//   std::vector<int8_t> indefinite_factor(m, g, done)        m = G J G^H, m Hermitian with both triangles, n x n, finite,
//                                            its largest magnitude near one; overwritten. Its r columns of G are the
//                                            first of g, n x n; the others mean nothing. Returns the r signs of J.
//                                            Pivots as in
//                                            backends/host/dense/indefinite_factor.h, rank as in factor_error.h. waits
//   bool eigenbasis(g, v, precision, done)   v := orthonormal eigenvectors of the Hermitian g, by descending
//                                            eigenvalue; g, of at most about one, is overwritten. |g v - v D| <= c n u |g|
//                                            and |v^H v - I| <= c n u in Frobenius norms, u that of the precision and c
//                                            about 1. It may be done in a higher precision.
//                                            false: did not converge, or this back end has none; v unspecified
//   int block_cosines(x, width, first, count, cosines)    sets cosines.at(p, q) for p = first .. first + r - 1 and all
//                                            q >= p, of blocks as PStep has them and a scaled x; columns of zeros have
//                                            none. Returns r, 1 .. count, and is called for 0 and on. waits
//   bool cholesky(a)                         the upper triangle of a := R, a = R^H R, Hermitian; what is below means
//                                            nothing then. False: a pivot was not positive, or this back end has no
//                                            Cholesky factorization; a means nothing. waits
//   void p_step(step)                        see PStep and below
//   void reset_counters(); PStepCounters read_counters()    the second waits
//   std::vector<double> diagonal(a)          |a(j, j)| up to the computation of the modulus. waits
//   double distance_from_signature(a, positive)    |J - a|_F, J = diag(1 .. 1, -1 .. -1) with `positive` ones. waits
//   std::vector<LargePhaseTime> phases()        since construction. waits
// and, where it has such a thing,
//   std::unique_ptr<TallOperand<E>> tall_operand(plan, operands)    null where it does not suit. All must outlive it
//   std::string identity() const             what its bits depend on beside plan and operand; empty: that is not known.
//                                            Where it is there, the driver has states, and these four, too:
//   void write_out(a, take), write_out(memory, bytes, take)     take(piece, bytes) of all bytes of a matrix, column by
//                                            column without gaps, or of exponents or scalars. wait
//   void read_in(a, fill), read_in(memory, bytes, fill)         the same backwards: fill(piece, bytes). wait
//   uint64_t scalar_bytes(n)                 of scalars(n). A qr() of columns j, j + 1, .. by themselves, from row j on,
//                                            whose scalars begin scalar_bytes(j) behind those of all, is a part of the
//                                            QR of all, if j is a multiple of kReflectorGroup. That is 1 if it is absent
//   std::vector<int32_t> tracked_pairs(x)    what p_step() knows of the pairs of x, whose skipping would change counters
//   void track_pairs(x, width, tolerance, pairs)    p_step() knows that again, of an x with the same bits
//   View park(a)                             all of a matrix() that is not used for a while. It may move to the host's
//                                            memory, where there is too little of the back end's own. The result may go
//                                            to park(), unpark(), release(), write_out() and for_column_groups()
//   View unpark(a)                           the same matrix in the back end's memory, perhaps at another address
//   bool is_parked(a)                        whether these columns have moved; copy() takes them as its first argument
//   void p_steps(steps)                      p_step() of each, a std::vector, in their order, with the same bits
//   std::vector<PivotSweep> pivot_sweep_in_parts(strategy, blocks)  a sweep of its own: each pair of blocks once. A packed
//                                            sweep goes through the parts in their order, too
//
// p_step(), for each of the pairs (Novakovic 2015, section 4):
//   factorize     H = [x_p x_q]^H [x_p x_q] of the scaled columns (4.1). If no |h_ij| > tolerance sqrt(h_ii h_jj),
//                 i != j, the pair is left as it is. Else H = R^H R by Cholesky; where a pivot is so small that R would
//                 have lost its digits, R by QR of [x_p x_q] (4.2).
//   orthogonalize one-sided pointwise Jacobi on R's columns with their exponents f (4.3; eqs. 13 to 18), rotating
//                 where |cos| > tolerance, at most inner_sweeps sweeps; trigonometric for columns of equal sign, with
//                 the larger column first (J = 1) or last (J = -1); hyperbolic for columns of opposite sign, not
//                 sorted. Product W of the true columns, W' = 2^f W 2^-f_new of the scaled ones.
//   postmultiply  [x_p x_q] := [x_p x_q] W', [v_p v_q] := [v_p v_q] W (4.4). f follows, norms back in [1/2, 2).
// A column that depends on others is their rounding errors once they are taken from it, with a direction that would be
// rotated for ever. It is set to zero, with f = kZeroColumn: where its norm falls from about 1 to some K u within the
// p-step, or its f below smallest_exponent.
// It may skip a pair of which it knows that neither block changed since it was found orthogonal to this tolerance.
template <class B>
concept LargeBackend = requires(B& b, LargeView<typename B::Element> a, typename B::Element* tau, int32_t* f,
                                const Problem& problem, const std::vector<int64_t>& perm,
                                const std::vector<double>& numbers, BlockCosines& cosines,
                                const PStep<typename B::Element>& step, const PartDone& done, const void* in,
                                void* out) {
  { b.matrix(int64_t{}, int64_t{}) } -> std::same_as<LargeView<typename B::Element>>;
  b.release(a);
  { b.exponents(int64_t{}) } -> std::same_as<int32_t*>;
  b.release(f);
  { b.scalars(int64_t{}) } -> std::same_as<typename B::Element*>;
  b.release(tau);
  { b.block_width(int64_t{}) } -> std::convertible_to<int64_t>;
  b.stage("");
  b.sync();
  { b.work_speeds() } -> std::same_as<WorkSpeeds>;
  { b.load(in, problem, true, a) } -> std::same_as<LoadReport>;
  b.store(a, true, out, problem);
  b.normalize_columns(a, f, true);
  { b.column_norms(a, f) } -> std::same_as<std::vector<ScaledNorm>>;
  { b.column_products(a, a) } -> std::same_as<std::vector<double>>;
  { b.row_maxima(a) } -> std::same_as<std::vector<double>>;
  b.permute_rows(a, perm);
  b.permute_columns(a, perm);
  b.permute_exponents(f, perm);
  { b.apply_exponents(a, f) } -> std::same_as<int32_t>;
  b.scale_columns(a, numbers);
  b.set_identity(a);
  b.set_zero(a);
  b.copy(a, a);
  b.copy_exponents(f, f, int64_t{});
  b.qr(a, tau, done);
  b.apply_q(Op::kNone, a, tau, a, done);
  b.adjoint_of_triangle(a, f, a, f);
  b.copy_triangle(a, a);
  b.gemm(Op::kNone, Op::kAdjoint, 1.0, a, a, 0.0, a);
  b.herk(a, a);
  b.solve_lower(a, a);
  b.scale_solution(f, f, a);
  { b.eigenbasis(a, a, Precision::kSingle, done) } -> std::same_as<bool>;
  { b.cholesky(a) } -> std::same_as<bool>;
  { b.block_cosines(a, int64_t{}, 0, 1, cosines) } -> std::same_as<int>;
  b.p_step(step);
  b.reset_counters();
  { b.read_counters() } -> std::same_as<PStepCounters>;
  { b.diagonal(a) } -> std::same_as<std::vector<double>>;
  { b.distance_from_signature(a, int64_t{}) } -> std::same_as<double>;
  { b.phases() } -> std::same_as<std::vector<LargePhaseTime>>;
};
// With the operations of Hermitian eigenproblems, which an SVD does without.
template <class B>
concept HermitianBackend = LargeBackend<B> && requires(B& b, LargeView<typename B::Element> a, const PartDone& done) {
  b.mirror_lower(a);
  { b.square_bound(a) } -> std::same_as<double>;
  { b.indefinite_factor(a, a, done) } -> std::same_as<std::vector<int8_t>>;
};

// p_step() of each, in their order, by a back end or a member of a ring. between(): called between two of them, where they
// are computed one by one.
template <class Backend, class E, class Between>
void p_steps(Backend& backend, const std::vector<PStep<E>>& steps, const Between& between) {
  if constexpr (requires { backend.p_steps(steps); }) {
    backend.p_steps(steps);
  } else {
    for (const auto& step : steps) {
      backend.p_step(step);
      between();
    }
  }
}

// --- matrices that are not used for a while ---------------------------------------------------------------------------

template <class Backend>
inline constexpr bool kParks = requires(Backend& backend, LargeView<typename Backend::Element> a) {
  a = backend.park(a);
  a = backend.unpark(a);
  static_cast<bool>(backend.is_parked(a));
};

// Without data, or such functions of the back end, nothing happens.
template <class Backend>
void park(Backend& backend, LargeView<typename Backend::Element>& a) {
  if constexpr (kParks<Backend>) {
    if (a) a = backend.park(a);
  }
}
template <class Backend>
void unpark(Backend& backend, LargeView<typename Backend::Element>& a) {
  if constexpr (kParks<Backend>) {
    if (a) a = backend.unpark(a);
  }
}

// Columns or rows that are as fast to multiply together as more of them; a back end may have a number of its own.
inline constexpr int64_t kGroupOfLines = 4096;
template <class Backend>
inline constexpr int64_t kGroupOf = kGroupOfLines;
template <class Backend>
requires requires { Backend::kGroupOfLines; }
inline constexpr int64_t kGroupOf<Backend> = Backend::kGroupOfLines;

// f(first column, columns) for groups of a's columns, which may be parked.
template <class Backend, class F>
void for_column_groups(Backend& backend, LargeView<typename Backend::Element> a, const F& f) {
  for (int64_t first = 0; first < a.cols; first += kGroupOf<Backend>) {
    const auto columns = a.columns(first, std::min(kGroupOf<Backend>, a.cols - first));
    if constexpr (kParks<Backend>) {
      if (backend.is_parked(a)) {
        const auto here = backend.matrix(columns.rows, columns.cols);
        backend.copy(columns, here);
        f(first, here);
        backend.release(here);
        continue;
      }
    }
    f(first, columns);
  }
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_LARGE_BACKEND_H_
