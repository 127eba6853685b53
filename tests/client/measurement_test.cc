// The report of a run of load, from figures that are not measured.
#include "client/cli/load/measurement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

namespace svdserve::cli {
namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;

// 1000 requests: 989 take 1 ms, 10 take 2 ms, one takes 50 ms.
Measurement example() {
  Measurement m{.load = {.address = "127.0.0.1:50051",
                         .server_version = "1,2",
                         .shapes = "4x4,8x2:2",
                         .dtypes = "c64",
                         .problem = "svd",
                         .method = "auto",
                         .count = 1000,
                         .concurrency = 4}};
  m.seconds = 2;
  m.client_cpu_seconds = 0.5;
  for (int i = 0; i < 989; ++i) m.tally.latency.add(microseconds(1000));
  for (int i = 0; i < 10; ++i) m.tally.latency.add(microseconds(2000));
  m.tally.latency.add(microseconds(50000));
  m.tally.ok = 1000;
  m.tally.refused = 3;
  m.tally.matrices = 1000000;
  m.tally.request_bytes = 128000000;
  m.tally.errors = {{"RESOURCE_EXHAUSTED OVERLOADED_BYTES", 3}};
  m.tally.messages = {{"RESOURCE_EXHAUSTED OVERLOADED_BYTES", "full"}};
  return m;
}

TEST(Measurement, PercentilesOfFewRequestsAreLeftOut) {
  Measurement m = example();
  m.tally.ok = 999;
  EXPECT_NE(report_text(m).find("p90 1 ms, p99 2.01 ms, most 50 ms"), std::string::npos) << report_text(m);
  m.tally.ok = 99;
  EXPECT_NE(report_text(m).find("p90 1 ms, most 50 ms"), std::string::npos) << report_text(m);
}

TEST(Measurement, IsReportedInHumanUnits) {
  Measurement m = example();
  m.server = Measurement::Server{1.25, 64 << 20, 80 << 20, 96 << 20};
  EXPECT_EQ(report_text(m),
            "closed loop, 4 callers; 1000 matrices a request, 4x4,8x2:2 c64, svd by auto\n"
            "requests   1000 ok, 3 rejected, 0 expired, 0 failed in 2 s\n"
            "rate       500 requests/s, 500 thousand matrices/s, 0.064 GB/s\n"
            "latency    median 1 ms, p90 1 ms, p99 2.01 ms, p99.9 2.01 ms, most 50 ms\n"
            "client     500 ms of processor time, 3.91 s a GB\n"
            "server     1.25 s of processor time, 9.77 s a GB; memory 64 MiB before, 80 MiB warm, 96 MiB at the end\n" +
                histogram_text(m.tally.latency) + "error RESOURCE_EXHAUSTED OVERLOADED_BYTES, 3 times: full\n");
  m.load = {.shapes = "4x4",
            .dtypes = "f32",
            .problem = "eig",
            .method = "qr",
            .vectors = "thin",
            .request_bytes = 1 << 20,
            .rate = 2500};
  EXPECT_THAT(report_text(m),
              ::testing::StartsWith(
                  "open loop, 2500 requests/s offered; 1 MiB a request, 4x4 f32, eig by qr with thin vectors\n"));
}

TEST(Measurement, HasAHistogram) {
  const std::vector<HistogramRow> rows = histogram_rows(example().tally.latency);
  ASSERT_GE(rows.size(), 3u);
  EXPECT_EQ(rows.front().count, 989);
  EXPECT_NEAR(rows.back().up_to_seconds, 50e-3, 1e-9);
  EXPECT_EQ(rows.back().count, 1);
  int64_t sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    sum += rows[i].count;
    EXPECT_GT(rows[i].up_to_seconds, i == 0 ? 0 : rows[i - 1].up_to_seconds);
  }
  EXPECT_EQ(sum, 1000);
  const std::string text = histogram_text(example().tally.latency);
  EXPECT_THAT(text, HasSubstr(" 989 " + std::string(50, '#') + "\n"));
  EXPECT_THAT(text, HasSubstr(" 1 #\n"));
  EXPECT_EQ(histogram_text(Histogram()), "");
}

TEST(Measurement, OneLatencyIsOneRow) {
  Histogram one;
  one.add(microseconds(7));
  EXPECT_EQ(histogram_text(one), "  to      7 us          1 " + std::string(50, '#') + "\n");
  Histogram none;
  none.add(microseconds(0));
  EXPECT_EQ(histogram_rows(none).size(), 1u);
}

TEST(Measurement, ALineOfCsvHasACellForEachColumn) {
  const Measurement m = example();
  const std::string head = csv_head(m), line = csv_line(m);
  EXPECT_EQ(std::count(head.begin(), head.end(), ','), std::count(line.begin(), line.end(), ','));
  EXPECT_THAT(head, ::testing::StartsWith("machine,address,server_version,loop,rpc,shape,dtype,problem,method,count,"));
  EXPECT_THAT(line, HasSubstr(",127.0.0.1:50051,1 2,closed,unary,4x4 8x2:2,c64,svd,auto,1000,4,1,1,0,2,1000,3,0,0,0,"));
  EXPECT_THAT(line, ::testing::EndsWith(",0.05,0.5,3.90625,,,,,,none\n"));
}

}  // namespace
}  // namespace svdserve::cli
