// Temporary while the lane kernels are being built.
#include "engine/svd_engine.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <thread>
#include <vector>

namespace svdserve {
struct SvdEngine::Impl { int threads; };
bool is_supported(Simd simd) { return simd == Simd::kScalar || simd == Simd::kBest; }
SvdEngine::SvdEngine(const EngineOptions& o) : impl_(new Impl{o.threads > 0 ? o.threads : (int)std::thread::hardware_concurrency()}) {}
SvdEngine::~SvdEngine() = default;
int SvdEngine::threads() const { return impl_->threads; }
Simd SvdEngine::simd() const { return Simd::kScalar; }
namespace {
template <class T> double re(T x) { return std::real(x); }
template <class E, class R> MatrixStatus one(const Problem& p, const char* in, char* out) {
  int64_t m = p.rows, n = p.cols; std::vector<E> raw(m * n); std::memcpy(raw.data(), in, raw.size() * sizeof(E));
  const int64_t k = std::min(m, n), l = std::max(m, n);
  std::vector<std::vector<std::complex<double>>> a(k, std::vector<std::complex<double>>(l));
  bool finite = true;
  for (int64_t i = 0; i < m; ++i) for (int64_t j = 0; j < n; ++j) {
    E x = raw[p.order == Order::kRowMajor ? i * n + j : j * m + i]; std::complex<double> z(x);
    finite = finite && std::isfinite(z.real()) && std::isfinite(z.imag());
    if (m >= n) a[j][i] = z; else a[i][j] = std::conj(z);
  }
  std::vector<R> s(k, std::nan(""));
  if (finite) {
    for (int sweep = 0; sweep < 30; ++sweep) for (int64_t q = 1; q < k; ++q) for (int64_t pp = 0; pp < q; ++pp) {
      double x = 0, y = 0; std::complex<double> g = 0;
      for (int64_t i = 0; i < l; ++i) { x += std::norm(a[pp][i]); y += std::norm(a[q][i]); g += std::conj(a[pp][i]) * a[q][i]; }
      double ga = std::abs(g); if (ga <= 1e-15 * std::sqrt(x * y) || ga == 0) continue;
      std::complex<double> ph = g / ga; double z = (y - x) / (2 * ga), t = (z >= 0 ? 1 : -1) / (std::abs(z) + std::sqrt(1 + z * z)), c = 1 / std::sqrt(1 + t * t), sn = c * t;
      for (int64_t i = 0; i < l; ++i) { auto u = a[pp][i], v = std::conj(ph) * a[q][i]; a[pp][i] = c * u - sn * v; a[q][i] = sn * u + c * v; }
    }
    for (int64_t j = 0; j < k; ++j) { double x = 0; for (auto z : a[j]) x += std::norm(z); s[j] = (R)std::sqrt(x); }
    std::sort(s.rbegin(), s.rend());
  }
  std::memcpy(out, s.data(), k * sizeof(R));
  return finite ? MatrixStatus::kOk : MatrixStatus::kNonFinite;
}
}  // namespace
SvdEngine::Outcome SvdEngine::execute(const Plan& plan, absl::Span<const HostSegment> segs, const std::atomic<bool>* cancel) const {
  Outcome o; const Problem& p = plan.problem;
  for (const HostSegment& b : segs) for (int64_t i = 0; i < b.count; ++i) {
    if (cancel && cancel->load()) return o;
    const char* in = (const char*)b.matrices + i * matrix_bytes(p); char* out = (char*)b.values + i * result_bytes(p);
    MatrixStatus s = p.dtype == DType::kF32 ? one<float, float>(p, in, out) : p.dtype == DType::kF64 ? one<double, double>(p, in, out)
      : p.dtype == DType::kC64 ? one<std::complex<float>, float>(p, in, out) : one<std::complex<double>, double>(p, in, out);
    if (b.statuses) b.statuses[i] = s;
    (s == MatrixStatus::kOk ? o.report.ok : o.report.non_finite)++;
  }
  o.completed = true; return o;
}
}  // namespace svdserve
