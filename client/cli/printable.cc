#include "client/cli/printable.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace svdserve::cli {
namespace {

// A character of a text; bytes 0: no UTF-8 begins here.
struct Character {
  uint32_t code = 0;
  size_t bytes = 0;
};

// RFC 3629: neither longer than needed, nor a surrogate, nor beyond U+10FFFF.
Character first_character(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  const bool too_long = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  return too_long || is_surrogate || code > 0x10ffff ? Character{} : Character{code, bytes};
}

bool is_shown(uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool separates = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                     (code >= 0x2066 && code <= 0x2069);
  return !is_control && !separates && !turns;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character c = first_character(text);
    const size_t bytes = c.bytes == 0 ? 1 : c.bytes;
    if (c.bytes != 0 && is_shown(c.code)) {
      shown.append(text.substr(0, bytes));
    } else if (text[0] == '\n') {
      shown += "\\n";
    } else if (bytes == 1) {
      absl::StrAppendFormat(&shown, "\\x%02x", static_cast<uint8_t>(text[0]));
    } else {
      absl::StrAppendFormat(&shown, "\\u%04x", c.code);
    }
    text.remove_prefix(bytes);
  }
  return shown;
}

}  // namespace svdserve::cli
