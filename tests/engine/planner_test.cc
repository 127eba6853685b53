// The planner: every refusal names its field, AUTO and the defaults are resolved, tolerances are clamped.
#include "engine/planner.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace svdserve {
namespace {

constexpr Problem kSquare{4, 4, DType::kF64, Order::kRowMajor};
constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kC64, DType::kC128};

void expect_refused(const Problem& problem, const Options& options, const std::string& field) {
  const PlanOrError made = make_plan(problem, options);
  EXPECT_FALSE(made.plan.has_value());
  EXPECT_EQ(made.error.field, field);
  EXPECT_FALSE(made.error.message.empty());
}

Plan planned(const Problem& problem, const Options& options) {
  const PlanOrError made = make_plan(problem, options);
  EXPECT_TRUE(made.plan.has_value()) << made.error.field << ": " << made.error.message;
  EXPECT_EQ(made.error.field, "");
  return made.plan.value_or(Plan{});
}

double unit_roundoff(DType dtype) { return value_bytes(dtype) == 4 ? 0x1p-24 : 0x1p-53; }

TEST(Planner, RefusesSizesOutsideTheLimits) {
  for (const int64_t size : {int64_t{0}, int64_t{-1}, kShapeLimits.max_dimension + 1,
                             std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()}) {
    expect_refused({size, 4, DType::kF64, Order::kRowMajor}, {}, "rows");
    expect_refused({4, size, DType::kF64, Order::kRowMajor}, {}, "cols");
    expect_refused({size, size, DType::kF64, Order::kRowMajor}, {}, "rows");
  }
}

TEST(Planner, RefusesTooManyValuesAtTheShorterSide) {
  const int64_t k = kShapeLimits.max_values;
  expect_refused({k + 1, k + 1, DType::kF32, Order::kRowMajor}, {}, "rows");
  expect_refused({k + 1, 1000, DType::kF32, Order::kRowMajor}, {}, "rows");
  expect_refused({1000, k + 1, DType::kF32, Order::kRowMajor}, {}, "cols");
}

TEST(Planner, AcceptsTheLimitsThemselves) {
  for (const DType dtype : kDTypes) {
    planned({1, 1, dtype, Order::kRowMajor}, {});
    planned({kShapeLimits.max_values, kShapeLimits.max_values, dtype, Order::kColumnMajor}, {});
    planned({kShapeLimits.max_dimension, kShapeLimits.max_values, dtype, Order::kRowMajor}, {});
    planned({1, kShapeLimits.max_dimension, dtype, Order::kRowMajor}, {});
  }
}

TEST(Planner, KeepsTheProblemAndIsAFunctionOfTheRequest) {
  const Problem problem{7, 31, DType::kC64, Order::kColumnMajor};
  const Options options{.method = Method::kJacobi, .tolerance = 1e-3, .max_sweeps = 7};
  EXPECT_EQ(planned(problem, options).problem, problem);
  EXPECT_EQ(planned(problem, options), planned(problem, options));
}

TEST(Planner, AutoIsBidiagonalOnACpuAndBeyondItsLimitsJacobiOnAGpu) {
  for (const DType dtype : kDTypes) {
    for (int64_t k = 1; k <= kShapeLimits.max_values; ++k) {
      const Problem square{k, k, dtype, Order::kRowMajor}, wide{k, 16384, dtype, Order::kRowMajor};
      EXPECT_EQ(planned(square, {}).method, Method::kBidiagonal);
      EXPECT_EQ(planned(wide, {}).method, k <= 128 ? Method::kBidiagonal : Method::kJacobi);
      for (const Problem& problem : {square, wide}) EXPECT_EQ(planned(problem, {}).host_method, Method::kBidiagonal);
    }
  }
}

