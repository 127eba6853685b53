// Pivot strategies: in which order the pivot pairs (p, q), p < q < n, of a sweep are rotated. A p-step is a set of
// disjoint pairs, which may be rotated together or in any order: the bits are the same.
//
// Round robin, the tournament's: of n' = n rounded up to even players one stays and the others turn, so that n' - 1
// p-steps of n' / 2 pairs visit every pair once. For odd n each p-step has one pair with q = n, which does not exist.
// Source: Brent and Luk, SIAM J. Sci. Stat. Comput. 6 (1985) 69-84, section 3; first used here after the pairing of
// the pointwise one-sided Jacobi on a GPU.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_JACOBI_PIVOT_STRATEGY_H_
#define SVDSERVE_ENGINE_ALGORITHMS_JACOBI_PIVOT_STRATEGY_H_

#include <compare>

#if defined(__CUDACC__)
#define SVD_PIVOT_HD __host__ __device__ __forceinline__
#else
#define SVD_PIVOT_HD inline
#endif

namespace svdserve {

struct PivotPair {
  int p, q;
  friend auto operator<=>(const PivotPair&, const PivotPair&) = default;
};

SVD_PIVOT_HD constexpr int round_robin_pairs(int n) { return (n + 1) / 2; }
SVD_PIVOT_HD constexpr int round_robin_steps(int n) { return 2 * round_robin_pairs(n) - 1; }

// The pair as its players sit, p > q or not; q = n where one is missing. 0 <= step < round_robin_steps(n),
// 0 <= i < round_robin_pairs(n). Neighbouring i have neighbouring p and neighbouring q, but for the ends.
SVD_PIVOT_HD constexpr PivotPair round_robin_seats(int n, int step, int i) {
  const int turning = round_robin_steps(n);
  const int a = step + i, b = step - i;
  return {a >= turning ? a - turning : a, i == 0 ? turning : b < 0 ? b + turning : b};
}
SVD_PIVOT_HD constexpr PivotPair in_order(PivotPair x) { return x.p < x.q ? x : PivotPair{x.q, x.p}; }
SVD_PIVOT_HD constexpr PivotPair round_robin_pair(int n, int step, int i) {
  return in_order(round_robin_seats(n, step, i));
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_JACOBI_PIVOT_STRATEGY_H_
