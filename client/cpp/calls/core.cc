#include "client/cpp/calls/core.h"

#include <grpc/support/time.h>
#include <algorithm>
#include <string_view>
#include <system_error>

#include "client/cpp/calls/route.h"
#include "client/cpp/calls/server_calls.h"
#include "client/cpp/wire/status.h"
#include "wire/limits.h"
#include "wire/metadata.h"

namespace svdserve::client::internal {
namespace {

ClientOptions checked(ClientOptions o) {
  o.connections = std::max(o.connections, 1);
  o.pieces_in_flight = std::max(o.pieces_in_flight, 1);
  o.max_message_bytes = std::clamp<int64_t>(o.max_message_bytes, kMessageBytesFixed, INT32_MAX);
  if (o.piece_bytes.has_value()) o.piece_bytes = std::clamp<int64_t>(*o.piece_bytes, 1, o.max_message_bytes);
  return o;
}

size_t keep_bytes(const ClientOptions& o) {
  return static_cast<size_t>((o.pieces_in_flight + 1) *
                             std::min(o.piece_bytes.value_or(kPieceBytes), o.max_message_bytes));
}

// Waits until `until`; false as soon as a stop is requested.
bool sleep_until(Clock::time_point until, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  std::unique_lock lock(mutex);
  wake.wait_until(lock, stop, until, [] { return false; });
  return !stop.stop_requested();
}

// Whether a replica serves, asked once. Keeps itself alive until it has the answer, and leaves the core then. From then
// on it has nothing of a connection any more: gRPC must not lose its last one on a thread of its own.
class HealthCheck : public Cancellable, public std::enable_shared_from_this<HealthCheck> {
 public:
  HealthCheck(Core& core, size_t replica) : core_(core), replica_(replica), request_(health_request(kServiceName)) {}

  void start() {
    std::lock_guard lock(mutex_);
    set_deadline(*context_, Clock::now() + kPatience);
    core_.replicas().stub(replica_).UnaryCall(
        context_.get(), kHealthCheck, {}, &request_, &reply_,
        [self = shared_from_this()](const grpc::Status& status) { self->on_answer(status); });
  }
  void cancel() override {
    std::lock_guard lock(mutex_);
    if (context_) context_->TryCancel();
  }

 private:
  static constexpr std::chrono::seconds kPatience{2};

  void on_answer(const grpc::Status& status) {
    // A server without the service of health says nothing against itself.
    bool serving = status.error_code() == grpc::StatusCode::UNIMPLEMENTED;
    if (status.ok()) {
      const Result<bool> says = is_serving(reply_);
      serving = says.ok() && *says;
    }
    core_.note_health(replica_, serving);
    {
      std::lock_guard lock(mutex_);
      context_.reset();
    }
    core_.leave(this);
  }

  Core& core_;
  const size_t replica_;
  grpc::ByteBuffer request_, reply_;

  std::mutex mutex_;
  std::unique_ptr<grpc::ClientContext> context_ = std::make_unique<grpc::ClientContext>();  // guarded by mutex_
};

}  // namespace

void set_deadline(grpc::ClientContext& context, Deadline deadline) {
  if (!deadline) return;
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(*deadline - Clock::now());
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(left.count(), GPR_TIMESPAN)));
}

void prepare_unary(grpc::ClientContext& context, const char* method, const grpc::ByteBuffer& request,
                   Deadline deadline) {
  set_deadline(context, deadline);
  if (std::string_view(method) == kDecompose || std::string_view(method) == kEigendecompose) {
    context.AddMetadata(kRequestBytesKey, std::to_string(request.Length()));
  }
}

Core::Core(ClientOptions options)
    : options_(checked(std::move(options))), buffers_(SendBuffers::make(keep_bytes(options_))), replicas_(options_) {}

grpc::GenericStub& Core::stub() {
  check_health();
  Rotation* const rotation = replicas_.rotation();
  return replicas_.stub(rotation == nullptr ? 0 : rotation->next({}, Clock::now()));
}

void Core::check_health() {
  if (replicas_.size() == 1) return;
  const auto replica = replicas_.rotation()->due(Clock::now());
  if (!replica) return;
  const auto check = std::make_shared<HealthCheck>(*this, *replica);
  if (enter(check.get())) {
    check->start();
  } else {
    replicas_.rotation()->checked(*replica, false, Clock::now());  // the client is closed
  }
}

