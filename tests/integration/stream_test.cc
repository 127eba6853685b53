// DecomposeStream through a real server: answers matched by id, bad requests that end nothing, windows and timeouts.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "tests/support/running_server.h"
#include "tests/support/silent_calls.h"
#include "tests/support/wire.h"
#include "wire/metadata.h"

namespace svdserve::testing {
namespace {

using Stream = grpc::ClientReaderWriter<v1::DecomposeStreamRequest, v1::DecomposeStreamResponse>;

v1::DecomposeStreamRequest numbered(uint64_t id, const v1::DecomposeRequest& request) {
  v1::DecomposeStreamRequest out;
  out.set_request_id(id);
  *out.mutable_request() = request;
  return out;
}

// A stream with what it needs; cancelled where a test leaves it open.
struct OpenStream {
  explicit OpenStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& announced = "")
      : stub(v1::SvdService::NewStub(channel)), stream((Prepare(announced), stub->DecomposeStream(&context))) {}
  ~OpenStream() {
    if (stream != nullptr && !finished) {
      context.TryCancel();
      stream->Finish();
    }
  }
  void Prepare(const std::string& announced) {
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(4));
    if (!announced.empty()) context.AddMetadata(kRequestBytesKey, announced);
  }
  grpc::Status Finish() {
    finished = true;
    return stream->Finish();
  }
  // Every answer until the server ends the stream, by id.
  std::map<uint64_t, v1::DecomposeStreamResponse> ReadAll() {
    std::map<uint64_t, v1::DecomposeStreamResponse> answers;
    v1::DecomposeStreamResponse answer;
    while (stream->Read(&answer)) EXPECT_TRUE(answers.emplace(answer.request_id(), answer).second);
    return answers;
  }

  grpc::ClientContext context;
  std::unique_ptr<v1::SvdService::Stub> stub;
  std::unique_ptr<Stream> stream;
  bool finished = false;
};

// One matrix of 1 KiB, whose U in full is more than connect_with_fixed_window() has room for.
constexpr size_t kSmallRequestBytes = 128 * sizeof(double);
constexpr size_t kLargeAnswerBytes = 128 * kSmallRequestBytes;
static_assert(kLargeAnswerBytes > kFixedWindowBytes);
v1::DecomposeRequest request_of_a_large_answer() {
  v1::DecomposeRequest request = random_request(128, 1, 1);
  request.mutable_options()->set_vectors(v1::VECTORS_FULL);
  return request;
}

TEST(StreamTest, GoesOnWhenItsConnectionIsTooOld) {
  RunningServer server({"--max-connection-age=50ms"});
  OpenStream open(connect(server.address()));
  v1::DecomposeStreamResponse answer;
  const auto begin = std::chrono::steady_clock::now();
  for (uint64_t id = 0; std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(500); ++id) {
    ASSERT_TRUE(open.stream->Write(numbered(id, random_request(2, 2, 1))));
    ASSERT_TRUE(open.stream->Read(&answer));
    EXPECT_EQ(answer.request_id(), id);
  }
  open.stream->WritesDone();
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, EveryRequestIsAnsweredOnceWithItsIdAndTheBitsOfAUnaryCall) {
  RunningServer server;
  const auto channel = connect(server.address());
  OpenStream open(channel);
  constexpr uint64_t kRequests = 300;
  std::thread writer([&] {
    for (uint64_t i = 0; i < kRequests; ++i) {
      EXPECT_TRUE(open.stream->Write(numbered(7 * i, random_request(1 + i % 6, 4, i % 5, i))));
    }
    open.stream->WritesDone();  // what is in flight is still answered
  });
  const auto answers = open.ReadAll();
  writer.join();
  EXPECT_TRUE(open.Finish().ok());
  ASSERT_EQ(answers.size(), kRequests);
  for (uint64_t i = 0; i < kRequests; i += 37) {
    v1::DecomposeResponse want;
    ASSERT_TRUE(decompose(channel, random_request(1 + i % 6, 4, i % 5, i), &want).ok());
    const v1::DecomposeStreamResponse& got = answers.at(7 * i);
    EXPECT_EQ(got.status().code(), 0);
    EXPECT_EQ(got.response().singular_values(), want.singular_values());
    EXPECT_EQ(got.response().count(), want.count());
  }
}

