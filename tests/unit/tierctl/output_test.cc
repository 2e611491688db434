#include "tools/tierctl/output.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "libclient/control/channel.h"
#include "tools/tierctl/daemon_verbs.h"
#include "tools/tierctl/job_verbs.h"
#include "tools/tierctl/printable.h"

namespace tier::tierctl {
namespace {

TEST(HumanBytes, KeepsThreeDigits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.50 KiB");
  EXPECT_EQ(HumanBytes(uint64_t{123} << 20), "123 MiB");
  EXPECT_EQ(HumanBytes(~uint64_t{0}), "16.0 EiB");
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

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  }
  return lines;
}

TEST(RenderTable, CutsNamesToTheWidthAndNumbersNever) {
  const std::vector<Column> columns = {{"JOB", {"nightly-evaluation-of-the-large-model", "a"}, false},
                                       {"RAM", {"1.00 GiB", "5 B"}, true},
                                       {"STATE", {"online", "offline (Input/output error)"}, false}};
  EXPECT_EQ(RenderTable(columns, {.unicode = true, .width = 50}),
            "JOB                       RAM  STATE\n"
            "nightly-e…rge-model  1.00 GiB  online\n"
            "a                         5 B  offline (Input/out…\n");
  for (size_t width = 36; width < 90; ++width) {
    for (const std::string& line : LinesOf(RenderTable(columns, {.unicode = true, .width = width}))) {
      EXPECT_LE(DisplayWidth(line), width) << line;
    }
    EXPECT_NE(RenderTable(columns, {.width = width}).find("1.00 GiB"), std::string::npos);
  }
  EXPECT_EQ(RenderTable(columns, {.width = 1000}), RenderTable(columns)) << "no wider than it needs to be";
}

TEST(RenderTable, MakesLinesOfARowThatIsTooWideInAnyCase) {
  const std::vector<Column> columns = {{"DEVICE", {"0", "1"}, true},
                                       {"PATH", {"/var/lib/tierd/tier.ssd", "/dev/nvme1n1"}, false},
                                       {"CAPACITY", {"64.0 GiB", "1.00 TiB"}, true},
                                       {"NOTE", {"", "x"}, false}};
  EXPECT_EQ(RenderTable(columns, {.width = 24}),
            "device 0\n"
            "  path /var/~d/tier.ssd,\n"
            "  capacity 64.0 GiB\n"
            "device 1\n"
            "  path /dev/nvme1n1,\n"
            "  capacity 1.00 TiB,\n"
            "  note x\n");
}

TEST(RenderTable, LeavesColumnsOutInTheirOrderAndSaysHowMany) {
  const std::vector<Column> columns = {
      {"JOB", {"1000/training-run", "0/b"}, false}, {"RAM", {"1.00 GiB", "12.0 GiB"}, true},
      {"HELD", {"1.50 GiB", "13.0 GiB"}, true, 1},  {"SSD", {"100 GiB", "0 B"}, true},
      {"IN", {"1.00 GiB/s", "0 B/s"}, true, 3},     {"OUT", {"2.00 GiB/s", "0 B/s"}, true, 2}};
  EXPECT_EQ(RenderTable(columns, {.width = 80}),
            "JOB                     RAM      HELD      SSD          IN         OUT\n"
            "1000/training-run  1.00 GiB  1.50 GiB  100 GiB  1.00 GiB/s  2.00 GiB/s\n"
            "0/b                12.0 GiB  13.0 GiB      0 B       0 B/s       0 B/s\n");
  EXPECT_EQ(RenderTable(columns, {.width = 56}),
            "JOB                    RAM     SSD         IN        OUT\n"
            "1000/training-run 1.00 GiB 100 GiB 1.00 GiB/s 2.00 GiB/s\n"
            "0/b               12.0 GiB     0 B      0 B/s      0 B/s\n"
            "+1 column: wider terminal or --json\n");
  EXPECT_EQ(RenderTable(columns, {.width = 40}),
            "JOB               RAM     SSD         IN\n"
            "1000/t~g-run 1.00 GiB 100 GiB 1.00 GiB/s\n"
            "0/b          12.0 GiB     0 B      0 B/s\n"
            "+2 columns: wider terminal or --json\n");
  EXPECT_EQ(RenderTable(columns, {.width = 22}).substr(0, 6), "job 10") << "what stays is too wide: lines of all";
  EXPECT_NE(RenderTable(columns, {.width = 22}).find("out 2.00 GiB/s"), std::string::npos);
  for (size_t width = 40; width < 80; ++width) {
    for (const std::string& line : LinesOf(RenderTable(columns, {.width = width}))) EXPECT_LE(line.size(), width);
  }
}

TEST(RenderTable, WhatTenantsNamedForgesNoRowAndSteersNoTerminal) {
  const std::vector<Column> columns = {
      {"TENSOR", {"x\n0x1  shared\r\033[2J", "\xc2\x9b\u202e", std::string(300, '\033')}, false},
      {"SIZE", {"1 B", "2 B", "3 B"}, true}};
  for (const size_t width : {size_t{0}, size_t{80}, size_t{30}, size_t{10}}) {
    const std::string table = RenderTable(columns, {.width = width});
    for (const char c : table) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << width;
    if (width != 10) {
      EXPECT_EQ(LinesOf(table).size(), 4u) << width;
    }
  }
}

TEST(RenderFields, AValueGoesOnBelowItself) {
  EXPECT_EQ(RenderFields({{"job", "a\033b"}, {"arena", "12 of 24 MiB in 3 windows for blocks"}}, {.width = 35}),
            "job    a\\x1bb\n"
            "arena  12 of 24 MiB in 3 windows\n"
            "       for blocks\n");
  EXPECT_EQ(RenderFields({{"job", "a\033b"}, {"arena", "12 of 24 MiB in 3 windows"}}, {.width = 20}),
            "job\n"
            "  a\\x1bb\n"
            "arena\n"
            "  12 of 24 MiB in 3\n"
            "  windows\n")
      << "below its name, where little room is left";
  EXPECT_EQ(RenderFields({{"arena", "12 of 24 MiB in 3 windows"}}), "arena  12 of 24 MiB in 3 windows\n");
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

TEST(LatencyText, HasAUnitThatFits) {
  EXPECT_EQ(LatencyText(0, 0), "-") << "there was none";
  EXPECT_EQ(LatencyText(0.00012, 0.0034), "120 us / 3.4 ms");
  EXPECT_EQ(LatencyText(0.5, 30), "500.0 ms / 30.0 s");
}

}  // namespace
}  // namespace tier::tierctl
