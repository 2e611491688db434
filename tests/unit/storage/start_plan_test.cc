// What is told of a start without one: the refusals of the start, word for word, and what it makes of the sizes of
// files. Nothing is locked, made or written.
#include "daemon/storage/start_plan.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/file_system.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"
#include "daemon/storage/space_plan.h"
#include "tests/unit/storage/lost_device_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class StartPlan : public LostDeviceTest {
 protected:
  std::string Index() { return IndexPath(directory_.path()); }
  std::vector<std::string> Notes(const SsdTierOptions& options) {
    const auto notes = PlanStart(options);
    EXPECT_TRUE(notes) << notes.error().message;
    return notes.value_or(std::vector<std::string>());
  }
  // The refusal of both.
  Error Refused(const SsdTierOptions& options) {
    const auto planned = PlanStart(options);
    const auto started = SsdTier::Open(options, *workers_);
    if (planned || started) {
      ADD_FAILURE() << "planned: " << (planned ? "no refusal" : planned.error().message)
                    << "; started: " << (started ? "no refusal" : started.error().message);
      return {};
    }
    EXPECT_EQ(planned.error().code, started.error().code);
    EXPECT_EQ(planned.error().message, started.error().message);
    return planned.error();
  }
};

TEST_F(StartPlan, OfWholeDevicesHasNothingToSay) {
  EXPECT_THAT(Notes(Pair()), IsEmpty()) << "both are made";
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path())) << "nothing is made";
  (void)FirstStart(Persisted::kThere);
  EXPECT_THAT(Notes(Pair()), IsEmpty());
}

TEST_F(StartPlan, ReadsBesideADaemonAndChangesNothing) {
  const auto tier = Open(Pair());
  Persist(tier.get(), "1000/job", 1);
  const std::vector<std::string> files = {Pair().devices[0].path, lost_};
  const auto written = std::filesystem::last_write_time(Index());
  for (const std::string& file : files) std::filesystem::copy_file(file, file + ".before");
  SsdTierOptions larger = Pair();
  for (SsdDeviceOptions& device : larger.devices) device.size = 2 * kSize;
  larger.devices.push_back({.path = directory_.File("new.img"), .size = kSize});
  EXPECT_THAT(Notes(larger), ElementsAre(HasSubstr(files[0] + " grows"), HasSubstr(lost_ + " grows")));
  for (const std::string& file : files) EXPECT_TRUE(testing::RunCommand("cmp " + file + " " + file + ".before"));
  EXPECT_EQ(std::filesystem::last_write_time(Index()), written);
  EXPECT_FALSE(std::filesystem::exists(directory_.File("new.img")));
  Persist(tier.get(), "1000/later", 0);
}

TEST_F(StartPlan, RefusesOneDeviceThatIsNamedTwice) {
  SsdTierOptions options = Pair();
  options.devices[1].path = options.devices[0].path;
  EXPECT_EQ(Refused(options).code, Code::kInvalid) << "nothing is there yet";
  (void)Open(Options());
  const Error twice = Refused(options);
  EXPECT_EQ(twice.code, Code::kInvalid) << "another try finds the same";
  EXPECT_THAT(twice.message, AllOf(HasSubstr(options.devices[0].path + " is named twice"), HasSubstr("ssd.devices")));
  options.devices[1].path = directory_.File("link.img");
  std::filesystem::create_symlink(options.devices[0].path, options.devices[1].path);
  const Error linked = Refused(options);
  EXPECT_EQ(linked.code, Code::kInvalid);
  EXPECT_THAT(linked.message, AllOf(HasSubstr("tier.img and "), HasSubstr("link.img are one device")));
}

TEST_F(StartPlan, RefusesACopyBesideItsOriginal) {
  (void)Open(Options());
  SsdTierOptions options = Pair();
  std::filesystem::copy_file(options.devices[0].path, lost_);
  const Error refused = Refused(options);
  EXPECT_EQ(refused.code, Code::kInvalid);
  EXPECT_THAT(refused.message, HasSubstr("carry the same uuid"));
}

TEST_F(StartPlan, RefusesAnIndexThatIsGoneOrEmptyOrOldWhereDevicesAreBound) {
  (void)FirstStart(Persisted::kThere);
  std::filesystem::rename(Index(), kept_);
  EXPECT_THAT(Refused(Pair()).message, HasSubstr("restore that file")) << "gone";
  std::ofstream(Index()).close();
  const Error empty = Refused(Pair());
  EXPECT_EQ(empty.code, Code::kCorrupt);
  EXPECT_THAT(empty.message, HasSubstr("restore that file"));
  std::filesystem::remove(Index());
  ASSERT_TRUE(testing::RunCommand("cp --sparse=always " + kept_ + " " + Index()));
  Persist(Open(Pair()).get(), "1000/new", 0);
  std::filesystem::remove(Index());
  std::filesystem::rename(kept_, Index());
  EXPECT_THAT(Refused(Pair()).message, HasSubstr("is an old copy"));
}

