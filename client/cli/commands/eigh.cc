// svdctl eigh.
#include <optional>

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

struct EighArguments {
  InputFormat format;
  Context context{"eigh"};
  std::string a, signature, prefix;
  LargeFiles files;  // u: eigenvectors, s: eigenvalues
  LargeArguments large{.is_eigenproblem = true};
  client::LargeOptions options;
  client::ComputeOptions compute;  // of small matrices
  bool upper = false, relative = false, force = false;
};

void declare(EighArguments* to, Arguments* a) {
  a->operand("A.npy", &to->a);
  a->section("Options");
  a->option("-o, --output", "PREFIX", "write w and V to PREFIX.w.npy and PREFIX.v.npy", &to->prefix);
  a->option("--w", "W.npy", "write the eigenvalues to this file; - is stdout, as for the others", &to->files.s);
  a->option("--v", "V.npy", "write the eigenvectors to this file", &to->files.u);
  a->flag("--upper", "read the upper triangle of A; default: the lower one", &to->upper);
  a->flag("--relative",
          "small eigenvalues keep their digits where the entries of A determine them. Each\n"
          "matrix is then a call of its own, of about 1 ms if it is small",
          &to->relative);
  a->option("--signature", "J.npy", "A.npy has G, and this file the diagonal of J: n numbers, each 1 or -1",
            &to->signature);
  a->flag("--force", kForceHelp, &to->force);
  a->flag("--fix-phases", "small matrices: make the largest component of every eigenvector real and\npositive",
          &to->compute.fix_phases);
  to->large.declare(a);
  to->format.declare(a);
  to->context.declare(a, kVerboseHelp);
  a->epilogue(kStackExitCodes);
}

// The error in the choice of options, in one line.
std::optional<std::string> conflict(const EighArguments& args) {
  if (args.signature.empty()) {
    const bool other_method = args.relative && args.options.method == client::Method::kTridiagonal;
    return other_method ? std::optional("--relative is not for --method tridiagonal; leave --method out")
                        : std::nullopt;
  }
  if (args.upper) return "--upper is for a Hermitian matrix, and G is read whole";
  if (args.relative) return "--relative is for a Hermitian matrix; with --signature all eigenvalues keep their digits";
  if (args.compute.fix_phases) return misplaced_for_large("--fix-phases");
  return std::nullopt;
}

Arguments declared(EighArguments* to) {
  Arguments a(
      "svdctl eigh [options] A.npy",
      "Eigenvalues and eigenvectors of Hermitian matrices, A = V diag(w) V^H. Shape (..., n, n) gives\n"
      "w (..., n), ascending, and V (..., n, n), as numpy.linalg.eigh does: column i of V belongs to w[i].\n"
      "A matrix is large if n exceeds the server's max Hermitian order (512), or does not fit a message, and\n"
      "with --relative, --signature and some methods. Each large matrix is uploaded in chunks, in a call of\n"
      "its own. Errors are relative to the largest eigenvalue; not so with --relative, --signature or --method\n"
      "factored. Prints the largest, the smallest and the first eigenvalues, condition and numerical rank.\n"
      "With --signature the file has one matrix G (m, n), m >= n, of full column rank. The results are those\n"
      "of G diag(J) G^H (m, m), which is never formed.");
  declare(to, &a);
  return a;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, EighArguments* to) {
  Arguments a = declared(to);
  if (const auto code = parse_or_explain(&a, to->context, words)) return code;
  if (const auto wrong = to->large.read(&to->options)) return bad_usage(to->context, *wrong);
  const auto named = name_outputs(to->prefix, to->a, {{"w", &to->files.s}, {"v", &to->files.u}});
  if (!named.ok()) return fail(to->context, named);
  if (const auto wrong = conflict(*to)) return bad_usage(to->context, *wrong);
  client::ComputeOptions& compute = to->compute;
  compute.problem = client::Problem::kHermitian;
  compute.method = to->options.method;
  compute.tolerance = to->options.tolerance;
  compute.max_sweeps = to->options.max_sweeps;
  compute.triangle = to->options.triangle = to->upper ? client::Triangle::kUpper : client::Triangle::kLower;
  // Vectors are computed for whoever looks at them.
  const bool vectors = !to->files.u.empty() || compute.fix_phases || to->large.certificate;
  compute.vectors = vectors ? client::Vectors::kThin : client::Vectors::kNone;
  if (to->large.certificate) compute.certificate = client::CertificateScope::kBatch;
  client::Method& method = to->options.method;
  if (to->relative && method == client::Method::kAuto) method = client::Method::kFactored;
  to->options.problem =
      to->signature.empty() ? client::LargeProblem::kHermitian : client::LargeProblem::kHermitianFactor;
  return std::nullopt;
}

