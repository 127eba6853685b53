#include "server/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace svdserve::server {
namespace {

constexpr IpAddress kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMappedBytes = 12;

bool is_v4(const IpAddress& a) { return std::equal(kMapped.begin(), kMapped.begin() + kMappedBytes, a.begin()); }

// The host of "HOST:PORT", "[HOST]:PORT" or, as gRPC writes it, "%5BHOST%5D:PORT".
absl::string_view host_of(absl::string_view address) {
  address = address.substr(0, address.rfind(':'));
  if (!absl::ConsumePrefix(&address, "%5B")) absl::ConsumePrefix(&address, "[");
  if (!absl::ConsumeSuffix(&address, "%5D")) absl::ConsumeSuffix(&address, "]");
  return address.substr(0, address.find('%'));  // without a zone
}

std::string endpoint(const IpAddress& ip, uint16_t port) {
  std::string out(ip.begin(), ip.end());
  out.push_back(static_cast<char>(port >> 8));
  out.push_back(static_cast<char>(port & 0xff));
  return out;
}

// An entry of x-forwarded-for: an address, perhaps with a port.
std::optional<IpAddress> parse_forwarded(absl::string_view entry) {
  entry = absl::StripAsciiWhitespace(entry);
  if (const auto plain = parse_ip(entry)) return plain;
  return parse_ip(host_of(entry));
}

}  // namespace

std::optional<IpAddress> parse_ip(absl::string_view text) {
  char copy[INET6_ADDRSTRLEN] = {};
  if (text.empty() || text.size() >= sizeof copy) return std::nullopt;
  std::memcpy(copy, text.data(), text.size());
  IpAddress out = kMapped;
  if (inet_pton(AF_INET, copy, out.data() + kMappedBytes) == 1) return out;
  if (inet_pton(AF_INET6, copy, out.data()) == 1) return out;
  return std::nullopt;
}

std::optional<IpAddress> ip_of(const sockaddr_storage& address) {
  IpAddress out = kMapped;
  if (address.ss_family == AF_INET) {
    std::memcpy(out.data() + kMappedBytes, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else if (address.ss_family == AF_INET6) {
    std::memcpy(out.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, out.size());
  } else {
    return std::nullopt;
  }
  return out;
}

std::string endpoint_of(const sockaddr_storage& address) {
  const std::optional<IpAddress> ip = ip_of(address);
  if (!ip) return "";
  const in_port_t port = address.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                                      : reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  return endpoint(*ip, ntohs(port));
}

std::string endpoint_of(absl::string_view transport) {
  if (!absl::ConsumePrefix(&transport, "ipv4:") && !absl::ConsumePrefix(&transport, "ipv6:")) return "";
  const std::optional<IpAddress> ip = parse_ip(host_of(transport));
  uint32_t port = 0;
  const size_t colon = transport.rfind(':');
  if (!ip || colon == absl::string_view::npos || !absl::SimpleAtoi(transport.substr(colon + 1), &port)) return "";
  return endpoint(*ip, static_cast<uint16_t>(port));
}

Peer peer_of(const IpAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (is_v4(address)) return inet_ntop(AF_INET, address.data() + kMappedBytes, text, sizeof text);
  IpAddress network = address;
  std::fill(network.begin() + 8, network.end(), uint8_t{0});
  return absl::StrCat(inet_ntop(AF_INET6, network.data(), text, sizeof text), "/64");
}

Peer peer_of_unix_socket(int fd) {
  ucred user{};
  socklen_t size = sizeof user;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &size) != 0 || user.uid == static_cast<uid_t>(-1)) return "unix";
  return absl::StrCat("unix:", user.uid);
}

std::optional<TrustedProxies> TrustedProxies::parse(absl::string_view list) {
  TrustedProxies out;
  for (absl::string_view word : absl::StrSplit(list, ',', absl::SkipWhitespace())) {
    word = absl::StripAsciiWhitespace(word);
    const std::vector<absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('/', 1));
    const std::optional<IpAddress> address = parse_ip(parts[0]);
    if (!address) return std::nullopt;
    const int most = is_v4(*address) ? 32 : 128;
    int bits = most;
    if (parts.size() == 2 && (!absl::SimpleAtoi(parts[1], &bits) || bits < 0 || bits > most)) return std::nullopt;
    out.networks_.push_back({*address, bits + 128 - most});
  }
  return out;
}

bool TrustedProxies::contains(const IpAddress& address) const {
  const auto equal = [&address](const Network& n) {
    for (int bit = 0; bit < n.bits; bit += 8) {
      const size_t byte = static_cast<size_t>(bit) / 8;
      const int shift = std::max(0, 8 - (n.bits - bit));
      if ((address[byte] ^ n.address[byte]) >> shift != 0) return false;
    }
    return true;
  };
  return std::any_of(networks_.begin(), networks_.end(), equal);
}

Peer peer_of(absl::string_view transport, absl::string_view forwarded, const TrustedProxies& proxies) {
  int fd = -1;
  if (absl::ConsumePrefix(&transport, "fd:") && absl::SimpleAtoi(transport, &fd)) return peer_of_unix_socket(fd);
  if (!absl::ConsumePrefix(&transport, "ipv4:") && !absl::ConsumePrefix(&transport, "ipv6:")) return "unix";
  std::optional<IpAddress> address = parse_ip(host_of(transport));
  if (!address) return std::string(transport);
  std::vector<absl::string_view> entries;
  if (!forwarded.empty() && proxies.contains(*address)) entries = absl::StrSplit(forwarded, ',');
  while (!entries.empty() && proxies.contains(*address)) {
    const std::optional<IpAddress> before = parse_forwarded(entries.back());
    if (!before) break;
    address = before;
    entries.pop_back();
  }
  return peer_of(*address);
}

}  // namespace svdserve::server
