// DecomposeLarge through the real server: a factor's way, its bad input, and clients that vanish.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/numerics/effort.h"
#include "tests/support/running_server.h"
#include "tests/support/wire.h"
#include "wire/crc32c.h"

namespace svdserve::testing {
namespace {

using Stream = grpc::ClientReaderWriter<v1::DecomposeLargeRequest, v1::DecomposeLargeResponse>;

// Address sanitizer keeps freed memory back: resident sizes mean nothing there.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kMemoryIsMeasured = false;
#else
constexpr bool kMemoryIsMeasured = true;
#endif

constexpr size_t kChunk = 1 << 20;
// The most that a client that takes nothing keeps in the server: the pieces of results partly in the transport.
constexpr double kInTransport = 12 << 20;

struct LargeCall {
  explicit LargeCall(const std::shared_ptr<grpc::Channel>& channel,
                     std::chrono::milliseconds limit = std::chrono::minutes(4))
      : stub(v1::SvdService::NewStub(channel)) {
    context.set_deadline(std::chrono::system_clock::now() + limit);
    stream = stub->DecomposeLarge(&context);
  }

  bool Open(const v1::LargeOpen& open) {
    v1::DecomposeLargeRequest request;
    *request.mutable_open() = open;
    return stream->Write(request);
  }
  bool Chunk(const std::string& operand, size_t offset, size_t bytes, uint32_t flip = 0) {
    v1::DecomposeLargeRequest request;
    v1::LargeChunk& chunk = *request.mutable_chunk();
    chunk.set_offset(static_cast<int64_t>(offset));
    chunk.set_data(operand.data() + offset, bytes);
    chunk.set_crc32c(crc32c(0, operand.data() + offset, bytes) ^ flip);
    return stream->Write(request);
  }
  bool Upload(const std::string& operand) {
    for (size_t at = 0; at < operand.size(); at += kChunk) {
      if (!Chunk(operand, at, std::min(kChunk, operand.size() - at))) return false;
    }
    return true;
  }
  bool Commit() {
    v1::DecomposeLargeRequest request;
    request.mutable_commit();
    return stream->Write(request);
  }
  std::optional<v1::DecomposeLargeResponse> Read() {
    v1::DecomposeLargeResponse response;
    if (!stream->Read(&response)) return std::nullopt;
    return response;
  }
  // Reads whatever comes until the end.
  grpc::Status Finish() {
    while (Read()) {
    }
    return stream->Finish();
  }

  std::unique_ptr<v1::SvdService::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<Stream> stream;
};

v1::LargeOpen open_of(int64_t rows, int64_t cols) {
  v1::LargeOpen open;
  open.set_data_type(v1::DATA_TYPE_F64);
  open.set_memory_order(v1::MEMORY_ORDER_COLUMN_MAJOR);
  open.set_rows(rows);
  open.set_cols(cols);
  return open;
}

std::string random_operand(int64_t elements, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::string bytes(static_cast<size_t>(elements) * sizeof(double), '\0');
  for (int64_t i = 0; i < elements; ++i) {
    const double x = normal(random);
    std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof x, &x, sizeof x);
  }
  return bytes;
}

std::vector<double> doubles_of(const std::string& bytes) {
  std::vector<double> out(bytes.size() / sizeof(double));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

// Everything that a client has at the end of a call that went well.
struct Collected {
  std::map<int, std::string> factors;
  std::vector<v1::LargeProgress> progress;
  v1::LargeSummary summary;
  grpc::Status status;
};

Collected collect(LargeCall* call) {
  Collected out;
  while (const auto response = call->Read()) {
    if (response->has_progress()) out.progress.push_back(response->progress());
    if (response->has_summary()) out.summary = response->summary();
    if (!response->has_factor_chunk()) continue;
    const v1::LargeFactorChunk& chunk = response->factor_chunk();
    EXPECT_EQ(chunk.crc32c(), crc32c(0, chunk.data().data(), chunk.data().size()));
    std::string& factor = out.factors[chunk.factor()];
    EXPECT_EQ(chunk.offset(), static_cast<int64_t>(factor.size()));
    factor += chunk.data();
  }
  out.status = call->stream->Finish();
  return out;
}

bool all_is_free(const RunningServer& server) {
  return wait_until([&] {
    return server.metric("svdserve_inflight_factors") == 0 && server.metric("svdserve_inflight_factor_bytes") == 0;
  });
}

// max |A - U S V^H| over max |A|, column-major, U m x k and V^H k x n.
double residual(const std::vector<double>& a, const Collected& got, int64_t m, int64_t n) {
  const auto u = doubles_of(got.factors.at(v1::LARGE_FACTOR_LEFT_VECTORS));
  const auto s = doubles_of(got.factors.at(v1::LARGE_FACTOR_SINGULAR_VALUES));
  const auto vh = doubles_of(got.factors.at(v1::LARGE_FACTOR_RIGHT_VECTORS_ADJOINT));
  const auto k = static_cast<int64_t>(s.size());
  double worst = 0, largest = 0;
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) {
      long double sum = 0;
      for (int64_t l = 0; l < k; ++l) sum += static_cast<long double>(u[i + l * m]) * s[l] * vh[l + j * k];
      worst = std::max(worst, std::abs(static_cast<double>(sum) - a[i + j * m]));
      largest = std::max(largest, std::abs(a[i + j * m]));
    }
  }
  return worst / largest;
}

