#include "engine/backends/host/general/hessenberg_qr.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/numbers.h"
#include "engine/backends/host/general/bulge_sweep.h"
#include "engine/backends/host/general/eigen_lapack.h"
#include "engine/backends/host/general/window_update.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int64_t kPatience = 5;     // iterations without deflation before the window grows
constexpr int64_t kExceptional = 6;  // iterations without deflation before shifts are made up
constexpr int64_t kNibble = 14;      // percent of the window; where more is deflated, the next window comes at once
constexpr int64_t kWidestWindow = 384;
constexpr int64_t kFewestRows = 16;  // of a matrix for which windows are made

// Shifts of a sweep over `rows` rows.
int64_t shifts_for(int64_t rows) {
  int64_t shifts = 2;
  if (rows >= 30) shifts = 4;
  if (rows >= 60) shifts = 10;
  if (rows >= 150) shifts = std::max<int64_t>(10, rows / std::llround(std::log2(static_cast<double>(rows))));
  if (rows >= 590) shifts = 64;
  if (rows >= 3000) shifts = kMostShifts;
  return std::max<int64_t>(2, shifts - shifts % 2);
}

// Eigenvalues of a 2 x 2 matrix.
void values_of_pair(double a, double b, double c, double d, Complex* values) {
  double r1, i1, r2, i2, cosine, sine;
  dlanv2_(&a, &b, &c, &d, &r1, &i1, &r2, &i2, &cosine, &sine);
  values[0] = {r1, i1};
  values[1] = {r2, i2};
}

void values_of_pair(Complex a, Complex b, Complex c, Complex d, Complex* values) {
  const Complex middle = 0.5 * (a + d), half = 0.5 * (a - d), root = std::sqrt(half * half + b * c);
  values[0] = middle + root;
  values[1] = middle - root;
}

// Made up shifts where the others do not help, Wilkinson's: from each second subdiagonal entry.
void exceptional_shifts(LargeView<double> h, int64_t low, int64_t first, int64_t last, Complex* values) {
  const auto at = [&](int64_t i, int64_t j) { return h.data[i + j * h.ld]; };
  for (int64_t i = last; i >= std::max(first + 1, low + 2); i -= 2) {
    const double size = std::abs(at(i, i - 1)) + std::abs(at(i - 1, i - 2)), corner = 0.75 * size + at(i, i);
    values_of_pair(corner, size, -0.4375 * size, corner, values + i - 1);
  }
  if (first == low) values[first] = values[first + 1] = at(first + 1, first + 1);
}
void exceptional_shifts(LargeView<Complex> h, int64_t, int64_t first, int64_t last, Complex* values) {
  for (int64_t i = last; i > first; i -= 2) {
    const Complex corner = h.data[i + i * h.ld];
    values[i] = values[i - 1] = corner + 0.75 * size_of(h.data[i + (i - 1) * h.ld]);
  }
}

// Each pair of a real matrix becomes two real numbers or conjugates. Complex ones may stand in any order.
void pair_up(std::vector<Complex>& shifts, double) {
  for (size_t i = shifts.size(); i >= 3; i -= 2) {
    if (shifts[i - 1].imag() != -shifts[i - 2].imag()) {
      const auto last = shifts.begin() + static_cast<int64_t>(i);
      std::rotate(last - 3, last - 1, last);
    }
  }
}
void pair_up(std::vector<Complex>&, const Complex&) {}

template <class E>
class SchurReduction {
 public:
  SchurReduction(const LargeThreads& threads, LargeView<E> h, int64_t low, int64_t high, LargeView<E> z,
                 Complex* values)
      : threads_(threads),
        h_(h),
        low_(low),
        high_(high),
        whole_(static_cast<bool>(z)),
        values_(values),
        outside_(threads, h, z),
        sweep_(threads, h, outside_) {
    const int64_t width = std::max(largest_window(h.rows), std::min(kSmallBlock, h.rows));
    for (AlignedArray<E>* array : {&v_, &t_, &wv_}) array->reserve(width * width + blas::kReadBeyond);
    deflation_.v = v_.data();
    deflation_.t = t_.data();
    deflation_.wv = wv_.data();
  }

