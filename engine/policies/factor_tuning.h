// Tuning values of large factors. Speed alone; a width changes the bits within the bounds of the contract.
#ifndef SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_

#include <algorithm>
#include <cstdint>

namespace svdserve {

// Columns of a block on the host; a block pair has twice as many. Its factor and transformation, 2 (2 w)^2 doubles,
// should stay in a core's own cache, and the products of its columns should be large enough for GEMM.
constexpr int64_t host_factor_block_width(int64_t n) { return n <= 256 ? 16 : n <= 1024 ? 32 : 64; }

// Of m x n, m >= n: whether the host leaves a tall operand where it lies and reduces it block of rows by block of rows.
// Below, there are too few rows for two chains.
constexpr bool is_host_factor_tall(int64_t m, int64_t n) { return m / 16 >= n; }
// Rows of such a block: a mebibyte of doubles, which stays in a core's own cache, and enough of them for GEMM.
constexpr int64_t host_factor_block_rows(int64_t n) { return std::clamp<int64_t>((1 << 17) / n, 256, 4096); }
// Chains of blocks, each reduced by a thread of its own. Each has a few n x n matrices.
constexpr int64_t host_factor_chains(int64_t m, int64_t n, int threads) {
  return std::clamp<int64_t>(m / (8 * n), 1, threads);
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_POLICIES_FACTOR_TUNING_H_