TEST(LargeTest, ALargeMatrixGoesThereAndBack) {
  RunningServer server;
  LargeCall call(connect(server.address()));
  constexpr int64_t kRows = 600, kCols = 300;
  const std::string operand = random_operand(kRows * kCols);
  v1::LargeOpen open = open_of(kRows, kCols);
  open.mutable_options()->set_certificate(true);
  ASSERT_TRUE(call.Open(open));
  const auto accepted = call.Read();
  ASSERT_TRUE(accepted && accepted->has_accepted());
  EXPECT_EQ(accepted->accepted().operand_bytes(), static_cast<int64_t>(operand.size()));
  EXPECT_EQ(accepted->accepted().result_bytes(), 8 * (kRows * kCols + kCols + kCols * kCols));
  EXPECT_EQ(accepted->accepted().chunk_bytes(), static_cast<int64_t>(kChunk));
  EXPECT_EQ(server.metric("svdserve_inflight_factors"), 1);
  EXPECT_EQ(server.metric("svdserve_inflight_factor_bytes"), static_cast<double>(operand.size()));
  // In any order.
  ASSERT_TRUE(call.Chunk(operand, 1000000, operand.size() - 1000000));
  ASSERT_TRUE(call.Chunk(operand, 0, 999999));
  ASSERT_TRUE(call.Chunk(operand, 999999, 1));
  ASSERT_TRUE(call.Commit());
  call.stream->WritesDone();
  const Collected got = collect(&call);
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_LT(residual(doubles_of(operand), got, kRows, kCols), 1e-12);
  EXPECT_EQ(got.summary.values(), kCols);
  EXPECT_EQ(got.summary.left_columns(), kCols);
  EXPECT_EQ(got.summary.right_rows(), kCols);
  EXPECT_EQ(got.summary.status(), v1::MATRIX_STATUS_UNSPECIFIED);
  EXPECT_EQ(got.summary.device(), accepted->accepted().device());
  EXPECT_GE(got.summary.sweeps(), 1);
  EXPECT_GT(got.summary.timing().compute_seconds(), 0);
  EXPECT_TRUE(got.summary.has_certificate());
  ASSERT_FALSE(got.progress.empty());
  EXPECT_TRUE(std::is_sorted(got.progress.begin(), got.progress.end(),
                             [](const auto& a, const auto& b) { return a.fraction() < b.fraction(); }));
  EXPECT_TRUE(all_is_free(server));
  EXPECT_EQ(server.metric("svdserve_factor_received_bytes_total"), static_cast<double>(operand.size()));
  EXPECT_EQ(server.metric("svdserve_requests_total", {"rpc=\"DecomposeLarge\"", "status=\"OK\""}), 1);
  EXPECT_GE(server.metric("svdserve_factor_sweeps_total"), 1);
}

TEST(LargeTest, ValuesAloneAndAHyperbolicOne) {
  RunningServer server;
  const auto channel = connect(server.address());
  const std::string operand = random_operand(64 * 32);
  v1::LargeOpen open = open_of(64, 32);
  open.mutable_options()->set_vectors(v1::VECTORS_NONE);
  const auto run = [&] {
    LargeCall call(channel);
    EXPECT_TRUE(call.Open(open) && call.Upload(operand) && call.Commit());
    return collect(&call);
  };
  const Collected values = run();
  ASSERT_TRUE(values.status.ok()) << values.status.error_message();
  EXPECT_EQ(values.factors.size(), 1u);
  EXPECT_EQ(doubles_of(values.factors.at(v1::LARGE_FACTOR_SINGULAR_VALUES)).size(), 32u);
  open.clear_options();
  open.set_signature(std::string(20, '\x01') + std::string(12, '\xff'));
  const Collected hyperbolic = run();
  ASSERT_TRUE(hyperbolic.status.ok()) << hyperbolic.status.error_message();
  EXPECT_LT(residual(doubles_of(operand), hyperbolic, 64, 32), 1e-10);
}

