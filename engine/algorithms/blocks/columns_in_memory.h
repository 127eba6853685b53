// The threads of a block, or of a cluster of blocks, that reduce a matrix in memory: bidiagonalize_in_memory.h,
// tridiagonalize_in_memory.h. A warp has every kWarps-th column, each lane the rows i = lane (mod 32) of it. All sums have one
// order for each k.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_COLUMNS_IN_MEMORY_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_COLUMNS_IN_MEMORY_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_COLUMNS_IN_MEMORY_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_COLUMNS_IN_MEMORY_H_
#endif

#include "engine/core/scaling.h"
#include "engine/core/view.h"

SVD_KERNEL_BEGIN

// An element that is read and written by one instruction.
template <class E>
struct alignas(sizeof(E)) WholeElement {
  E value;
};

// Threads: core/team.h, 32 kWarps of them. k <= 32 kLaneRows. kKeptBytes: a lane has its rows of a vector in registers where
// these have no more bytes, and does not read them for each column.
template <class Threads, class E, int kLaneRows, int kWarps, int kKeptBytes>
class ColumnsInMemory {
 public:
  using L = typename E::Lane;
  using T = typename E::Scalar;
  using Whole = WholeElement<E>;
  static constexpr int kRows = 32 * kLaneRows, kThreads = 32 * kWarps;

  // The numbers that threads exchange for sums.
  struct Partial {
    L of[2][kWarps][3];
  };

 protected:
  SVD_HD ColumnsInMemory(const Threads& threads, Partial* partial, int k)
      : threads_(threads), k_(k), lane_(threads.index() % 32), warp_(threads.index() / 32), partial_(*partial) {}

  // A lane's rows of a column.
  using Column = E[kLaneRows];

  // f(FixedSize<rows>()), where a lane has so many rows from j / 32 * 32 on.
  template <int kMost = kLaneRows, class F>
  SVD_HD void with_rows(int j, F f) const {
    if constexpr (kMost > 1) {
      if ((k_ + 31) / 32 - j / 32 < kMost) return with_rows<kMost - 1>(j, f);
    }
    f(FixedSize<kMost>());
  }

  // A lane's rows of a vector that threads share.
  template <int kCount>
  class Lines {
    static constexpr bool kKeeps = kCount * static_cast<int>(sizeof(E)) <= kKeptBytes;

   public:
    SVD_HD void read(const Whole* shared) {
      shared_ = shared;
      if constexpr (kKeeps) {
        SVD_UNROLL for (int t = 0; t < kCount; ++t) kept_[t] = shared[32 * t].value;
      }
    }
    SVD_HD E operator()(int t) const {
      if constexpr (kKeeps) {
        return kept_[t];
      } else {
        return shared_[32 * t].value;
      }
    }

   private:
    const Whole* shared_;
    E kept_[kKeeps ? kCount : 1];
  };

  // f(i) for the rows that this thread has of vectors.
  template <class F>
  SVD_HD void for_rows(F f) const {
    SVD_UNROLL for (int p = 0; p < (kRows + kThreads - 1) / kThreads; ++p) {
      const int i = threads_.index() + kThreads * p;
      if (kRows % kThreads == 0 || i < kRows) f(i);
    }
  }

  // Step 1 of lanes/matrix_values.h, with one power of two for the matrix. largest: of the elements that the thread has seen.
  // Returns whether all are finite.
  SVD_HD bool find_scale(L largest, L* exponent, Pow2<L>* scale) {
    largest = largest_of_all(largest);
    const bool finite = (largest <= L(FloatTraits<T>::kLargest)).m;
    *exponent = binary_exponent(finite ? largest : L(0));
    *scale = make_pow2(-*exponent);
    return finite;
  }
  // Matrices that are not finite go on as zero.
  static SVD_HD E scaled_by(const Pow2<L>& scale, bool finite, const E& x) {
    return finite ? scaled(scaled(x, scale.first), scale.second) : zero_element<E>();
  }

  // --- sums over all threads ----------------------------------------------------------------------------------------

  template <int n>
  SVD_HD void add_all(L (&x)[n]) {
    turn_ ^= 1;
    SVD_UNROLL for (int d = 16; d > 0; d /= 2) {
      SVD_UNROLL for (int c = 0; c < n; ++c) x[c] = x[c] + L(threads_.exchanged(x[c].v, d));
    }
    SVD_UNROLL for (int c = 0; c < n; ++c) {
      if (lane_ == 0) partial_.of[turn_][warp_][c] = x[c];
    }
    threads_.sync();
    SVD_UNROLL for (int c = 0; c < n; ++c) {
      x[c] = partial_.of[turn_][0][c];
      SVD_UNROLL for (int warp = 1; warp < kWarps; ++warp) x[c] = x[c] + partial_.of[turn_][warp][c];
    }
  }

  SVD_HD L largest_of_all(L x) {
    turn_ ^= 1;
    SVD_UNROLL for (int d = 16; d > 0; d /= 2) x = at_least_magnitude(L(threads_.exchanged(x.v, d)), x);
    if (lane_ == 0) partial_.of[turn_][warp_][0] = x;
    threads_.sync();
    SVD_UNROLL for (int warp = 0; warp < kWarps; ++warp) x = at_least_magnitude(partial_.of[turn_][warp][0], x);
    return x;
  }

  // --- columns ------------------------------------------------------------------------------------------------------

  // A lane's rows of a column of `a`, from row `first` on, to to[kBegin], .. There are kCount, but for the last one of some
  // lanes.
  template <int kCount, int kBegin = 0>
  SVD_HD void load_column(const Whole* a, int column, int first, Column& to) const {
    if (column >= k_) return;
    const Whole* const from = a + column * k_ + first;
    SVD_UNROLL for (int t = 0; t < kCount; ++t) {
      to[kBegin + t] = t + 1 < kCount || first + 32 * t < k_ ? from[32 * t].value : zero_element<E>();
    }
  }

  // --- other threads of the warp ------------------------------------------------------------------------------------

  SVD_HD E exchanged(E x, int distance) const {
    x.re = L(threads_.exchanged(x.re.v, distance));
    if constexpr (E::kComplex) x.im = L(threads_.exchanged(x.im.v, distance));
    return x;
  }
  SVD_HD E from_lane(E x, int lane) const {
    x.re = L(threads_.from_lane(x.re.v, lane));
    if constexpr (E::kComplex) x.im = L(threads_.from_lane(x.im.v, lane));
    return x;
  }

  const Threads threads_;
  const int k_, lane_, warp_;

 private:
  Partial& partial_;
  int turn_ = 0;
};

SVD_KERNEL_END

#endif
