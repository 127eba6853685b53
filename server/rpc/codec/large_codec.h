// Messages of DecomposeLarge, to values and back. Payloads are copied once on their way in, from the transport's slices
// into the operand, and not at all on their way out.
#ifndef SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_
#define SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>

#include "server/error.h"
#include "server/large/large_request.h"
#include "wire/received_bytes.h"

namespace svdserve::server {

struct DecodedLarge {
  enum class Step { kNone, kOpen, kChunk, kCommit };
  Step step = Step::kNone;  // kNone: `error` says why
  Error error;
  LargeOpen open;
  // Fields of a chunk.
  int64_t offset = 0;
  uint32_t checksum = 0;
  wire::ReceivedBytes data;
};

// Lets go of *message. One of more than `max_bytes` is rejected unread. Does not throw where memory is short: that is
// an error as well.
DecodedLarge decode_large_request(grpc::ByteBuffer* message, size_t max_bytes);

// The checksum of a chunk's bytes, computed before the chunk is encoded. They are known by their place.
struct KnownChecksum {
  const char* data = nullptr;
  size_t bytes = 0;
  uint32_t value = 0;
};
KnownChecksum checksum_of(const LargeResultChunk& chunk);

// A DecomposeLargeResponse; of a chunk the bytes stay where they are, and are kept alive by the message. `known` spares
// the checksum where it is that of the chunk.
grpc::ByteBuffer encode_large_response(const LargeReply& reply, const KnownChecksum& known = {});

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_
