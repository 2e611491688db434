// Real faults of real devices under the whole tier: a full disk beneath a loop device, a backing file cut short, EIO
// by nbdkit. Each needs something of the machine and says by name what.
#include <cerrno>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/ssd_tier.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using testing::Cleanup;
using testing::CommandLine;
using testing::HasTool;
using testing::IsRoot;
using testing::RunCommand;
using testing::ScratchDirectory;
using testing::WindowMemory;

constexpr WindowIndex kWindow{1};
constexpr int kWaitMs = 60'000;

class DeviceFaultTest : public ::testing::TestWithParam<IoChoice> {
 protected:
  ~DeviceFaultTest() override { CloseTier(); }

  void SetUp() override {
    if (!IsRoot()) GTEST_SKIP() << "needs root: makes loop devices";
  }

  void OpenTier(const std::string& path, const std::string& data_dir = {}) {
    SsdTierOptions options;
    options.data_dir = data_dir;
    options.devices = {{.path = path}};
    options.io = GetParam();
    options.windows_max = 8;
    options.discard_at_format = false;
    options.allow_any_file_system = true;
    auto tier = SsdTier::Open(options, *workers_);
    if (!tier && tier.error().code == Code::kDenied) GTEST_SKIP() << "needs io_uring: " << tier.error().message;
    ASSERT_TRUE(tier) << tier.error().message;
    tier_ = std::move(*tier);
    tier_->transfers().AddWindow(kWindow, memory_.data(), memory_.size());
  }

  void CloseTier() {
    if (!tier_) return;
    tier_->transfers().RemoveWindow(kWindow);
    tier_.reset();
  }

  TransferResult Run(const Transfer& transfer) {
    TransferPort& port = tier_->transfers();
    port.Start(transfer);
    port.Submit();
    std::vector<TransferResult> results;
    port.Poll(&results);
    while (results.empty() && testing::WaitReadable(tier_->completion_fd(), kWaitMs)) {
      tier_->ClearWakeup();
      port.Poll(&results);
    }
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? TransferResult{} : results[0];
  }

  Transfer Block(Direction direction, uint32_t block, uint32_t crc = 0) {
    return {.cookie = block,
            .direction = direction,
            .extent = {.run = {.block = block, .page = 0, .pages = kPagesPerBlock}},
            .window = kWindow,
            .memory = memory_.data(),
            .length = kBlockSize,
            .crc = crc};
  }

  std::string MakeLoop(const std::string& file) {
    const std::string loop = CommandLine("losetup -f --show --direct-io=on " + file);
    if (!loop.empty()) cleanup_.Add("losetup -d " + loop);
    return loop;
  }

  // A loop device of 64 MiB whose reads and writes fail with EIO while the file `inject_` is there.
  void MakeFaultyLoop(std::string* loop) {
    for (const char* tool : {"nbdkit", "nbdfuse"}) {
      if (!HasTool(tool)) GTEST_SKIP() << "needs " << tool << ": it is not installed";
    }
    const std::string file = directory_.File("disk");
    const std::string socket = directory_.File("nbd.sock");
    ASSERT_TRUE(RunCommand("touch " + file));
    const std::string pids = directory_.File("pids");
    ASSERT_TRUE(RunCommand("nbdkit -U " + socket + " -P " + pids +
                           " --filter=error memory 64M error=EIO error-file=" + inject_ + " error-rate=100%"));
    cleanup_.Add("kill $(cat " + pids + ")");
    ASSERT_TRUE(RunCommand("nbdfuse " + file + " --unix " + socket + " & i=0; while [ $(stat -c %s " + file +
                           ") != 67108864 ] && [ $i -lt 100 ]; do sleep 0.1; i=$((i+1)); done; [ $i -lt 100 ]"))
        << "nbdfuse did not mount";
    cleanup_.Add("umount " + file);
    *loop = MakeLoop(file);
    if (loop->empty()) GTEST_SKIP() << "needs loop devices: losetup -f found none";
  }

  ManifestResult PutManifest() {
    tier_->manifests()->StartPut(1, "1000/job", std::vector<std::byte>(16), {});
    std::vector<ManifestResult> results;
    while (results.empty() && testing::WaitReadable(tier_->completion_fd(), kWaitMs)) {
      tier_->ClearWakeup();
      tier_->manifests()->Poll(&results);
    }
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? ManifestResult{.code = Code::kTimeout} : results[0];
  }

  ScratchDirectory directory_;
  const std::string inject_ = directory_.File("inject");
  Cleanup cleanup_;  // After the tier, before the directory.
  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(1, "test").value();
  WindowMemory memory_{kBlockSize};
  base::GuardedRange guard_{memory_.data(), memory_.size()};
  std::unique_ptr<SsdTier> tier_;
};

TEST_P(DeviceFaultTest, FullDiskBeneathALoopDeviceNeverLooksLikeSuccess) {
  // A sparse file on a 20 MiB tmpfs, behind a loop device that promises 64 MiB.
  const std::string small = directory_.File("small");
  ASSERT_TRUE(RunCommand("mkdir " + small));
  if (!RunCommand("mount -t tmpfs -o size=20m tmpfs " + small)) GTEST_SKIP() << "needs mount: this container may not";
  cleanup_.Add("umount " + small);
  ASSERT_TRUE(RunCommand("truncate -s 64M " + small + "/disk"));
  const std::string loop = CommandLine("losetup -f --show " + small + "/disk");
  if (loop.empty()) GTEST_SKIP() << "needs loop devices: losetup -f found none";
  cleanup_.Add("losetup -d " + loop);
  ASSERT_NO_FATAL_FAILURE(OpenTier(loop));
  memory_.Fill(1);
  int refused = 0;
  for (uint32_t block = 0; block < 30; ++block) {
    const TransferResult result = Run(Block(Direction::kWrite, block));
    if (result.outcome == TransferOutcome::kDone) continue;
    EXPECT_TRUE(result.outcome == TransferOutcome::kNoSpace || result.outcome == TransferOutcome::kDeviceError);
    EXPECT_TRUE(result.error_number == ENOSPC || result.error_number == EIO) << result.error_number;
    ++refused;
  }
  EXPECT_GE(refused, 20) << "20 MiB took more than ten blocks";
  CloseTier();
}

