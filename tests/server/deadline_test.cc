// Deadlines at admission: what cannot be met is refused, and nothing else is.
#include "server/admit/deadline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/server/own_options.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using absl::Milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(CheckDeadline, RefusesWhatWouldBeLate) {
  const absl::Time now = absl::UnixEpoch();
  EXPECT_TRUE(check_deadline(now, now + Milliseconds(5), absl::ZeroDuration()).ok());
  EXPECT_TRUE(check_deadline(now, now + Milliseconds(5), Milliseconds(5)).ok());
  EXPECT_TRUE(check_deadline(now, absl::InfiniteFuture(), absl::Hours(1)).ok());
  const Error error = check_deadline(now, now + Milliseconds(5), Milliseconds(5.5));
  EXPECT_EQ(error.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(error.reason, Reason::kDeadlineUnreachable);
  EXPECT_STREQ(name(error.reason), "DEADLINE_UNREACHABLE");
  EXPECT_EQ(error.retry_after, absl::ZeroDuration());
  EXPECT_THAT(error.message, HasSubstr("5ms away"));
  EXPECT_THAT(error.message, HasSubstr("5.5ms"));
}

// One device that takes 10 ms for each matrix of a batch, but once took 4 ms.
struct Experienced : PipelineHarness {
  static PipelineOptions whole_batches() {
    PipelineOptions options = defaults();
    options.max_batch_work = absl::InfiniteDuration();
    return options;
  }
  Experienced() : PipelineHarness(whole_batches(), {1}) {
    for (const int64_t count : {1, 16}) {
      for (int i = 0; i < 10; ++i) {
        device().fail([this, i, count] {
          clock.advance(count * Milliseconds(i == 5 ? 4 : 10));
          return DeviceOutcome{absl::OkStatus(), false, true, {count, 0, 0, 0}};
        });
        EXPECT_TRUE(submit(count)->wait().error.ok());
      }
    }
    device().fail(nullptr);
  }
  TicketPtr submit_within(absl::Duration time, int64_t count = 1) { return submit(count, 1, clock.now() + time); }
};

TEST(DeadlineAdmission, RefusesWhatEvenTheBestRunsCouldNotDo) {
  Experienced h;
  const TicketPtr running = h.occupy();  // 4 ms at best, and 4 ms for what comes then
  const TicketPtr refused = h.submit_within(Milliseconds(7.9));
  EXPECT_TRUE(refused->done());
  EXPECT_EQ(refused->wait().error.code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(refused->reason(), Reason::kDeadlineUnreachable);
  EXPECT_THAT(h.recorder.refusals(), ElementsAre(Reason::kDeadlineUnreachable));
  EXPECT_EQ(h.pipeline->stats().inflight_requests, 1);
  const TicketPtr admitted = h.submit_within(Milliseconds(8.1));
  EXPECT_FALSE(admitted->done());
  h.clock.advance(Milliseconds(4));  // the one that runs may end any moment
  EXPECT_EQ(h.submit_within(Milliseconds(7.9))->reason(), Reason::kDeadlineUnreachable);  // but another is in line
  h.device().open();
  EXPECT_TRUE(admitted->wait().error.ok());
}

TEST(DeadlineAdmission, WhatIsInLineBeforeItCounts) {
  Experienced h;
  const TicketPtr running = h.occupy();
  std::vector<TicketPtr> line;
  for (int i = 0; i < 9; ++i) line.push_back(h.submit(1));
  EXPECT_EQ(h.submit_within(Milliseconds(40))->reason(), Reason::kDeadlineUnreachable);
  EXPECT_FALSE(h.submit_within(Milliseconds(60))->done());
  for (const TicketPtr& t : line) h.pipeline->cancel(t->handle);
  EXPECT_FALSE(h.submit_within(Milliseconds(40))->done());
  EXPECT_FALSE(h.submit_key(1, 1)->done());
  h.device().open();
}

TEST(DeadlineAdmission, IdleDeviceTriesAnything) {
  Experienced h;
  h.device().close();
  const TicketPtr t = h.submit_within(absl::Microseconds(1));
  h.device().await_begun(21);
  EXPECT_FALSE(t->done());
  EXPECT_THAT(h.recorder.refusals(), IsEmpty());
  h.clock.advance(absl::Microseconds(1));
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
}

TEST(DeadlineAdmission, NothingIsRefusedByAShapeThatNeverRan) {
  Experienced h;
  const TicketPtr running = h.occupy();
  const auto ticket = std::make_shared<Ticket>();
  Request request = make_request(1, 1, ticket);
  own_options(&request)->method = Method::kJacobi;
  request.deadline = h.clock.now() + absl::Microseconds(1);
  h.submit(std::move(request), ticket);
  EXPECT_FALSE(ticket->done());
  h.device().open();
}

TEST(DeadlineAdmission, WithoutADeadlineOrMatricesNothingIsAsked) {
  Experienced h;
  const TicketPtr running = h.occupy();
  EXPECT_TRUE(h.submit_within(absl::Microseconds(1), 0)->wait().error.ok());
  EXPECT_FALSE(h.submit(1000)->done());
  h.device().open();
}

TEST(DeadlineAdmission, RunsThatWereNotCleanTeachNothing) {
  PipelineHarness h;
  for (int i = 0; i < 20; ++i) {
    h.device().fail([&h, i] {
      h.clock.advance(absl::Seconds(1));
      DeviceOutcome outcome;
      if (i % 2 == 0) outcome.status = absl::InternalError("odd");
      return outcome;  // failed, or cancelled by its deadline meanwhile
    });
    EXPECT_FALSE(h.submit(1, 1, h.clock.now() + Milliseconds(1))->wait().error.ok());
    while (h.pipeline->devices()[0].outstanding_batches > 0) std::this_thread::yield();
  }
  EXPECT_EQ(h.device().seen().size(), 20u);
  h.device().fail(nullptr);
  const TicketPtr running = h.occupy();
  EXPECT_FALSE(h.submit(1, 1, h.clock.now() + absl::Microseconds(1))->done());
  h.device().open();
}

TEST(DeadlineAdmission, OtherRefusalsAreCountedToo) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_inflight_requests = 1;
  options.max_inflight_bytes = 10 * kLedgerBytes;
  PipelineHarness h(options);
  const TicketPtr running = h.occupy();
  h.submit(1), h.submit(100);
  h.pipeline->start_drain();
  h.submit(1);
  EXPECT_THAT(h.recorder.refusals(),
              ElementsAre(Reason::kOverloadedRequests, Reason::kOverloadedBytes, Reason::kDraining));
  h.device().open();
}

}  // namespace
}  // namespace svdserve::server
