// Connections that want nothing good: too many, silent ones, ones that speak something else. Good clients are served.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

using ::testing::HasSubstr;

// A TCP connection without gRPC.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + address.rfind(':') + 1)));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  }
  ~RawConnection() { close(fd_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // The peer may have hung up before it has read everything.
  void Say(const std::string& bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return;
      sent += static_cast<size_t>(n);
    }
  }
  // Whether the server hangs up within this time.
  bool EndsWithin(std::chrono::milliseconds limit) const {
    const timeval time{limit.count() / 1000, limit.count() % 1000 * 1000};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    char buffer[4096];
    ssize_t n;
    while ((n = recv(fd_, buffer, sizeof buffer, 0)) > 0) {
    }
    return n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }

 private:
  int fd_;
};

std::vector<std::unique_ptr<RawConnection>> open_many(const std::string& address, int n, const std::string& saying) {
  std::vector<std::unique_ptr<RawConnection>> all;
  for (int i = 0; i < n; ++i) {
    all.push_back(std::make_unique<RawConnection>(address));
    all.back()->Say(saying);
  }
  return all;
}

// A call on a connection of its own.
grpc::Status call(const RunningServer& server) {
  v1::DecomposeResponse response;
  return decompose(connect(server.address()), random_request(2, 2, 1), &response, std::chrono::seconds(60));
}

TEST(ConnectionsTest, BeyondTheLimitTheyAreClosedAtOnce) {
  constexpr int kLimit = 16;
  RunningServer server({"--max-connections=16", "--max-peer-percent=100"});
  {
    // Connections that stay, however long this takes: the server hangs up on those that never say anything. They are
    // opened until one is refused, because a scrape may hold a place for a moment.
    std::vector<std::shared_ptr<grpc::Channel>> served;
    grpc::Status last;
    while (last.ok() && served.size() < 2 * kLimit) {
      const auto channel = connect(server.address());
      v1::DecomposeResponse response;
      last = decompose(channel, random_request(2, 2, 1), &response, std::chrono::seconds(60));
      if (last.ok()) served.push_back(channel);
    }
    EXPECT_EQ(last.error_code(), grpc::StatusCode::UNAVAILABLE) << last.error_message();
    EXPECT_GE(served.size(), kLimit - 4);
    EXPECT_LE(served.size(), kLimit + 4);
    const auto many = open_many(server.address(), 60, "");
    EXPECT_TRUE(many.back()->EndsWithin(std::chrono::seconds(60)));
    EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_refused_connections_total") >= 60 - kLimit; }));
    EXPECT_EQ(server.get("/readyz").code, 200);
  }
  EXPECT_TRUE(wait_until([&] { return call(server).ok(); }));
  EXPECT_THAT(server.log(), HasSubstr("event=connection_refused max_connections=16"));
}

// The server's own files and connections take no place.
TEST(ConnectionsTest, TheLimitIsOfClientsConnectionsAlone) {
  RunningServer server({"--max-connections=1"});
  const auto channel = connect(server.address());
  v1::DecomposeResponse response;
  EXPECT_TRUE(wait_until(
      [&] { return decompose(channel, random_request(2, 2, 1), &response, std::chrono::seconds(60)).ok(); }));
}

