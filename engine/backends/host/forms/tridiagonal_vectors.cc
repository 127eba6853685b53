#include "engine/backends/host/forms/tridiagonal_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>

#include "engine/backends/host/forms/merge_columns.h"
#include "engine/backends/host/forms/merged_matrix.h"

namespace svdserve::host {

template <class T>
TridiagonalVectors<T>::TridiagonalVectors() : deflation_(std::numeric_limits<T>::epsilon() / 2) {}

template <class T>
void TridiagonalVectors<T>::decompose(int n, const T* d, const T* e) {
  reserve(n);
  std::copy_n(d, n, d_.begin());
  torn_ = d_;
  std::copy_n(e, n - 1, e_.begin());
  for (int i = 0; i + 1 < n; ++i) {
    torn_[at(i)] -= std::fabs(e_[at(i)]);
    torn_[at(i + 1)] -= std::fabs(e_[at(i)]);
  }
  std::fill_n(v_.data(), at(n) * at(n), T(0));
  solve(0, n);
  for (int j = 0; j < n; ++j) values_[at(j)] = rayleigh_quotient(v(0, j));
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](int a, int b) { return values_[at(a)] < values_[at(b)]; });
}

// x^T T x / x^T x, whose error is the square of the vector's, beside rounding.
template <class T>
double TridiagonalVectors<T>::rayleigh_quotient(const T* x) const {
  const double product = weighted_product(d_.data(), x, x, n_) + 2 * weighted_product(e_.data(), x, x + 1, n_ - 1);
  return product / sum_of_squares(x, n_);
}

template <class T>
void TridiagonalVectors<T>::reserve(int n) {
  n_ = n;
  const size_t size = at(n), padded = size + kMergePadding, vectors = size * at(merge_ld(n));
  for (AlignedArray<T>* const of : {&v_, &packed_}) of->reserve(size * size);
  joint_.reserve(vectors);
  if constexpr (std::is_same_v<T, float>) wide_.reserve(vectors);
  scratch_.reserve(5 * padded);
  for (std::vector<double>* const of : {&values_, &d_, &torn_, &e_, &z_, &poles_, &weights_}) of->resize(padded);
  for (std::vector<int>* const of : {&order_, &columns_, &pole_, &place_}) of->resize(size);
  chain_.resize(size + 1);
  rotations_.resize(size);
}

// Rows and columns first .. first + n - 1, of which the parts of other rows are off the diagonal.
template <class T>
large::TridiagonalHalf TridiagonalVectors<T>::solve(int first, int n) {
  if (n == 1) {
    *v(first, first) = 1;
    values_[at(first)] = torn_[at(first)];
    return {1, 1};
  }
  const large::TridiagonalHalf upper = solve(first, n / 2), lower = solve(first + n / 2, n - n / 2);
  return merge(first, upper, lower);
}

template <class T>
large::TridiagonalHalf TridiagonalVectors<T>::merge(int first, large::TridiagonalHalf upper,
                                                    large::TridiagonalHalf lower) {
  const int cut = first + upper.size, size = upper.size + lower.size;
  for (int c = 0; c < size; ++c) z_[at(c)] = *v(c < upper.size ? cut - 1 : cut, first + c);
  large::TridiagonalMerge m{};
  m.first = first;
  deflation_.run(e_[at(cut - 1)], upper, lower, values_.data() + first, z_.data(),
                 {poles_.data(), weights_.data(), columns_.data(), pole_.data(), rotations_.data(), chain_.data()}, m);
  for (int r = 0; r < m.rotations; ++r) {
    const large::PairRotation& by = rotations_[at(r)];
    rotate_columns(v(first, by.a), v(first, by.b), size, by.c, by.s);
  }
  find_roots(m);
  multiply(m);
  std::copy_n(poles_.data() + m.roots, size - m.roots, values_.data() + first + m.roots);
  return {size, m.roots};
}

// Values of the roots, and joint_.
template <class T>
void TridiagonalVectors<T>::find_roots(const large::TridiagonalMerge& m) {
  if (m.roots == 0) return;
  for (int i = 0; i < m.roots; ++i) place_[at(pole_[at(i)])] = i;
  MergedMatrix<T> merged{m.roots, poles_.data(), weights_.data(), place_.data(), values_.data() + m.first,
                         nullptr, joint_.data()};
  merged.wide_v = wide_of(joint_, wide_);
  merged.scratch = scratch_.data();
  decompose_rank_one(merged);
}

// V := V S, the columns of roots first, then the deflated ones.
template <class T>
void TridiagonalVectors<T>::multiply(const large::TridiagonalMerge& m) {
  const int k = m.roots, lower = m.size - m.upper, ld = merge_ld(k);
  const int* const columns = columns_.data();
  T *const top = v(m.first, m.first), *const bottom = top + m.upper;
  T* const packed_lower = pack_columns(v(m.first, 0), n_, columns, m.upper_columns(), m.upper, packed_.data());
  T* const deflated =
      pack_columns(v(m.first + m.upper, 0), n_, columns + m.upper_only, m.lower_columns(), lower, packed_lower);
  pack_columns(v(m.first, 0), n_, columns + k, m.size - k, m.size, deflated);
  multiply_packed(m.upper, k, m.upper_columns(), packed_.data(), joint_.data(), ld, top, n_);
  multiply_packed(lower, k, m.lower_columns(), packed_lower, joint_.data() + static_cast<ptrdiff_t>(m.upper_only) * ld,
                  ld, bottom, n_);
  for (int c = k; c < m.size; ++c) std::copy_n(deflated + at(c - k) * at(m.size), m.size, v(m.first, m.first + c));
}

template class TridiagonalVectors<float>;
template class TridiagonalVectors<double>;

}  // namespace svdserve::host
