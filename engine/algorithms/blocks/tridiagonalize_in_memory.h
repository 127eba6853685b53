// Householder tridiagonalization of a Hermitian k x k matrix in memory by a thread block, which reads its lower triangle once
// a step, and writes it after several.
//
//   in:   A, scaled, its lower triangle in column i at a + i * k, and whole blocks of 32 x 32 on the diagonal
//   out:  Q^H A Q = T, Q = H_0 H_1 .. H_{k-2}, H_j = I - g h^H h for a row h, which begins with element j + 1
//         to.diagonal(j, t_jj), .off_diagonal(j, g, t_{j+1,j}), .reflector(j, i, h_i), each in one thread, i from the last
//         multiple of kRowStep that is not beyond j + 1 to the end of a padded row, where they are zero. A is overwritten.
//
// Step j, where u is the vector of H_j, from column j:
//
//   p = A u:    p_c += A(:, c)^H u from the diagonal block of c on,   p_i += A(i, c) u_c below it
//   w = g p - (g^2 / 2) (u^H p) u
//   A := A - u w^H - w u^H
//
// A column has its parts of p as soon as it is read. Its update is made where step j + 1 reads it. Every kWriteEvery-th step
// writes what it has updated; the steps between make the updates since then again.
//
// Threads and their parts of columns are those of columns_in_memory.h. Rows above the diagonal block of a column are left out.
// Cost: k^3 / 6 elements read, a kWriteEvery-th of them written, 2/3 + 1/3 (kWriteEvery + 1) k^3 operations (complex: four
// times as many), four barriers a step. The bits do not depend on kWriteEvery.
// Accuracy: T and Q are those of A + E, |E|_F of order k u |A|_F at most.
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., section 8.3.1.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_MEMORY_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_MEMORY_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_MEMORY_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_TRIDIAGONALIZE_IN_MEMORY_H_
#endif

#include "engine/algorithms/blocks/columns_in_memory.h"
#include "engine/algorithms/blocks/vector_rows.h"
#include "engine/algorithms/tall/householder.h"
#include "engine/core/hermitian.h"

SVD_KERNEL_BEGIN

template <class Threads, class E, int kLaneRows, int kWarps, int kWriteEvery = 1, int kKeptBytes = 0>
class TridiagonalizeInMemory : public ColumnsInMemory<Threads, E, kLaneRows, kWarps, kKeptBytes> {
  using Base = ColumnsInMemory<Threads, E, kLaneRows, kWarps, kKeptBytes>;
  using typename Base::Column;
  template <int kCount>
  using Lines = typename Base::template Lines<kCount>;
  using Base::add_all;
  using Base::exchanged;
  using Base::for_rows;
  using Base::k_;
  using Base::lane_;
  using Base::threads_;
  using Base::warp_;
  using Base::with_rows;

 public:
  using Base::kRows;
  using Base::kThreads;
  using typename Base::L;
  using typename Base::T;
  using typename Base::Whole;

  // The vectors of a step.
  struct Step {
    Whole u[kRows], w[kRows];
  };
  // The threads of a block share this.
  struct Shared {
    Step steps[kWriteEvery];    // step j in steps[j % kWriteEvery], when it has been made
    Whole u[kRows];             // of the step that is being made
    Whole beside[kRows];        // column j + 1, before this step
    Whole products[kRows];      // A(:, c)^H u, from the diagonal block on
    Whole sums[kWarps][kRows];  // A(i, c) u_c of each warp's columns, below the diagonal block
    Whole head, product;        // u_{j+1} and p_{j+1}
    typename Base::Partial partial;
  };

  SVD_HD TridiagonalizeInMemory(const Threads& threads, Shared* shared, int k)
      : Base(threads, &shared->partial, k), shared_(*shared) {}

  // A from one triangle of `given`, scaled. by_rows: whether elements of `given` beside each other are a row's. Returns whether
  // the triangle is finite; a matrix that is not goes on as zero.
  SVD_HD bool load(const Whole* given, bool by_rows, bool upper, Whole* a, L* exponent) {
    L largest(0);
    for_triangle(by_rows, upper, [&](int x, int i, int j) SVD_LAMBDA {
      largest = raise_to_any_magnitude(largest, i == j ? real_part(given[x].value) : given[x].value);
    });
    Pow2<L> scale;
    const bool finite = this->find_scale(largest, exponent, &scale);
    for_triangle(by_rows, upper, [&](int x, int i, int j) SVD_LAMBDA {
      const E y = Base::scaled_by(scale, finite, i == j ? real_part(given[x].value) : given[x].value);
      const int row = i < j ? j : i, column = i < j ? i : j;
      a[column * k_ + row].value = i < j ? conj(y) : y;
      if (row / 32 == column / 32 && row != column) a[row * k_ + column].value = i < j ? y : conj(y);
    });
    threads_.sync();
    return finite;
  }

