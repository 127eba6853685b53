// Both ends of the wire agree: numbers and names of enumerations with the proto, sizes of planes with each other.
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/cpp/large.h"
#include "client/cpp/types.h"
#include "client/cpp/wire/wire_values.h"
#include "engine/large_engine.h"
#include "engine/planner.h"
#include "server/rpc/codec/wire_enums.h"
#include "wire/planes.h"

namespace svdserve {
namespace {

// "row-cyclic" for PIVOT_STRATEGY_ROW_CYCLIC; empty where the enumeration has no such number.
std::string contract_name(const google::protobuf::EnumDescriptor* contract, const std::string& prefix, int number) {
  const auto* const value = contract->FindValueByNumber(number);
  if (value == nullptr) return "";
  std::string name(absl::StripPrefix(value->name(), prefix));
  return absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", "-"}});
}

// The names of all values of E are those of the contract, but for the value 0 of the wire, which means "auto".
template <class E>
void expect_names(const google::protobuf::EnumDescriptor* contract, const std::string& prefix) {
  for (int i = 0; i <= static_cast<int>(E::kLast); ++i) {
    const E value = static_cast<E>(i);
    const int number = wire::number_of(value);
    const std::string own = absl::StrReplaceAll(std::string(name(value)), {{"_", "-"}, {" ", "-"}});
    EXPECT_EQ(own, number == 0 ? "auto" : contract_name(contract, prefix, number)) << contract->name() << i;
  }
  EXPECT_EQ(wire::value_of<E>(wire::number_of(E::kLast) + 1), std::nullopt);
  for (const int number : {-1, INT32_MIN, INT32_MAX}) EXPECT_EQ(wire::value_of<E>(number), std::nullopt);
}

TEST(WireAgreement, EnumerationsOfTheServerAreNamedAsInTheContract) {
  expect_names<DType>(v1::DataType_descriptor(), "DATA_TYPE_");
  expect_names<Method>(v1::Method_descriptor(), "METHOD_");
  expect_names<PivotStrategy>(v1::PivotStrategy_descriptor(), "PIVOT_STRATEGY_");
  expect_names<BlockVariant>(v1::BlockVariant_descriptor(), "BLOCK_VARIANT_");
  expect_names<LargeStage>(v1::LargeStage_descriptor(), "LARGE_STAGE_");
}

TEST(WireAgreement, EnumerationsOfTheClientAreNamedAsInTheContract) {
  expect_names<client::DataType>(v1::DataType_descriptor(), "DATA_TYPE_");
  expect_names<client::Method>(v1::Method_descriptor(), "METHOD_");
  expect_names<client::PivotStrategy>(v1::PivotStrategy_descriptor(), "PIVOT_STRATEGY_");
  expect_names<client::BlockVariant>(v1::BlockVariant_descriptor(), "BLOCK_VARIANT_");
  expect_names<client::LargeStage>(v1::LargeStage_descriptor(), "LARGE_STAGE_");
}

// One codec serves both messages. So `svd` has every field of `eigen` by the same number and of the same type, or it
// reserves the number.
void expect_shared_numbers(const google::protobuf::Descriptor* eigen, const google::protobuf::Descriptor* svd) {
  for (int i = 0; i < eigen->field_count(); ++i) {
    const auto* const mine = eigen->field(i);
    const auto* const theirs = svd->FindFieldByNumber(mine->number());
    if (theirs == nullptr && svd->IsReservedNumber(mine->number())) continue;
    ASSERT_NE(theirs, nullptr) << mine->full_name();
    EXPECT_EQ(mine->type(), theirs->type()) << mine->full_name();
    EXPECT_EQ(mine->is_repeated(), theirs->is_repeated()) << mine->full_name();
  }
}

TEST(WireAgreement, EigenproblemsShareTheNumbersOfDecompose) {
  expect_shared_numbers(v1::EigendecomposeRequest::descriptor(), v1::DecomposeRequest::descriptor());
  expect_shared_numbers(v1::EigendecomposeResponse::descriptor(), v1::DecomposeResponse::descriptor());
  expect_shared_numbers(v1::EigendecomposeStreamRequest::descriptor(), v1::DecomposeStreamRequest::descriptor());
  expect_shared_numbers(v1::EigendecomposeStreamResponse::descriptor(), v1::DecomposeStreamResponse::descriptor());
  // Options that both have: those that decode.cc reads for both.
  for (const char* name : {"method", "tolerance", "max_sweeps", "vectors", "fix_phases", "certificate"}) {
    EXPECT_EQ(v1::EigendecomposeOptions::descriptor()->FindFieldByName(name)->number(),
              v1::DecomposeOptions::descriptor()->FindFieldByName(name)->number());
  }
}

// Each flag of both ends asks for a plane by an option that has the name of the result.
TEST(WireAgreement, MimoNumbersAreNamedAsTheirOptions) {
  const auto expect_alike = [](int plane) {
    const wire::PlaneOnWire& row = wire::kPlanesOnWire[static_cast<size_t>(plane)];
    const auto* const option = v1::MimoOptions::descriptor()->FindFieldByNumber(row.option);
    const auto* const result = v1::MimoResult::descriptor()->FindFieldByNumber(row.field);
    ASSERT_NE(option, nullptr) << "plane " << plane;
    ASSERT_NE(result, nullptr) << "plane " << plane;
    EXPECT_EQ(option->type(), google::protobuf::FieldDescriptor::TYPE_BOOL);
    EXPECT_EQ(option->name(), result->name());
  };
  for (const MimoPlane& m : kMimoPlanes) {
    if (m.plane != Plane::kThresholdRank) expect_alike(index_of(m.plane));
  }
  for (const client::MimoFlag& f : client::kMimoFlags) expect_alike(static_cast<int>(f.plane));
  EXPECT_EQ(std::size(kMimoPlanes), std::size(client::kMimoFlags) + 1) << "all but the threshold rank have a flag";
}

TEST(WireAgreement, UnknownMethodsAreKeptAsNumbers) {
  using client::Method;
  const Method newer = client::internal::kept_value(99, Method::kAuto);
  EXPECT_EQ(name(newer), "method 99");
  EXPECT_EQ(wire::number_of(newer), 99);
  EXPECT_EQ(client::internal::kept_value(v1::METHOD_JACOBI, Method::kAuto), Method::kJacobi);
  EXPECT_EQ(client::internal::kept_value(0, Method::kAuto), Method::kAuto);
  for (const int number : {1000, -1, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(client::internal::kept_value(number, Method::kAuto), Method::kAuto);
  }
}

// One question in the words of both ends.
struct Question {
  Options server;
  client::ComputeOptions client;
};

std::vector<Question> questions() {
  std::vector<Question> all(1);
  for (const int64_t top_k : {0, 2}) {
    Question thin;
    thin.server.vectors = Vectors::kThin;
    thin.client.vectors = client::Vectors::kThin;
    thin.server.top_k = thin.client.top_k = top_k;
    thin.server.certificate = true;
    thin.client.certificate = client::CertificateScope::kMatrix;
    all.push_back(thin);
  }
  Question eigen;
  eigen.server.decomposition = Decomposition::kHermitian;
  eigen.client.problem = client::Problem::kHermitian;
  all.push_back(eigen);
  eigen.server.vectors = Vectors::kThin;
  eigen.client.vectors = client::Vectors::kThin;
  eigen.server.certificate = true;
  eigen.client.certificate = client::CertificateScope::kMatrix;
  all.push_back(eigen);
  Question full;
  full.server.vectors = Vectors::kFull;
  full.client.vectors = client::Vectors::kFull;
  all.push_back(full);
  Question numbers;
  numbers.server.values = false;
  numbers.server.mimo = {
      .rank_threshold = 0.5, .snr_db = {0, 10, 20}, .group = 2, .precoder_columns = 2, .combiner_columns = 1};
  for (const MimoPlane& m : kMimoPlanes) numbers.server.mimo.*m.option = true;
  numbers.client.mimo = client::MimoOptions{
      .rank_threshold = 0.5, .snr_db = {0, 10, 20}, .group_size = 2, .precoder_columns = 2, .combiner_columns = 1};
  for (const client::MimoFlag& f : client::kMimoFlags) (*numbers.client.mimo).*f.flag = true;
  all.push_back(numbers);
  return all;
}

TEST(WireAgreement, BothEndsReckonWithTheSameSizesOfPlanes) {
  for (const Question& q : questions()) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kC64, DType::kC128}) {
      for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{4, 4}, {5, 3}, {3, 7}}) {
        if (q.server.decomposition == Decomposition::kHermitian && rows != cols) continue;
        const auto made = make_plan({rows, cols, dtype, Order::kRowMajor}, q.server);
        ASSERT_TRUE(made.plan) << made.error.message;
        client::Batch batch{.rows = rows, .cols = cols, .count = 6};
        batch.data_type = static_cast<client::DataType>(dtype);
        for (int p = 0; p < kPlanes; ++p) {
          const auto group = static_cast<size_t>(made.plan->outputs.group);
          EXPECT_EQ(plane_bytes(made.plan->problem, made.plan->outputs, static_cast<Plane>(p)) * (6 / group),
                    static_cast<size_t>(client::plane_bytes(batch, q.client, static_cast<client::Plane>(p), 6)))
              << "plane " << p << " of " << rows << " x " << cols;
        }
      }
    }
  }
}

}  // namespace
}  // namespace svdserve
