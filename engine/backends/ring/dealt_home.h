// A ring's home whose large products are dealt over devices: its own, and those of helpers.
//
//   gemm           C(:, J)  := alpha op(A) op(B)(:, J) + beta C(:, J)
//   herk           C(i, J)  := A(:, i)^H A(:, J), i not above J; the rest from it
//   solve_lower    B(:, J)  := L^-1 B(:, J)
//   apply_q        C(:, J)  := Q C(:, J) or Q^H C(:, J)
//   block_cosines  of some rows of blocks
// J: parts of the columns, cut by their number alone. So the bits do not depend on the number of devices, and home
// computes the parts of a helper that there is not. The parts of herk grow shorter, so a device has early and late ones.
// A helper gets A, L or Q whole, and its parts of the rest, and gives results back. Home sends the whole once: each helper
// gets a share of its columns, and the other shares from other helpers. A helper has memory of its own, and touches that
// of others by copies alone. Memory of a helper: of A, and of half of B and C where there is one helper, a quarter where
// there are three. Each device has a thread of its own, because products of many kernels take long to enqueue.
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_DEALT_HOME_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_DEALT_HOME_H_

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::ring {

// Multiply-adds of a product from which on it is dealt: those of matrices of order 4096.
inline constexpr double kLeastDealtWork = 0x1p36;

// Base: a HermitianBackend.
// Helper: class with
//   void begin()            what follows sees the results of all of home's calls so far
//   void end()              home's calls that follow wait for all that was asked of the helper so far
//   void fetch(from, to)    the helper's view `to` := home's view
//   void share()            what it has fetched so far is there for others
//   void fetch_shared(other, from, to)    the helper's view `to` := a view of the other's, of what that one has shared
//   void give(from, to)     home's view `to` := the helper's
//   void run(f)             f(backend), another LargeBackend of the same elements, whose views are the helper's
// Calls may return before they are done. The destructor waits. Calls of one helper come from one thread at a time.
template <class Base, class Helper>
class DealtHome : public Base {
 public:
  using E = typename Base::Element;
  using View = large::LargeView<E>;
  // The helper on device 1, 2, ... Throws LargeStop: kOutOfMemory where home is to do without it.
  using Maker = std::function<std::unique_ptr<Helper>(int device)>;
  struct Settings {
    int devices = 1;
    double least_work = kLeastDealtWork;
  };

  template <class... OfBase>
  DealtHome(const Settings& settings, Maker make, OfBase&&... of_base)
      : Base(std::forward<OfBase>(of_base)...), settings_(settings), make_(std::move(make)) {}

  ~DealtHome() {
    try {
      wait_for_helpers();
    } catch (const large::LargeStop&) {
      // Those of a lost device are not waited for.
    }
  }
  DealtHome(const DealtHome&) = delete;
  DealtHome& operator=(const DealtHome&) = delete;

  void gemm(large::Op op_a, large::Op op_b, double alpha, View a, View b, double beta, View c) {
    if (!is_dealt(c.rows, c.cols, op_a == large::Op::kAdjoint ? a.rows : a.cols)) {
      return Base::gemm(op_a, op_b, alpha, a, b, beta, c);
    }
    deal(c.cols, {a}, false, [&](auto& desk, Part j) {
      const bool by_rows = op_b == large::Op::kAdjoint;
      const View factor = by_rows ? b.block(j.first, 0, j.count, b.cols) : b.columns(j.first, j.count);
      desk.compute([&, of_a = desk.read(a), of_b = desk.read(factor),
                    result = desk.change(c.columns(j.first, j.count), beta != 0)](auto& backend) {
        backend.gemm(op_a, op_b, alpha, of_a, of_b, beta, result);
      });
    });
  }

  void herk(View a, View c) {
    if (!is_dealt(c.rows, c.cols, a.rows)) return Base::herk(a, c);
    deal(c.cols, {a}, false, [&](auto& desk, Part j) {
      const int64_t left = c.cols - j.first;
      desk.compute([&, whole = desk.read(a),
                    result = desk.change(c.block(j.first, j.first, left, j.count), false)](auto& backend) {
        backend.gemm(large::Op::kAdjoint, large::Op::kNone, 1, whole.columns(j.first, left),
                     whole.columns(j.first, j.count), 0, result);
      });
    });
    Base::mirror_lower(c);
  }

  void solve_lower(View l, View b) {
    if (!is_dealt(l.rows, b.cols, l.cols)) return Base::solve_lower(l, b);
    deal(b.cols, {l}, false, [&](auto& desk, Part j) {
      desk.compute([of_l = desk.read(l), result = desk.change(b.columns(j.first, j.count), true)](auto& backend) {
        backend.solve_lower(of_l, result);
      });
    });
  }

  void apply_q(large::Op op, View a, E* tau, View c, const large::PartDone& done = {}) {
    if (!is_dealt(c.rows, c.cols, a.cols)) return Base::apply_q(op, a, tau, c, done);
    const auto count = static_cast<int64_t>(Base::scalar_bytes(a.cols) / sizeof(E));
    const View scalars{tau, count, 1, count};
    // Home writes to both meanwhile.
    deal(c.cols, {a, scalars}, true, [&](auto& desk, Part j) {
      desk.compute([&, of_a = desk.read(a), of_tau = desk.read(scalars),
                    result = desk.change(c.columns(j.first, j.count), true)](auto& backend) {
        backend.apply_q(op, of_a, of_tau.data, result);
      });
    });
    if (done) done(1);
  }

  // All rows at the first call.
  int block_cosines(View x, int64_t width, int first, int count, large::BlockCosines& cosines) {
    if (!is_dealt(x.rows, x.cols, x.cols)) return Base::block_cosines(x, width, first, count, cosines);
    if (first == 0) find_cosines(x, width, cosines);
    return std::min(count, cosines.blocks() - first);
  }

 private:
  struct Part {
    int64_t first = 0, count = 0;
  };
  // Rows of blocks of a group, in block_cosines(); the last has up to twice as many, so that no group is small.
  static constexpr int kRowsAtOnce = 8;

  // Where home computes: views are what they are.
  struct HomeDesk {
    Base& base;
    View read(View a) const { return a; }
    View change(View a, bool /*is_read*/) const { return a; }
    template <class F>
    void compute(const F& f) const {
      f(base);
    }
  };

  struct Copied {
    View of_home, own;
  };
  using Copies = std::vector<Copied>;

  // Where a helper computes one part: views are fetched to memory of its own, and what has changed is given back.
  class HelperDesk {
   public:
    // whole: what it has of home's already.
    HelperDesk(Helper& helper, const Copies& whole) : helper_(helper), whole_(whole) {}
    View read(View a) {
      for (const auto& [of_home, own] : whole_) {
        if (of_home.data == a.data && of_home.rows == a.rows && of_home.cols == a.cols) return own;
      }
      parts_.push_back(fetched(a, true));
      return parts_.back();
    }
    View change(View a, bool is_read) {
      parts_.push_back(fetched(a, is_read));
      changed_ = {a, parts_.back()};
      return parts_.back();
    }
    template <class F>
    void compute(const F& f) {
      helper_.run(f);
    }
    void give() {
      helper_.give(changed_.own, changed_.of_home);
      for (const View& own : parts_) free_room(helper_, own);
    }

   private:
    View fetched(View a, bool is_read) {
      const View own = room(helper_, a);
      if (is_read) helper_.fetch(a, own);
      return own;
    }

    Helper& helper_;
    const Copies& whole_;
    std::vector<View> parts_;
    Copied changed_;
  };

  static View room(Helper& helper, View a) {
    View own;
    helper.run([&](auto& backend) { own = backend.matrix(a.rows, a.cols); });
    return own;
  }
  static void free_room(Helper& helper, View own) {
    helper.run([&](auto& backend) { backend.release(own); });
  }

  bool is_dealt(int64_t rows, int64_t cols, int64_t inner) const {
    return static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(inner) >= settings_.least_work;
  }

  // Wide parts are as fast as the whole; from some width on there are enough of them for eight devices.
  static std::vector<Part> parts_of(int64_t columns) {
    const int64_t count = columns < 16384 ? 4 : 8;
    std::vector<Part> parts;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t first = columns * i / count, end = columns * (i + 1) / count;
      if (first < end) parts.push_back({first, end - first});
    }
    return parts;
  }

  // The device of number i of so many things in order. It may be one that has no helper.
  int device_of(int i, int count) const {
    if (settings_.devices >= count) return i;
    return std::min(i, count - 1 - i) * 2 * settings_.devices / count;
  }

  // Makes those that there can be.
  void make_helpers() {
    if (std::exchange(are_made_, true)) return;
    for (int device = 1; device < settings_.devices; ++device) {
      try {
        helpers_.push_back(make_(device));
      } catch (const large::LargeStop& stop) {
        if (stop.status != LargeStatus::kOutOfMemory) throw;
        helpers_.push_back(nullptr);
      }
    }
  }

  // f(device, helper) for all helpers. One that has too little memory is a helper no more, once others read nothing of it.
  template <class F>
  void for_helpers(const F& f) {
    for (int device = 1; device < settings_.devices; ++device) {
      std::unique_ptr<Helper>& helper = helpers_[static_cast<size_t>(device) - 1];
      if (helper == nullptr) continue;
      try {
        f(device, *helper);
      } catch (const large::LargeStop& stop) {
        if (stop.status != LargeStatus::kOutOfMemory) throw;
        wait_for_helpers();
        helper.reset();
      }
    }
  }

  // None of them reads another's memory any more.
  void wait_for_helpers() {
    for (const std::unique_ptr<Helper>& helper : helpers_) {
      if (helper != nullptr) helper->run([](auto& backend) { backend.sync(); });
    }
  }

  // For each device its copies of home's views; none: home, or there is no helper. is_changed: home's calls that follow
  // change the views.
  std::vector<Copies> broadcast(std::initializer_list<View> views, bool is_changed) {
    make_helpers();
    std::vector<Copies> copies(static_cast<size_t>(settings_.devices));
    for_helpers([&](int device, Helper& helper) {
      Copies own;
      for (const View& a : views) own.push_back({a, room(helper, a)});
      copies[static_cast<size_t>(device)] = std::move(own);
      helper.begin();
    });
    const int64_t sharers = std::count_if(helpers_.begin(), helpers_.end(), [](const auto& h) { return h != nullptr; });
    std::vector<int> number(copies.size());  // of a sharer
    int next = 0;
    for_helpers([&](int device, Helper& helper) {
      const int64_t own = number[static_cast<size_t>(device)] = next++;
      for (const auto& [of_home, here] : copies[static_cast<size_t>(device)]) {
        const Part share = share_of(of_home.cols, own, sharers);
        helper.fetch(of_home.columns(share.first, share.count), here.columns(share.first, share.count));
      }
      helper.share();
      if (is_changed) helper.end();
    });
    for_helpers([&](int device, Helper& helper) {
      const auto own = static_cast<size_t>(device);
      for (int64_t i = 1; i < sharers; ++i) {  // not all from the same one at once
        for_helpers([&](int other, Helper& sharer) {
          const auto theirs = static_cast<size_t>(other);
          if ((number[own] + i) % sharers != number[theirs]) return;
          for (size_t v = 0; v < copies[own].size(); ++v) {
            const Part share = share_of(copies[own][v].of_home.cols, number[theirs], sharers);
            helper.fetch_shared(sharer, copies[theirs][v].own.columns(share.first, share.count),
                                copies[own][v].own.columns(share.first, share.count));
          }
        });
      }
    });
    return copies;
  }
  static Part share_of(int64_t columns, int64_t sharer, int64_t sharers) {
    const int64_t first = columns * sharer / sharers;
    return {first, columns * (sharer + 1) / sharers - first};
  }

  // f(device, helper) on a thread for each helper, and of_home() on this one. Throws LargeStop of any of them.
  template <class F, class OfHome>
  void on_all_devices(const F& f, const OfHome& of_home) {
    std::vector<std::exception_ptr> failures(static_cast<size_t>(settings_.devices));
    const auto guarded = [&](size_t device, const auto& work) {
      try {
        work();
      } catch (...) {
        failures[device] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;
      for_helpers([&](int device, Helper& helper) {
        const auto work = [&, device] { guarded(static_cast<size_t>(device), [&] { f(device, helper); }); };
        try {
          threads.emplace_back(work);
        } catch (const std::system_error&) {
          work();  // the system has no thread left
        }
      });
      guarded(0, of_home);
    }
    if (failures[0] != nullptr) std::rethrow_exception(failures[0]);
    for_helpers([&](int device, Helper& /*helper*/) {
      const std::exception_ptr& failure = failures[static_cast<size_t>(device)];
      if (failure != nullptr) std::rethrow_exception(failure);
    });
  }

  // of_helper(helper, its copies, i) or of_home(i) for so many things i. Home does what a helper that is lost has left.
  template <class OfHelper, class OfHome>
  void compute_all(int count, const std::vector<Copies>& copies, const OfHelper& of_helper, const OfHome& of_home) {
    std::vector<char> done(static_cast<size_t>(count), 0);
    const auto compute = [&](int device, const auto& f) {
      for (int i = 0; i < count; ++i) {
        const int chosen = device_of(i, count);
        if ((copies[static_cast<size_t>(chosen)].empty() ? 0 : chosen) != device) continue;
        f(i);
        done[static_cast<size_t>(i)] = 1;
      }
    };
    on_all_devices(
        [&](int device, Helper& helper) {
          compute(device, [&](int i) { of_helper(helper, copies[static_cast<size_t>(device)], i); });
        },
        [&] { compute(0, of_home); });
    for (int i = 0; i < count; ++i) {
      if (!done[static_cast<size_t>(i)]) of_home(i);
    }
  }

  // f(desk, part) for the parts of so many columns. whole: what all parts read, and is_changed says whether home changes.
  template <class F>
  void deal(int64_t columns, std::initializer_list<View> whole, bool is_changed, const F& f) {
    const std::vector<Part> parts = parts_of(columns);
    const std::vector<Copies> copies = broadcast(whole, is_changed);
    HomeDesk of_home{*this};
    compute_all(
        static_cast<int>(parts.size()), copies,
        [&](Helper& helper, const Copies& own, int i) {
          HelperDesk desk(helper, own);
          f(desk, parts[static_cast<size_t>(i)]);
          desk.give();
        },
        [&](int i) { f(of_home, parts[static_cast<size_t>(i)]); });
    leave(copies);
  }

  // The helpers' copies are theirs no more, and home sees what they have done.
  void leave(const std::vector<Copies>& copies) {
    for_helpers([&](int device, Helper& helper) {
      for (const auto& [of_home, own] : copies[static_cast<size_t>(device)]) free_room(helper, own);
      helper.end();
    });
  }

  // Those of group g: rows from some block on are rows of a matrix that begins with this block.
  template <class Backend>
  static void cosines_of_group(Backend& backend, View x, int64_t width, int g, large::BlockCosines& cosines) {
    const int first = g * kRowsAtOnce, left = cosines.blocks() - first;
    const int rows = left < 2 * kRowsAtOnce ? left : kRowsAtOnce;
    const View ahead = x.columns(first * width, x.cols - first * width);
    large::BlockCosines own(left);
    for (int p = 0; p < rows;) p += backend.block_cosines(ahead, width, p, rows - p, own);
    for (int p = 0; p < rows; ++p) {
      for (int q = p; q < own.blocks(); ++q) cosines.at(first + p, first + q) = own.at(p, q);
    }
  }

  void find_cosines(View x, int64_t width, large::BlockCosines& cosines) {
    const std::vector<Copies> copies = broadcast({x}, false);
    compute_all(
        std::max(1, cosines.blocks() / kRowsAtOnce), copies,
        [&](Helper& helper, const Copies& own, int g) {
          helper.run([&](auto& backend) { cosines_of_group(backend, own.front().own, width, g, cosines); });
        },
        [&](int g) { cosines_of_group(static_cast<Base&>(*this), x, width, g, cosines); });
    leave(copies);
  }

  const Settings settings_;
  const Maker make_;
  bool are_made_ = false;
  std::vector<std::unique_ptr<Helper>> helpers_;  // of the devices 1, 2, ..; null: home has their parts
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_DEALT_HOME_H_