TEST(Planner, BothMethodsDifferOnlyBeyondTheLimitOfEqualBits) {
  const auto host_method = [](int64_t k, const Options& options, Method on_gpu = Method::kJacobi) {
    const Plan plan = planned({k, k, DType::kF64, Order::kRowMajor}, options);
    EXPECT_EQ(plan.method, on_gpu) << k;
    return plan.host_method;
  };
  const int64_t last = kLargestReproducible, next = last + 1;
  EXPECT_EQ(host_method(last, {.vectors = Vectors::kThin}), Method::kJacobi);
  EXPECT_EQ(host_method(next, {.vectors = Vectors::kThin}, Method::kBidiagonal), Method::kBidiagonal);
  EXPECT_EQ(host_method(kLargestInGrid + 1, {.vectors = Vectors::kThin}, Method::kBidiagonal), Method::kBidiagonal);
  EXPECT_EQ(host_method(kLargestInMemory, {.vectors = Vectors::kThin}, Method::kBidiagonal), Method::kBidiagonal);
  // Asked for by name, or by an option of its own.
  EXPECT_EQ(host_method(next, {.method = Method::kJacobi}), Method::kJacobi);
  EXPECT_EQ(host_method(next, {.tolerance = 1e-6}), Method::kJacobi);
  EXPECT_EQ(host_method(next, {.max_sweeps = 20}), Method::kJacobi);
  EXPECT_EQ(host_method(last, {.decomposition = Decomposition::kHermitian}), Method::kJacobi);
  EXPECT_EQ(host_method(next, {.decomposition = Decomposition::kHermitian}, Method::kTridiagonal),
            Method::kTridiagonal);
  EXPECT_EQ(planned({128, 128, DType::kC128, Order::kRowMajor}, {.decomposition = Decomposition::kHermitian}).method,
            Method::kTridiagonal);
}

TEST(Planner, HermitianMatricesBeyondRegistersAreTridiagonalWhateverIsAskedFor) {
  for (const int64_t k : {129, 512}) {
    for (const Options& options : {Options{}, Options{.method = Method::kJacobi}, Options{.tolerance = 1e-9},
                                   Options{.method = Method::kJacobi, .max_sweeps = 5}}) {
      Options hermitian = options;
      hermitian.decomposition = Decomposition::kHermitian;
      const Plan plan = planned({k, k, DType::kF64, Order::kRowMajor}, hermitian);
      EXPECT_EQ(plan.method, Method::kTridiagonal);
      EXPECT_EQ(plan.host_method, Method::kTridiagonal);
    }
  }
}

TEST(Planner, VectorsAndWhatRegistersDoNotHoldGoByRowsOnAGpu) {
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {32, 33, 96, 97, 128, 129, 512}) {
      const Problem problem{k, k, dtype, Order::kRowMajor};
      EXPECT_EQ(is_by_rows(planned(problem, {.vectors = Vectors::kThin})), k > 32);
      EXPECT_EQ(is_by_rows(planned(problem, {})), k > (dtype == DType::kC128 ? 96 : 128));
      EXPECT_FALSE(is_by_rows(planned(problem, {.method = Method::kJacobi, .vectors = Vectors::kThin})));
      for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
        const Options hermitian{.decomposition = Decomposition::kHermitian, .vectors = vectors};
        EXPECT_EQ(is_by_rows(planned(problem, hermitian)), k > 32);
      }
    }
  }
}

TEST(Planner, OptionsOfSweepsMakeAutoJacobiBeyondTheLimitOfEqualBits) {
  const Problem problem{40, 50, DType::kC128, Order::kRowMajor};
  EXPECT_EQ(planned(problem, {}).method, Method::kBidiagonal);
  EXPECT_EQ(planned(problem, {.vectors = Vectors::kThin}).method, Method::kBidiagonal);
  for (const Options& options :
       {Options{.tolerance = 1e-9}, Options{.max_sweeps = 20}, Options{.tolerance = 1e-9, .vectors = Vectors::kThin},
        Options{.max_sweeps = 20, .vectors = Vectors::kThin},
        Options{.decomposition = Decomposition::kHermitian, .tolerance = 1e-9}, Options{.method = Method::kJacobi}}) {
    const Problem square{40, 40, DType::kC128, Order::kRowMajor};
    EXPECT_EQ(planned(options.decomposition == Decomposition::kHermitian ? square : problem, options).method,
              Method::kJacobi);
  }
}

