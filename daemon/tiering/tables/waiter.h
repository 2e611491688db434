// Waiter: a request that could not be answered at once. Each job keeps its waiters in the order they came.
//
// Two stages: *conflict* (a lease of somebody else, an unsealed tensor, a transfer in the way: it holds nothing) and
// *reserved* (nothing conflicts and there was room for all of it; its pieces are pinned while bytes are read). A waiter
// that is short of room holds none, so two waiters never hold half of what each needs.
#pragma once

#include <cstdint>
#include <list>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/outcome.h"
#include "daemon/tiering/tables/tensor_range.h"

namespace tier::tiering {

// How far a request that looks at every piece of its tensors has come.
struct Scan {
  uint32_t item = 0;
  uint32_t piece = 0;  // Of the item's.
  uint64_t ram_bytes = 0;
  uint64_t ssd_bytes = 0;
};

// What a waiter that named no tensor has listed of everything there is (everything.h).
enum class Enumeration : uint8_t {
  kWhole,      // All of it; likewise what was named.
  kOwn,        // Some of the session's namespace.
  kInherited,  // All of that, and some of what the job's sessions inherited.
  kShared,     // All of those, where they were asked for, and some of the shared one.
};
inline constexpr uint32_t kAllNamed = UINT32_MAX;

struct Waiter {
  uint64_t number = 0;  // Rises: who came first.
  SessionId session{};
  uint16_t session_slot = 0;
  JobState* job = nullptr;
  uint64_t sequence = 0;
  proto::Op op = proto::Op::kNone;
  uint32_t flags = 0;
  uint32_t timeout_ms = 0;
  std::vector<WaitItem> items;
  TensorRef place;  // Pinned: the tensor that it will replace, whose RAM it counts on (replace.h).
  Enumeration enumeration = Enumeration::kWhole;
  uint32_t first_unnamed = kAllNamed;  // Items from here on are others' as much: a flush that named nothing found them.

  base::TimePoint arrived;
  base::TimePoint deadline;
  bool timed = false;  // arrived and deadline are set: by the first turn after it came.
  bool pinned = false;
  bool blocked = false;       // By what stands at the cursor, at the last look.
  bool claims = false;        // Has entries in its job's Claims.
  bool missed = false;        // Was counted as not in RAM when asked for.
  bool starved = false;       // Had no room at the last look.
  uint64_t needed_pages = 0;  // Without room at the last look.
  uint64_t requested_bytes = 0;
  uint32_t work_cost = 1;    // Pieces that a whole look at it goes over.
  uint32_t cursor_item = 0;  // Where the last conflict was; flush: what is written up to here.
  uint32_t cursor_piece = 0;
  bool corrupt = false;  // Flush: a copy on SSD is, there.
  uint32_t corrupt_item = 0;
  uint32_t corrupt_piece = 0;
  uint64_t write_failures = 0;  // Of the job when it came.
  Scan scan;                    // Drop, stat, accept; persist: of what it has to write.
  uint64_t cookie = 0;          // Persist: of the manifest that is being committed. It has no deadline any more.
};

using WaiterList = std::list<Waiter>;

// Deadlines of all waiters, soonest first.
using DeadlineQueue = std::set<std::pair<base::TimePoint, uint64_t>>;

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
  void Forget(PieceId piece) { by_piece_.erase(Value(piece)); }
  size_t size() const { return by_piece_.size(); }

 private:
  std::unordered_map<uint32_t, uint64_t> by_piece_;
};

}  // namespace tier::tiering
