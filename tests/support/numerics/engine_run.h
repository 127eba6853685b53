// One call of the engine over test matrices: outputs poisoned before, checked for stray writes after.
#ifndef SVDSERVE_TESTS_SUPPORT_NUMERICS_ENGINE_RUN_H_
#define SVDSERVE_TESTS_SUPPORT_NUMERICS_ENGINE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "tests/support/numerics/matrix.h"
#include "tests/support/numerics/random.h"

namespace svdserve::numerics {

// The plan of a problem that is known to be right; throws std::invalid_argument otherwise.
Plan plan_of(const Problem& problem, const Options& options);

// The methods that give the values of small matrices, without kAuto.
std::vector<Method> values_methods();

// The bytes of `matrices`, one after the other.
std::vector<std::byte> pack(const std::vector<Matrix>& matrices, Order order);

struct RunResult {
  std::vector<std::byte> values;  // count x result_bytes
  std::vector<MatrixStatus> statuses;
  SvdEngine::Outcome outcome;

  std::vector<double> values_of(const Plan& plan, int64_t matrix) const;
  const std::byte* bytes_of(const Plan& plan, int64_t matrix) const;
};

// Computes `count` packed matrices as one segment. Throws std::logic_error if the call wrote outside its outputs,
// changed its input, or reports other counts than its statuses.
RunResult run(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count);

// The same as segments of random sizes, empty ones among them, each at its own unaligned place.
RunResult run_in_segments(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count,
                          Random& random);

// The two canonical bit patterns of a value.
bool is_canonical_nan(DType dtype, const std::byte* value);

std::string hex_values(DType dtype, const std::byte* values, int64_t count);

}  // namespace svdserve::numerics
#endif  // SVDSERVE_TESTS_SUPPORT_NUMERICS_ENGINE_RUN_H_
