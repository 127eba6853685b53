// The sender of a request: the unit of fairness. All that one peer has in flight counts against its share, and turns go
// over peers.
#ifndef SVDSERVE_SERVER_PEER_H_
#define SVDSERVE_SERVER_PEER_H_

#include <string>

namespace svdserve::server {

// A remote IPv4 address ("192.0.2.7"), an IPv6 /64 ("2001:db8:0:1::/64"), a Unix socket ("unix"), or the address that a
// trusted proxy forwards. Empty: unknown, as in a test that has no transport. Not an identity: nobody has proven it.
using Peer = std::string;

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_PEER_H_
