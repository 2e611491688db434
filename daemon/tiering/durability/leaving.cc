// See leaving.h.
#include "daemon/tiering/durability/leaving.h"

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kAheadPages = 4096;  // On their way into RAM, of one job.

}  // namespace

Leaving LeaveExtent(Tables& tables, PieceId id, MayEvict may_evict) {
  const Piece& piece = tables.pieces[id];
  TIER_CHECK(piece.copies != Copies::kFreed && piece.ssd_run, "piece {} has no extent", Value(id));
  JobState& job = tables.JobOf(piece);
  const uint64_t coming = job.transfers.reading_pages(ReadPriority::kBackground);
  if (tables.waits.shortage_pages(job) != 0 || coming > kAheadPages) return Leaving::kLater;
  if (piece.activity != Activity::kNone) return Leaving::kLater;
  if (piece.has(kCorrupt)) return Leaving::kNot;
  if (piece.copies == Copies::kRamSsd) {
    const bool started = CanStartWrite(tables, job) && StartWrite(tables, id, WriteFor::kBackground);
    return started ? Leaving::kStarted : Leaving::kFull;
  }
  if (piece.copies != Copies::kSsd || piece.ram || piece.has(kBadExtent)) return Leaving::kNot;
  if (!tables.devices.IsReadable(piece.ssd_device)) return Leaving::kNot;
  const Tensor& tensor = tables.tensors[piece.tensor];
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  std::vector<base::PageRun>& runs = tables.scratch.runs;
  runs.clear();
  if (!TakeRoom(tables, job, pages, {.may_evict = may_evict}, &runs)) return Leaving::kFull;
  GiveRam(tables, id, runs);
  StartRead(tables, id, ReadPriority::kBackground);
  return Leaving::kStarted;
}

}  // namespace tier::tiering
