// The kernels that the host back end calls: lane kernels behind plain function pointers, one table for each instruction
// set and element type. Plain data: no Highway, no lanes.
//
// Packed arrays: a pack holds `lanes` matrices, and component c of element x lies at [(x * components + c) * lanes +
// l] for matrix l. Missing matrices of the last pack are zero.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_TABLE_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/execution.h"
#include "engine/options.h"
#include "engine/planner.h"
#include "engine/policies/host_tuning.h"

namespace svdserve::host {

// Singular values of one pack of k x k matrices.
template <class T>
struct ValuesCall {
  const T* a;  // [in] packed: element (i, j) is number i * row_stride + j * col_stride
  int row_stride;
  int col_stride;
  int k;
  const T* exponents;  // [in] packed, k a matrix: column j stands for 2^exponents[j] a(:, j); null: zero
  T tolerance;
  int max_sweeps;
  T* values;    // [out] packed, k a matrix
  T* statuses;  // [out] lanes numbers: MatrixStatus
  T* scratch;   // scratch_size(k) numbers, aligned to kAlignment; for k > kLargestFixedValues
};

// Singular values and vectors of one pack of k x k matrices; see algorithms/lanes/jacobi_vectors.h.
template <class T>
struct VectorsCall {
  const T* a;  // [in] as ValuesCall
  int row_stride;
  int col_stride;
  int k;
  const T* exponents;  // [in] as ValuesCall
  T tolerance;
  int max_sweeps;
  T* x;         // [out] packed, aligned to kAlignment: element (i, j) of X is number j * k + i
  T* y;         // [out] the same of Y
  T* values;    // [out] packed, k a matrix: of column j
  T* ranks;     // [out] packed, k a matrix: the number of column j in descending order
  T* statuses;  // [out] lanes numbers: MatrixStatus
};

// Eigenvalues and eigenvectors of one pack of Hermitian k x k matrices; see algorithms/lanes/hermitian_eigen.h and
// tridiagonal_ql.h.
template <class T>
struct HermitianCall {
  const T* a;  // [in] as ValuesCall
  int row_stride;
  int col_stride;
  int k;
  bool upper;   // the triangle that counts
  T tolerance;  // JACOBI's, and so the next
  int max_sweeps;
  T* u;         // [out] packed, aligned to kAlignment: element (i, j) of U is number j * k + i
  T* scratch;   // k x k elements and lanes, aligned to kAlignment
  T* values;    // [out] packed, k a matrix: of column j
  T* ranks;     // [out] packed, k a matrix: the number of column j in ascending order
  T* statuses;  // [out] lanes numbers: MatrixStatus
};

// Eigenvalues and eigenvectors of one pack of general k x k matrices; see algorithms/general/general_eigen.h and
// general_jacobi.h. Results are complex: two components.
template <class T>
struct GeneralCall {
  const T* a;  // [in] as ValuesCall
  int row_stride;
  int col_stride;
  int k;
  bool plain;      // QR: without balancing
  int max_sweeps;  // JACOBI's
  bool vectors;    // false: eigenvalues alone
  const T* start;  // [in] JACOBI: V_0 as a, complex; null: none
  T* v;  // [out] packed, aligned to kAlignment: element (i, j) of V is number j * k + i; QR alone: null without vectors
  T* w;  // [out] the same of W; null: not wanted
  T* conditions;  // [out] packed, k a matrix; null: not wanted; with vectors and w
  T* scratch;     // general_scratch() elements of the call's two types, aligned to kAlignment
  T* values;      // [out] packed, k a matrix
  T* residuals;   // [out] lanes numbers each, V's and W's: squares, relative to |A|_F^2
  T* statuses;    // [out] lanes numbers: MatrixStatus
};
// Numbers of a lane: two matrices of the operand's type, and a complex one.
constexpr size_t general_scratch(int k, int components) { return static_cast<size_t>(k) * k * (2 * components + 2); }

// Leaf of the tall-skinny QR: one pack of tiles of rows x k, row-wise; `r` gets the k x k upper triangles.
template <class T>
struct TileCall {
  const T* a;  // [in] packed: element (i, j) is number i * k + j
  int rows;
  int k;
  const T* exponents;  // [in] packed, k a tile: column j is multiplied by 2^-exponents[j] first
  T* r;                // [out] packed: element (i, j) is number i * k + j; zero below the diagonal
  T* scratch;          // rows * k elements and lanes, aligned to kAlignment
};

// Inner node of the tree: [top; bottom] = Q R; the result replaces top.
template <class T>
struct JoinCall {
  T* top;           // [in,out] packed, as TileCall::r
  const T* bottom;  // [in] the same
  int k;
  T* scratch;  // 2 k k elements and lanes, aligned to kAlignment
};

// The same with Q kept, for vectors: a matrix in each lane. Arrays are packed, matrices by columns; all aligned.
template <class T>
struct KeepTileCall {
  T* a;  // [in,out] rows x k, leading dimension rows; becomes the factor
  int rows;
  int k;
  const T* exponents;  // [in] as TileCall
  T* g;                // [out] k lanes
  T* r;                // [out] k x k, zero below the diagonal
};
template <class T>
struct KeepJoinCall {
  T* top;     // [in,out] k x k: R of one half, then of both
  T* bottom;  // [in,out] k x k: R of the other half; becomes the factor
  int k;
  T* g;      // [out] k lanes
  T* heads;  // [out] k elements
};
template <class T>
struct ApplyTileCall {
  const T* factor;
  const T* g;
  int rows;
  int k;
  const T* top;  // [in] k x k
  T* y;          // [out] rows x k, leading dimension rows: Q [top; 0]
};
template <class T>
struct ApplyJoinCall {
  T* factor;  // [in,out] becomes the bottom half of Q [top; 0]
  const T* g;
  const T* heads;
  int k;
  T* top;      // [in,out] k x k
  T* scratch;  // k x k
};

inline constexpr size_t kAlignment = 64;
inline constexpr int kMethods = 3;
// Each k up to these has a kernel of its own, for values and for vectors. Values of 2 x 2 matrices gain a quarter by it,
// 4 x 4 up to a tenth, and 8 x 8 3 %. An 8 x 8 kernel takes as long to compile as all smaller ones. Sanitizer builds have
// fewer.
#if defined(SVD_FEW_FIXED_SIZES)
inline constexpr int kLargestFixedValues = 3;
inline constexpr int kLargestFixedVectors = 2;
#else
inline constexpr int kLargestFixedValues = 4;
inline constexpr int kLargestFixedVectors = 4;
#endif

constexpr int index_of(Method m) { return static_cast<int>(m) - static_cast<int>(Method::kBidiagonal); }

template <class T>
struct KernelTable {
  int lanes;
  int components;  // 1: real, 2: complex
  // [index_of(method)][k for k <= kLargestFixedValues, otherwise 0]; a table for large matrices has only [..][0]
  void (*values[kMethods][kLargestFixedValues + 1])(const ValuesCall<T>&);
  void (*vectors[kLargestFixedVectors + 1])(const VectorsCall<T>&);  // [k for k <= kLargestFixedVectors, otherwise 0]
  void (*hermitian[kLargestFixedVectors + 1])(const HermitianCall<T>&);    // likewise
  void (*tridiagonal[kLargestFixedVectors + 1])(const HermitianCall<T>&);  // likewise, k <= kLargestTridiagonal
  void (*general)(const GeneralCall<T>&);
  void (*general_jacobi)(const GeneralCall<T>&);
  void (*tile)(const TileCall<T>&);
  void (*join)(const JoinCall<T>&);
  void (*keep_tile)(const KeepTileCall<T>&);
  void (*keep_join)(const KeepJoinCall<T>&);
  void (*apply_tile)(const ApplyTileCall<T>&);
  void (*apply_join)(const ApplyJoinCall<T>&);
};

// The kernels of one element type for one instruction set: wide packs, and narrow ones for matrices whose wide pack
// would leave the cache. The bits are the same.
template <class T>
struct KernelTables {
  KernelTable<T> wide;
  KernelTable<T> narrow;

  // The table for matrices with k = min(m, n).
  const KernelTable<T>& for_size(int64_t k) const {
    const size_t wide_bytes = static_cast<size_t>(k * k) * wide.components * wide.lanes * sizeof(T);
    return k <= kLargestFixedValues || wide_bytes <= kLargestWidePackBytes ? wide : narrow;
  }
};

// The tables are filled part by part, and each part of each element type is a translation unit.
enum class KernelPart {
  kBidiagonal,
  kBisection,
  kJacobi,
  kVectors,
  kTall,
  kHermitian,
  kTridiagonal,
  kGeneral,
  kGeneralJacobi
};

// The kernels for an element type; null where this build or this processor has not the instructions. Never null for
// kScalar.
template <DType kType>
using RealOf = std::conditional_t<value_bytes(kType) == sizeof(float), float, double>;
const KernelTables<float>* f32_kernels(Simd simd);
const KernelTables<double>* f64_kernels(Simd simd);
const KernelTables<float>* c64_kernels(Simd simd);
const KernelTables<double>* c128_kernels(Simd simd);

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_PACKS_KERNEL_TABLE_H_
