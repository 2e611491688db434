// See invariants.h.
#include "daemon/tiering/inspection/invariants.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/tiering/inspection/count.h"
#include "daemon/tiering/inspection/pool.h"
#include "daemon/tiering/inspection/window_checks.h"
#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/tables/transitions.h"

namespace tier::tiering {
namespace {

uint64_t PageOf(base::PageRun run) { return uint64_t{run.block} * kPagesPerBlock + run.page; }

void OccupySsd(const Tables& tables, const storage::Extent& extent, TakenPages* taken) {
  uint32_t pages = 0;
  for (const base::PageRun run : tables.ports.extents.RunsOf(extent)) {
    taken->Add((uint64_t{extent.device} << 48) + PageOf(run), run.pages);
    pages += run.pages;
  }
  TIER_CHECK(pages == extent.run.pages, "device {} block {} page {}: {} pages in its runs, not {}", extent.device,
             extent.run.block, extent.run.page, pages, extent.run.pages);
}

void CountLeases(const Tables& tables, Count* count) {
  tables.sessions.ForEach([&](const SessionState& session) {
    uint32_t leases = 0;
    for (LeaseIndex index = session.record.leases; index != kNoLease; index = tables.leases[index].next, ++leases) {
      const Lease& lease = tables.leases[index];
      TIER_CHECK(lease.session == session.index && lease.kind != LeaseKind::kNone, "lease {}", Value(index));
      JobCount& job = count->Job(session.record.job);
      ++job.leases;
      job.leased_bytes += lease.length;
      ++count->tensor_leases[Value(lease.tensor)];
      const Tensor& tensor = tables.tensors[lease.tensor];
      for (uint32_t k = lease.first_piece; k < lease.first_piece + lease.piece_count; ++k) {
        ++(lease.exclusive() ? count->write_leases : count->read_leases)[Value(tables.tensors.PieceOf(tensor, k))];
      }
    }
    TIER_CHECK(leases == session.record.lease_count, "session {}: {} leases of {}", static_cast<uint64_t>(session.id),
               leases, session.record.lease_count);
  });
}

// Where the piece lies in RAM.
void CountRuns(const Tables& tables, PieceId id, Count* count) {
  const Piece& piece = tables.pieces[id];
  const bool leased = piece.read_leases != 0 || piece.activity == Activity::kLeasedWrite;
  uint32_t pages = 0;
  uint32_t moves = 0;
  for (const base::PageRun run : tables.RunsOf(piece)) {
    pages += run.pages;
    moves += tables.ram_moves.Moves(run) ? 1 : 0;
    const WindowIndex window = tables.windows.WindowOf(run);
    TIER_CHECK(tables.windows.Contains(window), "piece {} lies in no window, block {}", Value(id), run.block);
    ++count->uses[tier::Value(window)][static_cast<size_t>(UseOf(piece))];
    TIER_CHECK(tables.PieceAt(run) == id, "piece {} is not found in block {} page {}", Value(id), run.block, run.page);
    count->ram.Add(PageOf(run), run.pages);
    if (!run.whole_block()) count->Job(tables.tensors[piece.tensor].job).AddSlot(run, leased);
  }
  count->moving += moves;
  TIER_CHECK(pages == piece.ram.pages, "piece {}: {} pages in its runs, not {}", Value(id), pages, piece.ram.pages);
  TIER_CHECK((moves != 0) == (piece.activity == Activity::kMoving), "piece {} is {}: {} runs move", Value(id),
             ActivityName(piece.activity), moves);
  TIER_CHECK(!piece.ram_scattered || tables.scattered.moves(piece.ram) == moves, "piece {}: {} moves of {}", Value(id),
             tables.scattered.moves(piece.ram), moves);
}

void CheckPiece(const Tables& tables, PieceId id, Count* count) {
  const Piece& piece = tables.pieces[id];
  const Tensor& tensor = tables.tensors[piece.tensor];
  TIER_CHECK(IsLegalState({piece.copies, piece.activity}), "piece {}: {}/{}", Value(id), CopiesName(piece.copies),
             ActivityName(piece.activity));
  JobCount& job = count->Job(tensor.job);
  job.ram_pages += piece.ram.pages;
  job.ssd_pages += piece.ssd_run.pages;
  if (piece.copies == Copies::kRam) job.dirty_pages += piece.ram.pages;
  if (IsRewriting({piece.copies, piece.activity})) job.rewriting_pages += piece.ram.pages;
  if (Held(piece)) job.held_pages += piece.ram.pages;
  if (piece.has(kListed)) ++job.listed;
  CountRuns(tables, id, count);
  if (piece.ssd_run) OccupySsd(tables, piece.extent(), &count->ssd);
  const uint32_t readers = CountAt(count->read_leases, Value(id));
  const uint32_t writers = CountAt(count->write_leases, Value(id));
  TIER_CHECK(piece.read_leases == readers && writers <= 1 && (writers == 0 || readers == 0),
             "piece {}: {} read leases of {}, {} write leases", Value(id), readers, piece.read_leases, writers);
  TIER_CHECK((writers == 1) == (piece.activity == Activity::kLeasedWrite), "piece {}: {} writers, {}", Value(id),
             writers, ActivityName(piece.activity));
  const bool has_ssd = piece.copies == Copies::kSsd || piece.copies == Copies::kRamSsd;
  TIER_CHECK(has_ssd == static_cast<bool>(piece.ssd_run) || piece.copies == Copies::kFreed,
             "piece {}: {} with {} pages on SSD", Value(id), CopiesName(piece.copies), piece.ssd_run.pages);
  const bool has_ram = piece.copies == Copies::kRam || piece.copies == Copies::kRamSsd ||
                       piece.copies == Copies::kTorn || piece.activity == Activity::kReadingIn ||
                       readers + writers != 0;
  TIER_CHECK(!has_ram || (piece.ram && !piece.has(kReserved)), "piece {}: {} with {} pages in RAM", Value(id),
             CopiesName(piece.copies), piece.ram.pages);
  TIER_CHECK(!piece.has(kReserved) || piece.pins != 0 || tensor.has(kDetached), "piece {} holds room for nobody",
             Value(id));
  TIER_CHECK(!piece.has(kListed) || (piece.activity == Activity::kNone && piece.read_leases == 0), "piece {} is listed",
             Value(id));
  TIER_CHECK(piece.activity != Activity::kMoving || (tables.BeingCopied(piece) && piece.read_leases == 0),
             "piece {} moves without a copy", Value(id));
  if (piece.ram) ++(piece.ram_scattered ? count->scattered : count->residents);
  const uint32_t flights = CountAt(count->flights, Value(id));
  TIER_CHECK(flights == (piece.in_transfer() ? 1u : 0u), "piece {}: {} flights, {}", Value(id), flights,
             ActivityName(piece.activity));
}

// Flights are reached through their pieces' activities too.
void CountFlights(const Tables& tables, Count* count) {
  tables.flights.CheckInvariants();
  tables.flights.ForEach([&](FlightIndex, const Flight& flight) {
    ++count->flights[Value(flight.piece)];
    if (flight.direction == storage::Direction::kWrite) {
      OccupySsd(tables, flight.extent, &count->ssd);
    }
  });
}

// Runs in RAM that are taken for moves, beside those of pieces.
void CountRamMoves(const Tables& tables, Count* count) {
  uint64_t moving = 0;
  const auto take = [&](JobIndex index, base::PageRun run) {
    JobCount& job = count->Job(index);
    job.extra_pages += run.pages;
    if (!run.whole_block()) job.AddSlot(run, false);
    count->ram.Add(PageOf(run), run.pages);
  };
  tables.ram_moves.ForEach([&](const RamMove& move) {
    take(move.job, move.to);
    if (move.keeps_source) take(move.job, move.from);
    if (move.piece == kNoPiece) return;
    ++moving;
    const Piece& piece = tables.pieces[move.piece];
    TIER_CHECK(piece.activity == Activity::kMoving && tables.PieceAt(move.from) == move.piece &&
                   tables.JobOf(piece).index == move.job,
               "piece {} is {}", Value(move.piece), ActivityName(piece.activity));
  });
  tables.ram_moves.ForEachCompaction([&](const Compaction& compaction) {
    count->Job(compaction.job).coming_pages += compaction.goal.pages;
    for (const base::PageRun run : compaction.kept) take(compaction.job, run);
  });
  count->ram.Check();
  TIER_CHECK(moving == count->moving, "{} runs move of {}", count->moving, moving);
  TIER_CHECK(tables.residents.size() == count->residents, "{} pieces in RAM of {}", count->residents,
             tables.residents.size());
  TIER_CHECK(tables.scattered.size() == count->scattered, "{} pieces in several runs of {}", count->scattered,
             tables.scattered.size());
  tables.residents.CheckInvariants();
  tables.scattered.CheckInvariants();
  tables.ram_moves.CheckInvariants();
}

// Blocks through which pieces of a manifest go.
void CountMove(const Tables& tables, Count* count) {
  for (const MoveBlock& block : tables.move.blocks) {
    if (block.to) OccupySsd(tables, block.to, &count->ssd);
    const bool writes = block.stage == MoveBlock::Stage::kWriting || block.stage == MoveBlock::Stage::kWritten;
    TIER_CHECK(static_cast<bool>(block.to) == writes, "a block in stage {} has {} pages", static_cast<int>(block.stage),
               block.to.run.pages);
    TIER_CHECK(block.stage == MoveBlock::Stage::kFree || tables.move.stage == MoveState::Stage::kMoving,
               "a block in stage {} of a move in stage {}", static_cast<int>(block.stage),
               static_cast<int>(tables.move.stage));
  }
}

using PagesByTensor = std::vector<std::pair<uint64_t, uint64_t>>;  // In RAM and on SSD.

PagesByTensor CheckPieces(const Tables& tables, Count* count) {
  PagesByTensor pages(tables.tensors.capacity());
  const auto idle = [](const Piece& piece) {
    return piece.copies == Copies::kFreed && piece.activity == Activity::kNone;
  };
  const auto owns_nothing = [](const Piece& piece) {
    return !piece.ram && !piece.ssd_run && piece.read_leases == 0 && piece.pins == 0;
  };
  tables.pieces.ForEachUsed([&](PieceId id, const Piece& piece) {
    TIER_CHECK(!idle(piece), "piece {} is in use by no tensor", Value(id));
    CheckPiece(tables, id, count);
    pages[Value(piece.tensor)].first += piece.ram.pages;
    pages[Value(piece.tensor)].second += piece.ssd_run.pages;
    if (piece.copies == Copies::kTorn) ++count->torn[Value(piece.tensor)];
  });
  tables.pieces.ForEachFree([&](PieceId id, const Piece& piece) {
    TIER_CHECK(idle(piece) && owns_nothing(piece), "piece {} is free, and {}/{}: {} pages in RAM, {} on SSD", Value(id),
               CopiesName(piece.copies), ActivityName(piece.activity), piece.ram.pages, piece.ssd_run.pages);
  });
  return pages;
}

void CheckTensors(const Tables& tables, Count* count) {
  const PagesByTensor pages = CheckPieces(tables, count);
  tables.tensors.ForEachFree([&](TensorIndex index, const Tensor& tensor) {
    TIER_CHECK(tensor.job == kNoJob, "tensor record {} is free, and of job {}", Value(index), Value(tensor.job));
  });
  tables.tensors.ForEachUsed([&](TensorIndex index, const Tensor& tensor) {
    TIER_CHECK(tensor.job != kNoJob, "tensor record {} is in use, and of no job", Value(index));
    const uint32_t i = Value(index);
    const uint32_t leases = CountAt(count->tensor_leases, i);
    TIER_CHECK(tensor.lease_count == leases, "tensor {}: {} leases of {}", tensor.id, leases, tensor.lease_count);
    TIER_CHECK(tensor.ram_pages == pages[i].first && tensor.ssd_pages == pages[i].second,
               "tensor {}: {} pages in RAM of {}, {} on SSD of {}", tensor.id, pages[i].first, tensor.ram_pages,
               pages[i].second, tensor.ssd_pages);
    TIER_CHECK(tensor.content != 0 && tensor.content <= tables.tensors.contents(), "tensor {}: content {} of {}",
               tensor.id, tensor.content, tables.tensors.contents());
    const uint32_t torn = CountAt(count->torn, i) + (tables.updates.FindBroken(index) != kNoUpdate ? 1 : 0);
    TIER_CHECK(tensor.has(kDetached) || tensor.torn_count == torn, "tensor {}: {} tears of {}", tensor.id, torn,
               tensor.torn_count);
    TIER_CHECK(tensor.updates == kNoUpdateList || (tensor.has(kVisible) && !tensor.has(kDetached)),
               "tensor {} has updates and flags {}", tensor.id, tensor.flags);
    TIER_CHECK(!tensor.has(kUnnamed) || !tensor.has(kVisible | kDetached), "tensor {} has no name and flags {}",
               tensor.id, tensor.flags);
    JobCount& job = count->Job(tensor.job);
    TIER_CHECK(!tensor.has(kKeepsRoom) || (tensor.has(kDetached) && tensor.lease_count != 0),
               "tensor {} has {} leases and flags {}", tensor.id, tensor.lease_count, tensor.flags);
    if (!tensor.has(kDetached) || tensor.has(kKeepsRoom)) {
      (tensor.has(kUnnamed) ? job.unnamed_pages : job.logical_pages) += PagesOf(tensor.size);
    }
    if (tensor.has(kDetached | kUnnamed)) return;
    const TensorKey key{tensor.job, tensor.space, tensor.id};
    TIER_CHECK(tables.names.Find(key) == index, "tensor {} is not in the table", tensor.id);
  });
}

void CheckJob(const Tables& tables, const JobState& job, JobCount& count, const WindowCounts& uses) {
  job.pool.CheckInvariants();
  job.keys.CheckInvariants();
  job.manifest.CheckInvariants();
  TIER_CHECK(job.pool.used_pages() == count.ram_pages + count.extra_pages && job.used_pages() == count.ram_pages,
             "job {}: pieces take {} pages and moves {}, the pool says {}", job.key, count.ram_pages, count.extra_pages,
             job.pool.used_pages());
  TIER_CHECK(job.moves.coming_pages() == count.coming_pages, "job {}: compactions make {} pages of {}", job.key,
             count.coming_pages, job.moves.coming_pages());
  uint64_t ready = 0;
  for (const WindowIndex window : job.windows.ready()) ready += tables.windows.SizeOf(window);
  const uint64_t making = job.windows.making_bytes(WindowKind::kBlock) + job.windows.making_bytes(WindowKind::kSlot);
  const uint64_t held = tables.ledger.HeldBy(job.entitlement);
  const uint64_t free_pages = job.pool.free_pages() + job.pool.closed_free_pages();
  TIER_CHECK((job.pool.used_pages() + free_pages) * kPageSize == ready && ready + making == held,
             "job {}: {} + {} pages in {} windows of {} bytes, {} with {} being made", job.key, job.pool.used_pages(),
             free_pages, job.windows.ready().size(), ready, held, making);
  const uint64_t bound = count.BoundFreePages();
  TIER_CHECK(job.pool.bound_free_pages() == bound, "job {}: {} free pages beside leased slots of {}", job.key, bound,
             job.pool.bound_free_pages());
  TIER_CHECK(job.pages.ssd() == count.ssd_pages, "job {}: {} pages on SSD of {}", job.key, count.ssd_pages,
             job.pages.ssd());
  TIER_CHECK(job.pages.dirty() == count.dirty_pages, "job {}: {} dirty pages of {}", job.key, count.dirty_pages,
             job.pages.dirty());
  TIER_CHECK(job.pages.rewriting() == count.rewriting_pages, "job {}: {} pages being written again of {}", job.key,
             count.rewriting_pages, job.pages.rewriting());
  const uint64_t leased = tables.ledger.LeasedBy(job.entitlement);
  TIER_CHECK(leased == count.held_pages * kPageSize, "job {}: {} leased pages of {} bytes", job.key, count.held_pages,
             leased);
  TIER_CHECK(job.pages.logical() == count.logical_pages && job.pages.unnamed() == count.unnamed_pages,
             "job {}: {} and {} pages in all of {} and {}", job.key, count.logical_pages, count.unnamed_pages,
             job.pages.logical(), job.pages.unnamed());
  TIER_CHECK(tables.storage.UsedBy(job.entitlement) == count.logical_pages * kPageSize, "job {}: {} bytes used of {}",
             job.key, tables.storage.UsedBy(job.entitlement), count.logical_pages * kPageSize);
  const uint64_t listed = job.policy->count(EvictionOrder::kClean) + job.policy->count(EvictionOrder::kKept) +
                          job.policy->count(EvictionOrder::kDirty);
  TIER_CHECK(listed == count.listed, "job {}: {} listed of {}", job.key, count.listed, listed);
  TIER_CHECK(job.record.counters.lease_count == count.leases && job.record.counters.leased_bytes == count.leased_bytes,
             "job {}: {} leases of {}", job.key, count.leases, job.record.counters.lease_count);
  for (const WindowIndex window : job.windows.ready()) {
    const WindowEntry& entry = tables.windows[window];
    TIER_CHECK(entry.pieces == uses[tier::Value(window)], "window {}: counts {} clean, {} dirty, {} bound pieces",
               tier::Value(window), entry.count(WindowUse::kClean), entry.count(WindowUse::kDirty),
               entry.count(WindowUse::kBound));
  }
  const JobIndex of_holds = tables.manifests.JobOf(job.manifest.id());
  TIER_CHECK(of_holds == job.index, "the manifest of job {} is found at {}", job.key, Value(of_holds));
  size_t cursors = job.internal_session.listing.cursor() != kNoTensor ? 1 : 0;
  for (const SessionState* session : job.sessions) cursors += session->listing.cursor() != kNoTensor ? 1 : 0;
  TIER_CHECK(cursors == job.listings.at_tensors().size(), "{} cursors of {}", cursors,
             job.listings.at_tensors().size());
}

void CheckExtents(const Tables& tables, Count* count) {
  const auto occupy = [&](const storage::Extent& extent) { OccupySsd(tables, extent, &count->ssd); };
  tables.jobs.ForEach([&](const JobState& job) { job.manifest.ForEachUnused(occupy); });
  tables.manifests.ForEachInactive(
      [&](const std::string&, const ManifestHolds& holds) { holds.ForEachUnused(occupy); });
  const uint64_t pages = count->ssd.Check();
  tables.ports.extents.CheckInvariants();
  const uint64_t live = tables.ports.extents.total().live;
  TIER_CHECK(live == pages * kPageSize, "{} bytes live on SSD, {} known", live, pages * kPageSize);
}

void CheckUpdatesOf(const Tables& tables, const SessionState& session) {
  for (UpdateIndex index = tables.updates.FirstOfSession(session.index); index != kNoUpdate;
       index = tables.updates[index].next_of_session) {
    const bool known = tables.sessions.Find(session.id) == &session;
    TIER_CHECK(session.record.job == tables.updates.JobOf(index) && known == !session.ending(),
               "update {} in session index {}", static_cast<uint32_t>(index), session.index);
  }
}

void CheckPendingFrees(const Tables& tables) {
  tables.jobs.ForEach([&](const JobState& job) {
    for (const TensorIndex index : job.frees.tensors()) {
      const Tensor& tensor = tables.tensors[index];
      TIER_CHECK(tensor.job == job.index && tensor.has(kDetached) && tensor.piece_count != 0, "tensor {} remains",
                 tensor.id);
    }
  });
}

// No waiter sleeps on after the event that it waits for.
void CheckAsleep(const Tables& tables, const Waiter& waiter, std::span<const WaitTable::Place> reads) {
  for (const WaitTable::Place place : reads) {
    const Piece& piece = tables.PieceOf(tables.tensors[place.tensor], place.piece);
    TIER_CHECK(piece.activity == Activity::kReadingIn, "request {} waits for a read of a piece that is {}",
               waiter.number, ActivityName(piece.activity));
  }
  const Conflict* conflict = ConflictOf(waiter.kind);
  if (conflict == nullptr) return;
  const Ask ask = AskOf(tables, waiter);
  if (conflict->blocked) {
    const ConflictCheck there = CheckConflictAt(tables, ask, conflict->at.item, conflict->at.piece);
    TIER_CHECK(there.outcome == ConflictOutcome::kBlocked,
               "request {} sleeps, and nothing blocks it at piece {} of item {}", waiter.number, conflict->at.piece,
               conflict->at.item);
    return;
  }
  const auto* lease = std::get_if<LeaseWait>(&waiter.kind);
  if (lease != nullptr && lease->awaits_runs) {
    const JobMoves& moves = waiter.job->moves;
    TIER_CHECK(moves.any() || moves.wanted() || !tables.ram_moves.empty(),
               "request {} waits for moves, and none are to come", waiter.number);
    return;
  }
  TIER_CHECK(CheckConflicts(tables, ask).outcome != ConflictOutcome::kReady || !LeasesFit(tables, ask),
             "request {} sleeps, and could be granted", waiter.number);
}

// What every record costs its user.
void CheckMetadata(const Tables& tables) {
  std::unordered_map<const MetadataAccount*, MetadataSums> sums;
  const MetadataAccount* account = nullptr;
  MetadataSums* its = nullptr;
  const auto add = [&](const JobState& job, MetadataKind kind, uint64_t bytes) {
    if (job.metadata != account) its = &sums[job.metadata];
    account = job.metadata;
    (*its)[static_cast<size_t>(kind)] += bytes;
  };
  tables.jobs.ForEach([&](const JobState& job) {
    add(job, MetadataKind::kKeys, KeysCost(job.keys));
    add(job, MetadataKind::kTensors, job.replay_charge.bytes());
    add(job, MetadataKind::kManifests, job.manifest_charge.bytes() + HoldsCost(job.manifest));
  });
  tables.manifests.ForEachInactive([&](const std::string&, const ManifestHolds& holds) {
    sums[&tables.metadata.At(holds.uid())][static_cast<size_t>(MetadataKind::kManifests)] += HoldsCost(holds);
  });
  tables.tensors.ForEachUsed([&](TensorIndex index, const Tensor& tensor) {
    add(tables.JobOf(tensor), MetadataKind::kTensors, TensorCost(PieceCountOf(tensor.size)));
    add(tables.JobOf(tensor), MetadataKind::kUpdates, SealedCost(tables.tensors.SealedOf(index)));
  });
  tables.updates.ForEach([&](const UpdateList& list) {
    add(tables.jobs.At(list.job), MetadataKind::kUpdates, UpdateCost(list.piece_count));
  });
  tables.sessions.ForEach([&](const SessionState& session) {
    add(*session.job, MetadataKind::kAnswers, session.unread.bytes());
    for (LeaseIndex index = session.record.leases; index != kNoLease; index = tables.leases[index].next) {
      const Lease& lease = tables.leases[index];
      const uint64_t pieces = PieceCountOf(tables.tensors[lease.tensor].size);
      add(*session.job, MetadataKind::kLeases, LeaseCost(lease.exclusive(), pieces));
    }
  });
  tables.waits.ForEach([&](const Waiter& waiter) { add(*waiter.job, MetadataKind::kRequests, RequestCost(waiter)); });
  tables.metadata.CheckInvariants(sums);
}

// What all manifests hold beside pieces, and why.
void CheckUnused(const Tables& tables) {
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    std::array<uint64_t, kStays> pages{};
    const auto add = [&](const ManifestHolds& holds) {
      pages[static_cast<size_t>(holds.stay())] += holds.unused_pages_on(device);
    };
    tables.jobs.ForEach([&](const JobState& job) { add(job.manifest); });
    tables.manifests.ForEachInactive([&](const std::string&, const ManifestHolds& holds) { add(holds); });
    for (size_t stay = 0; stay < kStays; ++stay) {
      const uint64_t summed = tables.manifests.unused().on(device, static_cast<Stay>(stay));
      TIER_CHECK(summed == pages[stay], "device {}: manifests hold {} pages beside pieces of {}, for reason {}", device,
                 summed, pages[stay], stay);
    }
  }
}

}  // namespace

