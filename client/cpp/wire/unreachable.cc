#include "client/cpp/wire/unreachable.h"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <string>
#include <string_view>

namespace svdserve::client::internal {
namespace {

// Releases of gRPC and of its TLS differ in case and in "_" for " ".
std::string normalized(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return c == '_' ? ' ' : std::tolower(c); });
  return text;
}

bool has(const std::string& text, std::initializer_list<std::string_view> words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.find(word) != text.npos; });
}

// A mistake that gRPC's words tell: the server and the client do not agree on TLS, or on whom to trust.
struct Cause {
  const char *parameter, *before, *after;  // the message: before, the server's address, after, what to do
  const char* to_do;
};

Cause cause_of(const std::string& message, const TlsOptions& tls) {
  if (has(message, {"is not in peer certificate", "hostname verification check failed"})) {
    return {"tls.server_name", "the certificate of the server at ", " is for another name",
            "Give a name that it has in ClientOptions::tls.server_name, or in ClientOptions::address"};
  }
  if (has(message, {"wrong version number"})) {
    return {"tls", "the server at ", " has no TLS", "Leave ClientOptions::tls out, or give the server its TLS files"};
  }
  if (has(message, {"certificate verify failed"})) {
    return {"tls.root_certificates", "the certificate of the server at ", " is not trusted, or has expired",
            "Give the certificate of the authority that signed it in ClientOptions::tls.root_certificates"};
  }
  if (has(message, {"security handshaker", "empty address list"}) && tls.enabled) {
    return {"tls", "no connection to the server at ", ": gRPC cannot use the PEM texts",
            "ClientOptions::tls.private_key must belong to ClientOptions::tls.certificate_chain"};
  }
  if (has(message, {"socket closed", "connection reset", "broken pipe"})) {
    if (!tls.enabled) {
      return {"tls", "the server at ", " closed the connection",
              "If it has TLS, set ClientOptions::tls.enabled and the authority that signed its certificate in "
              "ClientOptions::tls.root_certificates"};
    }
    if (tls.certificate_chain.empty()) {
      return {"tls.certificate_chain", "the server at ", " closed the connection",
              "If it asks for a client certificate, give ClientOptions::tls.certificate_chain and "
              "ClientOptions::tls.private_key"};
    }
    return {"tls.certificate_chain", "the server at ", " closed the connection",
            "The certificate in ClientOptions::tls.certificate_chain must not have expired, and an authority of the "
            "server's --tls-client-ca must have signed it"};
  }
  if (tls.enabled && has(message, {"ssl routines", "ssl error", "handshake"})) {
    return {"tls", "no encrypted connection to the server at ", "",
            "Check the PEM texts of ClientOptions::tls; a server without TLS takes none"};
  }
  return {"address", "no server at ", "", "Start one with svdserve, or name its address in ClientOptions::address"};
}

// The cause, which is what follows the last ": ", but for the ": OK" that newer releases add.
std::string last_words(std::string_view message) {
  constexpr std::string_view kEnd = ": OK";
  if (message.ends_with(kEnd)) message.remove_suffix(kEnd.size());
  const size_t colon = message.rfind(": ");
  return std::string(message.substr(colon == std::string_view::npos ? 0 : colon + 2));
}

}  // namespace

Status explain_unreachable(Status status, const ClientOptions& options) {
  if (status.code != Code::kUnavailable || !status.reason.empty()) return status;
  const std::string message = normalized(status.message);
  if (!has(message, {"failed to connect", "connections to all", "resolution", "resolving", "empty address list"})) {
    return status;
  }
  const std::string address = options.address.text();
  if (const Status bad = check_address(address); !bad.ok()) {
    status.parameter = "address";
    status.message = "ClientOptions::address " + bad.message;
    return status;
  }
  const Cause cause = cause_of(message, options.tls);
  const std::string why = last_words(status.message);
  status.parameter = cause.parameter;
  status.message = cause.before + address + cause.after + (why.empty() ? "" : " (" + why + ")") + ". " + cause.to_do;
  return status;
}

}  // namespace svdserve::client::internal
