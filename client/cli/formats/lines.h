// A text line by line, and the numbers in a line.
#ifndef SVDSERVE_CLIENT_CLI_FORMATS_LINES_H_
#define SVDSERVE_CLIENT_CLI_FORMATS_LINES_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "client/cpp/types.h"

namespace svdserve::cli {

// Reads a text. Lines end with \n or \r\n.
class Lines {
 public:
  explicit Lines(std::span<const std::byte> text) : rest_(reinterpret_cast<const char*>(text.data()), text.size()) {}

  // The next line without its end; nothing: there are no more.
  std::optional<std::string_view> next();
  // The number of the line that next() gave, from 1.
  int64_t number() const { return number_; }
  // "line 7: why", of that line.
  client::Status error(const std::string& why) const;

 private:
  std::string_view rest_;
  int64_t number_ = 0;
};

// Without blanks at both ends.
std::string_view trimmed(std::string_view text);
// Takes the first word, which blanks separate from the next one, from the text; empty: there is none.
std::string_view take_word(std::string_view* text);
// The whole text as a number; nothing: it is none.
std::optional<double> to_number(std::string_view text);
std::optional<int64_t> to_integer(std::string_view text);
// A complex number as Python writes it: 1.5-2j, 2j, 1.5, (1.5-2j). *has_imaginary: set where it has an imaginary part.
std::optional<std::complex<double>> to_complex(std::string_view text, bool* has_imaginary);
// The text in quotes, cut where it is long, for an error.
std::string in_quotes(std::string_view text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_FORMATS_LINES_H_
