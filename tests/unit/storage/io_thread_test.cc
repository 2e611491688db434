// The hand-over between the engine thread and the threads of devices: nothing is lost, nobody sleeps through a wake-up,
// and a window is given up only when every device has given it up.
#include "daemon/storage/io_thread.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/storage/handoff_queue.h"
#include "daemon/storage/io_threads.h"
#include "tests/support/storage/scratch.h"

namespace tier::storage {
namespace {

using ::testing::ElementsAre;
using testing::WaitReadable;
using testing::WindowMemory;

constexpr WindowIndex kWindow{1};
constexpr uint64_t kPages = 64;
constexpr uint64_t kCapacity = 2 * kBlockSize;
constexpr uint32_t kWindowsMax = 4;
constexpr int kWaitMs = 30'000;

// What the test says to a MemoryIo while the device's thread uses it.
struct Script {
  std::atomic<bool> keeps_windows{false};  // Removed windows are not given up …
  std::atomic<bool> holds{false};          // … and requests do not complete, as long as these are set.
  std::atomic<const char*> refusal{""};    // Of registrations.
};

// A device of memory, whose requests complete when they are polled.
class MemoryIo final : public DeviceIo {
 public:
  MemoryIo(const CompletionSignal& signal, const Script& script)
      : signal_(signal), script_(script), bytes_(kCapacity) {}

  void AddWindow(WindowIndex /*window*/, std::byte* /*address*/, uint64_t /*size*/, Pin pin) override {
    if (pin == Pin::kTry) reason_ = script_.refusal.load();
  }
  void RemoveWindow(WindowIndex window) override {
    removed_.push_back(window);
    reason_.clear();
  }
  void TakeRemoved(std::vector<WindowIndex>* windows) override {
    if (script_.keeps_windows.load()) return;
    windows->insert(windows->end(), removed_.begin(), removed_.end());
    removed_.clear();
  }
  bool registered(WindowIndex /*window*/) const override { return reason_.empty(); }
  const std::string& unpinned_reason() const override { return reason_; }
  void Start(const IoRequest& request) override { started_.push_back(request); }
  void Submit() override {}
  void Poll(std::vector<IoCompletion>* completions) override {
    if (script_.holds.load()) return;
    for (const IoRequest& request : started_) {
      std::byte* on_device = bytes_.data() + request.offset;
      const bool write = request.direction == Direction::kWrite;
      std::memcpy(write ? on_device : request.memory, write ? request.memory : on_device, request.length);
      completions->push_back({request.token, static_cast<int32_t>(request.length)});
    }
    started_.clear();
  }
  void Wait() override {
    if (started_.empty() || script_.holds.load()) signal_.Wait();
  }
  uint32_t inflight_max() const override { return kIoDepthDefault + 1; }

 private:
  const CompletionSignal& signal_;
  const Script& script_;
  std::vector<std::byte> bytes_;
  std::vector<IoRequest> started_;
  std::vector<WindowIndex> removed_;
  std::string reason_;
};

class IoThreadsTest : public ::testing::Test {
 protected:
  void Open(uint16_t devices) {
    std::vector<std::unique_ptr<IoThread>> threads;
    for (uint16_t device = 0; device < devices; ++device) {
      auto wake = std::make_unique<CompletionSignal>();
      wakes_.push_back(wake.get());
      auto io = std::make_unique<MemoryIo>(*wake, scripts_[device]);
      auto thread = IoThread::Start({.device = device,
                                     .place = {.capacity_bytes = kCapacity},
                                     .inflight_max = kPages,
                                     .inline_bytes_max = device == 0 ? UINT32_MAX : 0,
                                     .windows_max = kWindowsMax},
                                    {.wake = std::move(wake), .io = std::move(io)}, *workers_, signal_);
      ASSERT_TRUE(thread) << thread.error().message;
      threads.push_back(std::move(*thread));
    }
    port_ = std::make_unique<IoThreads>(std::move(threads), kPages, kWindowsMax);
    port_->AddWindow(kWindow, memory_.data(), memory_.size());
  }
  void Ring(uint16_t device) { wakes_[device]->Signal(); }

  Transfer Page(Direction direction, uint64_t page, uint16_t device = 0) {
    return {.cookie = page,
            .direction = direction,
            .extent = {.run = {.block = 0, .page = static_cast<uint16_t>(page), .pages = 1}, .device = device},
            .window = kWindow,
            .memory = memory_.data() + page * kPageSize,
            .length = kPageSize,
            .crc = crcs_[page]};
  }

  // Until nothing is in flight.
  std::vector<TransferResult> Finish() {
    port_->Submit();
    std::vector<TransferResult> results;
    port_->Poll(&results);
    while (port_->inflight() != 0 && WaitReadable(signal_.fd(), kWaitMs)) {
      signal_.Clear();
      port_->Poll(&results);
    }
    EXPECT_EQ(port_->inflight(), 0u) << "nothing came for 30 s";
    return results;
  }

