#include "client/cli/formats/starting_vectors.h"

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/formats/input.h"

namespace svdserve::cli {
namespace {

using client::Batch;
using client::DataType;
using client::MemoryOrder;

std::string shape_of(const MatrixStack& stack) {
  std::vector<int64_t> shape = stack.batch_shape;
  shape.insert(shape.end(), {stack.batch.rows, stack.batch.cols});
  return absl::StrCat("(", absl::StrJoin(shape, ", "), ")");
}

// Element i of the batch, in the order of its memory.
template <class Real>
std::complex<double> element(const Batch& batch, int64_t i) {
  const bool is_complex = batch.data_type == DataType::kC64 || batch.data_type == DataType::kC128;
  Real parts[2] = {};
  const size_t size = (is_complex ? 2 : 1) * sizeof(Real);
  std::memcpy(parts, static_cast<const std::byte*>(batch.data) + static_cast<size_t>(i) * size, size);
  return {static_cast<double>(parts[0]), static_cast<double>(parts[1])};
}

// The vectors `from`, once or for each matrix, as complex numbers of Real in the order of the matrices.
template <class Real>
std::shared_ptr<const void> converted(const Batch& from, const Batch& matrices) {
  const bool is_single = client::value_bytes(from.data_type) == sizeof(float);
  const int64_t n = matrices.rows, size = n * n;
  const bool transposed = from.memory_order != matrices.memory_order;
  auto to = std::make_shared<std::vector<std::complex<Real>>>(static_cast<size_t>(size * matrices.count));
  for (int64_t i = 0; i < size * matrices.count; ++i) {
    const int64_t within = i % size, matrix = from.count == 1 ? 0 : i / size;
    const int64_t at = matrix * size + (transposed ? within % n * n + within / n : within);
    const std::complex<double> x = is_single ? element<float>(from, at) : element<double>(from, at);
    (*to)[static_cast<size_t>(i)] = std::complex<Real>(x);
  }
  return {to, to->data()};
}

}  // namespace

client::Status load_starting_vectors(const std::string& path, MatrixStack* stack) {
  const auto loaded = load_matrices(path);
  if (!loaded.ok()) return loaded.status();
  const MatrixStack vectors = widened(*loaded);
  const Batch& from = vectors.batch;
  Batch& batch = stack->batch;
  const bool is_for_all = vectors.batch_shape.empty() && from.rows == batch.rows && from.cols == batch.cols;
  if (!is_for_all && shape_of(vectors) != shape_of(*stack)) {
    return {.code = client::Code::kInvalidArgument,
            .message = absl::StrCat(path, ": has the shape ", shape_of(vectors), ", but must have ", shape_of(*stack),
                                    " as ", stack->path, ", or that of one matrix")};
  }
  const bool is_single = client::value_bytes(batch.data_type) == sizeof(float);
  const bool as_it_is = from.data_type == (is_single ? DataType::kC64 : DataType::kC128) && from.count == batch.count &&
                        from.memory_order == batch.memory_order;
  batch.starting_owner = as_it_is    ? std::shared_ptr<const void>(from.owner, from.data)
                         : is_single ? converted<float>(from, batch)
                                     : converted<double>(from, batch);
  batch.starting_vectors = batch.starting_owner.get();
  return {};
}

}  // namespace svdserve::cli
