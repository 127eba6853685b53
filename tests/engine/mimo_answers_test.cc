// MIMO numbers against a reference in higher precision from the returned singular values. The channels are
// measured-like, random, graded, and at the edges of range and rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "engine/svd_engine.h"
#include "tests/support/numerics/effort.h"
#include "tests/support/numerics/engine_run.h"
#include "tests/support/numerics/matrix_generators.h"
#include "tests/support/numerics/planes_run.h"
#include "tests/support/numerics/reference_mimo.h"

namespace svdserve::numerics {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Options all_answers(std::vector<double> snr_db, int64_t group = 1, double threshold = 1e-3) {
  return {.mimo = all_mimo_numbers(std::move(snr_db), group, threshold)};
}

// The error that is bounded: relative, absolute where less than 1 is expected.
double error_of(double actual, Real expected) {
  if (std::isinf(actual) && actual > std::numeric_limits<float>::max() && expected > 1e300L) return 0;
  return static_cast<double>(std::abs(actual - expected) / std::max<Real>(1, std::abs(expected)));
}

class MimoAnswersTest : public ::testing::TestWithParam<DType> {
 protected:
  double bound() const { return value_bytes(GetParam()) == 8 ? 1e-12 : 1e-5; }
  double largest() const { return real_type(GetParam()).largest; }

  // One answer; what the type cannot hold is +inf there.
  void check(const char* what, double actual, Real expected, const std::string& where) {
    if (expected > Real(largest())) expected = kInfinity;
    const double error =
        std::isinf(static_cast<double>(expected)) ? (actual == kInfinity ? 0 : kInfinity) : error_of(actual, expected);
    if (!(error <= worst_[what])) worst_[what] = error;
    if (error <= bound()) return;
    ADD_FAILURE() << what << " " << where << ": " << actual << ", expected " << static_cast<double>(expected);
  }

  // All answers of all matrices from the values that came with them.
  PlanesResult check_batch(const Plan& plan, const std::vector<std::byte>& bytes, int64_t count,
                           const std::string& where) {
    const PlanesResult r = run_planes(engine_, plan, bytes.data(), count);
    const int64_t k = values_per_matrix(plan.problem), group = plan.outputs.group, snrs = plan.outputs.snr_count;
    const DType dtype = plan.problem.dtype;
    for (int64_t m = 0; m < count; m += group) {
      const std::string at = where + " matrix " + std::to_string(m);
      const std::vector<double> s = r.numbers(dtype, Plane::kValues, m * k, group * k);
      const auto capacity = r.numbers(dtype, Plane::kCapacity, m / group * snrs, snrs);
      const auto filled = r.numbers(dtype, Plane::kWaterFilling, m / group * snrs, snrs);
      for (int64_t x = 0; x < snrs; ++x) {
        const double snr = plan.outputs.snr[static_cast<size_t>(x)];
        const std::string at_snr = at + " snr " + std::to_string(10 * std::log10(snr)) + " dB";
        check("capacity", capacity[static_cast<size_t>(x)], reference_capacity(s, snr, plan.problem.cols), at_snr);
        check("water-filling", filled[static_cast<size_t>(x)],
              reference_water_filling(s, snr, static_cast<double>(group)), at_snr);
      }
      for (int64_t i = 0; i < group; ++i) {
        check_matrix(plan, r, m + i, std::vector<double>(s.begin() + i * k, s.begin() + (i + 1) * k), at);
      }
    }
    return r;
  }

  void check_matrix(const Plan& plan, const PlanesResult& r, int64_t m, const std::vector<double>& s,
                    const std::string& at) {
    const DType dtype = plan.problem.dtype;
    const int64_t k = values_per_matrix(plan.problem), snrs = plan.outputs.snr_count;
    const auto stream_snr = r.numbers(dtype, Plane::kStreamSnr, m * snrs * k, snrs * k);
    for (int64_t x = 0; x < snrs * k; ++x) {
      const double value = s[static_cast<size_t>(x % k)];
      const Real expected = Real(plan.outputs.snr[static_cast<size_t>(x / k)]) * value * value / plan.problem.cols;
      check("stream SNR", stream_snr[static_cast<size_t>(x)], expected, at);
    }
    const auto one = [&](Plane plane) { return r.numbers(dtype, plane, m, 1)[0]; };
    for (const MatrixReference& reference : kMatrixReferences) {
      check(reference.name, one(reference.plane), reference.of(s), at);
    }
    const double threshold = value_bytes(dtype) == 4 ? static_cast<double>(static_cast<float>(1e-3)) : 1e-3;
    const auto above = std::count_if(s.begin(), s.end(), [&](double x) { return x > threshold * s[0]; });
    EXPECT_EQ(one(Plane::kThresholdRank), static_cast<double>(above)) << at;
  }

