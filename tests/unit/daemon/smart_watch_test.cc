// What the daemon keeps of the file that tierd-smart writes.
#include "daemon/smart_watch.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/storage/scratch.h"

namespace tier {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

class SmartWatchTest : public ::testing::Test {
 protected:
  void Write(int64_t time, uint8_t used, const std::string& path = "/dev/nvme0n1") {
    const storage::SmartReport report{.time = time,
                                      .devices = {{.path = path,
                                                   .name = "nvme0n1",
                                                   .serial = "S1",
                                                   .time = time,
                                                   .figures = {.available_spare = 90, .percentage_used = used}}}};
    ASSERT_TRUE(storage::WriteSmartFile(path_, report));
  }
  // As many ticks as there are from one look to the next; what the last one said.
  std::optional<std::string> Look() {
    const auto said = watch_.Tick();
    for (int i = 1; i < kSmartReadTicks; ++i) EXPECT_EQ(watch_.Tick(), std::nullopt) << "it looks once";
    return said;
  }

  const storage::testing::ScratchDirectory directory_;
  const std::string path_ = directory_.File("devices");
  SmartWatch watch_{path_};
};

TEST_F(SmartWatchTest, KnowsWhatWasWrittenLast) {
  EXPECT_EQ(Look(), std::nullopt) << "without tierd-smart there is no file";
  EXPECT_FALSE(watch_.Of("/dev/nvme0n1", 1000));
  Write(1000, 3);
  EXPECT_EQ(Look(), std::nullopt);
  auto smart = watch_.Of("/dev/nvme0n1", 1010);
  ASSERT_TRUE(smart);
  EXPECT_EQ(smart->figures.percentage_used, 3);
  EXPECT_EQ(smart->read_time, 1000);
  EXPECT_FALSE(smart->stale);
  EXPECT_FALSE(watch_.Of("/dev/nvme1n1", 1010));
  Write(1600, 4);
  (void)Look();
  EXPECT_EQ(watch_.Of("/dev/nvme0n1", 1700)->figures.percentage_used, 4);
}

TEST_F(SmartWatchTest, MarksFiguresThatAreOld) {
  Write(1000, 3);
  (void)Look();
  EXPECT_TRUE(watch_.Of("/dev/nvme0n1", 1001 + storage::kSmartStaleSeconds)->stale);
}

// Each device has the time at which it answered, not that of the file.
TEST_F(SmartWatchTest, OfADeviceThatDoesNotAnswerTheLastFiguresStayAndBecomeStale) {
  constexpr int64_t kLater = 1001 + storage::kSmartStaleSeconds;
  const storage::SmartFigures warns{.warnings = 1, .available_spare = 2, .spare_threshold = 10};
  const storage::SmartFigures well{.available_spare = 90};
  ASSERT_TRUE(storage::WriteSmartFile(
      path_, {.time = kLater,
              .devices = {{.path = "/dev/nvme0n1", .name = "nvme0n1", .serial = "S1", .time = 1000, .figures = warns},
                          {.path = "/dev/nvme1n1", .name = "nvme1n1", .serial = "S2", .time = kLater, .figures = well},
                          {.path = "/dev/md0", .name = "nvme0n1", .serial = "S1", .time = 1000, .figures = warns},
                          {.path = "/dev/md0", .name = "nvme1n1", .serial = "S2", .time = kLater, .figures = well}}}));
  (void)Look();
  for (const char* path : {"/dev/nvme0n1", "/dev/md0"}) {
    const auto silent = watch_.Of(path, kLater);
    ASSERT_TRUE(silent) << path;
    EXPECT_TRUE(silent->figures.warns(storage::SmartWarning::kSpare));
    EXPECT_TRUE(silent->stale);
    EXPECT_EQ(silent->read_time, 1000);
  }
  EXPECT_FALSE(watch_.Of("/dev/nvme1n1", kLater)->stale);
}

// Else the warning of a device that was taken out or replaced would stay until the daemon ends.
TEST_F(SmartWatchTest, OfADeviceThatIsLeftOutNothingIsKnown) {
  Write(1000, 3);
  (void)Look();
  Write(1600, 5, "/dev/nvme1n1");
  (void)Look();
  EXPECT_FALSE(watch_.Of("/dev/nvme0n1", 1601));
  EXPECT_TRUE(watch_.Of("/dev/nvme1n1", 1601));
}

TEST_F(SmartWatchTest, TellsOnceOfAFileThatItCannotUse) {
  Write(1000, 3);
  (void)Look();
  std::ofstream(path_) << "nonsense\n";
  EXPECT_THAT(Look(), Optional(HasSubstr(path_ + ": line 1")));
  EXPECT_EQ(Look(), std::nullopt) << "the same again";
  EXPECT_TRUE(watch_.Of("/dev/nvme0n1", 1010)) << "what was read before stays";
  std::ofstream(path_) << "tierd-smart 7\n";
  EXPECT_THAT(Look(), Optional(HasSubstr("version 7")));
  std::filesystem::remove(path_);
  EXPECT_EQ(Look(), std::nullopt);
}

TEST_F(SmartWatchTest, AnotherFileIsReadAtOnceAndInThePlaceOfTheFirst) {
  Write(1000, 3);
  (void)Look();
  const std::string other = directory_.File("other");
  std::ofstream(other) << "nonsense\n";
  watch_.SetPath(other);
  EXPECT_FALSE(watch_.Of("/dev/nvme0n1", 1010)) << "the first file is not believed any more";
  EXPECT_THAT(watch_.Tick(), Optional(HasSubstr(other))) << "the next tick looks";
  std::filesystem::copy_file(path_, other, std::filesystem::copy_options::overwrite_existing);
  watch_.SetPath(other);
  EXPECT_EQ(watch_.Tick(), std::nullopt) << "the same path: it is not time yet";
  EXPECT_FALSE(watch_.Of("/dev/nvme0n1", 1010));
  watch_.SetPath("");
  EXPECT_EQ(Look(), std::nullopt);
  watch_.SetPath(other);
  EXPECT_EQ(watch_.Tick(), std::nullopt);
  EXPECT_TRUE(watch_.Of("/dev/nvme0n1", 1010));
}

TEST(SmartWatch, WithoutAPathLooksForNothing) {
  SmartWatch watch("");
  EXPECT_EQ(watch.Tick(), std::nullopt);
  EXPECT_FALSE(watch.Of("/dev/nvme0n1", 1));
}

}  // namespace
}  // namespace tier
