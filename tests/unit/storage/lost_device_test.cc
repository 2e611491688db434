// What a start does when the SSD behind a configured path is lost: gone, foreign, wiped, or another tierd's by now. It
// starts on what is there, says what is missing, writes over nothing, and has everything again when the SSD is back.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/device_file.h"
#include "daemon/storage/extent_list.h"
#include "daemon/storage/index_file.h"
#include "daemon/storage/known_devices.h"
#include "daemon/storage/lmdb_manifest_store.h"
#include "tests/unit/storage/lost_device_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LostDeviceStates : public LostDeviceTest, public ::testing::WithParamInterface<std::tuple<Loss, Persisted>> {};

TEST_P(LostDeviceStates, TheTierStartsOnWhatIsThereAndIsWholeWhenItIsBack) {
  const auto [loss, persisted] = GetParam();
  const std::string uuid = FirstStart(persisted);
  Lose(loss);
  // Nothing is there that could be written over, and nothing that jobs need lay there.
  const bool made = (loss == Loss::kGone || loss == Loss::kWiped) && persisted == Persisted::kNothing;
  for (int start = 0; start < 2; ++start) {
    const auto tier = Open(Pair());
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->device_count(), made ? 2 : 1);
    EXPECT_THAT(ListOf(*tier, "1000/whole"), SizeIs(1));
    Persist(tier.get(), "1000/new", 0);
    const auto missing = tier->missing_devices();
    if (persisted == Persisted::kThere) {
      ASSERT_THAT(missing, SizeIs(1)) << "start " << start;
      EXPECT_EQ(missing[0].uuid, uuid);
      EXPECT_EQ(missing[0].path, lost_);
      EXPECT_THAT(missing[0].reason, HasSubstr(lost_));
      EXPECT_EQ(ListOf(*tier, "1000/lost").at(0).device, missing[0].number);
    } else if (made) {
      EXPECT_THAT(missing, IsEmpty());
      EXPECT_THAT(tier->dropped_devices(), start == 0 ? SizeIs(1) : SizeIs(0));
    } else {
      ASSERT_THAT(missing, SizeIs(1)) << "start " << start;
      EXPECT_EQ(missing[0].uuid, "");
      EXPECT_EQ(missing[0].path, lost_);
    }
    if (!made && loss == Loss::kGone) {
      EXPECT_FALSE(std::filesystem::exists(lost_)) << "what comes back would hide it";
    } else if (!made) {
      EXPECT_TRUE(IsAsFound()) << "not a byte of it is tierd's";
    }
  }
  BringBack();
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
  EXPECT_EQ(tier->device(1).uuid, uuid);
  EXPECT_THAT(ListOf(*tier, "1000/new"), SizeIs(1));
  if (persisted == Persisted::kThere) {
    const auto numbers = tier->manifests()->device_numbers();
    EXPECT_EQ(numbers.DeviceOf(ListOf(*tier, "1000/lost").at(0).device), 1);
  }
}

INSTANTIATE_TEST_SUITE_P(All, LostDeviceStates,
                         ::testing::Combine(::testing::Values(Loss::kGone, Loss::kForeign, Loss::kWiped, Loss::kSwapped,
                                                              Loss::kCutShort),
                                            ::testing::Values(Persisted::kNothing, Persisted::kThere)));

// All but the first MiB is there yet: it is no blank disk.
TEST_F(LostDeviceTest, ALabelThatIsGoneTakesNothingElseWithIt) {
  (void)FirstStart(Persisted::kThere);
  ASSERT_TRUE(testing::RunCommand("dd if=/dev/zero of=" + lost_ + " bs=1M count=1 conv=notrunc status=none"));
  std::filesystem::copy_file(lost_, found_);
  {
    const auto tier = Open(Pair());
    ASSERT_NE(tier, nullptr);
    ASSERT_THAT(tier->missing_devices(), SizeIs(1));
    EXPECT_THAT(tier->missing_devices()[0].reason, HasSubstr("is blank where its label was"));
  }
  EXPECT_TRUE(IsAsFound());
}

