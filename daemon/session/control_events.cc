// The events that ControlServer makes of what has changed in the engine's figures.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "daemon/base/check.h"
#include "daemon/base/counted.h"
#include "daemon/base/format_bytes.h"
#include "daemon/session/control_server.h"

namespace tier::session {

void ControlServer::EmitDevice(size_t device, const tiering::DeviceView& now) {
  TIER_CHECK(device < devices_seen_.size() && device < facts_.devices.size(), "device {} of {}", device,
             facts_.devices.size());
  const tiering::DeviceView seen = std::exchange(devices_seen_[device], now);
  const std::string& path = facts_.devices[device].path;
  const auto emit = [&](const char* kind, const std::string& what) {
    parts_.events.Emit(kind, nullptr, fmt::format("device {} ({}) {}", device, path, what));
  };
  if (now.state != seen.state) {
    emit("device", now.state == storage::DeviceState::kOnline
                       ? "is online again"
                       : fmt::format("is {}: {}", DeviceStateName(now.state), now.reason));
  }
  if (now.space.quarantined > seen.space.quarantined) {
    emit("io_error",
         fmt::format("failed twice at places of {}, which are not used until they are retried (tierctl device retry)",
                     base::FormatBytes(now.space.quarantined - seen.space.quarantined)));
  }
  if (now.failing && !seen.failing) {
    emit("device", "is failing: more of its places are quarantined than are written down; drain and replace it");
  }
  const storage::DeviceTraffic& traffic = now.traffic;
  if (traffic.errors > seen.traffic.errors) {
    emit("io_error", "failed " + base::Counted(traffic.errors - seen.traffic.errors, "transfer"));
  }
  if (now.draining && now.space.live == 0 && (!seen.draining || seen.space.live != 0)) {
    emit("drain", "is empty: it can be taken out of ssd.devices");
  }
  if (seen.drain_note.empty() && !now.drain_note.empty()) emit("drain", "is not empty yet: " + now.drain_note);
  // What the device had counted at the last look, the engine has charged to its job by now, if it is of one.
  uint64_t& told = corrupt_told_[device];
  if (seen.traffic.corrupt <= told) return;
  parts_.events.Emit("corrupt", nullptr,
                     fmt::format("{} of no open job came back from device {} ({}) with a wrong checksum",
                                 base::Counted(seen.traffic.corrupt - told, "piece"), device, path));
  told = seen.traffic.corrupt;
}

// By job, as one job alone speaks for a client that wrote to its memory, and several for the device.
void ControlServer::EmitCorrupt(const tiering::EngineSnapshot& snapshot) {
  std::map<std::pair<tiering::JobId, uint16_t>, uint64_t> charged;
  for (const tiering::CorruptPieces& pieces : snapshot.corrupt_pieces) {
    const uint16_t device = pieces.device;
    TIER_CHECK(device < corrupt_told_.size(), "device {} of {}", device, corrupt_told_.size());
    charged[{pieces.job, device}] = pieces.count;
    const auto known = corrupt_seen_.find({pieces.job, device});
    const uint64_t before = known == corrupt_seen_.end() ? 0 : known->second;
    // Fewer than before: the engine had dropped the job, and counts from 0 again.
    const uint64_t fresh = pieces.count < before ? pieces.count : pieces.count - before;
    const auto owner = ParseQualifiedName(pieces.key);
    if (fresh == 0 || !owner) continue;
    const Job ended{.uid = owner->first, .name = owner->second};
    const Job* const open = parts_.jobs.registry().Find(pieces.job);
    corrupt_told_[device] += fresh;
    parts_.events.Emit(
        "corrupt", open == nullptr ? &ended : open,
        fmt::format("{} of job '{}' of uid {} came back from device {} ({}) with a wrong checksum: "
                    "the device, or a client of the job that wrote to its memory meanwhile",
                    base::Counted(fresh, "piece"), ended.name, ended.uid, device, facts_.devices[device].path));
  }
  corrupt_seen_ = std::move(charged);
}

// The event tells of a change of the causes, not of their figures: a device with one more error is no news, and what
// becomes of another device has events of its own. Who shows what holds now is told each new text.
void ControlServer::EmitDegraded(const tiering::EngineSnapshot& snapshot) {
  std::array<bool, kDegradedCauses> causes{};
  std::string text;
  const DaemonDescription modes = Modes();
  Condition condition = ConditionOf(modes, snapshot);
  for (size_t i = 0; i < std::min(facts_.devices.size(), snapshot.devices.size()); ++i)
    condition.devices.push_back({.index = facts_.devices[i].index,
                                 .now = &snapshot.devices[i],
                                 .recent_faults = faults_[i].Recent(parts_.clock.Now())});
  for (const Degradation& each : DegradedBy(condition)) {
    TIER_CHECK(static_cast<size_t>(each.cause) < causes.size(), "cause {}", static_cast<size_t>(each.cause));
    causes[static_cast<size_t>(each.cause)] = true;
    text += (text.empty() ? "" : "; ") + each.text;
  }
  if (degraded_text_ != text) {
    degraded_text_ = text;
    if (parts_.on_degraded) parts_.on_degraded(text);
  }
  if (std::exchange(degraded_seen_, causes) == causes) return;
  text.empty() ? parts_.events.Emit("recovered", nullptr, "tierd is no longer degraded")
               : parts_.events.Emit("degraded", nullptr, text);
}

void ControlServer::EmitChanges() {
  if (parts_.events.watchers() == 0) return;
  TIER_CHECK(devices_seen_.size() == facts_.devices.size(), "{} of {}", devices_seen_.size(), facts_.devices.size());
  const auto figures = Figures();
  const tiering::EngineSnapshot& snapshot = *figures;
  for (const tiering::JobView& view : snapshot.jobs) {
    const Job* job = parts_.jobs.registry().Find(view.id);
    if (job == nullptr || view.counters.torn_count == 0 || snapshot.torn_count <= torn_seen_) continue;
    parts_.events.Emit(
        "torn", job, fmt::format("job '{}' has {}", job->name, base::Counted(view.counters.torn_count, "torn tensor")));
  }
  torn_seen_ = snapshot.torn_count;
  EmitCorrupt(snapshot);
  if (std::exchange(looked_at_, figures) != figures) {
    for (size_t i = 0; i < std::min(devices_seen_.size(), snapshot.devices.size()); ++i)
      EmitDevice(i, snapshot.devices[i]);
  }
  EmitDegraded(snapshot);
  if (snapshot.waiting_count > 0 && waiting_seen_ == 0) {
    parts_.events.Emit("pressure", nullptr,
                       fmt::format("{} for memory, SSD or leases",
                                   base::Counted(snapshot.waiting_count, "request waits", "requests wait")));
  }
  waiting_seen_ = snapshot.waiting_count;
}

}  // namespace tier::session
