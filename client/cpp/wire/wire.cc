#include "client/cpp/wire/wire.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/unknown_field_set.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <bit>

#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire_values.h"
#include "svdserve/v1/svd_service.pb.h"
#include "wire/fields.h"
#include "wire/planes.h"

namespace svdserve::client::internal {

static_assert(wire::kPlanesOnWire.size() == kPlanes);
static_assert(std::endian::native == std::endian::little, "payloads are sent as they lie in memory");

namespace {

using wire::CodedInputStream;
using wire::WireFormatLite;

// Below this a copy into a slice of gRPC's own is cheaper than a buffer with an owner.
constexpr size_t kSmallPayloadBytes = 16 << 10;

void write(const MimoOptions& mimo, v1::MimoOptions* out) {
  for (const MimoFlag& f : kMimoFlags) {
    const int option = wire::kPlanesOnWire[static_cast<size_t>(f.plane)].option;
    if (mimo.*f.flag) out->GetReflection()->SetBool(out, out->GetDescriptor()->FindFieldByNumber(option), true);
  }
  if (mimo.rank_threshold) out->set_rank_threshold(*mimo.rank_threshold);
  out->mutable_snr_db()->Assign(mimo.snr_db.begin(), mimo.snr_db.end());
  out->set_group_size(mimo.group_size);
  out->set_precoder_columns(mimo.precoder_columns);
  out->set_combiner_columns(mimo.combiner_columns);
  out->set_singular_values(mimo.singular_values);
  out->set_gradient(mimo.gradient);
}

void write_own(const ComputeOptions& compute, v1::DecomposeOptions* out) {
  if (compute.vectors != Vectors::kNone) out->set_vectors(to_proto<v1::Vectors>(compute.vectors));
  out->set_top_k(compute.top_k);
  if (compute.mimo) write(*compute.mimo, out->mutable_mimo());
}

void write_own(const ComputeOptions& compute, v1::EigendecomposeOptions* out) {
  if (compute.vectors != Vectors::kNone) {
    const bool both = compute.vectors == Vectors::kFull;
    out->set_vectors(both ? v1::EIGENVECTORS_RIGHT_AND_LEFT : v1::EIGENVECTORS_RIGHT);
  }
  out->set_problem(to_proto<v1::EigenProblem>(compute.problem));
  out->set_triangle(to_proto<v1::Triangle>(compute.triangle));
  out->set_condition(compute.condition);
}

// A Request with nothing but its options.
template <class Request>
Request options_of(const ComputeOptions& compute) {
  Request request;
  auto* const out = request.mutable_options();
  out->set_method(to_proto<v1::Method>(compute.method));
  out->set_tolerance(compute.tolerance);
  out->set_max_sweeps(compute.max_sweeps);
  out->set_fix_phases(compute.fix_phases);
  if (compute.certificate != CertificateScope::kNone)
    out->set_certificate(to_proto<v1::CertificateScope>(compute.certificate));
  write_own(compute, out);
  return request;
}

std::string serialized_options(const ComputeOptions& compute, bool starting_vectors) {
  if (compute.problem == Problem::kSvd) return options_of<v1::DecomposeRequest>(compute).SerializeAsString();
  auto request = options_of<v1::EigendecomposeRequest>(compute);
  request.mutable_options()->set_starting_vectors(starting_vectors);
  return request.SerializeAsString();
}

// Everything of a MatrixBatch but its operands.
std::string batch_head(const BatchToSend& batch) {
  v1::MatrixBatch head;
  head.set_data_type(to_proto<v1::DataType>(batch.shape.data_type));
  head.set_memory_order(to_proto<v1::MemoryOrder>(batch.shape.memory_order));
  head.set_rows(batch.shape.rows);
  head.set_cols(batch.shape.cols);
  head.set_count(batch.count);
  head.set_exponent(batch.shape.exponent);
  return head.SerializeAsString();
}

// A field of bytes in slices, what comes before them and they; nothing where it is empty.
void append_field(int field, const grpc::Slice& content, std::vector<grpc::Slice>* to) {
  if (content.size() == 0) return;
  std::string head;
  wire::append_head(&head, field, content.size());
  to->emplace_back(head);
  to->push_back(content);
}

size_t total_size(std::span<const grpc::Slice> slices) {
  size_t size = 0;
  for (const grpc::Slice& slice : slices) size += slice.size();
  return size;
}

// A request in slices: its options, then for each batch what comes before its operands, and the operands.
std::vector<grpc::Slice> request_slices(std::span<const BatchToSend> batches, const ComputeOptions& compute) {
  const int field =
      batches.size() == 1 ? v1::DecomposeRequest::kMatricesFieldNumber : v1::DecomposeRequest::kGroupsFieldNumber;
  const bool starting_vectors =
      std::ranges::any_of(batches, [](const BatchToSend& batch) { return batch.payloads.starting_vectors.size() > 0; });
  std::string prefix = serialized_options(compute, starting_vectors);
  std::vector<grpc::Slice> slices;
  for (const BatchToSend& batch : batches) {
    const std::string head = batch_head(batch);
    std::vector<grpc::Slice> operands;
    append_field(v1::MatrixBatch::kDataFieldNumber, batch.payloads.matrices, &operands);
    append_field(v1::MatrixBatch::kStartingVectorsFieldNumber, batch.payloads.starting_vectors, &operands);
    wire::append_head(&prefix, field, head.size() + total_size(operands));
    slices.emplace_back(prefix + head);
    slices.insert(slices.end(), operands.begin(), operands.end());
    prefix.clear();
  }
  return slices;
}

grpc::Slice borrow(std::shared_ptr<const void> owner, const void* data, size_t size) {
  return grpc::Slice(
      const_cast<void*>(data), size, [](void* held) { delete static_cast<std::shared_ptr<const void>*>(held); },
      new std::shared_ptr<const void>(std::move(owner)));
}

bool is_embedded(uint32_t tag) { return WireFormatLite::GetTagWireType(tag) == wire::kEmbedded; }

// The plane that is in field `tag` of the message in field `message` of a response (0: in the response itself).
// Nothing for a field that the reply to another question would have.
std::optional<Plane> plane_at(int message, uint32_t tag, bool has_vectors) {
  const int field = WireFormatLite::GetTagFieldNumber(tag);
  for (size_t i = 0; is_embedded(tag) && i < wire::kPlanesOnWire.size(); ++i) {
    const wire::PlaneOnWire& plane = wire::kPlanesOnWire[i];
    if (plane.message == message && plane.field_of(has_vectors) == field) return static_cast<Plane>(i);
  }
  return std::nullopt;
}

// Reads a DecomposeResponse: planes go to their memory, everything else is kept as serialized.
class ResponseReader {
 public:
  ResponseReader(CodedInputStream* in, const Expected& expected, const Outputs& out)
      : in_(*in), expected_(expected), out_(out) {}