TEST(LargeTest, LeadingTripletsComeFromASubspace) {
  RunningServer server;
  constexpr int64_t kRows = 400, kCols = 300, kLeading = 3;
  std::vector<double> a(kRows * kCols);
  for (int64_t j = 0; j < kCols; ++j) {  // of rank 3, nearly
    for (int64_t i = 0; i < kRows; ++i) {
      const auto x = static_cast<double>(i), y = static_cast<double>(j);
      a[static_cast<size_t>(i + j * kRows)] =
          std::sin(x) * std::cos(y) + std::sin(2 * x + y / 9) + 1e-9 * std::sin(x * y);
    }
  }
  const std::string operand(reinterpret_cast<const char*>(a.data()), a.size() * sizeof(double));
  v1::LargeOpen open = open_of(kRows, kCols);
  open.mutable_options()->set_top_k(kLeading);
  open.mutable_options()->set_certificate(true);
  LargeCall call(connect(server.address()));
  ASSERT_TRUE(call.Open(open));
  const auto accepted = call.Read();
  ASSERT_TRUE(accepted && accepted->has_accepted());
  EXPECT_EQ(accepted->accepted().result_bytes(), 8 * kLeading * (kRows + 1 + kCols));
  ASSERT_TRUE(call.Upload(operand) && call.Commit());
  const Collected got = collect(&call);
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.summary.values(), kLeading);
  EXPECT_EQ(got.summary.left_columns(), kLeading);
  EXPECT_EQ(got.summary.right_rows(), kLeading);
  EXPECT_EQ(got.summary.method(), v1::METHOD_AUTO);
  EXPECT_GT(got.summary.subspace_steps(), 0);
  EXPECT_EQ(got.summary.sweeps(), 0);
  EXPECT_LT(got.summary.certificate().residual(), 1e-12);
  EXPECT_EQ(doubles_of(got.factors.at(v1::LARGE_FACTOR_SINGULAR_VALUES)).size(), static_cast<size_t>(kLeading));
  EXPECT_EQ(doubles_of(got.factors.at(v1::LARGE_FACTOR_LEFT_VECTORS)).size(), static_cast<size_t>(kLeading * kRows));
  EXPECT_TRUE(all_is_free(server));
}

// Beside the operand and its results there are 64 MiB, for the program itself and for the transport, too.
TEST(LargeTest, ATallMatrixNeedsLittleBesideItself) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have memory of their own beside every byte";
#endif
  const int64_t m = 1 << 18, n = 64;
  const std::string operand = random_operand(m * n);
  for (const v1::MemoryOrder order : {v1::MEMORY_ORDER_COLUMN_MAJOR, v1::MEMORY_ORDER_ROW_MAJOR}) {
    RunningServer server;
    v1::LargeOpen open = open_of(m, n);
    open.set_memory_order(order);
    LargeCall call(connect(server.address()));
    ASSERT_TRUE(call.Open(open));
    ASSERT_TRUE(call.Read()->has_accepted());
    ASSERT_TRUE(call.Upload(operand));
    ASSERT_TRUE(call.Commit());
    const Collected got = collect(&call);
    ASSERT_TRUE(got.status.ok()) << got.status.error_message();
    const int64_t both = static_cast<int64_t>(sizeof(double)) * (m * n + m * n + n + n * n);
    const double beside = static_cast<double>(server.peak_resident_bytes() - both) / (1 << 20);
    std::printf("%s: %.1f MiB beside operand and results\n", v1::MemoryOrder_Name(order).c_str(), beside);
    EXPECT_LE(beside, 64);
    EXPECT_GE(beside, 0);  // both were in memory
  }
}

TEST(LargeTest, ServerInfoSaysHowMuchFits) {
  RunningServer server({"--max-large-bytes=8MiB"});
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::SvdService::NewStub(connect(server.address()))->GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.limits().max_large_bytes(), 6 << 20);  // the share of one client
}

TEST(LargeTest, AServerOfLittleMemoryTakesSmallLargeMatrices) {
  RunningServer server({"--max-large-bytes=1MiB", "--large-threads=1"});
  const std::string operand = random_operand(64 * 40);
  LargeCall call(connect(server.address()));
  ASSERT_TRUE(call.Open(open_of(64, 40)) && call.Upload(operand) && call.Commit());
  const Collected got = collect(&call);
  ASSERT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_LT(residual(doubles_of(operand), got, 64, 40), 1e-12);
}

// A factor that computes for long, on a server whose device takes one at a time, and calls that wait behind it.
struct Line {
  explicit Line(const std::vector<std::string>& flags) : server(flags), channel(connect(server.address())) {
    v1::LargeOpen open = open_of(kOrder, kOrder);
    open.mutable_options()->set_method(v1::METHOD_JACOBI);
    first = std::make_unique<LargeCall>(channel);
    EXPECT_TRUE(first->Open(open) && first->Upload(random_operand(kOrder * kOrder)) && first->Commit());
    EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_running_factors") == 1; }));
  }
  static constexpr int64_t kOrder = 3000;
  RunningServer server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<LargeCall> first;
};

