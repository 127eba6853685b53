#include "client/cli/formats/csv.h"

#include <complex>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cli/formats/dense.h"
#include "client/cli/formats/lines.h"

namespace svdserve::cli {
namespace {

// Takes the first cell of a row; *is_last: it is the last one.
std::string_view take_cell(std::string_view* row, char separator, bool* is_last) {
  if (separator == ' ') {
    const std::string_view word = take_word(row);
    *row = trimmed(*row);
    *is_last = row->empty();
    return word;
  }
  const size_t end = row->find(separator);
  *is_last = end == std::string_view::npos;
  const std::string_view cell = trimmed(row->substr(0, end));
  row->remove_prefix(*is_last ? row->size() : end + 1);
  return cell;
}

struct Table {
  std::vector<std::complex<double>> numbers;
  int64_t rows = 0, cols = 0;
  bool is_complex = false;
};

client::Status add_row(std::string_view row, char separator, const Lines& lines, Table* to) {
  int64_t cols = 0;
  for (bool is_last = false; !is_last;) {
    const std::string_view cell = take_cell(&row, separator, &is_last);
    ++cols;
    const auto number = to_complex(cell, &to->is_complex);
    if (!number) {
      const char* const advice = to->rows == 0 ? "; begin a heading with #" : "";
      return lines.error(absl::StrCat("column ", cols, ": ", in_quotes(cell), " is not a number", advice));
    }
    to->numbers.push_back(*number);
  }
  if (to->rows > 0 && cols != to->cols) {
    return lines.error(
        absl::StrCat("has ", cols, cols == 1 ? " number" : " numbers", ", but the rows before have ", to->cols));
  }
  to->cols = cols;
  ++to->rows;
  return {};
}

}  // namespace

client::Result<NpyArray> read_csv(std::span<const std::byte> text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // which spreadsheets write before UTF-8
  if (text.size() >= kByteOrderMark.size() && std::memcmp(text.data(), kByteOrderMark.data(), 3) == 0) {
    text = text.subspan(kByteOrderMark.size());
  }
  Lines lines(text);
  Table table;
  char separator = 0;
  while (const auto line = lines.next()) {
    const std::string_view row = trimmed(*line);
    if (row.empty() || row.front() == '#') continue;
    if (separator == 0) {
      const auto has = [&row](char c) { return row.find(c) != std::string_view::npos; };
      separator = has(',') ? ',' : has(';') ? ';' : ' ';
    }
    if (auto s = add_row(row, separator, lines, &table); !s.ok()) return s;
  }
  if (table.rows == 0) return client::Status{.code = client::Code::kInvalidArgument, .message = "has no numbers"};
  if (table.is_complex) return dense_array(std::move(table.numbers), table.rows, table.cols);
  std::vector<double> real;
  real.reserve(table.numbers.size());
  for (const std::complex<double>& x : table.numbers) real.push_back(x.real());
  return dense_array(std::move(real), table.rows, table.cols);
}

}  // namespace svdserve::cli
