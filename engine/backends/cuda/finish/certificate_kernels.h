// Certificates (algorithms/finish/certificate.h) of matrices of more than kLargestTeamCertificate columns. Their products
// are made in tiles of 64 x 64 by matrix units, in double precision for every type. The sums have another order than those
// of a team.
//
//   scale_kernel    the power of two of T                                              a block a matrix
//   tiles_kernel    squares of T - X S Y^H and T, of I - X^H X and of I - Y^H Y        a block a tile
//   totals_kernel   their sums over all tiles, and the three numbers                   a block a matrix
#ifndef SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_CERTIFICATE_KERNELS_H_
#define SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_CERTIFICATE_KERNELS_H_

#include <type_traits>
#include <utility>

#include "engine/backends/cuda/device/launch_context.h"
#include "engine/backends/cuda/device/matrix_unit.h"
#include "engine/backends/cuda/finish/finishing_kernels.h"

namespace svdserve::cuda {

inline constexpr int kCertificateTile = 64, kCertificateBlock = 256;

// The tiles of a matrix, one product after the other, and their memory.
struct CertificateTiles {
  int rows, k;     // of T
  bool hermitian;  // Y is X

  __host__ __device__ int down() const { return (rows + kCertificateTile - 1) / kCertificateTile; }
  __host__ __device__ int across() const { return (k + kCertificateTile - 1) / kCertificateTile; }
  // The first tile of product 0, T - X S Y^H, and of 1 and 2, X^H X and Y^H Y.
  __host__ __device__ int first(int product) const {
    return product == 0 ? 0 : (down() + (product - 1) * across()) * across();
  }
  __host__ __device__ int count() const { return first(hermitian ? 2 : 3); }
  // Numbers of a matrix: its exponent, and two sums of each tile.
  __host__ __device__ int64_t numbers() const { return 1 + int64_t{2} * count(); }
};

// Sums of a block's threads, on thread 0.
template <int n>
__device__ __forceinline__ void add_over_block(double (&x)[n]) {
  __shared__ double parts[n][kCertificateBlock / 32];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < n; ++i) {
    for (int d = 16; d > 0; d /= 2) x[i] += __shfl_xor_sync(~0u, x[i], d);
    if (lane == 0) parts[i][warp] = x[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < n; ++i) {
    x[i] = parts[i][0];
    for (int w = 1; w < kCertificateBlock / 32; ++w) x[i] += parts[i][w];
  }
}

template <class E>
__device__ __forceinline__ scalar::OperandMatrix<E> given_matrix(const FinishCall<typename E::Scalar>& call,
                                                                 int64_t m) {
  const auto* const a = reinterpret_cast<const char*>(call.a + m * call.x.rows * call.options.k * E::kComponents);
  return {{a, call.row_stride, call.col_stride, false}, call.hermitian, call.upper};
}

template <class E>
__global__ void __launch_bounds__(kCertificateBlock)
    scale_kernel(const FinishCall<typename E::Scalar> call, const CertificateTiles tiles, double* memory) {
  using scalar::WideNumber;
  __shared__ double parts[kCertificateBlock];
  const int64_t m = blockIdx.x;
  const int rows = tiles.rows, k = tiles.k, thread = static_cast<int>(threadIdx.x);
  const scalar::OperandMatrix<E> t = given_matrix<E>(call, m);
  const bool down = call.row_stride <= call.col_stride;
  WideNumber largest(0);
  for (int x = thread; x < rows * k; x += kCertificateBlock) {
    const int i = down ? x % rows : x / k, j = down ? x / rows : x % k;
    const bool is_mirrored = call.hermitian && (call.upper ? i > j : i < j);
    if (!is_mirrored) largest = scalar::raise_to_magnitude(largest, scalar::widened(t(i, j)));
  }
  parts[thread] = largest.v;
  __syncthreads();
  if (thread > 0) return;
  for (const double part : parts) largest = scalar::larger(WideNumber(part), largest);
  memory[m * tiles.numbers()] = -scalar::binary_exponent(largest).v;
}

// 64 rows of a matrix of vectors, 16 columns of it at a time in shared memory, by all threads of a block.
template <class E>
class TileOperand {
 public:
  static constexpr int kDepth = 16;
  static constexpr int kNumbers = kCertificateTile * (kDepth + 4) * E::kComponents;
  using Factor = scalar::Pow2<scalar::WideNumber>;

  // rows x depth: the matrix, whose rows from `first` on are taken.
  __device__ TileOperand(const scalar::StridedMatrix<E>& at, int rows, int depth, int first, double* shared)
      : at_(at),
        rows_(rows - first),
        depth_(depth),
        first_(first),
        shared_(shared),
        down_(at.row_stride <= at.col_stride) {}