TEST(LargeTest, ALargeMatrixWaitsBehindAnotherBeyondTheQueueTimeout) {
  Line line({"--queue-timeout=50ms", "--large-threads=1"});
  const std::string operand = random_operand(50 * 50);
  LargeCall call(line.channel);
  ASSERT_TRUE(call.Open(open_of(50, 50)) && call.Upload(operand) && call.Commit());
  int reports = 0;  // four a second: more than half a second of waiting
  while (reports < 4) {
    const auto response = call.Read();
    ASSERT_TRUE(response.has_value());
    reports += response->has_progress() && response->progress().stage() == v1::LARGE_STAGE_QUEUED;
  }
  line.first->context.TryCancel();
  EXPECT_TRUE(call.Finish().ok());
}

TEST(LargeTest, ALargeMatrixLeavesTheQueueAtItsDeadline) {
  Line line({"--large-threads=1"});
  const std::string operand = random_operand(50 * 50);
  LargeCall call(line.channel, std::chrono::seconds(2));
  ASSERT_TRUE(call.Open(open_of(50, 50)) && call.Upload(operand) && call.Commit());
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(wait_until([&] { return line.server.metric("svdserve_waiting_factors") == 0; }));
  EXPECT_EQ(line.server.metric("svdserve_running_factors"), 1);
  line.first->context.TryCancel();
}

TEST(LargeTest, ServerInfoSaysWhichDeviceComputesLargeMatrices) {
  Line line({"--large-threads=1", "--host-devices=2", "--threads=2"});
  LargeCall second(line.channel);
  ASSERT_TRUE(second.Open(open_of(50, 50)) && second.Upload(random_operand(50 * 50)) && second.Commit());
  ASSERT_TRUE(wait_until([&] { return line.server.metric("svdserve_waiting_factors") == 1; }));
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::SvdService::NewStub(line.channel)->GetServerInfo(&context, {}, &info).ok());
  ASSERT_EQ(info.devices_size(), 2);
  EXPECT_EQ(info.devices(0).running_factors(), 1);
  EXPECT_EQ(info.devices(0).waiting_factors(), 1);
  EXPECT_EQ(info.devices(0).outstanding_batches(), 0);
  EXPECT_EQ(info.devices(1).running_factors() + info.devices(1).waiting_factors(), 0);
  for (LargeCall* call : {line.first.get(), &second}) call->context.TryCancel();
}

// --- bad input ----------------------------------------------------------------------------------

struct BadInput {
  const char* name;
  std::function<void(LargeCall*, const std::string& operand)> act;  // after open, of 512 x 512
  grpc::StatusCode code;
  const char* reason;
  const char* field;
};

