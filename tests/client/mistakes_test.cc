// The commonest mistakes on the command line, and what svdctl says of them, to the letter.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/table.h"
#include "tests/client/commands_fixture.h"
#include "tests/client/fake_service.h"

namespace svdserve::cli {
namespace {

using client::testing::Answer;
using client::testing::FakeService;
using client::testing::Seen;

// In a folder of its own, so that names are as a user has them.
class MistakesTest : public CommandsTest {
 protected:
  MistakesTest() : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path(""));
    write("wide.npy", {2, 3}, 6);
    write("vector.npy", {3}, 3);
    std::ofstream("text.txt") << "1 2";
    std::ofstream("cut.npy", std::ios::binary) << contents("a.npy").substr(0, 200);
    std::ofstream("bad.csv") << "1,2\n3,x\n";
  }
  ~MistakesTest() override { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_;
};

struct Mistake {
  Words words;
  std::string said;
};

TEST_F(MistakesTest, BeforeAnyServerIsAsked) {
  const std::vector<Mistake> all = {
      {{"vlaues", "a.npy"}, "svdctl: unknown command vlaues; did you mean values?\nsvdctl help lists the commands.\n"},
      {{"values"}, "svdctl values: missing operand IN.npy\nTry svdctl values --help.\n"},
      {{"svd", "a.npy", "b.npy"}, "svdctl svd: unexpected operand b.npy\nTry svdctl svd --help.\n"},
      {{"values", "a.npy", "--methd", "jacobi"},
       "svdctl values: unknown option --methd; did you mean --method?\nTry svdctl values --help.\n"},
      {{"values", "a.npy", "-o"}, "svdctl values: -o needs a value: OUT.npy\nTry svdctl values --help.\n"},
      {{"values", "a.npy", "--method", "jacobbi"},
       "svdctl values: --method: \"jacobbi\" is not auto, bidiagonal, bisection or jacobi\nTry svdctl values "
       "--help.\n"},
      {{"values", "a.npy", "--timeout", "soon"},
       "svdctl values: --timeout: \"soon\" is not a duration, such as 500ms, 10s or 1.5m\nTry svdctl values --help.\n"},
      {{"values", "a.npy", "--tolerance", "-1"},
       "svdctl values: --tolerance: \"-1\" is not a number of at least 0\nTry svdctl values --help.\n"},
      {{"svd", "a.npy", "--top-k", "two"},
       "svdctl svd: --top-k: \"two\" is not an integer of at least 0\nTry svdctl svd --help.\n"},
      {{"svd", "a.npy", "--top-k", "3"}, "svdctl svd: --top-k is larger than min(m, n)\nTry svdctl svd --help.\n"},
      {{"values", "none.npy"}, "svdctl values: cannot open none.npy: No such file or directory\n"},
      {{"values", "."}, "svdctl values: . is not a regular file\n"},
      {{"values", "text.txt"},
       "svdctl values: text.txt: not .npy, .npz or Matrix Market, and not named .csv; say what it is by --format, or "
       "--shape of raw numbers\n"},
      {{"values", "cut.npy"},
       "svdctl values: cut.npy: not a readable .npy file: shape (3, 2, 2) of 8-byte items is 96 bytes, but the file "
       "has "
       "72\n"},
      {{"values", "bad.csv"}, "svdctl values: bad.csv: line 2: column 2: \"x\" is not a number\n"},
      {{"values", "vector.npy"}, "svdctl values: vector.npy: the array has 1 dimension, but needs at least 2\n"},
      {{"eigh", "wide.npy"}, "svdctl eigh: wide.npy: its matrices must be square\nTry svdctl eigh --help.\n"},
      {{"hsvd", "g.npy", "vector.npy"},
       "svdctl hsvd: vector.npy: has 3 entries, but the matrix has 2 columns\nTry svdctl hsvd --help.\n"},
      {{"values", "a.npy", "-o", "a.npy"},
       "svdctl values: -o a.npy and IN.npy a.npy are the same file: name another output, or replace the input by "
       "--force\n"},
      {{"values", "a.npy", "-o", "none/s.npy"}, "svdctl values: cannot write none/s.npy: No such file or directory\n"},
      {{"values", "a.npy", "g.npy", "-o", "s.npy"},
       "svdctl values: -o: s.npy must be a folder, since there are several files\n"},
      {{"svd", "a.npy", "-o", "-"},
       "svdctl svd: -o -: several arrays do not go into one stream; send one of them there, such as --u -\n"},
      {{"values", "a.npy", "-o", "-", "--json"}, "svdctl values: -o - and --json exclude each other\n"},
      {{"values", "a.npy", "--address", "http://127.0.0.1:50051"},
       "svdctl values: --address: must be host:port or unix:/path, but is the URL \"http://127.0.0.1:50051\"\n"},
      {{"values", "a.npy", "--address", "127.0.0.1"},
       "svdctl values: --address: must be host:port, such as 127.0.0.1:50051 or [::1]:50051, but is \"127.0.0.1\"\n"},
      {{"values", "a.npy", "--address", "127.0.0.1:99999"},
       "svdctl values: --address: must have a port between 1 and 65535, but is \"127.0.0.1:99999\"\n"},
      {{"values", "a.npy", "--shape", "4,4"},
       "svdctl values: a.npy: --shape is for raw numbers, but this is a .npy file; leave it out, or add --format "
       "raw\n"},
      {{"bench", "--find-rate-p99", "0ms"},
       "svdctl bench: --find-rate-p99 must be positive\nTry svdctl bench --help.\n"},
      {{"values", "a.npy", "--tls-ca", "none.pem"}, "svdctl values: cannot read none.pem\n"},
      {{"info", "--tls-cert", "a.pem"},
       "svdctl info: --tls-cert, --tls-key: give a client certificate together with its private key; only the "
       "certificate is given\n"},
      {{"capacity", "a.npy", "--snr-db", "0,high"},
       "svdctl capacity: --snr-db: \"high\" is not a number\nTry svdctl capacity --help.\n"},
      {{"bench", "--shape", "4by4"},
       "svdctl bench: --shape: \"4by4\" is not MxN or MxN:WEIGHT\nTry svdctl bench --help.\n"}};
  for (const auto& [words, said] : all) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    const int code = run_command(words);
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "") << ::testing::PrintToString(words);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), said);
    EXPECT_TRUE(code == kBadUsage || code == kFailed);
  }
}

