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

std::vector<int64_t> CountsOf(const FakeDeviceControl::Seen& seen) { return seen.counts; }

// --- cutting --------------------------------------------------------------------------------------

TEST(BatchScheduler, IdleDeviceTakesARequestAtOnce) {
  PipelineHarness h;
  const TicketPtr t = h.Submit(3, 10);
  EXPECT_TRUE(t->Wait().error.ok()) << t->Wait().error.message;
  EXPECT_THAT(t->memory->values, ElementsAre(10, 11, 11, 12, 12, 13));
  EXPECT_EQ(t->Wait().method, Method::kBidiagonal);
  EXPECT_EQ(t->Wait().devices, "fake:0");
  EXPECT_THAT(h.recorder.cuts(), ElementsAre(CountingRecorder::Cut{CutReason::kLaneFree, 1, 3, 3 * kMatrixBytes}));
}

TEST(BatchScheduler, RequestsOfOneKeyShareABatchWhileTheLaneIsBusy) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(2, 10), b = h.Submit(3, 20);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  h.device().Open();
  for (const TicketPtr& t : {first, a, b}) EXPECT_TRUE(t->Wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(2));
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(2, 3));
  EXPECT_THAT(b->memory->values, ElementsAre(20, 21, 21, 22, 22, 23));
  EXPECT_EQ(h.recorder.cuts(CutReason::kLaneFree), 2);
}

TEST(BatchScheduler, DifferentKeysDoNotShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.SubmitKey(1, 2), b = h.SubmitKey(2, 2);
  h.device().Open();
  a->Wait(), b->Wait();
  EXPECT_THAT(h.device().seen(), SizeIs(3));
}

TEST(BatchScheduler, FullBatchIsCutByBytes) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_bytes = 4 * kMatrixBytes;
  PipelineHarness h(options);
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(3), b = h.Submit(2), c = h.Submit(2);  // b does not fit beside a; b and c fill one
  h.device().Open();
  a->Wait(), b->Wait(), c->Wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 2);
  ASSERT_THAT(h.device().seen(), SizeIs(3));
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(3));
  EXPECT_THAT(CountsOf(h.device().seen()[2]), ElementsAre(2, 2));
}

TEST(BatchScheduler, FullBatchIsCutByMatrices) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 5;
  PipelineHarness h(options);
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(5), b = h.Submit(1);
  h.device().Open();
  a->Wait(), b->Wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 1);
}

TEST(BatchScheduler, RequestsThatCameFarApartDoNotShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(1);
  h.clock.Advance(absl::Microseconds(500));
  const TicketPtr b = h.Submit(1);
  h.clock.Advance(absl::Microseconds(1));
  const TicketPtr c = h.Submit(1);
  h.device().Open();
  a->Wait(), b->Wait(), c->Wait();
  EXPECT_EQ(h.recorder.cuts(CutReason::kAge), 1);
  ASSERT_THAT(h.device().seen(), SizeIs(3));
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(1, 1));
  EXPECT_THAT(CountsOf(h.device().seen()[2]), ElementsAre(1));
  EXPECT_THAT(h.recorder.phase(Phase::kBatchAssembly), testing::Contains(absl::Microseconds(501)));
}

TEST(BatchScheduler, RequestsThatHaveWaitedLongShareABatch) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  std::vector<TicketPtr> tickets;
  for (int i = 0; i < 9; ++i) {
    tickets.push_back(h.Submit(1));
    h.clock.Advance(absl::Milliseconds(1));
  }
  h.device().Open();
  for (const TicketPtr& t : tickets) EXPECT_TRUE(t->Wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(2));
  EXPECT_THAT(CountsOf(h.device().seen()[1]), SizeIs(9));
}

TEST(BatchScheduler, KeysAreServedInTurn) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 1;
  PipelineHarness h(options);
  const TicketPtr first = h.Occupy();
  std::vector<TicketPtr> flood;
  for (int i = 0; i < 20; ++i) flood.push_back(h.SubmitKey(1, 1));
  const TicketPtr modest = h.SubmitKey(2, 1);
  h.device().Let(3);  // the first, one of the flood, the modest one
  EXPECT_TRUE(modest->Wait().error.ok());
  EXPECT_FALSE(flood[1]->done());
  h.device().Open();
  for (const TicketPtr& t : flood) t->Wait();
}

