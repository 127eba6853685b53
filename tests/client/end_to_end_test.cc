// The client, svdctl and the example against the real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <complex>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "client/cpp/client.h"
#include "engine/svd_engine.h"
#include "tests/client/process.h"

namespace svdserve::testing {
namespace {

using client::CallOptions;
using client::Client;
using client::MemoryOrder;
using std::chrono::seconds;
using ::testing::HasSubstr;

const CallOptions kCall{.timeout = seconds(60)};

template <class T>
std::vector<T> random_matrices(size_t elements) {
  std::vector<T> v(elements);
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal;
  auto* parts = reinterpret_cast<client::RealOf<T>*>(v.data());
  for (size_t i = 0; i < elements * sizeof(T) / sizeof(parts[0]); ++i) {
    parts[i] = static_cast<client::RealOf<T>>(normal(generator));
  }
  return v;
}

// What the engine itself says.
template <class T>
std::vector<client::RealOf<T>> by_engine(const std::vector<T>& data, int64_t rows, int64_t cols, int64_t count,
                                         Order order) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};
  const DType type = kTypes[static_cast<int>(client::ElementTraits<T>::kDataType)];
  const PlanOrError plan = make_plan({.rows = rows, .cols = cols, .dtype = type, .order = order}, {});
  std::vector<client::RealOf<T>> values(static_cast<size_t>(count * std::min(rows, cols)));
  const HostSegment segment{.matrices = data.data(), .count = count, .planes = values.data()};
  EXPECT_TRUE(SvdEngine().execute(*plan.plan, {&segment, 1}).completed);
  return values;
}

template <class T>
void expect_the_engines_bits(Client& client, int64_t rows, int64_t cols, int64_t count, MemoryOrder order) {
  const auto data = random_matrices<T>(static_cast<size_t>(rows * cols * count));
  const auto s = client.singular_values<T>(data, rows, cols, count, order, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  const auto expected =
      by_engine(data, rows, cols, count, order == MemoryOrder::kRowMajor ? Order::kRowMajor : Order::kColumnMajor);
  ASSERT_EQ(s->values.size(), expected.size());
  EXPECT_EQ(std::memcmp(s->values.data(), expected.data(), expected.size() * sizeof(expected[0])), 0);
}

TEST(EndToEnd, ValuesAreTheEnginesBits) {
  Server server;
  Client client({.address = server.address()});
  for (const auto order : {MemoryOrder::kRowMajor, MemoryOrder::kColumnMajor}) {
    expect_the_engines_bits<float>(client, 4, 4, 1000, order);
    expect_the_engines_bits<double>(client, 8, 3, 1000, order);
    expect_the_engines_bits<std::complex<float>>(client, 4, 64, 100, order);
    expect_the_engines_bits<std::complex<double>>(client, 17, 32, 50, order);
    expect_the_engines_bits<double>(client, 1, 1, 1, order);
  }
}

TEST(EndToEnd, ABatchOfManyMessagesIsOneAnswer) {
  Server server({"--max-message-bytes", "65536"});
  Client client({.address = server.address()});
  const auto info = client.server_info(kCall);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  EXPECT_EQ(info->limits.max_message_bytes, 65536);
  constexpr int64_t kCount = 30001;
  auto data = random_matrices<std::complex<float>>(16 * kCount);
  data[16 * 20000] = {std::numeric_limits<float>::infinity(), 0};
  const auto s = client.singular_values<std::complex<float>>(data, 4, 4, kCount, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  EXPECT_GT(s->report.pieces, 60);
  ASSERT_EQ(s->report.exceptions.size(), 1u);
  EXPECT_EQ(s->report.exceptions[0].index, 20000);
  EXPECT_EQ(s->report.exceptions[0].status, client::MatrixStatus::kNonFinite);
  const auto expected = by_engine(data, 4, 4, kCount, Order::kRowMajor);
  EXPECT_EQ(std::memcmp(s->values.data(), expected.data(), expected.size() * sizeof(float)), 0);
}

TEST(EndToEnd, AStreamGivesTheSame) {
  Server server;
  Client client({.address = server.address()});
  const auto data = random_matrices<double>(16 * 100 * 50);
  const auto expected = by_engine(data, 4, 4, 100 * 50, Order::kRowMajor);
  client::Stream stream = client.open_stream({.max_in_flight = 50, .call = kCall});
  for (int i = 0; i < 50; ++i) {
    const client::Batch batch{.data = data.data() + 1600 * i, .rows = 4, .cols = 4, .count = 100};
    ASSERT_TRUE(stream.submit(batch).ok());
  }
  stream.finish();
  for (size_t i = 0; i < 50; ++i) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok());
    EXPECT_EQ(std::memcmp(reply->values.data(), expected.data() + 400 * i, 400 * sizeof(double)), 0);
  }
  EXPECT_FALSE(stream.next());
}

