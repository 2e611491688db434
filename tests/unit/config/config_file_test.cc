// What is taken for a configuration file, and what would hold up or fill the process that reads it.
#include "daemon/config/config_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/config.h"
#include "tests/support/session/temporary_directory.h"

namespace tier::config {
namespace {

using ::testing::HasSubstr;

class ConfigFile : public ::testing::Test {
 protected:
  // Why it is refused.
  Error Refusal() const {
    const auto text = ReadConfigFile(path_);
    EXPECT_FALSE(text);
    EXPECT_FALSE(LoadConfig(path_));
    return text ? Error{} : text.error();
  }
  void Write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  session::testing::TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/tierd.toml";
};

TEST_F(ConfigFile, IsReadWholeAlsoThroughALink) {
  const std::string text = "[log]\nlevel = \"debug\"\n# " + std::string(100'000, 'x') + "\n";
  Write(text);
  EXPECT_EQ(ReadConfigFile(path_), text);
  const std::string link = directory_.path() + "/link.toml";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(ReadConfigFile(link), text);
  EXPECT_EQ(LoadConfig(link)->log.level, "debug");
  Write("");
  EXPECT_EQ(ReadConfigFile(path_), "");
}

TEST_F(ConfigFile, ThatDoesNotEndIsRefused) {
  std::filesystem::create_symlink("/dev/zero", path_);
  EXPECT_EQ(Refusal().code, Code::kInvalid);
  EXPECT_THAT(Refusal().message, HasSubstr("is no regular file: name a regular file of at most 1 MiB"));
  EXPECT_THAT(Refusal().message, HasSubstr(path_));
}

TEST_F(ConfigFile, ThatNobodyWritesToHoldsUpNoOne) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Refusal().code, Code::kInvalid);
  EXPECT_THAT(Refusal().message, HasSubstr("is no regular file"));
}

TEST_F(ConfigFile, ThatIsADirectoryIsRefused) {
  std::filesystem::create_directory(path_);
  EXPECT_THAT(Refusal().message, HasSubstr("is no regular file"));
}

TEST_F(ConfigFile, HasAMebibyteAtMost) {
  const std::string text = "#" + std::string(kConfigFileBytesMax - 2, 'x') + "\n";
  Write(text);
  EXPECT_EQ(ReadConfigFile(path_), text);
  EXPECT_TRUE(LoadConfig(path_));
  Write("#" + text);
  EXPECT_EQ(Refusal().code, Code::kInvalid);
  EXPECT_THAT(Refusal().message, HasSubstr("is too large: name a regular file of at most 1 MiB"));
}

TEST_F(ConfigFile, ThatIsMissingIsNamed) {
  EXPECT_EQ(Refusal().code, Code::kNotFound);
  EXPECT_THAT(Refusal().message, HasSubstr(path_));
}

}  // namespace
}  // namespace tier::config
