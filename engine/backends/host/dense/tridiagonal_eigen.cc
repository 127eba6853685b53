#include "engine/backends/host/dense/tridiagonal_eigen.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"

namespace svdserve::host {
namespace {

using large::LargeView;

constexpr int64_t kLeaf = 32;
// Roots, or rows, of a task.
constexpr int64_t kRootsOfTask = 64;

// Joins rows and columns 0 .. cut - 1 and cut .. n - 1 of q, each with sorted eigenvalues by its part of `order`
// (LAPACK's, from 1 on), as ?laed1 does. One object a join.
template <class T>
class Join {
 public:
  Join(const LargeThreads& threads, LargeView<T> q, int64_t cut, T* d, BlasInt* order)
      : threads_(threads), q_(q), cut_(cut), d_(d), order_(order) {}

  bool run(T off_diagonal) {
    deflate(off_diagonal);
    if (!ok_) return false;
    if (k_ == 0) {
      for (int64_t i = 0; i < q_.rows; ++i) order_[i] = BlasInt(i + 1);
      return true;
    }
    roots();
    if (!ok_) return false;
    if (k_ > 2) {
      improve_z();
      vectors();
    } else if (k_ == 2) {
      permute_pair();
    }
    multiply();
    blas::lamrg(k_, BlasInt(q_.rows) - k_, d_, 1, -1, order_);
    return true;
  }

 private:
  T& q(int64_t i, int64_t j) { return q_.data[i + j * q_.ld]; }

  // z, the last row of the upper half's vectors and the first of the lower's, is what joins the halves. Leaves k_ roots
  // to find, with poles poles_ and weights weights_, the vectors to combine packed in packed_.
  void deflate(T off_diagonal) {
    const int64_t n = q_.rows;
    z_.resize(n);
    poles_.resize(n);
    weights_.resize(n);
    packed_.reserve(n * n);  // deflated vectors have all their rows in it
    index_.resize(n + 1);    // ?laed2 reads one element beyond the n that it documents
    source_.resize(n);
    types_.resize(std::max<int64_t>(n, 4));
    std::vector<BlasInt> deflated(n);
    for (int64_t j = 0; j < cut_; ++j) z_[j] = q(cut_ - 1, j);
    for (int64_t j = cut_; j < n; ++j) z_[j] = q(cut_, j);
    rho_ = off_diagonal;
    ok_ = blas::laed2(&k_, BlasInt(n), BlasInt(cut_), d_, q_.data, BlasInt(q_.ld), order_, &rho_, z_.data(),
                      poles_.data(), weights_.data(), packed_.data(), index_.data(), source_.data(), deflated.data(),
                      types_.data()) == 0;
  }

  // Column j of q := pole_i - root_j (of k_ <= 2: LAPACK's vectors).
  void roots() {
    std::atomic<bool> failed{false};
    threads_.for_ranges(k_, kRootsOfTask, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        const BlasInt info = blas::laed4(k_, BlasInt(j + 1), poles_.data(), weights_.data(), &q(0, j), rho_, &d_[j]);
        if (info != 0) failed.store(true, std::memory_order_relaxed);
      }
    });
    ok_ = !failed;
  }

  void permute_pair() {
    for (int64_t j = 0; j < 2; ++j) {
      const T pair[2] = {q(0, j), q(1, j)};
      for (int64_t i = 0; i < 2; ++i) q(i, j) = pair[source_[i] - 1];
    }
  }

