// See devices.h.
#include "daemon/tiering/transfers/devices.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

namespace tier::tiering {
namespace {

using storage::DeviceState;
using storage::Direction;
using storage::TransferOutcome;

bool IsAway(DeviceState state) { return state == DeviceState::kOffline || state == DeviceState::kGone; }

// So that one that hangs leaves places to the others, and faster ones take more.
uint32_t WritesMaxOf(const Tables& tables) {
  uint32_t present = 0;
  for (uint16_t device = 0; device < tables.devices.count(); ++device) present += tables.devices[device].away ? 0 : 1;
  present = std::max(present, 1u);
  return (WritesMax(tables) + present - 1) / present;
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
  const bool shut = !entry.health.TakesWrites(tables.turn.now()) || entry.writes >= WritesMaxOf(tables);
  if (shut == entry.shut) return;
  entry.shut = shut;
  extents.SetShut(device, shut);
  if (!shut) tables.devices.NoteOpened();
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

void NoteStarted(Tables& tables, uint16_t device, Direction direction) {
  DeviceEntry& entry = tables.devices.Edit(device);
  entry.health.OnStarted(direction, tables.turn.now());
  if (direction != Direction::kWrite) return;
  ++entry.writes;
  Tell(tables, device);
}

void NoteEnded(Tables& tables, uint16_t device, Direction direction, const storage::TransferResult& result) {
  DeviceEntry& entry = tables.devices.Edit(device);
  if (direction == Direction::kWrite) {
    TIER_CHECK(entry.writes != 0, "a write on device {} ended, none was under way", device);
    --entry.writes;
  }
  if (result.outcome == TransferOutcome::kWindowFault) {
    entry.health.OnEndedUnjudged(direction, tables.turn.now());
  } else {
    entry.health.OnEnded(direction, ErrorOf(result), tables.turn.now());
  }
  const bool written = direction == Direction::kWrite && result.outcome == TransferOutcome::kDone;
  if (written) tables.ports.extents.EndDoubts(device, storage::Doubt::kOfPlaces);
  Tell(tables, device);
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
    storage::DeviceHealth& health = tables.devices.Edit(device).health;
    if (health.quiet()) continue;
    health.OnTime(now);
    if (health.ProbeDue(now)) {
      tables.devices.StartProbe();
      health.OnProbeStarted(now);
      tables.ports.transfers.Probe(device);
    }
    Tell(tables, device);
  }
}

bool IsReadable(const Tables& tables, uint16_t device) { return tables.devices[device].health.TakesReads(); }

std::string UnreadableReason(const Tables& tables, uint16_t device) {
  const storage::DeviceHealth& health = tables.devices[device].health;
  return fmt::format("device {} is {} ({})", device, DeviceStateName(health.state()), health.ErrorText());
}

}  // namespace tier::tiering
