// Requests, from bytes to values.
#include <svdserve/v1/svd_service.pb.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/codec.h"
#include "server/rpc/wire_enums.h"
#include "server/rpc/wire_reader.h"

namespace svdserve::server {
namespace {

Error invalid_field(std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, std::move(message), std::move(field), {}};
}

std::optional<CertificateScope> to_scope(v1::CertificateScope scope) {
  switch (scope) {
    case v1::CERTIFICATE_SCOPE_UNSPECIFIED:
    case v1::CERTIFICATE_SCOPE_NONE:
      return CertificateScope::kNone;
    case v1::CERTIFICATE_SCOPE_BATCH:
      return CertificateScope::kBatch;
    case v1::CERTIFICATE_SCOPE_MATRIX:
      return CertificateScope::kMatrix;
    default:
      return std::nullopt;
  }
}

// --- bytes ---------------------------------------------------------------------------------------

// A MatrixBatch as it is read: its operands go to a block of their own, never through a message's string.
struct WireBatch {
  v1::MatrixBatch head;  // all but data
  HostBlock data;
};

// A DecomposeRequest as it is read.
struct WireRequest {
  v1::DecomposeOptions options;
  std::optional<WireBatch> matrices;
  std::vector<WireBatch> groups;  // one more than there may be at most: who validates counts them
};

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

bool read_batch(CodedInputStream* in, HostMemory* memory, WireBatch* batch) {
  constexpr auto kVarint = WireFormatLite::WIRETYPE_VARINT;
  v1::MatrixBatch& head = batch->head;
  return read_embedded(in, [&](uint32_t tag) {
    uint64_t number = 0;
    switch (tag) {
      case tag_of(v1::MatrixBatch::kDataTypeFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        head.set_data_type(static_cast<v1::DataType>(number));
        return true;
      case tag_of(v1::MatrixBatch::kMemoryOrderFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        head.set_memory_order(static_cast<v1::MemoryOrder>(number));
        return true;
      case tag_of(v1::MatrixBatch::kRowsFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        head.set_rows(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kColsFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        head.set_cols(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kCountFieldNumber, kVarint):
        if (!in->ReadVarint64(&number)) return false;
        head.set_count(static_cast<int64_t>(number));
        return true;
      case tag_of(v1::MatrixBatch::kDataFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED):
        return read_data(in, memory, &batch->data);
      default:
        return WireFormatLite::SkipField(in, tag);
    }
  });
}

bool read_request_field(CodedInputStream* in, uint32_t tag, HostMemory* memory, WireRequest* request) {
  constexpr auto kEmbedded = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
  switch (tag) {
    case tag_of(v1::DecomposeRequest::kMatricesFieldNumber, kEmbedded):
      if (!request->matrices) request->matrices.emplace();
      return read_batch(in, memory, &*request->matrices);
    case tag_of(v1::DecomposeRequest::kOptionsFieldNumber, kEmbedded):
      return read_small(in, &request->options);
    case tag_of(v1::DecomposeRequest::kGroupsFieldNumber, kEmbedded):
      if (request->groups.size() > kMaxGroups) return WireFormatLite::SkipField(in, tag);
      return read_batch(in, memory, &request->groups.emplace_back());
    default:
      return WireFormatLite::SkipField(in, tag);
  }
}

// --- values --------------------------------------------------------------------------------------

MimoOptions to_mimo(const v1::MimoOptions& wire) {
  MimoOptions mimo;
  mimo.capacity = wire.capacity();
  mimo.water_filling = wire.water_filling();
  mimo.stream_snr = wire.stream_snr();
  mimo.condition_number = wire.condition_number();
  mimo.effective_rank = wire.effective_rank();
  mimo.threshold_rank = wire.has_rank_threshold();
  mimo.rank_threshold = wire.rank_threshold();
  mimo.snr_db.assign(wire.snr_db().begin(), wire.snr_db().end());
  mimo.group = wire.group_size() == 0 ? 1 : wire.group_size();
  mimo.precoder_columns = wire.precoder_columns();
  mimo.combiner_columns = wire.combiner_columns();
  return mimo;
}

// `at`: the path of the options.
Error read_options(const v1::DecomposeOptions& wire, const std::string& at, Options* options, CertificateScope* scope) {
  const std::optional<Method> method = to_method(wire.method());
  if (!method) return invalid_field(at + ".method", absl::StrCat(wire.method(), " names no method"));
  const std::optional<Vectors> vectors = to_vectors(wire.vectors(), Vectors::kNone);
  if (!vectors) return invalid_field(at + ".vectors", absl::StrCat(wire.vectors(), " names no choice of vectors"));
  const std::optional<CertificateScope> certificate = to_scope(wire.certificate());
  if (!certificate) return invalid_field(at + ".certificate", absl::StrCat(wire.certificate(), " names no scope"));
  *scope = *certificate;
  options->method = *method;
  options->tolerance = wire.tolerance();
  options->max_sweeps = wire.max_sweeps();
  options->values = !wire.has_mimo() || wire.mimo().singular_values();
  options->vectors = *vectors;
  options->top_k = wire.top_k();
  options->fix_phases = wire.fix_phases();
  options->certificate = *scope != CertificateScope::kNone;
  if (wire.has_mimo()) options->mimo = to_mimo(wire.mimo());
  return {};
}

// The problem, as far as it can be told; `at`: the path of the batch.
Error read_problem(const v1::MatrixBatch& wire, const std::string& at, Problem* problem) {
  problem->rows = wire.rows();
  problem->cols = wire.cols();
  const std::optional<DType> dtype = to_dtype(wire.data_type());
  if (!dtype) return invalid_field(at + ".data_type", absl::StrCat(wire.data_type(), " names no element type"));
  problem->dtype = *dtype;
  const std::optional<Order> order = to_order(wire.memory_order());
  if (!order) return invalid_field(at + ".memory_order", absl::StrCat(wire.memory_order(), " names no order"));
  problem->order = *order;
  return {};
}

// One batch, whose operands go to out->memory. `options` are those of all.
Error read_one(WireBatch* wire, const std::string& at, const Options& options, DecodedRequest* out) {
  Request request;
  if (Error error = read_problem(wire->head, at, &request.problem); !error.ok()) return error;
  request.options = options;
  request.count = wire->head.count();
  request.payload = wire->data.data();
  request.payload_bytes = wire->data.size();
  request.memory = out->memory;
  out->memory->operands.push_back(std::move(wire->data));
  out->batches.push_back(std::move(request));
  return {};
}

void label(const v1::MatrixBatch& first, RequestLabels* labels) {
  labels->dtype = to_dtype(first.data_type());
  Problem problem;
  problem.rows = first.rows();
  problem.cols = first.cols();
  labels->shape = shape_bucket(problem);
}

// `at`: where the message lies in the caller's request, "" or "request.".
Error read_message(WireRequest* wire, const std::string& at, DecodedRequest* out) {
  out->has_groups = !wire->groups.empty();
  if (wire->matrices && out->has_groups)
    return invalid_field(at + "groups", "there are matrices, too: one or the other");
  if (!wire->matrices && !out->has_groups) return invalid_field(at + "matrices", "there are none");
  label(wire->matrices ? wire->matrices->head : wire->groups.front().head, &out->labels);
  out->memory = std::make_shared<WireMemory>();
  Options options;
  Error error = read_options(wire->options, at + "options", &options, &out->memory->certificate_scope);
  out->labels.kind = options.mimo != MimoOptions()       ? Kind::kAnswers
                     : options.vectors != Vectors::kNone ? Kind::kVectors
                                                         : Kind::kValues;
  if (wire->matrices) {
    Error of_batch = read_one(&*wire->matrices, at + "matrices", options, out);
    return of_batch.ok() ? error : of_batch;
  }
  if (!error.ok()) return error;
  for (size_t i = 0; i < wire->groups.size(); ++i) {
    error = read_one(&wire->groups[i], absl::StrCat(at, "groups[", i, "]"), options, out);
    if (!error.ok()) return error;
  }
  return {};
}

// Proto: seconds and nanos of the same sign, nanos below 10^9 in size.
std::optional<absl::Duration> to_duration(const google::protobuf::Duration& d) {
  constexpr int64_t kLargestSeconds = 315576000000;
  if (d.seconds() < 0 || d.seconds() > kLargestSeconds || d.nanos() < 0 || d.nanos() > 999999999) return std::nullopt;
  return absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
}

}  // namespace

DecodedRequest decode_request(grpc::ByteBuffer* message, HostMemory* memory) {
  DecodedRequest out;
  out.labels.rpc = Rpc::kDecompose;
  WireRequest wire;
  if (read_whole(message,
                 [&](CodedInputStream* in, uint32_t tag) { return read_request_field(in, tag, memory, &wire); })) {
    out.error = read_message(&wire, "", &out);
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
    out.error = read_message(&wire, "request.", &out);
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

}  // namespace svdserve::server
