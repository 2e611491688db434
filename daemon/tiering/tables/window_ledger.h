// WindowLedger: the job and the condition of each window, and where its bytes are. Engine thread only.
//
// A job's BlockPool numbers blocks by the places of windows: block = place / 2 MiB. A window has its place from the
// event that brings it until it is cleared.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/page_run.h"
#include "daemon/base/time.h"
#include "daemon/memory/window_source.h"
#include "daemon/tiering/api/pool_view.h"
#include "daemon/tiering/api/snapshot.h"
#include "daemon/tiering/tables/tensor.h"
#include "daemon/tiering/tables/window_order.h"
#include "proto/units.h"

namespace tier::tiering {

enum class WindowCondition : uint8_t {
  kNone,
  kMaking,     // Requested from the source; its event has not come.
  kReady,      // In its job's pool.
  kReturning,  // Out of the pool; sessions were asked to unmap it.
  kClosing,    // No session maps it and no job has it; the devices still hold its memory.
};

// Whether a piece can leave a window that is to be emptied.
enum class WindowUse : uint8_t {
  kClean,  // Now: it moves, or its copy on SSD is enough.
  kDirty,  // Now by a move, else after a write; what is torn by a move alone.
  kBusy,   // Not before its transfer or its move has ended.
  kBound,  // Not before a client has done something: it is leased, waited for, or not sealed.
};
inline constexpr size_t kWindowUses = 4;

struct WindowEntry {
  JobIndex job = kNoJob;
  memory::OwnerId owner{};                        // Of `job`; no other job ever has it.
  memory::WindowShape shape;                      // While it is being made: its kind and size.
  base::TimePoint asked_back_at;                  // While it is returning.
  std::array<uint32_t, kWindowUses> pieces = {};  // Runs of pieces in it, by WindowUse.
  ByRamClass<uint32_t> pages = {};                // Of these pieces, by RamClass.
  uint32_t move_pages = 0;                        // Taken for moves in RAM, beside the pieces (JobMoves::extra_pages).
  uint32_t unreturned = 0;                        // Sessions that still map it.
  WindowCondition condition = WindowCondition::kNone;
  bool emptying = false;     // Chosen to be handed over (hand_over.cc): closed in its job's pool.
  LeftBy left_by{};          // While it is emptying.
  bool passed_over = false;  // What lies in it found no way out when it was emptying: others come first.
  bool overdue = false;      // Returning, and the deadline has passed.

  uint32_t count(WindowUse use) const { return pieces[static_cast<size_t>(use)]; }
  uint32_t pages_of(RamClass its) const { return pages[static_cast<size_t>(its)]; }
  uint32_t used_pages() const { return std::accumulate(pages.begin(), pages.end(), 0U); }
  uint32_t rank() const;  // In the order of its job (WindowOrder); kNone: it cannot be taken from it now.
};

static_assert(std::is_trivially_copyable_v<WindowEntry>);
static_assert(sizeof(WindowEntry) == 96);  // There is one of each window index.

// A window that clients were asked to return. The entry is outdated when the window's record no longer says so.
struct AskedBack {
  WindowIndex window{};
  base::TimePoint at;
};

class WindowLedger {
 public:
  explicit WindowLedger(const memory::WindowSource& source)
      : sizes_{source.window_sizes(WindowKind::kBlock), source.window_sizes(WindowKind::kSlot)},
        entries_(source.windows_max()),
        addresses_(source.windows_max()),
        order_(source.windows_max()) {
    const memory::WindowSizes block = sizes(WindowKind::kBlock);
    const memory::WindowSizes slot = sizes(WindowKind::kSlot);
    TIER_CHECK(slot.least % kBlockSize == 0 && std::has_single_bit(slot.least) && std::has_single_bit(block.least) &&
                   slot.least <= block.least && slot.least <= slot.most && slot.most <= block.most,
               "windows of {} to {} bytes, and of {} to {}", block.least, block.most, slot.least, slot.most);
    grain_shift_ = static_cast<uint32_t>(std::countr_zero(grain() / kBlockSize));
    by_place_.assign(source.address_space_bytes() / grain(), kNoWindow);
  }