TEST(EndToEnd, AMistakeNamesItsField) {
  Server server;
  Client client({.address = server.address()});
  const std::vector<double> data(33 * 33);
  const auto s = client.singular_values<double>(data, 33, 33, 1, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.code, client::Code::kInvalidArgument);
  EXPECT_EQ(s.reason, "INVALID_FIELD");
  EXPECT_THAT(s.field, HasSubstr("matrices."));
  const auto t = client
                     .singular_values<double>(std::span(data).first(16), 4, 4, 1, MemoryOrder::kRowMajor,
                                              {.method = client::Method::kBisection, .tolerance = 2}, kCall)
                     .status();
  EXPECT_EQ(t.field, "options.tolerance");
}

// A certificate authority that signs for itself, made by openssl, is trusted by both sides.
TEST(EndToEnd, TlsAndMutualTls) {
  const std::string folder = make_folder(), cert = folder + "/cert.pem", key = folder + "/key.pem";
  const Outcome made = run({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                            "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert});
  if (made.exit_code != 0) GTEST_SKIP() << "no certificate could be made: " << made.err;
  const std::vector<double> data = {3, 0, 0, 4};
  const auto ask = [&](const std::string& address, const client::Result<client::TlsOptions>& tls) {
    EXPECT_TRUE(tls.ok()) << tls.status().to_string();
    Client client({.address = address, .tls = *tls, .retry = {.max_attempts = 1}});
    return client.singular_values<double>(data, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall).status();
  };
  {
    Server server({"--tls-cert", cert, "--tls-key", key});
    EXPECT_TRUE(ask(server.address(), client::TlsOptions::from_files(cert)).ok());
    EXPECT_EQ(ask(server.address(), client::TlsOptions()).code, client::Code::kUnavailable);
  }
  {
    Server server({"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", cert});
    const auto s = ask(server.address(), client::TlsOptions::from_files(cert, cert, key));
    EXPECT_TRUE(s.ok()) << s.to_string();
    EXPECT_FALSE(ask(server.address(), client::TlsOptions::from_files(cert)).ok());
    EXPECT_EQ(run({SVDCTL_PROGRAM, "health", "--address", server.address(), "--tls-ca", cert, "--tls-cert", cert,
                   "--tls-key", key})
                  .exit_code,
              0);
  }
  std::filesystem::remove_all(folder);
}

// --- svdctl -------------------------------------------------------------------------------------

TEST(Svdctl, ComputesTheValuesOfAFile) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy", out = folder + "/s.npy";
  const Outcome o = run({SVDCTL_PROGRAM, "values", in, "-o", out, "--print", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("matrices of 4x4 c64"));
  EXPECT_THAT(o.err, HasSubstr("matrices/s; bidiagonal on host:0; 1 message; "));
  std::ifstream file(out, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  ASSERT_GT(bytes.size(), 128u);
  EXPECT_THAT(bytes.substr(0, 128), HasSubstr("'descr': '<f4', 'fortran_order': False"));
  // The first line of the printed values is the first matrix of the file: 4 floats that read back exactly.
  std::istringstream line(o.out);
  const size_t values = std::count(o.out.begin(), o.out.end(), '\n') * 4;
  for (size_t i = 0; i < 4; ++i) {
    float printed = 0, stored = 0;
    line >> printed;
    std::memcpy(&stored, bytes.data() + bytes.size() - (values - i) * sizeof(float), sizeof stored);
    EXPECT_EQ(printed, stored);
  }
  std::filesystem::remove_all(folder);
}

// Values that nobody could read are no success.
TEST(Svdctl, ValuesThatCannotBePrintedAreAFailure) {
  Server server;
  const Outcome o = run({"/bin/sh", "-c", "\"$0\" values \"$1\" --print --address \"$2\" > /dev/full", SVDCTL_PROGRAM,
                         std::string(TEST_DATA) + "/cdl_c_4x4.npy", server.address()});
  EXPECT_EQ(o.exit_code, 1);
  EXPECT_THAT(o.err, HasSubstr("cannot write to stdout"));
}

TEST(Svdctl, SaysWhenMatricesAreNotOk) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy";
  std::string head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 1, 1), }";
  head.append(118 - head.size() - 1, ' ');
  const double values[] = {2, std::numeric_limits<double>::quiet_NaN()};
  std::ofstream(in, std::ios::binary) << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << head << '\n'
                                      << std::string_view(reinterpret_cast<const char*>(values), sizeof values);
  const Outcome o = run({SVDCTL_PROGRAM, "values", in, "--print", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_EQ(o.out, "2\nnan\n");
  EXPECT_THAT(o.err, HasSubstr("1 ok, 1 non_finite"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, TellsAboutTheServer) {
  std::string address;
  {
    Server server;
    address = server.address();
    const Outcome info = run({SVDCTL_PROGRAM, "info", "--address", address});
    EXPECT_EQ(info.exit_code, 0);
    EXPECT_THAT(info.out, HasSubstr("f32 f64 c64 c128"));
    EXPECT_THAT(info.out, HasSubstr("host:0"));
    const Outcome health = run({SVDCTL_PROGRAM, "health", "--address", address});
    EXPECT_EQ(health.exit_code, 0);
    EXPECT_EQ(health.out, "SERVING\n");
    EXPECT_EQ(run({SVDCTL_PROGRAM, "health", "--service", "svdserve.v1.SvdService", "--address", address}).exit_code,
              0);
    EXPECT_EQ(run({SVDCTL_PROGRAM, "health", "--service", "nobody", "--address", address}).exit_code, 1);
  }
  EXPECT_EQ(run({SVDCTL_PROGRAM, "health", "--address", address}).exit_code, 1);
  EXPECT_EQ(run({SVDCTL_PROGRAM, "info", "--address", address, "--timeout", "2s"}).exit_code, 1);
}

TEST(Svdctl, GeneratesLoadAndWritesCsv) {
  Server server;
  const auto bench = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {SVDCTL_PROGRAM, "bench", "--address", server.address(),
                                      "--duration",   "300ms", "--warmup",  "100ms",
                                      "--count",      "10",    "--csv",     "-"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  const std::vector<std::vector<std::string>> loads = {{"--shape", "4x4,8x2:2", "--dtype", "f32,c128"},
                                                       {"--stream", "--concurrency", "2", "--window", "8"},
                                                       {"--rate", "200", "--connections", "2"},
                                                       {"--request-bytes", "100000", "--method", "jacobi"}};
  for (const auto& more : loads) {
    const Outcome o = bench(more);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, ::testing::StartsWith("machine,address,"));
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 2);
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), ',') % 2, 0);  // as many columns in both lines
    EXPECT_THAT(o.err, HasSubstr("matrices_per_s"));
  }
  const Outcome latency =
      run({SVDCTL_PROGRAM, "latency", "--rounds", "2", "--calls", "20", "--csv", "--address", server.address()});
  EXPECT_EQ(latency.exit_code, 0) << latency.err;
  EXPECT_THAT(latency.out, HasSubstr("\nall,"));
}

