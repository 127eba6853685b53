#include "server/config.h"

#include <algorithm>
#include <optional>
#include <regex>
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
#include "server/peer_address.h"
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

// Stores a size in *value, an int64_t or an optional one. Returns what is wrong, or nothing.
template <class Value>
std::string parse_bytes_between(const std::string& text, int64_t low, int64_t high, Value* value) {
  const std::optional<int64_t> bytes = parse_bytes(text);
  if (!bytes || *bytes < low || *bytes > high) {
    return absl::StrCat("needs a size of ", show_bytes(low), " to ", show_bytes(high), ", such as 64MiB");
  }
  *value = *bytes;
  return "";
}

// Likewise a number.
template <class Value>
std::string parse_count_between(const std::string& text, int64_t low, int64_t high, Value* value) {
  int64_t number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < low || number > high) {
    return absl::StrCat("needs a whole number of ", low, " to ", high);
  }
  *value = number;
  return "";
}

Flag bytes_flag(const char* name, int64_t initial, int64_t low, int64_t high, int64_t Config::*member,
                const char* group, const char* help) {
  return {
      group,
      name,
      "BYTES",
      show_bytes(initial),
      help,
      [=](const std::string& text, Config* config) { return parse_bytes_between(text, low, high, &(config->*member)); },
      [member](const Config& config) { return absl::StrCat(config.*member); }};
}

Flag count_flag(const char* name, int64_t initial, int64_t low, int64_t high, int64_t Config::*member,
                const char* group, const char* help) {
  return {
      group,
      name,
      "N",
      absl::StrCat(initial),
      help,
      [=](const std::string& text, Config* config) { return parse_count_between(text, low, high, &(config->*member)); },
      [member](const Config& config) { return absl::StrCat(config.*member); }};
}

constexpr const char* kAuto = "auto";

using Automatic = std::optional<int64_t> Config::*;

// Parses with `parse`, but for "auto", which leaves the member without a value.
Flag auto_flag(const char* name, const char* value, Automatic member, const char* group, const char* help,
               std::function<std::string(const std::string& text, std::optional<int64_t>* value)> parse) {
  return {group,
          name,
          value,
          kAuto,
          help,
          [member, parse = std::move(parse)](const std::string& text, Config* config) -> std::string {
            (config->*member).reset();
            if (text == kAuto) return "";
            const std::string wrong = parse(text, &(config->*member));
            return wrong.empty() ? "" : absl::StrCat(wrong, ", or auto");
          },
          [member](const Config& config) { return config.*member ? absl::StrCat(*(config.*member)) : kAuto; }};
}

Flag auto_bytes_flag(const char* name, int64_t low, int64_t high, Automatic member, const char* group,
                     const char* help) {
  return auto_flag(name, "BYTES", member, group, help, [=](const std::string& text, std::optional<int64_t>* v) {
    return parse_bytes_between(text, low, high, v);
  });
}

