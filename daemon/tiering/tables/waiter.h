// Waiter: a request that could not be answered at once. One record for what all requests have in common, and one for
// each kind of request. Engine thread only.
//
// A request for leases has two stages: *conflict* (a lease of another session, an unsealed tensor or a transfer blocks
// it: it holds nothing) and *reserved* (nothing conflicts and there was room for all of it; its pieces are pinned while
// bytes are read). A request that is short of room holds none, so two requests never hold half of what each needs.
//
// The WaitTable knows where a waiter waits, and what wakes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <variant>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/metadata_charge.h"
#include "daemon/tiering/tables/outcome.h"
#include "daemon/tiering/tables/stall_clock.h"
#include "daemon/tiering/tables/tensor_range.h"

namespace tier::tiering {

struct JobState;

// A piece of one of the request's items.
struct PieceCursor {
  uint32_t item = 0;
  uint32_t piece = 0;  // Of the tensor.
};

// The progress of a request that looks at every piece of its tensors.
struct Scan {
  uint32_t item = 0;
  uint32_t piece = 0;  // Of the item.
  uint64_t ram_bytes = 0;
  uint64_t ssd_bytes = 0;
};

// How many tensors a request that named none has listed (requests/enumeration.h).
enum class Enumeration : uint8_t {
  kWhole,      // All tensors; also of a request that named its tensors.
  kOwn,        // Some of the session's namespace.
  kInherited,  // All of the session's, and some that the job's sessions inherited.
  kShared,     // All of both, where they were asked for, and some of the shared namespace.
};
inline constexpr uint32_t kAllNamed = UINT32_MAX;

struct Listing {
  Enumeration stage = Enumeration::kWhole;
  SessionId session{};                 // Of a persist: the session whose namespace is being listed.
  uint32_t first_unnamed = kAllNamed;  // Items from here on are shared or inherited, and were not named.
};

// The conflict of a request at its last attempt.
struct Conflict {
  bool blocked = false;
  PieceCursor at;
};

// How far it has been looked for blocks of which the slots can be moved (memory/compaction.h).
struct SparseSearch {
  uint16_t passed = 0;  // Blocks, in the order in which they are listed.
  uint16_t tried = 0;   // Of them, those with slots that all could move, and found no room elsewhere.
  // Of the first of these: what cannot be divided, in a hole of so many pages. Another block may have one made.
  uint32_t hole_pages = 0;  // 0: none was met.
  uint32_t hole_for = 0;    // The block.
  bool for_hole = false;    // It is looked for such a hole now.
  uint8_t holes = 0;        // That were made in a row, without a block being cleared.
};

// A create or an acquire.
struct LeaseWait {
  Conflict conflict;
  TensorRef place;              // The tensor that it will replace, pinned, whose RAM it counts on (replace.h).
  bool pinned = false;          // Its pieces are pinned.
  bool claims = false;          // Has entries in its job's Claims.
  bool missed = false;          // It counts as a miss (acquire_misses).
  bool starved = false;         // It got no room at the last attempt.
  bool not_scattered = false;   // No moves in RAM would make room for it, as of the last attempt.
  bool awaits_runs = false;     // It can be granted, and waits for moves that bring its blocks side by side.
  bool as_it_is = false;        // No moves do.
  uint32_t gathers = 0;         // Moves that were started to do that (memory/gathering.h).
  SparseSearch search;          // Of the attempt to make room that is under way.
  uint64_t needed_pages = 0;    // Pages without room at the last attempt.
  uint64_t write_failures = 0;  // Of the job when it came.
};

struct FreeWait {
  Conflict conflict;
};

struct FlushWait {
  Listing listing;
  uint32_t checked = 0;  // Items that were checked for damage, after all were on SSD.
  PieceCursor written;   // All pieces before it are on SSD.
  bool corrupt = false;  // The SSD copy at corrupt_at is corrupt.
  PieceCursor corrupt_at;
  uint64_t write_failures = 0;  // Of the job when it came.
};

struct ManifestCapture;

// A flush whose tensors then become a manifest.
struct PersistWait {
  FlushWait flush;
  std::shared_ptr<ManifestCapture> capture;  // durability/manifest_capture; null before it begins and after it.
  Scan space;                                // Adds up what it has to write.
  uint64_t cookie = 0;  // Of the commit of its manifest, from when on it has no deadline. 0: none yet.
};

// A drop, stat or accept.
struct ScanWait {
  Listing listing;
  Scan scan;
};

// A release of more leases than one turn ends.
struct ReleaseWait {
  std::vector<proto::RequestItem> items;
  uint32_t next = 0;  // The first item that is not done.
  // Of the first item that was refused.
  std::optional<Refusal> refusal;
  uint32_t refused_item = 0;
};

// A create of more tensors than one turn makes (requests/long_create). Its answer tells of all of them.
struct CreateWait {
  std::vector<proto::RequestItem> items;
  uint32_t next = 0;                     // The first item that has no lease.
  std::vector<proto::SpanRecord> spans;  // Of those before it.
  // It comes to nothing, and what it was granted is taken back: then it is refused, or waits for all of its room.
  bool taken_back = false;
  std::optional<Refusal> refusal{};
  uint64_t refused_item = 0;
};

// Items of one request that a turn works on: what the others have asked meanwhile waits no longer than for these. The
// rest goes on turn by turn.
inline constexpr uint32_t kItemsPerTurnMax = 16;

using WaitKind = std::variant<LeaseWait, FreeWait, FlushWait, PersistWait, ScanWait, ReleaseWait, CreateWait>;

// It goes on in each turn until it is done, and the session's next requests come after it.
inline bool HoldsBackNext(const WaitKind& kind) {
  return std::holds_alternative<ReleaseWait>(kind) || std::holds_alternative<CreateWait>(kind);
}

// Its conflict at the last attempt; null for kinds that have no conflicts.
inline const Conflict* ConflictOf(const WaitKind& kind) {
  if (const LeaseWait* lease = std::get_if<LeaseWait>(&kind)) return &lease->conflict;
  const FreeWait* free = std::get_if<FreeWait>(&kind);
  return free == nullptr ? nullptr : &free->conflict;
}

struct Waiter {
  uint64_t number = 0;  // Rises in the order of arrival.
  SessionId session{};
  uint16_t session_index = 0;
  JobState* job = nullptr;
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;
  uint64_t requested_bytes = 0;
  uint64_t grant_cost = 0;  // Bytes that its grant adds to the user's metadata.
  MetadataCharge<MetadataKind::kRequests> charge;
  uint32_t work_cost = 1;  // Pieces that a whole attempt goes over.
  base::TimePoint arrived;
  base::TimePoint deadline;
  bool timed = false;  // arrived and deadline are set: by the first turn after it came.
  StallClock stall;    // requests/stalls.h
  std::vector<WaitItem> items;
  WaitKind kind;

