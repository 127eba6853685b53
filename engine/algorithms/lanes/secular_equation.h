// The secular equation of a merge in divide and conquer, of a bidiagonal or of a tridiagonal matrix. A CPU has a root in
// each lane. A GPU has a root in each warp, whose threads share the sums.
//
//   SVD (SquaredPoles):  M = [z_0 z_1 .. z_(k-1); 0 d_1; ..; 0 d_(k-1)] = U diag(s) V^T, k x k, 0 = d_0 < d_1 < ..;
//     root s, poles d_i:  f = 1 + sum_i z_i^2 / (d_i^2 - s^2) = 0
//   eigenvalues (PlainPoles):  M = diag(d) + z z^T = V diag(s) V^T, d_0 < d_1 < ..;   f = 1 + sum_i z_i^2 / (d_i - s) = 0
//   No z_i is zero. d_j < s_j < d_(j+1), and the last root is at most |z|^2 above the last pole, squared or plain.
// Below, a - b of two of these numbers is the difference of their squares for SquaredPoles: difference().
// Method:
//   1. Roots (secular_roots). Each is kept as the nearer pole d_o and x = s_j - d_o, so that all differences d_i - s_j =
//      (d_i - d_o) - x are relatively accurate.
//   2. Weights (secular_weights) for which the computed roots are the exact ones:
//        z'_i^2 = prod_(j < i) (s_j - d_i) / (d_j - d_i)  prod_(i <= j < k-1) (s_j - d_i) / (d_(j+1) - d_i)
//                 times (s_(k-1) - d_i)
//      Each quotient lies in [0, 1], so that a product in any order keeps its range.
//   3. Vectors (secular_vectors, secular_column): v_ij = z'_i / (d_i - s_j); of an SVD u_ij = d_i v_ij, u_0j = -1. Each
//      column is divided by its norm.
// A root is searched in a bracket, by a rational model with the two nearest poles, of fixed weight or the middle way.
// Bisection halves the bracket where the model leaves it, or is slow.
//
// Sources: Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16 (1995) 79-92 and 172-191 (M, steps 2 and 3).
// Li, LAPACK Working Note 89 (1993) (step 1).
// Cost: about 6 k^2 quotients for the roots, k^2 for each of steps 2 and 3. Accuracy: the residual of M and the
// orthogonality are a few k u for |M| about one, where all |z_i| and differences of poles are above u. A root is found
// to |f| <= 8 u (1 + sum |.|) + u |x f'|, or what rounding allows. It ends for whatever numbers, NaN too. The bits of a
// root depend on the equation and the number of threads alone, not on that of lanes.
#if defined(SVDSERVE_ENGINE_ALGORITHMS_LANES_SECULAR_EQUATION_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SVDSERVE_ENGINE_ALGORITHMS_LANES_SECULAR_EQUATION_H_
#undef SVDSERVE_ENGINE_ALGORITHMS_LANES_SECULAR_EQUATION_H_
#else
#define SVDSERVE_ENGINE_ALGORITHMS_LANES_SECULAR_EQUATION_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <type_traits>

#include "engine/core/lane.h"
#include "engine/core/team.h"

SVD_KERNEL_BEGIN

struct SquaredPoles {
  template <class Lane>
  static SVD_HD Lane difference(Lane a, Lane b) {
    return (a - b) * (a + b);
  }
  // d - s of the root s by its origin and x.
  template <class Lane>
  static SVD_HD Lane distance(Lane pole, Lane origin, Lane x) {
    return fma(pole - origin, pole + origin, -x);
  }
};
struct PlainPoles {
  template <class Lane>
  static SVD_HD Lane difference(Lane a, Lane b) {
    return a - b;
  }
  template <class Lane>
  static SVD_HD Lane distance(Lane pole, Lane origin, Lane x) {
    return (pole - origin) - x;
  }
};

// d and z have `count` >= 1 numbers, and room for kLanes - 1 more, of which nothing depends but time.
template <class Poles>
struct SecularEquation {
  const double* d;  // ascending
  const double* z;
  int count;
};

