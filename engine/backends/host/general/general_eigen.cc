#include "engine/backends/host/general/general_eigen.h"

#include <algorithm>
#include <cmath>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/general/eigen_lapack.h"
#include "engine/backends/host/general/hessenberg.h"
#include "engine/backends/host/general/hessenberg_qr.h"
#include "engine/backends/host/general/schur_vectors.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// Parts of the whole time, as fractions for progress. Measured at n = 1000 to 2000.
struct Part {
  double first, last;
};

template <class E>
class GeneralEigen {
 public:
  GeneralEigen(const LargeThreads& threads, LargeView<E> a, const GeneralResults& results,
               const std::function<void(double)>& progress, Balancing& balancing)
      : threads_(threads),
        a_(a),
        results_(results),
        progress_(progress),
        balancing_(balancing),
        wanted_(results.right || results.left) {}

  bool run() {
    const int64_t n = a_.cols;
    results_.values.assign(n, Complex(0));
    if (n == 0) return true;
    scale_.resize(n);
    blas::balance(balancing_.wanted, n, a_.data, a_.ld, low_, high_, scale_.data());
    balancing_.scaled = std::any_of(scale_.begin() + low_, scale_.begin() + high_, [](double d) { return d != 1; });
    if (wanted_) {
      memory_.reserve(n * n + blas::kReadBeyond);
      z_ = {memory_.data(), n, n, n};
    }
    to_hessenberg();
    // The basis is made in memory of its own, so that H needs no copy.
    const bool both = results_.right && results_.left;
    const Part part = !wanted_ ? Part{0.33, 1} : Part{0.25, both ? 0.89 : 0.93};
    if (!schur_form(threads_, a_, low_, high_, z_, results_.values.data(), report(part))) return false;
    const double middle = both ? (part.last + 1) / 2 : 1;
    if (results_.right) vectors(Side::kRight, results_.right, {part.last, middle});
    if (results_.left) vectors(Side::kLeft, results_.left, {both ? middle : part.last, 1});
    tell(1);
    return true;
  }

 private:
  void to_hessenberg() {
    AlignedArray<E> tau;
    tau.reserve(a_.cols + blas::kReadBeyond);
    reduce_to_hessenberg(threads_, a_, low_, high_, tau.data(), report({0, wanted_ ? 0.2 : 0.33}));
    if (wanted_) hessenberg_basis(threads_, a_, low_, high_, tau.data(), z_);
  }

  void tell(double fraction) {
    told_ = std::max(told_, fraction);
    if (progress_) progress_(told_);
  }
  std::function<void(double)> report(Part part) {
    return [this, part](double fraction) { tell(part.first + fraction * (part.last - part.first)); };
  }

  void vectors(Side side, LargeView<Complex> out, Part part) {
    schur_vectors<E>(threads_, {a_, z_, results_.values, low_, high_, scale_}, side, out, report(part));
  }

  const LargeThreads& threads_;
  const LargeView<E> a_;
  const GeneralResults& results_;
  const std::function<void(double)>& progress_;
  Balancing& balancing_;
  const bool wanted_;
  double told_ = 0;
  int64_t low_ = 0, high_ = 0;
  std::vector<double> scale_;
  AlignedArray<E> memory_;
  LargeView<E> z_;
};

}  // namespace

template <class E>
bool general_eigen(const LargeThreads& threads, LargeView<E> a, const GeneralResults& results,
                   const std::function<void(double)>& progress, Balancing* balancing) {
  return GeneralEigen<E>(threads, a, results, progress, *balancing).run();
}

uint64_t general_eigen_bytes(int64_t n, bool complex, bool right, bool left, int threads) {
  const int64_t window = 6 * kMostShifts / 2 + 64, widest = std::max(largest_window(n) + 1, window);
  // Panels and their products; windows, with the rows and columns beside them; work of LAPACK for these.
  const int64_t panels = 8 * kReflectorPanel * n;
  const int64_t windows = 4 * widest * widest + (2 * n + 512) * widest + 128 * widest;
  const int64_t vectors = 2 * n * (kVectorsOfTask + 1) * threads;
  const int64_t basis = right || left ? n * n : 0;
  const int64_t elements = basis + std::max(panels, windows) + (right || left ? vectors : 0) + 16 * n + 4096;
  return static_cast<uint64_t>(elements) * (complex ? sizeof(Complex) : sizeof(double)) + (uint64_t{1} << 20);
}

template bool general_eigen(const LargeThreads&, LargeView<double>, const GeneralResults&,
                            const std::function<void(double)>&, Balancing*);
template bool general_eigen(const LargeThreads&, LargeView<Complex>, const GeneralResults&,
                            const std::function<void(double)>&, Balancing*);

}  // namespace svdserve::host