  const WindowEntry& operator[](WindowIndex window) const { return entries_[tier::Value(window)]; }
  WindowEntry& Edit(WindowIndex window) {
    TIER_CHECK(tier::Value(window) < entries_.size(), "window {} of {}", tier::Value(window), entries_.size());
    return entries_[tier::Value(window)];
  }
  bool Contains(WindowIndex window) const { return tier::Value(window) < entries_.size(); }
  uint32_t capacity() const { return static_cast<uint32_t>(entries_.size()); }  // Indices of windows lie below it.

  // The window has come, at the place in its shape. REQUIRES: no other window lies there.
  void Put(const memory::WindowShape& shape, std::byte* address);
  void Clear(WindowIndex window);  // Clears its record.

  // Notes the most bytes that the source may hold. True: more than the last time.
  bool NoteArenaMax(uint64_t bytes) { return std::exchange(arena_max_bytes_, bytes) < bytes; }

  // How often there was more memory: a window came back to the arena, or the source may hold more. Never 0.
  uint64_t memory_gain() const { return memory_gain_; }
  void NoteMemoryGain() { ++memory_gain_; }

  // A window was refused for want of an index, and none has come free since.
  bool index_lacked() const { return index_lacked_; }
  void SetIndexLacked(bool lacked) { index_lacked_ = lacked; }

  // Windows of each job that can be taken from it, those with least to move first.
  const WindowOrder& order() const { return order_; }
  // What lies in it, or whether it may be taken, has changed. REQUIRES: its job has it.
  void Rerank(WindowIndex window) {
    const WindowEntry& entry = entries_[tier::Value(window)];
    order_.Set(entry.job, window, entry.rank());
  }
  void Unrank(WindowIndex window) {  // Its job is about to lose it.
    order_.Set(entries_[tier::Value(window)].job, window, WindowOrder::kNone);
  }

  void CheckInvariants() const;  // Each place has the window that lies there, each window the rank of what lies in it.

  // Windows that clients were asked to return, oldest first.
  void NoteAskedBack(WindowIndex window, base::TimePoint now) { asked_back_.push_back({window, now}); }
  bool any_asked_back() const { return !asked_back_.empty(); }
  const AskedBack& oldest_asked_back() const { return asked_back_.front(); }
  void PopAskedBack() { asked_back_.pop_front(); }
  // Those that were not returned in time, oldest first.
  void NoteOverdue(const AskedBack& asked) { overdue_.push_back(asked); }
  bool any_overdue() const { return !overdue_.empty(); }
  const AskedBack& oldest_overdue() const { return overdue_.front(); }
  void PopOverdue() { overdue_.pop_front(); }
  // Windows that the devices have given up, and that are not given back to the source yet: the oldest first.
  std::vector<WindowIndex>& removed() { return removed_; }

  uint64_t SizeOf(WindowIndex window) const { return entries_[tier::Value(window)].shape.size; }
  memory::WindowSizes sizes(WindowKind kind) const { return sizes_[static_cast<size_t>(kind)]; }
  uint64_t grain() const { return sizes(WindowKind::kSlot).least; }  // Bytes of the smallest window.
  WindowIndex WindowOf(base::PageRun run) const { return WindowIndex{by_place_[run.block >> grain_shift_]}; }
  uint32_t FirstBlock(WindowIndex window) const { return FirstBlock(entries_[tier::Value(window)]); }
  uint32_t BlockCount(WindowIndex window) const {
    return static_cast<uint32_t>(entries_[tier::Value(window)].shape.size / kBlockSize);
  }
  bool HoldsSlots(base::PageRun run) const { return EntryOf(run).shape.page_size == kPageSize; }
  uint64_t OffsetOf(base::PageRun run) const { return OffsetIn(EntryOf(run), run); }  // Bytes from its window's start.
  std::byte* AddressOf(base::PageRun run) const {
    const WindowIndex window = WindowOf(run);
    return addresses_[tier::Value(window)] + OffsetIn(entries_[tier::Value(window)], run);
  }

