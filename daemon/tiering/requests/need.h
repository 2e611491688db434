// Need: the memory that a request lacks. Engine thread only.
#pragma once

#include <span>

#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/memory/growth.h"

namespace tier::tiering {

// Pages that piece `number` of the tensor takes in RAM.
uint32_t PagesOfPiece(const Tensor& tensor, uint32_t number);
// How many of these runs, which stand piece behind piece, are for the first one, of so many pages.
size_t RunsFor(std::span<const base::PageRun> runs, uint32_t pages);
// The piece has no room in RAM, and the ask needs it there.
bool Missing(const Ask& ask, const WaitItem& item, const Tensor& tensor, const Piece& piece);
// The sum over the pieces that the ask needs and that have no room yet.
Need NeedOf(const Tables& tables, const Ask& ask);
// Pages that leases of these items would hold beyond what is held now (Ledger::LeasedBy); each piece counts once.
uint64_t NewlyHeldPages(const Tables& tables, std::span<const WaitItem> items);

}  // namespace tier::tiering
