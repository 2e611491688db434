// The path of a transfer over a scripted device: what is merged, what is retried, and which outcome each fault becomes.
#include "daemon/storage/transfer_engine.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "daemon/base/fault_guard.h"
#include "daemon/storage/checksum.h"
#include "tests/support/storage/fake_device.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using ::testing::ElementsAre;
using testing::FakeDevice;
using testing::IoFault;
using testing::WindowMemory;

constexpr WindowIndex kWindow{2};
constexpr uint64_t kDataOffset = 2 * kMiB;
constexpr uint64_t kCapacity = 8 * kBlockSize;
constexpr uint64_t kWindowSize = 5 * kBlockSize;
constexpr int kWaitMs = 30'000;

// The end of the probe that is under way.
ProbeResult ProbedBy(TransferEngine& engine) {
  std::vector<TransferResult> none;
  std::vector<ProbeResult> probed;
  for (int polls = 0; polls < 3 && probed.empty(); ++polls) {
    engine.Poll(&none);
    engine.TakeProbed(&probed);
  }
  EXPECT_EQ(probed.size(), 1u);
  return probed.empty() ? ProbeResult{.error_number = -1} : probed[0];
}

class TransferEngineTest : public ::testing::TestWithParam<bool> {
 protected:
  TransferEngineTest() { Rebuild({}); }
  ~TransferEngineTest() override {
    if (engine_->inflight() == 0) engine_->RemoveWindow(kWindow);
  }

  // GetParam(): checksums in place (deterministic) or on workers.
  void Rebuild(TransferEngineOptions options) {
    if (engine_) engine_->RemoveWindow(kWindow);
    engine_.reset();
    options.place = {.data_offset = kDataOffset, .capacity_bytes = kCapacity};
    options.inline_bytes_max = GetParam() ? UINT32_MAX : 0;
    engine_ = std::make_unique<TransferEngine>(options, device_, *workers_, signal_);
    engine_->AddWindow(kWindow, memory_.data(), memory_.size());
  }

  // A transfer of `length` bytes between memory page and device page of the same number.
  Transfer Make(Direction direction, uint64_t page, uint32_t length = kPageSize) {
    const auto pages = static_cast<uint16_t>(PagesFor(length));
    return {.cookie = page,
            .direction = direction,
            .extent = {.run = {.block = static_cast<uint32_t>(page / kPagesPerBlock),
                               .page = static_cast<uint16_t>(page % kPagesPerBlock),
                               .pages = pages}},
            .window = kWindow,
            .memory = memory_.data() + page * kPageSize,
            .length = length,
            .crc = crcs_[page]};
  }

  std::map<uint64_t, TransferResult> Finish() {
    engine_->Submit();
    std::map<uint64_t, TransferResult> results;
    std::vector<TransferResult> polled;
    engine_->Poll(&polled);
    // Polling moves work on as well (a checksum done starts the write), so look again until nothing is in flight.
    while (engine_->inflight() != 0) {
      if (!GetParam()) (void)testing::WaitReadable(signal_.fd(), device_.idle() ? kWaitMs : 0);
      signal_.Clear();
      engine_->Poll(&polled);
    }
    for (const TransferResult& result : polled) {
      EXPECT_TRUE(results.emplace(result.cookie, result).second) << "two results for " << result.cookie;
    }
    return results;
  }

  // Writes and remembers what must come back.
  void WriteAll(const std::vector<Transfer>& transfers) {
    for (const Transfer& transfer : transfers) engine_->Start(transfer);
    for (const auto& [cookie, result] : Finish()) {
      ASSERT_EQ(result.outcome, TransferOutcome::kDone);
      crcs_[cookie] = result.crc;
    }
  }
  void WriteOne(uint64_t page, uint32_t length = kPageSize) { WriteAll({Make(Direction::kWrite, page, length)}); }
  TransferResult ReadOne(uint64_t page, uint32_t length = kPageSize) {
    engine_->Start(Make(Direction::kRead, page, length));
    return Finish().at(page);
  }

  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(2, "test").value();
  CompletionSignal signal_;
  FakeDevice device_{kDataOffset + kCapacity};
  WindowMemory memory_{kWindowSize};
  base::GuardedRange guard_{memory_.data(), memory_.size()};
  std::map<uint64_t, uint32_t> crcs_;
  std::unique_ptr<TransferEngine> engine_;
};

