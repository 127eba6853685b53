// The ids of a call, and the access log: one line a call, or a request of a stream. A call whose reply nobody takes may
// have two: its result, and that it was cut off.
//
//   event=call method=Decompose code=OK id=5f3c9a1e-1f peer=192.0.2.7 seconds=0.001204 request_bytes=4150 ..
#ifndef SVDSERVE_SERVER_RPC_CALLS_CALL_LOG_H_
#define SVDSERVE_SERVER_RPC_CALLS_CALL_LOG_H_

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/log.h"
#include "server/error.h"
#include "server/peer.h"
#include "server/rpc/access_log_options.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {

// The names that a call goes by in errors, trailers and logs.
struct CallIds {
  std::string request;      // never empty
  std::string trace, span;  // of the caller's traceparent; empty where there is none
};

// The caller's x-request-id, if it is 1 to 128 letters, digits and "-_.:/+=@", or else one that no other call of this
// process has. A W3C traceparent of version 00 gives the others.
CallIds make_call_ids(std::string_view request_id, std::string_view traceparent);
// Those of the call, of whose trailers the request id is one from now on. Once, before the call is finished.
CallIds begin_call(grpc::CallbackServerContext* call);

// A call that has ended, as the access log tells it. Numbers that are zero and empty texts are left out.
struct CallLine {
  const char* method = "";
  std::optional<uint64_t> stream_request;  // the id of a request within its stream
  absl::StatusCode code = absl::StatusCode::kOk;
  Reason reason = Reason::kNone;
  absl::Duration took, queue, compute;
  int64_t request_bytes = 0, reply_bytes = 0;
  int64_t groups = 0, matrices = 0, rows = 0, cols = 0;  // the shape of the first group
  const char* dtype = "";
  std::string devices;
};

// The matrices of a request, and how it ended.
void tell(const DecodedRequest& decoded, CallLine* line);
void tell(const Outcome& outcome, CallLine* line);

// Thread-safe. It never waits for whoever reads the log: a line that would have to is dropped. A call that is neither slow nor sampled, and has not failed, costs an atomic addition, or nothing where
// nothing is sampled.
class AccessLog {
 public:
  explicit AccessLog(const AccessLogOptions& options);

  // Whether a call that ended like this has a line. Asked once a call; so few are asked twice that nobody notices.
  bool wants(absl::StatusCode code, absl::Duration took);
  // At most kLinesPerSecond lines about failed and slow calls are written in a second, and as many others. `now`: of
  // any clock that never goes back.
  static constexpr int kLinesPerSecond = 200;
  void write(const CallIds& ids, const Peer& peer, const CallLine& line, absl::Time now);

 private:
  bool must_have(absl::StatusCode code, absl::Duration took) const {
    return code != absl::StatusCode::kOk || took >= options_.slow;
  }

  const AccessLogOptions options_;
  const uint64_t threshold_;  // of a random number, below which a call is sampled
  std::atomic<uint64_t> calls_{0};
  LineLimit remarkable_{kLinesPerSecond}, sampled_{kLinesPerSecond};
};

// A line about a call that is cut off because its client stalls.
void log_stalled(AccessLog* log, const CallIds& ids, const Peer& peer, const char* method, absl::Duration took,
                 absl::Time now);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_CALL_LOG_H_
