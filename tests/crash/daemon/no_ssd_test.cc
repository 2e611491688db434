// A daemon that was told no size and has no place for its SSD file serves from RAM; one that was told is refused.
#include <fcntl.h>
#include <sys/mount.h>
#include <sysexits.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/mapping.h"
#include "tests/crash/daemon/daemon_process.h"
#include "tests/crash/daemon/trainer.h"

namespace tier::crash {
namespace {

using ::testing::HasSubstr;

// That many MiB in memory, for as long as this lives. Only root may mount it.
class SmallFileSystem {
 public:
  SmallFileSystem(std::string path, int mebibytes) : path_(std::move(path)) {
    std::filesystem::create_directory(path_);
    const std::string size = "size=" + std::to_string(mebibytes) + "m";
    mounted_ = ::mount("tierd-test", path_.c_str(), "tmpfs", 0, size.c_str()) == 0;
  }
  SmallFileSystem(const SmallFileSystem&) = delete;
  SmallFileSystem& operator=(const SmallFileSystem&) = delete;
  ~SmallFileSystem() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

TEST(NoSsd, WithoutRoomForTheDefaultFileItServesFromRamAndSaysSo) {
  ScratchDirectory scratch;
  const SmallFileSystem disk(scratch / "data", 200);  // The index does not fit either.
  if (!disk.mounted()) GTEST_SKIP() << "needs root: mounts a small file system";
  const std::vector<std::string> arguments = {"--set", "ssd.file_size=0", "--set", "ssd.any_file_system=true"};
  {
    DaemonProcess daemon(scratch, {.arguments = arguments, .environment = {}, .uid = {}, .inherited = {}});
    EXPECT_TRUE(daemon.WaitReady()) << daemon.Output();
    EXPECT_THAT(daemon.status(), HasSubstr("no SSD tier, tensors stay in RAM: no room for an SSD file of 1 GiB"));
    EXPECT_THAT(daemon.Output(), HasSubstr("warning no SSD tier, tensors stay in RAM"));
    Trainer trainer(daemon, "train");
    EXPECT_EQ(trainer.Put(1, 8 * kMiB, 1).header.code, 0);
    EXPECT_TRUE(trainer.Holds(1, 1));
    EXPECT_EQ(trainer.Ask(proto::Op::kPersist, {}).header.code, static_cast<uint16_t>(Code::kDenied));
    EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
  }
  auto sized = SmallDaemon(scratch);
  sized.insert(sized.end(), {"--set", "ssd.file_size=1GiB", "--set", "ssd.any_file_system=true"});
  const auto refused = RunTierd(scratch, sized);
  EXPECT_EQ(refused.status, EX_CONFIG) << "a size that was asked for is not taken as a hint";
  EXPECT_THAT(refused.output, HasSubstr("lower ssd.file_size"));
}

TEST(NoSsd, AFileWithHolesThatADiskCannotFillIsNotLeftOut) {
  ScratchDirectory scratch;
  const SmallFileSystem disk(scratch / "data", 340);  // 256 MiB are the index's.
  if (!disk.mounted()) GTEST_SKIP() << "needs root: mounts a small file system";
  const std::vector<std::string> arguments = {"--set", "ssd.file_size=64MiB", "--set", "ssd.any_file_system=true"};
  {
    DaemonProcess daemon(scratch, {.arguments = arguments, .environment = {}, .uid = {}, .inherited = {}});
    ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
    EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
  }
  // As a copy that skips zeros leaves it; then something else takes the room.
  const auto file = [&](const char* name) {
    return proto::FileDescriptor(::open((scratch / name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  };
  ASSERT_EQ(::fallocate(file("data/tier.ssd").get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 16 << 20, 32 << 20),
            0);
  ASSERT_EQ(::fallocate(file("data/other").get(), 0, 0, 40 << 20), 0);
  auto unsized_file = SmallDaemon(scratch);
  unsized_file.insert(unsized_file.end(), {"--set", "ssd.file_size=0", "--set", "ssd.any_file_system=true"});
  const auto refused = RunTierd(scratch, unsized_file);
  EXPECT_EQ(refused.status, EX_CONFIG) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("preallocating 64"));
}

TEST(NoSsd, PrivateOneServesFromRamWhereItsPlaceCannotHoldAFile) {
  ScratchDirectory scratch;
  const std::vector<std::string> unplaced = {"--private", "--set", "daemon.data_directory=", "--set",
                                             "ssd.file_size=0"};
  // No directory can be made below a file, and /proc holds no file either.
  for (const std::string& place : {scratch / "output/below-a-file", std::string("/proc")}) {
    DaemonProcess daemon(
        scratch, {.arguments = unplaced, .environment = {{"XDG_STATE_HOME", place}}, .uid = {}, .inherited = {}});
    ASSERT_TRUE(daemon.WaitReady()) << daemon.Output();
    EXPECT_THAT(daemon.status(), HasSubstr("no SSD tier, tensors stay in RAM: ")) << place;
    Trainer trainer(daemon, "train");
    EXPECT_EQ(trainer.Put(1, 8 * kMiB, 1).header.code, 0);
    EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
  }
  auto placed = SmallDaemon(scratch);
  placed.insert(placed.end(), {"--private", "--set", "daemon.data_directory=/proc/tierd", "--set", "ssd.file_size=0"});
  EXPECT_EQ(RunTierd(scratch, placed).status, EX_CONFIG) << "a place that was named is not given up";
}

TEST(NoSsd, PrivateOneNeedsNoHomeThatItMayWrite) {
  ScratchDirectory scratch;
  std::optional<uid_t> user;
  std::filesystem::create_directory(scratch / "own");
  if (::geteuid() == 0) {  // Root has a place of its own.
    user = 12345;
    ASSERT_EQ(::chown((scratch / "own").c_str(), *user, *user), 0);
  }
  for (const char* home : {"", "/usr/games"}) {
    DaemonProcess daemon(
        scratch, {.arguments = {"--private", "--set", "daemon.data_directory=", "--set",
                                "daemon.socket_directory=" + scratch / "own/run", "--set", "ssd.any_file_system=true",
                                "--set", "ssd.file_size=64MiB"},  // Refused where no file can be made.
                  .environment = {{"XDG_STATE_HOME", ""}, {"HOME", home}, {"STATE_DIRECTORY", ""}},
                  .uid = user,
                  .inherited = {}});
    EXPECT_TRUE(daemon.WaitReady()) << home << ": " << daemon.Output();
    EXPECT_EQ(daemon.Stop(), 0) << daemon.Output();
  }
}

}  // namespace
}  // namespace tier::crash
