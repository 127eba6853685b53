// svdctl values.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
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

struct ValuesArguments {
  Connection connection;
  std::string in;
  std::vector<std::string> more;  // files besides `in`
  LargeFiles to;                  // values alone
  client::ComputeOptions compute;
  bool force = false;
};

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, ValuesArguments* to) {
  std::string method = "auto";
  int64_t max_sweeps = 0;
  Arguments a(
      "svdctl values [options] IN.npy...",
      "Computes the singular values of the matrices in a NumPy file: shape (..., m, n) gives (..., min(m, n)),\n"
      "as numpy.linalg.svd(a, compute_uv=False) does. Any byte order, C or Fortran order; integers become f8, f2\n"
      "becomes f4. A matrix is large if it exceeds the server's max values or max dimension, or does not fit a\n"
      "message. Each large matrix is uploaded in chunks, with a progress bar on a terminal. A summary goes to stderr.\n"
      "Several files go in one request where they fit a message; their shapes and types may differ. Large matrices go\n"
      "one file at a time.");
  a.operand("IN.npy", &to->in);
  a.more_operands(&to->more);
  a.section("Options");
  a.option("-o", "OUT.npy", "write the values to this file; for several files: into this folder,\nunder their names",
           &to->to.s);
  a.flag("--force", kForceHelp, &to->force);
  a.flag("--print", "write the values to stdout, one matrix a line", &to->to.print_values);
  a.option("--method", "NAME", names_of(client::kSvdMethods) + "; large matrices: auto or jacobi", &method);
  a.option("--tolerance", "X",
           "bisection: relative interval width, at most 0.5; jacobi and large matrices:\ncosine of two columns, at "
           "most 1; 0: the default",
           &to->compute.tolerance);
  a.option("--max-sweeps", "N",
           "jacobi and large matrices: stop after N sweeps without convergence; 0: the\nserver's default", &max_sweeps,
           0);
  to->connection.declare(&a);
  a.epilogue(
      "Exit codes: 0 done, 1 the server or a file failed, 2 wrong usage or input.\n"
      "3 done, but some matrices are not ok (non-finite, not converged, out of range).\n"
      "128 + N ended by signal N (129, 130, 143).");
  if (const auto code = parse_or_explain(&a, "values", words)) return code;
  const auto chosen = parse_method(method);
  if (!chosen) return bad_usage("values", "--method: \"" + method + "\" is not " + names_of(client::kSvdMethods));
  if (max_sweeps > INT32_MAX) return bad_usage("values", "--max-sweeps is too large");
  to->compute.method = *chosen;
  to->compute.max_sweeps = static_cast<int32_t>(max_sweeps);
  return std::nullopt;
}

// Small matrices; without a client, those that have no elements and so no values: there is nothing to ask for.
int run_batch(const ValuesArguments& args, client::Client* client, const MatrixStack& stack,
              const client::CallOptions& call, const Interruption& interruption) {
  const client::Batch& batch = stack.batch;
  std::vector<int64_t> shape = stack.batch_shape;
  shape.push_back(batch.values_per_matrix());
  const size_t bytes =
      static_cast<size_t>(batch.count * batch.values_per_matrix()) * client::value_bytes(batch.data_type);
  const auto values = NpyOutput::make(args.to.s, npy_value_type(batch.data_type), shape, false, bytes);
  if (!values.ok()) return fail("values", values.status());
  client::Report report;
  double seconds = 0;
  if (client != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    auto answer = client->decompose(batch, (*values)->data(), args.compute, call);
    if (!answer.ok()) return fail_unless_interrupted("values", answer.status(), interruption);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report = *std::move(answer);
  }
  if (const auto s = commit({values->get()}, call.stop); !s.ok()) {
    return fail_unless_interrupted("values", s, interruption);
  }
  if (args.to.print_values) {
    if (const auto s = print_values(batch, (*values)->data()); !s.ok()) return fail("values", s);
  }
  print_summary(batch, report, seconds);
  return report.exceptions.empty() ? kDone : kExceptions;
}

// One of several files: its matrices and where their values go.
struct InputFile {
  std::string path;
  MatrixStack stack = {};
  std::unique_ptr<NpyOutput> values = nullptr;
};

// The file of the folder that takes the values of `in`; empty without a folder.
std::string output_of(const std::string& folder, const std::string& in) {
  return folder.empty() ? "" : (std::filesystem::path(folder) / std::filesystem::path(in).filename()).string();
}

