// Reading whole messages of gRPC's by their fields (wire/fields.h).
#ifndef SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_
#define SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstddef>
#include <limits>

#include "wire/fields.h"

namespace svdserve::server {

// Messages without operands are much shorter than this. Longer ones are rejected unread.
inline constexpr int kMaxSmallBytes = 64 * 1024;

// An embedded message without operands. One of more than kMaxSmallBytes is skipped, and *too_long set.
template <class Field>
bool read_small(wire::CodedInputStream* in, bool* too_long, Field field) {
  int bytes = 0;
  if (!wire::read_length(in, &bytes)) return false;
  if (bytes <= kMaxSmallBytes) return wire::read_fields_of(in, bytes, field);
  *too_long = true;
  return in->Skip(bytes);
}

// Reads a whole message and lets go of the transport's slices, so that a payload is not in memory twice for longer than
// this.
template <class Field>
bool read_whole(grpc::ByteBuffer* bytes, Field field) {
  bool good = false;
  {
    const size_t length = bytes->Length();
    grpc::ProtoBufferReader reader(bytes);
    if (reader.status().ok() && length <= static_cast<size_t>(std::numeric_limits<int>::max())) {
      wire::CodedInputStream in(&reader);
      const auto limit = in.PushLimit(static_cast<int>(length));  // so that BytesUntilLimit() is always known
      good = wire::read_fields(&in, [&](uint32_t tag) { return field(&in, tag); });
      in.PopLimit(limit);
    }
  }
  bytes->Clear();
  return good;
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_
