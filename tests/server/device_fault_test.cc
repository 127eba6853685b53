// The server's handling of devices that fail: every request is answered once, with the right bits or an honest error,
// whatever fails when, and the rest of the devices serve on. The devices are host devices, so the answers are real.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/device/host_device.h"
#include "tests/server/faulty_device.h"
#include "tests/server/own_options.h"
#include "tests/server/pipeline_harness.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Host devices host:0, host:1, ... that fail as they are told, under a clock that stands still: every device that did
// not fail is as good as any other, and is taken in order.
struct FaultyServer {
  explicit FaultyServer(int devices, const PipelineOptions& options = PipelineHarness::Defaults()) {
    std::vector<std::unique_ptr<Device>> made = MakeHostDevices(devices, devices, Simd::kBest);
    for (std::unique_ptr<Device>& device : made) {
      plans.push_back(std::make_shared<FaultPlan>());
      device = std::make_unique<FaultyDevice>(std::move(device), plans.back());
    }
    pipeline = std::make_unique<Pipeline>(options, std::move(made), &clock, &recorder);
  }

  TicketPtr Submit(int64_t count, absl::Time deadline = absl::InfiniteFuture()) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = MakeRandomRequest(count, ticket);
    request.deadline = deadline;
    ticket->handle = pipeline->Submit(std::move(request), [ticket](Answer a) { ticket->Done(std::move(a)); });
    return ticket;
  }
  static Request MakeRandomRequest(int64_t count, const TicketPtr& ticket) {
    Request request = MakeRequest(count, 1, ticket);
    std::mt19937 random(static_cast<unsigned>(count));
    for (double& x : ticket->memory->payload) x = std::uniform_real_distribution<double>(-1, 1)(random);
    return request;
  }

  // Until the lane of a device is given back and the alarm set: a clock that was moved on before would never ring it.
  void Settle(int device) {
    while (pipeline->devices()[static_cast<size_t>(device)].outstanding_batches > 0) std::this_thread::yield();
    pipeline->stats();  // under the lock in which both happen
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FaultPlan>> plans;
  std::unique_ptr<Pipeline> pipeline;
};

// The values of Submit(count) by the engine alone.
std::vector<double> Expected(int64_t count) {
  const auto ticket = std::make_shared<Ticket>();
  const Request request = FaultyServer::MakeRandomRequest(count, ticket);
  std::vector<double> values(static_cast<size_t>(2 * count));
  const HostSegment segment{request.payload, count, values.data(), nullptr};
  SvdEngine({1, Simd::kBest}).execute(*make_plan(request.problem, *request.options).plan, {&segment, 1});
  return values;
}

void ExpectRight(const TicketPtr& ticket, int64_t count) {
  ASSERT_TRUE(ticket->Wait().error.ok()) << ticket->Wait().error.message;
  EXPECT_EQ(ticket->calls(), 1);
  const std::vector<double> expected = Expected(count);
  ASSERT_EQ(ticket->memory->values.size(), expected.size());
  EXPECT_EQ(std::memcmp(ticket->memory->values.data(), expected.data(), expected.size() * sizeof(double)), 0);
}

class EachFault : public testing::TestWithParam<Fault> {};

TEST_P(EachFault, IsAnsweredByAnotherDeviceWithTheSameBits) {
  FaultyServer s(2);
  s.plans[0]->Plant(GetParam());
  const TicketPtr t = s.Submit(1000);
  ExpectRight(t, 1000);
  EXPECT_EQ(t->Wait().devices, "host:1");
  EXPECT_EQ(s.recorder.retries(), 1);
  EXPECT_THAT(s.recorder.faults(), ElementsAre("host:0"));
  EXPECT_EQ(s.recorder.report().total(), 1000);  // counted once
  EXPECT_EQ(s.recorder.phase(Phase::kQueue).size(), 1u);
  EXPECT_EQ(s.pipeline->stats().healthy_devices, GetParam() == Fault::kSticky ? 1 : 2);
  EXPECT_TRUE(s.pipeline->stats().ready());
}

TEST_P(EachFault, OnTheCallersThreadIsAnsweredByAnotherDeviceToo) {
  FaultyServer s(2, PipelineOptions{});
  s.plans[0]->Plant(GetParam());
  const TicketPtr t = s.Submit(3);
  ExpectRight(t, 3);
  EXPECT_EQ(t->Wait().devices, "host:1");
  EXPECT_EQ(s.recorder.retries(), 1);
}

