// Enumeration: flushes, drops and persists that name no tensor, and so mean all tensors. Engine thread only.
//
// A namespace may hold millions of tensors, and such a request is one entry of a ring. So a turn lists as many of them
// as its work reaches, with the session's cursor in the namespace. A session has one such list at a time: its next such
// requests wait with an empty one. A tensor created meanwhile lies before the cursor, so the list ends.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// The most tensors of a drop that are listed at a time; the next ones are listed when these are done.
inline constexpr size_t kDropPartMax = 4096;

inline constexpr size_t kFlushTensorsMax = 1u << 22;

// Continues the waiter's list. kReady: its items can be worked on, all of them or, for a drop, some. A waiter that
// named its tensors is ready. It never finishes the request.
Outcome Enumerate(Tables& tables, Waiter& waiter, Listing* listing);
// The listed part of a drop is done. True: there is more to list.
bool EnumerateNextPart(Waiter& waiter, ScanWait* scan);
// The waiter ends: the session's next one may list.
void EndEnumeration(Tables& tables, SessionState& session, const Waiter& waiter);

}  // namespace tier::tiering
