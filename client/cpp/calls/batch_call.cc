#include "client/cpp/calls/batch_call.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/calls/server_calls.h"
#include "client/cpp/prepared.h"
#include "client/cpp/wire/status.h"
#include "client/cpp/wire/wire.h"

namespace svdserve::client::internal {

namespace {

constexpr int64_t kLimits = -1;  // the place of GetServerInfo among the pieces

// The larger; NaN where either is.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

}  // namespace

// --- joining ------------------------------------------------------------------------------------

ReportJoiner::ReportJoiner(int64_t count, int64_t values_per_matrix) {
  report_.count = count;
  report_.values_per_matrix = values_per_matrix;
  report_.pieces = 0;
  report_.attempts = 0;
}

void ReportJoiner::add(int64_t first, Report piece, int64_t attempts) {
  for (MatrixException& e : piece.exceptions) {
    e.index += first;
    report_.exceptions.push_back(e);
  }
  report_.method = piece.method;
  for (size_t begin = 0; begin < piece.device.size();) {
    const size_t end = std::min(piece.device.find(',', begin), piece.device.size());
    devices_.insert(piece.device.substr(begin, end - begin));
    begin = end + 1;
  }
  report_.queue_seconds = std::max(report_.queue_seconds, piece.queue_seconds);
  report_.compute_seconds += piece.compute_seconds;
  report_.total_seconds = std::max(report_.total_seconds, piece.total_seconds);
  if (piece.certificate) {
    Certificate& all = report_.certificate ? *report_.certificate : report_.certificate.emplace();
    all.residual = larger(all.residual, piece.certificate->residual);
    all.left_orthogonality = larger(all.left_orthogonality, piece.certificate->left_orthogonality);
    all.right_orthogonality = larger(all.right_orthogonality, piece.certificate->right_orthogonality);
  }
  ++report_.pieces;
  report_.attempts += attempts;
}

Report ReportJoiner::take() {
  std::sort(report_.exceptions.begin(), report_.exceptions.end(),
            [](const MatrixException& a, const MatrixException& b) { return a.index < b.index; });
  for (const std::string& device : devices_) report_.device += (report_.device.empty() ? "" : ",") + device;
  return std::move(report_);
}

Result<MatrixSizes> check(const Batch& batch, const Outputs& out, const ComputeOptions& compute) {
  Result<MatrixSizes> sizes = matrix_sizes(batch, compute);
  if (!sizes.ok()) return sizes;
  for (int p = 0; p < kPlanes; ++p) {
    const Plane plane = static_cast<Plane>(p);
    const auto needed = static_cast<size_t>(plane_bytes(batch, compute, plane, batch.count));
    if (out[plane].size() == needed) continue;
    return invalid(plane == Plane::kValues ? "values" : "outputs", "the memory for the results has " +
                                                                       std::to_string(out[plane].size()) +
                                                                       " bytes, but needs " + std::to_string(needed));
  }
  return sizes;
}

// --- the call -----------------------------------------------------------------------------------

BatchCall::BatchCall(Core& core, std::span<const Group> groups, const ComputeOptions& compute, const CallOptions& call,
                     Done done)
    : core_(core),
      groups_(groups.begin(), groups.end()),
      compute_(compute),
      stop_(call.stop),
      deadline_(deadline_after(call.timeout, Clock::now())),
      done_(std::move(done)) {
  for (const Group& group : groups_) {
    joiners_.emplace_back(group.batch.count, values_wanted(group.batch, compute_));
  }
}

void BatchCall::start() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Result<MatrixSizes> sizes = check(groups_[g].batch, groups_[g].out, compute_);
    if (!sizes.ok()) return done_(groups_.size() > 1 ? of_group(sizes.status(), g) : sizes.status());
    sizes_.push_back(*sizes);
  }
  if (Status mixed = check_starting_vectors(); !mixed.ok()) return done_(mixed);
  if (!core_.enter(this)) return done_(cancelled());
  // Runs here and now where the stop was requested before; then nothing is sent.
  on_stop_.emplace(stop_, [this] { cancel(); });
  if (core_.limits()) {
    cut();
  } else {
    ask_limits();
  }
}

Status BatchCall::check_starting_vectors() const {
  const Group* first = nullptr;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Batch& batch = groups_[g].batch;
    if (batch.count == 0) continue;
    if (first == nullptr) first = &groups_[g];
    if ((batch.starting_vectors == nullptr) == (first->batch.starting_vectors == nullptr)) continue;
    return of_group(invalid("matrices.starting_vectors", "must be set for every group or for none"), g);
  }
  return {};
}

