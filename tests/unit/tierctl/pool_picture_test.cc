// The picture of the pool from given figures: as text, narrow and wide, in colour and without, and as SVG.

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/pool_text.h"
#include "tools/tierctl/pool_verbs.h"

namespace tier::tierctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
constexpr uint64_t kMiB = 1 << 20;

v1::PoolOwner* AddOwner(v1::GetPoolMapResponse* answer, const std::string& job, uint32_t uid, uint64_t held) {
  v1::PoolOwner* owner = answer->add_owners();
  owner->set_kind(v1::POOL_OWNER_KIND_JOB);
  owner->set_job(job);
  owner->set_uid(uid);
  owner->set_held_bytes(held);
  return owner;
}

v1::PoolWindow* AddWindow(v1::GetPoolMapResponse* answer, uint32_t owner, uint64_t used,
                          v1::PoolWindowCondition condition = v1::POOL_WINDOW_CONDITION_READY) {
  v1::PoolWindow* window = answer->add_windows();
  window->set_index(static_cast<uint32_t>(answer->windows_size()));
  window->set_owner(owner);
  window->set_kind(v1::POOL_WINDOW_KIND_BLOCK);
  window->set_condition(condition);
  window->set_size_bytes(8 * kMiB);
  window->set_block_bytes(used);
  return window;
}

// Two jobs that the caller may see, other users, and one window on its way back to the arena.
v1::GetPoolMapResponse Example() {
  v1::GetPoolMapResponse answer;
  answer.set_arena_bytes(66 * kMiB);
  answer.set_arena_max_bytes(96 * kMiB);
  v1::PoolOwner* small = AddOwner(&answer, "zeta", 1000, 10 * kMiB);
  small->set_requested_bytes(6 * kMiB);
  small->set_waste_bytes(4 * kMiB);
  small->set_free_bytes(4 * kMiB - 4096);
  small->set_largest_run_bytes(2 * kMiB);
  small->set_owed_bytes(8 * kMiB);
  v1::PoolOwner* large = AddOwner(&answer, "train", 1000, 32 * kMiB);
  large->set_requested_bytes(23 * kMiB);
  large->set_waste_bytes(9 * kMiB);
  large->set_free_bytes(9 * kMiB);
  large->set_largest_run_bytes(8 * kMiB);
  large->set_borrowed_bytes(12 * kMiB);
  v1::PoolOwner* others = answer.add_owners();
  others->set_kind(v1::POOL_OWNER_KIND_OTHER_USERS);
  others->set_held_bytes(16 * kMiB);
  answer.add_owners()->set_kind(v1::POOL_OWNER_KIND_ENDED);

  AddWindow(&answer, 1, 8 * kMiB);
  AddWindow(&answer, 1, 8 * kMiB - 4096);
  AddWindow(&answer, 1, 7 * kMiB, v1::POOL_WINDOW_CONDITION_EMPTYING);
  AddWindow(&answer, 1, 0);
  AddWindow(&answer, 0, 4 * kMiB);
  v1::PoolWindow* slots = AddWindow(&answer, 0, 0);
  slots->set_kind(v1::POOL_WINDOW_KIND_SLOT);
  slots->set_size_bytes(2 * kMiB);
  slots->set_slot_bytes(kMiB);
  slots->set_tail_bytes(kMiB);
  AddWindow(&answer, 2, kMiB);
  AddWindow(&answer, 2, 0, v1::POOL_WINDOW_CONDITION_RETURNING);
  AddWindow(&answer, 2, 0, v1::POOL_WINDOW_CONDITION_OVERDUE);
  AddWindow(&answer, 3, 0, v1::POOL_WINDOW_CONDITION_CLOSING);
  v1::PoolWindow* making = AddWindow(&answer, 0, 0, v1::POOL_WINDOW_CONDITION_MAKING);
  making->set_size_bytes(0);
  return answer;
}

std::string Text(const v1::GetPoolMapResponse& answer, const PoolTextOptions& options) {
  return RenderPoolText(MakePoolPicture(answer, {.columns = PoolColumnsFor(options.width)}), options);
}