TEST(Planner, RefusesOtherMethodsWhereThereIsJacobiAlone) {
  for (const Method method : {Method::kBidiagonal, Method::kBisection}) {
    for (const Problem& problem :
         {Problem{33, 33, DType::kF64, Order::kRowMajor}, Problem{128, 500, DType::kC64, Order::kColumnMajor},
          Problem{512, 512, DType::kF32, Order::kRowMajor}}) {
      expect_refused(problem, {.method = method}, "method");
    }
    planned({32, 500, DType::kF64, Order::kRowMajor}, {.method = method});
  }
  const PlanError error = make_plan({33, 40, DType::kF64, Order::kRowMajor}, {.method = Method::kBisection}).error;
  EXPECT_NE(error.message.find("up to 32"), std::string::npos) << error.message;
}

TEST(Planner, SaysWhoTakesWhatIsTooLarge) {
  const PlanError error = make_plan({513, 513, DType::kF64, Order::kRowMajor}, {}).error;
  EXPECT_EQ(error.field, "rows");
  EXPECT_NE(error.message.find("DecomposeLarge"), std::string::npos) << error.message;
}

TEST(Planner, TilesHaveAsManyRowsAsColumns) {
  for (int64_t k = 1; k <= kLargestInLanes; ++k) {
    EXPECT_GE(tile_rows_for(k), k);
    if (k <= kLargestReproducible) {
      EXPECT_EQ(tile_rows_for(k), 64);  // part of the bits
    }
  }
}

TEST(Planner, SideBySideOnAGpuIsWhatNoThreadBlockTakesOrTakesLonger) {
  const auto is_so = [](int64_t rows, int64_t cols, DType dtype, Vectors vectors) {
    const Problem problem{rows, cols, dtype, Order::kRowMajor};
    const bool by_auto = is_side_by_side(planned(problem, {.vectors = vectors}));
    EXPECT_EQ(by_auto, rows != cols && values_per_matrix(problem) > 128);
    return is_side_by_side(planned(problem, {.method = Method::kJacobi, .vectors = vectors}));
  };
  for (const DType dtype : kDTypes) {
    const int64_t largest = dtype == DType::kC128 ? 64 : 128;
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      EXPECT_FALSE(is_so(64, 64, dtype, vectors));
      EXPECT_FALSE(is_so(64, 16384, dtype, vectors));
      EXPECT_TRUE(is_so(129, 400, dtype, vectors));
    }
    EXPECT_TRUE(is_so(largest + 1, largest + 1, dtype, Vectors::kThin));
    EXPECT_EQ(is_so(96, 97, dtype, Vectors::kNone), dtype == DType::kC128);
    EXPECT_EQ(is_so(128, 128, dtype, Vectors::kThin), dtype == DType::kF64 || dtype == DType::kC128);
    EXPECT_EQ(is_so(128, 128, dtype, Vectors::kNone), dtype == DType::kC128);
  }
  for (const auto& [k, expected] :
       {std::pair{80, false}, {81, true}, {96, true}, {97, false}, {112, false}, {113, true}}) {
    EXPECT_EQ(is_so(k, k, DType::kF64, Vectors::kThin), expected) << k;
    EXPECT_EQ(is_so(k, 300, DType::kF64, Vectors::kThin), expected) << k;
    EXPECT_FALSE(is_so(k, k, DType::kC64, Vectors::kThin));
  }
}

TEST(Planner, EveryOutputIsThereForLargerMatrices) {
  const Problem problem{512, 600, DType::kC128, Order::kRowMajor};
  Options options{.vectors = Vectors::kFull, .fix_phases = true, .certificate = true};
  options.mimo.capacity = options.mimo.water_filling = options.mimo.stream_snr = true;
  options.mimo.snr_db = {0, 10};
  const Plan full = planned(problem, options);
  EXPECT_EQ(full.outputs.left_columns, 512);
  EXPECT_EQ(full.outputs.right_columns, 600);
  EXPECT_EQ(full.outputs.values, 512);
  EXPECT_EQ(planned(problem, {.vectors = Vectors::kThin, .top_k = 511}).outputs.right_columns, 511);
}

TEST(Planner, KeepsTheMethodAskedFor) {
  for (const Method method : {Method::kBidiagonal, Method::kBisection, Method::kJacobi}) {
    EXPECT_EQ(planned(kSquare, {.method = method}).method, method);
  }
}

