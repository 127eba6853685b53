// A call has one id in its errors, its trailers and the log; the log tells of the calls that it should.
#include <gmock/gmock.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kTraceId[] = "4bf92f3577b34da6a3ce929d0e0e4736";
constexpr char kTraceparent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct Ended {
  grpc::Status status;
  std::string id;  // of the trailers
};

Ended call(const RunningServer& server, const v1::DecomposeRequest& request, const std::string& id = "") {
  grpc::ClientContext context;
  if (!id.empty()) context.AddMetadata("x-request-id", id);
  context.AddMetadata("traceparent", kTraceparent);
  v1::DecomposeResponse response;
  Ended out;
  out.status = v1::SvdService::NewStub(connect(server.address()))->Decompose(&context, request, &response);
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("x-request-id");
  if (found != trailers.end()) out.id.assign(found->second.data(), found->second.size());
  return out;
}

v1::DecomposeRequest wrong_request() {
  v1::DecomposeRequest request = random_request(2, 2, 1);
  request.mutable_matrices()->set_rows(-1);
  return request;
}

std::vector<std::string> lines_with(const RunningServer& server, const std::string& text) {
  std::vector<std::string> out;
  std::istringstream log(server.log());
  for (std::string line; std::getline(log, line);) {
    if (line.find(text) != std::string::npos) out.push_back(line);
  }
  return out;
}

TEST(AccessLogTest, AFailedCallHasOneIdEverywhere) {
  RunningServer server;
  const Ended ended = call(server, wrong_request(), "from-the-caller");
  EXPECT_EQ(ended.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(details_of(ended.status).reason, "INVALID_FIELD");
  EXPECT_EQ(details_of(ended.status).request_id, "from-the-caller");
  EXPECT_EQ(ended.id, "from-the-caller");
  const auto lines = lines_with(server, "id=from-the-caller");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("event=call method=Decompose code=INVALID_ARGUMENT reason=INVALID_FIELD"),
                              HasSubstr(std::string("trace=") + kTraceId + " span=00f067aa0ba902b7"),
                              HasSubstr("peer=127.0.0.1"), ContainsRegex("request_bytes=[1-9]")));
}

TEST(AccessLogTest, WithoutTheCallersIdTheServerGivesOne) {
  RunningServer server;
  const Ended failed = call(server, wrong_request(), "not an id");
  EXPECT_EQ(details_of(failed.status).request_id, failed.id);
  EXPECT_THAT(lines_with(server, "id=" + failed.id), SizeIs(1));
  const Ended good = call(server, random_request(2, 2, 1));
  EXPECT_TRUE(good.status.ok());
  EXPECT_NE(good.id, "");
  EXPECT_NE(good.id, failed.id);
  EXPECT_THAT(server.log(), Not(HasSubstr("id=" + good.id))) << "it is neither sampled nor slow";
}

TEST(AccessLogTest, ASampledCallIsDescribed) {
  RunningServer server({"--access-log=1"});
  ASSERT_TRUE(call(server, random_request(4, 3, 10), "good").status.ok());
  const auto lines = lines_with(server, "id=good");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THAT(lines[0], AllOf(HasSubstr("code=OK"), HasSubstr("matrices=10 rows=4 cols=3 dtype=f64 device=host:0"),
                              ContainsRegex(" seconds=[0-9]"), ContainsRegex(" compute_seconds=[0-9]"),
                              ContainsRegex(" reply_bytes=[1-9]")));
}

TEST(AccessLogTest, ASlowCallIsToldOf) {
  RunningServer server({"--access-log-slow=1ns"});
  ASSERT_TRUE(call(server, random_request(2, 2, 1), "slow").status.ok());
  EXPECT_THAT(lines_with(server, "id=slow"), SizeIs(1));
}

