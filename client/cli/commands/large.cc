#include "client/cli/commands/large.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands/commands.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/printable.h"
#include "client/cli/progress_bar.h"
#include "client/cli/report/summary.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

using client::Status;

// The value up to `last` whose name is `text`.
template <class Enum>
std::optional<Enum> parse_name(const std::string& text, Enum last = Enum::kLast) {
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    if (text == name(static_cast<Enum>(i))) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

// The names of all values, broken into lines as help is. `used`: characters of the first line before them.
template <class Enum>
std::string all_names(size_t used) {
  constexpr size_t kWidth = 80;
  std::string text;
  for (int i = 0; i <= static_cast<int>(Enum::kLast); ++i) {
    const std::string next = std::string(name(static_cast<Enum>(i))) + (i < static_cast<int>(Enum::kLast) ? "," : "");
    const bool breaks = used + 1 + next.size() > kWidth;
    if (i > 0) text += breaks ? '\n' : ' ';
    text += next;
    used = (breaks ? 0 : used + 1) + next.size();
  }
  return text;
}

// The results of a stack of large matrices, in files.
class LargeResults {
 public:
  // vectors: the elements of U and V^H.
  Status open(const MatrixStack& stack, client::DataType vectors, const client::LargeOptions& options,
              const client::LargeSizes& sizes, const LargeFiles& files) {
    const client::Batch& b = stack.batch;
    const std::string type = npy_type(vectors);
    const bool is_general = options.problem == client::LargeProblem::kGeneral;
    sizes_ = sizes;
    const std::string value_type = is_general ? type : npy_value_type(b.data_type);
    if (Status s = open(stack, files.s, value_type, {sizes.values}, sizes.values_bytes, &s_); !s.ok()) return s;
    if (Status s = open(stack, files.u, type, {b.rows, sizes.left_columns}, sizes.left_bytes, &u_); !s.ok()) return s;
    return open(stack, files.vh, type, {sizes.right_rows, b.cols}, sizes.right_bytes, &vh_);
  }
  client::LargeOutputs of(int64_t i) const {
    const auto part = [i](const NpyOutput& out, int64_t bytes) {
      return out.data().subspan(static_cast<size_t>(i * bytes), static_cast<size_t>(bytes));
    };
    return {part(*s_, sizes_.values_bytes), part(*u_, sizes_.left_bytes), part(*vh_, sizes_.right_bytes)};
  }
  std::span<const std::byte> values() const { return s_->data(); }
  // Results begin to arrive.
  void begin() {
    if (!behind_) behind_.emplace(std::vector<const NpyOutput*>{u_.get(), s_.get(), vh_.get()});
  }
  Status commit_all(const std::stop_token& stop) {
    behind_.reset();
    return commit({u_.get(), s_.get(), vh_.get()}, stop);
  }

 private:
  static Status open(const MatrixStack& stack, const std::string& path, const std::string& type,
                     std::vector<int64_t> of_matrix, int64_t bytes, std::unique_ptr<NpyOutput>* out) {
    std::vector<int64_t> shape = stack.batch_shape;
    shape.insert(shape.end(), of_matrix.begin(), of_matrix.end());
    // Column-major is a single matrix only.
    const bool by_columns = of_matrix.size() == 2 && stack.batch.memory_order == client::MemoryOrder::kColumnMajor;
    auto made = NpyOutput::make(path, type, shape, by_columns, static_cast<size_t>(bytes * stack.batch.count));
    if (!made.ok()) return made.status();
    *out = *std::move(made);
    return {};
  }

  client::LargeSizes sizes_;
  std::unique_ptr<NpyOutput> u_, s_, vh_;
  std::optional<WriteBehind> behind_;  // last: it uses the others
};

// The status with the matrix in the place of a field that the matrix is behind. `place`: see place_of().
Status with_matrix(Status status, const std::string& path, const std::string& place) {
  const bool is_matrix = status.field == "chunk.data" || status.field == "open.rows" || status.field == "open.cols";
  const std::string field = status.field + ": ";
  const bool is_named = !status.field.empty() && status.message.starts_with(field);
  status.message.replace(0, is_named ? field.size() : 0, (is_matrix ? path + ": " : is_named ? field : "") + place);
  if (is_matrix) status.field.clear();
  return status;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

Values kind_of(const client::LargeMatrix& matrix, client::LargeProblem problem) {
  if (problem == client::LargeProblem::kGeneral) return Values::kComplex;
  if (problem != client::LargeProblem::kSvd) return Values::kEigenvalues;
  return matrix.signature.empty() ? Values::kSingular : Values::kHyperbolic;
}

// --verbose: the line of one matrix of a stack, and the time of its phases.
void print_one(const MatrixStack& stack, int64_t index, const client::LargeReport& report, double seconds) {
  if (const std::string place = place_of(stack, index); !place.empty()) {
    std::fprintf(stderr, "matrix %s: %s, %s\n", place.c_str(), duration_text(seconds).c_str(), name(report.status));
  }
  for (const client::LargePhase& p : report.phases) {
    std::fprintf(stderr, "  %-16s %12s", printable(p.name).c_str(), duration_text(p.seconds).c_str());
    if (p.flops > 0 && p.seconds > 0) std::fprintf(stderr, " %10.2f Gflop/s", p.flops / p.seconds * 1e-9);
    std::fputc('\n', stderr);
  }
}

// A stack of large matrices: its calls, one after the other.
class LargeRun {
 public:
  LargeRun(const Context& context, client::Client& client, const MatrixStack& stack, const LargeFiles& files)
      : context_(context), client_(client), stack_(stack), files_(files), report_{.stack = stack} {}

  // Makes the results; wanted: as asked for.
  Status open(std::span<const int8_t> signature, const client::LargeOptions& options) {
    const client::Batch& b = stack_.batch;
    wanted_ = options;
    if (files_.u.empty() && files_.vh.empty() && !options.certificate) wanted_.vectors = client::Vectors::kNone;
    matrix_ = {b.data,          b.rows, b.cols, b.data_type, b.memory_order, signature, b.owner, b.starting_vectors,
               b.starting_owner};
    const auto sizes = client::large_sizes(matrix_, wanted_);
    if (!sizes.ok()) return sizes.status();
    sizes_ = *sizes;
    report_.kind = kind_of(matrix_, wanted_.problem);
    report_.complete = wanted_.top_k == 0;
    report_.values_per_matrix = sizes_.values;
    for (const NamedFile& file : {NamedFile{"values", files_.s}, {"left", files_.u}, {"right", files_.vh}}) {
      if (!file.path.empty()) report_.outputs.push_back(file);
    }
    return results_.open(stack_, client::vector_type(matrix_, wanted_), wanted_, sizes_, files_);
  }

  // Decomposes all of them. The timeout is that of all together.
  Status compute(client::CallOptions call) {
    const auto first_begin = std::chrono::steady_clock::now();
    std::optional<std::chrono::steady_clock::time_point> deadline;
    if (call.timeout) deadline = first_begin + *call.timeout;
    ProgressBar bar;
    wanted_.progress = [this, &bar](const client::LargeProgress& p) {
      if (p.stage == client::LargeStage::kDownload) results_.begin();
      bar.show(p);
    };
    for (int64_t i = 0; i < stack_.batch.count; ++i) {
      select(i);
      const auto begin = std::chrono::steady_clock::now();
      if (deadline) call.timeout = std::max<std::chrono::nanoseconds>(*deadline - begin, std::chrono::nanoseconds(1));
      const auto reply = client_.decompose_large(matrix_, results_.of(i), wanted_, call);
      bar.clear();
      if (!reply.ok()) return with_matrix(reply.status(), input_name(stack_.path), matrix_place(i));
      report_.add(*reply, i);
      if (context_.verbose && !context_.json) print_one(stack_, i, *reply, seconds_since(begin));
    }
    report_.seconds = seconds_since(first_begin);
    report_.values = results_.values();
    return results_.commit_all(call.stop);
  }
  const StackReport& report() const { return report_; }

 private:
  void select(int64_t i) {
    const client::Batch& b = stack_.batch;
    matrix_.data = static_cast<const std::byte*>(b.data) + i * sizes_.matrix_bytes;
    if (b.starting_vectors == nullptr) return;
    matrix_.starting_vectors =
        static_cast<const std::byte*>(b.starting_vectors) + i * (sizes_.operand_bytes - sizes_.matrix_bytes);
  }
  std::string matrix_place(int64_t i) const {
    const std::string place = place_of(stack_, i);
    return place.empty() ? "" : absl::StrCat("matrix ", place, ": ");
  }

  const Context& context_;
  client::Client& client_;
  const MatrixStack& stack_;
  const LargeFiles& files_;
  client::LargeMatrix matrix_;
  client::LargeOptions wanted_;
  client::LargeSizes sizes_;
  LargeResults results_;
  StackReport report_;
};

}  // namespace

void LargeArguments::declare(Arguments* a) {
  a->option("--method", "NAME",
            is_eigenproblem ? "auto, jacobi, factored or tridiagonal; a matrix of any size is large with the\nlast two"
                            : "auto or jacobi",
            &method);
  a->choices(is_eigenproblem ? std::vector<std::string>{"auto", "jacobi", "factored", "tridiagonal"}
                             : std::vector<std::string>{"auto", "jacobi"});
  a->option("--tolerance", "X",
            "cosine of two columns, at most 1, below which they count as orthogonal; 0: the\ndefault", &tolerance);
  a->option("--max-sweeps", "N", "stop after N sweeps without convergence; 0: the server's default", &max_sweeps, 0);
  const std::string order = "large matrices: order of the pairs of blocks: ";
  a->option("--strategy", "NAME", order + all_names<client::PivotStrategy>(order.size()), &strategy);
  a->choices(absl::StrSplit(absl::StrReplaceAll(all_names<client::PivotStrategy>(0), {{"\n", " "}, {",", ""}}), ' '));
  a->option("--variant", "NAME", "large matrices: auto, block-oriented or full-block", &variant);
  a->choices({"auto", "block-oriented", "full-block"});
  a->flag("--certificate",
          is_eigenproblem ? "also print residual and orthogonality of the results. With a factor G, found or\n"
                            "given, also the condition of G, a measure of the digits of small eigenvalues"
                          : "also print residual and orthogonality of the results",
          &certificate);
}

bool has_options_of_large(const client::LargeOptions& o) {
  return o.pivot_strategy != client::PivotStrategy::kAuto || o.block_variant != client::BlockVariant::kAuto;
}

std::optional<std::string> misplaced_for_small(const client::LargeOptions& options) {
  if (!has_options_of_large(options)) return std::nullopt;
  return "--strategy and --variant are for large matrices, and these are small for this server";
}

std::string misplaced_for_large(const std::string& option) {
  return option + " is not supported for large matrices, and this one is large by its size or its options";
}

std::optional<std::string> LargeArguments::read(client::LargeOptions* to) const {
  const auto chosen_method =
      parse_name(method, is_eigenproblem ? client::Method::kTridiagonal : client::Method::kJacobi);
  const bool of_values = chosen_method == client::Method::kBidiagonal || chosen_method == client::Method::kBisection;
  if (!chosen_method || of_values) {
    return "--method: \"" + method + "\" is not auto" +
           (is_eigenproblem ? ", jacobi, factored or tridiagonal" : " or jacobi");
  }
  const auto chosen_strategy = parse_name<client::PivotStrategy>(strategy);
  if (!chosen_strategy) return "--strategy: \"" + strategy + "\" is not a pivot strategy; see --help";
  const auto chosen_variant = parse_name<client::BlockVariant>(variant);
  if (!chosen_variant) return "--variant: \"" + variant + "\" is not auto, block-oriented or full-block";
  if (max_sweeps > INT32_MAX) return "--max-sweeps is too large";
  to->method = *chosen_method;
  to->pivot_strategy = *chosen_strategy;
  to->block_variant = *chosen_variant;
  to->tolerance = tolerance;
  to->max_sweeps = static_cast<int32_t>(max_sweeps);
  to->certificate = certificate;
  return std::nullopt;
}

std::optional<int> load_one(const Context& context, const std::string& matrix_file, const InputFormat& format,
                            const std::string& signature_file, MatrixStack* stack, std::vector<int8_t>* signature) {
  auto matrix = load_matrices(matrix_file, format);
  if (!matrix.ok()) return fail(context, matrix.status());
  *stack = *std::move(matrix);
  const client::Batch& b = stack->batch;
  if (!stack->batch_shape.empty())
    return bad_usage(context, input_name(matrix_file) + ": must be one matrix, an array of two dimensions");
  if (!signature_file.empty()) {
    auto signs = load_signature(signature_file);
    if (!signs.ok()) return fail(context, signs.status());
    *signature = *std::move(signs);
    if (static_cast<int64_t>(signature->size()) != b.cols) {
      return bad_usage(context, input_name(signature_file) + ": has " + std::to_string(signature->size()) +
                                    " entries, but the matrix has " + std::to_string(b.cols) + " columns");
    }
    if (b.rows < b.cols) {
      return bad_usage(
          context, input_name(matrix_file) + ": must have at least as many rows as columns, but is " + shape_text(b));
    }
  }
  if (b.rows == 0 || b.cols == 0) return bad_usage(context, input_name(matrix_file) + ": the matrix has no elements");
  return std::nullopt;
}

int run_large(const Context& context, client::Client& client, const MatrixStack& stack,
              std::span<const int8_t> signature, const LargeFiles& files, const client::LargeOptions& options,
              const Interruption& interruption, client::CallOptions call) {
  const MatrixStack wide = widened(stack);
  LargeRun run(context, client, wide, files);
  if (const Status s = run.open(signature, options); !s.ok()) return fail(context, s);
  call.stop = interruption.token();
  if (const Status s = run.compute(call); !s.ok()) return fail_unless_interrupted(context, s, interruption);
  if (const Status s = print_reports(context, {&run.report(), 1}, files.print_values); !s.ok()) return fail(context, s);
  return exit_code(run.report().exceptions);
}

int exit_code(std::span<const client::MatrixException> exceptions) {
  const bool all_right =
      std::ranges::all_of(exceptions, [](const client::MatrixException& e) { return is_right(e.status); });
  return all_right ? kDone : kExceptions;
}

bool is_large(const client::Batch& batch, const client::ServerLimits& limits, const client::ComputeOptions& compute) {
  if (limits.max_large_bytes <= 0) return false;
  if (compute.problem == client::Problem::kGeneral && batch.rows > limits.max_general_order) return true;
  if (compute.problem == client::Problem::kHermitian && batch.rows > limits.max_hermitian_order) return true;
  if (batch.values_per_matrix() > limits.max_values || std::max(batch.rows, batch.cols) > limits.max_dimension) {
    return true;
  }
  const bool only_small =
      compute.fix_phases || compute.mimo.has_value() || compute.condition || batch.starting_vectors != nullptr;
  return !only_small && !client::fits_a_message(batch, limits, compute);
}

client::Result<client::ServerInfo> ask_server(client::Client& client, client::CallOptions* call) {
  const auto begin = std::chrono::steady_clock::now();
  auto info = client.server_info(*call);
  if (call->timeout) *call->timeout -= std::chrono::steady_clock::now() - begin;
  return info;
}

int fail_unless_interrupted(const Context& context, const client::Status& status, const Interruption& interruption) {
  const int code = interruption.exit_code();
  return code != 0 && status.code == client::Code::kCancelled ? code : fail(context, status);
}

}  // namespace svdserve::cli
