// Requests, from bytes to values.
#include <svdserve/v1/svd_service.pb.h>

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/codec/codec.h"
#include "server/rpc/codec/wire_enums.h"
#include "server/rpc/codec/wire_reader.h"
#include "wire/planes.h"

namespace svdserve::server {
namespace {

using namespace wire;  // fields and enumerations

Error too_long(std::string field) {
  return invalid_field(std::move(field), absl::StrCat("must take at most ", kMaxSmallBytes, " bytes"));
}

// --- bytes ---------------------------------------------------------------------------------------

// A MatrixBatch as it is read.
struct WireBatch {
  int data_type = 0, memory_order = 0;  // numbers of the enumerations
  int64_t rows = 0, cols = 0, count = 0;
  int32_t exponent = 0;
  HostBlock data, starting_vectors;
};

// DecomposeOptions or EigendecomposeOptions as they are read. Enumerations are checked once every field is there.
struct WireOptions {
  int method = 0, vectors = 0, certificate = 0, problem = 0, triangle = 0;  // numbers of the enumerations
  bool has_mimo = false;
  bool singular_values = false;  // of mimo
  Options rest;                  // all other fields; mimo.group as on the wire, where 0 means 1
};

// Reads a DecomposeRequest, or an EigendecomposeRequest. A limit is checked before what it bounds is copied. The first
// one that is passed becomes error(), and the rest of the request is skipped, so that a stream still learns the
// request's id.
//
// Fields that occur more than once are merged as protobuf does it.
class RequestReader {
 public:
  // `at`: where the message lies in the caller's request, "" or "request."; the paths of errors begin with it.
  RequestReader(Rpc rpc, const std::shared_ptr<HostMemory>& memory, const char* at)
      : is_eigen_(rpc == Rpc::kEigendecompose || rpc == Rpc::kEigendecomposeStream), memory_(memory), at_(at) {}

  // Reads one field. False: the bytes are no message.
  bool read_field(CodedInputStream* in, uint32_t tag);

  // Moves the values read into *out. Call it once, at the end.
  Error finish(DecodedRequest* out);

 private:
  bool read_batch(CodedInputStream* in, WireBatch* batch);
  bool read_data(CodedInputStream* in, HostBlock* data);
  bool read_options(CodedInputStream* in);
  bool read_option(CodedInputStream* in, uint32_t tag);
  bool read_svd_option(CodedInputStream* in, uint32_t tag);
  bool read_eigen_option(CodedInputStream* in, uint32_t tag);
  bool read_mimo_option(CodedInputStream* in, uint32_t tag);
  bool read_snr(CodedInputStream* in);
  bool read_packed_snrs(CodedInputStream* in);

  Error check_options(CertificateScope* scope);
  Error check_svd_options();
  Error check_eigen_options();
  Error finish_batch(WireBatch* wire, const std::string& at, const std::shared_ptr<const Options>& options,
                     DecodedRequest* out) const;
  std::string path(const char* field) const { return absl::StrCat(at_, field); }
  void refuse(Error error) {
    if (error_.ok()) error_ = std::move(error);
  }

