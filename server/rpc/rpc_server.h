// The gRPC face of the server: SvdService, grpc.health.v1.Health and, if wanted, reflection on one address. No gRPC
// header here.
#ifndef SVDSERVE_SERVER_RPC_RPC_SERVER_H_
#define SVDSERVE_SERVER_RPC_RPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/host_memory.h"
#include "server/base/listening_socket.h"
#include "server/large/large_pipeline.h"
#include "server/metrics/recorder.h"
#include "server/pipeline.h"
#include "server/rpc/access_log_options.h"

namespace svdserve::server {

class TlsFiles;

struct RpcOptions {
  ListenAddress listen;
  const TlsFiles* tls = nullptr;  // outlives the server, and may be reloaded meanwhile; null: plain text
  int64_t max_message_bytes = 0;
  int64_t max_stream_requests = 0;
  int64_t max_streams = 0;
  int64_t max_open_calls = 0;
  int peer_percent = 100;       // of calls, streams and connections, for one peer
  std::string trusted_proxies;  // see TrustedProxies; checked by read_config()
  absl::Duration stream_idle_timeout = absl::InfiniteDuration();
  int64_t max_connections = 0;
  int64_t max_connection_streams = 0;
  int64_t memory_quota_bytes = 0;
  int64_t call_window_bytes = 0;                                  // that a client may send before its message is read
  absl::Duration max_connection_idle = absl::InfiniteDuration();  // without a call
  // After it the connection takes no new calls; those that it has go on for as long as they like.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  absl::Duration connection_guard = absl::InfiniteDuration();  // patience of ConnectionGuard; infinite: there is none
  bool reflection = false;
  AccessLogOptions access_log;
};

// Thread-safe.
class RpcServer {
 public:
  // Serves `pipeline` and `factors`, which outlive the server, as do clock and recorder. `memory`: of operands and large
  // results. Null, with *error set, where it cannot.
  static std::unique_ptr<RpcServer> start(const RpcOptions& options, Pipeline* pipeline, LargePipeline* factors,
                                          Clock* clock, Recorder* recorder, std::shared_ptr<HostMemory> memory,
                                          std::string* error);
  // shutdown() without patience.
  ~RpcServer();

  // host:port with the port that was bound, or unix:path.
  const std::string& address() const;

  // Sets the answer of health. While true, health still says NOT_SERVING where the pipeline is not ready.
  void set_serving(bool serving);

  // Streams take no more requests and end, with UNAVAILABLE, once what they have in flight is answered.
  void close_streams();

  // Ends every call, at the latest after `grace`, and returns when no handler runs any more. Idempotent.
  void shutdown(absl::Duration grace);

  int64_t open_streams() const;

  // False: the server has not answered its own call of Health for some time; see SelfProbe.
  bool alive() const;

 private:
  RpcServer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_RPC_SERVER_H_
