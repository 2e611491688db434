// The help within the width of a terminal.
#include "tools/tierctl/help_formatter.h"

#include <memory>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::HasSubstr;

constexpr char kLong[] = "Requests that wait, or waited, for long: for which tensor, and for what, and since when";
constexpr char kExample[] = "  tierctl job open step-4711 --uid 1001 --guarantee 64GiB --limit 128GiB --ssd-limit 1TiB";

std::string HelpOn(size_t width) {
  CLI::App app(kLong, "tierctl");
  app.formatter(std::make_shared<HelpFormatter>(width));
  std::string value;
  app.add_option("--guarantee", value, kLong)->type_name("SIZE");
  app.add_subcommand("stalls", kLong);
  app.footer(std::string("What is broken within a\nsentence is joined. ") + kLong + "\n\nExample:\n" + kExample);
  return app.help();
}

TEST(HelpFormatter, NoLineIsWiderThanTheTerminal) {
  for (const size_t width : {40u, 60u, 80u, 132u}) {
    const std::string help = HelpOn(width);
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
      if (line == kExample) continue;
      EXPECT_LE(line.size(), width) << line;
    }
    EXPECT_THAT(help, HasSubstr(std::string("\n") + kExample + "\n")) << "it is there to be pasted";
    EXPECT_THAT(help, HasSubstr("stalls"));
  }
}

TEST(HelpFormatter, WithoutATerminalLinesAreWhole) {
  const std::string help = HelpOn(0);
  EXPECT_THAT(help, HasSubstr(std::string("  stalls                      ") + kLong + "\n"));
  EXPECT_THAT(help, HasSubstr(std::string("  --guarantee SIZE            ") + kLong + "\n"));
}

TEST(WrappedProse, JoinsWhatWasBrokenWithinASentence) {
  EXPECT_EQ(WrappedProse("one two\nthree. Four.\nFive\n\n  an example line\n", 20),
            "one two three. Four.\nFive\n\n  an example line\n");
  EXPECT_EQ(WrappedProse("one two three", 7), "one two\nthree");
  EXPECT_EQ(WrappedProse("", 7), "");
}

}  // namespace
}  // namespace tier::tierctl