void BatchCall::ask_limits() {
  auto call = std::make_shared<RetriedCall>(core_, kGetServerInfo, empty_message(), deadline_,
                                            [self = shared_from_this()](Status status, grpc::ByteBuffer& reply, int) {
                                              status = read_limits(self->core_, std::move(status), reply);
                                              if (!status.ok()) self->fail(std::move(status));
                                              {
                                                std::lock_guard lock(self->mutex_);
                                                self->live_.erase(kLimits);
                                              }
                                              self->cut();
                                            });
  launch(kLimits, std::move(call));
}

void BatchCall::cut() {
  // The limits may have been forgotten again by another call that ran into them.
  const PieceLimits limits = core_.limits().value_or(core_.default_limits());
  Result<std::vector<Message>> messages = pack(groups_, limits, compute_);
  if (messages.ok()) {
    std::lock_guard lock(mutex_);
    messages_ = *std::move(messages);
    ready_ = static_cast<int64_t>(messages_.size());
  } else {
    fail(messages.status());
  }
  send_more();
}

void BatchCall::send_more() {
  for (;;) {
    int64_t i;
    {
      std::lock_guard lock(mutex_);
      const bool nothing_to_send = !failure_.ok() || next_ == ready_;
      if (nothing_to_send && live_.empty() && !finished_) {
        finished_ = true;
        break;
      }
      if (nothing_to_send || live_.size() >= window()) return;
      i = next_++;
      live_.emplace(i, nullptr);  // its place in the window, while the request is being made
    }
    launch(i, std::make_shared<RetriedCall>(
                  core_, method_of(compute_), request_of(messages_[static_cast<size_t>(i)]), deadline_,
                  [self = shared_from_this(), i](Status status, grpc::ByteBuffer& reply, int attempts) {
                    self->on_reply(i, std::move(status), reply, attempts);
                  }));
  }
  finish();
}

size_t BatchCall::window() const {
  return static_cast<size_t>(core_.options().pieces_in_flight) * core_.replicas().size();
}

grpc::ByteBuffer BatchCall::request_of(const Message& message) {
  std::vector<BatchToSend> batches;
  for (const Part& part : message) {
    const Batch& batch = groups_[part.group].batch;
    batches.push_back({batch, part.piece.count, make_payloads(core_.buffers(), batch, part.piece, sizes_[part.group])});
  }
  return make_request(batches, compute_);
}

void BatchCall::launch(int64_t i, std::shared_ptr<RetriedCall> call) {
  bool given_up;
  {
    std::lock_guard lock(mutex_);
    live_[i] = call;
    given_up = !failure_.ok();
  }
  if (given_up) call->cancel();  // it still starts, and ends at once: every call ends in its callback
  call->start();
}

void BatchCall::on_reply(int64_t i, Status status, grpc::ByteBuffer& reply, int attempts) {
  const Message& message = messages_[static_cast<size_t>(i)];
  std::vector<Report> reports;
  if (status.ok()) {
    std::vector<BatchToReceive> batches;
    for (const Part& part : message) {
      batches.push_back({expected_of(groups_[part.group].batch, part.piece.count, compute_), outputs_of(part)});
    }
    Result<std::vector<Report>> read = read_response(reply, batches);
    status = read.status();
    if (read.ok()) reports = *std::move(read);
  }
  if (!status.ok()) fail(std::move(status));
  {
    std::lock_guard lock(mutex_);
    for (size_t p = 0; p < reports.size(); ++p) {
      joiners_[message[p].group].add(message[p].piece.first, std::move(reports[p]), attempts);
    }
    live_.erase(i);
  }
  send_more();
}

Outputs BatchCall::outputs_of(const Part& part) const {
  const Group& group = groups_[part.group];
  const auto bytes = [&](Plane plane, int64_t count) {
    return static_cast<size_t>(plane_bytes(group.batch, compute_, plane, count));
  };
  Outputs mine;
  for (int p = 0; p < kPlanes; ++p) {
    const Plane plane = static_cast<Plane>(p);
    mine[plane] = group.out[plane].subspan(bytes(plane, part.piece.first), bytes(plane, part.piece.count));
  }
  return mine;
}

void BatchCall::cancel() { fail(cancelled()); }

void BatchCall::fail(Status status) {
  std::vector<std::shared_ptr<RetriedCall>> others;
  {
    std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = std::move(status);
    for (const auto& [i, call] : live_) {
      if (call) others.push_back(call);
    }
  }
  for (const auto& call : others) call->cancel();
}

void BatchCall::finish() {
  on_stop_.reset();  // waits for a cancel() that is running; none comes after it
  if (failure_.ok()) {
    std::vector<Report> reports;
    for (ReportJoiner& joiner : joiners_) reports.push_back(joiner.take());
    done_(std::move(reports));
  } else {
    core_.forget_limits_after(failure_);
    done_(failure_);
  }
  done_ = nullptr;
  core_.leave(this);
}

}  // namespace svdserve::client::internal
