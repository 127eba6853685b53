#include "client/cli/commands/large.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands/commands.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/printable.h"
#include "client/cli/progress_bar.h"
#include "client/cli/summary.h"

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
  Status commit_all(const std::stop_token& stop) { return commit({u_.get(), s_.get(), vh_.get()}, stop); }

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

// Reports on large matrices as one: counts are summed, and of certificates the worst numbers count.
class Reports {
 public:
  void add(const client::LargeReport& r) {
    methods_.insert(name(r.method));
    devices_.insert(printable(r.device));
    ++statuses_[r.status];
    has_sweeps_ =
        has_sweeps_ || r.sweeps > 0 || (r.method != client::Method::kTridiagonal && r.method != client::Method::kQr);
    sweeps_ += r.sweeps;
    subspace_steps_ += r.subspace_steps;
    rotations_ += r.rotations;
    proper_rotations_ += r.proper_rotations;
    if (!r.certificate) return;
    rank_ = certificate_ ? std::min(rank_, r.rank) : r.rank;
    client::Certificate& c = certificate_ ? *certificate_ : certificate_.emplace();
    c.residual = std::max(c.residual, r.certificate->residual);
    c.left_orthogonality = std::max(c.left_orthogonality, r.certificate->left_orthogonality);
    c.right_orthogonality = std::max(c.right_orthogonality, r.certificate->right_orthogonality);
    factor_condition_ = std::max(factor_condition_, r.factor_condition);
  }
  // what: the matrices, such as "matrix [1, 2]: 40x30 f64".
  void print(const std::string& what, client::LargeProblem problem, double seconds) const {
    std::string line = absl::StrCat(absl::StrJoin(methods_, ", "), " on ", absl::StrJoin(devices_, ", "), "; ");
    if (subspace_steps_ > 0) {
      absl::StrAppend(&line, subspace_steps_, subspace_steps_ == 1 ? " step" : " steps", " of a subspace; ");
    }
    if (has_sweeps_ && !(subspace_steps_ > 0 && sweeps_ == 0)) {
      absl::StrAppend(&line, sweeps_, sweeps_ == 1 ? " sweep, " : " sweeps, ", rotations_, " rotations, ",
                      proper_rotations_, " of them proper; ");
    }
    absl::StrAppend(&line, is_one() ? name(statuses_.begin()->first) : statuses_text(statuses_));
    std::fprintf(stderr, "%s in %.4g s: %s\n", what.c_str(), seconds, line.c_str());
    if (certificate_) print_certificate(*certificate_, problem);
  }

 private:
  bool is_one() const { return statuses_.size() == 1 && statuses_.begin()->second == 1; }
  void print_certificate(const client::Certificate& c, client::LargeProblem problem) const {
    if (problem == client::LargeProblem::kGeneral) {
      std::fprintf(stderr, "certificate: residual %.3g\n", c.residual);
    } else if (problem == client::LargeProblem::kSvd) {
      std::fprintf(stderr, "certificate: residual %.3g, orthogonality of U %.3g, of V %.3g\n", c.residual,
                   c.left_orthogonality, c.right_orthogonality);
    } else if (factor_condition_ == 0) {  // TRIDIAGONAL
      std::fprintf(stderr, "certificate: residual %.3g, orthogonality of V %.3g\n", c.residual, c.left_orthogonality);
    } else {
      std::fprintf(stderr,
                   "certificate: rank %s%" PRId64 ", residual %.3g, orthogonality of V %.3g, condition of G %.3g\n",
                   is_one() ? "" : "at least ", rank_, c.residual, c.left_orthogonality, factor_condition_);
    }
  }

  std::set<std::string> methods_, devices_;
  std::map<client::MatrixStatus, int64_t> statuses_;
  bool has_sweeps_ = false;
  int64_t sweeps_ = 0, subspace_steps_ = 0, rotations_ = 0, proper_rotations_ = 0, rank_ = 0;
  std::optional<client::Certificate> certificate_;
  double factor_condition_ = 0;
};

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void print_times(const client::LargeReport& r) {
  std::fprintf(stderr, "upload %.3g s, queue %.3g s, compute %.3g s, download %.3g s\n", r.upload_seconds,
               r.queue_seconds, r.compute_seconds, r.download_seconds);
  for (const client::LargePhase& p : r.phases) {
    std::fprintf(stderr, "  %-16s %10.4f s", printable(p.name).c_str(), p.seconds);
    if (p.flops > 0 && p.seconds > 0) std::fprintf(stderr, " %10.2f Gflop/s", p.flops / p.seconds * 1e-9);
    std::fputc('\n', stderr);
  }
}

}  // namespace