TEST_F(MistakesTest, OfTheServer) {
  Answer answer;
  FakeService service([&](const Seen&) { return answer; });
  const auto said = [&](const Words& words, const std::string& address) {
    return absl::StrReplaceAll(run(run_values, words, address).err, {{service.address(), "ADDRESS"}});
  };
  EXPECT_EQ(
      said({"a.npy", "--timeout", "1s"}, kNobody),
      "svdctl values: no server at 127.0.0.1:1 (Connection refused). Start one with svdserve, or name its address "
      "in --address or SVDSERVE_ADDRESS\n");
  answer = {.code = 4};
  EXPECT_EQ(said({"a.npy", "--timeout", "1m"}, service.address()),
            "svdctl values: no reply within 60 s, the limit that --timeout sets\n");
  answer = {.code = 3, .message = "options.tolerance: no", .reason = "INVALID_FIELD", .field = "options.tolerance"};
  EXPECT_EQ(said({"a.npy"}, service.address()), "svdctl values: --tolerance: no\n");
  answer = {.code = 8, .message = "the queue is full", .reason = "OVERLOADED_REQUESTS"};
  EXPECT_EQ(said({"a.npy"}, service.address()),
            "svdctl values: RESOURCE_EXHAUSTED (OVERLOADED_REQUESTS): the queue is full\n");
}

}  // namespace
}  // namespace svdserve::cli
