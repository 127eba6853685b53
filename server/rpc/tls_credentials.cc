#include "server/rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

namespace svdserve::server {
namespace {

class TlsCredentials final : public grpc::ServerCredentials {
 public:
  explicit TlsCredentials(const TlsFiles* files) : files_(files) {
    const bool asks_clients = !files->current()->client_ca.empty();
    const auto request = asks_clients ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                      : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE;
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(request, fetch, this));
  }
  ~TlsCredentials() override { grpc_server_credentials_release(credentials_); }

  // Nothing here reads metadata for authentication.
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC calls it under a lock of the listener, so never twice at a time.
  static grpc_ssl_certificate_config_reload_status fetch(void* self, grpc_ssl_server_certificate_config** config) {
    auto* const mine = static_cast<TlsCredentials*>(self);
    std::shared_ptr<const TlsTexts> now = mine->files_->current();
    if (now == mine->served_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{now->key.c_str(), now->certificate.c_str()};
    // gRPC insists on roots even where it asks no client for a certificate. Then it does not use them.
    const std::string& roots = now->client_ca.empty() ? now->certificate : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    mine->served_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const TlsFiles* const files_;
  std::shared_ptr<const TlsTexts> served_;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> tls_credentials(const TlsFiles* files) {
  return std::make_shared<TlsCredentials>(files);
}

}  // namespace svdserve::server