  bool read() {
    google::protobuf::io::StringOutputStream rest_stream(&rest_);
    wire::CodedOutputStream rest_out(&rest_stream);
    return wire::read_fields(&in_, [&](uint32_t tag) { return read_field(0, tag, &rest_out); });
  }
  // All but the planes.
  bool parse(v1::DecomposeResponse* response) const {
    return response->ParseFromString(rest_) &&
           (!has_certificate_ || response->mutable_certificate()->ParseFromString(certificate_));
  }
  const std::array<size_t, kPlanes>& planes_bytes() const { return planes_bytes_; }

 private:
  // A field of the response (message 0) or of an embedded message; others than planes are appended to *rest.
  bool read_field(int message, uint32_t tag, wire::CodedOutputStream* rest) {
    const int field = WireFormatLite::GetTagFieldNumber(tag);
    const bool is_message = message == 0 && is_embedded(tag);
    if (const auto plane = plane_at(message, tag, expected_.has_vectors)) return read_plane(*plane);
    if (is_message && field == v1::DecomposeResponse::kMimoFieldNumber) {
      std::string nothing;
      return read_message(field, &nothing);
    }
    if (is_message && field == v1::DecomposeResponse::kCertificateFieldNumber) {
      has_certificate_ = true;
      return read_message(field, &certificate_);
    }
    return wire::skip_field(&in_, tag, rest);
  }
  bool read_message(int field, std::string* rest) {
    google::protobuf::io::StringOutputStream rest_stream(rest);
    wire::CodedOutputStream rest_out(&rest_stream);
    return wire::read_embedded(&in_, [&](uint32_t tag) { return read_field(field, tag, &rest_out); });
  }
  bool read_plane(Plane plane) {
    int bytes = 0;
    if (!wire::read_length(&in_, &bytes)) return false;
    const auto size = static_cast<size_t>(bytes);
    planes_bytes_[static_cast<size_t>(plane)] = size;
    const std::span<std::byte> memory = out_[plane];
    return size > memory.size() ? in_.Skip(bytes) : in_.ReadRaw(memory.data(), bytes);
  }