TEST(StreamTest, BadRequestsAreAnsweredAndEndNothing) {
  RunningServer server;
  OpenStream open(connect(server.address()));
  v1::DecomposeRequest wrong_rows = random_request(2, 2, 1), wrong_type = wrong_rows, short_data = wrong_rows;
  wrong_rows.mutable_matrices()->set_rows(-1);
  wrong_type.mutable_matrices()->set_data_type(static_cast<v1::DataType>(99));
  short_data.mutable_matrices()->mutable_data()->pop_back();
  v1::DecomposeStreamRequest no_request, negative_timeout = numbered(6, random_request(2, 2, 1));
  no_request.set_request_id(5);
  negative_timeout.mutable_timeout()->set_seconds(-1);
  ASSERT_TRUE(open.stream->Write(numbered(1, random_request(2, 2, 1))));
  ASSERT_TRUE(open.stream->Write(numbered(2, wrong_rows)));
  ASSERT_TRUE(open.stream->Write(numbered(3, wrong_type)));
  ASSERT_TRUE(open.stream->Write(numbered(4, short_data)));
  ASSERT_TRUE(open.stream->Write(no_request));
  ASSERT_TRUE(open.stream->Write(negative_timeout));
  ASSERT_TRUE(open.stream->Write(numbered(7, v1::DecomposeRequest())));
  ASSERT_TRUE(open.stream->Write(numbered(8, random_request(3, 3, 2))));
  open.stream->WritesDone();
  const auto answers = open.ReadAll();
  EXPECT_TRUE(open.Finish().ok());
  ASSERT_EQ(answers.size(), 8u);
  const std::map<uint64_t, std::string> fields = {{2, "request.matrices.rows"},
                                                  {3, "request.matrices.data_type"},
                                                  {4, "request.matrices.data"},
                                                  {5, "request"},
                                                  {6, "timeout"},
                                                  {7, "request.matrices"}};
  for (const auto& [id, field] : fields) {
    const ErrorDetails details = details_of(answers.at(id).status());
    EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT)) << id;
    EXPECT_EQ(details.field, field);
    EXPECT_EQ(details.reason, "INVALID_FIELD");
    EXPECT_FALSE(answers.at(id).has_response());
  }
  for (const uint64_t id : {1, 8}) {
    EXPECT_EQ(answers.at(id).status().code(), 0);
    EXPECT_TRUE(answers.at(id).has_response());
  }
}

