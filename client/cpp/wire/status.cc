#include "client/cpp/wire/status.h"

#include <grpcpp/support/status.h>

#include <algorithm>

#include "client/cpp/prepared.h"
#include "client/cpp/wire/unreachable.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace svdserve::client {

const char* name(Code code) {
  static constexpr const char* kNames[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  const auto i = static_cast<size_t>(code);
  return i < std::size(kNames) ? kNames[i] : "UNKNOWN";
}

std::string Status::to_string() const {
  std::string s = name(code);
  if (!reason.empty()) s += " (" + reason + ")";
  if (!field.empty()) s += " " + (parameter.empty() ? field : parameter);
  // A server's message begins with the field already, for those who read the message alone.
  const bool repeated = !field.empty() && message.starts_with(field + ": ");
  if (!message.empty()) s += ": " + (repeated ? message.substr(field.size() + 2) : message);
  const bool is_callers_mistake = code == Code::kInvalidArgument || code == Code::kNotFound;
  if (!request_id.empty() && !is_callers_mistake) s += " [request " + request_id + "]";
  return s;
}

Error::Error(Status status)
    : std::runtime_error(status.to_string()), status_(std::make_shared<const Status>(std::move(status))) {}

Error::~Error() = default;

namespace internal {
namespace {

// A delay of a year is as good as for ever, and sums of such delays are far from what the clock can count.
constexpr int64_t kLongestDelaySeconds = 365 * 24 * 3600;

Code to_code(int code) { return code >= 0 && code <= 16 ? static_cast<Code>(code) : Code::kUnknown; }

void add_details(const google::rpc::Status& from, Status* to) {
  for (const google::protobuf::Any& any : from.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::ErrorInfo error_info;
    google::rpc::RetryInfo retry_info;
    google::rpc::RequestInfo request_info;
    if (any.UnpackTo(&bad_request)) {
      for (const auto& v : bad_request.field_violations()) to->violations.push_back({v.field(), v.description()});
    } else if (any.UnpackTo(&error_info)) {
      to->reason = error_info.reason();
    } else if (any.UnpackTo(&request_info)) {
      to->request_id = request_info.request_id();
    } else if (any.UnpackTo(&retry_info)) {
      const auto& d = retry_info.retry_delay();
      to->retry_delay = std::chrono::seconds(std::clamp<int64_t>(d.seconds(), 0, kLongestDelaySeconds)) +
                        std::chrono::nanoseconds(std::clamp(d.nanos(), 0, 999'999'999));
    }
  }
  if (!to->violations.empty()) to->field = to->violations.front().field;
}

}  // namespace

Status from_rpc(const google::rpc::Status& status) {
  Status s;
  s.code = to_code(status.code());
  s.message = status.message();
  add_details(status, &s);
  return s;
}

Status from_grpc(const grpc::Status& status, const ClientOptions& options) {
  Status s;
  s.code = to_code(status.error_code());
  s.message = status.error_message();
  google::rpc::Status details;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details())) add_details(details, &s);
  // A limit of gRPC's, at either side.
  if (s.reason.empty() && s.code == Code::kResourceExhausted && s.message.find("larger than max") != s.message.npos) {
    s.message = "the message is longer than its receiver accepts; ClientOptions::max_message_bytes bounds replies: " +
                s.message;
  }
  // A call that gRPC itself ended, at either side, has no details. This client reports its own cancellations without
  // asking gRPC, so a server cancelled: it stopped just as the call came in. Another attempt may find the next one.
  if (s.reason.empty() && s.code == Code::kCancelled) {
    s.code = Code::kUnavailable;
    s.message = "the server dropped the call: " + s.message;
  }
  if (s.reason.empty() && s.code == Code::kDeadlineExceeded) {
    s.reason = name(s.code);
    s.message = "no reply within the timeout";
  }
  return explain_unreachable(std::move(s), options);
}

Status invalid(std::string field, std::string message) {
  Status s = failure(Code::kInvalidArgument, "INVALID_FIELD", message);
  s.violations.push_back({field, std::move(message)});
  s.field = std::move(field);
  return s;
}

Status failure(Code code, std::string reason, std::string message) {
  Status s;
  s.code = code;
  s.reason = std::move(reason);
  s.message = std::move(message);
  return s;
}

Status invalid_reply(const std::string& why) {
  return failure(Code::kInternal, "", "the server's reply is invalid: " + why);
}

Status of_group(Status status, size_t i) {
  const std::string batch = "matrices";
  if (!status.field.starts_with(batch)) return status;
  status.field = "groups[" + std::to_string(i) + "]" + status.field.substr(batch.size());
  for (FieldViolation& violation : status.violations) violation.field = status.field;
  return status;
}

Status cancelled() { return failure(Code::kCancelled, "CANCELLED", "cancelled by the caller"); }
Status deadline_exceeded() {
  return failure(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", "no reply within the timeout");
}

}  // namespace internal
}  // namespace svdserve::client
