#include "server/rpc/self_probe.h"

#include <algorithm>
#include <utility>

#include "server/base/log.h"
#include "server/base/mutex.h"

namespace svdserve::server {
namespace {

constexpr absl::Duration kLongestStep = absl::Seconds(1);

}  // namespace

struct SelfProbe::State {
  Mutex mu;
  absl::Time last_tick ABSL_GUARDED_BY(mu) = absl::InfiniteFuture();  // InfiniteFuture: there was none
  absl::Time next_question ABSL_GUARDED_BY(mu) = absl::InfinitePast();
  bool asking ABSL_GUARDED_BY(mu) = false;   // a call is on its way
  bool waiting ABSL_GUARDED_BY(mu) = false;  // the last question has no answer yet
  absl::Duration waited ABSL_GUARDED_BY(mu);
};

SelfProbe::SelfProbe(Ask ask) : ask_(std::move(ask)), state_(std::make_shared<State>()) {}

void SelfProbe::tick(absl::Time now) {
  State& state = *state_;
  bool ask = false;
  {
    MutexLock lock(&state.mu);
    const absl::Duration step = std::clamp(now - state.last_tick, absl::ZeroDuration(), kLongestStep);
    state.last_tick = now;
    if (state.waiting) state.waited += step;
    ask = !state.asking && now >= state.next_question;
    if (ask) {
      state.asking = state.waiting = true;
      state.next_question = now + kPeriod;
    }
  }
  if (alive() != was_alive_) {
    was_alive_ = !was_alive_;
    log(was_alive_ ? LogLevel::kWarning : LogLevel::kError, was_alive_ ? "grpc_answers_again" : "grpc_does_not_answer");
  }
  if (!ask) return;
  ask_([shared = state_](bool answered) {
    MutexLock lock(&shared->mu);
    shared->asking = false;
    if (!answered) return;
    shared->waiting = false;
    shared->waited = absl::ZeroDuration();
  });
}

bool SelfProbe::alive() const {
  MutexLock lock(&state_->mu);
  return state_->waited < kPatience;
}

}  // namespace svdserve::server
