// See residency.h.
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

EvictionOrder OrderOf(const Piece& piece) {
  return piece.copies == Copies::kRamSsd ? EvictionOrder::kClean : EvictionOrder::kDirty;
}

// A piece that lies still in RAM, sealed, and is needed by nobody now.
bool Evictable(const Tables& tables, const Piece& piece) {
  return (piece.copies == Copies::kRam || piece.copies == Copies::kRamSsd) && piece.activity == Activity::kNone &&
         piece.read_leases == 0 && piece.pins == 0 && !tables.tensors[piece.tensor].has(kDetached);
}

// The piece was given its run (+1), or is about to lose it (-1).
void CountUse(Tables& tables, const Piece& piece, int32_t change) {
  if (!piece.ram) return;
  if (Held(piece)) {
    const EntitlementIndex job = tables.JobOf(piece).entitlement;
    if (change > 0) {
      tables.ledger.AddLeased(job, piece.ram.size_bytes());
    } else {
      tables.ledger.SubtractLeased(job, piece.ram.size_bytes());
    }
  }
  uint32_t& count = tables.windows.Edit(tables.windows.WindowOf(piece.ram)).pieces[static_cast<size_t>(UseOf(piece))];
  TIER_CHECK(change > 0 || count != 0, "piece {} of tensor {} is not counted", piece.number, Value(piece.tensor));
  count += static_cast<uint32_t>(change);
}

}  // namespace

void ChangeUse(Tables& tables, const Piece& piece, UseOfRam before) {
  if (!piece.ram) return;
  const UseOfRam now = UseOfRamOf(piece);
  if (now.held != before.held) {
    const EntitlementIndex job = tables.JobOf(piece).entitlement;
    if (now.held) {
      tables.ledger.AddLeased(job, piece.ram.size_bytes());
    } else {
      tables.ledger.SubtractLeased(job, piece.ram.size_bytes());
    }
  }
  if (now.use == before.use) return;
  WindowEntry& window = tables.windows.Edit(tables.windows.WindowOf(piece.ram));
  uint32_t& left = window.pieces[static_cast<size_t>(before.use)];
  TIER_CHECK(left != 0, "piece {} of tensor {} is not counted", piece.number, Value(piece.tensor));
  --left;
  ++window.pieces[static_cast<size_t>(now.use)];
}

void SetState(Tables& tables, PieceId id, PieceState to) {
  Piece& piece = tables.pieces.Edit(id);
  const PieceState from{piece.copies, piece.activity};
  TIER_CHECK(IsLegalMove(from, to), "piece {} of tensor {}: {}/{} to {}/{}", piece.number,
             tables.tensors[piece.tensor].id, CopiesName(from.copies), ActivityName(from.activity),
             CopiesName(to.copies), ActivityName(to.activity));
  JobState& job = tables.JobOf(piece);
  if (piece.has(kListed)) job.policy->Remove(id, OrderOf(piece));
  if (from.copies == Copies::kRam) tables.jobs.RemoveDirty(job, piece.ram.pages);
  if (to.copies == Copies::kRam) {
    TIER_CHECK(piece.ram, "piece {} of tensor {} has no RAM", piece.number, tables.tensors[piece.tensor].id);
    tables.jobs.AddDirty(job, piece.ram.pages);
  }
  const UseOfRam before = UseOfRamOf(piece);
  if (from.activity == Activity::kLeasedWrite) job.pool.Unbind(piece.ram);
  if (to.activity == Activity::kLeasedWrite) job.pool.Bind(piece.ram);
  piece.copies = to.copies;
  piece.activity = to.activity;
  ChangeUse(tables, piece, before);
  tables.jobs.NeedMaintenance(job);
  if (Evictable(tables, piece)) job.policy->Add(id, OrderOf(piece));
  tables.waits.OnPieceChanged(id);
}

void GiveRam(Tables& tables, PieceId id, base::PageRun run) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(!piece.ram && run, "piece {} has {} pages", Value(id), piece.ram.pages);
  piece.ram = run;
  tables.tensors.Edit(piece.tensor).ram_pages += run.pages;
  CountUse(tables, piece, 1);
  piece.set(kReserved);
}

void TakeBackRam(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.ram && piece.read_leases == 0, "piece {} leases {}", Value(id), piece.read_leases);
  CountUse(tables, piece, -1);
  tables.JobOf(piece).pool.Free(piece.ram);
  tables.tensors.Edit(piece.tensor).ram_pages -= piece.ram.pages;
  piece.ram = {};
  piece.clear(kReserved);
}

