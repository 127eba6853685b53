#include "server/rpc/health_service.h"

#include <algorithm>
#include <utility>

namespace svdserve::server {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

}  // namespace

// One Watch call. Everything but OnDone() is under the service's lock, which gRPC never takes.
class HealthService::Watcher final : public grpc::ServerWriteReactor<HealthCheckResponse>, public OpenCall {
 public:
  Watcher(HealthService* service, bool known) : service_(service), known_(known) {}

  // The status may have changed: writes it, or once the write that is on its way has ended.
  void Update() ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    const auto status = !known_              ? HealthCheckResponse::SERVICE_UNKNOWN
                        : service_->serving_ ? HealthCheckResponse::SERVING
                                             : HealthCheckResponse::NOT_SERVING;
    if (writing_ || finished_ || (told_ && message_.status() == status)) return;
    message_.set_status(status);
    told_ = writing_ = true;
    StartWrite(&message_);
  }
  void End(const grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (!std::exchange(finished_, true)) Finish(status);
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&service_->mu_);
    writing_ = false;
    if (ok) {
      Update();
    } else {
      End(grpc::Status::CANCELLED);
    }
  }
  void OnCancel() override {
    MutexLock lock(&service_->mu_);
    End(grpc::Status::CANCELLED);
  }
  void OnDone() override {
    {
      MutexLock lock(&service_->mu_);
      if (registered) service_->watchers_.erase(place);
    }
    if (registered) service_->context_->calls->Remove(this);
    delete this;
  }
  // A watch has no limit in time.
  void CutOffIfStalled(absl::Time, absl::Duration) override {}
  void Close(const grpc::Status&) override {}

  bool registered = false;
  std::list<Watcher*>::iterator place;  // where it is registered

 private:
  HealthService* const service_;
  const bool known_;
  HealthCheckResponse message_;  // what was told last
  bool told_ = false, writing_ = false, finished_ = false;
};

HealthService::HealthService(const HandlerContext* context, std::vector<std::string> names)
    : context_(context), names_(std::move(names)) {}

bool HealthService::knows(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

void HealthService::SetServing(bool serving) {
  MutexLock lock(&mu_);
  serving_ = serving;
  for (Watcher* const watcher : watchers_) watcher->Update();
}

void HealthService::EndWatches() {
  MutexLock lock(&mu_);
  ended_ = true;
  for (Watcher* const watcher : watchers_) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  }
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* call, const HealthCheckRequest* request,
                                               HealthCheckResponse* reply) {
  grpc::ServerUnaryReactor* const reactor = call->DefaultReactor();
  if (!knows(request->service())) {
    reactor->Finish({grpc::StatusCode::NOT_FOUND, "service name unknown"});
    return reactor;
  }
  {
    MutexLock lock(&mu_);
    reply->set_status(serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(grpc::CallbackServerContext* call,
                                                                    const HealthCheckRequest* request) {
  auto* const watcher = new Watcher(this, knows(request->service()));
  const Error error = context_->calls->Add(CallKind::kWatch, context_->peer(*call), watcher);
  MutexLock lock(&mu_);
  watcher->registered = error.ok();
  if (!error.ok()) {
    watcher->End(to_status(error));
    return watcher;
  }
  watcher->place = watchers_.insert(watchers_.end(), watcher);
  if (ended_) {
    watcher->End({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
  } else {
    watcher->Update();
  }
  return watcher;
}

}  // namespace svdserve::server
