#include "tools/tierctl/output.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_verbs.h"

namespace tier::tierctl {
namespace {

TEST(HumanBytes, KeepsThreeDigits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(uint64_t{123} << 20), "123 MiB");
  EXPECT_EQ(HumanBytes(~uint64_t{0}), "16.0 EiB");
}

TEST(ParseBytes, TakesUnitsAndFractions) {
  EXPECT_EQ(ParseBytes("4096B"), 4096u);
  EXPECT_EQ(ParseBytes("64GiB"), uint64_t{64} << 30);
  EXPECT_EQ(ParseBytes("1.5 GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseBytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(ParseBytes("0"), 0u);
  EXPECT_EQ(ParseBytes("4096"), 4096u);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "1.5", "1.5 ", "GiB", "-1", "12 elephants", "1e5", "99999999999TiB", "nan", "inf", "4KiBs"}) {
    EXPECT_FALSE(ParseBytes(text)) << text;
  }
}

TEST(RenderTable, AlignsFiguresRightAndLeavesNoTrailingSpace) {
  const std::string table =
      RenderTable({{"JOB", {"a", "longer"}, false}, {"RAM", {"5 B", "1.00 GiB"}, true}, {"S", {"", "x"}, false}});
  EXPECT_EQ(table,
            "JOB          RAM  S\n"
            "a            5 B\n"
            "longer  1.00 GiB  x\n");
  EXPECT_EQ(RenderTable({}), "");
}

TEST(Paint, ColoursOnlyWhenAsked) {
  EXPECT_EQ(Paint("ok", Mood::kGood, {.json = false, .colour = false}), "ok");
  EXPECT_EQ(Paint("ok", Mood::kGood, {.json = false, .colour = true}), "\033[32mok\033[0m");
}

TEST(ColourWanted, NotOnAPipeNorWithNoColor) {
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ColourWanted());
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ColourWanted());
}

}  // namespace
}  // namespace tier::tierctl
