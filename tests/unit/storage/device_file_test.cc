// Devices as files and block devices: made, found again, locked, refused, not written before known to be ours.
#include "daemon/storage/device_file.h"

#include <cstring>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using testing::Cleanup;
using testing::CommandLine;
using ::testing::HasSubstr;
using testing::HasTool;
using testing::IsRoot;
using testing::RunCommand;
using testing::ScratchDirectory;

constexpr uint64_t kSize = 40 * kMiB;

std::string FirstBytes(const std::string& path, size_t count) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(count, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

class DeviceFileTest : public ::testing::Test {
 protected:
  Result<DeviceFile> Open(uint64_t size = kSize) { return DeviceFile::Open({.path = path_, .size = size}); }
  void WriteFile(const std::string& bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  ScratchDirectory directory_;
  const std::string path_ = directory_.File("tier.img");
};

TEST_F(DeviceFileTest, MakesAFileThatIsAllocatedAndPrivate) {
  const auto file = Open();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->created());
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(static_cast<uint64_t>(about.st_size), kSize);
  EXPECT_GE(static_cast<uint64_t>(about.st_blocks) * 512, kSize) << "the file is sparse";
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(file->block_count(), (kSize - proto::kDiskDataOffset) / kBlockSize);
  EXPECT_LE(file->alignment(), kPageSize);
  EXPECT_NE(::fcntl(file->fd(), F_GETFL) & O_DIRECT, 0);
  EXPECT_NE(::fcntl(file->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST_F(DeviceFileTest, AMissingDeviceDoesNotExist) {
  const auto file = DeviceFile::Open({.path = "/dev/nosuch", .size = kSize, .allow_any_file_system = true});
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kNotFound);
  EXPECT_THAT(file.error().message, HasSubstr("/dev/nosuch does not exist"));
}

TEST_F(DeviceFileTest, FindsItsFileAgain) {
  Uuid uuid;
  {
    const auto file = Open();
    ASSERT_TRUE(file);
    uuid = UuidOf(file->superblock());
  }
  const auto again = Open(0);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(again->created());
  EXPECT_EQ(UuidOf(again->superblock()), uuid);
  EXPECT_EQ(again->superblock().device_size, kSize);
}

TEST_F(DeviceFileTest, SeesThatItsPathLeadsElsewhere) {
  const auto file = Open();
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->Misplaced(), "");
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".away").c_str()), 0);
  EXPECT_THAT(file->Misplaced(), HasSubstr(path_ + " was moved"));
  WriteFile("another");
  EXPECT_THAT(file->Misplaced(), HasSubstr("was moved"));
  ASSERT_EQ(::rename((path_ + ".away").c_str(), path_.c_str()), 0);
  EXPECT_EQ(file->Misplaced(), "") << "it is back";
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_THAT(file->Misplaced(), HasSubstr(path_ + " was deleted"));
}

TEST_F(DeviceFileTest, LeavesForeignContentUntouchedAndSaysWhatToType) {
  const std::string foreign = "precious" + std::string(100'000, 'x');
  WriteFile(foreign);
  const auto file = Open();
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kInvalid);
  EXPECT_THAT(file.error().message, HasSubstr("tierctl device format --force " + path_));
  EXPECT_EQ(FirstBytes(path_, 200'000), foreign);
}

TEST_F(DeviceFileTest, SeesForeignContentBehindAZeroStart) {
  std::string bytes(kSize, '\0');
  bytes[kMiB - 1] = 'x';
  WriteFile(bytes);
  EXPECT_EQ(Open().error().code, Code::kInvalid);
}

TEST_F(DeviceFileTest, TakesABlankFileAsItStands) {
  WriteFile(std::string(kSize, '\0'));
  const auto file = Open(0);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->created());
  EXPECT_EQ(file->superblock().device_size, kSize);
}

TEST_F(DeviceFileTest, AllocatesTheHolesOfASparseFile) {
  ASSERT_TRUE(RunCommand("truncate -s 40M " + path_));
  ASSERT_TRUE(Open(0));
  struct stat about{};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_GE(static_cast<uint64_t>(about.st_blocks) * 512, kSize);
}

TEST_F(DeviceFileTest, RefusesAFileThatIsTooSmall) {
  WriteFile(std::string(kMiB, '\0'));
  const auto file = Open(0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kInvalid);
  EXPECT_THAT(file.error().message, HasSubstr("1 MiB"));
}

TEST_F(DeviceFileTest, RefusesAFileCutShortSinceItWasMade) {
  (void)Open();
  ASSERT_EQ(::truncate(path_.c_str(), kSize / 2), 0);
  const auto file = Open(0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kCorrupt);
  EXPECT_THAT(file.error().message, AllOf(HasSubstr("cut short"), HasSubstr("tierctl device format --force " + path_)));
}

TEST_F(DeviceFileTest, SurvivesATornSuperblockCopy) {
  (void)Open();
  {
    std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(24);  // In the uuid.
    out.put('!');
  }
  const auto file = Open(0);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_FALSE(file->created());
}

TEST_F(DeviceFileTest, RefusesDamageToBothCopiesUntilForced) {
  const Uuid before = UuidOf(Open()->superblock());
  {
    std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
    for (const uint64_t offset : proto::kSuperblockOffsets) {
      out.seekp(static_cast<std::streamoff>(offset) + 24);
      out.put('!');
    }
  }
  const auto file = Open(0);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kCorrupt);
  EXPECT_THAT(file.error().message, HasSubstr("--force"));
  EXPECT_FALSE(DeviceFile::Format(path_, false));
  const auto formatted = DeviceFile::Format(path_, true);
  ASSERT_TRUE(formatted) << formatted.error().message;
  EXPECT_NE(UuidOf(formatted->superblock()), before);
}

