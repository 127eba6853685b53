// The lines that svdctl prints about a stack, to the letter. They have no times, which stand in lines of their own.
#include "client/cli/report/summary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

using client::DataType;
using client::MatrixStatus;

MatrixStack stack_of(std::vector<int64_t> batch_shape, int64_t rows, int64_t cols, DataType type) {
  MatrixStack stack{.batch_shape = std::move(batch_shape), .path = "a.npy"};
  int64_t count = 1;
  for (const int64_t size : stack.batch_shape) count *= size;
  stack.batch = {.rows = rows, .cols = cols, .count = count, .data_type = type};
  return stack;
}

template <class T>
StackReport report_of(const MatrixStack& stack, const std::vector<T>& numbers, int64_t per_matrix, Values kind) {
  return {.stack = stack,
          .kind = kind,
          .values_per_matrix = per_matrix,
          .values = std::as_bytes(std::span(numbers)),
          .is_computed = true};
}

TEST(Summary, OfOneMatrix) {
  const MatrixStack stack = stack_of({}, 20, 12, DataType::kF64);
  const std::vector<double> s = {12.25, 8, 7, 6, 5, 4, 3, 2, 1, 0.5, 0.25, 1e-15};
  EXPECT_EQ(summary_text(report_of(stack, s, 12, Values::kSingular), false),
            "a.npy: 1 matrix of 20x12 f64\n"
            "largest         12.25\n"
            "smallest        1e-15\n"
            "condition       1.225e+16\n"
            "numerical rank  11 of 12\n"
            "values          12.25 8 7 6 5 4 3 2 1 0.5 and 2 more\n");
}

TEST(Summary, OfAStackThatIsOk) {
  const MatrixStack stack = stack_of({3, 1}, 2, 2, DataType::kC64);
  const std::vector<float> s = {4, 2, 3, 0.5F, 8, 0};
  EXPECT_EQ(summary_text(report_of(stack, s, 2, Values::kSingular), false),
            "a.npy: 3 matrices of 2x2 c64, all ok\n"
            "largest           3 to 8\n"
            "smallest          0 to 2\n"
            "condition         2 to inf\n"
            "numerical rank    1 to 2 of 2\n"
            "values of [0, 0]  4 2\n");
}

TEST(Summary, ListsTheFirstMatricesThatAreNotOk) {
  const MatrixStack stack = stack_of({13}, 1, 1, DataType::kF64);
  std::vector<double> s(13, std::nan(""));
  s[0] = 7;
  StackReport report = report_of(stack, s, 1, Values::kSingular);
  for (int64_t i = 1; i < 13; ++i) report.exceptions.push_back({i, MatrixStatus::kNonFinite});
  report.exceptions[0].status = MatrixStatus::kNotConverged;
  report.exceptions[1].status = MatrixStatus::kOutOfRange;
  const std::string head =
      "a.npy: 13 matrices of 1x1 f64: 1 ok, 10 non_finite, 1 not_converged, 1 out_of_range\n"
      "largest         7\n"
      "smallest        7\n"
      "condition       1\n"
      "numerical rank  1 of 1\n"
      "values of [0]   7\n"
      "matrix [1]: not_converged: the iteration limit was reached, and the results are the best so far\n"
      "matrix [2]: out_of_range: a value is too large for its type\n";
  std::string listed;
  for (int i = 3; i < 13; ++i) {
    listed += "matrix [" + std::to_string(i) + "]: non_finite: it has an infinity or a NaN\n";
    if (i != 10) continue;
    EXPECT_EQ(summary_text(report, false), head + listed + "and 2 more that are not ok\n");
  }
  EXPECT_EQ(summary_text(report, true), head + listed);
}

TEST(Summary, OfOneMatrixThatIsNotFinite) {
  const MatrixStack stack = stack_of({}, 2, 2, DataType::kF64);
  const std::vector<double> s(2, std::nan(""));
  StackReport report = report_of(stack, s, 2, Values::kSingular);
  report.exceptions = {{0, MatrixStatus::kNonFinite}};
  EXPECT_EQ(summary_text(report, false),
            "a.npy: 1 matrix of 2x2 f64: 1 non_finite\n"
            "values  nan nan\n"
            "matrix: non_finite: it has an infinity or a NaN\n");
}

TEST(Summary, OfLeadingValuesHasNeitherConditionNorRank) {
  const MatrixStack stack = stack_of({}, 200, 100, DataType::kF64);
  const std::vector<double> s = {3, 2};
  StackReport report = report_of(stack, s, 2, Values::kSingular);
  report.complete = false;
  EXPECT_EQ(summary_text(report, false),
            "a.npy: 1 matrix of 200x100 f64\n"
            "largest            3\n"
            "smallest computed  2\n"
            "values             3 2\n");
}

TEST(Summary, OfEigenvaluesKnowsTheirSigns) {
  const MatrixStack stack = stack_of({}, 3, 3, DataType::kF64);
  const std::vector<double> w = {-4, 0.5, 2};
  StackReport report = report_of(stack, w, 3, Values::kEigenvalues);
  report.certificate = client::Certificate{.residual = 1e-16, .left_orthogonality = 2e-16};
  report.factor_condition = 5;
  report.rank = 3;
  EXPECT_EQ(summary_text(report, false),
            "a.npy: 1 matrix of 3x3 f64\n"
            "largest         2\n"
            "smallest        -4\n"
            "condition       8\n"
            "numerical rank  3 of 3\n"
            "eigenvalues     -4 0.5 2\n"
            "certificate     residual 1e-16, orthogonality of V 2e-16, condition of G 5, rank 3\n");
}

