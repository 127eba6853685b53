// Quadruple precision, 113 bits, where the compiler has it: what the published test matrices are generated in.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_QUADRUPLE_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_QUADRUPLE_H_

#include <cmath>

#include "tests/support/numerics/reference_jacobi.h"

namespace svdserve::numerics {

#if defined(__SIZEOF_FLOAT128__)
using Quadruple = __float128;

template <>
struct SquareRoot<Quadruple> {
  // One Newton step doubles the 64 bits of long double, whose exponents are the same.
  static Quadruple of(Quadruple x) {
    const Quadruple near = std::sqrt(static_cast<long double>(x));
    return near == 0 ? near : (near + x / near) / 2;
  }
};
#else
using Quadruple = long double;  // of such processors mostly the same format
#endif

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_QUADRUPLE_H_
