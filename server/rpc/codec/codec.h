// Batches of the wire meet the values of the engine here, and large matrices in large_codec.h. Their handlers see bytes
// and values, never messages.
//
// Payloads are copied once on their way in, from the transport's slices into one contiguous block a batch. They are not
// copied on their way out: the engine writes the results into the memory that the transport sends. Both are blocks of
// the server's HostMemory, but for small results.
#ifndef SVDSERVE_SERVER_RPC_CODEC_CODEC_H_
#define SVDSERVE_SERVER_RPC_CODEC_CODEC_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/base/host_memory.h"
#include "server/error.h"
#include "server/metrics/recorder.h"
#include "server/request.h"
#include "server/respond/certificate.h"

namespace svdserve::server {

// The memory of one request: the operands as received, and the slice that its results are written into.
class WireMemory final : public RequestMemory {
 public:
  explicit WireMemory(std::shared_ptr<HostMemory> of_results) : of_results_(std::move(of_results)) {}

  void* allocate_results(absl::Span<const ResultPart> parts) override;

  absl::InlinedVector<HostBlock, 1> operands;  // of each batch; its starting vectors, if any, follow
  CertificateScope certificate_scope = CertificateScope::kBatch;

  // After allocate_results(): what the slice holds.
  const grpc::Slice& results() const { return results_; }
  absl::Span<const ResultPart> parts() const { return parts_; }

 private:
  const std::shared_ptr<HostMemory> of_results_;
  grpc::Slice results_;
  absl::InlinedVector<ResultPart, 1> parts_;
};

// A request off the wire. Where `error` is not ok, `batches` is not to be used; ids and labels are as good as known.
struct DecodedRequest {
  Error error;
  absl::InlinedVector<Request, 1> batches;  // deadline and arrival are the handler's to set
  bool has_groups = false;                  // false: there is one batch
  std::shared_ptr<WireMemory> memory;
  RequestLabels labels;  // of the first group
  // Requests of a stream alone have these:
  bool is_message = true;  // false: it could not be read, so not even the id is known; `error` says why
  uint64_t request_id = 0;
  std::optional<absl::Duration> timeout;
};

// Decode the request of `rpc`: kDecompose or kEigendecompose, or their streams. Messages of one meaning have one layout:
// a field that both have has the same number, but for those of their options.
//
// Both free the bytes of *message as soon as they are read. The operands are copied once, from the transport's slices
// into blocks of `memory`. The validate stage checks values. Decoding checks the limits of its own memory alone:
// the number of groups, of SNRs, and the length of messages without operands. Neither throws where memory is short:
// that is the error out_of_memory().
DecodedRequest decode_request(Rpc rpc, grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory);
DecodedRequest decode_stream_request(Rpc rpc, grpc::ByteBuffer* message, const std::shared_ptr<HostMemory>& memory);

// The outcome of a request, of one batch or of groups, as it is put on the wire. A view of the answer.
struct Outcome {
  Outcome(const Answer& a) : error(a.error), answers(&a, 1), total(a.timing.total) {}  // NOLINT: converts on purpose
  Outcome(const GroupsAnswer& a)                                                       // NOLINT: converts on purpose
      : error(a.error), answers(a.groups), total(a.total), has_groups(true) {}

  const Error& error;
  absl::Span<const Answer> answers;
  absl::Duration total;
  bool has_groups = false;
};

// A DecomposeResponse, or an EigendecomposeResponse. The outcome is no error.
grpc::ByteBuffer encode_response(const Outcome& outcome, const WireMemory& memory);
// The message of a stream with the answer, or the error and no memory.
// `call_id`: of the call, for RequestInfo.
grpc::ByteBuffer encode_stream_response(uint64_t request_id, const Outcome& outcome, const WireMemory* memory,
                                        std::string_view call_id = {});

// The field of the caller's message that is wrong, and what it must be.
Error invalid_field(std::string field, std::string message);

// Memory was short while a message was received.
Error out_of_memory();

// A status with google.rpc details for the trailer grpc-status-details-bin. `call_id`: for RequestInfo; may be empty.
grpc::Status to_status(const Error& error, std::string_view call_id = {});
// Adds the RequestInfo to a status that is an error.
grpc::Status with_request_info(const grpc::Status& status, std::string_view call_id);

}  // namespace svdserve::server
#endif  // SVDSERVE_SERVER_RPC_CODEC_CODEC_H_
