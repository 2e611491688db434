// SsdCompactionState: which sparse blocks of which device are being cleared, and what has to leave them
// (durability/ssd_compaction.h). One device at a time. Engine thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "daemon/base/time.h"
#include "daemon/tiering/tables/piece_pass.h"

namespace tier::tiering {

struct SsdCompactionState {
  enum class Phase : uint8_t {
    kIdle,
    kCensus,    // It is being found out which blocks can be cleared.
    kClearing,  // They are closed to new extents.
    kMoving,
  };
  struct Candidate {
    uint32_t block = 0;
    uint32_t used = 0;     // Pages.
    uint32_t movable = 0;  // Of them, pages of pieces that can leave, as far as the census has come.
  };
  struct Scattered {
    PieceId piece = kNoPiece;
    uint64_t first_page = 0;  // Of its extent.
  };
  struct Device {
    uint64_t seen_bytes = 0;                    // ExtentStore::scattered_bytes, as far as that was acted on.
    std::optional<base::TimePoint> settled_at;  // There is more: its writes have ended by then, most likely.
    std::vector<Scattered> scattered;           // What a census met, in the order of pieces …
    base::TimePoint again_at;                   // … and when what of it is still there is stale.
    size_t stale = 0;                           // Were there the last time.
    base::Duration patience{};
    base::TimePoint rests_until;
    base::Duration rest{};  // Behind rounds in which nothing was to be had.
  };

  bool under_way() const { return phase != Phase::kIdle; }

  Phase phase = Phase::kIdle;
  uint16_t device = 0;
  PiecePass pass;
  std::vector<Candidate> candidates;  // In the order of their blocks; then those with least to move last.
  std::vector<PieceId> pieces;        // With pages in candidates; then those that are to leave.
  std::vector<Scattered> scattered;   // Met by this census.
  size_t next_piece = 0;              // Of `pieces`.
  uint64_t blocks = 0;                // Are to be cleared still …
  uint64_t begun = 0;                 // … and are being cleared.
  std::vector<PieceId> stale;         // Are to be in one run, in their order.
  bool any_moving = false;            // Of those before it.
  uint64_t cleared_before = 0;        // ExtentStore::cleared_blocks, when the moves began.
  base::TimePoint until;              // Of the moves.
  base::TimePoint next_at;
  std::vector<Device> devices;  // As many as the ExtentStore has, from the first round on.
};

}  // namespace tier::tiering
