#include "client/cpp/wire/large_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>

#include "client/cpp/wire/wire.h"
#include "client/cpp/wire/wire_values.h"
#include "wire/crc32c.h"

namespace svdserve::client::internal {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The enumerations of large factors have the numbers of the contract.
static_assert(static_cast<int>(PivotStrategy::kRecursive) == v1::PIVOT_STRATEGY_RECURSIVE);
static_assert(static_cast<int>(PivotStrategy::kReverseColumnCyclic) == v1::PIVOT_STRATEGY_REVERSE_COLUMN_CYCLIC);
static_assert(static_cast<int>(BlockVariant::kFullBlock) == v1::BLOCK_VARIANT_FULL_BLOCK);
static_assert(static_cast<int>(LargeStage::kQueued) + 1 == v1::LARGE_STAGE_QUEUED);
static_assert(static_cast<int>(LargeStage::kFinish) + 1 == v1::LARGE_STAGE_FINISH);
static_assert(static_cast<int>(LargeFactor::kRight) == v1::LARGE_FACTOR_RIGHT_VECTORS_ADJOINT);

grpc::ByteBuffer to_buffer(const v1::DecomposeLargeRequest& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

void read(const v1::LargeProgress& from, LargeProgress* to) {
  const bool known = from.stage() >= v1::LARGE_STAGE_UPLOAD && from.stage() <= v1::LARGE_STAGE_FINISH;
  to->stage = known ? static_cast<LargeStage>(from.stage() - 1) : LargeStage::kPrepare;
  to->fraction = from.fraction() > 0 ? std::min(from.fraction(), 1.0) : 0;  // 0 for NaN, too
  to->sweep = from.sweep();
  to->rotations = from.rotations();
  to->proper_rotations = from.proper_rotations();
  to->off_diagonal = from.off_diagonal();
}

LargeReport read(const v1::LargeSummary& from) {
  LargeReport to;
  to.status = from.status() == v1::MATRIX_STATUS_UNSPECIFIED ? MatrixStatus::kOk : from_proto(from.status());
  to.method = from_proto(from.method());
  to.device = from.device();
  to.sweeps = from.sweeps();
  to.rotations = from.rotations();
  to.proper_rotations = from.proper_rotations();
  to.upload_seconds = from.timing().upload_seconds();
  to.queue_seconds = from.timing().queue_seconds();
  to.compute_seconds = from.timing().compute_seconds();
  to.download_seconds = from.timing().download_seconds();
  for (const v1::LargePhase& p : from.phases()) to.phases.push_back({p.name(), p.seconds(), p.flops()});
  if (from.has_certificate()) {
    const v1::Certificate& c = from.certificate();
    to.certificate = Certificate{c.residual(), c.left_orthogonality(), c.right_orthogonality()};
  }
  return to;
}

// A LargeFactorChunk of `size` bytes: its data, a mebibyte, goes to memory that is warm.
bool read_factor_chunk(CodedInputStream& in, int size, LargeReply* to) {
  const auto limit = in.PushLimit(size);
  to->data.clear();
  to->crc32c = 0;
  uint32_t factor = 0, length = 0;
  uint64_t offset = 0;
  bool good = true;
  while (good) {
    const uint32_t tag = in.ReadTag();
    if (tag == 0) break;
    switch (tag) {
      case v1::LargeFactorChunk::kFactorFieldNumber << 3 | WireFormatLite::WIRETYPE_VARINT:
        good = in.ReadVarint32(&factor);
        break;
      case v1::LargeFactorChunk::kOffsetFieldNumber << 3 | WireFormatLite::WIRETYPE_VARINT:
        good = in.ReadVarint64(&offset);
        break;
      case v1::LargeFactorChunk::kDataFieldNumber << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        good = in.ReadVarint32(&length) && length <= INT32_MAX && in.ReadString(&to->data, static_cast<int>(length));
        break;
      case v1::LargeFactorChunk::kCrc32CFieldNumber << 3 | WireFormatLite::WIRETYPE_FIXED32:
        good = in.ReadLittleEndian32(&to->crc32c);
        break;
      default:
        good = WireFormatLite::SkipField(&in, tag);
    }
  }
  to->step = LargeStep::kFactorChunk;
  to->factor =
      factor <= v1::LARGE_FACTOR_RIGHT_VECTORS_ADJOINT ? static_cast<LargeFactor>(factor) : LargeFactor::kUnknown;
  to->offset = static_cast<int64_t>(offset);
  good = good && in.ConsumedEntireMessage();
  in.PopLimit(limit);
  return good;
}

// Every other message.
void read_step(const v1::DecomposeLargeResponse& from, LargeReply* to) {
  switch (from.step_case()) {
    case v1::DecomposeLargeResponse::kAccepted:
      to->step = LargeStep::kAccepted;
      to->chunk_bytes = from.accepted().chunk_bytes();
      to->operand_bytes = from.accepted().operand_bytes();
      to->result_bytes = from.accepted().result_bytes();
      break;
    case v1::DecomposeLargeResponse::kProgress:
      to->step = LargeStep::kProgress;
      read(from.progress(), &to->progress);
      break;
    case v1::DecomposeLargeResponse::kSummary:
      to->step = LargeStep::kSummary;
      to->report = read(from.summary());
      to->values = from.summary().values();
      to->left_columns = from.summary().left_columns();
      to->right_rows = from.summary().right_rows();
      break;
    default:
      to->step = LargeStep::kNothing;
  }
}

}  // namespace

grpc::ByteBuffer make_large_open(const LargeMatrix& matrix, const LargeOptions& options) {
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(to_proto(matrix.data_type));
  open.set_memory_order(to_proto(matrix.memory_order));
  open.set_rows(matrix.rows);
  open.set_cols(matrix.cols);
  open.set_signature(matrix.signature.data(), matrix.signature.size());
  v1::LargeOptions& o = *open.mutable_options();
  o.set_method(to_proto(options.method));
  o.set_vectors(to_proto(options.vectors));
  o.set_tolerance(options.tolerance);
  o.set_max_sweeps(options.max_sweeps);
  o.set_pivot_strategy(static_cast<v1::PivotStrategy>(options.pivot_strategy));
  o.set_block_variant(static_cast<v1::BlockVariant>(options.block_variant));
  o.set_certificate(options.certificate);
  return to_buffer(request);
}

grpc::ByteBuffer make_large_chunk(SendBuffers& buffers, const LargeMatrix& matrix, int64_t offset, int64_t size) {
  const Batch bytes{.data = static_cast<const std::byte*>(matrix.data) + offset, .owner = matrix.owner};
  const grpc::Slice payload = make_payload(buffers, bytes, {0, 1}, size);
  v1::LargeChunk rest;
  rest.set_offset(offset);
  rest.set_crc32c(crc32c(0, payload.begin(), payload.size()));
  std::string chunk = rest.SerializeAsString();
  append_field_head(&chunk, v1::LargeChunk::kDataFieldNumber, payload.size());
  std::string head;
  append_field_head(&head, v1::DecomposeLargeRequest::kChunkFieldNumber, chunk.size() + payload.size());
  const grpc::Slice slices[] = {grpc::Slice(head + chunk), payload};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer make_large_commit() {
  v1::DecomposeLargeRequest request;
  request.mutable_commit();
  return to_buffer(request);
}

bool read_large_reply(grpc::ByteBuffer& message, LargeReply* reply) {
  {
    grpc::ProtoBufferReader bytes(&message);
    CodedInputStream in(&bytes);
    constexpr uint32_t kChunkTag =
        v1::DecomposeLargeResponse::kFactorChunkFieldNumber << 3 | WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    uint32_t size = 0;
    if (in.ReadTag() == kChunkTag) {
      return in.ReadVarint32(&size) && size <= message.Length() && read_factor_chunk(in, static_cast<int>(size), reply);
    }
  }
  grpc::ProtoBufferReader bytes(&message);
  v1::DecomposeLargeResponse response;
  if (!response.ParseFromZeroCopyStream(&bytes)) return false;
  read_step(response, reply);
  return true;
}

}  // namespace svdserve::client::internal
