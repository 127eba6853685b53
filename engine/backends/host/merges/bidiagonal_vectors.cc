#include "engine/backends/host/merges/bidiagonal_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

#include "engine/backends/host/merges/merge_columns.h"
#include "engine/backends/host/merges/merged_matrix.h"

namespace svdserve::host {
namespace {

// Numbers below this one are zero: B's largest one is 1/2 at least. Quotients of denormal ones would make no rotation.
constexpr double kNothing = 0x1p-900;

double without_denormals(double x) { return std::fabs(x) < kNothing ? 0 : x; }

}  // namespace

template <class T>
void BidiagonalVectors<T>::decompose(int n, const T* d, const T* e) {
  reserve(n);
  std::transform(d, d + n, d_.begin(), without_denormals);
  std::transform(e, e + n - 1, e_.begin(), without_denormals);
  std::fill_n(u_.data(), at(n) * at(n), T(0));
  std::fill_n(v_.data(), at(n) * at(n), T(0));
  solve(0, n, 0);
  for (int j = 0; j < n; ++j) values_[at(j)] = value_of(u_.data() + at(j) * at(n), v_.data() + at(j) * at(n));
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](int a, int b) { return values_[at(a)] < values_[at(b)]; });
}

// x^T B y / (|x| |y|), whose error is the square of the vectors', beside rounding.
template <class T>
double BidiagonalVectors<T>::value_of(const T* x, const T* y) const {
  const double product = weighted_product(d_.data(), x, y, n_) + weighted_product(e_.data(), x, y + 1, n_ - 1);
  return std::max(product / std::sqrt(sum_of_squares(x, n_) * sum_of_squares(y, n_)), 0.0);
}

template <class T>
void BidiagonalVectors<T>::reserve(int n) {
  n_ = n;
  const size_t size = at(n), square = size * size, padded = size + kMergePadding, vectors = size * at(merge_ld(n));
  for (AlignedArray<T>* const of : {&u_, &v_}) of->reserve(square);
  for (AlignedArray<T>* const of : {&packed_u_, &packed_v_}) of->reserve(square + size);
  for (AlignedArray<T>* const of : {&joint_u_, &joint_v_}) of->reserve(vectors);
  if constexpr (std::is_same_v<T, float>) {
    for (AlignedArray<double>* const of : {&wide_u_, &wide_v_}) of->reserve(vectors);
  }
  scratch_.reserve(5 * padded);
  for (std::vector<double>* const of : {&d_, &e_, &values_, &z_, &poles_, &weights_, &roots_}) of->resize(padded);
  for (std::vector<int>* const of : {&order_, &sorted_, &place_, &column_of_}) of->resize(size);
  kind_.resize(size);
}

// Rows first .. first + n - 1, which have `extra` more columns than that.
template <class T>
void BidiagonalVectors<T>::solve(int first, int n, int extra) {
  if (n == 0) {
    if (extra == 1) v_[at(first) * at(n_ + 1)] = 1;
    return;
  }
  if (n == 1) return solve_row(first, extra);
  const int upper = (n - 1) / 2;
  const Merge m{first, upper, n - 1 - upper, extra};
  solve(first, upper, 1);
  solve(first + upper + 1, m.lower, extra);
  merge(m);
}

template <class T>
void BidiagonalVectors<T>::solve_row(int first, int extra) {
  const Merge row{first, 0, 0, extra};
  const double d = d_[at(first)], e = extra == 1 ? e_[at(first)] : 0, r = std::hypot(d, e);
  const double c = r > 0 ? d / r : 1, s = r > 0 ? e / r : 0;
  *u(row, 0, 0) = 1;
  *v(row, 0, 0) = static_cast<T>(c);
  if (extra == 1) {
    *v(row, 1, 0) = static_cast<T>(s);
    *v(row, 0, 1) = static_cast<T>(-s);
    *v(row, 1, 1) = static_cast<T>(c);
  }
  values_[at(first)] = r;
  order_[at(first)] = 0;
}

template <class T>
void BidiagonalVectors<T>::merge(const Merge& m) {
  *u(m, m.upper, m.upper) = 1;
  join_rows(m);
  scale(m);
  sort(m);
  deflate(m);
  pack(m);
  const int k = static_cast<int>(kept_.size());
  if (k == 1) {
    roots_[0] = std::fabs(weights_[0]);
    joint_u_[0] = 1;
    joint_v_[0] = std::signbit(weights_[0]) ? T(-1) : T(1);
  } else {
    decompose_arrow(
        {k, poles_.data(), weights_.data(), place_.data(), roots_.data(), scratch_.data()},
        MergedVectors<T>{joint_u_.data(), joint_v_.data(), wide_of(joint_u_, wide_u_), wide_of(joint_v_, wide_v_)});
  }
  multiply(m);
  finish(m);
}

