// Products, triangular solves and QR of matrices that lie in a PanelStore, panel by panel on the device.
//
//   gemm          C(I, J) := alpha sum over K of op(A)(I, K) op(B)(K, J) + beta C(I, J), K ascending
//   herk          C(I, J) := A(:, I)^H A(:, J), I >= J; C(J, I) from it
//   solve_lower   B(K, J) := L(K, K)^-1 B(K, J); B(> K, J) -= L(> K, K) B(K, J); K ascending
//   qr            panel J: Q_K^H for all K < J, then its own QR (left-looking, so that each panel is written once)
//   apply_q       Q = Q_1 Q_2 .., Q_K of panel K
// I, J and K are panels. As many J as there is room for are computed with each panel that is brought to the device. The
// sums have one order, so bits do not depend on that number. Cost: the operations of the whole; each operand moves to the
// device once for every group of J, a result twice.
// Source: Toledo, A survey of out-of-core algorithms in numerical linear algebra, DIMACS 50 (1999) 161-179, section 3.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_PRODUCTS_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_PRODUCTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/backends/streamed/panel_store.h"

namespace svdserve::streamed {

// Contracts of the operations as in large_backend.h, of views of the store.
template <class Inner>
class StreamedProducts {
 public:
  using E = typename Inner::Element;
  using View = large::LargeView<E>;
  using Ranges = std::vector<Range>;

  // Both must outlive it.
  StreamedProducts(Inner& inner, PanelStore<Inner>& store) : inner_(inner), store_(store) {}

  void gemm(large::Op op_a, large::Op op_b, double alpha, View a, View b, double beta, View c) {
    if (c.rows == 0 || c.cols == 0) return;
    const bool turned_a = op_a == large::Op::kAdjoint, turned_b = op_b == large::Op::kAdjoint;
    const Ranges of_j = turned_b ? store_.pieces(c) : store_.pieces(c, b);
    const Ranges of_i = turned_a ? store_.pieces(a) : Ranges{{0, c.rows}};
    Ranges of_k = {{0, turned_a ? a.rows : a.cols}};
    if (!turned_a) of_k = turned_b ? store_.pieces(a, b) : store_.pieces(a);
    if (turned_a && turned_b) of_k = store_.pieces(b);
    const auto part = [](View x, Range rows, Range cols, bool turned) {
      if (turned) std::swap(rows, cols);
      return x.block(rows.first, cols.first, rows.count, cols.count);
    };
    const uint64_t beside = widest(of_i.size() > 1 ? of_i : of_k) * store_.column_bytes(a);
    const uint64_t for_each = widest(of_j) * (store_.column_bytes(c) + (turned_b ? 0 : store_.column_bytes(b)));
    for_groups(of_j, for_each, beside, [&](const Ranges& group) {
      for (const Range& i : of_i) {
        for (const Range& k : of_k) {
          for (const Range& j : group) {
            const bool first = k.first == 0;
            const View result = c.block(i.first, j.first, i.count, j.count);
            inner_.gemm(op_a, op_b, alpha, store_.use(part(a, i, k, turned_a), Use::kRead),
                        store_.use(part(b, k, j, turned_b), Use::kRead), first ? beta : 1,
                        store_.use(result, first && beta == 0 ? Use::kSet : Use::kChange));
          }
        }
      }
    });
  }

  void herk(View a, View c) {
    const Ranges all = store_.pieces(a, c);
    if (all.empty()) return;
    const int64_t width = widest(all);
    const View identity = store_.take_workspace(width, width);
    inner_.set_identity(identity);
    const uint64_t one = width * (store_.column_bytes(a) + store_.column_bytes(c));
    for_groups(all, one, one, [&](const Ranges& group) {
      for (const Range& i : all) {
        for (const Range& j : group) {
          if (i.first < j.first) continue;
          const View of_j = store_.use(a.columns(j.first, j.count), Use::kRead);
          if (i.first == j.first) {
            inner_.herk(of_j, store_.use(c.block(j.first, j.first, j.count, j.count), Use::kChange));
            continue;
          }
          const View below = store_.use(c.block(i.first, j.first, i.count, j.count), Use::kChange);
          inner_.gemm(large::Op::kAdjoint, large::Op::kNone, 1, store_.use(a.columns(i.first, i.count), Use::kRead),
                      of_j, 0, below);
          turn(below, identity, store_.use(c.block(j.first, i.first, j.count, i.count), Use::kChange));
        }
      }
    });
    store_.give_workspace(identity);
  }

