// svdctl values.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/commands/batch.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/interruption.h"
#include "client/cli/report/summary.h"

namespace svdserve::cli {
namespace {

struct ValuesArguments {
  Context context{"values"};
  std::string in;
  std::vector<std::string> more;  // files besides `in`
  LargeFiles to;                  // values alone
  std::string method = "auto";
  int64_t max_sweeps = 0;
  client::ComputeOptions compute;
  InputFormat format;
  bool force = false;
};

Arguments declared(ValuesArguments* to) {
  Arguments a(
      "svdctl values [options] IN.npy...",
      "Computes the singular values of the matrices in a file: shape (..., m, n) gives (..., min(m, n)), as\n"
      "numpy.linalg.svd(a, compute_uv=False) does. The file is .npy, an array of .npz (a.npz:name), Matrix Market,\n"
      "CSV, or raw numbers. Any byte order, C or Fortran order; integers become f64, and values of 16-bit numbers\n"
      "are f32. Prints the largest, the smallest, condition, numerical rank and the first values.\n"
      "A matrix is large if it exceeds the server's max values or max dimension, or does not fit a\n"
      "message. Each large matrix is uploaded in chunks, with a progress bar on a terminal.\n"
      "Several files go in one request where they fit a message; their shapes and types may differ. Large matrices go\n"
      "one file at a time.");
  a.operand("IN.npy", &to->in);
  a.more_operands(&to->more);
  a.section("Options");
  a.option("-o, --output", "OUT.npy",
           "write the values to this file, - is stdout; for several files: into this folder,\nunder their names",
           &to->to.s);
  a.flag("--force", kForceHelp, &to->force);
  a.flag("--print", "write all values to stdout, one matrix a line; the summary goes to stderr then",
         &to->to.print_values);
  a.option("--method", "NAME", names_of(client::kSvdMethods) + "; large matrices: auto or jacobi", &to->method);
  a.choices(list_of(client::kSvdMethods));
  a.option("--tolerance", "X",
           "bisection: relative interval width, at most 0.5; jacobi and large matrices:\ncosine of two columns, at "
           "most 1; 0: the default",
           &to->compute.tolerance);
  a.option("--max-sweeps", "N",
           "jacobi and large matrices: stop after N sweeps without convergence; 0: the\nserver's default",
           &to->max_sweeps, 0);
  to->format.declare(&a);
  to->context.declare(&a, kVerboseHelp);
  a.epilogue(kStackExitCodes);
  return a;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, ValuesArguments* to) {
  Arguments a = declared(to);
  if (const auto code = parse_or_explain(&a, to->context, words)) return code;
  const auto chosen = parse_method(to->method);
  if (!chosen) {
    return bad_usage(to->context, "--method: \"" + to->method + "\" is not " + names_of(client::kSvdMethods));
  }
  if (to->max_sweeps > INT32_MAX) return bad_usage(to->context, "--max-sweeps is too large");
  to->compute.method = *chosen;
  to->compute.max_sweeps = static_cast<int32_t>(to->max_sweeps);
  to->context.data_on_stdout = to->to.print_values;
  return std::nullopt;
}

// Small matrices, as run_batch() takes them.
int run_small(const ValuesArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  const BatchFile values{client::Plane::kValues, args.to.s, {stack.batch.values_per_matrix()}};
  return run_batch(args.context, client, stack, args.compute, {&values, 1}, args.to.print_values, interruption, call);
}

// --- several files ------------------------------------------------------------------------------

// One of several files: its matrices and where their values go.
struct InputFile {
  std::string path;
  MatrixStack stack = {};
  std::unique_ptr<NpyOutput> values = nullptr;
  client::Report report = {};
};

// The file of the folder that takes the values of `in`; empty without a folder.
std::string output_of(const std::string& folder, const std::string& in) {
  return folder.empty() ? "" : (std::filesystem::path(folder) / (output_stem(in) + ".npy")).string();
}

client::Status check_all(ValuesArguments* args, const std::vector<InputFile>& files) {
  std::vector<NamedFile> outputs, inputs;
  for (const InputFile& file : files) {
    inputs.push_back({"IN.npy", file.path});
    outputs.push_back({"-o", output_of(args->to.s, file.path)});
  }
  if (!args->to.s.empty() && !std::filesystem::is_directory(args->to.s)) {
    return {client::Code::kInvalidArgument, "", "",
            "-o: " + args->to.s + " must be a folder, since there are several files"};
  }
  return check_files(&args->context, outputs, inputs, args->force);
}

client::Status load(InputFile* file, const InputFormat& format, const std::string& folder) {
  client::Result<MatrixStack> stack = load_matrices(file->path, format);
  if (!stack.ok()) return stack.status();
  file->stack = *std::move(stack);
  const client::Batch& batch = file->stack.batch;
  std::vector<int64_t> shape = file->stack.batch_shape;
  shape.push_back(batch.values_per_matrix());
  const auto bytes =
      static_cast<size_t>(batch.count * batch.values_per_matrix()) * client::value_bytes(batch.data_type);
  auto values = NpyOutput::make(output_of(folder, file->path), npy_value_type(batch.data_type), shape, false, bytes);
  if (!values.ok()) return values.status();
  file->values = *std::move(values);
  return {};
}

// Sends the matrices of all files that have any. *seconds: of the whole call.
client::Status compute(const ValuesArguments& args, client::Client* client, std::vector<InputFile>* files,
                       const client::CallOptions& call, double* seconds) {
  std::vector<client::Group> groups;
  std::vector<InputFile*> with_matrices;
  for (InputFile& file : *files) {
    if (file.stack.batch.count == 0) continue;
    groups.push_back({file.stack.batch, file.values->data()});
    with_matrices.push_back(&file);
  }
  const auto begin = std::chrono::steady_clock::now();
  auto reports = client->decompose_groups(groups, args.compute, call);
  if (!reports.ok()) return reports.status();
  *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t g = 0; g < groups.size(); ++g) with_matrices[g]->report = std::move((*reports)[g]);
  return {};
}

// Puts the values of all files in place, and reports on each. *code: the exit code.
client::Status deliver(const ValuesArguments& args, const std::vector<InputFile>& files, double seconds,
                       const client::CallOptions& call, int* code) {
  std::vector<NpyOutput*> outputs;
  for (const InputFile& file : files) outputs.push_back(file.values.get());
  if (auto s = commit(outputs, call.stop); !s.ok()) return s;
  std::vector<StackReport> reports;
  for (const InputFile& file : files) {
    StackReport& report = reports.emplace_back(StackReport{.stack = file.stack});
    report.values_per_matrix = file.stack.batch.values_per_matrix();
    report.values = file.values->data();
    report.seconds = seconds;
    if (!args.to.s.empty()) report.outputs = {{"values", output_of(args.to.s, file.path)}};
    if (file.stack.batch.count > 0) report.add(file.report);
    if (exit_code(report.exceptions) != kDone) *code = kExceptions;
  }
  return print_reports(args.context, reports, args.to.print_values);
}

int run_files(ValuesArguments& args) {
  const Context& context = args.context;
  std::vector<InputFile> files;
  files.push_back({.path = args.in});
  for (const std::string& path : args.more) files.push_back({.path = path});
  if (const auto s = check_all(&args, files); !s.ok()) return fail(context, s);
  for (InputFile& file : files) {
    if (const auto s = load(&file, args.format, args.to.s); !s.ok()) return fail(context, s);
  }
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  const Interruption interruption;
  client::CallOptions call = context.connection.call();
  call.stop = interruption.token();
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted(context, info.status(), interruption);
  for (const InputFile& file : files) {
    if (file.stack.batch.count == 0 || !is_large(file.stack.batch, info->limits, args.compute)) continue;
    return bad_usage(context, file.path + " holds large matrices, which are sent one file at a time");
  }
  int code = kDone;
  double seconds = 0;
  client::Status status = compute(args, &client, &files, call, &seconds);
  if (status.ok()) status = deliver(args, files, seconds, call, &code);
  return status.ok() ? code : fail_unless_interrupted(context, status, interruption);
}

}  // namespace

