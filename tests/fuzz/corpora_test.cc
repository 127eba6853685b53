// The corpora, as ordinary tests: the decoders' inputs that a fuzzer found, or that were wrong once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/fuzz/targets.h"

namespace svdserve::fuzz {
namespace {

class Corpora : public testing::TestWithParam<Target> {};

// A line is an input in base64, but for those that begin with '#'.
TEST_P(Corpora, DoNoHarm) {
  std::ifstream file(std::string(CORPORA "/") + GetParam().name + ".txt");
  ASSERT_TRUE(file) << "there is no corpus";
  int inputs = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::string input;
    ASSERT_TRUE(absl::Base64Unescape(line, &input)) << line;
    SCOPED_TRACE(line);
    // From memory of its own length, so that a sanitizer sees a read beyond.
    const std::vector<uint8_t> bytes(input.begin(), input.end());
    GetParam().run(bytes);
    ++inputs;
  }
  EXPECT_GT(inputs, 10);
}

INSTANTIATE_TEST_SUITE_P(Of, Corpora, testing::ValuesIn(all_targets().begin(), all_targets().end()),
                         [](const auto& info) { return info.param.name; });

TEST(Targets, ADecoderThatIsWrongIsSeen) {
  require(true, "nothing is wrong");
  EXPECT_DEATH(require(false, "a bad request is taken"), "a bad request is taken");
  EXPECT_EQ(find_target("unary"), nullptr);
}

}  // namespace
}  // namespace svdserve::fuzz
