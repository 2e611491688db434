// The label area: what is ours, what is torn, what is somebody else's.
#include "daemon/storage/superblock.h"

#include <cstring>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tier::storage {
namespace {

using proto::Superblock;

constexpr uint64_t kDeviceSize = 100 * kMiB;

class Label : public ::testing::Test {
 protected:
  Label() : bytes_(proto::kLabelAreaSize) {}

  Superblock Make(uint64_t commit) const {
    Superblock s = MakeSuperblock(uuid_, kDeviceSize, 1'700'000'000);
    s.commit = commit;
    SealSuperblock(&s);
    return s;
  }
  void Store(const Superblock& s) { std::memcpy(bytes_.data() + CopyOffset(s.commit), &s, sizeof s); }
  std::byte* CopyOf(uint64_t commit) { return bytes_.data() + CopyOffset(commit); }
  Code CodeOf() const {
    const auto label = ReadLabel(bytes_);
    return label ? Code::kOk : label.error().code;
  }

  const Uuid uuid_ = DrawUuid();
  std::vector<std::byte> bytes_;
};

TEST_F(Label, IsNotFoundOnABlankDevice) { EXPECT_EQ(CodeOf(), Code::kNotFound); }

TEST_F(Label, GivesBackWhatWasFormatted) {
  Store(Make(1));
  const auto label = ReadLabel(bytes_);
  ASSERT_TRUE(label) << label.error().message;
  EXPECT_EQ(UuidOf(*label), uuid_);
  EXPECT_EQ(label->device_size, kDeviceSize);
  EXPECT_EQ(label->block_count, (kDeviceSize - proto::kDiskDataOffset) / kBlockSize);
  EXPECT_EQ(label->formatted_at, 1'700'000'000u);
}

TEST_F(Label, TakesTheNewerOfTwoValidCopies) {
  Store(Make(6));
  Store(Make(7));
  EXPECT_EQ(ReadLabel(bytes_)->commit, 7u);
  Store(Make(8));
  EXPECT_EQ(ReadLabel(bytes_)->commit, 8u);
}

TEST_F(Label, FallsBackToTheOlderCopyWhenTheNewerIsTornAtAnySector) {
  for (size_t cut = 0; cut < sizeof(Superblock); cut += 512) {
    bytes_.assign(bytes_.size(), std::byte{0});
    Store(Make(5));
    Store(Make(6));
    const Superblock next = Make(7);  // Over commit 5.
    std::memcpy(CopyOf(7), &next, cut);
    const auto label = ReadLabel(bytes_);
    ASSERT_TRUE(label) << "cut at " << cut << ": " << label.error().message;
    EXPECT_EQ(label->commit, 6u) << "cut at " << cut;
  }
}

TEST_F(Label, SurvivesAFirstWriteThatWasCutShort) {
  const Superblock first = Make(1);
  Store(Make(2));
  std::memcpy(CopyOf(1), &first, 512);
  EXPECT_EQ(ReadLabel(bytes_)->commit, 2u);
}

TEST_F(Label, IsCorruptWhenBothCopiesAreDamaged) {
  Store(Make(1));
  Store(Make(2));
  CopyOf(1)[40] ^= std::byte{1};
  CopyOf(2)[41] ^= std::byte{1};
  EXPECT_EQ(CodeOf(), Code::kCorrupt);
}

TEST_F(Label, OfALaterFormatIsRefusedByVersion) {
  Superblock later = Make(3);
  later.version = proto::kDiskVersion + 1;
  SealSuperblock(&later);
  Store(Make(2));
  Store(later);
  EXPECT_EQ(CodeOf(), Code::kVersion);
}

TEST_F(Label, IsForeignWhereverAByteIsNotOurs) {
  for (const size_t at :
       {size_t{0}, size_t{510}, size_t{4096}, size_t{512 * kKiB - 1}, size_t{516 * kKiB}, bytes_.size() - 1}) {
    bytes_.assign(bytes_.size(), std::byte{0});
    bytes_[at] = std::byte{1};
    EXPECT_EQ(CodeOf(), Code::kInvalid) << "byte " << at;
  }
}

TEST_F(Label, IsForeignWhenAFileSystemWasMadeOverOneCopy) {
  // mkfs.ext4 leaves the first 1,024 bytes alone: our magic survives in a copy that is not ours any more.
  Store(Make(1));
  Store(Make(2));
  std::memset(CopyOf(2) + 1024, 0x53, 1024);
  EXPECT_EQ(CodeOf(), Code::kInvalid);
}

TEST_F(Label, IsForeignWhenAPartitionTableLiesOverOneCopy) {
  Store(Make(1));
  Store(Make(2));
  std::memcpy(CopyOf(2) + 512, "EFI PART", 8);
  EXPECT_EQ(CodeOf(), Code::kInvalid);
}

TEST_F(Label, IsForeignWhenAnotherMagicReplacedOurs) {
  Store(Make(1));
  Store(Make(2));
  std::memcpy(CopyOf(2), "XFSB", 4);
  EXPECT_EQ(CodeOf(), Code::kInvalid);
}

TEST_F(Label, OfADeviceThatEndsWithinItIsStillChecked) {
  bytes_.resize(100);
  EXPECT_EQ(CodeOf(), Code::kNotFound);
  bytes_[99] = std::byte{7};
  EXPECT_EQ(CodeOf(), Code::kInvalid);
  bytes_.clear();
  EXPECT_EQ(CodeOf(), Code::kNotFound);
}

struct BadField {
  const char* name;
  void (*spoil)(Superblock*);
};

class SealedSuperblock : public ::testing::TestWithParam<BadField> {};

TEST_P(SealedSuperblock, WithAnImpossibleFieldIsCorrupt) {
  Superblock s = MakeSuperblock(DrawUuid(), kDeviceSize, 0);
  SealSuperblock(&s);
  ASSERT_TRUE(ParseSuperblock(std::as_bytes(std::span(&s, 1))));
  GetParam().spoil(&s);
  SealSuperblock(&s);
  const auto parsed = ParseSuperblock(std::as_bytes(std::span(&s, 1)));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::kCorrupt);
}

INSTANTIATE_TEST_SUITE_P(Fields, SealedSuperblock,
                         ::testing::Values(BadField{"BlockSize", [](Superblock* s) { s->block_size = 4096; }},
                                           BadField{"PageSize", [](Superblock* s) { s->page_size = 512; }},
                                           BadField{"DataOffset", [](Superblock* s) { s->data_offset = kMiB; }},
                                           BadField{"NoBlocks", [](Superblock* s) { s->block_count = 0; }},
                                           BadField{"TooManyBlocks", [](Superblock* s) { ++s->block_count; }},
                                           BadField{"HugeBlockCount",
                                                    [](Superblock* s) { s->block_count = UINT64_MAX; }},
                                           BadField{"TinyDevice", [](Superblock* s) { s->device_size = kMiB; }},
                                           BadField{"NoCommit", [](Superblock* s) { s->commit = 0; }},
                                           BadField{"HeaderSize", [](Superblock* s) { s->header_size = 512; }},
                                           BadField{"Flags", [](Superblock* s) { s->flags = 1; }},
                                           BadField{"Reserved", [](Superblock* s) { s->reserved[100] = 1; }}),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(SuperblockBytes, ChangeOfAnyByteIsNoticed) {
  Superblock s = MakeSuperblock(DrawUuid(), kDeviceSize, 12345);
  SealSuperblock(&s);
  auto* bytes = reinterpret_cast<unsigned char*>(&s);
  for (size_t i = 0; i < sizeof s; ++i) {
    bytes[i] ^= 0x10;
    ASSERT_FALSE(ParseSuperblock(std::as_bytes(std::span(&s, 1)))) << "byte " << i;
    bytes[i] ^= 0x10;
  }
  EXPECT_TRUE(ParseSuperblock(std::as_bytes(std::span(&s, 1))));
}

TEST(SuperblockBytes, AreNotReadBeyondWhatIsThere) {
  Superblock s = MakeSuperblock(DrawUuid(), kDeviceSize, 12345);
  SealSuperblock(&s);
  EXPECT_FALSE(ParseSuperblock(std::as_bytes(std::span(&s, 1)).first(4095)));
  EXPECT_FALSE(ParseSuperblock({}));
}

TEST(Uuid, IsWrittenInTheUsualForm) {
  Uuid uuid{};
  for (size_t i = 0; i < uuid.size(); ++i) uuid[i] = static_cast<uint8_t>(i * 17);
  EXPECT_EQ(FormatUuid(uuid), "00112233-4455-6677-8899-aabbccddeeff");
}

TEST(Uuid, DrawnTwiceDiffersAndSaysVersionFour) {
  const Uuid a = DrawUuid();
  EXPECT_NE(a, DrawUuid());
  EXPECT_EQ(a[6] >> 4, 4);
  EXPECT_EQ(a[8] >> 6, 2);
}

}  // namespace
}  // namespace tier::storage
