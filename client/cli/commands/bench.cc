// svdctl bench.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context.h"
#include "client/cli/load/load.h"
#include "client/cli/load/process_usage.h"
#include "client/cli/printable.h"

namespace svdserve::cli {
namespace {

struct BenchOptions {
  std::string shapes = "4x4", dtypes = "c64", problem = "svd", method = "auto", csv;
  int64_t count = 1000, request_bytes = 0, concurrency = 4, window = 4, connections = 1, seed = 1, server_pid = 0;
  int64_t max_outstanding = 10000;
  double rate = 0;
  Duration duration = std::chrono::seconds(10), warmup = std::chrono::seconds(2);
  bool empty = false, stream = false, retry = false;
};

// The result of a run; the columns of the CSV output in their order.
struct Row {
  std::vector<std::pair<std::string, std::string>> cells;
  template <class T>
  void add(const std::string& column, const T& value) {
    cells.emplace_back(column, absl::StrCat(value));
  }
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

std::optional<client::DataType> parse_dtype(const std::string& text) {
  for (const auto t :
       {client::DataType::kF32, client::DataType::kF64, client::DataType::kC64, client::DataType::kC128}) {
    if (text == name(t)) return t;
  }
  return std::nullopt;
}

// "MxN" or "MxN:WEIGHT".
struct ShapeAndWeight {
  int64_t rows, cols;
  double weight;
};
std::optional<ShapeAndWeight> parse_shape(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  const std::vector<std::string> sides = absl::StrSplit(parts[0], 'x');
  if (parts.size() > 2 || sides.size() != 2) return std::nullopt;
  const auto rows = parse_int(sides[0]), cols = parse_int(sides[1]);
  const auto weight = parts.size() == 2 ? parse_double(parts[1]) : 1.0;
  constexpr int64_t kMost = 1 << 20;  // far beyond any server's limit: keeps the products small
  if (!rows || !cols || !weight || *rows < 1 || *cols < 1 || *rows > kMost || *cols > kMost || !(*weight > 0)) {
    return std::nullopt;
  }
  return ShapeAndWeight{*rows, *cols, *weight};
}

// The names of --problem, and the methods of its batches.
struct ProblemAndMethods {
  std::string name;
  client::Problem problem;
  std::vector<client::Method> methods;
};
const std::vector<ProblemAndMethods>& problems() {
  using client::Method;
  static const std::vector<ProblemAndMethods> all = {
      {"svd", client::Problem::kSvd, {std::begin(client::kSvdMethods), std::end(client::kSvdMethods)}},
      {"eigh", client::Problem::kHermitian, {Method::kAuto, Method::kJacobi}},
      {"eig", client::Problem::kGeneral, {Method::kAuto, Method::kQr, Method::kJacobi}}};
  return all;
}

// The error in what is to be computed, in one line.
std::optional<std::string> read_compute(const BenchOptions& o, client::ComputeOptions* to) {
  const auto problem =
      std::ranges::find_if(problems(), [&](const ProblemAndMethods& p) { return p.name == o.problem; });
  if (problem == problems().end()) return "--problem: \"" + o.problem + "\" is not svd, eigh or eig";
  to->problem = problem->problem;
  const auto method = std::ranges::find_if(problem->methods, [&](client::Method m) { return name(m) == o.method; });
  if (method == problem->methods.end()) {
    return absl::StrCat("--method: \"", o.method, "\" is not ", names_of(problem->methods),
                        ", the methods of --problem ", o.problem);
  }
  to->method = *method;
  return std::nullopt;
}

// Every shape with every type. Nothing and a reason where a word is wrong.
std::optional<std::vector<Workload>> make_mix(const BenchOptions& o, const client::ComputeOptions& compute,
                                              std::string* why) {
  std::vector<Workload> mix;
  for (const std::string& shape_text : split_list(o.shapes)) {
    const auto shape = parse_shape(shape_text);
    if (!shape) return *why = "--shape: \"" + shape_text + "\" is not MxN or MxN:WEIGHT", std::nullopt;
    if (o.problem != "svd" && shape->rows != shape->cols)
      return *why = "--shape: \"" + shape_text + "\" must be square with --problem " + o.problem, std::nullopt;
    for (const std::string& type_text : split_list(o.dtypes)) {
      const auto type = parse_dtype(type_text);
      if (!type) return *why = "--dtype: \"" + type_text + "\" is not f32, f64, c64 or c128", std::nullopt;
      const int64_t matrix_bytes = shape->rows * shape->cols * static_cast<int64_t>(client::element_bytes(*type));
      const int64_t count = o.request_bytes > 0 ? std::max<int64_t>(o.request_bytes / matrix_bytes, 1) : o.count;
      if (count > (int64_t{4} << 30) / matrix_bytes)
        return *why = "--count, --request-bytes: a request must not exceed 4 GiB", std::nullopt;
      mix.push_back(make_workload(shape->rows, shape->cols, count, *type, shape->weight,
                                  static_cast<uint64_t>(o.seed) + mix.size(), compute));
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

Row make_row(const BenchOptions& o, const std::string& address, const std::string& version, const LoadTally& t,
             const Snapshot& started, const Snapshot& begin, const Snapshot& end) {
  const double seconds = std::chrono::duration<double>(end.time - begin.time).count();
  const double gb = static_cast<double>(t.request_bytes) * 1e-9;
  const auto per_gb = [&](double cpu) { return gb > 0 ? absl::StrCat(cpu / gb) : std::string(); };
  utsname machine{};
  uname(&machine);
  Row row;
  row.add("machine", machine.nodename);
  row.add("address", address);
  row.add("server_version", absl::StrReplaceAll(printable(version), {{",", " "}}));
  row.add("loop", o.rate > 0 ? "open" : "closed");
  row.add("rpc", o.empty ? "empty" : o.stream ? "stream" : "unary");
  row.add("shape", absl::StrReplaceAll(o.shapes, {{",", " "}}));
  row.add("dtype", absl::StrReplaceAll(o.dtypes, {{",", " "}}));
  row.add("problem", o.problem);
  row.add("method", o.method);
  row.add("count", o.request_bytes > 0 ? absl::StrCat(o.request_bytes, "B") : absl::StrCat(o.count));
  row.add("concurrency", o.rate > 0 ? 0 : o.concurrency);
  row.add("window", o.stream ? o.window : 1);
  row.add("connections", o.connections);
  row.add("offered_per_s", o.rate);
  row.add("seconds", seconds);
  row.add("ok", t.ok);
  row.add("refused", t.refused);
  row.add("expired", t.expired);
  row.add("failed", t.failed);
  row.add("dropped", t.dropped);
  row.add("matrices", t.matrices);
  row.add("matrices_not_ok", t.exceptions);
  row.add("requests_per_s", static_cast<double>(t.ok) / seconds);
  row.add("matrices_per_s", static_cast<double>(t.matrices) / seconds);
  row.add("gb_per_s", gb / seconds);
  for (const auto& [column, q] : {std::pair{"p50_s", 0.5}, {"p90_s", 0.9}, {"p99_s", 0.99}, {"p999_s", 0.999}}) {
    row.add(column, t.latency.quantile_seconds(q));
  }
  row.add("max_s", t.latency.max_seconds());
  const double client_cpu = end.client.cpu_seconds - begin.client.cpu_seconds;
  row.add("client_cpu_s", client_cpu);
  row.add("client_cpu_s_per_gb", per_gb(client_cpu));
  const bool has_server = started.server && begin.server && end.server;
  const double server_cpu = has_server ? end.server->cpu_seconds - begin.server->cpu_seconds : 0;
  row.add("server_cpu_s", has_server ? absl::StrCat(server_cpu) : "");
  row.add("server_cpu_s_per_gb", has_server ? per_gb(server_cpu) : "");
  row.add("server_rss_start_bytes", has_server ? absl::StrCat(started.server->rss_bytes) : "");
  row.add("server_rss_warm_bytes", has_server ? absl::StrCat(begin.server->rss_bytes) : "");
  row.add("server_rss_end_bytes", has_server ? absl::StrCat(end.server->rss_bytes) : "");
  return row;
}

bool write_csv(const std::string& path, const Row& row) {
  std::vector<std::string> head, body;
  for (const auto& [column, value] : row.cells) {
    head.push_back(column);
    body.push_back(value);
  }
  const std::string text = absl::StrCat(absl::StrJoin(body, ","), "\n");
  const std::string with_head = absl::StrCat(absl::StrJoin(head, ","), "\n", text);
  if (path == "-") return std::fputs(with_head.c_str(), stdout) >= 0;
  // Runs add up in one file, under one header.
  const bool has_content = std::ifstream(path).peek() != std::ifstream::traits_type::eof();
  std::ofstream out(path, std::ios::app);
  out << (has_content ? text : with_head);
  out.close();
  return !out.fail();
}

void print_report(const Row& row, const LoadTally& t, std::FILE* to) {
  for (const auto& [column, value] : row.cells) {
    if (!value.empty()) std::fprintf(to, "%-24s %s\n", column.c_str(), value.c_str());
  }
  for (const auto& [error, n] : t.errors) {
    std::fprintf(to, "error %-18s %" PRId64 "   %s\n", printable(error).c_str(), n,
                 printable(t.messages.at(error)).c_str());
  }
}

void declare(Arguments* a, BenchOptions* o) {
  a->section("Requests");
  a->option("--shape", "MxN,...", "shapes, each MxN or MxN:WEIGHT, mixed at random", &o->shapes);
  a->option("--dtype", "T,...", "f32, f64, c64, c128; each shape is sent in each type", &o->dtypes);
  a->option("--count", "N", "matrices in each request", &o->count, 1);
  a->option("--request-bytes", "N", "instead: as many matrices as fill N bytes; 0: by --count", &o->request_bytes, 0);
  a->option("--problem", "NAME", "svd: singular values; eigh, eig: eigenvalues of Hermitian, of general\nmatrices",
            &o->problem);
  std::string methods;
  for (const ProblemAndMethods& p : problems()) {
    absl::StrAppend(&methods, methods.empty() ? "" : ";\n", p.name, ": ", names_of(p.methods));
  }
  a->option("--method", "NAME", methods, &o->method);
  a->section("Load");
  a->option("--concurrency", "N", "closed loop: callers, each waiting for its reply", &o->concurrency, 1);
  a->option("--rate", "R",
            "open loop instead: R requests a second at random times,\nlatency from the time each was due; 0: closed",
            &o->rate);
  a->option("--max-outstanding", "N", "open loop: requests without a reply at which sending pauses",
            &o->max_outstanding, 1);
  a->flag("--empty", "closed loop of empty unary calls instead: the cost of wire and client alone", &o->empty);
  a->flag("--stream", "each caller keeps a stream full", &o->stream);
  a->option("--window", "N", "stream: requests of each without a reply", &o->window, 1);
  a->option("--connections", "N", "TCP connections; callers take turns", &o->connections, 1);
  a->option("--duration", "DURATION", "how long to measure", &o->duration);
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

int exit_code_of(const LoadTally& tally) {
  if (tally.ok + tally.refused + tally.expired + tally.failed == 0) {
    std::fputs("svdctl bench: no request ended within --duration; use a longer duration or smaller requests\n", stderr);
  }
  return tally.failed == 0 && tally.ok > 0 ? kDone : kFailed;
}

}  // namespace

int run_bench(const std::vector<std::string>& words) {
  Context context("bench");
  BenchOptions o;
  Arguments a("svdctl bench [options]", "Sends random matrices and reports rates and latencies.");
  declare(&a, &o);
  context.declare(&a);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (o.rate > 0 && o.stream) return bad_usage(context, "--rate and --stream exclude each other");
  if (o.empty && (o.rate > 0 || o.stream)) return bad_usage(context, "--empty excludes --rate and --stream");
  if (o.duration <= Duration::zero()) return bad_usage(context, "--duration must be positive");
  LoadOptions load_options;
  if (const auto wrong = read_compute(o, &load_options.compute)) return bad_usage(context, *wrong);
  std::string why;
  auto mix = make_mix(o, load_options.compute, &why);
  if (!mix) return bad_usage(context, why);
  if (o.server_pid > 0 && !process_usage(static_cast<pid_t>(o.server_pid))) {
    return bad_usage(context, absl::StrCat("--server-pid: no process has the id ", o.server_pid));
  }
  auto options = context.connection.options();
  if (!options.ok()) return fail(context, options.status());
  options->connections = static_cast<int>(std::min<int64_t>(o.connections, 10000));
  if (!o.retry) options->retry.max_attempts = 1;
  client::Client client(*options);
  // Before any load: one answer, so that a wrong address is an error and not a table of failures.
  const auto info =
      client.server_info({.timeout = context.connection.call().timeout.value_or(std::chrono::seconds(10))});
  if (!info.ok() && info.status().code != client::Code::kUnimplemented) return fail(context, info.status());
  if (info.ok() && !o.empty) {
    const auto wrong = shape_beyond(info->limits, *mix, load_options.compute.problem);
    if (wrong) return bad_usage(context, *wrong);
  }

  load_options.concurrency = o.concurrency;
  if (o.rate > 0) load_options.rate = o.rate;
  load_options.max_outstanding = o.max_outstanding;
  load_options.empty = o.empty;
  load_options.stream = o.stream;
  load_options.window = std::min<int64_t>(o.window, 1 << 20);
  load_options.timeout = context.connection.call().timeout;
  load_options.seed = static_cast<uint64_t>(o.seed);
  Load load(client, *std::move(mix), load_options);
  const Snapshot started = take_snapshot(o.server_pid);
  load.start();
  std::this_thread::sleep_for(o.warmup);
  const Snapshot begin = take_snapshot(o.server_pid);
  load.measure();
  std::this_thread::sleep_for(o.duration);
  const Snapshot end = take_snapshot(o.server_pid);
  const LoadTally tally = load.stop();

  const Row row = make_row(o, context.connection.address(), info.ok() ? info->version : "", tally, started, begin, end);
  print_report(row, tally, o.csv == "-" ? stderr : stdout);
  if (!o.csv.empty() && !write_csv(o.csv, row)) {
    return fail(context, {.code = client::Code::kNotFound, .message = "cannot write " + o.csv});
  }
  return exit_code_of(tally);
}

}  // namespace svdserve::cli
