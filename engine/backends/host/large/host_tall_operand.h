// The host's TallOperand (algorithms/large/large_backend.h): a tall operand read where it lies, block of rows by block
// of rows. Beside it and its basis there are a few blocks and n x n matrices for each thread.
#ifndef SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_TALL_OPERAND_H_
#define SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_TALL_OPERAND_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/host/base/aligned_array.h"
#include "engine/backends/host/base/large_threads.h"
#include "engine/backends/host/dense/stacked_qr.h"
#include "engine/backends/host/large/operand_rows.h"

namespace svdserve::host {

// Whether it suits a plan: much taller than wide (or the reverse), and no full basis.
bool takes_tall_operand(const LargePlan& plan);
// The most that it allocates, in bytes.
uint64_t tall_operand_bytes(const LargePlan& plan, int threads);

// The rows are sorted by the exponents of their largest entries alone, so that rows of about the same size stay
// neighbours in memory. Each chain gets n of the sorted rows, its head, which is made a triangle by itself. The others
// come in blocks, and block i is added to the triangle of chain i mod chains (stacked_qr.h). Last, the chains'
// triangles are joined to that of the first. (Heads are needed: a triangle of zeros to begin with would be n more rows
// of the operand, and of the basis of a singular one.)
// A block's reflectors are kept where its rows of the basis will be written. They are rounded where the basis is of
// single precision. Q is then another unitary matrix. But for a small factor, it is as close to the intended one as the
// rounded basis is to the exact one (see stacked_qr.h).
// Thread safety: none; it computes on `threads`.
template <class E>
class HostTallOperand final : public large::TallOperand<E> {
 public:
  using View = large::LargeView<E>;

  // Refers to all of it. count_flops: told real operations of the mathematics; four times as many for complex numbers.
  HostTallOperand(const LargeThreads& threads, const LargePlan& plan, const LargeOperands& operands,
                  std::function<void(double)> count_flops);

  large::LoadReport scan(int32_t* f) override;
  std::vector<large::ScaledNorm> column_norms() const override { return norms_; }
  std::vector<double> reduce(const std::vector<int64_t>& columns, View r) override;
  void expand(View core) override;
  void gram_of_basis(View square) override;
  double residual(int32_t exponent, View y) override;
  void multiply(int32_t exponent, View x, View y) override;
  void multiply_adjoint(int32_t exponent, View y, View x) override;
  void visit_factors(const large::VisitBytes& visit) override;

 private:
  // Memory of a chain for as long as it computes.
  struct Buffers {
    AlignedArray<E> block, other;
    std::vector<int32_t> rows;
  };

  // f(block, first, rows), block = chain, chain + chains_, ..: of the rows from `from` on.
  template <class F>
  void for_blocks(int64_t chain, int64_t from, const F& f) const;
  int64_t heads_rows() const { return chains_ * n_; }
  int64_t blocks(int64_t from) const { return (m_ - from + block_rows_ - 1) / block_rows_; }
  static const int32_t* natural_rows(int64_t first, int64_t rows, Buffers& buffers);
  View view(AlignedArray<E>& memory, int64_t rows) const;
  // f(chain, buffers) on the chains' threads.
  template <class F>
  void for_chains(const F& f) const;
  std::vector<double> sort_rows(const std::vector<ExactScale>& scale, const std::vector<int64_t>& columns);
  void reserve_reflectors();
  void reduce_chain(int64_t chain, Buffers& buffers, const std::vector<int64_t>& columns,
                    const std::vector<ExactScale>& scale, View r);
  void expand_chain(int64_t chain, Buffers& buffers, View core);

  const LargeThreads& threads_;
  const LargeThreads inner_;  // of the products of a chain
  const LargePlan& plan_;
  const void* const operand_;
  void* const basis_;  // null: values alone
  const std::function<void(double)> count_flops_;
  const int64_t m_, n_, block_rows_, chains_;
  const OperandRows<E> operand_rows_, basis_rows_;
  std::vector<large::ScaledNorm> norms_;
  std::vector<int32_t> order_;                     // of the operand's rows, from reduce() on
  AlignedArray<E> taus_, head_taus_, joint_taus_;  // n numbers a block; a chain; a chain
  std::vector<AlignedArray<E>> heads_;             // of each chain: the reflectors of its head
  std::vector<AlignedArray<E>> joints_;  // of each chain: its triangle, then the reflectors that joined it to the first
};

}  // namespace svdserve::host
#endif  // SVDSERVE_ENGINE_BACKENDS_HOST_LARGE_HOST_TALL_OPERAND_H_