TEST(Svdctl, WrongUsageIsExplained) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"nonsense"},
                                                       {"values"},
                                                       {"values", "a.npy", "--method", "magic"},
                                                       {"values", "a.npy", "--timeout", "soon"},
                                                       {"bench", "--shape", "4"},
                                                       {"bench", "--dtype", "f16"},
                                                       {"bench", "--rate", "10", "--stream"},
                                                       {"health", "--tls-cert", "only.pem"},
                                                       {"latency", "--rounds", "0"}};
  for (const auto& words : wrong) {
    std::vector<std::string> all = {SVDCTL_PROGRAM};
    all.insert(all.end(), words.begin(), words.end());
    const Outcome o = run(all);
    EXPECT_EQ(o.exit_code, 2) << ::testing::PrintToString(words);
    EXPECT_THAT(o.err, HasSubstr("svdctl"));
  }
  EXPECT_EQ(run({SVDCTL_PROGRAM, "values", "/nonexistent.npy"}).exit_code, 1);
  for (const char* command : {"values", "info", "health", "bench", "latency"}) {
    const Outcome o = run({SVDCTL_PROGRAM, command, "--help"});
    EXPECT_EQ(o.exit_code, 0);
    EXPECT_THAT(o.out, HasSubstr("Exit codes:"));
    EXPECT_THAT(o.out, HasSubstr("--address ADDR"));
  }
}

TEST(Example, Runs) {
  Server server;
  const Outcome o = run({EXAMPLE_PROGRAM, server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1000 matrices on host:0 by bidiagonal"));
}

}  // namespace
}  // namespace svdserve::testing
