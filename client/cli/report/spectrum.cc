#include "client/cli/report/spectrum.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace svdserve::cli {
namespace {

// Numbers of Real in any alignment, as doubles.
template <class Real>
void read(const std::byte* at, std::vector<double>* to) {
  for (double& x : *to) {
    Real number;
    std::memcpy(&number, at, sizeof number);
    at += sizeof number;
    x = static_cast<double>(number);
  }
}

// The values of one matrix, to the ranges.
void add(const std::vector<double>& values, double threshold, bool complete, Spectrum* to) {
  double largest_size = 0, smallest_size = INFINITY;
  for (const double x : values) {
    largest_size = std::max(largest_size, std::abs(x));
    smallest_size = std::min(smallest_size, std::abs(x));
  }
  to->largest.add(*std::ranges::max_element(values));
  to->smallest.add(*std::ranges::min_element(values));
  if (!complete || to->kind == Values::kHyperbolic) return;
  to->condition.add(smallest_size > 0 ? largest_size / smallest_size : INFINITY);
  const double least = threshold * largest_size;
  to->rank.add(static_cast<double>(std::ranges::count_if(values, [&](double x) { return std::abs(x) > least; })));
}

void add_complex(const std::vector<double>& parts, Spectrum* to) {
  Range sizes;
  double real_part = -INFINITY;
  for (size_t i = 0; i < parts.size(); i += 2) {
    sizes.add(std::hypot(parts[i], parts[i + 1]));
    real_part = std::max(real_part, parts[i]);
  }
  to->largest.add(sizes.most);
  to->smallest.add(sizes.least);
  to->largest_real_part.add(real_part);
}

}  // namespace

Spectrum spectrum_of(const client::Batch& batch, std::span<const std::byte> values, int64_t values_per_matrix,
                     Values kind, bool complete) {
  Spectrum s{.kind = kind, .count = batch.count, .values_per_matrix = values_per_matrix};
  if (batch.count == 0 || values_per_matrix == 0) return s;
  const bool is_complex = kind == Values::kComplex, is_single = client::value_bytes(batch.data_type) == sizeof(float);
  const size_t numbers = static_cast<size_t>(values_per_matrix) * (is_complex ? 2 : 1);
  const size_t bytes = numbers * client::value_bytes(batch.data_type);
  const double epsilon = is_single ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
  const double threshold = epsilon * static_cast<double>(std::max(batch.rows, batch.cols));
  std::vector<double> one(numbers);
  for (int64_t i = 0; i < batch.count; ++i) {
    const std::byte* const at = values.data() + static_cast<size_t>(i) * bytes;
    is_single ? read<float>(at, &one) : read<double>(at, &one);
    for (int64_t j = 0; i == 0 && j < std::min(values_per_matrix, Spectrum::kFirst); ++j) {
      const auto place = static_cast<size_t>(j);
      s.first.push_back(is_complex ? std::complex(one[2 * place], one[2 * place + 1]) : std::complex(one[place]));
    }
    if (!std::ranges::all_of(one, [](double x) { return std::isfinite(x); })) continue;
    ++s.finite;
    is_complex ? add_complex(one, &s) : add(one, threshold, complete, &s);
  }
  return s;
}

}  // namespace svdserve::cli
