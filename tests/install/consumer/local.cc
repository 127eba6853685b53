// Singular values in this process, by the installed engine.
#include <cmath>
#include <cstdio>

#include "engine/large_engine.h"
#include "engine/svd_engine.h"

// A large factor, small.
bool factor_is_right() {
  using namespace svdserve;
  LargeOptions options;
  options.vectors = Vectors::kNone;
  const LargePlanOrError planned = plan_large({.rows = 3, .cols = 2, .dtype = DType::kF64}, options);
  const double matrix[3][2] = {{3, 0}, {0, 4}, {0, 0}};
  double values[2] = {};
  LargeOperands operands;
  operands.matrix = matrix;
  operands.values = values;
  const LargeOutcome outcome = make_host_large_engine()->decompose(*planned.plan, operands);
  return outcome.status == LargeStatus::kOk && std::abs(values[0] - 4) < 1e-14 && std::abs(values[1] - 3) < 1e-14;
}

int main() {
  using namespace svdserve;
  const PlanOrError planned = make_plan({.rows = 3, .cols = 2, .dtype = DType::kF64}, {});
  if (!planned.plan) {
    std::fprintf(stderr, "%s: %s\n", planned.error.field.c_str(), planned.error.message.c_str());
    return 1;
  }
  const double matrices[2][3][2] = {{{3, 0}, {0, 4}, {0, 0}}, {{1, 1}, {1, 1}, {1, 1}}};
  double values[2][2];
  const HostSegment segment{.matrices = matrices, .count = 2, .planes = values};
  const SvdEngine engine;
  const auto outcome = engine.execute(*planned.plan, {&segment, 1});

  std::printf("%g %g, %g %g\n", values[0][0], values[0][1], values[1][0], values[1][1]);
  const bool right = outcome.completed && outcome.report.ok == 2 && std::abs(values[0][0] - 4) < 1e-14 &&
                     std::abs(values[0][1] - 3) < 1e-14 && std::abs(values[1][0] - std::sqrt(6.0)) < 1e-14 &&
                     std::abs(values[1][1]) < 1e-14;
  return right && factor_is_right() ? 0 : 1;
}
