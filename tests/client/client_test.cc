// Single calls against a service whose answers the test decides.
#include "client/cpp/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "svdserve/v1/svd_service.pb.h"
#include "tests/client/fake_service.h"

namespace svdserve::client::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int kInvalidArgument = 3, kResourceExhausted = 8, kInternal = 13, kUnavailable = 14;

Answer overloaded(int code, milliseconds delay) {
  Answer a;
  a.code = code;
  a.message = "come back later";
  a.reason = "OVERLOADED_BYTES";
  a.retry_delay = delay;
  return a;
}

TEST(Client, GivesValuesAndReport) {
  std::optional<Seen> seen;
  FakeService service([&](const Seen& s) {
    seen = s;
    Answer a;
    a.exceptions = {{1, 2}};
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data = counting(3 * 2 * 3);
  const auto s = client.singular_values<double>(data, 2, 3, 3, MemoryOrder::kColumnMajor,
                                                {.method = Method::kJacobi, .tolerance = 1e-3, .max_sweeps = 7}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_THAT(s->values, ::testing::ElementsAre(1, 2, 7, 14, 13, 26));
  EXPECT_THAT((*s)[1], ::testing::ElementsAre(7, 14));
  EXPECT_EQ(s->report.count, 3);
  EXPECT_EQ(s->report.values_per_matrix, 2);
  ASSERT_EQ(s->report.exceptions.size(), 1u);
  EXPECT_EQ(s->report.exceptions[0].index, 1);
  EXPECT_EQ(s->report.exceptions[0].status, MatrixStatus::kNotConverged);
  EXPECT_EQ(s->report.method, Method::kBidiagonal);
  EXPECT_EQ(s->report.device, "fake:0");
  EXPECT_EQ(s->report.compute_seconds, 0.5);
  EXPECT_EQ(s->report.attempts, 1);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->rows, 2);
  EXPECT_EQ(seen->cols, 3);
  EXPECT_EQ(seen->data_type, 2);
  EXPECT_EQ(seen->memory_order, 2);
  EXPECT_EQ(seen->method, 4);
  EXPECT_EQ(seen->tolerance, 1e-3);
  EXPECT_EQ(seen->max_sweeps, 7);
  EXPECT_EQ(seen->data, std::string(reinterpret_cast<const char*>(data.data()), data.size() * sizeof(double)));
}

TEST(Client, EigenproblemsOfABatch) {
  std::optional<Seen> seen;
  FakeService service([&](const Seen& s) {
    seen = s;
    return Answer{.exceptions = {{2, 1}}};
  });
  Client client(options_for(service));
  const std::vector<double> data = counting(3 * 2 * 2);
  const auto e =
      client.eigh<double>(data, 2, 3, MemoryOrder::kRowMajor,
                          {.triangle = Triangle::kUpper, .method = Method::kJacobi, .fix_phases = true}, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_THAT(e->values, ::testing::ElementsAre(1, 2, 5, 10, 9, 18));
  EXPECT_EQ(e->vectors, std::vector<double>(12));
  EXPECT_TRUE(e->certificates.empty());
  ASSERT_EQ(e->report.exceptions.size(), 1u);
  EXPECT_EQ(e->report.exceptions[0].status, MatrixStatus::kNonFinite);
  ASSERT_TRUE(seen);
  v1::EigendecomposeOptions options;
  ASSERT_TRUE(options.ParseFromString(seen->eigen_options));
  EXPECT_EQ(options.problem(), v1::EIGEN_PROBLEM_HERMITIAN);
  EXPECT_EQ(options.triangle(), v1::TRIANGLE_UPPER);
  EXPECT_EQ(options.vectors(), v1::EIGENVECTORS_RIGHT);
  EXPECT_EQ(options.method(), v1::METHOD_JACOBI);
  EXPECT_TRUE(options.fix_phases());
  EXPECT_EQ(seen->announced, std::to_string(seen->request_bytes));
}

TEST(Client, GeneralEigenproblemsOfABatch) {
  std::optional<Seen> seen;
  FakeService service([&](const Seen& s) {
    seen = s;
    return Answer{.exceptions = {{2, 1}}};
  });
  Client client(options_for(service));
  const std::vector<double> data = counting(3 * 2 * 2);
  using Complex = std::complex<double>;
  for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
    const auto e =
        client.eig<double>(data, 2, 3, MemoryOrder::kColumnMajor, {.method = Method::kQr, .vectors = vectors}, kCall);
    ASSERT_TRUE(e.ok()) << e.status().to_string();
    EXPECT_THAT(e->values, ::testing::ElementsAre(Complex(1, -1), Complex(2, -2), Complex(5, -5), Complex(10, -10),
                                                  Complex(9, -9), Complex(18, -18)));
    EXPECT_EQ(e->vectors, std::vector<Complex>(12));
    EXPECT_EQ(e->left_adjoint, std::vector<Complex>(vectors == Vectors::kFull ? 12 : 0));
    EXPECT_TRUE(e->certificates.empty());
    ASSERT_EQ(e->report.exceptions.size(), 1u);
    EXPECT_EQ(e->report.exceptions[0].status, MatrixStatus::kNonFinite);
    ASSERT_TRUE(seen);
    v1::EigendecomposeOptions options;
    ASSERT_TRUE(options.ParseFromString(seen->eigen_options));
    EXPECT_EQ(options.problem(), v1::EIGEN_PROBLEM_GENERAL);
    EXPECT_EQ(options.vectors(), vectors == Vectors::kFull ? v1::EIGENVECTORS_RIGHT_AND_LEFT : v1::EIGENVECTORS_RIGHT);
    EXPECT_EQ(options.method(), v1::METHOD_QR);
    EXPECT_EQ(seen->memory_order, 2);
    EXPECT_EQ(seen->announced, std::to_string(seen->request_bytes));
  }
}

TEST(Client, GeneralEigenvaluesAlone) {
  std::string sent;
  FakeService service([&](const Seen& s) {
    sent = s.eigen_options;
    return Answer();
  });
  Client client(options_for(service));
  const std::vector<float> data = {3, 0, 0, 0};
  std::vector<std::complex<float>> values(2);
  const Batch batch{.data = data.data(), .rows = 2, .cols = 2, .count = 1, .data_type = DataType::kF32};
  const ComputeOptions compute{.problem = Problem::kGeneral};
  const auto report = client.decompose(batch, std::as_writable_bytes(std::span(values)), compute, kCall);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_THAT(values, ::testing::ElementsAre(std::complex<float>(3, -3), std::complex<float>(6, -6)));
  v1::EigendecomposeOptions options;
  ASSERT_TRUE(options.ParseFromString(sent));
  EXPECT_TRUE(options.vectors() == v1::EIGENVECTORS_NONE || options.vectors() == v1::EIGENVECTORS_UNSPECIFIED);
  // The eigenvalues of real matrices are complex, too.
  const auto half = std::as_writable_bytes(std::span(values).first(1));
  EXPECT_EQ(client.decompose(batch, half, compute, kCall).status().code, Code::kInvalidArgument);
}

TEST(Client, EigenproblemsAreCutIntoPieces) {
  FakeService service;
  ClientOptions options = options_for(service);
  options.piece_bytes = 110;  // two matrices and their results
  Client client(options);
  const auto e = client.eigh<double>(counting(7 * 2 * 2), 2, 7, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_EQ(e->report.pieces, 4);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(e->values[2 * i], static_cast<double>(4 * i + 1));
  options.piece_bytes = 350;  // two matrices and their results, which are complex
  const auto g = Client(options).eig<double>(counting(7 * 2 * 2), 2, 7, MemoryOrder::kRowMajor,
                                             {.vectors = Vectors::kFull}, kCall);
  ASSERT_TRUE(g.ok()) << g.status().to_string();
  EXPECT_EQ(g->report.pieces, 4);
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(g->values[2 * i].real(), static_cast<double>(4 * i + 1));
}

TEST(Client, RefusesOptionsThatEigenproblemsDoNotHave) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> data = counting(6);
  const auto field = [&](int64_t cols, const ComputeOptions& compute) {
    const Batch batch{.data = data.data(), .rows = 2, .cols = cols, .count = 1};
    return client.decompose(batch, Outputs(), compute, kCall).status().field;
  };
  EXPECT_EQ(field(2, {.problem = Problem::kHermitian, .vectors = Vectors::kFull}), "options.vectors");
  for (const Problem problem : {Problem::kHermitian, Problem::kGeneral}) {
    EXPECT_EQ(field(3, {.problem = problem}), "matrices.cols");
    EXPECT_EQ(field(2, {.problem = problem, .top_k = 1}), "options.top_k");
    EXPECT_EQ(field(2, {.problem = problem, .mimo = MimoOptions{}}), "options.mimo");
  }
  EXPECT_EQ(client.eigh<double>(data, 2, 2).status().field, "matrices.data");
  EXPECT_EQ(client.eig<double>(data, 2, 2).status().field, "matrices.data");
  EXPECT_EQ(service.requests(), 0);
}

TEST(Client, RefusesOptionsThatSingularValuesDoNotHave) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> data = counting(4);
  const auto of_svd = [&](const ComputeOptions& compute) {
    return client.svd<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, compute, kCall).status().field;
  };
  EXPECT_EQ(of_svd({.triangle = Triangle::kUpper}), "options.triangle");
  EXPECT_EQ(of_svd({.problem = Problem::kHermitian}), "options.problem");
  EXPECT_EQ(of_svd({.problem = Problem::kGeneral}), "options.problem");
  EXPECT_EQ(of_svd({.mimo = MimoOptions{.condition_number = true}}), "options.mimo");
  const auto of_values = [&](const ComputeOptions& compute) {
    EXPECT_FALSE(client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, compute).get().ok());
    return client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, compute, kCall).status().field;
  };
  EXPECT_EQ(of_values({.triangle = Triangle::kUpper}), "options.triangle");
  EXPECT_EQ(of_values({.problem = Problem::kHermitian}), "options.problem");
  EXPECT_EQ(of_values({.problem = Problem::kGeneral}), "options.problem");
  const LargeOptions general{.problem = LargeProblem::kGeneral};
  EXPECT_EQ(client.svd_large<double>(data, 2, 2, MemoryOrder::kRowMajor, general).status().field, "open.problem");
  const std::vector<int8_t> signs = {1, -1};
  EXPECT_EQ(client.hsvd<double>(data, 2, 2, signs, MemoryOrder::kRowMajor, general).status().field, "open.problem");
  EXPECT_EQ(service.requests(), 0);
}

