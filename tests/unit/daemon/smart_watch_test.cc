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
    const storage::SmartReport report{
        .time = time,
        .devices = {{.path = path, .time = time, .figures = {.available_spare = 90, .percentage_used = used}}}};
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
  ASSERT_TRUE(storage::WriteSmartFile(
      path_, {.time = kLater,
              .devices = {{.path = "/dev/nvme0n1", .time = 1000, .figures = warns},
                          {.path = "/dev/nvme1n1", .time = kLater, .figures = {.available_spare = 90}}}}));
  (void)Look();
  const auto silent = watch_.Of("/dev/nvme0n1", kLater);
  ASSERT_TRUE(silent);
  EXPECT_TRUE(silent->figures.warns(storage::SmartWarning::kSpare));
  EXPECT_TRUE(silent->stale);
  EXPECT_EQ(silent->read_time, 1000);
  EXPECT_FALSE(watch_.Of("/dev/nvme1n1", kLater)->stale);
}

// As of a tierd-smart that could not read what it wrote before.
TEST_F(SmartWatchTest, OfADeviceThatIsLeftOutTheLastFiguresStay) {
  Write(1000, 3);
  (void)Look();
  Write(1600, 5, "/dev/nvme1n1");
  (void)Look();
  const auto left_out = watch_.Of("/dev/nvme0n1", 1601);
  ASSERT_TRUE(left_out);
  EXPECT_EQ(left_out->figures.percentage_used, 3);
  EXPECT_EQ(left_out->read_time, 1000);
  EXPECT_TRUE(watch_.Of("/dev/nvme1n1", 1601));
  for (int i = 0; i < 100; ++i) {
    Write(2000 + i, 5, "/dev/" + std::to_string(i));
    (void)Look();
  }
  EXPECT_FALSE(watch_.Of("/dev/nvme1n1", 2100)) << "of as many as a file may name";
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

TEST(SmartWatch, WithoutAPathLooksForNothing) {
  SmartWatch watch("");
  EXPECT_EQ(watch.Tick(), std::nullopt);
  EXPECT_FALSE(watch.Of("/dev/nvme0n1", 1));
}

}  // namespace
}  // namespace tier
