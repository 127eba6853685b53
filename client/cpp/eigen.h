// Matrices of Eigen (3.4 or newer) as operands and results of svdserve's client. Optional: the client needs no Eigen.
//
//   #include <svdserve/client.h>
//   #include <svdserve/eigen.h>
//
//   auto d = client.svd(a).value();                            // a: a Matrix, Array, Map, Block or an expression
//   double error = (a - d.u() * d.s().asDiagonal() * d.vh()).norm();
//   auto e = client.eigh(many).value();                        // std::vector<Eigen::Matrix4cd>: one batch; e.w(i), e.u(i)
//   auto g = client.svd_groups(several).value();               // std::vector<Eigen::MatrixXd> of any shapes; g[i].u()
//
// An operand that is named and has its elements without gaps is read where it is, and must live until the call has ended.
// A temporary one is kept by the call, and one with gaps is copied. Results are in the operand's storage order.
#ifndef SVDSERVE_CLIENT_CPP_EIGEN_H_
#define SVDSERVE_CLIENT_CPP_EIGEN_H_

#include <Eigen/Core>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "client/cpp/options.h"
#include "client/cpp/prepared.h"
#include "client/cpp/types.h"

namespace svdserve::client {

namespace internal {

template <class D>
void take_dense(const ::Eigen::DenseBase<D>&);  // not defined
// A matrix or an expression of Eigen, with elements of a type that the server takes.
template <class M>
concept OfEigen = requires(const M& m) {
  take_dense(m);
  ElementTraits<typename M::Scalar>::kDataType;
};
// A range of them.
template <class G>
concept RangeOfEigen =
    std::ranges::forward_range<G> && std::ranges::sized_range<G> && OfEigen<std::ranges::range_value_t<G>>;

template <class M>
inline constexpr int kStorage = M::PlainObject::IsRowMajor ? ::Eigen::RowMajor : ::Eigen::ColMajor;
template <class M>
inline constexpr MemoryOrder kOrderOf = M::PlainObject::IsRowMajor ? MemoryOrder::kRowMajor : MemoryOrder::kColumnMajor;

}  // namespace internal

// The matrices and vectors of results.
template <class T, int kStorage = ::Eigen::ColMajor>
using EigenMatrix = ::Eigen::Matrix<T, ::Eigen::Dynamic, ::Eigen::Dynamic, kStorage>;
template <class T>
using EigenVector = ::Eigen::Matrix<T, ::Eigen::Dynamic, 1>;
// The matrix of a view of any order, where it lies: for results of ranges that are not Eigen's.
template <class T>
auto to_eigen(const MatrixView<T>& view) {
  using Strides = ::Eigen::Stride<::Eigen::Dynamic, ::Eigen::Dynamic>;
  const bool by_rows = view.order == MemoryOrder::kRowMajor;
  return ::Eigen::Map<const EigenMatrix<T>, ::Eigen::Unaligned, Strides>(
      view.data, view.rows, view.cols, by_rows ? Strides(1, view.cols) : Strides(view.rows, 1));
}
template <class T>
auto to_eigen(std::span<const T> numbers) {
  return ::Eigen::Map<const EigenVector<T>>(numbers.data(), static_cast<::Eigen::Index>(numbers.size()));
}

// A result R, such as Decomposition<double>, whose s(i), u(i), vh(i), w(i), v(i), wh(i) and [i] are Eigen's, as far as R
// has them. They are views of a result that is kept, and copies of a temporary one.
template <class R, int kStorage>
struct InEigen : R {
  explicit InEigen(R&& result) : R(std::move(result)) {}

#define SVDSERVE_IN_EIGEN(member)                                                            \
  template <class... Index>                                                                  \
  requires requires(const R& r, Index... i) { r.member(i...); }                              \
  auto member(Index... i) const& { return view(static_cast<const R&>(*this).member(i...)); } \
  template <class... Index>                                                                  \
  requires requires(const R& r, Index... i) { r.member(i...); }                              \
  auto member(Index... i) const&& { return copy(static_cast<const R&>(*this).member(i...)); }
  SVDSERVE_IN_EIGEN(s)
  SVDSERVE_IN_EIGEN(u)
  SVDSERVE_IN_EIGEN(vh)
  SVDSERVE_IN_EIGEN(w)
  SVDSERVE_IN_EIGEN(v)
  SVDSERVE_IN_EIGEN(wh)
#undef SVDSERVE_IN_EIGEN

