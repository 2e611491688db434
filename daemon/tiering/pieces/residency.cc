// See residency.h.
#include "daemon/tiering/pieces/residency.h"

#include <utility>
#include <vector>

namespace tier::tiering {
namespace {

EvictionOrder OrderOf(const Piece& piece) {
  if (piece.copies != Copies::kRamSsd) return EvictionOrder::kDirty;
  return piece.has(kPrefetched) ? EvictionOrder::kKept : EvictionOrder::kClean;
}

// The piece is in RAM, sealed and in no transfer, and no lease and no waiter needs it now.
bool Evictable(const Tables& tables, const Piece& piece) {
  return (piece.copies == Copies::kRam || piece.copies == Copies::kRamSsd) && piece.activity == Activity::kNone &&
         piece.read_leases == 0 && piece.pins == 0 && !tables.tensors[piece.tensor].has(kDetached);
}

void SubtractLeased(Tables& tables, const JobState& job, uint64_t bytes) {
  if (tables.ledger.SubtractLeased(job.entitlement, bytes)) tables.waits.OnLeasedLess();
}

void EndLeased(Tables& tables, const JobState& job, uint64_t bytes) {
  SubtractLeased(tables, job, bytes);
  tables.waits.OnRoom(job);  // Its requests may wait for less to be leased, and not every end is that of a lease.
}

// In the window of one of its runs.
void CountRun(Tables& tables, base::PageRun run, RamClass its, WindowUse use, int32_t change) {
  const WindowIndex index = tables.windows.WindowOf(run);
  WindowEntry& window = tables.windows.Edit(index);
  uint32_t& count = window.pieces[static_cast<size_t>(use)];
  uint32_t& pages = window.pages[static_cast<size_t>(its)];
  TIER_CHECK(change > 0 || (count != 0 && pages >= run.pages), "window {}: {} pages of {} {}, {} runs",
             tier::Value(index), run.pages, pages, RamClassName(its), count);
  count += static_cast<uint32_t>(change);
  pages = change > 0 ? pages + run.pages : pages - run.pages;
  tables.windows.Rerank(index);
}

// The piece was given its runs (+1), or is about to lose them (-1).
void CountUse(Tables& tables, const Piece& piece, int32_t change) {
  if (!piece.ram) return;
  if (Held(piece)) {
    const JobState& job = tables.JobOf(piece);
    if (change > 0) {
      tables.ledger.AddLeased(job.entitlement, piece.ram.size_bytes());
    } else {
      SubtractLeased(tables, job, piece.ram.size_bytes());  // DropRam wakes those who gain by it.
    }
  }
  const Tensor& tensor = tables.tensors[piece.tensor];
  const RamClass its = ClassOf(tensor, piece.ram);
  JobRequested& requested = tables.JobOf(tensor).requested;
  if (change > 0) {
    requested.Add(its, tensor.piece_length(piece.number));
  } else {
    requested.Remove(its, tensor.piece_length(piece.number));
  }
  const WindowUse use = UseOf(piece);
  for (const base::PageRun run : tables.RunsOf(piece)) CountRun(tables, run, its, use, change);
}

// Among the pieces of its window it counts as `now`, no longer as `before`.
void MoveUse(Tables& tables, const Piece& piece, WindowUse before, WindowUse now) {
  if (now == before) return;
  for (const base::PageRun run : tables.RunsOf(piece)) {
    const WindowIndex index = tables.windows.WindowOf(run);
    WindowEntry& window = tables.windows.Edit(index);
    uint32_t& left = window.pieces[static_cast<size_t>(before)];
    TIER_CHECK(left != 0, "piece {} of tensor {} is not counted", piece.number, Value(piece.tensor));
    --left;
    ++window.pieces[static_cast<size_t>(now)];
    tables.windows.Rerank(index);
  }
}

// While it is leased its runs are bound to their places.
void Bind(const Tables& tables, JobState& job, const Piece& piece) {
  for (const base::PageRun run : tables.RunsOf(piece)) job.pool.Bind(run);
}

void Unbind(const Tables& tables, JobState& job, const Piece& piece) {
  for (const base::PageRun run : tables.RunsOf(piece)) job.pool.Unbind(run);
}

// It was used: it enters the eviction order at the hot end where it may be evicted.
void Touch(const Tables& tables, EvictionPolicy& policy, PieceId id) {
  const Piece& piece = tables.pieces[id];
  policy.Use(id);
  if (piece.has(kListed)) {
    policy.MoveToHot(id, OrderOf(piece));
  } else if (Evictable(tables, piece)) {
    policy.AddHot(id, OrderOf(piece));
  }
}

// The device of its copy on SSD does not answer, or fails while another one takes writes.
bool MayBeTheLastCopy(const Tables& tables, const Piece& piece) {
  if (!tables.devices.IsReadable(piece.ssd_device)) return true;
  return tables.devices[piece.ssd_device].health.state() != storage::DeviceState::kOnline &&
         tables.ports.extents.RoomWhereWritesSucceed(piece.ssd_run.pages);
}

}  // namespace

void ChangeUse(Tables& tables, const Piece& piece, UseOfRam before) {
  if (!piece.ram) return;
  const UseOfRam now = UseOfRamOf(piece);
  if (now.held != before.held) {
    const JobState& job = tables.JobOf(piece);
    if (now.held) {
      tables.ledger.AddLeased(job.entitlement, piece.ram.size_bytes());
    } else {
      EndLeased(tables, job, piece.ram.size_bytes());
    }
  }
  MoveUse(tables, piece, before.use, now.use);
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
  if (IsRewriting(from)) job.pages.RemoveRewriting(piece.ram.pages);
  if (IsRewriting(to)) job.pages.AddRewriting(piece.ram.pages);
  if (from.activity == Activity::kLeasedWrite) Unbind(tables, job, piece);
  if (to.activity == Activity::kLeasedWrite) Bind(tables, job, piece);
  piece.copies = to.copies;
  piece.activity = to.activity;
  ChangeUse(tables, piece, before);
  tables.jobs.NeedMaintenance(job);
  if (Evictable(tables, piece)) job.policy->Add(id, OrderOf(piece));
  tables.waits.OnPieceChanged(id);
}

void GiveRam(Tables& tables, PieceId id, std::span<const base::PageRun> runs) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(!piece.ram && !runs.empty(), "piece {} has {} pages, is given {} runs", Value(id), piece.ram.pages,
             runs.size());
  piece.ram_scattered = runs.size() > 1;
  if (piece.ram_scattered) {
    piece.ram = tables.scattered.Add(id, runs);
  } else {
    piece.ram = runs.front();
    tables.residents.Add(id);
  }
  tables.tensors.Edit(piece.tensor).ram_pages += piece.ram.pages;
  CountUse(tables, piece, 1);
  piece.set(kReserved);
}

