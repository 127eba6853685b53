// Hermitian matrices, one triangle of which is read; of the diagonal the real parts are.
#if defined(SVDSERVE_ENGINE_CORE_HERMITIAN_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_CORE_HERMITIAN_H_
#undef SVDSERVE_ENGINE_CORE_HERMITIAN_H_
#else
#define SVDSERVE_ENGINE_CORE_HERMITIAN_H_
#endif

#include "engine/core/strided.h"

SVD_KERNEL_BEGIN

// x without its imaginary part, which may be anything.
template <class E>
SVD_HD E real_part(E x) {
  if constexpr (E::kComplex) x.im = typename E::Lane(0);
  return x;
}

// Element (i, j) of the matrix whose triangle at(row, col) reads.
template <class E, class At>
SVD_HD E hermitian_element(At at, bool upper, int i, int j) {
  if (i == j) return real_part(at(i, j));
  return upper == (i < j) ? at(i, j) : conj(at(j, i));
}

// An operand in natural storage: all of it, or a Hermitian one by its triangle.
template <class E>
struct OperandMatrix {
  StridedMatrix<E, const char> at;
  bool hermitian = false, upper = false;

  SVD_HD E operator()(int i, int j) const { return hermitian ? hermitian_element<E>(at, upper, i, j) : at(i, j); }
};

SVD_KERNEL_END

#endif
