#include "client/cli/formats/matrix_market.h"

#include <algorithm>
#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cli/formats/dense.h"
#include "client/cli/formats/lines.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

using client::Result;
using client::Status;

struct Head {
  bool is_coordinate = false, is_complex = false, is_pattern = false, is_integer = false;
  enum class Symmetry : uint8_t { kGeneral, kSymmetric, kSkew, kHermitian } symmetry = Symmetry::kGeneral;
  int64_t rows = 0, cols = 0, entries = 0;
};
using Symmetry = Head::Symmetry;

std::string lower(std::string_view text) { return absl::AsciiStrToLower(std::string(text)); }

// "%%MatrixMarket matrix coordinate real general", in letters of any case.
Status read_banner(Lines* lines, Head* head) {
  std::string_view line = lines->next().value_or("");
  if (lower(take_word(&line)) != "%%matrixmarket") return lines->error("must begin with %%MatrixMarket");
  if (const std::string object = lower(take_word(&line)); object != "matrix") {
    return lines->error(absl::StrCat(in_quotes(object), " is not supported; give a matrix"));
  }
  const std::string format = lower(take_word(&line)), field = lower(take_word(&line)), kind = lower(take_word(&line));
  head->is_coordinate = format == "coordinate";
  if (!head->is_coordinate && format != "array") {
    return lines->error(absl::StrCat(in_quotes(format), " is not array or coordinate"));
  }
  head->is_complex = field == "complex";
  head->is_pattern = field == "pattern";
  head->is_integer = field == "integer";
  if (field != "real" && field != "double" && !head->is_integer && !head->is_complex && !head->is_pattern) {
    return lines->error(absl::StrCat(in_quotes(field), " is not real, complex, integer or pattern"));
  }
  if (head->is_pattern && !head->is_coordinate) return lines->error("an array has no pattern");
  constexpr std::pair<const char*, Symmetry> kKinds[] = {{"general", Symmetry::kGeneral},
                                                         {"symmetric", Symmetry::kSymmetric},
                                                         {"skew-symmetric", Symmetry::kSkew},
                                                         {"hermitian", Symmetry::kHermitian}};
  const auto known = std::ranges::find_if(kKinds, [&](const auto& k) { return kind == k.first; });
  if (known == std::end(kKinds)) {
    return lines->error(absl::StrCat(in_quotes(kind), " is not general, symmetric, skew-symmetric or hermitian"));
  }
  head->symmetry = known->second;
  if (head->symmetry == Symmetry::kHermitian && !head->is_complex) {
    return lines->error(absl::StrCat("a hermitian matrix is complex, not ", field, ": write symmetric"));
  }
  if (head->symmetry == Symmetry::kSkew && head->is_pattern) {
    return lines->error("a pattern has no signs, so it is not skew-symmetric");
  }
  return {};
}

// The next line that has something; comments begin with %.
std::optional<std::string_view> next_entry(Lines* lines) {
  while (const auto line = lines->next()) {
    const std::string_view text = trimmed(*line);
    if (!text.empty() && text.front() != '%') return text;
  }
  return std::nullopt;
}

// Sizes, and for coordinates the number of entries.
Status read_sizes(Lines* lines, Head* head) {
  std::string_view line = next_entry(lines).value_or("");
  const auto size = [&line] { return to_integer(take_word(&line)).value_or(-1); };
  head->rows = size();
  head->cols = size();
  head->entries = head->is_coordinate ? size() : 0;
  if (head->rows < 0 || head->cols < 0 || head->entries < 0 || !trimmed(line).empty()) {
    return lines->error(head->is_coordinate ? "must have the rows, the columns and the number of entries"
                                            : "must have the rows and the columns");
  }
  if (head->symmetry != Symmetry::kGeneral && head->rows != head->cols) {
    return lines->error("a matrix with a symmetry must be square");
  }
  const int64_t item = head->is_complex ? 16 : 8;
  int64_t bytes = 0;
  const bool is_too_large = __builtin_mul_overflow(head->rows, head->cols, &bytes) ||
                            __builtin_mul_overflow(bytes, item, &bytes) ||
                            static_cast<uint64_t>(bytes) > memory_bytes();
  if (is_too_large) {
    return lines->error(absl::StrCat(head->rows, "x", head->cols, " in full is more than the memory of this machine, ",
                                     bytes_text(static_cast<int64_t>(memory_bytes()))));
  }
  return {};
}

template <class T>
class Filling {
 public:
  Filling(Lines* lines, const Head& head)
      : lines_(lines), head_(head), numbers_(static_cast<size_t>(head.rows * head.cols)) {}

