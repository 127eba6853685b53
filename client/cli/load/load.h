// The load generator behind svdctl bench.
#ifndef SVDSERVE_CLIENT_CLI_LOAD_LOAD_H_
#define SVDSERVE_CLIENT_CLI_LOAD_LOAD_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "client/cli/load/histogram.h"
#include "client/cpp/client.h"

namespace svdserve::cli {

// One kind of request and how often it is sent, relative to the others.
struct Workload {
  client::Batch batch;
  double weight = 1;
  int64_t request_bytes = 0;  // payload
  int64_t reply_bytes = 0;
};

// Random normal matrices of a shape and type, whose values and vectors `compute` asks for.
Workload make_workload(int64_t rows, int64_t cols, int64_t count, client::DataType type, double weight, uint64_t seed,
                       const client::ComputeOptions& compute = {});

// Latencies, counts and errors of a measurement.
struct LoadTally {
  Histogram latency;  // of the requests that succeeded
  int64_t ok = 0;
  int64_t refused = 0;  // RESOURCE_EXHAUSTED, or draining
  int64_t expired = 0;  // DEADLINE_EXCEEDED
  int64_t failed = 0;   // anything else
  int64_t dropped = 0;  // open loop: not sent, because too many were outstanding
  int64_t matrices = 0;
  int64_t exceptions = 0;  // of these, with results that are not right
  int64_t request_bytes = 0;
  int64_t reply_bytes = 0;
  std::map<std::string, int64_t> errors = {};        // by code and reason
  std::map<std::string, std::string> messages = {};  // one of each of these

  void add(const LoadTally& other);
};

struct LoadOptions {
  int64_t concurrency = 1;          // closed loop: callers, or streams
  std::optional<double> rate = {};  // open loop: requests a second, Poisson arrivals
  int64_t max_outstanding = 10000;  // open loop
  bool empty = false;               // closed loop: empty unary calls, of no matrices
  bool stream = false;              // streaming calls instead of unary ones
  int64_t window = 4;               // stream: unanswered requests of each
  client::ComputeOptions compute = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  uint64_t seed = 1;
};

// Runs load from start() to stop(), and counts what completes between measure() and stop().
class Load {
 public:
  Load(client::Client& client, std::vector<Workload> mix, LoadOptions options);
  ~Load();
  void start();
  void measure();
  // Waits until a request has ended since measure(), or `longest` has passed.
  void wait_for_one(std::chrono::nanoseconds longest);
  // Sends no more, waits for what is in flight (cancelling it after 10 s), and adds up.
  LoadTally stop();

 private:
  class Runner;
  class Closed;
  class Empty;
  class Streaming;
  class Open;
  struct Shared;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Runner>> runners_;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_LOAD_LOAD_H_
