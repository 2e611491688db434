// See second_copies.h.
#include "daemon/tiering/transfers/second_copies.h"

#include <algorithm>

#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kSearchMax = 64;  // Of one job's pieces.
constexpr uint32_t kCost = 4;  // A place in the eviction order is sought, and an extent among those that are named.

// Its device takes extents again, and no manifest keeps the extent.
bool MakesRoom(const Tables& tables, const JobState& job, const Piece& piece) {
  return tables.ports.extents.takes_extents(piece.ssd_device) && !tables.devices[piece.ssd_device].away &&
         !job.manifest.Names(piece.extent());
}

void GiveUp(Tables& tables, PieceId id) {
  EndPrefetch(tables, id);
  DropExtent(tables, id);
  SetState(tables, id, {Copies::kRam, Activity::kNone});
}

// Pages that are still lacking.
uint32_t GiveUpOf(Tables& tables, const JobState& job, EvictionOrder order, uint32_t pages) {
  PieceId at = job.policy->Coldest(order);
  for (uint32_t seen = 0; at != kNoPiece && pages != 0 && seen < kSearchMax; ++seen) {
    if (!tables.work.TrySpend(kCost)) return pages;
    const PieceId id = at;
    at = job.policy->Warmer(id);
    const Piece& piece = tables.pieces[id];
    if (!MakesRoom(tables, job, piece)) continue;
    pages -= std::min<uint32_t>(pages, piece.ssd_run.pages);
    GiveUp(tables, id);
  }
  return pages;
}

}  // namespace

void GiveUpSecondCopyIfFull(Tables& tables, PieceId id) {
  if (tables.ports.extents.HasBlock()) return;
  const Piece& piece = tables.pieces[id];
  if (MakesRoom(tables, tables.JobOf(piece), piece)) GiveUp(tables, id);
}

bool GiveUpSecondCopies(Tables& tables, uint32_t pages) {
  uint32_t left = pages;
  tables.jobs.ForEach([&](const JobState& job) {
    if (left == 0 || !tables.work.TrySpend()) return;
    left = GiveUpOf(tables, job, EvictionOrder::kClean, left);
    left = GiveUpOf(tables, job, EvictionOrder::kKept, left);
  });
  return left != pages;
}

}  // namespace tier::tiering