TEST(Client, EveryElementTypeArrivesAsItsOwn) {
  std::vector<int> types;
  FakeService service([&](const Seen& s) {
    types.push_back(s.data_type);
    return Answer();
  });
  Client client(options_for(service));
  const auto ask = [&]<class T>(T value) {
    const std::vector<T> data(4, value);
    const auto s = client.singular_values<T>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall);
    ASSERT_TRUE(s.ok()) << s.status().to_string();
    EXPECT_EQ(s->values[1], RealOf<T>(2 * std::real(value)));
  };
  ask(3.f);
  ask(3.);
  ask(std::complex<float>(3, 1));
  ask(std::complex<double>(3, 1));
  EXPECT_THAT(types, ::testing::ElementsAre(1, 2, 3, 4));
}

TEST(Client, AnEmptyBatchGetsAnEmptyAnswer) {
  FakeService service;
  Client client(options_for(service));
  const auto s = client.singular_values<double>({}, 4, 4, 0, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_TRUE(s->values.empty());
}

TEST(Client, RefusesSizesThatCannotBeBeforeSending) {
  FakeService service;
  Client client(options_for(service));
  const std::vector<double> data(16);
  EXPECT_EQ(client.singular_values<double>(data, 4, 4, 2).status().field, "matrices.data");
  EXPECT_EQ(client.singular_values<double>(data, 0, 4, 1).status().field, "matrices.rows");
  EXPECT_EQ(client.singular_values<double>(data, 4, 4, -1).status().field, "matrices.count");
  EXPECT_EQ(client.singular_values_async<double>(data, 4, -4, 1).get().status().field, "matrices.cols");
  std::vector<std::byte> small(8);
  const Batch batch{.data = data.data(), .rows = 4, .cols = 4, .count = 1};
  EXPECT_EQ(client.decompose(batch, small).status().field, "values");
  EXPECT_EQ(service.requests(), 0);
}

TEST(Client, AnErrorBringsCodeReasonFieldAndMessage) {
  FakeService service([](const Seen&) {
    Answer a;
    a.code = kInvalidArgument;
    a.message = "must be at most 1";
    a.reason = "INVALID_FIELD";
    a.field = "options.tolerance";
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data(16);
  const Status s = client.singular_values<double>(data, 4, 4, 1, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.code, Code::kInvalidArgument);
  EXPECT_EQ(s.reason, "INVALID_FIELD");
  EXPECT_EQ(s.field, "options.tolerance");
  EXPECT_EQ(s.message, "must be at most 1");
  EXPECT_EQ(s.to_string(), "INVALID_ARGUMENT (INVALID_FIELD) tolerance: must be at most 1");
  client::Status named = s;
  named.message = "options.tolerance: must be at most 1";
  EXPECT_EQ(named.to_string(), s.to_string());
  EXPECT_EQ(service.requests(), 1);
}

TEST(Client, RetriesAfterTheDelayThatTheServerNamed) {
  std::vector<steady_clock::time_point> times;
  FakeService service([&](const Seen& s) {
    times.push_back(steady_clock::now());
    return s.number == 0   ? overloaded(kResourceExhausted, milliseconds(60))
           : s.number == 1 ? overloaded(kUnavailable, milliseconds(30))
                           : Answer();
  });
  Client client(options_for(service));
  const std::vector<double> data = counting(4);
  const auto s = client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(s->report.attempts, 3);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_GE(times[1] - times[0], milliseconds(60));
  EXPECT_GE(times[2] - times[1], milliseconds(30));
}

TEST(Client, AsynchronousCallsRetryToo) {
  FakeService service(
      [&](const Seen& s) { return s.number < 2 ? overloaded(kResourceExhausted, milliseconds(1)) : Answer(); });
  Client client(options_for(service));
  const std::vector<double> data = counting(4);
  const auto s = client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).get();
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(s->report.attempts, 3);
}

// A server that stops just as a call comes in ends it with CANCELLED and nothing else.
TEST(Client, RetriesWhatTheServerDropped) {
  FakeService service([&](const Seen& s) {
    Answer dropped;
    dropped.code = static_cast<int>(Code::kCancelled);
    return s.number % 2 == 0 ? dropped : Answer();
  });
  Client client(options_for(service));
  const std::vector<double> data = counting(4);
  const auto s = client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_EQ(s->report.attempts, 2);
  const auto later = client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).get();
  ASSERT_TRUE(later.ok()) << later.status().to_string();
  EXPECT_EQ(later->report.attempts, 2);
}

TEST(Client, GivesUpAfterTheLastAttempt) {
  FakeService service([](const Seen&) { return overloaded(kUnavailable, milliseconds(0)); });
  Client client(options_for(service));
  const std::vector<double> data(4);
  const Status s = client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.code, Code::kUnavailable);
  EXPECT_EQ(s.retry_delay, milliseconds(0));
  EXPECT_EQ(service.requests(), 4);
}

