// A DecomposeLarge call without a transport, for tests of LargePipeline.
#ifndef SVDSERVE_TESTS_SERVER_LARGE_CALL_H_
#define SVDSERVE_TESTS_SERVER_LARGE_CALL_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "server/base/mutex.h"
#include "server/large/large_job.h"
#include "server/large/large_pipeline.h"

namespace svdserve::server {

inline constexpr uint32_t kChecksum = 99;  // of every chunk: who computes it is the rpc stage

// One DecomposeLarge call as its transport sees it. It notes what the job asks for, and does writes when the test says
// so. As in every transport, a read or an abort after finish is void. Thread-safe, but begin() and what comes from the
// wire are called by one thread.
class LargeCall : public std::enable_shared_from_this<LargeCall> {
 public:
  void begin(LargePipeline* pipeline) {
    job = pipeline->begin("", [self = shared_from_this()](LargeNext next) { self->act(std::move(next)); });
    act(job->opened());
  }
  void act(LargeNext next) {
    next.done_with.clear();
    if (next.delivered && status_arrives) next.delivered();
    MutexLock lock(&mu_);
    if (finished_) {
      EXPECT_FALSE(next.write || next.finish) << "it has finished";
      return;
    }
    if (next.write) {
      EXPECT_FALSE(writing_.has_value()) << "one write at a time";
      writing_ = std::move(next.write);
      const auto* const chunk = std::get_if<LargeResultChunk>(&*writing_);
      if (upcoming_) {
        EXPECT_TRUE(chunk != nullptr && chunk->data == upcoming_->data && chunk->bytes == upcoming_->bytes);
      }
      upcoming_ = std::move(next.upcoming);
    }
    reads_ += next.read ? 1 : 0;
    if (next.abort) aborted_ = std::move(next.abort);
    if (next.finish) {
      EXPECT_FALSE(writing_.has_value()) << "a write is on its way";
      finished_ = std::move(next.finish);
    }
    if (next.finish) upcoming_.reset();
    changed_.signal_all();
  }

  void open(int64_t rows = 4, int64_t cols = 2, std::string signature = "", LargeProblem problem = LargeProblem::kSvd) {
    LargeOpen open;
    open.decomposition = problem;
    open.problem = {rows, cols, DType::kF64, Order::kColumnMajor};
    open.signature = std::move(signature);
    act(job->on_open(open));
  }
  void chunk(int64_t offset, size_t bytes, char fill = 5, uint32_t checksum = kChecksum) {
    if (const std::shared_ptr<char> place = begin_chunk(offset, bytes)) {
      std::memset(place.get(), fill, bytes);
      end_chunk(offset, bytes, place, checksum == kChecksum);
    }
  }
  // The two halves of it, between which anything may happen; null where it is not wanted.
  std::shared_ptr<char> begin_chunk(int64_t offset, size_t bytes) {
    std::shared_ptr<char> place;
    act(job->on_chunk(offset, bytes, &place));
    return place;
  }
  void end_chunk(int64_t offset, size_t bytes, std::shared_ptr<char> place, bool good = true) {
    act(job->on_copied(offset, bytes, std::move(place), good));
  }
  void commit() { act(job->on_commit()); }
  void close_reads() { act(job->on_reads_closed()); }
  void break_off() { act(job->on_broken()); }
  // Opens, sends an operand whose bytes are all `fill`, but for commit; returns what was accepted.
  LargeAccepted upload(int64_t rows, int64_t cols, char fill = 5) {
    open(rows, cols);
    const auto accepted = std::get<LargeAccepted>(*write());
    for (int64_t at = 0; at < accepted.operand_bytes; at += accepted.chunk_bytes) {
      chunk(at, static_cast<size_t>(std::min(accepted.chunk_bytes, accepted.operand_bytes - at)), fill);
    }
    return accepted;
  }
  // Takes all that comes until the call ends; returns the summary, or none where it failed.
  std::optional<LargeSummary> finish() {
    std::optional<LargeSummary> summary;
    while (std::optional<LargeReply> reply = write()) {
      if (const auto* last = std::get_if<LargeSummary>(&*reply)) summary = *last;
    }
    return summary;
  }
  // However far it is, it ends: what the job holds of it is given up.
  void end() {
    break_off();
    while (write(false)) {
    }
  }

  // Waits for the write that is asked for, and does it; none where the call finished instead.
  std::optional<LargeReply> write(bool ok = true) {
    std::optional<LargeReply> reply;
    {
      MutexLock lock(&mu_);
      while (!writing_ && !finished_) changed_.wait(&mu_);
      if (!writing_) return std::nullopt;
      reply = std::exchange(writing_, std::nullopt);
    }
    act(job->on_written(ok));
    return reply;
  }
  Error await_end() {
    MutexLock lock(&mu_);
    while (!finished_) changed_.wait(&mu_);
    return *finished_;
  }
  bool finished() {
    MutexLock lock(&mu_);
    return finished_.has_value();
  }
  bool writing() {
    MutexLock lock(&mu_);
    return writing_.has_value();
  }
  std::optional<Error> aborted() {
    MutexLock lock(&mu_);
    return aborted_;
  }
  int reads() {
    MutexLock lock(&mu_);
    return reads_;
  }

  std::shared_ptr<LargeJob> job;
  bool status_arrives = true;  // at the client's host, as soon as the call ends

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<LargeReply> writing_;
  std::optional<LargeResultChunk> upcoming_;  // what the next write is to be
  std::optional<Error> finished_;
  int reads_ = 0;
  std::optional<Error> aborted_;
};

}  // namespace svdserve::server
#endif  // SVDSERVE_TESTS_SERVER_LARGE_CALL_H_
