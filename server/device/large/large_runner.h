// The queue of large matrices and the devices that compute them. Each device has a thread and computes one matrix at a
// time. Several GPUs may be a gang, which is a device of its own: one matrix has all of them. The batches of other
// requests go on beside it, on the lanes of the device pool.
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
  std::string name;          // that of the device among those of the server, such as "host:0"; of a gang its members',
                             // joined by commas
  int64_t memory_bytes = 0;  // of its own that a matrix may take; of a gang the least of its members'; 0 on the host,
                             // whose memory the ledger has
  std::unique_ptr<LargeEngine> engine;
  // The devices of the same runner, by their indices, that compute a matrix together as a gang. Empty: it is none.
  std::vector<int> members = {};
  int64_t least_order = 0;  // of a gang: min(m, n) of the smallest matrix that it takes

  bool is_gang() const { return !members.empty(); }
};

// For each device of a runner, by its index, the bytes of the host's memory that a matrix reserves when this device
// takes it. No value: the device must not take it.
using LargeDemand = std::vector<std::optional<int64_t>>;

// A matrix in the queue.
class LargeTask {
 public:
  virtual ~LargeTask() = default;
  // Computes it on the device, on the device's thread. `memory` is what its demand says for this device. False: the
  // device was lost over it, or some member of the gang, and nobody knows which.
  virtual bool run(int device, Reservation memory) = 0;
  // No healthy device is left that may take it. On the thread that found the last one lost.
  virtual void on_no_device() = 0;
};

// Thread-safe. A device is idle while neither it nor a gang that it is in computes; a gang is idle while all of its
// members are. A gang with a lost member is lost. Invariants:
//   1. Each task that submit() has taken is run, told that no device is left, or withdrawn: one of these, once. While
//      it is run, it may be submitted again.
//   2. The candidates of a task are the largest healthy gangs that may take it, else single GPUs, else the host,
//      however long the queue is. The idle candidate that reserves least takes it, once it has the memory.
//   3. A task that could be computed, but for the memory that it still has to reserve, is passed by at most kMostPasses
//      tasks that reserve memory. Then those behind it wait until it has its memory.
//   4. A task for gangs none of which is idle holds the members of one until it is computed: tasks behind it in the
//      queue do not begin there. It waits for what its members compute, and for what is in front of it, but never for
//      what comes later. So no two tasks hold what the other waits for: the one in front gets it.
//   5. No lock is held while a task is called. Under the runner's lock only `reserve` is called.
//   6. The queue has no bound of its own: admission bounds the number of large matrices.
class LargeRunner {
 public:
  static constexpr int kMostPasses = 16;

  // Reserves bytes of the host's memory for a matrix that was admitted. False: there is no room now. Must not block.
  using Reserve = std::function<bool(int64_t bytes, Reservation* reservation)>;

  // At least one device. Those that are no gang prepare meanwhile, so that the first matrix need not.
  LargeRunner(std::vector<LargeDevice> devices, Reserve reserve);
  // Waits for what runs and for what prepares. Before that, all tasks were withdrawn or told to cancel.
  ~LargeRunner();
  LargeRunner(const LargeRunner&) = delete;
  LargeRunner& operator=(const LargeRunner&) = delete;

  int size() const { return static_cast<int>(devices_.size()); }
  const LargeDevice& device(int index) const { return devices_[static_cast<size_t>(index)]; }
  // The members of a gang; of any other device itself.
  const std::vector<int>& members(int index) const { return members_[static_cast<size_t>(index)]; }

  // The host's memory that the device needs beside operand and results. No value: the plan does not fit the device, or
  // is nothing for a gang.
  std::optional<int64_t> working_bytes(const LargePlan& plan, int index) const;
  // Those of invariant 2. Empty: no healthy device is left.
  std::vector<int> candidates(const LargeDemand& demand) const;

  enum class Position : uint8_t { kLast, kFirst };
  // Puts the task into the queue. False, and the task is not taken: no healthy device may take it.
  bool submit(std::shared_ptr<LargeTask> task, LargeDemand demand, Position position = Position::kLast);
  // Takes the task out of the queue. False: it is not there, since it runs, ran or will be told in a moment.
  bool withdraw(const LargeTask* task);
  // The device takes nothing more: it hangs, or its batches found it lost. Tasks that wait for it alone are told.
  void mark_lost(int index);
  // Memory may have become free: the queue is looked at again.
  void retry();

  struct Load {
    int64_t waiting = 0;
    int64_t running = 0;
  };
  struct Loads {
    Load total;                   // a task counts once
    Load gangs;                   // of these, tasks for gangs
    int64_t held = 0;             // idle devices that a task for gangs holds
    int64_t preparing = 0;        // devices that prepare
    std::vector<Load> of_device;  // a task counts for each device that may take it or computes it, alone or in a gang
  };
  Loads loads() const;

 private:
  struct Waiting {
    std::shared_ptr<LargeTask> task;
    LargeDemand demand;
    int passes = 0;
    bool lacks_memory = false;  // at the last look: some candidate is idle, and nobody in front of it holds that
    int held = -1;              // the gang whose members it holds
  };
  struct Taken {
    std::shared_ptr<LargeTask> task;  // null: nothing
    Reservation memory;
  };
  struct State {
    bool running = false;  // what it took, or is to take now
    bool busy = false;     // it runs, or a gang that it is in does
    bool lost = false;
    Taken next;
  };

  void serve(int index);
  void prepare(int index);
  static void tell_no_device(const std::vector<std::shared_ptr<LargeTask>>& orphans);
  // Begins all that can begin now. After each change of the queue, of the devices or of the memory.
  void dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Gives the task to the one of these devices that reserves least, if it has the memory. Returns that device, or -1.
  int begin(Waiting* waiting, std::vector<int> idle, bool may_reserve) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The gang whose members a task for gangs holds: the one that it has held so far, or else one with most of them free.
  int gang_to_hold(const Waiting& waiting, const std::vector<int>& gangs, const std::vector<bool>& free) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<int> candidates_for(const LargeDemand& demand) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool is_healthy(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The members that are not free.
  int count_missing(int index, const std::vector<bool>& free) const;
  // The device takes nothing more. Returns what take_orphans() does.
  std::vector<std::shared_ptr<LargeTask>> lose(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes those out of the queue for which no device is left.
  std::vector<std::shared_ptr<LargeTask>> take_orphans() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  State& state(int index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return states_[static_cast<size_t>(index)]; }
  const State& state(int index) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return states_[static_cast<size_t>(index)]; }

  const std::vector<LargeDevice> devices_;
  std::vector<std::vector<int>> members_;  // of each device
  const Reserve reserve_;
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mu_);
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);
  int64_t held_ ABSL_GUARDED_BY(mu_) = 0, preparing_ ABSL_GUARDED_BY(mu_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_LARGE_LARGE_RUNNER_H_
