// The server's call of its own health, through gRPC.
#include "server/rpc/calls/health_call.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>

#include <future>

namespace svdserve::server {
namespace {

// Calls that nobody answers.
class Silence final : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    class Call final : public grpc::ServerGenericBidiReactor {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Call;
  }
};

struct TestServer {
  explicit TestServer(bool answers) {
    grpc::EnableDefaultHealthCheckService(answers);
    grpc::ServerBuilder builder;
    acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
    builder.RegisterCallbackGenericService(&silence);
    server = builder.BuildAndStart();
  }
  ~TestServer() { server->Shutdown(std::chrono::system_clock::now()); }

  Silence silence;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
};

std::future<bool> start(HealthCall* call, absl::Duration limit = absl::Minutes(4)) {
  auto answered = std::make_shared<std::promise<bool>>();
  std::future<bool> future = answered->get_future();
  call->start(limit, [answered](bool a) { answered->set_value(a); });
  return future;
}

TEST(HealthCallTest, IsAnsweredAgainAndAgain) {
  TestServer server(true);
  HealthCall call(server.acceptor.get());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(start(&call).get());
  server.server->GetHealthCheckService()->SetServingStatus(false);  // an answer, too
  EXPECT_TRUE(start(&call).get());
}

TEST(HealthCallTest, AfterALimitWithoutAnswerItConnectsAnew) {
  TestServer server(false);
  HealthCall call(server.acceptor.get());
  EXPECT_FALSE(start(&call, absl::Milliseconds(1)).get());
  EXPECT_FALSE(start(&call, absl::Milliseconds(1)).get());
}

TEST(HealthCallTest, EndsWithItsObject) {
  TestServer server(false);
  std::future<bool> answered;
  {
    HealthCall call(server.acceptor.get());
    answered = start(&call);
  }
  EXPECT_FALSE(answered.get());
}

TEST(HealthCallTest, AServerThatHasStoppedDoesNotAnswer) {
  TestServer server(true);
  HealthCall call(server.acceptor.get());
  EXPECT_TRUE(start(&call).get());
  server.server->Shutdown();
  EXPECT_FALSE(start(&call).get());
  EXPECT_FALSE(start(&call, absl::Milliseconds(1)).get());  // gRPC takes no connection any more
}

}  // namespace
}  // namespace svdserve::server