TEST(BatchScheduler, FloodOfLargeRequestsDoesNotStarveASmallOneOfTheSameKey) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 4;
  PipelineHarness h(options);
  const TicketPtr first = h.Occupy();
  const TicketPtr small = h.Submit(1);
  std::vector<TicketPtr> flood;
  for (int i = 0; i < 5; ++i) flood.push_back(h.Submit(8));
  h.device().Let(2);
  EXPECT_TRUE(small->Wait().error.ok());
  EXPECT_FALSE(flood[0]->done());
  h.device().Open();
  for (const TicketPtr& t : flood) EXPECT_TRUE(t->Wait().error.ok());
}

// --- splitting ------------------------------------------------------------------------------------

TEST(BatchScheduler, RequestBeyondTheBatchLimitIsSplitAndAnsweredOnce) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_bytes = 4 * kMatrixBytes;
  PipelineHarness h(options);
  const TicketPtr t = h.Submit(10, 5);
  EXPECT_TRUE(t->Wait().error.ok());
  ASSERT_THAT(h.device().seen(), SizeIs(3));  // 4 + 3 + 3
  EXPECT_THAT(CountsOf(h.device().seen()[0]), ElementsAre(4));
  EXPECT_THAT(CountsOf(h.device().seen()[2]), ElementsAre(3));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(t->memory->values[2 * i], 5 + i);
  EXPECT_EQ(t->Wait().devices, "fake:0");
  EXPECT_EQ(t->calls(), 1);
  EXPECT_EQ(h.recorder.cuts(CutReason::kFull), 2);
}

TEST(BatchScheduler, LargeRequestIsSpreadOverIdleDevices) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.min_split_bytes = 2 * kMatrixBytes;
  PipelineHarness h(options, {1, 1, 1});
  for (auto& control : h.controls) control->Close();
  const auto ticket = std::make_shared<Ticket>();
  Request request = MakeRequest(9, 100, ticket);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ticket->memory->payload[4 * 1] = nan;
  ticket->memory->payload[4 * 8] = nan;
  h.Submit(std::move(request), ticket);
  for (auto& control : h.controls) control->AwaitBegun(1);
  for (int i = 2; i >= 0; --i) h.device(i).Open();  // the parts end in the order that is not theirs
  const Answer& answer = ticket->Wait();
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
  PipelineHarness h(PipelineHarness::Defaults(), {1, 1});
  EXPECT_EQ(h.Submit(1000)->Wait().devices, "fake:0");
}

TEST(BatchScheduler, BusyDevicesAreNotWaitedForBySplitting) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.min_split_bytes = kMatrixBytes;
  PipelineHarness h(options, {1, 1});
  const TicketPtr first = h.Occupy();
  EXPECT_EQ(h.Submit(8)->Wait().devices, "fake:1");
  h.device().Open();
}

// --- the ways to end ------------------------------------------------------------------------------

TEST(BatchScheduler, CancelOfAnOpenBatchsRequestFreesItAtOnce) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(2), b = h.Submit(3);
  a->memory.reset();
  h.pipeline->Cancel(a->handle);
  EXPECT_TRUE(a->done());
  EXPECT_EQ(a->Wait().error.code, StatusCode::kCancelled);
  EXPECT_EQ(a->reason(), Reason::kCancelled);
  EXPECT_TRUE(a->memory_freed());
  h.device().Open();
  EXPECT_TRUE(b->Wait().error.ok());
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(3));  // no device time for a
}

TEST(BatchScheduler, CancelOfTheOnlyRequestRemovesItsBatch) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr open = h.Submit(2);
  const TicketPtr waiting = h.SubmitKey(1, 1);
  h.pipeline->Cancel(open->handle);
  h.pipeline->Cancel(waiting->handle);
  EXPECT_TRUE(open->done() && waiting->done());
  EXPECT_EQ(h.pipeline->stats().queued_requests, 0);
  h.device().Open();
  EXPECT_TRUE(first->Wait().error.ok());
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));
  EXPECT_THAT(h.device().seen(), SizeIs(1));
}

