// A pair of blocks in Jacobi's method for general matrices: T of K lines, a product of shears and rotations, and its
// inverse. The caller applies them to the whole matrix by products of matrices. A lane has a pair of lines.
//
//   P = A(idx, idx),   R = A(idx, out) A(idx, out)^H,   C = A(out, idx)^H A(out, idx),   out: the lines not in idx
//   a step, for all pairs (p, q) of lines at once, with T of the 2 x 2 matrices of shear_step.h:
//     c_pq = R_pq - C_pq + sum_{j in idx, j != p, q} (p_pj conj(p_qj) - conj(p_jp) p_jq) + conj(d) p_pq - d conj(p_qp)
//     g_pq = R_pp + R_qq + C_pp + C_qq + sum_{j in idx, j != p, q} |p_pj|^2 + |p_qj|^2 + |p_jp|^2 + |p_jq|^2
//     P := T^-1 P T,   R := T^-1 R T^-H,   C := T^H C T,   W := W T,   W' := T^-1 W'
//   an inner sweep: the 2 half - 1 steps of a tournament, after which every line is back in its seat
//
// In exact arithmetic these are the steps of shear_jacobi.h on all of A, in another order: R and C have what the sums
// need of the rest. The rest must not be in P's own sums, since c cancels nothing then. kShears = false: rotations alone
// of P and W, which R and C have no part in.
// Seats: lines 0 .. half - 1 on top, the others at the bottom; pair i has seats i of both. Between two steps the line of
// seat 0 on top stays and all others move on by one seat, in memory too. So pairs are neighbours in memory, and a lane
// has one. Lines beyond K are zero and stay zero: their T are identities.
// Source: Shroff, Numer. Math. 58 (1991) 779-805, for the parameters as in shear_step.h; Brent and Luk, SIAM J. Sci.
// Stat. Comput. 6 (1985) 69-84, section 3, for the tournament. The blocks, R and C are ours.
// Cost: an inner sweep takes 112 K^3 flops for P, R, C, W and W', and 8 K^3 for the sums.
// Accuracy: |W' W - I| <= 10 K u |W| |W'|. |z| <= 1/2 bounds the norms of W and W' by 3^K; they are about sqrt(K).
// Errors of R and C change the shears alone.
// Not for: more lines than memory near the processor holds, which is 64 for a megabyte.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_H_
#endif

#include "engine/algorithms/general/shear_block_layout.h"
#include "engine/algorithms/general/shear_step.h"

SVD_KERNEL_BEGIN

// kLanes complex numbers, or one for all lanes, from a column's planes.
template <class Lane>
SVD_HD ComplexElement<Lane> load_lines(const typename Lane::Scalar* column, int plane, int at) {
  return {Lane::load(column + at), Lane::load(column + plane + at)};
}
template <class Lane>
SVD_HD ComplexElement<Lane> same_line(const typename Lane::Scalar* column, int plane, int at) {
  return {Lane(column[at]), Lane(column[plane + at])};
}
template <class Lane>
SVD_HD void store_lines(const ComplexElement<Lane>& x, typename Lane::Scalar* column, int plane, int at) {
  x.re.store(column + at);
  x.im.store(column + plane + at);
}

// T^-H
template <class Lane>
SVD_HD PairTransform<Lane> adjoint_inverse(const PairTransform<Lane>& t) {
  const auto minus = [](const ComplexElement<Lane>& x) SVD_LAMBDA { return ComplexElement<Lane>{-x.re, x.im}; };
  return {conj(t.qq), minus(t.qp), minus(t.pq), conj(t.pp)};
}

template <class Lane>
class ShearBlockSteps {
 public:
  using T = typename Lane::Scalar;
  using C = ComplexElement<Lane>;
  static_assert(kShearAlignment % Lane::kLanes == 0);

  explicit SVD_HD ShearBlockSteps(const ShearBlock<T>& block) : b_(block), half_(block.half), plane_(block.plane()) {}

  // One inner sweep; least = u^2 |A|_F^2.
  template <bool kShears>
  SVD_HD ShearBlockCounts sweep(T least) {
    ShearBlockCounts counts;
    for (int i = 0; i < 2 * half_; ++i) b_.lines[i] = static_cast<T>(i);
    int from = 0;
    for (int step = 0; step < 2 * half_ - 1; ++step) {
      make_transforms<kShears>(from, least, counts);
      update<kShears>(from);
      from = 1 - from;
    }
    // The number of steps is odd: back to the first half of the memory.
    for (const ShearMatrix m : kShearMatrixList) {
      if (!kShears && (m == ShearMatrix::kR || m == ShearMatrix::kC)) continue;
      const T* const x = b_.matrix(m, from);
      T* const y = b_.matrix(m, 0);
      for (int i = 0; i < b_.matrix_size(); ++i) y[i] = x[i];
    }
    return counts;
  }