  bool run(const std::function<void(double)>& progress) {
    const int64_t rows = high_ - low_, most = 30 * std::max<int64_t>(10, rows);
    int64_t end = high_;
    for (int64_t iteration = 0; end > low_; ++iteration) {
      threads_.check();
      const double rest = static_cast<double>(end - low_) / static_cast<double>(rows);
      progress(1 - rest * rest);
      if (iteration == most) return false;
      int64_t start = end - 1;
      while (start > low_ && h(start, start - 1) != E(0)) --start;
      if (small_works_ && end - start <= kSmallBlock) {
        end = small_block(start, end);
      } else {
        if (h_.rows < kFewestRows) return false;
        end = iterate(start, end);
      }
    }
    return true;
  }

 private:
  E& h(int64_t i, int64_t j) { return h_.data[i + j * h_.ld]; }

  // Returns the new end of what has not converged.
  int64_t small_block(int64_t start, int64_t end) {
    const int64_t width = end - start;
    if (width == 1) {
      values_[start] = h(start, start);
      return start;
    }
    set_identity(width);
    const int64_t left =
        blas::lahqr(whole_, width, &h(start, start), h_.ld, values_ + start, whole_ ? v_.data() : nullptr, width);
    if (whole_) outside_.apply(start, end, start, width, v_.data(), width);
    if (left > 0) small_works_ = false;
    return start + left;
  }

  void set_identity(int64_t width) {
    std::fill(v_.data(), v_.data() + width * width, E(0));
    for (int64_t i = 0; i < width; ++i) v_[i + i * width] = 1;
  }

  int64_t iterate(int64_t start, int64_t end) {
    int64_t found = 0, deflated = 0;
    deflate(start, end, found, deflated);
    end -= deflated;
    const int64_t rows = end - start;
    // A block that lahqr will take needs no sweep.
    const bool enough = 100 * deflated > window_ * kNibble || rows <= kSmallBlock;
    if (rows > 1 && (deflated == 0 || !enough)) sweep(start, end, found);
    idle_ = deflated > 0 ? 0 : idle_ + 1;
    return end;
  }

  // The window's width: that of the shifts and a half at first, wider and narrower again where nothing is deflated.
  void choose_window(int64_t start, int64_t end) {
    const int64_t rows = end - start, most = std::min(rows, largest_window(h_.rows));
    const int64_t shifts = shifts_for(high_ - low_);
    const int64_t usual = std::min(most, high_ - low_ <= 500 ? shifts : 3 * shifts / 2);
    window_ = std::max<int64_t>(2, idle_ < kPatience ? usual : std::min(most, 2 * window_));
    if (window_ < most && window_ < rows - 1) {
      const int64_t first = end - window_;
      if (size_of(h(first, first - 1)) > size_of(h(first - 1, first - 2))) ++window_;
    }
    if (window_ >= rows - 1 && rows <= most) window_ = rows;
    if (idle_ < kPatience) {
      narrower_ = -1;
    } else if (narrower_ >= 0 || window_ >= most) {
      ++narrower_;
      if (window_ - narrower_ < 2) narrower_ = 0;
      window_ -= narrower_;
    }
  }

  void deflate(int64_t start, int64_t end, int64_t& found, int64_t& deflated) {
    choose_window(start, end);
    const int64_t first = end - window_, front = first > start ? 1 : 0;
    const bool apart = front == 0 || h(first, first - 1) == E(0);
    blas::laqr3(window_ + front, window_, &h(first - front, first - front), h_.ld, scratch(window_ + front), deflation_,
                found, deflated);
    std::copy(scratch_.begin() + front + window_ - deflated - found, scratch_.begin() + front + window_,
              values_ + end - deflated - found);
    if (window_ == 1 || (deflated == 0 && !apart)) return;
    outside_.apply(start, end, first, window_, v_.data(), window_, front);
  }

  Complex* scratch(int64_t size) {
    scratch_.assign(size, Complex(0));
    return scratch_.data();
  }

