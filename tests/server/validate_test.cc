#include "server/validate/validate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/server/own_options.h"

namespace svdserve::server {
namespace {

constexpr int64_t kMax64 = std::numeric_limits<int64_t>::max();

Request good() {
  Request request;
  request.problem = {4, 3, DType::kC64, Order::kRowMajor};
  request.count = 10;
  request.payload_bytes = 10 * 4 * 3 * 8;
  return request;
}

TEST(Validate, GoodRequestGetsItsPlan) {
  Validated validated;
  const Error error = validate(good(), {}, &validated);
  EXPECT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(validated.plan.problem, good().problem);
  EXPECT_NE(validated.plan.method, Method::kAuto);
  EXPECT_EQ(validated.result_bytes, 10 * 3 * 4);
}

TEST(Validate, EmptyBatchIsGood) {
  Request request = good();
  request.count = 0;
  request.payload_bytes = 0;
  Validated validated;
  EXPECT_TRUE(validate(request, {}, &validated).ok());
  EXPECT_EQ(validated.result_bytes, 0);
}

struct BadCase {
  std::string name;
  void (*spoil)(Request*);
  std::string field;
  Reason reason = Reason::kInvalidField;
};

class ValidateBad : public testing::TestWithParam<BadCase> {};

TEST_P(ValidateBad, NamesTheField) {
  Request request = good();
  GetParam().spoil(&request);
  Validated validated;
  const Error error = validate(request, {}, &validated);
  EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(error.reason, GetParam().reason);
  EXPECT_EQ(error.field, GetParam().field);
  EXPECT_FALSE(error.message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, ValidateBad,
    testing::Values(
        BadCase{"zero_rows", [](Request* r) { r->problem.rows = 0; }, "matrices.rows"},
        BadCase{"negative_cols", [](Request* r) { r->problem.cols = -1; }, "matrices.cols"},
        BadCase{"smallest_rows", [](Request* r) { r->problem.rows = std::numeric_limits<int64_t>::min(); },
                "matrices.rows"},
        BadCase{"too_many_rows", [](Request* r) { r->problem.rows = 16385; }, "matrices.rows"},
        BadCase{"huge_product", [](Request* r) { r->problem.rows = r->problem.cols = kMax64; }, "matrices.rows"},
        BadCase{"too_many_values", [](Request* r) { r->problem.rows = r->problem.cols = 513; }, "matrices.rows"},
        BadCase{"negative_count", [](Request* r) { r->count = -1; }, "matrices.count"},
        BadCase{"too_many_matrices", [](Request* r) { r->count = 16777217; }, "matrices.count"},
        BadCase{"data_short", [](Request* r) { --r->payload_bytes; }, "matrices.data"},
        BadCase{"data_long", [](Request* r) { ++r->payload_bytes; }, "matrices.data"},
        BadCase{"data_empty", [](Request* r) { r->payload_bytes = 0; }, "matrices.data"},
        BadCase{"data_for_none", [](Request* r) { r->count = 0; }, "matrices.data"},
        BadCase{"negative_tolerance",
                [](Request* r) { *own_options(r) = {.method = Method::kJacobi, .tolerance = -1e-3}; },
                "options.tolerance"},
        BadCase{"tolerance_nan",
                [](Request* r) {
                  *own_options(r) = {.method = Method::kBisection,
                                     .tolerance = std::numeric_limits<double>::quiet_NaN()};
                },
                "options.tolerance"},
        BadCase{"tolerance_above_one",
                [](Request* r) { *own_options(r) = {.method = Method::kJacobi, .tolerance = 1.5}; },
                "options.tolerance"},
        BadCase{"tolerance_for_auto", [](Request* r) { own_options(r)->tolerance = 1e-3; }, "options.tolerance"},
        BadCase{"sweeps_for_auto", [](Request* r) { own_options(r)->max_sweeps = 5; }, "options.max_sweeps"},
        BadCase{"negative_sweeps", [](Request* r) { *own_options(r) = {.method = Method::kJacobi, .max_sweeps = -1}; },
                "options.max_sweeps"},
        BadCase{"too_many_sweeps",
                [](Request* r) { *own_options(r) = {.method = Method::kJacobi, .max_sweeps = 1001}; },
                "options.max_sweeps"},
        BadCase{"top_k_beyond_k", [](Request* r) { own_options(r)->top_k = 4; }, "options.top_k"},
        BadCase{"negative_top_k", [](Request* r) { own_options(r)->top_k = -1; }, "options.top_k"},
        BadCase{"phases_without_vectors", [](Request* r) { own_options(r)->fix_phases = true; }, "options.fix_phases"},
        BadCase{"nothing_asked", [](Request* r) { own_options(r)->values = false; }, "options.mimo"},
        BadCase{"snr_not_finite",
                [](Request* r) {
                  own_options(r)->mimo.capacity = true;
                  own_options(r)->mimo.snr_db = {std::numeric_limits<double>::infinity()};
                },
                "options.mimo.snr_db"},
        BadCase{"group_does_not_divide",
                [](Request* r) {
                  own_options(r)->mimo.capacity = true;
                  own_options(r)->mimo.snr_db = {0};
                  own_options(r)->mimo.group = 3;
                },
                "matrices.count"},
        // 8 bytes in, but 16384^2 x 8 bytes out.
        BadCase{"full_bases_too_large",
                [](Request* r) {
                  r->problem = {16384, 1, DType::kF64, Order::kRowMajor};
                  r->count = 1;
                  r->payload_bytes = 16384 * 8;
                  own_options(r)->vectors = Vectors::kFull;
                },
                "matrices.count", Reason::kReplyTooLarge},
        // 8 bytes in, but 8 bytes out and 5 for its status: the reply passes 64 MiB where the request does not.
        BadCase{"reply_too_large",
                [](Request* r) {
                  r->problem = {1, 1, DType::kF64, Order::kRowMajor};
                  r->count = 6000000;
                  r->payload_bytes = 48000000;
                },
                "matrices.count", Reason::kReplyTooLarge}),
    [](const auto& info) { return info.param.name; });

TEST(Validate, ProductThatOverflowsIsTheCountsMistake) {
  Request request;
  request.problem = {16384, 32, DType::kC128, Order::kRowMajor};
  request.count = kMax64 / 4;
  request.payload_bytes = 0;
  Validated validated;
  const Error error = validate(request, {.max_matrices = kMax64, .max_message_bytes = kMax64}, &validated);
  EXPECT_EQ(error.field, "matrices.count");
  EXPECT_EQ(error.reason, Reason::kInvalidField);
}

TEST(Validate, ReplyOfExactlyTheLimitIsGood) {
  Request request;
  request.problem = {2, 2, DType::kF32, Order::kRowMajor};
  request.count = 100;
  request.payload_bytes = 1600;
  Validated validated;
  const int64_t reply = 100 * (2 * 4 + 5) + 4096;
  EXPECT_TRUE(validate(request, {.max_message_bytes = reply}, &validated).ok());
  EXPECT_EQ(validate(request, {.max_message_bytes = reply - 1}, &validated).reason, Reason::kReplyTooLarge);
}

// --- starting vectors ----------------------------------------------------------------------------

Request warm() {
  Request request;
  request.problem = {3, 3, DType::kF32, Order::kRowMajor};
  request.count = 10;
  request.payload_bytes = 10 * 9 * 4;
  request.starting_vectors_bytes = 10 * 9 * 8;  // complex ones of real matrices
  *own_options(&request) = {.decomposition = Decomposition::kGeneral, .starting_vectors = true};
  return request;
}

Error error_of(const Request& request) {
  Validated validated;
  return validate(request, {}, &validated);
}

TEST(Validate, StartingVectorsAreComplex) {
  Validated validated;
  const Error error = validate(warm(), {}, &validated);
  EXPECT_TRUE(error.ok()) << error.message;
  EXPECT_EQ(validated.plan.method, Method::kJacobi);
  EXPECT_EQ(starting_bytes(validated.plan), 72u);
  Request empty = warm();
  empty.count = 0;
  empty.payload_bytes = empty.starting_vectors_bytes = 0;
  EXPECT_TRUE(error_of(empty).ok());
  for (const DType dtype : {DType::kC64, DType::kF64, DType::kC128}) {
    Request request = warm();
    request.problem.dtype = dtype;
    request.payload_bytes = 10 * matrix_bytes(request.problem);
    request.starting_vectors_bytes = 10 * 9 * (dtype == DType::kC64 ? 8 : 16);
    EXPECT_TRUE(error_of(request).ok());
  }
}

TEST(Validate, StartingVectorsOfAnotherSizeAreNamed) {
  for (const size_t bytes : {size_t{0}, size_t{719}, size_t{721}, size_t{360}}) {
    Request request = warm();
    request.starting_vectors_bytes = bytes;
    const Error error = error_of(request);
    EXPECT_EQ(error.code, absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(error.field, "matrices.starting_vectors");
    EXPECT_EQ(error.message, "must hold 10 complex matrices of 72 bytes: 720 bytes, holds " + std::to_string(bytes));
  }
  Request unasked = warm();
  own_options(&unasked)->starting_vectors = false;
  EXPECT_EQ(error_of(unasked).field, "matrices.starting_vectors");
  EXPECT_EQ(error_of(unasked).message, "must be empty, or set options.starting_vectors");
  std::vector<Request> groups = {warm(), warm()};
  groups[1].starting_vectors_bytes = 0;
  std::vector<Validated> validated;
  EXPECT_EQ(validate_groups(groups, {}, &validated).field, "groups[1].starting_vectors");
}

TEST(Validate, OtherProblemsTakeNoStartingVectors) {
  for (const Decomposition other : {Decomposition::kSvd, Decomposition::kHermitian}) {
    Request request = warm();
    *own_options(&request) = {.decomposition = other};
    EXPECT_EQ(error_of(request).field, "matrices.starting_vectors");
    EXPECT_EQ(error_of(request).message, "must be empty: only eigenproblems of general matrices take starting vectors");
    *own_options(&request) = {.decomposition = other, .starting_vectors = true};
    EXPECT_EQ(error_of(request).field, "options.starting_vectors");
    request.starting_vectors_bytes = 0;
    *own_options(&request) = {.decomposition = other, .condition = true};
    EXPECT_EQ(error_of(request).field, "options.condition");
  }
  Request by_qr = warm();
  own_options(&by_qr)->method = Method::kQr;
  EXPECT_EQ(error_of(by_qr).field, "options.method");
  Request large = warm();
  large.problem.rows = large.problem.cols = 33;
  EXPECT_EQ(error_of(large).field, "matrices.rows");
}

TEST(Validate, TheReplyHasRoomForConditions) {
  Request request = warm();
  own_options(&request)->condition = true;
  Validated validated;
  const int64_t reply = 10 * (3 * 8 + 3 * 4 + 5) + 4096;
  EXPECT_TRUE(validate(request, {.max_message_bytes = reply}, &validated).ok());
  EXPECT_EQ(validate(request, {.max_message_bytes = reply - 1}, &validated).reason, Reason::kReplyTooLarge);
}

}  // namespace
}  // namespace svdserve::server
