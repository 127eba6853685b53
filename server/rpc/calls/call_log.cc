#include "server/rpc/calls/call_log.h"

#include <algorithm>
#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

constexpr char kRequestIdKey[] = "x-request-id", kTraceKey[] = "traceparent";
constexpr size_t kLongestId = 128;

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kLongestId && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || std::string_view("-_.:/+=@").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

// The generator of Steele, Lea and Flood (2014), as a hash.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Each call has one, so this is no business of printf().
std::string own_id() {
  static const std::string process = absl::StrCat(absl::Hex(std::random_device()(), absl::kZeroPad8), "-");
  static std::atomic<uint64_t> calls{0};
  return absl::StrCat(process, absl::Hex(calls.fetch_add(1, std::memory_order_relaxed) + 1));
}

std::string_view metadata(const grpc::CallbackServerContext& call, const char* key) {
  const auto& all = call.client_metadata();
  const auto found = all.find(key);
  if (found == all.end()) return {};
  return {found->second.data(), found->second.size()};
}

LogLevel level_of(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDataLoss:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

std::vector<LogField> fields_of(const CallIds& ids, const Peer& peer, const CallLine& line) {
  std::vector<LogField> out;
  out.reserve(20);
  const auto text = [&](std::string_view key, std::string_view value) {
    if (!value.empty()) out.emplace_back(key, value);
  };
  const auto number = [&](std::string_view key, int64_t value) {
    if (value != 0) out.emplace_back(key, value);
  };
  const auto seconds = [&](std::string_view key, absl::Duration value) {
    if (value > absl::ZeroDuration()) out.emplace_back(key, absl::ToDoubleSeconds(value));
  };
  text("method", line.method);
  text("code", absl::StatusCodeToString(line.code));
  text("reason", name(line.reason));
  text("id", ids.request);
  if (line.stream_request) out.emplace_back("stream_request", *line.stream_request);
  text("trace", ids.trace);
  text("span", ids.span);
  text("peer", peer);
  seconds("seconds", line.took);
  seconds("queue_seconds", line.queue);
  seconds("compute_seconds", line.compute);
  number("request_bytes", line.request_bytes);
  number("reply_bytes", line.reply_bytes);
  number("groups", line.groups);
  number("matrices", line.matrices);
  number("rows", line.rows);
  number("cols", line.cols);
  text("dtype", line.dtype);
  text("device", line.devices);
  return out;
}

}  // namespace

void tell(const DecodedRequest& decoded, CallLine* line) {
  if (decoded.labels.dtype) line->dtype = name(*decoded.labels.dtype);
  if (!decoded.error.ok() || decoded.batches.empty()) return;
  line->groups = decoded.has_groups ? static_cast<int64_t>(decoded.batches.size()) : 0;
  for (const Request& batch : decoded.batches) line->matrices += batch.count;
  line->rows = decoded.batches.front().problem.rows;
  line->cols = decoded.batches.front().problem.cols;
}

void tell(const Outcome& outcome, CallLine* line) {
  line->code = outcome.error.code;
  line->reason = outcome.error.reason;
  if (!outcome.error.ok()) return;
  for (const Answer& answer : outcome.answers) {
    line->queue = std::max(line->queue, answer.timing.queue);
    line->compute = std::max(line->compute, answer.timing.compute);
    if (answer.devices != line->devices) line->devices += (line->devices.empty() ? "" : ",") + answer.devices;
  }
}

CallIds make_call_ids(std::string_view request_id, std::string_view traceparent) {
  CallIds ids;
  ids.request = is_id(request_id) ? std::string(request_id) : own_id();
  // 00-<32 digits: the trace>-<16 digits: the caller's span>-<2 digits>
  constexpr size_t kLength = 55;
  if (traceparent.size() != kLength || !traceparent.starts_with("00-") || traceparent[35] != '-' ||
      traceparent[52] != '-') {
    return ids;
  }
  const std::string_view trace = traceparent.substr(3, 32), span = traceparent.substr(36, 16);
  if (!is_hex(trace) || !is_hex(span) || !is_hex(traceparent.substr(53)) || is_zero(trace) || is_zero(span)) return ids;
  ids.trace = trace;
  ids.span = span;
  return ids;
}

CallIds begin_call(grpc::CallbackServerContext* call) {
  CallIds ids = make_call_ids(metadata(*call, kRequestIdKey), metadata(*call, kTraceKey));
  call->AddTrailingMetadata(kRequestIdKey, ids.request);
  return ids;
}

AccessLog::AccessLog(const AccessLogOptions& options)
    : options_(options),
      threshold_(options.sample >= 1 ? UINT64_MAX : static_cast<uint64_t>(options.sample * 0x1p64)) {}

bool AccessLog::wants(absl::StatusCode code, absl::Duration took) {
  if (!log_enabled(level_of(code))) return false;
  if (must_have(code, took)) return true;
  return threshold_ > 0 && mix(calls_.fetch_add(1, std::memory_order_relaxed)) <= threshold_;
}

void AccessLog::write(const CallIds& ids, const Peer& peer, const CallLine& line, absl::Time now) {
  LineLimit& limit = must_have(line.code, line.took) ? remarkable_ : sampled_;
  int64_t dropped = 0;
  if (!log_is_writable()) {
    limit.drop();
    return;
  }
  if (!limit.take(now, &dropped)) return;
  const LogLevel level = level_of(line.code);
  if (dropped > 0) log(level, "log_lines_dropped", {{"of", "call"}, {"lines", dropped}});
  log(level, "call", fields_of(ids, peer, line));
}

void log_stalled(AccessLog* log, const CallIds& ids, const Peer& peer, const char* method, absl::Duration took,
                 absl::Time now) {
  CallLine line;
  line.method = method;
  line.code = absl::StatusCode::kDeadlineExceeded;
  line.reason = Reason::kClientStalled;
  line.took = took;
  if (log->wants(line.code, took)) log->write(ids, peer, line, now);
}

}  // namespace svdserve::server
