// The operand of a decomposition: a batch of equally shaped dense matrices. Values only, no ownership.
#ifndef SVDSERVE_ENGINE_PROBLEM_H_
#define SVDSERVE_ENGINE_PROBLEM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace svdserve {

// Element type. Complex elements are pairs (real, imaginary) of the real type, as std::complex and NumPy store them.
enum class DType : uint8_t { kF32, kF64, kC64, kC128, kLast = kC128 };

// How numbers of an operand lie in memory. Narrow ones are operands of kF32 and kC64 alone, and are converted exactly
// (engine/core/widen.h) where a device reads them. Everything after is as for operands of floats.
enum class Storage : uint8_t {
  kNative,  // as the element type says
  kF16,     // IEEE binary16
  kBF16,    // the upper half of a binary32
  kI16,     // two's complement integers, times 2^exponent
  kLast = kI16
};
// Exponents of kI16: those by which every integer is a normal float.
inline constexpr int32_t kLeastExponent = -126, kLargestExponent = 112;

// How the elements of one matrix follow each other. The matrices of a batch follow each other without gaps.
enum class Order : uint8_t { kRowMajor, kColumnMajor, kLast = kColumnMajor };

constexpr bool is_complex(DType t) { return t == DType::kC64 || t == DType::kC128; }

// Bytes of one element.
constexpr size_t element_bytes(DType t) { return t == DType::kF32 ? 4 : t == DType::kC128 ? 16 : 8; }

// Bytes of one singular value: the real type that belongs to `t`.
constexpr size_t value_bytes(DType t) { return t == DType::kF32 || t == DType::kC64 ? 4 : 8; }

constexpr const char* name(DType t) {
  switch (t) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kC64:
      return "c64";
    case DType::kC128:
      return "c128";
  }
  return "?";
}

// Element types of operands by name: a DType and a Storage.
enum class OperandType : uint8_t { kF32, kF64, kC64, kC128, kF16, kBF16, kC32, kI16, kCI16, kLast = kCI16 };
struct OperandTypeTraits {
  const char* name;
  DType dtype;
  Storage storage;
};
inline constexpr OperandTypeTraits kOperandTypes[] = {
    {"f32", DType::kF32, Storage::kNative}, {"f64", DType::kF64, Storage::kNative},
    {"c64", DType::kC64, Storage::kNative}, {"c128", DType::kC128, Storage::kNative},
    {"f16", DType::kF32, Storage::kF16},    {"bf16", DType::kF32, Storage::kBF16},
    {"c32", DType::kC64, Storage::kF16},    {"i16", DType::kF32, Storage::kI16},
    {"ci16", DType::kC64, Storage::kI16},
};
constexpr const OperandTypeTraits& traits_of(OperandType t) { return kOperandTypes[static_cast<size_t>(t)]; }
constexpr const char* name(OperandType t) { return traits_of(t).name; }

// The shape of every matrix of a batch. rows, cols >= 1.
struct Problem {
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF64;  // of the computation, and so of results
  Order order = Order::kRowMajor;
  Storage storage = Storage::kNative;
  int32_t exponent = 0;  // of Storage::kI16

  friend bool operator==(const Problem&, const Problem&) = default;
};

// k = min(m, n): the number of singular values of one matrix.
constexpr int64_t values_per_matrix(const Problem& p) { return std::min(p.rows, p.cols); }

// Bytes of one matrix in the type of the computation, and of all its singular values. The sizes have passed make_plan(), so the products cannot
// overflow.
constexpr size_t matrix_bytes(const Problem& p) {
  return static_cast<size_t>(p.rows) * static_cast<size_t>(p.cols) * element_bytes(p.dtype);
}
constexpr size_t values_bytes(const Problem& p) {
  return static_cast<size_t>(values_per_matrix(p)) * value_bytes(p.dtype);
}

// Bytes of one matrix as it is stored, which is as it comes and as it is copied to a device.
constexpr bool is_narrow(const Problem& p) { return p.storage != Storage::kNative; }
constexpr size_t stored_bytes(const Problem& p) { return matrix_bytes(p) / (is_narrow(p) ? 2 : 1); }

// The same matrices once they are converted.
constexpr Problem widened(Problem p) {
  p.storage = Storage::kNative;
  p.exponent = 0;
  return p;
}

// The name of the operands' type.
constexpr const char* operand_name(const Problem& p) {
  for (const OperandTypeTraits& t : kOperandTypes) {
    if (t.dtype == p.dtype && t.storage == p.storage) return t.name;
  }
  return "?";
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_PROBLEM_H_