  void print_worst(const char* what) const {
    std::printf("%s %s: worst error", name(GetParam()), what);
    for (const auto& [answer, worst] : worst_) std::printf("  %s %.2g", answer.c_str(), worst);
    std::printf("\n");
  }

  std::vector<std::byte> diagonal(int64_t rows, int64_t cols, const std::vector<std::vector<double>>& values) const {
    std::vector<Matrix> all;
    for (const auto& d : values) {
      all.emplace_back(GetParam(), rows, cols);
      for (size_t i = 0; i < d.size(); ++i) all.back().at(static_cast<int64_t>(i), static_cast<int64_t>(i)) = d[i];
      round_to_dtype(all.back());
    }
    return pack(all, Order::kRowMajor);
  }
  Plan plan(int64_t rows, int64_t cols, const Options& options) const {
    return plan_of({rows, cols, GetParam(), Order::kRowMajor}, options);
  }

  const SvdEngine engine_{EngineOptions{.threads = 2}};
  std::map<std::string, double> worst_;
};

const std::vector<double> kUsualSnrs{-60, -35, -20, -10, -3, 0, 3, 10, 17, 30, 45, 60, 80, 100};
const std::vector<double> kAllSnrs{-300, -200, -100, -60, 0, 60, 100, 200, 300};

TEST_P(MimoAnswersTest, MatricesOfEveryKind) {
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                           {2, 2},
                                                                           {4, 4},
                                                                           {3, 7},
                                                                           {8, 8},
                                                                           {4, 64},
                                                                           {9, 9},
                                                                           {17, 12},
                                                                           {32, 32},
                                                                           {2, 300},
                                                                           {64, 16},
                                                                           {40, 40},
                                                                           {64, 100},
                                                                           {96, 96}}) {
    if (!is_long_run() && std::min(rows, cols) > (kSanitized ? 17 : 40)) continue;
    for (const int64_t group : {int64_t{1}, int64_t{7}}) {
      std::vector<Matrix> matrices;
      const int64_t seeds = scaled(6);
      for (const Kind kind : kinds(GetParam())) {
        for (int64_t seed = 0; seed < seeds; ++seed) {
          matrices.push_back(generate(kind, GetParam(), rows, cols, static_cast<uint64_t>(seed)));
        }
      }
      // Out of range and its ranks: another test.
      std::erase_if(matrices, [&](const Matrix& a) {
        double size = 0;
        for (const auto& z : a.elements) size += std::abs(z.real()) / largest() + std::abs(z.imag()) / largest();
        return size > 0.5;
      });
      matrices.resize(matrices.size() / 7 * 7);
      const std::string where = std::to_string(rows) + "x" + std::to_string(cols) + " of " + std::to_string(group);
      check_batch(plan(rows, cols, all_answers(kUsualSnrs, group)), pack(matrices, Order::kRowMajor),
                  static_cast<int64_t>(matrices.size()), where);
      check_batch(plan(rows, cols, all_answers(kAllSnrs, group)), pack(matrices, Order::kRowMajor),
                  static_cast<int64_t>(matrices.size()), where);
    }
  }
  print_worst("every kind");
}

// As many streams as a batch may have, alone and in groups.
TEST_P(MimoAnswersTest, ManyStreams) {
  Random random(11);
  for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{{129, 129}, {200, 140}, {512, 512}}) {
    if (kSanitized && rows > 200) continue;
    for (const int64_t group : {int64_t{1}, int64_t{3}}) {
      std::vector<std::vector<double>> values(6);
      for (size_t i = 0; i < values.size(); ++i) {
        for (int64_t j = 0; j < std::min(rows, cols); ++j) {
          const double far = static_cast<double>(j) / 40;
          values[i].push_back(i == 0 ? 1.5 : i == 1 ? std::pow(10, -far) : random.uniform() * random.uniform());
        }
      }
      const std::string where = std::to_string(rows) + "x" + std::to_string(cols) + " of " + std::to_string(group);
      check_batch(plan(rows, cols, all_answers(kUsualSnrs, group)), diagonal(rows, cols, values), 6, where);
      check_batch(plan(rows, cols, all_answers(kAllSnrs, group)), diagonal(rows, cols, values), 6, where);
    }
  }
  print_worst("many streams");
}

