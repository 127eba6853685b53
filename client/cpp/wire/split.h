// Cuts a batch into pieces that fit a message both ways.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_
#define SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_

#include <cstdint>
#include <span>
#include <vector>

#include "client/cpp/types.h"
#include "wire/planes.h"

namespace svdserve::client::internal {

inline constexpr int64_t kPieceBytes = 4 << 20, kLargestPieceBytes = 32 << 20, kPieceMatrices = 16;
// Pieces of a batch under way, and their results, should be no more than a server has room for.
inline constexpr int64_t kInflightShare = 8;

struct PieceLimits {
  int64_t max_message_bytes = 0;                     // of a request and of a reply
  int64_t max_matrices = 0;                          // of a request
  int64_t piece_bytes = 0;                           // wished for, of the larger of request and reply
  int64_t max_groups = 0;                            // batches of a request
  int64_t piece_matrices = 0;                        // wished for, where they have more than piece_bytes
  int64_t largest_piece_bytes = kLargestPieceBytes;  // of these
};

struct Piece {
  int64_t first = 0;  // index of its first matrix in the batch
  int64_t count = 0;
};

// Pieces of nearly equal counts that cover 0 .. count-1 in order, whole groups each. An empty batch is one empty piece.
class Split {
 public:
  Split(int64_t count, int64_t pieces, int64_t group) : groups_(count / group), pieces_(pieces), group_(group) {}
  int64_t pieces() const { return pieces_; }
  Piece operator[](int64_t i) const;

 private:
  int64_t groups_;
  int64_t pieces_;
  int64_t group_;
};

// The sizes that those of the planes of a reply depend on.
wire::PlaneExtents extents_of(const Batch& batch, const ComputeOptions& compute);

// Bytes of one matrix, with starting vectors or not, and of the results of one group of them. Fails with the field at
// fault: sizes must be positive, the count a multiple of the group and not negative. Products with the count must fit
// int64.
struct MatrixSizes {
  int64_t matrix_bytes = 0;
  int64_t starting_bytes = 0;  // of its starting vectors; 0: it has none
  int64_t group = 1;           // matrices
  int64_t result_bytes = 0;    // of a group

  int64_t operand_bytes() const { return matrix_bytes + starting_bytes; }
};
Result<MatrixSizes> matrix_sizes(const Batch& batch, const ComputeOptions& compute = {});

// The fewest pieces of at most the wished size (but at least one group each) that respect the limits. Fails where a single
// group does not fit a message.
Result<Split> split(const Batch& batch, const PieceLimits& limits, const ComputeOptions& compute = {});

// A piece of one of several batches.
struct Part {
  size_t group = 0;  // index of the batch
  Piece piece;
};
// The parts of one request.
using Message = std::vector<Part>;

// The messages that several batches are sent in. A batch that needs more than one piece has messages of its own. Others
// share messages with their neighbours as far as the limits allow. Fails with the field at fault.
Result<std::vector<Message>> pack(std::span<const Group> groups, const PieceLimits& limits,
                                  const ComputeOptions& compute);

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_
