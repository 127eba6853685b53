#include "engine/backends/host/dense/blocked_finish.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/backends/host/base/conjugate.h"
#include "engine/backends/host/dense/lapack.h"
#include "engine/outputs.h"

namespace svdserve::host {
namespace {

// to, by columns := the leading columns of a matrix.
template <class E, class Wide>
void load(const void* from, const VectorLayout& at, int64_t columns, Wide* to) {
  for (int64_t j = 0; j < columns; ++j) {
    for (int64_t i = 0; i < at.rows; ++i) {
      E x;
      std::memcpy(
          &x, static_cast<const char*>(from) + static_cast<size_t>(i * at.row_stride + j * at.col_stride) * sizeof(E),
          sizeof(E));
      to[j * at.rows + i] = static_cast<Wide>(at.conjugate ? conjugate(x) : x);
    }
  }
}

// Column j of a matrix := `from`, every zero as +0.
template <class E>
void store_column(const E* from, const PlacedMatrix& to, int64_t j) {
  const VectorLayout& at = to.layout;
  for (int64_t i = 0; i < at.rows; ++i) {
    const E x = (at.conjugate ? conjugate(from[i]) : from[i]) + E(0);
    std::memcpy(static_cast<char*>(to.data) + static_cast<size_t>(i * at.row_stride + j * at.col_stride) * sizeof(E),
                &x, sizeof(E));
  }
}

double* components(double* x) { return x; }
double* components(Complex* x) { return reinterpret_cast<double*>(x); }
template <class Wide>
constexpr int64_t kComponents = sizeof(Wide) / sizeof(double);

double sum_of_squares(const double* x, int64_t count) {
  double parts[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t p = 0; p < 8; ++p) parts[p] += x[i + p] * x[i + p];
  }
  for (; i < count; ++i) parts[i % 8] += x[i] * x[i];
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

// f(first, count) for the parts of a sum of n terms. The total approaches zero part by part, and so does the rounding
// error of an addition. A sum in one go has several times the error.
template <class F>
void for_parts(int64_t n, const F& f) {
  constexpr int64_t kParts = 8;
  const int64_t most = (n + kParts - 1) / kParts;
  for (int64_t first = 0; first < n; first += most) f(first, std::min(most, n - first));
}

// x := 2^exponent x, in two steps, one of which alone might be out of range.
void scale(double* x, int64_t count, int exponent) {
  const double first = std::ldexp(1.0, exponent / 2), second = std::ldexp(1.0, exponent - exponent / 2);
  for (int64_t i = 0; i < count; ++i) x[i] = x[i] * first * second;
}

}  // namespace

template <class E>
void BlockedFinish<E>::complete(const PlacedMatrix& x, int64_t k) {
  const int64_t rows = x.layout.rows, missing = x.layout.columns - k;
  factor_.reserve(static_cast<size_t>(rows * k));
  tau_.reserve(static_cast<size_t>(k));
  work_.reserve(lapack::work_size(std::max(k, missing)));
  more_.reserve(static_cast<size_t>(rows * missing));
  load<E>(x.data, x.layout, k, factor_.data());
  lapack::geqrf(rows, k, factor_.data(), tau_.data(), work_.data());
  std::fill_n(more_.data(), rows * missing, E(0));
  for (int64_t j = 0; j < missing; ++j) more_[static_cast<size_t>(j * rows + k + j)] = E(1);
  lapack::multiply_by_tall_q(rows, missing, k, factor_.data(), rows, tau_.data(), more_.data(), rows, work_.data());
  for (int64_t j = 0; j < missing; ++j) store_column(more_.data() + j * rows, x, k + j);
}

// |I - X^H X|_F
template <class E>
double BlockedFinish<E>::orthogonality(const Wide* x, int64_t rows, int64_t k) {
  std::fill_n(gram_.data(), k * k, Wide(0));
  for (int64_t j = 0; j < k; ++j) gram_[static_cast<size_t>(j * k + j)] = Wide(-1);
  for_parts(rows, [&](int64_t first, int64_t count) { blas::gram(k, count, x + first, rows, gram_.data(), k, 1); });
  double diagonal = 0, above = 0;
  for (int64_t j = 0; j < k; ++j) {
    Wide* const column = gram_.data() + j * k;
    diagonal += std::norm(column[j]);
    above += sum_of_squares(components(column), j * kComponents<Wide>);
  }
  return std::sqrt(diagonal + 2 * above);
}

template <class E>
void BlockedFinish<E>::certify(const void* t, const VectorLayout& of_t, const PlacedMatrix& x, const PlacedMatrix& y,
                               const T* s, bool wide, void* certificate) {
  const int64_t rows = x.layout.rows, k = y.layout.rows, size = rows * k * kComponents<Wide>;
  for (AlignedArray<Wide>* const array : {&t_, &x_}) array->reserve(static_cast<size_t>(rows * k));
  for (AlignedArray<Wide>* const array : {&y_, &gram_}) array->reserve(static_cast<size_t>(k * k));
  load<E>(t, of_t, k, t_.data());
  load<E>(x.data, x.layout, k, x_.data());
  load<E>(y.data, y.layout, k, y_.data());
  const double of_x = orthogonality(x_.data(), rows, k), of_y = orthogonality(y_.data(), k, k);

  double largest = 0;
  double* const entries = components(t_.data());
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, std::abs(entries[i]));
  const int exponent = largest > 0 ? -std::ilogb(largest) : 0;
  scale(entries, size, exponent);
  const double norm = sum_of_squares(entries, size);
  for (int64_t j = 0; j < k; ++j) {
    double value = static_cast<double>(s[j]);
    scale(&value, 1, exponent);
    double* const column = components(x_.data() + j * rows);
    for (int64_t i = 0; i < rows * kComponents<Wide>; ++i) column[i] *= value;
  }
  for_parts(k, [&](int64_t first, int64_t count) {
    blas::gemm(false, true, rows, k, count, -1, x_.data() + first * rows, rows, y_.data() + first * k, k, 1, t_.data(),
               rows);
  });
  const double square = sum_of_squares(entries, size);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double residual = norm > 0 ? std::sqrt(square) / std::sqrt(norm) : square > 0 ? kInfinity : square;
  if (!(residual >= 0)) residual = kInfinity;  // a value is infinite
  const T numbers[] = {static_cast<T>(residual), static_cast<T>(wide ? of_y : of_x),
                       static_cast<T>(wide ? of_x : of_y)};
  static_assert(sizeof(numbers) == kCertificateNumbers * sizeof(T));
  std::memcpy(certificate, numbers, sizeof(numbers));
}

