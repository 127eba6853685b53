#include "client/cpp/wire/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <bit>

#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire_values.h"
#include "svdserve/v1/svd_service.pb.h"

namespace svdserve::client::internal {

static_assert(std::endian::native == std::endian::little, "payloads are sent as they lie in memory");

namespace {

using google::protobuf::internal::WireFormatLite;
using internal::to_proto;

// Below this a copy into a slice of gRPC's own is cheaper than a buffer with an owner.
constexpr size_t kSmallPayloadBytes = 16 << 10;

v1::CertificateScope to_proto(CertificateScope c) {
  switch (c) {
    case CertificateScope::kNone:
      return v1::CERTIFICATE_SCOPE_NONE;
    case CertificateScope::kBatch:
      return v1::CERTIFICATE_SCOPE_BATCH;
    case CertificateScope::kMatrix:
      return v1::CERTIFICATE_SCOPE_MATRIX;
  }
  return v1::CERTIFICATE_SCOPE_UNSPECIFIED;
}

void to_proto(const MimoOptions& mimo, v1::MimoOptions* out) {
  out->set_capacity(mimo.capacity);
  out->set_water_filling(mimo.water_filling);
  out->set_stream_snr(mimo.stream_snr);
  out->set_condition_number(mimo.condition_number);
  out->set_effective_rank(mimo.effective_rank);
  if (mimo.rank_threshold) out->set_rank_threshold(*mimo.rank_threshold);
  out->mutable_snr_db()->Assign(mimo.snr_db.begin(), mimo.snr_db.end());
  out->set_group_size(mimo.group_size);
  out->set_precoder_columns(mimo.precoder_columns);
  out->set_combiner_columns(mimo.combiner_columns);
  out->set_singular_values(mimo.singular_values);
}

void to_proto(const ComputeOptions& compute, v1::DecomposeOptions* out) {
  out->set_method(to_proto(compute.method));
  out->set_tolerance(compute.tolerance);
  out->set_max_sweeps(compute.max_sweeps);
  if (compute.vectors != Vectors::kNone) out->set_vectors(to_proto(compute.vectors));
  out->set_top_k(compute.top_k);
  out->set_fix_phases(compute.fix_phases);
  if (compute.certificate != CertificateScope::kNone) out->set_certificate(to_proto(compute.certificate));
  if (compute.mimo) to_proto(*compute.mimo, out->mutable_mimo());
}

// Everything of a DecomposeRequest but the payload itself, which must follow at once.
std::string request_prefix(const Batch& shape, int64_t count, const ComputeOptions& compute, size_t payload_bytes) {
  v1::MatrixBatch head;
  head.set_data_type(to_proto(shape.data_type));
  head.set_memory_order(to_proto(shape.memory_order));
  head.set_rows(shape.rows);
  head.set_cols(shape.cols);
  head.set_count(count);
  std::string matrices = head.SerializeAsString();
  if (payload_bytes > 0) append_field_head(&matrices, v1::MatrixBatch::kDataFieldNumber, payload_bytes);

  v1::DecomposeRequest rest;
  to_proto(compute, rest.mutable_options());
  std::string prefix = rest.SerializeAsString();
  append_field_head(&prefix, v1::DecomposeRequest::kMatricesFieldNumber, matrices.size() + payload_bytes);
  return prefix + matrices;
}

grpc::ByteBuffer join(const std::string& prefix, const grpc::Slice& payload) {
  const grpc::Slice slices[] = {grpc::Slice(prefix), payload};
  return grpc::ByteBuffer(slices, payload.size() > 0 ? 2 : 1);
}

grpc::Slice borrow(std::shared_ptr<const void> owner, const void* data, size_t size) {
  return grpc::Slice(
      const_cast<void*>(data), size, [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
      new std::shared_ptr<const void>(std::move(owner)));
}

// Where a plane is: field `field` of the response, or of the message in field `outer` of it.
enum class Question : uint8_t { kAny, kVectors, kColumns };  // which puts a plane there
struct PlaneField {
  int outer;
  int field;
  Plane plane;
  Question question = Question::kAny;
};
constexpr PlaneField kPlaneFields[] = {
    {0, v1::DecomposeResponse::kSingularValuesFieldNumber, Plane::kValues},
    {0, v1::DecomposeResponse::kLeftVectorsFieldNumber, Plane::kLeft, Question::kVectors},
    {0, v1::DecomposeResponse::kCombinersFieldNumber, Plane::kLeft, Question::kColumns},
    {0, v1::DecomposeResponse::kRightVectorsAdjointFieldNumber, Plane::kRight, Question::kVectors},
    {0, v1::DecomposeResponse::kPrecodersFieldNumber, Plane::kRight, Question::kColumns},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kCapacityFieldNumber, Plane::kCapacity},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kWaterFillingFieldNumber, Plane::kWaterFilling},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kStreamSnrFieldNumber, Plane::kStreamSnr},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kConditionNumberFieldNumber, Plane::kConditionNumber},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kEffectiveRankFieldNumber, Plane::kEffectiveRank},
    {v1::DecomposeResponse::kMimoFieldNumber, v1::MimoResult::kThresholdRankFieldNumber, Plane::kThresholdRank},
    {v1::DecomposeResponse::kCertificateFieldNumber, v1::Certificate::kEachMatrixFieldNumber, Plane::kCertificate},
};