  // s: null, or the factor of each column, before `scale`.
  __device__ __forceinline__ void load(int column, const typename E::Scalar* s, const Factor& scale) const {
    constexpr int kElements = kCertificateTile * kDepth;
    for (int x = static_cast<int>(threadIdx.x); x < kElements; x += kCertificateBlock) {
      const int i = down_ ? x % kCertificateTile : x / kDepth, l = down_ ? x / kCertificateTile : x % kDepth;
      auto element = scalar::zero_element<scalar::WideOf<E>>();
      if (i < rows_ && column + l < depth_) {
        element = scalar::widened(at_(first_ + i, column + l));
        if (s != nullptr) {
          const scalar::WideNumber factor = scalar::WideNumber(static_cast<double>(s[column + l])) * scale;
          element = scalar::scaled(element, factor);
        }
      }
      shared_[place(i, l)] = element.re.v;
      if constexpr (E::kComplex) shared_[kNumbers / 2 + place(i, l)] = element.im.v;
    }
  }
  __device__ __forceinline__ double part(int p, int i, int l) const { return shared_[p * kNumbers / 2 + place(i, l)]; }

 private:
  // Threads of half a warp reach other banks, as they store and as a matrix unit takes its operands.
  __device__ __forceinline__ int place(int i, int l) const {
    return down_ ? l * (kCertificateTile + 4) + i : i * (kDepth + 4) + l;
  }

  const scalar::StridedMatrix<E> at_;
  const int rows_, depth_, first_;
  double* const shared_;
  const bool down_;
};

// 64 x 64 elements of A B^H, of which each of eight warps has 32 x 16. A matrix unit adds the products of one element in
// a row, so that errors grow with their number. So it adds those of kGroup steps from zero on, and the sums of groups
// are added then.
template <class E>
class TileProduct {
 public:
  using Value = std::conditional_t<E::kComplex, svdserve::Complex, double>;
  static constexpr int kGroup = 4;

  __device__ TileProduct() {
    for_each_fragment([](auto& sum, auto& group) { sum.clear(), group.clear(); });
  }
  // step: from zero on, one more each time.
  __device__ __forceinline__ void add(int step, const TileOperand<E>& a, const TileOperand<E>& b) {
    constexpr int kParts = E::kComponents;
    const int g = lane() / 4, t = lane() % 4;
    Fragment<Value, 4> right[2];
#pragma unroll
    for (int x = 0; x < 8 * kParts; ++x) {
      right[x / 4 % 2].part[x / 8][x % 4] = b.part(x / 8, first_col() + x / 4 % 2 * 8 + g, 4 * (x % 4) + t);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      Fragment<Value, 8> left;
#pragma unroll
      for (int x = 0; x < 8 * kParts; ++x) {
        left.part[x / 8][x % 8] = a.part(x / 8, first_row() + 16 * i + g + x % 2 * 8, x % 8 / 2 * 4 + t);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) multiply<false>(group_[i][j], left, right[j]);
    }
    if (step % kGroup == kGroup - 1) add_group();
  }
  // Behind the last step.
  __device__ __forceinline__ void add_group() {
    for_each_fragment([](auto& sum, auto& group) {
#pragma unroll
      for (int x = 0; x < 4 * E::kComponents; ++x) sum.part[x / 4][x % 4] += group.part[x / 4][x % 4];
      group.clear();
    });
  }
  // f(i, j, x) for each element of the thread.
  template <class F>
  __device__ __forceinline__ void for_each(F f) const {
#pragma unroll
    for (int x = 0; x < 16; ++x) {
      const int i = x / 8, j = x / 4 % 2, at = x % 4;
      f(first_row() + 16 * i + lane() / 4 + at / 2 * 8, first_col() + 8 * j + lane() % 4 * 2 + at % 2,
        sums_[i][j].get(at));
    }
  }

 private:
  template <class F>
  __device__ __forceinline__ void for_each_fragment(F f) {
#pragma unroll
    for (int x = 0; x < 4; ++x) f(sums_[x / 2][x % 2], group_[x / 2][x % 2]);
  }
  static __device__ __forceinline__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ __forceinline__ int first_row() { return static_cast<int>(threadIdx.x) / 128 * 32; }
  static __device__ __forceinline__ int first_col() { return static_cast<int>(threadIdx.x) / 32 % 4 * 16; }

