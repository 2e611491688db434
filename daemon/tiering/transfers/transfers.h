// Transfers: pieces on their way to and from devices, from the decision to the result. Engine thread only.
//
// Reads are decided on as soon as they have room and queue here for the port; writes are only decided on when the port
// has a place for them, so that what is freed before its turn comes is never written. Invariant: tensor.transfer_count
// = flights of its pieces; flights that the port does not have stand in the FlightTable's queue.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Of the port's places, those that writes leave to reads.
inline constexpr uint32_t kReadShareDivisor = 4;
inline constexpr base::Duration kWriteRetryMin = std::chrono::milliseconds(5);
inline constexpr base::Duration kWriteRetryMax = std::chrono::seconds(2);

// REQUIRES: on SSD only, with room given.
void StartRead(Tables& tables, PieceId id, bool prefetch);
// False: not now. A job that finds the port full goes on when there is room, whosever transfers fill it.
bool CanStartWrite(Tables& tables, JobState& job);
// Writes a dirty piece to a new extent, or (clean, on a draining device) to another one. False: no room on SSD; the
// job's write_failure says so, unless the end of this turn frees some: then the next turn tries again.
bool StartWrite(Tables& tables, PieceId id);
// Hands queued reads to the port as far as it takes them.
void StartQueuedReads(Tables& tables);
// Takes results. Returns whether there were any.
bool TakeResults(Tables& tables);

}  // namespace tier::tiering