  Status coordinates() {
    for (int64_t n = 0; n < head_.entries; ++n) {
      auto line = next_entry(lines_);
      if (!line) return lines_->error(absl::StrCat("ends after ", n, " of ", head_.entries, " entries"));
      const auto i = to_integer(take_word(&*line)), j = to_integer(take_word(&*line));
      if (!i || !j) return lines_->error("must begin with a row and a column");
      if (*i < 1 || *i > head_.rows || *j < 1 || *j > head_.cols) {
        return lines_->error(absl::StrCat("(", *i, ", ", *j, ") is not in a matrix of ", head_.rows, "x", head_.cols));
      }
      if (Status s = check_triangle(*i, *j); !s.ok()) return s;
      T x{1};
      if (!head_.is_pattern) {
        if (Status s = read_value(&*line, &x); !s.ok()) return s;
        if (Status s = check_diagonal(*i, *j, x); !s.ok()) return s;
      } else if (!trimmed(*line).empty()) {
        return lines_->error(absl::StrCat("has a value, ", in_quotes(trimmed(*line)), ", which a pattern has not"));
      }
      put(*i - 1, *j - 1, x);
    }
    return at_end(head_.entries);
  }

  // Column by column; of a symmetry the lower triangle, of a skew one without the diagonal.
  Status array() {
    int64_t n = 0;
    for (int64_t j = 0; head_.rows > 0 && j < head_.cols; ++j) {
      const int64_t first = head_.symmetry == Symmetry::kGeneral ? 0 : head_.symmetry == Symmetry::kSkew ? j + 1 : j;
      for (int64_t i = first; i < head_.rows; ++i, ++n) {
        auto line = next_entry(lines_);
        if (!line)
          return lines_->error(
              absl::StrCat("ends after ", n, " numbers, before that of row ", i + 1, " and column ", j + 1));
        T x{};
        if (Status s = read_value(&*line, &x); !s.ok()) return s;
        if (Status s = check_diagonal(i + 1, j + 1, x); !s.ok()) return s;
        put(i, j, x);
      }
    }
    return at_end(n);
  }
  NpyArray take() { return dense_array(std::move(numbers_), head_.rows, head_.cols); }

 private:
  Status read_value(std::string_view* line, T* to) {
    const std::string_view word = take_word(line);
    const auto real = to_number(word);
    if (!real) return lines_->error(absl::StrCat(in_quotes(word), " is not a number"));
    if (head_.is_integer && word.find_first_not_of("+-0123456789") != std::string_view::npos) {
      return lines_->error(absl::StrCat(in_quotes(word), " is not an integer"));
    }
    if constexpr (std::is_same_v<T, double>) {
      *to = *real;
    } else {
      const std::string_view second = take_word(line);
      const auto imaginary = to_number(second);
      if (!imaginary) return lines_->error(absl::StrCat(in_quotes(second), " is not the imaginary part of a number"));
      *to = {*real, *imaginary};
    }
    return trimmed(*line).empty() ? Status() : lines_->error(absl::StrCat("has more: ", in_quotes(trimmed(*line))));
  }
  // The format has the lower triangle of a symmetry; the rest follows from it.
  Status check_triangle(int64_t i, int64_t j) const {
    if (head_.symmetry == Symmetry::kGeneral || i > j || (i == j && head_.symmetry != Symmetry::kSkew)) return {};
    if (i == j) {
      return lines_->error(absl::StrCat(
          "(", i, ", ", j, ") is on the diagonal, which a skew-symmetric matrix has not: ", "remove the entry"));
    }
    return lines_->error(absl::StrCat("(", i, ", ", j, ") is above the diagonal: a matrix with a symmetry has the ",
                                      "entries of its lower triangle alone"));
  }
  Status check_diagonal(int64_t i, int64_t j, const T& x) const {
    if constexpr (!std::is_same_v<T, double>) {
      if (head_.symmetry == Symmetry::kHermitian && i == j && x.imag() != 0) {
        return lines_->error(absl::StrCat("(", i, ", ", j, ") is on the diagonal of a hermitian matrix, so its ",
                                          "imaginary part must be 0"));
      }
    }
    return {};
  }
  void put(int64_t i, int64_t j, T x) {
    numbers_[static_cast<size_t>(i * head_.cols + j)] += x;
    if (head_.symmetry == Symmetry::kGeneral || i == j) return;
    T mirrored = head_.symmetry == Symmetry::kSkew ? -x : x;
    if constexpr (!std::is_same_v<T, double>) {
      if (head_.symmetry == Symmetry::kHermitian) mirrored = std::conj(x);
    }
    numbers_[static_cast<size_t>(j * head_.cols + i)] += mirrored;
  }
  Status at_end(int64_t entries) {
    if (!next_entry(lines_)) return {};
    return lines_->error(absl::StrCat("has more than the ", entries, " entries of the matrix"));
  }

  Lines* lines_;
  const Head& head_;
  std::vector<T> numbers_;
};

template <class T>
Result<NpyArray> fill(Lines* lines, const Head& head) {
  Filling<T> filling(lines, head);
  const Status filled = head.is_coordinate ? filling.coordinates() : filling.array();
  if (!filled.ok()) return filled;
  return filling.take();
}

}  // namespace

Result<NpyArray> read_matrix_market(std::span<const std::byte> text) {
  Lines lines(text);
  Head head;
  if (Status s = read_banner(&lines, &head); !s.ok()) return s;
  if (Status s = read_sizes(&lines, &head); !s.ok()) return s;
  return head.is_complex ? fill<std::complex<double>>(&lines, head) : fill<double>(&lines, head);
}

}  // namespace svdserve::cli
