// Manifests as bytes (manifest_codec) and the extents they hold (manifest_holds).
#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "daemon/storage/checksum.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/manifest_holds.h"
#include "daemon/tiering/tables/manifest_table.h"
#include "daemon/tiering/tables/tensor.h"

namespace tier::tiering {
namespace {

Manifest Sample() {
  Manifest manifest{.step = 12, .tensors = {}, .keys = {{0x77, "weights"}, {0x78, "a longer key than eight bytes"}}};
  ManifestTensor small{.record = {.tensor = 1, .size = 100, .generation = 4, .piece_count = 1}, .pieces = {}};
  small.pieces.push_back({.block = 3, .page = 7, .pages = 1, .crc = 0xabcdef, .generation = 4, .device = 1});
  ManifestTensor large{
      .record = {.tensor = 2, .size = kBlockSize + 5000, .generation = 9, .piece_count = 2, .space = 1}, .pieces = {}};
  large.pieces.push_back({.block = 5, .page = 0, .pages = 512, .crc = 1, .generation = 8, .device = 0});
  large.pieces.push_back({.block = 6, .page = 9, .pages = 2, .crc = 2, .generation = 9, .device = 0});
  manifest.tensors = {small, large};
  return manifest;
}

TEST(ManifestCodec, WhatWasEncodedIsDecoded) {
  const Result<Manifest> decoded = DecodeManifest(EncodeManifest(Sample()));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  EXPECT_EQ(decoded->step, 12u);
  ASSERT_EQ(decoded->tensors.size(), 2u);
  EXPECT_EQ(decoded->tensors[1].record.size, kBlockSize + 5000);
  EXPECT_EQ(decoded->tensors[1].pieces[1].page, 9);
  EXPECT_EQ(decoded->tensors[0].pieces[0].crc, 0xabcdefu);
  ASSERT_EQ(decoded->keys.size(), 2u);
  EXPECT_EQ(decoded->keys[1].key, "a longer key than eight bytes");
}

TEST(ManifestCodec, DevicesHaveTheNumbersOfTheIndexInIt) {
  const auto encode = [](const storage::DeviceNumbers& numbers) {
    ManifestWriter writer(0, numbers);
    writer.BeginTensor({.tensor = 1, .size = 100, .generation = 1, .piece_count = 1});
    writer.AddPiece({.block = 3, .page = 7, .pages = 1, .crc = 1, .generation = 1, .device = 1}, {});
    writer.EndTensor(0);
    EXPECT_TRUE(writer.Seal(SIZE_MAX));
    return std::move(writer).Take();
  };
  const auto device_in = [](const std::vector<std::byte>& bytes, const storage::DeviceNumbers& numbers) {
    const Result<Manifest> decoded = DecodeManifest(bytes, numbers);
    return decoded ? int{decoded->tensors[0].pieces[0].device} : -static_cast<int>(decoded.error().code);
  };
  const storage::DeviceNumbers before(std::array<uint16_t, 2>{0, 4});
  const storage::DeviceNumbers turned(std::array<uint16_t, 2>{4, 0});
  const storage::DeviceNumbers without(std::array<uint16_t, 1>{0});
  const std::vector<std::byte> bytes = encode(before);
  EXPECT_EQ(device_in(bytes, before), 1);
  EXPECT_EQ(device_in(bytes, turned), 0);
  EXPECT_EQ(device_in(bytes, {}), 4);
  EXPECT_EQ(device_in(bytes, without), -static_cast<int>(Code::kCorrupt));
}

TEST(ManifestCodec, AnEmptyManifestIsAManifest) { EXPECT_TRUE(DecodeManifest(EncodeManifest({})).has_value()); }

TEST(ManifestCodec, EveryFlippedByteIsNoticed) {
  const std::vector<std::byte> good = EncodeManifest(Sample());
  for (size_t i = 0; i < good.size(); ++i) {
    std::vector<std::byte> bad = good;
    bad[i] ^= std::byte{0x10};
    EXPECT_FALSE(DecodeManifest(bad).has_value()) << "byte " << i;
  }
}

TEST(ManifestCodec, EveryTruncationIsNoticed) {
  const std::vector<std::byte> good = EncodeManifest(Sample());
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(DecodeManifest(std::span(good).first(size)).has_value()) << size;
  }
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 8);
  EXPECT_FALSE(DecodeManifest(longer).has_value());
}

TEST(ManifestCodec, AnotherVersionIsRefusedByName) {
  std::vector<std::byte> bytes = EncodeManifest(Sample());
  bytes[offsetof(proto::ManifestHeader, version)] = std::byte{9};
  EXPECT_EQ(DecodeManifest(bytes).error().code, Code::kVersion);
}