TEST(BatchScheduler, CancelOfACancelledBatchsPlaceIsReused) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 4;
  PipelineHarness h(options);
  const TicketPtr first = h.Occupy();
  const TicketPtr keep = h.Submit(1), gone = h.Submit(2);
  h.pipeline->Cancel(gone->handle);
  const TicketPtr late = h.Submit(2);
  h.device().Open();
  keep->Wait(), late->Wait();
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(1, 2));
}

TEST(BatchScheduler, CancelWhileComputingAnswersAtOnceAndStopsTheDevice) {
  PipelineHarness h;
  const TicketPtr t = h.Occupy();
  h.pipeline->Cancel(t->handle);
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->Wait().error.code, StatusCode::kCancelled);
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));  // the gate is closed: only the flag ends the batch
  EXPECT_EQ(h.device().cancelled(), 1);
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, ComputingBatchGoesOnForThoseWhoStay) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr a = h.Submit(2), b = h.Submit(3, 7);
  h.device().Let(1);
  h.device().AwaitBegun(2);
  a->memory.reset();
  h.pipeline->Cancel(a->handle);
  EXPECT_TRUE(a->done());
  EXPECT_FALSE(a->memory_freed());  // the device still writes into it
  h.device().Open();
  EXPECT_TRUE(b->Wait().error.ok());
  EXPECT_THAT(b->memory->values, ElementsAre(7, 8, 8, 9, 9, 10));
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));
  EXPECT_TRUE(a->memory_freed());
  EXPECT_EQ(h.device().cancelled(), 0);
}

TEST(BatchScheduler, CancelAfterTheAnswerDoesNothing) {
  PipelineHarness h;
  const TicketPtr t = h.Submit(1);
  EXPECT_TRUE(t->Wait().error.ok());
  h.pipeline->Cancel(t->handle);
  h.pipeline->Cancel(t->handle);
  h.pipeline->Cancel(RequestHandle{});
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, DeadlineEndsAWaitingRequest) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr late = h.Submit(1, 1, h.clock.Now() + absl::Milliseconds(20));
  const TicketPtr patient = h.Submit(2, 1, h.clock.Now() + absl::Milliseconds(30));
  late->memory.reset();
  h.clock.Advance(absl::Milliseconds(19));
  EXPECT_FALSE(late->done());
  h.clock.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(late->done());
  EXPECT_EQ(late->Wait().error.code, StatusCode::kDeadlineExceeded);
  EXPECT_EQ(late->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(late->memory_freed());
  h.device().Open();
  EXPECT_TRUE(patient->Wait().error.ok());
  EXPECT_THAT(CountsOf(h.device().seen()[1]), ElementsAre(2));
}

TEST(BatchScheduler, DeadlineFiresWhileTheDeviceComputes) {
  PipelineHarness h;
  h.device().Close();
  const TicketPtr t = h.Submit(1, 1, h.clock.Now() + absl::Milliseconds(5));
  h.device().AwaitBegun(1);
  h.clock.Advance(absl::Milliseconds(5));
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));
  EXPECT_EQ(h.device().cancelled(), 1);
}

TEST(BatchScheduler, DeadlineThatHasPassedIsRefused) {
  PipelineHarness h;
  const TicketPtr t = h.Submit(1, 1, h.clock.Now());
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_THAT(h.device().seen(), IsEmpty());
}

TEST(BatchScheduler, QueueTimeoutEndsWhatWaitsButNotWhatComputes) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.queue_timeout = absl::Seconds(2);
  PipelineHarness h(options);
  const TicketPtr computing = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  h.clock.Advance(absl::Seconds(2));
  EXPECT_TRUE(waiting->done());
  EXPECT_EQ(waiting->Wait().error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(waiting->reason(), Reason::kQueueTimeout);
  EXPECT_GT(waiting->Wait().error.retry_after, absl::ZeroDuration());
  EXPECT_FALSE(computing->done());
  h.device().Open();
  EXPECT_TRUE(computing->Wait().error.ok());
  EXPECT_EQ(computing->Wait().timing.compute, absl::Seconds(2));
}

