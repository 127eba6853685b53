// How large the rounding error of a symmetric indefinite factorization M = G J G^H is in what is left of M. All back
// ends tell zeros from values by it.
//
// After some pivots, in exact arithmetic on what was computed,
//   M + E = G J G^H + S,   |E(i, j)| about u |G(i, :)| |G(j, :)|,   u = 2^-53
// with S what is left, in the rows without a pivot. Let P be the rows with one, and W = G(rest, :) G(P, :)^-1, the
// multipliers from row to row. Where P has the rank of M, the exact S is zero. The computed one is
//   S = [-W I] E [-W I]^H   to first order.
// With independent entries of E its entries have the deviations u t_i t_j,
//   t_i^2 = |G(i, :)|^2 + sum over k in P of |W(i, k)|^2 |G(k, :)|^2.
// The second term is what earlier rows hand on. It is the larger one where G(P, :) is ill-conditioned even with unit
// rows. Probes estimate it. With signs z_k = +-|G(k, :)| the mean of |y_i|^2, y = W z, is the sum. A pivot updates y as
// it updates a right side of M: see probe_step().
//
// The rule: an entry up to (8 + sqrt n) u t_i t_j is zero. sqrt n is for the sums.
// It never knows the largest entry of M. D M D with a diagonal D and the same pivots has the multipliers D_i W(i, k) /
// D_k, so that t_i becomes D_i t_i: graded matrices keep their small eigenvalues. An entry that is set to zero has
// little more than a digit, as M + E stands for M, too.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_FACTOR_ERROR_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_FACTOR_ERROR_H_

#include <cmath>
#include <cstdint>

#include "engine/core/complex.h"
#include "engine/core/kernel_namespace.h"

namespace svdserve::large {

// 60 000 matrices of integers, others than the tests', did not have full rank. 4 probes found an eigenvalue too many in
// 14 of them, 8 in one, 16 in none. Without probes there were 5385.
inline constexpr int kErrorProbes = 8;

// Entries up to this times t_i t_j are zero.
inline double zero_bound(int64_t n) { return (8 + std::sqrt(static_cast<double>(n))) * 0x1p-53; }

// The sign of z_k, k a row of M: a hash (Steele, Lea and Flood, OOPSLA 2014).
SVD_HD double probe_sign(int64_t row, int probe) {
  uint64_t bits = static_cast<uint64_t>(row * kErrorProbes + probe + 1) * 0x9e3779b97f4a7c15u;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return ((bits ^ (bits >> 31)) & 1) != 0 ? -1 : 1;
}

// z_k - y_k of a pivot's row; norm: |G(k, :)| with the pivot's columns.
SVD_HD double probe_rest(double y, double z) { return z - y; }
SVD_HD Complex probe_rest(Complex y, double z) { return {z - y.re, -y.im}; }

// sum + x y, rounded as it comes: hosts without a fused multiply-add would call a function.
SVD_HD double plus_probe(double sum, double x, double y) { return sum + x * y; }
SVD_HD Complex plus_probe(Complex sum, Complex x, Complex y) {
  return {sum.re + (x.re * y.re - x.im * y.im), sum.im + (x.re * y.im + x.im * y.re)};
}
SVD_HD double probe_square(double y) { return y * y; }
SVD_HD double probe_square(Complex y) { return y.re * y.re + y.im * y.im; }

// A pivot's column g of G is `root` times a unit vector, x in row i and y in row k, in the pivot's rows (one row: x = 1,
// y = 0). It adds g(r) probe_step() to y_r, with the rests of both rows before the pivot. The sum over a pivot's columns
// is y_r + W(r, {i, k}) (z - y)({i, k}).
template <class E>
SVD_HD E probe_step(E x, E y, E rest_i, E rest_k, double root) {
  return times_real(plus_probe(plus_probe(from_real<E>(0), conjugate(x), rest_i), conjugate(y), rest_k), 1 / root);
}

// t_i. squares: the sum of |y_i|^2 over the probes.
SVD_HD double row_error(double row_norm, double squares) {
  return std::sqrt(row_norm * row_norm + squares * (1.0 / kErrorProbes));
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_FACTOR_ERROR_H_
