#include "server/rpc/calls/health_call.h"

#include <grpc/health/v1/health.grpc.pb.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include <chrono>
#include <optional>
#include <utility>

#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

struct HealthCall::Connection {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<Health::Stub> stub;
};

struct HealthCall::Call {
  HealthCheckRequest request;
  HealthCheckResponse response;
  Mutex mu;
  CondVar changed;
  // Holds the channel, so it goes before done() is called. gRPC keeps the callback, and with it this call, for a while
  // after the callback has returned.
  std::optional<grpc::ClientContext> context ABSL_GUARDED_BY(mu){std::in_place};
  bool answered ABSL_GUARDED_BY(mu) = false;  // known before done() is called
  bool ended ABSL_GUARDED_BY(mu) = false;     // done() has returned

  bool was_answered() {
    MutexLock lock(&mu);
    return answered;
  }
};

HealthCall::HealthCall(grpc::experimental::ExternalConnectionAcceptor* acceptor) : acceptor_(acceptor) {}

HealthCall::~HealthCall() {
  if (call_ == nullptr) return;
  MutexLock lock(&call_->mu);
  if (call_->context.has_value()) call_->context->TryCancel();
  while (!call_->ended) call_->changed.wait(&call_->mu);
}

void HealthCall::start(absl::Duration limit, std::function<void(bool answered)> done) {
  // Not under the lock: the last channel of a process waits for gRPC's threads, and one of them may want the lock.
  if (call_ != nullptr && !call_->was_answered()) connection_.reset();
  if (connection_ == nullptr) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
      call_.reset();
      done(false);
      return;
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = ends[0];
    acceptor_->HandleNewConnection(&connection);  // owns it from now on
    connection_ = std::make_unique<Connection>();
    connection_->channel = grpc::CreateInsecureChannelFromFd("self", ends[1]);  // so does this
    connection_->stub = Health::NewStub(connection_->channel);
  }
  call_ = std::make_shared<Call>();
  grpc::ClientContext* context = nullptr;
  {
    MutexLock lock(&call_->mu);
    context = &*call_->context;
  }
  context->set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(limit));
  connection_->stub->async()->Check(
      context, &call_->request, &call_->response, [call = call_, done = std::move(done)](const grpc::Status& status) {
        const grpc::StatusCode code = status.error_code();
        const bool answered = code != grpc::StatusCode::DEADLINE_EXCEEDED && code != grpc::StatusCode::UNAVAILABLE &&
                              code != grpc::StatusCode::CANCELLED;
        {
          MutexLock lock(&call->mu);
          call->answered = answered;
          call->context.reset();
        }
        done(answered);
        MutexLock lock(&call->mu);
        call->ended = true;
        call->changed.signal_all();
      });
}

}  // namespace svdserve::server
