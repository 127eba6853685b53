// Teams of kThreads threads of a warp, by fibers (core/team.h).
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_

#include <cstddef>

#include "tests/support/numerics/fiber_block.h"

namespace svdserve::numerics {

// A thread of one of the teams of a warp. All of them have the same matrix, and so take the same way.
template <int kThreads>
class FiberTeam {
 public:
  explicit FiberTeam(const FiberBlock::Thread& thread) : thread_(thread) {}
  int index() const { return thread_.index() % kThreads; }
  static constexpr int count() { return kThreads; }
  void sync() const { thread_.sync(); }
  bool any(bool b) const { return thread_.any_of_warp(b); }
  template <class T>
  T from_lane(T x, int lane) const {
    return thread_.from_lane(x, thread_.index() / kThreads * kThreads + lane);
  }
  template <class T>
  T exchanged(T x, int distance) const {
    return thread_.exchanged(x, distance);
  }
  template <class T, size_t n>
  void exchange_all(T (&x)[n], int distance) const {
    for (T& number : x) number = exchanged(number, distance);
  }
  template <class T, size_t n>
  void take_all(T (&x)[n], int thread) const {
    for (T& number : x) number = from_lane(number, thread);
  }
  template <int kStride, class T, size_t n>
  void add_all(T (&x)[n]) const {
    for (int d = kThreads / 2; d >= kStride; d /= 2) {
      for (T& number : x) number = number + exchanged(number, d);
    }
  }

 private:
  FiberBlock::Thread thread_;
};

// A thread of several warps, which exchange arrays through `mail`, of 2 kMail numbers for each.
template <class T, size_t kThreads, size_t kMail>
class FiberWarps {
 public:
  FiberWarps(const FiberBlock::Thread& thread, T* mail) : thread_(thread), mail_(mail) {}
  int index() const { return thread_.index(); }
  T from_lane(T x, int lane) const { return thread_.from_lane(x, lane % 32); }
  T exchanged(T x, int distance) const { return thread_.exchanged(x, distance); }
  template <size_t n>
  void exchange_all(T (&x)[n], int distance) {
    if (distance < 32) {
      for (T& number : x) number = exchanged(number, distance);
    } else {
      take_all(x, index() ^ distance);
    }
  }
  template <size_t n>
  void take_all(T (&x)[n], int thread) {
    static_assert(n <= kMail);
    T* const own = mail_ + (turn_ * kThreads + static_cast<size_t>(index())) * kMail;
    const T* const from = mail_ + (turn_ * kThreads + static_cast<size_t>(thread)) * kMail;
    for (size_t i = 0; i < n; ++i) own[i] = x[i];
    thread_.sync();
    for (size_t i = 0; i < n; ++i) x[i] = from[i];
    turn_ = 1 - turn_;
  }
  template <int kStride, size_t n>
  void add_all(T (&x)[n]) {
    for (int d = static_cast<int>(kThreads) / 2; d >= kStride; d /= 2) {
      T other[n];
      for (size_t i = 0; i < n; ++i) other[i] = x[i];
      exchange_all(other, d);
      for (size_t i = 0; i < n; ++i) x[i] = x[i] + other[i];
    }
  }

 private:
  FiberBlock::Thread thread_;
  T* mail_;
  size_t turn_ = 0;
};

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_FIBER_TEAM_H_