TEST_F(DeviceFileTest, IsLockedWhileOpenAndNamesTheHolder) {
  const auto first = Open();
  ASSERT_TRUE(first);
  const auto second = Open();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kAlreadyExists);
  EXPECT_THAT(second.error().message, AllOf(HasSubstr(path_), HasSubstr("(process " + std::to_string(::getpid())),
                                            HasSubstr("ssd.devices"), HasSubstr("daemon.data_directory")));
  EXPECT_EQ(DeviceFile::Format(path_, true).error().code, Code::kAlreadyExists);
}

TEST_F(DeviceFileTest, IsFreeAgainOnceClosed) {
  (void)Open();
  EXPECT_TRUE(Open());
}

TEST_F(DeviceFileTest, StaysLockedByADuplicateThatAnotherProcessKeeps) {
  // The lock belongs to the description, which a kernel request or a kept descriptor shares.
  auto first = Open();
  ASSERT_TRUE(first);
  const int kept = ::dup(first->fd());
  int stop[2];
  ASSERT_EQ(::pipe(stop), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(stop[1]);
    (void)!::read(stop[0], &byte, 1);
    ::_exit(0);
  }
  ::close(stop[0]);
  EXPECT_EQ(Open().error().code, Code::kAlreadyExists);
  ::close(stop[1]);
  ::waitpid(child, nullptr, 0);
  ::close(kept);
}

TEST_F(DeviceFileTest, RemembersWhichIndexItBelongsTo) {
  const Uuid index = DrawUuid();
  {
    auto file = Open();
    ASSERT_TRUE(file);
    const uint64_t before = file->superblock().commit;
    for (uint64_t commit = 1; commit <= 5; ++commit) ASSERT_TRUE(file->CommitIndex(index, commit));
    EXPECT_EQ(file->superblock().commit, before + 6) << "the first one in both copies";
  }
  const auto again = Open(0);
  ASSERT_TRUE(again);
  EXPECT_EQ(std::memcmp(again->superblock().index_uuid, index.data(), index.size()), 0);
  EXPECT_EQ(again->superblock().index_commit, 5u);
}

// The other copy counts then.
TEST_F(DeviceFileTest, BelongsToItsIndexThoughTheNewestCopyIsDamaged) {
  const Uuid index = DrawUuid();
  for (const Uuid& named : {index, Uuid{}}) {
    uint64_t commit = 0;
    {
      auto file = Open();
      ASSERT_TRUE(file) << file.error().message;
      ASSERT_TRUE(file->CommitIndex(named, named == Uuid{} ? 0 : 7));
      commit = file->superblock().commit;
    }
    {
      std::fstream out(path_, std::ios::binary | std::ios::in | std::ios::out);
      out.seekp(static_cast<std::streamoff>(CopyOffset(commit)) + 24);  // In the uuid.
      out.put('!');
    }
    const auto again = Open();
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(std::memcmp(again->superblock().index_uuid, named.data(), named.size()), 0);
  }
}

TEST_F(DeviceFileTest, WithoutANameLeavesNothingBehind) {
  {
    const auto file = DeviceFile::Open({.path = directory_.path(), .size = kSize, .private_file = true});
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->private_file());
    EXPECT_EQ(CommandLine("ls -A " + directory_.path()), "");
    const auto other = DeviceFile::Open({.path = directory_.path(), .size = kSize, .private_file = true});
    EXPECT_TRUE(other) << "two private daemons may share a directory";
  }
  EXPECT_EQ(CommandLine("ls -A " + directory_.path()), "");
}

TEST_F(DeviceFileTest, LeavesNoFileBehindWhenThereIsNoRoom) {
  const auto file = Open(uint64_t{1} << 50);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, Code::kNoSpace);
  EXPECT_THAT(file.error().message, HasSubstr("1024 TiB"));
  EXPECT_NE(::access(path_.c_str(), F_OK), 0);
}

