// The first look at a request: shape, options, sizes, limits. A user's mistake is INVALID_ARGUMENT and names its field.
#ifndef SVDSERVE_SERVER_VALIDATE_VALIDATE_H_
#define SVDSERVE_SERVER_VALIDATE_VALIDATE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "engine/planner.h"
#include "server/error.h"
#include "server/request.h"

namespace svdserve::server {

struct ValidationLimits {
  int64_t max_matrices = 16777216;                // of one request
  int64_t max_message_bytes = int64_t{64} << 20;  // of one reply
};

// Bytes of a reply beyond its planes: 5 bytes a matrix, should every one be an exception (4 of its index, which is
// below 2^28, and 1 of its status), something for each group, and everything else.
inline constexpr int64_t kReplyBytesPerException = 5;
inline constexpr int64_t kReplyBytesPerGroup = 512;
inline constexpr int64_t kReplyBytesFixed = 4096;

struct Validated {
  Plan plan;
  int64_t result_bytes = 0;  // of its planes
};

// Checks request.problem, options, count and payload_bytes, in the order of their fields; nothing is read from the
// payload and nothing of the request's size is allocated. On success fills *validated.
Error Validate(const Request& request, const ValidationLimits& limits, Validated* validated);

// The same of a request of groups: each of them, how many they are, and what they are together.
Error ValidateGroups(absl::Span<const Request> groups, const ValidationLimits& limits,
                     std::vector<Validated>* validated);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_VALIDATE_VALIDATE_H_
