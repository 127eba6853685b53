#include "engine/backends/host/merges/tridiagonal_vectors.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/backends/host/merges/merge_columns.h"

namespace svdserve::host {

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
  for (int j = 0; j < n; ++j) values_[at(j)] = rayleigh_quotient(v_.data() + at(j) * at(n));
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
  v_.reserve(at(n) * at(n));
  for (std::vector<double>* const of : {&values_, &d_, &torn_, &e_}) of->resize(at(n));
  order_.resize(at(n));
}

// Rows and columns first .. first + n - 1, of which the parts of other rows are off the diagonal.
template <class T>
large::TridiagonalHalf TridiagonalVectors<T>::solve(int first, int n) {
  T* const v = v_.data() + at(first) + at(first) * at(n_);
  if (n == 1) {
    *v = 1;
    values_[at(first)] = torn_[at(first)];
    return {1, 1};
  }
  const large::TridiagonalHalf upper = solve(first, n / 2), lower = solve(first + n / 2, n - n / 2);
  return merger_.run(e_[at(first + upper.size - 1)], upper, lower, {v, n, n, n_}, values_.data() + first);
}

template class TridiagonalVectors<float>;
template class TridiagonalVectors<double>;

}  // namespace svdserve::host