// Rank one, one stream off, equal streams, two that differ by one bit, all far apart, alone and in groups.
TEST_P(MimoAnswersTest, EdgesOfRankAndRange) {
  const double u = real_type(GetParam()).unit_roundoff, big = largest() / 8,
               small = real_type(GetParam()).smallest_normal, least = real_type(GetParam()).smallest_denormal;
  std::vector<std::vector<double>> values{{1, 0, 0, 0},
                                          {1, 1, 1, 0},
                                          {1, 1, 1, 1},
                                          {1 + 2 * u, 1, 1, 1},
                                          {3, 3, 3 - 4 * u, 1e-3},
                                          {big, big / 2, 1, small},
                                          {big, 1, small, least},
                                          {big, big, big, big},
                                          {1, small, least, 0},
                                          {small, small, small / 2, least},
                                          {least, least, least, least},
                                          {5 * least, least, 0, 0},
                                          {0, 0, 0, 0},
                                          {1e10, 1e-10, 1e-10, 1e-12}};
  Random random(3);
  for (int64_t i = 0; i < scaled(3000); ++i) {
    const double range = value_bytes(GetParam()) == 4 ? 37 : 300;
    std::vector<double> s;
    for (int j = 0; j < 4; ++j) s.push_back(std::pow(10, random.uniform(-1, 1) * (random.coin() ? 2 : range)));
    values.push_back(s);
  }
  for (const int64_t group : {1, 2, 3}) {
    const auto count = static_cast<int64_t>(values.size() / 6 * 6);
    const std::vector<std::byte> bytes = diagonal(4, 4, values);
    for (const auto& snrs : {kUsualSnrs, kAllSnrs}) {
      check_batch(plan(4, 4, all_answers(snrs, group)), bytes, count, "edges in groups of " + std::to_string(group));
    }
  }
  print_worst("edges");
}

TEST_P(MimoAnswersTest, AZeroChannel) {
  for (const int64_t group : {1, 5}) {
    const Plan p = plan(3, 4, all_answers(kAllSnrs, group));
    const std::vector<std::byte> bytes = diagonal(3, 4, std::vector<std::vector<double>>(10));
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 10);
    const auto every = [&](Plane plane, Real expected) {
      const auto& plane_of = r.planes[static_cast<size_t>(plane)];
      const auto n = static_cast<int64_t>(plane_of.size() / value_bytes(GetParam()));
      for (const double x : r.numbers(GetParam(), plane, 0, n)) {
        EXPECT_EQ(x, expected) << index_of(plane);
        EXPECT_FALSE(std::signbit(x));
      }
    };
    for (const Plane plane : {Plane::kCapacity, Plane::kWaterFilling, Plane::kStreamSnr, Plane::kThresholdRank}) {
      every(plane, 0);
    }
    for (const MatrixReference& reference : kMatrixReferences) every(reference.plane, reference.of({0, 0, 0}));
  }
}

TEST_P(MimoAnswersTest, WhatIsNotFiniteIsNanForItsGroupAlone) {
  for (const int64_t group : {1, 3}) {
    const Plan p = plan(2, 2, all_answers({-10, 20}, group));
    std::vector<std::vector<double>> values(12, {2, 1});
    values[4] = {std::nan(""), 1};
    values[8] = {1, kInfinity};
    const std::vector<std::byte> bytes = diagonal(2, 2, values);
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 12);
    const size_t number = value_bytes(GetParam());
    for (const MimoPlane& m : kMimoPlanes) {
      const int i = index_of(m.plane);
      const int64_t unit = m.extent == MimoPlane::kSnrsOfGroup ? group : 1,
                    each = static_cast<int64_t>(plane_bytes(p, m.plane, group) / number) * unit / group;
      for (int64_t x = 0; x < 12 / unit * each; ++x) {
        const int64_t part = x / each;
        const std::byte* const at = r.planes[static_cast<size_t>(i)].data() + static_cast<size_t>(x) * number;
        const bool poisoned = part == 4 / unit || part == 8 / unit;
        EXPECT_EQ(is_canonical_nan(GetParam(), at), poisoned) << "plane " << i << " number " << x;
        EXPECT_NE(std::isfinite(load_values(GetParam(), at, 1)[0]), poisoned);
      }
    }
  }
}

