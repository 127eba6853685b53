// A job is an admitted request inside the batch stage; a batch is what one device lane computes in one go. A job has
// one part, a slice of a batch, or several where it was split.
//
// Life of a job: it waits in the line of its flow -> batches take parts of it, or all -> a lane runs each. A batch that
// a device failed waits, as it is, for another device. A batch whose device hangs is abandoned: it runs on, and keeps
// the memory of its jobs, until the device answers, which may be never.
#ifndef SVDSERVE_SERVER_BATCH_BATCH_H_
#define SVDSERVE_SERVER_BATCH_BATCH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/admitted_request.h"
#include "server/device/device_pool.h"

namespace svdserve::server {

struct Batch;
struct Flow;  // batch_queue.h

// Where a part of a job is: slot `slot` of a batch that waits or runs.
struct Part {
  Batch* batch;
  size_t slot;
};

// Guarded by the scheduler's mutex, but for `work` without its callback, which never changes after submit().
struct Job {
  // The matrices that no batch has taken yet. The queue's own.
  struct Rest {
    Flow* flow = nullptr;                             // null: there are none
    std::list<std::shared_ptr<Job>>::iterator place;  // in the line of the flow
    int64_t next = 0;                                 // the first of them
    std::vector<int64_t> ends;                        // of the shares of devices, ascending: no part crosses one
    size_t share = 0;                                 // the share in which `next` is
    absl::Time since;                                 // when the job was added
    int64_t in_share() const { return ends[share] - next; }
  };

  AdmittedRequest work;
  DoneCallback done;  // moved from when answered
  bool answered = false;
  bool queued = true;      // it waits for a lane to take its first part, or a part that came back
  int64_t unfinished = 0;  // matrices whose results are still to come
  Rest rest;
  absl::InlinedVector<Part, 1> parts;       // in batches
  absl::Time waits_since;                   // while queued
  absl::Time taken = absl::InfinitePast();  // by the first lane
  absl::Duration compute;                   // the longest part
  absl::InlinedVector<int, 2> devices;      // that computed parts, each once
  std::vector<MatrixException> exceptions;  // of finished parts, in the order of their finishing
};

// The matrices [first, first + count) of a job. The job is null where it left a batch that had come back.
struct Slice {
  std::shared_ptr<Job> job;
  int64_t first;
  int64_t count;
  Flow* flow;  // that is charged for it; null: none
};

// Runs a batch on a lane.
class BatchRunner {
 public:
  virtual void run_batch(std::unique_ptr<Batch> batch, const Lane& lane) = 0;

 protected:
  ~BatchRunner() = default;
};

// Guarded by the scheduler's mutex until a lane takes it. From then on `plan` and `slices` are the lane's, and do not
// change while it runs. `live` and `abandoned` stay under the mutex; `cancel` is atomic.
struct Batch final : public LaneWork {
  void run(const Lane& lane) override { runner->run_batch(std::unique_ptr<Batch>(this), lane); }

  Plan plan;
  bool running = false;  // false: it came back, and waits for another device
  std::vector<Slice> slices;
  int64_t bytes = 0;       // operands of the live slices
  int64_t matrices = 0;    // of the live slices
  int64_t live = 0;        // slices whose job still wants an answer
  bool abandoned = false;  // while it runs: its jobs were answered, and nobody waits for its device
  absl::Duration charged;  // to its flows for the device that runs it
  std::atomic<bool> cancel{false};
  absl::InlinedVector<int, 2> tried;  // devices that failed it
  absl::Status fault;                 // what they said
  BatchRunner* runner = nullptr;      // set when taken
};

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_BATCH_BATCH_H_
