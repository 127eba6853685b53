// Reduction of m x n matrices, m != n, to k x k triangles by the tall-skinny QR tree: exact in the sense of the
// contract, and the reason why kernels exist for k x k alone. A wide matrix is read as its transpose.
//
// The matrix (max x k) is cut into tiles of tile_rows_for(k) rows, the last filled up with zeros; up to kTileRows rows
// are one tile of just those. Every tile is factorized by itself; then tile t is joined with tile t + d for
// d = 1, 2, 4, .. wherever t is a multiple of 2 d and t + d exists. That order is part of the bits. Lanes hold tiles,
// of one matrix or of several, so that a single very tall matrix fills a pack by itself.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_REDUCTION_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_REDUCTION_H_

#include "engine/backends/host/packs/packing.h"
#include "engine/backends/host/tall/tall_shape.h"

namespace svdserve::host {

template <class T>
class TallReduction {
 public:
  // Scratch for one thread. Throws std::bad_alloc.
  TallReduction(const Plan& plan, const KernelTable<T>& kernels);

  // How many matrices to reduce at once: a pack of them, or one that fills packs by itself.
  int group() const { return group_; }

  // Reduces n <= group() matrices. Afterwards triangle(l) is the row-major k x k triangle of matrix l, whose column j
  // stands for 2^exponents(l)[j] times what is stored; a non-finite matrix has a NaN in it.
  void reduce(const char* const* matrices, int n);
  const T* triangle(int l) { return triangles_.data() + static_cast<size_t>(l) * shape_.tiles * triangle_size_; }
  const T* exponents(int l) { return exponents_.data() + l * shape_.k; }

 private:
  void load_tiles(const char* const* matrices, int first, int used);
  void load_ends(const char* const* tiles, const int* rows, int first);
  void factorize_tiles(const char* const* matrices, int n);
  void join_tiles(int n);
  T* tile_triangle(int l, int tile) {
    return triangles_.data() + (static_cast<size_t>(l) * shape_.tiles + tile) * triangle_size_;
  }

  const KernelTable<T>& kernels_;
  const TallShape shape_;
  int group_;
  size_t triangle_size_;  // numbers of one triangle
  AlignedBuffer<T> triangles_, exponents_, packed_, packed_r_, packed_other_, packed_exponents_, scratch_;
  AlignedBuffer<bool> finite_;
};

extern template class TallReduction<float>;
extern template class TallReduction<double>;

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_TALL_TALL_REDUCTION_H_
