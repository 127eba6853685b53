// The batcher's rules through the pipeline's door, under a clock that only the test moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>

#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<int64_t> counts_of(const FakeDeviceControl::Seen& seen) { return seen.counts; }

// --- cutting --------------------------------------------------------------------------------------

TEST(BatchScheduler, IdleDeviceTakesARequestAtOnce) {
  PipelineHarness h;
  const TicketPtr t = h.submit(3, 10);
  EXPECT_TRUE(t->wait().error.ok()) << t->wait().error.message;
  EXPECT_THAT(t->memory->values, ElementsAre(10, 11, 11, 12, 12, 13));
  EXPECT_EQ(t->wait().method, Method::kBidiagonal);
  EXPECT_EQ(t->wait().devices, "fake:0");
  EXPECT_THAT(h.recorder.cuts(), ElementsAre(CountingRecorder::Cut{CutReason::kLaneFree, 1, 3, 3 * kMatrixBytes}));
}

TEST(BatchScheduler, RequestsOfOneKeyShareABatchWhileTheLaneIsBusy) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(2, 10), b = h.submit(3, 20);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  h.device().open();
  for (const TicketPtr& t : {first, a, b}) EXPECT_TRUE(t->wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(2));
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(2, 3));
  EXPECT_THAT(b->memory->values, ElementsAre(20, 21, 21, 22, 22, 23));
  EXPECT_EQ(h.recorder.cuts(CutReason::kLaneFree), 2);
}

TEST(BatchScheduler, DifferentKeysDoNotShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit_key(1, 2), b = h.submit_key(2, 2);
  h.device().open();
  a->wait(), b->wait();
  EXPECT_THAT(h.device().seen(), SizeIs(3));
}

TEST(BatchScheduler, FullBatchIsCutByBytes) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_bytes = 4 * kMatrixBytes;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(3), b = h.submit(2), c = h.submit(2);  // b does not fit beside a; b and c fill one
  h.device().open();
  a->wait(), b->wait(), c->wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 2);
  ASSERT_THAT(h.device().seen(), SizeIs(3));
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(3));
  EXPECT_THAT(counts_of(h.device().seen()[2]), ElementsAre(2, 2));
}

TEST(BatchScheduler, FullBatchIsCutByMatrices) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 5;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(5), b = h.submit(1);
  h.device().open();
  a->wait(), b->wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 1);
}

TEST(BatchScheduler, RequestsThatCameFarApartDoNotShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(1);
  h.clock.advance(absl::Microseconds(500));
  const TicketPtr b = h.submit(1);
  h.clock.advance(absl::Microseconds(1));
  const TicketPtr c = h.submit(1);
  h.device().open();
  a->wait(), b->wait(), c->wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kAge), 1);
  ASSERT_THAT(h.device().seen(), SizeIs(3));
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(1, 1));
  EXPECT_THAT(counts_of(h.device().seen()[2]), ElementsAre(1));
  EXPECT_THAT(h.recorder.phase(Phase::kBatchAssembly), testing::Contains(absl::Microseconds(501)));
}

TEST(BatchScheduler, RequestsThatHaveWaitedLongShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  std::vector<TicketPtr> tickets;
  for (int i = 0; i < 9; ++i) {
    tickets.push_back(h.submit(1));
    h.clock.advance(absl::Milliseconds(1));
  }
  h.device().open();
  for (const TicketPtr& t : tickets) EXPECT_TRUE(t->wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(2));
  EXPECT_THAT(counts_of(h.device().seen()[1]), SizeIs(9));
}

TEST(BatchScheduler, KeysAreServedInTurn) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 1;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  std::vector<TicketPtr> flood;
  for (int i = 0; i < 20; ++i) flood.push_back(h.submit_key(1, 1));
  const TicketPtr modest = h.submit_key(2, 1);
  h.device().let(3);  // the first, one of the flood, the modest one
  EXPECT_TRUE(modest->wait().error.ok());
  EXPECT_FALSE(flood[1]->done());
  h.device().open();
  for (const TicketPtr& t : flood) t->wait();
}

TEST(BatchScheduler, FloodOfLargeRequestsDoesNotStarveASmallOneOfTheSameKey) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 4;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr small = h.submit(1);
  std::vector<TicketPtr> flood;
  for (int i = 0; i < 5; ++i) flood.push_back(h.submit(8));
  h.device().let(2);
  EXPECT_TRUE(small->wait().error.ok());
  EXPECT_FALSE(flood[0]->done());
  h.device().open();
  for (const TicketPtr& t : flood) EXPECT_TRUE(t->wait().error.ok());
}

