// See devices.h.
#include "daemon/tiering/transfers/devices.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace tier::tiering {
namespace {

using storage::DeviceState;
using storage::Direction;
using storage::TransferOutcome;

// Of `all` places of the port. So that a device that hangs leaves places to the others, and faster ones take more.
uint32_t PartOf(const Tables& tables, uint32_t all) {
  uint32_t present = 0;
  for (uint16_t device = 0; device < tables.devices.count(); ++device) {
    present += tables.devices[device].away || tables.drain.drains(device) ? 0 : 1;
  }
  present = std::max(present, 1u);
  return (all + present - 1) / present;
}

storage::Shut ShutOf(const Tables& tables, const DeviceEntry& entry) {
  if (!entry.health.TakesWrites(tables.turn.now())) return storage::Shut::kFailing;
  return entry.writes >= PartOf(tables, WritesMax(tables)) ? storage::Shut::kBusy : storage::Shut::kOpen;
}

// Tells the ExtentStore what is known now.
void Tell(Tables& tables, uint16_t device) {
  DeviceEntry& entry = tables.devices.Edit(device);
  storage::ExtentStore& extents = tables.ports.extents;
  const bool away = IsAway(entry.health.state());
  if (away != entry.away) {
    entry.away = away;
    extents.SetAway(device, away);
    if (away) extents.EndDoubts(device, storage::Doubt::kOfDevice);
    tables.devices.NoteOpened();  // Who waited for it is to be refused, or served by others.
  }
  const bool reads_fail = entry.health.reads_fail();
  if (std::exchange(entry.reads_fail, reads_fail) && !reads_fail) tables.devices.NoteOpened();
  const storage::Shut shut = ShutOf(tables, entry);
  if (shut == entry.shut) return;
  entry.shut = shut;
  extents.SetShut(device, shut);
  if (shut == storage::Shut::kOpen) tables.devices.NoteOpened();
}

bool ReadsAhead(const Flight& flight) {
  return flight.direction == Direction::kRead && flight.priority != ReadPriority::kDemand;
}

// errno of what the device did wrong; 0: nothing.
int ErrorOf(const storage::TransferResult& result) {
  const bool failed = result.outcome == TransferOutcome::kDeviceError || result.outcome == TransferOutcome::kNoSpace;
  return failed ? std::max(result.error_number, 1) : 0;
}

}  // namespace

uint32_t WritesMax(const Tables& tables) {
  const uint32_t inflight_max = tables.ports.transfers.inflight_max();
  return std::max(1u, inflight_max - inflight_max / kReadShareDivisor);
}

storage::Purpose PurposeOf(const Flight& flight) {
  if (flight.direction == Direction::kWrite) return flight.write_purpose;
  switch (flight.priority) {
    case ReadPriority::kDemand: return storage::Purpose::kDemand;
    case ReadPriority::kPrefetch: return storage::Purpose::kAhead;
    case ReadPriority::kBackground: break;
  }
  return storage::Purpose::kBackground;
}

void NoteStarted(Tables& tables, const Flight& flight) {
  DeviceEntry& entry = tables.devices.Edit(flight.extent.device);
  entry.health.OnStarted(flight.direction, tables.turn.now());
  if (ReadsAhead(flight)) entry.reading_ahead_pages += flight.extent.run.pages;
  ++(flight.direction == Direction::kWrite ? entry.writes : entry.reads);
  if (flight.direction == Direction::kWrite) {
    Tell(tables, flight.extent.device);
  } else if (!ReadsAhead(flight)) {
    entry.demand.Note(flight.job, tables.turn.now());
  }
}

void NoteEnded(Tables& tables, const Flight& flight, const storage::TransferResult& result) {
  const uint16_t device = flight.extent.device;
  const Direction direction = flight.direction;
  DeviceEntry& entry = tables.devices.Edit(device);
  uint32_t& under_way = direction == Direction::kWrite ? entry.writes : entry.reads;
  TIER_CHECK(under_way != 0, "a transfer of device {} ended, none was under way", device);
  --under_way;
  if (ReadsAhead(flight)) entry.reading_ahead_pages -= flight.extent.run.pages;
  if (result.outcome == TransferOutcome::kWindowFault) {
    entry.health.OnEndedUnjudged(direction, tables.turn.now());
  } else {
    entry.health.OnEnded(direction, ErrorOf(result), tables.turn.now());
  }
  const bool written = direction == Direction::kWrite && result.outcome == TransferOutcome::kDone;
  if (written) tables.ports.extents.EndDoubts(device, storage::Doubt::kOfPlaces);
  Tell(tables, device);
}

void GiveBackUnwritten(Tables& tables, const storage::Extent& extent, const storage::TransferResult& result) {
  if (result.outcome == TransferOutcome::kDone) tables.ports.extents.NoteWritten(extent);
  if (result.outcome == TransferOutcome::kDeviceError || result.outcome == TransferOutcome::kNoSpace) {
    tables.ports.extents.SetInDoubt(extent, storage::MayBeOfAPlace(result.error_number), result.failed_at);
  } else {
    tables.ports.extents.Free(extent);
  }
}

void WatchDevices(Tables& tables) {
  const base::TimePoint now = tables.turn.now();
  std::vector<storage::ProbeResult>& probed = tables.scratch.probed;
  probed.clear();
  if (tables.devices.any_probe()) tables.ports.transfers.TakeProbed(&probed);
  for (const storage::ProbeResult& result : probed) {
    tables.devices.EndProbe();
    tables.devices.Edit(result.device).health.OnProbeEnded(result.error_number, now);
    tables.turn.NoteProgress();
  }
  for (uint16_t device = 0; device < tables.devices.count(); ++device) {
    DeviceEntry& entry = tables.devices.Edit(device);
    storage::DeviceHealth& health = entry.health;
    if (health.quiet() && entry.shut == storage::Shut::kOpen && !entry.away) continue;
    health.OnTime(now);
    if (health.ProbeDue(now)) {
      tables.devices.StartProbe();
      health.OnProbeStarted(now);
      tables.ports.transfers.Probe(device);
    }
    Tell(tables, device);
  }
}

bool TakesRead(const Tables& tables, uint16_t device) {
  return tables.devices[device].reads < PartOf(tables, tables.ports.transfers.inflight_max());
}

bool TakesReadAhead(const Tables& tables, uint16_t device, JobIndex job) {
  const DeviceEntry& entry = tables.devices[device];
  const bool alone = job != kNoJob && !entry.demand.ByAnother(job, tables.turn.now(), kAloneAfter);
  const uint64_t most = alone ? kReadAheadAlonePagesMax : kReadAheadPagesMax;
  return TakesRead(tables, device) && entry.reading_ahead_pages < most;
}

}  // namespace tier::tiering
