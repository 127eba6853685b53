// Many callers at once, and calls that are cancelled.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/svd_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"

namespace svdserve::numerics {
namespace {

using Clock = std::chrono::steady_clock;

struct Job {
  Plan plan;
  std::vector<std::byte> bytes;
  int64_t count;
  RunResult expected;
};

std::vector<Job> mixed_jobs(const SvdEngine& engine) {
  std::vector<Job> jobs;
  const std::vector<Method> methods = values_methods();
  uint64_t seed = 0;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{4, 4}, {11, 9}, {3, 200}}) {
      const Method method = methods[seed % methods.size()];
      std::vector<Matrix> matrices;
      for (int64_t i = 0; i < scaled(100, 20); ++i)
        matrices.push_back(generate(Kind::kNormal, dtype, rows, cols, ++seed));
      Job job{plan_of({rows, cols, dtype, Order::kColumnMajor}, {.method = method}),
              pack(matrices, Order::kColumnMajor),
              static_cast<int64_t>(matrices.size()),
              {}};
      job.expected = run(engine, job.plan, job.bytes.data(), job.count);
      jobs.push_back(std::move(job));
    }
  }
  return jobs;
}

TEST(SvdEngineConcurrency, CallsFromManyThreadsDoNotDisturbEachOther) {
  const SvdEngine engine({.threads = 2});
  const std::vector<Job> jobs = mixed_jobs(engine);
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      for (int64_t round = 0; round < scaled(40, 8); ++round) {
        const Job& job = jobs[(caller * 5 + static_cast<size_t>(round)) % jobs.size()];
        const RunResult result = run(engine, job.plan, job.bytes.data(), job.count);
        if (result.values != job.expected.values || result.statuses != job.expected.statuses) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SvdEngineConcurrency, EnginesMayLiveSideBySide) {
  std::vector<std::thread> owners;
  std::atomic<int> wrong{0};
  const SvdEngine reference({.threads = 1});
  const std::vector<Job> jobs = mixed_jobs(reference);
  for (int owner = 0; owner < 4; ++owner) {
    owners.emplace_back([&, owner] {
      for (int round = 0; round < 5; ++round) {
        const SvdEngine engine({.threads = 1 + owner % 3});
        const Job& job = jobs[static_cast<size_t>(owner * 5 + round) % jobs.size()];
        if (run(engine, job.plan, job.bytes.data(), job.count).values != job.expected.values) ++wrong;
      }
    });
  }
  for (std::thread& owner : owners) owner.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SvdEngineConcurrency, CancelledBeforeTheStart) {
  const SvdEngine engine({.threads = 2});
  std::vector<Matrix> matrices;
  for (uint64_t i = 0; i < 50; ++i) matrices.push_back(generate(Kind::kNormal, DType::kF64, 4, 4, i));
  const auto bytes = pack(matrices, Order::kRowMajor);
  const Plan plan = plan_of({4, 4, DType::kF64, Order::kRowMajor}, {});
  std::vector<double> values(200);
  const HostSegment segment{bytes.data(), 50, values.data(), nullptr};
  std::atomic<bool> cancel{true};
  EXPECT_FALSE(engine.execute(plan, {&segment, 1}, &cancel).completed);
  cancel = false;
  const auto outcome = engine.execute(plan, {&segment, 1}, &cancel);
  EXPECT_TRUE(outcome.completed);
  EXPECT_EQ(outcome.report.ok, 50);
}

// A batch of minutes, cancelled after a moment, ends soon after: for packed small matrices, large ones, very tall ones.
void expect_prompt_cancellation(int64_t rows, int64_t cols, DType dtype, Method method, int64_t distinct,
                                int64_t total) {
  const SvdEngine engine({.threads = 2});
  std::vector<Matrix> matrices;
  for (int64_t i = 0; i < distinct; ++i) {
    matrices.push_back(generate(Kind::kNormal, dtype, rows, cols, static_cast<uint64_t>(i)));
  }
  const auto bytes = pack(matrices, Order::kRowMajor);
  const Plan plan = plan_of({rows, cols, dtype, Order::kRowMajor}, {.method = method});
  const size_t out = static_cast<size_t>(distinct) * values_bytes(plan.problem);
  const int64_t repeats = total / distinct;
  // Outputs are never read, so pages that the call does not reach are never touched.
  const std::unique_ptr<std::byte[]> values(new std::byte[out * static_cast<size_t>(repeats)]);
  std::vector<HostSegment> segments;
  for (int64_t i = 0; i < repeats; ++i) {
    segments.push_back({bytes.data(), distinct, values.get() + static_cast<size_t>(i) * out, nullptr});
  }

  std::atomic<bool> cancel{false};
  std::mutex mutex;
  std::condition_variable changed;
  bool returned = false;
  SvdEngine::Outcome outcome;
  std::thread caller([&] {
    outcome = engine.execute(plan, segments, &cancel);
    const std::lock_guard lock(mutex);
    returned = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  const bool too_short = changed.wait_for(lock, std::chrono::milliseconds(100), [&] { return returned; });
  cancel = true;
  const auto asked = Clock::now();
  changed.wait(lock, [&] { return returned; });
  const double seconds = std::chrono::duration<double>(Clock::now() - asked).count();
  lock.unlock();
  caller.join();
  EXPECT_FALSE(too_short) << "the batch ended before it could be cancelled";
  EXPECT_FALSE(outcome.completed);
  EXPECT_LT(seconds, 30.0);  // a moment on a quiet machine; never the minutes of the batch
  EXPECT_LT(outcome.report.total(), total);
}

TEST(SvdEngineConcurrency, CancelledInALongBatchOfSmallMatrices) {
  expect_prompt_cancellation(8, 8, DType::kC128, Method::kJacobi, 1000, 10'000'000);
}
TEST(SvdEngineConcurrency, CancelledInALongBatchOfLargerMatrices) {
  expect_prompt_cancellation(32, 32, DType::kC128, Method::kJacobi, 100, 1'000'000);
}
TEST(SvdEngineConcurrency, CancelledInALongBatchOfVeryTallMatrices) {
  expect_prompt_cancellation(16384, 32, DType::kF64, Method::kBidiagonal, 2, 200'000);
}

}  // namespace
}  // namespace svdserve::numerics