// --- splitting ------------------------------------------------------------------------------------

TEST(BatchScheduler, RequestBeyondTheBatchLimitIsSplitAndAnsweredOnce) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_bytes = 4 * kMatrixBytes;
  PipelineHarness h(options);
  const TicketPtr t = h.submit(10, 5);
  EXPECT_TRUE(t->wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(3));  // 4 + 3 + 3
  EXPECT_THAT(counts_of(h.device().seen()[0]), ElementsAre(4));
  EXPECT_THAT(counts_of(h.device().seen()[2]), ElementsAre(3));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(t->memory->values[2 * i], 5 + i);
  EXPECT_EQ(t->wait().devices, "fake:0");
  EXPECT_EQ(t->calls(), 1);
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 2);
}

TEST(BatchScheduler, EachPartHasItsStartingVectors) {
  for (const bool is_inline : {false, true}) {
    PipelineOptions options = PipelineHarness::defaults();
    options.max_batch_bytes = 4 * 3 * kMatrixBytes;  // starting vectors are twice as large as their matrices
    if (is_inline) options.inline_work = absl::Seconds(1);
    PipelineHarness h(options);
    const auto ticket = std::make_shared<Ticket>();
    h.submit(make_warm_request(10, 5, ticket), ticket);
    EXPECT_TRUE(ticket->wait().error.ok());
    EXPECT_THAT(h.device().seen(), SizeIs(is_inline ? 1 : 3));
    EXPECT_EQ(ticket->wait().method, Method::kJacobi);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(ticket->memory->values[4 * i], 5 + 1001 * i);
  }
}

TEST(BatchScheduler, DevicesShareStartingVectorsAsTheirMatrices) {
  PipelineOptions options = PipelineHarness::defaults();
  options.min_split_bytes = 2 * 3 * kMatrixBytes;
  PipelineHarness h(options, {1, 1, 1});
  for (auto& control : h.controls) control->close();
  const auto ticket = std::make_shared<Ticket>();
  h.submit(make_warm_request(9, 100, ticket), ticket);
  for (auto& control : h.controls) control->await_begun(1);
  for (auto& control : h.controls) control->open();
  EXPECT_EQ(ticket->wait().devices, "fake:0,fake:1,fake:2");
  for (int i = 0; i < 9; ++i) EXPECT_EQ(ticket->memory->values[4 * i], 100 + 1001 * i);
}

TEST(BatchScheduler, LargeRequestIsSpreadOverIdleDevices) {
  PipelineOptions options = PipelineHarness::defaults();
  options.min_split_bytes = 2 * kMatrixBytes;
  PipelineHarness h(options, {1, 1, 1});
  for (auto& control : h.controls) control->close();
  const auto ticket = std::make_shared<Ticket>();
  Request request = make_request(9, 100, ticket);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ticket->memory->payload[4 * 1] = nan;
  ticket->memory->payload[4 * 8] = nan;
  h.submit(std::move(request), ticket);
  for (auto& control : h.controls) control->await_begun(1);
  for (int i = 2; i >= 0; --i) h.device(i).open();  // the parts end in the order that is not theirs
  const Answer& answer = ticket->wait();
  EXPECT_TRUE(answer.error.ok());
  EXPECT_EQ(answer.devices, "fake:0,fake:1,fake:2");
  EXPECT_THAT(answer.exceptions,
              ElementsAre(MatrixException{1, MatrixStatus::kNonFinite}, MatrixException{8, MatrixStatus::kNonFinite}));
  for (int i : {0, 2, 3, 4, 5, 6, 7}) EXPECT_EQ(ticket->memory->values[2 * i], 100 + i);
  EXPECT_EQ(h.recorder.report().ok, 7);
  EXPECT_EQ(h.recorder.report().non_finite, 2);
  EXPECT_THAT(h.recorder.phase(Phase::kQueue), SizeIs(1));
}

TEST(BatchScheduler, SmallRequestIsNotSpread) {
  PipelineHarness h(PipelineHarness::defaults(), {1, 1});
  EXPECT_EQ(h.submit(1000)->wait().devices, "fake:0");
}

