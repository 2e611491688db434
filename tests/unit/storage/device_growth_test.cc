// A file that becomes larger: what it holds stays, and a start that is killed on the way leaves a device of the old
// size or of the new one.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/device_file.h"
#include "tests/support/storage/scratch.h"
#include "tests/unit/storage/manifest_store_fixture.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 40 * kMiB;
constexpr uint64_t kLarger = 64 * kMiB;
constexpr size_t kSector = 512;

class DeviceGrowth : public ::testing::Test {
 protected:
  DeviceFileOptions To(uint64_t size) { return {.path = path_, .size = size}; }
  DeviceFile Open(uint64_t size = 0) {
    auto file = DeviceFile::Open(To(size));
    EXPECT_TRUE(file) << file.error().message;
    return std::move(file).value();
  }
  uint64_t SizeOfDevice() { return Open().superblock().device_size; }
  uint64_t SizeOfFile() { return std::filesystem::file_size(path_); }
  std::string Read(uint64_t offset, size_t count) {
    std::ifstream in(path_, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(offset));
    std::string bytes(count, '\0');
    in.read(bytes.data(), static_cast<std::streamsize>(count));
    return bytes;
  }
  void Write(uint64_t offset, const std::string& bytes) {
    std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(offset));
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  testing::ScratchDirectory directory_;
  const std::string path_ = directory_.File("tier.img");
};

TEST_F(DeviceGrowth, KeepsWhatTheDeviceHoldsAndWhoseItIs) {
  const Uuid index = DrawUuid();
  const std::string last = "the last bytes";
  Uuid uuid;
  {
    DeviceFile file = Open(kSize);
    EXPECT_FALSE(file.IsToGrow(To(kSize)));
    uuid = UuidOf(file.superblock());
    ASSERT_TRUE(file.CommitIndex(index, 7));
  }
  Write(kSize - last.size(), last);
  {
    DeviceFile file = Open(kLarger);
    EXPECT_EQ(file.superblock().device_size, kSize) << "opening alone writes nothing";
    ASSERT_TRUE(file.IsToGrow(To(kLarger)));
    const Status grown = file.Grow(To(kLarger));
    ASSERT_TRUE(grown) << grown.error().message;
    EXPECT_EQ(file.grown_from(), kSize);
    EXPECT_EQ(file.block_count(), (kLarger - proto::kDiskDataOffset) / kBlockSize);
    EXPECT_FALSE(file.IsToGrow(To(kLarger)));
    ASSERT_TRUE(file.CommitIndex(index, 8)) << "the commits go on behind those of the growth";
  }
  const DeviceFile again = Open(kLarger);
  EXPECT_FALSE(again.created());
  EXPECT_EQ(again.grown_from(), 0u);
  EXPECT_EQ(UuidOf(again.superblock()), uuid);
  EXPECT_EQ(again.superblock().device_size, kLarger);
  EXPECT_EQ(again.superblock().index_commit, 8u);
  EXPECT_EQ(std::memcmp(again.superblock().index_uuid, index.data(), index.size()), 0);
  EXPECT_EQ(Read(kSize - last.size(), last.size()), last);
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(static_cast<uint64_t>(about.st_size), kLarger);
  EXPECT_GE(static_cast<uint64_t>(about.st_blocks) * 512, kLarger) << "the new part is sparse";
}

TEST_F(DeviceGrowth, IsInWholeBlocks) {
  (void)Open(kSize);
  DeviceFile file = Open();
  EXPECT_FALSE(file.IsToGrow(To(kSize + kBlockSize - 1)));
  ASSERT_TRUE(file.Grow(To(kSize + 2 * kBlockSize - 1)));
  EXPECT_EQ(file.superblock().device_size, kSize + kBlockSize);
}

TEST_F(DeviceGrowth, WithoutASizeTheFileStaysAsItStands) {
  (void)Open(kSize);
  const DeviceFile file = Open();
  EXPECT_FALSE(file.IsToGrow(To(0)));
  EXPECT_EQ(file.size_note(), "");
}

TEST_F(DeviceGrowth, ASmallerSizeIsToldAndChangesNothing) {
  (void)Open(kLarger);
  const DeviceFile file = Open(kSize);
  EXPECT_FALSE(file.IsToGrow(To(kSize)));
  EXPECT_EQ(file.superblock().device_size, kLarger);
  EXPECT_EQ(SizeOfFile(), kLarger);
  EXPECT_THAT(file.size_note(), AllOf(HasSubstr(path_ + " keeps its 64 MiB"), HasSubstr("ssd.file_size is 40 MiB"),
                                      HasSubstr("remove the file")));
}

