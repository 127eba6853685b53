// QR of a rows x k matrix by a thread block, rows > k, tile by tile in its registers.
//
//   reduce   A 2^-exponents = Q R;  R to a triangle, the reflectors to the factor where it is kept
//   expand   X = Q [X_k; 0]
//
// A tile is kHeight rows, and R the triangle of the tiles before. Step j makes one reflector of row j of R, its head, and
// of column j of the tile, which it takes to zero:
//
//   [R(j, j:); B(:, j:)] := (I - g u u^H) [R(j, j:); B(:, j:)],   u of [R(j, j); B(:, j)]
//
// The first k rows of A are in no triangle yet. There row j of R is row j of A, and the head is in the tile. The rows of
// the tile down to it are zero in u. So reflectors act on rows of A alone, and Q is orthonormal where A has dependent
// columns, too.
// Source: the flat tree of Demmel, Grigori, Hoemmen, Langou, SIAM J. Sci. Comput. 34 (2012) A206-A239; reflectors as in
// householder.h.
//
// The threads are a grid of kSplit x C. Thread r + kSplit c has the columns c, C + c, .. of a tile, and of each runs of
// rows. Sums go along the rows of the grid, in a warp. Column j and the head go to all threads through shared memory, with
// one barrier a step. The way back has none: it reads the reflectors where they lie.
// Threads of a block: core/team.h. Cost: 2 rows k^2 flops each way (complex: four times). Accuracy: column-wise backward
// stable. One matrix a block; the bits are a function of the matrix alone.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_BLOCK_QR_H_
#endif

#include "engine/algorithms/tall/householder.h"
#include "engine/core/scaling.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

// A thread has 16 numbers of f32 of each of its columns, and 8 elements of other types. With taller tiles a multiprocessor
// has fewer threads, and waits longer.
template <class E>
struct BlockQrShape {
  static constexpr int kSplit = 4, kCols = 4, kRows = sizeof(E) == 4 ? 16 : 8, kHeight = kSplit * kRows;
  static constexpr int kRun = 16 / static_cast<int>(sizeof(E));  // rows beside each other that a thread has

  // Whole warps. mail(): elements in shared memory.
  static SVD_HD constexpr int threads(int k) { return (k + 31) / 32 * 8 * kSplit; }
  static SVD_HD constexpr int mail(int k) { return 2 * (kHeight + threads(k) / kSplit * kCols); }
  static SVD_HD constexpr int tiles(int rows) { return (rows + kHeight - 1) / kHeight; }
};

// The reflectors of one matrix in memory; null: they are not kept.
template <class E>
struct BlockFactor {
  E* u;                 // tiles x k x kHeight
  E* heads;             // u of row j of R: tiles x k; zero where the head is in the tile
  typename E::Lane* g;  // tiles x k
};

template <class Threads, class E>
class BlockQr {
 public:
  using Shape = BlockQrShape<E>;
  using L = typename E::Lane;
  using T = typename E::Scalar;
  static constexpr int kSplit = Shape::kSplit, kRows = Shape::kRows, kCols = Shape::kCols, kHeight = Shape::kHeight;

  // mail: Shape::mail(k) elements that the block shares. threads.count() is Shape::threads(k).
  SVD_HD BlockQr(const Threads& threads, E* mail, int rows, int k, const BlockFactor<E>& factor)
      : threads_(threads),
        mail_(mail),
        rows_(rows),
        k_(k),
        factor_(factor),
        groups_(threads.count() / kSplit),
        r_(threads.index() % kSplit),
        c_(threads.index() / kSplit) {}

  // source(i, j): an element of A. exponents: of the columns, [0] NaN where A is not finite: then r has a NaN in it.
  // r: [out] k x k, row by row.
  template <class Source>
  SVD_HD void reduce(const Source& source, const T* exponents, E* r) const {
    const bool finite = exponents[0] == exponents[0];
    for (int x = threads_.index(); x < k_ * k_; x += threads_.count()) r[x] = zero_element<E>();
    for (int tile = 0; tile < Shape::tiles(rows_); ++tile) {
      E a[kCols][kRows];
      load(source, exponents, finite, tile * kHeight, a);
      threads_.sync();  // rows of R go from thread to thread
      Head next;
      fetch(r, tile, 0, &next);
      reduce_stages<0>(a, tile, r, &next);
      each([&](int m, int l) SVD_LAMBDA {
        const int i = tile * kHeight + row(l);
        if (i < col(m) && col(m) < k_) r[i * k_ + col(m)] = a[m][l];
      });
      keep(a, tile);
    }
    if (finite) return;
    threads_.sync();
    if (threads_.index() == 0) r[0].re = L(FloatTraits<T>::nan());
  }