TEST(Summary, OfComplexEigenvaluesHasMagnitudes) {
  const MatrixStack stack = stack_of({1}, 2, 2, DataType::kF64);
  const std::vector<double> w = {3, 4, 3, -4}, conditions = {1, 2};
  StackReport report = report_of(stack, w, 2, Values::kComplex);
  report.conditions = std::as_bytes(std::span(conditions));
  report.certificate = client::Certificate{.residual = 3e-16};
  EXPECT_EQ(summary_text(report, false),
            "a.npy: 1 matrix of 2x2 f64\n"
            "largest magnitude   5\n"
            "smallest magnitude  5\n"
            "largest real part   3\n"
            "eigenvalues of [0]  3+4j 3-4j\n"
            "largest condition   2 of an eigenvalue, 3.16 of V\n"
            "certificate         residual 3e-16\n");
}

TEST(Summary, OfAHyperbolicDecompositionHasNoCondition) {
  const MatrixStack stack = stack_of({}, 3, 2, DataType::kF64);
  const std::vector<double> s = {1, 2};
  StackReport report = report_of(stack, s, 2, Values::kHyperbolic);
  report.certificate = client::Certificate{1e-16, 2e-16, 3e-16};
  EXPECT_EQ(summary_text(report, false),
            "a.npy: 1 matrix of 3x2 f64\n"
            "largest      2\n"
            "smallest     1\n"
            "values       1 2\n"
            "certificate  residual 1e-16, orthogonality of U 2e-16, of V 3e-16\n");
}

TEST(Summary, OfNothingSaysSo) {
  MatrixStack stack = stack_of({0}, 4, 4, DataType::kF32);
  stack.path = "-";
  EXPECT_EQ(summary_text({.stack = stack}, false), "standard input: 0 matrices of 4x4 f32, without elements\n");
}

TEST(Summary, TimesStandAlone) {
  const MatrixStack stack = stack_of({1000}, 4, 4, DataType::kF64);
  StackReport report{.stack = stack};
  report.add(client::Report{.count = 1000,
                            .method = client::Method::kBidiagonal,
                            .device = "host:0",
                            .queue_seconds = 1e-5,
                            .compute_seconds = 5e-4,
                            .total_seconds = 7.1e-4});
  report.seconds = 8.5e-4;
  EXPECT_EQ(time_text(report), "0.85 ms by bidiagonal on host:0, 1.18 million matrices/s\n");
  EXPECT_EQ(work_text(report), "queue 10 us, compute 0.5 ms, total 0.71 ms; 1 message\n");
  const MatrixStack one = stack_of({}, 4000, 4000, DataType::kF64);
  StackReport large{.stack = one, .seconds = 3};
  large.add(client::LargeReport{.device = "cuda:0", .sweeps = 1, .rotations = 9, .upload_seconds = 2}, 0);
  EXPECT_EQ(time_text(large), "3 s on cuda:0\n");
  EXPECT_EQ(work_text(large),
            "upload 2 s, queue 0 s, compute 0 s, download 0 s\n"
            "1 sweep, 9 rotations, 0 of them proper\n");
  StackReport gang{.stack = one, .seconds = 3};
  gang.add(client::LargeReport{.device = "cuda:0,cuda:1", .sweeps = 3, .rotations = 9, .members = 2}, 0);
  EXPECT_EQ(time_text(gang), "3 s on cuda:0,cuda:1\n");
  EXPECT_EQ(work_text(gang),
            "upload 0 s, queue 0 s, compute 0 s, download 0 s\n"
            "3 sweeps on 2 devices together, 9 rotations, 0 of them proper\n");
}

TEST(Units, HaveThreeDigits) {
  const std::vector<std::pair<double, std::string>> durations = {
      {0, "0 s"},           {3e-9, "3 ns"},         {85.4e-6, "85.4 us"},
      {0.85e-3, "0.85 ms"}, {0.999e-3, "0.999 ms"}, {12.34e-3, "12.3 ms"},
      {0.9996, "1 s"},      {1.5, "1.5 s"},         {99.97, "100 s"},
      {119.4, "119 s"},     {125, "2 min 5 s"},     {180, "3 min"},
      {10921, "3 h 2 min"}, {-0.01, "-10 ms"},      {HUGE_VAL, "inf s"}};
  for (const auto& [seconds, text] : durations) EXPECT_EQ(duration_text(seconds), text);
  const std::vector<std::pair<int64_t, std::string>> sizes = {
      {0, "0 bytes"},           {1, "1 byte"},        {1023, "1023 bytes"},
      {1536, "1.5 KiB"},        {64 << 20, "64 MiB"}, {int64_t{6} << 30, "6 GiB"},
      {(1 << 20) - 1, "1 MiB"}, {INT64_MAX, "8 EiB"}, {-1, "-1 byte"}};
  for (const auto& [bytes, text] : sizes) EXPECT_EQ(bytes_text(bytes), text);
  const std::vector<std::pair<double, std::string>> amounts = {{0.5, "0.5"},
                                                               {1180, "1180"},
                                                               {9999.6, "10 thousand"},
                                                               {118400, "118 thousand"},
                                                               {1.18e6, "1.18 million"},
                                                               {2.5e9, "2.5 billion"}};
  for (const auto& [amount, text] : amounts) EXPECT_EQ(amount_text(amount), text);
}

}  // namespace
}  // namespace svdserve::cli