  CodedInputStream& in_;
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
    to->push_back({index, status_of(response.exception_statuses(i))});
  }
  return {};
}

Status check_limits(const ServerLimits& limits) {
  const struct {
    const char* name;
    int64_t value, least;
  } all[] = {{"max_values", limits.max_values, 1},
             {"max_dimension", limits.max_dimension, 1},
             {"max_matrices", limits.max_matrices, 1},
             {"max_message_bytes", limits.max_message_bytes, 1},
             {"max_groups", limits.max_groups, 0},
             {"max_large_bytes", limits.max_large_bytes, 0},
             {"max_general_order", limits.max_general_order, 0},
             {"max_hermitian_order", limits.max_hermitian_order, 0}};
  for (const auto& limit : all) {
    if (limit.value >= limit.least) continue;
    return invalid_reply(std::string("its limits.") + limit.name + " is " + std::to_string(limit.value) +
                         ", it must be at least " + std::to_string(limit.least));
  }
  return {};
}

}  // namespace

grpc::Slice make_payload(SendBuffers& buffers, const void* data, size_t size,
                         const std::shared_ptr<const void>& owner) {
  if (size == 0) return {};
  if (size <= kSmallPayloadBytes) return grpc::Slice(data, size);
  if (owner) return borrow(owner, data, size);
  std::shared_ptr<const std::byte> copy = buffers.copy(data, size);
  const std::byte* const bytes = copy.get();
  return borrow(std::move(copy), bytes, size);
}

Payloads make_payloads(SendBuffers& buffers, const Batch& batch, const Piece& piece, const MatrixSizes& sizes) {
  const auto payload = [&](const void* data, int64_t each, const std::shared_ptr<const void>& owner) {
    const auto* const first = static_cast<const std::byte*>(data) + piece.first * each;
    return make_payload(buffers, first, static_cast<size_t>(piece.count * each), owner);
  };
  return {payload(batch.data, sizes.matrix_bytes, batch.owner),
          payload(batch.starting_vectors, sizes.starting_bytes, batch.starting_owner)};
}

grpc::ByteBuffer make_request(std::span<const BatchToSend> batches, const ComputeOptions& compute) {
  const std::vector<grpc::Slice> slices = request_slices(batches, compute);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer make_stream_request(uint64_t id, std::optional<std::chrono::nanoseconds> timeout,
                                     const BatchToSend& batch, const ComputeOptions& compute) {
  std::vector<grpc::Slice> slices = request_slices({&batch, 1}, compute);
  v1::DecomposeStreamRequest head;
  head.set_request_id(id);
  if (timeout) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(*timeout);
    head.mutable_timeout()->set_seconds(seconds.count());
    head.mutable_timeout()->set_nanos(static_cast<int32_t>((*timeout - seconds).count()));
  }
  std::string prefix = head.SerializeAsString();
  wire::append_head(&prefix, v1::DecomposeStreamRequest::kRequestFieldNumber, total_size(slices));
  slices.insert(slices.begin(), grpc::Slice(prefix));
  return grpc::ByteBuffer(slices.data(), slices.size());
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
  const wire::PlaneExtents extents = extents_of(shape, compute);
  e.left_columns = extents.left_columns;
  e.right_columns = extents.right_columns;
  return e;
}