// The file was extended, and no superblock says so yet.
TEST_F(DeviceGrowth, ThatWasKilledBeforeTheSuperblockIsDoneAtTheNextStart) {
  (void)Open(kSize);
  ASSERT_EQ(::truncate(path_.c_str(), kLarger - kMiB), 0);
  EXPECT_EQ(SizeOfDevice(), kSize);
  DeviceFile file = Open(kLarger);
  ASSERT_TRUE(file.Grow(To(kLarger)));
  EXPECT_EQ(file.superblock().device_size, kLarger);
}

TEST_F(DeviceGrowth, ThatWasInterruptedIsGivenBackWhereItIsNotWanted) {
  (void)Open(kSize);
  ASSERT_EQ(::truncate(path_.c_str(), kLarger), 0);
  {
    DeviceFile file = Open();
    EXPECT_EQ(SizeOfFile(), kLarger) << "opening alone writes nothing";
    file.CutExcess();
    EXPECT_THAT(file.size_note(), HasSubstr(path_ + " was cut from 64 MiB to the 40 MiB"));
  }
  EXPECT_EQ(SizeOfFile(), kSize);
  DeviceFile file = Open();
  file.CutExcess();
  EXPECT_EQ(file.size_note(), "") << "nothing is left";
  ASSERT_TRUE(file.Grow(To(kLarger)));
}

TEST_F(DeviceGrowth, NothingIsCutWhereOnlyOneCopySaysTheSize) {
  const uint64_t commit = Open(kSize).superblock().commit;
  const std::string before = Read(CopyOffset(commit), proto::kSuperblockSize);
  {
    ASSERT_TRUE(Open().Grow(To(kLarger)));
  }
  Write(CopyOffset(commit), before);
  Write(CopyOffset(commit + 1) + offsetof(proto::Superblock, uuid), "!");
  DeviceFile file = Open();
  ASSERT_EQ(file.superblock().device_size, kSize) << "the newer ones are lost";
  file.CutExcess();
  EXPECT_EQ(SizeOfFile(), kLarger);
}

// The label area as it was, with each copy of the superblock written up to some sector.
TEST_F(DeviceGrowth, TornAtAnySectorOfTheSuperblocksItIsTheOldDeviceOrTheNewOne) {
  const uint64_t commit = Open(kSize).superblock().commit;
  std::vector<std::string> before;
  for (int copy = 1; copy <= 2; ++copy) before.push_back(Read(CopyOffset(commit + copy), proto::kSuperblockSize));
  {
    DeviceFile file = Open();
    ASSERT_TRUE(file.Grow(To(kLarger)));
    ASSERT_EQ(file.superblock().commit, commit + 2) << "both copies";
  }
  std::vector<std::string> after;
  for (int copy = 1; copy <= 2; ++copy) after.push_back(Read(CopyOffset(commit + copy), proto::kSuperblockSize));
  for (size_t written = 0; written <= 2 * proto::kSuperblockSize; written += kSector) {
    for (size_t copy = 0; copy < 2; ++copy) {
      const size_t cut =
          std::min<size_t>(written - std::min<size_t>(written, copy * proto::kSuperblockSize), proto::kSuperblockSize);
      Write(CopyOffset(commit + 1 + copy), after[copy].substr(0, cut) + before[copy].substr(cut));
    }
    const auto file = DeviceFile::Open(To(0));
    ASSERT_TRUE(file) << written << ": " << file.error().message;
    EXPECT_EQ(file->superblock().device_size, written < proto::kSuperblockSize ? kSize : kLarger) << written;
  }
}

TEST_F(DeviceGrowth, DamageToTheNewerCopyDoesNotBringTheOldSizeBack) {
  (void)Open(kSize);
  uint64_t commit = 0;
  {
    DeviceFile file = Open();
    ASSERT_TRUE(file.Grow(To(kLarger)));
    commit = file.superblock().commit;
  }
  Write(CopyOffset(commit) + offsetof(proto::Superblock, uuid), "!");
  EXPECT_EQ(SizeOfDevice(), kLarger);
}

