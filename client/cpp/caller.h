// The untyped calls of svdserve's client: everything that can be asked for, into memory of the caller.
#ifndef SVDSERVE_CLIENT_CPP_CALLER_H_
#define SVDSERVE_CLIENT_CPP_CALLER_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/large.h"
#include "client/cpp/types.h"

namespace svdserve::client {

namespace internal {
class Core;
}

// The base of Client. A copy shares the connection, and every call of it fails with CANCELLED once the client is gone.
// Thread safety: every member may be called from any number of threads at once.
class SVDSERVE_CLIENT_API Caller {
 public:
  // One batch. out: [out] unspecified where the call fails.
  Result<Report> decompose(const Batch& batch, const Outputs& out, const ComputeOptions& compute = {},
                           const CallOptions& call = {});
  // The same; `done` gets the results, once, on a thread of the network: it must not block, nor destroy the client.
  // batch.data and the memory of `out` must live until then.
  void decompose_async(const Batch& batch, const Outputs& out, const ComputeOptions& compute, const CallOptions& call,
                       std::function<void(Result<Report>)> done);

  // Several batches in as few messages as the server's limits allow, with the same options: cheaper than a call for each
  // where they are small. The reports are in the order of the groups. out: [out] unspecified where the call fails.
  Result<std::vector<Report>> decompose_groups(std::span<const Group> groups, const ComputeOptions& compute = {},
                                               const CallOptions& call = {});
  // The same; `done` as of decompose_async(). The groups themselves are copied.
  void decompose_groups_async(std::span<const Group> groups, const ComputeOptions& compute, const CallOptions& call,
                              std::function<void(Result<std::vector<Report>>)> done);

  // One large matrix: A = U S V^H, the hyperbolic G = U S V^H with V^H J V = J, or an eigenproblem, as options.problem
  // says. It is uploaded in chunks, computed with progress, and streamed back into `out`, all on the calling thread. A
  // matrix that the server rejects with a retry delay is sent again, but not once its upload has begun, unless there
  // are other servers. Results that were damaged on their way are DATA_LOSS. out: [out] unspecified where the call
  // fails.
  Result<LargeReport> decompose_large(const LargeMatrix& matrix, const LargeOutputs& out,
                                      const LargeOptions& options = {}, const CallOptions& call = {});
  // The same on a thread of its own, which the client's destructor waits for. `done` gets the results there, once, and
  // must not destroy the client. The memory of the matrix, its signature and `out` must live until then.
  void decompose_large_async(const LargeMatrix& matrix, const LargeOutputs& out, const LargeOptions& options,
                             const CallOptions& call, std::function<void(Result<LargeReport>)> done);

 protected:
  explicit Caller(std::shared_ptr<internal::Core> core);

  std::shared_ptr<internal::Core> core_;  // null once moved from
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_CALLER_H_
