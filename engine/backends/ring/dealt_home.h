// A ring's home whose large products are dealt over devices: its own, and those of helpers.
//
//   gemm           C(:, J)  := alpha op(A) op(B)(:, J) + beta C(:, J)
//   herk           C(i, J)  := A(:, i)^H A(:, J), i not above J; the rest from it
//   solve_lower    B(:, J)  := L^-1 B(:, J)
//   apply_q        C(:, J)  := Q C(:, J) or Q^H C(:, J)
//   block_cosines  of some rows of blocks
//   qr             A(:, J_i) := Q_k^H A(:, J_i) for the groups k before i; Q_i R_i := A(:, J_i)
// J: parts of the columns, cut by their number alone. So the bits do not depend on the number of devices, and home
// computes the parts of a helper that there is not. The parts of herk grow shorter, so a device has early and late ones.
// A helper gets A, L or Q whole, and its parts of the rest, and gives results back. Home sends the whole once: each helper
// gets a share of its columns, and the other shares from other helpers. A helper has memory of its own, and touches that
// of others by copies alone. Memory of a helper: of A, and of half of B and C where there is one helper, a quarter where
// there are three. That is more than a QR asks for.
// Each device has a thread of its own, because products of many kernels take long to enqueue.
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
// The same of a QR, of matrices of order 10 321. Below, by estimate, home's part takes as long as all of it on one device.
inline constexpr double kLeastDealtQr = 0x1p40;
// Groups of columns of a QR. They are wide enough to be multiplied fast, and enough that few devices wait at the end.
inline constexpr int64_t kGroupsOfQr = 32;

// Columns of a group of reflectors whose scalars lie apart.
template <class Backend>
inline constexpr int64_t kReflectorGroupOf = 1;
template <class Backend>
requires requires { Backend::kReflectorGroup; }
inline constexpr int64_t kReflectorGroupOf<Backend> = Backend::kReflectorGroup;

