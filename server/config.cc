#include "server/config.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "server/version.h"

namespace svdserve::server {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kTiB = 1024 * kGiB;
constexpr std::pair<const char*, int64_t> kByteUnits[] = {{"TiB", kTiB}, {"GiB", kGiB}, {"MiB", kMiB}, {"KiB", kKiB}};

// Returns what is wrong with `text`, or nothing when it was stored.
using Parse = std::function<std::string(const std::string& text, Config* config)>;
using Show = std::function<std::string(const Config& config)>;

struct Flag {
  const char* group;
  const char* name;   // without the dashes
  const char* value;  // what --help shows behind "="; empty: a switch
  std::string initial;
  const char* help;
  Parse parse;
  Show show;
};

std::string text_value(std::string Config::*member, const std::string& text, Config* config) {
  config->*member = text;
  return "";
}

Flag text_flag(const char* group, const char* name, const char* value, const char* initial, std::string Config::*member,
               const char* help) {
  return {group,
          name,
          value,
          initial,
          help,
          [member](const std::string& text, Config* config) { return text_value(member, text, config); },
          [member](const Config& config) { return config.*member; }};
}

// A size in bytes: a number, or a number with KiB, MiB, GiB or TiB.
std::optional<int64_t> parse_bytes(absl::string_view text) {
  int64_t unit = 1;
  for (const auto& [suffix, bytes] : kByteUnits) {
    if (!absl::EndsWith(text, suffix)) continue;
    text.remove_suffix(3);
    unit = bytes;
  }
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number)) return std::nullopt;
  int64_t product = 0;
  if (__builtin_mul_overflow(number, unit, &product)) return std::nullopt;
  return product;
}

std::string show_bytes(int64_t bytes) {
  for (const auto& [suffix, unit] : kByteUnits) {
    if (bytes >= unit && bytes % unit == 0) return absl::StrCat(bytes / unit, suffix);
  }
  return absl::StrCat(bytes);
}

Flag bytes_flag(const char* name, int64_t initial, int64_t low, int64_t high, int64_t Config::*member,
                const char* group, const char* help) {
  return {group,
          name,
          "BYTES",
          show_bytes(initial),
          help,
          [=](const std::string& text, Config* config) -> std::string {
            const std::optional<int64_t> bytes = parse_bytes(text);
            if (!bytes || *bytes < low || *bytes > high) {
              return absl::StrCat("needs a size of ", show_bytes(low), " to ", show_bytes(high), ", such as 64MiB");
            }
            config->*member = *bytes;
            return "";
          },
          [member](const Config& config) { return absl::StrCat(config.*member); }};
}

Flag count_flag(const char* name, int64_t initial, int64_t low, int64_t high, int64_t Config::*member,
                const char* group, const char* help) {
  return {group,
          name,
          "N",
          absl::StrCat(initial),
          help,
          [=](const std::string& text, Config* config) -> std::string {
            int64_t number = 0;
            if (!absl::SimpleAtoi(text, &number) || number < low || number > high) {
              return absl::StrCat("needs a whole number of ", low, " to ", high);
            }
            config->*member = number;
            return "";
          },
          [member](const Config& config) { return absl::StrCat(config.*member); }};
}

Flag duration_flag(const char* name, const char* initial, absl::Duration low, absl::Duration high,
                   absl::Duration Config::*member, const char* group, const char* help) {
  return {group,
          name,
          "DURATION",
          initial,
          help,
          [=](const std::string& text, Config* config) -> std::string {
            absl::Duration duration;
            if (!absl::ParseDuration(text, &duration) || duration < low || duration > high) {
              return absl::StrCat("needs a duration of ", absl::FormatDuration(low), " to ", absl::FormatDuration(high),
                                  ", such as 500us, 30s or 2m");
            }
            config->*member = duration;
            return "";
          },
          [member](const Config& config) { return absl::FormatDuration(config.*member); }};
}

