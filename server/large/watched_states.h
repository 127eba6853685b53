// States of a computation that is watched: while it waits for their files, its device does not hang.
#ifndef SVDSERVE_SERVER_LARGE_WATCHED_STATES_H_
#define SVDSERVE_SERVER_LARGE_WATCHED_STATES_H_

#include <cstdint>

#include "engine/large_engine.h"
#include "server/device/watchdog.h"

namespace svdserve::server {

// A LargeStateStore in front of another. Both arguments outlive it; a null watch: nothing is watched.
class WatchedStates final : public LargeStateStore {
 public:
  WatchedStates(LargeStateStore* states, Watchdog::Watch* watch) : states_(states), watch_(watch) {}

  bool due() override { return states_->due(); }
  bool begin(LargeState state, uint64_t bytes) override {
    const Pause pause(watch_);
    return states_->begin(state, bytes);
  }
  void write(const void* bytes, uint64_t count) override {
    const Pause pause(watch_);
    states_->write(bytes, count);
  }
  void end() override {
    const Pause pause(watch_);
    states_->end();
  }
  uint64_t open(LargeState state) override {
    const Pause pause(watch_);
    return states_->open(state);
  }
  bool read(void* bytes, uint64_t count) override {
    const Pause pause(watch_);
    return states_->read(bytes, count);
  }

 private:
  class Pause {
   public:
    explicit Pause(Watchdog::Watch* watch) : watch_(watch) {
      if (watch_ != nullptr) watch_->pause(true);
    }
    ~Pause() {
      if (watch_ == nullptr) return;
      watch_->progress();
      watch_->pause(false);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Watchdog::Watch* const watch_;
  };

  LargeStateStore* const states_;
  Watchdog::Watch* const watch_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_LARGE_WATCHED_STATES_H_
