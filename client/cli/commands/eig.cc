// svdctl eig and eigvals.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands/batch.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/formats/starting_vectors.h"
#include "client/cli/interruption.h"
#include "client/cli/report/summary.h"

namespace svdserve::cli {
namespace {

struct EigArguments {
  explicit EigArguments(std::string name) : context(std::move(name)) {}

  Context context;
  InputFormat format;
  std::string a, prefix;
  LargeFiles files;  // u: V, s: eigenvalues, vh: W^H
  client::LargeOptions options{.problem = client::LargeProblem::kGeneral};
  std::string method = name(client::Method::kAuto);
  int64_t max_sweeps = 0;
  std::string start, conditions;  // files of starting vectors and of condition numbers
  bool condition = false;
  bool force = false;

  std::vector<NamedFile> outputs() const {
    return {{context.command == "eig" ? "--w" : "-o", files.s},
            {"--v", files.u},
            {"--wh", files.vh},
            {"--conditions", conditions}};
  }
  bool wants_conditions() const { return condition || !conditions.empty(); }
  // The option given that only small matrices have; empty: none is.
  std::string only_small() const { return condition ? "--condition" : !conditions.empty() ? "--conditions" : ""; }
};

void declare_end(Arguments* a, EigArguments* to) {
  a->option(
      "--method", "NAME",
      "auto, qr, or jacobi, which leaves to qr what it cannot do: small\nmatrices have the status by_qr then, large "
      "ones the method qr",
      &to->method);
  a->choices({"auto", "qr", "jacobi"});
  a->option(
      "--start", "V0.npy",
      "start jacobi from these eigenvectors, such as those of matrices\nnearby. auto is jacobi then. The array has the "
      "shape of A, or (n, n) for all.\nBad ones do no harm: qr takes their matrices",
      &to->start);
  a->flag("--condition", "matrices up to n = 32: also print the largest condition of an eigenvalue, and of V",
          &to->condition);
  a->option("--conditions", "C.npy", "the same, and write the condition numbers of the eigenvalues to this file",
            &to->conditions);
  a->option("--max-sweeps", "N", "jacobi: go over to qr after N sweeps; 0: after 30, for large\nmatrices 60",
            &to->max_sweeps, 0);
  a->flag("--force", kForceHelp, &to->force);
  to->format.declare(a);
  to->context.declare(a, kVerboseHelp);
  a->epilogue(kStackExitCodes);
}

// Puts the words of --method and --max-sweeps into the options. Returns the exit code where they are wrong.
std::optional<int> read_method(EigArguments* to) {
  constexpr client::Method kKnown[] = {client::Method::kAuto, client::Method::kQr, client::Method::kJacobi};
  const auto method = std::ranges::find_if(kKnown, [&](client::Method m) { return name(m) == to->method; });
  if (method == std::end(kKnown)) {
    return bad_usage(to->context, "--method: \"" + to->method + "\" is not auto, qr or jacobi");
  }
  if (to->max_sweeps > INT32_MAX) return bad_usage(to->context, "--max-sweeps is too large");
  if (!to->start.empty() && *method == client::Method::kQr) {
    return bad_usage(to->context, "--start is for --method jacobi; leave --method out, or name jacobi");
  }
  if (to->max_sweeps != 0 && *method != client::Method::kJacobi && to->start.empty()) {
    return bad_usage(to->context, "--max-sweeps is for --method jacobi");
  }
  to->options.method = *method;
  to->options.max_sweeps = static_cast<int32_t>(to->max_sweeps);
  return std::nullopt;
}

Arguments declared_eig(EigArguments* to) {
  Arguments a(
      "svdctl eig [options] A.npy",
      "Eigenvalues and eigenvectors of square matrices, A V = V diag(w). Shape (..., n, n) gives w (..., n)\n"
      "and V (..., n, n), as numpy.linalg.eig does, but always complex: column i of V has norm 1 and belongs\n"
      "to w[i]. Eigenvalues have no order; conjugate pairs of a real matrix are neighbours. A matrix is large if n\n"
      "exceeds the server's max general order (32), or if it does not fit a message. Each large matrix is\n"
      "uploaded in a call of its own. Prints the largest and the smallest magnitude and the first eigenvalues.");
  a.operand("A.npy", &to->a);
  a.section("Options");
  a.option("-o, --output", "PREFIX", "write w and V to PREFIX.w.npy and PREFIX.v.npy", &to->prefix);
  a.option("--w", "W.npy", "write the eigenvalues to this file; - is stdout, as for the others", &to->files.s);
  a.option("--v", "V.npy", "write the eigenvectors to this file", &to->files.u);
  a.option("--wh", "WH.npy",
           "write the left eigenvectors to this file: row i is conjugated, so that\nWH A = diag(w) WH", &to->files.vh);
  a.flag("--certificate", "also print the residual of the eigenvectors", &to->options.certificate);
  declare_end(&a, to);
  return a;
}

Arguments declared_eigvals(EigArguments* to) {
  Arguments a(
      "svdctl eigvals [options] A.npy",
      "Eigenvalues of square matrices. Shape (..., n, n) gives (..., n), as numpy.linalg.eigvals does, but\n"
      "always complex. They have no order; conjugate pairs of a real matrix are neighbours. A matrix is large if n\n"
      "exceeds the server's max general order (32), or if it does not fit a message. Each large matrix is\n"
      "uploaded in a call of its own. Prints the largest and the smallest magnitude and the first eigenvalues.");
  a.operand("A.npy", &to->a);
  a.section("Options");
  a.option("-o, --output", "W.npy", "write the eigenvalues to this file; - is stdout", &to->files.s);
  a.flag("--print",
         "write the eigenvalues to stdout, one matrix a line, such as 1.5-2j 1.5+2j; the\nsummary goes to stderr then",
         &to->files.print_values);
  declare_end(&a, to);
  return a;
}

// Results of matrices without elements, or of none.
int write_empty(const EigArguments& args, const MatrixStack& stack, const client::CallOptions& call) {
  const int64_t n = stack.batch.rows;
  const client::LargeMatrix matrix{.rows = n, .cols = n, .data_type = stack.batch.data_type};
  const std::string type = npy_type(client::vector_type(matrix, args.options));
  std::vector<std::unique_ptr<NpyOutput>> files;
  std::vector<NpyOutput*> all;
  const std::string real = npy_value_type(matrix.data_type);
  const struct {
    std::string path, type;
    size_t dimensions;  // for one matrix
  } outputs[] = {
      {args.files.s, type, 1}, {args.files.u, type, 2}, {args.files.vh, type, 2}, {args.conditions, real, 1}};
  for (const auto& output : outputs) {
    std::vector<int64_t> shape = stack.batch_shape;
    shape.insert(shape.end(), output.dimensions, n);
    auto made = NpyOutput::make(output.path, output.type, shape, false, 0);
    if (!made.ok()) return fail(args.context, made.status());
    all.push_back(files.emplace_back(*std::move(made)).get());
  }
  if (const auto written = commit(all, call.stop); !written.ok()) return fail(args.context, written);
  StackReport report{.stack = stack, .kind = Values::kComplex};
  for (const NamedFile& file : {NamedFile{"values", args.files.s},
                                {"left", args.files.u},
                                {"right", args.files.vh},
                                {"conditions", args.conditions}}) {
    if (!file.path.empty()) report.outputs.push_back(file);
  }
  const auto reported = print_reports(args.context, {&report, 1});
  return reported.ok() ? kDone : fail(args.context, reported);
}

// The options of small matrices. Vectors are computed for whoever looks at them.
client::ComputeOptions compute_options(const EigArguments& args) {
  client::ComputeOptions compute{
      .problem = client::Problem::kGeneral, .method = args.options.method, .max_sweeps = args.options.max_sweeps};
  const bool vectors = !args.files.u.empty() || args.options.certificate;
  compute.vectors = !args.files.vh.empty() ? client::Vectors::kFull
                    : vectors              ? client::Vectors::kThin
                                           : client::Vectors::kNone;
  if (args.options.certificate) compute.certificate = client::CertificateScope::kBatch;
  compute.condition = args.wants_conditions();
  return compute;
}

// Small matrices, as run_batch() takes them.
int run_small(const EigArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  const int64_t n = stack.batch.rows;
  const client::ComputeOptions compute = compute_options(args);
  std::vector<BatchFile> files = {{client::Plane::kValues, args.files.s, {n}}};
  if (compute.vectors != client::Vectors::kNone) files.push_back({client::Plane::kLeft, args.files.u, {n, n}});
  if (compute.vectors == client::Vectors::kFull) files.push_back({client::Plane::kRight, args.files.vh, {n, n}});
  if (compute.condition) files.push_back({client::Plane::kEigenvalueCondition, args.conditions, {n}});
  return run_batch(args.context, client, stack, compute, files, args.files.print_values, interruption, call);
}

int run(EigArguments& args) {
  if (const auto code = read_method(&args)) return *code;
  args.context.data_on_stdout = args.files.print_values;
  const auto named = name_outputs(args.prefix, args.a, {{"w", &args.files.s}, {"v", &args.files.u}});
  if (!named.ok()) return fail(args.context, named);
  const std::vector<NamedFile> inputs = {{"A.npy", args.a}, {"--start", args.start}};
  if (const auto s = check_files(&args.context, args.outputs(), inputs, args.force); !s.ok()) {
    return fail(args.context, s);
  }
  const auto options = args.context.client_options();
  if (!options.ok()) return fail(args.context, options.status());
  auto stack = load_matrices(args.a, args.format);
  if (!stack.ok()) return fail(args.context, stack.status());
  const client::Batch& batch = stack->batch;
  if (batch.rows != batch.cols) return bad_usage(args.context, input_name(args.a) + ": its matrices must be square");
  if (!args.start.empty()) {
    if (const auto s = load_starting_vectors(args.start, &*stack); !s.ok()) return fail(args.context, s);
  }
  const Interruption interruption;
  client::CallOptions call = args.context.connection.call();
  call.stop = interruption.token();
  if (batch.count == 0 || batch.rows == 0) return write_empty(args, *stack, call);
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted(args.context, info.status(), interruption);
  if (!is_large(batch, info->limits, compute_options(args))) {
    return run_small(args, &client, *stack, call, interruption);
  }
  if (const std::string option = args.only_small(); !option.empty()) {
    return bad_usage(args.context, option +
                                       " is for matrices up to n = " + std::to_string(info->limits.max_general_order) +
                                       ", and these have n = " + std::to_string(batch.rows));
  }
  args.options.vectors = args.files.vh.empty() ? client::Vectors::kThin : client::Vectors::kFull;
  return run_large(args.context, client, *stack, {}, args.files, args.options, interruption, call);
}

}  // namespace

Syntax syntax_of_eig() {
  EigArguments args("eig");
  return declared_eig(&args).syntax();
}

Syntax syntax_of_eigvals() {
  EigArguments args("eigvals");
  return declared_eigvals(&args).syntax();
}

int run_eig(const std::vector<std::string>& words) {
  EigArguments args("eig");
  Arguments a = declared_eig(&args);
  if (const auto code = parse_or_explain(&a, args.context, words)) return *code;
  return run(args);
}

int run_eigvals(const std::vector<std::string>& words) {
  EigArguments args("eigvals");
  Arguments a = declared_eigvals(&args);
  if (const auto code = parse_or_explain(&a, args.context, words)) return *code;
  return run(args);
}

}  // namespace svdserve::cli