// The mount point is there, the file system is not.
TEST_F(LostDeviceTest, NothingIsMadeWhereAFileSystemIsNotMounted) {
  const std::string mount = directory_.File("mount");
  const SsdTierOptions options = PersistedAndUnmounted(mount);
  std::filesystem::create_directory(mount);
  EXPECT_THAT(Open(options)->missing_devices(), SizeIs(1));
  EXPECT_TRUE(std::filesystem::is_empty(mount));
}

TEST_F(LostDeviceTest, AMisspelledPathRefusesTheStartAndLeavesNothing) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  const std::string misspelled = directory_.File("tsol.img");
  options.devices[1].path = misspelled;
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  EXPECT_FALSE(std::filesystem::exists(misspelled));
  options.devices = {{.path = misspelled, .size = kSize}};
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  // The lost one is named yet, and another one beside it: no mistake.
  Lose(Loss::kGone);
  options = Pair();
  options.devices.push_back({.path = misspelled, .size = kSize});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), SizeIs(1));
}

// The whole directory: a file system that is not mounted.
TEST_F(LostDeviceTest, ADirectoryThatIsGoneLosesTheDeviceInIt) {
  const std::string mount = directory_.File("mount");
  const SsdTierOptions options = PersistedAndUnmounted(mount);
  {
    const auto tier = Open(options);
    ASSERT_NE(tier, nullptr);
    ASSERT_THAT(tier->missing_devices(), SizeIs(1));
    EXPECT_EQ(tier->missing_devices()[0].path, mount + "/tier.img");
  }
  std::filesystem::rename(directory_.File("elsewhere"), mount);
  EXPECT_THAT(Open(options)->missing_devices(), IsEmpty());
}

TEST_F(LostDeviceTest, TheOnlyDeviceMayBeLost) {
  SsdTierOptions options = Pair();
  options.devices.erase(options.devices.begin());
  Persist(Open(options).get(), "1000/lost", 0);
  Lose(Loss::kForeign);
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->ssd_mode(), SsdMode::kNone);
  EXPECT_THAT(tier->ssd_mode_reason(), AllOf(HasSubstr(lost_), HasSubstr("left untouched")));
  EXPECT_THAT(tier->missing_devices(), SizeIs(1));
}

TEST_F(LostDeviceTest, APathThatTheIndexNeverKnewIsAMistake) {
  (void)FirstStart(Persisted::kThere);
  SsdTierOptions options = Pair();
  options.devices[1].path = directory_.File("no/such.img");
  EXPECT_EQ(Refusal(options), Code::kInvalid) << "a device that jobs need is not named";
  options.devices.push_back({.path = lost_, .size = kSize});
  EXPECT_EQ(Refusal(options), Code::kNotFound);
  options.devices.pop_back();
  options.devices[1].path = directory_.File("foreign.img");
  ASSERT_TRUE(testing::RunCommand("yes foreign | head -c 64M > " + options.devices[1].path));
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  options.devices[1].path = directory_.File("anothers.img");
  MakeAnothers(options.devices[1].path);
  EXPECT_EQ(Refusal(options), Code::kCorrupt);
  std::filesystem::copy_file(lost_, options.devices[1].path, std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(options.devices[1].path, kSize / 2);
  EXPECT_EQ(Refusal(options), Code::kCorrupt) << "cut short";
}

TEST_F(LostDeviceTest, APathThatWasTakenOutOfTheConfigurationIsUnknownAgain) {
  (void)FirstStart(Persisted::kNothing);
  Lose(Loss::kForeign);
  EXPECT_NE(Open(Pair()), nullptr);
  SsdTierOptions without = Pair();
  without.devices.pop_back();
  EXPECT_THAT(Open(without)->missing_devices(), IsEmpty());
  EXPECT_EQ(Refusal(Pair()), Code::kInvalid);
}

void WriteVersion(const std::string& path, uint32_t version) {
  proto::Superblock superblock = DeviceFile::ReadSuperblock(path).value();
  superblock.version = version;
  SealSuperblock(&superblock);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(CopyOffset(superblock.commit)));
  file.write(reinterpret_cast<const char*>(&superblock), sizeof superblock);
}

