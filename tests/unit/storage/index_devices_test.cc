// Which devices an index knows: they are told by uuid, in whatever order, and one that holds nothing can be taken out.
#include "daemon/storage/index_devices.h"

#include <algorithm>
#include <cstring>

#include <gmock/gmock.h>

#include "daemon/storage/extent_list.h"
#include "tests/unit/storage/several_devices_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using IndexDevicesTest = SeveralDevicesTest;

TEST_F(IndexDevicesTest, KeepTheirNumbersInAnyOrder) {
  EXPECT_THAT(NumbersOf(*OpenWith({&a_, &b_}), 2), ElementsAre(0, 1));
  EXPECT_THAT(NumbersOf(*OpenWith({&b_, &a_}), 2), ElementsAre(1, 0));
  const auto store = OpenWith({&c_, &b_, &a_});
  EXPECT_THAT(NumbersOf(*store, 3), ElementsAre(2, 1, 0));
  EXPECT_EQ(store->device_numbers().DeviceOf(2), 0);
  for (const uint16_t no : std::array<uint16_t, 4>{3, 63, 64, UINT16_MAX}) {
    EXPECT_EQ(store->device_numbers().DeviceOf(no), DeviceNumbers::kNone);
  }
  EXPECT_EQ(DeviceNumbers().DeviceOf(DeviceNumbers::kStoredMax), DeviceNumbers::kNone);
  EXPECT_THAT(store->dropped_devices(), IsEmpty());
}

TEST_F(IndexDevicesTest, ADeviceThatIsMissingAndNamedKeepsItsNumberUntilItIsBack) {
  Put(OpenWith({&a_, &b_}).get(), "1000/train", {0, 1});
  {
    const auto store = OpenWith({&c_, &b_});
    EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(2, 1)) << "no other device may have the number 0";
    ASSERT_THAT(store->missing_devices(), SizeIs(1));
    const MissingDevice& missing = store->missing_devices().front();
    EXPECT_EQ(missing.uuid, FormatUuid(a_.uuid));
    EXPECT_EQ(missing.path, "/dev/a");
    EXPECT_EQ(missing.number, 0);
    EXPECT_THAT(missing.reason, HasSubstr("not in ssd.devices"));
    EXPECT_THAT(MissingText(missing), AllOf(HasSubstr(FormatUuid(a_.uuid) + " (last at /dev/a)"),
                                            HasSubstr("tierctl device purge " + FormatUuid(a_.uuid))));
    EXPECT_THAT(store->dropped_devices(), IsEmpty());
  }
  EXPECT_THAT(MissingUuids(*OpenWith({&c_})), ElementsAre(FormatUuid(a_.uuid), FormatUuid(b_.uuid)));
  const auto store = OpenWith({&b_, &a_});
  EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(1, 0));
  EXPECT_THAT(store->missing_devices(), IsEmpty());
  EXPECT_THAT(DecodeExtentList(*store->LoadExtents("1000/train")).value(), SizeIs(2));
}

TEST_F(IndexDevicesTest, SaysWhyADeviceIsMissing) {
  Put(OpenWith({&a_, &b_}).get(), "1000/train", {1});
  ManifestDevice formatted = NewDevice("/dev/b");
  EXPECT_THAT(OpenWith({&a_, &formatted})->missing_devices().front().reason,
              HasSubstr("/dev/b is another device now, " + FormatUuid(formatted.uuid)));
  const auto store = OpenWith({&a_}, {{.path = "/dev/b", .reason = "it is foreign"}});
  ASSERT_THAT(store->missing_devices(), SizeIs(1));
  EXPECT_EQ(store->missing_devices().front().reason, "it is foreign");
}

TEST_F(IndexDevicesTest, AnAbsentPathIsKnownUntilAStartDoesNotNameIt) {
  const auto known = [this] {
    const auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    return IndexDevices::Read(**index)->KnownPaths(**index).value();
  };
  (void)OpenWith({&a_, &b_});
  EXPECT_THAT(known(), ElementsAre("/dev/a", "/dev/b"));
  for (int start = 0; start < 2; ++start) {
    const auto store = OpenWith({&a_}, {{.path = "/dev/b", .reason = "it is gone"}});
    ASSERT_THAT(store->missing_devices(), SizeIs(1));
    EXPECT_EQ(store->missing_devices().front().uuid, "");
    EXPECT_THAT(MissingText(store->missing_devices().front()),
                AllOf(HasSubstr("/dev/b is missing, and nothing persisted lies on it"), HasSubstr("it is gone")));
  }
  EXPECT_THAT(known(), ElementsAre("/dev/a", "/dev/b"));
  (void)OpenWith({&a_});
  EXPECT_THAT(known(), ElementsAre("/dev/a"));
}

