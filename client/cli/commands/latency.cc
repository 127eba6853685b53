// svdctl latency: what one small call costs over an empty one.
#include <algorithm>
#include <array>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <functional>
#include <random>

#include "client/cli/commands/commands.h"
#include "client/cli/context.h"

namespace svdserve::cli {
namespace {

using Micros = std::chrono::duration<double, std::micro>;

double median(std::vector<double> v) {
  const auto middle = v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2);
  std::nth_element(v.begin(), middle, v.end());
  return *middle;
}

// One timed call of each kind, in microseconds.
client::Result<double> timed_decompose(client::Client& client, const client::Batch& batch, std::span<std::byte> values,
                                       const client::CallOptions& call) {
  const auto begin = std::chrono::steady_clock::now();
  const auto report = client.decompose(batch, values, {}, call);
  const auto end = std::chrono::steady_clock::now();
  if (!report.ok()) return report.status();
  return Micros(end - begin).count();
}

client::Result<double> timed_ping(client::Client& client, const client::CallOptions& call) {
  const auto took = client.ping(call);
  if (!took.ok()) return took.status();
  return Micros(*took).count();
}

template <class F>
client::Status repeat(int64_t calls, std::vector<double>* micros, F call) {
  micros->clear();
  for (int64_t i = 0; i < calls; ++i) {
    const client::Result<double> took = call();
    if (!took.ok()) return took.status();
    micros->push_back(*took);
  }
  return {};
}

struct LatencyArguments {
  Context context{"latency"};
  int64_t rounds = 10, calls = 2000, size = 4;
  bool csv = false;
};

Arguments declared(LatencyArguments* to) {
  Arguments a("svdctl latency [options]",
              "Times single calls, one after the other: one f64 matrix through Decompose, and an empty unary call.\n"
              "The empty call is GetServerInfo without fields, over the same connection; its reply is not decoded.\n"
              "Rounds of both alternate; the result is the difference of the medians over all rounds.");
  a.section("Options");
  a.option("--rounds", "N", "rounds of each kind", &to->rounds, 1);
  a.option("--calls", "N", "calls in a round", &to->calls, 1);
  a.option("--size", "N", "size of the square matrix", &to->size, 1);
  a.flag("--csv", "print round,decompose_us,empty_us,difference_us; the last line is for all rounds", &to->csv);
  to->context.declare(&a);
  a.epilogue("Exit codes: 0 done, 1 a call failed, 2 wrong usage.");
  return a;
}

// The medians of a round, in microseconds.
struct Round {
  double decompose = 0, empty = 0;
};

// The times of both kinds of calls, round by round; the last one is of all rounds. `each` sees every round as it ends.
client::Result<std::vector<Round>> measure(const LatencyArguments& args, client::Client& client,
                                           const std::function<void(size_t, const Round&)>& each) {
  const int64_t size = args.size;
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal;
  std::vector<double> matrix(static_cast<size_t>(size * size)), values(static_cast<size_t>(size));
  for (double& x : matrix) x = normal(generator);
  const client::Batch batch{.data = matrix.data(), .rows = size, .cols = size, .count = 1};
  const client::CallOptions call = args.context.connection.call();
  const auto decompose = [&] {
    return timed_decompose(client, batch, std::as_writable_bytes(std::span(values)), call);
  };
  const auto empty = [&] { return timed_ping(client, call); };
  std::vector<double> ours, empties, all_ours, all_empties;
  // A tenth of a round of each to warm up: connection, limits, memory.
  if (auto s = repeat(args.calls / 10 + 1, &ours, decompose); !s.ok()) return s;
  if (auto s = repeat(args.calls / 10 + 1, &empties, empty); !s.ok()) return s;
  std::vector<Round> rounds;
  for (int64_t r = 0; r < args.rounds; ++r) {
    if (auto s = repeat(args.calls, &ours, decompose); !s.ok()) return s;
    if (auto s = repeat(args.calls, &empties, empty); !s.ok()) return s;
    rounds.push_back({median(ours), median(empties)});
    each(rounds.size(), rounds.back());
    all_ours.insert(all_ours.end(), ours.begin(), ours.end());
    all_empties.insert(all_empties.end(), empties.begin(), empties.end());
  }
  rounds.push_back({median(all_ours), median(all_empties)});
  return rounds;
}

Json::Object json_of(const Round& r) {
  return {{"decompose_seconds", r.decompose * 1e-6},
          {"empty_seconds", r.empty * 1e-6},
          {"difference_seconds", (r.decompose - r.empty) * 1e-6}};
}

Json::Object json_of(const LatencyArguments& args, const std::vector<Round>& rounds) {
  Json::Array list;
  for (size_t i = 0; i + 1 < rounds.size(); ++i) list.emplace_back(json_of(rounds[i]));
  return {{"address", args.context.connection.address()},
          {"size", args.size},
          {"calls", args.calls},
          {"rounds", std::move(list)},
          {"all", json_of(rounds.back())}};
}

}  // namespace

Syntax syntax_of_latency() {
  LatencyArguments args;
  return declared(&args).syntax();
}

int run_latency(const std::vector<std::string>& words) {
  LatencyArguments args;
  const Context& context = args.context;
  Arguments a = declared(&args);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  if (args.size > 1024) return bad_usage(context, "--size is too large");
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  client::Client client(*options);
  const bool shown = !context.quiet && !context.json;
  if (shown) {
    std::puts(args.csv ? "round,decompose_us,empty_us,difference_us"
                       : "round   decompose      empty   difference (medians, us)");
  }
  const auto print = [&](const std::string& label, const Round& r) {
    if (!shown) return;
    std::printf(args.csv ? "%s,%.3f,%.3f,%.3f\n" : "%-5s %11.1f %10.1f %12.1f\n", label.c_str(), r.decompose, r.empty,
                r.decompose - r.empty);
  };
  const auto rounds = measure(args, client, [&](size_t i, const Round& r) { print(std::to_string(i), r); });
  if (!rounds.ok()) return fail(context, rounds.status());
  print("all", rounds->back());
  const auto written = context.print_json(json_of(args, *rounds));
  return written.ok() ? kDone : fail(context, written);
}

}  // namespace svdserve::cli
