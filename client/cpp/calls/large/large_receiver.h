// The replies of DecomposeLarge, checked and put in their place.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_RECEIVER_H_
#define SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_RECEIVER_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "client/cpp/calls/large/side_work.h"
#include "client/cpp/large.h"
#include "client/cpp/wire/large_wire.h"

namespace svdserve::client::internal {

// Where a result belongs, and how much of it is there. Chunks arrive in ascending order.
struct LargeTarget {
  std::span<std::byte> memory = {};
  size_t received = 0;
};

// Checks what the server says against what was asked for, and has results put in their place. Not thread-safe.
class LargeReceiver {
 public:
  // `beside` copies and checks the chunks; it is the caller's and outlives this.
  LargeReceiver(const LargeSizes& sizes, bool has_certificate, const LargeOutputs& out, SideWork* beside);

  // Starts over, for another attempt.
  void restart();
  // Fails with INTERNAL for what a server must not say, with DATA_LOSS where a chunk, or one before it, was damaged on its
  // way. operand_sent: all of the operand was sent, and commit. Keeps the data of `reply` until it is copied.
  Status take(LargeReply* reply, bool operand_sent);
  // Waits for the copies. Fails with DATA_LOSS for a damaged chunk.
  Status settle();
  bool accepted() const { return accepted_; }
  int64_t chunk_bytes() const { return chunk_bytes_; }
  double fraction() const;  // of the results
  // Fails with INTERNAL where something is missing.
  Result<LargeReport> finish();

 private:
  Status take_accepted(const LargeReply& reply);
  Status take_chunk(LargeReply* reply);
  void copy(const wire::ReceivedBytes& data, uint32_t checksum, int64_t offset, std::byte* to);
  Status damage() const;
  Status take_summary(const LargeReply& reply);

  SideWork* const beside_;
  const LargeSizes sizes_;
  const bool has_certificate_;
  LargeTarget targets_[3];  // by LargeFactor, less one
  bool accepted_ = false;
  int64_t chunk_bytes_ = 0;
  std::optional<LargeReport> report_;
  mutable std::mutex mutex_;
  Status damage_;  // guarded by mutex_; of the first chunk that was found damaged
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_LARGE_LARGE_RECEIVER_H_