void DropRam(Tables& tables, PieceId id) {
  TakeBackRam(tables, id);
  tables.waits.OnRoom(tables.JobOf(tables.pieces[id]));
}

void FreeExtent(Tables& tables, JobState& job, storage::Extent extent, bool bad) {
  TIER_CHECK(job.pages.ssd() >= extent.run.pages, "{} of {}", extent.run.pages, job.pages.ssd());
  job.pages.RemoveSsd(extent.run.pages);
  if (job.manifest.Unuse(extent, bad)) return;
  if (bad) {
    tables.ports.extents.Quarantine(extent);
  } else {
    tables.ports.extents.FreeAtTurnEnd(extent);
  }
}

void DropExtent(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.ssd_run, "piece {} has no extent", Value(id));
  FreeExtent(tables, tables.JobOf(piece), piece.extent(), piece.has(kBadExtent));
  tables.tensors.Edit(piece.tensor).ssd_pages -= piece.ssd_run.pages;
  piece.ssd_run = {};
  piece.ssd_device = 0;
  piece.clear(kBadExtent | kCorrupt | kFreshExtent);
}

void GiveExtent(Tables& tables, PieceId id, storage::Extent extent) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(!piece.ssd_run && extent && extent.device < 64, "piece {} device {}", Value(id), extent.device);
  piece.ssd_run = extent.run;
  piece.ssd_device = static_cast<uint8_t>(extent.device);
  tables.JobOf(piece).pages.AddSsd(extent.run.pages);
  tables.tensors.Edit(piece.tensor).ssd_pages += extent.run.pages;
}

void AddReader(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.readable() && piece.read_leases != UINT32_MAX, "piece {} of tensor {}", piece.number,
             tables.tensors[piece.tensor].id);
  if (piece.read_leases != 0) {
    ++piece.read_leases;
    return;
  }
  const UseOfRam before = UseOfRamOf(piece);
  tables.JobOf(piece).pool.Bind(piece.ram);
  Delist(tables, id);
  piece.read_leases = 1;
  ChangeUse(tables, piece, before);
}

void RemoveReader(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.read_leases != 0, "piece {} of tensor {} has no read lease", piece.number,
             tables.tensors[piece.tensor].id);
  const UseOfRam before = UseOfRamOf(piece);
  --piece.read_leases;
  if (piece.read_leases == 0) {
    tables.JobOf(piece).pool.Unbind(piece.ram);
    ChangeUse(tables, piece, before);
    Touch(tables, id);
  }
  tables.waits.OnPieceChanged(id);
}

void Touch(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  JobState& job = tables.JobOf(piece);
  job.policy->Use(id);
  if (piece.has(kListed)) {
    job.policy->MoveToHot(id, OrderOf(piece));
  } else if (Evictable(tables, piece)) {
    job.policy->Add(id, OrderOf(piece));
  }
}

void Delist(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.has(kListed)) tables.JobOf(piece).policy->Remove(id, OrderOf(piece));
}

void Evict(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.read_leases == 0 && piece.pins == 0, "piece {} leases {} pins {}", Value(id), piece.read_leases,
             piece.pins);
  JobState& job = tables.JobOf(piece);
  const uint64_t bytes = piece.ram.size_bytes();
  tables.jobs.Edit(job).counters.evicted_bytes += bytes;
  if (!piece.has(kFreshExtent)) tables.jobs.Edit(job).counters.write_avoided_bytes += bytes;
  piece.clear(kFreshExtent | kPrefetched);
  SetState(tables, id, {Copies::kSsd, Activity::kNone});
  DropRam(tables, id);
}

void RevertToSsd(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  piece.generation = piece.ssd_generation;
  SetState(tables, id, {Copies::kSsd, Activity::kNone});
  piece.set(kReserved);
  if (piece.pins == 0) DropRam(tables, id);
}

bool Pin(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.pins == UINT16_MAX) return false;
  const UseOfRam before = UseOfRamOf(piece);
  ++piece.pins;
  ChangeUse(tables, piece, before);
  return true;
}

void Unpin(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.pins != 0, "piece {} is not pinned", Value(id));
  const UseOfRam before = UseOfRamOf(piece);
  --piece.pins;
  ChangeUse(tables, piece, before);
  if (piece.pins + 1 == kPinsMax) tables.waits.OnPieceChanged(id);
  if (piece.pins != 0) return;
  if (piece.has(kReserved)) {
    DropRam(tables, id);
  } else if (!piece.has(kListed)) {
    Touch(tables, id);
  }
}

}  // namespace tier::tiering
