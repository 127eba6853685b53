#include "server/rpc/small/small_methods.h"

#include <grpcpp/support/proto_buffer_reader.h>
#include <grpcpp/support/slice.h>
#include <svdserve/v1/svd_service.pb.h>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/planner.h"
#include "server/device/cost/capacity.h"
#include "server/large/large_pipeline.h"
#include "server/rpc/codec/codec.h"
#include "server/rpc/codec/wire_enums.h"
#include "server/rpc/codec/wire_reader.h"
#include "server/version.h"

namespace svdserve::server {
namespace {

Error get_server_info(const HandlerContext& context, const v1::GetServerInfoRequest&, v1::GetServerInfoResponse* info) {
  const Pipeline& pipeline = *context.pipeline;
  info->set_version(kVersion);
  for (int i = 0; i <= static_cast<int>(OperandType::kLast); ++i) {
    info->add_data_types(to_wire<v1::DataType>(static_cast<OperandType>(i)));
  }
  for (int i = 0; i <= static_cast<int>(Method::kLast); ++i) {
    info->add_methods(to_wire<v1::Method>(static_cast<Method>(i)));
  }
  const PipelineOptions& options = pipeline.options();
  v1::Limits& limits = *info->mutable_limits();
  limits.set_max_values(kShapeLimits.max_values);
  limits.set_max_dimension(kShapeLimits.max_dimension);
  limits.set_max_matrices(options.max_matrices);
  limits.set_max_message_bytes(options.max_message_bytes);
  limits.set_max_inflight_requests(options.max_inflight_requests);
  limits.set_max_inflight_bytes(options.max_inflight_bytes);
  limits.set_max_stream_requests(static_cast<int64_t>(context.max_stream_requests));
  limits.set_max_groups(static_cast<int64_t>(kMaxGroups));
  limits.set_max_general_order(kLargestGeneral);
  limits.set_max_hermitian_order(kLargestHermitian);
  limits.set_max_large_bytes(context.factors->max_matrix_bytes());
  LargeStats factors = context.factors->stats();
  for (const DeviceState& state : pipeline.devices()) {
    v1::Device& device = *info->add_devices();
    device.set_name(state.info.name);
    device.set_backend(name(state.info.kind));
    device.set_instruction_set(state.info.instruction_set);
    device.set_threads(state.info.threads);
    device.set_healthy(state.healthy);
    device.set_model(state.info.model);
    device.set_uuid(state.info.uuid);
    device.set_memory_bytes(state.info.memory_bytes);
    device.set_lanes(state.info.lanes);
    device.set_outstanding_batches(state.outstanding_batches);
    device.set_busy_seconds(absl::ToDoubleSeconds(state.busy));
    device.set_uploaded_bytes(state.counters.uploaded_bytes);
    device.set_downloaded_bytes(state.counters.downloaded_bytes);
    device.set_running_factors(factors.of_device[state.info.name].running);
    device.set_waiting_factors(factors.of_device[state.info.name].waiting);
  }
  info->set_draining(pipeline.stats().draining);
  return {};
}

// The one batch of a request without operands, of which a load is made.
template <class Message>
Error decode_shape(const HandlerContext& context, Rpc rpc, const Message& message, Request* request) {
  const grpc::Slice slice(message.SerializeAsString());
  grpc::ByteBuffer bytes(&slice, 1);
  DecodedRequest decoded = decode_request(rpc, &bytes, context.memory);
  if (!decoded.error.ok()) return decoded.error;
  if (decoded.has_groups)
    return invalid_field("groups", "must be empty: a capacity is planned for one batch a request");
  *request = std::move(decoded.batches.front());
  return {};
}

Error read_demand(const v1::PlanCapacityRequest& message, Demand* demand) {
  constexpr double kMostRequests = 1e12, kMostSeconds = 1e6;
  const double rate = message.requests_per_second(), seconds = message.latency_seconds();
  if (!(rate > 0 && rate <= kMostRequests)) {
    return invalid_field("requests_per_second", absl::StrCat("must be above 0 and at most 10^12, is ", rate));
  }
  if (!(seconds >= 0 && seconds <= kMostSeconds)) {
    return invalid_field("latency_seconds", absl::StrCat("must be between 0 and 10^6, is ", seconds));
  }
  *demand = {rate, absl::Seconds(seconds)};
  return {};
}

void write_plan(const CapacityPlan& plan, v1::PlanCapacityResponse* out) {
  for (const DeviceCost& cost : plan.devices) {
    v1::DeviceCost& device = *out->add_devices();
    device.set_device(cost.device);
    device.set_request_seconds(absl::ToDoubleSeconds(cost.request));
    device.set_batch_matrices(cost.batch_matrices);
    device.set_batch_seconds(absl::ToDoubleSeconds(cost.batch));
    device.set_measured(cost.measured);
  }
  out->set_core_seconds(plan.core_seconds);
  out->set_gpu_seconds(plan.gpu_seconds);
  out->set_utilization(plan.utilization);
  out->set_latency_seconds(absl::ToDoubleSeconds(plan.latency));
  out->set_reachable(plan.reachable);
  out->set_replica_requests_per_second(plan.replica_requests_per_second);
  out->set_replicas(plan.replicas);
  out->set_cores(plan.cores);
  out->set_gpus(plan.gpus);
  out->set_replica_cores(plan.replica_cores);
  out->set_replica_gpus(plan.replica_gpus);
  out->set_max_inflight_requests(plan.max_inflight_requests);
  out->set_max_inflight_bytes(plan.max_inflight_bytes);
  out->set_max_message_bytes(plan.max_message_bytes);
  out->set_memory_bytes(plan.memory_bytes);
}

Error plan_capacity(const HandlerContext& context, const v1::PlanCapacityRequest& message,
                    v1::PlanCapacityResponse* response) {
  Demand demand;
  if (Error error = read_demand(message, &demand); !error.ok()) return error;
  Request request;
  Error error;
  switch (message.request_case()) {
    case v1::PlanCapacityRequest::kDecompose:
      error = decode_shape(context, Rpc::kDecompose, message.decompose(), &request);
      break;
    case v1::PlanCapacityRequest::kEigendecompose:
      error = decode_shape(context, Rpc::kEigendecompose, message.eigendecompose(), &request);
      break;
    case v1::PlanCapacityRequest::REQUEST_NOT_SET:
      error = invalid_field("request", "must be set: decompose or eigendecompose");
      break;
  }
  if (!error.ok()) return error;
  CapacityPlan plan;
  if (error = context.pipeline->plan_capacity(std::move(request), demand, &plan); error.ok()) {
    write_plan(plan, response);
  }
  return error;
}

template <class Request>
Error parse_small(grpc::ByteBuffer bytes, Request* request) {
  const std::string& type = Request::descriptor()->name();
  if (std::cmp_greater(bytes.Length(), kMaxSmallBytes)) {
    return invalid_field("", absl::StrCat("a ", type, " may have at most ", kMaxSmallBytes, " bytes"));
  }
  grpc::ProtoBufferReader reader(&bytes);
  if (reader.status().ok() && request->ParseFromZeroCopyStream(&reader)) return {};
  return invalid_field("", absl::StrCat("the bytes received are no ", type));
}

template <class Request, class Response, Error (*kFunction)(const HandlerContext&, const Request&, Response*)>
Error answer_in_bytes(const HandlerContext& context, const grpc::ByteBuffer& bytes, grpc::ByteBuffer* reply) {
  Request request;
  if (Error error = parse_small(bytes, &request); !error.ok()) return error;
  Response response;
  if (Error error = kFunction(context, request, &response); !error.ok()) return error;
  const grpc::Slice slice(response.SerializeAsString());
  *reply = grpc::ByteBuffer(&slice, 1);
  return {};
}

constexpr SmallMethod kSmallMethods[] = {
    {"GetServerInfo", answer_in_bytes<v1::GetServerInfoRequest, v1::GetServerInfoResponse, get_server_info>},
    {"PlanCapacity", answer_in_bytes<v1::PlanCapacityRequest, v1::PlanCapacityResponse, plan_capacity>},
};

}  // namespace

absl::Span<const SmallMethod> small_methods() { return kSmallMethods; }

}  // namespace svdserve::server