  // The leading columns of X, each by itself. x_k: k x k, row by row, is overwritten. put(i, c, x): element (i, c) of X.
  template <class Put>
  SVD_HD void expand(E* x_k, int columns, const Put& put) const {
    for (int tile = Shape::tiles(rows_) - 1; tile >= 0; --tile) {
      E y[kCols][kRows];
      threads_.sync();  // rows of x_k go from thread to thread
      each([&](int m, int l) SVD_LAMBDA {
        const int i = tile * kHeight + row(l);
        y[m][l] = i < k_ && col(m) < k_ ? x_k[i * k_ + col(m)] : zero_element<E>();
      });
      expand_tile(x_k, tile, y);
      each([&](int m, int l) SVD_LAMBDA {
        const int i = tile * kHeight + row(l), c = col(m);
        if (i < rows_ && c < columns) put(i, c, y[m][l]);
      });
    }
  }

 private:
  using Column = E[kRows];  // a thread's rows of a column of a tile
  using Head = E[kCols];    // row j of R, or of x_k: this thread's columns

  SVD_HD int row(int l) const { return l / Shape::kRun * Shape::kRun * kSplit + Shape::kRun * r_ + l % Shape::kRun; }
  SVD_HD int col(int m) const { return groups_ * m + c_; }
  SVD_HD int steps(int tile) const { return tile * kHeight + kHeight < k_ ? tile * kHeight + kHeight : k_; }

  template <class F>
  SVD_HD static void each(F f) {
    SVD_UNROLL for (int m = 0; m < kCols; ++m) { SVD_UNROLL for (int l = 0; l < kRows; ++l) f(m, l); }
  }

  template <class Source>
  SVD_HD void load(const Source& source, const T* exponents, bool finite, int first, E (&a)[kCols][kRows]) const {
    SVD_UNROLL for (int m = 0; m < kCols; ++m) {
      const bool has_column = finite && col(m) < k_;
      const auto scale = make_pow2(has_column ? -L(exponents[col(m)]) : L(0));
      SVD_UNROLL for (int l = 0; l < kRows; ++l) {
        const int i = first + row(l);
        a[m][l] = has_column && i < rows_ ? scaled(source(i, col(m)), scale) : zero_element<E>();
      }
    }
  }

  // --- to the triangle ------------------------------------------------------------------------------------------------

  template <int kStage>
  SVD_HD void reduce_stages(E (&a)[kCols][kRows], int tile, E* r, Head* next) const {
    if constexpr (kStage < kCols) {
      const int first = groups_ * kStage, last = steps(tile) < first + groups_ ? steps(tile) : first + groups_;
      SVD_LOOP for (int j = first; j < last; ++j) {
        if (j < tile * kHeight) {
          reduce_step<kStage, false>(a, tile, j, r, next);
        } else {
          reduce_step<kStage, true>(a, tile, j, r, next);
        }
      }
      reduce_stages<kStage + 1>(a, tile, r, next);
    }
  }

