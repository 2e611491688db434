// See residency.h.
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

EvictionOrder OrderOf(const Piece& piece) {
  return piece.copies == Copies::kRamSsd ? EvictionOrder::kClean : EvictionOrder::kDirty;
}

// A piece that lies still in RAM, sealed, and is needed by nobody now.
bool Evictable(const Core& core, const Piece& piece) {
  return (piece.copies == Copies::kRam || piece.copies == Copies::kRamSsd) && piece.activity == Activity::kNone &&
         piece.read_leases == 0 && piece.pins == 0 && !core.tensors[piece.tensor].has(kDetached);
}

}  // namespace

WindowUse UseOf(const Piece& piece) {
  const bool idle = piece.activity == Activity::kNone && piece.read_leases == 0 && piece.pins == 0;
  if (idle && piece.copies == Copies::kRamSsd) return WindowUse::kClean;
  return idle && piece.copies == Copies::kRam ? WindowUse::kDirty : WindowUse::kBound;
}

bool Held(const Piece& piece) {
  if (!piece.ram) return false;
  const bool leased = piece.read_leases != 0 || piece.activity == Activity::kLeasedWrite;
  return leased || piece.copies == Copies::kCreating || piece.copies == Copies::kTorn;
}

void CountUse(Core& core, const Piece& piece, int32_t change) {
  if (!piece.ram) return;
  if (Held(piece)) {
    const EntitlementSlot job = core.JobOf(piece).entitlement;
    if (change > 0) {
      core.ledger.AddLeased(job, piece.ram.size_bytes());
    } else {
      core.ledger.SubtractLeased(job, piece.ram.size_bytes());
    }
  }
  uint32_t& count = core.windows[core.windows.WindowOf(piece.ram)].pieces[static_cast<size_t>(UseOf(piece))];
  TIER_CHECK(change > 0 || count != 0, "piece {} of tensor {} is not counted", piece.number, Value(piece.tensor));
  count += static_cast<uint32_t>(change);
}

void SetState(Core& core, PieceId id, PieceState to) {
  Piece& piece = core.pieces[id];
  const PieceState from{piece.copies, piece.activity};
  TIER_CHECK(IsLegalMove(from, to), "piece {} of tensor {}: {}/{} to {}/{}", piece.number,
             core.tensors[piece.tensor].id, CopiesName(from.copies), ActivityName(from.activity), CopiesName(to.copies),
             ActivityName(to.activity));
  JobState& job = core.JobOf(piece);
  if (piece.has(kListed)) job.policy->Remove(id, OrderOf(piece));
  if (from.copies == Copies::kRam) {
    TIER_CHECK(job.dirty_pages >= piece.ram.pages, "dirty {} of {}", piece.ram.pages, job.dirty_pages);
    job.dirty_pages -= piece.ram.pages;
    core.dirty_pages -= piece.ram.pages;
  }
  if (to.copies == Copies::kRam) {
    TIER_CHECK(piece.ram, "piece {} of tensor {} has no RAM", piece.number, core.tensors[piece.tensor].id);
    job.dirty_pages += piece.ram.pages;
    core.dirty_pages += piece.ram.pages;
  }
  CountUse(core, piece, -1);
  if (from.activity == Activity::kLeasedWrite) job.pool.Unbind(piece.ram);
  if (to.activity == Activity::kLeasedWrite) job.pool.Bind(piece.ram);
  piece.copies = to.copies;
  piece.activity = to.activity;
  CountUse(core, piece, 1);
  core.jobs.NeedMaintenance(job);
  if (Evictable(core, piece)) job.policy->Add(id, OrderOf(piece));
  core.waits.OnPieceChanged(piece);
}

void GiveRam(Core& core, PieceId id, base::PageRun run) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(!piece.ram && run, "piece {} has {} pages", Value(id), piece.ram.pages);
  piece.ram = run;
  core.tensors[piece.tensor].ram_pages += run.pages;
  CountUse(core, piece, 1);
  piece.set(kReserved);
}

void TakeBackRam(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.ram && piece.read_leases == 0, "piece {} leases {}", Value(id), piece.read_leases);
  CountUse(core, piece, -1);
  core.JobOf(piece).pool.Free(piece.ram);
  core.tensors[piece.tensor].ram_pages -= piece.ram.pages;
  piece.ram = {};
  piece.clear(kReserved);
}

