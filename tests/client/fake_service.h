// An in-process svdserve.v1 service whose answers the test decides.
#ifndef SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_
#define SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/client.h"

namespace svdserve::v1 {
class DecomposeLargeResponse;
class DecomposeResponse;
}  // namespace svdserve::v1

namespace svdserve::client::testing {

// A request as the service received it.
struct Seen {
  int number = 0;  // 0, 1, 2, ... over all requests, in order of arrival
  int64_t rows = 0, cols = 0, count = 0;
  int data_type = 0, memory_order = 0, method = 0, vectors = 0;
  double tolerance = 0;
  int max_sweeps = 0;
  std::string data = {};
  std::string starting_vectors = {};
  std::string eigen_options = {};  // serialized EigendecomposeOptions; empty: the request is about singular values
  std::optional<std::chrono::nanoseconds> timeout = {};  // stream: of the request
  std::function<bool()> is_cancelled = {};
  size_t request_bytes = 0;    // of the serialized message
  std::string announced = {};  // that size as the metadata tell it; empty: they do not
};

// The fake's answer to a request. The default: the fake's values, OK.
struct Answer {
  int code = 0;
  std::string message = {}, reason = {}, field = {};
  std::optional<std::chrono::milliseconds> retry_delay = {};
  std::vector<std::pair<int64_t, int>> exceptions = {};     // index, MatrixStatus of the wire
  std::function<void(v1::DecomposeResponse*)> tamper = {};  // OK, but with what this makes of the answer
  std::optional<uint64_t> id = {};                          // stream: answers this request instead
  bool break_stream = false;                                // stream: end the call with `code`
  bool hold = false;                                        // stream: answer only after the next request's answer
  std::string request_id = {};                              // of RequestInfo; empty: none
};

// The fake's behaviour for large matrices, and what it saw of them. Results are FakeService::large_byte()s.
struct Large {
  int64_t chunk_bytes = 4096;                            // it takes, and sends
  std::vector<Answer> refusals = {};                     // of Open, one a call
  std::function<bool(Answer*)> fails_after_upload = {};  // ends the call with the answer
  bool wrong_crc = false, wrong_offset = false, unknown_factor = false, skips_a_chunk = false, no_summary = false;
  bool silent_after_open = false, silent_after_upload = false, silent_after_results = false;  // until the client leaves
  bool skips_the_upload = false;                                                              // results come without it
  int status = 0;                                                                             // of the summary
  std::function<int(v1::DecomposeLargeResponse*)> tamper = {};  // changes a message; how often it is sent
  // Seen. Guarded by nothing: to be read when the calls are over.
  std::vector<std::string> opens = {};    // serialized LargeOpen
  std::vector<std::string> uploads = {};  // whole operands whose chunks had the right offsets and checksums
  int bad_chunks = 0, chunks = 0;
  std::atomic<int> waiting = 0, left = 0;  // calls that were silent, and whose client left
};

// Value j of a matrix of f64 is (j + 1) times its first element, of f32 likewise: easy to check, and different for
// every matrix. To an eigenproblem these are the eigenvalues, and the eigenvectors are zeros. The eigenvalues of a
// general one have them as real parts, and their negatives as imaginary parts. The condition numbers of the eigenvalues
// are their real parts.
class FakeService {
 public:
  using Handler = std::function<Answer(const Seen&)>;
  struct Limits {
    int64_t max_message_bytes = 64 << 20;
    int64_t max_matrices = 1 << 24;
    bool has_info = true;  // false: GetServerInfo is UNIMPLEMENTED
    int64_t max_large_bytes = 0, max_values = 128, max_dimension = 16384, max_general_order = 0,
            max_hermitian_order = 0;
    std::string version = "1.2.3";
    std::string device = {};  // what it says of a device, in every text; empty: it has none
  };

  explicit FakeService(Handler handler, Limits limits);
  explicit FakeService(Handler handler) : FakeService(std::move(handler), Limits()) {}
  FakeService() : FakeService([](const Seen&) { return Answer(); }) {}
  ~FakeService();

  std::string address() const;
  int requests() const;       // of batches so far, unary and of streams
  int info_requests() const;  // GetServerInfo so far
  int most_at_once() const;   // unary calls in the handler at the same time
  void set_limits(Limits limits);
  Large& large();
  // Byte i of factor f, 1 to 3, of any large factor.
  static std::byte large_byte(int f, size_t i) {
    return static_cast<std::byte>(i * 31 + i / 255 + static_cast<size_t>(f));
  }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A service that ends every Decompose without reading its request. It has the fake's limits.
class EarlyService {
 public:
  // number: 0, 1, 2, ... in order of arrival; announced: as Seen has it.
  using Handler = std::function<Answer(int number, const std::string& announced)>;
  explicit EarlyService(Handler handler);
  ~EarlyService();
  std::string address() const;
  int requests() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Options with fast retries; and no test waits for ever.
template <class Service>
ClientOptions options_for(const Service& service) {
  using std::chrono::milliseconds;
  ClientOptions o;
  o.address = service.address();
  o.retry = {.max_attempts = 4, .initial_backoff = milliseconds(1), .max_backoff = milliseconds(5)};
  return o;
}
inline const CallOptions kCall{.timeout = std::chrono::seconds(60)};

// 1, 2 .. n
std::vector<double> counting(size_t n);

// Waits, for three minutes at most, until it holds.
bool eventually(const std::function<bool()>& holds);

}  // namespace svdserve::client::testing
#endif  // SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_
