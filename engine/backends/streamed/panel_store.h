// Matrices in the host's memory, of which a device has some panels at a time.
//
// A panel is some neighbouring columns of a matrix: a super-block of super_block_sweep.h. So a matrix of n columns has up
// to 16 panels, cut by n alone. use() brings a panel to the device. Where there is no room, the one that was used longest
// ago leaves. It is written back if it has changed. The bits that a device computes do not depend on the room.
// A view's data is an address in the host's memory. Entries there are valid for panels that the device does not have.
#ifndef SVDSERVE_ENGINE_BACKENDS_STREAMED_PANEL_STORE_H_
#define SVDSERVE_ENGINE_BACKENDS_STREAMED_PANEL_STORE_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"
#include "engine/algorithms/large/super_block_sweep.h"
#include "engine/backends/streamed/host_pages.h"

namespace svdserve::streamed {

// Neighbouring columns, or rows: first .. first + count - 1.
struct Range {
  int64_t first = 0, count = 0;
  int64_t end() const { return first + count; }
};

// The columns that are used are read or changed, or all of their entries are set.
enum class Use : uint8_t { kRead, kChange, kSet };

// Columns of a block for n columns, of which a back end would like `width`: at least two blocks, as in the sweeps.
inline int64_t block_width_of(int64_t n, int64_t width) { return std::max<int64_t>(1, std::min(width, (n + 1) / 2)); }

// The panels of n columns.
inline std::vector<Range> panels_of(int64_t n, int64_t block_width) {
  const int64_t width = block_width_of(n, block_width);
  const large::SuperBlocks cut{static_cast<int>((n + width - 1) / width)};
  std::vector<Range> panels;
  for (int i = 0; i < large::kSuperBlocks; ++i) {
    const int64_t first = cut.first(i) * width, end = std::min(cut.first(i + 1) * width, n);
    if (first < end) panels.push_back({first, end - first});
  }
  return panels;
}

// Bytes of the largest panel of rows x n, where columns are `ld` elements apart on the device.
template <class E>
uint64_t panel_bytes(int64_t ld, int64_t n, int64_t block_width) {
  int64_t most = 0;
  for (const Range& panel : panels_of(n, block_width)) most = std::max(most, panel.count);
  return static_cast<uint64_t>(ld * most) * sizeof(E);
}

// Inner: a LargeBackend, whose memory is the device's.
template <class Inner>
class PanelStore {
 public:
  using E = typename Inner::Element;
  using View = large::LargeView<E>;

  // room: bytes of panels and workspaces on the device together. It has four of the largest panels beside the workspaces,
  // since an operation may use as many at once. inner and watch must outlive it.
  PanelStore(Inner& inner, uint64_t room, const large::LargeWatch& watch) : inner_(inner), room_(room), watch_(watch) {}

  View matrix(int64_t rows, int64_t cols) {
    const int64_t ld = std::max<int64_t>(rows, 1);
    const auto bytes = static_cast<uint64_t>(ld * std::max<int64_t>(cols, 1)) * sizeof(E);
    Matrix matrix{take_pages(bytes), bytes, rows, cols, ld, {}};
    for (const Range& range : panels_of(cols, inner_.block_width(cols))) matrix.panels.push_back({.range = range});
    const View view{matrix.memory.get(), rows, cols, ld};
    matrices_[view.data] = std::move(matrix);
    return view;
  }

  void release(View view) {
    const auto it = matrices_.find(view.data);
    assert(it != matrices_.end());
    for (Panel& panel : it->second.panels) leave(panel);
    live_bytes_ -= it->second.bytes;
    kept_bytes_ += it->second.bytes;
    kept_.emplace(it->second.bytes, std::move(it->second.memory));
    matrices_.erase(it);
  }