TEST(BatchScheduler, BusyDevicesAreNotWaitedForBySplitting) {
  PipelineOptions options = PipelineHarness::defaults();
  options.min_split_bytes = kMatrixBytes;
  PipelineHarness h(options, {1, 1});
  const TicketPtr first = h.occupy();
  EXPECT_EQ(h.submit(8)->wait().devices, "fake:1");
  h.device().open();
}

// --- the ways to end ------------------------------------------------------------------------------

TEST(BatchScheduler, CancelOfAnOpenBatchsRequestFreesItAtOnce) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(2), b = h.submit(3);
  a->memory.reset();
  h.pipeline->cancel(a->handle);
  EXPECT_TRUE(a->done());
  EXPECT_EQ(a->wait().error.code, StatusCode::kCancelled);
  EXPECT_EQ(a->reason(), Reason::kCancelled);
  EXPECT_TRUE(a->memory_freed());
  h.device().open();
  EXPECT_TRUE(b->wait().error.ok());
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(3));  // no device time for a
}

TEST(BatchScheduler, CancelOfTheOnlyRequestRemovesItsBatch) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr open = h.submit(2);
  const TicketPtr waiting = h.submit_key(1, 1);
  h.pipeline->cancel(open->handle);
  h.pipeline->cancel(waiting->handle);
  EXPECT_TRUE(open->done() && waiting->done());
  EXPECT_EQ(h.pipeline->stats().queued_requests, 0);
  h.device().open();
  EXPECT_TRUE(first->wait().error.ok());
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_THAT(h.device().seen(), SizeIs(1));
}

TEST(BatchScheduler, CancelOfACancelledBatchsPlaceIsReused) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 4;
  PipelineHarness h(options);
  const TicketPtr first = h.occupy();
  const TicketPtr keep = h.submit(1), gone = h.submit(2);
  h.pipeline->cancel(gone->handle);
  const TicketPtr late = h.submit(2);
  h.device().open();
  keep->wait(), late->wait();
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(1, 2));
}

TEST(BatchScheduler, CancelWhileComputingAnswersAtOnceAndStopsTheDevice) {
  PipelineHarness h;
  const TicketPtr t = h.occupy();
  h.pipeline->cancel(t->handle);
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->wait().error.code, StatusCode::kCancelled);
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));  // the gate is closed: only the flag ends the batch
  EXPECT_EQ(h.device().cancelled(), 1);
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, ComputingBatchGoesOnForThoseWhoStay) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr a = h.submit(2), b = h.submit(3, 7);
  h.device().let(1);
  h.device().await_begun(2);
  a->memory.reset();
  h.pipeline->cancel(a->handle);
  EXPECT_TRUE(a->done());
  EXPECT_FALSE(a->memory_freed());  // the device still writes into it
  h.device().open();
  EXPECT_TRUE(b->wait().error.ok());
  EXPECT_THAT(b->memory->values, ElementsAre(7, 8, 8, 9, 9, 10));
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_TRUE(a->memory_freed());
  EXPECT_EQ(h.device().cancelled(), 0);
}

TEST(BatchScheduler, CancelAfterTheAnswerDoesNothing) {
  PipelineHarness h;
  const TicketPtr t = h.submit(1);
  EXPECT_TRUE(t->wait().error.ok());
  h.pipeline->cancel(t->handle);
  h.pipeline->cancel(t->handle);
  h.pipeline->cancel(RequestHandle{});
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, DeadlineEndsAWaitingRequest) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr late = h.submit(1, 1, h.clock.now() + absl::Milliseconds(20));
  const TicketPtr patient = h.submit(2, 1, h.clock.now() + absl::Milliseconds(30));
  late->memory.reset();
  h.clock.advance(absl::Milliseconds(19));
  EXPECT_FALSE(late->done());
  h.clock.advance(absl::Milliseconds(1));
  EXPECT_TRUE(late->done());
  EXPECT_EQ(late->wait().error.code, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(late->memory_freed());
  h.device().open();
  EXPECT_TRUE(patient->wait().error.ok());
  EXPECT_THAT(counts_of(h.device().seen()[1]), ElementsAre(2));
}

TEST(BatchScheduler, DeadlineFiresWhileTheDeviceComputes) {
  PipelineHarness h;
  h.device().close();
  const TicketPtr t = h.submit(1, 1, h.clock.now() + absl::Milliseconds(5));
  h.device().await_begun(1);
  h.clock.advance(absl::Milliseconds(5));
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_EQ(h.device().cancelled(), 1);
}

