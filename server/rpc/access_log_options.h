// Which calls have a line in the access log.
#ifndef SVDSERVE_SERVER_RPC_ACCESS_LOG_OPTIONS_H_
#define SVDSERVE_SERVER_RPC_ACCESS_LOG_OPTIONS_H_

#include "absl/time/time.h"

namespace svdserve::server {

struct AccessLogOptions {
  double sample = 0;                               // share of the calls that have a line in any case
  absl::Duration slow = absl::InfiniteDuration();  // a call that takes as long always has one, as one that fails
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_ACCESS_LOG_OPTIONS_H_
