// Resolve: from the ids and ranges that a request names to tensors. Any field may hold any value. Engine thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The request names tensors of the job's shared namespace.
inline bool IsShared(const Request& request) { return (request.flags & proto::kFlagShared) != 0; }
// The tensors that the request creates are divided by ranks.
inline bool IsSharded(const Request& request) { return (request.flags & proto::kFlagSharded) != 0; }
// INVALID: the item's range does not lie in a tensor of that size.
Refusal BadRange(const proto::RequestItem& asked, uint64_t size);
// Finds what each item names and checks its range; fills tables.scratch.items. `ranges` = false: the whole tensor,
// whatever range the item holds. False: the request was refused, and answered.
bool ResolveItems(Tables& tables, SessionState& session, const Request& request, bool ranges);

}  // namespace tier::tiering