bool is_length_delimited(uint32_t tag) {
  return WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
}

// Nothing for a field that the answer to another question would have.
const PlaneField* plane_field(int outer, uint32_t tag, bool has_vectors) {
  const Question other = has_vectors ? Question::kColumns : Question::kVectors;
  for (const PlaneField& f : kPlaneFields) {
    if (is_length_delimited(tag) && f.outer == outer && f.field == WireFormatLite::GetTagFieldNumber(tag)) {
      return f.question == other ? nullptr : &f;
    }
  }
  return nullptr;
}

// Reads a DecomposeResponse: planes go to their memory, everything else is kept as serialized.
class ResponseReader {
 public:
  ResponseReader(google::protobuf::io::CodedInputStream* in, const Expected& expected, const Outputs& out)
      : in_(*in), expected_(expected), out_(out) {}

  bool read() { return read_fields(0, &rest_) && in_.ConsumedEntireMessage(); }
  // All but the planes.
  bool parse(v1::DecomposeResponse* response) const {
    return response->ParseFromString(rest_) &&
           (!has_certificate_ || response->mutable_certificate()->ParseFromString(certificate_));
  }
  const std::array<size_t, kPlanes>& planes_bytes() const { return planes_bytes_; }

 private:
  // The fields of the response (outer 0) or of an embedded message; others than planes are appended to *rest.
  bool read_fields(int outer, std::string* rest) {
    google::protobuf::io::StringOutputStream rest_stream(rest);
    google::protobuf::io::CodedOutputStream rest_out(&rest_stream);
    while (const uint32_t tag = in_.ReadTag()) {
      const int field = WireFormatLite::GetTagFieldNumber(tag);
      if (const PlaneField* const f = plane_field(outer, tag, expected_.has_vectors)) {
        if (!read_plane(f->plane)) return false;
      } else if (outer == 0 && is_length_delimited(tag) && field == v1::DecomposeResponse::kMimoFieldNumber) {
        std::string nothing;
        if (!read_embedded(field, &nothing)) return false;
      } else if (outer == 0 && is_length_delimited(tag) && field == v1::DecomposeResponse::kCertificateFieldNumber) {
        has_certificate_ = true;
        if (!read_embedded(field, &certificate_)) return false;
      } else if (!WireFormatLite::SkipField(&in_, tag, &rest_out)) {
        return false;
      }
    }
    return true;
  }
  bool read_embedded(int field, std::string* rest) {
    uint32_t size = 0;
    if (!in_.ReadVarint32(&size) || size > INT32_MAX) return false;
    const auto limit = in_.PushLimit(static_cast<int>(size));
    const bool good = read_fields(field, rest) && in_.ConsumedEntireMessage();
    in_.PopLimit(limit);
    return good;
  }
  bool read_plane(Plane plane) {
    uint32_t size = 0;
    if (!in_.ReadVarint32(&size) || size > INT32_MAX) return false;
    planes_bytes_[static_cast<size_t>(plane)] = size;
    const std::span<std::byte> memory = out_[plane];
    return size > memory.size() ? in_.Skip(static_cast<int>(size)) : in_.ReadRaw(memory.data(), static_cast<int>(size));
  }

  google::protobuf::io::CodedInputStream& in_;
  const Expected& expected_;
  const Outputs& out_;
  std::array<size_t, kPlanes> planes_bytes_{};
  std::string rest_, certificate_;
  bool has_certificate_ = false;
};

// "2 x 3 values": counts of a reply in an error's words.
std::string of_counts(int64_t count, int64_t each, const char* what) {
  return std::to_string(count) + " x " + std::to_string(each) + " " + what;
}

Status check_counts(const v1::DecomposeResponse& response, const Expected& expected) {
  if (response.groups_size() > 0) return invalid_reply("it holds groups, and none were sent");
  if (response.count() != expected.count || response.values_per_matrix() != expected.values_per_matrix) {
    return invalid_reply("it holds " + of_counts(response.count(), response.values_per_matrix(), "values, ") +
                         of_counts(expected.count, expected.values_per_matrix, "were asked for"));
  }
  if (response.left_columns() != expected.left_columns || response.right_columns() != expected.right_columns) {
    return invalid_reply("its vectors have " + std::to_string(response.left_columns()) + " and " +
                         std::to_string(response.right_columns()) + " columns, " +
                         std::to_string(expected.left_columns) + " and " + std::to_string(expected.right_columns) +
                         " were asked for");
  }
  return {};
}

