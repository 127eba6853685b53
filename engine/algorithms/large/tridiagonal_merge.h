// A merge of divide and conquer for a real symmetric tridiagonal matrix: the parts that are not matrix products. Threads
// of a CPU and lanes of a GPU share them.
//
//   T = [T_1 0; 0 T_2] + |e| u u^T, n x n:  u = (0 .. 0 1 +-1 0 .. 0)^T, e what connects the halves, +-1 its sign. T_1 and
//   T_2 are the halves of T less |e| at the two places of the diagonal where they meet.
//   T_1 = Q_1 D_1 Q_1^T, T_2 = Q_2 D_2 Q_2^T, Q = diag(Q_1, Q_2), D = diag(D_1, D_2), given
//   T = Q (D + rho z z^T) Q^T:  z = Q^T u / sqrt(2) of norm one, rho = 2 |e|
//   T = (Q S) Lambda (Q S)^T, asked for
// Method:
//   1. Deflation (Deflation). Where rho |z_i| <= tol, column i of Q is a vector. Where two of D are so close that a
//      rotation in their plane moves D by no more than tol, it makes one of their z zero. k columns are left.
//   2. Roots (secular_root) lambda_j of 1/rho + sum_i z_i^2 / (d_i - lambda) = 0, one in each interval of the d_i. Each is
//      kept as the nearer pole d_o and tau = lambda_j - d_o, so that all d_i - lambda_j = (d_i - d_o) - tau are accurate.
//   3. Weights (secular_weight) for which the computed roots are the exact ones:
//        z'_i^2 = prod_(j < i) (lambda_j - d_i) / (d_j - d_i)  prod_(i <= j < k - 1) (lambda_j - d_i) / (d_(j+1) - d_i)
//                 times (lambda_(k-1) - d_i)
//      Each quotient lies in [0, 1], so that a product in any order keeps its range. A factor of all of them is left out.
//   4. S (secular_entry): s_ij = z'_i / (d_i - lambda_j), each column divided by its norm.
// The caller multiplies. Columns of Q are packed by their rows: of the upper half only, of both (two deflated into one),
// of the lower half only. So two products of half the rows each suffice.
// Accuracy: |T - V Lambda V^T| and |I - V^T V| are a few n u |T| for |T| about 1. tol = 8 u max(|d|, |z|) is absolute, so
// scale T first. Roots are found to |f| <= 8 u (1/rho + sum |.|) + u |tau| f', or what rounding allows.
// It ends for whatever numbers, NaN too.
// Sources: Cuppen, Numer. Math. 36 (1981) 177-195 (the tear, deflation).
// Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 172-191 (step 3).
// Li, LAPACK Working Note 89 (1993) (step 2: the fixed weight method and the middle way).
// Rutter, LAPACK Working Note 69 (1994) (the order of a merge, packing).
// Cost: O(n) for deflation, about 6 k^2 quotients for the roots, k^2 and 2 k^2 for steps 3 and 4.
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
  double rho;

  // Packed columns with rows in the upper half, and with rows in the lower half: from upper_only on.
  SVD_HD int32_t upper_columns() const { return upper_only + dense; }
  SVD_HD int32_t lower_columns() const { return dense + lower_only; }
};

// Where a deflation puts its results; `size` elements each. Columns are numbered as V's.
struct DeflationArrays {
  double* poles;            // k, ascending; then the deflated eigenvalues, ascending
  double* z;                // k
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
    merge = {merge.first, upper.size, size_, 0, 0, 0, 0, 0, 0, rho_};
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
    out_.z[k] = z_[at(c)];
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
  double rho_ = 0, tolerance_ = 0;
  std::vector<double> d_, z_;
  std::vector<Kind> kind_;
  std::vector<int32_t> order_, runs_, kept_, deflated_;
  DeflationArrays out_{};
  TridiagonalMerge* merge_ = nullptr;
};

// --- the secular equation: lanes that share a sum -----------------------------------------------------------------

// Lanes that compute a root, a weight or a column together: kLanes of them, which get the same sums and products.
struct OneLane {
  static constexpr int kLanes = 1;
  SVD_HD int lane() const { return 0; }
  SVD_HD double sum(double x) const { return x; }
  SVD_HD double product(double x) const { return x; }
};

struct SecularProblem {
  const double* pole;  // ascending
  const double* z;
  int32_t count;
  double rho;  // > 0
};

// lambda = pole[origin] + tau
struct SecularRoot {
  double tau;
  int32_t origin;
};

// All roots: lambda_j = pole[origin[j]] + tau[j].
struct SecularRoots {
  const double* tau;
  const int32_t* origin;
};

