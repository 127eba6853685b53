// Fields of messages, read and written one by one. Payloads never go through a message's string, a limit is checked
// before what it bounds is copied, and unknown fields are skipped, not kept.
//
// Functions that read return false where the bytes are no message, and take just what libprotobuf's messages take.
#ifndef SVDSERVE_WIRE_FIELDS_H_
#define SVDSERVE_WIRE_FIELDS_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

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

// The tag of a field: of at most 5 bytes, as libprotobuf's messages have it. CodedInputStream itself takes longer ones.
inline bool read_tag(CodedInputStream* in, uint32_t* tag) {
  const int begin = in->CurrentPosition();
  uint64_t number = 0;
  if (!in->ReadVarint64(&number)) return false;
  *tag = static_cast<uint32_t>(number);
  return in->CurrentPosition() - begin <= 5 && WireFormatLite::GetTagFieldNumber(*tag) != 0;
}

// The length of the content that follows, likewise. The stream has a limit (PushLimit), and holds all of it.
inline bool read_length(CodedInputStream* in, int* bytes) {
  const int begin = in->CurrentPosition();
  uint64_t length = 0;
  if (!in->ReadVarint64(&length) || in->CurrentPosition() - begin > 5) return false;
  if (std::cmp_greater(length, in->BytesUntilLimit())) return false;
  *bytes = static_cast<int>(length);
  return true;
}

// A string or bytes field.
inline bool read_bytes(CodedInputStream* in, std::string* value) {
  int bytes = 0;
  return read_length(in, &bytes) && in->ReadString(value, bytes);
}

// Reads fields to the limit of the stream: field(tag) reads one.
template <class Field>
bool read_fields(CodedInputStream* in, Field field) {
  while (in->BytesUntilLimit() != 0) {
    uint32_t tag = 0;
    if (!read_tag(in, &tag) || !field(tag)) return false;
  }
  return true;
}

// The fields of the next `bytes` bytes.
template <class Field>
bool read_fields_of(CodedInputStream* in, int bytes, Field field) {
  const auto limit = in->PushLimit(bytes);
  const bool good = in->IncrementRecursionDepth() && read_fields(in, field);
  in->DecrementRecursionDepth();
  in->PopLimit(limit);
  return good;
}

template <class Field>
bool read_embedded(CodedInputStream* in, Field field) {
  int bytes = 0;
  return read_length(in, &bytes) && read_fields_of(in, bytes, field);
}

inline bool skip_group(CodedInputStream* in, uint32_t tag, CodedOutputStream* copy);

// Skips the content of a field that is unknown. `copy`: gets the whole field, if not null.
inline bool skip_field(CodedInputStream* in, uint32_t tag, CodedOutputStream* copy = nullptr) {
  if (copy != nullptr) copy->WriteTag(tag);
  const WireFormatLite::WireType type = WireFormatLite::GetTagWireType(tag);
  if (type == WireFormatLite::WIRETYPE_START_GROUP) return skip_group(in, tag, copy);
  if (type == kVarint) {
    uint64_t number = 0;
    if (!in->ReadVarint64(&number)) return false;
    if (copy != nullptr) copy->WriteVarint64(number);
    return true;
  }
  int bytes = type == kFixed32 ? 4 : 8;
  if (type == kEmbedded) {
    if (!read_length(in, &bytes)) return false;
    if (copy != nullptr) copy->WriteVarint32(static_cast<uint32_t>(bytes));
  } else if (type != kFixed32 && type != kFixed64) {
    return false;
  }
  if (copy == nullptr) return in->Skip(bytes);
  std::string content;
  if (!in->ReadString(&content, bytes)) return false;
  copy->WriteString(content);
  return true;
}

// The rest of a group, an older kind of embedded message: fields up to the tag of its end.
inline bool skip_group(CodedInputStream* in, uint32_t tag, CodedOutputStream* copy) {
  const uint32_t end = tag_of(WireFormatLite::GetTagFieldNumber(tag), WireFormatLite::WIRETYPE_END_GROUP);
  bool good = in->IncrementRecursionDepth();
  uint32_t inner = 0;
  while (good && (good = read_tag(in, &inner)) && inner != end) good = skip_field(in, inner, copy);
  in->DecrementRecursionDepth();
  if (good && copy != nullptr) copy->WriteTag(end);
  return good;
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
