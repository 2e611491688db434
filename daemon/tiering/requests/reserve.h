// Reserve: room and bytes for a request without conflicts. Engine thread only.
#pragma once

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/room.h"

namespace tier::tiering {

// Makes the pieces that are leased for the first time.
void AddPieces(Tables& tables, const Ask& ask);
enum class Reserved : uint8_t {
  kAll,        // Every piece that lacked room has it, and the reads are started.
  kNone,       // There is not enough room for all of them, and none got any.
  kScattered,  // The same; but there are as many free pages, so no more is evicted than that took: moves in RAM are to
               // be tried first.
};
// So two requests never hold half of what each needs. REQUIRES: the pieces are pinned.
Reserved Reserve(Tables& tables, const Ask& ask, bool may_be_scattered);

// Whether the job's leases, with these, still fit into the memory that no other job is guaranteed. Else the ask waits
// as for room: leased memory that is lent could not be taken back.
enum class LeaseFit : uint8_t {
  kFits,
  kOwnLeases,    // Leases of its job must end first.
  kOtherLeases,  // It fits as soon as other jobs lease less beyond their guarantees.
  kHeldBack,     // It is beyond the promise of its job, and others wait for memory (tables/serving.h). For a moment.
};
// `reserved`: it has room for all of its pieces already, and is not held back any more: that would be given up.
LeaseFit FitOfLeases(const Tables& tables, const Ask& ask, bool reserved = false);
inline bool LeasesFit(const Tables& tables, const Ask& ask) { return FitOfLeases(tables, ask) == LeaseFit::kFits; }

}  // namespace tier::tiering
