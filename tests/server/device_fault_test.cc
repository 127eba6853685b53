// The server's handling of devices that fail. Every request gets one reply, with the right bits or an honest error,
// whatever fails when, and the other devices serve on. The devices are host devices, so the answers are real.
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

// Host devices host:0, host:1, ... that fail as they are told, under a clock that stands still. Every device that did
// not fail is as good as any other, and is taken in order.
struct FaultyServer {
  explicit FaultyServer(int devices, const PipelineOptions& options = PipelineHarness::defaults()) {
    std::vector<std::unique_ptr<Device>> made = make_host_devices(devices, devices, Simd::kBest);
    for (std::unique_ptr<Device>& device : made) {
      plans.push_back(std::make_shared<FaultPlan>());
      device = std::make_unique<FaultyDevice>(std::move(device), plans.back());
    }
    pipeline = std::make_unique<Pipeline>(options, std::move(made), &clock, &recorder);
  }

  TicketPtr submit(int64_t count, absl::Time deadline = absl::InfiniteFuture()) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = make_random_request(count, ticket);
    request.deadline = deadline;
    ticket->handle = pipeline->submit(std::move(request), [ticket](Answer a) { ticket->done(std::move(a)); });
    return ticket;
  }
  static Request make_random_request(int64_t count, const TicketPtr& ticket) {
    Request request = make_request(count, 1, ticket);
    std::mt19937 random(static_cast<unsigned>(count));
    for (double& x : ticket->memory->payload) x = std::uniform_real_distribution<double>(-1, 1)(random);
    return request;
  }

  FakeClock clock;
  CountingRecorder recorder;
  std::vector<std::shared_ptr<FaultPlan>> plans;
  std::unique_ptr<Pipeline> pipeline;
};

// The values of Submit(count) by the engine alone.
std::vector<double> expected_values(int64_t count) {
  const auto ticket = std::make_shared<Ticket>();
  const Request request = FaultyServer::make_random_request(count, ticket);
  std::vector<double> values(static_cast<size_t>(2 * count));
  const HostSegment segment{request.payload, count, values.data(), nullptr};
  SvdEngine({1, Simd::kBest}).execute(*make_plan(request.problem, *request.options).plan, {&segment, 1});
  return values;
}

void expect_right(const TicketPtr& ticket, int64_t count) {
  ASSERT_TRUE(ticket->wait().error.ok()) << ticket->wait().error.message;
  EXPECT_EQ(ticket->calls(), 1);
  const std::vector<double> expected = expected_values(count);
  ASSERT_EQ(ticket->memory->values.size(), expected.size());
  EXPECT_EQ(std::memcmp(ticket->memory->values.data(), expected.data(), expected.size() * sizeof(double)), 0);
}

class EachFault : public testing::TestWithParam<Fault> {};

TEST_P(EachFault, IsAnsweredByAnotherDeviceWithTheSameBits) {
  FaultyServer s(2);
  s.plans[0]->plant(GetParam());
  const TicketPtr t = s.submit(1000);
  expect_right(t, 1000);
  EXPECT_EQ(t->wait().devices, "host:1");
  EXPECT_EQ(s.recorder.retries(), 1);
  EXPECT_THAT(s.recorder.faults(), ElementsAre("host:0"));
  EXPECT_EQ(s.recorder.report().total(), 1000);  // counted once
  EXPECT_EQ(s.recorder.phase(Phase::kQueue).size(), 1u);
  EXPECT_EQ(s.pipeline->stats().healthy_devices, GetParam() == Fault::kSticky ? 1 : 2);
  EXPECT_TRUE(s.pipeline->stats().ready());
}

TEST_P(EachFault, OnTheCallersThreadIsAnsweredByAnotherDeviceToo) {
  FaultyServer s(2, PipelineOptions{});
  s.plans[0]->plant(GetParam());
  const TicketPtr t = s.submit(3);
  expect_right(t, 3);
  EXPECT_EQ(t->wait().devices, "host:1");
  EXPECT_EQ(s.recorder.retries(), 1);
}

