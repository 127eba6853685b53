// gRPC's words for a server out of reach, as its releases 1.51 and 1.85 have them, in words for the user.
#include "client/cpp/wire/unreachable.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace svdserve::client::internal {
namespace {

Status unavailable(std::string message) { return {.code = Code::kUnavailable, .message = std::move(message)}; }

TEST(Unreachable, TheParameterFollowsFromTheCause) {
  const std::string connecting = "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: ";
  const std::string of_tls = connecting +
                             "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1000007d:SSL "
                             "routines:OPENSSL_internal:";
  const TlsOptions none, encrypted{.enabled = true}, certified{.enabled = true, .certificate_chain = "PEM"};
  const struct {
    std::string message, parameter, begin;
    TlsOptions tls;
  } all[] = {
      {connecting + "Failed to connect to remote host: Connection refused", "address",
       "no server at a:1 (Connection refused)", none},
      {"DNS resolution failed for a:1: C-ares status is not ARES_SUCCESS: Domain name not found", "address",
       "no server at a:1 (Domain name not found)", none},
      {"connections to all backends failing; last error: UNKNOWN: Connection refused", "address", "no server at a:1 (",
       none},
      {connecting + "Peer name b is not in peer certificate", "tls.server_name",
       "the certificate of the server at a:1 is for another name (Peer name b", encrypted},
      {connecting + "Custom verification check failed with error: UNAUTHENTICATED: Hostname Verification Check failed.",
       "tls.server_name", "the certificate of the server at a:1 is for another name (", encrypted},
      {connecting + "error:0A000086:SSL routines::certificate verify failed", "tls.root_certificates",
       "the certificate of the server at a:1 is not trusted, or has expired (", encrypted},
      {of_tls + "CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "tls.root_certificates",
       "the certificate of the server at a:1 is not trusted, or has expired (certificate has expired)", encrypted},
      {of_tls + "WRONG_VERSION_NUMBER: Invalid certificate verification context: OK", "tls",
       "the server at a:1 has no TLS (Invalid certificate verification context)", encrypted},
      {of_tls + "NO_SHARED_CIPHER", "tls", "no encrypted connection to the server at a:1 (", encrypted},
      {connecting + "Socket closed", "tls", "the server at a:1 closed the connection (Socket closed)", none},
      {connecting + "recvmsg:Connection reset by peer", "tls.certificate_chain",
       "the server at a:1 closed the connection (", encrypted},
      {connecting + "Socket closed", "tls.certificate_chain", "the server at a:1 closed the connection (", certified},
      {"DNS resolution failed for dressler:1: C-ares status is not ARES_SUCCESS: Domain name not found", "address",
       "no server at a:1 (Domain name not found)", none},
      {"failed to connect to all addresses; last error: UNKNOWN: unix:/run/ssl/handshake.sock: No such file or "
       "directory",
       "address", "no server at a:1 (No such file or directory)", none},
      {"empty address list: ", "tls", "no connection to the server at a:1: gRPC cannot use the PEM texts. ", certified},
  };
  for (const auto& [message, parameter, begin, tls] : all) {
    const Status told = explain_unreachable(unavailable(message), {.address = "a:1", .tls = tls});
    EXPECT_EQ(told.parameter, parameter) << message;
    EXPECT_EQ(told.message.substr(0, begin.size()), begin) << message;
    EXPECT_NE(told.message.find("ClientOptions::" + parameter), std::string::npos) << told.message;
  }
}

TEST(Unreachable, OtherStatusesStayAsTheyAre) {
  const ClientOptions options{.address = "a:1"};
  for (const char* const message :
       {"Socket closed", "recvmsg:Connection reset by peer", "the server is draining", ""}) {
    const Status told = explain_unreachable(unavailable(message), options);
    EXPECT_EQ(told.message, message);
    EXPECT_EQ(told.parameter, "");
  }
  Status draining = unavailable("failed to connect");
  draining.reason = "DRAINING";
  EXPECT_EQ(explain_unreachable(draining, options).message, "failed to connect");
  EXPECT_EQ(explain_unreachable({.code = Code::kInternal, .message = "failed to connect"}, options).parameter, "");
}

TEST(Unreachable, AnAddressThatIsNoneIsNamed) {
  const Status told = explain_unreachable(unavailable("DNS resolution failed for nowhere"), {.address = "nowhere"});
  EXPECT_EQ(told.parameter, "address");
  EXPECT_EQ(told.message.rfind("ClientOptions::address must be host:port", 0), 0u) << told.message;
}

}  // namespace
}  // namespace svdserve::client::internal
