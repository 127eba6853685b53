#include "server/rpc/codec.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <svdserve/v1/svd_service.pb.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr char kErrorDomain[] = "svdserve";

Error invalid_field(std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, std::move(message), std::move(field), {}};
}

std::optional<DType> to_dtype(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_F32:
      return DType::kF32;
    case v1::DATA_TYPE_F64:
      return DType::kF64;
    case v1::DATA_TYPE_C64:
      return DType::kC64;
    case v1::DATA_TYPE_C128:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

std::optional<Order> to_order(v1::MemoryOrder order) {
  switch (order) {
    case v1::MEMORY_ORDER_ROW_MAJOR:
      return Order::kRowMajor;
    case v1::MEMORY_ORDER_COLUMN_MAJOR:
      return Order::kColumnMajor;
    default:
      return std::nullopt;
  }
}

std::optional<Method> to_method(v1::Method method) {
  switch (method) {
    case v1::METHOD_UNSPECIFIED:
    case v1::METHOD_AUTO:
      return Method::kAuto;
    case v1::METHOD_BIDIAGONAL:
      return Method::kBidiagonal;
    case v1::METHOD_BISECTION:
      return Method::kBisection;
    case v1::METHOD_JACOBI:
      return Method::kJacobi;
    default:
      return std::nullopt;
  }
}

v1::Method to_wire(Method method) {
  switch (method) {
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

v1::MatrixStatus to_wire(MatrixStatus status) {
  switch (status) {
    case MatrixStatus::kOk:
      break;
    case MatrixStatus::kNonFinite:
      return v1::MATRIX_STATUS_NON_FINITE;
    case MatrixStatus::kNotConverged:
      return v1::MATRIX_STATUS_NOT_CONVERGED;
    case MatrixStatus::kOutOfRange:
      return v1::MATRIX_STATUS_OUT_OF_RANGE;
  }
  return v1::MATRIX_STATUS_UNSPECIFIED;
}

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// A DecomposeRequest as it is read: its operands go to a block of their own, never through a message's string.
struct WireRequest {
  v1::DecomposeRequest message;  // all but matrices.data
  HostBlock data;
};

constexpr uint32_t tag_of(int field, WireFormatLite::WireType type) { return WireFormatLite::MakeTag(field, type); }

// Reads the fields of an embedded message: field(tag) reads one and returns whether it could.
template <class Field>
bool read_fields(CodedInputStream* in, Field field) {
  while (const uint32_t tag = in->ReadTag()) {
    if (!field(tag)) return false;
  }
  return in->ConsumedEntireMessage();
}

template <class Field>
bool read_embedded(CodedInputStream* in, Field field) {
  uint32_t bytes = 0;
  if (!in->ReadVarint32(&bytes) || static_cast<int>(bytes) < 0 || static_cast<int>(bytes) > in->BytesUntilLimit()) {
    return false;
  }
  const auto limit = in->PushLimit(static_cast<int>(bytes));
  const bool good = read_fields(in, field);
  in->PopLimit(limit);
  return good;
}

// Embedded messages without operands: protobuf's own parser reads them.
bool read_small(CodedInputStream* in, google::protobuf::MessageLite* message) {
  uint32_t bytes = 0;
  std::string text;
  return in->ReadVarint32(&bytes) && static_cast<int>(bytes) >= 0 && static_cast<int>(bytes) <= in->BytesUntilLimit() &&
         in->ReadString(&text, static_cast<int>(bytes)) && message->MergeFromString(text);
}

bool read_data(CodedInputStream* in, HostMemory* memory, HostBlock* data) {
  uint32_t bytes = 0;
  if (!in->ReadVarint32(&bytes) || static_cast<int>(bytes) < 0 || static_cast<int>(bytes) > in->BytesUntilLimit()) {
    return false;
  }
  *data = HostBlock();
  if (bytes == 0) return true;
  *data = memory->Allocate(bytes);
  return in->ReadRaw(data->data(), static_cast<int>(bytes));
}

bool read_batch(CodedInputStream* in, HostMemory* memory, v1::MatrixBatch* batch, HostBlock* data) {
  constexpr auto kVarint = WireFormatLite::WIRETYPE_VARINT;
  return read_embedded(in, [&](uint32_t tag) {
    uint64_t number = 0;
    switch (tag) {
      case tag_of(v1::MatrixBatch::kDataTypeFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        batch->set_data_type(static_cast<v1::DataType>(number));
        return true;
      case tag_of(v1::MatrixBatch::kMemoryOrderFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        batch->set_memory_order(static_cast<v1::MemoryOrder>(number));
        return true;
      case tag_of(v1::MatrixBatch::kRowsFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        batch->set_rows(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kColsFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        batch->set_cols(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kCountFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        batch->set_count(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED):
        return read_data(in, memory, data);
      default:
        return WireFormatLite::SkipField(in, tag);
    }
  });
}

bool read_request_field(CodedInputStream* in, uint32_t tag, HostMemory* memory, WireRequest* request) {
  constexpr auto kEmbedded = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  switch (tag) {
    case tag_of(v1::DecomposeRequest::kMatricesFieldNumber, kEmbedded):
      return read_batch(in, memory, request->message.mutable_matrices(), &request->data);
    case tag_of(v1::DecomposeRequest::kOptionsFieldNumber, kEmbedded):
      return read_small(in, request->message.mutable_options());
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

// Reads a whole message and lets go of the transport's slices, so that a payload is not in memory twice for longer than
// this.
template <class Field>
bool read_whole(grpc::ByteBuffer* bytes, Field field) {
  bool good = false;
  {
    const size_t length = bytes->Length();
    grpc::ProtoBufferReader reader(bytes);
    if (reader.status().ok() && length <= static_cast<size_t>(std::numeric_limits<int>::max())) {
      CodedInputStream in(&reader);
      const auto limit = in.PushLimit(static_cast<int>(length));  // so that BytesUntilLimit() is always known
      good = read_fields(&in, [&](uint32_t tag) { return field(&in, tag); });
      in.PopLimit(limit);
    }
  }
  bytes->Clear();
  return good;
}

// `at`: where the message lies in the caller's request, "" or "request.".
void read_message(WireRequest* wire, const std::string& at, DecodedRequest* out) {
  if (!wire->message.has_matrices()) {
    out->error = invalid_field(at + "matrices", "there are none");
    return;
  }
  const v1::MatrixBatch& batch = wire->message.matrices();
  const v1::DecomposeOptions& options = wire->message.options();
  Request& request = out->request;
  request.problem.rows = batch.rows();
  request.problem.cols = batch.cols();
  request.count = batch.count();
  const std::optional<DType> dtype = to_dtype(batch.data_type());
  out->labels.dtype = dtype;
  out->labels.shape = shape_bucket(request.problem);
  const std::optional<Order> order = to_order(batch.memory_order());
  const std::optional<Method> method = to_method(options.method());
  if (!dtype) {
    out->error = invalid_field(at + "matrices.data_type", absl::StrCat(batch.data_type(), " names no element type"));
  } else if (!order) {
    out->error = invalid_field(at + "matrices.memory_order", absl::StrCat(batch.memory_order(), " names no order"));
  } else if (!method) {
    out->error = invalid_field(at + "options.method", absl::StrCat(options.method(), " names no method"));
  } else {
    request.problem.dtype = *dtype;
    request.problem.order = *order;
    request.options.method = *method;
    request.options.tolerance = options.tolerance();
    request.options.max_sweeps = options.max_sweeps();
    out->memory = std::make_shared<WireMemory>();
    out->memory->operands = std::move(wire->data);
    request.payload = out->memory->operands.data();
    request.payload_bytes = out->memory->operands.size();
    request.memory = out->memory;
  }
}

// Proto: seconds and nanos of the same sign, nanos below 10^9 in size.
std::optional<absl::Duration> to_duration(const google::protobuf::Duration& d) {
  constexpr int64_t kLargestSeconds = 315576000000;
  if (d.seconds() < 0 || d.seconds() > kLargestSeconds || d.nanos() < 0 || d.nanos() > 999999999) return std::nullopt;
  return absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
}

// Everything of a DecomposeResponse but its values.
v1::DecomposeResponse response_without_values(const Answer& answer, const ReplyShape& shape) {
  v1::DecomposeResponse response;
  response.set_values_per_matrix(shape.values_per_matrix);
  response.set_count(shape.count);
  for (const MatrixException& exception : answer.exceptions) {
    response.add_exception_indices(exception.index);
    response.add_exception_statuses(to_wire(exception.status));
  }
  response.set_method(to_wire(answer.method));
  response.set_device(answer.devices);
  v1::Timing& timing = *response.mutable_timing();
  timing.set_queue_seconds(absl::ToDoubleSeconds(answer.timing.queue));
  timing.set_compute_seconds(absl::ToDoubleSeconds(answer.timing.compute));
  timing.set_total_seconds(absl::ToDoubleSeconds(answer.timing.total));
  return response;
}

// The tag of a length-delimited field and its length, as they stand before its bytes.
void append_length_delimited(std::string* out, int field, size_t bytes) {
  uint8_t buffer[20];
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(static_cast<uint32_t>(field << 3 | 2), buffer);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  out->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(end - buffer));
}

// Values up to this size are copied beside the other fields: a slice of their own costs the transport more.
constexpr size_t kCopiedValues = 512;

// `head`, then the values: the last field of the message, in the memory where the engine wrote them.
grpc::ByteBuffer with_values(std::string head, const grpc::Slice& values) {
  if (values.size() <= kCopiedValues) {
    head.append(reinterpret_cast<const char*>(values.begin()), values.size());
    const grpc::Slice whole(head);
    return grpc::ByteBuffer(&whole, 1);
  }
  const grpc::Slice slices[2] = {grpc::Slice(head), values};
  return grpc::ByteBuffer(slices, 2);
}

// Names the field for those who read no details.
std::string text_of(const Error& error) {
  return error.field.empty() ? error.message : absl::StrCat(error.field, ": ", error.message);
}

google::rpc::Status to_rpc_status(const Error& error) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(error.code));
  status.set_message(text_of(error));
  if (!error.field.empty()) {
    google::rpc::BadRequest bad_request;
    auto& violation = *bad_request.add_field_violations();
    violation.set_field(error.field);
    violation.set_description(error.message);
    status.add_details()->PackFrom(bad_request);
  }
  if (error.reason != Reason::kNone) {
    google::rpc::ErrorInfo info;
    info.set_reason(name(error.reason));
    info.set_domain(kErrorDomain);
    status.add_details()->PackFrom(info);
  }
  if (error.retry_after > absl::ZeroDuration()) {
    google::rpc::RetryInfo retry;
    absl::Duration rest;
    retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(error.retry_after, absl::Seconds(1), &rest));
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
    status.add_details()->PackFrom(retry);
  }
  return status;
}

}  // namespace

void* WireMemory::AllocateResults(size_t bytes) {
  values_ = grpc::Slice(bytes);
  // The slice was made here and is shared with nobody until the reply is put together.
  return const_cast<uint8_t*>(values_.begin());
}

DecodedRequest decode_request(grpc::ByteBuffer* message, HostMemory* memory) {
  DecodedRequest out;
  out.labels.rpc = Rpc::kDecompose;
  WireRequest wire;
  if (read_whole(message,
                 [&](CodedInputStream* in, uint32_t tag) { return read_request_field(in, tag, memory, &wire); })) {
    read_message(&wire, "", &out);
  } else {
    out.is_message = false;
    out.error = invalid_field("", "the bytes are no DecomposeRequest");
  }
  return out;
}

DecodedRequest decode_stream_request(grpc::ByteBuffer* message, HostMemory* memory) {
  constexpr auto kEmbedded = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  DecodedRequest out;
  out.labels.rpc = Rpc::kDecomposeStream;
  WireRequest wire;
  v1::DecomposeStreamRequest parsed;  // its request stays empty
  const bool good = read_whole(message, [&](CodedInputStream* in, uint32_t tag) {
    uint64_t number = 0;
    switch (tag) {
      case tag_of(v1::DecomposeStreamRequest::kRequestIdFieldNumber, WireFormatLite::WIRETYPE_VARINT):
        if (!in->ReadVarint64(&number)) return false;
        parsed.set_request_id(number);
        return true;
      case tag_of(v1::DecomposeStreamRequest::kRequestFieldNumber, kEmbedded):
        parsed.mutable_request();
        return read_embedded(in, [&](uint32_t inner) { return read_request_field(in, inner, memory, &wire); });
      case tag_of(v1::DecomposeStreamRequest::kTimeoutFieldNumber, kEmbedded):
        return read_small(in, parsed.mutable_timeout());
      default:
        return WireFormatLite::SkipField(in, tag);
    }
  });
  if (!good) {
    out.is_message = false;
    out.error = invalid_field("", "the bytes are no DecomposeStreamRequest");
    return out;
  }
  out.request_id = parsed.request_id();
  if (parsed.has_request()) {
    read_message(&wire, "request.", &out);
  } else {
    out.error = invalid_field("request", "there is none");
  }
  if (parsed.has_timeout()) {
    out.timeout = to_duration(parsed.timeout());
    if (!out.timeout && out.error.ok()) {
      out.error = invalid_field("timeout", "neither zero nor a positive duration");
    }
  }
  return out;
}

grpc::ByteBuffer encode_response(const Answer& answer, const ReplyShape& shape, const WireMemory& memory) {
  std::string head = response_without_values(answer, shape).SerializeAsString();
  append_length_delimited(&head, v1::DecomposeResponse::kSingularValuesFieldNumber, memory.values().size());
  return with_values(std::move(head), memory.values());
}

grpc::ByteBuffer encode_stream_response(uint64_t request_id, const Answer& answer, const ReplyShape& shape,
                                        const WireMemory* memory) {
  v1::DecomposeStreamResponse message;
  message.set_request_id(request_id);
  if (!answer.error.ok()) {
    *message.mutable_status() = to_rpc_status(answer.error);
    const grpc::Slice whole(message.SerializeAsString());
    return grpc::ByteBuffer(&whole, 1);
  }
  std::string inner = response_without_values(answer, shape).SerializeAsString();
  append_length_delimited(&inner, v1::DecomposeResponse::kSingularValuesFieldNumber, memory->values().size());
  std::string head = message.SerializeAsString();
  append_length_delimited(&head, v1::DecomposeStreamResponse::kResponseFieldNumber,
                          inner.size() + memory->values().size());
  return with_values(head + inner, memory->values());
}

grpc::Status to_status(const Error& error) {
  if (error.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(error.code), text_of(error),
                      to_rpc_status(error).SerializeAsString());
}

}  // namespace svdserve::server