// sum z_i^2 / (d_i - lambda) over begin <= i < end, and its derivative.
struct PoleSum {
  double value, slope;
};
template <class Lanes>
SVD_HD PoleSum pole_sum(const Lanes& lanes, const SecularProblem& p, int32_t begin, int32_t end, SecularRoot at) {
  const double shift = p.pole[at.origin];
  PoleSum sum{0, 0};
  for (int32_t i = begin + lanes.lane(); i < end; i += Lanes::kLanes) {
    const double z = p.z[i], quotient = z / ((p.pole[i] - shift) - at.tau);
    sum.value = std::fma(z, quotient, sum.value);
    sum.slope = std::fma(quotient, quotient, sum.slope);
  }
  return {lanes.sum(sum.value), lanes.sum(sum.slope)};
}

// f = 1/rho + psi + phi at tau: psi of the poles up to `left`, phi of those behind it.
struct SecularValue {
  PoleSum psi, phi;
  double f, size;  // size: 1/rho + |psi| + |phi|
};
template <class Lanes>
SVD_HD SecularValue secular_value(const Lanes& lanes, const SecularProblem& p, int32_t left, SecularRoot at) {
  SecularValue v;
  v.psi = pole_sum(lanes, p, 0, left + 1, at);
  v.phi = pole_sum(lanes, p, left + 1, p.count, at);
  const double inverse = 1 / p.rho;
  v.f = inverse + v.psi.value + v.phi.value;
  v.size = inverse + std::fabs(v.psi.value) + std::fabs(v.phi.value);
  return v;
}

// The zero of c x^2 - a x + b that is the change of tau, without cancellation. Where the root is between two poles, so is
// this zero; else it is beyond both.
SVD_HD double model_zero(double a, double b, double c, bool between) {
  const double root = std::sqrt(std::fabs(std::fma(a, a, -4 * b * c)));
  if (between) return a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
  return a >= 0 ? (a + root) / (2 * c) : 2 * b / (a - root);
}

// The search for one root. tau = sign m with near <= m <= far, the origin the root's nearer pole; f grows with tau.
struct RootSearch {
  int32_t left;    // the poles of the model: left and left + 1
  int32_t origin;  // one of them
  bool between;    // the root is between them, and not beyond both
  double sign, near, far, m;

  SVD_HD SecularRoot at() const { return {sign * m, origin}; }
  SVD_HD bool contains(double x) const { return x > near && x < far; }
  // Halves the bracket, or its logarithm while that is large.
  SVD_HD double middle() const { return far > 4 * near ? std::sqrt(near) * std::sqrt(far) : near + (far - near) / 2; }
};

inline constexpr double kBracketSlack = 0x1p-20;
inline constexpr int kMostRootSteps = 160;  // four are usual; twelve, then every other one a bisection

// Between poles j and j + 1. The sign of f in the middle tells which is nearer. With origin j, the root is where
//   z_j^2 / tau = 1/rho + phi + (psi without j) <= 1/rho + phi(middle),
// and with origin j + 1 where z_(j+1)^2 / |tau| <= |psi(middle)|: this is `near`.
template <class Lanes>
SVD_HD RootSearch search_between(const Lanes& lanes, const SecularProblem& p, int32_t j) {
  const double gap = p.pole[j + 1] - p.pole[j], half = gap / 2;
  const SecularValue v = secular_value(lanes, p, j, {half, j});
  const bool is_left = v.f >= 0;
  const double below = p.z[j] * p.z[j], above = p.z[j + 1] * p.z[j + 1];
  RootSearch s{j, is_left ? j : j + 1, true, is_left ? 1.0 : -1.0, 0, half * (1 + kBracketSlack), 0};
  s.near = (is_left ? below / (1 / p.rho + v.phi.value) : above / std::fabs(v.psi.value)) * (1 - kBracketSlack);
  s.near = std::fmin(s.near, s.far);
  // First guess: the two nearest poles exactly, the rest as it is in the middle.
  const double c = v.f + below / half - above / half;
  const double a = s.sign * c * gap + below + above, b = s.sign * gap * (is_left ? below : above);
  const double guess = s.sign * model_zero(a, b, c, true);
  s.m = s.contains(guess) ? guess : s.middle();
  return s;
}

// Beyond the last pole: rho z_last^2 <= tau <= rho |z|^2.
template <class Lanes>
SVD_HD RootSearch search_last(const Lanes& lanes, const SecularProblem& p) {
  const int32_t last = p.count - 1;
  double square = 0;
  for (int32_t i = lanes.lane(); i < p.count; i += Lanes::kLanes) square = std::fma(p.z[i], p.z[i], square);
  square = lanes.sum(square);
  RootSearch s{last - 1, last, false, 1.0, 0, p.rho * square * (1 + kBracketSlack), 0};
  s.near = std::fmin(p.rho * p.z[last] * p.z[last] * (1 - kBracketSlack), s.far);
  s.m = s.contains(s.far / 2) ? s.far / 2 : s.middle();
  return s;
}