TEST(PoolPicture, WideTextHasATable) {
  EXPECT_EQ(Text(Example(), {.width = 120}),
            "arena 66.0 MiB of 96.0 MiB, 11 windows (one a cell), in use by blocks 28.0 MiB, tails 1.00 MiB, slots "
            "1.00 MiB,\nfree 44.0 MiB\n"
            "A#A9A-A.B5b#~1~<~!=xB+\n"
            "A block windows, a slot windows, 1 to 9 tenths filled, . empty, # full, + 1 being made, - 1 emptying, < 1 "
            "returning,\n! 1 overdue, x 1 closing\n"
            "\n"
            "   JOB              HELD  REQUESTED     WASTE      FREE       RUN  BORROWED      OWED\n"
            "A  1000/train   32.0 MiB   23.0 MiB  9.00 MiB  9.00 MiB  8.00 MiB  12.0 MiB       0 B\n"
            "B  1000/zeta    10.0 MiB   6.00 MiB  4.00 MiB  4.00 MiB  2.00 MiB       0 B  8.00 MiB\n"
            "~  other users  16.0 MiB        0 B       0 B       0 B       0 B       0 B       0 B\n"
            "=  ended jobs        0 B        0 B       0 B       0 B       0 B       0 B       0 B\n");
}

TEST(PoolPicture, NarrowTextHasLinesThatFit) {
  const std::string text = Text(Example(), {.width = 40});
  EXPECT_EQ(text,
            "arena 66.0 MiB of 96.0 MiB,\n"
            "11 windows (one a cell),\n"
            "in use by blocks 28.0 MiB,\n"
            "tails 1.00 MiB, slots 1.00 MiB,\n"
            "free 44.0 MiB\n"
            "A#A9A-A.B5b#~1~<~!=xB+\n"
            "A block windows, a slot windows,\n"
            "1 to 9 tenths filled, . empty, # full,\n"
            "+ 1 being made, - 1 emptying,\n"
            "< 1 returning, ! 1 overdue, x 1 closing\n"
            "\n"
            "A 1000/train\n"
            "  held 32.0 MiB, requested 23.0 MiB,\n"
            "  waste 9.00 MiB, free 9.00 MiB,\n"
            "  run 8.00 MiB, borrowed 12.0 MiB,\n"
            "  owed 0 B\n"
            "B 1000/zeta\n"
            "  held 10.0 MiB, requested 6.00 MiB,\n"
            "  waste 4.00 MiB, free 4.00 MiB,\n"
            "  run 2.00 MiB, borrowed 0 B,\n"
            "  owed 8.00 MiB\n"
            "~ other users\n"
            "  held 16.0 MiB, requested 0 B,\n"
            "  waste 0 B, free 0 B, run 0 B,\n"
            "  borrowed 0 B, owed 0 B\n"
            "= ended jobs\n"
            "  held 0 B, requested 0 B, waste 0 B,\n"
            "  free 0 B, run 0 B, borrowed 0 B,\n"
            "  owed 0 B\n");
}

TEST(PoolPicture, WhatProcessesKeepIsShownBesideTheWindows) {
  v1::GetPoolMapResponse answer = Example();
  EXPECT_THAT(Text(answer, {.width = 120}), Not(HasSubstr("KEPT")));
  answer.set_kept_bytes(3 * kMiB);
  answer.mutable_owners(1)->set_kept_bytes(2 * kMiB);
  const std::string text = Text(answer, {.width = 120});
  EXPECT_THAT(text, HasSubstr("arena 66.0 MiB of 96.0 MiB, beside it 3.00 MiB kept by processes"));
  EXPECT_THAT(text, HasSubstr("OWED      KEPT\nA  1000/train"));
  EXPECT_THAT(text, HasSubstr("12.0 MiB       0 B  2.00 MiB\n"));
}

TEST(PoolPicture, WithoutWindowsItSaysSo) {
  v1::GetPoolMapResponse answer;
  answer.set_arena_max_bytes(96 * kMiB);
  EXPECT_EQ(Text(answer, {}), "arena 0 B of 96.0 MiB, no windows\n");
  answer.set_arena_stock_bytes(64 * kMiB);
  EXPECT_EQ(Text(answer, {}), "arena 0 B of 96.0 MiB, beside it 64.0 MiB made ahead of need, no windows\n");
  AddOwner(&answer, "train", 1000, 0);
  EXPECT_THAT(Text(answer, {.width = 100}), HasSubstr("A  1000/train"));
}