TEST(LargeTest, BadInputIsToldAndFreed) {
  constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
  const BadInput inputs[] = {
      {"overlap",
       [](LargeCall* c, const std::string& a) {
         c->Chunk(a, 0, 1000);
         c->Chunk(a, 999, 1000);
       },
       kInvalid, "CHUNK_OVERLAP", "chunk.offset"},
      {"gap",
       [](LargeCall* c, const std::string& a) {
         c->Chunk(a, 0, 1000);
         c->Chunk(a, 1008, kChunk);
         c->Chunk(a, 1008 + kChunk, a.size() - kChunk - 1008);
         c->Commit();
       },
       kInvalid, "UPLOAD_INCOMPLETE", "commit"},
      {"past the end",
       [](LargeCall* c, const std::string& a) {
         v1::DecomposeLargeRequest request;
         request.mutable_chunk()->set_offset(static_cast<int64_t>(a.size()) - 8);
         request.mutable_chunk()->set_data(a.data(), 16);
         request.mutable_chunk()->set_crc32c(crc32c(0, a.data(), 16));
         c->stream->Write(request);
       },
       kInvalid, "CHUNK_OUT_OF_RANGE", "chunk.offset"},
      {"checksum", [](LargeCall* c, const std::string& a) { c->Chunk(a, 0, kChunk, 1); }, grpc::StatusCode::DATA_LOSS,
       "CHUNK_CORRUPTED", "chunk.crc32c"},
      {"empty chunk", [](LargeCall* c, const std::string& a) { c->Chunk(a, 0, 0); }, kInvalid, "INVALID_FIELD",
       "chunk.data"},
      {"long chunk", [](LargeCall* c, const std::string& a) { c->Chunk(a, 0, kChunk + 1); }, kInvalid, "INVALID_FIELD",
       "chunk.data"},
      {"early commit",
       [](LargeCall* c, const std::string& a) {
         c->Chunk(a, 0, kChunk);
         c->Commit();
       },
       kInvalid, "UPLOAD_INCOMPLETE", "commit"},
      {"early end",
       [](LargeCall* c, const std::string& a) {
         c->Chunk(a, 0, kChunk);
         c->stream->WritesDone();
       },
       kInvalid, "UPLOAD_INCOMPLETE", "commit"},
      {"second open", [](LargeCall* c, const std::string&) { c->Open(open_of(2, 2)); }, kInvalid, "UNEXPECTED_MESSAGE",
       "open"},
      {"after commit",
       [](LargeCall* c, const std::string& a) {
         c->Upload(a);
         c->Commit();
         c->Chunk(a, 0, 8);
       },
       kInvalid, "UNEXPECTED_MESSAGE", "chunk"},
      {"no step", [](LargeCall* c, const std::string&) { c->stream->Write({}); }, kInvalid, "UNEXPECTED_MESSAGE", ""},
      {"not finite",
       [](LargeCall* c, std::string a) {
         const double nan = std::nan("");
         std::memcpy(a.data() + 8 * (3 * 512 + 7), &nan, sizeof nan);
         c->Upload(a);
         c->Commit();
       },
       kInvalid, "NON_FINITE", "chunk.data"},
  };
  RunningServer server;
  const auto channel = connect(server.address());
  const std::string operand = random_operand(512 * 512);
  for (const BadInput& input : inputs) {
    LargeCall call(channel);
    ASSERT_TRUE(call.Open(open_of(512, 512)));
    ASSERT_TRUE(call.Read().has_value());
    input.act(&call, operand);
    const ErrorDetails details = details_of(call.Finish());
    EXPECT_EQ(details.code, static_cast<int>(input.code)) << input.name << ": " << details.message;
    EXPECT_EQ(details.reason, input.reason) << input.name << ": " << details.message;
    EXPECT_EQ(details.field, input.field) << input.name;
    EXPECT_EQ(server.metric("svdserve_factor_failures_total", {std::string("reason=\"") + input.reason}) > 0, true);
    if (input.reason == std::string("NON_FINITE")) {
      EXPECT_NE(details.message.find("row 7 and column 3"), std::string::npos) << details.message;
    }
    EXPECT_TRUE(all_is_free(server)) << input.name;
  }
}

TEST(LargeTest, BadOpensAreRefusedBeforeAnyPayload) {
  RunningServer server({"--max-large-bytes=64MiB"});
  const auto channel = connect(server.address());
  const auto refused = [&](const std::function<void(v1::LargeOpen*)>& change, const char* reason, const char* field) {
    v1::LargeOpen open = open_of(100, 50);
    change(&open);
    LargeCall call(channel);
    EXPECT_TRUE(call.Open(open));
    EXPECT_FALSE(call.Read().has_value()) << field;
    const ErrorDetails details = details_of(call.stream->Finish());
    EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT)) << field << details.message;
    EXPECT_EQ(details.reason, reason) << details.message;
    EXPECT_EQ(details.field, field) << details.message;
    return details.message;
  };
  using Open = v1::LargeOpen;
  constexpr char kField[] = "INVALID_FIELD";
  refused([](Open* o) { o->set_rows(0); }, kField, "open.rows");
  refused([](Open* o) { o->set_cols(-1); }, kField, "open.cols");
  refused([](Open* o) { o->set_rows(int64_t{1} << 40); }, kField, "open.rows");
  refused([](Open* o) { o->set_data_type(v1::DATA_TYPE_UNSPECIFIED); }, kField, "open.data_type");
  refused([](Open* o) { o->set_data_type(static_cast<v1::DataType>(77)); }, kField, "open.data_type");
  refused([](Open* o) { o->clear_memory_order(); }, kField, "open.memory_order");
  refused([](Open* o) { o->mutable_options()->set_method(v1::METHOD_BISECTION); }, kField, "open.options.method");
  refused([](Open* o) { o->mutable_options()->set_top_k(51); }, kField, "open.options.top_k");
  refused([](Open* o) { o->mutable_options()->set_top_k(-1); }, kField, "open.options.top_k");
  refused([](Open* o) { o->mutable_options()->set_vectors(static_cast<v1::Vectors>(9)); }, kField,
          "open.options.vectors");
  refused([](Open* o) { o->mutable_options()->set_tolerance(-1); }, kField, "open.options.tolerance");
  refused([](Open* o) { o->mutable_options()->set_max_sweeps(-1); }, kField, "open.options.max_sweeps");
  refused([](Open* o) { o->mutable_options()->set_max_sweeps(1001); }, kField, "open.options.max_sweeps");
  refused([](Open* o) { o->mutable_options()->set_pivot_strategy(static_cast<v1::PivotStrategy>(40)); }, kField,
          "open.options.pivot_strategy");
  refused([](Open* o) { o->mutable_options()->set_block_variant(static_cast<v1::BlockVariant>(40)); }, kField,
          "open.options.block_variant");
  refused([](Open* o) { o->set_triangle(v1::TRIANGLE_UPPER); }, kField, "open.triangle");
  refused([](Open* o) { o->set_signature(std::string(49, '\1')); }, kField, "open.signature");
  refused([](Open* o) { o->set_signature(std::string(49, '\1') + '\0'); }, kField, "open.signature");
  refused([](Open* o) { o->set_signature(std::string(50, '\1')), o->set_rows(49); }, kField, "open.signature");
  const std::string message =
      refused([](Open* o) { o->set_rows(10000), o->set_cols(10000); }, "FACTOR_TOO_LARGE", "open.rows");
  EXPECT_NE(message.find("would fit"), std::string::npos) << message;
  EXPECT_TRUE(all_is_free(server));
}

