// Structured logs: one event is one line of logfmt on standard error,
//   ts=2026-01-31T12:00:00.123Z level=info event=listening grpc=127.0.0.1:50051
// so that people can read them and machines need no parser of their own. Or it is one object of JSON:
//   {"ts":"2026-01-31T12:00:00.123Z","level":"info","event":"listening","grpc":"127.0.0.1:50051"}
//
// Thread-safe: a line is written by one write(2) and never torn. Not for the path of every request: metrics count
// those, and the access log samples them.
#ifndef SVDSERVE_SERVER_BASE_LOG_H_
#define SVDSERVE_SERVER_BASE_LOG_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace svdserve::server {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };

constexpr const char* name(LogLevel level) {
  constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  return kNames[static_cast<int>(level)];
}

enum class LogFormat : uint8_t { kLogfmt, kJson };
constexpr const char* name(LogFormat format) { return format == LogFormat::kJson ? "json" : "logfmt"; }

// One key with its value. Keys are words of [a-z0-9_.-]; values are quoted where they need it.
struct LogField {
  LogField(std::string_view k, std::string_view v) : key(k), value(v) {}
  LogField(std::string_view k, const char* v) : key(k), value(v) {}
  LogField(std::string_view k, const std::string& v) : key(k), value(v) {}
  LogField(std::string_view k, bool v) : key(k), value(v ? "true" : "false"), is_text(false) {}
  LogField(std::string_view k, double v) : key(k), value(std::to_string(v)), is_text(false) {}  // to six decimals
  template <std::integral T>
  LogField(std::string_view k, T v) : key(k), value(std::to_string(v)), is_text(false) {}

  std::string_view key;
  std::string value;
  bool is_text = true;  // false: JSON has it without quotes
};

// Events below `level` are dropped. Default: info.
void set_log_level(LogLevel level);
bool log_enabled(LogLevel level);
// Default: logfmt.
void set_log_format(LogFormat format);

// Whether a line can be written without waiting for whoever reads it.
bool log_is_writable();

void log(LogLevel level, std::string_view event, std::span<const LogField> fields);
inline void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(level, event, std::span<const LogField>(fields.begin(), fields.size()));
}

inline void log_debug(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kDebug, event, fields);
}
inline void log_info(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kInfo, event, fields);
}
inline void log_warning(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kWarning, event, fields);
}
inline void log_error(std::string_view event, std::initializer_list<LogField> fields = {}) {
  log(LogLevel::kError, event, fields);
}

// "key=value" in logfmt: for lines that are put together elsewhere. The value is quoted where it needs that. Control
// characters and bytes that are not UTF-8 are escaped.
void append_logfmt(std::string* line, std::string_view key, std::string_view value);
// Likewise a member of a JSON object, of which *line is the beginning; it ends with "{" before the first one. A byte
// that is not UTF-8 becomes the text \xNN.
void append_json(std::string* line, const LogField& field);

// Lets so many lines of one kind through in a second. Thread-safe.
class LineLimit {
 public:
  explicit LineLimit(int lines_per_second) : most_(lines_per_second) {}

  // Whether a line may be written; then *dropped are those that were not, since the one before. `now`: of any clock
  // that never goes back.
  bool take(absl::Time now, int64_t* dropped);
  // One was dropped for another reason.
  void drop();

 private:
  const int most_;
  Mutex mu_;
  absl::Time second_begin_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  int lines_ ABSL_GUARDED_BY(mu_) = 0;        // written since second_begin_
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;  // since the last line that was written
};

// The log of a library, whose texts may repeat what peers have sent. Each text is cut to kMaxText bytes, and at most
// kLinesPerSecond are written in a second. The first line after that is preceded by one with the number of dropped
// lines. Thread-safe.
class LibraryLog {
 public:
  static constexpr int kLinesPerSecond = 10;
  static constexpr size_t kMaxText = 512;

  // `event` names the lines, and outlives the object.
  explicit LibraryLog(std::string_view event) : event_(event) {}

  // `source`: where in the library, such as "tcp_posix.cc:12". `now`: of any clock that never goes back.
  void write(LogLevel level, std::string_view source, std::string_view text, absl::Time now);

 private:
  const std::string_view event_;
  LineLimit limit_{kLinesPerSecond};
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_LOG_H_
