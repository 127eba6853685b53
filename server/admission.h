// How a call asks for memory before its message is received: what the rpc stage and the admit stage say to each other.
#ifndef SVDSERVE_SERVER_ADMISSION_H_
#define SVDSERVE_SERVER_ADMISSION_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/error.h"
#include "server/peer.h"
#include "server/reservation.h"

namespace svdserve::server {

// A claim of one call.
struct Ask {
  Peer peer;
  int64_t bytes = 0;  // of the message and of what will be made of it
  // On the pipeline's clock. A call that cannot be served before it is refused at once.
  absl::Time deadline = absl::InfiniteFuture();
};

// A call whose claim waits in the queue. One of both is called, once, on any thread and under no lock of the admit
// stage, unless the call has left the queue before. Neither may block.
class AdmissionWaiter {
 public:
  virtual void on_admitted(Reservation reservation) = 0;
  virtual void on_refused(Error error) = 0;

 protected:
  ~AdmissionWaiter() = default;
};

// The first answer to a claim.
enum class Admission : uint8_t {
  kAdmitted,  // the reservation is set
  kRefused,   // the error is set
  kWaits      // the waiter will be told
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ADMISSION_H_
