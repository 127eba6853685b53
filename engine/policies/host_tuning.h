// Tuning values of the host back end. Speed alone: no value here changes a bit of a result.
#ifndef SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_
#define SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_

#include <cstddef>

namespace svdserve {

// Run-time sizes gain as much from two vectors as long as a pack fits the first-level data cache. Beyond, they lose a
// fifth (32 x 32 f64). This is the largest pack, in bytes, that gets two.
inline constexpr size_t kLargestWidePackBytes = 40 * 1024;

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_POLICIES_HOST_TUNING_H_
