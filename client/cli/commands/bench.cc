// svdctl bench.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/request_words.h"
#include "client/cli/context.h"
#include "client/cli/data_type.h"
#include "client/cli/load/load.h"
#include "client/cli/load/measurement.h"
#include "client/cli/load/process_usage.h"
#include "client/cli/load/rate_search.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

constexpr Duration kNoSearch = Duration::min();

struct BenchOptions {
  Context context{"bench"};
  std::string shapes = "4x4", dtypes = "c64", csv;
  ProblemWords words;
  int64_t count = 1000, request_bytes = 0, concurrency = 4, window = 4, connections = 1, seed = 1, server_pid = 0;
  int64_t max_outstanding = 10000;
  double rate = 0;
  Duration duration = std::chrono::seconds(10), warmup = std::chrono::seconds(2), find_rate_p99 = kNoSearch;
  bool empty = false, stream = false, retry = false;
};

struct Snapshot {
  std::chrono::steady_clock::time_point time;
  ProcessUsage client;
  std::optional<ProcessUsage> server;
};

Snapshot take_snapshot(int64_t server_pid) {
  Snapshot s{std::chrono::steady_clock::now(), process_usage(::getpid()).value_or(ProcessUsage{}), std::nullopt};
  if (server_pid > 0) s.server = process_usage(static_cast<pid_t>(server_pid));
  return s;
}

constexpr int64_t kMostBytes = int64_t{4} << 30;

// Every shape with every type. Nothing and a reason where a word is wrong.
std::optional<std::vector<Workload>> make_mix(const BenchOptions& o, const client::ComputeOptions& compute,
                                              std::string* why) {
  std::vector<Workload> mix;
  for (const std::string& shape_text : split_list(o.shapes)) {
    const auto shape = parse_shape(shape_text);
    if (!shape) return *why = "--shape: \"" + shape_text + "\" is not MxN or MxN:WEIGHT", std::nullopt;
    if (o.words.problem != "svd" && shape->rows != shape->cols)
      return *why = "--shape: \"" + shape_text + "\" must be square with --problem " + o.words.problem, std::nullopt;
    for (const std::string& type_text : split_list(o.dtypes)) {
      const auto type = parse_data_type(type_text);
      if (!type) return *why = "--dtype: \"" + type_text + "\" is not " + kDataTypeNames, std::nullopt;
      const int64_t matrix_bytes = shape->rows * shape->cols * static_cast<int64_t>(client::element_bytes(*type));
      const int64_t count = o.request_bytes > 0 ? std::max<int64_t>(o.request_bytes / matrix_bytes, 1) : o.count;
      if (count > kMostBytes / matrix_bytes)
        return *why = "--count, --request-bytes: a request must not exceed 4 GiB", std::nullopt;
      mix.push_back(make_workload(shape->rows, shape->cols, count, *type, shape->weight,
                                  static_cast<uint64_t>(o.seed) + mix.size(), compute));
      if (mix.back().reply_bytes > kMostBytes)
        return *why = "--count, --request-bytes: the results of a request must not exceed 4 GiB", std::nullopt;
    }
  }
  if (mix.empty()) return *why = "--shape and --dtype need at least one entry each", std::nullopt;
  return mix;
}

// The error in a shape that the server takes in no batch, in one line; nothing where it takes them all.
std::optional<std::string> shape_beyond(const client::ServerLimits& limits, const std::vector<Workload>& mix,
                                        client::Problem problem) {
  const bool is_general = problem == client::Problem::kGeneral, is_hermitian = problem == client::Problem::kHermitian;
  if (is_general && limits.max_general_order < 1) return "--problem: this server takes no batches of general matrices";
  for (const Workload& w : mix) {
    const client::Batch& b = w.batch;
    const std::string what = absl::StrCat("--shape: \"", b.rows, "x", b.cols, "\" is too large for a batch: ");
    if (is_general && b.rows > limits.max_general_order) {
      return absl::StrCat(what, "this server's max general order is ", limits.max_general_order);
    }
    if (b.values_per_matrix() > limits.max_values) {
      return absl::StrCat(what, "this server's max values, of the smaller side, is ", limits.max_values);
    }
    if (is_hermitian && b.rows > limits.max_hermitian_order) {
      return absl::StrCat(what, "this server's max Hermitian order is ", limits.max_hermitian_order);
    }
    if (std::max(b.rows, b.cols) > limits.max_dimension) {
      return absl::StrCat(what, "this server's max dimension, of the larger side, is ", limits.max_dimension);
    }
  }
  return std::nullopt;
}

