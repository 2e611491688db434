// See transfers.h.
#include "daemon/tiering/transfers/transfers.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"
#include "daemon/tiering/transfers/devices.h"
#include "daemon/tiering/transfers/move_transfers.h"
#include "daemon/tiering/transfers/second_copies.h"

namespace tier::tiering {
namespace {

using storage::Direction;
using storage::TransferOutcome;
using storage::TransferResult;

storage::Purpose PurposeOf(WriteFor purpose) {
  switch (purpose) {
    case WriteFor::kRead:
    case WriteFor::kRequest: return storage::Purpose::kDemand;
    case WriteFor::kAhead:
    case WriteFor::kBehind:
    case WriteFor::kHandOver: return storage::Purpose::kAhead;
    case WriteFor::kBackground: break;
  }
  return storage::Purpose::kBackground;
}

std::vector<storage::MemoryRun> MemoryRunsOf(const Tables& tables, const Piece& piece) {
  std::vector<storage::MemoryRun> runs;
  for (const base::PageRun run : tables.RunsOf(piece)) {
    runs.push_back({.window = tables.windows.WindowOf(run),
                    .memory = tables.windows.AddressOf(run),
                    .length = static_cast<uint32_t>(run.size_bytes())});
  }
  return runs;
}

void Hand(Tables& tables, FlightIndex index) {
  const Flight& flight = tables.flights[index];
  const Piece& piece = tables.pieces[flight.piece];
  const Tensor& tensor = tables.tensors[piece.tensor];
  TIER_CHECK(tables.ports.transfers.inflight() < tables.ports.transfers.inflight_max(), "{} transfers in flight",
             tables.ports.transfers.inflight());
  tables.flights.Start(index);
  NoteStarted(tables, flight);
  std::span<const base::PageRun> runs;
  if (flight.extent.scattered) runs = tables.ports.extents.RunsOf(flight.extent);
  const uint64_t begin = uint64_t{piece.number} * kBlockSize;
  TIER_CHECK(begin < tensor.size, "piece {} begins at {} of {}", piece.number, begin, tensor.size);
  TIER_CHECK(piece.ram.pages >= flight.extent.run.pages, "{} pages of RAM for {} on SSD", piece.ram.pages,
             flight.extent.run.pages);
  std::span<const storage::MemoryRun> memory_runs;
  if (piece.ram_scattered) memory_runs = tables.scattered.Keep(piece.ram, MemoryRunsOf(tables, piece));
  tables.ports.transfers.Start({.cookie = static_cast<uint64_t>(index),
                                .direction = flight.direction,
                                .purpose = PurposeOf(flight),
                                .extent = flight.extent,
                                .runs = runs,
                                .window = tables.windows.WindowOf(piece.ram),
                                .memory = tables.windows.AddressOf(piece.ram),
                                .memory_runs = memory_runs,
                                .length = static_cast<uint32_t>(std::min(kBlockSize, tensor.size - begin)),
                                .crc = piece.crc});
}

FlightIndex AddFlight(Tables& tables, const Flight& flight) {
  const FlightIndex index = tables.flights.Add(flight);
  Tensor& tensor = tables.tensors.Edit(tables.pieces[flight.piece].tensor);
  ++tensor.transfer_count;
  return index;
}

void EndFlight(Tables& tables, FlightIndex index) {
  const Flight flight = tables.flights.Remove(index);
  const Piece& piece = tables.pieces[flight.piece];
  JobState& job = tables.JobOf(piece);
  if (flight.direction == Direction::kWrite) {
    job.transfers.EndWrite(piece.activity == Activity::kWritingOut ? piece.ram.pages : 0);
  } else {
    job.transfers.EndRead(piece.ram.pages, flight.priority);
  }
  tables.waits.OnWrite(job);
  tables.waits.OnRoom(job);
}

std::string Place(const Tensor& tensor, uint32_t number, const storage::Extent& extent, const TransferResult& result) {
  return fmt::format("tensor {:#x} at byte {} on device {} at byte {}", tensor.id, uint64_t{number} * kBlockSize,
                     extent.device, result.device_offset);
}

void RetryLater(Tables& tables, JobState& job, WriteFailure failure) {
  const base::Duration backoff = kWriteRetryMin * (1u << std::min(job.failures.in_a_row(), 9u));
  tables.jobs.RetryWritesAt(job, tables.turn.now() + std::min(backoff, kWriteRetryMax));
  job.failures.Note(std::move(failure), tables.turn.number());
}

void FailWrite(Tables& tables, PieceId id, const Flight& flight, const TransferResult& result) {
  const Piece& piece = tables.pieces[id];
  const Tensor& tensor = tables.tensors[piece.tensor];
  JobState& job = tables.JobOf(tensor);
  const bool device = result.outcome == TransferOutcome::kDeviceError;
  WriteFailure failure{
      .code = device ? Code::kIoError : Code::kNoSpace,
      .tensor = tensor.id,
      .message = fmt::format("writing {} failed: {}; the RAM copy is kept and written again elsewhere",
                             Place(tensor, piece.number, flight.extent, result), std::strerror(result.error_number))};
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  if (!tables.ports.extents.RoomWhereWritesSucceed(pages)) return RetryLater(tables, job, std::move(failure));
  job.failures.NoteElsewhere(std::move(failure));
  tables.jobs.NeedMaintenance(job);  // Another device takes it, now or when it has a place.
}

// A transfer could not touch a window of this job: a client of it took the memory away. `id`: the piece, if it still is
// one.
void ReportWindowFault(Tables& tables, JobState& job, PieceId id) {
  AddWindowFault(tables, job, id);
  if (id == kNoPiece) return;
  const Piece& piece = tables.pieces[id];
  const TensorIndex tensor = piece.tensor;
  switch (piece.activity) {
    case Activity::kWritingOut:
      SetState(tables, id, {Copies::kTorn, Activity::kNone});
      if (!tables.tensors[tensor].has(kDetached)) AddTear(tables, tensor);
      break;
    case Activity::kReadingIn: RevertToSsd(tables, id); break;
    default: SetState(tables, id, {piece.copies, Activity::kNone});
  }
}

void FinishWrite(Tables& tables, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = tables.pieces.Edit(id);
  JobState& job = tables.JobOf(piece);
  const bool draining = piece.activity == Activity::kDraining;
  if (result.outcome == TransferOutcome::kDone) {
    if (draining) DropExtent(tables, id);
    GiveExtent(tables, id, flight.extent);
    piece.crc = result.crc;
    piece.ssd_generation = piece.generation;
    piece.set(kFreshExtent);
    tables.ports.extents.NoteWritten(flight.extent);
    tables.jobs.Edit(job).counters.swap_out_bytes += flight.extent.run.size_bytes();
    job.failures.NoteSuccess();
    SetState(tables, id, {Copies::kRamSsd, Activity::kNone});
    return;
  }
  GiveBackUnwritten(tables, flight.extent, result);
  if (result.outcome == TransferOutcome::kWindowFault) {
    ReportWindowFault(tables, job, id);
    return;
  }
  SetState(tables, id, {piece.copies, Activity::kNone});
  FailWrite(tables, id, flight, result);
}

bool IsBadPlace(const TransferResult& result) {
  return result.outcome == TransferOutcome::kDeviceError && storage::MayBeOfAPlace(result.error_number);
}

void FailRead(Tables& tables, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = tables.pieces.Edit(id);
  const Tensor& tensor = tables.tensors[piece.tensor];
  const std::string place = Place(tensor, piece.number, flight.extent, result);
  std::vector<uint64_t> waiters = tables.waits.ReadersAt(piece);
  RevertToSsd(tables, id);
  if (result.outcome == TransferOutcome::kCorrupt) {
    piece.set(kCorrupt);
    return;  // Waiters learn it when they look at the piece again.
  }
  Refusal refusal{.code = Code::kIoError};
  refusal.record = {.tensor = tensor.id, .requested = uint64_t{piece.number} * kBlockSize};
  if (result.outcome == TransferOutcome::kNoSpace || result.outcome == TransferOutcome::kDeviceError) {
    if (IsBadPlace(result)) piece.set(kBadExtent);
    refusal.detail = fmt::format("reading {} failed: {}; the copy is kept, asking again reads it again", place,
                                 std::strerror(result.error_number));
  }
  tables.reports.Add(FailedRead{std::move(waiters), tables.RefOf(piece.tensor), piece.number, std::move(refusal)});
}

void FinishRead(Tables& tables, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = tables.pieces.Edit(id);
  JobState& job = tables.JobOf(piece);
  if (result.outcome == TransferOutcome::kWindowFault) {
    ReportWindowFault(tables, job, id);
    return;
  }
  if (result.outcome != TransferOutcome::kDone) {
    FailRead(tables, flight, result);
    return;
  }
  tables.jobs.Edit(job).counters.swap_in_bytes += flight.extent.run.size_bytes();
  piece.clear(kBadExtent | kFreshExtent);
  if (flight.priority == ReadPriority::kPrefetch) {
    piece.set(kPrefetched);
    piece.prefetched_at = job.prefetch_age.EpochAt(tables.turn.now());
    tables.jobs.Edit(job).counters.prefetched_bytes += flight.extent.run.size_bytes();
  }
  job.policy->Use(id);
  SetState(tables, id, {Copies::kRamSsd, Activity::kNone});
  GiveUpSecondCopyIfFull(tables, id);
}

// The piece was freed meanwhile: what the transfer used goes now.
void FinishFreed(Tables& tables, const Flight& flight, const TransferResult& result) {
  if (flight.direction == Direction::kWrite) {
    GiveBackUnwritten(tables, flight.extent, result);
  } else if (IsBadPlace(result)) {
    tables.pieces.Edit(flight.piece).set(kBadExtent);
  }
  FinishFreedPiece(tables, flight.piece);
}

void FinishTransfer(Tables& tables, FlightIndex index, const Flight& flight, const TransferResult& result) {
  EndFlight(tables, index);
  Piece& piece = tables.pieces.Edit(flight.piece);
  if (result.outcome == TransferOutcome::kCorrupt) tables.corrupt_reads.Note(tables.JobOf(piece), flight.extent.device);
  if (piece.copies == Copies::kFreed) {
    const TensorIndex tensor = piece.tensor;
    JobState& job = tables.JobOf(tables.tensors[tensor]);
    FinishFreed(tables, flight, result);
    if (result.outcome == TransferOutcome::kWindowFault) ReportWindowFault(tables, job, kNoPiece);
    return;
  }
  TIER_CHECK(tables.tensors[piece.tensor].transfer_count != 0, "tensor of piece {}", Value(flight.piece));
  --tables.tensors.Edit(piece.tensor).transfer_count;
  if (flight.direction == Direction::kWrite) {
    FinishWrite(tables, flight, result);
  } else {
    FinishRead(tables, flight, result);
  }
}

void TakeResult(Tables& tables, const TransferResult& result) {
  if ((result.cookie & kMoveCookie) != 0) return TakeMoveResult(tables, result);
  const FlightIndex index{static_cast<uint32_t>(result.cookie)};
  TIER_CHECK(tables.flights.IsStarted(index), "result for transfer {}", result.cookie);
  const Flight flight = tables.flights[index];
  NoteEnded(tables, flight, result);  // First: what failed goes elsewhere.
  FinishTransfer(tables, index, flight, result);
}

// A queued read of a device that answers no more.
void FailQueued(Tables& tables, FlightIndex index) {
  const Flight flight = tables.flights[index];
  tables.flights.TakeQueued(index);
  EndFlight(tables, index);
  const Piece& piece = tables.pieces[flight.piece];
  const Tensor& tensor = tables.tensors[piece.tensor];
  Refusal refusal{.code = Code::kIoError};
  refusal.record = {.tensor = tensor.id, .requested = uint64_t{piece.number} * kBlockSize};
  refusal.detail = fmt::format(
      "reading tensor {:#x} at byte {} failed: {}; the copy is kept, asking again reads it again", tensor.id,
      uint64_t{piece.number} * kBlockSize, tables.devices.UnreadableReason(flight.extent.device));
  std::vector<uint64_t> waiters = tables.waits.ReadersAt(piece);
  --tables.tensors.Edit(piece.tensor).transfer_count;
  RevertToSsd(tables, flight.piece);
  tables.reports.Add(FailedRead{std::move(waiters), tables.RefOf(piece.tensor), piece.number, std::move(refusal)});
  tables.turn.NoteProgress();
}

// The port has a place for the read.
bool PortTakes(const Tables& tables, const Flight& read) {
  const storage::TransferPort& port = tables.ports.transfers;
  if (port.inflight() >= port.inflight_max()) return false;
  if (read.priority == ReadPriority::kDemand) return TakesRead(tables, read.extent.device);
  return TakesReadAhead(tables, read.extent.device, read.priority == ReadPriority::kPrefetch ? read.job : kNoJob);
}

enum class Started : uint8_t { kAllThatFit, kNoWorkLeft };

// Hands queued reads of this priority to the port, `most` at most, and takes freed ones out of the queue.
Started StartReadsOf(Tables& tables, ReadPriority priority, uint32_t most) {
  while (const std::optional<FlightIndex> index = tables.flights.NextQueued(priority)) {
    const PieceId piece = tables.flights[*index].piece;
    if (tables.pieces[piece].copies == Copies::kFreed) {
      if (!tables.work.TrySpend(kFreeCost)) {
        tables.turn.NoteProgress();
        return Started::kNoWorkLeft;
      }
      tables.flights.TakeQueued(*index);
      EndFlight(tables, *index);
      FinishFreedPiece(tables, piece);
      continue;
    }
    const uint16_t device = tables.flights[*index].extent.device;
    if (!tables.devices.IsReadable(device)) {
      if (!tables.work.TrySpend(kFreeCost)) {
        tables.turn.NoteProgress();
        return Started::kNoWorkLeft;
      }
      FailQueued(tables, *index);
      continue;
    }
    if (most == 0 || !PortTakes(tables, tables.flights[*index])) break;
    --most;
    tables.flights.TakeQueued(*index);
    Hand(tables, *index);
  }
  return Started::kAllThatFit;
}

// Transfers ended: those that found the port full may look again.
void WakePortWaiters(Tables& tables) {
  tables.jobs.TakePortWanted(&tables.scratch.port_jobs);
  for (JobState* job : tables.scratch.port_jobs) {
    tables.jobs.NeedMaintenance(*job);
    tables.waits.OnWrite(*job);
    tables.waits.OnRoom(*job);
  }
}

}  // namespace

void StartRead(Tables& tables, PieceId id, ReadPriority priority) {
  Piece& piece = tables.pieces.Edit(id);
  TIER_CHECK(piece.has(kReserved) && piece.ssd_run, "piece {} has {} pages of room", Value(id), piece.ram.pages);
  JobState& job = tables.JobOf(piece);
  const FlightIndex index = AddFlight(
      tables,
      {.piece = id, .extent = piece.extent(), .direction = Direction::kRead, .priority = priority, .job = job.index});
  job.transfers.StartRead(piece.ram.pages, priority);
  piece.clear(kReserved);
  SetState(tables, id, {Copies::kSsd, Activity::kReadingIn});
  tables.flights.Queue(index);
}

void PromoteRead(Tables& tables, PieceId id) {
  const std::optional<ReadPriority> from = tables.flights.Promote(id);
  if (!from) return;
  const Piece& piece = tables.pieces[id];
  tables.JobOf(piece).transfers.PromoteRead(piece.ram.pages, *from);
  tables.turn.NoteProgress();
}

bool CanStartWrite(Tables& tables, JobState& job) {
  if (tables.turn.now() < tables.jobs.write_retry_at(job)) return false;  // Retried at that moment.
  const uint32_t inflight_max = tables.ports.transfers.inflight_max();
  const uint32_t writes_max = WritesMax(tables);
  const uint32_t rivals = std::max(tables.jobs.port_rivals(), 1u);
  // Who is beyond its part has a write in flight, whose end wakes it.
  const storage::ExtentStore& extents = tables.ports.extents;
  const bool later = !extents.AnyOpen() && extents.AnyShut();  // Where none is either, StartWrite says why.
  const bool room = !later && tables.ports.transfers.inflight() < inflight_max &&
                    tables.flights.writes() + tables.move.writes() < writes_max &&
                    job.transfers.writes() < (writes_max + rivals - 1) / rivals + tables.devices.stuck_writes();
  if (!room) tables.jobs.WantPort(job);
  return room;
}

namespace {

// The next turn looks again.
bool RetryNextTurn(Tables& tables, JobState& job) {
  tables.jobs.RetryWritesAt(job, tables.turn.now());
  tables.turn.NoteProgress();
  return false;
}

// There is no extent for the piece. Always false.
bool PutOffWrite(Tables& tables, PieceId id, WriteFor purpose, Error error) {
  const Piece& piece = tables.pieces[id];
  const Tensor& tensor = tables.tensors[piece.tensor];
  JobState& job = tables.JobOf(tensor);
  const auto pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  const storage::ExtentStore& extents = tables.ports.extents;
  if (extents.RoomComes()) return RetryNextTurn(tables, job);  // The end of this turn frees some.
  if (extents.RoomBehindShut(pages)) {
    tables.jobs.WantPort(job);
    return false;
  }
  if (purpose != WriteFor::kRead && purpose != WriteFor::kRequest) return false;
  if (purpose == WriteFor::kRead && GiveUpSecondCopies(tables, pages)) return RetryNextTurn(tables, job);
  RetryLater(tables, job,
             {error.code, tensor.id,
              fmt::format("writing tensor {:#x} at byte {}: {}", tensor.id, uint64_t{piece.number} * kBlockSize,
                          error.message)});
  return false;
}

}  // namespace

bool StartWrite(Tables& tables, PieceId id, WriteFor purpose) {
  Piece& piece = tables.pieces.Edit(id);
  const Tensor& tensor = tables.tensors[piece.tensor];
  JobState& job = tables.JobOf(tensor);
  TIER_CHECK(piece.ram && piece.activity == Activity::kNone, "piece {} is {}", Value(id), ActivityName(piece.activity));
  const uint32_t pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  if (tables.ports.extents.WouldScatter(pages) && !tables.work.TrySpend(pages)) return RetryNextTurn(tables, job);
  const auto last = purpose == WriteFor::kRead ? storage::LastBlock::kTake : storage::LastBlock::kKeep;
  Result<storage::Extent> extent = tables.ports.extents.Allocate(pages, last);
  if (!extent) return PutOffWrite(tables, id, purpose, std::move(extent.error()));
  TIER_CHECK(extent->run.pages == pages, "asked {} pages, got {}", pages, extent->run.pages);
  const FlightIndex index = AddFlight(tables, {.piece = id,
                                               .extent = *extent,
                                               .direction = Direction::kWrite,
                                               .write_purpose = PurposeOf(purpose),
                                               .job = job.index});
  tables.write_budget.Note(extent->run.size_bytes(), tables.turn.now());
  job.transfers.StartWrite(piece.copies == Copies::kRam ? piece.ram.pages : 0);
  if (piece.copies == Copies::kRamSsd) {
    SetState(tables, id, {Copies::kRamSsd, Activity::kDraining});
  } else {
    SetState(tables, id, {Copies::kRam, Activity::kWritingOut});
  }
  Hand(tables, index);
  return true;
}

void StartQueuedReads(Tables& tables) {
  if (tables.flights.queue_empty()) return;
  // One read ahead of need is always under way, or demand without end would hold up what was announced, and the memory
  // that it is given.
  const bool background_first = tables.turn.number() % 2 != 0;
  const auto one = background_first ? ReadPriority::kBackground : ReadPriority::kPrefetch;
  const auto other = background_first ? ReadPriority::kPrefetch : ReadPriority::kBackground;
  for (const ReadPriority priority : {one, other}) {
    if (tables.flights.reading_ahead_pages() != tables.devices.stuck_ahead_pages()) break;
    if (StartReadsOf(tables, priority, 1) == Started::kNoWorkLeft) return;
  }
  for (const ReadPriority priority : kReadPriorities) {
    if (StartReadsOf(tables, priority, UINT32_MAX) == Started::kNoWorkLeft) return;
  }
}

void AddWindowFault(Tables& tables, JobState& job, PieceId id) {
  std::string place;
  if (id != kNoPiece) {
    const Piece& piece = tables.pieces[id];
    place =
        fmt::format(" (tensor {:#x} at byte {})", tables.tensors[piece.tensor].id, uint64_t{piece.number} * kBlockSize);
  }
  tables.reports.Add(WindowFault{
      &job, fmt::format("memory of a window of job {} could not be touched{}: one of its processes took it away "
                        "(punched a hole or truncated); all sessions of the job end",
                        job.key, place)});
}

bool TakeResults(Tables& tables) {
  std::vector<TransferResult>& results = tables.scratch.results;
  results.clear();
  tables.ports.transfers.Poll(&results);
  for (const TransferResult& result : results) TakeResult(tables, result);
  WatchDevices(tables);
  const bool opened = tables.devices.TakeOpened();
  if (results.empty() && !opened) return false;
  if (opened) tables.jobs.RetryWritesNow(tables.turn.now());
  WakePortWaiters(tables);
  return true;
}

}  // namespace tier::tiering
