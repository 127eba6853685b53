// An orthonormal eigenbasis of a Hermitian matrix: where a warm start of the Jacobi sweeps comes from.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGENBASIS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGENBASIS_H_

#include <complex>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/large_threads.h"

namespace svdserve::host {

// See eigenbasis() in algorithms/large/large_backend.h.
bool hermitian_eigenbasis(const LargeThreads& threads, large::LargeView<double> g, large::LargeView<double> v,
                          const large::PartDone& done = {});
bool hermitian_eigenbasis(const LargeThreads& threads, large::LargeView<std::complex<double>> g,
                          large::LargeView<std::complex<double>> v, const large::PartDone& done = {});
// The same in single precision: of g rounded, and v accurate to that. Takes half the time.
bool hermitian_eigenbasis_in_single(const LargeThreads& threads, large::LargeView<double> g, large::LargeView<double> v,
                                    const large::PartDone& done = {});
bool hermitian_eigenbasis_in_single(const LargeThreads& threads, large::LargeView<std::complex<double>> g,
                                    large::LargeView<std::complex<double>> v, const large::PartDone& done = {});

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_FORMS_HERMITIAN_EIGENBASIS_H_