TEST_P(EachFault, WithoutAnotherDeviceIsAnHonestError) {
  for (const bool inline_work : {false, true}) {
    FaultyServer s(1, inline_work ? PipelineOptions{} : PipelineHarness::Defaults());
    s.plans[0]->Plant(GetParam());
    const TicketPtr t = s.Submit(3);
    EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
    EXPECT_EQ(t->reason(), Reason::kDeviceFault);
    // The device's own words are for the log.
    EXPECT_EQ(t->Wait().error.message,
              absl::StrCat("no device computed the request: device host:0 ",
                           GetParam() == Fault::kOutOfMemory ? "had no memory for it" : "failed"));
    EXPECT_EQ(s.recorder.retries(), 0);
    EXPECT_EQ(s.pipeline->stats().ready(), GetParam() != Fault::kSticky);
    const TicketPtr next = s.Submit(5);
    if (GetParam() == Fault::kSticky) {
      EXPECT_EQ(next->Wait().error.code, StatusCode::kUnavailable);
      EXPECT_EQ(next->reason(), Reason::kDeviceFault);
    } else {
      ExpectRight(next, 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachFault,
                         testing::Values(Fault::kLaunch, Fault::kCopy, Fault::kOutOfMemory, Fault::kSticky,
                                         Fault::kUnasked, Fault::kThrow),
                         [](const auto& info) { return name(info.param); });

TEST(DeviceFault, DeviceIsTriedOnceForABatchAndThreeOfThemAtMost) {
  FaultyServer s(5);
  for (auto& plan : s.plans) plan->Always([] { return Fault::kLaunch; });
  const TicketPtr t = s.Submit(10);
  EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(t->reason(), Reason::kDeviceFault);
  EXPECT_EQ(t->Wait().error.message,
            "no device computed the request: device host:0 failed; device host:1 failed; device host:2 failed");
  for (int d = 0; d < 5; ++d) EXPECT_EQ(s.plans[d]->executed(), d < 3 ? 1 : 0) << d;
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 5);  // a batch that breaks every device takes none out
}

// GPUs of one process die together: a batch gets past however many of them to the device that is left.
TEST(DeviceFault, LostDevicesDoNotCountAmongTheTries) {
  FaultyServer s(6);
  for (int d = 0; d < 5; ++d) s.plans[d]->Plant(Fault::kSticky);
  ExpectRight(s.Submit(10), 10);
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 1);
  EXPECT_TRUE(s.pipeline->stats().ready());
}

TEST(DeviceFault, LostDevicesAreLeftAlone) {
  FaultyServer s(2);
  s.plans[0]->Plant(Fault::kSticky);
  ExpectRight(s.Submit(10), 10);
  for (int i = 1; i < 20; ++i) ExpectRight(s.Submit(i), i);
  EXPECT_EQ(s.plans[0]->executed(), 1);
  EXPECT_THAT(s.recorder.lost(), ElementsAre("host:0"));
}

TEST(DeviceFault, WithEveryDeviceReadinessGoes) {
  FaultyServer s(3);
  for (auto& plan : s.plans) plan->Plant(Fault::kSticky);
  const TicketPtr t = s.Submit(10);
  EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
  EXPECT_FALSE(s.pipeline->stats().ready());
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 0);
  EXPECT_EQ(s.Submit(1)->Wait().error.code, StatusCode::kUnavailable);
}

TEST(DeviceFault, RequestsThatSharedTheBatchMoveTogether) {
  FaultyServer s(2);
  s.plans[0]->Plant(Fault::kHang);
  s.plans[1]->Plant(Fault::kHang);
  const TicketPtr a = s.Submit(1), b = s.Submit(1);
  s.plans[0]->AwaitExecuted(1);
  s.plans[1]->AwaitExecuted(1);
  const TicketPtr c = s.Submit(2), d = s.Submit(3), e = s.Submit(4);  // one batch
  s.plans[0]->Plant(Fault::kCopy);
  s.pipeline->Cancel(d->handle);
  s.pipeline->Cancel(a->handle);  // lets device 0 go on
  s.plans[0]->AwaitExecuted(2);
  EXPECT_EQ(a->reason(), Reason::kCancelled);
  EXPECT_EQ(d->reason(), Reason::kCancelled);
  while (s.recorder.retries() == 0) std::this_thread::yield();
  EXPECT_EQ(s.pipeline->stats().queued_requests, 2);
  s.pipeline->Cancel(e->handle);  // it leaves the batch that came back
  EXPECT_EQ(e->reason(), Reason::kCancelled);
  EXPECT_EQ(s.pipeline->stats().queued_requests, 1);
  s.pipeline->Cancel(b->handle);
  ExpectRight(c, 2);
  EXPECT_EQ(c->Wait().devices, "host:1");
}

