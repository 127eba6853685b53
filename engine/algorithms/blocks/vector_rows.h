// Rows of U and of V of a bidiagonalized matrix, each by itself.
//
//   A = Q B P^H,  B = D_1 |B| D_2^H,  |B| = U_B S V_B^T      =>      A = (Q D_1 U_B) S (P D_2 V_B)^H
//   row r of U:   e_r^T H_0 H_1 ..,  then times D_1, then the rotations that make U_B;  V likewise
//
// H_j = I - g_j h_j h_j^H are those of blocks/bidiagonalize_in_registers.h. D_1 and D_2 hold the phases that leave the
// moduli of B: with q_0 = 1
//
//   p_j = phase(b_jj) q_j,   q_{j+1} = conj(phase(b_{j,j+1})) p_j
//
// Rows of the eigenvectors of a Hermitian matrix, A = Q T Q^H, are like those of V.
//
// No row waits for another. A few threads have a row in their registers for the reflectors, and one thread reads and
// writes it for each group of sweeps.
// Cost for each row of k elements: k^2 fused operations, and 4 for each rotation.
// Accuracy: rows of Q and P are orthonormal to order k u. Each rotation adds u (lanes/rotation_groups.h).
// Source: Golub and Van Loan, Matrix Computations, 3rd ed., sections 5.1.6 and 8.6.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_VECTOR_ROWS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_VECTOR_ROWS_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_VECTOR_ROWS_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_BLOCKS_VECTOR_ROWS_H_
#endif

#include "engine/algorithms/lanes/rotation_groups.h"
#include "engine/core/reduce.h"

SVD_KERNEL_BEGIN

// Elements go to the threads of a row by so many.
inline constexpr int kRowStep = 4;
SVD_HD int padded_row(int k) { return (k + kRowStep - 1) / kRowStep * kRowStep; }

// Two rows of a real matrix are the parts of a complex one, since a real reflector does the same to both. sum + h^H x, and
// x - h w:
template <class L>
SVD_HD ComplexElement<L> add_reflected(ComplexElement<L> sum, const RealElement<L>& h, const ComplexElement<L>& x) {
  return plus_scaled(sum, h.re, x);
}
template <class L>
SVD_HD ComplexElement<L> add_reflected(ComplexElement<L> sum, const ComplexElement<L>& h, const ComplexElement<L>& x) {
  return add_product(sum, h, x);
}
template <class L>
SVD_HD ComplexElement<L> subtract_reflected(ComplexElement<L> x, const RealElement<L>& h, const ComplexElement<L>& w) {
  return plus_scaled(x, -h.re, w);
}
template <class L>
SVD_HD ComplexElement<L> subtract_reflected(ComplexElement<L> x, const ComplexElement<L>& h,
                                            const ComplexElement<L>& w) {
  return subtract_product(x, h, w);
}

// The part of a row, or of two where E is real, in the registers of one of its P threads (core/team.h). Thread p has
// the elements 4 c .. 4 c + 3 of each c with c mod P = p, kSteps times.
template <class E, class Threads, int kSteps>
class ReflectedRow {
 public:
  using L = typename E::Lane;
  using Row = ComplexElement<L>;

  // The row e_r, and where E is real the row e_s.
  SVD_HD ReflectedRow(const Threads& threads, int r, int s) : threads_(threads) {
    for_each([&](int i, Row* x) SVD_LAMBDA { *x = {L(i == r ? 1 : 0), L(!E::kComplex && i == s ? 1 : 0)}; });
  }

  // x := x H_0 .. H_{n-1}, with h_j of k elements, the first ones zero. read(j, i, h) gets kRowStep of them from i on, a
  // multiple of that, where some may be nonzero: from element `first` + j to k - 1. Those beyond k - 1 are zero. g(j): of H_j.
  template <class Read, class Factor>
  SVD_HD void reflect(int k, int n, int first, Read read, Factor g) {
    const auto get = [&](int j, Reflector* to) SVD_LAMBDA {
      SVD_UNROLL for (int c = 0; c < kSteps; ++c) {
        const int i = place(c);
        SVD_UNROLL for (int p = 0; p < kRowStep; ++p) to->h[c][p] = zero_element<E>();
        if (j < n && i + kRowStep > first + j && i < k) read(j, i, to->h[c]);
      }
      to->g = j < n ? g(j) : L(0);
    };
    // The next reflector is read while one is applied.
    Reflector even, odd;
    get(0, &even);
    apply_all<0>(0, n, first, get, &even, &odd);
  }

  // f(i, x) for each element of the thread, i beyond k - 1, too.
  template <class F>
  SVD_HD void for_each(F f) {
    SVD_UNROLL for (int c = 0; c < kSteps; ++c) {
      SVD_UNROLL for (int p = 0; p < kRowStep; ++p) f(place(c) + p, &x_[c][p]);
    }
  }

 private:
  struct Reflector {
    E h[kSteps][kRowStep];
    L g;
  };

  SVD_HD int place(int c) const { return kRowStep * (threads_.index() + threads_.count() * c); }

