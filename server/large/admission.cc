#include "server/large/admission.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/validate/validate_large.h"

namespace svdserve::server {
namespace {

// Ranges of an operand that are kept track of, beyond those that chunks of the full size can leave.
constexpr int64_t kSpareRanges = 1024;
// For each device its working memory on the host. No value: the matrix does not fit there.
LargeDemand working_bytes(const LargeStages& stages, const LargePlan& plan) {
  const int64_t left = stages.admission->share() - operand_and_result_bytes(plan);
  LargeDemand working;
  for (int d = 0; d < stages.runner->size(); ++d) {
    std::optional<int64_t> bytes = stages.runner->working_bytes(plan, d);
    if (bytes.has_value() && *bytes > left) bytes.reset();
    working.push_back(bytes);
  }
  return working;
}

// The largest of them; no value: the matrix fits nowhere.
std::optional<int64_t> most_of(const LargeDemand& working) {
  return *std::max_element(working.begin(), working.end());  // no value is less than any
}

Error too_large(const LargeStages& stages, const LargePlan& plan) {
  const LargeRunner& runner = *stages.runner;
  const int64_t both = operand_and_result_bytes(plan);
  const int64_t working = runner.working_bytes(plan, runner.size() - 1).value_or(0);
  const std::string fitting =
      largest_that_fits(plan, [&stages](const LargePlan& p) { return most_of(working_bytes(stages, p)).has_value(); });
  return {absl::StatusCode::kInvalidArgument, Reason::kFactorTooLarge,
          absl::StrCat("the matrix, its results and the working memory need ",
                       both + std::min(working, std::numeric_limits<int64_t>::max() - both),
                       " bytes; the limit for one client is ", stages.admission->share(), fitting.empty() ? "" : "; ",
                       fitting),
          "open.rows", absl::ZeroDuration()};
}

std::string names_of(const LargeRunner& runner, const std::vector<int>& devices) {
  std::set<int> all;
  for (const int d : devices) all.insert(runner.members(d).begin(), runner.members(d).end());
  return absl::StrJoin(all, ",", [&runner](std::string* out, int d) { out->append(runner.device(d).name); });
}

// On the fastest of these devices that knows; zero: none does.
absl::Duration predicted_time(const LargeRunner& runner, const std::vector<int>& devices, const LargePlan& plan) {
  double least = 0;
  for (const int d : devices) {
    const double seconds = runner.device(d).engine->predicted_seconds(plan);
    if (seconds > 0 && (least == 0 || seconds < least)) least = seconds;
  }
  return absl::Seconds(least);
}

}  // namespace

Error no_device() {
  return {absl::StatusCode::kUnavailable, Reason::kDeviceFault,
          "no healthy device is left that can compute this matrix; send it again later", "", absl::Seconds(1)};
}

Error admit_large(const LargeStages& stages, const Peer& peer, const LargeOpen& open, AdmittedLarge* admitted) {
  ValidatedLarge validated;
  if (Error error = validate_large(open, &validated); !error.ok()) return error;
  const LargePlan& plan = admitted->plan = validated.plan;
  admitted->working = working_bytes(stages, plan);
  const std::optional<int64_t> most_working = most_of(admitted->working);
  if (!most_working.has_value()) return too_large(stages, plan);
  const std::vector<int> candidates = stages.runner->candidates(admitted->working);
  if (candidates.empty()) return no_device();
  const auto operand = static_cast<int64_t>(plan.operand_bytes());
  const int64_t most = operand_and_result_bytes(plan) + *most_working;
  if (Error error = stages.admission->admit(peer, operand, most, &admitted->place, &admitted->request); !error.ok()) {
    stages.recorder->refused(error.reason);
    return error;
  }
  admitted->memory = LargeMemory::make(plan, std::move(validated.signature), admitted->request.split(operand));
  if (admitted->memory == nullptr) {
    return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes,
            "the server is out of memory for this matrix; send it again later", "", absl::Seconds(1)};
  }
  admitted->received.emplace(operand, static_cast<size_t>(operand / stages.options->chunk_bytes + kSpareRanges));
  admitted->candidates = names_of(*stages.runner, candidates);
  admitted->predicted = predicted_time(*stages.runner, candidates, plan);
  stages.recorder->large_accepted(most);
  return {};
}

}  // namespace svdserve::server
