#include "client/cli/commands/batch.h"

#include <chrono>
#include <memory>
#include <stop_token>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/report/summary.h"

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
                             : is_matrix ? npy_type(result_type(batch.data_type))
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

// The name of an output in JSON.
const char* name_of(client::Plane plane) {
  return plane == client::Plane::kValues  ? "values"
         : plane == client::Plane::kLeft  ? "left"
         : plane == client::Plane::kRight ? "right"
                                          : "conditions";
}

Values kind_of(client::Problem problem) {
  return problem == client::Problem::kGeneral     ? Values::kComplex
         : problem == client::Problem::kHermitian ? Values::kEigenvalues
                                                  : Values::kSingular;
}

}  // namespace

int run_batch(const Context& context, client::Client* client, const MatrixStack& stack,
              const client::ComputeOptions& compute, std::span<const BatchFile> files, bool print,
              const Interruption& interruption, const client::CallOptions& call) {
  BatchResults results;
  for (const BatchFile& file : files) {
    if (auto s = results.open(stack, compute, file); !s.ok()) return fail(context, s);
  }
  StackReport report{.stack = stack, .kind = kind_of(compute.problem), .complete = compute.top_k == 0};
  if (client != nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    const auto reply = client->decompose(stack.batch, results.planes(), compute, call);
    if (!reply.ok()) return fail_unless_interrupted(context, reply.status(), interruption);
    report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    report.add(*reply);
  }
  if (auto s = results.commit_all(call.stop); !s.ok()) return fail_unless_interrupted(context, s, interruption);
  report.values_per_matrix = compute.top_k > 0 ? compute.top_k : stack.batch.values_per_matrix();
  report.values = results.planes()[client::Plane::kValues];
  if (compute.condition) report.conditions = results.planes()[client::Plane::kEigenvalueCondition];
  for (const BatchFile& file : files) {
    if (!file.path.empty()) report.outputs.push_back({name_of(file.plane), file.path});
  }
  if (const auto s = print_reports(context, {&report, 1}, print); !s.ok()) return fail(context, s);
  return exit_code(report.exceptions);
}

}  // namespace svdserve::cli