// G with its signature.
int run_factored(const EighArguments& args, const client::ClientOptions& options) {
  MatrixStack stack;
  std::vector<int8_t> signature;
  if (const auto code = load_one(args.context, args.a, args.format, args.signature, &stack, &signature)) return *code;
  const Interruption interruption;
  client::Client client(options);
  return run_large(args.context, client, stack, signature, args.files, args.options, interruption,
                   args.context.connection.call());
}

// Small matrices, as run_batch() takes them.
int run_small(const EighArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  const int64_t n = stack.batch.rows;
  std::vector<BatchFile> files = {{client::Plane::kValues, args.files.s, {n}}};
  if (args.compute.vectors != client::Vectors::kNone) files.push_back({client::Plane::kLeft, args.files.u, {n, n}});
  return run_batch(args.context, client, stack, args.compute, files, false, interruption, call);
}

int run_hermitian(const EighArguments& args, const client::ClientOptions& options) {
  const Context& context = args.context;
  const auto stack = load_matrices(args.a, args.format);
  if (!stack.ok()) return fail(context, stack.status());
  const client::Batch& batch = stack->batch;
  if (batch.rows != batch.cols) return bad_usage(context, input_name(args.a) + ": its matrices must be square");
  const Interruption interruption;
  client::CallOptions call = context.connection.call();
  call.stop = interruption.token();
  if (batch.count == 0 || batch.rows == 0) return run_small(args, nullptr, *stack, call, interruption);
  client::Client client(options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted(context, info.status(), interruption);
  // A single matrix may have what only large ones have: it goes as one.
  const bool chosen =
      has_options_of_large(args.options) && stack->batch_shape.empty() && info->limits.max_large_bytes > 0;
  const bool as_large = args.relative || chosen || args.options.method == client::Method::kFactored ||
                        args.options.method == client::Method::kTridiagonal;
  if (!as_large && !is_large(batch, info->limits, args.compute)) {
    if (const auto wrong = misplaced_for_small(args.options)) return bad_usage(context, *wrong);
    return run_small(args, &client, *stack, call, interruption);
  }
  if (args.compute.fix_phases) return bad_usage(context, misplaced_for_large("--fix-phases"));
  return run_large(context, client, *stack, {}, args.files, args.options, interruption, call);
}

}  // namespace

Syntax syntax_of_eigh() {
  EighArguments args;
  return declared(&args).syntax();
}

int run_eigh(const std::vector<std::string>& words) {
  EighArguments args;
  if (const auto code = parse(words, &args)) return *code;
  const Context& context = args.context;
  const std::vector<NamedFile> inputs = {{"A.npy", args.a}, {"--signature", args.signature}};
  const std::vector<NamedFile> outputs = {{"--w", args.files.s}, {"--v", args.files.u}};
  if (const auto s = check_files(&args.context, outputs, inputs, args.force); !s.ok()) return fail(context, s);
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  return args.signature.empty() ? run_hermitian(args, *options) : run_factored(args, *options);
}

}  // namespace svdserve::cli
