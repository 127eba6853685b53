#include "tests/support/numerics/matrix_generators.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

namespace svdserve::numerics {
namespace {

using Scalar = std::complex<double>;

// A standard normal number; complex: of variance 1, too.
Scalar normal(DType dtype, Random& random) {
  if (!is_complex(dtype)) return random.normal();
  const double re = random.normal();
  return Scalar(re, random.normal()) * std::numbers::sqrt2 / 2.0;
}

// A number of modulus 1: a sign for real dtypes.
Scalar phase(DType dtype, Random& random) {
  if (!is_complex(dtype)) return random.coin() ? 1.0 : -1.0;
  return std::polar(1.0, random.uniform(0, 2 * std::numbers::pi));
}

Matrix normal_matrix(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  for (Scalar& z : a.elements) z = normal(dtype, random);
  return a;
}

// 10^(-decades t), t = 0 .. 1 over `count` lines.
double grade(int64_t line, int64_t count, double decades) {
  return count == 1 ? 1 : std::pow(10.0, -decades * static_cast<double>(line) / static_cast<double>(count - 1));
}

void scale_row(Matrix& a, int64_t i, double factor) {
  for (int64_t j = 0; j < a.cols; ++j) a.at(i, j) *= factor;
}
void scale_column(Matrix& a, int64_t j, double factor) {
  for (int64_t i = 0; i < a.rows; ++i) a.at(i, j) *= factor;
}

Matrix graded_rows(DType dtype, int64_t rows, int64_t cols, double decades, Random& random) {
  Matrix a = normal_matrix(dtype, rows, cols, random);
  for (int64_t i = 0; i < rows; ++i) scale_row(a, i, grade(i, rows, decades));
  return a;
}
Matrix graded_columns(DType dtype, int64_t rows, int64_t cols, double decades, Random& random) {
  Matrix a = normal_matrix(dtype, rows, cols, random);
  for (int64_t j = 0; j < cols; ++j) scale_column(a, j, grade(j, cols, decades));
  return a;
}

// a b, no rounding to the dtype.
Matrix product(const Matrix& a, const Matrix& b) {
  Matrix c(a.dtype, a.rows, b.cols);
  for (int64_t j = 0; j < b.cols; ++j) {
    for (int64_t l = 0; l < a.cols; ++l) {
      const Scalar factor = b.at(l, j);
      for (int64_t i = 0; i < a.rows; ++i) {
        const Scalar x = a.at(i, l);
        c.at(i, j) += Scalar(x.real() * factor.real() - x.imag() * factor.imag(),
                             x.real() * factor.imag() + x.imag() * factor.real());
      }
    }
  }
  return c;
}

// B D, tall: B with singular values in [1, 3], whose condition with unit columns is then at most about 5; D spread
// evenly over the exponents, in random order.
Matrix column_graded_tall(DType dtype, int64_t rows, int64_t cols, Random& random) {
  std::vector<double> values(static_cast<size_t>(cols));
  for (double& s : values) s = random.uniform(1, 3);
  Matrix a = with_singular_values(dtype, rows, cols, values, random);
  const double decades = value_bytes(dtype) == 4 ? 15 : 150;
  std::vector<double> exponents(static_cast<size_t>(cols));
  for (size_t j = 0; j < exponents.size(); ++j) {
    exponents[j] = cols == 1 ? random.uniform(-decades, decades)
                             : decades * (2 * static_cast<double>(j) / static_cast<double>(cols - 1) - 1);
    std::swap(exponents[j], exponents[static_cast<size_t>(random.integer(0, static_cast<int64_t>(j)))]);
  }
  for (int64_t j = 0; j < cols; ++j) scale_column(a, j, std::pow(10.0, exponents[static_cast<size_t>(j)]));
  return a;
}

Matrix hilbert(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) a.at(i, j) = 1.0 / static_cast<double>(i + j + 1);
  }
  if (!is_complex(dtype)) return a;
  std::vector<Scalar> left(static_cast<size_t>(rows)), right(static_cast<size_t>(cols));
  for (Scalar& z : left) z = phase(dtype, random);
  for (Scalar& z : right) z = phase(dtype, random);
  for (int64_t j = 0; j < cols; ++j) {
    for (int64_t i = 0; i < rows; ++i) a.at(i, j) *= left[static_cast<size_t>(i)] * right[static_cast<size_t>(j)];
  }
  return a;
}

