// See ssd_compaction.h.
#include "daemon/tiering/durability/ssd_compaction.h"

#include <algorithm>
#include <utility>

#include "daemon/tiering/durability/leaving.h"

namespace tier::tiering {
namespace {

using State = SsdCompactionState;

constexpr size_t kCandidatesMax = 64;
constexpr uint32_t kFreePagesMin = 64;         // Of a block that is worth it: less than eight times as much is written.
constexpr uint64_t kRoomMin = 2 * kBlockSize;  // Is free where pieces are moved: requests have the last block.
constexpr size_t kBlocksMax = 16;              // Cleared at a time.
constexpr size_t kScatteredMax = 1024;         // Pieces that are remembered.
constexpr uint32_t kClearCost = 256;           // What lies there is listed, and its free pages taken.
constexpr uint32_t kNamedCost = 4;             // An extent is sought among those that a manifest names.
constexpr base::Duration kAgain = std::chrono::milliseconds(2);
constexpr base::Duration kSettle = std::chrono::milliseconds(100);
constexpr base::Duration kMovesMax = std::chrono::seconds(30);
constexpr base::Duration kStale = std::chrono::seconds(30);
constexpr base::Duration kPatienceMax = std::chrono::hours(1);
constexpr base::Duration kRestMin = std::chrono::seconds(1);
constexpr base::Duration kRestMax = std::chrono::seconds(60);

bool CanCompact(const Tables& tables, uint16_t device) {
  return tables.ports.extents.takes_extents(device) && tables.devices.IsReadable(device) &&
         !tables.devices[device].away && !tables.drain.draining();
}

// When there is something to be done on the device; none: there is no cause.
std::optional<base::TimePoint> DueAt(const Tables& tables, uint16_t index) {
  const State::Device& device = tables.ssd_compaction.devices[index];
  if (device.settled_at) return std::max(device.rests_until, *device.settled_at);
  if (device.scattered.empty()) return std::nullopt;
  return std::max(device.rests_until, device.again_at);
}

void NoteCauses(Tables& tables) {
  State& state = tables.ssd_compaction;
  state.devices.resize(tables.ports.extents.device_count());
  for (uint16_t index = 0; index < tables.ports.extents.device_count(); ++index) {
    State::Device& device = state.devices[index];
    const bool more = tables.ports.extents.scattered_bytes(index) != device.seen_bytes;
    if (more && !device.settled_at) device.settled_at = tables.turn.now() + kSettle;
  }
}

void BeginCensus(Tables& tables, uint16_t device) {
  State& state = tables.ssd_compaction;
  std::vector<base::SparseBlock> sparse;
  tables.ports.extents.ListSparseBlocks(device, kCandidatesMax, &sparse);
  for (const base::SparseBlock& block : sparse) {
    if (block.free_pages < kFreePagesMin) continue;
    state.candidates.push_back({.block = block.block, .used = kPagesPerBlock - block.free_pages});
  }
  std::ranges::sort(state.candidates, {}, &State::Candidate::block);
  state.device = device;
  state.pass.Begin();
  state.phase = State::Phase::kCensus;
}

// The piece lies on the device, and is not about to go.
bool LiesThere(const Tables& tables, PieceId id) {
  const Piece& piece = tables.pieces[id];
  return piece.copies != Copies::kFreed && piece.ssd_run && piece.ssd_device == tables.ssd_compaction.device &&
         !tables.tensors[piece.tensor].has(kDetached);
}

bool CanLeave(const Tables& tables, const Piece& piece) {
  return !piece.has(kCorrupt) && !piece.has(kBadExtent) && !tables.JobOf(piece).manifest.Names(piece.extent());
}

void Count(Tables& tables, PieceId id) {
  State& state = tables.ssd_compaction;
  const Piece& piece = tables.pieces[id];
  if (!LiesThere(tables, id) || (piece.ssd_run.whole_block() && piece.ssd_scattered == 0)) return;
  tables.work.Charge(std::min(kNamedCost + (piece.ssd_scattered != 0 ? piece.ssd_run.pages : 0u), tables.work.left()));
  if (!CanLeave(tables, piece)) return;
  bool among = false;
  const storage::Extent extent = piece.extent();
  for (const base::PageRun run : tables.ports.extents.RunsOf(extent)) {
    const auto found = std::ranges::lower_bound(state.candidates, run.block, {}, &State::Candidate::block);
    if (found == state.candidates.end() || found->block != run.block) continue;
    found->movable += run.pages;
    among = true;
  }
  if (among) state.pieces.push_back(id);
  if (piece.ssd_scattered == 0 || state.scattered.size() == kScatteredMax) return;
  state.scattered.push_back({id, storage::FirstPage(piece.ssd_run)});
}

// Pieces that the last census met already, in the same place.
std::vector<PieceId> Stale(const State& state, const State::Device& device) {
  std::vector<PieceId> stale;
  for (const State::Scattered& met : state.scattered) {
    const auto before = std::ranges::lower_bound(device.scattered, met.piece, {}, &State::Scattered::piece);
    const bool same = before != device.scattered.end() && before->piece == met.piece;
    if (same && before->first_page == met.first_page) stale.push_back(met.piece);
  }
  return stale;
}

bool InClearedBlock(const Tables& tables, const Piece& piece) {
  return std::ranges::any_of(tables.ports.extents.RunsOf(piece.extent()), [&](base::PageRun run) {
    return tables.ports.extents.Clears(piece.ssd_device, run.block);
  });
}

void EndRound(Tables& tables) {
  State& state = tables.ssd_compaction;
  const bool cleared = tables.ports.extents.cleared_blocks(state.device) != state.cleared_before;
  tables.ports.extents.EndClearing(state.device);
  State::Device& device = state.devices[state.device];
  device.rest = cleared ? base::Duration{} : std::clamp(2 * device.rest, kRestMin, kRestMax);
  device.rests_until = tables.turn.now() + std::max(device.rest, kRestMin);
  state.candidates.clear();
  state.pieces.clear();
  state.scattered.clear();
  state.next_piece = 0;
  state.any_moving = false;
  state.stale.clear();
  state.blocks = state.begun = 0;
  state.phase = State::Phase::kIdle;
  NoteCauses(tables);  // Of other devices.
}

void EndCensus(Tables& tables) {
  State& state = tables.ssd_compaction;
  const storage::ExtentStore& extents = tables.ports.extents;
  State::Device& device = state.devices[state.device];
  std::ranges::sort(state.scattered, {}, &State::Scattered::piece);
  const bool again = device.scattered.empty() || tables.turn.now() >= device.again_at;
  std::vector<PieceId> stale;
  if (again) {
    stale = Stale(state, device);
    device.scattered = std::move(state.scattered);
    // Where nothing could be done for the same ones the last time, it is tried less often.
    device.patience =
        stale.empty() || stale.size() < device.stale ? kStale : std::min(2 * device.patience, kPatienceMax);
    device.stale = stale.size();
    device.again_at = tables.turn.now() + device.patience;
  }
  uint64_t lacking = (extents.scattered_bytes(state.device) - device.seen_bytes) / kPageSize;
  for (const PieceId id : stale) {
    const uint32_t pages = tables.pieces[id].ssd_run.pages;
    lacking += extents.WouldScatter(pages) ? pages : 0;
  }
  device.seen_bytes = extents.scattered_bytes(state.device);
  device.settled_at.reset();
  state.scattered.clear();
  state.cleared_before = extents.cleared_blocks(state.device);
  const uint64_t blocks = (lacking + kPagesPerBlock - 1) / kPagesPerBlock;
  const uint64_t free_blocks = extents.free_block_count(state.device);
  state.blocks = std::min<uint64_t>(blocks - std::min(blocks, free_blocks), kBlocksMax);
  std::erase_if(state.candidates, [](const State::Candidate& block) { return block.movable != block.used; });
  std::ranges::sort(state.candidates, std::ranges::greater{}, &State::Candidate::used);
  state.pieces.insert(state.pieces.end(), stale.begin(), stale.end());
  state.stale = std::move(stale);
  state.phase = State::Phase::kClearing;
}

// Begins to clear the sparsest blocks, as long as what is in them finds room elsewhere.
void BeginClearing(Tables& tables) {
  State& state = tables.ssd_compaction;
  storage::ExtentStore& extents = tables.ports.extents;
  while (state.blocks != 0 && !state.candidates.empty() && CanCompact(tables, state.device)) {
    if (!tables.work.TrySpend()) return tables.turn.NoteProgress();
    tables.work.Charge(std::min(kClearCost, tables.work.left()));
    const State::Candidate candidate = state.candidates.back();
    state.candidates.pop_back();
    // The free pages of each are aside then, and as many as it uses are taken elsewhere.
    if (extents.space(state.device).free < kRoomMin + state.begun * kBlockSize) break;
    if (!extents.BeginClearing(state.device, candidate.block)) continue;
    ++state.begun;
    --state.blocks;
  }
  if (!extents.clears(state.device) && state.stale.empty()) return EndRound(tables);
  state.until = tables.turn.now() + kMovesMax;
  state.phase = State::Phase::kMoving;
  state.next_at = tables.turn.now();
}

void TakeCensus(Tables& tables) {
  State& state = tables.ssd_compaction;
  while (tables.work.TrySpend()) {
    if (state.pass.IsOver(tables.pieces)) return EndCensus(tables);
    Count(tables, state.pass.Next(tables.pieces));
  }
  tables.turn.NoteProgress();  // It goes on in the next turn.
}

enum class Wanted : uint8_t {
  kNo,      // It has left, or may stay.
  kInVain,  // It would be scattered elsewhere: its block is not worth it.
  kLater,   // It is scattered, and there is no room in one run before others have moved.
  kYes,     // Its block is being cleared, or it is scattered and need not be.
};

Wanted WantedMove(const Tables& tables, PieceId id) {
  if (!LiesThere(tables, id)) return Wanted::kNo;
  const Piece& piece = tables.pieces[id];
  const storage::ExtentStore& extents = tables.ports.extents;
  if (extents.clears(piece.ssd_device) && InClearedBlock(tables, piece)) {
    return extents.WouldScatter(piece.ssd_run.pages) ? Wanted::kInVain : Wanted::kYes;
  }
  const bool stale = std::ranges::binary_search(tables.ssd_compaction.stale, id);
  if (piece.ssd_scattered == 0 || !stale) return Wanted::kNo;
  const bool room = extents.space(piece.ssd_device).free >= kBlockSize + piece.ssd_run.size_bytes();
  return room && !extents.WouldScatter(piece.ssd_run.pages) ? Wanted::kYes : Wanted::kLater;
}

// It stays: so do the blocks in which it lies.
void GiveUpBlocksOf(Tables& tables, const Piece& piece) {
  const storage::Extent extent = piece.extent();
  for (const base::PageRun run : tables.ports.extents.RunsOf(extent)) {
    tables.ports.extents.EndClearing(piece.ssd_device, run.block);
  }
}

void MovePieces(Tables& tables) {
  State& state = tables.ssd_compaction;
  const bool over = tables.turn.now() >= state.until || !CanCompact(tables, state.device);
  if (over) return EndRound(tables);
  while (state.next_piece < state.pieces.size()) {
    if (!tables.work.TrySpend(kNamedCost)) return tables.turn.NoteProgress();
    PieceId& id = state.pieces[state.next_piece];
    const uint32_t runs = tables.pieces[id].ssd_scattered != 0 ? tables.pieces[id].ssd_run.pages : 0;
    tables.work.Charge(std::min(runs, tables.work.left()));
    const Wanted wanted = WantedMove(tables, id);
    Leaving leaving = wanted == Wanted::kLater ? Leaving::kLater : Leaving::kNot;
    // What was fetched ahead of its use stays: no request waits for this.
    if (wanted == Wanted::kYes && CanLeave(tables, tables.pieces[id])) {
      leaving = LeaveExtent(tables, id, MayEvict::kUsed);
    }
    if (leaving == Leaving::kFull) {  // For its job, perhaps: the next one may be another's.
      state.any_moving = true;
      ++state.next_piece;
      break;
    }
    if (leaving == Leaving::kStarted) tables.turn.NoteProgress();
    if (leaving == Leaving::kStarted || leaving == Leaving::kLater) {
      state.any_moving = state.any_moving || wanted == Wanted::kYes;
      ++state.next_piece;
      continue;
    }
    if (wanted == Wanted::kYes || wanted == Wanted::kInVain) GiveUpBlocksOf(tables, tables.pieces[id]);
    id = state.pieces.back();
    state.pieces.pop_back();
  }
  if (state.next_piece >= state.pieces.size()) {
    const bool moving = std::exchange(state.any_moving, false);
    if (!moving && !tables.ports.extents.clears(state.device)) return EndRound(tables);
    // What is still in a block is of no piece that could leave: pages that a transfer still has, perhaps.
    if (state.pieces.empty()) state.until = std::min(state.until, tables.turn.now() + kRestMin);
    state.next_piece = 0;
  }
  state.next_at = tables.turn.now() + (state.pieces.empty() ? kSettle : kAgain);
}

}  // namespace

void CompactSsd(Tables& tables) {
  State& state = tables.ssd_compaction;
  if (state.phase == State::Phase::kCensus) return TakeCensus(tables);
  if (state.phase == State::Phase::kClearing) return BeginClearing(tables);
  if (state.phase == State::Phase::kMoving) {
    if (tables.turn.now() >= state.next_at) MovePieces(tables);
    return;
  }
  NoteCauses(tables);
  const uint16_t count = tables.ports.extents.device_count();
  for (uint16_t i = 1; i <= count; ++i) {
    const auto device = static_cast<uint16_t>((state.device + i) % count);  // Each has its turn.
    const std::optional<base::TimePoint> at = DueAt(tables, device);
    if (!at || tables.turn.now() < *at || !CanCompact(tables, device)) continue;
    BeginCensus(tables, device);
    return TakeCensus(tables);
  }
}

std::optional<base::TimePoint> NextSsdCompaction(const Tables& tables) {
  const State& state = tables.ssd_compaction;
  if (state.under_way()) return state.next_at;
  std::optional<base::TimePoint> next;
  for (uint16_t device = 0; device < state.devices.size(); ++device) {
    if (!CanCompact(tables, device)) continue;  // What lets it wakes the engine.
    const std::optional<base::TimePoint> at = DueAt(tables, device);
    if (at) next = next ? std::min(*next, *at) : at;
  }
  return next;
}

}  // namespace tier::tiering
