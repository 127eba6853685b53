// Requests and replies as bytes. A request is a short prefix, written here, and the payload, which is sent from where
// it lies: protobuf's own serializer would copy it twice. The result is ordinary protobuf of svdserve.v1.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_H_
#define SVDSERVE_CLIENT_CPP_WIRE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "client/cpp/send_buffers.h"
#include "client/cpp/split.h"
#include "client/cpp/types.h"

namespace svdserve::v1 {
class DecomposeResponse;
class GetServerInfoResponse;
}  // namespace svdserve::v1

namespace svdserve::client::internal {

// The matrices of a piece: borrowed from batch.owner where there is one, else a copy.
grpc::Slice make_payload(SendBuffers& buffers, const Batch& batch, const Piece& piece, int64_t matrix_bytes);

// A DecomposeRequest. `shape` gives everything but count and data.
grpc::ByteBuffer make_request(const Batch& shape, int64_t count, const ComputeOptions& compute,
                              const grpc::Slice& payload);
// A DecomposeStreamRequest around the same.
grpc::ByteBuffer make_stream_request(uint64_t id, std::optional<std::chrono::nanoseconds> timeout, const Batch& shape,
                                     int64_t count, const ComputeOptions& compute, const grpc::Slice& payload);

// Singular values of a matrix in the answer.
int64_t values_wanted(const Batch& shape, const ComputeOptions& compute);

// Reads a DecomposeResponse to `count` matrices, its planes straight into `out`. Fails with INTERNAL where the reply is
// not what was asked for. Exceptions count from 0.
Result<Report> read_response(grpc::ByteBuffer& reply, int64_t count, int64_t values_per_matrix, const Outputs& out);

// The planes of a parsed message, empty where it has none.
std::array<std::string_view, kPlanes> planes_of(const v1::DecomposeResponse& response);
// What it tells besides; planes_bytes: how many bytes each had, where `out` has room for what was asked for.
Result<Report> to_report(const v1::DecomposeResponse& response, int64_t count, int64_t values_per_matrix,
                         const std::array<size_t, kPlanes>& planes_bytes, const Outputs& out);

ServerInfo to_server_info(const v1::GetServerInfoResponse& response);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_H_
