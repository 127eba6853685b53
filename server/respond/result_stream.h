// The bookkeeping of one stream of requests: which ids are in flight, which answers are ready, and what the stream is
// to do next. It bounds what a slow reader can pile up: a slot is taken when a request is read and freed when its
// answer was written, and without a free slot nothing is read.
//
// The transport asks it after every event what to do, and does it:
//   Next next = stream.Opened();            // read the first request
//   on a request:   begun = stream.OnRead(id, &next);  ... submit it, or answer a duplicate by OnRefused() ...
//   on an answer:   next = stream.OnAnswer(id, std::move(answer));
//   on a write:     next = stream.OnWritten();
//   on half-close:  next = stream.OnReadsClosed();
//   on a failure:   next = stream.OnBroken(&handles);  ... cancel these ...
//
// Thread-safe. Invariants, of which Next is the consequence:
//   1. slots_ = requests read and not yet written; slots_ <= window, unless the stream is broken.
//   2. At most one read and one write are asked for at a time.
//   3. finish is asked for exactly once: when no more reads will come and no slot is taken; on a broken stream when no
//      answer is outstanding any more. So no answer ever finds the stream gone.
//   4. No method calls anybody: the caller acts on Next without a lock of the stream's.
#ifndef SVDSERVE_SERVER_RESPOND_RESULT_STREAM_H_
#define SVDSERVE_SERVER_RESPOND_RESULT_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "server/base/mutex.h"

namespace svdserve::server {

// Answer: what is written, movable. Handle: what cancels a request, copyable.
template <class Answer, class Handle>
class ResultStream {
 public:
  // The next steps of the transport, in this order. All may be set.
  struct Next {
    std::optional<Answer> write;  // start writing this
    bool read = false;            // start the next read
    bool finish = false;          // close the stream: nothing else will be asked for
  };
  enum class Begun { kAccepted, kDuplicate };

  // window >= 1: unanswered requests before reading stops.
  explicit ResultStream(size_t window) : window_(window) {}

  // The stream is open.
  Next Opened();

  // A request was read. kDuplicate: the id is in flight, and the request must be answered by OnRefused(). Either way a
  // slot is taken. *next may ask for the next read at once.
  Begun OnRead(uint64_t id, Next* next);

  // Attaches what cancels request `id`. False where the stream is broken: the caller cancels the request itself. Does
  // nothing where the request is answered already; the caller attaches before it may read the same id again.
  bool Attach(uint64_t id, Handle handle);

  // The answer of an accepted request. Its id may be used again from now on.
  Next OnAnswer(uint64_t id, Answer answer);
  // The answer of a request that never was accepted.
  Next OnRefused(Answer answer);

  // The write that Next asked for has ended well.
  Next OnWritten();

  // The peer sends no more requests.
  Next OnReadsClosed();

  // The peer is gone: nothing more is read or written. *handles: what cancels the requests in flight. Idempotent.
  Next OnBroken(std::vector<Handle>* handles);

  size_t in_flight() const;

 private:
  // The steps due now, by the invariants; marks them as asked for.
  Next Decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Next Answered(Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const size_t window_;
  mutable Mutex mu_;
  absl::flat_hash_map<uint64_t, std::optional<Handle>> in_flight_ ABSL_GUARDED_BY(mu_);  // accepted, not answered
  std::deque<Answer> ready_ ABSL_GUARDED_BY(mu_);                                        // answered, not being written
  size_t slots_ ABSL_GUARDED_BY(mu_) = 0;
  size_t unanswered_ ABSL_GUARDED_BY(mu_) = 0;  // those in flight and duplicates whose refusal is still to come
  bool reading_ ABSL_GUARDED_BY(mu_) = false;
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool reads_closed_ ABSL_GUARDED_BY(mu_) = false;
  bool broken_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
};

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::Decide() -> Next {
  Next next;
  if (finished_) return next;
  if (broken_) {
    next.finish = finished_ = unanswered_ == 0;
    return next;
  }
  if (!writing_ && !ready_.empty()) {
    next.write = std::move(ready_.front());
    ready_.pop_front();
    writing_ = true;
  }
  if (!reading_ && !reads_closed_ && slots_ < window_) next.read = reading_ = true;
  next.finish = finished_ = reads_closed_ && slots_ == 0;
  return next;
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::Opened() -> Next {
  MutexLock lock(&mu_);
  return Decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnRead(uint64_t id, Next* next) -> Begun {
  MutexLock lock(&mu_);
  reading_ = false;
  ++slots_;
  ++unanswered_;
  const bool is_new = in_flight_.try_emplace(id).second;
  *next = Decide();
  return is_new ? Begun::kAccepted : Begun::kDuplicate;
}

template <class Answer, class Handle>
bool ResultStream<Answer, Handle>::Attach(uint64_t id, Handle handle) {
  MutexLock lock(&mu_);
  if (broken_) return false;
  const auto it = in_flight_.find(id);
  if (it != in_flight_.end()) it->second = std::move(handle);
  return true;
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::Answered(Answer answer) -> Next {
  --unanswered_;
  if (!broken_) ready_.push_back(std::move(answer));
  return Decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnAnswer(uint64_t id, Answer answer) -> Next {
  MutexLock lock(&mu_);
  in_flight_.erase(id);
  return Answered(std::move(answer));
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnRefused(Answer answer) -> Next {
  MutexLock lock(&mu_);
  return Answered(std::move(answer));
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnWritten() -> Next {
  MutexLock lock(&mu_);
  writing_ = false;
  --slots_;
  return Decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnReadsClosed() -> Next {
  MutexLock lock(&mu_);
  reading_ = false;
  reads_closed_ = true;
  return Decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::OnBroken(std::vector<Handle>* handles) -> Next {
  MutexLock lock(&mu_);
  handles->clear();
  if (!broken_) {
    broken_ = true;
    ready_.clear();  // nobody will read them
    for (auto& [id, handle] : in_flight_) {
      if (handle.has_value()) handles->push_back(*handle);
    }
  }
  return Decide();
}

template <class Answer, class Handle>
size_t ResultStream<Answer, Handle>::in_flight() const {
  MutexLock lock(&mu_);
  return in_flight_.size();
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RESPOND_RESULT_STREAM_H_