TEST_P(EachFault, WithoutAnotherDeviceIsAnHonestError) {
  for (const bool inline_work : {false, true}) {
    FaultyServer s(1, inline_work ? PipelineOptions{} : PipelineHarness::defaults());
    s.plans[0]->plant(GetParam());
    const TicketPtr t = s.submit(3);
    EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
    EXPECT_EQ(t->reason(), Reason::kDeviceFault);
    // The device's own words are for the log.
    EXPECT_EQ(t->wait().error.message,
              absl::StrCat("no device computed the request: device host:0 ",
                           GetParam() == Fault::kOutOfMemory ? "had too little memory for it" : "failed"));
    EXPECT_EQ(s.recorder.retries(), 0);
    EXPECT_EQ(s.pipeline->stats().ready(), GetParam() != Fault::kSticky);
    const TicketPtr next = s.submit(5);
    if (GetParam() == Fault::kSticky) {
      EXPECT_EQ(next->wait().error.code, StatusCode::kUnavailable);
      EXPECT_EQ(next->reason(), Reason::kDeviceFault);
    } else {
      expect_right(next, 5);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EachFault,
                         testing::Values(Fault::kLaunch, Fault::kCopy, Fault::kOutOfMemory, Fault::kSticky,
                                         Fault::kUnasked, Fault::kThrow),
                         [](const auto& info) { return name(info.param); });

TEST(DeviceFault, DeviceIsTriedOnceForABatchAndThreeOfThemAtMost) {
  FaultyServer s(5);
  for (auto& plan : s.plans) plan->always([] { return Fault::kLaunch; });
  const TicketPtr t = s.submit(10);
  EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
  EXPECT_EQ(t->reason(), Reason::kDeviceFault);
  EXPECT_EQ(t->wait().error.message,
            "no device computed the request: device host:0 failed; device host:1 failed; device host:2 failed");
  for (int d = 0; d < 5; ++d) EXPECT_EQ(s.plans[d]->executed(), d < 3 ? 1 : 0) << d;
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 5);  // a batch that breaks every device takes none out
}

// GPUs of one process die together: a batch gets past however many of them to the device that is left.
TEST(DeviceFault, LostDevicesDoNotCountAmongTheTries) {
  FaultyServer s(6);
  for (int d = 0; d < 5; ++d) s.plans[d]->plant(Fault::kSticky);
  expect_right(s.submit(10), 10);
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 1);
  EXPECT_TRUE(s.pipeline->stats().ready());
}

TEST(DeviceFault, LostDevicesAreLeftAlone) {
  FaultyServer s(2);
  s.plans[0]->plant(Fault::kSticky);
  expect_right(s.submit(10), 10);
  for (int i = 1; i < 20; ++i) expect_right(s.submit(i), i);
  EXPECT_EQ(s.plans[0]->executed(), 1);
  EXPECT_THAT(s.recorder.lost(), ElementsAre("host:0"));
}

TEST(DeviceFault, WithEveryDeviceReadinessGoes) {
  FaultyServer s(3);
  for (auto& plan : s.plans) plan->plant(Fault::kSticky);
  const TicketPtr t = s.submit(10);
  EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
  EXPECT_FALSE(s.pipeline->stats().ready());
  EXPECT_EQ(s.pipeline->stats().healthy_devices, 0);
  EXPECT_EQ(s.submit(1)->wait().error.code, StatusCode::kUnavailable);
}

TEST(DeviceFault, RequestsThatSharedTheBatchMoveTogether) {
  FaultyServer s(2);
  s.plans[0]->plant(Fault::kHang);
  s.plans[1]->plant(Fault::kHang);
  const TicketPtr a = s.submit(1), b = s.submit(1);
  s.plans[0]->await_executed(1);
  s.plans[1]->await_executed(1);
  const TicketPtr c = s.submit(2), d = s.submit(3), e = s.submit(4);  // one batch
  s.plans[0]->plant(Fault::kCopy);
  s.pipeline->cancel(d->handle);
  s.pipeline->cancel(a->handle);  // lets device 0 go on
  s.plans[0]->await_executed(2);
  EXPECT_EQ(a->reason(), Reason::kCancelled);
  EXPECT_EQ(d->reason(), Reason::kCancelled);
  while (s.recorder.retries() == 0) std::this_thread::yield();
  EXPECT_EQ(s.pipeline->stats().queued_requests, 2);
  s.pipeline->cancel(e->handle);  // it leaves the batch that came back
  EXPECT_EQ(e->reason(), Reason::kCancelled);
  EXPECT_EQ(s.pipeline->stats().queued_requests, 1);
  s.pipeline->cancel(b->handle);
  expect_right(c, 2);
  EXPECT_EQ(c->wait().devices, "host:1");
}

