#include "engine/backends/host/dense/blocked_reflectors.h"

#include <algorithm>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {
namespace {

using large::LargeView;
using large::Op;
using large::PartDone;

// One panel: I - V T V^H, V the columns of `panel` below its diagonal. work: kReflectorPanel numbers a column of c.
template <class E>
class Panel {
 public:
  Panel(LargeView<E> view, const E* tau, E* t) : view_(view), t_(t) {
    blas::larft(view.rows, view.cols, view.data, view.ld, tau, t, kReflectorPanel);
  }
  void apply(const LargeThreads& threads, Op op, LargeView<E> c, E* work) const {
    threads.for_ranges(c.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
      blas::larfb(op == Op::kAdjoint, c.rows, last - first, view_.cols, view_.data, view_.ld, t_, kReflectorPanel,
                  c.data + first * c.ld, c.ld, work + first * kReflectorPanel);
    });
  }

 private:
  LargeView<E> view_;
  const E* t_;
};

// The QR's from column j on, up to a factor.
template <class E>
double operations_left(LargeView<E> a, int64_t j) {
  const auto left = static_cast<double>(a.cols - j), below = static_cast<double>(a.rows - a.cols);
  return left * left * (below / 2 + left / 3);
}

}  // namespace

template <class E>
void factor_qr(const LargeThreads& threads, LargeView<E> a, E* tau, const PartDone& done) {
  AlignedArray<E> t, work;
  t.reserve(kReflectorPanel * kReflectorPanel);
  work.reserve(kReflectorPanel * std::max(kReflectorPanel, a.cols));
  for (int64_t j = 0; j < a.cols; j += kReflectorPanel) {
    threads.check();
    if (done) done(1 - operations_left(a, j) / operations_left(a, 0));
    const int64_t width = std::min(kReflectorPanel, a.cols - j), rows = a.rows - j, right = a.cols - j - width;
    const LargeView<E> panel = a.block(j, j, rows, width);
    blas::geqrf(rows, width, panel.data, a.ld, tau + j, work.data(), kReflectorPanel * width);
    if (right == 0) continue;
    Panel<E>(panel, tau + j, t.data()).apply(threads, Op::kAdjoint, a.block(j, j + width, rows, right), work.data());
  }
}

template <class E>
void apply_reflectors(const LargeThreads& threads, Op op, LargeView<E> a, const E* tau, LargeView<E> c,
                      const PartDone& done) {
  AlignedArray<E> t, work;
  t.reserve(kReflectorPanel * kReflectorPanel);
  work.reserve(kReflectorPanel * c.cols);
  const int64_t panels = (a.cols + kReflectorPanel - 1) / kReflectorPanel;
  for (int64_t i = 0; i < panels; ++i) {
    threads.check();
    const int64_t j = (op == Op::kAdjoint ? i : panels - 1 - i) * kReflectorPanel;
    if (done) done(static_cast<double>(i) / static_cast<double>(panels));
    const int64_t width = std::min(kReflectorPanel, a.cols - j), rows = a.rows - j;
    Panel<E>(a.block(j, j, rows, width), tau + j, t.data())
        .apply(threads, op, c.block(j, 0, rows, c.cols), work.data());
  }
}

template void factor_qr(const LargeThreads&, LargeView<double>, double*, const PartDone&);
template void factor_qr(const LargeThreads&, LargeView<Complex>, Complex*, const PartDone&);
template void apply_reflectors(const LargeThreads&, Op, LargeView<float>, const float*, LargeView<float>,
                               const PartDone&);
template void apply_reflectors(const LargeThreads&, Op, LargeView<ComplexFloat>, const ComplexFloat*,
                               LargeView<ComplexFloat>, const PartDone&);
template void apply_reflectors(const LargeThreads&, Op, LargeView<double>, const double*, LargeView<double>,
                               const PartDone&);
template void apply_reflectors(const LargeThreads&, Op, LargeView<Complex>, const Complex*, LargeView<Complex>,
                               const PartDone&);

}  // namespace svdserve::host
