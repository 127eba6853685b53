// Parts of an operand or result in the host's memory, as arrays without gaps, for columns of its tall view a.
//
// The array has lines: columns of a column-major one, rows of a row-major one. Where a line is a column of a, some
// columns are neighbouring lines. Else they are a piece of every line, which is gathered, or scattered, through a buffer.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_OPERAND_PANELS_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_OPERAND_PANELS_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/backends/streamed/panel_store.h"
#include "engine/problem.h"

namespace svdserve::streamed {

class OperandPanels {
 public:
  // adjoint: a is the operand's adjoint.
  OperandPanels(const Problem& problem, bool adjoint)
      : problem_(problem),
        by_rows_(problem.order == Order::kRowMajor),
        turned_(by_rows_ != adjoint),
        line_(by_rows_ ? problem.cols : problem.rows),
        element_bytes_(static_cast<int64_t>(element_bytes(problem.dtype))) {}

  // Whether a line is a row of a.
  bool turned() const { return turned_; }

  // Rows of a that are gathered at once, in about kBufferBytes.
  int64_t rows_at_once(int64_t columns) const {
    return std::max<int64_t>(1, kBufferBytes / (std::max<int64_t>(columns, 1) * element_bytes_));
  }

  // The shape of lines `lines` with the entries `of_line` of each.
  Problem part(Range lines, Range of_line) const {
    Problem part = problem_;
    (by_rows_ ? part.rows : part.cols) = lines.count;
    (by_rows_ ? part.cols : part.rows) = of_line.count;
    return part;
  }

  template <class Bytes>
  Bytes* line(Bytes* matrix, int64_t number) const {
    return matrix + number * line_ * element_bytes_;
  }

  // Between entries `of_line` of these lines and a buffer without gaps.
  const char* gather(const char* matrix, Range lines, Range of_line) {
    reserve(lines, of_line);
    for_lines(lines, of_line, [&](int64_t at, int64_t in_buffer, size_t bytes) {
      std::memcpy(buffer_.data() + in_buffer, matrix + at, bytes);
    });
    return buffer_.data();
  }
  char* buffer(Range lines, Range of_line) {
    reserve(lines, of_line);
    return buffer_.data();
  }
  void scatter(char* matrix, Range lines, Range of_line) const {
    for_lines(lines, of_line, [&](int64_t at, int64_t in_buffer, size_t bytes) {
      std::memcpy(matrix + at, buffer_.data() + in_buffer, bytes);
    });
  }

 private:
  static constexpr int64_t kBufferBytes = int64_t{64} << 20;

  void reserve(Range lines, Range of_line) {
    buffer_.resize(static_cast<size_t>(lines.count * of_line.count * element_bytes_));
  }
  template <class F>
  void for_lines(Range lines, Range of_line, const F& f) const {
    const int64_t bytes = of_line.count * element_bytes_;
    for (int64_t i = 0; i < lines.count; ++i) {
      f(((lines.first + i) * line_ + of_line.first) * element_bytes_, i * bytes, static_cast<size_t>(bytes));
    }
  }

  const Problem problem_;
  const bool by_rows_, turned_;
  const int64_t line_;  // elements of a line
  const int64_t element_bytes_;
  std::vector<char> buffer_;
};

}  // namespace svdserve::streamed
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_OPERAND_PANELS_H_
