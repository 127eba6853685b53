// The respond stage of a large matrix: its results as chunks, and an outcome without results as the caller's error.
#ifndef SVDSERVE_SERVER_LARGE_REPLY_H_
#define SVDSERVE_SERVER_LARGE_REPLY_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "server/error.h"
#include "server/large/large_memory.h"
#include "server/large/large_request.h"

namespace svdserve::server {

// The results that are not sent yet. Not thread-safe.
class ResultChunks {
 public:
  ResultChunks() = default;
  explicit ResultChunks(std::deque<std::shared_ptr<const ResultPiece>> pieces) : pieces_(std::move(pieces)) {}

  // The next chunk, of at most `most` bytes. The last chunk of a piece takes the share of it that was here.
  std::optional<LargeResultChunk> next(size_t most);
  // The chunk that next() will return.
  std::optional<LargeResultChunk> peek(size_t most) const;
  // Hands over what is left, to be let go outside a lock.
  void drop(std::vector<std::shared_ptr<const void>>* done_with);

 private:
  std::deque<std::shared_ptr<const ResultPiece>> pieces_;
  size_t sent_ = 0;  // bytes of the first of them
};

// The caller's error for an outcome without results. The device's own words are for the log alone.
Error error_of(const LargeOutcome& outcome, const std::string& device);

// The call was cancelled.
Error cancelled();

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_REPLY_H_
