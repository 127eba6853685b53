// Requests of batches: the server's decoder against libprotobuf's messages.
#include <svdserve/v1/svd_service.pb.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/rpc/codec/codec.h"
#include "server/rpc/codec/large_codec.h"
#include "server/rpc/codec/wire_enums.h"
#include "tests/fuzz/targets.h"

namespace svdserve::fuzz {
namespace {

using server::DecodedRequest;
using server::Rpc;

// Decoders look at a message without operands up to this length.
constexpr size_t kMaxBytes = 64 * 1024;

// The options that the message means; nothing: it must be refused.
std::optional<Options> meant(const v1::DecomposeOptions& from, bool has_mimo) {
  Options to;
  const auto method = wire::value_of(from.method(), Method::kAuto);
  const auto vectors = wire::value_of(from.vectors(), Vectors::kNone);
  const auto certificate = wire::value_of(from.certificate(), server::CertificateScope::kNone);
  if (!method || !vectors || !certificate || from.mimo().snr_db_size() > kMaxSnrs) return std::nullopt;
  to.method = *method;
  to.vectors = *vectors;
  to.certificate = *certificate != server::CertificateScope::kNone;
  to.tolerance = from.tolerance();
  to.max_sweeps = from.max_sweeps();
  to.fix_phases = from.fix_phases();
  to.top_k = from.top_k();
  const v1::MimoOptions& mimo = from.mimo();
  to.values = !has_mimo || mimo.singular_values();
  to.mimo.capacity = mimo.capacity();
  to.mimo.water_filling = mimo.water_filling();
  to.mimo.stream_snr = mimo.stream_snr();
  to.mimo.condition_number = mimo.condition_number();
  to.mimo.effective_rank = mimo.effective_rank();
  to.mimo.threshold_rank = mimo.has_rank_threshold();
  to.mimo.rank_threshold = mimo.rank_threshold();
  to.mimo.gradient = mimo.gradient();
  to.mimo.snr_db.assign(mimo.snr_db().begin(), mimo.snr_db().end());
  to.mimo.group = mimo.group_size() == 0 ? 1 : mimo.group_size();
  to.mimo.precoder_columns = mimo.precoder_columns();
  to.mimo.combiner_columns = mimo.combiner_columns();
  return to;
}

std::optional<Options> meant(const v1::EigendecomposeOptions& from, bool) {
  Options to;
  const auto method = wire::value_of(from.method(), Method::kAuto);
  const auto certificate = wire::value_of(from.certificate(), server::CertificateScope::kNone);
  const auto triangle = wire::value_of(from.triangle(), Triangle::kLower);
  const auto problem = wire::value_of<Decomposition>(from.problem());
  if (!method || !certificate || !triangle || !problem || *problem == Decomposition::kSvd) return std::nullopt;
  if (from.vectors() < 0 || from.vectors() > v1::Eigenvectors_MAX) return std::nullopt;
  to.method = *method;
  to.vectors = from.vectors() == v1::EIGENVECTORS_RIGHT            ? Vectors::kThin
               : from.vectors() == v1::EIGENVECTORS_RIGHT_AND_LEFT ? Vectors::kFull
                                                                   : Vectors::kNone;
  to.certificate = *certificate != server::CertificateScope::kNone;
  to.tolerance = from.tolerance();
  to.max_sweeps = from.max_sweeps();
  to.fix_phases = from.fix_phases();
  to.condition = from.condition();
  to.starting_vectors = from.starting_vectors();
  to.triangle = *triangle;
  to.decomposition = *problem;
  return to;
}

// Whether options are the same, a NaN and itself among them.
bool same_options(Options a, Options b) {
  const auto take = [](Options* o) {
    std::vector<double> numbers = std::move(o->mimo.snr_db);
    numbers.push_back(o->tolerance);
    numbers.push_back(o->mimo.rank_threshold);
    o->mimo.snr_db.clear();
    o->tolerance = o->mimo.rank_threshold = 0;
    return numbers;
  };
  const std::vector<double> of_a = take(&a), of_b = take(&b);
  return a == b && std::ranges::equal(of_a, of_b, same);
}

bool has_mimo(const v1::DecomposeOptions& options) { return options.has_mimo(); }
bool has_mimo(const v1::EigendecomposeOptions&) { return false; }

bool has_types(const v1::MatrixBatch& batch) {
  return wire::value_of<OperandType>(batch.data_type()) && wire::value_of<Order>(batch.memory_order());
}

bool is_refused(const auto& message) {
  if (message.has_matrices() == (message.groups_size() > 0)) return true;
  if (std::cmp_greater(message.groups_size(), server::kMaxGroups)) return true;
  if (!meant(message.options(), has_mimo(message.options()))) return true;
  if (message.has_matrices()) return !has_types(message.matrices());
  return !std::ranges::all_of(message.groups(), has_types);
}

std::string_view bytes_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

void compare(const v1::MatrixBatch& want, const server::Request& got) {
  const OperandTypeTraits& type = traits_of(*wire::value_of<OperandType>(want.data_type()));
  const Problem problem{want.rows(),  want.cols(),    type.dtype, *wire::value_of<Order>(want.memory_order()),
                        type.storage, want.exponent()};
  require(got.problem == problem && got.count == want.count(), "the problem differs");
  require(bytes_of(got.payload, got.payload_bytes) == want.data(), "the operands differ");
  require(bytes_of(got.starting_vectors, got.starting_vectors_bytes) == want.starting_vectors(),
          "the starting vectors differ");
}

// The decoded request against the message; null: the bytes are none.
void compare(const auto* message, const DecodedRequest& got) {
  if (message == nullptr || is_refused(*message)) return require(!got.error.ok(), "a bad request is taken");
  require(got.error.ok() && got.is_message, "a good request is refused");
  require(got.has_groups == (message->groups_size() > 0), "groups differ");
  const Options options = *meant(message->options(), has_mimo(message->options()));
  require(same_options(*got.batches.front().options, options), "the options differ");
  if (!got.has_groups) {
    require(got.batches.size() == 1, "there is more than one batch");
    return compare(message->matrices(), got.batches.front());
  }
  require(std::cmp_equal(got.batches.size(), message->groups_size()), "the number of groups differs");
  for (int g = 0; g < message->groups_size(); ++g) compare(message->groups(g), got.batches[static_cast<size_t>(g)]);
}

template <class Message>
void unary(Rpc rpc, Bytes bytes) {
  if (bytes.size() > kMaxBytes) return;
  const auto memory = std::make_shared<server::HeapMemory>();
  grpc::ByteBuffer buffer = sliced(bytes);
  const DecodedRequest got = server::decode_request(rpc, &buffer, memory);
  require(buffer.Length() == 0, "the bytes are kept");
  Message message;
  const bool good = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  compare(good ? &message : nullptr, got);
}

std::optional<absl::Duration> duration_of(const google::protobuf::Duration& d) {
  constexpr int64_t kLargestSeconds = 315576000000;
  if (d.seconds() < 0 || d.seconds() > kLargestSeconds || d.nanos() < 0 || d.nanos() >= 1000000000) return {};
  return absl::Seconds(d.seconds()) + absl::Nanoseconds(d.nanos());
}

template <class Message>
void stream(Rpc rpc, Bytes bytes) {
  const auto memory = std::make_shared<server::HeapMemory>();
  grpc::ByteBuffer buffer = sliced(bytes);
  const DecodedRequest got = server::decode_stream_request(rpc, &buffer, memory);
  Message message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return require(!got.error.ok(), "a bad message is taken");
  }
  require(got.is_message && got.request_id == message.request_id(), "the id differs");
  const bool bad_timeout = message.has_timeout() && !duration_of(message.timeout());
  if (!message.has_request() || bad_timeout) return require(!got.error.ok(), "a bad message is taken");
  compare(&message.request(), got);
  if (!got.error.ok()) return;
  require(got.timeout.has_value() == message.has_timeout(), "a timeout is lost");
  if (got.timeout) require(*got.timeout == *duration_of(message.timeout()), "the timeout differs");
}

// --- large matrices -----------------------------------------------------------------------------

using Step = server::DecodedLarge::Step;

bool is_refused(const v1::LargeOpen& open) {
  const v1::LargeOptions& o = open.options();
  return !wire::value_of<DType>(open.data_type()) || !wire::value_of<Order>(open.memory_order()) ||
         !wire::value_of<server::LargeProblem>(open.problem()) || !wire::value_of(open.triangle(), Triangle::kLower) ||
         !wire::value_of(o.method(), Method::kAuto) || !wire::value_of(o.vectors(), Vectors::kThin) ||
         !wire::value_of<PivotStrategy>(o.pivot_strategy()) || !wire::value_of<BlockVariant>(o.block_variant());
}

void compare(const v1::LargeOpen& want, const server::DecodedLarge& got) {
  if (is_refused(want)) return require(!got.error.ok(), "a bad open is taken");
  require(got.error.ok() && got.step == Step::kOpen, "a good open is refused");
  const server::LargeOpen& open = got.open;
  const Problem problem{want.rows(), want.cols(), *wire::value_of<DType>(want.data_type()),
                        *wire::value_of<Order>(want.memory_order())};
  require(open.problem == problem && open.signature == want.signature(), "the problem differs");
  require(open.decomposition == *wire::value_of<server::LargeProblem>(want.problem()), "the decomposition differs");
  const v1::LargeOptions& o = want.options();
  const bool numbers = same(open.options.tolerance, o.tolerance()) && open.options.max_sweeps == o.max_sweeps() &&
                       open.options.top_k == o.top_k() && open.options.certificate == o.certificate() &&
                       open.options.starting_vectors == want.starting_vectors();
  const bool names = open.options.method == *wire::value_of(o.method(), Method::kAuto) &&
                     open.options.vectors == *wire::value_of(o.vectors(), Vectors::kThin) &&
                     open.options.strategy == *wire::value_of<PivotStrategy>(o.pivot_strategy()) &&
                     open.options.variant == *wire::value_of<BlockVariant>(o.block_variant()) &&
                     open.options.triangle == *wire::value_of(want.triangle(), Triangle::kLower);
  require(numbers && names, "the options differ");
}

void compare(const v1::LargeChunk& want, const server::DecodedLarge& got) {
  require(got.error.ok() && got.step == Step::kChunk, "a good chunk is refused");
  require(got.offset == want.offset() && got.checksum == want.crc32c(), "the chunk differs");
  require(got.data.size() == want.data().size(), "the chunk's length differs");
  std::string data(got.data.size(), '\0');
  const uint32_t checksum = got.data.copy_to(data.data());
  require(data == want.data(), "the chunk's data differ");
  require(checksum == hash_of({reinterpret_cast<const uint8_t*>(data.data()), data.size()}), "the checksum is wrong");
}

}  // namespace

