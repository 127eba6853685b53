#include "tests/support/wire.h"

#include <google/rpc/error_details.pb.h>

#include <cstring>
#include <random>

namespace svdserve::testing {
namespace {

grpc::ChannelArguments channel_arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // channels of a process share connections otherwise
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> connect(const std::string& address,
                                       std::shared_ptr<grpc::ChannelCredentials> credentials) {
  return grpc::CreateCustomChannel(address, credentials ? credentials : grpc::InsecureChannelCredentials(),
                                   channel_arguments());
}

std::shared_ptr<grpc::Channel> connect_with_fixed_window(const std::string& address) {
  grpc::ChannelArguments arguments = channel_arguments();
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kFixedWindowBytes);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

v1::DecomposeRequest random_request(int64_t rows, int64_t cols, int64_t count, uint64_t seed) {
  v1::DecomposeRequest request;
  v1::MatrixBatch& batch = *request.mutable_matrices();
  batch.set_data_type(v1::DATA_TYPE_F64);
  batch.set_memory_order(v1::MEMORY_ORDER_ROW_MAJOR);
  batch.set_rows(rows);
  batch.set_cols(cols);
  batch.set_count(count);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> elements(static_cast<size_t>(rows * cols * count));
  for (double& x : elements) x = uniform(random);
  batch.set_data(elements.data(), elements.size() * sizeof(double));
  return request;
}

v1::DecomposeRequest slow_request(int64_t matrices) {
  // The same matrix again and again: to make random numbers would take longer than to compute with them.
  v1::DecomposeRequest request = random_request(32, 32, 1);
  const std::string one = request.matrices().data();
  std::string& data = *request.mutable_matrices()->mutable_data();
  data.reserve(one.size() * static_cast<size_t>(matrices));
  for (int64_t i = 1; i < matrices; ++i) data.append(one);
  request.mutable_matrices()->set_count(matrices);
  request.mutable_options()->set_method(v1::METHOD_JACOBI);
  return request;
}

std::vector<double> values_of(const v1::DecomposeResponse& response) {
  std::vector<double> values(response.singular_values().size() / sizeof(double));
  std::memcpy(values.data(), response.singular_values().data(), values.size() * sizeof(double));
  return values;
}

grpc::Status decompose(const std::shared_ptr<grpc::Channel>& channel, const v1::DecomposeRequest& request,
                       v1::DecomposeResponse* response, std::chrono::milliseconds limit) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  return v1::SvdService::NewStub(channel)->Decompose(&context, request, response);
}

ErrorDetails details_of(const google::rpc::Status& status) {
  ErrorDetails out;
  out.code = status.code();
  out.message = status.message();
  for (const auto& any : status.details()) {
    google::rpc::BadRequest bad_request;
    google::rpc::ErrorInfo info;
    google::rpc::RetryInfo retry;
    google::rpc::RequestInfo request;
    if (any.UnpackTo(&bad_request) && bad_request.field_violations_size() > 0) {
      out.field = bad_request.field_violations(0).field();
    } else if (any.UnpackTo(&info)) {
      out.reason = info.reason();
      out.domain = info.domain();
    } else if (any.UnpackTo(&request)) {
      out.request_id = request.request_id();
    } else if (any.UnpackTo(&retry)) {
      out.retry_seconds = static_cast<double>(retry.retry_delay().seconds()) + 1e-9 * retry.retry_delay().nanos();
    }
  }
  return out;
}

ErrorDetails details_of(const grpc::Status& status) {
  google::rpc::Status parsed;
  if (!parsed.ParseFromString(status.error_details())) return {};
  ErrorDetails out = details_of(parsed);
  // The trailer must agree with what every client sees.
  if (parsed.code() != status.error_code() || parsed.message() != status.error_message()) out.code = -1;
  return out;
}

}  // namespace svdserve::testing
