// Sweeps over a matrix that lies in a PanelStore: two super-blocks at a time on the device, side by side.
//
// The sweep is that of super_block_sweep.h, computed pair of super-blocks by pair. Pairs of a super-step have no column in
// common, so their order is free, and the rotations are those of the uncut sweep. The order is: quarters of four
// super-blocks, every two quarters whose super-steps belong together, then each quarter by itself. With room for two
// quarters the matrix moves to the device four times a sweep, not fifteen times.
// On the device the two super-blocks are a matrix of their own, [X_i X_j], with [V_i V_j], and their blocks are numbered
// anew. So the inner back end knows no pair of a visit before that one was orthogonal.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_SWEEPS_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_SWEEPS_H_

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/streamed/panel_store.h"

namespace svdserve::streamed {

// The parts of a sweep over `blocks` blocks: each has the pairs of two super-blocks, or within one.
inline std::vector<large::PivotSweep> sweep_by_super_blocks(int blocks) {
  const large::SuperBlocks cut{blocks};
  const auto super_block_of = [&](int block) {
    int i = 0;
    while (cut.first(i + 1) <= block) ++i;
    return i;
  };
  // By quarters that meet, the first of them, the super-step, and the first super-block; all in the order of the sweep.
  std::map<std::tuple<int, int, int, int>, large::PivotSweep> parts;
  for (const large::PivotSweep& whole : large::super_block_sweep(blocks)) {
    for (const large::PivotStep& step : whole) {
      std::map<std::pair<int, int>, large::PivotStep> own;
      for (const large::BlockPair pair : step) {
        own[{super_block_of(pair.p), super_block_of(pair.q)}].push_back(pair);
      }
      for (auto& [super_blocks, pairs] : own) {
        const auto [i, j] = super_blocks;
        const int s = i ^ j;
        parts[{-(s / 4), std::min(i, j) / 4, -s, i}].push_back(std::move(pairs));
      }
    }
  }
  std::vector<large::PivotSweep> result;
  for (auto& [key, part] : parts) result.push_back(std::move(part));
  return result;
}

template <class Inner>
class StreamedSweeps {
 public:
  using E = typename Inner::Element;
  using View = large::LargeView<E>;

  // Both must outlive it.
  StreamedSweeps(Inner& inner, PanelStore<Inner>& store) : inner_(inner), store_(store) {}

