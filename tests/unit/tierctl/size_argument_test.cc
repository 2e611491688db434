// Sizes on the command line: with units, and numbers whose unit is missing.
#include "tools/tierctl/size_argument.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::tierctl {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(ParseBytes, TakesUnitsAndFractions) {
  EXPECT_EQ(ParseBytes("4096B"), 4096u);
  EXPECT_EQ(ParseBytes("64GiB"), uint64_t{64} << 30);
  EXPECT_EQ(ParseBytes("1.5 GiB"), uint64_t{3} << 29);
  EXPECT_EQ(ParseBytes("2GB"), 2'000'000'000u);
  EXPECT_EQ(ParseBytes("4KB"), 4000u);
  EXPECT_EQ(ParseBytes("4kB"), 4000u);
  EXPECT_EQ(ParseBytes("0"), 0u);
  EXPECT_EQ(ParseBytes("4096"), 4096u);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "1.5", "1.5 ", "GiB", "-1", "12 elephants", "1e5", "99999999999TiB", "nan", "inf", "4KiBs"}) {
    EXPECT_FALSE(ParseBytes(text)) << text;
  }
}

TEST(SizeArgument, ASmallNumberWithoutAUnitIsRefusedWithWhatItWasTakenFor) {
  const auto refused = SizeArgument("--ram", "64", "or unlimited");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_EQ(refused.error().message, "--ram 64 is 64 bytes; write 64GiB, or 64B if bytes are meant");
  EXPECT_EQ(SizeArgument("--ram", "1", "").error().message, "--ram 1 is 1 byte; write 1GiB, or 1B if bytes are meant");
  EXPECT_THAT(SizeArgument("--ram", "64.0", "").error().message, HasSubstr("write 64GiB, or 64B"));
  EXPECT_THAT(SizeArgument("--ram", "4096 ", "").error().message, HasSubstr("write 4096MiB, or 4096B"));
  EXPECT_THAT(SizeArgument("--ram", "2097151", "").error().message, HasSubstr("write 2097151KiB, or 2097151B"));
}

TEST(SizeArgument, BytesThatAreMeantAreTaken) {
  EXPECT_EQ(SizeArgument("--ram", "64B", "").value(), 64u);
  EXPECT_EQ(SizeArgument("--ram", "64KiB", "").value(), 65'536u);
  EXPECT_EQ(SizeArgument("--ram", "0", "").value(), 0u) << "none";
  EXPECT_EQ(SizeArgument("--ram", "2097152", "").value(), 2'097'152u) << "a block";
  EXPECT_EQ(SizeArgument("--ram", "68719476736", "").value(), uint64_t{64} << 30);
}

TEST(SizeArgument, WhatIsNoSizeIsToldWithItsOption) {
  EXPECT_EQ(SizeArgument("--limit", "much", "or as a number of bytes").error().message,
            "--limit \"much\" is no size; write it like 512MiB or 16GiB, or as a number of bytes");
  EXPECT_EQ(SizeArgument("--limit", "1PiB", "").error().message,
            "--limit: '1PiB' has the unit 'PiB'; known are B, KiB, MiB, GiB, TiB, kB, MB, GB, TB");
  EXPECT_EQ(SizeArgument("--limit", "99999999999TiB", "").error().message, "--limit: '99999999999TiB' is too large");
  EXPECT_THAT(SizeArgument("--limit", "1\033[2J", "").error().message, HasSubstr("'1\\x1b[2J' has the unit"));
  EXPECT_THAT(SizeArgument("--limit", "\033[2J", "").error().message, HasSubstr("\\x1b[2J"));
  EXPECT_FALSE(MissingUnit("arena.minimum", "25%"));
  EXPECT_THAT(MissingUnit("arena.minimum", "64"), Optional(HasSubstr("arena.minimum 64 is 64 bytes")));
}

}  // namespace
}  // namespace tier::tierctl
