#include "client/cpp/wire/split.h"

#include <algorithm>
#include <initializer_list>

#include "client/cpp/prepared.h"
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

// Whether the request asks for the plane, but for those of vectors and columns of them, whose extents are 0 without.
bool is_asked(const ComputeOptions& compute, Plane plane) {
  static const MimoOptions kNone;
  const MimoOptions& mimo = compute.mimo ? *compute.mimo : kNone;
  for (const MimoFlag& f : kMimoFlags) {
    if (f.plane == plane) return mimo.*f.flag;
  }
  switch (plane) {
    case Plane::kValues:
      return !compute.mimo || mimo.singular_values;
    case Plane::kLeft:
    case Plane::kRight:
      return true;
    case Plane::kThresholdRank:
      return mimo.rank_threshold.has_value();
    case Plane::kCertificate:
      return compute.certificate == CertificateScope::kMatrix;
    case Plane::kEigenvalueCondition:
      return compute.condition;
    case Plane::kCapacityGradient:
      return mimo.gradient && mimo.capacity;
    case Plane::kWaterFillingGradient:
      return mimo.gradient && mimo.water_filling;
    case Plane::kEffectiveRankGradient:
      return mimo.gradient && mimo.effective_rank;
    default:
      return false;
  }
}

}  // namespace

int64_t plane_bytes(const Batch& batch, const ComputeOptions& compute, Plane plane, int64_t count) {
  if (!is_asked(compute, plane)) return 0;
  const wire::PlaneOnWire& shape = wire::kPlanesOnWire[static_cast<size_t>(plane)];
  const wire::PlaneExtents extents = internal::extents_of(batch, compute);
  const int64_t group = shape.of_group ? std::max<int64_t>(compute.mimo->group_size, 1) : 1;
  const bool complex = compute.problem == Problem::kGeneral && plane <= Plane::kRight;
  const size_t number = complex              ? 2 * value_bytes(batch.data_type)
                        : shape.has_elements ? element_bytes(result_type(batch.data_type))
                                             : value_bytes(batch.data_type);
  return product({count / group, extents.*shape.height, extents.*shape.width, static_cast<int64_t>(number)});
}

bool fits_a_message(const Batch& batch, const ServerLimits& limits, const ComputeOptions& compute) {
  Batch one = batch;
  one.count = compute.mimo ? compute.mimo->group_size : 1;
  return internal::split(one, {limits.max_message_bytes, one.count, limits.max_message_bytes}, compute).ok();
}

}  // namespace svdserve::client

namespace svdserve::client::internal {

wire::PlaneExtents extents_of(const Batch& batch, const ComputeOptions& compute) {
  if (compute.problem != Problem::kSvd) {
    const int64_t n = batch.rows;
    const bool has_left = compute.problem == Problem::kGeneral && compute.vectors == Vectors::kFull;
    return {.rows = n,
            .cols = n,
            .values = n,
            .left_columns = compute.vectors == Vectors::kNone ? 0 : n,
            .right_columns = has_left ? n : 0};
  }
  const int64_t leading = compute.top_k != 0 ? compute.top_k : batch.values_per_matrix();
  const bool full = compute.vectors == Vectors::kFull;
  wire::PlaneExtents extents{.rows = batch.rows, .cols = batch.cols, .streams = batch.values_per_matrix()};
  extents.values = leading;
  if (compute.vectors != Vectors::kNone) {
    extents.left_columns = full ? batch.rows : leading;
    extents.right_columns = full ? batch.cols : leading;
  } else if (compute.mimo) {
    extents.left_columns = compute.mimo->combiner_columns;
    extents.right_columns = compute.mimo->precoder_columns;
  }
  if (compute.mimo) extents.snrs = static_cast<int64_t>(compute.mimo->snr_db.size());
  extents.snr_rows = extents.snrs * batch.rows;
  return extents;
}

Piece Split::operator[](int64_t i) const {
  const int64_t base = groups_ / pieces_, longer = groups_ % pieces_;  // the first `longer` pieces hold one more
  return {(i * base + std::min(i, longer)) * group_, (base + (i < longer ? 1 : 0)) * group_};
}

namespace {

// Refuses options for which a request about eigenproblems has no field.
Status check_eigenproblem(const Batch& batch, const ComputeOptions& compute) {
  if (batch.rows != batch.cols) {
    return invalid("matrices.cols", "must equal rows = " + std::to_string(batch.rows) + " for eigenproblems, but is " +
                                        std::to_string(batch.cols));
  }
  if (compute.problem == Problem::kHermitian && compute.vectors == Vectors::kFull) {
    return invalid("options.vectors", "must be kNone or kThin for Hermitian matrices, whose eigenvectors are complete");
  }
  if (compute.top_k != 0) return invalid("options.top_k", "must be 0 for eigenproblems");
  if (compute.mimo) return invalid("options.mimo", "must be absent for eigenproblems");
  return {};
}

// Refuses what only general matrices have.
Status check_not_general(const Batch& batch, const ComputeOptions& compute) {
  if (compute.condition) return invalid("options.condition", "must be false unless problem is kGeneral");
  if (batch.starting_vectors == nullptr) return {};
  return invalid("matrices.starting_vectors", "must be null unless problem is kGeneral");
}

// Refuses options for which a request about singular values has no field.
Status check_svd(const ComputeOptions& compute) {
  if (compute.triangle == Triangle::kLower) return {};
  return invalid("options.triangle", "must be kLower (the default) unless problem is kHermitian");
}

}  // namespace

Result<MatrixSizes> matrix_sizes(const Batch& batch, const ComputeOptions& compute) {
  if (batch.rows < 1) return invalid("matrices.rows", "must be at least 1, is " + std::to_string(batch.rows));
  if (batch.cols < 1) return invalid("matrices.cols", "must be at least 1, is " + std::to_string(batch.cols));
  if (batch.count < 0) return invalid("matrices.count", "must not be negative, is " + std::to_string(batch.count));
  const bool is_svd = compute.problem == Problem::kSvd;
  if (Status bad = is_svd ? check_svd(compute) : check_eigenproblem(batch, compute); !bad.ok()) return bad;
  if (compute.problem != Problem::kGeneral) {
    if (Status bad = check_not_general(batch, compute); !bad.ok()) return bad;
  }
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
  if (batch.starting_vectors != nullptr) {
    const auto complex_bytes = static_cast<int64_t>(2 * value_bytes(batch.data_type));
    sizes.starting_bytes = product({batch.rows, batch.cols, complex_bytes});
  }
  for (int p = 0; p < kPlanes; ++p) {
    sizes.result_bytes += plane_bytes(batch, compute, static_cast<Plane>(p), sizes.group);
  }
  int64_t total = 0;
  if (sizes.operand_bytes() >= kHuge || __builtin_mul_overflow(sizes.operand_bytes(), batch.count, &total)) {
    return invalid("matrices.count", "rows * cols * count is beyond what any machine holds");
  }
  if (sizes.result_bytes >= kHuge || __builtin_mul_overflow(sizes.result_bytes, batch.count / sizes.group, &total)) {
    return invalid("matrices.count", "the results are beyond what any machine holds");
  }
  return sizes;
}

namespace {

// Bytes of one group of matrices in a reply.
int64_t reply_bytes(const Batch& batch, const MatrixSizes& sizes, const ComputeOptions& compute) {
  // The certificate of each matrix is made where only that of the batch is wanted, too: the server reckons with it.
  const bool unsent = compute.certificate == CertificateScope::kBatch;
  const int64_t each = kMessageBytesPerMatrix + (unsent ? 3 * static_cast<int64_t>(value_bytes(batch.data_type)) : 0);
  return sizes.result_bytes + product({each, sizes.group});
}

// The bytes wished for of matrices that have so many each, of the larger of request and reply.
int64_t wished_bytes(const PieceLimits& limits, int64_t matrix_bytes) {
  return std::max(limits.piece_bytes,
                  std::min(product({limits.piece_matrices, matrix_bytes}), limits.largest_piece_bytes));
}

// The size of a message so far.
struct Load {
  int64_t request_bytes = 0, reply_bytes = 0, matrices = 0, groups = 0;

