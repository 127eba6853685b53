#include "server/admit/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "server/base/mutex.h"

#include "tests/server/fake_clock.h"

namespace svdserve::server {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

TEST(Ledger, CountsWhatIsReserved) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  {
    Reservation a, b;
    EXPECT_TRUE(ledger.admit("", 60, &a).ok());
    EXPECT_TRUE(ledger.admit("", 40, &b).ok());
    EXPECT_EQ(ledger.usage().bytes, 100);
    EXPECT_EQ(ledger.usage().requests, 2);
    Reservation moved = std::move(a);
    EXPECT_EQ(ledger.usage().requests, 2);
    EXPECT_EQ(moved.bytes(), 60);
  }
  EXPECT_EQ(ledger.usage().bytes, 0);
  EXPECT_EQ(ledger.usage().requests, 0);
}

TEST(Ledger, RefusesBytesThatDoNotFit) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  Reservation a, b;
  ASSERT_TRUE(ledger.admit("", 60, &a).ok());
  const Error error = ledger.admit("", 41, &b);
  EXPECT_EQ(error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(ledger.usage().requests, 1);
  EXPECT_TRUE(ledger.admit("", 40, &b).ok());
}

TEST(Ledger, WhatNeverFitsIsNotToBeTriedAgain) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 10}, &clock);
  Reservation a;
  const Error error = ledger.admit("", 101, &a);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_EQ(error.retry_after, absl::ZeroDuration());
}

TEST(Ledger, AnAdmittedRequestMayGrowWhereThereIsRoomAlsoWhenDraining) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 1}, &clock);
  Reservation request;
  ASSERT_TRUE(ledger.admit("", 60, &request).ok());
  ledger.start_drain();
  {
    Reservation more, too_much;
    EXPECT_FALSE(ledger.extend(41, &too_much));
    EXPECT_TRUE(ledger.extend(40, &more));
    EXPECT_EQ(more.bytes(), 40);
    EXPECT_EQ(ledger.usage().bytes, 100);
    EXPECT_EQ(ledger.usage().requests, 1);
  }
  EXPECT_EQ(ledger.usage().bytes, 60);
  EXPECT_EQ(ledger.usage().requests, 1);
}

TEST(Ledger, RefusesRequestsBeyondTheLimit) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 100, .max_requests = 2}, &clock);
  Reservation a, b, c;
  ASSERT_TRUE(ledger.admit("", 0, &a).ok());
  ASSERT_TRUE(ledger.admit("", 0, &b).ok());
  EXPECT_EQ(ledger.admit("", 0, &c).reason, Reason::kOverloadedRequests);
  a = Reservation();
  EXPECT_TRUE(ledger.admit("", 0, &c).ok());
}

TEST(Ledger, DrainRefusesEverything) {
  FakeClock clock;
  Ledger ledger({}, &clock);
  ledger.start_drain();
  Reservation a;
  const Error error = ledger.admit("", 1, &a);
  EXPECT_EQ(error.code, StatusCode::kUnavailable);
  EXPECT_EQ(error.reason, Reason::kDraining);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
}

// 10 requests in memory, one leaving every `pace`: what a refused client is told.
absl::Duration delay_at(absl::Duration pace) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 1000, .max_requests = 10}, &clock);
  std::vector<Reservation> held(10);
  for (Reservation& r : held) EXPECT_TRUE(ledger.admit("", 100, &r).ok());
  for (int i = 0; i < 200; ++i) {
    clock.advance(pace);
    held[i % 10] = Reservation();
    EXPECT_TRUE(ledger.admit("", 100, &held[i % 10]).ok());
  }
  Reservation refused;
  return ledger.admit("", 100, &refused).retry_after;
}

TEST(Ledger, RetryDelayFollowsTheBacklog) {
  // Half of ten requests, at that pace.
  EXPECT_NEAR(absl::ToDoubleSeconds(delay_at(absl::Milliseconds(20))), 0.1, 0.01);
  EXPECT_NEAR(absl::ToDoubleSeconds(delay_at(absl::Milliseconds(200))), 1.0, 0.2);
  EXPECT_EQ(delay_at(absl::Microseconds(10)), absl::Milliseconds(10));
  EXPECT_EQ(delay_at(absl::Seconds(60)), absl::Seconds(10));
}

TEST(Ledger, RetryDelayBeforeAnythingLeftIsTheAgeOfTheBacklog) {
  FakeClock clock;
  Ledger ledger({.max_bytes = 1000, .max_requests = 1}, &clock);
  Reservation a, b;
  ASSERT_TRUE(ledger.admit("", 1, &a).ok());
  EXPECT_EQ(ledger.admit("", 1, &b).retry_after, absl::Milliseconds(10));
  clock.advance(absl::Seconds(3));
  EXPECT_EQ(ledger.admit("", 1, &b).retry_after, absl::Seconds(3));
}

