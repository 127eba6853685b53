// Calls made ready: what is sent, how, and the results with memory for the reply. The verbs of a Client are these and a
// way to send them. The library itself needs them; programs include <svdserve/client.h>.
#ifndef SVDSERVE_CLIENT_CPP_PREPARED_H_
#define SVDSERVE_CLIENT_CPP_PREPARED_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cpp/large.h"
#include "client/cpp/options.h"
#include "client/cpp/types.h"

namespace svdserve::client::internal {

// --- checks before memory is taken ---------------------------------------------------------------

// Whether data_size elements are what the sizes say.
SVDSERVE_CLIENT_API Status check_sizes(size_t data_size, int64_t rows, int64_t cols, int64_t count);
// How many matrices of the shape that many elements are.
SVDSERVE_CLIENT_API Result<int64_t> count_of(size_t data_size, const Shape& shape);
// Whether there are none, or as many elements of starting vectors as of matrices.
SVDSERVE_CLIENT_API Status check_starting_size(size_t starting_size, size_t data_size,
                                               const char* field = "matrices.starting_vectors");
SVDSERVE_CLIENT_API Status check_starting_type(DataType given, DataType needed, const char* field);
// Whether the results of the batch have sizes at all.
SVDSERVE_CLIENT_API Status check_results(const Batch& batch, const ComputeOptions& compute);
// Whether that many columns of V are a result.
SVDSERVE_CLIENT_API Status check_columns(int64_t columns);
// Whether it is a diagonal of J for a matrix of `cols` columns.
SVDSERVE_CLIENT_API Status check_signature(std::span<const int8_t> signature, int64_t cols);
// The statuses of a range of matrices that has none, or has matrices of different shapes.
SVDSERVE_CLIENT_API Status no_matrices();
SVDSERVE_CLIENT_API Status other_shape(size_t i, const Shape& shape, const Shape& first);
// The status of starting vectors for several operands.
SVDSERVE_CLIENT_API Status no_start_of_groups();
// The status of batch i of several: "groups[2].rows" for the field "matrices.rows".
SVDSERVE_CLIENT_API Status of_group(Status status, size_t i);
// Whether no eigenproblem is asked for.
SVDSERVE_CLIENT_API Status check_problem(const ComputeOptions& compute);
SVDSERVE_CLIENT_API Status check_problem(const LargeOptions& options);
// The same, and that no MIMO numbers are.
SVDSERVE_CLIENT_API Status check_for_svd(const ComputeOptions& compute);

// The status of a verb's call in the words of its caller: with the verb's parameter.
SVDSERVE_CLIENT_API Status explained(Status status);

// --- batches ------------------------------------------------------------------------------------

// `out` has the memory of `answer`, also after a move. Only the report is missing.
template <class A>
struct Prepared {
  Batch batch = {};
  ComputeOptions compute = {};
  Outputs out = {};
  A answer = {};

