#include "engine/backends/host/merges/tridiagonal_eigen.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "engine/algorithms/large/tridiagonal_merge.h"
#include "engine/backends/host/merges/tridiagonal_merger.h"
#include "engine/backends/host/merges/tridiagonal_vectors.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using large::TridiagonalHalf;

constexpr int32_t kLeaf = 64;
constexpr int64_t kClearedColumns = 128;

// T torn and scaled, and its parts: first leaves, at last one. Values are in the order of their columns.
template <class T>
class TornMatrix {
 public:
  TornMatrix(const LargeThreads& threads, const std::vector<T>& d, const std::vector<T>& e, LargeView<T> q)
      : threads_(threads),
        q_(q),
        values_(d.begin(), d.end()),
        e_(e.begin(), e.end()),
        starts_(large::tridiagonal_leaves(static_cast<int32_t>(q.rows), kLeaf)),
        parts_(starts_.size() - 1) {
    e_.resize(values_.size());  // a leaf reads one behind its last
  }

  // False: T is not finite.
  bool solve() {
    if (!large::tear_tridiagonal(starts_, values_.data(), e_.data()).finite) return false;
    threads_.for_ranges(q_.cols, kClearedColumns, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) std::fill_n(q_.data + j * q_.ld, q_.rows, T(0));
    });
    threads_.for_each(static_cast<int64_t>(parts_.size()), [&](int64_t leaf) { solve_leaf(at(leaf)); });
    while (parts_.size() > 1) merge_pairs();
    return true;
  }

  std::vector<int64_t> order() const {
    std::vector<int64_t> order(values_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values_[at(a)] < values_[at(b)]; });
    return order;
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  // Rows and columns first .. first + n - 1.
  LargeView<T> block(int32_t first, int32_t n) const { return q_.block(first, first, n, n); }

  // Values and vectors of a leaf in ascending order.
  void solve_leaf(size_t leaf) {
    const int32_t first = starts_[leaf], n = starts_[leaf + 1] - first;
    const std::vector<T> d(values_.begin() + first, values_.begin() + first + n);
    const std::vector<T> e(e_.begin() + first, e_.begin() + first + n);
    TridiagonalVectors<T> vectors;
    vectors.decompose(n, d.data(), e.data());
    const LargeView<T> to = block(first, n);
    for (int32_t i = 0; i < n; ++i) {
      values_[at(first + i)] = vectors.value(i);
      std::copy_n(vectors.v() + static_cast<ptrdiff_t>(vectors.column(i)) * n, n, to.data + i * to.ld);
    }
    parts_[leaf] = {n, n};
  }

  // Parts 2 i and 2 i + 1 of each i become part i.
  void merge_pairs() {
    const size_t merges = parts_.size() / 2;
    if (merges >= at(2 * threads_.threads())) {
      threads_.for_each(static_cast<int64_t>(merges), [&](int64_t i) {
        TridiagonalMerger<T> merger(nullptr);
        merge(at(i), merger);
      });
    } else {
      TridiagonalMerger<T> merger(&threads_);
      for (size_t i = 0; i < merges; ++i) merge(i, merger);
    }
    for (size_t i = 0; i < merges; ++i) {
      parts_[i] = parts_[2 * i];
      starts_[i] = starts_[2 * i];
    }
    parts_.resize(merges);
    starts_[merges] = starts_.back();
    starts_.resize(merges + 1);
  }
  // The result is in place of the upper half.
  void merge(size_t i, TridiagonalMerger<T>& merger) {
    TridiagonalHalf& upper = parts_[2 * i];
    const TridiagonalHalf& lower = parts_[2 * i + 1];
    const int32_t first = starts_[2 * i], n = upper.size + lower.size;
    upper = merger.run(e_[at(first + upper.size - 1)], upper, lower, block(first, n), values_.data() + first);
  }

  const LargeThreads& threads_;
  const LargeView<T> q_;
  std::vector<double> values_, e_;  // values_: at first the diagonal
  std::vector<int32_t> starts_;     // first rows of parts, and n
  std::vector<TridiagonalHalf> parts_;
};

}  // namespace

template <class T>
bool tridiagonal_eigen(const LargeThreads& threads, const std::vector<T>& d, const std::vector<T>& e, LargeView<T> q,
                       std::vector<int64_t>& order) {
  TornMatrix<T> torn(threads, d, e, q);
  if (!torn.solve()) return false;
  order = torn.order();
  return true;
}

template bool tridiagonal_eigen(const LargeThreads&, const std::vector<float>&, const std::vector<float>&,
                                LargeView<float>, std::vector<int64_t>&);
template bool tridiagonal_eigen(const LargeThreads&, const std::vector<double>&, const std::vector<double>&,
                                LargeView<double>, std::vector<int64_t>&);

}  // namespace svdserve::host
