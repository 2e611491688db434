// Gathering: blocks of a tensor, and the runs of a piece, move side by side. Engine thread only.
//
// A client that wants scattered blocks in one range of addresses needs a mapping of its kernel for each run of them,
// and may have so many of these only. Where they run short it asks for leases with proto::kFlagContiguous.
//
// Blocks are gathered in groups of kGroupBlocks, so that a tensor of any size is a few long runs after as many bounded
// steps. A group moves into a run of free blocks. Where there is none, one is cleared first: what lies in it moves to
// free blocks and holes elsewhere. A tail needs a mapping of its own in any case: only where it lies in several runs do
// these move behind one another, if a hole or a free block takes them.
//
// Nothing waits for what cannot be moved: pieces that others lease, or that are being written, stay where they are.
#pragma once

#include <span>

#include "daemon/tiering/memory/compaction.h"
#include "daemon/tiering/tables/tensor_range.h"

namespace tier::tiering {

// 64 MiB: some 6 ms of a worker, and 1 TiB in a quarter of the mappings that Linux allows by default.
inline constexpr uint32_t kGroupBlocks = 32;

// Some group of blocks, or some piece, of these ranges lies scattered in RAM.
bool LieScattered(const Tables& tables, std::span<const WaitItem> items);
// How often moves may be started for them: for each group, and some more as others may come in between.
uint32_t GathersMax(std::span<const WaitItem> items);
// Starts moves for the first group that can be gathered. REQUIRES: all tensors are alive.
Compacted GatherBlocks(Tables& tables, JobState& job, std::span<const WaitItem> items);

}  // namespace tier::tiering