TEST_P(MimoAnswersTest, OutOfRangeHasInfiniteCapacity) {
  const double big = largest();
  for (const int64_t group : {1, 2}) {
    Matrix a(GetParam(), 2, 2), one(GetParam(), 2, 2);
    a.at(0, 0) = a.at(0, 1) = big;  // s = (1.4 big, 0)
    one.at(0, 0) = one.at(1, 1) = 1;
    const Plan p = plan(2, 2, all_answers({-300, 0, 300}, group));
    const std::vector<std::byte> bytes = pack({a, one}, Order::kRowMajor);
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 2);
    EXPECT_EQ(r.statuses[0], MatrixStatus::kOutOfRange);
    for (const Plane plane : {Plane::kCapacity, Plane::kWaterFilling}) {
      for (const double x : r.numbers(GetParam(), plane, 0, 3)) EXPECT_EQ(x, kInfinity);
    }
    EXPECT_EQ(r.numbers(GetParam(), Plane::kStreamSnr, 0, 1)[0], kInfinity);
    EXPECT_EQ(r.numbers(GetParam(), Plane::kConditionNumber, 0, 1)[0], kInfinity);
    EXPECT_TRUE(std::isnan(r.numbers(GetParam(), Plane::kEffectiveRank, 0, 1)[0]));
    EXPECT_TRUE(std::isnan(r.numbers(GetParam(), Plane::kThresholdRank, 0, 1)[0]));
  }
}

// Long groups: what a partial sum in single precision would lose shows with equal terms.
TEST_P(MimoAnswersTest, LongGroups) {
  for (const int64_t group : {1000, 16384}) {
    std::vector<std::vector<double>> values(static_cast<size_t>(group), {1.1, 0.7, 0.3});
    check_batch(plan(3, 3, all_answers({-20, 0, 10, 40}, group)), diagonal(3, 3, values), group, "equal");
    Random random(9);
    for (auto& s : values) s = {random.uniform(), random.uniform() * random.uniform(), std::pow(random.uniform(), 9)};
    check_batch(plan(3, 3, all_answers(kUsualSnrs, group)), diagonal(3, 3, values), group, "random");
  }
  print_worst("long groups");
}

// Values that make elimination leave out few streams a pass: it ends, and with the right level.
TEST_P(MimoAnswersTest, GroupsThatAreSlowToEliminate) {
  std::vector<std::vector<double>> values;
  for (int i = 0; i < 2000; ++i) values.push_back({std::pow(1.02, -i), std::pow(1.01, -i)});
  check_batch(plan(2, 2, all_answers(kUsualSnrs, 2000)), diagonal(2, 2, values), 2000, "geometric");
  for (int i = 0; i < 2000; ++i) {
    values[static_cast<size_t>(i)] = {1 / std::sqrt(1 + 1e-3 * i), 1 / std::sqrt(1 + std::pow(0.99, i))};
  }
  check_batch(plan(2, 2, all_answers(kUsualSnrs, 2000)), diagonal(2, 2, values), 2000, "linear and clustered");
}

// With vectors the values come another way, and so do not have the same bits; the answers are those of theirs.
TEST_P(MimoAnswersTest, BesidesVectors) {
  Options options = all_answers(kUsualSnrs, 3);
  options.vectors = Vectors::kThin;
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {4, 4}, {13, 13}, {4, 9}, {200, 8}}) {
    std::vector<Matrix> matrices;
    for (uint64_t seed = 0; seed < 60; ++seed) matrices.push_back(generate(Kind::kNormal, GetParam(), m, n, seed));
    check_batch(plan(m, n, options), pack(matrices, Order::kRowMajor), 60, "with vectors");
  }
}

