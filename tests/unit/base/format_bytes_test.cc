#include "daemon/base/format_bytes.h"

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::base {
namespace {

TEST(FormatBytes, PicksTheLargestUnitAndOneDecimalWhereItSaysSomething) {
  EXPECT_EQ(FormatBytes(0), "0 bytes");
  EXPECT_EQ(FormatBytes(1023), "1023 bytes");
  EXPECT_EQ(FormatBytes(4 * kKiB), "4 KiB");
  EXPECT_EQ(FormatBytes(64 * kMiB), "64 MiB");
  EXPECT_EQ(FormatBytes(5 * kGiB + 900 * kMiB), "5.9 GiB");
  EXPECT_EQ(FormatBytes(16384 * kGiB), "16 TiB");
}

}  // namespace
}  // namespace tier::base
