#include "tests/support/numerics/matrix.h"

#include <cstdio>
#include <cstring>
#include <limits>

namespace svdserve::numerics {
namespace {

template <class Real>
RealType describe() {
  using Limits = std::numeric_limits<Real>;
  return {Limits::epsilon() / 2, Limits::max(), Limits::min(), Limits::denorm_min()};
}

// One element in the engine's representation.
template <class Real>
void put(std::complex<double> z, bool with_imaginary, char* out) {
  const Real parts[2] = {static_cast<Real>(z.real()), static_cast<Real>(z.imag())};
  std::memcpy(out, parts, with_imaginary ? sizeof parts : sizeof parts[0]);
}

// Through memory, because GCC 12 drops the rounding of a pair double -> float -> double when it vectorizes it.
double rounded_to_single(double x) {
  volatile float single = static_cast<float>(x);
  return single;
}

std::string hex(double x) {
  char text[40];
  std::snprintf(text, sizeof text, "%a", x);
  return text;
}

}  // namespace

RealType real_type(DType dtype) { return value_bytes(dtype) == 4 ? describe<float>() : describe<double>(); }

void round_to_dtype(Matrix& a) {
  if (value_bytes(a.dtype) == 4) {
    for (std::complex<double>& z : a.elements) z = {rounded_to_single(z.real()), rounded_to_single(z.imag())};
  }
  if (!is_complex(a.dtype)) {
    for (std::complex<double>& z : a.elements) z = z.real();
  }
}

Matrix conjugate_transpose(const Matrix& a) {
  Matrix h(a.dtype, a.cols, a.rows);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      h.at(j, i) = is_complex(a.dtype) ? std::conj(a.at(i, j)) : a.at(i, j);
    }
  }
  return h;
}

void store(const Matrix& a, Order order, void* out) {
  const bool complex = is_complex(a.dtype);
  const size_t size = element_bytes(a.dtype);
  char* to = static_cast<char*>(out);
  const int64_t outer = order == Order::kRowMajor ? a.rows : a.cols;
  const int64_t inner = order == Order::kRowMajor ? a.cols : a.rows;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i, to += size) {
      const std::complex<double> z = order == Order::kRowMajor ? a.at(o, i) : a.at(i, o);
      value_bytes(a.dtype) == 4 ? put<float>(z, complex, to) : put<double>(z, complex, to);
    }
  }
}

std::vector<double> load_values(DType dtype, const void* values, int64_t count) {
  const char* from = static_cast<const char*>(values);
  std::vector<double> out(static_cast<size_t>(count));
  for (double& x : out) {
    if (value_bytes(dtype) == 4) {
      float single;
      std::memcpy(&single, from, sizeof single);
      x = single;
    } else {
      std::memcpy(&x, from, sizeof x);
    }
    from += value_bytes(dtype);
  }
  return out;
}

std::string to_hex(const Matrix& a) {
  std::string text("\n");
  text.append(name(a.dtype))
      .append(" ")
      .append(std::to_string(a.rows))
      .append("x")
      .append(std::to_string(a.cols))
      .append("\n");
  constexpr int64_t kShown = 64;  // of each dimension: enough for every shape that is not very tall
  for (int64_t i = 0; i < std::min(a.rows, kShown); ++i) {
    for (int64_t j = 0; j < std::min(a.cols, kShown); ++j) {
      const std::complex<double> z = a.at(i, j);
      text += (j == 0 ? "  " : ", ") + hex(z.real());
      if (is_complex(a.dtype)) text.append("|").append(hex(z.imag()));
    }
    text += "\n";
  }
  return text;
}

}  // namespace svdserve::numerics
