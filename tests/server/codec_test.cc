// Requests and answers as bytes: what is asked arrives as it was asked, and every plane lands in its field.
#include "server/rpc/codec/codec.h"

#include <gmock/gmock.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <gtest/gtest.h>
#include <svdserve/v1/svd_service.pb.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "tests/server/wire_bytes.h"
#include "wire/planes.h"

namespace svdserve::server {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::SizeIs;

grpc::ByteBuffer bytes_of(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

template <class Message>
Message parsed(grpc::ByteBuffer bytes) {
  Message message;
  grpc::ProtoBufferReader reader(&bytes);
  EXPECT_TRUE(message.ParseFromZeroCopyStream(&reader));
  return message;
}

void fill(v1::MatrixBatch* batch, int64_t rows, int64_t cols, int64_t count, char mark) {
  batch->set_data_type(v1::DATA_TYPE_C64);
  batch->set_memory_order(v1::MEMORY_ORDER_COLUMN_MAJOR);
  batch->set_rows(rows);
  batch->set_cols(cols);
  batch->set_count(count);
  batch->set_data(std::string(static_cast<size_t>(rows * cols * count * 8), mark));
}

// Every option that the requests below ask for.
MimoOptions all_mimo_options() {
  MimoOptions mimo{
      .rank_threshold = 0.25, .snr_db = {-3, 10}, .group = 2, .precoder_columns = 3, .combiner_columns = 1};
  for (const MimoPlane& m : kMimoPlanes) mimo.*m.option = true;
  return mimo;
}

class CodecTest : public ::testing::Test {
 protected:
  DecodedRequest decode(const v1::DecomposeRequest& request) {
    grpc::ByteBuffer bytes = bytes_of(request);
    return decode_request(Rpc::kDecompose, &bytes, memory_);
  }
  const std::shared_ptr<HostMemory> memory_ = std::make_shared<HeapMemory>();
};

// --- requests ------------------------------------------------------------------------------------

TEST_F(CodecTest, NarrowOperandsArriveAsTheyAre) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 3, 4, 2, 'x');
  request.mutable_matrices()->set_data_type(v1::DATA_TYPE_CI16);
  request.mutable_matrices()->set_exponent(-12);
  const DecodedRequest decoded = decode(request);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_EQ(decoded.batches[0].problem, (Problem{3, 4, DType::kC64, Order::kColumnMajor, Storage::kI16, -12}));
  EXPECT_EQ(decoded.labels.dtype, OperandType::kCI16);
}

TEST_F(CodecTest, OptionsArriveAsTheyWereAsked) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 3, 4, 2, 'x');
  v1::DecomposeOptions& o = *request.mutable_options();
  o.set_method(v1::METHOD_JACOBI);
  o.set_tolerance(1e-3);
  o.set_max_sweeps(7);
  o.set_vectors(v1::VECTORS_THIN);
  o.set_top_k(2);
  o.set_fix_phases(true);
  o.set_certificate(v1::CERTIFICATE_SCOPE_MATRIX);
  v1::MimoOptions& m = *o.mutable_mimo();
  for (const wire::PlaneOnWire& plane : wire::kPlanesOnWire) {
    if (plane.option != 0) m.GetReflection()->SetBool(&m, m.GetDescriptor()->FindFieldByNumber(plane.option), true);
  }
  m.set_rank_threshold(0.25);
  m.add_snr_db(-3);
  m.add_snr_db(10);
  m.set_group_size(2);
  m.set_precoder_columns(3);
  m.set_combiner_columns(1);
  m.set_singular_values(true);
  const DecodedRequest decoded = decode(request);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_FALSE(decoded.has_groups);
  ASSERT_THAT(decoded.batches, SizeIs(1));
  Options expected;
  expected.method = Method::kJacobi;
  expected.tolerance = 1e-3;
  expected.max_sweeps = 7;
  expected.vectors = Vectors::kThin;
  expected.top_k = 2;
  expected.fix_phases = expected.certificate = true;
  expected.mimo = all_mimo_options();
  EXPECT_EQ(*decoded.batches[0].options, expected);
  EXPECT_EQ(decoded.memory->certificate_scope, CertificateScope::kMatrix);
}

