// ManifestCapture: where each piece of a persist's tensors lies on SSD, put together turn by turn. Engine thread only.
//
// Each tensor is captured as it is at one moment: if its bytes change during the capture of its pieces, the tensor is
// captured again from its first piece. Two tensors are captured at different moments, so a change between them is in
// the manifest for one and not for the other; a client that needs both of one step persists between steps. From then on
// the captured extents are held (ManifestHolds), so that they stay whatever becomes of their pieces.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "daemon/storage/extent_list.h"
#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct ManifestCapture {
  ManifestCapture(size_t size_expected, size_t pieces_expected, const storage::DeviceNumbers& numbers)
      : writer(size_expected, numbers), extents(pieces_expected, numbers) {}

  uint64_t cookie = 0;  // Of the commit.
  ManifestWriter writer;
  storage::ExtentListWriter extents;
  PieceCursor at;
  uint32_t generation = 0;         // Of the tensor at `at`, when its first piece was captured.
  bool own = false;                // It has tensors of sessions, which end with them.
  std::vector<TensorRef> tensors;  // Captured ones.
  std::vector<uint64_t> ids;       // Ids of the captured tensors that may have keys.
  std::set<uint64_t> session_ids;  // Those of sessions' own namespaces and of the inherited one.
  std::set<uint64_t> keys;         // Ids whose keys were written.
  size_t next_key = 0;             // Index in `ids`.
};

// Why the metadata limit of the waiter's user leaves no room for its manifest. None: it does.
std::optional<Refusal> CaptureRefusal(Tables& tables, const Waiter& waiter);
// Continues the capture, as far as the turn's work reaches; the first call begins it. kReady: `capture` is complete and
// sealed. kWaits: the piece at the flush's cursor is being written again, or there is more to do in the next turn.
// REQUIRES: each piece was on SSD at some time, and no other manifest of the job is begun.
Outcome Capture(Tables& tables, Waiter& waiter);
// The waiter ends before its manifest was handed to the store: the captured extents are held no more.
void DropCapture(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
