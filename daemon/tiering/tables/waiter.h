// Waiter: a request that could not be answered at once. One record for what all requests have in common, and one for
// each kind of request. Engine thread only.
//
// A request for leases has two stages: *conflict* (a lease of somebody else, an unsealed tensor, a transfer in the way:
// it holds nothing) and *reserved* (nothing conflicts and there was room for all of it; its pieces are pinned while
// bytes are read). A request that is short of room holds none, so two requests never hold half of what each needs.
//
// Where a waiter waits, and what wakes it, is the WaitTable's business.
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
#include "daemon/tiering/tables/tensor_range.h"

namespace tier::tiering {

struct JobState;

// A piece of one of the request's items.
struct PieceCursor {
  uint32_t item = 0;
  uint32_t piece = 0;  // Of the tensor.
};

// How far a request that looks at every piece of its tensors has come.
struct Scan {
  uint32_t item = 0;
  uint32_t piece = 0;  // Of the item's.
  uint64_t ram_bytes = 0;
  uint64_t ssd_bytes = 0;
};

// What a request that named no tensor has listed of everything there is (requests/enumeration.h).
enum class Enumeration : uint8_t {
  kWhole,      // All of it; likewise what was named.
  kOwn,        // Some of the session's namespace.
  kInherited,  // All of that, and some of what the job's sessions inherited.
  kShared,     // All of those, where they were asked for, and some of the shared one.
};
inline constexpr uint32_t kAllNamed = UINT32_MAX;

struct Listing {
  Enumeration stage = Enumeration::kWhole;
  SessionId session{};                 // Of a persist: whose namespace is gone through.
  uint32_t first_unnamed = kAllNamed;  // Items from here on are others' as much: a flush that named nothing found them.
};

// What stood in the way of a request at its last look.
struct Conflict {
  bool blocked = false;
  PieceCursor at;
};

// A create or an acquire.
struct LeaseWait {
  Conflict conflict;
  TensorRef place;              // Pinned: the tensor that it will replace, whose RAM it counts on (replace.h).
  bool pinned = false;          // Its pieces are.
  bool claims = false;          // Has entries in its job's Claims.
  bool missed = false;          // Was counted as not in RAM when asked for.
  bool starved = false;         // Had no room at the last look.
  uint64_t needed_pages = 0;    // Without room at the last look.
  uint64_t write_failures = 0;  // Of the job when it came.
};

struct FreeWait {
  Conflict conflict;
};

struct FlushWait {
  Listing listing;
  uint32_t checked = 0;  // Items that were looked at for damage, once everything was on SSD.
  PieceCursor written;   // What lies before it is on SSD.
  bool corrupt = false;  // A copy on SSD is, there.
  PieceCursor corrupt_at;
  uint64_t write_failures = 0;  // Of the job when it came.
};

struct ManifestCapture;

// A flush whose tensors become a manifest then.
struct PersistWait {
  FlushWait flush;
  std::shared_ptr<ManifestCapture> capture;  // Of what is on SSD (durability/manifest_capture); none yet, or no more.
  Scan space;                                // Of what it has to write.
  uint64_t cookie = 0;  // Of the manifest that is being committed: it has no deadline any more. 0: none yet.
};

// A drop, stat or accept.
struct ScanWait {
  Listing listing;
  Scan scan;
};

// A release of more than one turn ends.
struct ReleaseWait {
  std::vector<proto::RequestItem> items;
  uint32_t next = 0;  // Of them.
  // Of the first item that something was wrong with.
  std::optional<Refusal> refusal;
  uint32_t refused_item = 0;
};

using WaitKind = std::variant<LeaseWait, FreeWait, FlushWait, PersistWait, ScanWait, ReleaseWait>;

// What stood in its way at the last look; null for the kinds that nothing conflicts with.
inline const Conflict* ConflictOf(const WaitKind& kind) {
  if (const LeaseWait* lease = std::get_if<LeaseWait>(&kind)) return &lease->conflict;
  const FreeWait* free = std::get_if<FreeWait>(&kind);
  return free == nullptr ? nullptr : &free->conflict;
}

struct Waiter {
  uint64_t number = 0;  // Rises: who came first.
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
  uint32_t work_cost = 1;  // Pieces that a whole look at it goes over.
  base::TimePoint arrived;
  base::TimePoint deadline;
  bool timed = false;  // arrived and deadline are set: by the first turn after it came.
  std::vector<WaitItem> items;
  WaitKind kind;

  // What a flush and a persist have in common. REQUIRES: it is one of them.
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
  // It goes over its pieces with a cursor, as far as a turn reaches.
  bool scans() const { return ConflictOf(kind) == nullptr && !std::holds_alternative<ReleaseWait>(kind); }
  // A release ends, however long it takes; what is at the store is answered as the store says.
  bool has_deadline() const { return !committing() && !std::holds_alternative<ReleaseWait>(kind); }
  // Its manifest is at the store, which has not answered.
  bool committing() const {
    const PersistWait* persist = std::get_if<PersistWait>(&kind);
    return persist != nullptr && persist->cookie != 0;
  }
};

// Which waiting writer has the first claim on a piece: later requests do not overtake it.
class Claims {
 public:
  // The waiter whose claim stands before `number`'s on the piece, or 0.
  uint64_t EarlierThan(uint64_t number, PieceId piece) const {
    const auto found = by_piece_.find(Value(piece));
    return found != by_piece_.end() && found->second < number ? found->second : 0;
  }
  // False: somebody claimed it before.
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
