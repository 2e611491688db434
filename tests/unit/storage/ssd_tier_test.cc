// The tier as main() opens it: real files, both I/O modes, tools, and the bond between index and devices.
#include "daemon/storage/ssd_tier.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/device_file.h"
#include "tests/support/proto/thread_shortage.h"
#include "tests/support/storage/scratch.h"
#include "tests/support/storage/ssd_tier_fixture.h"
#include "tests/support/storage/without_memory_lock.h"

namespace tier::storage {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ScratchDirectory;
using testing::WindowMemory;
using testing::WithoutMemoryLock;

constexpr WindowIndex kWindow{0};
constexpr WindowIndex kOtherWindow{1};
constexpr int kWaitMs = 30'000;

class SsdTierTest : public testing::SsdTierFixture {};

std::map<uint64_t, TransferResult> Finish(SsdTier* tier) {
  TransferPort& port = tier->transfers();
  port.Submit();
  std::vector<TransferResult> results;
  port.Poll(&results);
  while (port.inflight() != 0) {
    if (!testing::WaitReadable(tier->completion_fd(), kWaitMs)) break;
    tier->ClearWakeup();
    port.Poll(&results);
  }
  EXPECT_EQ(port.inflight(), 0u) << "nothing came for 30 s";
  std::map<uint64_t, TransferResult> by_cookie;
  for (const TransferResult& result : results) by_cookie[result.cookie] = result;
  return by_cookie;
}

// Returns when the devices have given up the window's memory.
void RemoveWindow(SsdTier* tier, WindowIndex window = kWindow) {
  TransferPort& port = tier->transfers();
  port.RemoveWindow(window);
  std::vector<WindowIndex> removed;
  port.TakeRemoved(&removed);
  while (removed.empty() && testing::WaitReadable(tier->completion_fd(), kWaitMs)) {
    tier->ClearWakeup();
    port.TakeRemoved(&removed);
  }
  EXPECT_EQ(removed, std::vector{window});
}

constexpr std::string_view kManifest = "manifest";

void Persist(SsdTier* tier) {
  const auto bytes = std::as_bytes(std::span(kManifest));
  tier->manifests()->StartPut(1, "1000/job", {bytes.begin(), bytes.end()}, {});
  std::vector<ManifestResult> results;
  tier->manifests()->Poll(&results);
  while (results.empty() && testing::WaitReadable(tier->completion_fd(), kWaitMs)) {
    tier->ClearWakeup();
    tier->manifests()->Poll(&results);
  }
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].code, Code::kOk) << results[0].message;
}

// Fills a window, writes it as extents of many sizes, forgets it, reads it back and compares.
void ExpectRoundTrip(SsdTier* tier) {
  const WindowMemory memory(24 * kMiB);
  const base::GuardedRange guard(memory.data(), memory.size());
  memory.Fill(42);
  const std::vector<std::byte> before(memory.data(), memory.data() + memory.size());
  TransferPort& port = tier->transfers();
  port.AddWindow(kWindow, memory.data(), memory.size());
  std::vector<Transfer> transfers;
  uint64_t at = 0;
  for (const uint32_t length : {2097152u, 2097152u, 2097152u, 5000u, 1u, 4096u, 65536u, 65537u, 2097151u, 1000000u}) {
    const auto extent = tier->extents().Allocate(static_cast<uint32_t>(PagesFor(length)));
    ASSERT_TRUE(extent) << extent.error().message;
    transfers.push_back({.cookie = transfers.size(),
                         .extent = *extent,
                         .window = kWindow,
                         .memory = memory.data() + at,
                         .length = length});
    at += PagesFor(length) * kPageSize;
  }
  for (const Transfer& transfer : transfers) port.Start(transfer);
  for (const auto& [cookie, result] : Finish(tier)) {
    ASSERT_EQ(result.outcome, TransferOutcome::kDone) << result.error_number;
    transfers[cookie].crc = result.crc;
  }
  std::memset(memory.data(), 0x77, memory.size());
  for (Transfer& transfer : transfers) {
    transfer.direction = Direction::kRead;
    port.Start(transfer);
  }
  for (const auto& [cookie, result] : Finish(tier)) ASSERT_EQ(result.outcome, TransferOutcome::kDone) << cookie;
  for (const Transfer& transfer : transfers) {
    EXPECT_EQ(std::memcmp(transfer.memory, before.data() + (transfer.memory - memory.data()), transfer.length), 0);
    tier->extents().Free(transfer.extent);
  }
  RemoveWindow(tier);
}