namespace {

// The bytes in a field that the message's class does not know; empty: it is not there.
std::string_view unknown_bytes(const google::protobuf::Message& message, int number) {
  const google::protobuf::UnknownFieldSet& fields = message.GetReflection()->GetUnknownFields(message);
  std::string_view bytes;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    const bool is_it =
        field.number() == number && field.type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED;
    if (is_it) bytes = field.length_delimited();  // the last one counts
  }
  return bytes;
}

}  // namespace

std::array<std::string_view, kPlanes> planes_of(const v1::DecomposeResponse& response, const Expected& expected) {
  std::array<std::string_view, kPlanes> planes;
  for (size_t i = 0; i < planes.size(); ++i) {
    const wire::PlaneOnWire& plane = wire::kPlanesOnWire[i];
    const google::protobuf::Message* message = &response;
    if (plane.message != 0) {
      const auto* outer = message->GetDescriptor()->FindFieldByNumber(plane.message);
      message = &message->GetReflection()->GetMessage(*message, outer);
    }
    const int number = plane.field_of(expected.has_vectors);
    const auto* field = message->GetDescriptor()->FindFieldByNumber(number);
    if (field == nullptr) {
      planes[i] = unknown_bytes(*message, number);
      continue;
    }
    std::string scratch;  // never used: the fields are plain strings
    planes[i] = message->GetReflection()->GetStringReference(*message, field, &scratch);
  }
  return planes;
}