TEST(DeviceFault, BatchThatCameBackEndsByDeadlineCancelAndTimeoutWhileItWaits) {
  PipelineOptions options = PipelineHarness::defaults();
  options.queue_timeout = absl::Seconds(3);
  FaultyServer s(2, options);
  s.plans[1]->plant(Fault::kHang);
  s.plans[0]->plant(Fault::kHang);
  const TicketPtr first = s.submit(1), blocker = s.submit(1);
  s.plans[1]->await_executed(1);
  const auto fail_on_0 = [&](absl::Time deadline) {
    const int retries = s.recorder.retries();
    s.plans[0]->plant(Fault::kLaunch);
    const TicketPtr t = s.submit(7, deadline);
    s.pipeline->cancel(first->handle);
    while (s.recorder.retries() == retries) std::this_thread::yield();
    settle(*s.pipeline, 0);
    return t;
  };
  const TicketPtr late = fail_on_0(s.clock.now() + absl::Seconds(1));
  s.clock.advance(absl::Seconds(1));
  EXPECT_EQ(late->reason(), Reason::kDeadlineExceeded);
  // By now device 0 is no longer avoided, though the batch that came back would not have gone there again.
  const TicketPtr cancelled = fail_on_0(absl::InfiniteFuture());
  s.pipeline->cancel(cancelled->handle);
  EXPECT_EQ(cancelled->reason(), Reason::kCancelled);
  s.clock.advance(absl::Seconds(60));
  const TicketPtr forgotten = fail_on_0(absl::InfiniteFuture());
  s.clock.advance(absl::Milliseconds(2999));
  EXPECT_FALSE(forgotten->done());  // the time counts from when it came back
  s.clock.advance(absl::Milliseconds(1));
  EXPECT_EQ(forgotten->reason(), Reason::kQueueTimeout);
  s.pipeline->cancel(blocker->handle);
}

TEST(DeviceFault, BatchThatCameBackEndsWithItsFaultWhenItsLastHopeIsLost) {
  FaultyServer s(2);
  s.plans[1]->plant(Fault::kHang);
  s.plans[0]->plant(Fault::kHang);
  const TicketPtr first = s.submit(1), blocker = s.submit(1);
  s.plans[1]->await_executed(1);
  s.plans[0]->plant(Fault::kLaunch);
  const TicketPtr t = s.submit(7);
  s.pipeline->cancel(first->handle);
  while (s.recorder.retries() == 0) std::this_thread::yield();
  EXPECT_FALSE(t->done());
  s.plans[1]->plant(Fault::kSticky);
  const TicketPtr other = s.submit(1);  // behind t
  s.pipeline->cancel(blocker->handle);  // device 1 takes t, and is lost
  EXPECT_EQ(t->wait().error.code, StatusCode::kInternal);
  EXPECT_THAT(t->wait().error.message, HasSubstr("host:0"));
  EXPECT_THAT(t->wait().error.message, HasSubstr("host:1"));
  expect_right(other, 1);
}

// They have nowhere to go but to a device that hangs; whoever comes after them has.
TEST(DeviceFault, BatchesThatCameBackHideNobody) {
  PipelineOptions options = PipelineHarness::defaults();
  // The clock below runs on as long as the devices' threads do not get to run.
  options.queue_timeout = absl::Hours(24 * 365 * 100);
  FaultyServer s(2, options);
  s.plans[0]->plant(Fault::kHang);
  s.plans[1]->plant(Fault::kHang);
  const TicketPtr first = s.submit(1), stuck = s.submit(1);
  s.plans[0]->await_executed(1);
  s.plans[1]->await_executed(1);
  s.plans[0]->always([] { return Fault::kLaunch; });
  std::vector<TicketPtr> back;
  for (int i = 0; i < 40; ++i) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = FaultyServer::make_random_request(2, ticket);
    own_options(&request)->method = Method::kBisection;
    own_options(&request)->tolerance = 1e-3 * (i + 1);
    ticket->handle = s.pipeline->submit(std::move(request), [ticket](Answer a) { ticket->done(std::move(a)); });
    back.push_back(ticket);
  }
  s.pipeline->cancel(first->handle);
  while (s.recorder.retries() < 40) {  // after each fault the rest waits for a while
    s.clock.advance(absl::Seconds(20));
    std::this_thread::yield();
  }
  settle(*s.pipeline, 0);
  EXPECT_EQ(s.pipeline->stats().queued_requests, 40);
  s.plans[0]->always(nullptr);
  s.clock.advance(absl::Seconds(20));
  const TicketPtr late = s.submit(5);
  s.clock.advance(absl::Seconds(61));
  expect_right(late, 5);
  EXPECT_EQ(late->wait().devices, "host:0");
}

