#include "client/cpp/calls/batch_call.h"

#include <algorithm>
#include <cmath>

#include "client/cpp/calls/server_calls.h"
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

BatchCall::BatchCall(Core& core, const Batch& batch, const Outputs& out, const ComputeOptions& compute,
                     const CallOptions& call, Done done)
    : core_(core),
      batch_(batch),
      out_(out),
      compute_(compute),
      stop_(call.stop),
      deadline_(deadline_after(call.timeout, Clock::now())),
      done_(std::move(done)),
      joiner_(batch.count, values_wanted(batch, compute)) {}

void BatchCall::start() {
  Result<MatrixSizes> sizes = check(batch_, out_, compute_);
  if (!sizes.ok()) return done_(sizes.status());
  sizes_ = *sizes;
  if (!core_.enter(this)) return done_(cancelled());
  // Runs here and now where the stop was requested before; then nothing is sent.
  on_stop_.emplace(stop_, [this] { cancel(); });
  if (core_.limits()) {
    cut();
  } else {
    ask_limits();
  }
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
  const PieceLimits limits =
      core_.limits().value_or(PieceLimits{core_.options().max_message_bytes, INT64_MAX, core_.options().piece_bytes});
  Result<Split> pieces = split(batch_, limits, compute_);
  if (pieces.ok()) {
    std::lock_guard lock(mutex_);
    pieces_ = pieces->pieces();
    split_ = *pieces;
  } else {
    fail(pieces.status());
  }
  send_more();
}

void BatchCall::send_more() {
  for (;;) {
    int64_t i;
    {
      std::lock_guard lock(mutex_);
      const bool nothing_to_send = !failure_.ok() || next_ == pieces_;
      if (nothing_to_send && live_.empty() && !finished_) {
        finished_ = true;
        break;
      }
      if (nothing_to_send || live_.size() >= static_cast<size_t>(core_.options().pieces_in_flight)) return;
      i = next_++;
      live_.emplace(i, nullptr);  // its place in the window, while the request is being made
    }
    const Piece piece = (*split_)[i];
    grpc::ByteBuffer request =
        make_request(batch_, piece.count, compute_, make_payload(core_.buffers(), batch_, piece, sizes_.matrix_bytes));
    launch(i, std::make_shared<RetriedCall>(
                  core_, kDecompose, std::move(request), deadline_,
                  [self = shared_from_this(), i](Status status, grpc::ByteBuffer& reply, int attempts) {
                    self->on_piece(i, std::move(status), reply, attempts);
                  }));
  }
  finish();
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

void BatchCall::on_piece(int64_t i, Status status, grpc::ByteBuffer& reply, int attempts) {
  const Piece piece = (*split_)[i];
  std::optional<Report> report;
  if (status.ok()) {
    Result<Report> read = read_response(reply, expected_of(batch_, piece.count, compute_), outputs_of(piece));
    status = read.status();
    if (read.ok()) report = *std::move(read);
  }
  if (!report) fail(std::move(status));
  {
    std::lock_guard lock(mutex_);
    if (report) joiner_.add(piece.first, *std::move(report), attempts);
    live_.erase(i);
  }
  send_more();
}

Outputs BatchCall::outputs_of(const Piece& piece) const {
  Outputs mine;
  for (int p = 0; p < kPlanes; ++p) {
    const Plane plane = static_cast<Plane>(p);
    mine[plane] = out_[plane].subspan(static_cast<size_t>(plane_bytes(batch_, compute_, plane, piece.first)),
                                      static_cast<size_t>(plane_bytes(batch_, compute_, plane, piece.count)));
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
    done_(joiner_.take());
  } else {
    core_.forget_limits_after(failure_);
    done_(failure_);
  }
  done_ = nullptr;
  core_.leave(this);
}

}  // namespace svdserve::client::internal