TEST_F(CodecTest, WithoutOptionsTheValuesAreWanted) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 1, 1, 1, 'x');
  EXPECT_EQ(*decode(request).batches[0].options, Options{});
  request.mutable_options()->mutable_mimo();  // with them only what they name
  EXPECT_FALSE(decode(request).batches[0].options->values);
  EXPECT_EQ(decode(request).batches[0].options->mimo, MimoOptions{});
}

TEST_F(CodecTest, GroupsArriveInTheirOrder) {
  v1::DecomposeRequest request;
  fill(request.add_groups(), 3, 4, 2, 'a');
  fill(request.add_groups(), 1, 1, 0, 'b');
  fill(request.add_groups(), 2, 2, 5, 'c');
  request.mutable_options()->set_top_k(1);
  const DecodedRequest decoded = decode(request);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_TRUE(decoded.has_groups);
  ASSERT_THAT(decoded.batches, SizeIs(3));
  for (int i = 0; i < 3; ++i) {
    const Request& batch = decoded.batches[static_cast<size_t>(i)];
    EXPECT_EQ(batch.problem.rows, request.groups(i).rows());
    EXPECT_EQ(batch.count, request.groups(i).count());
    EXPECT_EQ(batch.options->top_k, 1);
    EXPECT_EQ(batch.options, decoded.batches[0].options);  // one for all
    EXPECT_EQ(batch.memory, decoded.memory);
    EXPECT_EQ(std::string(static_cast<const char*>(batch.payload), batch.payload_bytes), request.groups(i).data());
  }
}

TEST_F(CodecTest, MistakesAreNamed) {
  const auto field_of = [this](const std::function<void(v1::DecomposeRequest*)>& spoil) {
    v1::DecomposeRequest request;
    fill(request.add_groups(), 1, 1, 1, 'x');
    fill(request.add_groups(), 2, 2, 1, 'x');
    spoil(&request);
    return decode(request).error.field;
  };
  EXPECT_EQ(field_of([](auto* r) { r->mutable_groups(1)->clear_data_type(); }), "groups[1].data_type");
  EXPECT_EQ(field_of([](auto* r) { r->mutable_groups(0)->clear_memory_order(); }), "groups[0].memory_order");
  EXPECT_EQ(field_of([](auto* r) { fill(r->mutable_matrices(), 1, 1, 1, 'x'); }), "groups");
  EXPECT_EQ(field_of([](auto* r) { r->clear_groups(); }), "matrices");
  EXPECT_EQ(field_of([](auto* r) { r->mutable_options()->set_vectors(static_cast<v1::Vectors>(9)); }),
            "options.vectors");
  EXPECT_EQ(field_of([](auto* r) { r->mutable_options()->set_certificate(static_cast<v1::CertificateScope>(-1)); }),
            "options.certificate");
}

TEST_F(CodecTest, MistakesAreToldInPlainWords) {
  const auto message_of = [this](const std::function<void(v1::DecomposeRequest*)>& spoil) {
    v1::DecomposeRequest request;
    fill(request.mutable_matrices(), 1, 1, 1, 'x');
    spoil(&request);
    return decode(request).error.message;
  };
  EXPECT_EQ(message_of([](auto* r) { r->mutable_options()->set_method(static_cast<v1::Method>(99)); }),
            "unknown method 99");
  EXPECT_EQ(message_of([](auto* r) { r->mutable_matrices()->clear_data_type(); }), "must be set to a data type");
  EXPECT_EQ(message_of([](auto* r) { r->clear_matrices(); }),
            "a request needs matrices or groups, and this one has neither");
}

// --- eigenproblems -------------------------------------------------------------------------------

DecodedRequest decode_bytes(const std::string& bytes, const std::shared_ptr<HostMemory>& memory) {
  grpc::ByteBuffer buffer = buffer_of(bytes);
  return decode_request(Rpc::kDecompose, &buffer, memory);
}

DecodedRequest decode_eigen(const std::string& bytes, const std::shared_ptr<HostMemory>& memory) {
  grpc::ByteBuffer buffer = buffer_of(bytes);
  return decode_request(Rpc::kEigendecompose, &buffer, memory);
}