// z_, and the columns of no value rotated into the middle one and the last one.
template <class T>
void BidiagonalVectors<T>::join_rows(const Merge& m) {
  const int last = m.rows();
  const double alpha = d_[at(m.first + m.upper)], beta = e_[at(m.first + m.upper)];
  for (int c = 0; c <= m.upper; ++c) z_[at(c)] = alpha * *v(m, m.upper, c);
  for (int c = m.upper + 1; c < last; ++c) z_[at(c)] = beta * *v(m, m.upper + 1, c);
  for (int c = 0; c < last; ++c) kind_[at(c)] = c < m.upper ? kUpper : c == m.upper ? kDense : kLower;
  if (m.extra == 0) return;
  const double above = z_[at(m.upper)], below = beta * *v(m, m.upper + 1, last);
  const double r = without_denormals(std::hypot(above, below));
  z_[at(m.upper)] = r;
  rotate_columns(v(m, 0, m.upper), v(m, 0, last), m.columns(), r > 0 ? above / r : 1, r > 0 ? below / r : 0);
}

// Values and z times a power of two, the largest of them in [1, 2).
template <class T>
void BidiagonalVectors<T>::scale(const Merge& m) {
  double* const values = values_.data() + m.first;
  double most = 0;
  values[m.upper] = 0;
  for (int c = 0; c < m.rows(); ++c) most = std::max(most, std::max(values[c], std::fabs(z_[at(c)])));
  const bool nothing = most < kNothing;
  scale_ = nothing ? 1 : std::ldexp(1.0, -std::ilogb(most));
  tolerance_ = 4 * std::numeric_limits<T>::epsilon() * (nothing ? 1 : most * scale_);
  for (int c = 0; c < m.rows(); ++c) {
    values[c] *= scale_;
    z_[at(c)] = nothing ? 0 : z_[at(c)] * scale_;
  }
}

// sorted_: all columns but the middle one, by ascending values.
template <class T>
void BidiagonalVectors<T>::sort(const Merge& m) {
  const double* const values = values_.data() + m.first;
  int* const upper = order_.data() + m.first;
  int* const lower = upper + m.upper + 1;
  for (int i = 0; i < m.lower; ++i) lower[i] += m.upper + 1;
  std::merge(upper, upper + m.upper, lower, lower + m.lower, sorted_.begin(),
             [values](int a, int b) { return values[a] < values[b]; });
}

// kept_: columns of M, ascending, the middle one first; aside_: the others. poles_, weights_: M.
template <class T>
void BidiagonalVectors<T>::deflate(const Merge& m) {
  double* const values = values_.data() + m.first;
  kept_.assign(1, m.upper);
  aside_.clear();
  int pending = -1;  // has a weight, and may yet be rotated into its neighbour
  for (int i = 0; i < m.rows() - 1; ++i) {
    const int c = sorted_[at(i)];
    if (!(std::fabs(z_[at(c)]) > tolerance_)) {
      set_aside(m, c);
    } else if (!(values[c] > tolerance_)) {
      rotate_into_middle(m, c);
      set_aside(m, c);
    } else {
      if (pending >= 0) rotate(m, pending, c) ? set_aside(m, pending) : kept_.push_back(pending);
      pending = c;
    }
  }
  if (pending >= 0) kept_.push_back(pending);
  double& middle = z_[at(m.upper)];
  if (kept_.size() > 1 && !(std::fabs(middle) > tolerance_)) middle = std::copysign(tolerance_, middle);
  for (size_t i = 0; i < kept_.size(); ++i) {
    poles_[i] = values[kept_[i]];
    weights_[i] = z_[at(kept_[i])];
  }
}

// Insertion: between a and its neighbour b only columns without weights were set aside, and no later one passes them.
template <class T>
void BidiagonalVectors<T>::set_aside(const Merge& m, int column) {
  const double* const values = values_.data() + m.first;
  aside_.push_back(column);
  for (size_t i = aside_.size() - 1; i > 0 && values[column] < values[aside_[i - 1]]; --i) {
    std::swap(aside_[i - 1], aside_[i]);
  }
}

// With r = |(z_a, z_b)|, c = z_b / r, s = z_a / r, the rotation takes (z_a, z_b) to (0, r) and leaves (d_b - d_a) c s
// beside the diagonal. False: that is too much.
template <class T>
bool BidiagonalVectors<T>::rotate(const Merge& m, int a, int b) {
  double* const values = values_.data() + m.first;
  const double r = std::sqrt(z_[at(a)] * z_[at(a)] + z_[at(b)] * z_[at(b)]);
  const double c = z_[at(b)] / r, s = z_[at(a)] / r, low = values[a], high = values[b];
  if (!(std::fabs((high - low) * c * s) <= tolerance_)) return false;
  rotate_columns(u(m, 0, b), u(m, 0, a), m.rows(), c, s);
  rotate_columns(v(m, 0, b), v(m, 0, a), m.columns(), c, s);
  z_[at(a)] = 0;
  z_[at(b)] = r;
  values[a] = low * (c * c) + high * (s * s);
  values[b] = std::min(std::max(low * (s * s) + high * (c * c), low), high);
  if (kind_[at(a)] != kind_[at(b)]) kind_[at(b)] = kDense;
  return true;
}

