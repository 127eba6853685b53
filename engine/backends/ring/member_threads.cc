#include "engine/backends/ring/member_threads.h"

#include <algorithm>
#include <system_error>
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

// Adds a member that threw. One that was ended by another's failure is none. Returns whether it was cancelled.
bool add_failure(int member, const std::exception_ptr& error, std::vector<RingFailure>& failures) {
  bool cancelled = false;
  try {
    std::rethrow_exception(error);
  } catch (const RingEnded&) {
    return false;
  } catch (const large::LargeStop& stop) {
    cancelled = stop.status == LargeStatus::kCancelled;
  } catch (...) {
  }
  failures.push_back({member, detail_of(error)});
  return cancelled;
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

MemberThreads::MemberThreads(int members) : workers_(static_cast<size_t>(members)) {
  for (size_t m = 0; m < workers_.size(); ++m) {
    try {
      workers_[m].thread =
          std::thread([member = static_cast<int>(m), desk = workers_[m].desk] { work(member, *desk); });
    } catch (const std::system_error&) {
      continue;  // run() tells
    }
  }
}

MemberThreads::~MemberThreads() {
  for (Worker& worker : workers_) {
    {
      const std::lock_guard lock(worker.desk->mutex);
      worker.desk->closed = true;
    }
    worker.desk->changed.notify_all();
    if (!worker.thread.joinable()) continue;
    if (worker.late) {
      worker.thread.detach();
    } else {
      worker.thread.join();
    }
  }
}

void MemberThreads::work(int member, Desk& desk) {
  for (;;) {
    std::shared_ptr<MeetingPlace> place;
    std::shared_ptr<const Function> function;
    {
      std::unique_lock lock(desk.mutex);
      desk.changed.wait(lock, [&] { return desk.closed || desk.place != nullptr; });
      if (desk.place == nullptr) return;
      place = std::move(desk.place);
      function = std::move(desk.function);
    }
    compute(member, place, std::move(function));
  }
}

void MemberThreads::compute(int member, const std::shared_ptr<MeetingPlace>& place,
                            std::shared_ptr<const Function> function) {
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
}

void MemberThreads::hand_out(const std::shared_ptr<MeetingPlace>& place,
                             const std::shared_ptr<const Function>& function) {
  for (size_t m = 0; m < workers_.size(); ++m) {
    if (!workers_[m].thread.joinable()) {
      const std::lock_guard lock(place->mutex_);
      MeetingPlace::Member& own = place->members_[m];
      own.error = std::make_exception_ptr(large::LargeStop{LargeStatus::kFault, "no thread for a member"});
      own.done = place->ended_ = true;
      continue;
    }
    Desk& desk = *workers_[m].desk;
    {
      const std::lock_guard lock(desk.mutex);
      desk.place = place;
      desk.function = function;
    }
    desk.changed.notify_all();
  }
}

bool MemberThreads::watch(MeetingPlace& place, milliseconds deadline, const std::function<bool()>& is_cancelled) {
  const milliseconds look = std::clamp<milliseconds>(deadline / kLeastLooks, milliseconds(1), kLook);
  const int64_t looks = deadline / look, looks_after_cancel = std::min<int64_t>(looks, kCancelDeadline / look);
  std::vector<uint64_t> beats(workers_.size(), 0);
  std::vector<int64_t> quiet(workers_.size(), 0);
  bool cancelled = false;
  std::unique_lock lock(place.mutex_);
  const auto is_over = [&] {
    for (size_t m = 0; m < workers_.size(); ++m) {
      if (!place.members_[m].done && !workers_[m].late) return false;
    }
    return true;
  };
  while (!place.changed_.wait_for(lock, look, is_over)) {
    cancelled = cancelled || (is_cancelled && is_cancelled());
    if (cancelled) place.ended_ = true;
    for (size_t m = 0; m < workers_.size(); ++m) {
      const MeetingPlace::Member& member = place.members_[m];
      const bool moves = member.done || member.waiting || member.beats != beats[m];
      beats[m] = member.beats;
      quiet[m] = moves ? 0 : quiet[m] + 1;
      if (quiet[m] < (cancelled ? looks_after_cancel : looks)) continue;
      workers_[m].late = true;
      place.ended_ = true;
    }
    if (place.ended_) place.changed_.notify_all();
  }
  return cancelled;
}

std::vector<RingFailure> MemberThreads::run(milliseconds deadline, const std::function<bool()>& is_cancelled,
                                            Function function) {
  const auto place = std::make_shared<MeetingPlace>(static_cast<int>(workers_.size()));
  hand_out(place, std::make_shared<const Function>(std::move(function)));
  bool cancelled = watch(*place, deadline, is_cancelled);
  std::vector<RingFailure> failures;
  {
    const std::lock_guard lock(place->mutex_);
    for (size_t m = 0; m < workers_.size(); ++m) {
      const std::exception_ptr error = place->members_[m].error;
      if (workers_[m].late) {
        failures.push_back({static_cast<int>(m), "did not respond in time"});
      } else if (error) {
        cancelled = add_failure(static_cast<int>(m), error, failures) || cancelled;
      }
    }
  }
  // A cancel may have come between the last look and a member that became late.
  if (!cancelled && !failures.empty() && is_cancelled) cancelled = is_cancelled();
  if (cancelled) throw large::LargeStop{LargeStatus::kCancelled, "cancelled"};
  return failures;
}

}  // namespace svdserve::ring