// `bytes` says that it has that version, under a right checksum.
void SetVersion(uint32_t version, std::vector<std::byte>* bytes) {
  proto::ManifestHeader header{};
  std::memcpy(&header, bytes->data(), sizeof(header));
  header.version = version;
  if (version < 4) {  // Without the last field of the header.
    bytes->erase(bytes->begin() + ptrdiff_t{proto::kManifestHeaderSizeBefore4}, bytes->begin() + sizeof(header));
    header.size = bytes->size();
    std::memcpy(&header.run_count, bytes->data() + proto::kManifestHeaderSizeBefore4, sizeof(header.run_count));
  }
  header.crc = 0;
  std::memcpy(bytes->data(), &header, sizeof(header));
  header.crc = storage::Crc32c(*bytes);
  std::memcpy(bytes->data(), &header, sizeof(header));
}

TEST(ManifestCodec, TheFirstVersionIsReadAndHasNoFlags) {
  std::vector<std::byte> old = EncodeManifest(Sample());
  SetVersion(1, &old);
  const Result<Manifest> decoded = DecodeManifest(old);
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  EXPECT_EQ(decoded->tensors[1].record.space, 1);
  EXPECT_EQ(decoded->tensors[1].record.flags, 0);
  Manifest flagged = Sample();
  flagged.tensors[0].record.flags = proto::kManifestTorn;
  std::vector<std::byte> bytes = EncodeManifest(flagged);
  EXPECT_EQ(DecodeManifest(bytes)->tensors[0].record.flags, proto::kManifestTorn);
  SetVersion(1, &bytes);
  EXPECT_EQ(DecodeManifest(bytes).error().code, Code::kCorrupt);
}

TEST(ManifestCodec, TheSecondVersionHasNoShardedTensors) {
  Manifest flagged = Sample();
  flagged.tensors[0].record.flags = proto::kManifestTorn | proto::kManifestSharded;
  std::vector<std::byte> bytes = EncodeManifest(flagged);
  EXPECT_EQ(DecodeManifest(bytes)->tensors[0].record.flags, proto::kManifestTorn | proto::kManifestSharded);
  SetVersion(2, &bytes);
  EXPECT_EQ(DecodeManifest(bytes).error().code, Code::kCorrupt);
  flagged.tensors[0].record.flags = proto::kManifestTorn;
  bytes = EncodeManifest(flagged);
  SetVersion(2, &bytes);
  EXPECT_EQ(DecodeManifest(bytes)->tensors[0].record.flags, proto::kManifestTorn);
}

TEST(ManifestCodec, NonsenseWithARightChecksumIsRefused) {
  const auto refuse = [](auto change) {
    Manifest manifest = Sample();
    change(manifest);
    return !DecodeManifest(EncodeManifest(manifest)).has_value();
  };
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].record.size = 0; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].record.size = kBlockSize * 2; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].record.space = 2; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].record.flags = 4; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[1].record.flags = proto::kManifestSharded; })) << "of a session";
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].pieces[0].page = 512; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.tensors[0].pieces[0].pages = 0; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.keys[0].id = 0; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.keys[0].key.clear(); }));
}

Manifest Scattered() {
  Manifest manifest = Sample();
  manifest.tensors[1].pieces[1] = {
      .block = 6, .page = 9, .pages = 2, .crc = 2, .generation = 9, .device = 0, .run_count = 2, .first_run = 0};
  manifest.runs = {{6, 9, 1}, {8, 511, 1}};
  return manifest;
}

TEST(ManifestCodec, APieceMayLieInSeveralRuns) {
  const Result<Manifest> decoded = DecodeManifest(EncodeManifest(Scattered()));
  ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
  EXPECT_EQ(decoded->runs, Scattered().runs);
  const proto::ManifestPieceRecord& piece = decoded->tensors[1].pieces[1];
  EXPECT_EQ(RunsIn(*decoded, piece).size(), 2u);
  EXPECT_EQ(ExtentOf(piece), (storage::Extent{.run = {6, 9, 2}, .device = 0, .scattered = true}));
  EXPECT_TRUE(RunsIn(*decoded, decoded->tensors[0].pieces[0]).empty());
}