 private:
  static constexpr uint16_t kNoWindow = UINT16_MAX;
  static_assert(kWindowsMax <= kNoWindow);

  const WindowEntry& EntryOf(base::PageRun run) const { return entries_[tier::Value(WindowOf(run))]; }
  static uint32_t FirstBlock(const WindowEntry& entry) { return static_cast<uint32_t>(entry.shape.place / kBlockSize); }
  static uint64_t OffsetIn(const WindowEntry& entry, base::PageRun run) {
    return uint64_t{run.block - FirstBlock(entry)} * kBlockSize + uint64_t{run.page} * kPageSize;
  }

  std::array<memory::WindowSizes, kWindowKinds> sizes_;
  uint32_t grain_shift_ = 0;  // log2 of the blocks of the smallest window.
  std::vector<WindowEntry> entries_;
  uint64_t arena_max_bytes_ = 0;
  uint64_t memory_gain_ = 1;
  bool index_lacked_ = false;
  std::deque<AskedBack> asked_back_;
  std::deque<AskedBack> overdue_;
  std::vector<WindowIndex> removed_;
  std::vector<std::byte*> addresses_;  // Where each window is mapped.
  WindowOrder order_;
  std::vector<uint16_t> by_place_;  // Indices by place, in units of the smallest window.
};

inline void WindowLedger::Put(const memory::WindowShape& shape, std::byte* address) {
  const uint64_t unit = grain();
  const uint64_t started = (*this)[shape.index].shape.size;
  TIER_CHECK(
      shape.size == started && shape.place % shape.size == 0 && (shape.place + shape.size) / unit <= by_place_.size(),
      "window {}: {} bytes of {} at {}", tier::Value(shape.index), shape.size, started, shape.place);
  Edit(shape.index).shape = shape;
  addresses_[tier::Value(shape.index)] = address;
  for (uint64_t at = shape.place; at < shape.place + shape.size; at += unit) {
    uint16_t& there = by_place_[at / unit];
    TIER_CHECK(there == kNoWindow, "windows {} and {} both lie at {}", there, tier::Value(shape.index), at);
    there = static_cast<uint16_t>(tier::Value(shape.index));
  }
}

inline void WindowLedger::Clear(WindowIndex window) {
  const memory::WindowShape& shape = (*this)[window].shape;
  const bool has_place = (*this)[window].condition != WindowCondition::kMaking;
  const uint64_t end = has_place ? shape.place + shape.size : shape.place;
  for (uint64_t at = shape.place; at < end; at += grain()) by_place_[at / grain()] = kNoWindow;
  Edit(window) = {};
  addresses_[tier::Value(window)] = nullptr;
}

inline uint32_t WindowEntry::rank() const {
  const bool free_to_go = condition == WindowCondition::kReady && !emptying && move_pages == 0 &&
                          count(WindowUse::kBusy) == 0 && count(WindowUse::kBound) == 0;
  if (!free_to_go) return WindowOrder::kNone;
  const uint32_t used = used_pages();
  return used == 0 ? WindowOrder::RankOfEmpty(shape.size)
                   : WindowOrder::RankOfUsed(used, count(WindowUse::kDirty) != 0);
}

inline void WindowLedger::CheckInvariants() const {
  order_.CheckInvariants();
  for (uint32_t i = 0; i < entries_.size(); ++i) {
    const uint32_t rank = order_.RankOf(WindowIndex{i});
    TIER_CHECK(rank == entries_[i].rank(), "window {} has rank {}, not {}", i, rank, entries_[i].rank());
  }
  for (uint32_t grain = 0; grain < by_place_.size(); ++grain) {
    const uint16_t window = by_place_[grain];
    if (window == kNoWindow) continue;
    const memory::WindowShape& shape = entries_[window].shape;
    const uint64_t at = (uint64_t{grain} << grain_shift_) * kBlockSize;
    TIER_CHECK(shape.place <= at && at < shape.place + shape.size, "window {} at {} is found at {}", window,
               shape.place, at);
  }
}

}  // namespace tier::tiering
