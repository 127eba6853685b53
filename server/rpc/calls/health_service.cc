#include "server/rpc/calls/health_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/rpc/codec/wire_reader.h"

namespace svdserve::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

const grpc::Status kBadRequest(grpc::StatusCode::INVALID_ARGUMENT,
                               "the message is not a HealthCheckRequest of at most 64 KiB");

// The name that is asked for; none where the bytes are too many, or no request.
std::optional<std::string> service_of(const grpc::ByteBuffer& bytes) {
  if (std::cmp_greater(bytes.Length(), kMaxSmallBytes)) return std::nullopt;
  grpc::ByteBuffer same = bytes;  // of the same slices
  grpc::ProtoBufferReader reader(&same);
  HealthCheckRequest request;
  if (!reader.status().ok() || !request.ParseFromZeroCopyStream(&reader)) return std::nullopt;
  return request.service();
}

grpc::ByteBuffer reply_of(HealthCheckResponse::ServingStatus status) {
  HealthCheckResponse reply;
  reply.set_status(status);
  const grpc::Slice bytes(reply.SerializeAsString());
  return {&bytes, 1};
}

}  // namespace

// One Watch call. Everything but OnDone() is under the service's lock, which gRPC never takes.
class HealthService::Watcher final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public OpenCall {
 public:
  Watcher(HealthService* service, bool known) : service_(service), known_(known) {}

  // Tells the analysis of locks that the service's lock is this watcher's.
  void assert_locked() const ABSL_ASSERT_EXCLUSIVE_LOCK(service_->mu_) {}

  // The status may have changed: writes it, or once the write that is on its way has ended.
  void update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    const auto status = !known_              ? HealthCheckResponse::SERVICE_UNKNOWN
                        : service_->serving_ ? HealthCheckResponse::SERVING
                                             : HealthCheckResponse::NOT_SERVING;
    if (writing_ || finished_ || told_ == status) return;
    message_ = reply_of(status);
    told_ = status;
    writing_ = true;
    StartWrite(&message_);
  }
  void end(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (!std::exchange(finished_, true)) Finish(status);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&service_->mu_);
    writing_ = false;
    if (ok) {
      update();
    } else {
      end(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override {
    MutexLock lock(&service_->mu_);
    end(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      MutexLock lock(&service_->mu_);
      if (registered) service_->watchers_.erase(place);
    }
    if (registered) service_->context_->calls->remove(this);
    delete this;
  }
  // A watch has no limit in time.
  void cut_off_if_stalled(absl::Time, absl::Duration) override {}
  void close(const grpc::Status&) override {}

  bool registered = false;
  std::list<Watcher*>::iterator place;  // where it is registered

 private:
  HealthService* const service_;
  const bool known_;
  std::optional<HealthCheckResponse::ServingStatus> told_;
  grpc::ByteBuffer message_;
  bool writing_ = false, finished_ = false;
};

HealthService::HealthService(const HandlerContext* context, std::vector<std::string> names)
    : context_(context), names_(std::move(names)) {}

bool HealthService::knows(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void HealthService::set_serving(bool serving) {
  MutexLock lock(&mu_);
  serving_ = serving;
  for (Watcher* const watcher : watchers_) {
    watcher->assert_locked();
    watcher->update();
  }
}

void HealthService::end_watches() {
  MutexLock lock(&mu_);
  ended_ = true;
  for (Watcher* const watcher : watchers_) {
    watcher->assert_locked();
    watcher->end({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* call, const grpc::ByteBuffer* request,
                                               grpc::ByteBuffer* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  const std::optional<std::string> service = service_of(*request);
  if (!service) {
    reactor->Finish(kBadRequest);
    return reactor;
  }
  if (!knows(*service)) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "unknown service name"});
    return reactor;
  }
  {
    MutexLock lock(&mu_);
    *reply = reply_of(serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* HealthService::Watch(grpc::CallbackServerContext* call,
                                                                 const grpc::ByteBuffer* request) {
  const std::optional<std::string> service = service_of(*request);
  auto* const watcher = new Watcher(this, service && knows(*service));
  const Error error = context_->calls->add(CallKind::kWatch, context_->peer(*call), watcher);
  MutexLock lock(&mu_);
  watcher->assert_locked();
  watcher->registered = error.ok();
  if (!service) watcher->end(kBadRequest);
  if (!error.ok()) {
    watcher->end(to_status(error));
    return watcher;
  }
  watcher->place = watchers_.insert(watchers_.end(), watcher);
  if (ended_) {
    watcher->end({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  } else {
    watcher->update();
  }
  return watcher;
}

}  // namespace svdserve::server