  Fragment<Value, 4> sums_[2][2], group_[2][2];
};

template <class E>
__global__ void __launch_bounds__(kCertificateBlock, E::kComplex ? 1 : 2)
    tiles_kernel(const FinishCall<typename E::Scalar> call, const CertificateTiles tiles, double* memory) {
  using T = typename E::Scalar;
  using Wide = scalar::WideOf<E>;
  using scalar::WideNumber;
  __shared__ double a_shared[TileOperand<E>::kNumbers], b_shared[TileOperand<E>::kNumbers];
  const int64_t m = blockIdx.x / tiles.count();
  const int number = static_cast<int>(blockIdx.x) % tiles.count(), k = tiles.k;
  const int product = number < tiles.first(1) ? 0 : number < tiles.first(2) ? 1 : 2;
  const int tile = number - tiles.first(product), down = tile / tiles.across(), across = tile % tiles.across();
  double* const numbers = memory + m * tiles.numbers();
  const scalar::Pow2<WideNumber> scale = scalar::make_pow2(WideNumber(numbers[0]));
  double sums[2] = {0, 0};  // of the difference, and of T
  // Below the diagonal are conjugates of what is above it.
  if (product == 0 || down <= across) {
    const scalar::VectorMatrix<E> x = vectors_of<E>(call.x, m), y = call.hermitian ? x : vectors_of<E>(call.y, m);
    scalar::StridedMatrix<E> left = product == 2 ? y.at : x.at, right = product == 1 ? x.at : y.at;
    if (product != 0) {
      std::swap(left.row_stride, left.col_stride);
      std::swap(right.row_stride, right.col_stride);
    }
    right.conjugate = !right.conjugate;
    const int height = product == 0 ? tiles.rows : k, depth = product == 1 ? tiles.rows : k;
    const int first_row = down * kCertificateTile, first_col = across * kCertificateTile;
    const TileOperand<E> a(left, height, depth, first_row, a_shared), b(right, k, depth, first_col, b_shared);
    const T* const s = product == 0 ? call.s + m * k : nullptr;
    TileProduct<E> tile_product;
    for (int step = 0; step * TileOperand<E>::kDepth < depth; ++step) {
      const int column = step * TileOperand<E>::kDepth;
      __syncthreads();
      a.load(column, s, scale);
      b.load(column, nullptr, scale);
      __syncthreads();
      tile_product.add(step, a, b);
    }
    tile_product.add_group();
    const scalar::OperandMatrix<E> t = given_matrix<E>(call, m);
    const double weight = product != 0 && down < across ? 2 : 1;
    tile_product.for_each([&](int tile_row, int tile_col, typename TileProduct<E>::Value value) {
      const int i = first_row + tile_row, j = first_col + tile_col;
      if (i >= height || j >= k) return;
      Wide expected = scalar::zero_element<Wide>();
      if (product == 0) {
        expected = scalar::scaled(scalar::widened(t(i, j)), scale);
      } else {
        expected.re = WideNumber(i == j ? 1 : 0);
      }
      sums[1] = scalar::add_square(WideNumber(sums[1]), expected).v;
      expected.re = expected.re - WideNumber(real_part(value));
      if constexpr (E::kComplex) expected.im = expected.im - WideNumber(value.im);
      sums[0] = scalar::add_square(WideNumber(sums[0]), expected).v;
    });
    sums[0] *= weight;
  }
  add_over_block(sums);
  if (threadIdx.x > 0) return;
  numbers[1 + 2 * number] = sums[0];
  numbers[2 + 2 * number] = sums[1];
}

template <class T>
__global__ void __launch_bounds__(kCertificateBlock)
    totals_kernel(const FinishCall<T> call, const CertificateTiles tiles, const double* memory) {
  const int64_t m = blockIdx.x;
  const double* const numbers = memory + m * tiles.numbers() + 1;
  double sums[4] = {0, 0, 0, 0};  // of the products' differences, and of T
  for (int x = static_cast<int>(threadIdx.x); x < tiles.count(); x += kCertificateBlock) {
    const int product = x < tiles.first(1) ? 0 : x < tiles.first(2) ? 1 : 2;
#pragma unroll
    for (int p = 0; p < 3; ++p) sums[p] += p == product ? numbers[2 * x] : 0;
    if (product == 0) sums[3] += numbers[2 * x + 1];
  }
  add_over_block(sums);
  if (threadIdx.x > 0) return;
  T* const to = call.certificates + m * kCertificateNumbers;
  if (!is_finite(call.statuses, call.s + m * tiles.k, m)) {
    for (int i = 0; i < kCertificateNumbers; ++i) to[i] = FloatTraits<T>::nan();
    return;
  }
  const double of_x = sqrt(sums[1]), of_y = call.hermitian ? of_x : sqrt(sums[2]);
  to[0] = static_cast<T>(scalar::residual_of(scalar::WideNumber(sums[0]), scalar::WideNumber(sums[3])).v);
  to[1] = static_cast<T>(call.options.wide ? of_y : of_x);
  to[2] = static_cast<T>(call.options.wide ? of_x : of_y);
}

// Enqueues the certificates of finished vectors. memory: tiles.numbers() for each matrix, on the device.
template <class E>
void write_certificates(Launch* launch, const FinishCall<typename E::Scalar>& call, const CertificateTiles& tiles,
                        double* memory) {
  const auto matrices = static_cast<unsigned>(call.count);
  launch->operator()<scale_kernel<E>>(matrices, kCertificateBlock, 0, call, tiles, memory);
  launch->operator()<tiles_kernel<E>>(static_cast<unsigned>(call.count * tiles.count()), kCertificateBlock, 0, call,
                                      tiles, memory);
  launch->operator()<totals_kernel<typename E::Scalar>>(matrices, kCertificateBlock, 0, call, tiles, memory);
}

}  // namespace svdserve::cuda
#endif  // SVDSERVE_ENGINE_BACKENDS_CUDA_FINISH_CERTIFICATE_KERNELS_H_