// --- the queue ----------------------------------------------------------------------------------

constexpr int64_t kMiB = 1 << 20;

// A call that waits, and what it was told.
class Waiter final : public AdmissionWaiter {
 public:
  void on_admitted(Reservation r) override {
    reservation = std::move(r);
    ++told;
  }
  void on_refused(Error e) override {
    error = std::move(e);
    ++told;
  }
  bool admitted() const { return reservation.grantor() != nullptr; }

  Reservation reservation;
  Error error;
  int told = 0;
};

class LedgerQueue : public testing::Test {
 protected:
  static constexpr int64_t kLimit = 64 * kMiB;

  Admission enter(const Peer& peer, int64_t bytes, Waiter* waiter, absl::Time deadline = absl::InfiniteFuture()) {
    Reservation reservation;
    Error error;
    const Admission result = ledger_.enter({peer, bytes, deadline}, waiter, &reservation, &error);
    if (result == Admission::kAdmitted) waiter->reservation = std::move(reservation);
    if (result == Admission::kRefused) waiter->error = std::move(error);
    return result;
  }

  FakeClock clock_;
  Ledger ledger_{{.max_bytes = kLimit, .max_requests = 100, .peer_percent = 75, .max_wait = absl::Seconds(30)},
                 &clock_};
};

TEST_F(LedgerQueue, AClaimThatDoesNotFitWaitsForRoom) {
  Waiter first, second;
  EXPECT_EQ(enter("a", 40 * kMiB, &first), Admission::kAdmitted);
  EXPECT_EQ(enter("b", 40 * kMiB, &second), Admission::kWaits);
  EXPECT_EQ(ledger_.usage().waiting, 1);
  EXPECT_EQ(ledger_.usage().bytes, 40 * kMiB);
  first.reservation = Reservation();
  EXPECT_TRUE(second.admitted());
  EXPECT_EQ(ledger_.usage().waiting, 0);
  EXPECT_EQ(ledger_.usage().bytes, 40 * kMiB);
}

