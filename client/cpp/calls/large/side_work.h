// Work beside a thread that must not wait for it: checks and copies beside the network.
#ifndef SVDSERVE_CLIENT_CPP_CALLS_LARGE_SIDE_WORK_H_
#define SVDSERVE_CLIENT_CPP_CALLS_LARGE_SIDE_WORK_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace svdserve::client::internal {

// Tasks are begun in the order in which they come, and do not throw. One thread uses it.
class SideWork {
 public:
  // At most `threads` tasks run at once, and one more waits.
  explicit SideWork(size_t threads) : most_threads_(threads) {}
  SideWork(const SideWork&) = delete;
  SideWork& operator=(const SideWork&) = delete;
  // Waits for the tasks.
  ~SideWork();

  // Blocks until a task may wait. Runs the task itself where no thread is to be had. Threads begin with the first tasks.
  void run(std::function<void()> task);
  // Blocks until all tasks are complete, and what they held is gone.
  void wait();

 private:
  void serve();
  bool begin_thread();

  const size_t most_threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;  // guarded by mutex_, and so the rest
  size_t running_ = 0;                         // tasks
  bool ends_ = false;
  std::vector<std::thread> threads_;  // of the thread that uses it alone
};

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_CALLS_LARGE_SIDE_WORK_H_
