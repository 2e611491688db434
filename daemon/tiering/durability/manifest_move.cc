// See manifest_move.h.
#include "daemon/tiering/durability/manifest_move.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "daemon/tiering/tables/storage_capacity.h"
#include "daemon/tiering/transfers/move_transfers.h"

namespace tier::tiering {
namespace {

constexpr uint32_t kNameCost = 12;      // Of a piece: its extent is looked up or entered among those that are held.
constexpr size_t kSummedPerUnit = 256;  // Bytes that one unit of work checks, or adds to the checksum.
constexpr base::Duration kMoveAgain = std::chrono::milliseconds(20);  // Until room is looked for again …
constexpr base::Duration kMoveIdle = std::chrono::seconds(1);         // … and a manifest to move.
constexpr base::Duration kRestMax = std::chrono::seconds(60);         // Of a manifest that could not be moved.

using BlockStage = MoveBlock::Stage;
using Stage = MoveState::Stage;

// REQUIRES: a move is under way.
ManifestHolds& HoldsOf(Tables& tables) {
  ManifestHolds* const holds = tables.manifests.FindInactive(tables.move.holds);
  TIER_CHECK(holds != nullptr, "the manifest of job {} is moved and not there", tables.move.key);
  return *holds;
}

void Recharge(Tables& tables, ManifestHolds& holds) {
  tables.metadata.At(holds.uid()).Recharge(&holds.charge(), HoldsCost(holds));
}

// REQUIRES: nothing is in transfer, and nothing at the store that is not to be ignored.
void End(Tables& tables, MoveRest::Reason reason) {
  MoveState& move = tables.move;
  ManifestHolds& holds = HoldsOf(tables);
  for (MoveBlock& block : move.blocks) {
    if (block.stage == BlockStage::kWritten) tables.ports.extents.FreeAtTurnEnd(block.to);
    block = {};
  }
  if (holds.begun()) {
    holds.OnFailed();
    tables.manifests.NeedSweep(move.holds);
  }
  MoveRest rest{.reason = reason, .drain = move.drain};
  if (reason != MoveRest::Reason::kNone) {
    rest.failures = static_cast<uint8_t>(std::min(holds.move_rest().failures + 1, 8));
    rest.again_at = tables.turn.now() + std::min<base::Duration>(kMoveIdle * (1u << (rest.failures - 1)), kRestMax);
  }
  holds.set_move_rest(rest);
  if (move.manifest != nullptr) tables.ports.manifests->Discard(std::exchange(move.manifest, nullptr));
  move.stage = Stage::kIdle;
  move.stopping = false;
  move.cookie = 0;
  move.next_at = tables.turn.now();
  tables.turn.NoteProgress();
}

// What stays of it, and why. A manifest of which a part has moved is committed too.
MoveRest::Reason ReasonOf(const ManifestMove& manifest) {
  if (manifest.full) return MoveRest::Reason::kNoRoom;
  return manifest.unread ? MoveRest::Reason::kUnread : MoveRest::Reason::kNone;
}

bool HoldsOnDrainingDevice(const Tables& tables, const ManifestHolds& holds) {
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    if (tables.drain.drains(device) && holds.unused_pages_on(device) != 0) return true;
  }
  return false;
}

bool MayMove(const Tables& tables, const ManifestHolds& holds, const std::string& key) {
  if (!holds.stored() || holds.begun() || holds.sweeping() || !HoldsOnDrainingDevice(tables, holds)) return false;
  const MoveRest& rest = holds.move_rest();
  if (rest.drain == tables.move.drain && tables.turn.now() < rest.again_at) return false;
  if (tables.manifests.FindBroken(key) != nullptr) return false;
  return !tables.manifests.AnyCommit([&](const ManifestCommit& commit) { return commit.key == key; });
}

void Begin(Tables& tables, const ManifestHolds& holds, const std::string& key) {
  MoveState& move = tables.move;
  move.stage = Stage::kLoading;
  move.holds = holds.id();
  move.key = key;
  move.cookie = tables.manifests.NewCookie();
  tables.manifests.StartLoad(move.cookie, JobId{});
  tables.ports.manifests->StartLoad(move.cookie, key);
  tables.turn.NoteProgress();
}

void LookForManifest(Tables& tables) {
  MoveState& move = tables.move;
  if (tables.turn.now() < move.next_at) return;
  const bool can = tables.ports.manifests != nullptr && tables.ports.move_memory.size >= kBlockSize &&
                   tables.drain.any_device() && !tables.drain.draining() && tables.manifests.store_lost() == nullptr;
  while (can && tables.work.TrySpend()) {
    const ManifestHolds* const holds = tables.manifests.NextInactive(move.cursor);
    if (holds == nullptr) break;
    move.cursor = holds->id();
    const std::string& key = tables.manifests.KeyOfInactive(holds->id());
    if (MayMove(tables, *holds, key)) return Begin(tables, *holds, key);
  }
  const bool more = can && tables.manifests.NextInactive(move.cursor) != nullptr;
  if (more) return tables.turn.NoteProgress();  // It goes on in the next turn.
  move.cursor = 0;
  move.next_at = tables.turn.now() + kMoveIdle;
}

// The manifest does not read as it did at start, or names what its holds do not know of.
void GiveUpUnreadable(Tables& tables) { End(tables, MoveRest::Reason::kUnread); }

// False: the turn has no work left, or the manifest cannot be read and the move has ended.
bool Sum(Tables& tables, ManifestMove& manifest) {
  ManifestReader& reader = *manifest.reader;
  const uint32_t units = std::clamp(reader.UnitsToSum(kSummedPerUnit), 1u, std::max(tables.work.left(), 1u));
  if (!tables.work.TrySpend(units)) {
    tables.turn.NoteProgress();
    return false;
  }
  if (!reader.Sum(units * kSummedPerUnit)) {
    GiveUpUnreadable(tables);
    return false;
  }
  if (!reader.summed()) {
    tables.turn.NoteProgress();
    return false;
  }
  HoldsOf(tables).Begin();
  tables.move.stage = Stage::kMoving;
  return true;
}

// The extents of pieces that were written are held by the manifest from now on. False: the turn has no work left.
bool SettleBlocks(Tables& tables, ManifestMove& manifest) {
  for (MoveBlock& block : tables.move.blocks) {
    if (block.stage == BlockStage::kUnread) {
      manifest.unread = true;
      block = {};
      tables.turn.NoteProgress();
    }
    if (block.stage != BlockStage::kWritten) continue;
    if (!tables.work.TrySpend(kNameCost)) {
      tables.turn.NoteProgress();
      return false;
    }
    ManifestHolds& holds = HoldsOf(tables);
    holds.NameNew(block.to);
    Recharge(tables, holds);
    manifest.moved[block.piece].to = block.to;
    ++manifest.moved_count;
    block = {};
    tables.turn.NoteProgress();
  }
  return true;
}

// Blocks that were read begin to be written, as far as there is room.
void StartWrites(Tables& tables, ManifestMove& manifest) {
  for (MoveBlock& block : tables.move.blocks) {
    if (block.stage != BlockStage::kRead) continue;
    switch (TryStartMoveWrite(tables, block)) {
      case MoveWrite::kStarted: break;
      case MoveWrite::kNextTurn: return tables.turn.NoteProgress();
      case MoveWrite::kLater: tables.move.next_at = tables.turn.now() + kMoveAgain; return;
      case MoveWrite::kNoRoom:
        manifest.full = true;
        block = {};
        break;
    }
  }
}

// The next piece that is to move, in manifest.next. Empty: there is none. Nothing at all: the turn has no work left.
enum class Found : uint8_t { kPiece, kNone, kNoWorkLeft, kUnreadable };
Found FindPiece(Tables& tables, ManifestMove& manifest) {
  ManifestReader& reader = *manifest.reader;
  while (!manifest.next) {
    if (reader.tensors_left() + reader.pieces_left() == 0) return Found::kNone;
    if (!tables.work.TrySpend()) return Found::kNoWorkLeft;
    if (reader.pieces_left() == 0) {
      const auto tensor = reader.NextTensor();
      if (!tensor) return Found::kUnreadable;
      manifest.tensor = *tensor;
      continue;
    }
    const auto piece = reader.NextPiece();
    if (!piece) return Found::kUnreadable;
    ++manifest.piece;
    tables.work.Charge(std::min<uint32_t>(piece->run_count, tables.work.left()));
    if (tables.drain.drains(piece->device)) manifest.next = *piece;
  }
  return Found::kPiece;
}

MoveBlock* FreeBlock(Tables& tables) {
  const size_t count = std::min<size_t>(kMoveBlocks, tables.ports.move_memory.size / kBlockSize);
  const auto blocks = std::span(tables.move.blocks).first(count);
  const auto free = std::ranges::find(blocks, BlockStage::kFree, &MoveBlock::stage);
  return free == blocks.end() ? nullptr : &*free;
}

// Room for this piece beside those that are on their way, which no tensor of an open job will need.
bool RoomFor(const Tables& tables, uint32_t pages) {
  const uint64_t coming = kMoveBlocks - tables.move.CountOf(BlockStage::kFree);
  const uint64_t bytes = pages * kPageSize + coming * kBlockSize;
  return tables.ports.extents.HasRoom(bytes) && tables.storage.used() + bytes <= StorageCapacity(tables);
}

// False: the piece has to wait.
bool StartPiece(Tables& tables, ManifestMove& manifest) {
  const proto::ManifestPieceRecord& piece = *manifest.next;
  if (!tables.devices.IsReadable(piece.device)) {
    manifest.unread = true;
    manifest.next.reset();
    return true;
  }
  MoveBlock* const block = FreeBlock(tables);
  if (block == nullptr) return false;
  if (!RoomFor(tables, piece.pages)) {
    // Others that are on their way may need less than a block each.
    manifest.full = tables.move.CountOf(BlockStage::kFree) == kMoveBlocks;
    return false;
  }
  const uint32_t number = manifest.tensor.piece_count - manifest.reader->pieces_left() - 1;
  *block = {.from = ExtentOf(piece),
            .length = static_cast<uint32_t>(
                std::min<uint64_t>(kBlockSize, manifest.tensor.size - uint64_t{number} * kBlockSize)),
            .crc = piece.crc,
            .piece = manifest.moved.size()};
  if (!TryStartMoveRead(tables, *block)) {
    *block = {};
    return false;
  }
  manifest.moved.push_back({.piece = manifest.piece - 1, .to = {}});
  manifest.next.reset();
  return true;
}

void BeginManifest(Tables& tables, ManifestMove& manifest) {
  manifest.reader->Rewind();
  manifest.piece = 0;
  const storage::DeviceNumbers& numbers = tables.ports.manifests->device_numbers();
  manifest.writer.emplace(manifest.bytes.size(), numbers);
  manifest.extents.emplace(manifest.bytes.size() / sizeof(proto::ManifestPieceRecord), numbers);
  manifest.writer->SetStep(manifest.reader->step());
  tables.move.stage = Stage::kTensors;
}

// True: all that can move has moved, and there is a new manifest to be put together.
bool Move(Tables& tables, ManifestMove& manifest) {
  if (!SettleBlocks(tables, manifest)) return false;
  StartWrites(tables, manifest);
  Found found = Found::kPiece;
  while (!manifest.full && found == Found::kPiece) {
    found = FindPiece(tables, manifest);
    if (found == Found::kPiece && !StartPiece(tables, manifest)) break;
  }
  if (found == Found::kUnreadable) {
    (void)StopMove(tables);
    return false;
  }
  if (found == Found::kNoWorkLeft) tables.turn.NoteProgress();
  const bool over = manifest.full || found == Found::kNone;
  if (!over || tables.move.CountOf(BlockStage::kFree) != kMoveBlocks) return false;
  if (manifest.moved_count == 0) {
    const MoveRest::Reason reason = ReasonOf(manifest);  // It names nothing there: what its holds have is not of it.
    End(tables, reason == MoveRest::Reason::kNone ? MoveRest::Reason::kNotCommitted : reason);
    return false;
  }
  BeginManifest(tables, manifest);
  return true;
}

// A piece's record in the new manifest. False: its holds do not know its extent.
bool WritePiece(Tables& tables, ManifestMove& manifest, proto::ManifestPieceRecord piece) {
  ManifestHolds& holds = HoldsOf(tables);
  const bool listed =
      manifest.next_moved < manifest.moved.size() && manifest.moved[manifest.next_moved].piece == manifest.piece;
  storage::Extent extent = ExtentOf(piece);
  if (listed && manifest.moved[manifest.next_moved].to) {
    extent = manifest.moved[manifest.next_moved].to;
    piece.block = extent.run.block;
    piece.page = extent.run.page;
    piece.device = extent.device;
  } else if (!holds.NameKept(extent)) {
    return false;
  }
  if (listed) ++manifest.next_moved;
  ++manifest.piece;
  const std::span<const base::PageRun> runs = tables.ports.extents.RunsOf(extent);
  manifest.writer->AddPiece(piece, runs);
  for (const base::PageRun run : runs) manifest.extents->Add({.run = run, .device = extent.device});
  tables.work.Charge(std::min(static_cast<uint32_t>(runs.size()), tables.work.left()));
  return true;
}

enum class Written : uint8_t { kAll, kNoWorkLeft, kUnreadable };

Written WriteTensors(Tables& tables, ManifestMove& manifest) {
  ManifestReader& reader = *manifest.reader;
  while (reader.tensors_left() + reader.pieces_left() != 0) {
    const bool begins = reader.pieces_left() == 0;
    if (!tables.work.TrySpend(begins ? 1 : kNameCost)) return Written::kNoWorkLeft;
    if (begins) {
      const auto tensor = reader.NextTensor();
      if (!tensor) return Written::kUnreadable;
      manifest.tensor = *tensor;
      manifest.writer->BeginTensor(*tensor);
    } else {
      const auto piece = reader.NextPiece();
      if (!piece || !WritePiece(tables, manifest, *piece)) return Written::kUnreadable;
    }
    if (reader.pieces_left() == 0) manifest.writer->EndTensor(manifest.tensor.flags);
  }
  return Written::kAll;
}

Written WriteKeys(Tables& tables, ManifestMove& manifest) {
  while (manifest.reader->keys_left() != 0) {
    if (!tables.work.TrySpend()) return Written::kNoWorkLeft;
    const Result<ManifestKey> key = manifest.reader->NextKey();
    if (!key) return Written::kUnreadable;
    manifest.writer->AddKey(key->id, key->key);
  }
  return Written::kAll;
}

Written Seal(Tables& tables, ManifestMove& manifest) {
  ManifestWriter& writer = *manifest.writer;
  const uint32_t units = std::clamp(writer.UnitsToSeal(kSummedPerUnit), 1u, std::max(tables.work.left(), 1u));
  if (!tables.work.TrySpend(units)) return Written::kNoWorkLeft;
  return writer.Seal(units * kSummedPerUnit) ? Written::kAll : Written::kNoWorkLeft;
}

void Commit(Tables& tables, ManifestMove& manifest) {
  MoveState& move = tables.move;
  move.cookie = tables.manifests.NewCookie();
  move.stage = Stage::kCommitting;
  tables.manifests.StartCommit(move.cookie, ManifestCommit{.key = move.key, .holds = move.holds, .tensors = {}});
  tables.ports.manifests->StartPut(move.cookie, move.key, (*std::move(manifest.writer)).Take(),
                                   (*std::move(manifest.extents)).Take());
  tables.turn.NoteProgress();
}

// True: the stage has ended.
bool Write(Tables& tables, ManifestMove& manifest) {
  const Stage stage = tables.move.stage;
  const Written written = stage == Stage::kTensors ? WriteTensors(tables, manifest)
                          : stage == Stage::kKeys  ? WriteKeys(tables, manifest)
                                                   : Seal(tables, manifest);
  if (written == Written::kUnreadable) GiveUpUnreadable(tables);
  if (written == Written::kNoWorkLeft) tables.turn.NoteProgress();
  return written == Written::kAll;
}

void Continue(Tables& tables) {
  MoveState& move = tables.move;
  move.next_at = tables.turn.now() + kMoveIdle;
  for (;;) {
    ManifestMove* const manifest = move.manifest.get();
    switch (move.stage) {
      case Stage::kIdle:
      case Stage::kLoading:
      case Stage::kCommitting: return;
      case Stage::kSumming:
        if (!Sum(tables, *manifest)) return;
        break;
      case Stage::kMoving:
        if (!Move(tables, *manifest)) return;
        break;
      case Stage::kTensors:
        if (!Write(tables, *manifest)) return;
        move.stage = Stage::kKeys;
        break;
      case Stage::kKeys:
        if (!Write(tables, *manifest)) return;
        move.stage = Stage::kSealing;
        break;
      case Stage::kSealing:
        if (Write(tables, *manifest)) Commit(tables, *manifest);
        return;
    }
  }
}

}  // namespace