TEST(StreamTest, AnIdInFlightIsRefusedForTheSecondAndFreeAgainAfterwards) {
  RunningServer server({"--threads=1", "--simd=scalar"});
  OpenStream open(connect(server.address()));
  ASSERT_TRUE(open.stream->Write(numbered(1, slow_request(1500))));
  ASSERT_TRUE(open.stream->Write(numbered(1, random_request(2, 2, 1))));
  v1::DecomposeStreamResponse refusal, answer;
  ASSERT_TRUE(open.stream->Read(&refusal));
  const ErrorDetails details = details_of(refusal.status());
  EXPECT_EQ(refusal.request_id(), 1u);
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(details.field, "request_id");
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.status().code(), 0);
  EXPECT_EQ(answer.response().count(), 1500);
  ASSERT_TRUE(open.stream->Write(numbered(1, random_request(2, 2, 1))));
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.status().code(), 0);
  EXPECT_EQ(answer.response().count(), 1);
  open.stream->WritesDone();
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, TheServerStopsReadingWhenTheWindowIsFull) {
  constexpr uint64_t kWindow = 4, kRequests = 40;
  RunningServer server({"--max-stream-requests=4"});
  const auto channel = connect_with_fixed_window(server.address());
  OpenStream open(channel);
  // Nobody reads answers, and the client's transport has room for less than one: not even the first can leave whole.
  // All requests together fit into the server's transport, whose window for what it has not read is 64 KiB at first.
  static_assert(kRequests * kSmallRequestBytes < 50000);
  for (uint64_t i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(open.stream->Write(numbered(i, request_of_a_large_answer())));
  }
  open.stream->WritesDone();
  // A call behind them on the same connection is answered: they are all there.
  v1::DecomposeResponse response;
  ASSERT_TRUE(decompose(channel, random_request(2, 2, 1), &response).ok());
  const auto answered = [&] { return server.metric("svdserve_requests_total", {"rpc=\"DecomposeStream\""}); };
  EXPECT_TRUE(wait_until([&] { return answered() >= kWindow; }));
  EXPECT_FALSE(wait_until([&] { return answered() > kWindow; }, std::chrono::milliseconds(500)));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == kWindow; }));
  // A reader sets it going again, and nothing was lost.
  const auto answers = open.ReadAll();
  EXPECT_EQ(answers.size(), kRequests);
  for (const auto& [id, answer] : answers) EXPECT_EQ(answer.response().left_vectors().size(), kLargeAnswerBytes) << id;
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, ATimeoutAnswersItsRequestWhileTheDeviceComputes) {
  RunningServer server({"--threads=1", "--simd=scalar"});
  OpenStream open(connect(server.address()));
  v1::DecomposeStreamRequest slow = numbered(1, slow_request(6000));
  slow.mutable_timeout()->set_nanos(50000000);
  ASSERT_TRUE(open.stream->Write(slow));
  v1::DecomposeStreamResponse answer;
  ASSERT_TRUE(open.stream->Read(&answer));
  const ErrorDetails details = details_of(answer.status());
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::DEADLINE_EXCEEDED));
  EXPECT_EQ(details.reason, "DEADLINE_EXCEEDED");
  ASSERT_TRUE(open.stream->Write(numbered(2, random_request(2, 2, 1))));
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.request_id(), 2u);
  EXPECT_EQ(answer.status().code(), 0);
  open.stream->WritesDone();
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, BytesThatAreNoMessageEndTheStreamAfterWhatIsInFlight) {
  RunningServer server;
  grpc::GenericStub stub(connect(server.address()));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, "/svdserve.v1.SvdService/DecomposeStream", &queue);
  const auto step = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto write = [&](const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return step();
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(step());
  ASSERT_TRUE(write(numbered(11, slow_request(200)).SerializeAsString()));
  ASSERT_TRUE(write("\xff\xff\xff\xff"));
  grpc::ByteBuffer reply;
  call->Read(&reply, nullptr);
  ASSERT_TRUE(step());
  grpc::Slice bytes;
  ASSERT_TRUE(reply.DumpToSingleSlice(&bytes).ok());
  v1::DecomposeStreamResponse answer;
  ASSERT_TRUE(answer.ParseFromArray(bytes.begin(), static_cast<int>(bytes.size())));
  EXPECT_EQ(answer.request_id(), 11u);
  EXPECT_EQ(answer.response().count(), 200);
  grpc::Status status;
  call->Finish(&status, nullptr);
  step();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
}

// Calls without a message, which claim the message limit: 1 MiB of the 4 MiB that the server has.
class ClaimsOf1MiB {
 public:
  ClaimsOf1MiB(const RunningServer& server, int n) : calls_(connect(server.address())) {
    EXPECT_TRUE(calls_.wait_until_connected());
    for (int i = 0; i < n; ++i) calls_.begin("/svdserve.v1.SvdService/Decompose", [](grpc::ClientContext*) {});
    EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == n * double{1 << 20}; }));
  }
  static std::vector<std::string> flags() {
    return {"--max-inflight-bytes=4MiB", "--max-batch-bytes=1MiB",    "--max-message-bytes=1MiB",
            "--max-peer-percent=100",    "--stream-idle-timeout=24h", "--queue-timeout=24h"};
  }

 private:
  SilentCalls calls_;
};

TEST(StreamTest, NothingIsReadWithoutRoomForIt) {
  RunningServer server(ClaimsOf1MiB::flags());
  const auto channel = connect(server.address());
  auto silent = std::make_unique<ClaimsOf1MiB>(server, 3);
  OpenStream open(channel);
  ASSERT_TRUE(open.stream->Write(numbered(1, random_request(2, 2, 1))));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_waiting_requests") == 1; }));
  // A small call that came behind it on the same connection is served.
  grpc::ClientContext context;
  context.AddMetadata(kRequestBytesKey, "1000");
  v1::DecomposeResponse response;
  EXPECT_TRUE(v1::SvdService::NewStub(channel)->Decompose(&context, random_request(2, 2, 1), &response).ok());
  EXPECT_EQ(server.metric("svdserve_waiting_requests"), 1);
  EXPECT_EQ(server.metric("svdserve_requests_total", {"rpc=\"DecomposeStream\""}), 0);
  silent.reset();
  v1::DecomposeStreamResponse answer;
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.request_id(), 1u);
  EXPECT_EQ(answer.status().code(), 0);
  // A stream that is open and quiet holds nothing.
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
  open.stream->WritesDone();
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, AStreamThatWaitsForRoomMayBeCancelled) {
  RunningServer server(ClaimsOf1MiB::flags());
  ClaimsOf1MiB silent(server, 3);
  {
    OpenStream open(connect(server.address()));
    EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_waiting_requests") == 1; }));
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_waiting_requests") == 0; }));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_open_streams") == 0; }));
}