  template <class Index>
  requires requires(const R& r, Index i) { r[i]; }
  auto operator[](Index i) const& { return view(static_cast<const R&>(*this)[i]); }
  template <class Index>
  requires requires(const R& r, Index i) { r[i]; }
  auto operator[](Index i) const&& { return copy(static_cast<const R&>(*this)[i]); }

 private:
  template <class T>
  static auto view(const MatrixView<T>& m) {
    return ::Eigen::Map<const EigenMatrix<T, kStorage>>(m.data, m.rows, m.cols);
  }
  template <class T>
  static auto view(std::span<const T> numbers) {
    return to_eigen(numbers);
  }
  template <class View>
  static auto copy(const View& part) {
    return typename decltype(view(part))::PlainObject(view(part));
  }
};

template <internal::OfEigen M>
struct OperandTraits<M> {
  using Element = typename M::Scalar;
  template <class R>
  using Kind = InEigen<R, internal::kStorage<M>>;

  static Result<Stack<Element>> stack(const M& matrix) {
    if constexpr ((M::Flags & ::Eigen::DirectAccessBit) != 0) {
      const bool has_gaps =
          matrix.innerStride() != 1 || (matrix.outerSize() > 1 && matrix.outerStride() != matrix.innerSize());
      if (!has_gaps && bool(M::IsRowMajor) == bool(M::PlainObject::IsRowMajor)) return view(matrix, {});
    }
    return kept(matrix);
  }
  static Result<Stack<Element>> stack(M&& matrix) { return kept(std::move(matrix)); }

 private:
  template <class From>
  static Stack<Element> kept(From&& matrix) {
    const auto copy = std::make_shared<const typename M::PlainObject>(std::forward<From>(matrix));
    return view(*copy, copy);
  }
  template <class Dense>
  static Stack<Element> view(const Dense& m, std::shared_ptr<const void> owner) {
    return {{m.data(), static_cast<size_t>(m.size())}, {m.rows(), m.cols(), internal::kOrderOf<M>}, std::move(owner)};
  }
};

// A range of matrices of one shape is one batch.
template <internal::RangeOfEigen G>
struct OperandTraits<G> {
  using Matrix = std::ranges::range_value_t<G>;
  using Element = typename Matrix::Scalar;
  template <class R>
  using Kind = InEigen<R, internal::kStorage<Matrix>>;

  static Result<Stack<Element>> stack(const G& matrices) {
    if constexpr (kTogether) {
      return view(matrices, {});
    } else {
      return joined(matrices);
    }
  }
  static Result<Stack<Element>> stack(G&& matrices) {
    if constexpr (kTogether && !std::ranges::enable_borrowed_range<G>) {
      const auto kept = std::make_shared<const G>(std::move(matrices));
      return view(*kept, kept);
    } else {
      return stack(std::as_const(matrices));
    }
  }

 private:
  static constexpr int kSize = Matrix::SizeAtCompileTime;
  // Whether the elements of all matrices lie one after the other.
  static constexpr bool kTogether =
      std::ranges::contiguous_range<G> && kSize != ::Eigen::Dynamic &&
      std::is_same_v<Matrix, typename Matrix::PlainObject> &&
      sizeof(Matrix) == (kSize == ::Eigen::Dynamic ? 0 : static_cast<size_t>(kSize)) * sizeof(Element);

  static Stack<Element> view(const G& matrices, std::shared_ptr<const void> owner) {
    const auto* const first = reinterpret_cast<const Element*>(std::ranges::data(matrices));
    return {{first, std::ranges::size(matrices) * static_cast<size_t>(kSize)},
            {Matrix::RowsAtCompileTime, Matrix::ColsAtCompileTime, internal::kOrderOf<Matrix>},
            std::move(owner)};
  }
  static Result<Stack<Element>> joined(const G& matrices) {
    if (std::ranges::empty(matrices)) return internal::no_matrices();
    const auto& first = *std::ranges::begin(matrices);
    const auto size = static_cast<size_t>(first.size());
    const auto all = std::make_shared<std::vector<Element>>(size * std::ranges::size(matrices));
    size_t i = 0;
    for (const Matrix& m : matrices) {
      if (m.rows() != first.rows() || m.cols() != first.cols())
        return internal::other_shape(i, {m.rows(), m.cols()}, {first.rows(), first.cols()});
      EigenMatrix<Element, internal::kStorage<Matrix>>::Map(all->data() + i * size, m.rows(), m.cols()) = m;
      ++i;
    }
    return Stack<Element>{*all, {first.rows(), first.cols(), internal::kOrderOf<Matrix>}, all};
  }
};

}  // namespace svdserve::client
#endif  // SVDSERVE_CLIENT_CPP_EIGEN_H_