LoadDescription description_of(const BenchOptions& o, const std::string& server_version, double rate) {
  return {.address = o.context.connection.address(),
          .server_version = server_version,
          .shapes = o.shapes,
          .dtypes = o.dtypes,
          .problem = o.words.problem,
          .method = o.words.method,
          .vectors = o.words.vectors,
          .rpc = o.empty    ? "empty"
                 : o.stream ? "stream"
                            : "unary",
          .count = o.count,
          .request_bytes = o.request_bytes,
          .concurrency = o.concurrency,
          .window = o.stream ? o.window : 1,
          .connections = o.connections,
          .rate = rate};
}

constexpr std::chrono::minutes kLongestWaitForOne{1};

// One run of load on a client; rate: of an open loop, or 0.
Measurement measure(const BenchOptions& o, client::Client& client, const std::vector<Workload>& mix,
                    const client::ComputeOptions& compute, const std::string& server_version, double rate) {
  LoadOptions options{.concurrency = o.concurrency,
                      .max_outstanding = o.max_outstanding,
                      .empty = o.empty,
                      .stream = o.stream,
                      .window = std::min<int64_t>(o.window, 1 << 20),
                      .compute = compute,
                      .timeout = o.context.connection.call().timeout,
                      .seed = static_cast<uint64_t>(o.seed)};
  if (rate > 0) options.rate = rate;
  Load load(client, mix, options);
  const Snapshot started = take_snapshot(o.server_pid);
  load.start();
  std::this_thread::sleep_for(o.warmup);
  const Snapshot begin = take_snapshot(o.server_pid);
  load.measure();
  std::this_thread::sleep_for(o.duration);
  load.wait_for_one(kLongestWaitForOne);
  const Snapshot end = take_snapshot(o.server_pid);
  Measurement m{.load = description_of(o, server_version, rate)};
  m.tally = load.stop();
  m.seconds = std::chrono::duration<double>(end.time - begin.time).count();
  m.client_cpu_seconds = end.client.cpu_seconds - begin.client.cpu_seconds;
  if (started.server && begin.server && end.server) {
    m.server = {end.server->cpu_seconds - begin.server->cpu_seconds, started.server->rss_bytes, begin.server->rss_bytes,
                end.server->rss_bytes};
  }
  return m;
}

bool write_csv(const std::string& path, const Measurement& m) {
  const std::string with_head = csv_head(m) + csv_line(m);
  if (path == "-") return std::fputs(with_head.c_str(), stdout) >= 0;
  // Runs add up in one file, under one header.
  const bool has_content = std::ifstream(path).peek() != std::ifstream::traits_type::eof();
  std::ofstream out(path, std::ios::app);
  out << (has_content ? csv_line(m) : with_head);
  out.close();
  return !out.fail();
}

