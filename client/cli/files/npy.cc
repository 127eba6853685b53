#include "client/cli/files/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

Status malformed(const std::string& why) {
  return {.code = client::Code::kInvalidArgument, .message = "not a readable .npy file: " + why};
}

// The header is a Python dictionary of three entries. This reads just that much Python.
class DictReader {
 public:
  explicit DictReader(std::string_view text) : text_(text) {}

  bool eat(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::optional<std::string> string() {
    skip_space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string s(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return s;
  }
  std::optional<bool> boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}}) {
      if (text_.substr(at_).starts_with(word)) return at_ += word.size(), value;
    }
    return std::nullopt;
  }
  // (), (3,), (3, 4): non-negative, an L after a number as Python 2 wrote it.
  std::optional<std::vector<int64_t>> shape() {
    if (!eat('(')) return std::nullopt;
    std::vector<int64_t> dims;
    while (!eat(')')) {
      if (!dims.empty() && !eat(',')) return std::nullopt;
      if (!dims.empty() && eat(')')) return dims;
      const auto n = number();
      if (!n) return std::nullopt;
      dims.push_back(*n);
    }
    return dims;
  }
  bool at_end() {
    skip_space();
    return at_ == text_.size();
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  std::optional<int64_t> number() {
    skip_space();
    const size_t begin = at_;
    int64_t n = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, text_[at_] - '0', &n)) return std::nullopt;
    }
    if (at_ == begin) return std::nullopt;
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;
    return n;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

// A type that holds no numbers is refused by name.
Status parse_type(const std::string& descr, NpyHeader* h) {
  const size_t prefix = !descr.empty() && std::strchr("<>|=", descr[0]) != nullptr ? 1 : 0;
  h->big_endian = descr.starts_with('>');
  if (descr.size() < prefix + 2 || descr.size() > prefix + 3) return malformed("dtype \"" + descr + "\"");
  h->kind = descr[prefix];
  h->item_bytes = 0;
  for (char c : descr.substr(prefix + 1)) {
    if (!std::isdigit(static_cast<unsigned char>(c))) return malformed("dtype \"" + descr + "\"");
    h->item_bytes = h->item_bytes * 10 + (c - '0');
  }
  const std::string code = descr.substr(prefix);
  static constexpr const char* kKnown[] = {"b1", "i1", "i2", "i4", "i8", "u1",  "u2",  "u4",
                                           "u8", "f2", "f4", "f8", "c8", "c16", "f16", "c32"};
  if (std::find(std::begin(kKnown), std::end(kKnown), code) == std::end(kKnown)) {
    return {.code = client::Code::kInvalidArgument,
            .message = "arrays of dtype \"" + descr +
                       "\" are not supported; convert them to a floating-point, complex, integer or bool dtype"};
  }
  return {};
}

namespace {

Status parse_dictionary(std::string_view text, NpyHeader* h) {
  DictReader r(text);
  bool has_descr = false, has_order = false, has_shape = false;
  if (!r.eat('{')) return malformed("its header is not a dictionary");
  while (!r.eat('}')) {
    const auto key = r.string();
    if (!key || !r.eat(':')) return malformed("its header is not a dictionary");
    if (*key == "descr") {
      const auto descr = r.string();
      if (!descr) {
        return {.code = client::Code::kInvalidArgument,
                .message = "structured arrays are not supported; give an array of numbers"};
      }
      if (Status s = parse_type(*descr, h); !s.ok()) return s;
      has_descr = true;
    } else if (*key == "fortran_order") {
      const auto order = r.boolean();
      if (!order) return malformed("fortran_order is neither True nor False");
      h->fortran_order = *order;
      has_order = true;
    } else if (*key == "shape") {
      auto shape = r.shape();
      if (!shape) return malformed("its shape is not a tuple of sizes");
      h->shape = *std::move(shape);
      has_shape = true;
    } else {
      return malformed("unknown entry \"" + *key + "\" in its header");
    }
    r.eat(',');
  }
  if (!r.at_end()) return malformed("its header has more text after the dictionary");
  if (!has_descr || !has_order || !has_shape) return malformed("its header lacks descr, fortran_order or shape");
  return {};
}

uint64_t little_endian(std::span<const std::byte> bytes) {
  uint64_t n = 0;
  for (size_t i = bytes.size(); i-- > 0;) n = n << 8 | std::to_integer<uint64_t>(bytes[i]);
  return n;
}

}  // namespace

Result<NpyHeader> parse_npy(std::span<const std::byte> file) {
  if (file.size() < 10 || std::memcmp(file.data(), "\x93NUMPY", 6) != 0)
    return malformed("it does not begin with the .npy signature");
  const int version = std::to_integer<int>(file[6]);
  if (version < 1 || version > 3 || file[7] != std::byte{0}) {
    return malformed(absl::StrCat("version ", version, ".", std::to_integer<int>(file[7])));
  }
  const size_t length_bytes = version == 1 ? 2 : 4;
  if (file.size() < 8 + length_bytes) return malformed("it ends within its header");
  const uint64_t header_bytes = little_endian(file.subspan(8, length_bytes));
  NpyHeader h;
  if (header_bytes > file.size() - 8 - length_bytes) return malformed("it ends within its header");
  h.data_offset = 8 + length_bytes + static_cast<size_t>(header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8 + length_bytes, header_bytes);
  if (Status s = parse_dictionary(text, &h); !s.ok()) return s;

  const auto bytes = array_bytes(h);
  if (!bytes) return malformed("its shape is too large for any file");
  const uint64_t there = file.size() - h.data_offset;
  if (there != *bytes) {
    return malformed(absl::StrCat("shape (", absl::StrJoin(h.shape, ", "), ") of ", h.item_bytes, "-byte items is ",
                                  *bytes, " bytes, but the file has ", there));
  }
  return h;
}

std::optional<uint64_t> array_bytes(const NpyHeader& h) {
  // A size of 0 anywhere makes the array empty, however large the others.
  if (std::find(h.shape.begin(), h.shape.end(), 0) != h.shape.end()) return 0;
  auto bytes = static_cast<uint64_t>(h.item_bytes);
  for (const int64_t n : h.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(n), &bytes)) return std::nullopt;
  }
  return bytes;
}

Result<NpyArray> to_array(std::span<const std::byte> file, std::shared_ptr<const void> owner) {
  auto header = parse_npy(file);
  if (!header.ok()) return header.status();
  return NpyArray{*header, file.subspan(header->data_offset), std::move(owner)};
}

std::string npy_header(const std::string& type, const std::vector<int64_t>& shape, bool fortran_order) {
  std::string text = absl::StrCat("{'descr': '<", type, "', 'fortran_order': ", fortran_order ? "True" : "False",
                                  ", 'shape': (", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",), }" : "), }");
  constexpr size_t kPrefix = 10;
  text.append(63 - (kPrefix + text.size()) % 64, ' ');
  text.push_back('\n');
  std::string head("\x93NUMPY\x01\x00", 8);
  head.push_back(static_cast<char>(text.size() & 0xff));
  head.push_back(static_cast<char>(text.size() >> 8));
  return head + text;
}

std::string npy_type(client::DataType type) {
  const client::DataType results = result_type(type);
  const bool is_complex = results == client::DataType::kC64 || results == client::DataType::kC128;
  return absl::StrCat(is_complex ? "c" : "f", client::element_bytes(results));
}

std::string npy_value_type(client::DataType type) { return absl::StrCat("f", client::value_bytes(type)); }

}  // namespace svdserve::cli
