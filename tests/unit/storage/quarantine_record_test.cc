// Quarantined places in the index: they outlive the store, and a damaged record costs a warning and no start.
#include "daemon/storage/quarantine_record.h"

#include <gmock/gmock.h>

#include "tests/unit/storage/manifest_store_fixture.h"

namespace tier::storage {
namespace {

using base::PageRun;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<PageRun> kPlaces = {{3, 0, 512}, {9, 511, 1}, {UINT32_MAX, 7, 20}};

TEST(QuarantineRecord, WhatWasEncodedIsDecoded) {
  for (const auto& places : {kPlaces, std::vector<PageRun>()}) {
    const auto decoded = DecodeQuarantine(EncodeQuarantine(places));
    ASSERT_TRUE(decoded) << decoded.error().message;
    EXPECT_EQ(*decoded, places);
  }
}

TEST(QuarantineRecord, EveryDamagedByteIsFound) {
  const std::vector<std::byte> whole = EncodeQuarantine(kPlaces);
  for (size_t i = 0; i < whole.size(); ++i) {
    std::vector<std::byte> bytes = whole;
    bytes[i] ^= std::byte{0x20};
    EXPECT_FALSE(DecodeQuarantine(bytes)) << "byte " << i;
    EXPECT_FALSE(DecodeQuarantine(std::span(whole).first(i))) << i << " bytes";
  }
}

TEST(QuarantineRecord, PlacesThatCannotBeAreRefused) {
  EXPECT_FALSE(DecodeQuarantine(EncodeQuarantine(std::vector<PageRun>{{1, 500, 13}})));
  EXPECT_FALSE(DecodeQuarantine(EncodeQuarantine(std::vector<PageRun>{{1, 500, 0}})));
}

TEST(QuarantineRecord, HasNoMoreThanSoManyPlaces) {
  const std::vector<PageRun> many(kQuarantinedPlacesMax + 1, PageRun{1, 2, 3});
  EXPECT_EQ(DecodeQuarantine(EncodeQuarantine(many))->size(), kQuarantinedPlacesMax);
}

using QuarantineStoreTest = ManifestStoreTest;

TEST_F(QuarantineStoreTest, PlacesOutliveTheStoreUntilThereAreNone) {
  {
    const auto store = Open();
    EXPECT_THAT(store->Quarantined(0), IsEmpty());
    store->StartQuarantine(0, {{1, 1, 1}});
    store->StartQuarantine(0, kPlaces);
  }
  {
    const auto store = Open();
    EXPECT_EQ(store->Quarantined(0), kPlaces);
    EXPECT_EQ(store->quarantine_failure(), "");
    store->StartQuarantine(0, {});
  }
  EXPECT_THAT(Open()->Quarantined(0), IsEmpty());
}

TEST_F(QuarantineStoreTest, AreOfTheDeviceAndNotOfItsPlaceInTheList) {
  const ManifestDevice other{.path = "/dev/other", .uuid = DrawUuid()};
  Open()->StartQuarantine(0, kPlaces);
  ManifestStoreOptions options = Options();
  options.devices = {other, device_};
  options.on_commit = {};
  {
    const auto store = LmdbManifestStore::Open(options);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_THAT((*store)->Quarantined(0), IsEmpty());
    EXPECT_EQ((*store)->Quarantined(1), kPlaces);
  }
  options.devices = {other};
  ASSERT_TRUE(LmdbManifestStore::Open(options));
  options.devices = {other, device_};
  EXPECT_EQ((*LmdbManifestStore::Open(options))->Quarantined(1), kPlaces) << "it was taken out and came back";
}

TEST_F(QuarantineStoreTest, ADamagedRecordIsToldAndTheStartGoesOn) {
  Open()->StartQuarantine(0, kPlaces);
  {
    auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    ASSERT_TRUE(index) << index.error().message;
    std::vector<std::byte> record = EncodeQuarantine(kPlaces);
    record.back() ^= std::byte{1};
    const std::string key = FormatUuid(device_.uuid);
    const IndexChange change{.table = IndexTable::kQuarantine, .key = key, .value = record};
    ASSERT_TRUE((*index)->Write({&change, 1}).status);
  }
  const auto store = Open();
  EXPECT_THAT(store->Quarantined(0), IsEmpty());
  EXPECT_THAT(store->unread_quarantines(), ElementsAre(AllOf(HasSubstr("/dev/first"), HasSubstr("checksum"))));
}

TEST_F(QuarantineStoreTest, RecordsOfDevicesThatWereTakenOutAreNotKeptWithoutEnd) {
  Open()->StartQuarantine(0, kPlaces);
  {
    auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    ASSERT_TRUE(index) << index.error().message;
    for (size_t i = 0; i < kQuarantineRecordsMax; ++i) {
      const std::string key = FormatUuid(DrawUuid());
      const IndexChange change{.table = IndexTable::kQuarantine, .key = key, .value = {}};
      ASSERT_TRUE((*index)->Write({&change, 1}).status);
    }
  }
  EXPECT_EQ(Open()->Quarantined(0), kPlaces);
  auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_THAT(*(*index)->Keys(IndexTable::kQuarantine), ElementsAre(FormatUuid(device_.uuid)));
}

}  // namespace
}  // namespace tier::storage
