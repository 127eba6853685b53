#include "client/cpp/calls/large/side_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

namespace svdserve::client::internal {
namespace {

TEST(SideWork, OneThreadBeginsTasksInOrder) {
  std::vector<int> order;
  SideWork work(1);
  for (int i = 0; i < 100; ++i) work.run([&order, i] { order.push_back(i); });
  work.wait();
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  work.run([&order] { order.clear(); });  // it goes on after a wait
  work.wait();
  EXPECT_TRUE(order.empty());
}

TEST(SideWork, SoManyTasksRunAtOnceAndNoMore) {
  std::atomic<int> running = 0, most = 0, done = 0;
  std::latch both(2);
  SideWork work(2);
  for (int i = 0; i < 50; ++i) {
    work.run([&, i] {
      const int now = ++running;
      for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
      }
      if (i < 2) both.arrive_and_wait();  // neither ends before the other runs
      --running;
      ++done;
    });
  }
  work.wait();
  EXPECT_EQ(done, 50);
  EXPECT_EQ(most, 2);
}

TEST(SideWork, WithoutAThreadTheCallingOneWorks) {
  std::thread::id by;
  SideWork work(0);
  work.run([&by] { by = std::this_thread::get_id(); });
  EXPECT_EQ(by, std::this_thread::get_id());
  work.wait();
}

TEST(SideWork, WhatATaskHoldsIsGoneAfterAWait) {
  SideWork work(2);
  std::vector<std::weak_ptr<int>> held;
  for (int i = 0; i < 10; ++i) {
    auto value = std::make_shared<int>(i);
    held.push_back(value);
    work.run([value = std::move(value)] { EXPECT_GE(*value, 0); });
  }
  work.wait();
  for (const auto& value : held) EXPECT_TRUE(value.expired());
}

TEST(SideWork, ItsEndWaitsForTheTasks) {
  std::atomic<int> done = 0;
  {
    SideWork work(2);
    for (int i = 0; i < 20; ++i) work.run([&done] { ++done; });
  }
  EXPECT_EQ(done, 20);
}

}  // namespace
}  // namespace svdserve::client::internal
