// Where clients and daemons that were not told meet, and which directories they do not trust.
#include "proto/socket_places.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"

namespace tier::proto {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SocketPlaces, AClientLooksForItsOwnDaemonBeforeTheSystems) {
  EXPECT_THAT(SocketDirectories("/run/user/7", 7), ElementsAre("/run/user/7/tierd", "/tmp/tierd-7", "/run/tierd"));
  EXPECT_THAT(SocketDirectories(nullptr, 7), ElementsAre("/tmp/tierd-7", "/run/tierd"));
  EXPECT_THAT(SocketDirectories("", 7), ElementsAre("/tmp/tierd-7", "/run/tierd"));
}

TEST(SocketPlaces, RootTrustsNoDirectoryInTmp) {
  EXPECT_THAT(SocketDirectories(nullptr, 0), ElementsAre("/run/tierd-private", "/run/tierd"));
}

class UserDirectory : public ::testing::Test {
 protected:
  Error Refusal(const std::string& path, uint32_t uid = ::geteuid()) {
    const Status checked = CheckUserDirectory(path, uid);
    EXPECT_FALSE(checked);
    return checked ? Error{} : checked.error();
  }

  const session::testing::TemporaryDirectory folder_;  // Of this user alone.
  const std::string path_ = folder_.path();
};

TEST_F(UserDirectory, OfItsUserAloneIsTrusted) { EXPECT_TRUE(CheckUserDirectory(path_, ::geteuid())); }

TEST_F(UserDirectory, OfAnotherUserIsRefusedWithAWayOut) {
  const Error refusal = Refusal(path_, ::geteuid() + 1);
  EXPECT_EQ(refusal.code, Code::kDenied);
  EXPECT_THAT(refusal.message, AllOf(HasSubstr("belongs to uid " + std::to_string(::geteuid())),
                                     HasSubstr("sudo rm -r " + path_), HasSubstr("XDG_RUNTIME_DIR")));
}

TEST_F(UserDirectory, OpenToOthersIsRefused) {
  for (const mode_t mode : {0701, 0710, 0770, 0777, 0704}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(Refusal(path_).code, Code::kDenied);
    EXPECT_THAT(Refusal(path_).message, HasSubstr("chmod 700 " + path_));
  }
}

TEST_F(UserDirectory, ThatIsALinkIsRefusedWhereverItLeads) {
  std::filesystem::create_directory_symlink(path_, path_ + "/link");
  EXPECT_EQ(Refusal(path_ + "/link").code, Code::kDenied);
  EXPECT_THAT(Refusal(path_ + "/link").message, HasSubstr("is no directory"));
}

TEST_F(UserDirectory, ThatIsAFileIsRefused) {
  std::ofstream(path_ + "/file") << "x";
  EXPECT_THAT(Refusal(path_ + "/file").message, HasSubstr("is no directory"));
}

TEST_F(UserDirectory, ThatIsNotThereIsNotFound) { EXPECT_EQ(Refusal(path_ + "/absent").code, Code::kNotFound); }

TEST(SocketPlaces, OfASocketElsewhereNothingIsAsked) {
  const uint32_t unused_uid = 4'000'000'001;
  EXPECT_TRUE(CheckSocketPlace("/run/tierd/tierd.sock", unused_uid));
  EXPECT_TRUE(CheckSocketPlace("tierd.sock", unused_uid));
  const Status absent = CheckSocketPlace("/tmp/tierd-4000000001/tierd.sock", unused_uid);
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace tier::proto
