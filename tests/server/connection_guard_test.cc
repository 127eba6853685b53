#include "server/rpc/connection_guard.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/descriptor.h"
#include "server/peer_address.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr int64_t kMiB = int64_t{1} << 20;

// A connection that is looked at once a second, of a server that has processors, but for `stands_still`.
class Looked {
 public:
  // The looks until it is broken, at most `most`.
  int until_broken(int most) {
    for (int look = 1; look <= most; ++look) {
      if (next()) return look;
    }
    return -1;
  }
  bool next(std::optional<int64_t> streams = std::nullopt) {
    now_ += absl::Seconds(1);
    numbers.received += received_a_second;
    if (!reads_take_time) numbers.messages_before = numbers.messages;
    numbers.forgiven_before = numbers.forgiven;
    wanted_streams = account_.wants_streams(numbers, now_);
    const absl::Duration step = stands_still ? absl::ZeroDuration() : absl::Seconds(1);
    return account_.judge(numbers, streams, now_, step, kPatience);
  }

  ConnectionNumbers numbers;
  int64_t received_a_second = 0;
  bool wanted_streams = false;
  bool stands_still = false;
  bool reads_take_time = false;  // `messages_before` is the test's

 private:
  absl::Time now_ = absl::UnixEpoch();
  ConnectionAccount account_{now_};
};

TEST(ConnectionGuard, BytesWithoutCallsAreNotTakenForLong) {
  Looked slow;
  slow.received_a_second = kMiB;
  EXPECT_EQ(slow.until_broken(10), 4);
  Looked fast;
  fast.received_a_second = 20 * kMiB;
  EXPECT_EQ(fast.until_broken(10), 1);
}

TEST(ConnectionGuard, PingsAndWindowsAreTaken) {
  Looked pings;
  pings.received_a_second = 60 << 10;
  EXPECT_EQ(pings.until_broken(1000), -1);
  Looked windows;
  windows.received_a_second = 10 * kMiB;
  for (int i = 0; i < 100; ++i) {
    windows.numbers.acknowledged += 100 * kMiB;
    EXPECT_FALSE(windows.next());
  }
}

TEST(ConnectionGuard, MessagesMayTakeTheirTime) {
  Looked upload;
  upload.received_a_second = kMiB;
  for (int message = 0; message < 3; ++message) {
    upload.numbers.due = 64 * kMiB;
    for (int i = 0; i < 60; ++i) EXPECT_FALSE(upload.next());
    upload.numbers.messages += 60 * kMiB;
    upload.numbers.due = 0;
  }
}

TEST(ConnectionGuard, NobodySavesUpMoreThanALateMessage) {
  Looked client;
  client.numbers.forgiven = 1000 * kMiB;
  EXPECT_FALSE(client.next());
  client.numbers.received += ConnectionAccount::kLate;
  EXPECT_FALSE(client.next());
  client.received_a_second = kMiB;
  EXPECT_EQ(client.until_broken(10), 4);
}

TEST(ConnectionGuard, AMessageMayComeAfterItsCallWasCutOff) {
  Looked paused;
  paused.numbers.due = 64 * kMiB;
  EXPECT_FALSE(paused.next());
  paused.numbers.due = 0;
  paused.numbers.forgiven = 64 * kMiB;
  for (int i = 0; i < 60; ++i) EXPECT_FALSE(paused.next());
  paused.numbers.received += 60 * kMiB;
  EXPECT_EQ(paused.until_broken(60), -1);
}

// Handlers come later than bytes, and looks are rare.
TEST(ConnectionGuard, AServerWithoutProcessorTimeJudgesNobody) {
  Looked waits;
  waits.stands_still = true;
  waits.received_a_second = 20 * kMiB;
  EXPECT_EQ(waits.until_broken(60), -1);
  waits.stands_still = false;
  waits.received_a_second = 0;
  waits.numbers.messages = waits.numbers.received;
  EXPECT_EQ(waits.until_broken(60), -1);
  Looked offends;
  offends.received_a_second = 300 << 10;
  for (int seconds = 0; seconds <= 40; ++seconds) {
    offends.stands_still = seconds % 10 != 0;
    EXPECT_EQ(offends.next(), seconds == 40) << seconds;
  }
}

