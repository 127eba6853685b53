// The options by which every command finds its server.
#ifndef SVDSERVE_CLIENT_CLI_CONNECTION_H_
#define SVDSERVE_CLIENT_CLI_CONNECTION_H_

#include <optional>
#include <string>
#include <vector>

#include "client/cli/arguments.h"
#include "client/cpp/client.h"

namespace svdserve::cli {

class Connection {
 public:
  Connection();  // the address comes from SVDSERVE_ADDRESS where that is set
  void declare(Arguments* arguments);
  // The timeout unless the command line has another. To be called before declare().
  void limit(Duration timeout) { timeout_ = timeout; }

  // Reads the TLS files.
  client::Result<client::ClientOptions> options() const;
  // The files that the options name.
  std::vector<NamedFile> files() const { return {{"--tls-ca", ca_}, {"--tls-cert", cert_}, {"--tls-key", key_}}; }
  const std::string& address() const { return address_; }
  bool uses_tls() const { return tls_ || !ca_.empty() || !cert_.empty() || !key_.empty() || !server_name_.empty(); }
  client::CallOptions call() const { return {.timeout = timeout_}; }

 private:
  std::string address_ = "127.0.0.1:50051";
  bool tls_ = false;
  std::string ca_, cert_, key_, server_name_;
  std::optional<Duration> timeout_;
};

// A text of the library in the command line's words: "--tls-ca" for "ClientOptions::tls.root_certificates".
std::string with_option_names(const std::string& text);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_CONNECTION_H_