// Each keeps a number; a number is below 64, and the last one is that of the zero uuid behind the table.
TEST_F(IndexDevicesTest, AStartIsRefusedWhenMissingDevicesLeaveNoNumber) {
  std::vector<ManifestDevice> lost(DeviceNumbers::kStoredMax - 2);
  std::vector<ManifestDevice*> devices;
  for (ManifestDevice& device : lost) devices.push_back(&(device = NewDevice("/dev/lost")));
  {
    const auto store = OpenWith(devices);
    ExtentListWriter list(lost.size(), store->device_numbers());
    for (uint16_t i = 0; i < lost.size(); ++i) list.Add({.run = {.block = 1, .page = 0, .pages = 1}, .device = i});
    store->StartPut(1, "1000/train", Manifest("x"), std::move(list).Take());
    EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  }
  EXPECT_THAT(OpenWith({&a_})->missing_devices(), SizeIs(lost.size()));
  EXPECT_THAT(NumbersOf(*OpenWith({&b_}), 1), ElementsAre(62)) << "nothing lies on the first one: its number is free";
  const auto both = TryOpen({&a_, &c_});
  ASSERT_FALSE(both);
  EXPECT_EQ(both.error().code, Code::kInvalid);
  EXPECT_THAT(both.error().message, HasSubstr("tierctl device purge"));
}

TEST_F(IndexDevicesTest, ADeviceThatNothingNamesIsDropped) {
  {
    const auto store = OpenWith({&a_, &b_, &c_});
    Put(store.get(), "1000/train", {0, 2});
    Put(store.get(), "1000/other", {1});
    Erase(store.get(), "1000/other");
  }
  {
    const auto store = OpenWith({&a_, &c_});
    EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(0, 2)) << "what is stored names them so";
    EXPECT_THAT(store->dropped_devices(), ElementsAre(HasSubstr("/dev/b")));
    EXPECT_EQ(store->device_numbers().DeviceOf(1), DeviceNumbers::kNone);
    EXPECT_EQ(*store->Load("1000/train"), Manifest("of 1000/train"));
  }
  EXPECT_THAT(OpenWith({&a_, &c_})->dropped_devices(), IsEmpty());
}

TEST_F(IndexDevicesTest, AFreeNumberGoesToTheNextNewDevice) {
  Put(OpenWith({&a_, &b_, &c_}).get(), "1000/train", {0, 2});
  ManifestDevice d = NewDevice("/dev/d");
  EXPECT_THAT(NumbersOf(*OpenWith({&d, &a_, &c_}), 3), ElementsAre(1, 0, 2));
  EXPECT_THAT(NumbersOf(*OpenWith({&d, &a_, &c_, &b_}), 4), ElementsAre(1, 0, 2, 3));
}

TEST_F(IndexDevicesTest, ADeviceThatWasTakenOutComesBackEmpty) {
  {
    const auto store = OpenWith({&a_, &b_});
    Put(store.get(), "1000/train", {0});
  }
  {
    const auto store = OpenWith({&a_});
    Put(store.get(), "1000/other", {0});
  }
  ASSERT_NE(b_.index_uuid, Uuid{}) << "its superblock was not touched since";
  ASSERT_LT(b_.index_commit, a_.index_commit);
  EXPECT_THAT(NumbersOf(*OpenWith({&b_, &a_}), 2), ElementsAre(1, 0));
  EXPECT_EQ(a_.index_commit, b_.index_commit);
}

TEST_F(IndexDevicesTest, OneThatWasFormattedMeanwhileIsNewAndItsOldSelfIsDropped) {
  Put(OpenWith({&a_, &b_}).get(), "1000/train", {0});
  ManifestDevice formatted = NewDevice("/dev/b");
  const auto store = OpenWith({&a_, &formatted});
  EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(0, 1));
  EXPECT_THAT(store->dropped_devices(), ElementsAre(HasSubstr(FormatUuid(b_.uuid))));
}

// Its manifest may name any page of any device.
TEST_F(IndexDevicesTest, NoneIsDroppedWhereAListCannotBeRead) {
  {
    const auto store = OpenWith({&a_, &b_, &c_});
    store->StartPut(1, "1000/train", Manifest("x"), Manifest("no list"));
    EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  }
  {
    const auto store = OpenWith({&c_});
    EXPECT_THAT(MissingUuids(*store), ElementsAre(FormatUuid(a_.uuid), FormatUuid(b_.uuid)));
    EXPECT_THAT(NumbersOf(*store, 1), ElementsAre(2));
    Erase(store.get(), "1000/train");
  }
  EXPECT_THAT(OpenWith({&c_})->dropped_devices(), SizeIs(2));
}

