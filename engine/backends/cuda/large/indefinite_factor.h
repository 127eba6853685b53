// Symmetric indefinite factorization M = G J G^H by rook pivoting on a GPU; backends/host/dense/indefinite_factor.h has
// the method and its pivots, algorithms/large/factor_error.h the test of rank.
//
// Nothing changes places here: rows of M and G keep their numbers, and a row whose pivot was taken is skipped. So what
// is left is updated as a whole, by one matrix product a panel, three times the operations of a shrinking triangle. It
// spares the exchanges, and the product is bound by memory.
//
//   factor_panel_kernel    the next pivots and their columns of G: one cooperative launch a panel
//
// A panel's kernel has two grid barriers a pivot. At the first the column at hand is up to date, and its largest entry is
// known. At the second the pivot's column of G is written, and the largest diagonal entry that is left is known. Each
// block combines what all blocks found, in one order. So every block takes the same decisions, and the bits do not
// depend on time.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_INDEFINITE_FACTOR_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_INDEFINITE_FACTOR_H_

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/algorithms/large/factor_error.h"
#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/large/large_kernels.h"

namespace svdserve::cuda {

inline constexpr int kFactorPanel = 64;                     // pivots of a panel, and one more where a pair ends it
inline constexpr int kFactorRows = 32, kFactorParts = 8;    // of a block: rows at once, threads that share a row
inline constexpr double kFactorAlpha = 0.6403882032022076;  // (1 + sqrt(17)) / 8

// The largest of some numbers, and where it is; value -1: of none.
struct FactorBest {
  double value;
  int64_t row;
};

// The state of a factorization, in device memory.
template <class E>
struct FactorState {
  LargeView<E> m, g;     // M, both triangles, up to date but for the panel's columns of G; G
  double* diagonal;      // n, up to date; of M's it means nothing
  double* row_norm;      // n: of G's rows so far
  double* row_error;     // n: t_i of factor_error.h
  E* probes;             // n times kErrorProbes: y of factor_error.h, n a probe
  double* sign;          // n: of G's columns
  int32_t* done;         // n: the pivot of this row was taken
  E* columns;            // 2 n: columns of what is left that are up to date
  FactorBest* best;      // 2 a block
  unsigned* barrier;     // 1: zero before each launch
  int64_t* progress;     // 2: [out] columns of G, rows that are done
  double zero_bound;     // entries up to this times the errors of their rows are zero
  int64_t first_column;  // of the panel
  int64_t rows_done;
};

namespace factor {

// Loads of what other blocks have written, past the first-level cache.
__device__ __forceinline__ double load(const double* p) { return __ldcg(p); }
__device__ __forceinline__ int32_t load(const int32_t* p) { return __ldcg(p); }
__device__ __forceinline__ Complex load(const Complex* p) {
  const double2 x = __ldcg(reinterpret_cast<const double2*>(p));
  return {x.x, x.y};
}

__device__ __forceinline__ FactorBest better(FactorBest a, FactorBest b) {
  return b.value > a.value || (b.value == a.value && b.row < a.row) ? b : a;
}
__device__ __forceinline__ FactorBest best_of_warp(FactorBest best) {
  for (int d = 16; d > 0; d /= 2) {
    const FactorBest other{__shfl_xor_sync(~0u, best.value, d), __shfl_xor_sync(~0u, best.row, d)};
    best = better(best, other);
  }
  return best;
}

// The barrier of all blocks, and what they tell each other at it.
class Grid {
 public:
  __device__ Grid(unsigned* counter, FactorBest* best) : counter_(counter), best_(best) {}

