#include "server/rpc/codec/large_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <svdserve/v1/svd_service.pb.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/server/wire_bytes.h"
#include "wire/crc32c.h"

namespace svdserve::server {
namespace {

using Step = DecodedLarge::Step;

// The bytes as the transport has them: in slices of `pieces` bytes.
grpc::ByteBuffer in_slices(const std::string& bytes, size_t pieces) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += pieces) slices.emplace_back(bytes.substr(at, pieces));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

DecodedLarge decode(const std::string& bytes, size_t pieces = 1 << 20) {
  grpc::ByteBuffer buffer = in_slices(bytes, pieces);
  return decode_large_request(&buffer, 2 << 20);
}
DecodedLarge decode(const v1::DecomposeLargeRequest& request) { return decode(request.SerializeAsString()); }

std::string random_bytes(size_t count) {
  std::mt19937_64 random(11);
  std::string bytes(count, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

TEST(LargeCodecTest, AChunkIsCopiedWholeHoweverItIsSliced) {
  for (const size_t size : {1, 511, 98304, 300000}) {
    v1::DecomposeLargeRequest request;
    v1::LargeChunk& chunk = *request.mutable_chunk();
    chunk.set_offset(int64_t{1} << 33);
    chunk.set_data(random_bytes(size));
    chunk.set_crc32c(0xdeadbeef);
    for (const size_t pieces : {7, 4096, 16384, 1 << 20}) {
      const DecodedLarge got = decode(request.SerializeAsString(), pieces);
      ASSERT_EQ(got.step, Step::kChunk);
      EXPECT_EQ(got.offset, int64_t{1} << 33);
      EXPECT_EQ(got.checksum, 0xdeadbeefu);
      ASSERT_EQ(got.data.size(), size);
      std::string copy(size + 1, '!');
      EXPECT_EQ(got.data.copy_to(copy.data()), crc32c_by_tables(0, chunk.data().data(), size));
      EXPECT_EQ(copy, chunk.data() + "!");
    }
  }
}

TEST(LargeCodecTest, FieldsMayComeInAnyOrderAndUnknownOnesAreSkipped) {
  v1::LargeChunk first, second;
  first.set_data("payload");
  second.set_crc32c(7);
  second.set_offset(24);
  const std::string unknown("\xa2\x06\x03zzz", 6);  // field 100
  const std::string body = first.SerializeAsString() + unknown + second.SerializeAsString();
  const DecodedLarge got = decode(unknown + '\x12' + static_cast<char>(body.size()) + body + unknown, 3);
  ASSERT_EQ(got.step, Step::kChunk) << got.error.message;
  EXPECT_EQ(got.offset, 24);
  EXPECT_EQ(got.checksum, 7u);
  std::string copy(7, '\0');
  got.data.copy_to(copy.data());
  EXPECT_EQ(copy, "payload");
}

TEST(LargeCodecTest, AnOpenWithEverything) {
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(v1::DATA_TYPE_C64);
  open.set_memory_order(v1::MEMORY_ORDER_ROW_MAJOR);
  open.set_rows(12);
  open.set_cols(7);
  open.set_signature(std::string("\x01\xff", 2));
  v1::LargeOptions& options = *open.mutable_options();
  options.set_method(v1::METHOD_JACOBI);
  options.set_tolerance(1e-9);
  options.set_max_sweeps(30);
  options.set_pivot_strategy(v1::PIVOT_STRATEGY_REVERSE_COLUMN_CYCLIC);
  options.set_block_variant(v1::BLOCK_VARIANT_FULL_BLOCK);
  options.set_certificate(true);
  options.set_top_k(5);
  open.set_problem(v1::LARGE_PROBLEM_HERMITIAN_FACTOR);
  open.set_triangle(v1::TRIANGLE_UPPER);
  open.set_starting_vectors(true);
  open.set_resume("0123456789abcdef");
  const DecodedLarge got = decode(request);
  ASSERT_EQ(got.step, Step::kOpen) << got.error.message;
  EXPECT_EQ(got.open.problem, (Problem{12, 7, DType::kC64, Order::kRowMajor}));
  EXPECT_EQ(got.open.signature, std::string("\x01\xff", 2));
  EXPECT_EQ(got.open.resume, "0123456789abcdef");
  LargeOptions want;
  want.method = Method::kJacobi;
  want.vectors = Vectors::kThin;  // the default
  want.tolerance = 1e-9;
  want.max_sweeps = 30;
  want.strategy = PivotStrategy::kReverseColumnCyclic;
  want.variant = BlockVariant::kFullBlock;
  want.certificate = true;
  want.top_k = 5;
  want.triangle = Triangle::kUpper;
  want.starting_vectors = true;
  EXPECT_EQ(got.open.options, want);
  EXPECT_EQ(got.open.decomposition, LargeProblem::kHermitianFactor);
  open.set_problem(static_cast<v1::LargeProblem>(9));
  EXPECT_EQ(decode(request).error.field, "open.problem");
  open.clear_problem();
  open.set_triangle(static_cast<v1::Triangle>(3));
  EXPECT_EQ(decode(request).error.field, "open.triangle");
}

TEST(LargeCodecTest, LargeMatricesHaveNo16BitNumbers) {
  v1::DecomposeLargeRequest request;
  for (int type = v1::DATA_TYPE_F16; type <= v1::DATA_TYPE_CI16; ++type) {
    request.mutable_open()->set_data_type(static_cast<v1::DataType>(type));
    EXPECT_EQ(decode(request).error.field, "open.data_type");
    EXPECT_THAT(decode(request).error.message, testing::HasSubstr("is for batches alone; convert the matrix to"));
  }
}

TEST(LargeCodecTest, EveryStrategyHasAName) {
  for (int s = v1::PivotStrategy_MIN; s <= v1::PivotStrategy_MAX; ++s) {
    v1::DecomposeLargeRequest request;
    request.mutable_open()->set_data_type(v1::DATA_TYPE_F32);
    request.mutable_open()->set_memory_order(v1::MEMORY_ORDER_ROW_MAJOR);
    request.mutable_open()->mutable_options()->set_pivot_strategy(static_cast<v1::PivotStrategy>(s));
    const DecodedLarge got = decode(request);
    ASSERT_EQ(got.step, Step::kOpen);
    EXPECT_EQ(static_cast<int>(got.open.options.strategy), s) << "they are numbered alike";
  }
}

TEST(LargeCodecTest, WhatIsNoMessage) {
  v1::DecomposeLargeRequest chunk;
  chunk.mutable_chunk()->set_data(std::string(1000, 'x'));
  const std::string whole = chunk.SerializeAsString();
  for (size_t cut = 1; cut < whole.size(); cut += 97) {
    const DecodedLarge got = decode(whole.substr(0, cut));
    EXPECT_EQ(got.step, Step::kNone);
    EXPECT_EQ(got.error.reason, Reason::kInvalidField);
  }
  EXPECT_EQ(decode(std::string("\xff\xff\xff\xff")).step, Step::kNone);
  EXPECT_EQ(decode(std::string("\x12\x0b\x12\xff\xff\xff\xff\x07zzzzz")).step, Step::kNone);  // 2 GiB are announced
  EXPECT_EQ(decode(std::string()).error.reason, Reason::kUnexpectedMessage);
  v1::DecomposeLargeRequest commit;
  commit.mutable_commit();
  EXPECT_EQ(decode(commit).step, Step::kCommit);
}

TEST(LargeCodecTest, RandomBytesDoNoHarm) {
  std::mt19937 random(2);
  v1::DecomposeLargeRequest chunk;
  chunk.mutable_chunk()->set_data(std::string(200, 'x'));
  chunk.mutable_chunk()->set_offset(1 << 20);
  chunk.mutable_chunk()->set_crc32c(99);
  const std::string whole = chunk.SerializeAsString();
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = whole;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      bytes[random() % 24] = static_cast<char>(random());
    }
    const DecodedLarge got = decode(bytes, 1 + random() % 64);
    if (got.step != Step::kChunk) continue;
    std::string copy(got.data.size(), '\0');
    got.data.copy_to(copy.data());
  }
}

TEST(LargeCodecTest, AMessageBeyondTheLimitIsNotRead) {
  v1::DecomposeLargeRequest request;
  request.mutable_chunk()->set_data(std::string(1000, 'x'));
  const std::string bytes = request.SerializeAsString();
  grpc::ByteBuffer fits = buffer_of(bytes), is_too_long = buffer_of(bytes);
  EXPECT_EQ(decode_large_request(&fits, bytes.size()).step, Step::kChunk);
  const DecodedLarge got = decode_large_request(&is_too_long, bytes.size() - 1);
  EXPECT_EQ(got.step, Step::kNone);
  EXPECT_EQ(got.error.code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(is_too_long.Length(), 0u);
}

TEST(LargeCodecTest, ASignatureMayBeLongAndOptionsMayNot) {
  v1::DecomposeLargeRequest request;
  v1::LargeOpen& open = *request.mutable_open();
  open.set_data_type(v1::DATA_TYPE_F64);
  open.set_memory_order(v1::MEMORY_ORDER_COLUMN_MAJOR);
  open.set_signature(std::string(1 << 20, '\x01'));
  EXPECT_EQ(decode(request).open.signature.size(), size_t{1} << 20);
  const std::string unknown = field(5, times(20000, std::string("\xf8\x07\x01\x00", 4)));
  EXPECT_EQ(decode(field(1, open.SerializeAsString() + unknown)).error.field, "open.options");
  EXPECT_EQ(decode(field(1, open.SerializeAsString() + field(5, std::string("\xf8\x07\x01", 3)))).step, Step::kOpen);
}

// --- replies ------------------------------------------------------------------------------------

v1::DecomposeLargeResponse parsed(const LargeReply& reply, const KnownChecksum& known = {}) {
  grpc::Slice whole;
  EXPECT_TRUE(encode_large_response(reply, known).DumpToSingleSlice(&whole).ok());
  v1::DecomposeLargeResponse response;
  EXPECT_TRUE(response.ParseFromArray(whole.begin(), static_cast<int>(whole.size())));
  return response;
}

TEST(LargeCodecTest, AChunkOfAResultIsASliceThatHoldsItsMemory) {
  const LargePlan plan = *plan_large({300, 100, DType::kF64, Order::kColumnMajor}, {}).plan;
  LargeResultChunk chunk;
  const std::string data = random_bytes(100000);
  const auto memory = LargeMemory::make(plan, {}, {});
  ASSERT_TRUE(memory->map_results(plan));
  std::copy(data.begin(), data.end(), memory->result(LargeResult::kLeft).data() + 8000);
  chunk.piece = memory->take_results().at(1);
  chunk.result = LargeResult::kLeft;
  chunk.offset = 8000;
  chunk.data = chunk.piece->block.data() + 8000;
  chunk.bytes = data.size();
  const v1::LargeFactorChunk got = parsed(chunk).factor_chunk();
  EXPECT_EQ(got.factor(), v1::LARGE_FACTOR_LEFT_VECTORS);
  EXPECT_EQ(got.offset(), 8000);
  EXPECT_EQ(got.data(), data);
  EXPECT_EQ(got.crc32c(), crc32c_by_tables(0, data.data(), data.size()));
  // In place, and kept: the message has a slice that begins where the result does.
  grpc::ByteBuffer message = encode_large_response(chunk);
  const std::weak_ptr<const ResultPiece> watch = chunk.piece;
  const char* const begin = chunk.data;
  chunk = {};
  EXPECT_FALSE(watch.expired());
  {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(message.Dump(&slices).ok());
    bool in_place = false;
    for (const grpc::Slice& slice : slices)
      in_place = in_place || reinterpret_cast<const char*>(slice.begin()) == begin;
    EXPECT_TRUE(in_place);
  }
  message.Clear();
  EXPECT_TRUE(watch.expired());
}

TEST(LargeCodecTest, AChecksumThatIsKnownIsTakenForTheVeryChunk) {
  const std::string data = random_bytes(3000);
  LargeResultChunk chunk, next;
  chunk.data = data.data();
  chunk.bytes = 1000;
  next.data = data.data() + 1000;
  next.bytes = 1000;
  const uint32_t right = crc32c_by_tables(0, data.data(), 1000);
  KnownChecksum known = checksum_of(chunk);
  EXPECT_EQ(known.value, right);
  EXPECT_EQ(parsed(chunk, known).factor_chunk().crc32c(), right);
  EXPECT_EQ(parsed(next, known).factor_chunk().crc32c(), crc32c_by_tables(0, data.data() + 1000, 1000));
  chunk.bytes = 999;
  EXPECT_EQ(parsed(chunk, known).factor_chunk().crc32c(), crc32c_by_tables(0, data.data(), 999));
  known = checksum_of(next);
  known.value = 7;  // it is not computed again
  EXPECT_EQ(parsed(next, known).factor_chunk().crc32c(), 7u);
}

TEST(LargeCodecTest, ProgressAndSummary) {
  LargeAccepted accepted;
  accepted.predicted = absl::Milliseconds(250);
  EXPECT_EQ(parsed(accepted).accepted().predicted_seconds(), 0.25);

  LargeProgressReport progress;
  progress.queued = true;
  progress.elapsed = absl::Seconds(3);
  EXPECT_EQ(parsed(progress).progress().stage(), v1::LARGE_STAGE_QUEUED);
  EXPECT_EQ(parsed(progress).progress().elapsed_seconds(), 3);
  progress.queued = false;
  progress.factor.stage = LargeStage::kFinish;
  progress.factor.off_diagonal = 0.5;
  progress.device = "cuda:0,cuda:1";
  EXPECT_EQ(parsed(progress).progress().device(), "cuda:0,cuda:1");
  EXPECT_EQ(parsed(progress).progress().stage(), v1::LARGE_STAGE_FINISH);
  EXPECT_EQ(parsed(progress).progress().off_diagonal(), 0.5);

  LargeSummary summary;
  LargeOptions options;
  options.certificate = true;
  summary.plan = *plan_large({30, 10, DType::kF64, Order::kColumnMajor}, options).plan;
  summary.outcome.status = LargeStatus::kNotConverged;
  summary.outcome.warm_started = true;
  summary.outcome.residual = 2;
  summary.outcome.phases = {{"qr", 1.5, 3e9}};
  summary.timing.queue = absl::Milliseconds(1500);
  const v1::LargeSummary got = parsed(summary).summary();
  EXPECT_EQ(got.status(), v1::MATRIX_STATUS_NOT_CONVERGED);
  EXPECT_EQ(got.method(), v1::METHOD_AUTO);
  EXPECT_EQ(got.values(), 10);
  EXPECT_EQ(got.certificate().residual(), 2);
  EXPECT_EQ(got.timing().queue_seconds(), 1.5);
  EXPECT_EQ(got.subspace_steps(), 0);
  ASSERT_EQ(got.phases_size(), 1);
  EXPECT_EQ(got.phases(0).name(), "qr");
  summary.outcome.status = LargeStatus::kOk;
  summary.outcome.warm_started = false;
  EXPECT_EQ(parsed(summary).summary().method(), v1::METHOD_JACOBI);
  summary.outcome.subspace_steps = 5;
  EXPECT_EQ(parsed(summary).summary().method(), v1::METHOD_AUTO);
  EXPECT_EQ(parsed(summary).summary().subspace_steps(), 5);
  EXPECT_EQ(got.members(), 1);
  summary.outcome.members = 4;
  EXPECT_EQ(parsed(summary).summary().members(), 4);
  summary.outcome.out_of_range = true;
  summary.plan.options.certificate = false;
  EXPECT_EQ(parsed(summary).summary().status(), v1::MATRIX_STATUS_OUT_OF_RANGE);
  EXPECT_FALSE(parsed(summary).summary().has_certificate());
}

TEST(LargeCodecTest, SummariesOfGeneralEigenproblemsNameQr) {
  LargeSummary summary;
  summary.plan =
      *plan_large({10, 10, DType::kF64, Order::kColumnMajor}, {.kind = LargeKind::kGeneral, .vectors = Vectors::kFull})
           .plan;
  const auto to = parsed(summary).summary();
  EXPECT_EQ(to.method(), v1::METHOD_QR);
  EXPECT_EQ(to.left_columns(), 10);
  EXPECT_EQ(to.right_rows(), 10);
}

TEST(LargeCodecTest, SummariesOfJacobiNameQrWhereItHasTheResults) {
  for (const auto& [used, named] :
       {std::pair(Method::kQr, v1::METHOD_QR), std::pair(Method::kJacobi, v1::METHOD_JACOBI)}) {
    LargeSummary summary;
    summary.plan = *plan_large({10, 10, DType::kF64, Order::kColumnMajor},
                               {.kind = LargeKind::kGeneral, .method = Method::kJacobi})
                        .plan;
    summary.outcome.method = used;
    summary.outcome.sweeps = 4;
    const auto to = parsed(summary).summary();
    EXPECT_EQ(to.method(), named);
    EXPECT_EQ(to.sweeps(), 4);
  }
}

TEST(LargeCodecTest, SummariesOfEigenproblemsNameTheMethod) {
  for (const auto& [asked, used] :
       {std::pair(Method::kAuto, v1::METHOD_TRIDIAGONAL), std::pair(Method::kFactored, v1::METHOD_FACTORED),
        std::pair(Method::kJacobi, v1::METHOD_JACOBI)}) {
    LargeOptions options;
    options.kind = LargeKind::kHermitian;
    options.method = asked;
    LargeSummary summary;
    summary.plan = *plan_large({10, 10, DType::kF64, Order::kColumnMajor}, options).plan;
    EXPECT_EQ(parsed(summary).summary().method(), used);
  }
}

}  // namespace
}  // namespace svdserve::server
