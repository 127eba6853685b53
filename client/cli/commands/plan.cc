// svdctl plan.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/request_words.h"
#include "client/cli/context.h"
#include "client/cli/data_type.h"
#include "client/cli/printable.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

struct PlanArguments {
  Context context{"plan"};
  std::string shape = "4x4", dtype = "c64", snr_db;
  ProblemWords words;
  int64_t count = 1000, top_k = 0, group_size = 1;
  bool water_filling = false;
  client::Demand demand{.requests_per_second = 0, .latency = {}};
  client::Batch batch;
  client::ComputeOptions compute;
};

Arguments declared(PlanArguments* to) {
  Arguments a("svdctl plan [options] --rate R",
              "Asks a server what serves a load of equal requests: cores, GPUs, replicas like itself, and the limits\n"
              "of memory of each. The server reckons by the times that it measured on its devices.");
  a.section("Requests");
  a.option("--rate", "R", "requests a second, of all clients together", &to->demand.requests_per_second);
  a.option("--latency", "DURATION", "the time that 99 of 100 requests shall not exceed, such as 10ms; 0: any",
           &to->demand.latency);
  a.option("--shape", "MxN", "shape of the matrices", &to->shape);
  a.option("--dtype", "T", kDataTypeNames, &to->dtype);
  a.option("--count", "N", "matrices in each request", &to->count, 1);
  declare_problem(&a, &to->words);
  a.option("--top-k", "K", "only the K largest values and their vectors; 0: all", &to->top_k, 0);
  a.option("--snr-db", "LIST", "instead: capacities of MIMO channels at these SNRs, such as 0,10,20", &to->snr_db);
  a.flag("--water-filling", "capacities by water-filling", &to->water_filling);
  a.option("--group-size", "G", "capacities summed over G neighbours", &to->group_size, 1);
  to->context.connection.limit(std::chrono::seconds(10));
  to->context.declare(&a);
  a.epilogue(
      "Ask a server on a machine of the kind that shall serve, which svdctl bench has sent such requests: times of\n"
      "other shapes are estimates. A replica to spare for updates and failures, and large matrices, come on top.\n"
      "Exit codes: 0 done, 1 no number of replicas reaches --latency, or no reply, 2 wrong usage.");
  return a;
}

// The error in the words, in one line.
std::optional<std::string> read_words(PlanArguments* to) {
  if (!(to->demand.requests_per_second > 0)) return "--rate must be given, above 0";
  const auto shape = parse_shape(to->shape);
  if (!shape || to->shape.find(':') != std::string::npos) return "--shape: \"" + to->shape + "\" is not MxN";
  const auto type = parse_data_type(to->dtype);
  if (!type) return "--dtype: \"" + to->dtype + "\" is not " + kDataTypeNames;
  to->batch = {.rows = shape->rows, .cols = shape->cols, .count = to->count, .data_type = *type};
  if (auto wrong = read_problem(to->words, &to->compute)) return wrong;
  to->compute.top_k = to->top_k;
  const bool is_svd = to->compute.problem == client::Problem::kSvd;
  if (!is_svd && (to->top_k > 0 || !to->snr_db.empty())) return "--top-k and --snr-db are for --problem svd";
  if (to->snr_db.empty() && (to->water_filling || to->group_size > 1)) {
    return "--water-filling and --group-size are for capacities, which --snr-db asks for";
  }
  if (to->snr_db.empty()) return std::nullopt;
  client::MimoOptions mimo;
  for (const std::string& word : split_list(to->snr_db)) {
    const auto db = parse_double(word);
    if (!db) return "--snr-db: \"" + word + "\" is not a number";
    mimo.snr_db.push_back(*db);
  }
  mimo.capacity = !to->water_filling;
  mimo.water_filling = to->water_filling;
  mimo.group_size = to->group_size;
  to->compute.mimo = mimo;
  return std::nullopt;
}

std::string counted(int64_t amount, const char* thing) {
  return absl::StrCat(amount, " ", thing, amount == 1 ? "" : "s");
}

// "3.21", "12", and "0.0001" not as 0.
std::string part_text(double amount) {
  return amount < 100 ? absl::StrFormat("%.3g", amount) : absl::StrFormat("%.0f", amount);
}

std::string flags_text(const client::CapacityPlan& p) {
  return absl::StrCat("--max-inflight-requests=", p.max_inflight_requests,
                      " --max-inflight-bytes=", p.max_inflight_bytes, " --max-message-bytes=", p.max_message_bytes);
}