  // As in large_backend.h. A pair without a second block is left out where there are other blocks.
  void p_step(const large::PStep<E>& step) {
    std::vector<std::pair<std::array<int, 2>, std::vector<large::BlockPair>>> groups;
    const std::vector<Range> panels = store_.pieces(step.x);
    for (int at = 0; at < step.count; ++at) {
      const large::BlockPair pair = step.pairs[at];
      if (step.columns_of(pair.q) == 0) continue;
      const std::array<int, 2> own = {panel_of(panels, step.place(pair.p)), panel_of(panels, step.place(pair.q))};
      auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == own; });
      if (group == groups.end()) group = groups.insert(group, {own, {}});
      group->second.push_back(pair);
    }
    for (const auto& [own, pairs] : groups) {
      show(step.x, step.v, step.f, own);
      compute(step, pairs);
    }
  }

  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
    if (first == 0) known_rows_ = 0;
    if (first >= known_rows_) {
      const std::vector<Range> panels = store_.pieces(x);
      const int i = panel_of(panels, first * width), last = static_cast<int>(panels.size()) - 1;
      for (int j = std::min(i + 1, last); j <= last; ++j) {
        show(x, {}, nullptr, {i, j});
        find_cosines(width, cosines);
      }
      known_rows_ = static_cast<int>((panels[static_cast<size_t>(i)].end() + width - 1) / width);
    }
    return std::min(count, known_rows_ - first);
  }

  // The inner back end knows no pair to be orthogonal.
  void forget_pairs() {
    if (x_) inner_.read_in(x_room_.columns(0, 0), [](void*, uint64_t) {});
  }

  // The panels shown go back to the store, and the room to the device.
  void leave() {
    if (!x_) return;
    put_back(0);
    put_back(1);
    store_.give_workspace(x_room_);
    if (v_) store_.give_workspace(v_room_);
    inner_.release(f_room_);
    x_ = v_ = {};
    f_ = nullptr;
  }

 private:
  // Columns of the matrix that lie from column `at` of the room on.
  struct Shown {
    int panel = -1;
    Range columns;
    int64_t at = 0;
  };

  static int panel_of(const std::vector<Range>& panels, int64_t column) {
    int i = 0;
    while (panels[static_cast<size_t>(i)].end() <= column) ++i;
    return i;
  }

  // Brings two panels of x, or one, to the room. f null: x is only read.
  void show(View x, View v, int32_t* f, std::array<int, 2> panels) {
    const bool same = x_ && x.data == x_.data && v.data == v_.data && f == f_;
    if (same && shown_[0].panel == panels[0] && shown_[1].panel == panels[1]) return;
    if (!same) {
      leave();
      begin(x, v, f);
    }
    const std::vector<Range> all = store_.pieces(x);
    const bool keeps_first = shown_[0].panel == panels[0];
    put_back(1);
    if (!keeps_first) {
      put_back(0);
      bring(0, panels[0], all[static_cast<size_t>(panels[0])], 0);
    }
    if (panels[1] != panels[0]) bring(1, panels[1], all[static_cast<size_t>(panels[1])], shown_[0].columns.count);
    forget_pairs();
  }

  void begin(View x, View v, int32_t* f) {
    x_ = x;
    v_ = v;
    f_ = f;
    int64_t most = 0;
    for (const Range& panel : store_.pieces(x)) most = std::max(most, panel.count);
    x_room_ = store_.take_workspace(x.rows, 2 * most);
    if (v) v_room_ = store_.take_workspace(v.rows, 2 * most);
    f_room_ = inner_.exponents(2 * most);
    shown_ = {};
  }

  void bring(int side, int panel, Range columns, int64_t at) {
    Shown& shown = shown_[static_cast<size_t>(side)];
    shown = {panel, columns, at};
    inner_.copy(store_.use(x_.columns(columns.first, columns.count), Use::kRead), x_room_.columns(at, columns.count));
    if (v_) {
      inner_.copy(store_.use(v_.columns(columns.first, columns.count), Use::kRead), v_room_.columns(at, columns.count));
    }
    if (f_ != nullptr) inner_.copy_exponents(f_ + columns.first, f_room_ + at, columns.count);
  }

  void put_back(int side) {
    Shown& shown = shown_[static_cast<size_t>(side)];
    const auto [panel, columns, at] = std::exchange(shown, Shown{});
    if (panel < 0 || f_ == nullptr) return;
    inner_.copy(x_room_.columns(at, columns.count), store_.use(x_.columns(columns.first, columns.count), Use::kSet));
    if (v_) {
      inner_.copy(v_room_.columns(at, columns.count), store_.use(v_.columns(columns.first, columns.count), Use::kSet));
    }
    inner_.copy_exponents(f_room_ + at, f_ + columns.first, columns.count);
  }

  int64_t shown_columns() const { return shown_[0].columns.count + shown_[1].columns.count; }

  void compute(const large::PStep<E>& step, const std::vector<large::BlockPair>& pairs) {
    const auto columns_before = [&](const Shown& shown) {
      return std::clamp(step.positive - shown.columns.first, int64_t{0}, shown.columns.count);
    };
    large::PStep<E> own = step;
    own.x = x_room_.columns(0, shown_columns());
    own.v = v_ ? v_room_.columns(0, shown_columns()) : View{};
    own.f = f_room_;
    own.positive = columns_before(shown_[0]) + columns_before(shown_[1]);
    own.places = nullptr;
    const std::vector<large::BlockPair> in_room = numbered_in_room(step, pairs);
    own.pairs = in_room.data();
    own.count = static_cast<int>(in_room.size());
    inner_.p_step(own);
  }

  // The pairs by the blocks' numbers in the room.
  std::vector<large::BlockPair> numbered_in_room(const large::PStep<E>& step,
                                                 const std::vector<large::BlockPair>& pairs) const {
    const auto number = [&](int block) {
      const int64_t column = step.place(block);
      const Shown& shown = shown_[column < shown_[0].columns.first || column >= shown_[0].columns.end() ? 1 : 0];
      return static_cast<int>((column - shown.columns.first + shown.at) / step.width);
    };
    std::vector<large::BlockPair> in_room;
    for (const large::BlockPair pair : pairs) in_room.push_back({number(pair.p), number(pair.q)});
    return in_room;
  }

  // The cosines of the first panel shown with both.
  void find_cosines(int64_t width, large::BlockCosines& cosines) {
    const auto blocks_of = [&](int64_t columns) { return static_cast<int>((columns + width - 1) / width); };
    const int rows = blocks_of(shown_[0].columns.count), all = blocks_of(shown_columns());
    large::BlockCosines own(all);
    const View x = x_room_.columns(0, shown_columns());
    for (int p = 0; p < rows;) p += inner_.block_cosines(x, width, p, rows - p, own);
    const auto number = [&](int block) {
      const Shown& shown = shown_[block < rows ? 0 : 1];
      return static_cast<int>((block * width - shown.at + shown.columns.first) / width);
    };
    for (int p = 0; p < rows; ++p) {
      for (int q = p; q < all; ++q) cosines.at(number(p), number(q)) = own.at(p, q);
    }
  }

  Inner& inner_;
  PanelStore<Inner>& store_;
  View x_, v_;            // the store's; without data: nothing is shown
  int32_t* f_ = nullptr;  // the inner back end's, of all columns
  View x_room_, v_room_;
  int32_t* f_room_ = nullptr;
  std::array<Shown, 2> shown_;
  int known_rows_ = 0;  // of the blocks' cosines
};

}  // namespace svdserve::streamed
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_STREAMED_SWEEPS_H_