TEST(StreamTest, WhoWaitsTooLongForRoomIsToldById) {
  std::vector<std::string> flags = ClaimsOf1MiB::flags();
  flags.push_back("--queue-timeout=50ms");
  RunningServer server(flags);
  ClaimsOf1MiB silent(server, 3);
  OpenStream open(connect(server.address()));
  ASSERT_TRUE(open.stream->Write(numbered(7, random_request(2, 2, 30000))));  // with its values more than is left
  v1::DecomposeStreamResponse answer;
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.request_id(), 7u);
  EXPECT_EQ(details_of(answer.status()).reason, "OVERLOADED_BYTES");
  ASSERT_TRUE(open.stream->Write(numbered(8, random_request(2, 2, 1))));
  ASSERT_TRUE(open.stream->Read(&answer));
  EXPECT_EQ(answer.status().code(), 0);
}

TEST(StreamTest, AnAnnouncementHoldsForEachMessage) {
  RunningServer server;
  OpenStream open(connect(server.address()), "1000");
  // The claim for a message that does not come goes back.
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_open_streams") == 1; }));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_bytes") == 0; }));
  for (uint64_t id = 0; id < 6; ++id) {
    ASSERT_TRUE(open.stream->Write(numbered(id, random_request(2, 2, id % 2 == 0 ? 10 : 100))));
    v1::DecomposeStreamResponse answer;
    ASSERT_TRUE(open.stream->Read(&answer));
    EXPECT_EQ(answer.request_id(), id);
    EXPECT_EQ(details_of(answer.status()).field, id % 2 == 0 ? "" : kRequestBytesKey);
  }
  open.stream->WritesDone();
  EXPECT_TRUE(open.Finish().ok());
}

TEST(StreamTest, MoreStreamsThanTheLimitAreRefusedAtOnce) {
  RunningServer server({"--max-streams=2", "--max-peer-percent=100"});
  const auto channel = connect(server.address());
  OpenStream first(channel), second(channel);
  for (OpenStream* open : {&first, &second}) {
    v1::DecomposeStreamResponse answer;
    ASSERT_TRUE(open->stream->Write(numbered(1, random_request(2, 2, 1))));
    ASSERT_TRUE(open->stream->Read(&answer));
  }
  OpenStream third(channel);
  v1::DecomposeStreamResponse answer;
  EXPECT_FALSE(third.stream->Read(&answer));
  const ErrorDetails details = details_of(third.Finish());
  EXPECT_EQ(details.code, static_cast<int>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(details.reason, "OVERLOADED_REQUESTS");
  EXPECT_GT(details.retry_seconds, 0);
}

TEST(StreamTest, AClientThatTakesNothingIsGivenUp) {
  RunningServer server({"--stream-idle-timeout=1s"});
  OpenStream open(connect_with_fixed_window(server.address()));
  ASSERT_TRUE(open.stream->Write(numbered(1, request_of_a_large_answer())));
  open.stream->Write(numbered(2, request_of_a_large_answer()));  // fails where the stream was given up before
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_requests_total", {"status=\"OK\""}) >= 1; }));
  // Others are served meanwhile, and what it held is free.
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(connect(server.address()), random_request(4, 4, 10), &response).ok());
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_open_streams") == 0; }));
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == 0; }));
  EXPECT_TRUE(open.ReadAll().empty());
  const grpc::Status status = open.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << status.error_message();
  EXPECT_THAT(status.error_message(),
              ::testing::StartsWith("CLIENT_STALLED: the client took nothing for 1s (request "));
}

}  // namespace
}  // namespace svdserve::testing
