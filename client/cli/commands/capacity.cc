// svdctl capacity.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/large.h"
#include "client/cli/context.h"
#include "client/cli/files/npy.h"
#include "client/cli/files/npy_output.h"
#include "client/cli/files/output_target.h"
#include "client/cli/formats/input.h"
#include "client/cli/interruption.h"
#include "client/cli/report/json_report.h"
#include "client/cli/report/summary.h"

namespace svdserve::cli {
namespace {

struct CapacityArguments {
  InputFormat format;
  Context context{"capacity"};
  std::string in, out, gradient, snr_db = "10";
  bool water_filling = false;
  int64_t group_size = 1;
  client::ComputeOptions compute;
  bool force = false;
};

Arguments declared(CapacityArguments* to) {
  Arguments a("svdctl capacity [options] IN.npy",
              "Computes the capacity in bit/s/Hz of the MIMO channels in a file: shape (..., m, n), m receive and\n"
              "n transmit antennas. SNR is the transmitted power over the noise power of one receive antenna.\n"
              "Prints the mean for each SNR.");
  a.operand("IN.npy", &to->in);
  a.section("Options");
  a.option("--snr-db", "LIST", "SNRs in dB, such as 0,10,20", &to->snr_db);
  a.flag("--water-filling", "divide the power optimally instead of equally among the transmit antennas",
         &to->water_filling);
  a.option("--group-size", "G",
           "sum over G neighbours along the last dimension before the matrices;\n"
           "--water-filling divides the power of all G among them",
           &to->group_size, 1);
  a.option("-o, --output", "C.npy", "write the capacities to this file: shape (..., number of SNRs); - is stdout",
           &to->out);
  a.alias("--out", "-o");
  a.option("--gradient", "G.npy",
           "write the gradient U diag(dC / ds) V^H of each channel's capacity C to this file:\n"
           "shape (..., number of SNRs, m, n); --water-filling has none with --group-size",
           &to->gradient);
  a.flag("--force", kForceHelp, &to->force);
  to->format.declare(&a);
  to->context.declare(&a, kVerboseHelp);
  a.epilogue(kStackExitCodes);
  return a;
}

// The exit code where the command is over with that.
std::optional<int> parse(const std::vector<std::string>& words, CapacityArguments* to) {
  Arguments a = declared(to);
  if (const auto code = parse_or_explain(&a, to->context, words)) return code;
  client::MimoOptions mimo;
  for (const std::string& word : split_list(to->snr_db)) {
    const auto db = parse_double(word);
    if (!db) return bad_usage(to->context, "--snr-db: \"" + word + "\" is not a number");
    mimo.snr_db.push_back(*db);
  }
  mimo.capacity = !to->water_filling;
  mimo.water_filling = to->water_filling;
  mimo.group_size = to->group_size;
  mimo.gradient = !to->gradient.empty();
  to->compute.mimo = mimo;
  return std::nullopt;
}

std::vector<double> numbers(std::span<const std::byte> bytes, client::DataType type) {
  const size_t size = client::value_bytes(type);
  std::vector<double> out(bytes.size() / size);
  for (size_t i = 0; i < out.size(); ++i) {
    if (size == sizeof(float)) {
      float number;
      std::memcpy(&number, bytes.data() + i * size, size);
      out[i] = static_cast<double>(number);
    } else {
      std::memcpy(&out[i], bytes.data() + i * size, size);
    }
  }
  return out;
}

// The mean for each SNR of what is a number: nan where channels have none; nothing without channels.
std::vector<double> means_of(size_t snrs, const std::vector<double>& capacities) {
  std::vector<double> means;
  for (size_t j = 0; j < snrs && !capacities.empty(); ++j) {
    double sum = 0;
    size_t count = 0;
    for (size_t i = j; i < capacities.size(); i += snrs) {
      if (std::isnan(capacities[i])) continue;
      sum += capacities[i];
      ++count;
    }
    means.push_back(count > 0 ? sum / static_cast<double>(count) : std::nan(""));
  }
  return means;
}

std::string means_text(const std::vector<double>& snr_db, const std::vector<double>& means) {
  std::string text;
  for (size_t j = 0; j < snr_db.size(); ++j) {
    if (means.empty()) {
      absl::StrAppendFormat(&text, "%g dB: no channels\n", snr_db[j]);
    } else {
      absl::StrAppendFormat(&text, "%g dB: %.6g bit/s/Hz\n", snr_db[j], means[j]);
    }
  }
  return text;
}

client::Status print_json(const CapacityArguments& args, const StackReport& report, const std::vector<double>& means) {
  Json::Array list;
  for (size_t j = 0; j < args.compute.mimo->snr_db.size(); ++j) {
    list.emplace_back(Json::Object{{"snr_db", args.compute.mimo->snr_db[j]},
                                   {"bit_per_s_per_hz", means.empty() ? Json() : Json(means[j])}});
  }
  Json::Object object = json_of_call(report);
  object.emplace_back("means", std::move(list));
  object.emplace_back("water_filling", args.water_filling);
  object.emplace_back("group_size", args.group_size);
  return args.context.print_json(std::move(object));
}

// The error for channels that the server takes as large matrices alone, and what to do instead.
std::string too_large(const CapacityArguments& args, const client::Batch& batch, const client::ServerLimits& limits) {
  return absl::StrCat(input_name(args.in), ": channels of ", batch.rows, "x", batch.cols,
                      " are too large: this server computes capacities for min(m, n) <= ", limits.max_values,
                      " and max(m, n) <= ", limits.max_dimension,
                      ". Instead sum log2(1 + SNR s^2 / n) over the singular values s from svdctl values");
}

// Prints the means, and the channels that are not ok.
client::Status report_on(const CapacityArguments& args, const StackReport& report, const std::vector<double>& means) {
  const std::vector<double>& snr_db = args.compute.mimo->snr_db;
  if (args.context.json) return print_json(args, report, means);
  const auto& exceptions = report.exceptions;
  std::string text = means_text(snr_db, means);
  if (!exceptions.empty()) {
    absl::StrAppend(&text, matrices_text(report.stack.batch.count, report.stack.batch), ": ",
                    statuses_text(count_statuses(report.stack.batch.count, exceptions)), "\n",
                    exceptions_text(report.stack, exceptions, args.context.verbose));
  }
  if (auto s = args.context.print(text); !s.ok()) return s;
  if (args.context.quiet || report.stack.batch.count == 0) return {};
  std::fputs(time_text(report).c_str(), stderr);
  if (args.context.verbose) std::fputs(work_text(report).c_str(), stderr);
  return {};
}

// Each of the matrices, which come by columns, by rows.
void transpose(std::span<std::byte> matrices, int64_t rows, int64_t cols, size_t element) {
  const size_t bytes = static_cast<size_t>(rows * cols) * element;
  std::vector<std::byte> one(bytes);
  for (size_t at = 0; at < matrices.size(); at += bytes) {
    std::memcpy(one.data(), matrices.data() + at, bytes);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j) {
        std::memcpy(matrices.data() + at + static_cast<size_t>(i * cols + j) * element,
                    one.data() + static_cast<size_t>(j * rows + i) * element, element);
      }
    }
  }
}

