// Everything: flushes, drops and persists that name no tensor, and so mean all there are. Engine thread only.
//
// A namespace may hold millions of tensors, and such a request is one entry of a ring: it is listed as far as the
// turn's looks reach, with the session's cursor in the namespace, and a session has one list at a time: its next such
// requests wait empty. What is created meanwhile stands before the cursor: the list ends.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Tensors of a drop that are listed before they are gone through: then the next ones.
inline constexpr size_t kDropPartMax = 4096;

inline constexpr size_t kFlushTensorsMax = 1u << 22;

// Goes on with the waiter's list. Ready: its items can be worked on, all of them or, of a drop, some. A waiter that
// named its tensors is ready. It never finishes the request.
Outcome Enumerate(Tables& tables, Waiter& waiter, Listing* listing);
// What a drop has listed was gone through: true if there is more to list.
bool EnumerateNextPart(Waiter& waiter, ScanWait* scan);
// The waiter goes: the session's next one may list.
void EndEnumeration(Tables& tables, SessionState& session, const Waiter& waiter);

}  // namespace tier::tiering
