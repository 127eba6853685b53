// State that all calls of a client share: connections, warm buffers, the server's limits, and the calls in flight.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_CORE_H_
#define SVDSERVE_CLIENT_CPP_CALLS_CORE_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>

#include "client/cpp/calls/replicas.h"
#include "client/cpp/calls/retry.h"
#include "client/cpp/client.h"
#include "client/cpp/wire/send_buffers.h"
#include "client/cpp/wire/split.h"

namespace svdserve::client::internal {

inline constexpr char kDecompose[] = "/svdserve.v1.SvdService/Decompose";
inline constexpr char kDecomposeStream[] = "/svdserve.v1.SvdService/DecomposeStream";
inline constexpr char kEigendecompose[] = "/svdserve.v1.SvdService/Eigendecompose";
inline constexpr char kEigendecomposeStream[] = "/svdserve.v1.SvdService/EigendecomposeStream";
inline constexpr char kDecomposeLarge[] = "/svdserve.v1.SvdService/DecomposeLarge";
inline constexpr char kGetServerInfo[] = "/svdserve.v1.SvdService/GetServerInfo";
inline constexpr char kPlanCapacity[] = "/svdserve.v1.SvdService/PlanCapacity";
inline constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

inline constexpr char kServiceName[] = "svdserve.v1.SvdService";

// The call that takes such requests.
constexpr const char* method_of(const ComputeOptions& compute) {
  return compute.problem != Problem::kSvd ? kEigendecompose : kDecompose;
}

// A call that the client can be told to give up.
class Cancellable {
 public:
  virtual ~Cancellable() = default;
  virtual void cancel() = 0;
};

// Thread-safe.
class Core {
 public:
  explicit Core(ClientOptions options);

  const ClientOptions& options() const { return options_; }
  SendBuffers& buffers() { return *buffers_; }
  Replicas& replicas() { return replicas_; }
  // A connection of a replica that takes calls, for what is attempted once.
  grpc::GenericStub& stub();
  // A line of ClientOptions::log. `make` makes its text, where somebody wants it.
  template <class Make>
  void log(LogLevel level, const Make& make) const noexcept {
    if (!options_.log) return;
    try {
      options_.log(level, make());
    } catch (...) {  // the caller's mistake must not end a call, nor a thread of gRPC
    }
  }
  // The health of a replica, as it was asked for.
  void note_health(size_t replica, bool serving);
  // Asks a replica whose health is to be checked, and does not wait for the answer.
  void check_health();

  // The limits for cutting batches, once the server was asked; forgotten when it refuses a size that they allowed.
  std::optional<PieceLimits> limits() const;
  void remember_limits(const ServerLimits& limits);  // as to_server_info() checked them
  // For a server that does not say: this client's own.
  PieceLimits default_limits() const;
  void remember_default_limits();
  void forget_limits_after(const Status& status);

  // A unary call on the calling thread, retried as the policy says; `reply` is set where the status is OK. attempts, if
  // given, is increased by the number of attempts.
  Status call(const char* method, const grpc::ByteBuffer& request, const CallOptions& options, Deadline deadline,
              grpc::ByteBuffer* reply, int64_t* attempts = nullptr);
  // One attempt of it.
  Status attempt(grpc::GenericStub& stub, const char* method, const grpc::ByteBuffer& request,
                 const std::stop_token& stop, Deadline deadline, grpc::ByteBuffer* reply);

  // Calls in flight. close() cancels them, waits until each has left, and makes every later enter() fail.
  bool enter(Cancellable* call);
  void leave(Cancellable* call);
  void close();
  // Runs `work` on a thread of its own, which close() waits for. Fails, and does not run it, once the client is closed or
  // where no thread is to be had.
  Status run(std::function<void()> work);

 private:
  struct Worker {
    std::thread thread = {};
    bool ended = false;  // guarded by mutex_
  };

  const ClientOptions options_;
  const std::shared_ptr<SendBuffers> buffers_;
  Replicas replicas_;

  mutable std::mutex mutex_;
  std::condition_variable left_;
  std::optional<PieceLimits> limits_;           // guarded by mutex_
  std::unordered_set<Cancellable*> in_flight_;  // guarded by mutex_
  std::list<Worker> workers_;                   // guarded by mutex_
  bool closed_ = false;                         // guarded by mutex_
};

// Prepares the context of an attempt. gRPC counts in its own monotonic clock.
void set_deadline(grpc::ClientContext& context, Deadline deadline);
// Prepares the context of a unary call: the deadline and, for a batch, the announcement of the request's size.
void prepare_unary(grpc::ClientContext& context, const char* method, const grpc::ByteBuffer& request,
                   Deadline deadline);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_CORE_H_
