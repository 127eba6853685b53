#include "server/rpc/codec/large_codec.h"

#include <svdserve/v1/svd_service.pb.h>

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/rpc/codec/codec.h"
#include "server/rpc/codec/message_builder.h"
#include "server/rpc/codec/wire_enums.h"
#include "server/rpc/codec/wire_reader.h"
#include "wire/crc32c.h"

namespace svdserve::server {
namespace {

using namespace wire;  // fields and enumerations

// LargeOpen as it is read. Enumerations are checked once every field is there.
struct WireOpen {
  int data_type = 0, memory_order = 0, problem = 0, triangle = 0;  // numbers, and so the next line
  int method = 0, vectors = 0, strategy = 0, variant = 0;
  int64_t rows = 0, cols = 0;
  LargeOptions rest;  // all other options
  std::string signature, resume;
  bool starting_vectors = false;
  bool options_too_long = false;
};

bool read_option(CodedInputStream* in, uint32_t tag, WireOpen* open) {
  switch (tag) {
    case tag_of(v1::LargeOptions::kMethodFieldNumber, kVarint):
      return read_varint(in, &open->method);
    case tag_of(v1::LargeOptions::kVectorsFieldNumber, kVarint):
      return read_varint(in, &open->vectors);
    case tag_of(v1::LargeOptions::kToleranceFieldNumber, kFixed64):
      return read_double(in, &open->rest.tolerance);
    case tag_of(v1::LargeOptions::kMaxSweepsFieldNumber, kVarint):
      return read_varint(in, &open->rest.max_sweeps);
    case tag_of(v1::LargeOptions::kPivotStrategyFieldNumber, kVarint):
      return read_varint(in, &open->strategy);
    case tag_of(v1::LargeOptions::kBlockVariantFieldNumber, kVarint):
      return read_varint(in, &open->variant);
    case tag_of(v1::LargeOptions::kTopKFieldNumber, kVarint):
      return read_varint(in, &open->rest.top_k);
    case tag_of(v1::LargeOptions::kCertificateFieldNumber, kVarint):
      return read_varint(in, &open->rest.certificate);
    default:
      return skip_field(in, tag);
  }
}

bool read_open_field(CodedInputStream* in, uint32_t tag, WireOpen* open) {
  switch (tag) {
    case tag_of(v1::LargeOpen::kDataTypeFieldNumber, kVarint):
      return read_varint(in, &open->data_type);
    case tag_of(v1::LargeOpen::kMemoryOrderFieldNumber, kVarint):
      return read_varint(in, &open->memory_order);
    case tag_of(v1::LargeOpen::kRowsFieldNumber, kVarint):
      return read_varint(in, &open->rows);
    case tag_of(v1::LargeOpen::kColsFieldNumber, kVarint):
      return read_varint(in, &open->cols);
    case tag_of(v1::LargeOpen::kOptionsFieldNumber, kEmbedded):
      return read_small(in, &open->options_too_long, [&](uint32_t inner) { return read_option(in, inner, open); });
    case tag_of(v1::LargeOpen::kSignatureFieldNumber, kEmbedded):
      return read_bytes(in, &open->signature);
    case tag_of(v1::LargeOpen::kProblemFieldNumber, kVarint):
      return read_varint(in, &open->problem);
    case tag_of(v1::LargeOpen::kTriangleFieldNumber, kVarint):
      return read_varint(in, &open->triangle);
    case tag_of(v1::LargeOpen::kStartingVectorsFieldNumber, kVarint):
      return read_varint(in, &open->starting_vectors);
    case tag_of(v1::LargeOpen::kResumeFieldNumber, kEmbedded):
      return read_bytes(in, &open->resume);
    default:
      return skip_field(in, tag);
  }
}

Error check_options(const WireOpen& wire, LargeOptions* options) {
  if (wire.options_too_long) {
    return invalid_field("open.options", absl::StrCat("must take at most ", kMaxSmallBytes, " bytes"));
  }
  const std::optional<Method> method = value_of(wire.method, Method::kAuto);
  if (!method) return invalid_field("open.options.method", unknown("method", wire.method));
  const std::optional<Vectors> vectors = value_of(wire.vectors, Vectors::kThin);
  if (!vectors) return invalid_field("open.options.vectors", unknown("kind of vectors", wire.vectors));
  const std::optional<PivotStrategy> strategy = value_of<PivotStrategy>(wire.strategy);
  if (!strategy) return invalid_field("open.options.pivot_strategy", unknown("pivot strategy", wire.strategy));
  const std::optional<BlockVariant> variant = value_of<BlockVariant>(wire.variant);
  if (!variant) return invalid_field("open.options.block_variant", unknown("block variant", wire.variant));
  *options = wire.rest;
  options->method = *method;
  options->vectors = *vectors;
  options->strategy = *strategy;
  options->variant = *variant;
  return {};
}

Error check_open(WireOpen* wire, LargeOpen* open) {
  const std::optional<DType> dtype = value_of<DType>(wire->data_type);
  if (const auto narrow = value_of<OperandType>(wire->data_type); narrow && !dtype) {
    return invalid_field("open.data_type", absl::StrCat(name(*narrow), " is for batches alone; convert the matrix to ",
                                                        name(traits_of(*narrow).dtype)));
  }
  if (!dtype) return invalid_field("open.data_type", unknown("data type", wire->data_type));
  const std::optional<Order> order = value_of<Order>(wire->memory_order);
  if (!order) return invalid_field("open.memory_order", unknown("memory order", wire->memory_order));
  const std::optional<LargeProblem> decomposition = value_of<LargeProblem>(wire->problem);
  if (!decomposition) return invalid_field("open.problem", unknown("problem", wire->problem));
  const std::optional<Triangle> triangle = value_of(wire->triangle, Triangle::kLower);
  if (!triangle) return invalid_field("open.triangle", unknown("triangle", wire->triangle));
  open->problem = {wire->rows, wire->cols, *dtype, *order};
  open->decomposition = *decomposition;
  open->signature = std::move(wire->signature);
  open->resume = std::move(wire->resume);
  Error error = check_options(*wire, &open->options);
  open->options.triangle = *triangle;
  open->options.starting_vectors = wire->starting_vectors;
  return error;
}

// Where a chunk's bytes lie in its message.
struct Extent {
  size_t begin = 0;
  size_t count = 0;
};

bool read_chunk_field(CodedInputStream* in, uint32_t tag, DecodedLarge* out, Extent* data) {
  int bytes = 0;
  switch (tag) {
    case tag_of(v1::LargeChunk::kOffsetFieldNumber, kVarint):
      return read_varint(in, &out->offset);
    case tag_of(v1::LargeChunk::kCrc32CFieldNumber, kFixed32):
      return in->ReadLittleEndian32(&out->checksum);
    case tag_of(v1::LargeChunk::kDataFieldNumber, kEmbedded):
      if (!read_length(in, &bytes)) return false;
      *data = {static_cast<size_t>(in->CurrentPosition()), static_cast<size_t>(bytes)};
      return in->Skip(bytes);
    default:
      return skip_field(in, tag);
  }
}

v1::LargeProgress wire_progress(const LargeProgressReport& from) {
  v1::LargeProgress to;
  to.set_stage(from.queued ? v1::LARGE_STAGE_QUEUED : to_wire<v1::LargeStage>(from.factor.stage));
  to.set_sweep(from.factor.sweep);
  to.set_rotations(from.factor.rotations);
  to.set_proper_rotations(from.factor.proper_rotations);
  to.set_off_diagonal(from.factor.off_diagonal);
  to.set_fraction(from.factor.fraction);
  to.set_elapsed_seconds(absl::ToDoubleSeconds(from.elapsed));
  to.set_device(from.device);
  return to;
}

v1::MatrixStatus status_of(const LargeOutcome& outcome) {
  if (outcome.status == LargeStatus::kNotConverged) return v1::MATRIX_STATUS_NOT_CONVERGED;
  return outcome.out_of_range ? v1::MATRIX_STATUS_OUT_OF_RANGE : v1::MATRIX_STATUS_UNSPECIFIED;
}

v1::Method method_of(const LargeSummary& summary) {
  const LargeOptions& options = summary.plan.options;
  // JACOBI of a general matrix leaves some to QR.
  const bool may_differ = options.kind == LargeKind::kGeneral && options.method == Method::kJacobi;
  if (may_differ) return to_wire<v1::Method>(summary.outcome.method);
  if (is_eigenproblem(options.kind)) return to_wire<v1::Method>(options.method);
  const bool from_jacobi_alone = !summary.outcome.warm_started && summary.outcome.subspace_steps == 0;
  return from_jacobi_alone ? v1::METHOD_JACOBI : v1::METHOD_AUTO;
}

v1::LargeSummary wire_summary(const LargeSummary& from) {
  const LargeOutcome& outcome = from.outcome;
  v1::LargeSummary to;
  to.set_status(status_of(outcome));
  to.set_values(from.plan.values);
  to.set_left_columns(from.plan.left_columns);
  to.set_right_rows(from.plan.right_rows);
  to.set_method(method_of(from));
  to.set_device(from.device);
  to.set_sweeps(outcome.sweeps);
  to.set_rotations(outcome.rotations);
  to.set_proper_rotations(outcome.proper_rotations);
  v1::LargeTiming& timing = *to.mutable_timing();
  timing.set_upload_seconds(absl::ToDoubleSeconds(from.timing.upload));
  timing.set_queue_seconds(absl::ToDoubleSeconds(from.timing.queue));
  timing.set_compute_seconds(absl::ToDoubleSeconds(from.timing.compute));
  timing.set_download_seconds(absl::ToDoubleSeconds(from.timing.download));
  for (const LargePhaseTime& phase : outcome.phases) {
    v1::LargePhase& part = *to.add_phases();
    part.set_name(phase.name);
    part.set_seconds(phase.seconds);
    part.set_flops(phase.flops);
  }
  if (from.plan.options.certificate) {
    v1::Certificate& certificate = *to.mutable_certificate();
    certificate.set_residual(outcome.residual);
    certificate.set_left_orthogonality(outcome.left_orthogonality);
    certificate.set_right_orthogonality(outcome.right_orthogonality);
  }
  to.set_rank(outcome.rank);
  to.set_factor_condition(outcome.factor_condition);
  to.set_subspace_steps(outcome.subspace_steps);
  to.set_members(outcome.members);
  return to;
}

// The chunk's bytes as a slice that holds their memory.
grpc::Slice slice_of(const LargeResultChunk& chunk) {
  auto* const share = new std::shared_ptr<const ResultPiece>(chunk.piece);
  return grpc::Slice(
      const_cast<char*>(chunk.data), chunk.bytes,
      [](void* held) { delete static_cast<std::shared_ptr<const ResultPiece>*>(held); }, share);
}

grpc::ByteBuffer encode_chunk(const LargeResultChunk& from, const KnownChecksum& known) {
  const bool is_known = known.data == from.data && known.bytes == from.bytes;
  v1::LargeFactorChunk head;
  head.set_factor(to_wire<v1::LargeFactor>(from.result));
  head.set_offset(from.offset);
  head.set_crc32c(is_known ? known.value : checksum_of(from).value);
  MessageBuilder chunk;
  chunk.append(head.SerializeAsString());
  chunk.append_slice(v1::LargeFactorChunk::kDataFieldNumber, slice_of(from), 0, from.bytes);
  MessageBuilder message;
  message.append_message(v1::DecomposeLargeResponse::kFactorChunkFieldNumber, std::move(chunk));
  return message.build();
}

grpc::ByteBuffer encode(const v1::DecomposeLargeResponse& response) {
  MessageBuilder message;
  message.append(response.SerializeAsString());
  return message.build();
}

// The last step of a message counts; the fields of one that is given twice are merged.
void start_step(DecodedLarge::Step step, DecodedLarge* out, WireOpen* open, Extent* data) {
  if (out->step == step) return;
  *out = {};
  *open = {};
  *data = {};
  out->step = step;
}

void decode_into(grpc::ByteBuffer* message, DecodedLarge* out) {
  using Step = DecodedLarge::Step;
  WireOpen open;
  Extent data;
  std::vector<grpc::Slice> slices;
  const bool dumped = message->Dump(&slices).ok();  // shares of them: nothing is copied
  const bool good =
      dumped && read_whole(message, [&](CodedInputStream* in, uint32_t tag) {
        switch (tag) {
          case tag_of(v1::DecomposeLargeRequest::kOpenFieldNumber, kEmbedded):
            start_step(Step::kOpen, out, &open, &data);
            return read_embedded(in, [&](uint32_t inner) { return read_open_field(in, inner, &open); });
          case tag_of(v1::DecomposeLargeRequest::kChunkFieldNumber, kEmbedded):
            start_step(Step::kChunk, out, &open, &data);
            return read_embedded(in, [&](uint32_t inner) { return read_chunk_field(in, inner, out, &data); });
          case tag_of(v1::DecomposeLargeRequest::kCommitFieldNumber, kEmbedded):
            start_step(Step::kCommit, out, &open, &data);
            return read_embedded(in, [&](uint32_t inner) { return skip_field(in, inner); });
          default:
            return skip_field(in, tag);
        }
      });
  if (!good) {
    out->error = invalid_field("", "the bytes received are not a DecomposeLargeRequest");
  } else if (out->step == Step::kNone) {
    out->error = {absl::StatusCode::kInvalidArgument,
                  Reason::kUnexpectedMessage,
                  "a message must be open, chunk or commit, and this one is none of them",
                  "",
                  {}};
  } else if (out->step == Step::kOpen) {
    out->error = check_open(&open, &out->open);
  } else if (out->step == Step::kChunk) {
    out->data = ReceivedBytes(std::move(slices), data.begin, data.count);
  }
}

}  // namespace

DecodedLarge decode_large_request(grpc::ByteBuffer* message, size_t max_bytes) {
  DecodedLarge out;
  try {
    if (message->Length() <= max_bytes) {
      decode_into(message, &out);
    } else {
      out.error = invalid_field("", absl::StrCat("a message may have at most ", max_bytes, " bytes, this one has ",
                                                 message->Length(), ": send chunks of at most accepted.chunk_bytes"));
    }
  } catch (const std::bad_alloc&) {
    out.error = out_of_memory();
  }
  message->Clear();
  if (!out.error.ok()) out.step = DecodedLarge::Step::kNone;
  return out;
}

KnownChecksum checksum_of(const LargeResultChunk& chunk) {
  return {chunk.data, chunk.bytes, crc32c(0, chunk.data, chunk.bytes)};
}

grpc::ByteBuffer encode_large_response(const LargeReply& reply, const KnownChecksum& known) {
  v1::DecomposeLargeResponse response;
  if (const auto* chunk = std::get_if<LargeResultChunk>(&reply)) return encode_chunk(*chunk, known);
  if (const auto* accepted = std::get_if<LargeAccepted>(&reply)) {
    response.mutable_accepted()->set_chunk_bytes(accepted->chunk_bytes);
    response.mutable_accepted()->set_operand_bytes(accepted->operand_bytes);
    response.mutable_accepted()->set_result_bytes(accepted->result_bytes);
    response.mutable_accepted()->set_device(accepted->device);
    response.mutable_accepted()->set_resume(accepted->resume);
    response.mutable_accepted()->set_predicted_seconds(absl::ToDoubleSeconds(accepted->predicted));
  } else if (const auto* progress = std::get_if<LargeProgressReport>(&reply)) {
    *response.mutable_progress() = wire_progress(*progress);
  } else {
    *response.mutable_summary() = wire_summary(std::get<LargeSummary>(reply));
  }
  return encode(response);
}

}  // namespace svdserve::server
