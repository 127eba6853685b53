#include "server/rpc/connection_guard.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "server/peer_address.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(3);
constexpr int64_t kMiB = int64_t{1} << 20;

// A connection that is looked at once a second.
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
    wanted_streams = account_.wants_streams(numbers, now_);
    return account_.judge(numbers, streams, now_, kPatience);
  }

  ConnectionNumbers numbers;
  int64_t received_a_second = 0;
  bool wanted_streams = false;

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

TEST(ConnectionGuard, NobodySavesUp) {
  Looked client;
  client.numbers.forgiven = 1000 * kMiB;
  EXPECT_FALSE(client.next());
  client.received_a_second = kMiB;
  EXPECT_EQ(client.until_broken(10), 4);
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

TEST(ConnectionTraffic, CallsAreCountedForTheirConnection) {
  ConnectionTraffic all;
  const std::string endpoint = endpoint_of("ipv4:192.0.2.7:1234");
  const std::shared_ptr<Traffic> traffic = all.add(endpoint);
  {
    CallTraffic read, cancelled, elsewhere;
    read.begin(all, "ipv4:192.0.2.7:1234", 1000);
    cancelled.begin(all, "ipv4:192.0.2.7:1234", 1000);
    elsewhere.begin(all, "ipv4:192.0.2.7:1235", 1000);
    EXPECT_EQ(traffic->due, 2 * 1062);
    read.read(500);
    EXPECT_GE(traffic->messages, 500);
    cancelled.cancelled();
  }
  EXPECT_EQ(traffic->due, 0);
  EXPECT_EQ(traffic->handled, 1);
  EXPECT_EQ(traffic->forgiven, 1062);
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