Matrix kahan(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  const double angle = random.uniform(0.9, 1.5);
  const double s = std::sin(angle);
  const Scalar c = std::cos(angle) * phase(dtype, random);
  const int64_t k = a.values();
  for (int64_t i = 0; i < k; ++i) {
    const double factor = std::pow(s, static_cast<double>(i));
    a.at(i, i) = factor;
    for (int64_t j = i + 1; j < k; ++j) a.at(i, j) = -c * factor;
  }
  return a;
}

Matrix laeuchli(DType dtype, int64_t rows, int64_t cols, Random& random) {
  if (rows < cols) return conjugate_transpose(laeuchli(dtype, cols, rows, random));
  Matrix a(dtype, rows, cols);
  const double mu = std::sqrt(real_type(dtype).unit_roundoff) * random.uniform(0.1, 0.9);
  for (int64_t j = 0; j < cols; ++j) {
    a.at(0, j) = 1;
    if (j + 1 < rows) a.at(j + 1, j) = mu * phase(dtype, random);
  }
  return a;
}

Matrix duplicates(DType dtype, int64_t rows, int64_t cols, Random& random) {
  if (rows < cols) return conjugate_transpose(duplicates(dtype, cols, rows, random));
  Matrix a = normal_matrix(dtype, rows, cols, random);
  const int64_t distinct = (cols + 1) / 2;
  for (int64_t j = distinct; j < cols; ++j) {
    const int64_t from = random.integer(0, distinct - 1);
    for (int64_t i = 0; i < rows; ++i) a.at(i, j) = a.at(i, from);
  }
  return a;
}

Matrix zero_lines(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a = normal_matrix(dtype, rows, cols, random);
  for (int64_t line = 0; line < std::max<int64_t>(1, a.values() / 3); ++line) {
    if (random.coin()) scale_column(a, random.integer(0, cols - 1), 0);
    if (random.coin()) scale_row(a, random.integer(0, rows - 1), 0);
  }
  return a;
}

Matrix low_rank(DType dtype, int64_t rows, int64_t cols, int64_t rank, Random& random) {
  Matrix left = normal_matrix(dtype, rows, rank, random);
  Matrix right = normal_matrix(dtype, rank, cols, random);
  return product(left, right);
}

Matrix equal_values(DType dtype, int64_t rows, int64_t cols, Random& random) {
  if (rows < cols) return conjugate_transpose(equal_values(dtype, cols, rows, random));
  Matrix a = orthonormal_columns(dtype, rows, cols, random);
  const double c = std::exp2(random.uniform(-10, 10));
  for (int64_t j = 0; j < cols; ++j) scale_column(a, j, c);
  return a;
}

Matrix clusters(DType dtype, int64_t rows, int64_t cols, Random& random) {
  std::vector<double> values(static_cast<size_t>(std::min(rows, cols)), 1.0);
  for (size_t i = (values.size() + 1) / 2; i < values.size(); ++i) values[i] = 1e-3;
  return with_singular_values(dtype, rows, cols, values, random);
}

Matrix diagonal(Kind kind, DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  for (int64_t i = 0; i < a.values(); ++i) {
    switch (kind) {
      case Kind::kIdentity:
        a.at(i, i) = 1;
        break;
      case Kind::kDiagonal:
        a.at(i, i) = random.integer(0, 4) == 0 ? Scalar(0) : normal(dtype, random);
        break;
      default:  // kShift
        a.at(i, i) = random.coin() ? 0.0 : 1e-9;
        if (i + 1 < cols) a.at(i, i + 1) = phase(dtype, random);
    }
  }
  return a;
}

Matrix signed_zeros(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  for (Scalar& z : a.elements) z = {random.coin() ? -0.0 : 0.0, is_complex(dtype) && random.coin() ? -0.0 : 0.0};
  return a;
}

Scalar& any_element(Matrix& a, Random& random) {
  return a.elements[static_cast<size_t>(random.integer(0, static_cast<int64_t>(a.elements.size()) - 1))];
}

// An entry of exactly +-`magnitude`, in the real or (complex dtypes) the imaginary part; the other part is zero.
void set_exactly(Scalar& z, double magnitude, DType dtype, Random& random) {
  const double value = random.coin() ? magnitude : -magnitude;
  z = is_complex(dtype) && random.coin() ? Scalar(0, value) : Scalar(value, 0);
}

