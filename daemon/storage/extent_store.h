// ExtentStore: which pages of which device are free, live, pending, in doubt or quarantined. Pure bookkeeping over one
// BlockPool a device; the bytes move through TransferPort.
//
// Invariant, per device: free + live + pending + doubtful + quarantined == capacity. Engine thread only.
//
// Extents are striped: one device takes kStripePages, then the next one does, so that neighbours can still become one
// request. Where no device has a run of that length left, an extent takes the longest runs that one device has: a
// device with so many free pages can always hold it. Extents are write-once: an update allocates new ones, then frees
// the old. What held a tensor's bytes is not written again in the turn that frees it: FreeAtTurnEnd parks the extent
// until OnTurnEnded(). An extent that a manifest names is freed only after a synced commit has dropped the name
// (tiering/manifest_holds.h).
//
// Where extents have to be scattered, sparse blocks are cleared (tiering/durability/ssd_compaction.h). The free pages
// of a block that is being cleared are taken last, and end that.
//
// A place where the device failed is in doubt until a write to another place of the device succeeds. Where nothing else
// failed meanwhile beyond a stripe's length of it, it stays aside then, and is tried again only when nothing else is
// left; if it fails once more so, it is quarantined. Where the device turns out not to answer at all, the place is as
// good as before. So a device that is away for a while loses nothing to quarantine. What is quarantined is written down
// (tiering/durability/quarantine.h), and stays so until the operator has it tried again.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/block_pool.h"
#include "daemon/storage/cleared_blocks.h"
#include "daemon/storage/extent.h"
#include "daemon/storage/tried_places.h"
#include "proto/result.h"

namespace tier::storage {

inline constexpr uint32_t kStripePages = 2 * kPagesPerBlock;  // 4 MiB: one merged request.

// What helps where SSD space is short. A restart, which a new device takes, ends all jobs: it comes last.
inline constexpr char kRoomAdvice[] =
    "free tensors, remove what jobs that are not open have persisted (tierctl job list, tierctl job remove --purge), "
    "or restart tierd, which ends all jobs, with one more device in ssd.devices";

struct DeviceSpace {  // Bytes.
  uint64_t capacity = 0;
  uint64_t free = 0;
  uint64_t live = 0;
  uint64_t pending = 0;
  uint64_t doubtful = 0;
  uint64_t quarantined = 0;
};

// Whether a device takes extents.
enum class Shut : uint8_t {
  kOpen,
  kBusy,     // Not before some of its writes have ended.
  kFailing,  // Its writes fail: not just now.
};

// A full tier exchanges pieces with RAM through its last free block, of whichever device.
enum class LastBlock : uint8_t {
  kTake,  // The extent may take it.
  kKeep,  // Some device must have a block of free pages left.
};

// What the failures on a device turned out to be.
enum class Doubt : uint8_t {
  kOfPlaces,  // Other places work.
  kOfDevice,  // Nothing of it does.
};

class ExtentStore {
 public:
  // Devices are added once, at start. `blocks` = 2 MiB blocks of the data area.
  uint16_t AddDevice(uint32_t blocks);
  // One extent of 1 … 512 pages, near the last one allocated where possible so that a stream stays sequential.
  // NO_SPACE with figures when no device can hold it; IO_ERROR when every device that could is away. A draining device
  // takes none, nor does one that is shut or away.
  Result<Extent> Allocate(uint32_t pages, LastBlock last = LastBlock::kTake);
  // Whether the next extent of so many pages would be scattered: it costs up to one look per page.
  bool WouldScatter(uint32_t pages) const;
  // Bytes of extents that had to be scattered on the device, since the start.
  uint64_t scattered_bytes(uint16_t device) const { return CheckedDevice(device).scattered_bytes; }
  size_t scattered_extents(uint16_t device) const { return CheckedDevice(device).scattered.size(); }
  // Takes an extent that a manifest names, in these runs. CORRUPT if it overlaps another or lies outside the device.
  Status Take(Extent extent, std::span<const base::PageRun> runs);
  Status Take(Extent extent) { return Take(extent, {&extent.run, 1}); }  // Of one run.
  // The runs of an extent that is not free, in the order of its content. They stay where they are until it is freed; of
  // one that is not scattered the answer is a part of the argument.
  std::span<const base::PageRun> RunsOf(const Extent& extent) const;
  // Reusable at once. REQUIRES: live, no I/O in flight on it, and no piece's bytes were ever complete in it.
  void Free(Extent extent);
  void FreeAtTurnEnd(Extent extent);  // live → pending. REQUIRES: no I/O in flight on it.
  void OnTurnEnded();                 // All that is pending becomes free.
  // live → in doubt: a device error was seen there, which may be the place's. On a device that is away, where that says
  // nothing: pending. `failed_at`: the bytes of its content before the error; of a scattered extent the other runs are
  // then as good as before. Unknown: no run of it can be told from the others.
  void SetInDoubt(Extent extent, bool may_be_the_place, std::optional<uint64_t> failed_at = std::nullopt);
  void EndDoubts(uint16_t device, Doubt doubt);  // The device's → put aside, quarantined, or pending.
  // What an earlier run had quarantined: its free pages are quarantined. What a manifest names was written since, and
  // stays its own. REQUIRES: nothing was allocated yet.
  void Quarantine(uint16_t device, base::PageRun place);
  void RetryQuarantined(uint16_t device);  // They are put aside: used again when nothing else is left.
  // The places, as far as they are listed: the first kQuarantinedPlacesMax.
  std::span<const base::PageRun> quarantined(uint16_t device) const { return CheckedDevice(device).quarantined; }
  bool IsFailing(uint16_t device) const;  // It has more places than can be listed, or as many.
  bool any_quarantine_change() const { return quarantine_changed_; }
  std::vector<uint16_t> TakeQuarantineChanges();  // Devices whose list differs from what it was at the last call.
  void NoteWritten(Extent extent);                // A write succeeded there: nothing is held against it.