// Root j is x[j] above origin[j]. Both have room for kLanes - 1 more.
struct SecularRoots {
  double* origin;
  double* x;
};

// Sums and products over all threads (core/team.h) that compute the same lanes together: each has every count()-th term
// from index() on. All get the same bits.
template <class Threads>
SVD_HD double exchanged(const Threads& threads, double x, int distance) {
  return threads.exchanged(x, distance);
}
template <class Threads, class Lane>
SVD_HD Lane exchanged(const Threads& threads, Lane x, int distance) {
  return Lane(threads.exchanged(x.v, distance));
}
template <class Threads, class Number>
SVD_HD Number sum_over(const Threads& threads, Number x) {
  if constexpr (!std::is_same_v<Threads, OneThread>) {
    for (int distance = threads.count() / 2; distance > 0; distance /= 2) x = x + exchanged(threads, x, distance);
  }
  return x;
}
template <class Threads, class Number>
SVD_HD Number product_over(const Threads& threads, Number x) {
  if constexpr (!std::is_same_v<Threads, OneThread>) {
    for (int distance = threads.count() / 2; distance > 0; distance /= 2) x = x * exchanged(threads, x, distance);
  }
  return x;
}

// psi: the sum over poles up to `left`, phi: over those behind it; and their derivatives.
template <class Lane>
struct SecularSums {
  Lane psi, psi_slope, phi, phi_slope;

  SVD_HD Lane f() const { return Lane(1) + psi + phi; }
  SVD_HD Lane size() const { return Lane(1) + abs(psi) + abs(phi); }
  SVD_HD Lane slope() const { return psi_slope + phi_slope; }
};

// This thread's terms of the sums over poles begin .. end - 1.
template <class Lane, class Poles, class Threads>
SVD_HD void add_poles(const SecularEquation<Poles>& a, const Threads& threads, int begin, int end, Lane origin, Lane x,
                      Lane& value, Lane& slope) {
  for (int i = begin + threads.index(); i < end; i += threads.count()) {
    const Lane z(a.z[i]), quotient = z / Poles::distance(Lane(a.d[i]), origin, x);
    value = fma(z, quotient, value);
    slope = fma(quotient, quotient, slope);
  }
}

// A search for a root in each lane. x = sign m with near <= m <= far, the origin the root's nearer pole; f grows with x.
template <class Lane, class Poles, class Threads>
class SecularSearch {
 public:
  using Mask = typename Lane::Mask;

  // Roots first .. first + kLanes - 1; lanes beyond the last root repeat it.
  SVD_HD SecularSearch(const SecularEquation<Poles>& a, const Threads& threads, int first)
      : a_(a), threads_(threads), lowest_(std::min(first, a.count - 2)) {
    double left[Lane::kLanes], last[Lane::kLanes], poles[4][Lane::kLanes];
    for (int l = 0; l < Lane::kLanes; ++l) {
      const int j = std::min(first + l, a.count - 1), i = std::min(j, a.count - 2);
      left[l] = i;
      last[l] = j == a.count - 1 ? 1 : 0;
      poles[0][l] = a.d[i];
      poles[1][l] = a.d[i + 1];
      poles[2][l] = a.z[i];
      poles[3][l] = a.z[i + 1];
    }
    highest_ = static_cast<int>(left[Lane::kLanes - 1]);
    left_ = Lane::load(left);
    last_ = Lane::load(last) > Lane(0);
    d_left_ = Lane::load(poles[0]);
    d_right_ = Lane::load(poles[1]);
    z_left_ = Lane::load(poles[2]);
    z_right_ = Lane::load(poles[3]);
  }