TEST_F(DeviceGrowth, WithoutTheRoomItKeepsItsSizeAndSaysWhy) {
  (void)Open(kSize);
  DeviceFile file = Open(kLarger);
  DeviceFileOptions options = To(kLarger);
  options.space = [](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = kGiB, .available = kLarger - kSize - 1};
  };
  const Status grown = file.Grow(options);
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().code, Code::kNoSpace);
  EXPECT_THAT(grown.error().message, AllOf(HasSubstr(path_ + " keeps its 40 MiB, and ssd.file_size is 64 MiB"),
                                           HasSubstr("24 MiB more do not fit into " + directory_.path())));
  EXPECT_EQ(file.superblock().device_size, kSize);
  EXPECT_EQ(file.grown_from(), 0u);
  EXPECT_EQ(SizeOfFile(), kSize);
}

TEST_F(DeviceGrowth, WithoutTheRoomWhatWasBegunIsGivenBack) {
  (void)Open(kSize);
  ASSERT_EQ(::truncate(path_.c_str(), kSize + kMiB), 0);
  DeviceFile file = Open(kLarger);
  DeviceFileOptions options = To(kLarger);
  options.for_index = kMiB;
  options.space = [](const std::string&) -> Result<FileSystemSpace> {
    return FileSystemSpace{.total = kGiB, .available = kLarger - kSize - 1};
  };
  EXPECT_THAT(file.Grow(options).error().message, HasSubstr("23 MiB more do not fit"));
  EXPECT_EQ(SizeOfFile(), kSize);
}

TEST_F(DeviceGrowth, ThatTheKernelRefusesLeavesTheFileAsItWas) {
  (void)Open(kSize);
  DeviceFile file = Open(kLarger);
  {
    const WriteLimit limit(kSize + kMiB);
    const Status grown = file.Grow(To(kLarger));
    ASSERT_FALSE(grown);
    EXPECT_THAT(grown.error().message, HasSubstr("keeps its 40 MiB"));
  }
  EXPECT_EQ(SizeOfFile(), kSize);
  ASSERT_TRUE(file.CommitIndex(DrawUuid(), 1)) << "it serves as before";
  ASSERT_TRUE(file.Grow(To(kLarger)));
}

// A child extends its file block by block, and says so each time, until it is killed.
TEST_F(DeviceGrowth, KilledAtAnyMomentItOpensWithASizeThatItHad) {
  const Uuid uuid = UuidOf(Open(kSize).superblock());
  constexpr uint64_t kMost = kSize + 200 * kBlockSize;
  uint64_t least = kSize;
  for (uint64_t told = 1; told <= 8; ++told) {
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      auto file = DeviceFile::Open(To(0));
      for (uint64_t size = least + kBlockSize; file && size <= kMost; size += kBlockSize) {
        if (!file->Grow(To(size)) || ::write(said[1], &size, sizeof size) != sizeof size) ::_exit(1);
      }
      ::_exit(2);
    }
    ::close(said[1]);
    for (uint64_t i = 0; i < told && ::read(said[0], &least, sizeof least) == sizeof least; ++i) {
    }
    ::kill(child, SIGKILL);
    for (uint64_t more = 0; ::read(said[0], &more, sizeof more) == sizeof more;) least = more;
    ::waitpid(child, nullptr, 0);
    ::close(said[0]);
    const DeviceFile file = Open();
    EXPECT_EQ(UuidOf(file.superblock()), uuid);
    EXPECT_THAT(file.superblock().device_size, AnyOf(least, least + kBlockSize)) << "what was told is durable";
    EXPECT_GE(SizeOfFile(), file.superblock().device_size);
    least = file.superblock().device_size;
  }
  EXPECT_GT(least, kSize);
}

TEST_F(DeviceGrowth, ABlockDeviceThatGrewIsUsedAsItWasFormatted) {
  if (!testing::IsRoot()) GTEST_SKIP() << "needs root: makes a loop device";
  ASSERT_TRUE(testing::RunCommand("truncate -s 40M " + path_));
  const std::string loop = testing::CommandLine("losetup -f --show --direct-io=on " + path_);
  if (loop.empty()) GTEST_SKIP() << "needs loop devices: losetup -f found none";
  testing::Cleanup cleanup;
  cleanup.Add("losetup -d " + loop);
  {
    const auto device = DeviceFile::Open({.path = loop});
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_EQ(device->size_note(), "");
  }
  ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + path_ + " && losetup -c " + loop));
  const auto device = DeviceFile::Open({.path = loop, .size = kLarger});
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_FALSE(device->IsToGrow({.path = loop, .size = kLarger})) << "ssd.file_size is of files";
  EXPECT_EQ(device->superblock().device_size, kSize);
  EXPECT_THAT(device->size_note(), AllOf(HasSubstr(loop + " has 64 MiB by now"), HasSubstr("uses the 40 MiB")));
}

}  // namespace
}  // namespace tier::storage