void declare(BenchOptions* o, Arguments* a) {
  a->section("Requests");
  a->option("--shape", "MxN,...", "shapes, each MxN or MxN:WEIGHT, mixed at random", &o->shapes);
  a->option("--dtype", "T,...", absl::StrCat(kDataTypeNames, ";\neach shape is sent in each type"), &o->dtypes);
  a->option("--count", "N", "matrices in each request", &o->count, 1);
  a->option("--request-bytes", "N", "instead: as many matrices as fill N bytes; 0: by --count", &o->request_bytes, 0);
  declare_problem(a, &o->words);
  a->section("Load");
  a->option("--concurrency", "N", "closed loop: callers, each waiting for its reply", &o->concurrency, 1);
  a->option("--rate", "R",
            "open loop instead: R requests a second at random times,\nlatency from the time each was due; 0: closed",
            &o->rate);
  a->option(
      "--find-rate-p99", "BOUND",
      "open loop: search for the largest rate whose 99th percentile of latencies\nstays below BOUND, such as 5ms, "
      "to 5 %. Each rate takes --warmup and\n--duration; --rate is the first one, or else 100",
      &o->find_rate_p99);
  a->option("--max-outstanding", "N", "open loop: requests without a reply at which sending pauses",
            &o->max_outstanding, 1);
  a->flag("--empty", "closed loop of empty unary calls instead: the cost of wire and client alone", &o->empty);
  a->flag("--stream", "each caller keeps a stream full", &o->stream);
  a->option("--window", "N", "stream: requests of each without a reply", &o->window, 1);
  a->option("--connections", "N", "TCP connections; callers take turns", &o->connections, 1);
  a->option("--duration", "DURATION", "how long to measure; up to a minute longer until one request has ended",
            &o->duration);
  a->option("--warmup", "DURATION", "load before that, not counted", &o->warmup);
  a->flag("--retry", "let the client retry rejected requests; default: count them", &o->retry);
  a->option("--seed", "N", "seed of the matrices, the mix and the arrivals", &o->seed, 0);
  a->section("Report");
  a->option("--csv", "FILE", "append a line to FILE, with a header where it is new; -: stdout", &o->csv);
  a->option("--server-pid", "PID", "a server on this machine: report its CPU time and memory; 0: none", &o->server_pid,
            0);
  a->epilogue(
      "GB are payload bytes of requests, 10^9. To measure the wire alone, point --address at svdserve_echo.\n"
      "Exit codes: 0 done, 1 a request failed (rejected and expired ones do not count) or none succeeded, 2 wrong "
      "usage.");
}

Arguments declared(BenchOptions* o) {
  Arguments a("svdctl bench [options]",
              "Sends random matrices and reports rates and latencies, with a histogram of these.");
  declare(o, &a);
  o->context.declare(&a);
  return a;
}

// The error in options that exclude each other, in one line.
std::optional<std::string> conflict(const BenchOptions& o) {
  if (o.find_rate_p99 != kNoSearch && o.find_rate_p99 <= Duration::zero()) return "--find-rate-p99 must be positive";
  const bool is_open = o.rate > 0 || o.find_rate_p99 != kNoSearch;
  if (is_open && o.stream) return "--stream is for a closed loop, which --rate and --find-rate-p99 exclude";
  if (o.empty && (is_open || o.stream)) return "--empty excludes --rate, --find-rate-p99 and --stream";
  if (o.duration <= Duration::zero()) return "--duration must be positive";
  if (o.context.json && o.csv == "-") return "--csv - and --json exclude each other";
  if (o.server_pid > 0 && !process_usage(static_cast<pid_t>(o.server_pid))) {
    return absl::StrCat("--server-pid: no process has the id ", o.server_pid);
  }
  return std::nullopt;
}

Json::Object json_of(const FoundRate& found) {
  Json::Array points;
  for (const RatePoint& p : found.points) {
    points.emplace_back(Json::Object{{"offered_per_s", p.rate}, {"p99_s", p.p99_seconds}, {"complete", p.complete}});
  }
  return {{"rate_per_s", found.rate}, {"is_largest", found.is_largest}, {"points", std::move(points)}};
}

int exit_code_of(const LoadTally& tally) {
  if (tally.ok + tally.refused + tally.expired + tally.failed == 0) {
    std::fputs("svdctl bench: no request ended within --duration and another minute; use smaller requests\n", stderr);
  }
  return tally.failed == 0 && tally.ok > 0 ? kDone : kFailed;
}

