// Replies of a server that lies: the C++ client's decoders against libprotobuf's messages.
#include <google/rpc/status.pb.h>
#include <grpcpp/support/status.h>
#include <svdserve/v1/svd_service.pb.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "client/cpp/wire/large_wire.h"
#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire.h"
#include "tests/fuzz/targets.h"
#include "wire/crc32c.h"

namespace svdserve::fuzz {
namespace {

using namespace client;            // NOLINT: the client's values
using namespace client::internal;  // NOLINT: and its decoders

// The questions that replies are read for, by the first byte of the input.
struct Question {
  Batch batch;
  ComputeOptions compute;
};

const std::vector<Question>& questions() {
  static const std::vector<Question> all = [] {
    const Batch small{.rows = 2, .cols = 2, .count = 3}, wide{.rows = 1, .cols = 3, .count = 2};
    MimoOptions numbers{.capacity = true, .stream_snr = true, .condition_number = true, .snr_db = {0, 10}};
    numbers.precoder_columns = numbers.combiner_columns = 1;
    std::vector<Question> to;
    to.push_back({small, {}});
    to.push_back({wide, {.vectors = Vectors::kThin, .certificate = CertificateScope::kBatch}});
    to.push_back({small, {.mimo = numbers}});
    to.push_back({small, {.problem = Problem::kHermitian, .vectors = Vectors::kThin}});
    to.push_back({small, {.problem = Problem::kGeneral, .vectors = Vectors::kFull, .condition = true}});
    return to;
  }();
  return all;
}

// Memory for a reply's planes.
struct Room {
  explicit Room(const Question& q) {
    for (size_t p = 0; p < kPlanes; ++p) {
      memory[p].resize(static_cast<size_t>(plane_bytes(q.batch, q.compute, static_cast<Plane>(p), q.batch.count)));
      out.planes[p] = memory[p];
    }
  }
  BatchToReceive receive(const Question& q) const { return {expected_of(q.batch, q.batch.count, q.compute), out}; }

  std::array<std::vector<std::byte>, kPlanes> memory;
  Outputs out;
};

// The contents of the reply's planes, and its report, by way of a message.
Result<Report> by_message(const v1::DecomposeResponse& message, const Question& q, const Room& room,
                          std::array<std::string_view, kPlanes>* planes) {
  const Expected expected = expected_of(q.batch, q.batch.count, q.compute);
  *planes = planes_of(message, expected);
  std::array<size_t, kPlanes> sizes{};
  for (size_t p = 0; p < kPlanes; ++p) sizes[p] = (*planes)[p].size();
  return to_report(message, expected, sizes, room.out);
}

void compare(const Report& a, const Report& b) {
  require(a.count == b.count && a.values_per_matrix == b.values_per_matrix && a.method == b.method &&
              a.device == b.device && a.exceptions.size() == b.exceptions.size(),
          "the reports differ");
  require(same(a.queue_seconds, b.queue_seconds) && same(a.compute_seconds, b.compute_seconds) &&
              same(a.total_seconds, b.total_seconds),
          "the times differ");
  require(a.certificate.has_value() == b.certificate.has_value(), "a certificate is lost");
  if (a.certificate) require(same(a.certificate->residual, b.certificate->residual), "the certificates differ");
  for (size_t i = 0; i < a.exceptions.size(); ++i) {
    require(a.exceptions[i].index == b.exceptions[i].index && a.exceptions[i].status == b.exceptions[i].status,
            "the exceptions differ");
    require(a.exceptions[i].index >= 0 && a.exceptions[i].index < a.count, "an exception is of no matrix");
  }
}

void read_one(const Question& q, Bytes bytes) {
  Room room(q);
  grpc::ByteBuffer buffer = sliced(bytes);
  const BatchToReceive batch = room.receive(q);
  const Result<std::vector<Report>> got = read_response(buffer, {&batch, 1});
  v1::DecomposeResponse message;
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return require(!got.ok(), "bytes that are no message are taken");
  }
  std::array<std::string_view, kPlanes> planes;
  const Result<Report> want = by_message(message, q, room, &planes);
  require(got.ok() == want.ok(), "the two ways of reading a reply disagree");
  if (!got.ok()) return require(got.status().code == Code::kInternal, "a bad reply has another code");
  compare(got->front(), *want);
  for (size_t p = 0; p < kPlanes; ++p) {
    const std::string_view memory(reinterpret_cast<const char*>(room.memory[p].data()), room.memory[p].size());
    require(memory == planes[p], "a plane differs");
  }
}

void read_groups(Bytes bytes) {
  const Question& q = questions().front();
  const Room first(q), second(q);
  const std::array<BatchToReceive, 2> batches = {first.receive(q), second.receive(q)};
  grpc::ByteBuffer buffer = sliced(bytes);
  const Result<std::vector<Report>> got = read_response(buffer, batches);
  v1::DecomposeResponse message;
  const bool good = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  bool wanted = good && message.groups_size() == 2;
  for (int g = 0; wanted && g < 2; ++g) {
    std::array<std::string_view, kPlanes> planes;
    wanted = by_message(message.groups(g), q, first, &planes).ok();
  }
  // The outer message's other fields are skipped unread: so bytes that libprotobuf refuses there may be taken.
  require(wanted ? got.ok() : !good || !got.ok(), "the two ways of reading groups disagree");
  if (got.ok()) require(got->size() == 2, "a group has no report");
}

void compare(const v1::LargeFactorChunk& want, const LargeReply& got) {
  require(got.step == LargeStep::kFactorChunk, "a chunk is lost");
  std::string data(got.data.size(), '\0');
  require(got.data.copy_to(data.data()) == crc32c(0, want.data().data(), want.data().size()) && data == want.data(),
          "the chunk's bytes differ");
  require(got.offset == want.offset() && got.crc32c == want.crc32c(), "the chunk differs");
  const bool known = want.factor() > 0 && v1::LargeFactor_IsValid(want.factor());
  require(static_cast<int>(got.factor) == (known ? want.factor() : 0), "the result differs");
}

void compare(const v1::LargeSummary& want, const LargeReply& got) {
  require(got.step == LargeStep::kSummary && got.values == want.values() && got.left_columns == want.left_columns() &&
              got.right_rows == want.right_rows() && got.report.device == want.device() &&
              std::cmp_equal(got.report.phases.size(), want.phases_size()),
          "the summary differs");
}

void compare(const v1::LargeProgress& want, const LargeReply& got) {
  require(got.step == LargeStep::kProgress && got.progress.sweep == want.sweep() &&
              got.progress.rotations == want.rotations() && got.progress.device == want.device(),
          "the progress differs");
  require(got.progress.fraction >= 0 && got.progress.fraction <= 1, "the progress is no fraction");
}

}  // namespace

