// ManifestCapture: where each piece of a persist's tensors lies on SSD, put together turn by turn. Engine thread only.
//
// Each tensor is captured as it is at one moment: if its bytes change while its pieces are gone through, it is begun
// again. What a session changes between the moments of two tensors is in the manifest for the one and not for the
// other; who needs both of one step persists between steps. The captured extents are held from then on (ManifestHolds),
// so that they stay whatever becomes of their pieces.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "daemon/tiering/durability/manifest_codec.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

struct ManifestCapture {
  explicit ManifestCapture(size_t size_expected) : writer(size_expected) {}

  uint64_t cookie = 0;  // Of the commit.
  ManifestWriter writer;
  PieceCursor at;
  uint32_t generation = 0;         // Of the tensor there, when its first piece was captured.
  bool own = false;                // It has tensors of sessions, which go with these.
  std::vector<TensorRef> tensors;  // Captured ones.
  std::vector<uint64_t> ids;       // Theirs, as far as they may have keys.
  std::set<uint64_t> session_ids;  // Those of sessions' own namespaces and of the inherited one.
  std::set<uint64_t> keys;         // Written.
  size_t next_key = 0;             // In `ids`.
};

// Why the waiter's user has not the metadata for its manifest. None: it has.
std::optional<Refusal> CaptureRefusal(Tables& tables, const Waiter& waiter);
// Goes on, as far as the turn's work reaches; the first call begins. kReady: `capture` is whole, and sealed. kWaits:
// what stands at the flush's cursor is being written again, or there is more to do in the next turn. REQUIRES:
// everything was on SSD at some time, and no other manifest of the job is begun.
Outcome Capture(Tables& tables, Waiter& waiter);
// The waiter goes, and nothing was handed to the store: what was captured is held no more.
void DropCapture(Tables& tables, Waiter& waiter);

}  // namespace tier::tiering
