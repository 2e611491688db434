// See transfers.h.
#include "daemon/tiering/transfers/transfers.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "daemon/base/format_bytes.h"
#include "daemon/tiering/pieces/catalog.h"
#include "daemon/tiering/pieces/residency.h"

namespace tier::tiering {
namespace {

using storage::Direction;
using storage::TransferOutcome;
using storage::TransferResult;

void Hand(Core& core, FlightSlot slot) {
  const Flight& flight = core.flights[slot];
  const Piece& piece = core.pieces[flight.piece];
  const Tensor& tensor = core.tensors[piece.tensor];
  TIER_CHECK(core.ports.transfers.inflight() < core.ports.transfers.inflight_max(), "{} transfers in flight",
             core.ports.transfers.inflight());
  core.flights.Start(slot);
  const uint64_t begin = uint64_t{piece.number} * kBlockSize;
  TIER_CHECK(begin < tensor.size, "piece {} begins at {} of {}", piece.number, begin, tensor.size);
  TIER_CHECK(piece.ram.pages >= flight.extent.run.pages, "{} pages of RAM for {} on SSD", piece.ram.pages,
             flight.extent.run.pages);
  core.ports.transfers.Start({.cookie = static_cast<uint64_t>(slot),
                              .direction = flight.direction,
                              .extent = flight.extent,
                              .window = core.windows.WindowOf(piece.ram),
                              .memory = core.windows.AddressOf(piece.ram),
                              .length = static_cast<uint32_t>(std::min(kBlockSize, tensor.size - begin)),
                              .crc = piece.crc});
}

FlightSlot AddFlight(Core& core, const Flight& flight) {
  const FlightSlot slot = core.flights.Add(flight);
  Tensor& tensor = core.tensors[core.pieces[flight.piece].tensor];
  ++tensor.transfer_count;
  ++tensor.job->transfer_count;
  return slot;
}

void EndFlight(Core& core, FlightSlot slot) {
  const Flight flight = core.flights.Remove(slot);
  const Piece& piece = core.pieces[flight.piece];
  JobState& job = core.JobOf(piece);
  TIER_CHECK(job.transfer_count != 0, "job {} has no transfers", static_cast<uint64_t>(job.id));
  --job.transfer_count;
  if (flight.direction == Direction::kWrite) {
    const uint64_t writing = piece.activity == Activity::kWritingOut ? piece.ram.pages : 0;
    TIER_CHECK(job.writing_pages >= writing, "pages {} of {}", writing, job.writing_pages);
    job.writing_pages -= writing;
    TIER_CHECK(job.writes_inflight != 0, "job {} has no writes", static_cast<uint64_t>(job.id));
    --job.writes_inflight;
  } else {
    TIER_CHECK(job.reading_pages >= piece.ram.pages, "pages {} of {}", piece.ram.pages, job.reading_pages);
    job.reading_pages -= piece.ram.pages;
    TIER_CHECK(!flight.prefetch || job.prefetching_pages >= piece.ram.pages, "pages {} of {}", piece.ram.pages,
               job.prefetching_pages);
    if (flight.prefetch) job.prefetching_pages -= piece.ram.pages;
  }
  core.waits.OnWrite(job);
  core.waits.OnRoom(job);
}

std::string Place(const Tensor& tensor, uint32_t number, const storage::Extent& extent, const TransferResult& result) {
  return fmt::format("tensor {:#x} at byte {} on device {} at byte {}", tensor.id, uint64_t{number} * kBlockSize,
                     extent.device, result.device_offset);
}

void RetryLater(Core& core, JobState& job) {
  ++job.write_failure_count;
  const base::Duration backoff = kWriteRetryMin * (1u << std::min(job.write_backoff, 9u));
  core.jobs.RetryWritesAt(job, core.now + std::min(backoff, kWriteRetryMax));
  ++job.write_backoff;
}

void FailWrite(Core& core, PieceId id, const Flight& flight, const TransferResult& result) {
  const Piece& piece = core.pieces[id];
  const Tensor& tensor = core.tensors[piece.tensor];
  JobState& job = *tensor.job;
  const bool device = result.outcome == TransferOutcome::kDeviceError;
  job.write_failure = {
      .code = device ? Code::kIoError : Code::kNoSpace,
      .tensor = tensor.id,
      .message = fmt::format("writing {} failed: {}; the RAM copy is kept and written again elsewhere",
                             Place(tensor, piece.number, flight.extent, result), std::strerror(result.error_number))};
  RetryLater(core, job);
}

// A transfer could not touch a window of this job: a client of it took the memory away. `id`: the piece, if it still is
// one.
void ReportWindowFault(Core& core, JobState& job, PieceId id) {
  std::string place;
  if (id != kNoPiece) {
    const Piece& piece = core.pieces[id];
    const TensorSlot tensor = piece.tensor;
    place = fmt::format(" (tensor {:#x} at byte {})", core.tensors[tensor].id, uint64_t{piece.number} * kBlockSize);
    switch (piece.activity) {
      case Activity::kWritingOut:
        SetState(core, id, {Copies::kTorn, Activity::kNone});
        if (!core.tensors[tensor].has(kDetached)) AddTear(core, tensor);
        break;
      case Activity::kReadingIn: RevertToSsd(core, id); break;
      default: SetState(core, id, {piece.copies, Activity::kNone});
    }
  }
  core.reports.Add(WindowFault{
      &job, fmt::format("memory of a window of job {} could not be touched{}: one of its processes took it away "
                        "(punched a hole or truncated); all sessions of the job end",
                        job.options.key, place)});
}

void FinishWrite(Core& core, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = core.pieces[id];
  JobState& job = core.JobOf(piece);
  const bool draining = piece.activity == Activity::kDraining;
  if (result.outcome == TransferOutcome::kDone) {
    if (draining) DropExtent(core, id);
    GiveExtent(core, id, flight.extent);
    piece.crc = result.crc;
    piece.ssd_generation = piece.generation;
    piece.set(kFreshExtent);
    job.counters.swap_out_bytes += flight.extent.run.size_bytes();
    job.write_backoff = 0;
    SetState(core, id, {Copies::kRamSsd, Activity::kNone});
    return;
  }
  if (result.outcome == TransferOutcome::kDeviceError) {
    core.ports.extents.Quarantine(flight.extent);
  } else {
    core.ports.extents.Free(flight.extent);
  }
  if (result.outcome == TransferOutcome::kWindowFault) {
    ReportWindowFault(core, job, id);
    return;
  }
  SetState(core, id, {piece.copies, Activity::kNone});
  FailWrite(core, id, flight, result);
}

void FailRead(Core& core, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = core.pieces[id];
  const Tensor& tensor = core.tensors[piece.tensor];
  const std::string place = Place(tensor, piece.number, flight.extent, result);
  std::vector<uint64_t> waiters = core.waits.ReadersAt(piece);
  RevertToSsd(core, id);
  if (result.outcome == TransferOutcome::kCorrupt) {
    piece.set(kCorrupt);
    return;  // Waiters learn it when they look at the piece again.
  }
  Refusal refusal{.code = Code::kIoError};
  refusal.record = {.tensor = tensor.id, .requested = uint64_t{piece.number} * kBlockSize};
  if (result.outcome == TransferOutcome::kNoSpace || result.outcome == TransferOutcome::kDeviceError) {
    piece.set(kBadExtent);
    refusal.detail = fmt::format("reading {} failed: {}; the copy is kept, asking again reads it again", place,
                                 std::strerror(result.error_number));
  }
  core.reports.Add(FailedRead{std::move(waiters), core.RefOf(piece.tensor), piece.number, std::move(refusal)});
}

void FinishRead(Core& core, const Flight& flight, const TransferResult& result) {
  const PieceId id = flight.piece;
  Piece& piece = core.pieces[id];
  JobState& job = core.JobOf(piece);
  if (result.outcome == TransferOutcome::kWindowFault) {
    ReportWindowFault(core, job, id);
    return;
  }
  if (result.outcome != TransferOutcome::kDone) {
    FailRead(core, flight, result);
    return;
  }
  job.counters.swap_in_bytes += flight.extent.run.size_bytes();
  piece.clear(kBadExtent | kFreshExtent);
  if (flight.prefetch) {
    piece.set(kPrefetched);
    job.counters.prefetched_bytes += flight.extent.run.size_bytes();
  }
  job.policy->Use(id);
  SetState(core, id, {Copies::kRamSsd, Activity::kNone});
}

// The piece was freed meanwhile: what the transfer used goes now.
void FinishFreed(Core& core, const Flight& flight, TransferOutcome outcome) {
  if (flight.direction == Direction::kWrite) {
    if (outcome == TransferOutcome::kDeviceError) {
      core.ports.extents.Quarantine(flight.extent);
    } else {
      core.ports.extents.Free(flight.extent);
    }
  } else if (outcome == TransferOutcome::kDeviceError) {
    core.pieces[flight.piece].set(kBadExtent);
  }
  FinishFreedPiece(core, flight.piece);
}

void TakeResult(Core& core, const TransferResult& result) {
  const FlightSlot slot{static_cast<uint32_t>(result.cookie)};
  TIER_CHECK(core.flights.IsStarted(slot), "result for transfer {}", result.cookie);
  const Flight flight = core.flights[slot];
  EndFlight(core, slot);
  Piece& piece = core.pieces[flight.piece];
  if (piece.copies == Copies::kFreed) {
    const TensorSlot tensor = piece.tensor;
    JobState& job = *core.tensors[tensor].job;
    FinishFreed(core, flight, result.outcome);
    if (result.outcome == TransferOutcome::kWindowFault) ReportWindowFault(core, job, kNoPiece);
    return;
  }
  TIER_CHECK(core.tensors[piece.tensor].transfer_count != 0, "tensor of piece {}", Value(flight.piece));
  --core.tensors[piece.tensor].transfer_count;
  if (flight.direction == Direction::kWrite) {
    FinishWrite(core, flight, result);
  } else {
    FinishRead(core, flight, result);
  }
}

// Transfers ended: those that found the port full may look again.
void WakePortWaiters(Core& core) {
  core.jobs.TakePortWanted(&core.port_jobs);
  core.port_rivals = static_cast<uint32_t>(core.port_jobs.size());
  for (JobState* job : core.port_jobs) {
    core.jobs.NeedMaintenance(*job);
    core.waits.OnWrite(*job);
    core.waits.OnRoom(*job);
  }
}

}  // namespace

void StartRead(Core& core, PieceId id, bool prefetch) {
  Piece& piece = core.pieces[id];
  TIER_CHECK(piece.has(kReserved) && piece.ssd_run, "piece {} has {} pages of room", Value(id), piece.ram.pages);
  JobState& job = core.JobOf(piece);
  const FlightSlot slot =
      AddFlight(core, {.piece = id, .extent = piece.extent(), .direction = Direction::kRead, .prefetch = prefetch});
  job.reading_pages += piece.ram.pages;
  if (prefetch) job.prefetching_pages += piece.ram.pages;
  piece.clear(kReserved);
  SetState(core, id, {Copies::kSsd, Activity::kReadingIn});
  core.flights.Queue(slot);
}

bool CanStartWrite(Core& core, JobState& job) {
  if (core.now < job.write_retry_at) return false;  // Pumped at that moment.
  const uint32_t inflight_max = core.ports.transfers.inflight_max();
  const uint32_t writes_max = std::max(1u, inflight_max - inflight_max / kReadShareDivisor);
  const uint32_t rivals = std::max(core.port_rivals, 1u);
  // Who is beyond its part has a write in flight, whose end wakes it.
  const bool room = core.ports.transfers.inflight() < inflight_max && core.flights.writes() < writes_max &&
                    job.writes_inflight < (writes_max + rivals - 1) / rivals;
  if (!room) core.jobs.WantPort(job);
  return room;
}

bool StartWrite(Core& core, PieceId id) {
  Piece& piece = core.pieces[id];
  const Tensor& tensor = core.tensors[piece.tensor];
  JobState& job = *tensor.job;
  TIER_CHECK(piece.ram && piece.activity == Activity::kNone, "piece {} is {}", Value(id), ActivityName(piece.activity));
  const uint32_t pages = static_cast<uint32_t>(PagesFor(tensor.piece_length(piece.number)));
  Result<storage::Extent> extent = core.ports.extents.Allocate(pages);
  if (!extent && core.ports.extents.RoomComes()) {
    core.jobs.RetryWritesAt(job, core.now);  // The end of this turn frees some: the next turn looks again.
    core.made_progress = true;
    return false;
  }
  if (!extent) {
    job.write_failure = {extent.error().code, tensor.id,
                         fmt::format("writing tensor {:#x} at byte {}: {}", tensor.id,
                                     uint64_t{piece.number} * kBlockSize, extent.error().message)};
    RetryLater(core, job);
    return false;
  }
  TIER_CHECK(extent->run.pages == pages, "asked {} pages, got {}", pages, extent->run.pages);
  const FlightSlot slot = AddFlight(core, {.piece = id, .extent = *extent, .direction = Direction::kWrite});
  ++job.writes_inflight;
  if (piece.copies == Copies::kRamSsd) {
    SetState(core, id, {Copies::kRamSsd, Activity::kDraining});
  } else {
    job.writing_pages += piece.ram.pages;
    SetState(core, id, {Copies::kRam, Activity::kWritingOut});
  }
  Hand(core, slot);
  return true;
}

void StartQueuedReads(Core& core) {
  const auto& port = core.ports.transfers;
  while (port.inflight() < port.inflight_max()) {
    const std::optional<FlightSlot> slot = core.flights.TakeQueued();
    if (!slot) return;
    const PieceId piece = core.flights[*slot].piece;
    if (core.pieces[piece].copies == Copies::kFreed) {
      EndFlight(core, *slot);
      FinishFreedPiece(core, piece);
    } else {
      Hand(core, *slot);
    }
  }
}

bool TakeResults(Core& core) {
  core.results.clear();
  core.ports.transfers.Poll(&core.results);
  for (const TransferResult& result : core.results) TakeResult(core, result);
  if (!core.results.empty()) WakePortWaiters(core);
  return !core.results.empty();
}

}  // namespace tier::tiering