TEST(AccessLogTest, RequestsOfAStreamAreToldOfOneByOne) {
  RunningServer server({"--access-log=1"});
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "stream");
  const auto stub = v1::SvdService::NewStub(connect(server.address()));
  const auto stream = stub->DecomposeStream(&context);
  v1::DecomposeStreamRequest request;
  v1::DecomposeStreamResponse response;
  request.set_request_id(7);
  *request.mutable_request() = wrong_request();
  stream->Write(request);
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(details_of(response.status()).request_id, "stream");
  request.set_request_id(8);
  *request.mutable_request() = random_request(2, 2, 3);
  stream->Write(request);
  ASSERT_TRUE(stream->Read(&response));
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(wait_until([&] { return lines_with(server, "id=stream").size() == 3; }));
  EXPECT_THAT(lines_with(server, "id=stream stream_request=7"), ::testing::ElementsAre(HasSubstr("INVALID_ARGUMENT")));
  EXPECT_THAT(lines_with(server, "id=stream stream_request=8"), ::testing::ElementsAre(HasSubstr("matrices=3")));
}

TEST(AccessLogTest, CallsWithoutMatricesAndLargeOnesAreToldOf) {
  RunningServer server({"--access-log=1"});
  const auto stub = v1::SvdService::NewStub(connect(server.address()));
  {
    grpc::ClientContext context;
    v1::GetServerInfoResponse info;
    ASSERT_TRUE(stub->GetServerInfo(&context, {}, &info).ok());
  }
  EXPECT_THAT(lines_with(server, "method=GetServerInfo code=OK id="), SizeIs(1));
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "large");
  const auto large = stub->DecomposeLarge(&context);
  v1::DecomposeLargeRequest request;
  request.mutable_chunk();  // before open
  large->Write(request);
  v1::DecomposeLargeResponse response;
  EXPECT_FALSE(large->Read(&response));
  const grpc::Status status = large->Finish();
  EXPECT_EQ(details_of(status).reason, "UNEXPECTED_MESSAGE");
  EXPECT_EQ(details_of(status).request_id, "large");
  EXPECT_TRUE(wait_until([&] { return lines_with(server, "method=DecomposeLarge").size() == 1; }));
  EXPECT_THAT(lines_with(server, "id=large"), ::testing::ElementsAre(HasSubstr("reason=UNEXPECTED_MESSAGE")));
}

// Opens a call of the method and sends nothing. Returns its status.
grpc::Status say_nothing(const RunningServer& server, const std::string& method, const std::string& id) {
  grpc::GenericStub stub(connect(server.address()));
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", id);
  grpc::CompletionQueue queue;
  const auto stream = stub.PrepareCall(&context, "/svdserve.v1.SvdService/" + method, &queue);
  void* tag = nullptr;
  bool ok = false;
  stream->StartCall(nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  grpc::Status status;
  stream->Finish(&status, nullptr);
  EXPECT_TRUE(queue.Next(&tag, &ok));
  return status;
}

TEST(AccessLogTest, ACallThatIsCutOffHasOneLine) {
  RunningServer server({"--stream-idle-timeout=50ms", "--large-idle-timeout=50ms"});
  const std::vector<std::string> methods = {"Decompose", "DecomposeStream", "Eigendecompose", "DecomposeLarge"};
  for (const std::string& method : methods) {
    EXPECT_EQ(say_nothing(server, method, "idle-" + method).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED)
        << method;
  }
  EXPECT_EQ(server.stop(), 0);  // every call has ended for the server, too
  for (const std::string& method : methods) {
    const auto lines = lines_with(server, "id=idle-" + method + " ");
    ASSERT_THAT(lines, SizeIs(1)) << method;
    EXPECT_THAT(lines[0], HasSubstr("method=" + method + " code=DEADLINE_EXCEEDED reason=CLIENT_STALLED")) << method;
  }
}

TEST(AccessLogTest, LinesOfJsonAreJson) {
  RunningServer server({"--log-format=json", "--access-log=1"});
  call(server, wrong_request(), "json");
  std::istringstream log(server.log());
  int lines = 0, calls = 0;
  for (std::string line; std::getline(log, line); ++lines) {
    google::protobuf::Struct object;
    ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(line, &object).ok()) << line;
    const auto& fields = object.fields();
    EXPECT_TRUE(fields.contains("ts") && fields.contains("level") && fields.contains("event")) << line;
    if (fields.at("event").string_value() != "call") continue;
    ++calls;
    EXPECT_EQ(fields.at("id").string_value(), "json");
    EXPECT_GT(fields.at("request_bytes").number_value(), 0);
  }
  EXPECT_GT(lines, 5);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace svdserve::testing