TEST(Planner, RefusesTolerancesOutsideTheirRange) {
  for (const double tolerance : {-1.0, -1e-300, 1.0000001, 2.0, std::numeric_limits<double>::infinity(),
                                 -std::numeric_limits<double>::infinity(), std::nan("")}) {
    for (const Method method : {Method::kAuto, Method::kBidiagonal, Method::kBisection, Method::kJacobi}) {
      expect_refused(kSquare, {.method = method, .tolerance = tolerance}, "tolerance");
    }
  }
}

// Beyond 1/2 an interval that is narrow enough no longer keeps the bound that BISECTION promises.
TEST(Planner, RefusesDeltasThatBoundNothing) {
  for (const double tolerance : {std::nextafter(0.5, 1.0), 0.75, 1.0}) {
    expect_refused(kSquare, {.method = Method::kBisection, .tolerance = tolerance}, "tolerance");
    EXPECT_EQ(planned(kSquare, {.method = Method::kJacobi, .tolerance = tolerance}).tolerance, tolerance);
  }
  EXPECT_EQ(planned(kSquare, {.method = Method::kBisection, .tolerance = 0.5}).tolerance, 0.5);
}

TEST(Planner, RefusesATolerancesWithoutAUse) {
  expect_refused(kSquare, {.method = Method::kBidiagonal, .tolerance = 1e-7}, "tolerance");
  expect_refused(kSquare, {.method = Method::kAuto, .tolerance = 1e-7}, "tolerance");
}

