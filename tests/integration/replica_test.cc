// Three real servers and one client of the C++ library: equal shares, a rolling update, servers that go and stop.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <thread>

#include "client/cpp/client.h"
#include "tests/support/running_server.h"

namespace svdserve::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int kReplicas = 3;
const char kRequests[] = "svdserve_requests_total";

std::unique_ptr<RunningServer> start(std::vector<std::string> flags = {}) {
  flags.insert(flags.end(), {"--devices=host", "--threads=1", "--calibration-time=1ms"});
  return std::make_unique<RunningServer>(flags);
}

// A port that servers share, one after the other, and that no other process is given meanwhile. Its socket is bound and
// does not listen. It and the server's have SO_REUSEADDR, so that the server may bind the port, too. The kernel gives it
// neither to programs that ask for any port nor to outgoing connections.
class HeldPort {
 public:
  HeldPort() {
    const int on = 1;
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* const address = reinterpret_cast<sockaddr*>(&at);
    const bool held = setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                      bind(socket_, address, size) == 0 && getsockname(socket_, address, &size) == 0;
    EXPECT_TRUE(held) << std::strerror(errno);
    address_ = "127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }
  ~HeldPort() { close(socket_); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  const std::string& address() const { return address_; }

 private:
  const int socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string address_;
};

struct Fleet {
  std::array<HeldPort, kReplicas> ports;
  std::array<std::unique_ptr<RunningServer>, kReplicas> servers;

  Fleet() {
    for (size_t i = 0; i < kReplicas; ++i) start_at(i);
  }
  void start_at(size_t i) { servers[i] = start({"--drain-delay=300ms", "--listen=" + ports[i].address()}); }
  client::Address address() const {
    return client::Address{servers[0]->address(), servers[1]->address(), servers[2]->address()};
  }
  std::array<double, kReplicas> requests() const {
    std::array<double, kReplicas> all;
    for (size_t i = 0; i < kReplicas; ++i) all[i] = servers[i]->metric(kRequests, {"rpc=\"Decompose\""});
    return all;
  }
  // Plays Kubernetes: the old one ends by SIGTERM, then the new one starts where it listened.
  void replace(size_t i) {
    EXPECT_EQ(servers[i]->stop(), 0) << servers[i]->log();
    start_at(i);
  }
};

void expect_equal(const std::array<double, kReplicas>& shares) {
  const double mean = (shares[0] + shares[1] + shares[2]) / kReplicas;
  EXPECT_GT(mean, 0);
  for (const double share : shares) EXPECT_NEAR(share, mean, 0.15 * mean);
}

// Calls without a pause on threads of their own, from construction to end().
class Load {
 public:
  Load(client::Client* client, int callers, bool with_large) : client_(*client) {
    for (int i = 0; i < callers; ++i) threads_.emplace_back([this] { call(); });
    if (with_large) threads_.emplace_back([this] { call_large(); });
  }
  ~Load() { end(); }
  void end() {
    ending_ = true;
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  int64_t calls() const { return calls_; }
  int64_t large() const { return large_; }
  int64_t failures() const { return failures_; }
  // Waits for that many more calls.
  bool goes_on(int64_t more) const {
    const int64_t goal = calls_ + more;
    return wait_until([&] { return calls_ >= goal; });
  }

 private:
  void call() {
    const std::vector<double> matrices(16 * 64, 1.5);
    while (!ending_) {
      const auto r = client_.singular_values(matrices, {4, 4}, {.timeout = seconds(120)});
      count(r.ok() ? client::Status() : r.status(), &calls_);
    }
  }
  void call_large() {
    std::vector<double> matrix(300 * 200);
    for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<double>(i * 7919 % 1009);
    while (!ending_) {
      const auto r = client_.svd_large(matrix, {300, 200}, {.timeout = seconds(120)});
      count(r.ok() ? client::Status() : r.status(), &large_);
    }
  }
  void count(const client::Status& status, std::atomic<int64_t>* calls) {
    ++(status.ok() ? *calls : failures_);
    if (!status.ok()) ADD_FAILURE() << status.to_string();
  }

  client::Client& client_;
  std::atomic<bool> ending_{false};
  std::atomic<int64_t> calls_{0}, large_{0}, failures_{0};
  std::vector<std::thread> threads_;
};

TEST(ReplicaTest, CallsAndPiecesAreSharedEqually) {
  const Fleet fleet;
  client::Client client({.address = fleet.address(), .piece_bytes = 16 << 10});
  const std::vector<double> few(16, 1.0);
  for (int i = 0; i < 150; ++i) ASSERT_TRUE(client.singular_values(few, {4, 4}).ok());
  expect_equal(fleet.requests());
  const auto before = fleet.requests();
  std::vector<double> many(16 * 128 * 90);  // 90 pieces
  for (size_t i = 0; i < many.size(); ++i) many[i] = static_cast<double>(i % 97);
  const auto spread = client.singular_values(many, {4, 4}).value();
  EXPECT_GE(spread.report.pieces, 60);
  std::array<double, kReplicas> shares = fleet.requests();
  for (size_t i = 0; i < kReplicas; ++i) shares[i] -= before[i];
  expect_equal(shares);
  client::Client one({.address = fleet.servers[0]->address()});
  EXPECT_EQ(spread.values, one.singular_values(many, {4, 4}).value().values);
}

TEST(ReplicaTest, ARollingUpdateUnderLoadFailsNoCall) {
  Fleet fleet;
  client::Client client({.address = fleet.address()});
  Load load(&client, 3, true);
  EXPECT_TRUE(load.goes_on(20));
  for (size_t i = 0; i < kReplicas; ++i) {
    fleet.replace(i);
    EXPECT_TRUE(load.goes_on(20));
    // The next one goes when this one serves, as Kubernetes would have it.
    EXPECT_TRUE(wait_until([&] { return fleet.requests()[i] > 0; })) << i;
  }
  load.end();
  EXPECT_EQ(load.failures(), 0);
  EXPECT_GT(load.large(), 0);
}

// The client begins with either of two servers. Progress of the upload kills the one that has it, before it is complete.
TEST(ReplicaTest, ALargeMatrixWhoseServerDiesInTheUploadGoesToAnother) {
  Fleet fleet;
  std::vector<double> matrix(2000 * 300);  // five chunks
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<double>(i * 7919 % 1009);
  client::Client alone({.address = fleet.servers[2]->address()});
  const auto expected = alone.svd_large(matrix, {2000, 300}, {.timeout = seconds(120)}).value();
  for (const size_t doomed : {0, 1}) {
    const std::string address = fleet.servers[doomed]->address() + "," + fleet.servers[2]->address();
    bool killed = false;
    for (int i = 0; i < 40 && !killed; ++i) {
      client::Client client({.address = address});
      const auto kill_in_the_upload = [&](const client::LargeProgress& p) {
        const bool is_there = fleet.servers[doomed]->metric("svdserve_inflight_factor_bytes") > 0;
        if (killed || p.stage != client::LargeStage::kUpload || p.fraction > 0.5 || !is_there) return;
        killed = true;
        fleet.servers[doomed]->signal(SIGKILL);
        fleet.servers[doomed]->wait();
      };
      const auto r = client.svd_large(matrix, {2000, 300}, {.progress = kill_in_the_upload, .timeout = seconds(120)});
      ASSERT_TRUE(r.ok()) << r.status().to_string();
      EXPECT_EQ(r->values, expected.values);
    }
    EXPECT_TRUE(killed);
  }
}

TEST(ReplicaTest, TwoKilledAndOneBackFailNoUnaryCall) {
  Fleet fleet;
  client::Client client({.address = fleet.address()});
  Load load(&client, 4, false);
  EXPECT_TRUE(load.goes_on(20));
  for (const size_t i : {0, 1}) {
    fleet.servers[i]->signal(SIGKILL);
    EXPECT_EQ(fleet.servers[i]->wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(load.goes_on(100));
  fleet.start_at(1);
  const double before = fleet.requests()[2];
  // It gets its share again.
  EXPECT_TRUE(wait_until([&] {
    const auto now = fleet.requests();
    return now[1] > 20 && now[1] > 0.2 * (now[1] + now[2] - before);
  }));
  load.end();
  EXPECT_EQ(load.failures(), 0);
}

TEST(ReplicaTest, AStoppedReplicaIsLeftAndComesBack) {
  Fleet fleet;
  client::Client client({.address = fleet.address()});
  Load load(&client, 4, false);
  EXPECT_TRUE(load.goes_on(20));
  fleet.servers[0]->signal(SIGSTOP);
  const auto stopped = std::chrono::steady_clock::now();
  // Each of four callers runs into it; all go on.
  EXPECT_TRUE(load.goes_on(50));
  const std::chrono::duration<double> left = std::chrono::steady_clock::now() - stopped;
  EXPECT_LT(left.count(), 30);
  std::printf("left after %.1f s\n", left.count());
  EXPECT_TRUE(load.goes_on(100));
  fleet.servers[0]->signal(SIGCONT);
  const double before = fleet.requests()[0];
  EXPECT_TRUE(wait_until([&] { return fleet.requests()[0] > before + 20; }));
  load.end();
  EXPECT_EQ(load.failures(), 0);
}

}  // namespace
}  // namespace svdserve::testing
