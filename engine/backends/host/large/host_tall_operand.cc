#include "engine/backends/host/large/host_tall_operand.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <numeric>
#include <utility>

#include "engine/backends/host/dense/blas.h"
#include "engine/backends/host/dense/blocked_reflectors.h"
#include "engine/backends/host/large/large_conversion.h"
#include "engine/backends/host/large/scaled_columns.h"
#include "engine/planner.h"

namespace svdserve::host {
namespace {

using large::kZeroColumn;
using large::LargeView;
using large::LoadReport;
using large::ScaledNorm;

// Exponents that the largest entry of a row may have: of scaled columns it is at most 1.
constexpr int kLeastExponent = -1075, kMostExponent = 1;

// Rows between the columns of a block, lest they all fall into the same lines of the cache.
constexpr int64_t kPadding = 8;

bool is_wide(const LargePlan& plan) { return plan.problem.rows < plan.problem.cols; }
int64_t longer(const LargePlan& plan) { return std::max(plan.problem.rows, plan.problem.cols); }
int64_t shorter(const LargePlan& plan) { return std::min(plan.problem.rows, plan.problem.cols); }
// Columns of the long basis.
int64_t basis_columns(const LargePlan& plan) { return is_wide(plan) ? plan.right_rows : plan.left_columns; }

// The long basis, m x n of the tall matrix: U, or the V^H of a wide operand.
Problem problem_of_basis(const LargePlan& plan) {
  Problem p = plan.problem;
  (is_wide(plan) ? p.rows : p.cols) = shorter(plan);
  return p;
}

// sqrt(x^2 + y^2)
ScaledNorm joined(const ScaledNorm& x, const ScaledNorm& y) {
  if (x.mantissa == 0) return y;
  if (y.mantissa == 0) return x;
  const int exponent = std::max(x.exponent, y.exponent);
  const double a = std::ldexp(x.mantissa, x.exponent - exponent), b = std::ldexp(y.mantissa, y.exponent - exponent);
  int more;
  const double mantissa = std::frexp(std::sqrt(a * a + b * b), &more);
  return {mantissa, exponent + more};
}

// The exponent of the largest entry of a row, of all that one may have; of a row of zeros the least.
int16_t row_exponent(double largest) {
  int exponent = kLeastExponent;
  if (largest > 0) std::frexp(largest, &exponent);
  return static_cast<int16_t>(std::clamp(exponent, kLeastExponent, kMostExponent));
}

// Rows by descending exponent, those of one exponent as they were.
std::vector<int32_t> descending_order(const std::vector<int16_t>& exponents) {
  std::vector<int32_t> next(kMostExponent - kLeastExponent + 2, 0), order(exponents.size());
  for (const int16_t e : exponents) ++next[kMostExponent - e + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  for (size_t i = 0; i < exponents.size(); ++i) order[next[kMostExponent - exponents[i]]++] = static_cast<int32_t>(i);
  return order;
}

}  // namespace

bool takes_tall_operand(const LargePlan& plan) {
  return is_host_large_tall(longer(plan), shorter(plan)) &&
         std::max(plan.left_columns, plan.right_rows) <= shorter(plan);
}

uint64_t tall_operand_bytes(const LargePlan& plan, int threads) {
  const uint64_t m = longer(plan), n = shorter(plan), element = is_complex(plan.problem.dtype) ? 16 : 8;
  const uint64_t b = host_large_block_rows(shorter(plan));
  const uint64_t chains = host_large_chains(longer(plan), shorter(plan), threads);
  const bool vectors = plan.left_columns > 0;
  // Each chain has the reflectors of its head, a triangle and a block; where there is a basis, also a core and another
  // block. The second term is tau.
  const uint64_t of_chain = 2 * n * n + (b + kPadding) * n;
  uint64_t entries = chains * of_chain + (m / b + 1 + 2 * chains) * n;
  if (vectors) entries += chains * (n * n + (b + kPadding) * n);
  return entries * element + chains * StackedQr<Complex>::scratch_bytes(shorter(plan)) +
         m * (sizeof(int32_t) + sizeof(int16_t));
}

template <class E>
HostTallOperand<E>::HostTallOperand(const LargeThreads& threads, const LargePlan& plan, const LargeOperands& operands,
                                    std::function<void(double)> count_flops)
    : threads_(threads),
      inner_(host_large_chains(longer(plan), shorter(plan), threads.threads()) < threads.threads() ? threads
                                                                                                   : threads.alone()),
      plan_(plan),
      operand_(operands.matrix),
      // A basis of fewer columns has no room for reflectors: it is made otherwise (leading_triplets.h).
      basis_(basis_columns(plan) < shorter(plan) ? nullptr
             : is_wide(plan)                     ? operands.right
                                                 : operands.left),
      count_flops_(std::move(count_flops)),
      m_(longer(plan)),
      n_(shorter(plan)),
      block_rows_(host_large_block_rows(n_)),
      chains_(host_large_chains(m_, n_, threads.threads())),
      operand_rows_(plan.problem, is_wide(plan)),
      basis_rows_(problem_of_basis(plan), is_wide(plan)) {}

template <class E>
LargeView<E> HostTallOperand<E>::view(AlignedArray<E>& memory, int64_t rows) const {
  memory.reserve(static_cast<size_t>((block_rows_ + kPadding) * n_));
  return {memory.data(), rows, n_, rows + kPadding};
}

// Rows before they are sorted.
template <class E>
const int32_t* HostTallOperand<E>::natural_rows(int64_t first, int64_t rows, Buffers& buffers) {
  buffers.rows.resize(rows);
  std::iota(buffers.rows.begin(), buffers.rows.end(), static_cast<int32_t>(first));
  return buffers.rows.data();
}

template <class E>
template <class F>
void HostTallOperand<E>::for_blocks(int64_t chain, int64_t from, const F& f) const {
  for (int64_t i = chain; i < blocks(from); i += chains_) {
    threads_.check();
    const int64_t first = from + i * block_rows_;
    f(i, first, std::min(block_rows_, m_ - first));
  }
}

template <class E>
template <class F>
void HostTallOperand<E>::for_chains(const F& f) const {
  threads_.for_each(chains_, [&](int64_t chain) {
    Buffers buffers;
    f(chain, buffers);
  });
}

template <class E>
LoadReport HostTallOperand<E>::scan(int32_t* f) {
  std::vector<std::vector<ScaledNorm>> norms(chains_, std::vector<ScaledNorm>(n_));
  std::atomic<bool> finite{true};
  for_chains([&](int64_t chain, Buffers& buffers) {
    for_blocks(chain, 0, [&](int64_t, int64_t first, int64_t rows) {
      if (!finite) return;
      const View block = view(buffers.block, rows);
      if (!operand_rows_.gather(operand_, natural_rows(first, rows, buffers), nullptr, nullptr, block)) finite = false;
      for (int64_t j = 0; j < n_ && finite; ++j) {
        ScaledNorm& norm = norms[chain][j];
        norm = joined(norm, norm_of(numbers(block.data + j * block.ld), number_count<E>(rows)));
      }
    });
  });
  if (!finite) return find_fault(operand_, plan_.problem);
  norms_ = norms[0];
  for (int64_t j = 0; j < n_; ++j) {
    for (int64_t chain = 1; chain < chains_; ++chain) norms_[j] = joined(norms_[j], norms[chain][j]);
    f[j] = norms_[j].mantissa > 0 ? norms_[j].exponent : kZeroColumn;
  }
  return {};
}

// Finds order_. Returns a number for each of the first n rows in that order. It is no smaller than the entries of the
// rows from there on, and less than twice the largest of them.
template <class E>
std::vector<double> HostTallOperand<E>::sort_rows(const std::vector<ExactScale>& scale,
                                                  const std::vector<int64_t>& columns) {
  std::vector<int16_t> exponents(m_);
  for_chains([&](int64_t chain, Buffers& buffers) {
    std::vector<double> largest(block_rows_);
    for_blocks(chain, 0, [&](int64_t, int64_t first, int64_t rows) {
      const View block = view(buffers.block, rows);
      operand_rows_.gather(operand_, natural_rows(first, rows, buffers), columns.data(), scale.data(), block);
      std::fill(largest.begin(), largest.end(), 0.0);
      for (int64_t j = 0; j < n_; ++j) {
        const E* const column = block.data + j * block.ld;
        for (int64_t k = 0; k < rows; ++k) largest[k] = std::max(largest[k], magnitude(column[k]));
      }
      std::transform(largest.begin(), largest.begin() + rows, exponents.begin() + first, row_exponent);
    });
  });
  order_ = descending_order(exponents);
  std::vector<double> bounds(n_);
  for (int64_t j = 0; j < n_; ++j) bounds[j] = std::ldexp(1.0, exponents[order_[j]]);
  return bounds;
}

template <class E>
std::vector<double> HostTallOperand<E>::reduce(const std::vector<int64_t>& columns, View r) {
  std::vector<ExactScale> scale(n_);
  for (int64_t j = 0; j < n_; ++j) {
    const ScaledNorm& norm = norms_[columns[j]];
    if (norm.mantissa > 0) scale[j] = exact_scale(-norm.exponent);
  }
  std::vector<double> bounds = sort_rows(scale, columns);
  reserve_reflectors();
  const auto triangle = [&](int64_t chain) { return chain == 0 ? r : View{joints_[chain].data(), n_, n_, n_}; };
  for_chains([&](int64_t chain, Buffers& buffers) { reduce_chain(chain, buffers, columns, scale, triangle(chain)); });
  StackedQr<E> qr(threads_, n_);
  for (int64_t chain = 1; chain < chains_; ++chain) qr.factor(r, triangle(chain), joint_taus_.data() + chain * n_);
  const double m = double(m_), n = double(n_);
  count_flops_(2 * n * n * (m - n / 3));
  return bounds;
}

template <class E>
void HostTallOperand<E>::reserve_reflectors() {
  taus_.reserve(static_cast<size_t>(blocks(heads_rows()) * n_));
  head_taus_.reserve(static_cast<size_t>(chains_ * n_));
  joint_taus_.reserve(static_cast<size_t>(chains_ * n_));
  heads_.resize(chains_);
  joints_.resize(chains_);
  for (int64_t chain = 0; chain < chains_; ++chain) {
    heads_[chain].reserve(static_cast<size_t>(n_ * n_));
    if (chain > 0) joints_[chain].reserve(static_cast<size_t>(n_ * n_));
  }
}

template <class E>
void HostTallOperand<E>::reduce_chain(int64_t chain, Buffers& buffers, const std::vector<int64_t>& columns,
                                      const std::vector<ExactScale>& scale, View r) {
  const View head = {heads_[chain].data(), n_, n_, n_};
  operand_rows_.gather(operand_, order_.data() + chain * n_, columns.data(), scale.data(), head);
  factor_qr(inner_, head, head_taus_.data() + chain * n_);
  for (int64_t j = 0; j < n_; ++j) {
    std::copy_n(head.data + j * n_, j + 1, r.data + j * r.ld);
    std::fill_n(r.data + j * r.ld + j + 1, n_ - j - 1, E(0));
  }
  StackedQr<E> qr(inner_, n_);
  for_blocks(chain, heads_rows(), [&](int64_t i, int64_t first, int64_t rows) {
    const View block = view(buffers.block, rows);
    operand_rows_.gather(operand_, order_.data() + first, columns.data(), scale.data(), block);
    qr.factor(r, block, taus_.data() + i * n_);
    if (basis_ != nullptr) basis_rows_.scatter(block, order_.data() + first, basis_);
  });
}

template <class E>
void HostTallOperand<E>::expand(View core) {
  std::vector<AlignedArray<E>> memory(chains_);
  std::vector<View> cores(chains_, core);
  StackedQr<E> qr(threads_, n_);
  for (int64_t chain = chains_ - 1; chain > 0; --chain) {
    memory[chain].reserve(static_cast<size_t>(n_ * n_));
    cores[chain] = {memory[chain].data(), n_, n_, n_};
    qr.expand({joints_[chain].data(), n_, n_, n_}, joint_taus_.data() + chain * n_, core, cores[chain]);
  }
  for_chains([&](int64_t chain, Buffers& buffers) { expand_chain(chain, buffers, cores[chain]); });
  count_flops_(4 * double(n_) * double(n_) * (double(m_) - double(n_) / 2));
}

// Takes the chain's blocks in reverse. Each turns the core it is given into the core of the block before, and into its
// own rows of the basis. The core that is left after the first block is the head's.
template <class E>
void HostTallOperand<E>::expand_chain(int64_t chain, Buffers& buffers, View core) {
  StackedQr<E> qr(inner_, n_);
  const int64_t count_of_chain = (blocks(heads_rows()) - chain + chains_ - 1) / chains_;
  for (int64_t i = chain + (count_of_chain - 1) * chains_; i >= 0; i -= chains_) {
    threads_.check();
    const int64_t first = heads_rows() + i * block_rows_, count = std::min(block_rows_, m_ - first);
    const View block = view(buffers.block, count), rows = view(buffers.other, count);
    basis_rows_.gather(basis_, order_.data() + first, nullptr, nullptr, block);
    qr.expand(block, taus_.data() + i * n_, core, rows);
    basis_rows_.scatter(rows, order_.data() + first, basis_);
  }
  apply_reflectors(inner_, large::Op::kNone, {heads_[chain].data(), n_, n_, n_}, head_taus_.data() + chain * n_, core);
  basis_rows_.scatter(core, order_.data() + chain * n_, basis_);
}

// Reflectors are for the basis alone.
template <class E>
void HostTallOperand<E>::visit_factors(const large::VisitBytes& visit) {
  const auto numbers = [&](AlignedArray<E>& array, int64_t count) {
    visit(array.data(), static_cast<uint64_t>(count) * sizeof(E));
  };
  norms_.resize(static_cast<size_t>(n_));
  order_.resize(static_cast<size_t>(m_));
  visit(norms_.data(), norms_.size() * sizeof(ScaledNorm));
  visit(order_.data(), order_.size() * sizeof(int32_t));
  if (basis_ == nullptr) return;
  reserve_reflectors();
  numbers(taus_, blocks(heads_rows()) * n_);
  numbers(head_taus_, chains_ * n_);
  numbers(joint_taus_, chains_ * n_);
  for (int64_t chain = 0; chain < chains_; ++chain) {
    numbers(heads_[chain], n_ * n_);
    if (chain > 0) numbers(joints_[chain], n_ * n_);
  }
  visit(basis_, is_wide(plan_) ? plan_.right_bytes() : plan_.left_bytes());
}

template <class E>
void HostTallOperand<E>::gram_of_basis(View square) {
  std::vector<AlignedArray<E>> sums(chains_);
  for_chains([&](int64_t chain, Buffers& buffers) {
    sums[chain].reserve(static_cast<size_t>(n_ * n_));
    E* const sum = sums[chain].data();
    std::fill_n(sum, n_ * n_, E(0));
    for_blocks(chain, 0, [&](int64_t, int64_t start, int64_t rows) {
      const View block = view(buffers.block, rows);
      basis_rows_.gather(basis_, order_.data() + start, nullptr, nullptr, block);
      inner_.for_ranges(n_, kLevel3Columns, [&](int64_t first, int64_t last) {
        blas::gemm(true, false, n_, last - first, block.rows, 1, block.data, block.ld, block.data + first * block.ld,
                   block.ld, 1, sum + first * n_, n_);
      });
    });
  });
  for (int64_t j = 0; j < n_; ++j) {
    E* const column = square.data + j * square.ld;
    std::copy_n(sums[0].data() + j * n_, n_, column);
    for (int64_t chain = 1; chain < chains_; ++chain) {
      for (int64_t i = 0; i < n_; ++i) column[i] += sums[chain][j * n_ + i];
    }
  }
}

template <class E>
double HostTallOperand<E>::residual(int32_t exponent, View y) {
  const std::vector<ExactScale> scale(n_, exact_scale(-exponent));
  std::vector<ScaledNorm> sums(chains_);
  for_chains([&](int64_t chain, Buffers& buffers) {
    for_blocks(chain, 0, [&](int64_t, int64_t start, int64_t count) {
      const View block = view(buffers.block, count), rows = view(buffers.other, count);
      operand_rows_.gather(operand_, order_.data() + start, nullptr, scale.data(), block);
      basis_rows_.gather(basis_, order_.data() + start, nullptr, nullptr, rows);
      inner_.for_ranges(n_, kLevel3Columns, [&](int64_t first, int64_t last) {
        blas::gemm(false, true, rows.rows, last - first, n_, -1, rows.data, rows.ld, y.data + first, y.ld, 1,
                   block.data + first * block.ld, block.ld);
      });
      for (int64_t j = 0; j < n_; ++j) {
        const ScaledNorm norm = norm_of(numbers(block.data + j * block.ld), number_count<E>(block.rows));
        sums[chain] = joined(sums[chain], norm);
      }
    });
  });
  ScaledNorm sum;
  for (const ScaledNorm& part : sums) sum = joined(sum, part);
  return std::ldexp(sum.mantissa, sum.exponent);
}

template <class E>
void HostTallOperand<E>::multiply(int32_t exponent, View x, View y) {
  const std::vector<ExactScale> scale(n_, exact_scale(-exponent));
  for_chains([&](int64_t chain, Buffers& buffers) {
    for_blocks(chain, 0, [&](int64_t, int64_t start, int64_t count) {
      const View block = view(buffers.block, count);
      operand_rows_.gather(operand_, natural_rows(start, count, buffers), nullptr, scale.data(), block);
      inner_.for_ranges(y.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
        blas::gemm(false, false, count, last - first, n_, 1, block.data, block.ld, x.data + first * x.ld, x.ld, 0,
                   y.data + start + first * y.ld, y.ld);
      });
    });
  });
  count_flops_(2 * double(m_) * double(n_) * double(x.cols));
}

template <class E>
void HostTallOperand<E>::multiply_adjoint(int32_t exponent, View y, View x) {
  const std::vector<ExactScale> scale(n_, exact_scale(-exponent));
  std::vector<AlignedArray<E>> sums(chains_);
  for_chains([&](int64_t chain, Buffers& buffers) {
    sums[chain].reserve(static_cast<size_t>(n_ * x.cols));
    E* const sum = sums[chain].data();
    std::fill_n(sum, n_ * x.cols, E(0));
    for_blocks(chain, 0, [&](int64_t, int64_t start, int64_t count) {
      const View block = view(buffers.block, count);
      operand_rows_.gather(operand_, natural_rows(start, count, buffers), nullptr, scale.data(), block);
      inner_.for_ranges(x.cols, kLevel3Columns, [&](int64_t first, int64_t last) {
        blas::gemm(true, false, n_, last - first, count, 1, block.data, block.ld, y.data + start + first * y.ld, y.ld,
                   1, sum + first * n_, n_);
      });
    });
  });
  for (int64_t j = 0; j < x.cols; ++j) {
    E* const column = x.data + j * x.ld;
    std::copy_n(sums[0].data() + j * n_, n_, column);
    for (int64_t chain = 1; chain < chains_; ++chain) {
      for (int64_t i = 0; i < n_; ++i) column[i] += sums[chain][j * n_ + i];
    }
  }
  count_flops_(2 * double(m_) * double(n_) * double(x.cols));
}

template class HostTallOperand<double>;
template class HostTallOperand<Complex>;

}  // namespace svdserve::host