// Normal entries with a bound on the Frobenius norm of 2^exponent.
Matrix scaled_below(DType dtype, int64_t rows, int64_t cols, int exponent, Random& random) {
  Matrix a = normal_matrix(dtype, rows, cols, random);
  double sum = 0;
  for (const Scalar& z : a.elements) sum += std::norm(z);
  const int norm_exponent = static_cast<int>(std::ceil(std::log2(std::sqrt(sum) + 1e-300)));
  for (Scalar& z : a.elements) {
    z = {std::ldexp(z.real(), exponent - norm_exponent), std::ldexp(z.imag(), exponent - norm_exponent)};
  }
  return a;
}

Matrix overflowing(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix a(dtype, rows, cols);
  const double largest = real_type(dtype).largest;
  const auto part = [&] { return random.uniform(0.75, 1) * (random.coin() ? largest : -largest); };
  for (Scalar& z : a.elements) {
    const double re = part();
    z = {re, is_complex(dtype) ? part() : 0.0};
  }
  return a;
}

// Entries between -limit and +limit units of `unit`.
Matrix multiples(DType dtype, int64_t rows, int64_t cols, double unit, int64_t limit, Random& random) {
  Matrix a(dtype, rows, cols);
  for (Scalar& z : a.elements) {
    const double re = static_cast<double>(random.integer(-limit, limit)) * unit;
    z = {re, is_complex(dtype) ? static_cast<double>(random.integer(-limit, limit)) * unit : 0.0};
  }
  return a;
}

Matrix at_the_ends_of_the_range(Kind kind, DType dtype, int64_t rows, int64_t cols, Random& random) {
  const RealType real = real_type(dtype);
  const int top = std::ilogb(real.largest);  // 2^top <= largest < 2^(top + 1)
  const int bottom = std::ilogb(real.smallest_normal);
  switch (kind) {
    case Kind::kHuge:
      return scaled_below(dtype, rows, cols, top, random);
    case Kind::kTiny:
      return scaled_below(dtype, rows, cols, bottom, random);
    case Kind::kOverflowing:
      return overflowing(dtype, rows, cols, random);
    case Kind::kDenormals:
      return multiples(dtype, rows, cols, real.smallest_denormal, 1000, random);
    case Kind::kOverflowEntry: {
      Matrix a = normal_matrix(dtype, rows, cols, random);
      set_exactly(any_element(a, random), real.largest, dtype, random);
      return a;
    }
    case Kind::kUnderflowEntry: {
      Matrix a = multiples(dtype, rows, cols, real.smallest_denormal, 3, random);
      set_exactly(any_element(a, random), real.smallest_normal, dtype, random);
      return a;
    }
    default:
      return {};
  }
}

Matrix unrounded(Kind kind, DType dtype, int64_t rows, int64_t cols, Random& random) {
  switch (kind) {
    case Kind::kNormal:
      return normal_matrix(dtype, rows, cols, random);
    case Kind::kGradedRows:
      return graded_rows(dtype, rows, cols, 12, random);
    case Kind::kGradedColumns:
      return graded_columns(dtype, rows, cols, 12, random);
    case Kind::kSteepRows:
      return graded_rows(dtype, rows, cols, 100, random);
    case Kind::kSteepColumns:
      return graded_columns(dtype, rows, cols, 100, random);
    case Kind::kColumnGraded:
      return rows >= cols ? column_graded_tall(dtype, rows, cols, random)
                          : conjugate_transpose(column_graded_tall(dtype, cols, rows, random));
    case Kind::kHilbert:
      return hilbert(dtype, rows, cols, random);
    case Kind::kKahan:
      return kahan(dtype, rows, cols, random);
    case Kind::kLaeuchli:
      return laeuchli(dtype, rows, cols, random);
    case Kind::kDuplicates:
      return duplicates(dtype, rows, cols, random);
    case Kind::kZeroLines:
      return zero_lines(dtype, rows, cols, random);
    case Kind::kOuterProduct:
      return low_rank(dtype, rows, cols, 1, random);
    case Kind::kLowRank:
      return low_rank(dtype, rows, cols, (std::min(rows, cols) + 1) / 2, random);
    case Kind::kEqualValues:
      return equal_values(dtype, rows, cols, random);
    case Kind::kClusters:
      return clusters(dtype, rows, cols, random);
    case Kind::kIdentity:
    case Kind::kDiagonal:
    case Kind::kShift:
      return diagonal(kind, dtype, rows, cols, random);
    case Kind::kZero:
      return signed_zeros(dtype, rows, cols, random);
    case Kind::kOneEntry: {
      Matrix a(dtype, rows, cols);
      any_element(a, random) = normal(dtype, random);
      return a;
    }
    default:
      return at_the_ends_of_the_range(kind, dtype, rows, cols, random);
  }
}

}  // namespace