TEST(BatchScheduler, NoAlarmIsLeftWhenNothingCanFallDue) {
  PipelineHarness h;
  const TicketPtr t = h.Occupy();  // no deadline, and a lane has it
  EXPECT_EQ(h.clock.next_alarm(), absl::InfiniteFuture());
  h.device().Open();
  t->Wait();
}

TEST(BatchScheduler, CancelOfASplitRequestStopsEveryPart) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 2;
  PipelineHarness h(options, {1, 1});
  h.device(0).Close();
  h.device(1).Close();
  const TicketPtr t = h.Submit(10);
  h.device(0).AwaitBegun(1);
  h.device(1).AwaitBegun(1);
  t->memory.reset();
  h.pipeline->Cancel(t->handle);
  EXPECT_TRUE(t->done());
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));
  EXPECT_THAT(h.device(0).seen(), SizeIs(1));
  EXPECT_THAT(h.device(1).seen(), SizeIs(1));
  EXPECT_TRUE(t->memory_freed());
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, TimingTellsWaitingFromComputing) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  const TicketPtr t = h.Submit(1);
  h.clock.Advance(absl::Milliseconds(3));
  h.device().Let(1);
  h.device().AwaitBegun(2);
  h.clock.Advance(absl::Milliseconds(4));
  h.device().Open();
  EXPECT_EQ(t->Wait().timing.queue, absl::Milliseconds(3));
  EXPECT_EQ(t->Wait().timing.compute, absl::Milliseconds(4));
  EXPECT_EQ(t->Wait().timing.total, absl::Milliseconds(7));
}

TEST(BatchScheduler, StatsTellDepthAndAgeOfTheQueue) {
  PipelineHarness h;
  const TicketPtr first = h.Occupy();
  EXPECT_EQ(h.pipeline->stats().oldest_queued, absl::ZeroDuration());
  const TicketPtr a = h.Submit(1);
  h.clock.Advance(absl::Milliseconds(3));
  const TicketPtr b = h.Submit(1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 2);
  EXPECT_EQ(h.pipeline->stats().oldest_queued, absl::Milliseconds(3));
  h.device().Open();
  a->Wait(), b->Wait();
}

// --- inline ---------------------------------------------------------------------------------------

TEST(BatchScheduler, SmallWorkRunsInSubmitWhenALaneIsFree) {
  PipelineHarness h{PipelineOptions{}};
  const TicketPtr t = h.Submit(4, 3);
  EXPECT_TRUE(t->done());
  EXPECT_TRUE(t->Wait().error.ok());
  EXPECT_THAT(t->memory->values, ElementsAre(3, 4, 4, 5, 5, 6, 6, 7));
  EXPECT_EQ(t->Wait().devices, "fake:0");
  EXPECT_THAT(h.recorder.cuts(), ElementsAre(CountingRecorder::Cut{CutReason::kLaneFree, 1, 4, 4 * kMatrixBytes}));
  EXPECT_THAT(h.recorder.phase(Phase::kQueue), SizeIs(1));
  EXPECT_THAT(h.recorder.phase(Phase::kCompute), SizeIs(1));
}

TEST(BatchScheduler, InlineWorkReportsItsExceptions) {
  PipelineHarness h{PipelineOptions{}};
  const auto ticket = std::make_shared<Ticket>();
  Request request = MakeRequest(3, 1, ticket);
  ticket->memory->payload[4] = std::numeric_limits<double>::infinity();
  h.Submit(std::move(request), ticket);
  EXPECT_THAT(ticket->Wait().exceptions, ElementsAre(MatrixException{1, MatrixStatus::kNonFinite}));
}

TEST(BatchScheduler, SmallWorkWaitsItsTurnBehindOthers) {
  PipelineHarness h{PipelineOptions{}};
  h.device().Close();
  const TicketPtr large = h.Submit(100000);  // far beyond 20 us
  h.device().AwaitBegun(1);
  const TicketPtr small = h.Submit(1);
  EXPECT_FALSE(small->done());
  h.device().Open();
  EXPECT_TRUE(small->Wait().error.ok());
}