TEST(DeviceFault, BatchThatCameBackEndsByDeadlineCancelAndTimeoutWhileItWaits) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.queue_timeout = absl::Seconds(3);
  FaultyServer s(2, options);
  s.plans[1]->Plant(Fault::kHang);
  s.plans[0]->Plant(Fault::kHang);
  const TicketPtr first = s.Submit(1), blocker = s.Submit(1);
  s.plans[1]->AwaitExecuted(1);
  const auto fail_on_0 = [&](absl::Time deadline) {
    const int retries = s.recorder.retries();
    s.plans[0]->Plant(Fault::kLaunch);
    const TicketPtr t = s.Submit(7, deadline);
    s.pipeline->Cancel(first->handle);
    while (s.recorder.retries() == retries) std::this_thread::yield();
    s.Settle(0);
    return t;
  };
  const TicketPtr late = fail_on_0(s.clock.Now() + absl::Seconds(1));
  s.clock.Advance(absl::Seconds(1));
  EXPECT_EQ(late->reason(), Reason::kDeadlineExceeded);
  // By now device 0 is no longer avoided, though the batch that came back would not have gone there again.
  const TicketPtr cancelled = fail_on_0(absl::InfiniteFuture());
  s.pipeline->Cancel(cancelled->handle);
  EXPECT_EQ(cancelled->reason(), Reason::kCancelled);
  s.clock.Advance(absl::Seconds(60));
  const TicketPtr forgotten = fail_on_0(absl::InfiniteFuture());
  s.clock.Advance(absl::Milliseconds(2999));
  EXPECT_FALSE(forgotten->done());  // the time counts from when it came back
  s.clock.Advance(absl::Milliseconds(1));
  EXPECT_EQ(forgotten->reason(), Reason::kQueueTimeout);
  s.pipeline->Cancel(blocker->handle);
}

TEST(DeviceFault, BatchThatCameBackEndsWithItsFaultWhenItsLastHopeIsLost) {
  FaultyServer s(2);
  s.plans[1]->Plant(Fault::kHang);
  s.plans[0]->Plant(Fault::kHang);
  const TicketPtr first = s.Submit(1), blocker = s.Submit(1);
  s.plans[1]->AwaitExecuted(1);
  s.plans[0]->Plant(Fault::kLaunch);
  const TicketPtr t = s.Submit(7);
  s.pipeline->Cancel(first->handle);
  while (s.recorder.retries() == 0) std::this_thread::yield();
  EXPECT_FALSE(t->done());
  s.plans[1]->Plant(Fault::kSticky);
  const TicketPtr other = s.Submit(1);  // behind t
  s.pipeline->Cancel(blocker->handle);  // device 1 takes t, and is lost
  EXPECT_EQ(t->Wait().error.code, StatusCode::kInternal);
  EXPECT_THAT(t->Wait().error.message, HasSubstr("host:0"));
  EXPECT_THAT(t->Wait().error.message, HasSubstr("host:1"));
  ExpectRight(other, 1);
}