TEST_F(CodecTest, EigenproblemsArriveAsTheyWereAsked) {
  v1::EigendecomposeRequest request;
  fill(request.mutable_matrices(), 3, 3, 2, 'x');
  v1::EigendecomposeOptions& options = *request.mutable_options();
  options.set_problem(v1::EIGEN_PROBLEM_HERMITIAN);
  options.set_triangle(v1::TRIANGLE_UPPER);
  options.set_vectors(v1::EIGENVECTORS_RIGHT);
  options.set_method(v1::METHOD_JACOBI);
  options.set_tolerance(0.25);
  options.set_max_sweeps(9);
  options.set_fix_phases(true);
  options.set_certificate(v1::CERTIFICATE_SCOPE_MATRIX);
  const DecodedRequest decoded = decode_eigen(request.SerializeAsString(), memory_);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_EQ(decoded.labels.rpc, Rpc::kEigendecompose);
  EXPECT_EQ(decoded.labels.kind, Kind::kVectors);
  EXPECT_EQ(decoded.memory->certificate_scope, CertificateScope::kMatrix);
  const Options expected{.decomposition = Decomposition::kHermitian,
                         .triangle = Triangle::kUpper,
                         .method = Method::kJacobi,
                         .tolerance = 0.25,
                         .max_sweeps = 9,
                         .vectors = Vectors::kThin,
                         .fix_phases = true,
                         .certificate = true};
  EXPECT_EQ(*decoded.batches[0].options, expected);
}

TEST_F(CodecTest, StartingVectorsArriveBesideTheirMatrices) {
  v1::EigendecomposeRequest request;
  request.mutable_options()->set_problem(v1::EIGEN_PROBLEM_GENERAL);
  request.mutable_options()->set_condition(true);
  request.mutable_options()->set_starting_vectors(true);
  for (const char mark : {'a', 'b', 'c'}) {
    v1::MatrixBatch* const group = request.add_groups();
    fill(group, 3, 3, 2, mark);
    if (mark != 'b') group->set_starting_vectors(std::string(144, static_cast<char>(mark + 16)));
  }
  const DecodedRequest decoded = decode_eigen(request.SerializeAsString(), memory_);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  const Options expected{.decomposition = Decomposition::kGeneral, .condition = true, .starting_vectors = true};
  EXPECT_EQ(*decoded.batches[0].options, expected);
  for (int i = 0; i < 3; ++i) {
    const Request& batch = decoded.batches[static_cast<size_t>(i)];
    const auto text = [](const void* data, size_t size) { return std::string(static_cast<const char*>(data), size); };
    EXPECT_EQ(text(batch.payload, batch.payload_bytes), request.groups(i).data());
    EXPECT_EQ(text(batch.starting_vectors, batch.starting_vectors_bytes), request.groups(i).starting_vectors());
    EXPECT_EQ(batch.operand_bytes(), i == 1 ? 144u : 288u);
  }
}

TEST_F(CodecTest, OptionsOfTheOtherCallAreUnknownFields) {
  v1::DecomposeRequest svd;
  fill(svd.mutable_matrices(), 3, 3, 1, 'x');
  svd.mutable_options()->set_top_k(2);
  svd.mutable_options()->mutable_mimo()->set_capacity(true);
  v1::EigendecomposeRequest eigen;
  *eigen.mutable_matrices() = svd.matrices();
  eigen.mutable_options()->set_problem(v1::EIGEN_PROBLEM_HERMITIAN);
  eigen.mutable_options()->set_triangle(v1::TRIANGLE_UPPER);

  const DecodedRequest as_eigen = decode_eigen(svd.SerializeAsString(), memory_);
  EXPECT_EQ(as_eigen.error.field, "options.problem");
  EXPECT_EQ(as_eigen.error.message, "must be set to a problem");
  const DecodedRequest both = decode_eigen(svd.SerializeAsString() + eigen.SerializeAsString(), memory_);
  ASSERT_TRUE(both.error.ok()) << both.error.message;
  EXPECT_EQ(both.batches[0].options->top_k, 0);
  EXPECT_FALSE(both.batches[0].options->mimo.capacity);

  const DecodedRequest as_svd = decode_bytes(eigen.SerializeAsString(), memory_);
  ASSERT_TRUE(as_svd.error.ok()) << as_svd.error.message;
  EXPECT_EQ(*as_svd.batches[0].options, Options());
}