template <class E>
void BlockedFinish<E>::multiply(const PlacedMatrix& x, const T* w, const PlacedMatrix& y, const PlacedMatrix& g) {
  const int64_t rows = x.layout.rows, k = y.layout.rows;
  for (AlignedArray<Wide>* const array : {&t_, &x_}) array->reserve(static_cast<size_t>(rows * k));
  y_.reserve(static_cast<size_t>(k * k));
  factor_.reserve(static_cast<size_t>(rows));
  load<E>(x.data, x.layout, k, x_.data());
  load<E>(y.data, y.layout, k, y_.data());
  for (int64_t j = 0; j < k; ++j) {
    double* const column = components(x_.data() + j * rows);
    for (int64_t i = 0; i < rows * kComponents<Wide>; ++i) column[i] *= static_cast<double>(w[j]);
  }
  blas::gemm(false, true, rows, k, k, 1, x_.data(), rows, y_.data(), k, 0, t_.data(), rows);
  for (int64_t j = 0; j < k; ++j) {
    const Wide* const column = t_.data() + j * rows;
    std::transform(column, column + rows, factor_.data(), [](const Wide& z) { return static_cast<E>(z); });
    store_column(factor_.data(), g, j);
  }
}

template class BlockedFinish<float>;
template class BlockedFinish<double>;
template class BlockedFinish<std::complex<float>>;
template class BlockedFinish<std::complex<double>>;

}  // namespace svdserve::host
