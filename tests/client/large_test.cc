// Large factors against a service whose turns, good and bad, the test decides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include "client/cpp/client.h"
#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
bool holds_large(const std::vector<T>& numbers, int factor) {
  const auto bytes = std::as_bytes(std::span(numbers));
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != FakeService::large_byte(factor, i)) return false;
  }
  return true;
}

v1::LargeOpen opened(FakeService& service, size_t i = 0) {
  v1::LargeOpen open;
  EXPECT_TRUE(open.ParseFromString(service.large().opens.at(i)));
  return open;
}

TEST(Large, GivesResultsAndReport) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> a = counting(70 * 60);
  const auto d = client.svd_large<double>(a, 70, 60, MemoryOrder::kColumnMajor,
                                          {.method = Method::kJacobi,
                                           .tolerance = 1e-9,
                                           .max_sweeps = 12,
                                           .pivot_strategy = PivotStrategy::kRowCyclic,
                                           .block_variant = BlockVariant::kFullBlock,
                                           .certificate = true},
                                          kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(d->left.size(), 70u * 60);
  EXPECT_EQ(d->values.size(), 60u);
  EXPECT_EQ(d->right_adjoint.size(), 60u * 60);
  EXPECT_TRUE(holds_large(d->values, 1) && holds_large(d->left, 2) && holds_large(d->right_adjoint, 3));
  EXPECT_EQ(d->left_columns, 60);
  EXPECT_EQ(d->right_rows, 60);
  const LargeReport& r = d->report;
  EXPECT_EQ(r.status, MatrixStatus::kOk);
  EXPECT_EQ(r.method, Method::kJacobi);
  EXPECT_EQ(r.device, "fake:0");
  EXPECT_EQ(r.members, 1);
  EXPECT_EQ(r.sweeps, 7);
  EXPECT_EQ(r.rotations, 900);
  EXPECT_EQ(r.proper_rotations, 800);
  EXPECT_EQ(r.compute_seconds, 3);
  ASSERT_EQ(r.phases.size(), 1u);
  EXPECT_EQ(r.phases[0].name, "qr");
  ASSERT_TRUE(r.certificate);
  EXPECT_EQ(r.certificate->residual, 1e-15);
  EXPECT_EQ(r.attempts, 1);

  const v1::LargeOpen open = opened(service);
  EXPECT_EQ(open.rows(), 70);
  EXPECT_EQ(open.cols(), 60);
  EXPECT_EQ(open.data_type(), v1::DATA_TYPE_F64);
  EXPECT_EQ(open.memory_order(), v1::MEMORY_ORDER_COLUMN_MAJOR);
  EXPECT_EQ(open.signature(), "");
  EXPECT_EQ(open.options().method(), v1::METHOD_JACOBI);
  EXPECT_EQ(open.options().vectors(), v1::VECTORS_THIN);
  EXPECT_EQ(open.options().tolerance(), 1e-9);
  EXPECT_EQ(open.options().max_sweeps(), 12);
  EXPECT_EQ(open.options().pivot_strategy(), v1::PIVOT_STRATEGY_ROW_CYCLIC);
  EXPECT_EQ(open.options().block_variant(), v1::BLOCK_VARIANT_FULL_BLOCK);
  EXPECT_TRUE(open.options().certificate());
  EXPECT_EQ(service.large().bad_chunks, 0);
  EXPECT_EQ(service.large().chunks, (70 * 60 * 8 + 4095) / 4096);
  EXPECT_THAT(service.large().uploads,
              ElementsAre(std::string(reinterpret_cast<const char*>(a.data()), a.size() * sizeof(double))));
}

