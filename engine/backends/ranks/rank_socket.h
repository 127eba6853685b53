// Messages between a leader and a rank: a kind, values one after the other, and perhaps a descriptor.
//
// Both ends are one build on one machine, so values cross as they lie in memory. A message that has fewer than are read
// throws std::length_error. A socket whose other end is gone throws SocketClosed. Thread safety: none; each end has one
// thread at a time.
#ifndef SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_SOCKET_H_
#define SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace svdserve::ranks {

// A descriptor that is closed with it.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }  // -1: none
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

// Written, and then read in the same order.
class Values {
 public:
  template <class T>
  Values& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return append(&value, sizeof(T));
  }
  template <class T>
  Values& put(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(static_cast<uint64_t>(count));
    return append(values, count * sizeof(T));
  }
  Values& put(const std::string& text) { return put(text.data(), text.size()); }

  template <class T>
  T get() {
    T value;
    extract(&value, sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_all() {
    const auto count = get<uint64_t>();
    require(count <= left() / sizeof(T));
    std::vector<T> values(count);
    extract(values.data(), count * sizeof(T));
    return values;
  }
  std::string get_text() {
    const auto text = get_all<char>();
    return {text.begin(), text.end()};
  }

 private:
  friend class RankSocket;
  Values& append(const void* from, size_t bytes) {
    bytes_.append(static_cast<const char*>(from), bytes);
    return *this;
  }
  size_t left() const { return bytes_.size() - at_; }
  static void require(bool has_them) {
    if (!has_them) throw std::length_error("a message of a rank ends early");
  }
  void extract(void* to, size_t bytes) {
    if (bytes == 0) return;
    require(bytes <= left());
    std::memcpy(to, bytes_.data() + at_, bytes);
    at_ += bytes;
  }

  std::string bytes_;
  size_t at_ = 0;
};

struct SocketClosed {};

struct Message {
  int32_t kind = 0;
  Values values;
  Descriptor descriptor;  // or none
};

class RankSocket {
 public:
  explicit RankSocket(Descriptor end) : end_(std::move(end)) {}
  // Blocks while the other end has many messages unread. `descriptor` stays the caller's; -1: none.
  void send(int32_t kind, const Values& values = {}, int descriptor = -1);
  Message receive();  // blocks
  // Whether there is something to receive by then, or the other end is gone.
  bool has_news_within(std::chrono::milliseconds time) const;
  // Whether the other end is there and has sent nothing.
  bool is_quiet() const;
  int descriptor() const { return end_.get(); }

 private:
  Descriptor end_;
};

// Both ends. Throws large::LargeStop where the system gives none.
std::pair<Descriptor, Descriptor> socket_pair();

}  // namespace svdserve::ranks
#endif  // SVDSERVE_ENGINE_BACKENDS_RANKS_RANK_SOCKET_H_