TEST_F(SsdTierTest, MovesBytesThereAndBack) {
  const auto tier = Open(Options());
  ASSERT_NE(tier, nullptr);
  ExpectRoundTrip(tier.get());
  EXPECT_GT(tier->transfers().traffic(0).written_bytes, 9 * kMiB);
  EXPECT_EQ(tier->transfers().traffic(0).errors, 0u);
}

TEST_F(SsdTierTest, MovesTheSameBytesByThreads) {
  SsdTierOptions options = Options();
  options.io = IoChoice::kThreads;
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->io_mode(), IoMode::kThreads);
  EXPECT_NE(tier->io_mode_reason(), "");
  EXPECT_FALSE(tier->pinned());
  EXPECT_NE(tier->unpinned_reason(), "");
  ExpectRoundTrip(tier.get());
}

TEST_F(SsdTierTest, StripesOverSeveralDevices) {
  SsdTierOptions options = Options();
  options.devices.push_back({.path = directory_.path(), .size = kSize, .private_file = true});
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  ASSERT_EQ(tier->device_count(), 2);
  ExpectRoundTrip(tier.get());
  EXPECT_GT(tier->transfers().traffic(0).written_bytes, 0u);
  EXPECT_GT(tier->transfers().traffic(1).written_bytes, 0u);
}

TEST_F(SsdTierTest, WorksUnpinnedWithoutTheRightToLockMemory) {
  const WithoutMemoryLock ordinary;
  const auto tier = Open(Options());
  ASSERT_NE(tier, nullptr);
  if (tier->io_mode() != IoMode::kUring) GTEST_SKIP() << "needs io_uring: " << tier->io_mode_reason();
  EXPECT_TRUE(tier->pinned()) << tier->unpinned_reason();
  ExpectRoundTrip(tier.get());
  const WindowMemory memory(24 * kMiB);
  tier->transfers().AddWindow(kWindow, memory.data(), memory.size());
  tier->transfers().Start(
      {.extent = *tier->extents().Allocate(1), .window = kWindow, .memory = memory.data(), .length = kPageSize});
  EXPECT_EQ(Finish(tier.get()).at(0).outcome, TransferOutcome::kDone);
  EXPECT_FALSE(tier->pinned()) << "24 MiB were registered under a limit of 1 MiB";
  EXPECT_THAT(tier->unpinned_reason(), HasSubstr("RLIMIT_MEMLOCK"));
  RemoveWindow(tier.get());
  EXPECT_TRUE(tier->pinned()) << "no window is left that is not registered";
}

TEST_F(SsdTierTest, DescribesItsDevices) {
  const auto tier = Open(Options());
  ASSERT_NE(tier, nullptr);
  const SsdDeviceDescription& device = tier->device(0);
  EXPECT_EQ(device.path, directory_.File("tier.img"));
  EXPECT_EQ(device.uuid.size(), 36u);
  EXPECT_EQ(device.size, kSize);
  EXPECT_EQ(device.capacity, kSize - 2 * kMiB);
  EXPECT_EQ(device.capacity, tier->extents().total().capacity);
  EXPECT_TRUE(device.created);
  EXPECT_FALSE(device.block_device);
}

TEST_F(SsdTierTest, WithoutDevicesHasNoRoomButStands) {
  const auto tier = Open({});
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->extents().Allocate(1).error().code, Code::kNoSpace);
  EXPECT_EQ(tier->manifests(), nullptr);
}