  void solve_lower(View l, View b) {
    const Ranges of_k = store_.pieces(l);
    const Ranges of_j = store_.pieces(b);
    for_groups(of_j, widest(of_j) * store_.column_bytes(b), widest(of_k) * store_.column_bytes(l),
               [&](const Ranges& group) {
                 for (const Range& k : of_k) {
                   for (const Range& j : group) solve_panel(l, k, b.columns(j.first, j.count));
                 }
               });
  }

  // tau: of the store's inner back end, scalars_of() elements.
  void qr(View a, E* tau, const large::PartDone& done) {
    const Ranges all = store_.pieces(a);
    for (const Range& j : all) {
      const View own = a.columns(j.first, j.count);
      for (const Range& k : all) {
        if (k.first < j.first) apply_panel(large::Op::kAdjoint, a, k, tau, own);
      }
      inner_.qr(store_.use(a.block(j.first, j.first, a.rows - j.first, j.count), Use::kChange),
                tau + tau_offset(all, j));
      const double part = static_cast<double>(j.end()) / static_cast<double>(a.cols);
      if (done) done(part * part);
    }
  }

  void apply_q(large::Op op, View a, E* tau, View c, const large::PartDone& done) {
    Ranges of_k = store_.pieces(a);
    if (op == large::Op::kNone) std::reverse(of_k.begin(), of_k.end());
    const Ranges of_j = store_.pieces(c);
    for_groups(of_j, widest(of_j) * store_.column_bytes(c), widest(of_k) * store_.column_bytes(a),
               [&](const Ranges& group) {
                 for (const Range& k : of_k) {
                   for (const Range& j : group) apply_panel(op, a, k, tau, c.columns(j.first, j.count));
                 }
                 if (done) done(static_cast<double>(group.back().end()) / static_cast<double>(c.cols));
               });
  }

  // Elements of E for the QR of n columns.
  int64_t scalars_of(int64_t n) const {
    const Ranges all = panels_of(n, inner_.block_width(n));
    return all.empty() ? 0 : tau_offset(all, {n, 0});
  }

 private:
  static int64_t widest(const Ranges& ranges) {
    int64_t most = 0;
    for (const Range& range : ranges) most = std::max(most, range.count);
    return most;
  }

  // f(group) for all ranges, in groups that fit.
  template <class F>
  void for_groups(const Ranges& all, uint64_t for_each, uint64_t beside, const F& f) {
    const size_t count = store_.at_once(for_each, beside);
    for (size_t first = 0; first < all.size(); first += count) {
      f(Ranges(all.begin() + static_cast<int64_t>(first),
               all.begin() + static_cast<int64_t>(std::min(first + count, all.size()))));
    }
  }

  // Where panel `at` has its scalars: behind those of all panels before it, each at a multiple of 64.
  static int64_t tau_offset(const Ranges& all, Range at) {
    constexpr int64_t kApart = 64;
    int64_t offset = 0;
    for (const Range& k : all) {
      if (k.first >= at.first) break;
      const auto elements = static_cast<int64_t>(Inner::scalar_bytes(k.count) / sizeof(E));
      offset += (elements + kApart - 1) / kApart * kApart;
    }
    return offset;
  }

  // to := from^H
  void turn(View from, View identity, View to) {
    inner_.gemm(large::Op::kAdjoint, large::Op::kNone, 1, from, identity.block(0, 0, from.rows, from.rows), 0, to);
  }

  void solve_panel(View l, Range k, View b) {
    const View own = b.block(k.first, 0, k.count, b.cols);
    inner_.solve_lower(store_.use(l.block(k.first, k.first, k.count, k.count), Use::kRead),
                       store_.use(own, Use::kChange));
    const int64_t below = l.rows - k.end();
    if (below == 0) return;
    inner_.gemm(large::Op::kNone, large::Op::kNone, -1,
                store_.use(l.block(k.end(), k.first, below, k.count), Use::kRead), store_.use(own, Use::kRead), 1,
                store_.use(b.block(k.end(), 0, below, b.cols), Use::kChange));
  }

  // c := Q_K c or Q_K^H c
  void apply_panel(large::Op op, View a, Range k, E* tau, View c) {
    inner_.apply_q(op, store_.use(a.block(k.first, k.first, a.rows - k.first, k.count), Use::kRead),
                   tau + tau_offset(store_.pieces(a), k),
                   store_.use(c.block(k.first, 0, c.rows - k.first, c.cols), Use::kChange));
  }

  Inner& inner_;
  PanelStore<Inner>& store_;
};

}  // namespace svdserve::streamed
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_PRODUCTS_H_
