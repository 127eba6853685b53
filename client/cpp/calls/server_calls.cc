#include "client/cpp/calls/server_calls.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include "client/cpp/calls/route.h"
#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire.h"
#include "grpc/health/v1/health.pb.h"
#include "svdserve/v1/svd_service.pb.h"

namespace svdserve::client::internal {
namespace {

template <class Message>
bool parse(grpc::ByteBuffer& buffer, Message* message) {
  grpc::ProtoBufferReader reader(&buffer);
  return reader.status().ok() && message->ParseFromZeroCopyStream(&reader);
}

grpc::ByteBuffer to_buffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace

grpc::ByteBuffer empty_message() { return to_buffer({}); }

Status read_limits(Core& core, Status status, grpc::ByteBuffer& reply) {
  if (status.code == Code::kUnimplemented) {
    core.remember_default_limits();
    return {};
  }
  if (!status.ok()) return status;
  v1::GetServerInfoResponse response;
  if (!parse(reply, &response)) return invalid_reply("it is not a GetServerInfoResponse");
  const Result<ServerInfo> info = to_server_info(response);
  if (info.ok()) core.remember_limits(info->limits);
  return info.status();
}

Status fetch_limits(Core& core, const CallOptions& options, Deadline deadline) {
  if (core.limits()) return {};
  grpc::ByteBuffer reply;
  Status status = core.call(kGetServerInfo, empty_message(), options, deadline, &reply);
  return read_limits(core, std::move(status), reply);
}

Result<ServerInfo> server_info(Core& core, const CallOptions& options) {
  grpc::ByteBuffer reply;
  const Deadline deadline = deadline_after(options.timeout, Clock::now());
  if (Status s = core.call(kGetServerInfo, empty_message(), options, deadline, &reply); !s.ok()) return s;
  v1::GetServerInfoResponse response;
  if (!parse(reply, &response)) return invalid_reply("it is not a GetServerInfoResponse");
  Result<ServerInfo> info = to_server_info(response);
  if (info.ok()) core.remember_limits(info->limits);
  return info;
}

Result<CapacityPlan> plan_capacity(Core& core, const Batch& batch, const ComputeOptions& compute, const Demand& demand,
                                   const CallOptions& options) {
  if (Result<MatrixSizes> sizes = matrix_sizes(batch, compute); !sizes.ok()) return sizes.status();
  grpc::ByteBuffer reply;
  const Deadline deadline = deadline_after(options.timeout, Clock::now());
  const grpc::ByteBuffer request = make_plan_request(batch, compute, demand);
  Status status = core.call(kPlanCapacity, request, options, deadline, &reply);
  if (status.code == Code::kUnimplemented) status.message = "this server is too old to plan capacities; update it";
  if (!status.ok()) return status;
  v1::PlanCapacityResponse response;
  if (!parse(reply, &response)) return invalid_reply("it is not a PlanCapacityResponse");
  return to_capacity_plan(response);
}

grpc::ByteBuffer health_request(const std::string& service) {
  ::grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  return to_buffer(request.SerializeAsString());
}

Result<bool> is_serving(grpc::ByteBuffer& reply) {
  ::grpc::health::v1::HealthCheckResponse response;
  if (!parse(reply, &response)) return invalid_reply("it is not a HealthCheckResponse");
  return response.status() == ::grpc::health::v1::HealthCheckResponse::SERVING;
}

// Not retried: a server that is out of reach is the answer. With several of them one that serves is enough.
Result<bool> healthy(Core& core, const std::string& service, const CallOptions& options) {
  const Deadline deadline = deadline_after(options.timeout, Clock::now());
  Result<bool> any = false;
  const size_t servers = core.replicas().size();
  for (size_t replica = 0; replica < servers; ++replica) {
    grpc::ByteBuffer reply;
    // A stopped server takes its share of the time, and leaves the others theirs.
    Deadline share = deadline;
    if (share) {
      const auto now = Clock::now();
      share = now + (*deadline - now) / static_cast<int64_t>(servers - replica);
    }
    Status s =
        core.attempt(core.replicas().stub(replica), kHealthCheck, health_request(service), options.stop, share, &reply);
    Result<bool> one = s.ok() ? is_serving(reply) : Result<bool>(std::move(s));
    if (one.ok() && *one) return one;
    if (replica == 0 || one.ok()) any = std::move(one);
  }
  return any;
}

Result<std::chrono::nanoseconds> ping(Core& core, const CallOptions& options) {
  static const grpc::ByteBuffer request = empty_message();
  const Deadline deadline = deadline_after(options.timeout, Clock::now());
  Route route(core, deadline);
  for (;;) {
    grpc::ByteBuffer reply;
    grpc::GenericStub& stub = route.next();
    const auto begin = Clock::now();
    Status s = core.attempt(stub, kGetServerInfo, request, options.stop, deadline, &reply);
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin);
    const auto delay = route.after(s);
    if (s.ok()) return time;
    if (!delay || delay->count() > 0) return s;  // at once by another server, or not at all
  }
}

}  // namespace svdserve::client::internal
