// Code that the writers and readers of messages share: enumerations of the contract, and fields written by hand.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_
#define SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "client/cpp/types.h"
#include "svdserve/v1/svd_service.pb.h"

namespace svdserve::client::internal {

v1::DataType to_proto(DataType t);
v1::MemoryOrder to_proto(MemoryOrder o);
v1::Method to_proto(Method m);
v1::Vectors to_proto(Vectors v);
Method from_proto(v1::Method m);
// Never kOk: a reply names a matrix's status only where it is not OK.
MatrixStatus from_proto(v1::MatrixStatus s);

void append_varint(std::string* s, uint64_t value);
// The head of a length-delimited field whose content, `size` bytes, follows.
void append_field_head(std::string* s, int field, size_t size);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_