TEST(BatchScheduler, InlineFaultIsAnAnswer) {
  PipelineHarness h{PipelineOptions{}};
  h.device().Fail([]() -> DeviceOutcome { throw std::bad_alloc(); });
  const TicketPtr t = h.Submit(1);
  EXPECT_TRUE(t->done());
  EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(t->reason(), Reason::kDeviceFault);
  EXPECT_TRUE(h.pipeline->stats().ready());
}

TEST(BatchScheduler, WorkThatCameDuringInlineWorkIsStartedAfterwards) {
  PipelineHarness h{PipelineOptions{}};
  h.device().Close();
  TicketPtr small;
  std::thread caller([&] { small = h.Submit(1); });
  h.device().AwaitBegun(1);
  const TicketPtr other = h.Submit(100000);
  h.device().Open();
  EXPECT_TRUE(other->Wait().error.ok());
  caller.join();
  EXPECT_TRUE(small->Wait().error.ok());
}

// --- faults ---------------------------------------------------------------------------------------

DeviceOutcome LostDevice() {
  DeviceOutcome outcome;
  outcome.status = absl::InternalError("unspecified launch failure");
  outcome.device_lost = true;
  return outcome;
}

TEST(BatchScheduler, WorkOfALostDeviceMovesOn) {
  PipelineHarness h(PipelineHarness::Defaults(), {1, 1});
  const TicketPtr moved = h.Occupy(0);
  const TicketPtr other = h.Occupy(1);  // lands on device 1, since 0 is busy
  const TicketPtr waiting = h.Submit(2, 9);
  h.device(0).Fail(LostDevice);
  h.device(0).Open();
  h.device(1).Open();
  for (const TicketPtr& t : {moved, other, waiting}) EXPECT_TRUE(t->Wait().error.ok()) << t->Wait().error.message;
  EXPECT_EQ(moved->Wait().devices, "fake:1");
  EXPECT_EQ(waiting->Wait().devices, "fake:1");
  EXPECT_THAT(h.recorder.lost(), ElementsAre("fake:0"));
  EXPECT_EQ(h.pipeline->stats().healthy_devices, 1);
  EXPECT_TRUE(h.pipeline->stats().ready());
  EXPECT_FALSE(h.pipeline->devices()[0].healthy);
  EXPECT_TRUE(h.pipeline->devices()[1].healthy);
  EXPECT_EQ(h.Submit(1)->Wait().devices, "fake:1");
}

