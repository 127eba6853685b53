// A large matrix's operand and results as files, and what they are called.
#ifndef SVDSERVE_SERVER_LARGE_LARGE_CHECKPOINT_H_
#define SVDSERVE_SERVER_LARGE_LARGE_CHECKPOINT_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/large/large_memory.h"
#include "server/large/large_request.h"

namespace svdserve::server {

// A line that two requests have in common where they ask for the same of operands of the same layout.
std::string describe(const LargeOpen& open);

// The numbers beside the results.
struct ComputedLarge {
  LargeOutcome outcome;
  std::string device;  // that computed it
  absl::Duration compute;
};
// As text, and back; nothing where it is no such text.
std::string to_text(const ComputedLarge& computed);
std::optional<ComputedLarge> computed_of(const std::string& text);

// In the background; `done`, on a thread of the store's, is told whether it succeeded.
using TransferDone = std::function<void(bool ok)>;
void save_operand(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, TransferDone done);
void load_operand(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, TransferDone done);
void save_results(Checkpoint& files, const ComputedLarge& computed,
                  const std::deque<std::shared_ptr<const ResultPiece>>& results);
// After memory->map_results(). `loaded` is told their numbers; nothing: they cannot be read.
using ResultsLoaded = std::function<void(std::optional<ComputedLarge> computed)>;
void load_results(Checkpoint& files, const std::shared_ptr<LargeMemory>& memory, ResultsLoaded loaded);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_LARGE_CHECKPOINT_H_
