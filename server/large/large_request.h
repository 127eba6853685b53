// A factor of DecomposeLarge as the stages between the wire and the engine see it. No proto types, no gRPC.
#ifndef SVDSERVE_SERVER_LARGE_LARGE_REQUEST_H_
#define SVDSERVE_SERVER_LARGE_LARGE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/error.h"
#include "server/large/large_memory.h"

namespace svdserve::server {

// The decomposition that a client asks for; kSvd with a signature is the hyperbolic SVD.
enum class LargeProblem : uint8_t { kSvd, kHermitian, kHermitianFactor, kGeneral, kLast = kGeneral };

// The matrix and the options that a client asks for. The validate stage sets options.kind.
struct LargeOpen {
  Problem problem;
  LargeProblem decomposition = LargeProblem::kSvd;
  LargeOptions options;
  std::string signature;  // as on the wire: a byte a column, 0x01 or 0xff; empty: there is no J
  std::string resume;     // the token of the matrix to go on with; empty: it is new
};

// The replies, in this order: accepted, then progress, then chunks, then the summary.
struct LargeAccepted {
  int64_t chunk_bytes = 0;  // largest chunk of the operand, and of the results
  int64_t operand_bytes = 0;
  int64_t result_bytes = 0;
  std::string device;        // names of those that may compute it, joined by commas
  std::string resume;        // the token to go on with this matrix after commit; empty: there is none
  absl::Duration predicted;  // time of the computation on the fastest of those devices; zero: it is not known
};

struct LargeProgressReport {
  bool queued = false;     // it waits for a device, and `factor` is as it began
  LargeProgress factor;    // of the engine
  absl::Duration elapsed;  // since it was accepted
  std::string device;      // that computes it, several joined by commas; empty while it is queued
};

// Bytes of a result, which `piece` keeps.
struct LargeResultChunk {
  LargeResult result = LargeResult::kValues;
  int64_t offset = 0;  // of `data` in its result
  const char* data = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const ResultPiece> piece;
};

struct LargeTiming {
  absl::Duration upload;    // from accepted to commit
  absl::Duration queue;     // from commit until the device took it
  absl::Duration compute;   // on the device
  absl::Duration download;  // of the results
};

struct LargeSummary {
  LargePlan plan;
  LargeOutcome outcome;  // kOk or kNotConverged
  std::string device;    // that computed it
  LargeTiming timing;
};

using LargeReply = std::variant<LargeAccepted, LargeProgressReport, LargeResultChunk, LargeSummary>;

// The next steps of the transport, in this order. Once it has done `finish`, all that still comes is void but
// `done_with`: see LargeJob's invariant 1.
struct LargeNext {
  std::optional<LargeReply> write;  // start writing this, then LargeJob::on_written()
  // Likely the next write after this one. Its checksum may be computed while this one is on its way.
  std::optional<LargeResultChunk> upcoming;
  bool read = false;  // start the next read
  // Cut the call off, with this: its client does not take what is written, so what is finished would never reach it.
  std::optional<Error> abort;
  std::optional<Error> finish;  // end the call, well or with an error: nothing else will be asked for
  // With a `finish` that is OK: to call when the status has left this host, and not at all where that has failed. The
  // client may come back for the results until then. Null: there is nothing to do.
  std::function<void()> delivered;
  // Memory to release outside the job's lock: to unmap gigabytes takes a while. It goes before `finish`, so that
  // the next request finds the memory free; else after the rest. A result's piece goes when its last chunk is written
  // and the next one is on its way, the last piece before the summary. While a thread prepares `upcoming`, it keeps the
  // piece of that.
  std::vector<std::shared_ptr<const void>> done_with;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_REQUEST_H_
