// Messages of DecomposeLarge, to values and back. Payloads are copied once on their way in, from the transport's slices
// into the operand, and not at all on their way out.
#ifndef SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_
#define SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/error.h"
#include "server/large/large_request.h"

namespace svdserve::server {

// Bytes of a message that are still the transport's.
class ReceivedBytes {
 public:
  ReceivedBytes() = default;
  // `count` bytes from `begin` on of what `slices` hold together.
  ReceivedBytes(std::vector<grpc::Slice> slices, size_t begin, size_t count)
      : slices_(std::move(slices)), begin_(begin), count_(count) {}

  size_t size() const { return count_; }
  // Copies them to `to` and returns their CRC-32C.
  uint32_t copy_to(char* to) const;

 private:
  std::vector<grpc::Slice> slices_;
  size_t begin_ = 0;
  size_t count_ = 0;
};

struct DecodedLarge {
  enum class Step { kNone, kOpen, kChunk, kCommit };
  Step step = Step::kNone;  // kNone: `error` says why
  Error error;
  LargeOpen open;
  // Fields of a chunk.
  int64_t offset = 0;
  uint32_t checksum = 0;
  ReceivedBytes data;
};

// Lets go of *message. One of more than `max_bytes` is rejected unread. Does not throw where memory is short: that is
// an error as well.
DecodedLarge decode_large_request(grpc::ByteBuffer* message, size_t max_bytes);

// A DecomposeLargeResponse; of a chunk the bytes stay where they are, and are kept alive by the message.
grpc::ByteBuffer encode_large_response(const LargeReply& reply);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_LARGE_CODEC_H_