TEST(Client, DoesNotBeginAWaitBeyondTheDeadline) {
  FakeService service([](const Seen&) { return overloaded(kResourceExhausted, std::chrono::hours(1)); });
  Client client(options_for(service));
  const std::vector<double> data(4);
  for (const bool async : {false, true}) {
    const CallOptions call{.timeout = seconds(30)};
    const auto begin = steady_clock::now();
    const Status s =
        async ? client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).get().status()
              : client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).status();
    EXPECT_EQ(s.code, Code::kResourceExhausted);
    EXPECT_EQ(s.reason, "OVERLOADED_BYTES");
    EXPECT_LT(steady_clock::now() - begin, seconds(20));
  }
  EXPECT_EQ(service.requests(), 2);
}

TEST(Client, AStatusHasTheIdOfTheCallInTheServersLog) {
  int code = kInternal;
  FakeService service([&](const Seen&) {
    Answer a;
    a.code = code;
    a.message = "oh";
    a.reason = "A_REASON";
    a.request_id = "5f3c9a1e-1f";
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data(4);
  const Status failed = client.singular_values<double>(data, 2, 2, 1).status();
  EXPECT_EQ(failed.request_id, "5f3c9a1e-1f");
  EXPECT_EQ(failed.to_string(), "INTERNAL (A_REASON): oh [request 5f3c9a1e-1f]");
  code = kInvalidArgument;  // the caller's mistake, which needs no look into the log
  const Status wrong = client.singular_values<double>(data, 2, 2, 1).status();
  EXPECT_EQ(wrong.request_id, "5f3c9a1e-1f");
  EXPECT_EQ(wrong.to_string(), "INVALID_ARGUMENT (A_REASON): oh");
}

TEST(Client, TheDeadlineEndsACall) {
  FakeService service([](const Seen& s) {
    eventually(s.is_cancelled);
    return Answer();
  });
  Client client(options_for(service));
  ASSERT_TRUE(client.server_info(kCall).ok());
  const std::vector<double> data(4);
  const CallOptions call{.timeout = milliseconds(50)};
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).status().code,
            Code::kDeadlineExceeded);
  const Status s = client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).get().status();
  EXPECT_EQ(s.code, Code::kDeadlineExceeded);
  EXPECT_EQ(s.reason, "DEADLINE_EXCEEDED");
}

