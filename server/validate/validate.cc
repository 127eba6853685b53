#include "server/validate/validate.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "wire/limits.h"

namespace svdserve::server {
namespace {

Error invalid(std::string field, std::string message, Reason reason = Reason::kInvalidField) {
  return {absl::StatusCode::kInvalidArgument, reason, std::move(message), std::move(field), absl::ZeroDuration()};
}

// The planner's field names live in two messages of the wire. `at`: the path of the batch.
Error invalid_plan(const std::string& at, const PlanError& error) {
  if (error.field == "rows" || error.field == "cols" || error.field == "exponent")
    return invalid(absl::StrCat(at, ".", error.field), error.message);
  if (error.field == "values") return invalid("options.mimo", error.message);  // everything else asks for something
  return invalid(absl::StrCat("options.", error.field), error.message);
}

// a * b, or false where int64_t does not hold it.
bool multiply(int64_t a, int64_t b, int64_t* product) { return !__builtin_mul_overflow(a, b, product); }

Error check_count(const std::string& at, const Request& request, const Plan& plan, int64_t most) {
  const int64_t group = plan.outputs.group;
  if (request.count < 0 || request.count > most) {
    return invalid(at + ".count", absl::StrCat("must be between 0 and ", most, ", is ", request.count));
  }
  if (request.count % group != 0) {
    return invalid(at + ".count", absl::StrCat("must be a multiple of options.mimo.group_size, which is ", group,
                                               ", is ", request.count));
  }
  return {};
}

// The operands have to be exactly what the sizes say.
Error check_data(const std::string& at, const Request& request) {
  // The planner has bounded rows and cols, so one matrix fits; `count` of them need not.
  const int64_t one = static_cast<int64_t>(stored_bytes(request.problem));
  int64_t expected = 0;
  if (!multiply(request.count, one, &expected)) {
    return invalid(at + ".count", absl::StrCat(request.count, " matrices of ", one, " bytes are too many to count"));
  }
  if (std::cmp_not_equal(request.payload_bytes, expected)) {
    return invalid(at + ".data", absl::StrCat("must hold ", request.count, " matrices of ", one, " bytes: ", expected,
                                              " bytes, holds ", request.payload_bytes));
  }
  return {};
}

// The same for the starting vectors, which are there if the options say so.
Error check_starting_vectors(const std::string& at, const Request& request, const Plan& plan) {
  const std::string field = at + ".starting_vectors";
  if (!plan.starting_vectors) {
    if (request.starting_vectors_bytes == 0) return {};
    const bool is_general = plan.decomposition == Decomposition::kGeneral;
    return invalid(field, is_general ? "must be empty, or set options.starting_vectors"
                                     : "must be empty: only eigenproblems of general matrices take starting vectors");
  }
  // Matrices of a general eigenproblem are small, and check_data() has bounded the count.
  const int64_t one = static_cast<int64_t>(starting_bytes(plan));
  if (std::cmp_equal(request.starting_vectors_bytes, request.count * one)) return {};
  return invalid(field, absl::StrCat("must hold ", request.count, " complex matrices of ", one, " bytes: ",
                                     request.count * one, " bytes, holds ", request.starting_vectors_bytes));
}

Error reply_too_large(std::string field, const ValidationLimits& limits, const std::string& what) {
  return invalid(std::move(field),
                 absl::StrCat("the reply to ", what, " would pass the message limit of ", limits.max_message_bytes,
                              " bytes; send fewer at a time"),
                 Reason::kReplyTooLarge);
}

// Checks the batch at path `at` and adds what its reply takes to *reply.
Error validate_batch(const std::string& at, const Request& request, const ValidationLimits& limits,
                     Validated* validated, int64_t* reply) {
  const PlanOrError planned = make_plan(request.problem, *request.options);
  if (!planned.plan.has_value()) return invalid_plan(at, planned.error);
  const Plan& plan = *planned.plan;
  if (Error error = check_count(at, request, plan, limits.max_matrices); !error.ok()) return error;
  if (Error error = check_data(at, request); !error.ok()) return error;
  if (Error error = check_starting_vectors(at, request, plan); !error.ok()) return error;
  const int64_t group = plan.outputs.group, units = request.count / group;
  const int64_t results = static_cast<int64_t>(result_bytes(plan, group));
  int64_t mine = 0;
  if (!multiply(units, results + group * kMessageBytesPerMatrix, &mine) ||
      __builtin_add_overflow(*reply, mine, reply) || *reply > limits.max_message_bytes - kMessageBytesFixed) {
    return reply_too_large(at + ".count", limits, absl::StrCat(request.count, " matrices"));
  }
  validated->plan = plan;
  validated->result_bytes = units * results;
  return {};
}

}  // namespace

Error validate(const Request& request, const ValidationLimits& limits, Validated* validated) {
  int64_t reply = 0;
  return validate_batch("matrices", request, limits, validated, &reply);
}

Error validate_groups(absl::Span<const Request> groups, const ValidationLimits& limits,
                      std::vector<Validated>* validated) {
  if (groups.empty() || groups.size() > kMaxGroups) {
    return invalid("groups", absl::StrCat("must be between 1 and ", kMaxGroups));
  }
  validated->resize(groups.size());
  int64_t reply = 0, matrices = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string at = absl::StrCat("groups[", i, "]");
    reply += kMessageBytesPerGroup;
    if (Error error = validate_batch(at, groups[i], limits, &(*validated)[i], &reply); !error.ok()) return error;
    matrices += groups[i].count;
    if (matrices > limits.max_matrices) {
      return invalid("groups", absl::StrCat("must hold at most ", limits.max_matrices, " matrices together"));
    }
  }
  return {};
}

}  // namespace svdserve::server
