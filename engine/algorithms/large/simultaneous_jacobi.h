// Jacobi's method for one large general matrix that is nearly diagonal in a known basis: all pairs of a step at once.
//
//   A V = V L, A n x n; V_0 given, or the eigenvectors of the Hermitian part of e^(i theta) A
//   a step:   S := V^-1 A V,   f_ij := s_ij / (s_jj - s_ii)
//             clusters: lines that |f_ij| > 0.3 joins, the strongest couplings first, at most 16 lines in one
//             V(:, c) := V(:, c) Y_c for each cluster c, S(c, c) Y_c = Y_c D_c; S anew
//             V := V (I + F), F of the |f_ij| <= 0.3
//             V := Q, V = Q R, while V_0 was unitary and some cluster is full
//
// The pivots are the clusters: blocks of lines that are far from diagonal, chosen anew in each step. Every other pair is
// a pivot too, whose shear is taken to first order. Convergence is quadratic once no cluster is left: 3 to 4 steps from
// vectors that are right to 1e-3. From a Hermitian part, a normal matrix with perturbations of 1e-2 takes 6 to 12. Full clusters
// leave couplings that are not small, with which I + F spoils V; Q of V keeps S nearly normal until they are gone. S is
// computed anew from A, so no rounding error accumulates.
// Not for matrices that are far from diagonal in the basis: the residual does not fall then, and the caller takes
// another method.
// Sources: Eberlein, J. SIAM 10 (1962) 74-88, for shears; Becka, Oksa and Vajtersic, Parallel Comput. 28 (2002) 243-262,
// for pivots by weight. The first-order part is Newton's method: Stewart, SIAM Review 15 (1973) 727-764.
// Cost: 27 n^3 flops of complex numbers a step, 19 n^3 more with clusters.
// Accuracy: |A V - V L|_F <= bound, as run() is told, L the Rayleigh quotients of V's columns. V is as ill-conditioned
// as eigenvectors are.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_LARGE_SIMULTANEOUS_JACOBI_H_
#define SVDSERVE_ENGINE_ALGORITHMS_LARGE_SIMULTANEOUS_JACOBI_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace svdserve::large {

// |f_ij| beyond which two lines are joined, and not eliminated to first order.
inline constexpr double kLargestShear = 0.3;
// Smaller ones leave couplings that spoil V. Larger ones cost more than they save: one thread solves them.
inline constexpr size_t kLargestCluster = 16;
// More couplings a line are not those of a nearly diagonal matrix.
inline constexpr int64_t kCouplingsOfLine = 16;
inline constexpr int kLargestSimultaneousSteps = 24;
// The residual, or the number of couplings, must fall to this part of what it was. They may miss that twice.
inline constexpr double kLeastProgress = 0.8;
// |A A^H - A^H A|_F / |A|_F^2 up to which A is taken to be nearly normal.
inline constexpr double kNearlyNormal = 1e-2;
// theta: arbitrary, so that conjugate and opposite values do not have equal real parts.
inline constexpr double kTurn = 0.7;

// |f_ij| > kLargestShear.
struct Coupling {
  int32_t i, j;
  double size;
};

// square: |f_ij|^2, which is infinite or no number where lines have equal diagonals.
inline double size_of_coupling(double square) { return square < 1e300 ? square : 1e300; }

using Cluster = std::vector<int32_t>;  // lines, ascending

struct Clusters {
  std::vector<Cluster> all;
  bool full = false;  // a coupling is left over
};

// Lines joined by the strongest couplings first, as long as no cluster is too large. Single lines are left out.
inline Clusters clusters_of(int64_t n, std::vector<Coupling> couplings) {
  std::sort(couplings.begin(), couplings.end(), [](const Coupling& x, const Coupling& y) {
    return x.size != y.size ? x.size > y.size : std::tie(x.i, x.j) < std::tie(y.i, y.j);
  });
  std::vector<int32_t> first(static_cast<size_t>(n));  // line of each line's cluster
  std::iota(first.begin(), first.end(), 0);
  Clusters result;
  std::vector<Cluster>& clusters = result.all;
  clusters.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < clusters.size(); ++i) clusters[i] = {static_cast<int32_t>(i)};
  for (const Coupling& c : couplings) {
    const auto x = static_cast<size_t>(first[static_cast<size_t>(c.i)]);
    const auto y = static_cast<size_t>(first[static_cast<size_t>(c.j)]);
    if (x == y) continue;
    if (clusters[x].size() + clusters[y].size() > kLargestCluster) {
      result.full = true;
      continue;
    }
    for (const int32_t line : clusters[y]) first[static_cast<size_t>(line)] = static_cast<int32_t>(x);
    clusters[x].insert(clusters[x].end(), clusters[y].begin(), clusters[y].end());
    clusters[y].clear();
  }
  std::erase_if(clusters, [](const Cluster& c) { return c.size() < 2; });
  for (Cluster& c : clusters) std::sort(c.begin(), c.end());
  return result;
}

