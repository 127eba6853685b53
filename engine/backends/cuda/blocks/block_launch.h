// Matrices with 33 <= k = min(m, n) <= 128: a thread block each (block_kernels.h). The launcher of an element type
// calls these functions. The units that block.cu.in makes define them, and take long to compile.
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_LAUNCH_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_LAUNCH_H_

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/lanes/hermitian_kernels.h"
#include "engine/backends/cuda/lanes/vectors_kernels.h"
#include "engine/backends/cuda/tall/tall_kernels.h"

namespace svdserve::cuda {

// The parts of a decomposition that a kernel of one thread block a matrix makes: S; U and S; U, S and V.
enum class PlacedParts { kValues, kLeft, kBoth };

template <class E>
struct BlockLaunch {
  using T = typename E::Scalar;

  // Bytes of the workspace of decompose(), a multiple of the size of an element.
  static int64_t workspace_bytes(int k, PlacedParts parts, int64_t count);
  // These parts of k x k matrices. X may replace the matrices.
  static void decompose(Launch* launch, const VectorsCall<E>& call, PlacedParts parts, void* workspace);
  // Eigenvalues and eigenvectors of Hermitian k x k matrices by JACOBI; without vectors call.u is null.
  static int64_t hermitian_workspace_bytes(int k, int64_t count);
  static void hermitian(Launch* launch, const HermitianCall<E>& call, void* workspace);
  // Triangles of matrices with m != n, row-wise, and where call.factors has memory what Q is made of (block_qr.h).
  static void reduce(Launch* launch, const TallCall<T>& call);
  // The leading k columns of X = Q X_k, of those that `to` has; X_k row by row in call.triangles, which are overwritten.
  static void expand(Launch* launch, const TallCall<T>& call, const Columns<E>& to);
};

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_BLOCKS_BLOCK_LAUNCH_H_