  // Waits for all blocks; what they wrote before is seen afterwards by loads past the first-level cache. own: the best
  // of this block, in its first warp. Returns the best of all, to every thread.
  __device__ FactorBest best_of_all(FactorBest own) {
    __shared__ FactorBest shared;
    FactorBest* const mine = best_ + (turn_ % 2) * gridDim.x;
    if (threadIdx.x == 0) mine[blockIdx.x] = own;
    ++turn_;
    wait();
    if (threadIdx.x < 32) {
      FactorBest best{-1, 0};
      for (unsigned b = threadIdx.x; b < gridDim.x; b += 32) {
        best = better(best, {__ldcg(&mine[b].value), __ldcg(&mine[b].row)});
      }
      best = best_of_warp(best);
      if (threadIdx.x == 0) shared = best;
    }
    __syncthreads();
    const FactorBest best = shared;
    __syncthreads();  // it is written again
    return best;
  }

 private:
  __device__ void wait() {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(counter_, 1u);
      const unsigned all = turn_ * gridDim.x;
      while (*static_cast<volatile unsigned*>(counter_) < all) {
      }
      __threadfence();
    }
    __syncthreads();
  }

  unsigned* const counter_;
  FactorBest* const best_;  // two sets, used in turn: one is written while the other may still be read
  unsigned turn_ = 0;
};

// A panel, as one of the blocks computes it. Rows are dealt to blocks; a row's entries belong to the thread of the
// first warp that has it.
template <class E>
class Panel {
 public:
  __device__ explicit Panel(const FactorState<E>& state)
      : s_(state), n_(state.m.rows), grid_(state.barrier, state.best), rows_done_(state.rows_done) {}

  __device__ void run() {
    FactorBest start = grid_.best_of_all(largest_diagonal());
    while (start.value >= 0 && width_ < kFactorPanel) {
      start = grid_.best_of_all(take_pivot(start.row));
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      s_.progress[0] = s_.first_column + width_;
      s_.progress[1] = rows_done_;
    }
  }

 private:
  // f(row) in the first warp, for the rows of this block.
  template <class F>
  __device__ void for_rows(F f) const {
    if (threadIdx.x >= kFactorRows) return;
    for (int64_t r = int64_t{blockIdx.x} * kFactorRows + threadIdx.x; r < n_; r += int64_t{gridDim.x} * kFactorRows) {
      f(r);
    }
  }

  __device__ FactorBest largest_diagonal() const {
    FactorBest best{-1, n_};
    for_rows([&](int64_t r) {
      if (s_.done[r] == 0) best = better(best, {fabs(s_.diagonal[r]), r});
    });
    return threadIdx.x < 32 ? best_of_warp(best) : best;
  }

  static __device__ bool dominates(double diagonal, double largest) { return fabs(diagonal) >= kFactorAlpha * largest; }

  // The pivot that the search from row i ends at, and its columns of G. Returns this block's largest diagonal entry.
  __device__ FactorBest take_pivot(int64_t i) {
    E *column = s_.columns, *next = s_.columns + n_;
    FactorBest largest = visit(i, column);
    while (!dominates(load(s_.diagonal + i), largest.value)) {
      const int64_t r = largest.row;
      const FactorBest of_next = visit(r, next);
      const bool ends = dominates(load(s_.diagonal + r), of_next.value);
      if (!ends && of_next.value <= largest.value) {
        pair_pivot(i, r, column, next);
        return largest_diagonal();
      }
      E* const other = column;
      column = next;
      next = other;
      i = r;
      largest = of_next;
    }
    single_pivot(i, column);
    return largest_diagonal();
  }

