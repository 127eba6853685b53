// Rows of a tall matrix that stays where it lies, of any type and order. Some of them at a time go to a block of
// doubles, and back.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_OPERAND_ROWS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_OPERAND_ROWS_H_

#include <cstdint>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::host {

// 2^exponent as two factors, neither of which over- or underflows for the exponent of any column.
struct ExactScale {
  double first = 1, second = 1;
};
ExactScale exact_scale(int exponent);

// Where the tall matrix is: `problem` and what is stored, or, adjoint, the adjoint of a wide one.
// E: double for f32 and f64, std::complex<double> for c64 and c128. Thread-safe.
template <class E>
class OperandRows {
 public:
  OperandRows(const Problem& problem, bool adjoint);

  // b(i, j) := T(rows[i], columns[j]) scale[j], T the tall matrix at `matrix`. columns null: 0, 1, ...; scale null: 1.
  // False: some of it is not finite.
  bool gather(const void* matrix, const int32_t* rows, const int64_t* columns, const ExactScale* scale,
              large::LargeView<E> b) const;
  // T(rows[i], j) := b(i, j), rounded once; a zero is +0.
  void scatter(large::LargeView<E> b, const int32_t* rows, void* matrix) const;

 private:
  template <class S>
  bool gather_from(const S* source, const int32_t* rows, const int64_t* columns, const ExactScale* scale,
                   large::LargeView<E> b) const;
  template <class S>
  void scatter_to(large::LargeView<E> b, const int32_t* rows, S* target) const;

  const bool single_;   // elements of half the size of E
  const bool adjoint_;  // they are conjugated on the way
  int64_t row_stride_, col_stride_;
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_OPERAND_ROWS_H_
