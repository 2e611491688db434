// MoveState: the manifest whose pieces are being moved off draining devices, one at a time, and the blocks of memory
// that these pieces go through. Engine thread only.
//
// The job of that manifest is not open, so its pieces have no records: each block says which piece is in it and what
// transfer is under way. Invariant: writes() = blocks that are being written; a block's `to` is live in the ExtentStore
// and named by nothing until the manifest's holds take it over.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/time.h"
#include "daemon/storage/extent.h"
#include "daemon/tiering/api/options.h"

namespace tier::tiering {

struct ManifestMove;  // durability/manifest_move.h

inline constexpr uint64_t kMoveCookie = uint64_t{1} << 63;  // Of transfers that have no piece. The rest is the block.

struct MoveBlock {
  enum class Stage : uint8_t {
    kFree,
    kReading,
    kRead,     // To be written.
    kWriting,  // To `to`.
    kWritten,
    kUnread,  // It could not be read, or not be written again and again: the piece stays where it is.
  };
  Stage stage = Stage::kFree;
  uint8_t failed_writes = 0;
  storage::Extent from;
  storage::Extent to;
  uint32_t length = 0;  // Bytes of content.
  uint32_t crc = 0;
  size_t piece = 0;  // Index in ManifestMove::moved.

  bool in_transfer() const { return stage == Stage::kReading || stage == Stage::kWriting; }
};

struct MoveState {
  enum class Stage : uint8_t { kIdle, kLoading, kSumming, kMoving, kTensors, kKeys, kSealing, kCommitting };
  Stage stage = Stage::kIdle;
  bool stopping = false;  // It is given up as soon as no transfer is under way.
  uint64_t cookie = 0;    // Of the load or commit that is at the store.
  uint64_t holds = 0;     // ManifestHolds::id of the manifest.
  std::string key;        // Of its job.
  std::shared_ptr<ManifestMove> manifest;
  std::array<MoveBlock, kMoveBlocks> blocks;
  bool announced = false;  // The transfer port knows the memory.

  uint64_t cursor = 0;      // Holds that were looked at last, for one to move.
  uint32_t drain = 0;       // Changes of the set of draining devices.
  base::TimePoint next_at;  // When a manifest to move, or room, is looked for again.

  bool under_way() const { return stage != Stage::kIdle; }
  uint32_t CountOf(MoveBlock::Stage wanted) const {
    return static_cast<uint32_t>(std::ranges::count(blocks, wanted, &MoveBlock::stage));
  }
  uint32_t writes() const { return stage == Stage::kMoving ? CountOf(MoveBlock::Stage::kWriting) : 0; }
  bool in_transfer() const { return std::ranges::any_of(blocks, &MoveBlock::in_transfer); }
};

}  // namespace tier::tiering
