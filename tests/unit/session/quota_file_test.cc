// The file of the quotas that were set at run time: what is written is read again, and whatever is broken is refused.
#include "daemon/session/quota_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/checksum.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::session {
namespace {

using ::testing::HasSubstr;
using tiering::kUnlimited;

QuotaOverrides Some() {
  return {.by_default = {.jobs = 4},
          .users = {{0, {.ram = 0}}, {1001, {.ram = uint64_t{1} << 36, .ssd = kUnlimited}}},
          .groups = {{100, {.guarantee = 0, .jobs = kUnlimited}}}};
}

std::string WithChecksum(const std::string& lines) {
  return lines + fmt::format("crc32c {:08x}\n", storage::Crc32c(std::as_bytes(std::span(lines))));
}

class QuotaFile : public ::testing::Test {
 protected:
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  testing::TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/quotas";
};

TEST_F(QuotaFile, IsReadAsItWasWritten) {
  EXPECT_EQ(LoadQuotas(path_).value(), QuotaOverrides{}) << "there is no file";
  ASSERT_TRUE(SaveQuotas(path_, Some()));
  EXPECT_EQ(LoadQuotas(path_).value(), Some());
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777U, 0600U);
  ASSERT_TRUE(SaveQuotas(path_, {}));
  EXPECT_EQ(LoadQuotas(path_).value(), QuotaOverrides{});
  EXPECT_FALSE(std::filesystem::exists(path_ + ".new"));
}

TEST_F(QuotaFile, IsTextAsDocumented) {
  EXPECT_EQ(FormatQuotas(Some()), WithChecksum("tierd-quotas 1\n"
                                               "default jobs=4\n"
                                               "user 0 ram=0\n"
                                               "user 1001 ram=68719476736 ssd=unlimited\n"
                                               "group 100 guarantee=0 jobs=unlimited\n"));
}

TEST_F(QuotaFile, WhatIsBrokenIsRefusedAndNamed) {
  const std::string first = "tierd-quotas 1\n";
  struct Case {
    std::string text, part;
    Code code = Code::kCorrupt;
  };
  const Case cases[] = {
      {"", "line 1 is not \"tierd-quotas 1\""},
      {"tierd-quotas 2\n", "line 1: the format is that of another tierd", Code::kVersion},
      {"tierd-quotas 10\n", "line 1: the format is that of another tierd", Code::kVersion},
      {"tierd-quotas 1", "the format is that of another tierd", Code::kVersion},
      {first, "it was cut short: the line with the checksum is missing"},
      {first + "user 1 ram=1", "line 2 has no end"},
      {first + "user 1 ram=1\ncrc32c 00000000\n", "line 3: the checksum is not that of the lines before it"},
      {WithChecksum(first) + "user 1 ram=1\n", "line 3 is behind the end"},
      {WithChecksum(first + "\n"), "line 2 is no quota"},
      {WithChecksum(first + "user ram=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user -1 ram=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 4294967295 ram=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 4294967296 ram=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 rom=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram=\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram=1x\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram=18446744073709551616\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram=1 ram=2\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1  ram=1\n"), "line 2 is no quota"},
      {WithChecksum(first + "user 1 ram=1\nuser 1 ssd=1\n"), "line 3 is no quota"},
      {WithChecksum(first + "default ram=1\ndefault ssd=1\n"), "line 3 is no quota"},
      {WithChecksum(first + "anybody ram=1\n"), "line 2 is no quota"},
      {std::string(kQuotaFileBytesMax + 1, 'x'), "it has more than 1048576 bytes"},
  };
  for (const Case& one : cases) {
    Write(one.text);
    const auto loaded = LoadQuotas(path_);
    ASSERT_FALSE(loaded) << one.text.substr(0, 100);
    EXPECT_EQ(loaded.error().code, one.code) << one.text.substr(0, 100);
    EXPECT_THAT(loaded.error().message, HasSubstr(one.part)) << one.text.substr(0, 100);
    EXPECT_THAT(loaded.error().message, HasSubstr(path_ + ": "));
    EXPECT_THAT(loaded.error().message, HasSubstr("move it away and set them again (tierctl quota set)"));
  }
}

TEST_F(QuotaFile, EveryByteOfItMatters) {
  const std::string good = FormatQuotas(Some());
  ASSERT_TRUE(ParseQuotas(good));
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_FALSE(ParseQuotas(bad)) << "byte " << i;
    EXPECT_FALSE(ParseQuotas(good.substr(0, i))) << "cut at " << i;
  }
}

TEST_F(QuotaFile, AFailedWriteLeavesWhatWasThere) {
  ASSERT_TRUE(SaveQuotas(path_, Some()));
  std::filesystem::create_directory(path_ + ".new");  // Where the next one would be written.
  const Status failed = SaveQuotas(path_, {});
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().message, HasSubstr("cannot write " + path_ + ".new: Is a directory"));
  EXPECT_EQ(LoadQuotas(path_).value(), Some());
  EXPECT_FALSE(SaveQuotas(directory_.path() + "/missing/quotas", {}));
  EXPECT_FALSE(LoadQuotas(directory_.path())) << "a directory is no file";
}

}  // namespace
}  // namespace tier::session
