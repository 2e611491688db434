#include "tools/tierctl/device_verbs.h"

#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/session/temporary_directory.h"
#include "tools/tierctl/connection.h"

namespace tier::tierctl {
namespace {

TEST(DeviceVerbs, EndWithTheSameStatusForTheSameRefusal) {
  const session::testing::TemporaryDirectory folder;
  const std::string foreign = folder.path() + "/foreign";
  std::ofstream(foreign) << std::string(64 << 10, 'x');
  const DaemonOptions nobody{.socket = folder.path() + "/none"};
  EXPECT_EQ(ShowDevice(foreign, nobody), kExitRefused);
  EXPECT_EQ(FormatDevice(foreign, false, {}), kExitRefused);
  EXPECT_EQ(ShowDevice(folder.path() + "/absent", nobody), kExitNotFound);
  EXPECT_EQ(FormatDevice(folder.path() + "/absent", false, {}), kExitNotFound);
}

TEST(DeviceVerbs, ShareTheTableOfAllVerbs) {
  EXPECT_EQ(ExitCodeOf(Code::kOk), kExitOk);
  EXPECT_EQ(ExitCodeOf(Code::kInvalid), kExitUsage);
  EXPECT_EQ(ExitCodeOf(Code::kNotFound), kExitNotFound);
  EXPECT_EQ(ExitCodeOf(Code::kDisconnected), kExitUnreachable);
  for (const Code code : {Code::kDenied, Code::kAlreadyExists, Code::kNoMemory, Code::kNoSpace})
    EXPECT_EQ(ExitCodeOf(code), kExitRefused);
  for (const Code code : {Code::kIoError, Code::kTimeout, Code::kTorn}) EXPECT_EQ(ExitCodeOf(code), kExitFailure);
}

}  // namespace
}  // namespace tier::tierctl