// Asked for one by one, without values or with the leading one alone, the bits are those of asking for all.
TEST_P(MimoAnswersTest, WhatElseIsAskedForChangesNothing) {
  const Options all = all_answers({0, 13}, 2);
  std::vector<Matrix> matrices;
  for (uint64_t seed = 0; seed < 50; ++seed) matrices.push_back(generate(Kind::kNormal, GetParam(), 4, 6, seed));
  const std::vector<std::byte> bytes = pack(matrices, Order::kRowMajor);
  const PlanesResult expected = run_planes(engine_, plan(4, 6, all), bytes.data(), 50);
  for (const MimoPlane& wanted : kMimoPlanes) {
    const int only = index_of(wanted.plane);
    Plan p = plan(4, 6, all);
    Outputs& o = p.outputs;
    o.values = only % 2;
    for (const MimoPlane& m : kMimoPlanes) o.*m.output = m.plane == wanted.plane;
    const PlanesResult r = run_planes(engine_, p, bytes.data(), 50);
    EXPECT_EQ(r.planes[static_cast<size_t>(only)], expected.planes[static_cast<size_t>(only)]) << only;
    for (int64_t m = 0; o.values == 1 && m < 50; ++m) {
      EXPECT_EQ(r.numbers(GetParam(), Plane::kValues, m, 1), expected.numbers(GetParam(), Plane::kValues, 4 * m, 1));
    }
    // And null: not wanted after all.
    const HostSegment nothing{bytes.data(), 50, {}, nullptr};
    EXPECT_TRUE(engine_.execute(p, {&nothing, 1}).completed);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, MimoAnswersTest,
                         ::testing::Values(DType::kF32, DType::kF64, DType::kC64, DType::kC128),
                         [](const auto& info) { return std::string(name(info.param)); });

// --- channels of 3GPP TR 38.901's cluster delay line ---------------------------------------------------------------

// The elements of a C-ordered complex64 .npy file whose last dimensions are rows x cols.
std::vector<std::byte> load_channels(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string all((std::istreambuf_iterator<char>(file)), {});
  if (all.size() < 10) return {};
  const size_t header = 10 + static_cast<unsigned char>(all[8]) + 256 * static_cast<unsigned char>(all[9]);
  std::vector<std::byte> bytes(all.size() - header);
  std::memcpy(bytes.data(), all.data() + header, bytes.size());
  return bytes;
}

struct ChannelSet {
  const char* file;
  int64_t rows, cols;
  double mean_capacity;  // at 10 dB with equal power, as NumPy has it; 0: not known
};

class CdlTest : public MimoAnswersTest {};

// SVDSERVE_CDL_CHANNELS: a folder with more sets than the repository's one.
TEST_P(CdlTest, Channels) {
  const char* const other = std::getenv("SVDSERVE_CDL_CHANNELS");
  const std::string folder = other != nullptr ? other : TEST_DATA;
  int found = 0;
  for (const ChannelSet& set : {ChannelSet{"cdl_c_4x4.npy", 4, 4, 9.796857},
                                {"cdl_a_8x8.npy", 8, 8, 18.103140},
                                {"cdl_d_4x64.npy", 4, 64, 7.955041},
                                {"cdl_a_32x32.npy", 32, 32, 0}}) {
    const std::vector<std::byte> bytes = load_channels(folder + "/" + set.file);
    if (bytes.empty()) continue;
    ++found;
    for (const int64_t group : {1, 12}) {
      const Plan p = plan(set.rows, set.cols, all_answers(kUsualSnrs, group));
      const auto count = static_cast<int64_t>(bytes.size() / matrix_bytes(p.problem) / 12 * 12);
      const PlanesResult r = check_batch(p, bytes, count, set.file);
      const size_t at_10_db = 7;
      double sum = 0;
      for (int64_t m = 0; m < count / group; ++m) {
        sum += r.numbers(GetParam(), Plane::kCapacity, m * p.outputs.snr_count, p.outputs.snr_count)[at_10_db];
      }
      std::printf("%s, groups of %lld: %.6f bit/s/Hz at 10 dB\n", set.file, static_cast<long long>(group),
                  sum / static_cast<double>(count));
      if (set.mean_capacity == 0) continue;
      EXPECT_NEAR(sum / static_cast<double>(count), set.mean_capacity, 2e-6);
    }
  }
  EXPECT_GT(found, 0);
  print_worst("CDL channels");
}

INSTANTIATE_TEST_SUITE_P(DTypes, CdlTest, ::testing::Values(DType::kC64),
                         [](const auto& info) { return std::string(name(info.param)); });

}  // namespace
}  // namespace svdserve::numerics
