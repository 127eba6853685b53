#include "client/cli/commands/batch.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <stop_token>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/summary.h"

namespace svdserve::cli {
namespace {

// Where the results of a stack of small matrices go.
class BatchResults {
 public:
  client::Status open(const MatrixStack& stack, const client::ComputeOptions& compute, const BatchFile& file) {
    const client::Batch& batch = stack.batch;
    std::vector<int64_t> shape = stack.batch_shape;
    shape.insert(shape.end(), file.of_matrix.begin(), file.of_matrix.end());
    // Column-major is a single matrix only.
    const bool is_matrix = file.of_matrix.size() == 2;
    const bool by_columns = is_matrix && batch.memory_order == client::MemoryOrder::kColumnMajor;
    const std::string complex = absl::StrCat("c", 2 * client::value_bytes(batch.data_type));
    const bool is_complex =
        compute.problem == client::Problem::kGeneral && file.plane != client::Plane::kEigenvalueCondition;
    const std::string type = is_complex  ? complex
                             : is_matrix ? npy_type(batch.data_type)
                                         : npy_value_type(batch.data_type);
    auto out = NpyOutput::make(file.path, type, shape, by_columns,
                               static_cast<size_t>(plane_bytes(batch, compute, file.plane, batch.count)));
    if (!out.ok()) return out.status();
    planes_[file.plane] = (*out)->data();
    outputs_.push_back(*std::move(out));
    return {};
  }
  const client::Outputs& planes() const { return planes_; }
  client::Status commit_all(const std::stop_token& stop) const {
    std::vector<NpyOutput*> outputs;
    for (const auto& out : outputs_) outputs.push_back(out.get());
    return commit(outputs, stop);
  }

 private:
  std::vector<std::unique_ptr<NpyOutput>> outputs_;
  client::Outputs planes_;
};

// The server's times, and a line about each matrix that is not ok.
void print_details(const MatrixStack& stack, const client::Report& report) {
  std::fprintf(stderr, "queue %.3g s, compute %.3g s, total %.3g s\n", report.queue_seconds, report.compute_seconds,
               report.total_seconds);
  const std::string shape = shape_text(stack.batch);
  for (const client::MatrixException& e : report.exceptions) {
    std::fprintf(stderr, "%s%s: %s\n", place_of(stack, e.index).c_str(), shape.c_str(), name(e.status));
  }
}

}  // namespace

int run_batch(const std::string& command, client::Client* client, const MatrixStack& stack,
              const client::ComputeOptions& compute, std::span<const BatchFile> files, bool verbose,
              const Interruption& interruption, const client::CallOptions& call) {
  BatchResults results;
  for (const BatchFile& file : files) {
    if (auto s = results.open(stack, compute, file); !s.ok()) return fail(command, s);
  }
  client::Report report;
  double seconds = 0;
  if (client != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    auto answer = client->decompose(stack.batch, results.planes(), compute, call);
    if (!answer.ok()) return fail_unless_interrupted(command, answer.status(), interruption);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report = *std::move(answer);
  }
  if (auto s = results.commit_all(call.stop); !s.ok()) return fail_unless_interrupted(command, s, interruption);
  for (const BatchFile& file : files) {
    if (!file.is_printed) continue;
    const bool is_complex = compute.problem == client::Problem::kGeneral;
    if (const auto s = print_values(stack.batch, results.planes()[file.plane], is_complex); !s.ok()) {
      return fail(command, s);
    }
  }
  print_summary(stack.batch, report, seconds, compute.problem);
  if (compute.condition) print_conditions(stack.batch, results.planes()[client::Plane::kEigenvalueCondition]);
  if (verbose && client != nullptr) print_details(stack, report);
  return report.count_wrong() == 0 ? kDone : kExceptions;
}

}  // namespace svdserve::cli
