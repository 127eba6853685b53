// The largest rate of requests whose latencies stay below a bound.
#ifndef SVDSERVE_CLIENT_CLI_LOAD_RATE_SEARCH_H_
#define SVDSERVE_CLIENT_CLI_LOAD_RATE_SEARCH_H_

#include <functional>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::cli {

// A measurement of an open loop.
struct RatePoint {
  double rate = 0;         // requests a second, offered
  double p99_seconds = 0;  // of the latencies, each counted from the time its request was due
  bool complete = false;   // every request was sent and had its reply
};

struct RateSearch {
  double bound_seconds = 0;  // of the p99
  double first_rate = 100;
  double precision = 0.05;  // the rate is known to this part of itself
  int most_points = 60;     // measurements
};

struct FoundRate {
  double rate = 0;                     // 0: even the least rate of one request in a minute exceeds the bound
  bool is_largest = false;             // false: the measurements were over before a rate exceeded the bound
  std::vector<RatePoint> points = {};  // all measurements, in their order
};

// Measures at growing or falling rates until one is within the bound and one is not, then between them by bisection of
// the logarithm. A rate is beyond the bound if two measurements of it are: one may have met another load of the machine.
// Costs about 2 + 2 log2(rate / first_rate) + 2 log2(1 / precision) measurements at most. Fails as `measure` does.
client::Result<FoundRate> find_rate(const RateSearch& search,
                                    const std::function<client::Result<RatePoint>(double rate)>& measure);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_LOAD_RATE_SEARCH_H_