  // Between two poles the sign of f in their middle tells which is nearer. With the left one as origin the root is where
  //   z_j^2 / x = 1 + phi + (psi without j) <= 1 + phi(middle),
  // and with the right one where z_(j+1)^2 / |x| <= |psi(middle)|: this is `near`. The last root lies beyond all poles, and
  // between those of 1 = z_last^2 / x + rest / (g + x), the others' weights at one pole: the nearest one, or their mean.
  SVD_HD void begin() {
    const Lane zero(0), one(1), shrink(1 - kSlack), grow(1 + kSlack);
    const Lane gap = Poles::difference(d_right_, d_left_), half = gap * Lane(0.5);
    const SecularSums<Lane> v = sums(d_left_, half);
    const Lane f = v.f(), below = z_left_ * z_left_, above = z_right_ * z_right_;
    is_left_ = (f >= zero) & !last_;
    origin_ = select(is_left_, d_left_, d_right_);
    sign_ = select(is_left_ | last_, one, -one);
    double nearest = 1, mean = 1;
    if (any_of(last_)) bound_last(&nearest, &mean);
    far_ = select(last_, Lane(nearest), half) * grow;
    const Lane between = select(is_left_, below / (one + v.phi), above / abs(v.psi));
    near_ = at_most(select(last_, Lane(mean), between) * shrink, far_);
    // First guess: the two nearest poles exactly, the rest as it is in the middle.
    const Lane c = f + (below - above) / half;
    const Lane a = fma(sign_ * c, gap, below + above), b = sign_ * gap * select(is_left_, below, above);
    const Lane guess = select(last_, Lane(mean), sign_ * model_zero(a, b, c, !last_));
    m_ = select(contains(guess), guess, middle());
  }

  // Steps until every lane has its root.
  SVD_HD void run() {
    Mask active = Lane::mask(true), middle_way = Lane::mask(false);
    Lane before(0);
    for (int step = 0; step < kMostSteps; ++step) {
      const SecularSums<Lane> v = sums(origin_, sign_ * m_);
      const Lane f = v.f(), size = abs(f);
      // Rounding of a long sum may be more than eight units: a search that goes on and on asks for less.
      const double units = step < 20 ? 8 : 8.0 * (step - 18);
      active = active & !(size <= Lane(kUnit) * fma(Lane(units), v.size(), m_ * v.slope()));
      if (!any_of(active)) return;
      const Mask short_of = sign_ * f < Lane(0);
      near_ = select(short_of, m_, near_);
      far_ = select(short_of, far_, m_);
      const Mask slow = Lane::mask(step > 0) & (size > before * Lane(0.1));
      middle_way = (middle_way & (!slow)) | (slow & (!middle_way));
      before = size;
      Lane m = next_place(v, middle_way);
      const Mask halved = (!contains(m)) | (Lane::mask(step >= 12) & slow);
      if (any_of(halved & active)) m = select(halved, middle(), m);
      active = active & contains(m) & (abs(m - m_) > Lane(kUnit) * m);
      m_ = select(active, m, m_);
      if (!any_of(active)) return;
    }
  }

  SVD_HD void store(const SecularRoots& to, int first) const {
    origin_.store(to.origin + first);
    (sign_ * m_).store(to.x + first);
  }

 private:
  static constexpr double kUnit = 0x1p-53, kSlack = 0x1p-20;
  static constexpr int kMostSteps = 160;  // four are usual; from the twelfth on slow ones are bisections

  SVD_HD Mask contains(Lane m) const { return (m > near_) & (m < far_); }
  // Halves the bracket, or its logarithm while that is large.
  SVD_HD Lane middle() const {
    return select(far_ > Lane(4) * near_, sqrt(near_) * sqrt(far_), near_ + (far_ - near_) * Lane(0.5));
  }

  // Zeros of x^2 + (g - |z|^2) x - z_last^2 g.
  SVD_HD void bound_last(double* nearest, double* mean) const {
    const int last = a_.count - 1;
    const double d = a_.d[last], own = a_.z[last] * a_.z[last];
    double rest = 0, moment = 0;
    for (int i = threads_.index(); i < last; i += threads_.count()) {
      rest += a_.z[i] * a_.z[i];
      moment += a_.z[i] * a_.z[i] * Poles::difference(d, a_.d[i]);
    }
    rest = sum_over(threads_, rest);
    moment = sum_over(threads_, moment);
    const auto zero = [&](double g) SVD_LAMBDA {
      const double b = own + rest - g, root = std::sqrt(b * b + 4 * own * g);
      return b >= 0 ? (b + root) / 2 : 2 * own * g / (root - b);
    };
    *nearest = zero(Poles::difference(d, a_.d[last - 1]));
    *mean = zero(moment / rest);
  }