TEST(BatchScheduler, DeadlineThatHasPassedIsRefused) {
  PipelineHarness h;
  const TicketPtr t = h.submit(1, 1, h.clock.now());
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_THAT(h.device().seen(), IsEmpty());
}

TEST(BatchScheduler, QueueTimeoutEndsWhatWaitsButNotWhatComputes) {
  PipelineOptions options = PipelineHarness::defaults();
  options.queue_timeout = absl::Seconds(2);
  PipelineHarness h(options);
  const TicketPtr computing = h.occupy();
  const TicketPtr waiting = h.submit(1);
  h.clock.advance(absl::Seconds(2));
  EXPECT_TRUE(waiting->done());
  EXPECT_EQ(waiting->wait().error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(waiting->reason(), Reason::kQueueTimeout);
  EXPECT_GT(waiting->wait().error.retry_after, absl::ZeroDuration());
  EXPECT_FALSE(computing->done());
  h.device().open();
  EXPECT_TRUE(computing->wait().error.ok());
  EXPECT_EQ(computing->wait().timing.compute, absl::Seconds(2));
}

TEST(BatchScheduler, NoAlarmIsLeftWhenNothingCanFallDue) {
  PipelineHarness h;
  const TicketPtr t = h.occupy();  // no deadline, and a lane has it
  EXPECT_EQ(h.clock.next_alarm(), absl::InfiniteFuture());
  h.device().open();
  t->wait();
}

TEST(BatchScheduler, CancelOfASplitRequestStopsEveryPart) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 2;
  PipelineHarness h(options, {1, 1});
  h.device(0).close();
  h.device(1).close();
  const TicketPtr t = h.submit(10);
  h.device(0).await_begun(1);
  h.device(1).await_begun(1);
  t->memory.reset();
  h.pipeline->cancel(t->handle);
  EXPECT_TRUE(t->done());
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_THAT(h.device(0).seen(), SizeIs(1));
  EXPECT_THAT(h.device(1).seen(), SizeIs(1));
  EXPECT_TRUE(t->memory_freed());
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, TimingTellsWaitingFromComputing) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  const TicketPtr t = h.submit(1);
  h.clock.advance(absl::Milliseconds(3));
  h.device().let(1);
  h.device().await_begun(2);
  h.clock.advance(absl::Milliseconds(4));
  h.device().open();
  EXPECT_EQ(t->wait().timing.queue, absl::Milliseconds(3));
  EXPECT_EQ(t->wait().timing.compute, absl::Milliseconds(4));
  EXPECT_EQ(t->wait().timing.total, absl::Milliseconds(7));
}

