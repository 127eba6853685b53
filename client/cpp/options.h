// Arguments of the verbs of a Client: matrices from any contiguous range, their shape, and options by name.
//
//   client.svd(vec, {4, 4}, {.vectors = Vectors::kFull, .timeout = 1s})
//
// Each verb has its own options: one that does not apply to it does not compile. `timeout` and `stop` are those of
// CallOptions.
#ifndef SVDSERVE_CLIENT_CPP_OPTIONS_H_
#define SVDSERVE_CLIENT_CPP_OPTIONS_H_

#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <stop_token>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cpp/large.h"
#include "client/cpp/types.h"

namespace svdserve::client {

// --- matrices -----------------------------------------------------------------------------------

// The shape of every matrix of a range: {4, 4}, or {4, 4, MemoryOrder::kColumnMajor}. The results have the same order.
struct Shape {
  int64_t rows = 0;  // m >= 1
  int64_t cols = 0;  // n >= 1
  MemoryOrder order = MemoryOrder::kRowMajor;
};

// A contiguous range of elements: std::vector, std::span, std::array, an array. The type of the elements is deduced.
template <class D>
concept Elements = std::ranges::contiguous_range<D> && std::ranges::sized_range<D> && requires {
  ElementTraits<std::remove_cv_t<std::ranges::range_value_t<D>>>::kDataType;
};

// Matrices of one shape, one after the other; the size of `data` says how many. A view, which must live until the call
// has ended, unless `owner` keeps its elements alive.
template <class T>
struct Stack {
  std::span<const T> data = {};
  Shape shape = {};
  std::shared_ptr<const void> owner = {};
};
template <Elements D>
Stack(const D&, Shape) -> Stack<std::remove_cv_t<std::ranges::range_value_t<D>>>;

// A view of a range that somebody keeps; a temporary range is moved into the stack.
template <Elements D>
auto stack_of(D&& data, const Shape& shape) {
  using T = std::remove_cv_t<std::ranges::range_value_t<D>>;
  if constexpr (std::is_lvalue_reference_v<D> || std::ranges::enable_borrowed_range<std::remove_cvref_t<D>>) {
    return Stack<T>{{std::ranges::data(data), std::ranges::size(data)}, shape};
  } else {
    const auto kept = std::make_shared<const std::remove_cvref_t<D>>(std::forward<D>(data));
    return Stack<T>{{std::ranges::data(*kept), std::ranges::size(*kept)}, shape, kept};
  }
}

// How operands of a type go in, and what their results are. Specialized for Stack here, and by <svdserve/eigen.h> for
// Eigen's matrices and ranges of them. A specialization has
//   using Element = ...;                               // a type of ElementTraits
//   template <class R> using Kind = ...;               // made of an R&&, such as a Decomposition<Element>
//   static Result<Stack<Element>> stack(Operand&&);    // or const Operand&; a temporary operand is kept by the stack
template <class Operand>
struct OperandTraits {};
template <class T>
struct OperandTraits<Stack<T>> {
  using Element = T;
  template <class R>
  using Kind = R;
  static Result<Stack<T>> stack(const Stack<T>& matrices) { return matrices; }
};

namespace internal {
template <class O>
struct ElementOfOperand {};
template <Elements D>
struct ElementOfOperand<D> {
  using Type = std::remove_cv_t<std::ranges::range_value_t<D>>;
};
template <class O>
requires requires { typename OperandTraits<O>::Element; }
struct ElementOfOperand<O> {
  using Type = typename OperandTraits<O>::Element;
};
}  // namespace internal

// The element type of a range or an operand, and the type of an operand's results.
template <class O>
using ElementOf = typename internal::ElementOfOperand<std::remove_cvref_t<O>>::Type;
template <class O, class R>
using InKindOf = typename OperandTraits<std::remove_cvref_t<O>>::template Kind<R>;

// Matrices that know their shape.
template <class O>
concept Operand = requires(O&& matrices) {
  OperandTraits<std::remove_cvref_t<O>>::stack(std::forward<O>(matrices));
};
// Several of them, whose shapes may differ.
template <class G>
concept Operands = std::ranges::sized_range<G> && Operand<std::ranges::range_reference_t<G>>;
template <class G>
using MemberOf = std::remove_cvref_t<std::ranges::range_reference_t<G>>;

// Eigenvectors of general matrices from which Method::kJacobi starts; Batch::starting_vectors says more. They come from a
// contiguous range of complex numbers in the precision of the matrices, one for each of their elements. As the matrices,
// a range that somebody keeps must live until the call has ended.
class StartingVectors {
 public:
  StartingVectors() = default;
  template <Elements D>
  StartingVectors(D&& vectors) {  // NOLINT: converts on purpose
    using T = std::remove_cv_t<std::ranges::range_value_t<D>>;
    static_assert(std::is_same_v<T, std::complex<RealOf<T>>>, "starting vectors are complex");
    const Stack<T> all = stack_of(std::forward<D>(vectors), {});
    data_ = all.data.data();
    size_ = all.data.size();
    data_type_ = ElementTraits<T>::kDataType;
    owner_ = all.owner;
  }

