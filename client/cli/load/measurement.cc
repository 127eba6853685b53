#include "client/cli/load/measurement.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/printable.h"
#include "client/cli/report/units.h"

namespace svdserve::cli {
namespace {

struct Column {
  std::string name;
  Json value;
  std::string csv;
};

class Columns {
 public:
  void add(const char* name, Json value, std::string csv) { all_.push_back({name, std::move(value), std::move(csv)}); }
  // Commas separate the cells.
  void add(const char* name, const std::string& text) {
    add(name, text, absl::StrReplaceAll(printable(text), {{",", " "}}));
  }
  template <class T>
  void add(const char* name, T number) {
    add(name, Json(number), absl::StrCat(number));
  }
  template <class T>
  void add(const char* name, const std::optional<T>& number) {
    add(name, number ? Json(*number) : Json(), number ? absl::StrCat(*number) : "");
  }
  const std::vector<Column>& all() const { return all_; }

 private:
  std::vector<Column> all_;
};

std::optional<double> a_gb(const Measurement& m, double seconds) {
  const double gb = static_cast<double>(m.tally.request_bytes) * 1e-9;
  return gb > 0 ? std::optional(seconds / gb) : std::nullopt;
}

void add_load(const LoadDescription& load, Columns* c) {
  utsname machine{};
  uname(&machine);
  const bool is_open = load.rate > 0;
  c->add("machine", std::string(machine.nodename));
  c->add("address", load.address);
  c->add("server_version", load.server_version);
  c->add("loop", std::string(is_open ? "open" : "closed"));
  c->add("rpc", std::string(load.rpc));
  c->add("shape", load.shapes);
  c->add("dtype", load.dtypes);
  c->add("problem", load.problem);
  c->add("method", load.method);
  const bool by_bytes = load.request_bytes > 0;
  c->add("count", by_bytes ? Json() : Json(load.count),
         by_bytes ? absl::StrCat(load.request_bytes, "B") : absl::StrCat(load.count));
  c->add("concurrency", is_open ? int64_t{0} : load.concurrency);
  c->add("window", load.window);
  c->add("connections", load.connections);
  c->add("offered_per_s", load.rate);
}

Columns columns_of(const Measurement& m) {
  const LoadTally& t = m.tally;
  Columns c;
  add_load(m.load, &c);
  c.add("seconds", m.seconds);
  c.add("ok", t.ok);
  c.add("refused", t.refused);
  c.add("expired", t.expired);
  c.add("failed", t.failed);
  c.add("dropped", t.dropped);
  c.add("matrices", t.matrices);
  c.add("matrices_not_ok", t.exceptions);
  c.add("requests_per_s", m.requests_per_second());
  c.add("matrices_per_s", static_cast<double>(t.matrices) / m.seconds);
  c.add("gb_per_s", static_cast<double>(t.request_bytes) * 1e-9 / m.seconds);
  for (const auto& [column, q] : {std::pair{"p50_s", 0.5}, {"p90_s", 0.9}, {"p99_s", 0.99}, {"p999_s", 0.999}}) {
    c.add(column, t.latency.quantile_seconds(q));
  }
  c.add("max_s", t.latency.max_seconds());
  c.add("client_cpu_s", m.client_cpu_seconds);
  c.add("client_cpu_s_per_gb", a_gb(m, m.client_cpu_seconds));
  const auto of_server = [&m](auto Measurement::Server::*value) {
    return m.server ? std::optional((*m.server).*value) : std::nullopt;
  };
  c.add("server_cpu_s", of_server(&Measurement::Server::cpu_seconds));
  c.add("server_cpu_s_per_gb", m.server ? a_gb(m, m.server->cpu_seconds) : std::nullopt);
  c.add("server_rss_start_bytes", of_server(&Measurement::Server::start_bytes));
  c.add("server_rss_warm_bytes", of_server(&Measurement::Server::warm_bytes));
  c.add("server_rss_end_bytes", of_server(&Measurement::Server::end_bytes));
  c.add("vectors", m.load.vectors);
  return c;
}

std::string load_text(const LoadDescription& load) {
  std::string text =
      load.rate > 0 ? absl::StrCat("open loop, ", amount_text(load.rate), " requests/s offered")
                    : absl::StrCat("closed loop, ", load.concurrency, load.concurrency == 1 ? " caller" : " callers");
  if (std::string(load.rpc) == "empty") return text + ", empty calls";
  if (std::string(load.rpc) == "stream") absl::StrAppend(&text, ", streams of ", load.window, " requests");
  const std::string size = load.request_bytes > 0 ? bytes_text(load.request_bytes)
                                                  : absl::StrCat(load.count, load.count == 1 ? " matrix" : " matrices");
  absl::StrAppend(&text, "; ", size, " a request, ", load.shapes, " ", load.dtypes, ", ", load.problem, " by ",
                  load.method, load.vectors == "none" ? "" : absl::StrCat(" with ", load.vectors, " vectors"));
  return text;
}

std::string cpu_text(const Measurement& m, double seconds) {
  const auto per_gb = a_gb(m, seconds);
  return absl::StrCat(duration_text(seconds), " of processor time",
                      per_gb ? absl::StrCat(", ", duration_text(*per_gb), " a GB") : "");
}

}  // namespace

std::string csv_head(const Measurement& m) {
  const Columns columns = columns_of(m);
  const auto name = [](std::string* to, const Column& column) { absl::StrAppend(to, column.name); };
  return absl::StrCat(absl::StrJoin(columns.all(), ",", name), "\n");
}

std::string csv_line(const Measurement& m) {
  const Columns columns = columns_of(m);
  const auto cell = [](std::string* to, const Column& column) { absl::StrAppend(to, column.csv); };
  return absl::StrCat(absl::StrJoin(columns.all(), ",", cell), "\n");
}

Json::Object json_of(const Measurement& m) {
  Json::Object object;
  const Columns columns = columns_of(m);
  for (const Column& column : columns.all()) object.emplace_back(column.name, column.value);
  Json::Array errors, rows;
  for (const auto& [error, n] : m.tally.errors) {
    errors.emplace_back(Json::Object{{"error", error}, {"count", n}, {"message", m.tally.messages.at(error)}});
  }
  for (const HistogramRow& row : histogram_rows(m.tally.latency)) {
    rows.emplace_back(Json::Object{{"up_to_seconds", row.up_to_seconds}, {"count", row.count}});
  }
  object.emplace_back("request_bytes", m.load.request_bytes > 0 ? Json(m.load.request_bytes) : Json());
  object.emplace_back("errors", std::move(errors));
  object.emplace_back("histogram", std::move(rows));
  return object;
}

// A percentile that no request lies beyond would be the slowest request under another name, so it is left out.
std::string report_text(const Measurement& m) {
  const LoadTally& t = m.tally;
  const auto quantile = [&t](double q) { return duration_text(t.latency.quantile_seconds(q)); };
  std::string text = load_text(m.load) + "\n";
  const auto row = [&text](const char* name, const std::string& what) {
    absl::StrAppendFormat(&text, "%-10s %s\n", name, what);
  };
  row("requests",
      absl::StrCat(t.ok, " ok, ", t.refused, " rejected, ", t.expired, " expired, ", t.failed, " failed",
                   t.dropped > 0 ? absl::StrCat(", ", t.dropped, " not sent") : "", " in ", duration_text(m.seconds)));
  row("rate", absl::StrCat(amount_text(m.requests_per_second()), " requests/s, ",
                           amount_text(static_cast<double>(t.matrices) / m.seconds), " matrices/s, ",
                           absl::StrFormat("%.3g GB/s", static_cast<double>(t.request_bytes) * 1e-9 / m.seconds)));
  if (t.exceptions > 0) row("not ok", absl::StrCat(t.exceptions, " matrices"));
  row("latency", absl::StrCat("median ", quantile(0.5), ", p90 ", quantile(0.9), t.ok >= 100 ? ", p99 " : "",
                              t.ok >= 100 ? quantile(0.99) : "", t.ok >= 1000 ? ", p99.9 " : "",
                              t.ok >= 1000 ? quantile(0.999) : "", ", most ", duration_text(t.latency.max_seconds())));
  row("client", cpu_text(m, m.client_cpu_seconds));
  if (m.server) {
    row("server",
        absl::StrCat(cpu_text(m, m.server->cpu_seconds), "; memory ", bytes_text(m.server->start_bytes), " before, ",
                     bytes_text(m.server->warm_bytes), " warm, ", bytes_text(m.server->end_bytes), " at the end"));
  }
  absl::StrAppend(&text, histogram_text(t.latency));
  for (const auto& [error, n] : t.errors) {
    absl::StrAppendFormat(&text, "error %s, %d times: %s\n", printable(error), n, printable(t.messages.at(error)));
  }
  return text;
}

std::vector<HistogramRow> histogram_rows(const Histogram& histogram) {
  constexpr int kRows = 12;
  if (histogram.total() == 0) return {};
  const double least = histogram.quantile_seconds(0), high = histogram.quantile_seconds(0.999);
  const double most = histogram.max_seconds();
  const double ratio = least > 0 ? std::pow(high / least, 1.0 / kRows) : 1;
  std::vector<HistogramRow> rows;
  int64_t seen = 0;
  const auto add = [&](double bound, int64_t up_to) {
    if (up_to > seen || !rows.empty()) rows.push_back({bound, up_to - seen});
    seen = up_to;
  };
  for (int i = 1; i < kRows && ratio > 1.001; ++i) {
    const double bound = least * std::pow(ratio, i);
    add(bound, histogram.count_up_to(bound));
  }
  add(high, histogram.count_up_to(high));
  if (histogram.total() > seen) add(most, histogram.total());
  return rows;
}

std::string histogram_text(const Histogram& histogram) {
  constexpr double kWidth = 50;
  const std::vector<HistogramRow> rows = histogram_rows(histogram);
  int64_t largest = 1;
  for (const HistogramRow& row : rows) largest = std::max(largest, row.count);
  std::string text;
  for (const HistogramRow& row : rows) {
    const double part = static_cast<double>(row.count) / static_cast<double>(largest);
    const auto length = static_cast<size_t>(std::ceil(kWidth * part));  // a bar for a single one, too
    absl::StrAppendFormat(&text, "  to %9s %10d%s%s\n", duration_text(row.up_to_seconds), row.count,
                          length > 0 ? " " : "", std::string(length, '#'));
  }
  return text;
}

}  // namespace svdserve::cli
