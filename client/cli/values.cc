// svdctl values.
#include <chrono>
#include <cstdio>
#include <cstring>

#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/npy.h"
#include "client/cli/summary.h"

namespace svdserve::cli {
namespace {

// One matrix a line, with digits enough to be read back exactly.
void print_values(const MatrixStack& stack, std::span<const std::byte> values) {
  const int64_t k = stack.batch.values_per_matrix();
  const bool is_float = client::value_bytes(stack.batch.data_type) == sizeof(float);
  const std::byte* at = values.data();
  for (int64_t i = 0; i < stack.batch.count; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      if (is_float) {
        float v;
        std::memcpy(&v, at, sizeof v);
        std::printf("%s%.9g", j == 0 ? "" : " ", static_cast<double>(v));
        at += sizeof v;
      } else {
        double v;
        std::memcpy(&v, at, sizeof v);
        std::printf("%s%.17g", j == 0 ? "" : " ", v);
        at += sizeof v;
      }
    }
    std::puts("");
  }
}

}  // namespace

int run_values(const std::vector<std::string>& words) {
  Connection connection;
  std::string in, out, method = "auto";
  client::ComputeOptions compute;
  int64_t max_sweeps = 0;
  bool print = false;
  Arguments a(
      "svdctl values [options] IN.npy",
      "Computes the singular values of the matrices in a NumPy file: shape (..., m, n) gives (..., min(m, n)),\n"
      "as numpy.linalg.svd(a, compute_uv=False) does. Any byte order, C or Fortran order; integers become f8.\n"
      "A summary goes to stderr.");
  a.operand("IN.npy", &in);
  a.section("Options");
  a.option("-o", "OUT.npy", "write the values to this file", &out);
  a.flag("--print", "write the values to stdout, one matrix a line", &print);
  a.option("--method", "NAME", "auto, bidiagonal, bisection or jacobi", &method);
  a.option("--tolerance", "X", "bisection: relative interval width, to 0.5; jacobi: cosine, to 1; 0: the default",
           &compute.tolerance);
  a.option("--max-sweeps", "N", "jacobi: give a matrix up after N sweeps; 0: the server's default", &max_sweeps, 0);
  connection.declare(&a);
  a.epilogue(
      "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input,\n"
      "3 done, but some matrices are not ok (non-finite, not converged, out of range).");
  if (const auto code = parse_or_explain(&a, "values", words)) return *code;
  const auto chosen = parse_method(method);
  if (!chosen) return bad_usage("values", "--method: \"" + method + "\" is not auto, bidiagonal, bisection or jacobi");
  if (max_sweeps > INT32_MAX) return bad_usage("values", "--max-sweeps is too large");
  compute.method = *chosen;
  compute.max_sweeps = static_cast<int32_t>(max_sweeps);

  auto stack = load_matrices(in);
  if (!stack.ok()) return fail("values", stack.status());
  const auto options = connection.options();
  if (!options.ok()) return fail("values", options.status());
  const client::Batch& batch = stack->batch;
  std::vector<std::byte> values(static_cast<size_t>(batch.count * batch.values_per_matrix()) *
                                client::value_bytes(batch.data_type));
  client::Report report;
  double seconds = 0;
  if (batch.rows > 0 && batch.cols > 0) {  // a matrix without elements has no values: nothing to ask for
    client::Client client(*options);
    const auto begin = std::chrono::steady_clock::now();
    auto answer = client.decompose(batch, values, compute, connection.call());
    if (!answer.ok()) return fail("values", answer.status());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report = *std::move(answer);
  }
  if (!out.empty()) {
    std::vector<int64_t> shape = stack->batch_shape;
    shape.push_back(batch.values_per_matrix());
    if (auto s = write_npy(out, npy_value_type(batch.data_type), shape, values); !s.ok()) return fail("values", s);
  }
  if (print) {
    print_values(*stack, values);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      return fail("values", {.code = client::Code::kUnknown, .message = "cannot write to stdout"});
    }
  }
  print_summary(batch, report, seconds);
  return report.exceptions.empty() ? kDone : kExceptions;
}

}  // namespace svdserve::cli