  // Blocks of the device that hold extents and free pages beside them, those with the most free pages first.
  void ListSparseBlocks(uint16_t device, size_t most, std::vector<base::SparseBlock>* blocks) const {
    CheckedDevice(device).pool.ListSparseBlocks(false, most, blocks);
  }
  uint64_t free_block_count(uint16_t device) const { return CheckedDevice(device).pool.free_block_count(); }
  // Nothing new is placed in the block until it is empty, or that ends: where the device has no other room it ends by
  // itself. False: the block holds no such extents. REQUIRES: it is not being cleared.
  [[nodiscard]] bool BeginClearing(uint16_t device, uint32_t block);
  void EndClearing(uint16_t device, uint32_t block);
  void EndClearing(uint16_t device);  // Of all blocks.
  bool clears(uint16_t device) const { return !CheckedDevice(device).cleared.empty(); }
  bool Clears(uint16_t device, uint32_t block) const { return CheckedDevice(device).cleared.Contains(block); }
  uint64_t cleared_blocks(uint16_t device) const { return CheckedDevice(device).cleared.cleared(); }

  void SetDraining(uint16_t device, bool draining);
  void SetShut(uint16_t device, Shut shut);
  void SetAway(uint16_t device, bool away);  // It does not answer: its free pages are of no use.
  // Neither drained nor closed: it takes extents as soon as it answers.
  bool takes_extents(uint16_t device) const { return closed_.empty() && !CheckedDevice(device).draining; }
  // No device takes extents, for this reason, a sentence; empty: they do again. What is live can be read and freed.
  void CloseToWrites(std::string reason) { closed_ = std::move(reason); }

  // Whether `bytes` more could be stored now or after this turn, were everything page-rounded.
  bool HasRoom(uint64_t bytes) const;
  bool HasBlock() const;  // Some device that takes extents has a block of free pages left, or at the end of this turn.
  // Whether the end of this turn frees something where extents are allocated.
  bool RoomComes() const;
  // An extent of so many pages may fit a device that is only shut just now.
  bool RoomBehindShut(uint32_t pages) const;
  // Or one that takes writes, now or when some of its own have ended: none that fails them.
  bool RoomWhereWritesSucceed(uint32_t pages) const;
  bool AnyOpen() const;  // Some device takes extents, as far as it has room.
  bool AnyShut() const;  // Some device will, later.
  uint16_t device_count() const { return static_cast<uint16_t>(devices_.size()); }
  DeviceSpace space(uint16_t device) const;
  DeviceSpace total() const;
  // Of the devices that take extents: without those that drain, and of those that are away only what they hold.
  DeviceSpace usable() const;
  DeviceSpace usable(uint16_t device) const;
  // For a refusal's sentence: "; 1 device of 4 MiB is draining and takes nothing". Empty: none is, or is away.
  std::string UnusableNote() const;
  void CheckInvariants() const;

 private:
  struct Doubtful {
    Extent extent;
    bool may_be_the_place = false;
  };
  struct Device {
    base::BlockPool pool;
    std::unordered_map<uint64_t, std::vector<base::PageRun>> scattered;  // The runs of each, by FirstPage.
    uint64_t capacity_pages = 0;
    uint64_t live_pages = 0;
    uint64_t pending_pages = 0;
    uint64_t doubtful_pages = 0;
    uint64_t quarantined_pages = 0;
    std::vector<base::PageRun> quarantined;  // kQuarantinedPlacesMax at most; the pages of others are only counted.
    uint64_t unlisted_pages = 0;             // Of these, of places beyond that: they wait for the next start.
    bool quarantine_changed = false;
    bool draining = false;
    Shut shut = Shut::kOpen;
    bool away = false;
    std::vector<Doubtful> doubtful;
    std::vector<Extent> aside;  // Also of doubtful_pages.
    TriedPlaces tried_again;    // They were put aside before.
    ClearedBlocks cleared;
    uint64_t scattered_bytes = 0;

    bool usable() const { return !draining && !away; }
    bool open() const { return usable() && shut == Shut::kOpen; }
    uint64_t free_pages() const { return pool.free_pages() + cleared.pages(); }
    uint64_t room_pages() const { return free_pages() + pending_pages + doubtful_pages; }
  };
  Device& CheckedDevice(Extent extent);
  const Device& CheckedDevice(uint16_t device) const;
  Device& At(uint16_t device);
  Extent Scatter(uint32_t pages, LastBlock last);
  // Whether device `index` takes so many pages, if it has them in whatever runs.
  bool Takes(size_t index, uint32_t pages, LastBlock last) const;
  void SetRunInDoubt(const Extent& extent, bool may_be_the_place);
  // Calls `visit` with each run as an extent of its own. A scattered one is none any more.
  template <typename Visit>
  void TakeApart(const Extent& extent, Visit visit);
  void NoteQuarantined(Device& device, base::PageRun place);
  static bool IsOnePlace(const std::vector<Doubtful>& doubts);
  void TryAsideAgain(Device& device);
  void FreeDoubtful(Device& device);
  void FreeDoubtful(Device& device, const Extent& extent);

  std::vector<Device> devices_;
  std::vector<Extent> pending_;
  bool quarantine_changed_ = false;  // Of some device.
  std::string closed_;               // Why no device takes extents. Empty: they do.
  uint16_t next_device_ = 0;         // Takes the next extent …
  uint32_t stripe_pages_left_ = 0;   // … until it has taken this many more pages.
};

}  // namespace tier::storage