  // The part that a flush and a persist have in common. REQUIRES: it is one of them.
  FlushWait& flush() {
    PersistWait* persist = std::get_if<PersistWait>(&kind);
    return persist != nullptr ? persist->flush : std::get<FlushWait>(kind);
  }
  const FlushWait& flush() const {
    const PersistWait* persist = std::get_if<PersistWait>(&kind);
    return persist != nullptr ? persist->flush : std::get<FlushWait>(kind);
  }
  // How long it may wait; `timeout_default` where it names no time.
  base::Duration TimeoutOr(base::Duration timeout_default) const {
    return timeout_ms == proto::kTimeoutDefault ? timeout_default : std::chrono::milliseconds(timeout_ms);
  }
  // It waits for this from `now` on, the time of a turn.
  void NoteCause(StallCause cause, base::TimePoint now) {
    if (timed) {
      stall.Note(cause, arrived, now);
    } else {
      stall.NoteUntimed(cause);
    }
  }
  // It goes over its pieces with a cursor, as far as a turn's work reaches.
  bool scans() const { return ConflictOf(kind) == nullptr && !HoldsBackNext(kind); }
  bool has_deadline() const { return !HoldsBackNext(kind); }
  // Its manifest is at the store, which has not answered.
  bool committing() const {
    const PersistWait* persist = std::get_if<PersistWait>(&kind);
    return persist != nullptr && persist->cookie != 0;
  }
};

// The waiting writer that has the first claim on each piece: later requests do not overtake it.
class Claims {
 public:
  // The waiter with a claim on the piece that came before `number`, or 0.
  uint64_t EarlierThan(uint64_t number, PieceId piece) const {
    const auto found = by_piece_.find(Value(piece));
    return found != by_piece_.end() && found->second < number ? found->second : 0;
  }
  // False: an earlier waiter has the claim.
  bool Claim(uint64_t number, PieceId piece) {
    const auto [entry, fresh] = by_piece_.try_emplace(Value(piece), number);
    if (!fresh && number < entry->second) entry->second = number;
    return entry->second == number;
  }
  bool Drop(uint64_t number, PieceId piece) {
    const auto found = by_piece_.find(Value(piece));
    if (found == by_piece_.end() || found->second != number) return false;
    by_piece_.erase(found);
    return true;
  }
  void Drop(PieceId piece) { by_piece_.erase(Value(piece)); }
  size_t size() const { return by_piece_.size(); }

 private:
  std::unordered_map<uint32_t, uint64_t> by_piece_;
};

}  // namespace tier::tiering
