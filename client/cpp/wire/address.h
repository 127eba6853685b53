// Addresses of servers as texts.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_ADDRESS_H_
#define SVDSERVE_CLIENT_CPP_WIRE_ADDRESS_H_

#include <string>
#include <vector>

namespace svdserve::client::internal {

// The addresses of a list, "a:1,b:2".
std::vector<std::string> split_addresses(const std::string& addresses);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_ADDRESS_H_
