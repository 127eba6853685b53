// The memory of shear_block.h, for its callers.
//
// Column j of a matrix is two planes, its real and its imaginary parts. A plane has the lines on top at 0 .. half - 1 and
// those at the bottom from half + kShearAlignment on. The places between and behind them are for a step's stores. Columns
// are in the order of the seats. W and W' are in the order of the lines at one side: W has rows, W' columns of lines.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_LAYOUT_H_
#define SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_LAYOUT_H_

#include <cstddef>
#include <cstdint>

namespace svdserve {

// half is a multiple of it, so that the bits do not depend on the number of lanes.
inline constexpr int kShearAlignment = 8;
// half for a number of lines.
constexpr int shear_half(int lines) {
  return ((lines + 1) / 2 + kShearAlignment - 1) / kShearAlignment * kShearAlignment;
}

enum class ShearMatrix : uint8_t { kP, kR, kC, kW, kInverse };
inline constexpr int kShearMatrices = 5;
inline constexpr ShearMatrix kShearMatrixList[kShearMatrices] = {ShearMatrix::kP, ShearMatrix::kR, ShearMatrix::kC,
                                                                 ShearMatrix::kW, ShearMatrix::kInverse};

struct ShearBlockCounts {
  int64_t transforms = 0;  // pairs whose T is not the identity
  int64_t proper = 0;      // of these, those with a diagonal of T that is not 1 when rounded
};

// Memory of the caller. Each matrix is there twice; the first of the two is input and output.
template <class T>
struct ShearBlock {
  int half = 0;
  T* matrices = nullptr;
  T* numbers = nullptr;
  T* transforms = nullptr;
  T* lines = nullptr;

  // T that a block of this size needs.
  static constexpr size_t memory(int half) {
    const auto h = static_cast<size_t>(half);
    return 2 * kShearMatrices * 2 * h * 2 * (2 * h + 2 * kShearAlignment) + 26 * h;
  }
  // A block in memory of so many T, aligned to a cache line.
  ShearBlock(int half_of_lines, T* memory_of_block) : half(half_of_lines), matrices(memory_of_block) {
    numbers = matrices + static_cast<ptrdiff_t>(2) * kShearMatrices * matrix_size();
    transforms = numbers + 16 * half;
    lines = transforms + 8 * half;
  }
  constexpr int plane() const { return 2 * half + 2 * kShearAlignment; }
  constexpr int matrix_size() const { return 2 * half * 2 * plane(); }
  constexpr T* matrix(ShearMatrix m, int which) const {
    return matrices + static_cast<ptrdiff_t>(2 * static_cast<int>(m) + which) * matrix_size();
  }
  constexpr T* column(ShearMatrix m, int which, int seat) const {
    return matrix(m, which) + static_cast<ptrdiff_t>(seat) * 2 * plane();
  }
  // Where line i is in a plane, before and after a sweep.
  constexpr int place(int i) const { return i < half ? i : i + kShearAlignment; }
};

// The seat to which the line of a seat goes after a step. The first on top stays. The others on top move to the right, and
// the last of them down. Those at the bottom move to the left, and the first of them up.
constexpr int next_shear_seat(int half, int seat) {
  if (seat == 0) return 0;
  if (seat < half) return seat == half - 1 ? 2 * half - 1 : seat + 1;
  return seat == half ? 1 : seat - 1;
}

}  // namespace svdserve
#endif  // SVDSERVE_ENGINE_ALGORITHMS_GENERAL_SHEAR_BLOCK_LAYOUT_H_
