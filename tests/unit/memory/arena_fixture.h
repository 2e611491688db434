// An arena over real memfds and a fake host, and how to wait for its events without sleeping.
#pragma once

#include <chrono>
#include <optional>
#include <semaphore>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/memory/arena.h"
#include "tests/support/session/manual_clock.h"
#include "tests/unit/memory/fake_host.h"

namespace tier::memory {

class ArenaTest : public testing::Test {
 protected:
  static constexpr uint64_t kWindow = kWindowSizeMin;
  static constexpr OwnerId kOwner{7};
  static constexpr WindowKind kBlock = WindowKind::kBlock;
  static constexpr WindowKind kSlot = WindowKind::kSlot;

  ArenaTest() { host_.SetMemory(64 * kGiB, 32 * kGiB); }

  ArenaOptions Options(uint32_t windows, uint64_t window_size = kWindow) const {
    const auto smallest = static_cast<uint32_t>(windows * window_size / kWindow);
    return {.sizes = {.max_bytes = windows * window_size,
                      .window_size_min = kWindow,
                      .window_size_max = window_size,
                      .windows_aimed = smallest,
                      .windows_max = smallest + 4,
                      .host_reserve_bytes = kGiB},
            .huge_pages = HugePagePolicy::kNever,
            .host_root = host_.root()};
  }
  void Start(ArenaOptions options) {
    options.on_event = [this] { events_ready_.release(); };
    options.clock = &clock_;
    arena_.emplace(std::move(options), workers_.get());
  }
  std::vector<WindowEvent> Await(size_t count) {
    std::vector<WindowEvent> events;
    arena_->Poll(&events);
    while (events.size() < count && events_ready_.try_acquire_for(std::chrono::seconds(30))) arena_->Poll(&events);
    EXPECT_EQ(events.size(), count);
    return events;
  }
  // Polls until everything asked of the worker threads is done and known.
  void AwaitQuiet() {
    std::vector<WindowEvent> events;
    while (arena_->snapshot().closing_bytes + arena_->snapshot().making_bytes != 0 &&
           events_ready_.try_acquire_for(std::chrono::seconds(30))) {
      arena_->Poll(&events);
    }
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(arena_->snapshot().closing_bytes + arena_->snapshot().making_bytes, 0U);
  }
  // Polls until the arena says that there is room for what it refused.
  void AwaitRoomFreed() {
    std::vector<WindowEvent> events;
    bool freed = false;
    for (arena_->Poll(&events); !(freed = arena_->TakeRoomFreed()); arena_->Poll(&events)) {
      if (!events_ready_.try_acquire_for(std::chrono::seconds(30))) break;
    }
    EXPECT_TRUE(freed);
    EXPECT_TRUE(events.empty());
  }
  // Block windows of the largest size, slot windows of the smallest.
  Result<WindowIndex> StartCreate(WindowKind kind = kBlock) {
    const WindowSizes sizes = arena_->window_sizes(kind);
    const auto started = arena_->StartCreate(kOwner, kind, kind == kBlock ? sizes.most : sizes.least, kAnyNode);
    if (!started) return std::unexpected(started.error());
    return started->index;
  }
  WindowEvent Create(WindowKind kind = kBlock) {
    const auto index = StartCreate(kind);
    EXPECT_TRUE(index) << index.error().message;
    return Await(1).at(0);
  }
  std::string Refusal(WindowKind kind = kBlock) {
    const auto index = StartCreate(kind);
    if (index) return "";
    EXPECT_EQ(index.error().code, Code::kNoMemory);
    return index.error().message;
  }

  // Reads the host after so much time.
  void RefreshAfter(base::Duration time) {
    clock_.now = clock_.now + time;
    arena_->RefreshHost();
  }

  FakeHost host_;
  session::testing::ManualClock clock_;
  std::counting_semaphore<> events_ready_{0};
  const std::unique_ptr<base::Workers> workers_ = base::Workers::Start(2, "arena").value();
  std::optional<Arena> arena_;
};

}  // namespace tier::memory
