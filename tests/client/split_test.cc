#include "client/cpp/wire/split.h"
#include "wire/limits.h"

#include <gtest/gtest.h>

namespace svdserve::client::internal {
namespace {

Batch batch(int64_t rows, int64_t cols, int64_t count, DataType type = DataType::kF64) {
  Batch b;
  b.rows = rows;
  b.cols = cols;
  b.count = count;
  b.data_type = type;
  return b;
}

// The pieces cover the batch in order, and each fits every limit.
void expect_fits(const Batch& b, const PieceLimits& limits) {
  const auto pieces = split(b, limits);
  ASSERT_TRUE(pieces.ok()) << pieces.status().to_string();
  const auto sizes = *matrix_sizes(b);
  int64_t next = 0;
  for (int64_t i = 0; i < pieces->pieces(); ++i) {
    const Piece p = (*pieces)[i];
    ASSERT_EQ(p.first, next);
    next += p.count;
    EXPECT_LE(p.count, limits.max_matrices);
    EXPECT_LE(p.count * sizes.matrix_bytes + kMessageBytesFixed, limits.max_message_bytes);
    EXPECT_LE(p.count * (sizes.result_bytes + kMessageBytesPerMatrix) + kMessageBytesFixed, limits.max_message_bytes);
  }
  EXPECT_EQ(next, b.count);
}

TEST(Split, OnePieceWhereEverythingFits) {
  const auto pieces = split(batch(4, 4, 1000), {64 << 20, 1 << 24, 4 << 20});
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->pieces(), 1);
  EXPECT_EQ((*pieces)[0].count, 1000);
}

TEST(Split, AnEmptyBatchIsOneEmptyPiece) {
  const auto pieces = split(batch(4, 4, 0), {64 << 20, 1 << 24, 4 << 20});
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->pieces(), 1);
  EXPECT_EQ((*pieces)[0].count, 0);
}

TEST(Split, RespectsEveryLimit) {
  for (const auto type : {DataType::kF32, DataType::kF64, DataType::kC64, DataType::kC128}) {
    for (const int64_t rows : {1, 4, 33}) {
      for (const int64_t cols : {1, 4, 7}) {
        for (const int64_t count : {1, 2, 999, 100003}) {
          expect_fits(batch(rows, cols, count, type), {64 << 10, 1 << 24, 64 << 10});
          expect_fits(batch(rows, cols, count, type), {64 << 10, 17, 64 << 10});
          expect_fits(batch(rows, cols, count, type), {1 << 20, 1 << 24, 10000});
        }
      }
    }
  }
}

// 1x1 of f32: 4 bytes there, 4 + 5 bytes back.
TEST(Split, CutsByTheReplyWhereThatIsLarger) {
  const PieceLimits limits{kMessageBytesFixed + 900, 1 << 24, 1 << 20};
  const auto pieces = split(batch(1, 1, 200, DataType::kF32), limits);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->pieces(), 2);
  EXPECT_EQ((*pieces)[0].count, 100);
}

// A GPU takes as long for one large matrix as for many: so a piece has many of them.
TEST(Split, PiecesHaveSeveralLargeMatrices) {
  const auto limits = [](int64_t matrices) { return PieceLimits{64 << 20, 1 << 24, kPieceBytes, 1, matrices}; };
  const auto longest = [](const Batch& b, const PieceLimits& l) { return (*split(b, l))[0].count; };
  const DataType type = DataType::kF64;
  EXPECT_EQ(longest(batch(2, 2, 1 << 18, type), limits(kPieceMatrices)), 1 << 17);  // 4 MiB
  EXPECT_EQ(longest(batch(128, 128, 256, type), limits(kPieceMatrices)), 32);       // the same
  EXPECT_EQ(longest(batch(256, 256, 256, type), limits(kPieceMatrices)), 16);       // 8 MiB
  EXPECT_EQ(longest(batch(512, 512, 64, type), limits(kPieceMatrices)), 16);        // 32 MiB
  EXPECT_EQ(longest(batch(512, 512, 64, type), limits(50)), 16);                    // the same
  EXPECT_EQ(longest(batch(512, 512, 64, type), limits(8)), 8);
  EXPECT_EQ(longest(batch(512, 512, 64, type), limits(0)), 2);
  PieceLimits little_room = limits(kPieceMatrices);  // of the server
  little_room.largest_piece_bytes = 9 << 20;
  EXPECT_EQ(longest(batch(512, 512, 64, type), little_room), 4);
  // Batches of one share messages likewise.
  const std::vector<Group> groups(20, Group{batch(512, 512, 1, type)});
  PieceLimits shared = limits(kPieceMatrices);
  shared.max_groups = 4096;
  EXPECT_EQ(pack(groups, shared, {})->size(), 2u);
  shared.piece_matrices = 0;
  EXPECT_EQ(pack(groups, shared, {})->size(), 20u);
}