  // The parts of a's columns that lie in different panels.
  std::vector<Range> pieces(View a) {
    std::vector<Range> result;
    if (a.cols == 0) return result;
    const auto [matrix, row, col] = find(a);
    for (const Panel& panel : matrix->panels) {
      const int64_t first = std::max(panel.range.first - col, int64_t{0}),
                    end = std::min(panel.range.end() - col, a.cols);
      if (first < end) result.push_back({first, end - first});
    }
    return result;
  }
  // Parts that lie in one panel of either.
  std::vector<Range> pieces(View a, View b) {
    std::vector<Range> result;
    const std::vector<Range> of_b = pieces(b);
    for (const Range& x : pieces(a)) {
      for (const Range& y : of_b) {
        const int64_t first = std::max(x.first, y.first), end = std::min(x.end(), y.end());
        if (first < end) result.push_back({first, end - first});
      }
    }
    return result;
  }

  // The same entries on the device. piece: of one panel, with at least one column. Valid until other panels or
  // workspaces have been asked for that need the room.
  View use(View piece, Use how) {
    watch_.check();
    const auto [matrix, row, col] = find(piece);
    Panel& panel = panel_at(*matrix, col);
    assert(col + piece.cols <= panel.range.end());
    const bool whole = row == 0 && piece.rows == matrix->rows && piece.cols == panel.range.count;
    if (!panel.here) arrive(*matrix, panel, how == Use::kSet && whole);
    panel.changed |= how != Use::kRead;
    panel.used = ++uses_;
    return panel.here.block(row, col - panel.range.first, piece.rows, piece.cols);
  }

  // The entries of a in the host's memory are valid. forget: the device has none of their panels afterwards.
  void to_host(View a, bool forget) {
    if (a.cols == 0) return;
    const auto [matrix, row, col] = find(a);
    for (Panel& panel : matrix->panels) {
      if (panel.range.end() <= col || panel.range.first >= col + a.cols) continue;
      write_back(*matrix, panel);
      if (!forget) continue;
      leave(panel);
      panel.is_set = true;
    }
  }

  // Device memory for a while, within the room.
  View take_workspace(int64_t rows, int64_t cols) {
    const View here = allocate(rows, cols);
    workspaces_.emplace(here.data, bytes_of(here));
    return here;
  }
  void give_workspace(View here) {
    const auto it = workspaces_.find(here.data);
    used_ -= it->second;
    workspaces_.erase(it);
    inner_.release(here);
  }

  // How many of a number of columns fit beside what is used for each, if `beside` bytes are used for all; at least 1.
  // for_each: bytes, too.
  size_t at_once(uint64_t for_each, uint64_t beside) const {
    uint64_t workspaces = beside + for_each;  // one more to come while another leaves
    for (const auto& [data, bytes] : workspaces_) workspaces += bytes;
    if (for_each == 0 || room_ <= workspaces) return 1;
    return std::max<size_t>(1, static_cast<size_t>((room_ - workspaces) / for_each));
  }
  // Bytes that a column of the view's matrix takes on the device, about: panels have all of its rows.
  uint64_t column_bytes(View a) { return static_cast<uint64_t>(find(a).matrix->rows) * sizeof(E); }

 private:
  struct Panel {
    Range range;
    View here = {};        // on the device, all rows; without data: it is not there
    bool is_set = false;   // the host's memory has what the device wrote back or the host wrote
    bool changed = false;  // the device's entries since
    uint64_t used = 0;
  };
  struct Matrix {
    std::shared_ptr<E> memory;
    uint64_t bytes = 0;
    int64_t rows = 0, cols = 0, ld = 1;
    std::vector<Panel> panels;
  };
  struct Place {
    Matrix* matrix;
    int64_t row, col;
  };