void DropRam(Core& core, PieceId id) {
  TakeBackRam(core, id);
  core.waits.OnRoom(core.JobOf(core.pieces[id]));
}

void FreeExtent(Core& core, JobState& job, storage::Extent extent, bool bad) {
  TIER_CHECK(job.ssd_pages >= extent.run.pages, "{} of {}", extent.run.pages, job.ssd_pages);
  job.ssd_pages -= extent.run.pages;
  if (job.manifest.Unuse(extent, bad)) return;
  if (bad) {
    core.ports.extents.Quarantine(extent);
  } else {
    core.ports.extents.FreeAtTurnEnd(extent);
  }
}

void DropExtent(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.ssd_run, "piece {} has no extent", Value(id));
  FreeExtent(core, core.JobOf(piece), piece.extent(), piece.has(kBadExtent));
  core.tensors[piece.tensor].ssd_pages -= piece.ssd_run.pages;
  piece.ssd_run = {};
  piece.ssd_device = 0;
  piece.clear(kBadExtent | kCorrupt | kFreshExtent);
}

void GiveExtent(Core& core, PieceId id, storage::Extent extent) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(!piece.ssd_run && extent && extent.device < 64, "piece {} device {}", Value(id), extent.device);
  piece.ssd_run = extent.run;
  piece.ssd_device = static_cast<uint8_t>(extent.device);
  core.JobOf(piece).ssd_pages += extent.run.pages;
  core.tensors[piece.tensor].ssd_pages += extent.run.pages;
}

void AddReader(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.readable() && piece.read_leases != UINT32_MAX, "piece {} of tensor {}", piece.number,
             core.tensors[piece.tensor].id);
  CountUse(core, piece, -1);
  if (piece.read_leases == 0) core.JobOf(piece).pool.Bind(piece.ram);
  ++piece.read_leases;
  CountUse(core, piece, 1);
}

void RemoveReader(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.read_leases != 0, "piece {} of tensor {} has no read lease", piece.number,
             core.tensors[piece.tensor].id);
  CountUse(core, piece, -1);
  --piece.read_leases;
  if (piece.read_leases == 0) core.JobOf(piece).pool.Unbind(piece.ram);
  CountUse(core, piece, 1);
  if (piece.read_leases == 0) Touch(core, id);
  core.waits.OnPieceChanged(piece);
}

void Touch(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  JobState& job = core.JobOf(piece);
  job.policy->Use(id);
  if (piece.has(kListed)) {
    job.policy->MoveToHot(id, OrderOf(piece));
  } else if (Evictable(core, piece)) {
    job.policy->Add(id, OrderOf(piece));
  }
}

void Delist(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  if (piece.has(kListed)) core.JobOf(piece).policy->Remove(id, OrderOf(piece));
}

void Evict(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.read_leases == 0 && piece.pins == 0, "piece {} leases {} pins {}", Value(id), piece.read_leases,
             piece.pins);
  JobState& job = core.JobOf(piece);
  const uint64_t bytes = piece.ram.size_bytes();
  job.counters.evicted_bytes += bytes;
  if (!piece.has(kFreshExtent)) job.counters.write_avoided_bytes += bytes;
  piece.clear(kFreshExtent | kPrefetched);
  SetState(core, id, {Copies::kSsd, Activity::kNone});
  DropRam(core, id);
}

void RevertToSsd(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  piece.generation = piece.ssd_generation;
  SetState(core, id, {Copies::kSsd, Activity::kNone});
  piece.set(kReserved);
  if (piece.pins == 0) DropRam(core, id);
}

bool Pin(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  if (piece.pins == UINT16_MAX) return false;
  CountUse(core, piece, -1);
  ++piece.pins;
  CountUse(core, piece, 1);
  return true;
}

void Unpin(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.pins != 0, "piece {} is not pinned", Value(id));
  CountUse(core, piece, -1);
  --piece.pins;
  CountUse(core, piece, 1);
  if (piece.pins + 1 == kPinsMax) core.waits.OnPieceChanged(piece);
  if (piece.pins != 0) return;
  if (piece.has(kReserved)) {
    DropRam(core, id);
  } else if (!piece.has(kListed)) {
    Touch(core, id);
  }
}

}  // namespace tier::tiering
