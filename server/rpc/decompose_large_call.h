// One DecomposeLarge call.
#ifndef SVDSERVE_SERVER_RPC_DECOMPOSE_LARGE_CALL_H_
#define SVDSERVE_SERVER_RPC_DECOMPOSE_LARGE_CALL_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/large_job.h"
#include "server/large_pipeline.h"
#include "server/mutex.h"
#include "server/rpc/large_codec.h"

namespace svdserve::server {

// LargeJob decides, this class acts. Life: shared; gRPC's share is self_, given up in OnDone(); the job's is what it
// calls this by, given up when it asks to finish.
//
// Invariant: gRPC is told to read, write or finish under act_mu_ alone, and nothing after finish.
class DecomposeLargeCall final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                 public std::enable_shared_from_this<DecomposeLargeCall> {
 public:
  explicit DecomposeLargeCall(grpc::CallbackServerContext* call) : call_(call) {}

  // Called by the handler, once. The reactor belongs to gRPC from now on.
  void Start(LargePipeline* pipeline);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Act(LargeNext next);
  LargeNext Take(DecodedLarge decoded);

  grpc::CallbackServerContext* const call_;  // lives until OnDone()
  std::shared_ptr<LargeJob> job_;            // set by Start()
  size_t max_message_bytes_ = 0;             // set by Start()
  grpc::ByteBuffer incoming_;                // written by gRPC between StartRead() and OnReadDone()
  Mutex act_mu_;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(act_mu_);  // between StartWrite() and OnWriteDone()
  bool finished_ ABSL_GUARDED_BY(act_mu_) = false;
  std::shared_ptr<DecomposeLargeCall> self_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_DECOMPOSE_LARGE_CALL_H_
