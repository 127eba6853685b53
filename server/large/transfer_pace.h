// How fast a client has to move a large matrix: 1 MiB, or what is left, in each idle timeout.
#ifndef SVDSERVE_SERVER_LARGE_TRANSFER_PACE_H_
#define SVDSERVE_SERVER_LARGE_TRANSFER_PACE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace svdserve::server {

// Not thread-safe.
class TransferPace {
 public:
  static constexpr int64_t kBytes = int64_t{1} << 20;

  // A new period begins: the client has all of the timeout again.
  void restart(absl::Time now) {
    since_ = now;
    bytes_ = 0;
  }
  void moved(int64_t bytes, absl::Time now) {
    bytes_ += bytes;
    if (bytes_ >= kBytes) restart(now);
  }
  bool too_slow(absl::Time now, absl::Duration timeout) const { return now - since_ > timeout; }

 private:
  absl::Time since_ = absl::InfiniteFuture();
  int64_t bytes_ = 0;  // moved since then, less than kBytes
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_TRANSFER_PACE_H_