// --- what protobuf allows ------------------------------------------------------------------------

constexpr int kMatrices = v1::DecomposeRequest::kMatricesFieldNumber,
              kOptions = v1::DecomposeRequest::kOptionsFieldNumber;

DecodedRequest decode_of_stream(const std::string& bytes, const std::shared_ptr<HostMemory>& memory) {
  grpc::ByteBuffer buffer = buffer_of(bytes);
  return decode_stream_request(Rpc::kDecomposeStream, &buffer, memory);
}

TEST_F(CodecTest, FieldsThatComeAgainAreMergedAsProtobufDoes) {
  v1::DecomposeRequest first, second;
  fill(first.mutable_matrices(), 3, 4, 2, 'x');
  first.mutable_options()->mutable_mimo()->add_snr_db(1);
  first.mutable_options()->mutable_mimo()->set_capacity(true);
  first.mutable_options()->set_top_k(5);
  second.mutable_matrices()->set_rows(2);
  second.mutable_matrices()->set_data(std::string(128, 'y'));
  second.mutable_options()->mutable_mimo()->add_snr_db(2);
  second.mutable_options()->set_top_k(1);
  const std::string bytes = first.SerializeAsString() + second.SerializeAsString();
  const DecodedRequest decoded = decode_bytes(bytes, memory_);
  v1::DecomposeRequest merged;
  ASSERT_TRUE(merged.ParseFromString(bytes));
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  const Request& batch = decoded.batches[0];
  EXPECT_EQ(batch.problem.rows, 2);
  EXPECT_EQ(batch.problem.cols, 4);
  EXPECT_EQ(std::string(static_cast<const char*>(batch.payload), batch.payload_bytes), merged.matrices().data());
  EXPECT_EQ(batch.options->top_k, 1);
  EXPECT_TRUE(batch.options->mimo.capacity);
  EXPECT_THAT(batch.options->mimo.snr_db, ElementsAre(1, 2));
}

TEST_F(CodecTest, SnrsMayComeUnpacked) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 1, 1, 1, 'x');
  const std::string one("\x39\0\0\0\0\0\0\xf0\x3f", 9);  // snr_db: 1.0
  const DecodedRequest decoded =
      decode_bytes(request.SerializeAsString() + field(kOptions, field(8, one + one)), memory_);
  ASSERT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_THAT(decoded.batches[0].options->mimo.snr_db, ElementsAre(1, 1));
  const std::string torn = field(kOptions, field(8, field(7, std::string(12, 'x'))));
  EXPECT_FALSE(decode_bytes(torn, memory_).is_message);
}

TEST_F(CodecTest, UnknownFieldsAreSkipped) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 1, 1, 1, 'x');
  const std::string known = request.SerializeAsString();
  const std::string unknown("\xf8\x07\x01\xf3\x07\xf4\x07", 7);  // field 127: a number, an empty group
  const DecodedRequest decoded =
      decode_bytes(unknown + known + field(kOptions, unknown + field(8, unknown)) + field(kMatrices, unknown), memory_);
  EXPECT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_FALSE(decode_bytes(known + "\xf3\x07", memory_).is_message);  // a group without an end
}

