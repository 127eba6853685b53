// The view of operators and their tools: health, reflection, probes, metrics, sockets and logs.
#include <gmock/gmock.h>
#include <grpc/health/v1/health.grpc.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <list>
#include <map>

#include "engine/large_engine.h"
#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;
using ::testing::Not;

std::pair<grpc::StatusCode, int> check_health(const std::shared_ptr<grpc::Channel>& channel, const std::string& name) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(name);
  HealthCheckResponse response;
  const grpc::Status status = grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  return {status.error_code(), response.status()};
}

TEST(OperationsTest, HealthFollowsTheServersLife) {
  RunningServer server({"--drain-delay=5s"});  // as long as the questions after the signal may take
  const auto channel = connect(server.address());
  for (const char* name : {"", "svdserve.v1.SvdService"}) {
    EXPECT_TRUE(wait_until([&] {
      return check_health(channel, name) == std::pair(grpc::StatusCode::OK, int{HealthCheckResponse::SERVING});
    }));
  }
  EXPECT_EQ(check_health(channel, "no.such.Service").first, grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  const auto watch = grpc::health::v1::Health::NewStub(channel)->Watch(&context, HealthCheckRequest());
  HealthCheckResponse seen;
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::SERVING);
  server.signal(SIGTERM);
  ASSERT_TRUE(watch->Read(&seen));
  EXPECT_EQ(seen.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(check_health(channel, "svdserve.v1.SvdService").second, int{HealthCheckResponse::NOT_SERVING});
  // A watcher keeps its call open for good: that must not hold up the end.
  EXPECT_EQ(server.wait(), 0);
  context.TryCancel();
  watch->Finish();
}

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

TEST(OperationsTest, ReflectionListsTheServices) {
  RunningServer server;
  grpc::GenericStub stub(connect(server.address()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, kReflection, &queue);
  const auto step = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(step());
  const grpc::Slice list_services("\x3a\x01*", 3);  // ServerReflectionRequest{list_services: "*"}
  call->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(step());
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ASSERT_TRUE(step());
  grpc::Slice bytes;
  ASSERT_TRUE(reply.DumpToSingleSlice(&bytes).ok());
  const std::string text(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  EXPECT_THAT(text, HasSubstr("svdserve.v1.SvdService"));
  EXPECT_THAT(text, HasSubstr("grpc.health.v1.Health"));
  call->WritesDone(nullptr);
  step();
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  EXPECT_TRUE(status.ok());
}

// Calls of reflection that say nothing.
class SilentReflections {
 public:
  explicit SilentReflections(const std::string& address) : stub_(connect(address)) {}

  void Begin(int n) {
    for (int i = 0; i < n; ++i) {
      Call& call = calls_.emplace_back();
      call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
      call.stream = stub_.PrepareCall(&call.context, kReflection, &queue_);
      call.stream->StartCall(nullptr);
      call.stream->Finish(&call.status, &call);
    }
    on_their_way_ += n;
  }
  // Waits until no more than `n` are on their way. Returns the codes of those that ended.
  std::map<grpc::StatusCode, int> AwaitAllBut(int n) {
    std::map<grpc::StatusCode, int> codes;
    void* tag = nullptr;
    for (bool ok = false; on_their_way_ > n && queue_.Next(&tag, &ok);) {
      if (tag == nullptr) continue;
      --on_their_way_;
      ++codes[static_cast<Call*>(tag)->status.error_code()];
    }
    return codes;
  }
  ~SilentReflections() {
    for (Call& call : calls_) call.context.TryCancel();
    // Every event is taken, those of the beginnings as well: a call whose event stays behind is never freed.
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  std::list<Call> calls_;
  int on_their_way_ = 0;
};

int threads_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return 0;
}

TEST(OperationsTest, ReflectionHasFewThreads) {
  constexpr int kConnections = 4, kCalls = 250, kMayGoOn = 8;
  RunningServer server;
  const int before = threads_of(server.pid());
  std::list<SilentReflections> connections;
  for (int i = 0; i < kConnections; ++i) connections.emplace_back(server.address()).Begin(kCalls);
  // Those that have a thread wait for their client; all others are refused.
  std::map<grpc::StatusCode, int> codes;
  for (SilentReflections& connection : connections) {
    for (const auto& [code, n] : connection.AwaitAllBut(kMayGoOn)) codes[code] += n;
  }
  EXPECT_THAT(codes, ::testing::ElementsAre(::testing::Key(grpc::StatusCode::RESOURCE_EXHAUSTED)));
  EXPECT_LT(threads_of(server.pid()), before + 32);
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(2, 2, 1), &response).ok());
}

TEST(OperationsTest, ReflectionIsOffWhereOthersReachTheServer) {
  const auto code = [](const std::vector<std::string>& flags) {
    RunningServer server(flags);
    SilentReflections calls("127.0.0.1" + server.address().substr(server.address().rfind(':')));
    calls.Begin(1);
    const auto codes = calls.AwaitAllBut(0);
    return codes.begin()->first;
  };
  EXPECT_EQ(code({"--reflection=off"}), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(code({"--listen=0.0.0.0:0", "--insecure"}), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(OperationsTest, EveryRequestIsCountedByItsLabelsBeforeItsReply) {
  RunningServer server;
  const auto channel = connect(server.address());
  v1::DecomposeResponse response;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(decompose(channel, random_request(4, 4, 100), &response).ok());
  ASSERT_TRUE(decompose(channel, random_request(200, 8, 1), &response).ok());
  v1::DecomposeRequest bad = random_request(4, 4, 1);
  bad.mutable_matrices()->set_data_type(static_cast<v1::DataType>(50));
  decompose(channel, bad, &response);
  const std::string name = "svdserve_requests_total";
  EXPECT_EQ(
      server.metric(name, {"rpc=\"Decompose\"", "kind=\"values\"", "dtype=\"f64\"", "shape=\"k4\"", "status=\"OK\""}),
      3);
  EXPECT_EQ(server.metric(name, {"dtype=\"f64\"", "shape=\"k8_long\"", "status=\"OK\""}), 1);
  EXPECT_EQ(server.metric(name, {"dtype=\"invalid\"", "status=\"INVALID_ARGUMENT\""}), 1);
  EXPECT_EQ(server.metric(name), 5);
  EXPECT_EQ(server.metric("svdserve_phase_seconds_count", {"phase=\"total\""}), 5);
  EXPECT_EQ(server.metric("svdserve_phase_seconds_count", {"phase=\"respond\""}), 4);
  EXPECT_EQ(server.metric("svdserve_phase_seconds_count", {"phase=\"queue\""}), 4);
  EXPECT_EQ(server.metric("svdserve_matrices_total", {"status=\"ok\""}), 301);
  EXPECT_EQ(server.metric("svdserve_admitted_requests_total"), 4);
  EXPECT_GT(server.metric("svdserve_device_busy_seconds_total", {"device=\"host:0\""}), 0);
  EXPECT_EQ(server.metric("svdserve_build_info"), 1);
  EXPECT_EQ(server.metric("svdserve_ready"), 1);
  EXPECT_EQ(server.metric("svdserve_healthy_devices"), 1);
  v1::DecomposeRequest more = random_request(4, 4, 1);
  more.mutable_options()->set_vectors(v1::VECTORS_THIN);
  ASSERT_TRUE(decompose(channel, more, &response).ok());
  EXPECT_EQ(server.metric(name, {"kind=\"vectors\"", "status=\"OK\""}), 1);
  more.mutable_options()->clear_vectors();
  more.mutable_options()->mutable_mimo()->set_condition_number(true);
  ASSERT_TRUE(decompose(channel, more, &response).ok());
  EXPECT_EQ(server.metric(name, {"kind=\"answers\"", "status=\"OK\""}), 1);
}

TEST(OperationsTest, HttpAnswersWhatItKnowsAndNothingElse) {
  RunningServer server;
  EXPECT_EQ(server.get("/livez").code, 200);
  EXPECT_EQ(server.get("/readyz").code, 200);
  EXPECT_EQ(server.get("/metrics").code, 200);
  EXPECT_EQ(server.get("/").code, 404);
  EXPECT_EQ(server.get("/metrics/../../etc/passwd").code, 404);
  EXPECT_EQ(server.get("/" + std::string(20000, 'x')).code / 100, 4);
}

TEST(OperationsTest, SeveralDevicesAreListedAndGiveTheSameBits) {
  RunningServer one({"--host-devices=1"}), three({"--host-devices=3", "--threads=3", "--max-batch-bytes=64KiB"});
  v1::DecomposeResponse a, b;
  const v1::DecomposeRequest request = random_request(8, 8, 4000);
  ASSERT_TRUE(decompose(connect(one.address()), request, &a).ok());
  ASSERT_TRUE(decompose(connect(three.address()), request, &b).ok());
  EXPECT_EQ(a.singular_values(), b.singular_values());
  EXPECT_EQ(three.metric("svdserve_devices"), 3);
  EXPECT_EQ(three.metric("svdserve_device_info", {"backend=\"host\""}), 3);
  EXPECT_EQ(three.metric("svdserve_device_healthy"), 3);
  EXPECT_EQ(three.metric("svdserve_device_memory_bytes") + three.metric("svdserve_device_uploaded_bytes_total") +
                three.metric("svdserve_device_downloaded_bytes_total"),
            0);  // the host computes in place
  EXPECT_THAT(b.device(), HasSubstr("host:"));
}

TEST(OperationsTest, ServerInfoTellsWhatEachDeviceIsAndHasDone) {
  RunningServer server({"--host-devices=2", "--threads=2"});
  const auto channel = connect(server.address());
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, random_request(8, 8, 1000), &response).ok());
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(v1::SvdService::NewStub(channel)->GetServerInfo(&context, {}, &info).ok());
  ASSERT_EQ(info.devices_size(), 2);
  double busy = 0;
  for (const v1::Device& d : info.devices()) {
    EXPECT_THAT(d.name(), HasSubstr("host:"));
    EXPECT_EQ(d.backend(), "host");
    EXPECT_EQ(d.uuid() + d.model(), "");
    EXPECT_EQ(d.memory_bytes(), 0);
    EXPECT_EQ(d.threads(), 1);
    EXPECT_EQ(d.lanes(), 1);
    EXPECT_TRUE(d.healthy());
    busy += d.busy_seconds();
  }
  EXPECT_GT(busy, 0);
  EXPECT_NEAR(server.metric("svdserve_device_busy_seconds_total"), busy, 1e-6);
}

TEST(OperationsTest, UnixSockets) {
  const std::string path = "/tmp/svdserve_test_" + std::to_string(getpid()) + ".sock";
  RunningServer server({"--listen=unix:" + path});
  EXPECT_EQ(server.address(), "unix:" + path);
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(2, 2, 1), &response).ok());
}