client::Status check_files(const ValuesArguments& args, const std::vector<InputFile>& files) {
  std::vector<NamedFile> outputs, inputs = args.connection.files();
  for (const InputFile& file : files) {
    inputs.push_back({"IN.npy", file.path});
    outputs.push_back({"-o", output_of(args.to.s, file.path)});
  }
  if (!args.to.s.empty() && !std::filesystem::is_directory(args.to.s)) {
    return {client::Code::kInvalidArgument, "", "",
            "-o: " + args.to.s + " must be a folder, since there are several files"};
  }
  return check_outputs(outputs, inputs, args.force);
}

client::Status load(InputFile* file, const std::string& folder) {
  client::Result<MatrixStack> stack = load_matrices(file->path);
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

// Sends the matrices of all files that have any. *exceptions: whether some matrix is not ok.
client::Status compute(const ValuesArguments& args, client::Client* client, const std::vector<InputFile>& files,
                       const client::CallOptions& call, bool* exceptions) {
  std::vector<client::Group> groups;
  for (const InputFile& file : files) {
    if (file.stack.batch.count > 0) groups.push_back({file.stack.batch, file.values->data()});
  }
  const auto begin = std::chrono::steady_clock::now();
  const auto reports = client->decompose_groups(groups, args.compute, call);
  if (!reports.ok()) return reports.status();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (size_t g = 0; g < groups.size(); ++g) {
    print_summary(groups[g].batch, (*reports)[g], seconds);
    *exceptions = *exceptions || !(*reports)[g].exceptions.empty();
  }
  return {};
}

// Puts the values of all files in place, and prints them.
client::Status deliver(const ValuesArguments& args, const std::vector<InputFile>& files,
                       const client::CallOptions& call) {
  std::vector<NpyOutput*> outputs;
  for (const InputFile& file : files) outputs.push_back(file.values.get());
  if (const auto s = commit(outputs, call.stop); !s.ok()) return s;
  for (const InputFile& file : files) {
    if (!args.to.print_values) break;
    std::printf("# %s\n", file.path.c_str());
    if (const auto s = print_values(file.stack.batch, file.values->data()); !s.ok()) return s;
  }
  return {};
}

int run_files(const ValuesArguments& args) {
  std::vector<InputFile> files;
  files.push_back({.path = args.in});
  for (const std::string& path : args.more) files.push_back({.path = path});
  if (const auto s = check_files(args, files); !s.ok()) return fail("values", s);
  for (InputFile& file : files) {
    if (const auto s = load(&file, args.to.s); !s.ok()) return fail("values", s);
  }
  const auto options = args.connection.options();
  if (!options.ok()) return fail("values", options.status());
  const Interruption interruption;
  client::CallOptions call = args.connection.call();
  call.stop = interruption.token();
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted("values", info.status(), interruption);
  for (const InputFile& file : files) {
    if (file.stack.batch.count == 0 || !is_large(file.stack.batch, info->limits, args.compute)) continue;
    return bad_usage("values", file.path + " holds large matrices, which are sent one file at a time");
  }
  bool exceptions = false;
  client::Status status = compute(args, &client, files, call, &exceptions);
  if (status.ok()) status = deliver(args, files, call);
  if (!status.ok()) return fail_unless_interrupted("values", status, interruption);
  return exceptions ? kExceptions : kDone;
}

}  // namespace

int run_values(const std::vector<std::string>& words) {
  ValuesArguments args;
  if (const auto code = parse(words, &args)) return *code;
  if (!args.more.empty()) return run_files(args);
  std::vector<NamedFile> inputs = args.connection.files();
  inputs.push_back({"IN.npy", args.in});
  if (const auto s = check_outputs({{"-o", args.to.s}}, inputs, args.force); !s.ok()) return fail("values", s);
  const auto stack = load_matrices(args.in);
  if (!stack.ok()) return fail("values", stack.status());
  const auto options = args.connection.options();
  if (!options.ok()) return fail("values", options.status());
  const Interruption interruption;
  client::CallOptions call = args.connection.call();
  call.stop = interruption.token();
  if (stack->batch.count == 0) return run_batch(args, nullptr, *stack, call, interruption);
  client::Client client(*options);
  const auto info = ask_server(client, &call);
  if (!info.ok()) return fail_unless_interrupted("values", info.status(), interruption);
  if (!is_large(stack->batch, info->limits, args.compute)) return run_batch(args, &client, *stack, call, interruption);
  const client::LargeOptions large{.method = args.compute.method,
                                   .vectors = client::Vectors::kNone,
                                   .tolerance = args.compute.tolerance,
                                   .max_sweeps = args.compute.max_sweeps};
  return run_large("values", client, *stack, {}, args.to, large, false, interruption, call);
}

}  // namespace svdserve::cli
