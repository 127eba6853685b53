// The commonest mistakes in C++, and what the client says of them, to the letter: each message names the parameter of
// the verb. The server is a real one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <complex>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "client/cpp/client.h"
#include "tests/client/process.h"

namespace svdserve::testing {
namespace {

using namespace client;  // NOLINT: as users write
using namespace std::chrono_literals;
using Complex = std::complex<double>;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

std::vector<double> numbers(size_t count) {
  std::vector<double> v(count);
  for (size_t i = 0; i < count; ++i) v[i] = static_cast<double>(i * i % 13);
  return v;
}

const std::vector<double> kData = numbers(48);
const std::vector<double> kBig = numbers(600 * 600);

struct Mistake {
  const char* name;
  std::function<Status(Client&)> make;
  std::string said;  // behind the code and the reason of a field at fault
};

const std::vector<Mistake>& of_batches() {
  static const std::vector<Mistake> all = {
      {"another shape",
       [](Client& c) {
         return c.svd(kData, {5, 4}).status();
       },
       "data: holds 48 elements, but matrices of 5 x 4 need a multiple of 20"},
      {"no rows",
       [](Client& c) {
         return c.svd(kData, {0, 4}).status();
       },
       "rows: must be at least 1, is 0"},
      {"columns below 0",
       [](Client& c) {
         return c.svd(kData, {4, -4}).status();
       },
       "cols: must be at least 1, is -4"},
      {"not square",
       [](Client& c) {
         return c.eigh(kData, {4, 3}).status();
       },
       "cols: must equal rows = 4 for eigenproblems, but is 3"},
      {"too large",
       [](Client& c) {
         return c.svd(kBig, {600, 600}).status();
       },
       "rows: min(rows, cols) of a batch must be at most 512, but is 600; svd_large(), eigh_large() and eig_large() "
       "take one such matrix"},
      {"more triplets than there are",
       [](Client& c) {
         return c.svd(kData, {4, 3}, {.top_k = 9}).status();
       },
       "top_k: must be between 0 and min(rows, cols) = 3 (0: all), but is 9"},
      {"part of full vectors",
       [](Client& c) {
         return c.svd(kData, {4, 3}, {.vectors = Vectors::kFull, .top_k = 1}).status();
       },
       "top_k: must be 0 with full vectors, which have all columns; ask for thin ones"},
      {"a method without vectors",
       [](Client& c) {
         return c.svd(kData, {4, 3}, {.method = Method::kBisection}).status();
       },
       "method: BIDIAGONAL and BISECTION by name give values alone; AUTO and JACOBI give vectors"},
      {"a tolerance below 0",
       [](Client& c) {
         return c.svd(kData, {4, 3}, {.tolerance = -1}).status();
       },
       "tolerance: must be between 0 and 1 (0: the default)"},
      {"sweeps of a method without",
       [](Client& c) {
         return c.singular_values(kData, {4, 3}, {.max_sweeps = 3}).status();
       },
       "max_sweeps: is for JACOBI alone, which counts sweeps"},
      {"full eigenvectors",
       [](Client& c) {
         return c.eigh(kData, {4, 4}, {.vectors = Vectors::kFull}).status();
       },
       "vectors: must be kNone or kThin for Hermitian matrices, whose eigenvectors are complete"},
      {"a start of another size",
       [](Client& c) {
         return c.eig(kData, {4, 4}, {.start = std::vector<Complex>(3)}).status();
       },
       "start: holds 3 elements, but must hold 48, as the matrices, or none"},
      {"a start of another precision",
       [](Client& c) {
         return c.eig(kData, {4, 4}, {.start = std::vector<std::complex<float>>(48)}).status();
       },
       "start: must be std::complex<double>, which has the precision of the matrices, but is std::complex<float>"},
      {"no SNR",
       [](Client& c) {
         return c.capacity(kData, {4, 3}, {}).status();
       },
       "snr_db: must have at least one SNR for capacity, water_filling and stream_snr"},
      {"groups that do not divide",
       [](Client& c) {
         return c.capacity(kData, {4, 3}, {10}, {.group_size = 3}).status();
       },
       "count: must be a multiple of group_size, which is 3, is 4"},
      {"more precoders than antennas",
       [](Client& c) {
         return c.precoders(kData, {4, 3}, 9).status();
       },
       "precoder_columns: must be between 0 and min(rows, cols) = 3, but is 9"},
      {"no precoder",
       [](Client& c) {
         return c.precoders(kData, {4, 3}, 0).status();
       },
       "precoder_columns: must be at least 1, but is 0"},
      {"nothing asked for",
       [](Client& c) {
         return c.mimo(kData, {4, 3}, {}).status();
       },
       "mimo: no result is requested; ask for values, vectors or MIMO numbers"},
      {"a gradient of nothing",
       [](Client& c) {
         return c.mimo(kData, {4, 3}, {.condition_number = true, .gradient = true}).status();
       },
       "gradient: is of capacity, water_filling and effective_rank; ask for one of them"},
      {"one of several",
       [](Client& c) {
         return c.svd_groups(std::vector<Stack<double>>{{kData, {4, 4}}, {kData, {5, 3}}}).status();
       },
       "groups[1].data: holds 48 elements, but matrices of 5 x 3 need a multiple of 15"},
      {"a start for groups",
       [](Client& c) {
         return c.eig_groups(std::vector<Stack<double>>{{kData, {4, 4}}}, {.start = std::vector<Complex>(48)}).status();
       },
       "start: must be absent for eig_groups(); eig() and decompose_groups() take them"}};
  return all;
}

const std::vector<Mistake>& of_large_matrices() {
  static const std::vector<Mistake> all = {
      {"several",
       [](Client& c) {
         return c.svd_large(kData, {4, 4}).status();
       },
       "data: holds 48 elements, but rows * cols * count is 16"},
      {"a method of batches",
       [](Client& c) {
         return c.svd_large(kData, {12, 4}, {.method = Method::kBisection}).status();
       },
       "method: must be AUTO or JACOBI for a large matrix, but is bisection"},
      {"a cosine above 1",
       [](Client& c) {
         return c.svd_large(kData, {12, 4}, {.tolerance = 2}).status();
       },
       "tolerance: must be a cosine between 0 and 1, or 0 for the method's own"},
      {"not square",
       [](Client& c) {
         return c.eigh_large(kData, {12, 4}).status();
       },
       "cols: must equal rows = 12 for an eigenproblem, whose matrix is square, but is 4"},
      {"too few signs",
       [](Client& c) {
         return c.hsvd(kData, {12, 4}, {1, -1}).status();
       },
       "signature: must have one entry for each of 4 columns, but has 2"},
      {"other numbers than 1 and -1",
       [](Client& c) {
         return c.hsvd(kData, {12, 4}, {1, 1, 2, -1}).status();
       },
       "signature: entry 2 is 2, but must be 1 or -1"},
      {"a wide one",
       [](Client& c) {
         return c.hsvd(kData, {4, 12}, std::vector<int8_t>(12, 1)).status();
       },
       "signature: needs at least as many rows as columns: the matrix must have full column rank"}};
  return all;
}

TEST(VerbsMistakes, NameTheParameter) {
  Server server;
  Client client({.address = server.address()});
  for (const auto* all : {&of_batches(), &of_large_matrices()}) {
    for (const Mistake& mistake : *all) {
      EXPECT_EQ(mistake.make(client).to_string(), "INVALID_ARGUMENT (INVALID_FIELD) " + mistake.said) << mistake.name;
    }
  }
  std::vector<double> nan = kData;
  nan[5] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(client.svd_large(nan, {12, 4}).status().to_string(),
            "INVALID_ARGUMENT (NON_FINITE) data: the element in row 1 and column 1 is infinite or NaN");
}

TEST(VerbsMistakes, FuturesAndValueSayTheSame) {
  Server server;
  Client client({.address = server.address()});
  const std::string said =
      "INVALID_ARGUMENT (INVALID_FIELD) top_k: must be between 0 and min(rows, cols) = 3 (0: all), but is 9";
  EXPECT_EQ(client.async().svd(kData, {4, 3}, {.top_k = 9}).get().status().to_string(), said);
  EXPECT_EQ(client.async().svd(kData, {5, 4}).get().status().parameter, "data");
  try {
    (void)client.svd(kData, {4, 3}, {.top_k = 9}).value();
    FAIL() << "value() did not throw";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), said);
    EXPECT_EQ(error.status().field, "options.top_k");  // of the contract
    EXPECT_EQ(error.status().code, Code::kInvalidArgument);
  }
}

