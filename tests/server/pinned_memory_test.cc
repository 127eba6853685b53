#include "server/device/pinned_memory.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace svdserve::server {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Pins on the heap and counts what it holds.
struct Pins {
  std::shared_ptr<int> held = std::make_shared<int>(0);
  int made = 0;
  PinnedMemory::Pin pin() {
    return [this](size_t bytes) {
      ++made;
      ++*held;
      return std::shared_ptr<void>(std::malloc(bytes), [held = held](void* p) {
        --*held;
        std::free(p);
      });
    };
  }
};

void expect_usage(const PinnedMemory& memory, size_t in_use, size_t kept) {
  EXPECT_EQ(memory.usage().in_use, static_cast<int64_t>(in_use));
  EXPECT_EQ(memory.usage().kept, static_cast<int64_t>(kept));
}

TEST(PinnedMemory, ABlockIsPinnedOnceAndUsedAgain) {
  Pins pins;
  {
    const auto memory = std::make_shared<PinnedMemory>(8 * kMiB, pins.pin());
    void* first = nullptr;
    {
      const HostBlock block = memory->allocate(kMiB - 5);
      first = block.data();
      std::memset(block.data(), 1, block.size());
      EXPECT_EQ(block.size(), kMiB - 5);
      expect_usage(*memory, kMiB, 0);
    }
    expect_usage(*memory, 0, kMiB);
    const HostBlock again = memory->allocate(kMiB);
    EXPECT_EQ(again.data(), first);
    EXPECT_EQ(pins.made, 1);
    expect_usage(*memory, kMiB, 0);
  }
  EXPECT_EQ(*pins.held, 0);
}

TEST(PinnedMemory, BeyondTheLimitAndBelowAClassTheHeapServes) {
  Pins pins;
  const auto memory = std::make_shared<PinnedMemory>(2 * kMiB, pins.pin());
  std::vector<HostBlock> blocks;
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, kMiB, kMiB, kMiB, 40 * kMiB}) {
    blocks.push_back(memory->allocate(bytes));
    if (bytes > 0) std::memset(blocks.back().data(), 7, bytes);
  }
  EXPECT_EQ(pins.made, 2);
  expect_usage(*memory, 2 * kMiB, 0);
  EXPECT_EQ(memory->usage().limit, static_cast<int64_t>(2 * kMiB));
}

TEST(PinnedMemory, AFifthOfABlockIsUnusedAtMost) {
  EXPECT_EQ(PinnedMemory::pinned_bytes(kMiB), kMiB);
  EXPECT_EQ(PinnedMemory::pinned_bytes(kMiB + 1), kMiB / 4 * 5);
  EXPECT_EQ(PinnedMemory::pinned_bytes(36 * kMiB), 40 * kMiB);
  for (size_t bytes = kLeastPinnedBytes; bytes < 64 * kMiB; bytes = bytes * 33 / 32 + 1) {
    const size_t pinned = PinnedMemory::pinned_bytes(bytes);
    EXPECT_GE(pinned, bytes);
    EXPECT_LT(pinned - bytes, pinned / 5);
    EXPECT_EQ(PinnedMemory::pinned_bytes(pinned), pinned);
  }
}

// Takes and gives back blocks of so many bytes until those kept before are stale.
void let_others_grow_stale(PinnedMemory* memory, size_t bytes) {
  for (int64_t i = 0; i < PinnedMemory::kStaleAfter; ++i) memory->allocate(bytes);
}

TEST(PinnedMemory, AtTheLimitStaleBlocksMakeRoom) {
  Pins pins;
  const auto memory = std::make_shared<PinnedMemory>(4 * kMiB, pins.pin());
  { const HostBlock first = memory->allocate(kMiB), second = memory->allocate(kMiB), third = memory->allocate(kMiB); }
  expect_usage(*memory, 0, 3 * kMiB);
  memory->allocate(2 * kMiB);  // those kept are not stale yet
  EXPECT_EQ(pins.made, 3);
  let_others_grow_stale(memory.get(), kMiB / 2);
  const HostBlock larger = memory->allocate(2 * kMiB);
  EXPECT_EQ(pins.made, 5);
  expect_usage(*memory, 2 * kMiB, kMiB / 2 + kMiB);  // one of three was enough to go, beside what was free
  EXPECT_EQ(*pins.held, 3);
}

TEST(PinnedMemory, ABlockBeyondTheLimitDrivesNothingOut) {
  Pins pins;
  const auto memory = std::make_shared<PinnedMemory>(4 * kMiB, pins.pin());
  memory->allocate(kMiB);
  let_others_grow_stale(memory.get(), kMiB / 2);
  memory->allocate(5 * kMiB);
  expect_usage(*memory, 0, kMiB + kMiB / 2);
}

TEST(PinnedMemory, BlocksKeepItAlive) {
  Pins pins;
  {
    auto memory = std::make_shared<PinnedMemory>(4 * kMiB, pins.pin());
    const HostBlock block = memory->allocate(kMiB);
    memory.reset();
    std::memset(block.data(), 1, block.size());
    EXPECT_EQ(*pins.held, 1);
  }
  EXPECT_EQ(*pins.held, 0);
}

TEST(PinnedMemory, WhatCannotBePinnedComesFromTheHeap) {
  const auto memory = std::make_shared<PinnedMemory>(int64_t{1} << 40, [](size_t) { return std::shared_ptr<void>(); });
  const HostBlock block = memory->allocate(kMiB);
  std::memset(block.data(), 3, block.size());
  expect_usage(*memory, 0, 0);
}

TEST(PinnedMemory, ManyThreads) {
  const auto memory = std::make_shared<PinnedMemory>(
      16 * kMiB, [](size_t bytes) { return std::shared_ptr<void>(std::malloc(bytes), std::free); });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      for (int i = 0; i < 200; ++i) {
        const size_t bytes = (kMiB / 4) << (i % 4);
        const HostBlock block = memory->allocate(bytes);
        std::memset(block.data(), t, 64);
        EXPECT_EQ(static_cast<const unsigned char*>(block.data())[63], t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(memory->usage().in_use, 0);
  EXPECT_LE(memory->usage().kept, static_cast<int64_t>(16 * kMiB));
}

}  // namespace
}  // namespace svdserve::server