// A server that has no descriptor left, and then has some again.
TEST(ConnectionsTest, WithoutDescriptorsTheServerListensOn) {
  RunningServer server;
  ASSERT_TRUE(call(server).ok());
  rlimit before{}, none{};
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  none = before;
  none.rlim_cur = 3;
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const auto waiting = open_many(server.address(), 4, "");
  v1::DecomposeResponse response;
  EXPECT_FALSE(
      decompose(connect(server.address()), random_request(2, 2, 1), &response, std::chrono::milliseconds(500)).ok());
  ASSERT_EQ(prlimit(server.pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_TRUE(wait_until([&] { return call(server).ok(); }));
}

TEST(ConnectionsTest, SilentOnesKeepNobodyOutAndAreSentAway) {
  RunningServer server;
  const auto silent = open_many(server.address(), 200, "PRI * HT");
  EXPECT_TRUE(call(server).ok());
  EXPECT_TRUE(silent.front()->EndsWithin(std::chrono::seconds(60)));
  EXPECT_TRUE(silent.back()->EndsWithin(std::chrono::seconds(60)));
}

// One HTTP/2 frame; `length` where it is to lie about it.
std::string frame(int type, int flags, uint32_t stream, const std::string& payload, int64_t length = -1) {
  const auto n = static_cast<uint32_t>(length < 0 ? static_cast<int64_t>(payload.size()) : length);
  std::string out;
  for (const int shift : {16, 8, 0}) out.push_back(static_cast<char>(n >> shift & 0xff));
  out.push_back(static_cast<char>(type));
  out.push_back(static_cast<char>(flags));
  for (const int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(stream >> shift & 0xff));
  return out + payload;
}

std::string repeated(const std::string& text, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += text;
  return out;
}

TEST(ConnectionsTest, WhatIsNoGrpcHarmsNobody) {
  RunningServer server;
  std::mt19937 random(5);
  std::string noise(5000, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  std::string resets;
  for (uint32_t i = 0; i < 2000; ++i) {
    resets += frame(1, 4, 2 * i + 1, "\x82") + frame(3, 0, 2 * i + 1, std::string("\0\0\0\x08", 4));
  }
  const std::string hello = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "");
  const std::vector<std::string> bytes = {
      "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
      noise,
      hello + noise,
      hello + frame(4, 0, 0, "abc"),                        // settings of no length that they can have
      hello + repeated(frame(4, 0, 0, ""), 20000),          // a flood of settings
      hello + repeated(frame(6, 0, 0, "12345678"), 20000),  // of pings
      hello + resets,                                       // of calls begun and reset
      hello + frame(1, 0, 1, "\x82") + repeated(frame(9, 0, 1, std::string(100, 'a')), 2000),  // headers without end
      hello + frame(0, 0, 1, "data of no call"),
      hello + frame(0, 0, 1, "", 0xffffff),                                     // longer than any frame may be
      hello + repeated(frame(8, 0, 0, std::string("\x7f\xff\xff\xff", 4)), 3),  // a window that overflows
  };
  for (size_t i = 0; i < bytes.size(); ++i) {
    const RawConnection peer(server.address());
    peer.Say(bytes[i]);
    EXPECT_TRUE(call(server).ok()) << "beside case " << i;
  }
  EXPECT_TRUE(wait_until([&] { return server.metric("svdserve_inflight_requests") == 0; }));
}

// A header that is not in HPACK's table; both shorter than 127 bytes.
std::string header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

TEST(ConnectionsTest, HeadersMakeNoLinesOfTheLog) {
  RunningServer server;
  const std::string lie = "1 \nts=1 level=error event=device_lost\x1b[2J\xff";
  const RawConnection peer(server.address());
  peer.Say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "") +
           frame(1, 4, 1, "\x83\x86" + header(":path", "/a") + header("grpc-timeout", lie)));
  EXPECT_TRUE(wait_until([&] { return server.log().find("event=device_lost") != std::string::npos; }));
  const std::string log = server.log();
  EXPECT_THAT(log, HasSubstr(R"(\nts=1 level=error event=device_lost\u001b[2J\xff)"));
  EXPECT_THAT(log, HasSubstr(" event=grpc source="));
}

TEST(ConnectionsTest, AddressesInUseAreRefusedByName) {
  RunningServer server;
  const auto start = [](const std::string& listen, const std::string& metrics) {
    return run_program({server_binary(), "--listen=" + listen, "--metrics-listen=" + metrics});
  };
  ProgramResult result = start(server.address(), "");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("cannot listen on " + server.address() + ": Address already in use"));
  result = start("127.0.0.1:0", server.metrics_address());
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("cannot listen on " + server.metrics_address() + ": Address already in use"));
  result = start("unix:" + server.directory() + "/none/s", "");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("No such file or directory"));
  result = start("unix:/tmp/" + std::string(200, 'x'), "");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.output, HasSubstr("File name too long"));
}

TEST(ConnectionsTest, AUnixSocketIsTakenOverFromTheDeadOnly) {
  const std::string path = "/tmp/svdserve_test_" + std::to_string(getpid()) + "_taken.sock";
  {
    RunningServer first({"--listen=unix:" + path});
    const ProgramResult second = run_program({server_binary(), "--listen=unix:" + path, "--metrics-listen="});
    EXPECT_EQ(second.exit_code, 1);
    EXPECT_THAT(second.output, HasSubstr("Address already in use"));
    EXPECT_TRUE(call(first).ok());
    first.signal(SIGKILL);
    EXPECT_EQ(first.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(std::filesystem::exists(path));
  {
    RunningServer third({"--listen=unix:" + path});
    EXPECT_TRUE(call(third).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(ConnectionsTest, AReadyFileThatCannotBeWrittenIsSaidByName) {
  for (const std::string path : {"/proc/none/ready", "/proc"}) {
    const ProgramResult result =
        run_program({server_binary(), "--listen=127.0.0.1:0", "--metrics-listen=", "--ready-file=" + path});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.output, HasSubstr("cannot write --ready-file " + path + ": "));
  }
}

}  // namespace
}  // namespace svdserve::testing