void CheckInvariants(const Tables& tables) {
  Count count(tables);
  CountLeases(tables, &count);
  CountFlights(tables, &count);
  CountMove(tables, &count);
  CheckTensors(tables, &count);
  CountRamMoves(tables, &count);
  tables.write_budget.CheckInvariants();
  tables.tensors.CheckInvariants();
  tables.names.CheckInvariants();
  tables.leases.CheckInvariants();
  tables.windows.CheckInvariants();
  tables.manifests.CheckInvariants();
  tables.replies.CheckInvariants();
  tables.updates.CheckInvariants();
  tables.sessions.CheckInvariants();
  tables.sessions.ForEach([&](const SessionState& session) { CheckUpdatesOf(tables, session); });
  tables.jobs.CheckInvariants();
  tables.jobs.ForEach([&](const JobState& job) { CheckJob(tables, job, count.Job(job.index), count.uses); });
  CheckWindows(tables);
  CheckPool(tables);
  tables.ledger.CheckInvariants();
  tables.storage.CheckInvariants();
  CheckUnused(tables);
  CheckMetadata(tables);
  uint64_t dirty = 0;
  tables.jobs.ForEach([&](const JobState& job) { dirty += job.pages.dirty(); });
  TIER_CHECK(dirty == tables.jobs.dirty_pages(), "{} dirty pages of {}", dirty, tables.jobs.dirty_pages());
  CheckExtents(tables, &count);
  CheckPendingFrees(tables);
  tables.waits.CheckInvariants();
  tables.waits.ForEachAsleep(
      [&](const Waiter& waiter, std::span<const WaitTable::Place> reads) { CheckAsleep(tables, waiter, reads); });
}

}  // namespace tier::tiering
