// The client, svdctl and the example against the real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <thread>

#include "client/cpp/client.h"
#include "engine/svd_engine.h"
#include "tests/client/process.h"

namespace svdserve::testing {
namespace {

using client::CallOptions;
using client::Client;
using client::MemoryOrder;
using std::chrono::seconds;
using ::testing::DoubleEq;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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

// The engine's own values.
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

// Batches of different shapes, types and orders, more than a message may have groups, and one that is cut in pieces.
TEST(EndToEnd, BatchesOfDifferentShapesAreOneCall) {
  Server server({"--max-message-bytes", "65536"});
  Client client({.address = server.address()});
  const auto wide = random_matrices<std::complex<float>>(16 * 3000);
  const auto tall = random_matrices<double>(5 * 3 * 20);
  std::vector<std::vector<double>> values(302);
  std::vector<client::Group> groups;
  const auto add = [&](const auto& data, int64_t rows, int64_t cols, int64_t count) {
    using T = std::decay_t<decltype(data[0])>;
    client::Batch batch{data.data(), rows, cols, count, client::ElementTraits<T>::kDataType, MemoryOrder::kRowMajor,
                        {}};
    std::vector<double>& to = values[groups.size()];
    const int64_t bytes = plane_bytes(batch, {}, client::Plane::kValues, count);
    to.resize(static_cast<size_t>(bytes) / sizeof(double) + 1);
    groups.push_back({batch, std::as_writable_bytes(std::span(to)).first(static_cast<size_t>(bytes))});
  };
  add(wide, 4, 4, 3000);
  for (int i = 0; i < 300; ++i) add(tall, 5, 3, i % 21);
  add(wide, 2, 8, 7);
  const auto reports = client.decompose_groups(groups, {}, kCall);
  ASSERT_TRUE(reports.ok()) << reports.status().to_string();
  ASSERT_EQ(reports->size(), groups.size());
  EXPECT_GT(reports->front().pieces, 1);
  EXPECT_EQ(reports->back().pieces, 1);
  for (size_t g = 0; g < groups.size(); ++g) {
    const client::Batch& batch = groups[g].batch;
    EXPECT_EQ((*reports)[g].count, batch.count);
    const bool is_tall = batch.data_type == client::DataType::kF64;
    const auto check = [&](const auto& data) {
      const auto expected = by_engine(data, batch.rows, batch.cols, batch.count, Order::kRowMajor);
      if (expected.empty()) return;  // memcmp() takes no null pointer
      EXPECT_EQ(std::memcmp(values[g].data(), expected.data(), expected.size() * sizeof(expected[0])), 0) << g;
    };
    if (is_tall) {
      check(tall);
    } else {
      check(wide);
    }
  }
}

TEST(EndToEnd, AMistakeInAGroupNamesTheGroup) {
  Server server;
  Client client({.address = server.address()});
  const auto data = random_matrices<double>(4);
  std::vector<double> values(2);
  const client::Batch good{data.data(), 2, 2, 1};
  client::Batch bad = good;
  bad.rows = 0;
  const std::vector<client::Group> groups = {{good, std::as_writable_bytes(std::span(values))}, {bad, {}}};
  const auto refused = client.decompose_groups(groups, {}, kCall);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().field, "groups[1].rows");
  EXPECT_TRUE(client.decompose_groups({}, {}, kCall).ok());
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
    EXPECT_EQ(std::memcmp(reply->planes[0].data(), expected.data() + 400 * i, 400 * sizeof(double)), 0);
  }
  EXPECT_FALSE(stream.next());
}

// Operands of 16-bit numbers, and the same as floats, small integers that every type has exactly.
struct NarrowBatch {
  std::vector<uint16_t> narrow;
  std::vector<float> wide;
  client::Batch batch, as_floats;
};

std::unique_ptr<NarrowBatch> narrow_batch(client::DataType type, int64_t count) {
  auto made = std::make_unique<NarrowBatch>();
  const bool is_integer = type == client::DataType::kI16 || type == client::DataType::kCI16;
  const bool is_bfloat = type == client::DataType::kBF16;
  std::mt19937 generator(3);
  for (size_t i = 0; i < static_cast<size_t>(count) * 12 * element_bytes(type) / 2; ++i) {
    const int number = static_cast<int>(generator() % 128) - 64;
    const float wide = is_integer ? std::ldexp(static_cast<float>(number), -7) : static_cast<float>(number);
    uint32_t bits = 0;
    std::memcpy(&bits, &wide, sizeof(bits));
    const uint32_t half = (bits >> 16 & 0x8000) | ((bits & 0x7fffffff) == 0 ? 0 : (bits >> 13 & 0x3ffff) - (112 << 10));
    made->narrow.push_back(static_cast<uint16_t>(is_integer  ? static_cast<uint32_t>(number)
                                                 : is_bfloat ? bits >> 16
                                                             : half));
    made->wide.push_back(wide);
  }
  made->batch = {.data = made->narrow.data(), .rows = 4, .cols = 3, .count = count, .data_type = type};
  if (is_integer) made->batch.exponent = -7;
  made->as_floats = made->batch;
  made->as_floats.data = made->wide.data();
  made->as_floats.data_type = result_type(type);
  made->as_floats.exponent = 0;
  return made;
}

std::vector<std::byte> planes_of(Client& client, const client::Batch& batch, const client::ComputeOptions& compute) {
  std::vector<std::byte> all(1 << 20);
  client::Outputs out;
  size_t at = 0;
  for (int p = 0; p < client::kPlanes; ++p) {
    const auto bytes = static_cast<size_t>(plane_bytes(batch, compute, static_cast<client::Plane>(p), batch.count));
    out.planes[static_cast<size_t>(p)] = std::span(all).subspan(at, bytes);
    at += bytes;
  }
  const auto reply = client.decompose(batch, out, compute, kCall);
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  all.resize(at);
  return all;
}

TEST(EndToEnd, NarrowOperandsHaveTheBitsOfFloats) {
  Server server({"--max-message-bytes", "65536"});
  Client client({.address = server.address()});
  client::MimoOptions mimo{.capacity = true, .effective_rank = true, .snr_db = {3}, .singular_values = true};
  mimo.gradient = true;
  for (const auto type : {client::DataType::kF16, client::DataType::kBF16, client::DataType::kC32,
                          client::DataType::kI16, client::DataType::kCI16}) {
    const auto made = narrow_batch(type, 1000);
    for (const client::ComputeOptions& compute :
         {client::ComputeOptions{},
          {.vectors = client::Vectors::kFull, .certificate = client::CertificateScope::kMatrix},
          {.mimo = mimo}}) {
      EXPECT_EQ(planes_of(client, made->batch, compute), planes_of(client, made->as_floats, compute)) << name(type);
    }
    client::Stream stream = client.open_stream({.call = kCall});
    ASSERT_TRUE(stream.submit(made->batch).ok());
    stream.finish();
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok());
    const auto expected = planes_of(client, made->as_floats, {});
    EXPECT_TRUE(std::ranges::equal(reply->planes[0], expected)) << name(type);
  }
}

TEST(EndToEnd, MistakesInNarrowOperandsAreNamed) {
  Server server;
  Client client({.address = server.address()});
  auto made = narrow_batch(client::DataType::kI16, 2);
  std::vector<float> values(6);
  made->batch.exponent = 200;
  const auto status = client.decompose(made->batch, std::as_writable_bytes(std::span(values)), {}, kCall).status();
  EXPECT_EQ(status.field, "matrices.exponent");
  EXPECT_THAT(status.message, HasSubstr("between -126 and 112"));
  const client::LargeMatrix large{
      .data = made->narrow.data(), .rows = 4, .cols = 3, .data_type = client::DataType::kF16};
  EXPECT_EQ(client::large_sizes(large, {}).status().field, "open.data_type");
  EXPECT_THAT(client::large_sizes(large, {}).status().message, HasSubstr("f16 is for batches alone; convert"));
  const auto info = client.server_info(kCall);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->data_types.size(), static_cast<size_t>(client::DataType::kLast) + 1);
}

TEST(EndToEnd, ACapacityIsPlannedFromTheServersTimes) {
  Server server;
  Client client({.address = server.address()});
  const client::Batch batch{.rows = 4, .cols = 4, .count = 1000, .data_type = client::DataType::kC64};
  const auto once = client.plan_capacity(batch, {}, {.requests_per_second = 10}, kCall);
  ASSERT_TRUE(once.ok()) << once.status().to_string();
  ASSERT_EQ(once->devices.size(), 1u);
  // Alone or in a batch, and something for the transport. Which is faster depends on the machine.
  const client::DeviceCost& cost = once->devices[0];
  const double in_batch = 1000 * cost.batch_seconds / static_cast<double>(cost.batch_matrices);
  const double least = cost.batch_matrices < 1000 ? in_batch : std::min(in_batch, cost.request_seconds);
  EXPECT_GT(once->core_seconds, static_cast<double>(once->replica_cores) * least);
  EXPECT_GT(once->memory_bytes, once->max_inflight_bytes);
  const auto thousandfold = client.plan_capacity(batch, {}, {.requests_per_second = 10000}, kCall);
  ASSERT_TRUE(thousandfold.ok());
  EXPECT_NEAR(thousandfold->cores / once->cores, 1000, 500);  // the server may have learned between the calls
  EXPECT_GE(thousandfold->replicas, once->replicas);
  const client::Batch square{.rows = 8, .cols = 8, .count = 10, .data_type = client::DataType::kF64};
  for (const auto problem : {client::Problem::kHermitian, client::Problem::kGeneral}) {
    EXPECT_TRUE(client.plan_capacity(square, {.problem = problem}, {}, kCall).ok());
  }
  client::ComputeOptions mimo;
  mimo.mimo = client::MimoOptions{.capacity = true, .snr_db = {0, 10}, .group_size = 10};
  EXPECT_TRUE(client.plan_capacity(batch, mimo, {}, kCall).ok());
  const auto soon = client.plan_capacity(batch, {}, {.latency = std::chrono::nanoseconds(1)}, kCall);
  ASSERT_TRUE(soon.ok());
  EXPECT_FALSE(soon->reachable);
  EXPECT_EQ(client.plan_capacity(batch, {}, {.requests_per_second = -1}, kCall).status().field, "requests_per_second");
}

TEST(EndToEnd, AMistakeNamesItsField) {
  Server server;
  Client client({.address = server.address()});
  const std::vector<double> data(513 * 513);
  const auto s = client.singular_values<double>(data, 513, 513, 1, MemoryOrder::kRowMajor, {}, kCall).status();
  EXPECT_EQ(s.code, client::Code::kInvalidArgument);
  EXPECT_EQ(s.reason, "INVALID_FIELD");
  EXPECT_THAT(s.field, HasSubstr("matrices."));
  const auto t = client
                     .singular_values<double>(std::span(data).first(16), 4, 4, 1, MemoryOrder::kRowMajor,
                                              {.method = client::Method::kBisection, .tolerance = 2}, kCall)
                     .status();
  EXPECT_EQ(t.field, "options.tolerance");
}

// An authority with a server's, a client's and an expired certificate, and a stranger who signs for himself.
class TlsEndToEnd : public ::testing::Test {
 protected:
  void SetUp() override {
    const Outcome made = run({"/bin/bash", "-c", R"(set -e; cd "$0"
      new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$1.key" "${@:2}" -subj "/CN=$1"; }
      sign() { openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -days "$2" -out "$1.pem" -extfile san; }
      echo 'subjectAltName=DNS:localhost,IP:127.0.0.1' > san
      for root in ca stranger; do new $root -x509 -days 2 -out $root.pem; done
      for name in server client expired; do new $name -out $name.csr; done
      sign server 2; sign client 2; sign expired -1)",
                              folder_});
    if (made.exit_code != 0) GTEST_SKIP() << "no certificates could be made: " << made.err;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return folder_ + "/" + name; }
  std::vector<std::string> flags() const { return {"--tls-cert", file("server.pem"), "--tls-key", file("server.key")}; }
  client::TlsOptions trusting(const std::string& ca, const std::string& cert = "", const std::string& key = "") const {
    const auto own = [&](const std::string& name) { return name.empty() ? name : file(name); };
    auto tls = client::TlsOptions::from_files(file(ca), own(cert), own(key));
    EXPECT_TRUE(tls.ok()) << tls.status().to_string();
    return *tls;
  }
  static client::Status ask(const std::string& address, const client::TlsOptions& tls) {
    Client client({.address = address, .tls = tls, .retry = {.max_attempts = 1}});
    return client.singular_values<double>(std::vector<double>{3, 0, 0, 4}, 2, 2, 1, MemoryOrder::kRowMajor, {}, kCall)
        .status();
  }
  // The error of svdctl, with these options of TLS.
  std::string told(const std::string& address, const std::vector<std::string>& words) const {
    std::vector<std::string> all = {SVDCTL_PROGRAM, "info", "--timeout", "60s", "--address", address};
    for (const std::string& word : words)
      all.push_back(word.ends_with(".pem") || word.ends_with(".key") ? file(word) : word);
    return run(all).err;
  }

  const std::string folder_ = make_folder();
};

