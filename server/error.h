// Why a request failed, as every stage says it and as the rpc stage puts it on the wire. Values only.
#ifndef SVDSERVE_SERVER_ERROR_H_
#define SVDSERVE_SERVER_ERROR_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace svdserve::server {

// The stable reasons of google.rpc.ErrorInfo: clients branch on them, so a name never changes its meaning.
enum class Reason : uint8_t {
  kNone,
  kInvalidField,         // INVALID_ARGUMENT: Error::field says which
  kReplyTooLarge,        // INVALID_ARGUMENT: the answer would pass the message limit
  kOverloadedBytes,      // RESOURCE_EXHAUSTED: the ledger of bytes is full
  kOverloadedRequests,   // RESOURCE_EXHAUSTED: too many requests are in flight
  kQueueTimeout,         // RESOURCE_EXHAUSTED: no device took it within the queue timeout
  kDeadlineExceeded,     // DEADLINE_EXCEEDED: it has passed
  kDeadlineUnreachable,  // DEADLINE_EXCEEDED: it would, so the request was not admitted
  kCancelled,            // CANCELLED
  kDraining,             // UNAVAILABLE: the server is shutting down
  kFactorTooLarge,       // INVALID_ARGUMENT: a factor that never fits into this server's memory
  kChunkOutOfRange,      // INVALID_ARGUMENT: a chunk reaches beyond the operand
  kChunkOverlap,         // INVALID_ARGUMENT: some of a chunk's bytes were there already
  kChunkScattered,       // INVALID_ARGUMENT: the chunks leave more gaps between them than are kept track of
  kChunkCorrupted,       // DATA_LOSS: a chunk's checksum is not that of its data
  kUploadIncomplete,     // INVALID_ARGUMENT: commit, or the end of the stream, before the operand's last byte
  kUnexpectedMessage,    // INVALID_ARGUMENT: a message of a stream that has no place where it came
  kClientStalled,        // DEADLINE_EXCEEDED: the client sent or took too little in its time
  kNonFinite,            // INVALID_ARGUMENT: an element of a factor is infinite or no number
  kRankDeficient,        // INVALID_ARGUMENT: a hyperbolic factor does not have full column rank
  kDeviceFault,          // INTERNAL: every device that tried it failed; UNAVAILABLE: no healthy one is left
  kResumeUnknown,        // NOT_FOUND: a token of no matrix that this server can go on with
};
inline constexpr int kReasons = static_cast<int>(Reason::kResumeUnknown) + 1;

constexpr const char* name(Reason r) {
  switch (r) {
    case Reason::kNone:
      return "";
    case Reason::kInvalidField:
      return "INVALID_FIELD";
    case Reason::kReplyTooLarge:
      return "REPLY_TOO_LARGE";
    case Reason::kOverloadedBytes:
      return "OVERLOADED_BYTES";
    case Reason::kOverloadedRequests:
      return "OVERLOADED_REQUESTS";
    case Reason::kQueueTimeout:
      return "QUEUE_TIMEOUT";
    case Reason::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Reason::kDeadlineUnreachable:
      return "DEADLINE_UNREACHABLE";
    case Reason::kCancelled:
      return "CANCELLED";
    case Reason::kDraining:
      return "DRAINING";
    case Reason::kFactorTooLarge:
      return "FACTOR_TOO_LARGE";
    case Reason::kChunkOutOfRange:
      return "CHUNK_OUT_OF_RANGE";
    case Reason::kChunkOverlap:
      return "CHUNK_OVERLAP";
    case Reason::kChunkScattered:
      return "CHUNK_SCATTERED";
    case Reason::kChunkCorrupted:
      return "CHUNK_CORRUPTED";
    case Reason::kUploadIncomplete:
      return "UPLOAD_INCOMPLETE";
    case Reason::kUnexpectedMessage:
      return "UNEXPECTED_MESSAGE";
    case Reason::kClientStalled:
      return "CLIENT_STALLED";
    case Reason::kNonFinite:
      return "NON_FINITE";
    case Reason::kRankDeficient:
      return "RANK_DEFICIENT";
    case Reason::kDeviceFault:
      return "DEVICE_FAULT";
    case Reason::kResumeUnknown:
      return "RESUME_UNKNOWN";
  }
  return "";
}

struct Error {
  absl::StatusCode code = absl::StatusCode::kOk;
  Reason reason = Reason::kNone;
  std::string message;         // for the caller's eyes; does not repeat `field`
  std::string field;           // path below the request, such as "matrices.rows": goes into BadRequest; or empty
  absl::Duration retry_after;  // goes into RetryInfo; zero: trying again is no use, or the caller's own choice

  bool ok() const { return code == absl::StatusCode::kOk; }
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_ERROR_H_