// Prints the report; found: of a search, which the measurement is the best of.
int report_on(const BenchOptions& o, const Measurement& m, const FoundRate* found) {
  const Context& context = o.context;
  Json::Object object = json_of(m);
  object.emplace_back("search", found == nullptr ? Json() : Json(json_of(*found)));
  if (const auto s = context.print_json(std::move(object)); !s.ok()) return fail(context, s);
  if (const auto s = context.print(report_text(m)); !s.ok()) return fail(context, s);
  if (!o.csv.empty() && !write_csv(o.csv, m)) {
    return fail(context, {.code = client::Code::kUnknown, .message = "cannot write " + o.csv});
  }
  return exit_code_of(m.tally);
}

// Searches for the rate. measured: runs load at a rate.
int run_search(const BenchOptions& o, const std::function<Measurement(double rate)>& measured) {
  const Context& context = o.context;
  const double bound = std::chrono::duration<double>(o.find_rate_p99).count();
  std::optional<Measurement> best;
  const auto point = [&](double rate) -> client::Result<RatePoint> {
    Measurement m = measured(rate);
    const LoadTally& t = m.tally;
    if (t.failed > 0) return client::Status{.code = client::Code::kUnknown, .message = t.messages.begin()->second};
    const RatePoint p{rate, t.latency.quantile_seconds(0.99), t.ok > 0 && t.refused + t.expired + t.dropped == 0};
    const bool within = p.complete && p.p99_seconds <= bound;
    if (within) best = std::move(m);
    if (!context.quiet && !context.json) {
      std::fprintf(stderr, "%s requests/s: p99 %s%s, %s\n", amount_text(rate).c_str(),
                   duration_text(p.p99_seconds).c_str(), p.complete ? "" : " and requests without a result",
                   within ? "within the bound" : "beyond the bound");
    }
    return p;
  };
  const auto found = find_rate({.bound_seconds = bound, .first_rate = o.rate > 0 ? o.rate : 100}, point);
  if (!found.ok()) return fail(context, found.status());
  if (!best) {
    const std::string least = duration_text(bound);
    return fail(context,
                {.code = client::Code::kUnknown,
                 .message = "no rate has a p99 within " + least + "; give a larger bound or smaller requests"});
  }
  const std::string line =
      absl::StrCat("largest rate with a p99 within ", duration_text(bound), ": ", found->is_largest ? "" : "at least ",
                   amount_text(found->rate), " requests/s\n");
  if (const auto s = context.print(line); !s.ok()) return fail(context, s);
  return report_on(o, *best, &*found);
}

}  // namespace

Syntax syntax_of_bench() {
  BenchOptions args;
  return declared(&args).syntax();
}

int run_bench(const std::vector<std::string>& words) {
  BenchOptions o;
  Context& context = o.context;
  Arguments a = declared(&o);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (const auto wrong = conflict(o)) return bad_usage(context, *wrong);
  context.data_on_stdout = o.csv == "-";
  client::ComputeOptions compute;
  if (const auto wrong = read_problem(o.words, &compute)) return bad_usage(context, *wrong);
  std::string why;
  const auto mix = make_mix(o, compute, &why);
  if (!mix) return bad_usage(context, why);
  auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  options->connections = static_cast<int>(std::min<int64_t>(o.connections, 10000));
  // Before any load: one reply, so that a wrong address is an error and not a table of failures.
  options->retry.max_attempts = 2;  // one of several servers may be out of reach
  const auto info = client::Client(*options).server_info(
      {.timeout = context.connection.call().timeout.value_or(std::chrono::seconds(10))});
  options->retry.max_attempts = o.retry ? client::RetryPolicy().max_attempts : 1;
  client::Client client(*options);
  if (!info.ok() && info.status().code != client::Code::kUnimplemented) return fail(context, info.status());
  if (info.ok() && !o.empty) {
    if (const auto wrong = shape_beyond(info->limits, *mix, compute.problem)) return bad_usage(context, *wrong);
  }
  const std::string version = info.ok() ? info->version : "";
  if (o.find_rate_p99 != kNoSearch) {
    return run_search(o, [&](double rate) { return measure(o, client, *mix, compute, version, rate); });
  }
  return report_on(o, measure(o, client, *mix, compute, version, o.rate), nullptr);
}

}  // namespace svdserve::cli
