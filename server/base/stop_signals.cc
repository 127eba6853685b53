#include "server/base/stop_signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

#include "server/base/log.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

constexpr std::chrono::seconds kSameWish(1);

struct Received {
  int signal;
  int64_t nanoseconds;  // of CLOCK_MONOTONIC
};

// The handler writes to it, the thread reads. Not sigwait(): that needs every thread to block the signals, and
// libraries have threads before main() begins.
int pipe_ends[2] = {-1, -1};

void on_signal(int signal) {
  const int saved = errno;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const Received received{signal, int64_t{now.tv_sec} * 1000000000 + now.tv_nsec};
  if (write(pipe_ends[1], &received, sizeof received) != sizeof received && signal != SIGHUP) _exit(128 + signal);
  errno = saved;
}

Received next() {
  Received received{};
  while (read(pipe_ends[0], &received, sizeof received) != sizeof received) {
  }
  return received;
}

}  // namespace

SignalAction SignalRules::on(int signal, std::chrono::nanoseconds at) {
  if (signal == SIGHUP) return SignalAction::kReload;
  if (first_ == 0) {
    first_ = signal;
    first_at_ = at;
    return SignalAction::kDrain;
  }
  const bool repeated = signal == SIGTERM && first_ == SIGTERM && at - first_at_ <= kSameWish;
  return repeated ? SignalAction::kIgnore : SignalAction::kStopAtOnce;
}

struct StopSignals::State {
  std::string error;  // of the constructor
  Mutex mu;
  CondVar changed;
  bool requested ABSL_GUARDED_BY(mu) = false;
  std::function<void()> reload ABSL_GUARDED_BY(mu);

  static void ignore(int signal, const char* why) { log_info("signal_ignored", {{"signal", signal}, {"reason", why}}); }

  void obey() {
    SignalRules rules;
    for (;;) {
      const Received received = next();
      switch (rules.on(received.signal, std::chrono::nanoseconds(received.nanoseconds))) {
        case SignalAction::kDrain: {
          log_info("stop_requested", {{"signal", received.signal}});
          MutexLock lock(&mu);
          requested = true;
          changed.signal_all();
          break;
        }
        case SignalAction::kIgnore:
          ignore(received.signal, "it repeats a SIGTERM within a second");
          break;
        case SignalAction::kReload: {
          MutexLock lock(&mu);
          if (reload) {
            reload();
          } else {
            ignore(received.signal, "there is nothing to read again");
          }
          break;
        }
        case SignalAction::kStopAtOnce:
          log_warning("stopped_at_once", {{"signal", received.signal}});
          _exit(128 + received.signal);
      }
    }
  }
};

StopSignals::StopSignals() : state_(std::make_shared<State>()) {
  std::signal(SIGPIPE, SIG_IGN);
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
    state_->error = std::string("cannot create a pipe for signals: ") + std::strerror(errno);
    return;
  }
  fcntl(pipe_ends[1], F_SETFL, O_NONBLOCK);  // a handler must not wait
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool StopSignals::listen(std::string* error) {
  *error = state_->error;
  if (!error->empty()) return false;
  try {
    std::thread([state = state_] { state->obey(); }).detach();
  } catch (const std::system_error& failed) {
    *error = std::string("cannot create a thread for signals: ") + failed.what();
    return false;
  }
  return true;
}

void StopSignals::on_hangup(std::function<void()> reload) {
  MutexLock lock(&state_->mu);
  state_->reload = std::move(reload);
}

void StopSignals::wait_unless(const std::function<bool()>& no_more) {
  MutexLock lock(&state_->mu);
  while (!state_->requested && !no_more()) {
    state_->changed.wait_until(&state_->mu, std::chrono::steady_clock::now() + std::chrono::milliseconds(100));
  }
}

}  // namespace svdserve::server