TEST(Client, AStopRequestCancelsOnTheServerToo) {
  std::atomic<int> saw_cancel{0};
  FakeService service([&](const Seen& s) {
    saw_cancel += eventually(s.is_cancelled);
    return Answer();
  });
  Client client(options_for(service));
  const std::vector<double> data(4);
  std::stop_source stop;
  const CallOptions call{.timeout = seconds(60), .stop = stop.get_token()};
  auto later = client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call);
  std::jthread stopper([&] {
    eventually([&] { return service.requests() == 2; });
    stop.request_stop();
  });
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).status().code,
            Code::kCancelled);
  EXPECT_EQ(later.get().status().code, Code::kCancelled);
  EXPECT_TRUE(eventually([&] { return saw_cancel == 2; }));
  // Requested before: nothing is sent.
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).status().code,
            Code::kCancelled);
  EXPECT_EQ(client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).get().status().code,
            Code::kCancelled);
  EXPECT_EQ(service.requests(), 2);
}

TEST(Client, AStopRequestEndsAWaitForARetry) {
  FakeService service([](const Seen&) { return overloaded(kResourceExhausted, std::chrono::hours(1)); });
  ClientOptions o = options_for(service);
  o.retry.max_server_delay = std::chrono::hours(1);
  Client client(o);
  const std::vector<double> data(4);
  std::stop_source stop;
  const CallOptions call{.timeout = {}, .stop = stop.get_token()};
  auto later = client.singular_values_async<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call);
  std::jthread stopper([&] {
    eventually([&] { return service.requests() == 2; });
    stop.request_stop();
  });
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, call).status().code,
            Code::kCancelled);
  EXPECT_EQ(later.get().status().code, Code::kCancelled);
}

