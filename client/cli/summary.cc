#include "client/cli/summary.h"

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/files/file_error.h"
#include "client/cli/printable.h"

namespace svdserve::cli {

std::string shape_text(const client::Batch& batch) {
  return absl::StrCat(batch.rows, "x", batch.cols, " ", name(batch.data_type));
}

std::string matrices_text(int64_t count, const client::Batch& batch) {
  return absl::StrCat(count, count == 1 ? " matrix of " : " matrices of ", shape_text(batch));
}

std::string statuses_text(const std::map<client::MatrixStatus, int64_t>& tally) {
  const auto one = [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second, " ", name(entry.first));
  };
  return absl::StrJoin(tally, ", ", one);
}

void print_summary(const client::Batch& batch, const client::Report& report, double seconds, client::Problem problem) {
  std::map<client::MatrixStatus, int64_t> tally;
  tally[client::MatrixStatus::kOk] = report.count - static_cast<int64_t>(report.exceptions.size());
  for (const auto& e : report.exceptions) ++tally[e.status];
  std::fprintf(stderr, "%s in %.6g s: %.4g matrices/s; %s on %s; %" PRId64 " message%s; %s\n",
               matrices_text(report.count, batch).c_str(), seconds,
               static_cast<double>(report.count) / std::max(seconds, 1e-9), name(report.method).c_str(),
               report.device.empty() ? "no device" : printable(report.device).c_str(), report.pieces,
               report.pieces == 1 ? "" : "s", statuses_text(tally).c_str());
  if (!report.certificate) return;
  const client::Certificate& c = *report.certificate;
  if (problem == client::Problem::kGeneral) {
    std::fprintf(stderr, "certificate: residual %.3g\n", c.residual);
  } else if (problem == client::Problem::kHermitian) {
    std::fprintf(stderr, "certificate: residual %.3g, orthogonality of V %.3g\n", c.residual, c.left_orthogonality);
  } else {
    std::fprintf(stderr, "certificate: residual %.3g, orthogonality of U %.3g, of V %.3g\n", c.residual,
                 c.left_orthogonality, c.right_orthogonality);
  }
}

namespace {

// "1.5", or a complex number as Python writes it, "1.5-2j".
template <class T>
void print_number(const std::byte* at, bool is_complex) {
  T parts[2] = {};
  std::memcpy(parts, at, (is_complex ? 2 : 1) * sizeof(T));
  constexpr int kDigits = sizeof(T) == sizeof(float) ? 9 : 17;
  std::printf("%.*g", kDigits, static_cast<double>(parts[0]));
  if (is_complex) std::printf("%+.*gj", kDigits, static_cast<double>(parts[1]));
}

// The largest condition of an eigenvalue, and that of a matrix's eigenvectors.
template <class T>
std::pair<double, double> largest_conditions(const client::Batch& batch, std::span<const std::byte> plane) {
  double of_values = 0, of_vectors = 0;
  std::vector<T> conditions(static_cast<size_t>(batch.rows));
  const size_t bytes = conditions.size() * sizeof(T);
  for (size_t at = 0; at < plane.size(); at += bytes) {
    std::memcpy(conditions.data(), plane.data() + at, bytes);
    if (std::ranges::any_of(conditions, [](T c) { return std::isnan(c); })) continue;
    of_values = std::max(of_values, static_cast<double>(std::ranges::max(conditions)));
    of_vectors = std::max(of_vectors, client::condition_of_vectors(std::span<const T>(conditions)));
  }
  return {of_values, of_vectors};
}

}  // namespace

void print_conditions(const client::Batch& batch, std::span<const std::byte> conditions) {
  const bool is_single = client::value_bytes(batch.data_type) == sizeof(float);
  const auto [of_values, of_vectors] =
      is_single ? largest_conditions<float>(batch, conditions) : largest_conditions<double>(batch, conditions);
  std::fprintf(stderr, "condition: of an eigenvalue at most %.3g, of V at most %.3g\n", of_values, of_vectors);
}

client::Status print_values(const client::Batch& batch, std::span<const std::byte> values, bool is_complex) {
  const int64_t k = batch.values_per_matrix();
  const auto size = static_cast<int64_t>(client::value_bytes(batch.data_type)), step = is_complex ? 2 * size : size;
  const std::byte* at = values.data();
  for (int64_t i = 0; i < batch.count && std::ferror(stdout) == 0; ++i) {
    for (int64_t j = 0; j < k; ++j, at += step) {
      if (j > 0) std::fputc(' ', stdout);
      size == sizeof(float) ? print_number<float>(at, is_complex) : print_number<double>(at, is_complex);
    }
    std::puts("");
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) return file_error("write to", "stdout", errno);
  return {};
}

}  // namespace svdserve::cli
