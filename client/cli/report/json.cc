#include "client/cli/report/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "absl/strings/str_format.h"
#include "client/cli/printable.h"

namespace svdserve::cli {
namespace {

// printable() leaves no control characters and no bytes that are not UTF-8.
void append_quoted(std::string* to, const std::string& s) {
  *to += '"';
  for (const char c : printable(s)) {
    if (c == '"' || c == '\\') *to += '\\';
    *to += c;
  }
  *to += '"';
}

void append_number(std::string* to, double x) {
  char text[32];
  if (!std::isfinite(x)) {
    *to += "null";
  } else {
    to->append(text, std::to_chars(text, text + sizeof text, x).ptr);
  }
}

void break_line(std::string* to, size_t indent) {
  *to += '\n';
  to->append(2 * indent, ' ');
}

}  // namespace

bool Json::is_plain() const {
  return !std::holds_alternative<Array>(value_) && !std::holds_alternative<Object>(value_);
}

void Json::append(std::string* to, size_t indent) const {
  if (const auto* b = std::get_if<bool>(&value_)) {
    *to += *b ? "true" : "false";
  } else if (const auto* i = std::get_if<int64_t>(&value_)) {
    *to += std::to_string(*i);
  } else if (const auto* x = std::get_if<double>(&value_)) {
    append_number(to, *x);
  } else if (const auto* s = std::get_if<std::string>(&value_)) {
    append_quoted(to, *s);
  } else if (const auto* a = std::get_if<Array>(&value_)) {
    const bool on_one_line = std::ranges::all_of(*a, [](const Json& element) { return element.is_plain(); });
    *to += '[';
    for (size_t i = 0; i < a->size(); ++i) {
      if (i > 0) *to += on_one_line ? ", " : ",";
      if (!on_one_line) break_line(to, indent + 1);
      (*a)[i].append(to, indent + 1);
    }
    if (!on_one_line) break_line(to, indent);
    *to += ']';
  } else if (const auto* o = std::get_if<Object>(&value_)) {
    *to += '{';
    for (size_t i = 0; i < o->size(); ++i) {
      if (i > 0) *to += ',';
      break_line(to, indent + 1);
      append_quoted(to, (*o)[i].first);
      *to += ": ";
      (*o)[i].second.append(to, indent + 1);
    }
    if (!o->empty()) break_line(to, indent);
    *to += '}';
  } else {
    *to += "null";
  }
}

std::string Json::text() const {
  std::string s;
  append(&s, 0);
  s += '\n';
  return s;
}

}  // namespace svdserve::cli
