// From an operand of any type and order to a column-major matrix of doubles, and back.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_FACTOR_CONVERSION_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_FACTOR_CONVERSION_H_

#include <complex>

#include "engine/algorithms/large/factor_backend.h"
#include "engine/backends/host/base/factor_threads.h"

namespace svdserve::host {

// See load() and store() in factor_backend.h. E: double for f32 and f64, std::complex<double> for c64 and c128.
template <class E>
factor::LoadReport load_operand(const FactorThreads& threads, const void* matrix, const Problem& problem, bool adjoint,
                                factor::FactorView<E> a);
template <class E>
void store_result(const FactorThreads& threads, factor::FactorView<E> a, bool adjoint, void* matrix,
                  const Problem& problem);

// Finds the first entry that is not finite, in the order of storage, of an operand that has one.
factor::LoadReport find_fault(const void* matrix, const Problem& problem);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_FACTOR_CONVERSION_H_
