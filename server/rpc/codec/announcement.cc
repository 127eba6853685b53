#include "server/rpc/codec/announcement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "wire/metadata.h"

namespace svdserve::server {
namespace {

// A claim for a message is so many times its size: operand, U, V, values and statuses of square matrices. Other results
// may need more, which is reserved after decoding; less is given back then.
constexpr int64_t kClaimLarge = 4;
// It is at least what a client may send, whatever it announces, where windows are small.
constexpr int64_t kSmallestClaim = int64_t{64} << 10;

Error refusal(std::string message) {
  return {absl::StatusCode::kInvalidArgument, Reason::kInvalidField, std::move(message), kRequestBytesKey, {}};
}

}  // namespace

Announcement::Announcement(const grpc::CallbackServerContext& call) {
  const auto& metadata = call.client_metadata();
  const auto found = metadata.find(kRequestBytesKey);
  int64_t bytes = 0;
  if (found != metadata.end() &&
      absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &bytes) && bytes >= 0) {
    bytes_ = bytes;
  }
}

Error Announcement::check(int64_t max_message_bytes) const {
  if (bytes_ <= max_message_bytes) return {};
  return refusal(absl::StrCat("the metadata ", kRequestBytesKey, " must be a number of at most ", max_message_bytes));
}

Error Announcement::check_message(size_t bytes) const {
  if (!given() || std::cmp_less_equal(bytes, bytes_)) return {};
  return refusal(
      absl::StrCat("the request has ", bytes, " bytes, but the metadata ", kRequestBytesKey, " announced ", bytes_));
}

int64_t Announcement::claim(int64_t max_message_bytes) const {
  return given() ? std::max(kClaimLarge * bytes_, kSmallestClaim) : max_message_bytes;
}

}  // namespace svdserve::server
