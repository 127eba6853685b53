// A merge of divide and conquer for a real symmetric tridiagonal matrix. Here is what the host does of it. Roots and
// vectors come behind that (algorithms/lanes/secular_equation.h), and then the matrix products.
//
//   T = [T_1 0; 0 T_2] + |e| u u^T, n x n:  u = (0 .. 0 1 +-1 0 .. 0)^T, e what connects the halves, +-1 its sign. T_1 and
//   T_2 are the halves of T less |e| at the two places of the diagonal where they meet.
//   T_1 = Q_1 D_1 Q_1^T, T_2 = Q_2 D_2 Q_2^T, Q = diag(Q_1, Q_2), D = diag(D_1, D_2), given
//   T = Q (D + rho z z^T) Q^T:  z = Q^T u / sqrt(2) of norm one, rho = 2 |e|
//   T = (Q S) Lambda (Q S)^T, asked for
// Method:
//   1. Deflation (Deflation). Where rho |z_i| <= tol, column i of Q is a vector. Where two of D are so close that a
//      rotation in their plane moves D by no more than tol, it makes one of their z zero. k columns are left.
//   2. D + (sqrt(rho) z) (sqrt(rho) z)^T = S Lambda S^T of the k that are left, by its secular equation.
// The caller multiplies. Columns of Q are packed by their rows: of the upper half only, of both (two deflated into one),
// of the lower half only. So two products of half the rows each suffice.
// Accuracy: |T - V Lambda V^T| and |I - V^T V| are a few n u |T| for |T| about 1. tol = 8 u max(|d|, |z|) is absolute, so
// scale T first.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195 (the tear, deflation).
// Rutter, LAPACK Working Note 69 (1994) (the order of a merge, packing).
// Cost: O(n) for deflation.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_TRIDIAGONAL_MERGE_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_TRIDIAGONAL_MERGE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/core/kernel_namespace.h"

namespace svdserve::large {

// --- deflation: the host ------------------------------------------------------------------------------------------

// A half's eigenvalues: two ascending runs, its roots and those that were deflated.
struct TridiagonalHalf {
  int32_t size = 0;
  int32_t roots = 0;  // in the first run
};

// Columns a and b of Q times [c -s; s c]: a is a vector then, b goes on.
struct PairRotation {
  int32_t a, b;
  double c, s;
};

// A merge after deflation. Its halves' columns are first .. first + size - 1 of V, and so are its own.
struct TridiagonalMerge {
  int32_t first, upper, size;             // `upper` rows and columns are the upper half's
  int32_t roots;                          // k
  int32_t upper_only, dense, lower_only;  // packed columns by their rows, in this order; upper_only is even
  int32_t rotations, chains;

  // Packed columns with rows in the upper half, and with rows in the lower half: from upper_only on.
  SVD_HD int32_t upper_columns() const { return upper_only + dense; }
  SVD_HD int32_t lower_columns() const { return dense + lower_only; }
};

// Where a deflation puts its results; `size` elements each. Columns are numbered as V's.
struct DeflationArrays {
  double* poles;            // k, ascending; then the deflated eigenvalues, ascending
  double* z;                // k, times sqrt(rho)
  int32_t* column;          // of packed columns; then of deflated ones
  int32_t* pole;            // k: of packed columns
  PairRotation* rotations;  // in their order
  int32_t* chain;           // first rotation of each chain, and the end. A column is of one chain only.
};

// Step 1. Keeps memory between calls. unit: the roundoff of V.
class Deflation {
 public:
  explicit Deflation(double unit = 0x1p-53) : unit_(unit) {}

  // `values` of both halves and `z`, Q^T u for e > 0, in the order of columns. Sets all of `merge` but first.
  void run(double e, TridiagonalHalf upper, TridiagonalHalf lower, const double* values, const double* z,
           const DeflationArrays& out, TridiagonalMerge& merge) {
    begin(e, upper, lower, values, z);
    out_ = out;
    merge_ = &merge;
    merge = {merge.first, upper.size, size_, 0, 0, 0, 0, 0, 0};
    int32_t pending = -1;  // has a weight, and may yet be rotated into its neighbour
    for (const int32_t c : order_) {
      if (!(rho_ * std::fabs(z_[at(c)]) > tolerance_)) {
        deflate(c);
        continue;
      }
      if (pending >= 0) {
        if (rotate(pending, c)) {
          deflate(pending);
        } else {
          keep(pending);
        }
      }
      pending = c;
    }
    if (pending >= 0) keep(pending);
    pack();
  }

