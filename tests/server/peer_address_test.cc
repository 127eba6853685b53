#include "server/peer_address.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace svdserve::server {
namespace {

const TrustedProxies kNobody;

TEST(PeerAddress, AnIpv4AddressIsAPeer) {
  EXPECT_EQ(peer_of("ipv4:192.0.2.7:50000", "", kNobody), "192.0.2.7");
  EXPECT_EQ(peer_of("ipv6:%5B::ffff:192.0.2.7%5D:50000", "", kNobody), "192.0.2.7");
  EXPECT_EQ(peer_of("ipv6:[::ffff:192.0.2.7]:50000", "", kNobody), "192.0.2.7");
}

TEST(PeerAddress, ANetworkOf64BitsIsAPeer) {
  EXPECT_EQ(peer_of("ipv6:%5B2001:db8:0:1:2:3:4:5%5D:1", "", kNobody), "2001:db8:0:1::/64");
  EXPECT_EQ(peer_of("ipv6:%5B2001:db8:0:1:ffff::%5D:2", "", kNobody), "2001:db8:0:1::/64");
  EXPECT_EQ(peer_of("ipv6:%5Bfe80::1%25eth0%5D:2", "", kNobody), "fe80::/64");
}

TEST(PeerAddress, AUnixSocketWithoutUsersIsOnePeer) {
  EXPECT_EQ(peer_of("unix:", "", kNobody), "unix");
  EXPECT_EQ(peer_of("unix:/run/svdserve", "1.2.3.4", kNobody), "unix");
}

TEST(PeerAddress, AUserOfAUnixSocketIsAPeer) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const Peer me = "unix:" + std::to_string(geteuid());
  EXPECT_EQ(peer_of_unix_socket(ends[0]), me);
  EXPECT_EQ(peer_of("fd:" + std::to_string(ends[0]), "1.2.3.4", kNobody), me);
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(peer_of("fd:" + std::to_string(ends[0]), "", kNobody), "unix");
  EXPECT_EQ(peer_of("fd:no", "", kNobody), "unix");
}

TEST(PeerAddress, AForwardedAddressIsBelievedOfTrustedProxiesAlone) {
  const auto proxies = TrustedProxies::parse("10.0.0.0/8, 2001:db8:ff::/48");
  ASSERT_TRUE(proxies.has_value());
  EXPECT_EQ(peer_of("ipv4:192.0.2.7:1", "203.0.113.9", *proxies), "192.0.2.7");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "203.0.113.9", *proxies), "203.0.113.9");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "203.0.113.9:4711", *proxies), "203.0.113.9");
  EXPECT_EQ(peer_of("ipv6:%5B2001:db8:ff::1%5D:1", "[2001:db8:1::9]:80", *proxies), "2001:db8:1::/64");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "", *proxies), "10.1.2.3");
}

TEST(PeerAddress, TheClientsOwnWordsInAForwardedListAreNot) {
  const auto proxies = TrustedProxies::parse("10.0.0.0/8");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "1.1.1.1, 203.0.113.9, 10.9.9.9", *proxies), "203.0.113.9");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "nonsense", *proxies), "10.1.2.3");
  EXPECT_EQ(peer_of("ipv4:10.1.2.3:1", "10.9.9.9", *proxies), "10.9.9.9");
}

TEST(PeerAddress, ListsOfProxiesAreChecked) {
  for (const char* wrong : {"proxy.example", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/x", "::/129", "1.2.3"}) {
    EXPECT_FALSE(TrustedProxies::parse(wrong).has_value()) << wrong;
  }
  EXPECT_TRUE(TrustedProxies::parse("")->empty());
  EXPECT_TRUE(TrustedProxies::parse("0.0.0.0/0")->contains(*parse_ip("8.8.8.8")));
  EXPECT_FALSE(TrustedProxies::parse("0.0.0.0/0")->contains(*parse_ip("2001:db8::1")));
  EXPECT_TRUE(TrustedProxies::parse("10.16.0.0/12")->contains(*parse_ip("10.31.255.255")));
  EXPECT_FALSE(TrustedProxies::parse("10.16.0.0/12")->contains(*parse_ip("10.32.0.0")));
}

}  // namespace
}  // namespace svdserve::server
