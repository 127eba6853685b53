// A dense matrix as tests handle it, and its way into and out of the engine's bytes.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_H_

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/problem.h"

namespace svdserve::numerics {

// Every element is a number of `dtype` held exactly in double: what a test computes from it, it computes from the
// matrix as stored. Column-major, leading dimension = rows. Real dtypes have imaginary parts of +0.
struct Matrix {
  Matrix() = default;
  Matrix(DType dtype, int64_t rows, int64_t cols)
      : rows(rows), cols(cols), dtype(dtype), elements(static_cast<size_t>(rows * cols)) {}

  std::complex<double>& at(int64_t i, int64_t j) { return elements[static_cast<size_t>(j * rows + i)]; }
  const std::complex<double>& at(int64_t i, int64_t j) const { return elements[static_cast<size_t>(j * rows + i)]; }
  int64_t values() const { return rows < cols ? rows : cols; }

  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kF64;
  std::vector<std::complex<double>> elements;
};

// Numbers of the real type that belongs to a dtype.
struct RealType {
  double unit_roundoff;  // u = 2^-24 or 2^-53
  double largest;        // largest finite number
  double smallest_normal;
  double smallest_denormal;
};
RealType real_type(DType dtype);

// Rounds every element to the matrix's dtype; drops imaginary parts where it is real.
void round_to_dtype(Matrix& a);

Matrix conjugate_transpose(const Matrix& a);

// The engine's bytes of `a`: matrix_bytes() of them, any alignment.
void store(const Matrix& a, Order order, void* out);

// `count` values of the real type that belongs to `dtype`, widened to double; any alignment.
std::vector<double> load_values(DType dtype, const void* values, int64_t count);

// The elements as C99 hexadecimal floats, a row a line after an empty one, so that a failure can be reproduced bit for
// bit.
std::string to_hex(const Matrix& a);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_MATRIX_H_
