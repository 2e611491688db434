// See device_drain.h.
#include "daemon/tiering/durability/device_drain.h"

#include "daemon/tiering/durability/leaving.h"

namespace tier::tiering {
namespace {

// Until pieces are looked for again: while some are on their way, and when none could leave. Then the time that a pass
// over all pieces takes is a small part of it.
constexpr base::Duration kDrainAgain = std::chrono::milliseconds(2);
constexpr base::Duration kDrainPause = std::chrono::milliseconds(50);
constexpr base::Duration kDrainIdle = std::chrono::seconds(1);  // Nothing is left.
constexpr base::Duration kDrainPauseOfPiece = std::chrono::nanoseconds(200);

Leaving LookAt(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  const bool there = piece.copies != Copies::kFreed && piece.ssd_run && !tables.tensors[piece.tensor].has(kDetached) &&
                     tables.drain.drains(piece.ssd_device);
  if (!there) return Leaving::kNot;
  return LeaveExtent(tables, id, MayEvict::kAll);
}

bool AnyLeft(const Tables& tables) {
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    if (tables.drain.drains(device) && tables.ports.extents.space(device).live != 0) return true;
  }
  return false;
}

}  // namespace

void DrainDevices(Tables& tables) {
  DrainState& drain = tables.drain;
  if (tables.turn.now() < drain.next_at()) return;
  if (tables.pieces.held() == 0 || !AnyLeft(tables)) return drain.SetNextAt(tables.turn.now() + kDrainIdle);
  while (tables.work.TrySpend()) {
    if (drain.pass().IsOver(tables.pieces)) {
      const base::Duration long_pause = kDrainPause + tables.pieces.held() * kDrainPauseOfPiece;
      const base::Duration pause = drain.EndPass() ? kDrainAgain : long_pause;
      return drain.SetNextAt(tables.turn.now() + pause);
    }
    const Leaving leaving = LookAt(tables, drain.pass().Next(tables.pieces));
    if (leaving == Leaving::kNot) continue;
    drain.NoteMoving();
    if (leaving == Leaving::kStarted) tables.turn.NoteProgress();
    if (leaving == Leaving::kFull) return drain.SetNextAt(tables.turn.now() + kDrainAgain);
  }
  tables.turn.NoteProgress();  // The pass goes on in the next turn.
}

}  // namespace tier::tiering