  // x := column i of what is left. Returns its largest entry off the diagonal; 0 where all are zero.
  __device__ FactorBest visit(int64_t i, E* x) {
    __shared__ E coefficients[kFactorPanel + 1];
    __shared__ E sums[kFactorParts][kFactorRows];
    for (int t = static_cast<int>(threadIdx.x); t < width_; t += kFactorRows * kFactorParts) {
      const int64_t column = s_.first_column + t;
      coefficients[t] = times_real(conjugate(load(s_.g.data + i + column * s_.g.ld)), -load(s_.sign + column));
    }
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % kFactorRows, part = static_cast<int>(threadIdx.x) / kFactorRows;
    const double error = load(s_.row_error + i), diagonal = load(s_.diagonal + i);
    FactorBest best{0, i};
    for (int64_t first = int64_t{blockIdx.x} * kFactorRows; first < n_; first += int64_t{gridDim.x} * kFactorRows) {
      const int64_t r = first + lane;
      E sum = from_real<E>(0);
      if (r < n_) {
        for (int t = part; t < width_; t += kFactorParts) {
          sum = plus_product(sum, s_.g.data[r + (s_.first_column + t) * s_.g.ld], coefficients[t]);
        }
      }
      sums[part][lane] = sum;
      __syncthreads();
      if (part == 0 && r < n_) {
        E entry = s_.m.data[r + i * s_.m.ld];
        for (int p = 0; p < kFactorParts; ++p) entry = plus_product(entry, sums[p][lane], from_real<E>(1));
        const double size = modulus_of(entry);
        if (r == i) {
          entry = from_real<E>(diagonal);
        } else if (s_.done[r] != 0 || size <= s_.zero_bound * (s_.row_error[r] * error)) {
          entry = from_real<E>(0);
        } else {
          best = better(best, {size, r});
        }
        x[r] = entry;
      }
      __syncthreads();  // the sums are written again
    }
    return grid_.best_of_all(threadIdx.x < 32 ? best_of_warp(best) : best);
  }

  __device__ void single_pivot(int64_t i, const E* x) {
    const double d = load(s_.diagonal + i);
    ++rows_done_;
    if (d == 0) {  // with its column: nothing is left of this row
      for_rows([&](int64_t r) {
        if (r == i) s_.done[r] = 1;
      });
      return;
    }
    const double root = sqrt(fabs(d)), inverse = 1 / (d < 0 ? -root : root);
    const PivotRow row{i, norm_with(i, fabs(d))};
    add_column({d, from_real<E>(1), from_real<E>(0)}, row, row, true, [&](int64_t r) {
      if (r == i) s_.done[r] = 1;
      return r == i ? from_real<E>(root) : s_.done[r] != 0 ? from_real<E>(0) : times_real(x[r], inverse);
    });
  }

  // As on the host: the pivot [a conj(b); b c] = W diag(d_1, d_2) W^H, W's columns (cosine, -phase sine) and (sine,
  // phase cosine).
  __device__ void pair_pivot(int64_t i, int64_t k, const E* x, const E* y) {
    const E b = load(x + k);
    const double size = modulus_of(b), a = load(s_.diagonal + i), c = load(s_.diagonal + k);
    const E phase = times_real(b, 1 / size);
    const double tau = (c - a) / (2 * size);
    const double t = copysign(1 / (fabs(tau) + sqrt(1 + tau * tau)), tau);
    const double cosine = 1 / sqrt(1 + t * t), sine = t * cosine;
    rows_done_ += 2;
    for_rows([&](int64_t r) {
      if (r == i || r == k) s_.done[r] = 1;
    });
    const double d_1 = a - t * size, d_2 = c + t * size, cosine_2 = cosine * cosine, sine_2 = sine * sine;
    const PivotRow of_i{i, norm_with(i, cosine_2 * fabs(d_1) + sine_2 * fabs(d_2))};
    const PivotRow of_k{k, norm_with(k, sine_2 * fabs(d_1) + cosine_2 * fabs(d_2))};
    const auto add = [&](double first, E second, double d, bool is_last) {
      const double root = sqrt(fabs(d)), inverse = 1 / (d < 0 ? -root : root);
      add_column({d, from_real<E>(first), second}, of_i, of_k, is_last, [&](int64_t r) {
        if (r == i) return from_real<E>(first * root);
        if (r == k) return times_real(second, root);
        if (s_.done[r] != 0) return from_real<E>(0);
        return times_real(plus_product(times_real(x[r], first), y[r], second), inverse);
      });
    };
    add(cosine, times_real(phase, -sine), d_1, false);
    add(sine, times_real(phase, cosine), d_2, true);
  }