TEST_F(CodecTest, AgreesWithProtobufOnDamagedBytes) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 2, 2, 1, 'x');
  request.mutable_options()->set_top_k(300);
  request.mutable_options()->set_max_sweeps(-1);
  request.mutable_options()->set_tolerance(0.5);
  v1::MimoOptions& mimo = *request.mutable_options()->mutable_mimo();
  mimo.set_capacity(true);
  mimo.set_rank_threshold(0.25);
  mimo.add_snr_db(-3);
  mimo.add_snr_db(10);
  const std::string whole = request.SerializeAsString();
  std::mt19937 random(7);
  int good = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string bytes = whole;
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    v1::DecomposeRequest parsed;
    const bool is_message = parsed.ParseFromString(bytes);
    const DecodedRequest decoded = decode_bytes(bytes, memory_);
    EXPECT_EQ(decoded.is_message, is_message) << i;
    if (!is_message || !decoded.error.ok()) continue;
    ++good;
    const Request& batch = decoded.batches[0];
    const v1::MatrixBatch& matrices = decoded.has_groups ? parsed.groups(0) : parsed.matrices();
    EXPECT_EQ(batch.problem.rows, matrices.rows()) << i;
    EXPECT_EQ(batch.problem.cols, matrices.cols()) << i;
    EXPECT_EQ(batch.count, matrices.count()) << i;
    EXPECT_EQ(std::string(static_cast<const char*>(batch.payload), batch.payload_bytes), matrices.data()) << i;
    EXPECT_EQ(batch.options->top_k, parsed.options().top_k()) << i;
    EXPECT_EQ(batch.options->max_sweeps, parsed.options().max_sweeps()) << i;
    EXPECT_EQ(batch.options->values, !parsed.options().has_mimo() || parsed.options().mimo().singular_values()) << i;
    EXPECT_EQ(batch.options->mimo.threshold_rank, parsed.options().mimo().has_rank_threshold()) << i;
    EXPECT_THAT(batch.options->mimo.snr_db, SizeIs(parsed.options().mimo().snr_db_size())) << i;
  }
  EXPECT_GT(good, 1000);
}

// --- limits --------------------------------------------------------------------------------------

TEST_F(CodecTest, LimitsAreCheckedWhileTheRequestIsRead) {
  v1::DecomposeRequest request;
  fill(request.add_groups(), 1, 1, 0, 'x');
  const std::string group = request.SerializeAsString();
  EXPECT_TRUE(decode_bytes(times(kMaxGroups, group), memory_).error.ok());
  EXPECT_EQ(decode_bytes(times(kMaxGroups + 1, group), memory_).error.field, "groups");
  EXPECT_TRUE(decode_bytes(group + snrs(kMaxSnrs), memory_).error.ok());
  EXPECT_EQ(decode_bytes(group + snrs(kMaxSnrs + 1), memory_).error.field, "options.mimo.snr_db");
  EXPECT_EQ(decode_bytes(group + times(kMaxSnrs + 1, snrs(1)), memory_).error.field, "options.mimo.snr_db");
  EXPECT_EQ(decode_bytes(group + snrs(8192), memory_).error.field, "options");  // more than 64 KiB
  // The rest is skipped, so it must still be a message.
  EXPECT_FALSE(decode_bytes(group + snrs(kMaxSnrs + 1) + "\xff", memory_).is_message);
}

TEST_F(CodecTest, ARequestOfAStreamBeyondALimitIsKnownByItsId) {
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 1, 1, 1, 'x');
  const std::string id("\x08\x2a", 2);
  const DecodedRequest decoded =
      decode_of_stream(field(2, snrs(kMaxSnrs + 1) + request.SerializeAsString()) + id, memory_);
  EXPECT_TRUE(decoded.is_message);
  EXPECT_EQ(decoded.request_id, 42u);
  EXPECT_EQ(decoded.error.field, "request.options.mimo.snr_db");
  const std::string timeout = field(3, std::string(70000, '\0'));
  EXPECT_EQ(decode_of_stream(id + field(2, request.SerializeAsString()) + timeout, memory_).error.field, "timeout");
}

// Counts what requests hold, and throws when it is told to.
class CountingMemory final : public HostMemory {
 public:
  void refuse_beyond(size_t bytes) { largest_ = bytes; }
  size_t blocks() const { return blocks_.size(); }
  size_t held() const { return held_; }

 private:
  void* take(size_t bytes) override {
    if (bytes > largest_) throw std::bad_alloc();
    held_ += bytes;
    void* const data = std::malloc(bytes);
    blocks_.emplace(data, bytes);
    return data;
  }
  void give(void* data) override {
    const auto block = blocks_.find(data);
    held_ -= block->second;
    blocks_.erase(block);
    std::free(data);
  }
  std::map<void*, size_t> blocks_;
  size_t largest_ = SIZE_MAX, held_ = 0;
};

