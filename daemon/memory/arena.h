// Arena: the windows of a real daemon. Decides whether one more may be made (the arena's maximum, the host reserve, the
// cgroup, memory pressure) and keeps the table of whose it is; WindowMaker does the work on worker threads.
//
// Block windows are in huge pages as the policy says; slot windows always in small ones. What is made ahead of need
// ("stock") are block windows of the largest size; another window that the arena has no room or no index for beside
// them takes that of one.
//
// Engine thread only. An index goes unused → making → (stock →) ready → closing → unused, or back to unused when its
// window could not be made. Invariants: owned + stock bytes <= arena maximum, and exactly these windows have a place;
// an index is handed out again only after its window's file is closed.
//
// The daemon's own tables (SetMetadata) count as the arena's: windows and tables together stay within the memory that
// the host reserve leaves, ArenaSizes::usable_bytes. Where tables grow beside a full arena, arena_max_bytes() falls.
//
// Host memory is read on a worker thread: four times a second (StartSample), and when growth has used up what a reading
// covers, kReadingCoversBytes. Until that reading comes, growth goes on from the rest of what the last one has found.
//
// Where the host runs short arena_max_bytes() falls below arena_bytes() (host_pressure.h), and the owner of the windows
// is to retire some. Windows in huge pages are left out of that: these go back to the kernel's pool, not to the host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/base/check.h"
#include "daemon/base/clock.h"
#include "daemon/base/free_block_map.h"
#include "daemon/base/workers.h"
#include "daemon/memory/arena_sizing.h"
#include "daemon/memory/changing_owner_credit.h"
#include "daemon/memory/host_memory.h"
#include "daemon/memory/host_pressure.h"
#include "daemon/memory/host_sampler.h"
#include "daemon/memory/huge_page_credit.h"
#include "daemon/memory/numa_nodes.h"
#include "daemon/memory/place_allocator.h"
#include "daemon/memory/retired_windows.h"
#include "daemon/memory/return_notes.h"
#include "daemon/memory/small_page_credit.h"
#include "daemon/memory/window_maker.h"
#include "daemon/memory/window_source.h"

namespace tier::memory {

enum class HugePagePolicy : uint8_t {
  kAuto,    // hugetlb while the kernel's pool has pages, else shmem: the named mode `small_pages`, counted.
  kAlways,  // hugetlb, or NO_MEMORY.
  kNever,
};
enum class CollapsePolicy : uint8_t {
  kAuto,  // Every window in small pages, before a job has it.
  kNever,
};

struct ArenaOptions {
  ArenaSizes sizes;
  HugePagePolicy huge_pages = HugePagePolicy::kAuto;
  CollapsePolicy collapse = CollapsePolicy::kAuto;
  int numa_node = kAnyNode;            // Of all windows: no other is used. kAnyNode: each from its client's.
  std::string host_root = "/";         // Where proc and sys lie.
  std::function<void()> on_event;      // Wakes the engine; see WindowMaker. May be null.
  const base::Clock* clock = nullptr;  // Outlives the arena. Null: CLOCK_MONOTONIC.
};

struct ArenaSnapshot {       // For metrics, doctor and log. Bytes of windows.
  uint64_t owned_bytes = 0;  // Made or being made for an owner.
  uint64_t stock_bytes = 0;  // Prefaulted at start, not given to a job yet.
  uint64_t making_bytes = 0;
  uint64_t closing_bytes = 0;
  uint64_t huge_page_bytes = 0;  // Of owned and stock: in hugetlb windows.
  // StartPrefault: what was asked, and what of it is done; both without what was closed before an owner had it.
  uint64_t prefault_target_bytes = 0;
  uint64_t prefault_done_bytes = 0;
  uint64_t refusals_at_maximum = 0;
  uint64_t refusals_by_host = 0;  // Reserve, cgroup, pressure.
  uint64_t create_failures = 0;   // The kernel would not.
  uint64_t given_back_bytes = 0;  // Windows closed since start because the host was short.
  uint64_t retired_windows = 0;   // Closed here and still open or mapped in another process.
  MakerCounters made;
  HostReading host;  // The last one.
};

class Arena final : public WindowSource {
 public:
  static constexpr uint64_t kReadingCoversBytes = 256 * kMiB;

