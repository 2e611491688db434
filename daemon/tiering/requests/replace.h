// Replace: a create in the place of a tensor of the same id. Engine thread only.
//
// Until the create is granted, the id means the old tensor, whole and readable. The new tensor has pieces and reserves
// room for them, but has no name (kUnnamed), so no request finds it. It takes the old one's place in the moment it is
// granted. RAM that the old tensor will free then counts as room, so that a tensor that fits only in its place is
// granted too.
//
// If the old tensor has more pieces than kPlacePiecesMax, the new one is granted while the old one still has its RAM,
// and the old one is freed afterwards.
//
// A refusal leaves the old tensor as it was.
#pragma once

#include <optional>

#include "daemon/tiering/leases/grants.h"
#include "daemon/tiering/pieces/catalog.h"

namespace tier::tiering {

// The most pieces of an old tensor that one look goes over and frees: 4 GiB of it.
inline constexpr uint32_t kPlacePiecesMax = 2048;
inline constexpr uint32_t kPlaceCost = 1 + kFreeCost;  // Units of work for each of them.
static_assert(proto::kSpansPerCompletionMax + 1 + kPlaceCost * kPlacePiecesMax <= kLookMax);

// The tensor whose place a create takes, if any: not one that another session is still creating.
TensorIndex ReplacedBy(const Tables& tables, const SessionState& session, uint64_t id, bool shared);
// The ask is a create that waits for the place of another tensor.
bool AwaitsPlace(const Tables& tables, const Ask& ask);
// The refusal of an ask whose id was taken, or whose room was lost, while it waited. None: it may take the place.
std::optional<Refusal> PlaceRefusal(Tables& tables, const Ask& ask);

// Pages in RAM that would be free at once if the ask took its place, and how many of these are held (residency.h).
struct Vacated {
  uint64_t pages = 0;
  uint64_t held_pages = 0;
};
Vacated VacatedBy(const Tables& tables, const Ask& ask);
// The old tensor, if an attempt of the ask must not evict it: that would free no room that is not counted already, and
// it could not be read meanwhile. None if the ask awaits no place or the old tensor has too many pieces, and while that
// is leased: then its room is not counted, and its readers and the ask would wait for each other.
TensorRef PlaceToKeep(const Tables& tables, const Ask& ask);
// Pieces of the old tensor that an attempt of the ask goes over.
uint32_t PlacePieces(const Tables& tables, const Ask& ask);
// True: with the room of the old tensor there was enough for the whole ask; the ask has that room and the place, and is
// to be granted now. False: nothing happened. REQUIRES: the ask awaits its place, and PlaceRefusal is none.
bool ReserveInPlace(Tables& tables, const Ask& ask);
// Detaches the old tensor and gives its id to the new one. Does nothing for an ask that awaits no place.
void TakePlace(Tables& tables, const Ask& ask);

}  // namespace tier::tiering