// The next m: the zero of c + s / (d_left - lambda) + t / (d_(left+1) - lambda), which has f and f' of this point. Middle
// way: s and t have psi' and phi'. Fixed weight: that of the origin is its own z^2.
SVD_HD double next_place(const RootSearch& s, const SecularProblem& p, const SecularValue& v, bool middle_way) {
  const double tau = s.sign * s.m, shift = p.pole[s.origin];
  const double left = (p.pole[s.left] - shift) - tau, right = (p.pole[s.left + 1] - shift) - tau;
  const double slope = v.psi.slope + v.phi.slope;
  double c;
  if (middle_way) {
    c = v.f - v.psi.slope * left - v.phi.slope * right;
  } else {
    const bool is_left = s.origin == s.left;
    const double own = p.z[s.origin] / (is_left ? left : right);
    c = v.f - p.z[s.origin] * own - (slope - own * own) * (is_left ? right : left);
  }
  const double a = (left + right) * v.f - left * right * slope, b = left * right * v.f;
  double change = model_zero(a, b, c, s.between);
  if (!(v.f * change < 0)) change = -v.f / slope;
  return s.sign * (tau + change);
}

// Step 2: root j of p. All lanes get it.
template <class Lanes>
SVD_HD SecularRoot secular_root(const Lanes& lanes, const SecularProblem& p, int32_t j) {
  if (p.count == 1) return {p.rho * p.z[0] * p.z[0], 0};
  RootSearch s = j + 1 < p.count ? search_between(lanes, p, j) : search_last(lanes, p);
  bool middle_way = false;
  double before = 0;
  for (int step = 0; step < kMostRootSteps; ++step) {
    const SecularValue v = secular_value(lanes, p, s.left, s.at());
    const double slope = v.psi.slope + v.phi.slope;
    // Rounding of a long sum may be more than eight units: a search that goes on and on asks for less.
    const double units = step < 10 ? 8 : 8.0 * (step - 8);
    if (std::fabs(v.f) <= 0x1p-53 * (units * v.size + s.m * slope)) break;
    if (s.sign * v.f < 0) {
      s.near = s.m;
    } else {
      s.far = s.m;
    }
    if (step > 0 && std::fabs(v.f) > before / 10) middle_way = !middle_way;
    before = std::fabs(v.f);
    const double next = next_place(s, p, v, middle_way);
    const bool bisect = !s.contains(next) || (step >= 12 && step % 2 == 0);
    const double m = bisect ? s.middle() : next;
    if (!s.contains(m) || std::fabs(m - s.m) <= 0x1p-53 * m) break;
    s.m = m;
  }
  return s.at();
}

// Step 3: z'_i, all lanes get it.
template <class Lanes>
SVD_HD double secular_weight(const Lanes& lanes, const SecularProblem& p, const SecularRoots& roots, int32_t i) {
  const double own = p.pole[i];
  double product = 1;
  for (int32_t j = lanes.lane(); j < p.count; j += Lanes::kLanes) {
    const double distance = (p.pole[roots.origin[j]] - own) + roots.tau[j];  // lambda_j - d_i
    const int32_t other = j < i ? j : j + 1;
    product *= other < p.count ? distance / (p.pole[other] - own) : distance;
  }
  return std::copysign(std::sqrt(std::fabs(lanes.product(product))), p.z[i]);
}

// Step 4: s_i = z'_i / (d_i - lambda), `weight` all z'.
SVD_HD double secular_entry(const SecularProblem& p, const double* weight, SecularRoot root, int32_t i) {
  return weight[i] / ((p.pole[i] - p.pole[root.origin]) - root.tau);
}
template <class Lanes>
SVD_HD double secular_norm(const Lanes& lanes, const SecularProblem& p, const double* weight, SecularRoot root) {
  double square = 0;
  for (int32_t i = lanes.lane(); i < p.count; i += Lanes::kLanes) {
    const double s = secular_entry(p, weight, root, i);
    square = std::fma(s, s, square);
  }
  return std::sqrt(lanes.sum(square));
}
// column[p] := entry of packed column p's pole / norm
template <class Lanes>
SVD_HD void secular_column(const Lanes& lanes, const SecularProblem& p, const double* weight, SecularRoot root,
                           const int32_t* pole, double* column) {
  const double norm = secular_norm(lanes, p, weight, root);
  for (int32_t i = lanes.lane(); i < p.count; i += Lanes::kLanes) {
    column[i] = secular_entry(p, weight, root, pole[i]) / norm;
  }
}

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
