// Whether the gRPC server answers. It asks itself for its own health, over a connection that never leaves the process.
// Where every thread that serves calls is held up, no reply comes, while the HTTP port still works.
#ifndef SVDSERVE_SERVER_RPC_SELF_PROBE_H_
#define SVDSERVE_SERVER_RPC_SELF_PROBE_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"

namespace svdserve::server {

// Thread-safe, but for tick(), which one thread calls at least once a second.
class SelfProbe {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(2);     // from one question to the next
  static constexpr absl::Duration kPatience = absl::Seconds(15);  // without an answer the server counts as hung

  // Calls done(answered) once, on any thread, even before it returns. Called on the thread of tick(), after the call
  // before has ended. It must not block.
  using Ask = std::function<void(std::function<void(bool answered)> done)>;

  explicit SelfProbe(Ask ask);

  // Asks, where it is time to, and logs when alive() has changed. `now` is of a clock that never goes back.
  //
  // The time without a reply is the sum of the steps between ticks, each of which counts a second at most. While the
  // whole process stands still, no reply can come.
  void tick(absl::Time now);

  // False: the last question has been without an answer for kPatience.
  bool alive() const;

 private:
  struct State;
  const Ask ask_;
  bool was_alive_ = true;               // at the last tick
  const std::shared_ptr<State> state_;  // with the callbacks, which may outlive this
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_SELF_PROBE_H_
