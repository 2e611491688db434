// Devices: what follows from how transfers end on a device: whether it takes extents, whether it is read, when it is
// probed, and what its failures mean for the places where they were seen. Engine thread only.
#pragma once

#include <cstdint>

#include "daemon/storage/transfer.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// Writes leave one in so many of the port's places to reads.
inline constexpr uint32_t kReadShareDivisor = 4;

// Of reads that no request waits for the port has at most so many pages of each device: what is asked for meanwhile
// waits behind no more …
inline constexpr uint64_t kReadAheadPagesMax = kPagesPerBlock;
// … and of a job's prefetches so many while no other job has waited for a read of the device for a time: one at a time
// waits behind all that is written.
inline constexpr uint64_t kReadAheadAlonePagesMax = 4 * kPagesPerBlock;
inline constexpr base::Duration kAloneAfter = std::chrono::seconds(10);

// The most writes that the port has at a time.
uint32_t WritesMax(const Tables& tables);
// What the port is told of it.
storage::Purpose PurposeOf(const Flight& flight);
// The port was handed a transfer of that device.
void NoteStarted(Tables& tables, const Flight& flight);
// It came back.
void NoteEnded(Tables& tables, const Flight& flight, const storage::TransferResult& result);
// The place of a write that failed, or that is not needed any more.
void GiveBackUnwritten(Tables& tables, const storage::Extent& extent, const storage::TransferResult& result);
// Once a turn, when results have been taken: sends and takes probes, and looks at what has become due.
void WatchDevices(Tables& tables);
// The device has a place for one more read …
bool TakesRead(const Tables& tables, uint16_t device);
// … that no request waits for. `job`: whose prefetch it is; kNoJob: it is none.
bool TakesReadAhead(const Tables& tables, uint16_t device, JobIndex job);

}  // namespace tier::tiering