TEST_F(TlsEndToEnd, AServerWithACertificate) {
  Server server(flags());
  const std::string address = server.address(), of_server = "the certificate of the server at " + address;
  EXPECT_TRUE(ask(address, trusting("ca.pem")).ok());

  const client::Status unencrypted = ask(address, {});
  EXPECT_EQ(unencrypted.code, client::Code::kUnavailable);
  EXPECT_EQ(unencrypted.parameter, "tls");
  EXPECT_THAT(unencrypted.message, AllOf(StartsWith("the server at " + address + " closed the connection ("),
                                         HasSubstr("If it has TLS, set ClientOptions::tls.enabled")));
  EXPECT_THAT(told(address, {}), HasSubstr("If it has TLS, set --tls and the authority that signed its certificate in"
                                           " --tls-ca\n"));

  const client::Status stranger = ask(address, trusting("stranger.pem"));
  EXPECT_EQ(stranger.parameter, "tls.root_certificates");
  EXPECT_THAT(stranger.message, AllOf(StartsWith(of_server + " is not trusted, or has expired ("),
                                      HasSubstr("signed it in ClientOptions::tls.root_certificates")));
  EXPECT_THAT(told(address, {"--tls"}),
              HasSubstr("Give the certificate of the authority that signed it in --tls-ca\n"));

  client::TlsOptions other = trusting("ca.pem");
  other.server_name = "other";
  EXPECT_EQ(ask(address, other).parameter, "tls.server_name");
  EXPECT_THAT(ask(address, other).message, StartsWith(of_server + " is for another name ("));
  EXPECT_THAT(told(address, {"--tls-ca", "ca.pem", "--tls-server-name", "other"}),
              HasSubstr("Give a name that it has in --tls-server-name, or in --address or SVDSERVE_ADDRESS\n"));
}

TEST_F(TlsEndToEnd, AServerWithoutOne) {
  Server plain;
  const client::Status encrypted = ask(plain.address(), trusting("ca.pem"));
  EXPECT_EQ(encrypted.parameter, "tls");
  EXPECT_THAT(encrypted.message, AllOf(StartsWith("the server at " + plain.address() + " has no TLS ("),
                                       HasSubstr("Leave ClientOptions::tls out")));
  EXPECT_THAT(told(plain.address(), {"--tls-ca", "ca.pem"}), HasSubstr("Leave the options of TLS out"));
}

TEST_F(TlsEndToEnd, AServerThatAsksForCertificates) {
  std::vector<std::string> mutual = flags();
  mutual.insert(mutual.end(), {"--tls-client-ca", file("ca.pem")});
  Server server(mutual);
  const std::string address = server.address(), closed = "the server at " + address + " closed the connection (";
  EXPECT_TRUE(ask(address, trusting("ca.pem", "client.pem", "client.key")).ok());
  EXPECT_EQ(told(address, {"--tls-ca", "ca.pem", "--tls-cert", "client.pem", "--tls-key", "client.key"}), "");

  const client::Status nobody = ask(address, trusting("ca.pem"));
  EXPECT_EQ(nobody.parameter, "tls.certificate_chain");
  EXPECT_THAT(nobody.message, AllOf(StartsWith(closed), HasSubstr("If it asks for a client certificate, give "
                                                                  "ClientOptions::tls.certificate_chain")));
  for (const std::string name : {"expired", "stranger"}) {
    const client::Status refused = ask(address, trusting("ca.pem", name + ".pem", name + ".key"));
    EXPECT_EQ(refused.parameter, "tls.certificate_chain");
    EXPECT_THAT(refused.message, AllOf(StartsWith(closed), HasSubstr("must not have expired"))) << name;
  }
  EXPECT_THAT(told(address, {"--tls-ca", "ca.pem", "--tls-cert", "expired.pem", "--tls-key", "expired.key"}),
              HasSubstr("The certificate in --tls-cert must not have expired"));
  EXPECT_THAT(ask(address, trusting("ca.pem", "client.pem", "server.key")).message,
              HasSubstr("ClientOptions::tls.private_key must belong to ClientOptions::tls.certificate_chain"));
}

TEST_F(TlsEndToEnd, FilesOfAnotherKind) {
  EXPECT_THAT(told("127.0.0.1:1", {"--tls-ca", "ca.key"}),
              HasSubstr("--tls-ca: " + file("ca.key") + " has no CERTIFICATE"));
  EXPECT_THAT(told("127.0.0.1:1", {"--tls-cert", "ca.pem", "--tls-key", "ca.pem"}),
              HasSubstr("--tls-key: " + file("ca.pem") + " has no PRIVATE KEY"));
  EXPECT_EQ(client::TlsOptions::from_files(file("san")).status().to_string(),
            "INVALID_ARGUMENT (INVALID_FIELD) tls.root_certificates: " + file("san") + " is not a PEM file");
}

// --- vectors and answers ------------------------------------------------------------------------

std::vector<std::complex<double>> random_channels(size_t elements) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<std::complex<double>> h(elements);
  for (auto& x : h) x = {normal(random), normal(random)};
  return h;
}

// |A - U S V^H| of all matrices, row-major.
double residual(const std::vector<std::complex<double>>& a, const client::Decomposition<std::complex<double>>& d,
                size_t m, size_t n) {
  const size_t left = d.left_columns, right = d.right_rows, k = d.report.values_per_matrix, count = d.report.count;
  double sum = 0;
  for (size_t i = 0; i < count; ++i) {
    for (size_t row = 0; row < m; ++row) {
      for (size_t col = 0; col < n; ++col) {
        std::complex<double> x = a[(i * m + row) * n + col];
        for (size_t j = 0; j < k; ++j) {
          x -= d.left[(i * m + row) * left + j] * d.values[i * k + j] * d.right_adjoint[(i * right + j) * n + col];
        }
        sum += std::norm(x);
      }
    }
  }
  return std::sqrt(sum);
}

TEST(EndToEnd, SvdIsOneOfItsMatrices) {
  Server server;
  client::Client client({.address = server.address(), .piece_bytes = 20000});
  const auto a = random_channels(5 * 3 * 100);
  for (const client::Vectors vectors : {client::Vectors::kNone, client::Vectors::kThin, client::Vectors::kFull}) {
    const auto d =
        client.svd<std::complex<double>>(a, 5, 3, 100, client::MemoryOrder::kRowMajor,
                                         {.vectors = vectors, .certificate = client::CertificateScope::kMatrix});
    ASSERT_TRUE(d.ok()) << d.status().to_string();
    EXPECT_GT(d->report.pieces, 1);
    EXPECT_EQ(d->left_columns, vectors == client::Vectors::kFull ? 5 : 3);
    EXPECT_EQ(d->right_rows, 3);
    EXPECT_LT(residual(a, *d, 5, 3), 1e-12);
    ASSERT_EQ(d->certificates.size(), 300u);
    double largest = 0;
    for (size_t i = 0; i < 300; i += 3) largest = std::max(largest, d->certificates[i]);
    ASSERT_TRUE(d->report.certificate.has_value());
    EXPECT_EQ(d->report.certificate->residual, largest);
  }
}

TEST(EndToEnd, CapacitiesAndPrecoders) {
  Server server;
  client::Client client({.address = server.address(), .piece_bytes = 3000});
  const auto h = random_channels(4 * 2 * 120);
  const auto each = client.capacity<std::complex<double>>(h, 2, 4, 120, {0, 10});
  ASSERT_TRUE(each.ok()) << each.status().to_string();
  ASSERT_EQ(each->values.size(), 240u);
  const auto values = client.singular_values<std::complex<double>>(h, 2, 4, 120);
  ASSERT_TRUE(values.ok());
  for (int64_t i = 0; i < 120; ++i) {
    double c = 0;
    for (const double s : (*values)[i]) c += std::log2(1 + 10 * s * s / 4);
    EXPECT_NEAR(each->values[static_cast<size_t>(2 * i + 1)], c, 1e-11);
  }
  const auto sums = client.capacity<std::complex<double>>(h, 2, 4, 120, {10}, false, 12);
  ASSERT_TRUE(sums.ok()) << sums.status().to_string();
  ASSERT_EQ(sums->values.size(), 10u);
  double first = 0;
  for (size_t i = 0; i < 12; ++i) first += each->values[2 * i + 1];
  EXPECT_NEAR(sums->values[0], first, 1e-10);
  const auto filled = client.capacity<std::complex<double>>(h, 2, 4, 120, {10}, true);
  ASSERT_TRUE(filled.ok());
  for (size_t i = 0; i < 120; ++i) EXPECT_GE(filled->values[i], each->values[2 * i + 1] - 1e-12);
  const auto v = client.precoders<std::complex<double>>(h, 2, 4, 120, 1);
  ASSERT_TRUE(v.ok()) << v.status().to_string();
  ASSERT_EQ(v->columns.size(), 480u);
  for (int64_t i = 0; i < 120; ++i) {  // |H v| is the largest singular value
    double norm = 0;
    for (size_t row = 0; row < 2; ++row) {
      std::complex<double> x = 0;
      for (size_t j = 0; j < 4; ++j) {
        x += h[(static_cast<size_t>(i) * 2 + row) * 4 + j] * v->columns[4 * static_cast<size_t>(i) + j];
      }
      norm += std::norm(x);
    }
    EXPECT_NEAR(std::sqrt(norm), (*values)[i][0], 1e-12);
  }
}

TEST(EndToEnd, VectorsInAStream) {
  Server server;
  client::Client client({.address = server.address()});
  const auto a = random_channels(3 * 3 * 10);
  client::Stream stream = client.open_stream();
  const client::Batch batch{a.data(), 3, 3, 10, client::DataType::kC128};
  ASSERT_TRUE(stream.submit(batch, {.vectors = client::Vectors::kThin}).ok());
  ASSERT_TRUE(stream.submit(batch, {.mimo = client::MimoOptions{.capacity = true, .snr_db = {0, 1, 2}}}).ok());
  stream.finish();
  const auto vectors = stream.next(), capacities = stream.next();
  ASSERT_TRUE(vectors && vectors->status.ok()) << vectors->status.to_string();
  EXPECT_EQ(vectors->plane_as<std::complex<double>>(client::Plane::kLeft).size(), 90u);
  EXPECT_EQ(vectors->values_as<double>().size(), 30u);
  ASSERT_TRUE(capacities && capacities->status.ok()) << capacities->status.to_string();
  EXPECT_EQ(capacities->plane_as<double>(client::Plane::kCapacity).size(), 30u);
  EXPECT_TRUE(capacities->values_as<double>().empty());
}

TEST(EndToEnd, WhatIsRefusedIsNamed) {
  Server server;
  client::Client client({.address = server.address()});
  const auto a = random_channels(4 * 10);
  const auto field_of = [](const auto& result) { return result.status().field; };
  const auto row_major = client::MemoryOrder::kRowMajor;
  EXPECT_EQ(field_of(client.svd<std::complex<double>>(a, 2, 2, 10, row_major, {.top_k = 3})), "options.top_k");
  EXPECT_EQ(field_of(client.svd<std::complex<double>>(a, 2, 2, 10, row_major, {.method = client::Method::kBidiagonal})),
            "options.method");
  EXPECT_EQ(field_of(client.capacity<std::complex<double>>(a, 2, 2, 10, {std::nan("")})), "options.mimo.snr_db");
  EXPECT_EQ(field_of(client.capacity<std::complex<double>>(a, 2, 2, 10, {0}, false, 3)), "matrices.count");
  EXPECT_EQ(field_of(client.capacity<std::complex<double>>(a, 2, 2, 10, {0}, false, 0)), "options.mimo.group_size");
  EXPECT_EQ(field_of(client.precoders<std::complex<double>>(a, 2, 2, 10, 3)), "options.mimo.precoder_columns");
}

// --- large matrices -----------------------------------------------------------------------------

