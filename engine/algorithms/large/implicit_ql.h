// Eigenvalues and eigenvectors of a small real symmetric tridiagonal matrix, by QL steps with implicit shifts: the leaves
// of divide and conquer (tridiagonal_merge.h).
//
//   T = V diag(d) V^T, n x n, |T| <= 1: d its diagonal, which the eigenvalues overwrite in no order, e its subdiagonal
// Method, for l = 0, 1, ...: m is the first row from l on that nothing connects with the next. A step has Wilkinson's
// shift. Its rotations in the planes (i, i + 1), i = m - 1 .. l, chase the bulge up from row m. It ends when m is l.
// Ends without convergence after kMostQlSteps steps for one eigenvalue, which is known of no finite matrix.
// Accuracy: |T - V diag(d) V^T| and |V^T V - I| are a few n u. That is absolute: what is below u need not have a digit.
// Source: Dubrulle, Martin and Wilkinson, Numer. Math. 12 (1968) 377-383; Parlett, The Symmetric Eigenvalue Problem
// (1998), sections 8.11 and 8.12.
// Cost: about 1.5 n^2 rotations, 6 n operations each with V's columns.
//
// A Leaf keeps T and V. One thread or the lanes of a warp call it, all with the same arguments:
//   d(i), e(i), set_d(i, x), set_e(i, x)
//   end_of_block(l)    the least m >= l with m = n - 1 or is_negligible(e(m), d(m), d(m + 1))
//   rotate(i, c, s)    V's columns i and i + 1 times [c s; -s c]
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_IMPLICIT_QL_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_IMPLICIT_QL_H_

#include <cmath>

#include "engine/core/kernel_namespace.h"

namespace svdserve::large {

inline constexpr int kMostQlSteps = 40;  // for an eigenvalue; two are usual

// May e be taken for zero between d and d_next? It is below their rounding, or far below that of a matrix of norm one.
SVD_HD bool is_negligible(double e, double d, double d_next) {
  const double size = std::fabs(d) + std::fabs(d_next);
  return std::fabs(e) <= 0x1p-53 * size || std::fabs(e) < 0x1p-120;
}

// d_l less the eigenvalue of [d_l e_l; e_l d_(l+1)] that is nearer to it.
template <class Leaf>
SVD_HD double wilkinson_difference(const Leaf& leaf, int l) {
  const double half = (leaf.d(l + 1) - leaf.d(l)) / (2 * leaf.e(l));
  const double root = std::sqrt(std::fma(half, half, 1.0));
  return leaf.e(l) / (half + std::copysign(root, half));
}

// One step on rows l .. m.
template <class Leaf>
SVD_HD void ql_step(Leaf& leaf, int l, int m) {
  double g = leaf.d(m) - leaf.d(l) + wilkinson_difference(leaf, l);
  double s = 1, c = 1, p = 0;
  for (int i = m - 1; i >= l; --i) {
    // The rotation that takes the bulge f to the row above.
    const double f = s * leaf.e(i), b = c * leaf.e(i);
    const double square = std::fma(f, f, g * g);
    if (square < 0x1p-900) {  // both are nothing beside a norm of one: the block ends here
      leaf.set_e(i + 1, 0);
      leaf.set_d(i + 1, leaf.d(i + 1) - p);
      leaf.set_e(m, 0);
      return;
    }
    const double r = std::sqrt(square);
    leaf.set_e(i + 1, r);
    s = f / r;
    c = g / r;
    g = leaf.d(i + 1) - p;
    const double change = std::fma(leaf.d(i) - g, s, 2 * c * b);
    p = s * change;
    leaf.set_d(i + 1, g + p);
    g = std::fma(c, change, -b);
    leaf.rotate(i, c, s);
  }
  leaf.set_d(l, leaf.d(l) - p);
  leaf.set_e(l, g);
  leaf.set_e(m, 0);
}

// e(n - 1) may be written to and is not read. False: it did not converge.
template <class Leaf>
SVD_HD bool implicit_ql(Leaf& leaf, int n) {
  for (int l = 0; l < n; ++l) {
    int steps = 0;
    for (int m = leaf.end_of_block(l); m != l; m = leaf.end_of_block(l)) {
      if (++steps > kMostQlSteps) return false;
      ql_step(leaf, l, m);
    }
  }
  return true;
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_IMPLICIT_QL_H_