TEST(BatchScheduler, WithTheLastDeviceReadinessAndTheQueueGo) {
  PipelineHarness h;
  const TicketPtr doomed = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  h.device().Fail(LostDevice);
  h.device().Open();
  EXPECT_EQ(doomed->Wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(waiting->Wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(waiting->reason(), Reason::kDeviceFault);
  EXPECT_FALSE(h.pipeline->stats().ready());
  EXPECT_EQ(h.Submit(1)->Wait().error.code, StatusCode::kUnavailable);
}

TEST(BatchScheduler, FaultOfOnePartFailsTheSplitRequestOnce) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 1;
  PipelineHarness h(options, {2});
  h.device().Close();
  const TicketPtr t = h.Submit(6);
  h.device().AwaitBegun(2);
  h.device().Fail(LostDevice);
  h.device().Let(1);
  EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
  EXPECT_TRUE(h.pipeline->Drain(absl::InfiniteDuration()));  // the other part is told to stop: the gate is closed
  EXPECT_EQ(h.device().cancelled(), 1);
  EXPECT_EQ(t->calls(), 1);
}

TEST(BatchScheduler, WhateverTheEngineThrowsFailsTheBatchAlone) {
  PipelineHarness h;
  h.device().Fail([]() -> DeviceOutcome { throw std::bad_alloc(); });
  EXPECT_EQ(h.Submit(1)->Wait().error.code, StatusCode::kInternal);
  h.device().Fail([]() -> DeviceOutcome { throw std::runtime_error("odd"); });
  EXPECT_EQ(h.Submit(1)->Wait().error.message, "no device computed the request: device fake:0 failed");
  h.device().Fail([]() -> DeviceOutcome { throw 42; });
  EXPECT_EQ(h.Submit(1)->reason(), Reason::kDeviceFault);
  h.device().Fail(nullptr);
  EXPECT_TRUE(h.Submit(1)->Wait().error.ok());
  EXPECT_TRUE(h.pipeline->stats().ready());
}

TEST(BatchScheduler, BatchGivenUpByTheDeviceUnaskedIsAFault) {
  PipelineHarness h;
  h.device().Fail([] { return DeviceOutcome{}; });
  EXPECT_EQ(h.Submit(1)->reason(), Reason::kDeviceFault);
}

// --- lanes ----------------------------------------------------------------------------------------

TEST(BatchScheduler, DeviceWithSeveralLanesOverlapsBatches) {
  PipelineHarness h(PipelineHarness::Defaults(), {2});
  const TicketPtr a = h.Occupy(), b = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  EXPECT_EQ(h.pipeline->stats().queued_requests, 1);
  h.device().Open();
  EXPECT_TRUE(waiting->Wait().error.ok());
}

TEST(BatchScheduler, LeastOutstandingWorkIsServedFirst) {
  PipelineHarness h(PipelineHarness::Defaults(), {2, 2});
  h.device(0).Close();
  h.device(1).Close();
  const TicketPtr large = h.Submit(10000);  // device 0
  h.device(0).AwaitBegun(1);
  const TicketPtr small = h.Submit(1);  // device 1: it has nothing to do
  h.device(1).AwaitBegun(1);
  const TicketPtr again = h.Submit(1);  // device 1: it has less to do
  h.device(1).AwaitBegun(2);
  h.device(0).Open();
  h.device(1).Open();
  EXPECT_EQ(large->Wait().devices, "fake:0");
  EXPECT_EQ(again->Wait().devices, "fake:1");
}

// --- drain ----------------------------------------------------------------------------------------

TEST(BatchScheduler, DrainRefusesTheNewAndFinishesTheAccepted) {
  PipelineHarness h;
  const TicketPtr computing = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  h.pipeline->StartDrain();
  EXPECT_FALSE(h.pipeline->stats().ready());
  const TicketPtr late = h.Submit(1);
  EXPECT_EQ(late->Wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(late->reason(), Reason::kDraining);
  EXPECT_GT(late->Wait().error.retry_after, absl::ZeroDuration());
  bool drained_all = false;
  std::thread drainer([&] { drained_all = h.pipeline->Drain(absl::Seconds(30)); });
  h.device().Open();
  drainer.join();
  EXPECT_TRUE(drained_all);
  EXPECT_TRUE(computing->Wait().error.ok());
  EXPECT_TRUE(waiting->Wait().error.ok());
}

TEST(BatchScheduler, DrainThatRunsOutOfTimeGivesUpTheRest) {
  PipelineHarness h;
  const TicketPtr computing = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  bool drained_all = true;
  std::thread drainer([&] { drained_all = h.pipeline->Drain(absl::Seconds(10)); });
  while (h.clock.next_alarm() > h.clock.Now() + absl::Seconds(10)) std::this_thread::yield();
  h.clock.Advance(absl::Seconds(9));
  EXPECT_FALSE(computing->done());
  h.clock.Advance(absl::Seconds(1));
  drainer.join();
  EXPECT_FALSE(drained_all);
  for (const TicketPtr& t : {computing, waiting}) {
    EXPECT_EQ(t->Wait().error.code, StatusCode::kUnavailable);
    EXPECT_EQ(t->reason(), Reason::kDraining);
    EXPECT_EQ(t->calls(), 1);
  }
}

TEST(BatchScheduler, DestructionAnswersWhatIsLeft) {
  PipelineHarness h;
  const TicketPtr computing = h.Occupy();
  const TicketPtr waiting = h.Submit(1);
  computing->memory.reset();
  waiting->memory.reset();
  h.pipeline.reset();
  EXPECT_EQ(computing->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
}

}  // namespace
}  // namespace svdserve::server
