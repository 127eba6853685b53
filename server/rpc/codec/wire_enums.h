// Enumerations of the engine and the server on the wire: where their numbers begin (wire/enums.h).
#ifndef SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_
#define SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_

#include <svdserve/v1/svd_service.pb.h>

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/large_engine.h"
#include "engine/options.h"
#include "engine/problem.h"
#include "engine/result.h"
#include "server/large/large_memory.h"
#include "server/large/large_request.h"
#include "server/respond/certificate.h"
#include "wire/enums.h"

namespace svdserve::server {

// The eigenvectors that a request asks for.
enum class Eigenvectors : uint8_t { kNone, kRight, kRightAndLeft, kLast = kRightAndLeft };

}  // namespace svdserve::server

namespace svdserve::wire {

template <>
inline constexpr int kFirstNumber<OperandType> = 1;
static_assert(has_numbers<OperandType>(v1::DATA_TYPE_F32, v1::DataType_MAX));

// Those of large matrices.
template <>
inline constexpr int kFirstNumber<DType> = 1;
static_assert(has_numbers<DType>(v1::DATA_TYPE_F32, v1::DATA_TYPE_C128));

template <>
inline constexpr int kFirstNumber<Order> = 1;
static_assert(has_numbers<Order>(v1::MEMORY_ORDER_ROW_MAJOR, v1::MemoryOrder_MAX));

template <>
inline constexpr int kFirstNumber<Method> = 1;
static_assert(has_numbers<Method>(v1::METHOD_AUTO, v1::Method_MAX));

template <>
inline constexpr int kFirstNumber<Vectors> = 1;
static_assert(has_numbers<Vectors>(v1::VECTORS_NONE, v1::Vectors_MAX));

// kSvd is never sent: it is what Decompose computes.
template <>
inline constexpr int kFirstNumber<Decomposition> = 0;
static_assert(has_numbers<Decomposition>(v1::EIGEN_PROBLEM_UNSPECIFIED, v1::EigenProblem_MAX));

template <>
inline constexpr int kFirstNumber<server::Eigenvectors> = 1;
static_assert(has_numbers<server::Eigenvectors>(v1::EIGENVECTORS_NONE, v1::Eigenvectors_MAX));

template <>
inline constexpr int kFirstNumber<PivotStrategy> = 0;
static_assert(has_numbers<PivotStrategy>(v1::PIVOT_STRATEGY_UNSPECIFIED, v1::PivotStrategy_MAX));

template <>
inline constexpr int kFirstNumber<BlockVariant> = 0;
static_assert(has_numbers<BlockVariant>(v1::BLOCK_VARIANT_UNSPECIFIED, v1::BlockVariant_MAX));

template <>
inline constexpr int kFirstNumber<server::CertificateScope> = 1;
static_assert(has_numbers<server::CertificateScope>(v1::CERTIFICATE_SCOPE_NONE, v1::CertificateScope_MAX));

// kOk is never sent.
template <>
inline constexpr int kFirstNumber<MatrixStatus> = 0;
static_assert(has_numbers<MatrixStatus>(v1::MATRIX_STATUS_UNSPECIFIED, v1::MatrixStatus_MAX));

template <>
inline constexpr int kFirstNumber<server::LargeProblem> = 0;
static_assert(has_numbers<server::LargeProblem>(v1::LARGE_PROBLEM_UNSPECIFIED, v1::LargeProblem_MAX));

template <>
inline constexpr int kFirstNumber<Triangle> = 1;
static_assert(has_numbers<Triangle>(v1::TRIANGLE_LOWER, v1::Triangle_MAX));

// The stages before these are the server's own.
template <>
inline constexpr int kFirstNumber<LargeStage> = v1::LARGE_STAGE_PREPARE;
static_assert(has_numbers<LargeStage>(v1::LARGE_STAGE_PREPARE, v1::LargeStage_MAX));

template <>
inline constexpr int kFirstNumber<server::LargeResult> = 1;
static_assert(has_numbers<server::LargeResult>(v1::LARGE_FACTOR_SINGULAR_VALUES, v1::LargeFactor_MAX));

}  // namespace svdserve::wire

namespace svdserve::server {

// The proto's value for one of the code.
template <class Proto, class E>
constexpr Proto to_wire(E value) {
  return static_cast<Proto>(wire::number_of(value));
}

// The words of an error for a number that no value has; `what`: such as "data type".
inline std::string unknown(const char* what, int number) {
  return number == 0 ? absl::StrCat("must be set to a ", what) : absl::StrCat("unknown ", what, " ", number);
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_WIRE_ENUMS_H_