 private:
  // Numbers of the pairs of a step, half_ of each kind.
  enum Numbers { kPp, kPq, kQp, kQq, kRpq, kCpq, kColumns, kComplexNumbers };
  SVD_HD T* number(int i) const { return b_.numbers + 2 * i * half_; }
  SVD_HD T* outside_size() const { return number(kComplexNumbers); }
  SVD_HD T* column_size() const { return outside_size() + half_; }
  SVD_HD T* transform(int i) const { return b_.transforms + 2 * i * half_; }
  SVD_HD PairTransform<Lane> load_transform(int at) const {
    const auto load = [&](int i) SVD_LAMBDA { return load_lines<Lane>(transform(i), half_, at); };
    return {load(0), load(1), load(2), load(3)};
  }
  SVD_HD PairTransform<Lane> same_transform(int j) const {
    const auto load = [&](int i) SVD_LAMBDA { return same_line<Lane>(transform(i), half_, j); };
    return {load(0), load(1), load(2), load(3)};
  }

  SVD_HD T* column(ShearMatrix m, int from, int seat) const { return b_.column(m, from, seat); }
  SVD_HD int bottom() const { return half_ + kShearAlignment; }

  SVD_HD void take(int number_of, int i, const T* column, int at) {
    number(number_of)[i] = column[at];
    number(number_of)[half_ + i] = column[plane_ + at];
  }
  SVD_HD void put(T* column, int at, T re, T im) {
    column[at] = re;
    column[plane_ + at] = im;
  }

  // The 2 x 2 matrices of the pairs; kOut: zeros take their place in P, so that sums leave them out.
  template <bool kOut>
  SVD_HD void exchange_pairs(int from) {
    for (int i = 0; i < half_; ++i) {
      T* const p = column(ShearMatrix::kP, from, i);
      T* const q = column(ShearMatrix::kP, from, half_ + i);
      const int top = i, low = bottom() + i;
      if constexpr (kOut) {
        take(kPp, i, p, top);
        take(kQp, i, p, low);
        take(kPq, i, q, top);
        take(kQq, i, q, low);
      }
      const auto back = [&](T* to, int at, int n)
                            SVD_LAMBDA { put(to, at, kOut ? T(0) : number(n)[i], kOut ? T(0) : number(n)[half_ + i]); };
      back(p, top, kPp);
      back(p, low, kQp);
      back(q, top, kPq);
      back(q, low, kQq);
    }
  }

  SVD_HD void take_outside(int from) {
    for (int i = 0; i < half_; ++i) {
      const int top = i, low = bottom() + i;
      const T *r_p = column(ShearMatrix::kR, from, i), *r_q = column(ShearMatrix::kR, from, half_ + i);
      const T *c_p = column(ShearMatrix::kC, from, i), *c_q = column(ShearMatrix::kC, from, half_ + i);
      take(kRpq, i, r_q, top);
      take(kCpq, i, c_q, top);
      outside_size()[i] = (r_p[top] + r_q[low]) + (c_p[top] + c_q[low]);
    }
  }

  // sum_j conj(p_jp) p_jq and sum_j |p_jp|^2 + |p_jq|^2 for the columns of pair i; a lane has rows here.
  SVD_HD void sum_columns(int from, int i) {
    constexpr int kParts = kShearAlignment / Lane::kLanes;
    const T* const p = column(ShearMatrix::kP, from, i);
    const T* const q = column(ShearMatrix::kP, from, half_ + i);
    OutsideSums<Lane> sums[kParts];
    SVD_UNROLL for (int x = 0; x < kParts; ++x) sums[x] = {{Lane(0), Lane(0)}, Lane(0)};
    for (const int half_start : {0, bottom()}) {
      for (int at = half_start; at < half_start + half_; at += kShearAlignment) {
        SVD_UNROLL for (int x = 0; x < kParts; ++x) {
          const C jp = load_lines<Lane>(p, plane_, at + x * Lane::kLanes);
          const C jq = load_lines<Lane>(q, plane_, at + x * Lane::kLanes);
          sums[x].c = add_product(sums[x].c, jp, jq);
          sums[x].g = add_square(add_square(sums[x].g, jp), jq);
        }
      }
    }
    T s[3][kShearAlignment];
    SVD_UNROLL for (int x = 0; x < kParts; ++x) {
      sums[x].c.re.store(s[0] + x * Lane::kLanes);
      sums[x].c.im.store(s[1] + x * Lane::kLanes);
      sums[x].g.store(s[2] + x * Lane::kLanes);
    }
    const auto joined = [](const T* y)
                            SVD_LAMBDA { return ((y[0] + y[4]) + (y[2] + y[6])) + ((y[1] + y[5]) + (y[3] + y[7])); };
    number(kColumns)[i] = joined(s[0]);
    number(kColumns)[half_ + i] = joined(s[1]);
    column_size()[i] = joined(s[2]);
  }

