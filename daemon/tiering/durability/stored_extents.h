// At start: which extents the stored manifests name, and the taking of them out of the free space. A manifest that
// cannot be read has a list of its extents beside it (extent_list.h). Engine thread only.
#pragma once

#include <string>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// VERSION, CORRUPT or IO_ERROR: it cannot be read.
Result<Manifest> ReadManifest(const Tables& tables, const std::string& key);
// CORRUPT: some extent is of another tensor or manifest, or no place on a device. All others are taken: they may hold
// bytes that a repair needs.
Status TakeExtents(Tables& tables, const Manifest& manifest, ManifestHolds* holds);
// The same for a manifest that cannot be read. An error: the list cannot be read either, so nothing is known.
Status TakeListedExtents(Tables& tables, const std::string& key, ManifestHolds* holds);
// While a manifest's extents are unknown, any page may be one of them, and no device takes writes.
void CloseToUnknownExtents(Tables& tables);

}  // namespace tier::tiering
