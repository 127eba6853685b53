// The inner sweeps of a block pair in Jacobi's method for general matrices, as vector code for the processor's
// instruction set. algorithms/general/shear_block.h has the method.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SHEAR_PAIRS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SHEAR_PAIRS_H_

#include "engine/algorithms/general/shear_block_layout.h"

namespace svdserve::host {

enum class ShearKind : bool { kRotations, kShearsAndRotations };

// One inner sweep of a block whose P, R, C are set, W and W' being identities or what a sweep before has left.
// kRotations: R and C may be anything. least = u^2 |A|_F^2.
ShearBlockCounts shear_sweep(const ShearBlock<double>& block, double least, ShearKind kind);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_SHEARS_SHEAR_PAIRS_H_
