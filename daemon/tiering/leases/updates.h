// Updates: sessions that change parts of a tensor which others can name, and when such a change is finished. Engine
// thread only.
//
//   opened    by the session's first seal of a part. A session that dies before has changed nothing: the pieces under
//             its leases revert or tear one by one (rollback.h).
//   finished  changes by hand: by the session's step, by a manifest that the session commits, or when every piece was
//             changed. A swap_out: by the release that says that no more is to come. All updates of the tensor: by a
//             whole seal or a whole swap_out, an accept, or another tensor in its place.
//   broken    by the end of its session, by a write lease that the session gives up, or by the request to tear: the
//             tensor answers TORN until it is rewritten, accepted or freed. After a broken swap_out its own range must
//             be rewritten; after broken changes by hand the whole tensor, as the missing changes are not known.
//
// Ranks divide a sharded tensor, each in steps of its own. The tensor is TORN also when one rank ends, in whatever way,
// while the numbers of the steps in which the ranks wrote last differ (Shard, update_table.h). A rank counts from its
// first seal of a part until other sessions have sealed all that it wrote; what it wrote counts also after its end.
// Nothing counts from before a whole seal, an accept, or a tear of the whole tensor, nor from before a resume.
//
// Ranges sealed by hand are visible at once. Those of an unfinished swap_out are not: others wait for it.
#pragma once

#include <optional>

#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// What a release says of the swap_out that its lease belongs to.
struct SwapPart {
  PieceRange range;    // Of the swap_out; empty: the lease belongs to none.
  bool whole = false;  // The swap_out is over every byte of the tensor.
  bool more = false;   // Other ranges of it are still to be sealed.
};
// A refusal: what the release says is impossible, and the lease counts as one of no swap_out.
std::optional<Refusal> ReadSwapPart(const Tables& tables, LeaseIndex index, const proto::RequestItem& item,
                                    uint32_t flags, SwapPart* part);

// The pieces of the lease were sealed. REQUIRES: the tensor is visible and not detached.
void NoteSeal(Tables& tables, const Lease& lease, const SwapPart& part);
// Ends all updates of the tensor: its present bytes are one content.
void EndUpdates(Tables& tables, TensorIndex index);
// The session has ended a step: its changes by hand belong together. O(1): its records are settled later.
void EndStep(Tables& tables, const SessionState& session);
// Settles records of earlier steps, as far as the turn's work reaches.
void SettleEndedSteps(Tables& tables);

// The session cannot finish its update of the tensor.
void BreakUpdate(Tables& tables, const SessionState& session, TensorIndex tensor);
// The session ends: breaks its updates of all tensors, as far as the turn's work reaches. True: it has none any more.
// REQUIRES: UpdateTable::BeginEnding. Until it returns true, other sessions wait for the tensors that this one has
// changed.
bool BreakUpdates(Tables& tables, const SessionState& session);
// Breaks the updates that ended sessions have in this tensor, for a request that asks for its state.
bool BreakEnding(Tables& tables, TensorIndex index);
// The pieces are not one content with the rest: the tensor is TORN until they are rewritten, or it is accepted or
// freed. An unfinished swap_out of the session within them ends.
void TearRange(Tables& tables, const SessionState& session, const WaitItem& item);
void MarkTorn(Tables& tables, TensorIndex index, PieceRange pieces);

// The live session, other than `session`, that has an unfinished swap_out over one of the pieces. Null: none.
const SessionState* LiveSwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces,
                                  const SessionState& session);
// The same, or an ended session whose changes to the tensor are not broken yet. `session` may be null: any session
// counts.
const SessionState* SwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces, const SessionState* session);
// SwapperOf may find one: a cheap question that most requests need not go beyond.
inline bool MayHaveSwapper(const Tables& tables, TensorIndex index) {
  return tables.tensors[index].has(kSwapping) || (tables.updates.any_ending() && tables.updates.HasAny(index));
}
bool HasUnfinishedSwap(const Tables& tables, TensorIndex index, const SessionState& session);

// A manifest of the session is about to be committed: the session's changes by hand in the tensor until now are
// finished with that commit, if none is added meanwhile. `session`: the index of that session.
void CaptureUpdate(Tables& tables, const SessionState& session, TensorIndex index, uint64_t commit);
void EndCaptured(Tables& tables, TensorIndex index, uint16_t session, uint64_t commit);
// Other sessions have unfinished updates of the tensor, or ranks have written it in different steps. Goes over its
// records.
bool MixedForOthers(const Tables& tables, TensorIndex index, const SessionState& session);

}  // namespace tier::tiering
