// LostManifests: manifests with extents on SSD devices that are missing. Nothing of their jobs can be read until the
// devices are back at a later start, and so nothing of them is replaced: a named job of that key is refused. What they
// have on the other devices stays theirs. Engine thread only.
#pragma once

#include <string>

#include "daemon/tiering/api/engine_port.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// At start. Whether the list of extents of this stored manifest names a missing device: then it is set lost.
bool SetIfLost(Tables& tables, const std::string& key);
// A named job of this key may not be opened: what it persisted is lost, or may be, as its list of extents cannot be
// read and some device is missing. IO_ERROR with what brings it back.
Status RefuseLost(const Tables& tables, const std::string& key);
// As EnginePort::PurgeDevice.
Status StartPurge(Tables& tables, const std::string& uuid, EnginePort::Purged done);
// Whether the result answers a purge. If so, what it says is done.
bool TakePurged(Tables& tables, const storage::ManifestResult& result);

}  // namespace tier::tiering
