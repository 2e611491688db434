#include "tools/smart/log_page.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/scratch.h"

namespace tier::smart {
namespace {

using ::testing::HasSubstr;

TEST(LogPage, WhatIsNoNvmeDeviceIsRefused) {
  const storage::testing::ScratchDirectory directory;
  const std::string path = directory.File("file");
  EXPECT_EQ(ReadSmartLog(path).error().code, Code::kNotFound);
  std::ofstream(path) << "x";
  const auto refused = ReadSmartLog(path);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message, HasSubstr(path));
}

TEST(LogPage, OfTheFirstNvmeDeviceIsRead) {
  constexpr char kFirst[] = "/dev/nvme0n1";
  if (!std::filesystem::exists(kFirst)) GTEST_SKIP() << "needs an NVMe device";
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto page = ReadSmartLog(kFirst);
  ASSERT_TRUE(page) << page.error().message;
  const auto figures = storage::ParseSmartLog(*page);
  EXPECT_TRUE(figures) << figures.error().message;
}

}  // namespace
}  // namespace tier::smart