  template <class To>
  SVD_HD void run(Whole* a, const To& to) {
    for_rows([&](int i) SVD_LAMBDA {
      SVD_UNROLL for (Step& step : shared_.steps) step.u[i].value = step.w[i].value = zero_element<E>();
      SVD_UNROLL for (auto& sum : shared_.sums) sum[i].value = zero_element<E>();
    });
    L norm2 = begin_column(0, to, [&](int i) SVD_LAMBDA { return a[i].value; });
    Column next;
    int column = warp_ == 0 ? kWarps : warp_;  // the first one of the next pass
    load_first(a, column, next);
    SVD_LOOP for (int j = 0; j + 1 < k_; ++j) {
      const bool is_single = j + 2 >= k_;  // a column of one element stays as it is
      const E u0 = shared_.head.value;
      const Reflector<E> h = reflector_of<E>(norm2, u0);
      const L g = is_single ? L(0) : h.g;
      if (threads_.index() == (j + 1) % kThreads) shared_.u[j + 1].value = h.u0;
      if (threads_.index() == 0) to.off_diagonal(j, g, is_single ? u0 : h.beta);
      threads_.sync();
      for_rows([&](int i) SVD_LAMBDA {
        if (i >= (j + 1) / kRowStep * kRowStep && i < padded_row(k_)) to.reflector(j, i, conj(shared_.u[i].value));
      });
      pass(a, j, column, next);
      if (column == j + 1) column += kWarps;
      load_first(a, column, next);
      threads_.sync();
      norm2 = end_step(j, g, to);
    }
  }

 private:
  // f(place in the operand, row, column) for the elements of its triangle, in the order of memory.
  template <class F>
  SVD_HD void for_triangle(bool by_rows, bool upper, F f) const {
    for (int x = threads_.index(); x < k_ * k_; x += kThreads) {
      const int slow = x / k_, fast = x - slow * k_, i = by_rows ? slow : fast, j = by_rows ? fast : slow;
      if (upper ? i <= j : i >= j) f(x, i, j);
    }
  }

  // --- the parts of a step ------------------------------------------------------------------------------------------

  // Column j, get(i) for row i from j on: its diagonal element, and u but for the first one. Returns |u|^2.
  template <class To, class Get>
  SVD_HD L begin_column(int j, const To& to, Get get) {
    L square[1] = {L(0)};
    for_rows([&](int i) SVD_LAMBDA {
      E x = i >= j && i < k_ ? get(i) : zero_element<E>();
      if (i == j) {
        to.diagonal(j, x.re);
        x = zero_element<E>();
      }
      square[0] = add_square(square[0], x);
      shared_.u[i].value = x;
      if (i == j + 1) shared_.head.value = x;
    });
    add_all(square);
    return square[0];
  }

  // The first column of a pass: the last rows of `to`, as block() has them.
  SVD_HD void load_first(const Whole* a, int column, Column& to) const {
    with_rows(column, [&](auto rows) SVD_LAMBDA {
      constexpr int kCount = decltype(rows)::kValue;
      Base::template load_column<kCount, kLaneRows - kCount>(a, column, column / 32 * 32 + lane_, to);
    });
  }

  // A <- A - u w^H - w u^H of a step.
  template <int kCount>
  struct Update {
    const Step* step;
    Lines<kCount> u, w;
  };

  // The columns of this warp from `column` on, of which `next` is the first: the updates of the steps before, and A u. The
  // steps before the first are zero.
  template <int kUpdates = kWriteEvery>
  SVD_HD void pass(Whole* a, int j, int column, Column& next) {
    if constexpr (kUpdates > 1) {
      if (j % kWriteEvery + 1 < kUpdates) return pass<kUpdates - 1>(a, j, column, next);
    }
    Column sum;
    SVD_UNROLL for (int t = 0; t < kLaneRows; ++t) sum[t] = zero_element<E>();
    blocks<kUpdates, kLaneRows>(a, j, column, next, sum);
  }

