#include "client/cli/printable.h"

#include <gtest/gtest.h>

namespace svdserve::cli {
namespace {

TEST(Printable, LeavesTextAsItIs) {
  for (const char* text : {"", "INTERNAL: no device", "\"a b\\c\"", "Größe.npy", "奇异值", "𝔸"}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("\x1b]0;title\x07"), "\\x1b]0;title\\x07");
  EXPECT_EQ(printable("a\nb\r\tc\x7f"), "a\\nb\\x0d\\x09c\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\u009b31m");  // the control sequence introducer in one character
  EXPECT_EQ(printable("\u202eyp.exe\u2069\u2028"), "\\u202eyp.exe\\u2069\\u2028");
}

TEST(Printable, EscapesWhatIsNoUtf8) {
  EXPECT_EQ(printable("\x9b"
                      "31m"),
            "\\x9b31m");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                    // cut off
  EXPECT_EQ(printable("\xc3("), "\\xc3(");                  // no continuation
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");           // a newline, longer than needed
  EXPECT_EQ(printable("\xe0\x82\x9b"), "\\xe0\\x82\\x9b");  // the introducer, longer than needed
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xff"), "\\xff");
}

}  // namespace
}  // namespace svdserve::cli
