// How work is divided among devices of different speed so that all end at once. Pure arithmetic.
#ifndef SVDSERVE_SERVER_DEVICE_COST_SHARES_H_
#define SVDSERVE_SERVER_DEVICE_COST_SHARES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace svdserve::server {

// A device as a straight line: it can begin after `start` seconds, and then takes so long for each matrix.
struct Pace {
  double start;               // >= 0
  double seconds_per_matrix;  // > 0
};

// When `count` > 0 matrices are done at the earliest, if they can be divided at will. `paces` is not empty.
double earliest_finish(absl::Span<const Pace> paces, double count);

// `count` >= 1 matrices, divided in proportion to speed: one entry for each pace, whose sum is `count`. Each is 0 or at
// least `least` >= 1; a count below `least` goes to one device whole. Equal paces get equal shares, the first ones the
// remainder. All shares are multiples of `unit` >= 1, as are `count` and `least`.
std::vector<int64_t> shares_of(absl::Span<const Pace> paces, int64_t count, int64_t least, int64_t unit = 1);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_COST_SHARES_H_
