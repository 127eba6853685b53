// Tuning values of large factors. Speed alone; a width changes the bits within the bounds of the contract.
#ifndef SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_

#include <cstdint>

namespace svdserve {

// Columns of a block on the host; a block pair has twice as many. Its factor and transformation, 2 (2 w)^2 doubles,
// should stay in a core's own cache, and the products of its columns should be large enough for GEMM.
constexpr int64_t host_factor_block_width(int64_t n) { return n <= 256 ? 16 : n <= 1024 ? 32 : 64; }

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_
