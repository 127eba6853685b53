// The whole core: refusals at its door, the ledger, and storms of requests over real devices and a real clock.
#include "server/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "server/device/host_device.h"
#include "tests/server/own_options.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;

// --- at the door ----------------------------------------------------------------------------------

TEST(Pipeline, MistakesAreAnsweredBeforeAnythingIsReserved) {
  PipelineHarness h;
  const auto ticket = std::make_shared<Ticket>();
  Request request = make_request(2, 1, ticket);
  request.payload_bytes -= 1;
  h.submit(std::move(request), ticket);
  EXPECT_TRUE(ticket->done());
  EXPECT_EQ(ticket->wait().error.code, StatusCode::kInvalidArgument);
  EXPECT_EQ(ticket->wait().error.field, "matrices.data");
  EXPECT_EQ(h.recorder.admitted_bytes(), 0);
  EXPECT_TRUE(ticket->memory->values.empty());
}

TEST(Pipeline, EmptyBatchGetsAnEmptyAnswer) {
  PipelineHarness h;
  h.device().close();  // no device is asked
  const TicketPtr t = h.submit(0);
  EXPECT_TRUE(t->done());
  EXPECT_TRUE(t->wait().error.ok());
  EXPECT_EQ(t->wait().method, Method::kBidiagonal);
  EXPECT_TRUE(t->wait().exceptions.empty());
}

// A list of as many exceptions as there are matrices is in memory beside them, should all of them be bad.
TEST(Pipeline, TheLedgerHasRoomForAListOfAllMatrices) {
  PipelineHarness h;
  constexpr int64_t kCount = 1000;
  const TicketPtr first = h.occupy();
  const int64_t before = h.pipeline->stats().inflight_bytes;
  const TicketPtr many = h.submit(kCount);
  const int64_t counted = h.pipeline->stats().inflight_bytes - before;
  EXPECT_GE(counted, kCount * static_cast<int64_t>(kMatrixBytes + 2 * sizeof(double) + sizeof(MatrixException)));
  h.device().open();
  EXPECT_TRUE(many->wait().error.ok());
}

TEST(Pipeline, TheLedgerCountsStartingVectors) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const auto counted = [&h](bool warm) {
    const int64_t before = h.pipeline->stats().inflight_bytes;
    const auto ticket = std::make_shared<Ticket>();
    Request request = make_warm_request(10, 1, ticket);
    if (!warm) {
      own_options(&request)->starting_vectors = false;
      request.starting_vectors_bytes = 0;
    }
    h.submit(std::move(request), ticket);
    return h.pipeline->stats().inflight_bytes - before;
  };
  EXPECT_EQ(counted(true) - counted(false), 10 * 2 * kMatrixBytes);
}

// The log of the fault of one batch whose requests are of calls with these ids.
std::string log_of_a_fault(const std::vector<std::string>& ids) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  std::vector<TicketPtr> tickets;
  for (const std::string& id : ids) {
    tickets.push_back(std::make_shared<Ticket>());
    Request request = make_request(1, 1, tickets.back());
    request.memory->call_id = id;
    h.submit(std::move(request), tickets.back());
  }
  h.device().let(1);
  EXPECT_TRUE(first->wait().error.ok());
  testing::internal::CaptureStderr();
  h.device().fail([] { return DeviceOutcome{absl::InternalError("broken"), false, false, {}}; });
  h.device().open();
  for (const TicketPtr& ticket : tickets) EXPECT_EQ(ticket->reason(), Reason::kDeviceFault);
  return testing::internal::GetCapturedStderr();
}

TEST(Pipeline, TheLogOfAFaultNamesTheCallsOfTheBatch) {
  EXPECT_THAT(log_of_a_fault({"a", "a", "b", ""}), testing::HasSubstr("matrices=4 calls=a,b\n"));
  std::vector<std::string> many;
  for (int i = 0; i < 20; ++i) many.push_back("call-" + std::to_string(i));
  EXPECT_THAT(log_of_a_fault(many), testing::HasSubstr(",call-15 and 4 more\""));
}

TEST(Pipeline, OverloadOfBytesIsRefusedAtOnce) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_inflight_bytes = 10 * kLedgerBytes;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr fits = h.submit(9);
  const TicketPtr refused = h.submit(1);
  EXPECT_TRUE(refused->done());
  EXPECT_EQ(refused->wait().error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(refused->reason(), Reason::kOverloadedBytes);
  EXPECT_GT(refused->wait().error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(h.pipeline->stats().inflight_bytes, 10 * kLedgerBytes);
  h.device().open();
  EXPECT_TRUE(fits->wait().error.ok());
}

TEST(Pipeline, OverloadOfRequestsIsRefusedAtOnce) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_inflight_requests = 2;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr second = h.submit(1);
  EXPECT_EQ(h.submit(1)->reason(), Reason::kOverloadedRequests);
  EXPECT_EQ(h.pipeline->stats().inflight_requests, 2);
  h.pipeline->cancel(second->handle);
  EXPECT_EQ(h.submit(1)->reason(), Reason::kOverloadedRequests);  // its caller still holds the memory
  second->memory.reset();
  const TicketPtr third = h.submit(1);
  EXPECT_FALSE(third->done());
  h.device().open();
  EXPECT_TRUE(third->wait().error.ok());
}

