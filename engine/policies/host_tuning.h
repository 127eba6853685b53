// Tuning values of the host back end. Speed alone: no value here changes a bit of a result.
#ifndef SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_

#include <cstddef>

namespace svdserve {

// Vector registers that a pack of the sizes known to the compiler holds side by side (core/lane.h). Two against one, on
// one core with AVX-512: 1.6 times the matrices a second for 4 x 4 and 8 x 8 f64, 1.25 times for c64.
inline constexpr int kVectorsPerPack = 2;

// Run-time sizes gain as much from two vectors as long as a pack fits the first-level data cache; beyond, they lose a
// fifth (32 x 32 f64). This is the largest pack, in bytes, that gets two.
inline constexpr size_t kLargestWidePackBytes = 40 * 1024;

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_