 private:
  enum Kind : uint8_t { kUpper, kDense, kLower };

  static size_t at(int32_t i) { return static_cast<size_t>(i); }

  void begin(double e, TridiagonalHalf upper, TridiagonalHalf lower, const double* values, const double* z) {
    size_ = upper.size + lower.size;
    rho_ = 2 * std::fabs(e);
    root_of_rho_ = std::sqrt(rho_);
    d_.assign(values, values + size_);
    z_.resize(at(size_));
    kind_.resize(at(size_));
    double most = 0;
    for (int32_t i = 0; i < size_; ++i) {
      const bool is_lower = i >= upper.size;
      z_[at(i)] = z[i] * (is_lower && std::signbit(e) ? -std::sqrt(0.5) : std::sqrt(0.5));
      kind_[at(i)] = is_lower ? kLower : kUpper;
      most = std::max(most, std::max(std::fabs(d_[at(i)]), std::fabs(z_[at(i)])));
    }
    tolerance_ = 8 * unit_ * most;
    kept_.clear();
    deflated_.clear();
    sort(upper, lower);
  }

  // order_: the columns by ascending values, from four runs of them.
  void sort(TridiagonalHalf upper, TridiagonalHalf lower) {
    order_.resize(at(size_));
    runs_.resize(at(size_));
    std::iota(order_.begin(), order_.end(), 0);
    const auto less = [this](int32_t a, int32_t b) { return d_[at(a)] < d_[at(b)]; };
    const auto from = order_.begin(), middle = from + upper.size;
    const auto end = std::merge(from, from + upper.roots, from + upper.roots, middle, runs_.begin(), less);
    std::merge(middle, middle + lower.roots, middle + lower.roots, order_.end(), end, less);
    std::merge(runs_.begin(), end, end, runs_.end(), from, less);
  }

  // Insertion: between a and its neighbour b only columns without weights were deflated, and no later one passes them.
  void deflate(int32_t c) {
    deflated_.push_back(c);
    for (size_t i = deflated_.size() - 1; i > 0 && d_[at(c)] < d_[at(deflated_[i - 1])]; --i) {
      std::swap(deflated_[i - 1], deflated_[i]);
    }
  }

  void keep(int32_t c) {
    const auto k = static_cast<ptrdiff_t>(kept_.size());
    out_.poles[k] = d_[at(c)];
    out_.z[k] = z_[at(c)] * root_of_rho_;
    kept_.push_back(c);
  }

  // With r = |(z_a, z_b)|, c = z_b / r, s = -z_a / r, the rotation takes (z_a, z_b) to (0, r) and leaves (d_b - d_a) c s
  // beside the diagonal. False: that is too much.
  bool rotate(int32_t a, int32_t b) {
    const double r = std::hypot(z_[at(a)], z_[at(b)]);
    const double c = z_[at(b)] / r, s = -z_[at(a)] / r;
    const double low = d_[at(a)], high = d_[at(b)];
    if (!(std::fabs((high - low) * c * s) <= tolerance_)) return false;
    z_[at(a)] = 0;
    z_[at(b)] = r;
    d_[at(a)] = low * (c * c) + high * (s * s);
    d_[at(b)] = std::min(std::max(low * (s * s) + high * (c * c), low), high);
    if (kind_[at(a)] != kind_[at(b)]) kind_[at(b)] = kDense;
    int32_t& count = merge_->rotations;
    const int32_t first = merge_->first;
    if (count == 0 || out_.rotations[count - 1].b != first + a) out_.chain[merge_->chains++] = count;
    out_.rotations[count++] = {first + a, first + b, c, s};
    return true;
  }

