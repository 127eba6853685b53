// The contract of Decompose and GetServerInfo through a real server: rejections with code, field and reason, and
// replies. The server goes on after each.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kMessageLimit = 1 << 20;

class ContractTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = new RunningServer({"--max-message-bytes=1MiB", "--max-matrices=50000"});
    channel_ = connect(server_->address());
  }
  static void TearDownTestSuite() {
    channel_.reset();
    delete server_;
  }
  // The server answers as if nothing had been, and holds nothing back.
  void TearDown() override {
    v1::DecomposeResponse response;
    const grpc::Status status = decompose(channel_, random_request(2, 2, 3), &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.count(), 3);
    EXPECT_TRUE(wait_until([] { return server_->metric("svdserve_inflight_requests") == 0; }));
    EXPECT_EQ(server_->metric("svdserve_inflight_bytes"), 0);
  }

  static RunningServer* server_;
  static std::shared_ptr<grpc::Channel> channel_;
};

RunningServer* ContractTest::server_ = nullptr;
std::shared_ptr<grpc::Channel> ContractTest::channel_;

struct BadInput {
  const char* name;
  std::function<void(v1::DecomposeRequest*)> spoil;
  const char* field;
  const char* reason = "INVALID_FIELD";
};

void set_jacobi(v1::DecomposeRequest* r, double tolerance) {
  r->mutable_options()->set_method(v1::METHOD_JACOBI);
  r->mutable_options()->set_tolerance(tolerance);
}

void add_capacity(v1::DecomposeRequest* r, const std::vector<double>& snr_db) {
  v1::MimoOptions& mimo = *r->mutable_options()->mutable_mimo();
  mimo.set_capacity(true);
  mimo.mutable_snr_db()->Assign(snr_db.begin(), snr_db.end());
}

// The same batch `n` times over, as groups.
void move_to_groups(v1::DecomposeRequest* r, int n) {
  for (int i = 0; i < n; ++i) *r->add_groups() = r->matrices();
  r->clear_matrices();
}

void set_narrow(v1::DecomposeRequest* r, v1::DataType type, int32_t exponent) {
  v1::MatrixBatch& batch = *r->mutable_matrices();
  batch.set_data_type(type);
  batch.set_exponent(exponent);
  const size_t element = type == v1::DATA_TYPE_C32 || type == v1::DATA_TYPE_CI16 ? 4 : 2;
  batch.set_data(std::string(static_cast<size_t>(batch.rows() * batch.cols() * batch.count()) * element, '\0'));
}

