#include "engine/backends/ring/member_threads.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/algorithms/large/large_backend.h"

namespace svdserve::ring {
namespace {

using std::chrono::milliseconds;

// Between looks at the members: a cancel is seen in this time.
constexpr milliseconds kLook{50};
constexpr int kLeastLooks = 16;  // for each deadline
// After a cancel, nobody waits longer for a member.
constexpr milliseconds kCancelDeadline{5000};

std::string detail_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const large::LargeStop& stop) {
    return stop.detail;
  } catch (const std::exception& other) {
    return other.what();
  } catch (...) {
    return "an unknown error";
  }
}

}  // namespace

void MeetingPlace::alive(int member) {
  const std::lock_guard lock(mutex_);
  ++members_[static_cast<size_t>(member)].beats;
  if (ended_) throw RingEnded();
}

void MeetingPlace::meet(int member, int partner, int64_t number) {
  std::unique_lock lock(mutex_);
  Member& own = members_[static_cast<size_t>(member)];
  const Member& other = members_[static_cast<size_t>(partner)];
  ++own.beats;
  own.arrived = number;
  own.waiting = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return ended_ || other.arrived >= number; });
  own.waiting = false;
  ++own.beats;
  if (ended_) throw RingEnded();
}

void MeetingPlace::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

// One call of run_members().
class MemberRun {
 public:
  using Function = std::function<void(int, MeetingPlace&)>;

  MemberRun(int members, milliseconds deadline, const std::function<bool()>& is_cancelled)
      : place_(std::make_shared<MeetingPlace>(members)),
        late_(static_cast<size_t>(members), 0),
        look_(std::clamp<milliseconds>(deadline / kLeastLooks, milliseconds(1), kLook)),
        looks_(deadline / look_),
        is_cancelled_(is_cancelled) {}

  std::vector<RingFailure> run(const Function& function) {
    const auto shared = std::make_shared<const Function>(function);
    for (size_t m = 0; m < late_.size(); ++m) start(static_cast<int>(m), shared);
    watch();
    for (size_t m = 0; m < threads_.size(); ++m) {
      if (!threads_[m].joinable()) continue;
      if (late_[m]) {
        threads_[m].detach();
      } else {
        threads_[m].join();
      }
    }
    return failures();
  }

 private:
  void start(int member, const std::shared_ptr<const Function>& function) {
    try {
      threads_.emplace_back([place = place_, function = std::shared_ptr<const Function>(function), member]() mutable {
        std::exception_ptr error;
        try {
          (*function)(member, *place);
        } catch (...) {
          error = std::current_exception();
        }
        function.reset();  // what it holds goes before anybody thinks that this thread is done
        const std::lock_guard lock(place->mutex_);
        MeetingPlace::Member& own = place->members_[static_cast<size_t>(member)];
        own.error = error;
        own.done = true;
        if (error) place->ended_ = true;
        place->changed_.notify_all();
      });
    } catch (const std::system_error&) {
      threads_.emplace_back();
      const std::lock_guard lock(place_->mutex_);
      MeetingPlace::Member& own = place_->members_[static_cast<size_t>(member)];
      own.error = std::make_exception_ptr(large::LargeStop{LargeStatus::kFault, "no thread for a member"});
      own.done = place_->ended_ = true;
    }
  }

  // Until every member is done or late.
  void watch() {
    std::vector<uint64_t> beats(late_.size(), 0);
    std::vector<int64_t> quiet(late_.size(), 0);
    std::unique_lock lock(place_->mutex_);
    const auto is_over = [&] {
      for (size_t m = 0; m < late_.size(); ++m) {
        if (!place_->members_[m].done && !late_[m]) return false;
      }
      return true;
    };
    while (!place_->changed_.wait_for(lock, look_, is_over)) {
      cancelled_ = cancelled_ || (is_cancelled_ && is_cancelled_());
      if (cancelled_) place_->ended_ = true;
      for (size_t m = 0; m < late_.size(); ++m) {
        const MeetingPlace::Member& member = place_->members_[m];
        const bool moves = member.done || member.waiting || member.beats != beats[m];
        beats[m] = member.beats;
        quiet[m] = moves ? 0 : quiet[m] + 1;
        if (quiet[m] < (cancelled_ ? std::min<int64_t>(looks_, kCancelDeadline / look_) : looks_)) continue;
        late_[m] = 1;
        place_->ended_ = true;
      }
      if (place_->ended_) place_->changed_.notify_all();
    }
  }

  std::vector<RingFailure> failures() {
    std::vector<RingFailure> failures;
    const std::lock_guard lock(place_->mutex_);
    for (size_t m = 0; m < late_.size(); ++m) {
      const std::exception_ptr error = place_->members_[m].error;
      if (late_[m]) {
        failures.push_back({static_cast<int>(m), "did not respond in time"});
      } else if (error) {
        add(static_cast<int>(m), error, failures);
      }
    }
    // A cancel may have come between the last look and a member that became late.
    if (!cancelled_ && !failures.empty() && is_cancelled_) cancelled_ = is_cancelled_();
    if (cancelled_) throw large::LargeStop{LargeStatus::kCancelled, "cancelled"};
    return failures;
  }

  void add(int member, const std::exception_ptr& error, std::vector<RingFailure>& failures) {
    try {
      std::rethrow_exception(error);
    } catch (const RingEnded&) {
      return;
    } catch (const large::LargeStop& stop) {
      cancelled_ = cancelled_ || stop.status == LargeStatus::kCancelled;
    } catch (...) {
    }
    failures.push_back({member, detail_of(error)});
  }

  std::shared_ptr<MeetingPlace> place_;
  std::vector<std::thread> threads_;
  std::vector<char> late_;
  const milliseconds look_;
  const int64_t looks_;
  const std::function<bool()>& is_cancelled_;
  bool cancelled_ = false;
};

std::vector<RingFailure> run_members(int members, milliseconds deadline, const std::function<bool()>& is_cancelled,
                                     const std::function<void(int, MeetingPlace&)>& function) {
  return MemberRun(members, deadline, is_cancelled).run(function);
}

}  // namespace svdserve::ring