// The times of a device, which the plan stands on.
std::string device_text(const client::DeviceCost& d) {
  return absl::StrFormat("%-17s %s a request alone, %s a batch of %s%s\n", printable(d.device),
                         duration_text(d.request_seconds), duration_text(d.batch_seconds),
                         absl::StrCat(d.batch_matrices, " matrices"),
                         d.measured ? "" : "; estimated: run svdctl bench with such requests and plan again");
}

std::string plan_text(const PlanArguments& args, const client::CapacityPlan& p) {
  const client::Demand& demand = args.demand;
  std::string text = absl::StrCat(part_text(demand.requests_per_second), " requests/s of ", args.count, " ", args.shape,
                                  " ", args.dtype, "\n");
  const double asked = std::chrono::duration<double>(demand.latency).count();
  if (!p.reachable) {
    absl::StrAppend(&text, "NOT REACHED       99 of 100 requests within ", duration_text(asked), ": they take ",
                    duration_text(p.latency_seconds), " even on servers that are nearly idle\n");
  }
  const std::string gpus = p.replica_gpus > 0 ? " and " + counted(p.replica_gpus, "GPU") : "";
  absl::StrAppend(&text, "replicas          ", p.replicas, ", each with ", counted(p.replica_cores, "core"), gpus,
                  " as this server; add one to spare for updates and failures\n");
  absl::StrAppend(&text, "each serves       ", part_text(p.replica_requests_per_second), " requests/s, utilized to ",
                  part_text(100 * p.utilization), " %; 99 of 100 within ", duration_text(p.latency_seconds), "\n");
  absl::StrAppend(&text, "needed in all     ", part_text(p.cores), " cores");
  if (p.replica_gpus > 0) absl::StrAppend(&text, ", ", part_text(p.gpus), " GPUs");
  absl::StrAppend(&text, "\nflags of each     ", flags_text(p), "\nmemory of each    ", bytes_text(p.memory_bytes),
                  ", and more for large matrices\n");
  absl::StrAppend(&text, "a request takes   ", duration_text(p.core_seconds), " of a core");
  if (p.replica_gpus > 0) absl::StrAppend(&text, ", ", duration_text(p.gpu_seconds), " of a GPU");
  absl::StrAppend(&text, "\n");
  for (const client::DeviceCost& d : p.devices) absl::StrAppend(&text, device_text(d));
  return text;
}

Json::Object json_of(const PlanArguments& args, const client::CapacityPlan& p) {
  Json::Array devices;
  for (const client::DeviceCost& d : p.devices) {
    devices.emplace_back(Json::Object{{"device", d.device},
                                      {"request_s", d.request_seconds},
                                      {"batch_matrices", d.batch_matrices},
                                      {"batch_s", d.batch_seconds},
                                      {"measured", d.measured}});
  }
  return {{"address", args.context.connection.address()},
          {"requests_per_s", args.demand.requests_per_second},
          {"latency_asked_s", std::chrono::duration<double>(args.demand.latency).count()},
          {"reachable", p.reachable},
          {"replicas", p.replicas},
          {"replica_cores", p.replica_cores},
          {"replica_gpus", p.replica_gpus},
          {"replica_requests_per_s", p.replica_requests_per_second},
          {"utilization", p.utilization},
          {"p99_s", p.latency_seconds},
          {"cores", p.cores},
          {"gpus", p.gpus},
          {"core_s", p.core_seconds},
          {"gpu_s", p.gpu_seconds},
          {"max_inflight_requests", p.max_inflight_requests},
          {"max_inflight_bytes", p.max_inflight_bytes},
          {"max_message_bytes", p.max_message_bytes},
          {"memory_bytes", p.memory_bytes},
          {"devices", std::move(devices)}};
}

}  // namespace

Syntax syntax_of_plan() {
  PlanArguments args;
  return declared(&args).syntax();
}

int run_plan(const std::vector<std::string>& words) {
  PlanArguments args;
  const Context& context = args.context;
  Arguments a = declared(&args);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (const auto wrong = read_words(&args)) return bad_usage(context, *wrong);
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  client::Client client(*options);
  const auto plan = client.plan_capacity(args.batch, args.compute, args.demand, context.connection.call());
  if (!plan.ok()) return fail(context, plan.status());
  const auto written = context.json ? context.print_json(json_of(args, *plan)) : context.print(plan_text(args, *plan));
  if (!written.ok()) return fail(context, written);
  return plan->reachable ? kDone : kFailed;
}

}  // namespace svdserve::cli
