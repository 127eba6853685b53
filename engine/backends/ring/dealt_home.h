// A ring's home whose large products are dealt over devices: its own, and those of helpers.
//
//   gemm           C(:, J)  := alpha op(A) op(B)(:, J) + beta C(:, J)
//   herk           C(i, J)  := A(:, i)^H A(:, J), i not above J; the rest from it
//   solve_lower    B(:, J)  := L^-1 B(:, J)
//   apply_q        C(:, J)  := Q C(:, J) or Q^H C(:, J)
//   block_cosines  of some rows of blocks
// J: parts of the columns, cut by their number alone. So the bits do not depend on the number of devices, and home
// computes the parts of a helper that there is not. The parts of herk grow shorter, so a device has early and late ones.
// A helper gets A, L or Q whole, and its parts of the rest, and gives results back: each moves between devices once a
// product. It has memory of its own, and touches home's by copies alone. Memory of a helper: of A, and of half of B and C
// where there is one helper, a quarter where there are three.
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
//   void give(from, to)     home's view `to` := the helper's
//   void run(f)             f(backend), another LargeBackend of the same elements, whose views are the helper's
// Calls may return before they are done. The destructor waits.
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

  // Where a helper computes: views are fetched to memory of its own, and what has changed is given back.
  class HelperDesk {
   public:
    explicit HelperDesk(Helper& helper) : helper_(helper) {}
    // Kept until the end of the product.
    void fetch_whole(View a) { whole_.push_back({a, fetched(a, true)}); }
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
    // After each part.
    void give() {
      helper_.give(changed_.own, changed_.of_home);
      for (const View& own : std::exchange(parts_, {})) release(own);
    }
    void leave() {
      for (const auto& [of_home, own] : std::exchange(whole_, {})) release(own);
    }

   private:
    struct Pair {
      View of_home, own;
    };
    View fetched(View a, bool is_read) {
      View own;
      helper_.run([&](auto& backend) { own = backend.matrix(a.rows, a.cols); });
      if (is_read) helper_.fetch(a, own);
      return own;
    }
    void release(View own) {
      helper_.run([&](auto& backend) { backend.release(own); });
    }

    Helper& helper_;
    std::vector<Pair> whole_;
    std::vector<View> parts_;
    Pair changed_;
  };

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
  int device_of(int64_t i, int64_t count) const {
    if (settings_.devices >= count) return static_cast<int>(i);
    return static_cast<int>(std::min(i, count - 1 - i) * 2 * settings_.devices / count);
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

  // f(device, helper) for all helpers. One that has too little memory is a helper no more.
  template <class F>
  void for_helpers(const F& f) {
    for (int device = 1; device < settings_.devices; ++device) {
      std::unique_ptr<Helper>& helper = helpers_[static_cast<size_t>(device) - 1];
      if (helper == nullptr) continue;
      try {
        f(device, *helper);
      } catch (const large::LargeStop& stop) {
        if (stop.status != LargeStatus::kOutOfMemory) throw;
        helper.reset();
      }
    }
  }

  // f(desk, part) for the parts of so many columns. whole: what all parts read, and is_changed says whether home changes.
  template <class F>
  void deal(int64_t columns, std::initializer_list<View> whole, bool is_changed, const F& f) {
    make_helpers();
    const std::vector<Part> parts = parts_of(columns);
    std::vector<bool> done(parts.size(), false);
    std::vector<std::unique_ptr<HelperDesk>> desks(static_cast<size_t>(settings_.devices));
    for_helpers([&](int device, Helper& helper) {
      auto& desk = desks[static_cast<size_t>(device)] = std::make_unique<HelperDesk>(helper);
      helper.begin();
      for (const View& a : whole) desk->fetch_whole(a);
      if (is_changed) helper.end();
    });
    for_helpers([&](int device, Helper& /*helper*/) {
      HelperDesk& desk = *desks[static_cast<size_t>(device)];
      for (size_t i = 0; i < parts.size(); ++i) {
        if (device_of(static_cast<int64_t>(i), static_cast<int64_t>(parts.size())) != device) continue;
        f(desk, parts[i]);
        desk.give();
        done[i] = true;
      }
    });
    HomeDesk own{*this};
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!done[i]) f(own, parts[i]);
    }
    for_helpers([&](int device, Helper& helper) {
      desks[static_cast<size_t>(device)]->leave();
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

  // A device waits for its cosines, so each has a thread.
  void find_cosines(View x, int64_t width, large::BlockCosines& cosines) {
    const std::vector<View> theirs = fetch_by_helpers(x);
    std::vector<std::exception_ptr> failures(theirs.size());
    const int groups = std::max(1, cosines.blocks() / kRowsAtOnce);
    const auto compute = [&](size_t device, auto& backend, View own) {
      try {
        for (int g = 0; g < groups; ++g) {
          const auto owner = static_cast<size_t>(device_of(g, groups));
          if ((theirs[owner] ? owner : 0) == device) cosines_of_group(backend, own, width, g, cosines);
        }
      } catch (...) {
        failures[device] = std::current_exception();
      }
    };
    {
      std::vector<std::jthread> threads;
      for (size_t device = 1; device < theirs.size(); ++device) {
        if (!theirs[device]) continue;
        const auto work = [&, device] {
          helpers_[device - 1]->run([&](auto& backend) { compute(device, backend, theirs[device]); });
        };
        try {
          threads.emplace_back(work);
        } catch (const std::system_error&) {
          work();  // the system has no thread left
        }
      }
      compute(0, static_cast<Base&>(*this), x);
    }
    for (const std::exception_ptr& failure : failures) {
      if (failure != nullptr) std::rethrow_exception(failure);
    }
    for_helpers([&](int device, Helper& helper) {
      const View own = theirs[static_cast<size_t>(device)];
      if (own) helper.run([&](auto& backend) { backend.release(own); });
      helper.end();
    });
  }

  // For each device its own a; without data: home's, or there is no helper.
  std::vector<View> fetch_by_helpers(View a) {
    make_helpers();
    std::vector<View> own(static_cast<size_t>(settings_.devices));
    for_helpers([&](int device, Helper& helper) {
      helper.begin();
      View here;
      helper.run([&](auto& backend) { here = backend.matrix(a.rows, a.cols); });
      helper.fetch(a, here);
      own[static_cast<size_t>(device)] = here;
    });
    return own;
  }

  const Settings settings_;
  const Maker make_;
  bool are_made_ = false;
  std::vector<std::unique_ptr<Helper>> helpers_;  // of the devices 1, 2, ..; null: home has their parts
};

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_DEALT_HOME_H_
