#include "server/validate/validate.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

Error invalid(std::string field, std::string message, Reason reason = Reason::kInvalidField) {
  return {absl::StatusCode::kInvalidArgument, reason, std::move(message), std::move(field), absl::ZeroDuration()};
}

// The planner's field names live in two messages of the wire.
Error invalid_plan(const PlanError& error) {
  const bool is_shape = error.field == "rows" || error.field == "cols";
  return invalid(absl::StrCat(is_shape ? "matrices." : "options.", error.field), error.message);
}

// a * b, or false where int64_t does not hold it.
bool multiply(int64_t a, int64_t b, int64_t* product) { return !__builtin_mul_overflow(a, b, product); }

}  // namespace

Error Validate(const Request& request, const ValidationLimits& limits, Validated* validated) {
  PlanOrError planned = make_plan(request.problem, request.options);
  if (!planned.plan.has_value()) return invalid_plan(planned.error);
  if (request.count < 0 || request.count > limits.max_matrices) {
    return invalid("matrices.count",
                   absl::StrCat("must be between 0 and ", limits.max_matrices, ", is ", request.count));
  }
  // The planner has bounded rows and cols, so one matrix fits; `count` of them need not.
  const int64_t one = static_cast<int64_t>(matrix_bytes(request.problem));
  int64_t expected = 0;
  if (!multiply(request.count, one, &expected)) {
    return invalid("matrices.count", absl::StrCat(request.count, " matrices of ", one, " bytes are too many to count"));
  }
  if (std::cmp_not_equal(request.payload_bytes, expected)) {
    return invalid("matrices.data", absl::StrCat("must hold ", request.count, " matrices of ", one,
                                                 " bytes: ", expected, " bytes, holds ", request.payload_bytes));
  }
  const Plan& plan = *planned.plan;
  const int64_t group = plan.outputs.group;
  if (request.count % group != 0) {
    return invalid("matrices.count",
                   absl::StrCat("must be a multiple of options.mimo.group_size, which is ", group, ", is ", request.count));
  }
  const int64_t results = static_cast<int64_t>(result_bytes(plan, group));
  int64_t reply = 0;
  if (!multiply(request.count / group, results + group * kReplyBytesPerException, &reply) ||
      reply > limits.max_message_bytes - kReplyBytesFixed) {
    return invalid("matrices.count",
                   absl::StrCat("the reply to ", request.count, " matrices would pass the message limit of ",
                                limits.max_message_bytes, " bytes; send fewer at a time"),
                   Reason::kReplyTooLarge);
  }
  validated->plan = plan;
  validated->result_bytes = request.count / group * results;
  return {};
}

}  // namespace svdserve::server
