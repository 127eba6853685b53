// The messages of DecomposeLarge. A chunk's payload is sent from where it lies, as in wire.h.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_LARGE_WIRE_H_
#define SVDSERVE_CLIENT_CPP_WIRE_LARGE_WIRE_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstdint>
#include <string>

#include "client/cpp/large.h"
#include "client/cpp/wire/send_buffers.h"
#include "wire/received_bytes.h"

namespace svdserve::client::internal {

// `resume`: the token of the matrix to go on with, or empty.
grpc::ByteBuffer make_large_open(const LargeMatrix& matrix, const LargeOptions& options, const std::string& resume);
// The operand's bytes [offset, offset + size).
grpc::ByteBuffer make_large_chunk(SendBuffers& buffers, const LargeMatrix& matrix, int64_t matrix_bytes, int64_t offset,
                                  int64_t size);
grpc::ByteBuffer make_large_commit();

enum class LargeStep : uint8_t { kNothing, kAccepted, kProgress, kFactorChunk, kSummary };
enum class LargeFactor : uint8_t { kUnknown, kValues, kLeft, kRight, kLast = kRight };

// One message of the server. Only the members of its step are meaningful.
struct LargeReply {
  LargeStep step = LargeStep::kNothing;
  int64_t chunk_bytes = 0;  // kAccepted, and so the next four
  int64_t operand_bytes = 0, result_bytes = 0;
  std::string resume = {};
  double predicted_seconds = 0;
  LargeProgress progress = {};                 // kProgress; elapsed_seconds are the server's
  LargeFactor factor = LargeFactor::kUnknown;  // kFactorChunk, and so the next three
  int64_t offset = 0;
  wire::ReceivedBytes data = {};
  uint32_t crc32c = 0;
  LargeReport report = {};  // kSummary, and so the next line
  int64_t values = 0, left_columns = 0, right_rows = 0;
};

// Reads a DecomposeLargeResponse into *reply. False: it is no protobuf.
bool read_large_reply(grpc::ByteBuffer& message, LargeReply* reply);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_LARGE_WIRE_H_
