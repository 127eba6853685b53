#include "client/cli/report/summary.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/printable.h"
#include "client/cli/report/json_report.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

using client::MatrixStatus;

constexpr int64_t kListed = 10;  // matrices that are not ok

// Names and texts, in two columns.
class Table {
 public:
  void row(std::string name, std::string text) { rows_.emplace_back(std::move(name), std::move(text)); }
  std::string text() const {
    size_t width = 0;
    for (const auto& [name, unused] : rows_) width = std::max(width, name.size());
    std::string s;
    for (const auto& [name, text] : rows_) absl::StrAppendFormat(&s, "%-*s  %s\n", static_cast<int>(width), name, text);
    return s;
  }

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

std::string number_text(double x) { return absl::StrFormat("%.6g", x); }

// "1.5", or "1.5-2j".
std::string value_text(std::complex<double> x, bool is_complex) {
  return is_complex ? absl::StrFormat("%.6g%+.6gj", x.real(), x.imag()) : number_text(x.real());
}

std::string range_text(const Range& range) {
  return range.is_one() ? number_text(range.least)
                        : absl::StrCat(number_text(range.least), " to ", number_text(range.most));
}

const char* explanation(MatrixStatus status) {
  switch (status) {
    case MatrixStatus::kOk:
      return "all is right";
    case MatrixStatus::kNonFinite:
      return "it has an infinity or a NaN";
    case MatrixStatus::kNotConverged:
      return "the iteration limit was reached, and the results are the best so far";
    case MatrixStatus::kOutOfRange:
      return "a value is too large for its type";
    case MatrixStatus::kByQr:
      return "jacobi left it to qr, and the results are right";
    case MatrixStatus::kNearDefective:
      return "a defective matrix is near, and the results are right";
    case MatrixStatus::kUnknown:
      return "this program does not know the status; do not rely on the results";
  }
  return "";
}

std::string first_text(const Spectrum& s) {
  std::string text = absl::StrJoin(s.first, " ", [&](std::string* out, const std::complex<double>& x) {
    absl::StrAppend(out, value_text(x, s.kind == Values::kComplex));
  });
  const int64_t more = s.values_per_matrix - static_cast<int64_t>(s.first.size());
  if (more > 0) absl::StrAppend(&text, " and ", more, " more");
  return text;
}

void add_spectrum(const StackReport& r, Table* table) {
  const Spectrum s = spectrum_of(r.stack.batch, r.values, r.values_per_matrix, r.kind, r.complete);
  const std::string of = s.kind == Values::kComplex ? " magnitude" : r.complete ? "" : " computed";
  if (s.finite > 0) {
    table->row(s.kind == Values::kComplex ? "largest magnitude" : "largest", range_text(s.largest));
    table->row("smallest" + of, range_text(s.smallest));
  }
  if (!s.largest_real_part.empty()) table->row("largest real part", range_text(s.largest_real_part));
  if (!s.condition.empty()) table->row("condition", range_text(s.condition));
  if (!s.rank.empty()) {
    const int64_t most = std::min(r.stack.batch.rows, r.stack.batch.cols);
    table->row("numerical rank", absl::StrCat(range_text(s.rank), " of ", most));
  }
  if (s.first.empty()) return;
  const char* const name = r.kind == Values::kSingular || r.kind == Values::kHyperbolic ? "values" : "eigenvalues";
  const std::string place = place_of(r.stack, 0);
  table->row(place.empty() ? name : absl::StrCat(name, " of ", place), first_text(s));
}

void add_conditions(const StackReport& r, Table* table) {
  if (r.conditions.empty()) return;
  const auto [of_values, of_vectors] = largest_conditions(r.stack.batch, r.conditions);
  table->row("largest condition", absl::StrFormat("%.3g of an eigenvalue, %.3g of V", of_values, of_vectors));
}

void add_certificate(const StackReport& r, Table* table) {
  if (!r.certificate) return;
  const client::Certificate& c = *r.certificate;
  std::string text = absl::StrFormat("residual %.3g", c.residual);
  if (r.kind == Values::kSingular || r.kind == Values::kHyperbolic) {
    absl::StrAppendFormat(&text, ", orthogonality of U %.3g, of V %.3g", c.left_orthogonality, c.right_orthogonality);
  } else if (r.kind == Values::kEigenvalues) {
    absl::StrAppendFormat(&text, ", orthogonality of V %.3g", c.left_orthogonality);
  }
  if (r.factor_condition > 0) {
    absl::StrAppendFormat(&text, ", condition of G %.3g, rank %s%d", r.factor_condition,
                          r.stack.batch.count == 1 ? "" : "at least ", r.rank);
  }
  table->row("certificate", text);
}

std::string headline(const StackReport& r) {
  const int64_t count = r.stack.batch.count;
  const std::string what = absl::StrCat(input_name(r.stack.path), ": ", matrices_text(count, r.stack.batch));
  if (!r.is_computed) return absl::StrCat(what, ", without elements\n");
  if (r.exceptions.empty()) return absl::StrCat(what, count == 1 ? "" : ", all ok", "\n");
  return absl::StrCat(what, ": ", statuses_text(count_statuses(count, r.exceptions)), "\n");
}

// The largest condition of an eigenvalue, and that of a matrix's eigenvectors.
template <class T>
std::pair<double, double> largest_of(const client::Batch& batch, std::span<const std::byte> plane) {
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

// "1.5", or a complex number as Python writes it, "1.5-2j", with digits enough to be read back.
template <class T>
void print_number(const std::byte* at, bool is_complex) {
  T parts[2] = {};
  std::memcpy(parts, at, (is_complex ? 2 : 1) * sizeof(T));
  constexpr int kDigits = sizeof(T) == sizeof(float) ? 9 : 17;
  std::printf("%.*g", kDigits, static_cast<double>(parts[0]));
  if (is_complex) std::printf("%+.*gj", kDigits, static_cast<double>(parts[1]));
}

}  // namespace

void StackReport::add(const client::Report& report) {
  is_computed = true;
  methods.insert(name(report.method));
  devices.insert(report.device.empty() ? "no device" : printable(report.device));
  messages += report.pieces;
  exceptions = report.exceptions;
  certificate = report.certificate;
  queue_seconds = report.queue_seconds;
  compute_seconds = report.compute_seconds;
  total_seconds = report.total_seconds;
}

void StackReport::add(const client::LargeReport& report, int64_t index) {
  is_computed = is_large = true;
  methods.insert(name(report.method));
  devices.insert(printable(report.device));
  if (report.status != MatrixStatus::kOk) exceptions.push_back({index, report.status});
  sweeps += report.sweeps;
  subspace_steps += report.subspace_steps;
  members = std::max(members, report.members);
  rotations += report.rotations;
  proper_rotations += report.proper_rotations;
  upload_seconds += report.upload_seconds;
  queue_seconds += report.queue_seconds;
  compute_seconds += report.compute_seconds;
  download_seconds += report.download_seconds;
  if (!report.certificate) return;
  rank = certificate ? std::min(rank, report.rank) : report.rank;
  client::Certificate& c = certificate ? *certificate : certificate.emplace();
  c.residual = std::max(c.residual, report.certificate->residual);
  c.left_orthogonality = std::max(c.left_orthogonality, report.certificate->left_orthogonality);
  c.right_orthogonality = std::max(c.right_orthogonality, report.certificate->right_orthogonality);
  factor_condition = std::max(factor_condition, report.factor_condition);
}

std::string shape_text(const client::Batch& batch) {
  return absl::StrCat(batch.rows, "x", batch.cols, " ", name(batch.data_type));
}

std::string matrices_text(int64_t count, const client::Batch& batch) {
  return absl::StrCat(count, count == 1 ? " matrix of " : " matrices of ", shape_text(batch));
}

std::string place_of(const MatrixStack& stack, int64_t index) {
  std::string place;
  for (auto size = stack.batch_shape.rbegin(); size != stack.batch_shape.rend(); ++size) {
    place.insert(0, place.empty() ? "" : ", ");
    place.insert(0, std::to_string(index % *size));
    index /= *size;
  }
  return place.empty() ? "" : absl::StrCat("[", place, "]");
}

std::string input_name(const std::string& path) { return path == "-" ? "standard input" : path; }

std::map<MatrixStatus, int64_t> count_statuses(int64_t count, std::span<const client::MatrixException> exceptions) {
  std::map<MatrixStatus, int64_t> tally;
  for (const auto& e : exceptions) ++tally[e.status];
  const int64_t ok = count - static_cast<int64_t>(exceptions.size());
  if (ok > 0) tally[MatrixStatus::kOk] = ok;
  return tally;
}

std::string statuses_text(const std::map<MatrixStatus, int64_t>& tally) {
  const auto one = [](std::string* out, const auto& entry) {
    absl::StrAppend(out, entry.second, " ", name(entry.first));
  };
  return absl::StrJoin(tally, ", ", one);
}

std::string exceptions_text(const MatrixStack& stack, std::span<const client::MatrixException> exceptions, bool all) {
  std::string text;
  int64_t listed = 0;
  for (const client::MatrixException& e : exceptions) {
    if (!all && listed == kListed) break;
    ++listed;
    const std::string place = place_of(stack, e.index);
    absl::StrAppend(&text, "matrix", place.empty() ? "" : " ", place, ": ", name(e.status), ": ", explanation(e.status),
                    "\n");
  }
  const int64_t more = static_cast<int64_t>(exceptions.size()) - listed;
  if (more > 0) absl::StrAppend(&text, "and ", more, " more that ", more == 1 ? "is" : "are", " not ok\n");
  return text;
}

std::pair<double, double> largest_conditions(const client::Batch& batch, std::span<const std::byte> conditions) {
  const bool is_single = client::value_bytes(batch.data_type) == sizeof(float);
  return is_single ? largest_of<float>(batch, conditions) : largest_of<double>(batch, conditions);
}

std::string summary_text(const StackReport& r, bool verbose) {
  Table table;
  if (r.is_computed) {
    add_spectrum(r, &table);
    add_conditions(r, &table);
    add_certificate(r, &table);
  }
  return absl::StrCat(headline(r), table.text(), exceptions_text(r.stack, r.exceptions, verbose));
}

std::string time_text(const StackReport& r) {
  const int64_t count = r.stack.batch.count;
  std::set<std::string> methods = r.methods;
  methods.erase(name(client::Method::kAuto));  // of a large matrix: none that has a name of its own
  std::string text = absl::StrCat(duration_text(r.seconds), methods.empty() ? "" : " by ", absl::StrJoin(methods, ", "),
                                  " on ", absl::StrJoin(r.devices, ", "));
  if (count > 1) {
    absl::StrAppend(&text, ", ", amount_text(static_cast<double>(count) / std::max(r.seconds, 1e-9)), " matrices/s");
  }
  return text + "\n";
}

std::string work_text(const StackReport& r) {
  std::string text;
  if (r.is_large) {
    absl::StrAppend(&text, "upload ", duration_text(r.upload_seconds), ", queue ", duration_text(r.queue_seconds),
                    ", compute ", duration_text(r.compute_seconds), ", download ", duration_text(r.download_seconds),
                    "\n");
    if (r.subspace_steps > 0) {
      absl::StrAppend(&text, r.subspace_steps, r.subspace_steps == 1 ? " step" : " steps", " of a subspace\n");
    }
    if (r.sweeps > 0) {
      const std::string together = r.members > 1 ? absl::StrCat(" on ", r.members, " devices together") : "";
      absl::StrAppend(&text, r.sweeps, r.sweeps == 1 ? " sweep" : " sweeps", together, ", ", r.rotations,
                      " rotations, ", r.proper_rotations, " of them proper\n");
    }
    return text;
  }
  return absl::StrCat("queue ", duration_text(r.queue_seconds), ", compute ", duration_text(r.compute_seconds),
                      ", total ", duration_text(r.total_seconds), "; ", r.messages,
                      r.messages == 1 ? " message\n" : " messages\n");
}

namespace {

client::Status print_values(const StackReport& r) {
  const bool is_complex = r.kind == Values::kComplex;
  const auto size = static_cast<int64_t>(client::value_bytes(r.stack.batch.data_type));
  const std::byte* at = r.values.data();
  for (int64_t i = 0; i < r.stack.batch.count && std::ferror(stdout) == 0; ++i) {
    for (int64_t j = 0; j < r.values_per_matrix; ++j, at += is_complex ? 2 * size : size) {
      if (j > 0) std::fputc(' ', stdout);
      size == sizeof(float) ? print_number<float>(at, is_complex) : print_number<double>(at, is_complex);
    }
    std::fputc('\n', stdout);
  }
  return write_text(stdout, "");
}

client::Status print_json(const Context& context, std::span<const StackReport> reports, bool values) {
  Json::Array files;
  for (const StackReport& report : reports) files.emplace_back(json_of(report, values));
  return context.print_json({{"files", std::move(files)}});
}

}  // namespace

client::Status print_reports(const Context& context, std::span<const StackReport> reports, bool values) {
  if (context.json) return print_json(context, reports, values);
  for (const StackReport& report : reports) {
    if (values && reports.size() > 1) std::printf("# %s\n", input_name(report.stack.path).c_str());
    if (values) {
      if (auto s = print_values(report); !s.ok()) return s;
    }
    if (context.quiet) continue;
    if (auto s = context.print(summary_text(report, context.verbose)); !s.ok()) return s;
    if (!report.is_computed) continue;
    std::fputs(time_text(report).c_str(), stderr);
    if (context.verbose) std::fputs(work_text(report).c_str(), stderr);
  }
  return {};
}

}  // namespace svdserve::cli
