// See move_transfers.h.
#include "daemon/tiering/transfers/move_transfers.h"

#include <span>

#include "daemon/tiering/transfers/devices.h"

namespace tier::tiering {
namespace {

using storage::Direction;
using storage::TransferOutcome;
using storage::TransferResult;
using Stage = MoveBlock::Stage;

constexpr uint8_t kFailedWritesMax = 8;  // Of a piece, before it stays where it is.

Flight FlightOf(const MoveBlock& block) {
  const bool write = block.stage == Stage::kWriting;
  return {.extent = write ? block.to : block.from,
          .direction = write ? Direction::kWrite : Direction::kRead,
          .priority = ReadPriority::kBackground,
          .write_purpose = storage::Purpose::kBackground};
}

void Hand(Tables& tables, const MoveBlock& block) {
  const MoveMemory& memory = tables.ports.move_memory;
  const auto index = static_cast<uint64_t>(&block - tables.move.blocks.data());
  TIER_CHECK((index + 1) * kBlockSize <= memory.size, "block {} of {} bytes", index, memory.size);
  if (!tables.move.announced) {
    // It is never removed: were its registration refused, the clients' windows would wait behind it for good.
    tables.ports.transfers.AddWindow(memory.window, memory.address, memory.size, storage::Pin::kNo);
    tables.move.announced = true;
  }
  const Flight flight = FlightOf(block);
  NoteStarted(tables, flight);
  if (flight.direction == Direction::kWrite)
    tables.write_budget.Note(flight.extent.run.size_bytes(), tables.turn.now());
  std::span<const base::PageRun> runs;
  if (flight.extent.scattered) runs = tables.ports.extents.RunsOf(flight.extent);
  tables.ports.transfers.Start({.cookie = kMoveCookie | index,
                                .direction = flight.direction,
                                .purpose = PurposeOf(flight),
                                .extent = flight.extent,
                                .runs = runs,
                                .window = memory.window,
                                .memory = memory.address + index * kBlockSize,
                                .length = block.length,
                                .crc = block.crc});
  tables.flights.NoteStarted();
  tables.turn.NoteProgress();
}

// What was read is what the manifest says; so must be what was written.
void FinishWrite(Tables& tables, MoveBlock& block, const TransferResult& result) {
  if (result.outcome == TransferOutcome::kDone && result.crc == block.crc) {
    tables.ports.extents.NoteWritten(block.to);
    block.stage = Stage::kWritten;
    return;
  }
  GiveBackUnwritten(tables, block.to, result);
  block.to = {};
  block.stage = ++block.failed_writes < kFailedWritesMax ? Stage::kRead : Stage::kUnread;
}

}  // namespace

bool TryStartMoveRead(Tables& tables, MoveBlock& block) {
  const uint16_t device = block.from.device;
  const storage::TransferPort& port = tables.ports.transfers;
  const DeviceEntry& entry = tables.devices[device];
  if (port.inflight() >= port.inflight_max() || !TakesReadAhead(tables, device, kNoJob)) return false;
  if (entry.moving_pages != 0 && !tables.flights.queue_empty()) return false;
  block.stage = Stage::kReading;
  tables.devices.Edit(device).moving_pages += block.from.run.pages;
  Hand(tables, block);
  return true;
}

MoveWrite TryStartMoveWrite(Tables& tables, MoveBlock& block) {
  const storage::TransferPort& port = tables.ports.transfers;
  storage::ExtentStore& extents = tables.ports.extents;
  const uint32_t pages = block.from.run.pages;
  if (port.inflight() >= port.inflight_max()) return MoveWrite::kLater;
  if (tables.flights.writes() + tables.move.writes() >= WritesMax(tables)) return MoveWrite::kLater;
  if (!extents.AnyOpen() && extents.AnyShut()) return MoveWrite::kLater;
  if (extents.WouldScatter(pages) && !tables.work.TrySpend(pages)) return MoveWrite::kNextTurn;
  const Result<storage::Extent> extent = extents.Allocate(pages, storage::LastBlock::kKeep);
  if (!extent && extents.RoomComes()) return MoveWrite::kNextTurn;
  if (!extent) return extents.RoomBehindShut(pages) ? MoveWrite::kLater : MoveWrite::kNoRoom;
  block.to = *extent;
  block.stage = Stage::kWriting;
  Hand(tables, block);
  return MoveWrite::kStarted;
}

void TakeMoveResult(Tables& tables, const TransferResult& result) {
  MoveBlock& block = tables.move.blocks.at(result.cookie & ~kMoveCookie);
  TIER_CHECK(block.in_transfer(), "result for block {} in stage {}", result.cookie & ~kMoveCookie,
             static_cast<int>(block.stage));
  NoteEnded(tables, FlightOf(block), result);
  if (block.stage == Stage::kWriting) return FinishWrite(tables, block, result);
  tables.devices.Edit(block.from.device).moving_pages -= block.from.run.pages;
  block.stage = result.outcome == TransferOutcome::kDone ? Stage::kRead : Stage::kUnread;
}

}  // namespace tier::tiering