TEST(ConnectionGuard, ALookWithoutProcessorTimeCountsForNothing) {
  absl::Time now = absl::UnixEpoch();
  absl::Duration used;
  TimeOfLooks looks(now, used);
  const auto step = [&](absl::Duration passed, absl::Duration had) { return looks.step(now += passed, used += had); };
  EXPECT_EQ(step(absl::Seconds(1), absl::Seconds(2)), absl::Seconds(1));
  EXPECT_EQ(step(absl::Milliseconds(510), absl::ZeroDuration()), absl::Milliseconds(510));  // idle, and in time
  EXPECT_EQ(step(absl::Seconds(1), absl::Milliseconds(20)), absl::ZeroDuration());
  EXPECT_EQ(step(absl::Seconds(60), absl::Seconds(5)), absl::Seconds(1));
  EXPECT_EQ(step(absl::Seconds(60), absl::Seconds(1)), absl::ZeroDuration());
}

// The guard waits for a processor between its numbers: messages come that the kernel's number does not have.
TEST(ConnectionGuard, ALookThatIsInterruptedLosesNoMessages) {
  Looked busy;
  busy.reads_take_time = true;
  busy.numbers.messages_before = busy.numbers.received = 5 * kMiB;
  busy.numbers.messages = 12 * kMiB;
  for (int look = 0; look < 20; ++look) {
    EXPECT_FALSE(busy.next());
    busy.numbers.received = busy.numbers.messages;
    busy.numbers.messages_before = busy.numbers.messages;
  }
}

TEST(ConnectionGuard, BytesThatTheKernelStillHasAreNobodysWork) {
  Looked waits;
  waits.numbers.received = waits.numbers.unread = 6 * kMiB;
  EXPECT_EQ(waits.until_broken(20), -1);
}

TEST(ConnectionGuard, StreamsThatAreResetAreNotTakenForLong) {
  Looked resets, refused, some;
  int64_t streams = 0;
  int broken_after = 0;
  for (int look = 1; look <= 6; ++look) {
    streams += 5000;
    resets.numbers.forgiven += 64 * kMiB;
    resets.received_a_second = kMiB;
    if (resets.next(streams) && broken_after == 0) broken_after = look;
    EXPECT_TRUE(resets.wanted_streams);
    refused.numbers.handled += 5000;  // by the server
    EXPECT_FALSE(refused.next(streams));
    some.numbers.handled += 2000;
    EXPECT_FALSE(some.next(streams));
  }
  EXPECT_EQ(broken_after, 4);
}

TEST(ConnectionGuard, ABurstOfResetsIsForgotten) {
  Looked client;
  EXPECT_FALSE(client.next(100000));
  for (int look = 0; look < 10; ++look) EXPECT_FALSE(client.next(100000));
  EXPECT_FALSE(client.wanted_streams);
}

// The transport is busy with what it has read: for a second no bytes come, and no streams begin.
TEST(ConnectionGuard, APauseOfTheTransportIsNotTheEnd) {
  Looked resets;
  int64_t streams = 0;
  int broken_after = 0;
  for (int look = 1; look <= 8 && broken_after == 0; ++look) {
    streams += look == 2 ? 500 : 5000;
    resets.received_a_second = look == 2 ? 0 : kMiB;
    if (resets.next(streams)) broken_after = look;
    EXPECT_TRUE(resets.wanted_streams);
  }
  EXPECT_EQ(broken_after, 4);
}

// A connection over the loopback: a client that sends until it is hung up on or told to stop, and a transport that reads.
class Loopback {
 public:
  static constexpr size_t kMessage = 1 << 20;

  // `calls`: null where the transport makes no calls of what it reads, else where they count.
  Loopback(const Peer& peer, ConnectionGuard* guard, const ConnectionTraffic* calls) {
    const Descriptor listening(socket(AF_INET, SOCK_STREAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listening.get(), any, size), 0);
    EXPECT_EQ(listen(listening.get(), 1), 0);
    EXPECT_EQ(getsockname(listening.get(), any, &size), 0);
    client_ = Descriptor(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(client_.get(), any, size), 0);
    sockaddr_storage from{};
    size = sizeof from;
    server_ = Descriptor(accept(listening.get(), reinterpret_cast<sockaddr*>(&from), &size));
    EXPECT_TRUE(server_);
    guard->watch(server_.get(), from, peer);
    const int port = ntohs(reinterpret_cast<sockaddr_in&>(from).sin_port);
    transport_ = std::thread([this, calls, port] { transport(calls, absl::StrCat("ipv4:127.0.0.1:", port)); });
    sender_ = std::thread([this] { send_all(); });
  }
  ~Loopback() {
    stop();
    sender_.join();
    transport_.join();
  }

