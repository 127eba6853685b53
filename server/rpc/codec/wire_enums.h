// The wire's enumerations and the engine's, one into the other. Nothing: the wire's number names none that is known.
#ifndef SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_
#define SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_

#include <svdserve/v1/svd_service.pb.h>

#include <optional>
#include <string>

#include "engine/large_engine.h"
#include "engine/options.h"
#include "engine/problem.h"
#include "engine/result.h"

namespace svdserve::server {

std::optional<DType> to_dtype(v1::DataType type);
std::optional<Order> to_order(v1::MemoryOrder order);
std::optional<Method> to_method(v1::Method method);
// UNSPECIFIED is `unspecified`.
std::optional<Vectors> to_vectors(v1::Vectors vectors, Vectors unspecified);
std::optional<PivotStrategy> to_strategy(v1::PivotStrategy strategy);
std::optional<BlockVariant> to_variant(v1::BlockVariant variant);

// The error text for a number that none of these knows: "unknown method 7", or, of 0, that the field must be set.
std::string unknown(const char* what, int number);

v1::Method to_wire(Method method);
// UNSPECIFIED: all is well.
v1::MatrixStatus to_wire(MatrixStatus status);
v1::LargeStage to_wire(LargeStage stage);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_