std::vector<Kind> kinds(DType dtype) {
  std::vector<Kind> all;
  for (int kind = 0; kind <= static_cast<int>(Kind::kDenormals); ++kind) {
    const auto k = static_cast<Kind>(kind);
    const bool steep = k == Kind::kSteepRows || k == Kind::kSteepColumns;
    if (!(steep && value_bytes(dtype) == 4)) all.push_back(k);
  }
  return all;
}

const char* name(Kind kind) {
  switch (kind) {
    case Kind::kNormal:
      return "random normal";
    case Kind::kGradedRows:
      return "rows to 1e-12";
    case Kind::kGradedColumns:
      return "columns to 1e-12";
    case Kind::kSteepRows:
      return "rows to 1e-100";
    case Kind::kSteepColumns:
      return "columns to 1e-100";
    case Kind::kColumnGraded:
      return "column-graded B D";
    case Kind::kHilbert:
      return "Hilbert";
    case Kind::kKahan:
      return "Kahan";
    case Kind::kLaeuchli:
      return "Laeuchli";
    case Kind::kDuplicates:
      return "duplicate columns";
    case Kind::kZeroLines:
      return "zero rows, columns";
    case Kind::kOuterProduct:
      return "rank 1";
    case Kind::kLowRank:
      return "rank k/2";
    case Kind::kEqualValues:
      return "equal values";
    case Kind::kClusters:
      return "two clusters";
    case Kind::kIdentity:
      return "identity";
    case Kind::kDiagonal:
      return "diagonal";
    case Kind::kShift:
      return "shift";
    case Kind::kZero:
      return "zero";
    case Kind::kOneEntry:
      return "one entry";
    case Kind::kOverflowEntry:
      return "overflow entry";
    case Kind::kHuge:
      return "near overflow";
    case Kind::kOverflowing:
      return "overflowing values";
    case Kind::kUnderflowEntry:
      return "underflow entry";
    case Kind::kTiny:
      return "near underflow";
    case Kind::kDenormals:
      return "denormals";
  }
  return "?";
}

Matrix generate(Kind kind, DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  Random random(seed * 1000003 + static_cast<uint64_t>(kind) * 7919 + static_cast<uint64_t>(dtype) * 104729 +
                static_cast<uint64_t>(rows) * 65537 + static_cast<uint64_t>(cols));
  Matrix a = unrounded(kind, dtype, rows, cols, random);
  round_to_dtype(a);
  return a;
}

Matrix orthonormal_columns(DType dtype, int64_t rows, int64_t cols, Random& random) {
  Matrix q = normal_matrix(dtype, rows, cols, random);
  for (int64_t j = 0; j < cols; ++j) {
    Scalar* x = &q.at(0, j);
    for (int64_t p = 0; p < 2 * j; ++p) {  // Gram-Schmidt, twice, which is enough for double's last bit
      const Scalar* y = &q.at(0, p % j);
      double re = 0, im = 0;
      for (int64_t i = 0; i < rows; ++i) {
        re += y[i].real() * x[i].real() + y[i].imag() * x[i].imag();
        im += y[i].real() * x[i].imag() - y[i].imag() * x[i].real();
      }
      for (int64_t i = 0; i < rows; ++i) {
        x[i] -= Scalar(re * y[i].real() - im * y[i].imag(), re * y[i].imag() + im * y[i].real());
      }
    }
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i) sum += std::norm(x[i]);
    scale_column(q, j, 1 / std::sqrt(sum));
  }
  return q;
}

Matrix with_singular_values(DType dtype, int64_t rows, int64_t cols, const std::vector<double>& values,
                            Random& random) {
  const auto k = static_cast<int64_t>(values.size());
  Matrix left = orthonormal_columns(dtype, rows, k, random);
  const Matrix right = orthonormal_columns(dtype, cols, k, random);
  for (int64_t j = 0; j < k; ++j) scale_column(left, j, values[static_cast<size_t>(j)]);
  Matrix a = product(left, conjugate_transpose(right));
  round_to_dtype(a);
  return a;
}

double poison_value(Poison poison) {
  switch (poison) {
    case Poison::kInfinity:
      return std::numeric_limits<double>::infinity();
    case Poison::kMinusInfinity:
      return -std::numeric_limits<double>::infinity();
    case Poison::kQuietNan:
      return std::bit_cast<double>(0xfff8123456789abcULL);
    case Poison::kSignallingNan:
      return std::bit_cast<double>(0x7ff0000000000001ULL);
  }
  return 0;
}

}  // namespace svdserve::numerics