  Load operator+(const Load& more) const {
    return {request_bytes + more.request_bytes, reply_bytes + more.reply_bytes, matrices + more.matrices,
            groups + more.groups};
  }
  bool fits(const PieceLimits& limits) const {
    const int64_t bytes_of_matrix = std::max(request_bytes, reply_bytes) / std::max<int64_t>(matrices, 1);
    const int64_t room = std::min(limits.max_message_bytes - kMessageBytesFixed, wished_bytes(limits, bytes_of_matrix));
    return std::max(request_bytes, reply_bytes) <= room && matrices <= limits.max_matrices &&
           groups <= std::max<int64_t>(limits.max_groups, 1);
  }
};

}  // namespace

Result<Split> split(const Batch& batch, const PieceLimits& limits, const ComputeOptions& compute) {
  const Result<MatrixSizes> sizes = matrix_sizes(batch, compute);
  if (!sizes.ok()) return sizes.status();
  const int64_t group = sizes->group;
  const int64_t larger = std::max(product({sizes->operand_bytes(), group}), reply_bytes(batch, *sizes, compute));
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
  const int64_t wished = std::clamp<int64_t>(wished_bytes(limits, larger / group), 1, std::max<int64_t>(room, 1));
  const int64_t most = std::clamp<int64_t>(wished / larger, 1, std::max<int64_t>(limits.max_matrices / group, 1));
  const int64_t groups = batch.count / group;
  const int64_t pieces = groups / most + (groups % most != 0 ? 1 : 0);
  return Split(batch.count, std::max<int64_t>(pieces, 1), group);
}

Result<std::vector<Message>> pack(std::span<const Group> groups, const PieceLimits& limits,
                                  const ComputeOptions& compute) {
  std::vector<Message> messages;
  Load last;  // of the last message
  for (size_t g = 0; g < groups.size(); ++g) {
    const Batch& batch = groups[g].batch;
    const Result<MatrixSizes> sizes = matrix_sizes(batch, compute);
    const Result<Split> pieces = split(batch, limits, compute);
    if (!pieces.ok()) return groups.size() > 1 ? of_group(pieces.status(), g) : pieces.status();
    const Load mine{product({sizes->operand_bytes(), batch.count}) + kMessageBytesPerGroup,
                    product({reply_bytes(batch, *sizes, compute), batch.count / sizes->group}) + kMessageBytesPerGroup,
                    batch.count, 1};
    const bool joins = pieces->pieces() == 1 && !messages.empty() && (last + mine).fits(limits);
    if (joins) {
      messages.back().push_back({g, (*pieces)[0]});
    } else {
      for (int64_t i = 0; i < pieces->pieces(); ++i) messages.push_back({{g, (*pieces)[i]}});
    }
    last = joins ? last + mine : mine;  // of a batch of several pieces more than its last piece: nothing joins that
  }
  return messages;
}

}  // namespace svdserve::client::internal