// Memory for the gradients, of a file where one was asked for.
client::Result<std::unique_ptr<NpyOutput>> gradient_output(const CapacityArguments& args, const MatrixStack& stack,
                                                           client::Plane plane) {
  const client::Batch& batch = stack.batch;
  std::vector<int64_t> shape = stack.batch_shape;
  for (const int64_t size : {static_cast<int64_t>(args.compute.mimo->snr_db.size()), batch.rows, batch.cols}) {
    shape.push_back(size);
  }
  return NpyOutput::make(args.gradient, npy_type(result_type(batch.data_type)), shape, false,
                         static_cast<size_t>(plane_bytes(batch, args.compute, plane, batch.count)));
}

int compute(const CapacityArguments& args, client::Client& client, const MatrixStack& stack,
            const std::vector<int64_t>& shape, const client::CallOptions& call, const Interruption& interruption) {
  const Context& context = args.context;
  const client::Batch& batch = stack.batch;
  const client::Plane plane = args.water_filling ? client::Plane::kWaterFilling : client::Plane::kCapacity;
  const auto capacities = NpyOutput::make(args.out, npy_value_type(batch.data_type), shape, false,
                                          static_cast<size_t>(plane_bytes(batch, args.compute, plane, batch.count)));
  if (!capacities.ok()) return fail(context, capacities.status());
  const client::Plane of_gradient =
      args.water_filling ? client::Plane::kWaterFillingGradient : client::Plane::kCapacityGradient;
  const auto gradients = gradient_output(args, stack, of_gradient);
  if (!gradients.ok()) return fail(context, gradients.status());
  client::Outputs out;
  out[plane] = (*capacities)->data();
  out[of_gradient] = (*gradients)->data();
  const auto begin = std::chrono::steady_clock::now();
  const auto reply = client.decompose(batch, out, args.compute, call);
  if (!reply.ok()) return fail_unless_interrupted(context, reply.status(), interruption);
  StackReport report{.stack = stack};
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report.add(*reply);
  if (batch.memory_order == client::MemoryOrder::kColumnMajor) {
    transpose(out[of_gradient], batch.rows, batch.cols, client::element_bytes(result_type(batch.data_type)));
  }
  if (const auto s = commit({capacities->get(), gradients->get()}, call.stop); !s.ok()) {
    return fail_unless_interrupted(context, s, interruption);
  }
  if (!args.out.empty()) report.outputs.push_back({"capacities", args.out});
  if (!args.gradient.empty()) report.outputs.push_back({"gradient", args.gradient});
  const auto means = means_of(args.compute.mimo->snr_db.size(), numbers(out[plane], batch.data_type));
  if (const auto s = report_on(args, report, means); !s.ok()) return fail(context, s);
  return exit_code(report.exceptions);
}

}  // namespace

