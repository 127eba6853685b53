#include "client/cpp/calls/large/side_work.h"

#include <system_error>
#include <utility>

namespace svdserve::client::internal {

SideWork::~SideWork() {
  {
    std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void SideWork::run(std::function<void()> task) {
  bool all_busy = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_.empty(); });
    all_busy = running_ == threads_.size();
  }
  const bool has_thread = !all_busy || begin_thread() || !threads_.empty();
  if (!has_thread) return task();
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(task));
  }
  changed_.notify_all();
}

bool SideWork::begin_thread() {
  if (threads_.size() == most_threads_) return false;
  try {
    threads_.emplace_back([this] { serve(); });
    return true;
  } catch (const std::system_error&) {  // at a limit of threads
    return false;
  }
}

void SideWork::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && running_ == 0; });
}

void SideWork::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    ++running_;
    lock.unlock();
    changed_.notify_all();
    task();
    task = nullptr;
    lock.lock();
    --running_;
    changed_.notify_all();
  }
}

}  // namespace svdserve::client::internal