TEST_F(DeviceFileTest, RefusesTmpfsWithTheReason) {
  const auto file = DeviceFile::Open({.path = "/dev/shm/tier-storage-test.img", .size = kSize});
  if (file) GTEST_SKIP() << "needs tmpfs: /dev/shm is something else";
  EXPECT_EQ(file.error().code, Code::kInvalid);
  EXPECT_THAT(file.error().message, HasSubstr("tmpfs"));
  EXPECT_NE(::access("/dev/shm/tier-storage-test.img", F_OK), 0);
}

TEST_F(DeviceFileTest, RefusesADirectoryAndAPathThatLeadsNowhere) {
  EXPECT_EQ(DeviceFile::Open({.path = directory_.path()}).error().code, Code::kInvalid);
  EXPECT_EQ(DeviceFile::Open({.path = directory_.File("no/such/file"), .size = kSize}).error().code, Code::kNotFound);
  EXPECT_EQ(DeviceFile::Open({.path = "/dev/null"}).error().code, Code::kInvalid);
}

TEST_F(DeviceFileTest, DescribesWithoutTouchingOrLocking) {
  EXPECT_EQ(DeviceFile::ReadSuperblock(path_).error().code, Code::kNotFound);
  const auto file = Open();
  const auto described = DeviceFile::ReadSuperblock(path_);
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_EQ(UuidOf(*described), UuidOf(file->superblock()));
}

TEST_F(DeviceFileTest, FormatsABlankFileWithoutForceAndItsOwnOnlyWithIt) {
  WriteFile(std::string(kSize, '\0'));
  Uuid uuid;
  {
    const auto first = DeviceFile::Format(path_, false);
    ASSERT_TRUE(first) << first.error().message;
    uuid = UuidOf(first->superblock());
  }
  const auto again = DeviceFile::Format(path_, false);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kInvalid);
  EXPECT_THAT(again.error().message, HasSubstr(FormatUuid(uuid)));
  EXPECT_TRUE(DeviceFile::Format(path_, true));
}

// A loop device over a file, gone at the end of the test.
class LoopDeviceTest : public DeviceFileTest {
 protected:
  void SetUp() override {
    if (!IsRoot()) GTEST_SKIP() << "needs root: makes a loop device";
    ASSERT_TRUE(RunCommand("truncate -s 40M " + path_));
    loop_ = CommandLine("losetup -f --show --direct-io=on " + path_);
    if (loop_.empty()) GTEST_SKIP() << "needs loop devices: losetup -f found none";
    cleanup_.Add("losetup -d " + loop_);
  }
  std::string loop_;
  Cleanup cleanup_;
};

TEST_F(LoopDeviceTest, IsFormattedFoundAgainAndLocked) {
  {
    const auto device = DeviceFile::Open({.path = loop_});
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_TRUE(device->block_device());
    EXPECT_TRUE(device->created());
    EXPECT_EQ(device->superblock().device_size, kSize);
    EXPECT_EQ(DeviceFile::Open({.path = loop_}).error().code, Code::kAlreadyExists);
  }
  const auto again = DeviceFile::Open({.path = loop_});
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_FALSE(again->created());
}

TEST_F(LoopDeviceTest, WithAFileSystemOnItIsForeign) {
  if (!HasTool("mkfs.ext4")) GTEST_SKIP() << "needs mkfs.ext4: it is not installed";
  ASSERT_TRUE(RunCommand("mkfs.ext4 -F -q " + loop_));
  const std::string before = FirstBytes(loop_, kMiB);
  const auto device = DeviceFile::Open({.path = loop_});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Code::kInvalid);
  EXPECT_EQ(FirstBytes(loop_, kMiB), before);
}

TEST_F(LoopDeviceTest, WithAFileSystemMadeOverOursIsForeignToo) {
  if (!HasTool("mkfs.ext4")) GTEST_SKIP() << "needs mkfs.ext4: it is not installed";
  ASSERT_TRUE(DeviceFile::Open({.path = loop_}));
  ASSERT_TRUE(RunCommand("mkfs.ext4 -F -q " + loop_));
  EXPECT_EQ(DeviceFile::Open({.path = loop_}).error().code, Code::kInvalid);
}

TEST_F(LoopDeviceTest, ThatIsMountedIsInUse) {
  if (!HasTool("mkfs.ext4")) GTEST_SKIP() << "needs mkfs.ext4: it is not installed";
  const std::string mount_point = directory_.File("mnt");
  ASSERT_TRUE(RunCommand("mkfs.ext4 -F -q " + loop_ + " && mkdir " + mount_point));
  if (!RunCommand("mount " + loop_ + " " + mount_point)) GTEST_SKIP() << "needs mount: this container may not";
  cleanup_.Add("umount " + mount_point);
  const auto device = DeviceFile::Open({.path = loop_});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, Code::kAlreadyExists);
  EXPECT_THAT(device.error().message, AllOf(HasSubstr(loop_), HasSubstr("mounted"), HasSubstr("ssd.devices")));
  EXPECT_EQ(DeviceFile::Format(loop_, true).error().code, Code::kAlreadyExists);
}

}  // namespace
}  // namespace tier::storage