template <class T>
void BidiagonalVectors<T>::rotate_into_middle(const Merge& m, int column) {
  double &to = z_[at(m.upper)], &from = z_[at(column)];
  const double r = std::sqrt(to * to + from * from);
  rotate_columns(v(m, 0, m.upper), v(m, 0, column), m.columns(), to / r, from / r);
  to = r;
  from = 0;
  values_[at(m.first + column)] = 0;
}

// The kept columns by kind, then those set aside whole, to packed_u_ and packed_v_.
template <class T>
void BidiagonalVectors<T>::pack(const Merge& m) {
  int counts[3] = {0, 0, 0};
  for (const int c : kept_) ++counts[kind_[at(c)]];
  upper_only_ = counts[kUpper];
  dense_ = counts[kDense];
  lower_only_ = counts[kLower];
  int next[3] = {0, upper_only_, upper_only_ + dense_};
  for (size_t i = 0; i < kept_.size(); ++i) {
    place_[i] = next[kind_[at(kept_[i])]]++;
    column_of_[at(place_[i])] = kept_[i];
  }
  std::copy(aside_.begin(), aside_.end(), column_of_.begin() + static_cast<ptrdiff_t>(kept_.size()));
  const int upper_columns = upper_only_ + dense_, k = static_cast<int>(kept_.size());
  const auto pack_both = [&](const T* top, const T* bottom, int upper, int lower, T* to) {
    const int* const columns = column_of_.data();
    to = pack_columns(top, n_, columns, upper_columns, upper, to);
    to = pack_columns(bottom, n_, columns + upper_only_, k - upper_only_, lower, to);
    const int rows = static_cast<int>(bottom - top) + lower;
    pack_columns(top, n_, columns + k, m.rows() - k, rows, to);
  };
  pack_both(u(m, 0, 0), u(m, m.upper + 1, 0), m.upper, m.lower, packed_u_.data());
  pack_both(v(m, 0, 0), v(m, m.upper + 1, 0), m.upper + 1, m.lower + m.extra, packed_v_.data());
}

// U := U S_u, V := V S_v, the columns of M's roots first, then those set aside.
template <class T>
void BidiagonalVectors<T>::multiply(const Merge& m) {
  const int k = static_cast<int>(kept_.size()), upper_columns = upper_only_ + dense_, ld = k == 1 ? 1 : merge_ld(k);
  const int lower_columns = dense_ + lower_only_;
  const ptrdiff_t below = static_cast<ptrdiff_t>(upper_only_) * ld;
  const auto both_halves = [&](int upper, int lower, int rows, const T* packed, const T* joint, T* top, T* bottom) {
    multiply_packed(upper, k, upper_columns, packed, joint, ld, top, n_);
    packed += upper * upper_columns;
    multiply_packed(lower, k, lower_columns, packed, joint + below, ld, bottom, n_);
    packed += lower * lower_columns;
    for (int c = k; c < m.rows(); ++c, packed += rows) std::copy_n(packed, rows, top + static_cast<ptrdiff_t>(c) * n_);
  };
  both_halves(m.upper, m.lower, m.rows(), packed_u_.data(), joint_u_.data(), u(m, 0, 0), u(m, m.upper + 1, 0));
  both_halves(m.upper + 1, m.lower + m.extra, m.columns(), packed_v_.data(), joint_v_.data(), v(m, 0, 0),
              v(m, m.upper + 1, 0));
  const T* const middle = joint_u_.data() + static_cast<ptrdiff_t>(place_[0]) * ld;
  for (int j = 0; j < k; ++j) *u(m, m.upper, j) = middle[j];
}

// values_ and order_ of the whole.
template <class T>
void BidiagonalVectors<T>::finish(const Merge& m) {
  const int k = static_cast<int>(kept_.size());
  double* const values = values_.data() + m.first;
  for (int c = k; c < m.rows(); ++c) roots_[at(c)] = values[aside_[at(c - k)]];
  for (int c = 0; c < m.rows(); ++c) values[c] = roots_[at(c)] / scale_;
  std::iota(sorted_.begin(), sorted_.begin() + m.rows(), 0);
  std::merge(sorted_.begin(), sorted_.begin() + k, sorted_.begin() + k, sorted_.begin() + m.rows(),
             order_.begin() + m.first, [values](int a, int b) { return values[a] < values[b]; });
}

template class BidiagonalVectors<float>;
template class BidiagonalVectors<double>;

}  // namespace svdserve::host