  // Makes room for a plane, where it was asked for.
  template <class Number>
  void room_for(Plane plane, std::vector<Number>* numbers) {
    numbers->resize(static_cast<size_t>(plane_bytes(batch, compute, plane, batch.count)) / sizeof(Number));
    out[plane] = std::as_writable_bytes(std::span(*numbers));
  }
};

template <class T>
Result<Batch> batch_of(const Stack<T>& matrices) {
  const Result<int64_t> count = count_of(matrices.data.size(), matrices.shape);
  if (!count.ok()) return count.status();
  return Batch{matrices.data.data(),        matrices.shape.rows,  matrices.shape.cols, *count,
               ElementTraits<T>::kDataType, matrices.shape.order, matrices.owner};
}

template <class T>
Result<Prepared<SingularValues<RealOf<T>>>> prepare_values(const Batch& batch, const ComputeOptions& compute) {
  if (Status bad = check_problem(compute); !bad.ok()) return bad;
  if (Status bad = check_results(batch, compute); !bad.ok()) return bad;
  Prepared<SingularValues<RealOf<T>>> p{batch, compute};
  p.room_for(Plane::kValues, &p.answer.values);
  return p;
}

template <class T>
Result<Prepared<Decomposition<T>>> prepare_svd(const Batch& batch, const ComputeOptions& compute) {
  if (Status bad = check_for_svd(compute); !bad.ok()) return bad;
  Prepared<Decomposition<T>> p{batch, compute};
  if (compute.vectors == Vectors::kNone) p.compute.vectors = Vectors::kThin;
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  Decomposition<T>& d = p.answer;
  const bool full = compute.vectors == Vectors::kFull;
  const int64_t leading = compute.top_k != 0 ? compute.top_k : batch.values_per_matrix();
  d.left_columns = full ? batch.rows : leading;
  d.right_rows = full ? batch.cols : leading;
  d.rows = batch.rows;
  d.cols = batch.cols;
  d.order = batch.memory_order;
  p.room_for(Plane::kLeft, &d.left);
  p.room_for(Plane::kValues, &d.values);
  p.room_for(Plane::kRight, &d.right_adjoint);
  p.room_for(Plane::kCertificate, &d.certificates);
  return p;
}

template <class T>
Result<Prepared<HermitianEigen<T>>> prepare_eigh(const Batch& batch, const ComputeOptions& compute) {
  Prepared<HermitianEigen<T>> p{batch, compute};
  p.compute.problem = Problem::kHermitian;
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  p.answer.n = batch.rows;
  p.answer.order = batch.memory_order;
  p.room_for(Plane::kValues, &p.answer.values);
  p.room_for(Plane::kLeft, &p.answer.vectors);
  p.room_for(Plane::kCertificate, &p.answer.certificates);
  return p;
}

template <class T>
Result<Prepared<GeneralEigen<T>>> prepare_eig(const Batch& batch, const ComputeOptions& compute) {
  Prepared<GeneralEigen<T>> p{batch, compute};
  p.compute.problem = Problem::kGeneral;
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  GeneralEigen<T>& e = p.answer;
  e.n = batch.rows;
  e.order = batch.memory_order;
  p.room_for(Plane::kValues, &e.values);
  p.room_for(Plane::kLeft, &e.vectors);
  p.room_for(Plane::kRight, &e.left_adjoint);
  p.room_for(Plane::kCertificate, &e.certificates);
  p.room_for(Plane::kEigenvalueCondition, &e.conditions);
  return p;
}

template <class T>
Result<Prepared<Mimo<T>>> prepare_mimo(const Batch& batch, const MimoOptions& mimo) {
  Prepared<Mimo<T>> p{batch, {.mimo = mimo}};
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  Mimo<T>& m = p.answer;
  p.room_for(Plane::kCapacity, &m.capacity);
  p.room_for(Plane::kWaterFilling, &m.water_filling);
  p.room_for(Plane::kStreamSnr, &m.stream_snr);
  p.room_for(Plane::kConditionNumber, &m.condition_number);
  p.room_for(Plane::kEffectiveRank, &m.effective_rank);
  p.room_for(Plane::kThresholdRank, &m.threshold_rank);
  p.room_for(Plane::kValues, &m.values);
  p.room_for(Plane::kLeft, &m.combiners);
  p.room_for(Plane::kRight, &m.precoders);
  p.room_for(Plane::kCapacityGradient, &m.capacity_gradient);
  p.room_for(Plane::kWaterFillingGradient, &m.water_filling_gradient);
  p.room_for(Plane::kEffectiveRankGradient, &m.effective_rank_gradient);
  return p;
}

template <class T>
Result<Prepared<Capacities<T>>> prepare_capacity(const Batch& batch, std::vector<double> snr_db, bool water_filling,
                                                 int64_t group_size) {
  Prepared<Capacities<T>> p{batch};
  p.answer.snrs = static_cast<int64_t>(snr_db.size());
  p.compute.mimo = MimoOptions{.capacity = !water_filling,
                               .water_filling = water_filling,
                               .snr_db = std::move(snr_db),
                               .group_size = group_size};
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  p.room_for(water_filling ? Plane::kWaterFilling : Plane::kCapacity, &p.answer.values);
  return p;
}

template <class T>
Result<Prepared<Precoders<T>>> prepare_precoders(const Batch& batch, int64_t columns) {
  if (Status bad = check_columns(columns); !bad.ok()) return bad;
  Prepared<Precoders<T>> p{batch};
  p.compute.mimo = MimoOptions{.precoder_columns = columns};
  if (Status bad = check_results(batch, p.compute); !bad.ok()) return bad;
  p.answer.cols = batch.cols;
  p.answer.columns_per_matrix = columns;
  p.answer.order = batch.memory_order;
  p.room_for(Plane::kRight, &p.answer.columns);
  return p;
}

// --- one large matrix ---------------------------------------------------------------------------

template <class A>
struct PreparedLarge {
  LargeMatrix matrix = {};
  LargeOptions options = {};
  LargeOutputs out = {};
  A answer = {};
  std::optional<std::vector<int8_t>> signature = {};  // to be set as the matrix's, once this stays where it is
};

template <class Number>
std::span<std::byte> room_of(std::vector<Number>* numbers, int64_t bytes) {
  numbers->resize(static_cast<size_t>(bytes) / sizeof(Number));
  return std::as_writable_bytes(std::span(*numbers));
}

template <class T>
Result<LargeMatrix> large_matrix_of(const Stack<T>& matrix) {
  const Shape& shape = matrix.shape;
  if (Status bad = check_sizes(matrix.data.size(), shape.rows, shape.cols, 1); !bad.ok()) return bad;
  LargeMatrix large{matrix.data.data(), shape.rows, shape.cols, ElementTraits<T>::kDataType, shape.order};
  large.owner = matrix.owner;
  return large;
}

template <class T>
Result<PreparedLarge<LargeDecomposition<T>>> prepare_large_svd(const LargeMatrix& matrix, const LargeOptions& options) {
  if (Status bad = check_problem(options); !bad.ok()) return bad;
  const Result<LargeSizes> sizes = large_sizes(matrix, options);
  if (!sizes.ok()) return sizes.status();
  PreparedLarge<LargeDecomposition<T>> p{matrix, options};
  LargeDecomposition<T>& d = p.answer;
  d.left_columns = sizes->left_columns;
  d.right_rows = sizes->right_rows;
  d.rows = matrix.rows;
  d.cols = matrix.cols;
  d.order = matrix.memory_order;
  p.out = {room_of(&d.values, sizes->values_bytes), room_of(&d.left, sizes->left_bytes),
           room_of(&d.right_adjoint, sizes->right_bytes)};
  return p;
}

// problem: kHermitian or kHermitianFactor.
template <class T>
Result<PreparedLarge<LargeEigen<T>>> prepare_large_eigh(const LargeMatrix& matrix, const LargeOptions& options,
                                                        LargeProblem problem) {
  PreparedLarge<LargeEigen<T>> p{matrix, options};
  p.options.problem = problem;
  const Result<LargeSizes> sizes = large_sizes(matrix, p.options);
  if (!sizes.ok()) return sizes.status();
  p.answer.n = matrix.rows;
  p.answer.order = matrix.memory_order;
  p.out = {room_of(&p.answer.values, sizes->values_bytes), room_of(&p.answer.vectors, sizes->left_bytes), {}};
  return p;
}

template <class T>
Result<PreparedLarge<LargeGeneralEigen<T>>> prepare_large_eig(const LargeMatrix& matrix, const LargeOptions& options) {
  PreparedLarge<LargeGeneralEigen<T>> p{matrix, options};
  p.options.problem = LargeProblem::kGeneral;
  const Result<LargeSizes> sizes = large_sizes(matrix, p.options);
  if (!sizes.ok()) return sizes.status();
  p.answer.n = matrix.rows;
  p.answer.order = matrix.memory_order;
  p.out = {room_of(&p.answer.values, sizes->values_bytes), room_of(&p.answer.vectors, sizes->left_bytes),
           room_of(&p.answer.left_adjoint, sizes->right_bytes)};
  return p;
}

// --- from operands and options to calls ---------------------------------------------------------

// Names an element type to the functions below.
template <class T>
struct Of {};

template <class Options>
CallOptions call_of(const Options& options) {
  return {options.timeout, options.stop};
}

// The functions that a verb's options stand for: each makes a batch, or a large matrix, ready.
inline auto values_by(const ValuesOptions& o) {
  const ComputeOptions compute{
      .method = o.method, .tolerance = o.tolerance, .max_sweeps = o.max_sweeps, .top_k = o.top_k};
  return [compute]<class T>(Of<T>, const Batch& batch) { return prepare_values<T>(batch, compute); };
}

inline auto svd_by(const SvdOptions& o) {
  const ComputeOptions compute{.method = o.method,
                               .tolerance = o.tolerance,
                               .max_sweeps = o.max_sweeps,
                               .vectors = o.vectors,
                               .top_k = o.top_k,
                               .fix_phases = o.fix_phases,
                               .certificate = o.certificate};
  return [compute]<class T>(Of<T>, const Batch& batch) { return prepare_svd<T>(batch, compute); };
}

inline auto eigh_by(const EighOptions& o) {
  const ComputeOptions compute{.triangle = o.triangle,
                               .method = o.method,
                               .tolerance = o.tolerance,
                               .max_sweeps = o.max_sweeps,
                               .vectors = o.vectors,
                               .fix_phases = o.fix_phases,
                               .certificate = o.certificate};
  return [compute]<class T>(Of<T>, const Batch& batch) { return prepare_eigh<T>(batch, compute); };
}

// Whether the starting vectors, if any, are for `elements` elements of T.
template <class T>
Status check_start(const StartingVectors& start, size_t elements, const char* field) {
  if (Status bad = check_starting_size(start.size(), elements, field); !bad.ok() || start.size() == 0) return bad;
  return check_starting_type(start.data_type(), ElementTraits<std::complex<RealOf<T>>>::kDataType, field);
}

inline auto eig_by(const EigOptions& o) {
  const ComputeOptions compute{.method = o.method,
                               .tolerance = o.tolerance,
                               .max_sweeps = o.max_sweeps,
                               .vectors = o.vectors,
                               .certificate = o.certificate,
                               .condition = o.condition};
  return [compute, start = o.start]<class T>(Of<T>, Batch batch) -> Result<Prepared<GeneralEigen<T>>> {
    const auto elements = static_cast<size_t>(batch.rows * batch.cols * batch.count);
    if (Status bad = check_start<T>(start, elements, "matrices.starting_vectors"); !bad.ok()) return bad;
    batch.starting_vectors = start.data();
    batch.starting_owner = start.owner();
    return prepare_eig<T>(batch, compute);
  };
}

inline auto capacity_by(std::vector<double> snr_db, const CapacityOptions& o) {
  return [snr_db = std::move(snr_db), water_filling = o.water_filling, group_size = o.group_size]<class T>(
             Of<T>, const Batch& batch) { return prepare_capacity<T>(batch, snr_db, water_filling, group_size); };
}

inline auto precoders_by(int64_t columns) {
  return [columns]<class T>(Of<T>, const Batch& batch) { return prepare_precoders<T>(batch, columns); };
}

inline auto mimo_by(const MimoOptions& wanted) {
  return [wanted]<class T>(Of<T>, const Batch& batch) { return prepare_mimo<T>(batch, wanted); };
}

inline auto large_svd_by(const LargeSvdOptions& o) {
  const LargeOptions options{.method = o.method,
                             .vectors = o.vectors,
                             .tolerance = o.tolerance,
                             .max_sweeps = o.max_sweeps,
                             .pivot_strategy = o.pivot_strategy,
                             .block_variant = o.block_variant,
                             .certificate = o.certificate,
                             .top_k = o.top_k,
                             .progress = o.progress};
  return [options]<class T>(Of<T>, const LargeMatrix& matrix) { return prepare_large_svd<T>(matrix, options); };
}

inline auto large_eigh_by(const LargeEighOptions& o, LargeProblem problem) {
  const LargeOptions options{.method = o.method,
                             .vectors = o.vectors,
                             .tolerance = o.tolerance,
                             .max_sweeps = o.max_sweeps,
                             .pivot_strategy = o.pivot_strategy,
                             .block_variant = o.block_variant,
                             .certificate = o.certificate,
                             .triangle = o.triangle,
                             .progress = o.progress};
  return [options, problem]<class T>(Of<T>, const LargeMatrix& matrix) {
    return prepare_large_eigh<T>(matrix, options, problem);
  };
}

inline auto large_eig_by(const LargeEigOptions& o) {
  const LargeOptions options{.method = o.method,
                             .vectors = o.vectors,
                             .max_sweeps = o.max_sweeps,
                             .certificate = o.certificate,
                             .progress = o.progress};
  return [options, start = o.start]<class T>(Of<T>, LargeMatrix matrix) -> Result<PreparedLarge<LargeGeneralEigen<T>>> {
    const auto elements = static_cast<size_t>(matrix.rows * matrix.cols);
    if (Status bad = check_start<T>(start, elements, "open.starting_vectors"); !bad.ok()) return bad;
    matrix.starting_vectors = start.data();
    matrix.starting_owner = start.owner();
    return prepare_large_eig<T>(matrix, options);
  };
}

// The operand, made ready by one of these functions.
template <class O, class Prepare>
auto ready(O&& matrices, const Prepare& prepare) {
  using T = ElementOf<O>;
  using Made = decltype(prepare(Of<T>{}, Batch{}));
  const Result<Stack<T>> stack = OperandTraits<std::remove_cvref_t<O>>::stack(std::forward<O>(matrices));
  if (!stack.ok()) return Made(stack.status());
  const Result<Batch> batch = batch_of(*stack);
  if (!batch.ok()) return Made(batch.status());
  return Made(prepare(Of<T>{}, *batch));
}

// Each of several. Those of a temporary range are moved, as it would be.
template <class G, class Prepare>
auto ready_groups(G&& group, const Prepare& prepare) {
  using Made = decltype(ready(*std::ranges::begin(group), prepare));
  using All = Result<std::vector<std::remove_cvref_t<decltype(*std::declval<Made>())>>>;
  typename std::remove_cvref_t<decltype(*std::declval<All>())> all;
  for (auto&& matrices : group) {
    constexpr bool kKept = std::is_lvalue_reference_v<G> || std::ranges::enable_borrowed_range<std::remove_cvref_t<G>>;
    Made one = [&] {
      if constexpr (kKept)
        return ready(matrices, prepare);
      else
        return ready(std::move(matrices), prepare);
    }();
    if (!one.ok()) return All(std::ranges::size(group) > 1 ? of_group(one.status(), all.size()) : one.status());
    all.push_back(*std::move(one));
  }
  return All(std::move(all));
}

// The function of eig_groups(): starting vectors are for one operand.
inline auto eig_groups_by(const EigOptions& o) {
  return [by = eig_by(o), has_start = o.start.size() != 0]<class T>(Of<T>, const Batch& batch) {
    if (!has_start) return by(Of<T>{}, batch);
    return decltype(by(Of<T>{}, batch))(no_start_of_groups());
  };
}

template <class O, class Prepare>
auto ready_large(O&& operand, std::optional<std::vector<int8_t>> signature, const Prepare& prepare) {
  using T = ElementOf<O>;
  using Made = decltype(prepare(Of<T>{}, LargeMatrix{}));
  const Result<Stack<T>> stack = OperandTraits<std::remove_cvref_t<O>>::stack(std::forward<O>(operand));
  if (!stack.ok()) return Made(stack.status());
  const Result<LargeMatrix> matrix = large_matrix_of(*stack);
  if (!matrix.ok()) return Made(matrix.status());
  if (signature) {
    if (Status bad = check_signature(*signature, matrix->cols); !bad.ok()) return Made(bad);
  }
  Made made = prepare(Of<T>{}, *matrix);
  if (made.ok()) made->signature = std::move(signature);
  return made;
}

// The result with its report, or why there is none.
template <class Answer, class P, class R>
Result<Answer> answer_of(P prepared, Result<R> report) {
  if (!report.ok()) return explained(report.status());
  prepared.answer.report = *std::move(report);
  return Answer(std::move(prepared.answer));
}
template <class Answers, class A>
Result<Answers> answer_of(std::vector<Prepared<A>> prepared, Result<std::vector<Report>> reports) {
  if (!reports.ok()) return explained(reports.status());
  Answers answers;
  for (size_t i = 0; i < prepared.size(); ++i) {
    prepared[i].answer.report = std::move((*reports)[i]);
    answers.emplace_back(std::move(prepared[i].answer));
  }
  return answers;
}

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_PREPARED_H_
