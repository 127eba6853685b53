// svdctl svd.
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <vector>

#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/connection.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/files/output_target.h"
#include "client/cli/interruption.h"
#include "client/cli/summary.h"

namespace svdserve::cli {
namespace {

using client::Plane;

struct SvdArguments {
  Connection connection;
  std::string in;
  LargeFiles files;
  bool full_matrices = false, force = false;
  int64_t top_k = 0;
  LargeArguments large;
  client::LargeOptions large_options;
  client::ComputeOptions compute;  // of small matrices
};

void set_full_matrices(bool full, SvdArguments* to) {
  to->full_matrices = full;
  to->compute.vectors = to->large_options.vectors = full ? client::Vectors::kFull : client::Vectors::kThin;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, SvdArguments* to) {
  Arguments a(
      "svdctl svd [options] IN.npy",
      "Decomposes the matrices in a NumPy file, A = U diag(S) V^H. Shape (..., m, n) gives U (..., m, k),\n"
      "S (..., k) and V^H (..., k, n), k = min(m, n), as numpy.linalg.svd(a, full_matrices=False) does.\n"
      "A matrix is large if it exceeds the server's max values or max dimension, or does not fit a message.\n"
      "Each large matrix is uploaded in chunks, with a progress bar on a terminal. A single matrix of any size\n"
      "counts as large with --strategy or --variant. A summary goes to stderr.");
  a.operand("IN.npy", &to->in);
  a.section("Options");
  a.option("--u", "U.npy", "write U to this file", &to->files.u);
  a.option("--s", "S.npy", "write the singular values to this file", &to->files.s);
  a.option("--vh", "VH.npy", "write V^H to this file", &to->files.vh);
  a.flag("--force", kForceHelp, &to->force);
  a.flag("--full-matrices", "U (..., m, m) and V^H (..., n, n)", &to->full_matrices);
  a.option("--top-k", "K", "small matrices: only the leading K values and vectors; 0: all", &to->top_k, 0);
  a.flag("--fix-phases", "small matrices: make the largest component of every column of U real and\npositive",
         &to->compute.fix_phases);
  to->large.declare(&a);
  to->connection.declare(&a);
  a.epilogue(
      "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input.\n"
      "3 done, but some matrices are not ok (non-finite, not converged, out of range).\n"
      "128 + N ended by signal N (129, 130, 143).");
  if (const auto code = parse_or_explain(&a, "svd", words)) return code;
  if (const auto wrong = to->large.read(&to->large_options)) return bad_usage("svd", *wrong);
  if (to->full_matrices && to->top_k > 0) return bad_usage("svd", "--full-matrices and --top-k exclude each other");
  set_full_matrices(to->full_matrices, to);
  to->compute.top_k = to->top_k;
  if (to->large.certificate) to->compute.certificate = client::CertificateScope::kBatch;
  // A tolerance or a limit of sweeps implies JACOBI: AUTO takes neither for small matrices.
  const bool implied =
      to->large_options.method == client::Method::kAuto && (to->large.tolerance != 0 || to->large.max_sweeps != 0);
  to->compute.method = implied ? client::Method::kJacobi : to->large_options.method;
  to->compute.tolerance = to->large_options.tolerance;
  to->compute.max_sweeps = to->large_options.max_sweeps;
  return std::nullopt;
}

// Where the results of a stack of small matrices go: one array of NumPy for each plane.
class SvdResults {
 public:
  client::Status open(const SvdArguments& args, const MatrixStack& stack) {
    const client::Batch& batch = stack.batch;
    const int64_t leading = args.top_k > 0 ? args.top_k : batch.values_per_matrix();
    const int64_t left = args.full_matrices ? batch.rows : leading, right = args.full_matrices ? batch.cols : leading;
    if (auto s = open(stack, args.compute, args.files.u, Plane::kLeft, {batch.rows, left}); !s.ok()) return s;
    if (auto s = open(stack, args.compute, args.files.s, Plane::kValues, {leading}); !s.ok()) return s;
    return open(stack, args.compute, args.files.vh, Plane::kRight, {right, batch.cols});
  }
  const client::Outputs& planes() const { return planes_; }
  client::Status commit_all(const std::stop_token& stop) const {
    std::vector<NpyOutput*> outputs;
    for (const auto& out : outputs_) outputs.push_back(out.get());
    return commit(outputs, stop);
  }