void Core::note_health(size_t replica, bool serving) {
  const Rotation::Change change = replicas_.rotation()->checked(replica, serving, Clock::now());
  const std::string& address = replicas_.address(replica);
  if (change == Rotation::Change::kLeft) {
    log(LogLevel::kWarning, [&] { return address + " does not serve, the other servers get its calls"; });
  } else if (change == Rotation::Change::kBack) {
    log(LogLevel::kInfo, [&] { return address + " takes calls again"; });
  }
}

std::optional<PieceLimits> Core::limits() const {
  std::lock_guard lock(mutex_);
  return limits_;
}

PieceLimits Core::default_limits() const {
  const auto servers = static_cast<int64_t>(replicas_.size());
  const int64_t matrices = options_.piece_bytes.has_value() ? 0 : std::max<int64_t>(kPieceMatrices / servers, 1);
  return {options_.max_message_bytes, INT64_MAX, options_.piece_bytes.value_or(kPieceBytes), 0, matrices};
}

void Core::remember_limits(const ServerLimits& limits) {
  PieceLimits both = default_limits();
  both.max_message_bytes = std::min(both.max_message_bytes, limits.max_message_bytes);
  both.max_matrices = limits.max_matrices;
  both.max_groups = limits.max_groups;
  both.largest_piece_bytes = std::min(both.largest_piece_bytes, limits.max_inflight_bytes / kInflightShare);
  std::lock_guard lock(mutex_);
  limits_ = both;
}

void Core::remember_default_limits() {
  std::lock_guard lock(mutex_);
  limits_ = default_limits();
}

void Core::forget_limits_after(const Status& status) {
  const bool size_refused = (status.code == Code::kResourceExhausted && !status.retry_delay) ||
                            (status.code == Code::kInvalidArgument && status.field == "matrices.count");
  if (!size_refused) return;
  std::lock_guard lock(mutex_);
  limits_.reset();
}

Status Core::attempt(grpc::GenericStub& stub, const char* method, const grpc::ByteBuffer& request,
                     const std::stop_token& stop, Deadline deadline, grpc::ByteBuffer* reply) {
  if (stop.stop_requested()) return cancelled();
  grpc::ClientContext context;
  prepare_unary(context, method, request, deadline);
  // A queue of its own lets the calling thread do the network's work: no hand-over to another thread on the way.
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto rpc = stub.PrepareUnaryCall(&context, method, request, &queue);
  rpc->StartCall();
  rpc->Finish(reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  {
    const std::stop_callback on_stop(stop, [&context] { context.TryCancel(); });
    queue.Next(&tag, &ok);
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  if (status.ok()) return {};
  if (stop.stop_requested()) return cancelled();
  return from_grpc(status, options_);
}

Status Core::call(const char* method, const grpc::ByteBuffer& request, const CallOptions& options, Deadline deadline,
                  grpc::ByteBuffer* reply, int64_t* attempts) {
  Route route(*this, deadline);
  for (;;) {
    Status status = attempt(route.next(), method, request, options.stop, deadline, reply);
    const auto delay = route.after(status);
    if (attempts != nullptr) ++*attempts;
    if (!delay) return status;
    if (!sleep_until(Clock::now() + *delay, options.stop)) return cancelled();
  }
}

bool Core::enter(Cancellable* call) {
  std::lock_guard lock(mutex_);
  if (closed_) return false;
  in_flight_.insert(call);
  return true;
}

void Core::leave(Cancellable* call) {
  std::lock_guard lock(mutex_);
  in_flight_.erase(call);
  left_.notify_all();  // under the lock: close() may return and the core go as soon as it is released
}

void Core::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  for (Cancellable* call : in_flight_) call->cancel();
  left_.wait(lock, [&] { return in_flight_.empty(); });
  std::list<Worker> workers = std::move(workers_);
  lock.unlock();
  for (Worker& worker : workers) worker.thread.join();
}

Status Core::run(std::function<void()> work) {
  std::list<Worker> ended;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return cancelled();
    for (auto w = workers_.begin(); w != workers_.end();) {
      const auto next = std::next(w);
      if (w->ended) ended.splice(ended.end(), workers_, w);
      w = next;
    }
    Worker& worker = workers_.emplace_back();
    try {
      worker.thread = std::thread([this, &worker, work = std::move(work)] {
        work();
        std::lock_guard done(mutex_);
        worker.ended = true;
      });
    } catch (const std::system_error& e) {
      workers_.pop_back();
      return failure(Code::kResourceExhausted, "", std::string("no thread for the call: ") + e.what());
    }
  }
  for (Worker& worker : ended) worker.thread.join();
  return {};
}

}  // namespace svdserve::client::internal
