// Householder bidiagonalization of a k x k matrix in memory by a thread block, which reads it once a step, and writes it
// after several.
//
//   in:   A, scaled, column i at a + i * k
//   out:  Q^H A P = B, Q = H_0 H_1 .., P = H'_0 H'_1 .., each I - g h h^H. reflectors.left(j, i, h_i), .right(j, i, h_i)
//         in one thread, i from the last multiple of kRowStep that is not beyond the first of H to the end of a padded row,
//         where they are zero; .left_end(j, g, b_jj), .right_end(j, g, b_{j,j+1}) in thread 0
//         A is overwritten.
//
// Step j, where u is the vector of H_j, from column j, and g' belongs to H'_j:
//
//   w_c = g u^H A(:, c),  r_c = A(j, c) - u_j w_c        c > j: row j, and v is r with another v_{j+1}
//   x = g' (A - u w^T) conj(v)
//   A := A - u w^T - x v^T
//
// v is not known before all columns have been read, but A conj(v) = A conj(r) + A(:, j + 1) conj(v_{j+1} - r_{j+1}). So a
// column has its part of w, r and A conj(r) as soon as it is read. Its update is made where step j + 1 reads it. Every
// kWriteEvery-th step writes what it has updated; the steps between make the updates since then again.
//
// Threads and their parts of columns are those of columns_in_memory.h. Rows above j are left out by 32.
// Cost: k^3 / 3 elements read, a kWriteEvery-th of them written, 4/3 + 2/3 (kWriteEvery + 1) k^3 operations (complex: four
// times as many), four barriers a step. The bits do not depend on kWriteEvery.
// Accuracy: |Q B P^H - A| and |Q^H Q - I| of order k u. A conj(v) has errors of order k u |A| |v|, as if summed by itself,
// because |r| and |v_{j+1} - r_{j+1}| are at most 2 |v|.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 5.4.3; both products in one pass: Howell, Demmel, Fulton,
// Hammarling and Marmol, ACM Trans. Math. Softw. 34 (2008) 14, section 3.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_MEMORY_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_MEMORY_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_MEMORY_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BIDIAGONALIZE_IN_MEMORY_H_
#endif

#include "engine/algorithms/blocks/columns_in_memory.h"
#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/tall/householder.h"

SVD_KERNEL_BEGIN

template <class Threads, class E, int kLaneRows, int kWarps, int kWriteEvery = 1, int kKeptBytes = 0>
class BidiagonalizeInMemory : public ColumnsInMemory<Threads, E, kLaneRows, kWarps, kKeptBytes> {
  using Base = ColumnsInMemory<Threads, E, kLaneRows, kWarps, kKeptBytes>;
  using typename Base::Column;
  template <int kCount>
  using Lines = typename Base::template Lines<kCount>;
  using Base::add_all;
  using Base::exchanged;
  using Base::for_rows;
  using Base::from_lane;
  using Base::k_;
  using Base::lane_;
  using Base::threads_;
  using Base::warp_;
  using Base::with_rows;

 public:
  using Base::kRows;
  using Base::kThreads;
  using typename Base::L;
  using typename Base::Whole;

  // The vectors of a step, in whose place is its r until v is known. Those of the step that is being made lack u and x.
  struct Step {
    Whole u[kRows], x[kRows], w[kRows], v[kRows];
  };
  // The threads of a block share this.
  struct Shared {
    Step steps[kWriteEvery];    // step j in steps[j % kWriteEvery]
    Whole u[kRows];             // of the step that is being made
    Whole beside[kRows];        // column j + 1, before this step
    Whole sums[kWarps][kRows];  // A conj(r) of each warp's columns
    Whole head;                 // element j of column j
    typename Base::Partial partial;
  };

  SVD_HD BidiagonalizeInMemory(const Threads& threads, Shared* shared, int k)
      : Base(threads, &shared->partial, k), shared_(*shared) {}