TEST(PoolPicture, EightThousandWindowsFitInGroups) {
  v1::GetPoolMapResponse answer;
  AddOwner(&answer, "train", 1000, 0);
  AddOwner(&answer, "zeta", 1000, 0);
  for (uint32_t i = 0; i < 8000; ++i) {
    const bool overdue = i == 4711;
    AddWindow(&answer, i < 4003 ? 0 : 1, i % 2 == 0 ? 8 * kMiB : 0,
              overdue ? v1::POOL_WINDOW_CONDITION_OVERDUE : v1::POOL_WINDOW_CONDITION_READY);
  }
  const PoolPicture picture = MakePoolPicture(answer, {.columns = 40, .rows_max = 20});
  EXPECT_EQ(picture.windows_per_cell, 10u);
  ASSERT_EQ(picture.cells.size(), 800u);
  uint64_t windows = 0;
  for (const PoolCell& cell : picture.cells) windows += cell.window_count;
  EXPECT_EQ(windows, 8000u);
  EXPECT_EQ(picture.cells[399].owner, 0u);
  EXPECT_EQ(picture.cells[400].owner, 1u) << "three of its ten windows are the other job's";
  EXPECT_EQ(picture.cells[471].condition, v1::POOL_WINDOW_CONDITION_OVERDUE) << "one of ten is enough to be shown";
  EXPECT_EQ(FillOf(picture.cells[0], 10), 5u);
  const std::string text = Text(answer, {.width = 80});
  EXPECT_THAT(text, HasSubstr("8000 windows (10 a cell)"));
  std::istringstream lines(text);
  size_t rows = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u) << line;
    if (line.size() == 80 && (line.starts_with("A5") || line.starts_with("B5"))) ++rows;
  }
  EXPECT_EQ(rows, 20u);
}

TEST(PoolPicture, TheWidestTerminalHasAllWindowsInOneRow) {
  const PoolPicture picture = MakePoolPicture(Example(), {.columns = 11, .rows_max = 1});
  EXPECT_EQ(picture.windows_per_cell, 1u);
  EXPECT_EQ(picture.cells.size(), 11u);
  const PoolPicture narrower = MakePoolPicture(Example(), {.columns = 0, .rows_max = 0});
  EXPECT_EQ(narrower.windows_per_cell, 11u);
  EXPECT_EQ(narrower.cells.size(), 1u);
}

TEST(PoolPicture, ColourAddsNothingButColour) {
  std::string coloured = Text(Example(), {.width = 120, .colour = true});
  EXPECT_THAT(coloured, HasSubstr("\033[38;5;33mA#A9A-A.\033[0m\033[38;5;208mB5b#\033[0m"));
  EXPECT_THAT(coloured, HasSubstr("\n\033[38;5;245m~\033[0m  other users"));
  for (size_t at = coloured.find('\033'); at != std::string::npos; at = coloured.find('\033')) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, Text(Example(), {.width = 120}));
}

TEST(PoolPicture, UnicodeFillsInEighths) {
  const std::string text = Text(Example(), {.width = 120, .unicode = true});
  EXPECT_THAT(text, HasSubstr("\nA█A▇A-A B▄b█~▁~<~!=xB+\n"));
  EXPECT_THAT(text, HasSubstr("▁ to █ filled"));
}

TEST(PoolPicture, FullAndEmptyAreSaidOfNothingElse) {
  EXPECT_EQ(FillOf({.size_bytes = 1000, .used_bytes = 0}, 8), 0u);
  EXPECT_EQ(FillOf({.size_bytes = 1000, .used_bytes = 1}, 8), 1u);
  EXPECT_EQ(FillOf({.size_bytes = 1000, .used_bytes = 999}, 8), 7u);
  EXPECT_EQ(FillOf({.size_bytes = 1000, .used_bytes = 1000}, 8), 8u);
  EXPECT_EQ(FillOf({.size_bytes = 0, .used_bytes = 0}, 8), 0u) << "it is being made";
}

TEST(PoolPicture, ManyJobsShareTheLastLetterAndHuesComeAgain) {
  v1::GetPoolMapResponse answer;
  for (uint32_t i = 0; i < 30; ++i) {
    AddOwner(&answer, "job" + std::to_string(i), i, (100 - i) * kMiB);
    AddWindow(&answer, i, 0);
  }
  const PoolPicture picture = MakePoolPicture(answer, {});
  EXPECT_EQ(picture.owners[0].letter, 'A');
  EXPECT_EQ(picture.owners[25].letter, 'Z');
  EXPECT_EQ(picture.owners[26].letter, '*');
  for (const PoolOwnerLine& owner : picture.owners) EXPECT_LT(owner.hue, kPoolHues.size() - 2);
}