TEST(LargeTest, AChunkFirstAndNothingAtAll) {
  RunningServer server;
  const auto channel = connect(server.address());
  LargeCall chunk(channel);
  chunk.Chunk(std::string(8, 'x'), 0, 8);
  EXPECT_EQ(details_of(chunk.Finish()).reason, "UNEXPECTED_MESSAGE");
  LargeCall nothing(channel);
  nothing.stream->WritesDone();
  EXPECT_EQ(details_of(nothing.Finish()).reason, "UNEXPECTED_MESSAGE");
}

TEST(LargeTest, AnotherLargeMatrixIsRefusedWhileMemoryIsTaken) {
  RunningServer server({"--max-large-bytes=100MiB", "--max-large-requests=100"});
  const auto channel = connect(server.address());
  LargeCall first(channel);
  ASSERT_TRUE(first.Open(open_of(512, 512)));
  ASSERT_TRUE(first.Read().has_value());
  std::vector<std::unique_ptr<LargeCall>> more;
  ErrorDetails details;
  for (int i = 0; i < 60 && details.code == 0; ++i) {  // operands of 2 MiB
    more.push_back(std::make_unique<LargeCall>(channel));
    ASSERT_TRUE(more.back()->Open(open_of(512, 512)));
    if (!more.back()->Read()) details = details_of(more.back()->stream->Finish());
  }
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(details.reason, "OVERLOADED_BYTES");
  EXPECT_GT(details.retry_seconds, 0);
  // Small requests have a ledger of their own.
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(channel, random_request(4, 4, 1000), &response).ok());
  first.context.TryCancel();
  for (const auto& call : more) call->context.TryCancel();
  EXPECT_TRUE(all_is_free(server));
}

// --- who goes, and when -------------------------------------------------------------------------

// The least of up to five times in seconds: the machine may have more to do than the server. One below `enough` ends it.
// Long runs judge times; other runs print them.
double fastest_of(const std::function<double()>& time, double enough) {
  double fastest = time();
  for (int i = 1; i < 5 && numerics::is_long_run() && fastest >= enough; ++i) fastest = std::min(fastest, time());
  return fastest;
}

// Cancels a factor at a point of its way; returns how long it took until all that it held was free.
double seconds_to_free(const RunningServer& server, const std::string& operand, int64_t n, const std::string& when) {
  const auto channel = connect_with_fixed_window(server.address());  // of a download most stays at the server
  LargeCall call(channel);
  EXPECT_TRUE(call.Open(open_of(n, n)) && call.Read());
  call.Upload(when == "upload" ? operand.substr(0, 8 * kChunk) : operand);
  if (when != "upload") {
    call.Commit();
    while (const auto response = call.Read()) {
      if (when == "download" ? response->has_factor_chunk() : response->progress().stage() > v1::LARGE_STAGE_QUEUED) {
        break;
      }
    }
  }
  EXPECT_EQ(server.metric("svdserve_inflight_factors"), 1) << when;
  const auto began = std::chrono::steady_clock::now();
  call.context.TryCancel();
  EXPECT_EQ(call.Finish().error_code(), grpc::StatusCode::CANCELLED);
  // Its answer comes after what is on the connection already, which nobody else of this process takes.
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(channel, random_request(4, 4, 1), &response).ok());
  EXPECT_TRUE(all_is_free(server)) << when;
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_running_factors") == 0; })) << when;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

