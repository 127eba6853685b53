#include "engine/backends/host/general/schur_vectors.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"

namespace svdserve::host {
namespace {

using large::LargeView;

// Tasks a thread between two reports of progress.
constexpr int64_t kTasksOfReport = 8;

template <class E>
class SchurVectors {
 public:
  SchurVectors(const LargeThreads& threads, const SchurForm<E>& form) : threads_(threads), form_(form) {}

  // The vectors of all chunks, those with most work first.
  void run(Side side, LargeView<Complex> out, const std::function<void(double)>& tell) const {
    const std::vector<int64_t> bounds = chunks_of(form_.t, kVectorsOfTask);
    const int64_t chunks = static_cast<int64_t>(bounds.size()) - 1, some = kTasksOfReport * threads_.threads();
    for (int64_t done = 0; done < chunks; done += some) {
      threads_.for_each(std::min(some, chunks - done), [&](int64_t i) {
        const int64_t chunk = side == Side::kRight ? chunks - 1 - done - i : done + i;
        vectors_of_chunk(side, bounds, chunk, out);
      });
      const double rest = 1 - static_cast<double>(std::min(done + some, chunks)) / static_cast<double>(chunks);
      if (tell) tell(1 - rest * rest);
    }
  }

 private:
  void vectors_of_chunk(Side side, const std::vector<int64_t>& bounds, int64_t chunk, LargeView<Complex> out) const {
    const int64_t n = form_.t.cols, first = bounds[chunk], last = bounds[chunk + 1], count = last - first;
    AlignedArray<E> memory;
    memory.reserve(2 * n * count + blas::kReadBeyond);
    const LargeView<E> x{memory.data(), n, count, n}, v{memory.data() + n * count, n, count, n};
    triangle_vectors(threads_, form_.t, side, bounds, chunk, x);
    threads_.check();
    // Zeros of x are left out.
    const int64_t top = side == Side::kRight ? 0 : first, rows = side == Side::kRight ? last : n - first;
    blas::gemm(false, false, n, count, rows, 1, form_.z.data + top * form_.z.ld, form_.z.ld, x.data + top, n, 0, v.data,
               n);
    for (int64_t j = first; j < last;) {
      const bool pair = std::is_same_v<E, double> && form_.values[j].imag() != 0;
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
    const auto exponent = [&](int64_t i) {
      return i < form_.low || i >= form_.high ? 0 : sign * std::ilogb(form_.scale[i]);
    };
    int largest = std::numeric_limits<int>::min();
    for (int64_t i = 0; i < form_.t.cols; ++i) {
      const double size = std::max(std::abs(v[i].real()), std::abs(v[i].imag()));
      if (size > 0) largest = std::max(largest, std::ilogb(size) + exponent(i));
    }
    for (int64_t i = 0; i < form_.t.cols; ++i) {
      const int e = exponent(i) - largest;
      v[i] = {std::ldexp(v[i].real(), e), std::ldexp(v[i].imag(), e)};
    }
    for (int64_t i = form_.low - 1; i >= 0; --i) std::swap(v[i], v[static_cast<int64_t>(form_.scale[i]) - 1]);
    for (int64_t i = form_.high; i < form_.t.cols; ++i) std::swap(v[i], v[static_cast<int64_t>(form_.scale[i]) - 1]);
  }

  // Entries are at most 2. turn: the largest becomes real.
  void normalize(Complex* v, bool turn) const {
    double square = 0;
    int64_t largest = 0;
    for (int64_t i = 0; i < form_.t.cols; ++i) {
      square += std::norm(v[i]);
      if (std::norm(v[i]) > std::norm(v[largest])) largest = i;
    }
    const Complex factor =
        turn ? std::conj(v[largest]) / std::abs(v[largest]) / std::sqrt(square) : 1 / std::sqrt(square);
    for (int64_t i = 0; i < form_.t.cols; ++i) {
      v[i] = {v[i].real() * factor.real() - v[i].imag() * factor.imag(),
              v[i].real() * factor.imag() + v[i].imag() * factor.real()};
    }
    if (turn) v[largest] = v[largest].real();
  }

  const LargeThreads& threads_;
  const SchurForm<E>& form_;
};

}  // namespace

template <class E>
void schur_vectors(const LargeThreads& threads, const SchurForm<E>& form, Side side, LargeView<Complex> out,
                   const std::function<void(double)>& tell) {
  SchurVectors<E>(threads, form).run(side, out, tell);
}

template void schur_vectors(const LargeThreads&, const SchurForm<double>&, Side, LargeView<Complex>,
                            const std::function<void(double)>&);
template void schur_vectors(const LargeThreads&, const SchurForm<Complex>&, Side, LargeView<Complex>,
                            const std::function<void(double)>&);

}  // namespace svdserve::host
