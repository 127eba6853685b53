// Eigenvectors of one small general matrix, each in the place of a component that is large in it. By the scalar lane of
// general_eigen.h, for clusters of lines of a large matrix.
//
//   S Y = Y D, S k x k, Y of unit columns
// Cost: about 100 k^3 flops, on the calling thread. Accuracy: as general_eigen.h.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_CLUSTER_VECTORS_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_CLUSTER_VECTORS_H_

#include <complex>

namespace svdserve::large {

// s, y: k x k by columns. False: QR did not converge, or s is not finite; y means nothing then.
bool cluster_vectors(int k, const std::complex<double>* s, std::complex<double>* y);

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_CLUSTER_VECTORS_H_