void TakeBackRam(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.ram && piece.read_leases == 0, "piece {} leases {}", Value(id), piece.read_leases);
  CountUse(tables, piece, -1);
  JobState& job = tables.JobOf(piece);
  const auto give_back = [&](base::PageRun run) {
    if (tables.ram_moves.KeepSource(run)) {
      AddMoveRun(tables, job, run);
    } else {
      job.pool.Free(run);
    }
  };
  if (piece.ram_scattered) {
    for (const base::PageRun run : tables.scattered.Remove(piece.ram)) give_back(run);
  } else {
    tables.residents.Remove(id);
    give_back(piece.ram);
  }
  tables.tensors.Edit(piece.tensor).ram_pages -= piece.ram.pages;
  piece.ram = {};
  piece.ram_scattered = false;
  piece.clear(kReserved);
}

void DropRam(Tables& tables, PieceId id) {
  TakeBackRam(tables, id);
  tables.waits.OnRoom(tables.JobOf(tables.pieces[id]));
}

void SwitchRam(Tables& tables, PieceId id, base::PageRun from, base::PageRun to) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.activity == Activity::kMoving && from.pages == to.pages && piece.read_leases == 0,
             "piece {} is {}: {} pages to {}", Value(id), ActivityName(piece.activity), from.pages, to.pages);
  CountUse(tables, piece, -1);
  if (piece.ram_scattered) {
    piece.ram = tables.scattered.Replace(piece.ram, from, to);
  } else {
    tables.residents.Remove(id);
    piece.ram = to;
    tables.residents.Add(id);
  }
  CountUse(tables, piece, 1);
}