// One word of a fixed set, which name() spells.
template <class Enum>
Flag choice_flag(const char* name_, const char* value, std::vector<Enum> choices, Enum initial, Enum Config::*member,
                 const char* group, const char* help) {
  return {group,
          name_,
          value,
          name(initial),
          help,
          [=](const std::string& text, Config* config) -> std::string {
            std::vector<std::string> words;
            for (const Enum choice : choices) {
              if (text == name(choice)) {
                config->*member = choice;
                return "";
              }
              words.push_back(name(choice));
            }
            return absl::StrCat("needs one of ", absl::StrJoin(words, ", "));
          },
          [member](const Config& config) { return name(config.*member); }};
}

Flag switch_flag(const char* name, bool Config::*member, const char* group, const char* help) {
  return {group,
          name,
          "",
          "false",
          help,
          [=](const std::string& text, Config* config) -> std::string {
            return absl::SimpleAtob(text, &(config->*member)) ? "" : "needs true or false";
          },
          [member](const Config& config) { return config.*member ? "true" : "false"; }};
}

// "auto", or names joined by commas. Returns what is wrong, or nothing when it was stored.
std::string parse_devices(const std::string& text, DeviceSelection* selection) {
  constexpr const char* kWrong = "needs auto, or a list of host, cuda and cuda:N, such as cuda:0,cuda:1,host";
  *selection = {};
  if (text == "auto") return "";
  selection->automatic = false;
  std::set<int> ordinals;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    int ordinal = -1;
    if (word == "host") {
      selection->host = true;
    } else if (word == "cuda") {
      selection->every_cuda = true;
    } else if (absl::ConsumePrefix(&word, "cuda:") && absl::SimpleAtoi(word, &ordinal) && ordinal >= 0) {
      ordinals.insert(ordinal);
    } else {
      return kWrong;
    }
  }
  if (selection->every_cuda) ordinals.clear();
  selection->cuda_ordinals.assign(ordinals.begin(), ordinals.end());
  return "";
}

std::string show_devices(const DeviceSelection& selection) {
  if (selection.automatic) return "auto";
  std::vector<std::string> words;
  if (selection.every_cuda) words.push_back("cuda");
  for (const int ordinal : selection.cuda_ordinals) words.push_back(absl::StrCat("cuda:", ordinal));
  if (selection.host) words.push_back("host");
  return absl::StrJoin(words, ",");
}

Flag devices_flag(const char* name, const char* initial, const char* group, const char* help) {
  return {group,
          name,
          "LIST",
          initial,
          help,
          [](const std::string& text, Config* config) { return parse_devices(text, &config->devices); },
          [](const Config& config) { return show_devices(config.devices); }};
}

// Of the memory that the process may use, by the machine or by its control group; in whole MiB.
int64_t half_of_memory() {
  int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::ifstream file("/sys/fs/cgroup/memory.max");  // "max" where there is no limit
  int64_t limit = 0;
  if (file >> limit && limit > 0) bytes = std::min(bytes, limit);
  return std::max<int64_t>(bytes / 2 / kMiB, 1) * kMiB;
}

constexpr const char* kListening = "Listening";
constexpr const char* kLimits = "Limits: what is beyond is refused at once";
constexpr const char* kBatching = "Batching";
constexpr const char* kDevices = "Devices";
constexpr const char* kLife = "Life";

