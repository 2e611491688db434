// Piece: at most one block of a tensor; the grain at which bytes have copies, a generation, a checksum and leases.
//
// 64 bytes, so that a hundred thousand small tensors cost the daemon little: one cache line a piece. Engine thread
// only.
//
// `ram` is the one run in which it lies, or the name of several (scattered_ram.h).
//
// Invariants: `ram` is set exactly while the piece has a RAM copy, is being read in or written by a lease, or holds
// room for a waiter (kReserved); `ssd` exactly while copies contain ssd. The pair (copies, activity) changes only by
// the moves of transitions.h.
#pragma once

#include <cstdint>

#include "daemon/base/page_run.h"
#include "daemon/storage/extent.h"

namespace tier::tiering {

enum class PieceId : uint32_t {};
enum class TensorIndex : uint32_t {};
inline constexpr PieceId kNoPiece{UINT32_MAX};
inline constexpr TensorIndex kNoTensor{UINT32_MAX};
constexpr uint32_t Value(PieceId id) { return static_cast<uint32_t>(id); }
constexpr uint32_t Value(TensorIndex index) { return static_cast<uint32_t>(index); }

enum class Copies : uint8_t {
  kCreating,  // Not every byte was sealed yet; only the creator may see the bytes in RAM.
  kRam,       // Sealed, in RAM only: dirty.
  kSsd,
  kRamSsd,  // Clean; under a write lease: the SSD copy is what the lease would revert to.
  kTorn,    // A writer died over it and no older copy exists; `ram` holds what it left.
  kFreed,   // Freed by its owner; waits for its transfer to end.
};
inline constexpr uint8_t kCopiesCount = 6;

enum class Activity : uint8_t {
  kNone,
  kWritingOut,
  kReadingIn,
  kLeasedWrite,
  kDraining,
  kMoving,  // To another run in RAM (ram_move_table.h); `ram` is where it still lies.
};
inline constexpr uint8_t kActivityCount = 6;

// Piece::flags.
inline constexpr uint8_t kListed = 1u << 0;       // In its job's eviction order.
inline constexpr uint8_t kReserved = 1u << 1;     // `ram` is room held for a waiter; its bytes mean nothing.
inline constexpr uint8_t kCorrupt = 1u << 2;      // The SSD copy has a wrong checksum; sticky until rewritten.
inline constexpr uint8_t kBadExtent = 1u << 3;    // The device failed to read it: in doubt, not free, when dropped.
inline constexpr uint8_t kWanted = 1u << 4;       // A waiting writer has a claim on it (Claims).
inline constexpr uint8_t kFreshExtent = 1u << 5;  // Written since it last left RAM: evicting it avoids no write.
inline constexpr uint8_t kPrefetched = 1u << 6;   // Read by a prefetch, and kept for its first use (PrefetchAge).
inline constexpr uint8_t kAwaited = 1u << 7;      // A request waits at it, or did (WaitTable).

// The most requests that may pin one piece; the pins on a tensor to be replaced come in addition.
inline constexpr uint16_t kPinsMax = UINT16_MAX / 2;

struct alignas(64) Piece {
  base::PageRun ram;
  base::PageRun ssd_run;  // As in storage::Extent.
  uint8_t ssd_device : 7 = 0;
  uint8_t ssd_scattered : 1 = 0;
  uint8_t flags = 0;
  Copies copies = Copies::kFreed;
  Activity activity = Activity::kNone;
  uint32_t crc = 0;  // CRC32C of the content at ssd.
  TensorIndex tensor = kNoTensor;
  uint32_t number = 0;  // Piece k holds the bytes from k × 2 MiB on.
  uint32_t generation = 0;
  uint32_t ssd_generation = 0;  // Of the bytes at ssd.
  PieceId newer = kNoPiece;     // Neighbours in the eviction order.
  PieceId older = kNoPiece;
  uint32_t used_at = 0;        // Stamp of the last use, by the policy's own clock.
  uint16_t pins = 0;           // Waiters for which this piece must stay where it is.
  bool ram_scattered = false;  // It lies in several runs: `ram` names it (scattered_ram.h).
  bool retired = false;        // It goes before all that were used: of the eviction policy.
  uint32_t read_leases = 0;
  uint32_t prefetched_at = 0;  // While kPrefetched: the epoch of PrefetchAge.

  bool has(uint8_t flag) const { return (flags & flag) != 0; }
  void set(uint8_t flag) { flags = static_cast<uint8_t>(flags | flag); }
  void clear(uint8_t flag) { flags = static_cast<uint8_t>(flags & ~flag); }
  storage::Extent extent() const { return {ssd_run, ssd_device, ssd_scattered != 0}; }
  bool in_transfer() const {
    return activity == Activity::kWritingOut || activity == Activity::kReadingIn || activity == Activity::kDraining;
  }
  // All that was sealed of it is on SSD, and no session is changing it.
  bool on_ssd() const { return ssd_run && activity != Activity::kLeasedWrite; }
  // The bytes in RAM are the piece's newest sealed content.
  bool readable() const {
    return (copies == Copies::kRam || copies == Copies::kRamSsd) && activity != Activity::kLeasedWrite;
  }
};
static_assert(sizeof(Piece) == 64);

// The state of a piece before it is made.
inline constexpr Piece kPieceToCome{.copies = Copies::kCreating};

}  // namespace tier::tiering