  // Gu and Eisenstat: weights of which the computed roots are the exact ones, so that the vectors are orthogonal.
  void improve_z() {
    std::vector<T> improved(k_);
    threads_.for_ranges(k_, kRootsOfTask, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) improved[i] = q(i, i);
      for (int64_t j = 0; j < k_; ++j) {
        for (int64_t i = first; i < last; ++i) {
          if (i != j) improved[i] *= q(i, j) / (poles_[i] - poles_[j]);
        }
      }
      for (int64_t i = first; i < last; ++i) improved[i] = std::copysign(std::sqrt(-improved[i]), weights_[i]);
    });
    weights_ = std::move(improved);
  }

  void vectors() {
    threads_.for_ranges(k_, kRootsOfTask, [&](int64_t first, int64_t last) {
      std::vector<T> s(k_);
      for (int64_t j = first; j < last; ++j) {
        double square = 0;  // a sum of so many floats would lose more than all else
        for (int64_t i = 0; i < k_; ++i) {
          s[i] = weights_[i] / q(i, j);
          square += double(s[i]) * double(s[i]);
        }
        const T norm = T(std::sqrt(square));
        for (int64_t i = 0; i < k_; ++i) q(i, j) = s[source_[i] - 1] / norm;
      }
    });
  }

  // q := packed vectors times the joint ones. types_ counts columns with rows of the upper half alone, of both, and of
  // the lower half alone.
  void multiply() {
    const int64_t low = q_.rows - cut_;
    const int64_t upper = types_[0] + types_[1], lower = types_[1] + types_[2];
    threads_.for_ranges(k_, kLevel3Columns, [&](int64_t first, int64_t last) {
      const int64_t columns = last - first;
      AlignedArray<T> s;
      s.reserve(std::max<int64_t>(k_, 1) * columns);
      for (int64_t j = 0; j < columns; ++j) std::copy(&q(0, first + j), &q(0, first + j) + k_, s.data() + j * k_);
      product(cut_, columns, upper, packed_.data(), s.data(), &q(0, first));
      product(low, columns, lower, packed_.data() + cut_ * upper, s.data() + types_[0], &q(cut_, first));
    });
  }

  void product(int64_t rows, int64_t columns, int64_t inner, const T* packed, const T* s, T* target) {
    if (inner > 0) {
      blas::gemm(false, false, rows, columns, inner, 1, packed, rows, s, k_, 0, target, q_.ld);
      return;
    }
    for (int64_t j = 0; j < columns; ++j) std::fill(target + j * q_.ld, target + j * q_.ld + rows, T(0));
  }

  const LargeThreads& threads_;
  const LargeView<T> q_;
  const int64_t cut_;
  T* const d_;
  BlasInt* const order_;
  bool ok_ = true;
  BlasInt k_ = 0;
  T rho_ = 0;
  std::vector<T> z_, poles_, weights_;
  AlignedArray<T> packed_;
  std::vector<BlasInt> index_, source_, types_;
};

// First rows of the blocks that T is torn into: a power of two of them, and n at the end.
std::vector<int64_t> tear(int64_t n) {
  std::vector<int64_t> sizes = {n};
  while (sizes.back() > kLeaf) {
    std::vector<int64_t> halves;
    for (const int64_t size : sizes) halves.insert(halves.end(), {size / 2, size - size / 2});
    sizes = std::move(halves);
  }
  std::vector<int64_t> starts = {0};
  for (const int64_t size : sizes) starts.push_back(starts.back() + size);
  return starts;
}

}  // namespace

template <class T>
bool tridiagonal_eigen(const LargeThreads& threads, std::vector<T>& d, std::vector<T>& e, LargeView<T> q,
                       std::vector<int64_t>& order) {
  const int64_t n = q.rows;
  std::vector<int64_t> starts = tear(n);
  for (size_t b = 1; b + 1 < starts.size(); ++b) {
    const T size = std::abs(e[starts[b] - 1]);
    d[starts[b] - 1] -= size;
    d[starts[b]] -= size;
  }
  std::vector<BlasInt> indices(n);
  std::atomic<bool> failed{false};
  threads.for_ranges(n, kRootsOfTask, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) std::fill(q.data + j * q.ld, q.data + j * q.ld + n, T(0));
  });
  threads.for_each(static_cast<int64_t>(starts.size()) - 1, [&](int64_t b) {
    const int64_t first = starts[b], size = starts[b + 1] - first;
    T work[2 * kLeaf];
    const BlasInt info = blas::steqr(BlasInt(size), d.data() + first, e.data() + first, q.data + first + first * q.ld,
                                     BlasInt(q.ld), work);
    if (info != 0) failed.store(true, std::memory_order_relaxed);
    for (int64_t i = 0; i < size; ++i) indices[first + i] = BlasInt(i + 1);
  });
  const LargeThreads alone(nullptr, 1, nullptr);
  while (starts.size() > 2 && !failed) {
    const int64_t joins = static_cast<int64_t>(starts.size()) / 2;
    const auto join = [&](int64_t i, const LargeThreads& own) {
      const int64_t first = starts[2 * i], cut = starts[2 * i + 1] - first, size = starts[2 * i + 2] - first;
      Join<T> task(own, q.block(first, first, size, size), cut, d.data() + first, indices.data() + first);
      if (!task.run(e[first + cut - 1])) failed.store(true, std::memory_order_relaxed);
    };
    if (joins >= 2 * threads.threads()) {
      threads.for_each(joins, [&](int64_t i) { join(i, alone); });
    } else {
      for (int64_t i = 0; i < joins; ++i) join(i, threads);
    }
    std::vector<int64_t> next;
    for (size_t b = 0; b < starts.size(); b += 2) next.push_back(starts[b]);
    starts = std::move(next);
  }
  order.resize(n);
  for (int64_t i = 0; i < n; ++i) order[i] = indices[i] - 1;
  return !failed;
}

template bool tridiagonal_eigen(const LargeThreads&, std::vector<float>&, std::vector<float>&, LargeView<float>,
                                std::vector<int64_t>&);
template bool tridiagonal_eigen(const LargeThreads&, std::vector<double>&, std::vector<double>&, LargeView<double>,
                                std::vector<int64_t>&);

}  // namespace svdserve::host
