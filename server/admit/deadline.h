// Refuses what cannot be done in time: the sooner its caller knows, the sooner the device time goes to somebody whom it
// serves.
#ifndef SVDSERVE_SERVER_ADMIT_DEADLINE_H_
#define SVDSERVE_SERVER_ADMIT_DEADLINE_H_

#include "absl/time/time.h"
#include "server/error.h"

namespace svdserve::server {

// DEADLINE_EXCEEDED, reason DEADLINE_UNREACHABLE, where even `earliest`, the time in which the request could be done at
// best from `now`, passes its deadline. An estimate of zero, which means that nothing is known or that a device waits
// for work, refuses nothing that is not late already.
Error check_deadline(absl::Time now, absl::Time deadline, absl::Duration earliest);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMIT_DEADLINE_H_