TEST(VerbsMistakes, WithoutAServer) {
  const auto said = [](const ClientOptions& to) {
    ClientOptions options = to;
    options.retry.max_attempts = 1;
    Client client(options);
    const std::string one = client.svd(kData, {4, 4}, {.timeout = 10s}).status().to_string();
    EXPECT_EQ(client.async().svd_large(kData, {12, 4}, {.timeout = 10s}).get().status().to_string(), one);
    return one;
  };
  EXPECT_EQ(said({.address = "127.0.0.1:1"}),
            "UNAVAILABLE: no server at 127.0.0.1:1 (Connection refused). Start one with svdserve, or name its address "
            "in ClientOptions::address");
  EXPECT_EQ(said({.address = "unix:/tmp/no such socket"}),
            "UNAVAILABLE: no server at unix:/tmp/no such socket (No such file or directory). Start one with svdserve, "
            "or name its address in ClientOptions::address");
  EXPECT_EQ(said({.address = "127.0.0.1"}),
            "UNAVAILABLE: ClientOptions::address must be host:port, such as 127.0.0.1:50051 or [::1]:50051, but is "
            "\"127.0.0.1\"");
  Server server;
  EXPECT_THAT(said({.address = server.address(), .tls = {.enabled = true}}),
              AllOf(StartsWith("UNAVAILABLE: the server at " + server.address() + " has no TLS ("),
                    EndsWith("). Leave ClientOptions::tls out, or give the server its TLS files")));
}

TEST(VerbsMistakes, OfTimeAndOrder) {
  Server server;
  Client client({.address = server.address()});
  EXPECT_EQ(client.svd(kData, {4, 4}, {.timeout = 0s}).status().to_string(),
            "DEADLINE_EXCEEDED (DEADLINE_EXCEEDED): no reply within the timeout");
  EXPECT_EQ(client.async().svd_large(kBig, {600, 600}, {.timeout = 1ms}).get().status().to_string(),
            "DEADLINE_EXCEEDED (DEADLINE_EXCEEDED): no reply within the timeout");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(client.svd(kData, {4, 4}, {.stop = stop.get_token()}).status().to_string(),
            "CANCELLED (CANCELLED): cancelled by the caller");
  Verbs<true> left = [&] { return Client({.address = server.address()}).async(); }();
  EXPECT_EQ(left.svd(kData, {4, 4}).get().status().code, Code::kCancelled);
  EXPECT_EQ(left.svd_large(kData, {12, 4}).get().status().code, Code::kCancelled);
  EXPECT_EQ(TlsOptions::from_files("", "a.pem").status().to_string(),
            "INVALID_ARGUMENT (INVALID_FIELD) tls: give a client certificate together with its private key; only the "
            "certificate is given");
}

}  // namespace
}  // namespace svdserve::testing