std::vector<Flag> make_flags() {
  using C = Config;
  const absl::Duration us = absl::Microseconds(1), hour = absl::Hours(1);
  return {
      text_flag(kListening, "listen", "ADDR:PORT", "127.0.0.1:50051", &C::listen,
                "gRPC; unix:PATH too. Port 0: any free one. An address that other machines reach needs TLS files or "
                "--insecure"),
      text_flag(kListening, "metrics-listen", "ADDR:PORT", "127.0.0.1:9464", &C::metrics_listen,
                "HTTP: /metrics /livez /readyz. Empty: none"),
      text_flag(kListening, "ready-file", "PATH", "", &C::ready_file,
                "written when the server answers: lines grpc=ADDR:PORT and metrics=ADDR:PORT"),
      text_flag(kListening, "tls-cert", "FILE", "", &C::tls_cert, "PEM chain of the server; with --tls-key"),
      text_flag(kListening, "tls-key", "FILE", "", &C::tls_key, "PEM key of the server"),
      text_flag(kListening, "tls-client-ca", "FILE", "", &C::tls_client_ca,
                "PEM roots; clients must then show a certificate that one of them signed"),
      switch_flag("insecure", &C::insecure, kListening, "allow --listen on other than loopback without TLS"),

      bytes_flag("max-message-bytes", 64 * kMiB, 64 * kKiB, 2047 * kMiB, &C::max_message_bytes, kLimits,
                 "largest request and largest reply, as serialized"),
      count_flag("max-matrices", 16777216, 1, int64_t{1} << 40, &C::max_matrices, kLimits, "matrices of one request"),
      bytes_flag("max-inflight-bytes", kGiB, 4 * kKiB, 1024 * kTiB, &C::max_inflight_bytes, kLimits,
                 "operands and results of all requests in memory"),
      count_flag("max-inflight-requests", 4096, 1, 10000000, &C::max_inflight_requests, kLimits,
                 "admitted and unanswered requests"),
      count_flag("max-stream-requests", 64, 1, 1000000, &C::max_stream_requests, kLimits,
                 "unanswered requests of one stream before the server stops reading it"),
      count_flag("max-streams", 4096, 1, 10000000, &C::max_streams, kLimits, "open streams of all clients"),
      duration_flag("stream-idle-timeout", "60s", absl::Milliseconds(1), 24 * hour, &C::stream_idle_timeout, kLimits,
                    "longest time in which the client of a stream may take nothing while an answer waits for it"),
      count_flag("max-connections", 8192, 1, 10000000, &C::max_connections, kLimits,
                 "connections of all clients; the process's limit of open files may allow fewer"),
      count_flag("max-connection-streams", 256, 1, 1000000, &C::max_connection_streams, kLimits,
                 "calls of one connection at once; more wait in their client"),
      bytes_flag("memory-quota-bytes", 128 * kMiB, 16 * kMiB, 1024 * kTiB, &C::memory_quota_bytes, kLimits,
                 "received bytes that are no request yet; beyond, gRPC reads slower and then drops calls"),
      duration_flag("queue-timeout", "30s", absl::Milliseconds(1), 24 * hour, &C::queue_timeout, kLimits,
                    "longest wait for a device, but of factors: one that waits behind another waits as long as its "
                    "call does"),
      bytes_flag("max-large-bytes", half_of_memory(), kMiB, 1024 * kTiB, &C::max_large_bytes, kLimits,
                 "operands, results and working memory of all factors of DecomposeLarge, beside max-inflight-bytes; "
                 "the default is half of the memory that the process may use"),
      count_flag("max-large-requests", 16, 1, 100000, &C::max_large_requests, kLimits,
                 "factors accepted: uploading, waiting, computing or downloading"),
      duration_flag("large-idle-timeout", "60s", absl::Milliseconds(1), 24 * hour, &C::large_idle_timeout, kLimits,
                    "longest time in which the client of a factor may neither send nor take anything"),

      duration_flag("max-queue-delay", "500us", absl::ZeroDuration(), absl::Seconds(10), &C::max_queue_delay, kBatching,
                    "longest wait for company while devices are busy; an idle device takes a request at once"),
      bytes_flag("max-batch-bytes", 8 * kMiB, 4 * kKiB, kTiB, &C::max_batch_bytes, kBatching,
                 "operands of a batch; a larger request is split"),
      count_flag("max-batch-matrices", 1048576, 1, int64_t{1} << 40, &C::max_batch_matrices, kBatching,
                 "matrices of a batch"),

      devices_flag("devices", "auto", kDevices,
                   "auto: every GPU that can be used, and the CPU. Or a list of host (the CPU), cuda (every GPU) and "
                   "cuda:N, joined by commas: what it names must be there, or the server does not start"),
      count_flag("cuda-lanes", 2, 1, 64, &C::cuda_lanes, kDevices,
                 "batches that each GPU works on at once, each of which overlaps its copies and kernels by itself; "
                 "more cost the "
                 "host more than they bring"),
      bytes_flag("cuda-slot-bytes", 8 * kMiB, 8 * kMiB, kGiB, &C::cuda_slot_bytes, kDevices,
                 "operands that one of a lane's three slots holds, pinned and on the GPU; a larger batch goes through "
                 "in pieces"),
      bytes_flag(
          "cuda-pinned-bytes", kGiB, 0, 64 * kGiB, &C::cuda_pinned_bytes, kDevices,
          "memory that is pinned, with a GPU, for the operands of requests, so that they are copied once; what is "
          "beyond is copied twice"),
      count_flag("host-devices", 1, 1, 256, &C::host_devices, kDevices, "how many devices the CPU shows itself as"),
      count_flag("threads", 0, 0, 4096, &C::threads, kDevices, "of all host devices together; 0: every core"),
      count_flag(
          "large-threads", 0, 0, 4096, &C::large_threads, kDevices,
          "that compute factors of DecomposeLarge on the CPU, one factor at a time; 0: as many as --threads says"),
      choice_flag<Simd>("simd", "SET", {Simd::kBest, Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon},
                        Simd::kBest, &C::simd, kDevices,
                        "instructions of the kernels: best scalar avx2 avx512 neon. Results are the same bits"),
      duration_flag("calibration-time", "200ms", absl::ZeroDuration(), absl::Minutes(1), &C::calibration_time, kDevices,
                    "at start, for measuring how fast each device is, all at once; 0s: none, they learn as they serve"),
      choice_flag<OnDeviceLost>("on-device-lost", "POLICY",
                                {OnDeviceLost::kDegrade, OnDeviceLost::kUnready, OnDeviceLost::kExit},
                                OnDeviceLost::kUnready, &C::on_device_lost, kDevices,
                                "once a GPU is lost or hangs. degrade: serve on with what is left. unready: the same, "
                                "but readiness is false. "
                                "exit: drain as after SIGTERM and exit with status 3"),
      duration_flag("watchdog-timeout", "10s", absl::Milliseconds(100), hour, &C::watchdog_timeout, kDevices,
                    "shortest time without an answer after which a GPU counts as hung; its work must also have taken "
                    "20 times as long as it may"),

      duration_flag("drain-delay", "1s", absl::ZeroDuration(), hour, &C::drain_delay, kLife,
                    "after SIGTERM: time to serve on while readiness is already false"),
      duration_flag("drain-timeout", "30s", us, 24 * hour, &C::drain_timeout, kLife,
                    "after that: longest wait for requests in flight"),
      choice_flag<LogLevel>("log-level", "LEVEL",
                            {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}, LogLevel::kInfo,
                            &C::log_level, kLife, "debug info warning error"),
  };
}