TEST(OperationsTest, MetricsAreRenderedNowAndThen) {
  RunningServer server({"--metrics-max-age=1m"});
  EXPECT_EQ(server.metric("svdserve_admitted_requests_total"), 0);
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(connect(server.address()), random_request(2, 2, 1), &response).ok());
  EXPECT_EQ(server.metric("svdserve_admitted_requests_total"), 0);  // as it was
}

TEST(OperationsTest, WithoutAMetricsPortThereIsNone) {
  RunningServer server({"--metrics-listen="});
  EXPECT_EQ(server.metrics_address(), "");
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(2, 2, 1), &response).ok());
}

TEST(OperationsTest, TheConfigurationIsLoggedOnceInOneLine) {
  RunningServer server({"--max-matrices=12345"});
  const std::string log = server.log();
  EXPECT_THAT(log, HasSubstr("event=starting"));
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr && !faster_blas_kernels().empty()) {
    EXPECT_THAT(log, HasSubstr("blas=" + faster_blas_kernels())) << "it starts anew with these";
  }
  EXPECT_THAT(log, HasSubstr("max_matrices=12345"));
  EXPECT_EQ(log.find("event=starting"), log.rfind("event=starting"));
  for (size_t begin = 0; begin < log.size(); begin = log.find('\n', begin) + 1) {
    EXPECT_EQ(log.substr(begin, 3), "ts=") << log.substr(begin, 200);
  }
}

