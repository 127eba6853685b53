// The states of a matrix's computation (LargeStateStore) as files beside its operand. A lane reads and writes them, at the
// speed of memory. The disk gets a state on the lane of the matrix's other files; until then no other is saved.
#ifndef SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_
#define SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/large_engine.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"
#include "server/checkpoint/checkpoint_files.h"
#include "server/checkpoint/disk_lanes.h"

namespace svdserve::server {

// The files of one matrix, as the store knows them.
struct StateFolder {
  std::shared_ptr<const CheckpointDirectory> directory;
  std::string name;
  int64_t max_bytes = 0;  // of all states, and of one that is being written
  // At least so long nothing is saved after a state. It grows so that saving takes no more than kShareForStates of the
  // time. Zero: all states are saved.
  absl::Duration interval;
  absl::Duration patience;  // with a step, of 4 MiB at most; by the system's clock
  // Tasks of DiskLanes may call these two. is_ours: the operand is on disk, no other call has the matrix, and no device
  // has failed it since. create: what it is given, while nobody removes the folder; not at all where it is not ours.
  std::function<bool()> is_ours;
  std::function<void(const std::function<void()>& file)> create;
  std::function<void(DiskLanes::Task)> transfer;  // on a lane of these states alone
  std::function<void(DiskLanes::Task)> finish;    // on the lane of the matrix's other files
  // An After may call the rest.
  std::function<void(bool saving, LargeState state, const std::string& why)> failed;
  std::function<void()> saved;
};

// The computation waits for the lane, but no longer than StateFolder::patience, and not when it is cancelled. From then on
// nothing is saved or read.
class CheckpointStates final : public LargeStateStore {
 public:
  static constexpr double kShareForStates = 0.05;

  // `clock`, `cancel`, and all that the folder's functions use outlive it. cancel may be null.
  CheckpointStates(StateFolder folder, Clock* clock, const std::atomic<bool>* cancel);
  ~CheckpointStates() override;

  bool due() override;
  bool begin(LargeState state, uint64_t bytes) override;
  void write(const void* bytes, uint64_t count) override;
  void end() override;
  uint64_t open(LargeState state) override;
  bool read(void* bytes, uint64_t count) override;

 private:
  // The reason of a step.
  struct Purpose {
    bool saving = false;  // else it is read
    LargeState state = LargeState::kFactors;
  };
  // The outcome of a step on the lane.
  struct Answer {
    uint64_t value = 0;
    std::string failed = {};
    DiskLanes::Task finish = {};  // what is to follow on the other lane
  };
  using Step = std::function<Answer()>;

  // The lane has it, too.
  struct Shared {
    StateFolder folder;
    std::atomic<int> unfinished{0};    // states that the disk does not have yet
    std::atomic<bool> gave_up{false};  // one could not be saved: no more are tried
    // The lane's own.
    std::unique_ptr<CheckpointWriter> writer;
    CheckpointReader reader;
    std::vector<char> piece;  // on its way; while a step is under way
    // The last step.
    Mutex mu;
    CondVar changed;
    bool under_way ABSL_GUARDED_BY(mu) = false;
    uint64_t value ABSL_GUARDED_BY(mu) = 0;

    Answer begin(LargeState of, uint64_t bytes);
    Answer append();
    Answer open(LargeState of);
    Answer read(uint64_t count);
    static Answer end(const std::shared_ptr<Shared>& self, LargeState of);
    int64_t bytes_there() const;  // of all states
    void take(const Purpose& purpose, const Answer& answer);
  };

  // Begins a step when the one before is complete. False: the computation goes on without states.
  bool start(Purpose purpose, Step step);
  // Likewise, and waits for its value. 0: the computation goes on without states.
  uint64_t ask(Purpose purpose, Step step);
  // Waits for the step under way. False: the computation goes on without states.
  bool wait();
  // Hands over what is to be written.
  void flush();

  const std::shared_ptr<Shared> shared_;
  Clock* const clock_;
  const std::atomic<bool>* const cancel_;
  bool without_ = false;     // the computation goes on without states, while a step is under way
  Purpose purpose_;          // of the last step
  absl::Time next_;          // when a state is due
  absl::Time asked_;         // when one was due last
  std::vector<char> piece_;  // that is filled
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CHECKPOINT_CHECKPOINT_STATES_H_