  // Packed columns by kind. Where the upper ones would be odd in number, one counts as dense, so that what follows them
  // is aligned.
  void pack() {
    int32_t counts[3] = {0, 0, 0};
    int32_t last_upper = -1;
    for (const int32_t c : kept_) {
      ++counts[kind_[at(c)]];
      if (kind_[at(c)] == kUpper) last_upper = c;
    }
    if (counts[kUpper] % 2 != 0) {
      kind_[at(last_upper)] = kDense;
      --counts[kUpper];
      ++counts[kDense];
    }
    TridiagonalMerge& m = *merge_;
    m.roots = static_cast<int32_t>(kept_.size());
    m.upper_only = counts[kUpper];
    m.dense = counts[kDense];
    m.lower_only = counts[kLower];
    int32_t next[3] = {0, m.upper_only, m.upper_columns()};
    for (int32_t i = 0; i < m.roots; ++i) {
      const int32_t c = kept_[at(i)], place = next[kind_[at(c)]]++;
      out_.column[place] = m.first + c;
      out_.pole[place] = i;
    }
    for (int32_t i = m.roots; i < m.size; ++i) {
      const int32_t c = deflated_[at(i - m.roots)];
      out_.poles[i] = d_[at(c)];
      out_.column[i] = m.first + c;
    }
    out_.chain[m.chains] = m.rotations;
  }

  double unit_;
  int32_t size_ = 0;
  double rho_ = 0, root_of_rho_ = 0, tolerance_ = 0;
  std::vector<double> d_, z_;
  std::vector<Kind> kind_;
  std::vector<int32_t> order_, runs_, kept_, deflated_;
  DeflationArrays out_{};
  TridiagonalMerge* merge_ = nullptr;
};

// --- order and scale ----------------------------------------------------------------------------------------------

// Where value i of `values` goes, which are two ascending runs of `first` and the rest: equal ones keep their order. At
// most count - 1 whatever the values are.
SVD_HD int32_t place_in_order(const double* values, int32_t first, int32_t count, int32_t i) {
  const bool is_first = i < first;
  const double x = values[i];
  int32_t low = is_first ? first : 0, high = is_first ? count : first;
  const int32_t begin = low;
  while (low < high) {
    const int32_t middle = low + (high - low) / 2;
    const bool is_before = is_first ? values[middle] < x : values[middle] <= x;
    if (is_before) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return (is_first ? i : i - first) + (low - begin);
}

// First rows of the leaves that T of order n is torn into, of at most `leaf` rows each: a power of two of them, and n.
inline std::vector<int32_t> tridiagonal_leaves(int32_t n, int32_t leaf) {
  std::vector<int32_t> sizes = {n};
  while (sizes.back() > leaf) {  // the last is the largest
    std::vector<int32_t> halves;
    for (const int32_t size : sizes) halves.insert(halves.end(), {size / 2, size - size / 2});
    sizes = std::move(halves);
  }
  std::vector<int32_t> starts = {0};
  for (const int32_t size : sizes) starts.push_back(starts.back() + size);
  return starts;
}

// Scales T by a power of two to a largest entry in [1/2, 1), and takes what connects the leaves off the diagonal (the tear
// above). T was 2^exponent times that. Where it is not finite, nothing is done.
struct TornTridiagonal {
  bool finite = true;
  int exponent = 0;
};
inline TornTridiagonal tear_tridiagonal(const std::vector<int32_t>& starts, double* d, double* e) {
  TornTridiagonal torn;
  const int32_t n = starts.back();
  double most = 0;
  for (int32_t i = 0; i < n; ++i) {
    const double connects = i + 1 < n ? e[i] : 0;
    torn.finite = torn.finite && std::isfinite(d[i]) && std::isfinite(connects);
    most = std::max(most, std::max(std::fabs(d[i]), std::fabs(connects)));
  }
  if (!torn.finite) return torn;
  if (most > 0) std::frexp(most, &torn.exponent);
  const int half = torn.exponent / 2;  // 2^exponent alone may not be a number
  const double once = std::ldexp(1.0, -half), again = std::ldexp(1.0, half - torn.exponent);
  for (int32_t i = 0; i < n; ++i) {
    d[i] = d[i] * once * again;
    if (i + 1 < n) e[i] = e[i] * once * again;
  }
  for (size_t leaf = 1; leaf + 1 < starts.size(); ++leaf) {
    const int32_t at = starts[leaf];
    const double size = std::fabs(e[at - 1]);
    d[at - 1] -= size;
    d[at] -= size;
  }
  return torn;
}

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_TRIDIAGONAL_MERGE_H_