Status check_planes(const v1::DecomposeResponse& response, const Expected& expected,
                    const std::array<size_t, kPlanes>& planes_bytes, const Outputs& out) {
  for (size_t p = 0; p < planes_bytes.size(); ++p) {
    if (planes_bytes[p] != out.planes[p].size()) {
      return invalid_reply("it holds " + std::to_string(planes_bytes[p]) + " bytes of a result, " +
                           std::to_string(out.planes[p].size()) + " were asked for");
    }
  }
  const bool has_unasked = expected.has_vectors
                               ? !response.combiners().empty() || !response.precoders().empty()
                               : !response.left_vectors().empty() || !response.right_vectors_adjoint().empty();
  if (has_unasked) return invalid_reply("it holds vectors of a kind that was not asked for");
  if (response.has_certificate() == expected.has_certificate) return {};
  return invalid_reply(expected.has_certificate ? "it has no certificate" : "it has a certificate, none was asked for");
}

// The exceptions are those of `count` matrices: each at most once, in their order.
Status read_exceptions(const v1::DecomposeResponse& response, int64_t count, std::vector<MatrixException>* to) {
  if (response.exception_indices_size() != response.exception_statuses_size()) {
    return invalid_reply("its lists of exceptions have " + std::to_string(response.exception_indices_size()) +
                         " indices and " + std::to_string(response.exception_statuses_size()) + " statuses");
  }
  int64_t least = 0;  // that the next index may be
  for (int i = 0; i < response.exception_indices_size(); ++i) {
    const int64_t index = response.exception_indices(i);
    if (index < least || index >= count) {
      return invalid_reply("exception " + std::to_string(i) + " is of matrix " + std::to_string(index) + " of " +
                           std::to_string(count) + ", the least that could follow is " + std::to_string(least));
    }
    least = index + 1;
    if (response.exception_statuses(i) == v1::MATRIX_STATUS_UNSPECIFIED) {
      return invalid_reply("exception " + std::to_string(i) + " has no status");
    }
    to->push_back({index, from_proto(static_cast<v1::MatrixStatus>(response.exception_statuses(i)))});
  }
  return {};
}

Status check_limits(const ServerLimits& limits) {
  const struct {
    const char* name;
    int64_t value, least;
  } all[] = {{"max_values", limits.max_values, 1},     {"max_dimension", limits.max_dimension, 1},
             {"max_matrices", limits.max_matrices, 1}, {"max_message_bytes", limits.max_message_bytes, 1},
             {"max_groups", limits.max_groups, 0},     {"max_large_bytes", limits.max_large_bytes, 0}};
  for (const auto& limit : all) {
    if (limit.value >= limit.least) continue;
    return invalid_reply(std::string("its limits.") + limit.name + " is " + std::to_string(limit.value) +
                         ", it must be at least " + std::to_string(limit.least));
  }
  return {};
}

}  // namespace

grpc::Slice make_payload(SendBuffers& buffers, const Batch& batch, const Piece& piece, int64_t matrix_bytes) {
  const auto* first = static_cast<const std::byte*>(batch.data) + piece.first * matrix_bytes;
  const auto size = static_cast<size_t>(piece.count * matrix_bytes);
  if (size == 0) return {};
  if (size <= kSmallPayloadBytes) return grpc::Slice(first, size);
  if (batch.owner) return borrow(batch.owner, first, size);
  std::shared_ptr<const std::byte> copy = buffers.copy(first, size);
  const std::byte* const bytes = copy.get();
  return borrow(std::move(copy), bytes, size);
}

grpc::ByteBuffer make_request(const Batch& shape, int64_t count, const ComputeOptions& compute,
                              const grpc::Slice& payload) {
  return join(request_prefix(shape, count, compute, payload.size()), payload);
}

grpc::ByteBuffer make_stream_request(uint64_t id, std::optional<std::chrono::nanoseconds> timeout, const Batch& shape,
                                     int64_t count, const ComputeOptions& compute, const grpc::Slice& payload) {
  const std::string inner = request_prefix(shape, count, compute, payload.size());
  v1::DecomposeStreamRequest head;
  head.set_request_id(id);
  if (timeout) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*timeout);
    head.mutable_timeout()->set_seconds(seconds.count());
    head.mutable_timeout()->set_nanos(static_cast<int32_t>((*timeout - seconds).count()));
  }
  std::string prefix = head.SerializeAsString();
  append_field_head(&prefix, v1::DecomposeStreamRequest::kRequestFieldNumber, inner.size() + payload.size());
  return join(prefix + inner, payload);
}

