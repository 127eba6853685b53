#include "client/cpp/wire/wire_values.h"

#include <google/protobuf/wire_format_lite.h>

namespace svdserve::client::internal {

using google::protobuf::internal::WireFormatLite;

v1::DataType to_proto(DataType t) {
  switch (t) {
    case DataType::kF32:
      return v1::DATA_TYPE_F32;
    case DataType::kF64:
      return v1::DATA_TYPE_F64;
    case DataType::kC64:
      return v1::DATA_TYPE_C64;
    case DataType::kC128:
      return v1::DATA_TYPE_C128;
  }
  return v1::DATA_TYPE_UNSPECIFIED;
}

v1::MemoryOrder to_proto(MemoryOrder o) {
  return o == MemoryOrder::kRowMajor ? v1::MEMORY_ORDER_ROW_MAJOR : v1::MEMORY_ORDER_COLUMN_MAJOR;
}

v1::Method to_proto(Method m) {
  switch (m) {
    case Method::kAuto:
      return v1::METHOD_AUTO;
    case Method::kBidiagonal:
      return v1::METHOD_BIDIAGONAL;
    case Method::kBisection:
      return v1::METHOD_BISECTION;
    case Method::kJacobi:
      return v1::METHOD_JACOBI;
  }
  return v1::METHOD_UNSPECIFIED;
}

v1::Vectors to_proto(Vectors v) {
  switch (v) {
    case Vectors::kNone:
      return v1::VECTORS_NONE;
    case Vectors::kThin:
      return v1::VECTORS_THIN;
    case Vectors::kFull:
      return v1::VECTORS_FULL;
  }
  return v1::VECTORS_UNSPECIFIED;
}

Method from_proto(v1::Method m) {
  switch (m) {
    case v1::METHOD_BIDIAGONAL:
      return Method::kBidiagonal;
    case v1::METHOD_BISECTION:
      return Method::kBisection;
    case v1::METHOD_JACOBI:
      return Method::kJacobi;
    default:
      return Method::kAuto;
  }
}

MatrixStatus from_proto(v1::MatrixStatus s) {
  switch (s) {
    case v1::MATRIX_STATUS_NON_FINITE:
      return MatrixStatus::kNonFinite;
    case v1::MATRIX_STATUS_NOT_CONVERGED:
      return MatrixStatus::kNotConverged;
    case v1::MATRIX_STATUS_OUT_OF_RANGE:
      return MatrixStatus::kOutOfRange;
    default:
      return MatrixStatus::kUnknown;
  }
}

void append_varint(std::string* s, uint64_t value) {
  for (; value >= 0x80; value >>= 7) s->push_back(static_cast<char>(value | 0x80));
  s->push_back(static_cast<char>(value));
}

void append_field_head(std::string* s, int field, size_t size) {
  append_varint(s, WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  append_varint(s, size);
}

}  // namespace svdserve::client::internal
