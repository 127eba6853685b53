// A thread block without a GPU, by the contract of threads in engine/core/team.h. Every thread is a fiber, which runs
// until it waits for the others. Fibers go on in a random order, so that what a barrier must part shows as other bits.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_BLOCK_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_BLOCK_H_

#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

class FiberBlock {
 public:
  // A multiple of 32 threads; seed 0: in ascending order.
  FiberBlock(int threads, uint64_t seed) : fibers_(static_cast<size_t>(threads)), random_(seed), shuffles_(seed != 0) {}
  FiberBlock(const FiberBlock&) = delete;
  FiberBlock& operator=(const FiberBlock&) = delete;

  // One thread's view of the block.
  class Thread {
   public:
    Thread(FiberBlock* block, int index) : block_(block), index_(index) {}
    int index() const { return index_; }
    int count() const { return static_cast<int>(block_->fibers_.size()); }
    void sync() const { block_->wait(index_, 's'); }
    bool any(bool b) const { return any_of(b, 0, count(), 'a'); }
    bool any_of_warp(bool b) const { return any_of(b, index_ / 32 * 32, index_ / 32 * 32 + 32, 'w'); }
    template <class T>
    T from_lane(T x, int lane) const {
      if (lane < 0 || lane >= 32) throw std::out_of_range("no such lane");
      const int turn = post(static_cast<double>(x), 'f');
      return static_cast<T>(block_->fibers_[static_cast<size_t>(index_ / 32 * 32 + lane)].posted[turn]);
    }

    template <class T>
    T exchanged(T x, int distance) const {
      return from_lane(x, (index_ % 32) ^ distance);
    }

   private:
    bool any_of(bool b, int first, int last, char what) const {
      const int turn = post(b ? 1 : 0, what);
      bool any = false;
      for (int i = first; i < last; ++i) any = any || block_->fibers_[static_cast<size_t>(i)].posted[turn] != 0;
      return any;
    }
    // Two numbers in turn: the one before is read until all who share it have posted the next.
    int post(double x, char what) const {
      Fiber& fiber = block_->fibers_[static_cast<size_t>(index_)];
      const int turn = what == 'a' ? 2 + (fiber.of_block++ & 1) : fiber.of_warp++ & 1;
      fiber.posted[turn] = x;
      block_->wait(index_, what);
      return turn;
    }
    FiberBlock* block_;
    int index_;
  };

  // Runs f(thread) on every thread. Calls that the threads of a block, or of a warp, must make together and do not are
  // an exception.
  template <class F>
  void run(F f) {
    body_ = [&f](Thread thread) { f(thread); };
    for (size_t i = 0; i < fibers_.size(); ++i) start(i);
    std::vector<size_t> order(fibers_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    for (bool running = true; running;) {
      for (size_t i = order.size() - 1; shuffles_ && i > 0; --i) {
        std::swap(order[i], order[static_cast<size_t>(random_.integer(0, static_cast<int64_t>(i)))]);
      }
      running = false;
      let_go_on();
      for (const size_t i : order) {
        if (!std::exchange(fibers_[i].go, false)) continue;
        running = true;
        swapcontext(&scheduler_, &fibers_[i].context);
      }
    }
    for (const Fiber& fiber : fibers_) {
      if (!fiber.done) throw std::logic_error("threads wait for each other in different places");
    }
  }

 private:
  static constexpr size_t kStackBytes = 256 * 1024;
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<char[]> stack;
    char waits_for = 0;
    bool done = false, go = false;
    unsigned of_warp = 0, of_block = 0;  // posts so far
    double posted[4] = {};
  };

  void start(size_t i) {
    Fiber& fiber = fibers_[i];
    fiber.stack.reset(new char[kStackBytes]);
    fiber.done = false;
    fiber.waits_for = 0;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = &scheduler_;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&fiber.context, reinterpret_cast<void (*)()>(&FiberBlock::enter), 3, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self), static_cast<unsigned>(i));
  }
  static void enter(unsigned high, unsigned low, unsigned index) {
    auto* const self = reinterpret_cast<FiberBlock*>(static_cast<uintptr_t>(high) << 32 | low);
    self->body_(Thread(self, static_cast<int>(index)));
    self->fibers_[index].done = true;
  }
  void wait(int index, char what) {
    Fiber& fiber = fibers_[static_cast<size_t>(index)];
    fiber.waits_for = what;
    swapcontext(&fiber.context, &scheduler_);
  }
  // The barrier that fibers first .. last - 1 wait for; -1 if not all wait for the same.
  int common_wait(size_t first, size_t last) const {
    const char what = fibers_[first].waits_for;
    for (size_t i = first; i < last; ++i) {
      if (fibers_[i].done || fibers_[i].waits_for != what) return -1;
    }
    return what;
  }
  // A fiber goes on when all whom it waits for wait for the same: its warp, or everybody.
  void let_go_on() {
    const int of_block = common_wait(0, fibers_.size());
    for (size_t warp = 0; warp < fibers_.size(); warp += 32) {
      const int of_warp = common_wait(warp, warp + 32);
      for (size_t i = warp; i < warp + 32; ++i) {
        const char what = fibers_[i].waits_for;
        const bool everybody = what == 's' || what == 'a';
        fibers_[i].go = !fibers_[i].done && (what == 0 || what == (everybody ? of_block : of_warp));
      }
    }
  }

  std::vector<Fiber> fibers_;
  ucontext_t scheduler_;
  std::function<void(Thread)> body_;
  Random random_;
  bool shuffles_;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_BLOCK_H_