TEST(PoolPicture, NamesDoNotSteerTheTerminal) {
  v1::GetPoolMapResponse answer;
  AddOwner(&answer, "a\033[2Jb\n\xe2\x80\xae<", 1000, kMiB);
  for (const size_t width : {100u, 24u}) {
    const std::string text = Text(answer, {.width = width});
    EXPECT_THAT(text, HasSubstr(width == 100 ? R"(1000/a\x1b[2Jb\x0a\u{202e}<)" : R"(A 1000/a\x1b[~a\u{202e}<)"));
    EXPECT_THAT(text, Not(HasSubstr("\033")));
  }
  const std::string svg = RenderPoolSvg(MakePoolPicture(answer, {}));
  EXPECT_THAT(svg, HasSubstr(R"(1000/a\x1b[2Jb\x0a\u{202e}&lt;)"));
  EXPECT_THAT(svg, Not(HasSubstr("\033")));
}

TEST(PoolPicture, AWindowOfAnOwnerThatIsNotListedIsShown) {
  v1::GetPoolMapResponse answer;
  AddWindow(&answer, 4'000'000'000u, kMiB);
  EXPECT_THAT(Text(answer, {.width = 100}), HasSubstr("\n?1\n"));
}

TEST(PoolSvg, DrawsEachCellAndSaysWhatItIs) {
  v1::GetPoolMapResponse answer = Example();
  answer.mutable_owners(1)->set_job("<train> & \"more\"");
  const std::string svg = RenderPoolSvg(MakePoolPicture(answer, {.columns = 64, .rows_max = 64}));
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("<title>1000/&lt;train&gt; &amp; &quot;more&quot;: 7.00 MiB of 8.00 MiB filled, 1 window "
                             "emptying</title>"));
  EXPECT_THAT(svg, HasSubstr(R"(<rect x="12" y="30" width="14" height="14" fill="#0087ff"/>)")) << "the first is full";
  EXPECT_THAT(svg, HasSubstr(">&lt;</text>")) << "the mark of a returning window";
  size_t cells = 0;
  for (size_t at = svg.find("<g>"); at != std::string::npos; at = svg.find("<g>", at + 1)) ++cells;
  EXPECT_EQ(cells, 11u);
  EXPECT_THAT(RenderPoolSvg(MakePoolPicture({}, {})), HasSubstr("no windows"));
}

TEST(OutputWidth, IsThatOfTheEnvironmentWithoutATerminal) {
  if (::isatty(STDOUT_FILENO) != 0) GTEST_SKIP() << "standard output is a terminal";
  ::setenv("COLUMNS", "132", 1);
  EXPECT_EQ(OutputWidth(), 132u);
  ::setenv("COLUMNS", "99999999", 1);
  EXPECT_EQ(OutputWidth(), 1000u);
  for (const char* wrong : {"", "0", "wide", "80x", "-3", "99999999999999999999999"}) {
    ::setenv("COLUMNS", wrong, 1);
    EXPECT_EQ(OutputWidth(), 80u) << wrong;
  }
  ::unsetenv("COLUMNS");
  EXPECT_EQ(OutputWidth(), 80u);
}

TEST(UnicodeWanted, ByTheFirstLocaleThatIsSet) {
  ::unsetenv("LC_CTYPE");
  ::setenv("LANG", "en_US.UTF-8", 1);
  ::setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(UnicodeWanted());
  ::setenv("LC_ALL", "", 1);
  EXPECT_TRUE(UnicodeWanted());
  ::setenv("LC_CTYPE", "C.utf8", 1);
  EXPECT_TRUE(UnicodeWanted());
  ::unsetenv("LC_ALL");
  ::unsetenv("LC_CTYPE");
  ::unsetenv("LANG");
  EXPECT_FALSE(UnicodeWanted());
}

TEST(WriteTextFile, NamesTheFileAndTheReason) {
  const session::testing::TemporaryDirectory directory;
  const std::string& folder = directory.path();
  ASSERT_TRUE(WriteTextFile(folder + "/a.svg", "<svg/>"));
  std::ifstream file(folder + "/a.svg");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "<svg/>");
  const Status missing = WriteTextFile(folder + "/no/a.svg", "<svg/>");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kIoError);
  EXPECT_EQ(missing.error().message, "cannot write " + folder + "/no/a.svg: No such file or directory");
  EXPECT_THAT(WriteTextFile("/dev/full", "<svg/>").error().message, HasSubstr("No space left on device"));
}

}  // namespace
}  // namespace tier::tierctl