// It was killed after the index was written and before the superblocks were.
TEST_F(IndexDevicesTest, AStartThatEndsBeforeItsSuperblocksAreWrittenIsRepeated) {
  Put(OpenWith({&a_, &b_}).get(), "1000/train", {0});
  const ManifestDevice a_before = a_;
  ManifestDevice d = NewDevice("/dev/d");
  const ManifestDevice d_before = d;
  (void)OpenWith({&d, &a_});
  a_ = a_before;
  d = d_before;
  const auto store = OpenWith({&d, &a_});
  EXPECT_THAT(NumbersOf(*store, 2), ElementsAre(1, 0));
  EXPECT_THAT(store->dropped_devices(), IsEmpty());
}

// The rule by which an earlier tierd accepted an index; it then numbered devices as they were configured.
bool EarlierAccepts(std::span<const Uuid> stored, const std::vector<ManifestDevice*>& devices) {
  return std::ranges::all_of(stored, [&](const Uuid& uuid) {
    return std::ranges::any_of(devices, [&](const ManifestDevice* device) { return device->uuid == uuid; });
  });
}

TEST_F(IndexDevicesTest, AnEarlierTierdRefusesATableWhoseNumbersItWouldChange) {
  const auto expect = [this](const std::vector<ManifestDevice*>& devices, bool refused) {
    (void)OpenWith(devices);
    const std::vector<Uuid> stored = StoredUuids();
    EXPECT_EQ(stored.back() == Uuid{}, refused) << stored.size() << " uuids";
    EXPECT_EQ(EarlierAccepts(stored, devices), !refused);
  };
  expect({&a_, &b_}, false);
  expect({&b_, &a_}, true);
  expect({&b_, &a_}, true);
  EXPECT_EQ(StoredUuids().size(), 3u) << "one zero, however often it is written";
  expect({&a_, &b_}, false);
  expect({&a_, &b_, &c_}, false);
  Put(OpenWith({&a_, &b_, &c_}).get(), "1000/train", {0, 2});
  expect({&a_, &c_}, true);
  expect({&a_, &b_, &c_}, false);
  expect({&c_, &a_, &b_}, true);
}

TEST_F(IndexDevicesTest, AZeroBehindTheTableIsNoDevice) {
  (void)OpenWith({&a_, &b_});
  (void)OpenWith({&b_, &a_});
  EXPECT_THAT(NumbersOf(*OpenWith({&c_, &b_, &a_}), 3), ElementsAre(2, 1, 0));
  std::vector<Uuid> most(DeviceNumbers::kStoredMax);
  for (Uuid& uuid : most) uuid = DrawUuid();
  WriteUuids(most);
  EXPECT_EQ(TryOpen({&a_}).error().code, Code::kCorrupt) << "no room for the zero one";
  most.back() = {};
  WriteUuids(most);
  EXPECT_THAT(OpenWith({&a_, &b_})->dropped_devices(), SizeIs(most.size() - 1));
}

// An earlier tierd wrote no paths, and no free numbers.
TEST_F(IndexDevicesTest, ReadsTheTableOfAnEarlierTierd) {
  Put(OpenWith({&a_, &b_}).get(), "1000/train", {0, 1});
  {
    auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    ASSERT_TRUE(index) << index.error().message;
    const IndexChange no_paths{.table = IndexTable::kBinding, .key = "device_paths", .erase = true};
    ASSERT_TRUE((*index)->Write({&no_paths, 1}).status);
  }
  EXPECT_THAT(MissingText(OpenWith({&a_})->missing_devices().front()),
              HasSubstr("device " + FormatUuid(b_.uuid) + " is missing"));
  EXPECT_THAT(NumbersOf(*OpenWith({&b_, &a_}), 2), ElementsAre(1, 0));
}

TEST_F(IndexDevicesTest, ADamagedTableIsCorrupt) {
  (void)OpenWith({&a_, &b_});
  {
    auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    ASSERT_TRUE(index) << index.error().message;
    const std::vector<std::byte> odd(17);
    const IndexChange change{.table = IndexTable::kBinding, .key = "devices", .value = odd};
    ASSERT_TRUE((*index)->Write({&change, 1}).status);
  }
  const auto refused = TryOpen({&a_, &b_});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
}

}  // namespace
}  // namespace tier::storage