TEST_F(SsdTierTest, CanBeOpenedAgainAtOnce) {
  std::string uuid;
  for (int i = 0; i < 5; ++i) {
    const auto tier = Open(Options());
    ASSERT_NE(tier, nullptr) << "round " << i;
    EXPECT_TRUE(i == 0 || tier->device(0).uuid == uuid);
    uuid = tier->device(0).uuid;
    ExpectRoundTrip(tier.get());
  }
}

TEST_F(SsdTierTest, IsOpenedByMainUsedByTheEngineThreadAndClosedByMain) {
  for (const IoChoice io : {IoChoice::kAuto, IoChoice::kThreads}) {
    SsdTierOptions options = Options();
    options.io = io;
    for (int i = 0; i < 3; ++i) {
      auto tier = Open(options);
      ASSERT_NE(tier, nullptr) << "round " << i;
      std::thread engine([&] { ExpectRoundTrip(tier.get()); });
      engine.join();
    }
  }
}

TEST_F(SsdTierTest, RefusesADeviceInUse) {
  const auto tier = Open(Options());
  EXPECT_EQ(Refusal(Options()), Code::kAlreadyExists);
}

TEST_F(SsdTierTest, RefusesTwoCopiesOfOneDevice) {
  {
    const auto tier = Open(Options());
  }
  ASSERT_TRUE(testing::RunCommand("cp " + directory_.File("tier.img") + " " + directory_.File("copy.img")));
  SsdTierOptions options = Options();
  options.devices.push_back({.path = directory_.File("copy.img")});
  const auto tier = SsdTier::Open(options, *workers_);
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code, Code::kInvalid) << "another try finds the same";
  EXPECT_THAT(tier.error().message, AllOf(HasSubstr("tier.img"), HasSubstr("copy.img")));
}

TEST_F(SsdTierTest, IsRefusedWhereTheSystemGivesNoThreadsAndLeavesTheDeviceFree) {
  SsdTierOptions options = Options();
  for (const IoChoice io : {IoChoice::kAuto, IoChoice::kThreads}) {
    options.io = io;
    for (const bool is_private : {false, true}) {  // A private file is opened without a thread, so its I/O lacks one.
      options.devices = Options().devices;
      if (is_private) options.devices = {{.path = directory_.path(), .size = kSize, .private_file = true}};
      {
        const tier::testing::ThreadShortage shortage;
        EXPECT_EQ(Refusal(options), Code::kNoMemory);
      }
      EXPECT_NE(Open(options), nullptr);
    }
  }
}

TEST_F(SsdTierTest, RefusesOptionsThatCannotBe) {
  SsdTierOptions deep = Options();
  deep.io_depth = kWindowsMax;
  EXPECT_EQ(Refusal(deep), Code::kInvalid);
  SsdTierOptions none = Options();
  none.inflight_max = 0;
  EXPECT_EQ(Refusal(none), Code::kInvalid);
  SsdTierOptions merge = Options();
  merge.merge_bytes_max = 4096;
  EXPECT_EQ(Refusal(merge), Code::kInvalid);
  SsdTierOptions many = Options();
  many.devices.resize(100);
  EXPECT_EQ(Refusal(many), Code::kInvalid);
}

TEST_F(SsdTierTest, KeepsManifestsInItsDataDirectory) {
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  {
    const auto tier = Open(options);
    ASSERT_NE(tier->manifests(), nullptr);
    Persist(tier.get());
  }
  const auto tier = Open(options);
  ASSERT_NE(tier, nullptr);
  EXPECT_EQ(tier->manifests()->Load("1000/job")->size(), kManifest.size());
}

TEST_F(SsdTierTest, AFailedStartLeavesNoFileThatItMade) {
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  ASSERT_EQ(::mkdir(directory_.File("index.mdb").c_str(), 0700), 0);  // There can be no index.
  EXPECT_EQ(Refusal(options), Code::kInvalid);
  EXPECT_NE(::access(directory_.File("tier.img").c_str(), F_OK), 0);
  ASSERT_EQ(::rmdir(directory_.File("index.mdb").c_str()), 0);
  Persist(Open(options).get());
  ASSERT_EQ(::unlink(directory_.File("index.mdb").c_str()), 0);
  EXPECT_EQ(Refusal(options), Code::kCorrupt);
  EXPECT_EQ(::access(directory_.File("tier.img").c_str(), F_OK), 0) << "it was there before";
}

