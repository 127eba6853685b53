#include "client/cli/summary.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"

namespace svdserve::cli {

void print_summary(const client::Batch& batch, const client::Report& report, double seconds) {
  std::map<client::MatrixStatus, int64_t> tally;
  for (const auto& e : report.exceptions) ++tally[e.status];
  std::string statuses = absl::StrCat(report.count - static_cast<int64_t>(report.exceptions.size()), " ok");
  for (const auto& [status, n] : tally) absl::StrAppend(&statuses, ", ", n, " ", name(status));
  std::fprintf(stderr,
               "%" PRId64 " matrices of %" PRId64 "x%" PRId64
               " %s in %.6g s: %.4g matrices/s; %s on %s; "
               "%" PRId64 " message%s; %s\n",
               report.count, batch.rows, batch.cols, name(batch.data_type), seconds,
               static_cast<double>(report.count) / std::max(seconds, 1e-9), name(report.method),
               report.device.empty() ? "no device" : report.device.c_str(), report.pieces,
               report.pieces == 1 ? "" : "s", statuses.c_str());
  if (!report.certificate) return;
  std::fprintf(stderr, "certificate: residual %.3g, orthogonality of U %.3g, of V %.3g\n", report.certificate->residual,
               report.certificate->left_orthogonality, report.certificate->right_orthogonality);
}

}  // namespace svdserve::cli