  // `workers` must outlive the arena, as must `closers`, which read the host's memory and close windows; null: they are
  // the same. Raises this process's soft limit of open files for one descriptor a window.
  Arena(ArenaOptions options, base::Workers* workers, base::Workers* closers = nullptr);
  ~Arena() override;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  WindowSizes window_sizes(WindowKind) const override {
    return {.least = options_.sizes.window_size_min, .most = options_.sizes.window_size_max};
  }
  WindowWishes wishes(const WindowHolder& job) const override;
  uint32_t windows_max() const override { return options_.sizes.windows_max; }
  uint64_t arena_limit_bytes() const override { return options_.sizes.max_bytes; }
  uint32_t free_indices() const override { return static_cast<uint32_t>(unused_.free_count() + stock_.size()); }
  uint64_t address_space_bytes() const override { return places_.space_bytes(); }
  uint64_t arena_max_bytes() const override { return max_now_bytes_; }
  uint64_t arena_bytes() const override { return owned_bytes_; }
  uint64_t stock_bytes() const override { return stock_bytes_; }
  bool block_windows_take_slots() const override;
  bool block_windows_come() const override {
    return HugePagesComeFor(WindowKind::kBlock, options_.sizes.window_size_min);
  }
  Result<StartedWindow> StartCreate(OwnerId owner, WindowKind kind, uint64_t size_bytes, int node) override;
  void NoteUnreturned(WindowIndex window, uint64_t session) override { NotesOf(window).unreturned.push_back(session); }
  void NoteAsked(WindowIndex window, uint64_t session) override { NotesOf(window).asked.push_back(session); }
  void ClearUnreturned(WindowIndex window) override { return_notes_.ClearUnreturned(window); }
  uint64_t NumberOf(WindowIndex window) override {
    (void)Ready(window);
    return return_notes_.NumberOf(window);
  }
  void StrikeUnreturned(WindowIndex window, uint64_t number, uint64_t session) override {
    return_notes_.Strike(window, number, session);
    retired_.Strike(number, session);
  }
  void NoteOwed(WindowIndex window) override { NotesOf(window).owed = true; }
  bool TakeKept(std::vector<KeptWindow>* kept) override { return retired_.Poll(kept); }
  void Retire(WindowIndex window) override;
  void Poll(std::vector<WindowEvent>* events) override;
  bool TakeRoomFreed() override { return std::exchange(room_freed_, false); }
  std::shared_ptr<const proto::FileDescriptor> Descriptor(WindowIndex window) const override;

  // Makes block windows ahead of need, `bytes` of them in all, less what owners have by now, which StartCreate then
  // hands out at once. NO_MEMORY as there.
  Status StartPrefault(uint64_t bytes);
  // What the daemon's own tables take now. It counts from the next growth, and in arena_max_bytes() from the next
  // reading.
  void SetMetadata(uint64_t bytes) { metadata_bytes_ = bytes; }
  // The host reserve and the minimum of these hold from the next reading on. REQUIRES: the maximum is as it was.
  void SetHostLimits(const ArenaSizes& sizes) {
    TIER_CHECK(sizes.max_bytes == options_.sizes.max_bytes, "a maximum of {} instead of {}", sizes.max_bytes,
               options_.sizes.max_bytes);
    options_.sizes.host_reserve_bytes = sizes.host_reserve_bytes;
    options_.sizes.reserve_is_derived = sizes.reserve_is_derived;
    options_.sizes.usable_bytes = sizes.usable_bytes;
    options_.sizes.min_bytes = sizes.min_bytes;
  }
  // Asks for the host's memory to be read again. Poll then sets arena_max_bytes() by it; stock windows go first when
  // the host runs short.
  void StartSample();
  // The same, and has retired windows looked at. To be called every second or so.
  void StartRefresh();
  // The same at once, some 100 µs and more: for the start of the daemon.
  void RefreshHost();
  ArenaSnapshot snapshot() const;
  const HostPressure& pressure() const { return pressure_; }
  // What keeps the arena low, in words: "memory.high of /a leaves 3 MiB, the host reserve is 64 MiB".
  std::string PressureText() const { return DescribePressure(pressure_, host_, reserve_bytes(), own_bytes()); }
  uint64_t given_back_bytes() const { return given_back_bytes_; }
  uint64_t create_failures() const { return create_failures_; }
  bool prefaults_alone() const { return !stock_maker_.pauses_between_windows(); }  // No job has asked for a window yet.
  const std::string& last_failure() const { return last_failure_; }  // Why the last of them could not be made.
  const HostReading& host() const { return host_; }                  // The last one.

 private:
  enum class State : uint8_t { kUnused, kMaking, kMakingStock, kStock, kReady, kClosing };
  struct Making {  // What is to be made.
    OwnerId owner{};
    WindowKind kind = WindowKind::kBlock;
    uint64_t size = 0;
    NodeChoice node;
  };
  struct Entry {  // There is one of each window index.
    State state = State::kUnused;
    WindowKind kind = WindowKind::kBlock;
    bool making_small = false;  // Being made in small pages, and surely so.
    bool closing_huge = false;  // Its huge pages are on their way back.
    OwnerId owner{};
    uint64_t size = 0;
    uint64_t place = 0;       // Taken while the window is owned or stock.
    uint64_t given_back = 0;  // Of it: for want of memory of the host.
    Window window;
    int node = kAnyNode;  // Of its first page.
  };
  static_assert(sizeof(Entry) <= 104);
  enum class Growth : uint8_t { kSmall, kHuge, kHugeElseSmall };

