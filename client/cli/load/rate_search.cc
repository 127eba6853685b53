#include "client/cli/load/rate_search.h"

#include <cmath>

namespace svdserve::cli {
namespace {

constexpr double kLeastRate = 1.0 / 60;

}  // namespace

client::Result<FoundRate> find_rate(const RateSearch& search,
                                    const std::function<client::Result<RatePoint>(double rate)>& measure) {
  FoundRate found;
  client::Status failed;
  const auto is_over = [&] { return !failed.ok() || static_cast<int>(found.points.size()) >= search.most_points; };
  // Whether the rate is within the bound, by one of two measurements.
  const auto holds = [&](double rate) {
    for (int attempt = 0; attempt < 2 && !is_over(); ++attempt) {
      const auto point = measure(rate);
      if (!point.ok()) {
        failed = point.status();
        break;
      }
      found.points.push_back(*point);
      if (point->complete && point->p99_seconds <= search.bound_seconds) return true;
    }
    return false;
  };
  double within = 0, beyond = 0;  // 0: none is known
  for (double rate = search.first_rate; rate >= kLeastRate && !is_over() && (within == 0 || beyond == 0);) {
    (holds(rate) ? within : beyond) = rate;
    rate = within == 0 ? rate / 2 : rate * 2;
  }
  while (!is_over() && within > 0 && beyond > within * (1 + search.precision)) {
    const double rate = std::sqrt(within * beyond);
    (holds(rate) ? within : beyond) = rate;
  }
  if (!failed.ok()) return failed;
  found.rate = within;
  found.is_largest = within > 0 && beyond > 0 && beyond <= within * (1 + search.precision);
  return found;
}

}  // namespace svdserve::cli
