// TLS and client certificates, with certificates made here by the openssl program.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

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
      root ca; root stranger; new server; sign server; new client; sign client
      root later; new server2; sign server2; new expired
      openssl x509 -req -in expired.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days -1 -out expired.pem 2>/dev/null
      openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -days -1 -out past.pem -extfile san 2>/dev/null
      mkdir issued; touch issued/index; echo 01 > issued/serial
      printf '[ca]\ndefault_ca=d\n[d]\ndatabase=issued/index\nserial=issued/serial\nnew_certs_dir=issued\n' > ca.conf
      printf 'default_md=sha256\npolicy=p\n[p]\ncommonName=optional\n' >> ca.conf
      openssl ca -batch -notext -config ca.conf -cert ca.pem -keyfile ca.key -in server.csr -out future.pem \
        -startdate 20490101000000Z -enddate 20500101000000Z -extfile san 2>/dev/null
      openssl x509 -req -in client.csr -CA later.pem -CAkey later.key -CAcreateserial -days 2 -out client2.pem 2>/dev/null
      cp client.key client2.key; cat ca.pem later.pem > both.pem)";
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
  EXPECT_NE(result.output.find("--tls-key cannot be parsed as PEM"), std::string::npos) << result.output;
}

TEST_F(TlsTest, AnExpiredClientIsRefused) {
  RunningServer server(flags_with_client_ca());
  EXPECT_EQ(call(server, trusting("ca.pem", "expired")), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::OK);
}

// A server whose TLS files are copies that a test replaces.
class TlsRotationTest : public TlsTest {
 protected:
  void SetUp() override {
    own_ = path("own");
    std::filesystem::create_directory(own_);
    install("server", "ca.pem");
  }
  void TearDown() override { std::filesystem::remove_all(own_); }

  // All three files at once, or those that are named.
  void install(const std::string& pair, const std::string& roots = "") const {
    put(pair + ".pem", "cert.pem");
    put(pair + ".key", "key.pem");
    if (!roots.empty()) put(roots, "roots.pem");
  }
  void put(const std::string& from, const std::string& to) const {
    std::filesystem::copy_file(path(from), own_ + "/" + to, std::filesystem::copy_options::overwrite_existing);
  }
  std::vector<std::string> own_flags(const char* refresh) const {
    return {"--tls-cert=" + own_ + "/cert.pem", "--tls-key=" + own_ + "/key.pem",
            "--tls-client-ca=" + own_ + "/roots.pem", std::string("--tls-refresh=") + refresh};
  }
  static double reloads(const RunningServer& server, const char* result) {
    return server.metric("svdserve_tls_reloads_total", {std::string("result=\"") + result + "\""});
  }
  // Asks for a reload and waits until it was counted.
  static void reload(const RunningServer& server, const char* result) {
    const double before = reloads(server, result);
    server.signal(SIGHUP);
    EXPECT_TRUE(wait_until([&] { return reloads(server, result) > before; })) << server.log();
  }

  std::string own_;
};

TEST_F(TlsRotationTest, RotationUnderLoadFailsNoCall) {
  RunningServer server(own_flags("0s"));
  const auto both = trusting("ca.pem", "client");
  std::atomic<bool> stop{false};
  std::atomic<int> calls{0}, failed{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&] {
      while (!stop) {  // each call by a connection of its own
        if (call(server, both) != grpc::StatusCode::OK) ++failed;
        ++calls;
      }
    });
  }
  for (int i = 0; i < 6; ++i) {
    const int before = calls;
    install(i % 2 == 0 ? "server2" : "server");
    reload(server, "loaded");
    EXPECT_TRUE(wait_until([&] { return calls >= before + 4; }));
  }
  stop = true;
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(failed, 0) << "of " << calls;
  EXPECT_EQ(reloads(server, "rejected"), 0);
}

TEST_F(TlsRotationTest, RootsRotateAndOpenConnectionsStay) {
  RunningServer server(own_flags("0s"));
  const auto old_connection = connect(server.address(), trusting("ca.pem", "client"));
  v1::DecomposeResponse response;
  EXPECT_TRUE(decompose(old_connection, random_request(2, 2, 1), &response, std::chrono::seconds(60)).ok());
  EXPECT_EQ(call(server, trusting("ca.pem", "client2")), grpc::StatusCode::UNAVAILABLE);
  install("server", "both.pem");
  reload(server, "loaded");
  EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::OK);
  EXPECT_EQ(call(server, trusting("ca.pem", "client2")), grpc::StatusCode::OK);
  install("server", "later.pem");
  reload(server, "loaded");
  EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call(server, trusting("ca.pem", "client2")), grpc::StatusCode::OK);
  EXPECT_TRUE(decompose(old_connection, random_request(2, 2, 1), &response, std::chrono::seconds(60)).ok());
}

TEST_F(TlsRotationTest, WrongFilesLeaveTheOldOnesInUse) {
  RunningServer server(own_flags("0s"));
  const struct {
    const char *from, *to, *why;
  } mistakes[] = {{"server2.key", "key.pem", "certificate and key do not belong together"},
                  {"san", "key.pem", "--tls-key cannot be parsed as PEM"},
                  {"san", "cert.pem", "--tls-cert cannot be parsed as PEM"},
                  {"san", "roots.pem", "--tls-client-ca cannot be parsed as PEM"},
                  {"past.pem", "cert.pem", "--tls-cert has expired, and the certificate in use has not"},
                  {"future.pem", "cert.pem", "--tls-cert is not valid yet, and the certificate in use is"}};
  for (const auto& mistake : mistakes) {
    install("server", "ca.pem");
    put(mistake.from, mistake.to);
    reload(server, "rejected");
    EXPECT_NE(server.log().find(mistake.why), std::string::npos) << mistake.why << "\n" << server.log();
    EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::OK) << mistake.why;
  }
  std::filesystem::remove(own_ + "/key.pem");
  reload(server, "rejected");
  EXPECT_NE(server.log().find("--tls-key: cannot read "), std::string::npos) << server.log();
  EXPECT_EQ(reloads(server, "loaded"), 0);
  install("server", "ca.pem");
  server.signal(SIGHUP);
  EXPECT_TRUE(wait_until([&] { return server.log().find("event=tls_files_unchanged") != std::string::npos; }));
}

TEST_F(TlsRotationTest, NewFilesAreFoundWithoutASignal) {
  RunningServer server(own_flags("20ms"));
  install("server2");
  EXPECT_TRUE(wait_until([&] { return reloads(server, "loaded") >= 1; }));
  EXPECT_EQ(call(server, trusting("ca.pem", "client")), grpc::StatusCode::OK);
}

TEST_F(TlsRotationTest, TheExpiryIsAMetric) {
  RunningServer server(own_flags("0s"));
  const auto days_left = [&](const char* file) {
    const double expiry =
        server.metric("svdserve_tls_expiry_timestamp_seconds", {std::string("file=\"") + file + "\""});
    return (expiry - static_cast<double>(std::time(nullptr))) / 86400;
  };
  EXPECT_NEAR(days_left("certificate"), 2, 0.1);
  EXPECT_NEAR(days_left("client_ca"), 2, 0.1);
  EXPECT_EQ(RunningServer().metric("svdserve_tls_expiry_timestamp_seconds"), 0);
}

}  // namespace
}  // namespace svdserve::testing
