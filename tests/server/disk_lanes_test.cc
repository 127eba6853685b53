// Lanes of tasks for a disk that may hang.
#include "server/checkpoint/disk_lanes.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace svdserve::server {
namespace {

constexpr auto kLong = std::chrono::minutes(5), kShort = std::chrono::minutes(0);

TEST(DiskLanes, DoTheTasksOfALaneInTurn) {
  constexpr int kLanes = 4, kTasks = 200;
  std::vector<std::vector<int>> done(kLanes);
  {
    DiskLanes lanes(kLong);
    std::vector<std::shared_ptr<DiskLanes::Lane>> each;
    for (int l = 0; l < kLanes; ++l) each.push_back(DiskLanes::make_lane());
    for (int t = 0; t < kTasks; ++t) {
      for (int l = 0; l < kLanes; ++l) {
        lanes.push(each[l], [&done, l, t]() -> DiskLanes::After {
          done[l].push_back(2 * t);
          return [&done, l, t] { done[l].push_back(2 * t + 1); };
        });
      }
    }
  }
  for (const std::vector<int>& of_lane : done) {
    ASSERT_EQ(of_lane.size(), 2u * kTasks);
    for (int i = 0; i < 2 * kTasks; ++i) EXPECT_EQ(of_lane[i], i);
  }
}

TEST(DiskLanes, DoNotWaitForEachOther) {
  DiskLanes lanes(kLong);
  std::promise<void> first, second;
  lanes.push(DiskLanes::make_lane(), [&]() -> DiskLanes::After {
    second.get_future().wait();
    return [&] { first.set_value(); };
  });
  lanes.push(DiskLanes::make_lane(), [&]() -> DiskLanes::After {
    second.set_value();
    return {};
  });
  first.get_future().wait();
}

TEST(DiskLanes, TakeMoreTasksFromWhatComesAfterOne) {
  std::atomic<int> done{0};
  {
    DiskLanes lanes(kLong);
    const auto lane = DiskLanes::make_lane(), other = DiskLanes::make_lane();
    lanes.push(lane, [&lanes, &done, lane, other]() -> DiskLanes::After {
      return [&lanes, &done, lane, other] {
        for (const auto& l : {lane, other}) {
          lanes.push(l, [&done]() -> DiskLanes::After {
            ++done;
            return {};
          });
        }
      };
    });
  }
  EXPECT_EQ(done, 2);
}

TEST(DiskLanes, LeaveBehindWhatTheDiskDoesNotDo) {
  const auto held = std::make_shared<int>(), behind = std::make_shared<int>(), elsewhere = std::make_shared<int>();
  const auto may_end = std::make_shared<std::promise<void>>();
  const auto after = std::make_shared<std::atomic<int>>(0);
  std::promise<void> begun;
  {
    DiskLanes lanes(kShort);
    const auto lane = DiskLanes::make_lane();
    lanes.push(lane, [held, may_end, after, &begun]() -> DiskLanes::After {
      begun.set_value();
      may_end->get_future().wait();
      return [after] { ++*after; };
    });
    lanes.push(lane, [behind, after]() -> DiskLanes::After {
      ++*after;
      return {};
    });
    begun.get_future().wait();
    EXPECT_EQ(behind.use_count(), 2);
  }
  EXPECT_EQ(behind.use_count(), 1) << "it was not begun";
  EXPECT_EQ(held.use_count(), 2);
  may_end->set_value();
  while (after.use_count() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // what came of it is kept
  EXPECT_EQ(*after, 0);
  EXPECT_EQ(held.use_count(), 2);
}

}  // namespace
}  // namespace svdserve::server
