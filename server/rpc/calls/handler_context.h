// The context and the functions that the handlers of all calls share.
#ifndef SVDSERVE_SERVER_RPC_CALLS_HANDLER_CONTEXT_H_
#define SVDSERVE_SERVER_RPC_CALLS_HANDLER_CONTEXT_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/host_memory.h"
#include "server/metrics/recorder.h"
#include "server/peer_address.h"
#include "server/pipeline.h"
#include "server/rpc/codec/codec.h"

namespace svdserve::server {

class AccessLog;
class ConnectionTraffic;
class LargePipeline;
class LoadReport;
class OpenCalls;
class ReadTurns;

struct HandlerContext {
  Pipeline* pipeline = nullptr;
  LargePipeline* factors = nullptr;
  Clock* clock = nullptr;
  Recorder* recorder = nullptr;
  std::shared_ptr<HostMemory> memory;  // of operands and large results
  OpenCalls* calls = nullptr;
  ReadTurns* read_turns = nullptr;
  ReadTurns* small_reads = nullptr;     // of messages that are small
  ReadTurns* question_reads = nullptr;  // of those that go to reflection
  ReadTurns* open_reads = nullptr;      // of those that open a large matrix
  const TrustedProxies* proxies = nullptr;
  AccessLog* access_log = nullptr;
  size_t max_stream_requests = 1;
  LoadReport* load = nullptr;
  const ConnectionTraffic* traffic = nullptr;

  // Whom the call counts against.
  Peer peer(const grpc::CallbackServerContext& call) const {
    absl::string_view forwarded;
    if (!proxies->empty()) {
      const auto& metadata = call.client_metadata();
      const auto found = metadata.find("x-forwarded-for");
      if (found != metadata.end()) forwarded = {found->second.data(), found->second.size()};
    }
    return peer_of(call.peer(), forwarded, *proxies);
  }
};

// The call's deadline on the pipeline's clock. gRPC's is on the wall clock, so only what is left of it carries over.
inline absl::Time deadline_of(const grpc::CallbackServerContext& call, absl::Time now) {
  const auto deadline = call.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return now + absl::FromChrono(deadline - std::chrono::system_clock::now());
}

// Submits what was decoded without an error. `call_id`: of its call. `done` takes an Answer, or a GroupsAnswer.
template <class Done>
RequestHandle submit_decoded(Pipeline* pipeline, DecodedRequest* decoded, const Peer& peer, const std::string& call_id,
                             absl::Time arrival, absl::Time deadline, Done done) {
  if (!decoded->batches.empty()) decoded->batches.front().memory->call_id = call_id;  // all batches share it
  for (Request& batch : decoded->batches) {
    batch.peer = peer;
    batch.arrival = arrival;
    batch.deadline = deadline;
  }
  if (!decoded->has_groups) return pipeline->submit(std::move(decoded->batches.front()), std::move(done));
  std::vector<Request> groups(std::make_move_iterator(decoded->batches.begin()),
                              std::make_move_iterator(decoded->batches.end()));
  return pipeline->submit_groups(std::move(groups), std::move(done));
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_HANDLER_CONTEXT_H_
