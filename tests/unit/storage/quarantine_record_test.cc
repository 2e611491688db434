// Quarantined places in the index: they outlive the store, and a damaged record costs a warning and no start.
#include "daemon/storage/quarantine_record.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include <gmock/gmock.h>
#include <unistd.h>

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

// What a disk may give back in place of the page with the keys.
struct Damage {
  const char* name;
  void (*apply)(std::span<char> page);
};
constexpr Damage kDamages[] = {
    {"zeros, which LMDB refuses", [](std::span<char> page) { std::ranges::fill(page, '\0'); }},
    {"a branch of nothing, for which it would abort",
     [](std::span<char> page) {
       constexpr std::array<uint16_t, 3> kFlagsLowerUpper = {1, 16, 4096};
       std::memcpy(page.data() + 10, kFlagsLowerUpper.data(), sizeof(kFlagsLowerUpper));
     }},
};

class DamagedQuarantineTest : public QuarantineStoreTest {
 protected:
  // Of the index, which is closed: calls `apply` with the whole file and with each place of the key in it.
  template <typename Apply>
  void DamageAt(const std::string& key, Apply apply) {
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    std::string whole((std::istreambuf_iterator<char>(file)), {});
    std::vector<size_t> places;
    for (size_t at = whole.find(key); at != std::string::npos; at = whole.find(key, at + 1)) places.push_back(at);
    EXPECT_FALSE(places.empty());
    for (const size_t at : places) apply(std::span(whole), at);
    file.clear();
    file.seekp(0) << whole;
  }
  // As many as are kept at most, of devices that are not there. `big` is the key of one with such a value.
  void RecordMany(const std::string& big, size_t big_size) {
    auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
    ASSERT_TRUE(index) << index.error().message;
    const std::vector<std::byte> value(big_size);
    for (size_t i = 0; i < kQuarantineRecordsMax; ++i) {
      const std::string key = i == 0 ? big : FormatUuid(DrawUuid());
      const IndexChange change{
          .table = IndexTable::kQuarantine, .key = key, .value = std::span(value).first(i == 0 ? big_size : 0)};
      ASSERT_TRUE((*index)->Write({&change, 1}).status);
    }
  }
};

TEST_F(DamagedQuarantineTest, ATableThatCannotBeReadIsToldAndTheStartGoesOn) {
  for (const Damage& damage : kDamages) {
    SCOPED_TRACE(damage.name);
    {
      const auto store = Open();
      store->StartPut(1, "1000/train", Manifest("first"), Manifest("its list"));
      store->StartQuarantine(0, kPlaces);
      EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
    }
    DamageAt(FormatUuid(device_.uuid), [&](std::span<char> file, size_t at) {
      damage.apply(file.subspan(at / kPageSize * kPageSize, kPageSize));
    });
    for (uint64_t start = 0; start < 2; ++start) {
      const auto store = Open();
      ASSERT_NE(store, nullptr);
      EXPECT_THAT(store->Quarantined(0), IsEmpty());
      EXPECT_THAT(store->unread_quarantines(), ElementsAre(HasSubstr("index.mdb is damaged where")));
      EXPECT_THAT(store->quarantine_failure(), HasSubstr("damaged")) << "nothing is written to it";
      store->StartQuarantine(0, kPlaces);
      store->StartPut(2, "1000/other", Manifest("second"), {});
      EXPECT_EQ(Wait(store.get(), 1).at(2).code, Code::kOk);
      EXPECT_EQ(store->Load("1000/train").value_or(Manifest("none")), Manifest("first"));
      EXPECT_THAT(store->quarantine_failure(), HasSubstr("damaged"));
    }
    ASSERT_EQ(::unlink(path_.c_str()), 0);
    device_ = {.path = "/dev/first", .uuid = DrawUuid()};
  }
}

// Its value lies on pages of its own, which are not where its key says.
TEST_F(DamagedQuarantineTest, KeysThatCannotBeListedAreToldAndTheStartGoesOn) {
  Open()->StartQuarantine(0, kPlaces);
  const std::string stale = FormatUuid(DrawUuid());
  RecordMany(stale, 2 * kPageSize);
  DamageAt(stale, [&](std::span<char> file, size_t at) {
    std::ranges::fill(file.subspan(at + stale.size(), sizeof(uint64_t)), '\x7f');
  });
  for (uint64_t start = 0; start < 2; ++start) {
    const auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(store->Quarantined(0), kPlaces);
    EXPECT_THAT(store->unread_quarantines(), ElementsAre(HasSubstr("is damaged where")));
    store->StartPut(1, "1000/train", Manifest("first"), {});
    EXPECT_EQ(Wait(store.get(), 1).at(1).code, Code::kOk);
  }
}

// Every commit after that which binds the index fails.
TEST_F(DamagedQuarantineTest, ARecordThatCannotBeErasedIsToldAndTheStartGoesOn) {
  Open()->StartQuarantine(0, kPlaces);
  RecordMany(FormatUuid(DrawUuid()), 0);
  ManifestStoreOptions options = Options();
  std::optional<WriteLimit> limit;
  options.on_commit = [&](const Uuid&, uint64_t) -> Status {
    limit.emplace(0);
    return {};
  };
  {
    const auto store = LmdbManifestStore::Open(options);
    limit.reset();
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->Quarantined(0), kPlaces);
    EXPECT_THAT((*store)->unread_quarantines(), ElementsAre(HasSubstr("64 devices that were taken out are kept")));
  }
  EXPECT_EQ(Open()->Quarantined(0), kPlaces);
}

TEST_F(DamagedQuarantineTest, RecordsOfDevicesThatWereTakenOutAreNotKeptWithoutEnd) {
  Open()->StartQuarantine(0, kPlaces);
  RecordMany(FormatUuid(DrawUuid()), 0);
  EXPECT_EQ(Open()->Quarantined(0), kPlaces);
  auto index = IndexFile::Open({.path = path_, .map_size = 4 * kMiB});
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_THAT(*(*index)->Keys(IndexTable::kQuarantine), ElementsAre(FormatUuid(device_.uuid)));
}

}  // namespace
}  // namespace tier::storage
