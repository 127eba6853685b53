// Answers, from values to bytes.
#include <google/protobuf/io/coded_stream.h>
#include <google/rpc/error_details.pb.h>
#include <google/rpc/status.pb.h>
#include <svdserve/v1/svd_service.pb.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/rpc/codec/codec.h"
#include "server/rpc/codec/message_builder.h"
#include "server/rpc/codec/wire_enums.h"
#include "wire/planes.h"

namespace svdserve::server {
namespace {

constexpr char kErrorDomain[] = "svdserve";

static_assert(wire::kPlanesOnWire.size() == kPlanes);

// The results of one batch in the reply: where its planes are, and how many bytes each has.
class PartView {
 public:
  PartView(const WireMemory& memory, const ResultPart& part, size_t offset)
      : results_(memory.results()), part_(part), offset_(offset) {}

  const ResultPart& part() const { return part_; }
  const Outputs& outputs() const { return part_.plan.outputs; }
  size_t bytes(Plane plane) const { return plane_bytes(part_.plan, plane, part_.count); }
  const void* at(Plane plane) const { return results_.begin() + begin(plane); }
  // The plane as field `field` of a message; nothing where it is empty.
  void append_to(MessageBuilder* message, int field, Plane plane) const {
    const size_t first = begin(plane);
    if (bytes(plane) > 0) message->append_slice(field, results_, first, first + bytes(plane));
  }

 private:
  size_t begin(Plane plane) const {
    size_t first = offset_;
    for (int i = 0; i < index_of(plane); ++i) first += bytes(static_cast<Plane>(i));
    return first;
  }

