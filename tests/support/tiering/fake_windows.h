// FakeWindowSource: windows made of ordinary memory at scripted times, for the engine's tests and the simulator.
// Single-threaded and deterministic: time is counted in calls of Poll.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/memory/arena_sizing.h"
#include "daemon/memory/place_allocator.h"
#include "daemon/memory/small_page_credit.h"
#include "daemon/memory/window_source.h"
#include "proto/mapping.h"

namespace tier::memory::testing {

struct FakeWindowOptions {
  uint64_t window_size = 8 * kMiB;  // Of the largest block window.
  uint64_t slot_window_size = 0;    // Of the largest slot window. 0: the same.
  uint64_t window_size_min = 0;     // Of the smallest window of either kind. 0: each kind has one size.
  uint64_t arena_max_bytes = 64 * kMiB;
  uint64_t arena_limit_bytes = 0;  // 0: arena_max_bytes, as it is at first.
  uint32_t windows_max = 64;
  uint32_t delay_turns = 0;     // A window comes after this many further calls of Poll.
  uint32_t page_size = 4096;    // Of block windows; 2 MiB: whole blocks only. Slot windows have small pages.
  bool without_memory = false;  // For ports that touch no byte: windows are addresses only.
  bool memory_files = false;    // Windows are memfds, which clients can map.
  bool by_readings = false;     // The host is read now and then: what was given back is known at a later Poll alone.
};

class FakeWindowSource final : public WindowSource {
 public:
  explicit FakeWindowSource(FakeWindowOptions options);
  ~FakeWindowSource() override;

  WindowSizes window_sizes(WindowKind kind) const override {
    const uint64_t most = kind == WindowKind::kBlock ? options_.window_size : options_.slot_window_size;
    return {.least = options_.window_size_min == 0 ? most : options_.window_size_min, .most = most};
  }
  WindowWishes wishes(const WindowHolder& job) const override;
  uint32_t windows_max() const override { return options_.windows_max; }
  uint32_t free_indices() const override {
    const auto used = static_cast<uint32_t>(windows_.size()) + indices_closing_;
    return options_.windows_max - std::min(options_.windows_max, used);
  }
  uint64_t arena_limit_bytes() const override { return options_.arena_limit_bytes; }
  uint64_t address_space_bytes() const override { return places_.space_bytes(); }
  uint64_t arena_max_bytes() const override { return options_.arena_max_bytes; }
  uint64_t arena_bytes() const override { return places_.taken_bytes(); }
  uint64_t stock_bytes() const override { return stock_bytes_; }
  bool block_windows_take_slots() const override { return options_.page_size == kPageSize; }
  bool block_windows_come() const override { return huge_pages_closing_; }
  Result<StartedWindow> StartCreate(OwnerId owner, WindowKind kind, uint64_t size_bytes, int node) override;
  void Retire(WindowIndex window) override;
  void NoteUnreturned(WindowIndex window, uint64_t session) override {
    unreturned_.emplace(Value(window), session);
    windows_.at(Value(window)).kept.sessions.push_back(session);
  }
  uint64_t NumberOf(WindowIndex window) override { return windows_.at(Value(window)).kept.number; }
  void StrikeUnreturned(WindowIndex window, uint64_t number, uint64_t session) override;
  void NoteOwed(WindowIndex window) override {
    windows_.at(Value(window)).kept.owed = true;
    ++owed_count_;
  }
  bool TakeKept(std::vector<KeptWindow>* kept) override {
    *kept = kept_;
    return std::exchange(looked_, false);
  }
  void Poll(std::vector<WindowEvent>* events) override;
  bool TakeRoomFreed() override {
    const bool freed = HasIndex() && !huge_pages_closing_ && std::exchange(room_lacked_, false);
    return std::exchange(room_read_, false) || freed;
  }
  std::shared_ptr<const proto::FileDescriptor> Descriptor(WindowIndex window) const override;