void SplitRun(Tables& tables, PieceId id, base::PageRun run, uint32_t pages) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.read_leases == 0 && piece.activity != Activity::kLeasedWrite && !tables.ram_moves.Reads(run),
             "piece {} is {}", Value(id), ActivityName(piece.activity));
  CountUse(tables, piece, -1);
  tables.JobOf(piece).pool.Split(run, pages);
  if (!piece.ram_scattered) {
    tables.residents.Remove(id);
    piece.ram_scattered = true;
    piece.ram = tables.scattered.Add(id, std::span(&run, 1));
  }
  tables.scattered.Split(piece.ram, run, pages);
  CountUse(tables, piece, 1);
}

void AddMoveRun(Tables& tables, JobState& job, base::PageRun run) {
  job.moves.AddExtra(run.pages);
  const WindowIndex window = tables.windows.WindowOf(run);
  tables.windows.Edit(window).move_pages += run.pages;
  tables.windows.Rerank(window);
}

void RemoveMoveRun(Tables& tables, JobState& job, base::PageRun run) {
  job.moves.RemoveExtra(run.pages);
  const WindowIndex window = tables.windows.WindowOf(run);
  uint32_t& pages = tables.windows.Edit(window).move_pages;
  TIER_CHECK(pages >= run.pages, "window {}: {} pages of {}", tier::Value(window), run.pages, pages);
  pages -= run.pages;
  tables.windows.Rerank(window);
}

void CancelMove(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  if (piece.activity != Activity::kMoving) return;
  for (const base::PageRun run : tables.RunsOf(piece)) {
    if (tables.ram_moves.Moves(run)) tables.ram_moves.Cancel(run);
  }
  if (piece.ram_scattered) tables.scattered.EndMoves(piece.ram);
  SetState(tables, id, {piece.copies, Activity::kNone});
}

void FreeExtent(Tables& tables, JobState& job, storage::Extent extent, bool bad) {
  TIER_CHECK(job.pages.ssd() >= extent.run.pages, "{} of {}", extent.run.pages, job.pages.ssd());
  job.pages.RemoveSsd(extent.run.pages);
  if (extent.scattered) tables.work.Charge(std::min(uint32_t{extent.run.pages}, tables.work.left()));
  if (job.manifest.Unuse(extent, bad)) return;
  if (bad) {
    tables.ports.extents.SetInDoubt(extent, true);
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
  piece.ssd_scattered = 0;
  piece.clear(kBadExtent | kCorrupt | kFreshExtent);
}

void GiveExtent(Tables& tables, PieceId id, storage::Extent extent) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(!piece.ssd_run && extent && extent.device < 64, "piece {} device {}", Value(id), extent.device);
  piece.ssd_run = extent.run;
  piece.ssd_device = static_cast<uint8_t>(extent.device) & 0x7f;
  piece.ssd_scattered = extent.scattered ? 1 : 0;
  tables.JobOf(piece).pages.AddSsd(extent.run.pages);
  tables.tensors.Edit(piece.tensor).ssd_pages += extent.run.pages;
}

