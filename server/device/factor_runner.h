// What computes factors: a device each has its own line and its own thread, and one factor at a time. The batches of
// other requests go on beside it, on the lanes of the device pool.
#ifndef SVDSERVE_SERVER_DEVICE_FACTOR_RUNNER_H_
#define SVDSERVE_SERVER_DEVICE_FACTOR_RUNNER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/large_factor.h"
#include "server/mutex.h"

namespace svdserve::server {

struct FactorDevice {
  std::string name;          // that of the device among those of the server, such as "host:0"
  int64_t memory_bytes = 0;  // of its own that a factor may take; 0 on the host, whose memory the ledger has
  std::unique_ptr<FactorEngine> engine;
};

// A factor in line.
class FactorTask {
 public:
  virtual ~FactorTask() = default;
  // Computes it, on the device's thread. False: the device was lost over it.
  virtual bool Run(const FactorEngine& engine) = 0;
  // Its device was lost before its turn. On the device's thread.
  virtual void OnDeviceLost() = 0;
};

// Thread-safe. Invariants:
//   1. A task that is submitted is run, told that its device was lost, or withdrawn: one of them, once. Meanwhile,
//   while
//      it is run or told, it may be submitted to another device.
//   2. No lock is held while a task is called.
//   3. The lines have no bound of their own: who fills them has (the ledger of factors).
class FactorRunner {
 public:
  // At least one device, in the order of preference.
  explicit FactorRunner(std::vector<FactorDevice> devices);
  // Waits for what runs; every task was withdrawn, or told to cancel, before.
  ~FactorRunner();
  FactorRunner(const FactorRunner&) = delete;
  FactorRunner& operator=(const FactorRunner&) = delete;

  int size() const { return static_cast<int>(lines_.size()); }
  const FactorDevice& device(int index) const { return lines_[static_cast<size_t>(index)]->device; }

  // Whether the plan's working memory fits the device.
  bool Fits(const FactorPlan& plan, int index) const;
  // Where the plan goes: the first device that it fits and that is not lost, nor among `except`; of several with memory
  // of their own the one with the shortest line. -1: none is left that it fits.
  int Choose(const FactorPlan& plan, const std::vector<int>& except = {}) const;

  void Submit(int index, std::shared_ptr<FactorTask> task);
  // Takes the task out of its line. False: it is not there, since it runs, ran or will be told in a moment.
  bool Withdraw(int index, const FactorTask* task);

  struct Load {
    int64_t waiting = 0;
    int64_t running = 0;
  };
  Load load(int index) const;

 private:
  struct Line {
    explicit Line(FactorDevice d) : device(std::move(d)) {}
    const FactorDevice device;
    mutable Mutex mu;
    CondVar changed;
    std::deque<std::shared_ptr<FactorTask>> waiting ABSL_GUARDED_BY(mu);
    bool running ABSL_GUARDED_BY(mu) = false;
    bool lost ABSL_GUARDED_BY(mu) = false;
    bool stopping ABSL_GUARDED_BY(mu) = false;
    std::thread thread;
  };
  static void Serve(Line* line);

  std::vector<std::unique_ptr<Line>> lines_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_DEVICE_FACTOR_RUNNER_H_
