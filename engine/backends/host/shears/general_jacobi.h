// Eigenvalues and eigenvectors of one large general matrix by Jacobi's method, spread over threads.
//
//   A V = V L,   W^H A = L W^H,   A n x n, L diagonal, V and W of unit columns
//   B := D^-1 P^T A P D             gebal's balancing
// Where neither a strategy nor a variant is named: simultaneous_jacobi.h, from V_0 or where B is nearly normal. Else, and
// where that does not converge:
//   B = E T E^-1, from E = I or from starting vectors V_0: E := D^-1 P^T V_0, B := E^-1 B E      block_shears.h
//   E = Q R,   S = Q^H B Q,   rotations of S and Q where |strict lower triangle of S|_F > 2 n u |S|_F
//   V, W from the triangle of S, times Q, the balancing undone                                   schur_vectors.h
//
// E is as ill-conditioned as the eigenvectors, Q is not: so V comes from Q. L is the diagonal of S. Values of a real
// matrix are paired as conjugate_pairs.h does, and their vectors with them.
// Source: Eberlein, J. SIAM 10 (1962) 74-88; Shroff, Numer. Math. 58 (1991) 779-805; the finish is that of
// algorithms/general/general_jacobi.h.
// Cost: that of the sweeps; for E, Q and S 22 n^3 flops of complex numbers, for V 8 n^3.
// Accuracy: |A V - V L|_F <= 10 n u |A|_F where it is kept; the caller computes the residual, and takes QR above that.
// Ends without results in five cases. The sweeps do not converge, or S is no triangle after kLargeBasisSweeps of
// rotations. The sum of the values is off the trace by more than 8 n u |S|_F. V_0 is not finite, or singular to n u. A real
// value of a real matrix has a vector that is not real up to a phase.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_GENERAL_JACOBI_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_GENERAL_JACOBI_H_

#include <complex>
#include <cstdint>
#include <functional>

#include "engine/backends/host/general/general_eigen.h"
#include "engine/backends/host/shears/block_shears.h"

namespace svdserve::host {

// Sweeps of rotations that may make S triangular.
inline constexpr int kLargeBasisSweeps = 10;

struct GeneralJacobiOptions {
  bool real = false;  // A is real
  PivotStrategy strategy = PivotStrategy::kRoundRobin;
  BlockVariant variant = BlockVariant::kBlockOriented;
  int max_sweeps = 0;
  int max_steps = 0;    // of simultaneous_jacobi.h; 0: its own
  double roundoff = 0;  // u of the operand's type, for the end of those steps
  // Fills an n x n matrix with V_0, by columns. False: an entry is not finite. Empty: a cold start. Called twice.
  std::function<bool(large::LargeView<std::complex<double>>)> start = {};
};

struct GeneralJacobiReport {
  bool good = false;        // the results are there
  bool started = false;     // from V_0
  BlockShearReport sweeps;  // of shears and rotations
};

// [in] a: n x n, finite, of norm about 1; overwritten. tell hears of the sweeps; fractions of the whole work, from 0 to 1,
// are told to progress. BlasThreads is the caller's.
GeneralJacobiReport general_jacobi(const LargeThreads& threads, large::LargeView<std::complex<double>> a,
                                   const GeneralResults& results, const GeneralJacobiOptions& options,
                                   const std::function<void(const BlockShearReport&, double)>& tell);

// An upper bound of the memory that it takes beside its arguments.
uint64_t general_jacobi_bytes(int64_t n, int threads);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_GENERAL_JACOBI_H_