// |A - U S V^H| and |I - U^H U| of a row-major matrix, Frobenius norms.
template <class T>
std::pair<double, double> errors(const std::vector<T>& a, const client::LargeDecomposition<T>& d, size_t m, size_t n) {
  const size_t k = d.values.size(), left = static_cast<size_t>(d.left_columns);
  double residual = 0, orthogonality = 0;
  for (size_t row = 0; row < m; ++row) {
    for (size_t col = 0; col < n; ++col) {
      T x = a[row * n + col];
      for (size_t j = 0; j < k; ++j) x -= d.left[row * left + j] * d.values[j] * d.right_adjoint[j * n + col];
      residual += std::norm(x);
    }
  }
  for (size_t i = 0; i < left; ++i) {
    for (size_t j = 0; j < left; ++j) {
      T x = i == j ? -1 : 0;
      for (size_t row = 0; row < m; ++row) {
        if constexpr (std::is_floating_point_v<T>) {
          x += d.left[row * left + i] * d.left[row * left + j];
        } else {
          x += std::conj(d.left[row * left + i]) * d.left[row * left + j];
        }
      }
      orthogonality += std::norm(x);
    }
  }
  return {std::sqrt(residual), std::sqrt(orthogonality)};
}

TEST(EndToEnd, ALargeMatrixIsDecomposed) {
  Server server;
  Client client({.address = server.address()});
  const auto check = [&]<class T>(T, size_t m, size_t n, client::Vectors vectors) {
    const std::vector<T> a = random_matrices<T>(m * n);
    std::vector<client::LargeStage> stages;
    const auto d = client.svd_large<T>(
        a, static_cast<int64_t>(m), static_cast<int64_t>(n), MemoryOrder::kRowMajor,
        {.vectors = vectors, .certificate = true, .progress = [&](const auto& p) { stages.push_back(p.stage); }},
        kCall);
    ASSERT_TRUE(d.ok()) << d.status().to_string();
    const double u = sizeof(client::RealOf<T>) == 4 ? 0x1p-24 : 0x1p-53, size = static_cast<double>(std::max(m, n));
    const auto [residual, orthogonality] = errors(a, *d, m, n);
    EXPECT_LT(residual, 10 * size * u * std::sqrt(2.0 * static_cast<double>(m * n)));
    EXPECT_LT(orthogonality, size * u * std::max(10.0, std::sqrt(size)));
    EXPECT_TRUE(std::is_sorted(d->values.rbegin(), d->values.rend()));
    EXPECT_EQ(stages.front(), client::LargeStage::kUpload);
    EXPECT_EQ(stages.back(), client::LargeStage::kDownload);
    EXPECT_EQ(d->report.status, client::MatrixStatus::kOk);
    EXPECT_TRUE(d->report.certificate);
    EXPECT_FALSE(d->report.phases.empty());
  };
  check(double(), 120, 90, client::Vectors::kThin);
  check(double(), 60, 100, client::Vectors::kFull);
  check(float(), 100, 100, client::Vectors::kThin);
  check(std::complex<float>(), 50, 80, client::Vectors::kThin);
  check(std::complex<double>(), 90, 40, client::Vectors::kFull);
}

// The values of a diagonal matrix are known.
TEST(EndToEnd, LeadingTripletsOfALargeMatrix) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t kRows = 300, kCols = 200;
  std::vector<double> a(kRows * kCols, 0.0);
  for (size_t j = 0; j < kCols; ++j) a[j * kCols + j] = std::pow(0.25, static_cast<double>(j));
  const auto d =
      client.svd_large<double>(a, kRows, kCols, MemoryOrder::kRowMajor, {.certificate = true, .top_k = 3}, kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  ASSERT_EQ(d->values.size(), 3u);
  EXPECT_EQ(d->left_columns, 3);
  EXPECT_EQ(d->right_rows, 3);
  for (size_t j = 0; j < 3; ++j) {
    EXPECT_NEAR(d->values[j], std::pow(0.25, static_cast<double>(j)), 1e-13);
    EXPECT_NEAR(std::abs(d->left[j * 3 + j]), 1, 1e-12);
    EXPECT_NEAR(d->left[j * 3 + j] * d->right_adjoint[j * kCols + j], 1, 1e-12);
  }
  EXPECT_GT(d->report.subspace_steps, 0);
  EXPECT_EQ(d->report.members, 1);
  EXPECT_LT(d->report.certificate->residual, 1e-13);
  const auto field = [&](client::LargeOptions options) {
    return client.svd_large<double>(a, kRows, kCols, MemoryOrder::kRowMajor, options, kCall).status().field;
  };
  EXPECT_EQ(field({.top_k = 201}), "open.options.top_k");
  EXPECT_EQ(field({.top_k = -1}), "open.options.top_k");
  EXPECT_EQ(field({.vectors = client::Vectors::kFull, .top_k = 3}), "open.options.top_k");
}

// |A V - V diag(w)|_max of row-major matrices.
double eigen_error(const std::vector<double>& a, const client::LargeEigen<double>& e, size_t n) {
  double worst = 0;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double x = -e.vectors[i * n + j] * e.values[j];
      for (size_t k = 0; k < n; ++k) x += a[i * n + k] * e.vectors[k * n + j];
      worst = std::max(worst, std::abs(x));
    }
  }
  return worst;
}

TEST(EndToEnd, AHermitianEigenproblem) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t n = 40, kCols = 30;
  std::vector<double> a = random_matrices<double>(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) a[j * n + i] = a[i * n + j];
  }
  double told = 0;
  client::LargeOptions options{.method = client::Method::kFactored, .certificate = true};
  options.progress = [&](const client::LargeProgress& p) { told = std::max(told, p.fraction); };
  const auto e = client.eigh<double>(a, n, MemoryOrder::kRowMajor, options, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_TRUE(std::is_sorted(e->values.begin(), e->values.end()));
  EXPECT_LT(eigen_error(a, *e, n), 1e-12);
  EXPECT_EQ(e->report.rank, static_cast<int64_t>(n));
  EXPECT_GE(e->report.factor_condition, 1);
  EXPECT_LT(e->report.certificate->residual, 1e-14);
  EXPECT_EQ(e->report.method, client::Method::kFactored);
  EXPECT_GT(told, 0.5);
  const auto fast = client.eigh<double>(a, n, MemoryOrder::kRowMajor, {.certificate = true}, kCall);
  ASSERT_TRUE(fast.ok()) << fast.status().to_string();
  EXPECT_EQ(fast->report.method, client::Method::kTridiagonal);
  EXPECT_LT(eigen_error(a, *fast, n), 1e-12);
  EXPECT_LT(fast->report.certificate->residual, 1e-14);
  const auto alone = client.eigh<double>(a, n, MemoryOrder::kRowMajor, {.vectors = client::Vectors::kNone}, kCall);
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_TRUE(alone->vectors.empty());
  for (size_t i = 0; i < n; ++i) EXPECT_NEAR(alone->values[i], e->values[i], 1e-13 * std::abs(e->values[i]) * 1e3);
  const auto upper = client.eigh<double>(a, n, MemoryOrder::kRowMajor, {.triangle = client::Triangle::kUpper}, kCall);
  ASSERT_TRUE(upper.ok()) << upper.status().to_string();
  EXPECT_LT(eigen_error(a, *upper, n), 1e-12);

  const std::vector<double> g = random_matrices<double>(n * kCols);
  std::vector<int8_t> j(kCols);
  for (size_t i = 0; i < kCols; ++i) j[i] = i % 3 == 1 ? -1 : 1;
  const auto f = client.eigh_factored<double>(g, n, kCols, j, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(f.ok()) << f.status().to_string();
  std::vector<double> product(n * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t l = 0; l < n; ++l) {
      for (size_t k = 0; k < kCols; ++k) product[i * n + l] += g[i * kCols + k] * j[k] * g[l * kCols + k];
    }
  }
  EXPECT_LT(eigen_error(product, *f, n), 1e-11);
  EXPECT_EQ(f->report.rank, static_cast<int64_t>(kCols));
  EXPECT_EQ(std::count(f->values.begin(), f->values.end(), 0.0), static_cast<int64_t>(n - kCols));
  EXPECT_EQ(client.eigh_factored<double>(g, n, kCols, std::vector<int8_t>(3, 1)).status().field, "open.signature");
}

// The largest |A x - l x| of the columns of V, or with A^H and conj(l) of those of W.
double general_error(const std::vector<double>& a, const client::LargeGeneralEigen<double>& e, size_t n, bool left) {
  double worst = 0;
  for (size_t j = 0; j < n; ++j) {
    for (size_t i = 0; i < n; ++i) {
      // Row j of W^H is the adjoint of column j of W.
      const auto x = [&](size_t k) { return left ? std::conj(e.left_adjoint[j * n + k]) : e.vectors[k * n + j]; };
      std::complex<double> sum = -(left ? std::conj(e.values[j]) : e.values[j]) * x(i);
      for (size_t k = 0; k < n; ++k) sum += (left ? a[k * n + i] : a[i * n + k]) * x(k);
      worst = std::max(worst, std::abs(sum));
    }
  }
  return worst;
}

TEST(EndToEnd, AGeneralEigenproblem) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t n = 40;
  const std::vector<double> a = random_matrices<double>(n * n);
  const client::LargeOptions options{.vectors = client::Vectors::kFull, .certificate = true};
  const auto e = client.eig<double>(a, n, MemoryOrder::kRowMajor, options, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_LT(general_error(a, *e, n, false), 1e-12);
  EXPECT_LT(general_error(a, *e, n, true), 1e-12);
  EXPECT_EQ(e->report.method, client::Method::kQr);
  EXPECT_LT(e->report.certificate->residual, 1e-13);
  EXPECT_EQ(e->report.rank, static_cast<int64_t>(n));
  std::complex<double> sum = 0, trace = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += e->values[i];
    trace += a[i * n + i];
  }
  EXPECT_LT(std::abs(sum - trace), 1e-12);
  const auto alone = client.eig<double>(a, n, MemoryOrder::kRowMajor, {.vectors = client::Vectors::kNone}, kCall);
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_EQ(alone->values.size(), n);
  EXPECT_TRUE(alone->vectors.empty() && alone->left_adjoint.empty());
  const std::vector<std::complex<float>> c = random_matrices<std::complex<float>>(9);
  const auto small = client.eig<std::complex<float>>(c, 3, MemoryOrder::kColumnMajor, {}, kCall);
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  for (size_t j = 0; j < 3; ++j) {
    for (size_t i = 0; i < 3; ++i) {
      std::complex<float> rest = -small->values[j] * small->vectors[j * 3 + i];
      for (size_t k = 0; k < 3; ++k) rest += c[k * 3 + i] * small->vectors[j * 3 + k];
      EXPECT_LT(std::abs(rest), 1e-5);
    }
  }
  const auto swept = client.eig<double>(a, n, MemoryOrder::kRowMajor, {.max_sweeps = 3}, kCall);
  EXPECT_EQ(swept.status().field, "open.options.max_sweeps");
}

TEST(EndToEnd, AGeneralEigenproblemByJacobiAndFromStartingVectors) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t n = 40;
  const std::vector<double> a = random_matrices<double>(n * n);
  const client::LargeOptions options{
      .method = client::Method::kJacobi, .vectors = client::Vectors::kFull, .certificate = true};
  const auto cold = client.eig<double>(a, n, MemoryOrder::kRowMajor, options, kCall);
  ASSERT_TRUE(cold.ok()) << cold.status().to_string();
  EXPECT_LT(general_error(a, *cold, n, false), 1e-12);
  EXPECT_LT(general_error(a, *cold, n, true), 1e-12);
  EXPECT_EQ(cold->report.method, client::Method::kJacobi);
  const auto warm =
      client.eig<double>(a, n, MemoryOrder::kRowMajor, {.vectors = client::Vectors::kFull}, kCall, cold->vectors);
  ASSERT_TRUE(warm.ok()) << warm.status().to_string();
  EXPECT_LT(general_error(a, *warm, n, false), 1e-12);
  EXPECT_EQ(warm->report.method, client::Method::kJacobi);
  EXPECT_LE(warm->report.sweeps, 2);
  EXPECT_GE(cold->report.sweeps, 5);
  const std::vector<std::complex<double>> zeros(n * n);
  const auto by_qr = client.eig<double>(a, n, MemoryOrder::kRowMajor, {}, kCall, zeros);
  ASSERT_TRUE(by_qr.ok()) << by_qr.status().to_string();
  EXPECT_EQ(by_qr->report.method, client::Method::kQr);
  const auto refused =
      client.eig<double>(a, n, MemoryOrder::kRowMajor, {.method = client::Method::kQr}, kCall, cold->vectors);
  EXPECT_EQ(refused.status().field, "open.options.method");
  const auto short_start =
      client.eig<double>(a, n, MemoryOrder::kRowMajor, {}, kCall, std::span(cold->vectors).first(n));
  EXPECT_EQ(short_start.status().field, "open.starting_vectors");
  const auto tolerant =
      client.eig<double>(a, n, MemoryOrder::kRowMajor, {.method = client::Method::kJacobi, .tolerance = 1e-9}, kCall);
  EXPECT_EQ(tolerant.status().field, "open.options.tolerance");
}