TEST(Client, ItsEndCancelsWhatIsInFlight) {
  FakeService service([](const Seen& s) {
    eventually(s.is_cancelled);
    return Answer();
  });
  std::future<Result<SingularValues<double>>> later;
  const std::vector<double> data(4);
  {
    Client client(options_for(service));
    later = client.singular_values_async<double>(data, 2, 2, 1);
    EXPECT_TRUE(eventually([&] { return service.requests() == 1; }));
  }
  ASSERT_EQ(later.wait_for(seconds(0)), std::future_status::ready);
  EXPECT_EQ(later.get().status().code, Code::kCancelled);
}

TEST(Client, AReplyThatDoesNotFitTheQuestionIsInternal) {
  FakeService service([](const Seen&) {
    Answer a;
    a.tamper = [](v1::DecomposeResponse* r) { r->mutable_singular_values()->pop_back(); };
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data(4);
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).status().code,
            Code::kInternal);
}

TEST(Client, AnInternalErrorIsNotRetried) {
  FakeService service([](const Seen&) {
    Answer a;
    a.code = kInternal;
    a.reason = "DEVICE_FAULT";
    return a;
  });
  Client client(options_for(service));
  const std::vector<double> data(4);
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).status().reason,
            "DEVICE_FAULT");
  EXPECT_EQ(service.requests(), 1);
}

