// An orthonormal eigenbasis of a Hermitian matrix: where a warm start of the Jacobi sweeps comes from.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_HERMITIAN_EIGENBASIS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_HERMITIAN_EIGENBASIS_H_

#include <complex>

#include "engine/algorithms/large/factor_backend.h"
#include "engine/backends/host/base/factor_threads.h"

namespace svdserve::host {

// See eigenbasis() in algorithms/large/factor_backend.h.
bool hermitian_eigenbasis(const FactorThreads& threads, factor::FactorView<double> g, factor::FactorView<double> v);
bool hermitian_eigenbasis(const FactorThreads& threads, factor::FactorView<std::complex<double>> g,
                          factor::FactorView<std::complex<double>> v);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_DENSE_HERMITIAN_EIGENBASIS_H_