struct SimultaneousReport {
  bool converged = false;
  int steps = 0;
  int64_t clusters = 0;  // that were solved
  double residual = 0;
};

// Steps has the matrices, and fulfils
//   int64_t order()
//   double residual()          product := A V; L := Rayleigh quotients of V's columns; |A V - V L|_F
//   bool similar()             S := V^-1 product. False: V is singular
//   double least_pivot()       the smallest |u_ii|, P V = L U; 0 where V is singular
//   std::optional<std::vector<Coupling>> couplings(least, most)   of S, where |s_ij| > least as well. Empty: more than
//                              `most`
//   std::vector<std::complex<double>> parts(clusters)             S(c, c), by columns, one after the other
//   bool vectors(k, s, y)      cluster_vectors.h
//   void multiply(clusters, y) V(:, c) := V(:, c) Y_c, of unit columns, and product := A V
//   void eliminate()           V := V (I + F)
//   void orthonormalize()      V := Q, V = Q R
// heard(report) may throw.

struct SimultaneousLimits {
  double noise = 0;        // |s_ij| at or below it are rounding errors
  double good = 0;         // the residual that ends the steps
  double bound = 0;        // of what counts as converged
  double least_pivot = 0;  // |u_ii| of V at or below it: columns of V depend on each other
  int max_steps = 0;       // 0: kLargestSimultaneousSteps
  bool unitary = false;    // V_0 is
};

// size: |A|_F. u: of the operand's type. Rounding the results adds to the bound, and makes it 10 n u |A|_F.
inline SimultaneousLimits simultaneous_limits(int64_t n, double u, double size, int max_steps, bool unitary) {
  const double unit = static_cast<double>(n) * u * size;
  return {2 * u * size, unit, 8 * unit, static_cast<double>(n) * u, max_steps, unitary};
}

template <class Steps>
class SimultaneousJacobi {
 public:
  using Heard = std::function<void(const SimultaneousReport&)>;

  SimultaneousJacobi(Steps& steps, const SimultaneousLimits& limits, const Heard& heard)
      : steps_(steps), limits_(limits), heard_(heard) {}

  SimultaneousReport run() {
    const int most = limits_.max_steps > 0 ? limits_.max_steps : kLargestSimultaneousSteps;
    report_.residual = steps_.residual();
    int misses = 0;
    while (report_.residual > limits_.good && report_.steps < most && misses < 3) {
      const double residual_before = report_.residual;
      const size_t couplings_before = couplings_;
      if (!step()) return report_;
      report_.residual = steps_.residual();
      ++report_.steps;
      if (heard_) heard_(report_);
      if (!std::isfinite(report_.residual)) return report_;
      const bool stays = report_.residual > kLeastProgress * residual_before;
      if (stays && report_.residual <= limits_.bound) break;
      const bool fewer = static_cast<double>(couplings_) <= kLeastProgress * static_cast<double>(couplings_before);
      misses += stays && !fewer ? 1 : 0;
    }
    // Two equal columns have a small residual, too, and values are missing then.
    report_.converged = report_.residual <= limits_.bound && steps_.least_pivot() > limits_.least_pivot;
    return report_;
  }

 private:
  bool step() {
    if (!steps_.similar()) return false;
    const auto couplings = steps_.couplings(limits_.noise, kCouplingsOfLine * steps_.order());
    if (!couplings) return false;
    couplings_ = couplings->size();
    const Clusters clusters = clusters_of(steps_.order(), *couplings);
    if (!clusters.all.empty() && (!solve(clusters.all) || !steps_.similar())) return false;
    steps_.eliminate();
    if (clusters.full && limits_.unitary) steps_.orthonormalize();
    return true;
  }

  bool solve(const std::vector<Cluster>& clusters) {
    std::vector<std::complex<double>> parts = steps_.parts(clusters), vectors(parts.size());
    size_t at = 0;
    for (const Cluster& c : clusters) {
      if (!steps_.vectors(static_cast<int>(c.size()), parts.data() + at, vectors.data() + at)) return false;
      at += c.size() * c.size();
    }
    report_.clusters += static_cast<int64_t>(clusters.size());
    steps_.multiply(clusters, vectors);
    return true;
  }

  Steps& steps_;
  const SimultaneousLimits limits_;
  const Heard& heard_;
  SimultaneousReport report_;
  size_t couplings_ = 0;  // of the last step
};

}  // namespace svdserve::large
#endif  // SVDSERVE_ENGINE_ALGORITHMS_LARGE_SIMULTANEOUS_JACOBI_H_