  Entry& At(WindowIndex window) {
    TIER_CHECK(Value(window) < entries_.size(), "window {} of {}", Value(window), entries_.size());
    return entries_[Value(window)];
  }
  Entry& Ready(WindowIndex window) {
    Entry& entry = At(window);
    TIER_CHECK(entry.state == State::kReady, "window {} state {}", Value(window), static_cast<int>(entry.state));
    return entry;
  }
  ReturnNotes::Notes& NotesOf(WindowIndex window) {
    (void)Ready(window);
    return return_notes_.Edit(window);
  }
  uint64_t stock_size() const { return options_.sizes.window_size_max; }  // Of one window.
  bool TakesHuge(WindowKind kind) const {
    return kind == WindowKind::kBlock && options_.huge_pages != HugePagePolicy::kNever;
  }
  // Growth that is still covered, in pages that a window of this kind may have.
  uint64_t HugeCredit(WindowKind kind) const { return TakesHuge(kind) ? huge_pages_.bytes() : 0; }
  // There are none for a window of this size, and will be once what is being closed is closed.
  bool HugePagesComeFor(WindowKind kind, uint64_t size) const {
    return TakesHuge(kind) && huge_pages_.bytes() < size && huge_pages_.bytes() + huge_pages_.closing_bytes() >= size;
  }
  bool TakesSmall(WindowKind kind) const {
    return kind == WindowKind::kSlot || options_.huge_pages != HugePagePolicy::kAlways;
  }
  uint64_t SmallCredit(WindowKind kind) const { return TakesSmall(kind) ? small_credit_.bytes() : 0; }
  Result<Growth> AllowGrowth(WindowKind kind, uint64_t size);
  Result<Growth> AllowFromHost(WindowKind kind, uint64_t size);
  std::unexpected<Error> HostRefusal(WindowKind kind, uint64_t size);
  Result<StartedWindow> StartMake(State state, Making wanted);
  StartedWindow HandOutStock(OwnerId owner, int node);
  // `making_when_asked`: bytes of windows that were in the making when the reading was asked for.
  void SetHost(const HostReading& host, uint64_t making_when_asked, uint64_t closed_when_asked);
  HostPressure::Arena PressedBy(uint64_t given) const;
  void NoteGivenBack(WindowIndex window);
  void NoteRoomFreed() { room_freed_ = std::exchange(room_lacked_, false) || room_freed_; }
  void CloseStock();
  void TradeStock();  // Closes one for the sake of another window.
  void StartClose(WindowIndex window);
  void CloseStockBeyond(uint64_t bytes);
  void OnClosed(MadeWindow closed);
  void OnMade(MadeWindow made, std::vector<WindowEvent>* events);
  void OnFailed(MadeWindow made, std::vector<WindowEvent>* events);
  WindowEvent EventOf(WindowIndex window) const;
  uint64_t HugePageBytesFree() const;
  uint64_t HugePageBytes() const;
  uint64_t reserve_bytes() const;
  uint64_t own_bytes() const { return std::max(metadata_bytes_, host_.own_bytes); }
  uint64_t bound_bytes() const;

  ArenaOptions options_;
  std::vector<Entry> entries_;
  ReturnNotes return_notes_;
  base::FreeBlockMap unused_;  // Of window indices; the lowest is taken first.
  PlaceAllocator places_;
  NumaNodes nodes_;
  bool room_lacked_ = false;  // By a window that was refused: an index, or what is being made ahead.
  bool room_freed_ = false;   // Some since then; until it is told.
  std::vector<WindowIndex> stock_;
  std::vector<WindowIndex> handed_out_;  // Out of stock since the last Poll.
  uint32_t owned_count_ = 0;
  uint64_t owned_bytes_ = 0;
  uint64_t stock_bytes_ = 0;  // Made and being made.
  uint64_t making_bytes_ = 0;
  uint64_t closing_bytes_ = 0;
  uint64_t max_now_bytes_ = 0;
  uint64_t metadata_bytes_ = 0;
  HostReading host_;
  HostPressure pressure_;
  uint64_t closed_bytes_ = 0;  // Since start, in small pages.
  uint64_t given_back_bytes_ = 0;
  uint64_t sampled_making_bytes_ = 0;  // making_bytes_ when the reading under way was asked for …
  uint64_t sampled_closed_bytes_ = 0;  // … and closed_bytes_.
  bool host_read_ = false;
  SmallPageCredit small_credit_;
  HugePageCredit huge_pages_;
  ChangingOwnerCredit changing_owner_;
  uint64_t prefault_target_bytes_ = 0;
  uint64_t prefault_done_bytes_ = 0;
  uint64_t refusals_at_maximum_ = 0;
  uint64_t refusals_by_host_ = 0;
  uint64_t create_failures_ = 0;
  std::string last_failure_;
  bool failing_ = false;          // A window could not be made: none is tried before the next reading of the host.
  std::vector<MadeWindow> made_;  // Poll's, kept for its room.
  base::SteadyClock steady_clock_;
  const base::Clock& clock_;
  HostSampler sampler_;
  RetiredWindows retired_;
  WindowMaker maker_;         // Last, with the next two: their tasks end first.
  WindowMaker closer_;        // Closes, in threads that the kernel does not slow down for want of memory.
  WindowMaker& stock_maker_;  // The one of them that has more threads: at the start nothing else is to be done.
};

}  // namespace tier::memory
