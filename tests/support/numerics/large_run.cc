#include "tests/support/numerics/large_run.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace svdserve::numerics {
namespace {

using Wide = std::complex<long double>;

constexpr std::byte kPoison{0xa5};
constexpr size_t kMargin = 64;

class GuardedBytes {
 public:
  explicit GuardedBytes(size_t size) : bytes_(size + 2 * kMargin, kPoison) {}
  std::byte* data() { return bytes_.data() + kMargin; }
  std::vector<std::byte> checked() const {
    const auto is_poison = [](std::byte b) { return b == kPoison; };
    if (!std::all_of(bytes_.begin(), bytes_.begin() + kMargin, is_poison) ||
        !std::all_of(bytes_.end() - kMargin, bytes_.end(), is_poison)) {
      throw std::logic_error("the call wrote outside its outputs");
    }
    return {bytes_.begin() + kMargin, bytes_.end() - kMargin};
  }

 private:
  std::vector<std::byte> bytes_;
};

Matrix widened(const Problem& p, int64_t rows, int64_t cols, const std::vector<std::byte>& bytes) {
  Matrix a(p.dtype, rows, cols);
  const int64_t components = is_complex(p.dtype) ? 2 : 1;
  const auto flat = load_values(p.dtype, bytes.data(), rows * cols * components);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t number = p.order == Order::kRowMajor ? i * cols + j : j * rows + i;
      const auto at = static_cast<size_t>(number * components);
      a.at(i, j) = {flat[at], components == 2 ? flat[at + 1] : 0.0};
    }
  }
  return a;
}

// |D - C^H J C|_F for columns C, J and D = diag(j). Columns are copied out, so that a product is two plain loops.
double gram_error(const Matrix& c, const std::vector<int8_t>& j) {
  const auto rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols);
  long double sum = 0;
  for (size_t a = 0; a < cols; ++a) {
    for (size_t b = a; b < cols; ++b) {
      long double re = 0, im = 0;
      const std::complex<double>*x = c.elements.data() + a * rows, *y = c.elements.data() + b * rows;
      for (size_t i = 0; i < rows; ++i) {
        const long double sign = j.empty() ? 1 : j[i];
        re += sign * (static_cast<long double>(x[i].real()) * y[i].real() +
                      static_cast<long double>(x[i].imag()) * y[i].imag());
        im += sign * (static_cast<long double>(x[i].real()) * y[i].imag() -
                      static_cast<long double>(x[i].imag()) * y[i].real());
      }
      if (a == b) re -= j.empty() ? 1 : j[a];
      sum += (a == b ? 1 : 2) * (re * re + im * im);
    }
  }
  return static_cast<double>(std::sqrt(sum));
}

}  // namespace

LargePlan large_plan_of(const Problem& problem, const LargeOptions& options) {
  auto plan = plan_large(problem, options);
  if (!plan.plan) throw std::invalid_argument(plan.error.field + ": " + plan.error.message);
  return *plan.plan;
}

LargeResult run_large(const LargeEngine& engine, const LargePlan& plan, const Matrix& a,
                      const std::vector<int8_t>& signature, const LargeControl& control, const Matrix* start) {
  const Problem& p = plan.problem;
  std::vector<std::byte> operand(plan.operand_bytes());
  store(a, p.order, operand.data());
  if (start != nullptr) store(*start, p.order, operand.data() + plan.matrix_bytes());
  const auto before = operand;
  GuardedBytes left(plan.left_bytes()), values(plan.values_bytes()), right(plan.right_bytes());
  LargeOperands operands;
  operands.matrix = operand.data();
  operands.signature = signature.empty() ? nullptr : signature.data();
  operands.left = plan.left_columns > 0 ? left.data() : nullptr;
  operands.values = values.data();
  operands.right = plan.right_rows > 0 ? right.data() : nullptr;
  if (start != nullptr) operands.start = operand.data() + plan.matrix_bytes();
  LargeResult result;
  result.outcome = engine.decompose(plan, operands, control);
  if (operand != before) throw std::logic_error("the call changed its input");
  result.left_bytes = left.checked();
  result.values_bytes = values.checked();
  result.right_bytes = right.checked();
  Problem of_vectors = p;
  of_vectors.dtype = plan.vector_type();
  if (plan.options.kind == LargeKind::kGeneral) {
    result.complex_values = widened(of_vectors, plan.values, 1, result.values_bytes).elements;
  } else {
    result.values = load_values(p.dtype, result.values_bytes.data(), plan.values);
  }
  if (plan.left_columns > 0) {
    result.left = widened(of_vectors, p.rows, plan.left_columns, result.left_bytes);
    result.right = widened(of_vectors, plan.right_rows, p.cols, result.right_bytes);
  }
  return result;
}

double column_orthogonality(const Matrix& u) { return gram_error(u, {}); }
double row_orthogonality(const Matrix& vh) { return gram_error(conjugate_transpose(vh), {}); }

double signature_error(const Matrix& vh, const std::vector<int8_t>& signature) {
  long double square = 0;
  for (const auto& z : vh.elements) square += std::norm(z);
  return gram_error(conjugate_transpose(vh), signature) / static_cast<double>(square);
}

double residual_of(const Matrix& a, const LargeResult& result) {
  long double scale = 0;
  for (const auto& z : a.elements) scale = std::max<long double>({scale, std::abs(z.real()), std::abs(z.imag())});
  if (scale == 0) return 0;
  long double error = 0, size = 0;
  const auto rows = static_cast<size_t>(a.rows);
  std::vector<Wide> column(rows);
  for (int64_t j = 0; j < a.cols; ++j) {
    for (size_t i = 0; i < rows; ++i) column[i] = Wide(a.elements[static_cast<size_t>(j) * rows + i]) / scale;
    for (const Wide& x : column) size += std::norm(x);
    for (int64_t l = 0; l < a.values(); ++l) {
      const Wide v =
          Wide(result.right.at(l, j)) * (static_cast<long double>(result.values[static_cast<size_t>(l)]) / scale);
      const std::complex<double>* u = result.left.elements.data() + static_cast<size_t>(l) * rows;
      for (size_t i = 0; i < rows; ++i) {
        column[i] -=
            Wide(u[i].real() * v.real() - u[i].imag() * v.imag(), u[i].real() * v.imag() + u[i].imag() * v.real());
      }
    }
    for (const Wide& x : column) error += std::norm(x);
  }
  return static_cast<double>(std::sqrt(error / size));
}

}  // namespace svdserve::numerics