TEST(ManifestCodec, ImpossibleRunsAreRefused) {
  const auto refuse = [](auto change) {
    Manifest manifest = Scattered();
    change(manifest);
    return !DecodeManifest(EncodeManifest(manifest)).has_value();
  };
  EXPECT_FALSE(refuse([](Manifest&) {}));
  EXPECT_TRUE(refuse([](Manifest& m) { m.runs[1].pages = 2; })) << "more pages than the piece has";
  EXPECT_TRUE(refuse([](Manifest& m) { m.runs[1].page = 512; })) << "beyond the block";
  EXPECT_TRUE(refuse([](Manifest& m) { m.runs[1].pages = 0; }));
  EXPECT_TRUE(refuse([](Manifest& m) { m.runs[0].block = 7; })) << "not where the piece begins";
}

TEST(ManifestCodec, RunsOfNoPieceAreRefused) {
  ManifestWriter writer(0);
  writer.BeginTensor({.tensor = 1, .size = 2 * kPageSize, .generation = 1, .piece_count = 1});
  proto::ManifestPieceRecord piece{.block = 6, .page = 9, .pages = 2, .crc = 2, .generation = 9, .device = 0};
  writer.AddPiece(piece, std::vector<base::PageRun>{{6, 9, 1}, {8, 511, 1}});
  writer.EndTensor(0);
  ASSERT_TRUE(writer.Seal(SIZE_MAX));
  std::vector<std::byte> bytes = std::move(writer).Take();
  ASSERT_TRUE(DecodeManifest(bytes).has_value());
  const auto patch = [&bytes](uint16_t run_count, uint32_t first_run) {
    std::vector<std::byte> changed = bytes;
    const size_t at = sizeof(proto::ManifestHeader) + sizeof(proto::ManifestTensorRecord);
    std::memcpy(&changed[at + offsetof(proto::ManifestPieceRecord, run_count)], &run_count, sizeof(run_count));
    std::memcpy(&changed[at + offsetof(proto::ManifestPieceRecord, first_run)], &first_run, sizeof(first_run));
    SetVersion(proto::kManifestVersion, &changed);
    return DecodeManifest(changed).has_value();
  };
  EXPECT_TRUE(patch(2, 0));
  EXPECT_FALSE(patch(0, 0)) << "its runs are of no piece";
  EXPECT_FALSE(patch(2, 1)) << "beyond the last run";
  EXPECT_FALSE(patch(UINT16_MAX, UINT32_MAX));
  EXPECT_FALSE(patch(0, 1));
  EXPECT_FALSE(patch(1, 0)) << "one run is not several";
}

// Counting the pieces of such a size overflows: a tensor of 16 EiB without a piece.
TEST(ManifestCodec, ATensorWhoseSizeOverflowsItsPieceCountIsDamaged) {
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - kBlockSize + 2, kPiecesPerTensorMax * kBlockSize + 1}) {
    Manifest manifest;
    manifest.tensors.push_back({.record = {.tensor = 1, .size = size, .generation = 4}, .pieces = {}});
    const Result<Manifest> decoded = DecodeManifest(EncodeManifest(manifest));
    ASSERT_FALSE(decoded.has_value()) << size;
    EXPECT_EQ(decoded.error().code, Code::kCorrupt);
    EXPECT_NE(decoded.error().message.find("tensor record 0"), std::string::npos) << decoded.error().message;
  }
}

TEST(ManifestCodec, BytesBehindAKeyMustBeZero) {
  Manifest manifest{.step = 0, .tensors = {}, .keys = {{0x77, "weights"}}};
  std::vector<std::byte> bytes = EncodeManifest(manifest);
  bytes.back() = std::byte{1};
  SetVersion(proto::kManifestVersion, &bytes);  // Under a right checksum.
  ASSERT_FALSE(DecodeManifest(bytes).has_value());
  EXPECT_EQ(DecodeManifest(bytes).error().code, Code::kCorrupt);
}

storage::Extent ExtentAt(uint32_t block, uint16_t pages = 4) { return {.run = {block, 0, pages}, .device = 0}; }

TEST(ManifestHolds, AnExtentThatNoManifestNamesIsNotHeld) {
  ManifestHolds holds;
  EXPECT_FALSE(holds.Unuse(ExtentAt(1), false));
  EXPECT_TRUE(holds.empty());
}

std::vector<ManifestHolds::Dropped> Swept(ManifestHolds* holds) {
  std::vector<ManifestHolds::Dropped> dropped;
  while (holds->sweeping()) holds->SweepOne(&dropped);
  return dropped;
}

