// The fakes keep their own promises: what the simulator is built on must be meaner than the real thing, not kinder.
#include <cstring>
#include <map>

#include <gtest/gtest.h>

#include "daemon/storage/checksum.h"
#include "tests/support/storage/fake_manifest_store.h"
#include "tests/support/storage/fake_transfer.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage::testing {
namespace {

constexpr WindowIndex kWindow{4};

class FakeTransfer : public ::testing::Test {
 protected:
  FakeTransfer() { port_.AddWindow(kWindow, memory_.data(), memory_.size()); }

  Transfer Page(Direction direction, uint32_t page, uint32_t crc = 0) {
    return {.cookie = page,
            .direction = direction,
            .extent = {.run = {.block = 0, .page = static_cast<uint16_t>(page), .pages = 1}},
            .window = kWindow,
            .memory = memory_.data() + page * kPageSize,
            .length = 4000,
            .crc = crc};
  }
  std::vector<TransferResult> Turns(int turns) {
    std::vector<TransferResult> results;
    for (int i = 0; i < turns; ++i) port_.Poll(&results);
    return results;
  }
  TransferResult Run(const Transfer& transfer) {
    port_.Start(transfer);
    port_.Submit();
    const auto results = Turns(1);
    EXPECT_EQ(results.size(), 1u);
    return results.at(0);
  }

