// All open calls. The registry bounds their number, for the server and for one peer, and knows which of them wait for a
// client that does nothing.
#ifndef SVDSERVE_SERVER_RPC_CALLS_OPEN_CALLS_H_
#define SVDSERVE_SERVER_RPC_CALLS_OPEN_CALLS_H_

#include <grpcpp/support/status.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"
#include "server/error.h"
#include "server/peer.h"

namespace svdserve::server {

enum class CallKind : uint8_t { kUnary, kSmall, kStream, kLarge, kWatch, kReflection };
inline constexpr size_t kCallKinds = 6;

// A call in the registry. Both methods are called under the registry's lock, so they must not call the registry, and
// the call is not removed meanwhile.
class OpenCall {
 public:
  // Ends the call if its client has kept it waiting for longer than `timeout`.
  virtual void cut_off_if_stalled(absl::Time now, absl::Duration timeout) = 0;
  // Takes nothing new: the call ends with `status` once what is in flight was answered. Nothing where a call takes one
  // request alone.
  virtual void close(const grpc::Status& status) = 0;

 protected:
  ~OpenCall() = default;

 private:
  friend class OpenCalls;
  std::list<OpenCall*>::iterator place_;
  CallKind kind_{};
  Peer peer_;
};

// Thread-safe.
class OpenCalls {
 public:
  struct Limits {
    int64_t calls = 16384;   // of all kinds and peers
    int64_t streams = 4096;  // of all streaming calls for batches
    int peer_percent = 100;  // of both, for one peer; at least one
  };
  explicit OpenCalls(const Limits& limits) : limits_(limits) {}

  // ok(), or why the call is not to be served; then it was not added.
  Error add(CallKind kind, const Peer& peer, OpenCall* call);
  // `call` was added before. After this has returned the registry does not touch the call.
  void remove(OpenCall* call);
  void cut_off_stalled(absl::Time now, absl::Duration timeout);
  // Closes what is open, and from now on refuses what comes, but for small calls and health's watchers.
  void close_all();
  int64_t count(CallKind kind) const;

 private:
  using Counts = std::array<int64_t, kCallKinds>;
  int64_t share(int64_t limit) const;

  const Limits limits_;
  mutable Mutex mu_;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::list<OpenCall*> open_ ABSL_GUARDED_BY(mu_);
  Counts counts_ ABSL_GUARDED_BY(mu_){};
  absl::flat_hash_map<Peer, Counts> peers_ ABSL_GUARDED_BY(mu_);  // that have a call
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CALLS_OPEN_CALLS_H_
