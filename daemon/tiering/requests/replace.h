// Replace: a create in the place of a tensor of that name. Engine thread only.
//
// Until it is granted the old tensor is what the name means, whole and readable. The new one has pieces and gathers
// room for them, but no name (kUnnamed): nobody finds it. It takes the old one's place in the moment it is granted. RAM
// that the old one will give up then counts as room, so that what fits only in its place is granted too.
//
// Where the old one has more pieces than kPlacePiecesMax the new one is granted beside it, and it goes then.
//
// A refusal leaves the old tensor as it was.
#pragma once

#include <optional>

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {

// Pieces of an old tensor that are gone through, and freed, in one go: 4 GiB of it.
inline constexpr uint32_t kPlacePiecesMax = 2048;
inline constexpr uint32_t kPlaceCost = 1 + kFreeCost;  // Units of work for each of them.
static_assert(proto::kSpansPerCompletionMax + 1 + kPlaceCost * kPlacePiecesMax <= kLookMax);

// Whose place a create takes, if any: what somebody else is still creating is nobody's to replace.
TensorIndex ReplacedBy(const Tables& tables, const SessionState& session, uint64_t id, bool shared);
// The ask is a create that waits for the place of another.
bool AwaitsPlace(const Tables& tables, const Ask& ask);
// What became of the name, or of the space for tensors, since it was asked for. None: it may take the place.
std::optional<Refusal> PlaceRefusal(const Tables& tables, const Ask& ask);

// Pages in RAM that the ask's taking its place would free at once; of them, held ones (Held).
struct Vacated {
  uint64_t pages = 0;
  uint64_t held_pages = 0;
};
Vacated VacatedBy(const Tables& tables, const Ask& ask);
// What a look at the ask must not evict: it would make no room that is not counted already, and could not be read
// meanwhile. None where the ask awaits no place, or the old tensor has too many pieces; nor while
// that is leased, for then its room is not counted, and its readers would wait for the ask as it for them.
TensorRef PlaceToKeep(const Tables& tables, const Ask& ask);
// Pieces of the old tensor that a look at the ask goes over.
uint32_t PlacePieces(const Tables& tables, const Ask& ask);
// True: with what the old tensor gives up there is room for all of it; it has that room and its place, and is to be
// granted now. False: nothing happened. REQUIRES: awaits its place, no refusal.
bool ReserveInPlace(Tables& tables, const Ask& ask);
// The old tensor goes, and the name means the new one. Nothing for an ask that awaits no place.
void TakePlace(Tables& tables, const Ask& ask);

}  // namespace tier::tiering
