// See quarantine.h.
#include "daemon/tiering/durability/quarantine.h"

#include <span>
#include <vector>

namespace tier::tiering {

void LoadQuarantine(Tables& tables) {
  if (tables.ports.manifests == nullptr) return;
  for (uint16_t device = 0; device < tables.ports.extents.device_count(); ++device) {
    for (const base::PageRun place : tables.ports.manifests->Quarantined(device)) {
      tables.ports.extents.Quarantine(device, place);
    }
  }
  SaveQuarantine(tables);
}

void SaveQuarantine(Tables& tables) {
  storage::ExtentStore& extents = tables.ports.extents;
  if (!extents.any_quarantine_change()) return;
  for (const uint16_t device : extents.TakeQuarantineChanges()) {
    if (tables.ports.manifests == nullptr) continue;
    const std::span<const base::PageRun> places = extents.quarantined(device);
    tables.ports.manifests->StartQuarantine(device, {places.begin(), places.end()});
  }
}

void RetryQuarantined(Tables& tables, uint16_t device) {
  tables.ports.extents.RetryQuarantined(device);
  tables.devices.NoteOpened();  // There is more room now.
}

}  // namespace tier::tiering