void reply(Bytes bytes) {
  if (bytes.empty()) return;
  const size_t question = bytes[0] % (questions().size() + 1);
  if (question == questions().size()) return read_groups(bytes.subspan(1));
  read_one(questions()[question], bytes.subspan(1));
}

void large_reply(Bytes bytes) {
  grpc::ByteBuffer buffer = sliced(bytes);
  LargeReply got;
  const bool taken = read_large_reply(buffer, &got);
  v1::DecomposeLargeResponse message;
  const bool good = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  require(taken == good, "the two ways of reading a large reply disagree");
  if (!good) return;
  using Response = v1::DecomposeLargeResponse;
  if (message.step_case() == Response::kFactorChunk) return compare(message.factor_chunk(), got);
  if (message.step_case() == Response::kSummary) return compare(message.summary(), got);
  if (message.step_case() == Response::kProgress) return compare(message.progress(), got);
  if (message.step_case() == Response::STEP_NOT_SET)
    return require(got.step == LargeStep::kNothing, "a step is made up");
  require(got.step == LargeStep::kAccepted && got.chunk_bytes == message.accepted().chunk_bytes() &&
              got.operand_bytes == message.accepted().operand_bytes(),
          "the acceptance differs");
}

// The details of an error, the limits of a server, and the texts that are made of them.
void status(Bytes bytes) {
  if (bytes.empty()) return;
  const std::string rest(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
  const Status s = from_grpc(grpc::Status(static_cast<grpc::StatusCode>(bytes[0] % 20), "", rest), {});
  require(!s.ok() || bytes[0] % 20 == 0, "an error is none");
  require(!s.retry_delay || s.retry_delay->count() >= 0, "a delay is negative");
  require(!s.to_string().empty(), "a status has no text");
  google::rpc::Status details;
  if (details.ParseFromString(rest)) require(static_cast<int>(from_rpc(details).code) <= 16, "a code is none");
  v1::GetServerInfoResponse info;
  if (!info.ParseFromString(rest)) return;
  const Result<ServerInfo> got = to_server_info(info);
  if (!got.ok()) return;
  require(got->limits.max_values >= 1 && got->limits.max_message_bytes >= 1 && got->limits.max_hermitian_order >= 0,
          "limits are those of no server");
}

}  // namespace svdserve::fuzz
