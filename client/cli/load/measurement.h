// The result of a run of load: figures, a line of CSV, an object of JSON, and a report for people.
#ifndef SVDSERVE_CLIENT_CLI_LOAD_MEASUREMENT_H_
#define SVDSERVE_CLIENT_CLI_LOAD_MEASUREMENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/load/load.h"
#include "client/cli/report/json.h"

namespace svdserve::cli {

// The load that was sent, in the words of the command line.
struct LoadDescription {
  std::string address = {}, server_version = {}, shapes = {}, dtypes = {}, problem = {}, method = {};
  std::string vectors = "none";
  const char* rpc = "unary";  // or "stream", "empty"
  int64_t count = 0;          // of matrices in a request
  int64_t request_bytes = 0;  // 0: requests have `count` matrices
  int64_t concurrency = 0, window = 1, connections = 1;
  double rate = 0;  // offered requests a second; 0: a closed loop
};

struct Measurement {
  LoadDescription load = {};
  double seconds = 0;
  LoadTally tally = {};
  double client_cpu_seconds = 0;
  // A server on this machine: its memory before any load, after the warmup, and at the end.
  struct Server {
    double cpu_seconds = 0;
    int64_t start_bytes = 0, warm_bytes = 0, end_bytes = 0;
  };
  std::optional<Server> server = {};

  double requests_per_second() const { return static_cast<double>(tally.ok) / seconds; }
};

// The columns of CSV with their values, and a line of these.
std::string csv_head(const Measurement& m);
std::string csv_line(const Measurement& m);
// The same with the errors and the histogram. docs/svdctl.schema.json describes it.
Json::Object json_of(const Measurement& m);
// The report for people.
std::string report_text(const Measurement& m);

// Latencies from the previous row's bound up to this one's.
struct HistogramRow {
  double up_to_seconds = 0;
  int64_t count = 0;
};
// Rows of equal ratio from the smallest latency to the 99.9th percentile, and one for those above; none without
// latencies.
std::vector<HistogramRow> histogram_rows(const Histogram& histogram);
// The rows with bars.
std::string histogram_text(const Histogram& histogram);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_LOAD_MEASUREMENT_H_