  SVD_HD SecularSums<Lane> sums(Lane origin, Lane x) const {
    SecularSums<Lane> s{Lane(0), Lane(0), Lane(0), Lane(0)};
    add_poles(a_, threads_, 0, lowest_ + 1, origin, x, s.psi, s.psi_slope);
    for (int i = lowest_ + 1 + threads_.index(); i <= highest_; i += threads_.count()) {
      const Lane z(a_.z[i]), quotient = z / Poles::distance(Lane(a_.d[i]), origin, x);
      const Mask before = Lane(i) <= left_;
      s.psi = select(before, fma(z, quotient, s.psi), s.psi);
      s.psi_slope = select(before, fma(quotient, quotient, s.psi_slope), s.psi_slope);
      s.phi = select(before, s.phi, fma(z, quotient, s.phi));
      s.phi_slope = select(before, s.phi_slope, fma(quotient, quotient, s.phi_slope));
    }
    add_poles(a_, threads_, highest_ + 1, a_.count, origin, x, s.phi, s.phi_slope);
    return {sum_over(threads_, s.psi), sum_over(threads_, s.psi_slope), sum_over(threads_, s.phi),
            sum_over(threads_, s.phi_slope)};
  }

  // The zero of c x^2 - a x + b that is the change of x, without cancellation. Where the root is between two poles, so
  // is this zero; else it is beyond both.
  static SVD_HD Lane model_zero(Lane a, Lane b, Lane c, Mask between) {
    const Lane root = sqrt(abs(fma(a, a, Lane(-4) * b * c)));
    const Lane inner = select(between, a - root, a + root), outer = select(between, a + root, a - root);
    const Mask direct = (between & (a <= Lane(0))) | ((!between) & (a >= Lane(0)));
    return select(direct, inner, Lane(2) * b) / select(direct, Lane(2) * c, outer);
  }

  // The next m: the zero of c + a / (d_left - s) + b / (d_right - s), which has f and f' of this point. Middle
  // way: a and b have psi' and phi'. Fixed weight: that of the origin is its own z^2.
  SVD_HD Lane next_place(const SecularSums<Lane>& v, Mask middle_way) const {
    const Lane x = sign_ * m_, f = v.f(), slope = v.slope();
    const Lane left = Poles::distance(d_left_, origin_, x), right = Poles::distance(d_right_, origin_, x);
    const Lane own_z = select(is_left_, z_left_, z_right_), own_distance = select(is_left_, left, right);
    const Lane own = own_z / own_distance;
    const Lane fixed = f - own_z * own - (slope - own * own) * select(is_left_, right, left);
    const Lane c = select(middle_way, f - v.psi_slope * left - v.phi_slope * right, fixed);
    const Lane a = (left + right) * f - left * right * slope, b = left * right * f;
    const Lane change = model_zero(a, b, c, !last_);
    return sign_ * (x + select(f * change < Lane(0), change, -f / slope));
  }

  const SecularEquation<Poles>& a_;
  const Threads& threads_;
  const int lowest_;  // left poles of the lanes: from lowest_ to highest_
  int highest_;
  Lane left_, d_left_, d_right_, z_left_, z_right_;  // the two poles of the model
  Mask last_, is_left_;                              // the last root; the origin is the left pole
  Lane origin_, sign_, near_, far_, m_;
};

// Step 1, for roots first .. first + kLanes - 1.
template <class Lane, class Poles, class Threads = OneThread>
SVD_HD_CALLED void secular_roots(const SecularEquation<Poles>& a, int first, const SecularRoots& roots,
                                 const Threads& threads = Threads()) {
  if (a.count == 1) {
    Lane(a.d[0]).store(roots.origin);
    Lane(a.z[0] * a.z[0]).store(roots.x);
    return;
  }
  SecularSearch<Lane, Poles, Threads> search(a, threads, first);
  search.begin();
  search.run();
  if (threads.index() == 0) search.store(roots, first);
}