TEST(Split, PiecesDifferByOneAtMost) {
  const auto pieces = split(batch(1, 1, 11, DataType::kF64), {1 << 20, 3, 1 << 20});
  ASSERT_TRUE(pieces.ok());
  ASSERT_EQ(pieces->pieces(), 4);
  EXPECT_EQ((*pieces)[0].count, 3);
  EXPECT_EQ((*pieces)[2].count, 3);
  EXPECT_EQ((*pieces)[3].count, 2);
  EXPECT_EQ((*pieces)[3].first, 9);
}

TEST(Split, RefusesAMatrixThatFitsNoMessage) {
  const auto pieces = split(batch(100, 100, 1), {64 << 10, 1 << 24, 4 << 20});
  ASSERT_FALSE(pieces.ok());
  EXPECT_EQ(pieces.status().code, Code::kInvalidArgument);
  EXPECT_EQ(pieces.status().field, "matrices.data");
}

TEST(MatrixSizes, NamesTheFieldAtFault) {
  EXPECT_EQ(matrix_sizes(batch(0, 4, 1)).status().field, "matrices.rows");
  EXPECT_EQ(matrix_sizes(batch(4, -1, 1)).status().field, "matrices.cols");
  EXPECT_EQ(matrix_sizes(batch(4, 4, -1)).status().field, "matrices.count");
  EXPECT_EQ(matrix_sizes(batch(INT64_MAX, INT64_MAX, 1)).status().field, "matrices.count");
  EXPECT_EQ(matrix_sizes(batch(4, 4, INT64_MAX)).status().field, "matrices.count");
  EXPECT_TRUE(matrix_sizes(batch(4, 4, 0)).ok());
}

TEST(Split, CountsStartingVectors) {
  const ComputeOptions compute{.problem = Problem::kGeneral, .condition = true};
  for (const auto type : {DataType::kF32, DataType::kF64, DataType::kC64, DataType::kC128}) {
    Batch b = batch(8, 8, 1000, type);
    const auto cold = *matrix_sizes(b, compute);
    b.starting_vectors = &b;
    const auto warm = *matrix_sizes(b, compute);
    EXPECT_EQ(cold.starting_bytes, 0);
    EXPECT_EQ(warm.starting_bytes, 64 * 2 * static_cast<int64_t>(value_bytes(type)));
    EXPECT_EQ(warm.operand_bytes(), warm.matrix_bytes + warm.starting_bytes);
    EXPECT_EQ(warm.result_bytes, 8 * 3 * static_cast<int64_t>(value_bytes(type)));  // complex values, real conditions
    const PieceLimits limits{64 << 10, 1 << 24, 64 << 10};
    const auto pieces = split(b, limits, compute);
    ASSERT_TRUE(pieces.ok());
    const int64_t most = (limits.max_message_bytes - kMessageBytesFixed) / warm.operand_bytes();
    EXPECT_EQ(pieces->pieces(), (1000 + most - 1) / most);
  }
}

TEST(MatrixSizes, StartingVectorsAndConditionsAreForGeneralMatrices) {
  Batch b = batch(2, 2, 1);
  for (const Problem problem : {Problem::kSvd, Problem::kHermitian}) {
    EXPECT_EQ(matrix_sizes(b, {.problem = problem, .condition = true}).status().field, "options.condition");
  }
  b.starting_vectors = &b;
  for (const Problem problem : {Problem::kSvd, Problem::kHermitian}) {
    EXPECT_EQ(matrix_sizes(b, {.problem = problem}).status().field, "matrices.starting_vectors");
  }
  EXPECT_TRUE(matrix_sizes(b, {.problem = Problem::kGeneral}).ok());
}

TEST(MatrixSizes, TheTriangleIsForEigenproblems) {
  const ComputeOptions upper{.triangle = Triangle::kUpper};
  EXPECT_EQ(matrix_sizes(batch(4, 4, 1), upper).status().field, "options.triangle");
  EXPECT_TRUE(matrix_sizes(batch(4, 4, 1), {.triangle = Triangle::kLower}).ok());
  EXPECT_TRUE(matrix_sizes(batch(4, 4, 1), {.problem = Problem::kHermitian, .triangle = Triangle::kUpper}).ok());
}

TEST(Split, CountsEveryResult) {
  const ComputeOptions full{.vectors = Vectors::kFull};
  const Batch b = batch(1, 16, 100, DataType::kF32);  // 64 bytes to send; 4 + 4 + 1024 to receive
  EXPECT_EQ(plane_bytes(b, full, Plane::kRight, 1), 1024);
  const auto pieces = split(b, {1 << 20, 1 << 24, 1037 * 10}, full);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->pieces(), 10);
  EXPECT_EQ(split(b, {1 << 20, 1 << 24, 1037 * 10})->pieces(), 1);
}