  // Reflectors from j on. The elements with c < kFirst are done: all that is left of h is zero there.
  template <int kFirst, class Get>
  SVD_HD void apply_all(int j, int n, int first, Get get, Reflector* even, Reflector* odd) {
    if constexpr (kFirst < kSteps) {
      SVD_LOOP for (; j < n && first + j < kRowStep * Threads::count() * (kFirst + 1); j += 2) {
        get(j + 1, odd);
        apply<kFirst>(*even);
        get(j + 2, even);
        apply<kFirst>(*odd);
      }
      apply_all<kFirst + 1>(j, n, first, get, even, odd);
    }
  }

  template <int kFirst>
  SVD_HD void apply(const Reflector& by) {
    Row sums[kRowStep];
    SVD_UNROLL for (int p = 0; p < kRowStep; ++p) sums[p] = zero_element<Row>();
    SVD_UNROLL for (int c = kFirst; c < kSteps; ++c) {
      SVD_UNROLL for (int p = 0; p < kRowStep; ++p) sums[p] = add_reflected(sums[p], by.h[c][p], x_[c][p]);
    }
    Row w = (sums[0] + sums[2]) + (sums[1] + sums[3]);
    SVD_UNROLL for (int d = threads_.count() / 2; d > 0; d /= 2) {
      w = w + Row{L(threads_.exchanged(w.re.v, d)), L(threads_.exchanged(w.im.v, d))};
    }
    w = scaled(w, by.g);
    SVD_UNROLL for (int c = kFirst; c < kSteps; ++c) {
      SVD_UNROLL for (int p = 0; p < kRowStep; ++p) x_[c][p] = subtract_reflected(x_[c][p], by.h[c][p], w);
    }
  }

  const Threads threads_;
  Row x_[kSteps][kRowStep];
};

// z / |z|, or one where |z| is negligible.
template <class E>
SVD_HD E phase_of(const E& z) {
  using L = typename E::Lane;
  const L one(1), negligible(FloatTraits<typename E::Scalar>::kNegligibleSquare);
  E p = z;
  if constexpr (E::kComplex) {
    const L square = add_square(L(0), z);
    const auto known = square >= negligible;
    const L inverse = reciprocal(sqrt_in_range(at_least(square, negligible)));
    p.re = select(known, z.re * inverse, one);
    p.im = select(known, z.im * inverse, L(0));
  } else {
    p.re = copysign(one, z.re);
  }
  return p;
}
template <class E>
SVD_HD typename E::Lane modulus_of(const E& z) {
  using L = typename E::Lane;
  if constexpr (!E::kComplex) return abs(z.re);
  const L square = add_square(L(0), z), negligible(FloatTraits<typename E::Scalar>::kNegligibleSquare);
  return select(square >= negligible, sqrt_in_range(at_least(square, negligible)), L(0));
}
template <class E>
SVD_HD E product_of(const E& a, const E& b) {
  return add_product(zero_element<E>(), conj(a), b);
}

// Takes the phases from a bidiagonal matrix: diagonal[j], superdiagonal[j] := p_j, q_j, and d[j], e[j] get the moduli.
// Returns the largest of these. superdiagonal has k elements, d and e too; the last ones are not read.
template <class E>
SVD_HD typename E::Lane split_phases(int k, E* diagonal, E* superdiagonal, typename E::Lane* d, typename E::Lane* e) {
  using L = typename E::Lane;
  L largest(0);
  E q = zero_element<E>();
  q.re = L(1);
  SVD_LOOP for (int j = 0; j < k; ++j) {
    const E b = diagonal[j], above = j + 1 < k ? superdiagonal[j] : zero_element<E>();
    d[j] = modulus_of(b);
    e[j] = modulus_of(above);
    largest = at_least(largest, at_least(d[j], e[j]));
    const E p = phase_of(product_of(phase_of(b), q));
    diagonal[j] = p;
    superdiagonal[j] = q;
    q = phase_of(product_of(conj(phase_of(above)), p));
  }
  return largest;
}

// The same of a Hermitian tridiagonal matrix, off_diagonal[j] = t_{j+1,j}: it is D |T| D^H, off_diagonal[j] := d_jj, and e
// gets the moduli, with a zero at its end. Returns the largest of these and of the diagonal.
template <class E>
SVD_HD typename E::Lane split_hermitian_phases(int k, E* off_diagonal, const typename E::Lane* diagonal,
                                               typename E::Lane* e) {
  using L = typename E::Lane;
  L largest(0);
  E p = zero_element<E>();
  p.re = L(1);
  SVD_LOOP for (int j = 0; j < k; ++j) {
    const E below = j + 1 < k ? off_diagonal[j] : zero_element<E>();
    e[j] = modulus_of(below);
    largest = at_least(largest, at_least(abs(diagonal[j]), e[j]));
    off_diagonal[j] = p;
    p = phase_of(product_of(phase_of(below), p));
  }
  return largest;
}

// The place of value i by modulus, the largest first and equal ones as they are.
template <class L>
SVD_HD int place_of(int k, int i, const L* d) {
  const L own = abs(d[i]);
  int place = 0;
  for (int j = 0; j < k; ++j) {
    const L other = abs(d[j]);
    if ((other > own).m || (j < i && (other == own).m)) ++place;
  }
  return place;
}

// The same in ascending order.
template <class L>
SVD_HD int ascending_place_of(int k, int i, const L* d) {
  int place = 0;
  for (int j = 0; j < k; ++j) {
    if ((d[j] < d[i]).m || (j < i && (d[j] == d[i]).m)) ++place;
  }
  return place;
}

SVD_KERNEL_END

#endif
