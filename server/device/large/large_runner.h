// The queue of large matrices and the devices that compute them. Each device has a thread and computes one matrix at a
// time. The batches of other requests go on beside it, on the lanes of the device pool.
#ifndef SVDSERVE_SERVER_DEVICE_LARGE_LARGE_RUNNER_H_
#define SVDSERVE_SERVER_DEVICE_LARGE_LARGE_RUNNER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/large_engine.h"
#include "server/base/mutex.h"
#include "server/reservation.h"

namespace svdserve::server {

struct LargeDevice {
  std::string name;          // that of the device among those of the server, such as "host:0"
  int64_t memory_bytes = 0;  // of its own that a matrix may take; 0 on the host, whose memory the ledger has
  std::unique_ptr<LargeEngine> engine;
};

// For each device of a runner, by its index, the bytes of the host's memory that a matrix reserves when this device
// takes it. No value: the device must not take it.
using LargeDemand = std::vector<std::optional<int64_t>>;

// A matrix in the queue.
class LargeTask {
 public:
  virtual ~LargeTask() = default;
  // Computes it on the device, on the device's thread. `memory` is what its demand says for this device. False: the
  // device was lost over it.
  virtual bool run(int device, Reservation memory) = 0;
  // No healthy device is left that may take it. On the thread that found the last one lost.
  virtual void on_no_device() = 0;
};

// Thread-safe. Invariants:
//   1. Each task that submit() has taken is run, told that no device is left, or withdrawn: one of these, once. While
//      it is run, it may be submitted again.
//   2. A healthy device without work takes the first task in the queue that it may take and that has the memory. The
//      host takes only tasks that no healthy device with memory of its own may take, however long the queue is.
//   3. A task that could be computed, but for the memory that it still has to reserve, is passed by at most kMostPasses
//      tasks that reserve memory. Then those behind it wait until it has its memory.
//   4. No lock is held while a task is called. Under the runner's lock only `reserve` is called.
//   5. The queue has no bound of its own: admission bounds the number of large matrices.
class LargeRunner {
 public:
  static constexpr int kMostPasses = 16;

  // Reserves bytes of the host's memory for a matrix that was admitted. False: there is no room now. Must not block.
  using Reserve = std::function<bool(int64_t bytes, Reservation* reservation)>;

  // At least one device.
  LargeRunner(std::vector<LargeDevice> devices, Reserve reserve);
  // Waits for what runs. Before that, all tasks were withdrawn or told to cancel.
  ~LargeRunner();
  LargeRunner(const LargeRunner&) = delete;
  LargeRunner& operator=(const LargeRunner&) = delete;

  int size() const { return static_cast<int>(devices_.size()); }
  const LargeDevice& device(int index) const { return devices_[static_cast<size_t>(index)]; }

  // The host's memory that the device needs beside operand and results. No value: the plan does not fit the device.
  std::optional<int64_t> working_bytes(const LargePlan& plan, int index) const;
  // The healthy devices that may take it, by invariant 2. Empty: none is left.
  std::vector<int> candidates(const LargeDemand& demand) const;

  enum class Position : uint8_t { kLast, kFirst };
  // Puts the task into the queue. False, and the task is not taken: no healthy device may take it.
  bool submit(std::shared_ptr<LargeTask> task, LargeDemand demand, Position position = Position::kLast);
  // Takes the task out of the queue. False: it is not there, since it runs, ran or will be told in a moment.
  bool withdraw(const LargeTask* task);
  // The device takes nothing more: it hangs, or its batches found it lost. Tasks that wait for it alone are told.
  void mark_lost(int index);
  // Memory may have become free: devices without work look at the queue again.
  void retry();

  struct Load {
    int64_t waiting = 0;
    int64_t running = 0;
  };
  struct Loads {
    Load total;                   // a task that waits counts once
    std::vector<Load> of_device;  // a task that waits counts for each device that may take it
  };
  Loads loads() const;

 private:
  struct Waiting {
    std::shared_ptr<LargeTask> task;
    LargeDemand demand;
    int passes = 0;
  };
  struct Taken {
    std::shared_ptr<LargeTask> task;  // null: there is nothing that the device may take now
    Reservation memory;
  };
  struct State {
    bool running = false;
    bool lost = false;
  };

  void serve(int index);
  static void tell_no_device(std::vector<std::shared_ptr<LargeTask>> orphans);
  Taken take(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<int> candidates_for(const LargeDemand& demand) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether one of its candidates has nothing to do: then it waits for memory alone.
  bool has_idle_candidate(const LargeDemand& demand) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes those out of the queue for which no device is left.
  std::vector<std::shared_ptr<LargeTask>> take_orphans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  State& state(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return states_[static_cast<size_t>(index)]; }
  const State& state(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return states_[static_cast<size_t>(index)]; }

  const std::vector<LargeDevice> devices_;
  const Reserve reserve_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_LARGE_LARGE_RUNNER_H_