TEST(Decode, WithoutMemoryARequestIsAnOverload) {
  const auto memory = std::make_shared<CountingMemory>();
  memory->refuse_beyond(1000);
  v1::DecomposeRequest request;
  fill(request.add_groups(), 1, 1, 100, 'x');
  fill(request.add_groups(), 1, 1, 1000, 'x');
  const DecodedRequest unary = decode_bytes(request.SerializeAsString(), memory);
  EXPECT_EQ(unary.error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(unary.error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(unary.error.retry_after, absl::ZeroDuration());
  const DecodedRequest streamed =
      decode_of_stream(field(2, request.SerializeAsString()) + std::string("\x08\x2a", 2), memory);
  EXPECT_EQ(streamed.error.reason, Reason::kOverloadedBytes);
  EXPECT_TRUE(streamed.is_message);
  EXPECT_EQ(streamed.request_id, 42u);
  EXPECT_EQ(memory->blocks(), 0u);  // what was read before is given back
}

TEST(Decode, DataThatComesAgainIsHeldOnce) {
  const auto memory = std::make_shared<CountingMemory>();
  v1::DecomposeRequest request;
  fill(request.mutable_matrices(), 1, 1, 1000, 'x');
  const std::string once = request.SerializeAsString();
  const DecodedRequest decoded = decode_bytes(times(100, once), memory);
  EXPECT_TRUE(decoded.error.ok()) << decoded.error.message;
  EXPECT_EQ(memory->held(), 8000u);
}

// --- answers -------------------------------------------------------------------------------------

Plan plan_of(const Problem& problem, const Options& options) {
  const PlanOrError planned = make_plan(problem, options);
  EXPECT_TRUE(planned.plan.has_value()) << planned.error.field << ": " << planned.error.message;
  return *planned.plan;
}

// Every byte of a plane of part i is 16 i + its index, but for the certificate, whose numbers are 0.5.
void fill(WireMemory* memory, const std::vector<ResultPart>& parts) {
  char* at = static_cast<char*>(memory->allocate_results(parts));
  for (size_t i = 0; i < parts.size(); ++i) {
    const PlanePointers planes = planes_in(parts[i].plan, at, parts[i].count);
    for (int p = 0; p < kPlanes; ++p) {
      const Plane plane = static_cast<Plane>(p);
      const size_t bytes = plane_bytes(parts[i].plan, plane, parts[i].count);
      if (bytes > 0) std::memset(planes[plane], static_cast<int>(16 * i) + p, bytes);
    }
    if (char* number = static_cast<char*>(planes[Plane::kCertificate])) {
      const float half = 0.5f;
      for (int64_t n = 0; n < kCertificateNumbers * parts[i].count; ++n) std::memcpy(number + n * 4, &half, 4);
    }
    at += result_bytes(parts[i]);
  }
}

void expect_plane(const std::string& field, const ResultPart& part, Plane plane, int first = 0) {
  EXPECT_EQ(field.size(), plane_bytes(part.plan, plane, part.count)) << index_of(plane);
  EXPECT_THAT(field, Each(static_cast<char>(first + index_of(plane)))) << index_of(plane);
}

const Problem kProblem{3, 5, DType::kC64, Order::kRowMajor};

Options everything() {
  Options options;
  options.fix_phases = options.certificate = true;
  options.mimo = all_mimo_options();
  return options;
}

Answer answered() {
  Answer answer;
  answer.method = Method::kJacobi;
  answer.devices = "host:0";
  answer.timing = {absl::Seconds(1), absl::Seconds(2), absl::Seconds(4)};
  answer.exceptions = {{1, MatrixStatus::kNotConverged}};
  return answer;
}

TEST(Encode, EveryPlaneLandsInItsField) {
  for (const int64_t count : {int64_t{2}, int64_t{600}}) {  // copied beside the head, and shared
    WireMemory memory(std::make_shared<HeapMemory>());
    memory.certificate_scope = CertificateScope::kMatrix;
    const ResultPart part{plan_of(kProblem, everything()), count};
    fill(&memory, {part});
    const auto r = parsed<v1::DecomposeResponse>(encode_response(answered(), memory));
    expect_plane(r.singular_values(), part, Plane::kValues);
    expect_plane(r.combiners(), part, Plane::kLeft);
    expect_plane(r.precoders(), part, Plane::kRight);
    expect_plane(r.mimo().capacity(), part, Plane::kCapacity);
    expect_plane(r.mimo().water_filling(), part, Plane::kWaterFilling);
    expect_plane(r.mimo().stream_snr(), part, Plane::kStreamSnr);
    expect_plane(r.mimo().condition_number(), part, Plane::kConditionNumber);
    expect_plane(r.mimo().effective_rank(), part, Plane::kEffectiveRank);
    expect_plane(r.mimo().threshold_rank(), part, Plane::kThresholdRank);
    EXPECT_THAT(r.certificate().each_matrix(), SizeIs(count * 3 * sizeof(float)));
    EXPECT_EQ(r.certificate().residual(), 0.5);
    EXPECT_TRUE(r.left_vectors().empty() && r.right_vectors_adjoint().empty());
    EXPECT_EQ(r.count(), count);
    EXPECT_EQ(r.values_per_matrix(), 3);
    EXPECT_EQ(r.left_columns(), 1);
    EXPECT_EQ(r.right_columns(), 3);
    EXPECT_EQ(r.method(), v1::METHOD_JACOBI);
    EXPECT_EQ(r.timing().total_seconds(), 4);
    EXPECT_THAT(r.exception_indices(), ElementsAre(1));
  }
}

TEST(Encode, VectorsHaveFieldsOfTheirOwn) {
  for (const Vectors vectors : {Vectors::kThin, Vectors::kFull}) {
    Options options;
    options.vectors = vectors;
    WireMemory memory(std::make_shared<HeapMemory>());
    const ResultPart part{plan_of(kProblem, options), 40};
    fill(&memory, {part});
    const auto r = parsed<v1::DecomposeResponse>(encode_response(answered(), memory));
    expect_plane(r.singular_values(), part, Plane::kValues);
    expect_plane(r.left_vectors(), part, Plane::kLeft);
    expect_plane(r.right_vectors_adjoint(), part, Plane::kRight);
    EXPECT_EQ(r.right_columns(), vectors == Vectors::kFull ? 5 : 3);
    EXPECT_TRUE(r.precoders().empty() && r.combiners().empty());
    EXPECT_FALSE(r.has_mimo() || r.has_certificate());
  }
}

TEST(Encode, CombinersAloneAreNoLeftVectors) {
  Options options;
  options.values = false;
  options.mimo.combiner_columns = 2;
  WireMemory memory(std::make_shared<HeapMemory>());
  const ResultPart part{plan_of(kProblem, options), 7};
  fill(&memory, {part});
  const auto r = parsed<v1::DecomposeResponse>(encode_response(answered(), memory));
  expect_plane(r.combiners(), part, Plane::kLeft);
  EXPECT_TRUE(r.left_vectors().empty() && r.precoders().empty() && r.singular_values().empty());
  EXPECT_EQ(r.values_per_matrix(), 0);
}

TEST(Encode, TheCertificateOfTheBatchComesWithoutThatOfEachMatrix) {
  Options options;
  options.vectors = Vectors::kThin;
  options.certificate = true;
  WireMemory memory(std::make_shared<HeapMemory>());
  memory.certificate_scope = CertificateScope::kBatch;
  fill(&memory, {{plan_of(kProblem, options), 4}});
  const auto r = parsed<v1::DecomposeResponse>(encode_response(answered(), memory));
  EXPECT_EQ(r.certificate().right_orthogonality(), 0.5);
  EXPECT_TRUE(r.certificate().each_matrix().empty());
}

TEST(Encode, EigenvalueConditionsHaveAFieldOfEigendecompose) {
  const Problem problem{3, 3, DType::kC64, Order::kRowMajor};
  WireMemory memory(std::make_shared<HeapMemory>());
  const ResultPart part{plan_of(problem, {.decomposition = Decomposition::kGeneral, .condition = true}), 2};
  fill(&memory, {part});
  Answer answer = answered();
  answer.exceptions = {{1, MatrixStatus::kNearDefective}};
  const auto r = parsed<v1::EigendecomposeResponse>(encode_response(answer, memory));
  expect_plane(r.eigenvalue_conditions(), part, Plane::kEigenvalueCondition);
  EXPECT_THAT(r.eigenvalue_conditions(), SizeIs(2 * 3 * sizeof(float)));
  EXPECT_THAT(r.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_NEAR_DEFECTIVE));
  EXPECT_TRUE(r.vectors().empty());
}

TEST(Encode, LargePlanesAreSentFromWhereTheyAre) {
  Options options;
  options.vectors = Vectors::kThin;
  WireMemory memory(std::make_shared<HeapMemory>());
  const ResultPart part{plan_of(kProblem, options), 1000};
  fill(&memory, {part});
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(encode_response(answered(), memory).Dump(&slices).ok());
  size_t shared = 0;
  for (const grpc::Slice& slice : slices) {
    const bool inside = slice.begin() >= memory.results().begin() && slice.end() <= memory.results().end();
    if (inside) shared += slice.size();
  }
  EXPECT_EQ(shared, result_bytes(part));
}

// Results that are large enough to be pinned lie in a block of the server's memory, which lives as long as the reply.
TEST(Encode, LargeResultsOutliveTheRequestInItsMemory) {
  const auto counted = std::make_shared<CountingMemory>();
  Options options;
  options.vectors = Vectors::kThin;
  const ResultPart part{plan_of(kProblem, options), 5000}, small{part.plan, 5};
  auto memory = std::make_unique<WireMemory>(counted);
  fill(memory.get(), {part});
  EXPECT_EQ(counted->held(), result_bytes(part));
  grpc::ByteBuffer reply = encode_response(answered(), *memory);
  memory.reset();
  EXPECT_EQ(counted->held(), result_bytes(part));
  const auto r = parsed<v1::DecomposeResponse>(reply);
  expect_plane(r.right_vectors_adjoint(), part, Plane::kRight);
  reply.Clear();
  EXPECT_EQ(counted->blocks(), 0u);
  WireMemory of_few(counted);
  fill(&of_few, {small});
  EXPECT_EQ(counted->blocks(), 0u);
}

TEST(Encode, WithoutMemoryForResultsTheRequestIsRejected) {
  const auto counted = std::make_shared<CountingMemory>();
  counted->refuse_beyond(1 << 20);
  WireMemory memory(counted);
  EXPECT_THROW(memory.allocate_results({{plan_of(kProblem, {}), 1 << 20}}), std::bad_alloc);
}

TEST(Encode, GroupsFollowEachOther) {
  Options options;
  options.vectors = Vectors::kThin;
  WireMemory memory(std::make_shared<HeapMemory>());
  const std::vector<ResultPart> parts{{plan_of(kProblem, options), 3},
                                      {plan_of({2, 2, DType::kF64, Order::kColumnMajor}, options), 100},
                                      {plan_of({1, 1, DType::kF32, Order::kRowMajor}, options), 0}};
  fill(&memory, parts);
  GroupsAnswer answer;
  answer.groups = {answered(), answered(), answered()};
  answer.groups[0].devices = "cuda:0";
  answer.total = absl::Seconds(9);
  for (const bool streamed : {false, true}) {
    v1::DecomposeResponse r;
    if (streamed) {
      const auto message = parsed<v1::DecomposeStreamResponse>(encode_stream_response(77, answer, &memory));
      EXPECT_EQ(message.request_id(), 77u);
      r = message.response();
    } else {
      r = parsed<v1::DecomposeResponse>(encode_response(answer, memory));
    }
    EXPECT_EQ(r.timing().total_seconds(), 9);
    ASSERT_EQ(r.groups_size(), 3);
    EXPECT_EQ(r.groups(0).device(), "cuda:0");
    for (int i = 0; i < 3; ++i) {
      const ResultPart& part = parts[static_cast<size_t>(i)];
      EXPECT_EQ(r.groups(i).count(), part.count);
      expect_plane(r.groups(i).singular_values(), part, Plane::kValues, 16 * i);
      expect_plane(r.groups(i).left_vectors(), part, Plane::kLeft, 16 * i);
      expect_plane(r.groups(i).right_vectors_adjoint(), part, Plane::kRight, 16 * i);
    }
  }
}

TEST(Encode, AStreamsErrorComesWithoutMemory) {
  Answer answer;
  answer.error = {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, "why", "request.matrices", {}};
  const auto message = parsed<v1::DecomposeStreamResponse>(encode_stream_response(5, answer, nullptr));
  EXPECT_EQ(message.request_id(), 5u);
  EXPECT_EQ(message.status().code(), 3);
  EXPECT_FALSE(message.has_response());
}

}  // namespace
}  // namespace svdserve::server
