// Flags and environment, and what the program says about them.
#include "server/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  EXPECT_EQ(outcome.config.max_inflight_bytes, 1 << 30);
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
  EXPECT_EQ(devices("cuda:3, cuda:1,host,cuda:3").cuda_ordinals, (std::vector<int>{1, 3}));
  EXPECT_TRUE(devices("cuda:3,cuda:1,host").host);
  EXPECT_TRUE(devices("cuda:1,cuda").cuda_ordinals.empty());  // all of them: that one, too
  EXPECT_THAT(describe(read({"--devices=host,cuda:2,cuda:0"}).config), HasSubstr("devices=cuda:0,cuda:2,host"));
  EXPECT_EQ(read({}).config.cuda_lanes, 2);
  EXPECT_EQ(read({}).config.cuda_slot_bytes, 8 << 20);
}

TEST(ConfigTest, BadValuesNameTheirFlag) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--max-message-bytes=many", "--max-message-bytes"},
      {"--max-message-bytes=3GiB", "--max-message-bytes"},
      {"--max-message-bytes=99999999999TiB", "--max-message-bytes"},
      {"--max-inflight-requests=0", "--max-inflight-requests"},
      {"--queue-timeout=30", "--queue-timeout"},
      {"--max-large-bytes=512KiB", "--max-large-bytes"},
      {"--drain-delay=-1s", "--drain-delay"},
      {"--drain-timeout=inf", "--drain-timeout"},
      {"--simd=sse", "--simd"},
      {"--on-device-lost=panic", "--on-device-lost"},
      {"--watchdog-timeout=1us", "--watchdog-timeout"},
      {"--devices=", "--devices"},
      {"--devices=gpu", "--devices"},
      {"--devices=cuda:", "--devices"},
      {"--devices=cuda:-1", "--devices"},
      {"--devices=cuda:0,", "--devices"},
      {"--devices=auto,host", "--devices"},
      {"--devices=host:1", "--devices"},
      {"--cuda-lanes=0", "--cuda-lanes"},
      {"--cuda-slot-bytes=4KiB", "--cuda-slot-bytes"},
      {"--log-level=loud", "--log-level"},
      {"--insecure=perhaps", "--insecure"},
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

TEST(ConfigTest, OtherMachinesNeedTlsOrAWord) {
  EXPECT_EQ(read({"--listen=0.0.0.0:50051"}).action, Action::kRefuse);
  EXPECT_EQ(read({"--listen=[::]:50051"}).action, Action::kRefuse);
  EXPECT_EQ(read({"--listen=svd.example:50051"}).action, Action::kRefuse);
  EXPECT_EQ(read({"--listen=0.0.0.0:50051", "--insecure"}).action, Action::kServe);
  EXPECT_EQ(read({"--listen=0.0.0.0:50051", "--tls-cert=c", "--tls-key=k"}).action, Action::kServe);
  for (const char* loopback :
       {"--listen=localhost:1", "--listen=[::1]:1", "--listen=127.3.2.1:1", "--listen=unix:/a/b"}) {
    EXPECT_EQ(read({loopback}).action, Action::kServe) << loopback;
  }
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
                           "max-message-bytes",
                           "max-matrices",
                           "max-inflight-bytes",
                           "max-inflight-requests",
                           "max-stream-requests",
                           "max-streams",
                           "stream-idle-timeout",
                           "max-connection-streams",
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
                           "simd",
                           "calibration-time",
                           "drain-delay",
                           "drain-timeout",
                           "log-level"}) {
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

TEST(ProgramTest, ExitCodes) {
  using svdserve::testing::run_program;
  const std::string svdserve = svdserve::testing::server_binary();
  EXPECT_EQ(run_program({svdserve, "--version"}).exit_code, 0);
  EXPECT_EQ(run_program({svdserve, "--help"}).exit_code, 0);
  const auto open = run_program({svdserve, "--listen=0.0.0.0:0"});
  EXPECT_EQ(open.exit_code, 2);
  EXPECT_THAT(open.output, HasSubstr("--insecure"));
  EXPECT_EQ(run_program({svdserve, "--tls-cert=/nowhere/c.pem", "--tls-key=/nowhere/k.pem"}).exit_code, 2);
  const auto absent = run_program({svdserve, "--devices=host,cuda:4095", "--listen=127.0.0.1:0", "--metrics-listen="});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.output, HasSubstr("names cuda:4095, which cannot be used"));
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
