#include "server/rpc/codec/wire_enums.h"

#include "absl/strings/str_cat.h"

namespace svdserve::server {

std::optional<DType> to_dtype(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_F32:
      return DType::kF32;
    case v1::DATA_TYPE_F64:
      return DType::kF64;
    case v1::DATA_TYPE_C64:
      return DType::kC64;
    case v1::DATA_TYPE_C128:
      return DType::kC128;
    default:
      return std::nullopt;
  }
}

std::optional<Order> to_order(v1::MemoryOrder order) {
  switch (order) {
    case v1::MEMORY_ORDER_ROW_MAJOR:
      return Order::kRowMajor;
    case v1::MEMORY_ORDER_COLUMN_MAJOR:
      return Order::kColumnMajor;
    default:
      return std::nullopt;
  }
}

std::optional<Method> to_method(v1::Method method) {
  switch (method) {
    case v1::METHOD_UNSPECIFIED:
    case v1::METHOD_AUTO:
      return Method::kAuto;
    case v1::METHOD_BIDIAGONAL:
      return Method::kBidiagonal;
    case v1::METHOD_BISECTION:
      return Method::kBisection;
    case v1::METHOD_JACOBI:
      return Method::kJacobi;
    default:
      return std::nullopt;
  }
}

std::optional<Vectors> to_vectors(v1::Vectors vectors, Vectors unspecified) {
  switch (vectors) {
    case v1::VECTORS_UNSPECIFIED:
      return unspecified;
    case v1::VECTORS_NONE:
      return Vectors::kNone;
    case v1::VECTORS_THIN:
      return Vectors::kThin;
    case v1::VECTORS_FULL:
      return Vectors::kFull;
    default:
      return std::nullopt;
  }
}

std::optional<PivotStrategy> to_strategy(v1::PivotStrategy strategy) {
  switch (strategy) {
    case v1::PIVOT_STRATEGY_UNSPECIFIED:
      return PivotStrategy::kAuto;
    case v1::PIVOT_STRATEGY_RECURSIVE:
      return PivotStrategy::kRecursive;
    case v1::PIVOT_STRATEGY_MODIFIED_MODULUS:
      return PivotStrategy::kModifiedModulus;
    case v1::PIVOT_STRATEGY_ROUND_ROBIN:
      return PivotStrategy::kRoundRobin;
    case v1::PIVOT_STRATEGY_ROW_CYCLIC:
      return PivotStrategy::kRowCyclic;
    case v1::PIVOT_STRATEGY_COLUMN_CYCLIC:
      return PivotStrategy::kColumnCyclic;
    case v1::PIVOT_STRATEGY_REVERSE_ROW_CYCLIC:
      return PivotStrategy::kReverseRowCyclic;
    case v1::PIVOT_STRATEGY_REVERSE_COLUMN_CYCLIC:
      return PivotStrategy::kReverseColumnCyclic;
    default:
      return std::nullopt;
  }
}

std::optional<BlockVariant> to_variant(v1::BlockVariant variant) {
  switch (variant) {
    case v1::BLOCK_VARIANT_UNSPECIFIED:
      return BlockVariant::kAuto;
    case v1::BLOCK_VARIANT_BLOCK_ORIENTED:
      return BlockVariant::kBlockOriented;
    case v1::BLOCK_VARIANT_FULL_BLOCK:
      return BlockVariant::kFullBlock;
    default:
      return std::nullopt;
  }
}

std::string unknown(const char* what, int number) {
  return number == 0 ? absl::StrCat("must be set to a ", what) : absl::StrCat("unknown ", what, " ", number);
}

v1::Method to_wire(Method method) {
  switch (method) {
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

v1::MatrixStatus to_wire(MatrixStatus status) {
  switch (status) {
    case MatrixStatus::kOk:
      break;
    case MatrixStatus::kNonFinite:
      return v1::MATRIX_STATUS_NON_FINITE;
    case MatrixStatus::kNotConverged:
      return v1::MATRIX_STATUS_NOT_CONVERGED;
    case MatrixStatus::kOutOfRange:
      return v1::MATRIX_STATUS_OUT_OF_RANGE;
  }
  return v1::MATRIX_STATUS_UNSPECIFIED;
}

v1::LargeStage to_wire(LargeStage stage) {
  switch (stage) {
    case LargeStage::kPrepare:
      return v1::LARGE_STAGE_PREPARE;
    case LargeStage::kPrecondition:
      return v1::LARGE_STAGE_PRECONDITION;
    case LargeStage::kWarmStart:
      return v1::LARGE_STAGE_WARM_START;
    case LargeStage::kSweep:
      return v1::LARGE_STAGE_SWEEP;
    case LargeStage::kFinish:
      return v1::LARGE_STAGE_FINISH;
  }
  return v1::LARGE_STAGE_UNSPECIFIED;
}

}  // namespace svdserve::server