  // Pages that a matrix left serve the next one of its size: the first touch of a page takes longer than a transfer.
  std::shared_ptr<E> take_pages(uint64_t bytes) {
    live_bytes_ += bytes;
    if (const auto it = kept_.find(bytes); it != kept_.end()) {
      std::shared_ptr<E> pages = std::move(it->second);
      kept_bytes_ -= bytes;
      kept_.erase(it);
      return pages;
    }
    most_bytes_ = std::max(most_bytes_, live_bytes_);
    while (live_bytes_ + kept_bytes_ > most_bytes_ && !kept_.empty()) {
      kept_bytes_ -= kept_.begin()->first;
      kept_.erase(kept_.begin());
    }
    return host_pages<E>(bytes);
  }

  Place find(View a) {
    auto it = matrices_.upper_bound(a.data);
    assert(it != matrices_.begin());
    Matrix& matrix = std::prev(it)->second;
    const int64_t offset = a.data - matrix.memory.get();
    return {&matrix, offset % matrix.ld, offset / matrix.ld};
  }

  static Panel& panel_at(Matrix& matrix, int64_t col) {
    const auto it = std::upper_bound(matrix.panels.begin(), matrix.panels.end(), col,
                                     [](int64_t c, const Panel& panel) { return c < panel.range.end(); });
    assert(it != matrix.panels.end());
    return *it;
  }

  static Problem as_problem(const Matrix& matrix, const Panel& panel) {
    Problem problem;
    problem.rows = matrix.rows;
    problem.cols = panel.range.count;
    problem.dtype = sizeof(E) == sizeof(double) ? DType::kF64 : DType::kC128;
    problem.order = Order::kColumnMajor;
    return problem;
  }

  void arrive(const Matrix& matrix, Panel& panel, bool all_is_set) {
    panel.here = allocate(matrix.rows, panel.range.count);
    if (panel.is_set && !all_is_set) {
      (void)inner_.load(matrix.memory.get() + panel.range.first * matrix.ld, as_problem(matrix, panel), false,
                        panel.here);
    }
  }

  void write_back(const Matrix& matrix, Panel& panel) {
    if (!panel.changed) return;
    inner_.store(panel.here, false, matrix.memory.get() + panel.range.first * matrix.ld, as_problem(matrix, panel));
    panel.changed = false;
    panel.is_set = true;
  }

  void leave(Panel& panel) {
    if (!panel.here) return;
    used_ -= bytes_of(panel.here);
    inner_.release(panel.here);
    panel.here = {};
    panel.changed = false;
  }

  // Those that were used longest ago make room.
  View allocate(int64_t rows, int64_t cols) {
    const auto bytes = static_cast<uint64_t>(std::max<int64_t>(rows, 1) * cols) * sizeof(E);
    while (used_ > 0 && used_ + bytes > room_ && one_leaves()) {
    }
    const View here = inner_.matrix(rows, cols);
    used_ += bytes_of(here);
    return here;
  }

  bool one_leaves() {
    Panel* oldest = nullptr;
    const Matrix* of = nullptr;
    for (auto& [data, matrix] : matrices_) {
      for (Panel& panel : matrix.panels) {
        if (!panel.here || (oldest != nullptr && panel.used > oldest->used)) continue;
        oldest = &panel;
        of = &matrix;
      }
    }
    if (oldest == nullptr) return false;
    write_back(*of, *oldest);
    leave(*oldest);
    return true;
  }

  static uint64_t bytes_of(View here) { return static_cast<uint64_t>(here.ld * here.cols) * sizeof(E); }

  Inner& inner_;
  const uint64_t room_;
  const large::LargeWatch& watch_;
  std::map<const E*, Matrix> matrices_;
  std::map<const E*, uint64_t> workspaces_;
  uint64_t used_ = 0, uses_ = 0;
  std::multimap<uint64_t, std::shared_ptr<E>> kept_;           // bytes, pages
  uint64_t live_bytes_ = 0, kept_bytes_ = 0, most_bytes_ = 0;  // of the host's memory
};

}  // namespace svdserve::streamed
#endif  // SVDSERVE_ENGINE_BACKENDS_STREAMED_PANEL_STORE_H_
