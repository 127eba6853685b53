// A pipeline of requests over one DecomposeStream or EigendecomposeStream call: many in flight, replies in any order or
// as submitted.
#ifndef SVDSERVE_CLIENT_CPP_STREAM_H_
#define SVDSERVE_CLIENT_CPP_STREAM_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/cpp/types.h"

namespace svdserve::client {

namespace internal {
class Core;
class StreamCall;
}  // namespace internal

struct StreamOptions {
  // Requests submitted and not yet taken by next(): what bounds the memory of both sides. At least 1. The server stops
  // reading a stream beyond its own max_stream_requests.
  int max_in_flight = 16;
  // Every request of the stream has this one.
  Problem problem = Problem::kSvd;
  // true: next() gives the replies in the order of submit(). false: as they arrive.
  bool ordered = true;
  // Options of the stream as a whole. Each request may have a timeout of its own besides.
  CallOptions call = {};
};

struct StreamReply {
  uint64_t id = 0;                                          // what submit() returned
  Status status = {};                                       // of this request alone
  Report report = {};                                       // meaningful where status.ok(), as is
  std::array<std::vector<std::byte>, kPlanes> planes = {};  // what was asked for; the others are empty

  // A plane as numbers, or as elements of the matrices.
  template <class Number>
  std::span<const Number> plane_as(Plane plane) const {
    const std::vector<std::byte>& bytes = planes[static_cast<size_t>(plane)];
    return {reinterpret_cast<const Number*>(bytes.data()), bytes.size() / sizeof(Number)};
  }
  // count x values_per_matrix values of the real type: descending for each matrix, eigenvalues ascending
  template <class Real>
  std::span<const Real> values_as() const {
    return plane_as<Real>(Plane::kValues);
  }
};

// Thread safety: every member may be called from any thread, so that one thread submits while another reads. A single
// thread must not submit more than max_in_flight requests without taking replies, or submit() waits for ever: use
// try_submit() there.
// A request that the server rejects for load is sent again as the client's RetryPolicy says, inside the stream. When
// the stream itself breaks, each request without a reply gets the stream's error; open a new one.
class SVDSERVE_CLIENT_API Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();  // cancels what is in flight and waits until the network has let go of it

  // Sends a batch, which must fit one message, and returns its id: 1, 2, 3, ... Waits while max_in_flight requests are
  // in flight. Unless batch.owner is set, the matrices are copied before it returns. `timeout` counts from now.
  // Fails only where nothing was sent: the batch is too large, compute.problem is not the stream's, or the stream is
  // broken, cancelled or finished.
  Result<uint64_t> submit(const Batch& batch, const ComputeOptions& compute = {},
                          std::optional<std::chrono::nanoseconds> timeout = {});
  // The same without waiting: no value, and an OK status, where the pipeline is full.
  Result<std::optional<uint64_t>> try_submit(const Batch& batch, const ComputeOptions& compute = {},
                                             std::optional<std::chrono::nanoseconds> timeout = {});

  // Waits for the next reply. Nothing: finish() was called, or the stream broke, and every reply was taken.
  std::optional<StreamReply> next();

  // No more requests will follow; what is in flight finishes.
  void finish();
  // Cancels the requests in flight: each gets a reply with CANCELLED.
  void cancel();
  // How the stream ended; OK while it is open.
  Status status() const;

 private:
  friend class Client;
  Stream(std::shared_ptr<internal::Core> core, std::shared_ptr<internal::StreamCall> call);
  std::shared_ptr<internal::Core> core_;  // outlives the call
  std::shared_ptr<internal::StreamCall> call_;
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_STREAM_H_