TEST(LargeTest, CancellingFreesEverythingWithinASecond) {
  RunningServer server;
  const int64_t n = 1500;
  const std::string operand = random_operand(n * n);
  for (const char* when : {"upload", "compute", "download"}) {
    const double fastest = fastest_of([&] { return seconds_to_free(server, operand, n, when); }, 1);
    RecordProperty(std::string("freed_after_") + when, std::to_string(fastest));
    std::printf("cancelled during %s: freed after %.3f s\n", when, fastest);
    if (numerics::is_long_run()) {
      EXPECT_LT(fastest, 1) << when;
    }
  }
}

TEST(LargeTest, TwoHundredRandomKillsLeakNothing) {
  RunningServer server;
  const int64_t n = 200;
  const std::string operand = random_operand(n * n);
  std::mt19937 random(5);
  const auto kill_one = [&](const std::shared_ptr<grpc::Channel>& channel) {
    LargeCall call(channel);
    std::thread killer([&, wait = random() % 30000] {
      std::this_thread::sleep_for(std::chrono::microseconds(wait));
      call.context.TryCancel();
    });
    call.Open(open_of(n, n));
    for (size_t at = 0; at < operand.size(); at += 10000) {
      if (!call.Chunk(operand, at, std::min<size_t>(10000, operand.size() - at))) break;
    }
    call.Commit();
    call.Finish();
    killer.join();
  };
  const auto channel = connect(server.address());
  for (int i = 0; i < 100; ++i) kill_one(channel);
  EXPECT_TRUE(all_is_free(server));
  const int64_t resident = server.resident_bytes();
  for (int i = 0; i < 100; ++i) kill_one(i % 4 == 0 ? connect(server.address()) : channel);
  EXPECT_TRUE(all_is_free(server));
  // A factor and its results have a megabyte: a hundred lost ones would show.
  if (kMemoryIsMeasured) {
    EXPECT_LT(server.resident_bytes() - resident, 16 << 20);
  }
  LargeCall after(channel);
  ASSERT_TRUE(after.Open(open_of(n, n)) && after.Upload(operand) && after.Commit());
  EXPECT_TRUE(after.Finish().ok());
}

// The longest pause between twelve reports, which take 3 s, of a factor that computes and of one that waits for it.
double longest_pause(const std::shared_ptr<grpc::Channel>& channel, const v1::LargeOpen& open,
                     const std::string& operand) {
  LargeCall first(channel), second(channel);
  for (LargeCall* call : {&first, &second}) {
    EXPECT_TRUE(call->Open(open) && call->Read() && call->Upload(operand) && call->Commit());
  }
  double longest = 0;
  v1::LargeStage stage = v1::LARGE_STAGE_UNSPECIFIED, stage_of_second = stage;
  auto last = std::chrono::steady_clock::now();
  for (int i = 0; i < 12; ++i) {
    const auto one = first.Read(), other = second.Read();
    if (!one || !one->has_progress() || !other || !other->has_progress()) {
      ADD_FAILURE() << "the factor was done too soon to tell";
      break;
    }
    stage = one->progress().stage();
    stage_of_second = other->progress().stage();
    const auto now = std::chrono::steady_clock::now();
    longest = std::max(longest, std::chrono::duration<double>(now - last).count());
    last = now;
  }
  EXPECT_GT(stage, v1::LARGE_STAGE_QUEUED);
  EXPECT_EQ(stage_of_second, v1::LARGE_STAGE_QUEUED);
  for (LargeCall* call : {&first, &second}) call->context.TryCancel();
  return longest;
}

TEST(LargeTest, ProgressComesAtLeastOnceASecond) {
  RunningServer server({"--large-threads=1"});
  const auto channel = connect(server.address());
  const int64_t n = 2500;  // far longer than it is watched
  const std::string operand = random_operand(n * n);
  v1::LargeOpen open = open_of(n, n);
  open.mutable_options()->set_method(v1::METHOD_JACOBI);
  const double longest = fastest_of([&] { return longest_pause(channel, open, operand); }, 1);
  std::printf("longest pause between reports: %.3f s\n", longest);
  if (numerics::is_long_run()) {
    EXPECT_LT(longest, 1);
  }
}

