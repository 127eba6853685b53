#include "server/device/cost/shares.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace svdserve::server {
namespace {

// The number of matrices that the device at `pace` gets done until `finish`.
double done_by(const Pace& pace, double finish) {
  return std::max(0.0, (finish - pace.start) / pace.seconds_per_matrix);
}

}  // namespace

// The finish T solves sum over the devices with start < T of (T - start) / seconds_per_matrix = count: it is that of
// the first few by start.
double earliest_finish(absl::Span<const Pace> paces, double count) {
  std::vector<Pace> by_start(paces.begin(), paces.end());
  std::sort(by_start.begin(), by_start.end(), [](const Pace& a, const Pace& b) { return a.start < b.start; });
  double rate = 0, before = 0, finish = 0;
  for (const Pace& pace : by_start) {
    if (rate > 0 && finish <= pace.start) break;
    rate += 1 / pace.seconds_per_matrix;
    before += pace.start / pace.seconds_per_matrix;
    finish = (count + before) / rate;
  }
  return finish;
}

std::vector<int64_t> shares_of(absl::Span<const Pace> paces, int64_t count, int64_t least, int64_t unit) {
  std::vector<size_t> taking(paces.size());  // the devices that get something
  for (size_t i = 0; i < taking.size(); ++i) taking[i] = i;
  std::vector<double> ideal;
  while (true) {
    std::vector<Pace> of_taking;
    for (const size_t i : taking) of_taking.push_back(paces[i]);
    const double finish = earliest_finish(of_taking, static_cast<double>(count));
    ideal.clear();
    for (const Pace& pace : of_taking) ideal.push_back(done_by(pace, finish));
    // The last of the smallest: equal devices drop out from the end.
    const auto smallest = std::min_element(ideal.rbegin(), ideal.rend());
    if (taking.size() == 1 || *smallest >= static_cast<double>(least)) break;
    taking.erase(taking.begin() + (ideal.rend() - smallest - 1));
  }
  std::vector<int64_t> shares(paces.size(), 0);
  int64_t left = count;
  constexpr double kRounding = 1e-9;  // 3 - 1e-16 is 3
  for (size_t i = 0; i < taking.size(); ++i) {
    const double units = std::floor(ideal[i] / static_cast<double>(unit) * (1 + kRounding));
    shares[taking[i]] = std::min(left, static_cast<int64_t>(units) * unit);
    left -= shares[taking[i]];
  }
  for (size_t i = 0; left > 0; ++i, left -= unit) shares[taking[i % taking.size()]] += unit;
  return shares;
}

}  // namespace svdserve::server
