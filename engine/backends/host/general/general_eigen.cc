#include "engine/backends/host/general/general_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/general/eigen_lapack.h"
#include "engine/backends/host/general/hessenberg.h"
#include "engine/backends/host/general/hessenberg_qr.h"
#include "engine/backends/host/general/triangle_vectors.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// Vectors of a task, and tasks a thread between two reports of progress.
constexpr int64_t kVectorsOfTask = 32;
constexpr int64_t kTasksOfReport = 8;

// Parts of the whole work, as fractions for progress.
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
    const Part part = wanted_ ? Part{0.25, 0.85} : Part{0.4, 1};
    if (!schur_form(threads_, a_, low_, high_, z_, results_.values.data(), report(part))) return false;
    const double middle = results_.right && results_.left ? 0.92 : results_.right ? 1.0 : 0.85;
    if (results_.right) vectors(Side::kRight, results_.right, {0.85, middle});
    if (results_.left) vectors(Side::kLeft, results_.left, {middle, 1});
    tell(1);
    return true;
  }

 private:
  void to_hessenberg() {
    AlignedArray<E> tau;
    tau.reserve(a_.cols + blas::kReadBeyond);
    reduce_to_hessenberg(threads_, a_, low_, high_, tau.data(), report({0, wanted_ ? 0.2 : 0.4}));
    if (wanted_) hessenberg_basis(threads_, a_, low_, high_, tau.data(), z_);
  }

  void tell(double fraction) {
    told_ = std::max(told_, fraction);
    if (progress_) progress_(told_);
  }
  std::function<void(double)> report(Part part) {
    return [this, part](double fraction) { tell(part.first + fraction * (part.last - part.first)); };
  }

  // The vectors of all chunks, those with most work first.
  void vectors(Side side, LargeView<Complex> out, Part part) {
    const std::vector<int64_t> bounds = chunks_of(a_, kVectorsOfTask);
    const int64_t chunks = static_cast<int64_t>(bounds.size()) - 1, some = kTasksOfReport * threads_.threads();
    for (int64_t done = 0; done < chunks; done += some) {
      threads_.for_each(std::min(some, chunks - done), [&](int64_t i) {
        const int64_t chunk = side == Side::kRight ? chunks - 1 - done - i : done + i;
        vectors_of_chunk(side, bounds, chunk, out);
      });
      const double rest = 1 - static_cast<double>(std::min(done + some, chunks)) / static_cast<double>(chunks);
      report(part)(1 - rest * rest);
    }
  }

  void vectors_of_chunk(Side side, const std::vector<int64_t>& bounds, int64_t chunk, LargeView<Complex> out) {
    const int64_t n = a_.cols, first = bounds[chunk], last = bounds[chunk + 1], count = last - first;
    AlignedArray<E> memory;
    memory.reserve(2 * n * count + blas::kReadBeyond);
    const LargeView<E> x{memory.data(), n, count, n}, v{memory.data() + n * count, n, count, n};
    triangle_vectors(threads_, a_, side, bounds, chunk, x);
    threads_.check();
    // Zeros of x are left out.
    const int64_t top = side == Side::kRight ? 0 : first, rows = side == Side::kRight ? last : n - first;
    blas::gemm(false, false, n, count, rows, 1, z_.data + top * z_.ld, z_.ld, x.data + top, n, 0, v.data, n);
    for (int64_t j = first; j < last;) {
      const bool pair = std::is_same_v<E, double> && results_.values[j].imag() != 0;
      finish(side, v.columns(j - first, pair ? 2 : 1), out.columns(j, pair ? 2 : 1));
      j += pair ? 2 : 1;
    }
  }

  // out := the vector of A, of norm 1, and its conjugate beside it.
  void finish(Side side, LargeView<double> v, LargeView<Complex> out) const {
    const double* const imag = v.cols == 2 ? v.data + v.ld : nullptr;
    for (int64_t i = 0; i < v.rows; ++i) out.data[i] = {v.data[i], imag != nullptr ? imag[i] : 0.0};
    unbalance(side, out.data);
    normalize(out.data, v.cols == 2);
    if (v.cols == 2)
      std::transform(out.data, out.data + v.rows, out.data + out.ld, [](Complex z) { return std::conj(z); });
  }
  void finish(Side side, LargeView<Complex> v, LargeView<Complex> out) const {
    std::copy(v.data, v.data + v.rows, out.data);
    unbalance(side, out.data);
    normalize(out.data, true);
  }

  // D is applied with its largest entry of the result near 1, so that nothing overflows; then P.
  void unbalance(Side side, Complex* v) const {
    const int sign = side == Side::kRight ? 1 : -1;
    const auto exponent = [&](int64_t i) { return i < low_ || i >= high_ ? 0 : sign * std::ilogb(scale_[i]); };
    int largest = std::numeric_limits<int>::min();
    for (int64_t i = 0; i < a_.cols; ++i) {
      const double size = std::max(std::abs(v[i].real()), std::abs(v[i].imag()));
      if (size > 0) largest = std::max(largest, std::ilogb(size) + exponent(i));
    }
    for (int64_t i = 0; i < a_.cols; ++i) {
      const int e = exponent(i) - largest;
      v[i] = {std::ldexp(v[i].real(), e), std::ldexp(v[i].imag(), e)};
    }
    for (int64_t i = low_ - 1; i >= 0; --i) std::swap(v[i], v[static_cast<int64_t>(scale_[i]) - 1]);
    for (int64_t i = high_; i < a_.cols; ++i) std::swap(v[i], v[static_cast<int64_t>(scale_[i]) - 1]);
  }

  // Entries are at most 2. turn: the largest becomes real.
  void normalize(Complex* v, bool turn) const {
    double square = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < a_.cols; ++i) {
      square += std::norm(v[i]);
      if (std::norm(v[i]) > std::norm(v[largest])) largest = i;
    }
    const Complex factor =
        turn ? std::conj(v[largest]) / std::abs(v[largest]) / std::sqrt(square) : 1 / std::sqrt(square);
    for (int64_t i = 0; i < a_.cols; ++i) {
      v[i] = {v[i].real() * factor.real() - v[i].imag() * factor.imag(),
              v[i].real() * factor.imag() + v[i].imag() * factor.real()};
    }
    if (turn) v[largest] = v[largest].real();
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