void LargeArguments::declare(Arguments* a) {
  a->option("--method", "NAME",
            is_eigenproblem ? "auto, jacobi, factored or tridiagonal; a matrix of any size is large with the\nlast two"
                            : "auto or jacobi",
            &method);
  a->option("--tolerance", "X",
            "cosine of two columns, at most 1, below which they count as orthogonal; 0: the\ndefault", &tolerance);
  a->option("--max-sweeps", "N", "stop after N sweeps without convergence; 0: the server's default", &max_sweeps, 0);
  const std::string order = "large matrices: order of the pairs of blocks: ";
  a->option("--strategy", "NAME", order + all_names<client::PivotStrategy>(order.size()), &strategy);
  a->option("--variant", "NAME", "large matrices: auto, block-oriented or full-block", &variant);
  a->flag("--certificate",
          is_eigenproblem ? "also print residual and orthogonality of the results. With a factor G, found or\n"
                            "given, also the condition of G, a measure of the digits of small eigenvalues"
                          : "also print residual and orthogonality of the results",
          &certificate);
  a->flag("--verbose", kVerboseHelp, &verbose);
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

std::string place_of(const MatrixStack& stack, int64_t index) {
  std::string place;
  for (auto size = stack.batch_shape.rbegin(); size != stack.batch_shape.rend(); ++size) {
    place.insert(0, (place.empty() ? "" : ", "));
    place.insert(0, std::to_string(index % *size));
    index /= *size;
  }
  return place.empty() ? "" : "matrix [" + place + "]: ";
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

std::optional<int> load_one(const std::string& command, const std::string& matrix_file,
                            const std::string& signature_file, MatrixStack* stack, std::vector<int8_t>* signature) {
  auto matrix = load_matrices(matrix_file);
  if (!matrix.ok()) return fail(command, matrix.status());
  *stack = *std::move(matrix);
  const client::Batch& b = stack->batch;
  if (!stack->batch_shape.empty())
    return bad_usage(command, matrix_file + ": must be one matrix, an array of two dimensions");
  if (!signature_file.empty()) {
    auto signs = load_signature(signature_file);
    if (!signs.ok()) return fail(command, signs.status());
    *signature = *std::move(signs);
    if (static_cast<int64_t>(signature->size()) != b.cols) {
      return bad_usage(command, signature_file + ": has " + std::to_string(signature->size()) +
                                    " entries, but the matrix has " + std::to_string(b.cols) + " columns");
    }
    if (b.rows < b.cols) {
      return bad_usage(command, matrix_file + ": must have at least as many rows as columns, but is " + shape_text(b));
    }
  }
  if (b.rows == 0 || b.cols == 0) return bad_usage(command, matrix_file + ": the matrix has no elements");
  return std::nullopt;
}

int run_large(const std::string& command, client::Client& client, const MatrixStack& stack,
              std::span<const int8_t> signature, const LargeFiles& files, const client::LargeOptions& options,
              bool verbose, const Interruption& interruption, client::CallOptions call) {
  const client::Batch& b = stack.batch;
  client::LargeMatrix matrix{
      b.data, b.rows, b.cols, b.data_type, b.memory_order, signature, b.owner, b.starting_vectors, b.starting_owner};
  client::LargeOptions wanted = options;
  if (files.u.empty() && files.vh.empty() && !options.certificate) wanted.vectors = client::Vectors::kNone;
  const auto sizes = client::large_sizes(matrix, wanted);
  if (!sizes.ok()) return fail(command, sizes.status());
  LargeResults results;
  const client::DataType vectors = client::vector_type(matrix, wanted);
  if (Status s = results.open(stack, vectors, wanted, *sizes, files); !s.ok()) return fail(command, s);
  ProgressBar bar;
  wanted.progress = [&bar](const client::LargeProgress& p) { bar.show(p); };
  call.stop = interruption.token();
  // The timeout is that of all matrices together.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  if (call.timeout) deadline = std::chrono::steady_clock::now() + *call.timeout;
  const bool is_stack = !stack.batch_shape.empty();
  const std::string shape = shape_text(b);
  bool all_ok = true;
  Reports all;
  const auto first_begin = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < b.count; ++i) {
    matrix.data = static_cast<const std::byte*>(b.data) + i * sizes->matrix_bytes;
    if (b.starting_vectors != nullptr) {
      matrix.starting_vectors =
          static_cast<const std::byte*>(b.starting_vectors) + i * (sizes->operand_bytes - sizes->matrix_bytes);
    }
    const auto begin = std::chrono::steady_clock::now();
    if (deadline) call.timeout = std::max<std::chrono::nanoseconds>(*deadline - begin, std::chrono::nanoseconds(1));
    const auto report = client.decompose_large(matrix, results.of(i), wanted, call);
    bar.clear();
    if (!report.ok()) {
      const Status status = with_matrix(report.status(), stack.path, place_of(stack, i));
      return fail_unless_interrupted(command, status, interruption);
    }
    const bool ok = report->status == client::MatrixStatus::kOk;
    if (!is_stack || verbose || !ok) {
      Reports one;
      one.add(*report);
      one.print(place_of(stack, i) + shape, wanted.problem, seconds_since(begin));
    }
    if (verbose) print_times(*report);
    all.add(*report);
    all_ok = all_ok && ok;
  }
  if (is_stack) all.print(matrices_text(b.count, b), wanted.problem, seconds_since(first_begin));
  if (Status s = results.commit_all(call.stop); !s.ok()) return fail_unless_interrupted(command, s, interruption);
  const bool is_general = options.problem == client::LargeProblem::kGeneral;
  if (files.print_values) {
    if (Status s = print_values(b, results.values(), is_general); !s.ok()) return fail(command, s);
  }
  return all_ok ? kDone : kExceptions;
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

int fail_unless_interrupted(const std::string& command, const client::Status& status,
                            const Interruption& interruption) {
  const int code = interruption.exit_code();
  return code != 0 && status.code == client::Code::kCancelled ? code : fail(command, status);
}

}  // namespace svdserve::cli
