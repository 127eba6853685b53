#include "server/admit/deadline.h"

#include "absl/strings/str_cat.h"

namespace svdserve::server {

Error check_deadline(absl::Time now, absl::Time deadline, absl::Duration earliest) {
  if (now + earliest <= deadline) return {};
  const absl::Duration unit = absl::Microseconds(1);
  return {absl::StatusCode::kDeadlineExceeded,
          Reason::kDeadlineUnreachable,
          absl::StrCat("the deadline is ", absl::FormatDuration(absl::Trunc(deadline - now, unit)),
                       " away, but the request cannot finish in less than ",
                       absl::FormatDuration(absl::Trunc(earliest, unit))),
          "",
          {}};
}

}  // namespace svdserve::server