// A piece under a read lease is held and bound (Held, UseOf), so only its first reader and its last one change the
// books.
void AddReader(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.activity == Activity::kMoving) [[unlikely]]
    CancelMove(tables, id);
  TIER_CHECK(piece.readable() && piece.read_leases != UINT32_MAX, "piece {} of tensor {}", piece.number,
             tables.tensors[piece.tensor].id);
  const WindowUse before = UseOf(piece);
  if (piece.read_leases++ != 0) return;
  JobState& job = tables.JobOf(piece);
  Bind(tables, job, piece);
  if (piece.has(kListed)) job.policy->Remove(id, OrderOf(piece));
  tables.ledger.AddLeased(job.entitlement, piece.ram.size_bytes());
  MoveUse(tables, piece, before, WindowUse::kBound);
}

void RemoveReader(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.read_leases != 0, "piece {} of tensor {} has no read lease", piece.number,
             tables.tensors[piece.tensor].id);
  if (--piece.read_leases == 0) {
    JobState& job = tables.JobOf(piece);
    Unbind(tables, job, piece);
    if (!Held(piece)) EndLeased(tables, job, piece.ram.size_bytes());
    MoveUse(tables, piece, WindowUse::kBound, UseOf(piece));
    Touch(tables, *job.policy, id);
    if (!job.prefetches.empty()) tables.jobs.NeedMaintenance(job);  // It may be evicted for one.
  }
  tables.waits.OnPieceChanged(id);
}

void Touch(Tables& tables, PieceId id) { Touch(tables, *tables.JobOf(tables.pieces[id]).policy, id); }

void Retire(Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  EvictionPolicy& policy = *tables.JobOf(piece).policy;
  const bool listed = piece.has(kListed);
  if (listed) policy.Remove(id, OrderOf(piece));
  policy.Retire(id);
  if (listed) policy.Add(id, OrderOf(piece));
}

void Delist(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (piece.has(kListed)) tables.JobOf(piece).policy->Remove(id, OrderOf(piece));
}

void EndPrefetch(Tables& tables, PieceId id) {
  Piece& piece = tables.pieces.Edit(id);
  if (!piece.has(kPrefetched)) return;
  EvictionPolicy& policy = *tables.JobOf(piece).policy;
  const bool listed = piece.has(kListed);
  if (listed) policy.Remove(id, OrderOf(piece));
  piece.clear(kPrefetched);
  if (listed) policy.Add(id, OrderOf(piece));
}

bool StaysForNow(const Tables& tables, const Piece& piece) {
  const storage::DeviceHealth& health = tables.devices[piece.ssd_device].health;
  return health.reads_fail() && health.state() == storage::DeviceState::kSuspect && !MayBeTheLastCopy(tables, piece);
}

bool CanBeEvicted(const Tables& tables, const Piece& piece) {
  return Evictable(tables, piece) && piece.copies == Copies::kRamSsd && !StaysForNow(tables, piece);
}

bool Evict(Tables& tables, PieceId id) {
  if (StaysForNow(tables, tables.pieces[id])) return false;
  if (MayBeTheLastCopy(tables, tables.pieces[id])) {
    EndPrefetch(tables, id);
    DropExtent(tables, id);
    SetState(tables, id, {Copies::kRam, Activity::kNone});
    return false;
  }
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.read_leases == 0 && piece.pins == 0, "piece {} leases {} pins {}", Value(id), piece.read_leases,
             piece.pins);
  JobState& job = tables.JobOf(piece);
  const uint64_t bytes = piece.ram.size_bytes();
  tables.jobs.Edit(job).counters.evicted_bytes += bytes;
  if (!piece.has(kFreshExtent)) tables.jobs.Edit(job).counters.write_avoided_bytes += bytes;
  piece.clear(kFreshExtent);
  SetState(tables, id, {Copies::kSsd, Activity::kNone});
  piece.clear(kPrefetched);
  DropRam(tables, id);
  return true;
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
    // A prefetched piece that was not used keeps its place: the last ones prefetched go first.
    const bool kept = piece.has(kPrefetched) && Evictable(tables, piece);
    kept ? tables.JobOf(piece).policy->Add(id, OrderOf(piece)) : Touch(tables, id);
  }
}

}  // namespace tier::tiering
