#include "client/cli/formats/lines.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::cli {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";

// A number at the beginning of the text; the rest goes on behind it.
template <class T>
std::optional<T> take_number(std::string_view* text) {
  const bool has_plus = text->size() > 1 && (*text)[0] == '+' && (*text)[1] != '-';
  const char* const begin = text->data() + (has_plus ? 1 : 0);
  const char* const end = text->data() + text->size();
  T number{};
  const auto [behind, error] = std::from_chars(begin, end, number);
  if (error != std::errc()) return std::nullopt;
  text->remove_prefix(static_cast<size_t>(behind - text->data()));
  return number;
}

template <class T>
std::optional<T> to(std::string_view text) {
  const auto number = take_number<T>(&text);
  return text.empty() ? number : std::nullopt;
}

}  // namespace

std::optional<std::string_view> Lines::next() {
  if (rest_.empty()) return std::nullopt;
  ++number_;
  const size_t end = rest_.find('\n');
  std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

client::Status Lines::error(const std::string& why) const {
  return {.code = client::Code::kInvalidArgument,
          .message = absl::StrCat("line ", std::max<int64_t>(number_, 1), ": ", why)};
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string_view take_word(std::string_view* text) {
  *text = trimmed(*text);
  const std::string_view word = text->substr(0, text->find_first_of(kBlanks));
  text->remove_prefix(word.size());
  return word;
}

std::optional<double> to_number(std::string_view text) { return to<double>(text); }
std::optional<int64_t> to_integer(std::string_view text) { return to<int64_t>(text); }

std::optional<std::complex<double>> to_complex(std::string_view text, bool* has_imaginary) {
  if (text.size() > 2 && text.front() == '(' && text.back() == ')') text = text.substr(1, text.size() - 2);
  const auto first = take_number<double>(&text);
  if (!first) return std::nullopt;
  if (text.empty()) return std::complex(*first, 0.0);
  *has_imaginary = true;
  if (text == "j") return std::complex(0.0, *first);
  if (text.front() != '+' && text.front() != '-') return std::nullopt;
  const auto second = take_number<double>(&text);
  return second && text == "j" ? std::optional(std::complex(*first, *second)) : std::nullopt;
}

std::string in_quotes(std::string_view text) {
  constexpr size_t kMost = 40;
  const bool is_long = text.size() > kMost;
  return absl::StrCat("\"", std::string(text.substr(0, kMost)), is_long ? "...\"" : "\"");
}

}  // namespace svdserve::cli