TEST(LargeTest, ASmallRequestIsAnsweredWhileALargeMatrixRuns) {
  RunningServer server;
  const auto channel = connect(server.address());
  const int64_t n = 3000;
  const std::string operand = random_operand(n * n);
  v1::LargeOpen open = open_of(n, n);
  open.mutable_options()->set_method(v1::METHOD_JACOBI);
  const auto median_time = [&](const v1::DecomposeRequest& request) {
    std::vector<double> times;
    for (int i = 0; i < 51; ++i) {
      v1::DecomposeResponse response;
      const auto began = std::chrono::steady_clock::now();
      EXPECT_TRUE(decompose(channel, request, &response).ok());
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
    std::sort(times.begin(), times.end());
    return times[25];
  };
  // One that is computed where it is received, and one that takes a lane.
  const v1::DecomposeRequest requests[] = {random_request(4, 4, 1), random_request(4, 4, 20000)};
  const double alone[] = {median_time(requests[0]), median_time(requests[1])};
  LargeCall call(channel);
  ASSERT_TRUE(call.Open(open) && call.Read() && call.Upload(operand) && call.Commit());
  ASSERT_TRUE(wait_until([&] { return server.metric("svdserve_running_factors") == 1; }));
  for (size_t i = 0; i < 2; ++i) {
    const double beside = median_time(requests[i]);
    std::printf("%lld matrices: median %.1f ms, beside a factor %.1f ms\n",
                static_cast<long long>(requests[i].matrices().count()), 1e3 * alone[i], 1e3 * beside);
    if (numerics::is_long_run()) {
      EXPECT_LT(beside, 0.2 + 10 * alone[i]);
    }
  }
  EXPECT_EQ(server.metric("svdserve_running_factors"), 1) << "the factor was done too soon to tell";
  call.context.TryCancel();
}

TEST(LargeTest, DrainingFinishesAnAcceptedLargeMatrix) {
  RunningServer server;
  {
    LargeCall call(connect(server.address()));
    const int64_t n = 300;
    const std::string operand = random_operand(n * n);
    ASSERT_TRUE(call.Open(open_of(n, n)) && call.Read() && call.Upload(operand));
    server.signal(SIGTERM);
    ASSERT_TRUE(wait_until([&] { return server.log().find("draining") != std::string::npos; }));
    ASSERT_TRUE(call.Commit());
    EXPECT_TRUE(call.Finish().ok());
  }  // nobody reads the connection beyond its calls, so it would be waited for
  EXPECT_EQ(server.wait(), 0);
}

TEST(LargeTest, DrainingGivesUpALargeMatrixThatTakesTooLong) {
  RunningServer server({"--drain-timeout=500ms", "--large-threads=1"});
  LargeCall call(connect(server.address()));
  const int64_t n = 3000;
  const std::string operand = random_operand(n * n);
  v1::LargeOpen open = open_of(n, n);
  open.mutable_options()->set_method(v1::METHOD_JACOBI);
  ASSERT_TRUE(call.Open(open) && call.Read() && call.Upload(operand) && call.Commit());
  server.signal(SIGTERM);
  const ErrorDetails details = details_of(call.Finish());
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::UNAVAILABLE));
  EXPECT_EQ(details.reason, "DRAINING");
  EXPECT_EQ(server.wait(), 0);
}

// --- a client that takes nothing of its download ---------------------------------------------------

// A call over connect_with_fixed_window() whose results are far more than the transport takes without a reader, after
// the first chunk of them. Its operand is small: the upload is no matter of time.
std::unique_ptr<LargeCall> stuck_download(const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int64_t kRows = 2800, kCols = 16;  // U has 60 MiB
  const std::string operand = random_operand(kRows * kCols);
  v1::LargeOpen open = open_of(kRows, kCols);
  open.mutable_options()->set_vectors(v1::VECTORS_FULL);
  auto call = std::make_unique<LargeCall>(channel);
  EXPECT_TRUE(call->Open(open) && call->Upload(operand) && call->Commit());
  while (const auto response = call->Read()) {
    if (response->has_factor_chunk()) break;
  }
  return call;
}

TEST(LargeTest, AStalledDownloadIsGivenUpAndSaysWhy) {
  RunningServer server({"--large-idle-timeout=1s"});
  const auto channel = connect_with_fixed_window(server.address());
  const auto call = stuck_download(channel);
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_factor_failures_total", {"CLIENT_STALLED"}) == 1; }));
  EXPECT_EQ(server.metric("svdserve_inflight_factors"), 0);
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_factor_bytes") <= kInTransport; }));
  EXPECT_EQ(server.metric("svdserve_requests_total", {"rpc=\"DecomposeLarge\"", "status=\"DEADLINE_EXCEEDED\""}), 1);
  const grpc::Status status = call->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  EXPECT_THAT(
      status.error_message(),
      ::testing::StartsWith("CLIENT_STALLED: the client took less than 1 MiB of the replies within 1s (request "));
  v1::DecomposeResponse response;  // which comes after what is on the connection already
  EXPECT_TRUE(decompose(channel, random_request(4, 4, 1), &response).ok());
  EXPECT_TRUE(all_is_free(server));
}

TEST(LargeTest, TheServerEndsWhateverADownloadTakes) {
  RunningServer server({"--drain-timeout=1s"});
  const auto call = stuck_download(connect_with_fixed_window(server.address()));
  server.signal(SIGTERM);
  EXPECT_EQ(server.wait(), 0);
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace svdserve::testing
