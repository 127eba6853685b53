// Requests and replies as bytes. A request is a short prefix, written here, and the payload, which is sent from where
// it lies: protobuf's own serializer would copy it twice. The result is ordinary protobuf of svdserve.v1.
//
// The messages of Eigendecompose have the numbers of those of Decompose, but for their options. So a reply to either is
// read as a DecomposeResponse.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_WIRE_H_
#define SVDSERVE_CLIENT_CPP_WIRE_WIRE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "client/cpp/types.h"
#include "client/cpp/wire/send_buffers.h"
#include "client/cpp/wire/split.h"

namespace svdserve::v1 {
class DecomposeResponse;
class GetServerInfoResponse;
class PlanCapacityResponse;
}  // namespace svdserve::v1

namespace svdserve::client::internal {

// `size` bytes, to be sent: borrowed from the owner where there is one, else a copy.
grpc::Slice make_payload(SendBuffers& buffers, const void* data, size_t size, const std::shared_ptr<const void>& owner);

// The operands of a piece of a batch.
struct Payloads {
  grpc::Slice matrices;
  grpc::Slice starting_vectors;  // empty: none
};
Payloads make_payloads(SendBuffers& buffers, const Batch& batch, const Piece& piece, const MatrixSizes& sizes);

// One batch of a request. `shape` gives everything but count and operands.
struct BatchToSend {
  const Batch& shape;
  int64_t count;
  Payloads payloads;
};
// The request of one batch, or of several as groups: a DecomposeRequest, or an EigendecomposeRequest. All of them that
// have matrices have starting vectors, or none has.
grpc::ByteBuffer make_request(std::span<const BatchToSend> batches, const ComputeOptions& compute);
// The request of a stream around the same.
grpc::ByteBuffer make_stream_request(uint64_t id, std::optional<std::chrono::nanoseconds> timeout,
                                     const BatchToSend& batch, const ComputeOptions& compute);

// Singular values of a matrix in the answer.
int64_t values_wanted(const Batch& shape, const ComputeOptions& compute);

// The counts that the answer to a request must have. The sizes of its planes are those of their memory.
struct Expected {
  int64_t count = 0;  // matrices
  int64_t values_per_matrix = 0;
  int64_t left_columns = 0;   // of U, or of the combiners
  int64_t right_columns = 0;  // of V, or of the precoders
  bool has_vectors = false;   // U and V^H; else combiners and precoders
  bool has_certificate = false;
};
// `shape` gives everything but the count.
Expected expected_of(const Batch& shape, int64_t count, const ComputeOptions& compute);

// The counts of the reply to one batch, and the memory for its planes.
struct BatchToReceive {
  Expected expected;
  Outputs out;
};
// Reads the reply to one batch, or to several as groups, its planes straight into their memory. Fails with
// INTERNAL where the reply is not what was expected. Exceptions count from 0.
Result<std::vector<Report>> read_response(grpc::ByteBuffer& reply, std::span<const BatchToReceive> batches);

// The planes of a parsed message, empty where it has none. Those that only an EigendecomposeResponse has are unknown
// fields to its class.
std::array<std::string_view, kPlanes> planes_of(const v1::DecomposeResponse& response, const Expected& expected);
// The report of the message; planes_bytes: how many bytes each plane had, where `out` has room for what was asked for.
Result<Report> to_report(const v1::DecomposeResponse& response, const Expected& expected,
                         const std::array<size_t, kPlanes>& planes_bytes, const Outputs& out);

// Fails with INTERNAL where the limits cannot be those of a server: negative ones, and 0 where at least 1 is needed.
Result<ServerInfo> to_server_info(const v1::GetServerInfoResponse& response);

// A PlanCapacityRequest for a load of requests with such a batch, without its operands.
grpc::ByteBuffer make_plan_request(const Batch& batch, const ComputeOptions& compute, const Demand& demand);
CapacityPlan to_capacity_plan(const v1::PlanCapacityResponse& response);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_WIRE_H_