std::string variable_name(const Flag& flag) {
  return absl::StrCat("SVDSERVE_", absl::AsciiStrToUpper(absl::StrReplaceAll(flag.name, {{"-", "_"}})));
}

// Breaks `text` into lines of at most `width` characters, each but the first indented.
std::string wrap(absl::string_view text, size_t indent, size_t width) {
  std::string out;
  size_t column = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    if (column > 0 && column + 1 + word.size() > width) {
      absl::StrAppend(&out, "\n", std::string(indent, ' '));
      column = 0;
    }
    if (column > 0) {
      out.push_back(' ');
      ++column;
    }
    absl::StrAppend(&out, word);
    column += word.size();
  }
  return out;
}

std::string help_text(const std::vector<Flag>& flags) {
  constexpr size_t kIndent = 36, kWidth = 80;
  std::string out =
      "svdserve: singular value decompositions as a service\n\n"
      "Usage: svdserve [--flag=value ...]\n\n"
      "Each flag may come from the environment instead: --max-batch-bytes is\n"
      "SVDSERVE_MAX_BATCH_BYTES. A flag beats its variable. Sizes take KiB, MiB, GiB\n"
      "and TiB, durations us, ms, s, m and h. SIGTERM or SIGINT drains and stops; a\n"
      "second one stops at once.\n";
  const char* group = "";
  for (const Flag& flag : flags) {
    if (absl::string_view(flag.group) != group) absl::StrAppend(&out, "\n", flag.group, "\n");
    group = flag.group;
    std::string left = absl::StrCat("  --", flag.name);
    if (*flag.value != 0) absl::StrAppend(&left, "=", flag.value);
    left.resize(std::max(left.size() + 2, kIndent), ' ');
    std::string right = flag.help;
    if (*flag.value != 0 && !flag.initial.empty()) absl::StrAppend(&right, " [", flag.initial, "]");
    absl::StrAppend(&out, left, wrap(right, kIndent, kWidth - kIndent), "\n");
  }
  absl::StrAppend(&out, "\nOthers\n  --help, --version\n");
  return out;
}

