// Messages put together of fields written here and of bytes that stay where they are.
#ifndef SVDSERVE_SERVER_RPC_CODEC_MESSAGE_BUILDER_H_
#define SVDSERVE_SERVER_RPC_CODEC_MESSAGE_BUILDER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstddef>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"

namespace svdserve::server {

// A serialized message in the making: slices of memory that is shared, and what was written since the last of them.
class MessageBuilder {
 public:
  // Bytes of a serialized message: fields of this one.
  void append(absl::string_view fields) { tail_.append(fields.data(), fields.size()); }
  // A bytes field: [begin, end) of `slice`, which is shared, not copied, unless it is short.
  void append_slice(int field, const grpc::Slice& slice, size_t begin, size_t end);
  // An embedded message.
  void append_message(int field, MessageBuilder message);

  size_t size() const { return slices_bytes_ + tail_.size(); }
  grpc::ByteBuffer build();

 private:
  void share(grpc::Slice slice);
  void flush_tail();

  absl::InlinedVector<grpc::Slice, 2> slices_;
  size_t slices_bytes_ = 0;
  std::string tail_;  // what follows the slices
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_MESSAGE_BUILDER_H_