TEST(BatchScheduler, StatsTellDepthAndAgeOfTheQueue) {
  PipelineHarness h;
  const TicketPtr first = h.occupy();
  EXPECT_EQ(h.pipeline->stats().oldest_queued, absl::ZeroDuration());
  const TicketPtr a = h.submit(1);
  h.clock.advance(absl::Milliseconds(3));
  const TicketPtr b = h.submit(1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  EXPECT_EQ(h.pipeline->stats().oldest_queued, absl::Milliseconds(3));
  h.device().open();
  a->wait(), b->wait();
}

// --- inline ---------------------------------------------------------------------------------------

TEST(BatchScheduler, SmallWorkRunsInSubmitWhenALaneIsFree) {
  PipelineHarness h{PipelineOptions{}};
  const TicketPtr t = h.submit(4, 3);
  EXPECT_TRUE(t->done());
  EXPECT_TRUE(t->wait().error.ok());
  EXPECT_THAT(t->memory->values, ElementsAre(3, 4, 4, 5, 5, 6, 6, 7));
  EXPECT_EQ(t->wait().devices, "fake:0");
  EXPECT_THAT(h.recorder.cuts(), ElementsAre(CountingRecorder::Cut{CutReason::kLaneFree, 1, 4, 4 * kMatrixBytes}));
  EXPECT_THAT(h.recorder.phase(Phase::kQueue), SizeIs(1));
  EXPECT_THAT(h.recorder.phase(Phase::kCompute), SizeIs(1));
}

TEST(BatchScheduler, InlineWorkReportsItsExceptions) {
  PipelineHarness h{PipelineOptions{}};
  const auto ticket = std::make_shared<Ticket>();
  Request request = make_request(3, 1, ticket);
  ticket->memory->payload[4] = std::numeric_limits<double>::infinity();
  h.submit(std::move(request), ticket);
  EXPECT_THAT(ticket->wait().exceptions, ElementsAre(MatrixException{1, MatrixStatus::kNonFinite}));
}

TEST(BatchScheduler, SmallWorkWaitsItsTurnBehindOthers) {
  PipelineHarness h{PipelineOptions{}};
  h.device().close();
  const TicketPtr large = h.submit(100000);  // far beyond 20 us
  h.device().await_begun(1);
  const TicketPtr small = h.submit(1);
  EXPECT_FALSE(small->done());
  h.device().open();
  EXPECT_TRUE(small->wait().error.ok());
}

TEST(BatchScheduler, InlineFaultIsAnAnswer) {
  PipelineHarness h{PipelineOptions{}};
  h.device().fail([]() -> DeviceOutcome { throw std::bad_alloc(); });
  const TicketPtr t = h.submit(1);
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(t->reason(), Reason::kDeviceFault);
  EXPECT_TRUE(h.pipeline->stats().ready());
}

TEST(BatchScheduler, WorkThatCameDuringInlineWorkIsStartedAfterwards) {
  PipelineHarness h{PipelineOptions{}};
  h.device().close();
  TicketPtr small;
  std::thread caller([&] { small = h.submit(1); });
  h.device().await_begun(1);
  const TicketPtr other = h.submit(100000);
  h.device().open();
  EXPECT_TRUE(other->wait().error.ok());
  caller.join();
  EXPECT_TRUE(small->wait().error.ok());
}

// --- faults ---------------------------------------------------------------------------------------

DeviceOutcome lost_device() {
  DeviceOutcome outcome;
  outcome.status = absl::InternalError("unspecified launch failure");
  outcome.device_lost = true;
  return outcome;
}

TEST(BatchScheduler, WorkOfALostDeviceMovesOn) {
  PipelineHarness h(PipelineHarness::defaults(), {1, 1});
  const TicketPtr moved = h.occupy(0);
  const TicketPtr other = h.occupy(1);  // lands on device 1, since 0 is busy
  const TicketPtr waiting = h.submit(2, 9);
  h.device(0).fail(lost_device);
  h.device(0).open();
  h.device(1).open();
  for (const TicketPtr& t : {moved, other, waiting}) EXPECT_TRUE(t->wait().error.ok()) << t->wait().error.message;
  EXPECT_EQ(moved->wait().devices, "fake:1");
  EXPECT_EQ(waiting->wait().devices, "fake:1");
  EXPECT_THAT(h.recorder.lost(), ElementsAre("fake:0"));
  EXPECT_EQ(h.pipeline->stats().healthy_devices, 1);
  EXPECT_TRUE(h.pipeline->stats().ready());
  EXPECT_FALSE(h.pipeline->devices()[0].healthy);
  EXPECT_TRUE(h.pipeline->devices()[1].healthy);
  EXPECT_EQ(h.submit(1)->wait().devices, "fake:1");
}

TEST(BatchScheduler, WithTheLastDeviceReadinessAndTheQueueGo) {
  PipelineHarness h;
  const TicketPtr doomed = h.occupy();
  const TicketPtr waiting = h.submit(1);
  h.device().fail(lost_device);
  h.device().open();
  EXPECT_EQ(doomed->wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(waiting->wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(waiting->reason(), Reason::kDeviceFault);
  EXPECT_FALSE(h.pipeline->stats().ready());
  EXPECT_EQ(h.submit(1)->wait().error.code, StatusCode::kUnavailable);
}

TEST(BatchScheduler, FaultOfOnePartFailsTheSplitRequestOnce) {
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 1;
  PipelineHarness h(options, {2});
  h.device().close();
  const TicketPtr t = h.submit(6);
  h.device().await_begun(2);
  h.device().fail(lost_device);
  h.device().let(1);
  EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
  EXPECT_TRUE(h.pipeline->drain(absl::InfiniteDuration()));  // the other part is told to stop: the gate is closed
  EXPECT_EQ(h.device().cancelled(), 1);
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, WhateverTheEngineThrowsFailsTheBatchAlone) {
  PipelineHarness h;
  h.device().fail([]() -> DeviceOutcome { throw std::bad_alloc(); });
  EXPECT_EQ(h.submit(1)->wait().error.code, StatusCode::kInternal);
  h.device().fail([]() -> DeviceOutcome { throw std::runtime_error("odd"); });
  EXPECT_EQ(h.submit(1)->wait().error.message, "no device computed the request: device fake:0 failed");
  h.device().fail([]() -> DeviceOutcome { throw 42; });
  EXPECT_EQ(h.submit(1)->reason(), Reason::kDeviceFault);
  h.device().fail(nullptr);
  EXPECT_TRUE(h.submit(1)->wait().error.ok());
  EXPECT_TRUE(h.pipeline->stats().ready());
}

TEST(BatchScheduler, BatchGivenUpByTheDeviceUnaskedIsAFault) {
  PipelineHarness h;
  h.device().fail([] { return DeviceOutcome{}; });
  EXPECT_EQ(h.submit(1)->reason(), Reason::kDeviceFault);
}

// --- lanes ----------------------------------------------------------------------------------------

TEST(BatchScheduler, DeviceWithSeveralLanesOverlapsBatches) {
  PipelineHarness h(PipelineHarness::defaults(), {2});
  const TicketPtr a = h.occupy(), b = h.occupy();
  const TicketPtr waiting = h.submit(1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.device().open();
  EXPECT_TRUE(waiting->wait().error.ok());
}

TEST(BatchScheduler, LeastOutstandingWorkIsServedFirst) {
  PipelineHarness h(PipelineHarness::defaults(), {2, 2});
  h.device(0).close();
  h.device(1).close();
  const TicketPtr large = h.submit(10000);  // device 0
  h.device(0).await_begun(1);
  const TicketPtr small = h.submit(1);  // device 1: it has nothing to do
  h.device(1).await_begun(1);
  const TicketPtr again = h.submit(1);  // device 1: it has less to do
  h.device(1).await_begun(2);
  h.device(0).open();
  h.device(1).open();
  EXPECT_EQ(large->wait().devices, "fake:0");
  EXPECT_EQ(again->wait().devices, "fake:1");
}

// --- drain ----------------------------------------------------------------------------------------

TEST(BatchScheduler, DrainRefusesTheNewAndFinishesTheAccepted) {
  PipelineHarness h;
  const TicketPtr computing = h.occupy();
  const TicketPtr waiting = h.submit(1);
  h.pipeline->start_drain();
  EXPECT_FALSE(h.pipeline->stats().ready());
  const TicketPtr late = h.submit(1);
  EXPECT_EQ(late->wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(late->reason(), Reason::kDraining);
  EXPECT_GT(late->wait().error.retry_after, absl::ZeroDuration());
  bool drained_all = false;
  std::thread drainer([&] { drained_all = h.pipeline->drain(absl::Seconds(30)); });
  h.device().open();
  drainer.join();
  EXPECT_TRUE(drained_all);
  EXPECT_TRUE(computing->wait().error.ok());
  EXPECT_TRUE(waiting->wait().error.ok());
}

TEST(BatchScheduler, DrainThatRunsOutOfTimeGivesUpTheRest) {
  PipelineHarness h;
  const TicketPtr computing = h.occupy();
  const TicketPtr waiting = h.submit(1);
  bool drained_all = true;
  std::thread drainer([&] { drained_all = h.pipeline->drain(absl::Seconds(10)); });
  while (h.clock.next_alarm() > h.clock.now() + absl::Seconds(10)) std::this_thread::yield();
  h.clock.advance(absl::Seconds(9));
  EXPECT_FALSE(computing->done());
  h.clock.advance(absl::Seconds(1));
  drainer.join();
  EXPECT_FALSE(drained_all);
  for (const TicketPtr& t : {computing, waiting}) {
    EXPECT_EQ(t->wait().error.code, StatusCode::kUnavailable);
    EXPECT_EQ(t->reason(), Reason::kDraining);
    EXPECT_EQ(t->calls(), 1);
  }
}

TEST(BatchScheduler, DestructionAnswersWhatIsLeft) {
  PipelineHarness h;
  const TicketPtr computing = h.occupy();
  const TicketPtr waiting = h.submit(1);
  computing->memory.reset();
  waiting->memory.reset();
  h.pipeline.reset();
  EXPECT_EQ(computing->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
}

}  // namespace
}  // namespace svdserve::server
