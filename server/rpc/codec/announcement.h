// The length that a client announces for a call's messages, and the claim that follows from it.
#ifndef SVDSERVE_SERVER_RPC_CODEC_ANNOUNCEMENT_H_
#define SVDSERVE_SERVER_RPC_CODEC_ANNOUNCEMENT_H_

#include <grpcpp/server_context.h>

#include <cstddef>
#include <cstdint>

#include "server/error.h"

namespace svdserve::server {

// The length of a message, or of the longest one of a stream. It is the client's word, which a message may break.
class Announcement {
 public:
  Announcement() = default;
  // By the call's metadata; one that is no length counts as none.
  explicit Announcement(const grpc::CallbackServerContext& call);

  bool given() const { return bytes_ >= 0; }
  // ok(), or why no message may have that length.
  Error check(int64_t max_message_bytes) const;
  // ok(), or why a message of `bytes` breaks it.
  Error check_message(size_t bytes) const;
  // The bytes that a message claims: those of the message limit where nothing is announced.
  int64_t claim(int64_t max_message_bytes) const;

 private:
  int64_t bytes_ = -1;  // -1: none
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_ANNOUNCEMENT_H_