// Step 2, for rows first .. first + kLanes - 1.
template <class Lane, class Poles, class Threads = OneThread>
SVD_HD_CALLED void secular_weights(const SecularEquation<Poles>& a, const SecularRoots& roots, int first,
                                   double* weights, const Threads& threads = Threads()) {
  const Lane own = Lane::load(a.d + first), z = Lane::load(a.z + first);
  double numbers[Lane::kLanes];
  for (int l = 0; l < Lane::kLanes; ++l) numbers[l] = first + l;
  const Lane row = Lane::load(numbers);
  const auto root_distance = [&](int j)
                                 SVD_LAMBDA { return -Poles::distance(own, Lane(roots.origin[j]), Lane(roots.x[j])); };
  const auto quotient = [&](int j, Lane pole) SVD_LAMBDA { return root_distance(j) / Poles::difference(pole, own); };
  const int last = a.count - 1, behind = first + Lane::kLanes, own_term = threads.index(), step = threads.count();
  Lane product = own_term == 0 ? root_distance(last) : Lane(1);
  for (int j = own_term; j < std::min(first, last); j += step) product = product * quotient(j, Lane(a.d[j]));
  for (int j = first + own_term; j < std::min(behind, last); j += step) {
    product = product * quotient(j, select(Lane(j) < row, Lane(a.d[j]), Lane(a.d[j + 1])));
  }
  for (int j = behind + own_term; j < last; j += step) product = product * quotient(j, Lane(a.d[j + 1]));
  product = product_over(threads, product);
  if (own_term == 0) copysign(sqrt(abs(product)), z).store(weights + first);
}

// Vectors by rows with leading dimension ld, from column `begin` of all on, not divided by their norms: row i of those of M is
// row place[i].
struct SecularVectors {
  const int* place;
  int ld, begin;
  double *u, *v;              // u: of an SVD
  double *u_scale, *v_scale;  // 1 / |.| of the columns
};

// Step 3, for columns first .. first + kLanes - 1.
template <class Lane, class Poles>
SVD_HD_CALLED void secular_vectors(const SecularEquation<Poles>& a, const SecularRoots& roots, const double* weights,
                                   int first, const SecularVectors& to) {
  constexpr bool kHasU = std::is_same_v<Poles, SquaredPoles>;
  const Lane origin = Lane::load(roots.origin + first), x = Lane::load(roots.x + first), one(1);
  Lane u_square(1), v_square(0);
  for (int i = 0; i < a.count; ++i) {
    const Lane pole(a.d[i]), v = Lane(weights[i]) / Poles::distance(pole, origin, x);
    const ptrdiff_t at = static_cast<ptrdiff_t>(to.place[i]) * to.ld + (first - to.begin);
    v.store(to.v + at);
    v_square = fma(v, v, v_square);
    if constexpr (kHasU) {
      const Lane u = i == 0 ? -one : pole * v;
      u.store(to.u + at);
      if (i > 0) u_square = fma(u, u, u_square);
    }
  }
  (one / sqrt(v_square)).store(to.v_scale + first);
  if constexpr (kHasU) (one / sqrt(u_square)).store(to.u_scale + first);
}

// Step 3, for the column of the root by its origin and x: element i is that of pole[i]. PlainPoles; Lane has one lane.
template <class Lane, class Threads>
SVD_HD void secular_column(const SecularEquation<PlainPoles>& a, double origin, double x, const double* weights,
                           const int* pole, double* column, const Threads& threads) {
  const auto element = [&](int i) SVD_LAMBDA {
    return Lane(weights[i]) / PlainPoles::distance(Lane(a.d[i]), Lane(origin), Lane(x));
  };
  Lane square(0);
  for (int i = threads.index(); i < a.count; i += threads.count()) {
    const Lane v = element(i);
    square = fma(v, v, square);
  }
  const Lane norm = sqrt(sum_over(threads, square));
  for (int i = threads.index(); i < a.count; i += threads.count()) (element(pole[i]) / norm).store(column + i);
}

SVD_KERNEL_END

#endif
