// See device_work.h.
#include "daemon/tiering/durability/device_work.h"

#include <algorithm>

#include "daemon/tiering/durability/device_drain.h"
#include "daemon/tiering/durability/manifest_move.h"
#include "daemon/tiering/durability/ssd_compaction.h"

namespace tier::tiering {
namespace {

// Pieces of jobs, and those of manifests. Each may take all of the stage: the other comes first in every other turn.
void EmptyDevices(Tables& tables) {
  const bool manifests_first = tables.turn.number() % 2 == 0;
  if (manifests_first) MoveManifests(tables);
  if (tables.drain.any_device()) DrainDevices(tables);
  if (!manifests_first) MoveManifests(tables);
}

}  // namespace

void WorkOnDevices(Tables& tables) {
  if (tables.drain.any_device() || tables.move.under_way()) EmptyDevices(tables);
  CompactSsd(tables);
}

std::optional<base::TimePoint> NextDeviceWork(const Tables& tables) {
  std::optional<base::TimePoint> next = NextSsdCompaction(tables);
  if (!tables.drain.any_device()) return next;
  const base::TimePoint drain = std::min(tables.drain.next_at(), tables.move.next_at);
  return next ? std::min(*next, drain) : drain;
}

bool AnyDeviceWork(const Tables& tables) { return tables.drain.any_device() || tables.ssd_compaction.under_way(); }

}  // namespace tier::tiering