const BadInput kBadInputs[] = {
    {"NoMatrices", [](v1::DecomposeRequest* r) { r->clear_matrices(); }, "matrices"},
    {"ZeroRows", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_rows(0); }, "matrices.rows"},
    {"NegativeRows", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_rows(-4); }, "matrices.rows"},
    {"ZeroCols", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_cols(0); }, "matrices.cols"},
    {"NegativeCols", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_cols(-1); }, "matrices.cols"},
    {"NegativeCount", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_count(-1); }, "matrices.count"},
    {"CountOverTheLimit", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_count(50001); }, "matrices.count"},
    {"HugeCount", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_count(INT64_MAX); }, "matrices.count"},
    {"TooManyRows", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_rows(16385); }, "matrices.rows"},
    {"HugeRows", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_rows(INT64_MAX); }, "matrices.rows"},
    {"TooManyCols", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_cols(16385); }, "matrices.cols"},
    {"DataTooShort", [](v1::DecomposeRequest* r) { r->mutable_matrices()->mutable_data()->pop_back(); },
     "matrices.data"},
    {"DataTooLong", [](v1::DecomposeRequest* r) { r->mutable_matrices()->mutable_data()->push_back('x'); },
     "matrices.data"},
    {"NoData", [](v1::DecomposeRequest* r) { r->mutable_matrices()->clear_data(); }, "matrices.data"},
    {"DataOfAnEmptyBatch", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_count(0); }, "matrices.data"},
    {"NoDataType", [](v1::DecomposeRequest* r) { r->mutable_matrices()->clear_data_type(); }, "matrices.data_type"},
    {"UnknownDataType",
     [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_data_type(static_cast<v1::DataType>(77)); },
     "matrices.data_type"},
    {"ExponentOfFloats", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_exponent(-1); }, "matrices.exponent"},
    {"ExponentOfHalves", [](v1::DecomposeRequest* r) { set_narrow(r, v1::DATA_TYPE_C32, 1); }, "matrices.exponent"},
    {"ExponentTooSmall", [](v1::DecomposeRequest* r) { set_narrow(r, v1::DATA_TYPE_I16, -127); }, "matrices.exponent"},
    {"ExponentTooLarge", [](v1::DecomposeRequest* r) { set_narrow(r, v1::DATA_TYPE_CI16, 113); }, "matrices.exponent"},
    {"HugeExponent", [](v1::DecomposeRequest* r) { set_narrow(r, v1::DATA_TYPE_I16, INT32_MIN); }, "matrices.exponent"},
    {"DataOfFloatsForHalves", [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_data_type(v1::DATA_TYPE_F16); },
     "matrices.data"},
    {"ExponentInAGroup",
     [](v1::DecomposeRequest* r) {
       move_to_groups(r, 2);
       r->mutable_groups(1)->set_exponent(3);
     },
     "groups[1].exponent"},
    {"NoMemoryOrder", [](v1::DecomposeRequest* r) { r->mutable_matrices()->clear_memory_order(); },
     "matrices.memory_order"},
    {"UnknownMemoryOrder",
     [](v1::DecomposeRequest* r) { r->mutable_matrices()->set_memory_order(static_cast<v1::MemoryOrder>(-3)); },
     "matrices.memory_order"},
    {"UnknownMethod", [](v1::DecomposeRequest* r) { r->mutable_options()->set_method(static_cast<v1::Method>(99)); },
     "options.method"},
    {"NegativeTolerance", [](v1::DecomposeRequest* r) { set_jacobi(r, -1e-3); }, "options.tolerance"},
    {"NanTolerance", [](v1::DecomposeRequest* r) { set_jacobi(r, std::nan("")); }, "options.tolerance"},
    {"ToleranceAboveOne", [](v1::DecomposeRequest* r) { set_jacobi(r, 1.5); }, "options.tolerance"},
    {"BisectionToleranceAboveAHalf",
     [](v1::DecomposeRequest* r) {
       set_jacobi(r, 0.6);
       r->mutable_options()->set_method(v1::METHOD_BISECTION);
     },
     "options.tolerance"},
    {"InfiniteTolerance", [](v1::DecomposeRequest* r) { set_jacobi(r, std::numeric_limits<double>::infinity()); },
     "options.tolerance"},
    {"ToleranceWithAuto", [](v1::DecomposeRequest* r) { r->mutable_options()->set_tolerance(1e-6); },
     "options.tolerance"},
    {"ToleranceWithBidiagonal",
     [](v1::DecomposeRequest* r) {
       set_jacobi(r, 1e-6);
       r->mutable_options()->set_method(v1::METHOD_BIDIAGONAL);
     },
     "options.tolerance"},
    {"SweepsWithBisection",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->set_method(v1::METHOD_BISECTION);
       r->mutable_options()->set_max_sweeps(4);
     },
     "options.max_sweeps"},
    {"NegativeSweeps",
     [](v1::DecomposeRequest* r) {
       set_jacobi(r, 0);
       r->mutable_options()->set_max_sweeps(-1);
     },
     "options.max_sweeps"},
    {"TooManySweeps",
     [](v1::DecomposeRequest* r) {
       set_jacobi(r, 0);
       r->mutable_options()->set_max_sweeps(1001);
     },
     "options.max_sweeps"},
    {"TopKBeyondK", [](v1::DecomposeRequest* r) { r->mutable_options()->set_top_k(4); }, "options.top_k"},
    {"NegativeTopK", [](v1::DecomposeRequest* r) { r->mutable_options()->set_top_k(-1); }, "options.top_k"},
    {"TopKOfFullBases",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->set_vectors(v1::VECTORS_FULL);
       r->mutable_options()->set_top_k(1);
     },
     "options.top_k"},
    {"UnknownVectors", [](v1::DecomposeRequest* r) { r->mutable_options()->set_vectors(static_cast<v1::Vectors>(4)); },
     "options.vectors"},
    {"VectorsWithBidiagonal",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->set_vectors(v1::VECTORS_THIN);
       r->mutable_options()->set_method(v1::METHOD_BIDIAGONAL);
     },
     "options.method"},
    {"VectorsWithBisection",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->set_vectors(v1::VECTORS_FULL);
       r->mutable_options()->set_method(v1::METHOD_BISECTION);
     },
     "options.method"},
    {"PhasesWithoutVectors", [](v1::DecomposeRequest* r) { r->mutable_options()->set_fix_phases(true); },
     "options.fix_phases"},
    {"CertificateWithoutVectors",
     [](v1::DecomposeRequest* r) { r->mutable_options()->set_certificate(v1::CERTIFICATE_SCOPE_BATCH); },
     "options.certificate"},
    {"UnknownCertificate",
     [](v1::DecomposeRequest* r) { r->mutable_options()->set_certificate(static_cast<v1::CertificateScope>(7)); },
     "options.certificate"},
    {"MimoWithoutAWish", [](v1::DecomposeRequest* r) { r->mutable_options()->mutable_mimo(); }, "options.mimo"},
    {"NanSnr",
     [](v1::DecomposeRequest* r) {
       add_capacity(r, {0, std::nan("")});
     },
     "options.mimo.snr_db"},
    {"InfiniteSnr", [](v1::DecomposeRequest* r) { add_capacity(r, {std::numeric_limits<double>::infinity()}); },
     "options.mimo.snr_db"},
    {"SnrBeyondAllReason", [](v1::DecomposeRequest* r) { add_capacity(r, {-301}); }, "options.mimo.snr_db"},
    {"NoSnr", [](v1::DecomposeRequest* r) { add_capacity(r, {}); }, "options.mimo.snr_db"},
    {"TooManySnrs", [](v1::DecomposeRequest* r) { add_capacity(r, std::vector<double>(65, 1)); },
     "options.mimo.snr_db"},
    {"SnrForNothing",
     [](v1::DecomposeRequest* r) {
       add_capacity(r, {1});
       r->mutable_options()->mutable_mimo()->set_capacity(false);
       r->mutable_options()->mutable_mimo()->set_effective_rank(true);
     },
     "options.mimo.snr_db"},
    {"RankThresholdOfOne", [](v1::DecomposeRequest* r) { r->mutable_options()->mutable_mimo()->set_rank_threshold(1); },
     "options.mimo.rank_threshold"},
    {"RankThresholdOfZero",
     [](v1::DecomposeRequest* r) { r->mutable_options()->mutable_mimo()->set_rank_threshold(0); },
     "options.mimo.rank_threshold"},
    {"GroupThatDoesNotDivide",
     [](v1::DecomposeRequest* r) {
       add_capacity(r, {1});
       r->mutable_options()->mutable_mimo()->set_group_size(2);
     },
     "matrices.count"},
    {"NegativeGroup",
     [](v1::DecomposeRequest* r) {
       add_capacity(r, {1});
       r->mutable_options()->mutable_mimo()->set_group_size(-1);
     },
     "options.mimo.group_size"},
    {"GroupOfNoCapacities",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->mutable_mimo()->set_condition_number(true);
       r->mutable_options()->mutable_mimo()->set_group_size(5);
     },
     "options.mimo.group_size"},
    {"PrecodersBeyondK", [](v1::DecomposeRequest* r) { r->mutable_options()->mutable_mimo()->set_precoder_columns(4); },
     "options.mimo.precoder_columns"},
    {"NegativeCombiners",
     [](v1::DecomposeRequest* r) { r->mutable_options()->mutable_mimo()->set_combiner_columns(-1); },
     "options.mimo.combiner_columns"},
    {"PrecodersAndVectors",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->mutable_mimo()->set_precoder_columns(1);
       r->mutable_options()->set_vectors(v1::VECTORS_THIN);
     },
     "options.vectors"},
    {"MatricesAndGroups", [](v1::DecomposeRequest* r) { *r->add_groups() = r->matrices(); }, "groups"},
    {"GroupWithoutRows",
     [](v1::DecomposeRequest* r) {
       move_to_groups(r, 4);
       r->mutable_groups(3)->set_rows(0);
     },
     "groups[3].rows"},
    {"AMethodThatTakesNoMoreThan32Values",
     [](v1::DecomposeRequest* r) {
       *r->mutable_matrices() = random_request(33, 64, 1).matrices();
       r->mutable_options()->set_method(v1::METHOD_BISECTION);
     },
     "options.method"},
    {"GroupWithoutItsData",
     [](v1::DecomposeRequest* r) {
       move_to_groups(r, 3);
       r->mutable_groups(2)->clear_data();
     },
     "groups[2].data"},
    {"GroupWithoutAType",
     [](v1::DecomposeRequest* r) {
       move_to_groups(r, 2);
       r->mutable_groups(0)->clear_data_type();
     },
     "groups[0].data_type"},
    {"MoreMatricesInGroupsThanTheLimit",
     [](v1::DecomposeRequest* r) {
       r->mutable_matrices()->set_rows(1);
       r->mutable_matrices()->set_cols(1);
       r->mutable_matrices()->set_data_type(v1::DATA_TYPE_F32);
       r->mutable_matrices()->set_count(26000);
       r->mutable_matrices()->set_data(std::string(26000 * 4, 'x'));
       move_to_groups(r, 2);
     },
     "groups"},
    {"TooManyGroups",
     [](v1::DecomposeRequest* r) {
       r->mutable_matrices()->set_count(0);
       r->mutable_matrices()->clear_data();
       move_to_groups(r, 4097);
     },
     "groups"},
    {"GroupsWhoseReplyIsTooLarge",
     [](v1::DecomposeRequest* r) {
       r->mutable_options()->set_vectors(v1::VECTORS_FULL);
       *r->mutable_matrices() = random_request(100, 1, 8).matrices();
       move_to_groups(r, 2);
     },
     "groups[1].count", "REPLY_TOO_LARGE"},
};