TEST(DeviceFault, HangEndsByCancelAndIsNoFault) {
  FaultyServer s(2);
  s.plans[0]->plant(Fault::kHang);
  const TicketPtr t = s.submit(10, s.clock.now() + absl::Milliseconds(5));
  s.plans[0]->await_executed(1);
  s.clock.advance(absl::Milliseconds(5));
  EXPECT_EQ(t->reason(), Reason::kDeadlineExceeded);
  EXPECT_TRUE(s.pipeline->drain(absl::InfiniteDuration()));
  EXPECT_THAT(s.recorder.faults(), IsEmpty());
  EXPECT_EQ(s.recorder.retries(), 0);
}

TEST(DeviceFault, HangIsGivenUpByADrainThatRunsOutOfTime) {
  FaultyServer s(1);
  s.plans[0]->plant(Fault::kHang);
  const TicketPtr t = s.submit(10), waiting = s.submit(10);
  s.plans[0]->await_executed(1);
  bool finished = true;
  std::thread drainer([&] { finished = s.pipeline->drain(absl::Seconds(10)); });
  while (s.clock.next_alarm() > s.clock.now() + absl::Seconds(10)) std::this_thread::yield();
  s.clock.advance(absl::Seconds(10));
  drainer.join();
  EXPECT_FALSE(finished);
  EXPECT_EQ(t->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
}

// --- devices that hang ---------------------------------------------------------------------------

// GPUs cuda:0, cuda:1, ... of one lane each, then a host; all of them fakes.
struct ServerWithGpus {
  explicit ServerWithGpus(int gpus, bool with_host = true, OnDeviceLost policy = OnDeviceLost::kUnready) {
    PipelineOptions options = PipelineHarness::defaults();
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
    for (auto& control : controls) control->answer();
  }

  // So much that a GPU takes it.
  TicketPtr submit(absl::Time deadline = absl::InfiniteFuture(), int64_t matrices = 10'000) {
    const auto ticket = std::make_shared<Ticket>();
    Request request = make_request(matrices, 1, ticket);
    request.deadline = deadline;
    ticket->memory = nullptr;
    ticket->handle = pipeline->submit(std::move(request), [ticket](Answer a) { ticket->done(std::move(a)); });
    return ticket;
  }
  // A request that cuda:0 has, and never answers.
  TicketPtr submit_to_hang(absl::Time deadline = absl::InfiniteFuture(), int64_t matrices = 10'000) {
    controls[0]->hang();
    const size_t before = controls[0]->seen().size();
    const TicketPtr ticket = submit(deadline, matrices);
    controls[0]->await_begun(before + 1);
    return ticket;
  }
  // Batches that cuda:0 has.
  int64_t held() const { return pipeline->devices()[0].outstanding_batches; }
  // The device of `ticket` answers at last; returns when its memory is free.
  void answer_late(const TicketPtr& ticket) {
    controls[0]->answer();
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
  const TicketPtr hung = s.submit_to_hang();
  s.clock.advance(absl::Seconds(9));
  EXPECT_FALSE(hung->done());
  EXPECT_TRUE(s.pipeline->stats().ready());
  s.clock.advance(absl::Seconds(2));
  EXPECT_EQ(hung->wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_EQ(hung->wait().error.message, "device cuda:0 did not respond and was taken out of service");
  EXPECT_EQ(hung->wait().error.retry_after, absl::Seconds(1));
  EXPECT_THAT(s.recorder.hung(), ElementsAre("cuda:0"));
  EXPECT_THAT(s.recorder.faults(), ElementsAre("cuda:0"));
  EXPECT_THAT(s.recorder.lost(), ElementsAre("cuda:0"));
  PipelineStats stats = s.pipeline->stats();
  EXPECT_FALSE(stats.ready());
  EXPECT_TRUE(stats.standing.degraded);
  EXPECT_EQ(s.held(), 1);
  EXPECT_EQ(stats.inflight_requests, 1);  // the device may still write there
  EXPECT_FALSE(hung->memory_freed());
  const TicketPtr next = s.submit();
  EXPECT_TRUE(next->wait().error.ok());
  EXPECT_EQ(next->wait().devices, "host:0");

  s.answer_late(hung);
  EXPECT_EQ(hung->calls(), 1);
  EXPECT_EQ(s.recorder.retries(), 0);
  EXPECT_EQ(s.recorder.report().total(), 10'000);  // of `next` alone
  EXPECT_TRUE(s.pipeline->drain(absl::InfiniteDuration()));
  stats = s.pipeline->stats();
  EXPECT_EQ(stats.inflight_requests, 0);
  EXPECT_EQ(stats.healthy_devices, 1);  // who hung once does not come back
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              HasSubstr("event=device_fault device=cuda:0 uuid=\"\" code=DEADLINE_EXCEEDED error=\"did not respond "
                        "for 10s\" lost=true"));
  EXPECT_THAT(log, HasSubstr("level=warning event=device_answered_late device=cuda:0 after=11s\n"));
}

TEST(DeviceHang, WhatWaitsForTheDeviceGoesElsewhere) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.submit_to_hang(), waiting = s.submit();
  EXPECT_EQ(s.pipeline->stats().queued_requests, 1);
  s.clock.advance(absl::Seconds(11));
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_TRUE(waiting->wait().error.ok());
  EXPECT_EQ(waiting->wait().devices, "host:0");
  s.answer_late(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, OfTheLastDeviceEndsWhatWaits) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1, /*with_host=*/false);
  const TicketPtr hung = s.submit_to_hang(), waiting = s.submit();
  s.clock.advance(absl::Seconds(11));
  EXPECT_EQ(hung->reason(), Reason::kDeviceFault);
  EXPECT_EQ(waiting->wait().error.code, StatusCode::kUnavailable);
  EXPECT_EQ(waiting->reason(), Reason::kDeviceFault);
  EXPECT_EQ(s.submit()->wait().error.code, StatusCode::kUnavailable);
  s.answer_late(hung);
  testing::internal::GetCapturedStderr();
}

// The caller is gone, and the device gets no peace.
TEST(DeviceHang, IsFoundAfterItsRequestHasEnded) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.submit_to_hang(s.clock.now() + absl::Seconds(3));
  s.clock.advance(absl::Seconds(3));
  EXPECT_EQ(hung->reason(), Reason::kDeadlineExceeded);
  s.clock.advance(absl::Seconds(8));
  EXPECT_THAT(s.recorder.hung(), ElementsAre("cuda:0"));
  EXPECT_EQ(hung->calls(), 1);
  s.answer_late(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, DoesNotHoldUpADrain) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(1);
  const TicketPtr hung = s.submit_to_hang();
  s.clock.advance(absl::Seconds(11));
  EXPECT_TRUE(s.pipeline->drain(absl::InfiniteDuration()));  // everything was answered before
  s.answer_late(hung);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, ThatNobodyHasFoundYetDoesNotHoldUpADrain) {
  ServerWithGpus s(1);
  const TicketPtr hung = s.submit_to_hang(), waiting = s.submit();
  std::atomic<bool> drained{false}, finished{true};
  std::thread drainer([&] {
    finished = s.pipeline->drain(absl::ZeroDuration());
    drained = true;
  });
  while (!drained) s.clock.advance(absl::ZeroDuration());
  drainer.join();
  EXPECT_FALSE(finished);
  EXPECT_EQ(hung->reason(), Reason::kDraining);
  EXPECT_EQ(waiting->reason(), Reason::kDraining);
  EXPECT_EQ(s.held(), 1);
  EXPECT_FALSE(hung->memory_freed());
  s.answer_late(hung);
  EXPECT_THAT(s.recorder.hung(), IsEmpty());
}