Flag auto_count_flag(const char* name, int64_t low, int64_t high, Automatic member, const char* group,
                     const char* help) {
  return auto_flag(name, "N", member, group, help, [=](const std::string& text, std::optional<int64_t>* v) {
    return parse_count_between(text, low, high, v);
  });
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

// A number of 0 to 1.
Flag share_flag(const char* name, const char* initial, double Config::*member, const char* group, const char* help) {
  return {group,
          name,
          "SHARE",
          initial,
          help,
          [member](const std::string& text, Config* config) -> std::string {
            double share = 0;
            if (!absl::SimpleAtod(text, &share) || !(share >= 0 && share <= 1)) {
              return "needs a number of 0 to 1, such as 0.01";
            }
            config->*member = share;
            return "";
          },
          [member](const Config& config) { return absl::StrCat(config.*member); }};
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
  if (text == kAuto) return "";
  selection->automatic = false;
  std::set<int> ordinals;
  std::set<std::string> words;
  for (absl::string_view word : absl::StrSplit(text, ',')) {
    word = absl::StripAsciiWhitespace(word);
    if (!words.emplace(word).second) return absl::StrCat("names ", word, " twice");
    int ordinal = -1;
    if (word == "host") {
      selection->host = true;
    } else if (word == "cuda") {
      selection->every_cuda = true;
    } else if (absl::ConsumePrefix(&word, "cuda:") && absl::SimpleAtoi(word, &ordinal) && ordinal >= 0) {
      if (!ordinals.insert(ordinal).second) return absl::StrCat("names cuda:", ordinal, " twice");
    } else {
      return kWrong;
    }
  }
  if (selection->every_cuda) ordinals.clear();
  selection->cuda_ordinals.assign(ordinals.begin(), ordinals.end());
  return "";
}

std::string show_devices(const DeviceSelection& selection) {
  if (selection.automatic) return kAuto;
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

constexpr const char* kListening = "Listening";
constexpr const char* kLimits = "Limits: requests beyond these are rejected";
constexpr const char* kBatching = "Batching";
constexpr const char* kDevices = "Devices";
constexpr const char* kLife = "Start and stop";
constexpr const char* kLog = "Log, on standard error";

std::vector<Flag> listening_flags() {
  using C = Config;
  return {
      text_flag(kListening, "listen", "ADDR:PORT", "127.0.0.1:50051", &C::listen,
                "address of gRPC, or unix:PATH. Port 0 takes any free port. An address that other machines reach needs "
                "TLS files or --insecure"),
      text_flag(kListening, "metrics-listen", "ADDR:PORT", "127.0.0.1:9464", &C::metrics_listen,
                "address of HTTP: /metrics /livez /readyz. Empty: no HTTP. An address that other machines reach needs "
                "--metrics-insecure or --insecure"),
      text_flag(kListening, "ready-file", "PATH", "", &C::ready_file,
                "the server writes this file when it serves: lines grpc=ADDR:PORT and metrics=ADDR:PORT"),
      text_flag(kListening, "tls-cert", "FILE", "", &C::tls_cert,
                "PEM chain of the server's certificate; needs --tls-key"),
      text_flag(kListening, "tls-key", "FILE", "", &C::tls_key, "PEM key of that certificate"),
      text_flag(kListening, "tls-client-ca", "FILE", "", &C::tls_client_ca,
                "PEM roots. Each client must then show a certificate that one of them signed"),
      duration_flag(
          "tls-refresh", "1m", absl::ZeroDuration(), 24 * absl::Hours(1), &C::tls_refresh, kListening,
          "time after which the server looks for new TLS files. 0s: after SIGHUP alone, which it always obeys"),
      switch_flag("insecure", &C::insecure, kListening, "serve without TLS on an address that other machines reach"),
      switch_flag("metrics-insecure", &C::metrics_insecure, kListening,
                  "serve HTTP, which has no TLS, on an address that other machines reach"),
      duration_flag("metrics-max-age", "250ms", absl::ZeroDuration(), absl::Minutes(1), &C::metrics_max_age, kListening,
                    "age up to which the text of /metrics is used again"),
      choice_flag<Reflection>("reflection", "WHEN", {Reflection::kAuto, Reflection::kOn, Reflection::kOff},
                              Reflection::kAuto, &C::reflection, kListening,
                              "gRPC server reflection: auto on off. auto: on where --listen is loopback"),
  };
}

std::vector<Flag> request_limit_flags() {
  using C = Config;
  const absl::Duration hour = absl::Hours(1);
  return {
      bytes_flag("max-message-bytes", 64 * kMiB, 64 * kKiB, 2047 * kMiB, &C::max_message_bytes, kLimits,
                 "size of a serialized request, and of a reply"),
      count_flag("max-matrices", 16777216, 1, int64_t{1} << 40, &C::max_matrices, kLimits,
                 "number of matrices in one request"),
      auto_bytes_flag(
          "max-inflight-bytes", 4 * kKiB, 1024 * kTiB, &C::max_inflight_bytes, kLimits,
          "operands and results of all requests in memory. auto: an eighth of memory, at most 4GiB for each "
          "GPU"),
      count_flag("max-inflight-requests", 4096, 1, 10000000, &C::max_inflight_requests, kLimits,
                 "requests that are admitted and have no reply yet"),
      count_flag(
          "max-stream-requests", 64, 1, 1000000, &C::max_stream_requests, kLimits,
          "requests of one stream without a reply. At this limit the server reads no further request of the stream"),
      count_flag("max-streams", 4096, 1, 10000000, &C::max_streams, kLimits, "open streams of all clients"),
      count_flag("max-open-calls", 16384, 1, 10000000, &C::max_open_calls, kLimits,
                 "open calls of all kinds and clients, with the watches of health and the calls of reflection"),
      count_flag("max-peer-percent", 75, 1, 100, &C::max_peer_percent, kLimits,
                 "share of bytes, requests, large matrices, calls and connections that one client address may hold. An "
                 "IPv6 /64 and a user of a Unix socket each count as one address"),
      text_flag(kLimits, "trusted-proxies", "LIST", "", &C::trusted_proxies,
                "addresses and networks, joined by commas, whose x-forwarded-for names the client"),
      duration_flag(
          "stream-idle-timeout", "60s", absl::Milliseconds(1), 24 * hour, &C::stream_idle_timeout, kLimits,
          "longest time in which a client may send no message, take no reply, or leave a stream without a request. "
          "A call that waits longer is ended"),
  };
}

std::vector<Flag> connection_limit_flags() {
  using C = Config;
  const absl::Duration hour = absl::Hours(1);
  return {
      count_flag("max-connections", 8192, 1, 10000000, &C::max_connections, kLimits,
                 "connections of all clients. The process's limit of open files may allow fewer"),
      count_flag("max-connection-streams", 256, 1, 1000000, &C::max_connection_streams, kLimits,
                 "calls of one connection at once. Further calls wait in the client"),
      duration_flag("max-connection-idle", "15m", absl::ZeroDuration(), 24 * hour, &C::max_connection_idle, kLimits,
                    "time after which a connection without a call is closed. 0s: no limit"),
      duration_flag("max-connection-age", "30m", absl::ZeroDuration(), 24 * hour, &C::max_connection_age, kLimits,
                    "age, give or take a tenth, from which a connection takes no new calls. Its calls go on, and its "
                    "client makes another connection. 0s: no limit"),
      duration_flag("connection-guard", "2s", absl::ZeroDuration(), hour, &C::connection_guard, kLimits,
                    "time after which a connection is broken on which far more bytes or streams come than its calls "
                    "account for. Its client is rejected for a minute then. Trusted proxies and Unix sockets are "
                    "exempt. 0s: no guard"),
      auto_bytes_flag(
          "call-window-bytes", 64 * kKiB, 64 * kMiB, &C::call_window_bytes, kLimits,
          "bytes that a client may send before the server reads the message (HTTP/2's flow-control window). "
          "The windows of all calls that wait for memory are bounded by a quarter of --max-inflight-bytes. "
          "auto: 64KiB, with a GPU 2304KiB"),
      auto_bytes_flag(
          "memory-quota-bytes", 16 * kMiB, 1024 * kTiB, &C::memory_quota_bytes, kLimits,
          "memory of gRPC for bytes of requests that are not yet complete. Near it gRPC reads slower; "
          "beyond it gRPC ends calls and connections. auto: --max-inflight-bytes and two messages, at most three "
          "eighths of memory"),
      duration_flag("queue-timeout", "30s", absl::Milliseconds(1), 24 * hour, &C::queue_timeout, kLimits,
                    "time in which a device must take a request. A large matrix waits until its call ends"),
      auto_bytes_flag("max-large-bytes", kMiB, 1024 * kTiB, &C::max_large_bytes, kLimits,
                      "operands, results and working memory of all large matrices (DecomposeLarge), beside "
                      "--max-inflight-bytes. auto: half of the memory that the other limits leave"),
      count_flag("max-large-requests", 16, 1, 100000, &C::max_large_requests, kLimits,
                 "large matrices in upload, queue, computation or download"),
      duration_flag("large-idle-timeout", "60s", absl::Milliseconds(1), 24 * hour, &C::large_idle_timeout, kLimits,
                    "time in which the client of a large matrix must send or take 1 MiB, or the rest of it"),
  };
}

std::vector<Flag> batching_flags() {
  using C = Config;
  return {
      duration_flag(
          "max-queue-delay", "500us", absl::ZeroDuration(), absl::Seconds(10), &C::max_queue_delay, kBatching,
          "longest time between the arrivals of the first and the last request of one batch. An idle device takes a "
          "request at once"),
      bytes_flag("max-batch-bytes", 8 * kMiB, 4 * kKiB, kTiB, &C::max_batch_bytes, kBatching,
                 "operands of one batch. Matrices that take more than 2 ms each may have 16 times as many, and so may "
                 "those of which a device computes more at once. Larger requests are split"),
      count_flag("max-batch-matrices", 1048576, 1, int64_t{1} << 40, &C::max_batch_matrices, kBatching,
                 "matrices of one batch"),
  };
}

std::vector<Flag> device_flags() {
  using C = Config;
  const absl::Duration hour = absl::Hours(1);
  return {
      devices_flag(
          "devices", kAuto, kDevices,
          "auto: the CPU and every GPU that works. Or a list, joined by commas, of host (the CPU), cuda (every "
          "GPU) and cuda:N. The server does not start without a device that the list names"),
      auto_count_flag("cuda-lanes", 1, 64, &C::cuda_lanes, kDevices,
                      "batches that each GPU computes at once. auto: 4, or 1 on a machine with little memory"),
      bytes_flag("cuda-slot-bytes", 8 * kMiB, 8 * kMiB, kGiB, &C::cuda_slot_bytes, kDevices,
                 "operands in one of the three slots of a lane, pinned and on the GPU. Larger batches pass in pieces"),
      auto_bytes_flag(
          "cuda-pinned-bytes", 0, kTiB, &C::cuda_pinned_bytes, kDevices,
          "pinned memory for the operands and results of requests. Those beyond it are copied once more by the "
          "CPU. auto: as --max-inflight-bytes; no pinned memory without a GPU"),
      count_flag("host-devices", 1, 1, 256, &C::host_devices, kDevices, "devices into which the CPU is divided"),
      auto_count_flag("threads", 1, kMostThreads, &C::threads, kDevices,
                      "threads of all host devices together. auto: every core that the process may use"),
      auto_count_flag("large-threads", 1, kMostThreads, &C::large_threads, kDevices,
                      "threads that compute a large matrix on the CPU, one matrix at a time. auto: as --threads"),
      choice_flag<LargeGpus>(
          "large-gpus", "N", {LargeGpus::kOne, LargeGpus::kTwo, LargeGpus::kFour, LargeGpus::kEight, LargeGpus::kAuto},
          kDefaultLargeGpus, &C::large_gpus, kDevices,
          "GPUs that sweep one large matrix together: 1 2 4 8 auto. auto: 4 from min(m, n) = 8192 on. Fewer where "
          "fewer "
          "are healthy. One GPU takes other matrices. Results on several GPUs have other bits than on one"),
      choice_flag<Simd>("simd", "SET", {Simd::kBest, Simd::kScalar, Simd::kAvx2, Simd::kAvx512, Simd::kNeon},
                        Simd::kBest, &C::simd, kDevices,
                        "instructions of the kernels: best scalar avx2 avx512 neon. Results are the same bits"),
      duration_flag("calibration-time", "200ms", absl::ZeroDuration(), absl::Minutes(1), &C::calibration_time, kDevices,
                    "time at start in which the speed of all devices is measured. 0s: it is learned while serving"),
      choice_flag<OnDeviceLost>(
          "on-device-lost", "POLICY", {OnDeviceLost::kDegrade, OnDeviceLost::kUnready, OnDeviceLost::kExit},
          OnDeviceLost::kUnready, &C::on_device_lost, kDevices,
          "behaviour once a GPU is lost or hangs. degrade: serve on with the other devices. unready: the same, "
          "but readiness is false. "
          "exit: drain as after SIGTERM and exit with status 3"),
      duration_flag("watchdog-timeout", "10s", absl::Milliseconds(100), hour, &C::watchdog_timeout, kDevices,
                    "shortest time without a response after which a GPU counts as hung. Its work must also have taken "
                    "20 times as long as it may"),
  };
}

std::vector<Flag> life_flags() {
  using C = Config;
  const absl::Duration hour = absl::Hours(1);
  const absl::Duration us = absl::Microseconds(1);
  return {
      duration_flag("drain-delay", "1s", absl::ZeroDuration(), hour, &C::drain_delay, kLife,
                    "time after SIGTERM in which the server still serves, although it is not ready any more"),
      duration_flag("drain-timeout", "30s", us, 24 * hour, &C::drain_timeout, kLife,
                    "time after --drain-delay in which requests in flight must end"),
      text_flag(kLife, "checkpoint-dir", "DIRECTORY", "", &C::checkpoint_dir,
                "directory for files of large matrices, which clients go on with after a restart of the server. The "
                "server makes it. No other user may write to it. Empty: none"),
      auto_bytes_flag(
          "checkpoint-bytes", kMiB, 1024 * kTiB, &C::checkpoint_bytes, kLife,
          "operands, results and states in it. A matrix beyond this has no files, or no states. auto: twice "
          "--max-large-bytes"),
      duration_flag("checkpoint-keep", "10m", absl::Milliseconds(1), 24 * hour, &C::checkpoint_keep, kLife,
                    "time for which files stay after the call was cut off"),
      duration_flag(
          "checkpoint-interval", "1s", absl::ZeroDuration(), hour, &C::checkpoint_interval, kLife,
          "shortest time between two states of a matrix's computation, which is what a crash costs. They take "
          "a twentieth of the time at most. 0: a state after each sweep, whatever it takes"),
  };
}

std::vector<Flag> log_flags() {
  using C = Config;
  return {
      choice_flag<LogLevel>("log-level", "LEVEL",
                            {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}, LogLevel::kInfo,
                            &C::log_level, kLog, "least severe messages in the log: debug info warning error"),
      choice_flag<LogFormat>("log-format", "FORMAT", {LogFormat::kLogfmt, LogFormat::kJson}, LogFormat::kLogfmt,
                             &C::log_format, kLog, "logfmt (key=value), or json with an object a line"),
      share_flag("access-log", "0", &C::access_log, kLog,
                 "share of the calls that get a line in the log, 0 to 1. A call that fails or is slow always gets one"),
      duration_flag("access-log-slow", "1s", absl::ZeroDuration(), absl::Hours(24), &C::access_log_slow, kLog,
                    "time from which on a call is slow. 0s: none is"),
  };
}

// In the order of --help.
std::vector<Flag> make_flags() {
  std::vector<Flag> all;
  for (const auto& section : {listening_flags(), request_limit_flags(), connection_limit_flags(), batching_flags(),
                              device_flags(), life_flags(), log_flags()}) {
    all.insert(all.end(), section.begin(), section.end());
  }
  return all;
}

constexpr const char* kVariablePrefix = "SVDSERVE_";

std::string variable_name(const Flag& flag) {
  return absl::StrCat(kVariablePrefix, absl::AsciiStrToUpper(absl::StrReplaceAll(flag.name, {{"-", "_"}})));
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
      "svdserve: SVDs and eigenproblems as a service\n\n"
      "Usage: svdserve [--flag=value ...]\n\n"
      "Each flag may come from the environment instead: --max-batch-bytes is\n"
      "SVDSERVE_MAX_BATCH_BYTES. A flag beats its variable. Sizes take KiB, MiB, GiB\n"
      "and TiB, durations us, ms, s, m and h. Flags left at auto follow the machine:\n"
      "the log shows their values and reasons at start. SIGTERM or SIGINT finishes\n"
      "the requests in flight and stops; a second one, more than a second later,\n"
      "stops at once.\n";
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

// Addresses and files that do not go together. Returns what is wrong.
std::string check_listening(const Config& config) {
  const bool is_unix = absl::StartsWith(config.listen, "unix:");
  if (is_unix ? config.listen.size() == 5 : !is_host_port(config.listen)) {
    return absl::StrCat("--listen needs ADDR:PORT or unix:PATH, not \"", config.listen, "\"");
  }
  if (!config.metrics_listen.empty() && !is_host_port(config.metrics_listen)) {
    return absl::StrCat("--metrics-listen needs ADDR:PORT, not \"", config.metrics_listen, "\"");
  }
  if (!TrustedProxies::parse(config.trusted_proxies)) {
    return absl::StrCat("--trusted-proxies needs addresses or networks such as 10.0.0.0/8, not \"",
                        config.trusted_proxies, "\"");
  }
  if (config.tls_cert.empty() != config.tls_key.empty())
    return "--tls-cert and --tls-key go together: give both or neither";
  if (!config.tls_client_ca.empty() && config.tls_cert.empty()) return "--tls-client-ca needs --tls-cert and --tls-key";
  return "";
}

// Limits that contradict each other. Returns what is wrong. Derived limits never contradict others (limits.h).
std::string check_limits(const Config& config) {
  const std::string message = show_bytes(config.max_message_bytes);
  if (const std::optional<int64_t> inflight = config.max_inflight_bytes; inflight) {
    if (*inflight < config.max_message_bytes) {
      return absl::StrCat("--max-inflight-bytes=", show_bytes(*inflight), " is below --max-message-bytes=", message,
                          ", so a request of that size is never admitted: raise the first or lower the second");
    }
    if (*inflight < config.max_batch_bytes) {
      return absl::StrCat("--max-inflight-bytes=", show_bytes(*inflight),
                          " is below --max-batch-bytes=", show_bytes(config.max_batch_bytes),
                          ", so a batch is never full: raise the first or lower the second");
    }
  }
  if (const std::optional<int64_t> quota = config.memory_quota_bytes; quota && *quota < 2 * config.max_message_bytes) {
    return absl::StrCat("--memory-quota-bytes=", show_bytes(*quota), " is below twice --max-message-bytes=", message,
                        ", so gRPC may drop a single request: raise the first or lower the second");
  }
  return "";
}

// Variables that Kubernetes sets for a service svdserve: SVDSERVE_SERVICE_HOST, SVDSERVE_PORT,
// SVDSERVE_PORT_50051_TCP_ADDR and others; and for a service svdserve-x, whose SVDSERVE_X_SERVICE_HOST is among
// `names`.
bool is_of_kubernetes(const std::string& name, const std::set<std::string>& names) {
  static const std::regex* const pattern = new std::regex(
      "(SVDSERVE|SVDSERVE_[A-Z0-9_]+?)_"
      "(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT|PORT_[0-9]+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)");
  std::smatch parts;
  constexpr size_t kLongest = 256;  // std::regex recurses
  if (name.size() > kLongest || !std::regex_match(name, parts, *pattern)) return false;
  return parts[1] == "SVDSERVE" || names.count(absl::StrCat(parts[1].str(), "_SERVICE_HOST")) > 0;
}

}  // namespace

std::string check_metrics_exposure(const Config& config, bool is_loopback) {
  if (is_loopback || config.metrics_insecure || config.insecure) return "";
  return absl::StrCat("--metrics-listen=", config.metrics_listen,
                      " can be reached from other machines and has no TLS: give --metrics-insecure to allow that");
}

std::string check_exposure(const Config& config, bool is_loopback) {
  if (is_loopback || config.insecure || !config.tls_cert.empty()) return "";
  return absl::StrCat("--listen=", config.listen,
                      " can be reached from other machines: give --tls-cert and --tls-key, or --insecure");
}

std::vector<std::string> unknown_variables(const std::vector<std::string>& names) {
  // Read elsewhere: by the engine, and by svdctl.
  std::set<std::string> known = {"SVDSERVE_CUDA_PLUGIN", "SVDSERVE_ADDRESS"};
  for (const Flag& flag : make_flags()) known.insert(variable_name(flag));
  const std::set<std::string> all(names.begin(), names.end());
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (absl::StartsWith(name, kVariablePrefix) && known.count(name) == 0 && !is_of_kubernetes(name, all)) {
      out.push_back(name);
    }
  }
  return out;
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
    if (argument == "--version") {
      return print(absl::StrCat("svdserve ", kVersion, " (instruction sets: ", kInstructionSets, ")\n"));
    }
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
  for (const auto check : {check_listening, check_limits}) {
    if (const std::string wrong = check(outcome.config); !wrong.empty()) return refuse(wrong);
  }
  return outcome;
}

std::string describe(const Config& config) {
  std::string line;
  for (const Flag& flag : make_flags()) {
    append_logfmt(&line, absl::StrReplaceAll(flag.name, {{"-", "_"}}), flag.show(config));
  }
  return line;
}

}  // namespace svdserve::server