TEST_F(LostDeviceTest, ADeviceThatIsThereAndCannotBeUsedRefusesTheStart) {
  (void)FirstStart(Persisted::kThere);
  {
    SsdTierOptions alone = Options();
    alone.devices[0].path = lost_;
    alone.data_dir.clear();
    const auto held = DeviceFile::Open({.path = lost_});
    ASSERT_TRUE(held);
    EXPECT_EQ(Refusal(Pair()), Code::kAlreadyExists);
  }
  const uint32_t version = DeviceFile::ReadSuperblock(lost_)->version;
  WriteVersion(lost_, version + 1);
  EXPECT_EQ(Refusal(Pair()), Code::kVersion);
  std::filesystem::remove(lost_);
  std::filesystem::create_directory(lost_);
  EXPECT_EQ(Refusal(Pair()), Code::kInvalid);
}

// What is left of it is not used, also where the file is given up: only the operator gives up the rest.
TEST_F(LostDeviceTest, ADeviceThatWasCutShortIsLeftAsItIsAfterAPurgeToo) {
  const std::string uuid = FirstStart(Persisted::kThere);
  Lose(Loss::kCutShort);
  Purge(Open(Pair()).get(), uuid);
  for (int start = 0; start < 2; ++start) {
    const auto tier = Open(Pair());
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->device_count(), 1);
    ASSERT_THAT(tier->missing_devices(), SizeIs(1));
    EXPECT_EQ(tier->missing_devices()[0].uuid, "");
    EXPECT_THAT(tier->missing_devices()[0].reason,
                AllOf(HasSubstr("it was cut short"), HasSubstr("tierctl device format --force " + lost_)));
    EXPECT_TRUE(IsAsFound());
  }
  ASSERT_TRUE(FormatDevice(lost_, true));
  const auto tier = Open(Pair());
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->device_count(), 2);
  EXPECT_THAT(tier->missing_devices(), IsEmpty());
}

TEST_F(LostDeviceTest, AFileOfAnotherSizeThatIsAnothersIsLost) {
  (void)FirstStart(Persisted::kThere);
  Lose(Loss::kSwapped);
  SsdTierOptions resized = Pair();
  resized.devices[1].size = 2 * kSize;
  EXPECT_THAT(Open(resized)->missing_devices(), SizeIs(1));
}

TEST_F(LostDeviceTest, AForbiddenDeviceRefusesTheStart) {
  if (testing::IsRoot()) GTEST_SKIP() << "needs a user whom the kernel refuses something";
  (void)FirstStart(Persisted::kThere);
  std::filesystem::permissions(lost_, std::filesystem::perms::none);
  EXPECT_EQ(Refusal(Pair()), Code::kDenied);
}

// The reason for which the device is not known to be lost comes first.
TEST_F(LostDeviceTest, AnIndexThatCannotBeReadIsNamedBeforeTheDevice) {
  (void)FirstStart(Persisted::kThere);
  Lose(Loss::kForeign);
  std::ofstream(directory_.File("index.mdb"), std::ios::trunc) << std::string(8192, 'x');
  const auto refused = SsdTier::Open(Pair(), *workers_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("index.mdb"), HasSubstr("do without a device: " + lost_)));
  EXPECT_LT(refused.error().message.find("index.mdb"), refused.error().message.find(lost_));
}

class BadIndex : public LostDeviceTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(BadIndex, LetsNothingBeMadeInThePlaceOfADevice) {
  (void)FirstStart(Persisted::kThere);
  Lose(GetParam());
  std::ofstream(directory_.File("index.mdb"), std::ios::trunc) << std::string(8192, 'x');
  const bool there = std::filesystem::exists(lost_);
  const auto refused = SsdTier::Open(Pair(), *workers_);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("index.mdb"));
  EXPECT_EQ(std::filesystem::exists(lost_), there);
  EXPECT_FALSE(DeviceFile::ReadSuperblock(lost_)) << "it was formatted";
}