TEST(Pipeline, ReservationIsReturnedWithTheMemory) {
  PipelineHarness h;
  const TicketPtr t = h.submit(5);
  EXPECT_TRUE(t->wait().error.ok());
  ASSERT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_EQ(h.pipeline->stats().inflight_bytes, 5 * kLedgerBytes);  // the reply is not sent yet
  t->memory.reset();
  EXPECT_EQ(h.pipeline->stats().inflight_bytes, 0);
  EXPECT_EQ(h.pipeline->stats().inflight_requests, 0);
  EXPECT_EQ(h.recorder.admitted_bytes(), 5 * kLedgerBytes);
}

TEST(Pipeline, NoMemoryForTheResultsIsAnOverload) {
  struct Exhausted final : public RequestMemory {
    void* allocate_results(absl::Span<const ResultPart>) override { throw std::bad_alloc(); }
    double payload[4] = {};
  };
  PipelineHarness h;
  const auto memory = std::make_shared<Exhausted>();
  Request request;
  request.problem = {2, 2, DType::kF64, Order::kRowMajor};
  request.count = 1;
  request.payload = memory->payload;
  request.payload_bytes = sizeof memory->payload;
  request.memory = memory;
  const auto ticket = std::make_shared<Ticket>();
  h.submit(std::move(request), ticket);
  EXPECT_EQ(ticket->wait().error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(ticket->reason(), Reason::kOverloadedBytes);
}

TEST(Pipeline, DeadlineCountsFromTheClockOfThePipeline) {
  PipelineHarness h;
  const auto ticket = std::make_shared<Ticket>();
  Request request = make_request(1, 1, ticket);
  request.arrival = h.clock.now() - absl::Milliseconds(2);
  h.submit(std::move(request), ticket);
  EXPECT_EQ(ticket->wait().timing.total, absl::Milliseconds(2));
}

TEST(Pipeline, AnswersMaySubmitAndCancel) {
  PipelineHarness h;
  const auto second = std::make_shared<Ticket>();
  const auto first = std::make_shared<Ticket>();
  Request request = make_request(1, 1, first);
  h.pipeline->submit(std::move(request), [&](Answer answer) {  // would deadlock, were it called under a lock
    h.submit(make_request(1, 2, second), second);
    h.pipeline->cancel(second->handle);
    first->done(std::move(answer));
  });
  first->wait();
  second->wait();
  EXPECT_EQ(second->calls(), 1);
}

// --- storms ---------------------------------------------------------------------------------------

// 1000 requests of random size, key and deadline, most of them cancelled at a random moment, on fake devices whose
// gates open and shut. Each gets one reply, and the ledger comes back to zero.
TEST(Pipeline, RandomCancelsLeaveNothingBehind) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    PipelineOptions options = PipelineHarness::defaults();
    options.max_batch_matrices = 64;
    options.min_split_bytes = 16 * kMatrixBytes;
    if (seed % 2 == 1) options.inline_work = absl::Microseconds(20);
    PipelineHarness h(options, {1, 2});
    std::vector<TicketPtr> tickets;
    for (int i = 0; i < 1000; ++i) {
      h.device(random() % 2).open();
      const auto ticket = std::make_shared<Ticket>();
      Request request = make_request(static_cast<int64_t>(random() % 200), 1, ticket);
      if (random() % 2 == 0) own_options(&request)->method = Method::kJacobi;
      if (random() % 3 == 0) request.deadline = h.clock.now() + absl::Microseconds(random() % 5000);
      // Inline work with a shut gate would stop this very thread.
      if (options.inline_work == absl::ZeroDuration()) h.device(random() % 2).close();
      h.submit(std::move(request), ticket);
      ticket->memory.reset();
      tickets.push_back(ticket);
      if (random() % 4 != 0) h.pipeline->cancel(tickets[random() % tickets.size()]->handle);
      if (random() % 8 == 0) h.clock.advance(absl::Microseconds(random() % 1000));
    }
    for (auto& control : h.controls) control->open();
    EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
    for (const TicketPtr& t : tickets) {
      EXPECT_EQ(t->calls(), 1);
      EXPECT_TRUE(t->memory_freed());
    }
    EXPECT_EQ(h.pipeline->stats().inflight_bytes, 0);
    EXPECT_EQ(h.pipeline->stats().inflight_requests, 0);
    EXPECT_EQ(h.pipeline->stats().queued_requests, 0);
  }
}