TEST_F(StartPlan, ALostIndexThatNamedNothingIsNoMistake) {
  (void)Open(Pair());
  std::filesystem::remove(Index());
  EXPECT_THAT(Notes(Pair()), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(Index()));
}

TEST_F(StartPlan, RefusesADeviceThatWasCutShortWhereTierdNeverHadIt) {
  SsdTierOptions options = Pair();
  {
    SsdTierOptions elsewhere = Options();
    elsewhere.devices[0].path = lost_;
    (void)Open(elsewhere);
  }
  std::filesystem::resize_file(lost_, kSize / 2);
  const Error refused = Refused(options);
  EXPECT_EQ(refused.code, Code::kCorrupt);
  EXPECT_THAT(refused.message, HasSubstr("it was cut short"));
}

TEST_F(StartPlan, SaysOfALostDeviceThatTheStartDoesWithoutIt) {
  (void)FirstStart(Persisted::kThere);
  for (const Loss loss : {Loss::kGone, Loss::kForeign, Loss::kWiped, Loss::kSwapped, Loss::kCutShort}) {
    Lose(loss);
    EXPECT_THAT(Notes(Pair()), ElementsAre(AllOf(HasSubstr("ssd.devices: " + lost_), HasSubstr("starts without it"))));
    if (loss != Loss::kGone) {
      EXPECT_TRUE(IsAsFound());
    }
    BringBack();
  }
}

TEST_F(StartPlan, RefusesAMisspelledPath) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  options.devices[1].path = directory_.File("tsol.img");
  EXPECT_THAT(Refused(options).message, HasSubstr("a misspelling?"));
}

TEST_F(StartPlan, SaysWhatThisUserMayNotRead) {
  if (testing::IsRoot()) GTEST_SKIP() << "needs a user whom the kernel refuses something";
  (void)FirstStart(Persisted::kThere);
  std::filesystem::permissions(lost_, std::filesystem::perms::none);
  std::filesystem::permissions(Index(), std::filesystem::perms::none);
  SsdTierOptions options = Pair();
  options.devices.push_back({.path = directory_.File("new.img"), .size = kSize});
  EXPECT_THAT(Notes(options), UnorderedElementsAre(AllOf(HasSubstr("not checked"), HasSubstr(lost_)),
                                                   AllOf(HasSubstr("not checked"), HasSubstr(Index()))));
}

// Files on one disk, of which the plan is told how much it has free.
class PlannedSizes : public StartPlan {
 protected:
  static constexpr uint64_t kLarger = 2 * kSize;
  // Beside what stays free for the index.
  SsdTierOptions With(uint64_t available) {
    SsdTierOptions options = Pair();
    for (SsdDeviceOptions& device : options.devices) device.size = kLarger;
    options.space = [=](const std::string&) -> Result<FileSystemSpace> {
      return FileSystemSpace{.total = 20 * kGiB, .available = available};
    };
    return options;
  }
  static constexpr uint64_t kForIndex = kIndexDiskKept + kManifestMapSizeDefault;
};

TEST_F(PlannedSizes, WhatOneFileTakesTheNextOneHasNot) {
  (void)FirstStart(Persisted::kThere);
  const std::string first = Pair().devices[0].path;
  EXPECT_THAT(Notes(With(kForIndex + 2 * kSize)),
              ElementsAre(HasSubstr(first + " grows from 64 MiB to 128 MiB"), HasSubstr(lost_ + " grows from")));
  EXPECT_THAT(Notes(With(kForIndex + 2 * kSize - kBlockSize)),
              ElementsAre(HasSubstr(first + " grows from 64 MiB to 128 MiB"),
                          AllOf(HasSubstr(lost_ + " keeps its 64 MiB"), HasSubstr("64 MiB more do not fit"))));
}