TEST_P(DeviceFaultTest, BackingFileCutShortIsADeviceErrorOnRead) {
  const std::string file = directory_.File("disk");
  ASSERT_TRUE(RunCommand("truncate -s 64M " + file));
  const std::string loop = MakeLoop(file);
  if (loop.empty()) GTEST_SKIP() << "needs loop devices: losetup -f found none";
  ASSERT_NO_FATAL_FAILURE(OpenTier(loop));
  memory_.Fill(2);
  const TransferResult near = Run(Block(Direction::kWrite, 0));
  const TransferResult far = Run(Block(Direction::kWrite, 20));
  ASSERT_EQ(far.outcome, TransferOutcome::kDone);
  ASSERT_EQ(::truncate(file.c_str(), 16 * kMiB), 0);
  EXPECT_EQ(Run(Block(Direction::kRead, 0, near.crc)).outcome, TransferOutcome::kDone);
  const TransferResult result = Run(Block(Direction::kRead, 20, far.crc));
  EXPECT_EQ(result.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(result.error_number, EIO);
  EXPECT_EQ(result.device_offset, (1 + 20) * kBlockSize);
  EXPECT_EQ(tier_->transfers().traffic(0).errors, 1u);
  CloseTier();
}

TEST_P(DeviceFaultTest, FileOnAFullFileSystemIsRefusedAtStartWithFigures) {
  if (!HasTool("mkfs.ext4")) GTEST_SKIP() << "needs mkfs.ext4: it is not installed";
  const std::string file = directory_.File("disk");
  const std::string mount_point = directory_.File("mnt");
  ASSERT_TRUE(RunCommand("truncate -s 96M " + file + " && mkfs.ext4 -F -q " + file + " && mkdir " + mount_point));
  if (!RunCommand("mount -o loop " + file + " " + mount_point)) GTEST_SKIP() << "needs mount: this container may not";
  cleanup_.Add("umount " + mount_point);
  (void)RunCommand("dd if=/dev/zero of=" + mount_point + "/filler bs=1M");
  SsdTierOptions options;
  options.devices = {{.path = mount_point + "/tier.img", .size = 40 * kMiB}};
  const auto tier = SsdTier::Open(options, *workers_);
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code, Code::kNoSpace);
  EXPECT_THAT(tier.error().message, ::testing::HasSubstr("40 MiB"));
  EXPECT_NE(::access((mount_point + "/tier.img").c_str(), F_OK), 0);
}

TEST_P(DeviceFaultTest, IoErrorsOfTheDeviceAreReportedAndPassWhenItHeals) {
  std::string loop;
  MakeFaultyLoop(&loop);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_NO_FATAL_FAILURE(OpenTier(loop));
  memory_.Fill(3);
  const uint32_t crc = Run(Block(Direction::kWrite, 3)).crc;
  ASSERT_TRUE(RunCommand("touch " + inject_));
  EXPECT_EQ(Run(Block(Direction::kWrite, 4)).outcome, TransferOutcome::kDeviceError);
  const TransferResult read = Run(Block(Direction::kRead, 3, crc));
  EXPECT_EQ(read.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(read.error_number, EIO);
  ASSERT_EQ(::unlink(inject_.c_str()), 0);
  EXPECT_EQ(Run(Block(Direction::kRead, 3, crc)).outcome, TransferOutcome::kDone);
  EXPECT_EQ(Run(Block(Direction::kWrite, 4)).outcome, TransferOutcome::kDone);
  EXPECT_EQ(tier_->transfers().traffic(0).errors, 2u);
  CloseTier();
}

TEST_P(DeviceFaultTest, ManifestCountsThoughItsDeviceTakesNoSuperblockAndGetsItLater) {
  std::string loop;
  MakeFaultyLoop(&loop);
  if (IsSkipped() || HasFatalFailure()) return;
  ASSERT_NO_FATAL_FAILURE(OpenTier(loop, directory_.path()));
  ASSERT_TRUE(RunCommand("touch " + inject_));
  EXPECT_EQ(PutManifest().code, Code::kIoError) << "the first one has to be told from none, should the index be lost";
  EXPECT_FALSE(tier_->manifests()->Load("1000/job"));
  ASSERT_EQ(::unlink(inject_.c_str()), 0);
  EXPECT_EQ(PutManifest().code, Code::kOk);
  ASSERT_TRUE(RunCommand("touch " + inject_));
  const ManifestResult result = PutManifest();
  EXPECT_EQ(result.code, Code::kOk) << result.message;
  EXPECT_THAT(tier_->superblock_failure(), ::testing::HasSubstr(loop));
  EXPECT_TRUE(tier_->manifests()->Load("1000/job"));
  ASSERT_EQ(::unlink(inject_.c_str()), 0);
  EXPECT_EQ(PutManifest().code, Code::kOk);
  EXPECT_EQ(tier_->superblock_failure(), "");
  CloseTier();
}

INSTANTIATE_TEST_SUITE_P(Modes, DeviceFaultTest, ::testing::Values(IoChoice::kUring, IoChoice::kThreads),
                         [](const auto& param_info) {
                           return param_info.param == IoChoice::kUring ? "Uring" : "Threads";
                         });

}  // namespace
}  // namespace tier::storage