// One part hangs, the other does not: one answer, and the memory of both stays.
TEST(DeviceHang, OfOnePartEndsASplitRequest) {
  testing::internal::CaptureStderr();
  ServerWithGpus s(2, /*with_host=*/false);
  const TicketPtr hung = s.submit_to_hang(absl::InfiniteFuture(), 200'000);
  // The other device has done its part before the time goes on, or it would seem to hang, too.
  const int64_t hanging = s.controls[0]->seen().back().counts.front();
  while (s.recorder.report().total() < 200'000 - hanging) std::this_thread::yield();
  EXPECT_FALSE(hung->done());
  s.clock.advance(absl::Seconds(60));
  EXPECT_EQ(hung->wait().error.code, StatusCode::kUnavailable);
  EXPECT_FALSE(hung->memory_freed());
  EXPECT_EQ(s.submit()->wait().devices, "cuda:1");
  s.answer_late(hung);
  EXPECT_EQ(hung->calls(), 1);
  testing::internal::GetCapturedStderr();
}

TEST(DeviceHang, PolicySaysWhatALostGpuMeans) {
  testing::internal::CaptureStderr();
  for (const OnDeviceLost policy : {OnDeviceLost::kDegrade, OnDeviceLost::kUnready, OnDeviceLost::kExit}) {
    SCOPED_TRACE(name(policy));
    ServerWithGpus s(2, true, policy);
    s.controls[0]->fail([] { return DeviceOutcome{absl::InternalError("gone"), true, false, {}}; });
    EXPECT_TRUE(s.submit()->wait().error.ok());  // elsewhere
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
  PipelineOptions options = PipelineHarness::defaults();
  options.max_batch_matrices = 100;
  FaultyServer s(3, options);
  s.plans[0]->plant(Fault::kCopy);
  s.plans[1]->plant(Fault::kOutOfMemory);
  s.plans[2]->plant(Fault::kNone);
  s.plans[2]->plant(Fault::kThrow);
  expect_right(s.submit(1000), 1000);
  EXPECT_EQ(s.recorder.retries(), 3);
}

TEST(DeviceFault, EachFaultIsOneLineWithTheDevicesOwnWords) {
  testing::internal::CaptureStderr();
  {
    FaultyServer s(2);
    s.plans[0]->plant(Fault::kSticky);
    expect_right(s.submit(9), 9);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("level=error event=device_fault device=host:0 uuid=\"\" code=INTERNAL "
                             "error=\"cudaErrorIllegalAddress: planted\" lost=true method=bidiagonal dtype=f64 rows=2 "
                             "cols=2 matrices=9\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
}

// Four callers and three devices that fail at random, one of them for good. Every call gets right bits or an honest
// error, once, and nothing is left behind.
TEST(DeviceFault, Storm) {
  testing::internal::CaptureStderr();  // hundreds of lines
  const auto clock = make_steady_clock();
  CountingRecorder recorder;
  std::mt19937 seed(11);
  std::vector<std::unique_ptr<Device>> devices = make_host_devices(3, 3, Simd::kBest);
  for (int d = 0; d < 3; ++d) {
    const auto plan = std::make_shared<FaultPlan>();
    const auto random = std::make_shared<std::mt19937>(seed());
    plan->always([random, d, n = 0]() mutable {
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
  for (int64_t count = 1; count <= 16; ++count) expected.push_back(expected_values(50 * count));
  Pipeline pipeline(options, std::move(devices), clock.get(), &recorder);
  std::atomic<int> right{0}, wrong{0}, failed{0}, gone{0}, other{0};
  const auto caller = [&](unsigned caller_seed) {
    std::mt19937 random(caller_seed);
    std::vector<TicketPtr> tickets;
    for (int i = 0; i < 200; ++i) {
      const auto ticket = std::make_shared<Ticket>();
      const size_t size = random() % expected.size();
      Request request = FaultyServer::make_random_request(50 * static_cast<int64_t>(size + 1), ticket);
      if (random() % 8 == 0) request.deadline = clock->now() + absl::Microseconds(random() % 500);
      ticket->handle = pipeline.submit(std::move(request), [&, ticket, size](Answer answer) {
        if (answer.error.ok()) {
          ++(ticket->memory->values == expected[size] ? right : wrong);
        } else if (answer.error.reason == Reason::kDeviceFault) {
          ++failed;
        } else {
          ++(answer.error.reason == Reason::kCancelled || answer.error.code == StatusCode::kDeadlineExceeded ? gone
                                                                                                             : other);
        }
        ticket->done(std::move(answer));
      });
      tickets.push_back(ticket);
      if (random() % 8 == 0) pipeline.cancel(tickets[random() % tickets.size()]->handle);
      if (random() % 4 == 0) tickets.back()->wait();
    }
    for (const TicketPtr& t : tickets) {
      t->wait();
      EXPECT_EQ(t->calls(), 1);
    }
  };
  std::vector<std::thread> callers;
  for (unsigned c = 0; c < 4; ++c) callers.emplace_back(caller, c);
  for (std::thread& t : callers) t.join();
  EXPECT_TRUE(pipeline.drain(absl::InfiniteDuration()));
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(right + failed + gone, 800);
  EXPECT_EQ(wrong + other, 0);
  EXPECT_GT(right, 400);
  EXPECT_EQ(pipeline.stats().inflight_requests, 0);
  EXPECT_EQ(pipeline.stats().queued_requests, 0);
}

}  // namespace
}  // namespace svdserve::server
