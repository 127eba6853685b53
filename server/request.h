// A request and its answer as the stages between the wire and the engine see them. No proto types, no gRPC.
#ifndef SVDSERVE_SERVER_REQUEST_H_
#define SVDSERVE_SERVER_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/options.h"
#include "engine/planner.h"
#include "engine/problem.h"
#include "engine/result.h"
#include "server/error.h"
#include "server/peer.h"
#include "server/reservation.h"

namespace svdserve::server {

// The results of a batch of `count` matrices: the planes of its plan, one after the other. See planes_in().
struct ResultPart {
  Plan plan;
  int64_t count;
};
inline size_t result_bytes(const ResultPart& part) { return result_bytes(part.plan, part.count); }

// The memory of one request: its operands, and the buffer of its results. The rpc stage derives from it, so that the
// engine reads the received message and writes the reply in place.
//
// It is shared. The core holds a reference until no device can touch the memory any more, which may be after the reply
// went out (deadline, cancellation). The rpc stage holds one until the reply was sent. The last one to let go frees the
// memory and only then, by the order of destructors, gives the reservation back. So the ledger never promises bytes
// that are still in use.
class RequestMemory {
 public:
  virtual ~RequestMemory() = default;

  // Returns room for the results of all parts, one part after the other: one for a batch, several for one of groups.
  // Called at most once, on the thread of submit(), after admission: nothing of the request's size is allocated before.
  // May throw std::bad_alloc: the request is refused as an overload. Where no part has results, what is returned is not
  // used.
  virtual void* allocate_results(absl::Span<const ResultPart> parts) = 0;

  // The id of its call, by which logs name it. Set before submit(), if at all.
  std::string call_id;

  void hold(Reservation reservation) { reservation_ = std::move(reservation); }
  Reservation* reservation() { return &reservation_; }

 private:
  Reservation reservation_;
};

// The options of a request that names none.
inline const std::shared_ptr<const Options>& default_options() {
  static const auto options = std::make_shared<const Options>();
  return options;
}

// The matrices and options of a request. `payload` and `starting_vectors` lie in, or are kept alive by, `memory`.
struct Request {
  Problem problem;
  std::shared_ptr<const Options> options = default_options();  // never null; the groups of a request share one
  int64_t count = 0;                                           // matrices
  const void* payload = nullptr;                               // [in] any alignment
  size_t payload_bytes = 0;
  const void* starting_vectors = nullptr;  // [in] of a plan that has them: for each matrix, as `payload`
  size_t starting_vectors_bytes = 0;
  std::shared_ptr<RequestMemory> memory;         // never null
  absl::Time deadline = absl::InfiniteFuture();  // on the pipeline's clock
  absl::Time arrival = absl::InfinitePast();     // on the pipeline's clock; InfinitePast: the time of submit()
  Peer peer;                                     // whose turn it takes

  size_t operand_bytes() const { return payload_bytes + starting_vectors_bytes; }
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

// The outcome of a request: an error, or results in its memory and the rest here.
struct Answer {
  Error error;                    // not ok(): nothing below is set, and the results are not to be read
  Method method = Method::kAuto;  // what was used; never kAuto
  std::string devices;            // names joined by commas, ascending; empty for an empty batch
  Timing timing;
  std::vector<MatrixException> exceptions;  // ascending by index
};

// Called exactly once for each submitted request, on any thread and never under a lock of the core. The threads of
// submit() and cancel() are among them, before these return. It must not block: a device lane may be waiting for it.
using DoneCallback = absl::AnyInvocable<void(Answer)>;

// The most groups of one request. A request with more is refused.
inline constexpr size_t kMaxGroups = 4096;

// The outcome of a request of groups: an error, which is that of the first group that failed, or the answer to each.
struct GroupsAnswer {
  Error error;
  std::vector<Answer> groups;  // in the order of the request
  absl::Duration total;        // from arrival until the last answer was ready
};
using GroupsCallback = absl::AnyInvocable<void(GroupsAnswer)>;  // called as DoneCallback is

// Names a submitted request towards cancel(). Keeps nothing alive; copyable; an empty one names nothing.
struct RequestHandle {
  absl::InlinedVector<std::weak_ptr<void>, 1> jobs;  // several for a request of groups
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_REQUEST_H_