  // sum_j p_pj conj(p_qj) and sum_j |p_pj|^2 + |p_qj|^2 for pairs at, at + 1, ..
  SVD_HD OutsideSums<Lane> sum_rows(int from, int at) const {
    using Sums = OutsideSums<Lane>;
    return sum_of(2 * half_, Sums{{Lane(0), Lane(0)}, Lane(0)}, [&](Sums s, int j) SVD_LAMBDA {
      const T* const x = column(ShearMatrix::kP, from, j);
      const C pj = load_lines<Lane>(x, plane_, at), qj = load_lines<Lane>(x, plane_, bottom() + at);
      s.c = add_product(s.c, qj, pj);
      s.g = add_square(add_square(s.g, pj), qj);
      return s;
    });
  }

  template <bool kShears>
  SVD_HD OutsideSums<Lane> sums_of(int from, int at) const {
    if constexpr (!kShears) {
      return {{Lane(0), Lane(0)}, Lane(0)};
    } else {
      OutsideSums<Lane> sums = sum_rows(from, at);
      const auto load = [&](int n) SVD_LAMBDA { return load_lines<Lane>(number(n), half_, at); };
      sums.c = (sums.c - load(kColumns)) + (load(kRpq) - load(kCpq));
      sums.g = (sums.g + Lane::load(column_size() + at)) + Lane::load(outside_size() + at);
      return sums;
    }
  }

  template <bool kShears>
  SVD_HD void make_transforms(int from, T least, ShearBlockCounts& counts) {
    exchange_pairs<true>(from);
    if constexpr (kShears) {
      take_outside(from);
      for (int i = 0; i < half_; ++i) sum_columns(from, i);
    }
    for (int at = 0; at < half_; at += Lane::kLanes) {
      const auto load = [&](int n) SVD_LAMBDA { return load_lines<Lane>(number(n), half_, at); };
      const OutsideSums<Lane> sums = sums_of<kShears>(from, at);
      // Line p is the first of the two in A, on top or not.
      const auto turned = Lane::load(b_.lines + at) > Lane::load(b_.lines + half_ + at);
      const C pq = load(kPq), qp = load(kQp), d = load(kQq) - load(kPp), minus_d{-d.re, -d.im};
      const PairNumbers<Lane> x{{select_element(turned, conj(sums.c), sums.c), sums.g},
                                select_element(turned, qp, pq),
                                select_element(turned, pq, qp),
                                select_element(turned, minus_d, d)};
      const PairTransform<Lane> t = transform_of<kShears>(x, Lane(least), Lane::mask(true));
      const PairTransform<Lane> back = exchanged(t);
      const auto keep = [&](int i, const C& plain, const C& exchanged_one) SVD_LAMBDA {
        store_lines(select_element(turned, exchanged_one, plain), transform(i), half_, at);
      };
      keep(0, t.pp, back.pp);
      keep(1, t.pq, back.pq);
      keep(2, t.qp, back.qp);
      keep(3, t.qq, back.qq);
    }
    exchange_pairs<false>(from);
    count(counts);
  }

  SVD_HD void count(ShearBlockCounts& counts) const {
    for (int i = 0; i < half_; ++i) {
      const auto is = [&](int n, T re) SVD_LAMBDA { return transform(n)[i] == re && transform(n)[half_ + i] == T(0); };
      const bool none = is(1, T(0)) && is(2, T(0));
      counts.transforms += none ? 0 : 1;
      counts.proper += none || (is(0, T(1)) && is(3, T(1))) ? 0 : 1;
    }
  }

