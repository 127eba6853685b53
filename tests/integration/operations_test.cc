// The view of operators and their tools: health, reflection, probes, metrics, sockets and logs.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpc/health/v1/health.grpc.pb.h>
#include <grpc/reflection/v1alpha/reflection.grpc.pb.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <list>
#include <map>
#include <set>

#include "engine/large_engine.h"
#include "tests/support/running_server.h"
#include "tests/support/silent_calls.h"
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

using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

TEST(OperationsTest, ReflectionKnowsServicesFilesAndSymbols) {
  RunningServer server;
  const auto stub = ServerReflection::NewStub(connect(server.address()));
  grpc::ClientContext context;
  const auto call = stub->ServerReflectionInfo(&context);
  const auto ask = [&call](const ServerReflectionRequest& request) {
    ServerReflectionResponse reply;
    EXPECT_TRUE(call->Write(request) && call->Read(&reply));
    EXPECT_EQ(reply.original_request().SerializeAsString(), request.SerializeAsString());
    return reply;
  };
  ServerReflectionRequest request;
  request.set_list_services("*");
  const ServerReflectionResponse list = ask(request);
  std::set<std::string> services;
  for (const auto& service : list.list_services_response().service()) services.insert(service.name());
  EXPECT_THAT(services, ::testing::ElementsAre("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
                                               "svdserve.v1.SvdService"));
  for (const std::string& service : services) {
    request.set_file_containing_symbol(service);
    EXPECT_GE(ask(request).file_descriptor_response().file_descriptor_proto_size(), 1) << service;
  }
  // The file comes first, then all that it imports: a client can build every message of it.
  request.set_file_by_filename("svdserve/v1/svd_service.proto");
  google::protobuf::DescriptorPool pool;
  const ServerReflectionResponse files = ask(request);
  const auto& protos = files.file_descriptor_response().file_descriptor_proto();
  for (auto proto = protos.rbegin(); proto != protos.rend(); ++proto) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(*proto));
    EXPECT_NE(pool.BuildFile(file), nullptr) << file.name();
  }
  EXPECT_NE(pool.FindServiceByName("svdserve.v1.SvdService"), nullptr);
  request.set_file_containing_symbol("svdserve.v1.Nothing");
  EXPECT_EQ(ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.mutable_file_containing_extension()->set_containing_type("svdserve.v1.DecomposeRequest");
  EXPECT_EQ(ask(request).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  request.set_all_extension_numbers_of_type("svdserve.v1.DecomposeRequest");
  EXPECT_EQ(ask(request).all_extension_numbers_response().base_type_name(), "svdserve.v1.DecomposeRequest");
  EXPECT_EQ(ask(ServerReflectionRequest()).error_response().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  call->WritesDone();
  EXPECT_TRUE(call->Finish().ok());
}

TEST(OperationsTest, AReflectionRequestIsShort) {
  RunningServer server;
  const auto stub = ServerReflection::NewStub(connect(server.address()));
  grpc::ClientContext context;
  const auto call = stub->ServerReflectionInfo(&context);
  ServerReflectionRequest request;
  request.set_host(std::string(70000, 'x'));
  call->Write(request);
  ServerReflectionResponse reply;
  EXPECT_FALSE(call->Read(&reply));
  EXPECT_EQ(call->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// Calls of reflection that say nothing.
class SilentReflections {
 public:
  explicit SilentReflections(const std::string& address) : calls_(connect(address)) {}

  const std::shared_ptr<grpc::Channel>& channel() const { return calls_.channel(); }

  void Begin(int n) {
    const auto until = std::chrono::system_clock::now() + std::chrono::minutes(4);
    for (int i = 0; i < n; ++i) {
      calls_.begin(kReflection, [&](grpc::ClientContext* context) { context->set_deadline(until); });
    }
    on_their_way_ += n;
  }
  // Waits until no more than `n` are on their way. Returns the codes of those that ended.
  std::map<grpc::StatusCode, int> AwaitAllBut(int n) {
    std::map<grpc::StatusCode, int> codes;
    for (; on_their_way_ > n; --on_their_way_) {
      const SilentCalls::Call* const ended = calls_.next_ended();
      if (ended == nullptr) break;
      ++codes[ended->status.error_code()];
    }
    return codes;
  }

 private:
  SilentCalls calls_;
  int on_their_way_ = 0;
};

int threads_of(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return 0;
}

TEST(OperationsTest, ReflectionHasNoThreads) {
  constexpr int kConnections = 4, kCalls = 250;
  RunningServer server({"--stream-idle-timeout=24h"});
  const int before = threads_of(server.pid());
  std::list<SilentReflections> connections;
  for (int i = 0; i < kConnections; ++i) connections.emplace_back(server.address()).Begin(kCalls);
  // The server has seen the calls of a connection when it answers one that came after them.
  for (const SilentReflections& connection : connections) {
    v1::DecomposeResponse response;
    EXPECT_TRUE(decompose(connection.channel(), random_request(2, 2, 1), &response).ok());
  }
  EXPECT_LT(threads_of(server.pid()), before + 32);
  // They do not hold up the end, which their clients are told.
  server.signal(SIGTERM);
  for (SilentReflections& connection : connections) {
    // Where the machine is slow, silent calls that others wait for have come to their end before.
    EXPECT_THAT(connection.AwaitAllBut(0), ::testing::Each(::testing::Key(::testing::AnyOf(
                                               grpc::StatusCode::UNAVAILABLE, grpc::StatusCode::DEADLINE_EXCEEDED))));
  }
  connections.clear();  // nobody polls them any more, so they would not answer the server's farewell
  EXPECT_EQ(server.wait(), 0);
}

TEST(OperationsTest, CallsOfReflectionCountAsOpenCalls) {
  constexpr int kCalls = 30, kMayGoOn = 20;
  RunningServer server({"--max-open-calls=40", "--max-peer-percent=50", "--stream-idle-timeout=24h"});
  v1::DecomposeResponse response;
  {
    SilentReflections calls(server.address());
    calls.Begin(kCalls);
    const std::map<grpc::StatusCode, int> refused{{grpc::StatusCode::RESOURCE_EXHAUSTED, kCalls - kMayGoOn}};
    EXPECT_EQ(calls.AwaitAllBut(kMayGoOn), refused);
    const grpc::Status status = decompose(connect(server.address()), random_request(2, 2, 1), &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(details_of(status).message, HasSubstr("calls of this client"));
  }
  EXPECT_TRUE(
      wait_until([&] { return decompose(connect(server.address()), random_request(2, 2, 1), &response).ok(); }));
}

TEST(OperationsTest, ReflectionThatAsksNothingEnds) {
  RunningServer server({"--stream-idle-timeout=50ms"});
  SilentReflections calls(server.address());
  calls.Begin(10);
  const std::map<grpc::StatusCode, int> ended{{grpc::StatusCode::DEADLINE_EXCEEDED, 10}};
  EXPECT_EQ(calls.AwaitAllBut(0), ended);
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

// A watch of health, open until it is destroyed.
struct Watch {
  explicit Watch(const std::shared_ptr<grpc::Channel>& channel)
      : stream(grpc::health::v1::Health::NewStub(channel)->Watch(&context, HealthCheckRequest())) {
    HealthCheckResponse seen;
    is_open = stream->Read(&seen);
  }
  ~Watch() {
    context.TryCancel();
    stream->Finish();
  }
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> stream;
  bool is_open = false;
};

TEST(OperationsTest, EachUserOfAUnixSocketIsAPeer) {
  const std::string path = "/tmp/svdserve_users_" + std::to_string(getpid()) + ".sock";
  RunningServer server({"--listen=unix:" + path, "--max-open-calls=4", "--max-peer-percent=50"});
  const auto mine = connect(server.address());
  Watch first(mine), second(mine);
  EXPECT_TRUE(first.is_open && second.is_open);
  v1::DecomposeResponse response;
  const grpc::Status status = decompose(mine, random_request(2, 2, 1), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(details_of(status).message, HasSubstr("calls of this client"));
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  constexpr uid_t kOther = 65534;
  const auto another = connect(server.address());
  ASSERT_EQ(seteuid(kOther), 0);  // a socket's user is the one who connects it
  const grpc::Status of_another = decompose(another, random_request(2, 2, 1), &response);
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_TRUE(of_another.ok()) << of_another.error_message();
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
