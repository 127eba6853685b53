// Cases of large matrices that one test computes in several ways, and the comparison of what came out.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_CASES_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "engine/large_engine.h"
#include "gtest/gtest.h"
#include "tests/support/numerics/large_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/memory_states.h"

namespace svdserve::numerics {

struct LargeCase {
  std::string title;
  int64_t rows = 0, cols = 0;
  LargeOptions options;
  Kind kind = Kind::kNormal;
  Order order = Order::kRowMajor;

  Matrix operand(DType dtype) const { return generate(kind, dtype, rows, cols, 3); }
  LargePlan plan(DType dtype) const { return large_plan_of({rows, cols, dtype, order}, options); }
  // Every third column is negative; empty for kinds without a signature.
  std::vector<int8_t> signature() const {
    std::vector<int8_t> signs;
    for (int64_t j = 0; has_signature(options.kind) && j < cols; ++j) signs.push_back(j % 3 == 1 ? -1 : 1);
    return signs;
  }
};

// states: saves them, is gone on from, and may cancel.
inline LargeResult run(const LargeEngine& engine, DType dtype, const LargeCase& c, MemoryStates* states = nullptr) {
  LargeControl control;
  control.states = states;
  if (states != nullptr) control.cancel = &states->cancel;
  return run_large(engine, c.plan(dtype), c.operand(dtype), c.signature(), control);
}

// A certificate wherever there are vectors.
inline LargeOptions certified(Method method, Vectors vectors = Vectors::kThin) {
  LargeOptions options;
  options.method = method;
  options.vectors = vectors;
  options.certificate = vectors != Vectors::kNone;
  return options;
}

// f(options, title) for JACOBI and AUTO with each choice of vectors.
template <class F>
void for_svds(const F& f) {
  for (const Method method : {Method::kJacobi, Method::kAuto}) {
    for (const Vectors vectors : {Vectors::kThin, Vectors::kNone, Vectors::kFull}) {
      f(certified(method, vectors),
        std::string(name(method)) + ", vectors " + std::to_string(static_cast<int>(vectors)));
    }
  }
}

// Both have results, and the same ones.
inline void expect_same_bits(const LargeResult& want, const LargeResult& got) {
  const LargeStatus status = want.outcome.status;
  ASSERT_TRUE(status == LargeStatus::kOk || status == LargeStatus::kNotConverged) << want.outcome.detail;
  ASSERT_EQ(got.outcome.status, want.outcome.status) << got.outcome.detail;
  EXPECT_EQ(got.outcome.sweeps, want.outcome.sweeps);
  EXPECT_EQ(got.outcome.rotations, want.outcome.rotations);
  EXPECT_EQ(got.outcome.proper_rotations, want.outcome.proper_rotations);
  EXPECT_EQ(got.outcome.warm_started, want.outcome.warm_started);
  EXPECT_EQ(got.outcome.residual, want.outcome.residual);
  EXPECT_EQ(got.outcome.left_orthogonality, want.outcome.left_orthogonality);
  EXPECT_EQ(got.outcome.right_orthogonality, want.outcome.right_orthogonality);
  EXPECT_TRUE(got.values_bytes == want.values_bytes) << "S";
  EXPECT_TRUE(got.left_bytes == want.left_bytes) << "U";
  EXPECT_TRUE(got.right_bytes == want.right_bytes) << "V";
}

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_LARGE_CASES_H_
