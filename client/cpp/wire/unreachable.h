// Why a call has reached no server, in words for the user, from gRPC's.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_UNREACHABLE_H_
#define SVDSERVE_CLIENT_CPP_WIRE_UNREACHABLE_H_

#include "client/cpp/client.h"
#include "client/cpp/types.h"

namespace svdserve::client::internal {

// Rewords the message of an UNAVAILABLE that says that no connection was made, and sets the parameter; any other status
// stays. The message keeps the cause, and names the members of ClientOptions that may be wrong.
Status explain_unreachable(Status status, const ClientOptions& options);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_UNREACHABLE_H_
