// Reading messages field by field. Payloads never go through a message's string, limits are checked before anything is
// copied, and unknown fields are skipped, not kept.
//
// The functions return false where the bytes are no message.
#ifndef SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_
#define SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace svdserve::server {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// Messages without operands are much shorter than this. Longer ones are rejected unread.
inline constexpr int kMaxSmallBytes = 64 * 1024;

constexpr uint32_t tag_of(int field, WireFormatLite::WireType type) { return WireFormatLite::MakeTag(field, type); }

// An integer, a bool or an enumeration, with protobuf's conversions.
template <class T>
bool read_varint(CodedInputStream* in, T* value) {
  uint64_t number = 0;
  if (!in->ReadVarint64(&number)) return false;
  *value = static_cast<T>(number);
  return true;
}

inline bool read_double(CodedInputStream* in, double* value) {
  uint64_t bits = 0;
  if (!in->ReadLittleEndian64(&bits)) return false;
  *value = std::bit_cast<double>(bits);
  return true;
}

// The length of what follows, which the message holds whole.
inline bool read_length(CodedInputStream* in, int* bytes) {
  uint32_t length = 0;
  if (!in->ReadVarint32(&length)) return false;
  *bytes = static_cast<int>(length);
  return *bytes >= 0 && *bytes <= in->BytesUntilLimit();
}

// Reads fields to the end of a message: field(tag) reads one.
template <class Field>
bool read_fields(CodedInputStream* in, Field field) {
  while (const uint32_t tag = in->ReadTag()) {
    if (!field(tag)) return false;
  }
  return in->ConsumedEntireMessage();
}

// The fields of the next `bytes` bytes.
template <class Field>
bool read_fields_of(CodedInputStream* in, int bytes, Field field) {
  const auto limit = in->PushLimit(bytes);
  const bool good = read_fields(in, field);
  in->PopLimit(limit);
  return good;
}

template <class Field>
bool read_embedded(CodedInputStream* in, Field field) {
  int bytes = 0;
  return read_length(in, &bytes) && read_fields_of(in, bytes, field);
}

// An embedded message without operands. One of more than kMaxSmallBytes is skipped, and *too_long set.
template <class Field>
bool read_small(CodedInputStream* in, bool* too_long, Field field) {
  int bytes = 0;
  if (!read_length(in, &bytes)) return false;
  if (bytes <= kMaxSmallBytes) return read_fields_of(in, bytes, field);
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
      CodedInputStream in(&reader);
      const auto limit = in.PushLimit(static_cast<int>(length));  // so that BytesUntilLimit() is always known
      good = read_fields(&in, [&](uint32_t tag) { return field(&in, tag); });
      in.PopLimit(limit);
    }
  }
  bytes->Clear();
  return good;
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_WIRE_READER_H_
