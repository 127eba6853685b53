// The pointwise level on the host: one-sided Jacobi on the square factor of a block pair, as vector code for the
// processor's instruction set.
//
//   R := R W by plane rotations of its columns, W := the product   (both of the scaled columns, see large_backend.h)
// A pair of columns p < q is rotated by algorithms/jacobi/signed_rotation.h where |r_p^H r_q| > tolerance |r_p| |r_q|.
// Source: Novakovic, SIAM J. Sci. Comput. 37 (2015) C1-C30, section 4.3 and appendix B; g_p -> column p of r, V'_pq ->
// w, c(eps) -> tolerance, M_s -> max_sweeps.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_PAIR_ROTATIONS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_PAIR_ROTATIONS_H_

#include <cstdint>
#include <vector>

#include "engine/algorithms/jacobi/pivot_strategy.h"

namespace svdserve::host {

// Planes and leading dimensions are in multiples of so many doubles.
inline constexpr int kPlaneAlignment = 8;

// Column j of an array is `planes` planes of `ld` doubles: its real parts, and of complex columns its imaginary ones.
// Rows size .. ld - 1 are zero. All memory is the caller's, r and w aligned to a cache line.
struct PairFactor {
  int size = 0;               // rows and columns
  int ld = 0;                 // a multiple of kPlaneAlignment
  int planes = 1;             // 1: real, 2: complex
  int positive = 0;           // columns before it have J = 1, the others -1
  double* r = nullptr;        // [in,out]
  double* w = nullptr;        // [in,out] multiplied from the right
  double* squares = nullptr;  // [out] |r_j|^2 as the rotations left them
  int32_t* f = nullptr;       // [in,out] exponents: they move with columns that change places

  double* r_column(int j) const { return r + static_cast<int64_t>(j) * planes * ld; }
  double* w_column(int j) const { return w + static_cast<int64_t>(j) * planes * ld; }
};

struct RotationCounts {
  int64_t rotations = 0, proper = 0;
};

// At most max_sweeps sweeps, each over all pairs of `order`; the last one earlier where a sweep had no rotation.
RotationCounts rotate_pairs(const PairFactor& factor, const std::vector<PivotPair>& order, double tolerance,
                            int max_sweeps);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_P_STEPS_PAIR_ROTATIONS_H_