void MoveManifests(Tables& tables) {
  MoveState& move = tables.move;
  if (!move.under_way()) return LookForManifest(tables);
  if (tables.manifests.store_lost() != nullptr) move.stopping = true;
  if (!move.stopping) return Continue(tables);
  move.next_at = tables.turn.now() + kMoveIdle;  // What it waits for wakes the engine.
  (void)StopMove(tables);
}

bool TakeMoveLoaded(Tables& tables, storage::ManifestResult* result) {
  MoveState& move = tables.move;
  if (move.stage != Stage::kLoading || result->cookie != move.cookie) return false;
  tables.manifests.EndLoad(result->cookie);
  if (result->code != Code::kOk) {
    GiveUpUnreadable(tables);
    return true;
  }
  move.manifest = std::make_shared<ManifestMove>();
  ManifestMove& manifest = *move.manifest;
  manifest.bytes = std::move(result->manifest);
  manifest.reader.emplace(manifest.bytes, tables.ports.manifests->device_numbers());
  move.stage = Stage::kSumming;
  if (!manifest.reader->Open()) GiveUpUnreadable(tables);
  return true;
}

void OnMoveAnswered(Tables& tables, const storage::ManifestResult& result) {
  MoveState& move = tables.move;
  if (move.stage != Stage::kCommitting || result.cookie != move.cookie) return;
  End(tables, result.code == Code::kOk ? ReasonOf(*move.manifest) : MoveRest::Reason::kNotCommitted);
}

bool StopMove(Tables& tables) {
  MoveState& move = tables.move;
  if (!move.under_way()) return false;
  if (move.stage != Stage::kCommitting) move.stopping = true;
  if (move.stage == Stage::kCommitting || move.in_transfer()) return true;
  End(tables, MoveRest::Reason::kNone);
  return false;
}

bool StopMoveOf(Tables& tables, const std::string& key) { return tables.move.key == key && StopMove(tables); }

void OnDrainsChanged(Tables& tables) {
  ++tables.move.drain;
  (void)StopMove(tables);  // If something is in transfer it ends then.
  if (tables.move.under_way()) return;
  tables.move.cursor = 0;
  tables.move.next_at = {};
}

}  // namespace tier::tiering
