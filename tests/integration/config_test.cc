// Flags and environment, and what the program says about them.
#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "tests/support/running_server.h"

namespace svdserve::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Action = ConfigOutcome::Action;

ConfigOutcome read(const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& variables = {}) {
  return read_config(arguments, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(ConfigTest, DefaultsAreSafe) {
  const ConfigOutcome outcome = read({});
  ASSERT_EQ(outcome.action, Action::kServe) << outcome.text;
  EXPECT_EQ(outcome.config.listen, "127.0.0.1:50051");
  EXPECT_EQ(outcome.config.metrics_listen, "127.0.0.1:9464");
  EXPECT_EQ(outcome.config.max_message_bytes, 64 << 20);
  EXPECT_FALSE(outcome.config.max_inflight_bytes.has_value());  // of the machine
  EXPECT_EQ(outcome.config.max_queue_delay, absl::Microseconds(500));
  EXPECT_EQ(outcome.config.drain_timeout, absl::Seconds(30));
  EXPECT_FALSE(outcome.config.insecure);
}

TEST(ConfigTest, FlagBeatsVariableBeatsDefault) {
  const std::map<std::string, std::string> variables = {
      {"SVDSERVE_MAX_BATCH_BYTES", "1MiB"}, {"SVDSERVE_THREADS", "3"}, {"SVDSERVE_PORT", "tcp://10.0.0.1:50051"}};
  const ConfigOutcome outcome = read({"--threads=5", "--drain-timeout", "2m"}, variables);
  ASSERT_EQ(outcome.action, Action::kServe) << outcome.text;
  EXPECT_EQ(outcome.config.max_batch_bytes, 1 << 20);
  EXPECT_EQ(outcome.config.threads, 5);
  EXPECT_EQ(outcome.config.drain_timeout, absl::Minutes(2));
}

TEST(ConfigTest, DevicesAreAutoOrAList) {
  const auto devices = [](const std::string& list) {
    const ConfigOutcome outcome = read({"--devices=" + list});
    EXPECT_EQ(outcome.action, Action::kServe) << list << ": " << outcome.text;
    return outcome.config.devices;
  };
  EXPECT_TRUE(read({}).config.devices.automatic);
  EXPECT_TRUE(devices("auto").automatic);
  EXPECT_TRUE(devices("host").host);
  EXPECT_FALSE(devices("host").automatic || devices("host").every_cuda);
  EXPECT_TRUE(devices("cuda").every_cuda);
  EXPECT_FALSE(devices("cuda").host);
  EXPECT_EQ(devices("cuda:3, cuda:1,host").cuda_ordinals, (std::vector<int>{1, 3}));
  EXPECT_TRUE(devices("cuda:3,cuda:1,host").host);
  EXPECT_TRUE(devices("cuda:1,cuda").cuda_ordinals.empty());  // all of them: that one, too
  EXPECT_THAT(describe(read({"--devices=host,cuda:2,cuda:0"}).config), HasSubstr("devices=cuda:0,cuda:2,host"));
  EXPECT_EQ(read({}).config.cuda_slot_bytes, 8 << 20);
  EXPECT_EQ(read({}).config.large_gpus, LargeGpus::kOne);
  EXPECT_EQ(read({"--large-gpus=4"}).config.large_gpus, LargeGpus::kFour);
  EXPECT_EQ(read({"--large-gpus=auto"}).config.large_gpus, LargeGpus::kAuto);
}

TEST(ConfigTest, BadValuesNameTheirFlag) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--max-message-bytes=many", "--max-message-bytes"},
      {"--max-message-bytes=3GiB", "--max-message-bytes"},
      {"--max-message-bytes=99999999999TiB", "--max-message-bytes"},
      {"--max-inflight-requests=0", "--max-inflight-requests"},
      {"--queue-timeout=30", "--queue-timeout"},
      {"--max-large-bytes=512KiB", "--max-large-bytes"},
      {"--max-inflight-bytes=automatic", "64MiB, or auto"},
      {"--threads=0", "4096, or auto"},
      {"--drain-delay=-1s", "--drain-delay"},
      {"--drain-timeout=inf", "--drain-timeout"},
      {"--simd=sse", "--simd"},
      {"--on-device-lost=panic", "--on-device-lost"},
      {"--watchdog-timeout=1us", "--watchdog-timeout"},
      {"--large-gpus=3", "--large-gpus needs one of 1, 2, 4, 8, auto, not"},
      {"--devices=", "--devices"},
      {"--devices=gpu", "--devices"},
      {"--devices=cuda:", "--devices"},
      {"--devices=cuda:-1", "--devices"},
      {"--devices=cuda:0,", "--devices"},
      {"--devices=auto,host", "--devices"},
      {"--devices=host:1", "--devices"},
      {"--devices=host,host", "--devices names host twice"},
      {"--devices=cuda:0,cuda:00", "--devices names cuda:0 twice"},
      {"--cuda-lanes=0", "--cuda-lanes"},
      {"--cuda-slot-bytes=4KiB", "--cuda-slot-bytes"},
      {"--log-level=loud", "--log-level"},
      {"--insecure=perhaps", "--insecure"},
      {"--reflection=sometimes", "--reflection"},
      {"--max-connection-age=-1s", "--max-connection-age"},
      {"--listen=127.0.0.1", "--listen"},
      {"--listen=127.0.0.1:70000", "--listen"},
      {"--listen=::1:50051", "--listen"},
      {"--listen=unix:", "--listen"},
      {"--metrics-listen=9464", "--metrics-listen"},
      {"--tls-cert=a.pem", "--tls-key"},
      {"--tls-client-ca=a.pem", "--tls-client-ca"},
      {"--threads", "--threads"},
      {"--no-such-flag=1", "--no-such-flag"},
      {"serve", "serve"},
  };
  for (const auto& [argument, named] : cases) {
    const ConfigOutcome outcome = read({argument});
    EXPECT_EQ(outcome.action, Action::kRefuse) << argument;
    EXPECT_THAT(outcome.text, HasSubstr(named)) << argument;
  }
  const ConfigOutcome outcome = read({}, {{"SVDSERVE_THREADS", "x"}});
  EXPECT_EQ(outcome.action, Action::kRefuse);
  EXPECT_THAT(outcome.text, HasSubstr("SVDSERVE_THREADS"));
}

