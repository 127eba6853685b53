#include "client/cpp/wire/address.h"

#include <algorithm>

#include "client/cpp/client.h"
#include "client/cpp/wire/status.h"

namespace svdserve::client {
namespace internal {

std::vector<std::string> split_addresses(const std::string& addresses) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin <= addresses.size();) {
    const size_t end = std::min(addresses.find(',', begin), addresses.size());
    const std::string one = addresses.substr(begin, end - begin);
    const size_t first = one.find_first_not_of(' ');
    all.push_back(first == std::string::npos ? "" : one.substr(first, one.find_last_not_of(' ') + 1 - first));
    begin = end + 1;
  }
  return all;
}

}  // namespace internal

namespace {

Status check_one_address(const std::string& address) {
  if (address.empty()) return internal::invalid("address", "must be host:port or unix:/path, but is empty");
  if (address.find("://") != std::string::npos && address.rfind("dns://", 0) != 0 && address.rfind("unix://", 0) != 0) {
    return internal::invalid("address", "must be host:port or unix:/path, but is the URL \"" + address + "\"");
  }
  for (const char* const scheme : {"unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "vsock:"}) {
    if (address.rfind(scheme, 0) == 0) return {};
  }
  if (address.find_first_of("; \t") != std::string::npos) {
    return internal::invalid("address",
                             "must have a comma between two servers, such as a:1,b:2, but is \"" + address + "\"");
  }
  const size_t colon = address.rfind(':');
  const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool is_number = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  const bool is_ipv6 = address.find(':') != colon && address[colon == 0 ? 0 : colon - 1] != ']';
  if (colon == 0 || !is_number || is_ipv6) {
    return internal::invalid("address",
                             "must be host:port, such as 127.0.0.1:50051 or [::1]:50051, but is \"" + address + "\"");
  }
  if (const int number = std::stoi(port); number < 1 || number > 65535) {
    return internal::invalid("address", "must have a port between 1 and 65535, but is \"" + address + "\"");
  }
  return {};
}

}  // namespace

Status check_address(const std::string& addresses) {
  for (const std::string& address : internal::split_addresses(addresses)) {
    if (Status wrong = check_one_address(address); !wrong.ok()) return wrong;
  }
  return {};
}

}  // namespace svdserve::client
