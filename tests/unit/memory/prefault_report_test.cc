#include "daemon/memory/prefault_report.h"

#include <gtest/gtest.h>

#include "proto/units.h"

namespace tier::memory {
namespace {

TEST(PrefaultReport, NothingIsToldWithoutAPrefault) {
  PrefaultReport report;
  EXPECT_EQ(report.Note(0, 0), std::nullopt);
  EXPECT_FALSE(report.ended());
}

TEST(PrefaultReport, TheBeginningEachTenthAndTheEndAreToldOnce) {
  PrefaultReport report;
  EXPECT_EQ(report.Note(0, kGiB), "prefault: 0 bytes of 1 GiB (0 %)");
  EXPECT_EQ(report.Note(50 * kMiB, kGiB), std::nullopt);
  EXPECT_EQ(report.Note(256 * kMiB, kGiB), "prefault: 256 MiB of 1 GiB (25 %)");
  EXPECT_EQ(report.Note(300 * kMiB, kGiB), std::nullopt);
  EXPECT_EQ(report.Note(512 * kMiB, kGiB), "prefault: 512 MiB of 1 GiB (50 %)");
  EXPECT_FALSE(report.ended());
  EXPECT_EQ(report.Note(kGiB, kGiB), "prefault is complete: 1 GiB");
  EXPECT_TRUE(report.ended());
  EXPECT_EQ(report.Note(kGiB, kGiB), std::nullopt);
}

TEST(PrefaultReport, OneThatIsDoneWhenItIsFirstLookedAtIsToldAsComplete) {
  PrefaultReport report;
  EXPECT_EQ(report.Note(kGiB, kGiB), "prefault is complete: 1 GiB");
}

TEST(PrefaultReport, WhatTheHostDidNotGiveIsTold) {
  PrefaultReport report;
  ASSERT_TRUE(report.Note(0, kGiB));
  const auto end = report.Note(512 * kMiB, 512 * kMiB);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->find("prefault has ended with 512 MiB of 1 GiB"), 0u) << *end;
  EXPECT_TRUE(report.ended());
}

TEST(PrefaultReport, NoneOfItIsAnEndToo) {
  PrefaultReport report;
  ASSERT_TRUE(report.Note(0, kGiB));
  EXPECT_TRUE(report.Note(0, 0));
  EXPECT_TRUE(report.ended());
}

}  // namespace
}  // namespace tier::memory
