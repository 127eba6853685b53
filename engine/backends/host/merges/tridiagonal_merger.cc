#include "engine/backends/host/merges/tridiagonal_merger.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/backends/host/merges/merge_columns.h"

namespace svdserve::host {
namespace {

// Roots and weights of a task; columns of a task, or of one product.
constexpr int kRootsOfTask = 64, kColumnsOfTask = 128;

constexpr size_t at(int i) { return static_cast<size_t>(i); }

}  // namespace

template <class T>
MergedVectors<T> TridiagonalMerger<T>::Columns::of(int count, int columns) {
  const size_t size = at(count) * at(merge_ld(columns));
  v.reserve(size);
  if constexpr (std::is_same_v<T, float>) wide.reserve(size);
  return {nullptr, v.data(), nullptr, wide_of(v, wide)};
}

template <class T>
TridiagonalMerger<T>::TridiagonalMerger(const LargeThreads* threads)
    : threads_(threads), deflation_(std::numeric_limits<T>::epsilon() / 2) {}

template <class T>
void TridiagonalMerger<T>::reserve(int n) {
  if (n <= capacity_) return;
  const size_t size = at(n), padded = size + kMergePadding;
  packed_.reserve(size * size);
  scratch_.reserve(5 * padded);
  for (std::vector<double>* const of : {&z_, &poles_, &weights_}) of->resize(padded);
  for (std::vector<int>* const of : {&columns_, &pole_, &place_}) of->resize(size);
  chain_.resize(size + 1);
  rotations_.resize(size);
  capacity_ = n;
}

// f(first, last) for ranges of 0 .. count, which begin at multiples of kMergePadding. `grain` is one.
template <class T>
template <class F>
void TridiagonalMerger<T>::for_ranges(int count, int grain, const F& f) const {
  if (threads_ == nullptr) {
    for (int first = 0; first < count; first += grain) f(first, std::min(count, first + grain));
    return;
  }
  const int64_t steps = (count + kMergePadding - 1) / kMergePadding;
  threads_->for_ranges(steps, grain / kMergePadding, [&](int64_t first, int64_t last) {
    f(static_cast<int>(first) * kMergePadding, std::min(count, static_cast<int>(last) * kMergePadding));
  });
}

template <class T>
large::TridiagonalHalf TridiagonalMerger<T>::run(double e, large::TridiagonalHalf upper, large::TridiagonalHalf lower,
                                                 large::LargeView<T> v, double* values) {
  const int size = upper.size + lower.size;
  reserve(size);
  for (int c = 0; c < size; ++c) z_[at(c)] = v.data[(c < upper.size ? upper.size - 1 : upper.size) + c * v.ld];
  merge_.first = 0;
  deflation_.run(e, upper, lower, values, z_.data(),
                 {poles_.data(), weights_.data(), columns_.data(), pole_.data(), rotations_.data(), chain_.data()},
                 merge_);
  for (int r = 0; r < merge_.rotations; ++r) {
    const large::PairRotation& by = rotations_[at(r)];
    rotate_columns(v.data + by.a * v.ld, v.data + by.b * v.ld, size, by.c, by.s);
  }
  find_all_roots(values);
  multiply(v);
  std::copy_n(poles_.data() + merge_.roots, size - merge_.roots, values + merge_.roots);
  return {size, merge_.roots};
}

template <class T>
void TridiagonalMerger<T>::find_all_roots(double* values) {
  const int k = merge_.roots;
  for (int i = 0; i < k; ++i) place_[at(pole_[at(i)])] = i;
  small_ = {k, poles_.data(), weights_.data(), place_.data(), values, scratch_.data()};
  for_ranges(k, kRootsOfTask, [&](int first, int last) { find_roots(small_, first, last); });
  for_ranges(k, kRootsOfTask, [&](int first, int last) { find_weights(small_, first, last); });
}

// V := V S, the columns of roots first, then the deflated ones.
template <class T>
void TridiagonalMerger<T>::multiply(large::LargeView<T> v) {
  const large::TridiagonalMerge& m = merge_;
  const int k = m.roots, lower = m.size - m.upper;
  const int* const columns = columns_.data();
  T* const packed_lower = pack(v.data, v.ld, columns, m.upper_columns(), m.upper, packed_.data());
  T* const deflated = pack(v.data + m.upper, v.ld, columns + m.upper_only, m.lower_columns(), lower, packed_lower);
  pack(v.data, v.ld, columns + k, m.size - k, m.size, deflated);
  for_ranges(k, kColumnsOfTask, [&](int first, int last) {
    if (threads_ == nullptr) return multiply_columns(packed_lower, first, last, columns_of_small_, v);
    Columns own;
    multiply_columns(packed_lower, first, last, own, v);
  });
  for_ranges(m.size - k, kColumnsOfTask, [&](int first, int last) {
    for (int c = first; c < last; ++c) std::copy_n(deflated + at(c) * at(m.size), m.size, v.data + (k + c) * v.ld);
  });
}

template <class T>
void TridiagonalMerger<T>::multiply_columns(const T* packed_lower, int first, int last, Columns& columns,
                                            large::LargeView<T> v) {
  const large::TridiagonalMerge& m = merge_;
  const int count = last - first, ld = merge_ld(count);
  const MergedVectors<T> s = columns.of(m.roots, count);
  find_vectors(small_, first, last, s);
  T* const to = v.data + first * v.ld;
  multiply_packed(m.upper, count, m.upper_columns(), packed_.data(), s.v, ld, to, v.ld);
  multiply_packed(m.size - m.upper, count, m.lower_columns(), packed_lower,
                  s.v + static_cast<ptrdiff_t>(m.upper_only) * ld, ld, to + m.upper, v.ld);
}

// As pack_columns() of merge_columns.h.
template <class T>
T* TridiagonalMerger<T>::pack(const T* from, int64_t ld, const int* columns, int count, int rows, T* to) const {
  for_ranges(count, kColumnsOfTask, [&](int first, int last) {
    pack_columns(from, ld, columns + first, last - first, rows, to + at(first) * at(rows));
  });
  return to + at(count) * at(rows);
}

template class TridiagonalMerger<float>;
template class TridiagonalMerger<double>;

}  // namespace svdserve::host
