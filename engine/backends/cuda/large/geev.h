// Eigenvalues and right eigenvectors of a general matrix by cuSOLVER's Xgeev, in single or double precision.
//
// Xgeev is LAPACK's geev without balancing and without left vectors; the host computes a part of it, and it returns
// when the results are there. The vectors of a real matrix come out packed, as dgeev's.
// Device memory: 3 n^2 elements with vectors, 2 n^2 without. Host memory: 2.6 n^2 elements.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GEEV_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GEEV_H_

#include <complex>
#include <cstdint>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/cuda/device/device_arena.h"
#include "engine/backends/cuda/large/large_lane.h"
#include "engine/core/complex.h"

namespace svdserve::cuda {

// A column of eigenvectors. Real matrices have that of a real value, the first of a conjugate pair, the second.
enum class ColumnKind : int8_t { kComplex, kReal, kFirst, kSecond };

struct GeevCall {
  large::LargeView<Complex> a;  // [in] n x n
  bool real = false;            // a has no imaginary parts
  bool single = false;          // precision
  large::LargeView<Complex> v;  // [out] n x n, or without data: values alone
  ColumnKind* kinds = nullptr;  // [out] n, device memory
};

// The values, in whatever order, conjugate pairs as neighbours with the positive imaginary part first. Empty: QR did not
// converge, or a pair was not one. Waits. libraries().has_geev() is the caller's to ask.
std::vector<std::complex<double>> geev(LargeLane& lane, DeviceArena& arena, const GeevCall& call);

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_LARGE_GEEV_H_