  // The script.
  void SetDelay(uint32_t turns) { options_.delay_turns = turns; }
  void SetArenaMax(uint64_t bytes) {
    options_.arena_max_bytes = bytes;
    ReadHost();
  }
  void SetStock(uint64_t bytes) { stock_bytes_ = bytes; }  // A figure alone: no window is handed out of it.
  void SetPageSize(uint32_t page_size) { options_.page_size = page_size; }
  void FailNext(uint32_t count) { failures_ += count; }  // The next windows under way cannot be made.
  // What the next look finds.
  void FindKept(std::vector<KeptWindow> kept) {
    kept_ = std::move(kept);
    looked_ = true;
  }
  uint64_t owed_count() const { return owed_count_; }  // Calls of NoteOwed.
  // Windows that were retired with names of NoteUnreturned on them, as a look finds them while their processes keep
  // them: with the names that were not struck since.
  const std::vector<KeptWindow>& retired() const { return retired_; }
  // Windows and sessions of NoteUnreturned, struck or not.
  const std::multimap<uint32_t, uint64_t>& unreturned() const { return unreturned_; }
  // So many indices are those of windows that are still being closed.
  void SetIndicesClosing(uint32_t count) { indices_closing_ = count; }
  // Block windows have to wait for pages that are on their way back.
  void SetHugePagesClosing(bool closing) { huge_pages_closing_ = closing; }
  void RefuseSlotWindows(bool refuse) { refuses_slot_windows_ = refuse; }
  void SetSmallestWished(uint64_t bytes) { smallest_wished_ = bytes; }  // Of the next windows of any job.
  void SetMergedWished(uint64_t bytes) { merged_wished_ = bytes; }      // The same of merged ones.
  // Instead of these: as an arena of such sizes has it.
  void SetSizes(const ArenaSizes& sizes) { sizes_ = sizes; }
  void HalveNext(uint32_t count) { halved_ += count; }  // The next windows have half of the size asked for.
  std::byte* address(WindowIndex window) const { return windows_.at(Value(window)).address; }
  bool ready(WindowIndex window) const { return windows_.contains(Value(window)) && windows_.at(Value(window)).ready; }
  uint64_t window_count() const { return windows_.size(); }
  uint64_t CountOf(WindowKind kind) const;
  uint64_t made_count() const { return made_; }
  bool under_way() const;  // Some windows have not come yet.

 private:
  struct Free {
    void operator()(std::byte* memory) const;
  };
  struct Window {
    OwnerId owner{};
    WindowShape shape;
    std::unique_ptr<std::byte, Free> memory;  // Or:
    std::shared_ptr<const proto::FileDescriptor> file;
    proto::Mapping mapping;
    std::byte* address = nullptr;
    uint64_t due_turn = 0;
    bool ready = false;
    KeptWindow kept;  // What a look says of it if it is retired so, except `since`.
  };
  bool HasIndex() const { return free_indices() != 0; }
  void GiveMemory(Window* window);
  // Finds what the arena may still have. Until the next one, windows that are retired are no room for others.
  void ReadHost();
  // Addresses of all places, where no byte may be touched.
  class Addresses {
   public:
    explicit Addresses(uint64_t bytes);
    ~Addresses();
    Addresses(const Addresses&) = delete;
    Addresses& operator=(const Addresses&) = delete;
    std::byte* At(uint64_t place) const { return base_ + place; }

   private:
    std::byte* base_;
    uint64_t bytes_;
  };
  FakeWindowOptions options_;
  PlaceAllocator places_;
  std::optional<Addresses> addresses_;  // Of windows without memory.
  std::map<uint32_t, Window> windows_;
  uint64_t ready_ = 0;  // Of these.
  uint32_t indices_closing_ = 0;
  bool room_lacked_ = false;
  SmallPageCredit credit_{UINT64_MAX};
  bool reading_ = false;    // Comes with the next Poll.
  bool room_read_ = false;  // It has found what was lacked before.
  bool huge_pages_closing_ = false;
  uint32_t lowest_unused_ = 0;  // No index below it is unused.
  std::multimap<uint32_t, uint64_t> unreturned_;
  std::vector<KeptWindow> kept_;
  std::vector<KeptWindow> retired_;
  bool looked_ = false;
  bool refuses_slot_windows_ = false;
  uint64_t stock_bytes_ = 0;
  uint64_t smallest_wished_ = 0;
  uint64_t merged_wished_ = 0;
  std::optional<ArenaSizes> sizes_;
  uint32_t halved_ = 0;
  uint32_t failures_ = 0;
  uint64_t turn_ = 0;
  uint64_t made_ = 0;
  uint64_t last_number_ = 0;
  uint64_t owed_count_ = 0;
};

}  // namespace tier::memory::testing
