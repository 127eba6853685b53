// Reading messages field by field, so that payloads never go through a message's string.
#ifndef SVDSERVE_SERVER_RPC_WIRE_READER_H_
#define SVDSERVE_SERVER_RPC_WIRE_READER_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/message_lite.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace svdserve::server {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr uint32_t tag_of(int field, WireFormatLite::WireType type) { return WireFormatLite::MakeTag(field, type); }

// Reads the fields of an embedded message: field(tag) reads one and returns whether it could.
template <class Field>
bool read_fields(CodedInputStream* in, Field field) {
  while (const uint32_t tag = in->ReadTag()) {
    if (!field(tag)) return false;
  }
  return in->ConsumedEntireMessage();
}

template <class Field>
bool read_embedded(CodedInputStream* in, Field field) {
  uint32_t bytes = 0;
  if (!in->ReadVarint32(&bytes) || static_cast<int>(bytes) < 0 || static_cast<int>(bytes) > in->BytesUntilLimit()) {
    return false;
  }
  const auto limit = in->PushLimit(static_cast<int>(bytes));
  const bool good = read_fields(in, field);
  in->PopLimit(limit);
  return good;
}

// Embedded messages without operands: protobuf's own parser reads them.
inline bool read_small(CodedInputStream* in, google::protobuf::MessageLite* message) {
  uint32_t bytes = 0;
  std::string text;
  return in->ReadVarint32(&bytes) && static_cast<int>(bytes) >= 0 && static_cast<int>(bytes) <= in->BytesUntilLimit() &&
         in->ReadString(&text, static_cast<int>(bytes)) && message->MergeFromString(text);
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
#endif  // SVDSERVE_SERVER_RPC_WIRE_READER_H_