  // A, scaled: column i goes to a + i * k. by_rows: whether elements of `given` beside each other are a row's. Returns whether
  // A is finite; one that is not goes on as zero.
  SVD_HD bool load(const Whole* given, bool by_rows, Whole* a, L* exponent) {
    L largest(0);
    for (int x = threads_.index(); x < k_ * k_; x += kThreads) {
      largest = raise_to_any_magnitude(largest, given[x].value);
    }
    Pow2<L> scale;
    const bool finite = this->find_scale(largest, exponent, &scale);
    for (int x = threads_.index(); x < k_ * k_; x += kThreads) {
      a[by_rows ? x % k_ * k_ + x / k_ : x].value = Base::scaled_by(scale, finite, given[x].value);
    }
    threads_.sync();
    return finite;
  }

  template <class Reflectors>
  SVD_HD void run(Whole* a, const Reflectors& reflectors) {
    for_rows([&](int i) SVD_LAMBDA {
      SVD_UNROLL for (Step& step : shared_.steps) {
        step.u[i].value = step.x[i].value = step.w[i].value = step.v[i].value = zero_element<E>();
      }
    });
    L norm2 = begin_column(0, [&](int i) SVD_LAMBDA { return a[i].value; });
    Column next;
    int column = warp_ == 0 ? kWarps : warp_;  // the first one of the next pass
    load_first(a, column, 0, next);
    SVD_LOOP for (int j = 0; j < k_; ++j) {
      const Reflector<E> h = reflector_of<E>(norm2, shared_.head.value);
      Whole* const u = shared_.u;
      if (threads_.index() == j % kThreads) u[j].value = h.u0;
      if (threads_.index() == 0) reflectors.left_end(j, h.g, h.beta);
      threads_.sync();
      if constexpr (Reflectors::kWanted) {
        for_rows([&](int i) SVD_LAMBDA {
          if (i >= j / kRowStep * kRowStep && i < padded_row(k_)) reflectors.left(j, i, conj(u[i].value));
        });
      }
      if (j + 1 == k_) return;
      with_rows(j, [&](auto rows) SVD_LAMBDA { pass<decltype(rows)::kValue>(a, j, h.g, column, next); });
      if (column == j + 1) column += kWarps;
      load_first(a, column, j + 1, next);
      threads_.sync();
      norm2 = end_step(j, reflectors);
    }
  }

 private:
  // --- the parts of a step ------------------------------------------------------------------------------------------

  // Column j, get(i) for row i: u but for its first element. Returns |u|^2.
  template <class Get>
  SVD_HD L begin_column(int j, Get get) {
    L square[1] = {L(0)};
    for_rows([&](int i) SVD_LAMBDA {
      const E x = i >= j && i < k_ ? get(i) : zero_element<E>();
      square[0] = add_square(square[0], x);
      shared_.u[i].value = x;
      if (i == j) shared_.head.value = x;
    });
    add_all(square);
    return square[0];
  }

  // The first column of step j.
  SVD_HD void load_first(const Whole* a, int column, int j, Column& to) const {
    with_rows(j, [&](auto rows) SVD_LAMBDA {
      Base::template load_column<decltype(rows)::kValue>(a, column, j / 32 * 32 + lane_, to);
    });
  }

  // A <- A - u w^T - x v^T of a step.
  template <int kCount>
  struct Update {
    const Step* step;
    Lines<kCount> u, x;
  };