TEST(Planner, RefusesSweepsOutsideTheirRangeOrWithoutAUse) {
  for (const int32_t sweeps :
       {-1, kLargestMaxSweeps + 1, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    expect_refused(kSquare, {.method = Method::kJacobi, .max_sweeps = sweeps}, "max_sweeps");
  }
  for (const Method method : {Method::kAuto, Method::kBidiagonal, Method::kBisection}) {
    expect_refused(kSquare, {.method = method, .max_sweeps = 5}, "max_sweeps");
  }
}

TEST(Planner, ResolvesSweeps) {
  EXPECT_EQ(planned(kSquare, {.method = Method::kJacobi}).max_sweeps, kDefaultMaxSweeps);
  // No pivoted QR comes before those with vectors, and before larger ones.
  EXPECT_EQ(planned(kSquare, {.vectors = Vectors::kThin}).max_sweeps, kLargestMaxSweeps);
  EXPECT_EQ(planned({33, 33, DType::kF64, Order::kRowMajor}, {}).max_sweeps, kLargestMaxSweeps);
  EXPECT_EQ(planned(kSquare, {.method = Method::kJacobi, .max_sweeps = 1}).max_sweeps, 1);
  EXPECT_EQ(planned(kSquare, {.method = Method::kJacobi, .max_sweeps = kLargestMaxSweeps}).max_sweeps,
            kLargestMaxSweeps);
}

TEST(Planner, ClampsDeltaToFourUnitRoundoffs) {
  for (const DType dtype : kDTypes) {
    const Problem problem{4, 4, dtype, Order::kRowMajor};
    const double floor = 4 * unit_roundoff(dtype);
    for (const double asked : {0.0, 1e-300, std::numeric_limits<double>::denorm_min(), floor / 2, floor}) {
      EXPECT_EQ(planned(problem, {.method = Method::kBisection, .tolerance = asked}).tolerance, floor);
    }
    for (const double asked : {2 * floor, 1e-4, 0.5}) {
      EXPECT_EQ(planned(problem, {.method = Method::kBisection, .tolerance = asked}).tolerance, asked);
    }
  }
}

// A cosine of two columns is known to a few u only: nothing smaller is waited for, and nothing larger is imposed.
TEST(Planner, ClampsTheCosineToWhatTheTypeResolves) {
  for (const DType dtype : kDTypes) {
    for (const int64_t k : {1, 4, 32}) {
      const Problem problem{k, k, dtype, Order::kRowMajor};
      const double standard = planned(problem, {.method = Method::kJacobi}).tolerance;
      EXPECT_GE(standard, unit_roundoff(dtype));
      EXPECT_LE(standard, 4 * static_cast<double>(k + 1) * unit_roundoff(dtype));
      EXPECT_EQ(planned(problem, {.method = Method::kJacobi, .tolerance = 1e-300}).tolerance, standard);
      EXPECT_EQ(planned(problem, {.method = Method::kJacobi, .tolerance = 1e-2}).tolerance, 1e-2);
    }
  }
}

TEST(Planner, SizesOfAPlannedProblem) {
  const Problem problem{3, 16384, DType::kC128, Order::kRowMajor};
  EXPECT_EQ(values_per_matrix(problem), 3);
  EXPECT_EQ(matrix_bytes(problem), 3u * 16384 * 16);
  EXPECT_EQ(values_bytes(problem), 3u * 8);
  EXPECT_EQ(values_bytes({5, 2, DType::kC64, Order::kRowMajor}), 2u * 4);
}

// --- eigenproblems -------------------------------------------------------------------------------------------------

std::string message_of(const Problem& problem, const Options& options) {
  return make_plan(problem, options).error.message;
}

TEST(PlannerOfEigenproblems, TheTriangleIsForHermitianMatrices) {
  for (const Vectors vectors : {Vectors::kNone, Vectors::kThin, Vectors::kFull}) {
    Options options{.decomposition = Decomposition::kGeneral, .vectors = vectors};
    EXPECT_EQ(planned(kSquare, options).triangle, Triangle::kLower);
    options.triangle = Triangle::kUpper;
    expect_refused(kSquare, options, "triangle");
    EXPECT_NE(message_of(kSquare, options).find("must be LOWER (the default)"), std::string::npos);
  }
  expect_refused(kSquare, {.triangle = Triangle::kUpper}, "triangle");
  for (const Triangle triangle : {Triangle::kLower, Triangle::kUpper}) {
    EXPECT_EQ(planned(kSquare, {.decomposition = Decomposition::kHermitian, .triangle = triangle}).triangle, triangle);
  }
}

// A caller who sends a matrix that is too large learns that first, whatever the other options say.
TEST(PlannerOfEigenproblems, ConditionsAndStartingVectors) {
  const Problem real{4, 4, DType::kF32, Order::kRowMajor}, complex{4, 4, DType::kC128, Order::kRowMajor};
  const Options condition{.decomposition = Decomposition::kGeneral, .condition = true};
  const Plan values = planned(real, condition);
  EXPECT_TRUE(makes_vectors(values) && makes_left_vectors(values));
  EXPECT_EQ(values.outputs.left_columns + values.outputs.right_columns, 0);
  EXPECT_EQ(plane_bytes(values, Plane::kEigenvalueCondition, 3), 3u * 4 * sizeof(float));
  EXPECT_EQ(plane_bytes(planned(complex, condition), Plane::kEigenvalueCondition, 3), 3u * 4 * sizeof(double));
  EXPECT_EQ(starting_bytes(values), 0u);

  Options start{.decomposition = Decomposition::kGeneral, .max_sweeps = 7, .starting_vectors = true};
  const Plan warm = planned(real, start);
  EXPECT_EQ(warm.method, Method::kJacobi);
  EXPECT_EQ(warm.max_sweeps, 7);
  EXPECT_EQ(starting_bytes(warm), 16 * 2 * sizeof(float));
  EXPECT_EQ(operand_bytes(warm), 16 * 3 * sizeof(float));
  EXPECT_EQ(starting_bytes(planned(complex, start)), 16 * 2 * sizeof(double));
  EXPECT_FALSE(warm ==
               planned(real, {.decomposition = Decomposition::kGeneral, .method = Method::kJacobi, .max_sweeps = 7}));
  start.method = Method::kQr;
  EXPECT_EQ(make_plan(real, start).error.field, "method");

  for (const Decomposition other : {Decomposition::kSvd, Decomposition::kHermitian}) {
    EXPECT_EQ(make_plan(real, {.decomposition = other, .condition = true}).error.field, "condition");
    EXPECT_EQ(make_plan(real, {.decomposition = other, .starting_vectors = true}).error.field, "starting_vectors");
  }
}

TEST(PlannerOfEigenproblems, TheOrderOfGeneralMatricesIsLookedAtFirst) {
  const Options general{.decomposition = Decomposition::kGeneral};
  for (const int64_t order : {kLargestGeneral + 1, kShapeLimits.max_values + 1, kShapeLimits.max_dimension + 1}) {
    const Problem problem{order, order, DType::kF64, Order::kRowMajor};
    std::vector<Options> all(9, general);
    all[1].triangle = Triangle::kUpper;
    all[2].method = Method::kJacobi;
    all[3].tolerance = std::nan("");
    all[4].max_sweeps = -1;
    all[5].fix_phases = true;
    all[6].certificate = true;
    all[7].top_k = 1;
    all[8].values = false;
    for (const Options& options : all) {
      expect_refused(problem, options, "rows");
      EXPECT_NE(message_of(problem, options).find("must be at most 32, but is"), std::string::npos);
      EXPECT_NE(message_of(problem, options).find("DecomposeLarge"), std::string::npos);
    }
  }
  planned({kLargestGeneral, kLargestGeneral, DType::kF64, Order::kRowMajor}, general);
}

TEST(PlannerOfEigenproblems, HermitianMatricesHaveALimitOfTheirOwn) {
  const Options hermitian{.decomposition = Decomposition::kHermitian};
  for (const int64_t order : {kLargestHermitian + 1, kShapeLimits.max_dimension + 1}) {
    const Problem problem{order, order, DType::kF64, Order::kRowMajor};
    expect_refused(problem, hermitian, "rows");
    EXPECT_NE(message_of(problem, hermitian).find("Hermitian matrices must be at most 512, but is"), std::string::npos);
    EXPECT_NE(message_of(problem, hermitian).find("DecomposeLarge"), std::string::npos);
  }
  planned({kLargestHermitian, kLargestHermitian, DType::kF64, Order::kRowMajor}, hermitian);
}

TEST(PlannerOfEigenproblems, HermitianMatricesHaveNoLeftEigenvectors) {
  const Options options{.decomposition = Decomposition::kHermitian, .vectors = Vectors::kFull};
  expect_refused(kSquare, options, "vectors");
  EXPECT_NE(message_of(kSquare, options).find("must be NONE or RIGHT"), std::string::npos);
}

TEST(PlannerOfEigenproblems, SmallHermitianMatricesAreTridiagonals) {
  Options options{.decomposition = Decomposition::kHermitian};
  for (int64_t n = 1; n <= kLargestTridiagonal + 1; ++n) {
    const Problem problem{n, n, DType::kC64, Order::kRowMajor};
    options = {.decomposition = Decomposition::kHermitian};
    const Method wanted = n <= kLargestTridiagonal ? Method::kTridiagonal : Method::kJacobi;
    for (const Vectors vectors : {Vectors::kNone, Vectors::kThin}) {
      options.vectors = vectors;
      EXPECT_EQ(planned(problem, options).method, wanted) << n;
      EXPECT_EQ(planned(problem, options).outputs.left_columns, vectors == Vectors::kThin ? n : 0);
    }
    options.tolerance = 1e-3;
    EXPECT_EQ(planned(problem, options).method, Method::kJacobi);
    options.tolerance = 0;
    options.max_sweeps = 9;
    EXPECT_EQ(planned(problem, options).method, Method::kJacobi);
    EXPECT_EQ(planned(problem, options).max_sweeps, 9);
    options.max_sweeps = 0;
    options.method = Method::kJacobi;
    EXPECT_EQ(planned(problem, options).method, Method::kJacobi);
    options.method = Method::kTridiagonal;
    expect_refused(problem, options, "method");
    EXPECT_EQ(planned(problem, {.vectors = Vectors::kThin}).method, Method::kJacobi);
  }
  expect_refused(kSquare, {.decomposition = Decomposition::kHermitian, .tolerance = std::nan("")}, "tolerance");
  expect_refused(kSquare, {.decomposition = Decomposition::kHermitian, .max_sweeps = -1}, "max_sweeps");
}

// --- MIMO answers --------------------------------------------------------------------------------------------------

void expect_mimo_refused(const MimoOptions& mimo, const std::string& field) {
  expect_refused(kSquare, {.mimo = mimo}, "mimo." + field);
}

TEST(PlannerOfMimo, RefusesSnrsThatAreNoneTooManyOrNotInRange) {
  const MimoOptions capacity{.capacity = true, .snr_db = {10}};
  planned(kSquare, {.mimo = capacity});
  for (const double db : {std::nan(""), std::numeric_limits<double>::infinity(), 300.5, -301.0, 1e300}) {
    MimoOptions mimo = capacity;
    mimo.snr_db.push_back(db);
    expect_mimo_refused(mimo, "snr_db");
  }
  expect_mimo_refused({.capacity = true}, "snr_db");
  expect_mimo_refused({.water_filling = true}, "snr_db");
  expect_mimo_refused({.stream_snr = true}, "snr_db");
  expect_mimo_refused({.condition_number = true, .snr_db = {10}}, "snr_db");  // of no use
  expect_mimo_refused({.capacity = true, .snr_db = std::vector<double>(kMaxSnrs + 1, 3)}, "snr_db");
  const Plan most = planned(kSquare, {.mimo = {.capacity = true, .snr_db = std::vector<double>(kMaxSnrs, -300)}});
  EXPECT_EQ(most.outputs.snr_count, kMaxSnrs);
}

TEST(PlannerOfMimo, RefusesThresholdsOutsideTheirRangeOrWithoutAUse) {
  for (const double threshold : {0.0, 1.0, -0.1, 2.0, std::nan("")}) {
    expect_mimo_refused({.threshold_rank = true, .rank_threshold = threshold}, "rank_threshold");
  }
  expect_mimo_refused({.condition_number = true, .rank_threshold = 0.1}, "rank_threshold");
  EXPECT_EQ(planned(kSquare, {.mimo = {.threshold_rank = true, .rank_threshold = 0.1}}).outputs.rank_threshold, 0.1);
}

TEST(PlannerOfMimo, RefusesGroupsOutsideTheirRangeOrWithoutAUse) {
  for (const int64_t group : {int64_t{0}, int64_t{-1}, kMaxGroup + 1, std::numeric_limits<int64_t>::max()}) {
    expect_mimo_refused({.capacity = true, .snr_db = {0}, .group = group}, "group_size");
  }
  expect_mimo_refused({.condition_number = true, .group = 2}, "group_size");
  EXPECT_EQ(planned(kSquare, {.mimo = {.water_filling = true, .snr_db = {0}, .group = kMaxGroup}}).outputs.group,
            kMaxGroup);
}

TEST(PlannerOfMimo, AnswersAloneNeedNoVectorsAndNoValues) {
  const Options options{.values = false,
                        .mimo = {.capacity = true, .stream_snr = true, .effective_rank = true, .snr_db = {0, 20}}};
  const Plan plan = planned({4, 6, DType::kC64, Order::kRowMajor}, options);
  EXPECT_EQ(plan.method, Method::kBidiagonal);
  EXPECT_EQ(plan.outputs.values, 0);
  EXPECT_TRUE(plan.outputs.answers());
  EXPECT_FALSE(plan.outputs.vectors());
  EXPECT_DOUBLE_EQ(plan.outputs.snr[1], 100);
  EXPECT_EQ(plane_bytes(plan, Plane::kValues, 7), 0u);
  EXPECT_EQ(plane_bytes(plan, Plane::kCapacity, 7), 7u * 2 * 4);
  EXPECT_EQ(plane_bytes(plan, Plane::kStreamSnr, 7), 7u * 2 * 4 * 4);
  EXPECT_EQ(plane_bytes(plan, Plane::kEffectiveRank, 7), 7u * 4);
  EXPECT_EQ(plane_bytes(plan, Plane::kWaterFilling, 7), 0u);
}

TEST(PlannerOfMimo, CapacitiesAreOfGroupsTheRestOfMatrices) {
  const Options options{
      .mimo = {.capacity = true, .stream_snr = true, .condition_number = true, .snr_db = {0, 1, 2}, .group = 5}};
  const Plan plan = planned({4, 4, DType::kC128, Order::kRowMajor}, options);
  EXPECT_EQ(plane_bytes(plan, Plane::kValues, 10), 10u * 4 * 8);
  EXPECT_EQ(plane_bytes(plan, Plane::kCapacity, 10), 2u * 3 * 8);
  EXPECT_EQ(plane_bytes(plan, Plane::kStreamSnr, 10), 10u * 3 * 4 * 8);
  EXPECT_EQ(plane_bytes(plan, Plane::kConditionNumber, 10), 10u * 8);
}

}  // namespace
}  // namespace svdserve
