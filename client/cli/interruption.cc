#include "client/cli/interruption.h"

#include <pthread.h>

namespace svdserve::cli {
namespace {

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  // Blocked, an ignored signal would be taken for one all the same.
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

Interruption::Interruption() : signals_(signals()), sigpipe_before_(std::signal(SIGPIPE, SIG_IGN)) {
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  waiter_ = std::thread([this] { wait(); });
}

Interruption::~Interruption() {
  over_ = true;
  pthread_kill(waiter_.native_handle(), SIGTERM);  // blocked there: it only ends the wait
  waiter_.join();
  pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
  std::signal(SIGPIPE, sigpipe_before_);
}

void Interruption::wait() {
  while (!over_) {
    int signal = 0;
    if (sigwait(&signals_, &signal) != 0 || over_) continue;
    signal_ = signal;
    source_.request_stop();
  }
}

}  // namespace svdserve::cli