TEST(Large, ChunksAreAsLargeAsTheServerTakesAndNoLargerThanAMebibyte) {
  const std::vector<double> a = counting(600 * 300);
  for (const int64_t chunk_bytes : {int64_t{1000}, int64_t{100000}, int64_t{1} << 20, int64_t{1} << 40}) {
    FakeService service;
    service.large().chunk_bytes = chunk_bytes;
    Client client(options_for(service));
    const auto d = client.svd_large<double>(a, 600, 300, MemoryOrder::kRowMajor, {}, kCall);
    ASSERT_TRUE(d.ok()) << d.status().to_string();
    EXPECT_TRUE(holds_large(d->left, 2));
    const int64_t size = std::min<int64_t>(chunk_bytes, 1 << 20);
    EXPECT_EQ(service.large().chunks, (600 * 300 * 8 + size - 1) / size);
    EXPECT_EQ(service.large().bad_chunks, 0);
    EXPECT_EQ(service.large().uploads.at(0).size(), a.size() * sizeof(double));
  }
}

TEST(Large, EveryElementTypeAndChoiceOfVectorsHasItsSizes) {
  FakeService service;
  Client client(options_for(service));
  const auto check = [&]<class T>(T, Vectors vectors, int64_t left_columns, int64_t right_rows) {
    const std::vector<T> a(40 * 50, T(1));
    const auto d = client.svd_large<T>(a, 40, 50, MemoryOrder::kRowMajor, {.vectors = vectors}, kCall);
    ASSERT_TRUE(d.ok()) << d.status().to_string();
    EXPECT_EQ(d->values.size(), 40u);
    EXPECT_EQ(d->left.size(), static_cast<size_t>(40 * left_columns));
    EXPECT_EQ(d->right_adjoint.size(), static_cast<size_t>(50 * right_rows));
    EXPECT_TRUE(holds_large(d->values, 1) && holds_large(d->left, 2) && holds_large(d->right_adjoint, 3));
    EXPECT_EQ(d->left_columns, left_columns);
    EXPECT_EQ(d->right_rows, right_rows);
  };
  check(float(), Vectors::kThin, 40, 40);
  check(double(), Vectors::kFull, 40, 50);
  check(std::complex<float>(), Vectors::kNone, 0, 0);
  check(std::complex<double>(), Vectors::kThin, 40, 40);
  for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
    const auto sizes = client::large_sizes({.rows = 40, .cols = 50}, {.vectors = vectors, .top_k = 3});
    const int64_t columns = vectors == Vectors::kNone ? 0 : 3;
    ASSERT_TRUE(sizes.ok());
    EXPECT_EQ(sizes->values_bytes, 3 * 8);
    EXPECT_EQ(sizes->left_bytes, 40 * columns * 8);
    EXPECT_EQ(sizes->right_bytes, columns * 50 * 8);
  }
}

TEST(Large, MemoryWithAnOwnerIsSentFromWhereItIs) {
  FakeService service;
  service.large().chunk_bytes = 1 << 20;
  Client client(options_for(service));
  auto a = std::make_shared<std::vector<double>>(counting(200 * 200));
  const LargeMatrix matrix{.data = a->data(), .rows = 200, .cols = 200, .owner = a};
  std::vector<double> values(200);
  const auto r = client.decompose_large(matrix, {.values = std::as_writable_bytes(std::span(values))},
                                        {.vectors = Vectors::kNone}, kCall);
  ASSERT_TRUE(r.ok()) << r.status().to_string();
  EXPECT_TRUE(holds_large(values, 1));
  EXPECT_EQ(service.large().uploads.at(0).size(), 200u * 200 * 8);
  EXPECT_EQ(service.large().bad_chunks, 0);
}

TEST(Large, SendsASignature) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> g = counting(5 * 3);
  const std::vector<int8_t> j = {1, -1, 1};
  const auto d = client.hsvd<double>(g, 5, 3, j, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(opened(service).signature(), "\x01\xff\x01");
  for (const std::vector<int8_t>& bad : {std::vector<int8_t>{1, 0, 1}, std::vector<int8_t>{1, 1}, {}}) {
    EXPECT_EQ(client.hsvd<double>(g, 5, 3, bad, MemoryOrder::kRowMajor, {}, kCall).status().field, "open.signature");
  }
  EXPECT_EQ(service.large().opens.size(), 1u);
}

