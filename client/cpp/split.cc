#include "client/cpp/split.h"

#include <algorithm>

#include "client/cpp/status.h"

namespace svdserve::client::internal {

Piece Split::operator[](int64_t i) const {
  const int64_t base = count_ / pieces_, longer = count_ % pieces_;  // the first `longer` pieces hold one more
  return {i * base + std::min(i, longer), base + (i < longer ? 1 : 0)};
}

Result<MatrixSizes> matrix_sizes(const Batch& batch) {
  if (batch.rows < 1) return invalid("matrices.rows", "must be at least 1, is " + std::to_string(batch.rows));
  if (batch.cols < 1) return invalid("matrices.cols", "must be at least 1, is " + std::to_string(batch.cols));
  if (batch.count < 0) return invalid("matrices.count", "must not be negative, is " + std::to_string(batch.count));
  MatrixSizes sizes;
  int64_t total = 0;
  if (__builtin_mul_overflow(batch.rows, batch.cols, &sizes.matrix_bytes) ||
      __builtin_mul_overflow(sizes.matrix_bytes, static_cast<int64_t>(element_bytes(batch.data_type)),
                             &sizes.matrix_bytes) ||
      __builtin_mul_overflow(sizes.matrix_bytes, batch.count, &total)) {
    return invalid("matrices.count", "rows * cols * count is beyond what any machine holds");
  }
  // k <= rows * cols and value_bytes <= element_bytes: no larger than matrix_bytes.
  sizes.result_bytes = batch.values_per_matrix() * static_cast<int64_t>(value_bytes(batch.data_type));
  return sizes;
}

Result<Split> split(const Batch& batch, const PieceLimits& limits) {
  const Result<MatrixSizes> sizes = matrix_sizes(batch);
  if (!sizes.ok()) return sizes.status();
  const int64_t larger = std::max(sizes->matrix_bytes, sizes->result_bytes + kReplyBytesPerMatrix);
  const int64_t room = limits.max_message_bytes - kMessageOverheadBytes;
  if (batch.count > 0 && larger > room) {
    return invalid("matrices.data", "one matrix needs " + std::to_string(larger) + " bytes, a message has room for " +
                                        std::to_string(std::max<int64_t>(room, 0)));
  }
  const int64_t wished = std::clamp<int64_t>(limits.piece_bytes, 1, std::max<int64_t>(room, 1));
  const int64_t most = std::clamp<int64_t>(wished / larger, 1, std::max<int64_t>(limits.max_matrices, 1));
  const int64_t pieces = batch.count / most + (batch.count % most != 0 ? 1 : 0);
  return Split(batch.count, std::max<int64_t>(pieces, 1));
}

}  // namespace svdserve::client::internal
