#include "server/base/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace svdserve::server {
namespace {

std::atomic<LogLevel> lowest_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kLogfmt};

bool needs_quotes(std::string_view value) {
  if (value.empty()) return true;
  return std::any_of(value.begin(), value.end(), [](char c) {
    return c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\';  // beyond ASCII, whether char has a sign or not
  });
}

// The bytes of the character of UTF-8 that `text` begins with; 0 where it begins with none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (byte(i) & 0xc0) == 0x80; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(1) ? 2 : 0;
  const unsigned second = byte(1);
  if (first >= 0xe0 && first <= 0xef) {
    const bool overlong = first == 0xe0 && second < 0xa0, surrogate = first == 0xed && second > 0x9f;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const bool overlong = first == 0xf0 && second < 0x90, beyond = first == 0xf4 && second > 0x8f;
    return continues(1) && continues(2) && continues(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

void append_escaped(std::string* line, const char* format, unsigned number) {
  char escaped[8];
  std::snprintf(escaped, sizeof escaped, format, number);
  line->append(escaped);
}

// Appends the character of `length` bytes that `text` begins with.
void append_character(std::string* line, std::string_view text, size_t length) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (length == 1) {
    switch (first) {
      case '"':
      case '\\':
        line->push_back('\\');
        line->push_back(text[0]);
        return;
      case '\n':
        line->append("\\n");
        return;
      case '\r':
        line->append("\\r");
        return;
      case '\t':
        line->append("\\t");
        return;
      default:
        if (first < 0x20 || first == 0x7f) return append_escaped(line, "\\u%04x", first);
    }
  }
  // U+0080 to U+009F are control characters, too.
  const auto second = static_cast<unsigned char>(length == 2 ? text[1] : '\0');
  if (first == 0xc2 && second < 0xa0) return append_escaped(line, "\\u%04x", second);
  line->append(text.substr(0, length));
}

// One event stays one line whatever a message holds. `not_utf8`: the format of a byte that is none.
void append_quoted(std::string* line, std::string_view value, const char* not_utf8 = "\\x%02x") {
  line->push_back('"');
  while (!value.empty()) {
    const size_t length = utf8_length(value);
    if (length == 0) {
      append_escaped(line, not_utf8, static_cast<unsigned char>(value[0]));
    } else {
      append_character(line, value, length);
    }
    value.remove_prefix(length == 0 ? 1 : length);
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

void append_json(std::string* line, const LogField& field) {
  if (line->back() != '{') line->push_back(',');
  line->push_back('"');
  line->append(field.key);
  line->append("\":");
  if (field.is_text) {
    append_quoted(line, field.value, "\\\\x%02x");
  } else {
    line->append(field.value);
  }
}

void set_log_format(LogFormat format) { log_format.store(format, std::memory_order_relaxed); }

void set_log_level(LogLevel level) { lowest_level.store(level, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) { return level >= lowest_level.load(std::memory_order_relaxed); }

bool log_is_writable() {
  pollfd error{STDERR_FILENO, POLLOUT, 0};
  return poll(&error, 1, 0) == 1;
}

void log(LogLevel level, std::string_view event, std::span<const LogField> fields) {
  if (!log_enabled(level)) return;
  const bool is_json = log_format.load(std::memory_order_relaxed) == LogFormat::kJson;
  std::string line = is_json ? "{" : "";
  const auto append = [&](const LogField& field) {
    is_json ? append_json(&line, field) : append_logfmt(&line, field.key, field.value);
  };
  append({"ts", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())});
  append({"level", name(level)});
  append({"event", event});
  for (const LogField& field : fields) append(field);
  line.append(is_json ? "}\n" : "\n");
  // Where standard error cannot be written there is nobody left to tell.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool LineLimit::take(absl::Time now, int64_t* dropped) {
  MutexLock lock(&mu_);
  if (now - second_begin_ >= absl::Seconds(1)) {
    second_begin_ = now;
    lines_ = 0;
  }
  if (lines_ == most_) {
    ++dropped_;
    return false;
  }
  ++lines_;
  *dropped = std::exchange(dropped_, 0);
  return true;
}

void LineLimit::drop() {
  MutexLock lock(&mu_);
  ++dropped_;
}

void LibraryLog::write(LogLevel level, std::string_view source, std::string_view text, absl::Time now) {
  if (!log_enabled(level)) return;
  int64_t dropped = 0;
  if (!limit_.take(now, &dropped)) return;
  if (dropped > 0) log(level, "log_lines_dropped", {{"of", event_}, {"lines", dropped}});
  const size_t cut = std::min(text.size(), kMaxText);
  log(level, event_, {{"source", source}, {"bytes", text.size()}, {"text", text.substr(0, cut)}});
}

}  // namespace svdserve::server
