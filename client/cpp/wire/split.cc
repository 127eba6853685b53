#include "client/cpp/wire/split.h"

#include <algorithm>
#include <initializer_list>

#include "client/cpp/wire/status.h"
#include "wire/limits.h"

namespace svdserve::client {
namespace {

constexpr int64_t kHuge = INT64_MAX / 64;

// The product of sizes >= 0, or kHuge where it is larger.
int64_t product(std::initializer_list<int64_t> sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(result, std::max<int64_t>(size, 0), &result) || result > kHuge) return kHuge;
  }
  return result;
}

// Numbers or elements of a plane of MimoOptions.
int64_t mimo_bytes(const Batch& batch, const MimoOptions& mimo, Plane plane, int64_t count) {
  const auto element = static_cast<int64_t>(element_bytes(batch.data_type));
  const auto number = static_cast<int64_t>(value_bytes(batch.data_type));
  const auto snrs = static_cast<int64_t>(mimo.snr_db.size());
  const int64_t groups = count / std::max<int64_t>(mimo.group_size, 1);
  switch (plane) {
    case Plane::kLeft:
      return product({count, batch.rows, mimo.combiner_columns, element});
    case Plane::kRight:
      return product({count, batch.cols, mimo.precoder_columns, element});
    case Plane::kCapacity:
      return mimo.capacity ? product({groups, snrs, number}) : 0;
    case Plane::kWaterFilling:
      return mimo.water_filling ? product({groups, snrs, number}) : 0;
    case Plane::kStreamSnr:
      return mimo.stream_snr ? product({count, snrs, batch.values_per_matrix(), number}) : 0;
    case Plane::kConditionNumber:
      return mimo.condition_number ? product({count, number}) : 0;
    case Plane::kEffectiveRank:
      return mimo.effective_rank ? product({count, number}) : 0;
    case Plane::kThresholdRank:
      return mimo.rank_threshold ? product({count, number}) : 0;
    default:
      return 0;
  }
}

}  // namespace

int64_t plane_bytes(const Batch& batch, const ComputeOptions& compute, Plane plane, int64_t count) {
  const auto element = static_cast<int64_t>(element_bytes(batch.data_type));
  const auto number = static_cast<int64_t>(value_bytes(batch.data_type));
  const int64_t leading = compute.top_k != 0 ? compute.top_k : batch.values_per_matrix();
  const bool full = compute.vectors == Vectors::kFull;
  if (plane == Plane::kValues) {
    return !compute.mimo || compute.mimo->singular_values ? product({count, leading, number}) : 0;
  }
  if (plane == Plane::kCertificate) {
    return compute.certificate == CertificateScope::kMatrix ? product({count, 3, number}) : 0;
  }
  if (compute.vectors != Vectors::kNone && plane == Plane::kLeft) {
    return product({count, batch.rows, full ? batch.rows : leading, element});
  }
  if (compute.vectors != Vectors::kNone && plane == Plane::kRight) {
    return product({count, full ? batch.cols : leading, batch.cols, element});
  }
  return compute.mimo ? mimo_bytes(batch, *compute.mimo, plane, count) : 0;
}

bool fits_a_message(const Batch& batch, const ServerLimits& limits, const ComputeOptions& compute) {
  Batch one = batch;
  one.count = compute.mimo ? compute.mimo->group_size : 1;
  return internal::split(one, {limits.max_message_bytes, one.count, limits.max_message_bytes}, compute).ok();
}

}  // namespace svdserve::client

namespace svdserve::client::internal {

Piece Split::operator[](int64_t i) const {
  const int64_t base = groups_ / pieces_, longer = groups_ % pieces_;  // the first `longer` pieces hold one more
  return {(i * base + std::min(i, longer)) * group_, (base + (i < longer ? 1 : 0)) * group_};
}

Result<MatrixSizes> matrix_sizes(const Batch& batch, const ComputeOptions& compute) {
  if (batch.rows < 1) return invalid("matrices.rows", "must be at least 1, is " + std::to_string(batch.rows));
  if (batch.cols < 1) return invalid("matrices.cols", "must be at least 1, is " + std::to_string(batch.cols));
  if (batch.count < 0) return invalid("matrices.count", "must not be negative, is " + std::to_string(batch.count));
  MatrixSizes sizes;
  sizes.group = compute.mimo ? compute.mimo->group_size : 1;
  if (sizes.group < 1) {
    return invalid("options.mimo.group_size", "must be at least 1, is " + std::to_string(sizes.group));
  }
  if (batch.count % sizes.group != 0) {
    return invalid("matrices.count", "must be a multiple of options.mimo.group_size, which is " +
                                         std::to_string(sizes.group) + ", is " + std::to_string(batch.count));
  }
  sizes.matrix_bytes = product({batch.rows, batch.cols, static_cast<int64_t>(element_bytes(batch.data_type))});
  for (int p = 0; p < kPlanes; ++p) {
    sizes.result_bytes += plane_bytes(batch, compute, static_cast<Plane>(p), sizes.group);
  }
  int64_t total = 0;
  if (sizes.matrix_bytes == kHuge || __builtin_mul_overflow(sizes.matrix_bytes, batch.count, &total)) {
    return invalid("matrices.count", "rows * cols * count is beyond what any machine holds");
  }
  if (sizes.result_bytes >= kHuge || __builtin_mul_overflow(sizes.result_bytes, batch.count / sizes.group, &total)) {
    return invalid("matrices.count", "the results are beyond what any machine holds");
  }
  return sizes;
}

Result<Split> split(const Batch& batch, const PieceLimits& limits, const ComputeOptions& compute) {
  const Result<MatrixSizes> sizes = matrix_sizes(batch, compute);
  if (!sizes.ok()) return sizes.status();
  const int64_t group = sizes->group;
  // The certificate of each matrix is made where only that of the batch is wanted, too: the server reckons with it.
  const bool unsent = compute.certificate == CertificateScope::kBatch;
  const int64_t reply_bytes_per_matrix =
      kMessageBytesPerMatrix + (unsent ? 3 * static_cast<int64_t>(value_bytes(batch.data_type)) : 0);
  const int64_t larger =
      std::max(product({sizes->matrix_bytes, group}), sizes->result_bytes + product({reply_bytes_per_matrix, group}));
  const int64_t room = limits.max_message_bytes - kMessageBytesFixed;
  if (batch.count > 0 && group > std::max<int64_t>(limits.max_matrices, 1)) {
    return invalid("options.mimo.group_size", "is " + std::to_string(group) + ", this server takes at most " +
                                                  std::to_string(limits.max_matrices) + " matrices in one request");
  }
  if (batch.count > 0 && larger > room) {
    const std::string what = group == 1 ? "one matrix" : "a group of " + std::to_string(group) + " matrices";
    return invalid("matrices.data", what + " needs " + std::to_string(larger) + " bytes, a message has room for " +
                                        std::to_string(std::max<int64_t>(room, 0)));
  }
  const int64_t wished = std::clamp<int64_t>(limits.piece_bytes, 1, std::max<int64_t>(room, 1));
  const int64_t most = std::clamp<int64_t>(wished / larger, 1, std::max<int64_t>(limits.max_matrices / group, 1));
  const int64_t groups = batch.count / group;
  const int64_t pieces = groups / most + (groups % most != 0 ? 1 : 0);
  return Split(batch.count, std::max<int64_t>(pieces, 1), group);
}

}  // namespace svdserve::client::internal