TEST(ManifestHolds, ANamedExtentOutlivesItsPieceUntilAManifestDropsIt) {
  ManifestHolds holds;
  std::vector<ManifestHolds::Dropped> dropped;
  holds.Begin();
  holds.Name(ExtentAt(1));
  holds.OnSynced();
  dropped = Swept(&holds);
  EXPECT_TRUE(dropped.empty());
  EXPECT_TRUE(holds.Unuse(ExtentAt(1), false));
  EXPECT_EQ(holds.unused_pages(), 4u);
  holds.Begin();
  holds.Name(ExtentAt(2));
  EXPECT_TRUE(dropped.empty()) << "the new manifest is not synced yet";
  holds.OnSynced();
  dropped = Swept(&holds);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].extent, ExtentAt(1));
  EXPECT_EQ(holds.unused_pages(), 0u);
  EXPECT_EQ(holds.size(), 1u);
}

// The sums follow each manifest through whatever happens to it.
class WhyUnusedPagesStay : public ::testing::Test {
 protected:
  static constexpr uint16_t kPages = 4;
  // A manifest of three extents, two of them on device 1.
  uint64_t Load(const std::string& key) {
    ManifestHolds holds = table_.NewHolds(1000);
    const uint64_t id = holds.id();
    for (const uint16_t device : std::array<uint16_t, 3>{0, 1, 1}) {
      holds.Adopt({.run = {++block_, 0, kPages}, .device = device});
    }
    holds.set_stored(true);
    table_.Deactivate(key, std::move(holds));
    return id;
  }
  void Rest(uint64_t holds, MoveRest::Reason reason, uint32_t drain) {
    table_.FindInactive(holds)->set_move_rest({.reason = reason, .failures = 1, .drain = drain, .again_at = {}});
  }
  void ExpectOn1(Stay stay, uint64_t extents) const {
    EXPECT_EQ(table_.unused().on(1, stay), extents * kPages) << "stay " << static_cast<int>(stay);
  }

  ManifestTable table_;
  uint32_t block_ = 0;
};

TEST_F(WhyUnusedPagesStay, AManifestRestsUntilItsMoveOrAnotherDrain) {
  const uint64_t first = Load("1/first");
  const uint64_t second = Load("1/second");
  Load("1/third");
  ExpectOn1(Stay::kToMove, 6);
  Rest(first, MoveRest::Reason::kUnread, 1);
  Rest(second, MoveRest::Reason::kNoRoom, 1);
  ExpectOn1(Stay::kToMove, 2);
  ExpectOn1(Stay::kUnread, 2);
  ExpectOn1(Stay::kNoRoom, 2);
  EXPECT_EQ(table_.unused().on(0, Stay::kNoRoom), kPages);
  Rest(second, MoveRest::Reason::kNone, 1);
  ExpectOn1(Stay::kNoRoom, 0);
  ExpectOn1(Stay::kToMove, 4);
  EXPECT_EQ(table_.unused().drain(), 1u);
  Rest(second, MoveRest::Reason::kNotCommitted, 2);
  EXPECT_EQ(table_.unused().drain(), 2u);
  ExpectOn1(Stay::kUnread, 0);
  ExpectOn1(Stay::kNotCommitted, 2);
  ExpectOn1(Stay::kToMove, 4);
  Rest(first, MoveRest::Reason::kUnread, 2);
  ExpectOn1(Stay::kUnread, 2);
  EXPECT_EQ(table_.unused().on(1), 6 * kPages);
}

TEST_F(WhyUnusedPagesStay, AJobThatIsOpenedTakesItsPagesWithIt) {
  const uint64_t id = Load("1/job");
  Rest(id, MoveRest::Reason::kUnread, 1);
  ManifestHolds open = table_.Activate("1/job").value();
  ExpectOn1(Stay::kUnread, 0);
  ExpectOn1(Stay::kOpenJob, 2);
  EXPECT_TRUE(open.Use({.run = {2, 0, kPages}, .device = 1}));
  ExpectOn1(Stay::kOpenJob, 1);
  open.set_move_rest({});
  table_.Deactivate("1/job", std::move(open));
  ExpectOn1(Stay::kOpenJob, 0);
  ExpectOn1(Stay::kToMove, 1);
}