Syntax syntax_of_values() {
  ValuesArguments args;
  return declared(&args).syntax();
}

int run_values(const std::vector<std::string>& words) {
  ValuesArguments args;
  const Context& context = args.context;
  if (const auto code = parse(words, &args)) return *code;
  if (!args.more.empty()) return run_files(args);
  if (const auto s = check_files(&args.context, {{"-o", args.to.s}}, {{"IN.npy", args.in}}, args.force); !s.ok()) {
    return fail(context, s);
  }
  const auto stack = load_matrices(args.in, args.format);
  if (!stack.ok()) return fail(context, stack.status());
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  const Interruption interruption;
  client::CallOptions call = context.connection.call();
  call.stop = interruption.token();
  if (stack->batch.count == 0) return run_small(args, nullptr, *stack, call, interruption);
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted(context, info.status(), interruption);
  if (!is_large(stack->batch, info->limits, args.compute)) return run_small(args, &client, *stack, call, interruption);
  const client::LargeOptions large{.method = args.compute.method,
                                   .vectors = client::Vectors::kNone,
                                   .tolerance = args.compute.tolerance,
                                   .max_sweeps = args.compute.max_sweeps};
  return run_large(context, client, *stack, {}, args.to, large, interruption, call);
}

}  // namespace svdserve::cli
