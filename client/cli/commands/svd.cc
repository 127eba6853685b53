// svdctl svd.
#include <optional>
#include <vector>

#include "client/cli/commands/batch.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/interruption.h"
#include "client/cli/report/summary.h"

namespace svdserve::cli {
namespace {

using client::Plane;

struct SvdArguments {
  InputFormat format;
  Context context{"svd"};
  std::string in;
  std::string prefix;
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

Arguments declared(SvdArguments* to) {
  Arguments a(
      "svdctl svd [options] IN.npy",
      "Decomposes the matrices in a file, A = U diag(S) V^H. Shape (..., m, n) gives U (..., m, k),\n"
      "S (..., k) and V^H (..., k, n), k = min(m, n), as numpy.linalg.svd(a, full_matrices=False) does.\n"
      "A matrix is large if it exceeds the server's max values or max dimension, or does not fit a message.\n"
      "Each large matrix is uploaded in chunks, with a progress bar on a terminal. A single matrix of any size\n"
      "counts as large with --strategy or --variant. Prints the largest and the smallest value, condition, numerical\n"
      "rank and the first values.");
  a.operand("IN.npy", &to->in);
  a.section("Options");
  a.option("-o, --output", "PREFIX", "write U, S and V^H to PREFIX.u.npy, PREFIX.s.npy and PREFIX.vh.npy", &to->prefix);
  a.option("--u", "U.npy", "write U to this file; - is stdout, as for the others", &to->files.u);
  a.option("--s", "S.npy", "write the singular values to this file", &to->files.s);
  a.option("--vh", "VH.npy", "write V^H to this file", &to->files.vh);
  a.flag("--force", kForceHelp, &to->force);
  a.flag("--full-matrices", "U (..., m, m) and V^H (..., n, n)", &to->full_matrices);
  a.option("--top-k", "K", "only the leading K values and vectors, of a large matrix in less time; 0: all", &to->top_k,
           0);
  a.flag("--fix-phases", "small matrices: make the largest component of every column of U real and\npositive",
         &to->compute.fix_phases);
  to->large.declare(&a);
  to->format.declare(&a);
  to->context.declare(&a, kVerboseHelp);
  a.epilogue(kStackExitCodes);
  return a;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, SvdArguments* to) {
  Arguments a = declared(to);
  if (const auto code = parse_or_explain(&a, to->context, words)) return code;
  if (const auto wrong = to->large.read(&to->large_options)) return bad_usage(to->context, *wrong);
  if (const auto s = name_outputs(to->prefix, to->in, to->files.svd_names()); !s.ok()) return fail(to->context, s);
  if (to->full_matrices && to->top_k > 0)
    return bad_usage(to->context, "--full-matrices and --top-k exclude each other");
  set_full_matrices(to->full_matrices, to);
  to->compute.top_k = to->large_options.top_k = to->top_k;
  if (to->large.certificate) to->compute.certificate = client::CertificateScope::kBatch;
  // A tolerance or a limit of sweeps implies JACOBI: AUTO takes neither for small matrices.
  const bool implied =
      to->large_options.method == client::Method::kAuto && (to->large.tolerance != 0 || to->large.max_sweeps != 0);
  to->compute.method = implied ? client::Method::kJacobi : to->large_options.method;
  to->compute.tolerance = to->large_options.tolerance;
  to->compute.max_sweeps = to->large_options.max_sweeps;
  return std::nullopt;
}

// The error in the options of a stack that goes as large matrices, or as small ones.
std::optional<std::string> misplaced_option(const SvdArguments& args, bool large) {
  if (!large) return misplaced_for_small(args.large_options);
  if (args.compute.fix_phases) return misplaced_for_large("--fix-phases");
  return std::nullopt;
}

// Small matrices, as run_batch() takes them.
int run_small(const SvdArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  const client::Batch& batch = stack.batch;
  const int64_t leading = args.top_k > 0 ? args.top_k : batch.values_per_matrix();
  const int64_t left = args.full_matrices ? batch.rows : leading, right = args.full_matrices ? batch.cols : leading;
  const BatchFile files[] = {{Plane::kLeft, args.files.u, {batch.rows, left}},
                             {Plane::kValues, args.files.s, {leading}},
                             {Plane::kRight, args.files.vh, {right, batch.cols}}};
  return run_batch(args.context, client, stack, args.compute, files, false, interruption, call);
}

}  // namespace

Syntax syntax_of_svd() {
  SvdArguments args;
  return declared(&args).syntax();
}

int run_svd(const std::vector<std::string>& words) {
  SvdArguments args;
  const Context& context = args.context;
  if (const auto code = parse(words, &args)) return *code;
  if (const auto s = check_files(&args.context, args.files.outputs(), {{"IN.npy", args.in}}, args.force); !s.ok()) {
    return fail(context, s);
  }
  const auto stack = load_matrices(args.in, args.format);
  if (!stack.ok()) return fail(context, stack.status());
  const client::Batch& batch = stack->batch;
  // An empty side leaves every unitary matrix for the other: there is nothing to compute.
  if (args.full_matrices && (batch.rows == 0 || batch.cols == 0)) {
    return bad_usage(context, input_name(args.in) + ": its matrices have no elements; leave out --full-matrices");
  }
  // V^H of a tall matrix and U of a wide one are square anyway. Full matrices matter only if the other one is wanted.
  if ((batch.rows >= batch.cols ? args.files.u : args.files.vh).empty()) set_full_matrices(false, &args);
  if (args.top_k > batch.values_per_matrix()) return bad_usage(context, "--top-k is larger than min(m, n)");
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  const Interruption interruption;
  client::CallOptions call = context.connection.call();
  call.stop = interruption.token();
  if (batch.count == 0) return run_small(args, nullptr, *stack, call, interruption);
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted(context, info.status(), interruption);
  // A single matrix may have what only large ones have: it goes as one.
  const bool chosen =
      has_options_of_large(args.large_options) && stack->batch_shape.empty() && info->limits.max_large_bytes > 0;
  const bool large = chosen || is_large(batch, info->limits, args.compute);
  if (const auto wrong = misplaced_option(args, large)) return bad_usage(context, *wrong);
  if (!large) return run_small(args, &client, *stack, call, interruption);
  return run_large(context, client, *stack, {}, args.files, args.large_options, interruption, call);
}

}  // namespace svdserve::cli