  // Where the line of a seat sits after the step.
  SVD_HD int next_seat(int seat) const { return next_shear_seat(half_, seat); }

  // A column is complete: the lines at the ends go where the loop could not put them.
  SVD_HD void turn_ends(T* to) const {
    for (T* x : {to, to + plane_}) {
      const T first = x[1], came_up = x[bottom() - 1], went_down = x[half_];
      x[0] = first;
      x[1] = came_up;
      x[bottom() + half_ - 1] = went_down;
    }
  }

  // The columns of pair j of m: rows by the transforms of the pairs, columns by that of pair j.
  // By::kPlain: rows by T^-1, columns by T. By::kAdjoint: rows by T^H, columns by T^-H.
  enum class By { kPlain, kAdjoint, kNothing };
  template <By kRows, By kColumnsBy>
  SVD_HD void update_columns(ShearMatrix m, int from, int j, int to_p, int to_q) {
    const T *x_p = column(m, from, j), *x_q = column(m, from, half_ + j);
    T *y_p = column(m, 1 - from, to_p), *y_q = column(m, 1 - from, to_q);
    const PairTransform<Lane> given = same_transform(j);
    const PairTransform<Lane> columns = kColumnsBy == By::kAdjoint ? adjoint_inverse(given) : given;
    for (int at = 0; at < half_; at += Lane::kLanes) {
      const PairTransform<Lane> own = load_transform(at);
      const PairTransform<Lane> rows = kRows == By::kAdjoint ? adjoint_inverse(own) : own;
      C pp = load_lines<Lane>(x_p, plane_, at), qp = load_lines<Lane>(x_p, plane_, bottom() + at);
      C pq = load_lines<Lane>(x_q, plane_, at), qq = load_lines<Lane>(x_q, plane_, bottom() + at);
      transform_rows(pp, qp, rows);
      transform_rows(pq, qq, rows);
      if constexpr (kColumnsBy != By::kNothing) {
        transform_columns(pp, pq, columns);
        transform_columns(qp, qq, columns);
      }
      store_lines(pp, y_p, plane_, at + 1);
      store_lines(qp, y_p, plane_, bottom() + at - 1);
      store_lines(pq, y_q, plane_, at + 1);
      store_lines(qq, y_q, plane_, bottom() + at - 1);
    }
    turn_ends(y_p);
    turn_ends(y_q);
  }

  SVD_HD void update_basis(int from, int j, int to_p, int to_q) {
    const T *x_p = column(ShearMatrix::kW, from, j), *x_q = column(ShearMatrix::kW, from, half_ + j);
    T *y_p = column(ShearMatrix::kW, 1 - from, to_p), *y_q = column(ShearMatrix::kW, 1 - from, to_q);
    const PairTransform<Lane> t = same_transform(j);
    for (const int start : {0, bottom()}) {
      for (int at = start; at < start + half_; at += Lane::kLanes) {
        C p = load_lines<Lane>(x_p, plane_, at), q = load_lines<Lane>(x_q, plane_, at);
        transform_columns(p, q, t);
        store_lines(p, y_p, plane_, at);
        store_lines(q, y_q, plane_, at);
      }
    }
  }

  template <bool kShears>
  SVD_HD void update(int from) {
    for (int j = 0; j < half_; ++j) {
      const int to_p = next_seat(j), to_q = next_seat(half_ + j);
      update_columns<By::kPlain, By::kPlain>(ShearMatrix::kP, from, j, to_p, to_q);
      if constexpr (kShears) {
        update_columns<By::kPlain, By::kAdjoint>(ShearMatrix::kR, from, j, to_p, to_q);
        update_columns<By::kAdjoint, By::kPlain>(ShearMatrix::kC, from, j, to_p, to_q);
      }
      update_columns<By::kPlain, By::kNothing>(ShearMatrix::kInverse, from, j, j, half_ + j);
      update_basis(from, j, to_p, to_q);
    }
    turn_lines();
  }

  SVD_HD void turn_lines() {
    T* const lines = b_.lines;
    const T up = lines[half_], down = lines[half_ - 1];
    for (int i = half_ - 1; i > 1; --i) lines[i] = lines[i - 1];
    for (int i = half_; i < 2 * half_ - 1; ++i) lines[i] = lines[i + 1];
    lines[1] = up;
    lines[2 * half_ - 1] = down;
  }

  const ShearBlock<T> b_;
  const int half_, plane_;
};

SVD_KERNEL_END

#endif
