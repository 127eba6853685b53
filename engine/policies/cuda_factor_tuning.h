// Tuning values of large factors on a GPU. Speed alone, but for the bits: those of a large factor are promised from run
// to run of one build.
#ifndef SVDSERVE_ENGINE_POLICIES_CUDA_FACTOR_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_CUDA_FACTOR_TUNING_H_

#include <cstdint>

namespace svdserve::cuda {

// Columns of a block pair of a factor of n columns, 64 or 128: wider pairs are multiplied at a higher rate and
// orthogonalized more slowly. Of complex ones 128 do not fit a multiprocessor.
constexpr int factor_pair_columns(int64_t n, bool complex) { return n < 6144 || complex ? 64 : 128; }

// A pair of blocks that nothing has changed since it was found orthogonal is not looked at again.
constexpr bool kSkipUnchangedPairs = true;

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_POLICIES_CUDA_FACTOR_TUNING_H_
