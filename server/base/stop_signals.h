// SIGTERM, SIGINT and SIGHUP.
#ifndef SVDSERVE_SERVER_BASE_STOP_SIGNALS_H_
#define SVDSERVE_SERVER_BASE_STOP_SIGNALS_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace svdserve::server {

enum class SignalAction {
  kDrain,   // finish what is in flight, then stop
  kIgnore,  // say so in the log
  kReload,  // read again what can be read again
  kStopAtOnce,
};

// The action for each signal. The first SIGTERM or SIGINT drains. A SIGTERM that repeats it within a second is the same
// wish: orchestrators send it twice. Any later one stops at once, and so does a SIGINT behind another signal: somebody
// at a terminal is in a hurry. SIGHUP reloads. Not thread-safe.
class SignalRules {
 public:
  // `at`: monotonic, since any fixed moment.
  SignalAction on(int signal, std::chrono::nanoseconds at);

 private:
  int first_ = 0;  // the signal that asked for the drain
  std::chrono::nanoseconds first_at_{0};
};

// Takes the signals of this process and obeys SignalRules. Thread-safe.
class StopSignals {
 public:
  // Once, before there are other threads. From then on signals are kept until listen().
  StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Starts the thread that obeys them, which lasts until the process ends. False, with *error set, where that cannot
  // be.
  bool listen(std::string* error);

  // From now on SIGHUP calls it, on the thread of signals; it must return at once. Null, and at first: SIGHUP is ignored.
  void on_hangup(std::function<void()> reload);

  // Returns once a drain is asked for, or when `no_more` says so, which is asked ten times a second.
  void wait_unless(const std::function<bool()>& no_more);

 private:
  struct State;
  const std::shared_ptr<State> state_;  // of the thread, too
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BASE_STOP_SIGNALS_H_