TEST(Large, WhatDidNotConvergeHasResults) {
  FakeService service;
  service.large().status = 2;
  Client client(options_for(service));
  const auto d = client.svd_large<double>(counting(16), 4, 4, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(d->report.status, MatrixStatus::kNotConverged);
  EXPECT_TRUE(holds_large(d->values, 1));
}

TEST(Large, AProgressThatThrowsEndsTheCall) {
  FakeService service;
  service.large().chunk_bytes = 3200;
  Client client(options_for(service));
  const LargeOptions options{.progress = [](const LargeProgress&) { throw std::runtime_error("enough"); }};
  const auto a = counting(40 * 40);
  EXPECT_THROW(static_cast<void>(client.svd_large<double>(a, 40, 40, MemoryOrder::kRowMajor, options, kCall)),
               std::runtime_error);
  const LargeMatrix matrix{.data = a.data(), .rows = 40, .cols = 40, .data_type = DataType::kF64};
  std::vector<double> u(1600), s(40), vh(1600);
  LargeOutputs out;
  out.left = std::as_writable_bytes(std::span(u));
  out.values = std::as_writable_bytes(std::span(s));
  out.right_adjoint = std::as_writable_bytes(std::span(vh));
  std::promise<Status> ended;
  client.decompose_large_async(matrix, out, options, kCall,
                               [&](Result<LargeReport> r) { ended.set_value(r.status()); });
  const Status status = ended.get_future().get();
  EXPECT_EQ(status.code, Code::kAborted);
  EXPECT_THAT(status.message, ::testing::HasSubstr("options.progress threw: enough"));
}

TEST(Large, TellsProgressOnTheCallingThread) {
  FakeService service;
  service.large().chunk_bytes = 3200;
  Client client(options_for(service));
  std::vector<LargeProgress> told;
  std::vector<std::thread::id> threads;
  const auto d = client.svd_large<double>(counting(40 * 40), 40, 40, MemoryOrder::kRowMajor,
                                          {.progress =
                                               [&](const LargeProgress& p) {
                                                 told.push_back(p);
                                                 threads.push_back(std::this_thread::get_id());
                                               }},
                                          kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_THAT(threads, ::testing::Each(std::this_thread::get_id()));
  std::vector<LargeStage> stages;
  for (const LargeProgress& p : told) {
    if (stages.empty() || stages.back() != p.stage) stages.push_back(p.stage);
  }
  EXPECT_THAT(stages, ElementsAre(LargeStage::kUpload, LargeStage::kQueued, LargeStage::kSweep, LargeStage::kDownload));
  EXPECT_EQ(told.front().fraction, 0.25);
  EXPECT_EQ(told.back().fraction, 1);
  EXPECT_TRUE(
      std::is_sorted(told.begin(), told.end(), [](const auto& a, const auto& b) { return a.overall < b.overall; }));
  EXPECT_EQ(told.back().overall, 1);
  EXPECT_EQ(told.back().eta_seconds, 0);
  EXPECT_GE(told.back().elapsed_seconds, told.front().elapsed_seconds);
  const auto sweep =
      std::find_if(told.begin(), told.end(), [](const auto& p) { return p.stage == LargeStage::kSweep; });
  EXPECT_EQ(sweep->fraction, 0.5);
  EXPECT_EQ(sweep->sweep, 3);
  EXPECT_EQ(sweep->rotations, 20);
  EXPECT_EQ(sweep->proper_rotations, 10);
  EXPECT_EQ(sweep->off_diagonal, 0.25);
  EXPECT_EQ(told.front().device, "");
  EXPECT_EQ(sweep->device, "fake:0");
  EXPECT_EQ(told.back().device, "fake:0");
}

// --- bad turns ----------------------------------------------------------------------------------

Status status_of(FakeService& service, const CallOptions& call = kCall, const LargeOptions& options = {}) {
  Client client(options_for(service));
  const std::vector<double> a = counting(40 * 40);
  return client.svd_large<double>(a, 40, 40, MemoryOrder::kRowMajor, options, call).status();
}

TEST(Large, ARefusalNamesTheFieldAndNoPayloadIsSent) {
  FakeService service;
  service.large().refusals = {{.code = 3, .message = "too large", .reason = "INVALID_FIELD", .field = "open.rows"}};
  const Status s = status_of(service);
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_EQ(s.field, "open.rows");
  EXPECT_EQ(service.large().chunks, 0);
}

TEST(Large, ARefusalWithATimeIsTriedAgain) {
  FakeService service;
  const Answer busy{.code = 8, .reason = "OVERLOADED_BYTES", .retry_delay = milliseconds(30)};
  service.large().refusals = {busy, busy};
  Client client(options_for(service));
  const auto begin = steady_clock::now();
  const auto d = client.svd_large<double>(counting(16), 4, 4, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  EXPECT_EQ(d->report.attempts, 3);
  EXPECT_GE(steady_clock::now() - begin, milliseconds(60));
}

TEST(Large, ARefusalWithoutATimeIsFinal) {
  FakeService service;
  service.large().refusals = {{.code = 8, .reason = "OVERLOADED_BYTES"}};
  EXPECT_EQ(status_of(service).reason, "OVERLOADED_BYTES");
  EXPECT_EQ(service.large().opens.size(), 1u);
}

TEST(Large, OnceAcceptedItIsNotSentAgain) {
  FakeService service;
  service.large().fails_after_upload = [](Answer* a) {
    *a = {.code = 14, .message = "going down", .reason = "DRAINING", .retry_delay = milliseconds(1)};
    return true;
  };
  const Status s = status_of(service);
  EXPECT_EQ(s.code, Code::kUnavailable);
  EXPECT_EQ(s.reason, "DRAINING");
  EXPECT_EQ(service.large().opens.size(), 1u);
}

TEST(Large, DamagedResultsAreNoResults) {
  {
    FakeService service;
    service.large().wrong_crc = true;
    const Status s = status_of(service);
    EXPECT_EQ(s.code, Code::kDataLoss);
    EXPECT_EQ(s.reason, "CHUNK_CORRUPTED");
  }
  for (bool Large::*const fault :
       {&Large::wrong_offset, &Large::unknown_factor, &Large::skips_a_chunk, &Large::no_summary}) {
    FakeService service;
    service.large().*fault = true;
    const Status s = status_of(service);
    EXPECT_EQ(s.code, Code::kInternal);
    EXPECT_THAT(s.message, HasSubstr("the server's reply"));
  }
}

// Large chunks are checked beside the network: the call must not end well before that.
TEST(Large, ADamagedChunkIsFoundWhereverItIs) {
  const std::vector<double> a = counting(1024 * 384);
  for (const int damaged : {0, 2, 4}) {  // the values, one of the three chunks of U, V^H
    FakeService service;
    service.large().chunk_bytes = 1 << 20;
    service.large().tamper = [damaged, chunks = 0](v1::DecomposeLargeResponse* response) mutable {
      if (response->has_factor_chunk() && chunks++ == damaged)
        response->mutable_factor_chunk()->mutable_data()->back() ^= 1;
      return 1;
    };
    Client client(options_for(service));
    const auto d = client.svd_large<double>(a, 1024, 384, MemoryOrder::kRowMajor, {}, kCall);
    EXPECT_EQ(d.status().code, Code::kDataLoss) << damaged;
    EXPECT_EQ(d.status().reason, "CHUNK_CORRUPTED");
  }
}

TEST(Large, WrongSizesAreRefusedHere) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> a = counting(12);
  EXPECT_EQ(client.svd_large<double>(a, 4, 4, MemoryOrder::kRowMajor, {}, kCall).status().field, "matrices.data");
  EXPECT_EQ(large_sizes({.data = a.data(), .rows = 0, .cols = 3}, {.vectors = Vectors::kThin}).status().field,
            "open.rows");
  EXPECT_EQ(large_sizes({.data = a.data(), .rows = 3, .cols = -1}, {.vectors = Vectors::kThin}).status().field,
            "open.cols");
  EXPECT_EQ(
      large_sizes({.data = a.data(), .rows = int64_t{1} << 40, .cols = 1}, {.vectors = Vectors::kFull}).status().field,
      "open.rows");
  std::vector<double> values(2);
  const auto r =
      client.decompose_large({.data = a.data(), .rows = 4, .cols = 3},
                             {.values = std::as_writable_bytes(std::span(values))}, {.vectors = Vectors::kNone}, kCall);
  EXPECT_EQ(r.status().field, "out");
  EXPECT_TRUE(service.large().opens.empty());
}

// --- ending it ----------------------------------------------------------------------------------

constexpr bool Large::*kSilences[] = {&Large::silent_after_open, &Large::silent_after_upload,
                                      &Large::silent_after_results};

TEST(Large, AStopFreesTheServer) {
  for (bool Large::*const silence : kSilences) {
    FakeService service;
    service.large().*silence = true;
    std::stop_source source;
    std::thread stopper([&] {
      EXPECT_TRUE(eventually([&] { return service.large().waiting == 1; }));
      source.request_stop();
    });
    const Status s = status_of(service, {.timeout = seconds(60), .stop = source.get_token()});
    EXPECT_EQ(s.code, Code::kCancelled) << s.to_string();
    EXPECT_EQ(s.reason, "CANCELLED");
    stopper.join();
    EXPECT_TRUE(eventually([&] { return service.large().left == 1; }));
  }
}

TEST(Large, ATimeoutFreesTheServer) {
  for (bool Large::*const silence : kSilences) {
    FakeService service;
    service.large().*silence = true;
    // On a busy machine a short timeout is over before the call has come to that point: then a longer one is tried.
    for (milliseconds timeout(200); service.large().waiting == 0 && timeout < seconds(60); timeout *= 2) {
      EXPECT_EQ(status_of(service, {.timeout = timeout}).code, Code::kDeadlineExceeded);
    }
    EXPECT_TRUE(eventually([&] { return service.large().waiting > 0 && service.large().left > 0; }));
  }
}

TEST(Large, AStopEndsThePauseBeforeAnotherAttempt) {
  FakeService service;
  service.large().refusals = {{.code = 8, .reason = "OVERLOADED_BYTES", .retry_delay = seconds(30)}};
  std::stop_source source;
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    source.request_stop();
  });
  const auto begin = steady_clock::now();
  EXPECT_EQ(status_of(service, {.timeout = seconds(60), .stop = source.get_token()}).code, Code::kCancelled);
  EXPECT_LT(steady_clock::now() - begin, seconds(25));
  stopper.join();
}

TEST(Large, AClientThatGoesEndsItsCalls) {
  FakeService service;
  service.large().silent_after_upload = true;
  auto client = std::make_unique<Client>(options_for(service));
  Status status;
  std::thread caller([&, c = client.get()] {
    const std::vector<double> a = counting(40 * 40);
    status = c->svd_large<double>(a, 40, 40, MemoryOrder::kRowMajor, {}, kCall).status();
  });
  EXPECT_TRUE(eventually([&] { return service.large().waiting == 1; }));
  client.reset();
  caller.join();
  EXPECT_EQ(status.code, Code::kCancelled);
  EXPECT_TRUE(eventually([&] { return service.large().left == 1; }));
}

}  // namespace
}  // namespace svdserve::client::testing