TEST(OperationsTest, LimitsAreLoggedWithTheirReasons) {
  RunningServer server({"--max-large-bytes=3GiB", "--large-threads=1", "--devices=host"});
  const std::string log = server.log();
  EXPECT_THAT(log, HasSubstr("event=machine memory_bytes="));
  EXPECT_THAT(log,
              HasSubstr("event=limit flag=max-large-bytes value=3221225472 reason=\"given by --max-large-bytes\""));
  EXPECT_THAT(log, HasSubstr("event=limit flag=cuda-pinned-bytes value=0 reason=\"no GPU\""));
  for (const char* flag : {"threads", "large-threads", "cuda-lanes", "max-inflight-bytes", "memory-quota-bytes"}) {
    EXPECT_THAT(log, HasSubstr(std::string("event=limit flag=") + flag + " value="));
  }
}

TEST(OperationsTest, LimitsThatTheMachineCannotKeepAreWarnedOf) {
  RunningServer server({"--max-large-bytes=1MiB", "--large-threads=64", "--max-inflight-bytes=1000TiB"});
  EXPECT_THAT(server.log(), HasSubstr("level=warning event=limits reason=\"the limits allow "));
  EXPECT_THAT(server.log(), HasSubstr("--max-large-bytes=1048576 admits no matrix that is too large for Decompose"));
}

TEST(OperationsTest, AVariableThatMeansNothingIsWarnedOf) {
  setenv("SVDSERVE_MAX_LARGE_BYTE", "1GiB", 1);
  setenv("SVDSERVE_PORT_50051_TCP", "tcp://10.0.0.1:50051", 1);
  RunningServer server;
  unsetenv("SVDSERVE_MAX_LARGE_BYTE");
  unsetenv("SVDSERVE_PORT_50051_TCP");
  EXPECT_THAT(server.log(), HasSubstr("level=warning event=unknown_variable name=SVDSERVE_MAX_LARGE_BYTE "));
  EXPECT_THAT(server.log(), Not(HasSubstr("SVDSERVE_PORT_50051_TCP")));
}

}  // namespace
}  // namespace svdserve::testing
