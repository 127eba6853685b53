// Gradients of MIMO numbers in long double: singular vectors by plain one-sided Jacobi on the columns of A, weights by
// the textbook's formulas. They are independent of the engine's way to them.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_GRADIENT_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_GRADIENT_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/support/numerics/matrix.h"

namespace svdserve::numerics {

using LongComplex = std::complex<long double>;
using LongColumns = std::vector<std::vector<LongComplex>>;

inline LongComplex inner_product(const std::vector<LongComplex>& x, const std::vector<LongComplex>& y) {
  LongComplex sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::conj(x[i]) * y[i];
  return sum;
}

// T = X S Y^H, T = A or its conjugate transpose where A is wide. Values descend; a column of X of a zero value is zero.
struct LongSvd {
  LongColumns x, y;
  std::vector<long double> s;
  bool wide;
};

inline void rotate(std::vector<LongComplex>& p, std::vector<LongComplex>& q, long double c, LongComplex sine) {
  for (size_t i = 0; i < p.size(); ++i) {
    const LongComplex a = p[i], b = q[i];
    p[i] = c * a - std::conj(sine) * b;
    q[i] = sine * a + c * b;
  }
}

// Sweeps until every cosine is below 2^-62; 60 at most.
inline void orthogonalize(LongColumns& x, LongColumns& y) {
  for (int sweep = 0; sweep < 60; ++sweep) {
    bool rotated = false;
    for (size_t p = 0; p + 1 < x.size(); ++p) {
      for (size_t q = p + 1; q < x.size(); ++q) {
        const long double a = inner_product(x[p], x[p]).real(), b = inner_product(x[q], x[q]).real();
        const LongComplex g = inner_product(x[p], x[q]);
        const long double size = std::abs(g);
        if (!(size > 0x1p-62L * std::sqrt(a) * std::sqrt(b))) continue;
        rotated = true;
        const long double zeta = (b - a) / (2 * size);
        const long double t = (zeta >= 0 ? 1 : -1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const long double c = 1 / std::sqrt(1 + t * t);
        const LongComplex sine = c * t * (g / size);
        rotate(x[p], x[q], c, sine);
        rotate(y[p], y[q], c, sine);
      }
    }
    if (!rotated) return;
  }
}

inline LongSvd long_svd(const Matrix& a) {
  LongSvd r;
  r.wide = a.cols > a.rows;
  const size_t rows = static_cast<size_t>(std::max(a.rows, a.cols)), k = static_cast<size_t>(a.values());
  r.x.assign(k, std::vector<LongComplex>(rows));
  r.y.assign(k, std::vector<LongComplex>(k));
  for (size_t j = 0; j < k; ++j) {
    r.y[j][j] = 1;
    for (size_t i = 0; i < rows; ++i) {
      const auto ii = static_cast<int64_t>(i), jj = static_cast<int64_t>(j);
      r.x[j][i] = r.wide ? std::conj(LongComplex(a.at(jj, ii))) : LongComplex(a.at(ii, jj));
    }
  }
  orthogonalize(r.x, r.y);
  r.s.resize(k);
  std::vector<size_t> order(k);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<long double> norms(k);
  for (size_t j = 0; j < k; ++j) norms[j] = std::sqrt(inner_product(r.x[j], r.x[j]).real());
  std::stable_sort(order.begin(), order.end(), [&](size_t p, size_t q) { return norms[p] > norms[q]; });
  LongColumns x, y;
  for (size_t j = 0; j < k; ++j) {
    r.s[j] = norms[order[j]];
    x.push_back(r.x[order[j]]);
    y.push_back(r.y[order[j]]);
    for (LongComplex& e : x.back()) e = r.s[j] > 0 ? e / r.s[j] : LongComplex(0);
  }
  r.x = x;
  r.y = y;
  return r;
}

// dF / ds_i, and a bound of |dw_i / ds_j| and of (w_i + w_j) / (s_i + s_j) where values are within `error` of s. The
// bound says how far an error of A moves the gradient.
struct ReferenceWeights {
  std::vector<long double> w;
  long double lipschitz;
};
constexpr long double kTwoOverLn2 = 2.885390081777926814719849362003784L;

inline ReferenceWeights capacity_weights(const std::vector<long double>& s, double snr, int64_t cols,
                                         long double error) {
  ReferenceWeights r;
  const long double each = static_cast<long double>(snr) / cols;
  for (const long double x : s) r.w.push_back(kTwoOverLn2 * each * x / (1 + each * x * x));
  const long double least = s.back() - error;
  r.lipschitz = kTwoOverLn2 * (least > 0 ? std::min(each, 2 / (least * least)) : each);
  return r;
}

inline ReferenceWeights water_filling_weights(const std::vector<long double>& s, double snr, long double error) {
  ReferenceWeights r;
  std::vector<long double> noise;
  for (const long double x : s) noise.push_back(1 / (static_cast<long double>(snr) * x * x));  // inf of zero
  size_t used = 1;
  long double above = 1;  // the level, above the noise of the strongest
  long double sum = 0;
  for (size_t i = 1; i < s.size() && std::isfinite(noise[i]); ++i) {
    sum += noise[i] - noise[0];
    const long double with_this = (1 + sum) / static_cast<long double>(i + 1);
    if (!(noise[i] - noise[0] < with_this)) break;
    above = with_this;
    used = i + 1;
  }
  const long double level = above + noise[0];
  for (size_t i = 0; i < s.size(); ++i) {
    const bool counts = i < used && s[0] > 0;
    r.w.push_back(counts ? kTwoOverLn2 * std::max(above - (noise[i] - noise[0]), 0.0L) / level / s[i] : 0);
  }
  // A stream that the error may bring into use changes fastest.
  const long double least = s[used - 1] - error, next = used < s.size() ? s[used] + error : 0;
  const bool is_open = least <= 0 || 1 / (static_cast<long double>(snr) * next * next) - noise[0] <= 2 * above;
  const long double any = s[0] > 0 ? snr * level : snr;
  r.lipschitz = 8 * kTwoOverLn2 * (is_open ? any : std::min(1 / (least * least), any));
  return r;
}

inline ReferenceWeights effective_rank_weights(const std::vector<long double>& s) {
  ReferenceWeights r;
  long double sum = 0, entropy = 0, least = s[0];
  for (const long double x : s) sum += x;
  for (const long double x : s) {
    if (x > 0) entropy -= x / sum * std::log(x / sum), least = x;
  }
  const long double rank = std::exp(entropy);
  for (const long double x : s) r.w.push_back(x > 0 ? -rank * (std::log(x / sum) + entropy) / sum : 0);
  const long double digits = 1 + entropy + std::abs(std::log(least / sum));
  r.lipschitz = 4 * rank * digits * digits / (sum * least);
  return r;
}

// U diag(w) V^H, rows x cols, column-major.
inline std::vector<LongComplex> gradient_of(const Matrix& a, const LongSvd& svd, const std::vector<long double>& w) {
  std::vector<LongComplex> g(static_cast<size_t>(a.rows * a.cols));
  for (int64_t j = 0; j < a.cols; ++j) {
    for (int64_t i = 0; i < a.rows; ++i) {
      const size_t row = static_cast<size_t>(svd.wide ? j : i), col = static_cast<size_t>(svd.wide ? i : j);
      LongComplex sum = 0;
      for (size_t l = 0; l < w.size(); ++l) sum += svd.x[l][row] * w[l] * std::conj(svd.y[l][col]);
      g[static_cast<size_t>(j * a.rows + i)] = svd.wide ? std::conj(sum) : sum;
    }
  }
  return g;
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_REFERENCE_GRADIENT_H_