  const bool is_eigen_;
  const std::shared_ptr<HostMemory>& memory_;  // outlives the reader
  const char* const at_;
  Error error_;
  WireOptions options_;
  std::optional<WireBatch> matrices_;
  std::vector<WireBatch> groups_;  // at most kMaxGroups
};

bool RequestReader::read_field(CodedInputStream* in, uint32_t tag) {
  if (!error_.ok()) return skip_field(in, tag);
  switch (tag) {
    case tag_of(v1::DecomposeRequest::kMatricesFieldNumber, kEmbedded):
      if (!matrices_) matrices_.emplace();
      return read_batch(in, &*matrices_);
    case tag_of(v1::DecomposeRequest::kOptionsFieldNumber, kEmbedded):
      return read_options(in);
    case tag_of(v1::DecomposeRequest::kGroupsFieldNumber, kEmbedded):
      if (groups_.size() < kMaxGroups) return read_batch(in, &groups_.emplace_back());
      refuse(invalid_field(path("groups"), absl::StrCat("a request may have at most ", kMaxGroups, " groups")));
      return skip_field(in, tag);
    default:
      return skip_field(in, tag);
  }
}

bool RequestReader::read_batch(CodedInputStream* in, WireBatch* batch) {
  return read_embedded(in, [&](uint32_t tag) {
    switch (tag) {
      case tag_of(v1::MatrixBatch::kDataTypeFieldNumber, kVarint):
        return read_varint(in, &batch->data_type);
      case tag_of(v1::MatrixBatch::kMemoryOrderFieldNumber, kVarint):
        return read_varint(in, &batch->memory_order);
      case tag_of(v1::MatrixBatch::kRowsFieldNumber, kVarint):
        return read_varint(in, &batch->rows);
      case tag_of(v1::MatrixBatch::kColsFieldNumber, kVarint):
        return read_varint(in, &batch->cols);
      case tag_of(v1::MatrixBatch::kCountFieldNumber, kVarint):
        return read_varint(in, &batch->count);
      case tag_of(v1::MatrixBatch::kExponentFieldNumber, kVarint):
        return read_varint(in, &batch->exponent);
      case tag_of(v1::MatrixBatch::kDataFieldNumber, kEmbedded):
        return read_data(in, &batch->data);
      case tag_of(v1::MatrixBatch::kStartingVectorsFieldNumber, kEmbedded):
        return read_data(in, &batch->starting_vectors);
      default:
        return skip_field(in, tag);
    }
  });
}

bool RequestReader::read_data(CodedInputStream* in, HostBlock* data) {
  int bytes = 0;
  if (!read_length(in, &bytes)) return false;
  *data = HostBlock();  // the last one counts
  if (bytes == 0) return true;
  try {
    *data = memory_->allocate(static_cast<size_t>(bytes));
  } catch (const std::bad_alloc&) {
    refuse(out_of_memory());
    return in->Skip(bytes);
  }
  return in->ReadRaw(data->data(), bytes);
}

bool RequestReader::read_options(CodedInputStream* in) {
  bool is_too_long = false;
  const bool good = read_small(in, &is_too_long, [&](uint32_t tag) { return read_option(in, tag); });
  if (is_too_long) refuse(too_long(path("options")));
  return good;
}

bool RequestReader::read_option(CodedInputStream* in, uint32_t tag) {
  switch (tag) {
    case tag_of(v1::DecomposeOptions::kMethodFieldNumber, kVarint):
      return read_varint(in, &options_.method);
    case tag_of(v1::DecomposeOptions::kToleranceFieldNumber, kFixed64):
      return read_double(in, &options_.rest.tolerance);
    case tag_of(v1::DecomposeOptions::kMaxSweepsFieldNumber, kVarint):
      return read_varint(in, &options_.rest.max_sweeps);
    case tag_of(v1::DecomposeOptions::kVectorsFieldNumber, kVarint):
      return read_varint(in, &options_.vectors);
    case tag_of(v1::DecomposeOptions::kFixPhasesFieldNumber, kVarint):
      return read_varint(in, &options_.rest.fix_phases);
    case tag_of(v1::DecomposeOptions::kCertificateFieldNumber, kVarint):
      return read_varint(in, &options_.certificate);
    default:
      return is_eigen_ ? read_eigen_option(in, tag) : read_svd_option(in, tag);
  }
}

bool RequestReader::read_eigen_option(CodedInputStream* in, uint32_t tag) {
  switch (tag) {
    case tag_of(v1::EigendecomposeOptions::kProblemFieldNumber, kVarint):
      return read_varint(in, &options_.problem);
    case tag_of(v1::EigendecomposeOptions::kTriangleFieldNumber, kVarint):
      return read_varint(in, &options_.triangle);
    case tag_of(v1::EigendecomposeOptions::kConditionFieldNumber, kVarint):
      return read_varint(in, &options_.rest.condition);
    case tag_of(v1::EigendecomposeOptions::kStartingVectorsFieldNumber, kVarint):
      return read_varint(in, &options_.rest.starting_vectors);
    default:
      return skip_field(in, tag);
  }
}

bool RequestReader::read_svd_option(CodedInputStream* in, uint32_t tag) {
  switch (tag) {
    case tag_of(v1::DecomposeOptions::kTopKFieldNumber, kVarint):
      return read_varint(in, &options_.rest.top_k);
    case tag_of(v1::DecomposeOptions::kMimoFieldNumber, kEmbedded):
      if (!options_.has_mimo) options_.rest.mimo.group = 0;
      options_.has_mimo = true;
      return read_embedded(in, [&](uint32_t inner) { return read_mimo_option(in, inner); });
    default:
      return skip_field(in, tag);
  }
}

// The option with this tag that asks for a plane; null: it is none.
bool* asked_by(uint32_t tag, MimoOptions* mimo) {
  for (const MimoPlane& m : kMimoPlanes) {
    const int option = wire::kPlanesOnWire[static_cast<size_t>(m.plane)].option;
    if (option != 0 && tag == tag_of(option, kVarint)) return &(mimo->*m.option);
  }
  return nullptr;
}

bool RequestReader::read_mimo_option(CodedInputStream* in, uint32_t tag) {
  MimoOptions& mimo = options_.rest.mimo;
  if (bool* const asked = asked_by(tag, &mimo)) return read_varint(in, asked);
  switch (tag) {
    case tag_of(v1::MimoOptions::kRankThresholdFieldNumber, kFixed64):
      mimo.threshold_rank = true;
      return read_double(in, &mimo.rank_threshold);
    case tag_of(v1::MimoOptions::kSnrDbFieldNumber, kFixed64):
      return read_snr(in);
    case tag_of(v1::MimoOptions::kSnrDbFieldNumber, kEmbedded):
      return read_packed_snrs(in);
    case tag_of(v1::MimoOptions::kGroupSizeFieldNumber, kVarint):
      return read_varint(in, &mimo.group);
    case tag_of(v1::MimoOptions::kPrecoderColumnsFieldNumber, kVarint):
      return read_varint(in, &mimo.precoder_columns);
    case tag_of(v1::MimoOptions::kCombinerColumnsFieldNumber, kVarint):
      return read_varint(in, &mimo.combiner_columns);
    case tag_of(v1::MimoOptions::kGradientFieldNumber, kVarint):
      return read_varint(in, &mimo.gradient);
    case tag_of(v1::MimoOptions::kSingularValuesFieldNumber, kVarint):
      return read_varint(in, &options_.singular_values);
    default:
      return skip_field(in, tag);
  }
}

bool RequestReader::read_snr(CodedInputStream* in) {
  double snr = 0;
  if (!read_double(in, &snr)) return false;
  std::vector<double>& all = options_.rest.mimo.snr_db;
  if (all.size() < kMaxSnrs) {
    all.push_back(snr);
  } else {
    refuse(invalid_field(path("options.mimo.snr_db"), absl::StrCat("a request may have at most ", kMaxSnrs, " SNRs")));
  }
  return true;
}

bool RequestReader::read_packed_snrs(CodedInputStream* in) {
  int bytes = 0;
  if (!read_length(in, &bytes)) return false;
  for (; bytes >= 8 && error_.ok(); bytes -= 8) {
    if (!read_snr(in)) return false;
  }
  return bytes % 8 == 0 && in->Skip(bytes);
}

// --- values --------------------------------------------------------------------------------------

// The enumerations and what depends on presence. The rest of options_ is complete afterwards.
Error RequestReader::check_options(CertificateScope* scope) {
  const WireOptions& wire = options_;
  const std::optional<Method> method = value_of(wire.method, Method::kAuto);
  if (!method) return invalid_field(path("options.method"), unknown("method", wire.method));
  if (Error error = is_eigen_ ? check_eigen_options() : check_svd_options(); !error.ok()) return error;
  const std::optional<CertificateScope> certificate = value_of(wire.certificate, CertificateScope::kNone);
  if (!certificate) return invalid_field(path("options.certificate"), unknown("scope", wire.certificate));
  *scope = *certificate;
  Options& options = options_.rest;
  options.method = *method;
  options.values = !wire.has_mimo || wire.singular_values;
  options.certificate = *certificate != CertificateScope::kNone;
  if (options.mimo.group == 0) options.mimo.group = 1;
  return {};
}

Error RequestReader::check_svd_options() {
  const std::optional<Vectors> vectors = value_of(options_.vectors, Vectors::kNone);
  if (!vectors) return invalid_field(path("options.vectors"), unknown("kind of vectors", options_.vectors));
  options_.rest.vectors = *vectors;
  return {};
}

Error RequestReader::check_eigen_options() {
  const WireOptions& wire = options_;
  const std::optional<Eigenvectors> vectors = value_of(wire.vectors, Eigenvectors::kNone);
  if (!vectors) return invalid_field(path("options.vectors"), unknown("kind of vectors", wire.vectors));
  const std::optional<Decomposition> problem = value_of<Decomposition>(wire.problem);
  if (!problem || *problem == Decomposition::kSvd) {
    return invalid_field(path("options.problem"), unknown("problem", wire.problem));
  }
  const std::optional<Triangle> triangle = value_of(wire.triangle, Triangle::kLower);
  if (!triangle) return invalid_field(path("options.triangle"), unknown("triangle", wire.triangle));
  Options& options = options_.rest;
  options.vectors = *vectors == Eigenvectors::kNone    ? Vectors::kNone
                    : *vectors == Eigenvectors::kRight ? Vectors::kThin
                                                       : Vectors::kFull;
  options.decomposition = *problem;
  options.triangle = *triangle;
  return {};
}

// The problem, as far as it can be told; `at`: the path of the batch.
Error read_problem(const WireBatch& wire, const std::string& at, Problem* problem) {
  problem->rows = wire.rows;
  problem->cols = wire.cols;
  const std::optional<OperandType> type = value_of<OperandType>(wire.data_type);
  if (!type) return invalid_field(at + ".data_type", unknown("data type", wire.data_type));
  problem->dtype = traits_of(*type).dtype;
  problem->storage = traits_of(*type).storage;
  problem->exponent = wire.exponent;
  const std::optional<Order> order = value_of<Order>(wire.memory_order);
  if (!order) return invalid_field(at + ".memory_order", unknown("memory order", wire.memory_order));
  problem->order = *order;
  return {};
}

// One batch, whose operands go to out->memory.
Error RequestReader::finish_batch(WireBatch* wire, const std::string& at, const std::shared_ptr<const Options>& options,
                                  DecodedRequest* out) const {
  Request request;
  if (Error error = read_problem(*wire, at, &request.problem); !error.ok()) return error;
  request.options = options;
  request.count = wire->count;
  request.payload = wire->data.data();
  request.payload_bytes = wire->data.size();
  request.starting_vectors = wire->starting_vectors.data();
  request.starting_vectors_bytes = wire->starting_vectors.size();
  request.memory = out->memory;
  out->memory->operands.push_back(std::move(wire->data));
  if (request.starting_vectors_bytes > 0) out->memory->operands.push_back(std::move(wire->starting_vectors));
  out->batches.push_back(std::move(request));
  return {};
}

void label(const WireBatch& first, RequestLabels* labels) {
  labels->dtype = value_of<OperandType>(first.data_type);
  Problem problem;
  problem.rows = first.rows;
  problem.cols = first.cols;
  labels->shape = shape_bucket(problem);
}

Error RequestReader::finish(DecodedRequest* out) {
  out->has_groups = !groups_.empty();
  if (matrices_ || out->has_groups) label(matrices_ ? *matrices_ : groups_.front(), &out->labels);
  if (!error_.ok()) return error_;
  if (matrices_ && out->has_groups) {
    return invalid_field(path("groups"), "a request has either matrices or groups, not both");
  }
  if (!matrices_ && !out->has_groups) {
    return invalid_field(path("matrices"), "a request needs matrices or groups, and this one has neither");
  }
  out->memory = std::make_shared<WireMemory>(memory_);
  Error of_options = check_options(&out->memory->certificate_scope);
  const auto options = std::make_shared<const Options>(std::move(options_.rest));
  out->labels.kind = options->mimo != MimoOptions()       ? Kind::kAnswers
                     : options->vectors != Vectors::kNone ? Kind::kVectors
                                                          : Kind::kValues;
  if (matrices_) {
    Error of_batch = finish_batch(&*matrices_, path("matrices"), options, out);
    return of_batch.ok() ? of_options : of_batch;
  }
  if (!of_options.ok()) return of_options;
  out->memory->operands.reserve(groups_.size());
  out->batches.reserve(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    Error error = finish_batch(&groups_[i], absl::StrCat(at_, "groups[", i, "]"), options, out);
    if (!error.ok()) return error;
  }
  return {};
}

// Proto: seconds and nanos of the same sign, nanos below 10^9 in size.
std::optional<absl::Duration> to_duration(int64_t seconds, int32_t nanos) {
  constexpr int64_t kLargestSeconds = 315576000000;
  if (seconds < 0 || seconds > kLargestSeconds || nanos < 0 || nanos > 999999999) return std::nullopt;
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

// The `timeout` of a request of a stream.
class TimeoutReader {
 public:
  bool read_field(CodedInputStream* in) {
    using google::protobuf::Duration;
    is_set_ = true;
    return read_small(in, &too_long_, [&](uint32_t tag) {
      switch (tag) {
        case tag_of(Duration::kSecondsFieldNumber, kVarint):
          return read_varint(in, &seconds_);
        case tag_of(Duration::kNanosFieldNumber, kVarint):
          return read_varint(in, &nanos_);
        default:
          return skip_field(in, tag);
      }
    });
  }

  // Nothing is set where the request has none.
  Error finish(std::optional<absl::Duration>* timeout) const {
    if (too_long_) return too_long("timeout");
    if (!is_set_) return {};
    *timeout = to_duration(seconds_, nanos_);
    return *timeout ? Error{} : invalid_field("timeout", "must be a duration of zero or more");
  }

 private:
  bool is_set_ = false, too_long_ = false;
  int64_t seconds_ = 0;
  int32_t nanos_ = 0;
};

// The bytes of *out's RPC are no message.
void set_unreadable(DecodedRequest* out) {
  out->is_message = false;
  out->error = invalid_field("", absl::StrCat("the bytes received are no ", name(out->labels.rpc), "Request"));
}

void decode_request_into(grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory, DecodedRequest* out) {
  RequestReader request(out->labels.rpc, memory, "");
  if (read_whole(message, [&](CodedInputStream* in, uint32_t tag) { return request.read_field(in, tag); })) {
    out->error = request.finish(out);
  } else {
    set_unreadable(out);
  }
}

void decode_stream_request_into(grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory,
                                DecodedRequest* out) {
  RequestReader request(out->labels.rpc, memory, "request.");
  TimeoutReader timeout;
  bool has_request = false;
  const bool good = read_whole(message, [&](CodedInputStream* in, uint32_t tag) {
    switch (tag) {
      case tag_of(v1::DecomposeStreamRequest::kRequestIdFieldNumber, kVarint):
        return read_varint(in, &out->request_id);
      case tag_of(v1::DecomposeStreamRequest::kRequestFieldNumber, kEmbedded):
        has_request = true;
        return read_embedded(in, [&](uint32_t inner) { return request.read_field(in, inner); });
      case tag_of(v1::DecomposeStreamRequest::kTimeoutFieldNumber, kEmbedded):
        return timeout.read_field(in);
      default:
        return skip_field(in, tag);
    }
  });
  if (!good) return set_unreadable(out);
  out->error = has_request ? request.finish(out) : invalid_field("request", "must be set");
  Error of_timeout = timeout.finish(&out->timeout);
  if (out->error.ok()) out->error = std::move(of_timeout);
}

// Decodes by `read`, whose lack of memory becomes an error like any other.
template <class Read>
DecodedRequest decode_by(Read read, Rpc rpc, grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory) {
  DecodedRequest out;
  out.labels.rpc = rpc;
  try {
    read(message, memory, &out);
  } catch (const std::bad_alloc&) {
    message->Clear();
    out.batches.clear();
    out.memory.reset();
    out.is_message = false;
    out.error = out_of_memory();
  }
  return out;
}

}  // namespace

Error invalid_field(std::string field, std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, std::move(message), std::move(field), {}};
}

Error out_of_memory() {
  return {absl::StatusCode::kResourceExhausted, Reason::kOverloadedBytes, "the server has no memory for this message",
          "", absl::Seconds(1)};
}

DecodedRequest decode_request(Rpc rpc, grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory) {
  return decode_by(decode_request_into, rpc, message, memory);
}

DecodedRequest decode_stream_request(Rpc rpc, grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory) {
  return decode_by(decode_stream_request_into, rpc, message, memory);
}

}  // namespace svdserve::server
