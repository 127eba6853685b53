// The bookkeeping of one stream of requests: which ids are in flight, which answers are ready, and what the stream is
// to do next. It bounds what a slow reader can pile up. A slot is taken when a request is read and freed when its reply
// was written, and without a free slot nothing is read.
//
// The transport asks it after every event what to do, and does it:
//   Next next = stream.opened();            // read the first request
//   on a request:   begun = stream.OnRead(id, &next);  ... submit it, or answer a duplicate by on_refused() ...
//   on an answer:   next = stream.OnAnswer(id, std::move(answer));
//   on a write:     next = stream.on_written();
//   on half-close:  next = stream.on_reads_closed();
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
  Next opened();

  // A request was read. kDuplicate: the id is in flight, and the request must be answered by on_refused(). Either way a
  // slot is taken. *next may ask for the next read at once.
  Begun on_read(uint64_t id, Next* next);

  // Attaches what cancels request `id`. False where the stream is broken: the caller cancels the request itself. Does
  // nothing where the request is answered already; the caller attaches before it may read the same id again.
  bool attach(uint64_t id, Handle handle);

  // The answer of an accepted request. Its id may be used again from now on.
  Next on_answer(uint64_t id, Answer answer);
  // The answer of a request that never was accepted.
  Next on_refused(Answer answer);

  // The write that Next asked for has ended well.
  Next on_written();

  // The peer sends no more requests.
  Next on_reads_closed();

  // The peer is gone: nothing more is read or written. *handles: what cancels the requests in flight. Idempotent.
  Next on_broken(std::vector<Handle>* handles);

  size_t in_flight() const;

 private:
  // The steps due now, by the invariants; marks them as asked for.
  Next decide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Next answered(Answer answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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
auto ResultStream<Answer, Handle>::decide() -> Next {
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
auto ResultStream<Answer, Handle>::opened() -> Next {
  MutexLock lock(&mu_);
  return decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_read(uint64_t id, Next* next) -> Begun {
  MutexLock lock(&mu_);
  reading_ = false;
  ++slots_;
  ++unanswered_;
  const bool is_new = in_flight_.try_emplace(id).second;
  *next = decide();
  return is_new ? Begun::kAccepted : Begun::kDuplicate;
}

template <class Answer, class Handle>
bool ResultStream<Answer, Handle>::attach(uint64_t id, Handle handle) {
  MutexLock lock(&mu_);
  if (broken_) return false;
  const auto it = in_flight_.find(id);
  if (it != in_flight_.end()) it->second = std::move(handle);
  return true;
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::answered(Answer answer) -> Next {
  --unanswered_;
  if (!broken_) ready_.push_back(std::move(answer));
  return decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_answer(uint64_t id, Answer answer) -> Next {
  MutexLock lock(&mu_);
  in_flight_.erase(id);
  return answered(std::move(answer));
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_refused(Answer answer) -> Next {
  MutexLock lock(&mu_);
  return answered(std::move(answer));
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_written() -> Next {
  MutexLock lock(&mu_);
  writing_ = false;
  --slots_;
  return decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_reads_closed() -> Next {
  MutexLock lock(&mu_);
  reading_ = false;
  reads_closed_ = true;
  return decide();
}

template <class Answer, class Handle>
auto ResultStream<Answer, Handle>::on_broken(std::vector<Handle>* handles) -> Next {
  MutexLock lock(&mu_);
  handles->clear();
  if (!broken_) {
    broken_ = true;
    ready_.clear();  // nobody will read them
    for (auto& [id, handle] : in_flight_) {
      if (handle.has_value()) handles->push_back(*handle);
    }
  }
  return decide();
}

template <class Answer, class Handle>
size_t ResultStream<Answer, Handle>::in_flight() const {
  MutexLock lock(&mu_);
  return in_flight_.size();
}

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RESPOND_RESULT_STREAM_H_
