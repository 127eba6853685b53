#include "tests/support/numerics/engine_run.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace svdserve::numerics {
namespace {

constexpr std::byte kPoison{0xa5};
constexpr size_t kGuard = 64;  // bytes on each side of an output that must stay as they were

// A copy of bytes, or a poisoned output, at an address that is aligned to nothing, between guards.
class Guarded {
 public:
  Guarded(size_t size, size_t misalignment)
      : size_(size), begin_(kGuard + misalignment % kGuard), bytes_(size + 3 * kGuard, kPoison) {}

  std::byte* data() { return bytes_.data() + begin_; }
  size_t size() const { return size_; }
  bool guards_intact() const {
    const auto poisoned = [](std::byte b) { return b == kPoison; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), poisoned) &&
           std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_ + size_), bytes_.end(), poisoned);
  }

 private:
  size_t size_;
  size_t begin_;
  std::vector<std::byte> bytes_;
};

// Reports must count what the statuses say.
void require_matching_report(const RunResult& result) {
  ConvergenceReport counted;
  for (const MatrixStatus status : result.statuses) {
    switch (status) {
      case MatrixStatus::kOk:
        ++counted.ok;
        break;
      case MatrixStatus::kNonFinite:
        ++counted.non_finite;
        break;
      case MatrixStatus::kNotConverged:
        ++counted.not_converged;
        break;
      case MatrixStatus::kOutOfRange:
        ++counted.out_of_range;
        break;
      case MatrixStatus::kByQr:
        ++counted.by_qr;
        break;
      case MatrixStatus::kNearDefective:
        ++counted.near_defective;
        break;
      default:
        throw std::logic_error("a status was not written");
    }
  }
  if (!(counted == result.outcome.report)) throw std::logic_error("the report does not count the statuses");
  if (!result.outcome.completed) throw std::logic_error("the call did not complete");
}

struct Segment {
  Segment(const Plan& plan, int64_t first, int64_t count, size_t misalignment)
      : first(first),
        count(count),
        input(static_cast<size_t>(count) * matrix_bytes(plan.problem), misalignment),
        values(static_cast<size_t>(count) * values_bytes(plan.problem), misalignment / 3),
        statuses(static_cast<size_t>(count), misalignment / 7) {}

  int64_t first;
  int64_t count;
  Guarded input;
  Guarded values;
  Guarded statuses;
};

RunResult run_segments(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count,
                       std::vector<Segment>& segments) {
  const size_t matrix = matrix_bytes(plan.problem);
  const size_t row = values_bytes(plan.problem);
  std::vector<HostSegment> views;
  for (Segment& s : segments) {
    if (s.count > 0) std::memcpy(s.input.data(), matrices + static_cast<size_t>(s.first) * matrix, s.input.size());
    views.push_back({s.input.data(), s.count, s.values.data(), reinterpret_cast<MatrixStatus*>(s.statuses.data())});
  }
  RunResult result;
  result.outcome = engine.execute(plan, views);
  result.values.resize(static_cast<size_t>(count) * row);
  result.statuses.resize(static_cast<size_t>(count));
  for (Segment& s : segments) {
    if (!s.input.guards_intact() || !s.values.guards_intact() || !s.statuses.guards_intact()) {
      throw std::logic_error("the call wrote outside its outputs");
    }
    if (s.count == 0) continue;
    if (std::memcmp(s.input.data(), matrices + static_cast<size_t>(s.first) * matrix, s.input.size()) != 0) {
      throw std::logic_error("the call changed its input");
    }
    std::memcpy(result.values.data() + static_cast<size_t>(s.first) * row, s.values.data(), s.values.size());
    std::memcpy(result.statuses.data() + s.first, s.statuses.data(), s.statuses.size());
  }
  require_matching_report(result);
  return result;
}

}  // namespace

Plan plan_of(const Problem& problem, const Options& options) {
  const PlanOrError made = make_plan(problem, options);
  if (!made.plan) throw std::invalid_argument(made.error.field + " " + made.error.message);
  return *made.plan;
}

std::vector<Method> values_methods() {
  std::vector<Method> all;
  for (int m = 1; m <= static_cast<int>(Method::kLast); ++m) {
    const auto method = static_cast<Method>(m);
    if (make_plan({2, 2, DType::kF64, Order::kRowMajor}, {.method = method}).plan) all.push_back(method);
  }
  return all;
}

std::vector<std::byte> pack(const std::vector<Matrix>& matrices, Order order) {
  std::vector<std::byte> bytes;
  for (const Matrix& a : matrices) {
    const size_t at = bytes.size();
    bytes.resize(at + a.elements.size() * element_bytes(a.dtype));
    store(a, order, bytes.data() + at);
  }
  return bytes;
}

std::vector<double> RunResult::values_of(const Plan& plan, int64_t matrix) const {
  return load_values(plan.problem.dtype, bytes_of(plan, matrix), values_per_matrix(plan.problem));
}

const std::byte* RunResult::bytes_of(const Plan& plan, int64_t matrix) const {
  return values.data() + static_cast<size_t>(matrix) * values_bytes(plan.problem);
}

RunResult run(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count) {
  std::vector<Segment> segments;
  segments.emplace_back(plan, 0, count, 0);
  return run_segments(engine, plan, matrices, count, segments);
}

RunResult run_in_segments(const SvdEngine& engine, const Plan& plan, const std::byte* matrices, int64_t count,
                          Random& random) {
  std::vector<Segment> segments;
  for (int64_t first = 0; first < count;) {
    const int64_t longest = random.coin() ? 5 : 100;
    const int64_t length = std::min(random.integer(0, longest), count - first);
    segments.emplace_back(plan, first, length, static_cast<size_t>(random.integer(0, 63)));
    first += length;
  }
  return run_segments(engine, plan, matrices, count, segments);
}

bool is_canonical_nan(DType dtype, const std::byte* value) {
  if (value_bytes(dtype) == 4) {
    uint32_t bits;
    std::memcpy(&bits, value, sizeof bits);
    return bits == 0x7fc00000u;
  }
  uint64_t bits;
  std::memcpy(&bits, value, sizeof bits);
  return bits == 0x7ff8000000000000u;
}

std::string hex_values(DType dtype, const std::byte* values, int64_t count) {
  std::string text;
  for (const double x : load_values(dtype, values, count)) {
    char one[40];
    std::snprintf(one, sizeof one, " %a", x);
    text += one;
  }
  return text;
}

}  // namespace svdserve::numerics
