// The results of a command in a few lines.
#ifndef SVDSERVE_CLIENT_CLI_REPORT_SUMMARY_H_
#define SVDSERVE_CLIENT_CLI_REPORT_SUMMARY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/report/spectrum.h"
#include "client/cpp/large.h"
#include "client/cpp/types.h"

namespace svdserve::cli {

// The report of a stack of matrices, from a file, that were decomposed in one call or in a call each.
struct StackReport {
  const MatrixStack& stack;
  Values kind = Values::kSingular;
  bool complete = true;                                  // all values of a matrix, not the leading ones alone
  int64_t values_per_matrix = 0;                         // of `values`
  std::span<const std::byte> values = {};                // the plane; of kComplex pairs of numbers
  std::span<const std::byte> conditions = {};            // of the eigenvalues, a plane; empty: not requested
  std::vector<client::MatrixException> exceptions = {};  // ascending by index
  // Those that were written: "values", "left", "right", "conditions", "capacities" or "gradient".
  std::vector<NamedFile> outputs = {};
  std::optional<client::Certificate> certificate = {};
  // With a certificate of an eigenproblem by FACTORED or JACOBI: its rank, for a stack the least, and the condition of G.
  int64_t rank = 0;
  double factor_condition = 0;

  bool is_computed = false;  // false: matrices without elements, for which nothing was sent
  std::set<std::string> methods = {}, devices = {};
  double seconds = 0;    // of the whole call, by this machine's clock
  int64_t messages = 0;  // of a batch
  // Seconds of the server's clock. total: of a batch; upload and download: of large matrices.
  double queue_seconds = 0, compute_seconds = 0, total_seconds = 0, upload_seconds = 0, download_seconds = 0;
  // Sums over large matrices.
  bool is_large = false;
  int64_t sweeps = 0, subspace_steps = 0, rotations = 0, proper_rotations = 0;
  int32_t members = 0;  // the most devices that computed the sweeps of one of them together

  // From the report of a batch, or of one more large matrix, that of the given index.
  void add(const client::Report& report);
  void add(const client::LargeReport& report, int64_t index);
};

// "40x30 f64", and "3 matrices of 40x30 f64".
std::string shape_text(const client::Batch& batch);
std::string matrices_text(int64_t count, const client::Batch& batch);
// "[1, 2]", the place of a matrix in the stack; empty without a stack.
std::string place_of(const MatrixStack& stack, int64_t index);
// The name of an input for people: "standard input" for "-".
std::string input_name(const std::string& path);
// The number of matrices of each status.
std::map<client::MatrixStatus, int64_t> count_statuses(int64_t count,
                                                       std::span<const client::MatrixException> exceptions);
// "7 ok, 1 not_converged".
std::string statuses_text(const std::map<client::MatrixStatus, int64_t>& tally);
// Lines about the matrices that are not ok: all, or the first ten and how many more there are.
std::string exceptions_text(const MatrixStack& stack, std::span<const client::MatrixException> exceptions, bool all);
// The largest condition number of an eigenvalue, and that of the eigenvectors of a matrix; those that are not numbers do
// not count. conditions: a plane of the batch.
std::pair<double, double> largest_conditions(const client::Batch& batch, std::span<const std::byte> conditions);

// The results in lines, without times: what the matrices are, their values in a few numbers, and which are not ok.
std::string summary_text(const StackReport& report, bool verbose);
// "0.85 ms by bidiagonal on host:0, 118 thousand matrices/s".
std::string time_text(const StackReport& report);
// The server's times and the work, in lines for --verbose.
std::string work_text(const StackReport& report);

// Prints what the context wants: an object of JSON with all reports; or for each report the summary, and its time to
// stderr. values: all values of the matrices go to stdout, too, one matrix a line. They have digits enough to be read
// back exactly; those of several files stand below their names. Fails where stdout does not take them.
client::Status print_reports(const Context& context, std::span<const StackReport> reports, bool values = false);

}  // namespace svdserve::cli
#endif  // SVDSERVE_CLIENT_CLI_REPORT_SUMMARY_H_
