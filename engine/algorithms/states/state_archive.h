// States of a decomposition (LargeStateStore) as sequences of bytes. The driver lists the parts of a state once, in a
// template over an archive. One archive counts their bytes, one writes them, and one reads them.
//
// Numbers are as in memory, since only the same build on the same kind of processor reads them. An archive has
//   same(x)         x has to be as it was when the state was written.
//   number(x)       x is of a trivially copyable type without padding.
//   numbers(v, most)    v is a vector of those, and comes with its size, which is at most `most`.
//   matrix(a, rows, cols)    a is a view of this shape; or there is none.
//   exponents(f, n), scalars(tau, n)    they may be null.
//   host(memory, bytes)    this is memory of the host, which is there on both sides.
//
// Damage may be known only after the last byte is read. So the decomposition sets bounds to all sizes in a state. It uses
// nothing of a state before its end.
#ifndef SVDSERVE_ENGINE_ALGORITHMS_STATES_STATE_ARCHIVE_H_
#define SVDSERVE_ENGINE_ALGORITHMS_STATES_STATE_ARCHIVE_H_

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/large_engine.h"

namespace svdserve::states {

// Bytes between two calls of `poll`.
inline constexpr uint64_t kStatePiece = 4 << 20;

// The common part of archives that count or write. Derived has host(memory, bytes) and device(...), of the back end.
template <class Derived, class Backend>
class WritingArchive {
 public:
  using E = typename Backend::Element;

  explicit WritingArchive(Backend& backend) : backend_(backend) {}

  template <class T>
  void number(const T& x) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    self().host(&x, sizeof x);
  }
  template <class T>
  void same(const T& x) {
    number(x);
  }
  void same(const std::string& text) {
    number(static_cast<uint64_t>(text.size()));
    self().host(text.data(), text.size());
  }
  template <class T>
  void numbers(const std::vector<T>& v, [[maybe_unused]] int64_t most) {
    assert(std::cmp_less_equal(v.size(), most));
    number(static_cast<uint64_t>(v.size()));
    self().host(v.data(), v.size() * sizeof(T));
  }
  template <class View>
  void matrix(const View& a, [[maybe_unused]] int64_t rows, [[maybe_unused]] int64_t cols) {
    const bool there = static_cast<bool>(a);
    number(uint8_t{there});
    if (!there) return;
    assert(a.rows == rows && a.cols == cols);
    self().device(static_cast<uint64_t>(a.rows * a.cols) * sizeof(E), a);
  }
  void exponents(const int32_t* f, int64_t n) { array(f, static_cast<uint64_t>(n) * sizeof *f); }
  void scalars(const E* tau, int64_t n) { array(tau, backend_.scalar_bytes(n)); }

 protected:
  Backend& backend_;

 private:
  Derived& self() { return static_cast<Derived&>(*this); }
  void array(const void* memory, uint64_t bytes) {
    number(uint8_t{memory != nullptr});
    if (memory != nullptr) self().device(bytes, memory, bytes);
  }
};

template <class Backend>
class CountingArchive : public WritingArchive<CountingArchive<Backend>, Backend> {
 public:
  using WritingArchive<CountingArchive, Backend>::WritingArchive;
  uint64_t bytes() const { return bytes_; }

  void host(const void* /*memory*/, uint64_t bytes) { bytes_ += bytes; }
  template <class... Memory>
  void device(uint64_t bytes, const Memory&... /*memory*/) {
    bytes_ += bytes;
  }

 private:
  uint64_t bytes_ = 0;
};

template <class Backend>
class StateWriter : public WritingArchive<StateWriter<Backend>, Backend> {
 public:
  // poll: called from time to time; may throw.
  StateWriter(Backend& backend, LargeStateStore& store, std::function<void()> poll)
      : WritingArchive<StateWriter, Backend>(backend), store_(store), poll_(std::move(poll)) {}

  void host(const void* memory, uint64_t bytes) { write(memory, bytes); }
  template <class... Memory>
  void device(uint64_t /*bytes*/, const Memory&... memory) {
    this->backend_.write_out(memory..., [this](const void* piece, uint64_t bytes) { write(piece, bytes); });
  }

 private:
  void write(const void* memory, uint64_t bytes) {
    for (uint64_t done = 0; done < bytes; done += kStatePiece) {
      store_.write(static_cast<const char*>(memory) + done, std::min(kStatePiece, bytes - done));
      poll_();
    }
  }

  LargeStateStore& store_;
  const std::function<void()> poll_;
};

// Thrown by a reader: the state is not of this decomposition, or cannot be read.
struct StateUnusable {};

template <class Backend>
class StateReader {
 public:
  using E = typename Backend::Element;

  // The state has been opened, and has so many bytes.
  StateReader(Backend& backend, LargeStateStore& store, uint64_t bytes, std::function<void()> poll)
      : backend_(backend), store_(store), left_(bytes), poll_(std::move(poll)) {}

  template <class T>
  void number(T& x) {
    static_assert(std::has_unique_object_representations_v<T> || std::is_floating_point_v<T>);
    host(&x, sizeof x);
  }
  template <class T>
  void same(const T& x) {
    T found{};
    number(found);
    if (found != x) throw StateUnusable();
  }
  void same(const std::string& text) {
    same(static_cast<uint64_t>(text.size()));
    std::string found(text.size(), '\0');
    host(found.data(), found.size());
    if (found != text) throw StateUnusable();
  }
  template <class T>
  void numbers(std::vector<T>& v, int64_t most) {
    uint64_t size = 0;
    number(size);
    if (std::cmp_greater(size, most) || size > left_ / sizeof(T)) throw StateUnusable();
    v.resize(size);
    host(v.data(), size * sizeof(T));
  }
  template <class View>
  void matrix(View& a, int64_t rows, int64_t cols) {
    a = {};
    if (!is_there(static_cast<uint64_t>(rows * cols) * sizeof(E))) return;
    a = backend_.matrix(rows, cols);
    backend_.read_in(a, [this](void* piece, uint64_t bytes) { host(piece, bytes); });
  }
  void exponents(int32_t*& f, int64_t n) {
    const uint64_t bytes = static_cast<uint64_t>(n) * sizeof *f;
    f = nullptr;
    if (!is_there(bytes)) return;
    f = backend_.exponents(n);
    array(f, bytes);
  }
  void scalars(E*& tau, int64_t n) {
    const uint64_t bytes = backend_.scalar_bytes(n);
    tau = nullptr;
    if (!is_there(bytes)) return;
    tau = backend_.scalars(n);
    array(tau, bytes);
  }
  void host(void* memory, uint64_t bytes) {
    if (bytes > left_) throw StateUnusable();
    left_ -= bytes;
    for (uint64_t done = 0; done < bytes; done += kStatePiece) {
      if (!store_.read(static_cast<char*>(memory) + done, std::min(kStatePiece, bytes - done))) throw StateUnusable();
      poll_();
    }
  }
  bool at_end() const { return left_ == 0; }

 private:
  // Whether the next part is, of so many bytes.
  bool is_there(uint64_t bytes) {
    uint8_t there = 0;
    number(there);
    if (there > 1 || (there == 1 && bytes > left_)) throw StateUnusable();
    return there == 1;
  }
  void array(void* memory, uint64_t bytes) {
    backend_.read_in(memory, bytes, [this](void* piece, uint64_t count) { host(piece, count); });
  }

  Backend& backend_;
  LargeStateStore& store_;
  uint64_t left_;
  const std::function<void()> poll_;
};

}  // namespace svdserve::states
#endif  // SVDSERVE_ENGINE_ALGORITHMS_STATES_STATE_ARCHIVE_H_