ConfigOutcome refuse(std::string why) {
  ConfigOutcome outcome;
  outcome.action = ConfigOutcome::Action::kRefuse;
  outcome.text = absl::StrCat("svdserve: ", why, "\nTry svdserve --help.\n");
  return outcome;
}

ConfigOutcome print(std::string text) {
  ConfigOutcome outcome;
  outcome.action = ConfigOutcome::Action::kPrint;
  outcome.text = std::move(text);
  return outcome;
}

// "host:port" with a port of 0 to 65535.
bool is_host_port(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return false;
  const std::string host = address.substr(0, colon);
  if (host.find(':') != std::string::npos && !(host.front() == '[' && host.back() == ']')) return false;
  int port = -1;
  return absl::SimpleAtoi(address.substr(colon + 1), &port) && port >= 0 && port <= 65535;
}

// What no single flag can know. Returns what is wrong.
std::string check_together(const Config& config) {
  const bool is_unix = absl::StartsWith(config.listen, "unix:");
  if (is_unix ? config.listen.size() == 5 : !is_host_port(config.listen)) {
    return absl::StrCat("--listen needs ADDR:PORT or unix:PATH, not \"", config.listen, "\"");
  }
  if (!config.metrics_listen.empty() && !is_host_port(config.metrics_listen)) {
    return absl::StrCat("--metrics-listen needs ADDR:PORT, not \"", config.metrics_listen, "\"");
  }
  if (config.tls_cert.empty() != config.tls_key.empty()) return "--tls-cert and --tls-key go together";
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) return "--tls-client-ca needs --tls-cert and --tls-key";
  if (config.tls_cert.empty() && !config.insecure && !is_loopback(config.listen)) {
    return absl::StrCat("--listen=", config.listen,
                        " can be reached from other machines: give --tls-cert and --tls-key, or say --insecure");
  }
  return "";
}

}  // namespace

bool is_loopback(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host == "[::1]" || absl::StartsWith(host, "127.");
}

ConfigOutcome read_config(const std::vector<std::string>& arguments, const Environment& environment) {
  const std::vector<Flag> flags = make_flags();
  ConfigOutcome outcome;
  for (const Flag& flag : flags) {
    if (!flag.initial.empty()) flag.parse(flag.initial, &outcome.config);
    const std::string variable = variable_name(flag);
    const char* value = environment(variable.c_str());
    if (value == nullptr) continue;
    const std::string wrong = flag.parse(value, &outcome.config);
    if (!wrong.empty()) return refuse(absl::StrCat(variable, "=\"", value, "\": --", flag.name, " ", wrong));
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") return print(help_text(flags));
    if (argument == "--version") return print(absl::StrCat("svdserve ", kVersion, "\n"));
    if (!absl::StartsWith(argument, "--")) return refuse(absl::StrCat("unexpected argument \"", argument, "\""));
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
    const auto flag = std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return name == f.name; });
    if (flag == flags.end()) return refuse(absl::StrCat("unknown flag --", name));
    std::string value = "true";
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (*flag->value != 0) {
      if (++i == arguments.size()) return refuse(absl::StrCat("--", name, " needs a value"));
      value = arguments[i];
    }
    const std::string wrong = flag->parse(value, &outcome.config);
    if (!wrong.empty()) return refuse(absl::StrCat("--", name, " ", wrong, ", not \"", value, "\""));
  }
  const std::string wrong = check_together(outcome.config);
  return wrong.empty() ? outcome : refuse(wrong);
}

std::string describe(const Config& config) {
  std::string line;
  for (const Flag& flag : make_flags()) {
    append_logfmt(&line, absl::StrReplaceAll(flag.name, {{"-", "_"}}), flag.show(config));
  }
  return line;
}

}  // namespace svdserve::server
