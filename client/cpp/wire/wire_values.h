// Enumerations of the client on the wire: where their numbers begin (wire/enums.h).
#ifndef SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_
#define SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_

#include <cstdint>
#include <limits>
#include <type_traits>

#include "client/cpp/large.h"
#include "client/cpp/types.h"
#include "client/cpp/wire/large_wire.h"
#include "svdserve/v1/svd_service.pb.h"
#include "wire/enums.h"

namespace svdserve::wire {

template <>
inline constexpr int kFirstNumber<client::DataType> = 1;
static_assert(has_numbers<client::DataType>(v1::DATA_TYPE_F32, v1::DataType_MAX));

template <>
inline constexpr int kFirstNumber<client::MemoryOrder> = 1;
static_assert(has_numbers<client::MemoryOrder>(v1::MEMORY_ORDER_ROW_MAJOR, v1::MemoryOrder_MAX));

template <>
inline constexpr int kFirstNumber<client::Method> = 1;
static_assert(has_numbers<client::Method>(v1::METHOD_AUTO, v1::Method_MAX));

// kSvd is never sent: it is what Decompose computes.
template <>
inline constexpr int kFirstNumber<client::Problem> = 0;
static_assert(has_numbers<client::Problem>(v1::EIGEN_PROBLEM_UNSPECIFIED, v1::EigenProblem_MAX));

template <>
inline constexpr int kFirstNumber<client::Vectors> = 1;
static_assert(has_numbers<client::Vectors>(v1::VECTORS_NONE, v1::Vectors_MAX));

template <>
inline constexpr int kFirstNumber<client::CertificateScope> = 1;
static_assert(has_numbers<client::CertificateScope>(v1::CERTIFICATE_SCOPE_NONE, v1::CertificateScope_MAX));

template <>
inline constexpr int kFirstNumber<client::MatrixStatus> = 0;
static_assert(has_numbers<client::MatrixStatus>(v1::MATRIX_STATUS_UNSPECIFIED, v1::MatrixStatus_MAX));

template <>
inline constexpr int kFirstNumber<client::PivotStrategy> = 0;
static_assert(has_numbers<client::PivotStrategy>(v1::PIVOT_STRATEGY_UNSPECIFIED, v1::PivotStrategy_MAX));

template <>
inline constexpr int kFirstNumber<client::BlockVariant> = 0;
static_assert(has_numbers<client::BlockVariant>(v1::BLOCK_VARIANT_UNSPECIFIED, v1::BlockVariant_MAX));

template <>
inline constexpr int kFirstNumber<client::LargeProblem> = 0;
static_assert(has_numbers<client::LargeProblem>(v1::LARGE_PROBLEM_UNSPECIFIED, v1::LargeProblem_MAX));

template <>
inline constexpr int kFirstNumber<client::Triangle> = 1;
static_assert(has_numbers<client::Triangle>(v1::TRIANGLE_LOWER, v1::Triangle_MAX));

template <>
inline constexpr int kFirstNumber<client::LargeStage> = 1;
static_assert(has_numbers<client::LargeStage>(v1::LARGE_STAGE_UPLOAD, v1::LargeStage_MAX));

template <>
inline constexpr int kFirstNumber<client::internal::LargeFactor> = 0;
static_assert(has_numbers<client::internal::LargeFactor>(v1::LARGE_FACTOR_UNSPECIFIED, v1::LargeFactor_MAX));

}  // namespace svdserve::wire

namespace svdserve::client::internal {

// The proto's value for one of the client.
template <class Proto, class E>
constexpr Proto to_proto(E value) {
  return static_cast<Proto>(wire::number_of(value));
}

// The value of a number that a server sent. One that this client does not know is kept as the number that it is: the
// server may be newer. 0, and a number that E cannot hold, become `absent`.
template <class E>
constexpr E kept_value(int number, E absent) {
  const int64_t value = int64_t{number} - wire::kFirstNumber<E>;
  return number <= 0 || value > std::numeric_limits<std::underlying_type_t<E>>::max() ? absent : static_cast<E>(value);
}

// The status of a matrix in a list of exceptions: never kOk.
constexpr MatrixStatus status_of(int number) {
  return number == 0 ? MatrixStatus::kUnknown : wire::value_of<MatrixStatus>(number).value_or(MatrixStatus::kUnknown);
}

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_WIRE_VALUES_H_
