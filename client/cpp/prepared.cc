#include "client/cpp/prepared.h"

#include <string>

#include "client/cpp/client.h"
#include "client/cpp/wire/split.h"
#include "client/cpp/wire/status.h"

namespace svdserve::client::internal {

Status check_sizes(size_t data_size, int64_t rows, int64_t cols, int64_t count) {
  Batch sizes;
  sizes.rows = rows;
  sizes.cols = cols;
  sizes.count = count;
  if (const auto checked = matrix_sizes(sizes); !checked.ok()) return checked.status();
  const auto needed = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * static_cast<uint64_t>(count);
  if (data_size == needed) return {};
  return invalid("matrices.data", "holds " + std::to_string(data_size) + " elements, but rows * cols * count is " +
                                      std::to_string(needed));
}

Status check_starting_size(size_t starting_size, size_t data_size, const char* field) {
  if (starting_size == 0 || starting_size == data_size) return {};
  return invalid(field, "holds " + std::to_string(starting_size) + " elements, but must hold " +
                            std::to_string(data_size) + ", as the matrices, or none");
}

Status check_signature(std::span<const int8_t> signature, int64_t cols) {
  if (static_cast<int64_t>(signature.size()) != cols) {
    return invalid("open.signature", "must have one entry for each of " + std::to_string(cols) + " columns, but has " +
                                         std::to_string(signature.size()));
  }
  for (size_t i = 0; i < signature.size(); ++i) {
    if (signature[i] == 1 || signature[i] == -1) continue;
    return invalid("open.signature",
                   "entry " + std::to_string(i) + " is " + std::to_string(signature[i]) + ", but must be 1 or -1");
  }
  return {};
}

Status check_problem(const ComputeOptions& compute) {
  if (compute.problem == Problem::kSvd) return {};
  return invalid("options.problem",
                 "must be kSvd for singular values; eigenproblems are for eigh(), eig() and decompose()");
}

Status check_problem(const LargeOptions& options) {
  if (options.problem == LargeProblem::kSvd) return {};
  return invalid("open.problem",
                 "must be kSvd for singular values; eigenproblems are for eigh(), eigh_factored() and eig()");
}

Status check_for_svd(const ComputeOptions& compute) {
  if (Status bad = check_problem(compute); !bad.ok()) return bad;
  if (compute.mimo) return invalid("options.mimo", "must be absent for svd(); decompose() takes it");
  return {};
}

Status check_results(const Batch& batch, const ComputeOptions& compute) {
  return matrix_sizes(batch, compute).status();
}

Result<int64_t> count_of(size_t data_size, const Shape& shape) {
  if (Status bad = check_sizes(0, shape.rows, shape.cols, 0); !bad.ok()) return bad;
  const auto elements = static_cast<uint64_t>(shape.rows) * static_cast<uint64_t>(shape.cols);
  if (data_size % elements == 0) return static_cast<int64_t>(data_size / elements);
  return invalid("matrices.data", "holds " + std::to_string(data_size) + " elements, but matrices of " +
                                      std::to_string(shape.rows) + " x " + std::to_string(shape.cols) +
                                      " need a multiple of " + std::to_string(elements));
}

Status check_starting_type(DataType given, DataType needed, const char* field) {
  if (given == needed) return {};
  const auto spelled = [](DataType t) { return t == DataType::kC64 ? "std::complex<float>" : "std::complex<double>"; };
  return invalid(field, std::string("must be ") + spelled(needed) +
                            ", which has the precision of the matrices, but is " + spelled(given));
}

Status check_columns(int64_t columns) {
  if (columns >= 1) return {};
  return invalid("options.mimo.precoder_columns", "must be at least 1, but is " + std::to_string(columns));
}

Status no_matrices() { return invalid("matrices.count", "must be at least 1 for matrices of dynamic size"); }

Status other_shape(size_t i, const Shape& shape, const Shape& first) {
  const auto spelled = [](const Shape& s) { return std::to_string(s.rows) + " x " + std::to_string(s.cols); };
  return invalid("matrices.rows", "must be the same of all matrices, but matrix " + std::to_string(i) + " is " +
                                      spelled(shape) + " and the first one " + spelled(first) +
                                      "; the verbs of groups, such as svd_groups(), take different shapes");
}

Status no_start_of_groups() {
  return invalid("matrices.starting_vectors",
                 "must be absent for eig_groups(); eig() and decompose_groups() take them");
}

namespace {

std::string parameter_of(const std::string& field) {
  if (field.starts_with("groups")) return field;
  const std::string name = field.substr(field.rfind('.') + 1);
  return name == "starting_vectors" ? "start" : name;
}

void replace(std::string* text, const std::string& from, const std::string& to) {
  if (const size_t at = text->find(from); at != std::string::npos) text->replace(at, from.size(), to);
}

}  // namespace

Status explained(Status status) {
  if (!status.field.empty()) {
    status.parameter = parameter_of(status.field);
    replace(&status.message, "DecomposeLarge takes one such matrix at a time",
            "svd_large(), eigh_large() and eig_large() take one such matrix");
    replace(&status.message, "options.mimo.group_size", "group_size");
  }
  return status;
}

}  // namespace svdserve::client::internal
