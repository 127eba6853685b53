// svdctl info and svdctl health.
#include <cinttypes>
#include <cstdio>

#include "client/cli/commands/commands.h"
#include "client/cli/connection.h"
#include "client/cli/printable.h"

namespace svdserve::cli {
namespace {

template <class T>
std::string names(const std::vector<T>& list) {
  std::string s;
  for (const T& item : list) {
    if (!s.empty()) s += ' ';
    s += name(item);
  }
  return s;
}

void print(const client::ServerDevice& d) {
  std::printf("device %-15s %s, %s, ", printable(d.name).c_str(), printable(d.backend).c_str(),
              printable(d.instruction_set).c_str());
  if (d.threads > 0) std::printf("%d thread%s, ", d.threads, d.threads == 1 ? "" : "s");
  std::printf("%s; busy %.3f s, holds %" PRId64 " of %d batch%s", d.healthy ? "healthy" : "UNHEALTHY", d.busy_seconds,
              d.outstanding_batches, d.lanes, d.lanes == 1 ? "" : "es");
  if (d.running_factors > 0) std::printf(", computes a large matrix");
  if (d.waiting_factors > 0)
    std::printf(", %" PRId64 " more wait%s", d.waiting_factors, d.waiting_factors == 1 ? "s" : "");
  std::printf("\n");
  if (d.uuid.empty()) return;  // no device of its own memory
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  std::printf("  %-20s %s, %s, %.1f GiB; %.3f GiB up, %.3f GiB down\n", "", printable(d.model).c_str(),
              printable(d.uuid).c_str(), static_cast<double>(d.memory_bytes) / kGiB,
              static_cast<double>(d.uploaded_bytes) / kGiB, static_cast<double>(d.downloaded_bytes) / kGiB);
}

void print(const client::ServerInfo& info) {
  const client::ServerLimits& l = info.limits;
  std::printf("version                %s%s\n", printable(info.version).c_str(), info.draining ? " (draining)" : "");
  std::printf("data types             %s\n", names(info.data_types).c_str());
  std::printf("methods                %s\n", names(info.methods).c_str());
  std::printf("max values             %" PRId64 "   smaller side of a matrix\n", l.max_values);
  std::printf("max dimension          %" PRId64 "   larger side of a matrix\n", l.max_dimension);
  std::printf("max matrices           %" PRId64 "   of one request\n", l.max_matrices);
  std::printf("max message bytes      %" PRId64 "\n", l.max_message_bytes);
  std::printf("max in-flight requests %" PRId64 "\n", l.max_inflight_requests);
  std::printf("max in-flight bytes    %" PRId64 "\n", l.max_inflight_bytes);
  std::printf("max stream requests    %" PRId64 "\n", l.max_stream_requests);
  std::printf("max groups             %" PRId64 "\n", l.max_groups);
  std::printf("max general order      %" PRId64 "   n of a batch of general eigenproblems\n", l.max_general_order);
  std::printf("max Hermitian order    %" PRId64 "   n of a batch of Hermitian eigenproblems\n", l.max_hermitian_order);
  std::printf("max large bytes        %" PRId64 "   of one large matrix, with its results\n", l.max_large_bytes);
  for (const client::ServerDevice& d : info.devices) {
    print(d);
  }
}

}  // namespace

int run_info(const std::vector<std::string>& words) {
  Connection connection;
  Arguments a("svdctl info [options]", "Prints the server's version, data types, methods, limits and devices.");
  connection.declare(&a);
  a.epilogue(
      "Without --timeout it waits 10 s at most.\nExit codes: 0 done, 1 the server did not reply, 2 wrong usage.");
  if (const auto code = parse_or_explain(&a, "info", words)) return *code;
  const auto options = connection.options();
  if (!options.ok()) return fail("info", options.status());
  client::Client client(*options);
  client::CallOptions call = connection.call();
  if (!call.timeout) call.timeout = std::chrono::seconds(10);
  const auto info = client.server_info(call);
  if (!info.ok()) return fail("info", info.status());
  print(*info);
  return kDone;
}

int run_health(const std::vector<std::string>& words) {
  Connection connection;
  std::string service;
  bool quiet = false;
  Arguments a("svdctl health [options]",
              "Asks the server whether it serves (grpc.health.v1), such as for a container's health check.");
  a.section("Options");
  a.option("--service", "NAME", "ask for one service, such as svdserve.v1.SvdService; default: the whole server",
           &service);
  a.flag("--quiet", "print nothing; the exit code has the result", &quiet);
  connection.declare(&a);
  a.epilogue(
      "Without --timeout it waits 5 s at most.\nExit codes: 0 serving, 1 not serving or no reply, 2 wrong usage.");
  if (const auto code = parse_or_explain(&a, "health", words)) return *code;
  const auto options = connection.options();
  if (!options.ok()) return fail("health", options.status());
  client::CallOptions call = connection.call();
  if (!call.timeout) call.timeout = std::chrono::seconds(5);
  client::Client client(*options);
  const auto serving = client.healthy(service, call);
  if (!serving.ok()) {
    if (!quiet) std::fprintf(stderr, "svdctl health: %s\n", printable(serving.status().to_string()).c_str());
    return kFailed;
  }
  if (!quiet) std::puts(*serving ? "SERVING" : "NOT_SERVING");
  return *serving ? kDone : kFailed;
}

}  // namespace svdserve::cli
