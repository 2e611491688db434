// See device_drain.h.
#include "daemon/tiering/durability/device_drain.h"

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/devices.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kDrainAheadPages = 4096;  // On their way into RAM, of one job.

// False: no more can be started now.
bool MovePiece(Tables& tables, JobState& job, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.activity != Activity::kNone || piece.has(kCorrupt)) return true;
  if (piece.copies == Copies::kRamSsd) return CanStartWrite(tables, job) && StartWrite(tables, id);
  if (piece.copies != Copies::kSsd || piece.ram || piece.has(kBadExtent)) return true;
  if (!IsReadable(tables, piece.ssd_device)) return true;
  const Tensor& tensor = tables.tensors[piece.tensor];
  const base::PageRun run =
      TakeRun(tables, job, static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number))), MayEvict::kAll);
  if (!run) return false;
  GiveRam(tables, id, run);
  StartRead(tables, id, ReadPriority::kBackground);
  return true;
}

}  // namespace

void DrainDevices(Tables& tables) {
  uint64_t left = 0;
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    if (tables.drain.drains(device)) left += tables.ports.extents.space(device).live;
  }
  if (left == 0 || tables.pieces.capacity() == 0) return;
  while (tables.work.TrySpend()) {
    const PieceId id = tables.drain.NextPiece(tables.pieces.capacity());
    const Piece& piece = tables.pieces[id];
    const bool there = piece.copies != Copies::kFreed && piece.ssd_run &&
                       !tables.tensors[piece.tensor].has(kDetached) && tables.drain.drains(piece.ssd_device);
    if (!there) continue;
    JobState& job = tables.JobOf(piece);
    const uint64_t coming = job.transfers.reading_pages(ReadPriority::kBackground);
    if (tables.waits.shortage_pages(job) != 0 || coming > kDrainAheadPages) continue;
    if (!MovePiece(tables, job, id)) return;
    tables.turn.NoteProgress();
  }
}

}  // namespace tier::tiering
