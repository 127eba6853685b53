#include "client/cli/connection.h"

#include <cstdlib>

#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "client/cli/files/file_error.h"

namespace svdserve::cli {

Connection::Connection() {
  if (const char* address = std::getenv("SVDSERVE_ADDRESS"); address != nullptr && *address != '\0') address_ = address;
}

void Connection::declare(Arguments* a) {
  const std::string default_text =
      timeout_ ? " (default " + absl::FormatDuration(absl::FromChrono(*timeout_)) + ")" : "";
  a->section("Connection");
  a->option("--address", "ADDR", "host:port or unix:/path, several with commas;\nSVDSERVE_ADDRESS sets it too",
            &address_);
  a->option("--timeout", "DURATION", "give up after this long, such as 500ms or 10s" + default_text, &timeout_);
  a->flag("--tls", "encrypt, trusting the system's certificates", &tls_);
  a->option("--tls-ca", "FILE", "encrypt, trusting the certificates in this PEM file", &ca_);
  a->option("--tls-cert", "FILE", "client certificate (PEM), for servers that ask for one", &cert_);
  a->option("--tls-key", "FILE", "private key of that certificate (PEM)", &key_);
  a->option("--tls-server-name", "NAME", "name in the server's certificate, if it differs from the address",
            &server_name_);
}

std::string with_option_names(const std::string& text) {
  return absl::StrReplaceAll(text, {{"ClientOptions::address", "--address or SVDSERVE_ADDRESS"},
                                    {"ClientOptions::tls.enabled", "--tls"},
                                    {"ClientOptions::tls.root_certificates", "--tls-ca"},
                                    {"ClientOptions::tls.certificate_chain", "--tls-cert"},
                                    {"ClientOptions::tls.private_key", "--tls-key"},
                                    {"ClientOptions::tls.server_name", "--tls-server-name"},
                                    {"ClientOptions::tls", "the options of TLS"}});
}

namespace {

// An error of the files of TLS without the library's code and field: they are this machine's.
client::Status of_files(const client::Status& status) {
  if (status.code == client::Code::kNotFound) return {.code = client::Code::kUnknown, .message = status.message};
  const std::string options =
      status.field == "tls" ? "--tls-cert, --tls-key" : with_option_names("ClientOptions::" + status.field);
  return input_error(options + ": " + status.message);
}

}  // namespace

client::Result<client::ClientOptions> Connection::options() const {
  client::ClientOptions o;
  if (const client::Status wrong = client::check_address(address_); !wrong.ok()) {
    return input_error("--address: " + wrong.message);
  }
  o.address = address_;
  if (uses_tls()) {
    auto tls = client::TlsOptions::from_files(ca_, cert_, key_);
    if (!tls.ok()) return of_files(tls.status());
    o.tls = *std::move(tls);
    o.tls.server_name = server_name_;
  }
  return o;
}

}  // namespace svdserve::cli