TEST(EndToEnd, AHyperbolicDecomposition) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t kRows = 70, kCols = 50;
  std::vector<double> g = random_matrices<double>(kRows * kCols);
  for (size_t i = 0; i < kCols; ++i) g[i * kCols + i] += 30;  // well-conditioned
  std::vector<int8_t> j(kCols);
  for (size_t i = 0; i < kCols; ++i) j[i] = i % 3 == 1 ? -1 : 1;
  const auto d = client.hsvd<double>(g, kRows, kCols, j, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(d.ok()) << d.status().to_string();
  const auto [residual, orthogonality] = errors(g, *d, kRows, kCols);
  EXPECT_LT(residual, 1e-11);
  EXPECT_LT(orthogonality, 1e-12);
  double worst = 0;  // V^H J V = J
  for (size_t a = 0; a < kCols; ++a) {
    for (size_t b = 0; b < kCols; ++b) {
      double x = a == b ? -j[a] : 0;
      for (size_t i = 0; i < kCols; ++i) {
        x += d->right_adjoint[a * kCols + i] * j[i] * d->right_adjoint[b * kCols + i];
      }
      worst = std::max(worst, std::abs(x));
    }
  }
  EXPECT_LT(worst, 1e-11);
}

TEST(EndToEnd, ALargeMatrixThatIsRefusedSaysWhy) {
  Server server;
  Client client({.address = server.address()});
  std::vector<double> a = random_matrices<double>(60 * 40);
  const auto status = [&](const client::LargeOptions& options) {
    return client.svd_large<double>(a, 60, 40, MemoryOrder::kRowMajor, options, kCall).status();
  };
  EXPECT_EQ(status({.method = client::Method::kBisection}).field, "open.options.method");
  EXPECT_EQ(status({.tolerance = 2}).field, "open.options.tolerance");
  a[17 * 40 + 23] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(status({}).reason, "NON_FINITE");
  EXPECT_THAT(status({}).message, HasSubstr("17"));
  EXPECT_THAT(status({}).message, HasSubstr("23"));
}

// --- svdctl -------------------------------------------------------------------------------------

template <class T>
void write_matrix(const std::string& path, const char* type, const std::string& shape, const std::vector<T>& values) {
  std::string head = std::string("{'descr': '<") + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  head.append(118 - head.size() - 1, ' ');
  std::ofstream(path, std::ios::binary) << std::string("\x93NUMPY\x01\x00\x76\x00", 10) << head << '\n'
                                        << std::string_view(reinterpret_cast<const char*>(values.data()),
                                                            values.size() * sizeof(T));
}

// The head and the numbers of a file that svdctl wrote.
template <class T>
std::pair<std::string, std::vector<T>> read_matrix(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  std::vector<T> values(bytes.size() < 128 ? 0 : (bytes.size() - 128) / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data() + 128, values.size() * sizeof(T));
  return {bytes.substr(0, 128), values};
}

