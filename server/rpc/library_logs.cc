#include "server/rpc/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <chrono>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/base/log.h"

namespace svdserve::server {
namespace {

// These may be called until the process ends, so the logs are never destroyed.
LibraryLog& grpc_log() {
  static auto* const log = new LibraryLog("grpc");
  return *log;
}

LibraryLog& protobuf_log() {
  static auto* const log = new LibraryLog("protobuf");
  return *log;
}

std::string source(std::string_view file, int line) {
  const size_t slash = file.rfind('/');
  return std::string(slash == std::string_view::npos ? file : file.substr(slash + 1)) + ":" + std::to_string(line);
}

absl::Time now() { return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

void on_grpc_line(gpr_log_func_args* line) {
  const LogLevel level = line->severity == GPR_LOG_SEVERITY_ERROR  ? LogLevel::kError
                         : line->severity == GPR_LOG_SEVERITY_INFO ? LogLevel::kInfo
                                                                   : LogLevel::kDebug;
  grpc_log().write(level, source(line->file, line->line), line->message, now());
}

void on_protobuf_line(google::protobuf::LogLevel severity, const char* file, int line, const std::string& text) {
  const LogLevel level = severity >= google::protobuf::LOGLEVEL_ERROR     ? LogLevel::kError
                         : severity == google::protobuf::LOGLEVEL_WARNING ? LogLevel::kWarning
                                                                          : LogLevel::kInfo;
  protobuf_log().write(level, source(file, line), text, now());
}

}  // namespace

void redirect_library_logs() {
  gpr_set_log_function(on_grpc_line);
  google::protobuf::SetLogHandler(on_protobuf_line);
}

}  // namespace svdserve::server