  // Step j, of stage j / groups_. kInTile: the head is row j - tile kHeight of the tile. next: row j of R, if it is there.
  template <int kStage, bool kInTile>
  SVD_HD void reduce_step(E (&a)[kCols][kRows], int tile, int j, E* r, Head* next) const {
    const int i = j - groups_ * kStage, own = j - tile * kHeight;
    const bool holds = !kInTile && r_ == 0;
    E* const column = mail_ + (j & 1) * (kHeight + groups_ * kCols);
    E* const heads = column + kHeight;
    if (holds) SVD_UNROLL for (int m = kStage; m < kCols; ++m) heads[col(m)] = (*next)[m];
    if (c_ == i) {
      SVD_UNROLL for (int l = 0; l < kRows; ++l) {
        column[row(l)] = !kInTile || row(l) > own ? a[kStage][l] : zero_element<E>();
        if (kInTile && row(l) == own) heads[j] = a[kStage][l];
      }
    }
    threads_.sync();
    Column u;
    SVD_UNROLL for (int l = 0; l < kRows; ++l) u[l] = column[row(l)];
    const E x0 = heads[j];
    Head head;
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) head[m] = kInTile ? zero_element<E>() : heads[col(m)];
    fetch(r, tile, j + 1, next);
    const auto square = [&](L s, int l) SVD_LAMBDA { return add_square(s, u[l]); };
    const Reflector<E> h = reflector_of<E>(add_square(over_rows(in_thread(L(0), square)), x0), x0);
    if constexpr (kInTile) SVD_UNROLL for (int l = 0; l < kRows; ++l) u[l] = row(l) == own ? h.u0 : u[l];
    const E u0 = kInTile ? zero_element<E>() : h.u0;
    SVD_UNROLL for (int m = kStage; m < kCols; ++m) {
      const bool open = m > kStage || c_ > i;
      const E w = reflect<!kInTile>(u, u0, open ? h.g : L(0), a[m], head[m]);
      if (holds && open && col(m) < k_) r[j * k_ + col(m)] = subtract_product(head[m], u0, w);
    }
    if (threads_.index() != 0) return;
    r[j * k_ + j] = h.beta;
    if (factor_.u == nullptr) return;
    factor_.heads[tile * k_ + j] = u0;
    factor_.g[tile * k_ + j] = h.g;
    if (kInTile) reflector(tile, j)[own] = h.u0;
  }

  // Row j of R as the tiles before left it, to the threads that hold it.
  SVD_HD void fetch(const E* r, int tile, int j, Head* next) const {
    if (r_ != 0 || j >= k_ || j >= tile * kHeight) return;
    SVD_UNROLL for (int m = 0; m < kCols; ++m)(*next)[m] = col(m) < k_ ? r[j * k_ + col(m)] : zero_element<E>();
  }
  // Columns of the tile are reflectors now, below their heads.
  SVD_HD void keep(const E (&a)[kCols][kRows], int tile) const {
    if (factor_.u == nullptr) return;
    each([&](int m, int l) SVD_LAMBDA {
      const int own = col(m) - tile * kHeight;
      if (col(m) >= steps(tile) || row(l) == own) return;
      reflector(tile, col(m))[row(l)] = row(l) > own ? a[m][l] : zero_element<E>();
    });
  }

  // --- and back -------------------------------------------------------------------------------------------------------

  SVD_HD void expand_tile(E* x_k, int tile, E (&y)[kCols][kRows]) const {
    Step next;
    fetch_step(x_k, tile, steps(tile) - 1, &next);
    SVD_LOOP for (int j = steps(tile) - 1; j >= 0; --j) {
      Step now = next;
      if (j > 0) fetch_step(x_k, tile, j - 1, &next);
      const bool holds = j < tile * kHeight && r_ == 0;
      SVD_UNROLL for (int m = 0; m < kCols; ++m) {
        const E w = reflect<true>(now.u, now.u0, now.g, y[m], now.head[m]);
        if (holds && col(m) < k_) x_k[j * k_ + col(m)] = subtract_product(now.head[m], now.u0, w);
      }
    }
  }

  struct Step {
    Column u;
    Head head;
    E u0;
    L g;
  };
  SVD_HD void fetch_step(const E* x_k, int tile, int j, Step* step) const {
    const E* const u = reflector(tile, j);
    SVD_UNROLL for (int l = 0; l < kRows; ++l) step->u[l] = u[row(l)];
    SVD_UNROLL for (int m = 0; m < kCols; ++m) {
      step->head[m] = col(m) < k_ ? x_k[j * k_ + col(m)] : zero_element<E>();
    }
    step->u0 = factor_.heads[tile * k_ + j];
    step->g = factor_.g[tile * k_ + j];
  }

  // --- a reflection ---------------------------------------------------------------------------------------------------

  // a := a - u w with w = g [u_0; u]^H [head; a]. Returns w.
  template <bool kHasHead>
  SVD_HD E reflect(const Column& u, const E& u0, L g, Column& a, const E& head) const {
    const auto product = [&](const E& s, int l) SVD_LAMBDA { return add_product(s, u[l], a[l]); };
    const E sum = over_rows(in_thread(zero_element<E>(), product));
    const E w = scaled(kHasHead ? add_product(sum, u0, head) : sum, g);
    SVD_UNROLL for (int l = 0; l < kRows; ++l) a[l] = subtract_product(a[l], u[l], w);
    return w;
  }
  template <class Sum, class Add>
  SVD_HD static Sum in_thread(const Sum& zero, Add add) {
    Sum even = zero, odd = zero;
    SVD_UNROLL for (int l = 0; l < kRows; l += 2) {
      even = add(even, l);
      odd = add(odd, l + 1);
    }
    return even + odd;
  }
  template <class Sum>
  SVD_HD Sum over_rows(Sum s) const {
    SVD_UNROLL for (int d = kSplit / 2; d > 0; d /= 2) s = s + exchanged(s, d);
    return s;
  }
  SVD_HD L exchanged(L x, int distance) const { return L(threads_.exchanged(x.v, distance)); }
  SVD_HD E exchanged(E x, int distance) const {
    x.re = exchanged(x.re, distance);
    if constexpr (E::kComplex) x.im = exchanged(x.im, distance);
    return x;
  }
  SVD_HD E* reflector(int tile, int j) const { return factor_.u + (static_cast<int64_t>(tile) * k_ + j) * kHeight; }

  const Threads threads_;
  E* const mail_;
  const int rows_, k_;
  const BlockFactor<E> factor_;
  const int groups_, r_, c_;
};

SVD_KERNEL_END

#endif
