// The first look at a factor: shape, options, signature. A user's mistake is INVALID_ARGUMENT and names its field.
#ifndef SVDSERVE_SERVER_VALIDATE_VALIDATE_LARGE_H_
#define SVDSERVE_SERVER_VALIDATE_VALIDATE_LARGE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/large_engine.h"
#include "server/error.h"
#include "server/large/large_request.h"

namespace svdserve::server {

struct ValidatedLarge {
  LargePlan plan;
  std::vector<int8_t> signature;  // hyperbolic: a number a column, +1 or -1
};

// On success fills *validated; else its contents mean nothing.
Error validate_large(const LargeOpen& open, ValidatedLarge* validated);

// Bytes of the operand and the results of a plan together; INT64_MAX where int64_t does not hold them.
int64_t operand_and_result_bytes(const LargePlan& plan);

// "a matrix of 1200 x 800 would fit": the largest of the plan's proportions for which `fits` holds. `fits` holds for
// none that is larger than one for which it does not. "" where not even the smallest does.
std::string largest_that_fits(const LargePlan& plan, absl::FunctionRef<bool(const LargePlan&)> fits);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_VALIDATE_VALIDATE_LARGE_H_
