#include "client/cpp/calls/large/large_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

#include "client/cpp/wire/status.h"

namespace svdserve::client::internal {
namespace {

// Larger chunks would only take more memory on both sides.
constexpr int64_t kLargestChunkBytes = 1 << 20;
// Below this a copy is done sooner than another thread begins it.
constexpr size_t kLeastBeside = 128 * 1024;

}  // namespace

LargeReceiver::LargeReceiver(const LargeSizes& sizes, bool has_certificate, const LargeOutputs& out, SideWork* beside)
    : beside_(beside),
      sizes_(sizes),
      has_certificate_(has_certificate),
      targets_{{out.values}, {out.left}, {out.right_adjoint}} {}

void LargeReceiver::restart() {
  beside_->wait();
  {
    std::lock_guard lock(mutex_);
    damage_ = {};
  }
  accepted_ = false;
  chunk_bytes_ = 0;
  report_.reset();
  for (LargeTarget& t : targets_) t.received = 0;
}

Status LargeReceiver::take(LargeReply* from, bool operand_sent) {
  const LargeReply& reply = *from;
  if (!accepted_ && reply.step != LargeStep::kAccepted) return invalid_reply("it does not begin with accepted");
  if (report_) return invalid_reply("it goes on after the summary");
  const bool is_result = reply.step == LargeStep::kFactorChunk || reply.step == LargeStep::kSummary;
  if (is_result && !operand_sent) return invalid_reply("it has results of an operand that was not sent completely");
  switch (reply.step) {
    case LargeStep::kAccepted:
      return take_accepted(reply);
    case LargeStep::kFactorChunk:
      return take_chunk(from);
    case LargeStep::kSummary:
      return take_summary(reply);
    case LargeStep::kProgress:
    case LargeStep::kNothing:  // a step of a later version of the contract
      return {};
  }
  return {};
}

Status LargeReceiver::take_accepted(const LargeReply& reply) {
  if (accepted_) return invalid_reply("it accepts the matrix twice");
  accepted_ = true;
  chunk_bytes_ = std::min(reply.chunk_bytes, kLargestChunkBytes);
  if (chunk_bytes_ < 1) return invalid_reply("it allows chunks of " + std::to_string(chunk_bytes_) + " bytes");
  int64_t result_bytes = 0;  // no more than the machine holds: the memory is there
  for (const LargeTarget& t : targets_) result_bytes += static_cast<int64_t>(t.memory.size());
  if (reply.operand_bytes == sizes_.operand_bytes && reply.result_bytes == result_bytes) return {};
  return invalid_reply("it accepts " + std::to_string(reply.operand_bytes) + " bytes with results of " +
                       std::to_string(reply.result_bytes) + ", but the matrix has " +
                       std::to_string(sizes_.operand_bytes) + " with results of " + std::to_string(result_bytes));
}

Status LargeReceiver::take_summary(const LargeReply& reply) {
  const LargeReport& r = reply.report;
  if (reply.values != sizes_.values || reply.left_columns != sizes_.left_columns ||
      reply.right_rows != sizes_.right_rows) {
    return invalid_reply("its summary has " + std::to_string(reply.values) + " values, " +
                         std::to_string(reply.left_columns) + " columns of U and " + std::to_string(reply.right_rows) +
                         " rows of V^H; " + std::to_string(sizes_.values) + ", " + std::to_string(sizes_.left_columns) +
                         " and " + std::to_string(sizes_.right_rows) + " were asked for");
  }
  if (r.sweeps < 0 || r.proper_rotations < 0 || r.rotations < r.proper_rotations) {
    return invalid_reply("its summary counts " + std::to_string(r.sweeps) + " sweeps and " +
                         std::to_string(r.rotations) + " rotations, " + std::to_string(r.proper_rotations) +
                         " of them proper");
  }
  if (r.members < 0) return invalid_reply("its summary counts " + std::to_string(r.members) + " devices");
  if (r.rank < 0 || r.rank > sizes_.values) {
    return invalid_reply("its summary has the rank " + std::to_string(r.rank));
  }
  if (r.status == MatrixStatus::kNonFinite || r.status == MatrixStatus::kByQr ||
      r.status == MatrixStatus::kNearDefective)
    return invalid_reply("its summary has the status of a small matrix");
  if (r.certificate.has_value() != has_certificate_) {
    return invalid_reply(has_certificate_ ? "its summary has no certificate"
                                          : "its summary has a certificate, none was asked for");
  }
  report_ = r;
  return {};
}

Status LargeReceiver::take_chunk(LargeReply* from) {
  const LargeReply& reply = *from;
  if (reply.factor == LargeFactor::kUnknown) return invalid_reply("it has a result of an unknown kind");
  if (reply.data.size() == 0) return invalid_reply("it has an empty chunk");
  LargeTarget& target = targets_[static_cast<size_t>(reply.factor) - 1];
  const bool in_order = reply.offset >= 0 && static_cast<size_t>(reply.offset) == target.received;
  if (!in_order || reply.data.size() > target.memory.size() - target.received) {
    return invalid_reply("it has a chunk of " + std::to_string(reply.data.size()) + " bytes at byte " +
                         std::to_string(reply.offset) + " of a result of " + std::to_string(target.memory.size()) +
                         " bytes, of which " + std::to_string(target.received) + " had been received");
  }
  std::byte* const to = target.memory.data() + target.received;
  target.received += reply.data.size();
  if (reply.data.size() < kLeastBeside) {
    copy(reply.data, reply.crc32c, reply.offset, to);
  } else {
    beside_->run([this, data = std::exchange(from->data, {}), checksum = reply.crc32c, offset = reply.offset, to] {
      copy(data, checksum, offset, to);
    });
  }
  return damage();
}

void LargeReceiver::copy(const wire::ReceivedBytes& data, uint32_t checksum, int64_t offset, std::byte* to) {
  if (data.copy_to(to) == checksum) return;
  std::lock_guard lock(mutex_);
  if (!damage_.ok()) return;
  damage_ = failure(Code::kDataLoss, "CHUNK_CORRUPTED",
                    "the CRC-32C of a result at byte " + std::to_string(offset) + " is wrong; send the matrix again");
}

Status LargeReceiver::damage() const {
  std::lock_guard lock(mutex_);
  return damage_;
}

Status LargeReceiver::settle() {
  beside_->wait();
  return damage();
}

double LargeReceiver::fraction() const {
  double received = 0, all = 0;
  for (const LargeTarget& t : targets_) {
    received += static_cast<double>(t.received);
    all += static_cast<double>(t.memory.size());
  }
  return received / all;
}

Result<LargeReport> LargeReceiver::finish() {
  for (const LargeTarget& t : targets_) {
    if (t.received != t.memory.size()) {
      return invalid_reply("it ends after " + std::to_string(t.received) + " of " + std::to_string(t.memory.size()) +
                           " bytes of a result");
    }
  }
  if (!report_) return invalid_reply("it ends without a summary");
  return *std::move(report_);
}

}  // namespace svdserve::client::internal