TEST_F(SsdTierTest, RefusesItsDeviceWithAnotherIndex) {
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  Persist(Open(options).get());
  ASSERT_EQ(::unlink(directory_.File("index.mdb").c_str()), 0);
  EXPECT_EQ(Refusal(options), Code::kCorrupt);
  ASSERT_TRUE(FormatDevice(directory_.File("tier.img"), true));
  EXPECT_EQ(Refusal(options), Code::kOk) << "a formatted device starts empty";
}

// A data directory that is new, or not mounted.
TEST_F(SsdTierTest, MakesALostIndexAgainWhereNothingIsPersistedAndSaysSo) {
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  std::string uuid;
  {
    const auto tier = Open(options);
    EXPECT_EQ(tier->index_note(), "") << "the device is new too";
    uuid = tier->device(0).uuid;
  }
  EXPECT_EQ(Open(options)->index_note(), "");
  ASSERT_EQ(::unlink(directory_.File("index.mdb").c_str()), 0);
  {
    const auto tier = Open(options);
    ASSERT_NE(tier, nullptr);
    EXPECT_THAT(tier->index_note(),
                AllOf(HasSubstr("there was no index " + directory_.File("index.mdb")),
                      HasSubstr(directory_.path() + " is not new, it may not be mounted"), HasSubstr("quotas")));
    EXPECT_EQ(tier->device(0).uuid, uuid) << "it was not formatted";
    Persist(tier.get());
  }
  EXPECT_EQ(Open(options)->index_note(), "");
  options.data_dir.clear();
  EXPECT_EQ(Refusal(options), Code::kInvalid) << "now something is persisted there";
}

TEST_F(SsdTierTest, RefusesADeviceOfAnIndexWithoutADataDirectory) {
  SsdTierOptions options = Options();
  options.data_dir = directory_.path();
  Persist(Open(options).get());
  const std::string path = directory_.File("tier.img");
  const auto label = DeviceFile::ReadSuperblock(path);
  ASSERT_TRUE(label);
  Uuid index{};
  std::copy_n(label->index_uuid, index.size(), index.begin());
  options.data_dir.clear();
  const auto refused = SsdTier::Open(options, *workers_);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kInvalid);
  EXPECT_THAT(refused.error().message,
              AllOf(HasSubstr(path), HasSubstr(FormatUuid(index)), HasSubstr("tierctl device format --force " + path)));
  ASSERT_TRUE(FormatDevice(path, true));
  EXPECT_EQ(Refusal(options), Code::kOk) << "a formatted device starts empty";
}

TEST_F(SsdTierTest, LetsToolsFormatAndDescribe) {
  const std::string path = directory_.File("tool.img");
  EXPECT_EQ(DescribeDevice(path).error().code, Code::kNotFound);
  ASSERT_TRUE(testing::RunCommand("truncate -s 64M " + path));
  EXPECT_EQ(DescribeDevice(path).error().code, Code::kNotFound);
  const auto formatted = FormatDevice(path, false);
  ASSERT_TRUE(formatted) << formatted.error().message;
  const auto described = DescribeDevice(path);
  ASSERT_TRUE(described);
  EXPECT_EQ(described->uuid, formatted->uuid);
  EXPECT_EQ(described->size, kSize);
  EXPECT_EQ(FormatDevice(path, false).error().code, Code::kInvalid);
  EXPECT_TRUE(FormatDevice(path, true));
  ASSERT_TRUE(testing::RunCommand("echo foreign > " + path));
  EXPECT_EQ(DescribeDevice(path).error().code, Code::kInvalid);
}