 private:
  client::Status open(const MatrixStack& stack, const client::ComputeOptions& compute, const std::string& path,
                      Plane plane, std::vector<int64_t> of_matrix) {
    const client::Batch& batch = stack.batch;
    std::vector<int64_t> shape = stack.batch_shape;
    shape.insert(shape.end(), of_matrix.begin(), of_matrix.end());
    // Column-major is a single matrix only.
    const bool by_columns = of_matrix.size() == 2 && batch.memory_order == client::MemoryOrder::kColumnMajor;
    const std::string type = of_matrix.size() == 2 ? npy_type(batch.data_type) : npy_value_type(batch.data_type);
    auto out = NpyOutput::make(path, type, shape, by_columns,
                               static_cast<size_t>(plane_bytes(batch, compute, plane, batch.count)));
    if (!out.ok()) return out.status();
    planes_[plane] = (*out)->data();
    outputs_.push_back(*std::move(out));
    return {};
  }

  std::vector<std::unique_ptr<NpyOutput>> outputs_;
  client::Outputs planes_;
};

bool has_options_of_large(const client::LargeOptions& o) {
  return o.pivot_strategy != client::PivotStrategy::kAuto || o.block_variant != client::BlockVariant::kAuto;
}

// The error in the options of a stack that goes as large matrices, or as small ones.
std::optional<std::string> misplaced_option(const SvdArguments& args, bool large) {
  const std::string of_small = " is not supported for large matrices, and this one is large by its size or its options";
  if (large && args.top_k > 0) return "--top-k" + of_small + "; leave it out and slice the results";
  if (large && args.compute.fix_phases) return "--fix-phases" + of_small;
  if (!large && (has_options_of_large(args.large_options) || args.large.verbose)) {
    return "--strategy, --variant and --verbose are for large matrices, and these are small for this server";
  }
  return std::nullopt;
}

// Small matrices; without a client, those that have no elements: there is nothing to ask for.
int run_batch(const SvdArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  SvdResults results;
  if (auto s = results.open(args, stack); !s.ok()) return fail("svd", s);
  client::Report report;
  double seconds = 0;
  if (client != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    auto answer = client->decompose(stack.batch, results.planes(), args.compute, call);
    if (!answer.ok()) return fail_unless_interrupted("svd", answer.status(), interruption);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report = *std::move(answer);
  }
  if (auto s = results.commit_all(call.stop); !s.ok()) return fail_unless_interrupted("svd", s, interruption);
  print_summary(stack.batch, report, seconds);
  return report.exceptions.empty() ? kDone : kExceptions;
}

}  // namespace

int run_svd(const std::vector<std::string>& words) {
  SvdArguments args;
  if (const auto code = parse(words, &args)) return *code;
  std::vector<NamedFile> inputs = args.connection.files();
  inputs.push_back({"IN.npy", args.in});
  if (const auto s = check_outputs(args.files.outputs(), inputs, args.force); !s.ok()) return fail("svd", s);
  const auto stack = load_matrices(args.in);
  if (!stack.ok()) return fail("svd", stack.status());
  const client::Batch& batch = stack->batch;
  // An empty side leaves every unitary matrix for the other: there is nothing to compute.
  if (args.full_matrices && (batch.rows == 0 || batch.cols == 0)) {
    return bad_usage("svd", args.in + ": its matrices have no elements; leave out --full-matrices");
  }
  // V^H of a tall matrix and U of a wide one are square anyway. Full matrices matter only if the other one is wanted.
  if ((batch.rows >= batch.cols ? args.files.u : args.files.vh).empty()) set_full_matrices(false, &args);
  if (args.top_k > batch.values_per_matrix()) return bad_usage("svd", "--top-k is larger than min(m, n)");
  const auto options = args.connection.options();
  if (!options.ok()) return fail("svd", options.status());
  const Interruption interruption;
  client::CallOptions call = args.connection.call();
  call.stop = interruption.token();
  if (batch.count == 0) return run_batch(args, nullptr, *stack, call, interruption);
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted("svd", info.status(), interruption);
  // A single matrix may have what only large ones have: it goes as one.
  const bool chosen =
      has_options_of_large(args.large_options) && stack->batch_shape.empty() && info->limits.max_large_bytes > 0;
  const bool large = chosen || is_large(batch, info->limits, args.compute);
  if (const auto wrong = misplaced_option(args, large)) return bad_usage("svd", *wrong);
  if (!large) return run_batch(args, &client, *stack, call, interruption);
  return run_large("svd", client, *stack, {}, args.files, args.large_options, args.large.verbose, interruption, call);
}

}  // namespace svdserve::cli