class BadInputTest : public ContractTest, public ::testing::WithParamInterface<BadInput> {};

TEST_P(BadInputTest, IsRefusedByFieldAndReason) {
  v1::DecomposeRequest request = random_request(4, 3, 5);
  GetParam().spoil(&request);
  v1::DecomposeResponse response;
  const grpc::Status status = decompose(channel_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  // A client that reads the message alone learns the field, too.
  EXPECT_THAT(status.error_message(), ::testing::StartsWith(std::string(GetParam().field) + ": "));
  const ErrorDetails details = details_of(status);
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(details.field, GetParam().field);
  EXPECT_EQ(details.reason, GetParam().reason);
  EXPECT_EQ(details.domain, "svdserve");
  EXPECT_EQ(details.retry_seconds, -1);
}

INSTANTIATE_TEST_SUITE_P(Contract, BadInputTest, ::testing::ValuesIn(kBadInputs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(ContractTest, MoreValuesThanTheLimitAreRefused) {
  v1::DecomposeResponse response;
  v1::DecomposeRequest request = random_request(4, 4, 1);
  request.mutable_matrices()->set_rows(513);
  request.mutable_matrices()->set_cols(513);
  const grpc::Status status = decompose(channel_, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(details_of(status).field, ::testing::AnyOf("matrices.rows", "matrices.cols"));
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("DecomposeLarge"));
}

TEST_F(ContractTest, SizesWhoseProductOverflowsAreRefused) {
  v1::DecomposeRequest request = random_request(4, 4, 1);
  request.mutable_matrices()->set_rows(int64_t{1} << 40);
  request.mutable_matrices()->set_cols(int64_t{1} << 40);
  request.mutable_matrices()->set_count(int64_t{1} << 40);
  v1::DecomposeResponse response;
  EXPECT_EQ(decompose(channel_, request, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ContractTest, AReplyOverTheMessageLimitIsRefusedBeforehand) {
  // One f32 value of a 1 x 1 matrix takes as many bytes as its operand; the reply adds a little to each.
  const int64_t count = 131000 / 1;
  RunningServer server({"--max-message-bytes=1MiB"});
  v1::DecomposeRequest request = random_request(1, 1, count);
  ASSERT_LT(static_cast<int64_t>(request.ByteSizeLong()), kMessageLimit);
  v1::DecomposeResponse response;
  const ErrorDetails details = details_of(decompose(connect(server.address()), request, &response));
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(details.field, "matrices.count");
  EXPECT_EQ(details.reason, "REPLY_TOO_LARGE");
}

TEST_F(ContractTest, AMessageOverTheLimitIsRefusedByTheTransport) {
  v1::DecomposeResponse response;
  const grpc::Status status = decompose(channel_, random_request(32, 32, 129), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

// Inflated by the transport, a message could be a thousand times as large as what was sent before anybody asks its
// size.
TEST_F(ContractTest, CompressedMessagesAreRefusedUnread) {
  v1::DecomposeRequest request = random_request(32, 32, 0);
  request.mutable_matrices()->set_count(32768);
  request.mutable_matrices()->mutable_data()->resize(256 << 20);
  const int64_t before = server_->peak_resident_bytes();
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::DecomposeResponse response;
    const grpc::Status status = v1::SvdService::NewStub(channel_)->Decompose(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  }
  EXPECT_LT(server_->peak_resident_bytes(), before + (128 << 20));
}

grpc::Status call_with_bytes(const std::shared_ptr<grpc::Channel>& channel, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice slice(bytes);
  const auto call =
      stub.PrepareUnaryCall(&context, "/svdserve.v1.SvdService/Decompose", grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}

TEST_F(ContractTest, BytesThatAreNoMessageAreRefused) {
  for (const std::string& bytes :
       {std::string("\xff\xff\xff\xff\xff"), std::string(1000, '\x0a'), std::string("\x0a\x7f")}) {
    const grpc::Status status = call_with_bytes(channel_, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_EQ(details_of(status).reason, "INVALID_FIELD");
  }
  // No bytes at all are an empty message: one without matrices.
  EXPECT_EQ(details_of(call_with_bytes(channel_, "")).field, "matrices");
}

TEST_F(ContractTest, AnEmptyBatchGetsAnEmptyAnswer) {
  v1::DecomposeResponse response;
  const grpc::Status status = decompose(channel_, random_request(4, 3, 0), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.count(), 0);
  EXPECT_EQ(response.values_per_matrix(), 3);
  EXPECT_TRUE(response.singular_values().empty());
  EXPECT_THAT(response.exception_indices(), IsEmpty());
}

TEST_F(ContractTest, KnownValuesInEveryOrderAndType) {
  // diag(3, 4) beside a zero column, by hand in each layout.
  const auto ask = [&](v1::DataType type, v1::MemoryOrder order, const void* data, size_t bytes) {
    v1::DecomposeRequest request;
    v1::MatrixBatch& batch = *request.mutable_matrices();
    batch.set_data_type(type);
    batch.set_memory_order(order);
    batch.set_rows(2);
    batch.set_cols(3);
    batch.set_count(1);
    batch.set_data(data, bytes);
    v1::DecomposeResponse response;
    const grpc::Status status = decompose(channel_, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.values_per_matrix(), 2);
    EXPECT_EQ(response.method(), v1::METHOD_BIDIAGONAL);
    EXPECT_EQ(response.device(), "host:0");
    EXPECT_GT(response.timing().total_seconds(), 0);
    EXPECT_GE(response.timing().total_seconds(), response.timing().compute_seconds());
    return response.singular_values();
  };
  const double rows[] = {3, 0, 0, 0, 4, 0}, columns[] = {3, 0, 0, 4, 0, 0};
  const double f64[] = {4, 3};
  const float f32[] = {4, 3};
  const std::string want64(reinterpret_cast<const char*>(f64), sizeof f64);
  const std::string want32(reinterpret_cast<const char*>(f32), sizeof f32);
  EXPECT_EQ(ask(v1::DATA_TYPE_F64, v1::MEMORY_ORDER_ROW_MAJOR, rows, sizeof rows), want64);
  EXPECT_EQ(ask(v1::DATA_TYPE_F64, v1::MEMORY_ORDER_COLUMN_MAJOR, columns, sizeof columns), want64);
  const float single[] = {3, 0, 0, 0, 4, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_F32, v1::MEMORY_ORDER_ROW_MAJOR, single, sizeof single), want32);
  const float complex_single[] = {0, 3, 0, 0, 0, 0, 0, 0, -4, 0, 0, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_C64, v1::MEMORY_ORDER_ROW_MAJOR, complex_single, sizeof complex_single), want32);
  const double complex_double[] = {0, 3, 0, 0, 0, 0, 0, 0, -4, 0, 0, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_C128, v1::MEMORY_ORDER_ROW_MAJOR, complex_double, sizeof complex_double), want64);
  // 16-bit numbers by their bits: 3 and 4, and -4.
  const uint16_t half[] = {0x4200, 0, 0, 0, 0x4400, 0}, bfloat[] = {0x4040, 0, 0, 0, 0x4080, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_F16, v1::MEMORY_ORDER_ROW_MAJOR, half, sizeof half), want32);
  EXPECT_EQ(ask(v1::DATA_TYPE_BF16, v1::MEMORY_ORDER_ROW_MAJOR, bfloat, sizeof bfloat), want32);
  const uint16_t complex_half[] = {0, 0x4200, 0, 0, 0, 0, 0, 0, 0xc400, 0, 0, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_C32, v1::MEMORY_ORDER_ROW_MAJOR, complex_half, sizeof complex_half), want32);
  const int16_t integers[] = {3, 0, 0, -4, 0, 0}, complex_integers[] = {0, 3, 0, 0, 0, 0, 0, 0, -4, 0, 0, 0};
  EXPECT_EQ(ask(v1::DATA_TYPE_I16, v1::MEMORY_ORDER_COLUMN_MAJOR, integers, sizeof integers), want32);
  EXPECT_EQ(ask(v1::DATA_TYPE_CI16, v1::MEMORY_ORDER_ROW_MAJOR, complex_integers, sizeof complex_integers), want32);
}

TEST_F(ContractTest, IntegersAreTimesAPowerOfTwo) {
  for (const int exponent : {-126, -15, 0, 112}) {
    v1::DecomposeRequest request;
    v1::MatrixBatch& batch = *request.mutable_matrices();
    batch.set_data_type(v1::DATA_TYPE_I16);
    batch.set_memory_order(v1::MEMORY_ORDER_ROW_MAJOR);
    batch.set_rows(1);
    batch.set_cols(1);
    batch.set_count(2);
    batch.set_exponent(exponent);
    const int16_t numbers[] = {1, -32768};
    batch.set_data(numbers, sizeof numbers);
    v1::DecomposeResponse response;
    EXPECT_TRUE(decompose(channel_, request, &response).ok());
    const float wanted[] = {std::ldexp(1.0f, exponent), std::ldexp(32768.0f, exponent)};
    EXPECT_EQ(response.singular_values(), std::string(reinterpret_cast<const char*>(wanted), sizeof wanted));
  }
}

TEST_F(ContractTest, NonFiniteMatricesHarmNobodyElse) {
  const v1::DecomposeRequest clean = random_request(5, 4, 40);
  v1::DecomposeRequest spoilt = clean;
  auto* elements = reinterpret_cast<double*>(spoilt.mutable_matrices()->mutable_data()->data());
  elements[7 * 20 + 3] = std::numeric_limits<double>::quiet_NaN();
  elements[31 * 20 + 19] = -std::numeric_limits<double>::infinity();
  for (const v1::Method method : {v1::METHOD_BIDIAGONAL, v1::METHOD_BISECTION, v1::METHOD_JACOBI}) {
    v1::DecomposeRequest a = clean, b = spoilt;
    a.mutable_options()->set_method(method);
    b.mutable_options()->set_method(method);
    v1::DecomposeResponse want, got;
    ASSERT_TRUE(decompose(channel_, a, &want).ok());
    ASSERT_TRUE(decompose(channel_, b, &got).ok());
    EXPECT_EQ(want.exception_indices_size(), 0);
    EXPECT_THAT(got.exception_indices(), ElementsAre(7, 31));
    EXPECT_THAT(got.exception_statuses(), ElementsAre(v1::MATRIX_STATUS_NON_FINITE, v1::MATRIX_STATUS_NON_FINITE));
    ASSERT_EQ(want.singular_values().size(), got.singular_values().size());
    for (size_t i = 0; i < 40; ++i) {
      const size_t at = i * 4 * sizeof(double);
      if (i == 7 || i == 31) {
        for (size_t v = 0; v < 4; ++v) EXPECT_TRUE(std::isnan(values_of(got)[4 * i + v]));
      } else {
        EXPECT_EQ(want.singular_values().substr(at, 32), got.singular_values().substr(at, 32)) << i;
      }
    }
  }
}

TEST_F(ContractTest, LargeReplyGoesOutWhole) {
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel_, random_request(2, 2, 30000), &response).ok());
  EXPECT_EQ(values_of(response).size(), 60000u);
  v1::DecomposeResponse last;
  v1::DecomposeRequest one = random_request(2, 2, 30000);
  const std::string tail = one.matrices().data().substr(29999 * 32);
  one.mutable_matrices()->set_data(tail);
  one.mutable_matrices()->set_count(1);
  ASSERT_TRUE(decompose(channel_, one, &last).ok());
  EXPECT_EQ(response.singular_values().substr(29999 * 16), last.singular_values());
}

TEST_F(ContractTest, ServerInfoTakesNoMoreThanItNeeds) {
  const auto ask = [](size_t bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    grpc::CompletionQueue queue;
    std::string fields;
    while (fields.size() + 3 <= bytes) fields.append("\xf8\x07\x01", 3);  // field 127, a number
    const grpc::Slice slice(fields);
    const grpc::ByteBuffer request(&slice, 1);
    const auto call = stub.PrepareUnaryCall(&context, "/svdserve.v1.SvdService/GetServerInfo", request, &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    EXPECT_TRUE(queue.Next(&tag, &ok));
    return status;
  };
  EXPECT_TRUE(ask(60000).ok());
  const grpc::Status status = ask(70000);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(details_of(status).reason, "INVALID_FIELD");
}

TEST_F(ContractTest, CapacityIsPlannedWithoutMatrices) {
  const auto plan = [](const v1::PlanCapacityRequest& request, v1::PlanCapacityResponse* response) {
    grpc::ClientContext context;
    return v1::SvdService::NewStub(channel_)->PlanCapacity(&context, request, response);
  };
  v1::PlanCapacityRequest request;
  v1::PlanCapacityResponse response;
  request.set_requests_per_second(100);
  *request.mutable_decompose() = random_request(4, 4, 1);
  v1::MatrixBatch& batch = *request.mutable_decompose()->mutable_matrices();
  batch.clear_data();
  batch.set_count(1000);
  ASSERT_TRUE(plan(request, &response).ok());
  ASSERT_EQ(response.devices_size(), 1);
  EXPECT_EQ(response.devices(0).device(), "host:0");
  EXPECT_GT(response.devices(0).request_seconds(), 0);
  EXPECT_GE(response.replicas(), 1);
  EXPECT_TRUE(response.reachable());
  EXPECT_EQ(response.max_message_bytes(), kMessageLimit);
  const v1::MatrixBatch without_data = batch;  // the next line frees the other member of the oneof
  *request.mutable_eigendecompose()->mutable_matrices() = without_data;
  request.mutable_eigendecompose()->mutable_options()->set_problem(v1::EIGEN_PROBLEM_GENERAL);
  request.mutable_eigendecompose()->mutable_matrices()->set_rows(4);
  request.mutable_eigendecompose()->mutable_matrices()->set_cols(4);
  request.mutable_eigendecompose()->mutable_matrices()->set_count(10);
  const grpc::Status planned = plan(request, &response);
  EXPECT_TRUE(planned.ok()) << planned.error_message();
  const auto field_of = [&](const v1::PlanCapacityRequest& bad) {
    const grpc::Status status = plan(bad, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    return details_of(status).field;
  };
  v1::PlanCapacityRequest bad = request;
  bad.set_requests_per_second(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(field_of(bad), "requests_per_second");
  bad = request;
  bad.set_latency_seconds(-1);
  EXPECT_EQ(field_of(bad), "latency_seconds");
  bad = request;
  bad.clear_request();
  EXPECT_EQ(field_of(bad), "request");
  *bad.mutable_decompose()->add_groups() = without_data;
  EXPECT_EQ(field_of(bad), "groups");
  *bad.mutable_decompose() = random_request(4, 4, 1);
  bad.mutable_decompose()->mutable_matrices()->set_cols(0);
  EXPECT_EQ(field_of(bad), "matrices.cols");
}

TEST_F(ContractTest, ServerInfoTellsTheLimits) {
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::SvdService::NewStub(channel_)->GetServerInfo(&context, {}, &info).ok());
  EXPECT_FALSE(info.version().empty());
  EXPECT_EQ(info.data_types_size(), v1::DataType_MAX);
  EXPECT_EQ(info.methods_size(), v1::Method_MAX);
  EXPECT_EQ(info.limits().max_values(), 512);
  EXPECT_EQ(info.limits().max_dimension(), 16384);
  EXPECT_EQ(info.limits().max_general_order(), 32);
  EXPECT_EQ(info.limits().max_hermitian_order(), 512);
  EXPECT_EQ(info.limits().max_matrices(), 50000);
  EXPECT_EQ(info.limits().max_message_bytes(), kMessageLimit);
  EXPECT_EQ(info.limits().max_stream_requests(), 64);
  EXPECT_EQ(info.limits().max_groups(), 4096);
  ASSERT_EQ(info.devices_size(), 1);
  EXPECT_EQ(info.devices(0).name(), "host:0");
  EXPECT_TRUE(info.devices(0).healthy());
  EXPECT_FALSE(info.draining());
}

}  // namespace
}  // namespace svdserve::testing
