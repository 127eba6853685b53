#include "client/cpp/wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <bit>

#include "client/cpp/status.h"
#include "svdserve/v1/svd_service.pb.h"

namespace svdserve::client::internal {

static_assert(std::endian::native == std::endian::little, "payloads are sent as they lie in memory");

namespace {

using google::protobuf::internal::WireFormatLite;

// Below this a copy into a slice of gRPC's own is cheaper than a buffer with an owner.
constexpr size_t kSmallPayloadBytes = 16 << 10;

v1::DataType to_proto(DataType t) {
  switch (t) {
    case DataType::kF32:
      return v1::DATA_TYPE_F32;
    case DataType::kF64:
      return v1::DATA_TYPE_F64;
    case DataType::kC64:
      return v1::DATA_TYPE_C64;
    case DataType::kC128:
      return v1::DATA_TYPE_C128;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

v1::MemoryOrder to_proto(MemoryOrder o) {
  return o == MemoryOrder::kRowMajor ? v1::MEMORY_ORDER_ROW_MAJOR : v1::MEMORY_ORDER_COLUMN_MAJOR;
}

v1::Method to_proto(Method m) {
  switch (m) {
    case Method::kAuto:
      return v1::METHOD_AUTO;
    case Method::kBidiagonal:
      return v1::METHOD_BIDIAGONAL;
    case Method::kBisection:
      return v1::METHOD_BISECTION;
    case Method::kJacobi:
      return v1::METHOD_JACOBI;
  }
  return v1::METHOD_UNSPECIFIED;
}

Method from_proto(v1::Method m) {
  switch (m) {
    case v1::METHOD_BIDIAGONAL:
      return Method::kBidiagonal;
    case v1::METHOD_BISECTION:
      return Method::kBisection;
    case v1::METHOD_JACOBI:
      return Method::kJacobi;
    default:
      return Method::kAuto;
  }
}

void append_varint(std::string* s, uint64_t value) {
  for (; value >= 0x80; value >>= 7) s->push_back(static_cast<char>(value | 0x80));
  s->push_back(static_cast<char>(value));
}

// The head of a length-delimited field whose content, `size` bytes, follows.
void append_field_head(std::string* s, int field, size_t size) {
  append_varint(s, WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  append_varint(s, size);
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
  rest.mutable_options()->set_method(to_proto(compute.method));
  rest.mutable_options()->set_tolerance(compute.tolerance);
  rest.mutable_options()->set_max_sweeps(compute.max_sweeps);
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

Status broken_reply(const std::string& why) { return failure(Code::kInternal, "", "the server's reply " + why); }

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

Result<Report> to_report(const v1::DecomposeResponse& response, int64_t count, int64_t values_per_matrix,
                         size_t values_bytes, size_t values_expected) {
  if (response.count() != count || response.values_per_matrix() != values_per_matrix ||
      values_bytes != values_expected) {
    return broken_reply("holds " + std::to_string(response.count()) + " x " +
                        std::to_string(response.values_per_matrix()) + " values in " + std::to_string(values_bytes) +
                        " bytes where " + std::to_string(count) + " x " + std::to_string(values_per_matrix) + " in " +
                        std::to_string(values_expected) + " were asked for");
  }
  if (response.exception_indices_size() != response.exception_statuses_size()) {
    return broken_reply("has exception lists of unequal length");
  }
  Report report;
  report.count = count;
  report.values_per_matrix = values_per_matrix;
  report.exceptions.reserve(static_cast<size_t>(response.exception_indices_size()));
  for (int i = 0; i < response.exception_indices_size(); ++i) {
    report.exceptions.push_back(
        {response.exception_indices(i), static_cast<MatrixStatus>(response.exception_statuses(i))});
  }
  report.method = from_proto(response.method());
  report.device = response.device();
  report.queue_seconds = response.timing().queue_seconds();
  report.compute_seconds = response.timing().compute_seconds();
  report.total_seconds = response.timing().total_seconds();
  return report;
}

Result<Report> read_response(grpc::ByteBuffer& reply, int64_t count, int64_t values_per_matrix,
                             std::span<std::byte> values) {
  grpc::ProtoBufferReader reader(&reply);
  google::protobuf::io::CodedInputStream in(&reader);
  constexpr uint32_t kValuesTag = WireFormatLite::MakeTag(v1::DecomposeResponse::kSingularValuesFieldNumber,
                                                          WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  std::string rest;  // every other field, as serialized
  size_t values_bytes = 0;
  {
    google::protobuf::io::StringOutputStream rest_stream(&rest);
    google::protobuf::io::CodedOutputStream rest_out(&rest_stream);
    while (const uint32_t tag = in.ReadTag()) {
      uint32_t size = 0;
      if (tag != kValuesTag) {
        if (!WireFormatLite::SkipField(&in, tag, &rest_out)) return broken_reply("is no protobuf");
      } else if (!in.ReadVarint32(&size)) {
        return broken_reply("is no protobuf");
      } else if (values_bytes = size; size > values.size() ? !in.Skip(static_cast<int>(size))
                                                           : !in.ReadRaw(values.data(), static_cast<int>(size))) {
        return broken_reply("is no protobuf");
      }
    }
    if (!in.ConsumedEntireMessage()) return broken_reply("is no protobuf");
  }
  v1::DecomposeResponse response;
  if (!response.ParseFromString(rest)) return broken_reply("is no protobuf");
  return to_report(response, count, values_per_matrix, values_bytes, values.size());
}

ServerInfo to_server_info(const v1::GetServerInfoResponse& response) {
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
  info.limits = {l.max_values(),         l.max_dimension(),         l.max_matrices(),
                 l.max_message_bytes(),  l.max_inflight_requests(), l.max_inflight_bytes(),
                 l.max_stream_requests()};
  for (const v1::Device& d : response.devices()) {
    info.devices.push_back({d.name(), d.backend(), d.instruction_set(), d.threads(), d.healthy(), d.model(), d.uuid(),
                            d.memory_bytes(), d.lanes(), d.outstanding_batches(), d.busy_seconds(), d.uploaded_bytes(),
                            d.downloaded_bytes()});
  }
  info.draining = response.draining();
  return info;
}

}  // namespace svdserve::client::internal
