// A claim on the server's memory and on its number of requests, made at admission and given back by its destructor.
#ifndef SVDSERVE_SERVER_RESERVATION_H_
#define SVDSERVE_SERVER_RESERVATION_H_

#include <cstdint>
#include <utility>

namespace svdserve::server {

// Grants reservations and takes them back. It outlives every reservation that it granted. Thread-safe.
class ReservationGrantor {
 public:
  virtual void give_back(int64_t bytes, int requests) = 0;

 protected:
  ~ReservationGrantor() = default;
};

// Move-only; an empty one claims nothing. One request and `bytes` bytes, or bytes alone (`requests` 0).
class Reservation {
 public:
  Reservation() = default;
  Reservation(ReservationGrantor* grantor, int64_t bytes) : Reservation(grantor, bytes, 1) {}
  Reservation(ReservationGrantor* grantor, int64_t bytes, int requests)
      : grantor_(grantor), bytes_(bytes), requests_(requests) {}
  Reservation(Reservation&& other) noexcept
      : grantor_(std::exchange(other.grantor_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        requests_(std::exchange(other.requests_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    std::swap(grantor_, other.grantor_);
    std::swap(bytes_, other.bytes_);
    std::swap(requests_, other.requests_);
    return *this;
  }
  ~Reservation() {
    if (grantor_ != nullptr && (bytes_ != 0 || requests_ != 0)) grantor_->give_back(bytes_, requests_);
  }

  int64_t bytes() const { return bytes_; }
  // Null where it claims nothing.
  ReservationGrantor* grantor() const { return grantor_; }
  // `bytes` of the claim, at most bytes(), which go back by themselves; the request stays with this.
  Reservation split(int64_t bytes) {
    bytes_ -= bytes;
    return {grantor_, bytes, 0};
  }
  // Takes over the bytes of `other`, of the same grantor; its request goes back.
  void join(Reservation other) { bytes_ += std::exchange(other.bytes_, 0); }

 private:
  ReservationGrantor* grantor_ = nullptr;
  int64_t bytes_ = 0;
  int requests_ = 0;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RESERVATION_H_