  void stop() { shutdown(client_.get(), SHUT_RDWR); }
  bool hung_up() const { return hung_up_; }
  int messages() const { return messages_; }

 private:
  void send_all() {
    const std::vector<char> message(kMessage);
    while (send(client_.get(), message.data(), message.size(), MSG_NOSIGNAL) > 0) {
    }
    hung_up_ = true;
  }

  void transport(const ConnectionTraffic* calls, const std::string& name) {
    std::vector<char> message(kMessage);
    for (;;) {
      CallTraffic call;
      if (calls != nullptr) call.begin(*calls, name, Messages::kOne, kMessage);
      if (recv(server_.get(), message.data(), message.size(), MSG_WAITALL) <= 0) return;
      call.read(message.size());
      ++messages_;
    }
  }

  Descriptor client_, server_;
  std::atomic<bool> hung_up_{false};
  std::atomic<int> messages_{0};
  std::thread transport_, sender_;
};

TEST(ConnectionGuard, BreaksTheConnectionWithoutCallsAndNoOther) {
  ConnectionTraffic traffic;
  NullRecorder recorder;
  ConnectionGuard guard(absl::ZeroDuration(), 64 << 10, &traffic, &recorder);
  Loopback honest("honest", &guard, &traffic), offender("offender", &guard, nullptr);
  while (!offender.hung_up()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  Loopback second("offender", &guard, nullptr);  // which has not begun a call when the guard looks
  while (!second.hung_up()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(guard.is_banned("offender"));
  EXPECT_FALSE(guard.is_banned("honest"));
  EXPECT_FALSE(honest.hung_up());
  EXPECT_GT(honest.messages(), 0);
}

TEST(ConnectionTraffic, CallsAreCountedForTheirConnection) {
  ConnectionTraffic all;
  const std::string endpoint = endpoint_of("ipv4:192.0.2.7:1234");
  const std::shared_ptr<Traffic> traffic = all.add(endpoint);
  {
    CallTraffic read, cancelled, elsewhere;
    read.begin(all, "ipv4:192.0.2.7:1234", Messages::kOne, 1000);
    cancelled.begin(all, "ipv4:192.0.2.7:1234", Messages::kOne, 1000);
    elsewhere.begin(all, "ipv4:192.0.2.7:1235", Messages::kOne, 1000);
    EXPECT_EQ(traffic->due, 2 * 1062);
    read.read(500);
    EXPECT_GE(traffic->messages, 500);
    cancelled.cancelled();
  }
  EXPECT_EQ(traffic->due, 0);
  EXPECT_EQ(traffic->handled, 1);
  EXPECT_EQ(traffic->forgiven, 1062);
  {
    CallTraffic stream;
    stream.begin(all, "ipv4:192.0.2.7:1234", Messages::kMany, 1000);
    stream.read(500);
  }
  EXPECT_EQ(traffic->handled, 2);
  EXPECT_EQ(traffic->forgiven, 2 * 1062);  // the next message may be half sent
  const std::shared_ptr<Traffic> later = all.add(endpoint);
  all.remove(endpoint, traffic);
  EXPECT_EQ(all.find(endpoint), later);
  all.remove(endpoint, later);
  EXPECT_EQ(all.find(endpoint), nullptr);
}

TEST(ConnectionTraffic, TheKernelsAndTheTransportsNamesAreOne) {
  sockaddr_storage v4{}, v6{};
  auto& four = reinterpret_cast<sockaddr_in&>(v4);
  four.sin_family = AF_INET;
  four.sin_port = htons(1234);
  inet_pton(AF_INET, "192.0.2.7", &four.sin_addr);
  EXPECT_EQ(endpoint_of(v4), endpoint_of("ipv4:192.0.2.7:1234"));
  auto& six = reinterpret_cast<sockaddr_in6&>(v6);
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(1234);
  inet_pton(AF_INET6, "::ffff:192.0.2.7", &six.sin6_addr);
  EXPECT_EQ(endpoint_of(v6), endpoint_of(v4));
  inet_pton(AF_INET6, "2001:db8::1", &six.sin6_addr);
  EXPECT_EQ(endpoint_of(v6), endpoint_of("ipv6:%5B2001:db8::1%5D:1234"));
  EXPECT_EQ(endpoint_of("unix:"), "");
  EXPECT_EQ(endpoint_of("fd:7"), "");
}

}  // namespace
}  // namespace svdserve::server