TEST_F(WhyUnusedPagesStay, ADamagedManifestIsFoundByItsDevice) {
  table_.SetBroken("1/damaged", {Code::kCorrupt, "a wrong checksum"});
  EXPECT_EQ(table_.FindBrokenOn(1), nullptr) << "it holds nothing";
  const uint64_t id = Load("1/damaged");
  Load("1/whole");
  ExpectOn1(Stay::kDamaged, 2);
  ExpectOn1(Stay::kToMove, 2);
  Rest(id, MoveRest::Reason::kUnread, 1);
  ExpectOn1(Stay::kDamaged, 2);
  ASSERT_NE(table_.FindBrokenOn(1), nullptr);
  EXPECT_EQ(*table_.FindBrokenOn(1), "1/damaged");
  EXPECT_EQ(table_.FindBrokenOn(2), nullptr);
  Rest(id, MoveRest::Reason::kNone, 1);
  table_.ClearBroken("1/damaged");
  ExpectOn1(Stay::kDamaged, 0);
  ExpectOn1(Stay::kToMove, 4);
}

TEST(ManifestHolds, AFailedCommitLetsNothingOfTheOldManifestGo) {
  ManifestHolds holds;
  std::vector<ManifestHolds::Dropped> dropped;
  holds.Begin();
  holds.Name(ExtentAt(1));
  holds.OnSynced();
  dropped = Swept(&holds);
  holds.Begin();
  holds.Name(ExtentAt(2));
  EXPECT_TRUE(holds.Unuse(ExtentAt(1), false));
  EXPECT_TRUE(holds.Unuse(ExtentAt(2), true)) << "rewritten while its manifest is being committed";
  holds.OnFailed();
  dropped = Swept(&holds);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].extent, ExtentAt(2));
  EXPECT_TRUE(dropped[0].bad);
  EXPECT_TRUE(holds.Names(ExtentAt(1)));
}

TEST(ManifestHolds, AnExtentNamedByBothStaysUsedByItsPiece) {
  ManifestHolds holds;
  std::vector<ManifestHolds::Dropped> dropped;
  holds.Begin();
  holds.Name(ExtentAt(1));
  holds.OnSynced();
  dropped = Swept(&holds);
  holds.Begin();
  holds.Name(ExtentAt(1));
  holds.OnSynced();
  dropped = Swept(&holds);
  EXPECT_TRUE(dropped.empty());
  EXPECT_TRUE(holds.Names(ExtentAt(1)));
}

// The next manifest is put together while what the last one dropped is still swept out.
TEST(ManifestHolds, AnExtentThatIsNamedAgainBeforeItIsSweptStays) {
  ManifestHolds holds;
  holds.Begin();
  for (uint32_t block = 1; block <= 3; ++block) holds.Name(ExtentAt(block));
  holds.OnSynced();
  EXPECT_TRUE(Swept(&holds).empty());
  holds.Begin();
  holds.Name(ExtentAt(2));
  holds.OnSynced();
  std::vector<ManifestHolds::Dropped> dropped;
  holds.SweepOne(&dropped);  // Extent 1, which its piece still uses.
  holds.Begin();
  holds.Name(ExtentAt(3));
  EXPECT_TRUE(holds.Unuse(ExtentAt(3), false));
  EXPECT_TRUE(Swept(&holds).empty());
  EXPECT_FALSE(holds.Names(ExtentAt(1)));
  holds.OnFailed();
  const std::vector<ManifestHolds::Dropped> left = Swept(&holds);
  ASSERT_EQ(left.size(), 1u) << "the manifest that named it failed, and the synced one does not";
  EXPECT_EQ(left[0].extent, ExtentAt(3));
  EXPECT_TRUE(holds.Names(ExtentAt(2)));
}

TEST(ManifestHolds, AnAdoptedExtentIsUnreferencedUntilItsPieceComesBack) {
  ManifestHolds holds;
  holds.Adopt(ExtentAt(1));
  EXPECT_EQ(holds.unused_pages(), 4u);
  EXPECT_TRUE(holds.Use(ExtentAt(1)));
  EXPECT_EQ(holds.unused_pages(), 0u);
  EXPECT_FALSE(holds.Use(ExtentAt(1))) << "by one piece only";
  EXPECT_FALSE(holds.Use(ExtentAt(2)));
}

TEST(ManifestHolds, AnErasedManifestDropsWhatIsUnreferencedAndHoldsNothing) {
  ManifestHolds holds;
  holds.Begin();
  holds.Name(ExtentAt(1));
  holds.Name(ExtentAt(2));
  holds.OnSynced();
  holds.Unuse(ExtentAt(1), false);
  holds.OnErased();
  EXPECT_TRUE(holds.Names(ExtentAt(1))) << "it is swept out in its turn";
  ASSERT_EQ(Swept(&holds).size(), 1u);
  EXPECT_TRUE(holds.empty());
  EXPECT_FALSE(holds.Unuse(ExtentAt(2), false)) << "its piece frees it itself";
}

}  // namespace
}  // namespace tier::tiering