TEST(Client, AServerOutOfReachIsUnavailable) {
  std::string address;
  { address = FakeService().address(); }
  Client client({.address = address, .retry = {.max_attempts = 2, .initial_backoff = milliseconds(1)}});
  const std::vector<double> data(4);
  EXPECT_EQ(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).status().code,
            Code::kUnavailable);
  EXPECT_EQ(client.healthy({}, kCall).status().code, Code::kUnavailable);
}

TEST(Client, TellsWhatTheServerIs) {
  FakeService service;
  Client client(options_for(service));
  const auto info = client.server_info(kCall);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(info->version, "1.2.3");
  EXPECT_THAT(info->data_types, ::testing::ElementsAre(DataType::kC64));
  EXPECT_THAT(info->methods, ::testing::ElementsAre(Method::kJacobi));
  EXPECT_EQ(info->limits.max_message_bytes, 64 << 20);
  const auto ping = client.ping(kCall);
  ASSERT_TRUE(ping.ok());
  EXPECT_GT(ping->count(), 0);
}

TEST(Client, SeveralConnectionsTakeTurns) {
  FakeService service;
  ClientOptions o = options_for(service);
  o.connections = 3;
  Client client(o);
  const std::vector<double> data = counting(4);
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).ok());
  }
}

TEST(Client, AnAddressWithoutAPortIsNamed) {
  for (const char* const good : {"127.0.0.1:50051", "localhost:1", "[::1]:50051", "unix:/run/svd.sock", "dns:///host:1",
                                 "unix-abstract:svd", "ipv6:[::1]:50051"}) {
    EXPECT_TRUE(check_address(good).ok()) << good;
  }
  for (const char* const bad : {"", "localhost", "127.0.0.1", ":50051", "host:", "host:http", "host:123456", "::1",
                                "::1:50051", "http://127.0.0.1:50051"}) {
    const Status status = check_address(bad);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << bad;
    EXPECT_EQ(status.field, "address");
  }
}

TEST(Tls, FilesThatAreMissingOrHalfAreNamed) {
  EXPECT_EQ(TlsOptions::from_files("/nonexistent/ca.pem").status().code, Code::kNotFound);
  EXPECT_EQ(TlsOptions::from_files("", "cert.pem", "").status().code, Code::kInvalidArgument);
  EXPECT_TRUE(TlsOptions::from_files("").ok());
}

}  // namespace
}  // namespace svdserve::client::testing
