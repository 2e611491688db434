// See device_drain.h.
#include "daemon/tiering/durability/device_drain.h"

#include "daemon/tiering/memory/room.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/transfers.h"

namespace tier::tiering {
namespace {

constexpr uint64_t kDrainAheadPages = 4096;  // On their way into RAM, of one job.
// Until pieces are looked for again: while some are on their way, and when none could leave. Then the time that a pass
// over all pieces takes is a small part of it.
constexpr base::Duration kDrainAgain = std::chrono::milliseconds(2);
constexpr base::Duration kDrainPause = std::chrono::milliseconds(50);
constexpr base::Duration kDrainIdle = std::chrono::seconds(1);  // Nothing is left.
constexpr base::Duration kDrainPauseOfPiece = std::chrono::nanoseconds(200);

enum class Leaving : uint8_t {
  kStays,    // It cannot leave, or not before something else happens to it.
  kLater,    // It is on its way, or may leave soon.
  kStarted,  // It leaves now.
  kFull,     // Nothing more can leave now.
};

Leaving MovePiece(Tables& tables, JobState& job, PieceId id) {
  const Piece& piece = tables.pieces[id];
  if (piece.activity != Activity::kNone) return Leaving::kLater;
  if (piece.has(kCorrupt)) return Leaving::kStays;
  if (piece.copies == Copies::kRamSsd) {
    const bool started = CanStartWrite(tables, job) && StartWrite(tables, id, WriteFor::kBackground);
    return started ? Leaving::kStarted : Leaving::kFull;
  }
  if (piece.copies != Copies::kSsd || piece.ram || piece.has(kBadExtent)) return Leaving::kStays;
  if (!tables.devices.IsReadable(piece.ssd_device)) return Leaving::kStays;
  const Tensor& tensor = tables.tensors[piece.tensor];
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  std::vector<base::PageRun>& runs = tables.scratch.runs;
  runs.clear();
  if (!TakeRoom(tables, job, pages, {.may_evict = MayEvict::kAll}, &runs)) return Leaving::kFull;
  GiveRam(tables, id, runs);
  StartRead(tables, id, ReadPriority::kBackground);
  return Leaving::kStarted;
}

Leaving LookAt(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  const bool there = piece.copies != Copies::kFreed && piece.ssd_run && !tables.tensors[piece.tensor].has(kDetached) &&
                     tables.drain.drains(piece.ssd_device);
  if (!there) return Leaving::kStays;
  JobState& job = tables.JobOf(piece);
  const uint64_t coming = job.transfers.reading_pages(ReadPriority::kBackground);
  if (tables.waits.shortage_pages(job) != 0 || coming > kDrainAheadPages) return Leaving::kLater;
  return MovePiece(tables, job, id);
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
    if (drain.PassIsOver(tables.pieces)) {
      const base::Duration long_pause = kDrainPause + tables.pieces.held() * kDrainPauseOfPiece;
      const base::Duration pause = drain.EndPass() ? kDrainAgain : long_pause;
      return drain.SetNextAt(tables.turn.now() + pause);
    }
    const Leaving leaving = LookAt(tables, drain.NextPiece(tables.pieces));
    if (leaving == Leaving::kStays) continue;
    drain.NoteMoving();
    if (leaving == Leaving::kStarted) tables.turn.NoteProgress();
    if (leaving == Leaving::kFull) return drain.SetNextAt(tables.turn.now() + kDrainAgain);
  }
  tables.turn.NoteProgress();  // The pass goes on in the next turn.
}

}  // namespace tier::tiering