// They have nowhere to go but to a device that hangs; whoever comes after them has.
TEST(DeviceFault, BatchesThatCameBackHideNobody) {
  PipelineOptions options = PipelineHarness::Defaults();
  // The clock below runs on as long as the devices' threads do not get to run.
  options.queue_timeout = absl::Hours(24 * 365 * 100);
  FaultyServer s(2, options);
  s.plans[0]->Plant(Fault::kHang);
  s.plans[1]->Plant(Fault::kHang);
  const TicketPtr first = s.Submit(1), stuck = s.Submit(1);
  s.plans[0]->AwaitExecuted(1);
  s.plans[1]->AwaitExecuted(1);
  s.plans[0]->Always([] { return Fault::kLaunch; });
  std::vector<TicketPtr> back;
  for (int i = 0; i < 40; ++i) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = FaultyServer::MakeRandomRequest(2, ticket);
    own_options(&request)->method = Method::kBisection;
    own_options(&request)->tolerance = 1e-3 * (i + 1);
    ticket->handle = s.pipeline->Submit(std::move(request), [ticket](Answer a) { ticket->Done(std::move(a)); });
    back.push_back(ticket);
  }
  s.pipeline->Cancel(first->handle);
  while (s.recorder.retries() < 40) {  // after each fault the rest waits for a while
    s.clock.Advance(absl::Seconds(20));
    std::this_thread::yield();
  }
  s.Settle(0);
  EXPECT_EQ(s.pipeline->stats().queued_requests, 40);
  s.plans[0]->Always(nullptr);
  s.clock.Advance(absl::Seconds(20));
  const TicketPtr late = s.Submit(5);
  s.clock.Advance(absl::Seconds(61));
  ExpectRight(late, 5);
  EXPECT_EQ(late->Wait().devices, "host:0");
}

TEST(DeviceFault, HangEndsByCancelAndIsNoFault) {
  FaultyServer s(2);
  s.plans[0]->Plant(Fault::kHang);
  const TicketPtr t = s.Submit(10, s.clock.Now() + absl::Milliseconds(5));
  s.plans[0]->AwaitExecuted(1);
  s.clock.Advance(absl::Milliseconds(5));
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(s.pipeline->Drain(absl::InfiniteDuration()));
  EXPECT_THAT(s.recorder.faults(), IsEmpty());
  EXPECT_EQ(s.recorder.retries(), 0);
}