  // A block of 32 columns, of which a lane has kCount rows from the diagonal on, and the blocks behind it. These rows are the
  // last ones of `next` and of `sum`. Each block is a loop of its own, since registers have no index.
  template <int kUpdates, int kCount>
  SVD_HD void blocks(Whole* a, int j, int c, Column& next, Column& sum) {
    if constexpr (kCount > 0) {
      constexpr int kFirst = kLaneRows - kCount;
      const int begin = ((k_ + 31) / 32 - kCount) * 32, first = begin + lane_;
      if (begin + 32 > j + 1) {
        c = block<kUpdates, kCount>(a, j, first, c, next, sum);
        shared_.sums[warp_][first].value = sum[kFirst];
      }
      blocks<kUpdates, kCount - 1>(a, j, c, next, sum);
    }
  }

  // One of them, from row `first` of this lane on. Returns the column behind it.
  template <int kUpdates, int kCount>
  SVD_HD int block(Whole* a, int j, int first, int c, Column& next, Column& sum) {
    constexpr int kOwn = kUpdates - 1, kFirst = kLaneRows - kCount;  // kOwn: j % kWriteEvery
    const bool has_last = first + 32 * (kCount - 1) < k_;
    Lines<kCount> u;
    u.read(shared_.u + first);
    Update<kCount> updates[kUpdates];
    SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
      updates[s].step = &shared_.steps[(kOwn + kWriteEvery - kUpdates + s) % kWriteEvery];
      updates[s].u.read(updates[s].step->u + first);
      updates[s].w.read(updates[s].step->w + first);
    }
    const int end = first - lane_ + 32;
    SVD_LOOP for (; c < k_ && c < end; c += kWarps) {
      E x[kCount];
      SVD_UNROLL for (int t = 0; t < kCount; ++t) x[t] = next[kFirst + t];
      // The next column may be one of the next block, which has a row less.
      Base::template load_column<kCount, kFirst>(a, c + kWarps, first, next);
      E of_u[kUpdates], of_w[kUpdates];
      SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
        of_u[s] = conj(updates[s].step->u[c].value);
        of_w[s] = conj(updates[s].step->w[c].value);
      }
      Whole* const to = a + c * k_ + first;
      const E u_c = conj(shared_.u[c].value);
      E products[2] = {zero_element<E>(), zero_element<E>()};
      SVD_UNROLL for (int t = 0; t < kCount; ++t) {
        SVD_UNROLL for (int s = 0; s < kUpdates; ++s) {
          x[t] = subtract_product(subtract_product(x[t], updates[s].u(t), of_w[s]), updates[s].w(t), of_u[s]);
        }
        if (kUpdates == kWriteEvery && (t + 1 < kCount || has_last)) to[32 * t].value = x[t];
        products[t % 2] = add_product(products[t % 2], x[t], u(t));
        if (t > 0) sum[kFirst + t] = add_product(sum[kFirst + t], u_c, x[t]);
      }
      E product = products[0] + products[1];
      SVD_UNROLL for (int d = 16; d > 0; d /= 2) product = product + exchanged(product, d);
      if (lane_ == 0) shared_.products[c].value = product;
      if (c == j + 1) {
        SVD_UNROLL for (int t = 0; t < kCount; ++t) shared_.beside[first + 32 * t].value = x[t];
      }
    }
    return c;
  }

  // w, and column j + 1. Returns its |A(j + 2:, j + 1)|^2.
  template <class To>
  SVD_HD L end_step(int j, L g, const To& to) {
    Step& step = shared_.steps[j % kWriteEvery];
    L along[1] = {L(0)};
    for_rows([&](int i) SVD_LAMBDA {
      E p = zero_element<E>();
      if (i > j && i < k_) {
        p = shared_.products[i].value;
        SVD_UNROLL for (int warp = 0; warp < kWarps; ++warp) p = p + shared_.sums[warp][i].value;
      }
      if (i == j + 1) shared_.product.value = p;
      const E u = shared_.u[i].value;
      along[0] = add_real_product(along[0], u, p);
      step.u[i].value = u;
      step.w[i].value = p;
    });
    const E u0 = shared_.u[j + 1].value;
    add_all(along);
    const L half = g * (g * along[0]) * L(T(-0.5));
    const E w0 = plus_scaled(scaled(shared_.product.value, g), half, u0);
    return begin_column(j + 1, to, [&](int i) SVD_LAMBDA {
      const E u = step.u[i].value, w = plus_scaled(scaled(step.w[i].value, g), half, u);
      step.w[i].value = w;
      return subtract_product(subtract_product(shared_.beside[i].value, u, conj(w0)), w, conj(u0));
    });
  }

  Shared& shared_;
};

SVD_KERNEL_END

#endif
