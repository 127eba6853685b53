// svdctl svd.
#include <chrono>
#include <list>
#include <optional>

#include "client/cli/commands.h"
#include "client/cli/connection.h"
#include "client/cli/npy.h"
#include "client/cli/summary.h"

namespace svdserve::cli {
namespace {

using client::Plane;

struct SvdArguments {
  Connection connection;
  std::string in, u, s, vh;
  bool full_matrices = false, certificate = false;
  int64_t top_k = 0;
  client::ComputeOptions compute;
};

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, SvdArguments* to) {
  Arguments a("svdctl svd [options] IN.npy",
              "Decomposes the matrices in a NumPy file, A = U diag(S) V^H: shape (..., m, n), k = min(m, n), gives U\n"
              "(..., m, k), S (..., k) and V^H (..., k, n), as numpy.linalg.svd(a, full_matrices=False) does.\n"
              "A summary goes to stderr.");
  a.operand("IN.npy", &to->in);
  a.section("Options");
  a.option("--u", "U.npy", "write U to this file", &to->u);
  a.option("--s", "S.npy", "write the singular values to this file", &to->s);
  a.option("--vh", "VH.npy", "write V^H to this file", &to->vh);
  a.flag("--full-matrices", "U (..., m, m) and V^H (..., n, n)", &to->full_matrices);
  a.option("--top-k", "K", "only the leading K values and vectors; 0: all", &to->top_k, 0);
  a.flag("--fix-phases", "the largest component of every column of U becomes real and positive",
         &to->compute.fix_phases);
  a.flag("--certificate", "also tell how good the results are", &to->certificate);
  to->connection.declare(&a);
  a.epilogue(
      "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input,\n"
      "3 done, but some matrices are not ok (non-finite, not converged, out of range).");
  if (const auto code = parse_or_explain(&a, "svd", words)) return code;
  if (to->full_matrices && to->top_k > 0) return bad_usage("svd", "--full-matrices have all columns: no --top-k");
  to->compute.vectors = to->full_matrices ? client::Vectors::kFull : client::Vectors::kThin;
  to->compute.top_k = to->top_k;
  if (to->certificate) to->compute.certificate = client::CertificateScope::kBatch;
  return std::nullopt;
}

// The results of a stack, and what they are as arrays of NumPy.
class SvdResults {
 public:
  SvdResults(const MatrixStack& stack, const client::ComputeOptions& compute) : stack_(stack), compute_(compute) {
    for (int p = 0; p < client::kPlanes; ++p) {
      const Plane plane = static_cast<Plane>(p);
      planes_[plane] = room(plane);
    }
  }
  const client::Outputs& planes() const { return planes_; }

  client::Status write(const std::string& path, Plane plane, std::vector<int64_t> of_matrix) const {
    if (path.empty()) return {};
    std::vector<int64_t> shape = stack_.batch_shape;
    shape.insert(shape.end(), of_matrix.begin(), of_matrix.end());
    const client::Batch& batch = stack_.batch;
    // Column-major is a single matrix only.
    const bool by_columns = of_matrix.size() == 2 && batch.memory_order == client::MemoryOrder::kColumnMajor;
    const std::string type = of_matrix.size() == 2 ? npy_type(batch.data_type) : npy_value_type(batch.data_type);
    return write_npy(path, type, shape, planes_[plane], by_columns);
  }

 private:
  std::span<std::byte> room(Plane plane) {
    const auto bytes = static_cast<size_t>(plane_bytes(stack_.batch, compute_, plane, stack_.batch.count));
    return memory_.emplace_back(bytes);
  }

  const MatrixStack& stack_;
  const client::ComputeOptions& compute_;
  std::list<std::vector<std::byte>> memory_;
  client::Outputs planes_;
};

client::Status write_files(const SvdArguments& args, const client::Batch& batch, const SvdResults& results) {
  const int64_t leading = args.top_k > 0 ? args.top_k : batch.values_per_matrix();
  const int64_t left = args.full_matrices ? batch.rows : leading, right = args.full_matrices ? batch.cols : leading;
  if (auto s = results.write(args.u, Plane::kLeft, {batch.rows, left}); !s.ok()) return s;
  if (auto s = results.write(args.s, Plane::kValues, {leading}); !s.ok()) return s;
  return results.write(args.vh, Plane::kRight, {right, batch.cols});
}

}  // namespace

int run_svd(const std::vector<std::string>& words) {
  SvdArguments args;
  if (const auto code = parse(words, &args)) return *code;
  const auto stack = load_matrices(args.in);
  if (!stack.ok()) return fail("svd", stack.status());
  const client::Batch& batch = stack->batch;
  if (batch.rows == 0 || batch.cols == 0) return bad_usage("svd", args.in + ": its matrices have no elements");
  if (args.top_k > batch.values_per_matrix()) return bad_usage("svd", "--top-k is larger than min(m, n)");
  const auto options = args.connection.options();
  if (!options.ok()) return fail("svd", options.status());
  SvdResults results(*stack, args.compute);
  client::Client client(*options);
  const auto begin = std::chrono::steady_clock::now();
  const auto report = client.decompose(batch, results.planes(), args.compute, args.connection.call());
  if (!report.ok()) return fail("svd", report.status());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (auto s = write_files(args, batch, results); !s.ok()) return fail("svd", s);
  print_summary(batch, *report, seconds);
  return report->exceptions.empty() ? kDone : kExceptions;
}

}  // namespace svdserve::cli