TEST(Split, ResultsOfGeneralEigenproblemsAreComplex) {
  ComputeOptions compute{.problem = Problem::kGeneral};
  for (const auto& [type, bytes] : {std::pair<DataType, int64_t>{DataType::kF32, 8},
                                    {DataType::kF64, 16},
                                    {DataType::kC64, 8},
                                    {DataType::kC128, 16}}) {
    const Batch b = batch(4, 4, 10, type);
    compute.vectors = Vectors::kFull;
    EXPECT_EQ(plane_bytes(b, compute, Plane::kValues, 10), 10 * 4 * bytes);
    EXPECT_EQ(plane_bytes(b, compute, Plane::kLeft, 10), 10 * 16 * bytes);
    EXPECT_EQ(plane_bytes(b, compute, Plane::kRight, 10), 10 * 16 * bytes);
    EXPECT_EQ(matrix_sizes(b, compute)->result_bytes, (4 + 16 + 16) * bytes);
    compute.vectors = Vectors::kThin;
    EXPECT_EQ(plane_bytes(b, compute, Plane::kRight, 10), 0);
    EXPECT_EQ(matrix_sizes(b, compute)->result_bytes, (4 + 16) * bytes);
    compute.vectors = Vectors::kNone;
    EXPECT_EQ(plane_bytes(b, compute, Plane::kLeft, 10), 0);
    EXPECT_EQ(matrix_sizes(b, compute)->result_bytes, 4 * bytes);
    compute.certificate = CertificateScope::kMatrix;
    EXPECT_EQ(plane_bytes(b, compute, Plane::kCertificate, 10), 10 * 3 * bytes / 2);
    compute.certificate = CertificateScope::kNone;
  }
}

TEST(Split, KeepsGroupsWhole) {
  const ComputeOptions grouped{.mimo = MimoOptions{.capacity = true, .snr_db = {0}, .group_size = 6}};
  const auto pieces = split(batch(2, 2, 60), {1 << 20, 1 << 24, 32 * 13}, grouped);
  ASSERT_TRUE(pieces.ok());
  EXPECT_EQ(pieces->pieces(), 5);
  int64_t next = 0;
  for (int64_t i = 0; i < pieces->pieces(); ++i) {
    const Piece piece = (*pieces)[i];
    EXPECT_EQ(piece.first, next);
    EXPECT_EQ(piece.count, 12);
    next += piece.count;
  }
  EXPECT_EQ(split(batch(2, 2, 61), {1 << 20, 1 << 24, 1 << 20}, grouped).status().field, "matrices.count");
  EXPECT_EQ(split(batch(2, 2, 60), {4096 + 100, 1 << 24, 1 << 20}, grouped).status().field, "matrices.data");
}

TEST(Pack, NeighboursShareMessagesAsTheLimitsAllow) {
  std::vector<Group> groups(5);
  for (Group& group : groups) group.batch = batch(4, 4, 10, DataType::kF64);
  groups[2].batch = batch(4, 4, 1000, DataType::kF64);
  const auto messages = pack(groups, {64 << 10, 1 << 24, 64 << 10, 4}, {});
  ASSERT_TRUE(messages.ok()) << messages.status().to_string();
  ASSERT_GE(messages->size(), 4u);
  EXPECT_EQ(messages->front().size(), 2u);
  EXPECT_EQ(messages->back().size(), 2u);
  int64_t together = 0;
  for (const Message& message : *messages) {
    for (const Part& part : message) together += part.group == 2 ? part.piece.count : 0;
  }
  EXPECT_EQ(together, 1000);
}

TEST(Pack, EveryLimitBoundsAMessage) {
  std::vector<Group> groups(12);
  for (Group& group : groups) group.batch = batch(4, 4, 10, DataType::kF64);
  const auto sizes_of = [&](const PieceLimits& limits) {
    std::vector<size_t> sizes;
    const auto messages = pack(groups, limits, {});
    for (const Message& message : *messages) sizes.push_back(message.size());
    return sizes;
  };
  EXPECT_EQ(sizes_of({1 << 20, 1 << 24, 1 << 20, 100}), std::vector<size_t>{12});
  EXPECT_EQ(sizes_of({1 << 20, 1 << 24, 1 << 20, 6}), (std::vector<size_t>{6, 6}));
  EXPECT_EQ(sizes_of({1 << 20, 40, 1 << 20, 100}), (std::vector<size_t>{4, 4, 4}));
  EXPECT_EQ(sizes_of({1 << 20, 1 << 24, 4000, 100}), (std::vector<size_t>{2, 2, 2, 2, 2, 2}));
  EXPECT_EQ(sizes_of({1 << 20, 1 << 24, 1 << 20, 0}), std::vector<size_t>(12, 1));
}

}  // namespace
}  // namespace svdserve::client::internal