INSTANTIATE_TEST_SUITE_P(Lost, BadIndex, ::testing::Values(Loss::kGone, Loss::kWiped));

TEST_F(LostDeviceTest, AnIndexInUseIsWaitedForAsADeviceInUse) {
  (void)FirstStart(Persisted::kThere);
  Lose(Loss::kForeign);
  const auto held = IndexFile::Open({.path = directory_.File("index.mdb"), .map_size = kManifestMapSizeDefault});
  ASSERT_TRUE(held);
  EXPECT_EQ(Refusal(Pair()), Code::kAlreadyExists);
}

TEST_F(LostDeviceTest, TheIndexIsOpenedWhenAQuestionAsksForItAndNotBefore) {
  (void)FirstStart(Persisted::kThere);
  const std::string index = directory_.File("index.mdb");
  KnownDevices known(index);
  {
    EXPECT_TRUE(IndexFile::Open({.path = index, .map_size = kManifestMapSizeDefault}));
  }
  proto::Superblock unbound = DeviceFile::ReadSuperblock(lost_).value();
  std::ranges::fill(unbound.index_uuid, uint8_t{0});
  EXPECT_FALSE(known.IsOfAnother(lost_, unbound)) << "a device of no index";
  {
    EXPECT_TRUE(IndexFile::Open({.path = index, .map_size = kManifestMapSizeDefault}));
  }
  EXPECT_TRUE(known.IsNeeded(lost_));
  EXPECT_FALSE(IndexFile::Open({.path = index, .map_size = kManifestMapSizeDefault})) << "it is open now";
  EXPECT_FALSE(known.failure());
}

// A fault while it was read, for example: its jobs would be lost to a start that went on without it.
TEST_F(LostDeviceTest, ADamagedLabelThatIsWholeNowIsNotLost) {
  (void)FirstStart(Persisted::kThere);
  KnownDevices known(directory_.File("index.mdb"));
  const Error damaged{Code::kCorrupt, "its label is damaged"};
  EXPECT_FALSE(known.IsLost(lost_, damaged));
  std::filesystem::resize_file(lost_, kSize / 4 * 3);
  EXPECT_TRUE(known.IsLost(lost_, damaged)) << "it was cut short";
}

// A number is below 63: each device that jobs need keeps one.
TEST_F(LostDeviceTest, ADeviceForWhichTheIndexHasNoNumberIsDoneWithout) {
  constexpr size_t kNeeded = kIndexDevicesMax;
  {
    ManifestStoreOptions options{.path = directory_.File("index.mdb")};
    for (size_t i = 0; i < kNeeded; ++i) {
      ManifestDevice& device = options.devices.emplace_back();
      device.path = "/dev/lost" + std::to_string(i);
      device.uuid[0] = static_cast<uint8_t>(i + 1);
    }
    options.flush_devices = [] { return Status(); };
    options.on_commit = [](const Uuid&, uint64_t) { return Status(); };
    const auto store = LmdbManifestStore::Open(std::move(options));
    ASSERT_TRUE(store) << store.error().message;
    ExtentListWriter list(kNeeded, (*store)->device_numbers());
    for (uint16_t i = 0; i < kNeeded; ++i) list.Add({.run = {.block = 1, .page = 0, .pages = 1}, .device = i});
    (*store)->StartPut(1, "1000/lost", std::vector<std::byte>(16), std::move(list).Take());
  }
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  for (int start = 0; start < 2; ++start) {
    const auto tier = Open(options);
    ASSERT_NE(tier, nullptr);
    EXPECT_EQ(tier->device_count(), 0);
    const auto missing = tier->missing_devices();
    ASSERT_THAT(missing, SizeIs(kNeeded + 1));
    EXPECT_THAT(missing.back().reason, AllOf(HasSubstr("the most that it can"), HasSubstr("tierctl device purge")));
    EXPECT_FALSE(std::filesystem::exists(options.devices[0].path)) << "nothing is made that cannot be used";
  }
}

}  // namespace
}  // namespace tier::storage
