// The operand of a decomposition: a batch of equally shaped dense matrices. Values only, no ownership.
#ifndef SVDSERVE_ENGINE_PROBLEM_H_
#define SVDSERVE_ENGINE_PROBLEM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace svdserve {

// Element type. Complex elements are pairs (real, imaginary) of the real type, as std::complex and NumPy store them.
enum class DType : uint8_t { kF32, kF64, kC64, kC128, kLast = kC128 };

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

// The shape of every matrix of a batch. rows, cols >= 1.
struct Problem {
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF64;
  Order order = Order::kRowMajor;

  friend bool operator==(const Problem&, const Problem&) = default;
};

// k = min(m, n): the number of singular values of one matrix.
constexpr int64_t values_per_matrix(const Problem& p) { return std::min(p.rows, p.cols); }

// Bytes of one matrix, and of all its singular values. The sizes have passed make_plan(), so the products cannot
// overflow.
constexpr size_t matrix_bytes(const Problem& p) {
  return static_cast<size_t>(p.rows) * static_cast<size_t>(p.cols) * element_bytes(p.dtype);
}
constexpr size_t values_bytes(const Problem& p) {
  return static_cast<size_t>(values_per_matrix(p)) * value_bytes(p.dtype);
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_PROBLEM_H_