  // The columns of this warp from `column` on, of which `next` is the first: the updates of the steps before, w and r. The
  // steps before the first are zero.
  template <int kCount, int kUpdates = kWriteEvery>
  SVD_HD void pass(Whole* a, int j, L g, int column, Column& next) {
    if constexpr (kUpdates > 1) {
      if (j % kWriteEvery + 1 < kUpdates) return pass<kCount, kUpdates - 1>(a, j, g, column, next);
    }
    const int first = j / 32 * 32 + lane_;
    const bool has_last = first + 32 * (kCount - 1) < k_;
    constexpr int kOwn = kUpdates - 1;  // j % kWriteEvery
    Step& own = shared_.steps[kOwn];
    Lines<kCount> u;
    u.read(shared_.u + first);
    Update<kCount> updates[kUpdates];
    SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
      updates[s].step = &shared_.steps[(kOwn + kWriteEvery - kUpdates + s) % kWriteEvery];
      updates[s].u.read(updates[s].step->u + first);
      updates[s].x.read(updates[s].step->x + first);
    }
    const E u_j = shared_.u[j].value;
    Column sum;
    SVD_UNROLL for (int t = 0; t < kCount; ++t) sum[t] = zero_element<E>();
    SVD_LOOP for (int c = column; c < k_; c += kWarps) {
      Column x;
      SVD_UNROLL for (int t = 0; t < kCount; ++t) x[t] = next[t];
      Base::template load_column<kCount>(a, c + kWarps, first, next);
      E w_c[kUpdates], v_c[kUpdates];
      SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
        w_c[s] = updates[s].step->w[c].value;
        v_c[s] = updates[s].step->v[c].value;
      }
      Whole* const to = a + c * k_ + first;
      E products[2] = {zero_element<E>(), zero_element<E>()};
      SVD_UNROLL for (int t = 0; t < kCount; ++t) {
        SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
          x[t] = subtract_product(subtract_product(x[t], updates[s].u(t), w_c[s]), updates[s].x(t), v_c[s]);
        }
        if (kUpdates == kWriteEvery && (t + 1 < kCount || has_last)) to[32 * t].value = x[t];
        products[t % 2] = add_product(products[t % 2], u(t), x[t]);
      }
      E product = products[0] + products[1];
      SVD_UNROLL for (int d = 16; d > 0; d /= 2) product = product + exchanged(product, d);
      const E w = scaled(product, g), r = subtract_product(from_lane(x[0], j % 32), u_j, w);
      SVD_UNROLL for (int t = 0; t < kCount; ++t) sum[t] = add_product(sum[t], r, x[t]);
      if (lane_ == 0) {
        own.w[c].value = w;
        own.v[c].value = r;
      }
      if (c == j + 1) {
        SVD_UNROLL for (int t = 0; t < kCount; ++t) shared_.beside[first + 32 * t].value = x[t];
      }
    }
    SVD_UNROLL for (int t = 0; t < kCount; ++t) shared_.sums[warp_][first + 32 * t].value = sum[t];
  }

  // H'_j, x, and column j + 1. Returns its |A(j + 1:, j + 1)|^2.
  template <class Reflectors>
  SVD_HD L end_step(int j, const Reflectors& reflectors) {
    Step& step = shared_.steps[j % kWriteEvery];
    const Whole *const w = step.w, *const v = step.v;
    L sums[3] = {L(0), L(0), L(0)};  // |r|^2, and w^T conj(r)
    E along = zero_element<E>();
    for_rows([&](int c) SVD_LAMBDA {
      if (c <= j || c >= k_) return;
      sums[0] = add_square(sums[0], v[c].value);
      along = add_product(along, v[c].value, w[c].value);
    });
    sums[1] = along.re;
    if constexpr (E::kComplex) sums[2] = along.im;
    add_all(sums);
    along.re = sums[1];
    if constexpr (E::kComplex) along.im = sums[2];
    const E r0 = v[j + 1].value, w0 = w[j + 1].value;
    const Reflector<E> h = reflector_of<E>(sums[0], r0);
    const bool is_single = j + 2 >= k_;  // a row of one element stays as it is
    const L g = is_single ? L(0) : h.g;
    if constexpr (Reflectors::kWanted) {
      for_rows([&](int c) SVD_LAMBDA {
        if (c < (j + 1) / kRowStep * kRowStep || c >= padded_row(k_)) return;
        reflectors.right(j, c, c <= j || c >= k_ ? zero_element<E>() : c == j + 1 ? h.u0 : v[c].value);
      });
    }
    if (threads_.index() == 0) reflectors.right_end(j, g, is_single ? r0 : h.beta);
    const E change = h.u0 - r0;
    along = add_product(along, change, w0);
    return begin_column(j + 1, [&](int i) SVD_LAMBDA {
      E x = shared_.sums[0][i].value;
      SVD_UNROLL for (int warp = 1; warp < kWarps; ++warp) x = x + shared_.sums[warp][i].value;
      const E beside = shared_.beside[i].value, u = shared_.u[i].value;
      x = scaled(subtract_product(add_product(x, change, beside), u, along), g);
      step.u[i].value = u;
      step.x[i].value = x;
      return subtract_product(subtract_product(beside, u, w0), x, h.u0);
    });
  }

  Shared& shared_;
};

SVD_KERNEL_END

#endif
