#include "server/large/reply.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace svdserve::server {

std::optional<LargeResultChunk> ResultChunks::peek(size_t most) const {
  if (pieces_.empty()) return std::nullopt;
  LargeResultChunk chunk;
  chunk.piece = pieces_.front();
  const MappedBlock& block = chunk.piece->block;
  chunk.result = chunk.piece->result;
  chunk.offset = chunk.piece->offset + static_cast<int64_t>(sent_);
  chunk.data = block.data() + sent_;
  chunk.bytes = std::min(block.size() - sent_, most);
  return chunk;
}

std::optional<LargeResultChunk> ResultChunks::next(size_t most) {
  std::optional<LargeResultChunk> chunk = peek(most);
  if (!chunk) return chunk;
  sent_ += chunk->bytes;
  if (sent_ == chunk->piece->block.size()) {
    pieces_.pop_front();  // the chunk has it
    sent_ = 0;
  }
  return chunk;
}

void ResultChunks::drop(std::vector<std::shared_ptr<const void>>* done_with) {
  done_with->insert(done_with->end(), pieces_.begin(), pieces_.end());
  pieces_.clear();
}

Error cancelled() { return {absl::StatusCode::kCancelled, Reason::kCancelled, "the call was cancelled", "", {}}; }

Error error_of(const LargeOutcome& outcome, const std::string& device) {
  using absl::StatusCode;
  switch (outcome.status) {
    case LargeStatus::kNonFinite:
      return {StatusCode::kInvalidArgument,
              Reason::kNonFinite,
              absl::StrCat("the element in row ", outcome.row, " and column ", outcome.col, " is infinite or NaN"),
              "chunk.data",
              {}};
    case LargeStatus::kRankDeficient:
      return {StatusCode::kInvalidArgument,
              Reason::kRankDeficient,
              absl::StrCat("a hyperbolic SVD needs a matrix of full column rank", outcome.detail.empty() ? "" : ": ",
                           outcome.detail),
              "chunk.data",
              {}};
    case LargeStatus::kOutOfMemory:
      return {StatusCode::kResourceExhausted, Reason::kOverloadedBytes,
              absl::StrCat("the device ", device,
                           " has too little free memory for this matrix; send it again later, or send a smaller one"),
              "", absl::Seconds(1)};
    case LargeStatus::kCancelled:
      return cancelled();
    case LargeStatus::kFault:
      if (outcome.device_lost) {
        return {StatusCode::kUnavailable, Reason::kDeviceFault,
                absl::StrCat("the device ", device, " was lost while it computed this matrix; send it again later"), "",
                absl::Seconds(1)};
      }
      return {StatusCode::kInternal, Reason::kDeviceFault,
              absl::StrCat("the device ", device, " failed to compute this matrix; the server's log says why"), "",
              absl::ZeroDuration()};
    case LargeStatus::kOk:
    case LargeStatus::kNotConverged:
      break;
  }
  return {};
}

}  // namespace svdserve::server