TEST(Svdctl, DecomposesALargeFile) {
  constexpr size_t kRows = 520, kCols = 513;
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  const std::vector<double> a = random_matrices<double>(2 * kRows * kCols);
  write_matrix(file("a"), "f8", "(2, 520, 513)", a);
  const Outcome o = run({SVDCTL_PROGRAM, "svd", file("a"), "--u", file("u"), "--s", file("s"), "--vh", file("vh"),
                         "--method", "jacobi", "--strategy", "round-robin", "--variant", "full-block", "--certificate",
                         "--verbose", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 matrices of 520x513 f64, all ok\n"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate     residual "));
  EXPECT_THAT(o.err, HasSubstr("jacobi on host:0"));
  EXPECT_THAT(o.err, HasSubstr("compute "));
  EXPECT_THAT(o.err, ::testing::Not(HasSubstr("\r")));  // no bar in a pipe
  const auto [u_head, u] = read_matrix<double>(file("u"));
  const auto [s_head, s] = read_matrix<double>(file("s"));
  const auto [vh_head, vh] = read_matrix<double>(file("vh"));
  EXPECT_THAT(u_head, HasSubstr("'descr': '<f8', 'fortran_order': False, 'shape': (2, 520, 513)"));
  EXPECT_THAT(s_head, HasSubstr("'shape': (2, 513)"));
  EXPECT_THAT(vh_head, HasSubstr("'shape': (2, 513, 513)"));
  for (size_t i = 0; i < 2; ++i) {
    const auto part = [i](const std::vector<double>& all, size_t size) {
      return std::vector<double>(all.begin() + static_cast<ptrdiff_t>(i * size),
                                 all.begin() + static_cast<ptrdiff_t>((i + 1) * size));
    };
    const client::LargeDecomposition<double> d{.left = part(u, kRows * kCols),
                                               .values = part(s, kCols),
                                               .right_adjoint = part(vh, kCols * kCols),
                                               .left_columns = kCols};
    const auto [residual, orthogonality] = errors(part(a, kRows * kCols), d, kRows, kCols);
    EXPECT_LT(residual, 1e-11);
    EXPECT_LT(orthogonality, 1e-12);
  }
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, EveryCommandTakesSeveralServers) {
  std::string gone;
  {
    const Server ended;
    gone = ended.address();
  }
  const Server one, other;
  const std::string folder = make_folder(), in = folder + "/a.npy", stack = folder + "/h.npy";
  const std::string all = gone + "," + one.address() + ", " + other.address();
  write_matrix(in, "f8", "(3, 3)", std::vector<double>{2, 0, 0, 0, 3, 0, 0, 0, 4});
  write_matrix(stack, "f8", "(2, 2, 2)", std::vector<double>{2, 0, 0, 3, 4, 0, 0, 5});
  const std::vector<std::string> commands[] = {
      {"values", stack, "--print"},
      {"svd", in, "--s", folder + "/s.npy", "--method", "jacobi"},
      {"capacity", stack, "--snr-db", "10", "-o", folder + "/c.npy"},
      {"eigh", in, "--w", folder + "/w.npy"},
      {"eigvals", in, "--print"},
      {"info"},
      {"health"},
      {"latency", "--calls", "20"},
      {"bench", "--duration", "200ms"},
  };
  for (std::vector<std::string> command : commands) {
    const std::string name = command[0];
    command.insert(command.begin(), SVDCTL_PROGRAM);
    command.insert(command.end(), {"--address", all});
    const Outcome o = run(command);
    EXPECT_EQ(o.exit_code, 0) << name << ": " << o.err;
  }
  const Outcome wrong = run({SVDCTL_PROGRAM, "info", "--address", one.address() + ",nowhere"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("\"nowhere\""));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, DecomposesAHyperbolicFile) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  write_matrix<double>(file("g"), "f8", "(3, 2)", {3, 0, 0, 2, 0, 0});
  write_matrix<int64_t>(file("j"), "i8", "(2,)", {1, -1});
  const std::vector<std::string> words = {SVDCTL_PROGRAM, "hsvd",    file("g"),   file("j"),
                                          "--s",          file("s"), "--address", server.address()};
  const Outcome o = run(words);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1 matrix of 3x2 f64\n"));
  const auto [head, s] = read_matrix<double>(file("s"));
  EXPECT_THAT(head, HasSubstr("'shape': (2,)"));
  ASSERT_EQ(s.size(), 2u);
  EXPECT_NEAR(s[0], 3, 1e-14);
  EXPECT_NEAR(s[1], 2, 1e-14);
  write_matrix<int64_t>(file("j"), "i8", "(2,)", {1, 0});
  EXPECT_EQ(run(words).exit_code, 2);
  write_matrix<int64_t>(file("j"), "i8", "(3,)", {1, -1, 1});
  EXPECT_EQ(run(words).exit_code, 2);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, EigenvaluesOfAMatrixAndOfItsFactor) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  // The eigenvalues 4 and 1e-20 of the lower triangle; what is above the diagonal is not read.
  write_matrix<double>(file("a"), "f8", "(2, 2)", {4, 77, 0, 1e-20});
  const std::vector<std::string> words = {SVDCTL_PROGRAM,   "eigh",          file("a"),   "--w",
                                          file("w"),        "--v",           file("v"),   "--address",
                                          server.address(), "--certificate", "--relative"};
  const Outcome o = run(words);
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("1 matrix of 2x2 f64\n"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate     residual "));
  EXPECT_THAT(o.out, HasSubstr(", rank 2\n"));
  EXPECT_THAT(read_matrix<double>(file("w")).second, ElementsAre(DoubleEq(1e-20), DoubleEq(4)));
  EXPECT_EQ(read_matrix<double>(file("v")).second.size(), 4u);

  write_matrix<double>(file("g"), "f8", "(3, 2)", {3, 0, 0, 2, 0, 0});
  write_matrix<int64_t>(file("j"), "i8", "(2,)", {1, -1});
  const Outcome of_factor = run(
      {SVDCTL_PROGRAM, "eigh", file("g"), "--signature", file("j"), "--w", file("x"), "--address", server.address()});
  EXPECT_EQ(of_factor.exit_code, 0) << of_factor.err;
  EXPECT_THAT(read_matrix<double>(file("x")).second, ElementsAre(DoubleNear(-4, 1e-14), 0, DoubleNear(9, 1e-14)));
  const Outcome tall =
      run({SVDCTL_PROGRAM, "eigh", file("g"), "--w", file("x"), "--force", "--address", server.address()});
  EXPECT_EQ(tall.exit_code, 2);
  EXPECT_THAT(tall.err, HasSubstr("its matrices must be square"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, EigenvaluesAndEigenvectorsOfAStack) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  write_matrix<double>(file("a"), "f8", "(2, 2, 2)", {4, 77, 0, 1, 0, 77, 2, 0});
  const Outcome o = run({SVDCTL_PROGRAM, "eigh", file("a"), "--w", file("w"), "--v", file("v"), "--certificate",
                         "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 matrices of 2x2 f64, all ok\n"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate "));
  EXPECT_THAT(read_matrix<double>(file("w")).second,
              ElementsAre(DoubleNear(1, 1e-14), DoubleNear(4, 1e-14), DoubleNear(-2, 1e-14), DoubleNear(2, 1e-14)));
  EXPECT_THAT(read_matrix<double>(file("v")).first, HasSubstr("'shape': (2, 2, 2)"));
  const Outcome tridiagonal =
      run({SVDCTL_PROGRAM, "eigh", file("a"), "--method", "tridiagonal", "--address", server.address()});
  EXPECT_EQ(tridiagonal.exit_code, 0) << tridiagonal.err;
  EXPECT_THAT(tridiagonal.err, HasSubstr("tridiagonal on host:0"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, GeneralEigenproblemsOfAStack) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  write_matrix<double>(file("a"), "f8", "(2, 2, 2)", {2, 0, 0, 3, 0, -1, 1, 0});  // the second one turns by 90 degrees
  const Outcome o = run({SVDCTL_PROGRAM, "eig", file("a"), "--w", file("w"), "--v", file("v"), "--wh", file("wh"),
                         "--certificate", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("2 matrices of 2x2 f64, all ok\n"));
  EXPECT_THAT(o.err, HasSubstr("qr on host:0"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate "));
  const auto near = [](double x) { return DoubleNear(x, 1e-14); };
  const auto expected = ElementsAre(2, 0, 3, 0, near(0), near(1), near(0), near(-1));  // 2, 3, i and -i
  EXPECT_THAT(read_matrix<double>(file("w")).second, expected);
  for (const char* of : {"v", "wh"}) EXPECT_THAT(read_matrix<double>(file(of)).first, HasSubstr("'shape': (2, 2, 2)"));
  EXPECT_THAT(read_matrix<double>(file("w")).first, HasSubstr("<c16"));
  const Outcome alone = run({SVDCTL_PROGRAM, "eigvals", file("a"), "-o", file("alone"), "--address", server.address()});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(read_matrix<double>(file("alone")).second, expected);
  const Outcome jacobi = run({SVDCTL_PROGRAM, "eig", file("a"), "--w", file("w"), "--method", "jacobi", "--max-sweeps",
                              "5", "--address", server.address()});
  EXPECT_EQ(jacobi.exit_code, 0) << jacobi.err;
  EXPECT_THAT(jacobi.err, HasSubstr("jacobi on host:0, "));
  EXPECT_THAT(read_matrix<double>(file("w")).second, expected);
  write_matrix<double>(file("hard"), "f8", "(1, 3, 3)", {1, 2, 3, 4, 5, 6, 7, 8, 10});
  const Outcome by_qr = run({SVDCTL_PROGRAM, "eigvals", file("hard"), "--method", "jacobi", "--max-sweeps", "1",
                             "--address", server.address()});
  EXPECT_EQ(by_qr.exit_code, 0) << by_qr.err;  // its results are right
  EXPECT_THAT(by_qr.out, HasSubstr(": 1 by_qr\n"));
  write_matrix<float>(file("pairs"), "f4", "(2, 2, 2)", {0, -2, 2, 0, 1.5, 0, 0, 3});
  const Outcome printed = run({SVDCTL_PROGRAM, "eigvals", file("pairs"), "--print", "--address", server.address()});
  EXPECT_EQ(printed.out, "0+2j 0-2j\n1.5+0j 3+0j\n") << printed.err;
  write_matrix<double>(file("nan"), "f8", "(3, 1, 1)", {2, std::nan(""), -3});
  const Outcome spoilt = run({SVDCTL_PROGRAM, "eigvals", file("nan"), "--print", "--address", server.address()});
  EXPECT_EQ(spoilt.exit_code, 3);
  EXPECT_EQ(spoilt.out, "2+0j\nnan+nanj\n-3+0j\n");
  EXPECT_THAT(spoilt.err, HasSubstr("2 ok, 1 non_finite"));
  write_matrix<float>(file("none"), "f4", "(0, 3, 3)", {});
  const Outcome none = run({SVDCTL_PROGRAM, "eigvals", file("none"), "-o", file("x"), "--address", server.address()});
  EXPECT_EQ(none.exit_code, 0) << none.err;
  EXPECT_THAT(read_matrix<float>(file("x")).first, HasSubstr("'shape': (0, 3)"));
  write_matrix<double>(file("tall"), "f8", "(2, 1)", {1, 2});
  EXPECT_EQ(run({SVDCTL_PROGRAM, "eig", file("tall")}).exit_code, 2);
  EXPECT_EQ(run({SVDCTL_PROGRAM, "eig", file("a"), "--method", "bisection"}).exit_code, 2);
  EXPECT_EQ(run({SVDCTL_PROGRAM, "eig", file("a"), "--max-sweeps", "5"}).exit_code, 2);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, StartingVectorsAndConditionsOfAStack) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  write_matrix<double>(file("a"), "f8", "(2, 3, 3)", {1, 2, 3, 4, 5, 6, 7, 8, 10, 1, 1, 0, 0, 1, 0, 0, 0, 2});
  const Outcome cold = run({SVDCTL_PROGRAM, "eig", file("a"), "--v", file("v"), "--condition", "--conditions",
                            file("c"), "--address", server.address()});
  EXPECT_EQ(cold.exit_code, 0) << cold.err;  // the second one is defective, and its results are right
  EXPECT_THAT(cold.err, HasSubstr("qr on host:0"));
  EXPECT_THAT(cold.out, HasSubstr("1 ok, 1 near_defective"));
  EXPECT_THAT(cold.out, HasSubstr("\nlargest condition "));
  const auto [head, conditions] = read_matrix<double>(file("c"));
  EXPECT_THAT(head, HasSubstr("'descr': '<f8', 'fortran_order': False, 'shape': (2, 3)"));
  EXPECT_THAT(conditions, ::testing::Each(::testing::Ge(1)));
  EXPECT_GT(conditions[3], 1e7);
  const Outcome warm =
      run({SVDCTL_PROGRAM, "eigvals", file("a"), "--start", file("v"), "--print", "--address", server.address()});
  EXPECT_EQ(warm.exit_code, 0) << warm.err;  // V of the second one is singular: QR decomposes it
  EXPECT_THAT(warm.err, HasSubstr("jacobi on host:0"));
  EXPECT_THAT(warm.err, HasSubstr("1 ok, 1 by_qr"));
  std::vector<double> a(33 * 33, 1);
  write_matrix(file("large"), "f8", "(33, 33)", a);
  const Outcome large = run({SVDCTL_PROGRAM, "eig", file("large"), "--condition", "--address", server.address()});
  EXPECT_EQ(large.exit_code, 2);
  EXPECT_THAT(large.err, HasSubstr("--condition is for matrices up to n = 32, and these have n = 33"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, GeneralMatricesBeyond32AreLarge) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  std::vector<double> a(2 * 33 * 33);
  for (size_t i = 0; i < 33; ++i) a[i * 34] = a[33 * 33 + i * 34] = static_cast<double>(i);
  write_matrix(file("a"), "f8", "(2, 33, 33)", a);
  const Outcome o = run({SVDCTL_PROGRAM, "eig", file("a"), "--w", file("w"), "--v", file("v"), "--wh", file("wh"),
                         "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("qr on host:0"));
  const auto [head, w] = read_matrix<std::complex<double>>(file("w"));
  EXPECT_THAT(head, HasSubstr("'descr': '<c16', 'fortran_order': False, 'shape': (2, 33)"));
  ASSERT_EQ(w.size(), 66u);
  EXPECT_EQ(std::accumulate(w.begin(), w.end(), std::complex<double>()), 2.0 * 33 * 16);
  for (const char* of : {"v", "wh"}) {
    EXPECT_THAT(read_matrix<double>(file(of)).first, HasSubstr("'shape': (2, 33, 33)"));
  }
  const Outcome jacobi = run({SVDCTL_PROGRAM, "eigvals", file("a"), "-o", file("alone"), "--method", "jacobi",
                              "--max-sweeps", "5", "--address", server.address()});
  EXPECT_EQ(jacobi.exit_code, 0) << jacobi.err;
  EXPECT_THAT(jacobi.err, HasSubstr("jacobi on host:0, "));
  for (size_t i = 0; i < 2 * 33 * 33; ++i) a[i] += 1e-3 * static_cast<double>(i % 7);
  write_matrix(file("next"), "f8", "(2, 33, 33)", a);
  const Outcome warm =
      run({SVDCTL_PROGRAM, "eig", file("next"), "--start", file("v"), "--certificate", "--address", server.address()});
  EXPECT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_THAT(warm.err, HasSubstr("jacobi on host:0, "));
  std::filesystem::remove_all(folder);
}

TEST(EndToEnd, EigenproblemsOfABatch) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t kOrder = 6, kCount = 40;
  std::vector<double> a = random_matrices<double>(kOrder * kOrder * kCount);
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t row = i / kOrder % kOrder, col = i % kOrder;
    if (col > row) a[i] = a[i + (col - row) * (kOrder - 1)];  // the transposed element
  }
  const auto e = client.eigh<double>(a, kOrder, kCount, MemoryOrder::kRowMajor,
                                     {.certificate = client::CertificateScope::kBatch}, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  EXPECT_LT(e->report.certificate->residual, 60 * 0x1p-53);
  for (size_t i = 0; i < kCount; ++i) {
    const auto part = [i](const std::vector<double>& all, size_t each) {
      return std::vector<double>(all.begin() + static_cast<std::ptrdiff_t>(i * each),
                                 all.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
    };
    const client::LargeEigen<double> one{part(e->values, kOrder), part(e->vectors, kOrder * kOrder), {}};
    EXPECT_LT(eigen_error(part(a, kOrder * kOrder), one, kOrder), 1e-13);
  }
}

// |A V - V L| and |W^H A - L W^H| of each matrix are at most 10 n u |A|, by the Frobenius norm.
template <class T>
void expect_general_eigenpairs(const std::vector<T>& a, const client::GeneralEigen<T>& e, size_t n, MemoryOrder order) {
  using Complex = std::complex<double>;
  const double u = std::numeric_limits<client::RealOf<T>>::epsilon() / 2, bound = 10 * static_cast<double>(n) * u;
  const size_t size = n * n;
  ASSERT_EQ(e.vectors.size(), a.size());
  ASSERT_EQ(e.values.size() * n, a.size());
  for (size_t matrix = 0; matrix * size < a.size(); ++matrix) {
    const auto at = [&](const auto& all, size_t i, size_t j) {
      return Complex(all[matrix * size + (order == MemoryOrder::kRowMajor ? i * n + j : j * n + i)]);
    };
    double right = 0, left = 0, norm = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        Complex x = -at(e.vectors, i, j) * Complex(e.values[matrix * n + j]), y = 0;
        for (size_t k = 0; k < n; ++k) x += at(a, i, k) * at(e.vectors, k, j);
        if (!e.left_adjoint.empty()) {
          y = -Complex(e.values[matrix * n + i]) * at(e.left_adjoint, i, j);
          for (size_t k = 0; k < n; ++k) y += at(e.left_adjoint, i, k) * at(a, k, j);
        }
        right += std::norm(x);
        left += std::norm(y);
        norm += std::norm(at(a, i, j));
      }
    }
    EXPECT_LE(std::sqrt(right), bound * std::sqrt(norm)) << "n = " << n << ", matrix " << matrix;
    EXPECT_LE(std::sqrt(left), bound * std::sqrt(norm)) << "n = " << n << ", matrix " << matrix;
  }
}

template <class T>
class GeneralEndToEnd : public ::testing::Test {};
using AllElements = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(GeneralEndToEnd, AllElements);

TYPED_TEST(GeneralEndToEnd, EigenpairsOfABatch) {
  Server server;
  Client client({.address = server.address()});
  const double u = std::numeric_limits<client::RealOf<TypeParam>>::epsilon() / 2;
  constexpr size_t kCount = 7;
  for (const size_t n : {1, 2, 5, 32}) {
    const std::vector<TypeParam> a = random_matrices<TypeParam>(n * n * kCount);
    for (const MemoryOrder order : {MemoryOrder::kRowMajor, MemoryOrder::kColumnMajor}) {
      for (const client::Vectors vectors : {client::Vectors::kThin, client::Vectors::kFull}) {
        const auto e =
            client.eig<TypeParam>(a, static_cast<int64_t>(n), kCount, order,
                                  {.vectors = vectors, .certificate = client::CertificateScope::kMatrix}, kCall);
        ASSERT_TRUE(e.ok()) << e.status().to_string();
        EXPECT_EQ(e->left_adjoint.size(), vectors == client::Vectors::kFull ? a.size() : 0);
        expect_general_eigenpairs(a, *e, n, order);
        EXPECT_EQ(e->report.method, client::Method::kQr);
        EXPECT_TRUE(e->report.exceptions.empty());
        ASSERT_EQ(e->certificates.size(), 3 * kCount);
        for (size_t i = 0; i < kCount; ++i) {
          EXPECT_LE(e->certificates[3 * i], e->report.certificate->residual);
          EXPECT_EQ(e->certificates[3 * i + 1] + e->certificates[3 * i + 2], 0);
        }
        EXPECT_LE(e->report.certificate->residual, 10 * static_cast<double>(n) * u);
      }
    }
  }
}

// The numbers that were found are those that were expected, in any order.
void expect_spectrum(std::span<const std::complex<double>> found, const std::vector<std::complex<double>>& expected,
                     double bound) {
  std::vector<std::complex<double>> rest(found.begin(), found.end());
  ASSERT_EQ(rest.size(), expected.size());
  for (const std::complex<double>& one : expected) {
    const auto distance = [&](const std::complex<double>& x) { return std::abs(x - one); };
    const auto nearest = std::ranges::min_element(rest, {}, distance);
    EXPECT_LE(distance(*nearest), bound) << one;
    rest.erase(nearest);
  }
}

TEST(EndToEnd, SpectraOfNormalMatrices) {
  Server server;
  Client client({.address = server.address()});
  constexpr int64_t n = 4, kCount = 3;
  const std::vector<double> a = {0, 0,  0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0,   // shifts by one place
                                 3, -4, 0, 0, 4, 3, 0, 0, 0, 0, 1, 2, 0, 0, 2, 1,   // two blocks
                                 2, 0,  0, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0, 2};  // 2 I
  using namespace std::complex_literals;
  const std::vector<std::complex<double>> spectra[] = {{1, 1i, -1, -1i}, {3. + 4i, 3. - 4i, -1, 3}, {2, 2, 2, 2}};
  const double norms[] = {2, std::sqrt(60), 4}, unit = 0x1p-53;
  const auto e = client.eig<double>(a, n, kCount, MemoryOrder::kRowMajor, {.vectors = client::Vectors::kFull}, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  std::vector<std::complex<double>> alone(n * kCount);
  const client::Batch batch{.data = a.data(), .rows = n, .cols = n, .count = kCount};
  const auto report =
      client.decompose(batch, std::as_writable_bytes(std::span(alone)), {.problem = client::Problem::kGeneral}, kCall);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  for (size_t i = 0; i < kCount; ++i) {
    expect_spectrum(std::span(e->values).subspan(i * n, n), spectra[i], 10 * n * unit * norms[i]);
    expect_spectrum(std::span(alone).subspan(i * n, n), spectra[i], 10 * n * unit * norms[i]);
  }
  expect_general_eigenpairs(a, *e, n, MemoryOrder::kRowMajor);
}

TEST(EndToEnd, AGeneralMatrixThatIsNotFiniteLeavesItsNeighboursAlone) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t n = 6, kCount = 9, kSpoilt = 4;
  std::vector<double> a = random_matrices<double>(n * n * kCount);
  const client::ComputeOptions compute{.vectors = client::Vectors::kFull};
  const auto clean = client.eig<double>(a, n, kCount, MemoryOrder::kRowMajor, compute, kCall);
  a[kSpoilt * n * n + 7] = std::nan("");
  const auto e = client.eig<double>(a, n, kCount, MemoryOrder::kRowMajor, compute, kCall);
  ASSERT_TRUE(clean.ok() && e.ok()) << e.status().to_string();
  ASSERT_EQ(e->report.exceptions.size(), 1u);
  EXPECT_EQ(e->report.exceptions[0].index, static_cast<int64_t>(kSpoilt));
  EXPECT_EQ(e->report.exceptions[0].status, client::MatrixStatus::kNonFinite);
  const auto compare = [&](const auto& found, const auto& expected, size_t each) {
    ASSERT_EQ(found.size(), each * kCount);
    for (size_t i = 0; i < found.size(); ++i) {
      if (i / each == kSpoilt) {
        EXPECT_TRUE(std::isnan(found[i].real()));
      } else {
        EXPECT_EQ(found[i], expected[i]);
      }
    }
  };
  compare(e->values, clean->values, n);
  compare(e->vectors, clean->vectors, n * n);
  compare(e->left_adjoint, clean->left_adjoint, n * n);
}

TEST(EndToEnd, GeneralMatricesOfABatchHaveAtMostTheServersOrder) {
  Server server;
  Client client({.address = server.address()});
  const auto info = client.server_info(kCall);
  ASSERT_TRUE(info.ok()) << info.status().to_string();
  ASSERT_EQ(info->limits.max_general_order, 32);
  const auto e = client.eig<double>(random_matrices<double>(2 * 33 * 33), 33, 2, MemoryOrder::kRowMajor, {}, kCall);
  EXPECT_EQ(e.status().code, client::Code::kInvalidArgument);
  EXPECT_EQ(e.status().field, "matrices.rows");
  EXPECT_EQ(e.status().reason, "INVALID_FIELD");
  EXPECT_THAT(e.status().message, HasSubstr("at most 32, but is 33"));
  const auto bisection = client.eig<double>(random_matrices<double>(4), 2, 1, MemoryOrder::kRowMajor,
                                            {.method = client::Method::kBisection}, kCall);
  EXPECT_EQ(bisection.status().field, "options.method");
  // Two sweeps are too few for a random matrix, so QR decomposes it.
  const std::vector<double> a = random_matrices<double>(12 * 12);
  const auto qr = client.eig<double>(a, 12, 1, MemoryOrder::kRowMajor, {}, kCall);
  const auto jacobi =
      client.eig<double>(a, 12, 1, MemoryOrder::kRowMajor, {.method = client::Method::kJacobi, .max_sweeps = 2}, kCall);
  ASSERT_TRUE(qr.ok() && jacobi.ok()) << jacobi.status().to_string();
  ASSERT_EQ(jacobi->report.exceptions.size(), 1u);
  EXPECT_EQ(jacobi->report.exceptions[0].status, client::MatrixStatus::kByQr);
  EXPECT_EQ(jacobi->report.count_wrong(), 0);
  EXPECT_EQ(jacobi->values, qr->values);
}

TEST(EndToEnd, StartingVectorsAndConditionsInPieces) {
  Server server;
  Client client({.address = server.address(), .piece_bytes = 1 << 14});
  constexpr size_t n = 10, kCount = 50;
  const std::vector<double> a = random_matrices<double>(n * n * kCount);
  for (const MemoryOrder order : {MemoryOrder::kRowMajor, MemoryOrder::kColumnMajor}) {
    client::ComputeOptions compute{.vectors = client::Vectors::kFull, .condition = true};
    const auto cold = client.eig<double>(a, n, kCount, order, compute, kCall);
    ASSERT_TRUE(cold.ok()) << cold.status().to_string();
    EXPECT_EQ(cold->report.method, client::Method::kQr);
    EXPECT_GT(cold->report.pieces, 3);
    for (size_t i = 0; i < n * kCount; ++i) {
      std::complex<double> product = 0;
      for (size_t l = 0; l < n; ++l) {
        const size_t matrix = i / n * n * n, j = i % n;
        const bool rows = order == MemoryOrder::kRowMajor;
        product += cold->left_adjoint[matrix + (rows ? j * n + l : l * n + j)] *
                   cold->vectors[matrix + (rows ? l * n + j : j * n + l)];
      }
      EXPECT_NEAR(cold->conditions[i] * std::abs(product), 1, 1e-10 * cold->conditions[i]);
    }
    compute.max_sweeps = 3;
    const auto warm = client.eig<double>(a, n, kCount, order, compute, kCall, cold->vectors);
    ASSERT_TRUE(warm.ok()) << warm.status().to_string();
    EXPECT_EQ(warm->report.method, client::Method::kJacobi);
    for (const client::MatrixException& e : warm->report.exceptions) {
      EXPECT_EQ(e.status, client::MatrixStatus::kNearDefective);
    }
    EXPECT_EQ(warm->report.count_wrong(), 0);
    expect_general_eigenpairs(a, *warm, n, order);
    for (size_t i = 0; i < kCount; ++i) {
      const auto matrix = static_cast<int64_t>(i);
      EXPECT_NEAR(warm->condition_of_vectors(matrix) / cold->condition_of_vectors(matrix), 1, 1e-6);
    }
  }
}

TEST(EndToEnd, AStreamTakesStartingVectors) {
  Server server;
  Client client({.address = server.address()});
  constexpr size_t n = 10;
  const std::vector<double> a = random_matrices<double>(4 * n * n);
  const auto e = client.eig<double>(a, n, 4, MemoryOrder::kRowMajor, {}, kCall);
  ASSERT_TRUE(e.ok()) << e.status().to_string();
  client::Stream stream = client.open_stream({.problem = client::Problem::kGeneral, .call = kCall});
  const client::ComputeOptions compute{.problem = client::Problem::kGeneral, .max_sweeps = 3, .condition = true};
  client::Batch batch{.data = a.data(), .rows = n, .cols = n, .count = 4};
  batch.starting_vectors = e->vectors.data();
  ASSERT_TRUE(stream.submit(batch, compute).ok());
  stream.finish();
  const auto reply = stream.next();
  ASSERT_TRUE(reply && reply->status.ok()) << reply->status.to_string();
  EXPECT_EQ(reply->report.method, client::Method::kJacobi);
  EXPECT_EQ(reply->report.count_wrong(), 0);
  EXPECT_EQ(reply->plane_as<std::complex<double>>(client::Plane::kValues).size(), 4 * n);
  EXPECT_THAT(reply->plane_as<double>(client::Plane::kEigenvalueCondition), ::testing::Each(::testing::Ge(1)));
}

TEST(EndToEnd, AStreamOfGeneralMatrices) {
  Server server;
  Client client({.address = server.address()});
  client::Stream stream = client.open_stream({.problem = client::Problem::kGeneral, .call = kCall});
  const client::ComputeOptions compute{.problem = client::Problem::kGeneral, .vectors = client::Vectors::kFull};
  const auto matrices_of = [](size_t n) { return random_matrices<double>(3 * n * n); };
  for (size_t n = 1; n <= 33; n += 8) {
    const std::vector<double> a = matrices_of(n);
    const auto order = static_cast<int64_t>(n);
    ASSERT_TRUE(stream.submit({.data = a.data(), .rows = order, .cols = order, .count = 3}, compute).ok());
  }
  stream.finish();
  for (size_t n = 1; n <= 25; n += 8) {
    const auto reply = stream.next();
    ASSERT_TRUE(reply && reply->status.ok()) << reply->status.to_string();
    const auto plane = [&](client::Plane p) {
      const auto numbers = reply->plane_as<std::complex<double>>(p);
      return std::vector<std::complex<double>>(numbers.begin(), numbers.end());
    };
    const client::GeneralEigen<double> e{plane(client::Plane::kValues), plane(client::Plane::kLeft),
                                         plane(client::Plane::kRight)};
    EXPECT_EQ(e.left_adjoint.size(), 3 * n * n);
    expect_general_eigenpairs(matrices_of(n), e, n, MemoryOrder::kRowMajor);
  }
  const auto refused = stream.next();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status.field, "request.matrices.rows");
}

TEST(Svdctl, DrawsABarOnATerminal) {
  if (!std::filesystem::exists("/usr/bin/script")) GTEST_SKIP() << "util-linux's script gives the terminal";
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy";
  write_matrix(in, "f8", "(520, 520)", random_matrices<double>(520 * 520));
  const std::string command = std::string(SVDCTL_PROGRAM) + " svd " + in + " --u " + folder +
                              "/u.npy --method jacobi --address " + server.address();
  const Outcome o = run({"/usr/bin/script", "-qec", command, "/dev/null"});
  EXPECT_EQ(o.exit_code, 0) << o.out;
  EXPECT_THAT(o.out, HasSubstr("\rupload       ["));
  EXPECT_THAT(o.out, HasSubstr("\rdownload     ["));
  EXPECT_THAT(o.out, HasSubstr("\r\033[K" + in + ": 1 matrix of 520x520"));  // the bar is gone before
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, ALargeMatrixThatDidNotConvergeIsWrittenAndSaidSo) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy", out = folder + "/s.npy";
  write_matrix(in, "f8", "(520, 520)", random_matrices<double>(520 * 520));
  const Outcome o = run({SVDCTL_PROGRAM, "svd", in, "--s", out, "--method", "jacobi", "--max-sweeps", "1", "--address",
                         server.address()});
  EXPECT_EQ(o.exit_code, 3) << o.err;
  EXPECT_THAT(o.out, HasSubstr("not_converged"));
  EXPECT_EQ(read_matrix<double>(out).second.size(), 520u);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, CtrlCEndsTheCallAndLeavesNoFile) {
  Server server({"--max-large-requests", "1"});
  const std::string folder = make_folder(), in = folder + "/a.npy", small = folder + "/small.npy";
  write_matrix(in, "f8", "(2500, 2500)", random_matrices<double>(2500 * 2500));  // far longer than the sleep below
  write_matrix(small, "f8", "(40, 40)", random_matrices<double>(40 * 40));
  const auto files = [&] {
    const std::filesystem::directory_iterator entries(folder);
    return std::distance(begin(entries), end(entries));
  };
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) {
    Process svdctl({SVDCTL_PROGRAM, "svd", in, "--u", folder + "/u.npy", "--s", folder + "/s.npy", "--vh",
                    folder + "/vh.npy", "--method", "jacobi", "--address", server.address()});
    const auto end = std::chrono::steady_clock::now() + seconds(180);
    while (files() < 5 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // into the upload or the sweeps
    svdctl.signal(signal);
    const Outcome o = svdctl.wait();
    EXPECT_EQ(o.exit_code, 128 + signal) << o.err;
    EXPECT_EQ(files(), 2);
    // The server, which takes one factor at a time, is free for the next.
    EXPECT_EQ(run({SVDCTL_PROGRAM, "svd", small, "--strategy", "recursive", "--address", server.address()}).exit_code,
              0);
  }
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, OfAStackTheMatrixThatIsNotFiniteIsNamed) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy";
  std::vector<double> a = random_matrices<double>(2 * 3 * 17000 * 2);
  a[5 * 17000 * 2 + 4100 * 2 + 1] = std::numeric_limits<double>::infinity();
  write_matrix(in, "f8", "(2, 3, 17000, 2)", a);
  const Outcome o = run({SVDCTL_PROGRAM, "svd", in, "--address", server.address()});
  EXPECT_EQ(o.exit_code, 2);
  EXPECT_THAT(o.err, HasSubstr("NON_FINITE"));
  EXPECT_THAT(o.err, HasSubstr(in + ": matrix [1, 2]: the element"));
  EXPECT_THAT(o.err, Not(HasSubstr("chunk.data")));
  EXPECT_THAT(o.err, HasSubstr("row 4100 and column 1"));
  write_matrix(in, "f8", "(17000, 2)", std::vector<double>(a.end() - 17000 * 2, a.end()));
  EXPECT_THAT(run({SVDCTL_PROGRAM, "values", in, "--address", server.address()}).err, Not(HasSubstr("matrix [")));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, ErrorsNameWhatTheCallerGave) {
  Server server;
  const std::string folder = make_folder(), a = folder + "/a.npy", g = folder + "/g.npy", wide = folder + "/wide.npy";
  const std::string j = folder + "/j.npy", large = folder + "/large.npy";
  std::vector<double> entries(9, 1.0);
  write_matrix(g, "f8", "(3, 3)", entries);
  entries[5] = std::nan("");
  write_matrix(a, "f8", "(3, 3)", entries);
  std::vector<double> many(33 * 33);
  many[33 + 2] = std::nan("");
  write_matrix(large, "f8", "(33, 33)", many);
  write_matrix(wide, "f8", "(2, 3)", std::vector<double>(6, 1.0));
  write_matrix(j, "f8", "(3,)", std::vector<double>{1, 1, -1});
  const auto error_of = [&](std::vector<std::string> words) {
    words.insert(words.begin(), SVDCTL_PROGRAM);
    words.insert(words.end(), {"--address", server.address()});
    const Outcome o = run(words);
    EXPECT_EQ(o.exit_code, 2);
    return o.err;
  };
  for (const char* command : {"eig", "eigvals"}) {
    EXPECT_THAT(error_of({command, large}), HasSubstr(": " + large + ": the element in row 1 and column 2"));
  }
  EXPECT_THAT(error_of({"hsvd", a, j}), HasSubstr(": " + a + ": the element"));
  EXPECT_THAT(error_of({"hsvd", g, j}), HasSubstr("(RANK_DEFICIENT): " + g + ": "));
  EXPECT_THAT(error_of({"hsvd", wide, j}),
              HasSubstr(wide + ": must have at least as many rows as columns, but is 2x3"));
  EXPECT_THAT(error_of({"hsvd", g, j, "--tolerance", "3"}), HasSubstr(": --tolerance: must be"));
  EXPECT_THAT(error_of({"svd", g, "--tolerance", "3"}), HasSubstr(": --tolerance: must be"));
  EXPECT_THAT(error_of({"svd", g, "--top-k", "7"}), HasSubstr(": --top-k is larger than"));
  EXPECT_THAT(error_of({"svd", g, "--strategy", "recursive", "--max-sweeps", "1001"}),
              HasSubstr(": --max-sweeps: must"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, WhatIsTooMuchForAMessageIsLarge) {
  Server server({"--max-message-bytes", "1MiB"});
  const std::string folder = make_folder(), in = folder + "/a.npy", u = folder + "/u.npy";
  const auto svd = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words = {SVDCTL_PROGRAM, "svd", in, "--u", u, "--address", server.address()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  write_matrix(in, "f8", "(2, 400, 100)", random_matrices<double>(2 * 400 * 100));
  const Outcome large = svd({"--full-matrices", "--verbose"});
  EXPECT_EQ(large.exit_code, 0) << large.err;
  EXPECT_THAT(large.err, HasSubstr("download "));
  EXPECT_THAT(read_matrix<double>(u).first, HasSubstr("'shape': (2, 400, 400)"));
  const Outcome small = svd({});
  EXPECT_EQ(small.exit_code, 0) << small.err;
  EXPECT_THAT(small.out, HasSubstr("2 matrices of 400x100"));
  const Outcome refused = svd({"--full-matrices", "--fix-phases"});  // which large ones do not have
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("a message has room for"));
  write_matrix(in, "f8", "(1400, 100)", random_matrices<double>(1400 * 100));
  EXPECT_THAT(run({SVDCTL_PROGRAM, "values", in, "--verbose", "--address", server.address()}).err,
              HasSubstr("download "));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, FullMatricesAreNotMadeForTheOtherBasis) {
  Server server({"--max-large-bytes", "64MiB"});  // U of 8000x20 in full is 488
  const std::string folder = make_folder(), in = folder + "/a.npy", out = folder + "/o.npy";
  const auto svd = [&](const std::string& basis) {
    return run({SVDCTL_PROGRAM, "svd", in, basis, out, "--full-matrices", "--address", server.address()});
  };
  for (const auto& [shape, square, longer] :
       {std::tuple("(8000, 20)", "--vh", "--u"), std::tuple("(20, 8000)", "--u", "--vh")}) {
    write_matrix(in, "f8", shape, random_matrices<double>(8000 * 20));
    const Outcome o = svd(square);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(read_matrix<double>(out).first, HasSubstr("'shape': (20, 20)"));
    EXPECT_THAT(svd(longer).err, HasSubstr("FACTOR_TOO_LARGE"));
  }
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, PlanNamesReplicasAndFlags) {
  Server server;
  const std::string to = "--address=" + server.address();
  const auto planned = run({SVDCTL_PROGRAM, "plan", to, "--rate", "100000", "--latency", "1s", "--count", "10"});
  EXPECT_EQ(planned.exit_code, 0) << planned.err;
  for (const char* word : {"\nreplicas ", "\neach serves ", " cores\n", " --max-inflight-bytes=", "\nhost:0 "}) {
    EXPECT_THAT(planned.out, HasSubstr(word));
  }
  const auto soon = run({SVDCTL_PROGRAM, "plan", to, "--rate", "1", "--latency", "1ns"});
  EXPECT_EQ(soon.exit_code, 1);
  EXPECT_THAT(soon.out, HasSubstr("NOT REACHED "));
}

TEST(Svdctl, InfoSaysThatADeviceComputesALargeMatrix) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy";
  const auto info = [&] { return run({SVDCTL_PROGRAM, "info", "--address", server.address()}).out; };
  EXPECT_THAT(info(), Not(HasSubstr("large matrix\n")));
  write_matrix(in, "f8", "(2500, 2500)", random_matrices<double>(2500 * 2500));
  Process svdctl({SVDCTL_PROGRAM, "svd", in, "--method", "jacobi", "--address", server.address()});
  const auto end = std::chrono::steady_clock::now() + seconds(180);
  std::string told;
  while ((told = info()).find(", computes a large matrix\n") == std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), end) << told;
  }
  svdctl.signal(SIGINT);
  EXPECT_EQ(svdctl.wait().exit_code, 128 + SIGINT);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, LeadingTripletsOfALargeFile) {
  Server server;
  const std::string folder = make_folder();
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  std::vector<double> a(600 * 520, 0.0);
  for (size_t j = 0; j < 520; ++j) a[j * 521] = std::pow(0.25, static_cast<double>(j));
  write_matrix(file("a"), "f8", "(600, 520)", a);
  const Outcome o = run({SVDCTL_PROGRAM, "svd", file("a"), "--u", file("u"), "--s", file("s"), "--vh", file("vh"),
                         "--top-k", "3", "--certificate", "--verbose", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr(" on host:0"));
  EXPECT_THAT(o.err, HasSubstr(" of a subspace\n"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate "));
  EXPECT_THAT(read_matrix<double>(file("u")).first, HasSubstr("'shape': (600, 3)"));
  EXPECT_THAT(read_matrix<double>(file("vh")).first, HasSubstr("'shape': (3, 520)"));
  const auto values = read_matrix<double>(file("s")).second;
  ASSERT_EQ(values.size(), 3u);
  EXPECT_NEAR(values[2], 0.0625, 1e-14);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, OptionsOfTheOtherKindOfMatrixAreRefused) {
  Server server;
  const std::string folder = make_folder(), large = folder + "/a.npy",
                    small = std::string(TEST_DATA) + "/cdl_c_4x4.npy";
  write_matrix(large, "f8", "(520, 513)", random_matrices<double>(520 * 513));
  const auto code = [&](const std::string& in, const std::vector<std::string>& more) {
    std::vector<std::string> words = {SVDCTL_PROGRAM, "svd", in, "--address", server.address()};
    words.insert(words.end(), more.begin(), more.end());
    return run(words).exit_code;
  };
  EXPECT_EQ(code(large, {"--fix-phases"}), 2);
  EXPECT_EQ(code(small, {"--strategy", "recursive"}), 2);
  const std::string single = folder + "/single.npy";
  write_matrix(single, "f8", "(5, 3)", random_matrices<double>(15));
  EXPECT_EQ(code(single, {"--strategy", "recursive", "--variant", "full-block", "--verbose"}), 0);
  EXPECT_EQ(code(single, {"--strategy", "recursive", "--top-k", "1"}), 0);
  EXPECT_EQ(code(single, {"--verbose"}), 0);
  EXPECT_EQ(code(small, {"--variant", "full-block"}), 2);
  EXPECT_EQ(code(small, {"--tolerance", "1e-3", "--max-sweeps", "50"}), 0);
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, ComputesTheValuesOfAFile) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy", out = folder + "/s.npy";
  const Outcome o = run({SVDCTL_PROGRAM, "values", in, "-o", out, "--print", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("matrices of 4x4 c64"));
  EXPECT_THAT(o.err, HasSubstr(" by bidiagonal on host:0, "));
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

TEST(Svdctl, FilesOf16BitNumbersGoAsTheyAre) {
  Server server;
  const std::string folder = make_folder();
  const std::vector<uint16_t> halves = {0x4200, 0, 0, 0x4400};  // diag(3, 4)
  const std::vector<int16_t> integers = {3, 0, 0, -4};
  write_matrix(folder + "/half.npy", "f2", "(1, 2, 2)", halves);
  write_matrix(folder + "/int.npy", "i2", "(1, 2, 2)", integers);
  write_matrix(folder + "/one.npy", "f2", "(2, 2)", halves);
  const auto values = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {SVDCTL_PROGRAM, "values"});
    words.insert(words.end(), {"--print", "--address", server.address()});
    return run(words);
  };
  const Outcome half = values({folder + "/half.npy"});
  EXPECT_EQ(half.out, "4 3\n") << half.err;
  EXPECT_THAT(half.err, HasSubstr("2x2 f16"));
  const Outcome scaled = values({folder + "/int.npy", "--exponent", "-1"});
  EXPECT_EQ(scaled.out, "2 1.5\n") << scaled.err;
  EXPECT_THAT(scaled.err, HasSubstr("2x2 i16"));
  const Outcome as_doubles = values({folder + "/int.npy"});
  EXPECT_EQ(as_doubles.out, "4 3\n") << as_doubles.err;
  EXPECT_THAT(as_doubles.err, HasSubstr("2x2 f64"));
  EXPECT_THAT(values({folder + "/int.npy", "--exponent", "113"}).err,
              HasSubstr("--exponent: \"113\" is not a number from"));
  EXPECT_THAT(values({folder + "/half.npy", "--exponent", "1"}).err, HasSubstr("leave it out"));
  const Outcome large = run({SVDCTL_PROGRAM, "svd", folder + "/one.npy", "-o", folder + "/x", "--strategy", "recursive",
                             "--address", server.address()});
  EXPECT_EQ(large.exit_code, 0) << large.err;
  EXPECT_THAT(read_matrix<float>(folder + "/x.s.npy").second, ElementsAre(4, 3));
  std::filesystem::remove_all(folder);
}

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Svdctl, SeveralFilesGoInOneRequest) {
  Server server;
  const std::string folder = make_folder(), channels = std::string(TEST_DATA) + "/cdl_c_4x4.npy";
  const std::string random = folder + "/random.npy", out = folder + "/out";
  std::filesystem::create_directory(out);
  write_matrix(random, "f8", "(5, 3)", random_matrices<double>(15));
  for (const std::string& in : {channels, random}) {
    EXPECT_EQ(run({SVDCTL_PROGRAM, "values", in, "-o", folder + "/alone.npy", "--address", server.address()}).exit_code,
              0);
    const std::string name = std::filesystem::path(in).filename();
    std::filesystem::rename(folder + "/alone.npy", folder + "/alone_" + name);
  }
  const Outcome o =
      run({SVDCTL_PROGRAM, "values", channels, random, "-o", out, "--print", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("# " + random));
  EXPECT_THAT(o.err, HasSubstr("matrices of 4x4 c64"));
  EXPECT_THAT(o.err, HasSubstr("of 5x3 f64"));
  for (const std::string name : {"cdl_c_4x4.npy", "random.npy"}) {
    EXPECT_EQ(content_of(out + "/" + name), content_of(folder + "/alone_" + name)) << name;
  }
  const Outcome file = run({SVDCTL_PROGRAM, "values", channels, random, "-o", random, "--address", server.address()});
  EXPECT_EQ(file.exit_code, 2);
  EXPECT_THAT(file.err, HasSubstr("must be a folder"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, ComputesTheValuesOfALargeFile) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy";
  write_matrix(in, "f8", "(2, 17000, 3)", random_matrices<double>(2 * 17000 * 3));
  const std::string values = folder + "/values.npy", svd = folder + "/svd.npy";
  const Outcome o = run({SVDCTL_PROGRAM, "values", in, "-o", values, "--print", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 2);
  EXPECT_EQ(run({SVDCTL_PROGRAM, "svd", in, "--s", svd, "--address", server.address()}).exit_code, 0);
  EXPECT_EQ(read_matrix<double>(values), read_matrix<double>(svd));
  EXPECT_THAT(read_matrix<double>(values).first, HasSubstr("'shape': (2, 3)"));
  const Outcome capacity = run({SVDCTL_PROGRAM, "capacity", in, "--address", server.address()});
  EXPECT_EQ(capacity.exit_code, 2);
  EXPECT_THAT(capacity.err, HasSubstr("svdctl values"));
  write_matrix(in, "f8", "(0, 4, 4)", std::vector<double>());
  EXPECT_EQ(run({SVDCTL_PROGRAM, "capacity", in, "--address", server.address()}).out, "10 dB: no channels\n");
  std::filesystem::remove_all(folder);
}

// Matrices without elements have no values, and nothing is asked: there is no server here.
TEST(Svdctl, MatricesWithoutElementsHaveEmptyResults) {
  const std::string folder = make_folder(), in = folder + "/a.npy";
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  const struct {
    const char *a, *u, *s, *vh;
  } shapes[] = {{"(3, 0, 4)", "(3, 0, 0)", "(3, 0)", "(3, 0, 4)"},  // as numpy.linalg.svd(a, full_matrices=False)
                {"(5, 0)", "(5, 0)", "(0,)", "(0, 0)"},
                {"(0, 0)", "(0, 0)", "(0,)", "(0, 0)"},
                {"(0, 4, 3)", "(0, 4, 3)", "(0, 3)", "(0, 3, 3)"}};
  for (const auto& shape : shapes) {
    write_matrix(in, "f8", shape.a, std::vector<double>());
    const Outcome svd = run({SVDCTL_PROGRAM, "svd", in, "--u", file("u"), "--s", file("s"), "--vh", file("vh"),
                             "--address", "127.0.0.1:1"});
    EXPECT_EQ(svd.exit_code, 0) << shape.a << svd.err;
    const Outcome values = run({SVDCTL_PROGRAM, "values", in, "-o", file("values"), "--address", "127.0.0.1:1"});
    EXPECT_EQ(values.exit_code, 0) << shape.a << values.err;
    EXPECT_EQ(svd.out, values.out);
    for (const auto& [name, expected] :
         {std::pair{"u", shape.u}, {"s", shape.s}, {"vh", shape.vh}, {"values", shape.s}}) {
      const auto [head, numbers] = read_matrix<double>(file(name));
      EXPECT_THAT(head, HasSubstr(std::string("'shape': ") + expected)) << name << " of " << shape.a;
      EXPECT_TRUE(numbers.empty());
    }
  }
  write_matrix(in, "f8", "(3, 0, 4)", std::vector<double>());
  const Outcome full = run({SVDCTL_PROGRAM, "svd", in, "--full-matrices", "--address", "127.0.0.1:1"});
  EXPECT_EQ(full.exit_code, 2);
  EXPECT_THAT(full.err, HasSubstr("no elements"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, AppendsToWhatTheShellOpened) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy";
  const std::string file = folder + "/s.npy", log = folder + "/log";
  EXPECT_EQ(run({SVDCTL_PROGRAM, "values", in, "-o", file, "--address", server.address()}).exit_code, 0);
  std::ofstream(log) << "what was there\n";
  EXPECT_EQ(run({"/bin/sh", "-c", "\"$0\" values \"$1\" -o /dev/stdout --address \"$2\" >> \"$3\"", SVDCTL_PROGRAM, in,
                 server.address(), log})
                .exit_code,
            0);
  const auto contents = [](const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  EXPECT_TRUE(contents(log) == "what was there\n" + contents(file));  // not printed: it is long
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, IsAFilter) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy", file = folder + "/s.npy";
  EXPECT_EQ(run({SVDCTL_PROGRAM, "values", in, "-o", file, "--address", server.address()}).exit_code, 0);
  const Outcome o = run({"/bin/sh", "-c", "cat \"$1\" | \"$0\" values - -o - --address \"$2\" | cmp - \"$3\"",
                         SVDCTL_PROGRAM, in, server.address(), file});
  EXPECT_EQ(o.exit_code, 0) << o.out << o.err;
  EXPECT_THAT(o.err, HasSubstr("standard input: "));
  std::filesystem::remove_all(folder);
}

// The report on the first large matrix finds no reader. The second is still decomposed, and no .part file stays.
TEST(Svdctl, AReaderOfItsReportsMayGo) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/a.npy", u = folder + "/u.npy";
  write_matrix(in, "f8", "(2, 17000, 2)", random_matrices<double>(2 * 17000 * 2));
  const Outcome o = run({"/bin/sh", "-c",
                         "{ sleep 0.2; \"$0\" svd \"$1\" --u \"$2\" --address \"$3\"; echo $? > \"$2.code\"; } "
                         "2>&1 | true",
                         SVDCTL_PROGRAM, in, u, server.address()});
  EXPECT_EQ(o.exit_code, 0);
  int code = -1;
  std::ifstream(u + ".code") >> code;
  EXPECT_EQ(code, 0);
  EXPECT_EQ(read_matrix<double>(u).second.size(), 2u * 17000 * 2);
  const std::filesystem::directory_iterator entries(folder);
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 3);  // with the code
  std::filesystem::remove_all(folder);
}

// Before anything is asked: there is no server here.
TEST(Svdctl, OutputsAreLookedAtFirst) {
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy", u = folder + "/u.npy";
  const auto svd = [&](const std::string& vh) {
    return run({SVDCTL_PROGRAM, "svd", in, "--u", u, "--vh", vh, "--address", "127.0.0.1:1"});
  };
  EXPECT_EQ(svd(folder + "/./u.npy").exit_code, 2);
  const Outcome directory = svd(folder);
  EXPECT_EQ(directory.exit_code, 1);
  EXPECT_EQ(directory.err, "svdctl svd: cannot write " + folder + ": Is a directory\n");
  EXPECT_FALSE(std::filesystem::exists(u));
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

TEST(Svdctl, DecomposesAFile) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy";
  const auto file = [&](const char* name) { return folder + "/" + name + ".npy"; };
  const Outcome o = run({SVDCTL_PROGRAM, "svd", in, "--u", file("u"), "--s", file("s"), "--vh", file("vh"),
                         "--certificate", "--top-k", "2", "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("jacobi on host:0"));
  EXPECT_THAT(o.out, HasSubstr("\ncertificate "));
  const auto head = [&](const char* name) {
    std::ifstream stream(file(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {}).substr(0, 128);
  };
  EXPECT_THAT(head("u"), HasSubstr("'descr': '<c8', 'fortran_order': False, 'shape': (8448, 4, 2)"));
  EXPECT_THAT(head("s"), HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (8448, 2)"));
  EXPECT_THAT(head("vh"), HasSubstr("'descr': '<c8', 'fortran_order': False, 'shape': (8448, 2, 4)"));
  std::filesystem::remove_all(folder);
}

TEST(Svdctl, TellsTheCapacityOfChannels) {
  Server server;
  const std::string folder = make_folder(), in = std::string(TEST_DATA) + "/cdl_c_4x4.npy", out = folder + "/c.npy";
  const Outcome o =
      run({SVDCTL_PROGRAM, "capacity", in, "--snr-db", "-10,10", "--out", out, "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  EXPECT_THAT(o.out, ::testing::StartsWith("-10 dB: "));
  EXPECT_THAT(o.out, HasSubstr("\n10 dB: 9.79686 bit/s/Hz\n"));
  std::ifstream stream(out, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(bytes.substr(0, 128), HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (8448, 2)"));
  const Outcome summed =
      run({SVDCTL_PROGRAM, "capacity", in, "--group-size=264", "--water-filling", "--address", server.address()});
  EXPECT_EQ(summed.exit_code, 0) << summed.err;
  std::filesystem::remove_all(folder);
}

// The capacity of a 2 x 3 matrix by columns, diagonal but for its shape: each component of the gradient is known.
TEST(Svdctl, WritesTheGradientOfTheCapacity) {
  Server server;
  const std::string folder = make_folder(), in = folder + "/h.npy", out = folder + "/g.npy";
  std::string head = "{'descr': '<f8', 'fortran_order': True, 'shape': (2, 3), }";
  head.append(117 - head.size(), ' ').push_back('\n');
  const double h[6] = {3, 0, 0, 0.5, 0, 0};  // rows (3, 0, 0) and (0, 0.5, 0)
  std::ofstream file(in, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8) << char(head.size()) << '\0' << head;
  file.write(reinterpret_cast<const char*>(h), sizeof(h));
  file.close();
  const Outcome o =
      run({SVDCTL_PROGRAM, "capacity", in, "--snr-db", "0,10", "--gradient", out, "--address", server.address()});
  EXPECT_EQ(o.exit_code, 0) << o.err;
  std::ifstream stream(out, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(stream), {});
  EXPECT_THAT(bytes.substr(0, 128), HasSubstr("'descr': '<f8', 'fortran_order': False, 'shape': (2, 2, 3)"));
  ASSERT_EQ(bytes.size(), 128 + 12 * sizeof(double));
  double g[2][2][3];
  std::memcpy(g, bytes.data() + 128, sizeof(g));
  for (int x = 0; x < 2; ++x) {
    const double each = (x == 0 ? 1 : 10) / 3.0;
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) {
        const double s = i == 0 ? 3 : 0.5;
        EXPECT_NEAR(g[x][i][j], i == j ? 2 / std::log(2) * each * s / (1 + each * s * s) : 0, 1e-13) << x << i << j;
      }
    }
  }
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
    EXPECT_THAT(info.out, HasSubstr("\nmax general order      32 "));
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
                                                       {"--empty", "--concurrency", "2"},
                                                       {"--rate", "200", "--connections", "2"},
                                                       {"--request-bytes", "100000", "--method", "jacobi"},
                                                       {"--problem", "eig", "--dtype", "f64", "--rate", "200"}};
  for (const auto& more : loads) {
    const Outcome o = bench(more);
    EXPECT_EQ(o.exit_code, 0) << o.err;
    EXPECT_THAT(o.out, ::testing::StartsWith("machine,address,"));
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), '\n'), 2);
    EXPECT_EQ(std::count(o.out.begin(), o.out.end(), ',') % 2, 0);  // as many columns in both lines
    EXPECT_THAT(o.err, HasSubstr(" requests/s, "));
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
                                                       {"svd", "a.npy", "--full-matrices", "--top-k", "1"},
                                                       {"svd"},
                                                       {"svd", "a.npy", "--strategy", "zigzag"},
                                                       {"svd", "a.npy", "--variant", "half-block"},
                                                       {"svd", "a.npy", "--method", "qr"},
                                                       {"hsvd", "g.npy"},
                                                       {"hsvd", "g.npy", "j.npy", "--max-sweeps", "-1"},
                                                       {"eigh"},
                                                       {"eigh", "g.npy", "--upper", "--signature", "j.npy"},
                                                       {"eig"},
                                                       {"eigvals", "a.npy", "--v", "v.npy"},
                                                       {"capacity", "a.npy", "--snr-db", "0,high"},
                                                       {"capacity", "a.npy", "--group-size", "0"},
                                                       {"bench", "--shape", "4"},
                                                       {"bench", "--dtype", "f24"},
                                                       {"bench", "--rate", "10", "--stream"},
                                                       {"bench", "--empty", "--stream"},
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
  for (const char* command :
       {"values", "svd", "hsvd", "eigh", "eig", "eigvals", "capacity", "info", "health", "bench", "latency"}) {
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
