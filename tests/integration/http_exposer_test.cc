// The HTTP port against peers that misbehave: none of them may keep a probe from its answer.
#include "server/metrics/http_exposer.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <chrono>
#include <thread>

#include "server/base/listening_socket.h"
#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::unique_ptr<HttpExposer> expose(std::string metrics = "some_metric 1\n") {
  HttpHandlers handlers;
  handlers.metrics = [metrics] { return metrics; };
  handlers.live = handlers.ready = [] { return true; };
  std::string error;
  auto exposer = HttpExposer::listen(*ListenAddress::resolve("127.0.0.1:0", &error), std::move(handlers), &error);
  EXPECT_NE(exposer, nullptr) << error;
  return exposer;
}

Descriptor connect_to(const HttpExposer& exposer, Descriptor socket = Descriptor(::socket(AF_INET, SOCK_STREAM, 0))) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(std::stoi(exposer.address().substr(exposer.address().rfind(':') + 1))));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const timeval limit{60, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return socket;
}

void say(const Descriptor& socket, const std::string& text) {
  EXPECT_EQ(send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

// Whether the peer has not closed, of a connection on which it says nothing.
bool is_open(const Descriptor& socket) {
  char byte;
  return recv(socket.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// Until the peer closes.
std::string hear(const Descriptor& socket) {
  std::string all;
  char buffer[65536];
  for (ssize_t n; (n = recv(socket.get(), buffer, sizeof buffer, 0)) > 0;) all.append(buffer, static_cast<size_t>(n));
  return all;
}

std::string ask(const HttpExposer& exposer, const std::string& request) {
  const Descriptor socket = connect_to(exposer);
  say(socket, request);
  return hear(socket);
}

const std::string kLivez = "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n";

TEST(HttpExposer, AnswersInTheFormOfHttp) {
  const auto exposer = expose();
  EXPECT_THAT(ask(*exposer, kLivez), StartsWith("HTTP/1.1 200 OK\r\n"));
  const std::string metrics = ask(*exposer, "GET /metrics?name=x HTTP/1.0\r\n\r\n");
  EXPECT_THAT(metrics, HasSubstr("\r\nContent-Length: 14\r\n"));
  EXPECT_THAT(metrics, HasSubstr("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  EXPECT_THAT(metrics, EndsWith("\r\n\r\nsome_metric 1\n"));
  const std::string head = ask(*exposer, "HEAD /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("\r\nContent-Length: 14\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
  const std::string post = ask(*exposer, "POST /metrics HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\nbody");
  EXPECT_THAT(post, StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(post, HasSubstr("\r\nAllow: GET, HEAD\r\n"));
  EXPECT_THAT(ask(*exposer, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(*exposer, std::string("\0\xff\r\n\r\n", 6)), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(ask(*exposer, "GET /" + std::string(20000, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST(HttpExposer, ProbesFollowTheirHandlers) {
  for (const bool yes : {true, false}) {
    HttpHandlers handlers;
    handlers.live = [yes] { return yes; };
    handlers.ready = [yes] { return !yes; };
    std::string error;
    const auto exposer =
        HttpExposer::listen(*ListenAddress::resolve("127.0.0.1:0", &error), std::move(handlers), &error);
    EXPECT_THAT(ask(*exposer, kLivez), StartsWith(yes ? "HTTP/1.1 200 " : "HTTP/1.1 503 "));
    EXPECT_THAT(ask(*exposer, kLivez), EndsWith(yes ? "ok\n" : "the gRPC server does not reply\n"));
    EXPECT_THAT(ask(*exposer, "GET /readyz HTTP/1.1\r\n\r\n"), StartsWith(yes ? "HTTP/1.1 503 " : "HTTP/1.1 200 "));
  }
}

TEST(ReuseText, RendersAnewWhenTheTextIsTooOld) {
  FakeClock clock;
  int rendered = 0;
  const auto text = reuse_text([&] { return std::to_string(++rendered); }, absl::Milliseconds(250), &clock);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(text(), "1");
  clock.advance(absl::Milliseconds(249));
  EXPECT_EQ(text(), "1");
  clock.advance(absl::Milliseconds(1));
  EXPECT_EQ(text(), "2");
  const auto fresh = reuse_text([&] { return std::to_string(++rendered); }, absl::ZeroDuration(), &clock);
  EXPECT_EQ(fresh(), "3");
  EXPECT_EQ(fresh(), "4");
}

TEST(HttpExposer, HalfRequestsKeepNobodyWaiting) {
  const auto exposer = expose();
  bool beside = false;  // answered before the half requests had their time: on a busy machine not at the first try
  for (int i = 0; i < 10 && !beside; ++i) {
    std::vector<Descriptor> slow;
    for (int j = 0; j < 200; ++j) {
      slow.push_back(connect_to(*exposer));
      say(slow.back(), "GET /liv");
    }
    EXPECT_THAT(ask(*exposer, kLivez), StartsWith("HTTP/1.1 200 "));
    beside = is_open(slow.back());
  }
  EXPECT_TRUE(beside);
}

TEST(HttpExposer, APeerThatDoesNotReadKeepsNobodyWaiting) {
  const std::string large(24 << 20, 'm');  // beyond what sockets hold
  const auto exposer = expose(large);
  const Descriptor lazy = connect_to(*exposer);
  say(lazy, "GET /metrics HTTP/1.1\r\n\r\n");
  char first;
  ASSERT_EQ(recv(lazy.get(), &first, 1, 0), 1);  // its reply has begun
  EXPECT_THAT(ask(*exposer, kLivez), StartsWith("HTTP/1.1 200 "));
  EXPECT_GE(hear(lazy).size(), large.size());  // and it gets all of it, when it wants to
}

TEST(HttpExposer, APeerThatSaysNothingIsSentAway) {
  const auto exposer = expose();
  const Descriptor silent = connect_to(*exposer), half = connect_to(*exposer);
  say(half, "GET /livez HTTP/1.1\r\n");
  const auto begin = steady_clock::now();
  EXPECT_EQ(hear(silent), "");
  EXPECT_EQ(hear(half), "");
  EXPECT_LT(steady_clock::now() - begin, seconds(40));
}

TEST(HttpExposer, StopsAtOnce) {
  steady_clock::duration fastest = seconds(1000);
  for (int i = 0; i < 20 && fastest > std::chrono::milliseconds(500); ++i) {
    auto exposer = expose();
    const Descriptor idle = connect_to(*exposer);
    EXPECT_THAT(ask(*exposer, kLivez), StartsWith("HTTP/1.1 200 "));
    const auto begin = steady_clock::now();
    exposer.reset();
    fastest = std::min(fastest, steady_clock::now() - begin);
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(500));
}

TEST(HttpExposer, WithoutDescriptorsItWaitsForThem) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const auto exposer = expose();
  Descriptor mine(::socket(AF_INET, SOCK_STREAM, 0));
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<Descriptor> all;
  for (int fd; (fd = open("/dev/null", O_RDONLY)) >= 0;) all.emplace_back(fd);
  mine = connect_to(*exposer, std::move(mine));
  say(mine, kLivez);
  // Nobody can accept it yet; the thread must neither end nor spin.
  timespec used_before{}, used_after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used_before);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used_after);
  EXPECT_LT(
      (used_after.tv_sec - used_before.tv_sec) + 1e-9 * static_cast<double>(used_after.tv_nsec - used_before.tv_nsec),
      0.25);
  all.clear();
  EXPECT_THAT(hear(mine), StartsWith("HTTP/1.1 200 "));
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(HttpExposer, SaysWhyItCannotListen) {
  const auto exposer = expose();
  std::string error;
  EXPECT_EQ(HttpExposer::listen(*ListenAddress::resolve(exposer->address(), &error), {}, &error), nullptr);
  EXPECT_EQ(error, "cannot listen on " + exposer->address() + ": Address already in use");
}

}  // namespace
}  // namespace svdserve::server