// Several callers, two real host devices, a real clock: right values or an honest error for everybody.
TEST(Pipeline, StormOverHostDevices) {
  const auto clock = make_steady_clock();
  NullRecorder recorder;
  PipelineOptions options;
  options.max_batch_matrices = 500;
  options.max_inflight_requests = 64;
  Pipeline pipeline(options, make_host_devices(2, 2, Simd::kBest), clock.get(), &recorder);
  std::atomic<int> right{0}, cancelled{0}, expired{0}, overloaded{0}, other{0};
  const auto caller = [&](unsigned seed) {
    std::mt19937 random(seed);
    std::vector<TicketPtr> tickets;
    for (int i = 0; i < 250; ++i) {
      const auto ticket = std::make_shared<Ticket>();
      const int64_t count = 1 + static_cast<int64_t>(random() % 1000);
      Request request = make_request(count, 1, ticket);  // the singular values of a constant 2 x 2 matrix c: 2 c and 0
      if (random() % 4 == 0) request.deadline = clock->now() + absl::Microseconds(random() % 300);
      ticket->handle = pipeline.submit(std::move(request), [&, ticket](Answer answer) {
        bool is_right = true;
        for (size_t j = 0; answer.error.ok() && j < ticket->memory->values.size() / 2; ++j) {
          is_right &= std::abs(ticket->memory->values[2 * j] - 2.0 * static_cast<double>(j + 1)) < 1e-9;
        }
        switch (answer.error.reason) {
          case Reason::kNone:
            (is_right ? right : other)++;
            break;
          case Reason::kCancelled:
            cancelled++;
            break;
          case Reason::kDeadlineExceeded:
          case Reason::kDeadlineUnreachable:
            expired++;
            break;
          case Reason::kOverloadedRequests:
            overloaded++;
            break;
          default:
            other++;
        }
        ticket->done(std::move(answer));
      });
      tickets.push_back(ticket);
      if (random() % 4 == 0) pipeline.cancel(tickets[random() % tickets.size()]->handle);
      if (random() % 4 == 0) tickets.back()->wait();
    }
    for (const TicketPtr& t : tickets) {
      t->wait();
      EXPECT_EQ(t->calls(), 1);
    }
  };
  std::vector<std::thread> callers;
  for (unsigned seed = 0; seed < 4; ++seed) callers.emplace_back(caller, seed);
  for (std::thread& t : callers) t.join();
  EXPECT_TRUE(pipeline.drain(absl::InfiniteDuration()));
  EXPECT_EQ(right + cancelled + expired + overloaded, 1000);
  EXPECT_EQ(other, 0);
  EXPECT_GT(right, 0);
  EXPECT_EQ(pipeline.stats().inflight_requests, 0);
}

// A pipeline may go as soon as its answers are in: no thread of it may look back.
TEST(Pipeline, DestructionRightAfterTheAnswer) {
  for (int i = 0; i < 500; ++i) {
    PipelineHarness h(PipelineHarness::defaults(), {1, 1});
    const TicketPtr a = h.submit(2), b = h.submit_key(1, 2);
    a->wait(), b->wait();
    a->memory.reset(), b->memory.reset();
    h.pipeline.reset();
  }
}

// Requests come from several threads while the server drains: what was accepted is computed, the rest is told so.
TEST(Pipeline, DrainUnderLoadLosesNothing) {
  const auto clock = make_steady_clock();
  NullRecorder recorder;
  Pipeline pipeline({}, make_host_devices(1, 1, Simd::kBest), clock.get(), &recorder);
  std::atomic<int> submitted{0}, answered{0}, served{0}, draining{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&] {
      while (!stop.load()) {
        const auto ticket = std::make_shared<Ticket>();
        Request request = make_request(300, 1, ticket);
        ++submitted;
        pipeline.submit(std::move(request), [&](Answer answer) {
          if (answer.error.ok()) ++served;
          if (answer.error.reason == Reason::kDraining) ++draining;
          ++answered;
        });
        ticket->memory.reset();
        if (draining.load() > 10) break;
      }
    });
  }
  while (served.load() < 50) std::this_thread::yield();
  EXPECT_TRUE(pipeline.drain(absl::InfiniteDuration()));
  const int served_by_then = served.load();
  for (std::thread& t : callers) t.join();
  EXPECT_EQ(answered.load(), submitted.load());
  EXPECT_EQ(served.load(), served_by_then);
  EXPECT_GT(draining.load(), 0);
  EXPECT_EQ(pipeline.stats().inflight_bytes, 0);
}

}  // namespace
}  // namespace svdserve::server
