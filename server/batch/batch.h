// A job is an admitted request inside the batch stage; a batch is what one device lane computes in one go. A job has
// one part, a slice of a batch, or several where it was split.
//
// Life of a batch: open (jobs of its key may join) -> cut, waiting for its key's turn -> running on a lane. From there
// it may come back to waiting, when the device failed it and another has not tried yet. A batch whose device hangs is
// abandoned: it runs on, and keeps the memory of its jobs, until the device answers, which may be never.
#ifndef SVDSERVE_SERVER_BATCH_BATCH_H_
#define SVDSERVE_SERVER_BATCH_BATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/admitted_request.h"
#include "server/device/device_pool.h"

namespace svdserve::server {

struct Batch;

// Where a part of a job is: slot `slot` of a batch; a null batch: nowhere any more, it was computed or given up.
struct Part {
  Batch* batch;
  size_t slot;
};

// Guarded by the scheduler's mutex, but for `work` without its callback, which never changes after Submit().
struct Job {
  AdmittedRequest work;
  DoneCallback done;  // moved from when answered
  bool answered = false;
  bool queued = true;  // it waits for a lane to take its first part, or a part that came back
  int unfinished = 0;  // parts whose results are still to come
  absl::InlinedVector<Part, 1> parts;
  absl::Time waits_since;                   // while queued
  absl::Time taken = absl::InfinitePast();  // by the first lane
  absl::Duration compute;                   // the longest part
  absl::InlinedVector<int, 2> devices;      // that computed parts
  std::vector<MatrixException> exceptions;  // of finished parts, in the order of their finishing
};

// The matrices [first, first + count) of a job. The job is null where it left a batch that had not been taken.
struct Slice {
  std::shared_ptr<Job> job;
  int64_t first;
  int64_t count;
};

// What runs a batch on a lane.
class BatchRunner {
 public:
  virtual void RunBatch(std::unique_ptr<Batch> batch, const Lane& lane) = 0;

 protected:
  ~BatchRunner() = default;
};

// Guarded by the scheduler's mutex until a lane takes it. From then on `plan` and `slices` are the lane's, and do not
// change while it runs; `live` and `abandoned` stay under the mutex; `cancel` is atomic.
struct Batch final : public LaneWork {
  enum class State : uint8_t { kOpen, kWaiting, kRunning };

  void Run(const Lane& lane) override { runner->RunBatch(std::unique_ptr<Batch>(this), lane); }

  Plan plan;
  State state = State::kOpen;
  absl::Time opened;
  std::vector<Slice> slices;
  int64_t bytes = 0;       // operands of the live slices
  int64_t matrices = 0;    // of the live slices
  int64_t live = 0;        // slices whose job still wants an answer
  bool abandoned = false;  // while it runs: its jobs were answered, and nobody waits for its device
  std::atomic<bool> cancel{false};
  absl::InlinedVector<int, 2> tried;  // devices that failed it
  absl::Status fault;                 // what they said
  BatchRunner* runner = nullptr;      // set when taken
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_BATCH_H_