  // `found` shifts stand before row `end` of values_.
  void sweep(int64_t start, int64_t end, int64_t found) {
    const int64_t n = h_.rows, rows = end - start;
    int64_t wanted = std::min({shifts_for(high_ - low_), (n - 3) / 6, std::max<int64_t>(2, rows - 1)});
    wanted = std::max<int64_t>(2, wanted - wanted % 2);
    int64_t first = end - found;
    if (idle_ > 0 && (idle_ + 1) % kExceptional == 0) {
      first = end - wanted;
      exceptional_shifts(h_, start, first, end - 1, values_);
    } else if (found <= wanted / 2) {
      first = more_shifts(end, wanted);
    }
    std::vector<Complex> shifts(values_ + first, values_ + end);
    if (static_cast<int64_t>(shifts.size()) > wanted) {
      std::stable_sort(shifts.begin(), shifts.end(),
                       [](const Complex& x, const Complex& y) { return size_of(x) > size_of(y); });
    }
    pair_up(shifts, E(0));
    if (shifts.size() == 2) nearer_twice(shifts, h(end - 1, end - 1));
    const size_t take = std::min<size_t>(shifts.size(), wanted) / 2 * 2;
    shifts.erase(shifts.begin(), shifts.end() - take);
    if (!shifts.empty()) sweep_.run(start, end, shifts);
  }

  // Eigenvalues of the block of `wanted` rows before `end`. Returns where they start.
  int64_t more_shifts(int64_t end, int64_t wanted) {
    const int64_t first = end - wanted;
    for (int64_t j = 0; j < wanted; ++j) {
      std::copy(&h(first, first + j), &h(first, first + j) + wanted, t_.data() + j * wanted);
    }
    const int64_t left = wanted > kSmallBlock ? blas::laqr4(wanted, t_.data(), wanted, values_ + first)
                                              : blas::lahqr(false, wanted, t_.data(), wanted, values_ + first,
                                                            static_cast<E*>(nullptr), 1);
    if (first + left < end - 1) return first + left;
    values_of_pair(h(end - 2, end - 2), h(end - 2, end - 1), h(end - 1, end - 2), h(end - 1, end - 1),
                   values_ + end - 2);
    return end - 2;
  }

  // The nearer to the last entry of two real shifts, or of any two of a complex matrix, counts twice.
  static void nearer_twice(std::vector<Complex>& shifts, const Complex& corner) {
    const bool real = std::is_same_v<E, double>;
    if (real && shifts[0].imag() != 0) return;
    const bool second = size_of(shifts[1] - corner) < size_of(shifts[0] - corner);
    shifts[0] = shifts[1] = shifts[second ? 1 : 0];
  }

  const LargeThreads& threads_;
  const LargeView<E> h_;
  const int64_t low_, high_;
  const bool whole_;
  Complex* const values_;
  WindowUpdate<E> outside_;
  BulgeSweep<E> sweep_;
  AlignedArray<E> v_, t_, wv_;
  blas::DeflationWork<E> deflation_;
  std::vector<Complex> scratch_;
  bool small_works_ = true;
  int64_t window_ = 2, narrower_ = -1, idle_ = 0;
};

}  // namespace

int64_t largest_window(int64_t n) { return std::clamp<int64_t>((n - 1) / 3, 2, kWidestWindow); }

template <class E>
bool schur_form(const LargeThreads& threads, LargeView<E> h, int64_t low, int64_t high, LargeView<E> z, Complex* values,
                const std::function<void(double)>& progress) {
  const int64_t n = h.cols;
  for (int64_t j = 0; j < n; ++j) {
    E* const column = h.data + j * h.ld;
    const int64_t first = j >= low && j + 1 < high ? j + 2 : j + 1;
    std::fill(column + std::min(first, n), column + n, E(0));
    if (j < low || j >= high) values[j] = column[j];
  }
  return SchurReduction<E>(threads, h, low, high, z, values).run(progress);
}

template bool schur_form(const LargeThreads&, LargeView<double>, int64_t, int64_t, LargeView<double>, Complex*,
                         const std::function<void(double)>&);
template bool schur_form(const LargeThreads&, LargeView<Complex>, int64_t, int64_t, LargeView<Complex>, Complex*,
                         const std::function<void(double)>&);

}  // namespace svdserve::host
