// ManifestMove: the pieces that only a manifest holds leave a device that is being emptied, one manifest at a time.
// Engine thread only.
//
// The manifest is loaded; its pieces on draining devices are read and written elsewhere through blocks of memory of the
// daemon; then a manifest that differs in these places alone is committed in its stead. Until that is synced the old
// one holds its extents, so a crash at any moment leaves one of the two, whole. A piece that cannot be read stays where
// it is. The new extents are held by the begun manifest from the end of their write on: when the move is given up they
// become free like those of any manifest that was not committed (tables/manifest_holds.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "daemon/storage/extent_list.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct ManifestMove {
  std::vector<std::byte> bytes;
  std::optional<ManifestReader> reader;  // Of `bytes`.
  std::optional<ManifestWriter> writer;
  std::optional<storage::ExtentListWriter> extents;
  struct Moved {
    uint64_t piece = 0;  // Its number in the manifest.
    storage::Extent to;  // Empty: it stays.
  };
  std::deque<Moved> moved;  // Pieces that were on draining devices, in their order.
  uint64_t piece = 0;       // Number of the next one.
  proto::ManifestTensorRecord tensor{};
  std::optional<proto::ManifestPieceRecord> next;  // A piece that waits for a block.
  size_t next_moved = 0;                           // Index in `moved`, while the new manifest is put together.
  size_t moved_count = 0;
  bool unread = false;  // Some piece stays.
  bool full = false;    // No other device has room.
};

// Looks for a manifest to move, or goes on with the one that is under way, as far as the turn's work reaches.
void MoveManifests(Tables& tables);
// Whether the result answers the load of the move under way.
bool TakeMoveLoaded(Tables& tables, storage::ManifestResult* result);
// The store has answered a commit, which the holds know of: of the move, or of another one.
void OnMoveAnswered(Tables& tables, const storage::ManifestResult& result);
// The move is given up. True: not before what is under way has ended.
bool StopMove(Tables& tables);
// The same if it is the move of this job's manifest.
bool StopMoveOf(Tables& tables, const std::string& key);
// Devices are drained that were not, or the other way round: a move begins again.
void OnDrainsChanged(Tables& tables);

}  // namespace tier::tiering
