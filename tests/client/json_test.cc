#include "client/cli/report/json.h"

#include <gtest/gtest.h>

#include <cmath>

namespace svdserve::cli {
namespace {

TEST(Json, HasEveryKindOfValue) {
  const Json json = Json::Object{{"nothing", Json()},
                                 {"yes", true},
                                 {"count", int64_t{1} << 60},
                                 {"half", 0.5},
                                 {"third", 1.0 / 3},
                                 {"infinite", HUGE_VAL},
                                 {"text", "a \"b\" c"},
                                 {"numbers", Json::Array{1, 2.5, Json(), "x"}},
                                 {"empty", Json::Array{}},
                                 {"none", Json::Object{}},
                                 {"pairs", Json::Array{Json::Array{1, 2}, Json::Object{{"a", false}}}}};
  EXPECT_EQ(json.text(),
            "{\n"
            "  \"nothing\": null,\n"
            "  \"yes\": true,\n"
            "  \"count\": 1152921504606846976,\n"
            "  \"half\": 0.5,\n"
            "  \"third\": 0.3333333333333333,\n"
            "  \"infinite\": null,\n"
            "  \"text\": \"a \\\"b\\\" c\",\n"
            "  \"numbers\": [1, 2.5, null, \"x\"],\n"
            "  \"empty\": [],\n"
            "  \"none\": {},\n"
            "  \"pairs\": [\n"
            "    [1, 2],\n"
            "    {\n"
            "      \"a\": false\n"
            "    }\n"
            "  ]\n"
            "}\n");
}

TEST(Json, TextOfOthersStaysText) {
  EXPECT_EQ(Json("a\nb\x1b[0m\xff").text(), "\"a\\\\nb\\\\x1b[0m\\\\xff\"\n");
  EXPECT_EQ(Json("\xc3\xa4 \\").text(), "\"\xc3\xa4 \\\\\"\n");
}

}  // namespace
}  // namespace svdserve::cli