TEST_P(TransferEngineTest, AProbeReadsAPageAndAnotherWhereThatFails) {
  engine_->Probe(0);
  EXPECT_TRUE(engine_->probing());
  EXPECT_EQ(ProbedBy(*engine_).error_number, 0);
  EXPECT_FALSE(engine_->probing());
  device_.Inject({.direction = Direction::kRead, .error = EIO, .covering_offset = 0});
  engine_->Probe(0);
  EXPECT_EQ(ProbedBy(*engine_).error_number, 0) << "one bad place is not a bad device";
  EXPECT_EQ(device_.history().back().offset, kDataOffset + kCapacity / 2);
  device_.Inject({.direction = Direction::kRead, .error = ENODEV}, 2);
  engine_->Probe(0);
  EXPECT_EQ(ProbedBy(*engine_).error_number, ENODEV);
  device_.Inject({.direction = Direction::kRead, .short_bytes = 0}, 2);
  engine_->Probe(0);
  EXPECT_EQ(ProbedBy(*engine_).error_number, EIO) << "a device cut short";
}

TEST_P(TransferEngineTest, AProbeDoesNotWaitForTheQueue) {
  Rebuild({.io_depth = 1});
  device_.Hold();
  for (uint64_t page : {0, 600}) engine_->Start(Make(Direction::kWrite, page));
  engine_->Submit();
  engine_->Probe(0);
  EXPECT_EQ(device_.history().back().length, kPageSize);
  EXPECT_EQ(device_.history().back().direction, Direction::kRead);
  device_.Release();
  EXPECT_EQ(Finish().size(), 2u);
  EXPECT_EQ(ProbedBy(*engine_).error_number, 0);
}

INSTANTIATE_TEST_SUITE_P(Checksums, TransferEngineTest, ::testing::Bool(),
                         [](const auto& param_info) { return param_info.param ? "InPlace" : "OnWorkers"; });

// Page 0 of the content at page 40 of the device, pages 1 and 2 at 20 and 21, page 3 at 41.
constexpr std::array<base::PageRun, 3> kRuns{{{0, 40, 1}, {0, 20, 2}, {0, 41, 1}}};
constexpr uint32_t kScatteredLength = 3 * kPageSize + 100;

Transfer Scatter(Transfer transfer) {
  transfer.extent = {.run = {0, 40, 4}, .scattered = true};
  transfer.runs = kRuns;
  return transfer;
}

TEST_P(TransferEngineTest, MovesAScatteredExtentRunByRun) {
  memory_.Fill(7);
  const std::vector<std::byte> before(memory_.data(), memory_.data() + kScatteredLength);
  // Its first run follows the transfer before it in memory and on the device: they are not merged.
  WriteAll({Make(Direction::kWrite, 39), Scatter(Make(Direction::kWrite, 0, kScatteredLength))});
  const auto on_device = [this](uint64_t page) { return device_.bytes().begin() + kDataOffset + page * kPageSize; };
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + kPageSize, on_device(40)));
  EXPECT_TRUE(std::equal(before.begin() + kPageSize, before.begin() + 3 * kPageSize, on_device(20)));
  EXPECT_TRUE(std::equal(before.begin() + 3 * kPageSize, before.end(), on_device(41)));
  std::memset(memory_.data(), 0, 4 * kPageSize);
  device_.Inject(
      {.direction = Direction::kRead, .short_bytes = kPageSize, .covering_offset = kDataOffset + 20 * kPageSize});
  engine_->Start(Scatter(Make(Direction::kRead, 0, kScatteredLength)));
  EXPECT_EQ(Finish().at(0).outcome, TransferOutcome::kDone);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), memory_.data())) << "also after a short read";
}

