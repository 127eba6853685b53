// Tall and wide matrices with vectors: the QR tree of tall_reduction.h with every factor kept, a matrix in each lane of
// a pack. Its triangles and its order are those of the reduction, so the values do not depend on whether vectors are
// wanted.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_VECTORS_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_VECTORS_H_

#include "engine/backends/host/packs/packing.h"
#include "engine/backends/host/tall/tall_shape.h"

namespace svdserve::host {

// Scratch of one thread: 2 rows x k elements a lane, rows rounded up to tiles.
template <class T>
class TallVectors {
 public:
  // Throws std::bad_alloc.
  TallVectors(const Plan& plan, const KernelTable<T>& kernels);

  // Factorizes n <= lanes matrices. triangle(): packed k x k by columns; exponents(): packed, of its columns. The
  // triangle of a matrix that is not finite has a NaN in it.
  void factorize(const char* const* matrices, int n);
  const T* triangle() const { return triangles_.data(); }
  const T* exponents() const { return exponents_.data(); }

  // Makes X = Q X_k of X_k (packed k x k by columns), and calls use(first row, rows, packed columns of a tile with
  // leading dimension tile_rows()) for every tile.
  template <class Use>
  void apply(const T* x_k, Use use);
  int tile_rows() const { return shape_.tile_rows; }

 private:
  void load_tile(const char* const* matrices, int tile);
  void expand(const T* x_k);

  T* triangle_of(int tile) { return triangles_.data() + tile * triangle_size_; }
  T* factor_of(int tile) { return factors_.data() + tile * tile_size_; }
  T* g_of(int tile, bool join) {
    return g_.data() + (2 * tile + join) * static_cast<size_t>(shape_.k) * kernels_.lanes;
  }
  T* heads_of(int tile) {
    return heads_.data() + static_cast<size_t>(tile) * shape_.k * kernels_.components * kernels_.lanes;
  }
  void apply_tile(int tile) {
    kernels_.apply_tile({factor_of(tile), g_of(tile, false), shape_.tile_rows, shape_.k, triangle_of(tile), y_.data()});
  }

  const KernelTable<T>& kernels_;
  const TallShape shape_;
  size_t triangle_size_, tile_size_;  // numbers in a pack
  // Every tile has its triangle, and on the way back its k x k part of X; its factor; g of its own reflectors. It also
  // has g and the heads of the join in which it is the bottom.
  AlignedBuffer<T> triangles_, factors_, g_, heads_;
  AlignedBuffer<T> exponents_, y_, scratch_;
};

template <class T>
template <class Use>
void TallVectors<T>::apply(const T* x_k, Use use) {
  expand(x_k);
  for (int tile = 0; tile < shape_.tiles; ++tile) {
    apply_tile(tile);
    use(static_cast<int64_t>(tile) * shape_.tile_rows, shape_.rows_of(tile), static_cast<const T*>(y_.data()));
  }
}

extern template class TallVectors<float>;
extern template class TallVectors<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_VECTORS_H_
