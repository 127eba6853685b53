// Ctrl-C, or a closed terminal, as a request to stop, so that the server hears of it and unfinished files go.
#ifndef SVDSERVE_CLIENT_CLI_INTERRUPTION_H_
#define SVDSERVE_CLIENT_CLI_INTERRUPTION_H_

#include <atomic>
#include <csignal>
#include <stop_token>
#include <thread>

namespace svdserve::cli {

// While it lives, SIGHUP, SIGINT and SIGTERM request a stop instead of ending the process. A write to a pipe whose
// reader has gone fails instead: SIGPIPE would leave unfinished files. A SIGHUP that the process ignores, by nohup,
// stays ignored. To be made before any other thread: threads inherit that they leave the signals alone.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // 0 where there was none; else what a shell expects of a process that a signal ended, 129, 130 or 143.
  int exit_code() const { return signal_ == 0 ? 0 : 128 + signal_; }

 private:
  void wait();

  const sigset_t signals_;
  void (*const sigpipe_before_)(int);
  std::stop_source source_;
  std::atomic<int> signal_{0};
  std::atomic<bool> over_{false};
  std::thread waiter_;
};

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_INTERRUPTION_H_