TEST_P(TransferEngineTest, SaysWhichRunFailed) {
  memory_.Fill(8);
  device_.Inject({.direction = Direction::kWrite, .error = EIO, .covering_offset = kDataOffset + 41 * kPageSize}, 2);
  engine_->Start(Scatter(Make(Direction::kWrite, 0, kScatteredLength)));
  const TransferResult failed = Finish().at(0);
  EXPECT_EQ(failed.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(failed.failed_at, 3 * kPageSize);
  EXPECT_EQ(failed.device_offset, kDataOffset + 41 * kPageSize);
  device_.Inject({.direction = Direction::kWrite, .error = EIO, .covering_offset = kDataOffset + 20 * kPageSize});
  WriteAll({Scatter(Make(Direction::kWrite, 0, kScatteredLength))});  // Once is tried again, from the first run on.
  engine_->Start(Scatter(Make(Direction::kRead, 0, kScatteredLength)));
  EXPECT_EQ(Finish().at(0).outcome, TransferOutcome::kDone);
}

TEST_P(TransferEngineTest, ReadsBackWhatItWroteAndSaysTheChecksum) {
  memory_.Fill(1);
  const std::vector<std::byte> before(memory_.data(), memory_.data() + kBlockSize);
  WriteOne(0, kBlockSize);
  EXPECT_EQ(crcs_[0], Crc32c(before));
  std::memset(memory_.data(), 0, kBlockSize);
  const TransferResult result = ReadOne(0, kBlockSize);
  EXPECT_EQ(result.outcome, TransferOutcome::kDone);
  EXPECT_EQ(result.device_offset, kDataOffset);
  EXPECT_EQ(std::memcmp(memory_.data(), before.data(), kBlockSize), 0);
}

TEST_P(TransferEngineTest, ChecksumsTheContentAndMovesWholePages) {
  memory_.Fill(2);
  WriteOne(5, 5000);
  EXPECT_EQ(crcs_[5], Crc32c({memory_.data() + 5 * kPageSize, 5000}));
  ASSERT_EQ(device_.history().size(), 1u);
  EXPECT_EQ(device_.history()[0].length, 8192u);
  EXPECT_EQ(device_.history()[0].offset, kDataOffset + 5 * kPageSize);
  memory_.data()[5 * kPageSize + 6000] ^= std::byte{1};  // Behind the content: nobody's.
  EXPECT_EQ(ReadOne(5, 5000).outcome, TransferOutcome::kDone);
}

TEST_P(TransferEngineTest, MergesNeighboursUpToTheLimit) {
  constexpr uint32_t kHalf = kMergeBytesDefault / 2;
  std::vector<Transfer> halves;
  for (uint32_t page = 0; page < 2 * kPagesPerBlock; page += kHalf / kPageSize)
    halves.push_back(Make(Direction::kWrite, page, kHalf));
  memory_.Fill(3);
  WriteAll(halves);
  ASSERT_EQ(device_.history().size(), 2u);
  EXPECT_EQ(device_.history()[0].length, kMergeBytesDefault);
  EXPECT_EQ(device_.history()[1].length, kMergeBytesDefault);
  EXPECT_EQ(engine_->traffic(0).write_requests, 2u);
  for (uint32_t page = 0; page < 2 * kPagesPerBlock; page += kHalf / kPageSize)
    engine_->Start(Make(Direction::kRead, page, kHalf));
  for (const auto& [cookie, result] : Finish()) EXPECT_EQ(result.outcome, TransferOutcome::kDone);
  EXPECT_EQ(device_.history().size(), 4u);
}

TEST_P(TransferEngineTest, DoesNotMergeAcrossAGapInMemoryOrOnTheDevice) {
  Transfer apart = Make(Direction::kWrite, 9);
  apart.memory = memory_.data() + 100 * kPageSize;
  engine_->Start(Make(Direction::kWrite, 8));
  engine_->Start(apart);                        // Follows on the device, not in memory.
  engine_->Start(Make(Direction::kWrite, 20));  // Follows nowhere.
  EXPECT_EQ(Finish().size(), 3u);
  EXPECT_EQ(device_.history().size(), 3u);
}

TEST_P(TransferEngineTest, DoesNotMergeReadsWithWrites) {
  memory_.Fill(4);
  WriteOne(9);
  engine_->Start(Make(Direction::kWrite, 8));
  engine_->Start(Make(Direction::kRead, 9));
  for (const auto& [cookie, result] : Finish()) EXPECT_EQ(result.outcome, TransferOutcome::kDone);
  EXPECT_EQ(device_.history().size(), 3u);
}

TEST_P(TransferEngineTest, KeepsToItsDepth) {
  Rebuild({.io_depth = 3});
  for (uint64_t page = 0; page < 200; page += 2) engine_->Start(Make(Direction::kWrite, page));
  EXPECT_EQ(Finish().size(), 100u);
  EXPECT_LE(device_.inflight_peak(), 3u);
  EXPECT_EQ(engine_->traffic(0).write_requests, 100u);
  EXPECT_EQ(engine_->traffic(0).inflight, 0u);
}

TEST_P(TransferEngineTest, KeepsToItsBytesInFlight) {
  Rebuild({.write_bytes_max = 10 * kPageSize, .merge_bytes_max = kBlockSize});
  for (uint64_t page = 0; page < 600; page += 6) engine_->Start(Make(Direction::kWrite, page, 4 * kPageSize));
  EXPECT_EQ(Finish().size(), 100u);
  EXPECT_EQ(device_.inflight_peak(), 3u) << "a request starts while fewer bytes than the limit are in flight";
}

TEST_P(TransferEngineTest, ReadsHaveTheirOwnBytesInFlightAndMoreAlone) {
  Rebuild({.read_bytes_max = 40 * kPageSize,
           .read_bytes_beside_writes_max = 20 * kPageSize,
           .write_bytes_max = 10 * kPageSize});
  for (uint64_t page = 0; page < 120; page += 6) WriteOne(page, 4 * kPageSize);
  for (uint64_t page = 0; page < 120; page += 6) engine_->Start(Make(Direction::kRead, page, 4 * kPageSize));
  for (uint64_t page = 120; page < 600; page += 6) engine_->Start(Make(Direction::kWrite, page, 4 * kPageSize));
  EXPECT_EQ(Finish().size(), 100u);
  EXPECT_EQ(device_.inflight_peak(), 8u) << "five reads beside three writes: neither waits for the other's bytes";
  for (uint64_t page = 0; page < 600; page += 6) engine_->Start(Make(Direction::kRead, page, 4 * kPageSize));
  EXPECT_EQ(Finish().size(), 100u);
  EXPECT_EQ(device_.inflight_peak(), 10u);
}

TEST_P(TransferEngineTest, ContinuesAShortTransfer) {
  memory_.Fill(5);
  device_.Inject({.direction = Direction::kWrite, .short_bytes = 12 * 1024});
  device_.Inject({.direction = Direction::kWrite, .short_bytes = 6000});  // Not even whole pages.
  WriteOne(0, kBlockSize);
  EXPECT_EQ(device_.history().size(), 3u);
  EXPECT_EQ(device_.history()[2].offset, kDataOffset + 16 * 1024);
  device_.Inject({.direction = Direction::kRead, .short_bytes = 8192});
  EXPECT_EQ(ReadOne(0, kBlockSize).outcome, TransferOutcome::kDone);
  EXPECT_EQ(engine_->traffic(0).retries, 3u);
  EXPECT_EQ(engine_->traffic(0).errors, 0u);
}

TEST_P(TransferEngineTest, RetriesAnIoErrorOnce) {
  memory_.Fill(6);
  device_.Inject({.direction = Direction::kWrite, .error = EIO});
  WriteOne(0);
  device_.Inject({.direction = Direction::kRead, .error = EIO});
  EXPECT_EQ(ReadOne(0).outcome, TransferOutcome::kDone);
  EXPECT_EQ(engine_->traffic(0).retries, 2u);
  EXPECT_EQ(engine_->traffic(0).errors, 0u);
}

TEST_P(TransferEngineTest, ReportsADeviceErrorAfterASecondIoError) {
  memory_.Fill(7);
  WriteOne(3);
  device_.Inject({.direction = Direction::kRead, .error = EIO}, 2);
  const TransferResult result = ReadOne(3);
  EXPECT_EQ(result.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(result.error_number, EIO);
  EXPECT_EQ(result.device_offset, kDataOffset + 3 * kPageSize);
  EXPECT_EQ(engine_->traffic(0).errors, 1u);
  EXPECT_EQ(ReadOne(3).outcome, TransferOutcome::kDone) << "the engine may try again later";
}

TEST_P(TransferEngineTest, BlamesOnlyTheFailingMemberOfAMergedRequest) {
  memory_.Fill(8);
  for (uint64_t page = 0; page < 4; ++page) engine_->Start(Make(Direction::kWrite, page));
  device_.Inject({.direction = Direction::kWrite, .error = EIO, .covering_offset = kDataOffset + 2 * kPageSize}, 2);
  const auto results = Finish();
  for (uint64_t page = 0; page < 4; ++page) {
    EXPECT_EQ(results.at(page).outcome, page == 2 ? TransferOutcome::kDeviceError : TransferOutcome::kDone) << page;
  }
  EXPECT_EQ(device_.history().size(), 5u) << "one merged request, then each on its own";
}

TEST_P(TransferEngineTest, ReportsNoSpaceWithoutRetrying) {
  for (const int error : {ENOSPC, EDQUOT}) {
    device_.Inject({.direction = Direction::kWrite, .error = error});
    engine_->Start(Make(Direction::kWrite, 0));
    const TransferResult result = Finish().at(0);
    EXPECT_EQ(result.outcome, TransferOutcome::kNoSpace);
    EXPECT_EQ(result.error_number, error);
  }
  EXPECT_EQ(device_.history().size(), 2u);
}

TEST_P(TransferEngineTest, RidesOutPassingShortages) {
  memory_.Fill(9);
  for (const int error : {EAGAIN, EINTR, EBUSY, ENOMEM}) {
    device_.Inject({.direction = Direction::kWrite, .error = error}, 5);
  }
  WriteOne(0);
  EXPECT_EQ(ReadOne(0).outcome, TransferOutcome::kDone);
}

TEST_P(TransferEngineTest, GivesUpOnAShortageThatDoesNotPass) {
  device_.Inject({.direction = Direction::kWrite, .error = EAGAIN}, 10 * kTriesAgainMax);
  engine_->Start(Make(Direction::kWrite, 0));
  const TransferResult result = Finish().at(0);
  EXPECT_EQ(result.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(result.error_number, EAGAIN);
}

TEST_P(TransferEngineTest, ReportsADeviceCutShortBeneathItAsADeviceError) {
  memory_.Fill(10);
  WriteOne(600, 64 * kKiB);
  device_.bytes().resize(kDataOffset + 604 * kPageSize + 100);
  const TransferResult result = ReadOne(600, 64 * kKiB);
  EXPECT_EQ(result.outcome, TransferOutcome::kDeviceError);
  EXPECT_EQ(result.error_number, EIO);
}

TEST_P(TransferEngineTest, ReadsAgainOnceWhenTheChecksumIsWrong) {
  memory_.Fill(11);
  WriteOne(0, kBlockSize);
  device_.Inject({.direction = Direction::kRead, .flip_at = 1000});
  EXPECT_EQ(ReadOne(0, kBlockSize).outcome, TransferOutcome::kDone);
  EXPECT_EQ(engine_->traffic(0).retries, 2u) << "through the mapping, then through the registration for proof";
  EXPECT_EQ(engine_->traffic(0).corrupt + engine_->traffic(0).window_faults + engine_->traffic(0).errors, 0u);
}

TEST_P(TransferEngineTest, ReportsARegistrationThatIsNoLongerTheWindowAsAWindowFault) {
  memory_.Fill(11);
  WriteOne(0, kBlockSize);
  WriteOne(600, 5000);
  device_.DetachRegistrations();
  std::memset(memory_.data(), 0, memory_.size());
  engine_->Start(Make(Direction::kRead, 0, kBlockSize));
  engine_->Start(Make(Direction::kRead, 600, 5000));
  for (const auto& [page, result] : Finish()) EXPECT_EQ(result.outcome, TransferOutcome::kWindowFault) << page;
  const DeviceTraffic traffic = engine_->traffic(0);
  EXPECT_EQ(traffic.window_faults, 2u);
  EXPECT_EQ(traffic.errors + traffic.corrupt, 0u);
}

TEST_P(TransferEngineTest, ReportsCorruptionWhenBothReadsAreWrong) {
  memory_.Fill(12);
  WriteOne(0, kBlockSize);
  device_.bytes()[kDataOffset + 777] ^= std::byte{1};
  const TransferResult result = ReadOne(0, kBlockSize);
  EXPECT_EQ(result.outcome, TransferOutcome::kCorrupt);
  EXPECT_NE(result.crc, crcs_[0]);
  EXPECT_EQ(result.device_offset, kDataOffset);
  EXPECT_EQ(engine_->traffic(0).corrupt, 1u);
  EXPECT_EQ(engine_->traffic(0).errors, 0u);
}

TEST_P(TransferEngineTest, BlamesOnlyTheCorruptMemberOfAMergedRead) {
  memory_.Fill(13);
  std::vector<Transfer> writes;
  for (uint64_t page = 0; page < 4; ++page) writes.push_back(Make(Direction::kWrite, page));
  WriteAll(writes);
  device_.bytes()[kDataOffset + kPageSize] ^= std::byte{1};
  for (uint64_t page = 0; page < 4; ++page) engine_->Start(Make(Direction::kRead, page));
  const auto results = Finish();
  for (uint64_t page = 0; page < 4; ++page) {
    EXPECT_EQ(results.at(page).outcome, page == 1 ? TransferOutcome::kCorrupt : TransferOutcome::kDone) << page;
  }
}

TEST_P(TransferEngineTest, ReportsAnUnmappableWindowFromTheKernelAsAWindowFault) {
  device_.Inject({.direction = Direction::kWrite, .error = EFAULT});
  engine_->Start(Make(Direction::kWrite, 0));
  EXPECT_EQ(Finish().at(0).outcome, TransferOutcome::kWindowFault);
}

TEST_P(TransferEngineTest, ReportsMemoryThatCannotBeTouchedAsAWindowFaultAndWritesTheRest) {
  memory_.Fill(14);
  // What a window in huge pages does when its owner punched it and the pool is empty: the touch faults.
  ASSERT_EQ(::mprotect(memory_.data() + 2 * kPageSize, kPageSize, PROT_NONE), 0);
  for (uint64_t page = 0; page < 4; ++page) engine_->Start(Make(Direction::kWrite, page));
  const auto results = Finish();
  ASSERT_EQ(::mprotect(memory_.data() + 2 * kPageSize, kPageSize, PROT_READ | PROT_WRITE), 0);
  for (uint64_t page = 0; page < 4; ++page) {
    EXPECT_EQ(results.at(page).outcome, page == 2 ? TransferOutcome::kWindowFault : TransferOutcome::kDone) << page;
  }
}

TEST_P(TransferEngineTest, FinishesEverythingInWhateverOrderTheDeviceAnswers) {
  memory_.Fill(16);
  device_.SetNewestFirst(true);
  device_.CompleteAtMost(2);
  for (uint64_t page = 0; page < 300; page += 3) engine_->Start(Make(Direction::kWrite, page, 8192));
  EXPECT_EQ(Finish().size(), 100u);
}

TEST_P(TransferEngineTest, CountsWhatIsInFlightUntilItIsPolled) {
  EXPECT_EQ(engine_->inflight(), 0u);
  engine_->Start(Make(Direction::kWrite, 0));
  engine_->Start(Make(Direction::kWrite, 2));
  EXPECT_EQ(engine_->inflight(), 2u);
  (void)Finish();
  EXPECT_EQ(engine_->inflight(), 0u);
  EXPECT_EQ(engine_->traffic(0).written_bytes, 2 * kPageSize);
}

TEST_P(TransferEngineTest, AcceptsAsManyTransfersAsItPromises) {
  Rebuild({.inflight_max = 64});
  for (int round = 0; round < 3; ++round) {
    for (uint64_t page = 0; page < 64; ++page) engine_->Start(Make(Direction::kWrite, page));
    EXPECT_EQ(Finish().size(), 64u);
  }
}

// Checksums in place: with workers the order of writes is theirs.
using TransferOrderTest = TransferEngineTest;
INSTANTIATE_TEST_SUITE_P(Checksums, TransferOrderTest, ::testing::Values(true));

TEST_P(TransferOrderTest, LetsReadsPassWaitingWrites) {
  memory_.Fill(15);
  WriteOne(400);
  Rebuild({.io_depth = 1});
  const size_t before = device_.history().size();
  for (uint64_t page = 0; page < 6; page += 2) engine_->Start(Make(Direction::kWrite, page));
  engine_->Start(Make(Direction::kRead, 400));
  (void)Finish();
  EXPECT_EQ(device_.history()[before].direction, Direction::kRead);
}

TEST_P(TransferOrderTest, OneThatWasBegunGoesOnBeforeThoseThatWait) {
  WriteAll({Scatter(Make(Direction::kWrite, 0, kScatteredLength))});
  for (uint64_t page = 600; page < 700; page += 2) WriteOne(page);
  Rebuild({.io_depth = 2});
  const size_t before = device_.history().size();
  engine_->Start(Scatter(Make(Direction::kRead, 0, kScatteredLength)));
  for (uint64_t page = 600; page < 700; page += 2) engine_->Start(Make(Direction::kRead, page));
  for (const auto& [cookie, result] : Finish()) EXPECT_EQ(result.outcome, TransferOutcome::kDone) << cookie;
  std::vector<uint64_t> runs;  // How many requests went to the device before each of them.
  for (size_t i = before; i < device_.history().size(); ++i) {
    if (device_.history()[i].offset < kDataOffset + 600 * kPageSize) runs.push_back(i - before);
  }
  EXPECT_THAT(runs, ElementsAre(0, 2, 4)) << "the other place is the others'";
}

using TransferEngineDeathTest = TransferEngineTest;
INSTANTIATE_TEST_SUITE_P(Checksums, TransferEngineDeathTest, ::testing::Values(true));

TEST_P(TransferEngineDeathTest, AbortsOnWhatOnlyABrokenEngineAsksFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Transfer outside = Make(Direction::kWrite, 0);
  outside.memory = memory_.data() + memory_.size();
  EXPECT_DEATH(engine_->Start(outside), "window");
  Transfer beyond = Make(Direction::kWrite, 0);
  beyond.extent.run.block = 8;
  EXPECT_DEATH(engine_->Start(beyond), "data area");
  Transfer unknown = Make(Direction::kWrite, 0);
  unknown.window = WindowIndex{5};
  EXPECT_DEATH(engine_->Start(unknown), "window");
}

}  // namespace
}  // namespace tier::storage