// A waiting call's client has sent a window of its message: their number is bounded, for all and for one peer.
TEST_F(LedgerQueue, TheQueueIsBoundedAndSoIsOnePeersPartOfIt) {
  Ledger ledger({.max_bytes = kLimit, .max_requests = 100, .max_waiting = 4, .peer_percent = 75}, &clock_);
  Reservation all, none;
  ASSERT_TRUE(ledger.admit("a", kLimit, &all).ok());
  std::array<Waiter, 6> waiters;
  Error error;
  const auto enter = [&](const Peer& peer, size_t waiter) {
    return ledger.enter({peer, 40 * kMiB}, &waiters[waiter], &none, &error);
  };
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(enter("a", i), Admission::kWaits);
  EXPECT_EQ(enter("a", 3), Admission::kRefused);
  EXPECT_EQ(error.code, absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(error.retry_after, absl::ZeroDuration());
  EXPECT_THAT(error.message, HasSubstr("3 requests of this client wait for memory"));
  EXPECT_EQ(enter("b", 4), Admission::kWaits);
  EXPECT_EQ(enter("c", 5), Admission::kRefused);
  EXPECT_THAT(error.message, HasSubstr("4 requests wait for memory"));
  // A place that is left is free again.
  EXPECT_TRUE(ledger.leave(&waiters[0]));
  EXPECT_EQ(enter("c", 5), Admission::kWaits);
  for (const size_t i : {1, 2, 4, 5}) EXPECT_TRUE(ledger.leave(&waiters[i]));
}

TEST_F(LedgerQueue, AClaimLargerThanThePeersShareIsServedAlone) {
  Waiter whole;
  EXPECT_EQ(enter("a", kLimit, &whole), Admission::kAdmitted);
  EXPECT_EQ(enter("a", kLimit + 1, &whole), Admission::kRefused);
  EXPECT_EQ(whole.error.retry_after, absl::ZeroDuration());
}

TEST_F(LedgerQueue, SmallClaimsPassLargeOnes) {
  Waiter first, large, small, other;
  ASSERT_EQ(enter("a", 45 * kMiB, &first), Admission::kAdmitted);
  ASSERT_EQ(enter("b", 40 * kMiB, &large), Admission::kWaits);
  EXPECT_EQ(enter("b", 1000, &small), Admission::kAdmitted);
  EXPECT_EQ(enter("c", 1000, &other), Admission::kAdmitted);
  EXPECT_TRUE(ledger_.leave(&large));
}

TEST_F(LedgerQueue, TheLastOfTheMemoryIsForSmallClaims) {
  Waiter first, large, small;
  ASSERT_EQ(enter("a", 46 * kMiB, &first), Admission::kAdmitted);
  EXPECT_EQ(enter("b", 18 * kMiB, &large), Admission::kWaits);
  EXPECT_EQ(enter("c", 1000, &small), Admission::kAdmitted);
  EXPECT_TRUE(ledger_.leave(&large));
}

TEST_F(LedgerQueue, OnePeersShareLeavesRoomForTheOthers) {
  Waiter first, second, other;
  ASSERT_EQ(enter("a", 40 * kMiB, &first), Admission::kAdmitted);
  EXPECT_EQ(enter("a", 10 * kMiB, &second), Admission::kWaits);  // beyond three quarters
  EXPECT_EQ(enter("b", 10 * kMiB, &other), Admission::kWaits);   // behind it for a moment only
  clock_.advance(absl::ZeroDuration());
  EXPECT_TRUE(other.admitted());
  EXPECT_FALSE(second.admitted());
  first.reservation = Reservation();
  EXPECT_TRUE(second.admitted());
}

TEST_F(LedgerQueue, PeersTakeTurns) {
  Waiter first, a[3], b[3];
  ASSERT_EQ(enter("c", 48 * kMiB, &first), Admission::kAdmitted);
  for (Waiter& w : a) ASSERT_EQ(enter("a", 30 * kMiB, &w), Admission::kWaits);
  for (Waiter& w : b) ASSERT_EQ(enter("b", 30 * kMiB, &w), Admission::kWaits);
  first.reservation = Reservation();
  EXPECT_TRUE(a[0].admitted());
  EXPECT_TRUE(b[0].admitted());
  EXPECT_FALSE(a[1].admitted());
  a[0].reservation = Reservation();
  EXPECT_TRUE(a[1].admitted());
  a[1].reservation = Reservation();
  EXPECT_FALSE(a[2].admitted() && b[1].admitted());
  EXPECT_TRUE(a[2].admitted() || b[1].admitted());
  for (Waiter& w : a) ledger_.leave(&w);
  for (Waiter& w : b) ledger_.leave(&w);
}

TEST_F(LedgerQueue, WhatWaitsTooLongIsRefusedWithATimeToComeBack) {
  Waiter first, patient, hurried;
  ASSERT_EQ(enter("a", 45 * kMiB, &first), Admission::kAdmitted);
  ASSERT_EQ(enter("b", 40 * kMiB, &patient), Admission::kWaits);
  ASSERT_EQ(enter("b", 40 * kMiB, &hurried, clock_.now() + absl::Seconds(2)), Admission::kWaits);
  clock_.advance(absl::Seconds(2));
  EXPECT_EQ(hurried.error.code, StatusCode::kResourceExhausted);
  EXPECT_EQ(hurried.error.reason, Reason::kOverloadedBytes);
  EXPECT_GT(hurried.error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(patient.told, 0);
  clock_.advance(absl::Seconds(28));
  EXPECT_EQ(patient.error.reason, Reason::kQueueTimeout);
  EXPECT_GT(patient.error.retry_after, absl::ZeroDuration());
  EXPECT_EQ(ledger_.usage().waiting, 0);
}

// Ten requests a second leave; beyond what a deadline of a second leaves time for, claims are refused at once.
TEST_F(LedgerQueue, WhatCannotMeetItsDeadlineIsRefusedAtOnce) {
  std::vector<Waiter> held(4);
  for (Waiter& w : held) ASSERT_EQ(enter("a", kMiB, &w), Admission::kAdmitted);
  for (int i = 0; i < 20; ++i) {
    clock_.advance(absl::Milliseconds(100));
    held[i % 4].reservation = Reservation();
    ASSERT_EQ(enter("a", kMiB, &held[i % 4], clock_.now() + absl::Seconds(1)), Admission::kAdmitted) << i;
  }
  std::vector<Waiter> more(20);
  int admitted = 0;
  for (Waiter& w : more) {
    const Admission result = enter("a", kMiB, &w, clock_.now() + absl::Seconds(1));
    if (result == Admission::kAdmitted) {
      ++admitted;
      continue;
    }
    EXPECT_EQ(result, Admission::kRefused);
    EXPECT_EQ(w.error.code, StatusCode::kResourceExhausted);
    EXPECT_GT(w.error.retry_after, absl::ZeroDuration());
  }
  EXPECT_GE(admitted, 2);
  EXPECT_LE(admitted, 6);
  // Another size, another peer, and no deadline: none of these is kept back.
  Waiter small, other, patient;
  EXPECT_EQ(enter("a", 1000, &small, clock_.now() + absl::Seconds(1)), Admission::kAdmitted);
  EXPECT_EQ(enter("b", kMiB, &other, clock_.now() + absl::Seconds(1)), Admission::kAdmitted);
  EXPECT_EQ(enter("a", kMiB, &patient), Admission::kAdmitted);
}

TEST_F(LedgerQueue, WhoLeavesIsToldNothing) {
  Waiter first, second;
  ASSERT_EQ(enter("a", 45 * kMiB, &first), Admission::kAdmitted);
  ASSERT_EQ(enter("b", 40 * kMiB, &second), Admission::kWaits);
  EXPECT_TRUE(ledger_.leave(&second));
  EXPECT_FALSE(ledger_.leave(&second));
  EXPECT_FALSE(ledger_.leave(&first));
  first.reservation = Reservation();
  clock_.advance(absl::Minutes(1));
  EXPECT_EQ(second.told, 0);
}

TEST_F(LedgerQueue, DrainRefusesWhatWaits) {
  Waiter first, second;
  ASSERT_EQ(enter("a", 45 * kMiB, &first), Admission::kAdmitted);
  ASSERT_EQ(enter("b", 40 * kMiB, &second), Admission::kWaits);
  ledger_.start_drain();
  EXPECT_EQ(second.error.reason, Reason::kDraining);
  EXPECT_EQ(second.told, 1);
  EXPECT_EQ(ledger_.resize(&first.reservation, 46 * kMiB).reason, Reason::kDraining);
}

TEST_F(LedgerQueue, AReservationIsMadeExact) {
  Waiter first, second;
  ASSERT_EQ(enter("a", 45 * kMiB, &first), Admission::kAdmitted);
  ASSERT_EQ(enter("b", 40 * kMiB, &second), Admission::kWaits);
  EXPECT_TRUE(ledger_.resize(&first.reservation, 10 * kMiB).ok());
  EXPECT_TRUE(second.admitted());
  EXPECT_EQ(ledger_.usage().bytes, 50 * kMiB);
  EXPECT_TRUE(ledger_.resize(&first.reservation, 20 * kMiB).ok());
  EXPECT_EQ(ledger_.usage().bytes, 60 * kMiB);
  EXPECT_EQ(ledger_.resize(&first.reservation, 30 * kMiB).reason, Reason::kOverloadedBytes);
  EXPECT_EQ(first.reservation.bytes(), 20 * kMiB);
  EXPECT_EQ(ledger_.usage().requests, 2);
}

// Claims of random sizes from several threads, each of them told once at most, and nothing is left behind.
TEST(Ledger, StormOfClaims) {
  struct Counted final : public AdmissionWaiter {
    void on_admitted(Reservation r) override { tell(std::move(r)); }
    void on_refused(Error) override { tell({}); }
    void tell(Reservation r) {
      MutexLock lock(&mu);
      reservation = std::move(r);
      ++told;
      changed.signal_all();
    }
    Mutex mu;
    CondVar changed;
    Reservation reservation;
    int told = 0;
  };
  const auto clock = make_steady_clock();
  Ledger ledger({.max_bytes = 8 * kMiB, .max_requests = 100, .peer_percent = 75}, clock.get());
  std::atomic<int64_t> served{0};
  std::vector<std::thread> callers;
  for (unsigned seed = 0; seed < 4; ++seed) {
    callers.emplace_back([&, seed] {
      std::mt19937 random(seed);
      const Peer peer(1, static_cast<char>('a' + seed % 3));
      for (int i = 0; i < 2000; ++i) {
        Counted waiter;
        Reservation reservation;
        Error error;
        const auto bytes = static_cast<int64_t>(random() % (6 * kMiB));
        switch (ledger.enter({peer, bytes, absl::InfiniteFuture()}, &waiter, &reservation, &error)) {
          case Admission::kRefused:
            ADD_FAILURE() << error.message;
            break;
          case Admission::kWaits:
            if (random() % 4 == 0 && ledger.leave(&waiter)) continue;
            {
              MutexLock lock(&waiter.mu);
              while (waiter.told == 0) waiter.changed.wait(&waiter.mu);
            }
            [[fallthrough]];
          case Admission::kAdmitted:
            ++served;
        }
        EXPECT_LE(ledger.usage().bytes, 8 * kMiB);
      }
    });
  }
  for (std::thread& t : callers) t.join();
  EXPECT_GT(served.load(), 4000);
  EXPECT_EQ(ledger.usage().bytes, 0);
  EXPECT_EQ(ledger.usage().requests, 0);
  EXPECT_EQ(ledger.usage().waiting, 0);
}

}  // namespace
}  // namespace svdserve::server
