// The log lines of gRPC and protobuf go into the server's log.
#ifndef SVDSERVE_SERVER_RPC_LIBRARY_LOGS_H_
#define SVDSERVE_SERVER_RPC_LIBRARY_LOGS_H_

namespace svdserve::server {

// From now on, for the whole process. Their texts may repeat what peers have sent, so they are escaped, cut and limited
// in number; see LibraryLog.
void redirect_library_logs();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_LIBRARY_LOGS_H_