int64_t values_wanted(const Batch& shape, const ComputeOptions& compute) {
  if (compute.mimo && !compute.mimo->singular_values) return 0;
  return compute.top_k != 0 ? compute.top_k : shape.values_per_matrix();
}

Expected expected_of(const Batch& shape, int64_t count, const ComputeOptions& compute) {
  Expected e;
  e.count = count;
  e.values_per_matrix = values_wanted(shape, compute);
  e.has_vectors = compute.vectors != Vectors::kNone;
  e.has_certificate = compute.certificate != CertificateScope::kNone;
  const int64_t leading = compute.top_k != 0 ? compute.top_k : shape.values_per_matrix();
  if (e.has_vectors) {
    e.left_columns = compute.vectors == Vectors::kFull ? shape.rows : leading;
    e.right_columns = compute.vectors == Vectors::kFull ? shape.cols : leading;
  } else if (compute.mimo) {
    e.left_columns = compute.mimo->combiner_columns;
    e.right_columns = compute.mimo->precoder_columns;
  }
  return e;
}

std::array<std::string_view, kPlanes> planes_of(const v1::DecomposeResponse& r, const Expected& expected) {
  const v1::MimoResult& mimo = r.mimo();
  return {r.singular_values(),
          expected.has_vectors ? r.left_vectors() : r.combiners(),
          expected.has_vectors ? r.right_vectors_adjoint() : r.precoders(),
          mimo.capacity(),
          mimo.water_filling(),
          mimo.stream_snr(),
          mimo.condition_number(),
          mimo.effective_rank(),
          mimo.threshold_rank(),
          r.certificate().each_matrix()};
}

Result<Report> to_report(const v1::DecomposeResponse& response, const Expected& expected,
                         const std::array<size_t, kPlanes>& planes_bytes, const Outputs& out) {
  if (Status s = check_counts(response, expected); !s.ok()) return s;
  if (Status s = check_planes(response, expected, planes_bytes, out); !s.ok()) return s;
  Report report;
  if (Status s = read_exceptions(response, expected.count, &report.exceptions); !s.ok()) return s;
  report.count = expected.count;
  report.values_per_matrix = expected.values_per_matrix;
  report.method = from_proto(response.method());
  report.device = response.device();
  report.queue_seconds = response.timing().queue_seconds();
  report.compute_seconds = response.timing().compute_seconds();
  report.total_seconds = response.timing().total_seconds();
  if (response.has_certificate()) {
    const v1::Certificate& c = response.certificate();
    report.certificate = Certificate{c.residual(), c.left_orthogonality(), c.right_orthogonality()};
  }
  return report;
}

Result<Report> read_response(grpc::ByteBuffer& reply, const Expected& expected, const Outputs& out) {
  grpc::ProtoBufferReader bytes(&reply);
  google::protobuf::io::CodedInputStream in(&bytes);
  ResponseReader reader(&in, expected, out);
  v1::DecomposeResponse response;
  if (!reader.read() || !reader.parse(&response)) return invalid_reply("it is not a DecomposeResponse");
  return to_report(response, expected, reader.planes_bytes(), out);
}

Result<ServerInfo> to_server_info(const v1::GetServerInfoResponse& response) {
  ServerInfo info;
  info.version = response.version();
  for (int t : response.data_types()) {
    if (t >= v1::DATA_TYPE_F32 && t <= v1::DATA_TYPE_C128) {
      info.data_types.push_back(static_cast<DataType>(t - v1::DATA_TYPE_F32));
    }
  }
  for (int m : response.methods()) {
    if (m >= v1::METHOD_AUTO && m <= v1::METHOD_JACOBI) {
      info.methods.push_back(static_cast<Method>(m - v1::METHOD_AUTO));
    }
  }
  const v1::Limits& l = response.limits();
  info.limits = {l.max_values(),
                 l.max_dimension(),
                 l.max_matrices(),
                 l.max_message_bytes(),
                 l.max_inflight_requests(),
                 l.max_inflight_bytes(),
                 l.max_stream_requests(),
                 l.max_groups(),
                 l.max_large_bytes()};
  if (Status s = check_limits(info.limits); !s.ok()) return s;
  for (const v1::Device& d : response.devices()) {
    info.devices.push_back({d.name(), d.backend(), d.instruction_set(), d.threads(), d.healthy(), d.model(), d.uuid(),
                            d.memory_bytes(), d.lanes(), d.outstanding_batches(), d.busy_seconds(), d.uploaded_bytes(),
                            d.downloaded_bytes(), d.running_factors(), d.waiting_factors()});
  }
  info.draining = response.draining();
  return info;
}

}  // namespace svdserve::client::internal