Result<Report> to_report(const v1::DecomposeResponse& response, const Expected& expected,
                         const std::array<size_t, kPlanes>& planes_bytes, const Outputs& out) {
  if (Status s = check_counts(response, expected); !s.ok()) return s;
  if (Status s = check_planes(response, expected, planes_bytes, out); !s.ok()) return s;
  Report report;
  if (Status s = read_exceptions(response, expected.count, &report.exceptions); !s.ok()) return s;
  report.count = expected.count;
  report.values_per_matrix = expected.values_per_matrix;
  report.method = kept_value(response.method(), Method::kAuto);
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

namespace {

// One batch's response, from `in` to its limit.
Result<Report> read_batch(CodedInputStream* in, const BatchToReceive& batch) {
  ResponseReader reader(in, batch.expected, batch.out);
  v1::DecomposeResponse response;
  if (!reader.read() || !reader.parse(&response)) return invalid_reply("it is not the response that its request has");
  return to_report(response, batch.expected, reader.planes_bytes(), batch.out);
}

Result<std::vector<Report>> read_groups(CodedInputStream* in, std::span<const BatchToReceive> batches) {
  std::vector<Report> reports;
  Status failure;
  size_t received = 0;
  const bool good = wire::read_fields(in, [&](uint32_t tag) {
    if (tag != wire::tag_of(v1::DecomposeResponse::kGroupsFieldNumber, wire::kEmbedded)) {
      return wire::skip_field(in, tag);
    }
    int bytes = 0;
    if (!wire::read_length(in, &bytes)) return false;
    if (received++ >= batches.size() || !failure.ok()) return in->Skip(bytes);
    const auto limit = in->PushLimit(bytes);
    Result<Report> report = read_batch(in, batches[received - 1]);
    failure = report.status();
    if (report.ok()) reports.push_back(*std::move(report));
    const bool skipped = in->Skip(in->BytesUntilLimit());  // of a response that failed
    in->PopLimit(limit);
    return skipped;
  });
  if (!good && failure.ok()) return invalid_reply("it is not the response that its request has");
  if (!failure.ok()) return failure;
  if (received != batches.size()) {
    return invalid_reply("it holds " + std::to_string(received) + " groups, " + std::to_string(batches.size()) +
                         " were sent");
  }
  return reports;
}

}  // namespace

Result<std::vector<Report>> read_response(grpc::ByteBuffer& reply, std::span<const BatchToReceive> batches) {
  grpc::ProtoBufferReader bytes(&reply);
  CodedInputStream in(&bytes);
  in.PushLimit(static_cast<int>(reply.Length()));  // a client receives at most 2 GiB - 1
  if (batches.size() > 1) return read_groups(&in, batches);
  Result<Report> report = read_batch(&in, batches.front());
  if (!report.ok()) return report.status();
  std::vector<Report> reports;
  reports.push_back(*std::move(report));
  return reports;
}

Result<ServerInfo> to_server_info(const v1::GetServerInfoResponse& response) {
  ServerInfo info;
  info.version = response.version();
  for (const int type : response.data_types()) {
    if (const auto known = wire::value_of<DataType>(type)) info.data_types.push_back(*known);
  }
  for (const int method : response.methods()) info.methods.push_back(kept_value(method, Method::kAuto));
  const v1::Limits& l = response.limits();
  info.limits = {l.max_values(),
                 l.max_dimension(),
                 l.max_matrices(),
                 l.max_message_bytes(),
                 l.max_inflight_requests(),
                 l.max_inflight_bytes(),
                 l.max_stream_requests(),
                 l.max_groups(),
                 l.max_general_order(),
                 l.max_hermitian_order(),
                 l.max_large_bytes()};
  if (Status s = check_limits(info.limits); !s.ok()) return s;
  if (info.limits.max_hermitian_order == 0) info.limits.max_hermitian_order = info.limits.max_values;
  for (const v1::Device& d : response.devices()) {
    info.devices.push_back({d.name(), d.backend(), d.instruction_set(), d.threads(), d.healthy(), d.model(), d.uuid(),
                            d.memory_bytes(), d.lanes(), d.outstanding_batches(), d.busy_seconds(), d.uploaded_bytes(),
                            d.downloaded_bytes(), d.running_factors(), d.waiting_factors()});
  }
  info.draining = response.draining();
  return info;
}

grpc::ByteBuffer make_plan_request(const Batch& batch, const ComputeOptions& compute, const Demand& demand) {
  using Message = v1::PlanCapacityRequest;
  std::string request = serialized_options(compute, batch.starting_vectors != nullptr);
  const std::string head = batch_head({batch, batch.count, {}});
  wire::append_head(&request, v1::DecomposeRequest::kMatricesFieldNumber, head.size());
  request += head;
  Message load;
  load.set_requests_per_second(demand.requests_per_second);
  load.set_latency_seconds(std::chrono::duration<double>(demand.latency).count());
  std::string message = load.SerializeAsString();
  const bool is_svd = compute.problem == Problem::kSvd;
  wire::append_head(&message, is_svd ? Message::kDecomposeFieldNumber : Message::kEigendecomposeFieldNumber,
                    request.size());
  const grpc::Slice slice(message + request);
  return grpc::ByteBuffer(&slice, 1);
}

CapacityPlan to_capacity_plan(const v1::PlanCapacityResponse& response) {
  CapacityPlan plan = {.core_seconds = response.core_seconds(),
                       .gpu_seconds = response.gpu_seconds(),
                       .utilization = response.utilization(),
                       .latency_seconds = response.latency_seconds(),
                       .reachable = response.reachable(),
                       .replica_requests_per_second = response.replica_requests_per_second(),
                       .replicas = response.replicas(),
                       .cores = response.cores(),
                       .gpus = response.gpus(),
                       .replica_cores = response.replica_cores(),
                       .replica_gpus = response.replica_gpus(),
                       .max_inflight_requests = response.max_inflight_requests(),
                       .max_inflight_bytes = response.max_inflight_bytes(),
                       .max_message_bytes = response.max_message_bytes(),
                       .memory_bytes = response.memory_bytes()};
  for (const v1::DeviceCost& d : response.devices()) {
    plan.devices.push_back({d.device(), d.request_seconds(), d.batch_matrices(), d.batch_seconds(), d.measured()});
  }
  return plan;
}

}  // namespace svdserve::client::internal