TEST(DeviceFault, HangIsGivenUpByADrainThatRunsOutOfTime) {
  FaultyServer s(1);
  s.plans[0]->Plant(Fault::kHang);
  const TicketPtr t = s.Submit(10), waiting = s.Submit(10);
  s.plans[0]->AwaitExecuted(1);
  bool finished = true;
  std::thread drainer([&] { finished = s.pipeline->Drain(absl::Seconds(10)); });
  while (s.clock.next_alarm() > s.clock.Now() + absl::Seconds(10)) std::this_thread::yield();
  s.clock.Advance(absl::Seconds(10));
  drainer.join();
  EXPECT_FALSE(finished);
  EXPECT_EQ(t->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
}

// --- devices that hang ---------------------------------------------------------------------------

// GPUs cuda:0, cuda:1, ... of one lane each, then a host; all of them fakes.
struct ServerWithGpus {
  explicit ServerWithGpus(int gpus, bool with_host = true, OnDeviceLost policy = OnDeviceLost::kUnready) {
    PipelineOptions options = PipelineHarness::Defaults();
    options.on_device_lost = policy;
    std::vector<std::unique_ptr<Device>> devices;
    for (int d = 0; d < gpus + (with_host ? 1 : 0); ++d) {
      controls.push_back(std::make_shared<FakeDeviceControl>());
      const bool is_gpu = d < gpus;
      devices.push_back(std::make_unique<FakeDevice>(is_gpu ? absl::StrCat("cuda:", d) : "host:0", 1, controls.back(),
                                                     is_gpu ? DeviceKind::kCuda : DeviceKind::kHost));
    }
    pipeline = std::make_unique<Pipeline>(options, std::move(devices), &clock, &recorder);
  }
  ~ServerWithGpus() {
    for (auto& control : controls) control->Answer();
  }

  // So much that a GPU takes it.
  TicketPtr Submit(absl::Time deadline = absl::InfiniteFuture(), int64_t matrices = 10'000) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = MakeRequest(matrices, 1, ticket);
    request.deadline = deadline;
    ticket->memory = nullptr;
    ticket->handle = pipeline->Submit(std::move(request), [ticket](Answer a) { ticket->Done(std::move(a)); });
    return ticket;
  }
  // A request that cuda:0 has, and never answers.
  TicketPtr SubmitToHang(absl::Time deadline = absl::InfiniteFuture(), int64_t matrices = 10'000) {
    controls[0]->Hang();
    const size_t before = controls[0]->seen().size();
    const TicketPtr ticket = Submit(deadline, matrices);
    controls[0]->AwaitBegun(before + 1);
    return ticket;
  }
  // Batches that cuda:0 has.
  int64_t held() const { return pipeline->devices()[0].outstanding_batches; }
  // The device of `ticket` answers at last; returns when its memory is free.
  void AnswerLate(const TicketPtr& ticket) {
    controls[0]->Answer();
    while (!ticket->memory_freed() || held() > 0) std::this_thread::yield();
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FakeDeviceControl>> controls;
  std::unique_ptr<Pipeline> pipeline;
};

TEST(DeviceHang, EndsItsRequestsAndKeepsTheirMemoryUntilTheDeviceAnswers) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.SubmitToHang();
  s.clock.Advance(absl::Seconds(9));
  EXPECT_FALSE(hung->done());
  EXPECT_TRUE(s.pipeline->stats().ready());
  s.clock.Advance(absl::Seconds(2));
  EXPECT_EQ(hung->Wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_EQ(hung->Wait().error.message, "device cuda:0 gave no answer and was taken out of service");
  EXPECT_EQ(hung->Wait().error.retry_after, absl::Seconds(1));
  EXPECT_THAT(s.recorder.hung(), ElementsAre("cuda:0"));
  EXPECT_THAT(s.recorder.faults(), ElementsAre("cuda:0"));
  EXPECT_THAT(s.recorder.lost(), ElementsAre("cuda:0"));
  PipelineStats stats = s.pipeline->stats();
  EXPECT_FALSE(stats.ready());
  EXPECT_TRUE(stats.standing.degraded);
  EXPECT_EQ(s.held(), 1);
  EXPECT_EQ(stats.inflight_requests, 1);  // the device may still write there
  EXPECT_FALSE(hung->memory_freed());
  const TicketPtr next = s.Submit();
  EXPECT_TRUE(next->Wait().error.ok());
  EXPECT_EQ(next->Wait().devices, "host:0");

  s.AnswerLate(hung);
  EXPECT_EQ(hung->calls(), 1);
  EXPECT_EQ(s.recorder.retries(), 0);
  EXPECT_EQ(s.recorder.report().total(), 10'000);  // of `next` alone
  EXPECT_TRUE(s.pipeline->Drain(absl::InfiniteDuration()));
  stats = s.pipeline->stats();
  EXPECT_EQ(stats.inflight_requests, 0);
  EXPECT_EQ(stats.healthy_devices, 1);  // who hung once does not come back
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("event=device_fault device=cuda:0 uuid=\"\" code=DEADLINE_EXCEEDED error=\"gave no answer "
                             "for 10s\" lost=true"));
  EXPECT_THAT(log, HasSubstr("level=warning event=device_answered_late device=cuda:0 after=11s\n"));
}

TEST(DeviceHang, WhatWaitsForTheDeviceGoesElsewhere) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.SubmitToHang(), waiting = s.Submit();
  EXPECT_EQ(s.pipeline->stats().queued_requests, 1);
  s.clock.Advance(absl::Seconds(11));
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_TRUE(waiting->Wait().error.ok());
  EXPECT_EQ(waiting->Wait().devices, "host:0");
  s.AnswerLate(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, OfTheLastDeviceEndsWhatWaits) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1, /*with_host=*/false);
  const TicketPtr hung = s.SubmitToHang(), waiting = s.Submit();
  s.clock.Advance(absl::Seconds(11));
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_EQ(waiting->Wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(waiting->reason(), Reason::kDeviceFault);
  EXPECT_EQ(s.Submit()->Wait().error.code, StatusCode::kUnavailable);
  s.AnswerLate(hung);
  testing::internal::GetCapturedStderr();
}

// The caller is gone, and the device gets no peace.
TEST(DeviceHang, IsFoundAfterItsRequestHasEnded) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.SubmitToHang(s.clock.Now() + absl::Seconds(3));
  s.clock.Advance(absl::Seconds(3));
  EXPECT_EQ(hung->reason(), Reason::kDeadlineExceeded);
  s.clock.Advance(absl::Seconds(8));
  EXPECT_THAT(s.recorder.hung(), ElementsAre("cuda:0"));
  EXPECT_EQ(hung->calls(), 1);
  s.AnswerLate(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, DoesNotHoldUpADrain) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.SubmitToHang();
  s.clock.Advance(absl::Seconds(11));
  EXPECT_TRUE(s.pipeline->Drain(absl::InfiniteDuration()));  // everything was answered before
  s.AnswerLate(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, ThatNobodyHasFoundYetDoesNotHoldUpADrain) {
  ServerWithGpus s(1);
  const TicketPtr hung = s.SubmitToHang(), waiting = s.Submit();
  std::atomic<bool> drained{false}, finished{true};
  std::thread drainer([&] {
    finished = s.pipeline->Drain(absl::ZeroDuration());
    drained = true;
  });
  while (!drained) s.clock.Advance(absl::ZeroDuration());
  drainer.join();
  EXPECT_FALSE(finished);
  EXPECT_EQ(hung->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
  EXPECT_EQ(s.held(), 1);
  EXPECT_FALSE(hung->memory_freed());
  s.AnswerLate(hung);
  EXPECT_THAT(s.recorder.hung(), IsEmpty());
}

// One part hangs, the other does not: one answer, and the memory of both stays.
TEST(DeviceHang, OfOnePartEndsASplitRequest) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(2, /*with_host=*/false);
  const TicketPtr hung = s.SubmitToHang(absl::InfiniteFuture(), 200'000);
  // The other device has done its part before the time goes on, or it would seem to hang, too.
  const int64_t hanging = s.controls[0]->seen().back().counts.front();
  while (s.recorder.report().total() < 200'000 - hanging) std::this_thread::yield();
  EXPECT_FALSE(hung->done());
  s.clock.Advance(absl::Seconds(60));
  EXPECT_EQ(hung->Wait().error.code, StatusCode::kUnavailable);
  EXPECT_FALSE(hung->memory_freed());
  EXPECT_EQ(s.Submit()->Wait().devices, "cuda:1");
  s.AnswerLate(hung);
  EXPECT_EQ(hung->calls(), 1);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, PolicySaysWhatALostGpuMeans) {
  testing::internal::CaptureStderr();
  for (const OnDeviceLost policy : {OnDeviceLost::kDegrade, OnDeviceLost::kUnready, OnDeviceLost::kExit}) {
    SCOPED_TRACE(name(policy));
    ServerWithGpus s(2, true, policy);
    s.controls[0]->Fail([] { return DeviceOutcome{absl::InternalError("gone"), true, false, {}}; });
    EXPECT_TRUE(s.Submit()->Wait().error.ok());  // elsewhere
    const PipelineStats stats = s.pipeline->stats();
    EXPECT_EQ(stats.ready(), policy == OnDeviceLost::kDegrade);
    EXPECT_EQ(stats.standing.exit, policy == OnDeviceLost::kExit);
    EXPECT_TRUE(stats.standing.degraded);
  }
  testing::internal::GetCapturedStderr();
}

TEST(OnDeviceLostPolicy, Table) {
  using P = OnDeviceLost;
  struct Row {
    DeviceCensus census;
    P policy;
    bool ready, degraded, exit;
  };
  const Row rows[] = {
      // One GPU and the host.
      {{2, 2, 0}, P::kDegrade, true, false, false},
      {{2, 2, 0}, P::kUnready, true, false, false},
      {{2, 2, 0}, P::kExit, true, false, false},
      {{2, 1, 1}, P::kDegrade, true, true, false},
      {{2, 1, 1}, P::kUnready, false, true, false},
      {{2, 1, 1}, P::kExit, false, true, true},
      // Nothing is left.
      {{2, 0, 1}, P::kDegrade, false, true, false},
      {{2, 0, 1}, P::kUnready, false, true, false},
      {{2, 0, 1}, P::kExit, false, true, true},
      // Without a GPU the policy has no effect.
      {{3, 2, 0}, P::kDegrade, true, true, false},
      {{3, 2, 0}, P::kUnready, true, true, false},
      {{3, 2, 0}, P::kExit, true, true, false},
      {{1, 0, 0}, P::kExit, false, true, false},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(absl::StrCat(row.census.healthy, " of ", row.census.devices, ", GPUs lost: ", row.census.lost_gpus,
                              ", ", name(row.policy)));
    const Standing standing = standing_of(row.census, row.policy);
    EXPECT_EQ(standing.ready, row.ready);
    EXPECT_EQ(standing.degraded, row.degraded);
    EXPECT_EQ(standing.exit, row.exit);
  }
}

TEST(DeviceFault, PartsOfASplitRequestMoveOneByOne) {
  PipelineOptions options = PipelineHarness::Defaults();
  options.max_batch_matrices = 100;
  FaultyServer s(3, options);
  s.plans[0]->Plant(Fault::kCopy);
  s.plans[1]->Plant(Fault::kOutOfMemory);
  s.plans[2]->Plant(Fault::kNone);
  s.plans[2]->Plant(Fault::kThrow);
  ExpectRight(s.Submit(1000), 1000);
  EXPECT_EQ(s.recorder.retries(), 3);
}

TEST(DeviceFault, EachFaultIsOneLineWithTheDevicesOwnWords) {
  testing::internal::CaptureStderr();
  {
    FaultyServer s(2);
    s.plans[0]->Plant(Fault::kSticky);
    ExpectRight(s.Submit(9), 9);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("level=error event=device_fault device=host:0 uuid=\"\" code=INTERNAL "
                             "error=\"cudaErrorIllegalAddress: planted\" lost=true method=bidiagonal dtype=f64 rows=2 "
                             "cols=2 matrices=9\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

// Four callers and three devices that fail at random, one of them for good: right bits or an honest error for
// everybody, once, and nothing is left behind.
TEST(DeviceFault, Storm) {
  testing::internal::CaptureStderr();  // hundreds of lines
  const auto clock = MakeSteadyClock();
  CountingRecorder recorder;
  std::mt19937 seed(11);
  std::vector<std::unique_ptr<Device>> devices = MakeHostDevices(3, 3, Simd::kBest);
  for (int d = 0; d < 3; ++d) {
    const auto plan = std::make_shared<FaultPlan>();
    const auto random = std::make_shared<std::mt19937>(seed());
    plan->Always([random, d, n = 0]() mutable {
      if (d == 2 && ++n == 40) return Fault::kSticky;
      constexpr Fault kFaults[] = {Fault::kLaunch, Fault::kCopy, Fault::kOutOfMemory, Fault::kUnasked, Fault::kThrow};
      return (*random)() % 8 == 0 ? kFaults[(*random)() % 5] : Fault::kNone;
    });
    devices[static_cast<size_t>(d)] = std::make_unique<FaultyDevice>(std::move(devices[static_cast<size_t>(d)]), plan);
  }
  PipelineOptions options;
  options.max_batch_matrices = 300;
  options.calibration = absl::Milliseconds(5);
  std::vector<std::vector<double>> expected;
  for (int64_t count = 1; count <= 16; ++count) expected.push_back(Expected(50 * count));
  Pipeline pipeline(options, std::move(devices), clock.get(), &recorder);
  std::atomic<int> right{0}, wrong{0}, failed{0}, gone{0}, other{0};
  const auto caller = [&](unsigned caller_seed) {
    std::mt19937 random(caller_seed);
    std::vector<TicketPtr> tickets;
    for (int i = 0; i < 200; ++i) {
      const auto ticket = std::make_shared<Ticket>();
      const size_t size = random() % expected.size();
      Request request = FaultyServer::MakeRandomRequest(50 * static_cast<int64_t>(size + 1), ticket);
      if (random() % 8 == 0) request.deadline = clock->Now() + absl::Microseconds(random() % 500);
      ticket->handle = pipeline.Submit(std::move(request), [&, ticket, size](Answer answer) {
        if (answer.error.ok()) {
          ++(ticket->memory->values == expected[size] ? right : wrong);
        } else if (answer.error.reason == Reason::kDeviceFault) {
          ++failed;
        } else {
          ++(answer.error.reason == Reason::kCancelled || answer.error.code == StatusCode::kDeadlineExceeded ? gone
                                                                                                             : other);
        }
        ticket->Done(std::move(answer));
      });
      tickets.push_back(ticket);
      if (random() % 8 == 0) pipeline.Cancel(tickets[random() % tickets.size()]->handle);
      if (random() % 4 == 0) tickets.back()->Wait();
    }
    for (const TicketPtr& t : tickets) {
      t->Wait();
      EXPECT_EQ(t->calls(), 1);
    }
  };
  std::vector<std::thread> callers;
  for (unsigned c = 0; c < 4; ++c) callers.emplace_back(caller, c);
  for (std::thread& t : callers) t.join();
  EXPECT_TRUE(pipeline.Drain(absl::InfiniteDuration()));
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(right + failed + gone, 800);
  EXPECT_EQ(wrong + other, 0);
  EXPECT_GT(right, 400);
  EXPECT_EQ(pipeline.stats().inflight_requests, 0);
  EXPECT_EQ(pipeline.stats().queued_requests, 0);
}

}  // namespace
}  // namespace svdserve::server