TEST_F(SsdTierTest, ReportsAFileCutShortBeneathItAsADeviceError) {
  const auto tier = Open(Options());
  const WindowMemory memory(4 * kMiB);
  const base::GuardedRange guard(memory.data(), memory.size());
  TransferPort& port = tier->transfers();
  port.AddWindow(kWindow, memory.data(), memory.size());
  const Extent extent = *tier->extents().Allocate(512);
  Transfer transfer{.extent = extent, .window = kWindow, .memory = memory.data(), .length = kBlockSize};
  port.Start(transfer);
  transfer.crc = Finish(tier.get()).at(0).crc;
  ASSERT_EQ(::truncate(directory_.File("tier.img").c_str(), static_cast<off_t>(3 * kMiB)), 0);
  transfer.direction = Direction::kRead;
  port.Start(transfer);
  const TransferResult result = Finish(tier.get()).at(0);
  EXPECT_EQ(result.outcome, TransferOutcome::kDeviceError);
  EXPECT_NE(result.error_number, 0);
  port.RemoveWindow(kWindow);
}

TEST_F(SsdTierTest, BlamesAPunchedWindowAndKeepsTheExtent) {
  const auto tier = Open(Options());
  const WindowMemory memory(4 * kMiB);
  const base::GuardedRange guard(memory.data(), memory.size());
  memory.Fill(1);
  const std::vector<std::byte> before(memory.data(), memory.data() + kBlockSize);
  TransferPort& port = tier->transfers();
  port.AddWindow(kWindow, memory.data(), memory.size());
  Transfer transfer{
      .extent = *tier->extents().Allocate(512), .window = kWindow, .memory = memory.data(), .length = kBlockSize};
  port.Start(transfer);
  transfer.crc = Finish(tier.get()).at(0).crc;
  if (!tier->pinned()) GTEST_SKIP() << "needs registered buffers: " << tier->unpinned_reason();
  // What the client's own descriptor lets it do; one page is enough.
  ASSERT_EQ(::fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * kPageSize, kPageSize), 0);
  transfer.direction = Direction::kRead;
  port.Start(transfer);
  EXPECT_EQ(Finish(tier.get()).at(0).outcome, TransferOutcome::kWindowFault);
  EXPECT_EQ(port.traffic(0).window_faults, 1u);
  EXPECT_EQ(port.traffic(0).errors + port.traffic(0).corrupt, 0u);
  RemoveWindow(tier.get());
  port.AddWindow(kWindow, memory.data(), memory.size());
  port.Start(transfer);
  EXPECT_EQ(Finish(tier.get()).at(0).outcome, TransferOutcome::kDone) << "the copy on the device is intact";
  EXPECT_EQ(std::memcmp(memory.data(), before.data(), kBlockSize), 0);
  port.RemoveWindow(kWindow);
}

// Two blocks of a window, of which the client punched a page of the first and filled it again before they were written.
struct PunchedWrite {
  explicit PunchedWrite(SsdTier* tier) : port(tier->transfers()) {
    memory.Fill(1);
    port.AddWindow(kWindow, memory.data(), memory.size());
    // Another window comes and goes: this one is registered by then.
    const WindowMemory other(kPageSize);
    port.AddWindow(kOtherWindow, other.data(), other.size());
    RemoveWindow(tier, kOtherWindow);
    EXPECT_EQ(::fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100 * kPageSize, kPageSize), 0);
    std::memset(memory.data() + 100 * kPageSize, 7, kPageSize);
    for (uint64_t block = 0; block < 2; ++block) {
      transfers.push_back({.cookie = block,
                           .extent = *tier->extents().Allocate(512),
                           .window = kWindow,
                           .memory = memory.data() + block * kBlockSize,
                           .length = kBlockSize});
      port.Start(transfers.back());
    }
    for (const auto& [block, result] : Finish(tier)) {
      EXPECT_EQ(result.outcome, TransferOutcome::kDone) << block;
      transfers[block].crc = result.crc;
      transfers[block].direction = Direction::kRead;
    }
  }
  ~PunchedWrite() { port.RemoveWindow(kWindow); }

  TransferPort& port;
  WindowMemory memory{4 * kMiB};
  base::GuardedRange guard{memory.data(), memory.size()};
  std::vector<Transfer> transfers;
};

