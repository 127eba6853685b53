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

struct Validated {
  Plan plan;
  int64_t result_bytes = 0;  // of its planes
};

// Checks request.problem, options, count and the bytes of operands, in the order of their fields. It reads nothing from
// the operands and allocates nothing of the request's size. On success fills *validated.
Error validate(const Request& request, const ValidationLimits& limits, Validated* validated);

// The same of a request of groups: each of them, how many they are, and what they are together.
Error validate_groups(absl::Span<const Request> groups, const ValidationLimits& limits,
                      std::vector<Validated>* validated);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_VALIDATE_VALIDATE_H_
