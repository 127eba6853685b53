// gRPC's credentials of a server whose TLS files change.
//
// gRPC 1.51 has two ways to replace certificates. FileWatcherCertificateProvider reads the files itself, once a second
// at best, and takes a key that does not belong to its certificate. The other one asks a function at each handshake
// (grpc_ssl_server_credentials_create_options_using_config_fetcher). That one is used: TlsFiles decides what is served.
#ifndef SVDSERVE_SERVER_RPC_TLS_CREDENTIALS_H_
#define SVDSERVE_SERVER_RPC_TLS_CREDENTIALS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "server/rpc/tls_files.h"

namespace svdserve::server {

// For one listener or acceptor of one server. Each connection gets files->current() as it is at its handshake. Clients
// must show a certificate where there are roots at first. `files` outlives the server.
std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles* files);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_TLS_CREDENTIALS_H_
