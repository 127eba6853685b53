#include "client/cli/arguments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace svdserve::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Parsed {
  std::string text = "default", in;
  int64_t number = 7;
  double real = 0;
  Duration duration = seconds(1);
  std::optional<Duration> timeout;
  bool flag = false;
  bool help = false;
  std::string help_text;
  std::optional<std::string> wrong;
};

Parsed parse(const std::vector<std::string>& words) {
  Parsed p;
  Arguments a("prog [options] IN", "Does things.");
  a.operand("IN", &p.in);
  a.section("Options");
  a.option("--text", "S", "some text", &p.text);
  a.option("--number", "N", "a number", &p.number, 1);
  a.option("--real", "X", "a real number", &p.real);
  a.option("--duration", "D", "how long", &p.duration);
  a.option("--timeout", "D", "at most", &p.timeout);
  a.flag("--flag", "switches on", &p.flag);
  p.wrong = a.parse(words);
  p.help = a.help_wanted();
  p.help_text = a.help();
  return p;
}

TEST(Arguments, ReadsBothForms) {
  const Parsed p = parse({"--text", "a", "x.npy", "--number=12", "--real", "1e-3", "--duration=1.5m", "--flag"});
  EXPECT_EQ(p.wrong, std::nullopt);
  EXPECT_EQ(p.text, "a");
  EXPECT_EQ(p.in, "x.npy");
  EXPECT_EQ(p.number, 12);
  EXPECT_EQ(p.real, 1e-3);
  EXPECT_EQ(p.duration, seconds(90));
  EXPECT_EQ(p.timeout, std::nullopt);
  EXPECT_TRUE(p.flag);
}

TEST(Arguments, ReadsDurations) {
  EXPECT_EQ(parse({"x", "--timeout", "500us"}).timeout, std::chrono::microseconds(500));
  EXPECT_EQ(parse({"x", "--timeout", "0.25"}).timeout, milliseconds(250));
  for (const char* bad : {"", "-1s", "soon", "inf", "nan"}) EXPECT_TRUE(parse({"x", "--timeout", bad}).wrong) << bad;
}

TEST(Arguments, SaysWhatIsWrong) {
  EXPECT_EQ(parse({}).wrong, "missing operand IN");
  EXPECT_EQ(parse({"a", "b"}).wrong, "unexpected operand b");
  EXPECT_EQ(parse({"a", "--nope"}).wrong, "unknown option --nope");
  EXPECT_EQ(parse({"a", "--number"}).wrong, "--number needs a value: N");
  EXPECT_EQ(parse({"a", "--number", ""}).wrong, "--number needs a value: N");
  EXPECT_EQ(parse({"a", "--text="}).wrong, "--text needs a value: S");
  EXPECT_EQ(parse({"a", "--number", "0"}).wrong, "--number: \"0\" is not an integer of at least 1");
  EXPECT_EQ(parse({"a", "--number", "3x"}).wrong, "--number: \"3x\" is not an integer of at least 1");
  EXPECT_EQ(parse({"a", "--real", "nan"}).wrong, "--real: \"nan\" is not a number of at least 0");
  EXPECT_EQ(parse({"a", "--flag=1"}).wrong, "--flag takes no value");
}

TEST(Arguments, TwoDashesEndTheOptions) { EXPECT_EQ(parse({"--", "--text"}).in, "--text"); }

TEST(Arguments, HelpNamesEverythingWithItsDefault) {
  const Parsed p = parse({"--nope", "--help"});
  EXPECT_TRUE(p.help);
  EXPECT_EQ(p.wrong, std::nullopt);
  for (const char* part : {"Usage: prog [options] IN", "Does things.", "Options:", "--text S", "(default default)",
                           "(default 7)", "(default 1s)", "--flag"}) {
    EXPECT_THAT(p.help_text, ::testing::HasSubstr(part));
  }
}

TEST(SplitList, CutsAtCommas) {
  EXPECT_THAT(split_list("a,b"), ::testing::ElementsAre("a", "b"));
  EXPECT_TRUE(split_list("").empty());
}

}  // namespace
}  // namespace svdserve::cli
