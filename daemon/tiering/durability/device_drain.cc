// See device_drain.h.
#include "daemon/tiering/durability/device_drain.h"

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kDrainAheadPages = 4096;  // On their way into RAM, of one job.

// False: no more can be started now.
bool MovePiece(Core& core, JobState& job, PieceId id) {
  Piece& piece = core.pieces[id];
  if (piece.activity != Activity::kNone || piece.has(kCorrupt)) return true;
  if (piece.copies == Copies::kRamSsd) return CanStartWrite(core, job) && StartWrite(core, id);
  if (piece.copies != Copies::kSsd || piece.ram || piece.has(kBadExtent)) return true;
  const Tensor& tensor = core.tensors[piece.tensor];
  const base::PageRun run =
      TakeRun(core, job, static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number))), true);
  if (!run) return false;
  GiveRam(core, id, run);
  StartRead(core, id, true);
  return true;
}

}  // namespace

void DrainDevices(Core& core) {
  uint64_t left = 0;
  for (uint16_t device = 0; device < core.ports.extents.device_count(); ++device) {
    const bool draining = (core.draining_devices >> device & 1) != 0;
    if (draining) left += core.ports.extents.space(device).live;
  }
  if (left == 0 || core.pieces.capacity() == 0) return;
  while (core.work.TrySpend()) {
    core.drain_cursor = (core.drain_cursor + 1) % core.pieces.capacity();
    const PieceId id{core.drain_cursor};
    const Piece& piece = core.pieces[id];
    const bool there = piece.copies != Copies::kFreed && piece.ssd_run && !core.tensors[piece.tensor].has(kDetached) &&
                       (core.draining_devices >> piece.ssd_device & 1) != 0;
    if (!there) continue;
    JobState& job = core.JobOf(piece);
    if (job.shortage_pages != 0 || job.prefetching_pages > kDrainAheadPages) continue;
    if (!MovePiece(core, job, id)) return;
    core.made_progress = true;
  }
}

}  // namespace tier::tiering
