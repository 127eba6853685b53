#include "client/cpp/wire/large_wire.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "client/cpp/wire/wire.h"
#include "client/cpp/wire/wire_values.h"
#include "wire/crc32c.h"
#include "wire/fields.h"

namespace svdserve::client::internal {
namespace {

using wire::CodedInputStream;
using wire::tag_of;

grpc::ByteBuffer to_buffer(const v1::DecomposeLargeRequest& request) {
  const grpc::Slice slice(request.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

void read(const v1::LargeProgress& from, LargeProgress* to) {
  to->stage = wire::value_of<LargeStage>(from.stage()).value_or(LargeStage::kPrepare);
  to->fraction = from.fraction() > 0 ? std::min(from.fraction(), 1.0) : 0;  // 0 for NaN, too
  to->sweep = from.sweep();
  to->rotations = from.rotations();
  to->proper_rotations = from.proper_rotations();
  to->off_diagonal = from.off_diagonal();
  to->device = from.device();
}

LargeReport read(const v1::LargeSummary& from) {
  LargeReport to;
  to.status = from.status() == v1::MATRIX_STATUS_UNSPECIFIED ? MatrixStatus::kOk : status_of(from.status());
  to.method = kept_value(from.method(), Method::kAuto);
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
  to.rank = from.rank();
  to.factor_condition = from.factor_condition();
  to.subspace_steps = from.subspace_steps();
  to.members = from.members();
  return to;
}

// A LargeFactorChunk of `size` bytes in a message that consists of `slices`: its data stay there.
bool read_factor_chunk(CodedInputStream& in, int size, std::vector<grpc::Slice> slices, LargeReply* to) {
  using Chunk = v1::LargeFactorChunk;
  to->step = LargeStep::kFactorChunk;
  to->data = {};
  to->crc32c = 0;
  to->offset = 0;
  int factor = 0;
  int begin = 0, count = 0;
  const bool good = wire::read_fields_of(&in, size, [&](uint32_t tag) {
    switch (tag) {
      case tag_of(Chunk::kFactorFieldNumber, wire::kVarint):
        return wire::read_varint(&in, &factor);
      case tag_of(Chunk::kOffsetFieldNumber, wire::kVarint):
        return wire::read_varint(&in, &to->offset);
      case tag_of(Chunk::kDataFieldNumber, wire::kEmbedded):
        if (!wire::read_length(&in, &count)) return false;
        begin = in.CurrentPosition();
        return in.Skip(count);
      case tag_of(Chunk::kCrc32CFieldNumber, wire::kFixed32):
        return in.ReadLittleEndian32(&to->crc32c);
      default:
        return wire::skip_field(&in, tag);
    }
  });
  to->factor = wire::value_of<LargeFactor>(factor).value_or(LargeFactor::kUnknown);
  if (good) to->data = {std::move(slices), static_cast<size_t>(begin), static_cast<size_t>(count)};
  return good;
}

// Every other message, and a chunk that is not alone in its message.
void read_step(const v1::DecomposeLargeResponse& from, LargeReply* to) {
  switch (from.step_case()) {
    case v1::DecomposeLargeResponse::kAccepted:
      to->step = LargeStep::kAccepted;
      to->chunk_bytes = from.accepted().chunk_bytes();
      to->operand_bytes = from.accepted().operand_bytes();
      to->resume = from.accepted().resume();
      to->predicted_seconds = from.accepted().predicted_seconds();
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
    case v1::DecomposeLargeResponse::kFactorChunk:
      to->step = LargeStep::kFactorChunk;
      to->factor = wire::value_of<LargeFactor>(from.factor_chunk().factor()).value_or(LargeFactor::kUnknown);
      to->offset = from.factor_chunk().offset();
      to->data = {{grpc::Slice(from.factor_chunk().data())}, 0, from.factor_chunk().data().size()};
      to->crc32c = from.factor_chunk().crc32c();
      break;
    default:
      to->step = LargeStep::kNothing;
  }
}

}  // namespace

grpc::ByteBuffer make_large_open(const LargeMatrix& matrix, const LargeOptions& options, const std::string& resume) {
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(to_proto<v1::DataType>(matrix.data_type));
  open.set_memory_order(to_proto<v1::MemoryOrder>(matrix.memory_order));
  open.set_rows(matrix.rows);
  open.set_cols(matrix.cols);
  open.set_signature(matrix.signature.data(), matrix.signature.size());
  open.set_problem(to_proto<v1::LargeProblem>(options.problem));
  open.set_triangle(to_proto<v1::Triangle>(options.triangle));
  open.set_starting_vectors(matrix.starting_vectors != nullptr);
  open.set_resume(resume);
  v1::LargeOptions& o = *open.mutable_options();
  o.set_method(to_proto<v1::Method>(options.method));
  o.set_vectors(to_proto<v1::Vectors>(options.vectors));
  o.set_tolerance(options.tolerance);
  o.set_max_sweeps(options.max_sweeps);
  o.set_pivot_strategy(to_proto<v1::PivotStrategy>(options.pivot_strategy));
  o.set_block_variant(to_proto<v1::BlockVariant>(options.block_variant));
  o.set_certificate(options.certificate);
  o.set_top_k(options.top_k);
  return to_buffer(request);
}

grpc::ByteBuffer make_large_chunk(SendBuffers& buffers, const LargeMatrix& matrix, int64_t matrix_bytes, int64_t offset,
                                  int64_t size) {
  const bool is_start = offset >= matrix_bytes;
  const auto* const data = is_start ? static_cast<const std::byte*>(matrix.starting_vectors) + (offset - matrix_bytes)
                                    : static_cast<const std::byte*>(matrix.data) + offset;
  const grpc::Slice payload =
      make_payload(buffers, data, static_cast<size_t>(size), is_start ? matrix.starting_owner : matrix.owner);
  v1::LargeChunk rest;
  rest.set_offset(offset);
  rest.set_crc32c(crc32c(0, payload.begin(), payload.size()));
  std::string chunk = rest.SerializeAsString();
  wire::append_head(&chunk, v1::LargeChunk::kDataFieldNumber, payload.size());
  std::string head;
  wire::append_head(&head, v1::DecomposeLargeRequest::kChunkFieldNumber, chunk.size() + payload.size());
  const grpc::Slice slices[] = {grpc::Slice(head + chunk), payload};
  return grpc::ByteBuffer(slices, 2);
}

grpc::ByteBuffer make_large_commit() {
  v1::DecomposeLargeRequest request;
  request.mutable_commit();
  return to_buffer(request);
}

bool read_large_reply(grpc::ByteBuffer& message, LargeReply* reply) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return false;  // shares of them: nothing is copied
  {
    grpc::ProtoBufferReader bytes(&message);
    CodedInputStream in(&bytes);
    in.PushLimit(static_cast<int>(message.Length()));  // a client receives at most 2 GiB - 1
    constexpr uint32_t kChunk = tag_of(v1::DecomposeLargeResponse::kFactorChunkFieldNumber, wire::kEmbedded);
    uint32_t tag = 0;
    int size = 0;
    const bool is_chunk = wire::read_tag(&in, &tag) && tag == kChunk && wire::read_length(&in, &size);
    if (is_chunk && size == in.BytesUntilLimit()) return read_factor_chunk(in, size, std::move(slices), reply);
  }
  grpc::ProtoBufferReader bytes(&message);
  v1::DecomposeLargeResponse response;
  if (!response.ParseFromZeroCopyStream(&bytes)) return false;
  read_step(response, reply);
  return true;
}

}  // namespace svdserve::client::internal
