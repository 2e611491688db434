// Updates: sessions that change parts of a tensor which others can name, and when that is finished. Engine thread only.
//
//   opened    by the session's first seal of a part. A session that dies before has changed nothing: what it leased
//   goes
//             back or tears piece by piece (rollback.h).
//   finished  what was changed by hand: by the session's step, by a manifest that the session commits, or when every
//             piece was changed; a swap_out: with the release that says that no more is to come.
//             All of the tensor's: by a whole seal or a whole swap_out, an accept, or another tensor in its place.
//   broken    by the end of its session, by a write lease that the session gives up, or by the request to tear: the
//             tensor answers TORN until it is rewritten, accepted or freed. A broken swap_out asks for its own range to
//             be rewritten, what was changed by hand for the whole tensor: nobody knows what else was to be changed.
//
// Ranks divide a sharded tensor, each in steps of its own. It is TORN also when one of them ends, in whatever way,
// while the numbers of the steps in which they wrote last differ (Shard, update_table.h). A rank counts from its first
// seal of a part on, and no more when others have sealed all that it wrote; what it wrote counts on when it has ended.
// Nothing counts from before a whole seal, an accept, or a tear of the whole tensor, nor from before a resume.
//
// Ranges sealed by hand are visible at once. The range of an unfinished swap_out is not: others wait for it.
#pragma once

#include <optional>

#include "daemon/tiering/api/request.h"
#include "daemon/tiering/tables/tables.h"

namespace tier::tiering {

// What a release says of the swap_out that its lease was a range of.
struct SwapPart {
  PieceRange range;    // Of the swap_out; empty: the lease was of none.
  bool whole = false;  // The swap_out is over every byte of the tensor.
  bool more = false;   // Others of its ranges are still to be sealed.
};
// A refusal: what the release says cannot be, and the lease counts as one of no swap_out.
std::optional<Refusal> ReadSwapPart(const Tables& tables, LeaseIndex index, const proto::RequestItem& item,
                                    uint32_t flags, SwapPart* part);

// The pieces of the lease were sealed. REQUIRES: the tensor is visible and not detached.
void NoteSeal(Tables& tables, const Lease& lease, const SwapPart& part);
// All updates of the tensor end: it is one content as it stands.
void EndUpdates(Tables& tables, TensorIndex index);
// The session has ended a step: what it changed by hand belongs together. O(1): its records are settled later.
void EndStep(Tables& tables, const SessionState& session);
// Settles records of earlier steps, as far as the turn's work reaches.
void SettleEndedSteps(Tables& tables);

// The session cannot finish what it changed in the tensor.
void BreakUpdate(Tables& tables, const SessionState& session, TensorIndex tensor);
// Likewise in all tensors, as far as the turn's work reaches: the session ends. True: it has none any more. REQUIRES:
// UpdateTable::BeginEnding; until it is true, others wait for what the session has changed.
bool BreakUpdates(Tables& tables, const SessionState& session);
// Likewise what sessions that have ended changed in this tensor, for a request that asks for its state.
bool BreakEnding(Tables& tables, TensorIndex index);
// The pieces are not one content with the rest: TORN until they are rewritten, or the tensor is accepted or freed. An
// unfinished swap_out of the session within them has ended.
void TearRange(Tables& tables, const SessionState& session, const WaitItem& item);
void MarkTorn(Tables& tables, TensorIndex index, PieceRange pieces);

// Who has an unfinished swap_out over one of the pieces, other than `session`, and is alive. Null: nobody.
const SessionState* LiveSwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces,
                                  const SessionState& session);
// Likewise, or who has ended while what it changed is not broken yet; other than `session` where that is not null.
const SessionState* SwapperOf(const Tables& tables, TensorIndex index, PieceRange pieces, const SessionState* session);
// SwapperOf may find one: a cheap question that most requests need not go beyond.
inline bool MayHaveSwapper(const Tables& tables, TensorIndex index) {
  return tables.tensors[index].has(kSwapping) || tables.updates.any_ending();
}
bool HasUnfinishedSwap(const Tables& tables, TensorIndex index, const SessionState& session);

// A manifest of the session is about to be committed: what it has changed by hand in the tensor until now ends with
// that commit, if nothing is added meanwhile.
void CaptureUpdate(Tables& tables, const SessionState& session, TensorIndex index, uint64_t commit);
void EndCaptured(Tables& tables, TensorIndex index, uint64_t commit);
// Other sessions have changed a part of the tensor and not finished, or ranks have written it in different steps.
bool MixedForOthers(const Tables& tables, TensorIndex index, const SessionState& session);

}  // namespace tier::tiering