Syntax syntax_of_capacity() {
  CapacityArguments args;
  return declared(&args).syntax();
}

int run_capacity(const std::vector<std::string>& words) {
  CapacityArguments args;
  const Context& context = args.context;
  if (const auto code = parse(words, &args)) return *code;
  if (const auto s = check_files(&args.context, {{"-o", args.out}, {"--gradient", args.gradient}},
                                 {{"IN.npy", args.in}}, args.force);
      !s.ok()) {
    return fail(context, s);
  }
  const auto stack = load_matrices(args.in, args.format);
  if (!stack.ok()) return fail(context, stack.status());
  const client::Batch& batch = stack->batch;
  if (batch.rows == 0 || batch.cols == 0)
    return bad_usage(context, input_name(args.in) + ": its matrices have no elements");
  std::vector<int64_t> shape = stack->batch_shape;
  if (args.group_size > 1) {
    if (shape.empty() || shape.back() % args.group_size != 0) {
      return bad_usage(context, "--group-size must divide the last dimension before the matrices");
    }
    shape.back() /= args.group_size;
  }
  shape.push_back(static_cast<int64_t>(args.compute.mimo->snr_db.size()));
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  const Interruption interruption;
  client::Client client(*options);
  client::CallOptions call = context.connection.call();
  call.stop = interruption.token();
  if (batch.count > 0) {
    const auto info = ask_server(client, &call);
    if (!info.ok()) return fail_unless_interrupted(context, info.status(), interruption);
    if (is_large(batch, info->limits, args.compute)) return bad_usage(context, too_large(args, batch, info->limits));
  }
  return compute(args, client, *stack, shape, call, interruption);
}

}  // namespace svdserve::cli
