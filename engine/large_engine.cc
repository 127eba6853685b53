#include "engine/large_engine.h"

#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/cuda_door/plugin_loader.h"
#include "engine/backends/host/base/fp_environment.h"
#include "engine/backends/host/members/host_rank.h"
#include "engine/backends/ranks/rank_process.h"
#include "engine/backends/ranks/serve_rank.h"
#include "engine/planner.h"

namespace svdserve {
namespace {

LargePlanOrError refused(const char* field, std::string message) { return {std::nullopt, {field, std::move(message)}}; }

bool is_size(int64_t size) { return size >= 1 && size <= kMaxLargeDimension; }

std::string size_error(int64_t size) {
  return "must be between 1 and " + std::to_string(kMaxLargeDimension) + ", but is " + std::to_string(size);
}

// AUTO of one Hermitian matrix: the absolute accuracy of LAPACK's eigensolvers, at their speed.
Method resolved_method(const LargeOptions& options) {
  if (options.method != Method::kAuto || !is_eigenproblem(options.kind)) return options.method;
  if (options.kind == LargeKind::kGeneral) return options.starting_vectors ? Method::kJacobi : Method::kQr;
  return options.kind == LargeKind::kHermitian ? Method::kTridiagonal : Method::kFactored;
}

bool has_sweeps(Method resolved) { return resolved != Method::kTridiagonal && resolved != Method::kQr; }

// Checks the method. Returns what is wrong.
std::optional<PlanError> check_method(const LargeOptions& options) {
  const Method method = options.method;
  if (method == Method::kAuto) return std::nullopt;
  if (method == Method::kJacobi) return std::nullopt;
  if (method == Method::kQr && options.kind == LargeKind::kGeneral) return std::nullopt;
  if (method == Method::kFactored && is_hermitian(options.kind)) return std::nullopt;
  if (method == Method::kTridiagonal && options.kind == LargeKind::kHermitian) return std::nullopt;
  const char* const known =
      options.kind == LargeKind::kHermitian         ? "AUTO, TRIDIAGONAL, FACTORED or JACOBI for a Hermitian matrix"
      : options.kind == LargeKind::kHermitianFactor ? "AUTO, FACTORED or JACOBI for a factor G with its signature"
      : options.kind == LargeKind::kGeneral         ? "AUTO, QR or JACOBI for a general matrix"
                                                    : "AUTO or JACOBI for a large matrix";
  return PlanError{"method", std::string("must be ") + known + ", but is " + name(method)};
}

// Checks that starting vectors come with a method that takes them. Returns what is wrong.
std::optional<PlanError> check_start(const LargeOptions& options) {
  if (!options.starting_vectors) return std::nullopt;
  if (options.kind != LargeKind::kGeneral) {
    return PlanError{"starting_vectors", "is for eigenproblems of general matrices alone"};
  }
  if (options.method != Method::kQr) return std::nullopt;
  return PlanError{"method", "must be AUTO or JACOBI with starting vectors, which QR does not take"};
}

// Checks that options of sweeps come with a method of sweeps. Returns what is wrong.
std::optional<PlanError> check_sweeps(const LargeOptions& options) {
  if (options.kind == LargeKind::kGeneral && options.tolerance != 0) {
    return PlanError{"tolerance", "must be 0 for general matrices, whose methods take none"};
  }
  const Method method = resolved_method(options);
  if (has_sweeps(method)) return std::nullopt;
  const char* const field = options.tolerance != 0                     ? "tolerance"
                            : options.max_sweeps != 0                  ? "max_sweeps"
                            : options.strategy != PivotStrategy::kAuto ? "strategy"
                            : options.variant != BlockVariant::kAuto   ? "variant"
                                                                       : nullptr;
  if (field == nullptr) return std::nullopt;
  if (method == Method::kQr) {
    return PlanError{field, "is for sweeps, of which QR (and AUTO, which chose it) has none; ask for JACOBI"};
  }
  return PlanError{field, "is for sweeps, of which TRIDIAGONAL (and AUTO, which chose it) has none; ask for FACTORED"};
}

// Checks that leading triplets are asked for where there are some. Returns what is wrong.
std::optional<PlanError> check_top_k(const Problem& problem, const LargeOptions& options) {
  if (options.top_k == 0) return std::nullopt;
  if (options.kind != LargeKind::kSvd) return PlanError{"top_k", "is for singular value decompositions alone"};
  const int64_t k = values_per_matrix(problem);
  if (options.top_k < 0 || options.top_k > k) {
    return PlanError{"top_k", "must be between 0 and min(rows, cols) = " + std::to_string(k) + " (0: all), but is " +
                                  std::to_string(options.top_k)};
  }
  if (options.vectors != Vectors::kFull) return std::nullopt;
  return PlanError{"top_k", "must be 0 with full vectors, which have all columns; ask for thin ones"};
}

// Whether the leading triplets may come from a subspace: the caller has not asked for a way of sweeps.
bool takes_subspace(const LargeOptions& o) {
  return o.top_k > 0 && o.method == Method::kAuto && o.tolerance == 0 && o.max_sweeps == 0 &&
         o.strategy == PivotStrategy::kAuto && o.variant == BlockVariant::kAuto;
}

// Checks the options for `problem`, but not its size. Returns what is wrong.
std::optional<PlanError> check(const Problem& problem, const LargeOptions& options) {
  if (auto error = check_method(options)) return error;
  if (auto error = check_start(options)) return error;
  if (auto error = check_sweeps(options)) return error;
  if (!(options.tolerance >= 0 && options.tolerance <= 1)) {
    return PlanError{"tolerance", "must be a cosine between 0 and 1, or 0 for the method's own"};
  }
  if (options.max_sweeps < 0 || options.max_sweeps > kLargestMaxSweeps) {
    return PlanError{"max_sweeps", "must be between 0 and " + std::to_string(kLargestMaxSweeps) + " (0: the default)"};
  }
  if (options.certificate && options.vectors == Vectors::kNone) {
    return PlanError{"certificate", "needs vectors; ask for thin or full ones"};
  }
  if (auto error = check_top_k(problem, options)) return error;
  if (options.triangle != Triangle::kLower && options.kind != LargeKind::kHermitian) {
    return PlanError{"triangle", "must be LOWER (the default) unless the matrix is Hermitian: others are read whole"};
  }
  if (options.kind == LargeKind::kSvd) return std::nullopt;
  if (!has_signature(options.kind) && problem.rows != problem.cols) {
    return PlanError{"cols", "must equal rows = " + std::to_string(problem.rows) +
                                 " for an eigenproblem, whose matrix is square, but is " +
                                 std::to_string(problem.cols)};
  }
  if (options.kind == LargeKind::kGeneral) return std::nullopt;
  if (problem.rows < problem.cols) {
    return PlanError{"signature", "needs at least as many rows as columns: the matrix must have full column rank"};
  }
  if (options.vectors == Vectors::kFull) {
    return PlanError{"vectors", is_hermitian(options.kind)
                                    ? "must be thin or none for a Hermitian matrix: its thin basis is complete"
                                    : "must be thin or none for a hyperbolic decomposition, which has no full basis"};
  }
  return std::nullopt;
}

// kAuto of the strategy and the variant: what was measured fastest, engine/decisions/0007. JACOBI of a general matrix
// keeps it, since it tries another way first where none is named (algorithms/large/simultaneous_jacobi.h).
LargeOptions resolved(LargeOptions options) {
  options.method = resolved_method(options);
  if (!has_sweeps(options.method) || options.kind == LargeKind::kGeneral) return options;
  if (options.strategy == PivotStrategy::kAuto) options.strategy = PivotStrategy::kRecursive;
  if (options.variant == BlockVariant::kAuto) options.variant = BlockVariant::kBlockOriented;
  return options;
}

int serve_host_rank(int threads) {
  ranks::RankSocket socket(ranks::begin_rank());
  const host::FpEnvironment environment;
  host::HostRankKind kind(threads);
  ranks::serve_rank<host::HostRankKind, std::complex<double>>(socket, kind);
  return EXIT_SUCCESS;
}

int serve_cuda_rank(int device) {
  ranks::Descriptor socket = ranks::begin_rank();
  const cuda::Plugin& plugin = cuda::plugin();
  if (plugin.api == nullptr) {
    std::fprintf(stderr, "svdserve: no rank of GPU %d: %s\n", device, plugin.refusal.c_str());
    return EXIT_FAILURE;
  }
  plugin.api->serve_rank(socket.release(), device);
  return EXIT_SUCCESS;
}

}  // namespace

bool sweeps_on_ring(const LargePlan& plan) {
  const LargeOptions& o = plan.options;
  return o.kind != LargeKind::kGeneral && has_sweeps(o.method) && plan.subspace_columns == 0 &&
         large::can_be_cut(o.strategy);
}

LargePlanOrError plan_large(const Problem& problem, const LargeOptions& options) {
  if (is_narrow(problem)) return refused("storage", "must be native for a large matrix; convert it to f32 or c64");
  if (!is_size(problem.rows)) return refused("rows", size_error(problem.rows));
  if (!is_size(problem.cols)) return refused("cols", size_error(problem.cols));
  if (auto error = check(problem, options)) return {std::nullopt, *std::move(error)};
  LargePlan plan;
  plan.problem = problem;
  plan.options = resolved(options);
  if (is_eigenproblem(options.kind)) {
    plan.values = problem.rows;
    if (options.vectors != Vectors::kNone) plan.left_columns = problem.rows;
    if (options.vectors == Vectors::kFull) plan.right_rows = problem.rows;
    return {plan, {}};
  }
  plan.values = options.top_k > 0 ? options.top_k : values_per_matrix(problem);
  if (takes_subspace(options)) plan.subspace_columns = subspace_columns(values_per_matrix(problem), options.top_k);
  if (options.vectors != Vectors::kNone) {
    const bool full = options.vectors == Vectors::kFull;
    plan.left_columns = full ? problem.rows : plan.values;
    plan.right_rows = full ? problem.cols : plan.values;
  }
  return {plan, {}};
}

DType LargePlan::vector_type() const {
  if (options.kind != LargeKind::kGeneral) return problem.dtype;
  return value_bytes(problem.dtype) == sizeof(float) ? DType::kC64 : DType::kC128;
}
uint64_t LargePlan::operand_bytes() const { return matrix_bytes() + start_bytes(); }
uint64_t LargePlan::start_bytes() const {
  if (!options.starting_vectors) return 0;
  return static_cast<uint64_t>(problem.rows) * static_cast<uint64_t>(problem.cols) * element_bytes(vector_type());
}
uint64_t LargePlan::matrix_bytes() const {
  return static_cast<uint64_t>(problem.rows) * static_cast<uint64_t>(problem.cols) * element_bytes(problem.dtype);
}
uint64_t LargePlan::left_bytes() const {
  return static_cast<uint64_t>(problem.rows) * static_cast<uint64_t>(left_columns) * element_bytes(vector_type());
}
uint64_t LargePlan::values_bytes() const {
  const bool complex_values = options.kind == LargeKind::kGeneral;
  return static_cast<uint64_t>(values) * (complex_values ? element_bytes(vector_type()) : value_bytes(problem.dtype));
}
uint64_t LargePlan::right_bytes() const {
  return static_cast<uint64_t>(right_rows) * static_cast<uint64_t>(problem.cols) * element_bytes(vector_type());
}

std::optional<int> run_as_rank(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  if (argc < 2 || arguments[1] != ranks::kRankArgument) {
    ranks::begin_leader();
    return std::nullopt;
  }
  if (argc == 5 && arguments[2] == "host") return serve_host_rank(std::atoi(argv[3]));
  if (argc == 4 && arguments[2] == "cuda") return serve_cuda_rank(std::atoi(argv[3]));
  std::fprintf(stderr, "%s: %s is for the program's own use: it starts a rank with it\n", argv[0],
               ranks::kRankArgument);
  return 2;
}

}  // namespace svdserve
