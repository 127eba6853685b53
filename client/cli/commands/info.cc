// svdctl info and svdctl health.
#include <cinttypes>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context.h"
#include "client/cli/printable.h"
#include "client/cli/report/units.h"

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

std::string device_text(const client::ServerDevice& d) {
  std::string text =
      absl::StrFormat("device %-15s %s, %s, ", printable(d.name), printable(d.backend), printable(d.instruction_set));
  if (d.threads > 0) absl::StrAppend(&text, d.threads, d.threads == 1 ? " thread, " : " threads, ");
  absl::StrAppend(&text, d.healthy ? "healthy" : "UNHEALTHY", "; busy ", duration_text(d.busy_seconds), ", holds ",
                  d.outstanding_batches, " of ", d.lanes, d.lanes == 1 ? " batch" : " batches");
  if (d.running_factors > 0) absl::StrAppend(&text, ", computes a large matrix");
  if (d.waiting_factors > 0) {
    absl::StrAppend(&text, ", ", d.waiting_factors, d.waiting_factors == 1 ? " more waits" : " more wait");
  }
  text += "\n";
  if (d.uuid.empty()) return text;  // no device of its own memory
  absl::StrAppendFormat(&text, "  %-20s %s, %s, %s; %s up, %s down\n", "", printable(d.model), printable(d.uuid),
                        bytes_text(d.memory_bytes), bytes_text(d.uploaded_bytes), bytes_text(d.downloaded_bytes));
  return text;
}

// "max values             128   smaller side of a matrix".
std::string limit_text(const char* name, const std::string& value, const char* meaning = "") {
  return absl::StrFormat("%-22s %s%s%s\n", name, value, *meaning == '\0' ? "" : "   ", meaning);
}

std::string info_text(const client::ServerInfo& info) {
  const client::ServerLimits& l = info.limits;
  std::string text = limit_text("version", printable(info.version) + (info.draining ? " (draining)" : ""));
  text += limit_text("data types", names(info.data_types));
  text += limit_text("methods", names(info.methods));
  text += limit_text("max values", absl::StrCat(l.max_values), "smaller side of a matrix");
  text += limit_text("max dimension", absl::StrCat(l.max_dimension), "larger side of a matrix");
  text += limit_text("max matrices", absl::StrCat(l.max_matrices), "of one request");
  text += limit_text("max message", bytes_text(l.max_message_bytes));
  text += limit_text("max in-flight requests", absl::StrCat(l.max_inflight_requests));
  text += limit_text("max in-flight memory", bytes_text(l.max_inflight_bytes));
  text += limit_text("max stream requests", absl::StrCat(l.max_stream_requests));
  text += limit_text("max groups", absl::StrCat(l.max_groups));
  text += limit_text("max general order", absl::StrCat(l.max_general_order), "n of a batch of general eigenproblems");
  text +=
      limit_text("max Hermitian order", absl::StrCat(l.max_hermitian_order), "n of a batch of Hermitian eigenproblems");
  text += limit_text("max large matrix", bytes_text(l.max_large_bytes), "with its results and working memory");
  for (const client::ServerDevice& d : info.devices) text += device_text(d);
  return text;
}

Json::Object json_of(const client::ServerDevice& d) {
  return {{"name", d.name},
          {"backend", d.backend},
          {"instruction_set", d.instruction_set},
          {"threads", d.threads},
          {"healthy", d.healthy},
          {"model", d.model},
          {"uuid", d.uuid},
          {"memory_bytes", d.memory_bytes},
          {"lanes", d.lanes},
          {"outstanding_batches", d.outstanding_batches},
          {"busy_seconds", d.busy_seconds},
          {"uploaded_bytes", d.uploaded_bytes},
          {"downloaded_bytes", d.downloaded_bytes},
          {"running_large_matrices", d.running_factors},
          {"waiting_large_matrices", d.waiting_factors}};
}

Json::Object json_of(const client::ServerInfo& info, const std::string& address) {
  Json::Array types, methods, devices;
  for (const client::DataType type : info.data_types) types.emplace_back(name(type));
  for (const client::Method method : info.methods) methods.emplace_back(name(method));
  for (const client::ServerDevice& d : info.devices) devices.emplace_back(json_of(d));
  const client::ServerLimits& l = info.limits;
  return {{"address", address},
          {"version", info.version},
          {"draining", info.draining},
          {"data_types", types},
          {"methods", methods},
          {"limits", Json::Object{{"max_values", l.max_values},
                                  {"max_dimension", l.max_dimension},
                                  {"max_matrices", l.max_matrices},
                                  {"max_message_bytes", l.max_message_bytes},
                                  {"max_inflight_requests", l.max_inflight_requests},
                                  {"max_inflight_bytes", l.max_inflight_bytes},
                                  {"max_stream_requests", l.max_stream_requests},
                                  {"max_groups", l.max_groups},
                                  {"max_general_order", l.max_general_order},
                                  {"max_hermitian_order", l.max_hermitian_order},
                                  {"max_large_bytes", l.max_large_bytes}}},
          {"devices", devices}};
}

struct InfoArguments {
  Context context{"info"};
};

Arguments declared_info(InfoArguments* to) {
  Arguments a("svdctl info [options]", "Prints the server's version, data types, methods, limits and devices.");
  to->context.connection.limit(std::chrono::seconds(10));
  to->context.declare(&a);
  a.epilogue("Exit codes: 0 done, 1 the server did not reply, 2 wrong usage.");
  return a;
}

struct HealthArguments {
  Context context{"health"};
  std::string service;
};

Arguments declared_health(HealthArguments* to) {
  Arguments a("svdctl health [options]",
              "Asks the server whether it serves (grpc.health.v1), such as for a container's health check.");
  a.section("Options");
  a.option("--service", "NAME", "ask for one service, such as svdserve.v1.SvdService; default: the whole server",
           &to->service);
  to->context.connection.limit(std::chrono::seconds(5));
  to->context.declare(&a);
  a.epilogue("Exit codes: 0 serving, 1 not serving or no reply, 2 wrong usage.");
  return a;
}

}  // namespace

Syntax syntax_of_info() {
  InfoArguments args;
  return declared_info(&args).syntax();
}

Syntax syntax_of_health() {
  HealthArguments args;
  return declared_health(&args).syntax();
}

int run_info(const std::vector<std::string>& words) {
  InfoArguments args;
  const Context& context = args.context;
  Arguments a = declared_info(&args);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  client::Client client(*options);
  const auto info = client.server_info(context.connection.call());
  if (!info.ok()) return fail(context, info.status());
  const auto written =
      context.json ? context.print_json(json_of(*info, context.connection.address())) : context.print(info_text(*info));
  return written.ok() ? kDone : fail(context, written);
}

int run_health(const std::vector<std::string>& words) {
  HealthArguments args;
  const Context& context = args.context;
  Arguments a = declared_health(&args);
  if (const auto code = parse_or_explain(&a, context, words)) return *code;
  const auto options = context.client_options();
  if (!options.ok()) return fail(context, options.status());
  client::Client client(*options);
  const auto serving = client.healthy(args.service, context.connection.call());
  if (!serving.ok()) {
    if (!context.quiet) fail(context, serving.status());
    return kFailed;
  }
  const Json::Object object = {
      {"address", context.connection.address()}, {"service", args.service}, {"serving", *serving}};
  const auto written =
      context.json ? context.print_json(object) : context.print(*serving ? "SERVING\n" : "NOT_SERVING\n");
  if (!written.ok()) return fail(context, written);
  return *serving ? kDone : kFailed;
}

}  // namespace svdserve::cli
