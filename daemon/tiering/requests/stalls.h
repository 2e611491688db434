// Stalls of requests: what a request that waits is waiting for, as its places in the WaitTable tell, and which of them
// waited long enough to be kept. Those that could go on, and that the work of a turn does not reach, are the
// WaitTable's to note (BeginTurn). Time passes from turn to turn: what begins and ends within one took none. Engine
// thread only.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// It was tried and waits on. REQUIRES: the WaitTable says where, or it is ready.
void NoteWait(Tables& tables, Waiter& waiter);
// It ends with this code: kept, if it waited for EngineOptions::stall_threshold or longer. REQUIRES: its session is not
// ending.
void RecordStall(Tables& tables, Waiter& waiter, Code code);
// Those that wait for so long already, and those that did. No stalls: no such job.
StallList ListStalls(const Tables& tables, JobId id, base::TimePoint now);

}  // namespace tier::tiering