TEST(ConfigTest, AutoLeavesALimitToTheMachine) {
  const ConfigOutcome outcome = read({"--max-inflight-bytes=auto", "--threads=3", "--threads=auto"},
                                     {{"SVDSERVE_MAX_INFLIGHT_BYTES", "2GiB"}, {"SVDSERVE_MAX_LARGE_BYTES", "3GiB"}});
  ASSERT_EQ(outcome.action, Action::kServe) << outcome.text;
  EXPECT_EQ(outcome.config.max_inflight_bytes, std::nullopt);
  EXPECT_EQ(outcome.config.threads, std::nullopt);
  EXPECT_EQ(outcome.config.max_large_bytes, int64_t{3} << 30);
  EXPECT_THAT(describe(outcome.config), HasSubstr(" max_inflight_bytes=auto "));
  EXPECT_THAT(describe(outcome.config), HasSubstr(" max_large_bytes=3221225472 "));
}

TEST(ConfigTest, ContradictoryLimitsNameBothFlags) {
  struct Case {
    std::vector<std::string> arguments;
    std::string first, second;
  };
  const std::vector<Case> cases = {
      {{"--max-inflight-bytes=63MiB"}, "--max-inflight-bytes=63MiB", "--max-message-bytes=64MiB"},
      {{"--max-message-bytes=1GiB", "--max-inflight-bytes=1000MiB"},
       "--max-inflight-bytes=1000MiB",
       "--max-message-bytes=1GiB"},
      {{"--max-inflight-bytes=100MiB", "--max-batch-bytes=101MiB"},
       "--max-inflight-bytes=100MiB",
       "--max-batch-bytes=101MiB"},
      {{"--memory-quota-bytes=127MiB"}, "--memory-quota-bytes=127MiB", "--max-message-bytes=64MiB"},
  };
  for (const Case& c : cases) {
    const ConfigOutcome outcome = read(c.arguments);
    EXPECT_EQ(outcome.action, Action::kRefuse) << c.first;
    EXPECT_THAT(outcome.text, HasSubstr(c.first));
    EXPECT_THAT(outcome.text, HasSubstr(c.second));
  }
  EXPECT_EQ(read({"--max-inflight-bytes=64MiB", "--memory-quota-bytes=128MiB"}).action, Action::kServe);
}

TEST(ConfigTest, OtherMachinesNeedTlsOrAWord) {
  EXPECT_THAT(check_exposure(read({"--listen=0.0.0.0:50051"}).config, false), HasSubstr("--insecure"));
  EXPECT_EQ(check_exposure(read({"--listen=0.0.0.0:50051"}).config, true), "");
  EXPECT_EQ(check_exposure(read({"--insecure"}).config, false), "");
  EXPECT_EQ(check_exposure(read({"--tls-cert=c", "--tls-key=k"}).config, false), "");
}

