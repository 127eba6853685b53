// The control of a large matrix: progress and cancellation.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_PROGRESS_CHECK_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_PROGRESS_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "tests/support/numerics/large_run.h"

namespace svdserve::numerics {

// Expects that progress rises in at least `steps` steps, and foretells no step back; *last is the last one. Expects that a call ends once it is
// cancelled: where cancels(progress) holds, and before it begins.
inline void expect_progress_and_cancel(const LargeEngine& engine, const LargePlan& plan, const Matrix& a, size_t steps,
                                       const std::function<bool(const LargeProgress&)>& cancels, double* last) {
  std::vector<double> fractions;
  LargeControl control;
  control.progress = [&](const LargeProgress& p) {
    fractions.push_back(p.fraction);
    EXPECT_LE(p.fraction, p.next_fraction);
    EXPECT_LE(p.next_fraction, 1);
    EXPECT_TRUE(p.next_seconds >= 0 && std::isfinite(p.next_seconds)) << p.next_seconds;
  };
  ASSERT_EQ(run_large(engine, plan, a, {}, control).outcome.status, LargeStatus::kOk);
  EXPECT_TRUE(std::is_sorted(fractions.begin(), fractions.end()));
  ASSERT_GE(fractions.size(), steps);
  *last = fractions.back();
  std::atomic<bool> cancel{false};
  control.cancel = &cancel;
  control.progress = [&](const LargeProgress& p) { cancel = cancel || cancels(p); };
  EXPECT_EQ(run_large(engine, plan, a, {}, control).outcome.status, LargeStatus::kCancelled);
  cancel = true;
  EXPECT_EQ(run_large(engine, plan, a, {}, control).outcome.status, LargeStatus::kCancelled);
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_PROGRESS_CHECK_H_
