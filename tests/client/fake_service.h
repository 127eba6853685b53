// An in-process svdserve.v1 service whose answers the test decides.
#ifndef SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_
#define SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace svdserve::client::testing {

// A request as the service received it.
struct Seen {
  int number = 0;  // 0, 1, 2, ... over all requests, in order of arrival
  int64_t rows = 0, cols = 0, count = 0;
  int data_type = 0, memory_order = 0, method = 0;
  double tolerance = 0;
  int max_sweeps = 0;
  std::string data = {};
  std::optional<std::chrono::nanoseconds> timeout = {};  // stream: of the request
  std::function<bool()> is_cancelled = {};
};

// What it answers. The default: the fake's values, OK.
struct Answer {
  int code = 0;
  std::string message = {}, reason = {}, field = {};
  std::optional<std::chrono::milliseconds> retry_delay = {};
  std::vector<std::pair<int64_t, int>> exceptions = {};  // index, MatrixStatus of the wire
  bool wrong_size = false;                               // OK, but with one value too few
  bool break_stream = false;                             // stream: end the call with `code`
  bool hold = false;                                     // stream: answer only after the next request's answer
};

// Value j of a matrix of f64 is (j + 1) times its first element, of f32 likewise: easy to check, and different for
// every matrix.
class FakeService {
 public:
  using Handler = std::function<Answer(const Seen&)>;
  struct Limits {
    int64_t max_message_bytes = 64 << 20;
    int64_t max_matrices = 1 << 24;
    bool has_info = true;  // false: GetServerInfo is UNIMPLEMENTED
  };

  explicit FakeService(Handler handler, Limits limits);
  explicit FakeService(Handler handler) : FakeService(std::move(handler), Limits()) {}
  FakeService() : FakeService([](const Seen&) { return Answer(); }) {}
  ~FakeService();

  std::string address() const;
  int requests() const;       // Decompose and stream requests so far
  int info_requests() const;  // GetServerInfo so far
  int most_at_once() const;   // Decompose calls in the handler at the same time
  void set_limits(Limits limits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Waits, for 10 s at most, until it holds.
bool eventually(const std::function<bool()>& holds);

}  // namespace svdserve::client::testing
#endif  // SVDSERVE_TESTS_CLIENT_FAKE_SERVICE_H_