TEST(ConfigTest, VariablesThatMeanNothingAreFound) {
  const std::vector<std::string> names = {
      "PATH",                          // not ours
      "SVDSERVE_THREADS",              // a flag's
      "SVDSERVE_CUDA_PLUGIN",          // the engine's
      "SVDSERVE_ADDRESS",              // svdctl's
      "SVDSERVE_SERVICE_HOST",         // of Kubernetes, as all that follow
      "SVDSERVE_SERVICE_PORT",         //
      "SVDSERVE_SERVICE_PORT_GRPC",    //
      "SVDSERVE_PORT",                 //
      "SVDSERVE_PORT_50051_TCP",       //
      "SVDSERVE_PORT_50051_TCP_ADDR",  //
      "SVDSERVE_GPU_SERVICE_HOST",     // of a service svdserve-gpu
      "SVDSERVE_GPU_SERVICE_PORT",     //
      "SVDSERVE_GPU_PORT_50051_TCP",   //
      "SVDSERVE_LISTEN_PORT",          // of no service
      "SVDSERVE_THREAD",               //
      "SVDSERVE_",                     //
  };
  EXPECT_EQ(unknown_variables(names),
            (std::vector<std::string>{"SVDSERVE_LISTEN_PORT", "SVDSERVE_THREAD", "SVDSERVE_"}));
}

TEST(ConfigTest, TheHttpPortIsOpenToOthersByAWordAlone) {
  const auto wrong = [](const std::vector<std::string>& flags, bool is_loopback) {
    return check_metrics_exposure(read(flags).config, is_loopback);
  };
  EXPECT_THAT(wrong({"--metrics-listen=0.0.0.0:9464", "--tls-cert=c", "--tls-key=k"}, false),
              HasSubstr("--metrics-insecure"));
  EXPECT_EQ(wrong({"--metrics-listen=0.0.0.0:9464"}, true), "");
  EXPECT_EQ(wrong({"--metrics-insecure"}, false), "");
  EXPECT_EQ(wrong({"--insecure"}, false), "");
}

TEST(ConfigTest, HelpAndDescriptionNameEveryFlag) {
  const ConfigOutcome help = read({"--help"});
  ASSERT_EQ(help.action, Action::kPrint);
  for (const char* flag : {"listen",
                           "metrics-listen",
                           "ready-file",
                           "tls-cert",
                           "tls-key",
                           "tls-client-ca",
                           "insecure",
                           "metrics-insecure",
                           "metrics-max-age",
                           "reflection",
                           "max-message-bytes",
                           "max-matrices",
                           "max-inflight-bytes",
                           "max-inflight-requests",
                           "max-stream-requests",
                           "max-streams",
                           "stream-idle-timeout",
                           "max-connection-streams",
                           "max-connection-idle",
                           "max-connection-age",
                           "connection-guard",
                           "memory-quota-bytes",
                           "queue-timeout",
                           "max-large-bytes",
                           "max-large-requests",
                           "large-idle-timeout",
                           "max-queue-delay",
                           "max-batch-bytes",
                           "max-batch-matrices",
                           "devices",
                           "cuda-lanes",
                           "cuda-slot-bytes",
                           "host-devices",
                           "threads",
                           "large-threads",
                           "large-gpus",
                           "simd",
                           "calibration-time",
                           "drain-delay",
                           "drain-timeout",
                           "checkpoint-dir",
                           "checkpoint-bytes",
                           "checkpoint-keep",
                           "checkpoint-interval",
                           "tls-refresh",
                           "log-level",
                           "log-format",
                           "access-log",
                           "access-log-slow"}) {
    EXPECT_THAT(help.text, HasSubstr(std::string("--") + flag));
    std::string key = flag;
    std::replace(key.begin(), key.end(), '-', '_');
    EXPECT_THAT(describe(read({}).config), HasSubstr(key + "="));
  }
}

