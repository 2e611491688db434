// Transfers: pieces on their way to and from devices, from the decision to the result. Engine thread only.
//
// A read is decided on as soon as it has room, and queues here for the port: reads that a request waits for come before
// prefetches, and these before what the daemon moves of its own accord. A write is decided on only when the port has a
// place for it, so that a piece that is freed before is never written. Invariant: tensor.transfer_count = flights
// of its pieces; flights that the port does not have are in the FlightTable's queue.
#pragma once

#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

inline constexpr base::Duration kWriteRetryMin = std::chrono::milliseconds(5);
inline constexpr base::Duration kWriteRetryMax = std::chrono::seconds(2);

// REQUIRES: on SSD only, with room given.
void StartRead(Tables& tables, PieceId id, ReadPriority priority);
// A request waits for the piece: if its read is queued behind others' demand, it is no longer.
void PromoteRead(Tables& tables, PieceId id);
// False: not now. A job that finds the port full is called again when the port has room, whichever job's transfers fill
// it.
bool CanStartWrite(Tables& tables, JobState& job);
// What a write is for: a full tier keeps its last block for requests that read what lies on SSD.
enum class WriteFor : uint8_t {
  kRead,        // Such a request waits for the piece's room. Copies on SSD of pieces in RAM are given up for it.
  kRequest,     // Another one waits for that, or for the piece to be on SSD.
  kAhead,       // Of room that no request waits for yet. Keeps to the budget of writes (tables/write_budget.h), …
  kBehind,      // … and so does this: of no room, it may be needed later.
  kHandOver,    // Of a window that another job, or the host, is owed (memory/emptying.h): it waits for no budget.
  kBackground,  // The piece leaves a device that is drained.
};
// Writes a dirty piece to a new extent, or a clean piece on a draining device to an extent elsewhere. False: there is
// no room on SSD. Where a request waits the job's write_failure says so, unless the end of this turn frees some: then
// the next turn tries again.
bool StartWrite(Tables& tables, PieceId id, WriteFor purpose);
// Hands queued reads to the port as far as it takes them.
void StartQueuedReads(Tables& tables);
// A client took memory of one of the job's windows away, where the piece was (kNoPiece: where one was that is freed).
void AddWindowFault(Tables& tables, JobState& job, PieceId id);
// Takes the results of ended transfers, and sees what they say of their devices. Returns whether there were any, or a
// device takes extents again.
bool TakeResults(Tables& tables);

}  // namespace tier::tiering
