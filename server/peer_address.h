// Whom a connection or a call counts against, by its address.
#ifndef SVDSERVE_SERVER_PEER_ADDRESS_H_
#define SVDSERVE_SERVER_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/peer.h"

namespace svdserve::server {

// An IP address: IPv4 in its mapped form, so that both kinds compare alike.
using IpAddress = std::array<uint8_t, 16>;

// "192.0.2.7" or "2001:db8::1", without brackets or a port.
std::optional<IpAddress> parse_ip(absl::string_view text);
// The address of an accepted socket; none for a Unix socket.
std::optional<IpAddress> ip_of(const sockaddr_storage& address);
// The peer that the address stands for: itself for IPv4, its /64 for IPv6.
Peer peer_of(const IpAddress& address);

// The peer at the other end of an accepted Unix socket: the user who connected it, or "unix" where nobody says so.
Peer peer_of_unix_socket(int fd);

// The other end of a connection, address and port, as bytes that are equal for equal ends. Empty where it has none, as
// that of a Unix socket. `transport`: as below.
std::string endpoint_of(const sockaddr_storage& address);
std::string endpoint_of(absl::string_view transport);

// Addresses whose forwarded address is believed.
class TrustedProxies {
 public:
  TrustedProxies() = default;
  // Addresses and networks ("10.0.0.0/8", "2001:db8::/32"), joined by commas, or empty. None where one is neither.
  static std::optional<TrustedProxies> parse(absl::string_view list);
  bool contains(const IpAddress& address) const;
  bool empty() const { return networks_.empty(); }

 private:
  struct Network {
    IpAddress address;
    int bits;
  };
  std::vector<Network> networks_;
};

// `transport`: gRPC's name of the connection's other end, such as "ipv4:192.0.2.7:50000". "fd:17" is the socket itself,
// which is open as long as one of its calls: gRPC closes it after the last one. `forwarded`: the value of
// x-forwarded-for, or empty; believed only where the connection comes from a trusted proxy. Its last address that is no
// trusted proxy is the client: those before it are the client's own words.
Peer peer_of(absl::string_view transport, absl::string_view forwarded, const TrustedProxies& proxies);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_PEER_ADDRESS_H_
