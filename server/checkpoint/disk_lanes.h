// Threads for a disk that may be slow, or hang.
#ifndef SVDSERVE_SERVER_CHECKPOINT_DISK_LANES_H_
#define SVDSERVE_SERVER_CHECKPOINT_DISK_LANES_H_

#include <chrono>
#include <functional>
#include <memory>

namespace svdserve::server {

// Lanes of tasks. The tasks of a lane are done one after the other, those of several lanes at once. Each lane with tasks
// has a thread of its own, as far as the system has threads. Thread-safe.
class DiskLanes {
 public:
  // Follows a task that the disk has done, and does not wait for the disk. May be empty.
  using After = std::function<void()>;
  // Uses the disk, and nothing that may go before it: it may be left behind. Its captures go after After.
  using Task = std::function<After()>;
  class Lane;

  // patience: how long the destructor waits for the disk.
  explicit DiskLanes(std::chrono::milliseconds patience);
  // Waits for the tasks. Those that the disk has not done in time are left behind, and nothing follows them. They keep
  // their captures for as long as the process lives. Those behind them are not begun.
  ~DiskLanes();
  DiskLanes(const DiskLanes&) = delete;
  DiskLanes& operator=(const DiskLanes&) = delete;

  static std::shared_ptr<Lane> make_lane();
  void push(const std::shared_ptr<Lane>& lane, Task task);

 private:
  struct State;

  const std::chrono::milliseconds patience_;
  const std::shared_ptr<State> state_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_CHECKPOINT_DISK_LANES_H_