  const grpc::Slice& results_;
  const ResultPart& part_;
  const size_t offset_;
};

void set_timing(const Timing& from, v1::Timing* to) {
  to->set_queue_seconds(absl::ToDoubleSeconds(from.queue));
  to->set_compute_seconds(absl::ToDoubleSeconds(from.compute));
  to->set_total_seconds(absl::ToDoubleSeconds(from.total));
}

// Everything of a DecomposeResponse but its planes. An EigendecomposeResponse has the same numbers for its fields.
v1::DecomposeResponse response_without_planes(const Answer& answer, const ResultPart& part) {
  const Outputs& outputs = part.plan.outputs;
  v1::DecomposeResponse response;
  response.set_values_per_matrix(outputs.values);
  response.set_left_columns(outputs.left_columns);
  response.set_right_columns(outputs.right_columns);
  response.set_count(part.count);
  for (const MatrixException& exception : answer.exceptions) {
    response.add_exception_indices(exception.index);
    response.add_exception_statuses(to_wire<v1::MatrixStatus>(exception.status));
  }
  response.set_method(to_wire<v1::Method>(answer.method));
  response.set_device(answer.devices);
  set_timing(answer.timing, response.mutable_timing());
  return response;
}

// The planes that the message in field `message` of the response holds; 0: those of the response itself.
void append_planes(const PartView& view, int message, MessageBuilder* to) {
  const Outputs& o = view.outputs();
  // An SVD has U and V^H, or some columns of U or V.
  const bool has_vectors =
      view.part().plan.decomposition != Decomposition::kSvd || (o.right_columns > 0 && o.right_adjoint);
  for (size_t i = 0; i < wire::kPlanesOnWire.size(); ++i) {
    const wire::PlaneOnWire& plane = wire::kPlanesOnWire[i];
    if (plane.message == message) view.append_to(to, plane.field_of(has_vectors), static_cast<Plane>(i));
  }
}

void append_mimo(const PartView& view, MessageBuilder* message) {
  if (!view.outputs().answers()) return;
  MessageBuilder mimo;
  append_planes(view, v1::DecomposeResponse::kMimoFieldNumber, &mimo);
  message->append_message(v1::DecomposeResponse::kMimoFieldNumber, std::move(mimo));
}

void append_certificate(const PartView& view, const Answer& answer, CertificateScope scope, MessageBuilder* message) {
  if (!view.outputs().certificate) return;
  const CertificateMaxima maxima = certificate_maxima(view.at(Plane::kCertificate), view.part().plan.problem.dtype,
                                                      view.part().count, answer.exceptions);
  v1::Certificate head;
  head.set_residual(maxima.residual);
  head.set_left_orthogonality(maxima.left_orthogonality);
  head.set_right_orthogonality(maxima.right_orthogonality);
  MessageBuilder certificate;
  certificate.append(head.SerializeAsString());
  if (scope == CertificateScope::kMatrix) {
    append_planes(view, v1::DecomposeResponse::kCertificateFieldNumber, &certificate);
  }
  message->append_message(v1::DecomposeResponse::kCertificateFieldNumber, std::move(certificate));
}

// A DecomposeResponse to one batch, its planes where the engine wrote them.
MessageBuilder response_of(const Answer& answer, const PartView& view, CertificateScope scope) {
  MessageBuilder message;
  message.append(response_without_planes(answer, view.part()).SerializeAsString());
  append_planes(view, 0, &message);
  append_mimo(view, &message);
  append_certificate(view, answer, scope, &message);
  return message;
}

MessageBuilder response_of(const Outcome& outcome, const WireMemory& memory) {
  if (!outcome.has_groups) {
    return response_of(outcome.answers.front(), {memory, memory.parts().front(), 0}, memory.certificate_scope);
  }
  v1::DecomposeResponse head;
  head.mutable_timing()->set_total_seconds(absl::ToDoubleSeconds(outcome.total));
  MessageBuilder message;
  message.append(head.SerializeAsString());
  size_t offset = 0;
  for (size_t i = 0; i < outcome.answers.size(); ++i) {
    const ResultPart& part = memory.parts()[i];
    message.append_message(v1::DecomposeResponse::kGroupsFieldNumber,
                           response_of(outcome.answers[i], {memory, part, offset}, memory.certificate_scope));
    offset += result_bytes(part);
  }
  return message;
}

// Names the field for those who read no details.
std::string text_of(const Error& error) {
  return error.field.empty() ? error.message : absl::StrCat(error.field, ": ", error.message);
}

void add_request_info(std::string_view call_id, google::rpc::Status* status) {
  if (call_id.empty()) return;
  google::rpc::RequestInfo info;
  info.set_request_id(std::string(call_id));
  status->add_details()->PackFrom(info);
}

google::rpc::Status to_rpc_status(const Error& error, std::string_view call_id) {
  google::rpc::Status status;
  status.set_code(static_cast<int>(error.code));
  status.set_message(text_of(error));
  if (!error.field.empty()) {
    google::rpc::BadRequest bad_request;
    auto& violation = *bad_request.add_field_violations();
    violation.set_field(error.field);
    violation.set_description(error.message);
    status.add_details()->PackFrom(bad_request);
  }
  if (error.reason != Reason::kNone) {
    google::rpc::ErrorInfo info;
    info.set_reason(name(error.reason));
    info.set_domain(kErrorDomain);
    status.add_details()->PackFrom(info);
  }
  if (error.retry_after > absl::ZeroDuration()) {
    google::rpc::RetryInfo retry;
    absl::Duration rest;
    retry.mutable_retry_delay()->set_seconds(absl::IDivDuration(error.retry_after, absl::Seconds(1), &rest));
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
    status.add_details()->PackFrom(retry);
  }
  add_request_info(call_id, &status);
  return status;
}

}  // namespace

void* WireMemory::allocate_results(absl::Span<const ResultPart> parts) {
  parts_.assign(parts.begin(), parts.end());
  size_t bytes = 0;
  for (const ResultPart& part : parts) bytes += result_bytes(part);
  if (bytes < kLeastPinnedBytes) {
    results_ = grpc::Slice(bytes);  // one allocation, where a block takes three
    // The slice was made here and is shared with nobody until the reply is put together.
    return const_cast<uint8_t*>(results_.begin());
  }
  auto block = std::make_unique<HostBlock>(of_results_->allocate(bytes));
  void* const data = block->data();
  results_ = grpc::Slice(
      data, bytes, [](void* kept) { delete static_cast<HostBlock*>(kept); }, block.get());
  (void)block.release();  // the slice's now
  return data;
}

grpc::ByteBuffer encode_response(const Outcome& outcome, const WireMemory& memory) {
  return response_of(outcome, memory).build();
}

grpc::ByteBuffer encode_stream_response(uint64_t request_id, const Outcome& outcome, const WireMemory* memory,
                                        std::string_view call_id) {
  v1::DecomposeStreamResponse head;
  head.set_request_id(request_id);
  if (!outcome.error.ok()) *head.mutable_status() = to_rpc_status(outcome.error, call_id);
  MessageBuilder message;
  message.append(head.SerializeAsString());
  if (outcome.error.ok()) {
    message.append_message(v1::DecomposeStreamResponse::kResponseFieldNumber, response_of(outcome, *memory));
  }
  return message.build();
}

grpc::Status to_status(const Error& error, std::string_view call_id) {
  if (error.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(error.code), text_of(error),
                      to_rpc_status(error, call_id).SerializeAsString());
}

grpc::Status with_request_info(const grpc::Status& status, std::string_view call_id) {
  if (status.ok()) return status;
  google::rpc::Status details;
  if (status.error_details().empty() || !details.ParseFromString(status.error_details())) {
    details.set_code(status.error_code());
    details.set_message(status.error_message());
  }
  add_request_info(call_id, &details);
  return {status.error_code(), status.error_message(), details.SerializeAsString()};
}

}  // namespace svdserve::server
