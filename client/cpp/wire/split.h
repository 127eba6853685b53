// Cuts a batch into pieces that fit a message both ways.
#ifndef SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_
#define SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_

#include <cstdint>

#include "client/cpp/types.h"

namespace svdserve::client::internal {

struct PieceLimits {
  int64_t max_message_bytes = 0;  // of a request and of a reply
  int64_t max_matrices = 0;       // of a request
  int64_t piece_bytes = 0;        // wished for, of the larger of request and reply
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

// Bytes of one matrix and of the results of one group of them. Fails with the field at fault where a size is not
// positive, the count is negative or no multiple of the group, or a product with the count passes int64.
struct MatrixSizes {
  int64_t matrix_bytes = 0;
  int64_t group = 1;         // matrices
  int64_t result_bytes = 0;  // of a group
};
Result<MatrixSizes> matrix_sizes(const Batch& batch, const ComputeOptions& compute = {});

// The fewest pieces of at most piece_bytes (but at least one group each) that respect the limits. Fails where a single
// group does not fit a message.
Result<Split> split(const Batch& batch, const PieceLimits& limits, const ComputeOptions& compute = {});

}  // namespace svdserve::client::internal
#endif  // SVDSERVE_CLIENT_CPP_WIRE_SPLIT_H_