  const void* data() const { return data_; }
  size_t size() const { return size_; }
  DataType data_type() const { return data_type_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  const void* data_ = nullptr;
  size_t size_ = 0;
  DataType data_type_ = DataType::kC128;
  std::shared_ptr<const void> owner_ = {};
};

// --- options of batches -------------------------------------------------------------------------
// Fields are those of ComputeOptions, which says more of each.

// Options of singular_values().
struct ValuesOptions {
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  int64_t top_k = 0;
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of svd().
struct SvdOptions {
  Vectors vectors = Vectors::kThin;  // kNone is kThin: singular_values() is for values alone
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  int64_t top_k = 0;
  bool fix_phases = false;
  CertificateScope certificate = CertificateScope::kNone;
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of eigh().
struct EighOptions {
  Vectors vectors = Vectors::kThin;  // kNone: eigenvalues alone
  Triangle triangle = Triangle::kLower;
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  bool fix_phases = false;
  CertificateScope certificate = CertificateScope::kNone;
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of eig().
struct EigOptions {
  Vectors vectors = Vectors::kThin;  // kNone: eigenvalues alone; kFull: also W^H
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  CertificateScope certificate = CertificateScope::kNone;
  bool condition = false;
  StartingVectors start = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of capacity().
struct CapacityOptions {
  bool water_filling = false;
  int64_t group_size = 1;
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// --- options of one large matrix ----------------------------------------------------------------
// Fields are those of LargeOptions, which says more of each. `progress` is called on the thread of the call.

// Options of svd_large() and hsvd().
struct LargeSvdOptions {
  Vectors vectors = Vectors::kThin;
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  int64_t top_k = 0;
  PivotStrategy pivot_strategy = PivotStrategy::kAuto;
  BlockVariant block_variant = BlockVariant::kAuto;
  bool certificate = false;
  std::function<void(const LargeProgress&)> progress = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of eigh_large() and eigh_factored().
struct LargeEighOptions {
  Vectors vectors = Vectors::kThin;  // kNone: eigenvalues alone
  Triangle triangle = Triangle::kLower;
  Method method = Method::kAuto;
  double tolerance = 0;
  int32_t max_sweeps = 0;
  PivotStrategy pivot_strategy = PivotStrategy::kAuto;
  BlockVariant block_variant = BlockVariant::kAuto;
  bool certificate = false;
  std::function<void(const LargeProgress&)> progress = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

// Options of eig_large().
struct LargeEigOptions {
  Vectors vectors = Vectors::kThin;  // kNone: eigenvalues alone; kFull: also W^H
  Method method = Method::kAuto;
  int32_t max_sweeps = 0;
  bool certificate = false;
  StartingVectors start = {};
  std::function<void(const LargeProgress&)> progress = {};
  std::optional<std::chrono::nanoseconds> timeout = {};
  std::stop_token stop = {};
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_OPTIONS_H_
