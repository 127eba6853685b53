// TLS and client certificates, with certificates made here by the openssl program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/support/running_server.h"
#include "tests/support/wire.h"

namespace svdserve::testing {
namespace {

// A root of its own with a server's and a client's certificate, and a stranger who signed himself.
class TlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = (std::filesystem::temp_directory_path() / "svdserve_tls_XXXXXX").string();
    ASSERT_NE(mkdtemp(directory_.data()), nullptr);
    const std::string script = R"(set -e; cd "$0"
      new() { openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "/CN=$1" 2>/dev/null; }
      root() { openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout "$1.key" -out "$1.pem" -subj "/CN=$1" 2>/dev/null; }
      sign() { openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out "$1.pem" -extfile san 2>/dev/null; }
      echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' > san
      root ca; root stranger; new server; sign server; new client; sign client)";
    const ProgramResult result = run_program({"/bin/bash", "-c", script, directory_});
    ASSERT_EQ(result.exit_code, 0) << result.output;
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(directory_); }

  static std::string path(const std::string& name) { return directory_ + "/" + name; }
  static std::string text(const std::string& name) {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::vector<std::string> flags() {
    return {"--tls-cert=" + path("server.pem"), "--tls-key=" + path("server.key")};
  }
  static std::vector<std::string> flags_with_client_ca() {
    std::vector<std::string> out = flags();
    out.push_back("--tls-client-ca=" + path("ca.pem"));
    return out;
  }

  // Whether a call gets through with these credentials.
  static grpc::StatusCode call(const RunningServer& server, std::shared_ptr<grpc::ChannelCredentials> credentials) {
    v1::DecomposeResponse response;
    return decompose(connect(server.address(), std::move(credentials)), random_request(2, 2, 1), &response,
                     std::chrono::seconds(60))
        .error_code();
  }
  static std::shared_ptr<grpc::ChannelCredentials> trusting(const std::string& ca, const std::string& who = "") {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = text(ca);
    if (!who.empty()) {
      options.pem_cert_chain = text(who + ".pem");
      options.pem_private_key = text(who + ".key");
    }
    return grpc::SslCredentials(options);
  }

  static std::string directory_;
};

std::string TlsTest::directory_;

TEST_F(TlsTest, ServesWhoTrustsTheServer) {
  RunningServer server(flags());
  EXPECT_EQ(call(server, trusting("ca.pem")), grpc::StatusCode::OK);
  EXPECT_EQ(call(server, trusting("stranger.pem")), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(server, grpc::InsecureChannelCredentials()), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, WithAClientCaOnlyCertifiedClientsAreServed) {
  RunningServer server(flags_with_client_ca());
  EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::OK);
  EXPECT_EQ(call(server, trusting("ca.pem")), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(server, trusting("ca.pem", "stranger")), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(TlsTest, WithTlsOtherMachinesMayReachIt) {
  std::vector<std::string> open = flags();
  open.push_back("--listen=0.0.0.0:0");
  RunningServer server(open);
  EXPECT_EQ(server.address().substr(0, 8), "0.0.0.0:");
}

TEST_F(TlsTest, AKeyThatIsNoneStopsTheStart) {
  const ProgramResult result =
      run_program({server_binary(), "--listen=127.0.0.1:0", "--metrics-listen=", "--tls-cert=" + path("server.pem"),
                   "--tls-key=" + path("san")});
  EXPECT_EQ(result.exit_code, 1) << result.output;
  EXPECT_NE(result.output.find("--tls-cert, --tls-key or --tls-client-ca"), std::string::npos) << result.output;
}

}  // namespace
}  // namespace svdserve::testing