// All files are made before one grows, whatever their order.
TEST_F(PlannedSizes, WhatANewFileTakesNoFileGrowsBy) {
  (void)FirstStart(Persisted::kNothing);
  SsdTierOptions options = With(kForIndex + kLarger + kSize - kBlockSize);
  options.devices[1].path = directory_.File("new.img");
  const std::string first = options.devices[0].path;
  EXPECT_THAT(Notes(options), ElementsAre(HasSubstr(first + " keeps its 64 MiB")));
  options.space = With(kForIndex + kLarger + kSize).space;
  EXPECT_THAT(Notes(options), ElementsAre(HasSubstr(first + " grows")));
}

TEST_F(PlannedSizes, ANewFileForWhichAnEarlierOneLeavesNoRoomIsRefused) {
  const SsdTierOptions options = With(2 * kLarger - kBlockSize);
  const auto refused = PlanStart(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("an SSD file of 128 MiB does not fit"));
  EXPECT_THAT(Notes(With(2 * kLarger)), IsEmpty());
}

// A start allocates them.
TEST_F(PlannedSizes, HolesOfAFileForWhichThereIsNoRoomAreRefused) {
  (void)FirstStart(Persisted::kThere);
  ASSERT_TRUE(testing::RunCommand("fallocate --punch-hole -o 32M -l 16M " + lost_));
  SsdTierOptions options = With(kForIndex + 16 * kMiB);
  for (auto& device : options.devices) device.size = 0;
  EXPECT_TRUE(PlanStart(options));
  options.space = With(8 * kMiB).space;
  const auto refused = PlanStart(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNoSpace) << refused.error().message;
}

// An interrupted growth has left a file longer than its device is.
TEST_F(PlannedSizes, WhatIsCutOffOneFileTheNextOneMayHave) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = With(kForIndex);
  options.devices[0].size = 0;
  EXPECT_THAT(Notes(options), ElementsAre(HasSubstr(lost_ + " keeps its 64 MiB")));
  ASSERT_TRUE(testing::RunCommand("fallocate -l 128M " + options.devices[0].path));
  EXPECT_THAT(Notes(options), ElementsAre(HasSubstr(lost_ + " grows from 64 MiB to 128 MiB")));
}

TEST(FileSystem, TellsTwoPathsOfOneDevice) {
  const testing::ScratchDirectory directory;
  const auto code = [](const std::vector<std::string>& paths) {
    const Status distinct = CheckDistinct(paths);
    return distinct ? Code::kOk : distinct.error().code;
  };
  const std::string file = directory.File("a");
  const std::string link = directory.File("link");
  const std::string folder = directory.File("folder");
  std::filesystem::create_directory_symlink(directory.path(), folder);
  EXPECT_EQ(code({file, file}), Code::kInvalid) << "absent, and to be made";
  EXPECT_EQ(code({file, folder + "/a"}), Code::kInvalid);
  EXPECT_EQ(code({file, directory.File("b")}), Code::kOk);
  std::ofstream(file).close();
  std::ofstream(directory.File("b")).close();
  std::filesystem::create_symlink(file, link);
  EXPECT_EQ(code({file, directory.File("b")}), Code::kOk);
  EXPECT_EQ(code({file, directory.File("b"), link}), Code::kInvalid);
  EXPECT_EQ(code({folder + "/a", link}), Code::kInvalid);
  std::filesystem::remove(link);
  std::filesystem::create_hard_link(file, link);
  EXPECT_EQ(code({link, file}), Code::kInvalid);
  EXPECT_EQ(code({"/no/such/place", "/no/such/place"}), Code::kOk) << "which does not exist is told otherwise";
}

TEST(FileSystem, FindsWhatIsThereOfAPath) {
  const testing::ScratchDirectory directory;
  EXPECT_EQ(ExistingPartOf(directory.path()), directory.path());
  EXPECT_EQ(ExistingPartOf(directory.File("a/b/c")), directory.path());
  EXPECT_EQ(ExistingPartOf("/nosuch/place"), "/");
}

// The kernel tells file systems apart by number: the plan of one says nothing of another.
TEST(SpacePlan, CountsEachFileSystemByItself) {
  SpacePlan plan(
      [](const std::string&) -> Result<FileSystemSpace> { return FileSystemSpace{.total = kGiB, .available = 100}; });
  plan.Take("/proc", 70);
  EXPECT_EQ(plan.Of("/proc")->available, 30u);
  EXPECT_EQ(plan.Of("/proc/self")->available, 30u);
  EXPECT_EQ(plan.Of("/")->available, 100u);
  plan.Take("/proc", 70);
  EXPECT_EQ(plan.Of("/proc")->available, 0u);
  plan.Take("/proc", -120);
  EXPECT_EQ(plan.Of("/proc")->available, 80u);
}

}  // namespace
}  // namespace tier::storage
