// A pipeline over fake devices and a fake clock, and requests that tests can wait for.
#ifndef SVDSERVE_TESTS_SERVER_PIPELINE_HARNESS_H_
#define SVDSERVE_TESTS_SERVER_PIPELINE_HARNESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/pipeline.h"
#include "tests/server/counting_recorder.h"
#include "tests/server/fake_clock.h"
#include "tests/server/fake_device.h"
#include "tests/server/own_options.h"

namespace svdserve::server {

// The memory of a test's request: 2 x 2 matrices of doubles.
struct TestMemory final : public RequestMemory {
  ~TestMemory() override {
    if (freed != nullptr) freed->store(true);
  }
  void* allocate_results(absl::Span<const ResultPart> parts) override {
    size_t bytes = 0;
    for (const ResultPart& part : parts) bytes += result_bytes(part);
    values.resize(bytes / sizeof(double));
    return values.data();
  }
  std::vector<double> payload;
  std::vector<double> starting_vectors;
  std::vector<double> values;
  std::shared_ptr<std::atomic<bool>> freed;
};

// A submitted request, as its caller sees it. A: Answer or GroupsAnswer.
template <class A>
class TicketOf {
 public:
  // Blocks until the request is answered.
  const A& wait() {
    MutexLock lock(&mu_);
    while (!answer_.has_value()) answered_.wait(&mu_);
    return *answer_;
  }
  bool done() {
    MutexLock lock(&mu_);
    return answer_.has_value();
  }
  int calls() {
    MutexLock lock(&mu_);
    return calls_;
  }
  void done(A answer) {
    MutexLock lock(&mu_);
    ++calls_;
    answer_ = std::move(answer);
    answered_.signal_all();
  }

  RequestHandle handle;

 private:
  Mutex mu_;
  CondVar answered_;
  std::optional<A> answer_;
  int calls_ = 0;
};

struct Ticket : TicketOf<Answer> {
  Reason reason() { return wait().error.reason; }
  bool memory_freed() const { return freed->load(); }

  std::shared_ptr<TestMemory> memory;  // dropped by tests that look at its end
  std::shared_ptr<std::atomic<bool>> freed = std::make_shared<std::atomic<bool>>(false);
};
using TicketPtr = std::shared_ptr<Ticket>;

inline constexpr int64_t kMatrixBytes = 4 * sizeof(double);
// The bytes that the ledger counts for a matrix: operand, values, status.
inline constexpr int64_t kLedgerBytes = kMatrixBytes + 2 * sizeof(double) + 1 + sizeof(MatrixException);

// count matrices, the i-th filled with first + i.
inline Request make_request(int64_t count, double first, const TicketPtr& ticket) {
  auto memory = std::make_shared<TestMemory>();
  memory->freed = ticket->freed;
  memory->payload.resize(4 * count);
  for (int64_t i = 0; i < 4 * count; ++i) memory->payload[i] = first + static_cast<double>(i / 4);
  Request request;
  request.problem = {2, 2, DType::kF64, Order::kRowMajor};
  request.count = count;
  request.payload = memory->payload.data();
  request.payload_bytes = memory->payload.size() * sizeof(double);
  request.memory = memory;
  ticket->memory = std::move(memory);
  return request;
}

// The same as a general eigenproblem with starting vectors, those of the i-th matrix filled with 1000 i.
inline Request make_warm_request(int64_t count, double first, const TicketPtr& ticket) {
  Request request = make_request(count, first, ticket);
  std::vector<double>& starts = ticket->memory->starting_vectors;
  for (int64_t i = 0; i < 8 * count; ++i) starts.push_back(1000 * static_cast<double>(i / 8));
  request.starting_vectors = starts.data();
  request.starting_vectors_bytes = starts.size() * sizeof(double);
  own_options(&request)->decomposition = Decomposition::kGeneral;
  own_options(&request)->starting_vectors = true;
  return request;
}

// Waits until the lanes of a device are given back and the alarm is set. A test that acts before sees a device busy
// with work that was answered, or moves the clock past an alarm that is not set.
inline void settle(Pipeline& pipeline, int device) {
  while (pipeline.devices()[static_cast<size_t>(device)].outstanding_batches > 0) std::this_thread::yield();
  pipeline.stats();  // under the lock in which both happen
}

class PipelineHarness {
 public:
  // One entry of `lanes` a device. Inline execution is off unless options ask for it, so that every batch meets a lane.
  static PipelineOptions defaults() {
    PipelineOptions options;
    options.inline_work = absl::ZeroDuration();
    return options;
  }
  explicit PipelineHarness(const PipelineOptions& options = defaults(), const std::vector<int>& lanes = {1}) {
    std::vector<std::unique_ptr<Device>> devices;
    for (size_t i = 0; i < lanes.size(); ++i) {
      controls.push_back(std::make_shared<FakeDeviceControl>());
      devices.push_back(std::make_unique<FakeDevice>("fake:" + std::to_string(i), lanes[i], controls.back()));
    }
    pipeline = std::make_unique<Pipeline>(options, std::move(devices), &clock, &recorder);
  }
  // One device, which `control` controls, or nobody.
  explicit PipelineHarness(const PipelineOptions& options, std::unique_ptr<Device> device,
                           std::shared_ptr<FakeDeviceControl> control)
      : controls{std::move(control)} {
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::move(device));
    pipeline = std::make_unique<Pipeline>(options, std::move(devices), &clock, &recorder);
  }
  ~PipelineHarness() {
    for (auto& control : controls) control->open();
    if (pipeline != nullptr) pipeline->drain(absl::InfiniteDuration());
  }

  FakeDeviceControl& device(int i = 0) { return *controls[i]; }

  TicketPtr submit(Request request, const TicketPtr& ticket) {
    ticket->handle = pipeline->submit(std::move(request), [ticket](Answer answer) { ticket->done(std::move(answer)); });
    return ticket;
  }
  TicketPtr submit(int64_t count, double first = 1, absl::Time deadline = absl::InfiniteFuture()) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = make_request(count, first, ticket);
    request.deadline = deadline;
    return submit(std::move(request), ticket);
  }
  // A key of its own for each `key` >= 1.
  TicketPtr submit_key(int key, int64_t count, const Peer& peer = "") {
    const auto ticket = std::make_shared<Ticket>();
    Request request = make_request(count, 1, ticket);
    own_options(&request)->method = Method::kBisection;
    own_options(&request)->tolerance = 1e-3 * key;
    request.peer = peer;
    return submit(std::move(request), ticket);
  }
  // Closes the gate of device 0 and occupies its lane with a batch of one matrix.
  TicketPtr occupy(int device_index = 0) {
    device(device_index).close();
    const size_t before = device(device_index).seen().size();
    TicketPtr ticket = submit(1);
    device(device_index).await_begun(before + 1);
    return ticket;
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FakeDeviceControl>> controls;
  std::unique_ptr<Pipeline> pipeline;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_PIPELINE_HARNESS_H_