  WindowMemory memory_{kMiB};
  FakeTransferPort port_;
};

TEST_F(FakeTransfer, RemembersWhatWasWritten) {
  memory_.Fill(1);
  const std::vector<std::byte> before(memory_.data(), memory_.data() + 4000);
  const TransferResult written = Run(Page(Direction::kWrite, 0));
  EXPECT_EQ(written.crc, Crc32c(before));
  std::memset(memory_.data(), 0, kPageSize);
  EXPECT_EQ(Run(Page(Direction::kRead, 0, written.crc)).outcome, TransferOutcome::kDone);
  EXPECT_EQ(std::memcmp(memory_.data(), before.data(), before.size()), 0);
}

TEST_F(FakeTransfer, PoisonsTheMemoryOfAReadInFlight) {
  memory_.Fill(2);
  const TransferResult written = Run(Page(Direction::kWrite, 0));
  const std::byte before = memory_.data()[0];
  port_.Start(Page(Direction::kRead, 0, written.crc));
  port_.Submit();
  EXPECT_NE(memory_.data()[0], before);
  (void)Turns(1);
  EXPECT_EQ(memory_.data()[0], before);
}

TEST_F(FakeTransfer, CountsMemoryThatChangesUnderAWrite) {
  port_.Start(Page(Direction::kWrite, 0));
  port_.Submit();
  memory_.data()[7] ^= std::byte{1};
  const TransferResult written = Turns(1).at(0);
  EXPECT_EQ(port_.memory_changes(), 1u);
  EXPECT_EQ(Run(Page(Direction::kRead, 0, written.crc)).outcome, TransferOutcome::kCorrupt);
}

TEST_F(FakeTransfer, TakesItsTimeAndMayAnswerOutOfOrder) {
  port_.SetDelay(3, 9);
  for (uint32_t page = 0; page < 40; ++page) port_.Start(Page(Direction::kWrite, page));
  port_.Submit();
  EXPECT_TRUE(Turns(3).empty());
  EXPECT_EQ(port_.inflight(), 40u);
  const auto results = Turns(7);
  ASSERT_EQ(results.size(), 40u);
  bool in_order = true;
  for (size_t i = 1; i < results.size(); ++i) in_order = in_order && results[i - 1].cookie < results[i].cookie;
  EXPECT_FALSE(in_order);
}

TEST_F(FakeTransfer, RepeatsItselfForTheSameSeed) {
  const auto order = [&](uint64_t seed) {
    FakeTransferPort port({.seed = seed, .delay_turns_max = 5});
    port.AddWindow(kWindow, memory_.data(), memory_.size());
    for (uint32_t page = 0; page < 30; ++page) port.Start(Page(Direction::kWrite, page));
    port.Submit();
    std::vector<TransferResult> results;
    std::vector<uint64_t> cookies;
    while (port.inflight() != 0) port.Poll(&results);
    for (const TransferResult& result : results) cookies.push_back(result.cookie);
    return cookies;
  };
  EXPECT_EQ(order(7), order(7));
  EXPECT_NE(order(7), order(8));
}

TEST_F(FakeTransfer, HoldsEverythingUntilReleased) {
  port_.Hold();
  port_.Start(Page(Direction::kWrite, 0));
  port_.Submit();
  EXPECT_TRUE(Turns(100).empty());
  port_.Release();
  EXPECT_EQ(Turns(1).size(), 1u);
}

TEST_F(FakeTransfer, FailsAsScripted) {
  port_.FailNext({.direction = Direction::kWrite, .outcome = TransferOutcome::kNoSpace, .error_number = 28}, 2);
  EXPECT_EQ(Run(Page(Direction::kWrite, 0)).outcome, TransferOutcome::kNoSpace);
  EXPECT_EQ(Run(Page(Direction::kWrite, 0)).error_number, 28);
  const TransferResult written = Run(Page(Direction::kWrite, 0));
  EXPECT_EQ(written.outcome, TransferOutcome::kDone);
  port_.FailExtent(Page(Direction::kRead, 0).extent, TransferOutcome::kDeviceError);
  EXPECT_EQ(Run(Page(Direction::kRead, 0, written.crc)).outcome, TransferOutcome::kDeviceError);
  port_.HealExtents();
  port_.disk().FlipByte(Page(Direction::kRead, 0).extent, 5);
  EXPECT_EQ(Run(Page(Direction::kRead, 0, written.crc)).outcome, TransferOutcome::kCorrupt);
  port_.PunchWindow(kWindow);
  EXPECT_EQ(Run(Page(Direction::kWrite, 1)).outcome, TransferOutcome::kWindowFault);
}

TEST_F(FakeTransfer, FailsAtARate) {
  port_.SetFaultRate({.direction = Direction::kWrite, .outcome = TransferOutcome::kNoSpace}, 500'000);
  int failed = 0;
  for (int i = 0; i < 200; ++i) failed += Run(Page(Direction::kWrite, 0)).outcome == TransferOutcome::kNoSpace ? 1 : 0;
  EXPECT_GT(failed, 50);
  EXPECT_LT(failed, 150);
}

TEST_F(FakeTransfer, LandsWritesInPartWhenTheDaemonDies) {
  const auto disk = port_.shared_disk();
  memory_.Fill(3);
  for (uint32_t page = 0; page < 64; ++page) port_.Start(Page(Direction::kWrite, page));
  port_.Submit();
  port_.Crash();
  EXPECT_EQ(port_.inflight(), 0u);
  EXPECT_GT(disk->page_count(), 0u);
  EXPECT_LT(disk->page_count(), 64u);
}

TEST_F(FakeTransfer, AbortsOnAnEngineThatBreaksTheRules) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Run(Page(Direction::kRead, 9)), "never written");
  port_.Start(Page(Direction::kWrite, 0));
  EXPECT_DEATH(port_.Start(Page(Direction::kRead, 0)), "share");
  EXPECT_DEATH(port_.RemoveWindow(kWindow), "removed under");
  Transfer unknown = Page(Direction::kWrite, 1);
  unknown.window = WindowIndex{99};
  EXPECT_DEATH(port_.Start(unknown), "not announced");
}

TEST(FakeManifestStore, CommitsInOrderAfterItsDelay) {
  FakeManifestStore store;
  store.SetDelay(2);
  store.StartPut(1, "a", {std::byte{1}}, {});
  store.StartPut(2, "a", {std::byte{2}}, {});
  std::vector<ManifestResult> results;
  store.Poll(&results);
  store.Poll(&results);
  EXPECT_TRUE(results.empty());
  EXPECT_FALSE(store.Load("a"));
  store.Poll(&results);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_LT(results[0].commit, results[1].commit);
  EXPECT_EQ(store.Load("a")->at(0), std::byte{2});
}

TEST(FakeManifestStore, FailsAsScriptedAndChangesNothing) {
  FakeManifestStore store;
  store.FailNext(Code::kNoSpace, "full");
  store.StartPut(1, "a", {std::byte{1}}, {});
  store.StartErase(2, "a");
  std::vector<ManifestResult> results;
  store.Poll(&results);
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].code, Code::kNoSpace);
  EXPECT_EQ(results[1].code, Code::kOk);
  EXPECT_TRUE(store.Jobs()->empty());
}

}  // namespace
}  // namespace tier::storage::testing