  std::vector<WindowIndex> AwaitRemoved() {
    std::vector<WindowIndex> removed;
    port_->TakeRemoved(&removed);
    while (removed.empty() && WaitReadable(signal_.fd(), kWaitMs)) {
      signal_.Clear();
      port_->TakeRemoved(&removed);
    }
    return removed;
  }

  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(1, "test").value();
  CompletionSignal signal_;
  WindowMemory memory_{kPages * kPageSize};
  std::map<uint64_t, uint32_t> crcs_;
  Script scripts_[2];
  std::vector<CompletionSignal*> wakes_;  // Owned by the threads.
  std::unique_ptr<IoThreads> port_;
};

TEST_F(IoThreadsTest, EachTransferWakesTheDeviceAndItsResultTheEngine) {
  Open(2);
  memory_.Fill(1);
  for (uint64_t round = 0; round < 2000; ++round) {
    const auto device = static_cast<uint16_t>(round % 2);
    port_->Start(Page(Direction::kWrite, 0, device));
    const auto written = Finish();
    ASSERT_EQ(written.size(), 1u) << "round " << round;
    crcs_[0] = written[0].crc;
    port_->Start(Page(Direction::kRead, 0, device));
    const auto read = Finish();
    ASSERT_EQ(read.size(), 1u) << "round " << round;
    ASSERT_EQ(read[0].outcome, TransferOutcome::kDone) << "round " << round;
    ASSERT_EQ(port_->traffic(device).read_requests, round / 2 + 1) << "figures do not lag behind results";
  }
}

TEST_F(IoThreadsTest, WhatIsSubmittedTogetherIsMerged) {
  Open(1);
  for (uint64_t page = 0; page < kPages; ++page) port_->Start(Page(Direction::kWrite, page));
  EXPECT_EQ(Finish().size(), kPages);
  EXPECT_EQ(port_->traffic(0).write_requests, 1u);
  EXPECT_EQ(port_->traffic(0).written_bytes, kPages * kPageSize);
}

TEST_F(IoThreadsTest, AStuckDeviceDoesNotHoldUpAnother) {
  Open(2);
  scripts_[0].holds = true;
  port_->Start(Page(Direction::kWrite, 0, 0));
  port_->Submit();
  for (int round = 0; round < 20; ++round) {
    port_->Start(Page(Direction::kWrite, 1, 1));
    port_->Submit();
    std::vector<TransferResult> results;
    while (results.empty() && WaitReadable(signal_.fd(), kWaitMs)) {
      signal_.Clear();
      port_->Poll(&results);
    }
    ASSERT_EQ(results.size(), 1u);
    EXPECT_EQ(results[0].cookie, 1u);
  }
  EXPECT_EQ(port_->inflight(), 1u);
  scripts_[0].holds = false;
  Ring(0);
  EXPECT_EQ(Finish().size(), 1u);
}

TEST_F(IoThreadsTest, AWindowIsGivenUpWhenEveryDeviceHasGivenItUp) {
  Open(2);
  scripts_[0].keeps_windows = true;
  port_->RemoveWindow(kWindow);
  // The other device's word comes, and does not suffice.
  ASSERT_TRUE(WaitReadable(signal_.fd(), kWaitMs));
  signal_.Clear();
  std::vector<WindowIndex> removed;
  port_->TakeRemoved(&removed);
  EXPECT_TRUE(removed.empty());
  scripts_[0].keeps_windows = false;
  Ring(0);
  EXPECT_THAT(AwaitRemoved(), ElementsAre(kWindow));
  // Its index can be used again.
  port_->AddWindow(kWindow, memory_.data(), memory_.size());
  port_->Start(Page(Direction::kWrite, 3, 1));
  EXPECT_EQ(Finish().size(), 1u);
  port_->RemoveWindow(kWindow);
  EXPECT_THAT(AwaitRemoved(), ElementsAre(kWindow));
}

TEST_F(IoThreadsTest, WithoutADeviceAWindowIsGivenUpAtOnce) {
  Open(0);
  port_->RemoveWindow(kWindow);
  std::vector<WindowIndex> removed;
  port_->TakeRemoved(&removed);
  EXPECT_THAT(removed, ElementsAre(kWindow));
  EXPECT_TRUE(port_->pinned());
}

TEST_F(IoThreadsTest, TellsWhyAWindowIsNotRegisteredAndWhenAllAreAgain) {
  scripts_[1].refusal = "memory is locked";
  Open(2);
  port_->Start(Page(Direction::kWrite, 0, 1));
  (void)Finish();
  EXPECT_FALSE(port_->pinned());
  EXPECT_EQ(port_->unpinned_reason(), "memory is locked");
  port_->RemoveWindow(kWindow);
  EXPECT_THAT(AwaitRemoved(), ElementsAre(kWindow));
  EXPECT_TRUE(port_->pinned());
  EXPECT_EQ(port_->unpinned_reason(), "");
}

TEST_F(IoThreadsTest, MemoryThatIsNotToBePinnedIsNotToldAsUnpinned) {
  Open(2);
  for (uint16_t device = 0; device < 2; ++device) {  // Each has the window once it has done a transfer.
    port_->Start(Page(Direction::kWrite, 0, device));
    (void)Finish();
  }
  scripts_[0].refusal = "memory is locked";
  const WindowMemory own(kPageSize);
  constexpr WindowIndex kOwn{2};
  port_->AddWindow(kOwn, own.data(), own.size(), Pin::kNo);
  Transfer write = Page(Direction::kWrite, 1, 0);
  write.window = kOwn;
  write.memory = own.data();
  port_->Start(write);
  EXPECT_EQ(Finish().size(), 1u);
  EXPECT_TRUE(port_->pinned()) << port_->unpinned_reason();
}

// Windows come and go while transfers are submitted one by one, so that either queue finds the other side falling
// asleep.
TEST_F(IoThreadsTest, WindowsAndTransfersWakeTheDeviceSideBySide) {
  constexpr WindowIndex kOther{2};
  Open(2);
  std::vector<WindowIndex> removed;
  std::vector<TransferResult> results;
  uint32_t windows = 0;
  uint32_t transfers = 0;
  bool there = false;
  while (windows < 1000 || transfers < 2000) {
    if (!there) {
      port_->AddWindow(kOther, memory_.data(), memory_.size());
      port_->RemoveWindow(kOther);
      there = true;
    }
    if (port_->inflight() == 0) {
      port_->Start(Page(Direction::kWrite, 1, static_cast<uint16_t>(transfers % 2)));
      port_->Submit();
    }
    removed.clear();
    results.clear();
    port_->TakeRemoved(&removed);
    port_->Poll(&results);
    if (removed.empty() && results.empty()) {
      ASSERT_TRUE(WaitReadable(signal_.fd(), kWaitMs)) << windows << " windows, " << transfers << " transfers";
      signal_.Clear();
      continue;
    }
    if (!removed.empty()) there = false;
    windows += static_cast<uint32_t>(removed.size());
    transfers += static_cast<uint32_t>(results.size());
  }
  (void)Finish();
}

TEST_F(IoThreadsTest, EndsWithWindowsThatAreStillKept) {
  Open(2);
  scripts_[0].keeps_windows = true;
  port_->RemoveWindow(kWindow);
  port_.reset();
}

TEST(HandoffQueue, HandsOverEveryItemInOrderToASleeper) {
  constexpr uint32_t kItems = 200'000;
  HandoffQueue<uint32_t> queue(64);
  const CompletionSignal signal;
  std::atomic<uint32_t> taken{0};
  std::thread producer([&] {
    std::vector<uint32_t> batch;
    for (uint32_t next = 0; next < kItems;) {
      batch.resize(std::min<uint32_t>(next % 7 + 1, kItems - next));
      std::iota(batch.begin(), batch.end(), next);
      next += static_cast<uint32_t>(batch.size());
      while (next - taken.load(std::memory_order_acquire) > 64) std::this_thread::yield();  // There must be room.
      if (queue.Push(batch)) signal.Signal();
    }
  });
  std::vector<uint32_t> items;
  while (items.size() < kItems && WaitReadable(signal.fd(), kWaitMs)) {
    signal.Clear();
    queue.Take(&items);
    taken.store(static_cast<uint32_t>(items.size()), std::memory_order_release);
  }
  producer.join();
  ASSERT_EQ(items.size(), kItems);
  for (uint32_t i = 0; i < kItems; ++i) ASSERT_EQ(items[i], i);
}

TEST(HandoffQueue, SaysOnceThatTheOtherSideIsToBeWoken) {
  HandoffQueue<int> queue(4);
  const int items[] = {1, 2};
  EXPECT_FALSE(queue.Push({}));
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(queue.Push({items, 1}));
  EXPECT_FALSE(queue.Push(items)) << "it has been told and has not looked yet";
  EXPECT_FALSE(queue.empty());
  std::vector<int> taken;
  queue.Take(&taken);
  EXPECT_THAT(taken, ElementsAre(1, 1, 2));
  EXPECT_TRUE(queue.Push({items, 1}));
}

TEST(HandoffQueueDeathTest, AbortsWhenThereIsNoRoom) {
  HandoffQueue<int> queue(2);
  const int items[] = {1, 2, 3};
  EXPECT_DEATH((void)queue.Push(items), "2 of 3 items");
}

TEST_F(IoThreadsTest, AProbeOfOneDeviceComesBackWhileAnotherHoldsItsOwn) {
  Open(2);
  scripts_[0].holds = true;
  port_->Probe(0);
  port_->Probe(1);
  std::vector<ProbeResult> probed;
  while (probed.empty()) {
    ASSERT_TRUE(testing::WaitReadable(signal_.fd(), kWaitMs));
    signal_.Clear();
    port_->TakeProbed(&probed);
  }
  ASSERT_EQ(probed.size(), 1u);
  EXPECT_EQ(probed[0].device, 1);
  EXPECT_EQ(probed[0].error_number, 0);
  scripts_[0].holds = false;
  Ring(0);
  while (probed.size() < 2) {
    ASSERT_TRUE(testing::WaitReadable(signal_.fd(), kWaitMs));
    signal_.Clear();
    port_->TakeProbed(&probed);
  }
  EXPECT_EQ(probed[1].device, 0);
}

}  // namespace
}  // namespace tier::storage
