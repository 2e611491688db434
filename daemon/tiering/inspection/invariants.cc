// See invariants.h.
#include "daemon/tiering/inspection/invariants.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "daemon/tiering/inspection/pool.h"
#include "daemon/tiering/inspection/window_checks.h"
#include "daemon/tiering/leases/conflicts.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/requests/reserve.h"
#include "daemon/tiering/tables/transitions.h"

namespace tier::tiering {
namespace {

// What the pieces of a job add up to.
struct JobCount {
  uint64_t ram_pages = 0;
  uint64_t ssd_pages = 0;
  uint64_t dirty_pages = 0;
  uint64_t rewriting_pages = 0;
  uint64_t held_pages = 0;
  uint64_t listed = 0;
  uint64_t leases = 0;
  uint64_t leased_bytes = 0;
  uint64_t logical_pages = 0;
  uint64_t unnamed_pages = 0;
  uint64_t extra_pages = 0;  // In RAM, of no piece.
  uint64_t coming_pages = 0;
  struct SlotBlock {
    uint64_t pages = 0;
    bool leased = false;
  };
  std::unordered_map<uint32_t, SlotBlock> slot_blocks;  // By block.
};

using WindowCounts = std::unordered_map<uint32_t, std::array<uint32_t, kWindowUses>>;

struct Count {
  WindowCounts uses;
  std::unordered_map<JobIndex, JobCount> jobs;
  std::unordered_map<uint32_t, uint32_t> read_leases;   // By piece.
  std::unordered_map<uint32_t, uint32_t> write_leases;  // By piece.
  std::unordered_map<uint32_t, uint32_t> tensor_leases;
  std::unordered_map<uint32_t, uint32_t> flights;  // By piece.
  uint64_t moving = 0;                             // Runs of pieces.
  uint64_t residents = 0;                          // Pieces in one run,
  uint64_t scattered = 0;                          // and in several.
  std::map<uint64_t, uint64_t> ram, ssd;           // Run start → end, in pages.
};

void Occupy(std::map<uint64_t, uint64_t>* taken, uint64_t first, uint64_t pages) {
  const auto after = taken->lower_bound(first);
  TIER_CHECK(after == taken->end() || first + pages <= after->first, "pages {} + {} meet {}", first, pages,
             after->first);
  TIER_CHECK(after == taken->begin() || std::prev(after)->second <= first, "pages {} + {} meet those before", first,
             pages);
  taken->emplace(first, first + pages);
}

uint64_t PageOf(base::PageRun run) { return uint64_t{run.block} * kPagesPerBlock + run.page; }

void OccupySsd(const Tables& tables, const storage::Extent& extent, std::map<uint64_t, uint64_t>* taken) {
  uint32_t pages = 0;
  for (const base::PageRun run : tables.ports.extents.RunsOf(extent)) {
    Occupy(taken, (uint64_t{extent.device} << 48) + PageOf(run), run.pages);
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
      JobCount& job = count->jobs[session.record.job];
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
    ++count->uses[tier::Value(tables.windows.WindowOf(run))][static_cast<size_t>(UseOf(piece))];
    TIER_CHECK(tables.PieceAt(run) == id, "piece {} is not found in block {} page {}", Value(id), run.block, run.page);
    Occupy(&count->ram, PageOf(run), run.pages);
    if (run.whole_block()) continue;
    JobCount::SlotBlock& block = count->jobs[tables.tensors[piece.tensor].job].slot_blocks[run.block];
    block.pages += run.pages;
    block.leased |= leased;
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
  JobCount& job = count->jobs[tensor.job];
  job.ram_pages += piece.ram.pages;
  job.ssd_pages += piece.ssd_run.pages;
  if (piece.copies == Copies::kRam) job.dirty_pages += piece.ram.pages;
  if (IsRewriting({piece.copies, piece.activity})) job.rewriting_pages += piece.ram.pages;
  if (Held(piece)) job.held_pages += piece.ram.pages;
  if (piece.has(kListed)) ++job.listed;
  CountRuns(tables, id, count);
  if (piece.ssd_run) OccupySsd(tables, piece.extent(), &count->ssd);
  const uint32_t readers = count->read_leases[Value(id)];
  const uint32_t writers = count->write_leases[Value(id)];
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
  TIER_CHECK(count->flights[Value(id)] == (piece.in_transfer() ? 1u : 0u), "piece {}: {} flights, {}", Value(id),
             count->flights[Value(id)], ActivityName(piece.activity));
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
    JobCount& job = count->jobs[index];
    job.extra_pages += run.pages;
    if (!run.whole_block()) job.slot_blocks[run.block].pages += run.pages;
    Occupy(&count->ram, PageOf(run), run.pages);
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
    count->jobs[compaction.job].coming_pages += compaction.goal.pages;
    for (const base::PageRun run : compaction.kept) take(compaction.job, run);
  });
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

void CheckTensors(const Tables& tables, Count* count) {
  std::unordered_map<uint32_t, uint32_t> torn;
  std::vector<std::pair<uint64_t, uint64_t>> pages(tables.tensors.capacity());  // In RAM and on SSD, by tensor.
  uint64_t pieces = 0;
  for (uint32_t i = 0; i < tables.pieces.capacity(); ++i) {
    const PieceId id{i};
    const Piece& piece = tables.pieces[id];
    const bool idle = piece.copies == Copies::kFreed && piece.activity == Activity::kNone;
    if (idle) continue;
    ++pieces;
    CheckPiece(tables, id, count);
    pages[Value(piece.tensor)].first += piece.ram.pages;
    pages[Value(piece.tensor)].second += piece.ssd_run.pages;
    if (piece.copies == Copies::kTorn) ++torn[Value(piece.tensor)];
  }
  TIER_CHECK(pieces == tables.pieces.used(), "{} pieces of {}", pieces, tables.pieces.used());
  for (uint32_t i = 0; i < tables.tensors.capacity(); ++i) {
    const Tensor& tensor = tables.tensors[TensorIndex{i}];
    if (tensor.job == kNoJob) continue;
    TIER_CHECK(tensor.lease_count == count->tensor_leases[i], "tensor {}: {} leases of {}", tensor.id,
               count->tensor_leases[i], tensor.lease_count);
    TIER_CHECK(tensor.ram_pages == pages[i].first && tensor.ssd_pages == pages[i].second,
               "tensor {}: {} pages in RAM of {}, {} on SSD of {}", tensor.id, pages[i].first, tensor.ram_pages,
               pages[i].second, tensor.ssd_pages);
    TIER_CHECK(tensor.content != 0 && tensor.content <= tables.tensors.contents(), "tensor {}: content {} of {}",
               tensor.id, tensor.content, tables.tensors.contents());
    if (tables.updates.FindBroken(TensorIndex{i}) != kNoUpdate) ++torn[i];
    TIER_CHECK(tensor.has(kDetached) || tensor.torn_count == torn[i], "tensor {}: {} tears of {}", tensor.id, torn[i],
               tensor.torn_count);
    TIER_CHECK(tensor.updates == kNoUpdateList || (tensor.has(kVisible) && !tensor.has(kDetached)),
               "tensor {} has updates and flags {}", tensor.id, tensor.flags);
    TIER_CHECK(!tensor.has(kUnnamed) || !tensor.has(kVisible | kDetached), "tensor {} has no name and flags {}",
               tensor.id, tensor.flags);
    JobCount& job = count->jobs[tensor.job];
    TIER_CHECK(!tensor.has(kKeepsRoom) || (tensor.has(kDetached) && tensor.lease_count != 0),
               "tensor {} has {} leases and flags {}", tensor.id, tensor.lease_count, tensor.flags);
    if (!tensor.has(kDetached) || tensor.has(kKeepsRoom)) {
      (tensor.has(kUnnamed) ? job.unnamed_pages : job.logical_pages) += PagesOf(tensor.size);
    }
    if (tensor.has(kDetached | kUnnamed)) continue;
    const TensorKey key{tensor.job, tensor.space, tensor.id};
    TIER_CHECK(tables.names.Find(key) == TensorIndex{i}, "tensor {} is not in the table", tensor.id);
  }
}

void CheckJob(const Tables& tables, const JobState& job, const JobCount& count, const WindowCounts& uses) {
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
  uint64_t bound = 0;
  for (const auto& [number, block] : count.slot_blocks) bound += block.leased ? kPagesPerBlock - block.pages : 0;
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
    const auto found = uses.find(tier::Value(window));
    TIER_CHECK(entry.pieces == (found == uses.end() ? decltype(entry.pieces){} : found->second),
               "window {}: counts {} clean, {} dirty, {} bound pieces", tier::Value(window),
               entry.count(WindowUse::kClean), entry.count(WindowUse::kDirty), entry.count(WindowUse::kBound));
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
  uint64_t pages = 0;
  for (const auto& [first, end] : count->ssd) pages += end - first;
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
  const auto add = [&](const JobState& job, MetadataKind kind, uint64_t bytes) {
    sums[job.metadata][static_cast<size_t>(kind)] += bytes;
  };
  tables.jobs.ForEach([&](const JobState& job) {
    add(job, MetadataKind::kKeys, KeysCost(job.keys));
    add(job, MetadataKind::kTensors, job.replay_charge.bytes());
    add(job, MetadataKind::kManifests, job.manifest_charge.bytes() + HoldsCost(job.manifest));
  });
  tables.manifests.ForEachInactive([&](const std::string&, const ManifestHolds& holds) {
    sums[&tables.metadata.At(holds.uid())][static_cast<size_t>(MetadataKind::kManifests)] += HoldsCost(holds);
  });
  for (uint32_t i = 0; i < tables.tensors.capacity(); ++i) {
    const Tensor& tensor = tables.tensors[TensorIndex{i}];
    if (tensor.job == kNoJob) continue;
    add(tables.JobOf(tensor), MetadataKind::kTensors, TensorCost(PieceCountOf(tensor.size)));
    add(tables.JobOf(tensor), MetadataKind::kUpdates, SealedCost(tables.tensors.SealedOf(TensorIndex{i})));
  }
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

std::vector<PiecePlace> NamedPlaces(const Tables& tables) {
  std::unordered_map<uint32_t, uint64_t> transfers;  // Cookie by piece.
  tables.flights.ForEach([&](FlightIndex index, const Flight& flight) {
    transfers.emplace(Value(flight.piece), static_cast<uint64_t>(index));
  });
  std::vector<PiecePlace> places;
  for (uint32_t i = 0; i < tables.pieces.capacity(); ++i) {
    const Piece& piece = tables.pieces[PieceId{i}];
    if (!piece.ram && !piece.ssd_run) continue;
    const auto transfer = transfers.find(i);
    std::vector<base::PageRun> ram;
    for (base::PageRun run : tables.RunsOf(piece)) {
      const WindowIndex window = tables.windows.WindowOf(run);
      run.block += tier::Value(window) * uint32_t{kWindowSizeMax / kBlockSize} - tables.windows.FirstBlock(window);
      ram.push_back(run);
    }
    std::vector<base::PageRun> ssd;
    if (piece.ssd_run) {
      const storage::Extent extent = piece.extent();  // The answer may be a part of it.
      const auto runs = tables.ports.extents.RunsOf(extent);
      ssd.assign(runs.begin(), runs.end());
    }
    places.push_back({.tensor = tables.tensors[piece.tensor].id,
                      .piece = piece.number,
                      .generation = piece.generation,
                      .ram = std::move(ram),
                      .extent = piece.ssd_run ? piece.extent() : storage::Extent{},
                      .runs = std::move(ssd),
                      .transfer = transfer == transfers.end() ? std::nullopt : std::optional(transfer->second)});
  }
  return places;
}

void CheckInvariants(const Tables& tables) {
  Count count;
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
  tables.jobs.ForEach([&](const JobState& job) { CheckJob(tables, job, count.jobs[job.index], count.uses); });
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