void unary_request(Bytes bytes) { unary<v1::DecomposeRequest>(Rpc::kDecompose, bytes); }

void eigen_request(Bytes bytes) { unary<v1::EigendecomposeRequest>(Rpc::kEigendecompose, bytes); }

void stream_request(Bytes bytes) {
  if (bytes.size() > kMaxBytes) return;
  stream<v1::DecomposeStreamRequest>(Rpc::kDecomposeStream, bytes);
  stream<v1::EigendecomposeStreamRequest>(Rpc::kEigendecomposeStream, bytes);
}

void large_request(Bytes bytes) {
  if (bytes.size() > kMaxBytes) return;
  grpc::ByteBuffer buffer = sliced(bytes);
  const server::DecodedLarge got = server::decode_large_request(&buffer, kMaxBytes);
  require(buffer.Length() == 0, "the bytes are kept");
  v1::DecomposeLargeRequest message;
  const bool good = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!good || message.step_case() == v1::DecomposeLargeRequest::STEP_NOT_SET) {
    return require(!got.error.ok() && got.step == Step::kNone, "a bad message is taken");
  }
  if (message.has_open()) return compare(message.open(), got);
  if (message.has_chunk()) return compare(message.chunk(), got);
  require(got.error.ok() && got.step == Step::kCommit, "a commit is refused");
}

}  // namespace svdserve::fuzz
