// How a message's size is reckoned: the bytes of a reply beyond its planes. The server refuses by these figures, and the
// clients cut batches by them.
#ifndef SVDSERVE_WIRE_LIMITS_H_
#define SVDSERVE_WIRE_LIMITS_H_

#include <cstdint>

namespace svdserve {

// The share of a matrix, should every one be an exception: 4 of its index, which is below 2^28, and 1 of its status.
inline constexpr int64_t kMessageBytesPerMatrix = 5;
inline constexpr int64_t kMessageBytesPerGroup = 512;
// Everything else, in a request or a reply.
inline constexpr int64_t kMessageBytesFixed = 4096;

}  // namespace svdserve
#endif  // SVDSERVE_WIRE_LIMITS_H_
