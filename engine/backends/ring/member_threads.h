// A thread for each member of a ring, for as long as a list of actions takes. No thread waits for a member that failed.
//
// A member fails if its function throws, or if nothing of it moves for the deadline. Then all meetings end, and so do the
// functions of the others, at their next meeting. run() returns when all that have not failed are done. A thread that
// hangs is left behind. It keeps whatever its function holds, so functions own what they touch, by shared pointers.
#ifndef SVDSERVE_ENGINE_BACKENDS_RING_MEMBER_THREADS_H_
#define SVDSERVE_ENGINE_BACKENDS_RING_MEMBER_THREADS_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace svdserve::ring {

// Thrown to end a member's function because of another member, or of a cancel.
struct RingEnded {};

// The members' threads meet here in twos, and show that they are alive. Thread safe.
class MeetingPlace {
 public:
  explicit MeetingPlace(int members) : members_(static_cast<size_t>(members)) {}
  // A member's thread is alive: called before each thing that it does. Throws RingEnded after end().
  void alive(int member);
  // Waits until `partner` calls this with the same number. Numbers of a member grow. Throws RingEnded.
  void meet(int member, int partner, int64_t number);
  void end();

 private:
  friend class MemberRun;
  struct Member {
    int64_t arrived = -1;
    uint64_t beats = 0;    // grows while it is alive
    bool waiting = false;  // at a meeting
    bool done = false;
    std::exception_ptr error;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Member> members_;
  bool ended_ = false;
};

struct RingFailure {
  int member = 0;
  std::string detail;
};

// function(member, place) on a thread for each member. Returns those that failed. Throws LargeStop{kCancelled} if one of
// them did, or `is_cancelled` said so. `deadline`: without a sign of life. It is counted in
// looks at the members, so that a machine that stands still as a whole makes nobody late.
std::vector<RingFailure> run_members(int members, std::chrono::milliseconds deadline,
                                     const std::function<bool()>& is_cancelled,
                                     const std::function<void(int, MeetingPlace&)>& function);

}  // namespace svdserve::ring
#endif  // SVDSERVE_ENGINE_BACKENDS_RING_MEMBER_THREADS_H_
