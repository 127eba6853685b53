// The only place where messages of the wire meet the values of the engine. Handlers see bytes and values, never
// messages.
//
// Payloads are copied once on their way in, from the transport's slices into one contiguous block, and not at all on
// their way out: the engine writes the singular values into the slice that the transport sends.
#ifndef SVDSERVE_SERVER_RPC_CODEC_H_
#define SVDSERVE_SERVER_RPC_CODEC_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "server/error.h"
#include "server/host_memory.h"
#include "server/metrics/recorder.h"
#include "server/request.h"

namespace svdserve::server {

// The memory of one request: the operands as received, and the slice that the reply's values are written into.
class WireMemory final : public RequestMemory {
 public:
  void* AllocateResults(size_t bytes) override;

  HostBlock operands;
  const grpc::Slice& values() const { return values_; }

 private:
  grpc::Slice values_;
};

// A request off the wire. Where `error` is not ok, `request` is not to be used; ids and labels are as good as known.
struct DecodedRequest {
  Error error;
  Request request;  // deadline and arrival are the handler's to set
  std::shared_ptr<WireMemory> memory;
  RequestLabels labels;  // rpc set
  // Of DecomposeStream alone:
  bool is_message = true;  // false: the bytes are no message of its type, so not even the id is known
  uint64_t request_id = 0;
  std::optional<absl::Duration> timeout;
};

// Both free the bytes of *message as soon as they are read. Neither checks what the validate stage checks. The operands
// are copied once, from the transport's slices into a block of `memory`.
DecodedRequest decode_request(grpc::ByteBuffer* message, HostMemory* memory);
DecodedRequest decode_stream_request(grpc::ByteBuffer* message, HostMemory* memory);

// What describes an answer besides its values.
struct ReplyShape {
  int64_t count = 0;
  int64_t values_per_matrix = 0;
};

// A DecomposeResponse. The answer is ok().
grpc::ByteBuffer encode_response(const Answer& answer, const ReplyShape& shape, const WireMemory& memory);
// A DecomposeStreamResponse with the answer or its error.
grpc::ByteBuffer encode_stream_response(uint64_t request_id, const Answer& answer, const ReplyShape& shape,
                                        const WireMemory* memory);

// A status with google.rpc details for the trailer grpc-status-details-bin.
grpc::Status to_status(const Error& error);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_H_
