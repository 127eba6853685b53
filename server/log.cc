#include "server/log.h"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace svdserve::server {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::kInfo};

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  for (const char c : value) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f) return true;
  }
  return false;
}

// One event stays one line whatever a message holds: control characters are escaped.
void append_quoted(std::string* line, std::string_view value) {
  line->push_back('"');
  for (const char c : value) {
    switch (c) {
      case '"':
        line->append("\\\"");
        break;
      case '\\':
        line->append("\\\\");
        break;
      case '\n':
        line->append("\\n");
        break;
      case '\r':
        line->append("\\r");
        break;
      case '\t':
        line->append("\\t");
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
          char escaped[8];
          std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
          line->append(escaped);
        } else {
          line->push_back(c);
        }
    }
  }
  line->push_back('"');
}

}  // namespace

void append_logfmt(std::string* line, std::string_view key, std::string_view value) {
  if (!line->empty()) line->push_back(' ');
  line->append(key);
  line->push_back('=');
  if (needs_quotes(value)) {
    append_quoted(line, value);
  } else {
    line->append(value);
  }
}

void set_log_level(LogLevel level) { lowest_level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return level >= lowest_level.load(std::memory_order_relaxed); }

void log(LogLevel level, std::string_view event, std::initializer_list<LogField> fields) {
  if (!log_enabled(level)) return;
  std::string line;
  append_logfmt(&line, "ts", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone()));
  append_logfmt(&line, "level", name(level));
  append_logfmt(&line, "event", event);
  for (const LogField& field : fields) append_logfmt(&line, field.key, field.value);
  line.push_back('\n');
  // Where standard error cannot be written there is nobody left to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace svdserve::server
