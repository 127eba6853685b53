// From an operand of any type and order to a column-major matrix of doubles, and back.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_LARGE_CONVERSION_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_LARGE_CONVERSION_H_

#include <complex>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// See load() and store() in large_backend.h. E: double for f32 and f64, std::complex<double> for c64 and c128.
template <class E>
large::LoadReport load_operand(const LargeThreads& threads, const void* matrix, const Problem& problem, bool adjoint,
                               large::LargeView<E> a);
template <class E>
void store_result(const LargeThreads& threads, large::LargeView<E> a, bool adjoint, void* matrix,
                  const Problem& problem);

// Finds the first entry that is not finite, in the order of storage, of an operand that has one.
large::LoadReport find_fault(const void* matrix, const Problem& problem);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_LARGE_CONVERSION_H_
