// A request and its answer as the stages between the wire and the engine see them. No proto types, no gRPC.
#ifndef SVDSERVE_SERVER_REQUEST_H_
#define SVDSERVE_SERVER_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "engine/options.h"
#include "engine/problem.h"
#include "engine/result.h"
#include "server/error.h"
#include "server/reservation.h"

namespace svdserve::server {

// The memory of one request: its operands, and the buffer of its results. The rpc stage derives from it, so that the
// engine reads the received message and writes the reply in place.
//
// It is shared: the core holds a reference until no device can touch the memory any more, which may be after the answer
// went out (deadline, cancellation); the rpc stage holds one until the reply was sent. The last one to let go frees the
// memory and only then, by the order of destructors, gives the reservation back: the ledger never promises bytes that
// are still in use.
class RequestMemory {
 public:
  virtual ~RequestMemory() = default;

  // Returns room for `bytes` > 0 of results. Called at most once, on the thread of Submit(), after admission: nothing of
  // the request's size is allocated before. May throw std::bad_alloc: the request is refused as an overload.
  virtual void* AllocateResults(size_t bytes) = 0;

  void Hold(Reservation reservation) { reservation_ = std::move(reservation); }

 private:
  Reservation reservation_;
};

// What is asked for. `payload` lies in, or is kept alive by, `memory`.
struct Request {
  Problem problem;
  Options options;
  int64_t count = 0;              // matrices
  const void* payload = nullptr;  // [in] any alignment
  size_t payload_bytes = 0;
  std::shared_ptr<RequestMemory> memory;         // never null
  absl::Time deadline = absl::InfiniteFuture();  // on the pipeline's clock
  absl::Time arrival = absl::InfinitePast();     // on the pipeline's clock; InfinitePast: the time of Submit()
};

// One matrix that is not OK.
struct MatrixException {
  int64_t index;
  MatrixStatus status;
  friend bool operator==(const MatrixException&, const MatrixException&) = default;
};

struct Timing {
  absl::Duration queue;    // from admission until a device took it (its first part, where it was split)
  absl::Duration compute;  // its batch on the device; the longest, where it was split
  absl::Duration total;    // from arrival until the answer was ready
};

// What became of a request: an error, or values in its memory and the rest here.
struct Answer {
  Error error;                    // not ok(): nothing below is set, and the values are not to be read
  Method method = Method::kAuto;  // what was used; never kAuto
  std::string devices;            // names joined by commas, ascending; empty for an empty batch
  Timing timing;
  std::vector<MatrixException> exceptions;  // ascending by index
};

// Called exactly once for each submitted request, on any thread (that of Submit() and Cancel() included, before they
// return) and never under a lock of the core. It must not block: a device lane may be waiting for it.
using DoneCallback = absl::AnyInvocable<void(Answer)>;

// Names a submitted request towards Cancel(). Keeps nothing alive; copyable; an empty one names nothing.
struct RequestHandle {
  std::weak_ptr<void> job;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_REQUEST_H_
