// The sender of a request: the unit of fairness. All that one peer has in flight counts against its share, and turns go
// over peers.
#ifndef SVDSERVE_SERVER_PEER_H_
#define SVDSERVE_SERVER_PEER_H_

#include <string>

namespace svdserve::server {

// A remote IPv4 address ("192.0.2.7"), an IPv6 /64 ("2001:db8:0:1::/64"), a user of a Unix socket ("unix:1000"), or the
// address that a trusted proxy forwards. Empty: unknown, as in a test that has no transport. Only a user is proven.
using Peer = std::string;

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_PEER_H_
