#include "server/device/cost/cost_table.h"

#include <algorithm>
#include <cmath>

#include "server/device/cost/work_estimate.h"

namespace svdserve::server {
namespace {

// A device of which nothing is known: matrices in packs of 8 (a last pack costs as much as a full one), and 1 us to get
// going. Good to an order of magnitude on the host.
absl::Duration guess(double flops, int64_t count) {
  constexpr double kFlopsPerNanosecond = 2;
  constexpr int64_t kPack = 8;
  const double packs = static_cast<double>((count + kPack - 1) / kPack);
  return absl::Microseconds(1) + absl::Nanoseconds(packs * kPack * flops / kFlopsPerNanosecond);
}

// How unlike two amounts of work are: 0 for equal ones, 1 for a factor of e.
double distance(double a, double b) { return std::abs(std::log(a / b)); }

int octave_of(int64_t count) { return 63 - __builtin_clzll(static_cast<unsigned long long>(count)); }

}  // namespace

CostTable::Key CostTable::key_of(const Plan& plan) const {
  const Method method = plan.*method_;
  const bool has_tolerance = method == Method::kBisection || method == Method::kJacobi;
  const Outputs& o = plan.outputs;
  return {plan.problem.rows,
          plan.problem.cols,
          plan.problem.dtype,
          plan.problem.storage,
          plan.decomposition,
          method,
          has_tolerance ? std::ilogb(plan.tolerance) / 8 : 0,
          method == Method::kJacobi ? octave_of(plan.max_sweeps) : 0,
          o.left_columns,
          o.right_columns,
          o.answers() ? o.snr_count : -1,
          o.certificate,
          o.gradients(),
          o.condition,
          plan.starting_vectors};
}

CostEstimate CostTable::predict(const Plan& plan, int64_t count) const {
  const double n = static_cast<double>(count);
  MutexLock lock(&mu_);
  if (shapes_.empty()) return {guess(estimate_flops(plan, plan.*method_), count), absl::ZeroDuration()};
  const auto own = shapes_.find(key_of(plan));
  if (own == shapes_.end()) return {absl::Seconds(borrow(plan, n)), absl::ZeroDuration()};
  const double typical = n <= own->second.reach() ? interpolate(own->second, n, kTypical) : borrow(plan, n);
  return {absl::Seconds(typical), absl::Seconds(std::min(typical, interpolate(own->second, n, kOptimistic)))};
}

double CostTable::borrow(const Plan& plan, double count) const {
  constexpr double kOtherMethod = 1;  // its flops are worth less as a measure
  const double flops = estimate_flops(plan, plan.*method_), bytes = estimate_bytes(plan);
  const Shape* nearest = nullptr;
  double same_work = 0;  // as many matrices of `nearest` as are the same work, be it arithmetic or copying
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [key, shape] : shapes_) {
    const double n = count * std::max(flops / shape.flops, bytes / shape.bytes);
    const double d = distance(flops, shape.flops) + distance(bytes, shape.bytes) +
                     (shape.method == plan.*method_ ? 0 : kOtherMethod) + std::max(0.0, std::log(n / shape.reach()));
    if (d >= least) continue;
    least = d;
    nearest = &shape;
    same_work = n;
  }
  return interpolate(*nearest, same_work, kTypical);
}

double CostTable::bounded(const Shape& shape, double count, double typical) {
  for (const Cell& cell : shape.cells) {
    if (cell.mean_count >= count) break;
    typical = std::min(typical, kSlower * cell.time[kTypical] * count / cell.mean_count);
  }
  return typical;
}

double CostTable::interpolate(const Shape& shape, double count, Quantile q) const {
  const Cell &first = shape.cells.front(), &last = shape.cells.back();
  if (count >= last.mean_count) {
    // A median errs towards long and a bound towards short. The former takes all of the time to be that of matrices,
    // the latter only the time above the least.
    if (q == kTypical) return bounded(shape, count, last.time[q] * count / last.mean_count);
    return least_[q] + (last.time[q] - least_[q]) * count / last.mean_count;
  }
  if (count <= first.mean_count) {
    if (q == kTypical) count = std::max(count, std::min(static_cast<double>(at_once_), first.mean_count));
    return least_[q] + (first.time[q] - least_[q]) * count / first.mean_count;
  }
  const auto above = std::find_if(shape.cells.begin(), shape.cells.end(),
                                  [count](const Cell& cell) { return cell.mean_count > count; });
  const Cell& below = *(above - 1);
  const double t = (count - below.mean_count) / (above->mean_count - below.mean_count);
  const double between = below.time[q] + (above->time[q] - below.time[q]) * t;
  return q == kTypical ? bounded(shape, count, between) : between;
}

CostTable::Shape* CostTable::find_or_make(const Plan& plan) {
  const auto [it, is_new] = shapes_.try_emplace(key_of(plan));
  Shape* const shape = &it->second;
  shape->last_run = ++runs_;
  if (!is_new) return shape;
  shape->flops = estimate_flops(plan, plan.*method_);
  shape->bytes = estimate_bytes(plan);
  shape->method = plan.*method_;
  if (shapes_.size() <= kMaxShapes) return shape;
  shapes_.erase(std::min_element(shapes_.begin(), shapes_.end(),
                                 [](const auto& a, const auto& b) { return a.second.last_run < b.second.last_run; }));
  return shape;  // not the one that was erased, and erasing moves no other
}

void CostTable::observe(const Plan& plan, int64_t count, absl::Duration took) {
  if (took <= absl::ZeroDuration() || count < 1) return;
  const int octave = octave_of(count);
  MutexLock lock(&mu_);
  std::vector<Cell>& cells = find_or_make(plan)->cells;
  auto cell = std::lower_bound(cells.begin(), cells.end(), octave, [](const Cell& c, int o) { return c.octave < o; });
  if (cell == cells.end() || cell->octave != octave) cell = cells.insert(cell, Cell{.octave = octave});
  cell->seconds[cell->runs % kRuns] = static_cast<float>(absl::ToDoubleSeconds(took));
  cell->counts[cell->runs % kRuns] = static_cast<float>(count);
  ++cell->runs;

  const size_t kept = std::min<size_t>(cell->runs, kRuns);
  double counts = 0;
  for (size_t i = 0; i < kept; ++i) counts += static_cast<double>(cell->counts[i]);
  cell->mean_count = counts / static_cast<double>(kept);
  std::array<float, kRuns> sorted = cell->seconds;
  std::sort(sorted.begin(), sorted.begin() + kept);
  cell->time = {static_cast<double>(sorted[(kept - 1) / 2]), static_cast<double>(sorted[(kept - 1) / 10])};
  for (const Quantile q : {kTypical, kOptimistic}) least_[q] = std::min(least_[q], cell->time[q]);
}

}  // namespace svdserve::server
