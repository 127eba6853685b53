#include "client/cli/interruption.h"

#include <pthread.h>

#include <csignal>

namespace svdserve::cli {
namespace {

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Interruption::Interruption() {
  const sigset_t set = signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  waiter_ = std::thread([this] { wait(); });
}

Interruption::~Interruption() {
  over_ = true;
  pthread_kill(waiter_.native_handle(), SIGTERM);  // blocked there: it only ends the wait
  waiter_.join();
  const sigset_t set = signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Interruption::wait() {
  const sigset_t set = signals();
  while (!over_) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0 || over_) continue;
    signal_ = signal;
    source_.request_stop();
  }
}

}  // namespace svdserve::cli
