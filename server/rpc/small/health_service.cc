#include "server/rpc/small/health_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "server/rpc/calls/cut_off.h"
#include "server/rpc/calls/small_read.h"
#include "server/rpc/codec/wire_reader.h"
#include "server/rpc/connection_traffic.h"

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

// One Watch call: it reads the message and its end, in one turn, and then tells the status and all changes of it. A
// client that has ended its side cannot send any more. Everything but start(), the beginning of the read and OnDone() is
// under the service's lock, which gRPC never takes.
class HealthService::Watcher final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                                     public OpenCall {
 public:
  Watcher(HealthService* service, grpc::CallbackServerContext* call)
      : service_(service), call_(call), read_(service->context_->small_reads, service->context_->clock) {}

  // Tells the analysis of locks that the service's lock is this watcher's.
  void assert_locked() const ABSL_ASSERT_EXCLUSIVE_LOCK(service_->mu_) {}

  void start() {
    const HandlerContext& context = *service_->context_;
    const Peer peer = context.peer(*call_);
    traffic_.begin(*context.traffic, call_->peer(), Messages::kOne, context.pipeline->options().max_message_bytes);
    Error error = context.calls->add(CallKind::kWatch, peer, this);
    registered_ = error.ok();
    if (error.ok()) error = read_.begin(peer, [this] { StartRead(&request_); });
    if (error.ok()) return;
    MutexLock lock(&service_->mu_);
    end(to_status(error));
  }

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

  void OnReadDone(bool ok) override {
    if (ok) traffic_.read(request_.Length());
    {
      MutexLock lock(&service_->mu_);
      if (ok && !service_name_) {
        service_name_ = service_of(request_);
        request_.Clear();
        if (service_name_) {
          StartRead(&request_);  // of the end
          return;
        }
      }
      watching_ = true;
      on_message(ok);
    }
    read_.end();
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
    traffic_.cancelled();
    const bool left = read_.leave();
    MutexLock lock(&service_->mu_);
    if (left || watching_) end(grpc::Status::CANCELLED);  // otherwise the read ends, and the call with it
  }
  void OnDone() override {
    {
      MutexLock lock(&service_->mu_);
      if (listed_) service_->watchers_.erase(place_);
    }
    if (registered_) service_->context_->calls->remove(this);
    delete this;
  }
  // A watch has no limit in time, but its message has.
  void cut_off_if_stalled(absl::Time now, absl::Duration) override {
    const SmallRead::Lateness lateness = read_.lateness(now);
    if (lateness == SmallRead::Lateness::kNone) return;
    if (lateness != SmallRead::Lateness::kWaits) {
      cut_off(call_, late_message_error());
    } else if (read_.leave()) {
      MutexLock lock(&service_->mu_);
      end(to_status(no_turn_error()));
    }
  }
  void close(const grpc::Status&) override {}

 private:
  // The message has come whole, or something else has.
  void on_message(bool more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(service_->mu_) {
    if (call_->IsCancelled()) {
      end(grpc::Status::CANCELLED);
    } else if (more || !service_name_) {
      end(kBadRequest);
    } else if (service_->ended_) {
      end({grpc::StatusCode::UNAVAILABLE, "the server is shutting down"});
    } else {
      known_ = service_->knows(*service_name_);
      place_ = service_->watchers_.insert(service_->watchers_.end(), this);
      listed_ = true;
      update();
    }
  }

  HealthService* const service_;
  grpc::CallbackServerContext* const call_;
  CallTraffic traffic_;
  SmallRead read_;
  grpc::ByteBuffer request_;  // written by gRPC between StartRead() and OnReadDone()
  grpc::ByteBuffer message_;
  std::optional<std::string> service_name_;
  std::optional<HealthCheckResponse::ServingStatus> told_;
  std::list<Watcher*>::iterator place_;  // where it is listed
  bool registered_ = false, watching_ = false, listed_ = false, known_ = false, writing_ = false, finished_ = false;
};

HealthService::HealthService(const HandlerContext* context, std::vector<std::string> names)
    : context_(context),
      names_(std::move(names)),
      answer_([this](const grpc::ByteBuffer& request, auto* reply) { return check(request, reply); }) {
  const auto* const service = HealthCheckRequest::descriptor()->file()->FindServiceByName("Health");
  const int check_index = service->FindMethodByName("Check")->index();
  const int watch_index = service->FindMethodByName("Watch")->index();
  const auto watch_handler = [this] {
    return new grpc::internal::CallbackBidiHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
        [this](grpc::CallbackServerContext* call) { return watch(call); });
  };
  // As in SvdServiceHandler: the first call makes the method a stream, the second one of raw bytes and callbacks.
  MarkMethodStreamed(check_index, SmallCall::make_handler(context_, nullptr, &answer_));
  MarkMethodRawCallback(check_index, SmallCall::make_handler(context_, nullptr, &answer_));
  MarkMethodStreamed(watch_index, watch_handler());
  MarkMethodRawCallback(watch_index, watch_handler());
}

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

grpc::Status HealthService::check(const grpc::ByteBuffer& request, grpc::ByteBuffer* reply) {
  const std::optional<std::string> service = service_of(request);
  if (!service) return kBadRequest;
  if (!knows(*service)) return {grpc::StatusCode::NOT_FOUND, "unknown service name"};
  MutexLock lock(&mu_);
  *reply = reply_of(serving_ ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  return grpc::Status::OK;
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* HealthService::watch(grpc::CallbackServerContext* call) {
  auto* const watcher = new Watcher(this, call);
  watcher->start();
  return watcher;
}

}  // namespace svdserve::server