TEST(ConfigTest, EveryLineOfHelpFitsATerminal) {
  const std::string text = read({"--help"}).text;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(LogTest, AnEventStaysOneLine) {
  std::string line;
  append_logfmt(&line, "event", "a");
  append_logfmt(&line, "text", "two words\nand \"more\" = \\ \x01");
  append_logfmt(&line, "none", "");
  EXPECT_EQ(line, R"(event=a text="two words\nand \"more\" = \\ \u0001" none="")");
}

TEST(LogTest, WhatIsNoTextIsEscaped) {
  const auto shown = [](const std::string& value) {
    std::string line;
    append_logfmt(&line, "k", value);
    return line;
  };
  EXPECT_EQ(shown("\u00e9\u20ac\U0001f600"), "k=\"\u00e9\u20ac\U0001f600\"");
  EXPECT_EQ(shown("\xff"), R"(k="\xff")");
  EXPECT_EQ(shown("\x1b[31m"), R"(k="\u001b[31m")");
  EXPECT_EQ(shown("\xc2\x9b"
                  "2J"),
            R"(k="\u009b2J")");                             // a control sequence in one character
  EXPECT_EQ(shown("\xe2\x82"), R"(k="\xe2\x82")");          // cut
  EXPECT_EQ(shown("\xc0\x8a"), R"(k="\xc0\x8a")");          // a line feed, too long
  EXPECT_EQ(shown("\xed\xa0\x80"), R"(k="\xed\xa0\x80")");  // half of a pair of UTF-16
}

TEST(LogTest, AnEventIsAnObjectOfJson) {
  std::string line = "{";
  append_json(&line, {"event", "a"});
  append_json(&line, {"text", "two \"words\"\n\xff"});
  append_json(&line, {"n", 7});
  append_json(&line, {"t", 0.25});
  append_json(&line, {"yes", true});
  EXPECT_EQ(line, R"({"event":"a","text":"two \"words\"\n\\xff","n":7,"t":0.250000,"yes":true)");
}

TEST(LogTest, ALibrarySaysNoMoreThanSoMuch) {
  LibraryLog library("lib");
  const absl::Time begin = absl::UnixEpoch();
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 1000; ++i) library.write(LogLevel::kError, "a.cc:1", "x\ny", begin + absl::Milliseconds(i));
  const std::string first = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), LibraryLog::kLinesPerSecond);
  EXPECT_THAT(first, HasSubstr(R"(level=error event=lib source=a.cc:1 bytes=3 text="x\ny")"));
  ::testing::internal::CaptureStderr();
  library.write(LogLevel::kError, "a.cc:1", std::string(100000, 'z'), begin + absl::Seconds(1));
  library.write(LogLevel::kDebug, "a.cc:1", "nobody wants to know", begin + absl::Seconds(1));
  const std::string second = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(second.begin(), second.end(), '\n'), 2);
  EXPECT_THAT(second, HasSubstr("event=log_lines_dropped of=lib lines=990"));
  EXPECT_THAT(second, HasSubstr("bytes=100000 text=" + std::string(LibraryLog::kMaxText, 'z') + "\n"));
}

TEST(ProgramTest, ExitCodes) {
  using svdserve::testing::run_program;
  const std::string svdserve = svdserve::testing::server_binary();
  EXPECT_EQ(run_program({svdserve, "--version"}).exit_code, 0);
  EXPECT_EQ(run_program({svdserve, "--help"}).exit_code, 0);
  const auto open = run_program({svdserve, "--listen=0.0.0.0:0"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.output, HasSubstr("--insecure"));
  for (const std::string cert : {"/nowhere/c.pem", "/tmp", "/dev/null", "/dev/zero"}) {
    const auto result = run_program({svdserve, "--tls-cert=" + cert, "--tls-key=/nowhere/k.pem"});
    EXPECT_EQ(result.exit_code, 2) << result.output;
    EXPECT_THAT(result.output, HasSubstr("svdserve: --tls-cert: cannot read " + cert + ": "));
  }
  const auto absent = run_program({svdserve, "--devices=host,cuda:4095", "--listen=127.0.0.1:0", "--metrics-listen="});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.output, HasSubstr("names cuda:4095, which cannot be used"));
  for (const char* flag : {"--listen=[::zz]:0", "--metrics-listen=[::zz]:0"}) {
    const auto nameless = run_program({svdserve, flag});
    EXPECT_EQ(nameless.exit_code, 1);
    EXPECT_THAT(nameless.output, HasSubstr("cannot listen on [::zz]:0: "));
  }
  svdserve::testing::RunningServer first;
  const auto second = run_program({svdserve, "--listen=" + first.address(), "--metrics-listen="});
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.output, HasSubstr("cannot listen"));
  const auto third = run_program({svdserve, "--listen=127.0.0.1:0", "--metrics-listen=" + first.metrics_address()});
  EXPECT_EQ(third.exit_code, 1);
  EXPECT_THAT(third.output, HasSubstr("cannot listen"));
}

}  // namespace
}  // namespace svdserve::server
