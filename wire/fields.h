// Fields of messages, read and written one by one. Payloads never go through a message's string, a limit is checked
// before what it bounds is copied, and unknown fields are skipped, not kept.
//
// Functions that read return false where the bytes are no message.
#ifndef SVDSERVE_WIRE_FIELDS_H_
#define SVDSERVE_WIRE_FIELDS_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace svdserve::wire {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;
using google::protobuf::io::CodedOutputStream;

// The types of fields on the wire.
inline constexpr auto kVarint = WireFormatLite::WIRETYPE_VARINT;
inline constexpr auto kFixed32 = WireFormatLite::WIRETYPE_FIXED32;
inline constexpr auto kFixed64 = WireFormatLite::WIRETYPE_FIXED64;
inline constexpr auto kEmbedded = WireFormatLite::WIRETYPE_LENGTH_DELIMITED;  // bytes, strings and messages

constexpr uint32_t tag_of(int field, WireFormatLite::WireType type) { return WireFormatLite::MakeTag(field, type); }

// --- reading ------------------------------------------------------------------------------------

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

// The length of the content that follows. The stream has a limit (PushLimit), and holds all of it.
inline bool read_length(CodedInputStream* in, int* bytes) {
  uint32_t length = 0;
  if (!in->ReadVarint32(&length)) return false;
  *bytes = static_cast<int>(length);
  return *bytes >= 0 && *bytes <= in->BytesUntilLimit();
}

// A string or bytes field.
inline bool read_bytes(CodedInputStream* in, std::string* value) {
  int bytes = 0;
  return read_length(in, &bytes) && in->ReadString(value, bytes);
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

// --- writing ------------------------------------------------------------------------------------

// Appends the head of an embedded field. Its content, `bytes` bytes, follows.
inline void append_head(std::string* to, int field, size_t bytes) {
  uint8_t buffer[15];  // a tag of at most 5 bytes and a length of at most 10
  uint8_t* end = CodedOutputStream::WriteVarint32ToArray(tag_of(field, kEmbedded), buffer);
  end = CodedOutputStream::WriteVarint64ToArray(bytes, end);
  to->append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(end - buffer));
}

}  // namespace svdserve::wire
#endif  // SVDSERVE_WIRE_FIELDS_H_