// Of the write itself nothing can be told (transfer_engine.h).
TEST_F(SsdTierTest, FindsAWriteOutOfAPunchedWindowCorruptAndItsNeighbourWhole) {
  const auto tier = Open(Options());
  PunchedWrite written(tier.get());
  if (!tier->pinned()) GTEST_SKIP() << "needs registered buffers: " << tier->unpinned_reason();
  const std::vector<std::byte> neighbour(written.memory.data() + kBlockSize, written.memory.data() + 2 * kBlockSize);
  for (int registration = 0; registration < 2; ++registration) {
    std::memset(written.memory.data(), 0, written.memory.size());  // Others' bytes were there meanwhile.
    for (const Transfer& transfer : written.transfers) written.port.Start(transfer);
    const auto results = Finish(tier.get());
    EXPECT_EQ(results.at(0).outcome, TransferOutcome::kCorrupt) << "never the old page for the new one";
    EXPECT_EQ(results.at(1).outcome, TransferOutcome::kDone);
    EXPECT_EQ(std::memcmp(written.memory.data() + kBlockSize, neighbour.data(), kBlockSize), 0);
    RemoveWindow(tier.get());
    written.port.AddWindow(kWindow, written.memory.data(), written.memory.size());
  }
  EXPECT_EQ(written.port.traffic(0).corrupt, 2u);
  EXPECT_EQ(written.port.traffic(0).window_faults + written.port.traffic(0).errors, 0u);
}

TEST_F(SsdTierTest, WritesWhatFillsAHoleWhereNothingIsRegistered) {
  SsdTierOptions options = Options();
  options.io = IoChoice::kThreads;
  const auto tier = Open(options);
  PunchedWrite written(tier.get());
  const std::vector<std::byte> before(written.memory.data(), written.memory.data() + written.memory.size());
  std::memset(written.memory.data(), 0, written.memory.size());
  for (const Transfer& transfer : written.transfers) written.port.Start(transfer);
  for (const auto& [block, result] : Finish(tier.get())) EXPECT_EQ(result.outcome, TransferOutcome::kDone) << block;
  EXPECT_EQ(std::memcmp(written.memory.data(), before.data(), before.size()), 0);
}

TEST_F(SsdTierTest, NoticesAByteFlippedOnTheDevice) {
  const auto tier = Open(Options());
  const WindowMemory memory(4 * kMiB);
  const base::GuardedRange guard(memory.data(), memory.size());
  memory.Fill(1);
  TransferPort& port = tier->transfers();
  port.AddWindow(kWindow, memory.data(), memory.size());
  Transfer transfer{
      .extent = *tier->extents().Allocate(512), .window = kWindow, .memory = memory.data(), .length = kBlockSize};
  port.Start(transfer);
  const TransferResult written = Finish(tier.get()).at(0);
  transfer.crc = written.crc;
  {
    const proto::FileDescriptor file(::open(directory_.File("tier.img").c_str(), O_WRONLY));
    const char other = static_cast<char>(~std::to_integer<int>(memory.data()[1'000'000]));
    ASSERT_EQ(::pwrite(file.get(), &other, 1, static_cast<off_t>(written.device_offset + 1'000'000)), 1);
    ASSERT_EQ(::fsync(file.get()), 0);
  }
  transfer.direction = Direction::kRead;
  port.Start(transfer);
  const TransferResult result = Finish(tier.get()).at(0);
  EXPECT_EQ(result.outcome, TransferOutcome::kCorrupt);
  EXPECT_EQ(result.device_offset, written.device_offset);
  EXPECT_EQ(port.traffic(0).corrupt, 1u);
  EXPECT_EQ(port.traffic(0).errors, 0u);
  port.RemoveWindow(kWindow);
}

}  // namespace
}  // namespace tier::storage
