#include "server/validate/validate_large.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

Error invalid(std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, std::move(message), std::move(field), {}};
}

// The planner's names are those of the engine's options.
std::string path_of(const std::string& field) {
  if (field == "rows" || field == "cols") return absl::StrCat("open.", field);
  if (field == "signature" || field == "triangle") return absl::StrCat("open.", field);
  if (field == "starting_vectors") return "open.starting_vectors";
  if (field == "strategy") return "open.options.pivot_strategy";
  if (field == "variant") return "open.options.block_variant";
  return absl::StrCat("open.options.", field);
}

Error read_signature(const LargeOpen& open, std::vector<int8_t>* signature) {
  if (std::cmp_not_equal(open.signature.size(), open.problem.cols)) {
    return invalid("open.signature", absl::StrCat("must have a byte for each of the ", open.problem.cols,
                                                  " columns, has ", open.signature.size()));
  }
  signature->reserve(open.signature.size());
  for (size_t i = 0; i < open.signature.size(); ++i) {
    const auto sign = static_cast<int8_t>(open.signature[i]);
    if (sign != 1 && sign != -1) {
      return invalid("open.signature", absl::StrCat("byte ", i, " must be 0x01 or 0xff, is 0x",
                                                    absl::Hex(static_cast<uint8_t>(sign), absl::kZeroPad2)));
    }
    signature->push_back(sign);
  }
  return {};
}

LargeKind kind_of(const LargeOpen& open) {
  if (open.decomposition == LargeProblem::kHermitian) return LargeKind::kHermitian;
  if (open.decomposition == LargeProblem::kHermitianFactor) return LargeKind::kHermitianFactor;
  if (open.decomposition == LargeProblem::kGeneral) return LargeKind::kGeneral;
  return open.signature.empty() ? LargeKind::kSvd : LargeKind::kHyperbolicSvd;
}

}  // namespace

Error validate_large(const LargeOpen& open, ValidatedLarge* validated) {
  LargeOptions options = open.options;
  options.kind = kind_of(open);
  if (!has_signature(options.kind) && !open.signature.empty()) {
    return invalid("open.signature", options.kind == LargeKind::kGeneral
                                         ? "must be empty for a general eigenproblem"
                                         : "must be empty for a Hermitian matrix; its factor G has a signature");
  }
  LargePlanOrError planned = plan_large(open.problem, options);
  if (!planned.plan.has_value()) return invalid(path_of(planned.error.field), planned.error.message);
  validated->plan = *std::move(planned.plan);
  validated->signature.clear();
  return has_signature(options.kind) ? read_signature(open, &validated->signature) : Error{};
}

int64_t operand_and_result_bytes(const LargePlan& plan) {
  uint64_t sum = 0;
  for (const uint64_t part : {plan.operand_bytes(), plan.left_bytes(), plan.values_bytes(), plan.right_bytes()}) {
    if (__builtin_add_overflow(sum, part, &sum)) return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>(std::min<uint64_t>(sum, std::numeric_limits<int64_t>::max()));
}

std::string largest_that_fits(const LargePlan& plan, absl::FunctionRef<bool(const LargePlan&)> fits) {
  const Problem& whole = plan.problem;
  const double most = static_cast<double>(std::max(whole.rows, whole.cols));
  // `size`: what the longer side would be.
  const auto scaled = [&](int64_t size) {
    Problem part = whole;
    const double scale = static_cast<double>(size) / most;
    part.rows = std::max<int64_t>(1, static_cast<int64_t>(scale * static_cast<double>(whole.rows)));
    part.cols = std::max<int64_t>(1, static_cast<int64_t>(scale * static_cast<double>(whole.cols)));
    return plan_large(part, plan.options).plan;
  };
  int64_t low = 0, high = static_cast<int64_t>(most);
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    const auto part = scaled(middle);
    if (part.has_value() && fits(*part)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == 0) return "";
  const Problem fitting = scaled(low)->problem;
  return absl::StrCat("a matrix of ", fitting.rows, " x ", fitting.cols, " would fit");
}

}  // namespace svdserve::server