// Base: a HermitianBackend.
// Helper: class with
//   void begin()            what follows sees the results of all of home's calls so far
//   void mark()             the point up to which wait() waits
//   void wait()             home's calls that follow wait for all that was asked of the helper before its latest mark()
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
    double least_work = kLeastDealtWork, least_qr = kLeastDealtQr;
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
    const View scalars = scalars_of(tau, 0, a.cols);
    // Home writes to both meanwhile.
    deal(c.cols, {a, scalars}, true, [&](auto& desk, Part j) {
      desk.compute([&, of_a = desk.read(a), of_tau = desk.read(scalars),
                    result = desk.change(c.columns(j.first, j.count), true)](auto& backend) {
        backend.apply_q(op, of_a, of_tau.data, result);
      });
    });
    if (done) done(1);
  }

  // Home factorizes a group of columns. Its reflectors go to the devices that have the groups behind it, and the next group
  // comes home first. So home factorizes it while the others go on.
  void qr(View a, E* tau, const large::PartDone& done = {}) {
    if (work_of(a.rows, a.cols, a.cols) < settings_.least_qr) return Base::qr(a, tau, done);
    DealtQr qr{a, tau, groups_of_qr(a.cols)};
    hand_out(qr);
    for (size_t k = 0; k < qr.groups.size(); ++k) {
      const Part at = qr.groups[k].columns;
      Base::qr(reflectors_of(a, at), scalars_of(tau, at.first, at.count).data);
      if (done) done(part_of_qr(a, at.first + at.count));
      if (k + 1 < qr.groups.size()) apply_behind(qr, k);
    }
    for_helpers([&](int device, Helper& helper) {
      for (const View& own : qr.reflectors[static_cast<size_t>(device)]) free_room(helper, own);
      end(helper);
    });
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

  // Columns of a QR, and how many groups before them have been applied to them.
  struct QrGroup {
    Part columns;
    int device = 0;
    View own = {};  // the device's, if it is a helper
    size_t applied = 0;
  };
  struct DealtQr {
    View a;
    E* tau;
    std::vector<QrGroup> groups;
    // Room on each device for a group's reflectors and their scalars; none: it takes no part.
    std::vector<std::vector<View>> reflectors = {};
  };

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

  static double work_of(int64_t rows, int64_t cols, int64_t inner) {
    return static_cast<double>(rows) * static_cast<double>(cols) * static_cast<double>(inner);
  }
  bool is_dealt(int64_t rows, int64_t cols, int64_t inner) const {
    return work_of(rows, cols, inner) >= settings_.least_work;
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

  // Home's calls that follow wait for all that was asked of it.
  static void end(Helper& helper) {
    helper.mark();
    helper.wait();
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
    });
    fill(copies, is_changed);
    return copies;
  }

  void fill(const std::vector<Copies>& copies, bool is_changed) {
    const auto has_copies = [&](int device) { return !copies[static_cast<size_t>(device)].empty(); };
    const int64_t sharers = std::count_if(copies.begin(), copies.end(), [](const Copies& own) { return !own.empty(); });
    std::vector<int> number(copies.size());  // of a sharer
    int next = 0;
    for_helpers([&](int device, Helper& helper) {
      if (!has_copies(device)) return;
      helper.begin();
      const int64_t own = number[static_cast<size_t>(device)] = next++;
      for (const auto& [of_home, here] : copies[static_cast<size_t>(device)]) {
        const Part share = share_of(of_home.cols, own, sharers);
        helper.fetch(of_home.columns(share.first, share.count), here.columns(share.first, share.count));
      }
      helper.share();
      if (is_changed) end(helper);
    });
    for_helpers([&](int device, Helper& helper) {
      if (!has_copies(device)) return;
      const auto own = static_cast<size_t>(device);
      for (int64_t i = 1; i < sharers; ++i) {  // not all from the same one at once
        for_helpers([&](int other, Helper& sharer) {
          const auto theirs = static_cast<size_t>(other);
          if (!has_copies(other)) return;
          if ((number[own] + i) % sharers != number[theirs]) return;
          for (size_t v = 0; v < copies[own].size(); ++v) {
            const Part share = share_of(copies[own][v].of_home.cols, number[theirs], sharers);
            helper.fetch_shared(sharer, copies[theirs][v].own.columns(share.first, share.count),
                                copies[own][v].own.columns(share.first, share.count));
          }
        });
      }
    });
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
      end(helper);
    });
  }

  // --- QR -------------------------------------------------------------------------------------------------------------

  View scalars_of(E* tau, int64_t first, int64_t count) const {
    const auto elements = [&](int64_t n) { return static_cast<int64_t>(Base::scalar_bytes(n) / sizeof(E)); };
    return {tau + elements(first), elements(count), 1, elements(count)};
  }
  static double part_of_qr(View a, int64_t columns) {
    const auto work = [](double m, double n) { return n * n * (m - n / 3); };
    const auto m = static_cast<double>(a.rows), n = static_cast<double>(a.cols), c = static_cast<double>(columns);
    return 1 - work(m - c, n - c) / work(m, n);
  }

  // Groups go round. Home has other work, so it has half of a helper's.
  std::vector<QrGroup> groups_of_qr(int64_t columns) const {
    constexpr int64_t kApart = kReflectorGroupOf<Base>;
    const int64_t width = ((columns + kGroupsOfQr - 1) / kGroupsOfQr + kApart - 1) / kApart * kApart;
    const int round = 2 * settings_.devices - 1;
    std::vector<QrGroup> groups;
    for (int64_t first = 0; first < columns; first += width) {
      const int at = static_cast<int>((first / width + round - 1) % round);
      groups.push_back({{first, std::min(width, columns - first)}, (at + 1) % settings_.devices});
    }
    groups.front().device = 0;
    return groups;
  }

  // Helpers have their groups. Home has those of helpers that there are not.
  void hand_out(DealtQr& qr) {
    make_helpers();
    qr.reflectors.resize(static_cast<size_t>(settings_.devices));
    const Part widest = qr.groups.front().columns;
    for_helpers([&](int device, Helper& helper) {
      auto& reflectors = qr.reflectors[static_cast<size_t>(device)];
      std::vector<View> own;
      for (const View& view : {qr.a.columns(0, widest.count), scalars_of(qr.tau, 0, widest.count)}) {
        own.push_back(room(helper, view));
      }
      for (QrGroup& group : qr.groups) {
        if (group.device == device) group.own = room(helper, columns_of(qr, group));
      }
      helper.begin();
      for (const QrGroup& group : qr.groups) {
        if (group.device == device) helper.fetch(columns_of(qr, group), group.own);
      }
      reflectors = std::move(own);
    });
    for (QrGroup& group : qr.groups) {
      if (group.device > 0 && qr.reflectors[static_cast<size_t>(group.device)].empty()) group = {group.columns};
    }
  }
  static View columns_of(const DealtQr& qr, const QrGroup& group) {
    return qr.a.columns(group.columns.first, group.columns.count);
  }

  // Group k's reflectors, to the groups behind it.
  void apply_behind(DealtQr& qr, size_t k) {
    const Part at = qr.groups[k].columns;
    const View v = reflectors_of(qr.a, at), scalars = scalars_of(qr.tau, at.first, at.count);
    std::vector<Copies> copies(qr.reflectors.size());
    for (size_t d = 0; d < copies.size(); ++d) {
      if (qr.reflectors[d].empty()) continue;
      copies[d] = {{v, qr.reflectors[d][0].block(0, 0, v.rows, v.cols)},
                   {scalars, qr.reflectors[d][1].block(0, 0, scalars.rows, 1)}};
    }
    fill(copies, true);
    for_helpers([&](int /*device*/, Helper& helper) { end(helper); });  // nobody reads what is filled next
    std::vector<char> is_short(copies.size(), 0);
    on_all_devices(
        [&](int device, Helper& helper) {
          try {
            apply_at(qr, k, device, helper, copies[static_cast<size_t>(device)]);
          } catch (const large::LargeStop& stop) {
            if (stop.status != LargeStatus::kOutOfMemory) throw;
            is_short[static_cast<size_t>(device)] = 1;
          }
        },
        [&] { apply_at_home(qr, k); });
    for_helpers([&](int device, Helper& helper) {
      if (is_short[static_cast<size_t>(device)] != 0) give_all_back(qr, device, helper);
      if (qr.groups[k + 1].device == device) helper.wait();
    });
    apply_at_home(qr, k);
  }

  // v, scalars: of group k.
  template <class Backend>
  static void apply_to(Backend& backend, QrGroup& group, size_t k, View columns, View v, View scalars) {
    const View rows = columns.block(columns.rows - v.rows, 0, v.rows, columns.cols);
    backend.apply_q(large::Op::kAdjoint, v, scalars.data, rows);
    group.applied = k + 1;
  }

  void apply_at(DealtQr& qr, size_t k, int device, Helper& helper, const Copies& of_k) const {
    for (size_t i = k + 1; i < qr.groups.size(); ++i) {
      QrGroup& group = qr.groups[i];
      if (group.device != device) continue;
      helper.run([&](auto& backend) { apply_to(backend, group, k, group.own, of_k[0].own, of_k[1].own); });
      if (i > k + 1) continue;
      helper.give(group.own, columns_of(qr, group));
      helper.mark();
      free_room(helper, std::exchange(group.own, {}));
    }
  }

  void apply_at_home(DealtQr& qr, size_t k) {
    const Part at = qr.groups[k].columns;
    for (size_t i = k + 1; i < qr.groups.size(); ++i) {
      QrGroup& group = qr.groups[i];
      if (group.device > 0 || group.applied > k) continue;
      apply_to(static_cast<Base&>(*this), group, k, columns_of(qr, group), reflectors_of(qr.a, at),
               scalars_of(qr.tau, at.first, at.count));
    }
  }
  static View reflectors_of(View a, Part at) { return a.block(at.first, at.first, a.rows - at.first, at.count); }

  // A helper has too little memory to go on.
  void give_all_back(DealtQr& qr, int device, Helper& helper) const {
    for (QrGroup& group : qr.groups) {
      if (group.device != device || !group.own) continue;
      helper.give(group.own, columns_of(qr, group));
      free_room(helper, std::exchange(group.own, {}));
      group.device = 0;
    }
    end(helper);
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