  // A row of the pivot at hand, and its norm in G with the pivot's columns. Nothing of it changes until the next
  // barrier: other blocks may still read it.
  struct PivotRow {
    int64_t row;
    double norm;
  };
  __device__ double norm_with(int64_t row, double added) const {
    const double norm = load(s_.row_norm + row);
    return sqrt(norm * norm + added);
  }

  // A column of W, x in the pivot's row i and y in row k, and its eigenvalue.
  struct PivotVector {
    double d;
    E x, y;
  };

  // steps[p]: by what probe p moves along the column of G that belongs to v. In the first warp.
  __device__ void find_steps(const PivotVector& v, const PivotRow& i, const PivotRow& k, E* steps) const {
    const int p = static_cast<int>(threadIdx.x);
    __syncwarp();
    if (p < large::kErrorProbes) {
      const auto rest = [&](const PivotRow& of) {
        return large::probe_rest(load(s_.probes + of.row + p * n_), large::probe_sign(of.row, p) * of.norm);
      };
      steps[p] = large::probe_step(v.x, v.y, rest(i), rest(k), sqrt(fabs(v.d)));
    }
    __syncwarp();
  }

  // The next column of G, entry(r), which belongs to v. With the last one of a pivot: the errors and what is left of the
  // diagonal. The columns of a pair may cancel in both.
  template <class Entry>
  __device__ void add_column(const PivotVector& v, const PivotRow& i, const PivotRow& k, bool is_last, Entry entry) {
    __shared__ E steps[large::kErrorProbes];
    const int64_t column = s_.first_column + width_;
    const double sign = v.d < 0 ? -1 : 1;
    if (threadIdx.x < 32) find_steps(v, i, k, steps);
    for_rows([&](int64_t r) {
      const E x = entry(r);
      s_.g.data[r + column * s_.g.ld] = x;
      if (s_.done[r] != 0) return;
      double squares = 0;
      for (int p = 0; p < large::kErrorProbes; ++p) {
        const E probe = large::plus_probe(s_.probes[r + p * n_], x, steps[p]);
        s_.probes[r + p * n_] = probe;
        squares += large::probe_square(probe);
      }
      const double size = modulus_of(x), norm = sqrt(s_.row_norm[r] * s_.row_norm[r] + size * size);
      const double left = s_.diagonal[r] - sign * (size * size);
      const double error = large::row_error(norm, squares);
      s_.row_norm[r] = norm;
      s_.row_error[r] = error;
      s_.diagonal[r] = is_last && fabs(left) <= s_.zero_bound * (error * error) ? 0 : left;
    });
    if (blockIdx.x == 0 && threadIdx.x == 0) s_.sign[column] = sign;
    ++width_;
  }

  const FactorState<E> s_;
  const int64_t n_;
  Grid grid_;
  int64_t rows_done_;
  int width_ = 0;
};

}  // namespace factor

template <class E>
__global__ void __launch_bounds__(kFactorRows* kFactorParts) factor_panel_kernel(const FactorState<E> state) {
  factor::Panel<E>(state).run();
}

// diagonal := that of M; the rest as before the first panel.
template <class E>
__global__ void __launch_bounds__(256) begin_factor_kernel(const FactorState<E> state) {
  const int64_t r = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (r >= state.m.rows) return;
  state.diagonal[r] = real_part(state.m.data[r + r * state.m.ld]);
  state.row_norm[r] = 0;
  state.row_error[r] = 0;
  for (int p = 0; p < large::kErrorProbes; ++p) state.probes[r + p * state.m.rows] = from_real<E>(0);
  state.done[r] = 0;
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_INDEFINITE_FACTOR_H_
