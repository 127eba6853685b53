// The states of a matrix's computation (LargeStateStore) as files beside its operand. A state is written while the
// computation waits, as fast as memory takes it. The disk gets it in the background; until then no other is saved.
#ifndef SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_
#define SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/base/clock.h"
#include "server/checkpoint/checkpoint_files.h"

namespace svdserve::server {

// The files of one matrix, as the store knows them.
struct StateFolder {
  const CheckpointDirectory* directory = nullptr;
  std::string name;
  int64_t max_bytes = 0;  // of all states, and of one that is being written
  // At least so long nothing is saved after a state. It grows so that saving takes no more than kShareForStates of the
  // time. Zero: all states are saved.
  absl::Duration interval;
  std::function<bool()> is_ours;                    // the operand is on disk, and no other call has the matrix
  std::function<void(std::function<void()>)> push;  // runs it in the background, later
  std::function<void(bool saving, LargeState state, const std::string& why)> failed;
  std::function<void()> saved;
};

class CheckpointStates final : public LargeStateStore {
 public:
  static constexpr double kShareForStates = 0.05;

  // `clock` and all that the folder points to outlive it, and what it has pushed.
  CheckpointStates(StateFolder folder, Clock* clock);

  bool due() override;
  bool begin(LargeState state, uint64_t bytes) override;
  void write(const void* bytes, uint64_t count) override;
  void end() override;
  uint64_t open(LargeState state) override;
  bool read(void* bytes, uint64_t count) override;

 private:
  // The background has it, too.
  struct Shared {
    StateFolder folder;
    std::atomic<int> unfinished{0};    // states that the disk does not have yet
    std::atomic<bool> gave_up{false};  // one could not be saved: no more are tried
  };
  static void fail(Shared& shared, LargeState state, const std::string& why);
  int64_t bytes_there() const;  // of all states

  const std::shared_ptr<Shared> shared_;
  Clock* const clock_;
  absl::Time next_;                          // when a state is due
  absl::Time asked_;                         // when one was due last
  LargeState state_ = LargeState::kFactors;  // that is written
  std::shared_ptr<CheckpointWriter> writer_;
  LargeState read_ = LargeState::kFactors;  // what reader_ is of
  CheckpointReader reader_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_
